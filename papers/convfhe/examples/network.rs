//! Runs ResNet-20 with random weights in one round, both parties in one process, and prints what each step takes and
//! what the logits err by:
//!
//!     cargo run --release --package jaguar-convfhe --example network -- [LOG_N] [THREADS] [BLOCKS] [RELU] [IMAGES]
//!
//! by default 16, 1, 3 blocks a stage, of two layers each, 7-7-13 (with 7-15 the set is that of eight levels for
//! ReLU), and one image (with more the set is that with a value in every coefficient); 0 blocks: the last eight layers of Plain-18 for
//! ImageNet, with four ciphertexts of 128 channels. N = 2^16 takes 6 GB; smaller rings are insecure, and take smaller
//! pictures (2^14: 16 × 16, 2^12: 8 × 8, 2^10: 4 × 4; of the tail 28 × 28, 14 × 14, 7 × 7). Weights are uniform, as
//! large as He's initialisation
//! says. The network has no task: what counts is what it takes, and its error beside itself in floating point. It fails if a
//! logit is off by more than 2^-7 of the bound: noise and rounding of an answer are 2^-8 together.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, ensure};
use jaguar_ckks::layout::Grid;
use jaguar_ckks::{Context, EvaluationKeys, Literal, Parameters, SecretKey};
use jaguar_convfhe::network::{Evaluator, Keys, Plan, Public, key_specs, memory};
use jaguar_convfhe::{Description, Floats, Inputs, Layer, Polynomial, Term};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

/// What all threads of the process had of cores.
fn processor() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(spent.tv_sec)) + Duration::from_nanos(part(spent.tv_nsec))
}

/// A line of times, begun now.
struct Line {
    clock: Instant,
    processor: Duration,
}

impl Line {
    fn begin() -> Self {
        Self { clock: Instant::now(), processor: processor() }
    }

    /// Prints what was spent since its beginning.
    fn end(self, phase: &str) {
        let spent = processor().saturating_sub(self.processor);
        println!("{phase:32} {:9.3} {:9.3}", spent.as_secs_f64(), self.clock.elapsed().as_secs_f64());
        // Somebody may be waiting at the other end of a pipe.
        let _ = std::io::stdout().flush();
    }
}

/// A line of `/proc/self/status`, in GiB, where the system has it.
fn status(name: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / f64::from(1 << 20))
}

/// In -1..1.
fn random(prg: &mut Prg, count: usize) -> Vec<f32> {
    (0..count).map(|_| (prg.next_u64() as i64 as f64 * 2f64.powi(-63)) as f32).collect()
}

/// A convolution of value `from`, with random weights of so large a gain.
fn convolution(prg: &mut Prg, from: usize, sizes: [usize; 3], stride: usize, gain: f32) -> Term {
    let [out, channels, side] = sizes;
    let fan_in = channels * side * side;
    let most = gain * (6.0 / fan_in as f32).sqrt();
    let weights = random(prg, out * fan_in).into_iter().map(|weight| most * weight).collect();
    let pad = if side == 3 { 1 } else { 0 };
    Term {
        from,
        out,
        channels,
        height: side,
        width: side,
        stride,
        padding: [pad; 4],
        weights: Floats(weights),
    }
}

/// Value `from` as it is; over a stride, channels double, and half of them stay 0 (a shortcut of option A).
fn shortcut(from: usize, channels: usize, stride: usize) -> Term {
    let out = channels * stride;
    let first = (out - channels) / 2;
    let weights = (0..out * channels).map(|at| f32::from(u8::from(at / channels == first + at % channels)));
    Term {
        from,
        out,
        channels,
        height: 1,
        width: 1,
        stride,
        padding: [0; 4],
        weights: Floats(weights.collect()),
    }
}

