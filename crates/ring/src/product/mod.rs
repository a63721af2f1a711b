//! Exact products of a wide polynomial with a small one, modulo `X^n + 1` and `2^bits`.
//!
//! The wide operand x has words of up to 64 bits, taken as signed numbers in `-2^(bits-1)..2^(bits-1)`; the small
//! one, s, has coefficients of a few bits (a ternary secret, a noise polynomial). Over the integers the product's
//! coefficients are at most `n * 2^(bits-1) * B` in magnitude, B the bound of s. It is computed modulo two or three
//! primes just below `2^30` by number-theoretic transforms (`ntt`), put together by Garner's method in a range
//! centred at zero, and reduced modulo `2^bits`: exact, because the number of primes is chosen so that the bound
//! stays below half of their product.
//!
//! | n | bits | s | bound | primes (half product) |
//! |---|---|---|---|---|
//! | 2048 | 48 | ternary | `2^58` | 2 (`2^59`) |
//! | 4096 | 48 | ternary | `2^59` | 3 (`2^89`): the product of the primes is a little below `2^60` |
//! | 8192 | 54 | ternary | `2^66` | 3 |
//! | any | 64 | any `i8` | `2^83` | 3 |
//!
//! Time and memory access depend on n, `bits`, the class of s (ternary or not) and the instruction set only.

pub(crate) mod ntt;
pub mod prime;
pub mod rns;

use crate::kernel::{Kernel, Set};
use crate::simd::{Line, Simd, multiversion, wipe, wipe_on_drop, words_mut};
use ntt::{Factor, LENGTHS, PRIMES, Tables};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

/// Magnitude of any `i8`: the bound of a small polynomial that is not ternary.
const ANY_I8: u32 = 128;

/// Products modulo `X^n + 1` for one n. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Multiplier {
    n: usize,
    kernel: Kernel,
    tables: Arc<AllTables>,
}

struct AllTables {
    primes: [Tables; 3],
    /// Recombination from the first two primes and from all three.
    two: Recombination,
    three: Recombination,
}

/// Constants of Garner's method with an offset: residues of `t + half` instead of t, `half = floor(P/2)` for the
/// product P of the primes, so that a signed t comes out as a number in `0..P` from which `half` is subtracted.
struct Recombination {
    /// `half` modulo the first prime.
    first: u32,
    /// For the other primes, a number in `p_1..=2p_i` that is `half` modulo `p_i`: what remains non-negative when
    /// the first residue is subtracted.
    others: [u32; 2],
    /// `1/p_1` modulo `p_2` and `p_3`, `1/p_2` modulo `p_3`.
    first_inverse: [Factor; 2],
    second_inverse: Factor,
    /// `half` modulo `2^64`.
    half: u64,
}

impl Recombination {
    fn new(count: usize) -> Recombination {
        let product: u128 = PRIMES[..count].iter().map(|&p| u128::from(p)).product();
        let half = product / 2;
        let residue = |p: u32| (half % u128::from(p)) as u32;
        let lifted = |p: u32| if residue(p) + p >= PRIMES[0] { residue(p) + p } else { residue(p) + 2 * p };
        let inverse = |a: u32, p: u32| Factor::new(ntt::invert(u64::from(a), p), p);
        let [p1, p2, p3] = PRIMES;
        Recombination {
            first: residue(p1),
            others: [lifted(p2), lifted(p3)],
            first_inverse: [inverse(p1, p2), inverse(p1, p3)],
            second_inverse: inverse(p2, p3),
            half: half as u64,
        }
    }
}

/// A small polynomial, transformed. Secret: zeroised on drop, no `Debug`, not `Clone`.
pub struct SmallNtt {
    n: usize,
    kernel: Kernel,
    /// Bound of the coefficients: 1, or [`ANY_I8`].
    bound: u32,
    /// Residues modulo each prime below p, times `2^32 / n`: `[prime][n]`.
    residues: Vec<Line>,
}

