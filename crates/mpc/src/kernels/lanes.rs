//! Bits of many elements side by side.
//!
//! A [`Lanes`] holds one bit of each of 512 elements, so that one instruction of a kernel works on as many
//! elements as the machine's registers are wide. Element `e` of a group of 512 lies in bit `e / 8` of word
//! `e % 8`: with this order 512 values of 64 bits, read as 64 rows of 8 words, become bit planes by eight
//! 64 × 64 transpositions next to each other. Both parties use the same order, so it appears nowhere else.
//!
//! On the wire a plane takes 64 bytes a group; of the last group, each of the eight words keeps only the
//! bytes that elements reach into.

use std::ops::{BitAnd, BitOr, BitXor, Not};

use zeroize::DefaultIsZeroes;

/// How many elements one [`Lanes`] covers.
pub(crate) const GROUP: usize = 512;

/// One bit of each of [`GROUP`] elements. Often a secret, hence no `Debug`.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub(crate) [u64; 8]);

impl DefaultIsZeroes for Lanes {}

/// Bit planes of one group: plane `i` holds bit `i` of every element.
pub(crate) type Planes = [Lanes; 64];

impl Lanes {
    pub(crate) const ZERO: Self = Self([0; 8]);
    pub(crate) const ONES: Self = Self([u64::MAX; 8]);

    /// The bits of up to [`GROUP`] elements, zero beyond.
    pub(crate) fn from_bools(bits: &[bool]) -> Self {
        let mut lanes = Self::ZERO;
        for (i, eight) in bits.chunks(8).enumerate() {
            for (word, &bit) in lanes.0.iter_mut().zip(eight) {
                *word |= u64::from(bit) << i;
            }
        }
        lanes
    }

    /// The bit of element `e`.
    pub(crate) const fn bit(&self, e: usize) -> u64 {
        self.0[e % 8] >> (e / 8) & 1
    }
}

impl BitXor for Lanes {
    type Output = Self;

    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        Self(std::array::from_fn(|k| self.0[k] ^ other.0[k]))
    }
}

impl BitAnd for Lanes {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|k| self.0[k] & other.0[k]))
    }
}

impl BitOr for Lanes {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|k| self.0[k] | other.0[k]))
    }
}

impl Not for Lanes {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self(std::array::from_fn(|k| !self.0[k]))
    }
}

/// How many groups `count` elements take.
pub(crate) const fn groups(count: usize) -> usize {
    count.div_ceil(GROUP)
}

/// How many elements group `g` of `count` holds.
pub(crate) const fn group_len(count: usize, g: usize) -> usize {
    let left = count - g * GROUP;
    if left < GROUP { left } else { GROUP }
}

/// Bytes on the wire of one plane over a group of `len` elements.
pub(crate) const fn lane_bytes(len: usize) -> usize {
    8 * len.div_ceil(64)
}

/// Bytes on the wire of `planes` planes over `count` elements.
pub(crate) const fn plane_bytes(count: usize, planes: usize) -> usize {
    planes * (count / GROUP * 64 + lane_bytes(count % GROUP))
}

/// Appends one plane over `len` elements.
pub(crate) fn write_lanes(out: &mut Vec<u8>, lanes: &Lanes, len: usize) {
    let keep = len.div_ceil(64);
    for word in lanes.0 {
        out.extend_from_slice(&word.to_le_bytes()[..keep]);
    }
}

/// Takes one plane over `len` elements from the front of `bytes`.
///
/// # Panics
/// When `bytes` is too short, which the caller has excluded by its own count.
pub(crate) fn read_lanes(bytes: &mut &[u8], len: usize) -> Lanes {
    let keep = len.div_ceil(64);
    let mut lanes = Lanes::ZERO;
    for word in &mut lanes.0 {
        let (head, tail) = bytes.split_at(keep);
        let mut le = [0; 8];
        le[..keep].copy_from_slice(head);
        *word = u64::from_le_bytes(le);
        *bytes = tail;
    }
    lanes
}

/// The wire form of a plane over `count` elements.
pub(crate) fn plane_to_bytes(plane: &[Lanes], count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(plane_bytes(count, 1));
    for (g, lanes) in plane.iter().enumerate() {
        write_lanes(&mut bytes, lanes, group_len(count, g));
    }
    bytes
}

/// Adds the peer's shares of a plane, at the front of `theirs`, to this party's.
pub(crate) fn add_plane(plane: &mut [Lanes], count: usize, theirs: &mut &[u8]) {
    for (g, lanes) in plane.iter_mut().enumerate() {
        *lanes = *lanes ^ read_lanes(theirs, group_len(count, g));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(count: usize, seed: u64) -> Vec<u64> {
        (0..count as u64).map(|i| (i + 1).wrapping_mul(seed | 1).rotate_left(i as u32 % 64)).collect()
    }

    proptest! {
        #[test]
        fn lanes_travel(len in 1usize..=GROUP, seed: u64) {
            let bits: Vec<bool> = words(len, seed).iter().map(|w| w >> 17 & 1 == 1).collect();
            let lanes = Lanes::from_bools(&bits);
            let mut out = Vec::new();
            write_lanes(&mut out, &lanes, len);
            prop_assert_eq!(out.len(), lane_bytes(len));
            let back = read_lanes(&mut &out[..], len);
            prop_assert_eq!(back.0, lanes.0);
        }
    }

    #[test]
    fn bytes_on_the_wire() {
        assert_eq!(plane_bytes(0, 3), 0);
        assert_eq!(plane_bytes(1, 3), 24);
        assert_eq!(plane_bytes(512, 3), 192);
        assert_eq!(plane_bytes(512 + 65, 1), 64 + 16);
    }
}
