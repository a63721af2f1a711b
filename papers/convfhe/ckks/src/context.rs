//! Tables of a parameter set, and arithmetic on polynomials: transforms, changes of basis, divisions, and the
//! products of key switching.
//!
//! Hybrid key switching (Han and Ki, CT-RSA 2020): the primes of Q are cut into *groups*, whose products are at most
//! about the product P of k special primes. A polynomial has one digit a group, its residues modulo the group's
//! primes, which is extended to all primes of QP. The key of group j is an encryption of s'·P·e_j, where e_j is 1
//! modulo the group's primes and 0 modulo the others. The sum of digits times keys is an encryption of P times the
//! polynomial times s', and is divided by P. Which k a key has is its own choice: few for keys of low levels.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::modular::basis::{self, Fraction};
use jaguar_ring::modular::slices::{self, Sources};
use jaguar_ring::modular::{Factor, Modulus, Ntt};
use rayon::prelude::*;

use crate::encoder::Encoder;
use crate::poly::{Coefficients, Form, Poly, Pool, Values};
use crate::spec::{KeyKind, KeySpec};
use crate::{Error, Parameters};

/// Words of a limb whose basis is extended together: those of all sources stay in the first cache.
const CHUNK: usize = 1024;

/// How much larger than P a group's product may be, in bits.
const SLACK_BITS: f64 = 0.5;
/// Most primes of a group: sums of their products are reduced once.
const MOST_GROUP: usize = 14;

/// The ring of a parameter set with its tables, the memory that its polynomials lie in, and the threads that compute.
/// To be shared in an [`Arc`].
pub struct Context {
    params: Parameters,
    kernel: Kernel,
    pub(crate) encoder: Encoder,
    /// By prime: those of Q, then those of P.
    ntts: Vec<Ntt>,
    pool: Arc<Pool>,
    threads: Option<rayon::ThreadPool>,
    /// By k less one.
    gadgets: Vec<Gadget>,
    /// By level: division by its modulus.
    rescales: Vec<Division>,
    /// From the primes of level 0.
    lift: Extension,
    /// By prime: what X^(N/2) is in the first half of the values. In the second half it is the negative.
    units: Vec<u64>,
    zeros: Vec<u64>,
    identity: Sources,
    moves: Mutex<HashMap<usize, Arc<Sources>>>,
}

/// From some primes to all others.
pub(crate) struct Extension {
    /// Which primes.
    sources: Vec<usize>,
    /// By source: the inverse of the product of the others.
    inverses: Vec<Factor>,
    fractions: Vec<Fraction>,
    /// By prime: the weights of the sources and of the quotient.
    weights: Vec<Vec<u64>>,
}

/// Division by the product of some primes.
pub(crate) struct Division {
    extension: Extension,
    /// By prime: the inverse of the product; 0 for those of the product.
    inverses: Vec<Factor>,
}

/// How key switching with k special primes goes.
struct Gadget {
    groups: Vec<Group>,
    down: Division,
    /// By prime of Q: P.
    special: Vec<Factor>,
}

struct Group {
    range: Range<usize>,
    /// By how many of the group's primes there are at a level, less one.
    extensions: Vec<Extension>,
}

/// The digits of a polynomial, ready for products with keys.
pub(crate) struct Decomposed<'a> {
    original: &'a Poly<Values>,
    special: usize,
    /// Which primes each digit is of, and its residues modulo the others.
    digits: Vec<(Range<usize>, Poly<Values>)>,
}

impl Decomposed<'_> {
    pub(crate) fn limb(&self, digit: usize, i: usize) -> &[u64] {
        let (range, rest) = &self.digits[digit];
        if range.contains(&i) {
            self.original.limb(i)
        } else {
            rest.limb(if i < range.start { i } else { i - range.len() })
        }
    }
}

/// A key that takes products with one secret to products with another: by digit, an encryption `(a, b)`, `b + a·s`
/// being the digit's part of the other secret plus noise.
pub struct SwitchingKey {
    pub(crate) spec: KeySpec,
    pub(crate) seed: [u8; 32],
    pub(crate) digits: Vec<[Poly<Values>; 2]>,
}

impl SwitchingKey {
    /// What it is for.
    pub fn spec(&self) -> &KeySpec {
        &self.spec
    }

