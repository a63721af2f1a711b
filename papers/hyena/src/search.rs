//! The search for parameters: one ring for all layers of a plan, and for each layer its plaintext prime, its
//! packing and its factor k.
//!
//! Every candidate has an estimate of 128 bits of security or more on record. Of those whose noise leaves the
//! chance of a wrong result below [`MOST_FAILURES`], the one is taken whose work and bytes are estimated to take
//! the least time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jaguar_graph::network::{Linear, Shape};
use jaguar_ring::he::params::{Estimate, RnsParameters};
use jaguar_ring::he::rns::{JointKeys, Noise};
use jaguar_ring::modular::NARROW_BITS;

use super::blocks::BlockPacking;
use super::interleaved::Interleaved;
use super::packing::Packing;
use super::places::Places;
use super::plaintexts::{PlainPrime, Scaling, row_pattern};
use super::{Form, SlotWork};

/// log2 of the largest chance that a layer's response is wrong anywhere, in one query.
pub const MOST_FAILURES: f64 = -40.0;

/// N that are tried.
pub(super) const RING_DIMS: [usize; 2] = [4096, 8192];

/// Bits of a prime of q that are tried.
pub(super) const LIMB_BITS: std::ops::RangeInclusive<u32> = 30..=58;

/// Most primes of q.
pub(super) const MOST_LIMBS: usize = 7;

/// Most digits of a prime.
pub(super) const MOST_DIGITS: u32 = 6;

/// Bytes that a server may have for rotated inputs, where a packing takes less.
const MEMORY: usize = 1 << 30;

/// Rotation keys that a layer may take, where a packing takes fewer: each has megabytes. Baby and giant steps take few.
const fn most_keys(form: Form) -> usize {
    match form {
        Form::Interleaved => 64,
        Form::Padded | Form::WalshHadamard | Form::Conventional | Form::Blocks => 512,
    }
}

/// Channels in a ciphertext are tried in this order of upper bounds: fewer make less noise.
const CHANNEL_BOUNDS: [usize; 5] = [usize::MAX, 64, 16, 4, 1];

/// Nanoseconds, for choosing only, of a server that has AVX-512 IFMA, which multiplies residues of up to
/// [`NARROW_BITS`] bits: whatever this machine has, for both parties choose alike. A product without reduction, a byte
/// on its way (1 Gbit/s). A client's keys count as if it asked for ten queries.
const LAZY: f64 = 0.25;
pub(super) const BYTE: f64 = 8.0;
const KEY_BYTE: f64 = BYTE / 10.0;

/// Nanoseconds that depend on the primes' bits.
pub(super) struct Costs {
    butterfly: f64,
    /// A product with reduction.
    product: f64,
    /// A product of a sum with one number on each of some stretches.
    stretches: f64,
}

const NARROW: Costs = Costs { butterfly: 0.35, product: 0.8, stretches: 0.25 };
const WIDE: Costs = Costs { butterfly: 0.85, product: 1.5, stretches: 0.5 };

/// The costs of primes of so many bits.
pub(super) fn costs(limb_bits: u32) -> &'static Costs {
    if limb_bits <= NARROW_BITS { &NARROW } else { &WIDE }
}

/// A layer to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// How its weights meet ciphertexts.
    pub form: Form,
    /// The convolution: its geometry and its shift.
    pub spec: &'a Linear,
    /// `[C_in, H, W]` of the layer's input.
    pub in_shape: Shape,
    /// n: values are below 2^(n-1) in absolute value.
    pub activation_bits: u32,
    /// Weights are below 2^(weight_bits-1) in absolute value, exponents included.
    pub weight_bits: u32,
    /// Bytes that the server may keep of weights as polynomials.
    pub weight_memory: u64,
}

impl Wanted<'_> {
    /// Everything that it is told apart by, in rings of length `n`.
    fn figures(&self, n: usize) -> Vec<u64> {
        let Linear { out_channels, kernel, stride, dilation, pads, groups, shift, .. } = *self.spec;
        let mut figures = vec![n, self.form as usize, out_channels, groups];
        figures.extend([kernel, stride, dilation].as_flattened());
        figures.extend(pads);
        let blocks = self.spec.blocks.map(|blocks| [blocks.size, 1 + blocks.kind as usize]);
        figures.extend(blocks.unwrap_or_default());
        figures.extend(self.in_shape);
        let bits = [shift, self.activation_bits, self.weight_bits].map(u64::from);
        let figures = figures.into_iter().map(|figure| figure as u64);
        figures.chain(bits).chain([self.weight_memory]).collect()
    }
}

