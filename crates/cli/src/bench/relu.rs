//! `jaguar bench relu`: the nonlinear layers of both precision flows, beside published figures.
//!
//! Jaguar's flow cuts the products to n bits inside the linear layer and compares n bits; Cheetah's compares
//! shares of full width and truncates afterwards. Both run here on the same protocols, so that what differs is the
//! width and the truncation. The two parties are two threads of this process, over queues or over an imitated link,
//! with real COTs, whose setup is not counted. Preparation (COTs and hashing, before the input is known) and the
//! online part are timed apart, each from when both parties are ready until the slower has its result. Every result
//! is compared with the plaintext reference.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use jaguar_mpc::{
    Cost, MaxPool, MpcError, Party, PoolShape, Range, Relu, Relu6, Relu6Params, ReluParams, Truncate,
    TruncateParams, cost, reference,
};
use jaguar_ot::{Cots, Role};
use jaguar_wire::double::{Link, Shaped};
use jaguar_wire::{Channel, Phase, Traffic, memory_transports};
use serde::Serialize;

use super::{load_average, machine, median};
use crate::table::{plain, trimmed};

#[derive(clap::Args)]
pub struct Args {
    /// How many elements each operation works on.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=16_000_000))]
    elements: u64,
    /// How often each is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// The link between the parties.
    #[arg(long, value_enum, default_value = "none")]
    link: Wire,
    /// Leaves out the nonlinear layers of ResNet-50, which take most of the time and 2 GiB of memory.
    #[arg(long)]
    skip_network: bool,
    /// Also writes the figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A link to imitate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Wire {
    /// Queues in memory.
    None,
    /// 384 MB/s, 0.3 ms round trip (the LAN of the Jaguar paper).
    Lan,
    /// 62.5 MB/s, 20 ms round trip (its WAN).
    Wan,
}

impl Wire {
    fn text(self) -> &'static str {
        match self {
            Self::None => "queues in memory",
            Self::Lan => "LAN (384 MB/s, 0.3 ms round trip)",
            Self::Wan => "WAN (62.5 MB/s, 20 ms round trip)",
        }
    }

    fn channels(self) -> [Channel; 2] {
        let (a, b) = memory_transports();
        let link = match self {
            Self::None => return [Channel::new(a), Channel::new(b)],
            Self::Lan => Link::LAN,
            Self::Wan => Link::WAN,
        };
        [a, b].map(|end| Channel::new(Shaped::new(end, link)))
    }
}

// ---- What is measured ----

/// One protocol of a layer.
#[derive(Clone, Copy)]
enum Step {
    Relu(ReluParams),
    Relu6(Relu6Params),
    Truncate(TruncateParams),
    MaxPool { shape: PoolShape, bits: u32 },
}

/// A step's material.
enum Prepared {
    Relu(Relu),
    Relu6(Relu6),
    Truncate(Truncate),
    MaxPool(MaxPool),
}

/// Digits of the max-pools and the ReLU6.
const DIGIT: u32 = 4;

impl Step {
    fn cost(&self, count: usize) -> Cost {
        match self {
            Self::Relu(params) => cost::relu(count, params),
            Self::Relu6(params) => cost::relu6(count, params),
            Self::Truncate(params) => cost::truncate(count, params),
            Self::MaxPool { shape, bits } => cost::maxpool(shape, *bits, DIGIT),
        }
    }

    fn prepare(
        &self,
        party: &mut Party<Cots>,
        chan: &mut Channel,
        count: usize,
    ) -> Result<Prepared, MpcError> {
        Ok(match *self {
            Self::Relu(params) => Prepared::Relu(Relu::prepare(party, chan, count, params)?),
            Self::Relu6(params) => Prepared::Relu6(Relu6::prepare(party, chan, count, params)?),
            Self::Truncate(params) => Prepared::Truncate(Truncate::prepare(party, chan, count, params)?),
            Self::MaxPool { shape, bits } => {
                Prepared::MaxPool(MaxPool::prepare(party, chan, shape, bits, DIGIT)?)
            }
        })
    }

