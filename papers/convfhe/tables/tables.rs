//! Tables and plot of what was measured: medians over repeats.

use std::collections::BTreeMap;

use super::Figures;
use super::paper::{TABLE_III, TABLE_IV};
use super::rows::{Convolution, Layer};
use crate::plot::{Dots, Row};
use crate::report::Table;
use crate::statistics::{median, significant};

pub fn all(figures: &Figures) -> Vec<Table> {
    let made = [
        polynomials(figures),
        convolutions(figures),
        costs(figures),
        layers(figures),
        slots(figures),
        networks(figures),
        plans(figures),
        keys(figures),
        interactive(figures),
    ];
    made.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn polynomials(figures: &Figures) -> Table {
    let rows = figures.polynomials.iter().map(|p| {
        vec![p.name.clone(), p.levels.to_string(), significant(p.error), format!("2^{:.1}", p.error.log2())]
    });
    Table {
        name: "relu",
        title: "polynomials for ReLU on [-1, 1]".into(),
        header: vec!["degrees", "levels", "largest error", "as a power of 2"],
        numbers_from: 1,
        rows: rows.collect(),
        notes: String::new(),
    }
}

/// Rows of one case together, in the order of the cases.
fn grouped<K: Ord, T>(rows: &[T], key: impl Fn(&T) -> K) -> BTreeMap<K, Vec<&T>> {
    let mut groups: BTreeMap<K, Vec<&T>> = BTreeMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    groups
}

fn of<T>(rows: &[&T], figure: impl Fn(&T) -> f64) -> f64 {
    median(rows.iter().map(|row| figure(row)))
}

fn by_case(figures: &Figures) -> BTreeMap<(usize, usize), Vec<&Convolution>> {
    grouped(&figures.convolutions, |c| (c.batch, c.kernel))
}

fn convolutions(figures: &Figures) -> Table {
    let groups = by_case(figures);
    let rows = groups.iter().map(|(&(batch, kernel), runs)| {
        let ours = of(runs, Convolution::seconds);
        let smallest = groups
            .iter()
            .find(|((b, _), _)| *b == batch)
            .map_or(ours, |(_, runs)| of(runs, Convolution::seconds));
        let vector = of(runs, |c| c.vector_seconds);
        let or_none = |value: f64| if vector > 0.0 { significant(value) } else { "-".into() };
        vec![
            batch.to_string(),
            runs[0].side.to_string(),
            kernel.to_string(),
            significant(of(runs, |c| c.weights_seconds)),
            significant(of(runs, |c| c.products_seconds)),
            significant(of(runs, |c| c.packing_seconds)),
            significant(ours),
            significant(ours / smallest),
            significant(of(runs, |c| c.busy_seconds)),
            significant(of(runs, |c| c.encrypted_busy_seconds)),
            or_none(vector),
            or_none(of(runs, |c| c.vector_busy_seconds)),
            or_none(of(runs, |c| c.vector_busy_seconds / c.busy_seconds)),
        ]
    });
    Table {
        name: "convolution",
        title: "one convolution by batch and kernel, seconds (Figure 5)".into(),
        header: vec![
            "B",
            "side",
            "k",
            "weights",
            "products",
            "packing",
            "ours",
            "beside least k",
            "processor",
            "encrypted weights, processor",
            "slots",
            "slots, processor",
            "slots / ours, processor",
        ],
        numbers_from: 0,
        rows: rows.collect(),
        notes:
            "Ours: B products and packing; making plaintexts of the weights stands before. Encrypted weights are there, as plaintexts in slots are. \
                In slots: four convolutions of B/2 channels, since half as many values fit."
                .into(),
    }
}

/// Table I of the paper, for the shapes that were measured.
fn costs(figures: &Figures) -> Table {
    let rows = by_case(figures).into_iter().map(|((batch, kernel), runs)| {
        let counts = [runs[0].counts, runs[0].vector_counts].concat();
        [batch, kernel].into_iter().chain(counts).map(|count| count.to_string()).collect()
    });
    Table {
        name: "costs",
        title: "what one convolution takes, by batch and kernel (Table I)".into(),
        header: vec![
            "B",
            "k",
            "rotations",
            "products",
            "keys",
            "slots: rotations",
            "slots: products",
            "slots: keys",
        ],
        numbers_from: 0,
        rows: rows.collect(),
        notes: "Of 2^16 values: one ciphertext, and two in slots. Rotations of ours are packing's, at level 0; those in slots at level 1. Horner's rule \
                moves the sums of channels with one key; the paper's baseline has B for them."
            .into(),
    }
}

fn phases(runs: &[&Layer]) -> Vec<String> {
    (0..6).map(|i| significant(of(runs, |l| l.phases()[i]))).collect()
}

/// Layers by name, in the order in which they were measured.
fn by_name(layers: &[Layer]) -> Vec<(&str, Vec<&Layer>)> {
    let mut named: Vec<(&str, Vec<&Layer>)> = Vec::new();
    for layer in layers {
        match named.iter_mut().find(|(name, _)| *name == layer.network) {
            Some((_, runs)) => runs.push(layer),
            None => named.push((&layer.network, vec![layer])),
        }
    }
    named
}

fn layers(figures: &Figures) -> Table {
    let rows = by_name(&figures.layers).into_iter().map(|(name, runs)| {
        let mut row = vec![name.to_owned()];
        row.extend(phases(&runs));
        row.push(significant(of(&runs, Layer::seconds)));
        row.push(significant(of(&runs, |l| l.busy_seconds)));
        row
    });
    Table {
        name: "layers",
        title: "one layer by phase, seconds (Figure 6)".into(),
        header: vec![
            "layer",
            "convolution",
            "packing",
            "ModUp, CtoS",
            "sine",
            "ReLU, Ext",
            "StoC",
            "total",
            "processor",
        ],
        numbers_from: 1,
        rows: rows.collect(),
        notes: String::new(),
    }
}

/// The same layers in slots, beside ours.
fn slots(figures: &Figures) -> Table {
    let ours = by_name(&figures.layers);
    let rows = by_name(&figures.slots).into_iter().map(|(name, runs)| {
        let busy = |runs: &[&Layer]| of(runs, |l| l.busy_seconds);
        let found = ours.iter().find(|(there, _)| *there == name).map(|(_, runs)| busy(runs));
        let mut row = vec![name.to_owned()];
        row.extend([0, 2, 3, 5, 4].map(|phase| significant(of(&runs, |l| l.phases()[phase]))));
        row.push(significant(busy(&runs)));
        row.push(found.map_or("-".into(), significant));
        row.push(found.map_or("-".into(), |ours| format!("{:.0} %", 100.0 * (1.0 - ours / busy(&runs)))));
        row
    });
    Table {
        name: "slots",
        title: "one layer in slots by phase, seconds, beside ours (Figure 6)".into(),
        header: vec![
            "layer",
            "convolution",
            "ModUp, CtoS",
            "sine",
            "StoC",
            "ReLU",
            "processor",
            "ours, processor",
            "ours saves",
        ],
        numbers_from: 1,
        rows: rows.collect(),
        notes: "By turns with ours. Weights' plaintexts are there in slots; ours makes them. The paper's saves 13 to 83 %.".into(),
    }
}

/// One network's medians: convolutions, ReLU, bootstrapping, fully connected; and how many layers were measured.
struct Whole {
    seconds: [f64; 4],
    busy: f64,
    measured: usize,
    layers: usize,
    bootstraps: usize,
}

impl Whole {
    fn new(runs: &BTreeMap<(String, usize), Vec<&Layer>>, name: &str) -> Self {
        let mut whole = Self { seconds: [0.0; 4], busy: 0.0, measured: 0, layers: 0, bootstraps: 0 };
        for ((_, index), runs) in runs.iter().filter(|((n, _), _)| n == name) {
            let last = *index == runs[0].layers;
            let [convolution, packing, ctos, sine, relu, stoc] =
                [0, 1, 2, 3, 4, 5].map(|i| of(runs, |l| l.phases()[i]));
            whole.seconds[if last { 3 } else { 0 }] += convolution + packing;
            whole.seconds[1] += relu;
            whole.seconds[2] += ctos + sine + stoc;
            whole.busy += of(runs, |l| l.busy_seconds);
            whole.measured += 1;
            whole.layers = runs[0].layers;
            // (The last makes the logits.)
            whole.bootstraps += if last { 0 } else { runs[0].ciphertexts };
        }
        whole
    }

    fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }
}

