//! Number-theoretic transforms modulo primes just below `2^30`, in lanes of 32 bits.
//!
//! The negacyclic transform of length n modulo p: values of a polynomial at the odd powers of a primitive 2n-th
//! root of unity psi, with the powers of psi merged into the butterflies (Longa and Naehrig, CANS 2016). Products
//! with roots are Shoup's, sums are reduced lazily (Harvey, "Faster arithmetic for number-theoretic transforms",
//! 2014): lanes stay below 4p < `2^32` on the way forward and below 2p on the way back.
//!
//! *Order.* The first stages pair whole vectors. In the last ones the partner of a lane lies within its vector: there
//! two neighbouring vectors are zipped before each stage, which brings partners into the same lane of the two. The
//! result stays in the order that this leaves (it depends on the number of lanes); products are pointwise and the
//! inverse undoes it, so nobody needs to know.
//!
//! Running time and memory access depend on n and on the instruction set alone.

use crate::simd::{Line, Simd, words_mut};

/// The largest primes below `2^30` that are 1 modulo `2^14`, so that lengths up to `2^13` have roots.
pub(crate) const PRIMES: [u32; 3] = [1_073_692_673, 1_073_643_521, 1_073_479_681];

/// Shortest and longest transform.
pub(super) const LENGTHS: std::ops::RangeInclusive<usize> = 16..=8192;

/// A factor w < p and `floor(2^32 w / p)`, which makes a product with w two multiplications and a subtraction.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    value: u32,
    quotient: u32,
}

impl Factor {
    pub(super) fn new(value: u64, prime: u32) -> Factor {
        let value = value % u64::from(prime);
        Factor { value: value as u32, quotient: ((value << 32) / u64::from(prime)) as u32 }
    }

    /// Value and quotient in all lanes.
    #[inline(always)]
    pub(super) fn splat<S: Simd>(self, simd: S) -> (S::V, S::V) {
        (simd.splat(self.value), simd.splat(self.quotient))
    }
}

/// `x * factor` modulo p, in `0..2p`, for any x below `2^32`.
#[inline(always)]
pub(super) fn mul_factor<S: Simd>(simd: S, x: S::V, value: S::V, quotient: S::V, p: S::V) -> S::V {
    let estimate = simd.mul_hi(x, quotient);
    simd.sub(simd.mul_lo(x, value), simd.mul_lo(estimate, p))
}

/// `a * b / 2^32` modulo p, in `1..2p`, for `a < 2^32` and `b < p`; `inverse` is `1/p` modulo `2^32` (Montgomery).
#[inline(always)]
pub(super) fn mul_montgomery<S: Simd>(simd: S, a: S::V, b: S::V, p: S::V, inverse: S::V) -> S::V {
    let m = simd.mul_lo(simd.mul_lo(a, b), inverse);
    // a b and m p agree in their low halves, so that the difference of the high halves is exact.
    simd.add(simd.sub(simd.mul_hi(a, b), simd.mul_hi(m, p)), p)
}

/// x modulo `modulus` for `x < 2 * modulus`.
#[inline(always)]
pub(super) fn reduce<S: Simd>(simd: S, x: S::V, modulus: S::V) -> S::V {
    simd.min(x, simd.sub(x, modulus))
}

/// Roots of one direction of a transform.
struct Roots {
    /// Root of block i in the stage with m blocks, at m + i: value and quotient.
    blocks: Vec<Factor>,
    /// Roots of the stages within vectors: for each pair of vectors, for each such stage in the order in which it
    /// runs, a vector of values and one of quotients.
    lanes: Vec<Line>,
}

/// What a transform of length n modulo one prime needs.
pub(super) struct Tables {
    pub(super) prime: u32,
    /// `1/p` modulo `2^32`.
    pub(super) inverse: u32,
    /// `2^32 / n`: takes a small operand to Montgomery's form and pays for the inverse transform's factor n.
    pub(super) scale: Factor,
    /// `2^32`.
    pub(super) two_32: Factor,
    pub(super) one: Factor,
    forward: Roots,
    backward: Roots,
}

/// `base^exponent` modulo `prime`.
pub(crate) fn power(base: u64, mut exponent: u64, prime: u32) -> u64 {
    let prime = u64::from(prime);
    let (mut square, mut result) = (base % prime, 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * square % prime;
        }
        square = square * square % prime;
        exponent >>= 1;
    }
    result
}

pub(crate) fn invert(value: u64, prime: u32) -> u64 {
    power(value, u64::from(prime) - 2, prime)
}

