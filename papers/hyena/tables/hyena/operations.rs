//! Times of the operations of one ring: Table 1 of Hyena's paper, and more.

use std::hint::black_box;

use jaguar_profile::busy::timed;
use jaguar_ring::he::params::ParameterError;
use jaguar_ring::he::rns::{
    Batch, Ciphertext, GaloisKey, Hoisted, JointKeys, PlainModulus, Ring, SecretKey, Values, rotation,
};
use jaguar_ring::prg::Prg;
use serde::Serialize;

use crate::statistics::median;

/// Ciphertexts that a lazy sum adds up, and how many such sums of the same ciphertexts are made at once: about what a
/// convolution does.
const TERMS: usize = 32;
const SUMS: usize = 8;

/// Bits of the numbers that ciphertexts are multiplied by, sign aside.
const NUMBER_BITS: u32 = 12;

/// How often an operation runs in a row, as in `tools/beside_seal/operations.cpp`, and how many of it a run has.
const SHORT: [usize; 2] = [16, 1];
const LONG: [usize; 2] = [4, 1];
const ONCE: [usize; 2] = [1, 1];

/// One operation's time.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// What it is.
    pub name: &'static str,
    /// Median seconds on one thread.
    pub seconds: f64,
}

/// By operation, the seconds of each round.
#[derive(Default)]
struct Rounds(Vec<(&'static str, Vec<f64>)>);

impl Rounds {
    /// Times `calls` calls in a row of `run`, which does `name` so many times, and what becomes of its results. In a
    /// row, so that what it reads is in the caches, as in the programs that it is compared with.
    fn time<T>(&mut self, name: &'static str, [calls, each]: [usize; 2], mut run: impl FnMut() -> T) {
        let (span, ()) = timed(|| (0..calls).for_each(|_| drop(black_box(run()))));
        let seconds = span.busy.as_secs_f64() / (calls * each) as f64;
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rounds)) => rounds.push(seconds),
            None => self.0.push((name, vec![seconds])),
        }
    }

    fn medians(self) -> Vec<Operation> {
        let of = |(name, seconds): (_, Vec<f64>)| Operation { name, seconds: median(seconds.into_iter()) };
        self.0.into_iter().map(of).collect()
    }
}

/// Times of the operations in `ring` for plaintexts modulo `t`, a prime that is 1 modulo 2N, with keys of `digit_bits` bits a
/// digit: medians of `repeats` rounds (at least one), in each of which every operation runs some times in a row
/// ([`SHORT`], [`LONG`]). On this thread, by the time that it had a core, with the kernel that the ring was made for.
///
/// Secrets, messages and numbers are drawn anew. The noise of what is computed does not matter here: any ring will do.
///
/// # Errors
/// If t does not fit the ring.
///
/// # Panics
/// If `digit_bits` is not in `2..=60`.
pub fn operations(
    ring: &Ring,
    t: u64,
    digit_bits: u32,
    repeats: usize,
) -> Result<Vec<Operation>, ParameterError> {
    let (plain, batch) = (PlainModulus::new(ring, t)?, Batch::new(ring.n(), t)?.on(ring.kernel()));
    let prg = &mut Prg::from_os();
    let secret = SecretKey::from_prg(ring, prg);
    let public = JointKeys::public(ring, &secret, prg);
    let key = GaloisKey::new(&secret, rotation(ring.n(), 1), digit_bits, prg);
    let slots: Vec<u64> = (0..ring.n()).map(|_| prg.next_u64() % t).collect();
    let message = batch.encode(&slots);
    let scaled = plain.scale(ring, &message);
    let w = ring.to_values(ring.from_signed(&plain.centred(&message)));
    let uniform = |prg: &mut Prg| Ciphertext::<Values> { a: ring.uniform(prg), b: ring.uniform(prg) };
    let terms: Vec<Ciphertext<Values>> = (0..TERMS).map(|_| uniform(prg)).collect();
    let refs: Vec<&Ciphertext<Values>> = terms.iter().collect();
    let number = |prg: &mut Prg| (prg.next_u64() as i64) >> (u64::BITS - NUMBER_BITS - 1);
    let numbers: Vec<Vec<i64>> = (0..SUMS).map(|_| (0..TERMS).map(|_| number(prg)).collect()).collect();

    let mut sum = uniform(prg);
    let mut poly = Some(uniform(prg).a);
    let mut turned = None;
    let x = &terms[0];
    let in_coefficients = x.duplicate().into_coefficients(ring);
    let hoisted = Hoisted::new(ring, x, digit_bits);

    let mut rounds = Rounds::default();
    for _ in 0..repeats.max(1) {
        for _ in 0..SHORT[0] {
            rounds.time("inverse transform of a polynomial", ONCE, || {
                turned = poly.take().map(|poly| ring.to_coefficients(poly));
            });
            rounds.time("transform of a polynomial", ONCE, || {
                poly = turned.take().map(|poly| ring.to_values(poly));
            });
        }
        rounds.time("encode", SHORT, || plain.scale(ring, &batch.encode(&slots)));
        rounds.time("encrypt under the secret", LONG, || secret.encrypt(ring, &scaled, prg));
        rounds.time("encrypt under the public key", LONG, || {
            let mut zero = public.encrypt_zero(ring, prg);
            zero.add_plain(ring, &ring.to_values(scaled.duplicate()));
            zero
        });
        rounds.time("decrypt and decode", LONG, || batch.decode(&secret.decrypt(ring, &plain, x)));
        rounds.time("add", SHORT, || sum.add_assign(ring, x));
        rounds.time("scalar product, reduced", SHORT, || sum.multiply_scalar(ring, numbers[0][0]));
        rounds.time("scalar product, lazy", [1, TERMS * SUMS], || {
            ring.weighted_sums(&refs, &numbers, NUMBER_BITS)
        });
        rounds.time("plaintext product", SHORT, || sum.multiply_assign(ring, &w));
        rounds.time("plaintext product, added", SHORT, || sum.multiply_add(ring, x, &w));
        rounds.time("rotation", LONG, || x.apply(ring, &key));
        rounds.time("rotation, hoisted: what all share", LONG, || Hoisted::new(ring, x, digit_bits));
        rounds.time("rotation, hoisted: each", LONG, || hoisted.apply(ring, &key));
        if ring.limbs() > 1 {
            rounds.time("modulus switch", LONG, || in_coefficients.drop_prime(ring));
        }
    }
    Ok(rounds.medians())
}
