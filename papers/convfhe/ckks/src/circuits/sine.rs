//! x mod 1 near integers, by a cosine: what is left of a phase when the modulus was raised.
//!
//! ```text
//! A·sin(2πx) = A·cos(2π(x - 1/4)),   x = I + v/q0,   |I| < bound,   |v|/q0 ≤ message
//! ```
//!
//! A polynomial gives a·cos(2π(x - 1/4)/2^r) with a = A^(1/2^r), and `y → 2y² - a²`, r times, doubles the angle (Han
//! and Ki, CT-RSA 2020; the amplitude as in Bossuat et al., ePrint 2020/1203, so that it costs no level). The cosine is
//! even, so half of the coefficients are zero.
//!
//! *Error.* sin(2πt)/2π is t - (2π)²·t³/6 + …: with t at most 2^-8 that is 2^-13.3 of the largest value, the same in
//! every run, and the network's calibration knows it. The polynomial's error is [`Sine::error`].

use std::f64::consts::TAU;

use super::chebyshev::Chebyshev;
use super::error::{Error, In};
use super::evaluator::Evaluator;
use crate::Complex;

const CIRCUIT: &str = "the sine";

/// How x mod 1 is approximated.
#[derive(Clone, Debug, PartialEq)]
pub struct Sine {
    polynomial: Chebyshev,
    doublings: u32,
    bound: f64,
    amplitude: f64,
}

impl Sine {
    /// A·sin(2πx) for |x - 1/4| ≤ `bound`, by a polynomial of an even degree and so many doublings. For an ephemeral
    /// secret of weight 32 the integer part is at most 15 in absolute value, except with probability 2^-138 (ePrint
    /// 2022/024), so `bound` is 15 + 1/4 and what the message adds.
    pub fn new(degree: usize, doublings: u32, bound: f64, amplitude: f64) -> Self {
        let shrink = f64::from(1u32 << doublings);
        let root = amplitude.powf(1.0 / shrink);
        let polynomial = Chebyshev::interpolate_even(degree, |t| root * (TAU * bound * t / shrink).cos());
        Self { polynomial, doublings, bound, amplitude }
    }

    /// What the input is divided by: a slot is x/bound.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// The levels that it takes.
    pub fn depth(&self) -> usize {
        self.polynomial.depth() + self.doublings as usize
    }

    /// How many products of two ciphertexts it takes.
    pub fn products(&self) -> usize {
        self.polynomial.products() + self.doublings as usize
    }

    /// What is computed for x, without noise.
    pub fn value(&self, x: f64) -> f64 {
        let mut y = self.polynomial.value((x - 0.25) / self.bound);
        let mut amplitude = self.root();
        for _ in 0..self.doublings {
            amplitude *= amplitude;
            y = 2.0 * y * y - amplitude;
        }
        y
    }

    /// The largest |value(x) - A·sin(2πx)| / A for x within `message` of an integer, looked for on a grid.
    pub fn error(&self, message: f64) -> f64 {
        let last = (self.bound - 0.25).floor() as i32;
        let points =
            (-last..=last).flat_map(|i| (-32..=32).map(move |j| (f64::from(i), f64::from(j) / 32.0)));
        let errors = points
            .map(|(i, j)| (self.value(i + j * message) / self.amplitude - (TAU * j * message).sin()).abs());
        errors.fold(0.0, f64::max)
    }

    fn root(&self) -> f64 {
        self.amplitude.powf(1.0 / f64::from(1u32 << self.doublings))
    }

    /// A·sin(2πx) from slots x/bound, with exactly this scale, [`depth`](Self::depth) levels below. The input's scale
    /// should be near the moduli of these levels.
    pub fn evaluate<E: Evaluator>(
        &self,
        evaluator: &E,
        ct: &E::Ciphertext,
        scale: f64,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        let top = evaluator.level(ct);
        if top < self.depth() {
            return Err(Error::Level { circuit: CIRCUIT, needed: self.depth(), found: top });
        }
        let shifted = evaluator.add_constant(ct, Complex::from(-0.25 / self.bound)).within(CIRCUIT)?;
        // A doubling takes s to s²/q.
        let below = top - self.polynomial.depth();
        let before = (0..self.doublings as usize)
            .rev()
            .fold(scale, |after, i| (after * evaluator.modulus(below - i)).sqrt());
        let mut y = self.polynomial.evaluate(evaluator, &shifted, before)?;
        let mut amplitude = self.root();
        for _ in 0..self.doublings {
            amplitude *= amplitude;
            let square = evaluator.square(&y).within(CIRCUIT)?;
            let double = evaluator.add(&square, &square).within(CIRCUIT)?;
            let moved = evaluator.add_constant(&double, Complex::from(-amplitude)).within(CIRCUIT)?;
            y = evaluator.rescale(&moved).within(CIRCUIT)?;
        }
        Ok(evaluator.with_scale(y, scale))
    }
}
