//! An evaluator for tests: slots in the clear, with exact levels and scales, noise of a chosen size, and a check that
//! no phase is beyond its modulus.

use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::sync::Mutex;

use super::evaluator::Evaluator;
use super::matrix::{Giant, Matrix};
use super::outline::{Counts, Outline, OutlineError, Shape};
use crate::Complex;

/// See above.
pub struct Simulator {
    outline: Outline,
    /// The standard deviation of what an operation adds to a slot of the phase, in units of the phase.
    noise: f64,
    state: Mutex<u64>,
    rotated: Mutex<BTreeSet<usize>>,
}

/// Slots with a level and a scale.
#[derive(Clone, Debug)]
pub struct Simulated {
    pub shape: Shape,
    pub values: Vec<Complex>,
}

/// The values of a real polynomial of N coefficients in its N/2 slots, by the definition.
pub fn decoded(coefficients: &[f64]) -> Vec<Complex> {
    let n = coefficients.len();
    let roots: Vec<_> = (0..2 * n).map(|k| Complex::root(k, 2 * n)).collect();
    let mut power = 1;
    let slots = (0..n / 2).map(|_| {
        let value = coefficients.iter().enumerate().map(|(k, &a)| roots[power * k % (2 * n)].scaled(a)).sum();
        power = power * 5 % (2 * n);
        value
    });
    slots.collect()
}

/// The inverse of [`decoded`], which is 2/N times the transposed matrix.
pub fn encoded(slots: &[Complex]) -> Vec<f64> {
    let n = 2 * slots.len();
    let roots: Vec<_> = (0..2 * n).map(|k| Complex::root(k, 2 * n)).collect();
    let mut powers = vec![1];
    (1..slots.len()).for_each(|j| powers.push(powers[j - 1] * 5 % (2 * n)));
    let coefficient = |k: usize| {
        let sum: Complex =
            slots.iter().zip(&powers).map(|(&z, p)| z * roots[p * k % (2 * n)].conjugate()).sum();
        sum.re * 2.0 / n as f64
    };
    (0..n).map(coefficient).collect()
}

impl Simulator {
    pub fn new(slots: usize, moduli: Vec<f64>, noise: f64) -> Self {
        let (state, rotated) = (Mutex::new(1), Mutex::new(BTreeSet::new()));
        Self { outline: Outline::new(slots, moduli), noise, state, rotated }
    }

    /// A ciphertext of some slots, which repeat.
    pub fn encrypted(&self, slots: &[Complex], level: usize, scale: f64) -> Simulated {
        let values = slots.iter().copied().cycle().take(self.slots()).collect();
        Simulated { shape: Shape { level, scale }, values }
    }

    pub fn counts(&self) -> Counts {
        self.outline.counts()
    }

    /// The rotations that were made.
    pub fn rotations(&self) -> BTreeSet<usize> {
        self.rotated.lock().unwrap().clone()
    }

    /// In [0, 1): splitmix64.
    fn random(&self) -> f64 {
        let mut state = self.state.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A result with noise, if its phase is below its modulus.
    fn made(&self, shape: Shape, mut values: Vec<Complex>, noisy: bool) -> Result<Simulated, OutlineError> {
        if noisy && self.noise > 0.0 {
            for value in &mut values {
                let radius = (-2.0 * (1.0 - self.random()).ln()).sqrt() * self.noise / shape.scale;
                let (im, re) = (TAU * self.random()).sin_cos();
                *value += Complex::new(re, im).scaled(radius);
            }
        }
        let log_modulus: f64 = (0..=shape.level).map(|level| self.modulus(level).log2()).sum();
        let value = values.iter().map(|v| v.abs()).fold(0.0, f64::max);
        if value.log2() + shape.scale.log2() > log_modulus - 1.0 {
            return Err(OutlineError::Overflow { value, scale: shape.scale, level: shape.level });
        }
        Ok(Simulated { shape, values })
    }

    fn by_slot(a: &Simulated, b: &[Complex], f: impl Fn(Complex, Complex) -> Complex) -> Vec<Complex> {
        a.values.iter().zip(b.iter().cycle()).map(|(&a, &b)| f(a, b)).collect()
    }

    fn turned(&self, values: &[Complex], steps: usize) -> Vec<Complex> {
        if steps != 0 {
            self.rotated.lock().unwrap().insert(steps);
        }
        (0..values.len()).map(|j| values[(j + steps) % values.len()]).collect()
    }
}

impl Evaluator for Simulator {
    type Ciphertext = Simulated;
    type Plaintext = Simulated;
    type Prepared = (Matrix, Shape);
    type Error = OutlineError;

    fn slots(&self) -> usize {
        self.outline.slots()
    }

    fn top(&self) -> usize {
        self.outline.top()
    }

    fn modulus(&self, level: usize) -> f64 {
        self.outline.modulus(level)
    }

    fn level(&self, ct: &Simulated) -> usize {
        ct.shape.level
    }

    fn scale(&self, ct: &Simulated) -> f64 {
        ct.shape.scale
    }

    fn with_scale(&self, ct: Simulated, scale: f64) -> Simulated {
        let by = ct.shape.scale / scale;
        let values = ct.values.into_iter().map(|v| v.scaled(by)).collect();
        Simulated { shape: self.outline.with_scale(ct.shape, scale), values }
    }

    fn drop_to(&self, ct: &Simulated, level: usize) -> Result<Simulated, OutlineError> {
        self.made(self.outline.drop_to(&ct.shape, level)?, ct.values.clone(), false)
    }

