//! Shift-and-add convolution of k-bit words with small integer weights, as an integer matrix product.
//!
//! Computes, for output d and position j,
//! `out[d][j] = sum over t of weights[d][t] * src[row(t)][offset(t) + j]  mod 2^bits`: SPA-Conv of the Jaguar paper
//! ("shift, plaintext-multiply, accumulate"), where a multiplication by a power of X is a shifted read of a
//! negacyclically extended row. Exact; no reduction, no transform.
//!
//! *Limbs.* Words are held as balanced 16-bit limbs ([`LimbPlanes`]), so that the product of a limb and a weight is
//! one that processors add up in pairs (`vpmaddwd`, `vpdpwssd`) into 32-bit sums, one sum S_i per limb; the output
//! is `S_0 + 2^16 S_1 + 2^32 S_2 + ...` modulo `2^bits`. S_i matters modulo `2^(16 (L - i))` only, with L limbs. So
//! the two upper sums may wrap around in their 32 bits. With two limbs nothing ever overflows, with three only
//! S_0 is in danger, and with four S_0 and S_1. Instead of widening them to 64 bits, every few terms their upper
//! half is carried into the next sum.
//!
//! *How often.* A carried sum is in `0..2^16`, a term adds at most `2^15 * W` in magnitude, W = `2^(weight_bits-1) - 1`; the sum
//! fits in 32 bits while `T * W <= 2^16 - 2`. T depends on the public `weight_bits` alone (2 for 16 bits, 32 for 12,
//! 516 for 8), never on a weight's value.
//!
//! *Blocking.* Terms are taken in pairs, the limbs of a pair interleaved. For a block of positions and a block of
//! pairs the source is packed into panels, one vector of positions wide, that stay in the first-level cache while
//! all outputs pass over them; a tile of outputs by one vector of positions by all limbs stays in registers. Blocks
//! of positions (and of outputs, where positions are few) are spread over the threads of the current rayon pool.

mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;
mod words;

use crate::kernel::Kernel;
use crate::planes::LimbPlanes;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use vector::run as vector_run;
pub use words::{Rows, spa_words};

/// One term of every output: the words `row[offset + j]`, `j` in `0..len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The source's row that is added.
    pub row: u32,
    /// First word of that row.
    pub offset: u32,
}

/// Outputs whose weights stand side by side: where a product is made in parts ([`spa_gemm_part`]), parts begin at its multiples.
pub const TILE: usize = 8;
/// Positions that are packed at once, and those of a parallel task: a multiple of two vectors of any kernel.
const BLOCK: usize = 64;
/// Multiply-adds below which a product is not worth spreading over threads.
const PARALLEL_FROM: usize = 1 << 18;
/// A matrix of weights, packed once for many products.
///
/// Layout: `[tile of 8 outputs][pair of terms][output]`, two 16-bit weights in each 32-bit word, the first in the
/// low half; missing terms and outputs are zero. The weights are the server's secret; nothing that reads them
/// branches on them.
pub struct PackedWeights {
    outs: usize,
    terms: usize,
    weight_bits: u32,
    tiles: Vec<[u32; TILE]>,
}

impl PackedWeights {
    /// Packs `weights`, row-major `[outs][terms]`, each in `-W..=W` with `W = 2^(weight_bits - 1) - 1`.
    /// `weight_bits` is public and should be the same for all weights of a layer.
    ///
    /// # Panics
    /// If `weight_bits` is not in `2..=16`, if `weights` is not `outs * terms` long, or if a weight is out of range.
    pub fn new(outs: usize, terms: usize, weight_bits: u32, weights: &[i16]) -> PackedWeights {
        assert!((2..=16).contains(&weight_bits), "weights of 2 to 16 bits, not {weight_bits}");
        assert_eq!(
            Some(weights.len()),
            outs.checked_mul(terms),
            "weights for {outs} outputs of {terms} terms"
        );
        let most = max_weight(weight_bits);
        let in_range = weights.iter().all(|&w| i32::from(w).abs() <= most);
        assert!(in_range, "a weight needs more than {weight_bits} bits");
        let pairs = terms.div_ceil(2);
        let mut tiles = vec![[0; TILE]; outs.div_ceil(TILE) * pairs];
        for d in 0..outs {
            for (pair, both) in weights[d * terms..][..terms].chunks(2).enumerate() {
                let low = both[0] as u16 as u32;
                let high = both.get(1).map_or(0, |&w| w as u16 as u32);
                tiles[d / TILE * pairs + pair][d % TILE] = low | high << 16;
            }
        }
        PackedWeights { outs, terms, weight_bits, tiles }
    }

