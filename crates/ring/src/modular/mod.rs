//! Arithmetic modulo any prime of up to 60 bits, and number-theoretic transforms over it, in words of 64 bits.
//!
//! The transforms of [`product`](crate::product) work in lanes of 32 bits modulo primes below `2^30`. This module is for
//! rings whose primes are given from outside: fewer and larger ones, or one that is also the modulus of plaintexts.
//!
//! *Products* of two residues are reduced after Barrett; products with constants are Shoup's, a quotient being known
//! beforehand. *Transforms* are those of `product::ntt`: negacyclic, the powers of psi merged into the butterflies (Longa
//! and Naehrig, CANS 2016), sums reduced lazily (Harvey, "Faster arithmetic for number-theoretic transforms", 2014).
//!
//! | module | what is in it |
//! |---|---|
//! | this one | [`Modulus`] and what it does with one residue; [`Ntt`]; primes |
//! | [`slices`] | the same with many, on vector kernels |
//! | [`basis`] | numbers by their residues modulo some primes: their residues modulo others |
//!
//! Every kernel gives the same residues, below p, as plain Rust does. With AVX-512 IFMA, primes of up to 50 bits are faster
//! than larger ones, and those of 51 bits nearly as fast.
//!
//! Time and memory access depend on n and p only; the functions of this page's `impl` that are meant for tables and for
//! public numbers say so.

pub mod basis;
mod butterflies;
mod field;
mod ntt;
mod primes;
pub mod slices;
mod sums;
mod vector;

pub use ntt::{LENGTHS, Ntt};
pub use primes::{is_prime, primes};

/// Most bits of a prime whose residues AVX-512 IFMA multiplies: four times one fits 52 bits.
pub const NARROW_BITS: u32 = 50;

/// Bits of a prime whose residues it multiplies somewhat slower: two times one fits 52 bits.
pub const TIGHT_BITS: u32 = 51;

/// Most bits of a prime: four times a residue fits a word with room to spare.
pub const MAX_BITS: u32 = 60;

/// A modulus of 2 to 60 bits, with what reductions take. A prime wherever an inverse is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulus {
    value: u64,
    bits: u32,
    /// `floor(2^(2 bits) / value)`.
    barrett: u64,
    /// `floor((2^64 - 1) / value)`.
    quotient: u64,
}

/// A residue by which much is multiplied, and `floor(2^64 w / p)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    value: u64,
    quotient: u64,
}

impl Factor {
    /// The residue, below p.
    pub fn value(self) -> u64 {
        self.value
    }
}

/// x modulo `modulus` for `x < 2 modulus`, without a branch: the smaller of x and x - modulus as unsigned numbers.
#[inline(always)]
fn reduce_once(x: u64, modulus: u64) -> u64 {
    x.min(x.wrapping_sub(modulus))
}

impl Modulus {
    /// The modulus `value`.
    ///
    /// # Panics
    /// If it has fewer than 2 bits or more than [`MAX_BITS`].
    pub fn new(value: u64) -> Self {
        let bits = u64::BITS - value.leading_zeros();
        assert!((2..=MAX_BITS).contains(&bits), "a modulus of 2 to {MAX_BITS} bits, not {value}");
        let barrett = ((1u128 << (2 * bits)) / u128::from(value)) as u64;
        Self { value, bits, barrett, quotient: u64::MAX / value }
    }

    /// p: residues are modulo this prime.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// How many bits p has.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Any word modulo p.
    #[inline]
    pub fn reduce(&self, x: u64) -> u64 {
        let estimate = ((u128::from(x) * u128::from(self.quotient)) >> 64) as u64;
        // The quotient is too small by less than 2 for any x, the estimate by less than one more.
        let r = x.wrapping_sub(estimate.wrapping_mul(self.value));
        reduce_once(reduce_once(r, 2 * self.value), self.value)
    }

