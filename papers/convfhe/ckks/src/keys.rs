//! Secrets, and what is published of them: a public key and evaluation keys.
//!
//! Noise is centred binomial of variance 10.5; the main secret is dense, each coefficient -1, 0 or 1 with the same
//! chance. The ephemeral secret, under which the modulus is raised, has few coefficients that are not 0, and is
//! forgotten when its two keys are made (ePrint 2022/024). RLWE with these secrets is assumed to be hard, as
//! estimated in `papers/convfhe/params/ckks.json`, and to stay so if functions of a secret are encrypted under it
//! (circular security).
//!
//! The random half of everything fresh comes from a seed of 32 bytes: residues of limb i from `derive(seed, label,
//! [digit, i])` ([`jaguar_ring::prg`]), by rejection. So half of a key is not sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use jaguar_ring::cpu::secret::declassify;
use jaguar_ring::modular::{Modulus, slices};
use jaguar_ring::prg::Prg;
use jaguar_ring::sample;
use zeroize::Zeroizing;

use crate::ciphertext::{Ciphertext, Plaintext};
use crate::circuits::Counts;
use crate::context::SwitchingKey;
use crate::poly::{Coefficients, Poly, Secret, Values};
use crate::spec::{KeyKind, KeySpec};
use crate::{Context, Error};

/// A secret polynomial of small coefficients: neither copied nor printed, wiped when it is dropped.
pub struct SecretKey {
    context: Arc<Context>,
    /// Modulo all primes of Q and P.
    s: Secret<Values>,
}

/// Small coefficients, wiped when dropped.
pub(crate) type Small = Zeroizing<Vec<i8>>;

/// Uniform residues of one limb out of a stream. How many words of the stream were refused is all that its time tells.
fn uniform(m: &Modulus, prg: &mut Prg, out: &mut [u64]) {
    let mut words = [0u64; 256];
    let mut filled = 0;
    while filled < out.len() {
        let wanted = (out.len() - filled).min(words.len());
        prg.fill_u64(&mut words[..wanted]);
        for word in &words[..wanted] {
            let candidate = word >> (u64::BITS - m.bits());
            if candidate < m.value() {
                out[filled] = candidate;
                filled += 1;
            }
        }
    }
}

/// A number below `limit` out of a stream, by rejection.
fn below(prg: &mut Prg, limit: u64) -> u64 {
    let bits = u64::BITS - limit.leading_zeros();
    loop {
        let candidate = prg.next_u64() >> (u64::BITS - bits);
        // Whether it was refused tells nothing of the one that is taken.
        let mut refused = candidate >= limit;
        declassify(std::slice::from_mut(&mut refused));
        if !refused {
            return candidate;
        }
    }
}

/// `weight` of n coefficients are 1 or -1, all such choices with the same chance. Takes the same time and touches the
/// same memory for each: a coefficient is found by counting zeros from the beginning.
fn sparse(prg: &mut Prg, n: usize, weight: usize) -> Small {
    let mut s = Zeroizing::new(vec![0i8; n]);
    for taken in 0..weight {
        let place = below(prg, (n - taken) as u64) as u32;
        let sign = 1 - 2 * (prg.next_u64() & 1) as i32;
        let mut zeros = 0u32;
        for value in s.iter_mut() {
            // 1 where the coefficient is 0, and where it is the one.
            let zero = 1 - (u32::from(value.unsigned_abs()) & 1);
            let distance = zeros ^ place;
            let same = 1 ^ ((distance | distance.wrapping_neg()) >> 31);
            *value += (std::hint::black_box(zero & same) as i32 * sign) as i8;
            zeros += zero;
        }
    }
    s
}

impl Context {
    fn noise(&self, prg: &mut Prg) -> Small {
        let mut e = Zeroizing::new(vec![0i8; self.params().n()]);
        sample::noise(self.kernel(), prg, &mut e);
        e
    }

    fn ternary(&self, prg: &mut Prg) -> Small {
        let mut s = Zeroizing::new(vec![0i8; self.params().n()]);
        sample::ternary(self.kernel(), prg, &mut s);
        s
    }

