//! Ciphertexts turned by keys.

use super::keys::decompose;
use super::{Ciphertext, GaloisKey, Poly, Ring, Room, SwitchingKey, Values};

impl Ciphertext<Values> {
    /// The automorphism that `key` is for. For several of one ciphertext, [`Hoisted`] is faster.
    pub fn apply(&self, ring: &Ring, key: &GaloisKey) -> Self {
        let mut sum = Self { a: ring.zero(), b: ring.zero() };
        sum.add_applied(ring, self.duplicate(), key, &mut Room::default());
        sum
    }

    /// Adds what the automorphism that `key` is for makes of another ciphertext.
    pub fn add_applied(&mut self, ring: &Ring, other: Self, key: &GaloisKey, room: &mut Room) {
        let (a, sources) = (ring.to_coefficients(other.a), key.automorphism.sources());
        key.key.add_switched(ring, a, &other.b, sources, self, room);
    }
}

/// Words of keys that stay in the second cache, for all digits, while ciphertexts meet them.
const PIECE: usize = 1024;

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

    /// One limb of each digit.
    fn limb(&self, ring: &Ring, limb: usize) -> Vec<&[u64]> {
        self.digits.iter().map(|digit| ring.limb_of(digit, limb)).collect()
    }

    /// The automorphism that `key` is for.
    ///
    /// # Panics
    /// If the key has digits of another size, or is a rounded one.
    pub fn apply(&self, ring: &Ring, key: &GaloisKey) -> Ciphertext<Values> {
        let mut all = Self::apply_all(ring, std::slice::from_ref(self), &[key]);
        all.pop().and_then(|mut turned| turned.pop()).expect("one ciphertext, one key")
    }

    /// [`apply`](Self::apply) of several ciphertexts by several keys: by ciphertext, then key. A key is megabytes; it is read from
    /// memory once for all ciphertexts.
    ///
    /// # Panics
    /// As `apply`.
    pub fn apply_all(ring: &Ring, ciphertexts: &[Self], keys: &[&GaloisKey]) -> Vec<Vec<Ciphertext<Values>>> {
        let of_digits = |bits: u32| ciphertexts.iter().all(|c| c.digit_bits == bits);
        let fits = |key: &SwitchingKey| of_digits(key.digit_bits()) && !key.is_rounded();
        assert!(keys.iter().all(|key| fits(&key.key)), "a key with digits of another size");
        let zero = |_: &&GaloisKey| Ciphertext { a: ring.zero(), b: ring.zero() };
        let mut all: Vec<Vec<Ciphertext<Values>>> =
            ciphertexts.iter().map(|_| keys.iter().map(zero).collect()).collect();
        let mut halves: Vec<_> = all
            .iter_mut()
            .flatten()
            .map(|out| ring.limbs_mut(&mut out.a).zip(ring.limbs_mut(&mut out.b)))
            .collect();
        for limb in 0..ring.limbs() {
            let digits: Vec<Vec<&[u64]>> = ciphertexts.iter().map(|c| c.limb(ring, limb)).collect();
            let mut out: Vec<[_; 2]> = halves
                .iter_mut()
                .filter_map(|halves| halves.next())
                .map(|((_, a), (_, b))| [a, b].map(|half| half.chunks_mut(PIECE)))
                .collect();
            for start in (0..ring.n()).step_by(PIECE) {
                for (k, key) in keys.iter().enumerate() {
                    for (i, ciphertext) in ciphertexts.iter().enumerate() {
                        let out =
                            out[i * keys.len() + k].each_mut().map(|half| half.next().expect("a piece"));
                        let (b, sources) = (ring.limb_of(&ciphertext.b, limb), key.automorphism.sources());
                        key.key.apply_limb(ring, limb, &digits[i], b, sources, start, out);
                    }
                }
            }
        }
        drop(halves);
        all
    }
}
