//! Negacyclic transforms of length M modulo primes below `2^14`, in lanes of 16 bits: every lane is a transform of
//! its own.
//!
//! As `product::ntt` does in lanes of 32 bits (Longa and Naehrig, CANS 2016; Harvey, 2014): powers of a primitive 2M-th root
//! psi merged into the butterflies, lanes below 4p < `2^16` on the way forward and below 2p on the way back.

use crate::product::ntt::{invert, power, root_of_unity};
use crate::simd::Lanes16;

/// The largest primes below `2^14` that are 1 modulo 256, so that lengths up to 128 have roots.
pub(super) const PRIMES: [u16; 6] = [15361, 14593, 14081, 13313, 12289, 11777];

/// Longest transform.
pub(super) const MAX_LENGTH: usize = 128;

/// The 32-bit lane whose halves are both `value`.
pub(super) fn both(value: u16) -> u32 {
    u32::from(value) * 0x1_0001
}

/// The 32-bit lane of two signed halves.
pub(super) fn pair(low: i16, high: i16) -> u32 {
    u32::from(low as u16) | u32::from(high as u16) << 16
}

/// A factor w < p and `floor(2^16 w / p)`, each in both halves.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    value: u32,
    quotient: u32,
}

impl Factor {
    pub(super) fn new(value: u64, prime: u16) -> Factor {
        let value = value % u64::from(prime);
        Factor { value: both(value as u16), quotient: both(((value << 16) / u64::from(prime)) as u16) }
    }
}

/// `x * factor` modulo p, in `0..2p`, for any x below `2^16`.
#[inline(always)]
pub(super) fn mul_factor<S: Lanes16>(simd: S, x: S::V, factor: Factor, p: S::V) -> S::V {
    let estimate = simd.mul_hi16(x, simd.splat(factor.quotient));
    simd.sub16(simd.mul_lo16(x, simd.splat(factor.value)), simd.mul_lo16(estimate, p))
}

/// x modulo `modulus` for `x < 2 * modulus`.
#[inline(always)]
pub(super) fn reduce<S: Lanes16>(simd: S, x: S::V, modulus: S::V) -> S::V {
    simd.min16(x, simd.sub16(x, modulus))
}

/// The residue nearest to zero, a signed lane in `-h..=h` with `h = (p - 1) / 2`, of an x below 4p.
#[inline(always)]
pub(super) fn centre<S: Lanes16>(simd: S, x: S::V, prime: u16) -> S::V {
    let (p, p2, h) = (simd.splat(both(prime)), simd.splat(both(2 * prime)), simd.splat(both(prime / 2)));
    // Below 2p, below 2.5p, below 2p, below p.
    let x = simd.add16(reduce(simd, x, p2), h);
    simd.sub16(reduce(simd, reduce(simd, x, p2), p), h)
}

/// `S / 2^16` modulo p of signed 32-bit lanes S with `|S| <= 2^30`, as 32-bit lanes whose upper halves are signed
/// residues between -2p and 2p, and whose lower ones are zero (Montgomery).
#[inline(always)]
pub(super) fn montgomery<S: Lanes16>(simd: S, sum: S::V, tables: &Tables) -> S::V {
    // S and m p agree in their low halves; the high ones are at most 2^14 and p/2.
    let m = simd.mul_lo16(sum, simd.splat(tables.inverse));
    simd.dot(sum, m, simd.splat(tables.minus_prime))
}

/// A residue between -2p and 2p, in `0..2p`: of the two candidates, the one that is a small unsigned number.
#[inline(always)]
pub(super) fn lift<S: Lanes16>(simd: S, x: S::V, prime: u16) -> S::V {
    simd.min16(x, simd.add16(x, simd.splat(both(2 * prime))))
}

/// What transforms modulo one prime need.
pub(super) struct Tables {
    pub(super) prime: u16,
    /// `1/p` modulo `2^16` in the lower half, zero in the upper.
    inverse: u32,
    /// `-p` in the lower half, zero in the upper.
    minus_prime: u32,
    /// 1 and `2^16` modulo p: takes a 32-bit sum to 29 bits.
    pub(super) fold: u32,
    /// `2^16 2^(16 i)` modulo p for the limbs i of a word, in pairs.
    pub(super) limbs: [u32; 2],
    /// Roots of block i in the stage with m blocks, at m + i: of psi, and of its inverse.
    pub(super) roots: Vec<Factor>,
    pub(super) inverse_roots: Vec<Factor>,
    /// `1/Y` at each frequency, in the order in which [`forward`] leaves them.
    pub(super) turns: Vec<Factor>,
}

