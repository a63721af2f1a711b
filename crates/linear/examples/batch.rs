//! What a batch of images takes the server in the linear layers of a network, beside single images: processor time, by turns.
//!
//! `cargo run --release -p jaguar-linear --example batch -- mobilenetv2 --size 224 [--images 16] [--repeats 5] [--layers] [--json FILE]`
//!
//! A server's time is what it does for a query: before the input (`prepare`) and with it (receiving, the product, the shares). Every
//! distinct shape is run as so many queries of one image and as one of a batch by turns, on one thread; a figure is the median of the repeats, and
//! counts as often as the network has the shape. Time is that of the processor (Linux tells it), so that what else the machine does
//! counts little. Weights and inputs are random.

use std::fs;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use jaguar_graph::network::{Bias, Linear, Weights};
use jaguar_linear::jaguar::{Layer, ServerLayer, prepare};
use jaguar_linear::layout::{Layout, Packing};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_ring::prg::Prg;
use jaguar_wire::memory_pair;
use rayon::ThreadPoolBuilder;
use serde_json::json;

const WEIGHT_BITS: u32 = 12;
const ACTIVATION_BITS: u32 = 16;
const SHIFT: u32 = 12;

#[derive(Parser)]
struct Options {
    #[arg(value_enum)]
    network: Name,
    /// Rows and columns of an image.
    #[arg(long, default_value_t = 224)]
    size: usize,
    /// Images of a batch, a power of two.
    #[arg(long, default_value_t = 16)]
    images: usize,
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Print every shape as well.
    #[arg(long)]
    layers: bool,
    /// Only count: no layer is run.
    #[arg(long)]
    count: bool,
    /// Where to write the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// torchvision's networks.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Mobilenetv2,
    Resnet18,
    Resnet50,
    Squeezenet,
}

/// A layer with square kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    size: usize,
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    pad: usize,
    groups: usize,
}

impl Shape {
    fn spec(&self) -> Linear {
        let Self { kernel, stride, pad, groups, .. } = *self;
        Linear {
            stride: [stride; 2],
            pads: [pad; 4],
            groups,
            ..Linear::same(self.channels[1], kernel, SHIFT)
        }
    }

    fn name(&self) -> String {
        let Self { size, channels: [i, o], kernel, stride, groups, .. } = self;
        let depthwise = if *groups > 1 { " dw" } else { "" };
        format!("{size}x{size} {i}>{o} {kernel}x{kernel}/{stride}{depthwise}")
    }
}

/// A network in the making: the map that is there, and its layers with how often each occurs.
struct Builder {
    size: usize,
    channels: usize,
    layers: Vec<(Shape, usize)>,
}

impl Builder {
    fn at(&mut self, channels_in: usize, channels: usize, kernel: usize, stride: usize, groups: usize) {
        self.padded(channels_in, channels, (kernel, stride, kernel / 2), groups);
    }

    fn padded(
        &mut self,
        channels_in: usize,
        channels: usize,
        (kernel, stride, pad): (usize, usize, usize),
        groups: usize,
    ) {
        let shape = Shape { size: self.size, channels: [channels_in, channels], kernel, stride, pad, groups };
        match self.layers.iter_mut().find(|(s, _)| *s == shape) {
            Some((_, count)) => *count += 1,
            None => self.layers.push((shape, 1)),
        }
    }

    /// A layer behind the last one.
    fn next(&mut self, channels: usize, kernel: usize, stride: usize, groups: usize) {
        self.at(self.channels, channels, kernel, stride, groups);
        (self.size, self.channels) = (self.size.div_ceil(stride), channels);
    }

    fn classes(&mut self) {
        self.size = 1;
        self.next(1000, 1, 1, 1);
    }
}

