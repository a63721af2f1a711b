//! Answers: what they hide, and what they would tell without each of their three steps.

use super::*;
use crate::answer::{self, Answerer, LEVEL, Noise, ReadError, SPECIAL};
use crate::convolution::{Convolution, Geometry, Kernel, Term};
use crate::layout::{Grid, Split};
use crate::packing::{Packer, key_specs};
use crate::{Error, PublicKey};

fn server(level: usize, special: usize) -> (Packer, PublicKey) {
    let party = &*PARTY;
    let mut generator = KeyGenerator::from_prg(&party.secret, Prg::new([21; 32]));
    let mut keys = EvaluationKeys::new();
    for spec in key_specs(&party.context, level, special) {
        keys.insert(generator.key(&spec).unwrap());
    }
    let packer = Packer::new(&party.context, keys, level).unwrap();
    (packer, party.secret.public_key(level, &mut Prg::new([22; 32])).unwrap())
}

/// The bound of the documentation, for the set that is used.
#[test]
fn noise_hides_what_it_must() {
    let params = Parameters::new(&Literal::n16()).unwrap();
    assert_eq!(answer::log_scale(&params).unwrap(), 96);
    let noise = Noise::derive(&params, SPECIAL).unwrap();
    assert_eq!(noise.log_range, 87);
    assert!((30.9..31.1).contains(&noise.log_error), "{noise:?}");
    assert!((-41.1..answer::MOST_DISTANCE).contains(&noise.log_distance), "{noise:?}");
    let two = Noise::derive(&params, 2).unwrap();
    assert!((-36.6..-36.4).contains(&two.log_distance), "{two:?}");
    assert!(Noise::derive(&params, 1).is_err() && Noise::derive(&params, 7).is_err());
}

/// What packing and trace leave of zeros is below the bound's part for them, and not far below what is typical.
#[test]
fn noise_is_within_the_bound() {
    let (party, mut prg) = (&*PARTY, prg(90));
    let (packer, public) = server(LEVEL, SPECIAL);
    let answerer = Answerer::new(&packer, &public).unwrap();
    let scale = f64::from(answerer.log_input_scale()).exp2();
    let worst = (1..8).map(|count| {
        let zero = |_| {
            let zero = party.context.encode_coefficients(&[0.0], LEVEL, scale)?;
            // Without noise of its own.
            let half = || party.context.to_values(party.context.make(2, 0, |_, _, limb| limb.fill(0)));
            let ct = Ciphertext { a: half(), b: zero.poly().duplicate(), level: LEVEL, scale };
            Ok::<_, Error>(public_plus(&party.evaluator, ct, &public, count))
        };
        let gathered = answerer.gather(count as usize, zero).unwrap();
        let fresh = answerer.fresh(&gathered, &mut prg).unwrap();
        // Coefficients that are no logit: what a leaf's own noise is does not come there.
        let distance = N >> Packer::merges(count as usize);
        let phase = party.phase(&fresh);
        phase
            .iter()
            .enumerate()
            .filter(|(i, _)| i % distance != 0)
            .fold(0.0f64, |most, (_, x)| most.max(x.abs()))
    });
    let worst = worst.fold(0.0, f64::max);
    let deviation = packer.deviation(LEVEL, 10).unwrap();
    let bound = answerer.noise().log_error.exp2();
    assert!((deviation / 3.0..bound).contains(&worst), "{worst}: {deviation}, {bound}");
}

/// A ciphertext with a random half that is not zero, so that key switches do something.
fn public_plus(evaluator: &KeyedEvaluator, ct: Ciphertext, public: &PublicKey, label: u64) -> Ciphertext {
    let zero = evaluator.context().encode_coefficients(&[0.0], LEVEL, 1.0).unwrap();
    let zero = public.encrypt(&zero, &mut prg(900 + label)).unwrap();
    evaluator.add(&ct, &evaluator.with_scale(zero, ct.scale())).unwrap()
}

/// 16 values, of which number 5 is 0.
fn tensor() -> Vec<f64> {
    (0..16).map(|i| if i == 5 { 0.0 } else { 0.25 + f64::from(i) / 32.0 }).collect()
}

fn grid() -> Grid {
    Grid::new([1, 4, 4], 0, 1).unwrap()
}

/// Three fully connected outputs. The weights of value 5 are the guess, which no logit tells.
fn convolution(guess: f64) -> Convolution {
    let geometry = Geometry { outputs: 3, inputs: 1, height: 4, width: 4, stride: 1, padding: [0; 4] };
    let weight = |i: usize| if i % 16 == 5 { guess } else { (i % 7) as f64 / 32.0 - 0.1 };
    let kernel = Kernel::new(geometry, (0..48).map(weight).collect()).unwrap();
    Convolution::new(
        vec![Term { kernel, grid: grid(), split: Split::WHOLE, factor: 1.0 }],
        vec![0.0; 3],
        N / 2,
    )
    .unwrap()
}

