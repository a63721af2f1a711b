//! The limb-plane product for any vector type: packing, the register tile, and a direct path for few outputs.

use super::{BLOCK, PackedWeights, Product, TILE, Task, Term, Window, max_weight};
use crate::planes::LimbPlanes;
use crate::simd::{Dot, Line};

/// Bytes of a panel: about half of a first-level cache, the rest is for weights.
const PANEL_BYTES: usize = 24 << 10;

/// Outputs up to which packing costs more than it saves.
const DIRECT_OUTS: usize = 2;

/// Longest vector, in 32-bit lanes.
const MAX_LANES: usize = 16;

/// Pairs of terms that may be added up between two carries: the `T / 2` of the module's header.
fn carry_period(weights: &PackedWeights) -> usize {
    ((1 << 16) - 2) / max_weight(weights.weight_bits) as usize / 2
}

/// Computes `out`, the window that belongs to `task`.
#[inline(always)]
pub(super) fn run<S: Dot>(simd: S, product: &Product, task: Task, out: Window) {
    match product.src.limbs() {
        2 => run_limbs::<S, 2>(simd, product, task, out),
        3 => run_limbs::<S, 3>(simd, product, task, out),
        _ => run_limbs::<S, 4>(simd, product, task, out),
    }
}

#[inline(always)]
fn run_limbs<S: Dot, const LIMBS: usize>(simd: S, product: &Product, task: Task, out: Window) {
    if out.rows <= DIRECT_OUTS || product.terms.is_empty() {
        direct::<S, LIMBS>(simd, product, task, out);
    } else {
        blocked::<S, LIMBS>(simd, product, task, out);
    }
}

/// Many outputs: pack panels of a block of positions and a block of terms, then let all outputs pass over each panel.
#[inline(always)]
fn blocked<S: Dot, const LIMBS: usize>(simd: S, product: &Product, task: Task, mut out: Window) {
    let Product { src, weights, .. } = *product;
    let pairs = weights.pairs();
    let most = (PANEL_BYTES / (4 * S::LANES * LIMBS)).min(pairs);
    let vectors = out.len.min(BLOCK).div_ceil(2 * S::LANES) * 2;
    let mut panels = vec![Line::ZERO; (vectors * most * LIMBS * S::LANES).div_ceil(Line::WORDS)];
    let panels = simd.view_mut(&mut panels);

    for from in (0..out.len).step_by(BLOCK) {
        let len = BLOCK.min(out.len - from);
        for first in (0..pairs).step_by(most) {
            let count = most.min(pairs - first);
            let panel_len = count * LIMBS;
            pack::<S, LIMBS>(simd, product, task.from + from, len, first, panels, panel_len);
            for (v, panel) in panels.chunks_exact(panel_len).take(len.div_ceil(S::LANES)).enumerate() {
                let at = from + v * S::LANES;
                for row in (0..out.rows).step_by(TILE) {
                    let tile = &weights.tiles[(task.first_out + row) / TILE * pairs + first..][..count];
                    let mut target = Target {
                        row,
                        from: at,
                        len: S::LANES.min(out.len - at),
                        add: first > 0,
                        mask: crate::mask(src.bits()),
                        out: &mut out,
                    };
                    tile_rows::<S, LIMBS>(simd, panel, tile, carry_period(weights), &mut target);
                }
            }
        }
    }
}

/// Brings together the limbs of `pairs first..` at positions `from..from + len` of every term: `panels` becomes
/// `[vector of positions][pair][limb]`, `panel_len` vectors for each vector of positions.
#[inline(always)]
fn pack<S: Dot, const LIMBS: usize>(
    simd: S,
    product: &Product,
    from: usize,
    len: usize,
    first: usize,
    panels: &mut [S::V],
    panel_len: usize,
) {
    let count = panel_len / LIMBS;
    for pair in 0..count {
        for limb in 0..LIMBS {
            let (a, b) = pair_of_planes(product, first + pair, limb, from, len);
            for (i, at) in (0..len).step_by(2 * S::LANES).enumerate() {
                let (low, high) = paired(simd, &a[at..], &b[at..]);
                panels[2 * i * panel_len + pair * LIMBS + limb] = low;
                panels[(2 * i + 1) * panel_len + pair * LIMBS + limb] = high;
            }
        }
    }
}