fn networks(figures: &Figures) -> Table {
    let groups = grouped(&figures.networks, |l| (l.network.clone(), l.index));
    let mut names: Vec<&String> = groups.keys().map(|(name, _)| name).collect();
    names.dedup();
    let rows = names.into_iter().map(|name| {
        let whole = Whole::new(&groups, name);
        let paper = TABLE_III.iter().find(|column| column.network == name);
        let mut row = vec![name.clone(), format!("{} of {}", whole.measured, whole.layers)];
        row.push(whole.bootstraps.to_string());
        row.extend(whole.seconds.iter().map(|&s| significant(s)));
        row.push(significant(whole.total()));
        row.push(significant(whole.busy));
        row.extend((0..4).map(|i| paper.map_or("-".into(), |p| significant(p.seconds[i]))));
        let total = paper.map(|p| p.seconds[4]);
        let total = total.or_else(|| TABLE_IV.iter().find(|(n, _)| n == name).map(|(_, seconds)| *seconds));
        row.push(total.map_or("-".into(), significant));
        row.push(paper.and_then(|p| p.baseline).map_or("-".into(), significant));
        row
    });
    Table {
        name: "networks",
        title: "networks by phase, seconds (Tables III and IV)".into(),
        header: vec![
            "network",
            "layers",
            "bootstraps",
            "conv",
            "ReLU",
            "boot",
            "FC",
            "sum",
            "processor",
            "paper: conv",
            "paper: ReLU",
            "paper: boot",
            "paper: FC",
            "paper: total",
            "paper: baseline",
        ],
        numbers_from: 1,
        rows: rows.collect(),
        notes: "The sum is of the layers that were measured, on the clock; processor: what all threads took of cores. The paper's seconds are of one \
                thread at 2.8 GHz, so they stand beside `processor`, not beside `sum`; it is another machine, so no ratio."
            .into(),
    }
}

