//! Neon, of 64-bit Arm, behind the traits of vectors: 8 lanes in two registers of 128 bits, of which there are 32. So a loop's own
//! instructions are shared by as many lanes as with AVX2.
//!
//! There is no vector of [`Wide`](super::Wide) words here: Neon has no product of 64-bit lanes, and an Arm processor's scalar ones
//! (`mul`, `umulh`) take fewer instructions than what would be put together of halves. Kernels over those words are plain Rust on Arm.

use std::arch::aarch64::*;
use std::marker::PhantomData;

use super::{Dot, Lanes16, Line, Simd, inlined};
use crate::cpu::{Cpu, Feature};

/// Proof that the processor has Neon.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Neon(PhantomData<()>);

impl Neon {
    pub(crate) fn of(cpu: Cpu) -> Option<Neon> {
        cpu.has(Feature::Neon).then_some(Neon(PhantomData))
    }
}

/// 8 lanes of 32 bits.
type V = [uint32x4_t; 2];
/// 8 lanes of 64 bits.
type W = [uint64x2_t; 4];

/// `f` on each pair of registers.
#[inline(always)]
fn each<A: Copy, B: Copy, C, const N: usize>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> C) -> [C; N] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// `f` on each register of 32-bit lanes, whose halves become registers of 64-bit lanes.
#[inline(always)]
fn halves(a: V, f: impl Fn(uint32x4_t) -> [uint64x2_t; 2]) -> W {
    let [[first, second], [third, fourth]] = a.map(f);
    [first, second, third, fourth]
}

/// A function of 16-bit lanes on vectors of 32-bit lanes.
macro_rules! lanes16 {
    ($a:ident, $b:ident, $f:ident) => {
        each($a, $b, |a, b| vreinterpretq_u32_u16($f(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b))))
    };
}

/// The four 32-bit halves, low or high by `$unzip`, of two registers of 64-bit lanes.
macro_rules! halves_of {
    ($unzip:ident, $a:expr, $b:expr) => {
        $unzip(vreinterpretq_u32_u64($a), vreinterpretq_u32_u64($b))
    };
}

impl Simd for Neon {
    type V = V;
    type W = W;
    const LANES: usize = 8;

    #[inline(always)]
    fn view(self, lines: &[Line]) -> &[V] {
        // SAFETY: a line is two whole vectors, aligned to 64 bytes, and every bit pattern is a vector.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), 2 * lines.len()) }
    }
    #[inline(always)]
    fn view_mut(self, lines: &mut [Line]) -> &mut [V] {
        // SAFETY: as in `view`; the borrow of `lines` is exclusive and lasts as long as the result.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), 2 * lines.len()) }
    }
    // A product narrows its operands again, which takes nothing: the compiler sees that they are as they were.
    #[inline(always)]
    fn spread(self, a: V) -> W {
        self.widen(a)
    }
    #[inline(always)]
    fn load_words(self, words: &[u64]) -> W {
        let words: &[u64; 8] = words.first_chunk().expect("a vector of words");
        // SAFETY: 64 bytes are readable; the load needs no more alignment than words have.
        std::array::from_fn(|i| unsafe { vld1q_u64(words.as_ptr().add(2 * i)) })
    }
    #[inline(always)]
    fn store_words(self, words: &mut [u64], value: W) {
        let words: &mut [u64; 8] = words.first_chunk_mut().expect("a vector of words");
        for (words, value) in words.as_chunks_mut::<2>().0.iter_mut().zip(value) {
            // SAFETY: 16 bytes are writable; the store needs no more alignment than words have.
            unsafe { vst1q_u64(words.as_mut_ptr(), value) }
        }
    }

