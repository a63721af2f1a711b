//! Where the time of a layer in skew-circulant blocks goes: one shape, several block sizes by turns, phase by phase.
//!
//! `cargo run --release -p jaguar-linear --example blocks -- 14 256 256 3 [--blocks 1 8] [--repeats R] [--phase online-server]`
//!
//! A map of 14 × 14, 256 channels in and out, a kernel of 3 × 3. Figures are microseconds on one thread, the least of the repeats: on a
//! machine that does other things as well, a phase of a millisecond or more is often interrupted and a short one seldom, so that medians
//! would favour small layers. With `--phase` that phase alone is repeated, for a profiler to look at.

use std::time::Instant;

use clap::Parser;
use jaguar_graph::network::{Bias, Blocks, Linear, Weights};
use jaguar_linear::jaguar::{Layer, ServerLayer, prepare};
use jaguar_linear::layout::{Layout, Packing};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_ring::prg::Prg;
use jaguar_wire::memory_pair;
use rayon::ThreadPoolBuilder;

const WEIGHT_BITS: u32 = 12;
const ACTIVATION_BITS: u32 = 16;
const SHIFT: u32 = 12;

const PHASES: [&str; 6] =
    ["a-half", "hint", "prepare-server", "prepare-client", "online-server", "online-client"];

/// The phases that make up a query.
const QUERY: usize = 2;

#[derive(Parser)]
struct Options {
    /// Rows and columns of the map.
    size: usize,
    channels_in: usize,
    channels_out: usize,
    /// Rows and columns of the kernel.
    kernel: usize,
    /// Block sizes; 1 is the dense layer.
    #[arg(long, num_args = 1.., default_values_t = [1, 8])]
    blocks: Vec<usize>,
    #[arg(long, default_value_t = 21)]
    repeats: usize,
    /// This phase alone.
    #[arg(long, value_parser = PHASES)]
    phase: Option<String>,
}

/// A layer and what its phases need.
struct Case {
    layer: Layer,
    weights: Weights,
    ring: Ring,
    x: Vec<u64>,
}

impl Case {
    fn new(options: &Options, b: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let Options { size, channels_in, channels_out, kernel, .. } = *options;
        let blocks = (b > 1).then(|| Blocks::skew(b));
        let spec = Linear { blocks, ..Linear::same(channels_out, kernel, SHIFT) };
        let params = Parameters::DEFAULT;
        let layout =
            Layout::blocked(params.ring_dim(), &spec, [channels_in, size, size], Packing::default())?;
        let layer = Layer::new(params, layout, 0, ACTIVATION_BITS, WEIGHT_BITS, false)?;
        let mut prg = Prg::new([7; 32]);
        let bound = 1i64 << (WEIGHT_BITS - 1);
        let mut weight = || ((prg.next_u64() >> (64 - WEIGHT_BITS)) as i64 - bound).max(1 - bound) as i16;
        let mut weights: Vec<i16> =
            (0..channels_out * channels_in * kernel * kernel).map(|_| weight()).collect();
        if let Some(blocks) = blocks {
            blocks.repeat(&mut weights, channels_in, spec.kernel);
        }
        let mut x = vec![0; channels_in * size * size];
        prg.fill_words(&mut x, layer.input_bits());
        let weights =
            Weights { weights, exponents: Vec::new(), bias: Bias::PerChannel(vec![0; channels_out]) };
        Ok(Self { layer, weights, ring: Ring::new(Cpu::detect(), params), x })
    }

