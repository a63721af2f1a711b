//! Circuits without values: what each takes, for a planner.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::evaluator::Evaluator;
use super::matrix::Matrix;
use crate::Complex;

/// What operations a circuit takes, level by level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By level, from 0.
    pub levels: Vec<AtLevel>,
    /// By how much slots are rotated, and up to which level: each needs a key for that level. (Those of [`Evaluator::raise`] are among
    /// them.)
    pub rotations: BTreeMap<usize, usize>,
    /// Up to which level slots are conjugated, if they are.
    pub conjugations: Option<usize>,
}

/// Operations on ciphertexts of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtLevel {
    /// Products of two ciphertexts, relinearised; squares among them.
    pub products: usize,
    /// Rotations that have a decomposition of their own, and conjugations.
    pub rotations: usize,
    /// Products with a matrix: each is a decomposition and the division of a sum by the special modulus.
    pub transforms: usize,
    /// Rotations of matrices' baby steps: the decomposition is shared, nothing is divided.
    pub babies: usize,
    /// Rotations of matrices' giant steps.
    pub giants: usize,
    /// Products with a plaintext, diagonals among them.
    pub plaintexts: usize,
    /// Products with a number.
    pub constants: usize,
    /// Divisions by the level's modulus.
    pub rescalings: usize,
    /// Changes from the main secret to the ephemeral one and back.
    pub raises: usize,
}

impl AtLevel {
    fn add(&mut self, other: &Self) {
        let Self {
            products,
            rotations,
            transforms,
            babies,
            giants,
            plaintexts,
            constants,
            rescalings,
            raises,
        } = other;
        self.products += products;
        self.rotations += rotations;
        self.transforms += transforms;
        self.babies += babies;
        self.giants += giants;
        self.plaintexts += plaintexts;
        self.constants += constants;
        self.rescalings += rescalings;
        self.raises += raises;
    }
}

impl Counts {
    /// Those of all levels together.
    pub fn total(&self) -> AtLevel {
        self.levels.iter().fold(AtLevel::default(), |mut sum, level| {
            sum.add(level);
            sum
        })
    }

    /// Up to which level ciphertexts are multiplied, if they are.
    pub fn products(&self) -> Option<usize> {
        self.levels.iter().rposition(|level| level.products > 0)
    }
}

/// An evaluator of ciphertexts that are a level and a scale only. It checks both as a real one does, and counts.
#[derive(Debug)]
pub struct Outline {
    slots: usize,
    moduli: Vec<f64>,
    counts: Mutex<Counts>,
}

/// A level and a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The level.
    pub level: usize,
    /// The scale.
    pub scale: f64,
}

/// Why an operation is not possible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OutlineError {
    /// A level is too low.
    #[error("level {found} is below {needed}")]
    Level {
        /// The least that is possible.
        needed: usize,
        /// What there is.
        found: usize,
    },
    /// The scales of a sum differ.
    #[error("a sum of scales {0} and {1}")]
    Scales(f64, f64),
    /// Scale and value are too large for the modulus.
    #[error("a value of {value} at scale {scale} is beyond the modulus of level {level}")]
    Overflow {
        /// The largest value, by its absolute value.
        value: f64,
        /// The scale.
        scale: f64,
        /// The level.
        level: usize,
    },
    /// Slots that do not repeat evenly.
    #[error("{0} slots are no power of two, or too many")]
    Slots(usize),
}

impl Outline {
    /// Of N/2 slots. The moduli are those of levels 0, 1, …, of which there is at least one.
    pub fn new(slots: usize, moduli: Vec<f64>) -> Self {
        let counts = Counts { levels: vec![AtLevel::default(); moduli.len()], ..Counts::default() };
        Self { slots, moduli, counts: Mutex::new(counts) }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn counted(&self, level: usize, count: impl FnOnce(&mut AtLevel)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = counts.levels.get_mut(level) {
            count(at);
        }
    }

    fn rotated(&self, level: usize, steps: impl IntoIterator<Item = usize>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for steps in steps {
            let highest = counts.rotations.entry(steps).or_insert(level);
            *highest = level.max(*highest);
        }
    }

    fn sum(a: &Shape, b: &Shape) -> Result<Shape, OutlineError> {
        if (a.scale / b.scale - 1.0).abs() > 1.0 / f64::from(1 << 20) {
            return Err(OutlineError::Scales(a.scale, b.scale));
        }
        Ok(Shape { level: a.level.min(b.level), scale: a.scale })
    }

    fn at_least(found: usize, needed: usize) -> Result<(), OutlineError> {
        if found < needed { Err(OutlineError::Level { needed, found }) } else { Ok(()) }
    }
}

impl Evaluator for Outline {
    type Ciphertext = Shape;
    type Plaintext = Shape;
    type Prepared = (Matrix, Shape);
    type Error = OutlineError;

