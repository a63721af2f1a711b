//! The product of [`gemm`](crate::gemm) over whole ring elements where many terms differ by a power of `Y = X^P` only:
//! a transform over Y turns it into M = n/P small products with fewer terms.
//!
//! Computes `out[d] = sum over t of weights[d][t] * X^(-offset(t)) * row(t)` modulo `X^n + 1` and `2^bits`, all n or some
//! coefficients (all: the half of SPA-Conv, Jaguar, section 3.1, that needs them). With `Y = X^P` the ring is
//! `Z[X]_{<P}` over `Z[Y]/(Y^M + 1)`, and `offset = q P + r` is `Y^-q X^-r`. Terms of the same row and the same r, a *tap*,
//! become one term whose weight is a polynomial in Y, and at each of the M *frequencies* (roots of `Y^M + 1`) a
//! number. So T terms become D taps, and multiply-adds fall by T/D: by M where maps lie P apart, each seen through the same
//! kernel; by more where its rows lie P apart too.
//! A read that passes the end of a row of P lanes gains a factor 1/Y.
//!
//! *Some words only.* Where the first words of equal parts are wanted, the first lanes of every P are computed: 32 at a time or, if they are
//! few, one by one with outputs side by side.
//!
//! *Pairs.* Processors add up two products at a time, so taps go in pairs. Two rows with the same shifts are interleaved once, and one load
//! reads a tap of each; a row that is left over is interleaved with itself, a shift apart.
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
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use transform::{MAX_LENGTH, PRIMES, Tables};

/// Outputs that are computed together: 16 pairs of weights are a line. Where a product is made in parts
/// ([`Spectral::multiply_part`]), parts begin at its multiples.
pub const BLOCK: usize = 16;
/// Fewest lanes of a row: 16-bit lanes of a line.
const MIN_LANES: usize = 32;
/// So many lanes take less time one by one, with outputs side by side, than a vector of lanes does.
const FEW_LANES: usize = 8;
/// Widest weights: residues of wider ones would take a product.
const MAX_WEIGHT_BITS: u32 = 15;

/// What is computed: the first words of `out[d] = sum over t of weights[d][t] * X^(-offset(t)) * row(t)`.
#[derive(Clone, Copy, Debug)]
pub struct SpectralProduct<'a> {
    /// How many words a row has.
    pub n: usize,
    /// Words are modulo `2^bits`.
    pub bits: u32,
    /// How many rows the source has.
    pub rows: usize,
    /// What every output is the sum of.
    pub terms: &'a [Term],
    /// Weights are below `2^(weight_bits - 1)` in magnitude.
    pub weight_bits: u32,
    /// Which words of an output.
    pub wanted: Wanted,
}

/// The first `len` words of each of `parts` equal parts of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How many equal parts an output has: a power of two.
    pub parts: usize,
    /// At most n / `parts`.
    pub len: usize,
}

impl Wanted {
    /// The first `len` words.
    pub fn first(len: usize) -> Wanted {
        Wanted { parts: 1, len }
    }

    /// How many words are wanted.
    pub(crate) fn count(self) -> usize {
        self.parts * self.len
    }

    /// How many lanes of every P hold all of them, from the first on.
    fn exact_lanes(self, n: usize, lanes: usize) -> usize {
        let part = n / self.parts;
        let read = if lanes > part { lanes - part + self.len } else { self.len };
        read.min(lanes)
    }

    /// The same in whole vectors.
    fn lanes(self, n: usize, lanes: usize) -> usize {
        self.exact_lanes(n, lanes).next_multiple_of(MIN_LANES)
    }

    /// How many lanes of every P are computed one by one, if so.
    fn few(self, n: usize, lanes: usize) -> Option<usize> {
        Some(self.exact_lanes(n, lanes)).filter(|&exact| exact <= FEW_LANES)
    }
}

/// A row and by how many lanes it is shifted.
type Tap = (usize, usize);

/// Two rows, lane by lane side by side, from lane 0 and from lane `apart` on: one load reads two taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    rows: [usize; 2],
    apart: usize,
}

/// Taps in pairs: the two of a pair are read from one stream.
struct Pairs {
    streams: Vec<Stream>,
    /// Of every pair, the stream and the shift of its first tap.
    reads: Vec<(usize, usize)>,
    /// Where a tap is: `2 * pair`, and 1 more for the second of a pair.
    numbers: HashMap<Tap, usize>,
}