wipe_on_drop!(SmallNtt.residues);

/// A wide polynomial, transformed modulo as many primes as its width may need.
///
/// It is meant for public data (`a`, `p1`, a peer's ciphertext) and is not zeroised.
pub struct WideNtt {
    n: usize,
    kernel: Kernel,
    bits: u32,
    /// Residues modulo each prime below 4p: `[prime][n]`.
    residues: Vec<Line>,
}

/// Primes needed for words of `bits` bits and small coefficients of at most `bound` in magnitude.
fn primes_for(n: usize, bits: u32, bound: u32) -> usize {
    let most = ((n as u128) << (bits - 1)) * u128::from(bound);
    let mut product = u128::from(PRIMES[0]);
    for (index, &prime) in PRIMES.iter().enumerate().skip(1) {
        product *= u128::from(prime);
        if most <= product / 2 {
            return index + 1;
        }
    }
    // Not reached: 2^13 * 2^63 * 2^7 is below half of the product of three.
    unreachable!("no length and width need more than three primes")
}

thread_local! {
    /// Where a product's residues are computed; cleared after each product.
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

impl Multiplier {
    /// For polynomials of `n` coefficients, on `kernel`. Where `n` is too short for the kernel's vectors, a smaller one is
    /// taken. Tables are computed once per process, length and kernel.
    ///
    /// # Panics
    /// If `n` is not a power of two in `16..=8192`.
    pub fn new(kernel: Kernel, n: usize) -> Multiplier {
        const SIZES: usize = 10;
        static CACHE: [[OnceLock<Multiplier>; SIZES]; Kernel::COUNT] =
            [const { [const { OnceLock::new() }; SIZES] }; Kernel::COUNT];
        check_length(n);
        let size = (n.trailing_zeros() - LENGTHS.start().trailing_zeros()) as usize;
        CACHE[kernel.index()][size].get_or_init(|| Multiplier::build(kernel, n)).clone()
    }

    fn build(kernel: Kernel, n: usize) -> Multiplier {
        let (kernel, lanes) = lanes_of(kernel, n);
        let tables = AllTables {
            primes: PRIMES.map(|prime| Tables::new(n, prime, lanes)),
            two: Recombination::new(2),
            three: Recombination::new(3),
        };
        Multiplier { n, kernel, tables: Arc::new(tables) }
    }

    /// n: how many coefficients a polynomial has.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The kernel that products run on.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Transforms a small polynomial, any `i8` coefficients, for many products.
    ///
    /// Whether *all* coefficients are in {-1, 0, 1} decides later how many primes a product takes, and so its time.
    /// This is a property of how the polynomial was drawn, which is public; nothing else depends on the values.
    ///
    /// # Panics
    /// If `values` is not n long.
    pub fn prepare_small(&self, values: &[i8]) -> SmallNtt {
        assert_eq!(values.len(), self.n, "coefficients of a polynomial");
        // v is ternary if and only if v + 1 is one of 0, 1, 2; ors, so that no early exit tells where.
        let outside = values.iter().fold(0u8, |or, &v| {
            let shifted = v.wrapping_add(1) as u8;
            or | (shifted & 0xfc) | ((shifted & (shifted >> 1) & 1) << 2)
        });
        let bound = if outside == 0 { 1 } else { ANY_I8 };
        let lines = self.n / Line::WORDS;
        let mut residues = vec![Line::ZERO; PRIMES.len() * lines];
        for (tables, residues) in self.tables.primes.iter().zip(residues.chunks_exact_mut(lines)) {
            run_prepare_small(self.kernel, tables, values, residues);
        }
        SmallNtt { n: self.n, kernel: self.kernel, bound, residues }
    }

    /// Transforms a wide polynomial of n words modulo `2^bits` for many products. Bits above `bits` are ignored.
    ///
    /// # Panics
    /// If `words` is not n long or `bits` not in `1..=64`.
    pub fn prepare_wide(&self, words: &[u64], bits: u32) -> WideNtt {
        self.check_words(words, bits);
        let lines = self.n / Line::WORDS;
        let mut residues = vec![Line::ZERO; primes_for(self.n, bits, ANY_I8) * lines];
        for (tables, residues) in self.tables.primes.iter().zip(residues.chunks_exact_mut(lines)) {
            run_prepare_wide(self.kernel, tables, words, bits, residues);
        }
        WideNtt { n: self.n, kernel: self.kernel, bits, residues }
    }

    /// `out = x * s` modulo `X^n + 1` and `2^bits`, `bits` being that of x. Words are in `0..2^bits`.
    ///
    /// # Panics
    /// If an operand was prepared by a multiplier of another length or kernel, or `out` is not n long.
    pub fn multiply(&self, x: &WideNtt, s: &SmallNtt, out: &mut [u64]) {
        self.check_small(s, out);
        assert_eq!((x.n, x.kernel), (self.n, self.kernel), "an operand prepared by another multiplier");
        self.with_scratch(x.bits, s.bound, |scratch, count| {
            run_multiply(self.kernel, &self.tables, &x.residues, s, scratch);
            self.recombine(count, scratch, x.bits, out);
        });
    }

    /// [`multiply`](Self::multiply) of words that have not been prepared. Allocates nothing but, on its first call in
    /// a thread, the thread's scratch space, which is cleared after each call.
    ///
    /// # Panics
    /// If `s` was prepared by a multiplier of another length or kernel, if `x` or `out` is not n long, or `bits` not
    /// in `1..=64`.
    pub fn multiply_into(&self, x: &[u64], bits: u32, s: &SmallNtt, out: &mut [u64]) {
        self.check_words(x, bits);
        self.check_small(s, out);
        self.with_scratch(bits, s.bound, |scratch, count| {
            run_multiply_words(self.kernel, &self.tables, x, bits, s, scratch);
            self.recombine(count, scratch, bits, out);
        });
    }

    fn recombine(&self, count: usize, scratch: &[Line], bits: u32, out: &mut [u64]) {
        let recombination = if count == 2 { &self.tables.two } else { &self.tables.three };
        run_recombine(self.kernel, recombination, scratch, bits, out);
    }

    /// Calls `f` with room for the residues of a product and the number of its primes.
    fn with_scratch(&self, bits: u32, bound: u32, f: impl FnOnce(&mut [Line], usize)) {
        let count = primes_for(self.n, bits, bound);
        let lines = count * self.n / Line::WORDS;
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.len() < lines {
                scratch.resize(lines, Line::ZERO);
            }
            let scratch = &mut scratch[..lines];
            f(scratch, count);
            wipe(scratch);
        });
    }

    fn check_words(&self, words: &[u64], bits: u32) {
        assert!((1..=64).contains(&bits), "words of 1 to 64 bits, not {bits}");
        assert_eq!(words.len(), self.n, "words of a polynomial");
    }

    fn check_small(&self, s: &SmallNtt, out: &[u64]) {
        assert_eq!((s.n, s.kernel), (self.n, self.kernel), "an operand prepared by another multiplier");
        assert_eq!(out.len(), self.n, "words of the product");
    }
}

