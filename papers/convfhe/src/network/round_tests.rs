//! Whole networks on ciphertexts, by a client and a server that share nothing but bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use jaguar_ckks::answer;
use jaguar_ckks::circuits::Evaluator as _;
use jaguar_ckks::{
    Complex, Context, Error, EvaluationKeys, KeyGenerator, KeyedEvaluator, Literal, Parameters, SecretKey,
    packing, wire,
};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

use super::evaluate::last_takers;
use super::tests::{inputs, narrowing, small, wide};
use super::*;
use crate::description::{Description, Polynomial};
use crate::model::Inputs;
use crate::sets::Set;

const N10: &str = "insecure-n10";

fn params(set: &str) -> Parameters {
    Set::by_name(set).expect("a set").params().clone()
}

fn context(set: &str, threads: usize) -> Arc<Context> {
    Context::new(Cpu::detect(), params(set), threads).expect("threads")
}

struct Client {
    secret: SecretKey,
    public: Public,
}

/// A client that was told of a plan, and all that it sends once.
fn client(set: &str, told: &str, seed: u8) -> (Client, Vec<u8>) {
    let context = context(set, 1);
    let secret = SecretKey::from_prg(&context, &mut Prg::new([seed; 32]));
    let specs = key_specs(&context).expect("they fit");
    let mut generator = KeyGenerator::from_prg(&secret, Prg::new([seed + 1; 32]));
    let mut bytes = Vec::new();
    for spec in specs.circuit.iter().chain(&specs.packing) {
        wire::write_key(&context, &generator.key(spec).expect("sound"), &mut bytes).expect("memory");
    }
    let public = secret.public_key(specs.public, &mut Prg::new([seed + 2; 32])).expect("sound");
    wire::write_public_key(&public, &mut bytes).expect("memory");
    assert_eq!(bytes.len(), specs.bytes(&context).expect("sound"));
    let public = Public::parse(told, context.params()).expect("what the plan says");
    (Client { secret, public }, bytes)
}

fn read(context: &Arc<Context>, mut bytes: &[u8]) -> Keys {
    let specs = key_specs(context).expect("they fit");
    let mut held = |specs: &[jaguar_ckks::KeySpec]| {
        let mut keys = EvaluationKeys::new();
        specs.iter().for_each(|spec| keys.insert(wire::read_key(context, spec, &mut bytes).expect("keys")));
        keys
    };
    let (circuit, packing) = (held(&specs.circuit), held(&specs.packing));
    let public = wire::read_public_key(context, &mut bytes).expect("a key");
    assert!(bytes.is_empty());
    Keys { circuit, packing, public }
}

/// A plan whose bounds hold inputs of up to this part of the input's bound.
fn plan(description: Description, set: &str, part: f32) -> (Plan, Vec<Vec<f32>>) {
    let samples = inputs(&description, 12);
    let shrunk: Vec<Vec<f32>> =
        samples.iter().map(|sample| sample.iter().map(|x| part * x).collect()).collect();
    let mut plan = Plan::new(description, params(set).values()).expect("it fits");
    let given = Inputs { samples: &shrunk, margin: 1.5, stress: &[], stress_margin: 1.0 };
    plan.calibrate(given).expect("sound samples");
    (plan, samples)
}

fn told(plan: &Plan, set: &str) -> String {
    serde_json::to_string(&plan.public(&params(set)).expect("calibrated")).expect("plain")
}

fn run(evaluator: &Evaluator, input: &[u8]) -> Result<Vec<u8>, NetworkError> {
    evaluator.evaluate(input, &mut |_, _| (), &AtomicBool::new(false))
}

