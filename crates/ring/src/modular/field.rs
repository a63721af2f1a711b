//! Products modulo p in vectors: by products of 32-bit halves, or with IFMA by products of 52 bits.

// Other processors run the scalar twins only.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use super::Modulus;
use crate::simd::Wide;

/// A factor and its quotient, in all lanes or one for each.
pub(super) type Factors<W> = (W, W);

/// What a modulus takes, in all lanes.
#[derive(Clone, Copy)]
pub(super) struct Constants<W> {
    pub(super) p: W,
    pub(super) p2: W,
    bits: u32,
    barrett: W,
    one: Factors<W>,
    /// By what the upper part of a [`Field::Sum`] counts.
    carry: Factors<W>,
}

/// Arithmetic modulo p in the lanes of vectors. The results are those of [`Modulus`].
pub(super) trait Field: Wide {
    /// Words that factors and products may have.
    const WORD_BITS: u32;
    /// Bits of the lower part of a sum of products.
    const CARRY_BITS: u32;
    /// So many products may be added up.
    const TERMS: usize;
    /// Whether values that are multiplied must be below 2p, for 4p may not fit `WORD_BITS`.
    const TIGHT: bool;
    /// A sum of products.
    type Sum: Copy;

    /// The upper `WORD_BITS` bits of a word.
    fn quotient(self, quotient: Self::W) -> Self::W;
    /// `x factor` modulo p, in `0..2p`, for any x of `WORD_BITS` bits.
    fn mul_factor_lazy(self, x: Self::W, factor: Factors<Self::W>, p: Self::W) -> Self::W;
    /// Upper and lower part of a product, the lower one of `WORD_BITS` bits.
    fn mul_wide(self, x: Self::W, y: Self::W) -> (Self::W, Self::W);
    /// The upper part of [`mul_wide`](Self::mul_wide).
    fn mul_upper(self, x: Self::W, y: Self::W) -> Self::W;
    /// `a - x y`, its lowest `WORD_BITS` bits.
    fn sub_product(self, a: Self::W, x: Self::W, y: Self::W) -> Self::W;

    fn no_sum(self) -> Self::Sum;
    /// Adds a product of residues.
    fn add_product(self, sum: Self::Sum, x: Self::W, y: Self::W) -> Self::Sum;
    /// Upper and lower part of a sum, which is lower + `2^CARRY_BITS`·upper; both have at most `WORD_BITS` bits.
    fn parts(self, sum: Self::Sum) -> (Self::W, Self::W);

    /// `value` and its quotient in all lanes.
    #[inline(always)]
    fn factor(self, factor: super::Factor) -> Factors<Self::W> {
        (self.splat(factor.value), self.quotient(self.splat(factor.quotient)))
    }

    #[inline(always)]
    fn constants(self, m: &Modulus) -> Constants<Self::W> {
        Constants {
            p: self.splat(m.value),
            p2: self.splat(2 * m.value),
            bits: m.bits,
            // So that the upper part of a product with it is the quotient.
            barrett: self.splat(m.barrett << (Self::WORD_BITS - 1 - m.bits)),
            one: self.factor(m.factor(1)),
            carry: self.factor(m.factor(1 << Self::CARRY_BITS)),
        }
    }

    /// x modulo `modulus` for `x < 2 modulus`.
    #[inline(always)]
    fn reduce(self, x: Self::W, modulus: Self::W) -> Self::W {
        self.wrap(self.sub(x, modulus), modulus)
    }

    /// x modulo p for `x < 4p`.
    #[inline(always)]
    fn reduce_twice(self, x: Self::W, c: &Constants<Self::W>) -> Self::W {
        self.reduce(self.reduce(x, c.p2), c.p)
    }

    /// What butterflies leave, modulo p.
    #[inline(always)]
    fn reduce_last(self, x: Self::W, c: &Constants<Self::W>) -> Self::W {
        if Self::TIGHT { self.reduce(x, c.p) } else { self.reduce_twice(x, c) }
    }

    /// A word modulo p, in `0..2p`.
    #[inline(always)]
    fn residue_lazy(self, x: Self::W, c: &Constants<Self::W>) -> Self::W {
        self.mul_factor_lazy(x, c.one, c.p)
    }

    /// x modulo 2p for x in `-2p..2p`.
    #[inline(always)]
    fn wrap_twice(self, x: Self::W, c: &Constants<Self::W>) -> Self::W {
        self.wrap(x, c.p2)
    }

    /// `x y` modulo p for residues, as [`Modulus::reduce_product`] has it.
    #[inline(always)]
    fn product(self, x: Self::W, y: Self::W, c: &Constants<Self::W>) -> Self::W {
        if Self::TIGHT {
            // (What Barrett's estimate leaves is below 3p.)
            return self.residue(self.add_product(self.no_sum(), x, y), c);
        }
        let (high, low) = self.mul_wide(x, y);
        let shifted = self.add(self.shl(high, Self::WORD_BITS + 1 - c.bits), self.shr(low, c.bits - 1));
        let estimate = self.mul_upper(shifted, c.barrett);
        self.reduce_twice(self.sub_product(low, estimate, c.p), c)
    }

    /// A sum modulo p.
    #[inline(always)]
    fn residue(self, sum: Self::Sum, c: &Constants<Self::W>) -> Self::W {
        let (high, low) = self.parts(sum);
        let high = self.mul_factor_lazy(high, c.carry, c.p);
        self.reduce_twice(self.add(high, self.residue_lazy(low, c)), c)
    }
}

