//! Several ciphertexts that share one a half.
//!
//! (a, b_0, …, b_(k−1)) stands for k ciphertexts, number j under a secret s_j of its own: its phase is `b_j + a·s_j`. (So Peikert,
//! Vaikuntanathan and Waters have it with LWE, CRYPTO 2008.) It takes k + 1 polynomials where k ciphertexts take 2k.
//!
//! [`JointKeys`] bring ciphertexts (a_j, b_j) under s_0 there, by key switching over one prime P more (Gentry, Halevi and Smart, CRYPTO
//! 2012). The key of number j has, for digit i of a_j, a common α and `β_l = e_l − α·s_l` for all l, to which `P·g_i·s_0` is added for
//! l = j. With d_i the digits of a_j, `Σ d_i·α / P` is the common half, and `Σ d_i·β_l / P` is added to b_l:
//! `Σ d_i·(β_l + α·s_l) = Σ d_i·e_l + [l = j]·P·a_j·s_0`. One ciphertext alone stays as it is.
//!
//! **Security.** (α, β_0, …, β_(k−1)) are samples of RLWE under k independent secrets with one α, which is as hard as under one (a
//! hybrid over the secrets). Keys encrypt s_0 under all of them: circular security, as of keys for rotations.

use crate::modular::slices::{self, Sources};
use crate::prg::Prg;

use super::ciphertext::expand;
use super::keys::{check_digits, decompose_limb, digits_in, gadget, noise, seed, ternary};
use super::ring::Residues;
use super::{Ciphertext, Coefficients, Poly, Representation, Ring, SecretKey, Values};

/// k ciphertexts, number j under secret j: the phase is `b[j] + a·s_j`.
pub struct JointCiphertext<R: Representation> {
    /// The half that meets the secrets.
    pub a: Poly<R>,
    /// The halves with the messages.
    pub b: Vec<Poly<R>>,
}

impl<R: Representation> JointCiphertext<R> {
    /// Adds another one, of as many ciphertexts.
    ///
    /// # Panics
    /// If it has not as many, or is one of another ring.
    pub fn add_assign(&mut self, ring: &Ring, other: &Self) {
        assert_eq!(self.b.len(), other.b.len(), "as many ciphertexts");
        ring.add_assign(&mut self.a, &other.a);
        self.b.iter_mut().zip(&other.b).for_each(|(b, other)| ring.add_assign(b, other));
    }

    /// The common half, then the others.
    pub fn halves(&self) -> impl Iterator<Item = &Poly<R>> {
        std::iter::once(&self.a).chain(&self.b)
    }
}

impl JointCiphertext<Values> {
    /// Transforms back.
    pub fn into_coefficients(self, ring: &Ring) -> JointCiphertext<Coefficients> {
        let b = self.b.into_iter().map(|b| ring.to_coefficients(b)).collect();
        JointCiphertext { a: ring.to_coefficients(self.a), b }
    }
}

impl JointCiphertext<Coefficients> {
    /// Divides by the last prime of `ring` and rounds, as [`Ciphertext::drop_prime`].
    ///
    /// # Panics
    /// Also if there is only one prime.
    pub fn drop_prime(&self, ring: &Ring) -> Self {
        Self { a: ring.drop_prime(&self.a), b: self.b.iter().map(|b| ring.drop_prime(b)).collect() }
    }
}

/// What is published of k secrets, so that anybody makes [`JointCiphertext`]s of ciphertexts under the first, and encrypts zero in that
/// form. With k = 1 it is a public key, and nothing more.
pub struct JointKeys {
    digit_bits: u32,
    seed: [u8; 32],
    /// Encryptions of zero: `p0_j = e_j − p1·s_j`.
    public: JointCiphertext<Values>,
    /// By ciphertext, then digit; none for one alone.
    parts: Vec<Vec<JointCiphertext<Values>>>,
}

/// The ring of the ciphertexts that keys of `ring` are for.
fn smaller(ring: &Ring) -> Ring {
    ring.smaller().expect("a prime more than ciphertexts have")
}

