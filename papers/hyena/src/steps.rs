//! The steps of a layer one by one, outside a session: for benchmarks.
//!
//! A large layer takes minutes and gigabytes, but its ciphertexts are all alike, and so are its diagonals. A benchmark
//! times a few of each, and counts all of them ([`Counts`]). What it times are the functions that a session runs. A
//! [`Bench`] has both parties' secrets, so that it can check what it computed.
//!
//! Figure 4 of the paper leaves out one means after the other. What a session never does is here, and only here:
//! rotations that share nothing, sums that are reduced after every product, a form without its searched parameters
//! ([`Planned::unsearched`]), and the paper's own parameters, which have far less than 128 bits of security
//! ([`Planned::insecure_published`]).

use std::sync::Arc;

use jaguar_graph::network::Weights;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::{ParameterError, RnsParameters, insecure_published_hyena, largest_primes};
use jaguar_ring::he::rns::{Ciphertext, GaloisKey, JointKeys, Poly, Ring, SecretKey, Values};
use jaguar_ring::prg::Prg;
use jaguar_wire::pack;

use super::client::{TOGETHER, decrypt, encode};
use super::interleaved::{Interleaved, Sum};
use super::layer::HyenaLayers;
use super::packing::Packing;
use super::places::Places;
use super::plaintexts::row_pattern;
use super::search::{self, Chosen, Fitted, Found, Joint, MOST_FAILURES, Wanted};
pub use super::server::ROTATED_TOGETHER;
use super::server::{Cover, Fixed, Keys, ServerLayer, Terms, sums_together};
use super::{Form, Layer, PlainPrime, Scaling, response_ring};

/// Layers that were planned together: one ring, one set of keys.
pub struct Planned {
    layers: Arc<HyenaLayers>,
    /// How many layers.
    count: usize,
    /// Into how many parts a plaintext of weights is cut, each with a ciphertext of its own.
    pieces: usize,
}

/// Bytes of layers that were planned together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Of keys, once a session.
    pub keys: usize,
    /// Of weights as numbers, in the server's memory.
    pub numbers: usize,
    /// Of weights or patterns as polynomials, in the server's memory.
    pub polynomials: usize,
}

/// How often a query takes each step of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Ciphertexts of the input.
    pub ciphertexts: usize,
    /// Sums, one for each diagonal of each output block; of interleaved channels as many of the longest ones as have all products.
    pub sums: usize,
    /// How many sums are turned.
    pub turns: usize,
    /// Ciphertexts of the output.
    pub responses: usize,
}

/// Bits of an activation and of a weight in [`Planned::insecure_published`]: the paper's weights are "typically less
/// than 8 bits".
const PUBLISHED_BITS: u32 = 8;

/// Bits of the paper's p and q.
const PUBLISHED_PLAIN_BITS: u32 = 19;
const PUBLISHED_MODULUS_BITS: u32 = 60;