    inlined! { intrinsics:
        fn splat(self, value: u32) -> V { [vdupq_n_u32(value); 2] }
        fn add(self, a: V, b: V) -> V { each(a, b, |a, b| vaddq_u32(a, b)) }
        fn sub(self, a: V, b: V) -> V { each(a, b, |a, b| vsubq_u32(a, b)) }
        fn min(self, a: V, b: V) -> V { each(a, b, |a, b| vminq_u32(a, b)) }
        fn mul_lo(self, a: V, b: V) -> V { each(a, b, |a, b| vmulq_u32(a, b)) }
        fn mul_hi(self, a: V, b: V) -> V {
            each(a, b, |a, b| halves_of!(vuzp2q_u32, vmull_u32(vget_low_u32(a), vget_low_u32(b)), vmull_high_u32(a, b)))
        }
        fn zip(self, a: V, b: V) -> (V, V) {
            let of = |i: usize| [vzip1q_u32(a[i], b[i]), vzip2q_u32(a[i], b[i])];
            (of(0), of(1))
        }
        fn unzip(self, a: V, b: V) -> (V, V) {
            ([vuzp1q_u32(a[0], a[1]), vuzp1q_u32(b[0], b[1])], [vuzp2q_u32(a[0], a[1]), vuzp2q_u32(b[0], b[1])])
        }
        fn splat_word(self, value: u64) -> W { [vdupq_n_u64(value); 4] }
        fn add_words(self, a: W, b: W) -> W { each(a, b, |a, b| vaddq_u64(a, b)) }
        fn sub_words(self, a: W, b: W) -> W { each(a, b, |a, b| vsubq_u64(a, b)) }
        fn and_words(self, a: W, b: W) -> W { each(a, b, |a, b| vandq_u64(a, b)) }
        fn shl_words[const BITS: u32](self, a: W) -> W { a.map(|a| vshlq_u64(a, vdupq_n_s64(i64::from(BITS)))) }
        fn shr_words(self, a: W, count: u32) -> W { a.map(|a| vshlq_u64(a, vdupq_n_s64(-i64::from(count)))) }
        fn split_words(self, a: W) -> (V, V) {
            (
                [halves_of!(vuzp1q_u32, a[0], a[1]), halves_of!(vuzp1q_u32, a[2], a[3])],
                [halves_of!(vuzp2q_u32, a[0], a[1]), halves_of!(vuzp2q_u32, a[2], a[3])],
            )
        }
        fn widen(self, a: V) -> W { halves(a, |a| [vmovl_u32(vget_low_u32(a)), vmovl_high_u32(a)]) }
        fn mul_words(self, a: W, b: W) -> W { each(a, b, |a, b| vmull_u32(vmovn_u64(a), vmovn_u64(b))) }
        fn mul_low_words(self, a: W, b: W) -> W {
            each(a, b, |a, b| {
                // Each half of a times the other half of b, both products in one lane.
                let cross = vmulq_u32(vreinterpretq_u32_u64(a), vrev64q_u32(vreinterpretq_u32_u64(b)));
                vmlal_u32(vshlq_n_u64::<32>(vpaddlq_u32(cross)), vmovn_u64(a), vmovn_u64(b))
            })
        }
        fn join_high(self, a: W) -> V {
            [halves_of!(vuzp2q_u32, a[0], a[1]), halves_of!(vuzp2q_u32, a[2], a[3])]
        }
        fn reduce_high(self, a: W, modulus: W) -> W {
            // Low halves: the minimum of a number and itself.
            each(a, modulus, |a, modulus| {
                let (a, modulus) = (vreinterpretq_u32_u64(a), vreinterpretq_u32_u64(modulus));
                vreinterpretq_u64_u32(vminq_u32(a, vsubq_u32(a, modulus)))
            })
        }
    }
}

