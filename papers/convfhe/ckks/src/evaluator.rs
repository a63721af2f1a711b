//! Arithmetic on ciphertexts, with evaluation keys: what circuits ask of an evaluator.

use std::collections::BTreeMap;
use std::sync::Arc;

use jaguar_ring::Kernel;
use jaguar_ring::modular::{Modulus, slices};

use crate::ciphertext::{check_scale, round_constant};
use crate::circuits::{Matrix, Step};
use crate::context::SwitchingKey;
use crate::poly::{Poly, Values};
use crate::spec::KeyKind;
use crate::{Ciphertext, Complex, Context, Error, EvaluationKeys, Plaintext, circuits};

/// By how much scales may differ that are added, as a part of them.
const SCALE_TOLERANCE: f64 = 1.0 / (1 << 20) as f64;

/// Evaluates with keys that it holds. May be used by several threads; each operation is spread over the context's
/// threads.
pub struct KeyedEvaluator {
    context: Arc<Context>,
    keys: EvaluationKeys,
}

/// A matrix whose diagonals are encoded, modulo the primes of its level and the special ones.
pub struct PreparedMatrix {
    level: usize,
    scale: f64,
    giants: Vec<PreparedGiant>,
    /// The giant step that is none, if there is one, and the others in their order.
    middle: Option<usize>,
    chains: [Vec<Step>; 2],
}

struct PreparedGiant {
    /// Rotation and diagonal.
    terms: Vec<(usize, Poly<Values>)>,
}

/// Two polynomials modulo QP; the special limbs may be missing, and are zero then.
type Pair = [Poly<Values>; 2];

impl KeyedEvaluator {
    /// An evaluator with these keys.
    pub fn new(context: &Arc<Context>, mut keys: EvaluationKeys) -> Self {
        keys.keys_mut().for_each(|key| context.turn_back(key));
        Self { context: Arc::clone(context), keys }
    }

