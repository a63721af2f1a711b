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
        let (mut powers, mut products) = (BTreeSet::new(), 0);
        if self.degree() > 0 {
            count(&self.coefficients, self.depth() - 1, babies, &mut powers, &mut products);
        }
        let mut made = BTreeSet::new();
        powers.iter().for_each(|&k| needed(k, &mut made));
        made.len() + products
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

/// T_k(x), made when they are needed, each once.
struct Powers<'e, E: Evaluator> {
    evaluator: &'e E,
    top: usize,
    made: BTreeMap<usize, E::Ciphertext>,
    babies: usize,
}

impl<E: Evaluator> Powers<'_, E> {
    /// T_k, ⌈log2 k⌉ levels below x.
    fn power(&mut self, k: usize) -> Result<E::Ciphertext, Error<E::Error>> {
        if let Some(made) = self.made.get(&k) {
            return Ok(made.clone());
        }
        let (a, b) = factors(k);
        let left = self.power(a)?;
        let product = if a == b {
            self.evaluator.square(&left).within(CIRCUIT)?
        } else {
            let right = self.power(b)?;
            self.evaluator.multiply(&left, &right).within(CIRCUIT)?
        };
        let doubled = self.evaluator.add(&product, &product).within(CIRCUIT)?;
        let difference = if a == b {
            self.evaluator.add_constant(&doubled, Complex::from(-1.0)).within(CIRCUIT)?
        } else {
            let scale = self.evaluator.scale(&doubled);
            let subtracted = self.term(a.abs_diff(b), 1.0, self.evaluator.level(&doubled), scale)?;
            self.evaluator.subtract(&doubled, &subtracted).within(CIRCUIT)?
        };
        let power = self.evaluator.rescale(&difference).within(CIRCUIT)?;
        self.made.insert(k, power.clone());
        Ok(power)
    }

    /// c·T_k at a level and a scale.
    fn term(&mut self, k: usize, c: f64, level: usize, scale: f64) -> Result<E::Ciphertext, Error<E::Error>> {
        let power = self.power(k)?;
        let low = self.evaluator.drop_to(&power, level).within(CIRCUIT)?;
        let by = scale / self.evaluator.scale(&low);
        self.evaluator.multiply_constant(&low, Complex::from(c), by).within(CIRCUIT)
    }

    /// A part of at least degree 1, not rescaled, `used` levels below x.
    fn part(
        &mut self,
        coefficients: &[f64],
        used: usize,
        scale: f64,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        let level = self.top - used;
        let (mut sum, rest) = match part(coefficients, used, self.babies) {
            Part::Sum => (None, coefficients.to_vec()),
            Part::Division { n, quotient, rest } if quotient.len() == 1 => {
                (Some(self.term(n, quotient[0], level, scale)?), rest)
            }
            Part::Division { n, quotient, rest } => {
                let power = self.power(n)?;
                let above = level + 1;
                let wanted = scale / self.evaluator.scale(&power) * self.evaluator.modulus(above);
                let quotient = self.part(&quotient, used - 1, wanted)?;
                let quotient = self.evaluator.rescale(&quotient).within(CIRCUIT)?;
                (Some(self.evaluator.multiply(&quotient, &power).within(CIRCUIT)?), rest)
            }
        };
        // A rest of a high degree is a part of its own; a low one is summed here.
        let by_terms = sum.is_none() || rest.len() < 2 || matches!(part(&rest, used, self.babies), Part::Sum);
        let mut added = Vec::new();
        if by_terms {
            for (k, &c) in rest.iter().enumerate().skip(1).filter(|(_, c)| **c != 0.0) {
                added.push(self.term(k, c, level, scale)?);
            }
        } else {
            added.push(self.part(&rest, used, scale)?);
        }
        for term in added {
            sum = Some(match sum {
                Some(sum) => self.evaluator.add(&sum, &term).within(CIRCUIT)?,
                None => term,
            });
        }
        let sum = sum.ok_or(Error::Constant)?;
        match rest.first() {
            Some(&c) if by_terms && c != 0.0 => {
                self.evaluator.add_constant(&sum, Complex::from(c)).within(CIRCUIT)
            }
            Some(_) | None => Ok(sum),
        }
    }
}
