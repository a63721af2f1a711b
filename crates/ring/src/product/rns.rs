//! Arithmetic in `Z_q[X]/(X^n + 1)` where q is a product of up to three primes of 30 bits (residue number
//! system); rings of other primes are for [`modular`].
//!
//! This is the ring of schemes with a modulus made for transforms, Cheetah's for instance. An operand is
//! transformed once ([`RnsNtt`]) and stays so; sums of products ([`Rns::accumulate`]) are taken there, and
//! only the sum is transformed back. Every word is a residue of 30 bits, one plane of n words for each prime
//! (*limb*).
//!
//! *Sums of products.* Transformed operands are reduced below p < `2^30`, so that eleven products and what
//! was there before fit 64 bits; then the high half is brought below p by two conditional subtractions, and
//! at the end one Montgomery reduction takes `2^32` away. The small operands carry the factor `2^32 / n`,
//! which pays for it and for the inverse transform.
//!
//! *Leaving the ring.* [`Rns::switch_into`] gives `round(x · 2^bits / q) mod 2^bits`: with `y_i =
//! x·(q/p_i)^-1 mod p_i` that is the fractional part of `Σ y_i / p_i`, computed as a fraction of 64 bits,
//! within `2^-61`.
//!
//! Time and memory access depend on lengths, numbers of limbs and the instruction set only; [`Rns::uniform`]
//! rejects words, and is meant for public ones.

use super::ntt::{self, Factor, Tables};
use super::{check_length, lanes_of, run_prepare_small};
use crate::kernel::Kernel;
use crate::modular;
use crate::prg::Prg;
use crate::simd::{Line, Portable, Simd, multiversion, wipe_on_drop, words, words_mut};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

/// Bits of a residue, and of a word on the wire.
pub const LIMB_BITS: u32 = 30;

/// How many primes q may have.
pub const LIMBS: RangeInclusive<usize> = 1..=3;

/// Products added up between two reductions: `11 (p - 1)^2 + 2^32 p < 2^62 · 15/4`, so that the high half
/// stays below 4p.
const LAZY_TERMS: usize = 11;

/// How many sums share their inputs in one pass of [`Rns::accumulate`].
pub const PANEL_OUTS: usize = 2;

/// The ring for one n and q. Cheap to clone.
#[derive(Clone)]
pub struct Rns {
    n: usize,
    kernel: Kernel,
    /// Tables of transforms, one for each prime.
    tables: Vec<Arc<Tables>>,
    limbs: Vec<Limb>,
}

/// Tables by n, prime and number of lanes.
type Cache = BTreeMap<(usize, u32, usize), Arc<Tables>>;

/// The tables of one limb: computed once per process.
fn tables_of(n: usize, prime: u32, lanes: usize) -> Arc<Tables> {
    static CACHE: Mutex<Cache> = Mutex::new(BTreeMap::new());
    // Nobody panics while holding it but for a prime that is none, and then nothing was put in.
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(cache.entry((n, prime, lanes)).or_insert_with(|| Arc::new(Tables::new(n, prime, lanes))))
}

/// What leaving the ring takes, by limb.
#[derive(Clone, Copy)]
struct Limb {
    prime: u32,
    /// `(q / p)^-1` modulo p.
    inverse: Factor,
    /// `floor(2^96 / p)`, 32 bits each, lowest first.
    fraction: [u64; 3],
}

/// A polynomial as coefficients: residues below 2p, `[limb][n]`. Zeroised on drop.
pub struct RnsPoly(Vec<Line>);

/// A polynomial transformed: residues below p, `[limb][n]` in the order of this process's kernel. Zeroised on
/// drop.
pub struct RnsNtt(Vec<Line>);

/// A small secret polynomial, transformed and times `2^32 / n`. Zeroised on drop.
pub struct RnsSmall(Vec<Line>);

/// A sum of products, transformed and divided by n: residues below 2p. Zeroised on drop.
pub struct RnsSum(Vec<Line>);

