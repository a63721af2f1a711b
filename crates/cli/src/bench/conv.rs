//! `jaguar bench conv`: every convolution shape of three networks, in three ways.
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

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_graph::reference::linear_exact;
use jaguar_linear::layout::Layout;
use jaguar_linear::published_insecure::{InsecurePublishedLayer, insecure_published_parameters};
use jaguar_linear::{cheetah, jaguar};
use jaguar_ring::prg::Prg;
use jaguar_rlwe::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_wire::{memory_pair, pack};
use serde::Serialize;

use super::{machine, median};
use crate::table::{bytes, plain, trimmed};

#[derive(clap::Args)]
pub struct Args {
    /// How often each is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Threads of each party, which take turns (0: one per core).
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Only shapes whose name contains this, e.g. `7x7` or `depthwise`.
    #[arg(long)]
    filter: Option<String>,
    /// Cheetah with one output channel a response, as the published code has it, instead of the fewest bytes.
    #[arg(long)]
    one_output: bool,
    /// Also writes the figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

// ---- Shapes ----

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Dense,
    Pointwise,
    Depthwise,
}

/// A square convolution with "same" padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Conv {
    kind: Kind,
    size: usize,
    channels_in: usize,
    channels_out: usize,
    kernel: usize,
    stride: usize,
}

impl Conv {
    fn new(size: usize, channels_in: usize, channels_out: usize, kernel: usize, stride: usize) -> Self {
        let kind = if kernel == 1 { Kind::Pointwise } else { Kind::Dense };
        Self { kind, size, channels_in, channels_out, kernel, stride }
    }

    fn depthwise(size: usize, channels: usize, stride: usize) -> Self {
        Self { kind: Kind::Depthwise, ..Self::new(size, channels, channels, 3, stride) }
    }

    fn name(&self) -> String {
        let Self { kind, size, channels_in, channels_out, kernel, stride } = self;
        let kind = format!("{kind:?}").to_lowercase();
        format!("{kind} {size}x{size} {channels_in}>{channels_out} {kernel}x{kernel}/{stride}")
    }

    fn spec(&self) -> Linear {
        Linear {
            out_channels: self.channels_out,
            kernel: [self.kernel; 2],
            stride: [self.stride; 2],
            dilation: [1, 1],
            pads: [self.kernel / 2; 4],
            groups: if self.kind == Kind::Depthwise { self.channels_in } else { 1 },
            shift: SHIFT,
        }
    }

    fn in_shape(&self) -> Shape {
        [self.channels_in, self.size, self.size]
    }
}

/// The first convolution of torchvision's ResNets (this and the blocks: `models/resnet.py`, 0.23).
fn stem() -> Conv {
    Conv::new(224, 3, 64, 7, 2)
}

/// ResNet-18: two basic blocks a stage.
fn resnet18() -> Vec<Conv> {
    let mut all = vec![stem()];
    let (mut size, mut channels) = (56, 64);
    for stage in 0..4 {
        let out = 64 << stage;
        for block in 0..2 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            all.push(Conv::new(size, channels, out, 3, stride));
            if stride != 1 || channels != out {
                all.push(Conv::new(size, channels, out, 1, stride));
            }
            size /= stride;
            channels = out;
            all.push(Conv::new(size, out, out, 3, 1));
        }
    }
    all
}

/// ResNet-50: bottlenecks, the stride in the 3x3 convolution.
fn resnet50() -> Vec<Conv> {
    let mut all = vec![stem()];
    let (mut size, mut channels) = (56, 64);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            all.push(Conv::new(size, channels, width, 1, 1));
            all.push(Conv::new(size, width, width, 3, stride));
            if block == 0 {
                all.push(Conv::new(size, channels, 4 * width, 1, stride));
            }
            size /= stride;
            channels = 4 * width;
            all.push(Conv::new(size, width, channels, 1, 1));
        }
    }
    all
}