impl Pairs {
    /// Rows with the same shifts go together; the shifts of what is left, two by two.
    fn of(terms: &[Term], lanes: usize) -> Pairs {
        let mut shifts = BTreeMap::<usize, BTreeSet<usize>>::new();
        for term in terms {
            shifts.entry(term.row as usize).or_default().insert(term.offset as usize % lanes);
        }
        let mut alike = BTreeMap::<Vec<usize>, Vec<usize>>::new();
        for (row, shifts) in shifts {
            alike.entry(shifts.into_iter().collect()).or_default().push(row);
        }
        let (mut pairs, mut known) =
            (Pairs { streams: Vec::new(), reads: Vec::new(), numbers: HashMap::new() }, HashMap::new());
        let mut add = |rows: [usize; 2], shift: usize, second: Option<usize>| {
            let apart = second.map_or(0, |second| second - shift);
            let stream = *known.entry((rows, apart)).or_insert_with(|| {
                pairs.streams.push(Stream { rows, apart });
                pairs.streams.len() - 1
            });
            let number = 2 * pairs.reads.len();
            pairs.numbers.insert((rows[0], shift), number);
            if let Some(second) = second {
                pairs.numbers.insert((rows[1], second), number + 1);
            }
            pairs.reads.push((stream, shift));
        };
        for (shifts, rows) in &alike {
            for rows in rows.chunks(2) {
                match *rows {
                    [a, b] => shifts.iter().for_each(|&shift| add([a, b], shift, Some(shift))),
                    [a] => shifts.chunks(2).for_each(|two| add([a, a], two[0], two.get(1).copied())),
                    _ => unreachable!("chunks of two"),
                }
            }
        }
        pairs
    }

    /// Words of a stream that any pair reads, if `read` lanes are computed.
    fn span(&self, read: usize) -> usize {
        let most = self.reads.iter().map(|&(_, shift)| shift).max().unwrap_or(0);
        (most + read).next_multiple_of(2 * Line::WORDS)
    }
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
    wanted: Wanted,
    /// Lanes of every P that are computed.
    read: usize,
    /// How many of these, where they are computed one by one.
    few: Option<usize>,
    /// D: taps that the terms become.
    taps: usize,
    streams: Vec<Stream>,
    /// 32-bit words of a stream.
    span: usize,
    /// By pair of taps: its first word in the streams of a frequency.
    reads: Vec<usize>,
    /// By term: `tap * M + q`.
    places: Vec<usize>,
    /// Lanes of a row that are repeated behind it, times 1/Y: as many as are read beyond it, in lines.
    extension: usize,
    tables: Vec<Tables>,
    recombination: kernel::Recombination,
    kernel: Kernel,
}

/// Weights in the order in which they are transformed: for 16 outputs at a time `[pair of taps][q][output][tap of the pair]`.
/// They are a secret of whoever holds them; nothing branches on them.
pub struct SpectralWeights {
    outs: usize,
    /// Pairs of taps and M of the plan.
    shape: (usize, usize),
    lines: Vec<Line>,
}

/// Transformed rows: `[prime][frequency][stream]`, as the product reads them.
pub struct SpectralRows {
    shape: (usize, usize, usize, usize),
    kernel: Kernel,
    streams: Vec<Line>,
}