/// Every logit beside the network in floating point with the same polynomial. Noise and rounding of the answer are
/// 2^-9 of the bound each, at most; the sine and the noise of CKKS, through all layers, are to be no more than 2^-9.
fn by_bytes(description: Description, set: &str, threads: usize, count: usize) {
    let (plan, samples) = plan(description, set, 1.0);
    let simulated = plan.simulate(&samples[..count]).expect("sound");
    let (client, keys) = client(set, &told(&plan, set), 40);
    let layers = plan.description().layers.len() as u32 + 1;
    let server = context(set, threads);
    let evaluator =
        Evaluator::new(Arc::new(plan), Arc::clone(&server), read(&server, &keys)).expect("all keys");
    for (sample, simulated) in samples.iter().zip(simulated) {
        let input = client.public.encrypt(&client.secret, sample).expect("within the bound");
        assert_eq!(input.len(), client.public.input_bytes(&server).expect("sound"));
        let mut seen = Vec::new();
        let mut progress = |done, of| seen.push((done, of));
        let answer = evaluator.evaluate(&input, &mut progress, &AtomicBool::new(false)).expect("an answer");
        assert_eq!(answer.len(), client.public.answer_bytes(&server).expect("sound"));
        assert!(seen.into_iter().eq((1..=layers).map(|done| (done, layers))));
        let logits = client.public.decrypt(&client.secret, &answer).expect("a right answer");
        let expected = simulated.logits.expect("within the bounds");
        assert_eq!(logits.len(), expected.len());
        let bound = client.public.output_bound;
        let worst = logits.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        println!("{set}: log2 of the largest error, in bounds, {:.1}", (worst / bound).log2());
        assert!(worst <= answer::most_error(bound) + bound / 512.0, "{logits:?}, not {expected:?}");
    }
}

#[test]
fn a_network_of_single_ciphertexts() {
    by_bytes(small(), N10, 2, 2);
}

