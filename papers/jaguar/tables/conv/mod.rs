//! `jaguar-bench conv`: every convolution shape of three networks, in three ways.
//!
//! | column | what is timed |
//! |---|---|
//! | published | Jaguar as printed (`linear::published_insecure`): the server's evaluation, on our kernels |
//! | ours | parted halves: once per model, once per client, per query before the input and online, by party |
//! | Cheetah | `linear::cheetah`, 37-bit shares: transforms, products and export; encryption and decryption |
//!
//! As the paper's Tables 3 and 9: single layers, computing only; messages are packed and go through queues in
//! memory (those of the published form are not packed). Shapes are grouped by the kind of convolution and by
//! whether a channel fits a ciphertext of N = 2048 (*packed*) or is *split*. Weights are random with 12 bits.
//! The result of every way is compared with the plaintext reference, once, before anything is timed.

pub(crate) mod shapes;
pub(crate) mod ways;

use anyhow::{Context, Result, ensure};
use jaguar_cheetah::{Encoding, Windows};
use jaguar_linear::published_insecure::insecure_published_parameters;
use jaguar_report::terminal::table::bytes;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::pack;
use serde::Serialize;

use super::limits::Peaks;
use super::paper::{CONVOLUTIONS, ConvolutionKind};
use super::plot::{self, Dots};
use super::report::{Goal, Output, Report, Table, Target};
use super::setting::{Instructions, Setting};
use super::statistics::{Ratio, significant};
use shapes::{Conv, open_cheetah, resnet50, shapes};
use ways::{Cheetah, Data, Ours};

#[derive(clap::Args)]
pub struct Args {
    /// How often each is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Threads of each party, which take turns (0: one per core).
    #[arg(long, default_value_t = 1, value_parser = jaguar_report::terminal::thread_count)]
    threads: usize,
    /// The instruction set of all three ways. The paper measured without AVX.
    #[arg(long, value_enum, default_value_t)]
    kernel: Instructions,
    /// Only shapes whose name contains this, e.g. `7x7` or `depthwise`.
    #[arg(long)]
    filter: Option<String>,
    /// Cheetah with one output channel a response, as the published code has it, instead of the fewest bytes.
    #[arg(long)]
    one_output: bool,
    #[command(flatten)]
    output: Output,
}

/// f: bits that the products gain. n, l and the widths below are those of the end-to-end flows.
const SHIFT: u32 = 12;
const WEIGHT_BITS: u32 = 12;
const ACTIVATION_BITS: u32 = 16;
const CHEETAH_BITS: u32 = 37;

/// Bytes of a query; the hint once per client.
#[derive(Clone, Copy, Serialize)]
struct Traffic {
    published_up: usize,
    published_down: usize,
    ours_hint: usize,
    ours_up: usize,
    cheetah_up: usize,
    cheetah_down: usize,
}

/// The least milliseconds of ours: both parties together, as they take turns here.
#[derive(Clone, Copy, Serialize)]
struct Limits {
    a_half: f64,
    prepare: f64,
    online: f64,
}

impl Limits {
    fn query(&self) -> f64 {
        self.prepare + self.online
    }
}

#[derive(Serialize)]
struct Row {
    name: String,
    conv: Conv,
    split: bool,
    published_ms: f64,
    ours_ms: Ours,
    limits_ms: Limits,
    cheetah_ms: Cheetah,
    cheetah_products: usize,
    cheetah_primes: usize,
    traffic: Traffic,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_cheetah_server_ms: Option<f64>,
}

impl Row {
    /// How far a query is from its limit.
    fn distance(&self) -> f64 {
        self.ours_ms.query() / self.limits_ms.query()
    }

    fn distance_online(&self) -> f64 {
        self.ours_ms.online() / self.limits_ms.online
    }
}