impl Planned {
    /// Plans layers as a session does.
    ///
    /// # Errors
    /// Which layer no ring on record can run, and why.
    pub fn new(wanted: &[Wanted<'_>]) -> Result<Self, (usize, String)> {
        Self::found(wanted, search::search(wanted)?, 1)
    }

    fn found(wanted: &[Wanted<'_>], found: Found, pieces: usize) -> Result<Self, (usize, String)> {
        let nodes: Vec<usize> = (0..wanted.len()).collect();
        let layers = Arc::new(HyenaLayers::new(&nodes, wanted, found)?);
        Ok(Self { layers, count: wanted.len(), pieces })
    }

    /// `searched`, a layer by Walsh and Hadamard, without a search (Figure 4, c): channels as there, the ring and the digits of
    /// `baseline`, and k = 1. If that makes too much noise, smaller digits, then the ring of `searched`.
    ///
    /// # Errors
    /// When neither ring holds it.
    pub fn unsearched(wanted: &Wanted<'_>, baseline: &Self, searched: &Self) -> Result<Self, String> {
        let mut fitted = searched.layer(0).fitted.clone();
        fitted.scaling = Scaling { k: 1, product: row_pattern(fitted.plain.p).expect("it was planned") };
        let secure = searched.ring().params.is_secure();
        let wanted = if secure { *wanted } else { published(wanted) };
        let rings = [baseline.ring(), searched.ring()].into_iter().flat_map(|ring| {
            let bits = (2..=ring.digit_bits).rev();
            bits.map(|digit_bits| Chosen { digit_bits, ..ring.clone() })
        });
        let fits = |ring: &Chosen| {
            ring.params.ring_dim() == fitted.packing.slots()
                && !ring.params.primes().contains(&fitted.plain.p)
                && if secure { fitted.failure(ring) <= MOST_FAILURES } else { decrypts(&fitted, ring) }
        };
        let ring = rings.into_iter().find(fits).ok_or("no digits are small enough")?;
        let found = Found { ring, layers: vec![fitted], weighed: Vec::new() };
        Self::found(&[wanted], found, 1).map_err(|(_, why)| why)
    }

    /// **Insecure**: one layer in the paper's own parameters. N is `n`; q is a prime of 60 bits; p = 307201 for N = 2048,
    /// another prime of 19 bits elsewhere. Channels are as many as fit, digits as large as the noise admits. The
    /// conventional form cuts plaintexts into two parts and takes a ciphertext for each (the paper's section 4); where
    /// a ciphertext has one channel, they are constants, and stay whole (as in the last rows of its Table 2).
    ///
    /// It is for the steps alone, and [`Bench::respond`] is not one of them: with such parameters a share of a result is
    /// often wrong.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn insecure_published(n: usize, wanted: &Wanted<'_>) -> Result<Self, String> {
        let failed = |e: ParameterError| e.to_string();
        let (mut params, mut p) = insecure_published_hyena();
        if n != params.ring_dim() {
            let primes = largest_primes(n, PUBLISHED_MODULUS_BITS, 1).map_err(failed)?;
            params = RnsParameters::insecure(n, &primes).map_err(failed)?;
            p = largest_primes(n, PUBLISHED_PLAIN_BITS, 1).map_err(failed)?[0];
        }
        let wanted = published(wanted);
        let h = row_pattern(p).ok_or("p is not 1 modulo 8")?;
        let mut fitted = Fitted::all(n, &wanted).pop().ok_or("its places do not fit the slots")?;
        fitted.plain = PlainPrime { p, multiple: 1 };
        let rows = wanted.form == Form::WalshHadamard && fitted.packing.channels() == 2;
        fitted.scaling = if rows { Scaling::quietest(h, p) } else { Scaling { k: 1, product: h } };
        let pieces = match (wanted.form, fitted.packing.channels()) {
            (Form::Conventional, 2..) => 2,
            (Form::Conventional, _)
            | (Form::Interleaved | Form::Padded | Form::WalshHadamard | Form::Blocks, _) => 1,
        };
        let ring = |digit_bits| Chosen { params: params.clone(), kept: 1, digit_bits, joint: Joint::ALONE };
        // What counts of a plaintext is the sum of squares of its parts.
        let mut narrow = fitted.clone();
        if pieces > 1 {
            narrow.plain.p = (pieces as f64 * 4f64.powi(piece_bits(p, pieces) as i32)).sqrt() as u64;
        }
        let bits = (2..=PUBLISHED_MODULUS_BITS).rev().find(|&bits| {
            let ring = ring(bits);
            narrow.noise(ring.digits(), bits).bits() < capacity(&ring, p)
        });
        let ring = ring(bits.ok_or("no digits are small enough")?);
        let found = Found { ring, layers: vec![fitted], weighed: Vec::new() };
        Self::found(&[wanted], found, pieces).map_err(|(_, why)| why)
    }

    /// The ring of all layers.
    pub fn ring(&self) -> &Chosen {
        &self.layers.ring
    }

    /// A layer, by its place in what was planned.
    pub fn layer(&self, index: usize) -> &Layer {
        self.layers.of(index)
    }

    /// What the layers take together. (Where weights are polynomials, the numbers themselves are of no use.)
    pub fn bytes(&self) -> Bytes {
        let (_, polynomials) = self.layers.model_bytes();
        let keys = self.ring().key_bytes(self.layers.elements.len());
        let numbers = (0..self.count).filter(|&index| self.layer(index).form() != Form::Conventional);
        let numbers = numbers.map(|index| self.weight_bytes(index)).sum();
        Bytes { keys, numbers, polynomials: polynomials * self.pieces }
    }

    /// Bytes that the server stores of one layer's weights, without patterns, which layers share.
    pub fn weight_bytes(&self, index: usize) -> usize {
        let layer = self.layer(index);
        match layer.form() {
            Form::Conventional => layer.plaintexts() * self.pieces * self.poly_bytes(),
            _ => layer.spec().weights_len(layer.in_shape()[0]).unwrap_or(0) * size_of::<i16>(),
        }
    }

    /// Bytes of a polynomial in memory.
    fn poly_bytes(&self) -> usize {
        self.ring().params.ring_dim() * self.ring().params.primes().len() * size_of::<u64>()
    }

    /// Bytes of a layer's query, up and down.
    pub fn query(&self, index: usize) -> (usize, usize) {
        let (up, down) = self.layer(index).fitted.bytes(self.ring());
        (up * self.pieces, down)
    }

    /// How often a query of a layer takes each step.
    pub fn counts(&self, index: usize) -> Counts {
        let packing = match self.layer(index).packing() {
            Places::Channels(packing) => packing,
            Places::Interleaved(packing) => {
                let (work, groups) = (packing.work(), packing.groups());
                return Counts {
                    ciphertexts: packing.ciphertexts(),
                    sums: groups * work.products.div_ceil(work.longest),
                    turns: groups * work.moved,
                    responses: packing.responses(),
                };
            }
            Places::Blocks(_) => unreachable!("layers of blocks have tables of their own"),
        };
        let diagonals = (0..packing.out_blocks()).map(|block| packing.diagonals(block));
        let (mut sums, mut turns) = (0, 0);
        for diagonals in diagonals {
            sums += diagonals.len();
            turns += diagonals.iter().filter(|(d, _)| *d != 0).count();
        }
        Counts {
            ciphertexts: packing.ciphertexts() * self.pieces,
            sums: packing.groups() * sums,
            turns: packing.groups() * turns,
            responses: packing.responses(),
        }
    }

    /// A layer with what its steps need: at most `inputs` of its ciphertexts, and up to `samples` groups of diagonals,
    /// spread over its output blocks.
    pub fn bench(&self, cpu: Cpu, index: usize, weights: &Weights, inputs: usize, samples: usize) -> Bench {
        Bench::new(self, cpu, index, weights, inputs, samples)
    }
}

/// log2 of the largest noise that decryption takes away.
fn capacity(ring: &Chosen, p: u64) -> f64 {
    let q: f64 = ring.params.primes().iter().map(|&prime| (prime as f64).log2()).sum();
    q - (p as f64).log2() - 1.0
}

/// Whether a layer in a ring can be decrypted.
fn decrypts(fitted: &Fitted, ring: &Chosen) -> bool {
    fitted.noise(ring.digits(), ring.digit_bits).bits() < capacity(ring, fitted.plain.p)
}

/// A layer with the widths of [`Planned::insecure_published`].
fn published<'a>(wanted: &Wanted<'a>) -> Wanted<'a> {
    Wanted { activation_bits: PUBLISHED_BITS, weight_bits: PUBLISHED_BITS, ..*wanted }
}