impl JointKeys {
    /// The public key of one secret in `ring`. `prg` must be secret and never give the same again.
    pub fn public(ring: &Ring, secret: &SecretKey, prg: &mut Prg) -> Self {
        Self::new(ring, &[secret], 2, prg)
    }

    /// For ciphertexts under the first of `secrets` in `ring` without its last prime, P, with digits of `digit_bits` bits (of no use
    /// for one secret). `prg` must be secret and never give the same again.
    ///
    /// # Panics
    /// If there is no secret, there are several and `ring` has one prime, or `digit_bits` is not in `2..=60`.
    pub fn new(ring: &Ring, secrets: &[&SecretKey], digit_bits: u32, prg: &mut Prg) -> Self {
        check_digits(digit_bits);
        let (seed, first, last) = (seed(prg), secrets[0], ring.primes()[ring.limbs() - 1]);
        // Zeros, and for one of the secrets a message.
        let mut encrypt = |a: Poly<Values>, to: usize, message: Option<(usize, usize)>| {
            let half = |(j, secret): (usize, &&SecretKey)| {
                let mut x = ring.to_values(noise(ring, prg));
                if let (true, Some((limb, digit))) = (j == to, message) {
                    gadget(ring, &mut x, first.values(), limb, digit, digit_bits, last);
                }
                secret.hide(ring, &a, x)
            };
            let b = secrets.iter().enumerate().map(half).collect();
            JointCiphertext { a, b }
        };
        let public = encrypt(expand(ring, &seed), 0, None);
        let (mut parts, mut index) = (Vec::new(), 0..);
        if secrets.len() > 1 {
            let own = smaller(ring);
            for to in 0..secrets.len() {
                let digits = own.moduli().enumerate().flat_map(|(limb, m)| {
                    (0..m.bits().div_ceil(digit_bits)).map(move |digit| (limb, digit as usize))
                });
                let digits = digits.zip(&mut index);
                let part = |(message, i)| encrypt(Self::a(ring, &seed, i), to, Some(message));
                parts.push(digits.map(part).collect());
            }
        }
        Self { digit_bits, seed, public, parts }
    }

    /// The a half of an encryption of a digit, by its place.
    fn a(ring: &Ring, seed: &[u8; 32], index: u64) -> Poly<Values> {
        ring.uniform(&mut Prg::derive(seed, "jaguar rns joint key", &[index]))
    }

    /// How many polynomials the keys of `count` secrets are beside their seed, with so many digits of ciphertexts.
    pub fn polys(count: usize, digits: usize) -> usize {
        count * Self::encryptions(count, digits)
    }

    /// How many encryptions the keys of `count` secrets are, each of one a half and `count` others.
    pub fn encryptions(count: usize, digits: usize) -> usize {
        if count > 1 { 1 + count * digits } else { 1 }
    }

    /// The keys whose seed and other polynomials a peer sent, in the order of [`parts`](Self::parts).
    ///
    /// # Panics
    /// If there are not as many as `count` secrets and their digits ask for.
    pub fn from_parts(
        ring: &Ring,
        count: usize,
        digit_bits: u32,
        seed: [u8; 32],
        b: Vec<Poly<Values>>,
    ) -> Self {
        check_digits(digit_bits);
        let digits = if count > 1 { digits_in(&smaller(ring), digit_bits) } else { 0 };
        assert_eq!(b.len(), Self::polys(count, digits), "polynomials of so many secrets");
        let mut b = b.into_iter();
        let mut of = |a| JointCiphertext { a, b: b.by_ref().take(count).collect() };
        let (public, mut index) = (of(expand(ring, &seed)), 0..);
        let mut part = |_| index.by_ref().take(digits).map(|i| of(Self::a(ring, &seed, i))).collect();
        let parts = if count > 1 { (0..count).map(&mut part).collect() } else { Vec::new() };
        Self { digit_bits, seed, public, parts }
    }

    /// What is sent: the seed, and the b halves of all encryptions.
    pub fn parts(&self) -> (&[u8; 32], impl Iterator<Item = &Poly<Values>>) {
        (
            &self.seed,
            std::iter::once(&self.public).chain(self.parts.iter().flatten()).flat_map(|part| &part.b),
        )
    }