impl Dot for Neon {
    inlined! { intrinsics:
        fn dot(self, acc: V, a: V, b: V) -> V {
            let (a, b) = (a.map(|a| vreinterpretq_s16_u32(a)), b.map(|b| vreinterpretq_s16_u32(b)));
            std::array::from_fn(|i| {
                let products = [vmull_s16(vget_low_s16(a[i]), vget_low_s16(b[i])), vmull_high_s16(a[i], b[i])];
                vaddq_u32(acc[i], vreinterpretq_u32_s32(vpaddq_s32(products[0], products[1])))
            })
        }
        fn shr16_signed(self, a: V) -> V { a.map(|a| vreinterpretq_u32_s32(vshrq_n_s32::<16>(vreinterpretq_s32_u32(a)))) }
        fn and(self, a: V, b: V) -> V { each(a, b, |a, b| vandq_u32(a, b)) }
        fn widen_signed(self, a: V) -> W {
            halves(a, |a| {
                let a = vreinterpretq_s32_u32(a);
                [vmovl_s32(vget_low_s32(a)), vmovl_high_s32(a)].map(|a| vreinterpretq_u64_s64(a))
            })
        }
        fn pair_up(self, a: &[i16], b: &[i16]) -> (V, V) {
            let (a, b) = (limbs(a), limbs(b));
            let of = |i: usize| [vzip1q_s16(a[i], b[i]), vzip2q_s16(a[i], b[i])].map(|a| vreinterpretq_u32_s16(a));
            (of(0), of(1))
        }
        // Positions side by side, a register of each term: a product with a lane of a weight's register adds up by itself.
        fn terms_of(self, pairs: V) -> V {
            let [first, second] = pairs.map(|pairs| vreinterpretq_s16_u32(pairs));
            [vuzp1q_s16(first, second), vuzp2q_s16(first, second)].map(|term| vreinterpretq_u32_s16(term))
        }
        fn two_terms(self, a: &[i16], b: &[i16]) -> (V, V) {
            let (a, b) = (limbs(a), limbs(b));
            let of = |i: usize| [a[i], b[i]].map(|a| vreinterpretq_u32_s16(a));
            (of(0), of(1))
        }
        fn dot_terms(self, acc: V, terms: V, weights: V) -> V {
            let ([a, b], weights) = (terms.map(|a| vreinterpretq_s16_u32(a)), vreinterpretq_s16_u32(weights[0]));
            let [low, high] = acc.map(|acc| vreinterpretq_s32_u32(acc));
            let low = vmlal_laneq_s16::<0>(low, vget_low_s16(a), weights);
            let high = vmlal_high_laneq_s16::<0>(high, a, weights);
            let low = vmlal_laneq_s16::<1>(low, vget_low_s16(b), weights);
            let high = vmlal_high_laneq_s16::<1>(high, b, weights);
            [low, high].map(|acc| vreinterpretq_u32_s32(acc))
        }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> V {
        let words: &[u32; 8] = words.first_chunk().expect("a vector of words");
        // SAFETY: 32 bytes are readable; the load needs no more alignment than words have.
        std::array::from_fn(|i| unsafe { vld1q_u32(words.as_ptr().add(4 * i)) })
    }
}

/// The first 16 limbs.
#[inline(always)]
fn limbs(limbs: &[i16]) -> [int16x8_t; 2] {
    let limbs: &[i16; 16] = limbs.first_chunk().expect("two vectors of limbs");
    // SAFETY: 32 bytes are readable; the load needs no more alignment than limbs have.
    [0, 8].map(|i| unsafe { vld1q_s16(limbs.as_ptr().add(i)) })
}

impl Lanes16 for Neon {
    inlined! { intrinsics:
        fn add16(self, a: V, b: V) -> V { lanes16!(a, b, vaddq_u16) }
        fn sub16(self, a: V, b: V) -> V { lanes16!(a, b, vsubq_u16) }
        fn min16(self, a: V, b: V) -> V { lanes16!(a, b, vminq_u16) }
        fn mul_lo16(self, a: V, b: V) -> V { lanes16!(a, b, vmulq_u16) }
        fn mul_hi16(self, a: V, b: V) -> V {
            each(a, b, |a, b| {
                let (a, b) = (vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
                let products = [vmull_u16(vget_low_u16(a), vget_low_u16(b)), vmull_high_u16(a, b)];
                let [low, high] = products.map(|product| vreinterpretq_u16_u32(product));
                vreinterpretq_u32_u16(vuzp2q_u16(low, high))
            })
        }
        fn xor(self, a: V, b: V) -> V { each(a, b, |a, b| veorq_u32(a, b)) }
        fn shr28_signed(self, a: V) -> V { a.map(|a| vreinterpretq_u32_s32(vshrq_n_s32::<28>(vreinterpretq_s32_u32(a)))) }
        fn shl16(self, a: V) -> V { a.map(|a| vshlq_n_u32::<16>(a)) }
        fn pack_high(self, a: V, b: V) -> V {
            [a, b].map(|[low, high]| {
                vreinterpretq_u32_u16(vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high)))
            })
        }
        fn join_words(self, low: V, high: V) -> W {
            let [[first, second], [third, fourth]] = each(low, high, |low, high| {
                [vzip1q_u32(low, high), vzip2q_u32(low, high)].map(|word| vreinterpretq_u64_u32(word))
            });
            [first, second, third, fourth]
        }
    }
}
