//! What a server sends back, made safe to give away, and how the client reads it.
//!
//! ```text
//! [Σ_i m_i·X^(i·N/2^l)] + noise  <-  Answer(r_0, r_1, …),   m_i the coefficient 0 of r_i,   l = ceil(log2 of their number)
//! ```
//!
//! A ciphertext that comes out of a network carries more than its logits. Its other coefficients are sums over weights.
//! Its noise depends on weights, on the client's values and on its keys, all of which the client can compute for
//! weights that it guesses. Its random half is a function of the client's ciphertexts and of weights. Three steps remove
//! that, for a client that follows the protocol, up to its decryption:
//!
//! 1. Packing and a [trace](Packer::trace) remove every coefficient that is no logit. Exactly: what they leave there is
//!    noise of key switches.
//! 2. An encryption of zero under the client's public key is added. The random half is then `a + p·u + e1` for a fresh
//!    u: pseudorandom (RLWE with the secret u and the key's p), whatever a was.
//! 3. Noise that is uniform in -R..R is added to every coefficient, R a power of two.
//!
//! **Bound.** Noise of a key, a fresh encryption and e1 is centred binomial, so never above B = 21; s and u are ternary.
//! Let D be the modulus of level 1, which is one digit for the keys of packing, and P the product of their special
//! primes. A key switch of a merge or of a step of the trace adds at most
//!
//! ```text
//! W = N·B·(D/2)/P + (1 + N)/2
//! ```
//!
//! to a coefficient: the digit times the key's noise, divided, and the rounding of both halves by P, one of them times
//! s. A coefficient that a step keeps is doubled by it; others vanish at the step that is theirs, noise included, since the
//! automorphism keeps or negates each multiple of its t. So log2 N steps leave at most `(N - 1)·W`, and with step 2
//!
//! ```text
//! E = (N - 1)·W + B·(1 + 2·N)
//! ```
//!
//! at every coefficient, for every key and every input: no probability, no assumption on digits. Two uniform noises on
//! 2·R integers that are moved by e differ by the statistical distance |e|/(2·R). So N coefficients differ from those of
//! an answer whose noise is the uniform one alone by at most `N·E/(2·R)` a query. With [`SPECIAL`] = 3 special primes the
//! digit's part vanishes: E = 2^31.0, R = 2^87 and a distance of 2^-41.0 for [`Literal::n16`](crate::Literal::n16). With
//! two it would be 2^-36.5, at the price of 26 MB of keys instead of 33. (What typically happens is less: the
//! [deviation](Packer::deviation) of all steps is 2^21.1.)
//!
//! At the logits the error of the computation (polynomials, bootstraps) is added to E and is far larger. Noise hides it as
//! far as R covers it: what a client learns are the logits *as computed*, up to R, which is 2^-9 of their bound.
//!
//! **Scale.** The answer is at [`LEVEL`], of two primes. A logit as large as its bound is the integer 2^[`log_scale`]: a
//! sixteenth of the modulus, so logits of up to 8 bounds do not wrap around.
//!
//! **Who learns what.** The client: logits as computed, to 2^-9 of their bound. It must not give decrypted numbers to
//! anybody: their errors tell of its secret (Li and Micciancio, EUROCRYPT 2021). [`round`] makes them coarser than the
//! noise. An active client may send a public key that is none, and undo step 2; it then learns the random half of step
//! 1, which depends on weights. The server learns nothing.
//!
//! **Bytes.** One ciphertext of level 1 (1.6 MB for N = 2^16), however many logits there are, up to N.

use jaguar_ring::prg::Prg;
use zeroize::Zeroizing;

use crate::circuits::Evaluator;
use crate::packing::Packer;
use crate::poly::{Coefficients, Poly, Secret};
use crate::{Ciphertext, Context, Error, Parameters, PublicKey, SecretKey};

const ANSWER: &str = "an answer";