fn layers(network: Name, size: usize) -> Vec<(Shape, usize)> {
    let mut b = Builder { size, channels: 3, layers: Vec::new() };
    match network {
        Name::Mobilenetv2 => {
            b.next(32, 3, 2, 1);
            let blocks = [
                (1, 16, 1, 1),
                (6, 24, 2, 2),
                (6, 32, 3, 2),
                (6, 64, 4, 2),
                (6, 96, 3, 1),
                (6, 160, 3, 2),
                (6, 320, 1, 1),
            ];
            for (expand, channels, count, first) in blocks {
                for i in 0..count {
                    let hidden = expand * b.channels;
                    if expand > 1 {
                        b.next(hidden, 1, 1, 1);
                    }
                    b.next(hidden, 3, if i == 0 { first } else { 1 }, hidden);
                    b.next(channels, 1, 1, 1);
                }
            }
            b.next(1280, 1, 1, 1);
        }
        Name::Resnet18 | Name::Resnet50 => {
            b.next(64, 7, 2, 1);
            b.size = b.size.div_ceil(2);
            let (counts, wide) = match network {
                Name::Resnet18 => ([2, 2, 2, 2], 1),
                _ => ([3, 4, 6, 3], 4),
            };
            for (stage, blocks) in counts.into_iter().enumerate() {
                let width = 64 << stage;
                for block in 0..blocks {
                    let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                    if b.channels != wide * width {
                        b.at(b.channels, wide * width, 1, stride, 1);
                    }
                    if wide == 1 {
                        b.next(width, 3, stride, 1);
                        b.next(width, 3, 1, 1);
                    } else {
                        b.next(width, 1, 1, 1);
                        b.next(width, 3, stride, 1);
                        b.next(wide * width, 1, 1, 1);
                    }
                }
            }
        }
        Name::Squeezenet => {
            b.padded(3, 64, (3, 2, 0), 1);
            (b.size, b.channels) = ((b.size - 3) / 2 + 1, 64);
            for (i, squeeze) in [16, 16, 32, 32, 48, 48, 64, 64].into_iter().enumerate() {
                if [0, 2, 4].contains(&i) {
                    b.size = (b.size - 3).div_ceil(2) + 1;
                }
                b.next(squeeze, 1, 1, 1);
                b.at(squeeze, 4 * squeeze, 1, 1, 1);
                b.next(4 * squeeze, 3, 1, 1);
                b.channels = 8 * squeeze;
            }
            b.next(1000, 1, 1, 1);
            return b.layers;
        }
    }
    b.classes();
    b.layers
}

/// What a query of a layer takes.
struct Case {
    layer: Layer,
    weights: Weights,
    x: Vec<u64>,
}

impl Case {
    fn new(shape: &Shape, images: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let params = Parameters::DEFAULT;
        let (spec, [ins, outs]) = (shape.spec(), shape.channels);
        let in_shape = [ins, shape.size, shape.size];
        let layout = Layout::of_images(params.ring_dim(), &spec, in_shape, Packing::default(), images)?;
        let layer = Layer::new(params, layout, 0, ACTIVATION_BITS, WEIGHT_BITS, false)?;
        let mut prg = Prg::new([7; 32]);
        let bound = 1i64 << (WEIGHT_BITS - 1);
        let mut weight = || ((prg.next_u64() >> (64 - WEIGHT_BITS)) as i64 - bound).max(1 - bound) as i16;
        let count = outs * ins / shape.groups * shape.kernel * shape.kernel;
        let weights = (0..count).map(|_| weight()).collect();
        let weights = Weights { weights, exponents: Vec::new(), bias: Bias::PerChannel(vec![0; outs]) };
        let mut x = vec![0; layer.layout().inputs()];
        prg.fill_words(&mut x, layer.input_bits());
        Ok(Self { layer, weights, x })
    }

    /// Seconds of the server before the input and with it, and of the client before the input, by query.
    fn run(&self, ring: &Ring, server: &ServerLayer, hint: &[u8]) -> [f64; 3] {
        let Self { layer, x, .. } = self;
        let public = PublicSeed([9; 32]);
        let p1 = public.p1(ring.params());
        let mut prg = Prg::new([4; 32]);
        let mut secrets: Vec<_> =
            (0..layer.secrets()).map(|_| QuerySecret::from_prg(ring, &mut prg)).collect();
        let start = processor_seconds();
        let p0: Vec<_> = secrets.iter_mut().map(|secret| secret.zero_key(ring, &p1)).collect();
        let prepared_client = prepare(layer, ring, &public, hint, &mut secrets, &[6; 32]);
        let client = processor_seconds() - start;
        // A query's keys are for all its layers: not counted here.
        let keys: Vec<_> = p0.iter().map(|p0| ZeroKey::new(ring, p0, &mut Prg::new([5; 32]))).collect();
        let start = processor_seconds();
        let prepared = server.prepare(ring, &[5; 32], &keys, &[6; 32]);
        let offline = processor_seconds() - start;
        let (mut up, mut down) = memory_pair();
        prepared_client.run(layer, &mut up, x).expect("memory");
        up.flush().expect("memory");
        let start = processor_seconds();
        let upload = server.receive(&mut down).expect("memory");
        server.run(prepared, upload, x);
        [offline, processor_seconds() - start, client]
    }
}