/// Limb `limb` of the two terms of `pair` at positions `from..from + len`. Where the last pair has one term only, its
/// second weight is zero and any words do: the first term's.
#[inline(always)]
fn pair_of_planes<'a>(
    product: &Product<'a>,
    pair: usize,
    limb: usize,
    from: usize,
    len: usize,
) -> (&'a [i16], &'a [i16]) {
    let (src, terms): (&'a LimbPlanes, _) = (product.src, product.terms);
    let plane = |term: Term| &src.plane(term.row as usize, limb)[term.offset as usize + from..][..len];
    (plane(terms[2 * pair]), plane(terms[(2 * pair + 1).min(terms.len() - 1)]))
}

/// Two vectors of the limbs of two terms; what lies beyond the ends of `a` and `b`, which are equally long, is zero.
#[inline(always)]
fn paired<S: Dot>(simd: S, a: &[i16], b: &[i16]) -> (S::V, S::V) {
    if a.len() >= 2 * S::LANES {
        return simd.two_terms(a, b);
    }
    let mut padded = [[0; 2 * MAX_LANES]; 2];
    padded[0][..a.len()].copy_from_slice(a);
    padded[1][..b.len()].copy_from_slice(b);
    simd.two_terms(&padded[0], &padded[1])
}

/// Where a tile's results go.
struct Target<'a, 'b> {
    out: &'a mut Window<'b>,
    row: usize,
    from: usize,
    /// Positions wanted, at most a vector of them.
    len: usize,
    /// Whether to add to the output rather than overwrite it.
    add: bool,
    mask: u64,
}

impl Target<'_, '_> {
    #[inline(always)]
    fn rows_left(&self) -> usize {
        self.out.rows - self.row
    }

    /// Puts the sums of all limbs together as words, and stores them as output `row + d` if there is one.
    #[inline(always)]
    fn store<S: Dot, const LIMBS: usize>(&mut self, simd: S, d: usize, sums: [S::V; LIMBS]) {
        if d >= self.rows_left() {
            return;
        }
        let mut words = simd.widen_signed(sums[0]);
        words = simd.add_words(words, simd.shl_words::<16>(simd.widen_signed(sums[1])));
        if LIMBS > 2 {
            words = simd.add_words(words, simd.shl_words::<32>(simd.widen_signed(sums[2])));
        }
        if LIMBS > 3 {
            words = simd.add_words(words, simd.shl_words::<48>(simd.widen_signed(sums[3])));
        }
        let mask = simd.splat_word(self.mask);
        let target = self.out.words(self.row + d, self.from, self.len);
        if self.len == S::LANES {
            if self.add {
                words = simd.add_words(words, simd.load_words(target));
            }
            simd.store_words(target, simd.and_words(words, mask));
        } else {
            let mut all = [0; MAX_LANES];
            simd.store_words(&mut all, words);
            for (target, word) in target.iter_mut().zip(all) {
                let old = if self.add { *target } else { 0 };
                *target = old.wrapping_add(word) & self.mask;
            }
        }
    }
}

/// A tile of up to [`TILE`] outputs by one vector of positions, as many outputs at once as leave registers for the
/// data, a weight and a product: 24 sums of 32 registers with AVX-512, up to 9 of 16 with AVX2.
#[inline(always)]
fn tile_rows<S: Dot, const LIMBS: usize>(
    simd: S,
    panel: &[S::V],
    weights: &[[u32; TILE]],
    period: usize,
    target: &mut Target,
) {
    let rows = target.rows_left().min(TILE);
    let mut first = 0;
    while first < rows {
        first += match (S::LANES, LIMBS, rows - first) {
            (16, 2 | 3, 5..) => pass::<S, LIMBS, 8>(simd, panel, weights, period, first, target),
            (16, _, _) => pass::<S, LIMBS, 4>(simd, panel, weights, period, first, target),
            (_, 2, 3..) => pass::<S, LIMBS, 4>(simd, panel, weights, period, first, target),
            (_, 3, 3..) => pass::<S, LIMBS, 3>(simd, panel, weights, period, first, target),
            _ => pass::<S, LIMBS, 2>(simd, panel, weights, period, first, target),
        };
    }
}

/// Outputs `first..first + D` of a tile, or those of them that are wanted. Returns D.
#[inline(always)]
fn pass<S: Dot, const LIMBS: usize, const D: usize>(
    simd: S,
    panel: &[S::V],
    weights: &[[u32; TILE]],
    period: usize,
    first: usize,
    target: &mut Target,
) -> usize {
    let mut sums = [[simd.splat(0); LIMBS]; D];
    for (panel, weights) in panel.chunks(period * LIMBS).zip(weights.chunks(period)) {
        for (data, weights) in panel.as_chunks::<LIMBS>().0.iter().zip(weights) {
            let weights: &[u32; D] = weights[first..].first_chunk().expect("a pass stays in its tile");
            for (sums, &weight) in sums.iter_mut().zip(weights) {
                let weight = simd.splat(weight);
                for (sum, &data) in sums.iter_mut().zip(data) {
                    *sum = simd.dot_terms(*sum, data, weight);
                }
            }
        }
        for sums in &mut sums {
            carry(simd, sums);
        }
    }
    for (d, sums) in sums.into_iter().enumerate() {
        target.store(simd, first + d, sums);
    }
    D
}

/// Moves what exceeds 16 bits from sums that matter beyond 32 bits into the next: afterwards these are in `0..2^16`.
#[inline(always)]
fn carry<S: Dot, const LIMBS: usize>(simd: S, sums: &mut [S::V; LIMBS]) {
    let low = simd.splat(0xffff);
    let step = |sums: &mut [S::V; LIMBS], i: usize| {
        sums[i + 1] = simd.add(sums[i + 1], simd.shr16_signed(sums[i]));
        sums[i] = simd.and(sums[i], low);
    };
    match LIMBS {
        2 => {}
        3 => step(sums, 0),
        _ => {
            // The second sum is emptied before and after it takes the first one's carry: it may be full.
            step(sums, 1);
            step(sums, 0);
            step(sums, 1);
        }
    }
}

/// Few outputs (a depthwise layer has one): limbs are interleaved on the fly, nothing is packed.
#[inline(always)]
fn direct<S: Dot, const LIMBS: usize>(simd: S, product: &Product, task: Task, mut out: Window) {
    for d in 0..out.rows {
        let mut from = 0;
        while from < out.len {
            // Long runs of positions share the cost of finding a term's limbs; 24 sums of 32 registers.
            from += match (S::LANES, LIMBS, out.len - from) {
                (16, 2 | 3, 128..) => run_of::<S, LIMBS, 4>(simd, product, task, d, from, &mut out),
                (8, 2 | 3, 32..) => run_of::<S, LIMBS, 2>(simd, product, task, d, from, &mut out),
                _ => run_of::<S, LIMBS, 1>(simd, product, task, d, from, &mut out),
            };
        }
    }
}

/// Up to `2 * P` vectors of positions of output `d` of the task, from position `from` on. Returns their length.
#[inline(always)]
fn run_of<S: Dot, const LIMBS: usize, const P: usize>(
    simd: S,
    product: &Product,
    task: Task,
    d: usize,
    from: usize,
    out: &mut Window,
) -> usize {
    let Product { src, weights, .. } = *product;
    let (pairs, output) = (weights.pairs(), task.first_out + d);
    let tile = &weights.tiles[output / TILE * pairs..][..pairs];
    let span = 2 * S::LANES * P;
    let len = span.min(out.len - from);
    let mut low = [[simd.splat(0); LIMBS]; P];
    let mut high = low;
    let mut pair = 0;
    for tile in tile.chunks(carry_period(weights)) {
        for weights in tile {
            let weight = simd.splat(weights[output % TILE]);
            for limb in 0..LIMBS {
                let (a, b) = pair_of_planes(product, pair, limb, task.from + from, len);
                for part in 0..P {
                    let at = 2 * S::LANES * part;
                    let data = paired(simd, &a[at..], &b[at..]);
                    low[part][limb] = simd.dot_terms(low[part][limb], data.0, weight);
                    high[part][limb] = simd.dot_terms(high[part][limb], data.1, weight);
                }
            }
            pair += 1;
        }
        for (low, high) in low.iter_mut().zip(&mut high) {
            carry(simd, low);
            carry(simd, high);
        }
    }
    let mask = crate::mask(src.bits());
    for (part, (low, high)) in low.into_iter().zip(high).enumerate() {
        for (half, sums) in [low, high].into_iter().enumerate() {
            let from = from + (2 * part + half) * S::LANES;
            if from < out.len {
                let len = S::LANES.min(out.len - from);
                Target { out, row: d, from, len, add: false, mask }.store(simd, 0, sums);
            }
        }
    }
    span
}
