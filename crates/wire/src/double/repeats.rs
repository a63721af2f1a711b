//! Looks for bytes that come again: what a session uses once must not be sent twice.
//!
//! **What is found.** The first stream is cut into blocks of 32 bytes, and every 32 bytes of all that comes later, at every offset, are
//! looked up among them. A stretch of 63 bytes that comes again, from wherever to wherever, holds a whole block of its first place, so it is
//! found, if that block has enough different values. Of 2^16 random blocks about one has not.
//!
//! **Why there is no false alarm.** A window counts only if at least [`DISTINCT`] = 24 different values are among its 32 bytes. What parties
//! send is fresh and uniform (ciphertexts, masked numbers, seeds, points of a curve), or planes of bits, where a byte has r fresh bits, 0 ≤ r ≤ 8,
//! and the other 8 − r are padding: all zeros or all ones. Bytes with at most r fresh bits take at most 2^(r + 1) values. So of 24 different
//! values at most 2 are of bytes without a fresh bit, 4 of bytes with at most one, 8 with at most two, 16 with at most three, and the others
//! have four or more: such a window has at least 2·0 + 2·1 + 4·2 + 8·3 + 8·4 = 66 fresh bits, and is equal to a given block with a probability
//! of at most 2^-66. L bytes that are looked up in a table of B blocks so raise a false alarm with a probability of at most L·B·2^-66, where
//! B ≤ L/32:
//!
//! | bytes in all | at most |
//! |---|---|
//! | 1 MiB | 2^-31 |
//! | 16 MiB | 2^-23 |
//! | 256 MiB | 2^-15 |
//!
//! (Bytes of the worst kind alone would have to be sent for that; of uniform bytes alone it is 2^-256 in the place of 2^-66.)
//!
//! What does repeat has to be left out by who calls this: what is public (names, plans, hints), and numbers without fresh bits, such as measured
//! times. A clock that stands still makes those zeros.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

/// Bytes of a window.
pub const WINDOW: usize = 32;

/// Different values in a window that counts, at least.
pub const DISTINCT: usize = 24;

/// Bytes that come again at least, to be found for certain (but for blocks with too few values).
pub const FOUND: usize = 2 * WINDOW - 1;

/// What was sent until now.
#[derive(Default)]
pub struct Repeats {
    /// Where each block was first: a stream, and a byte of it.
    blocks: HashMap<[u8; WINDOW], (usize, usize)>,
    /// What each stream is called in reports.
    names: Vec<String>,
}

/// Bytes that came again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The bytes that are there twice.
    pub bytes: [u8; WINDOW],
    /// The stream that they were in first, and where.
    pub first: (String, usize),
    /// The same of the second time.
    pub again: (String, usize),
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, first, again } = self;
        write!(f, "{bytes:02x?}: byte {} of {}; byte {} of {}", first.1, first.0, again.1, again.0)
    }
}

impl Repeats {
    /// Nothing sent yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at all bytes of a stream, and keeps its blocks. Returns what was in an earlier stream, or earlier in this one: of a longer
    /// stretch a window in each 32 bytes.
    pub fn look(&mut self, name: impl Into<String>, bytes: &[u8]) -> Vec<Repeat> {
        let stream = self.names.len();
        self.names.push(name.into());
        let mut found = Vec::new();
        let mut values = Values::new();
        let mut from = 0;
        for (at, window) in bytes.windows(WINDOW).enumerate() {
            match at.checked_sub(1) {
                None => window.iter().for_each(|&byte| values.add(byte)),
                Some(before) => {
                    values.remove(bytes[before]);
                    values.add(window[WINDOW - 1]);
                }
            }
            if values.distinct < DISTINCT {
                continue;
            }
            let window: [u8; WINDOW] = window.try_into().expect("as long as a window");
            match self.blocks.entry(window) {
                Entry::Occupied(before) => {
                    if at >= from {
                        let &(first, place) = before.get();
                        let (first, again) = [(first, place), (stream, at)]
                            .map(|(stream, at)| (self.names[stream].clone(), at))
                            .into();
                        found.push(Repeat { bytes: window, first, again });
                        from = at + WINDOW;
                    }
                }
                Entry::Vacant(block) => {
                    if at.is_multiple_of(WINDOW) {
                        block.insert((stream, at));
                    }
                }
            }
        }
        found
    }

    /// How many blocks are kept to compare with.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

/// How often each value is in a window.
struct Values {
    counts: [u8; 256],
    distinct: usize,
}

impl Values {
    fn new() -> Self {
        Self { counts: [0; 256], distinct: 0 }
    }