/// A layer's own parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// Where channels sit in ciphertexts.
    pub packing: Places,
    /// p: what plaintexts are modulo.
    pub plain: PlainPrime,
    /// k, where two rows hold two channels; 1 elsewhere.
    pub scaling: Scaling,
    weight_bits: u32,
    pub(super) form: Form,
    /// Diagonals of an output block, and pairs of a diagonal and an input block, at most.
    met: [f64; 2],
}

/// [`Fitted::met`] of a packing.
fn met(packing: &Places) -> [f64; 2] {
    let most = |of: &dyn Fn(usize) -> usize| {
        // Without groups the first block has as many channels as any other.
        let blocks = if packing.spec().groups == 1 { 1 } else { packing.out_blocks() };
        (0..blocks).map(of).max().unwrap_or(0) as f64
    };
    match packing {
        Places::Channels(packing) => {
            [most(&|block| packing.diagonals(block).len()), most(&|block| packing.terms(block))]
        }
        Places::Interleaved(own) => {
            [own.work().most[0] as f64, own.work().most[1] as f64 / own.turns().len() as f64]
        }
        Places::Blocks(own) => {
            let pairs = most(&|block| own.terms(block).iter().map(|(_, terms)| terms.len()).sum());
            [pairs.min(own.parts() as f64), pairs]
        }
    }
}

/// The ring of all layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// N and q.
    pub params: RnsParameters,
    /// How many primes a response keeps.
    pub kept: usize,
    /// Bits of a digit of keys.
    pub digit_bits: u32,
    /// How responses share a halves.
    pub joint: Joint,
}

/// How many responses of a group of tiles share an a half ([`JointKeys`](jaguar_ring::he::rns::JointKeys)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    /// At most so many.
    pub count: usize,
    /// Bits of a digit of the keys for it.
    pub digit_bits: u32,
}

impl Joint {
    /// Each response has its own.
    pub const ALONE: Self = Self { count: 1, digit_bits: 2 };

    /// So many where several do: keys grow with the square, and what is left to save is a fifth.
    pub const TOGETHER: usize = 4;
}

/// A ring's figures that decide how much there is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// How many primes the modulus has.
    pub limbs: f64,
    /// How many of them a response keeps.
    pub kept: f64,
    /// Digits of a polynomial, of all primes.
    pub digits: f64,
    /// Responses that share an a half, at most.
    pub together: f64,
    /// Digits of an a half where they are brought together, of all primes.
    pub joint_digits: f64,
}

/// What was weighed, the best of each N and number of primes.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// The ring that all layers share.
    pub ring: Chosen,
    /// log2 of the chance that any layer is wrong anywhere, in one query.
    pub failure: f64,
    /// Estimated seconds of a query, on one thread and at 1 Gbit/s.
    pub seconds: f64,
    /// Bytes of a query, and of the session's keys.
    pub bytes: (usize, usize),
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The ring that all layers share.
    pub ring: Chosen,
    /// What each layer has of its own, in their order.
    pub layers: Vec<Fitted>,
    /// What was weighed for the packings chosen, the best first.
    pub weighed: Vec<Weighed>,
}

impl Chosen {
    /// How many digits of keys a polynomial has, over all primes.
    pub fn digits(&self) -> usize {
        digits_of(self.params.primes(), self.digit_bits)
    }

    /// The same of a response for joint keys.
    pub(super) fn joint_digits(&self) -> usize {
        digits_of(&self.params.primes()[..self.kept], self.joint.digit_bits)
    }

    /// Primes of joint keys: those of responses, and one more where there is one.
    pub(super) fn joint_limbs(&self) -> usize {
        (self.kept + 1).min(self.params.primes().len())
    }

    /// What decides how much there is to do.
    pub(super) fn sizes(&self) -> Sizes {
        let counts =
            [self.params.primes().len(), self.kept, self.digits(), self.joint.count, self.joint_digits()];
        let [limbs, kept, digits, together, joint_digits] = counts.map(|count| count as f64);
        Sizes { limbs, kept, digits, together, joint_digits }
    }

    /// Bits of a prime, as residues are packed.
    pub fn limb_bits(&self) -> u32 {
        self.params.primes().iter().map(|p| u64::BITS - p.leading_zeros()).max().unwrap_or(0)
    }

