//! Polynomials against big numbers, and all kernels and numbers of threads against each other.

use num_bigint::BigInt;

use super::*;
use crate::poly::{Coefficients, Poly, Values};

/// The number of least absolute value of some residues.
fn number(primes: &[u64], residues: &[u64]) -> BigInt {
    let product: BigInt = primes.iter().map(|&p| BigInt::from(p)).product();
    let mut sum = BigInt::from(0);
    for (&p, &residue) in primes.iter().zip(residues) {
        let rest = &product / p;
        let inverse = rest.modpow(&BigInt::from(p - 2), &BigInt::from(p));
        sum += rest * inverse * residue;
    }
    sum %= &product;
    if &sum + &sum > product { sum - product } else { sum }
}

fn residue(x: &BigInt, p: u64) -> u64 {
    u64::try_from(((x % p) + p) % p).unwrap()
}

fn primes(context: &Context, ordinary: usize, special: usize) -> Vec<u64> {
    let params = context.params();
    [&params.primes()[..ordinary], &params.special()[..special]].concat()
}

fn uniform(context: &Context, ordinary: usize, special: usize, label: u64) -> Poly<Coefficients> {
    let primes = primes(context, ordinary, special);
    context.make(ordinary, special, |prime, i, limb| {
        let mut prg = prg(label + 1000 * prime as u64);
        limb.iter_mut().for_each(|word| *word = prg.next_u64() % primes[i]);
    })
}

/// Every so-manieth coefficient.
const SOME: usize = 37;

fn column<F: crate::poly::Form>(poly: &Poly<F>, k: usize) -> Vec<u64> {
    (0..poly.len()).map(|i| poly.limb(i)[k]).collect()
}

fn rounded_quotient(x: &BigInt, divisor: &BigInt) -> BigInt {
    let half: BigInt = divisor / 2;
    let centred = ((x + &half) % divisor + divisor) % divisor - half;
    (x - centred) / divisor
}

#[test]
fn divisions_round_to_the_nearest() {
    let context = &PARTY.context;
    let divide = |ordinary: usize, special: usize, keep: usize, run: &dyn Fn(&mut Poly<Values>)| {
        let x = uniform(context, ordinary, special, 1);
        let all = primes(context, ordinary, special);
        let (kept, dropped) = all.split_at(keep);
        let divisor: BigInt = dropped.iter().map(|&p| BigInt::from(p)).product();
        let mut values = context.to_values(x.duplicate());
        run(&mut values);
        let quotient = context.to_coefficients(values);
        assert_eq!((quotient.ordinary(), quotient.special()), (keep, 0));
        for k in (0..N).step_by(SOME) {
            let exact = rounded_quotient(&number(&all, &column(&x, k)), &divisor);
            for (i, &p) in kept.iter().enumerate() {
                assert_eq!(
                    quotient.limb(i)[k],
                    residue(&exact, p),
                    "coefficient {k}, prime {i} of {ordinary}"
                );
            }
        }
    };
    // Level 3 has two primes.
    for level in [1, 3, 4, 26] {
        let params = context.params();
        divide(params.limbs(level), 0, params.limbs(level - 1), &|x| context.rescale(x, level));
    }
    for (ordinary, special) in [(1, 1), (5, 2), (28, 6), (28, 1)] {
        divide(ordinary, special, ordinary, &|x| context.mod_down(x));
    }
}