/// MobileNetV2 (`models/mobilenetv2.py`, 0.23): expansion, output channels, repeats and first stride by
/// stage.
fn mobilenet_v2() -> Vec<Conv> {
    let mut all = vec![Conv::new(224, 3, 32, 3, 2)];
    let (mut size, mut channels) = (112, 32);
    let stages = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    for (expansion, out, repeats, first_stride) in stages {
        for block in 0..repeats {
            let stride = if block == 0 { first_stride } else { 1 };
            let hidden = expansion * channels;
            if expansion > 1 {
                all.push(Conv::new(size, channels, hidden, 1, 1));
            }
            all.push(Conv::depthwise(size, hidden, stride));
            size /= stride;
            all.push(Conv::new(size, hidden, out, 1, 1));
            channels = out;
        }
    }
    all.push(Conv::new(size, channels, 1280, 1, 1));
    all
}

/// Each shape once.
fn shapes() -> Vec<Conv> {
    let mut all: Vec<Conv> = Vec::new();
    for conv in [resnet18(), resnet50(), mobilenet_v2()].concat() {
        if !all.contains(&conv) {
            all.push(conv);
        }
    }
    all
}

/// OpenCheetah f71d4d4, one thread, two Zen 3 cores: the server's convolution in milliseconds, by size,
/// channels, kernel, stride.
const OPEN_CHEETAH: [(usize, usize, usize, usize, usize, f64); 12] = [
    (56, 64, 256, 1, 1, 1116.0),
    (56, 256, 64, 1, 1, 1025.0),
    (28, 128, 512, 1, 1, 6786.0),
    (14, 1024, 256, 1, 1, 6635.0),
    (14, 256, 1024, 1, 1, 7098.0),
    (7, 512, 2048, 1, 1, 8050.0),
    (7, 2048, 512, 1, 1, 6566.0),
    (56, 64, 64, 3, 1, 2073.0),
    (28, 128, 128, 3, 1, 2022.0),
    (14, 256, 256, 3, 1, 2049.0),
    (7, 512, 512, 3, 1, 3074.0),
    (224, 3, 64, 7, 2, 2244.0),
];

fn open_cheetah(conv: &Conv) -> Option<f64> {
    let key = (conv.size, conv.channels_in, conv.channels_out, conv.kernel, conv.stride);
    let row = OPEN_CHEETAH.iter().find(|r| (r.0, r.1, r.2, r.3, r.4) == key && conv.kind != Kind::Depthwise);
    row.map(|r| r.5)
}

/// Jaguar's paper, Table 3: geometric mean and range of its speedup over OpenCheetah.
const PAPER: [(Kind, bool, &str); 6] = [
    (Kind::Dense, false, "2.47 (0.29-9.64)"),
    (Kind::Dense, true, "17.81 (12.81-37.75)"),
    (Kind::Pointwise, false, "11.82 (3.04-46.73)"),
    (Kind::Pointwise, true, "10.76 (9.91-12.99)"),
    (Kind::Depthwise, false, "11.65 (9.64-13.04)"),
    (Kind::Depthwise, true, "5.45 (4.29-6.65)"),
];

// ---- Measuring ----

/// f: bits that the products gain. n, l and the widths below are those of the end-to-end flows.
const SHIFT: u32 = 12;
const WEIGHT_BITS: u32 = 12;
const ACTIVATION_BITS: u32 = 16;
const CHEETAH_BITS: u32 = 37;
/// ℓ of the published form: n + f, and a bit for its floor.
const PUBLISHED_BITS: u32 = 29;
/// Inputs in the reference are this wide, so that none wraps around.
const INPUT_BITS: u32 = 12;

/// Milliseconds: medians.
#[derive(Clone, Copy, Default, Serialize)]
struct Ours {
    /// Once per model, and once per client.
    a_half: f64,
    hint: f64,
    /// Once per query, before the input is known.
    prepare_server: f64,
    prepare_client: f64,
    online_server: f64,
    online_client: f64,
}

impl Ours {
    fn query(&self) -> f64 {
        self.prepare_server + self.prepare_client + self.online_server + self.online_client
    }
}

