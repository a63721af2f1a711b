//! Products modulo `X^n + 1` and a single prime, for operands and results that are rounded anyway.
//!
//! Where only the upper bits of `x * s mod 2^k` are wanted, x uniform and public, s small and secret, x may be rounded
//! from `Z_(2^k)` to `Z_p` for a prime p of as many bits as are wanted, and the product taken there: modulus switching
//! (Brakerski and Vaikuntanathan, FOCS 2011). With `x' = x p/2^k + r`,
//!
//! `(x' * s mod p) 2^k/p  =  x * s + (r * s) 2^k/p   mod 2^k`,
//!
//! so the price is the noise of the dropped bits, as if x had been truncated to `log2 p` bits. What is gained is that one
//! transform modulo one prime takes the place of two and a recombination, and that x can be sent and kept *transformed*:
//! rounding comes first, so a transformed word has no more bits than any other. Then a product is one pointwise
//! multiplication and one inverse transform; of that, the last stages compute the wanted coefficients only.
//!
//! | | error of a coefficient in units of `2^k/p`, s of weight h |
//! |---|---|
//! | x rounded to the nearest | at most h/2, standard deviation sqrt(h/12) |
//! | x rounded at random | below h, standard deviation sqrt(h/6) on average, mean zero for every x |
//! | back to `2^k` | below `2^-16`, and two words of `2^k`, downwards |
//!
//! *Order.* Transformed words that travel are in the order of the scalar transform (bit-reversed); vector kernels
//! bring them into their own order by zipping.
//!
//! Time and memory access depend on n, p, the number of coefficients and the instruction set only.

use super::ntt::{self, LENGTHS, PRIMES, Tables};
use super::{check_length, lanes_of, run_prepare_small};
use crate::kernel::Kernel;
use crate::prg::Prg;
use crate::simd::{Line, Portable, Simd, multiversion, wipe_on_drop, words, words_mut};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// Sizes of prime that there are.
pub const BITS: RangeInclusive<u32> = 24..=30;

/// For each size, the largest prime below `2^bits` that is 1 modulo `2^14`, so that lengths up to `2^13` have roots.
/// The parties must agree on them.
const PRIME_OF_BITS: [u32; 7] =
    [16_760_833, 33_538_049, 67_043_329, 133_857_281, 268_369_921, 536_690_689, PRIMES[0]];

/// The prime of `bits` bits.
///
/// # Panics
/// If `bits` is not in [`BITS`].
pub fn prime_of(bits: u32) -> u32 {
    assert!(BITS.contains(&bits), "a prime of {BITS:?} bits, not {bits}");
    PRIME_OF_BITS[(bits - BITS.start()) as usize]
}

/// `Z_p[X]/(X^n + 1)`. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct PrimeRing {
    n: usize,
    bits: u32,
    kernel: Kernel,
    tables: Arc<Tables>,
}

/// n residues, transformed and in the order in which they travel; or what is left after they were used.
/// Zeroised on drop.
pub struct Residues(Vec<Line>);

/// A public polynomial, transformed, in the order of its ring's kernel.
pub struct PrimeWide(Vec<Line>);

/// A small secret polynomial, transformed, times `2^32 / n`. Zeroised on drop.
pub struct PrimeSmall(Vec<Line>);

wipe_on_drop!(Residues.0, PrimeSmall.0);

impl Residues {
    /// The residues.
    pub fn words(&self) -> &[u32] {
        words(&self.0)
    }

    /// The residues, to be written. Any words may be: they stand for what they are modulo p.
    pub fn words_mut(&mut self) -> &mut [u32] {
        words_mut(&mut self.0)
    }
}