    /// Number of outputs.
    pub fn outs(&self) -> usize {
        self.outs
    }

    /// Number of terms of each output.
    pub fn terms(&self) -> usize {
        self.terms
    }

    /// The declared width: every weight is in `-W..=W` with `W = 2^(weight_bits - 1) - 1`.
    pub fn weight_bits(&self) -> u32 {
        self.weight_bits
    }

    fn pairs(&self) -> usize {
        self.terms.div_ceil(2)
    }

    /// For 8 outputs at a time, the weights of term `t`, each in the lower half of a word.
    pub(crate) fn of_term(&self, t: usize) -> impl Iterator<Item = [u32; TILE]> {
        let tiles = self.tiles.iter().skip(t / 2).step_by(self.pairs().max(1));
        tiles.map(move |tile| tile.map(|both| (both >> (16 * (t as u32 % 2))) & 0xffff))
    }

    /// The weight of output `d` and term `t`.
    fn weight(&self, d: usize, t: usize) -> i16 {
        let both = self.tiles[d / TILE * self.pairs() + t / 2][d % TILE];
        (both >> (16 * (t as u32 % 2))) as i16
    }
}

/// The largest magnitude of a weight of `weight_bits` bits.
fn max_weight(weight_bits: u32) -> i32 {
    (1 << (weight_bits - 1)) - 1
}

/// Matrix product of small weights with shifted rows of words:
/// `out[d*stride + j] = sum_t weights[d][t] * src[terms[t].row][terms[t].offset + j]  mod 2^bits` for `j` in
/// `0..len` and `d` in `0..weights.outs()`, `bits` being that of `src`. Words of `out` between the rows are left as
/// they are. Runs on the kernel of `src`, and on the threads of the current rayon pool if the product is large enough.
///
/// # Panics
/// If `terms` is not as long as the packed weights say, if a term leaves its row, if `stride < len` with more than
/// one output, or if `out` is too short. Shapes are the caller's, never a peer's.
pub fn spa_gemm(
    src: &LimbPlanes,
    terms: &[Term],
    weights: &PackedWeights,
    len: usize,
    out: &mut [u64],
    stride: usize,
) {
    spa_gemm_part(src.kernel(), src, terms, weights, 0..weights.outs, len, out, stride);
}

