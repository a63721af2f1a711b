//! The product of [`gemm`](crate::gemm) over whole ring elements where many terms differ by a power of `Y = X^P` only:
//! a transform over Y turns it into M = n/P small products with fewer terms.
//!
//! Computes `out[d] = sum over t of weights[d][t] * X^(-offset(t)) * row(t)` modulo `X^n + 1` and `2^bits`, all n
//! coefficients: the half of SPA-Conv (Jaguar, section 3.1) that needs all of them. With `Y = X^P` the ring is
//! `Z[X]_{<P}` over `Z[Y]/(Y^M + 1)`, and `offset = q P + r` is `Y^-q X^-r`. Terms of the same row and the same r, a *tap*,
//! become one term whose weight is a polynomial in Y, and at each of the M *frequencies* (roots of `Y^M + 1`) a
//! number. So T terms become D taps, and multiply-adds fall by T/D: by M where maps lie P apart, each seen through the same
//! kernel; by more where its rows lie P apart too.
//! A read that passes the end of a row of P lanes gains a factor 1/Y.
//!
//! *Primes.* Exact modulo 3 to 6 primes p = 1 mod 256 just below `2^14`: residues fit the signed 16-bit products that
//! processors add up in pairs (`vpdpwssd`), 24 of them between two reductions of a sum. Over the integers the result is
//! below `2^(bits-1) * T * W`, W the largest weight, and the number of primes is chosen so that this stays below half of
//! their product (less a part in 2048, which the recombination may be off by): 5 primes for 48 bits, 12-bit
//! weights and 890 terms, 6 for `2^18` terms and for 54 bits.
//!
//! *Back.* `x = sum over p of y_p * P/p - v P` with `y_p = x (P/p)^-1 mod p` and v the integer nearest to `sum of y_p / p`: one more matrix
//! product, of the y and the 16-bit limbs of the P/p. The factors are part of the transformed weights.
//!
//! *Weights* are kept as they are, 16 bits each, in the order that the transform reads; their transforms, several times as large,
//! are made for 16 outputs at a time and forgotten. That costs less than fetching them from memory would.
//!
//! Time and memory access depend on shapes and widths only.

mod kernel;
mod transform;

use crate::gemm::{PackedWeights, TILE, Term};
use crate::kernel::Kernel;
use crate::simd::Line;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use transform::{MAX_LENGTH, PRIMES, Tables};

/// Outputs that are computed together: 16 pairs of weights are a line. Where a product is made in parts
/// ([`Spectral::multiply_part`]), parts begin at its multiples.
pub const BLOCK: usize = 16;
/// Fewest lanes of a row: 16-bit lanes of a line.
const MIN_LANES: usize = 32;
/// Widest weights: residues of wider ones would take a product.
const MAX_WEIGHT_BITS: u32 = 15;

/// A row and by how many lanes it is shifted.
#[derive(Clone, Copy)]
struct Tap {
    row: usize,
    shift: usize,
}

/// How one product is computed: the shape, and constants.
pub struct Spectral {
    n: usize,
    bits: u32,
    rows: usize,
    /// P and M.
    lanes: usize,
    frequencies: usize,
    weight_bits: u32,
    taps: Vec<Tap>,
    /// By term: `tap * M + q`.
    places: Vec<usize>,
    /// Lanes of a row that are repeated behind it, times 1/Y: as many as the largest shift, in lines.
    extension: usize,
    tables: Vec<Tables>,
    recombination: kernel::Recombination,
    kernel: Kernel,
}

/// Weights in the order in which they are transformed: for 16 outputs at a time `[pair of taps][q][output][tap of the pair]`.
/// They are a secret of whoever holds them; nothing branches on them.
pub struct SpectralWeights {
    outs: usize,
    /// Taps and M of the plan.
    shape: (usize, usize),
    lines: Vec<Line>,
}

/// Transformed rows: `[prime][frequency][group of lanes][pair of taps]`, as the product reads them.
pub struct SpectralRows {
    shape: (usize, usize, usize),
    kernel: Kernel,
    panels: Vec<Line>,
}

