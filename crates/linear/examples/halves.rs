//! Measures both halves of ResNet-50's linear layers on one thread: the a half (once per model) from limb planes and as a
//! server computes it, and the online half (once per query), for every shape and in all.
//!
//! `cargo run --release -p jaguar-linear --example halves [-- --repeats R --json FILE]`
//!
//! Medians of R repeats (default 5). Weights and inputs are random, with 12 and 16 bits.

use std::time::Instant;

use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_linear::jaguar::{Layer, ServerLayer};
use jaguar_linear::layout::Layout;
use jaguar_ring::Prg;
use jaguar_rlwe::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_wire::memory_pair;
use serde_json::json;

const WEIGHT_BITS: u32 = 12;
const ACTIVATION_BITS: u32 = 16;

/// One linear layer and how often the network has it.
struct Case {
    name: String,
    spec: Linear,
    shape: Shape,
    count: usize,
}

fn case(cases: &mut Vec<Case>, size: usize, channels: usize, outs: usize, kernel: usize, stride: usize) {
    let name = format!("{size}x{size} {channels}>{outs} {kernel}x{kernel}/{stride}");
    if let Some(known) = cases.iter_mut().find(|case| case.name == name) {
        known.count += 1;
        return;
    }
    let spec = Linear {
        out_channels: outs,
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1, 1],
        pads: [kernel / 2; 4],
        groups: 1,
        shift: 12,
    };
    cases.push(Case { name, spec, shape: [channels, size, size], count: 1 });
}

/// torchvision's ResNet-50: bottlenecks with the stride in the 3x3 convolution, and the fully connected layer.
fn resnet50() -> Vec<Case> {
    let mut cases = Vec::new();
    case(&mut cases, 224, 3, 64, 7, 2);
    let (mut size, mut channels) = (56, 64);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            case(&mut cases, size, channels, width, 1, 1);
            case(&mut cases, size, width, width, 3, stride);
            if block == 0 {
                case(&mut cases, size, channels, 4 * width, 1, stride);
            }
            size /= stride;
            channels = 4 * width;
            case(&mut cases, size, width, channels, 1, 1);
        }
    }
    case(&mut cases, 1, channels, 1000, 1, 1);
    cases
}

/// Milliseconds of `f`.
fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = f();
    (value, start.elapsed().as_secs_f64() * 1e3)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Milliseconds of the a half from limbs, of the a half, and online.
fn measure(case: &Case, ring: &Ring, repeats: usize) -> [f64; 3] {
    let params = *ring.params();
    let layout = Layout::new(params.ring_dim(), &case.spec, case.shape).expect("a layer that fits");
    let layer = Layer::new(params, layout, 0, ACTIVATION_BITS, WEIGHT_BITS, false).expect("little noise");
    let mut prg = Prg::new([7; 32]);
    let count = case.spec.out_channels * layer.layout().terms_per_output();
    let weights = (0..count).map(|_| (prg.next_u64() % 4095) as i16 - 2047).collect();
    let weights = Weights { weights, bias: Bias::PerChannel(vec![0; case.spec.out_channels]) };
    let public = PublicSeed([9; 32]);
    let p0 = QuerySecret::from_prg(ring, &mut prg).zero_key(ring, &public.p1(&params));
    let p0 = ZeroKey::new(ring, &p0, &mut prg);
    let mut x = vec![0; case.shape.iter().product()];
    prg.fill_words(&mut x, layer.input_bits());
    // As packed: any bytes are.
    let mut b = vec![0; layer.upload_bytes()];
    prg.fill(&mut b);

    let mut times = [const { Vec::new() }; 3];
    for _ in 0..repeats {
        let limbs = ServerLayer::from_limbs(layer.clone(), &weights, WEIGHT_BITS);
        times[0].push(timed(|| limbs.prepare_model(&public)).1);
        let server = ServerLayer::new(layer.clone(), &weights, WEIGHT_BITS);
        times[1].push(timed(|| server.prepare_model(&public)).1);
        let prepared = server.prepare(ring, &[5; 32], &p0, &[6; 32]);
        let (mut to_server, mut to_client) = memory_pair();
        to_server.send(&b).and_then(|()| to_server.flush()).expect("a queue in memory");
        let online = || server.run(prepared, server.receive(&mut to_client).expect("what was sent"), &x);
        times[2].push(timed(online).1);
    }
    times.map(median)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut repeats, mut file) = (5, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--repeats" => repeats = value.parse::<std::num::NonZeroUsize>()?.get(),
            "--json" => file = Some(value),
            _ => return Err(format!("unknown option {arg}; there are --repeats and --json").into()),
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let ring = Ring::new(Parameters::DEFAULT);
    let (mut all, mut rows) = ([0.0; 3], Vec::new());
    println!("{:<28} {:>5} {:>14} {:>14} {:>14}", "ms", "count", "a, from limbs", "a half", "online");
    for case in resnet50() {
        let times = pool.install(|| measure(&case, &ring, repeats));
        for (all, time) in all.iter_mut().zip(times) {
            *all += case.count as f64 * time;
        }
        let [limbs, a_half, online] = times;
        println!("{:<28} {:>5} {limbs:>14.2} {a_half:>14.2} {online:>14.2}", case.name, case.count);
        rows.push(json!({
            "layer": case.name, "count": case.count,
            "a_half_limbs_ms": limbs, "a_half_ms": a_half, "online_ms": online,
        }));
    }
    let [limbs, a_half, online] = all;
    println!("{:<34} {limbs:>14.1} {a_half:>14.1} {online:>14.1}", "in all");
    if let Some(file) = file {
        let report = json!({
            "network": "ResNet-50", "threads": 1, "repeats": repeats, "layers": rows,
            "a_half_limbs_ms": limbs, "a_half_ms": a_half, "online_ms": online,
        });
        std::fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    Ok(())
}