/// A primitive root of unity of order `order`, a power of two that divides `prime - 1`.
pub(crate) fn root_of_unity(order: usize, prime: u32) -> u64 {
    let exponent = u64::from(prime - 1) / order as u64;
    let minus_one = u64::from(prime - 1);
    // Half of all residues are no squares, and the power of one of those has the full order.
    (2..)
        .map(|base| power(base, exponent, prime))
        .find(|&root| power(root, order as u64 / 2, prime) == minus_one)
        .expect("half of all residues are no squares")
}

impl Tables {
    /// Tables for length `n` (a power of two in [`LENGTHS`]) and vectors of `lanes` lanes, `2 * lanes <= n`.
    pub(super) fn new(n: usize, prime: u32, lanes: usize) -> Tables {
        assert!(n.is_power_of_two() && LENGTHS.contains(&n) && (lanes == 1 || 2 * lanes <= n));
        let psi = root_of_unity(2 * n, prime);
        let roots = |psi: u64| -> Vec<Factor> {
            let bits = n.trailing_zeros();
            (0..n)
                .map(|i| {
                    Factor::new(power(psi, (i.reverse_bits() >> (usize::BITS - bits)) as u64, prime), prime)
                })
                .collect()
        };
        let (forward, backward) = (roots(psi), roots(invert(psi, prime)));
        // Newton's iteration doubles the number of correct low bits: 3, 6, 12, 24, 48.
        let inverse = (0..4).fold(prime, |x, _| x.wrapping_mul(2u32.wrapping_sub(prime.wrapping_mul(x))));
        Tables {
            prime,
            inverse,
            scale: Factor::new(((1u64 << 32) % u64::from(prime)) * invert(n as u64, prime), prime),
            two_32: Factor::new(1 << 32, prime),
            one: Factor::new(1, prime),
            forward: Roots { lanes: lane_roots(&forward, n, lanes, false), blocks: forward },
            backward: Roots { lanes: lane_roots(&backward, n, lanes, true), blocks: backward },
        }
    }
}

/// Lays out the roots of the stages within vectors by following where [`forward`] takes each coefficient.
fn lane_roots(roots: &[Factor], n: usize, lanes: usize, backward: bool) -> Vec<Line> {
    let mut out = Vec::new();
    if lanes == 1 {
        return Vec::new();
    }
    for pair in 0..n / (2 * lanes) {
        let mut places: Vec<usize> = (2 * lanes * pair..2 * lanes * (pair + 1)).collect();
        let mut stages = Vec::new();
        let mut half = lanes / 2;
        while half >= 1 {
            let (a, b) = places.split_at(lanes);
            places = a.iter().zip(b).flat_map(|(&a, &b)| [a, b]).collect();
            let blocks = n / (2 * half);
            let factors: Vec<Factor> =
                places[..lanes].iter().map(|place| roots[blocks + place / (2 * half)]).collect();
            debug_assert!((0..lanes).all(|i| places[lanes + i] == places[i] + half));
            let values = factors.iter().map(|factor| factor.value);
            stages.push(values.chain(factors.iter().map(|factor| factor.quotient)).collect::<Vec<u32>>());
            half /= 2;
        }
        if backward {
            stages.reverse();
        }
        out.extend(stages.concat());
    }
    let mut lines = vec![Line::ZERO; out.len().div_ceil(Line::WORDS)];
    words_mut(&mut lines)[..out.len()].copy_from_slice(&out);
    lines
}

/// Stages whose partners lie within a vector.
#[inline(always)]
fn lane_stages<S: Simd>() -> usize {
    S::LANES.trailing_zeros() as usize
}

// Functions and no closures: a closure that the compiler does not inline is compiled without the kernel's instructions, and takes
// ten times as long.

/// `(x + y r, x - y r)` for a root r (with its quotient), lanes below 4p in and out; `moduli` are p and 2p.
#[inline(always)]
fn butterfly<S: Simd>(
    simd: S,
    x: S::V,
    y: S::V,
    (value, quotient): (S::V, S::V),
    (p, p2): (S::V, S::V),
) -> (S::V, S::V) {
    let x = reduce(simd, x, p2);
    let y = mul_factor(simd, y, value, quotient, p);
    (simd.add(x, y), simd.add(simd.sub(x, y), p2))
}

/// `(x + y, (x - y) r)`, lanes below 2p in and out.
#[inline(always)]
fn back_butterfly<S: Simd>(
    simd: S,
    x: S::V,
    y: S::V,
    (value, quotient): (S::V, S::V),
    (p, p2): (S::V, S::V),
) -> (S::V, S::V) {
    let difference = simd.add(simd.sub(x, y), p2);
    (reduce(simd, simd.add(x, y), p2), mul_factor(simd, difference, value, quotient, p))
}