impl Spectral {
    /// Plans the product of `terms`, each reading a row of `n` words modulo `2^bits` negacyclically, with the number of lanes
    /// that makes it the fastest. `None` where [`spa_gemm`](crate::gemm::spa_gemm) is faster for the first `len` words of `outs`
    /// outputs by the fitted cost rule, or if this form does not cover the product.
    ///
    /// # Panics
    /// As [`with_lanes`](Self::with_lanes).
    #[allow(clippy::too_many_arguments)]
    pub fn best(
        kernel: Kernel,
        n: usize,
        bits: u32,
        rows: usize,
        terms: &[Term],
        outs: usize,
        weight_bits: u32,
        len: usize,
    ) -> Option<Spectral> {
        if terms.is_empty() {
            return None;
        }
        let mut best: Option<(f64, usize)> = None;
        let mut lanes = MIN_LANES.max(n / MAX_LENGTH);
        let primes = primes_for(bits, terms.len(), weight_bits)?;
        while lanes < n {
            let cost = cost(n, lanes, rows, count_taps(terms, lanes), outs, primes);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, lanes));
            }
            lanes *= 2;
        }
        let (cost, lanes) = best?;
        if cost >= gemm_cost(n, len, bits, rows, terms.len(), outs) {
            return None;
        }
        Spectral::with_lanes(kernel, n, bits, rows, terms, weight_bits, lanes)
    }

    /// As [`best`](Self::best) with P = `lanes`, for tests and benchmarks. `None` if weights have more
    /// than 15 bits, sums more bits than six primes, two terms are the same, or one has an offset of n.
    ///
    /// # Panics
    /// If n and `lanes` are not powers of two with `32 <= lanes < n <= 128 * lanes`, if `bits` is not in `1..=64`, if there are
    /// no terms, or if there is no such row.
    pub fn with_lanes(
        kernel: Kernel,
        n: usize,
        bits: u32,
        rows: usize,
        terms: &[Term],
        weight_bits: u32,
        lanes: usize,
    ) -> Option<Spectral> {
        assert!(n.is_power_of_two() && lanes.is_power_of_two() && MIN_LANES <= lanes && lanes < n);
        assert!(n / lanes <= MAX_LENGTH && (1..=64).contains(&bits) && !terms.is_empty());
        let primes = primes_for(bits, terms.len(), weight_bits)?;
        let frequencies = n / lanes;
        let mut numbers = HashMap::new();
        let (mut taps, mut places) = (Vec::new(), Vec::new());
        let mut taken = HashSet::new();
        for term in terms {
            let (row, offset) = (term.row as usize, term.offset as usize);
            assert!(row < rows, "{term:?} with {rows} rows");
            if offset >= n {
                return None;
            }
            let tap = *numbers.entry((row, offset % lanes)).or_insert_with(|| {
                taps.push(Tap { row, shift: offset % lanes });
                taps.len() - 1
            });
            let place = tap * frequencies + offset / lanes;
            if !taken.insert(place) {
                return None;
            }
            places.push(place);
        }
        let most = taps.iter().map(|tap| tap.shift).max().unwrap_or(0);
        Some(Spectral {
            n,
            bits,
            rows,
            lanes,
            frequencies,
            weight_bits,
            taps,
            places,
            extension: most.next_multiple_of(MIN_LANES),
            tables: PRIMES[..primes].iter().map(|&prime| Tables::new(frequencies, prime)).collect(),
            recombination: kernel::Recombination::new(primes, frequencies),
            kernel,
        })
    }

    /// P: lanes that share a frequency's weights.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// D: terms that remain at each frequency.
    pub fn taps(&self) -> usize {
        self.taps.len()
    }

    /// Bytes of transformed rows.
    pub fn rows_bytes(&self) -> usize {
        self.primes() * self.frequencies * self.panel_lines() * size_of::<Line>()
    }

    /// How many primes the result takes.
    pub fn primes(&self) -> usize {
        self.tables.len()
    }

    fn pairs(&self) -> usize {
        self.taps.len().div_ceil(2)
    }

    /// Lines of one frequency's panel.
    fn panel_lines(&self) -> usize {
        self.lanes * self.pairs() / Line::WORDS
    }

    /// Orders weights.
    ///
    /// # Panics
    /// If they are of another number of terms, or wider than planned.
    pub fn weights(&self, weights: &PackedWeights) -> SpectralWeights {
        assert_eq!(weights.terms(), self.places.len(), "weights of other terms");
        assert!(weights.weight_bits() <= self.weight_bits, "weights of {} bits", weights.weight_bits());
        let m = self.frequencies;
        let block_lines = self.pairs() * m;
        let mut lines = vec![Line::ZERO; weights.outs().div_ceil(BLOCK) * block_lines];
        for (t, &place) in self.places.iter().enumerate() {
            let (tap, q) = (place / m, place % m);
            for (tile, weights) in weights.of_term(t).enumerate() {
                let line = &mut lines[tile * TILE / BLOCK * block_lines + tap / 2 * m + q];
                let half = &mut line.0[tile * TILE % BLOCK..][..TILE];
                for (both, weight) in half.iter_mut().zip(weights) {
                    *both |= weight << (16 * (tap % 2));
                }
            }
        }
        SpectralWeights { outs: weights.outs(), shape: (self.taps.len(), m), lines }
    }

    /// Transforms rows: `fill(row, words)` writes the n words of each, modulo `2^bits` (bits above are ignored). Runs on the
    /// threads of the current rayon pool.
    pub fn rows(&self, fill: impl Fn(usize, &mut [u64]) + Sync) -> SpectralRows {
        // By row: `[prime][frequency][P + extension]`.
        let part = (self.lanes + self.extension) / (2 * Line::WORDS);
        let row_lines = self.primes() * self.frequencies * part;
        let mut rows = vec![Line::ZERO; self.rows * row_lines];
        rows.par_chunks_exact_mut(row_lines).enumerate().for_each_init(
            || (vec![0; self.n], vec![Line::ZERO; self.n / 8 + self.n / 32]),
            |(words, scratch), (row, out)| {
                fill(row, words);
                kernel::transform_row(self.kernel, self, words, scratch, out);
            },
        );
        let panel_lines = self.panel_lines();
        let mut panels = vec![Line::ZERO; self.primes() * self.frequencies * panel_lines];
        panels.par_chunks_exact_mut(panel_lines).enumerate().for_each(|(index, panel)| {
            kernel::pack_panel(self.kernel, self, &rows, index * part, row_lines, part, panel);
        });
        SpectralRows {
            shape: (self.taps.len(), self.frequencies, self.primes()),
            kernel: self.kernel,
            panels,
        }
    }

    /// The product: `finish(d, words, out)` is called with the number of each output, its n words, in `0..2^bits`, and the
    /// `out.len() / outs` elements of `out` that belong to it. Runs on the threads of the current rayon pool.
    ///
    /// # Panics
    /// If weights or rows were made by another plan's shape, or `out` is not a multiple of the outputs long.
    pub fn multiply<T: Send>(
        &self,
        rows: &SpectralRows,
        weights: &SpectralWeights,
        out: &mut [T],
        finish: impl Fn(usize, &[u64], &mut [T]) + Sync,
    ) {
        self.multiply_part(rows, weights, 0..weights.outs, out, finish);
    }

    /// The outputs `outs` of [`multiply`](Self::multiply) alone, the first of them at the beginning of `out`.
    ///
    /// # Panics
    /// As `multiply`, and if `outs` is no range of the outputs or does not start at a multiple of [`BLOCK`].
    pub fn multiply_part<T: Send>(
        &self,
        rows: &SpectralRows,
        weights: &SpectralWeights,
        outs: Range<usize>,
        out: &mut [T],
        finish: impl Fn(usize, &[u64], &mut [T]) + Sync,
    ) {
        assert!(
            outs.start <= outs.end && outs.end <= weights.outs && outs.start.is_multiple_of(BLOCK),
            "{outs:?} of {} outputs",
            weights.outs
        );
        assert_eq!(weights.shape, (self.taps.len(), self.frequencies), "weights of another plan");
        let shape = (self.taps.len(), self.frequencies, self.primes());
        assert_eq!((rows.shape, rows.kernel), (shape, self.kernel), "rows of another plan");
        if outs.is_empty() {
            return;
        }
        let each = out.len() / outs.len();
        assert_eq!(each * outs.len(), out.len(), "elements for every output");
        if each == 0 {
            return;
        }
        let block_lines = self.pairs() * self.frequencies;
        let lines = &weights.lines[outs.start / BLOCK * block_lines..];
        lines.par_chunks_exact(block_lines).zip(out.par_chunks_mut(BLOCK * each)).enumerate().for_each_init(
            || kernel::Scratch::new(self),
            |scratch, (index, (weights, out))| {
                let count = out.len() / each;
                kernel::block(self.kernel, self, &rows.panels, weights, count, scratch);
                for (d, out) in out.chunks_exact_mut(each).enumerate() {
                    kernel::recombine(self.kernel, self, d, scratch);
                    finish(outs.start + index * BLOCK + d, &scratch.words, out);
                }
            },
        );
    }
}

