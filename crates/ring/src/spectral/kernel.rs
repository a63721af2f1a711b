//! The product for any vector type: transforms of rows and weights, the products at each frequency, and the way back.

use super::transform::{
    Factor, PRIMES, Tables, backward, both, centre, forward, lift, montgomery, mul_factor, pair, reduce,
};
use super::{BLOCK, Spectral};
use crate::product::ntt::invert;
use crate::simd::{Lanes16, Line, multiversion, words};

/// Pairs of terms between two reductions: `2 * 12 * h^2 + 2^28 + 2^15 < 2^31` with `h = 7680` the largest residue.
const PAIRS: usize = 12;
/// Pairs whose sum needs no reduction at all before Montgomery's: `2 * 9 * h^2 <= 2^30`.
const FEW_PAIRS: usize = 9;

/// Constants of the way back.
pub(super) struct Recombination {
    /// By prime: `2^16 / M * p / P` modulo p, which the transformed weights carry.
    scales: Vec<Factor>,
    /// Where the estimate of v and each limb begin: with residues z = y - h, what the h add up to.
    estimate_start: u32,
    /// By pair of primes: `2^28 / p`.
    estimates: [u32; 3],
    /// By limb and pair of primes: limbs of the `P/p`.
    limbs: [[u32; 3]; 4],
    /// By limb: minus that of the product of all primes, and that of the sum of `h P/p`.
    ends: [u32; 4],
}

/// Limb `limb` of `word`, balanced.
fn limb(word: u64, limb: u32) -> i16 {
    ((word.wrapping_add(0x8000_8000_8000_8000) >> (16 * limb)) as u16 ^ 0x8000) as i16
}

impl Recombination {
    pub(super) fn new(primes: usize, frequencies: usize) -> Recombination {
        let primes = &PRIMES[..primes];
        let product: u128 = primes.iter().map(|&p| u128::from(p)).product();
        // A prime that is not there has constants of zero.
        let prime = |i: usize| primes.get(i).copied();
        let cofactor = |i: usize| prime(i).map_or(0, |p| product / u128::from(p));
        let estimate = |i: usize| prime(i).map_or(0, |p| ((1u32 << 29) / u32::from(p)).div_ceil(2) as i16);
        let scale = |i: usize| {
            let p = primes[i];
            let of = (cofactor(i) % u128::from(p)) as u64 * frequencies as u64;
            Factor::new((1 << 16) % u64::from(p) * invert(of % u64::from(p), u32::from(p)), p)
        };
        let halves = |i: usize| prime(i).map_or(0, |p| p / 2);
        let offset = (0..6).map(|i| cofactor(i) * u128::from(halves(i))).sum::<u128>() as u64;
        let start: u32 = (0..6).map(|i| u32::from(halves(i)) * estimate(i) as u32).sum();
        let each_pair = |of: &dyn Fn(usize) -> i16| [0, 2, 4].map(|i| pair(of(i), of(i + 1)));
        Recombination {
            scales: (0..primes.len()).map(scale).collect(),
            estimate_start: start,
            estimates: each_pair(&estimate),
            limbs: [0, 1, 2, 3].map(|l| each_pair(&|i| limb(cofactor(i) as u64, l))),
            ends: [0, 1, 2, 3].map(|l| pair(limb((product as u64).wrapping_neg(), l), limb(offset, l))),
        }
    }
}

/// Memory of one thread.
pub(super) struct Scratch {
    /// One prime's transformed weights: `[frequency][pair of taps]`, a line each.
    weights: Vec<Line>,
    /// The weights of one pair of taps, by power of Y and then by frequency.
    column: Vec<Line>,
    /// Residues of 16 outputs: `[output][prime][frequency][lane]`.
    residues: Vec<Line>,
    /// The last output: the lanes that are computed of every P.
    pub(super) words: Vec<u64>,
}

impl Scratch {
    pub(super) fn new(plan: &Spectral) -> Scratch {
        Scratch {
            weights: vec![Line::ZERO; plan.frequencies * plan.pairs()],
            column: vec![Line::ZERO; plan.frequencies],
            residues: vec![Line::ZERO; BLOCK * plan.primes() * plan.computed() / 32],
            words: vec![0; plan.computed()],
        }
    }
}