    fn small_to_values(&self, small: &Small, ordinary: usize, special: usize) -> Secret<Values> {
        Secret::new(self.make(ordinary, special, |prime, _, limb| {
            let m = self.modulus(prime);
            limb.iter_mut().zip(small.iter()).for_each(|(out, &x)| *out = m.reduce_signed(x.into()));
            self.ntt(prime).forward(limb);
        }))
    }

    /// The random half of what is fresh, by its seed.
    pub(crate) fn random_half(
        &self,
        seed: &[u8; 32],
        label: &str,
        digit: usize,
        ordinary: usize,
        special: usize,
    ) -> Poly<Values> {
        self.make(ordinary, special, |prime, _, limb| {
            let mut prg = Prg::derive(seed, label, &[digit as u64, prime as u64]);
            uniform(self.modulus(prime), &mut prg, limb);
        })
    }
}

pub(crate) const CIPHERTEXT_LABEL: &str = "jaguar ckks ciphertext";
pub(crate) const KEY_LABEL: &str = "jaguar ckks key";

/// Bits of the modulus that a phase is known by, if it has so many.
const PHASE_BITS: f64 = 400.0;

fn seed(prg: &mut Prg) -> [u8; 32] {
    let mut seed = [0; 32];
    prg.fill(&mut seed);
    // It is published.
    declassify(&mut seed);
    seed
}

impl SecretKey {
    /// A fresh dense secret.
    pub fn generate(context: &Arc<Context>) -> Self {
        Self::from_prg(context, &mut Prg::from_os())
    }

    /// A dense secret from given randomness, which must be secret and never give the same again (tests fix it).
    pub fn from_prg(context: &Arc<Context>, prg: &mut Prg) -> Self {
        Self::from_small(context, &context.ternary(prg))
    }

    /// The secret with these coefficients, which are -1, 0 or 1.
    pub(crate) fn from_small(context: &Arc<Context>, small: &Small) -> Self {
        let params = context.params();
        let s = context.small_to_values(small, params.primes().len(), params.special().len());
        Self { context: Arc::clone(context), s }
    }

    /// The ring that it is of.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its coefficients.
    pub(crate) fn coefficients(&self) -> Small {
        let mut first = Secret::new(self.s.first(1, 0));
        self.context.ntt(0).backward(first.limb_mut(0));
        let m = self.context.modulus(0);
        Zeroizing::new(first.limb(0).iter().map(|&x| m.centred(x) as i8).collect())
    }

    /// `e - a·s`, for an a of some of the primes.
    fn hide(&self, a: &Poly<Values>, prg: &mut Prg) -> Poly<Values> {
        let context = &self.context;
        let e = context.noise(prg);
        let mut hidden = context.small_to_values(&e, a.ordinary(), a.special());
        context.change(&mut hidden, |prime, i, limb| {
            let mut product: Poly<Values> = context.unset(1, 0);
            context.multiply_into(prime, product.limb_mut(0), a.limb(i), self.s.limb(prime));
            slices::sub(context.kernel(), context.modulus(prime), limb, product.limb(0));
            drop(Secret::new(product));
        });
        hidden.into_inner()
    }

    /// Encrypts, with randomness from `prg`, which must be secret and never give the same again. The random half
    /// comes from the seed that is returned with the ciphertext.
    pub fn encrypt(&self, plaintext: &Plaintext, prg: &mut Prg) -> (Ciphertext, [u8; 32]) {
        let context = &self.context;
        let seed = seed(prg);
        let a = context.random_half(&seed, CIPHERTEXT_LABEL, 0, plaintext.poly().ordinary(), 0);
        let mut b = self.hide(&a, prg);
        context.add(&mut b, plaintext.poly());
        (Ciphertext { a, b, level: plaintext.level, scale: plaintext.scale }, seed)
    }

