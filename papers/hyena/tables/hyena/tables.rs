//! What `jaguar-bench hyena` shows.

use super::layers::{Ablation, FORMS, Set, Storage};
use super::networks::{Layer, Linears, Stored};
use super::paper::{self, ABLATION, GOAL, LEAST_RATIO, MEMORY, NETWORKS};
use super::units::Seconds;
use super::{DEFAULT, Figures, Measured, Operations};
use crate::e2e::{NodeKind, Run};
use crate::plot::{self, Dots};
use crate::report::{Goal, Table, Target};
use crate::statistics::significant;

/// Places in [`FORMS`].
const HYENA: usize = 0;
const CONVENTIONAL: usize = 1;
/// The paper's own form, among those of Table 2.
const PATTERNS: usize = 2;

pub fn all(figures: &Figures) -> Vec<Table> {
    let tables = [
        operations(&figures.operations),
        ablation(&figures.ablation),
        parts(&figures.ablation),
        memory(&figures.memory),
        layers(&figures.layers),
        network_layers(&figures.linears),
        networks(&figures.linears, &figures.networks),
    ];
    let mut tables: Vec<Table> = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();
    let goals = goals(figures);
    if !goals.is_empty() {
        tables.push(Table::goals(&goals));
    }
    tables
}

fn none() -> String {
    "-".into()
}

/// MB, as the paper counts: 2^20 bytes.
fn mb(bytes: usize) -> String {
    significant(bytes as f64 / 1_048_576.0)
}

fn gb(bytes: usize) -> String {
    significant(bytes as f64 / f64::from(1 << 30))
}

/// Table 1.
fn operations(rings: &[Operations]) -> Table {
    let row = |ring: &Operations| {
        let Operations { set, n, limbs, bits, .. } = ring;
        let where_ = format!("N = {n}, {limbs} x {bits} bits ({})", set.name());
        let rows = ring.operations.iter().map(move |operation| {
            let of_paper = paper::OPERATIONS.iter().filter(|_| *set == Set::Published);
            let published = of_paper.clone().find(|(_, _, ours)| *ours == operation.name);
            vec![
                where_.clone(),
                operation.name.to_owned(),
                significant(operation.seconds * 1e6),
                published.map_or_else(none, |(_, us, _)| significant(*us)),
                published.map_or_else(none, |(name, ..)| (*name).to_owned()),
            ]
        });
        rows.collect::<Vec<_>>()
    };
    Table {
        name: "operations",
        title: "microseconds of an operation on a ciphertext: Table 1 of the paper".into(),
        header: vec!["ring", "operation", "µs", "the paper's", "as"],
        numbers_from: 2,
        rows: rings.iter().flat_map(row).collect(),
        notes: "A lazy scalar product is a term of a sum in 128 bits, its part of the one reduction included. The paper's: SEAL at 1.6 \
                GHz, another machine; it counts a reduction alone as 16.5 µs."
            .into(),
    }
}

/// Figure 4.
fn ablation(rows: &[Ablation]) -> Table {
    let row = |one: &Ablation| {
        let of = |label: &str| one.variants.iter().find(|variant| variant.label == label);
        let channels = |label| of(label).map_or_else(none, |variant| variant.channels.to_string());
        let digits =
            |label| of(label).map_or_else(none, |variant| format!("{}/{}", variant.digits, variant.limbs));
        let ratio = |label| one.ratio(label).map_or_else(none, significant);
        let seconds = of("a").map_or_else(none, |variant| significant(variant.seconds.convolution()));
        vec![
            one.name.clone(),
            one.set.name().into(),
            format!("{}, {}, {}", channels("a"), channels("e"), channels("f")),
            format!("{}, {}, {}, {}", digits("a"), digits("c"), digits("e"), digits("f")),
            seconds,
            ratio("b"),
            ratio("c"),
            ratio("d"),
            ratio("e"),
            ratio("f"),
        ]
    };
    let said = ABLATION.map(|(what, least, most)| format!("{what}: {least}–{most}")).join("; ");
    Table {
        name: "ablation",
        title: "how many times faster a convolution is than the conventional form (a): Figure 4 of the paper"
            .into(),
        header: vec![
            "layer",
            "parameters",
            "channels of a, e, f",
            "digits/primes of a, c, e, f",
            "a, s",
            "b: a without hoisting",
            "c: proposed, no search",
            "d: with searched parameters",
            "e: and lazy reduction",
            "f: channels interleaved",
        ],
        numbers_from: 4,
        rows: rows.iter().map(row).collect(),
        notes: format!(
            "The server's rotations, products and sums on one thread, from some ciphertexts and diagonals of each layer. Channels: in one \
             ciphertext. No c: no digits keep the noise of the largest weights low enough. The paper's text says: {said}; d with one channel 2.1–3.3. In the paper's parameters the conventional form has two \
             ciphertexts for one (the paper's plaintext decomposition)."
        ),
    }
}