/// ResNet for CIFAR-10 (He, Zhang, Ren and Sun, CVPR 2016), with so many blocks a stage: 3 are ResNet-20.
fn resnet(prg: &mut Prg, side: usize, blocks: usize) -> Description {
    let mut layers: Vec<Layer> = Vec::new();
    let mut push = |prg: &mut Prg, terms: Vec<Term>| {
        let bias = random(prg, terms[0].out).into_iter().map(|bias| 0.05 * bias).collect();
        layers.push(Layer {
            name: format!("layer {}", layers.len() + 1),
            terms,
            bias: Floats(bias),
            bound: None,
        });
        layers.len()
    };
    let first = vec![convolution(prg, 0, [16, 3, 3], 1, 1.0)];
    let (mut value, mut channels) = (push(prg, first), 16);
    for stage in 0..3 {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let out = channels * stride;
            let inner = vec![convolution(prg, value, [out, channels, 3], stride, 1.0)];
            let inner = push(prg, inner);
            // Blocks add up.
            let sum = vec![convolution(prg, inner, [out, out, 3], 1, 0.5), shortcut(value, channels, stride)];
            (value, channels) = (push(prg, sum), out);
        }
    }
    let mut output = convolution(prg, value, [10, channels, 1], 1, 1.0);
    // The average of all places, and a matrix behind it.
    let places = (side / 4) * (side / 4);
    let spread =
        output.weights.0.iter().flat_map(|&weight| std::iter::repeat_n(weight / places as f32, places));
    output = Term { height: side / 4, width: side / 4, weights: Floats(spread.collect()), ..output };
    let output =
        Layer { name: "output".into(), terms: vec![output], bias: Floats(random(prg, 10)), bound: None };
    let (name, relu) = (format!("ResNet-{}", 6 * blocks + 2), Polynomial::default());
    Description { name, input: [3, side, side], input_bound: 1.0, relu, images: 1, layers, output }
}

