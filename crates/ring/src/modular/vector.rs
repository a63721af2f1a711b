//! Kernels modulo one prime in vectors of 64-bit words, each with its scalar twin.

// Other processors run the scalar twins only.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use super::butterflies::{self, Roots};
use super::field::{Constants, Factors, Field};
use super::{Factor, Modulus, NARROW_BITS, TIGHT_BITS};
use crate::kernel::Kernel;
use crate::simd::{Fit, multiversion_fit};

/// Whether four times a residue fits the words that IFMA multiplies.
pub(super) fn narrow(m: &Modulus) -> bool {
    m.bits <= NARROW_BITS
}

/// How IFMA can multiply residues.
pub(super) fn fit(m: &Modulus) -> Fit {
    match m.bits {
        ..=NARROW_BITS => Fit::Narrow,
        TIGHT_BITS => Fit::Tight,
        _ => Fit::Wide,
    }
}

/// Words of a part of a polynomial that stays in the first cache.
const CACHED: usize = 2048;

// Functions and no closures: a closure that the compiler does not inline is compiled without the kernel's instructions.

/// `(x + y r, x - y r)` for a root r, below 4p in and out; below 2p in both, if tight.
#[inline(always)]
fn butterfly<S: Field>(simd: S, x: S::W, y: S::W, root: Factors<S::W>, c: &Constants<S::W>) -> (S::W, S::W) {
    if S::TIGHT {
        let y = simd.mul_factor_lazy(y, root, c.p);
        return (simd.reduce(simd.add(x, y), c.p2), simd.wrap_twice(simd.sub(x, y), c));
    }
    let x = simd.reduce(x, c.p2);
    let y = simd.mul_factor_lazy(y, root, c.p);
    (simd.add(x, y), simd.add(simd.sub(x, y), c.p2))
}

/// `(x + y, (x - y) r)`, below 2p in and out.
#[inline(always)]
fn back_butterfly<S: Field>(
    simd: S,
    x: S::W,
    y: S::W,
    root: Factors<S::W>,
    c: &Constants<S::W>,
) -> (S::W, S::W) {
    let difference = simd.sub(x, y);
    let difference = if S::TIGHT { simd.wrap_twice(difference, c) } else { simd.add(difference, c.p2) };
    (simd.reduce(simd.add(x, y), c.p2), simd.mul_factor_lazy(difference, root, c.p))
}

/// Root i in all lanes.
#[inline(always)]
fn root<S: Field>(simd: S, roots: &Roots, i: usize) -> Factors<S::W> {
    (simd.splat(roots.values[i]), simd.quotient(simd.splat(roots.quotients[i])))
}

/// Roots from i on, each in `times` lanes.
#[inline(always)]
fn lane_roots<S: Field>(simd: S, roots: &Roots, i: usize, times: usize) -> Factors<S::W> {
    (simd.repeat(&roots.values[i..], times), simd.quotient(simd.repeat(&roots.quotients[i..], times)))
}

/// Two stages of the forward transform of a block, the roots of the first of which begin at `first`; or their inverse, if `BACK`.
#[inline(always)]
fn two_stages<S: Field, const BACK: bool>(
    simd: S,
    roots: &Roots,
    first: usize,
    block: &mut [u64],
    c: &Constants<S::W>,
) {
    let (outer, left, right) =
        (root(simd, roots, first), root(simd, roots, 2 * first), root(simd, roots, 2 * first + 1));
    let quarter = block.len() / 4;
    let (low, high) = block.split_at_mut(2 * quarter);
    let ((a, b), (d, e)) = (low.split_at_mut(quarter), high.split_at_mut(quarter));
    let quarters = a.chunks_exact_mut(S::LANES).zip(b.chunks_exact_mut(S::LANES));
    let quarters = quarters.zip(d.chunks_exact_mut(S::LANES).zip(e.chunks_exact_mut(S::LANES)));
    for ((a, b), (d, e)) in quarters {
        let (mut x0, mut x1, mut x2, mut x3) = (simd.load(a), simd.load(b), simd.load(d), simd.load(e));
        if BACK {
            (x0, x1) = back_butterfly(simd, x0, x1, left, c);
            (x2, x3) = back_butterfly(simd, x2, x3, right, c);
            (x0, x2) = back_butterfly(simd, x0, x2, outer, c);
            (x1, x3) = back_butterfly(simd, x1, x3, outer, c);
        } else {
            (x0, x2) = butterfly(simd, x0, x2, outer, c);
            (x1, x3) = butterfly(simd, x1, x3, outer, c);
            (x0, x1) = butterfly(simd, x0, x1, left, c);
            (x2, x3) = butterfly(simd, x2, x3, right, c);
        }
        simd.store(a, x0);
        simd.store(b, x1);
        simd.store(d, x2);
        simd.store(e, x3);
    }
}

