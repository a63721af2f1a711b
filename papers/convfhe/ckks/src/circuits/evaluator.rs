//! What circuits ask of an evaluator.

use std::error::Error;

use super::Matrix;
use crate::Complex;

/// Arithmetic on ciphertexts of CKKS, as circuits see it.
///
/// A ciphertext has N/2 complex *slots*, a *level* and a *scale*. Its phase under the secret is scale·(the polynomial
/// of the slots) plus noise, modulo the product of all moduli up to its level. A level has one modulus, which is a
/// product of one or more primes: circuits never see how many. Slots that repeat with a shorter period than N/2 are no
/// matter of the trait: operations work on each slot, and rotations keep the period.
///
/// An operation fails if a level is too low, scales do not fit, or a key is missing: it never returns a wrong result
/// silently. None changes its arguments. Methods may be called by several threads. Scales are tracked as `f64`, with
/// the actual moduli, not with powers of two near them.
pub trait Evaluator: Sync {
    /// A ciphertext of two polynomials.
    type Ciphertext: Clone + Send + Sync;
    /// Encoded slots, at a level and a scale.
    type Plaintext: Send + Sync;
    /// A [`Matrix`] whose diagonals are encoded, modulo Q and modulo the special primes.
    type Prepared: Send + Sync;
    /// Why an operation is not possible.
    type Error: Error + Send + Sync + 'static;

    /// How many slots a ciphertext has: N/2.
    fn slots(&self) -> usize;

    /// Two pieces of work, at the same time where there are threads for it.
    fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        (first(), second())
    }

    /// The level of a fresh or raised ciphertext.
    fn top(&self) -> usize;

    /// The modulus that [`rescale`](Self::rescale) divides by at a level: the product of that level's primes. At level
    /// 0 it is q0, all that is left.
    fn modulus(&self, level: usize) -> f64;

    /// The level: how often the ciphertext can be rescaled.
    fn level(&self, ct: &Self::Ciphertext) -> usize;

    /// The scale.
    fn scale(&self, ct: &Self::Ciphertext) -> f64;

    /// The same ciphertext with another scale: its slots are multiplied by `scale(ct)/scale`. Costs nothing.
    fn with_scale(&self, ct: Self::Ciphertext, scale: f64) -> Self::Ciphertext;

    /// The same slots at a lower level, or the same one. Costs no noise.
    fn drop_to(&self, ct: &Self::Ciphertext, level: usize) -> Result<Self::Ciphertext, Self::Error>;

    /// Divides the phase and the scale by the level's modulus; the result is one level lower.
    fn rescale(&self, ct: &Self::Ciphertext) -> Result<Self::Ciphertext, Self::Error>;

    /// The sum, at the lower level of the two. Scales must agree to 2^-20 of their size; the result has the first
    /// one's.
    fn add(&self, a: &Self::Ciphertext, b: &Self::Ciphertext) -> Result<Self::Ciphertext, Self::Error>;

    /// The difference `a - b`, as [`add`](Self::add).
    fn subtract(&self, a: &Self::Ciphertext, b: &Self::Ciphertext) -> Result<Self::Ciphertext, Self::Error>;

    /// Adds a constant to every slot, at the ciphertext's scale: it is rounded to a multiple of 1/scale in both parts.
    /// Constant times scale may be as large as 2^120: a sum is made before it is rescaled.
    fn add_constant(&self, ct: &Self::Ciphertext, constant: Complex)
    -> Result<Self::Ciphertext, Self::Error>;

    /// Multiplies every slot by a constant, which is rounded to a multiple of 1/scale in both parts. The result's scale
    /// is multiplied by `scale`, its level stays. With scale 1 the constant is an integer (or a Gaussian one), exactly.
    fn multiply_constant(
        &self,
        ct: &Self::Ciphertext,
        constant: Complex,
        scale: f64,
    ) -> Result<Self::Ciphertext, Self::Error>;

    /// The product slot by slot, relinearised, not rescaled, at the lower level of the two. Its scale is the product of
    /// the scales.
    fn multiply(&self, a: &Self::Ciphertext, b: &Self::Ciphertext) -> Result<Self::Ciphertext, Self::Error>;

    /// The square: as [`multiply`](Self::multiply) with itself, for less.
    fn square(&self, ct: &Self::Ciphertext) -> Result<Self::Ciphertext, Self::Error>;

    /// Rotates to the left: slot j of the result is slot `(j + steps) mod N/2`.
    fn rotate(&self, ct: &Self::Ciphertext, steps: usize) -> Result<Self::Ciphertext, Self::Error>;

    /// Every slot's conjugate.
    fn conjugate(&self, ct: &Self::Ciphertext) -> Result<Self::Ciphertext, Self::Error>;

    /// Encodes slots, whose number is a power of two and divides N/2: with fewer they repeat.
    fn encode(&self, slots: &[Complex], level: usize, scale: f64) -> Result<Self::Plaintext, Self::Error>;

    /// The product slot by slot, not rescaled, at the lower level of the two. Its scale is the product of the scales.
    fn multiply_plain(
        &self,
        ct: &Self::Ciphertext,
        plaintext: &Self::Plaintext,
    ) -> Result<Self::Ciphertext, Self::Error>;

    /// Encodes a matrix for ciphertexts of a level, at a scale.
    fn prepare(&self, matrix: &Matrix, level: usize, scale: f64) -> Result<Self::Prepared, Self::Error>;

    /// The product with a matrix, not rescaled: rotations of the baby steps are hoisted, and a division by the special
    /// modulus is made once for each giant step and once at the end. The ciphertext's level is the matrix' or above;
    /// the result has the matrix' level, and the product of the scales.
    fn transform(
        &self,
        ct: &Self::Ciphertext,
        matrix: &Self::Prepared,
    ) -> Result<Self::Ciphertext, Self::Error>;

    /// ModUp: takes a ciphertext of level 0 to [`top`](Self::top), by way of the ephemeral sparse secret (Bossuat,
    /// Troncoso-Pastoriza, Hubaux, ePrint 2022/024). A phase m mod q0 becomes `factor·(m + q0·I)` for a polynomial I of
    /// small integer coefficients; the scale is multiplied by `factor`. Only coefficients of powers of X^(N/values) are
    /// kept (by the trace, which costs log2(N/values) rotations); `values` is a power of two, at most N.
    fn raise(
        &self,
        ct: &Self::Ciphertext,
        factor: u64,
        values: usize,
    ) -> Result<Self::Ciphertext, Self::Error>;
}
