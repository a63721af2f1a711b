//! Packing: single coefficients of many ciphertexts are gathered in one (PackLWEs: Chen, Dai, Kim, Song, ACNS 2021,
//! algorithm 2; Kim and Guyot, IEEE TIFS 2023, algorithm 2, begin it at a step).
//!
//! ```text
//! 2^l·Σ_c m_c[i·2^s]·X^(i·2^s + c·2^(s-l)) + e  <-  Pack(m_0, m_1, …),  up to 2^l ciphertexts, step 2^s
//! ```
//!
//! **Mathematics.** Ciphertexts are merged by twos, l times over. One merge is
//!
//! ```text
//! (even + X^t·odd) + φ(even - X^t·odd),   φ: X → X^(N/t + 1),   t = 2^(s-l), …, 2^(s-1)
//! ```
//!
//! φ keeps X^i where 2t divides i, and negates it where only t does. So coefficients of `even` at multiples of 2t, and
//! those of `odd` moved by t, are doubled, and the other multiples of t vanish. A [trace](Packer::trace) is the same
//! without `odd`: it goes on with smaller t, until nothing else is left.
//!
//! **Error.** e is the sum of the merges' key switches, each doubled by every merge behind it: l of them of deviation
//! σ make `σ·sqrt((4^l - 1)/3)` beside a value that is 2^l times as large ([`Packer::deviation`]). Terms that cancel
//! do so exactly. No level is consumed.
//!
//! **Keys.** log2 N automorphisms at most, whose keys are for low levels, so they are small. They are held apart from a
//! bootstrap's: 5 is among their exponents, and a key of many levels for it would be slow here.
//!
//! **Who learns what.** The server computes on ciphertexts and keys, and learns nothing else; that a function of the
//! secret is encrypted under it is the assumption of [keys](crate::KeyGenerator).

use std::sync::Arc;

use crate::circuits::Evaluator;
use crate::{Ciphertext, Context, Error, EvaluationKeys, KeyKind, KeySpec, KeyedEvaluator, Plaintext};

const PACK: &str = "pack";
const TRACE: &str = "trace";

/// The variance of the noise in a key: centred binomial of 42 coins.
const KEY_VARIANCE: f64 = 10.5;

/// The exponent of φ for t = 2^`log_t`, in a ring of degree N = 2^`log_n`.
fn element(log_n: u32, log_t: u32) -> usize {
    (1 << (log_n - log_t)) + 1
}

/// The keys of a [`Packer`], for ciphertexts of up to a level, with so many special primes: as many as the level has
/// primes are one digit, of which a key switch is fastest.
pub fn key_specs(context: &Context, level: usize, special: usize) -> Vec<KeySpec> {
    let log_n = context.params().log_n();
    let spec = |log_t| KeySpec { kind: KeyKind::Galois(element(log_n, log_t)), level, special };
    (0..log_n).map(spec).collect()
}

/// Keys and the monomials X^t. Several threads may use it at the same time.
pub struct Packer {
    evaluator: KeyedEvaluator,
    level: usize,
    log_n: u32,
    /// X^(2^log_t), by log_t.
    monomials: Vec<Plaintext>,
}

impl Packer {
    /// A packer of ciphertexts of up to this level, with the keys of [`key_specs`].
    ///
    /// # Errors
    /// If there is no such level, or a key is missing.
    pub fn new(context: &Arc<Context>, keys: EvaluationKeys, level: usize) -> Result<Self, Error> {
        context.check_level(PACK, level)?;
        let log_n = context.params().log_n();
        let evaluator = KeyedEvaluator::new(context, keys);
        for log_t in 0..log_n {
            evaluator.key(KeyKind::Galois(element(log_n, log_t)), level)?;
        }
        let monomials = (0..log_n).map(|log_t| context.monomial(1 << log_t, level));
        let monomials = monomials.collect::<Result<_, _>>()?;
        Ok(Self { monomials, evaluator, level, log_n })
    }

