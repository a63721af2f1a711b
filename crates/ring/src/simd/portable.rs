//! One lane in plain Rust: the reference for the vector types and the kernel of processors without them.

use super::{Line, Simd, words, words_mut};

/// The token of the scalar twin.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    type V = u32;
    type W = u64;
    const LANES: usize = 1;

    #[inline(always)]
    fn view(self, lines: &[Line]) -> &[u32] {
        words(lines)
    }
    #[inline(always)]
    fn view_mut(self, lines: &mut [Line]) -> &mut [u32] {
        words_mut(lines)
    }
    #[inline(always)]
    fn splat(self, value: u32) -> u32 {
        value
    }
    #[inline(always)]
    fn add(self, a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn sub(self, a: u32, b: u32) -> u32 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn min(self, a: u32, b: u32) -> u32 {
        // By a mask, so that no compiler makes a branch of it: lanes hold secrets.
        let less = (((a as u64).wrapping_sub(b as u64)) >> 32) as u32;
        b ^ ((a ^ b) & less)
    }
    #[inline(always)]
    fn mul_lo(self, a: u32, b: u32) -> u32 {
        a.wrapping_mul(b)
    }
    #[inline(always)]
    fn mul_hi(self, a: u32, b: u32) -> u32 {
        ((a as u64 * b as u64) >> 32) as u32
    }
    #[inline(always)]
    fn zip(self, a: u32, b: u32) -> (u32, u32) {
        (a, b)
    }
    #[inline(always)]
    fn unzip(self, a: u32, b: u32) -> (u32, u32) {
        (a, b)
    }
    #[inline(always)]
    fn load_words(self, words: &[u64]) -> u64 {
        words[0]
    }
    #[inline(always)]
    fn store_words(self, words: &mut [u64], value: u64) {
        words[0] = value;
    }
    #[inline(always)]
    fn splat_word(self, value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn add_words(self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn and_words(self, a: u64, b: u64) -> u64 {
        a & b
    }
    #[inline(always)]
    fn shl_words<const BITS: u32>(self, a: u64) -> u64 {
        a << BITS
    }
    #[inline(always)]
    fn shr_words(self, a: u64, count: u32) -> u64 {
        a >> count
    }
    #[inline(always)]
    fn split_words(self, a: u64) -> (u32, u32) {
        (a as u32, (a >> 32) as u32)
    }
    #[inline(always)]
    fn widen(self, a: u32) -> u64 {
        a as u64
    }
    #[inline(always)]
    fn mul_words(self, a: u64, b: u64) -> u64 {
        (a & 0xffff_ffff) * (b & 0xffff_ffff)
    }
    #[inline(always)]
    fn spread(self, a: u32) -> u64 {
        a as u64
    }
    #[inline(always)]
    fn join_high(self, a: u64) -> u32 {
        (a >> 32) as u32
    }
    #[inline(always)]
    fn sub_words(self, a: u64, b: u64) -> u64 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn reduce_high(self, a: u64, modulus: u64) -> u64 {
        let high = self.min((a >> 32) as u32, ((a >> 32) as u32).wrapping_sub((modulus >> 32) as u32));
        (a & 0xffff_ffff) | (high as u64) << 32
    }
}