/// The residue nearest to zero.
pub(super) fn centred(value: u64, prime: u16) -> i16 {
    let value = (value % u64::from(prime)) as i16;
    if value > prime as i16 / 2 { value - prime as i16 } else { value }
}

impl Tables {
    /// For length `m`, a power of two up to [`MAX_LENGTH`].
    pub(super) fn new(m: usize, prime: u16) -> Tables {
        assert!(m.is_power_of_two() && (2..=MAX_LENGTH).contains(&m));
        let p = u32::from(prime);
        let psi = root_of_unity(2 * m, p);
        let psi_inverse = invert(psi, p);
        let bits = m.trailing_zeros();
        let reversed = |i: usize| (i.reverse_bits() >> (usize::BITS - bits)) as u64;
        let roots = |psi: u64| (0..m).map(|i| Factor::new(power(psi, reversed(i), p), prime)).collect();
        // Newton's iteration doubles the number of correct low bits: 3, 6, 12, 24.
        let inverse = (0..3).fold(prime, |x, _| x.wrapping_mul(2u16.wrapping_sub(prime.wrapping_mul(x))));
        let limb = |i: u32| centred(power(2, 16 * u64::from(i) + 16, p), prime);
        Tables {
            prime,
            inverse: u32::from(inverse),
            minus_prime: u32::from(prime.wrapping_neg()),
            fold: pair(1, centred(1 << 16, prime)),
            limbs: [pair(limb(0), limb(1)), pair(limb(2), limb(3))],
            roots: roots(psi),
            inverse_roots: roots(psi_inverse),
            // Frequency t is psi^(2 rev(t) + 1).
            turns: (0..m).map(|t| Factor::new(power(psi_inverse, 2 * reversed(t) + 1, p), prime)).collect(),
        }
    }
}

/// Values at all frequencies of the polynomials in Y whose coefficient m lies in the m-th part of `data`; M parts of equal
/// length, in place. Lanes below 4p in, below 4p out.
#[inline(always)]
pub(super) fn forward<S: Lanes16>(simd: S, data: &mut [S::V], m: usize, roots: &[Factor], prime: u16) {
    let (p, p2) = (simd.splat(both(prime)), simd.splat(both(2 * prime)));
    let part = data.len() / m;
    let (mut half, mut blocks) = (m / 2, 1);
    while half >= 1 {
        for (block, &root) in data.chunks_exact_mut(2 * half * part).zip(&roots[blocks..]) {
            let (left, right) = block.split_at_mut(half * part);
            for (x, y) in left.iter_mut().zip(right) {
                let a = reduce(simd, *x, p2);
                let b = mul_factor(simd, *y, root, p);
                (*x, *y) = (simd.add16(a, b), simd.add16(simd.sub16(a, b), p2));
            }
        }
        blocks *= 2;
        half /= 2;
    }
}

/// Inverse of [`forward`] times M, with the inverse roots. Lanes below 2p in, below 2p out.
#[inline(always)]
pub(super) fn backward<S: Lanes16>(simd: S, data: &mut [S::V], m: usize, roots: &[Factor], prime: u16) {
    let (p, p2) = (simd.splat(both(prime)), simd.splat(both(2 * prime)));
    let part = data.len() / m;
    let (mut half, mut blocks) = (1, m / 2);
    while blocks >= 1 {
        for (block, &root) in data.chunks_exact_mut(2 * half * part).zip(&roots[blocks..]) {
            let (left, right) = block.split_at_mut(half * part);
            for (x, y) in left.iter_mut().zip(right) {
                let difference = simd.add16(simd.sub16(*x, *y), p2);
                *x = reduce(simd, simd.add16(*x, *y), p2);
                *y = mul_factor(simd, difference, root, p);
            }
        }
        blocks /= 2;
        half *= 2;
    }
}
