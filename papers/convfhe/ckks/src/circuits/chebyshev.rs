//! Polynomials in the Chebyshev basis, on ciphertexts.
//!
//! ```text
//! p(x) = Σ c_k·T_k(x),   |x| ≤ 1,   T_{a+b} = 2·T_a·T_b - T_{|a-b|}
//! ```
//!
//! A polynomial of degree d takes ⌈log2(d + 1)⌉ levels, which is the least. It is divided by T_n with n a power of two,
//! `p = q·T_n + r`, again and again (Paterson and Stockmeyer), until parts are sums of the T_k that there are. Only the
//! parts on the way to the leading coefficient are split further than others, since there the level of T_k is too low.
//!
//! *Scales are exact* (Bossuat, Mouchet, Troncoso-Pastoriza, Hubaux, ePrint 2020/1203, Section 5): the scale wanted at
//! the end is carried down to the parts, and each constant is encoded at the scale that makes its product come out as
//! wanted. So nothing drifts, although no modulus is exactly a power of two.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::PI;

use super::error::{Error, In};
use super::evaluator::Evaluator;
use crate::Complex;

const CIRCUIT: &str = "a polynomial";

/// A polynomial in the Chebyshev basis of [-1, 1]. A coefficient that is exactly 0 costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Chebyshev {
    coefficients: Vec<f64>,
    /// Parts of a lower degree than this are sums.
    babies: usize,
}

/// ⌈log2 k⌉, the levels that T_k takes.
fn depth_of(k: usize) -> usize {
    k.next_power_of_two().ilog2() as usize
}

/// From which two T_k is made.
fn factors(k: usize) -> (usize, usize) {
    let a = if k.is_power_of_two() { k / 2 } else { 1 << k.ilog2() };
    (a, k - a)
}

/// Without zeros at the end.
fn trimmed(coefficients: &[f64]) -> &[f64] {
    let length = coefficients.iter().rposition(|&c| c != 0.0).map_or(0, |at| at + 1);
    &coefficients[..length]
}

/// How a part is evaluated `used` levels below the input.
enum Part {
    /// As a sum of T_k.
    Sum,
    /// As `q·T_n + r`. A q that is a number needs no product.
    Division { n: usize, quotient: Vec<f64>, rest: Vec<f64> },
}

impl Chebyshev {
    /// From the coefficients of T_0, T_1, …
    pub fn new(coefficients: Vec<f64>) -> Self {
        let mut made = Self { coefficients: trimmed(&coefficients).to_vec(), babies: 2 };
        let candidates =
            (1..usize::BITS).map(|log| 1 << log).take_while(|&b| b <= 2 * made.coefficients.len().max(1));
        made.babies = candidates.min_by_key(|&babies| made.products_with(babies)).unwrap_or(2);
        made
    }

    /// From the coefficients of 1, x, x², …
    pub fn from_monomials(monomials: &[f64]) -> Self {
        // Horner's rule: x·T_0 = T_1, x·T_k = (T_{k+1} + T_{k-1})/2.
        let mut sum = vec![0.0; monomials.len() + 1];
        for &c in monomials.iter().rev() {
            let mut next = vec![0.0; sum.len()];
            for (k, &s) in sum.iter().enumerate().filter(|(_, s)| **s != 0.0) {
                if k == 0 {
                    next[1] += s;
                } else {
                    next[k + 1] += s / 2.0;
                    next[k - 1] += s / 2.0;
                }
            }
            next[0] += c;
            sum = next;
        }
        Self::new(sum)
    }

    /// The polynomial of a degree that equals f at the Chebyshev nodes of [-1, 1], the zeros of T_{degree + 1}.
    pub fn interpolate(degree: usize, f: impl Fn(f64) -> f64) -> Self {
        Self::new(interpolated(degree, f))
    }

    /// The even polynomial of a degree, itself even, that equals an even f at nodes of [-1, 1]: those of a polynomial
    /// of half the degree in 2x² - 1. There T_k(2x² - 1) = T_2k(x).
    pub fn interpolate_even(degree: usize, f: impl Fn(f64) -> f64) -> Self {
        let half = interpolated(degree / 2, |w| f(((w + 1.0) / 2.0).max(0.0).sqrt()));
        Self::new(half.into_iter().flat_map(|c| [c, 0.0]).collect())
    }

    /// The degree.
    pub fn degree(&self) -> usize {
        self.coefficients.len().saturating_sub(1)
    }

    /// The levels that it takes: ⌈log2(degree + 1)⌉.
    pub fn depth(&self) -> usize {
        depth_of(self.degree() + 1)
    }

    /// The coefficients of T_0, T_1, …
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// All coefficients times a factor.
    pub fn scaled(&self, factor: f64) -> Self {
        Self { coefficients: self.coefficients.iter().map(|c| c * factor).collect(), babies: self.babies }
    }