/// How many pairs of row and shift remain of `terms`.
fn count_taps(terms: &[Term], lanes: usize) -> usize {
    let taps: HashSet<_> = terms.iter().map(|term| (term.row, term.offset as usize % lanes)).collect();
    taps.len()
}

/// Primes whose product is more than twice the largest sum, with room for the recombination's estimate.
fn primes_for(bits: u32, terms: usize, weight_bits: u32) -> Option<usize> {
    if !(2..=MAX_WEIGHT_BITS).contains(&weight_bits) {
        return None;
    }
    let most = (terms as u128) << (bits - 1 + weight_bits - 1);
    let fits = |count: usize| {
        let product: u128 = PRIMES[..count].iter().map(|&p| u128::from(p)).product();
        most <= product / 2 - product / 2048
    };
    (2..=PRIMES.len()).find(|&count| fits(count))
}

/// Panels up to this many bytes are read again from a cache.
const NEAR_BYTES: f64 = (8 << 20) as f64;

/// Nanoseconds of a product on one core, its rows included. The form of the sum follows the kernel's loops; its constants are
/// fitted (by least squares of relative errors, on Zen 5 with AVX-512) to the shortest of repeated runs of 52 products with
/// M = 2 to 64 and 5 to 1152 taps, of 48 and of 54 bits. Half of these are within 2.5% of it and all within 16%; of the rows alone,
/// which are the smaller part, half within 6.5%, and some have cost twice as much. Other processors and kernels have
/// other constants, and the rule keeps these: a wrong choice costs time only. `--example choice` shows how much, and writes what constants
/// can be fitted to.
fn cost(n: usize, lanes: usize, rows: usize, taps: usize, outs: usize, primes: usize) -> f64 {
    let blocks = outs.div_ceil(BLOCK) as f64;
    let tiled = outs.next_multiple_of(TILE) as f64;
    let [n, m, rows, taps, outs, primes] = [n, n / lanes, rows, taps, outs, primes].map(|x| x as f64);
    let stages = m.log2();
    let products = tiled * n * taps * 0.0042;
    let weights = blocks * BLOCK as f64 * m * taps * (stages + 2.0) * 0.0207;
    let back = outs * n * (stages + 2.0) * 0.0195;
    let prepared_rows = rows * n * (stages + 3.0) * 0.0224 + n * taps * 0.069;
    // Two bytes a residue. Every block reads all panels.
    let far = blocks * (primes * n * taps * 2.0 - NEAR_BYTES).max(0.0) * 0.029;
    primes * (products + weights + back + prepared_rows) + outs * n * 0.24 + far
}

/// The same of [`spa_gemm`](crate::gemm::spa_gemm) for the first `len` words, with the planes that it reads, fitted to the same
/// products: half within 3%, nine of ten within 20%, the largest have cost half as much again.
fn gemm_cost(n: usize, len: usize, bits: u32, rows: usize, terms: usize, outs: usize) -> f64 {
    let limbs = f64::from(bits.div_ceil(16).max(2));
    let [n, len, rows, terms, outs] = [n, len, rows, terms, outs].map(|x| x as f64);
    limbs * (len * terms * (outs * 0.0038 + 0.036) + rows * 2.0 * n * 0.039) + outs * len * 0.045
}

#[cfg(test)]
mod tests;
