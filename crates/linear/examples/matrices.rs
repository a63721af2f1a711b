//! The paper's matrix products (Fregata, Table IV) by its homomorphic matrix product, in its own tiling and in the
//! cheapest, beside Cheetah's: ciphertexts, bytes, and milliseconds of one core, by turns, medians.
//!
//!     cargo run --release -p jaguar-linear --example matrices

use std::time::Instant;

use jaguar_cpu::Cpu;
use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_linear::cheetah::{Encoding, Layer, Secret, ServerLayer, Windows};
use jaguar_linear::fregata::matrix::{self, Tilings};
use jaguar_ring::prg::Prg;

const REPEATS: usize = 9;

/// Products at a time: the system's clock of a thread may be some milliseconds behind.
const PRODUCTS: usize = 30;
const SHARE_BITS: u32 = 37;
const WEIGHT_BITS: u32 = 12;

/// A layer at both parties.
trait Case {
    /// Milliseconds of all steps of a product.
    fn run(&mut self) -> f64;

    /// Ciphertexts up, products, responses, bytes up and down, once.
    fn counts(&self) -> [usize; 5];
}

struct Both<E> {
    server: ServerLayer<E>,
    secret: Secret,
    key: jaguar_he::rns::lanes::PublicKey,
    /// The columns come one after the other, each a layer of its own: how often.
    times: usize,
}

impl<E: Encoding> Both<E> {
    fn new(layer: Layer<E>, weights: &Weights, times: usize) -> Self {
        let mut secret = Secret::fresh(Cpu::detect(), &layer);
        let key = secret.key().prepare(Cpu::detect(), &layer);
        Self { server: ServerLayer::new(Cpu::detect(), layer, weights), secret, key, times }
    }
}

impl<E: Encoding> Case for Both<E> {
    fn run(&mut self) -> f64 {
        let layer = self.server.layer();
        let x = vec![12345; layer.layout().inputs()];
        let start = seconds();
        for _ in 0..PRODUCTS * self.times {
            let upload = self.secret.prepare(layer).encrypt(layer, &x);
            let prepared = self.server.prepare(&mut Prg::from_os());
            let (response, _) = self.server.evaluate(prepared, &self.key, &upload, &vec![0; x.len()]);
            self.secret.decrypt(layer, &response);
        }
        (seconds() - start) * 1e3 / PRODUCTS as f64
    }

    fn counts(&self) -> [usize; 5] {
        let (layer, l) = (self.server.layer(), self.server.layer().layout());
        [l.ciphertexts(), l.products(), l.responses(), layer.upload_bytes(), layer.response_bytes()]
            .map(|count| count * self.times)
    }
}

/// What this thread has computed for, where the system tells; else what has passed.
fn seconds() -> f64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| START.elapsed().as_secs_f64(), |n| n * 1e-9)
}

fn main() {
    // All on one thread, whose time it is.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    pool.install(compare);
}

fn compare() {
    println!(
        "{:>14}  {:28} {:>5} {:>8} {:>5} {:>9} {:>9} {:>8} {:>6}",
        "m, n, k", "by", "up", "products", "down", "KiB up", "KiB down", "ms", "times"
    );
    for (m, n, k) in [(64, 32, 32), (16, 64, 64), (32, 32, 128)] {
        let spec = Linear { pads: [0; 4], ..Linear::same(m, 1, 12) };
        let weights = Weights {
            weights: (0..m * n).map(|i| (i * 7919 % 4000) as i16 - 2000).collect(),
            exponents: Vec::new(),
            bias: Bias::PerChannel(vec![0; m]),
        };
        let shape: Shape = [n, 1, k];
        let widths = (SHARE_BITS, WEIGHT_BITS);
        let hme = |tilings| matrix::layer(&spec, shape, widths, 4.0, tilings).expect("a layer");
        // As the paper counts Cheetah: a product with a vector for each column.
        let column =
            |shape| Layer::new(&spec, shape, SHARE_BITS, WEIGHT_BITS, Windows::FewestBytes).expect("a layer");
        let mut cases: Vec<(&str, Box<dyn Case>)> = vec![
            ("Cheetah, column by column", Box::new(Both::new(column([n, 1, 1]), &weights, k))),
            ("Cheetah, as a convolution", Box::new(Both::new(column(shape), &weights, 1))),
            ("HME, the paper's tiling", Box::new(Both::new(hme(Tilings::Paper), &weights, 1))),
            ("HME, the cheapest tiling", Box::new(Both::new(hme(Tilings::Cheapest), &weights, 1))),
        ];
        let mut times = vec![Vec::new(); cases.len()];
        for _ in 0..REPEATS {
            cases.iter_mut().zip(&mut times).for_each(|((_, case), times)| times.push(case.run()));
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let times: Vec<f64> = times.iter_mut().map(median).collect();
        for ((name, case), time) in cases.iter().zip(&times) {
            let [up, products, down, bytes_up, bytes_down] = case.counts();
            println!(
                "{:>14}  {name:28} {up:>5} {products:>8} {down:>5} {:>9.1} {:>9.1} {time:>8.2} {:>6.1}",
                format!("{m}, {n}, {k}"),
                bytes_up as f64 / 1024.0,
                bytes_down as f64 / 1024.0,
                times[0] / time
            );
        }
    }
}