    /// p(x), by Clenshaw's recurrence.
    pub fn value(&self, x: f64) -> f64 {
        let (mut next, mut after) = (0.0, 0.0);
        for &c in self.coefficients.iter().skip(1).rev() {
            (next, after) = (c + 2.0 * x * next - after, next);
        }
        self.coefficients.first().unwrap_or(&0.0) + x * next - after
    }

    /// How many products of two ciphertexts it takes, squares among them.
    pub fn products(&self) -> usize {
        self.products_with(self.babies)
    }

    fn products_with(&self, babies: usize) -> usize {
        let (made, products) = self.powers(babies);
        made.len() + products
    }

    /// Which T_k are made, without T_1, and how many products there are beside those that make them.
    fn powers(&self, babies: usize) -> (BTreeSet<usize>, usize) {
        let (mut powers, mut products) = (BTreeSet::new(), 0);
        if self.degree() > 0 {
            count(&self.coefficients, self.depth() - 1, babies, &mut powers, &mut products);
        }
        let mut made = BTreeSet::new();
        powers.iter().for_each(|&k| needed(k, &mut made));
        (made, products)
    }

    /// p(x), slot by slot, with exactly this scale, [`depth`](Self::depth) levels below x. Slots of x lie in [-1, 1].
    /// Its scale should be near the moduli of the levels that are used: T_k has the scale s^k, over the moduli.
    pub fn evaluate<E: Evaluator>(
        &self,
        evaluator: &E,
        x: &E::Ciphertext,
        scale: f64,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        let top = evaluator.level(x);
        if top < self.depth() {
            return Err(Error::Level { circuit: CIRCUIT, needed: self.depth(), found: top });
        }
        if self.degree() == 0 {
            return Err(Error::Constant);
        }
        let mut powers =
            Powers { evaluator, top, made: BTreeMap::from([(1, x.clone())]), babies: self.babies };
        powers.make(self.powers(self.babies).0)?;
        let used = self.depth() - 1;
        let sum = powers.part(&self.coefficients, used, scale * evaluator.modulus(top - used))?;
        Ok(evaluator.with_scale(evaluator.rescale(&sum).within(CIRCUIT)?, scale))
    }
}

fn interpolated(degree: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
    let nodes = degree + 1;
    let angles: Vec<_> = (0..nodes).map(|i| PI * (i as f64 + 0.5) / nodes as f64).collect();
    let values: Vec<_> = angles.iter().map(|a| f(a.cos())).collect();
    let coefficient = |k: usize| {
        let sum: f64 = angles.iter().zip(&values).map(|(a, v)| v * (k as f64 * a).cos()).sum();
        sum * if k == 0 { 1.0 } else { 2.0 } / nodes as f64
    };
    (0..nodes).map(coefficient).collect()
}

/// Which T_k are made on the way to one, without T_1.
fn needed(k: usize, made: &mut BTreeSet<usize>) {
    if k > 1 && made.insert(k) {
        let (a, b) = factors(k);
        [a, b, a.abs_diff(b)].into_iter().for_each(|k| needed(k, made));
    }
}

/// What to do with a part of at least degree 1, `used` levels below the input.
fn part(coefficients: &[f64], used: usize, babies: usize) -> Part {
    let degree = coefficients.len() - 1;
    let high = coefficients.iter().enumerate().any(|(k, &c)| c != 0.0 && k > 0 && depth_of(k) > used);
    if degree < babies && !high {
        return Part::Sum;
    }
    let n = 1 << degree.ilog2();
    let mut quotient = vec![0.0; degree - n + 1];
    let mut rest = coefficients[..n].to_vec();
    quotient[0] = coefficients[n];
    for k in 1..quotient.len() {
        quotient[k] = 2.0 * coefficients[n + k];
        rest[n - k] -= coefficients[n + k];
    }
    Part::Division { n, quotient, rest: trimmed(&rest).to_vec() }
}

/// Adds to the T_k and the products that a part takes.
fn count(
    coefficients: &[f64],
    used: usize,
    babies: usize,
    powers: &mut BTreeSet<usize>,
    products: &mut usize,
) {
    match part(coefficients, used, babies) {
        Part::Sum => powers.extend((1..coefficients.len()).filter(|&k| coefficients[k] != 0.0)),
        Part::Division { n, quotient, rest } => {
            powers.insert(n);
            if quotient.len() > 1 {
                *products += 1;
                count(&quotient, used - 1, babies, powers, products);
            }
            if rest.len() > 1 {
                count(&rest, used, babies, powers, products);
            }
        }
    }
}

/// All T_k(x) that a polynomial takes, each made once.
struct Powers<'e, E: Evaluator> {
    evaluator: &'e E,
    top: usize,
    made: BTreeMap<usize, E::Ciphertext>,
    babies: usize,
}

