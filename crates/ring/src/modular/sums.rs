//! Sums of residues times small numbers, reduced once (Hyena, section 3.2.2).
//!
//! A residue is cut into halves of 30 bits. Products of a half with a number fit 62 bits, sums of some too, so that two
//! additions in words of 64 bits take the place of one in 128.

use super::field::{Constants, Factors, Field, mul_factor_lazy_64};
use super::Modulus;
use crate::kernel::Kernel;
use crate::simd::{multiversion, wipe};

/// Residues that are summed up side by side.
const CHUNK: usize = 128;

/// Most terms that are added up between two reductions: their chunks stay in the second cache for all sums.
const MOST_TERMS: usize = 256;

/// Bits of the lower half of a residue.
const HALF_BITS: u32 = 30;

/// Bits of a sum of products of halves, its sign aside.
const SUM_BITS: u32 = 62;

/// Bits of a sum of whole products, its sign aside.
const WIDE_BITS: u32 = 127;

/// What is summed up: `Σ_i weights[i·rows + row]·terms[i]` for each row.
struct Terms<'a> {
    terms: &'a [&'a [u64]],
    weights: &'a [i64],
    rows: usize,
    /// How many terms are added up between two reductions.
    group: usize,
}

/// `sums[row] = Σ_i weights[i·rows + row]·terms[i]`, rows being the number of sums. Residues below p in and out. Time and memory
/// access depend on the shape and `weight_bits` alone.
///
/// # Panics
/// If there is not a weight for each row and term, slices have not one length or one that is no multiple of
/// [`BLOCK`](super::slices::BLOCK), or a sum may not fit 128 bits: those of p, of `weight_bits` and of the number of terms. Every
/// weight must be below `2^weight_bits` in absolute value.
pub fn weighted_sums(
    kernel: Kernel,
    m: &Modulus,
    terms: &[&[u64]],
    weights: &[i64],
    weight_bits: u32,
    sums: &mut [&mut [u64]],
) {
    let Some(first) = sums.first() else { return };
    let (len, rows) = (first.len(), sums.len());
    assert_eq!(weights.len(), terms.len() * rows, "a weight for each row and term");
    assert!(terms.iter().all(|term| term.len() == len) && sums.iter().all(|sum| sum.len() == len), "slices of one length");
    assert!(len.is_multiple_of(super::slices::BLOCK), "whole vectors");
    let count_bits = usize::BITS - terms.len().leading_zeros();
    assert!(m.bits + weight_bits + count_bits <= WIDE_BITS, "sums that do not fit 128 bits");
    let group = MOST_TERMS.min(1 << SUM_BITS.saturating_sub(HALF_BITS + weight_bits).min(30));
    let terms = Terms { terms, weights, rows, group };
    // Numbers of 32 bits or more there are not in any layer.
    let kernel = if weight_bits < 32 { kernel } else { Kernel::SCALAR };
    run_sums(kernel, m, &terms, sums);
}

fn sums_of_words(m: &Modulus, terms: &Terms<'_>, sums: &mut [&mut [u64]]) {
    let carried = m.factor(((1u128 << 64) % u128::from(m.value)) as u64);
    let mut wide = [0i128; CHUNK];
    let len = sums[0].len();
    for start in (0..len).step_by(CHUNK) {
        let chunk = start..(start + CHUNK).min(len);
        let wide = &mut wide[..chunk.len()];
        for (row, sum) in sums.iter_mut().enumerate() {
            wide.fill(0);
            for (i, term) in terms.terms.iter().enumerate() {
                let weight = i128::from(terms.weights[i * terms.rows + row]);
                for (wide, &x) in wide.iter_mut().zip(&term[chunk.clone()]) {
                    // A residue has at most 60 bits.
                    *wide += i128::from(x as i64) * weight;
                }
            }
            for (sum, &wide) in sum[chunk.clone()].iter_mut().zip(&*wide) {
                let (high, low) = ((wide >> 64) as i64, wide as u64);
                let high = m.mul_factor(m.reduce_signed(high), carried);
                *sum = m.add(high, m.reduce(low));
            }
        }
    }
}

