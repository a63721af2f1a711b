//! Arithmetic at N = 2^10: against big numbers, schoolbook products and plain slots; noise within stated bounds.

mod answer;
mod convolution;
mod exact;
mod hostile;
mod layer;
mod noise;
mod oracle;
mod packing;
mod slots;

use std::sync::{Arc, LazyLock};

use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

use crate::circuits::Evaluator;
use crate::{
    Ciphertext, Complex, Context, EvaluationKeys, KeyGenerator, KeyKind, KeyedEvaluator, Literal, Parameters,
    SecretKey,
};

/// ReLU's scale.
const SCALE: f64 = (1u64 << 36) as f64;
const N: usize = 1024;

/// A client and what it gave a server.
struct Party {
    context: Arc<Context>,
    secret: SecretKey,
    evaluator: KeyedEvaluator,
}

/// Rotations that there are keys for.
const STEPS: [usize; 10] = [1, 2, 3, 4, 5, 8, 16, 64, 128, 256];

static PARTY: LazyLock<Party> = LazyLock::new(|| Party::new(Cpu::detect(), 1));

/// Sizes of today's chain; level 3 has two primes.
fn literal() -> Literal {
    let mut levels = vec![vec![50], vec![50], vec![36], vec![30, 30]];
    levels.extend((0..11).map(|_| vec![36]));
    levels.extend((0..12).map(|_| vec![50]));
    Literal { name: "insecure-tests".into(), levels, ..Literal::n16().insecure(10) }
}

impl Party {
    fn new(cpu: Cpu, threads: usize) -> Self {
        let params = Parameters::new(&literal()).unwrap();
        let context = Context::new(cpu, params, threads).unwrap();
        let secret = SecretKey::from_prg(&context, &mut Prg::new([1; 32]));
        let mut generator = KeyGenerator::from_prg(&secret, Prg::new([2; 32]));
        let mut keys = EvaluationKeys::new();
        let top = context.params().top();
        let galois = STEPS.map(|steps| KeyKind::Galois(context.rotation(steps)));
        let kinds = [KeyKind::Relinearise, KeyKind::Galois(context.conjugation())].into_iter().chain(galois);
        let mut specs: Vec<_> = kinds.map(|kind| context.key_spec(kind, top)).collect();
        // As for packing: a low level, two special primes.
        specs.push(crate::KeySpec { kind: KeyKind::Galois(3), level: 1, special: 2 });
        specs.extend(context.ephemeral_keys());
        for spec in &specs {
            keys.insert(generator.key(spec).unwrap());
        }
        let evaluator = KeyedEvaluator::new(&context, keys);
        Self { context, secret, evaluator }
    }

    fn encrypt(&self, slots: &[Complex], level: usize, scale: f64, prg: &mut Prg) -> Ciphertext {
        let plaintext = self.context.encode_slots(slots, level, scale).unwrap();
        self.secret.encrypt(&plaintext, prg).0
    }

    /// The phase: coefficients as integers.
    fn phase(&self, ct: &Ciphertext) -> Vec<f64> {
        self.secret.decrypt(ct).iter().map(|x| (x * ct.scale()).round()).collect()
    }

    fn slots(&self, ct: &Ciphertext) -> Vec<Complex> {
        self.context.slots_of(&self.secret.decrypt(ct)).unwrap()
    }
}

fn prg(label: u64) -> Prg {
    Prg::derive(&[9; 32], "ckks tests", &[label])
}

/// In -1..1.
fn random(prg: &mut Prg) -> f64 {
    prg.next_u64() as i64 as f64 * 2f64.powi(-63)
}

fn random_slots(prg: &mut Prg, count: usize) -> Vec<Complex> {
    (0..count).map(|_| Complex::new(random(prg), random(prg))).collect()
}

/// The largest difference.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |most, x| if x <= most { most } else { x })
}

#[track_caller]
fn assert_slots(found: &[Complex], expected: &[Complex], bound: f64) {
    // Fewer slots repeat.
    let pairs = found.iter().zip(expected.iter().cycle());
    let worst = pairs.map(|(&a, &b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < bound, "an error of 2^{:.1}, not below 2^{:.1}", worst.log2(), bound.log2());
}

fn boxed<T: Evaluator>(evaluator: &T) -> usize {
    evaluator.slots()
}

#[test]
fn circuits_see_the_evaluator() {
    assert_eq!((boxed(&PARTY.evaluator), PARTY.evaluator.top()), (N / 2, 26));
    assert_eq!(PARTY.evaluator.modulus(0), PARTY.context.params().primes()[0] as f64);
}
