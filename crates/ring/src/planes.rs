//! Words of k bits as balanced 16-bit limbs, the form that the matrix product of [`gemm`](crate::gemm) reads.
//!
//! A word w modulo `2^k` is written as `w = l_0 + 2^16 l_1 + 2^32 l_2 + ...` modulo `2^(16 L)` with every limb in
//! `-2^15..2^15`: L = 2 limbs for k ≤ 32, 3 for k ≤ 48, 4 for k ≤ 64. Balanced limbs fit the signed 16-bit products
//! that processors have. With B the word whose limbs are all `2^15`, the limbs are those of w + B in the usual
//! unsigned sense, each minus `2^15`; so no carry runs from limb to limb.

use crate::kernel::Kernel;
use rayon::prelude::*;

/// Bits of a limb.
pub(crate) const LIMB_BITS: u32 = 16;

/// Rows of k-bit words in limb planes. A row is typically one polynomial, or the negacyclic extension of one.
///
/// Layout: `[row][limb][row_len]`; a row is contiguous, so that rows can be filled by different threads.
pub struct LimbPlanes {
    kernel: Kernel,
    bits: u32,
    limbs: usize,
    rows: usize,
    row_len: usize,
    limb_words: Vec<i16>,
}

impl LimbPlanes {
    /// All-zero rows of `row_len` words modulo `2^bits`, to be filled and multiplied on `kernel`.
    ///
    /// # Panics
    /// If `bits` is not in `1..=64`, if `row_len` is 0, or if the planes would not fit in memory.
    pub fn new(kernel: Kernel, bits: u32, rows: usize, row_len: usize) -> LimbPlanes {
        assert!((1..=64).contains(&bits), "words of 1 to 64 bits, not {bits}");
        assert!(row_len > 0, "rows of at least one word");
        let limbs = limbs_for(bits);
        let size = rows.checked_mul(limbs).and_then(|planes| planes.checked_mul(row_len));
        let size = size.expect("planes that fit in memory");
        LimbPlanes { kernel, bits, limbs, rows, row_len, limb_words: vec![0; size] }
    }

    /// The kernel that products run on.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Bits of a word: results are modulo `2^bits`.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Limbs of a word.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", test))]
    pub(crate) fn limbs(&self) -> usize {
        self.limbs
    }

    /// How many rows the planes have.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many words a row has.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// Stores `words` as row `row`. Bits above `bits` are ignored.
    ///
    /// # Panics
    /// If there is no such row or `words` is not `row_len` long.
    pub fn set_row(&mut self, row: usize, words: &[u64]) {
        assert_eq!(words.len(), self.row_len, "words of a row");
        self.row_mut(row).set(words);
    }

    /// Stores the first `row_len` of `[words, -words]` as row `row`, so that multiplications by powers of X modulo `X^n + 1`,
    /// n being the number of words, are straight reads: entry `offset + j` is coefficient j of `X^(-offset) * words`, as far
    /// as the row goes; up to `offset = n` where it is 2n long. As `X^n = -1`, `offset = n - t` reads `-X^t * words`.
    ///
    /// # Panics
    /// If there is no such row or `words` is less than `row_len / 2` long.
    pub fn set_row_negacyclic(&mut self, row: usize, words: &[u64]) {
        self.row_mut(row).set_negacyclic(words);
    }

