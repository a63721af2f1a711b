//! What [`Modulus`] does with one residue, done with many: on vector kernels, each with its scalar twin.
//!
//! Residues below p in and out, unless a function says otherwise; on every kernel the same ones. All functions panic if slices that belong together have not
//! one length, and if that is no multiple of [`BLOCK`].

// Other processors run the scalar twins only.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use super::field::Field;
use super::vector::fit;
use super::{Factor, Modulus};
use crate::kernel::Kernel;
use crate::simd::{Fit, multiversion_fit};

pub use super::sums::{weighted_parts, weighted_sums};

/// Lengths are multiples of this: a vector of the longest kind.
pub const BLOCK: usize = 8;

fn check<const N: usize>(lengths: [usize; N]) {
    assert!(lengths.iter().all(|&len| len == lengths[0]), "slices of one length");
    assert!(lengths[0].is_multiple_of(BLOCK), "whole vectors");
}

/// Defines a function that changes each word of `x`, from words at the same place of other slices.
macro_rules! pointwise {
    (
        $(#[$meta:meta])*
        $name:ident, $run:ident, $vector:ident: ($($y:ident),*) ($($arg:ident: $ty:ty),*)
        $(narrow if $fits:expr,)?
        |$simd:ident, $c:ident| $expr:expr,
        scalar |$m:ident, $x:ident| $scalar:expr
    ) => {
        #[inline(always)]
        fn $vector<S: Field>(simd: S, $m: &Modulus, x: &mut [u64], $($y: &[u64],)* $($arg: $ty),*) {
            let ($simd, $c) = (simd, &simd.constants($m));
            $(let mut $y = $y.chunks_exact(S::LANES);)*
            for x in x.chunks_exact_mut(S::LANES) {
                let $x = simd.load(x);
                $(let $y = simd.load($y.next().expect("slices of one length"));)*
                simd.store(x, $expr);
            }
        }
        multiversion_fit!(
            fn $run(m: &Modulus, x: &mut [u64], $($y: &[u64],)* $($arg: $ty),*) = $vector,
            scalar |$m: &Modulus, x: &mut [u64], $($y: &[u64],)* $($arg: $ty),*| {
                $(let mut $y = $y.iter();)*
                for x in x {
                    let $x = *x;
                    $(let $y = *$y.next().expect("slices of one length");)*
                    *x = $scalar;
                }
            }
        );
        $(#[$meta])*
        pub fn $name(kernel: Kernel, m: &Modulus, x: &mut [u64], $($y: &[u64],)* $($arg: $ty),*) {
            check([x.len(), $($y.len()),*]);
            let fit = fit(m);
            $(let fit = if $fits { fit } else { Fit::Wide };)?
            $run(kernel, fit, m, x, $($y,)* $($arg),*);
        }
    };
}

pointwise!(
    /// `x += y`.
    add, run_add, vector_add: (y) ()
    |simd, c| simd.reduce(simd.add(x, y), c.p),
    scalar |m, x| m.add(x, y)
);
pointwise!(
    /// `x -= y`.
    sub, run_sub, vector_sub: (y) ()
    |simd, c| simd.wrap(simd.sub(x, y), c.p),
    scalar |m, x| m.sub(x, y)
);
pointwise!(
    /// `x = -x`.
    negate, run_negate, vector_negate: () ()
    |simd, c| simd.reduce(simd.sub(c.p, x), c.p),
    scalar |m, x| m.negate(x)
);
pointwise!(
    /// `x *= y`.
    multiply, run_multiply, vector_multiply: (y) ()
    |simd, c| simd.product(x, y, c),
    scalar |m, x| m.mul(x, y)
);
pointwise!(
    /// `sum += y z`.
    multiply_add, run_multiply_add, vector_multiply_add: (y, z) ()
    |simd, c| simd.reduce(simd.add(x, simd.product(y, z, c)), c.p),
    scalar |m, x| m.reduce_product(u128::from(y) * u128::from(z) + u128::from(x))
);
pointwise!(
    /// `x *= factor`.
    multiply_factor, run_multiply_factor, vector_multiply_factor: () (factor: Factor)
    |simd, c| simd.reduce(simd.mul_factor_lazy(x, simd.factor(factor), c.p), c.p),
    scalar |m, x| m.mul_factor(x, factor)
);
pointwise!(
    /// `x = (x - y) factor`, where y is the number of least absolute value that a residue modulo another prime, `last`,
    /// stands for: a division with rounding, if `factor` is 1/`last` and x and y are residues of one number.
    sub_centred, run_sub_centred, vector_sub_centred: (y) (last: &Modulus, factor: Factor)
    narrow if last.bits <= 52,
    |simd, c| {
        // y + half modulo `last` is what y stands for, plus half.
        let half = last.value / 2;
        let shifted = simd.reduce(simd.add(y, simd.splat(half)), simd.splat(last.value));
        let x = simd.add(x, simd.splat(m.reduce(half)));
        // (x is below 2p.)
        let difference = simd.sub(x, simd.residue_lazy(shifted, c));
        let difference = if S::TIGHT { simd.wrap_twice(difference, c) } else { simd.add(difference, c.p2) };
        simd.reduce(simd.mul_factor_lazy(difference, simd.factor(factor), c.p), c.p)
    },
    scalar |m, x| m.mul_factor(m.sub(x, m.reduce_signed(last.centred(y))), factor)
);

pointwise!(
    /// `x = (x - y) factor`.
    sub_multiply_factor, run_sub_multiply_factor, vector_sub_multiply_factor: (y) (factor: Factor)
    |simd, c| {
        let difference = simd.add(simd.sub(x, y), c.p);
        simd.reduce(simd.mul_factor_lazy(difference, simd.factor(factor), c.p), c.p)
    },
    scalar |m, x| m.mul_factor(m.sub(x, y), factor)
);

pointwise!(
    /// `x = y modulo p`, for any words y.
    reduce, run_reduce, vector_reduce: (y) ()
    narrow if false,
    |simd, c| {
        let _ = x;
        simd.reduce(simd.residue_lazy(y, c), c.p)
    },
    scalar |m, x| {
        let _ = x;
        m.reduce(y)
    }
);

pointwise!(
    /// `x = y factor`, for any words y, which are signed.
    signed_multiples, run_signed_multiples, vector_signed_multiples: (y) (factor: Factor)
    narrow if false,
    |simd, c| {
        let _ = x;
        // 2^63 more than each of them is a word without a sign.
        let top = simd.splat(1 << 63);
        let product = simd.mul_factor_lazy(simd.add(y, top), simd.factor(factor), c.p);
        let offset = simd.splat(m.mul_factor(1 << 63, factor));
        simd.wrap(simd.sub(simd.reduce(product, c.p), offset), c.p)
    },
    scalar |m, x| {
        let _ = x;
        m.mul(m.reduce_signed(y as i64), factor.value)
    }
);

pointwise!(
    /// `x = y factor + addend`, for words y of at most so many bits.
    affine, run_affine, vector_affine: (y) (bits: u32, factor: Factor, addend: u64)
    narrow if bits <= 52,
    |simd, c| {
        let _ = (x, bits);
        let product = simd.reduce(simd.mul_factor_lazy(y, simd.factor(factor), c.p), c.p);
        simd.reduce(simd.add(product, simd.splat(addend)), c.p)
    },
    scalar |m, x| {
        let _ = (x, bits);
        m.add(m.mul_factor(y, factor), addend)
    }
);

/// How the residues modulo one prime are cut into digits of `bits` bits, in `-2^(bits - 1)..2^(bits - 1)`. The number of least
/// absolute value that a residue stands for is `Σ digit_j·2^(bits·j)`; the last digit takes what is left.
#[derive(Clone, Copy)]
pub struct Digits<'a> {
    from: &'a Modulus,
    bits: u32,
    count: u32,
}

impl<'a> Digits<'a> {
    /// Digits of residues modulo `from`.
    ///
    /// # Panics
    /// If `bits` is not in `2..=60`.
    pub fn new(from: &'a Modulus, bits: u32) -> Self {
        assert!((2..=60).contains(&bits), "digits of 2 to 60 bits, not {bits}");
        Self { from, bits, count: from.bits.div_ceil(bits) }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What is added to all digits, so that they are those of a number above zero, each in `0..2^bits`.
    fn half(&self) -> u64 {
        1 << (self.bits - 1)
    }

    /// Digit `digit` of every residue of `residues`, modulo p.
    ///
    /// # Panics
    /// If there is no such digit.
    pub fn take(&self, kernel: Kernel, m: &Modulus, residues: &[u64], digit: u32, out: &mut [u64]) {
        assert!(digit < self.count, "digit {digit} of {}", self.count);
        // c + Σ 2^(bits - 1)·2^(bits·j) over all digits; the centred residue is `(r + half) mod from - half`.
        let offsets = (0..self.count).map(|j| u128::from(self.half()) << (self.bits * j)).sum::<u128>();
        // A digit may take more bits than its prime has; then neither fits a word.
        let fits = self.half() < m.value && offsets >> 63 == 0;
        let half = self.from.value / 2;
        let cut = Cut {
            half,
            from: self.from.value,
            offset: (offsets as u64).wrapping_sub(half),
            shift: self.bits * digit,
            mask: if digit + 1 == self.count { u64::MAX } else { crate::mask(self.bits) },
            digit_half: self.half(),
        };
        check([residues.len(), out.len()]);
        if fits {
            run_take(kernel, Fit::Wide, m, &cut, residues, out);
        } else {
            self.take_scalar(m, residues, digit, out);
        }
    }

    /// [`take`](Self::take), digit by digit.
    fn take_scalar(&self, m: &Modulus, residues: &[u64], digit: u32, out: &mut [u64]) {
        let half = self.half() as i64;
        for (out, &residue) in out.iter_mut().zip(residues) {
            let mut rest = self.from.centred(residue);
            for _ in 0..digit {
                rest = (rest - (((rest + half) & (2 * half - 1)) - half)) >> self.bits;
            }
            let last = digit + 1 == self.count;
            let value = if last { rest } else { ((rest + half) & (2 * half - 1)) - half };
            *out = m.reduce_signed(value);
        }
    }
}

/// Constants of [`Digits::take`].
struct Cut {
    half: u64,
    from: u64,
    offset: u64,
    shift: u32,
    mask: u64,
    digit_half: u64,
}

#[inline(always)]
fn take<S: Field>(simd: S, m: &Modulus, cut: &Cut, residues: &[u64], out: &mut [u64]) {
    let splat = |word| simd.splat(word);
    let (p, half, from, offset) = (splat(m.value), splat(cut.half), splat(cut.from), splat(cut.offset));
    let (mask, digit_half) = (splat(cut.mask), splat(cut.digit_half));
    for (x, out) in residues.chunks_exact(S::LANES).zip(out.chunks_exact_mut(S::LANES)) {
        let shifted = simd.add(simd.reduce(simd.add(simd.load(x), half), from), offset);
        let digit = simd.and(simd.shr(shifted, cut.shift), mask);
        simd.store(out, simd.wrap(simd.sub(digit, digit_half), p));
    }
}

fn take_words(m: &Modulus, cut: &Cut, residues: &[u64], out: &mut [u64]) {
    for (&x, out) in residues.iter().zip(out) {
        let shifted = super::reduce_once(x + cut.half, cut.from).wrapping_add(cut.offset);
        let digit = ((shifted >> cut.shift) & cut.mask).wrapping_sub(cut.digit_half);
        *out = digit.min(digit.wrapping_add(m.value));
    }
}

multiversion_fit!(
    fn run_take(m: &Modulus, cut: &Cut, residues: &[u64], out: &mut [u64]) = take,
    scalar take_words
);

/// Where each value of a polynomial comes from, under an automorphism ([`Ntt::index`](super::Ntt::index)): those of an aligned
/// block of [`BLOCK`] values come from one aligned block.
#[derive(Clone, Debug)]
pub struct Sources(Vec<u32>);

impl Sources {
    /// By value, the place that it comes from.
    ///
    /// # Panics
    /// If a block comes from several, or from none.
    pub fn new(sources: Vec<u32>) -> Self {
        let (len, block) = (sources.len(), |source: u32| source as usize / BLOCK);
        let one =
            |places: &[u32]| places.iter().all(|&at| (at as usize) < len && block(at) == block(places[0]));
        assert!(len.is_multiple_of(BLOCK) && sources.chunks_exact(BLOCK).all(one), "blocks come from blocks");
        Self(sources)
    }

    /// The places.
    pub fn places(&self) -> &[u32] {
        &self.0
    }
}

/// What an automorphism makes of values: `out = x[sources]`. Any words.
///
/// # Panics
/// Also if there are not so many sources.
pub fn permute(kernel: Kernel, sources: &Sources, x: &[u64], out: &mut [u64]) {
    check([x.len(), sources.places().len(), out.len()]);
    run_places(kernel, Fit::Narrow, sources.places(), x, out);
}

#[inline(always)]
fn places<S: Field>(simd: S, sources: &[u32], x: &[u64], out: &mut [u64]) {
    for (out, sources) in out.chunks_exact_mut(S::LANES).zip(sources.chunks_exact(S::LANES)) {
        simd.store(out, simd.permute(x, sources));
    }
}

fn places_words(sources: &[u32], x: &[u64], out: &mut [u64]) {
    out.iter_mut().zip(sources).for_each(|(out, &source)| *out = x[source as usize]);
}

multiversion_fit!(
    fn run_places(sources: &[u32], x: &[u64], out: &mut [u64]) = places,
    scalar places_words
);

/// Key switching of what an automorphism has moved: `sums[half] = Σ_j digits[j][sources]·keys[half][j]` for both halves of a
/// key, and `plus[sources]` is added to the second. All but `sums` may be any polynomials of residues below p. `sums` are the words
/// from `start` on, so many as they have.
///
/// # Panics
/// Also if there are not as many keys as digits, or not so many words.
#[allow(clippy::too_many_arguments)] // Each is read by every product.
pub fn moved_products(
    kernel: Kernel,
    m: &Modulus,
    sources: &Sources,
    digits: &[&[u64]],
    keys: [&[&[u64]]; 2],
    plus: &[u64],
    start: usize,
    [a, b]: [&mut [u64]; 2],
) {
    a.fill(0);
    b.fill(0);
    add_moved_products(kernel, m, sources, digits, keys, plus, start, [a, b]);
}

/// The same, added to `sums`.
///
/// # Panics
/// As [`moved_products`].
#[allow(clippy::too_many_arguments)]
pub fn add_moved_products(
    kernel: Kernel,
    m: &Modulus,
    sources: &Sources,
    digits: &[&[u64]],
    keys: [&[&[u64]]; 2],
    plus: &[u64],
    start: usize,
    sums: [&mut [u64]; 2],
) {
    let ([a, b], sources) = (sums, sources.places());
    check([sources.len(), plus.len()]);
    check([a.len(), b.len()]);
    assert!(start.is_multiple_of(BLOCK) && start + a.len() <= plus.len(), "words that there are");
    assert!(keys.iter().all(|keys| keys.len() == digits.len()), "a key for each digit");
    assert!(
        digits.iter().chain(keys[0]).chain(keys[1]).all(|x| x.len() == plus.len()),
        "slices of one length"
    );
    let moved = Moved { sources: &sources[start..start + a.len()], digits, keys, plus, start };
    run_moved(kernel, fit(m), m, &moved, a, b);
}

/// What [`add_moved_products`] reads.
struct Moved<'a> {
    sources: &'a [u32],
    digits: &'a [&'a [u64]],
    keys: [&'a [&'a [u64]]; 2],
    plus: &'a [u64],
    /// The first word of the keys.
    start: usize,
}