    /// Bytes of a polynomial modulo the first `limbs` primes.
    pub(crate) fn poly_bytes(&self, limbs: usize) -> usize {
        jaguar_wire::pack::packed_len(self.params.ring_dim() * limbs, self.limb_bits())
    }

    /// Bytes of a polynomial modulo so many primes in memory.
    pub(super) fn words_bytes(&self, limbs: usize) -> u64 {
        (size_of::<u64>() * self.params.ring_dim() * limbs) as u64
    }

    /// Bytes of what is made offline: of a ciphertext the seed and the b half; of responses that share an a half encryptions of
    /// zero with their masks, and the server's shares.
    pub(super) fn ahead_bytes(&self) -> [u64; 2] {
        let count = self.joint.count;
        [32 + self.words_bytes(self.params.primes().len()), self.words_bytes((count + 1) * self.kept + count)]
    }

    /// Bytes of a client's keys for so many automorphisms: seeds, and the b halves of joint keys and of automorphisms'.
    pub(crate) fn key_bytes(&self, automorphisms: usize) -> usize {
        let whole = self.poly_bytes(self.params.primes().len());
        let joint = JointKeys::polys(self.joint.count, self.joint_digits());
        32 + joint * self.poly_bytes(self.joint_limbs()) + automorphisms * (32 + self.digits() * whole)
    }
}

/// Digits of a polynomial modulo these primes.
fn digits_of(primes: &[u64], digit_bits: u32) -> usize {
    primes.iter().map(|p| (u64::BITS - p.leading_zeros()).div_ceil(digit_bits) as usize).sum()
}

impl Fitted {
    /// All ways to run a layer in slots of rings of length `n`, by number of channels in a ciphertext, ascending.
    pub(super) fn all(n: usize, wanted: &Wanted<'_>) -> Vec<Self> {
        let form = wanted.form;
        let plain = PlainPrime::new(n, wanted.activation_bits + wanted.spec.shift);
        let Some((plain, h)) = plain.and_then(|plain| Some((plain, row_pattern(plain.p)?))) else {
            return Vec::new();
        };
        let of = |packing: Places| {
            let scaling = match (form, packing.channels()) {
                (Form::WalshHadamard, 2) => Scaling::quietest(h, plain.p),
                _ => Scaling { k: 1, product: h },
            };
            Self { met: met(&packing), packing, plain, scaling, weight_bits: wanted.weight_bits, form }
        };
        places(form, n, wanted).into_iter().map(of).collect()
    }

    /// Bytes that the server has for the rotated inputs of one group of tiles, if q has four primes.
    fn memory(&self) -> usize {
        self.packing.turned().saturating_mul(64 * self.packing.slots())
    }

    /// Input channels that an output channel reads.
    fn reads(&self) -> f64 {
        (self.packing.in_shape()[0] / self.packing.spec().groups) as f64
    }

    /// Taps that rotate: those within blocks do not. Of interleaved channels all rotations of inputs.
    pub(super) fn taps(&self) -> f64 {
        match &self.packing {
            Places::Interleaved(packing) => packing.turns().len() as f64,
            Places::Channels(packing) => packing.spec().kernel.iter().product::<usize>() as f64,
            Places::Blocks(_) => 1.0,
        }
    }

    /// Pairs of diagonal and input block of an output block, at most.
    pub(super) fn pairs(&self) -> f64 {
        self.met[1]
    }

    /// Diagonals of an output block, at most.
    pub(super) fn diagonals(&self) -> f64 {
        self.met[0]
    }

    /// The noise of a sum of products, in a ring with so many digits. Weights are the largest ones.
    ///
    /// With σ² of a rotated input, Σ over diagonals and taps of the squared norm of what it is multiplied by. Over
    /// all parts the weights of a diagonal are f = H·g/c_n with ‖g‖² = c_n·‖f‖², and ‖Σ g_i·pattern_i‖² ≤
    /// ‖g‖²·Σ‖pattern_i‖² (Cauchy and Schwarz). Where numbers meet the encryption's own noise, it is counted as if it were the same in
    /// all rotations: its coefficient 0 stays in its place. (A plaintext's product has all coefficients in it.)
    ///
    /// It is the mean over coefficients; some have up to [`together`](Self::together) times as much.
    pub(super) fn noise(&self, digits: usize, digit_bits: u32) -> Noise {
        self.noise_of(self.gain(), digits, digit_bits)
    }