    /// All rows, to be filled independently of each other (by several threads, for instance).
    pub fn rows_mut(&mut self) -> impl ExactSizeIterator<Item = RowMut<'_>> + Send {
        let (kernel, limbs, row_len) = (self.kernel, self.limbs, self.row_len);
        self.limb_words.chunks_exact_mut(limbs * row_len).map(move |row| RowMut { kernel, row_len, row })
    }

    /// Sets every row as [`set_row_negacyclic`](Self::set_row_negacyclic) does: `fill(row, words)` writes the n words of each. Runs on
    /// the threads of the current rayon pool.
    ///
    /// # Panics
    /// If n is 0 or more than the length of a row.
    pub fn fill_negacyclic(&mut self, n: usize, fill: impl Fn(usize, &mut [u64]) + Sync) {
        let rows: Vec<_> = self.rows_mut().enumerate().collect();
        rows.into_par_iter().for_each_init(
            || vec![0; n],
            |words, (i, mut row)| {
                fill(i, words);
                row.set_negacyclic(words);
            },
        );
    }

    fn row_mut(&mut self, row: usize) -> RowMut<'_> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let size = self.limbs * self.row_len;
        RowMut { kernel: self.kernel, row_len: self.row_len, row: &mut self.limb_words[row * size..][..size] }
    }

    /// The limbs of weight `2^(16 limb)` of row `row`.
    #[inline(always)]
    pub(crate) fn plane(&self, row: usize, limb: usize) -> &[i16] {
        &self.limb_words[(row * self.limbs + limb) * self.row_len..][..self.row_len]
    }

    /// Words `from..from + out.len()` of row `row`, put together again, in `0..2^bits`.
    pub(crate) fn words(&self, row: usize, from: usize, out: &mut [u64]) {
        out.fill(0);
        for limb in 0..self.limbs {
            for (word, &value) in out.iter_mut().zip(&self.plane(row, limb)[from..]) {
                *word = word.wrapping_add((i64::from(value) as u64) << (LIMB_BITS * limb as u32));
            }
        }
        out.iter_mut().for_each(|word| *word &= crate::mask(self.bits));
    }
}

/// One row of [`LimbPlanes`], to be written.
pub struct RowMut<'a> {
    kernel: Kernel,
    row_len: usize,
    row: &'a mut [i16],
}

impl RowMut<'_> {
    /// As [`LimbPlanes::set_row`].
    pub fn set(&mut self, words: &[u64]) {
        assert_eq!(words.len(), self.row_len, "words of a row");
        for (limb, plane) in self.row.chunks_exact_mut(self.row_len).enumerate() {
            split(self.kernel, words, limb, 1, plane);
        }
    }

    /// As [`LimbPlanes::set_row_negacyclic`].
    pub fn set_negacyclic(&mut self, words: &[u64]) {
        assert!(2 * words.len() >= self.row_len, "words of at least half a row");
        for (limb, plane) in self.row.chunks_exact_mut(self.row_len).enumerate() {
            let (positive, negative) = plane.split_at_mut(words.len().min(self.row_len));
            split(self.kernel, &words[..positive.len()], limb, 1, positive);
            split(self.kernel, &words[..negative.len()], limb, -1, negative);
        }
    }
}

/// Limbs of a word of `bits` bits. Two at least: a single limb would save nothing anywhere.
fn limbs_for(bits: u32) -> usize {
    (bits.div_ceil(LIMB_BITS) as usize).max(2)
}

/// The word whose four limbs are all `2^15`.
const HALVES: u64 = 0x8000_8000_8000_8000;

/// Limb number `limb` of `sign * word` for each word, `sign` being 1 or -1.
fn split_words(words: &[u64], limb: usize, sign: i64, out: &mut [i16]) {
    let shift = LIMB_BITS * limb as u32;
    for (out, &word) in out.iter_mut().zip(words) {
        let biased = word.wrapping_mul(sign as u64).wrapping_add(HALVES);
        *out = ((biased >> shift) as u16 ^ 0x8000) as i16;
    }
}

/// The same for every vector type: the compiler's own vectors are as good as it gets here.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn split_words_generic<S>(_: S, words: &[u64], limb: usize, sign: i64, out: &mut [i16]) {
    let shift = LIMB_BITS * limb as u32;
    // A product by the sign would be slow in 64-bit lanes: -w = !w + 1.
    let flip = (sign >> 63) as u64;
    let offset = HALVES.wrapping_sub(flip);
    for (out, &word) in out.iter_mut().zip(words) {
        *out = (((word ^ flip).wrapping_add(offset) >> shift) as u16 ^ 0x8000) as i16;
    }
}