#[inline(always)]
fn moved<S: Field>(simd: S, m: &Modulus, operands: &Moved<'_>, a: &mut [u64], b: &mut [u64]) {
    let c = &simd.constants(m);
    let Moved { sources, digits, keys, plus, start } = *operands;
    let outputs = a.chunks_exact_mut(S::LANES).zip(b.chunks_exact_mut(S::LANES));
    for ((i, (a, b)), sources) in outputs.enumerate().zip(sources.chunks_exact(S::LANES)) {
        let at = start + i * S::LANES;
        let (mut total_a, plus) = (simd.load(a), simd.permute(plus, sources));
        let mut total_b = simd.reduce(simd.add(simd.load(b), plus), c.p);
        let groups = digits.chunks(S::TERMS).zip(keys[0].chunks(S::TERMS).zip(keys[1].chunks(S::TERMS)));
        for (digits, (keys_a, keys_b)) in groups {
            let (mut sum_a, mut sum_b) = (simd.no_sum(), simd.no_sum());
            for (digit, (key_a, key_b)) in digits.iter().zip(keys_a.iter().zip(keys_b)) {
                let digit = simd.permute(digit, sources);
                sum_a = simd.add_product(sum_a, digit, simd.load(&key_a[at..]));
                sum_b = simd.add_product(sum_b, digit, simd.load(&key_b[at..]));
            }
            total_a = simd.reduce(simd.add(total_a, simd.residue(sum_a, c)), c.p);
            total_b = simd.reduce(simd.add(total_b, simd.residue(sum_b, c)), c.p);
        }
        simd.store(a, total_a);
        simd.store(b, total_b);
    }
}

