//! What `jaguar-bench circulant` shows people.

use jaguar_graph::network::BLOCK_SIZES;
use jaguar_report::terminal::table::bytes;

use super::{Figures, Row, Whole};
use crate::plot::{self, Dots};
use crate::report::{Goal, Table, Target};
use crate::statistics::{Ratio, significant};

/// The dense layer of the same shape.
fn dense<'a>(rows: &'a [Row], row: &Row) -> &'a Row {
    rows.iter().find(|other| other.conv == row.conv && other.b == 1).expect("every shape has its dense row")
}

/// How many times faster than the dense layer: a query.
fn faster(rows: &[Row], row: &Row) -> f64 {
    dense(rows, row).ms.query() / row.ms.query()
}

/// Where the responses rule: the map of a channel fits a part of the ring, and the dense layer has so many times as many responses as
/// ciphertexts that there are still eight times as many when blocks have made them b times fewer. (A ciphertext costs the client some three
/// times what a response costs both parties, and blocks leave its number as it is.)
fn responses_rule(rows: &[Row], row: &Row) -> bool {
    let dense = dense(rows, row);
    row.effective == row.b && row.tiles == 1 && dense.responses >= 8 * row.b * dense.ciphertexts
}

pub fn all(figures: &Figures) -> Vec<Table> {
    let mut tables = vec![layers(&figures.rows), groups(&figures.rows)];
    if !figures.networks.is_empty() {
        tables.push(networks(&figures.networks));
    }
    tables.push(Table::goals(&goals(figures)));
    tables
}

fn layers(rows: &[Row]) -> Table {
    let row = |row: &Row| {
        let dense = dense(rows, row);
        let mut cells = vec![row.name.clone(), row.b.to_string(), row.effective.to_string()];
        cells.extend([row.tiles, row.ciphertexts, row.responses].map(|count| count.to_string()));
        cells.extend([row.hint_bytes, row.upload_bytes].map(|count| bytes(count as u64)));
        let ms = &row.ms;
        let figures = [
            ms.a_half,
            ms.hint,
            ms.prepare_server,
            ms.prepare_client,
            ms.online_server,
            ms.online_client,
            ms.query(),
            row.predicted_ms.unwrap_or(f64::NAN),
            faster(rows, row),
            dense.ms.online() / ms.online(),
            dense.hint_bytes as f64 / row.hint_bytes as f64,
        ];
        cells.extend(figures.map(significant));
        cells
    };
    Table {
        name: "layers",
        title: "single layers by block size b (1: dense): milliseconds, and how many times faster than dense".into(),
        header: vec![
            "shape",
            "b",
            "runs as",
            "tiles",
            "ciphertexts",
            "responses",
            "hint",
            "up",
            "a half",
            "hint ms",
            "prep. s",
            "prep. c",
            "online s",
            "online c",
            "query",
            "predicted",
            "times, query",
            "times, online",
            "times, hint",
        ],
        numbers_from: 1,
        rows: rows.iter().map(row).collect(),
        notes: "once per model: a half; once per client: hint; before the input: prep. A query is preparation and online, both \
                parties. The keys of a query, which all layers share, are not counted here. Times are the least of the repeats."
            .into(),
    }
}

fn groups(rows: &[Row]) -> Table {
    let mut cells = Vec::new();
    for b in BLOCK_SIZES {
        for (name, rules) in [("where responses rule", true), ("elsewhere", false)] {
            let group: Vec<&Row> =
                rows.iter().filter(|row| row.b == b && responses_rule(rows, row) == rules).collect();
            let ratio = |of: &dyn Fn(&Row) -> f64| Ratio::text(Ratio::new(group.iter().map(|row| of(row))));
            cells.push(vec![
                b.to_string(),
                name.into(),
                group.len().to_string(),
                ratio(&|row| faster(rows, row)),
                ratio(&|row| dense(rows, row).ms.online() / row.ms.online()),
                ratio(&|row| dense(rows, row).ms.a_half / row.ms.a_half),
                ratio(&|row| dense(rows, row).hint_bytes as f64 / row.hint_bytes as f64),
            ]);
        }
    }
    Table {
        name: "groups",
        title: "how many times faster (smaller) than dense, geometric means (ranges) over shapes".into(),
        header: vec!["b", "shapes", "cases", "query", "online", "a half", "hint"],
        numbers_from: 2,
        rows: cells,
        notes: "Responses rule where a channel's map fits a part of the ring (N/b coefficients) and the dense layer has at least \
                eight times as many responses as ciphertexts."
            .into(),
    }
}

