//! One lane in plain Rust: the reference for the vector types and the kernel of processors without them.

use super::{Dot, Lanes16, Line, Simd, inlined, words, words_mut};

/// The token of the scalar twin.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    type V = u32;
    type W = u64;
    const LANES: usize = 1;

    inlined! {
        fn view(self, lines: &[Line]) -> &[u32] { words(lines) }
        fn view_mut(self, lines: &mut [Line]) -> &mut [u32] { words_mut(lines) }
        fn splat(self, value: u32) -> u32 { value }
        fn add(self, a: u32, b: u32) -> u32 { a.wrapping_add(b) }
        fn sub(self, a: u32, b: u32) -> u32 { a.wrapping_sub(b) }
        fn min(self, a: u32, b: u32) -> u32 {
            // By a mask, so that no compiler makes a branch of it: lanes hold secrets.
            let less = (((a as u64).wrapping_sub(b as u64)) >> 32) as u32;
            b ^ ((a ^ b) & less)
        }
        fn mul_lo(self, a: u32, b: u32) -> u32 { a.wrapping_mul(b) }
        fn mul_hi(self, a: u32, b: u32) -> u32 { ((a as u64 * b as u64) >> 32) as u32 }
        fn zip(self, a: u32, b: u32) -> (u32, u32) { (a, b) }
        fn unzip(self, a: u32, b: u32) -> (u32, u32) { (a, b) }
        fn load_words(self, words: &[u64]) -> u64 { words[0] }
        fn store_words(self, words: &mut [u64], value: u64) { words[0] = value; }
        fn splat_word(self, value: u64) -> u64 { value }
        fn add_words(self, a: u64, b: u64) -> u64 { a.wrapping_add(b) }
        fn and_words(self, a: u64, b: u64) -> u64 { a & b }
        fn shl_words[const BITS: u32](self, a: u64) -> u64 { a << BITS }
        fn shr_words(self, a: u64, count: u32) -> u64 { a >> count }
        fn split_words(self, a: u64) -> (u32, u32) { (a as u32, (a >> 32) as u32) }
        fn widen(self, a: u32) -> u64 { a as u64 }
        fn mul_words(self, a: u64, b: u64) -> u64 { (a & 0xffff_ffff) * (b & 0xffff_ffff) }
        fn mul_low_words(self, a: u64, b: u64) -> u64 { a.wrapping_mul(b) }
        fn spread(self, a: u32) -> u64 { a as u64 }
        fn join_high(self, a: u64) -> u32 { (a >> 32) as u32 }
        fn sub_words(self, a: u64, b: u64) -> u64 { a.wrapping_sub(b) }
        fn reduce_high(self, a: u64, modulus: u64) -> u64 {
            let high = self.min((a >> 32) as u32, ((a >> 32) as u32).wrapping_sub((modulus >> 32) as u32));
            (a & 0xffff_ffff) | (high as u64) << 32
        }
    }
}

/// Both 16-bit halves of a lane by themselves.
#[inline(always)]
fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

impl Dot for Portable {
    inlined! {
        fn dot(self, acc: u32, a: u32, b: u32) -> u32 {
            let low = i32::from(a as i16) * i32::from(b as i16);
            let high = ((a as i32) >> 16) * ((b as i32) >> 16);
            acc.wrapping_add(low as u32).wrapping_add(high as u32)
        }
        fn shr16_signed(self, a: u32) -> u32 { ((a as i32) >> 16) as u32 }
        fn and(self, a: u32, b: u32) -> u32 { a & b }
        fn widen_signed(self, a: u32) -> u64 { a as i32 as i64 as u64 }
        fn load(self, words: &[u32]) -> u32 { words[0] }
        fn pair_up(self, a: &[i16], b: &[i16]) -> (u32, u32) {
            let pair = |i: usize| u32::from(a[i] as u16) | u32::from(b[i] as u16) << 16;
            (pair(0), pair(1))
        }
    }
}

impl Lanes16 for Portable {
    inlined! {
        fn add16(self, a: u32, b: u32) -> u32 { halves(a, b, u16::wrapping_add) }
        fn sub16(self, a: u32, b: u32) -> u32 { halves(a, b, u16::wrapping_sub) }
        fn min16(self, a: u32, b: u32) -> u32 {
            halves(a, b, |a, b| {
                // By a mask, as `min`: lanes hold secrets.
                let less = ((u32::from(a).wrapping_sub(u32::from(b))) >> 16) as u16;
                b ^ ((a ^ b) & less)
            })
        }
        fn mul_lo16(self, a: u32, b: u32) -> u32 { halves(a, b, u16::wrapping_mul) }
        fn mul_hi16(self, a: u32, b: u32) -> u32 { halves(a, b, |a, b| ((u32::from(a) * u32::from(b)) >> 16) as u16) }
        fn xor(self, a: u32, b: u32) -> u32 { a ^ b }
        fn shr28_signed(self, a: u32) -> u32 { ((a as i32) >> 28) as u32 }
        fn shl16(self, a: u32) -> u32 { a << 16 }
        fn pack_high(self, a: u32, b: u32) -> u32 { a >> 16 | (b & 0xffff_0000) }
        fn join_words(self, low: u32, high: u32) -> u64 { u64::from(low) | u64::from(high) << 32 }
    }
}