    fn rescale(&self, ct: &Simulated) -> Result<Simulated, OutlineError> {
        self.made(self.outline.rescale(&ct.shape)?, ct.values.clone(), true)
    }

    fn add(&self, a: &Simulated, b: &Simulated) -> Result<Simulated, OutlineError> {
        let shape = self.outline.add(&a.shape, &b.shape)?;
        self.made(shape, Self::by_slot(a, &b.values, |a, b| a + b), false)
    }

    fn subtract(&self, a: &Simulated, b: &Simulated) -> Result<Simulated, OutlineError> {
        let shape = self.outline.subtract(&a.shape, &b.shape)?;
        self.made(shape, Self::by_slot(a, &b.values, |a, b| a - b), false)
    }

    fn add_constant(&self, ct: &Simulated, constant: Complex) -> Result<Simulated, OutlineError> {
        let shape = self.outline.add_constant(&ct.shape, constant)?;
        let round = |x: f64| (x * shape.scale).round() / shape.scale;
        let constant = Complex::new(round(constant.re), round(constant.im));
        self.made(shape, ct.values.iter().map(|&v| v + constant).collect(), false)
    }

    fn multiply_constant(
        &self,
        ct: &Simulated,
        constant: Complex,
        scale: f64,
    ) -> Result<Simulated, OutlineError> {
        let shape = self.outline.multiply_constant(&ct.shape, constant, scale)?;
        let round = |x: f64| (x * scale).round() / scale;
        let constant = Complex::new(round(constant.re), round(constant.im));
        self.made(shape, ct.values.iter().map(|&v| v * constant).collect(), false)
    }

    fn multiply(&self, a: &Simulated, b: &Simulated) -> Result<Simulated, OutlineError> {
        let shape = self.outline.multiply(&a.shape, &b.shape)?;
        self.made(shape, Self::by_slot(a, &b.values, |a, b| a * b), true)
    }

    fn square(&self, ct: &Simulated) -> Result<Simulated, OutlineError> {
        let shape = self.outline.square(&ct.shape)?;
        self.made(shape, ct.values.iter().map(|&v| v * v).collect(), true)
    }

    fn rotate(&self, ct: &Simulated, steps: usize) -> Result<Simulated, OutlineError> {
        let shape = self.outline.rotate(&ct.shape, steps)?;
        self.made(shape, self.turned(&ct.values, steps), true)
    }

    fn conjugate(&self, ct: &Simulated) -> Result<Simulated, OutlineError> {
        let shape = self.outline.conjugate(&ct.shape)?;
        self.made(shape, ct.values.iter().map(|v| v.conjugate()).collect(), true)
    }

    fn encode(&self, slots: &[Complex], level: usize, scale: f64) -> Result<Simulated, OutlineError> {
        let shape = self.outline.encode(slots, level, scale)?;
        Ok(Simulated { shape, values: slots.to_vec() })
    }

    fn multiply_plain(&self, ct: &Simulated, plaintext: &Simulated) -> Result<Simulated, OutlineError> {
        let shape = self.outline.multiply_plain(&ct.shape, &plaintext.shape)?;
        self.made(shape, Self::by_slot(ct, &plaintext.values, |a, b| a * b), false)
    }

    fn prepare(&self, matrix: &Matrix, level: usize, scale: f64) -> Result<Self::Prepared, OutlineError> {
        self.outline.prepare(matrix, level, scale)
    }

    fn transform(&self, ct: &Simulated, prepared: &Self::Prepared) -> Result<Simulated, OutlineError> {
        let shape = self.outline.transform(&ct.shape, prepared)?;
        let mut sum = vec![Complex::ZERO; self.slots()];
        let add = |sum: &mut Vec<Complex>, giant: &Giant| {
            for term in &giant.terms {
                let moved = self.turned(&ct.values, term.rotation);
                for ((out, &v), &d) in sum.iter_mut().zip(&moved).zip(term.diagonal.iter().cycle()) {
                    *out += v * d;
                }
            }
        };
        let matrix = &prepared.0;
        matrix.giants.iter().filter(|giant| giant.rotation == 0).for_each(|giant| add(&mut sum, giant));
        for chain in matrix.chains() {
            let mut part = vec![Complex::ZERO; self.slots()];
            for step in chain {
                add(&mut part, &matrix.giants[step.giant]);
                part = self.turned(&part, step.rotation);
            }
            sum.iter_mut().zip(part).for_each(|(out, v)| *out += v);
        }
        self.made(shape, sum, true)
    }

    fn raise(&self, ct: &Simulated, factor: u64, values: usize) -> Result<Simulated, OutlineError> {
        let shape = self.outline.raise(&ct.shape, factor, values)?;
        let n = 2 * self.slots();
        let q0 = self.modulus(0);
        let mut phase = encoded(&ct.values);
        for (k, a) in phase.iter_mut().enumerate() {
            *a *= ct.shape.scale;
            assert!(a.abs() < q0 / 2.0, "coefficient {k} is beyond q0/2");
            // I is a sum of about 32 uniform values. All integers up to 15 occur here.
            let integer = (self.random() * 31.0).floor() - 15.0;
            *a = if k % (n / values) == 0 { (*a + q0 * integer) / ct.shape.scale } else { 0.0 };
        }
        let mut steps = values / 2;
        while steps < self.slots() {
            self.rotated.lock().unwrap().insert(steps);
            steps *= 2;
        }
        self.made(shape, decoded(&phase), true)
    }
}