fn measure(cpu: Cpu, conv: &Conv, args: &Args, peaks: &Peaks, threads: usize) -> Result<Row> {
    let data = Data::new(cpu, conv);
    let published_ms = ways::published(conv, &data, args.repeats).context("published form")?;
    let (layer, ours_ms) = ways::ours(conv, &data, args.repeats).context("ours")?;
    let windows = if args.one_output { Windows::OneOutput } else { Windows::FewestBytes };
    let (baseline, cheetah_ms) = ways::cheetah(conv, &data, args.repeats, windows).context("Cheetah")?;
    let layout = layer.layout();
    // Both halves up; down both, without the f bits that are cut off, b at the outputs only.
    let (n, k) = (layout.ring_dim(), insecure_published_parameters().modulus_bits());
    let traffic = Traffic {
        published_up: pack::packed_len(2 * layout.ciphertexts() * n, k),
        published_down: pack::packed_len(layout.responses() * n + layout.outputs(), k - SHIFT),
        ours_hint: layer.hint_bytes(),
        ours_up: layer.upload_bytes(),
        cheetah_up: baseline.upload_bytes(),
        cheetah_down: baseline.response_bytes(),
    };
    let multiply_adds = conv.spec().multiply_adds(conv.in_shape()).context("the kernel does not fit")?;
    let least_ms = |seconds: f64| seconds * 1e3 / threads as f64;
    Ok(Row {
        name: conv.name(),
        conv: *conv,
        split: layout.tiles().len() > 1,
        published_ms,
        ours_ms,
        limits_ms: Limits {
            a_half: least_ms(peaks.a_half(layout)),
            prepare: least_ms(peaks.preparing(layout).iter().sum()),
            online: least_ms(peaks.online(multiply_adds)),
        },
        cheetah_ms,
        cheetah_products: baseline.layout().products(),
        cheetah_primes: baseline.limbs(),
        traffic,
        open_cheetah_server_ms: open_cheetah(conv),
    })
}

#[derive(Serialize)]
struct Group {
    kind: ConvolutionKind,
    split: bool,
    cases: usize,
    /// The Cheetah backend's server over the published form's.
    published: Option<Ratio>,
    /// The same in the paper, Table 3.
    paper: Ratio,
    /// The Cheetah backend, both parties, over all of a query of ours, and over its online part.
    ours: Option<Ratio>,
    ours_online: Option<Ratio>,
    /// A query of ours over its limit, and its online part over its own.
    distance: Option<Ratio>,
    distance_online: Option<Ratio>,
}

fn groups(rows: &[Row]) -> Vec<Group> {
    let groups = CONVOLUTIONS.iter().map(|paper| {
        let (kind, split) = (paper.kind, paper.split);
        let rows: Vec<&Row> = rows.iter().filter(|r| r.conv.kind == kind && r.split == split).collect();
        let ratio = |of: fn(&Row) -> Option<f64>| Ratio::new(rows.iter().filter_map(|r| of(r)));
        Group {
            kind,
            split,
            cases: rows.len(),
            published: ratio(|r| Some(r.cheetah_ms.server / r.published_ms)),
            paper: paper.stated,
            ours: ratio(|r| Some(r.cheetah_ms.query() / r.ours_ms.query())),
            ours_online: ratio(|r| Some(r.cheetah_ms.query() / r.ours_ms.online())),
            distance: ratio(|r| Some(r.distance())),
            distance_online: ratio(|r| Some(r.distance_online())),
        }
    });
    groups.collect()
}

#[derive(Serialize)]
struct Figures {
    weight_bits: u32,
    activation_bits: u32,
    cheetah_bits: u32,
    cheetah_one_output: bool,
    /// How many times faster two threads are than one.
    scaling: f64,
    groups: Vec<Group>,
    rows: Vec<Row>,
}

/// How many times faster two threads are than one on everything that a server does for two typical layers of ResNet-50.
fn scaling(cpu: Cpu, repeats: u32) -> Result<f64> {
    let on = |threads: usize| -> Result<f64> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let mut all = 0.0;
        for conv in [Conv::new(28, 128, 128, 3, 1), Conv::new(14, 256, 1024, 1, 1)] {
            let (_, ours) = pool.install(|| ways::ours(&conv, &Data::new(cpu, &conv), repeats))?;
            all += ours.a_half + ours.hint + ours.prepare_server + ours.online_server;
        }
        Ok(all)
    };
    Ok(on(1)? / on(2)?)
}

