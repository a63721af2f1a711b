//! The public matrix of the learning-parity-with-noise (LPN) problem, and the product with it.
//!
//! Row i has [`WEIGHT`] ones, one in each of as many segments of equal length, at places drawn from AES in counter mode
//! under a public key: the "d-local" linear code of Ferret (Yang, Weng, Lan, Zhang, Wang, CCS 2020, ePrint
//! 2020/924, Section 5), d = 10, with segments for the cache's sake. The sum of two whole segments is cancelled by every
//! row, so a secret of k bits counts as one of k − 9.
//!
//! Places are public, so looking blocks up by them reveals nothing.

use crate::Block;
use crate::aes::Key;
use crate::block::{LANES, Line};
use crate::gather::{PAIR, PAIRS, Places, WEIGHT, gather, lines};

/// Rows whose places are drawn together: few enough to stay in the L1 cache.
pub(crate) const BATCH: usize = 64;
/// Blocks of places that a batch takes in two segments, four places each.
const PLACES: usize = BATCH * PAIR / 4;

/// The matrices, one per iteration, that follow from a public key.
pub(crate) struct Matrix {
    key: Key,
}

/// Some rows of one of them.
pub(crate) struct Rows<'a> {
    key: &'a Key,
    /// The counter of the first places.
    first: u128,
}

impl Matrix {
    /// The matrices of the public key `key`.
    pub(crate) fn new(key: Block) -> Self {
        Self { key: Key::new(key) }
    }

    /// The rows of matrix `iteration` from `row` on, which must be a multiple of [`BATCH`].
    pub(crate) fn rows(&self, iteration: u64, row: usize) -> Rows<'_> {
        assert!(row.is_multiple_of(BATCH));
        let first = u128::from(iteration) << 64 | (row / BATCH * PAIRS * PLACES) as u128;
        Rows { key: &self.key, first }
    }
}

impl Rows<'_> {
    /// The places of a batch of rows in pairs of segments, as many as `places` has, from `pair` on.
    fn draw(&self, batch: usize, pair: usize, width: u32, places: &mut [Block]) {
        self.key.draw(self.first + ((batch * PAIRS + pair) * PLACES) as u128, width, places);
    }

    /// `out[i]` ^= the product of the i-th of these rows with `secret`, over F_2^128.
    ///
    /// The length of `out` must be a multiple of [`BATCH`], that of `secret` one of [`WEIGHT`] and below 2^32.
    pub(crate) fn add(&self, secret: &[Block], out: &mut [Block]) {
        let width = segment(secret.len(), out.len());
        let mut places = [[Block::ZERO; PLACES]; PAIRS];
        for (batch, out) in out.as_chunks_mut::<BATCH>().0.iter_mut().enumerate() {
            self.draw(batch, 0, width, places.as_flattened_mut());
            gather::<BATCH>(bytemuck::must_cast_ref(&places), secret, out);
        }
    }

    /// The same for lines of a secret: both of `out`, one behind the other, get the sums of `rows` and the products. Zeros stay behind in
    /// `rows`.
    ///
    /// Two segments at a time for all rows, so that these stay in the cache.
    pub(crate) fn add_lines(&self, secret: &[Line], rows: &mut [Line], out: [&mut [Block]; 2]) {
        let [first, second] = out;
        assert_eq!(first.len() + second.len(), rows.len() * LANES, "an output for each lane of each row");
        let width = segment(secret.len(), rows.len());
        for pair in 0..PAIRS {
            let (a, b) = secret[pair * PAIR * width as usize..].split_at(width as usize);
            let places = |batch, to: &mut Places<BATCH>| self.draw(batch, pair, width, to.blocks());
            let out = if pair == PAIRS - 1 && second.is_empty() { Some(&mut *first) } else { None };
            lines(self.key.kernel(), places, [a, &b[..width as usize]], rows, out);
        }
        if !second.is_empty() {
            let (own, others) = bytemuck::must_cast_slice::<_, Block>(rows).split_at(first.len());
            first.copy_from_slice(own);
            second.copy_from_slice(others);
            rows.fill(Line::ZERO);
        }
    }
}