#[derive(Clone, Copy, Default, Serialize)]
struct Cheetah {
    /// The weights' transforms, once per model.
    weights: f64,
    encrypt: f64,
    server: f64,
    decrypt: f64,
}

impl Cheetah {
    fn query(&self) -> f64 {
        self.encrypt + self.server + self.decrypt
    }
}

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

#[derive(Serialize)]
struct Row {
    name: String,
    conv: Conv,
    split: bool,
    published_ms: f64,
    ours_ms: Ours,
    cheetah_ms: Cheetah,
    cheetah_products: usize,
    cheetah_primes: usize,
    traffic: Traffic,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_cheetah_server_ms: Option<f64>,
}

/// Weights, inputs and their shares.
struct Data {
    weights: Weights,
    exact: Vec<i64>,
    x: Vec<i64>,
}

impl Data {
    fn new(conv: &Conv) -> Self {
        let mut prg = Prg::new([7; 32]);
        let mut random = |count: usize, bits: u32| -> Vec<i64> {
            let bound = 1i64 << (bits - 1);
            (0..count).map(|_| ((prg.next_u64() >> (64 - bits)) as i64 - bound).max(1 - bound)).collect()
        };
        let (spec, shape) = (conv.spec(), conv.in_shape());
        let count = spec.out_channels * (shape[0] / spec.groups) * conv.kernel * conv.kernel;
        let weights = random(count, WEIGHT_BITS).into_iter().map(|w| w as i16).collect();
        let weights = Weights { weights, bias: Bias::PerChannel(random(spec.out_channels, 20)) };
        let x = random(shape.iter().product(), INPUT_BITS);
        Self { exact: linear_exact(&spec, shape, &weights, &x), weights, x }
    }

    /// Client's and server's share modulo `2^bits`.
    fn shares(&self, bits: u32) -> [Vec<u64>; 2] {
        let mut client = vec![0; self.x.len()];
        Prg::new([8; 32]).fill_words(&mut client, bits);
        let pairs = self.x.iter().zip(&client);
        let server = pairs.map(|(&x, &c)| (x as u64).wrapping_sub(c) & ((1 << bits) - 1)).collect();
        [client, server]
    }

    /// Every output is `exact >> shift`, or off by what `errors` allows, modulo `2^bits`.
    fn check(&self, [a, b]: [&[u64]; 2], shift: u32, bits: u32, errors: &[i64]) -> Result<()> {
        ensure!(a.len() == self.exact.len() && b.len() == a.len(), "outputs are missing");
        let mask = (1u64 << bits) - 1;
        for (m, (a, b)) in self.exact.iter().zip(a.iter().zip(b)) {
            let error = a.wrapping_add(*b).wrapping_sub((m >> shift) as u64) & mask;
            ensure!(
                errors.iter().any(|&e| e as u64 & mask == error),
                "{} where {} was right",
                a.wrapping_add(*b) & mask,
                (m >> shift) as u64 & mask
            );
        }
        Ok(())
    }
}

/// What `f` gives, and the milliseconds that it took.
fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = black_box(f());
    (value, start.elapsed().as_secs_f64() * 1e3)
}

/// The median of each figure.
fn medians<T, const N: usize>(runs: &[T], figures: [fn(&T) -> f64; N]) -> [f64; N] {
    figures.map(|figure| median(runs.iter().map(figure)))
}

fn published(conv: &Conv, data: &Data, repeats: u32) -> Result<f64> {
    let params = insecure_published_parameters();
    let layer = InsecurePublishedLayer::new(params, &conv.spec(), conv.in_shape(), PUBLISHED_BITS)?;
    let ring = Ring::new(params);
    let secret = QuerySecret::fresh(&ring);
    let mut prg = Prg::from_os();
    let [client, server] = data.shares(PUBLISHED_BITS);
    let upload = layer.encrypt(&ring, &secret, &client, &mut prg);
    let (export, share) = layer.evaluate(&data.weights, WEIGHT_BITS, &upload, &server, &mut prg);
    // Exact by theorem 1 in every layer here.
    data.check([&layer.decode(&ring, &secret, &export), &share], SHIFT, PUBLISHED_BITS - SHIFT, &[0])?;
    let run = |_| timed(|| layer.evaluate(&data.weights, WEIGHT_BITS, &upload, &server, &mut prg)).1;
    Ok(median((0..repeats).map(run)))
}