    /// The ring that it computes in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn key(&self, kind: KeyKind, level: usize) -> Result<&SwitchingKey, Error> {
        self.keys.find(&self.context, kind, level)
    }

    /// Checks that there is room for a scale at a level: beyond it, nothing could be decrypted.
    pub(crate) fn check_room(&self, operation: &'static str, level: usize, scale: f64) -> Result<(), Error> {
        if scale.log2() < self.context.params().log_modulus_at(level) {
            return Ok(());
        }
        let expected = format!("one with a modulus above the scale 2^{:.1}", scale.log2());
        Err(Error::Level { operation, found: level, expected })
    }

    /// The sum `x ± y`, at the lower level.
    fn combined(
        &self,
        operation: &'static str,
        x: &Ciphertext,
        y: &Ciphertext,
        combine: fn(Kernel, &Modulus, &mut [u64], &[u64]),
    ) -> Result<Ciphertext, Error> {
        if (x.scale - y.scale).abs() > x.scale * SCALE_TOLERANCE {
            return Err(Error::Scales { operation, first: x.scale, second: y.scale });
        }
        let (context, level) = (&self.context, x.level.min(y.level));
        let half = |both| context.combined(context.params().limbs(level), both, combine);
        let (a, b) = context.join(|| half([&x.a, &y.a]), || half([&x.b, &y.b]));
        Ok(Ciphertext { a, b, level, scale: x.scale })
    }

    fn dropped(&self, ct: &Ciphertext, level: usize) -> Ciphertext {
        let limbs = self.context.params().limbs(level);
        Ciphertext { a: ct.a.first(limbs, 0), b: ct.b.first(limbs, 0), level, scale: ct.scale }
    }

    /// The automorphism X → X^element of the polynomial: rotations and conjugation are such, and what packs
    /// ciphertexts. One key switch.
    ///
    /// # Errors
    /// If there is no key for it at the ciphertext's level, or the exponent is even or not below 2N.
    pub fn automorphism(&self, ct: &Ciphertext, element: usize) -> Result<Ciphertext, Error> {
        if element == 1 {
            return Ok(ct.clone());
        }
        let key = self.key(KeyKind::Galois(element), ct.level)?;
        let context = &self.context;
        let digits = context.decompose(&ct.a, key.special());
        let plus = context.times_special(&ct.b, key.special());
        let mut sums = context.products(&digits, key, Some(&context.sources(element)), Some(&plus));
        context.both(&mut sums, |half| context.mod_down(half));
        let [a, b] = sums;
        Ok(Ciphertext { a, b, level: ct.level, scale: ct.scale })
    }

    /// X^exponent times the ciphertext: coefficients move up, and change their sign where they pass X^N. Exact, without
    /// a key. A caller with several ciphertexts makes the [monomial](Context::monomial) once.
    ///
    /// # Errors
    /// If the exponent is 2N or more.
    pub fn multiply_monomial(&self, ct: &Ciphertext, exponent: usize) -> Result<Ciphertext, Error> {
        let monomial = self.context.monomial(exponent, ct.level)?;
        circuits::Evaluator::multiply_plain(self, ct, &monomial)
    }

    /// Adds the product with a plaintext to a sum, at the sum's level, which is no higher than theirs. Scales agree to
    /// 2^-20 of their size.
    ///
    /// # Errors
    /// If the sum's level is above another, or the product has another scale than the sum.
    pub fn multiply_add(
        &self,
        sum: &mut Ciphertext,
        ct: &Ciphertext,
        plaintext: &Plaintext,
    ) -> Result<(), Error> {
        let (operation, level) = ("add a product", ct.level.min(plaintext.level));
        if sum.level > level {
            return Err(Error::Level { operation, found: sum.level, expected: format!("at most {level}") });
        }
        let scale = ct.scale * plaintext.scale;
        if (sum.scale - scale).abs() > sum.scale * SCALE_TOLERANCE {
            return Err(Error::Scales { operation, first: sum.scale, second: scale });
        }
        self.add_product(sum, ct, plaintext);
        Ok(())
    }

    /// The same for levels that fit, whatever the scales are.
    pub(crate) fn add_product(&self, sum: &mut Ciphertext, ct: &Ciphertext, plaintext: &Plaintext) {
        let context = &self.context;
        for (half, operand) in [(&mut sum.a, &ct.a), (&mut sum.b, &ct.b)] {
            context.change(half, |prime, i, limb| {
                let (x, y) = (operand.limb(i), plaintext.poly.limb(i));
                slices::multiply_add(context.kernel(), context.modulus(prime), limb, x, y);
            });
        }
    }

    /// Several automorphisms of one ciphertext, which is decomposed once.
    ///
    /// # Errors
    /// As [`automorphism`](Self::automorphism).
    pub fn automorphisms(&self, ct: &Ciphertext, elements: &[usize]) -> Result<Vec<Ciphertext>, Error> {
        let hoisted = Hoisted::new(self, ct, elements.iter().copied())?;
        let finish = |&element: &usize| {
            if element == 1 {
                return Ok(ct.clone());
            }
            let mut moved = hoisted.moved(element)?;
            self.context.both(&mut moved, |half| self.context.mod_down(half));
            let [a, b] = moved;
            Ok(Ciphertext { a, b, level: ct.level, scale: ct.scale })
        };
        elements.iter().map(finish).collect()
    }

    /// `(a, b) + (the part of c2·s^2)` for a product's three polynomials.
    fn relinearised(&self, parts: [Poly<Values>; 3], level: usize, scale: f64) -> Result<Ciphertext, Error> {
        let key = self.key(KeyKind::Relinearise, level)?;
        let context = &self.context;
        let [mut b, mut a, square] = parts;
        let digits = context.decompose(&square, key.special());
        let [mut more_a, mut more_b] = context.products(&digits, key, None, None);
        let switched = |half: &mut Poly<Values>, more: &mut Poly<Values>| {
            context.mod_down(more);
            context.add(half, more);
        };
        context.join(|| switched(&mut a, &mut more_a), || switched(&mut b, &mut more_b));
        Ok(Ciphertext { a, b, level, scale })
    }

    /// Multiplies each half of the values by a number of its own: by a Gaussian integer.
    fn times_integer(&self, poly: &Poly<Values>, integer: Complex) -> Poly<Values> {
        let context = &self.context;
        context.make(poly.ordinary(), 0, |prime, i, limb| {
            let m = context.modulus(prime);
            let half = limb.len() / 2;
            let halves = limb.chunks_exact_mut(half).zip(poly.limb(i).chunks_exact(half));
            for ((out, x), factor) in halves.zip(context.constant_factors(prime, integer)) {
                slices::affine(context.kernel(), m, out, x, m.bits(), factor, 0);
            }
        })
    }

    /// Divides by the number of automorphisms modulo Q, and sums all that fix the powers of X^(N/values): other
    /// coefficients vanish.
    fn trace(&self, mut ct: Ciphertext, values: usize) -> Result<Ciphertext, Error> {
        let context = &self.context;
        let n = context.params().n();
        if values == n {
            return Ok(ct);
        }
        let count = (n / values) as u64;
        for half in [&mut ct.a, &mut ct.b] {
            context.change(half, |prime, _, limb| {
                let m = context.modulus(prime);
                let inverse = m.inverse(count).expect("a power of two below an odd prime");
                slices::multiply_factor(context.kernel(), m, limb, m.factor(inverse));
            });
        }
        // With X^(N/values) = Y, 5^(values/2) is 1 modulo 2·values, and its powers are all such numbers.
        let mut steps = values / 2;
        while steps < n / 2 {
            let moved = self.automorphism(&ct, context.rotation(steps))?;
            context.add(&mut ct.a, &moved.a);
            context.add(&mut ct.b, &moved.b);
            steps *= 2;
        }
        Ok(ct)
    }

    /// The exponents of the automorphisms whose keys a raise takes, at the top level.
    ///
    /// # Errors
    /// If `values` is no power of two from 2 to N.
    pub fn raise_elements(context: &Context, values: usize) -> Result<Vec<usize>, Error> {
        let n = context.params().n();
        if !values.is_power_of_two() || !(2..=n).contains(&values) {
            let expected = format!("a power of two from 2 to {n}");
            return Err(Error::Count { operation: "raise", what: "values", found: values, expected });
        }
        let steps = std::iter::successors(Some(values / 2), |steps| Some(2 * steps));
        Ok(steps.take_while(|&steps| steps < n / 2).map(|steps| context.rotation(steps)).collect())
    }

    /// `Σ_term diagonal·operand` for both halves, modulo QP.
    fn dot(&self, terms: &[(&Poly<Values>, [&Poly<Values>; 2])], ordinary: usize, special: usize) -> Pair {
        let context = &self.context;
        let mut sums = [context.unset(ordinary, special), context.unset(ordinary, special)];
        let [a, b] = &mut sums;
        context.each(a.limbs_mut().zip(b.limbs_mut()).enumerate(), |(i, (a, b))| {
            // What has no special limbs adds nothing to them.
            let there = || terms.iter().filter(|(_, operand)| i < operand[0].len());
            let diagonals: Vec<&[u64]> = there().map(|(diagonal, _)| diagonal.limb(i)).collect();
            let half =
                |half: usize| -> Vec<&[u64]> { there().map(|(_, operand)| operand[half].limb(i)).collect() };
            let (operands, m) = ([half(0), half(1)], context.modulus(context.prime(ordinary, i)));
            let (identity, zeros) = (context.identity(), context.zeros());
            slices::moved_products(
                context.kernel(),
                m,
                identity,
                &diagonals,
                [&operands[0], &operands[1]],
                zeros,
                0,
                [a, b],
            );
        });
        sums
    }
}