    /// A product of two residues, or any number below `2^(2 bits)`, modulo p.
    #[inline]
    pub(crate) fn reduce_product(&self, x: u128) -> u64 {
        debug_assert!(x >> (2 * self.bits) == 0);
        let estimate = (((x >> (self.bits - 1)) * u128::from(self.barrett)) >> (self.bits + 1)) as u64;
        // Below 3p.
        let r = (x as u64).wrapping_sub(estimate.wrapping_mul(self.value));
        reduce_once(reduce_once(r, 2 * self.value), self.value)
    }

    /// A signed number modulo p.
    #[inline]
    pub fn reduce_signed(&self, x: i64) -> u64 {
        let r = self.reduce(x.unsigned_abs());
        let negative = (x >> 63) as u64;
        // p - r where x is negative, r elsewhere.
        reduce_once((r ^ negative).wrapping_sub(negative).wrapping_add(negative & self.value), self.value)
    }

    /// `a + b` for residues.
    #[inline]
    pub fn add(&self, a: u64, b: u64) -> u64 {
        reduce_once(a + b, self.value)
    }

    /// `a - b` for residues.
    #[inline]
    pub fn sub(&self, a: u64, b: u64) -> u64 {
        reduce_once(a + self.value - b, self.value)
    }

    /// `-a` for a residue.
    #[inline]
    pub fn negate(&self, a: u64) -> u64 {
        reduce_once(self.value - a, self.value)
    }

    /// `a b` for residues.
    #[inline]
    pub fn mul(&self, a: u64, b: u64) -> u64 {
        self.reduce_product(u128::from(a) * u128::from(b))
    }

    /// The residue in `-p/2..p/2` that a residue stands for.
    #[inline]
    pub fn centred(&self, a: u64) -> i64 {
        let above = ((self.value / 2).wrapping_sub(a) as i64 >> 63) as u64;
        a.wrapping_sub(above & self.value) as i64
    }

    /// Prepares `value`, of any size, as a factor. For tables: a division.
    pub fn factor(&self, value: u64) -> Factor {
        let value = value % self.value;
        Factor { value, quotient: ((u128::from(value) << 64) / u128::from(self.value)) as u64 }
    }

    /// `x factor` modulo p, in `0..2p`, for any word x.
    #[inline(always)]
    pub(crate) fn mul_factor_lazy(&self, x: u64, factor: Factor) -> u64 {
        let estimate = ((u128::from(x) * u128::from(factor.quotient)) >> 64) as u64;
        x.wrapping_mul(factor.value).wrapping_sub(estimate.wrapping_mul(self.value))
    }

    /// `x factor` modulo p, for any word x.
    #[inline(always)]
    pub fn mul_factor(&self, x: u64, factor: Factor) -> u64 {
        reduce_once(self.mul_factor_lazy(x, factor), self.value)
    }

    /// `floor(x w / p)` and `x w` modulo p, for any word x and `factor` w.
    #[inline]
    pub fn divide_product(&self, x: u64, factor: Factor) -> (u64, u64) {
        let estimate = ((u128::from(x) * u128::from(factor.quotient)) >> 64) as u64;
        let lazy = x.wrapping_mul(factor.value).wrapping_sub(estimate.wrapping_mul(self.value));
        let rest = reduce_once(lazy, self.value);
        (estimate + u64::from(rest != lazy), rest)
    }

    /// `base^exponent`. Variable time in the exponent, which is public.
    pub(crate) fn power_vt(&self, base: u64, mut exponent: u64) -> u64 {
        let (mut square, mut result) = (base % self.value, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = self.mul(result, square);
            }
            square = self.mul(square, square);
            exponent >>= 1;
        }
        result
    }

    /// `1/a`, if p is prime and a no multiple of it.
    pub fn inverse(&self, a: u64) -> Option<u64> {
        let inverse = self.power_vt(a, self.value - 2);
        (self.mul(inverse, a % self.value) == 1).then_some(inverse)
    }
}

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod tests;