/// The last stages, in which partners lie within a pair of vectors, and the reduction.
#[inline(always)]
fn last_stages<S: Field>(simd: S, roots: &Roots, first: usize, block: &mut [u64], c: &Constants<S::W>) {
    for (i, pair) in block.chunks_exact_mut(2 * S::LANES).enumerate() {
        let (x, y) = pair.split_at_mut(S::LANES);
        let (a, b) = last_of_pair(simd, roots, first + i, simd.load(x), simd.load(y), c);
        simd.store(x, a);
        simd.store(y, b);
    }
}

/// The last stages of one pair, which is block `at` of its stage.
#[inline(always)]
fn last_of_pair<S: Field>(
    simd: S,
    roots: &Roots,
    at: usize,
    x: S::W,
    y: S::W,
    c: &Constants<S::W>,
) -> (S::W, S::W) {
    let (mut a, mut b) = butterfly(simd, x, y, root(simd, roots, at), c);
    let (mut half, mut at) = (S::LANES / 2, 2 * at);
    while half >= 1 {
        (a, b) = simd.regroup(half, a, b);
        (a, b) = butterfly(simd, a, b, lane_roots(simd, roots, at, half), c);
        half /= 2;
        at *= 2;
    }
    simd.zip_words(simd.reduce_last(a, c), simd.reduce_last(b, c))
}

/// The inverse of [`last_stages`], without the reduction.
#[inline(always)]
fn first_back_stages<S: Field>(simd: S, roots: &Roots, first: usize, block: &mut [u64], c: &Constants<S::W>) {
    for (i, pair) in block.chunks_exact_mut(2 * S::LANES).enumerate() {
        let (x, y) = pair.split_at_mut(S::LANES);
        let (mut a, mut b) = simd.unzip_words(simd.load(x), simd.load(y));
        let (mut half, mut at) = (1, (first + i) * S::LANES);
        while half < S::LANES {
            (a, b) = back_butterfly(simd, a, b, lane_roots(simd, roots, at, half), c);
            (a, b) = simd.regroup(half, a, b);
            half *= 2;
            at /= 2;
        }
        (a, b) = back_butterfly(simd, a, b, root(simd, roots, at), c);
        simd.store(x, a);
        simd.store(y, b);
    }
}

/// The stages of the forward transform of a block whose first root is `first`, two at a time, until blocks have `until`
/// words or half of that.
#[inline(always)]
fn stages<S: Field>(
    simd: S,
    roots: &Roots,
    first: usize,
    data: &mut [u64],
    until: usize,
    c: &Constants<S::W>,
) {
    let (mut len, mut first) = (data.len(), first);
    while len > until {
        for (i, block) in data.chunks_exact_mut(len).enumerate() {
            two_stages::<S, false>(simd, roots, first + i, block, c);
        }
        len /= 4;
        first *= 4;
    }
}

/// Both halves of each of the blocks of one stage, of `len` words each.
#[inline(always)]
fn stage<S: Field, const BACK: bool>(
    simd: S,
    roots: &Roots,
    data: &mut [u64],
    len: usize,
    c: &Constants<S::W>,
) {
    stage_of::<S, BACK>(simd, roots, data.len() / len, data, len, c);
}