wipe_on_drop!(RnsPoly.0, RnsNtt.0, RnsSmall.0, RnsSum.0, RnsPairs.lines);

/// Pairs of transformed polynomials (the halves of ciphertexts), side by side for [`Rns::accumulate`]:
/// `[limb][line of n][pair][half]`.
pub struct RnsPairs {
    count: usize,
    lines: Vec<Line>,
}

/// Small polynomials (weights) for one or two sums of `terms` products, transformed, in the order in which
/// the sum reads them: `[limb][line of n][term][sum]`.
pub struct RnsPanel {
    outs: usize,
    terms: usize,
    lines: Vec<Line>,
}

impl RnsPanel {
    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

impl Rns {
    /// The ring of length `n` and the product of `primes`, different ones that are 1 modulo 2n, on `kernel`. Where `n` is too
    /// short for the kernel's vectors, a smaller one is taken.
    ///
    /// # Panics
    /// If n is no power of two in `16..=8192`, if there are not as many primes as [`LIMBS`] says, or if they are not such
    /// primes of [`LIMB_BITS`] bits.
    pub(crate) fn new(kernel: Kernel, n: usize, primes: &[u32]) -> Rns {
        check_length(n);
        assert!(LIMBS.contains(&primes.len()), "{LIMBS:?} limbs, not {}", primes.len());
        for (i, &prime) in primes.iter().enumerate() {
            let fits = u64::from(prime) % (2 * n as u64) == 1 && prime >> (LIMB_BITS - 1) == 1;
            let is_new = !primes[..i].contains(&prime);
            assert!(fits && is_new && modular::is_prime(prime.into()), "no prime for this ring: {prime}");
        }
        let (kernel, lanes) = lanes_of(kernel, n);
        let limb = |&prime: &u32| {
            let others = primes.iter().filter(|&&other| other != prime);
            let cofactor = others.fold(1, |product, &p| product * u64::from(p) % u64::from(prime));
            let fraction = (1u128 << 96) / u128::from(prime);
            Limb {
                prime,
                inverse: Factor::new(ntt::invert(cofactor, prime), prime),
                fraction: [0, 32, 64].map(|shift| (fraction >> shift) as u64 & 0xffff_ffff),
            }
        };
        let tables = primes.iter().map(|&prime| tables_of(n, prime, lanes)).collect();
        Rns { n, kernel, tables, limbs: primes.iter().map(limb).collect() }
    }

    /// The kernel that its arithmetic runs on.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// n: how many coefficients a polynomial has.
    pub fn n(&self) -> usize {
        self.n
    }

    /// How many primes q has.
    pub fn limbs(&self) -> usize {
        self.limbs.len()
    }

    /// q: the product of the primes.
    pub(crate) fn modulus(&self) -> u128 {
        self.limbs.iter().map(|limb| u128::from(limb.prime)).product()
    }

    /// Lines of one limb of a polynomial.
    fn lines(&self) -> usize {
        self.n() / Line::WORDS
    }

    /// The primes whose product is q.
    pub fn primes(&self) -> impl Iterator<Item = u32> {
        self.limbs.iter().map(|limb| limb.prime)
    }

    fn zero_lines(&self) -> Vec<Line> {
        vec![Line::ZERO; self.limbs() * self.lines()]
    }

    /// Each limb of a polynomial with its constants.
    fn planes<'a>(&'a self, lines: &'a mut [Line]) -> impl Iterator<Item = (&'a Tables, &'a mut [Line])> {
        self.tables.iter().map(Arc::as_ref).zip(lines.chunks_exact_mut(self.lines()))
    }

    /// The polynomial that is 0.
    pub fn zero(&self) -> RnsPoly {
        RnsPoly(self.zero_lines())
    }