/// What was set out to be reached with single layers.
///
/// `as_published`: measured as the paper did, without vector instructions and on one thread. Only then its ratios are
/// goals.
fn goals(rows: &[Row], groups: &[Group], scaling: f64, as_published: bool) -> Vec<Goal> {
    let mut goals = Vec::new();
    for group in groups.iter().filter(|_| as_published) {
        goals.extend(group.published.map(|published| Goal {
            what: format!(
                "published form: times faster than the Cheetah backend, {}",
                group_name(group.kind, group.split)
            ),
            target: Target::AtLeast(group.paper.mean),
            figure: published.mean,
            limit: None,
        }));
    }
    let mean = |of: fn(&Row) -> Option<f64>| Ratio::new(rows.iter().filter_map(of)).map(|ratio| ratio.mean);
    let faster = [(
        "ours, a query: times faster than the Cheetah backend",
        10.0,
        mean(|r| Some(r.cheetah_ms.query() / r.ours_ms.query())),
        mean(|r| Some(r.cheetah_ms.query() / r.limits_ms.query())),
    )];
    for (what, target, figure, limit) in faster {
        let goal = |figure| Goal { what: what.into(), target: Target::AtLeast(target), figure, limit };
        goals.extend(figure.map(goal));
    }
    // All of ResNet-50's convolutions, as often as it has them.
    let network: Option<Vec<&Row>> =
        resnet50().iter().map(|conv| rows.iter().find(|row| row.conv == *conv)).collect();
    if let Some(network) = network {
        let seconds = |of: fn(&Row) -> f64| network.iter().map(|row| of(row)).sum::<f64>() / 1e3;
        goals.extend([
            Goal {
                what: "ResNet-50's a half, once per model, s".into(),
                target: Target::AtMost(3.0),
                figure: seconds(|r| r.ours_ms.a_half),
                limit: Some(seconds(|r| r.limits_ms.a_half)),
            },
            Goal {
                what: "ResNet-50's online half, s".into(),
                target: Target::AtMost(0.6),
                figure: seconds(|r| r.ours_ms.online_server),
                limit: Some(seconds(|r| r.limits_ms.online)),
            },
        ]);
    }
    goals.push(Goal {
        what: "linear layers: times faster on two threads than on one".into(),
        target: Target::AtLeast(1.7),
        figure: scaling,
        limit: Some(2.0),
    });
    goals
}

pub fn run(args: &Args) -> Result<()> {
    let cpu = args.kernel.cpu()?;
    jaguar_report::terminal::set_threads(args.threads)?;
    let wanted = |conv: &Conv| args.filter.as_ref().is_none_or(|filter| conv.name().contains(filter));
    let shapes: Vec<Conv> = shapes().into_iter().filter(wanted).collect();
    ensure!(!shapes.is_empty(), "no shape's name contains the filter; one is '{}'", self::shapes()[0].name());
    let threads = rayon::current_num_threads();
    let mut setting = Setting::new(
        cpu,
        format!("threads a party, taking turns: {threads}"),
        "queues in memory".into(),
        args.repeats,
    );
    let peaks = Peaks::measure(cpu)?;
    let mut rows = Vec::new();
    for conv in &shapes {
        eprintln!("{} ...", conv.name());
        rows.push(measure(cpu, conv, args, &peaks, threads).with_context(|| conv.name())?);
    }
    rows.sort_by_key(|row| (row.conv.kind as u8, row.split));
    let groups = groups(&rows);
    let windows = if args.one_output { "one output a response" } else { "fewest bytes" };
    let scaling = scaling(cpu, args.repeats)?;
    setting.done();
    let as_published = args.kernel == Instructions::Scalar && threads == 1;
    let goals = goals(&rows, &groups, scaling, as_published);
    let tables = vec![times(&rows, windows), traffic(&rows), comparison(&groups), Table::goals(&goals)];
    let figures = Figures {
        weight_bits: WEIGHT_BITS,
        activation_bits: ACTIVATION_BITS,
        cheetah_bits: CHEETAH_BITS,
        cheetah_one_output: args.one_output,
        scaling,
        groups,
        rows,
    };
    let plot = plot(&figures);
    args.output.hand_out(&Report { setting, peaks, tables, figures }, &plot)
}