    /// Runs every phase `repeats` times, or one alone, and adds its microseconds to `times`.
    fn run(&self, phase: Option<&str>, repeats: usize, times: &mut [Vec<f64>; 6]) {
        let Self { layer, weights, ring, x } = self;
        let public = PublicSeed([9; 32]);
        let p1 = public.p1(ring.params());
        let wide_p1 = ring.prepare_wide(&p1);
        let mut prg = Prg::new([4; 32]);
        let mut secrets: Vec<_> =
            (0..layer.secrets()).map(|_| QuerySecret::from_prg(ring, &mut prg)).collect();
        let keys: Vec<_> = secrets
            .iter_mut()
            .map(|s| ZeroKey::new(ring, &s.zero_key(ring, &p1), &mut Prg::new([5; 32])))
            .collect();
        let mut server = ServerLayer::new(Cpu::detect(), layer.clone(), weights, WEIGHT_BITS);
        server.prepare_model(&public);
        let hint = server.hint(ring, &public, &wide_p1, &[5; 32], 0..layer.hint_responses());
        let mut at_client = || prepare(layer, ring, &public, &hint, &mut secrets, &[6; 32]);
        let at_server = || server.prepare(ring, &[5; 32], &keys, &[6; 32]);
        let wanted = |name: &str| phase.is_none_or(|phase| phase == name);
        let mut timed = |name: &str, run: &mut dyn FnMut()| {
            let start = Instant::now();
            run();
            let at = PHASES.iter().position(|phase| *phase == name).expect("a phase");
            times[at].push(1e6 * start.elapsed().as_secs_f64());
        };
        for _ in 0..repeats {
            if wanted("hint") {
                timed("hint", &mut || {
                    server.hint(ring, &public, &wide_p1, &[5; 32], 0..layer.hint_responses());
                });
            }
            if wanted("prepare-server") {
                timed("prepare-server", &mut || drop(at_server()));
            }
            if wanted("prepare-client") {
                timed("prepare-client", &mut || drop(at_client()));
            }
            let (prepared, ours) = (at_server(), at_client());
            let (mut up, mut down) = memory_pair();
            let mut ours = Some(ours);
            let mut send = || {
                ours.take().expect("once").run(layer, &mut up, x).expect("memory");
                up.flush().expect("memory");
            };
            if wanted("online-client") {
                timed("online-client", &mut send)
            } else {
                send()
            }
            let mut prepared = Some(prepared);
            let mut answer = || {
                let upload = server.receive(&mut down).expect("memory");
                server.run(prepared.take().expect("once"), upload, x);
            };
            if wanted("online-server") { timed("online-server", &mut answer) } else { answer() }
        }
        for _ in 0..if wanted("a-half") { repeats.div_ceil(4) } else { 0 } {
            server = ServerLayer::new(Cpu::detect(), layer.clone(), weights, WEIGHT_BITS);
            timed("a-half", &mut || server.prepare_model(&public));
        }
    }
}

fn least(values: Vec<f64>) -> f64 {
    values.into_iter().reduce(f64::min).unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    ThreadPoolBuilder::new().num_threads(1).build_global()?;
    let cases = options.blocks.iter().map(|&b| Case::new(&options, b)).collect::<Result<Vec<_>, _>>()?;
    let mut times = vec![<[Vec<f64>; 6]>::default(); cases.len()];
    // By turns, so that whatever else the machine does disturbs all alike.
    let rounds = if options.phase.is_some() { 1 } else { options.repeats };
    for _ in 0..rounds {
        for (case, times) in cases.iter().zip(&mut times) {
            case.run(options.phase.as_deref(), options.repeats / rounds, times);
        }
    }
    println!(
        "{:>4} {:>5} {:>6} {:>6}  {}",
        "b",
        "parts",
        "in",
        "out",
        PHASES.map(|p| format!("{p:>14}")).join(" ")
    );
    let mut queries = Vec::new();
    for ((b, case), times) in options.blocks.iter().zip(&cases).zip(times) {
        let figures = times.map(least);
        let layout = case.layer.layout();
        let shown = figures.map(|figure| format!("{figure:>14.1}")).join(" ");
        let query: f64 = figures[QUERY..].iter().sum();
        queries.push(query);
        let (parts, ins, outs) = (layout.parts(), layout.ciphertexts(), layout.responses());
        println!(
            "{b:>4} {parts:>5} {ins:>6} {outs:>6}  {shown}  query {query:.0}, {:.2} times",
            queries[0] / query
        );
    }
    Ok(())
}