/// A ciphertext that is decomposed once for several automorphisms, whose keys have one number of special primes.
struct Hoisted<'a> {
    evaluator: &'a KeyedEvaluator,
    level: usize,
    digits: Option<crate::context::Decomposed<'a>>,
    plus: Poly<Values>,
}

impl<'a> Hoisted<'a> {
    /// Decomposes, if there is an automorphism but the identity.
    fn new(
        evaluator: &'a KeyedEvaluator,
        ct: &'a Ciphertext,
        elements: impl Iterator<Item = usize>,
    ) -> Result<Self, Error> {
        let context = &evaluator.context;
        let mut special = None;
        for element in elements.filter(|&element| element != 1) {
            let key = evaluator.key(KeyKind::Galois(element), ct.level)?;
            if *special.get_or_insert(key.special()) != key.special() {
                let what = format!("{:?} with as many special primes as others", KeyKind::Galois(element));
                return Err(Error::Key { what, level: ct.level });
            }
        }
        let all = special.unwrap_or(context.params().special().len());
        Ok(Self {
            evaluator,
            level: ct.level,
            digits: special.map(|special| context.decompose(&ct.a, special)),
            plus: context.times_special(&ct.b, all),
        })
    }

    /// One automorphism, times P, modulo QP.
    fn moved(&self, element: usize) -> Result<Pair, Error> {
        let context = &self.evaluator.context;
        let kind = KeyKind::Galois(element);
        let key = self.evaluator.key(kind, self.level)?;
        let missing = || Error::Key { what: format!("{kind:?}, which was not announced"), level: self.level };
        let digits = self.digits.as_ref().ok_or_else(missing)?;
        Ok(context.products(digits, key, Some(&context.sources(element)), Some(&self.plus)))
    }
}