/// The same of some of the blocks, the first of which has the root `first`.
#[inline(always)]
fn stage_of<S: Field, const BACK: bool>(
    simd: S,
    roots: &Roots,
    first: usize,
    data: &mut [u64],
    len: usize,
    c: &Constants<S::W>,
) {
    for (i, block) in data.chunks_exact_mut(len).enumerate() {
        let (left, right) = block.split_at_mut(len / 2);
        let root = root(simd, roots, first + i);
        for (x, y) in left.chunks_exact_mut(S::LANES).zip(right.chunks_exact_mut(S::LANES)) {
            let (a, b) = (simd.load(x), simd.load(y));
            let (a, b) =
                if BACK { back_butterfly(simd, a, b, root, c) } else { butterfly(simd, a, b, root, c) };
            simd.store(x, a);
            simd.store(y, b);
        }
    }
}

#[inline(always)]
fn transform<S: Field>(simd: S, m: &Modulus, roots: &Roots, data: &mut [u64]) {
    let c = &simd.constants(m);
    let pair = 2 * S::LANES;
    let mut len = data.len();
    let mut blocks = 1;
    if (len / pair).trailing_zeros() % 2 == 1 {
        // One stage alone, so that the number of the others is even.
        stage::<S, false>(simd, roots, data, len, c);
        (len, blocks) = (len / 2, 2);
    }
    while len > CACHED {
        for (i, block) in data.chunks_exact_mut(len).enumerate() {
            two_stages::<S, false>(simd, roots, blocks + i, block, c);
        }
        (len, blocks) = (len / 4, 4 * blocks);
    }
    for (i, block) in data.chunks_exact_mut(len).enumerate() {
        stages(simd, roots, blocks + i, block, pair, c);
        last_stages(simd, roots, (blocks + i) * (len / pair), block, c);
    }
}

/// After stages that add nothing, each of the blocks is `short`.
#[inline(always)]
fn transform_short<S: Field>(simd: S, m: &Modulus, roots: &Roots, short: &[u64], data: &mut [u64]) {
    let (n, pair) = (data.len(), 2 * S::LANES);
    if short.len() == n {
        data.copy_from_slice(short);
        return transform(simd, m, roots, data);
    }
    let c = &simd.constants(m);
    let blocks = n / short.len();
    if short.len() == pair {
        let (x, y) = (simd.load(short), simd.load(&short[S::LANES..]));
        for (i, pair) in data.chunks_exact_mut(pair).enumerate() {
            let (a, b) = last_of_pair(simd, roots, blocks + i, x, y, c);
            let (x, y) = pair.split_at_mut(S::LANES);
            simd.store(x, a);
            simd.store(y, b);
        }
        return;
    }
    for (i, block) in data.chunks_exact_mut(short.len()).enumerate() {
        block.copy_from_slice(short);
        let (mut len, mut first) = (short.len(), blocks + i);
        if (len / pair).trailing_zeros() % 2 == 1 {
            stage_of::<S, false>(simd, roots, first, block, len, c);
            (len, first) = (len / 2, 2 * first);
        }
        for (j, block) in block.chunks_exact_mut(len).enumerate() {
            stages(simd, roots, first + j, block, pair, c);
            last_stages(simd, roots, (first + j) * (len / pair), block, c);
        }
    }
}

#[inline(always)]
fn transform_back<S: Field>(simd: S, m: &Modulus, roots: &Roots, scale: Factor, data: &mut [u64]) {
    let c = &simd.constants(m);
    let pair = 2 * S::LANES;
    let n = data.len();
    // As long as whole numbers of double stages lead to it from pairs.
    let mut len = pair;
    while len * 4 <= n.min(CACHED) {
        len *= 4;
    }
    for (i, block) in data.chunks_exact_mut(len).enumerate() {
        let first = n / len + i;
        first_back_stages(simd, roots, first * (len / pair), block, c);
        let mut inner = 4 * pair;
        while inner <= len {
            for (j, block) in block.chunks_exact_mut(inner).enumerate() {
                two_stages::<S, true>(simd, roots, first * (len / inner) + j, block, c);
            }
            inner *= 4;
        }
    }
    while len * 4 <= n {
        len *= 4;
        for (i, block) in data.chunks_exact_mut(len).enumerate() {
            two_stages::<S, true>(simd, roots, n / len + i, block, c);
        }
    }
    let scale = simd.factor(scale);
    if len < n {
        let (left, right) = data.split_at_mut(len);
        let outer = root(simd, roots, 1);
        for (x, y) in left.chunks_exact_mut(S::LANES).zip(right.chunks_exact_mut(S::LANES)) {
            let (a, b) = back_butterfly(simd, simd.load(x), simd.load(y), outer, c);
            simd.store(x, simd.reduce(simd.mul_factor_lazy(a, scale, c.p), c.p));
            simd.store(y, simd.reduce(simd.mul_factor_lazy(b, scale, c.p), c.p));
        }
    } else {
        for x in data.chunks_exact_mut(S::LANES) {
            simd.store(x, simd.reduce(simd.mul_factor_lazy(simd.load(x), scale, c.p), c.p));
        }
    }
}