/// The kernel for transforms of length `n` where `kernel` is wanted, and its lanes. A transform works on pairs of vectors.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "every length has the same lanes"))]
fn lanes_of(kernel: Kernel, n: usize) -> (Kernel, usize) {
    match kernel.0 {
        Set::Scalar => (kernel, 1),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(_) if n >= 32 => (kernel, 16),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(simd) => (Kernel(Set::Avx2(simd.narrow())), 8),
        // It can do the shortest length.
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(_) => (kernel, 8),
        #[cfg(target_arch = "aarch64")]
        Set::Neon(_) => (kernel, 8),
    }
}

fn check_length(n: usize) {
    assert!(n.is_power_of_two() && LENGTHS.contains(&n), "a power of two in {LENGTHS:?}, not {n}");
}

#[inline(always)]
fn prepare_small<S: Simd>(simd: S, tables: &Tables, values: &[i8], residues: &mut [Line]) {
    for (residue, &value) in words_mut(residues).iter_mut().zip(values) {
        let value = i32::from(value);
        // v, or v + p where v is negative.
        *residue = (value + ((value >> 31) & tables.prime as i32)) as u32;
    }
    let residues = simd.view_mut(residues);
    ntt::forward(simd, residues, tables);
    let p = simd.splat(tables.prime);
    let (value, quotient) = tables.scale.splat(simd);
    for residue in residues {
        *residue = ntt::reduce(simd, ntt::mul_factor(simd, *residue, value, quotient, p), p);
    }
}