    /// A uniform polynomial out of a public stream. The same on every machine.
    pub fn uniform(&self, prg: &mut Prg) -> RnsPoly {
        let mut poly = self.zero();
        let mut buffer = [0u64; 256];
        for (tables, plane) in self.planes(&mut poly.0) {
            let mut rest = words_mut(plane);
            while !rest.is_empty() {
                // Two candidates a word; the larger the prime, the fewer candidates are refused.
                let wanted = rest.len().div_ceil(2).min(buffer.len());
                prg.fill_u64(&mut buffer[..wanted]);
                let candidates = buffer[..wanted].iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
                for candidate in candidates.map(|word| word & ((1 << LIMB_BITS) - 1)) {
                    if candidate < tables.prime
                        && let Some((first, others)) = std::mem::take(&mut rest).split_first_mut()
                    {
                        *first = candidate;
                        rest = others;
                    } else if rest.is_empty() {
                        break;
                    }
                }
            }
        }
        poly
    }

    /// A polynomial from residues of [`LIMB_BITS`] bits, `[limb][n]`, as a peer sends them. Bits above are
    /// ignored, and a word that is no reduced residue stands for the residue that it is modulo p.
    ///
    /// # Panics
    /// If there are not n words for each limb.
    pub fn from_words(&self, words: &[u64]) -> RnsPoly {
        let mut poly = self.zero();
        let residues = words_mut(&mut poly.0);
        assert_eq!(words.len(), residues.len(), "residues of a polynomial");
        for (residue, &word) in residues.iter_mut().zip(words) {
            *residue = word as u32 & ((1 << LIMB_BITS) - 1);
        }
        poly
    }

    /// The residues, each below its prime, `[limb][n]`.
    pub fn to_words(&self, poly: &RnsPoly) -> Vec<u64> {
        let planes = self.tables.iter().zip(poly.0.chunks_exact(self.lines()));
        planes
            .flat_map(|(tables, plane)| {
                words(plane).iter().map(|&r| u64::from(ntt::reduce(Portable, r, tables.prime)))
            })
            .collect()
    }

    /// Adds a polynomial with small coefficients (noise).
    ///
    /// # Panics
    /// If `values` is not n long.
    pub(crate) fn add_small(&self, poly: &mut RnsPoly, values: &[i8]) {
        assert_eq!(values.len(), self.n(), "coefficients of a polynomial");
        for (tables, plane) in self.planes(&mut poly.0) {
            run_add_small(self.kernel, tables.prime, values, plane);
        }
    }

    /// Changes the sign.
    pub fn negate(&self, poly: &mut RnsPoly) {
        for (tables, plane) in self.planes(&mut poly.0) {
            run_negate(self.kernel, tables.prime, plane);
        }
    }

    /// Adds `round(q · m / 2^bits)` for every m in `values`, which are taken modulo `2^bits`: the encoding of
    /// a plaintext modulo `2^bits`. The rounding is off by half at most.
    ///
    /// # Panics
    /// If `values` is not n long or `bits` not in `1..=62`.
    pub fn add_scaled(&self, poly: &mut RnsPoly, values: &[u64], bits: u32) {
        assert_eq!(values.len(), self.n(), "coefficients of a polynomial");
        assert!((1..=62).contains(&bits), "a plaintext of 1 to 62 bits, not {bits}");
        let modulus = self.modulus() as u64;
        for (tables, plane) in self.planes(&mut poly.0) {
            let scale = Scale::new(tables.prime, modulus, bits);
            run_add_scaled(self.kernel, &scale, values, plane);
        }
    }

    /// The polynomial's values, for products.
    pub fn transform(&self, mut poly: RnsPoly) -> RnsNtt {
        for (tables, plane) in self.planes(&mut poly.0) {
            run_transform(self.kernel, tables, plane);
        }
        RnsNtt(std::mem::take(&mut poly.0))
    }