/// Bits of a part of a plaintext modulo p.
fn piece_bits(p: u64, pieces: usize) -> u32 {
    (u64::BITS - p.leading_zeros()).div_ceil(pieces as u32)
}

/// Ciphertexts by input block, rotated by every tap.
pub type Rotated = Vec<Vec<Ciphertext<Values>>>;

/// Diagonals that were picked: their sums are made together.
enum Sample {
    Channels {
        block: usize,
        group: Vec<Terms>,
        /// The weights of the conventional form, by piece, then diagonal, input block and tap.
        plaintexts: Vec<Vec<Poly<Values>>>,
    },
    Interleaved(Vec<Sum>),
}

impl Sample {
    /// Of a layer of interleaved channels: the longest sums of its first output blocks.
    fn interleaved(packing: &Interleaved, samples: usize) -> Vec<Self> {
        let blocks: Vec<usize> = (0..packing.out_blocks()).take(TOGETHER).collect();
        let mut sums = sums_together(packing, &blocks, 1);
        sums.sort_by_key(|sums| std::cmp::Reverse((sums[0].terms.len(), sums.len())));
        sums.into_iter().take(samples).map(Self::Interleaved).collect()
    }

    /// Of a layer in parts: groups of diagonals, spread over its output blocks.
    fn channels(server: &ServerLayer, packing: &Packing, samples: usize) -> Vec<Self> {
        let picked = samples.min(packing.out_blocks()).max(1);
        let mut chosen: Vec<(usize, Vec<Terms>)> = Vec::new();
        for sample in 0..samples {
            // Blocks evenly; of a block one group after the other.
            let block = sample % picked * packing.out_blocks() / picked;
            let terms = server.terms(block);
            let groups = server.groups(&terms);
            let group = groups[sample / picked % groups.len()];
            let most = if server.layer.form() == Form::Conventional { PLAIN_GROUP } else { group.len() };
            let known = |other: &(usize, Vec<Terms>)| other.0 == block && other.1[0].d == group[0].d;
            if !chosen.iter().any(known) {
                chosen.push((block, group.iter().take(most).cloned().collect()));
            }
        }
        let sample = |(block, group)| Self::Channels { block, group, plaintexts: Vec::new() };
        chosen.into_iter().map(sample).collect()
    }

