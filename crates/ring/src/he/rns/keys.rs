//! Secrets and what is published of them.

use crate::modular::slices::{self, Sources};
use crate::prg::Prg;
use crate::product::{Multiplier, SmallNtt};
use crate::sample::{self, SmallPoly};
use zeroize::Zeroizing;

use super::ring::Residues;
use super::{Automorphism, Ciphertext, Coefficients, PlainModulus, Poly, Ring, SeededCiphertext, Values};

/// A ternary secret: neither copied, printed nor stored. It serves its ring and those with fewer of its primes.
pub struct SecretKey {
    ring: Ring,
    s: Poly<Values>,
}

/// A secret that multiplies what left the ring by rounding to a power of two: neither copied, printed nor stored.
pub struct RoundedSecret {
    multiplier: Multiplier,
    s: SmallNtt,
}

impl RoundedSecret {
    /// `a·s` modulo `2^bits`, for N words of `bits` bits (1 to 64).
    ///
    /// # Panics
    /// If `a` or `out` has not N words.
    pub fn multiply_into(&self, a: &[u64], bits: u32, out: &mut [u64]) {
        self.multiplier.multiply_into(a, bits, &self.s, out);
    }
}

/// A polynomial of centred binomial noise.
pub(super) fn noise(ring: &Ring, prg: &mut Prg) -> Poly<Coefficients> {
    let mut e = SmallPoly::new(ring.n());
    sample::noise(ring.kernel(), prg, e.coefficients_mut());
    ring.from_signed(e.coefficients())
}

/// A uniform polynomial of −1, 0 and 1.
pub(super) fn ternary(ring: &Ring, prg: &mut Prg) -> Poly<Values> {
    let mut s = SmallPoly::new(ring.n());
    sample::ternary(ring.kernel(), prg, s.coefficients_mut());
    ring.to_values(ring.from_signed(s.coefficients()))
}

/// A fresh seed.
pub(super) fn seed(prg: &mut Prg) -> [u8; 32] {
    let mut seed = [0; 32];
    prg.fill(&mut seed);
    seed
}

impl SecretKey {
    /// A secret from given randomness (tests fix it).
    pub fn from_prg(ring: &Ring, prg: &mut Prg) -> Self {
        Self { ring: ring.clone(), s: ternary(ring, prg) }
    }

    /// An encryption of `scaled`, a message times Q/t ([`PlainModulus::scale`]), with randomness from `prg`, which must be
    /// secret and never give the same again.
    pub fn encrypt(&self, ring: &Ring, scaled: &Poly<Coefficients>, prg: &mut Prg) -> SeededCiphertext {
        let seed = seed(prg);
        let mut b = noise(ring, prg);
        ring.add_assign(&mut b, scaled);
        SeededCiphertext::new(ring, seed, |a| self.hide(ring, a, ring.to_values(b)))
    }

    /// s.
    pub(super) fn values(&self) -> &Poly<Values> {
        &self.s
    }

    /// `x - a·s`.
    pub(super) fn hide(&self, ring: &Ring, a: &Poly<Values>, mut x: Poly<Values>) -> Poly<Values> {
        let mut product = a.duplicate();
        ring.multiply_assign(&mut product, &self.s);
        ring.sub_assign(&mut x, &product);
        x
    }

    /// `b + a·s`.
    pub fn phase(&self, ring: &Ring, ciphertext: &Ciphertext<Values>) -> Poly<Coefficients> {
        let mut phase = ciphertext.b.duplicate();
        ring.multiply_add(&mut phase, &ciphertext.a, &self.s);
        ring.to_coefficients(phase)
    }

    /// `b + a·s`, of halves in different forms: what several ciphertexts have alike of a is transformed once.
    pub fn phase_of(&self, ring: &Ring, a: &Poly<Values>, b: &Poly<Coefficients>) -> Poly<Coefficients> {
        let mut product = a.duplicate();
        ring.multiply_assign(&mut product, &self.s);
        let mut phase = ring.to_coefficients(product);
        ring.add_assign(&mut phase, b);
        phase
    }