impl PrimeRing {
    /// The ring for `n` coefficients and the prime of `bits` bits, on `kernel`. Where `n` is too short for the kernel's vectors,
    /// a smaller one is taken. Tables are computed once per process and kernel.
    ///
    /// # Panics
    /// If `n` is not a power of two in `16..=8192` or `bits` not in [`BITS`].
    pub fn new(kernel: Kernel, n: usize, bits: u32) -> PrimeRing {
        const SIZES: usize = 7;
        const LENGTH_COUNT: usize = 10;
        static CACHE: [[[OnceLock<PrimeRing>; SIZES]; LENGTH_COUNT]; Kernel::COUNT] =
            [const { [const { [const { OnceLock::new() }; SIZES] }; LENGTH_COUNT] }; Kernel::COUNT];
        check_length(n);
        let prime = prime_of(bits);
        let length = (n.trailing_zeros() - LENGTHS.start().trailing_zeros()) as usize;
        let slot = &CACHE[kernel.index()][length][(bits - BITS.start()) as usize];
        let build = || {
            let (kernel, lanes) = lanes_of(kernel, n);
            PrimeRing { n, bits, kernel, tables: Arc::new(Tables::new(n, prime, lanes)) }
        };
        slot.get_or_init(build).clone()
    }

    /// p: residues are modulo this prime.
    pub fn prime(&self) -> u32 {
        self.tables.prime
    }

    fn zero_lines(&self) -> Vec<Line> {
        vec![Line::ZERO; self.n / Line::WORDS]
    }

    /// Room for a polynomial.
    pub fn residues(&self) -> Residues {
        Residues(self.zero_lines())
    }

    /// Room for a small polynomial; zero.
    pub fn small(&self) -> PrimeSmall {
        PrimeSmall(self.zero_lines())
    }

    /// Transforms a small polynomial.
    ///
    /// # Panics
    /// If an operand is not of this length.
    pub fn small_into(&self, values: &[i8], out: &mut PrimeSmall) {
        assert_eq!(
            (values.len(), out.0.len() * Line::WORDS),
            (self.n, self.n),
            "coefficients of a polynomial"
        );
        run_prepare_small(self.kernel, &self.tables, values, &mut out.0);
    }

    /// Rounds words modulo `2^bits` to the nearest residues and transforms them: the form that travels.
    ///
    /// # Panics
    /// If an operand is not of this length or `bits` not in `16..=54`.
    pub fn round_into(&self, words: &[u64], bits: u32, out: &mut Residues) {
        self.round(words, bits, || 1 << (bits - 1), &mut out.0);
        run_forward_to_wire(self.kernel, &self.tables, &mut out.0);
    }

    /// Rounds words modulo `2^bits` at random, up with a probability that is the fraction, and transforms them.
    ///
    /// # Panics
    /// As [`round_into`](Self::round_into).
    pub fn round_at_random(&self, words: &[u64], bits: u32, prg: &mut Prg) -> PrimeWide {
        let mut lines = self.zero_lines();
        self.round(words, bits, || prg.next_u64() & crate::mask(bits), &mut lines);
        run_forward(self.kernel, &self.tables, &mut lines);
        PrimeWide(lines)
    }

    /// `floor((word p + offset) / 2^bits)` modulo p.
    fn round(&self, words: &[u64], bits: u32, mut offset: impl FnMut() -> u64, out: &mut [Line]) {
        assert!((16..=54).contains(&bits), "words of 16 to 54 bits, not {bits}");
        assert_eq!((words.len(), out.len() * Line::WORDS), (self.n, self.n), "words of a polynomial");
        let p = self.prime();
        for (out, &word) in words_mut(out).iter_mut().zip(words) {
            let product = u128::from(word & crate::mask(bits)) * u128::from(p) + u128::from(offset());
            // At most p, which is zero.
            *out = ntt::reduce(Portable, (product >> bits) as u32, p);
        }
    }

    /// The first coefficients of each of `parts` equal parts of `x * s`, taken to `2^bits`, one part's behind the other's:
    /// `[parts][out.len() / parts]`. `scratch` is overwritten.
    ///
    /// # Panics
    /// If an operand is of another length, `out` is longer, `bits` is not in `16..=54`, or `parts` is no power of two up to n or does
    /// not divide `out`'s length.
    pub fn multiply_into(
        &self,
        x: &PrimeWide,
        s: &PrimeSmall,
        scratch: &mut Residues,
        bits: u32,
        parts: usize,
        out: &mut [u64],
    ) {
        self.check([&x.0, &s.0, &scratch.0], bits, parts, out);
        let ends = Ends { lift: self.lift(bits), parts };
        run_multiply(self.kernel, &self.tables, &x.0, &s.0, &mut scratch.0, ends, out);
    }