/// The level of an answer: the public key and the keys of packing must reach it.
pub const LEVEL: usize = 1;
/// How many special primes the keys of packing must have, at the least.
pub const SPECIAL: usize = 3;

/// log2 of how much larger than its bound a logit may be before it wraps around.
const HEADROOM: u32 = 3;
/// Noise reaches 2^-9 of the bound of the logits, the client rounds to 2^-8 of it.
const NOISE_BITS: u32 = 9;
const GRID_BITS: i32 = 8;
/// log2 of R: two words hold a number, and the second is used.
const NOISE_RANGE: std::ops::RangeInclusive<u32> = 64..=126;
/// The largest that noise of a key and of a fresh encryption can be: that of 42 coins.
const LARGEST_NOISE: f64 = 21.0;
/// log2 of the largest statistical distance of an answer.
pub const MOST_DISTANCE: f64 = -40.0;

/// R beside the integer that stands for a logit as large as its bound.
pub const RELATIVE_NOISE: f64 = 1.0 / (1u64 << NOISE_BITS) as f64;

/// log2 of the integer that stands for a logit as large as its bound.
///
/// # Errors
/// If the set has no level 1, or its modulus is not within 2^-10 of a power of two (so that none is given away).
pub fn log_scale(params: &Parameters) -> Result<u32, Error> {
    let refuse = |why: String| Error::Shape { what: ANSWER, why };
    if params.top() < LEVEL {
        return Err(refuse(format!("a set without level {LEVEL}")));
    }
    let modulus = params.log_modulus_at(LEVEL);
    let rounded = modulus.round();
    let bits = rounded as u32;
    if (modulus - rounded).abs() > 1.0 / 1024.0 || bits < 1 + HEADROOM + NOISE_BITS + params.log_n() {
        return Err(refuse(format!("a modulus of {modulus:.3} bits")));
    }
    Ok(bits - 1 - HEADROOM)
}

/// How much noise is added, and what it hides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// log2 of R.
    pub log_range: u32,
    /// log2 of E, the largest noise of packing, trace and the encryption of zero.
    pub log_error: f64,
    /// log2 of the statistical distance of an answer from one without that noise.
    pub log_distance: f64,
}

impl Noise {
    /// Bounds the noise for packing keys of so many special primes, however many logits there are.
    ///
    /// # Errors
    /// If there are not so many, or level 1 is more than one digit for them; as [`log_scale`].
    pub fn derive(params: &Parameters, special: usize) -> Result<Self, Error> {
        let log_range = log_scale(params)? - NOISE_BITS;
        if !NOISE_RANGE.contains(&log_range) {
            let why = format!("noise of {log_range} bits, not {NOISE_RANGE:?}");
            return Err(Error::Shape { what: ANSWER, why });
        }
        let primes = params.special().get(..special).unwrap_or(&[]);
        let log_special: f64 = primes.iter().map(|&p| (p as f64).log2()).sum();
        let log_digit = params.log_modulus_at(LEVEL);
        if primes.is_empty() || log_digit > log_special {
            let why = format!("a digit of {log_digit:.1} bits for {special} special primes");
            return Err(Error::Shape { what: ANSWER, why });
        }
        let n = params.n() as f64;
        // Divisions and digits are rounded with fractions of 49 bits: beyond a half by 2^-40 of it at most.
        let slack = 1.0 + 2f64.powi(-40);
        let digit = n * LARGEST_NOISE * (log_digit - 1.0 - log_special).exp2();
        let switch = slack * (digit + (1.0 + n) / 2.0);
        let error = (n - 1.0) * switch + LARGEST_NOISE * (1.0 + 2.0 * n);
        let log_distance = f64::from(params.log_n()) + error.log2() - f64::from(log_range + 1);
        Ok(Self { log_range, log_error: error.log2(), log_distance })
    }
}

/// Makes answers for one client.
pub struct Answerer<'a> {
    packer: &'a Packer,
    public: &'a PublicKey,
    noise: Noise,
    log_scale: u32,
}

