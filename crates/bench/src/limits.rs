//! What bounds a measurement from below: this machine's peak rates, measured in the same run, and the link.
//!
//! A phase takes at least
//!
//! ```text
//! max(computing, bytes / bandwidth) + round trips · RTT
//! ```
//!
//! since sending may overlap computing, and a value that comes back after a round trip could not have been computed before. The
//! two directions of a link work at once, so the busier one counts. Computing is the sum, over what cannot be left out of the
//! method, of amount / peak rate of one core, divided by the cores:
//!
//! | work | amount | peak, measured on |
//! |---|---|---|
//! | convolution online | multiply-adds of the plain convolution, on k-bit words | the matrix product, 4608 terms to 512 outputs of 2048 words |
//! | a half, once per model | multiply-adds of the responses' coefficients, divided by the maps that a transform runs over | the same |
//! | preparation, at the client | a product for each input ciphertext, and for each response a product that ends at the exported coefficients | products of degree 2048, the secret prepared; of responses, 49 coefficients, as most have |
//! | preparation, at the server | for each response the transform of u, and a product as the client's | the same |
//! | nonlinear, before the input | COTs made by either side; two pads a COT where it is sent, one where it is received | COTs in large batches; the hash on data in the cache |
//! | nonlinear, online | what was prepared is read once | a sum over 64 MiB |
//!
//! Packing, random streams, additions, memory traffic of the linear layers and everything that waits are not in it: they are part of
//! the distance.

use std::hint::black_box;

use anyhow::{Result, anyhow};
use jaguar_linear::layout::Layout;
use jaguar_mpc::Cost;
use jaguar_ot::{Block, CotSource, Cots, Drawn, Hash, Instances, Role, Width};
use jaguar_profile::Imitated;
use jaguar_profile::busy::alone;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::product::prime::PrimeRing;
use jaguar_ring::{Kernel, LimbPlanes, Multiplier, PackedWeights, Prg, Term, sample, spa_gemm};
use jaguar_wire::{Channel, memory_pair};
use serde::{Deserialize, Serialize};

use super::statistics::{busy_seconds, least_seconds};

/// What one core does at best.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Peaks {
    /// Words of 48 bits with weights of 14.
    pub multiply_adds_per_second: f64,
    /// Of degree [`RING_DIM`], 48 bits, one side prepared.
    pub ring_product_seconds: f64,
    /// A response in preparation: the client's product and the server's, at [`EXPORTED`] coefficients.
    pub client_response_seconds: f64,
    pub server_response_seconds: f64,
    pub cot_sent_seconds: f64,
    pub cot_received_seconds: f64,
    /// A block of 16 bytes.
    pub hash_seconds: f64,
    pub bytes_read_per_second: f64,
}

const RING_DIM: usize = 2048;
/// Coefficients of a response that are exported: a map of 7 × 7.
const EXPORTED: usize = 49;
const WORD_BITS: u32 = 48;
const WEIGHT_BITS: u32 = 14;
const REPEATS: usize = 5;

impl Peaks {
    /// Measures linear layers on the kernel for `cpu`, and the rest, for about two seconds, all of it on one thread:
    /// what takes long by the time that it had a core, the rest by the best of several runs, so that other load spoils
    /// it less.
    ///
    /// # Errors
    /// When COTs cannot be made.
    pub fn measure(cpu: Cpu) -> Result<Self> {
        let kernel = Kernel::of(cpu);
        let [cot_sent_seconds, cot_received_seconds] = cots()?;
        Ok(alone(|| {
            let [client_response_seconds, server_response_seconds] = responses(kernel);
            Self {
                multiply_adds_per_second: multiply_adds(kernel),
                ring_product_seconds: ring_product(kernel),
                client_response_seconds,
                server_response_seconds,
                cot_sent_seconds,
                cot_received_seconds,
                hash_seconds: hash(),
                bytes_read_per_second: reading(),
            }
        })?)
    }

