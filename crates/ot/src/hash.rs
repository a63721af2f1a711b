//! The hash that makes pads of correlated OTs.
//!
//! H(k, x) = AES_k(σ(x)) ⊕ σ(x), with σ(high, low) = (high ⊕ low, high) on 64-bit halves, under keys that change after a
//! few inputs: "MITCCRH" of Guo, Katz, Wang, Weng and Yu, *Better Concrete Security for Half-Gates Garbling*, CRYPTO 2020
//! (ePrint 2019/1168). One call of AES a pad. In the ideal cipher model, H(k, x ⊕ D) for a secret D looks random to
//! who knows x, as long as inputs under one key differ.
//!
//! *Bound.* Who calls AES p times has an advantage of at most about 2·p·u / 2^124, where u is how many unknown pads
//! there are under one key (`PADS_PER_KEY`: at most 120, so 2^-116·p), and 124 bits of each Δ are secret.
//! How many pads a session makes does not enter, as long as its keys differ; **so no number may come twice** in a
//! session, direction and width. With one key for 2^29 pads, as it was before, the same bound has 2^-94·p.
//! Inputs under one key are equal with probability 2^-110: they are halves of correlations, which are pseudorandom.
//!
//! Keys are public: the session's nonce, which neither party chose alone, the direction, the width, and a number.

use crate::aes::{self, Kernel, PadKeys};
use crate::{Block, Role, Width};

/// How many correlations of one and of four bits are hashed under one key: 32 unknown pads of bits, 32 · 3 of pairs of bits
/// ([`pair`]), 8 · 15 of vectors.
const PADS_PER_KEY: [usize; 2] = [32, 8];

/// The hash of one session, direction and width.
#[derive(Clone, Copy)]
pub struct Hash {
    base: Block,
    width: Width,
    kernel: Kernel,
}

impl Hash {
    /// For correlations of this width sent by `sender`, in the session of this public `nonce`.
    pub fn new(nonce: Block, sender: Role, width: Width) -> Self {
        Self::for_purpose(nonce, 0, sender, width)
    }

    /// The same; hashes of different purposes have different keys.
    pub(crate) fn for_purpose(nonce: Block, purpose: u8, sender: Role, width: Width) -> Self {
        let number = u128::from(purpose) << 2 | u128::from(sender == Role::Client) << 1 | width as u128;
        Self { base: nonce ^ Block(number << 64), width, kernel: Kernel::best() }
    }

    fn keys(&self, number: u64) -> PadKeys {
        PadKeys { base: self.base, number, per_key: PADS_PER_KEY[self.width as usize] }
    }

    /// The pads of `halves`, which are the correlations from `number` on. Keys follow from `number` and the place in the call: so
    /// both parties must cut their calls alike, and the next number must be larger by at least the number of keys that this
    /// call takes. (Counting correlations, as `mpc` does, is more than enough.) `pads` has one row of as many blocks for each shift s, with the pads of q ⊕ s. A receiver shifts by
    /// nothing.
    ///
    /// # Panics
    /// When the lengths do not fit.
    pub fn pads(&self, number: u64, shifts: &[Block], halves: &[Block], pads: &mut [Block]) {
        aes::pads(self.kernel, self.keys(number), shifts, halves, pads);
    }

    /// Of the same pads the low `bits` (1..=4) bits for 16 shifts, in one word for every half: bits v·`bits` and up are those of
    /// shift v.
    ///
    /// # Panics
    /// When the lengths do not fit.
    pub fn tables(&self, number: u64, shifts: &[Block; 16], bits: u32, halves: &[Block], words: &mut [u64]) {
        aes::tables(self.kernel, self.keys(number), shifts, bits, halves, words);
    }

    /// The instructions in use, for reports.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }
}

/// A sum of keys, by the bits of `v`: Σ_j v_j·Δ_j.
pub fn combination(deltas: &[Block], v: usize) -> Block {
    deltas.iter().enumerate().fold(Block::ZERO, |sum, (j, delta)| sum ^ delta.masked(v >> j & 1 == 1))
}

/// Every [sum](combination) of the four keys of a vector correlation: entry v is Σ_j v_j·Δ_j.
pub fn combinations(deltas: &[Block; 4]) -> [Block; 16] {
    std::array::from_fn(|v| combination(deltas, v))
}