    /// Widths of the shares before and after.
    fn bits(&self) -> (u32, u32) {
        match *self {
            Self::Relu(p) => (p.bits, p.out_bits),
            Self::Relu6(p) => (p.bits, p.out_bits),
            Self::Truncate(p) => (p.bits, p.out_bits),
            Self::MaxPool { bits, .. } => (bits, bits),
        }
    }
}

impl Prepared {
    fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        match self {
            Self::Relu(p) => p.run(chan, x),
            Self::Relu6(p) => p.run(chan, x),
            Self::Truncate(p) => p.run(chan, x),
            Self::MaxPool(p) => p.run(chan, x),
        }
    }
}

/// Seconds a million elements, bytes and COTs an element of OpenCheetah.
#[derive(Clone, Copy, Serialize)]
struct Peer {
    seconds_per_million: f64,
    bytes: f64,
    cots: f64,
}

/// Seconds and MiB of the Jaguar paper, Table 4 (ResNet-50; four threads, two Xeon Gold 6250).
#[derive(Clone, Copy, Serialize)]
struct Paper {
    whose: &'static str,
    lan_seconds: f64,
    wan_seconds: f64,
    mib: f64,
}

/// Layers that run one after the other, each with the same steps.
struct Case {
    name: String,
    /// Elements that go into each layer.
    layers: Vec<usize>,
    steps: Vec<Step>,
    peer: Option<Peer>,
    paper: Option<Paper>,
}

impl Case {
    fn new(name: impl Into<String>, count: usize, steps: &[Step]) -> Self {
        Self { name: name.into(), layers: vec![count], steps: steps.to_vec(), peer: None, paper: None }
    }

    fn beside(mut self, seconds_per_million: f64, bytes: f64, cots: f64) -> Self {
        self.peer = Some(Peer { seconds_per_million, bytes, cots });
        self
    }

    fn elements(&self) -> usize {
        self.layers.iter().sum()
    }

    fn cost(&self) -> Cost {
        let all = self.layers.iter().flat_map(|&count| self.steps.iter().map(move |step| step.cost(count)));
        all.fold(Cost::default(), |sum, cost| sum + cost)
    }
}

/// Cheetah's shares, and the fraction bits that it cuts off (its networks' setting).
const FULL: u32 = 37;
const SHIFT: u32 = 12;

fn relu(bits: u32, out_bits: u32, digit: u32, ignored: u32) -> Step {
    Step::Relu(ReluParams { bits, out_bits, digit, ignored })
}

fn cut(bits: u32, out_bits: u32, range: Range) -> Step {
    Step::Truncate(TruncateParams { bits, out_bits, shift: SHIFT, range })
}

/// 3 × 3 windows with stride 2, as after the first layer of a ResNet.
fn pool(bits: u32, elements: usize) -> (usize, Step) {
    let side = if elements < 112 * 112 { 28 } else { 112 };
    let channels = (elements / (side * side)).max(1);
    let shape =
        PoolShape { channels, size: [side, side], kernel: [3, 3], stride: [2, 2], pads: [1, 1, 1, 1] };
    (channels * side * side, Step::MaxPool { shape, bits })
}

