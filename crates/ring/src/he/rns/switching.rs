//! Ciphertexts turned by keys.

use super::keys::decompose;
use super::{Ciphertext, GaloisKey, Poly, Ring, Values};

impl Ciphertext<Values> {
    /// The automorphism that `key` is for. For several of one ciphertext, [`Hoisted`] is faster.
    pub fn apply(&self, ring: &Ring, key: &GaloisKey) -> Self {
        let a = ring.to_coefficients(self.a.duplicate());
        key.key.switch(ring, &a, &self.b, key.automorphism.sources())
    }
}

/// A ciphertext whose a half is in digits already: automorphisms move the digits, so that all rotations of one ciphertext
/// share the decomposition and its transforms (Halevi and Shoup, CRYPTO 2018, section 5).
pub struct Hoisted {
    digit_bits: u32,
    digits: Vec<Poly<Values>>,
    b: Poly<Values>,
}

impl Hoisted {
    /// For keys with digits of `digit_bits` bits.
    ///
    /// # Panics
    /// If `digit_bits` is not in `2..=60`.
    pub fn new(ring: &Ring, ciphertext: &Ciphertext<Values>, digit_bits: u32) -> Self {
        let a = ring.to_coefficients(ciphertext.a.duplicate());
        Self { digit_bits, digits: decompose(ring, &a, digit_bits), b: ciphertext.b.duplicate() }
    }

    /// The automorphism that `key` is for.
    ///
    /// # Panics
    /// If the key has digits of another size.
    pub fn apply(&self, ring: &Ring, key: &GaloisKey) -> Ciphertext<Values> {
        assert_eq!(self.digit_bits, key.switching_key().digit_bits(), "a key with digits of another size");
        key.key.apply(ring, &self.digits, &self.b, key.automorphism.sources())
    }
}