    /// By what products multiply the variance of a rotated input.
    fn gain(&self) -> f64 {
        let channels = self.packing.channels() as f64;
        let weight = 4f64.powi(self.weight_bits as i32 - 1);
        let dense = self.packing.slots() as f64 / 12.0 * (self.plain.p as f64).powi(2);
        match self.form {
            Form::Interleaved => {
                let plaintext = match self.packing.channels() {
                    1 => weight,
                    // As for the conventional form, below.
                    2 => 3.0 * (self.plain.p as f64 / 2.0).powi(2),
                    // As many coefficients as channels, each of p/2 at most.
                    _ => channels * (self.plain.p as f64 / 2.0).powi(2),
                };
                self.pairs() * self.taps() * plaintext
            }
            Form::Padded => self.reads() * self.taps() * weight,
            Form::WalshHadamard => {
                let patterns = match self.packing.channels() {
                    1 => 1.0,
                    2 => self.scaling.squares(),
                    _ => self.scaling.squares() + (channels - 2.0) * dense,
                };
                channels * channels * self.reads() * self.taps() * weight * patterns
            }
            Form::Conventional => {
                let plaintext = match self.packing.channels() {
                    // The same number in all slots is a constant.
                    1 => weight,
                    // The same on each row: (f_0 + f_1)/2, and (f_0 - f_1)/2 times two coefficients h
                    // ([`row_pattern`]). Halves are modulo p, so each of the three may have p/2.
                    2 => 3.0 * (self.plain.p as f64 / 2.0).powi(2),
                    _ => dense * DENSE_MARGIN,
                };
                self.pairs() * self.taps() * plaintext
            }
            Form::Blocks => self.pairs() * self.taps() * dense * DENSE_MARGIN,
        }
    }

    fn noise_of(&self, gain: f64, digits: usize, digit_bits: u32) -> Noise {
        let n = self.packing.slots();
        let switched = Noise::of_digits(n, digits, digit_bits);
        let own = if self.are_numbers() { self.diagonals() * self.taps() } else { 1.0 };
        let fresh = Noise::fresh().add_plain().multiply(gain * own);
        // Of c parts 1/c of all coefficients stay where they are.
        let alike = 1.0 + (self.together() - 1.0) / self.packing.channels() as f64;
        let turned = gain * self.packing.turned_share() * alike;
        fresh + switched.multiply(turned + self.diagonals() - 1.0)
    }

    /// Whether ciphertexts are multiplied by numbers, not by polynomials.
    fn are_numbers(&self) -> bool {
        match self.form {
            Form::Padded | Form::WalshHadamard => true,
            Form::Interleaved | Form::Conventional => self.packing.channels() == 1,
            Form::Blocks => false,
        }
    }

    /// By what the variance of a coefficient may be larger that no rotation of a sum moves: what switching keys added to an input
    /// meets itself there, once a diagonal, where weights are numbers of one sign.
    pub(super) fn together(&self) -> f64 {
        if self.are_numbers() { self.diagonals().max(1.0) } else { 1.0 }
    }

    /// The noise of a response as it is sent: the sum's and that of an encryption of zero, each without the primes that
    /// are dropped.
    #[cfg(test)]
    pub(super) fn response_noise(&self, ring: &Chosen) -> Noise {
        self.response_noise_of(self.gain(), ring)
    }

    fn response_noise_of(&self, gain: f64, ring: &Chosen) -> Noise {
        let n = self.packing.slots();
        let dropped = |noise: Noise| {
            let primes = ring.params.primes()[ring.kept..].iter().rev();
            primes.fold(noise, |noise, &p| noise.divide(n, p))
        };
        let sum = dropped(self.noise_of(gain, ring.digits(), ring.digit_bits));
        let Some(&last) = ring.params.primes().get(ring.kept) else { return sum + Noise::fresh_public(n) };
        let covered = sum + Noise::fresh_public(n).divide(n, last);
        if ring.joint.count == 1 {
            return covered;
        }
        let joined = Noise::of_digits(n, ring.joint_digits(), ring.joint.digit_bits);
        covered + joined.multiply(ring.joint.count as f64).divide(n, last)
    }

    /// log2 of the chance that any coefficient of any response is rounded to the wrong residue. R is uniform: e moves it over a
    /// half with a chance of |e|·p/q', on the one side that e points to, and E|e| is at most e's deviation.
    pub(super) fn failure(&self, ring: &Chosen) -> f64 {
        self.failure_of(self.gain(), ring)
    }