    /// Decrypts: N coefficients, divided by the scale, exact to 53 bits of the phase, which is below 2^399. They are
    /// secret, and their errors tell of the secret key: round them before anybody sees them (Li and Micciancio,
    /// EUROCRYPT 2021).
    pub fn decrypt(&self, ct: &Ciphertext) -> Zeroizing<Vec<f64>> {
        let context = &self.context;
        // As many primes as the phase needs.
        let primes = context.params().primes()[..ct.a.ordinary()].iter();
        let before = primes.scan(0.0, |bits, &p| Some(std::mem::replace(bits, *bits + (p as f64).log2())));
        let count = before.take_while(|&bits| bits < PHASE_BITS).count();
        let mut phase = Secret::new(context.make::<Values>(count, 0, |prime, i, limb| {
            limb.copy_from_slice(ct.b.limb(i));
            slices::multiply_add(
                context.kernel(),
                context.modulus(prime),
                limb,
                ct.a.limb(i),
                self.s.limb(prime),
            );
        }));
        context.change(&mut phase, |prime, _, limb| context.ntt(prime).backward(limb));
        let phase: Secret<Coefficients> = Secret::new(phase.into_inner().into_form());
        let mut coefficients = context.centred(&phase);
        coefficients.iter_mut().for_each(|x| *x /= ct.scale);
        coefficients
    }

    /// A public key for ciphertexts of up to a level.
    ///
    /// # Errors
    /// If there is no such level.
    pub fn public_key(&self, level: usize, prg: &mut Prg) -> Result<PublicKey, Error> {
        self.context.check_level("public key", level)?;
        let seed = seed(prg);
        let a = self.context.random_half(&seed, CIPHERTEXT_LABEL, 0, self.context.params().limbs(level), 0);
        let b = self.hide(&a, prg);
        Ok(PublicKey { context: Arc::clone(&self.context), seed, a, b, level })
    }

    /// An encryption, digit by digit, of P times a secret, under this one.
    fn switching_key(
        &self,
        from: &Poly<Values>,
        spec: &KeySpec,
        prg: &mut Prg,
    ) -> Result<SwitchingKey, Error> {
        let context = &self.context;
        let (ordinary, special, digits) = context.key_shape(spec)?;
        let seed = seed(prg);
        let digit = |(j, primes): (usize, std::ops::Range<usize>)| {
            let a = context.random_half(&seed, KEY_LABEL, j, ordinary, special);
            let mut b = self.hide(&a, prg);
            context.change(&mut b, |prime, i, limb| {
                if primes.contains(&i) {
                    let m = context.modulus(prime);
                    let mut product: Poly<Values> = context.unset(1, 0);
                    let factor = context.special_modulo(special, prime);
                    slices::affine(
                        context.kernel(),
                        m,
                        product.limb_mut(0),
                        from.limb(i),
                        m.bits(),
                        factor,
                        0,
                    );
                    slices::add(context.kernel(), m, limb, product.limb(0));
                    drop(Secret::new(product));
                }
            });
            [a, b]
        };
        Ok(SwitchingKey { spec: *spec, seed, digits: digits.into_iter().enumerate().map(digit).collect() })
    }
}

/// An encryption of zero, with which anybody encrypts.
pub struct PublicKey {
    pub(crate) context: Arc<Context>,
    pub(crate) seed: [u8; 32],
    pub(crate) a: Poly<Values>,
    pub(crate) b: Poly<Values>,
    pub(crate) level: usize,
}

impl PublicKey {
    /// Up to which level it encrypts.
    pub fn level(&self) -> usize {
        self.level
    }

    /// Encrypts: `(a·u + e1, b·u + e0 + plaintext)` for a fresh ternary u. Randomness comes from `prg`, which must be
    /// secret and never give the same again.
    ///
    /// # Errors
    /// If the plaintext has a higher level.
    pub fn encrypt(&self, plaintext: &Plaintext, prg: &mut Prg) -> Result<Ciphertext, Error> {
        let context = &self.context;
        if plaintext.level > self.level {
            let expected = format!("at most {}", self.level);
            return Err(Error::Level { operation: "encrypt", found: plaintext.level, expected });
        }
        let count = plaintext.poly().ordinary();
        let u = context.small_to_values(&context.ternary(prg), count, 0);
        let mut half = |key: &Poly<Values>| {
            let mut sum = context.small_to_values(&context.noise(prg), count, 0);
            context.change(&mut sum, |prime, i, limb| {
                slices::multiply_add(context.kernel(), context.modulus(prime), limb, key.limb(i), u.limb(i));
            });
            sum.into_inner()
        };
        let (a, mut b) = (half(&self.a), half(&self.b));
        context.add(&mut b, plaintext.poly());
        Ok(Ciphertext { a, b, level: plaintext.level, scale: plaintext.scale })
    }
}

