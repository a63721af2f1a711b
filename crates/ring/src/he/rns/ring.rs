//! The ring and its elements.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::Kernel;
use crate::cpu::Cpu;
use crate::cpu::secret::declassify;
use crate::modular::slices::{self, Sources};
use crate::modular::{Factor, Modulus, Ntt};
use crate::prg::Prg;
use crate::simd::wipe_on_drop;
use zeroize::Zeroizing;

use crate::he::params::RnsParameters;

/// How a polynomial is written down: [`Coefficients`] or [`Values`].
pub trait Representation: sealed::Sealed {}

/// As N coefficients.
#[derive(Clone, Copy, Debug)]
pub enum Coefficients {}

/// As N values at roots of unity (transformed), where products are pointwise.
#[derive(Clone, Copy, Debug)]
pub enum Values {}

impl Representation for Coefficients {}
impl Representation for Values {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Coefficients {}
    impl Sealed for super::Values {}
}

/// A polynomial modulo Q, as residues below each prime: `[limb][N]`. Zeroised on drop, for it may be secret; a copy is made
/// by name ([`duplicate`](Self::duplicate)).
pub struct Poly<R: Representation> {
    residues: Residues,
    form: PhantomData<R>,
}

/// Words that are wiped when they are dropped, vector by vector.
pub(super) struct Residues(pub Vec<u64>);

wipe_on_drop!(Residues.0);

impl Deref for Residues {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Residues {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

/// A number modulo Q by which polynomials are multiplied.
pub struct Scalar(Vec<Factor>);

impl<R: Representation> Poly<R> {
    fn new(residues: Residues) -> Self {
        Self { residues, form: PhantomData }
    }

    /// The residues, `[limb][N]`.
    pub fn residues(&self) -> &[u64] {
        &self.residues
    }

    /// A copy, made on purpose: copies are large.
    pub fn duplicate(&self) -> Self {
        Self::new(Residues(self.residues.to_vec()))
    }
}

/// `Z_Q[X]/(X^N + 1)`, Q the product of the first primes of a parameter set. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Ring {
    kernel: Kernel,
    limbs: usize,
    tables: Arc<Tables>,
}

struct Tables {
    params: RnsParameters,
    /// One transform for each prime.
    ntts: Vec<Ntt>,
    /// By limb: `floor(2^128 / p)`.
    fractions: Vec<u128>,
    /// By number of limbs less one, then by limb.
    levels: Vec<Vec<Level>>,
}

/// One limb's constants in the ring of a number of limbs.
#[derive(Clone, Copy)]
struct Level {
    /// `(Q / p)^-1` modulo p.
    cofactor_inverse: Factor,
    /// The inverse of the ring's last prime modulo p; of itself: 0.
    last_inverse: Factor,
}

impl Ring {
    /// The ring of all primes of `params`, its tables computed. It computes with the instructions that `cpu` has.
    pub fn new(cpu: Cpu, params: RnsParameters) -> Self {
        let n = params.ring_dim();
        let kernel = Kernel::of(cpu);
        let ntt = |&p: &u64| Ntt::new(n, p).expect("checked primes have roots of unity").on(kernel);
        let ntts: Vec<Ntt> = params.primes().iter().map(ntt).collect();
        let level = |limbs: usize| -> Vec<Level> {
            let constants = |i: usize| {
                let m = ntts[i].modulus();
                let others = (0..limbs).filter(|&j| j != i).map(|j| params.primes()[j]);
                let cofactor = others.fold(1, |product, p| m.mul(product, m.reduce(p)));
                let inverse = |x: u64| m.inverse(x).unwrap_or(0);
                Level {
                    cofactor_inverse: m.factor(inverse(cofactor)),
                    last_inverse: m.factor(inverse(params.primes()[limbs - 1])),
                }
            };
            (0..limbs).map(constants).collect()
        };
        let levels = (1..=ntts.len()).map(level).collect();
        // 2^128 / p is floor((2^128 - 1) / p), for p is odd and above 1.
        let fractions = params.primes().iter().map(|&p| u128::MAX / u128::from(p)).collect();
        Self { kernel, limbs: ntts.len(), tables: Arc::new(Tables { params, ntts, fractions, levels }) }
    }