/// Residues of centred words, below 4p, transformed.
#[inline(always)]
fn prepare_wide<S: Simd>(simd: S, tables: &Tables, words: &[u64], bits: u32, residues: &mut [Line]) {
    let (p, p2) = (simd.splat(tables.prime), simd.splat(2 * tables.prime));
    // x = u - h with u = x + h in 0..2^bits and h = 2^(bits - 1); u is reduced by halves of 32 bits.
    let offset = 1u64 << (bits - 1);
    let (half, mask) = (simd.splat_word(offset), simd.splat_word(crate::mask(bits)));
    let minus_half = simd.splat(tables.prime - (offset % u64::from(tables.prime)) as u32);
    let (high_value, high_quotient) = tables.two_32.splat(simd);
    let (low_value, low_quotient) = tables.one.splat(simd);
    let residues = simd.view_mut(residues);
    for (residue, words) in residues.iter_mut().zip(words.chunks_exact(S::LANES)) {
        let u = simd.and_words(simd.add_words(simd.load_words(words), half), mask);
        let (low, high) = simd.split_words(u);
        let high = ntt::mul_factor(simd, high, high_value, high_quotient, p);
        let low = ntt::mul_factor(simd, low, low_value, low_quotient, p);
        // Below 2p + 2p, then below 2p, then below 3p.
        *residue = simd.add(ntt::reduce(simd, simd.add(high, low), p2), minus_half);
    }
    ntt::forward(simd, residues, tables);
}

/// Products of transformed residues, transformed back: below 2p.
#[inline(always)]
fn pointwise<S: Simd>(simd: S, tables: &Tables, x: &[S::V], s: &[S::V], out: &mut [S::V]) {
    let (p, inverse) = (simd.splat(tables.prime), simd.splat(tables.inverse));
    for ((out, &x), &s) in out.iter_mut().zip(x).zip(s) {
        *out = ntt::mul_montgomery(simd, x, s, p, inverse);
    }
    ntt::backward(simd, out, tables);
}

#[inline(always)]
fn multiply<S: Simd>(simd: S, tables: &AllTables, x: &[Line], s: &SmallNtt, out: &mut [Line]) {
    let lines = s.n / Line::WORDS;
    let operands = x.chunks_exact(lines).zip(s.residues.chunks_exact(lines));
    for ((tables, (x, s)), out) in tables.primes.iter().zip(operands).zip(out.chunks_exact_mut(lines)) {
        pointwise(simd, tables, simd.view(x), simd.view(s), simd.view_mut(out));
    }
}

#[inline(always)]
fn multiply_words<S: Simd>(
    simd: S,
    tables: &AllTables,
    x: &[u64],
    bits: u32,
    s: &SmallNtt,
    out: &mut [Line],
) {
    let lines = s.n / Line::WORDS;
    let primes = tables.primes.iter().zip(s.residues.chunks_exact(lines));
    for ((tables, s), out) in primes.zip(out.chunks_exact_mut(lines)) {
        prepare_wide(simd, tables, x, bits, out);
        let (p, inverse) = (simd.splat(tables.prime), simd.splat(tables.inverse));
        let out = simd.view_mut(out);
        for (out, &s) in out.iter_mut().zip(simd.view(s)) {
            *out = ntt::mul_montgomery(simd, *out, s, p, inverse);
        }
        ntt::backward(simd, out, tables);
    }
}