/// `(x, y) = (x + y w, x - y w)`.
pub fn sum_and_difference(kernel: Kernel, m: &Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
    check([x.len(), y.len(), w.len()]);
    run_both(kernel, fit(m), m, x, y, w);
}

#[inline(always)]
fn both<S: Field>(simd: S, m: &Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
    let c = &simd.constants(m);
    let words = x.chunks_exact_mut(S::LANES).zip(y.chunks_exact_mut(S::LANES));
    for ((x, y), w) in words.zip(w.chunks_exact(S::LANES)) {
        let (a, b) = (simd.load(x), simd.product(simd.load(y), simd.load(w), c));
        simd.store(x, simd.reduce(simd.add(a, b), c.p));
        simd.store(y, simd.wrap(simd.sub(a, b), c.p));
    }
}

fn both_words(m: &Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) {
    for ((x, y), &w) in x.iter_mut().zip(y).zip(w) {
        let (a, b) = (*x, m.mul(*y, w));
        (*x, *y) = (m.add(a, b), m.sub(a, b));
    }
}

multiversion_fit!(
    fn run_both(m: &Modulus, x: &mut [u64], y: &mut [u64], w: &[u64]) = both,
    scalar both_words
);

/// `sums[half] += Σ_j xs[j]·ys[half][j]`, for two sums that have the xs alike.
///
/// # Panics
/// Also if there are not as many ys as xs.
pub fn add_products(kernel: Kernel, m: &Modulus, xs: &[&[u64]], ys: [&[&[u64]]; 2], [a, b]: [&mut [u64]; 2]) {
    check([a.len(), b.len()]);
    assert!(ys.iter().all(|ys| ys.len() == xs.len()), "as many factors");
    assert!(xs.iter().chain(ys[0]).chain(ys[1]).all(|x| x.len() == a.len()), "slices of one length");
    run_products(kernel, fit(m), m, xs, ys, a, b);
}

