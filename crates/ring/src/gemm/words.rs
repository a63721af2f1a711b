//! The product of [`spa_gemm`](super::spa_gemm) for outputs that share nothing, as those of a depthwise layer: words are multiplied
//! whole, one 64-bit product a term, so that no limbs are made for a row that a single output reads.

use super::{PackedWeights, Term};
use crate::kernel::Kernel;
use crate::simd::{Simd, multiversion};

/// Rows of words, one after the other, whose results are wanted modulo `2^bits`. Bits above are ignored.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// `[row][row_len]`: the words, row by row.
    pub words: &'a [u64],
    /// Words in a row.
    pub row_len: usize,
    /// `1..=64`: words are modulo 2^bits.
    pub bits: u32,
}

/// `out[d*len + j] = sum_t weights[d][t] * rows[terms[t].row][terms[t].offset + j] mod 2^bits` for every output d and j in
/// `0..len`, on the calling thread. A row longer than n by the largest offset, its end the negated beginning, is multiplied
/// modulo `X^n + 1`, as in [`LimbPlanes::set_row_negacyclic`](crate::planes::LimbPlanes::set_row_negacyclic).
///
/// # Panics
/// If `terms` is not as long as the packed weights say, if a term leaves its row, if `bits` is not in `1..=64`, or
/// if `out` is not `weights.outs() * len` long. Shapes are the caller's, never a peer's.
pub fn spa_words(
    kernel: Kernel,
    rows: Rows,
    terms: &[Term],
    weights: &PackedWeights,
    len: usize,
    out: &mut [u64],
) {
    assert_eq!(terms.len(), weights.terms, "terms of the packed weights");
    assert!((1..=64).contains(&rows.bits), "words of 1 to 64 bits, not {}", rows.bits);
    assert_eq!(Some(out.len()), weights.outs.checked_mul(len), "{} outputs of {len} words", weights.outs);
    if len == 0 {
        return;
    }
    let mask = crate::mask(rows.bits);
    let mut sources: Vec<(u64, &[u64])> = Vec::with_capacity(terms.len());
    for (d, out) in out.chunks_exact_mut(len).enumerate() {
        sources.clear();
        sources.extend(terms.iter().enumerate().map(|(t, term)| {
            let row = &rows.words[term.row as usize * rows.row_len..][..rows.row_len];
            (i64::from(weights.weight(d, t)) as u64, &row[term.offset as usize..][..len])
        }));
        // Neon has no products of words.
        sum(kernel.unless_neon(), &sources, mask, out);
    }
}

/// One output: the sum of the sources, all as long as `out`, times their weights, cut off by `mask`.
#[inline(always)]
fn sum_generic<S: Simd>(simd: S, sources: &[(u64, &[u64])], mask: u64, out: &mut [u64]) {
    let vector_mask = simd.splat_word(mask);
    let step = 2 * S::LANES;
    let whole = out.len() / step * step;
    for from in (0..whole).step_by(step) {
        let mut sums = [simd.splat_word(0); 2];
        for (weight, words) in sources {
            let weight = simd.splat_word(*weight);
            for (sum, words) in sums.iter_mut().zip(words[from..from + step].chunks_exact(S::LANES)) {
                *sum = simd.add_words(*sum, simd.mul_low_words(simd.load_words(words), weight));
            }
        }
        for (sum, out) in sums.into_iter().zip(out[from..from + step].chunks_exact_mut(S::LANES)) {
            simd.store_words(out, simd.and_words(sum, vector_mask));
        }
    }
    for (j, out) in out.iter_mut().enumerate().skip(whole) {
        let products = sources.iter().map(|(weight, words)| weight.wrapping_mul(words[j]));
        *out = products.fold(0, u64::wrapping_add) & mask;
    }
}

multiversion! {
    fn sum(sources: &[(u64, &[u64])], mask: u64, out: &mut [u64]) = sum_generic;
}