fn ours(conv: &Conv, data: &Data, repeats: u32) -> Result<(jaguar::Layer, Ours)> {
    let params = Parameters::DEFAULT;
    let layout = Layout::new(params.ring_dim(), &conv.spec(), conv.in_shape())?;
    let layer = jaguar::Layer::new(params, layout, 0, ACTIVATION_BITS, WEIGHT_BITS, false)?;
    let ring = Ring::new(params);
    let public = PublicSeed([9; 32]);
    let p1 = public.p1(&params);
    let wide_p1 = ring.prepare_wide(&p1);
    let (hint_key, mask_seed) = ([5; 32], [6; 32]);
    let [x_client, x_server] = data.shares(layer.input_bits());
    let mut runs = Vec::new();
    // The first run warms up and is checked.
    for run in 0..=repeats {
        let server = jaguar::ServerLayer::new(layer.clone(), &data.weights, WEIGHT_BITS);
        let ((), a_half) = timed(|| server.prepare_model(&public));
        let responses = 0..layer.layout().responses();
        let (hint, hint_ms) = timed(|| server.hint(&ring, &public, &wide_p1, &hint_key, responses));
        let mut secret = QuerySecret::fresh(&ring);
        let p0 = ZeroKey::new(&ring, &secret.zero_key(&ring, &p1), &mut Prg::from_os());
        let (at_client, prepare_client) =
            timed(|| jaguar::prepare(&layer, &ring, &public, &hint, &mut secret, &mask_seed));
        let (at_server, prepare_server) = timed(|| server.prepare(&ring, &hint_key, &p0, &mask_seed));
        let (mut to_server, mut to_client) = memory_pair();
        let (sent, online_client) = timed(|| {
            let share = at_client.run(&layer, &mut to_server, &x_client)?;
            to_server.flush().map(|()| share)
        });
        let client_share = sent?;
        let (server_share, online_server) = timed(|| {
            let upload = server.receive(&mut to_client)?;
            Ok::<_, jaguar_wire::WireError>(server.run(at_server, upload, &x_server))
        });
        let server_share = server_share?;
        if run == 0 {
            data.check([&client_share, &server_share], SHIFT, ACTIVATION_BITS, &[-1, 0, 1, 2])?;
        } else {
            let hint = hint_ms;
            runs.push(Ours { a_half, hint, prepare_server, prepare_client, online_server, online_client });
        }
    }
    let [a_half, hint, prepare_server, prepare_client, online_server, online_client] = medians(
        &runs,
        [
            |r| r.a_half,
            |r| r.hint,
            |r| r.prepare_server,
            |r| r.prepare_client,
            |r| r.online_server,
            |r| r.online_client,
        ],
    );
    Ok((layer, Ours { a_half, hint, prepare_server, prepare_client, online_server, online_client }))
}