    fn slots(&self) -> usize {
        self.slots
    }

    fn top(&self) -> usize {
        self.moduli.len() - 1
    }

    fn modulus(&self, level: usize) -> f64 {
        self.moduli[level]
    }

    fn level(&self, ct: &Shape) -> usize {
        ct.level
    }

    fn scale(&self, ct: &Shape) -> f64 {
        ct.scale
    }

    fn with_scale(&self, ct: Shape, scale: f64) -> Shape {
        Shape { scale, ..ct }
    }

    fn drop_to(&self, ct: &Shape, level: usize) -> Result<Shape, OutlineError> {
        Self::at_least(ct.level, level)?;
        Ok(Shape { level, ..*ct })
    }

    fn rescale(&self, ct: &Shape) -> Result<Shape, OutlineError> {
        Self::at_least(ct.level, 1)?;
        self.counted(ct.level, |c| c.rescalings += 1);
        Ok(Shape { level: ct.level - 1, scale: ct.scale / self.moduli[ct.level] })
    }

    fn add(&self, a: &Shape, b: &Shape) -> Result<Shape, OutlineError> {
        Self::sum(a, b)
    }

    fn subtract(&self, a: &Shape, b: &Shape) -> Result<Shape, OutlineError> {
        Self::sum(a, b)
    }

    fn add_constant(&self, ct: &Shape, _: Complex) -> Result<Shape, OutlineError> {
        Ok(*ct)
    }

    fn multiply_constant(&self, ct: &Shape, _: Complex, scale: f64) -> Result<Shape, OutlineError> {
        self.counted(ct.level, |c| c.constants += 1);
        Ok(Shape { scale: ct.scale * scale, ..*ct })
    }

    fn multiply(&self, a: &Shape, b: &Shape) -> Result<Shape, OutlineError> {
        let level = a.level.min(b.level);
        self.counted(level, |c| c.products += 1);
        Ok(Shape { level, scale: a.scale * b.scale })
    }

    fn square(&self, ct: &Shape) -> Result<Shape, OutlineError> {
        self.multiply(ct, ct)
    }

    fn rotate(&self, ct: &Shape, steps: usize) -> Result<Shape, OutlineError> {
        self.counted(ct.level, |c| c.rotations += 1);
        self.rotated(ct.level, [steps]);
        Ok(*ct)
    }

    fn conjugate(&self, ct: &Shape) -> Result<Shape, OutlineError> {
        self.counted(ct.level, |c| c.rotations += 1);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.conjugations = counts.conjugations.max(Some(ct.level));
        Ok(*ct)
    }

    fn encode(&self, slots: &[Complex], level: usize, scale: f64) -> Result<Shape, OutlineError> {
        Self::at_least(self.top(), level)?;
        if !slots.len().is_power_of_two() || slots.len() > self.slots {
            return Err(OutlineError::Slots(slots.len()));
        }
        Ok(Shape { level, scale })
    }

    fn multiply_plain(&self, ct: &Shape, plaintext: &Shape) -> Result<Shape, OutlineError> {
        let level = ct.level.min(plaintext.level);
        self.counted(level, |c| c.plaintexts += 1);
        Ok(Shape { level, scale: ct.scale * plaintext.scale })
    }

    fn prepare(&self, matrix: &Matrix, level: usize, scale: f64) -> Result<Self::Prepared, OutlineError> {
        Self::at_least(self.top(), level)?;
        if !matrix.slots.is_power_of_two() || matrix.slots > self.slots {
            return Err(OutlineError::Slots(matrix.slots));
        }
        Ok((matrix.clone(), Shape { level, scale }))
    }

    fn transform(&self, ct: &Shape, (matrix, shape): &Self::Prepared) -> Result<Shape, OutlineError> {
        Self::at_least(ct.level, shape.level)?;
        let (babies, giants) = (matrix.babies(), matrix.giant_steps());
        self.counted(shape.level, |c| {
            c.transforms += 1;
            c.babies += babies.len();
            c.giants += matrix.chains().iter().map(Vec::len).sum::<usize>();
            c.plaintexts += matrix.diagonals();
        });
        self.rotated(shape.level, babies.into_iter().chain(giants));
        Ok(Shape { level: shape.level, scale: ct.scale * shape.scale })
    }

    fn raise(&self, ct: &Shape, factor: u64, values: usize) -> Result<Shape, OutlineError> {
        let top = self.top();
        self.counted(top, |c| c.raises += 1);
        // The trace adds rotations by n, 2n, … to the slots.
        let mut steps = values / 2;
        while steps < self.slots {
            self.counted(top, |c| c.rotations += 1);
            self.rotated(top, [steps]);
            steps *= 2;
        }
        Ok(Shape { level: top, scale: ct.scale * factor as f64 })
    }
}