#[inline(always)]
fn products<S: Field>(simd: S, m: &Modulus, xs: &[&[u64]], ys: [&[&[u64]]; 2], a: &mut [u64], b: &mut [u64]) {
    let c = &simd.constants(m);
    for (xs, (first, second)) in xs.chunks(S::TERMS).zip(ys[0].chunks(S::TERMS).zip(ys[1].chunks(S::TERMS))) {
        let outputs = a.chunks_exact_mut(S::LANES).zip(b.chunks_exact_mut(S::LANES));
        for (i, (a, b)) in outputs.enumerate() {
            let at = i * S::LANES;
            let (mut sum_a, mut sum_b) = (simd.no_sum(), simd.no_sum());
            for (x, (first, second)) in xs.iter().zip(first.iter().zip(second)) {
                let x = simd.load(&x[at..]);
                sum_a = simd.add_product(sum_a, x, simd.load(&first[at..]));
                sum_b = simd.add_product(sum_b, x, simd.load(&second[at..]));
            }
            simd.store(a, simd.reduce(simd.add(simd.load(a), simd.residue(sum_a, c)), c.p));
            simd.store(b, simd.reduce(simd.add(simd.load(b), simd.residue(sum_b, c)), c.p));
        }
    }
}

fn products_words(m: &Modulus, xs: &[&[u64]], ys: [&[&[u64]]; 2], a: &mut [u64], b: &mut [u64]) {
    for (half, ys) in [a, b].into_iter().zip(ys) {
        for (x, y) in xs.iter().zip(ys) {
            for ((sum, &x), &y) in half.iter_mut().zip(*x).zip(*y) {
                *sum = m.reduce_product(u128::from(x) * u128::from(y) + u128::from(*sum));
            }
        }
    }
}

multiversion_fit!(
    fn run_products(m: &Modulus, xs: &[&[u64]], ys: [&[&[u64]]; 2], a: &mut [u64], b: &mut [u64]) = products,
    scalar products_words
);

fn moved_words(m: &Modulus, operands: &Moved<'_>, a: &mut [u64], b: &mut [u64]) {
    let Moved { sources, digits, keys, plus, start } = *operands;
    b.iter_mut().zip(sources).for_each(|(b, &source)| *b = m.add(*b, plus[source as usize]));
    for (half, keys) in [a, b].into_iter().zip(keys) {
        for (digit, key) in digits.iter().zip(keys) {
            for ((sum, &source), &y) in half.iter_mut().zip(sources).zip(&key[start..]) {
                let x = digit[source as usize];
                *sum = m.reduce_product(u128::from(x) * u128::from(y) + u128::from(*sum));
            }
        }
    }
}

multiversion_fit!(
    fn run_moved(m: &Modulus, operands: &Moved<'_>, a: &mut [u64], b: &mut [u64]) = moved,
    scalar |m, operands, a, b| moved_words(m, operands, a, b)
);