    /// The message modulo t, N numbers: right if the noise is within `Q/(2t)`.
    pub fn decrypt(
        &self,
        ring: &Ring,
        plain: &PlainModulus,
        ciphertext: &Ciphertext<Values>,
    ) -> Zeroizing<Vec<u64>> {
        plain.round(ring, &self.phase(ring, ciphertext))
    }

    /// The same secret for halves that were rounded to a power of two.
    pub fn rounded(&self) -> RoundedSecret {
        let ring = &self.ring;
        let s = ring.to_coefficients(self.s.duplicate());
        let modulus = ring.ntt(0).modulus();
        let mut small = SmallPoly::new(ring.n());
        let residues = ring.limb_of(&s, 0);
        small.coefficients_mut().iter_mut().zip(residues).for_each(|(to, &r)| *to = modulus.centred(r) as i8);
        let multiplier = Multiplier::new(ring.kernel(), ring.n());
        let s = multiplier.prepare_small(small.coefficients());
        RoundedSecret { multiplier, s }
    }

    /// log2 of the largest coefficient of the noise of a ciphertext of `message`, to half a unit; at least 0. For tests and to
    /// find parameters: it takes time that depends on the noise.
    pub fn noise_bits_vt(
        &self,
        ring: &Ring,
        plain: &PlainModulus,
        ciphertext: &Ciphertext<Values>,
        message: &[u64],
    ) -> f64 {
        self.noise_vt(ring, plain, ciphertext, message).into_iter().fold(1.0, f64::max).log2()
    }

    /// By coefficient, how large the noise of a ciphertext of `message` is, without signs. As [`noise_bits_vt`](Self::noise_bits_vt).
    pub fn noise_vt(
        &self,
        ring: &Ring,
        plain: &PlainModulus,
        ciphertext: &Ciphertext<Values>,
        message: &[u64],
    ) -> Vec<f64> {
        let mut noise = self.phase(ring, ciphertext);
        ring.sub_assign(&mut noise, &plain.scale(ring, message));
        magnitudes_vt(ring, &noise)
    }
}

/// The absolute values of coefficients, as numbers in `-Q/2..Q/2`. Digits of mixed radix, by Garner's method.
fn magnitudes_vt(ring: &Ring, poly: &Poly<Coefficients>) -> Vec<f64> {
    let n = ring.n();
    let moduli: Vec<_> = ring.moduli().collect();
    let magnitude = |residues: &[u64]| -> f64 {
        let mut digits = Vec::new();
        let (mut sum, mut radix) = (0.0, 1.0);
        for (m, &residue) in moduli.iter().zip(residues) {
            // (x - d0 - d1 p0 - ...) / (p0 p1 ...), from the inside out.
            let (mut value, mut product) = (0, 1);
            for (digit, p) in digits.iter().zip(&moduli) {
                value = m.add(value, m.mul(m.reduce(*digit), product));
                product = m.mul(product, m.reduce(p.value()));
            }
            let inverse = m.inverse(product).expect("different primes");
            let digit = m.mul(m.sub(residue, value), inverse);
            sum += digit as f64 * radix;
            radix *= m.value() as f64;
            digits.push(digit);
        }
        sum
    };
    let of = |i: usize, negative: bool| -> Vec<u64> {
        let limbs = moduli.iter().zip(poly.residues().chunks_exact(n));
        limbs.map(|(m, limb)| if negative { m.negate(limb[i]) } else { limb[i] }).collect()
    };
    (0..n).map(|i| magnitude(&of(i, false)).min(magnitude(&of(i, true)))).collect()
}

/// From ciphertexts under one secret s' to ciphertexts under another, s.
///
/// With w bits a digit, the key's part for digit j of limb i is an encryption under s of `2^(wj)·g_i·s'`, where `g_i` is 1
/// modulo prime i and 0 modulo the others. Digits lie in `-2^(w-1)..2^(w-1)`, so that `a = Σ d_ij·2^(wj)·g_i` is a sum of
/// small multiples.
///
/// A *rounded* key takes a as a multiple of the last prime P, the nearest one: `round(a/P)` has digits, modulo one prime less,
/// and parts encrypt P times as much. What a is rounded by meets s', and adds noise of h·P²/12; with digits of half a prime it
/// is nearly all that there is.
pub struct SwitchingKey {
    digit_bits: u32,
    /// Whether a is rounded to a multiple of the last prime.
    rounded: bool,
    seed: [u8; 32],
    /// One ciphertext for each digit of each limb.
    parts: Vec<Ciphertext<Values>>,
}

