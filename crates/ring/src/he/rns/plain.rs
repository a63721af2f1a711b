//! Plaintexts: integers modulo t, and the multiples of Q/t that stand for them.

use crate::modular::{Factor, Modulus, slices};
use zeroize::Zeroizing;

use super::{Coefficients, Poly, Ring};
use crate::he::params::ParameterError;

/// Bits of fractions, with room for the sum of more than a hundred.
const FRACTION_BITS: u32 = 120;

/// t, with what encoding and decoding take in a ring and those with fewer of its primes.
#[derive(Clone)]
pub struct PlainModulus {
    t: Modulus,
    /// What is needed modulo each prime.
    limbs: Vec<Limb>,
    /// By number of limbs less one: Q modulo t.
    modulus_mod_t: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Limb {
    /// -1/t modulo p.
    negated: Factor,
    /// `floor(t / p)`.
    whole: u64,
    /// t modulo p.
    rest: Factor,
}

impl PlainModulus {
    /// Plaintexts modulo `t`, of 2 to 60 bits, in `ring` and in those with fewer of its primes.
    ///
    /// # Errors
    /// If t has not so many bits, or is a multiple of one of the primes.
    pub fn new(ring: &Ring, t: u64) -> Result<Self, ParameterError> {
        let bits = u64::BITS - t.leading_zeros();
        if !(2..=crate::modular::MAX_BITS).contains(&bits) {
            return Err(ParameterError::PlainModulus { t });
        }
        let limb = |m: &Modulus| {
            let inverse = m.inverse(t).ok_or(ParameterError::PlainModulus { t })?;
            Ok(Limb { negated: m.factor(m.negate(inverse)), whole: t / m.value(), rest: m.factor(t) })
        };
        let limbs = ring.moduli().map(limb).collect::<Result<_, _>>()?;
        let t = Modulus::new(t);
        let mut levels: Vec<u64> = std::iter::successors(Some(ring.clone()), Ring::smaller)
            .map(|ring| ring.modulus_mod(&t))
            .collect();
        levels.reverse();
        Ok(Self { t, limbs, modulus_mod_t: levels })
    }

    /// t: plaintexts are modulo this.
    pub fn value(&self) -> u64 {
        self.t.value()
    }

    /// t, as a modulus to calculate with.
    pub fn modulus(&self) -> &Modulus {
        &self.t
    }

    /// `round(Q·m/t)` for every m of `message`, N numbers of any size that are taken modulo t. The rounding is to the
    /// nearest, halves downwards.
    ///
    /// # Panics
    /// If there are not N.
    pub fn scale(&self, ring: &Ring, message: &[u64]) -> Poly<Coefficients> {
        assert_eq!(message.len(), ring.n(), "coefficients of a message");
        let (t, half) = (&self.t, self.value() / 2);
        // With c = Q·m + h modulo t, t·round(Q·m/t) = Q·m + h - c, and Q is zero modulo p.
        let q = t.factor(self.modulus_mod_t[ring.limbs() - 1]);
        let [mut residues, mut c] = [0; 2].map(|word| Zeroizing::new(vec![word; ring.n()]));
        slices::reduce(ring.kernel(), t, &mut residues, message);
        slices::affine(ring.kernel(), t, &mut c, &residues, t.bits(), q, half);
        let mut scaled = ring.zero();
        for ((p, words), limb) in ring.limbs_mut(&mut scaled).zip(&self.limbs) {
            let addend = p.negate(p.mul_factor(half, limb.negated));
            slices::affine(ring.kernel(), p, words, &c, t.bits(), limb.negated, addend);
        }
        scaled
    }

    /// `round(x·t/Q)` modulo t for every coefficient x: the message of a phase whose noise is below
    /// `Q/(2t)`.
    ///
    /// With `y = x·(Q/p)^-1` modulo p, that is `Σ y·t/p` but for a multiple of t: whole parts are added modulo t,
    /// fractions with 120 bits. Each is too low by less than 2^-67: it has to be right for numbers of which one in 2^-40 over all of a
    /// query may be rounded the wrong way.
    pub fn round(&self, ring: &Ring, phase: &Poly<Coefficients>) -> Zeroizing<Vec<u64>> {
        assert_eq!(phase.residues().len(), ring.words(), "a phase of another ring");
        let mut whole = Zeroizing::new(vec![0u64; ring.n()]);
        let mut fractions = Zeroizing::new(vec![1u128 << (FRACTION_BITS - 1); ring.n()]);
        let limbs = ring.moduli().zip(ring.reconstruction()).zip(&self.limbs);
        for (((p, (inverse, per_prime)), limb), x) in limbs.zip(phase.residues().chunks_exact(ring.n())) {
            for ((whole, fraction), &x) in whole.iter_mut().zip(fractions.iter_mut()).zip(x) {
                let y = p.mul_factor(x, inverse);
                let (quotient, rest) = p.divide_product(y, limb.rest);
                // The floor of y·t/p, which is below t.
                *whole = self.t.add(*whole, quotient + limb.whole * y);
                *fraction += u128::from(rest).wrapping_mul(per_prime) >> (u128::BITS - FRACTION_BITS);
            }
        }
        for (whole, fraction) in whole.iter_mut().zip(fractions.iter()) {
            *whole = self.t.add(*whole, self.t.reduce((fraction >> FRACTION_BITS) as u64));
        }
        whole
    }

    /// The numbers in `-t/2..t/2` that numbers modulo t stand for.
    pub fn centred(&self, values: &[u64]) -> Vec<i64> {
        values.iter().map(|&v| self.t.centred(self.t.reduce(v))).collect()
    }
}