/// Where the time of Figure 4 goes.
fn parts(rows: &[Ablation]) -> Table {
    let cells = |one: &Ablation| {
        let of = |label: &'static str| {
            let variant = one.variants.iter().find(|variant| variant.label == label)?;
            let Seconds { rotations, sums, turns, .. } = variant.seconds;
            let parts = [rotations, sums, turns, variant.units.rotate * 1e3, variant.units.sum * 1e3];
            let head = [one.name.clone(), one.set.name().into(), label.into()];
            Some(head.into_iter().chain(parts.map(significant)).collect::<Vec<_>>())
        };
        [of("a"), of("e"), of("f")].into_iter().flatten().collect::<Vec<_>>()
    };
    Table {
        name: "ablation-parts",
        title: "seconds of Figure 4's layers by step".into(),
        header: vec![
            "layer",
            "parameters",
            "way",
            "rotations of inputs",
            "sums",
            "turns",
            "ms an input",
            "ms a sum",
        ],
        numbers_from: 3,
        rows: rows.iter().flat_map(cells).collect(),
        notes: String::new(),
    }
}

/// Table 2.
fn memory(rows: &[Storage]) -> Table {
    let mut cells: Vec<Vec<String>> = Vec::new();
    for one in rows {
        let conventional = &one.forms[CONVENTIONAL];
        for stored in &one.forms {
            cells.push(vec![
                one.name.clone(),
                one.set.name().into(),
                stored.form.into(),
                mb(stored.keys),
                mb(stored.model()),
                significant(conventional.model() as f64 / stored.model() as f64),
                mb(stored.input),
            ]);
        }
        let printed = MEMORY.iter().find(|row| super::layers::name(row) == one.name);
        for row in printed.into_iter().filter(|_| one.set == Set::Published) {
            let printed = |whose: &str, [keys, model, input]: [f64; 3], ratio: f64| {
                let head = [one.name.clone(), none(), format!("the paper's {whose}")];
                head.into_iter().chain([keys, model, ratio, input].map(significant)).collect()
            };
            cells.push(printed("proposed", row.proposed, row.printed()));
            cells.push(printed("conventional", row.conventional, 1.0));
        }
    }
    Table {
        name: "memory",
        title: "MB at the server: Table 2 of the paper".into(),
        header: vec!["layer", "parameters", "form", "keys", "model", "times smaller", "input ciphertexts"],
        numbers_from: 3,
        rows: cells,
        notes: "Keys and inputs as they are sent: half of each ciphertext is a seed. Models as they lie in memory: 2 bytes a number (the \
                paper: 8), 8 bytes a residue; patterns of ±1 belong to the model."
            .into(),
    }
}

/// Table 3.
fn layers(runs: &[Measured]) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (i, one) in runs.iter().enumerate() {
        let Run { protocol, offline, online, .. } = &one.run;
        let conventional = same(runs, one, FORMS[CONVENTIONAL].name());
        rows.push(vec![
            one.name.clone(),
            protocol.clone(),
            significant(online.seconds),
            significant(one.run.seconds()),
            conventional.map_or_else(none, |run| significant(run.seconds() / one.run.seconds())),
            significant(online.bytes_up as f64 / 1_048_576.0),
            significant(online.bytes_down as f64 / 1_048_576.0),
            significant(online.mib() + offline.mib()),
        ]);
        if runs.get(i + 1).is_none_or(|next| next.name != one.name) {
            for row in paper::LAYERS.iter().filter(|row| row.name() == one.name) {
                let printed = |whose: &str, seconds: f64, mb: f64| {
                    let [seconds, mb] = [seconds, mb].map(significant);
                    vec![one.name.clone(), whose.into(), none(), seconds, none(), none(), none(), mb]
                };
                rows.push(printed("the paper's proposed", row.seconds, row.mb));
                rows.push(printed("CrypTFlow2, by the paper", row.cryptflow2_seconds, row.cryptflow2_mb));
            }
        }
    }
    Table {
        name: "layers",
        title: "single layers: Table 3 of the paper".into(),
        header: vec![
            "layer",
            "backend",
            "online s",
            "query s",
            "times faster than conventional",
            "MiB up",
            "down",
            "MiB a query",
        ],
        numbers_from: 2,
        rows,
        notes: "A query of a network of this layer alone, its result included, keys not; both parties on one thread, by turns. The paper's: \
                another machine."
            .into(),
    }
}