    /// The evaluator with the packing's keys.
    pub fn evaluator(&self) -> &KeyedEvaluator {
        &self.evaluator
    }

    /// Up to which level it packs.
    pub fn level(&self) -> usize {
        self.level
    }

    /// How many special primes its keys have, the least of them, at a level.
    ///
    /// # Errors
    /// If the level is above the packer's.
    pub fn special(&self, level: usize) -> Result<usize, Error> {
        let key = |log_t| self.evaluator.key(KeyKind::Galois(element(self.log_n, log_t)), level);
        (0..self.log_n).try_fold(usize::MAX, |least, log_t| Ok(least.min(key(log_t)?.special())))
    }

    /// How many merges gather so many ciphertexts: l with 2^l ≥ count.
    pub fn merges(count: usize) -> u32 {
        count.next_power_of_two().ilog2()
    }

    /// The standard deviation of the noise that merges and trace steps add, so many together, in units of the phase. It
    /// is the largest among the packer's keys at this level. Digits are taken as uniform.
    ///
    /// # Errors
    /// If the level is above the packer's.
    pub fn deviation(&self, level: usize, steps: u32) -> Result<f64, Error> {
        self.check_level(PACK, level)?;
        let (context, params) = (self.evaluator.context(), self.evaluator.context().params());
        let n = params.n() as f64;
        let log2 = |primes: &[u64]| primes.iter().map(|&p| (p as f64).log2()).sum::<f64>();
        let mut most = 0.0f64;
        for log_t in 0..self.log_n {
            let key = self.evaluator.key(KeyKind::Galois(element(self.log_n, log_t)), level)?;
            let special = log2(&params.special()[..key.special()]);
            let digits = context.digits(params.limbs(level), key.special());
            let sizes = digits.map(|range| (2.0 * (log2(&params.primes()[range]) - special)).exp2());
            most = most.max(sizes.sum());
        }
        // Digits times a key's noise, over P; and the rounding of both halves, one of them times the secret.
        let switch = n * KEY_VARIANCE * most / 12.0 + (1.0 + 2.0 * n / 3.0) / 12.0;
        Ok((switch * ((2.0 * f64::from(steps)).exp2() - 1.0) / 3.0).sqrt())
    }

    /// Gathers the coefficients at multiples of 2^`log_step` of `count` ciphertexts. With l = [`merges`](Self::merges),
    /// coefficient i·2^log_step + c·2^(log_step-l) of the result is coefficient i·2^log_step of ciphertext c. The scale
    /// is 2^l times as large. Where l < log_step, coefficients that are no multiple of 2^(log_step-l) hold what is left
    /// over; [`trace`](Self::trace) removes it.
    ///
    /// `leaf(c)` makes ciphertext c when its turn comes; `None` stands for zero. All have one level and one scale. As
    /// many branches are computed at a time as there are threads (rounded up to a power of two), and each holds at most
    /// l + 8 ciphertexts, however many there are.
    ///
    /// # Errors
    /// Of `leaf`; if there are no ciphertexts, more than 2^log_step, or zeros only; if the step is above N; if a
    /// level is above the packer's, or scales differ.
    pub fn pack<E: From<Error> + Send>(
        &self,
        count: usize,
        log_step: u32,
        leaf: impl Fn(usize) -> Result<Option<Ciphertext>, E> + Sync,
    ) -> Result<Ciphertext, E> {
        self.check_step(PACK, log_step)?;
        let refuse =
            |what, found, expected| Err(Error::Count { operation: PACK, what, found, expected }.into());
        if count == 0 || count > 1 << log_step {
            return refuse("ciphertexts", count, format!("1 to {}", 1usize << log_step));
        }
        let apart = Self::merges(self.evaluator.context().threads());
        let tree = Tree { packer: self, count, log_step, apart, leaf };
        match tree.gather(0, 0, Self::merges(count))? {
            Some(packed) => Ok(packed),
            None => refuse("ciphertexts that are not zero", 0, "at least 1".into()),
        }
    }