fn plans(figures: &Figures) -> Table {
    let rows = figures.plans.iter().map(|p| {
        let mut row = vec![p.network.clone()];
        row.extend([p.bootstraps, p.pieces, p.products, p.cost].map(|count| count.to_string()));
        row
    });
    Table {
        name: "plans",
        title: "the networks of Figure 7 by their plans".into(),
        header: vec!["network", "bootstraps", "pieces", "products", "cost, products"],
        numbers_from: 1,
        rows: rows.collect(),
        notes: "A bootstrap counts as 3500 products, a piece as 350. Nothing is evaluated.".into(),
    }
}

fn keys(figures: &Figures) -> Table {
    let rows = figures.keys.iter().map(|k| {
        vec![
            significant(k.wire_bytes / 1e9),
            significant(k.memory_bytes / 1e9),
            significant(k.key_seconds),
            significant(k.matrix_seconds),
        ]
    });
    Table {
        name: "keys",
        title: "a client's keys".into(),
        header: vec!["GB up, once", "GB of the server's memory", "seconds to make", "seconds for matrices"],
        numbers_from: 0,
        rows: rows.take(1).collect(),
        notes: "Memory is the estimate by which the server refuses a machine that is too small.".into(),
    }
}

fn interactive(figures: &Figures) -> Table {
    let rows = figures.interactive.iter().map(|run| {
        vec![
            run.network.clone(),
            significant(run.offline.seconds),
            significant(run.online.seconds),
            significant(run.mib()),
            format!("{} + {}", run.offline.rounds, run.online.rounds),
            significant(run.hint_mib),
        ]
    });
    Table {
        name: "interactive",
        title: "the interactive protocol".into(),
        header: vec!["network", "offline, s", "online, s", "MiB", "rounds", "hint MiB, once"],
        numbers_from: 1,
        rows: rows.collect(),
        notes: "In one round: 2 MiB up for each ciphertext of the input, 2 MiB down, one round, and the keys once.".into(),
    }
}