fn same<'a>(runs: &'a [Measured], one: &Measured, protocol: &str) -> Option<&'a Run> {
    let found = runs.iter().find(|other| other.name == one.name && other.run.protocol == protocol);
    found.map(|one| &one.run)
}

/// The forms of every linear layer.
fn network_layers(linears: &[Linears]) -> Table {
    let rows = |network: &Linears| {
        let row = |layer: &Layer| {
            let channels: Vec<String> = layer.forms.iter().map(|taken| taken.channels.to_string()).collect();
            let head = [network.network.clone(), layer.what.clone(), channels.join(", ")];
            let seconds = layer.forms.iter().map(|taken| significant(taken.seconds.all()));
            let ratio = layer.forms[CONVENTIONAL].seconds.all() / layer.forms[HYENA].seconds.all();
            let best = FORMS[layer.best()].name();
            head.into_iter().chain(seconds).chain([significant(ratio), best.into()]).collect::<Vec<_>>()
        };
        network.layers.iter().map(row).collect::<Vec<_>>()
    };
    Table {
        name: "network-layers",
        title: "linear layers of networks by form: seconds on one thread, both parties".into(),
        header: vec![
            "network",
            "layer",
            "channels",
            "hyena",
            "conventional",
            "padded",
            "conventional / hyena",
            "best",
        ],
        numbers_from: 3,
        rows: linears.iter().flat_map(rows).collect(),
        notes: "From some ciphertexts and diagonals of each layer. All layers of a form share one ring."
            .into(),
    }
}

/// What one way takes for all linear layers.
struct Sum {
    name: &'static str,
    seconds: f64,
    /// Of these, convolutions.
    convolutions: f64,
    stored: Stored,
}

/// Each form, and the best form of each layer.
fn sums(network: &Linears) -> Vec<Sum> {
    let sum = |name, stored, form: &dyn Fn(&Layer) -> usize| {
        let seconds = |wanted: &dyn Fn(&Layer) -> bool| -> f64 {
            let layers = network.layers.iter().filter(|layer| wanted(layer));
            layers.map(|layer| layer.forms[form(layer)].seconds.all()).sum()
        };
        Sum { name, seconds: seconds(&|_| true), convolutions: seconds(&|layer| layer.convolution), stored }
    };
    let forms = (0..FORMS.len()).map(|form| sum(FORMS[form].name(), network.forms[form], &|_| form));
    forms.chain([sum(BEST, network.mixed, &Layer::best)]).collect()
}

const BEST: &str = "best form of each layer";

/// Figure 5.
fn networks(linears: &[Linears], runs: &[Measured]) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for network in linears {
        for sum in sums(network) {
            rows.push(vec![
                network.network.clone(),
                sum.name.into(),
                "linear layers, by their steps".into(),
                significant(sum.seconds),
                significant(sum.convolutions),
                gb(sum.stored.model),
                gb(sum.stored.keys),
                mb(sum.stored.query),
            ]);
        }
        for one in runs.iter().filter(|one| one.name == network.network) {
            let linear: f64 = [&one.run.offline, &one.run.online]
                .iter()
                .flat_map(|stage| &stage.kinds)
                .filter(|kind| kind.kind == NodeKind::Linear)
                .map(|kind| kind.client_seconds + kind.server_seconds)
                .sum();
            let row = |what: &str, seconds: f64, mib: String| {
                let (network, protocol) = (one.name.clone(), one.run.protocol.clone());
                vec![network, protocol, what.into(), significant(seconds), none(), none(), none(), mib]
            };
            rows.push(row("linear layers of a session", linear, none()));
            rows.push(row("a whole query", one.run.seconds(), significant(one.run.mib())));
        }
        for paper in NETWORKS.iter().filter(|paper| network.network.starts_with(paper.name)) {
            for (whose, seconds, gb) in [
                ("the paper's proposed", paper.seconds, paper.gb),
                ("the paper's conventional", paper.conventional_seconds, paper.conventional_gb),
            ] {
                rows.push(vec![
                    network.network.clone(),
                    format!("{whose}, {}", paper.title),
                    "1.6 GHz, another machine".into(),
                    significant(seconds),
                    none(),
                    significant(gb),
                    none(),
                    none(),
                ]);
            }
        }
    }
    Table {
        name: "networks",
        title: "whole networks on one thread: Figure 5 of the paper".into(),
        header: vec![
            "network",
            "form",
            "what",
            "seconds",
            "convolutions, s",
            "GB of model",
            "GB of keys",
            "MB a query",
        ],
        numbers_from: 3,
        rows,
        notes: "Both parties. By their steps: from some ciphertexts and diagonals of each layer. The paper's proposed networks run maps of 16 \
                places and less by the conventional form."
            .into(),
    }
}