const GUESSES: [f64; 2] = [4.0, -4.0];

/// The client knows its keys, its input and the computation, so it can repeat it for weights that it guesses. That tells
/// two networks apart which give the same logits for its input, if a step is left out: by the random half without
/// step 2, by the noise without step 3, by other coefficients without the trace. With all three there is nothing.
#[test]
fn each_step_is_needed() {
    let (party, mut prg) = (&*PARTY, prg(91));
    let (packer, public) = server(LEVEL, SPECIAL);
    let answerer = Answerer::new(&packer, &public).unwrap();
    let scale = f64::from(answerer.log_input_scale()).exp2();
    let input = grid().scatter(&tensor(), N / 2).unwrap();
    let plaintext = party.context.encode_coefficients(&input[0], LEVEL, 2f64.powi(40)).unwrap();
    let input = party.secret.encrypt(&plaintext, &mut prg).0;
    let sum = |guess: f64, out: usize| {
        convolution(guess).sum(packer.evaluator(), &[std::slice::from_ref(&input)], out, scale)
    };
    let gathered = |guess: f64| answerer.gather(3, |out| sum(guess, out)).unwrap();
    let packed = |guess: f64| packer.pack(3, 10, |out| sum(guess, out).map(Some)).unwrap();
    let phase = |ct: &Ciphertext| -> Vec<f64> {
        party.phase(ct).into_iter().enumerate().filter(|(i, _)| i % 256 != 0).map(|(_, x)| x).collect()
    };

    // How far what was observed is from what each guess would give.
    let apart = |seen: &Ciphertext, of: &dyn Fn(f64) -> Ciphertext| {
        GUESSES.map(|guess| distance(&phase(seen), &phase(&of(guess))))
    };
    // In standard deviations of the noise: beyond 0 for the first guess, below it for the second.
    let leaning = |seen: &Ciphertext, of: &dyn Fn(f64) -> Ciphertext| {
        let (seen, [first, second]) = (phase(seen), GUESSES.map(|guess| phase(&of(guess))));
        let (mut product, mut square) = (0.0, 0.0);
        for ((x, a), b) in seen.iter().zip(first).zip(second) {
            product += (x - (a + b) / 2.0) * (a - b);
            square += (a - b) * (a - b);
        }
        product / square.sqrt() / (f64::from(answerer.noise().log_range).exp2() / 3f64.sqrt())
    };
    let same_half = |a: &Ciphertext, b: &Ciphertext| (0..2).all(|i| a.a.limb(i) == b.a.limb(i));
    // The encryption of zero has a deviation of 120 by itself, the key switches of ten steps one of 4400.
    let near = 1000.0;

    for (truth, other, sign) in [(0, 1, 1.0), (1, 0, -1.0)] {
        let guess = GUESSES[truth];
        // Without the encryption of zero.
        let seen = answerer.flooded(&gathered(guess), &mut prg);
        assert!(same_half(&seen, &gathered(guess)) && !same_half(&seen, &gathered(GUESSES[other])));
        // Without the uniform noise.
        let seen = answerer.fresh(&gathered(guess), &mut prg).unwrap();
        let apart_by = apart(&seen, &gathered);
        assert!(apart_by[truth] < near && apart_by[other] > 1.5 * near, "{apart_by:?}");
        // Without the trace.
        let seen = answerer.flooded(&answerer.fresh(&packed(guess), &mut prg).unwrap(), &mut prg);
        let leans = sign * leaning(&seen, &packed);
        assert!(leans > 8.0, "{leans}");
        // With all.
        let seen = answerer.answer(3, |out| sum(guess, out), &mut prg).unwrap();
        assert!(GUESSES.iter().all(|&guess| !same_half(&seen, &gathered(guess))));
        let apart_by = apart(&seen, &gathered);
        assert!(
            apart_by.iter().all(|&by| (2f64.powi(86)..2f64.powi(87) * 1.001).contains(&by)),
            "{apart_by:?}"
        );
        let leans = leaning(&seen, &gathered);
        assert!(leans.abs() < 5.0, "{leans}");

        let exact = convolution(guess);
        let numbers = answer::read(&party.secret, &seen, 3).unwrap();
        let scattered = grid().scatter(&tensor(), N / 2).unwrap();
        for (out, &found) in numbers.iter().enumerate() {
            // The pitch is 1, so each output has a polynomial of its own.
            let logit = exact.plain(&[&scattered], out).unwrap()[0];
            assert!((found - logit).abs() < 1.01 * answer::RELATIVE_NOISE, "{found}, {logit}");
            assert!((answer::round(found, 1.0) - logit).abs() < answer::most_error(1.0) + 1e-4);
        }
    }
}