    /// One line for people.
    pub fn line(&self) -> String {
        format!(
            "peak of a core: {:.1} G multiply-adds/s, ring product {:.1} µs, response {:.1} + {:.1} µs, COTs {:.0} M/s sent and {:.0} M/s received, hash {:.2} ns, reads {:.1} GB/s",
            self.multiply_adds_per_second / 1e9,
            self.ring_product_seconds * 1e6,
            self.client_response_seconds * 1e6,
            self.server_response_seconds * 1e6,
            1e-6 / self.cot_sent_seconds,
            1e-6 / self.cot_received_seconds,
            self.hash_seconds * 1e9,
            self.bytes_read_per_second / 1e9
        )
    }

    /// The products of preparation: of the client and of the server.
    pub fn preparing(&self, layout: &Layout) -> [f64; 2] {
        self.products(layout.ring_dim(), layout.ciphertexts(), layout.responses())
    }

    /// The same of so many ciphertexts and responses in a ring of dimension N.
    pub fn products(&self, ring_dim: usize, ciphertexts: usize, responses: usize) -> [f64; 2] {
        let scale = ring_dim as f64 / RING_DIM as f64;
        let (inputs, responses) = (ciphertexts as f64, responses as f64);
        let client = inputs * self.ring_product_seconds + responses * self.client_response_seconds;
        [scale * client, scale * responses * self.server_response_seconds]
    }

    /// The a half, once per model.
    pub fn a_half(&self, layout: &Layout) -> f64 {
        let transformed = if layout.transforms() { layout.maps_per_ciphertext() } else { 1 };
        let terms = layout.responses() * layout.terms_per_output() / transformed;
        (terms * layout.ring_dim()) as f64 / self.multiply_adds_per_second
    }

    /// The plain convolution on whole words.
    pub fn online(&self, multiply_adds: usize) -> f64 {
        multiply_adds as f64 / self.multiply_adds_per_second
    }

    /// COTs and pads before the input: of the client and of the server.
    pub fn nonlinear_preparing(&self, cost: &Cost) -> [f64; 2] {
        // A vector takes as much to make as a bit, and 16 hashes of its sender instead of two.
        let seconds = |drawn: Drawn, making: f64, hashes: [f64; 2]| {
            let hashes = drawn.bits as f64 * hashes[0] + drawn.vectors as f64 * hashes[1];
            drawn.total() as f64 * making + hashes * self.hash_seconds
        };
        let sent = |drawn| seconds(drawn, self.cot_sent_seconds, [2.0, 16.0]);
        let received = |drawn| seconds(drawn, self.cot_received_seconds, [1.0, 1.0]);
        let (client, server) = (cost.from_client(), cost.from_server());
        [sent(client) + received(server), sent(server) + received(client)]
    }

    /// Reading what was prepared: of the client and of the server.
    pub fn nonlinear_online(&self, cost: &Cost) -> [f64; 2] {
        [cost.client_memory, cost.server_memory].map(|bytes| bytes as f64 / self.bytes_read_per_second)
    }
}

/// The least time of a phase, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Limit {
    pub computing: f64,
    /// Of the busier direction; zero without a link that is imitated.
    pub link: f64,
    pub round_trips: f64,
}

impl Limit {
    pub fn new(computing: f64, shape: Option<Imitated>, up: u64, down: u64, rounds: u64) -> Self {
        let link = shape.map(Imitated::link);
        Self {
            computing,
            link: link.map_or(0.0, |link| up.max(down) as f64 / link.bytes_per_second),
            round_trips: link.map_or(0.0, |link| rounds as f64 * 2.0 * link.one_way.as_secs_f64()),
        }
    }

    pub fn seconds(&self) -> f64 {
        self.computing.max(self.link) + self.round_trips
    }

    /// Which part is the largest.
    pub fn bound(&self) -> &'static str {
        if self.round_trips > self.computing.max(self.link) {
            "round trips"
        } else if self.link > self.computing {
            "bytes"
        } else {
            "computing"
        }
    }
}