/// Seconds that this thread had a processor.
fn processor_seconds() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    told.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).expect("nanoseconds") * 1e-9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let ring = Ring::new(Cpu::detect(), Parameters::DEFAULT);
    let images = options.images as f64;
    println!(
        "{:28} {:>5} {:>6} {:>10} {:>10} {:>6}   server, an image, before the input and with it: alone, in a batch (us); share",
        "layer", "count", "img/ct", "resp alone", "resp batch", "hint"
    );
    let (mut all, mut records) = ([[0.0; 3]; 2], Vec::new());
    // Responses, ciphertexts, bytes of b; outputs, inputs.
    let mut counts = [[0usize; 5]; 2];
    for (shape, count) in layers(options.network, options.size) {
        let cases = [Case::new(&shape, 1)?, Case::new(&shape, options.images)?];
        for (case, counts) in cases.iter().zip(&mut counts) {
            let l = &case.layer;
            let (responses, ciphertexts) = (l.layout().responses(), l.layout().ciphertexts());
            let of = [responses, ciphertexts, l.upload_bytes(), l.layout().outputs(), l.layout().inputs()];
            counts.iter_mut().zip(of).for_each(|(sum, n)| *sum += count * n);
        }
        let mut medians = [[0.0; 3]; 2];
        if !options.count {
            let public = PublicSeed([9; 32]);
            let wide_p1 = ring.prepare_wide(&public.p1(ring.params()));
            let servers = cases.each_ref().map(|case| {
                let server = ServerLayer::new(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
                let hint = server.hint(&ring, &public, &wide_p1, &[5; 32], 0..case.layer.hint_responses());
                (server, hint)
            });
            let mut times = [const { [const { Vec::new() }; 3] }; 2];
            for _ in 0..options.repeats {
                // As many single images as a batch has: the processor's time is told in steps of milliseconds.
                for (((case, (server, hint)), times), queries) in
                    cases.iter().zip(&servers).zip(&mut times).zip([options.images, 1])
                {
                    let runs: Vec<_> = (0..queries).map(|_| case.run(&ring, server, hint)).collect();
                    for (phase, times) in times.iter_mut().enumerate() {
                        times.push(runs.iter().map(|run| run[phase]).sum::<f64>() / images);
                    }
                }
            }
            medians = times.map(|phases| phases.map(median));
        }
        for (all, medians) in all.iter_mut().zip(&medians) {
            all.iter_mut().zip(medians).for_each(|(all, seconds)| *all += count as f64 * seconds);
        }
        let server = medians.map(|[offline, online, _]| offline + online);
        let [alone, batch] = cases.each_ref().map(|case| case.layer.layout().responses());
        if options.layers {
            let micros = medians.map(|phases| phases.map(|seconds| 1e6 * seconds));
            println!(
                "{:28} {count:>5} {:>6} {:>10} {batch:>10} {:>6.2}   {:.0} + {:.0}, {:.0} + {:.0}; {:.0} %",
                shape.name(),
                cases[1].layer.layout().interleaved(),
                options.images * alone,
                cases[1].layer.hint_bytes() as f64 / cases[0].layer.hint_bytes() as f64,
                micros[0][0],
                micros[0][1],
                micros[1][0],
                micros[1][1],
                100.0 * server[1] / server[0]
            );
        }
        records.push(json!({
            "layer": shape.name(), "count": count, "interleaved": cases[1].layer.layout().interleaved(),
            "responses": [options.images * alone, batch], "server_seconds_an_image": server,
            "phases_seconds_an_image": medians,
        }));
    }
    let server = all.map(|[offline, online, _]| offline + online);
    println!(
        "in all: responses {} > {}, ciphertexts {} > {}, bytes of b {} > {}",
        options.images * counts[0][0],
        counts[1][0],
        options.images * counts[0][1],
        counts[1][1],
        options.images * counts[0][2],
        counts[1][2]
    );
    let filled = |[responses, ciphertexts, _, outputs, inputs]: [usize; 5]| {
        let share = |values: usize, of: usize| values as f64 / (of * Parameters::DEFAULT.ring_dim()) as f64;
        format!("{:.1} % and {:.1} %", 100.0 * share(outputs, responses), 100.0 * share(inputs, ciphertexts))
    };
    println!("filled, responses and ciphertexts: alone {}, batch {}", filled(counts[0]), filled(counts[1]));
    if !options.count {
        println!(
            "server, an image: {:.1} ms alone ({:.1} + {:.1}), {:.1} ms in a batch ({:.1} + {:.1}): {:.1} %; client before the input {:.1}, {:.1} ms",
            1e3 * server[0],
            1e3 * all[0][0],
            1e3 * all[0][1],
            1e3 * server[1],
            1e3 * all[1][0],
            1e3 * all[1][1],
            100.0 * server[1] / server[0],
            1e3 * all[0][2],
            1e3 * all[1][2],
        );
    }
    if let Some(path) = &options.json {
        let record = json!({
            "size": options.size, "images": options.images, "repeats": options.repeats, "counts": counts,
            "server_seconds_an_image": server, "phases_seconds_an_image": all, "layers": records,
        });
        fs::write(path, serde_json::to_string_pretty(&record)?)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let pool = ThreadPoolBuilder::new().num_threads(1).build()?;
    // On the pool's own thread, whose time is looked at.
    pool.install(|| measure(&options).map_err(|e| e.to_string()))?;
    Ok(())
}
