//! Packing against the moves of coefficients that it stands for.

use super::*;
use crate::packing::{Packer, key_specs};
use crate::{Error, KeySpec, wire};

fn packer(party: &Party, level: usize, special: usize) -> Packer {
    let mut generator = KeyGenerator::from_prg(&party.secret, Prg::new([6; 32]));
    let mut keys = EvaluationKeys::new();
    for spec in key_specs(&party.context, level, special) {
        keys.insert(generator.key(&spec).unwrap());
    }
    Packer::new(&party.context, keys, level).unwrap()
}

/// Ciphertexts of full random polynomials; the third is zero.
fn ciphertexts(party: &Party, count: usize, level: usize, prg: &mut Prg) -> Vec<Option<Ciphertext>> {
    let make = |c: usize| {
        let values: Vec<f64> = (0..N).map(|_| random(prg)).collect();
        let plaintext = party.context.encode_coefficients(&values, level, SCALE).unwrap();
        (c != 2).then(|| party.secret.encrypt(&plaintext, prg).0)
    };
    (0..count).map(make).collect()
}

/// X^k is exact, for all k below 2N, in the coefficients of both halves' phase.
#[test]
fn monomials_move_coefficients() {
    let (party, mut prg) = (&*PARTY, prg(60));
    for (i, k) in [0, 1, 5, 511, 1023, 1024, 1025, 2047].into_iter().enumerate() {
        let ct = party.encrypt(&random_slots(&mut prg, N / 2), [0, 3, 26][i % 3], SCALE, &mut prg);
        let phase = party.phase(&ct);
        let moved = party.evaluator.multiply_monomial(&ct, k).unwrap();
        assert_eq!((moved.level(), moved.scale()), (ct.level(), ct.scale()));
        let mut expected = vec![0.0; N];
        for (j, x) in phase.into_iter().enumerate() {
            let place = (j + k) % (2 * N);
            expected[place % N] = if place < N { x } else { -x };
        }
        assert_eq!(distance(&party.phase(&moved), &expected), 0.0, "X^{k}");
    }
    let ct = party.encrypt(&random_slots(&mut prg, 1), 1, SCALE, &mut prg);
    let error = party.evaluator.multiply_monomial(&ct, 2 * N).err().unwrap();
    assert!(error.to_string().contains("2048 as the exponent"), "{error}");
}

/// Every place that means something is 2^l times what stood there, but for the key switches' noise: below 8 of the
/// stated deviations, and above a third of one, so that the statement is no more than what there is. With a trace
/// nothing else is left.
#[test]
fn packing_gathers_multiples_of_the_step() {
    let (party, mut prg) = (&*PARTY, prg(61));
    // Level 1 is one digit with two special primes, and two with one.
    for (top, special) in [(0, 1), (1, 2), (1, 1), (1, 6)] {
        let packer = packer(party, top, special);
        for (count, log_step, level) in
            [(8, 3, 0), (8, 3, top), (5, 3, 0), (1, 4, 0), (16, 6, 0), (3, 10, top)]
        {
            let case = format!("{count} by 2^{log_step} at {level}, {special} special primes");
            let leaves = ciphertexts(party, count, level, &mut prg);
            let packed = packer.pack(count, log_step, |c| Ok::<_, Error>(leaves[c].clone())).unwrap();
            let merges = Packer::merges(count);
            assert!(1 << merges >= count && (1 << merges) < 2 * count, "{case}");
            assert_eq!((packed.level(), packed.scale()), (level, SCALE * f64::from(1 << merges)), "{case}");
            let (step, apart) = (1 << log_step, 1 << (log_step - merges));
            let mut expected = vec![0.0; N];
            for (c, leaf) in leaves.iter().enumerate() {
                let Some(leaf) = leaf else { continue };
                let phase = party.phase(leaf);
                (0..N)
                    .step_by(step)
                    .for_each(|i| expected[i + c * apart] = phase[i] * f64::from(1 << merges));
            }
            let noise = |found: &[f64], expected: &[f64], of: usize| -> f64 {
                let pairs = found.iter().zip(expected).step_by(of);
                pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
            };
            let check = |noise: f64, steps: u32| {
                let deviation = packer.deviation(level, steps).unwrap();
                let least = if steps == 0 { 0.0 } else { deviation / 3.0 };
                assert!((least..=8.0 * deviation).contains(&noise), "{case}: {noise} for {deviation}");
            };
            check(noise(&party.phase(&packed), &expected, apart), merges);
            let traced = packer.trace(&packed, log_step - merges).unwrap();
            assert_eq!(traced.scale(), SCALE * f64::from(1 << log_step), "{case}");
            expected.iter_mut().for_each(|x| *x *= f64::from(1 << (log_step - merges)));
            check(noise(&party.phase(&traced), &expected, 1), log_step);
        }
    }
}

