//! RLWE over a power-of-two ring with the two halves of a ciphertext apart, and phase sharing.
//!
//! A ciphertext (a, b) of m under s has the *phase* `b + a·s = Δ·m + e (mod q)`. The a half is public and
//! expanded from a seed, so everything that is done to it needs no input; the b half is made per query, under
//! a fresh secret. The common a under many secrets is the multi-secret form of RLWE (SimplePIR, USENIX
//! Security 2023, section 4).
//!
//! # From ciphertext to shares
//!
//! `[m / 2^f] mod 2^n  <-  (A, B) = (a + z1, b + z0 + R)`: with `(z0, z1) = (p0·u, p1·u + e1)` a fresh encryption of
//! zero under the client's query key `p0 = e - p1·s`, and R uniform in Z_q, both parties round their share of the phase
//! locally ([`Parameters`] says how large q is, `n` how many bits remain):
//!
//! ```text
//! client: (B + A·s mod q) >> (k - n)        server: -(R >> (k - n))        mod 2^n
//! ```
//!
//! Error: the sum is one of the two integers next to `m/2^f + ε`, the upper one with probability equal to the
//! fraction, where ε is the noise in ulps. What the client sees, `B + A·s = Δ·m + e + R`, is uniform; A is
//! pseudorandom by RLWE in the server's secret u. z0 needs no noise of its own: it is never seen, R covers it. For the
//! same reason both products, A·s and p0·u, may be taken modulo a prime to which A and p0 are rounded ([`ZeroKey`]).
//! (Local rounding: Boyle, Kohl, Scholl, EUROCRYPT 2019; 1-bit approximate re-sharing: Cheetah.)

use crate::Kernel;
use crate::cpu::Cpu;
use crate::prg::Prg;
use crate::product::prime::{PrimeRing, PrimeSmall, PrimeWide, Residues};
use crate::product::{Multiplier, SmallNtt, WideNtt};
use crate::sample::{self, SmallPoly};
use zeroize::Zeroizing;

pub use crate::he::params::{Estimate, ParameterError, Parameters};

/// What both parties expand from the model's public name, so that neither can plant it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicSeed(pub [u8; 32]);

impl PublicSeed {
    /// The a half of input ciphertext `index` of layer `layer`: N words, uniform mod q.
    pub fn a(&self, params: &Parameters, layer: usize, index: usize, out: &mut [u64]) {
        Prg::derive(&self.0, "jaguar a half", &[layer as u64, index as u64])
            .fill_words(out, params.modulus_bits());
    }

    /// p1, the a half of every zero-encryption key.
    pub fn p1(&self, params: &Parameters) -> Vec<u64> {
        let mut out = vec![0; params.ring_dim()];
        Prg::derive(&self.0, "jaguar p1", &[]).fill_words(&mut out, params.modulus_bits());
        out
    }
}

/// Arithmetic in one ring.
pub struct Ring {
    params: Parameters,
    kernel: Kernel,
    multiplier: Multiplier,
}

impl Ring {
    /// Builds the tables for `params`. What is computed in the ring uses the instructions that `cpu` has.
    pub fn new(cpu: Cpu, params: Parameters) -> Self {
        let kernel = Kernel::of(cpu);
        Self { multiplier: Multiplier::new(kernel, params.ring_dim()), kernel, params }
    }

    /// The kernel that its arithmetic runs on.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The parameter set of its ciphertexts: N and q.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// A polynomial's transform, for products with many small ones.
    pub fn prepare_wide(&self, x: &[u64]) -> WideNtt {
        self.multiplier.prepare_wide(x, self.params.modulus_bits())
    }

    fn ternary(&self, prg: &mut Prg) -> SmallPoly {
        let mut small = SmallPoly::new(self.params.ring_dim());
        sample::ternary(self.kernel, prg, small.coefficients_mut());
        small
    }

    /// Adds `sign · noise` to every word.
    fn add_noise(&self, prg: &mut Prg, words: &mut [u64]) {
        if self.params.is_noisy() {
            let mut e = SmallPoly::new(words.len());
            sample::noise(self.kernel, prg, e.coefficients_mut());
            let mask = self.params.mask();
            for (w, &e) in words.iter_mut().zip(e.coefficients()) {
                *w = w.wrapping_add(i64::from(e) as u64) & mask;
            }
        }
    }
}

/// The client's secret of one query. Lives for that query only: it is neither copied, printed nor stored.
pub struct QuerySecret {
    coefficients: SmallPoly,
    s: SmallNtt,
    noise: Prg,
}

impl QuerySecret {
    /// A fresh secret from the operating system's randomness.
    pub fn fresh(ring: &Ring) -> Self {
        Self::from_prg(ring, &mut Prg::from_os())
    }

    /// A secret from given randomness (tests fix it).
    pub fn from_prg(ring: &Ring, prg: &mut Prg) -> Self {
        let coefficients = ring.ternary(prg);
        let s = ring.multiplier.prepare_small(coefficients.coefficients());
        let mut seed = Zeroizing::new([0; 32]);
        prg.fill(&mut seed[..]);
        Self { coefficients, s, noise: Prg::new(*seed) }
    }

    /// `p0 = e - p1·s`: with it the server makes encryptions of zero for this query.
    pub fn zero_key(&mut self, ring: &Ring, p1: &[u64]) -> Vec<u64> {
        let mut seed = Zeroizing::new([0; 32]);
        self.noise.fill(&mut seed[..]);
        self.encrypt_zero(ring, p1, &mut Prg::new(*seed))
    }

