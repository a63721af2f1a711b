//! Rings of up to three primes of 30 bits, on vector kernels in lanes of 32 bits, and the keys of protocols in which both
//! halves of a response leave the ring by rounding to powers of two (Cheetah, USENIX Security 2022).
//!
//! Polynomials are those of [`crate::product::rns`]. Randomness comes from the caller, who says by which label it is
//! derived: what both parties expand must be alike.

use crate::Kernel;
use crate::cpu::Cpu;
use crate::prg::Prg;
use crate::product::rns::{LIMB_BITS, LIMBS, Rns, RnsNtt, RnsPoly, RnsSmall, RnsSum};
use crate::product::{Multiplier, SmallNtt};
use crate::sample;
use zeroize::Zeroizing;

use crate::he::params::RnsParameters;

/// The ring of a parameter set, on the kernel of these that `cpu` allows; `None` if it has more than three primes, or others than of 30 bits, or if
/// N is above 8192.
pub fn ring(cpu: Cpu, params: &RnsParameters) -> Option<Rns> {
    let fits = |&p: &u64| p >> (LIMB_BITS - 1) == 1;
    let fits = params.primes().iter().all(fits) && LIMBS.contains(&params.primes().len());
    let primes: Vec<u32> = params.primes().iter().filter_map(|&p| p.try_into().ok()).collect();
    (fits && params.ring_dim() <= 8192).then(|| Rns::new(Kernel::of(cpu), params.ring_dim(), &primes))
}

/// The secret of one party: neither copied, printed nor stored.
pub struct SecretKey {
    rns: Rns,
    multiplier: Multiplier,
    /// s for products modulo q, and for those modulo a power of two.
    s: RnsSmall,
    s_binary: SmallNtt,
}

impl SecretKey {
    /// A ternary secret from `prg`.
    pub fn from_prg(rns: &Rns, prg: &mut Prg) -> Self {
        let multiplier = Multiplier::new(rns.kernel(), rns.n());
        let mut s = Zeroizing::new(vec![0i8; rns.n()]);
        sample::ternary(rns.kernel(), prg, &mut s);
        let (s, s_binary) = (rns.prepare_small(&s), multiplier.prepare_small(&s));
        Self { rns: rns.clone(), multiplier, s, s_binary }
    }

    /// The ring that the lanes are of.
    pub fn ring(&self) -> &Rns {
        &self.rns
    }

    /// `e - a·s`, the b half of an encryption of zero under a: once for every a. e is drawn from `noise`.
    pub fn encrypt_zero(&self, a: &RnsNtt, noise: &mut Prg) -> RnsPoly {
        let mut b = self.rns.multiply(a, &self.s);
        self.rns.negate(&mut b);
        let mut e = Zeroizing::new(vec![0i8; self.rns.n()]);
        sample::noise(self.rns.kernel(), noise, &mut e);
        self.rns.add_small(&mut b, &e);
        b
    }

    /// `a·s` for an a that was rounded to `2^bits`.
    ///
    /// # Panics
    /// If `a` or `out` has not N words, or `bits` is not in `1..=64`.
    pub fn multiply_rounded_into(&self, a: &[u64], bits: u32, out: &mut [u64]) {
        self.multiplier.multiply_into(a, bits, &self.s_binary, out);
    }
}

/// A public key (p0, p1), an encryption of zero, transformed: the other party makes encryptions of zero with it.
pub struct PublicKey {
    p0: RnsNtt,
    p1: RnsNtt,
}

/// The randomness of one encryption of zero under a public key, `(p1·u + e1, p0·u)`. Its b half has no noise of its own: it
/// is for protocols that add a uniform mask there.
pub struct Zero {
    u: RnsSmall,
    e1: Zeroizing<Vec<i8>>,
}

impl Zero {
    /// Fresh u and e1 from `prg`. No two responses may share them.
    pub fn from_prg(rns: &Rns, prg: &mut Prg) -> Self {
        let mut small = Zeroizing::new(vec![0; rns.n()]);
        sample::ternary(rns.kernel(), prg, &mut small);
        let u = rns.prepare_small(&small);
        sample::noise(rns.kernel(), prg, &mut small);
        Self { u, e1: small }
    }
}

impl PublicKey {
    /// Transforms.
    pub fn new(rns: &Rns, p0: RnsPoly, p1: RnsPoly) -> Self {
        Self { p0: rns.transform(p0), p1: rns.transform(p1) }
    }

    /// Adds an encryption of zero to both halves, which are sums of products, and transforms them back into `out`: `[a, b]`.
    pub fn rerandomise_into(&self, rns: &Rns, sums: &mut [RnsSum; 2], zero: &Zero, out: &mut [RnsPoly; 2]) {
        let ([sum_a, sum_b], [a, b]) = (sums, out);
        rns.add_product(sum_a, &self.p1, &zero.u);
        rns.add_product(sum_b, &self.p0, &zero.u);
        rns.invert_into(sum_a, a);
        rns.invert_into(sum_b, b);
        rns.add_small(a, &zero.e1);
    }
}