    /// By sum, the automorphism that moves it, if it is moved.
    fn moved(&self, layer: &Layer) -> Vec<Option<usize>> {
        match (self, layer.packing()) {
            (Self::Interleaved(sums), Places::Interleaved(packing)) => {
                sums.iter().map(|sum| packing.giant_element(sum.giant)).collect()
            }
            (Self::Channels { group, .. }, Places::Channels(packing)) => {
                group.iter().map(|terms| (terms.d != 0).then(|| packing.diagonal_element(terms.d))).collect()
            }
            _ => unreachable!("samples are those of their layer"),
        }
    }
}

/// Diagonals of the conventional form are as many as this: each has plaintexts of its own, so they share nothing.
const PLAIN_GROUP: usize = 2;

/// Both ends of one layer, of which single steps are run.
pub struct Bench {
    ring: Ring,
    server: ServerLayer,
    keys: Keys,
    secrets: Vec<SecretKey>,
    prg: Prg,
    pieces: usize,
    /// The input `[C, H, W]`, all of it the client's share; the server's is zero.
    x: Vec<u64>,
    /// How many of its ciphertexts there are; the others are these again.
    inputs: usize,
    zeros: Vec<u64>,
    samples: Vec<Sample>,
}

/// A ciphertext as it travels: the seed of its a half and its b half, packed; one for each piece.
pub type Upload = Vec<([u8; 32], Vec<u8>)>;

impl Bench {
    fn new(
        planned: &Planned,
        cpu: Cpu,
        index: usize,
        weights: &Weights,
        inputs: usize,
        samples: usize,
    ) -> Self {
        let mut layer = planned.layer(index).clone();
        // Only the plaintexts of the diagonals below.
        layer.held = false;
        let layer = &layer;
        let ring = planned.layers.ring(cpu);
        let fixed = Arc::new(Fixed::new(&ring, layer));
        let server = ServerLayer::new(&ring, layer, fixed, weights);
        let mut prg = Prg::from_os();
        let (mut chosen, in_blocks, turns) = match layer.packing() {
            Places::Channels(packing) => {
                let turns =
                    packing.taps().into_iter().map(|tap| packing.tap_element(tap)).collect::<Vec<_>>();
                (Sample::channels(&server, packing, samples.max(1)), packing.in_blocks(), turns)
            }
            Places::Interleaved(packing) => {
                let turns = packing.turn_elements();
                (Sample::interleaved(packing, samples.max(1)), packing.in_blocks(), turns)
            }
            Places::Blocks(_) => unreachable!("layers of blocks have tables of their own"),
        };
        let moved = chosen.iter().flat_map(|sample| sample.moved(layer)).flatten();
        let mut elements: Vec<usize> =
            turns.into_iter().filter(|&element| element != 1).chain(moved).collect();
        elements.sort_unstable();
        elements.dedup();
        let (digits, joint) = (planned.ring().digit_bits, planned.ring().joint);
        let secrets: Vec<SecretKey> =
            (0..joint.count).map(|_| SecretKey::from_prg(&ring, &mut prg)).collect();
        let own: Vec<&SecretKey> = secrets.iter().collect();
        let wide = response_ring(&ring, planned.ring().joint_limbs());
        let joint = JointKeys::new(&wide, &own, joint.digit_bits, &mut prg);
        let rotations = elements.iter().map(|&e| GaloisKey::new(own[0], e, digits, &mut prg)).collect();
        let keys = Keys { joint, rotations };
        let p = layer.fitted.plain.p;
        let x = (0..layer.in_shape().iter().product()).map(|_| prg.next_u64() % p).collect::<Vec<u64>>();
        let zeros = vec![0; x.len()];
        let inputs = inputs.clamp(1, in_blocks);
        let pieces = planned.pieces;
        let mut bench =
            Self { ring, server, keys, secrets, prg, pieces, x, inputs, zeros, samples: Vec::new() };
        if layer.form() == Form::Conventional {
            for sample in &mut chosen {
                if let Sample::Channels { block, group, plaintexts } = sample {
                    *plaintexts = bench.plaintexts(*block, group);
                }
            }
        }
        bench.samples = chosen;
        bench
    }

    fn layer(&self) -> &Layer {
        &self.server.layer
    }