/// Single operations. OpenCheetah's figures: f71d4d4, one thread a party, loopback, two Zen 3 cores.
fn operations(n: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for (out, digit, ignored) in [
        (16, 4, 0),
        (16, 3, 0),
        (16, 4, 1),
        (30, 4, 0),
        (30, 3, 0),
        (30, 4, 1),
        (30, 3, 1),
        (30, 4, 12),
        (30, 3, 12),
    ] {
        let low = match ignored {
            0 => "exact".to_owned(),
            1 => "lowest bit ignored, exact".to_owned(),
            _ => format!("low {ignored} ignored"),
        };
        let name = format!("ReLU 16 > {out}, digits of {digit}, {low}");
        all.push(Case::new(name, n, &[relu(16, out, digit, ignored)]));
    }
    all.push(Case::new("ReLU 20 > 20, exact", n, &[relu(20, 20, 4, 0)]).beside(3.2, 31.3, 22.0));
    all.push(Case::new("ReLU 20 > 20, low 12 ignored", n, &[relu(20, 20, 4, 12)]).beside(0.6, 8.8, 6.0));
    let six = Relu6Params { out_bits: 30, ignored: 1, ..Relu6Params::new(16, 12) };
    all.push(Case::new("ReLU6 16 > 30, lowest bit ignored, exact", n, &[Step::Relu6(six)]));
    let (count, step) = pool(16, n);
    all.push(Case::new("max-pool 3x3/2, 16 bits (an input)", count, &[step]));
    let shrink = cut(16 + SHIFT, 16, Range::Signed);
    all.push(Case::new("truncation 28 > 16, in the linear layer", n, &[shrink]));

    let positive = cut(FULL, FULL, Range::NonNegative);
    let exact = relu(FULL, FULL, 4, 0);
    let rough = relu(FULL, FULL, 4, 12);
    all.push(Case::new("ReLU 37 > 37, exact", n, &[exact]).beside(9.94, 59.9, 38.0));
    all.push(Case::new("ReLU 37 > 37, exact, digits of 3", n, &[relu(FULL, FULL, 3, 0)]));
    all.push(Case::new("ReLU 37 > 37, low 12 ignored", n, &[rough]).beside(6.88, 43.2, 26.0));
    all.push(Case::new("truncation 37 > 37 by 12, after a ReLU", n, &[positive]));
    let any = cut(FULL, FULL, Range::Full { digit: 4 });
    all.push(Case::new("truncation 37 > 37 by 12, any value", n, &[any]));
    all.push(Case::new("ReLU 37, then truncation, exact sign", n, &[exact, positive]));
    let flow = Case::new("ReLU 37, then truncation, low 12 ignored", n, &[rough, positive]);
    all.push(flow.beside(5.08, 34.2, 20.0));
    let fewer = relu(FULL, FULL, 3, 12);
    all.push(Case::new("the same, digits of 3", n, &[fewer, positive]).beside(5.08, 34.2, 20.0));
    let joined = [relu(FULL, FULL + SHIFT, 4, 12), cut(FULL + SHIFT, FULL, Range::NonNegative)];
    all.push(Case::new("the same, truncated in the ReLU's flights (37 > 49)", n, &joined));
    let (count, step) = pool(FULL, n);
    all.push(Case::new("max-pool 3x3/2, 37 bits (an input)", count, &[step]));
    all
}

/// The ReLUs of torchvision's ResNet-50 on 224 × 224: 49 layers, 9,608,704 elements.
fn resnet50() -> Vec<usize> {
    let mut layers = vec![64 * 112 * 112];
    let mut side = 56;
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            // The 3 × 3 convolution of a stage's first block has the stride, so what precedes it is larger.
            let before = if stage > 0 && block == 0 { 2 * side } else { side };
            layers.extend([width * before * before, width * side * side, 4 * width * side * side]);
        }
        side /= 2;
    }
    layers
}

/// ResNet-50's ReLU and truncation layers.
fn network() -> Vec<Case> {
    let of = |name: &str, steps: &[Step], paper: (&'static str, f64, f64, f64)| {
        let (whose, lan_seconds, wan_seconds, mib) = paper;
        Case {
            name: name.into(),
            layers: resnet50(),
            steps: steps.to_vec(),
            peer: None,
            paper: Some(Paper { whose, lan_seconds, wan_seconds, mib }),
        }
    };
    // Digits of three: as many flights here as digits of four, for fewer bytes.
    let full = relu(FULL, FULL, 3, 12);
    let truncation = cut(FULL, FULL, Range::NonNegative);
    vec![
        of("ours: ReLU 16 > 30, exact", &[relu(16, 30, 4, 1)], ("Jaguar", 7.89, 15.02, 148.61)),
        of("ours: ReLU 16 > 16, exact, digits of 3", &[relu(16, 16, 3, 1)], ("Jaguar", 7.89, 15.02, 148.61)),
        of(
            "ours: truncation 28 > 16, in the linear layer",
            &[cut(16 + SHIFT, 16, Range::Signed)],
            ("Jaguar", 0.19, 0.20, 0.0),
        ),
        of("Cheetah's flow: ReLU 37, low 12 ignored", &[full], ("Cheetah", 17.70, 24.20, 271.69)),
        of("Cheetah's flow: truncation 37 by 12", &[truncation], ("Cheetah", 1.08, 3.21, 22.91)),
    ]
}