/// The signed integer with the given residues (below 2p, `[prime][n]`), modulo `2^bits`.
#[inline(always)]
fn recombine<S: Simd>(simd: S, constants: &Recombination, residues: &[Line], bits: u32, out: &mut [u64]) {
    let [p1, p2, p3] = PRIMES;
    let vectors = out.len() / S::LANES;
    let residues = simd.view(residues);
    let (first, others) = residues.split_at(vectors);
    let (second, third) = others.split_at(vectors);
    let (p1v, p2v, p3v) = (simd.splat(p1), simd.splat(p2), simd.splat(p3));
    let (twice1, twice3) = (simd.splat(2 * p1), simd.splat(2 * p3));
    let first_offset = simd.splat(constants.first);
    let other_offsets = constants.others.map(|offset| simd.splat(offset));
    let [inverse12, inverse13] = constants.first_inverse.map(|factor| factor.splat(simd));
    let inverse23 = constants.second_inverse.splat(simd);
    let p1_word = simd.splat_word(u64::from(p1));
    let p12 = u64::from(p1) * u64::from(p2);
    let (p12_low, p12_high) = (simd.splat_word(p12 & 0xffff_ffff), simd.splat_word(p12 >> 32));
    let minus_half = simd.splat_word(constants.half.wrapping_neg());
    let mask = simd.splat_word(crate::mask(bits));
    for (i, out) in out.chunks_exact_mut(S::LANES).enumerate() {
        // v1 = t + half modulo p1: below 2p + p, below 2p, below p.
        let v1 = ntt::reduce(simd, simd.add(first[i], first_offset), twice1);
        let v1 = ntt::reduce(simd, v1, p1v);
        // v2 = (t + half - v1) / p1 modulo p2: below 2p + 2p before the product, and never negative.
        let difference = simd.sub(simd.add(second[i], other_offsets[0]), v1);
        let v2 = ntt::mul_factor(simd, difference, inverse12.0, inverse12.1, p2v);
        let v2 = ntt::reduce(simd, v2, p2v);
        let mut word = simd.add_words(simd.widen(v1), simd.mul_words(simd.widen(v2), p1_word));
        if !third.is_empty() {
            // v3 = ((t + half - v1) / p1 - v2) / p2 modulo p3.
            let difference = simd.sub(simd.add(third[i], other_offsets[1]), v1);
            let quotient = ntt::mul_factor(simd, difference, inverse13.0, inverse13.1, p3v);
            let difference = simd.sub(simd.add(quotient, twice3), v2);
            let v3 = ntt::mul_factor(simd, difference, inverse23.0, inverse23.1, p3v);
            let v3 = simd.widen(ntt::reduce(simd, v3, p3v));
            // p1 p2 v3 modulo 2^64.
            let high = simd.shl_words::<32>(simd.mul_words(v3, p12_high));
            word = simd.add_words(word, simd.add_words(simd.mul_words(v3, p12_low), high));
        }
        simd.store_words(out, simd.and_words(simd.add_words(word, minus_half), mask));
    }
}

multiversion! {
    fn run_prepare_small(tables: &Tables, values: &[i8], residues: &mut [Line]) = prepare_small;
    fn run_prepare_wide(tables: &Tables, words: &[u64], bits: u32, residues: &mut [Line]) = prepare_wide;
    fn run_multiply(tables: &AllTables, x: &[Line], s: &SmallNtt, out: &mut [Line]) = multiply;
    fn run_multiply_words(tables: &AllTables, x: &[u64], bits: u32, s: &SmallNtt, out: &mut [Line]) = multiply_words;
    fn run_recombine(constants: &Recombination, residues: &[Line], bits: u32, out: &mut [u64]) = recombine;
}

#[cfg(test)]
mod tests;
