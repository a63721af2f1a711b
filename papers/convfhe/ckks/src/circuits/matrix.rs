//! A sparse matrix over slots: by its diagonals, and in the form in which it is multiplied.

use std::collections::{BTreeMap, BTreeSet};

use crate::Complex;

/// A matrix by its diagonals, split into baby and giant steps (Halevi and Shoup, CRYPTO 2014 and 2018):
///
/// ```text
/// M·v = Σ_g rot_g( Σ_b diagonal_(g, b) ∘ rot_b(v) ),   rot_k(v)[j] = v[(j + k) mod slots]
/// ```
///
/// So with M's k-th diagonal `d_k[j] = M[j][(j + k) mod slots]`, the one that stands here for g + b = k is already
/// turned back: `diagonal[j] = d_k[(j - g) mod slots]`. Baby steps are rotations of one ciphertext, so they share its
/// decomposition; a giant step is one key switch more.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// How many slots a vector has: a power of two, at most N/2. With fewer than N/2 the slots repeat with that period,
    /// and so do the diagonals.
    pub slots: usize,
    /// The giant steps, each rotation once, in ascending order.
    pub giants: Vec<Giant>,
}

/// A giant step.
#[derive(Clone, Debug, PartialEq)]
pub struct Giant {
    /// By how much the sum of the products is rotated; 0 is no rotation.
    pub rotation: usize,
    /// The products, each baby step once, in ascending order. There is at least one.
    pub terms: Vec<Term>,
}

/// A product of a rotated vector with a diagonal.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// By how much the vector is rotated; 0 is no rotation.
    pub rotation: usize,
    /// What it is multiplied by, slot by slot: [`Matrix::slots`] entries.
    pub diagonal: Vec<Complex>,
}

impl Matrix {
    /// The rotations of the ciphertext, without 0. They are hoisted.
    pub fn babies(&self) -> BTreeSet<usize> {
        let all = self.giants.iter().flat_map(|g| g.terms.iter().map(|t| t.rotation));
        all.filter(|&rotation| rotation != 0).collect()
    }

    /// The rotations of sums, without 0.
    pub fn giant_steps(&self) -> BTreeSet<usize> {
        self.giants.iter().map(|g| g.rotation).filter(|&rotation| rotation != 0).collect()
    }

    /// How many diagonals there are.
    pub fn diagonals(&self) -> usize {
        self.giants.iter().map(|g| g.terms.len()).sum()
    }
}

/// A sparse matrix by its diagonals: `by_rotation[k][j]` is the entry in row j and column (j + k) mod `slots`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Diagonals {
    pub slots: usize,
    pub by_rotation: BTreeMap<usize, Vec<Complex>>,
}

impl Diagonals {
    /// The identity.
    pub fn one(slots: usize) -> Self {
        Self { slots, by_rotation: BTreeMap::from([(0, vec![Complex::ONE; slots])]) }
    }

    /// Adds to an entry.
    pub fn add(&mut self, row: usize, column: usize, value: Complex) {
        let slots = self.slots;
        let rotation = (column + slots - row) % slots;
        self.by_rotation.entry(rotation).or_insert_with(|| vec![Complex::ZERO; slots])[row] += value;
    }

    /// The product with another one, which is multiplied first.
    pub fn times(&self, first: &Self) -> Self {
        let slots = self.slots;
        let mut product = BTreeMap::new();
        for (&a, left) in &self.by_rotation {
            for (&b, right) in &first.by_rotation {
                let sum = product.entry((a + b) % slots).or_insert_with(|| vec![Complex::ZERO; slots]);
                for (j, (out, &entry)) in sum.iter_mut().zip(left).enumerate() {
                    *out += entry * right[(j + a) % slots];
                }
            }
        }
        Self { slots, by_rotation: product }
    }

    /// All entries times a factor.
    pub fn scaled(mut self, factor: f64) -> Self {
        for entry in self.by_rotation.values_mut().flatten() {
            *entry = entry.scaled(factor);
        }
        self
    }

    /// Splits rotations into baby and giant steps, such that hoisted rotations and `giant_cost` times the others are
    /// fewest.
    pub fn split(&self, giant_cost: f64) -> Matrix {
        // Rotations lie on both sides of 0, and are multiples of some power of two.
        let signed = |k: usize| if k > self.slots / 2 { k as i64 - self.slots as i64 } else { k as i64 };
        let step = 1i64 << self.by_rotation.keys().map(|k| k.trailing_zeros()).min().unwrap_or(0).min(62);
        let parts = |babies: i64| {
            self.by_rotation.keys().map(move |&k| {
                let multiple = signed(k) / step;
                let giant = multiple.div_euclid(babies) * babies;
                (
                    (giant * step).rem_euclid(self.slots as i64) as usize,
                    ((multiple - giant) * step) as usize,
                    k,
                )
            })
        };
        let cost = |babies: i64| {
            let (giants, small): (BTreeSet<_>, BTreeSet<_>) = parts(babies).map(|(g, b, _)| (g, b)).unzip();
            let counted = |set: &BTreeSet<usize>| set.iter().filter(|&&k| k != 0).count() as f64;
            counted(&small) + giant_cost * counted(&giants)
        };
        let babies = (0..usize::BITS - 1)
            .map(|log| 1i64 << log)
            .take_while(|&babies| babies <= (self.slots as i64).max(1))
            .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
            .unwrap_or(1);
        let mut giants: BTreeMap<usize, Vec<Term>> = BTreeMap::new();
        for (giant, rotation, k) in parts(babies) {
            let diagonal = &self.by_rotation[&k];
            let turned = (0..self.slots).map(|j| diagonal[(j + self.slots - giant) % self.slots]).collect();
            giants.entry(giant).or_default().push(Term { rotation, diagonal: turned });
        }
        let giants = giants.into_iter().map(|(rotation, mut terms)| {
            terms.sort_by_key(|term| term.rotation);
            Giant { rotation, terms }
        });
        Matrix { slots: self.slots, giants: giants.collect() }
    }
}