    /// k: how many ciphertexts share an a half, at most.
    pub fn count(&self) -> usize {
        self.public.b.len()
    }

    /// An encryption of zero under the first secret: `(p1·u + e1, p0·u + e0)`.
    pub fn encrypt_zero(&self, ring: &Ring, prg: &mut Prg) -> Ciphertext<Values> {
        let JointCiphertext { a, mut b } = self.encrypt_zeros(ring, 1, prg);
        Ciphertext { a, b: b.remove(0) }
    }

    /// Encryptions of zero of the first `count` secrets: `(p1·u + e, p0_j·u + e_j)`.
    ///
    /// # Panics
    /// If there are not so many secrets.
    pub fn encrypt_zeros(&self, ring: &Ring, count: usize, prg: &mut Prg) -> JointCiphertext<Values> {
        let u = ternary(ring, prg);
        let mut half = |key: &Poly<Values>| {
            let mut half = ring.to_values(noise(ring, prg));
            ring.multiply_add(&mut half, &u, key);
            half
        };
        let a = half(&self.public.a);
        JointCiphertext { a, b: self.public.b[..count].iter().map(half).collect() }
    }

    /// Up to k ciphertexts under the first secret with a common a half, number j under secret j. `ring` is that of the keys, and
    /// ciphertexts have a prime less.
    ///
    /// # Panics
    /// If there is none, or more.
    pub fn join(
        &self,
        ring: &Ring,
        ciphertexts: Vec<Ciphertext<Coefficients>>,
    ) -> JointCiphertext<Coefficients> {
        let (count, n) = (ciphertexts.len(), ring.n());
        assert!((1..=self.count()).contains(&count), "1 to {} ciphertexts, not {count}", self.count());
        let (mut halves, mut b): (Vec<_>, Vec<_>) = ciphertexts.into_iter().map(|c| (c.a, c.b)).unzip();
        if count == 1 {
            return JointCiphertext { a: halves.remove(0), b };
        }
        let own = smaller(ring);
        let each = digits_in(&own, self.digit_bits);
        let parts: Vec<&JointCiphertext<Values>> = self.parts[..count].iter().flatten().collect();
        let mut digits = Residues(vec![0; parts.len() * n]);
        let (stay, zero) = (Sources::new((0..n as u32).collect()), vec![0; n]);
        // The common half, the others, and one that is not used if they are odd.
        let mut sums: Vec<Poly<Values>> = (0..(count + 1).next_multiple_of(2)).map(|_| ring.zero()).collect();
        for limb in 0..ring.limbs() {
            for (a, digits) in halves.iter().zip(digits.chunks_exact_mut(each * n)) {
                decompose_limb(ring, &own, a, self.digit_bits, limb, digits.chunks_exact_mut(n));
            }
            let digits: Vec<&[u64]> = digits.chunks_exact(n).collect();
            let keys = |half: usize| -> Vec<&[u64]> {
                let half = parts.iter().map(|part| if half == 0 { &part.a } else { &part.b[half - 1] });
                half.map(|half| ring.limb_of(half, limb)).collect()
            };
            // Two halves at once read the digits once.
            for (pair, sums) in sums.chunks_exact_mut(2).enumerate() {
                let (first, second) = (2 * pair, (2 * pair + 1).min(count));
                let keys = [&keys(first)[..], &keys(second)[..]];
                let [x, y] = sums else { unreachable!("chunks of two") };
                let mut limbs = ring.limbs_mut(x).zip(ring.limbs_mut(y));
                let ((m, x), (_, y)) = limbs.nth(limb).expect("a limb of the ring");
                slices::add_moved_products(ring.kernel(), m, &stay, &digits, keys, &zero, 0, [x, y]);
            }
        }
        let mut sums = sums.into_iter().map(|sum| ring.drop_prime(&ring.to_coefficients(sum)));
        let a = sums.next().expect("a common half");
        b.iter_mut().zip(sums).for_each(|(b, sum)| own.add_assign(b, &sum));
        JointCiphertext { a, b }
    }
}
