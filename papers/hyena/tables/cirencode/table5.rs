//! Table 5 of PrivCirNet's paper: how many times fewer products and rotations layers of its three networks take with blocks
//! of 2 and of 8 than dense under the best of what it compares with (Bolt for matrix products, Neujeans for convolutions, both
//! with baby and giant steps), which is CirEncode with blocks of 1.
//!
//! The text at hand says which networks the layers are of, not which ones they are, and of the means over them one digit
//! each. So all layers stand here that have blocks of that size, each shape once.

use super::Row;
use crate::report::Table;
use crate::statistics::significant;

/// How many times fewer with blocks of `b` than dense: products, rotations, and of how many shapes these are the means.
fn fewer(rows: &[&Row], b: usize) -> (f64, f64, usize) {
    let dense = |row: &Row| rows.iter().find(|other| other.conv == row.conv && other.b == 1).copied();
    let pairs: Vec<(&Row, &Row)> =
        rows.iter().filter(|row| row.b == b).filter_map(|row| Some((dense(row)?, *row))).collect();
    let mean = |of: fn(&Row) -> usize| {
        // A layer that needs no rotation any more counts as one that needs one.
        let ratio = |(dense, row): &(&Row, &Row)| of(dense).max(1) as f64 / of(row).max(1) as f64;
        pairs.iter().map(ratio).sum::<f64>() / pairs.len() as f64
    };
    (mean(|row| row.products), mean(|row| row.rotations), pairs.len())
}

/// The table, over the layers of each network and over those of all.
pub fn table(rows: &[Row]) -> Table {
    let networks = super::networks();
    let own = |convs: &[crate::conv::shapes::Conv]| -> Vec<&Row> {
        rows.iter().filter(|row| convs.contains(&row.conv)).collect()
    };
    let mut groups: Vec<(&str, Vec<&Row>)> =
        networks.iter().map(|(name, convs)| (*name, own(convs))).collect();
    groups.push(("all three", rows.iter().collect()));
    let mut cells = Vec::new();
    for (name, rows) in &groups {
        for b in [2, 8] {
            let (products, rotations, shapes) = fewer(rows, b);
            if shapes > 0 {
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
        title: "how many times fewer products and rotations than dense, means over the shapes that have such blocks".into(),
        header: vec!["network", "b", "shapes", "products", "rotations"],
        numbers_from: 1,
        rows: cells,
        notes: "PrivCirNet's Table 5 has layers of the same networks; of its means the text at hand has the last digits: ?.5 times \
                fewer products with blocks of 8, and ?.9 with blocks of 2."
            .into(),
    }
}