    /// As [`multiply_into`](Self::multiply_into), for an x that travelled. It is used up.
    ///
    /// # Panics
    /// As `multiply_into`.
    pub fn multiply_received_into(
        &self,
        x: &mut Residues,
        s: &PrimeSmall,
        bits: u32,
        parts: usize,
        out: &mut [u64],
    ) {
        self.check([&x.0, &s.0, &s.0], bits, parts, out);
        let ends = Ends { lift: self.lift(bits), parts };
        run_multiply_received(self.kernel, &self.tables, &s.0, &mut x.0, ends, out);
    }

    fn check(&self, operands: [&[Line]; 3], bits: u32, parts: usize, out: &[u64]) {
        assert!(parts.is_power_of_two() && parts <= self.n, "{parts} parts of {}", self.n);
        assert!(out.len().is_multiple_of(parts), "{} coefficients in {parts} parts", out.len());
        assert!(
            operands.iter().all(|lines| lines.len() * Line::WORDS == self.n),
            "an operand of another length"
        );
        assert!((16..=54).contains(&bits), "words of 16 to 54 bits, not {bits}");
        assert!(out.len() <= self.n, "{} coefficients of {}", out.len(), self.n);
    }

    /// How to take a residue v to `2^bits`: `2^(scale + 16) / p` has an integer part of at most 48 bits.
    fn lift(&self, bits: u32) -> Lift {
        let scale = 31 + self.bits;
        let quotient = ((1u128 << (scale + 16)) / u128::from(self.prime())) as u64;
        Lift { high: quotient >> 16, low: quotient & 0xffff, shift: scale - bits }
    }
}

/// `v 2^bits / p` as `(v high + (v low >> 16)) >> shift`; high is below `2^32`.
#[derive(Clone, Copy)]
struct Lift {
    high: u64,
    low: u64,
    shift: u32,
}

/// How a product ends: which of its coefficients are wanted, and how they are taken to words.
#[derive(Clone, Copy)]
struct Ends {
    lift: Lift,
    parts: usize,
}

/// Forward transform of residues.
#[inline(always)]
fn forward<S: Simd>(simd: S, tables: &Tables, data: &mut [Line]) {
    ntt::forward(simd, simd.view_mut(data), tables);
}

/// The same, reduced below p, into the order of the scalar transform.
#[inline(always)]
fn forward_to_wire<S: Simd>(simd: S, tables: &Tables, data: &mut [Line]) {
    let data = simd.view_mut(data);
    ntt::forward(simd, data, tables);
    let (p, p2) = (simd.splat(tables.prime), simd.splat(2 * tables.prime));
    for value in data.iter_mut() {
        *value = ntt::reduce(simd, ntt::reduce(simd, *value, p2), p);
    }
    ntt::zip_lanes::<S, true>(simd, data);
}

#[inline(always)]
fn multiply<S: Simd>(
    simd: S,
    tables: &Tables,
    x: &[Line],
    s: &[Line],
    product: &mut [Line],
    ends: Ends,
    out: &mut [u64],
) {
    let (p, inverse) = (simd.splat(tables.prime), simd.splat(tables.inverse));
    let product = simd.view_mut(product);
    for ((product, &x), &s) in product.iter_mut().zip(simd.view(x)).zip(simd.view(s)) {
        *product = ntt::mul_montgomery(simd, x, s, p, inverse);
    }
    invert(simd, tables, product, ends, out);
}

#[inline(always)]
fn multiply_received<S: Simd>(
    simd: S,
    tables: &Tables,
    s: &[Line],
    x: &mut [Line],
    ends: Ends,
    out: &mut [u64],
) {
    let (p, inverse) = (simd.splat(tables.prime), simd.splat(tables.inverse));
    let x = simd.view_mut(x);
    ntt::zip_lanes::<S, false>(simd, x);
    for (x, &s) in x.iter_mut().zip(simd.view(s)) {
        *x = ntt::mul_montgomery(simd, *x, s, p, inverse);
    }
    invert(simd, tables, x, ends, out);
}

