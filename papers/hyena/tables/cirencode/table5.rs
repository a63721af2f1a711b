//! Table 5 of PrivCirNet's paper: how many times fewer products and rotations layers take with blocks of 2 and of 8 than dense.
//!
//! Dense is the best of what the paper compares with, Bolt for matrix products and Neujeans for convolutions, both with baby and
//! giant steps: CirEncode with blocks of 1. The text at hand says which networks the layers are of, and not which ones they
//! are, nor their means. So every shape stands here that has blocks of that size, once, and sums are compared: some layers need no
//! rotation any more.

use super::Row;
use crate::report::Table;
use crate::statistics::significant;

/// How many shapes have blocks of `b`, and how many times fewer products and rotations they take together. None if none has.
fn fewer(rows: &[&Row], b: usize) -> Option<(usize, f64, f64)> {
    let with: Vec<&Row> = rows.iter().copied().filter(|row| row.b == b).collect();
    let dense: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| row.b == 1 && with.iter().any(|other| other.conv == row.conv))
        .collect();
    let ratio = |of: fn(&Row) -> usize| {
        let [dense, with] = [&dense, &with].map(|rows| rows.iter().map(|row| of(row)).sum::<usize>());
        dense as f64 / with as f64
    };
    (!with.is_empty()).then(|| (with.len(), ratio(|row| row.products), ratio(|row| row.rotations)))
}

/// The table, over the layers of each network and over those of all.
pub fn table(rows: &[Row]) -> Table {
    let networks = super::networks();
    let mut groups: Vec<(&str, Vec<&Row>)> = Vec::new();
    for (name, convs) in &networks {
        groups.push((name, rows.iter().filter(|row| convs.contains(&row.conv)).collect()));
    }
    groups.push(("all three", rows.iter().collect()));
    let mut cells = Vec::new();
    for (name, rows) in &groups {
        for b in [2, 8] {
            if let Some((shapes, products, rotations)) = fewer(rows, b) {
                let figures = [significant(products), significant(rotations)];
                cells.push(
                    [(*name).to_owned(), b.to_string(), shapes.to_string()]
                        .into_iter()
                        .chain(figures)
                        .collect(),
                );
            }
        }
    }
    Table {
        name: "table-5",
        title: "how many times fewer products and rotations than dense, over the shapes that have such blocks together".into(),
        header: vec!["network", "b", "shapes", "products", "rotations"],
        numbers_from: 1,
        rows: cells,
        notes: "Each shape counts once.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::shapes::Conv;

    /// Sums of two shapes, of which one needs no rotation; a third one has no blocks of 8, and counts for none.
    #[test]
    fn sums_are_of_the_shapes_that_have_the_size() {
        let row = |channels, b, products, rotations| Row {
            name: String::new(),
            conv: Conv::new(16, channels, channels, 1, 1),
            b,
            products,
            rotations,
            ciphertexts: 0,
            responses: 0,
            key_bytes: 0,
            weight_bytes: 0,
            upload_bytes: 0,
            download_bytes: 0,
            model_ms: 0.0,
            offline_ms: 0.0,
            online_ms: 0.0,
        };
        let rows = [
            row(8, 1, 40, 10),
            row(8, 8, 5, 0),
            row(16, 1, 80, 30),
            row(16, 8, 15, 8),
            row(4, 1, 1000, 1000),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(fewer(&rows, 8), Some((2, 6.0, 5.0)));
        assert_eq!(fewer(&rows, 2), None);
    }
}
