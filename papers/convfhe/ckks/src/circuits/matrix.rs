//! A sparse matrix over slots, in the form in which it is multiplied.

use crate::Complex;

/// A matrix by its diagonals, split into baby and giant steps (Halevi and Shoup, CRYPTO 2014 and 2018):
///
/// ```text
/// M·v = Σ_g rot_g( Σ_b diagonal_(g, b) ∘ rot_b(v) ),   rot_k(v)[j] = v[(j + k) mod slots]
/// ```
///
/// So with M's k-th diagonal d_k[j] = M[j][(j + k) mod slots], the one that stands here for g + b = k is already turned back:
/// `diagonal[j] = d_k[(j - g) mod slots]`. Baby steps are rotations of one ciphertext, so they share its decomposition; a giant
/// step is one key switch more.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// How many slots a vector has: a power of two, at most N/2. With fewer than N/2 the slots repeat with that period, and so do
    /// the diagonals.
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