// ---- Measuring ----

/// What one party measured in one repeat.
#[derive(Clone, Copy)]
struct Measured {
    prepare: Span,
    online: Span,
    prepare_traffic: Traffic,
    online_traffic: Traffic,
    cots: u64,
}

/// How long something took one party.
#[derive(Clone, Copy)]
struct Span {
    elapsed: Duration,
    /// Of it, the time that the party's thread had a core. Zero where the system does not tell.
    busy: Duration,
}

/// The beginning of a [`Span`].
struct Start {
    at: Instant,
    busy: Duration,
}

impl Start {
    fn now() -> Self {
        Self { at: Instant::now(), busy: on_a_core() }
    }

    fn span(&self) -> Span {
        Span { elapsed: self.at.elapsed(), busy: on_a_core().saturating_sub(self.busy) }
    }
}

/// How long this thread has had a core since it began, to within some milliseconds.
fn on_a_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// The two parties meet before each timed part, outside of the link. Whoever waits for one that has failed is told.
struct Meeting {
    to: mpsc::Sender<Outputs>,
    from: mpsc::Receiver<Outputs>,
}

/// Shares of a case's results, layer by layer; empty where the parties only meet.
type Outputs = Vec<Vec<u64>>;

impl Meeting {
    fn pair() -> [Self; 2] {
        let ((to_b, from_a), (to_a, from_b)) = (mpsc::channel(), mpsc::channel());
        [Self { to: to_b, from: from_b }, Self { to: to_a, from: from_a }]
    }

    fn exchange(&self, own: Outputs) -> Result<Outputs> {
        self.to.send(own).map_err(|_| anyhow!("the other party stopped"))?;
        self.from.recv().context("the other party stopped")
    }

    fn meet(&self) -> Result<()> {
        self.exchange(Vec::new()).map(drop)
    }
}