/// Residues below 2p as words.
#[inline(always)]
fn lifted<S: Simd>(simd: S, value: S::V, p: S::V, lift: Lift) -> S::W {
    let (high, low) = (simd.splat_word(lift.high), simd.splat_word(lift.low));
    let value = simd.widen(ntt::reduce(simd, value, p));
    let fraction = simd.shr_words(simd.mul_words(value, low), 16);
    simd.shr_words(simd.add_words(simd.mul_words(value, high), fraction), lift.shift)
}

/// Inverse transform, then the first coefficients of every part as words.
#[inline(always)]
fn invert<S: Simd>(simd: S, tables: &Tables, product: &mut [S::V], ends: Ends, out: &mut [u64]) {
    let Ends { lift, parts } = ends;
    let (vectors, len) = (product.len(), out.len() / parts);
    if len == 0 {
        return;
    }
    let p = simd.splat(tables.prime);
    if parts > vectors {
        // Parts within a vector: only in rings too small for any security.
        ntt::backward(simd, product, tables);
        let part = vectors * S::LANES / parts;
        let mut words = [0; Line::WORDS];
        for (v, &value) in product.iter().enumerate() {
            simd.store_words(&mut words[..S::LANES], lifted(simd, value, p, lift));
            for (at, &word) in (v * S::LANES..).zip(&words[..S::LANES]) {
                if at % part < len {
                    out[at / part * len + at % part] = word;
                }
            }
        }
        return;
    }
    ntt::backward_first(simd, product, tables, parts, len.div_ceil(S::LANES));
    for (part, out) in product.chunks_exact(vectors / parts).zip(out.chunks_exact_mut(len)) {
        for (&value, out) in part.iter().zip(out.chunks_mut(S::LANES)) {
            if out.len() == S::LANES {
                simd.store_words(out, lifted(simd, value, p, lift));
            } else {
                let mut words = [0; Line::WORDS];
                simd.store_words(&mut words, lifted(simd, value, p, lift));
                out.copy_from_slice(&words[..out.len()]);
            }
        }
    }
}