// ---- For people ----

fn times(rows: &[Row], windows: &str) -> Table {
    let row = |row: &Row| {
        let (ours, limits, cheetah) = (&row.ours_ms, &row.limits_ms, &row.cheetah_ms);
        let mut cells = vec![row.name.clone(), layout_name(row.split).to_owned()];
        let figures = [
            row.published_ms,
            ours.a_half,
            ours.hint,
            ours.prepare_server,
            ours.prepare_client,
            ours.online_server,
            ours.online_client,
            limits.a_half,
            limits.query(),
            limits.online,
            row.distance(),
            row.distance_online(),
            cheetah.weights,
            cheetah.server,
            cheetah.encrypt,
            cheetah.decrypt,
        ];
        cells.extend(figures.map(significant));
        cells.push(row.open_cheetah_server_ms.map_or("-".into(), |ms| format!("{ms:.0}")));
        cells
    };
    Table {
        name: "times",
        title: format!(
            "milliseconds; the columns 'published' and 'Cheetah server' are servers alone (Cheetah: {CHEETAH_BITS} bits, {windows})"
        ),
        header: vec![
            "shape",
            "layout",
            "published",
            "a half",
            "hint",
            "prep. s",
            "prep. c",
            "online s",
            "online c",
            "limit a half",
            "limit query",
            "limit online",
            "query / limit",
            "online / limit",
            "Cheetah weights",
            "Cheetah server",
            "encrypt",
            "decrypt",
            "OpenCheetah",
        ],
        numbers_from: 2,
        rows: rows.iter().map(row).collect(),
        notes: "once per model: a half, weights; once per client: hint; before the input: prep.".into(),
    }
}

fn traffic(rows: &[Row]) -> Table {
    let row = |row: &Row| {
        let t = &row.traffic;
        let mut cells = vec![row.name.clone()];
        cells.extend(
            [t.published_up, t.published_down, t.ours_hint, t.ours_up, t.cheetah_up, t.cheetah_down]
                .map(|n| bytes(n as u64)),
        );
        cells.extend([row.cheetah_products.to_string(), row.cheetah_primes.to_string()]);
        cells
    };
    Table {
        name: "bytes",
        title: "bytes a query (hint: once per client; p0 and Cheetah's key, once per query: 12 and 30 KiB)"
            .into(),
        header: vec![
            "shape",
            "published up",
            "down",
            "hint",
            "ours up",
            "Cheetah up",
            "down",
            "products",
            "primes",
        ],
        numbers_from: 1,
        rows: rows.iter().map(row).collect(),
        notes: String::new(),
    }
}

fn comparison(groups: &[Group]) -> Table {
    let row = |group: &Group| {
        let mut cells = vec![group_name(group.kind, group.split), group.cases.to_string()];
        let ratios = [
            group.published,
            Some(group.paper),
            group.ours,
            group.ours_online,
            group.distance,
            group.distance_online,
        ];
        cells.extend(ratios.map(Ratio::text));
        cells
    };
    Table {
        name: "groups",
        title: "how many times faster than Cheetah, geometric means (ranges): Tables 3 and 9 of the paper".into(),
        header: vec![
            "group",
            "cases",
            "published form",
            "the paper's",
            "ours, a query",
            "ours, online",
            "query / limit",
            "online / limit",
        ],
        numbers_from: 1,
        rows: groups.iter().map(row).collect(),
        notes: "Published form: the servers alone, as in the paper (its own cases, one thread, AVX off). Ours: a query, preparation \
                and online, both parties, against Cheetah's encryption, server and decryption."
            .into(),
    }
}