impl<'a> Answerer<'a> {
    /// With the client's keys.
    ///
    /// # Errors
    /// If the public key or the keys of packing do not reach [`LEVEL`], the latter have fewer special primes than
    /// [`SPECIAL`], or noise would not hide what it must to [`MOST_DISTANCE`].
    pub fn new(packer: &'a Packer, public: &'a PublicKey) -> Result<Self, Error> {
        for found in [packer.level(), public.level()] {
            if found < LEVEL {
                let expected = format!("keys of level {LEVEL} or more");
                return Err(Error::Level { operation: ANSWER, found, expected });
            }
        }
        let found = packer.special(LEVEL)?;
        if found < SPECIAL {
            let (what, expected) = ("special primes", format!("{SPECIAL} or more"));
            return Err(Error::Count { operation: ANSWER, what, found, expected });
        }
        let params = packer.evaluator().context().params();
        let noise = Noise::derive(params, found)?;
        if noise.log_distance > MOST_DISTANCE {
            let why = format!(
                "noise of 2^{} beside 2^{:.1}: a distance of 2^{:.1}",
                noise.log_range, noise.log_error, noise.log_distance
            );
            return Err(Error::Shape { what: ANSWER, why });
        }
        Ok(Self { packer, public, noise, log_scale: log_scale(params)? })
    }

    /// The noise of its answers.
    pub fn noise(&self) -> Noise {
        self.noise
    }

    /// log2 of the scale of what it takes: packing and trace multiply by N.
    pub fn log_input_scale(&self) -> u32 {
        self.log_scale - self.packer.evaluator().context().params().log_n()
    }

    /// Gathers coefficient 0 of `count` ciphertexts of [`LEVEL`], at the scale 2^[`log_input_scale`](Self::log_input_scale), and
    /// nothing else of them. `leaf(c)` makes ciphertext c when its turn comes. Randomness comes from `prg`, which must be
    /// secret and never give the same again.
    ///
    /// # Errors
    /// Of `leaf`; if there is none, or more than N; if a level or scale is another.
    pub fn answer<E: From<Error> + Send>(
        &self,
        count: usize,
        leaf: impl Fn(usize) -> Result<Ciphertext, E> + Sync,
        prg: &mut Prg,
    ) -> Result<Ciphertext, E> {
        let traced = self.gather(count, leaf)?;
        Ok(self.flooded(&self.fresh(&traced, prg)?, prg))
    }

    /// Step 1.
    pub(crate) fn gather<E: From<Error> + Send>(
        &self,
        count: usize,
        leaf: impl Fn(usize) -> Result<Ciphertext, E> + Sync,
    ) -> Result<Ciphertext, E> {
        let log_n = self.packer.evaluator().context().params().log_n();
        let scale = f64::from(self.log_input_scale()).exp2();
        let packed = self.packer.pack(count, log_n, |c| -> Result<Option<Ciphertext>, E> {
            let ct = leaf(c)?;
            if ct.level != LEVEL {
                let expected = LEVEL.to_string();
                return Err(Error::Level { operation: ANSWER, found: ct.level, expected }.into());
            }
            if ct.scale != scale {
                return Err(Error::Scales { operation: ANSWER, first: ct.scale, second: scale }.into());
            }
            Ok(Some(ct))
        })?;
        Ok(self.packer.trace(&packed, log_n - Packer::merges(count))?)
    }

    /// Step 2.
    pub(crate) fn fresh(&self, ct: &Ciphertext, prg: &mut Prg) -> Result<Ciphertext, Error> {
        let evaluator = self.packer.evaluator();
        let zero = evaluator.context().encode_coefficients(&[0.0], LEVEL, 1.0)?;
        let zero = evaluator.with_scale(self.public.encrypt(&zero, prg)?, ct.scale);
        evaluator.add(ct, &zero)
    }