impl<E: Evaluator> Powers<'_, E> {
    /// Makes T_k for these k: those of one depth at the same time.
    fn make(&mut self, wanted: BTreeSet<usize>) -> Result<(), Error<E::Error>> {
        let mut by_depth: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        wanted.into_iter().for_each(|k| by_depth.entry(depth_of(k)).or_default().push(k));
        for at_a_time in by_depth.values() {
            let made = self.products(at_a_time)?;
            self.made.extend(at_a_time.iter().copied().zip(made));
        }
        Ok(())
    }

    fn products(&self, wanted: &[usize]) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        match wanted {
            [] => Ok(Vec::new()),
            [k] => Ok(vec![self.product(*k)?]),
            more => {
                let (first, second) = more.split_at(more.len() / 2);
                let (first, second) = self.evaluator.join(|| self.products(first), || self.products(second));
                let mut all = first?;
                all.extend(second?);
                Ok(all)
            }
        }
    }

    /// T_k, which was made.
    fn power(&self, k: usize) -> &E::Ciphertext {
        self.made.get(&k).expect("all that a polynomial takes are made before")
    }

    /// T_k of lower ones, ⌈log2 k⌉ levels below x.
    fn product(&self, k: usize) -> Result<E::Ciphertext, Error<E::Error>> {
        let (a, b) = factors(k);
        let product = if a == b {
            self.evaluator.square(self.power(a)).within(CIRCUIT)?
        } else {
            self.evaluator.multiply(self.power(a), self.power(b)).within(CIRCUIT)?
        };
        let doubled = self.evaluator.add(&product, &product).within(CIRCUIT)?;
        let difference = if a == b {
            self.evaluator.add_constant(&doubled, Complex::from(-1.0)).within(CIRCUIT)?
        } else {
            let scale = self.evaluator.scale(&doubled);
            let subtracted = self.term(a.abs_diff(b), 1.0, self.evaluator.level(&doubled), scale)?;
            self.evaluator.subtract(&doubled, &subtracted).within(CIRCUIT)?
        };
        self.evaluator.rescale(&difference).within(CIRCUIT)
    }

    /// c·T_k at a level and a scale.
    fn term(&self, k: usize, c: f64, level: usize, scale: f64) -> Result<E::Ciphertext, Error<E::Error>> {
        let low = self.evaluator.drop_to(self.power(k), level).within(CIRCUIT)?;
        let by = scale / self.evaluator.scale(&low);
        self.evaluator.multiply_constant(&low, Complex::from(c), by).within(CIRCUIT)
    }

    /// A part of at least degree 1, not rescaled, `used` levels below x.
    fn part(&self, coefficients: &[f64], used: usize, scale: f64) -> Result<E::Ciphertext, Error<E::Error>> {
        let level = self.top - used;
        let (n, quotient, rest) = match part(coefficients, used, self.babies) {
            Part::Sum => return self.low(None, coefficients, level, scale),
            Part::Division { n, quotient, rest } => (n, quotient, rest),
        };
        let high = || {
            if let [factor] = quotient[..] {
                return self.term(n, factor, level, scale);
            }
            let (power, above) = (self.power(n), level + 1);
            let wanted = scale / self.evaluator.scale(power) * self.evaluator.modulus(above);
            let quotient = self.part(&quotient, used - 1, wanted)?;
            let quotient = self.evaluator.rescale(&quotient).within(CIRCUIT)?;
            self.evaluator.multiply(&quotient, power).within(CIRCUIT)
        };
        // A rest of a high degree is a part of its own; a low one is summed here.
        if rest.len() < 2 || matches!(part(&rest, used, self.babies), Part::Sum) {
            return self.low(Some(high()?), &rest, level, scale);
        }
        let (high, rest) = self.evaluator.join(high, || self.part(&rest, used, scale));
        self.evaluator.add(&high?, &rest?).within(CIRCUIT)
    }

    /// What there is already, plus a sum of T_k times coefficients.
    fn low(
        &self,
        mut sum: Option<E::Ciphertext>,
        coefficients: &[f64],
        level: usize,
        scale: f64,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        for (k, &c) in coefficients.iter().enumerate().skip(1).filter(|(_, c)| **c != 0.0) {
            let term = self.term(k, c, level, scale)?;
            sum = Some(match sum {
                Some(sum) => self.evaluator.add(&sum, &term).within(CIRCUIT)?,
                None => term,
            });
        }
        let sum = sum.ok_or(Error::Constant)?;
        match coefficients.first() {
            Some(&c) if c != 0.0 => self.evaluator.add_constant(&sum, Complex::from(c)).within(CIRCUIT),
            Some(_) | None => Ok(sum),
        }
    }
}
