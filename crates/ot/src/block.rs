//! 128-bit strings: keys, seeds, pads, and the halves of correlated OTs.

use std::ops::{BitXor, BitXorAssign};

use bytemuck::{Pod, Zeroable};
use zeroize::DefaultIsZeroes;

/// A 128-bit string, also read as a polynomial over F_2 of degree below 128 (bit `i` of the integer is the
/// coefficient of X^i). It often holds a secret, hence no `Debug`; `==` is for tests and public values only
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
    pub const fn to_bytes(self) -> [u8; 16] {
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

    /// This block where `bit` is set, zero elsewhere, without a branch.
    #[must_use]
    pub const fn masked(self, bit: bool) -> Self {
        Self(self.0 & (bit as u128).wrapping_neg())
    }

    /// The product with X in GF(2^128) = F_2\[X\]/(X^128 + X^7 + X^2 + X + 1), without a branch.
    ///
    /// Combines m correlated OTs into one of 2^m messages: with t_b = q_b ⊕ r_b·Δ, the sum
    /// Σ_b X^b·t_b = Σ_b X^b·q_b ⊕ r·Δ, where r is the choice (r_{m−1} … r_0) read as a polynomial, so a
    /// sender hashes Q ⊕ v·Δ for every value v, and a receiver hashes once.
    #[must_use]
    pub const fn mul_x(self) -> Self {
        let carry = (self.0 >> 127).wrapping_neg() & 0x87;
        Self(self.0 << 1 ^ carry)
    }

    /// The product in GF(2^128) with the polynomial that the low `bits` bits of `small` are, `bits` at most 8.
    /// Branches on neither operand.
    #[must_use]
    pub const fn mul_small(self, small: u8, bits: u32) -> Self {
        let (mut power, mut sum, mut i) = (self, 0, 0);
        while i < bits {
            sum ^= power.masked(small >> i & 1 == 1).0;
            power = power.mul_x();
            i += 1;
        }
        Self(sum)
    }
}

impl From<u128> for Block {
    fn from(value: u128) -> Self {
        Self(value)
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

    /// The product in GF(2^128) by long multiplication and long division on bit vectors.
    fn schoolbook(a: u128, b: u128) -> u128 {
        let mut product = [false; 256];
        for i in 0..128 {
            for j in 0..128 {
                product[i + j] ^= a >> i & 1 == 1 && b >> j & 1 == 1;
            }
        }
        for i in (128..256).rev() {
            if product[i] {
                for e in [128, 7, 2, 1, 0] {
                    product[i - 128 + e] ^= true;
                }
            }
        }
        (0..128).filter(|&i| product[i]).fold(0, |acc, i| acc | 1 << i)
    }

    proptest! {
        #[test]
        fn products_are_those_of_the_field(a: u128, small: u8, bits in 0u32..=8) {
            prop_assert_eq!(Block(a).mul_x().0, schoolbook(a, 2));
            let low = u128::from(small) & ((1 << bits) - 1);
            prop_assert_eq!(Block(a).mul_small(small, bits).0, schoolbook(a, low));
        }

        #[test]
        fn bytes_and_bits(a: u128, bit: bool) {
            let block = Block(a);
            prop_assert_eq!(Block::from_bytes(block.to_bytes()).0, a);
            prop_assert_eq!(block.to_bytes()[0] & 1 == 1, block.lsb());
            prop_assert_eq!(block.with_lsb(bit).0, if bit { a | 1 } else { a & !1 });
            prop_assert_eq!(block.masked(bit).0, if bit { a } else { 0 });
            prop_assert_eq!((block ^ Block(a)).0, 0);
        }
    }

    #[test]
    fn the_top_bit_wraps() {
        assert_eq!(Block(1 << 127).mul_x().0, 0x87);
        assert_eq!(Block(u128::MAX).mul_x().0, schoolbook(u128::MAX, 2));
    }
}