/// Digits of a limb whose prime has `bits` bits.
fn digits_of(bits: u32, digit_bits: u32) -> usize {
    bits.div_ceil(digit_bits) as usize
}

/// Digits of all limbs.
pub(super) fn digits_in(ring: &Ring, digit_bits: u32) -> usize {
    ring.moduli().map(|m| digits_of(m.bits(), digit_bits)).sum()
}

/// What key switches write to, so that many of them take memory once.
#[derive(Default)]
pub struct Room(Option<Residues>);

impl Room {
    /// So many words, of any value.
    fn words(&mut self, count: usize) -> &mut [u64] {
        if self.0.as_ref().is_none_or(|words| words.len() < count) {
            self.0 = Some(Residues(vec![0; count]));
        }
        self.0.as_mut().map_or(&mut [], |words| &mut words[..count])
    }
}

/// The ring of what has digits, in a rounded key or another, and what parts are multiplied by.
fn in_digits(ring: &Ring, rounded: bool) -> (Ring, u64) {
    match ring.smaller() {
        Some(smaller) if rounded => (smaller, ring.primes()[ring.limbs() - 1]),
        None if rounded => panic!("a ring of at least two primes"),
        _ => (ring.clone(), 1),
    }
}

/// `x += times·2^(wj)·g_i·s`, of digit j of limb i.
pub(super) fn gadget(
    ring: &Ring,
    x: &mut Poly<Values>,
    s: &Poly<Values>,
    limb: usize,
    digit: usize,
    digit_bits: u32,
    times: u64,
) {
    let s = ring.limb_of(s, limb);
    let (modulus, words) = ring.limbs_mut(x).nth(limb).expect("a limb of the ring");
    let shift = modulus.power_vt(2, digit as u64 * u64::from(digit_bits));
    let shift = modulus.factor(modulus.mul(shift, modulus.reduce(times)));
    words.iter_mut().zip(s).for_each(|(x, &s)| *x = modulus.add(*x, modulus.mul_factor(s, shift)));
}

pub(super) fn check_digits(digit_bits: u32) {
    assert!((2..=60).contains(&digit_bits), "digits of 2 to 60 bits, not {digit_bits}");
}

impl SwitchingKey {
    /// The key from `from` to `to`, both in the ring of `to`, with digits of `digit_bits` bits. Small digits make little
    /// noise and large keys.
    ///
    /// # Panics
    /// If `digit_bits` is not in `2..=60`.
    pub fn new(from: &Poly<Values>, to: &SecretKey, digit_bits: u32, prg: &mut Prg) -> Self {
        Self::of_kind(from, to, digit_bits, false, prg)
    }

    /// The same for a halves that are rounded to multiples of the last prime.
    ///
    /// # Panics
    /// Also if there is only one prime.
    pub fn rounded(from: &Poly<Values>, to: &SecretKey, digit_bits: u32, prg: &mut Prg) -> Self {
        Self::of_kind(from, to, digit_bits, true, prg)
    }

    fn of_kind(from: &Poly<Values>, to: &SecretKey, digit_bits: u32, rounded: bool, prg: &mut Prg) -> Self {
        check_digits(digit_bits);
        let (ring, seed) = (&to.ring, seed(prg));
        let (own, times) = in_digits(ring, rounded);
        let mut parts = Vec::new();
        for (limb, modulus) in own.moduli().enumerate() {
            for digit in 0..digits_of(modulus.bits(), digit_bits) {
                let mut x = ring.to_values(noise(ring, prg));
                gadget(ring, &mut x, from, limb, digit, digit_bits, times);
                let a = Self::a(ring, &seed, parts.len());
                let b = to.hide(ring, &a, x);
                parts.push(Ciphertext { a, b });
            }
        }
        Self { digit_bits, rounded, seed, parts }
    }