impl Context {
    /// The exponent of the automorphism that rotates slots to the left by so many steps.
    pub fn rotation(&self, steps: usize) -> usize {
        let n = self.params().n();
        (0..steps % (n / 2)).fold(1, |power, _| power * 5 % (2 * n))
    }

    /// The exponent of the automorphism that conjugates slots.
    pub fn conjugation(&self) -> usize {
        2 * self.params().n() - 1
    }

    /// A key with all special primes.
    pub fn key_spec(&self, kind: KeyKind, level: usize) -> KeySpec {
        KeySpec { kind, level, special: self.params().special().len() }
    }

    /// What a raise takes, apart from rotations.
    pub fn ephemeral_keys(&self) -> [KeySpec; 2] {
        [KeyKind::ToEphemeral, KeyKind::FromEphemeral].map(|kind| self.key_spec(kind, self.params().top()))
    }

    /// All keys that circuits take, each up to the level where it is used, with all special primes.
    pub fn circuit_keys(&self, counts: &Counts) -> Vec<KeySpec> {
        let products = counts.products().map(|level| (KeyKind::Relinearise, level));
        let conjugations = counts.conjugations.map(|level| (KeyKind::Galois(self.conjugation()), level));
        let rotation = |(&steps, &level)| (KeyKind::Galois(self.rotation(steps)), level);
        let all = products.into_iter().chain(conjugations).chain(counts.rotations.iter().map(rotation));
        let raises = if counts.total().raises > 0 { self.ephemeral_keys().to_vec() } else { Vec::new() };
        raises.into_iter().chain(all.map(|(kind, level)| self.key_spec(kind, level))).collect()
    }

    /// Primes of Q, special primes and digits of a key.
    pub(crate) fn key_shape(
        &self,
        spec: &KeySpec,
    ) -> Result<(usize, usize, Vec<std::ops::Range<usize>>), Error> {
        let params = self.params();
        let count = params.special().len();
        match spec.kind {
            KeyKind::ToEphemeral => {
                let limbs = params.limbs(0);
                Ok((limbs, 1, self.digits(limbs, 1).collect()))
            }
            KeyKind::FromEphemeral => {
                let limbs = params.primes().len();
                Ok((limbs, count, std::iter::once(0..limbs).collect()))
            }
            KeyKind::Relinearise | KeyKind::Galois(_) => {
                self.check_level("evaluation key", spec.level)?;
                if !(1..=count).contains(&spec.special) {
                    let (what, expected) = ("special primes", format!("1 to {count}"));
                    return Err(Error::Count {
                        operation: "evaluation key",
                        what,
                        found: spec.special,
                        expected,
                    });
                }
                if let KeyKind::Galois(element) = spec.kind
                    && (element % 2 == 0 || element >= 2 * params.n())
                {
                    let (what, expected) =
                        ("as the exponent", format!("an odd number below {}", 2 * params.n()));
                    return Err(Error::Count { operation: "evaluation key", what, found: element, expected });
                }
                let limbs = params.limbs(spec.level);
                Ok((limbs, spec.special, self.digits(limbs, spec.special).collect()))
            }
        }
    }
}

/// Makes evaluation keys one after the other: so many need not be in memory together.
pub struct KeyGenerator<'a> {
    secret: &'a SecretKey,
    ephemeral: SecretKey,
    prg: Prg,
}

impl<'a> KeyGenerator<'a> {
    /// A generator with an ephemeral secret of its own, which is forgotten with it. Both ephemeral keys must come
    /// from one generator.
    pub fn new(secret: &'a SecretKey) -> Self {
        Self::from_prg(secret, Prg::from_os())
    }

    /// The same from given randomness, which must be secret and never give the same again (tests fix it).
    pub fn from_prg(secret: &'a SecretKey, mut prg: Prg) -> Self {
        let params = secret.context.params();
        let small = sparse(&mut prg, params.n(), params.ephemeral_weight());
        Self { ephemeral: SecretKey::from_small(&secret.context, &small), secret, prg }
    }

