//! Measures the linear layers of ResNet-50 on one thread and on several, phase by phase, in one run.
//!
//! `cargo run --release -p jaguar-linear --example resnet50 [-- --threads T --repeats R --layers --json FILE]`
//!
//! Every distinct shape is run on a pool of one thread and on one of T by turns, so that whatever else the
//! machine does disturbs both alike; a figure is the median of R, beside it the least (what the machine does
//! when nobody disturbs it), and counts as often as the network has the shape. The a half is measured as a
//! server computes it and, for comparison, from limb planes alone. Weights and inputs are random.

use std::fmt;
use std::hint::black_box;
use std::path::PathBuf;
use std::slice::{from_mut, from_ref};
use std::time::Instant;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use jaguar_graph::network::{Bias, Linear, Weights};
use jaguar_linear::jaguar::{Layer, ServerLayer, prepare};
use jaguar_linear::layout::Layout;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_ring::prg::Prg;
use jaguar_wire::memory_pair;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::json;

const WEIGHT_BITS: u32 = 12;
const ACTIVATION_BITS: u32 = 16;
const SHIFT: u32 = 12;

/// Those from [`QUERY`] on make up a query.
const PHASES: [&str; 7] = [
    "a half, from limb planes",
    "a half (once per model)",
    "hint (once per client)",
    "prepare, server",
    "prepare, client",
    "online, client",
    "online, server",
];

const QUERY: usize = 3;

/// A layer with square kernel and "same" padding.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    size: usize,
    channels_in: usize,
    channels_out: usize,
    kernel: usize,
    stride: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, channels_in, channels_out, kernel, stride } = self;
        write!(f, "{size}x{size} {channels_in}>{channels_out} {kernel}x{kernel}/{stride}")
    }
}

/// torchvision's ResNet-50, with how often each shape occurs.
fn resnet50() -> Vec<(Shape, usize)> {
    let mut all: Vec<(Shape, usize)> = Vec::new();
    let mut add = |size, channels_in, channels_out, kernel, stride| {
        let shape = Shape { size, channels_in, channels_out, kernel, stride };
        match all.iter_mut().find(|(s, _)| *s == shape) {
            Some((_, count)) => *count += 1,
            None => all.push((shape, 1)),
        }
    };
    add(224, 3, 64, 7, 2);
    let (mut size, mut channels) = (56, 64);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            add(size, channels, width, 1, 1);
            add(size, width, width, 3, stride);
            if block == 0 {
                add(size, channels, 4 * width, 1, stride);
            }
            size /= stride;
            channels = 4 * width;
            add(size, width, channels, 1, 1);
        }
    }
    add(1, 2048, 1000, 1, 1);
    all
}

/// ResNet-50's linear layers, phase by phase.
#[derive(Parser)]
struct Options {
    /// Threads of the larger pool.
    #[arg(long, default_value_t = 2, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    threads: usize,
    /// Repeats of each measurement.
    #[arg(long, default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    repeats: usize,
    /// Print every shape as well, on one thread.
    #[arg(long)]
    layers: bool,
    /// Where to write the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A layer and what its phases need.
struct Case {
    layer: Layer,
    weights: Weights,
    ring: Ring,
    x: Vec<u64>,
}

impl Case {
    fn new(shape: &Shape) -> Result<Self, Box<dyn std::error::Error>> {
        let spec =
            Linear { stride: [shape.stride; 2], ..Linear::same(shape.channels_out, shape.kernel, SHIFT) };
        let in_shape = [shape.channels_in, shape.size, shape.size];
        let params = Parameters::DEFAULT;
        let layout = Layout::new(params.ring_dim(), &spec, in_shape)?;
        let layer = Layer::new(params, layout, 0, ACTIVATION_BITS, WEIGHT_BITS, false)?;
        let mut prg = Prg::new([7; 32]);
        let most = (1i64 << (WEIGHT_BITS - 1)) - 1;
        let count = shape.channels_out * shape.channels_in * shape.kernel * shape.kernel;
        let weights = (0..count).map(|_| ((prg.next_u64() % (2 * most as u64 + 1)) as i64 - most) as i16);
        let weights = Weights {
            weights: weights.collect(),
            exponents: Vec::new(),
            bias: Bias::PerChannel(vec![0; shape.channels_out]),
        };
        let mut x = vec![0; in_shape.iter().product()];
        prg.fill_words(&mut x, layer.input_bits());
        Ok(Self { layer, weights, ring: Ring::new(Cpu::detect(), params), x })
    }