fn cheetah(
    conv: &Conv,
    data: &Data,
    repeats: u32,
    windows: cheetah::Windows,
) -> Result<(cheetah::Layer, Cheetah)> {
    let layer = cheetah::Layer::new(&conv.spec(), conv.in_shape(), CHEETAH_BITS, WEIGHT_BITS, windows)?;
    let (server, weights) = timed(|| cheetah::ServerLayer::new(layer.clone(), &data.weights));
    let [x_client, x_server] = data.shares(CHEETAH_BITS);
    let mut secret = cheetah::Secret::fresh(&layer);
    let key = cheetah::Key::new(&layer, &secret.key());
    let mut prg = Prg::from_os();
    let mut runs = Vec::new();
    for run in 0..=repeats {
        let (mut to_server, mut to_client) = memory_pair();
        let (sent, encrypt) = timed(|| {
            secret.prepare(&layer).encrypt(&layer, &x_client).send(&mut to_server)?;
            to_server.flush()
        });
        sent?;
        let (share, server) = timed(|| {
            let upload = cheetah::Upload::receive(&layer, &mut to_client)?;
            let (response, share) = server.evaluate(server.prepare(&mut prg), &key, &upload, &x_server);
            response.send(&layer, &mut to_client)?;
            to_client.flush().map(|()| share)
        });
        let share = share?;
        let (client_share, decrypt) = timed(|| {
            let response = cheetah::Response::receive(&layer, &mut to_server)?;
            Ok::<_, jaguar_wire::WireError>(secret.decrypt(&layer, &response))
        });
        let client_share = client_share?;
        if run == 0 {
            data.check([&client_share, &share], 0, CHEETAH_BITS, &[-1, 0, 1])?;
        } else {
            runs.push(Cheetah { weights, encrypt, server, decrypt });
        }
    }
    let [encrypt, server, decrypt] = medians(&runs, [|r| r.encrypt, |r| r.server, |r| r.decrypt]);
    Ok((layer, Cheetah { weights, encrypt, server, decrypt }))
}

fn measure(conv: &Conv, args: &Args) -> Result<Row> {
    let data = Data::new(conv);
    let published_ms = published(conv, &data, args.repeats).context("published form")?;
    let (layer, ours_ms) = ours(conv, &data, args.repeats).context("ours")?;
    let windows = if args.one_output { cheetah::Windows::OneOutput } else { cheetah::Windows::FewestBytes };
    let (baseline, cheetah_ms) = cheetah(conv, &data, args.repeats, windows).context("Cheetah")?;
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
    Ok(Row {
        name: conv.name(),
        conv: *conv,
        split: layout.tiles().len() > 1,
        published_ms,
        ours_ms,
        cheetah_ms,
        cheetah_products: baseline.layout().products(),
        cheetah_primes: baseline.limbs(),
        traffic,
        open_cheetah_server_ms: open_cheetah(conv),
    })
}

// ---- Report ----

/// A geometric mean with its range.
#[derive(Clone, Copy, Serialize)]
struct Ratio {
    mean: f64,
    least: f64,
    most: f64,
}

impl Ratio {
    /// `None` of nothing.
    fn new(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| Self {
            mean: (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp(),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(0.0, f64::max),
        })
    }

    fn text(ratio: Option<Self>) -> String {
        ratio.map_or("-".into(), |r| format!("{:.2} ({:.2}-{:.2})", r.mean, r.least, r.most))
    }
}

#[derive(Serialize)]
struct Group {
    kind: Kind,
    split: bool,
    cases: usize,
    /// The Cheetah backend's server over the published form's.
    published: Option<Ratio>,
    paper: &'static str,
    /// The paper's own comparison, but between two machines: OpenCheetah's server over the published form's.
    published_over_open_cheetah: Option<Ratio>,
    /// The Cheetah backend, both parties, over all of a query of ours, and over its online part.
    ours: Option<Ratio>,
    ours_online: Option<Ratio>,
    /// OpenCheetah's server over all of a query of ours, for the shapes that it was measured on (another
    /// machine).
    ours_over_open_cheetah: Option<Ratio>,
}

fn groups(rows: &[Row]) -> Vec<Group> {
    let of = |&(kind, split, paper): &(Kind, bool, &'static str)| {
        let rows: Vec<&Row> = rows.iter().filter(|r| r.conv.kind == kind && r.split == split).collect();
        let ratio = |of: fn(&Row) -> Option<f64>| Ratio::new(rows.iter().filter_map(|r| of(r)));
        Group {
            kind,
            split,
            cases: rows.len(),
            published: ratio(|r| Some(r.cheetah_ms.server / r.published_ms)),
            paper,
            published_over_open_cheetah: ratio(|r| Some(r.open_cheetah_server_ms? / r.published_ms)),
            ours: ratio(|r| Some(r.cheetah_ms.query() / r.ours_ms.query())),
            ours_online: ratio(|r| {
                Some(r.cheetah_ms.query() / (r.ours_ms.online_client + r.ours_ms.online_server))
            }),
            ours_over_open_cheetah: ratio(|r| Some(r.open_cheetah_server_ms? / r.ours_ms.query())),
        }
    };
    PAPER.iter().map(of).collect()
}