impl Spectral {
    /// Plans a product, each of whose terms reads a row negacyclically, with the number of lanes that makes it the fastest. `None` where
    /// [`spa_gemm`](crate::gemm::spa_gemm) is faster for `outs` outputs by the fitted cost rule, or if this form does not cover the
    /// product.
    ///
    /// # Panics
    /// As [`with_lanes`](Self::with_lanes).
    pub fn best(kernel: Kernel, product: SpectralProduct<'_>, outs: usize) -> Option<Spectral> {
        let SpectralProduct { n, terms, .. } = product;
        if terms.is_empty() {
            return None;
        }
        let mut best: Option<(f64, usize)> = None;
        let mut lanes = MIN_LANES.max(n / MAX_LENGTH);
        while lanes < n {
            let cost = cost(&product, lanes, &Pairs::of(terms, lanes), outs)?;
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, lanes));
            }
            lanes *= 2;
        }
        let (cost, lanes) = best?;
        if cost >= gemm_cost(&product, outs) {
            return None;
        }
        Spectral::with_lanes(kernel, product, lanes)
    }

    /// As [`best`](Self::best) with P = `lanes`, for tests and benchmarks. `None` if weights have more
    /// than 15 bits, sums more bits than six primes, two terms are the same, or one has an offset of n.
    ///
    /// # Panics
    /// If n and `lanes` are not powers of two with `32 <= lanes < n <= 128 * lanes`, if `bits` is not in `1..=64`, if there are
    /// no terms, if there is no such row, or if no such words are there to be wanted.
    pub fn with_lanes(kernel: Kernel, product: SpectralProduct<'_>, lanes: usize) -> Option<Spectral> {
        let SpectralProduct { n, bits, rows, terms, weight_bits, wanted } = product;
        assert!(n.is_power_of_two() && lanes.is_power_of_two() && MIN_LANES <= lanes && lanes < n);
        assert!(n / lanes <= MAX_LENGTH && (1..=64).contains(&bits) && !terms.is_empty());
        assert!(wanted.parts.is_power_of_two() && wanted.count() <= n && wanted.len > 0, "{wanted:?} of {n}");
        let primes = primes_for(bits, terms.len(), weight_bits)?;
        let frequencies = n / lanes;
        let mut taken = HashSet::new();
        for term in terms {
            assert!((term.row as usize) < rows, "{term:?} with {rows} rows");
            if term.offset as usize >= n || !taken.insert((term.row, term.offset)) {
                return None;
            }
        }
        let pairs = Pairs::of(terms, lanes);
        let place = |term: &Term| {
            let offset = term.offset as usize;
            pairs.numbers[&(term.row as usize, offset % lanes)] * frequencies + offset / lanes
        };
        let places = terms.iter().map(place).collect();
        let read = wanted.lanes(n, lanes);
        let span = pairs.span(read);
        let most = pairs.numbers.keys().map(|&(_, shift)| shift).max().unwrap_or(0);
        Some(Spectral {
            n,
            bits,
            rows,
            lanes,
            frequencies,
            weight_bits,
            wanted,
            read,
            few: wanted.few(n, lanes),
            taps: pairs.numbers.len(),
            span,
            reads: pairs.reads.iter().map(|&(stream, shift)| stream * span + shift).collect(),
            streams: pairs.streams,
            places,
            extension: (most + read).saturating_sub(lanes).next_multiple_of(MIN_LANES),
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
        self.taps
    }

    /// Bytes of transformed rows.
    pub fn rows_bytes(&self) -> usize {
        self.primes() * self.frequencies * self.stream_lines() * size_of::<Line>()
    }

    /// How many primes the result takes.
    pub fn primes(&self) -> usize {
        self.tables.len()
    }

    fn pairs(&self) -> usize {
        self.reads.len()
    }

    /// Lines of one frequency's streams.
    fn stream_lines(&self) -> usize {
        self.streams.len() * self.span / Line::WORDS
    }

    /// Words of an output that are computed.
    fn computed(&self) -> usize {
        self.frequencies * self.read
    }

    fn shape(&self) -> (usize, usize, usize, usize) {
        (self.reads.len(), self.frequencies, self.primes(), self.span)
    }

    /// Takes the words that are wanted out of those that are computed.
    fn gather(&self, computed: &[u64], wanted: &mut [u64]) {
        let part_len = self.n / self.wanted.parts;
        for (part, wanted) in wanted.chunks_exact_mut(self.wanted.len).enumerate() {
            let mut at = 0;
            while at < wanted.len() {
                let (frequency, lane) =
                    ((part * part_len + at) / self.lanes, (part * part_len + at) % self.lanes);
                let run = (self.lanes - lane).min(wanted.len() - at);
                wanted[at..at + run].copy_from_slice(&computed[frequency * self.read + lane..][..run]);
                at += run;
            }
        }
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
        SpectralWeights { outs: weights.outs(), shape: (self.pairs(), m), lines }
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
        let stream_lines = self.stream_lines();
        let mut streams = vec![Line::ZERO; self.primes() * self.frequencies * stream_lines];
        streams.par_chunks_exact_mut(stream_lines).enumerate().for_each(|(index, out)| {
            kernel::pack_streams(self.kernel, self, &rows, index * part, row_lines, part, out);
        });
        SpectralRows { shape: self.shape(), kernel: self.kernel, streams }
    }

    /// The product: `finish(d, words, out)` is called with the number of each output, its words that are wanted, in `0..2^bits`, and the
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
        assert_eq!(weights.shape, (self.pairs(), self.frequencies), "weights of another plan");
        assert_eq!((rows.shape, rows.kernel), (self.shape(), self.kernel), "rows of another plan");
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
            || (kernel::Scratch::new(self), vec![0; self.wanted.count()]),
            |(scratch, wanted), (index, (weights, out))| {
                let count = out.len() / each;
                kernel::block(self.kernel, self, &rows.streams, weights, count, scratch);
                for (d, out) in out.chunks_exact_mut(each).enumerate() {
                    kernel::recombine(self.kernel, self, d, scratch);
                    self.gather(&scratch.words, wanted);
                    finish(outs.start + index * BLOCK + d, wanted, out);
                }
            },
        );
    }
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