fn networks(networks: &[Whole]) -> Table {
    let row = |whole: &Whole| {
        let dense = networks.iter().find(|other| other.network == whole.network && other.b == 1);
        let dense = dense.expect("every network has its dense row");
        let mut cells = vec![whole.network.to_owned(), whole.b.to_string()];
        cells.push(format!("{} of {}", whole.blocked[0], whole.blocked[1]));
        cells.extend([whole.ciphertexts, whole.responses, whole.secrets].map(|count| count.to_string()));
        cells.extend([whole.hint_bytes, whole.upload_bytes].map(|count| bytes(count as u64)));
        let times = [
            whole.a_half_ms,
            whole.query_ms,
            whole.predicted_ms.unwrap_or(f64::NAN),
            whole.online_ms,
            dense.query_ms / whole.query_ms,
            dense.online_ms / whole.online_ms,
            dense.hint_bytes as f64 / whole.hint_bytes as f64,
        ];
        cells.extend(times.map(significant));
        cells
    };
    Table {
        name: "networks",
        title: "linear layers of whole networks, blocks of one size throughout: sums over layers, and the query's keys".into(),
        header: vec![
            "network",
            "b",
            "with blocks",
            "ciphertexts",
            "responses",
            "secrets",
            "hint",
            "up",
            "a half ms",
            "query ms",
            "predicted ms",
            "online ms",
            "times, query",
            "times, online",
            "times, hint",
        ],
        numbers_from: 1,
        rows: networks.iter().map(row).collect(),
        notes: "PrivCirNet's paper: 1.7 to 5 times faster than Bolt at equal accuracy, sizes chosen by layer; nonlinear layers \
                included there, and not here."
            .into(),
    }
}

/// What was set out to be reached.
fn goals(figures: &Figures) -> Vec<Goal> {
    let rows = &figures.rows;
    let eights = rows.iter().filter(|row| row.b == 8 && responses_rule(rows, row));
    let mut goals = Vec::new();
    goals.extend(Ratio::new(eights.map(|row| faster(rows, row))).map(|ratio| Goal {
        what: "blocks of 8: times faster than dense, where responses rule (geometric mean)".into(),
        target: Target::AtLeast(6.4),
        figure: ratio.mean,
        limit: Some(8.0),
    }));
    for (name, target) in [("ResNet-50", 30.0), ("ResNet-18", 8.0)] {
        let whole = figures.networks.iter().find(|whole| whole.network == name && whole.b == 8);
        goals.extend(whole.map(|whole| Goal {
            what: format!("{name}'s hint with blocks of 8, MiB"),
            target: Target::AtMost(target),
            figure: whole.hint_bytes as f64 / f64::from(1 << 20),
            limit: None,
        }));
    }
    goals
}

pub fn plot(figures: &Figures) -> Dots {
    let rows = &figures.rows;
    dots(
        "Weights in skew-circulant blocks: how many times faster a layer is than dense",
        "times faster than the dense layer, a query, both parties",
        rows.iter().map(|row| (row.name.as_str(), row.b, faster(rows, row))),
    )
}

/// Ratios of layers with blocks, each by its shape's name and its block size.
pub fn dots<'a>(title: &str, axis: &str, ratios: impl Iterator<Item = (&'a str, usize, f64)>) -> Dots {
    let mut rows: Vec<plot::Row> = Vec::new();
    for (name, b, ratio) in ratios {
        let Some(series) = BLOCK_SIZES.iter().position(|&size| size == b) else { continue };
        match rows.iter_mut().find(|row| row.label == name) {
            Some(row) => row.dots.push((series, ratio)),
            None => rows.push(plot::Row { label: name.to_owned(), dots: vec![(series, ratio)] }),
        }
    }
    let series = vec!["b = 2", "b = 4", "b = 8", "b = 16"];
    Dots { title: title.into(), axis: axis.into(), series, rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::shapes::Conv;
    use crate::conv::ways::Ours;
    use crate::report::tests::{met, missed};

    #[test]
    fn a_worse_measurement_misses_the_goals() {
        // A fully connected layer, dense and with blocks of 8.
        let conv = Conv::new(1, 512, 1000, 1, 1);
        let row = |b: usize, ms: f64| Row {
            name: conv.name(),
            conv,
            b,
            effective: b,
            tiles: 1,
            ciphertexts: 1,
            responses: 1000 / b,
            secrets: 1,
            hint_bytes: 1,
            upload_bytes: 1,
            ms: Ours { online_server: ms, ..Ours::default() },
            predicted_ms: None,
        };
        let whole = |network, hint_bytes| Whole {
            network,
            b: 8,
            blocked: [1, 1],
            responses: 1,
            ciphertexts: 1,
            secrets: 1,
            hint_bytes,
            upload_bytes: 1,
            query_ms: 1.0,
            predicted_ms: None,
            online_ms: 1.0,
            a_half_ms: 1.0,
        };
        for (ms, hint, reached) in [(1.0, 1 << 20, true), (9.0, 1 << 30, false)] {
            let rows = vec![row(1, 10.0), row(8, ms)];
            let networks = vec![whole("ResNet-50", hint), whole("ResNet-18", hint)];
            let goals = goals(&Figures { rows, networks });
            assert_eq!((goals.len(), met(&goals), missed(&goals)), (3, reached, !reached));
        }
    }
}
