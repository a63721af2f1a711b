//! A layer on ciphertexts, beside the figures of `precision.md`.

use std::f64::consts::TAU;
use std::sync::Arc;

use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

use super::{Bootstrap, Composite, Evaluator, Plan, slot_order};
use crate::{Ciphertext, Context, EvaluationKeys, KeyedEvaluator, Literal, Parameters, SecretKey};

/// Both parties in one.
struct Party {
    context: Arc<Context>,
    secret: SecretKey,
    evaluator: KeyedEvaluator,
    plan: Plan,
    prg: Prg,
}

impl Party {
    fn new(log_n: u32, values: usize, relu: &str, threads: usize) -> Self {
        let set = if log_n == 16 { Literal::n16() } else { Literal::n16().insecure(log_n) };
        let context = Context::new(Cpu::detect(), Parameters::new(&set).unwrap(), threads).unwrap();
        let mut prg = Prg::new([7; 32]);
        let secret = SecretKey::from_prg(&context, &mut prg);
        let plan = Plan::new(values, Composite::by_name(relu).unwrap());
        let params = context.params();
        let moduli = (0..=params.top()).map(|level| params.modulus(level)).collect();
        let counts = plan.counts(params.n() / 2, moduli).unwrap();
        let keys = EvaluationKeys::generate(&secret, &context.circuit_keys(&counts)).unwrap();
        let evaluator = KeyedEvaluator::new(&context, keys);
        Self { context, secret, evaluator, plan, prg }
    }

    fn values(&mut self) -> Vec<f64> {
        let mut words = vec![0; self.plan.values];
        self.prg.fill_u64(&mut words);
        words.into_iter().map(|word| (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0).collect()
    }

    fn encrypt(&mut self, values: &[f64]) -> Ciphertext {
        let scale = f64::from(self.plan.log_raised_scale).exp2();
        let plaintext = self.context.encode_coefficients(values, 0, scale).unwrap();
        self.secret.encrypt(&plaintext, &mut self.prg).0
    }

    fn decrypt(&self, ct: &Ciphertext) -> Vec<f64> {
        let all = self.secret.decrypt(ct);
        all.iter().step_by(all.len() / self.plan.values).copied().collect()
    }

    /// The slots of ciphertexts, one after the other: as many as there are values.
    fn slots(&self, cts: &[Ciphertext]) -> Vec<f64> {
        let each = cts.iter().flat_map(|ct| {
            let slots = self.context.slots_of(&self.secret.decrypt(ct)).unwrap();
            slots.into_iter().take(self.plan.values / cts.len()).map(|z| z.re)
        });
        each.collect()
    }
}

/// log2 of the root of the mean square, and of the largest.
fn errors(found: &[f64], expected: impl Iterator<Item = f64>) -> [f64; 2] {
    let differences: Vec<_> = found.iter().zip(expected).map(|(f, e)| (f - e).abs()).collect();
    let square = differences.iter().map(|d| d * d).sum::<f64>() / differences.len() as f64;
    [square.sqrt().log2(), differences.iter().copied().fold(0.0, f64::max).log2()]
}

/// Errors of slots beside the sine, and of a layer beside the polynomial of that.
fn measured(log_n: u32, values: usize, relu: &str, threads: usize) -> [[f64; 2]; 2] {
    let mut party = Party::new(log_n, values, relu, threads);
    let x = party.values();
    let ct = party.encrypt(&x);
    let bootstrap = Bootstrap::new(&party.evaluator, party.plan.clone()).unwrap();
    let keep: Vec<_> = (0..values).map(|v| if v % 5 == 3 { 0.0 } else { 1.0 }).collect();
    let mask = bootstrap.mask(&keep).unwrap();
    let mut begin = std::time::Instant::now();
    let mut told = |phase: &str| {
        println!("{phase}: {:.3} s", begin.elapsed().as_secs_f64());
        begin = std::time::Instant::now();
    };
    let slots = bootstrap.slots(&ct).unwrap();
    told("ModUp, CtoS, sine");
    let period = party.context.params().modulus(0) / 42f64.exp2();
    let sine = |x: f64| (TAU * x / period).sin() * period / TAU;
    let sorted = slot_order(&x, values / 2);
    let of_slots = errors(&party.slots(&slots), sorted.iter().map(|&x| sine(x)));
    told("decryption");
    let rectified = bootstrap.rectify(&slots, &mask).unwrap();
    told("ReLU");
    let layer = bootstrap.coefficients(&rectified).unwrap();
    told("StoC");
    assert_eq!((party.evaluator.level(&layer), party.evaluator.scale(&layer)), (1, 40f64.exp2()));
    let expected = x.iter().zip(&keep).map(|(&x, keep)| keep * party.plan.relu.value(sine(x)));
    let of_layer = errors(&party.decrypt(&layer), expected);
    println!(
        "N = 2^{log_n}, {values} values, {relu}: log2 of errors: slots {of_slots:.1?}, layer {of_layer:.1?}"
    );
    [of_slots, of_layer]
}

#[test]
fn a_layer_is_as_precise_as_the_other_programs() {
    // There: slots -27.0, -24.5; layer -26.7, -24.0, with 2^9 values.
    for (values, relu) in [(1 << 9, "7-7-13"), (1 << 6, "7-7-7"), (1 << 10, "7-15")] {
        let [[slots, largest_slot], [layer, largest]] = measured(10, values, relu, 1);
        assert!(slots < -25.5 && largest_slot < -22.5, "{values} values: slots {slots}, {largest_slot}");
        assert!(layer < -25.0 && largest < -21.0, "{values} values, {relu}: layer {layer}, {largest}");
    }
}

/// N = 2^14: 2 GB. There: slots -22.9, -19.8; layer -22.6, -19.7.
#[test]
#[ignore = "2 GB"]
fn a_layer_of_a_larger_ring_too() {
    let [[slots, _], [layer, _]] = measured(14, 1 << 13, "7-7-13", 2);
    assert!(slots < -21.5 && layer < -21.0, "slots {slots}, layer {layer}");
}

/// N = 2^16, the set itself. By the rule of `precision.md`: layer -20.6.
#[test]
#[ignore = "9 GB"]
fn a_layer_of_the_full_ring_too() {
    let [[slots, _], [layer, _]] = measured(16, 1 << 15, "7-7-13", 2);
    assert!(slots < -19.5 && layer < -19.0, "slots {slots}, layer {layer}");
}
