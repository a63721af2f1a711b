//! From words to bit planes: the values, or fields of a few bits, of a group of elements.

use zeroize::Zeroizing;

use crate::kernels::lanes::{Lanes, Planes};
use crate::kernels::loops::{self, Level};

/// The bit planes of `map(value)` for up to [`GROUP`] values; elements beyond them are zero.
pub(crate) fn load(level: Level, values: &[u64], map: impl Fn(u64) -> u64) -> Planes {
    let mut planes = [Lanes::ZERO; 64];
    for (row, eight) in planes.iter_mut().zip(values.chunks(8)) {
        for (word, &value) in row.0.iter_mut().zip(eight) {
            *word = map(value);
        }
    }
    loops::transpose(level, &mut planes);
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
            loops::transpose(self.level, cells);
            self.planes.extend_from_slice(&cells[..self.used as usize]);
        }
        cells.fill(Lanes::ZERO);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::lanes::GROUP;

    fn words(count: usize, seed: u64) -> Vec<u64> {
        (0..count as u64).map(|i| (i + 1).wrapping_mul(seed | 1).rotate_left(i as u32 % 64)).collect()
    }

    proptest! {
        #[test]
        fn planes_hold_the_bits(count in 0usize..=GROUP, seed: u64) {
            let values = words(count, seed);
            let planes = load(Level::of(jaguar_ring::cpu::Cpu::detect()), &values, |v| v);
            for (e, value) in values.iter().enumerate() {
                for (i, plane) in planes.iter().enumerate() {
                    prop_assert_eq!(plane.bit(e), value >> i & 1);
                }
            }
        }

        #[test]
        fn fields_come_out_in_order(count in 1usize..=GROUP, seed: u64, widths in prop::collection::vec(1u32..=64, 1..6)) {
            let mut sink = Sink::new(Level::of(jaguar_ring::cpu::Cpu::detect()), 8);
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
    }
}