#[derive(Serialize)]
struct Report {
    machine: String,
    threads: usize,
    repeats: u32,
    weight_bits: u32,
    activation_bits: u32,
    cheetah_bits: u32,
    cheetah_one_output: bool,
    groups: Vec<Group>,
    rows: Vec<Row>,
}

pub fn run(args: &Args) -> Result<()> {
    crate::set_threads(args.threads)?;
    let wanted = |conv: &Conv| args.filter.as_ref().is_none_or(|filter| conv.name().contains(filter));
    let shapes: Vec<Conv> = shapes().into_iter().filter(wanted).collect();
    ensure!(!shapes.is_empty(), "no shape's name contains the filter; one is '{}'", self::shapes()[0].name());
    let mut rows = Vec::new();
    for conv in &shapes {
        eprintln!("{} ...", conv.name());
        rows.push(measure(conv, args).with_context(|| conv.name())?);
    }
    rows.sort_by_key(|row| (row.conv.kind as u8, row.split));
    let report = Report {
        machine: machine(),
        threads: rayon::current_num_threads(),
        repeats: args.repeats,
        weight_bits: WEIGHT_BITS,
        activation_bits: ACTIVATION_BITS,
        cheetah_bits: CHEETAH_BITS,
        cheetah_one_output: args.one_output,
        groups: groups(&rows),
        rows,
    };
    print(&report);
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn print(report: &Report) {
    let windows = if report.cheetah_one_output { "one output a response" } else { "fewest bytes" };
    crate::say!(
        "{}\n{} threads a party; medians of {}; Cheetah: {} bits, {windows}\n",
        report.machine,
        report.threads,
        report.repeats,
        report.cheetah_bits
    );
    crate::say!("milliseconds (the published form and Cheetah's first column: the server)");
    let header = [
        "shape",
        "layout",
        "published",
        "a half",
        "hint",
        "prep. s",
        "prep. c",
        "online s",
        "online c",
        "weights",
        "Cheetah s",
        "encrypt",
        "decrypt",
        "OpenCheetah",
    ];
    let mut table = plain(&header, 2);
    for row in &report.rows {
        let (ours, cheetah) = (&row.ours_ms, &row.cheetah_ms);
        let mut cells = vec![row.name.clone(), layout_name(row.split).to_owned()];
        let figures = [
            row.published_ms,
            ours.a_half,
            ours.hint,
            ours.prepare_server,
            ours.prepare_client,
            ours.online_server,
            ours.online_client,
            cheetah.weights,
            cheetah.server,
            cheetah.encrypt,
            cheetah.decrypt,
        ];
        cells.extend(figures.iter().map(|ms| format!("{ms:.2}")));
        cells.push(row.open_cheetah_server_ms.map_or("-".into(), |ms| format!("{ms:.0}")));
        table.add_row(cells);
    }
    crate::say!("{}", trimmed(&table));
    crate::say!("once per model: a half, weights; once per client: hint; before the input: prep.\n");

    crate::say!("bytes a query (hint: once per client; p0 and Cheetah's key, once per query: 12 and 30 KiB)");
    let header =
        ["shape", "published up", "down", "hint", "ours up", "Cheetah up", "down", "products", "primes"];
    let mut table = plain(&header, 1);
    for row in &report.rows {
        let t = &row.traffic;
        let mut cells = vec![row.name.clone()];
        cells.extend(
            [t.published_up, t.published_down, t.ours_hint, t.ours_up, t.cheetah_up, t.cheetah_down]
                .map(|n| bytes(n as u64)),
        );
        cells.extend([row.cheetah_products.to_string(), row.cheetah_primes.to_string()]);
        table.add_row(cells);
    }
    crate::say!("{}\n", trimmed(&table));

    crate::say!("how many times faster: geometric means (range)");
    let header = [
        "group",
        "layout",
        "cases",
        "published/Cheetah",
        "published/OpenCheetah",
        "the paper",
        "ours/Cheetah",
        "online",
        "ours/OpenCheetah",
    ];
    let mut table = plain(&header, 2);
    for group in &report.groups {
        table.add_row([
            format!("{:?}", group.kind).to_lowercase(),
            layout_name(group.split).to_owned(),
            group.cases.to_string(),
            Ratio::text(group.published),
            Ratio::text(group.published_over_open_cheetah),
            group.paper.to_owned(),
            Ratio::text(group.ours),
            Ratio::text(group.ours_online),
            Ratio::text(group.ours_over_open_cheetah),
        ]);
    }
    crate::say!("{}", trimmed(&table));
    crate::say!(
        "published: the servers alone, as in the paper (one thread, AVX off). Ours: a query, preparation and online,\n\
         both parties, against Cheetah's encryption, server and decryption. OpenCheetah f71d4d4: its server's\n\
         convolution, one thread, two Zen 3 cores, another machine than this; for the shapes that have a figure."
    );
}

fn layout_name(split: bool) -> &'static str {
    if split { "split" } else { "packed" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiply_adds(convs: &[Conv]) -> usize {
        let one = |c: &Conv| {
            let side = c.size / c.stride;
            let depth = if c.kind == Kind::Depthwise { 1 } else { c.channels_in };
            side * side * c.channels_out * depth * c.kernel * c.kernel
        };
        convs.iter().map(one).sum()
    }

    /// The networks' known sizes: convolutions and multiply-adds (torchvision: 1.814, 4.089 and 0.301 G, of
    /// which the fully connected layers make 0.5, 2.0 and 1.3 M).
    #[test]
    fn the_networks_are_whole() {
        let networks = [resnet18(), resnet50(), mobilenet_v2()];
        assert_eq!(networks.each_ref().map(Vec::len), [20, 53, 52]);
        let sizes = networks.each_ref().map(|n| multiply_adds(n));
        assert_eq!(sizes, [1_813_561_344, 4_087_136_256, 299_494_272]);
    }

    #[test]
    fn peers_figures_belong_to_shapes() {
        let all = shapes();
        assert_eq!(all.iter().filter_map(open_cheetah).count(), OPEN_CHEETAH.len());
        for (i, conv) in all.iter().enumerate() {
            assert!(!all[..i].iter().any(|other| other.name() == conv.name()));
        }
    }

    #[test]
    fn geometric_means() {
        let ratio = Ratio::new([0.5, 8.0].into_iter()).unwrap();
        assert!((ratio.mean - 2.0).abs() < 1e-12 && ratio.least == 0.5 && ratio.most == 8.0);
        assert!(Ratio::new(std::iter::empty()).is_none());
    }

    /// A small layer of each kind through all three ways; [`measure`] compares each with the reference.
    #[test]
    fn every_way_is_right_and_wrong_results_are_seen() {
        let args = Args { repeats: 1, threads: 1, filter: None, one_output: false, json: None };
        for conv in [Conv::new(8, 3, 4, 3, 2), Conv::new(14, 40, 6, 1, 1), Conv::depthwise(50, 2, 1)] {
            let row = measure(&conv, &args).unwrap();
            assert_eq!(row.split, conv.size == 50);
            assert!(row.traffic.ours_up > 0 && row.traffic.cheetah_down > 0);
        }
        let data = Data::new(&Conv::new(4, 1, 1, 1, 1));
        let right: Vec<u64> = data.exact.iter().map(|&m| m as u64).collect();
        let mut wrong = right.clone();
        wrong[3] += 2;
        data.check([&right, &[0; 16]], 0, 37, &[0]).unwrap();
        assert!(data.check([&wrong, &[0; 16]], 0, 37, &[-1, 0, 1]).is_err());
        assert!(data.check([&right[1..], &[0; 15]], 0, 37, &[0]).is_err());
    }
}