    /// Milliseconds of each phase.
    fn run(&self) -> Result<[f64; PHASES.len()], Box<dyn std::error::Error>> {
        let Self { layer, ring, .. } = self;
        let public = PublicSeed([9; 32]);
        let p1 = public.p1(ring.params());
        let wide_p1 = ring.prepare_wide(&p1);
        let (hint_key, mask_seed) = ([5; 32], [6; 32]);
        let server = ServerLayer::new(Cpu::detect(), layer.clone(), &self.weights, WEIGHT_BITS);
        let mut secret = QuerySecret::fresh(ring);
        let p0 = ZeroKey::new(ring, &secret.zero_key(ring, &p1), &mut Prg::from_os());
        let (mut to_server, mut to_client) = memory_pair();

        let limbs = ServerLayer::from_limbs(Cpu::detect(), layer.clone(), &self.weights, WEIGHT_BITS);
        let ((), from_limbs) = timed(|| limbs.prepare_model(&public));
        let ((), a_half) = timed(|| server.prepare_model(&public));
        let responses = 0..layer.layout().responses();
        let (hint, hint_ms) = timed(|| server.hint(ring, &public, &wide_p1, &hint_key, responses));
        let (at_server, prepare_server) =
            timed(|| server.prepare(ring, &hint_key, from_ref(&p0), &mask_seed));
        let (at_client, prepare_client) =
            timed(|| prepare(layer, ring, &public, &hint, from_mut(&mut secret), &mask_seed));
        let (sent, online_client) = timed(|| {
            at_client.run(layer, &mut to_server, &self.x)?;
            to_server.flush()
        });
        sent?;
        let (share, online_server) = timed(|| {
            Ok::<_, jaguar_wire::WireError>(server.run(at_server, server.receive(&mut to_client)?, &self.x))
        });
        black_box(share?);
        Ok([from_limbs, a_half, hint_ms, prepare_server, prepare_client, online_client, online_server])
    }
}

/// What `f` gives, and the milliseconds that it took.
fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = black_box(f());
    (value, start.elapsed().as_secs_f64() * 1e3)
}

/// The median of some times, and the least.
fn summary(times: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[0]]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { threads, repeats, layers, json } = Options::parse();
    let pools = [1, threads].map(|threads| ThreadPoolBuilder::new().num_threads(threads).build());
    let [one, many] = pools;
    let pools: [ThreadPool; 2] = [one?, many?];
    // [phase][median or least][pool], milliseconds of the whole network.
    let mut totals = [[[0.0; 2]; 2]; PHASES.len()];
    let mut by_shape = Vec::new();
    for (shape, count) in resnet50() {
        let case = Case::new(&shape)?;
        let mut runs = [Vec::new(), Vec::new()];
        // The first run warms up.
        for repeat in 0..=repeats {
            for (pool, runs) in pools.iter().zip(&mut runs) {
                let run = pool.install(|| case.run().map_err(|e| e.to_string()))?;
                if repeat > 0 {
                    runs.push(run);
                }
            }
        }
        let mut medians = [[0.0; PHASES.len()]; 2];
        for (pool, runs) in runs.iter().enumerate() {
            for (phase, totals) in totals.iter_mut().enumerate() {
                let times = summary(runs.iter().map(|run| run[phase]));
                totals.iter_mut().zip(times).for_each(|(total, time)| total[pool] += count as f64 * time);
                medians[pool][phase] = times[0];
            }
        }
        by_shape.push((shape, count, medians));
    }
    let query = std::array::from_fn(|figure| {
        std::array::from_fn(|pool| totals[QUERY..].iter().map(|phase| phase[figure][pool]).sum())
    });

    println!(
        "ResNet-50's linear layers, {ACTIVATION_BITS} activation bits; medians of {repeats} (and the least)"
    );
    println!("{:<26} {:>20} {:>20} {:>14}", "ms", "1 thread", format!("{threads} threads"), "ratio");
    let mut rows = Vec::new();
    for (name, [median, least]) in PHASES.iter().zip(totals).chain([(&"a query", query)]) {
        let both = |pool: usize| format!("{:.1} ({:.1})", median[pool], least[pool]);
        let ratio = format!("{:.2} ({:.2})", median[0] / median[1], least[0] / least[1]);
        println!("{name:<26} {:>20} {:>20} {ratio:>14}", both(0), both(1));
        rows.push(json!({
            "phase": name,
            "one_ms": median[0], "many_ms": median[1], "ratio": median[0] / median[1],
            "one_least_ms": least[0], "many_least_ms": least[1], "ratio_of_least": least[0] / least[1],
        }));
    }
    if layers {
        print!("\n{:<30} {:>5}", "ms, one thread", "count");
        PHASES.iter().for_each(|phase| print!("  {phase}"));
        println!();
        for (shape, count, [one, _]) in &by_shape {
            print!("{:<30} {count:>5}", shape.to_string());
            PHASES.iter().zip(one).for_each(|(phase, ms)| print!("  {ms:>width$.2}", width = phase.len()));
            println!();
        }
    }
    if let Some(path) = json {
        let shapes = by_shape.iter().map(|(shape, count, [one, many])| {
            json!({ "shape": shape.to_string(), "count": count, "one_ms": one, "many_ms": many })
        });
        let report = json!({
            "network": "ResNet-50", "threads": threads, "repeats": repeats, "phases": rows,
            "shapes": shapes.collect::<Vec<_>>(),
        });
        std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    Ok(())
}
