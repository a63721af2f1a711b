//! Numbers by their residues modulo some primes, the *sources*: their residues modulo another prime, the *target*
//! (basis extension).
//!
//! Let D be the product of the sources q_i, and `y_i = x·(D/q_i)^-1 mod q_i` for a number x. Then
//!
//! ```text
//! x = Σ_i y_i·(D/q_i) - v·D,   v = round(Σ_i y_i / q_i)   for -D/2 < x < D/2
//! ```
//!
//! The quotient v is computed with fractions of 49 bits (Halevi, Polyakov and Shoup, CT-RSA 2019, section 2.2, have
//! them in floating point). It is exact unless x is within `D·count·2^-48` of ±D/2; there what comes out is x or x -
//! D, the same for all targets.
//!
//! Every kernel gives the same residues. All primes have at most [`NARROW_BITS`] bits. All functions panic if slices
//! that belong together have not one length, and if that is no multiple of [`BLOCK`](super::slices::BLOCK).

// Other processors run the scalar twins only.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use super::field::{Constants, Field};
use super::{Modulus, NARROW_BITS};
use crate::kernel::Kernel;
use crate::simd::multiversion_wide;

/// Bits of a fraction.
const FRACTION_BITS: u32 = NARROW_BITS - 1;

/// Most sources: sums of fractions fit a word.
const MOST_SOURCES: usize = 1 << 12;

/// `1/q` for a source q.
#[derive(Clone, Copy, Debug)]
pub struct Fraction {
    /// Residues are shifted left by this, to 50 bits.
    shift: u32,
    /// `floor(2^(bits + 51) / q)`: 52 bits.
    inverse: u64,
}

impl Fraction {
    /// Of this source.
    ///
    /// # Panics
    /// If it has more than [`NARROW_BITS`] bits or is a power of two.
    pub fn new(source: &Modulus) -> Self {
        let (value, bits) = (source.value(), source.bits());
        assert!(
            bits <= NARROW_BITS && !value.is_power_of_two(),
            "an odd source of {NARROW_BITS} bits, not {value}"
        );
        Self { shift: NARROW_BITS - bits, inverse: ((1u128 << (bits + 51)) / u128::from(value)) as u64 }
    }
}

fn check(terms: &[&[u64]], out: &[u64]) {
    assert!(terms.iter().all(|term| term.len() == out.len()), "slices of one length");
    assert!(out.len().is_multiple_of(super::slices::BLOCK), "whole vectors");
}

/// `out = round(Σ_i terms[i] / q_i)`, terms\[i\] being residues modulo source i.
///
/// # Panics
/// Also if there are not as many fractions as terms, or more than 4096.
pub fn quotients(kernel: Kernel, terms: &[&[u64]], fractions: &[Fraction], out: &mut [u64]) {
    check(terms, out);
    assert!(terms.len() == fractions.len() && terms.len() <= MOST_SOURCES, "a fraction for each term");
    run_quotients(kernel, true, terms, fractions, out);
}

/// `out = Σ_i weights[i]·terms[i]` modulo p. Weights are residues below p; terms words of up to 50 bits, of any
/// modulus.
///
/// # Panics
/// Also if there are not as many weights as terms, or p has more than [`NARROW_BITS`] bits.
pub fn combine(kernel: Kernel, m: &Modulus, terms: &[&[u64]], weights: &[u64], out: &mut [u64]) {
    check(terms, out);
    assert!(terms.len() == weights.len(), "a weight for each term");
    assert!(super::vector::narrow(m), "a target of at most {NARROW_BITS} bits");
    run_combine(kernel, true, m, terms, weights, out);
}

#[inline(always)]
fn vector_quotients<S: Field>(simd: S, terms: &[&[u64]], fractions: &[Fraction], out: &mut [u64]) {
    for (i, out) in out.chunks_exact_mut(S::LANES).enumerate() {
        // A half, for rounding.
        let mut sum = simd.splat(1 << (FRACTION_BITS - 1));
        for (term, fraction) in terms.iter().zip(fractions) {
            let term = simd.shl(simd.load(&term[i * S::LANES..]), fraction.shift);
            let inverse = simd.splat(fraction.inverse << (S::WORD_BITS - 52));
            sum = simd.add(sum, simd.mul_upper(term, inverse));
        }
        simd.store(out, simd.shr(sum, FRACTION_BITS));
    }
}

fn quotient_words(terms: &[&[u64]], fractions: &[Fraction], out: &mut [u64]) {
    for (i, out) in out.iter_mut().enumerate() {
        let part = |(term, fraction): (&&[u64], &Fraction)| {
            ((u128::from(term[i] << fraction.shift) * u128::from(fraction.inverse)) >> 52) as u64
        };
        let sum: u64 = terms.iter().zip(fractions).map(part).sum();
        *out = (sum + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS;
    }
}

multiversion_wide!(
    fn run_quotients(terms: &[&[u64]], fractions: &[Fraction], out: &mut [u64]) = vector_quotients,
    scalar quotient_words
);

#[inline(always)]
fn vector_combine<S: Field>(simd: S, m: &Modulus, terms: &[&[u64]], weights: &[u64], out: &mut [u64]) {
    let c = &simd.constants(m);
    let whole = out.len() - out.len() % (VECTORS * S::LANES);
    let (blocks, rest) = out.split_at_mut(whole);
    for (i, out) in blocks.chunks_exact_mut(VECTORS * S::LANES).enumerate() {
        combine_vectors::<S, VECTORS>(simd, c, terms, weights, i * VECTORS * S::LANES, out);
    }
    for (i, out) in rest.chunks_exact_mut(S::LANES).enumerate() {
        combine_vectors::<S, 1>(simd, c, terms, weights, whole + i * S::LANES, out);
    }
}

/// Sums that are made side by side: a weight is read once for all of them.
const VECTORS: usize = 4;

/// The words from `at` on, so many vectors of them.
#[inline(always)]
fn combine_vectors<S: Field, const VECTORS: usize>(
    simd: S,
    c: &Constants<S::W>,
    terms: &[&[u64]],
    weights: &[u64],
    at: usize,
    out: &mut [u64],
) {
    let mut totals = [simd.splat(0); VECTORS];
    for (terms, weights) in terms.chunks(S::TERMS).zip(weights.chunks(S::TERMS)) {
        let mut sums = [simd.no_sum(); VECTORS];
        for (term, &weight) in terms.iter().zip(weights) {
            let (words, weight) = (&term[at..at + VECTORS * S::LANES], simd.splat(weight));
            for v in 0..VECTORS {
                sums[v] = simd.add_product(sums[v], simd.load(&words[v * S::LANES..]), weight);
            }
        }
        for v in 0..VECTORS {
            totals[v] = simd.reduce(simd.add(totals[v], simd.residue(sums[v], c)), c.p);
        }
    }
    for (out, total) in out.chunks_exact_mut(S::LANES).zip(totals) {
        simd.store(out, total);
    }
}

fn combine_words(m: &Modulus, terms: &[&[u64]], weights: &[u64], out: &mut [u64]) {
    for (i, out) in out.iter_mut().enumerate() {
        let products = terms.iter().zip(weights).map(|(term, &weight)| m.mul(m.reduce(term[i]), weight));
        *out = products.fold(0, |sum, product| m.add(sum, product));
    }
}

multiversion_wide!(
    fn run_combine(m: &Modulus, terms: &[&[u64]], weights: &[u64], out: &mut [u64]) = vector_combine,
    scalar combine_words
);