    /// The same if plaintexts were split into so many parts, in a base near the root of p.
    #[cfg(test)]
    pub(super) fn failure_in_parts(&self, parts: u32, ring: &Chosen) -> f64 {
        let base = (self.plain.p as f64).powf(1.0 / f64::from(parts));
        let dense = self.packing.slots() as f64 / 12.0 * base.powi(2);
        self.failure_of(f64::from(parts) * self.pairs() * self.taps() * dense, ring)
    }

    fn failure_of(&self, gain: f64, ring: &Chosen) -> f64 {
        let kept: f64 = ring.params.primes()[..ring.kept].iter().map(|&p| (p as f64).log2()).sum();
        let coefficients = (self.packing.responses() * self.packing.slots()) as f64;
        let noise = self.response_noise_of(gain, ring).deviation();
        (coefficients * noise * self.plain.p as f64).log2() - kept
    }

    /// Bytes from the client and from the server, in one query.
    pub(crate) fn bytes(&self, ring: &Chosen) -> (usize, usize) {
        let up = 32 + ring.poly_bytes(ring.params.primes().len());
        let down = self.packing.responses() + self.packing.joints(ring.joint.count);
        (self.packing.ciphertexts() * up, down * ring.poly_bytes(ring.kept))
    }

    /// The automorphisms that it takes.
    pub(super) fn elements(&self) -> Vec<usize> {
        self.packing.elements()
    }

    /// How many plaintexts the weights are, where they are plaintexts; at most.
    pub(super) fn plaintexts(&self) -> f64 {
        match self.form {
            Form::Conventional => self.pairs() * self.taps() * self.packing.out_blocks() as f64,
            Form::Blocks => self.pairs() * self.packing.out_blocks() as f64,
            Form::Interleaved | Form::Padded | Form::WalshHadamard => 0.0,
        }
    }

    /// Estimated nanoseconds of a query on one thread.
    pub(super) fn nanoseconds(&self, ring: &Chosen, encoded: bool) -> f64 {
        let (up, down) = self.bytes(ring);
        let costs = nominal(self.packing.slots(), costs(ring.limb_bits()));
        self.units(ring.sizes(), encoded).seconds(&costs) + BYTE * (up + down) as f64
    }
}

/// Figures of a processor as the search sees all of them, in nanoseconds.
pub(super) fn nominal(ring_dim: usize, &Costs { butterfly, product, stretches }: &Costs) -> SlotWork {
    let n = ring_dim as f64;
    let transform = butterfly * n * n.log2() / 2.0;
    SlotWork {
        transform,
        product: product * n,
        scalar: LAZY * n,
        stretches: stretches * n,
        sum: product * n,
        small: LAZY * n,
        switch: 1.35 * product * n,
        encryption: transform + 4.0 * product * n,
        zero: 3.0 * transform + 4.0 * product * n,
        packing: LAZY * n,
        uniform: product * n,
        encoding: transform + product * n,
        rounding: product * n,
    }
}

/// Dense plaintexts are encodings of vectors with structure: their coefficients' mean square was seen up to a tenth
/// above p²/12.
const DENSE_MARGIN: f64 = 1.25;

