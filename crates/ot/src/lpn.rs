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
use crate::gather::{WEIGHT, gather};

/// Rows whose places are drawn together: few enough to stay in the L1 cache.
pub(crate) const BATCH: usize = 64;
/// Blocks of places that a batch takes, four places each.
const PLACES: usize = BATCH * WEIGHT / 4;

/// The matrices, one per iteration, that follow from a public key.
pub(crate) struct Matrix {
    key: Key,
}

impl Matrix {
    /// The matrices of the public key `key`.
    pub(crate) fn new(key: Block) -> Self {
        Self { key: Key::new(key) }
    }

    /// `out[i]` ^= the product of row `row` + i of matrix `iteration` with `secret`, over F_2^128.
    ///
    /// `row` and the length of `out` must be multiples of [`BATCH`], that of `secret` one of [`WEIGHT`] and below 2^32.
    pub(crate) fn add_rows(&self, iteration: u64, row: u64, secret: &[Block], out: &mut [Block]) {
        assert!(row.is_multiple_of(BATCH as u64) && out.len().is_multiple_of(BATCH));
        assert!(secret.len().is_multiple_of(WEIGHT), "segments of equal length");
        let width = u32::try_from(secret.len() / WEIGHT).expect("fewer columns than 2^32");
        let mut counter = u128::from(iteration) << 64 | u128::from(row / BATCH as u64 * PLACES as u64);
        let mut places = [Block::ZERO; PLACES];
        for out in out.chunks_exact_mut(BATCH) {
            self.key.draw(counter, width, &mut places);
            counter += PLACES as u128;
            let rows = bytemuck::cast_slice::<_, [u32; WEIGHT]>(&places);
            gather(rows, secret, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use aes::Aes128;
    use aes::cipher::{BlockCipherEncrypt, KeyInit};

    use super::*;

    /// The definition, word by word: place w of row i of matrix m is w·k' + ⌊k'·a / 2^32⌋ with k' = k / 10, a being word
    /// 10·i + w of the stream AES(0 ‖ m), AES(1 ‖ m), …
    fn place(key: [u8; 16], iteration: u64, row: u64, w: u64, k: usize) -> usize {
        let word = row * WEIGHT as u64 + w;
        let counter = u128::from(iteration) << 64 | u128::from(word / 4);
        let mut block = counter.to_le_bytes().into();
        Aes128::new(&key.into()).encrypt_block(&mut block);
        let at = (word % 4 * 4) as usize;
        let a = u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
        let segment = k / WEIGHT;
        w as usize * segment + ((a as usize * segment) >> 32)
    }

    #[test]
    fn rows_are_sums_over_the_places_of_the_definition() {
        let k = 770;
        let mut secret = vec![Block::ZERO; k];
        jaguar_ring::Prg::new([3; 32]).fill(bytemuck::cast_slice_mut(&mut secret));
        let key = [0x5a; 16];
        let matrix = Matrix::new(Block::from_bytes(key));
        for (iteration, start) in [(0, 0), (0, 128), (7, 1 << 22), (u64::MAX, 64)] {
            let mut out = vec![Block(9); 2 * BATCH];
            matrix.add_rows(iteration, start, &secret, &mut out);
            for (i, out) in out.iter().enumerate() {
                let mut want = Block(9);
                for w in 0..WEIGHT as u64 {
                    want ^= secret[place(key, iteration, start + i as u64, w, k)];
                }
                assert!(*out == want, "row {i} from {start} of matrix {iteration}");
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