    /// How many primes of Q it has residues for.
    pub(crate) fn ordinary(&self) -> usize {
        self.digits[0][0].ordinary()
    }

    /// How many special primes it has.
    pub(crate) fn special(&self) -> usize {
        self.digits[0][0].special()
    }
}

/// Tables of an [`Extension`]: they need arithmetic modulo all primes.
fn extension(moduli: &[Modulus], sources: Vec<usize>) -> Extension {
    let product = |m: &Modulus, without: Option<usize>| {
        let others = sources.iter().filter(|&&s| Some(s) != without);
        others.fold(1, |product, &s| m.mul(product, m.reduce(moduli[s].value())))
    };
    let inverse = |&s: &usize| {
        let m = &moduli[s];
        m.factor(m.inverse(product(m, Some(s))).expect("different primes"))
    };
    let weights = |m: &Modulus| -> Vec<u64> {
        let terms = sources.iter().map(|&s| product(m, Some(s)));
        terms.chain([m.negate(product(m, None))]).collect()
    };
    Extension {
        inverses: sources.iter().map(inverse).collect(),
        fractions: sources.iter().map(|&s| Fraction::new(&moduli[s])).collect(),
        weights: moduli.iter().map(weights).collect(),
        sources,
    }
}

fn division(moduli: &[Modulus], sources: Vec<usize>) -> Division {
    let inverse = |m: &Modulus| {
        let product = sources.iter().fold(1, |product, &s| m.mul(product, m.reduce(moduli[s].value())));
        m.factor(m.inverse(product).unwrap_or(0))
    };
    Division { inverses: moduli.iter().map(inverse).collect(), extension: extension(moduli, sources) }
}

/// Cuts primes into groups of at most `limit` bits.
fn groups(primes: &[u64], limit: f64) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut bits = 0.0;
    for (i, &prime) in primes.iter().enumerate() {
        let own = (prime as f64).log2();
        match groups.last_mut() {
            Some(last) if bits + own <= limit && last.len() < MOST_GROUP => {
                last.end = i + 1;
                bits += own;
            }
            Some(_) | None => {
                groups.push(i..i + 1);
                bits = own;
            }
        }
    }
    groups
}

