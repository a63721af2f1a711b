//! Ciphertexts.

use crate::modular::slices;
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

    /// Adds `other` times w, and makes `other` the difference: `(x + w·y, x − w·y)`.
    pub fn sum_and_difference(&mut self, ring: &Ring, other: &mut Self, w: &Poly<Values>) {
        for (x, y) in [(&mut self.a, &mut other.a), (&mut self.b, &mut other.b)] {
            for (((m, x), (_, y)), w) in ring.limbs_mut(x).zip(ring.limbs_mut(y)).zip(ring.limbs_of(w)) {
                slices::sum_and_difference(ring.kernel(), m, x, y, w);
            }
        }
    }

    /// Adds the products of ciphertexts with polynomials, known and transformed: each sum is reduced once.
    ///
    /// # Panics
    /// If there are not as many of both.
    pub fn add_products(&mut self, ring: &Ring, xs: &[Self], ws: &[Poly<Values>]) {
        xs.iter().flat_map(|x| [&x.a, &x.b]).chain(ws).for_each(|poly| ring.check(poly));
        let halves = ring.limbs_mut(&mut self.a).zip(ring.limbs_mut(&mut self.b));
        for (limb, ((m, a), (_, b))) in halves.enumerate() {
            let ws: Vec<&[u64]> = ws.iter().map(|w| ring.limb_of(w, limb)).collect();
            let [xs_a, xs_b]: [Vec<&[u64]>; 2] = [
                xs.iter().map(|x| ring.limb_of(&x.a, limb)).collect(),
                xs.iter().map(|x| ring.limb_of(&x.b, limb)).collect(),
            ];
            slices::add_products(ring.kernel(), m, &ws, [&xs_a, &xs_b], [a, b]);
        }
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
