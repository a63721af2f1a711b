//! What `jaguar bench cirencode` shows people.

use jaguar_terminal::table::bytes;

use super::{Figures, Row, Whole};
use crate::circulant::tables::dots;
use crate::plot::Dots;
use crate::report::{Goal, Table, Target};
use crate::statistics::significant;

/// How many times faster PrivCirNet's networks are than Bolt's at equal accuracy, block sizes chosen by layer (its abstract and
/// section 4.3): network, ratio.
const PUBLISHED: [(&str, f64); 3] = [("ResNet-18", 5.0), ("MobileNetV2", 1.7), ("ViT", 1.3)];

/// How many times faster than the dense layer of the same shape, with the input.
fn faster(rows: &[Row], row: &Row) -> f64 {
    let dense = rows.iter().find(|other| other.conv == row.conv && other.b == 1);
    dense.expect("every shape has its dense row").online_ms / row.online_ms
}

pub fn all(figures: &Figures) -> Vec<Table> {
    let mut tables = vec![layers(&figures.rows)];
    if !figures.networks.is_empty() {
        tables.push(networks(&figures.networks));
        tables.push(Table::goals(&goals(&figures.networks)));
    }
    tables.push(super::table4::table());
    tables
}

fn layers(rows: &[Row]) -> Table {
    let row = |row: &Row| {
        let mut cells = vec![row.name.clone(), row.b.to_string()];
        cells.extend(
            [row.products, row.rotations, row.ciphertexts, row.responses].map(|count| count.to_string()),
        );
        let sizes =
            [row.weight_bytes, row.key_bytes as u64, row.upload_bytes as u64, row.download_bytes as u64];
        cells.extend(sizes.map(bytes));
        cells.extend([row.model_ms, row.offline_ms, row.online_ms, faster(rows, row)].map(significant));
        cells
    };
    Table {
        name: "layers",
        title: "CirEncode, single layers by block size b (1: dense): milliseconds, both parties".into(),
        header: vec![
            "shape",
            "b",
            "products",
            "rotations",
            "ciphertexts",
            "responses",
            "weights",
            "keys",
            "up",
            "down",
            "model",
            "offline",
            "online",
            "times, online",
        ],
        numbers_from: 1,
        rows: rows.iter().map(row).collect(),
        notes: "Once per model: model; once per client: keys, here for this layer alone; weights in the server's memory.".into(),
    }
}

fn dense<'a>(networks: &'a [Whole], whole: &Whole) -> &'a Whole {
    let dense = networks.iter().find(|other| other.network == whole.network && other.b == 1);
    dense.expect("every network has its dense row")
}

fn networks(networks: &[Whole]) -> Table {
    let row = |whole: &Whole| {
        let dense = dense(networks, whole);
        let mut cells = vec![whole.network.to_owned(), whole.b.to_string()];
        cells.push(format!("{} of {}", whole.blocked[0], whole.blocked[1]));
        cells.extend([whole.products, whole.rotations, whole.ciphertexts].map(|count| count.to_string()));
        cells.push(bytes(whole.weight_bytes));
        let ratios = [
            dense.products as f64 / whole.products as f64,
            dense.rotations as f64 / whole.rotations.max(1) as f64,
            dense.online_ms / whole.online_ms,
        ];
        cells.extend([whole.online_ms].into_iter().chain(ratios).map(significant));
        cells
    };
    Table {
        name: "networks",
        title: "linear layers of whole networks, blocks of one size throughout: sums over layers".into(),
        header: vec![
            "network",
            "b",
            "with blocks",
            "products",
            "rotations",
            "ciphertexts",
            "weights",
            "online ms",
            "times, products",
            "times, rotations",
            "times, online",
        ],
        numbers_from: 1,
        rows: networks.iter().map(row).collect(),
        notes: "PrivCirNet's paper: 5.0 (ResNet-18), 1.7 (MobileNetV2) and 1.3 (ViT) times faster than Bolt at equal accuracy, sizes \
                chosen by layer."
            .into(),
    }
}

/// The paper's ratios, with the smallest uniform block size that reaches them; the largest, where none does.
fn goals(networks: &[Whole]) -> Vec<Goal> {
    let goal = |&(name, published): &(&str, f64)| {
        let times = |whole: &Whole| dense(networks, whole).online_ms / whole.online_ms;
        let sizes = || networks.iter().filter(|whole| whole.network == name && whole.b > 1);
        let whole = sizes().find(|whole| times(whole) >= published).or_else(|| sizes().next_back())?;
        Some(Goal {
            what: format!("{name} with blocks of {}: times faster than dense", whole.b),
            target: Target::AtLeast(published),
            figure: times(whole),
            limit: None,
        })
    };
    PUBLISHED.iter().filter_map(goal).collect()
}

pub fn plot(figures: &Figures) -> Dots {
    let rows = &figures.rows;
    dots(
        "CirEncode: how many times faster a layer with circulant blocks is than dense",
        "times faster than the dense layer with baby and giant steps, online, both parties",
        rows.iter().map(|row| (row.name.as_str(), row.b, faster(rows, row))),
    )
}