crate::simd::multiversion! {
    fn split(words: &[u64], limb: usize, sign: i64, out: &mut [i16]) = split_words_generic, scalar split_words;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use proptest::prelude::*;

    fn extreme_word() -> impl Strategy<Value = u64> {
        let edges = vec![0, 1, u64::MAX, 1 << 63, HALVES, HALVES - 1, 0x7fff_7fff_7fff_7fff, 0xffff, 1 << 47];
        prop_oneof![any::<u64>(), prop::sample::select(edges)]
    }

    #[test]
    fn rows_are_independent() {
        use rayon::prelude::*;
        let rows: Vec<Vec<u64>> = (0..7).map(|row| vec![0x0123_4567_89ab_cdef << row; 6]).collect();
        let (mut one_by_one, mut together) = (
            LimbPlanes::new(Kernel::of(Cpu::detect()), 48, 14, 6),
            LimbPlanes::new(Kernel::of(Cpu::detect()), 48, 14, 6),
        );
        for (i, row) in rows.iter().enumerate() {
            one_by_one.set_row(i, row);
            one_by_one.set_row_negacyclic(7 + i, &row[..3]);
        }
        together.rows_mut().enumerate().par_bridge().for_each(|(i, mut row)| match rows.get(i) {
            Some(words) => row.set(words),
            None => row.set_negacyclic(&rows[i - 7][..3]),
        });
        assert_eq!(one_by_one.limb_words, together.limb_words);
        let mut back = [0; 6];
        together.words(9, 0, &mut back);
        let (word, minus) = (rows[2][0] & crate::mask(48), rows[2][0].wrapping_neg() & crate::mask(48));
        assert_eq!(back, [word, word, word, minus, minus, minus]);
    }

    #[test]
    fn limbs_by_width() {
        for (bits, limbs) in [(1, 2), (16, 2), (32, 2), (33, 3), (48, 3), (49, 4), (64, 4)] {
            assert_eq!(LimbPlanes::new(Kernel::of(Cpu::detect()), bits, 1, 1).limbs(), limbs);
        }
    }

    proptest! {
        #[test]
        fn limbs_sum_to_the_word(bits in 1u32..=64, words in prop::collection::vec(extreme_word(), 1..70)) {
            let n = words.len();
            let mut planes = LimbPlanes::new(Kernel::of(Cpu::detect()), bits, 3, n);
            let mut extended = LimbPlanes::new(Kernel::of(Cpu::detect()), bits, 2, 2 * n);
            planes.set_row(1, &words);
            extended.set_row_negacyclic(1, &words);
            for (i, &word) in words.iter().enumerate() {
                let sum = |planes: &LimbPlanes, at: usize| -> i128 {
                    (0..planes.limbs()).map(|limb| i128::from(planes.plane(1, limb)[at]) << (16 * limb)).sum()
                };
                let modulus = 1i128 << bits;
                let word = i128::from(word);
                prop_assert_eq!(sum(&planes, i).rem_euclid(modulus), word.rem_euclid(modulus));
                prop_assert_eq!(sum(&extended, i).rem_euclid(modulus), word.rem_euclid(modulus));
                prop_assert_eq!(sum(&extended, n + i).rem_euclid(modulus), (-word).rem_euclid(modulus));
            }
            for len in [1, n / 2 + 1, n + n / 2] {
                let mut part = LimbPlanes::new(Kernel::of(Cpu::detect()), bits, 1, len);
                part.set_row_negacyclic(0, &words);
                for limb in 0..part.limbs() {
                    prop_assert_eq!(part.plane(0, limb), &extended.plane(1, limb)[..len]);
                }
            }
            let mut back = vec![0; n];
            planes.words(1, 0, &mut back);
            for (back, word) in back.iter().zip(&words) {
                prop_assert_eq!(*back, word & crate::mask(bits));
            }
            planes.words(0, 0, &mut back);
            prop_assert!(back.iter().all(|&word| word == 0));
        }

        #[test]
        fn every_kernel_splits_alike(words in prop::collection::vec(extreme_word(), 0..70), limb in 0usize..4, minus in any::<bool>()) {
            let sign = if minus { -1 } else { 1 };
            let mut reference = vec![0; words.len()];
            split(Kernel::SCALAR, &words, limb, sign, &mut reference);
            for kernel in Kernel::all(Cpu::detect()) {
                let mut out = vec![0; words.len()];
                split(kernel, &words, limb, sign, &mut out);
                prop_assert_eq!(&out, &reference);
            }
        }
    }
}
