//! Measures [`SlotCosts`] by single operations of rings of 64-bit words, as the layers do them.

use std::hint::black_box;

use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::RnsParameters;
use jaguar_ring::he::rns::{
    Batch, Ciphertext, GaloisKey, Hoisted, JointKeys, PlainModulus, Ring, SecretKey, Subring, Values,
    rotation,
};
use jaguar_ring::modular::primes;
use jaguar_ring::prg::Prg;
use jaguar_wire::pack;

use super::constants::{SLOT_RINGS, SlotCosts, SlotRings, SlotWork};
use jaguar_linear::constants::{Constants, Impossible, LEAST_WORD, ProbeError};
use jaguar_linear::timing::{self, positive, runs, timed};

impl Constants for SlotRings {
    const NAME: &'static str = "SIMD slots";

    fn measure(cpu: Cpu) -> Result<Self, ProbeError> {
        SLOT_RINGS.iter().map(|&ring| costs(cpu, ring)).collect::<Result<_, _>>().map(Self)
    }

    fn impossible(&self) -> Option<Impossible> {
        SLOT_RINGS.iter().find_map(|&(ring_dim, bits)| {
            let ring = format!("the ring N = {ring_dim} with primes of {bits} bits");
            let Some(each) = self.of(ring_dim, bits) else { return Some(Impossible::missing(ring)) };
            let figure = format_args!("work on all words of {ring}");
            each.all().into_iter().find_map(|t| Impossible::time(figure, t, LEAST_WORD * ring_dim as f64))
        })
    }
}

/// Bits of the probes' primes at most: so that as many as in sessions have an estimate.
const LIMB_BITS: u32 = 53;

/// Ciphertexts of a sum, and sums: few, so that most runs are over before anything else wants the core.
const TERMS: usize = 4;
const ROWS: usize = 2;

/// Sums of products with numbers on stretches that are made at once, and how many stretches.
const STRETCHED: usize = 8;
const DIMENSION: usize = 64;

/// Bits of the plaintext modulus, with room for products of 38 bits, and of weights.
const PLAIN_BITS: u32 = 41;
const NUMBER_BITS: u32 = 16;

/// The least time of several runs.
fn least<T>(mut f: impl FnMut() -> T) -> f64 {
    let [seconds] = timing::least(runs(|| [timed(|| black_box(f())).0]));
    seconds
}

/// The constants of rings with this N and primes of up to `most` bits.
fn costs(cpu: Cpu, (ring_dim, most): (usize, u32)) -> Result<SlotCosts, ProbeError> {
    let limb_bits = most.min(LIMB_BITS);
    // As many primes as have an estimate of 128 bits.
    let mut sets = (1..=4).filter_map(|limbs| RnsParameters::search(ring_dim, limb_bits, limbs).ok());
    let params = sets.next_back().ok_or_else(|| format!("no ring of N = {ring_dim} is on record"))?;
    let plain = primes(PLAIN_BITS, 2 * ring_dim as u64).next().expect("there is a prime of so many bits");
    let ring = Ring::new(cpu, params);
    let modulus = PlainModulus::new(&ring, plain)?;
    let batch = Batch::new(ring_dim, plain)?.on(ring.kernel());
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
    let public = JointKeys::public(&ring, &secret, prg);
    let zero = ring.zero();
    let encryption = least(|| secret.encrypt(&ring, &zero, prg));
    let covering = least(|| public.encrypt_zero(&ring, prg));
    let uniform = least(|| ring.uniform::<Values>(prg));
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
    let subring = Subring::new(&ring, plain, DIMENSION)?;
    let mut totals: Vec<Ciphertext<_>> = (0..STRETCHED).map(|_| terms[0].duplicate()).collect();
    let mut stretched = |terms: &[&Ciphertext<_>]| {
        let width = terms.len() * STRETCHED;
        let factors = subring.encode(&ring, &modulus, &mut vec![12_345; DIMENSION * width], width);
        least(|| ring.add_subring_products(terms, &factors, &mut totals))
    };
    let (short, long) = (stretched(&few), stretched(&many));
    let stretches =
        positive((long - short) / (many.len() - few.len()) as f64 / (2 * STRETCHED) as f64 / limbs);
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
            stretches,
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