fn multiply_adds(kernel: Kernel) -> f64 {
    const TERMS: usize = 4608;
    const OUTS: usize = 512;
    const PER_ROW: usize = 9;
    let mut prg = Prg::new([1; 32]);
    let row_len = RING_DIM + 128;
    let mut planes = LimbPlanes::new(kernel, WORD_BITS, TERMS / PER_ROW, row_len);
    let mut words = vec![0; row_len];
    for row in 0..TERMS / PER_ROW {
        prg.fill_words(&mut words, WORD_BITS);
        planes.set_row(row, &words);
    }
    let terms: Vec<Term> =
        (0..TERMS).map(|t| Term { row: (t / PER_ROW) as u32, offset: (t % PER_ROW * 11) as u32 }).collect();
    let most = (1i16 << (WEIGHT_BITS - 1)) - 1;
    let weight = |_| (prg.next_u64() % (2 * most as u64 + 1)) as i16 - most;
    let weights: Vec<i16> = (0..OUTS * TERMS).map(weight).collect();
    let packed = PackedWeights::new(OUTS, TERMS, WEIGHT_BITS, &weights);
    let mut out = vec![0; OUTS * RING_DIM];
    let mut run = || spa_gemm(&planes, &terms, &packed, RING_DIM, black_box(&mut out), RING_DIM);
    (OUTS * TERMS * RING_DIM) as f64 / busy_seconds(REPEATS, &mut run)
}

fn ring_product(kernel: Kernel) -> f64 {
    let mut prg = Prg::new([2; 32]);
    let (mut x, mut s, mut out) = (vec![0; RING_DIM], vec![0i8; RING_DIM], vec![0; RING_DIM]);
    prg.fill_words(&mut x, WORD_BITS);
    sample::ternary(kernel, &mut prg, &mut s);
    let multiplier = Multiplier::new(kernel, RING_DIM);
    let small = multiplier.prepare_small(&s);
    least_seconds(20 * REPEATS, 100, || multiplier.multiply_into(&x, WORD_BITS, &small, black_box(&mut out)))
}

/// Of a client and a server.
fn responses(kernel: Kernel) -> [f64; 2] {
    /// Sizes of the primes: a hint's, for activations of 16 bits, and p0's.
    const HINT: u32 = 26;
    const KEY: u32 = 30;
    let mut prg = Prg::new([3; 32]);
    let (mut words, mut s) = (vec![0; RING_DIM], vec![0i8; RING_DIM]);
    prg.fill_words(&mut words, WORD_BITS);
    sample::ternary(kernel, &mut prg, &mut s);
    let mut out = [0; EXPORTED];
    let hints = PrimeRing::new(kernel, RING_DIM, HINT);
    let (mut secret, mut response) = (hints.small(), hints.residues());
    hints.small_into(&s, &mut secret);
    hints.round_into(&words, WORD_BITS, &mut response);
    let client = least_seconds(100 * REPEATS, 20, || {
        hints.multiply_received_into(black_box(&mut response), &secret, WORD_BITS, 1, black_box(&mut out));
    });
    let keys = PrimeRing::new(kernel, RING_DIM, KEY);
    let p0 = keys.round_at_random(&words, WORD_BITS, &mut prg);
    let (mut u, mut scratch) = (keys.small(), keys.residues());
    let server = least_seconds(100 * REPEATS, 20, || {
        keys.small_into(black_box(&s), &mut u);
        keys.multiply_into(&p0, &u, &mut scratch, WORD_BITS, 1, black_box(&mut out));
    });
    [client, server]
}

fn hash() -> f64 {
    const BATCH: usize = 512;
    let hash = Hash::new(Block(7), Role::Client, Width::Bit);
    let (x, mut pads) = (vec![Block(1); BATCH], vec![Block::ZERO; 2 * BATCH]);
    let shifts = [Block::ZERO, Block(3)];
    least_seconds(20 * REPEATS, 100, || hash.pads(0, &shifts, &x, black_box(&mut pads))) / (2 * BATCH) as f64
}

fn reading() -> f64 {
    let words = vec![1u64; 8 << 20];
    let seconds = least_seconds(10 * REPEATS, 1, || {
        black_box(black_box(&words).iter().fold(0, |sum, word| sum ^ word));
    });
    (words.len() * size_of::<u64>()) as f64 / seconds
}

