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
///
/// Giant steps are made by Horner's rule, from the farthest on each side of 0 inwards, each by the distance to the next:
///
/// ```text
/// rot_G(S_1) + rot_2G(S_2) + rot_3G(S_3) = rot_G(S_1 + rot_G(S_2 + rot_G(S_3)))
/// ```
///
/// That takes as many key switches, but one key where distances are the same.
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

    /// The rotations of sums.
    pub fn giant_steps(&self) -> BTreeSet<usize> {
        self.chains().iter().flatten().map(|step| step.rotation).collect()
    }

    /// The giant steps on each side of 0, the farthest first. The one at 0 is none.
    pub fn chains(&self) -> [Vec<Step>; 2] {
        chains(self.giants.iter().map(|giant| giant.rotation), self.slots)
    }

    /// How many diagonals there are.
    pub fn diagonals(&self) -> usize {
        self.giants.iter().map(|g| g.terms.len()).sum()
    }
}

/// A giant step of Horner's rule: the sum of a giant, with what came before, is rotated and added to the next one's. Behind
/// the last one of a chain is the giant at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which of [`Matrix::giants`].
    pub giant: usize,
    /// By how much.
    pub rotation: usize,
}

/// A rotation to the left, or to the right if that is shorter.
fn signed(rotation: usize, slots: usize) -> i64 {
    if rotation > slots / 2 { rotation as i64 - slots as i64 } else { rotation as i64 }
}

/// On each side of 0, or all on one side if that takes fewer different steps.
fn chains(rotations: impl Iterator<Item = usize>, slots: usize) -> [Vec<Step>; 2] {
    let all: Vec<usize> = rotations.collect();
    let chain = |around: bool, side: i64| -> Vec<Step> {
        let distance = |k: usize| side * if around { k as i64 } else { signed(k, slots) };
        let distances = all.iter().enumerate().map(|(giant, &k)| (distance(k), giant));
        let mut distances: Vec<_> = distances.filter(|&(k, _)| k > 0).collect();
        distances.sort_unstable_by(|a, b| b.cmp(a));
        let next = distances.iter().skip(1).map(|&(k, _)| k).chain([0]);
        let step = |(&(k, giant), next): (&(i64, usize), i64)| Step {
            giant,
            rotation: ((k - next) * side).rem_euclid(slots as i64) as usize,
        };
        distances.iter().zip(next).map(step).collect()
    };
    let [both, one] = [false, true].map(|around| [chain(around, 1), chain(around, -1)]);
    let different = |chains: &[Vec<Step>; 2]| {
        chains.iter().flatten().map(|step| step.rotation).collect::<BTreeSet<_>>().len()
    };
    if different(&one) < different(&both) { one } else { both }
}

/// How many baby steps are tried: all numbers up to this, then powers of two.
const ALL_BABIES: i64 = 64;

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

    /// Splits rotations into baby and giant steps, such that hoisted rotations, `giant_cost` times the others and
    /// `key_cost` times the different ones are fewest together.
    pub fn split(&self, giant_cost: f64, key_cost: f64) -> Matrix {
        // Rotations are multiples of some power of two, and lie on both sides of 0 or all around.
        let slots = self.slots as i64;
        let step = 1i64 << self.by_rotation.keys().map(|k| k.trailing_zeros()).min().unwrap_or(0).min(62);
        // Baby steps begin at `-before`.
        let parts = |around: bool, babies: i64, before: i64| {
            self.by_rotation.keys().map(move |&k| {
                let multiple = (if around { k as i64 } else { signed(k, self.slots) }) / step;
                let giant = (multiple + before).div_euclid(babies) * babies;
                let turned = |multiple: i64| (multiple * step).rem_euclid(slots) as usize;
                (turned(giant), turned(multiple - giant), k)
            })
        };
        let cost = |&(around, babies, before): &(bool, i64, i64)| {
            let (giants, mut small): (BTreeSet<_>, BTreeSet<_>) =
                parts(around, babies, before).map(|(g, b, _)| (g, b)).unzip();
            let counted = |set: &BTreeSet<usize>| set.iter().filter(|&&k| k != 0).count() as f64;
            let steps = counted(&small) + giant_cost * counted(&giants);
            small.extend(chains(giants.into_iter(), self.slots).iter().flatten().map(|step| step.rotation));
            steps + key_cost * counted(&small)
        };
        let powers = (0..usize::BITS - 1).map(|log| 1i64 << log).filter(|&babies| babies > ALL_BABIES);
        let babies = (1..=ALL_BABIES).chain(powers).take_while(|&babies| babies <= slots.max(1));
        let ways = babies.flat_map(|babies| {
            [false, true]
                .into_iter()
                .flat_map(move |around| [0, (babies - 1) / 2].map(|before| (around, babies, before)))
        });
        let best = ways.min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let (around, babies, before) = best.unwrap_or((false, 1, 0));
        let mut giants: BTreeMap<usize, Vec<Term>> = BTreeMap::new();
        for (giant, rotation, k) in parts(around, babies, before) {
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