    /// Transforms a small secret polynomial for [`multiply`](Self::multiply) and
    /// [`add_product`](Self::add_product).
    ///
    /// # Panics
    /// If `values` is not n long.
    pub fn prepare_small(&self, values: &[i8]) -> RnsSmall {
        assert_eq!(values.len(), self.n(), "coefficients of a polynomial");
        let mut small = RnsSmall(self.zero_lines());
        for (tables, plane) in self.planes(&mut small.0) {
            run_prepare_small(self.kernel, tables, values, plane);
        }
        small
    }

    /// `x · s`.
    pub fn multiply(&self, x: &RnsNtt, s: &RnsSmall) -> RnsPoly {
        let (mut sum, mut product) = (RnsSum(self.zero_lines()), self.zero());
        self.add_product(&mut sum, x, s);
        self.invert_into(&mut sum, &mut product);
        product
    }

    /// Adds `x · s` to a sum.
    pub fn add_product(&self, sum: &mut RnsSum, x: &RnsNtt, s: &RnsSmall) {
        let lines = self.lines();
        let operands = x.0.chunks_exact(lines).zip(s.0.chunks_exact(lines));
        for ((tables, sum), (x, s)) in self.planes(&mut sum.0).zip(operands) {
            run_add_product(self.kernel, tables, x, s, sum);
        }
    }

    /// A sum as coefficients. The two exchange their memory: what is left in `sum` means nothing.
    ///
    /// # Panics
    /// If `poly` is one of another ring.
    pub(crate) fn invert_into(&self, sum: &mut RnsSum, poly: &mut RnsPoly) {
        assert_eq!(sum.0.len(), poly.0.len(), "a polynomial of this ring");
        std::mem::swap(&mut sum.0, &mut poly.0);
        for (tables, plane) in self.planes(&mut poly.0) {
            run_backward(self.kernel, tables, plane);
        }
    }

    /// Lays pairs out for sums of products.
    pub fn pairs(&self, pairs: &[[RnsNtt; 2]]) -> RnsPairs {
        let mut lines = vec![Line::ZERO; 2 * pairs.len() * self.limbs() * self.lines()];
        for (i, half) in pairs.iter().flatten().enumerate() {
            for (line, to) in half.0.iter().zip(lines[i..].iter_mut().step_by(2 * pairs.len())) {
                *to = *line;
            }
        }
        RnsPairs { count: pairs.len(), lines }
    }

    /// Transforms the small polynomials of `outs` sums of `terms` products; `fill(out, term, coefficients)`
    /// writes each into zeros. Coefficients must be smaller than every prime, in absolute value.
    ///
    /// # Panics
    /// If `outs` is not 1 or 2 ([`PANEL_OUTS`]) or there are no terms.
    pub fn panel(
        &self,
        outs: usize,
        terms: usize,
        mut fill: impl FnMut(usize, usize, &mut [i32]),
    ) -> RnsPanel {
        assert!((1..=PANEL_OUTS).contains(&outs) && terms > 0, "{outs} sums of {terms} products");
        let mut lines = vec![Line::ZERO; outs * terms * self.limbs() * self.lines()];
        let mut coefficients = vec![0i32; self.n()];
        let mut plane = vec![Line::ZERO; self.lines()];
        for term in 0..terms {
            for out in 0..outs {
                coefficients.fill(0);
                fill(out, term, &mut coefficients);
                for (limb, tables) in self.tables.iter().enumerate() {
                    run_prepare_weights(self.kernel, tables, &coefficients, &mut plane);
                    let first = limb * self.lines() * terms * outs + term * outs + out;
                    for (line, to) in plane.iter().zip(lines[first..].iter_mut().step_by(terms * outs)) {
                        *to = *line;
                    }
                }
            }
        }
        RnsPanel { outs, terms, lines }
    }