    /// The kernel that it computes with.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// N: how many coefficients a polynomial has.
    pub fn n(&self) -> usize {
        self.tables.params.ring_dim()
    }

    /// How many primes Q has.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// The primes whose product is the modulus.
    pub fn primes(&self) -> &[u64] {
        &self.tables.params.primes()[..self.limbs]
    }

    /// The ring without the last prime; `None` if there is no other.
    pub fn smaller(&self) -> Option<Self> {
        (self.limbs > 1).then(|| Self {
            kernel: self.kernel,
            limbs: self.limbs - 1,
            tables: Arc::clone(&self.tables),
        })
    }

    /// Q modulo `modulus`.
    pub(super) fn modulus_mod(&self, modulus: &Modulus) -> u64 {
        self.primes().iter().fold(modulus.reduce(1), |product, &p| modulus.mul(product, modulus.reduce(p)))
    }

    fn ntts(&self) -> &[Ntt] {
        &self.tables.ntts[..self.limbs]
    }

    /// The transform of one limb.
    pub(super) fn ntt(&self, limb: usize) -> &Ntt {
        &self.ntts()[limb]
    }

    /// The moduli, by limb.
    pub(crate) fn moduli(&self) -> impl ExactSizeIterator<Item = &Modulus> {
        self.ntts().iter().map(Ntt::modulus)
    }

    /// `(Q/p)^-1` modulo p and `floor(2^128 / p)`, by limb.
    pub(super) fn reconstruction(&self) -> impl Iterator<Item = (Factor, u128)> {
        let level = &self.tables.levels[self.limbs - 1];
        level.iter().map(|limb| limb.cofactor_inverse).zip(self.tables.fractions.iter().copied())
    }

    /// How many words a polynomial has: N for each prime.
    pub fn words(&self) -> usize {
        self.limbs * self.n()
    }

    pub(super) fn check<R: Representation>(&self, poly: &Poly<R>) {
        assert_eq!(poly.residues.len(), self.words(), "a polynomial of another ring");
    }

    /// The limbs of a polynomial to be changed, each with its modulus.
    pub(super) fn limbs_mut<'a, R: Representation>(
        &'a self,
        poly: &'a mut Poly<R>,
    ) -> impl Iterator<Item = (&'a Modulus, &'a mut [u64])> {
        self.check(poly);
        self.moduli().zip(poly.residues.chunks_exact_mut(self.n()))
    }