/// Words that look random and are the same on every run.
fn word(i: u64) -> u64 {
    let x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The shares of one layer's inputs: values as large as the first step takes.
fn inputs(case: &Case, role: Role, count: usize) -> Vec<u64> {
    let (bits, _) = case.steps[0].bits();
    let value = |word: u64| match case.steps[0] {
        Step::Truncate(TruncateParams { range: Range::NonNegative, .. }) => {
            reference::residue(word as i64, bits - 1) as i64
        }
        Step::Truncate(TruncateParams { range: Range::Full { .. }, .. }) => reference::signed(word, bits),
        // A max-pool takes differences, and so not quite the smallest value of n − 1 bits.
        _ => reference::signed(word, bits - 1).max(1 - (1 << (bits - 2))),
    };
    (0..count as u64)
        .map(|i| {
            let value = value(word(2 * i));
            let client = word(2 * i + 1);
            let share = if role == Role::Client { client } else { (value as u64).wrapping_sub(client) };
            reference::residue(share as i64, bits)
        })
        .collect()
}

/// Compares one layer's results with the reference.
fn check(case: &Case, [x_c, x_s]: [&[u64]; 2], [y_c, y_s]: [&[u64]; 2]) -> Result<()> {
    let (bits, _) = case.steps[0].bits();
    let (_, out_bits) = *case.steps.last().map(Step::bits).as_ref().expect("a step");
    let opened = |c: &[u64], s: &[u64], bits| -> Vec<i64> {
        c.iter().zip(s).map(|(&c, &s)| reference::open(c, s, bits)).collect()
    };
    let mut values = opened(x_c, x_s, bits);
    let mut slack = 0;
    for step in &case.steps {
        match step {
            // Only ever the first step, so the ignored bits are those of the inputs' shares.
            Step::Relu(p) => {
                let shares = x_c.iter().zip(x_s);
                values = shares.map(|(&c, &s)| reference::relu_ignoring(c, s, p.bits, p.ignored)).collect();
            }
            Step::Relu6(p) => values.iter_mut().for_each(|x| *x = reference::relu6(*x, p.log2_six)),
            Step::MaxPool { shape, .. } => values = reference::maxpool(&values, shape),
            Step::Truncate(p) => {
                values.iter_mut().for_each(|x| *x >>= p.shift);
                slack = 1;
            }
        }
    }
    let got = opened(y_c, y_s, out_bits);
    ensure!(got.len() == values.len(), "{}: {} results, not {}", case.name, got.len(), values.len());
    for (got, want) in got.into_iter().zip(values) {
        ensure!((want..=want + slack).contains(&got), "{}: {got} where {want} was right", case.name);
    }
    Ok(())
}

/// One party's whole part.
fn party(
    role: Role,
    mut chan: Channel,
    meeting: Meeting,
    cases: &[Case],
    repeats: usize,
) -> Result<Vec<Vec<Measured>>> {
    let source = Cots::setup(&mut chan, role)?;
    let mut party = Party::new(role, source);
    let mut all = Vec::new();
    for case in cases {
        if role == Role::Client {
            eprintln!("{} ...", case.name);
        }
        let x: Vec<Vec<u64>> = case.layers.iter().map(|&count| inputs(case, role, count)).collect();
        let mut measured = Vec::new();
        for _ in 0..repeats {
            let (outputs, figures) = once(role, &mut party, &mut chan, &meeting, case, &x)?;
            measured.push(figures);
            // The client sees to it that the results are right.
            if role == Role::Server {
                meeting.exchange(outputs)?;
                continue;
            }
            let theirs = meeting.exchange(Vec::new())?;
            for (layer, (own, theirs)) in outputs.iter().zip(&theirs).enumerate() {
                let servers = inputs(case, Role::Server, case.layers[layer]);
                check(case, [&x[layer], &servers], [own, theirs])?;
            }
        }
        all.push(measured);
    }
    Ok(all)
}

/// Prepares and runs a case once.
fn once(
    role: Role,
    party: &mut Party<Cots>,
    chan: &mut Channel,
    meeting: &Meeting,
    case: &Case,
    x: &[Vec<u64>],
) -> Result<(Outputs, Measured)> {
    let before = party.used();
    let timed = |chan: &mut Channel, phase: Phase| -> Result<Start> {
        chan.flush()?;
        chan.take_stats();
        chan.enter(phase, "bench");
        meeting.meet()?;
        Ok(Start::now())
    };
    // 1. Preparation.
    let start = timed(chan, Phase::Preprocessing)?;
    if role == Role::Client {
        // It sends nothing else in preparation, so its COTs may run ahead.
        party.promise(case.cost().cots_from_client);
    }
    let mut prepared = Vec::new();
    for &count in &case.layers {
        for step in &case.steps {
            prepared.push(step.prepare(party, chan, count)?);
        }
    }
    chan.flush()?;
    let (prepare, prepare_traffic) = (start.span(), chan.total());
    let after = party.used();
    // 2. Online.
    let start = timed(chan, Phase::Online)?;
    let mut prepared = prepared.into_iter();
    let mut outputs = Vec::new();
    for x in x {
        let mut y = None;
        for step in prepared.by_ref().take(case.steps.len()) {
            y = Some(step.run(chan, y.as_deref().unwrap_or(x))?);
        }
        outputs.extend(y);
    }
    chan.flush()?;
    let (online, online_traffic) = (start.span(), chan.total());
    let cots = after.0 - before.0 + after.1 - before.1;
    Ok((outputs, Measured { prepare, online, prepare_traffic, online_traffic, cots }))
}

/// One line of the report: medians.
#[derive(Serialize)]
struct Row {
    operation: String,
    elements: usize,
    prepare_seconds: f64,
    online_seconds: f64,
    /// The busier party's time on a core: what is left of the seconds is waiting, for the peer, the link or a core.
    prepare_busy_seconds: f64,
    online_busy_seconds: f64,
    /// Of all COTs and corrections, both directions.
    prepare_bytes: u64,
    online_bytes: u64,
    cots: u64,
    /// How often the client waits for the server, online, when it starts with something unsent.
    rounds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_cheetah: Option<Peer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paper: Option<Paper>,
}

#[derive(Serialize)]
struct Report {
    machine: String,
    /// Over the last minute of the measurement: above two, the parties had to share their cores.
    load_average: Option<f64>,
    link: Wire,
    repeats: u32,
    threads_per_party: u32,
    operations: Vec<Row>,
    resnet50: Vec<Row>,
}

fn row(case: &Case, client: &[Measured], server: &[Measured]) -> Row {
    let slower = |of: fn(&Measured) -> Duration| {
        median(client.iter().zip(server).map(|(c, s)| of(c).max(of(s)).as_secs_f64()))
    };
    let bytes = |of: fn(&Measured) -> Traffic| {
        median(client.iter().map(|m| (of(m).sent + of(m).received) as f64)) as u64
    };
    Row {
        operation: case.name.clone(),
        elements: case.elements(),
        prepare_seconds: slower(|m| m.prepare.elapsed),
        online_seconds: slower(|m| m.online.elapsed),
        prepare_busy_seconds: slower(|m| m.prepare.busy),
        online_busy_seconds: slower(|m| m.online.busy),
        prepare_bytes: bytes(|m| m.prepare_traffic),
        online_bytes: bytes(|m| m.online_traffic),
        cots: client[0].cots,
        rounds: case.cost().client_rounds,
        open_cheetah: case.peer,
        paper: case.paper,
    }
}

/// Measures all cases, a party in a thread each.
fn measure(link: Wire, cases: &[Case], repeats: usize) -> Result<Vec<Row>> {
    let [a, b] = link.channels();
    let [at_client, at_server] = Meeting::pair();
    let (client, server) = std::thread::scope(|scope| {
        // Each party owns its ends, so that its failure closes them and the other ends, too.
        let server = scope.spawn(move || party(Role::Server, b, at_server, cases, repeats));
        let client = party(Role::Client, a, at_client, cases, repeats);
        (client, server.join().expect("a party does not panic"))
    });
    let (client, server) = match (client, server) {
        (Ok(client), Ok(server)) => (client, server),
        (Err(client), Err(server)) => return Err(anyhow!("client: {client:#}; server: {server:#}")),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    Ok(cases.iter().zip(client.iter().zip(&server)).map(|(case, (c, s))| row(case, c, s)).collect())
}

pub fn run(args: &Args) -> Result<()> {
    let mut cases = operations(usize::try_from(args.elements)?);
    let split = cases.len();
    if !args.skip_network {
        cases.extend(network());
    }
    let mut rows = measure(args.link, &cases, args.repeats as usize)?;
    let report = Report {
        machine: machine(),
        load_average: load_average(),
        link: args.link,
        repeats: args.repeats,
        threads_per_party: 1,
        resnet50: rows.split_off(split),
        operations: rows,
    };
    print(&report);
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

// ---- Printing ----

fn print(report: &Report) {
    crate::say!(
        "{}; load average {}\none thread a party, both here; {}; medians of {}\n",
        report.machine,
        report.load_average.map_or("unknown".into(), |load| format!("{load:.1}")),
        report.link.text(),
        report.repeats
    );
    crate::say!("seconds a million elements; bytes and COTs an element, COTs' bytes in 'prep. B'");
    crate::say!("busy: what the busier party's thread had of a core; the rest is waiting");
    let mut table = plain(
        &[
            "operation",
            "elements",
            "prepare s",
            "online s",
            "both s",
            "busy s",
            "prep. B",
            "online B",
            "COTs",
            "rounds",
            "OpenCheetah s",
            "B",
            "COTs",
            "faster",
        ],
        1,
    );
    for row in &report.operations {
        let n = row.elements as f64;
        let (prepare, online) = (row.prepare_seconds * 1e6 / n, row.online_seconds * 1e6 / n);
        let mut cells = vec![
            row.operation.clone(),
            row.elements.to_string(),
            format!("{prepare:.3}"),
            format!("{online:.3}"),
            format!("{:.3}", prepare + online),
            format!("{:.3}", (row.prepare_busy_seconds + row.online_busy_seconds) * 1e6 / n),
            format!("{:.2}", row.prepare_bytes as f64 / n),
            format!("{:.2}", row.online_bytes as f64 / n),
            format!("{:.1}", row.cots as f64 / n),
            row.rounds.to_string(),
        ];
        if let Some(peer) = row.open_cheetah {
            cells.extend([
                format!("{:.2}", peer.seconds_per_million),
                format!("{:.1}", peer.bytes),
                format!("{:.0}", peer.cots),
                format!("{:.1}x", peer.seconds_per_million / (prepare + online)),
            ]);
        }
        table.add_row(cells);
    }
    crate::say!("{}", trimmed(&table));
    crate::say!(
        "OpenCheetah f71d4d4: one thread a party, two Zen 3 cores, loopback, another machine than this\n"
    );
    if report.resnet50.is_empty() {
        return;
    }
    crate::say!("the ReLU and truncation layers of ResNet-50, all of them (Jaguar's paper, Table 4)");
    let mut table = plain(
        &[
            "layers",
            "prepare s",
            "online s",
            "both s",
            "busy s",
            "MiB",
            "rounds",
            "the paper's",
            "LAN s",
            "WAN s",
            "MiB",
        ],
        1,
    );
    for row in &report.resnet50 {
        let mut cells = vec![
            row.operation.clone(),
            format!("{:.2}", row.prepare_seconds),
            format!("{:.2}", row.online_seconds),
            format!("{:.2}", row.prepare_seconds + row.online_seconds),
            format!("{:.2}", row.prepare_busy_seconds + row.online_busy_seconds),
            format!("{:.2}", (row.prepare_bytes + row.online_bytes) as f64 / 1_048_576.0),
            row.rounds.to_string(),
        ];
        if let Some(paper) = row.paper {
            cells.extend([
                paper.whose.to_owned(),
                format!("{:.2}", paper.lan_seconds),
                format!("{:.2}", paper.wan_seconds),
                format!("{:.2}", paper.mib),
            ]);
        }
        table.add_row(cells);
    }
    crate::say!("{}", trimmed(&table));
    crate::say!("the paper: four threads, two Xeon Gold 6250; shares and scale as chosen there");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resnet50_has_as_many_relus_as_it_should() {
        let layers = resnet50();
        assert_eq!((layers.len(), layers.iter().sum::<usize>()), (49, 9_608_704));
    }

    #[test]
    fn every_operation_gives_what_the_reference_says() {
        let cases = operations(700);
        for (case, row) in cases.iter().zip(measure(Wire::None, &cases, 1).unwrap()) {
            let cost = case.cost();
            assert_eq!(row.online_bytes, cost.up + cost.down, "{}", case.name);
            assert_eq!(row.cots, cost.cots_from_client + cost.cots_from_server, "{}", case.name);
        }
    }

    #[test]
    fn wrong_results_are_seen() {
        let case = Case::new("ReLU", 2, &[relu(16, 16, 4, 0)]);
        let (x_c, x_s) = ([5, 7], [0xffff, 0xfff0]);
        check(&case, [&x_c, &x_s], [&[4, 1], &[0, 0xffff]]).unwrap();
        assert!(check(&case, [&x_c, &x_s], [&[4, 1], &[0, 0]]).is_err());
        assert!(check(&case, [&x_c, &x_s], [&[4], &[0]]).is_err());
    }
}