/// One row: residues of the words, transformed, centred, extended.
#[inline(always)]
fn transform_row_generic<S: Lanes16>(
    simd: S,
    plan: &Spectral,
    row: &[u64],
    scratch: &mut [Line],
    out: &mut [Line],
) {
    let vectors = plan.n / S::LANES;
    let (limbs, residues) = scratch.split_at_mut(plan.n / 8);
    let (limbs, residues) = (simd.view_mut(limbs), simd.view_mut(residues));
    // Words u = x + half in 0..2^bits; the limbs of x as pairs of 16-bit lanes, balanced as in `planes`.
    let half = 1u64 << (plan.bits - 1);
    let (to_half, mask) = (simd.splat_word(half), simd.splat_word(crate::mask(plan.bits)));
    let balance = simd.splat_word(0x8000_8000_8000_8000u64.wrapping_sub(half));
    let flip = simd.splat(0x8000_8000);
    for (v, words) in row.chunks_exact(S::LANES).enumerate() {
        let u = simd.and_words(simd.add_words(simd.load_words(words), to_half), mask);
        let (low, high) = simd.split_words(simd.add_words(u, balance));
        limbs[v] = simd.terms_of(simd.xor(low, flip));
        limbs[vectors + v] = simd.terms_of(simd.xor(high, flip));
    }
    let (low, high) = limbs.split_at(vectors);
    let part = plan.lanes / (2 * S::LANES);
    let extension = plan.extension / (2 * S::LANES);
    let out = simd.view_mut(out);
    let primes = out.chunks_exact_mut(plan.frequencies * (part + extension));
    for (tables, out) in plan.tables.iter().zip(primes) {
        let p = simd.splat(both(tables.prime));
        let constants = (simd.splat(tables.limbs[0]), simd.splat(tables.limbs[1]));
        for (residue, (low, high)) in residues.iter_mut().zip(low.chunks_exact(2).zip(high.chunks_exact(2))) {
            let first = residue_of(simd, low[0], high[0], constants, tables);
            let second = residue_of(simd, low[1], high[1], constants, tables);
            *residue = lift(simd, simd.pack_high(first, second), tables.prime);
        }
        forward(simd, residues, plan.frequencies, &tables.roots, tables.prime);
        let frequencies = residues.chunks_exact(part).zip(out.chunks_exact_mut(part + extension));
        for ((lanes, out), &turn) in frequencies.zip(&tables.turns) {
            let (own, repeated) = out.split_at_mut(part);
            for (out, &x) in own.iter_mut().zip(lanes) {
                *out = centre(simd, x, tables.prime);
            }
            for (out, &x) in repeated.iter_mut().zip(lanes) {
                *out = centre(simd, mul_factor(simd, x, turn, p), tables.prime);
            }
        }
    }
}

/// Residues of words by their limbs, as [`montgomery`] gives them: a sum of four products of at most `2^15 * 7680`.
#[inline(always)]
fn residue_of<S: Lanes16>(
    simd: S,
    low: S::V,
    high: S::V,
    (first, second): (S::V, S::V),
    tables: &Tables,
) -> S::V {
    montgomery(simd, simd.dot_terms(simd.dot_terms(simd.splat(0), low, first), high, second), tables)
}

/// Interleaves the rows of every stream at one frequency, whose part of row r begins at line `first + r * row_lines`.
#[inline(always)]
fn pack_streams_generic<S: Lanes16>(
    simd: S,
    plan: &Spectral,
    rows: &[Line],
    first: usize,
    row_lines: usize,
    part: usize,
    out: &mut [Line],
) {
    let lanes = |row: usize| -> &[i16] { bytemuck::cast_slice(&rows[first + row * row_lines..][..part]) };
    for (stream, out) in plan.streams.iter().zip(out.chunks_exact_mut(plan.span / Line::WORDS)) {
        let (a, b) = (lanes(stream.rows[0]), &lanes(stream.rows[1])[stream.apart..]);
        for (out, at) in simd.view_mut(out).chunks_exact_mut(2).zip((0..).step_by(2 * S::LANES)) {
            // The last lanes of a stream may be those of no row. No tap reads them.
            let (a, b) = (a.get(at..).unwrap_or_default(), b.get(at..).unwrap_or_default());
            if a.len().min(b.len()) >= 2 * S::LANES {
                (out[0], out[1]) = simd.pair_up(a, b);
            } else {
                let [mut last_a, mut last_b] = [[0; 32]; 2];
                for (last, from) in [(&mut last_a, a), (&mut last_b, b)] {
                    last.iter_mut().zip(from).for_each(|(last, &lane)| *last = lane);
                }
                (out[0], out[1]) = simd.pair_up(&last_a, &last_b);
            }
        }
    }
}