/// The last eight layers of Plain-18: 128 channels, then 256 and 512, each behind a stride of 2.
fn tail(prg: &mut Prg, side: usize) -> Description {
    let (mut layers, mut channels, mut left) = (Vec::new(), 128, side);
    for index in 0..8 {
        let stride = if index % 4 == 0 { 2 } else { 1 };
        let out = channels * stride;
        let terms = vec![convolution(prg, index, [out, channels, 3], stride, 1.0)];
        let bias = random(prg, out).into_iter().map(|bias| 0.05 * bias).collect();
        layers.push(Layer { name: format!("layer {}", index + 1), terms, bias: Floats(bias), bound: None });
        (channels, left) = (out, left.div_ceil(stride));
    }
    let places = left * left;
    let mut output = convolution(prg, 8, [1000, channels, 1], 1, 1.0);
    let spread =
        output.weights.0.iter().flat_map(|&weight| std::iter::repeat_n(weight / places as f32, places));
    output = Term { height: left, width: left, weights: Floats(spread.collect()), ..output };
    let output =
        Layer { name: "output".into(), terms: vec![output], bias: Floats(random(prg, 1000)), bound: None };
    let (name, relu) = ("the tail of Plain-18".into(), Polynomial::default());
    Description { name, input: [128, side, side], input_bound: 1.0, relu, images: 1, layers, output }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: usize| arguments.next().map_or(Ok(default), |argument| argument.parse());
    let (log_n, threads, blocks) = (next(16)?, next(1)?, next(3)?);
    let relu: Polynomial =
        arguments.next().map_or(Ok(Polynomial::default()), |name| name.parse()).map_err(Error::msg)?;
    let images = arguments.next().map_or(Ok(1), |argument| argument.parse())?;
    ensure!([10, 12, 14, 16].contains(&log_n), "log2 N is 10, 12, 14 or 16");
    ensure!(blocks <= 16, "at most 16 blocks a stage");
    ensure!(blocks > 0 || log_n > 10, "the tail takes N = 2^12 or more");
    let side = if blocks == 0 { 28 >> (8 - log_n / 2) } else { 1 << (log_n / 2 - 3) };
    let set = match relu {
        Polynomial::Coarse => Literal::n16_relu8(),
        Polynomial::Short | Polynomial::Paper => Literal::n16(),
    };
    let set = if images > 1 { set.full() } else { set };
    let literal = if log_n == 16 { set } else { set.insecure(u32::try_from(log_n)?) };

    let mut prg = Prg::new([7; 32]);
    let mut network = if blocks == 0 { tail(&mut prg, side) } else { resnet(&mut prg, side, blocks) };
    (network.relu, network.images) = (relu, images);
    let size: usize = network.input.iter().product();
    println!("{}, {} layers and the output, pictures of {side} × {side}", network.name, network.layers.len());
    let context = Context::new(Cpu::detect(), Parameters::new(&literal)?, threads)?;
    let params = context.params();
    let (set, kernel) = (params.name(), context.kernel().name());
    println!("{set}, kernel {kernel}, {threads} threads; seconds of processors, of the clock");

    let line = Line::begin();
    let mut plan = Plan::new(network, params.values())?;
    let samples: Vec<Vec<f32>> = (0..4).map(|_| random(&mut prg, size)).collect();
    plan.calibrate(Inputs { samples: &samples, margin: 1.5, stress: &[], stress_margin: 1.0 })?;
    let inputs: Vec<Vec<f32>> = (0..images).map(|_| random(&mut prg, size)).collect();
    let simulated = plan.simulate(&inputs)?;
    let beyond = "a value is beyond its bound in floating point";
    let expected: Vec<_> =
        simulated.iter().map(|one| one.logits.clone().context(beyond)).collect::<Result<_>>()?;
    let (expected, exact) =
        (expected.concat(), simulated.iter().flat_map(|one| one.exact.clone()).collect::<Vec<_>>());
    line.end("calibration and simulation");
    let bootstraps: usize = plan.grids()[1..].iter().map(Grid::polynomials).sum();
    println!("{bootstraps} bootstraps");

    let line = Line::begin();
    let secret = SecretKey::generate(&context);
    let specs = key_specs(&context)?;
    let keys = Keys {
        circuit: EvaluationKeys::generate(&secret, &specs.circuit)?,
        packing: EvaluationKeys::generate(&secret, &specs.packing)?,
        public: secret.public_key(specs.public, &mut Prg::from_os())?,
    };
    line.end("keys, once");
    let public = Public::parse(&serde_json::to_string(&plan.public(params)?)?, params)?;
    let line = Line::begin();
    let bytes = public.encrypt(&secret, &inputs.concat())?;
    line.end("encryption");

    let line = Line::begin();
    let estimate = memory(&context, &plan)?;
    let plan = Arc::new(plan);
    let evaluator = Evaluator::new(Arc::clone(&plan), Arc::clone(&context), keys)?;
    line.end("keys and matrices made ready, once");
    let held = status("VmRSS:");

    let whole = Line::begin();
    let mut layer = Some(Line::begin());
    let mut progress = |done: u32, all: u32| {
        if let Some(line) = layer.replace(Line::begin()) {
            line.end(&format!("  {done} of {all}"));
        }
    };
    let answer = evaluator.evaluate(&bytes, &mut progress, &AtomicBool::new(false))?;
    whole.end("evaluation");
    let line = Line::begin();
    let logits = public.decrypt(&secret, &answer)?;
    line.end("decryption");

    let log2_error = |others: &[f64], unit: f64| {
        let largest = logits.iter().zip(others).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        (largest / unit).log2()
    };
    let spread = |of: &[f64]| {
        of.iter().copied().fold(f64::MIN, f64::max) - of.iter().copied().fold(f64::MAX, f64::min)
    };
    let most = log2_error(&expected, public.output_bound);
    println!("bytes: keys {}, input {}, answer {}", specs.bytes(&context)?, bytes.len(), answer.len());
    println!(
        "log2 of a logit's largest error beside the polynomial: {:.1} of the bound, {:.1} of the spread; beside ReLU {:.1} of the spread",
        most,
        log2_error(&expected, spread(&expected)),
        log2_error(&exact, spread(&exact))
    );
    println!("memory: estimate {:.2} GiB", estimate as f64 / f64::from(1 << 30));
    if let (Some(held), Some(peak)) = (held, status("VmHWM:")) {
        println!("before the evaluation {held:.2} GiB, most {peak:.2} GiB");
    }
    ensure!(most < -7.0, "a logit is off by 2^{most:.1} of the bound");
    Ok(())
}
