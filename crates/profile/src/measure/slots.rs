//! What encryption in SIMD slots takes: single operations of rings of 64-bit words, as Hyena's layers do them.

use std::hint::black_box;

use jaguar_cpu::Cpu;
use jaguar_he::params::RnsParameters;
use jaguar_he::rns::{Batch, Ciphertext, GaloisKey, Hoisted, PlainModulus, Ring, SecretKey, rotation};
use jaguar_plan::PlanError;
use jaguar_plan::machine::{SlotCosts, SlotWork};
use jaguar_ring::modular::primes;
use jaguar_ring::prg::Prg;
use jaguar_wire::pack;

use super::timing::{LEAST_REPEATS, PATIENCE, REPEATS, positive, timed};
use crate::ProfileError;

/// Bits of the probes' primes at most: so that as many as in sessions have an estimate.
const LIMB_BITS: u32 = 53;

/// Ciphertexts of a sum, and sums: few, so that most runs are over before anything else wants the core.
const TERMS: usize = 4;
const ROWS: usize = 2;

/// Bits of the plaintext modulus, with room for products of 38 bits, and of weights.
const PLAIN_BITS: u32 = 41;
const NUMBER_BITS: u32 = 16;

/// The least time of several runs.
fn least<T>(mut f: impl FnMut() -> T) -> f64 {
    let (mut best, mut all) = (f64::INFINITY, 0.0);
    for run in 0..REPEATS {
        if run >= LEAST_REPEATS && all > PATIENCE.as_secs_f64() {
            break;
        }
        let (seconds, value) = timed(&mut f);
        black_box(value);
        best = best.min(seconds);
        all += seconds;
    }
    best
}

/// The constants of rings with this N and primes of up to `most` bits, on the current thread.
pub(super) fn costs(cpu: Cpu, (ring_dim, most): (usize, u32)) -> Result<SlotCosts, ProfileError> {
    let limb_bits = most.min(LIMB_BITS);
    // As many primes as have an estimate of 128 bits.
    let mut sets = (1..=4).filter_map(|limbs| RnsParameters::search(ring_dim, limb_bits, limbs).ok());
    let params = sets
        .next_back()
        .ok_or_else(|| super::timing::refused(format!("no ring of N = {ring_dim} is on record")))?;
    let plain = primes(PLAIN_BITS, 2 * ring_dim as u64).next().expect("there is a prime of so many bits");
    let ring = Ring::new(cpu, params);
    let modulus = PlainModulus::new(&ring, plain).map_err(PlanError::from)?;
    let batch = Batch::new(ring_dim, plain).map_err(PlanError::from)?;
    let prg = &mut Prg::new([1; 32]);
    let limbs = ring.limbs() as f64;

    let slots: Vec<u64> = (0..ring_dim as u64).map(|slot| slot * slot).collect();
    let encoding = least(|| batch.encode(&slots));
    let message = batch.encode(&slots);
    let scaling = least(|| modulus.scale(&ring, &message));
    let phase = modulus.scale(&ring, &message);
    let rounding = least(|| modulus.round(&ring, &phase));
    let centred = modulus.centred(&message);
    let small = least(|| ring.from_signed(&centred));

    let values = ring.to_values(phase.duplicate());
    let copy = least(|| values.duplicate());
    let forwards = least(|| ring.to_values(phase.duplicate()));
    let back = least(|| ring.to_coefficients(values.duplicate()));
    let transform = positive(((forwards + back) / 2.0 - copy) / limbs);

    let secret = SecretKey::from_prg(&ring, prg);
    let public = secret.public_key(prg);
    let zero = ring.zero();
    let encryption = least(|| secret.encrypt(&ring, &zero, prg));
    let covering = least(|| public.encrypt(&ring, &zero, prg));
    let uniform = least(|| ring.uniform::<jaguar_he::rns::Values>(prg));
    let packed = pack::pack(values.residues(), limb_bits);
    let packing = least(|| pack::pack(values.residues(), limb_bits));
    let unpacking = least(|| pack::unpack(&packed, ring.words(), limb_bits));

    let terms: Vec<Ciphertext<_>> =
        (0..TERMS).map(|_| secret.encrypt(&ring, &zero, prg).expand(&ring)).collect();
    let few: Vec<&Ciphertext<_>> = terms.iter().take(1).collect();
    let many: Vec<&Ciphertext<_>> = terms.iter().collect();
    let sums = |terms: &[&Ciphertext<_>]| {
        let rows = vec![vec![-12_345; terms.len()]; ROWS];
        least(|| ring.weighted_sums(terms, &rows, NUMBER_BITS))
    };
    let (short, long) = (sums(&few), sums(&many));
    let each = 2.0 * limbs * ROWS as f64;
    let scalar = positive((long - short) / (many.len() - few.len()) as f64 / each);
    let sum = positive(short / each - few.len() as f64 * scalar);
    let mut total = terms[0].duplicate();
    let product = least(|| terms.iter().for_each(|term| total.multiply_add(&ring, term, &values)));
    let product = product / TERMS as f64 / 2.0 / limbs;

    let key = GaloisKey::new(&secret, rotation(ring_dim, 1), limb_bits, prg);
    let hoisted = Hoisted::new(&ring, &terms[0], limb_bits);
    let digits = key.switching_key().digits(&ring) as f64;
    let switch = least(|| hoisted.apply(&ring, &key)) / digits / limbs;
    Ok(SlotCosts {
        ring_dim,
        limb_bits: most,
        each: SlotWork {
            transform,
            product,
            scalar,
            sum,
            small: small / limbs,
            switch,
            encryption: encryption / limbs,
            zero: covering / limbs,
            packing: (packing + unpacking) / 2.0 / limbs,
            uniform: uniform / limbs,
            encoding,
            rounding: (scaling + rounding) / 2.0 / limbs,
        },
    })
}