#[inline(always)]
fn rows<S: Field>(simd: S, m: &Modulus, roots: &Roots, width: usize, data: &mut [u64]) {
    let c = &simd.constants(m);
    let mut len = data.len();
    while len > width {
        stage::<S, false>(simd, roots, data, len, c);
        len /= 2;
    }
    for x in data.chunks_exact_mut(S::LANES) {
        simd.store(x, simd.reduce_last(simd.load(x), c));
    }
}

#[inline(always)]
fn rows_back<S: Field>(simd: S, m: &Modulus, roots: &Roots, scale: Factor, width: usize, data: &mut [u64]) {
    let c = &simd.constants(m);
    let mut len = width;
    while len < data.len() {
        len *= 2;
        stage::<S, true>(simd, roots, data, len, c);
    }
    let scale = simd.factor(scale);
    for x in data.chunks_exact_mut(S::LANES) {
        simd.store(x, simd.reduce(simd.mul_factor_lazy(simd.load(x), scale, c.p), c.p));
    }
}

multiversion_fit!(
    fn run_rows(m: &Modulus, roots: &Roots, width: usize, data: &mut [u64]) = rows,
    scalar butterflies::forward
);
multiversion_fit!(
    fn run_rows_back(m: &Modulus, roots: &Roots, scale: Factor, width: usize, data: &mut [u64]) = rows_back,
    scalar butterflies::backward
);

/// [`Ntt::forward_rows`](super::Ntt::forward_rows).
pub(super) fn forward_rows(kernel: Kernel, m: &Modulus, roots: &Roots, width: usize, data: &mut [u64]) {
    run_rows(kernel, fit(m), m, roots, width, data);
}

/// [`Ntt::backward_rows`](super::Ntt::backward_rows).
pub(super) fn backward_rows(
    kernel: Kernel,
    m: &Modulus,
    roots: &Roots,
    scale: Factor,
    width: usize,
    data: &mut [u64],
) {
    run_rows_back(kernel, fit(m), m, roots, scale, width, data);
}

multiversion_fit!(
    fn run_forward(m: &Modulus, roots: &Roots, data: &mut [u64]) = transform,
    scalar |m, roots, data| butterflies::forward(m, roots, 1, data)
);
multiversion_fit!(
    fn run_forward_short(m: &Modulus, roots: &Roots, short: &[u64], data: &mut [u64]) = transform_short,
    scalar butterflies::forward_short
);
multiversion_fit!(
    fn run_backward(m: &Modulus, roots: &Roots, scale: Factor, data: &mut [u64]) = transform_back,
    scalar |m, roots, scale, data| butterflies::backward(m, roots, scale, 1, data)
);

/// [`Ntt::forward`](super::Ntt::forward).
pub(super) fn forward(kernel: Kernel, m: &Modulus, roots: &Roots, data: &mut [u64]) {
    run_forward(kernel, fit(m), m, roots, data);
}

/// [`Ntt::forward_short`](super::Ntt::forward_short).
pub(super) fn forward_short(kernel: Kernel, m: &Modulus, roots: &Roots, short: &[u64], out: &mut [u64]) {
    run_forward_short(kernel, fit(m), m, roots, short, out);
}

/// [`Ntt::backward`](super::Ntt::backward).
pub(super) fn backward(kernel: Kernel, m: &Modulus, roots: &Roots, scale: Factor, data: &mut [u64]) {
    run_backward(kernel, fit(m), m, roots, scale, data);
}