    /// Removes every coefficient whose index is no multiple of 2^`log_step`. The scale is 2^log_step times as large.
    ///
    /// # Errors
    /// If the step is above N, or the level above the packer's.
    pub fn trace(&self, ct: &Ciphertext, log_step: u32) -> Result<Ciphertext, Error> {
        self.check_step(TRACE, log_step)?;
        self.check_level(TRACE, ct.level())?;
        (0..log_step).rev().try_fold(ct.clone(), |ct, log_t| self.doubled(&ct, &ct, log_t))
    }

    fn check_level(&self, operation: &'static str, level: usize) -> Result<(), Error> {
        if level <= self.level {
            return Ok(());
        }
        Err(Error::Level { operation, found: level, expected: format!("at most {}", self.level) })
    }

    fn check_step(&self, operation: &'static str, log_step: u32) -> Result<(), Error> {
        if log_step <= self.log_n {
            return Ok(());
        }
        let (what, expected) = ("as log2 of the step", format!("at most {}", self.log_n));
        Err(Error::Count { operation, what, found: log_step as usize, expected })
    }

    /// `sum + φ(of)`, whose values are twice as large: so is its scale.
    fn doubled(&self, sum: &Ciphertext, of: &Ciphertext, log_t: u32) -> Result<Ciphertext, Error> {
        let image = self.evaluator.automorphism(of, element(self.log_n, log_t))?;
        let both = self.evaluator.add(sum, &image)?;
        let scale = 2.0 * both.scale();
        Ok(self.evaluator.with_scale(both, scale))
    }

    /// One line of the algorithm.
    fn merge(
        &self,
        even: Option<Ciphertext>,
        odd: Option<Ciphertext>,
        log_t: u32,
    ) -> Result<Option<Ciphertext>, Error> {
        let e = &self.evaluator;
        let moved = match &odd {
            Some(odd) => Some(e.multiply_plain(odd, &self.monomials[log_t as usize])?),
            None => None,
        };
        let (sum, difference) = match (even, moved) {
            (None, None) => return Ok(None),
            (Some(even), None) => (even.clone(), even),
            (Some(even), Some(moved)) => (e.add(&even, &moved)?, e.subtract(&even, &moved)?),
            (None, Some(moved)) => {
                let zero = e.subtract(&moved, &moved)?;
                let negative = e.subtract(&zero, &moved)?;
                (moved, negative)
            }
        };
        self.doubled(&sum, &difference, log_t).map(Some)
    }
}

/// One call of [`Packer::pack`]. Both sides of its first `apart` splits are computed at the same time.
struct Tree<'a, L> {
    packer: &'a Packer,
    count: usize,
    log_step: u32,
    apart: u32,
    leaf: L,
}

impl<L> Tree<'_, L> {
    /// Gathers the 2^merges ciphertexts first, first + 2^depth, …
    fn gather<E: From<Error> + Send>(
        &self,
        first: usize,
        depth: u32,
        merges: u32,
    ) -> Result<Option<Ciphertext>, E>
    where
        L: Fn(usize) -> Result<Option<Ciphertext>, E> + Sync,
    {
        if first >= self.count {
            return Ok(None);
        }
        if merges == 0 {
            let leaf = (self.leaf)(first)?;
            if let Some(ct) = &leaf {
                self.packer.check_level(PACK, ct.level())?;
            }
            return Ok(leaf);
        }
        let side = |first: usize| self.gather(first, depth + 1, merges - 1);
        let odd = first + (1 << depth);
        let (even, odd) = if depth < self.apart {
            let (even, odd) = self.packer.evaluator.context().join(|| side(first), || side(odd));
            (even?, odd?)
        } else {
            (side(first)?, side(odd)?)
        };
        Ok(self.packer.merge(even, odd, self.log_step - merges)?)
    }
}