/// Of the halves of two correlations of a bit, that of one with two choice bits: a ⊕ σ(b), under the keys Δ and σ(Δ).
///
/// Δ, σ(Δ) and Δ ⊕ σ(Δ) are Δ times an invertible matrix each (σ² ⊕ σ ⊕ 1 = 0), so each of the three pads that a receiver
/// does not know is as far from its own as that of a bit.
pub fn pair(a: Block, b: Block) -> Block {
    let (high, low) = (b.0 >> 64, b.0 & u128::from(u64::MAX));
    a ^ Block((high ^ low) << 64 | high)
}

#[cfg(test)]
mod tests {
    use ::aes::Aes128;
    use ::aes::cipher::{BlockCipherEncrypt, KeyInit};

    use super::*;

    /// The definition, by the `aes` crate.
    fn one(key: u128, x: u128) -> u128 {
        let (high, low) = (x >> 64, x & u128::from(u64::MAX));
        let s = (high ^ low) << 64 | high;
        let mut block = s.to_le_bytes().into();
        Aes128::new(&key.to_le_bytes().into()).encrypt_block(&mut block);
        u128::from_le_bytes(block.into()) ^ s
    }

    #[test]
    fn pads_are_those_of_the_definition() {
        let nonce = Block(0x1234_5678_9abc_def0_1111_2222_3333_4444);
        let x: Vec<Block> = (0..300u128).map(|i| Block(i * 0x1234_5678_9abc_def0_1111)).collect();
        let shifts = [Block::ZERO, Block(u128::MAX / 3)];
        for (width, per_key) in [(Width::Bit, 32), (Width::Vector, 8)] {
            let mut pads = vec![Block::ZERO; 600];
            Hash::new(nonce, Role::Client, width).pads(7, &shifts, &x, &mut pads);
            let mut words = vec![0; 300];
            let all = combinations(&[Block(1), Block(2 << 70), Block(4 << 90), Block(8 << 110)]);
            Hash::new(nonce, Role::Client, width).tables(7, &all, 3, &x, &mut words);
            for (j, x) in x.iter().enumerate() {
                let number = 4 * (7 + j / (4 * per_key)) + j % 4;
                let key = nonce.0 ^ (2 | width as u128) << 64 ^ number as u128;
                for (s, shift) in shifts.iter().enumerate() {
                    assert_eq!(pads[s * 300 + j].0, one(key, x.0 ^ shift.0));
                }
                for (v, shift) in all.iter().enumerate() {
                    assert_eq!(words[j] >> (3 * v) & 7, one(key, x.0 ^ shift.0) as u64 & 7);
                }
            }
        }
    }

    #[test]
    fn combinations_are_linear() {
        let all = combinations(&[Block(1), Block(2), Block(4), Block(8)]);
        assert!((0..16).all(|v| all[v].0 == v as u128));
    }

    /// Half of a pair's correlation is as long as one of a bit and moves by the keys that belong to the choices.
    #[test]
    fn pairs_are_linear_and_lose_nothing() {
        let mut x = 1u128;
        for _ in 0..100 {
            x = x.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(3);
            let (a, b, delta) = (Block(x), Block(x.rotate_left(41)), Block(x.rotate_left(90) | 1));
            let moved = pair(Block::ZERO, delta);
            assert!(pair(a ^ delta, b) == pair(a, b) ^ delta);
            assert!(pair(a, b ^ delta) == pair(a, b) ^ moved);
            // σ³ = 1 and σ² = σ ⊕ 1: neither σ nor σ ⊕ 1 sends anything but zero to zero.
            let twice = pair(Block::ZERO, moved);
            assert!(pair(Block::ZERO, twice) == delta && twice == moved ^ delta);
        }
    }

    #[test]
    fn no_two_purposes_share_a_key() {
        let mut seen = std::collections::HashSet::new();
        for purpose in 0..2 {
            for sender in [Role::Client, Role::Server] {
                for width in [Width::Bit, Width::Vector] {
                    assert!(seen.insert(Hash::for_purpose(Block(5), purpose, sender, width).base.0 >> 64));
                }
            }
        }
    }
}