    /// How many ciphertexts of the input there are here.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many groups of diagonals were picked.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Of each diagonal of a group whether it is turned.
    pub fn are_turned(&self, sample: usize) -> Vec<bool> {
        self.samples[sample].moved(self.layer()).into_iter().map(|moved| moved.is_some()).collect()
    }

    /// The plaintexts of a group. In parts, the low bits come first.
    fn plaintexts(&self, block: usize, group: &[Terms]) -> Vec<Vec<Poly<Values>>> {
        let whole = group.iter().flat_map(|terms| self.server.encoded(&self.ring, block, terms)).collect();
        if self.pieces == 1 {
            return vec![whole];
        }
        let tools = &self.server.fixed.tools;
        let bits = piece_bits(tools.plain.value(), self.pieces);
        let part = |value: i64, piece: usize| {
            let mut rest = value;
            for _ in 0..piece {
                rest = (rest - centred_bits(rest, bits)) >> bits;
            }
            if piece + 1 == self.pieces { rest } else { centred_bits(rest, bits) }
        };
        let cut = |piece: usize| -> Vec<Poly<Values>> {
            let packing = self.layer().slots();
            let taps = packing.taps().len();
            let pairs = group.iter().flat_map(|terms| {
                terms.inputs.iter().flat_map(move |&input| (0..taps).map(move |tap| (terms.d, input, tap)))
            });
            let one = |(d, input, tap)| {
                let f = self.server.on_parts(block, d, input, tap);
                let slots = packing.on_parts(|s| tools.plain.modulus().reduce_signed(f[s]));
                let whole = tools.plain.centred(&tools.batch.encode(&slots));
                let parts: Vec<i64> = whole.iter().map(|&value| part(value, piece)).collect();
                self.ring.to_values(self.ring.from_signed(&parts))
            };
            pairs.map(one).collect()
        };
        (0..self.pieces).map(cut).collect()
    }

    /// The client's step: input block `block` of the first group of tiles, encrypted and packed.
    pub fn encrypt(&mut self, block: usize) -> Upload {
        let Self { ring, server, secrets, prg, .. } = self;
        let (layer, tools) = (&server.layer, &server.fixed.tools);
        let bits = piece_bits(tools.plain.value(), self.pieces);
        let piece = |piece: usize| {
            let mut seed = [0; 32];
            prg.fill(&mut seed);
            // Each part stands for 2^bits times the one before it.
            let factor = tools.plain.modulus().reduce(1 << (bits * piece as u32));
            let x = (piece > 0)
                .then(|| self.x.iter().map(|&x| tools.plain.modulus().mul(x, factor)).collect::<Vec<u64>>());
            let message = encode(layer, ring, tools, block, x.as_ref().unwrap_or(&self.x));
            let mut fresh = secrets[0].encrypt(ring, &ring.zero(), &mut Prg::new(seed));
            ring.add_assign(&mut fresh.b, &message);
            (fresh.seed, pack::pack(fresh.b.residues(), layer.ring.limb_bits()))
        };
        (0..self.pieces).map(piece).collect()
    }

    /// The server's step behind it, for some input blocks from 0 on: unpacked, its share added, rotated by every tap. By block, then
    /// piece. Without `hoisted` every rotation splits into digits on its own.
    pub fn rotate(&self, uploads: &[Upload], hoisted: bool) -> Vec<Rotated> {
        let (ring, keys) = (&self.ring, &self.keys);
        let mut rotated: Vec<Rotated> = uploads.iter().map(|_| Vec::new()).collect();
        for piece in 0..self.pieces {
            let inputs: Vec<Ciphertext<Values>> = (uploads.iter().enumerate())
                .map(|(block, upload)| self.server.input(ring, &upload[piece], block, &self.zeros))
                .collect();
            let turned = if hoisted {
                self.server.rotated(ring, keys, 0, inputs)
            } else {
                let turn = |ciphertext: &Ciphertext<Values>, element: usize| match element {
                    1 => ciphertext.duplicate(),
                    element => ciphertext.apply(ring, keys.of(element)),
                };
                let of = |(block, c): (usize, &Ciphertext<Values>)| {
                    self.server.turn_elements(block).into_iter().map(|element| turn(c, element)).collect()
                };
                inputs.iter().enumerate().map(of).collect()
            };
            rotated.iter_mut().zip(turned).for_each(|(pieces, turned)| pieces.push(turned));
        }
        rotated
    }

