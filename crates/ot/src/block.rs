//! 128-bit strings: keys, seeds, pads, and the halves of correlated OTs.

use std::ops::{BitAnd, BitXor, BitXorAssign};

use bytemuck::{Pod, Zeroable};
use jaguar_ring::cpu::secret;
use zeroize::DefaultIsZeroes;

/// A 128-bit string. It often holds a secret, hence no `Debug`; `==` is for tests and public values only
/// (variable time).
#[derive(Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Block(pub u128);

impl DefaultIsZeroes for Block {}

impl Block {
    /// All bits zero.
    pub const ZERO: Self = Self(0);

    /// The block whose little-endian bytes these are.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The little-endian bytes.
    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Bit 0: a receiver's choice bit, by the convention that a sender's Δ is odd and its halves are even.
    pub const fn lsb(self) -> bool {
        self.0 & 1 == 1
    }

    /// This block with bit 0 set to `bit`.
    #[must_use]
    pub const fn with_lsb(self, bit: bool) -> Self {
        Self(self.0 & !1 | bit as u128)
    }

    /// All ones where `bit` is set, zero elsewhere, without a branch ([`secret::mask`]). In a loop with one bit, made before it.
    #[must_use]
    #[inline(always)]
    pub(crate) fn mask(bit: bool) -> Self {
        let half = u128::from(secret::mask(bit));
        Self(half << 64 | half)
    }

    /// This block where `bit` is set, zero elsewhere, without a branch.
    #[must_use]
    #[inline(always)]
    pub fn masked(self, bit: bool) -> Self {
        self & Self::mask(bit)
    }
}

/// Blocks of a line.
pub(crate) const LANES: usize = 4;

/// Four blocks that fill a cache line. It often holds secrets, as they do.
#[derive(Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [Block; LANES]);

impl DefaultIsZeroes for Line {}

impl Line {
    /// All bits zero.
    pub(crate) const ZERO: Self = Self([Block::ZERO; LANES]);

    /// The XOR of three. By words, which the compiler puts into the widest registers that it may use; of blocks it does not.
    #[inline(always)]
    pub(crate) fn sum(self, b: Self, c: Self) -> Self {
        let [a, b, c]: [[u64; 2 * LANES]; 3] = [self, b, c].map(bytemuck::must_cast);
        bytemuck::must_cast::<[u64; 2 * LANES], _>(std::array::from_fn(|i| a[i] ^ b[i] ^ c[i]))
    }
}

impl From<u128> for Block {
    fn from(value: u128) -> Self {
        Self(value)
    }
}

impl BitAnd for Block {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitXor for Block {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl BitXorAssign for Block {
    fn bitxor_assign(&mut self, other: Self) {
        self.0 ^= other.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_and_bits(a: u128, bit: bool) {
            let block = Block(a);
            prop_assert_eq!(Block::from_bytes(block.to_bytes()).0, a);
            prop_assert_eq!(block.to_bytes()[0] & 1 == 1, block.lsb());
            prop_assert_eq!(block.with_lsb(bit).0, if bit { a | 1 } else { a & !1 });
            prop_assert_eq!(block.masked(bit).0, if bit { a } else { 0 });
            prop_assert_eq!(Block::mask(bit).0, if bit { u128::MAX } else { 0 });
            prop_assert_eq!((block ^ Block(a)).0, 0);
        }
    }
}
