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

use zeroize::{DefaultIsZeroes, Zeroizing};

use crate::kernel::{self, Level};

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

/// The bit planes of `map(value)` for up to [`GROUP`] values; elements beyond them are zero.
pub(crate) fn load(level: Level, values: &[u64], map: impl Fn(u64) -> u64) -> Planes {
    let mut planes = [Lanes::ZERO; 64];
    for (row, eight) in planes.iter_mut().zip(values.chunks(8)) {
        for (word, &value) in row.0.iter_mut().zip(eight) {
            *word = map(value);
        }
    }
    kernel::transpose(level, &mut planes);
    planes
}

/// Collects fields of a few bits for every element of a group and turns them into planes.
pub(crate) struct Sink {
    level: Level,
    cells: Zeroizing<Vec<Lanes>>,
    used: u32,
    /// The planes collected so far, in the order of the pushed fields, low bit first.
    pub(crate) planes: Zeroizing<Vec<Lanes>>,
}

impl Sink {
    /// A sink that will collect about `planes` planes in all.
    pub(crate) fn new(level: Level, planes: usize) -> Self {
        Self {
            level,
            cells: Zeroizing::new(vec![Lanes::ZERO; 64]),
            used: 0,
            planes: Zeroizing::new(Vec::with_capacity(planes)),
        }
    }

    /// Adds the low `bits` (1..=64) bits of every element's word as the next planes.
    pub(crate) fn push(&mut self, words: &[u64], bits: u32) {
        let mask = u64::MAX >> (64 - bits);
        if self.used + bits > 64 {
            self.flush();
        }
        for (row, eight) in self.cells.iter_mut().zip(words.chunks(8)) {
            for (cell, &word) in row.0.iter_mut().zip(eight) {
                *cell |= (word & mask) << self.used;
            }
        }
        self.used += bits;
    }

    /// Ends the group.
    pub(crate) fn flush(&mut self) {
        let cells: &mut Planes = (&mut self.cells[..]).try_into().expect("64 rows");
        if self.used > 0 {
            kernel::transpose(self.level, cells);
            self.planes.extend_from_slice(&cells[..self.used as usize]);
        }
        cells.fill(Lanes::ZERO);
        self.used = 0;
    }
}

/// Shares of bits, one an element: the bit is the exclusive or of both parties' shares. Secret, hence no
/// `Debug`.
#[derive(Clone)]
pub struct Bits {
    count: usize,
    pub(crate) lanes: Zeroizing<Vec<Lanes>>,
}

impl Bits {
    /// The shares `bits`, in order.
    pub fn new(bits: &[bool]) -> Self {
        let lanes = bits.chunks(GROUP).map(Lanes::from_bools).collect();
        Self { count: bits.len(), lanes: Zeroizing::new(lanes) }
    }

    pub(crate) fn from_lanes(count: usize, lanes: Vec<Lanes>) -> Self {
        assert_eq!(lanes.len(), groups(count), "one plane a group");
        Self { count, lanes: Zeroizing::new(lanes) }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The shares, in order, each 0 or 1.
    pub fn to_vec(&self) -> Vec<u64> {
        (0..self.count).map(|e| self.lanes[e / GROUP].bit(e % GROUP)).collect()
    }

    /// This party's share of the opposite bits, if exactly one party calls it.
    #[must_use]
    pub fn flipped(mut self) -> Self {
        self.lanes.iter_mut().for_each(|lanes| *lanes = !*lanes);
        self
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
        fn planes_hold_the_bits(count in 0usize..=GROUP, seed: u64) {
            let values = words(count, seed);
            let planes = load(Level::best(), &values, |v| v);
            for (e, value) in values.iter().enumerate() {
                for (i, plane) in planes.iter().enumerate() {
                    prop_assert_eq!(plane.bit(e), value >> i & 1);
                }
            }
        }

        #[test]
        fn fields_come_out_in_order(count in 1usize..=GROUP, seed: u64, widths in prop::collection::vec(1u32..=64, 1..6)) {
            let mut sink = Sink::new(Level::best(), 8);
            let fields: Vec<Vec<u64>> = widths
                .iter()
                .map(|w| words(count, seed ^ u64::from(*w)))
                .collect();
            for (field, width) in fields.iter().zip(&widths) {
                sink.push(field, *width);
            }
            sink.flush();
            prop_assert_eq!(sink.planes.len(), widths.iter().sum::<u32>() as usize);
            let mut at = 0;
            for (field, width) in fields.iter().zip(&widths) {
                for (e, value) in field.iter().enumerate() {
                    let got = (0..*width as usize).fold(0, |v, i| v | sink.planes[at + i].bit(e) << i);
                    prop_assert_eq!(got, *value & (u64::MAX >> (64 - width)));
                }
                at += *width as usize;
            }
        }

        #[test]
        fn lanes_travel(len in 1usize..=GROUP, seed: u64) {
            let bits: Vec<bool> = words(len, seed).iter().map(|w| w >> 17 & 1 == 1).collect();
            let lanes = Lanes::from_bools(&bits);
            let mut out = Vec::new();
            write_lanes(&mut out, &lanes, len);
            prop_assert_eq!(out.len(), lane_bytes(len));
            let back = read_lanes(&mut &out[..], len);
            prop_assert_eq!(back.0, lanes.0);
            prop_assert_eq!(Bits::new(&bits).to_vec(), bits.iter().map(|&b| u64::from(b)).collect::<Vec<_>>());
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