/// Finds parameters for these layers.
///
/// # Errors
/// Which layer no ring on record can run, as an index, and why.
pub fn search(layers: &[Wanted<'_>]) -> Result<Found, (usize, String)> {
    // A layer that no ring runs by itself is found once, not by every plan that a planner tries.
    if let Some(at) = layers.iter().position(|layer| !runs_alone(layer)) {
        return Err((at, refusal(&layers[at])));
    }
    best(layers).ok_or_else(|| (0, refusal(&layers[0])))
}

/// The fastest ring of any length that runs all of these layers.
fn best(layers: &[Wanted<'_>]) -> Option<Found> {
    let tried = RING_DIMS.into_iter().filter_map(|n| search_of(n, layers));
    tried.min_by(|a, b| a.weighed[0].seconds.total_cmp(&b.weighed[0].seconds))
}

/// Whether any ring runs this layer if it is the only one. Remembered.
fn runs_alone(layer: &Wanted<'_>) -> bool {
    static KNOWN: Memory<bool> = Memory::new();
    KNOWN.recall(layer.figures(0), || best(std::slice::from_ref(layer)).is_some())
}

/// Why no ring runs a layer.
fn refusal(layer: &Wanted<'_>) -> String {
    let bits = layer.activation_bits + layer.spec.shift;
    let [.., widest] = RING_DIMS;
    if places(layer.form, widest, layer).is_empty() {
        return format!(
            "the places that an output reads do not fit the {} slots of a row, or need too many tiles",
            widest / 2
        );
    }
    if PlainPrime::new(widest, bits).is_none() {
        return format!("its products take {bits} bits, and no plaintext prime of up to 60 bits holds them");
    }
    format!("no ring with an estimate of 128 bits on record holds products of {bits} bits and their noise")
}

/// All ways to place a layer in slots of rings of length `n`.
fn places(form: Form, n: usize, wanted: &Wanted<'_>) -> Vec<Places> {
    let (spec, in_shape) = (wanted.spec, wanted.in_shape);
    match form {
        Form::Blocks => BlockPacking::all(n, spec, in_shape).into_iter().map(Places::Blocks).collect(),
        Form::Interleaved => {
            Interleaved::all(n, spec, in_shape).into_iter().map(Places::Interleaved).collect()
        }
        Form::Padded | Form::WalshHadamard | Form::Conventional => {
            Packing::all(n, spec, in_shape, form.outputs()).into_iter().map(Places::Channels).collect()
        }
    }
}

/// Bytes of four residues.
const NOMINAL: usize = 26;

/// A way to run a layer, with what the search asks of it again and again.
struct Candidate {
    fitted: Fitted,
    /// Whether its plaintexts are made in every query.
    encoded: bool,
    elements: Vec<usize>,
    /// Nanoseconds and bytes as if q had four primes, of which two are kept, and eight digits.
    nominal: f64,
    /// What [`Candidate::in_rings`] has computed.
    in_rings: OnceLock<Vec<Option<(f64, f64)>>>,
}

/// All ways to run a layer in slots of rings of length `n` with the memory that there is, by number of channels in a
/// ciphertext, ascending. A planner asks for the same ones in hundreds of plans, so they are found once.
fn candidates(n: usize, wanted: &Wanted<'_>) -> Arc<Vec<Candidate>> {
    static FOUND: Memory<Arc<Vec<Candidate>>> = Memory::new();
    FOUND.recall(wanted.figures(n), || Arc::new(find_candidates(n, wanted)))
}

fn find_candidates(n: usize, wanted: &Wanted<'_>) -> Vec<Candidate> {
    let sizes = Sizes { limbs: 4.0, kept: 2.0, digits: 8.0, together: 1.0, joint_digits: 8.0 };
    let candidate = |fitted: Fitted| {
        let elements = fitted.elements();
        let bytes = NOMINAL * (fitted.packing.ciphertexts() + fitted.packing.responses());
        let keys = NOMINAL * 8 * elements.len();
        let encoded = fitted.plaintexts() * (8 * 4 * n) as f64 > wanted.weight_memory as f64;
        let work = fitted.units(sizes, encoded).seconds(&nominal(n, &WIDE));
        let nominal = work + BYTE * (n * bytes) as f64 + KEY_BYTE * (n * keys) as f64;
        Candidate { fitted, encoded, elements, nominal, in_rings: OnceLock::new() }
    };
    let all = Fitted::all(n, wanted);
    let least = all.iter().map(Fitted::memory).min().unwrap_or(0);
    let held = all.into_iter().filter(|fitted| fitted.memory() <= least.max(MEMORY));
    let mut candidates: Vec<Candidate> = held.map(candidate).collect();
    let fewest = candidates.iter().map(|candidate| candidate.elements.len()).min().unwrap_or(0);
    candidates.retain(|candidate| candidate.elements.len() <= fewest.max(most_keys(wanted.form)));
    candidates
}

/// What was found for layers, by their figures ([`Wanted::figures`]).
struct Memory<T>(OnceLock<Mutex<HashMap<Vec<u64>, T>>>);

impl<T: Clone> Memory<T> {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// What is known for `figures`, or else what `find` finds. Other threads are not kept waiting while it looks.
    fn recall(&self, figures: Vec<u64>, find: impl FnOnce() -> T) -> T {
        let known = || self.0.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&figures) {
            return found.clone();
        }
        let found = find();
        let mut known = known();
        if known.len() >= MOST_FOUND {
            known.clear();
        }
        known.insert(figures, found.clone());
        found
    }
}

/// Layers of which something is remembered.
const MOST_FOUND: usize = 1 << 10;

/// The best ring of this N; none if no layer fits.
fn search_of(n: usize, layers: &[Wanted<'_>]) -> Option<Found> {
    let choices: Vec<Arc<Vec<Candidate>>> = layers.iter().map(|wanted| candidates(n, wanted)).collect();
    CHANNEL_BOUNDS.into_iter().find_map(|bound| {
        let best = choices.iter().map(|choices| {
            let within = choices.iter().filter(|c| c.fitted.packing.channels() <= bound);
            within.min_by(|a, b| a.nominal.total_cmp(&b.nominal))
        });
        let best: Vec<&Candidate> = best.collect::<Option<_>>()?;
        let weighed = weigh(n, &best);
        let ring = weighed.first()?.ring.clone();
        Some(Found { ring, layers: best.into_iter().map(|c| c.fitted.clone()).collect(), weighed })
    })
}

/// The set of so many largest primes of so many bits, if it is on record. Plans are made many times a second, so
/// sets are found once.
pub(super) fn on_record(n: usize, bits: u32, limbs: usize) -> Option<RnsParameters> {
    static FOUND: OnceLock<Vec<RnsParameters>> = OnceLock::new();
    let all = FOUND.get_or_init(|| {
        let sizes = RING_DIMS.into_iter().flat_map(|n| LIMB_BITS.map(move |bits| (n, bits)));
        let sets = sizes.flat_map(|(n, bits)| {
            (1..=MOST_LIMBS).filter_map(move |limbs| RnsParameters::search(n, bits, limbs).ok())
        });
        sets.collect()
    });
    let fits = |set: &&RnsParameters| {
        let primes = set.primes();
        set.ring_dim() == n && primes.len() == limbs && primes[0] >> (bits - 1) == 1
    };
    all.iter().find(fits).cloned()
}

/// All rings of one N that are tried, with what to send back and digits of keys. Plans are made many times a second, so
/// they are listed once.
fn rings(n: usize) -> &'static [Chosen] {
    static LISTED: [OnceLock<Vec<Chosen>>; RING_DIMS.len()] = [const { OnceLock::new() }; RING_DIMS.len()];
    let at = RING_DIMS.iter().position(|&tried| tried == n).expect("a length that is tried");
    LISTED[at].get_or_init(|| {
        let sizes = (1..=MOST_LIMBS).flat_map(|limbs| LIMB_BITS.map(move |bits| (limbs, bits)));
        let sets = sizes.filter_map(|(limbs, bits)| Some((bits, on_record(n, bits, limbs)?)));
        let ways = sets.flat_map(|(bits, params)| {
            let kept = 1..=params.primes().len();
            let digits =
                kept.flat_map(|kept| (1..=MOST_DIGITS).map(move |parts| (kept, bits.div_ceil(parts))));
            let chosen = digits.flat_map(|(kept, digit_bits)| {
                let several = |digit_bits| Joint { count: Joint::TOGETHER, digit_bits };
                let joints = [Joint::ALONE, several(bits), several(bits.div_ceil(2))];
                // Joint keys have a prime more than responses.
                let joints = joints.into_iter().take(if kept < params.primes().len() { 3 } else { 1 });
                let params = &params;
                joints.map(move |joint| Chosen { params: params.clone(), kept, digit_bits, joint })
            });
            chosen.collect::<Vec<_>>()
        });
        ways.collect()
    })
}

impl Candidate {
    /// By ring of [`rings`]: the chance that it is wrong there and its nanoseconds, or None where its noise is too much.
    /// A planner asks in hundreds of plans, so they are computed once.
    fn in_rings(&self, n: usize) -> &[Option<(f64, f64)>] {
        self.in_rings.get_or_init(|| {
            let in_ring = |ring: &Chosen| {
                let failure = self.fitted.failure(ring);
                let holds = failure <= MOST_FAILURES && !ring.params.primes().contains(&self.fitted.plain.p);
                holds.then(|| (failure.exp2(), self.fitted.nanoseconds(ring, self.encoded)))
            };
            rings(n).iter().map(in_ring).collect()
        })
    }
}

/// The fewest bytes of a layer's query that any way takes in any ring that holds its noise, at whatever time.
#[cfg(test)]
pub(super) fn fewest_bytes(wanted: &Wanted<'_>) -> Option<usize> {
    let ways = RING_DIMS.into_iter().flat_map(|n| {
        let bytes = |way: &Candidate| {
            let holding = rings(n).iter().zip(way.in_rings(n)).filter(|(_, own)| own.is_some());
            holding.map(|(ring, _)| way.fitted.bytes(ring)).map(|(up, down)| up + down).min()
        };
        candidates(n, wanted).iter().filter_map(bytes).collect::<Vec<_>>()
    });
    ways.min()
}

/// All rings of one N that hold these layers' noise: the best of each number of primes, the best first.
fn weigh(n: usize, layers: &[&Candidate]) -> Vec<Weighed> {
    let mut elements: Vec<usize> = layers.iter().flat_map(|layer| layer.elements.iter().copied()).collect();
    elements.sort_unstable();
    elements.dedup();
    // The sums over all layers, as far as each holds.
    let mut sums = vec![Some((0.0, 0.0)); rings(n).len()];
    for layer in layers {
        for (sum, own) in sums.iter_mut().zip(layer.in_rings(n)) {
            *sum = sum
                .zip(*own)
                .map(|((failure, work), own): ((f64, f64), (f64, f64))| (failure + own.0, work + own.1));
        }
    }
    // By number of primes: seconds, which ring, the chance that any layer is wrong.
    let mut best: [Option<(f64, &Chosen, f64)>; MOST_LIMBS] = [None; MOST_LIMBS];
    for (ring, sum) in rings(n).iter().zip(sums) {
        let Some((failure, work)) = sum else { continue };
        let seconds = (work + KEY_BYTE * ring.key_bytes(elements.len()) as f64) / 1e9;
        let best = &mut best[ring.params.primes().len() - 1];
        if best.is_none_or(|(least, ..)| seconds < least) {
            *best = Some((seconds, ring, failure.log2()));
        }
    }
    let weighed = best.into_iter().flatten().map(|(seconds, ring, failure)| {
        let bytes = layers.iter().map(|layer| layer.fitted.bytes(ring)).map(|(up, down)| up + down).sum();
        Weighed { ring: ring.clone(), failure, seconds, bytes: (bytes, ring.key_bytes(elements.len())) }
    });
    let mut weighed: Vec<Weighed> = weighed.collect();
    weighed.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    weighed
}

/// `N = 8192, q of 4 primes of 50 bits (143.2 bits of security)`.
pub(super) fn describe(ring: &Chosen) -> String {
    let security = match ring.params.estimate() {
        Estimate::TenthsOfBits(tenths) => format!("{:.1} bits of security", f64::from(tenths) / 10.0),
        Estimate::Insecure => "INSECURE".into(),
    };
    let (n, limbs) = (ring.params.ring_dim(), ring.params.primes().len());
    format!("ring N = {n}, q of {limbs} primes of {} bits ({security})", ring.limb_bits())
}

/// Above the lines of [`weighed_line`].
pub(super) const WEIGHED_HEAD: &str = "weighed: N    primes x bits  security  in responses  of one a half  digits  log2 failure  seconds   MB a query   MB of keys";

/// A ring that was weighed.
pub(super) fn weighed_line(weighed: &Weighed) -> String {
    let Weighed { ring, failure, seconds, bytes } = weighed;
    let security = match ring.params.estimate() {
        Estimate::TenthsOfBits(tenths) => format!("{:.1}", f64::from(tenths) / 10.0),
        Estimate::Insecure => "none".into(),
    };
    let mega = |bytes: usize| bytes as f64 / 1e6;
    format!(
        "{:>13}    {:>6} x {:<4}  {security:>8}  {:>12}  {:>13}  {:>6}  {failure:>12.1}  {seconds:>7.2}  {:>11.2}  {:>11.2}",
        ring.params.ring_dim(),
        ring.params.primes().len(),
        ring.limb_bits(),
        ring.kept,
        ring.joint.count,
        ring.digits(),
        mega(bytes.0),
        mega(bytes.1),
    )
}

/// Above the lines of [`Fitted::line`].
pub(super) const FITTED_HEAD: &str = "layers: log2 p  multiple  channels  tiles    up  down  noise bits  log2 failure  layer (h, k and k*h of two rows)";

impl Fitted {
    /// What the layer has, in a line.
    pub(super) fn line(&self, ring: &Chosen, name: &str) -> String {
        let Self { packing, plain, scaling, .. } = self;
        let rows = match (self.form, packing.channels(), row_pattern(plain.p)) {
            (Form::WalshHadamard, 2, Some(h)) => {
                format!(" (h = {h}, k = {}, k*h = {})", scaling.k, scaling.product)
            }
            _ => String::new(),
        };
        format!(
            "{:>14.2}  {:>8}  {:>8}  {:>5}  {:>4}  {:>4}  {:>10.1}  {:>12.1}  {name}{rows}",
            (plain.p as f64).log2(),
            plain.multiple,
            packing.channels(),
            packing.tile_count(),
            packing.ciphertexts(),
            packing.responses(),
            self.noise(ring.digits(), ring.digit_bits).bits(),
            self.failure(ring),
        )
    }
}