    /// The limbs of a polynomial of this ring, or of one with more limbs: it stands for itself modulo this Q.
    pub(super) fn limbs_of<'a, R: Representation>(
        &self,
        poly: &'a Poly<R>,
    ) -> impl Iterator<Item = &'a [u64]> {
        assert!(poly.residues.len() >= self.words(), "a polynomial of a ring with fewer primes");
        poly.residues.chunks_exact(self.n()).take(self.limbs)
    }

    /// One limb of a polynomial of this ring, or of one with more limbs.
    pub(super) fn limb_of<'a, R: Representation>(&self, poly: &'a Poly<R>, limb: usize) -> &'a [u64] {
        &poly.residues[limb * self.n()..(limb + 1) * self.n()]
    }

    /// The polynomial that is 0.
    pub fn zero<R: Representation>(&self) -> Poly<R> {
        Poly::new(Residues(vec![0; self.words()]))
    }

    /// A uniform polynomial out of a stream, public or secret: the same on every machine. How many words of the stream were refused is
    /// all that its time tells.
    pub fn uniform<R: Representation>(&self, prg: &mut Prg) -> Poly<R> {
        let mut poly = self.zero();
        let mut buffer = Zeroizing::new([0u64; 256]);
        for (modulus, limb) in self.limbs_mut(&mut poly) {
            let mut filled = 0;
            while filled < limb.len() {
                let wanted = (limb.len() - filled).min(buffer.len());
                prg.fill_u64(&mut buffer[..wanted]);
                for word in &buffer[..wanted] {
                    let candidate = word >> (u64::BITS - modulus.bits());
                    if candidate < modulus.value() {
                        limb[filled] = candidate;
                        filled += 1;
                    }
                }
                // How many were refused tells nothing of the others: they are independent.
                declassify(std::slice::from_mut(&mut filled));
            }
        }
        poly
    }

    /// A polynomial from its residues, `[limb][N]`, as a peer sends them: a word that is not below its prime stands for what
    /// it is modulo that prime.
    ///
    /// # Panics
    /// If there are not N words for each limb.
    pub fn from_residues<R: Representation>(&self, words: &[u64]) -> Poly<R> {
        assert_eq!(words.len(), self.words(), "residues of a polynomial");
        let mut poly = self.zero();
        for ((modulus, limb), words) in self.limbs_mut(&mut poly).zip(words.chunks_exact(self.n())) {
            slices::reduce(self.kernel, modulus, limb, words);
        }
        poly
    }

    /// A polynomial with these coefficients.
    ///
    /// # Panics
    /// If there are not N.
    pub fn from_signed<I: Copy + Into<i64>>(&self, coefficients: &[I]) -> Poly<Coefficients> {
        assert_eq!(coefficients.len(), self.n(), "coefficients of a polynomial");
        let word = |&c: &I| -> u64 { Into::<i64>::into(c) as u64 };
        let words = coefficients.iter().map(word).collect();
        let (words, mut poly) = (Residues(words), self.zero());
        for (modulus, limb) in self.limbs_mut(&mut poly) {
            slices::signed_multiples(self.kernel, modulus, limb, &words, modulus.factor(1));
        }
        poly
    }

    /// 2^-`log2` modulo Q: what makes up for sums over so many automorphisms.
    pub fn inverse_power(&self, log2: u32) -> Scalar {
        let inverse = |m: &Modulus| m.factor(m.power_vt(m.value() / 2 + 1, log2.into()));
        Scalar(self.moduli().map(inverse).collect())
    }

    /// The values of a polynomial that has these coefficients, times `scalar`, and zeros behind them.
    ///
    /// # Panics
    /// If their number is no power of two from 16 to N, or `out` and `scalar` are of another ring.
    pub fn short_values_into(&self, coefficients: &[i64], scalar: &Scalar, out: &mut Poly<Values>) {
        assert_eq!(scalar.0.len(), self.limbs, "a number of this ring");
        let mut residues = Residues(vec![0; coefficients.len()]);
        let limbs = self.limbs_mut(out).zip(self.ntts()).zip(&scalar.0);
        for (((modulus, out), ntt), &factor) in limbs {
            let words = bytemuck::cast_slice(coefficients);
            slices::signed_multiples(self.kernel, modulus, &mut residues, words, factor);
            ntt.forward_short(&residues, out);
        }
    }

    /// Transforms.
    ///
    /// # Panics
    /// Here and in all that follows: if a polynomial is one of another ring.
    pub fn to_values(&self, mut poly: Poly<Coefficients>) -> Poly<Values> {
        self.check(&poly);
        let limbs = poly.residues.chunks_exact_mut(self.n());
        self.ntts().iter().zip(limbs).for_each(|(ntt, limb)| ntt.forward(limb));
        Poly::new(poly.residues)
    }

    /// The polynomial's coefficients of its values.
    pub fn to_coefficients(&self, mut poly: Poly<Values>) -> Poly<Coefficients> {
        self.check(&poly);
        let limbs = poly.residues.chunks_exact_mut(self.n());
        self.ntts().iter().zip(limbs).for_each(|(ntt, limb)| ntt.backward(limb));
        Poly::new(poly.residues)
    }

    /// `x += y`.
    pub fn add_assign<R: Representation>(&self, x: &mut Poly<R>, y: &Poly<R>) {
        self.check(y);
        for ((m, x), y) in self.limbs_mut(x).zip(self.limbs_of(y)) {
            slices::add(self.kernel, m, x, y);
        }
    }

    /// `x -= y`.
    pub fn sub_assign<R: Representation>(&self, x: &mut Poly<R>, y: &Poly<R>) {
        self.check(y);
        for ((m, x), y) in self.limbs_mut(x).zip(self.limbs_of(y)) {
            slices::sub(self.kernel, m, x, y);
        }
    }

    /// `x = -x`.
    pub fn negate<R: Representation>(&self, x: &mut Poly<R>) {
        for (m, x) in self.limbs_mut(x) {
            slices::negate(self.kernel, m, x);
        }
    }

    /// `x *= c`.
    pub fn multiply_scalar<R: Representation>(&self, x: &mut Poly<R>, c: i64) {
        for (m, x) in self.limbs_mut(x) {
            slices::multiply_factor(self.kernel, m, x, m.factor(m.reduce_signed(c)));
        }
    }

    /// `x *= y`. y may be one of a ring with more primes.
    pub(crate) fn multiply_assign(&self, x: &mut Poly<Values>, y: &Poly<Values>) {
        for ((m, x), y) in self.limbs_mut(x).zip(self.limbs_of(y)) {
            slices::multiply(self.kernel, m, x, y);
        }
    }

    /// `sum += x y`. y may be one of a ring with more primes.
    pub(crate) fn multiply_add(&self, sum: &mut Poly<Values>, x: &Poly<Values>, y: &Poly<Values>) {
        self.check(x);
        for (((m, sum), x), y) in self.limbs_mut(sum).zip(self.limbs_of(x)).zip(self.limbs_of(y)) {
            slices::multiply_add(self.kernel, m, sum, x, y);
        }
    }

    /// `round(x / p)` for the last prime p, in the ring without it: modulus switching (Brakerski and Vaikuntanathan, FOCS
    /// 2011). The rounding is to the nearest.
    ///
    /// # Panics
    /// Also if there is only one prime.
    pub fn drop_prime(&self, poly: &Poly<Coefficients>) -> Poly<Coefficients> {
        self.check(poly);
        let words = self.words() - self.n();
        let (rest, last) = poly.residues.split_at(words);
        let mut quotient = Residues(rest.to_vec());
        self.divide(&mut quotient, last);
        Poly::new(quotient)
    }

    /// The same in place: what is left is of the ring without the last prime. (Of its residues it has some.)
    pub(super) fn divide_by_last(&self, poly: &mut Poly<Coefficients>) {
        self.check(poly);
        let words = self.words() - self.n();
        let (rest, last) = poly.residues.split_at_mut(words);
        self.divide(rest, last);
    }

    /// `round(x / p)`, of the residues of x modulo the other primes and modulo p.
    fn divide(&self, rest: &mut [u64], last: &[u64]) {
        assert!(self.limbs > 1, "a ring of at least two primes");
        let level = &self.tables.levels[self.limbs - 1];
        let p = self.ntts()[self.limbs - 1].modulus();
        // x - centred(x mod p) is a multiple of p.
        for ((m, limb), level) in self.moduli().zip(rest.chunks_exact_mut(self.n())).zip(level) {
            slices::sub_centred(self.kernel, m, limb, last, p, level.last_inverse);
        }
    }

    /// The automorphism `X -> X^element`.
    ///
    /// # Panics
    /// If `element` is even or not below 2N.
    pub fn automorphism(&self, element: usize) -> Automorphism {
        let n = self.n();
        assert!(element % 2 == 1 && element < 2 * n, "an odd element below {}, not {element}", 2 * n);
        let ntt = &self.ntts()[0];
        let sources = (0..n).map(|k| ntt.index(element * ntt.exponent(k) % (2 * n)) as u32).collect();
        Automorphism { element, sources: Sources::new(sources) }
    }
}

/// An automorphism `X -> X^g` of a ring of one N, g odd.
#[derive(Clone, Debug)]
pub struct Automorphism {
    element: usize,
    /// Where each of the values comes from.
    sources: Sources,
}

impl Automorphism {
    /// g: it maps X to X^g.
    pub fn element(&self) -> usize {
        self.element
    }

    /// Where each of the values comes from.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Of a transformed polynomial: its values change their places.
    pub fn apply(&self, ring: &Ring, poly: &Poly<Values>) -> Poly<Values> {
        ring.check(poly);
        let mut out = ring.zero();
        let sources = self.sources.places();
        for (to, from) in out.residues.chunks_exact_mut(sources.len()).zip(ring.limbs_of(poly)) {
            to.iter_mut().zip(sources).for_each(|(to, &source)| *to = from[source as usize]);
        }
        out
    }
}
