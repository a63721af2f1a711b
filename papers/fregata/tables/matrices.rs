//! The paper's matrix products (Table IV) by its homomorphic matrix product, in its own tiling and in the cheapest,
//! beside Cheetah's: ciphertexts, bytes, and milliseconds of both parties' work on one core, by turns, medians.

use anyhow::{Result, anyhow};
use jaguar_cheetah::{Encoding, Layer, Secret, ServerLayer, Windows};
use jaguar_fregata::matrix::{self, Tilings};
use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;
use serde::Serialize;

use crate::statistics::{median, timed_busy};

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
    key: jaguar_ring::he::rns::lanes::PublicKey,
    /// The columns come one after the other, each a layer of its own: how often.
    times: usize,
}

impl<E: Encoding> Both<E> {
    fn new(cpu: Cpu, layer: Layer<E>, weights: &Weights, times: usize) -> Self {
        let mut secret = Secret::fresh(cpu, &layer);
        let key = secret.key().prepare(cpu, &layer);
        Self { server: ServerLayer::new(cpu, layer, weights), secret, key, times }
    }
}

impl<E: Encoding> Case for Both<E> {
    fn run(&mut self) -> f64 {
        let layer = self.server.layer();
        let x = vec![12345; layer.layout().inputs()];
        let all = || {
            for _ in 0..self.times {
                let upload = self.secret.prepare(layer).encrypt(layer, &x);
                let prepared = self.server.prepare(&mut Prg::from_os());
                let (response, _) = self.server.evaluate(prepared, &self.key, &upload, &vec![0; x.len()]);
                self.secret.decrypt(layer, &response);
            }
        };
        timed_busy(all).1
    }

    fn counts(&self) -> [usize; 5] {
        let (layer, l) = (self.server.layer(), self.server.layer().layout());
        [l.ciphertexts(), l.products(), l.responses(), layer.upload_bytes(), layer.response_bytes()]
            .map(|count| count * self.times)
    }
}

/// One product in one way.
#[derive(Clone, Serialize)]
pub struct Row {
    /// m, n, k: an m x n matrix of weights times an n x k matrix.
    pub product: [usize; 3],
    pub by: &'static str,
    /// Ciphertexts from the client.
    pub up: usize,
    pub products: usize,
    /// Responses.
    pub down: usize,
    pub bytes_up: usize,
    pub bytes_down: usize,
    pub ms: f64,
}

/// What other rows are compared with: a product with a vector for each column, as the paper counts Cheetah.
pub const COLUMN_BY_COLUMN: &str = "Cheetah, column by column";
/// The paper's own tiling.
pub const PAPER_TILING: &str = "HME, the paper's tiling";
/// The planner's.
pub const CHEAPEST_TILING: &str = "HME, the cheapest tiling";

/// m, n, k of Table IV.
pub const PRODUCTS: [[usize; 3]; 3] = [[64, 32, 32], [16, 64, 64], [32, 32, 128]];

/// Measures all of them on one thread.
///
/// # Errors
/// When a layer does not fit, or no thread can be started.
pub fn measure(cpu: Cpu, repeats: usize) -> Result<Vec<Row>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let rows = PRODUCTS.map(|product| pool.install(|| one(cpu, product, repeats)));
    Ok(rows.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn one(cpu: Cpu, product: [usize; 3], repeats: usize) -> Result<Vec<Row>> {
    let [m, n, k] = product;
    let spec = Linear { pads: [0; 4], ..Linear::same(m, 1, 12) };
    let weights = Weights {
        weights: (0..m * n).map(|i| (i * 7919 % 4000) as i16 - 2000).collect(),
        exponents: Vec::new(),
        bias: Bias::PerChannel(vec![0; m]),
    };
    let shape: Shape = [n, 1, k];
    let hme = |tilings| {
        let layer = matrix::layer(&spec, shape, (SHARE_BITS, WEIGHT_BITS), 4.0, tilings);
        layer.map_err(|e| anyhow!("{m}, {n}, {k}: {e}"))
    };
    let cheetah = |shape| Layer::new(&spec, shape, SHARE_BITS, WEIGHT_BITS, Windows::FewestBytes);
    let mut cases: Vec<(&'static str, Box<dyn Case>)> = vec![
        (COLUMN_BY_COLUMN, Box::new(Both::new(cpu, cheetah([n, 1, 1])?, &weights, k))),
        ("Cheetah, as a convolution", Box::new(Both::new(cpu, cheetah(shape)?, &weights, 1))),
        (PAPER_TILING, Box::new(Both::new(cpu, hme(Tilings::Paper)?, &weights, 1))),
        (CHEAPEST_TILING, Box::new(Both::new(cpu, hme(Tilings::Cheapest)?, &weights, 1))),
    ];
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..repeats {
        cases.iter_mut().zip(&mut times).for_each(|((_, case), times)| times.push(case.run()));
    }
    let row = |((by, case), times): (&(&'static str, Box<dyn Case>), Vec<f64>)| {
        let [up, products, down, bytes_up, bytes_down] = case.counts();
        Row { product, by, up, products, down, bytes_up, bytes_down, ms: median(times.into_iter()) }
    };
    Ok(cases.iter().zip(times).map(row).collect())
}
