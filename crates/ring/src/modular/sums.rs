//! Sums of residues times small numbers, reduced once (Hyena, section 3.2.2).
//!
//! A residue is cut into halves of 30 bits. Products of a half with a number fit 62 bits, sums of some too, so that two
//! additions in words of 64 bits take the place of one in 128. With IFMA and primes of up to 52 bits products are made
//! whole, with the number modulo p, and their halves of 52 bits added up.

// Other processors run the scalar twins only.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use std::ops::Range;

use super::Modulus;
use super::field::{Factors, mul_factor_lazy_64};
use crate::kernel::Kernel;
use crate::simd::{Wide, multiversion_wide, wipe};

/// Residues that are summed up side by side.
const CHUNK: usize = 128;

/// From one copied chunk to the next.
const STRIDE: usize = CHUNK + 8;

/// Most terms that are added up between two reductions: their chunks stay in the second cache for all sums.
const MOST_TERMS: usize = 256;

/// Bits of the lower half of a residue.
const HALF_BITS: u32 = 30;

/// Bits of a sum of products of halves, its sign aside.
const SUM_BITS: u32 = 62;

/// Bits of a sum of whole products, its sign aside.
const WIDE_BITS: u32 = 127;

/// What is summed up: `Σ_i weights[part·width + i·rows + row]·terms[i]` for each row, in each of the equal parts of all terms.
struct Terms<'a, W> {
    terms: &'a [&'a [u64]],
    weights: &'a [W],
    rows: usize,
    /// Weights of a part, unused ones included.
    width: usize,
    /// Words of a part.
    part: usize,
}

/// The one length of terms and sums; `None` without sums.
fn length(terms: &[&[u64]], sums: &[&mut [u64]]) -> Option<usize> {
    let len = sums.first()?.len();
    let one = terms.iter().all(|term| term.len() == len) && sums.iter().all(|sum| sum.len() == len);
    assert!(one, "slices of one length");
    Some(len)
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
    let Some(len) = length(terms, sums) else { return };
    let rows = sums.len();
    assert_eq!(weights.len(), terms.len() * rows, "a weight for each row and term");
    assert!(len.is_multiple_of(super::slices::BLOCK), "whole vectors");
    let count_bits = usize::BITS - terms.len().leading_zeros();
    assert!(m.bits + weight_bits + count_bits <= WIDE_BITS, "sums that do not fit 128 bits");
    sums.iter_mut().for_each(|sum| sum.fill(0));
    if terms.is_empty() {
        return;
    }
    let terms = Terms { terms, weights, rows, width: weights.len(), part: len };
    // Numbers of 32 bits or more there are not in any layer.
    let kernel = if weight_bits < 32 { kernel } else { Kernel::SCALAR };
    run_sums(kernel, m.bits <= FUSED_BITS, m, &terms, weight_bits, sums);
}

/// `sums[row] += Σ_i weights[part·width + i·rows + row]·terms[i]`, rows being the number of sums. All terms are cut into equal
/// parts, as many as `weights` has times `width` words. Residues below p in and out, the weights included. Time and memory access
/// depend on the shape alone.
///
/// # Panics
/// If there is not a weight for each part, row and term, or slices have not one length, or parts are no multiple of
/// [`BLOCK`](super::slices::BLOCK).
pub fn weighted_parts(
    kernel: Kernel,
    m: &Modulus,
    terms: &[&[u64]],
    weights: &[u64],
    width: usize,
    sums: &mut [&mut [u64]],
) {
    let Some(len) = length(terms, sums) else { return };
    let rows = sums.len();
    if terms.is_empty() {
        return;
    }
    let parts = weights.len() / width.max(1);
    let enough = parts > 0 && weights.len() == parts * width && width >= terms.len() * rows;
    assert!(enough, "a weight for each part, row and term");
    let part = len / parts;
    assert!(part * parts == len && part.is_multiple_of(super::slices::BLOCK), "whole vectors in equal parts");
    run_parts(kernel, m.bits <= FUSED_BITS, m, &Terms { terms, weights, rows, width, part }, sums);
}

fn parts_of_words(m: &Modulus, terms: &Terms<'_, u64>, sums: &mut [&mut [u64]]) {
    for (i, weights) in terms.weights.chunks_exact(terms.width).enumerate() {
        let part = i * terms.part..(i + 1) * terms.part;
        for (term, weights) in terms.terms.iter().zip(weights.chunks_exact(terms.rows)) {
            for (sum, &weight) in sums.iter_mut().zip(weights) {
                for (sum, &x) in sum[part.clone()].iter_mut().zip(&term[part.clone()]) {
                    *sum = m.reduce_product(u128::from(x) * u128::from(weight) + u128::from(*sum));
                }
            }
        }
    }
}