/// Residues of up to 16 outputs.
#[inline(always)]
fn block_generic<S: Lanes16>(
    simd: S,
    plan: &Spectral,
    streams: &[Line],
    weights: &[Line],
    outs: usize,
    scratch: &mut Scratch,
) {
    let (m, pairs, stream_lines) = (plan.frequencies, plan.pairs(), plan.stream_lines());
    for (index, tables) in plan.tables.iter().enumerate() {
        let scale = plan.recombination.scales[index];
        transform_weights(simd, tables, scale, m, weights, &mut scratch.column, &mut scratch.weights);
        for t in 0..m {
            let streams = words(&streams[(index * m + t) * stream_lines..][..stream_lines]);
            let weights = &scratch.weights[t * pairs..][..pairs];
            if let Some(lanes) = plan.few {
                for lane in 0..lanes {
                    let residues = few(simd, tables, (&streams[lane..], &plan.reads), weights);
                    let to: &mut [u16] = bytemuck::cast_slice_mut(&mut scratch.residues);
                    let to = to[(index * m + t) * plan.read + lane..].iter_mut();
                    let to = to.step_by(plan.tables.len() * m * plan.read);
                    to.zip(&residues[..outs]).for_each(|(to, &residue)| *to = residue);
                }
                continue;
            }
            let residues = simd.view_mut(&mut scratch.residues);
            let groups = plan.read / (2 * S::LANES);
            for group in 0..groups {
                let streams = &streams[2 * S::LANES * group..];
                // Output d's residues here are `step` vectors behind those of output d - 1.
                let step = plan.tables.len() * m * groups;
                let mut first = 0;
                while first < outs {
                    let to = &mut residues[first * step + (index * m + t) * groups + group..];
                    // 16 sums of 32 registers with AVX-512, 8 of 16 with AVX2.
                    first += if S::LANES == 16 {
                        tile::<S, 8>(simd, tables, (streams, &plan.reads), weights, first, to, step)
                    } else {
                        tile::<S, 4>(simd, tables, (streams, &plan.reads), weights, first, to, step)
                    };
                }
            }
        }
    }
}

/// One prime's weights at all frequencies, centred.
#[inline(always)]
fn transform_weights<S: Lanes16>(
    simd: S,
    tables: &Tables,
    scale: Factor,
    m: usize,
    weights: &[Line],
    column: &mut [Line],
    out: &mut [Line],
) {
    let (p, p2) = (simd.splat(both(tables.prime)), simd.splat(both(2 * tables.prime)));
    let pairs = weights.len() / m;
    let per_line = Line::WORDS / S::LANES;
    let column = simd.view_mut(column);
    let out = simd.view_mut(out);
    for (pair, weights) in weights.chunks_exact(m).enumerate() {
        for (x, &w) in column.iter_mut().zip(simd.view(weights)) {
            // |w| < 2^14 < 2p.
            *x = simd.add16(w, p2);
        }
        forward(simd, column, m, &tables.inverse_roots, tables.prime);
        for (t, x) in column.chunks_exact(per_line).enumerate() {
            let to = &mut out[(t * pairs + pair) * per_line..][..per_line];
            for (to, &x) in to.iter_mut().zip(x) {
                *to = centre(simd, mul_factor(simd, x, scale, p), tables.prime);
            }
        }
    }
}