/// Branches at the same time give the same bits, and each ciphertext is made once.
#[test]
fn threads_change_nothing() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let mut all = Vec::new();
    for threads in [1, 2, 3] {
        let party = Party::new(Cpu::detect(), threads);
        let packer = packer(&party, 1, 2);
        let leaves = ciphertexts(&party, 64, 1, &mut prg(62));
        let calls = AtomicUsize::new(0);
        let leaf = |c: usize| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>(leaves[c].clone())
        };
        let packed = packer.pack(64, 8, leaf).unwrap();
        assert_eq!(calls.into_inner(), 64);
        let [a, b] = packed.halves().map(|half| [half.limb(0).to_vec(), half.limb(1).to_vec()]);
        all.push([a, b]);
    }
    assert!(all.iter().all(|bits| *bits == all[0]));
}

/// Memory grows with the merges, not with the ciphertexts: five merges more are five more that wait.
#[test]
fn few_ciphertexts_are_in_memory() {
    let party = Party::new(Cpu::detect(), 1);
    let packer = packer(&party, 1, 2);
    let leaf = ciphertexts(&party, 1, 1, &mut prg(64)).remove(0);
    let limbs_after = |count: usize| {
        packer.pack(count, 10, |_| Ok::<_, Error>(leaf.clone())).unwrap();
        party.context.idle_limbs()
    };
    // A ciphertext of level 1 has two halves of two limbs. 16 others are made ready, so that the pool is not what it
    // was for the keys.
    let (few, many) = {
        let kept: Vec<Ciphertext> = std::iter::repeat_with(|| leaf.clone().unwrap())
            .take_while(|_| party.context.idle_limbs() >= 4)
            .collect();
        let both = (limbs_after(16), limbs_after(512));
        drop(kept);
        both
    };
    assert!(few >= 4 * 4 && (4..=5 * 4).contains(&(many - few)), "{few} limbs for 16, {many} for 512");
}

#[test]
fn packing_refuses_what_does_not_fit() {
    let (party, mut prg) = (&*PARTY, prg(63));
    let packer = packer(party, 0, 1);
    let none = |_: usize| Ok::<Option<Ciphertext>, Error>(None);
    for (count, log_step) in [(0, 3), (9, 3), (2, 11), (2, 3)] {
        assert!(packer.pack(count, log_step, none).is_err(), "{count} by 2^{log_step}");
    }
    let high = party.encrypt(&random_slots(&mut prg, 1), 1, SCALE, &mut prg);
    let error = packer.pack(1, 3, |_| Ok::<_, Error>(Some(high.clone()))).err().unwrap();
    assert!(matches!(error, Error::Level { found: 1, .. }), "{error}");
    assert!(packer.trace(&high, 3).is_err() && packer.deviation(1, 1).is_err());
    let low = party.evaluator.drop_to(&high, 0).unwrap();
    assert!(packer.trace(&low, 11).is_err());
    let lost = |c: usize| {
        let lost = Error::Key { what: "lost".into(), level: 7 };
        if c == 3 { Err(lost) } else { Ok(Some(low.clone())) }
    };
    let error = packer.pack(5, 3, lost).err().unwrap();
    assert!(matches!(error, Error::Key { level: 7, .. }), "{error}");
    let error = Packer::new(&party.context, EvaluationKeys::new(), 0).err().unwrap();
    assert!(error.to_string().contains("no key for Galois(1025)"), "{error}");
}

/// Keys of level 0 have two primes, half of each a seed.
#[test]
fn keys_are_small() {
    let specs = key_specs(&PARTY.context, 0, 1);
    let elements: Vec<KeyKind> = specs.iter().map(|spec| spec.kind).collect();
    assert_eq!(elements, [1025, 513, 257, 129, 65, 33, 17, 9, 5, 3].map(KeyKind::Galois));
    let bytes = |spec: &KeySpec| wire::key_bytes(&PARTY.context, spec).unwrap();
    assert_eq!(specs.iter().map(bytes).sum::<usize>(), 10 * (48 + 24 + 32 + 2 * N / 8 * 50));
}