/// Transformed rows up to this many bytes are read again from a cache.
const NEAR_BYTES: f64 = (8 << 20) as f64;

/// Nanoseconds of a product on one core, its rows included. The form of the sum follows the kernel's loops; its constants are
/// fitted (by least squares of relative errors, on Zen 5 with AVX-512) to the shortest of repeated runs of 52 products with
/// M = 2 to 64 and 5 to 1152 taps, of 48 and of 54 bits. Half of these are within 2.5% of it and all within 16%; of the rows alone,
/// which are the smaller part, half within 6.5%, and some have cost twice as much. Other processors and kernels have
/// other constants, and the rule keeps these: a wrong choice costs time only. `--example choice` shows how much, and writes what constants
/// can be fitted to.
fn cost(product: &SpectralProduct<'_>, lanes: usize, pairs: &Pairs, outs: usize) -> Option<f64> {
    let SpectralProduct { n, bits, rows, terms, weight_bits, wanted } = *product;
    let primes = primes_for(bits, terms.len(), weight_bits)? as f64;
    let read = wanted.lanes(n, lanes);
    let (blocks, tiled) = (outs.div_ceil(BLOCK), outs.next_multiple_of(TILE));
    let m = n / lanes;
    let [computed, streamed] =
        [m * read, m * pairs.streams.len() * pairs.span(read)].map(|words| words as f64);
    let [n, m, rows, outs, blocks, tiled] = [n, m, rows, outs, blocks, tiled].map(|x| x as f64);
    let (stages, taps) = (m.log2(), 2.0 * pairs.reads.len() as f64);
    let products = match wanted.few(product.n, lanes) {
        Some(few) => blocks * m * few as f64 * taps * 0.12,
        None => tiled * computed * taps * 0.0042,
    };
    let weights = blocks * BLOCK as f64 * m * taps * (stages + 2.0) * 0.0207;
    let back = outs * computed * (stages + 2.0) * 0.0195;
    let prepared_rows = rows * n * (stages + 3.0) * 0.0224 + streamed * 0.1;
    // Four bytes a pair of residues. Every block reads all streams.
    let far = blocks * (primes * streamed * 4.0 - NEAR_BYTES).max(0.0) * 0.029;
    Some(primes * (products + weights + back + prepared_rows) + outs * computed * 0.24 + far)
}

/// The same of [`spa_gemm`](crate::gemm::spa_gemm), part by part, with the planes that it reads, fitted to the same
/// products: half within 3%, nine of ten within 20%, the largest have cost half as much again.
fn gemm_cost(product: &SpectralProduct<'_>, outs: usize) -> f64 {
    let SpectralProduct { n, bits, rows, terms, wanted: Wanted { parts, len }, .. } = *product;
    let limbs = f64::from(bits.div_ceil(16).max(2));
    // Vectors of positions are computed whole.
    let [len, wanted] = [parts * len.next_multiple_of(Line::WORDS), parts * len].map(|x| x as f64);
    let [n, rows, terms, outs] = [n, rows, terms.len(), outs].map(|x| x as f64);
    limbs * (len * terms * (outs * 0.0038 + 0.036) + rows * 2.0 * n * 0.039) + outs * wanted * 0.045
}

#[cfg(test)]
mod tests;