fn sums_of_words(m: &Modulus, terms: &Terms<'_, i64>, _: u32, sums: &mut [&mut [u64]]) {
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

/// How vectors of terms are multiplied with numbers and added up. The sum of one vector is a pair of vectors.
trait Lazy: Wide {
    /// Words that a number takes in memory.
    const SPREAD: usize;
    /// Bits of the lower part of a sum.
    const PART_BITS: u32;
    /// What both parts of a sum begin with, which makes them positive.
    const OFFSET: u64;
    /// Whether numbers are residues, and not signed.
    const RESIDUES: bool;

    /// A number, `SPREAD` times.
    fn write(m: &Modulus, weight: i64, out: &mut [u64]);
    /// A number in all lanes.
    fn number(self, written: &[u64]) -> Self::W;
    /// The parts of residues.
    fn split(self, x: Self::W) -> [Self::W; 2];
    /// Adds products.
    fn add_products(self, sum: [Self::W; 2], x: [Self::W; 2], number: Self::W) -> [Self::W; 2];
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::simd::{Avx2, Avx512, Avx512Ifma, Fused};

    macro_rules! by_halves {
        ($($token:ty),*) => {
            $(
                impl Lazy for $token {
                    // Written to all lanes: the compiler would extend the sign of a single word again for every product.
                    const SPREAD: usize = Self::LANES;
                    const PART_BITS: u32 = HALF_BITS;
                    const OFFSET: u64 = 1 << SUM_BITS;
                    const RESIDUES: bool = false;

                    #[inline(always)]
                    fn write(_: &Modulus, weight: i64, out: &mut [u64]) {
                        out.fill(weight as u64);
                    }
                    #[inline(always)]
                    fn number(self, written: &[u64]) -> Self::W {
                        self.load(written)
                    }
                    #[inline(always)]
                    fn split(self, x: Self::W) -> [Self::W; 2] {
                        [self.and(x, self.splat((1 << HALF_BITS) - 1)), self.shr(x, HALF_BITS)]
                    }
                    #[inline(always)]
                    fn add_products(self, sum: [Self::W; 2], x: [Self::W; 2], number: Self::W) -> [Self::W; 2] {
                        [
                            self.add(sum[0], self.mul_signed_halves(x[0], number)),
                            self.add(sum[1], self.mul_signed_halves(x[1], number)),
                        ]
                    }
                }
            )*
        };
    }
    by_halves!(Avx2, Avx512);

    /// Of residues and numbers modulo p, both of up to 52 bits.
    impl Lazy for Avx512Ifma {
        const SPREAD: usize = 1;
        const PART_BITS: u32 = 52;
        const OFFSET: u64 = 0;
        const RESIDUES: bool = true;

        #[inline(always)]
        fn write(m: &Modulus, weight: i64, out: &mut [u64]) {
            out[0] = m.reduce_signed(weight);
        }
        #[inline(always)]
        fn number(self, written: &[u64]) -> Self::W {
            self.splat(written[0])
        }
        #[inline(always)]
        fn split(self, x: Self::W) -> [Self::W; 2] {
            [x, x]
        }
        #[inline(always)]
        fn add_products(self, sum: [Self::W; 2], x: [Self::W; 2], number: Self::W) -> [Self::W; 2] {
            [self.add_mul_lo(sum[0], x[0], number), self.add_mul_hi(sum[1], x[1], number)]
        }
    }
}

/// Most bits of a prime of which IFMA adds up products.
const FUSED_BITS: u32 = 52;

/// How many terms are added up between two reductions, for numbers of so many bits.
fn group(weight_bits: u32) -> usize {
    MOST_TERMS.min(1 << SUM_BITS.saturating_sub(HALF_BITS + weight_bits).min(30))
}

/// Adds to sums of residues; numbers are signed, of `weight_bits` bits.
#[inline(always)]
fn sums_of_vectors<S: Lazy>(
    simd: S,
    m: &Modulus,
    terms: &Terms<'_, i64>,
    weight_bits: u32,
    sums: &mut [&mut [u64]],
) {
    let mut numbers = vec![0; terms.weights.len() * S::SPREAD];
    for (&weight, out) in terms.weights.iter().zip(numbers.chunks_exact_mut(S::SPREAD)) {
        S::write(m, weight, out);
    }
    let &Terms { terms, rows, width, part, .. } = terms;
    let written = Terms { terms, weights: &numbers, rows, width: width * S::SPREAD, part };
    add_up(simd, m, &written, group(weight_bits), sums);
    wipe(&mut numbers);
}

/// The same; numbers are residues.
#[inline(always)]
fn parts_of_vectors<S: Lazy>(simd: S, m: &Modulus, terms: &Terms<'_, u64>, sums: &mut [&mut [u64]]) {
    if S::RESIDUES {
        return add_up(simd, m, terms, MOST_TERMS, sums);
    }
    // The number of least absolute value that each stands for is low + 2^bits·high, both signed, of so many bits.
    let bits = m.bits.div_ceil(2);
    let half = 1i64 << (bits - 1);
    let low = |weight: u64| ((m.centred(weight) + half) & (2 * half - 1)) - half;
    let mut numbers: Vec<i64> = terms.weights.iter().map(|&w| (m.centred(w) - low(w)) >> bits).collect();
    let &Terms { terms, rows, width, part, weights } = terms;
    let len = sums[0].len();
    let mut high = vec![0; rows * len];
    let mut halves: Vec<&mut [u64]> = high.chunks_exact_mut(len).collect();
    sums_of_vectors(simd, m, &Terms { terms, weights: &numbers, rows, width, part }, bits, &mut halves);
    let (factor, p) = (m.factor(1 << bits), simd.splat(m.value));
    let factor = (simd.splat(factor.value), simd.splat(factor.quotient));
    for (sum, high) in sums.iter_mut().zip(high.chunks_exact(len)) {
        for (x, high) in sum.chunks_exact_mut(S::LANES).zip(high.chunks_exact(S::LANES)) {
            let product = mul_factor_lazy_64(simd, simd.load(high), factor, p);
            let product = simd.wrap(simd.sub(product, p), p);
            simd.store(x, simd.wrap(simd.sub(simd.add(simd.load(x), product), p), p));
        }
    }
    wipe(&mut high);
    numbers.iter_mut().zip(weights).for_each(|(number, &weight)| *number = low(weight));
    sums_of_vectors(simd, m, &Terms { terms, weights: &numbers, rows, width, part }, bits, sums);
    wipe(&mut numbers);
}

/// Adds to sums, `group` terms between two reductions. Numbers are written as [`Lazy`] has them.
#[inline(always)]
fn add_up<S: Lazy>(simd: S, m: &Modulus, terms: &Terms<'_, u64>, group: usize, sums: &mut [&mut [u64]]) {
    let tools = &Tools::new(simd, m);
    let &Terms { terms, rows, width, part, weights } = terms;
    // Polynomials often begin at the same places of a page and then compete for the same places of a cache: chunks of
    // them are copied, and lie apart by no power of two.
    let mut chunks = vec![0; STRIDE * group.min(terms.len())];
    let numbers = weights.chunks_exact(width).map(|numbers| &numbers[..terms.len() * rows * S::SPREAD]);
    let ranges = numbers.enumerate().flat_map(|(i, numbers)| {
        let end = (i + 1) * part;
        (i * part..end).step_by(CHUNK).map(move |start| (start..end.min(start + CHUNK), numbers))
    });
    for (range, numbers) in ranges {
        let groups = terms.chunks(group).zip(numbers.chunks(group * rows * S::SPREAD));
        for (group, numbers) in groups {
            for (term, chunk) in group.iter().zip(chunks.chunks_exact_mut(STRIDE)) {
                chunk[..range.len()].copy_from_slice(&term[range.clone()]);
            }
            let mut row = 0;
            while row < rows {
                let block = Block { chunks: &chunks[..STRIDE * group.len()], numbers, rows, row };
                let (sums, range) = (&mut sums[row..], range.clone());
                // As many sums at once as registers hold.
                let wide = S::LANES == 8;
                let by = |vectors: usize| range.len().is_multiple_of(vectors * S::LANES);
                row += match rows - row {
                    8.. if wide => rows_of::<S, 8, 1>(simd, tools, &block, range, sums),
                    4.. if wide && by(2) => rows_of::<S, 4, 2>(simd, tools, &block, range, sums),
                    2.. if wide && by(4) => rows_of::<S, 2, 4>(simd, tools, &block, range, sums),
                    1 if wide && by(8) => rows_of::<S, 1, 8>(simd, tools, &block, range, sums),
                    4.. => rows_of::<S, 4, 1>(simd, tools, &block, range, sums),
                    2.. if by(2) => rows_of::<S, 2, 2>(simd, tools, &block, range, sums),
                    _ if by(2) => rows_of::<S, 1, 2>(simd, tools, &block, range, sums),
                    _ => rows_of::<S, 1, 1>(simd, tools, &block, range, sums),
                };
            }
        }
    }
    wipe(&mut chunks);
}

/// Constants of a reduction.
struct Tools<W> {
    /// p, 2p and 4p.
    multiples: [W; 3],
    one: Factors<W>,
    /// `2^PART_BITS`.
    shift: Factors<W>,
    mask: W,
    offset: W,
    correction: W,
}

impl<W: Copy> Tools<W> {
    #[inline(always)]
    fn new<S: Lazy<W = W>>(simd: S, m: &Modulus) -> Self {
        let shift = 1u64 << S::PART_BITS;
        let offsets = m.mul(m.reduce(S::OFFSET), m.add(m.reduce(1), m.reduce(shift)));
        let factor = |value| {
            let factor = m.factor(value);
            (simd.splat(factor.value), simd.splat(factor.quotient))
        };
        Self {
            multiples: [simd.splat(m.value), simd.splat(2 * m.value), simd.splat(4 * m.value)],
            one: factor(1),
            shift: factor(shift),
            mask: simd.splat(shift - 1),
            offset: simd.splat(S::OFFSET),
            correction: simd.splat(m.value - offsets),
        }
    }

    /// A sum modulo p, plus a residue.
    #[inline(always)]
    fn add_to<S: Lazy<W = W>>(&self, simd: S, residue: W, [low, high]: [W; 2]) -> W {
        let [p, p2, p4] = self.multiples;
        let high = simd.add(high, simd.shr(low, S::PART_BITS));
        let low = mul_factor_lazy_64(simd, simd.and(low, self.mask), self.one, p);
        let sum = simd.add(low, mul_factor_lazy_64(simd, high, self.shift, p));
        // Below 2p + 2p + p + p.
        let mut sum = simd.add(simd.add(sum, self.correction), residue);
        sum = simd.wrap(simd.sub(sum, p4), p4);
        sum = simd.wrap(simd.sub(sum, p2), p2);
        simd.wrap(simd.sub(sum, p), p)
    }
}

/// Chunks of a group of terms and their numbers, and from which row on.
struct Block<'a> {
    chunks: &'a [u64],
    numbers: &'a [u64],
    rows: usize,
    row: usize,
}