/// `x factor` modulo p, in `0..2p`, for any word x and a quotient of 64 bits.
#[inline(always)]
pub(super) fn mul_factor_lazy_64<S: Wide>(
    simd: S,
    x: S::W,
    (value, quotient): Factors<S::W>,
    p: S::W,
) -> S::W {
    let estimate = simd.mul_hi(x, quotient);
    simd.sub(simd.mul_lo(x, value), simd.mul_lo(estimate, p))
}

/// Bits of a half, where products of halves are added up.
const HALF_BITS: u32 = 30;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::simd::{Avx2, Avx512, Avx512Ifma, Avx512Tight, Fused};

    macro_rules! by_halves {
        ($($token:ty),*) => {
            $(
                impl Field for $token {
                    const WORD_BITS: u32 = 64;
                    const CARRY_BITS: u32 = 2 * HALF_BITS;
                    // The middle is a sum of 16 products of at most (2^30 - 1)^2, and a carry of 2^33.
                    const TERMS: usize = 8;
                    const TIGHT: bool = false;
                    type Sum = [Self::W; 3];

                    #[inline(always)]
                    fn quotient(self, quotient: Self::W) -> Self::W {
                        quotient
                    }
                    #[inline(always)]
                    fn mul_factor_lazy(self, x: Self::W, factor: Factors<Self::W>, p: Self::W) -> Self::W {
                        mul_factor_lazy_64(self, x, factor, p)
                    }
                    #[inline(always)]
                    fn mul_wide(self, x: Self::W, y: Self::W) -> (Self::W, Self::W) {
                        (self.mul_hi(x, y), Wide::mul_lo(self, x, y))
                    }
                    #[inline(always)]
                    fn mul_upper(self, x: Self::W, y: Self::W) -> Self::W {
                        self.mul_hi(x, y)
                    }
                    #[inline(always)]
                    fn sub_product(self, a: Self::W, x: Self::W, y: Self::W) -> Self::W {
                        Wide::sub(self, a, Wide::mul_lo(self, x, y))
                    }
                    #[inline(always)]
                    fn no_sum(self) -> Self::Sum {
                        [self.splat(0); 3]
                    }
                    #[inline(always)]
                    fn add_product(self, sum: Self::Sum, x: Self::W, y: Self::W) -> Self::Sum {
                        let mask = self.splat((1 << HALF_BITS) - 1);
                        let (x0, x1) = (self.and(x, mask), self.shr(x, HALF_BITS));
                        let (y0, y1) = (self.and(y, mask), self.shr(y, HALF_BITS));
                        let cross = self.add(self.mul_halves(x0, y1), self.mul_halves(x1, y0));
                        [
                            self.add(sum[0], self.mul_halves(x0, y0)),
                            self.add(sum[1], cross),
                            self.add(sum[2], self.mul_halves(x1, y1)),
                        ]
                    }
                    #[inline(always)]
                    fn parts(self, [low, mid, high]: Self::Sum) -> (Self::W, Self::W) {
                        let mask = self.splat((1 << HALF_BITS) - 1);
                        let mid = self.add(mid, self.shr(low, HALF_BITS));
                        let low = self.add(self.and(low, mask), self.shl(self.and(mid, mask), HALF_BITS));
                        (self.add(high, self.shr(mid, HALF_BITS)), low)
                    }
                }
            )*
        };
    }
    by_halves!(Avx2, Avx512);

    macro_rules! by_ifma {
        ($($token:ty, tight $tight:literal, terms $terms:literal;)*) => {
            $(
                impl Field for $token {
                    const WORD_BITS: u32 = 52;
                    const CARRY_BITS: u32 = 52;
                    const TERMS: usize = $terms;
                    const TIGHT: bool = $tight;
                    type Sum = [Self::W; 2];

                    #[inline(always)]
                    fn quotient(self, quotient: Self::W) -> Self::W {
                        self.shr(quotient, 12)
                    }
                    #[inline(always)]
                    fn mul_factor_lazy(self, x: Self::W, (value, quotient): Factors<Self::W>, p: Self::W) -> Self::W {
                        let zero = self.splat(0);
                        let estimate = self.add_mul_hi(zero, x, quotient);
                        self.sub_product(self.add_mul_lo(zero, x, value), estimate, p)
                    }
                    #[inline(always)]
                    fn mul_wide(self, x: Self::W, y: Self::W) -> (Self::W, Self::W) {
                        let zero = self.splat(0);
                        (self.add_mul_hi(zero, x, y), self.add_mul_lo(zero, x, y))
                    }
                    #[inline(always)]
                    fn mul_upper(self, x: Self::W, y: Self::W) -> Self::W {
                        self.add_mul_hi(self.splat(0), x, y)
                    }
                    #[inline(always)]
                    fn sub_product(self, a: Self::W, x: Self::W, y: Self::W) -> Self::W {
                        // (y is the same for many x.)
                        let negative = self.sub(self.splat(1 << 52), y);
                        self.and(self.add_mul_lo(a, x, negative), self.splat((1 << 52) - 1))
                    }
                    #[inline(always)]
                    fn no_sum(self) -> Self::Sum {
                        [self.splat(0); 2]
                    }
                    #[inline(always)]
                    fn add_product(self, sum: Self::Sum, x: Self::W, y: Self::W) -> Self::Sum {
                        [self.add_mul_lo(sum[0], x, y), self.add_mul_hi(sum[1], x, y)]
                    }
                    #[inline(always)]
                    fn parts(self, [low, high]: Self::Sum) -> (Self::W, Self::W) {
                        (self.add(high, self.shr(low, 52)), self.and(low, self.splat((1 << 52) - 1)))
                    }
                }
            )*
        };
    }
    // The upper part is a sum of numbers below 2^48, or below 2^50, and a carry.
    by_ifma!(
        Avx512Ifma, tight false, terms 15;
        Avx512Tight, tight true, terms 4;
    );
}