/// Seconds a COT, sent and received: each role on a thread of its own, bins included.
fn cots() -> Result<[f64; 2]> {
    let (a, b) = memory_pair();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| alone(|| one_role(b, Role::Server)));
        let client = alone(|| one_role(a, Role::Client))??;
        let server = server.join().map_err(|_| anyhow!("making COTs panicked"))???;
        Ok([client, server])
    })
}

fn one_role(mut chan: Channel, role: Role) -> Result<f64> {
    const CHUNK: usize = 1 << 16;
    const CHUNKS: usize = 32;
    let mut cots = Cots::setup(&mut chan, role, Instances::default())?;
    let mut blocks = vec![Block::ZERO; CHUNK];
    let mut failed = Ok(());
    let seconds = busy_seconds(REPEATS, || {
        for _ in 0..CHUNKS {
            let done = match role {
                Role::Client => cots.send(&mut chan, Width::Bit, &mut blocks),
                Role::Server => cots.receive(&mut chan, Width::Bit, &mut blocks),
            };
            if failed.is_ok() {
                failed = done;
            }
        }
    });
    failed?;
    chan.flush()?;
    Ok(seconds / (CHUNK * CHUNKS) as f64)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Round figures of no machine.
    pub const PEAKS: Peaks = Peaks {
        multiply_adds_per_second: 2048e6,
        ring_product_seconds: 1e-5,
        client_response_seconds: 1e-6,
        server_response_seconds: 2e-6,
        cot_sent_seconds: 3e-8,
        cot_received_seconds: 2e-8,
        hash_seconds: 1e-9,
        bytes_read_per_second: 1e10,
    };

    #[test]
    fn what_is_sent_overlaps_what_is_computed_and_round_trips_do_not() {
        let free = Limit::new(2.0, None, 1 << 40, 1 << 40, 99);
        assert_eq!((free.seconds(), free.bound()), (2.0, "computing"));
        let lan = Limit::new(2.0, Some(Imitated::Lan), 384_000_000, 1_152_000_000, 10);
        assert!((lan.seconds() - 3.003).abs() < 1e-9);
        assert_eq!(lan.bound(), "bytes");
        assert_eq!(Limit::new(2.0, Some(Imitated::Wan), 0, 0, 101).bound(), "round trips");
    }

    #[test]
    fn a_layer_costs_products_and_multiply_adds() {
        let spec = |kernel| jaguar_graph::network::Linear::same(10, kernel, 12);
        // 30 × 30 outputs, two maps a ciphertext.
        let many = Layout::new(2048, &spec(3), [4, 30, 30]).unwrap();
        let [client, server] = PEAKS.preparing(&many);
        assert!((server - 10.0 * 2e-6).abs() < 1e-12);
        assert!((client - 2.0 * 1e-5 - 10.0 * 1e-6).abs() < 1e-12);
        assert!((PEAKS.a_half(&many) - 10.0 * 36.0 * 2048.0 / 2048e6).abs() < 1e-12);
        // Transformed over 2048 maps: a multiply-add per weight.
        let one = Layout::new(2048, &spec(1), [2048, 1, 1]).unwrap();
        assert!((PEAKS.a_half(&one) - 20_480.0 / 2048e6).abs() < 1e-12);
        // With groups nothing is transformed, however many maps there are.
        let depthwise = jaguar_graph::network::Linear { groups: 10, ..spec(3) };
        let depthwise = Layout::new(2048, &depthwise, [10, 14, 14]).unwrap();
        assert!((PEAKS.a_half(&depthwise) - 10.0 * 9.0 * 2048.0 / 2048e6).abs() < 1e-12);
    }

    #[test]
    fn cots_cost_by_role() {
        let cost =
            Cost { bits_from_client: 1, bits_from_server: 10, vectors_from_server: 4, ..Cost::default() };
        let [client, server] = PEAKS.nonlinear_preparing(&cost);
        assert!((client - (32e-9 + 14.0 * 21e-9)).abs() < 1e-15);
        assert!((server - (21e-9 + 10.0 * 32e-9 + 4.0 * 46e-9)).abs() < 1e-15);
    }
}