/// Adds to the words of `range` of `ROWS` sums, `VECTORS` vectors at once. Returns `ROWS`.
#[inline(always)]
fn rows_of<S: Lazy, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    tools: &Tools<S::W>,
    block: &Block<'_>,
    range: Range<usize>,
    sums: &mut [&mut [u64]],
) -> usize {
    let Block { chunks, numbers, rows, row } = *block;
    let step = VECTORS * S::LANES;
    let count = chunks.len() / STRIDE;
    for at in (0..range.len()).step_by(step) {
        let mut totals = [[[tools.offset; 2]; ROWS]; VECTORS];
        for i in 0..count {
            let x = &chunks[i * STRIDE + at..][..step];
            let numbers = &numbers[(i * rows + row) * S::SPREAD..][..ROWS * S::SPREAD];
            let mut parts = [[tools.offset; 2]; VECTORS];
            for v in 0..VECTORS {
                parts[v] = simd.split(simd.load(&x[v * S::LANES..]));
            }
            for r in 0..ROWS {
                let number = simd.number(&numbers[r * S::SPREAD..]);
                for v in 0..VECTORS {
                    totals[v][r] = simd.add_products(totals[v][r], parts[v], number);
                }
            }
        }
        // Written down by a loop so short that it is unrolled: the sums stay in registers until here.
        let mut written = [[[0; 16]; VECTORS]; ROWS];
        for r in 0..ROWS {
            for v in 0..VECTORS {
                let (low, high) = written[r][v].split_at_mut(8);
                simd.store(low, totals[v][r][0]);
                simd.store(high, totals[v][r][1]);
            }
        }
        for (written, sum) in written.iter().zip(&mut *sums) {
            for (v, parts) in written.iter().enumerate() {
                let words = &mut sum[range.start + at + v * S::LANES..];
                let total = [simd.load(parts), simd.load(&parts[8..])];
                simd.store(words, tools.add_to(simd, simd.load(words), total));
            }
        }
    }
    ROWS
}

multiversion_wide!(
    fn run_sums(m: &Modulus, terms: &Terms<'_, i64>, weight_bits: u32, sums: &mut [&mut [u64]]) = sums_of_vectors,
    scalar |m, terms, weight_bits, sums| sums_of_words(m, terms, weight_bits, sums)
);
multiversion_wide!(
    fn run_parts(m: &Modulus, terms: &Terms<'_, u64>, sums: &mut [&mut [u64]]) = parts_of_vectors,
    scalar |m, terms, sums| parts_of_words(m, terms, sums)
);