    /// The sums of a group's diagonals. `inputs` are by block, then piece and tap. Numbers are added in 128 bits and reduced
    /// once if `lazy`, and after every product otherwise.
    pub fn sums(&self, sample: usize, inputs: &[Rotated], lazy: bool) -> Vec<Ciphertext<Values>> {
        let (block, group, plaintexts) = match (&self.samples[sample], self.layer().packing()) {
            (Sample::Channels { block, group, plaintexts }, _) => (block, group, plaintexts),
            (Sample::Interleaved(sums), Places::Interleaved(packing)) => {
                let input = |input: usize, turn: usize| &inputs[input % inputs.len()][0][turn];
                return self.server.sums_of_numbers(&self.ring, packing, sums, &sums[0].terms, input);
            }
            _ => unreachable!("samples are those of their layer"),
        };
        let own = |piece: usize| -> Vec<&Ciphertext<Values>> {
            group[0].inputs.iter().flat_map(|&input| &inputs[input % inputs.len()][piece]).collect()
        };
        let (ring, server) = (&self.ring, &self.server);
        if self.layer().form() == Form::WalshHadamard && !lazy {
            let own = own(0);
            let rows = server.rows(*block, group);
            let diagonals = rows.chunks_exact(server.fixed.patterns.len() + 1);
            return diagonals.map(|rows| self.reduced(&own, rows)).collect();
        }
        let mut sums = server.sums(ring, &own(0), *block, group, plaintexts.first().map(Vec::as_slice));
        for (piece, plaintexts) in plaintexts.iter().enumerate().skip(1) {
            let own = own(piece);
            for (sum, plaintexts) in sums.iter_mut().zip(plaintexts.chunks_exact(own.len())) {
                own.iter().zip(plaintexts).for_each(|(x, w)| sum.multiply_add(ring, x, w));
            }
        }
        sums
    }

    /// A diagonal's sum by its numbers, a row for each pattern, every product reduced.
    fn reduced(&self, terms: &[&Ciphertext<Values>], rows: &[Vec<i64>]) -> Ciphertext<Values> {
        let ring = &self.ring;
        let mut total = reduced_sum(ring, terms, &rows[0]);
        total.multiply_scalar(ring, self.layer().factor() as i64);
        for (row, pattern) in rows[1..].iter().zip(&self.server.fixed.patterns) {
            total.multiply_add(ring, &reduced_sum(ring, terms, row), pattern);
        }
        total
    }

    /// The sum of diagonal `i` of a group, moved to where its outputs are.
    pub fn turn(&self, sample: usize, i: usize, sum: &Ciphertext<Values>) -> Ciphertext<Values> {
        match self.samples[sample].moved(self.layer())[i] {
            None => sum.duplicate(),
            Some(element) => sum.apply(&self.ring, self.keys.of(element)),
        }
    }

    /// How many responses share an a half: [`respond`](Self::respond) makes so many.
    pub fn together(&self) -> usize {
        self.layer().ring.joint.count.min(self.layer().packing().out_blocks())
    }

    /// The server's last step for several responses of one sum, with what it makes for it offline: what leaves, their a half first.
    pub fn respond(&mut self, sum: &Ciphertext<Values>) -> Vec<Vec<u8>> {
        let (mut seed, count) = ([0; 32], self.together());
        self.prg.fill(&mut seed);
        let Self { ring, server, keys, .. } = self;
        let small = response_ring(ring, server.layer.ring.kept);
        let cover = Cover::new(ring, &small, server, keys, count, &seed);
        let sums = (0..count).map(|_| sum.duplicate()).collect();
        server.respond(ring, &small, keys, sums, &cover)
    }

    /// The client's last step: its shares of the slots of those responses.
    pub fn decrypt(&self, response: &[Vec<u8>]) -> Vec<Vec<u64>> {
        let chosen = &self.layer().ring;
        let small = response_ring(&self.ring, chosen.kept);
        let tools = &self.server.fixed.tools;
        let shares = decrypt(&self.secrets, &small, chosen.limb_bits(), tools, response);
        shares.iter().map(|share| share.to_vec()).collect()
    }