    /// `Σ panel[term] · pair[first + term]` for each of `inputs` and each sum of the panel, into `sums`:
    /// `[input][out][half]`. The panel is read once for all inputs; the memory of earlier sums is used again.
    ///
    /// # Panics
    /// If an input has fewer than `first` plus the panel's terms pairs.
    pub fn accumulate(
        &self,
        panel: &RnsPanel,
        inputs: &[RnsPairs],
        first: usize,
        sums: &mut Vec<[RnsSum; 2]>,
    ) {
        for input in inputs {
            assert!(first + panel.terms <= input.count, "pairs of the panel's terms");
        }
        let zero = || RnsSum(self.zero_lines());
        sums.resize_with(inputs.len() * panel.outs, || [zero(), zero()]);
        let kernel = self.kernel;
        run_accumulate(kernel, &self.tables, self.lines(), panel, inputs, first, sums);
    }

    /// `round(x · 2^bits / q)` modulo `2^bits` for every coefficient x.
    ///
    /// # Panics
    /// If `out` is not n long or `bits` not in `1..=60`.
    pub fn switch_into(&self, poly: &RnsPoly, bits: u32, out: &mut [u64]) {
        assert_eq!(out.len(), self.n(), "words of a polynomial");
        assert!((1..=60).contains(&bits), "words of 1 to 60 bits, not {bits}");
        run_switch(self.kernel, &self.limbs, &poly.0, bits, out);
    }
}

/// Constants of `round(q · m / 2^bits)` modulo one prime: `-c · 2^-bits` for `c = q·m mod 2^bits`, centred,
/// since `2^bits · round(q·m / 2^bits) = q·m - c` and q is zero modulo p.
struct Scale {
    prime: u32,
    /// q modulo `2^64`.
    modulus: u64,
    mask: u64,
    half: u64,
    /// `-2^-bits` and `-2^(32 - bits)`.
    low: Factor,
    high: Factor,
    /// What c + half is too much by: `half · 2^-bits`, that is 1/2, modulo p.
    offset: u32,
}

impl Scale {
    fn new(prime: u32, modulus: u64, bits: u32) -> Scale {
        let p = u64::from(prime);
        let inverse = ntt::invert(ntt::power(2, u64::from(bits), prime), prime);
        let low = Factor::new(p - inverse, prime);
        let high = Factor::new((p - inverse) * ((1 << 32) % p), prime);
        let half = 1u64 << (bits - 1);
        let offset = (half % p * inverse % p) as u32;
        Scale { prime, modulus, mask: crate::mask(bits), half, low, high, offset }
    }
}

// Kernels that are plain loops: the compiler's own vectors are as good as it gets here.

#[inline(always)]
fn residue(value: i32, prime: u32) -> u32 {
    (value + ((value >> 31) & prime as i32)) as u32
}

/// x modulo `modulus` for `x < 2 · modulus`: the smaller of x and x - modulus as unsigned numbers, an
/// instruction without a branch on every target.
#[inline(always)]
fn reduce_once(x: u32, modulus: u32) -> u32 {
    x.min(x.wrapping_sub(modulus))
}

#[inline(always)]
fn times(x: u32, factor: (u32, u32), prime: u32) -> u32 {
    ntt::mul_factor(Portable, x, factor.0, factor.1, prime)
}

#[inline(always)]
fn add_small<S>(_: S, prime: u32, values: &[i8], plane: &mut [Line]) {
    for (r, &value) in words_mut(plane).iter_mut().zip(values) {
        // Below 2p + p.
        *r = reduce_once(*r + residue(i32::from(value), prime), 2 * prime);
    }
}

#[inline(always)]
fn negate<S>(_: S, prime: u32, plane: &mut [Line]) {
    for r in words_mut(plane) {
        // In 1..=2p.
        *r = reduce_once(2 * prime - *r, 2 * prime);
    }
}