    /// The a half of part `index`.
    fn a(ring: &Ring, seed: &[u8; 32], index: usize) -> Poly<Values> {
        ring.uniform(&mut Prg::derive(seed, "jaguar rns switching key", &[index as u64]))
    }

    /// The key whose seed and b halves, by limb, then digit, a peer sent.
    ///
    /// # Panics
    /// If there are not as many as there are digits in `ring`.
    pub fn from_parts(ring: &Ring, digit_bits: u32, seed: [u8; 32], b: Vec<Poly<Values>>) -> Self {
        Self::of_parts(ring, digit_bits, false, seed, b)
    }

    /// The same of a key for a halves that are rounded to multiples of the last prime of `ring`.
    ///
    /// # Panics
    /// If there are not as many as there are digits in `ring` without that prime.
    pub fn from_rounded_parts(ring: &Ring, digit_bits: u32, seed: [u8; 32], b: Vec<Poly<Values>>) -> Self {
        Self::of_parts(ring, digit_bits, true, seed, b)
    }

    fn of_parts(ring: &Ring, digit_bits: u32, rounded: bool, seed: [u8; 32], b: Vec<Poly<Values>>) -> Self {
        check_digits(digit_bits);
        let (own, _) = in_digits(ring, rounded);
        assert_eq!(b.len(), digits_in(&own, digit_bits), "a part for each digit");
        let parts = b.into_iter().enumerate();
        let parts = parts.map(|(i, b)| Ciphertext { a: Self::a(ring, &seed, i), b }).collect();
        Self { digit_bits, rounded, seed, parts }
    }

    /// What is sent: the seed and the b halves.
    pub fn parts(&self) -> (&[u8; 32], impl ExactSizeIterator<Item = &Poly<Values>>) {
        (&self.seed, self.parts.iter().map(|part| &part.b))
    }

    /// The parts, by limb, then digit.
    #[cfg(test)]
    pub(super) fn pairs(&self) -> impl Iterator<Item = &Ciphertext<Values>> {
        self.parts.iter()
    }

    /// w: bits of a digit.
    pub fn digit_bits(&self) -> u32 {
        self.digit_bits
    }

    /// How many digits a polynomial of `ring` has.
    pub fn digits(&self, ring: &Ring) -> usize {
        digits_in(&in_digits(ring, self.rounded).0, self.digit_bits)
    }

    /// Whether a halves are rounded to multiples of the last prime.
    pub(super) fn is_rounded(&self) -> bool {
        self.rounded
    }

    /// Adds a ciphertext (a, b) under s', moved to `sources`, as one under s. No more than one limb's digits are in memory.
    pub(super) fn add_switched(
        &self,
        ring: &Ring,
        mut a: Poly<Coefficients>,
        b: &Poly<Values>,
        sources: &Sources,
        sum: &mut Ciphertext<Values>,
        room: &mut Room,
    ) {
        if self.rounded {
            // (P is the last prime of the ring that the key is of.)
            ring.check(&self.parts[0].a);
            ring.divide_by_last(&mut a);
        }
        let (own, _) = in_digits(ring, self.rounded);
        let digits = room.words(self.digits(ring) * ring.n());
        let halves = ring.limbs_mut(&mut sum.a).zip(ring.limbs_mut(&mut sum.b));
        for (limb, (((_, sum_a), (_, sum_b)), b)) in halves.zip(ring.limbs_of(b)).enumerate() {
            decompose_limb(ring, &own, &a, self.digit_bits, limb, digits.chunks_exact_mut(ring.n()));
            let digits: Vec<&[u64]> = digits.chunks_exact(ring.n()).collect();
            self.apply_limb(ring, limb, &digits, b, sources, 0, [sum_a, sum_b]);
        }
    }