impl circuits::Evaluator for KeyedEvaluator {
    type Ciphertext = Ciphertext;
    type Plaintext = Plaintext;
    type Prepared = PreparedMatrix;
    type Error = Error;

    fn slots(&self) -> usize {
        self.context.params().n() / 2
    }

    fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        self.context.join(first, second)
    }

    fn top(&self) -> usize {
        self.context.params().top()
    }

    fn modulus(&self, level: usize) -> f64 {
        self.context.params().modulus(level)
    }

    fn level(&self, ct: &Ciphertext) -> usize {
        ct.level
    }

    fn scale(&self, ct: &Ciphertext) -> f64 {
        ct.scale
    }

    fn with_scale(&self, ct: Ciphertext, scale: f64) -> Ciphertext {
        Ciphertext { scale, ..ct }
    }

    fn drop_to(&self, ct: &Ciphertext, level: usize) -> Result<Ciphertext, Error> {
        if level > ct.level {
            let expected = format!("at least {level}");
            return Err(Error::Level { operation: "drop", found: ct.level, expected });
        }
        Ok(self.dropped(ct, level))
    }

    fn rescale(&self, ct: &Ciphertext) -> Result<Ciphertext, Error> {
        if ct.level == 0 {
            return Err(Error::Level { operation: "rescale", found: 0, expected: "at least 1".into() });
        }
        let scale = ct.scale / self.context.params().modulus(ct.level);
        check_scale("rescale", scale)?;
        let rescaled = |half: &Poly<Values>| {
            let mut half = half.duplicate();
            self.context.rescale(&mut half, ct.level);
            half
        };
        let (a, b) = self.context.join(|| rescaled(&ct.a), || rescaled(&ct.b));
        Ok(Ciphertext { a, b, level: ct.level - 1, scale })
    }

    fn add(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        self.combined("add", a, b, slices::add)
    }

    fn subtract(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        self.combined("subtract", a, b, slices::sub)
    }

    fn add_constant(&self, ct: &Ciphertext, constant: Complex) -> Result<Ciphertext, Error> {
        let context = &self.context;
        let integer = round_constant("add a constant", constant, ct.scale)?;
        let b = context.make(ct.b.ordinary(), 0, |prime, i, limb| {
            let m = context.modulus(prime);
            let half = limb.len() / 2;
            let halves = limb.chunks_exact_mut(half).zip(ct.b.limb(i).chunks_exact(half));
            for ((out, x), addend) in halves.zip(context.constant_factors(prime, integer)) {
                slices::affine(context.kernel(), m, out, x, m.bits(), m.factor(1), addend.value());
            }
        });
        Ok(Ciphertext { a: ct.a.duplicate(), b, level: ct.level, scale: ct.scale })
    }

    fn multiply_constant(&self, ct: &Ciphertext, constant: Complex, scale: f64) -> Result<Ciphertext, Error> {
        check_scale("multiply by a constant", scale)?;
        self.check_room("multiply by a constant", ct.level, ct.scale * scale)?;
        let integer = round_constant("multiply by a constant", constant, scale)?;
        let (a, b) =
            self.context.join(|| self.times_integer(&ct.a, integer), || self.times_integer(&ct.b, integer));
        Ok(Ciphertext { a, b, level: ct.level, scale: ct.scale * scale })
    }

    fn multiply(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        let context = &self.context;
        let level = a.level.min(b.level);
        self.check_room("multiply", level, a.scale * b.scale)?;
        let limbs = context.params().limbs(level);
        let (x, y) = (a, b);
        let mut parts = [(); 3].map(|()| context.unset::<Values>(limbs, 0));
        let [low, middle, high] = &mut parts;
        let all = low.limbs_mut().zip(middle.limbs_mut()).zip(high.limbs_mut()).enumerate();
        context.each(all, |(i, ((low, middle), high))| {
            context.multiply_into(i, low, x.b.limb(i), y.b.limb(i));
            context.multiply_into(i, high, x.a.limb(i), y.a.limb(i));
            context.multiply_into(i, middle, x.a.limb(i), y.b.limb(i));
            let m = context.modulus(i);
            slices::multiply_add(context.kernel(), m, middle, x.b.limb(i), y.a.limb(i));
        });
        self.relinearised(parts, level, a.scale * b.scale)
    }

    fn square(&self, ct: &Ciphertext) -> Result<Ciphertext, Error> {
        let context = &self.context;
        self.check_room("square", ct.level, ct.scale * ct.scale)?;
        let mut parts = [(); 3].map(|()| context.unset::<Values>(ct.a.ordinary(), 0));
        let [low, middle, high] = &mut parts;
        let all = low.limbs_mut().zip(middle.limbs_mut()).zip(high.limbs_mut()).enumerate();
        context.each(all, |(i, ((low, middle), high))| {
            let m = context.modulus(i);
            context.multiply_into(i, low, ct.b.limb(i), ct.b.limb(i));
            context.multiply_into(i, high, ct.a.limb(i), ct.a.limb(i));
            context.multiply_into(i, middle, ct.a.limb(i), ct.b.limb(i));
            slices::multiply_factor(context.kernel(), m, middle, m.factor(2));
        });
        self.relinearised(parts, ct.level, ct.scale * ct.scale)
    }

    fn rotate(&self, ct: &Ciphertext, steps: usize) -> Result<Ciphertext, Error> {
        self.automorphism(ct, self.context.rotation(steps))
    }

    fn conjugate(&self, ct: &Ciphertext) -> Result<Ciphertext, Error> {
        self.automorphism(ct, self.context.conjugation())
    }

    fn encode(&self, slots: &[Complex], level: usize, scale: f64) -> Result<Plaintext, Error> {
        self.context.encode_slots(slots, level, scale)
    }

    fn multiply_plain(&self, ct: &Ciphertext, plaintext: &Plaintext) -> Result<Ciphertext, Error> {
        let context = &self.context;
        let level = ct.level.min(plaintext.level);
        self.check_room("multiply by a plaintext", level, ct.scale * plaintext.scale)?;
        let times = |half: &Poly<Values>| {
            context.make(context.params().limbs(level), 0, |prime, i, limb| {
                context.multiply_into(prime, limb, half.limb(i), plaintext.poly.limb(i));
            })
        };
        let (a, b) = context.join(|| times(&ct.a), || times(&ct.b));
        Ok(Ciphertext { a, b, level, scale: ct.scale * plaintext.scale })
    }

    fn prepare(&self, matrix: &Matrix, level: usize, scale: f64) -> Result<PreparedMatrix, Error> {
        let context = &self.context;
        context.check_level("prepare", level)?;
        let (limbs, special) = (context.params().limbs(level), context.params().special().len());
        let count = |what: &'static str, found: usize, expected: String| {
            Err(Error::Count { operation: "prepare", what, found, expected })
        };
        if matrix.giants.is_empty() {
            return count("giant steps", 0, "at least 1".into());
        }
        let mut giants = Vec::with_capacity(matrix.giants.len());
        for giant in &matrix.giants {
            if giant.terms.is_empty() {
                return count("baby steps", 0, "at least 1".into());
            }
            let mut terms = Vec::with_capacity(giant.terms.len());
            for term in &giant.terms {
                if term.diagonal.len() != matrix.slots {
                    return count("entries of a diagonal", term.diagonal.len(), matrix.slots.to_string());
                }
                terms.push((term.rotation, context.slots_to_poly(&term.diagonal, scale, limbs, special)?));
            }
            giants.push(PreparedGiant { terms });
        }
        let middle = matrix.giants.iter().position(|giant| giant.rotation == 0);
        Ok(PreparedMatrix { level, scale, giants, middle, chains: matrix.chains() })
    }

    /// Baby and giant steps modulo QP (Bossuat, Mouchet, Troncoso-Pastoriza, Hubaux, EUROCRYPT 2021, algorithm 6).
    fn transform(&self, ct: &Ciphertext, matrix: &PreparedMatrix) -> Result<Ciphertext, Error> {
        let context = &self.context;
        if ct.level < matrix.level {
            let expected = format!("at least {}", matrix.level);
            return Err(Error::Level { operation: "transform", found: ct.level, expected });
        }
        self.check_room("transform", matrix.level, ct.scale * matrix.scale)?;
        let ct = &self.dropped(ct, matrix.level);
        let (ordinary, special) = (ct.a.ordinary(), context.params().special().len());

        // Baby steps: rotations of the ciphertext, times P.
        let mut babies: BTreeMap<usize, Option<Result<Pair, Error>>> = BTreeMap::new();
        let rotations = matrix.giants.iter().flat_map(|giant| giant.terms.iter().map(|term| term.0));
        babies.extend(rotations.map(|rotation| (context.rotation(rotation), None)));
        {
            let hoisted = Hoisted::new(self, ct, babies.keys().copied())?;
            let moved = |element: usize| -> Result<Pair, Error> {
                if element == 1 {
                    return Ok([&ct.a, &ct.b].map(|half| context.times_special(half, special)));
                }
                let moved = hoisted.moved(element)?;
                if moved[0].special() == special {
                    return Ok(moved);
                }
                let what = format!("{:?} with all special primes", KeyKind::Galois(element));
                Err(Error::Key { what, level: ct.level })
            };
            context.each(babies.iter_mut(), |(&element, baby)| *baby = Some(moved(element)));
        }
        let babies: BTreeMap<usize, Pair> = babies
            .into_iter()
            .filter_map(|(element, baby)| Some(baby?.map(|baby| (element, baby))))
            .collect::<Result<_, _>>()?;

        // Giant steps by Horner's rule: sums of products, of which the first half is divided by P to be switched.
        let sum = |giant: usize| {
            let terms: Vec<_> = matrix.giants[giant]
                .terms
                .iter()
                .filter_map(|(rotation, diagonal)| {
                    let baby = babies.get(&context.rotation(*rotation))?;
                    Some((diagonal, [&baby[0], &baby[1]]))
                })
                .collect();
            self.dot(&terms, ordinary, special)
        };
        let added = |sum: Option<Pair>, [a, b]: Pair| match sum {
            None => [a, b],
            Some([mut more_a, mut more_b]) => {
                context.add(&mut more_a, &a);
                context.add(&mut more_b, &b);
                [more_a, more_b]
            }
        };
        let chained = |chain: &[Step]| -> Result<Option<Pair>, Error> {
            let mut part: Option<Pair> = None;
            for step in chain {
                let [mut a, b] = added(part, sum(step.giant));
                let element = context.rotation(step.rotation);
                let key = self.key(KeyKind::Galois(element), ct.level)?;
                if key.special() != special {
                    let what = format!("{:?} with all special primes", KeyKind::Galois(element));
                    return Err(Error::Key { what, level: ct.level });
                }
                context.mod_down(&mut a);
                let digits = context.decompose(&a, special);
                part = Some(context.products(&digits, key, Some(&context.sources(element)), Some(&b)));
            }
            Ok(part)
        };
        let [up, down] = &matrix.chains;
        let (up, down) = context.join(|| chained(up), || chained(down));
        let mut total = matrix.middle.map(sum);
        for part in [up?, down?].into_iter().flatten() {
            total = Some(added(total, part));
        }
        let missing =
            || Error::Count { operation: "transform", what: "giant steps", found: 0, expected: "1".into() };
        let mut total = total.ok_or_else(missing)?;
        context.both(&mut total, |half| context.mod_down(half));
        let [a, b] = total;
        Ok(Ciphertext { a, b, level: matrix.level, scale: ct.scale * matrix.scale })
    }

    fn raise(&self, ct: &Ciphertext, factor: u64, values: usize) -> Result<Ciphertext, Error> {
        let context = &self.context;
        let params = context.params();
        if ct.level != 0 {
            return Err(Error::Level { operation: "raise", found: ct.level, expected: "0".into() });
        }
        Self::raise_elements(context, values)?;
        let special: f64 = params.special().iter().map(|&p| (p as f64).log2()).sum();
        if factor == 0 || (factor as f64).log2() + params.modulus(0).log2() > special {
            return Err(Error::Factor { factor });
        }
        let (down, up) =
            (self.key(KeyKind::ToEphemeral, 0)?, self.key(KeyKind::FromEphemeral, params.top())?);
        // To the ephemeral secret, modulo q0.
        let digits = context.decompose(&ct.a, down.special());
        let [mut a, mut b] = context.products(&digits, down, None, None);
        context.mod_down(&mut a);
        context.mod_down(&mut b);
        context.add(&mut b, &ct.b);
        // From there the same integers modulo Q: a is small, so it is one digit.
        let mut raised = context.product(&context.lift(&a, factor, true), up);
        context.both(&mut raised, |half| context.mod_down(half));
        let [new_a, mut new_b] = raised;
        context.add(&mut new_b, &context.lift(&b, factor, false));
        let raised = Ciphertext { a: new_a, b: new_b, level: params.top(), scale: ct.scale * factor as f64 };
        self.trace(raised, values)
    }
}