#[inline(always)]
fn add_scaled<S>(_: S, scale: &Scale, values: &[u64], plane: &mut [Line]) {
    let &Scale { prime, modulus, mask, half, offset, .. } = scale;
    let (low, high) = (scale.low.splat(Portable), scale.high.splat(Portable));
    for (r, &value) in words_mut(plane).iter_mut().zip(values) {
        let c = value.wrapping_mul(modulus).wrapping_add(half) & mask;
        // Below 2p + 2p, then 2p + p, then 2p; so are the last two.
        let sum = reduce_once(times(c as u32, low, prime) + times((c >> 32) as u32, high, prime), 2 * prime);
        let sum = reduce_once(sum + offset, 2 * prime);
        *r = reduce_once(*r + sum, 2 * prime);
    }
}

#[inline(always)]
fn switch<S>(_: S, limbs: &[Limb], lines: &[Line], bits: u32, out: &mut [u64]) {
    out.fill(1 << (63 - bits));
    for (limb, plane) in limbs.iter().zip(lines.chunks_exact(out.len() / Line::WORDS)) {
        let factor = limb.inverse.splat(Portable);
        let [low, middle, high] = limb.fraction;
        for (out, &r) in out.iter_mut().zip(words(plane)) {
            let y = u64::from(reduce_once(times(r, factor, limb.prime), limb.prime));
            let fraction =
                (y.wrapping_mul(high) << 32).wrapping_add(y * middle).wrapping_add((y * low) >> 32);
            *out = out.wrapping_add(fraction);
        }
    }
    for out in out {
        *out >>= 64 - bits;
    }
}

/// Residues of small coefficients times `2^32 / n`, transformed, below p.
#[inline(always)]
fn prepare_weights<S: Simd>(simd: S, tables: &Tables, values: &[i32], plane: &mut [Line]) {
    for (r, &value) in words_mut(plane).iter_mut().zip(values) {
        *r = residue(value, tables.prime);
    }
    let plane = simd.view_mut(plane);
    ntt::forward(simd, plane, tables);
    let p = simd.splat(tables.prime);
    let (value, quotient) = tables.scale.splat(simd);
    for r in plane {
        *r = ntt::reduce(simd, ntt::mul_factor(simd, *r, value, quotient, p), p);
    }
}

#[inline(always)]
fn transform<S: Simd>(simd: S, tables: &Tables, plane: &mut [Line]) {
    let (p, p2) = (simd.splat(tables.prime), simd.splat(2 * tables.prime));
    let plane = simd.view_mut(plane);
    ntt::forward(simd, plane, tables);
    for r in plane {
        *r = ntt::reduce(simd, ntt::reduce(simd, *r, p2), p);
    }
}

#[inline(always)]
fn add_product<S: Simd>(simd: S, tables: &Tables, x: &[Line], s: &[Line], sum: &mut [Line]) {
    let (p, p2, inverse) =
        (simd.splat(tables.prime), simd.splat(2 * tables.prime), simd.splat(tables.inverse));
    for ((sum, &x), &s) in simd.view_mut(sum).iter_mut().zip(simd.view(x)).zip(simd.view(s)) {
        // Below 2p + 2p.
        *sum = ntt::reduce(simd, simd.add(*sum, ntt::mul_montgomery(simd, x, s, p, inverse)), p2);
    }
}

#[inline(always)]
fn backward<S: Simd>(simd: S, tables: &Tables, plane: &mut [Line]) {
    ntt::backward(simd, simd.view_mut(plane), tables);
}