    /// Whether diagonal `i` of a group, turned, has what it should in the slots of all outputs of its block: computed once
    /// more on slots that nobody encrypted.
    pub fn is_right(&self, sample: usize, i: usize, turned: &Ciphertext<Values>) -> bool {
        let (layer, tools) = (self.layer(), &self.server.fixed.tools);
        let m = tools.plain.modulus();
        let phase = self.secrets[0].phase(&self.ring, turned);
        let got = tools.batch.decode(&tools.plain.round(&self.ring, &phase));
        let (block, terms, packing) = match (&self.samples[sample], layer.packing()) {
            (Sample::Channels { block, group, .. }, Places::Channels(packing)) => (block, &group[i], packing),
            (Sample::Interleaved(sums), Places::Interleaved(packing)) => {
                let expected = self.expected(packing, &sums[i]);
                let mut outputs = packing.outputs_of(0, sums[i].block).into_iter();
                return outputs.all(|(slot, _)| got[slot] == expected[slot]);
            }
            _ => unreachable!("samples are those of their layer"),
        };
        let n = packing.slots();
        let mut sum = vec![0; n];
        for &input in &terms.inputs {
            let mut slots = vec![0; n];
            packing.write_inputs(0, input % self.inputs, &self.x, &mut slots);
            for (tap, by) in packing.taps().into_iter().enumerate() {
                let f = self.server.on_parts(*block, terms.d, input, tap);
                let weights = packing.on_parts(|s| m.reduce_signed(f[s]));
                for (slot, (sum, w)) in sum.iter_mut().zip(weights).enumerate() {
                    let (row, place) = (slot / (n / 2), slot % (n / 2));
                    *sum = m.add(*sum, m.mul(w, slots[row * (n / 2) + (place + by) % (n / 2)]));
                }
            }
        }
        let part = n / packing.channels();
        packing.outputs_of(0, *block).into_iter().all(|(slot, _)| {
            let from = packing.moved(slot / part, terms.d) * part + slot % part;
            got[slot] == m.mul(sum[from], m.reduce(layer.gain()))
        })
    }
}

impl Bench {
    /// What a sum of interleaved channels has in all slots, moved to its place.
    fn expected(&self, packing: &Interleaved, sum: &Sum) -> Vec<u64> {
        let (m, row, turns) = (self.server.fixed.tools.plain.modulus(), packing.slots() / 2, packing.turns());
        let mut total = vec![0; 2 * row];
        for &(input, turn) in &sum.terms {
            let mut slots = vec![0; 2 * row];
            packing.write_inputs(0, input % self.inputs, &self.x, &mut slots);
            let term = packing.term(input, turn);
            let weights: Vec<_> =
                (0..packing.dimension()).map(|slot| packing.weight(sum, &term, slot)).collect();
            let each = (weights.len() / 2).max(1);
            for (slot, total) in total.iter_mut().enumerate() {
                let (r, place) = (slot / row, slot % row);
                let Some((out, channel, tap)) = weights[(r * each + place % each) % weights.len()] else {
                    continue;
                };
                let x = slots[r * row + (place + packing.turned_by(turns[turn])) % row];
                *total = m.add(*total, m.mul(m.reduce_signed(self.server.weight(out, channel, tap)), x));
            }
        }
        let (by, swapped) = packing.moved_by(sum.giant);
        let from = |slot: usize| ((slot / row) ^ usize::from(swapped)) * row + (slot % row + by) % row;
        (0..2 * row).map(|slot| total[from(slot)]).collect()
    }
}

/// The least of all numbers that are `value` modulo 2^bits, by absolute value.
fn centred_bits(value: i64, bits: u32) -> i64 {
    let unused = i64::BITS - bits;
    value << unused >> unused
}

/// Σ of ciphertexts times numbers, each product reduced.
fn reduced_sum(ring: &Ring, terms: &[&Ciphertext<Values>], numbers: &[i64]) -> Ciphertext<Values> {
    let mut total = Ciphertext { a: ring.zero(), b: ring.zero() };
    for (term, &number) in terms.iter().zip(numbers) {
        let mut product = term.duplicate();
        product.multiply_scalar(ring, number);
        total.add_assign(ring, &product);
    }
    total
}

#[cfg(test)]
mod tests {
    use jaguar_graph::network::{Bias, Linear, Shape};

    use super::*;

    fn weights(spec: &Linear, in_shape: Shape) -> Weights {
        let count = spec.weights_len(in_shape[0]).unwrap();
        Weights {
            weights: (0..count).map(|i| (i * 7919 % 255) as i16 - 127).collect(),
            exponents: Vec::new(),
            bias: Bias::PerChannel(vec![0; spec.out_channels]),
        }
    }

