//! What `jaguar-bench cirencode` shows people.

use jaguar_report::terminal::table::bytes;

use super::{Figures, Row, Sizes, Trained, Whole, trained};
use crate::circulant::tables::dots;
use crate::plot::Dots;
use crate::report::{Goal, Table, Target};
use crate::statistics::significant;

/// A network of PrivCirNet's paper, and how many times faster than Bolt's it is at equal accuracy, block sizes chosen by layer
/// (its abstract and section 4.3).
const PUBLISHED: [(&str, f64); 3] = [("ResNet-18", 5.0), ("MobileNetV2", 1.7), ("ViT", 1.3)];

/// Accuracies count as equal up to so many points, as where block sizes are searched.
const EQUAL: f64 = 0.5;

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
    tables.push(super::table5::table(&figures.rows));
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
        title: "CirEncode, single layers by block size b (1: dense): milliseconds on cores, both parties".into(),
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
    let dense =
        networks.iter().find(|other| other.network == whole.network && other.sizes == Sizes::Everywhere(1));
    dense.expect("every network has its dense row")
}

fn networks(networks: &[Whole]) -> Table {
    let row = |whole: &Whole| {
        let dense = dense(networks, whole);
        let sizes = match whole.sizes {
            Sizes::Everywhere(b) => b.to_string(),
            Sizes::Trained { run: Trained::Uniform, .. } => "trained 8".into(),
            Sizes::Trained { run: Trained::Searched, seed } => format!("searched, seed {seed}"),
            Sizes::Trained { run: Trained::Twos, .. } => "trained 2".into(),
        };
        let mut cells = vec![whole.network.to_owned(), sizes];
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
        title: "linear layers of whole networks, blocks of one size throughout or as networks were trained: sums over layers".into(),
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
                chosen by layer. Times are those on cores. Accuracy is another matter: see the goals."
            .into(),
    }
}

/// The paper's ratios with the sizes of trained networks, each beside what these networks lose, the mean over seeds: with blocks of
/// 8 (the paper's "b8") where they gain, with searched ones, and with blocks of 2 where such a network was trained. A ratio is
/// the paper's only if both goals are met. Of several seeds the least ratio counts. What was not measured is missed.
fn goals(networks: &[Whole]) -> Vec<Goal> {
    let pair = |network: &str, faster, run: Trained| {
        let lost = trained::lost(network, run)?;
        let is_own = |whole: &&Whole| {
            whole.network == network
                && matches!(whole.sizes, Sizes::Trained { run: other, .. } if other == run)
        };
        let ratios =
            networks.iter().filter(is_own).map(|whole| dense(networks, whole).online_ms / whole.online_ms);
        let ratio = ratios.min_by(f64::total_cmp).unwrap_or(f64::NAN);
        let blocks = match run {
            Trained::Uniform => "blocks of 8",
            Trained::Searched => "searched blocks",
            Trained::Twos => "blocks of 2",
        };
        let goal = |what: &str, target, figure| Goal {
            what: format!("{network}, {blocks}: {what}"),
            target,
            figure,
            limit: None,
        };
        Some([
            goal("times faster than dense", Target::AtLeast(faster), ratio),
            goal("points of accuracy lost", Target::AtMost(EQUAL), lost),
        ])
    };
    let of = |(network, faster)| Trained::ALL.into_iter().filter_map(move |run| pair(network, faster, run));
    PUBLISHED.into_iter().flat_map(of).flatten().collect()
}

pub fn plot(figures: &Figures) -> Dots {
    let rows = &figures.rows;
    dots(
        "CirEncode: how many times faster a layer with circulant blocks is than dense",
        "times faster than the dense layer with baby and giant steps, online, both parties",
        rows.iter().map(|row| (row.name.as_str(), row.b, faster(rows, row))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{met, missed};

    fn whole(network: &'static str, sizes: Sizes, online_ms: f64) -> Whole {
        let counts = (1, 1, 1, 1);
        let (products, rotations, ciphertexts, weight_bytes) = counts;
        Whole { network, sizes, blocked: [1, 1], products, rotations, ciphertexts, weight_bytes, online_ms }
    }

    /// The two goals of a network by such blocks.
    fn goals_of(network: &str, blocks: &str, measured: &[Whole]) -> Vec<Goal> {
        let begin = format!("{network}, {blocks}");
        let found: Vec<Goal> =
            goals(measured).into_iter().filter(|goal| goal.what.starts_with(&begin)).collect();
        assert_eq!(found.len(), 2, "{begin}");
        found
    }

    /// What stands beside the paper's ratio is of networks that were trained, whatever one size reaches everywhere; and of
    /// several seeds the slowest.
    #[test]
    fn one_slow_seed_misses_the_goal() {
        for (network, faster) in PUBLISHED {
            let twos = (network == "ViT").then_some((Trained::Twos, "blocks of 2"));
            let runs = [(Trained::Uniform, "blocks of 8"), (Trained::Searched, "searched blocks")];
            for (run, blocks) in runs.into_iter().chain(twos) {
                let of = |slowest: f64| {
                    let all = |b, ms| whole(network, Sizes::Everywhere(b), ms);
                    let seed = |seed, times: f64| whole(network, Sizes::Trained { run, seed }, 100.0 / times);
                    [all(1, 100.0), all(8, 0.1), seed(0, 2.0 * faster), seed(1, slowest * faster)]
                };
                let ratio = |measured: &[Whole]| goals_of(network, blocks, measured).remove(0);
                assert!(met(&[ratio(&of(1.01))]), "{network}, {blocks}");
                assert!(missed(&[ratio(&of(0.99))]), "{network}, {blocks}");
                assert!(missed(&[ratio(&[])]), "{network}, {blocks}");
            }
        }
    }

    /// What networks lose is on record: with blocks of 8 too much, with searched ones nothing but for the transformer, which
    /// loses a bit too much with blocks of 2 too.
    #[test]
    fn accuracies_are_those_on_record() {
        for (network, _) in PUBLISHED {
            assert!(missed(&goals_of(network, "blocks of 8", &[])[1..]), "{network}");
            let searched = goals_of(network, "searched blocks", &[]).remove(1);
            assert_eq!(missed(&[searched]), network == "ViT", "{network}");
        }
        assert!(missed(&goals_of("ViT", "blocks of 2", &[])[1..]));
    }
}