/// One line of `OUTS` sums: both halves of `pairs` (`[term][half]`) with `weights` (`[term][out]`).
#[inline(always)]
fn dot<S: Simd, const OUTS: usize>(
    simd: S,
    tables: &Tables,
    pairs: &[Line],
    weights: &[Line],
    mut store: impl FnMut(usize, usize, usize, S::V),
) {
    let per_line = Line::WORDS / S::LANES;
    let (p, inverse) = (simd.splat_word(u64::from(tables.prime)), simd.splat_word(u64::from(tables.inverse)));
    let high = simd.splat_word(u64::from(tables.prime) << 32);
    let twice_high = simd.splat_word(u64::from(tables.prime) << 33);
    let offset = simd.splat(tables.prime);
    let (pairs, weights) = (simd.view(pairs), simd.view(weights));
    for v in 0..per_line {
        let mut sums = [[simd.splat_word(0); 2]; OUTS];
        let chunks =
            pairs.chunks(LAZY_TERMS * 2 * per_line).zip(weights.chunks(LAZY_TERMS * OUTS * per_line));
        for (pairs, weights) in chunks {
            let terms = pairs.chunks_exact(2 * per_line).zip(weights.chunks_exact(OUTS * per_line));
            for (pair, weights) in terms {
                let (a, b) = (simd.spread(pair[v]), simd.spread(pair[per_line + v]));
                for (out, [sum_a, sum_b]) in sums.iter_mut().enumerate() {
                    let w = simd.spread(weights[out * per_line + v]);
                    *sum_a = simd.add_words(*sum_a, simd.mul_words(a, w));
                    *sum_b = simd.add_words(*sum_b, simd.mul_words(b, w));
                }
            }
            for sum in sums.iter_mut().flatten() {
                *sum = simd.reduce_high(simd.reduce_high(*sum, twice_high), high);
            }
        }
        for (out, sums) in sums.into_iter().enumerate() {
            for (half, sum) in sums.into_iter().enumerate() {
                // The low halves of the sum and of m p agree, so that the difference of the high ones is
                // exact.
                let m = simd.mul_words(sum, inverse);
                let reduced = simd.join_high(simd.sub_words(sum, simd.mul_words(m, p)));
                store(out, half, v, simd.add(reduced, offset));
            }
        }
    }
}

#[inline(always)]
fn accumulate<S: Simd>(
    simd: S,
    tables: &[Arc<Tables>],
    lines: usize,
    panel: &RnsPanel,
    inputs: &[RnsPairs],
    first: usize,
    sums: &mut [[RnsSum; 2]],
) {
    let RnsPanel { outs, terms, .. } = *panel;
    let per_line = Line::WORDS / S::LANES;
    for (at, weights) in panel.lines.chunks_exact(terms * outs).enumerate() {
        let tables = &tables[at / lines];
        for (input, sums) in inputs.iter().zip(sums.chunks_exact_mut(outs)) {
            let pairs = &input.lines[2 * (at * input.count + first)..][..2 * terms];
            let store = |out: usize, half: usize, v: usize, value: S::V| {
                simd.view_mut(&mut sums[out][half].0)[at * per_line + v] = value;
            };
            if outs == PANEL_OUTS {
                dot::<S, PANEL_OUTS>(simd, tables, pairs, weights, store);
            } else {
                dot::<S, 1>(simd, tables, pairs, weights, store);
            }
        }
    }
}

multiversion! {
    fn run_add_small(prime: u32, values: &[i8], plane: &mut [Line]) = add_small;
    fn run_negate(prime: u32, plane: &mut [Line]) = negate;
    fn run_add_scaled(scale: &Scale, values: &[u64], plane: &mut [Line]) = add_scaled;
    fn run_switch(limbs: &[Limb], lines: &[Line], bits: u32, out: &mut [u64]) = switch;
    fn run_prepare_weights(tables: &Tables, values: &[i32], plane: &mut [Line]) = prepare_weights;
    fn run_transform(tables: &Tables, plane: &mut [Line]) = transform;
    fn run_add_product(tables: &Tables, x: &[Line], s: &[Line], sum: &mut [Line]) = add_product;
    fn run_backward(tables: &Tables, plane: &mut [Line]) = backward;
    fn run_accumulate(
        tables: &[Arc<Tables>], lines: usize, panel: &RnsPanel, inputs: &[RnsPairs], first: usize, sums: &mut [[RnsSum; 2]]
    ) = accumulate;
}

#[cfg(test)]
mod tests;