/// Noise has no mean, is not above R, and comes near it.
#[test]
fn noise_is_uniform() {
    let (packer, public) = server(LEVEL, SPECIAL);
    let answerer = Answerer::new(&packer, &public).unwrap();
    let zero = PARTY.context.encode_coefficients(&[0.0], LEVEL, 1.0).unwrap();
    let zero = public.encrypt(&zero, &mut prg(92)).unwrap();
    let r = f64::from(answerer.noise().log_range).exp2();
    let mut prg = prg(93);
    let draws: Vec<f64> =
        (0..16).flat_map(|_| PARTY.phase(&answerer.flooded(&zero, &mut prg))).map(|x| x / r).collect();
    let (least, most) = draws.iter().fold((0.0f64, 0.0f64), |(least, most), &x| (least.min(x), most.max(x)));
    assert!((-1.0..-0.99).contains(&least) && (0.99..1.0).contains(&most), "{least} {most}");
    // 16384 draws, 1024 in each sixteenth: a deviation of 31.
    let mut counts = [0; 16];
    draws.iter().for_each(|x| counts[((x + 1.0) * 8.0) as usize] += 1);
    assert!(counts.iter().all(|&count: &i32| (count - 1024).abs() < 190), "{counts:?}");
}

#[test]
fn what_is_no_answer_is_refused() {
    let (party, mut prg) = (&*PARTY, prg(94));
    let (packer, public) = server(LEVEL, SPECIAL);
    let answerer = Answerer::new(&packer, &public).unwrap();
    let scale = f64::from(answerer.log_input_scale()).exp2();
    let value = |x: f64, level: usize, scale: f64| {
        let plaintext = party.context.encode_coefficients(&[x * scale / 2f64.powi(60)], level, 2f64.powi(60));
        let ct = party.secret.encrypt(&plaintext.unwrap(), &mut super::prg(95)).0;
        party.evaluator.with_scale(ct, scale)
    };
    let leaf = |x: f64| move |_: usize| Ok::<_, Error>(value(x * 2f64.powi(-28), LEVEL, scale));
    let right = answerer.answer(2, leaf(0.5), &mut prg).unwrap();
    let numbers = answer::read(&party.secret, &right, 2).unwrap();
    assert!(numbers.iter().all(|x| (x - 0.5 * 2f64.powi(-28)).abs() < 1.01 * answer::RELATIVE_NOISE));

    let other = SecretKey::from_prg(&party.context, &mut prg);
    assert!(matches!(answer::read(&other, &right, 2), Err(ReadError::Spoilt)));
    let spoilt = party.evaluator.with_scale(public_plus(&party.evaluator, right.clone(), &public, 1), 2.0);
    assert!(matches!(answer::read(&party.secret, &spoilt, 2), Err(ReadError::Ckks(Error::Scales { .. }))));
    let low = party.evaluator.drop_to(&right, 0).unwrap();
    assert!(matches!(answer::read(&party.secret, &low, 2), Err(ReadError::Ckks(Error::Level { .. }))));
    for count in [0, N + 1] {
        assert!(matches!(
            answer::read(&party.secret, &right, count),
            Err(ReadError::Ckks(Error::Count { .. }))
        ));
    }

    let refused = |leaf: &(dyn Fn(usize) -> Result<Ciphertext, Error> + Sync), count: usize| {
        answerer.answer(count, leaf, &mut super::prg(96)).err().unwrap()
    };
    assert!(matches!(refused(&|_| Ok(value(0.0, 0, scale)), 1), Error::Level { found: 0, .. }));
    assert!(matches!(refused(&|_| Ok(value(0.0, 1, 2.0 * scale)), 1), Error::Scales { .. }));
    assert!(matches!(refused(&leaf(0.0), N + 1), Error::Count { .. }));
    // Keys that leave noise uncovered.
    for (level, special) in [(0, 1), (1, 2)] {
        let (packer, public) = server(level, special);
        assert!(Answerer::new(&packer, &public).is_err(), "level {level}, {special} special primes");
    }
    let low = party.secret.public_key(0, &mut prg).unwrap();
    assert!(matches!(Answerer::new(&packer, &low), Err(Error::Level { found: 0, .. })));
}