fn plot(figures: &Figures) -> Dots {
    let rows = CONVOLUTIONS.iter().map(|paper| {
        let mut dots: Vec<_> = paper.cases.iter().map(|(cheetah, jaguar)| (0, cheetah / jaguar)).collect();
        for row in figures.rows.iter().filter(|r| r.conv.kind == paper.kind && r.split == paper.split) {
            let (cheetah, ours) = (&row.cheetah_ms, &row.ours_ms);
            dots.push((1, cheetah.server / row.published_ms));
            dots.push((2, cheetah.query() / ours.query()));
            dots.push((3, cheetah.query() / ours.online()));
        }
        plot::Row { label: group_name(paper.kind, paper.split), dots }
    });
    Dots {
        title: "Single convolutions: how many times faster than Cheetah on the same machine".into(),
        axis: "times faster than Cheetah (the paper: than OpenCheetah)".into(),
        series: vec![
            "the paper's cases (Table 9)",
            "published form, server",
            "ours, a query",
            "ours, online",
        ],
        rows: rows.collect(),
    }
}

fn group_name(kind: ConvolutionKind, split: bool) -> String {
    format!("{}, {}", format!("{kind:?}").to_lowercase(), layout_name(split))
}

fn layout_name(split: bool) -> &'static str {
    if split { "split" } else { "packed" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::PEAKS;
    use crate::report::tests::{met, missed};

    #[test]
    fn a_worse_measurement_misses_the_goals() {
        let row = |conv: Conv, split: bool, ours: f64| Row {
            name: conv.name(),
            conv,
            split,
            published_ms: ours,
            ours_ms: Ours {
                a_half: ours,
                hint: ours,
                keys: ours,
                prepare_server: ours,
                prepare_client: ours,
                online_server: ours,
                online_client: ours,
            },
            limits_ms: Limits { a_half: 1.0, prepare: 1.0, online: 1.0 },
            cheetah_ms: Cheetah { weights: 1e3, server: 1e3, encrypt: 1e3, decrypt: 1e3 },
            cheetah_products: 1,
            cheetah_primes: 1,
            traffic: Traffic {
                published_up: 1,
                published_down: 1,
                ours_hint: 1,
                ours_up: 1,
                cheetah_up: 1,
                cheetah_down: 1,
            },
            open_cheetah_server_ms: None,
        };
        for (ours, scaling, reached) in [(1e-3, 1.9, true), (1e6, 1.1, false)] {
            let convs = resnet50().into_iter().chain([Conv::depthwise(8, 4, 1), Conv::depthwise(112, 4, 1)]);
            let rows: Vec<Row> = convs.map(|conv| row(conv, conv.size > 50, ours)).collect();
            let goals = goals(&rows, &groups(&rows), scaling, true);
            assert_eq!((met(&goals), missed(&goals)), (reached, !reached));
            assert_eq!(goals.len(), 6 + 1 + 2 + 1);
        }
    }

    /// A small layer of each kind through all three ways, each compared with the reference.
    #[test]
    fn every_way_is_right() {
        let args = Args {
            repeats: 1,
            threads: 1,
            kernel: Instructions::Best,
            filter: None,
            one_output: false,
            output: Output::default(),
        };
        let mut rows = Vec::new();
        for conv in [Conv::new(8, 3, 4, 3, 2), Conv::new(14, 40, 6, 1, 1), Conv::depthwise(50, 2, 1)] {
            let row = measure(Cpu::detect(), &conv, &args, &PEAKS, 1).unwrap();
            assert_eq!(row.split, conv.size == 50);
            assert!(row.traffic.ours_up > 0 && row.traffic.cheetah_down > 0);
            assert!(row.limits_ms.prepare > 0.0 && row.limits_ms.online > 0.0);
            rows.push(row);
        }
        // Ratios of the paper are goals where the setting is the paper's.
        let count = |as_published| goals(&rows, &groups(&rows), 2.0, as_published).len();
        assert_eq!((count(false), count(true)), (2, 5));
        // The last group of depthwise convolutions has the last shape, and its figures.
        let groups = groups(&rows);
        let last = &groups[5];
        assert_eq!((last.cases, last.paper.most), (1, 6.65));
        assert_eq!(last.distance.unwrap().least, rows[2].distance());
        assert_eq!(groups.iter().map(|g| g.cases).sum::<usize>(), 3);
        for table in [times(&rows, ""), traffic(&rows), comparison(&groups)] {
            assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{}", table.name);
        }
    }
}