/// Three in one ciphertext, with room for three; or two, of which the second stands at the third one's places, too.
#[test]
fn several_inputs_in_one_ciphertext() {
    let set = "insecure-n10-full";
    let (plan, samples) = plan(Description { images: 3, ..small() }, set, 1.0);
    let simulated = plan.simulate(&samples).expect("sound");
    let (client, keys) = client(set, &told(&plan, set), 60);
    let server = context(set, 2);
    let evaluator =
        Evaluator::new(Arc::new(plan), Arc::clone(&server), read(&server, &keys)).expect("all keys");
    let Public { outputs, output_bound: bound, images, .. } = client.public;
    for (sent, places) in [(&samples[..3], [0, 1, 2]), (&samples[3..5], [3, 4, 4])] {
        let input = client.public.encrypt(&client.secret, &sent.concat()).expect("within the bound");
        // No more than for one, and the server cannot tell.
        assert_eq!(input.len(), wire::seeded_bytes(&server, answer::LEVEL).expect("sound"));
        let answer = run(&evaluator, &input).expect("an answer");
        assert_eq!(answer.len(), client.public.answer_bytes(&server).expect("sound"));
        let logits = client.public.decrypt(&client.secret, &answer).expect("a right answer");
        assert_eq!(logits.len(), images * outputs);
        for (logits, sample) in logits.chunks(outputs).zip(places) {
            let expected = simulated[sample].logits.as_ref().expect("within the bounds");
            let worst = logits.iter().zip(expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(
                worst <= answer::most_error(bound) + bound / 512.0,
                "{sample}: {logits:?}, not {expected:?}"
            );
        }
    }
    let refuse = |inputs: &[f32], why: &str| {
        let error = client.public.encrypt(&client.secret, inputs).expect_err(why).to_string();
        assert!(error.contains(why), "{error:?} is not {why:?}");
    };
    refuse(&[], "0 values, not 72 each, of 1 to 3 inputs");
    refuse(&samples[..4].concat(), "288 values, not 72 each");
    refuse(&samples[0][1..], "71 values, not 72");
}

#[test]
fn a_network_of_several_ciphertexts() {
    by_bytes(wide(), N10, 1, 1);
}

/// A set with fewer levels has other digits; a polynomial that takes more is refused.
#[test]
fn a_network_of_fewer_levels() {
    let set = "insecure-n10-relu8";
    by_bytes(Description { relu: Polynomial::Coarse, ..small() }, set, 2, 1);
    let (plan, _) = plan(small(), set, 1.0);
    let why = plan.check(&params(set)).unwrap_err().to_string();
    assert!(why.contains("not the levels for 7-7-13"), "{why}");
    plan.check(&params(N10)).expect("it fits");
}

/// Channels in groups behind strides, values in pieces: one bootstrap for several units.
#[test]
fn a_network_of_groups() {
    by_bytes(narrowing(), N10, 2, 1);
}

/// A value that leaves its interval in one group is noticed as any other.
#[test]
fn a_left_interval_is_noticed_among_groups() {
    let (plan, samples) = plan(narrowing(), N10, 0.25);
    let reach = plan.simulate(&samples[..1]).expect("sound")[0].reach;
    assert!(reach > 1.2 && plan.checks().expect("sound") == 4, "{reach}");
    let (client, keys) = client(N10, &told(&plan, N10), 50);
    let server = context(N10, 2);
    let evaluator =
        Evaluator::new(Arc::new(plan), Arc::clone(&server), read(&server, &keys)).expect("all keys");
    let input = client.public.encrypt(&client.secret, &samples[0]).expect("within the bound");
    let answer = run(&evaluator, &input).expect("an answer");
    let error = client.public.decrypt(&client.secret, &answer).expect_err("no numbers");
    assert!(matches!(error, NetworkError::Left), "{error}");
}

/// What is measured is what is evaluated: every phase of every layer takes time, and the answer is right; of fewer layers
/// there is none. Keys that were made ready for one plan serve another.
#[test]
fn a_network_by_phase() {
    let (plan, samples) = plan(small(), N10, 1.0);
    let expected = plan.simulate(&samples[..1]).expect("sound").remove(0).logits.expect("within the bounds");
    let (client, keys) = client(N10, &told(&plan, N10), 40);
    let server = context(N10, 1);
    let mut coarse = small();
    coarse.relu = Polynomial::Coarse;
    let (coarse, _) = self::plan(coarse, N10, 1.0);
    let evaluator =
        Evaluator::new(Arc::new(coarse), Arc::clone(&server), read(&server, &keys)).expect("keys");
    let evaluator = evaluator.with(Arc::new(plan)).expect("the same set");
    let input = client.public.encrypt(&client.secret, &samples[0]).expect("within the bound");
    for first in [1, 4, 5, usize::MAX] {
        let mut seen = Vec::new();
        let mut watch = |done: u32, all: u32, times: Times| seen.push((done, all, times));
        let answer = evaluator.measure(&input, first, &mut watch, &AtomicBool::new(false)).expect("sound");
        assert_eq!(seen.len(), first.min(5));
        for (at, (done, all, times)) in seen.into_iter().enumerate() {
            assert_eq!((done as usize, all), (at + 1, 5));
            let Times { convolution, packing, to_slots, sine, relu, to_coefficients } = times;
            assert!(!convolution.is_zero() && !packing.is_zero(), "{times:?}");
            let bootstrap = [to_slots, sine, relu, to_coefficients];
            assert!(bootstrap.iter().all(|phase| phase.is_zero() == (done == all)), "{times:?}");
        }
        assert_eq!(answer.is_some(), first >= 5);
        let Some(answer) = answer else { continue };
        let logits = client.public.decrypt(&client.secret, &answer).expect("a right answer");
        let bound = client.public.output_bound;
        let worst = logits.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(worst <= answer::most_error(bound) + bound / 512.0, "{logits:?}, not {expected:?}");
    }
}

#[test]
fn a_larger_ring() {
    by_bytes(small(), "insecure-n12", 2, 1);
}

/// Without a layer there is nothing but the output, and nothing to be checked.
#[test]
fn a_linear_network() {
    let mut description = small();
    description.layers.clear();
    let [channels, height, width] = description.input;
    for term in &mut description.output.terms {
        (term.from, term.channels, term.height, term.width) = (0, channels, height, width);
        let count = term.out * channels * height * width;
        term.weights.0 = (0..count).map(|at| (at % 13) as f32 / 40.0 - 0.15).collect();
    }
    by_bytes(description, N10, 1, 1);
}

/// A value that leaves its interval fills the modulus, and the client sees it.
#[test]
fn a_left_interval_is_noticed() {
    let (plan, samples) = plan(small(), N10, 0.25);
    let reach = plan.simulate(&samples[..1]).expect("sound")[0].reach;
    assert!(reach > 1.2, "{reach}");
    let (client, keys) = client(N10, &told(&plan, N10), 50);
    let server = context(N10, 2);
    let evaluator =
        Evaluator::new(Arc::new(plan), Arc::clone(&server), read(&server, &keys)).expect("all keys");
    let input = client.public.encrypt(&client.secret, &samples[0]).expect("within the bound");
    let answer = run(&evaluator, &input).expect("an answer");
    let error = client.public.decrypt(&client.secret, &answer).expect_err("no numbers");
    assert!(matches!(error, NetworkError::Left), "{error}");
    // One within the bounds has an answer.
    let input: Vec<f32> = samples[0].iter().map(|x| x / 4.0).collect();
    let answer = run(&evaluator, &client.public.encrypt(&client.secret, &input).expect("sound"));
    client.public.decrypt(&client.secret, &answer.expect("an answer")).expect("numbers");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let (plan, samples) = plan(small(), N10, 1.0);
    let told = told(&plan, N10);
    let (client, keys) = client(N10, &told, 60);
    let server = context(N10, 1);
    let plan = Arc::new(plan);
    let evaluator = |keys: Keys| Evaluator::new(Arc::clone(&plan), Arc::clone(&server), keys);
    let refused = |keys: Keys, part: &str| {
        let error = evaluator(keys).err().expect("a key is missing");
        assert!(matches!(error, NetworkError::Keys(_)) && error.to_string().contains(part), "{error}");
    };

    // Keys.
    let read = || read(&server, &keys);
    let mut generator = KeyGenerator::from_prg(&client.secret, Prg::new([70; 32]));
    let mut made = |specs: &[jaguar_ckks::KeySpec]| {
        let mut keys = EvaluationKeys::new();
        specs.iter().for_each(|spec| keys.insert(generator.key(spec).expect("sound")));
        keys
    };
    let specs = key_specs(&server).expect("they fit");
    for at in 0..specs.circuit.len() {
        let mut fewer = specs.circuit.clone();
        let lost = fewer.remove(at);
        refused(Keys { circuit: made(&fewer), ..read() }, &format!("no key for {:?}", lost.kind));
    }
    refused(Keys { packing: made(&packing::key_specs(&server, 0, 1)), ..read() }, "no key for Galois");
    refused(Keys { packing: made(&packing::key_specs(&server, 1, 2)), ..read() }, "special primes");
    let low = client.secret.public_key(0, &mut Prg::new([71; 32])).expect("sound");
    refused(Keys { public: low, ..read() }, "level 0");

    // Plans.
    let other = Plan::new(small(), 1 << 11).expect("it fits");
    let error = Evaluator::new(Arc::new(other), Arc::clone(&server), read()).err().expect("another ring");
    assert!(matches!(error, NetworkError::Set { .. }), "{error}");
    let bare = Plan::new(small(), 512).expect("it fits");
    let error = Evaluator::new(Arc::new(bare), Arc::clone(&server), read()).err().expect("no bounds");
    assert!(matches!(error, NetworkError::Uncalibrated { .. }), "{error}");

    // Inputs.
    let evaluator = evaluator(read()).expect("all keys");
    let input = client.public.encrypt(&client.secret, &samples[0]).expect("within the bound");
    let changed = |bytes: &[u8], at: usize, to: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + 16].fill(to);
        bytes
    };
    let none = |bytes: &[u8], part: &str| {
        let error = run(&evaluator, bytes).expect_err("no input");
        assert!(matches!(error, NetworkError::Message { what: "the input", .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    none(&[], "0 bytes");
    none(&input[1..], "bytes, not");
    none(&[&input[..], &[0]].concat(), "bytes, not");
    none(&changed(&input, 0, 1), "it begins with");
    none(&changed(&input, 200, 255), "modulo");
    let scale = 48 + 1;
    let mut rescaled = input.clone();
    rescaled[scale..scale + 8].copy_from_slice(&2f64.powi(41).to_le_bytes());
    none(&rescaled, "scale 2^41");
    for (what, input) in [
        ("71 values, not 72", vec![0.0; 71]),
        ("value 3", [&samples[0][..3], &[1.01], &samples[0][4..]].concat()),
        ("value 0", [&[f32::NAN], &samples[0][1..]].concat()),
    ] {
        let error = client.public.encrypt(&client.secret, &input).expect_err(what);
        assert!(matches!(error, NetworkError::Input { .. }) && error.to_string().contains(what), "{error}");
    }

    // Answers.
    let answer = run(&evaluator, &input).expect("an answer");
    let open =
        |secret: &SecretKey, bytes: &[u8]| client.public.decrypt(secret, bytes).expect_err("no answer");
    let other = SecretKey::from_prg(client.secret.context(), &mut Prg::new([72; 32]));
    assert!(matches!(open(&other, &answer), NetworkError::Spoilt));
    assert!(matches!(open(&client.secret, &changed(&answer, answer.len() / 3, 0)), NetworkError::Spoilt));
    for bytes in [&answer[1..], &changed(&answer, 49, 0)[..], &changed(&answer, 200, 255)] {
        let error = open(&client.secret, bytes);
        assert!(matches!(error, NetworkError::Message { what: "the answer", .. }), "{error}");
    }
    let foreign = SecretKey::from_prg(&context("insecure-n12", 1), &mut Prg::new([73; 32]));
    assert!(matches!(open(&foreign, &answer), NetworkError::Set { .. }));

    // An end: before anything, and after the first layer.
    let stop = AtomicBool::new(true);
    let error = evaluator.evaluate(&input, &mut |_, _| (), &stop).expect_err("stopped");
    assert!(matches!(error, NetworkError::Stopped));
    stop.store(false, Ordering::Relaxed);
    let done = AtomicU32::new(0);
    let mut progress = |layers, _| {
        done.store(layers, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
    };
    let error = evaluator.evaluate(&input, &mut progress, &stop).expect_err("stopped");
    assert!(matches!(error, NetworkError::Stopped) && done.into_inner() == 1);
}

/// Each of the three things that a client looks at, by itself, in answers that are made by hand.
#[test]
fn each_look_at_an_answer_finds_something() {
    let context = context(N10, 1);
    let secret = SecretKey::from_prg(&context, &mut Prg::new([90; 32]));
    let evaluator = KeyedEvaluator::new(&context, EvaluationKeys::new());
    let scale = answer::log_scale(context.params()).expect("two primes");
    let public = Public {
        set: context.params().name().to_owned(),
        input: [1, 1, 1],
        pitches: [1, 1],
        input_bound: 1.0,
        outputs: 5,
        output_bound: 3.0,
        checks: 4,
        images: 1,
        apart: context.params().values(),
    };
    // Nine numbers of 16 places.
    let distance = context.params().n() / 16;
    let opened = |changes: &[(usize, f64)]| {
        let mut numbers = vec![0.0; context.params().n()];
        (0..5).for_each(|at| numbers[at * distance] = 0.1 * at as f64 - 0.25);
        changes.iter().for_each(|&(at, x)| numbers[at] = x);
        let low = context.encode_coefficients(&numbers, answer::LEVEL, 56f64.exp2()).expect("they fit");
        let low = secret.encrypt(&low, &mut Prg::new([91; 32])).0;
        let ct = evaluator.multiply_constant(&low, Complex::ONE, f64::from(scale - 56).exp2()).expect("room");
        let mut bytes = Vec::new();
        wire::write_ciphertext(&context, &ct, &mut bytes).expect("memory");
        public.decrypt(&secret, &bytes)
    };
    let noise = 2.0 * answer::RELATIVE_NOISE;
    let logits = opened(&[]).expect("logits");
    let errors = logits.iter().enumerate().map(|(at, x)| (x - 3.0 * (0.1 * at as f64 - 0.25)).abs());
    assert!(errors.fold(0.0, f64::max) <= 3.0 / 512.0, "{logits:?}");
    for at in 5 * distance..6 * distance {
        let found = opened(&[(at, 1.01 * noise)]);
        let right = match at % distance {
            0 => matches!(found, Err(NetworkError::Left)),
            _ => matches!(found, Err(NetworkError::Spoilt)),
        };
        assert!(right, "place {at}: {found:?}");
    }
    for check in 5..9 {
        assert!(matches!(opened(&[(check * distance, -1.01 * noise)]), Err(NetworkError::Left)));
        opened(&[(check * distance, 0.99 * noise)]).expect("noise");
    }
    assert!(matches!(opened(&[(9 * distance, 1.01 * noise)]), Err(NetworkError::Spoilt)));
    assert!(matches!(opened(&[(4 * distance, 1.01)]), Err(NetworkError::Left)));
    assert_eq!(opened(&[(0, -1.0)]).expect("a logit at its bound")[0], -3.0);
}

/// What is no input is refused when it is read; what is one, but of nobody's picture, has an answer that shows nothing.
#[test]
fn hostile_bytes_are_refused() {
    let (plan, samples) = plan(small(), N10, 1.0);
    let (client, keys) = client(N10, &told(&plan, N10), 80);
    let server = context(N10, 2);
    let evaluator =
        Evaluator::new(Arc::new(plan), Arc::clone(&server), read(&server, &keys)).expect("all keys");
    let input = client.public.encrypt(&client.secret, &samples[0]).expect("within the bound");
    let answer = run(&evaluator, &input).expect("an answer");
    let mut prg = Prg::new([83; 32]);
    let mut changed = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        for _ in 0..prg.next_u64() % 3 + 1 {
            let at = prg.next_u64() as usize % bytes.len();
            bytes[at] ^= prg.next_u64() as u8 | 1;
        }
        if prg.next_u64().is_multiple_of(4) {
            bytes.truncate(prg.next_u64() as usize % bytes.len());
        }
        bytes
    };
    // It stops as soon as the input is read.
    let stop = AtomicBool::new(true);
    for _ in 0..400 {
        let error = evaluator.evaluate(&changed(&input), &mut |_, _| (), &stop).expect_err("stopped");
        assert!(matches!(error, NetworkError::Message { .. } | NetworkError::Stopped), "{error}");
        let error = client.public.decrypt(&client.secret, &changed(&answer)).expect_err("no answer");
        assert!(matches!(error, NetworkError::Message { .. } | NetworkError::Spoilt), "{error}");
    }

    // Another seed: a ciphertext of random numbers.
    let mut other = input.clone();
    other[48 + 9] ^= 1;
    let answer = run(&evaluator, &other).expect("an answer");
    let error = client.public.decrypt(&client.secret, &answer).expect_err("no numbers");
    assert!(matches!(error, NetworkError::Left), "{error}");

    // A client's memory is its own: of what a server says, too.
    let public = Public { input: [9 << 9, 1, 1], pitches: [1, 1], ..client.public.clone() };
    let many = vec![0.0; 9 << 9];
    let error = public.encrypt(&client.secret, &many).expect_err("too many ciphertexts");
    assert!(matches!(&error, NetworkError::Public(why) if why.contains("4608 ciphertexts")), "{error}");
    let text = serde_json::to_string(&public).expect("plain");
    assert!(matches!(Public::parse(&text, server.params()), Err(NetworkError::Public(_))));
    let public = Public { outputs: usize::MAX, ..client.public.clone() };
    let error = public.decrypt(&client.secret, &answer).expect_err("too many");
    assert!(matches!(error, NetworkError::Message { .. }), "{error}");
}

/// The second residual connection takes value 2 once more; the others are dropped after the next layer.
#[test]
fn values_stay_while_they_are_taken() {
    assert_eq!(last_takers(&small()), [0, 1, 3, 3, 4]);
}

/// The full set's keys, and what a server takes for them and a network of single ciphertexts.
#[test]
fn bytes_of_keys() {
    let params = Parameters::new(&Literal::n16()).expect("sound");
    let context = Context::new(Cpu::detect(), params, 2).expect("threads");
    let specs = key_specs(&context).expect("they fit");
    let sum = |specs: &[jaguar_ckks::KeySpec]| -> usize {
        specs.iter().map(|spec| wire::key_bytes(&context, spec).expect("sound")).sum()
    };
    let plan = Plan::new(small(), context.params().values()).expect("it fits");
    assert_eq!((sum(&specs.circuit), sum(&specs.packing)), (1_147_702_840, 32_769_664));
    assert_eq!(specs.bytes(&context).expect("sound"), 1_181_291_785);
    // Two halves, and a word for each residue of 30 to 50 bits.
    assert_eq!(specs.memory(&context).expect("sound"), 3_323_985_920);
    let estimate = memory(&context, &plan).expect("sound");
    assert!((5.5e9..6.5e9).contains(&(estimate as f64)), "{estimate}");
    let wrong = Plan::new(small(), 1 << 14).expect("it fits");
    assert!(matches!(memory(&context, &wrong), Err(NetworkError::Set { .. })));
}

/// A server that evaluated three images of ResNet-20 at once had 6,621,148 KiB at most, on two threads: 6.78 GB. This network has fewer
/// weights.
#[test]
fn twice_the_values_take_more_memory() {
    let context =
        |literal| Context::new(Cpu::detect(), Parameters::new(&literal).expect("sound"), 2).expect("threads");
    let of = |literal| {
        let context = context(literal);
        let plan = Plan::new(small(), context.params().values()).expect("it fits");
        memory(&context, &plan).expect("sound")
    };
    let (half, full) = (of(Literal::n16()), of(Literal::n16().full()));
    assert!(half < full && (6.7e9..7.0e9).contains(&(full as f64)), "{half} {full}");
}

/// An error of the layer below keeps its kind.
#[test]
fn errors_have_kinds() {
    let error = NetworkError::from(Error::Factor { factor: 3 });
    assert!(matches!(error, NetworkError::Ckks(Error::Factor { factor: 3 })));
}