/// Convolutions, or, if none were measured, layers and networks, or polynomials.
pub fn plot(figures: &Figures) -> Dots {
    if !figures.convolutions.is_empty() {
        let rows = by_case(figures).into_iter().map(|((batch, kernel), runs)| Row {
            label: format!("B = {batch}, k = {kernel}"),
            dots: runs.iter().flat_map(|c| [(0, c.seconds()), (1, c.vector_seconds)]).collect(),
        });
        return Dots {
            title: "One convolution of 2^16 values by batch and kernel".into(),
            axis: "seconds".into(),
            series: vec!["in coefficients (ours)", "in slots"],
            rows: rows.collect(),
        };
    }
    if !figures.layers.is_empty() || !figures.networks.is_empty() {
        let layers = figures.layers.iter().chain(&figures.networks);
        let rows = layers.map(|l| Row {
            label: format!("{}, layer {}", l.network, l.index),
            dots: l.phases().into_iter().enumerate().collect(),
        });
        return Dots {
            title: "Layers by phase".into(),
            axis: "seconds".into(),
            series: vec!["convolution", "packing", "ModUp, CtoS", "sine", "ReLU, Ext", "StoC"],
            rows: rows.collect(),
        };
    }
    if figures.polynomials.is_empty() {
        let rows = figures.interactive.iter().map(|run| Row {
            label: run.network.clone(),
            dots: vec![(0, run.offline.seconds), (1, run.online.seconds)],
        });
        return Dots {
            title: "The interactive protocol".into(),
            axis: "seconds".into(),
            series: vec!["offline", "online"],
            rows: rows.collect(),
        };
    }
    // Each series is the error near one place; the curve has places 2^(-i/8), from the least.
    let near = [("at |x| = 1/1024", 16), ("at 1/128", 40), ("at 1/16", 64), ("at 1/2", 88)];
    let rows = figures.polynomials.iter().map(|p| {
        let places = near.iter().enumerate();
        let places = places.filter_map(|(i, (_, at))| p.curve.get(*at).map(|[_, error]| (i + 1, *error)));
        Row {
            label: format!("{} ({} levels)", p.name, p.levels),
            dots: std::iter::once((0, p.error)).chain(places).collect(),
        }
    });
    Dots {
        title: "Polynomials for ReLU on [-1, 1]: error by degrees and place".into(),
        axis: "error".into(),
        series: std::iter::once("largest").chain(near.iter().map(|(name, _)| *name)).collect(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(network: &str, index: usize, seconds: f64) -> Layer {
        Layer {
            network: network.into(),
            index,
            layers: 2,
            ciphertexts: 1,
            convolution_seconds: seconds,
            packing_seconds: seconds,
            ctos_seconds: 2.0 * seconds,
            sine_seconds: seconds,
            relu_seconds: seconds,
            stoc_seconds: seconds,
            busy_seconds: 3.0 * seconds,
        }
    }

    #[test]
    fn networks_are_sums_of_medians() {
        let runs =
            [1.0, 3.0, 2.0].into_iter().flat_map(|s| [layer("k3-d20-w1", 1, s), layer("k3-d20-w1", 2, s)]);
        let figures = Figures { networks: runs.collect(), ..Figures::default() };
        let tables = all(&figures);
        assert_eq!(tables.len(), 1);
        let row = &tables[0].rows[0];
        // conv 2 + 2, ReLU 2·2, boot 2·(4 + 2 + 2), FC 2 + 2.
        assert_eq!(row[1..8], ["2 of 2", "1", "4.00", "4.00", "16.0", "4.00", "28.0"]);
        assert_eq!(row[8], "12.0");
        assert_eq!(row[13], "368");
    }

    #[test]
    fn every_network_of_figure_7_has_a_plan() {
        let plans = crate::convfhe::plans(jaguar_ckks::Literal::n16()).unwrap();
        let tables = all(&Figures { plans, ..Figures::default() });
        assert_eq!(tables.len(), 1);
        let rows = &tables[0].rows;
        assert_eq!(rows.len(), 27);
        let found = |name: &str| rows.iter().find(|row| row[0] == name).unwrap()[1..].to_vec();
        assert_eq!(found("k3-d20-w1"), ["19", "19", "698", "73848"]);
        assert_eq!(found("k5-d8-w3"), ["9", "45", "5594", "52844"]);
    }

    #[test]
    fn layers_in_slots_stand_beside_ours() {
        let slots = [4.0, 8.0, 6.0].map(|seconds| layer("other", 1, seconds));
        let ours = [1.0, 2.0, 3.0].map(|seconds| layer("other", 1, seconds));
        let alone = layer("alone", 1, 1.0);
        let figures = Figures {
            layers: ours.into(),
            slots: [slots.to_vec(), vec![alone]].concat(),
            ..Figures::default()
        };
        let table = &all(&figures)[1];
        // Processor time is three times the argument: 18 beside 6.
        assert_eq!(table.rows[0], ["other", "6.00", "12.0", "6.00", "6.00", "6.00", "18.0", "6.00", "67 %"]);
        assert_eq!(table.rows[1][7..], ["-", "-"]);
    }

    #[test]
    fn kernels_stand_beside_the_least_one() {
        let row = |kernel, seconds| Convolution {
            batch: 4,
            side: 8,
            kernel,
            weights_seconds: 1.0,
            products_seconds: seconds,
            packing_seconds: seconds,
            busy_seconds: 4.0,
            encrypted_seconds: 5.0,
            encrypted_busy_seconds: 6.0,
            counts: [3, 4, 2],
            vector_seconds: 0.0,
            vector_busy_seconds: 0.0,
            vector_counts: [7, 9, 5],
        };
        let figures = Figures { convolutions: vec![row(3, 1.0), row(5, 1.5)], ..Figures::default() };
        let tables = all(&figures);
        assert_eq!(tables[0].rows[1][6..8], ["3.00", "1.50"]);
        assert_eq!(tables[0].rows[1][8..11], ["4.00", "6.00", "-"]);
        assert_eq!(tables[1].rows[1], ["4", "5", "3", "4", "2", "7", "9", "5"]);
    }
}