    fn add(&mut self, byte: u8) {
        let count = &mut self.counts[usize::from(byte)];
        self.distinct += usize::from(*count == 0);
        *count += 1;
    }

    fn remove(&mut self, byte: u8) {
        let count = &mut self.counts[usize::from(byte)];
        *count -= 1;
        self.distinct -= usize::from(*count == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random bytes of a seed.
    fn random(seed: u8, bytes: usize) -> Vec<u8> {
        let mut made = vec![0; bytes];
        blake3::Hasher::new_derive_key("jaguar wire 2026 test of repeats")
            .update(&[seed])
            .finalize_xof()
            .fill(&mut made);
        made
    }

    /// 63 bytes of an earlier stream, of the same, or of one that is longer in between, are found wherever they were and come.
    #[test]
    fn a_planted_repeat_is_found_at_any_offset() {
        let first = random(1, 300);
        for from in 0..2 * WINDOW {
            for to in 0..2 * WINDOW {
                let mut second = random(2, 300);
                second[to..to + FOUND].copy_from_slice(&first[from..from + FOUND]);
                let mut repeats = Repeats::new();
                assert_eq!(repeats.look("first", &first), []);
                let found = repeats.look("second", &second);
                let [one] = &found[..] else { panic!("{from}, {to}: {found:?}") };
                let (was, is) = (one.first.1, one.again.1);
                assert_eq!((was % WINDOW, is - to), (0, was - from), "{from}, {to}");
                assert!((from..from + WINDOW).contains(&was), "{from}, {to}");
                assert_eq!((&*one.first.0, &*one.again.0), ("first", "second"));
                assert_eq!(one.bytes, first[was..was + WINDOW]);
                // Within one stream too.
                let both = [&first[..], &second].concat();
                assert_eq!(Repeats::new().look("both", &both).len(), 1, "{from}, {to}");
            }
        }
    }

    /// All that a session has sent, sent again behind a message of another length: a grid of fixed places would find nothing of it.
    #[test]
    fn a_wholesale_repeat_is_found_whatever_is_before_it() {
        let first = random(3, 5000);
        for before in 0..2 * WINDOW {
            let second = [random(4, before), first.clone()].concat();
            let mut repeats = Repeats::new();
            repeats.look("first", &first);
            let found = repeats.look("second", &second).len();
            assert_eq!(found, first.len() / WINDOW, "{before}");
        }
    }

    /// A plane of ten values, as tables of digits have them: 8 bytes with ten fresh bits, and padding of zeros or ones. Of 16 bytes of them many
    /// are equal to others by chance; that is no repeat.
    #[test]
    fn planes_with_padding_raise_no_alarm() {
        for values in 1..=64 {
            let fresh = random(values, 1 << 16);
            let planes = fresh.chunks_exact(8).enumerate().flat_map(|(plane, fresh)| {
                let padding = if (plane / 2).is_multiple_of(2) { 0x00 } else { 0xff };
                (0..8).map(move |word| {
                    let bits = values / 8 + u8::from(word < usize::from(values % 8));
                    let mask = ((1u16 << bits) - 1) as u8;
                    fresh[word] & mask | padding & !mask
                })
            });
            let planes: Vec<u8> = planes.collect();
            assert_eq!(Repeats::new().look("planes", &planes), [], "{values}");
        }
    }

    /// What is short, empty, padding, or a list of small numbers does not count. Neither does a window of few values, whatever they are.
    #[test]
    fn little_things_do_not_count() {
        let mut repeats = Repeats::new();
        let numbers: Vec<u8> = (0..4096u32).map(|i| (i % 23) as u8 * 11).collect();
        for bytes in [&[][..], &random(5, WINDOW - 1), &[7; 5000], &numbers] {
            for _ in 0..2 {
                assert_eq!(repeats.look("little", bytes), []);
            }
        }
        assert_eq!(repeats.blocks(), 0);
        // One value more, and they do.
        let numbers: Vec<u8> = (0..4096u32).map(|i| (i % 24) as u8 * 10).collect();
        assert!(!repeats.look("enough", &numbers).is_empty());
    }

    /// The sliding count is the count.
    #[test]
    fn values_are_counted_as_the_window_slides() {
        let bytes = random(6, 2000).iter().map(|b| b % 40).collect::<Vec<u8>>();
        let mut values = Values::new();
        bytes[..WINDOW].iter().for_each(|&b| values.add(b));
        for at in 0..bytes.len() - WINDOW {
            let set: std::collections::HashSet<u8> = bytes[at..at + WINDOW].iter().copied().collect();
            assert_eq!(values.distinct, set.len(), "{at}");
            values.remove(bytes[at]);
            values.add(bytes[at + WINDOW]);
        }
    }
}