    /// Step 3.
    pub(crate) fn flooded(&self, ct: &Ciphertext, prg: &mut Prg) -> Ciphertext {
        let context = self.packer.evaluator().context();
        let noise = context.uniform_noise(ct.b.ordinary(), self.noise.log_range, prg);
        let mut flooded = ct.clone();
        let noise = Secret::new(context.to_values(noise.into_inner()));
        context.add(&mut flooded.b, &noise);
        flooded
    }
}

impl Context {
    /// A polynomial whose coefficients are uniform in -2^log_range..2^log_range, log_range as [`NOISE_RANGE`] has it.
    fn uniform_noise(&self, ordinary: usize, log_range: u32, prg: &mut Prg) -> Secret<Coefficients> {
        // Two words each: the lower 64 bits, and those above, of which there are log_range + 1 - 64.
        let mut words = Zeroizing::new(vec![0u64; 2 * self.params().n()]);
        prg.fill_u64(&mut words);
        let above = log_range + 1 - u64::BITS;
        let noise: Poly<Coefficients> = self.make(ordinary, 0, |prime, _, limb| {
            let m = self.modulus(prime);
            let high = m.factor(m.reduce(u64::MAX) + 1);
            let offset = (0..log_range).fold(1, |power, _| m.add(power, power));
            for (out, pair) in limb.iter_mut().zip(words.chunks_exact(2)) {
                let upper = m.mul_factor(pair[1] & jaguar_ring::mask(above), high);
                *out = m.sub(m.add(m.reduce(pair[0]), upper), offset);
            }
        });
        Secret::new(noise)
    }
}

/// Why there is nothing to be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is no answer of this kind at all.
    #[error(transparent)]
    Ckks(#[from] Error),
    /// There is something between the numbers.
    #[error("the answer is spoilt, or was made with the keys of another client")]
    Spoilt,
}

/// Decrypts `count` numbers of an answer, in units of their bound: secret, and not yet [rounded](round).
///
/// # Errors
/// If it has another level or scale, or there are not so many places; [`ReadError::Spoilt`] if coefficients between the
/// numbers are not noise, as under another key, where each is one in 2^11 times only.
pub fn read(secret: &SecretKey, ct: &Ciphertext, count: usize) -> Result<Zeroizing<Vec<f64>>, ReadError> {
    let params = secret.context().params();
    let scale = f64::from(log_scale(params)?).exp2();
    if ct.level != LEVEL {
        return Err(Error::Level { operation: ANSWER, found: ct.level, expected: LEVEL.to_string() }.into());
    }
    if ct.scale != scale {
        return Err(Error::Scales { operation: ANSWER, first: ct.scale, second: scale }.into());
    }
    if !(1..=params.n()).contains(&count) {
        let expected = format!("1 to {}", params.n());
        return Err(Error::Count { operation: ANSWER, what: "numbers", found: count, expected }.into());
    }
    let coefficients = secret.decrypt(ct);
    let distance = params.n() >> Packer::merges(count);
    // All are looked at, also behind one that is spoilt.
    let spoilt = coefficients.iter().enumerate().fold(false, |spoilt, (i, x)| {
        let between = i % distance != 0 || i / distance >= count;
        spoilt | (between & !is_noise(*x))
    });
    if spoilt {
        return Err(ReadError::Spoilt);
    }
    Ok(Zeroizing::new(coefficients.iter().step_by(distance).take(count).copied().collect()))
}

/// Whether a number that was [`read`] is noise around zero.
pub fn is_noise(number: f64) -> bool {
    number.abs() <= 2.0 * RELATIVE_NOISE
}

/// Rounds a logit to the grid of 2^-8 of its bound: coarser than the noise.
pub fn round(logit: f64, bound: f64) -> f64 {
    let step = bound * 2f64.powi(-GRID_BITS);
    (logit / step).round() * step
}

/// Bounds what noise and rounding change a logit by.
pub fn most_error(bound: f64) -> f64 {
    bound * (RELATIVE_NOISE + 2f64.powi(-GRID_BITS - 1) + 2f64.powi(-40))
}