    /// Makes one key.
    ///
    /// # Errors
    /// If its level, its special primes or its automorphism are none of this set's.
    pub fn key(&mut self, spec: &KeySpec) -> Result<SwitchingKey, Error> {
        let context = &self.secret.context;
        let (ordinary, _, _) = context.key_shape(spec)?;
        let (s, prg) = (&self.secret.s, &mut self.prg);
        match spec.kind {
            KeyKind::Relinearise => {
                let square = Secret::new(context.make(ordinary, 0, |prime, i, limb| {
                    context.multiply_into(prime, limb, s.limb(i), s.limb(i));
                }));
                self.secret.switching_key(&square, spec, prg)
            }
            KeyKind::Galois(element) => {
                let moved = Secret::new(context.automorphism(&Secret::new(s.first(ordinary, 0)), element));
                self.secret.switching_key(&moved, spec, prg)
            }
            KeyKind::ToEphemeral => self.ephemeral.switching_key(s, spec, prg),
            KeyKind::FromEphemeral => self.secret.switching_key(&self.ephemeral.s, spec, prg),
        }
    }
}

/// Evaluation keys, by what they are for.
#[derive(Default)]
pub struct EvaluationKeys {
    keys: BTreeMap<KeyKind, SwitchingKey>,
}

impl EvaluationKeys {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the keys of a list.
    ///
    /// # Errors
    /// As [`KeyGenerator::key`].
    pub fn generate(secret: &SecretKey, specs: &[KeySpec]) -> Result<Self, Error> {
        let mut generator = KeyGenerator::new(secret);
        let mut keys = Self::new();
        for spec in specs {
            keys.insert(generator.key(spec)?);
        }
        Ok(keys)
    }

    /// Adds a key, in place of one for the same purpose.
    pub fn insert(&mut self, key: SwitchingKey) {
        self.keys.insert(key.spec.kind, key);
    }

    /// Whether there is a key for this purpose, for its level or a higher one, with as many special primes.
    pub fn has(&self, context: &Context, spec: &KeySpec) -> bool {
        match (self.keys.get(&spec.kind), context.key_shape(spec)) {
            (Some(key), Ok((ordinary, special, _))) => key.ordinary() >= ordinary && key.special() == special,
            (None, _) | (Some(_), Err(_)) => false,
        }
    }

    pub(crate) fn keys_mut(&mut self) -> impl Iterator<Item = &mut SwitchingKey> {
        self.keys.values_mut()
    }

    /// The key of a kind, if it has at least so many primes of Q.
    pub(crate) fn find(
        &self,
        context: &Context,
        kind: KeyKind,
        level: usize,
    ) -> Result<&SwitchingKey, Error> {
        let limbs = context.params().limbs(level);
        let found = self.keys.get(&kind).filter(|key| key.ordinary() >= limbs);
        found.ok_or_else(|| Error::Key { what: format!("{kind:?}"), level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_secrets_have_their_weight_everywhere() {
        let mut prg = Prg::new([5; 32]);
        let (n, weight, draws) = (64, 8, 20_000);
        let mut counts = vec![[0u32; 2]; n];
        for _ in 0..draws {
            let s = sparse(&mut prg, n, weight);
            assert_eq!(s.iter().filter(|&&x| x == 1 || x == -1).count(), weight);
            assert_eq!(s.iter().filter(|&&x| x == 0).count(), n - weight);
            for (count, &x) in counts.iter_mut().zip(s.iter()) {
                count[0] += u32::from(x == 1);
                count[1] += u32::from(x == -1);
            }
        }
        // 1250 of each are expected, with a deviation of 34.
        assert!(counts.iter().flatten().all(|&count| count.abs_diff(1250) < 240), "{counts:?}");
    }

    #[test]
    fn numbers_below_a_limit_are_uniform() {
        let mut prg = Prg::new([6; 32]);
        let mut counts = [0u32; 7];
        (0..70_000).for_each(|_| counts[below(&mut prg, 7) as usize] += 1);
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 650), "{counts:?}");
        assert!((0..100).all(|_| below(&mut prg, 1) == 0));
    }
}