/// The rows `outs` of [`spa_gemm`]'s result alone, the first of them at the beginning of `out`, on any kernel.
///
/// # Panics
/// As [`spa_gemm`], and if `outs` is no range of the outputs or does not start at a multiple of [`TILE`].
#[allow(clippy::too_many_arguments)]
pub fn spa_gemm_part(
    kernel: Kernel,
    src: &LimbPlanes,
    terms: &[Term],
    weights: &PackedWeights,
    outs: Range<usize>,
    len: usize,
    out: &mut [u64],
    stride: usize,
) {
    assert_eq!(terms.len(), weights.terms, "terms of the packed weights");
    assert!(
        outs.start <= outs.end && outs.end <= weights.outs && outs.start.is_multiple_of(TILE),
        "{outs:?} of {} outputs",
        weights.outs
    );
    for term in terms {
        let fits = (term.offset as usize).checked_add(len).is_some_and(|end| end <= src.row_len());
        assert!((term.row as usize) < src.rows() && fits, "{term:?} with {len} words leaves the source");
    }
    if outs.is_empty() || len == 0 {
        return;
    }
    let rows = outs.len();
    assert!(rows == 1 || stride >= len, "rows of {len} words overlap at stride {stride}");
    let size = (rows - 1).checked_mul(stride).and_then(|start| start.checked_add(len));
    assert!(size.is_some_and(|size| size <= out.len()), "an output of {rows} rows does not fit");

    let product = Product { src, terms, weights };
    // `out` has room for all words of this window, by the assertions above, and is not used besides it.
    let whole = Window { start: out.as_mut_ptr(), stride, rows, len, borrow: PhantomData };
    let work = rows.saturating_mul(weights.terms).saturating_mul(len);
    let threads = if work < PARALLEL_FROM { 1 } else { rayon::current_num_threads() };
    if threads == 1 {
        run(kernel, &product, Task { first_out: outs.start, from: 0 }, whole);
        return;
    }
    // Tasks are blocks of positions; where these are too few to keep all threads busy, outputs are split too.
    let blocks = len.div_ceil(BLOCK);
    let groups = (4 * threads).div_ceil(blocks).min(rows.div_ceil(TILE));
    let group = rows.div_ceil(groups).next_multiple_of(TILE);
    let groups = rows.div_ceil(group);
    (0..blocks * groups).into_par_iter().for_each(|index| {
        let (from, first_row) = (index / groups * BLOCK, index % groups * group);
        // SAFETY: two tasks differ in their block of positions or in their group of outputs, so that no word
        // belongs to the windows of both; `whole` itself is not used for access.
        let window = unsafe { whole.part(first_row, group, from, BLOCK) };
        run(kernel, &product, Task { first_out: outs.start + first_row, from }, window);
    });
}

/// The operands of a product.
#[derive(Clone, Copy)]
struct Product<'a> {
    src: &'a LimbPlanes,
    terms: &'a [Term],
    weights: &'a PackedWeights,
}

/// Which outputs and positions a window onto the output belongs to; `first_out` is a multiple of [`TILE`].
#[derive(Clone, Copy)]
struct Task {
    first_out: usize,
    from: usize,
}

/// A rectangle of the output: `len` words of each of `rows` outputs, which nobody else reads or writes.
struct Window<'a> {
    start: *mut u64,
    stride: usize,
    rows: usize,
    len: usize,
    borrow: PhantomData<&'a mut [u64]>,
}

// SAFETY: a window stands for exclusive borrows of plain words, which may be shared and sent like any other.
unsafe impl Send for Window<'_> {}
// SAFETY: as above; a shared window gives access to nothing but through the unsafe `part`.
unsafe impl Sync for Window<'_> {}

impl<'a> Window<'a> {
    /// Words `from..from + len` of row `row` of this window.
    #[inline(always)]
    fn words(&mut self, row: usize, from: usize, len: usize) -> &mut [u64] {
        assert!(row < self.rows && from <= self.len && len <= self.len - from, "words of this window");
        // SAFETY: the words lie inside of the window, and `self` is borrowed as long as the result lives.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride + from), len) }
    }

    /// The part with at most `rows` rows from `row` on and at most `len` words from `from` on.
    ///
    /// # Safety
    /// As long as the part lives, none of its words is accessed through this window or through another part.
    unsafe fn part(&self, row: usize, rows: usize, from: usize, len: usize) -> Window<'a> {
        assert!(row < self.rows && from < self.len);
        Window {
            // SAFETY: the first word of the part lies inside of this window.
            start: unsafe { self.start.add(row * self.stride + from) },
            stride: self.stride,
            rows: rows.min(self.rows - row),
            len: len.min(self.len - from),
            borrow: PhantomData,
        }
    }
}

crate::simd::multiversion! {
    /// Computes one task on the calling thread.
    fn run(product: &Product, task: Task, out: Window) = vector_run, scalar scalar::run;
}

#[cfg(test)]
mod tests;
