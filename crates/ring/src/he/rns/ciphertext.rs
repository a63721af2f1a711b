//! Ciphertexts.

use crate::prg::Prg;

use super::{Coefficients, Poly, Representation, Ring, Values};

/// A ciphertext (a, b) with the phase `b + a·s`.
pub struct Ciphertext<R: Representation> {
    /// The half that meets the secret.
    pub a: Poly<R>,
    /// The half with the message.
    pub b: Poly<R>,
}

/// A fresh ciphertext whose a half is expanded from a public seed, as it travels.
pub struct SeededCiphertext {
    /// The seed that the a half comes from.
    pub seed: [u8; 32],
    /// The b half, which hides the message.
    pub b: Poly<Values>,
}

/// The a half that a seed stands for.
pub(super) fn expand(ring: &Ring, seed: &[u8; 32]) -> Poly<Values> {
    ring.uniform(&mut Prg::derive(seed, "jaguar rns a half", &[]))
}

impl SeededCiphertext {
    pub(super) fn new(ring: &Ring, seed: [u8; 32], b: impl FnOnce(&Poly<Values>) -> Poly<Values>) -> Self {
        Self { seed, b: b(&expand(ring, &seed)) }
    }

    /// The ciphertext, its a half made of the seed.
    pub fn expand(self, ring: &Ring) -> Ciphertext<Values> {
        Ciphertext { a: expand(ring, &self.seed), b: self.b }
    }
}

/// All of these panic if an operand is one of another ring.
impl<R: Representation> Ciphertext<R> {
    /// A copy, made on purpose: copies are large.
    pub fn duplicate(&self) -> Self {
        Self { a: self.a.duplicate(), b: self.b.duplicate() }
    }

    /// Adds another ciphertext.
    pub fn add_assign(&mut self, ring: &Ring, other: &Self) {
        ring.add_assign(&mut self.a, &other.a);
        ring.add_assign(&mut self.b, &other.b);
    }

    /// Adds a message that is not encrypted, times Q/t ([`PlainModulus::scale`](super::PlainModulus::scale)).
    pub fn add_plain(&mut self, ring: &Ring, scaled: &Poly<R>) {
        ring.add_assign(&mut self.b, scaled);
    }

    /// Multiplies with a public number.
    pub fn multiply_scalar(&mut self, ring: &Ring, c: i64) {
        ring.multiply_scalar(&mut self.a, c);
        ring.multiply_scalar(&mut self.b, c);
    }
}

impl Ciphertext<Values> {
    /// Multiplies with a polynomial, known and transformed: centred coefficients make the least noise.
    pub fn multiply_assign(&mut self, ring: &Ring, w: &Poly<Values>) {
        ring.multiply_assign(&mut self.a, w);
        ring.multiply_assign(&mut self.b, w);
    }

    /// Adds the product of a ciphertext with a polynomial, known and transformed.
    pub fn multiply_add(&mut self, ring: &Ring, x: &Self, w: &Poly<Values>) {
        ring.multiply_add(&mut self.a, &x.a, w);
        ring.multiply_add(&mut self.b, &x.b, w);
    }

    /// Transforms back.
    pub fn into_coefficients(self, ring: &Ring) -> Ciphertext<Coefficients> {
        Ciphertext { a: ring.to_coefficients(self.a), b: ring.to_coefficients(self.b) }
    }
}

impl Ciphertext<Coefficients> {
    /// Divides by the last prime of `ring` and rounds: a ciphertext of the same message in the ring without it.
    ///
    /// # Panics
    /// Also if there is only one prime.
    pub fn drop_prime(&self, ring: &Ring) -> Self {
        Self { a: ring.drop_prime(&self.a), b: ring.drop_prime(&self.b) }
    }
}