/// Forward transform in place: lanes below 4p in, below 4p out.
#[inline(always)]
pub(super) fn forward<S: Simd>(simd: S, data: &mut [S::V], tables: &Tables) {
    let moduli = (simd.splat(tables.prime), simd.splat(2 * tables.prime));
    let mut half = data.len() / 2;
    let mut blocks = 1;
    while half >= 1 {
        for (block, root) in data.chunks_exact_mut(2 * half).zip(&tables.forward.blocks[blocks..]) {
            let (value, quotient) = (simd.splat(root.value), simd.splat(root.quotient));
            let (left, right) = block.split_at_mut(half);
            for (x, y) in left.iter_mut().zip(right) {
                (*x, *y) = butterfly(simd, *x, *y, (value, quotient), moduli);
            }
        }
        blocks *= 2;
        half /= 2;
    }
    let stages = lane_stages::<S>();
    if stages > 0 {
        let roots = simd.view(&tables.forward.lanes);
        for (pair, roots) in data.chunks_exact_mut(2).zip(roots.chunks_exact(2 * stages)) {
            let (mut x, mut y) = (pair[0], pair[1]);
            for root in roots.chunks_exact(2) {
                (x, y) = simd.zip(x, y);
                (x, y) = butterfly(simd, x, y, (root[0], root[1]), moduli);
            }
            (pair[0], pair[1]) = (x, y);
        }
    }
}

/// Brings vectors from the order of the scalar transform into that of [`forward`]'s result; or back, if `BACK`.
#[inline(always)]
pub(super) fn zip_lanes<S: Simd, const BACK: bool>(simd: S, data: &mut [S::V]) {
    if lane_stages::<S>() > 0 {
        for pair in data.chunks_exact_mut(2) {
            for _ in 0..lane_stages::<S>() {
                (pair[0], pair[1]) =
                    if BACK { simd.unzip(pair[0], pair[1]) } else { simd.zip(pair[0], pair[1]) };
            }
        }
    }
}

/// Inverse of [`forward`] times n, in place: lanes below 2p in, below 2p out.
#[inline(always)]
pub(super) fn backward<S: Simd>(simd: S, data: &mut [S::V], tables: &Tables) {
    backward_first(simd, data, tables, 1, data.len());
}

/// [`backward`] for the first `count` vectors of each of `parts` equal parts; what it leaves in the others means nothing.
///
/// The stages within a part end in long blocks, of which the wanted vectors are the beginning: there a stage costs additions only. The
/// stages between parts, whose number is a power of two, are for the wanted vectors alone.
#[inline(always)]
pub(super) fn backward_first<S: Simd>(
    simd: S,
    data: &mut [S::V],
    tables: &Tables,
    parts: usize,
    count: usize,
) {
    let moduli = (simd.splat(tables.prime), simd.splat(2 * tables.prime));
    let stages = lane_stages::<S>();
    if stages > 0 {
        let roots = simd.view(&tables.backward.lanes);
        for (pair, roots) in data.chunks_exact_mut(2).zip(roots.chunks_exact(2 * stages)) {
            let (mut x, mut y) = (pair[0], pair[1]);
            for root in roots.chunks_exact(2) {
                (x, y) = back_butterfly(simd, x, y, (root[0], root[1]), moduli);
                (x, y) = simd.unzip(x, y);
            }
            (pair[0], pair[1]) = (x, y);
        }
    }
    let mut half = 1;
    let mut blocks = data.len() / 2;
    let part = data.len() / parts;
    while blocks >= parts {
        // Of a block of 2 * half, the first `count` are wanted: so many on the left, so many on the right.
        let (lefts, rights) = (count.min(half), count.saturating_sub(half).min(half));
        for (block, root) in data.chunks_exact_mut(2 * half).zip(&tables.backward.blocks[blocks..]) {
            let (value, quotient) = (simd.splat(root.value), simd.splat(root.quotient));
            let (left, right) = block.split_at_mut(half);
            for (x, y) in left[..rights].iter_mut().zip(&mut *right) {
                (*x, *y) = back_butterfly(simd, *x, *y, (value, quotient), moduli);
            }
            for (x, y) in left[rights..lefts].iter_mut().zip(&right[rights..]) {
                *x = reduce(simd, simd.add(*x, *y), moduli.1);
            }
        }
        blocks /= 2;
        half *= 2;
    }
    while blocks >= 1 {
        for (block, root) in data.chunks_exact_mut(2 * half).zip(&tables.backward.blocks[blocks..]) {
            let (value, quotient) = (simd.splat(root.value), simd.splat(root.quotient));
            let (left, right) = block.split_at_mut(half);
            for (left, right) in left.chunks_exact_mut(part).zip(right.chunks_exact_mut(part)) {
                for (x, y) in left[..count].iter_mut().zip(right) {
                    (*x, *y) = back_butterfly(simd, *x, *y, (value, quotient), moduli);
                }
            }
        }
        blocks /= 2;
        half *= 2;
    }
}