/// The length of a segment of a secret of `columns`, for so many rows.
fn segment(columns: usize, rows: usize) -> u32 {
    assert!(rows.is_multiple_of(BATCH), "whole batches of rows");
    assert!(columns.is_multiple_of(WEIGHT), "segments of equal length");
    u32::try_from(columns / WEIGHT).expect("fewer columns than 2^32")
}

#[cfg(test)]
mod tests {
    use aes::Aes128;
    use aes::cipher::{BlockCipherEncrypt, KeyInit};

    use super::*;

    /// The definition, word by word: place w of row i of matrix m is w·k' + ⌊k'·a / 2^32⌋ with k' = k / 10, a being word
    /// 640·⌊i/64⌋ + 128·⌊w/2⌋ + 2·(i mod 64) + w mod 2 of the stream AES(0 ‖ m), AES(1 ‖ m), …
    fn place(key: [u8; 16], iteration: u64, row: usize, w: usize, k: usize) -> usize {
        let word = row / 64 * 640 + w / 2 * 128 + row % 64 * 2 + w % 2;
        let counter = u128::from(iteration) << 64 | (word / 4) as u128;
        let mut block = counter.to_le_bytes().into();
        Aes128::new(&key.into()).encrypt_block(&mut block);
        let at = word % 4 * 4;
        let a = u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
        let segment = k / WEIGHT;
        w * segment + ((a as usize * segment) >> 32)
    }

    #[test]
    fn rows_are_sums_over_the_places_of_the_definition() {
        let k = 770;
        let mut secret = vec![Line::ZERO; k];
        jaguar_ring::Prg::new([3; 32]).fill(bytemuck::cast_slice_mut(&mut secret));
        let key = [0x5a; 16];
        let matrix = Matrix::new(Block::from_bytes(key));
        for (iteration, start) in [(0, 0), (0, 128), (7, 1 << 22), (u64::MAX, 64)] {
            let rows = matrix.rows(iteration, start);
            let mut lanes = vec![Line([Block(9), Block(7), Block(5), Block(3)]); 2 * BATCH];
            let mut out = vec![Block::ZERO; 4 * lanes.len()];
            rows.add_lines(&secret, &mut lanes, [&mut out, &mut []]);
            assert!(lanes.iter().all(|line| *line == Line::ZERO));
            for (lane, first) in [9, 7, 5, 3].into_iter().enumerate() {
                // A lane alone.
                let secret: Vec<Block> = secret.iter().map(|line| line.0[lane]).collect();
                let mut single = vec![Block(first); 2 * BATCH];
                rows.add(&secret, &mut single);
                for (i, single) in single.iter().enumerate() {
                    let places = (0..WEIGHT).map(|w| place(key, iteration, start + i, w, k));
                    let want = places.fold(Block(first), |sum, place| sum ^ secret[place]);
                    assert!(*single == want, "row {i} from {start} of matrix {iteration}");
                    assert!(
                        out[4 * i + lane] == want,
                        "lane {lane}, row {i} from {start} of matrix {iteration}"
                    );
                }
            }
        }
    }

    #[test]
    fn places_are_spread_evenly() {
        // χ² over 64 equal parts of the columns: mean 63, standard deviation 11.2.
        let secret: Vec<Block> = (0..64u32).map(|i| Block(1 << i)).collect();
        let mut seen = [0u32; 64];
        let (rows, matrix) = (1 << 14, Matrix::new(Block(77)));
        let mut places = vec![Block::ZERO; rows * WEIGHT / 4];
        matrix.key.draw(0, secret.len() as u32, &mut places);
        bytemuck::cast_slice::<_, u32>(&places).iter().for_each(|&p| seen[p as usize] += 1);
        let mean = (rows * WEIGHT / 64) as f64;
        let chi: f64 = seen.iter().map(|&s| (f64::from(s) - mean).powi(2) / mean).sum();
        assert!((20.0..130.0).contains(&chi), "χ² = {chi}");
    }
}
