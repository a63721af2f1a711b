//! What `jaguar-bench hyena` shows.

use super::layers::{Ablation, FORMS, Set, Storage};
use super::networks::{Layer, Linears, Stored};
use super::paper::{self, ABLATION, GOAL, LEAST_RATIO, MEMORY, NETWORKS};
use super::{DEFAULT, Figures, Measured, Operations};
use crate::e2e::Run;
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
        memory(&figures.memory),
        layers(&figures.layers),
        networks(&figures.linears),
        queries(&figures.queries),
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
            significant(online.busy_seconds),
            significant(busy(&one.run)),
            conventional.map_or_else(none, |run| significant(busy(run) / busy(&one.run))),
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
            "online CPU s",
            "query CPU s",
            "times faster than conventional",
            "MiB up",
            "down",
            "MiB a query",
        ],
        numbers_from: 2,
        rows,
        notes: "A query of a network of this layer alone, its result included, keys not; both parties' time on one core, by turns. The \
                paper's: another machine."
            .into(),
    }
}

/// Seconds of both parties on a core.
fn busy(run: &Run) -> f64 {
    run.offline.busy_seconds + run.online.busy_seconds
}

fn same<'a>(runs: &'a [Measured], one: &Measured, protocol: &str) -> Option<&'a Run> {
    let found = runs.iter().find(|other| other.name == one.name && other.run.protocol == protocol);
    found.map(|one| &one.run)
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

const VGG16: &str = "VGG-16";
/// Seconds on one thread that we want VGG-16 to take online, of both parties together.
const VGG16_ONLINE: f64 = 45.0;

const BEST: &str = "best form of each layer";

/// Figure 5.
fn networks(linears: &[Linears]) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for network in linears {
        for sum in sums(network) {
            rows.push(vec![
                network.network.clone(),
                sum.name.into(),
                significant(sum.seconds),
                significant(sum.convolutions),
                gb(sum.stored.model),
                gb(sum.stored.keys),
                mb(sum.stored.query),
            ]);
        }
        for paper in NETWORKS.iter().filter(|paper| network.network.starts_with(paper.name)) {
            for (whose, seconds, gb) in [
                ("the paper's proposed", paper.seconds, paper.gb),
                ("the paper's conventional", paper.conventional_seconds, paper.conventional_gb),
            ] {
                rows.push(vec![
                    network.network.clone(),
                    format!("{whose}, {}, at 1.6 GHz", paper.title),
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
            "seconds",
            "convolutions, s",
            "GB of model",
            "GB of keys",
            "MB a query",
        ],
        numbers_from: 2,
        rows,
        notes: "Linear layers of both parties, from some ciphertexts and diagonals of each. The paper's: another machine; its proposed \
                networks run maps of 16 places and less by the conventional form."
            .into(),
    }
}

/// Whole networks in sessions.
fn queries(runs: &[Measured]) -> Table {
    let row = |Measured { name, run }: &Measured| {
        let Run { protocol, offline, online, .. } = run;
        let mib =
            [offline.mib(), online.bytes_up as f64 / 1_048_576.0, online.bytes_down as f64 / 1_048_576.0];
        [name.clone(), protocol.clone()]
            .into_iter()
            .chain([offline.busy_seconds, online.busy_seconds].map(significant))
            .chain(mib.map(significant))
            .chain([online.rounds.to_string()])
            .collect()
    };
    Table {
        name: "queries",
        title: "queries of whole networks, each by one backend".into(),
        header: vec![
            "network",
            "backend",
            "before the input, CPU s",
            "online CPU s",
            "MiB before the input",
            "online up",
            "down",
            "rounds online",
        ],
        numbers_from: 2,
        rows: runs.iter().map(row).collect(),
        notes: "Both parties' time on one core, all layers; keys and hints are there.".into(),
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
            let ratio = busy(conventional) / busy(&one.run);
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
    }
    for one in &figures.queries {
        let Some(paper) = NETWORKS.iter().find(|paper| one.name.starts_with(paper.name)) else { continue };
        if one.run.protocol == DEFAULT {
            let what =
                format!("{}: a whole query by {DEFAULT}, CPU s (a twentieth of the paper's)", paper.title);
            goal(what, Target::AtMost(paper.seconds / GOAL), busy(&one.run));
        }
        if one.run.protocol == FORMS[HYENA].name() && paper.title == VGG16 {
            goal(
                format!("{VGG16}: online by hyena, CPU s"),
                Target::AtMost(VGG16_ONLINE),
                one.run.online.busy_seconds,
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
            dots: vec![(5, busy(&one.run))],
        });
    }
    for network in &figures.linears {
        let published = NETWORKS.iter().filter(|paper| network.network.starts_with(paper.name));
        for sum in sums(network) {
            let label = format!("{}, {}", network.network, sum.name);
            rows.push(plot::Row { label, dots: vec![(5, sum.seconds)] });
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