    /// Adds to the words from `start` on of one limb of both halves.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn apply_limb(
        &self,
        ring: &Ring,
        limb: usize,
        digits: &[&[u64]],
        b: &[u64],
        sources: &Sources,
        start: usize,
        sums: [&mut [u64]; 2],
    ) {
        assert!(digits.len() <= self.parts.len(), "a key of a ring with fewer digits");
        let parts = &self.parts[..digits.len()];
        let keys_a: Vec<&[u64]> = parts.iter().map(|part| ring.limb_of(&part.a, limb)).collect();
        let keys_b: Vec<&[u64]> = parts.iter().map(|part| ring.limb_of(&part.b, limb)).collect();
        let keys = [&keys_a[..], &keys_b[..]];
        let modulus = ring.ntt(limb).modulus();
        slices::add_moved_products(ring.kernel(), modulus, sources, digits, keys, b, start, sums);
    }
}

/// The digits of a polynomial, by limb, then digit, transformed.
pub(super) fn decompose(ring: &Ring, poly: &Poly<Coefficients>, digit_bits: u32) -> Vec<Poly<Values>> {
    check_digits(digit_bits);
    let mut out: Vec<Poly<Values>> = (0..digits_in(ring, digit_bits)).map(|_| ring.zero()).collect();
    let mut limbs: Vec<_> = out.iter_mut().map(|digit| ring.limbs_mut(digit)).collect();
    for limb in 0..ring.limbs() {
        let digits = limbs.iter_mut().filter_map(|limbs| Some(limbs.next()?.1));
        decompose_limb(ring, ring, poly, digit_bits, limb, digits);
    }
    drop(limbs);
    out
}

/// One limb of the digits of a polynomial of `own`, which may be `ring` with fewer primes.
pub(super) fn decompose_limb<'a>(
    ring: &Ring,
    own: &Ring,
    poly: &Poly<Coefficients>,
    digit_bits: u32,
    limb: usize,
    mut out: impl Iterator<Item = &'a mut [u64]>,
) {
    let ntt = ring.ntt(limb);
    for (from, residues) in own.moduli().zip(own.limbs_of(poly)) {
        let digits = slices::Digits::new(from, digit_bits);
        for (digit, out) in (0..digits.count()).zip(&mut out) {
            digits.take(ring.kernel(), ntt.modulus(), residues, digit, out);
            ntt.forward(out);
        }
    }
}

/// What an automorphism of ciphertexts takes: its permutation and the key back to s.
pub struct GaloisKey {
    pub(super) automorphism: Automorphism,
    pub(super) key: SwitchingKey,
}

impl GaloisKey {
    /// The key for `X -> X^element`, with digits of `digit_bits` bits.
    ///
    /// # Panics
    /// As [`Ring::automorphism`] and [`SwitchingKey::new`].
    pub fn new(secret: &SecretKey, element: usize, digit_bits: u32, prg: &mut Prg) -> Self {
        let automorphism = secret.ring.automorphism(element);
        let moved = automorphism.apply(&secret.ring, &secret.s);
        Self { automorphism, key: SwitchingKey::new(&moved, secret, digit_bits, prg) }
    }

    /// The same for a halves that are rounded to multiples of the last prime ([`SwitchingKey`]).
    ///
    /// # Panics
    /// Also if there is only one prime.
    pub fn rounded(secret: &SecretKey, element: usize, digit_bits: u32, prg: &mut Prg) -> Self {
        let automorphism = secret.ring.automorphism(element);
        let moved = automorphism.apply(&secret.ring, &secret.s);
        Self { automorphism, key: SwitchingKey::rounded(&moved, secret, digit_bits, prg) }
    }

    /// The key of an automorphism whose switching key a peer sent.
    ///
    /// # Panics
    /// As [`Ring::automorphism`].
    pub fn from_parts(ring: &Ring, element: usize, key: SwitchingKey) -> Self {
        Self { automorphism: ring.automorphism(element), key }
    }

    /// g: it maps X to X^g.
    pub fn element(&self) -> usize {
        self.automorphism.element()
    }

    /// The key from the moved secret back.
    pub fn switching_key(&self) -> &SwitchingKey {
        &self.key
    }
}