/// Outputs `first..first + D` at `2 * LANES` lanes of one frequency, to every `step`-th vector of `to`. Pair i of taps begins at word
/// `reads[i]` of the streams. Returns D.
#[inline(always)]
fn tile<S: Lanes16, const D: usize>(
    simd: S,
    tables: &Tables,
    (streams, reads): (&[u32], &[usize]),
    weights: &[Line],
    first: usize,
    to: &mut [S::V],
    step: usize,
) -> usize {
    let few = weights.len() <= FEW_PAIRS;
    let mut sums = [[simd.splat(0); 2]; D];
    for (reads, weights) in reads.chunks(PAIRS).zip(weights.chunks(PAIRS)) {
        for (&read, weights) in reads.iter().zip(weights) {
            let words = &streams[read..][..2 * S::LANES];
            let (low, high) = (simd.load(words), simd.load(&words[S::LANES..]));
            let data = [simd.terms_of(low), simd.terms_of(high)];
            let weights: &[u32; D] = weights.0[first..].first_chunk().expect("a tile within a line");
            for (sums, &weight) in sums.iter_mut().zip(weights) {
                let weight = simd.splat(weight);
                sums[0] = simd.dot_terms(sums[0], data[0], weight);
                sums[1] = simd.dot_terms(sums[1], data[1], weight);
            }
        }
        if !few {
            for sums in &mut sums {
                sums[0] = fold(simd, sums[0], tables);
                sums[1] = fold(simd, sums[1], tables);
            }
        }
    }
    for (sums, to) in sums.iter().zip(to.iter_mut().step_by(step)) {
        let packed = simd.pack_high(montgomery(simd, sums[0], tables), montgomery(simd, sums[1], tables));
        *to = lift(simd, packed, tables.prime);
    }
    D
}

/// All 16 outputs at one lane of one frequency: the vectors' lanes are outputs here, so that no other lane is computed.
#[inline(always)]
fn few<S: Lanes16>(
    simd: S,
    tables: &Tables,
    (streams, reads): (&[u32], &[usize]),
    weights: &[Line],
) -> [u16; BLOCK] {
    // Sums that do not wait for each other.
    const SUMS: usize = 4;
    let reduced = weights.len() > FEW_PAIRS;
    let per_line = Line::WORDS / S::LANES;
    let weights = simd.view(weights);
    let mut residues = [0; BLOCK];
    for (v, residues) in residues.chunks_exact_mut(S::LANES).enumerate() {
        let mut sums = [simd.splat(0); SUMS];
        for (reads, weights) in reads.chunks(SUMS * PAIRS).zip(weights.chunks(SUMS * PAIRS * per_line)) {
            for (reads, weights) in reads.chunks(SUMS).zip(weights.chunks(SUMS * per_line)) {
                let weights = weights.chunks_exact(per_line);
                for ((sum, &read), weights) in sums.iter_mut().zip(reads).zip(weights) {
                    *sum = simd.dot(*sum, weights[v], simd.splat(streams[read]));
                }
            }
            if reduced {
                // At most 2^15 * 7680 + 2^15 each, and so below 2^30 together.
                sums.iter_mut().for_each(|sum| *sum = fold(simd, *sum, tables));
            }
        }
        let sum = sums.into_iter().reduce(|a, b| simd.add(a, b)).expect("four");
        let sum = montgomery(simd, sum, tables);
        let mut line = [Line::ZERO];
        simd.view_mut(&mut line)[0] = lift(simd, simd.pack_high(sum, sum), tables.prime);
        let found: &[u16] = bytemuck::cast_slice(&line);
        residues.copy_from_slice(&found[..S::LANES]);
    }
    residues
}

/// The same residue, of at most `2^28 + 2^15` in magnitude: the signed low half plus `2^16 mod p` times what is above it.
#[inline(always)]
fn fold<S: Lanes16>(simd: S, sum: S::V, tables: &Tables) -> S::V {
    let carry = simd.splat(0x8000);
    let halves = simd.xor(simd.add(sum, carry), carry);
    simd.dot(simd.splat(0), halves, simd.splat(tables.fold))
}