multiversion! {
    fn run_forward(tables: &Tables, data: &mut [Line]) = forward;
    fn run_forward_to_wire(tables: &Tables, data: &mut [Line]) = forward_to_wire;
    fn run_multiply(
        tables: &Tables, x: &[Line], s: &[Line], product: &mut [Line], ends: Ends, out: &mut [u64]
    ) = multiply;
    fn run_multiply_received(
        tables: &Tables, s: &[Line], x: &mut [Line], ends: Ends, out: &mut [u64]
    ) = multiply_received;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use crate::sample;
    use proptest::prelude::*;

    /// Coefficients of `x * s`, over the integers.
    fn schoolbook(x: &[u64], s: &[i8]) -> Vec<i128> {
        let n = x.len();
        let mut sums = vec![0i128; n];
        for (i, &s) in s.iter().enumerate() {
            for (j, &x) in x.iter().enumerate() {
                let product = i128::from(s) * i128::from(x);
                if i + j < n { sums[i + j] += product } else { sums[i + j - n] -= product }
            }
        }
        sums
    }

    /// `floor(v 2^bits / p)`, the way back, may come out a little too small: the factor is a rounded quotient.
    fn assert_lifted(got: &[u64], sums: &[i128], p: u32, bits: u32, what: &str) {
        for (&got, sum) in got.iter().zip(sums) {
            let residue = sum.rem_euclid(i128::from(p)) as u128;
            let exact = ((residue << bits) / u128::from(p)) as u64;
            let slack = 2 + ((1u64 << bits) >> 16) / u64::from(p);
            assert!(got <= exact && exact - got <= slack, "{what}: {got}, {exact}");
        }
    }

    fn nearest(words: &[u64], bits: u32, p: u32) -> Vec<u64> {
        let half = 1u128 << (bits - 1);
        words
            .iter()
            .map(|&w| (((u128::from(w) * u128::from(p) + half) >> bits) as u64) % u64::from(p))
            .collect()
    }

    fn check(n: usize, prime_bits: u32, bits: u32, words: &[u64], s: &[i8], count: usize) {
        let (mut sent, mut results) = (Vec::new(), Vec::new());
        for kernel in Kernel::all(Cpu::detect()) {
            let ring = PrimeRing::new(kernel, n, prime_bits);
            let mut small = ring.small();
            ring.small_into(s, &mut small);
            let mut x = ring.residues();
            ring.round_into(words, bits, &mut x);
            assert!(x.words().iter().all(|&word| word < ring.prime()));
            sent.push(x.words().to_vec());
            let mut out = vec![u64::MAX; count];
            ring.multiply_received_into(&mut x, &small, bits, 1, &mut out);
            let sums = schoolbook(&nearest(words, bits, ring.prime()), s);
            assert_lifted(&out, &sums, ring.prime(), bits, kernel.name());
            results.push(out);
        }
        assert!(sent.windows(2).all(|pair| pair[0] == pair[1]), "kernels send differently");
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "kernels multiply differently");
    }

    fn random_words(n: usize, bits: u32, seed: u64) -> Vec<u64> {
        let mut words = vec![0; n];
        Prg::derive(&[3; 32], "words", &[seed]).fill_words(&mut words, bits);
        words
    }

    fn random_ternary(n: usize, seed: u64) -> Vec<i8> {
        let mut s = vec![0; n];
        sample::ternary(Kernel::SCALAR, &mut Prg::derive(&[4; 32], "small", &[seed]), &mut s);
        s
    }

    #[test]
    fn primes_are_what_they_should_be() {
        for (bits, prime) in BITS.zip(PRIME_OF_BITS) {
            let is_prime = |p: u32| p > 2 && (2..).take_while(|d| d * d <= p).all(|d| !p.is_multiple_of(d));
            let step = 2 * *LENGTHS.end() as u32;
            let largest = (1..).map(|i| (1 << bits) - i * step + 1).find(|&p| is_prime(p)).unwrap();
            assert_eq!(prime, largest, "{bits} bits");
        }
    }

    #[test]
    fn every_length_and_prime() {
        for log_n in 4..=8 {
            for prime_bits in BITS {
                let n = 1 << log_n;
                let (x, s) = (random_words(n, 48, log_n), random_ternary(n, log_n));
                check(n, prime_bits, 48, &x, &s, n);
            }
        }
        check(2048, 26, 48, &random_words(2048, 48, 1), &random_ternary(2048, 1), 2048);
    }

    #[test]
    fn extreme_operands() {
        for word in [0, 1, 1 << 47, (1 << 48) - 1, (1 << 48) - (1 << 17)] {
            for small in [1i8, -1, 127, -128] {
                check(256, 30, 48, &[word; 256], &[small; 256], 256);
                check(256, 24, 48, &[word; 256], &[small; 256], 100);
            }
        }
    }

    /// Words from a peer need not be residues.
    #[test]
    fn any_words_stand_for_residues() {
        let n = 64;
        let s = random_ternary(n, 5);
        let words: Vec<u32> = random_words(n, 32, 9).iter().map(|&w| w as u32 | 0xc000_0000).collect();
        for kernel in Kernel::all(Cpu::detect()) {
            let ring = PrimeRing::new(kernel, n, 26);
            let mut small = ring.small();
            ring.small_into(&s, &mut small);
            let product = |words: &mut dyn Iterator<Item = u32>| {
                let mut x = ring.residues();
                x.words_mut().iter_mut().zip(words).for_each(|(x, word)| *x = word);
                let mut out = vec![0; n];
                ring.multiply_received_into(&mut x, &small, 48, 1, &mut out);
                out
            };
            let reduced = product(&mut words.iter().map(|word| word % ring.prime()));
            assert_eq!(product(&mut words.iter().copied()), reduced);
        }
    }

    /// Up with a probability that is the fraction: the mean over many roundings of one word is the exact quotient.
    #[test]
    fn rounding_at_random_has_no_bias() {
        const ROUNDS: u64 = 4000;
        let n = 16;
        let ring = PrimeRing::new(Kernel::of(Cpu::detect()), n, 30);
        let words = random_words(n, 48, 2);
        let mut one = vec![0i8; n];
        one[0] = 1;
        let mut small = ring.small();
        ring.small_into(&one, &mut small);
        let unit = 2f64.powi(48) / f64::from(ring.prime());
        let mut sums = vec![0f64; n];
        for round in 0..ROUNDS {
            let x = ring.round_at_random(&words, 48, &mut Prg::derive(&[1; 32], "rounding", &[round]));
            let mut out = vec![0; n];
            ring.multiply_into(&x, &small, &mut ring.residues(), 48, 1, &mut out);
            for (sum, (&got, &word)) in sums.iter_mut().zip(out.iter().zip(&words)) {
                let error = (got as f64 - word as f64) / unit;
                assert!(error.abs() < 1.001, "{error}");
                *sum += error;
            }
        }
        // At most 1/2 of standard deviation a rounding: six of the mean's, and the way back.
        let bound = 6.0 * 0.5 / (ROUNDS as f64).sqrt() + 0.001;
        assert!(sums.iter().all(|sum| (sum / ROUNDS as f64).abs() < bound), "{sums:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn any_count(log_n in 4u32..=8, prime_bits in BITS, bits in 16u32..=54, count in 1usize..=256, seed: u64) {
            let n = 1 << log_n;
            check(n, prime_bits, bits, &random_words(n, bits, seed), &random_ternary(n, seed), count.min(n));
        }

        /// The first coefficients of parts are those of the whole product.
        #[test]
        fn any_parts(log_n in 4u32..=11, log_parts in 0u32..=5, prime_bits in BITS, part in 0.0f64..1.0, seed: u64) {
            let (n, parts) = (1usize << log_n, 1usize << log_parts.min(log_n));
            let len = ((n / parts) as f64 * part).ceil() as usize;
            let (words, s) = (random_words(n, 48, seed), random_ternary(n, seed));
            for kernel in Kernel::all(Cpu::detect()) {
                let ring = PrimeRing::new(kernel, n, prime_bits);
                let mut small = ring.small();
                ring.small_into(&s, &mut small);
                let mut x = ring.residues();
                let (mut whole, mut firsts) = (vec![0; n], vec![0; parts * len]);
                ring.round_into(&words, 48, &mut x);
                ring.multiply_received_into(&mut x, &small, 48, 1, &mut whole);
                ring.round_into(&words, 48, &mut x);
                ring.multiply_received_into(&mut x, &small, 48, parts, &mut firsts);
                for (part, first) in firsts.chunks(len.max(1)).enumerate() {
                    prop_assert_eq!(first, &whole[part * n / parts..][..len], "{}, part {}", kernel.name(), part);
                }
                let x = ring.round_at_random(&words, 48, &mut Prg::new([1; 32]));
                let mut again = vec![0; parts * len];
                ring.multiply_into(&x, &small, &mut ring.residues(), 48, 1, &mut whole);
                ring.multiply_into(&x, &small, &mut ring.residues(), 48, parts, &mut again);
                for (part, first) in again.chunks(len.max(1)).enumerate() {
                    prop_assert_eq!(first, &whole[part * n / parts..][..len], "{}, part {}", kernel.name(), part);
                }
            }
        }

        #[test]
        fn rounded_at_random_within_the_bound(log_n in 4u32..=8, count in 1usize..=256, seed: u64) {
            let n = 1 << log_n;
            let (words, s) = (random_words(n, 48, seed), random_ternary(n, seed));
            let mut results = Vec::new();
            for kernel in Kernel::all(Cpu::detect()) {
                let ring = PrimeRing::new(kernel, n, 30);
                let mut small = ring.small();
                ring.small_into(&s, &mut small);
                let mut out = vec![0; count.min(n)];
                let x = ring.round_at_random(&words, 48, &mut Prg::new([1; 32]));
                ring.multiply_into(&x, &small, &mut ring.residues(), 48, 1, &mut out);
                results.push(out);
            }
            prop_assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
            // Within the error that the header states.
            let weight = s.iter().filter(|&&s| s != 0).count() as f64;
            let most = (weight + 1.0) * 2f64.powi(48) / f64::from(PRIME_OF_BITS[6]);
            for (&got, sum) in results[0].iter().zip(schoolbook(&words, &s)) {
                let exact = sum.rem_euclid(1 << 48) as i64;
                let error = (got as i64).wrapping_sub(exact) << 16 >> 16;
                prop_assert!((error as f64).abs() <= most, "{} {}", error, most);
            }
        }
    }
}