/// Sums of vectors. (Not with IFMA, which would take as many instructions.)
#[inline(always)]
fn sums_of_vectors<S: Field>(simd: S, m: &Modulus, terms: &Terms<'_>, sums: &mut [&mut [u64]]) {
    let tools = &Tools::new(simd, m);
    // Polynomials often begin at the same places of a page and then compete for the same places of a cache: chunks of
    // them are copied, by vector, then term.
    let mut chunks = vec![0; CHUNK * terms.group.min(terms.terms.len())];
    let len = sums[0].len();
    for start in (0..len).step_by(CHUNK) {
        let end = (start + CHUNK).min(len);
        sums.iter_mut().for_each(|sum| sum[start..end].fill(0));
        let groups = terms.terms.chunks(terms.group).zip(terms.weights.chunks(terms.group * terms.rows));
        for (group, weights) in groups {
            let block = S::LANES * group.len();
            for (i, term) in group.iter().enumerate() {
                let vectors = term[start..end].chunks_exact(S::LANES).zip(chunks.chunks_exact_mut(block));
                for (x, block) in vectors {
                    simd.store(&mut block[i * S::LANES..], simd.load(x));
                }
            }
            let mut row = 0;
            while row < terms.rows {
                let block = Block { rows: terms.rows, row, weights, start, end, size: block };
                let sums = &mut sums[row..];
                row += match terms.rows - row {
                    // As many rows at once as registers hold.
                    8.. if S::LANES == 8 => rows_of::<S, 8>(simd, tools, &chunks, block, sums),
                    4.. => rows_of::<S, 4>(simd, tools, &chunks, block, sums),
                    2.. => rows_of::<S, 2>(simd, tools, &chunks, block, sums),
                    _ => rows_of::<S, 1>(simd, tools, &chunks, block, sums),
                };
            }
        }
    }
    wipe(&mut chunks);
}

/// Constants of a reduction.
struct Tools<W> {
    c: Constants<W>,
    mask: W,
    one: Factors<W>,
    half: Factors<W>,
    offset: W,
    correction: W,
}

impl<W: Copy> Tools<W> {
    #[inline(always)]
    fn new<S: Field<W = W>>(simd: S, m: &Modulus) -> Self {
        let offsets = m.mul(m.reduce(1 << SUM_BITS), m.add(m.reduce(1), m.reduce(1 << HALF_BITS)));
        Self {
            c: simd.constants(m),
            mask: simd.splat((1 << HALF_BITS) - 1),
            one: simd.factor(m.factor(1)),
            half: simd.factor(m.factor(1 << HALF_BITS)),
            // Makes both halves of a sum positive.
            offset: simd.splat(1 << SUM_BITS),
            correction: simd.splat(m.value - offsets),
        }
    }
}

/// Which weights and words a call of [`rows_of`] is about.
struct Block<'a> {
    rows: usize,
    row: usize,
    weights: &'a [i64],
    start: usize,
    end: usize,
    /// Words of all terms' vectors at one place.
    size: usize,
}

/// Adds to words from `start` to `end` of `ROWS` sums. Returns `ROWS`.
#[inline(always)]
fn rows_of<S: Field, const ROWS: usize>(
    simd: S,
    tools: &Tools<S::W>,
    chunks: &[u64],
    block: Block<'_>,
    sums: &mut [&mut [u64]],
) -> usize {
    let Tools { c, mask, one, half, offset, correction } = tools;
    let Block { rows, row, weights, start, end, size } = block;
    for (at, terms) in (start..end).step_by(S::LANES).zip(chunks.chunks_exact(size)) {
        let (mut low, mut high) = ([*offset; ROWS], [*offset; ROWS]);
        for (x, weights) in terms.chunks_exact(S::LANES).zip(weights.chunks_exact(rows)) {
            let x = simd.load(x);
            let (x0, x1) = (simd.and(x, *mask), simd.shr(x, HALF_BITS));
            let weights: &[i64; ROWS] = weights[row..].first_chunk().expect("weights of these rows");
            for i in 0..ROWS {
                let weight = simd.splat(weights[i] as u64);
                low[i] = simd.add(low[i], simd.mul_signed_halves(x0, weight));
                high[i] = simd.add(high[i], simd.mul_signed_halves(x1, weight));
            }
        }
        for i in 0..ROWS {
            let upper = simd.add(high[i], simd.shr(low[i], HALF_BITS));
            let lower = mul_factor_lazy_64(simd, simd.and(low[i], *mask), *one, c.p);
            let sum = simd.add(lower, mul_factor_lazy_64(simd, upper, *half, c.p));
            let sum = simd.reduce_thrice(simd.add(sum, *correction), c);
            let words = &mut sums[i][at..];
            simd.store(words, simd.reduce(simd.add(simd.load(words), sum), c.p));
        }
    }
    ROWS
}

multiversion!(
    fn run_sums(m: &Modulus, terms: &Terms<'_>, sums: &mut [&mut [u64]]) = sums_of_vectors,
    scalar |m, terms, sums| sums_of_words(m, terms, sums)
);