    fn wanted(form: Form, spec: &Linear, in_shape: Shape) -> Wanted<'_> {
        Wanted { form, spec, in_shape, activation_bits: 16, weight_bits: 9, weight_memory: u64::MAX }
    }

    /// Every step of a few diagonals, with all means and without each.
    fn check(planned: &Planned, weights: &Weights) {
        let mut bench = planned.bench(Cpu::detect(), 0, weights, 2, 3);
        for hoisted in [true, false] {
            let uploads: Vec<Upload> = (0..bench.inputs()).map(|block| bench.encrypt(block)).collect();
            let inputs = bench.rotate(&uploads, hoisted);
            for sample in 0..bench.samples() {
                for lazy in [true, false] {
                    let sums = bench.sums(sample, &inputs, lazy);
                    assert_eq!(sums.len(), bench.are_turned(sample).len());
                    for (i, sum) in sums.iter().enumerate() {
                        let turned = bench.turn(sample, i, sum);
                        assert!(
                            bench.is_right(sample, i, &turned),
                            "{hoisted} {lazy} {:?}",
                            planned.layer(0)
                        );
                        let mut wrong = turned.duplicate();
                        wrong.add_assign(&bench.ring, &inputs[0][0][0]);
                        assert!(!bench.is_right(sample, i, &wrong));
                    }
                }
            }
        }
        let upload = bench.encrypt(0);
        let (up, down) = planned.query(0);
        let counts = planned.counts(0);
        let bytes: usize = upload.iter().map(|(seed, b)| seed.len() + b.len()).sum();
        assert_eq!(bytes * counts.ciphertexts / planned.pieces, up);
        let sums = bench.sums(0, &bench.rotate(&[upload], true), true);
        let response = bench.respond(&sums[0]);
        let joints = planned.layer(0).packing().joints(planned.ring().joint.count);
        assert!(response.iter().all(|half| half.len() * (counts.responses + joints) == down));
        let shares = bench.decrypt(&response);
        assert_eq!((shares.len(), response.len()), (bench.together(), bench.together() + 1));
        assert!(shares.iter().all(|share| share.len() == planned.layer(0).packing().slots()));
    }

    #[test]
    fn steps_compute_what_they_should() {
        let spec = Linear::same(6, 3, 12);
        let wanted = |form| wanted(form, &spec, [5, 28, 28]);
        let weights = weights(&spec, [5, 28, 28]);
        let planned = |form| Planned::new(&[wanted(form)]).unwrap();
        let forms = [Form::Conventional, Form::WalshHadamard, Form::Padded, Form::Interleaved];
        let [conventional, packed, padded, interleaved] = forms.map(planned);
        let unsearched = Planned::unsearched(&wanted(Form::WalshHadamard), &conventional, &packed).unwrap();
        for planned in [&conventional, &packed, &padded, &interleaved, &unsearched] {
            check(planned, &weights);
        }
    }

    #[test]
    fn the_papers_own_parameters_decrypt() {
        for (n, in_shape) in [(2048, [4, 28, 28]), (4096, [2, 56, 56])] {
            let spec = Linear::same(4, 3, 4);
            let wanted = |form| wanted(form, &spec, in_shape);
            let weights = weights(&spec, in_shape);
            let planned = |form| Planned::insecure_published(n, &wanted(form)).unwrap();
            let [conventional, packed] = [Form::Conventional, Form::WalshHadamard].map(planned);
            let channels = conventional.layer(0).packing().channels();
            assert!(!packed.ring().params.is_secure() && conventional.pieces == channels);
            assert_eq!(channels, if n == 2048 { 2 } else { 1 });
            let unsearched =
                Planned::unsearched(&wanted(Form::WalshHadamard), &conventional, &packed).unwrap();
            for planned in [&conventional, &packed, &unsearched] {
                check(planned, &weights);
            }
        }
    }

    /// Counted as a session's loops run: groups of tiles, output blocks, diagonals.
    #[test]
    fn steps_are_counted() {
        let spec = Linear::same(8, 3, 12);
        let planned = Planned::new(&[wanted(Form::Conventional, &spec, [8, 28, 28])]).unwrap();
        let packing = planned.layer(0).slots();
        let (c, blocks) = (packing.channels(), 8usize.div_ceil(packing.channels()));
        let sums = blocks * c;
        let expected = Counts { ciphertexts: blocks, sums, turns: sums - blocks, responses: blocks };
        assert_eq!((packing.groups(), planned.counts(0)), (1, expected));
        // A polynomial for each term and tap.
        let bytes = sums * blocks * 9 * planned.poly_bytes();
        assert_eq!((planned.bytes().polynomials, planned.weight_bytes(0)), (bytes, bytes));
        let large = Linear::same(2, 3, 12);
        let planned = Planned::new(&[wanted(Form::Padded, &large, [3, 224, 224])]).unwrap();
        let groups = planned.layer(0).slots().groups();
        let expected = Counts { ciphertexts: 3 * groups, sums: 2 * groups, turns: 0, responses: 2 * groups };
        assert!(groups > 1);
        assert_eq!(planned.counts(0), expected);
    }
}