    /// A seed for the noise of one layer's ciphertexts. Every call gives another.
    pub fn noise_seed(&mut self) -> Zeroizing<[u8; 32]> {
        let mut seed = Zeroizing::new([0; 32]);
        self.noise.fill(&mut seed[..]);
        seed
    }

    /// `e - a·s`: the b half of an encryption of zero under a. Once for every a: the difference of two would be noise
    /// alone, and the noise of many would average away.
    pub fn encrypt_zero(&self, ring: &Ring, a: &[u64], noise: &mut Prg) -> Vec<u64> {
        let mut b = vec![0; a.len()];
        ring.multiplier.multiply_into(a, ring.params.modulus_bits(), &self.s, &mut b);
        let mask = ring.params.mask();
        b.iter_mut().for_each(|w| *w = w.wrapping_neg() & mask);
        ring.add_noise(noise, &mut b);
        b
    }

    /// The secret, to be multiplied by responses that were rounded to the prime of `ring`.
    pub fn for_responses(&self, ring: &PrimeRing) -> PrimeSmall {
        let mut small = ring.small();
        ring.small_into(self.coefficients.coefficients(), &mut small);
        small
    }

    /// `x·s mod 2^bits`, for words of `bits` bits (a response whose low bits were dropped has fewer than q).
    pub fn times(&self, ring: &Ring, x: &[u64], bits: u32, out: &mut [u64]) {
        ring.multiplier.multiply_into(x, bits, &self.s, out);
    }
}

/// A query's key for encryptions of zero, as the server computes with it: p0 rounded to a prime p of
/// [`ZeroKey::BITS`] bits and transformed.
///
/// The rounding adds `(p0' - p0)·u` to z0, `q/p·sqrt(N/9)` of standard deviation. It is at random: the client knows p0, and
/// u is the same in all of its queries. Of results that are opened to it, an error that p0 and u determine would be one
/// linear equation in u a value; so this error's mean is zero whatever p0 and u are.
pub struct ZeroKey {
    ring: PrimeRing,
    p0: PrimeWide,
    modulus_bits: u32,
}

/// Where [`ZeroKey::times_transformed`] computes; for any number of calls.
pub struct ZeroScratch {
    u: PrimeSmall,
    product: Residues,
}

impl ZeroKey {
    /// Bits of p: as many as a lane can take.
    pub const BITS: u32 = 30;

    /// The key `p0` of one query; `prg` is the server's own, and fresh.
    pub fn new(ring: &Ring, p0: &[u64], prg: &mut Prg) -> Self {
        let modulus_bits = ring.params.modulus_bits();
        let ring = PrimeRing::new(ring.kernel, ring.params.ring_dim(), Self::BITS);
        Self { p0: ring.round_at_random(p0, modulus_bits, prg), ring, modulus_bits }
    }

    /// The first coefficients of each of `parts` equal parts of `p0·u`, `[parts][out.len() / parts]`, u being what was transformed into
    /// `scratch` last.
    pub fn times_transformed(&self, scratch: &mut ZeroScratch, parts: usize, out: &mut [u64]) {
        let ZeroScratch { u, product } = scratch;
        self.ring.multiply_into(&self.p0, u, product, self.modulus_bits, parts, out);
    }

    /// Room to compute in.
    pub fn scratch(&self) -> ZeroScratch {
        ZeroScratch { u: self.ring.small(), product: self.ring.residues() }
    }
}

/// The server's randomness of one response to one client: u and e1 of its zero-encryption. Made anew from the
/// client's hint key whenever it is needed, never stored.
pub struct Rerandomiser {
    u: SmallPoly,
    noise: Prg,
}

impl Rerandomiser {
    /// The randomness of response `index` of layer `layer` for the client whose hint key this is.
    ///
    /// Every (key, layer, index) names another zero-encryption; no two responses may share one.
    pub fn new(ring: &Ring, hint_key: &[u8; 32], layer: usize, index: usize) -> Self {
        let mut prg = Prg::derive(hint_key, "jaguar re-randomisation", &[layer as u64, index as u64]);
        let u = ring.ternary(&mut prg);
        Self { u, noise: prg }
    }

    /// `A = a + p1·u + e1`: the hint of this response. Every call gives the same.
    pub fn hint(mut self, ring: &Ring, a: &[u64], p1: &WideNtt) -> Vec<u64> {
        let mut out = vec![0; a.len()];
        let u = ring.multiplier.prepare_small(self.u.coefficients());
        ring.multiplier.multiply(p1, &u, &mut out);
        ring.add_noise(&mut self.noise, &mut out);
        let mask = ring.params.mask();
        out.iter_mut().zip(a).for_each(|(o, &a)| *o = o.wrapping_add(a) & mask);
        out
    }

    /// Transforms u, for products with several keys ([`ZeroKey::times_transformed`]) of the ring that `p0` is of.
    pub fn transform_into(&self, p0: &ZeroKey, scratch: &mut ZeroScratch) {
        p0.ring.small_into(self.u.coefficients(), &mut scratch.u);
    }
}

/// The client's share of a value whose masked phase it holds: `phase >> (k - n)`.
pub fn client_share(phase: u64, params: &Parameters, bits: u32) -> u64 {
    (phase & params.mask()) >> (params.modulus_bits() - bits)
}

/// The server's share of a value whose phase it masked with `r`: `-(r >> (k - n)) mod 2^n`.
pub fn server_share(r: u64, params: &Parameters, bits: u32) -> u64 {
    ((r & params.mask()) >> (params.modulus_bits() - bits)).wrapping_neg() & ((1 << bits) - 1)
}
