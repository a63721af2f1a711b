//! AES by the instructions of 64-bit Arm processors, eight blocks at once.

use std::arch::aarch64::{
    uint8x16_t, vaeseq_u8, vaesmcq_u8, vandq_u8, vcombine_u32, vdup_n_u32, veorq_u8, vextq_u8, vget_high_u32,
    vget_low_u32, vmull_u32, vreinterpretq_u8_u32, vreinterpretq_u32_u8, vshrn_n_u64,
};

use jaguar_ring::cpu::Feature;

use super::eight::{EIGHT, Eight, ROUNDS};
use crate::Block;

/// A register that exists only where the processor has AES.
#[derive(Clone, Copy)]
pub(crate) struct Register(uint8x16_t);

/// All lanes of the upper half.
const HIGH: u128 = (u64::MAX as u128) << 64;

impl Eight for Register {
    type Schedule = [[Self; EIGHT]; ROUNDS + 1];

    fn schedule(keys: [[Block; EIGHT]; ROUNDS + 1]) -> Self::Schedule {
        assert!(Feature::ArmAes.is_there(), "chosen where it is there");
        keys.map(|keys| keys.map(Self::of))
    }

    fn permute(keys: &Self::Schedule, q: [Self; EIGHT]) -> [Self; EIGHT] {
        // SAFETY: there is a schedule, so the processor has AES.
        unsafe { permute(keys, q) }
    }

    #[inline(always)]
    fn of(block: Block) -> Self {
        // SAFETY: both are 16 bytes, any of which are a value of the other.
        Self(unsafe { std::mem::transmute::<u128, uint8x16_t>(block.0) })
    }

    #[inline(always)]
    fn block(self) -> Block {
        // SAFETY: both are 16 bytes, any of which are a value of the other.
        Block(unsafe { std::mem::transmute::<uint8x16_t, u128>(self.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: every 64-bit Arm target of Rust's has Neon.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    fn sigma(self) -> Self {
        // SAFETY: every 64-bit Arm target of Rust's has Neon.
        Self(unsafe { veorq_u8(vextq_u8::<8>(self.0, self.0), vandq_u8(self.0, Self::of(Block(HIGH)).0)) })
    }

    #[inline(always)]
    fn below(self, bound: u32) -> Self {
        // SAFETY: every 64-bit Arm target of Rust's has Neon.
        unsafe {
            let (words, bound) = (vreinterpretq_u32_u8(self.0), vdup_n_u32(bound));
            let high = |words| vshrn_n_u64::<32>(vmull_u32(words, bound));
            Self(vreinterpretq_u8_u32(vcombine_u32(high(vget_low_u32(words)), high(vget_high_u32(words)))))
        }
    }
}

#[target_feature(enable = "aes")]
fn permute(keys: &[[Register; EIGHT]; ROUNDS + 1], mut q: [Register; EIGHT]) -> [Register; EIGHT] {
    for key in &keys[..ROUNDS - 1] {
        for (q, key) in q.iter_mut().zip(key) {
            q.0 = vaesmcq_u8(vaeseq_u8(q.0, key.0));
        }
    }
    for ((q, last), key) in q.iter_mut().zip(&keys[ROUNDS - 1]).zip(&keys[ROUNDS]) {
        q.0 = veorq_u8(vaeseq_u8(q.0, last.0), key.0);
    }
    q
}