/// The digits of a polynomial, each the number of least absolute value of its own residues, modulo all primes.
#[test]
fn digits_are_extended_to_all_primes() {
    let context = &PARTY.context;
    for (ordinary, special, count) in [(28, 6, 5), (28, 5, 5), (4, 6, 1), (2, 2, 1), (3, 1, 3)] {
        let x = uniform(context, ordinary, 0, 2);
        let values = context.to_values(x.duplicate());
        let digits = context.decompose(&values, special);
        let ranges: Vec<_> = context.digits(ordinary, special).collect();
        assert_eq!(ranges.len(), count, "{ordinary} primes, {special} special ones");
        assert_eq!(ranges.iter().map(|range| range.len()).sum::<usize>(), ordinary);
        let all = primes(context, ordinary, special);
        for (j, range) in ranges.iter().enumerate() {
            let limbs: Vec<Vec<u64>> = (0..all.len())
                .map(|i| {
                    let mut limb = digits.limb(j, i).to_vec();
                    context.ntt(context.prime(ordinary, i)).backward(&mut limb);
                    limb
                })
                .collect();
            for k in (0..N).step_by(SOME) {
                let digit = number(&all[range.clone()], &column(&x, k)[range.clone()]);
                for (limb, &p) in limbs.iter().zip(&all) {
                    assert_eq!(limb[k], residue(&digit, p), "digit {j}, coefficient {k}");
                }
            }
        }
    }
}

#[test]
fn lifted_residues_are_small() {
    let context = &PARTY.context;
    let x = uniform(context, 1, 0, 3);
    let q0 = context.params().primes()[0];
    let lifted = context.to_coefficients(context.lift(&context.to_values(x.duplicate()), 12, true));
    let all = primes(context, 28, 6);
    assert_eq!((lifted.ordinary(), lifted.special()), (28, 6));
    for k in (0..N).step_by(SOME) {
        let exact = number(&[q0], &[x.limb(0)[k]]) * 12;
        assert_eq!(column(&lifted, k), all.iter().map(|&p| residue(&exact, p)).collect::<Vec<_>>());
    }
}

#[test]
fn phases_are_the_numbers_of_least_absolute_value() {
    let context = &PARTY.context;
    let x = uniform(context, 7, 0, 4);
    let found = context.centred(&x);
    for k in (0..N).step_by(SOME) {
        let exact = number(&primes(context, 7, 0), &column(&x, k)).to_string().parse::<f64>().unwrap();
        assert!((found[k] - exact).abs() <= exact.abs() * 2f64.powi(-50), "{k}");
    }
}

#[test]
fn automorphisms_move_coefficients() {
    let context = &PARTY.context;
    let x = uniform(context, 2, 1, 5);
    for element in [5, 2 * N - 1, N + 1] {
        let moved = context.to_coefficients(context.automorphism(&context.to_values(x.duplicate()), element));
        for (i, &p) in primes(context, 2, 1).iter().enumerate() {
            for k in 0..N {
                let place = k * element % (2 * N);
                let value = moved.limb(i)[place % N];
                let value = if place >= N && value != 0 { p - value } else { value };
                assert_eq!(value, x.limb(i)[k], "X^{k} under X → X^{element}");
            }
        }
    }
}

/// Everything that an evaluation touches, on every kernel and on two threads: the same words.
#[test]
fn kernels_and_threads_give_the_same_ciphertexts() {
    let run = |party: &Party| -> Vec<Vec<u64>> {
        let mut prg = prg(6);
        let evaluator = &party.evaluator;
        let slots = random_slots(&mut prg, N / 2);
        let ct = party.encrypt(&slots, 4, SCALE, &mut prg);
        let product = evaluator.rescale(&evaluator.square(&ct).unwrap()).unwrap();
        let rotated = evaluator.rotate(&product, 5).unwrap();
        let low = evaluator.drop_to(&rotated, 0).unwrap();
        let raised = evaluator.raise(&low, 3, N / 2).unwrap();
        [rotated, raised]
            .iter()
            .flat_map(|ct| {
                ct.halves().map(|half| (0..half.len()).flat_map(|i| half.limb(i).to_vec()).collect())
            })
            .collect()
    };
    let expected = run(&PARTY);
    assert!(expected == run(&Party::new(Cpu::scalar(), 1)), "in plain Rust");
    assert!(expected == run(&Party::new(Cpu::detect(), 3)), "on three threads");
    let avx2 = Cpu::detect().limited_to(jaguar_ring::cpu::Level::Avx2);
    assert!(expected == run(&Party::new(avx2, 1)), "with AVX2");
}