pub(super) fn goals(figures: &Figures) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut goal = |what: String, target: Target, figure: f64| {
        goals.push(Goal { what, target, figure, limit: None });
    };
    for one in &figures.ablation {
        // In the paper's own parameters the paper's own form.
        let ours = if one.set == Set::Published { "e" } else { "f" };
        if let Some(ratio) = one.ratio(ours) {
            let what = format!("{}, {}: times faster than conventional", one.name, one.set.name());
            goal(what, Target::AtLeast(LEAST_RATIO), ratio);
        }
    }
    for one in &figures.memory {
        let printed = MEMORY.iter().find(|row| super::layers::name(row) == one.name);
        // In the paper's own parameters a number counts as many bytes as there, not as many as here.
        let (ours, numbers) = match one.set {
            Set::Published => (one.forms[PATTERNS].model_with(paper::NUMBER_BYTES), ", numbers of 8 bytes"),
            Set::Secure => (one.forms[HYENA].model(), ""),
        };
        let ratio = one.forms[CONVENTIONAL].model() as f64 / ours as f64;
        if let Some(row) = printed {
            let what = format!("{}, {}: model{numbers}, times smaller", one.name, one.set.name());
            goal(what, Target::AtLeast(row.printed()), ratio);
        }
    }
    for one in figures.layers.iter().filter(|one| one.run.protocol == FORMS[HYENA].name()) {
        if let Some(row) = paper::LAYERS.iter().find(|row| row.name() == one.name) {
            goal(format!("{}: MiB", one.name), Target::AtMost(row.mb), one.run.mib());
        }
        if let Some(conventional) = same(&figures.layers, one, FORMS[CONVENTIONAL].name()) {
            let ratio = conventional.seconds() / one.run.seconds();
            let what = format!("{}: a query, times faster than conventional", one.name);
            goal(what, Target::AtLeast(LEAST_RATIO), ratio);
        }
    }
    for network in &figures.linears {
        let paper = NETWORKS.iter().find(|paper| network.network.starts_with(paper.name));
        let best = sums(network).into_iter().find(|sum| sum.name == BEST);
        if let Some((paper, best)) = paper.zip(best) {
            goal(
                format!("{}: linear layers, {BEST}, s (a twentieth of the paper's)", paper.title),
                Target::AtMost(paper.seconds / GOAL),
                best.seconds,
            );
        }
        let ours =
            figures.networks.iter().find(|one| one.name == network.network && one.run.protocol == DEFAULT);
        if let Some((paper, ours)) = paper.zip(ours) {
            goal(
                format!("{}: a whole query by {DEFAULT}, s (a twentieth of the paper's)", paper.title),
                Target::AtMost(paper.seconds / GOAL),
                ours.run.seconds(),
            );
        }
    }
    goals
}

/// The ways of Figure 4 that are drawn: seven colours can be told apart, and c is in the table.
const LABELS: [&str; 5] = ["a", "b", "d", "e", "f"];

pub fn plot(figures: &Figures) -> Dots {
    let mut rows = Vec::new();
    for one in &figures.ablation {
        let dots = one.variants.iter().filter_map(|variant| {
            let series = LABELS.iter().position(|label| *label == variant.label)?;
            Some((series, variant.seconds.convolution()))
        });
        rows.push(plot::Row { label: format!("{} ({})", one.name, one.set.name()), dots: dots.collect() });
    }
    for one in &figures.layers {
        rows.push(plot::Row {
            label: format!("{}, {}", one.name, one.run.protocol),
            dots: vec![(5, one.run.seconds())],
        });
    }
    for network in &figures.linears {
        let published = NETWORKS.iter().filter(|paper| network.network.starts_with(paper.name));
        for sum in sums(network) {
            let label = format!("{}, {}", network.network, sum.name);
            rows.push(plot::Row { label, dots: vec![(5, sum.seconds)] });
        }
        for one in figures.networks.iter().filter(|one| one.name == network.network) {
            let label = format!("{}, {}: a whole query", one.name, one.run.protocol);
            rows.push(plot::Row { label, dots: vec![(5, one.run.seconds())] });
        }
        rows.extend(published.map(|paper| plot::Row {
            label: format!("{}, published", paper.title),
            dots: vec![(6, paper.seconds)],
        }));
    }
    Dots {
        title: "Convolutions in SIMD slots; published figures: another machine".into(),
        axis: "seconds".into(),
        series: vec![
            "conventional (a)",
            "without hoisting (b)",
            "searched (d)",
            "lazy (e)",
            "interleaved (f)",
            "both parties",
            "published",
        ],
        rows,
    }
}