/// The words of output `d` of the last block.
#[inline(always)]
fn recombine_generic<S: Lanes16>(simd: S, plan: &Spectral, d: usize, scratch: &mut Scratch) {
    let (n, count) = (plan.computed(), plan.tables.len());
    let constants = &plan.recombination;
    let residues = &mut scratch.residues[d * count * n / 32..][..count * n / 32];
    for (tables, residues) in plan.tables.iter().zip(residues.chunks_exact_mut(n / 32)) {
        let residues = simd.view_mut(residues);
        backward(simd, residues, plan.frequencies, &tables.inverse_roots, tables.prime);
        let (p, h) = (simd.splat(both(tables.prime)), simd.splat(both(tables.prime / 2)));
        for y in residues {
            *y = simd.sub16(reduce(simd, *y, p), h);
        }
    }
    let residues: &[i16] = bytemuck::cast_slice(words(residues));
    let mask = simd.splat_word(crate::mask(plan.bits));
    let used = count.div_ceil(2);
    for (v, out) in scratch.words.chunks_exact_mut(2 * S::LANES).enumerate() {
        let mut low = [simd.splat(0); 3];
        let mut high = low;
        for i in 0..used {
            // Where the last pair has one prime only, the constants of the second are zero and any residues do.
            let (first, second) = (2 * i, (2 * i + 1).min(count - 1));
            let at = 2 * S::LANES * v;
            (low[i], high[i]) = simd.two_terms(&residues[first * n + at..], &residues[second * n + at..]);
        }
        let (first, second) = out.split_at_mut(S::LANES);
        simd.store_words(first, simd.and_words(word(simd, constants, &low), mask));
        simd.store_words(second, simd.and_words(word(simd, constants, &high), mask));
    }
}

/// The words with these residues, in pairs of primes, as [`Dot::two_terms`](crate::simd::Dot::two_terms) gives them.
#[inline(always)]
fn word<S: Lanes16>(simd: S, constants: &Recombination, residues: &[S::V; 3]) -> S::W {
    // v, rounded: in units of 2^-28 it lies within 2^-12 of an integer plus x/P, and that is below 1/2 - 2^-11.
    let start = simd.splat(constants.estimate_start + (1 << 27));
    let estimate = sum(simd, start, residues, &constants.estimates);
    let quotient = simd.terms_of(simd.add(simd.shr28_signed(estimate), simd.splat(0x1_0000)));
    let s0 = limb_sum(simd, constants, 0, residues, quotient);
    let s1 = simd.add(limb_sum(simd, constants, 1, residues, quotient), simd.shr16_signed(s0));
    let s2 = simd.add(limb_sum(simd, constants, 2, residues, quotient), simd.shr16_signed(s1));
    let s3 = simd.add(limb_sum(simd, constants, 3, residues, quotient), simd.shr16_signed(s2));
    simd.join_words(join(simd, s0, s1), join(simd, s2, s3))
}

/// `start` and the products of residues and constants, two at a time.
#[inline(always)]
fn sum<S: Lanes16>(simd: S, start: S::V, residues: &[S::V; 3], pairs: &[u32; 3]) -> S::V {
    let sum = simd.dot_terms(start, residues[0], simd.splat(pairs[0]));
    let sum = simd.dot_terms(sum, residues[1], simd.splat(pairs[1]));
    simd.dot_terms(sum, residues[2], simd.splat(pairs[2]))
}

/// Limb l of the words before carries, below `6 * 2^28 + 2^18` in magnitude.
#[inline(always)]
fn limb_sum<S: Lanes16>(
    simd: S,
    constants: &Recombination,
    l: usize,
    residues: &[S::V; 3],
    quotient: S::V,
) -> S::V {
    let sum = sum(simd, simd.splat(0), residues, &constants.limbs[l]);
    simd.dot_terms(sum, quotient, simd.splat(constants.ends[l]))
}

/// 32 bits of two limbs.
#[inline(always)]
fn join<S: Lanes16>(simd: S, low: S::V, high: S::V) -> S::V {
    simd.xor(simd.and(low, simd.splat(0xffff)), simd.shl16(high))
}

multiversion! {
    pub(super) fn transform_row(
        plan: &Spectral, row: &[u64], scratch: &mut [Line], out: &mut [Line]
    ) = transform_row_generic;
    pub(super) fn pack_streams(
        plan: &Spectral, rows: &[Line], first: usize, row_lines: usize, part: usize, out: &mut [Line]
    ) = pack_streams_generic;
    pub(super) fn block(
        plan: &Spectral, streams: &[Line], weights: &[Line], outs: usize, scratch: &mut Scratch
    ) = block_generic;
    pub(super) fn recombine(plan: &Spectral, d: usize, scratch: &mut Scratch) = recombine_generic;
}