impl Context {
    /// The tables of a set. It computes with the instructions that `cpu` has, on so many threads: with one, on the
    /// caller's.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn new(cpu: Cpu, params: Parameters, threads: usize) -> Result<Arc<Self>, Error> {
        let kernel = Kernel::of(cpu);
        let n = params.n();
        let all: Vec<u64> = params.primes().iter().chain(params.special()).copied().collect();
        let threads = if threads <= 1 {
            None
        } else {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            Some(pool.map_err(|source| Error::Threads { count: threads, source })?)
        };
        let ntt = |&p: &u64| Ntt::new(n, p).expect("checked primes have roots of unity").on(kernel);
        let ntts: Vec<Ntt> = match &threads {
            Some(pool) => pool.install(|| all.par_iter().map(ntt).collect()),
            None => all.iter().map(ntt).collect(),
        };
        let moduli: Vec<Modulus> = ntts.iter().map(|ntt| *ntt.modulus()).collect();
        let count = params.primes().len();
        let gadget = |k: usize| -> Gadget {
            let bits: f64 = params.special()[..k].iter().map(|&p| (p as f64).log2()).sum();
            let group = |range: Range<usize>| Group {
                extensions: (1..=range.len())
                    .map(|len| extension(&moduli, (range.start..range.start + len).collect()))
                    .collect(),
                range,
            };
            let special = |m: &Modulus| {
                let product = params.special()[..k].iter().fold(1, |product, &p| m.mul(product, m.reduce(p)));
                m.factor(product)
            };
            Gadget {
                groups: groups(params.primes(), bits + SLACK_BITS).into_iter().map(group).collect(),
                down: division(&moduli, (count..count + k).collect()),
                special: moduli[..count].iter().map(special).collect(),
            }
        };
        let unit = |ntt: &Ntt| {
            let mut monomial = vec![0; n];
            monomial[n / 2] = 1;
            ntt.forward(&mut monomial);
            monomial[0]
        };
        Ok(Arc::new(Self {
            gadgets: (1..=params.special().len()).map(gadget).collect(),
            rescales: (0..=params.top())
                .map(|level| division(&moduli, params.level_primes(level).collect()))
                .collect(),
            lift: extension(&moduli, params.level_primes(0).collect()),
            units: ntts.iter().map(unit).collect(),
            zeros: vec![0; n],
            identity: Sources::new((0..n as u32).collect()),
            moves: Mutex::default(),
            pool: Arc::new(Pool::new(n)),
            encoder: Encoder::new(n / 2),
            params,
            kernel,
            ntts,
            threads,
        }))
    }

    /// The parameter set.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// The kernel that it computes with.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The transform modulo prime i of Q, or of P behind those.
    pub(crate) fn ntt(&self, prime: usize) -> &Ntt {
        &self.ntts[prime]
    }

    pub(crate) fn modulus(&self, prime: usize) -> &Modulus {
        self.ntts[prime].modulus()
    }

    pub(crate) fn identity(&self) -> &Sources {
        &self.identity
    }

    /// A limb of zeros.
    pub(crate) fn zeros(&self) -> &[u64] {
        &self.zeros
    }

    /// What X^(N/2) is in the first half of the values modulo a prime.
    pub(crate) fn unit(&self, prime: usize) -> u64 {
        self.units[prime]
    }

    /// Which prime limb i of a polynomial belongs to.
    pub(crate) fn prime(&self, ordinary: usize, i: usize) -> usize {
        if i < ordinary { i } else { self.params.primes().len() + i - ordinary }
    }

    /// Calls `work` for each item, on all threads.
    pub(crate) fn each<T: Send>(&self, items: impl Iterator<Item = T>, work: impl Fn(T) + Send + Sync) {
        match &self.threads {
            None => items.for_each(work),
            Some(pool) => {
                let items: Vec<T> = items.collect();
                pool.install(|| items.into_par_iter().with_max_len(1).for_each(work));
            }
        }
    }

    /// Does work of many operations on the threads themselves, so that none waits for each operation from outside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.threads {
            None => work(),
            Some(pool) => pool.install(work),
        }
    }

    /// How many threads compute.
    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// How many limbs are not in use: the most that were in use, less those that are.
    #[cfg(test)]
    pub(crate) fn idle_limbs(&self) -> usize {
        self.pool.idle()
    }

    /// Two pieces of work, at the same time if there are threads for it.
    pub(crate) fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        match &self.threads {
            None => (first(), second()),
            Some(pool) => pool.install(|| rayon::join(first, second)),
        }
    }

    /// A polynomial of any residues.
    pub(crate) fn unset<F: Form>(&self, ordinary: usize, special: usize) -> Poly<F> {
        Poly::unset(&self.pool, ordinary, special)
    }

    /// A polynomial made limb by limb: `write` gets the prime's number and the limb's place, and the words to fill.
    pub(crate) fn make<F: Form>(
        &self,
        ordinary: usize,
        special: usize,
        write: impl Fn(usize, usize, &mut [u64]) + Send + Sync,
    ) -> Poly<F> {
        let mut poly = self.unset(ordinary, special);
        self.each(poly.limbs_mut().enumerate(), |(i, limb)| write(self.prime(ordinary, i), i, limb));
        poly
    }

    /// Changes a polynomial limb by limb.
    pub(crate) fn change<F: Form>(
        &self,
        poly: &mut Poly<F>,
        change: impl Fn(usize, usize, &mut [u64]) + Send + Sync,
    ) {
        let ordinary = poly.ordinary();
        self.each(poly.limbs_mut().enumerate(), |(i, limb)| change(self.prime(ordinary, i), i, limb));
    }

    /// Changes both halves of a ciphertext in the same way.
    pub(crate) fn both(&self, [a, b]: &mut [Poly<Values>; 2], change: impl Fn(&mut Poly<Values>) + Sync) {
        self.join(|| change(a), || change(b));
    }

    /// The sum or the difference, as `combine` makes it in its first operand, modulo so many of the first primes.
    pub(crate) fn combined(
        &self,
        limbs: usize,
        [x, y]: [&Poly<Values>; 2],
        combine: impl Fn(Kernel, &Modulus, &mut [u64], &[u64]) + Send + Sync,
    ) -> Poly<Values> {
        self.make(limbs, 0, |prime, i, limb| {
            limb.copy_from_slice(x.limb(i));
            combine(self.kernel, self.modulus(prime), limb, y.limb(i));
        })
    }

    /// Coefficients to values.
    pub fn to_values(&self, mut poly: Poly<Coefficients>) -> Poly<Values> {
        self.change(&mut poly, |prime, _, limb| self.ntts[prime].forward(limb));
        poly.into_form()
    }

    /// Values to coefficients.
    pub fn to_coefficients(&self, mut poly: Poly<Values>) -> Poly<Coefficients> {
        self.change(&mut poly, |prime, _, limb| self.ntts[prime].backward(limb));
        poly.into_form()
    }

    /// `x += y`, for the limbs that x has.
    pub(crate) fn add(&self, x: &mut Poly<Values>, y: &Poly<Values>) {
        self.change(x, |prime, i, limb| slices::add(self.kernel, self.modulus(prime), limb, y.limb(i)));
    }

    /// Where values come from under X → X^element.
    ///
    /// # Panics
    /// If `element` is even or not below 2N.
    pub(crate) fn sources(&self, element: usize) -> Arc<Sources> {
        let n = self.params.n();
        assert!(element % 2 == 1 && element < 2 * n, "an odd element below {}, not {element}", 2 * n);
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = moves.entry(element).or_insert_with(|| {
            let ntt = &self.ntts[0];
            let source = |k: usize| ntt.index(element * ntt.exponent(k) % (2 * n)) as u32;
            Arc::new(Sources::new((0..n).map(source).collect()))
        });
        Arc::clone(entry)
    }

    /// The automorphism X → X^element: values change their places.
    ///
    /// # Panics
    /// If `element` is even or not below 2N.
    pub fn automorphism(&self, poly: &Poly<Values>, element: usize) -> Poly<Values> {
        let sources = self.sources(element);
        self.make(poly.ordinary(), poly.special(), |_, i, limb| {
            slices::permute(self.kernel, &sources, poly.limb(i), limb);
        })
    }

    /// The residues modulo the targets of numbers whose residues modulo the sources are given, as coefficients. What
    /// is in the sources is overwritten. The numbers are those of least absolute value.
    pub(crate) fn extend(
        &self,
        extension: &Extension,
        sources: Vec<&mut [u64]>,
        targets: Vec<(usize, &mut [u64])>,
    ) {
        let n = self.params.n();
        let mut sources: Vec<_> = sources.into_iter().map(|words| words.chunks_mut(CHUNK)).collect();
        let mut targets: Vec<_> =
            targets.into_iter().map(|(prime, words)| (prime, words.chunks_mut(CHUNK))).collect();
        let pieces = (0..n.div_ceil(CHUNK)).map(|_| {
            let sources: Vec<_> = sources.iter_mut().filter_map(Iterator::next).collect();
            let words =
                targets.iter_mut().filter_map(|(prime, words)| words.next().map(|words| (*prime, words)));
            let targets: Vec<_> = words.collect();
            (sources, targets)
        });
        self.each(pieces, |(mut sources, targets)| {
            for ((words, &prime), &inverse) in
                sources.iter_mut().zip(&extension.sources).zip(&extension.inverses)
            {
                slices::multiply_factor(self.kernel, self.modulus(prime), words, inverse);
            }
            let mut terms: Vec<&[u64]> = sources.iter().map(|words| &**words).collect();
            let mut quotients = [0; CHUNK];
            let quotients = &mut quotients[..terms[0].len()];
            basis::quotients(self.kernel, &terms, &extension.fractions, quotients);
            terms.push(quotients);
            for (prime, out) in targets {
                basis::combine(self.kernel, self.modulus(prime), &terms, &extension.weights[prime], out);
            }
        });
    }

    /// Divides by the product of some primes, whose limbs are those from `keep` on, and rounds to the nearest; those
    /// limbs are gone then.
    fn divide(&self, division: &Division, poly: &mut Poly<Values>, keep: usize) {
        let mut dropped = poly.split_off(keep);
        let primes = &division.extension.sources;
        self.each(dropped.limbs_mut().zip(primes), |(limb, &prime)| self.ntts[prime].backward(limb));
        let mut rest: Poly<Values> = self.unset(keep, 0);
        let targets = rest.limbs_mut().enumerate().collect();
        self.extend(&division.extension, dropped.limbs_mut().collect(), targets);
        self.each(poly.limbs_mut().zip(rest.limbs_mut()).enumerate(), |(i, (limb, rest))| {
            self.ntts[i].forward(rest);
            slices::sub_multiply_factor(self.kernel, self.modulus(i), limb, rest, division.inverses[i]);
        });
    }

    /// Divides by the modulus of a level, which is not 0, and rounds: the result has the primes of the level below.
    pub(crate) fn rescale(&self, poly: &mut Poly<Values>, level: usize) {
        self.divide(&self.rescales[level], poly, self.params.limbs(level - 1));
    }

    /// Divides by the special primes that the polynomial has, and rounds (ModDown).
    pub(crate) fn mod_down(&self, poly: &mut Poly<Values>) {
        self.divide(&self.gadgets[poly.special() - 1].down, poly, poly.ordinary());
    }

    /// P times a polynomial, modulo its primes of Q, for k special primes.
    pub(crate) fn times_special(&self, poly: &Poly<Values>, k: usize) -> Poly<Values> {
        let factors = &self.gadgets[k - 1].special;
        self.make(poly.ordinary(), 0, |prime, i, limb| {
            let m = self.modulus(prime);
            slices::affine(self.kernel, m, limb, poly.limb(i), m.bits(), factors[prime], 0);
        })
    }

    /// P modulo prime i of Q, for k special primes.
    pub(crate) fn special_modulo(&self, k: usize, prime: usize) -> Factor {
        self.gadgets[k - 1].special[prime]
    }

    /// Which primes of Q each digit is of, for so many primes and k special ones.
    pub(crate) fn digits(&self, ordinary: usize, k: usize) -> impl Iterator<Item = Range<usize>> {
        let groups = self.gadgets[k - 1].groups.iter().map(|group| group.range.clone());
        groups
            .filter(move |range| range.start < ordinary)
            .map(move |range| range.start..range.end.min(ordinary))
    }

    /// Cuts a polynomial into digits, for keys of k special primes.
    pub(crate) fn decompose<'a>(&self, poly: &'a Poly<Values>, k: usize) -> Decomposed<'a> {
        let count = poly.ordinary();
        let mut coefficients: Poly<Coefficients> = self.make(count, 0, |prime, i, limb| {
            limb.copy_from_slice(poly.limb(i));
            self.ntts[prime].backward(limb);
        });
        let mut own = coefficients.limbs_mut();
        let mut digits: Vec<_> =
            self.digits(count, k).map(|range| (range.clone(), self.unset(count - range.len(), k))).collect();
        let parts = self.gadgets[k - 1].groups.iter().zip(&mut digits).map(|(group, (range, rest))| {
            let sources: Vec<&mut [u64]> = own.by_ref().take(range.len()).collect();
            (&group.extensions[range.len() - 1], sources, &*range, rest)
        });
        self.each(parts, |(extension, sources, range, rest)| {
            let place = |i: usize| if i < range.start { i } else { i + range.len() };
            let primes = |i: usize| self.prime(count, place(i));
            let targets = rest.limbs_mut().enumerate().map(|(i, limb)| (primes(i), limb)).collect();
            self.extend(extension, sources, targets);
            self.each(rest.limbs_mut().enumerate(), |(i, limb)| self.ntts[primes(i)].forward(limb));
        });
        Decomposed { original: poly, special: k, digits }
    }

    /// The change of basis of the first digit alone, without transforms: to measure it.
    pub(crate) fn extend_first(&self, k: usize, poly: &Poly<Values>) {
        let group = &self.gadgets[k - 1].groups[0];
        let len = group.range.len();
        let mut sources: Poly<Coefficients> = poly.first(len, 0).into_form();
        let count = self.params.primes().len();
        let mut rest: Poly<Coefficients> = self.unset(count - len, k);
        let targets = rest.limbs_mut().enumerate().map(|(i, limb)| (len + i, limb)).collect();
        self.extend(&group.extensions[len - 1], sources.limbs_mut().collect(), targets);
    }

    /// The centred residues modulo the primes of level 0, times a factor, modulo all primes of Q and P. The special
    /// limbs are made if they are asked for.
    pub(crate) fn lift(&self, poly: &Poly<Values>, factor: u64, special: bool) -> Poly<Values> {
        let first = self.params.limbs(0);
        let mut sources: Poly<Coefficients> = self.make(first, 0, |prime, i, limb| {
            limb.copy_from_slice(poly.limb(i));
            self.ntts[prime].backward(limb);
        });
        let count = self.params.primes().len();
        let special = if special { self.params.special().len() } else { 0 };
        let mut lifted: Poly<Values> = self.unset(count, special);
        let mut limbs = lifted.limbs_mut();
        for (i, limb) in limbs.by_ref().take(first).enumerate() {
            limb.copy_from_slice(sources.limb(i));
        }
        let targets = limbs.enumerate().map(|(i, limb)| (self.prime(count, first + i), limb)).collect();
        self.extend(&self.lift, sources.limbs_mut().collect(), targets);
        self.change(&mut lifted, |prime, _, limb| {
            if factor != 1 {
                let m = self.modulus(prime);
                slices::multiply_factor(self.kernel, m, limb, m.factor(factor));
            }
            self.ntts[prime].forward(limb);
        });
        lifted
    }

    /// Makes a key for an automorphism ready for [`products`](Self::products): its residues are moved back. So digits, of
    /// which there are several, are read in their order, and only the sums are moved.
    pub(crate) fn turn_back(&self, key: &mut SwitchingKey) {
        if let KeyKind::Galois(element) = key.spec.kind {
            // The group of odd numbers modulo 2N has exponent N/2.
            let order = 2 * self.params.n();
            let inverse = (1..self.params.n() / 2).fold(1, |power, _| power * element % order);
            for half in key.digits.iter_mut().flatten() {
                *half = self.automorphism(half, inverse);
            }
        }
    }

    /// Digits times a key, modulo QP, moved by an automorphism; `plus` is added to the second half, moved too. If
    /// `plus` has no special limbs, they are zero.
    pub(crate) fn products(
        &self,
        digits: &Decomposed<'_>,
        key: &SwitchingKey,
        sources: Option<&Sources>,
        plus: Option<&Poly<Values>>,
    ) -> [Poly<Values>; 2] {
        let count = digits.original.ordinary();
        let limbs = |i: usize| (0..digits.digits.len()).map(|digit| digits.limb(digit, i)).collect();
        self.products_of(count, digits.special, limbs, key, sources, plus)
    }

    /// A polynomial of all primes times the first digit of a key.
    pub(crate) fn product(&self, poly: &Poly<Values>, key: &SwitchingKey) -> [Poly<Values>; 2] {
        self.products_of(poly.ordinary(), poly.special(), |i| vec![poly.limb(i)], key, None, None)
    }

    fn products_of<'a>(
        &self,
        ordinary: usize,
        special: usize,
        digits: impl Fn(usize) -> Vec<&'a [u64]> + Send + Sync,
        key: &SwitchingKey,
        sources: Option<&Sources>,
        plus: Option<&Poly<Values>>,
    ) -> [Poly<Values>; 2] {
        let mut sums = [self.unset(ordinary, special), self.unset(ordinary, special)];
        let [a, b] = &mut sums;
        // A key may have more primes of Q.
        let above = key.ordinary() - ordinary;
        self.each(a.limbs_mut().zip(b.limbs_mut()).enumerate(), |(i, (a, b))| {
            let digits = digits(i);
            let at = if i < ordinary { i } else { i + above };
            let half = |half: usize| -> Vec<&[u64]> {
                key.digits[..digits.len()].iter().map(|digit| digit[half].limb(at)).collect()
            };
            let plus = plus.filter(|plus| i < plus.len()).map_or(&self.zeros[..], |plus| plus.limb(i));
            let (keys, m) = ([half(0), half(1)], self.modulus(self.prime(ordinary, i)));
            let keys = [&keys[0][..], &keys[1][..]];
            match sources {
                None => {
                    slices::moved_products(self.kernel, m, &self.identity, &digits, keys, plus, 0, [a, b])
                }
                Some(sources) => {
                    let mut scratch: Poly<Values> = self.unset(2, 0);
                    let [x, y] = scratch.pair_mut();
                    slices::moved_products(self.kernel, m, &self.identity, &digits, keys, plus, 0, [x, y]);
                    slices::permute(self.kernel, sources, x, a);
                    slices::permute(self.kernel, sources, y, b);
                }
            }
        });
        sums
    }
}
