//! Products against the schoolbook method in 128-bit integers.

use super::*;
use crate::cpu::Cpu;
use crate::{Prg, sample};
use proptest::prelude::*;

fn schoolbook(x: &[u64], s: &[i8], bits: u32) -> Vec<u64> {
    let n = x.len();
    let mut sums = vec![0i128; n];
    for (i, &s) in s.iter().enumerate() {
        for (j, &x) in x.iter().enumerate() {
            let product = i128::from(s) * i128::from(x & crate::mask(bits));
            if i + j < n { sums[i + j] += product } else { sums[i + j - n] -= product }
        }
    }
    sums.into_iter().map(|sum| sum.rem_euclid(1 << bits) as u64).collect()
}

fn check(n: usize, bits: u32, x: &[u64], s: &[i8]) {
    let expected = schoolbook(x, s, bits);
    for kernel in Kernel::all(Cpu::detect()) {
        let multiplier = Multiplier::new(kernel, n);
        let small = multiplier.prepare_small(s);
        let mut out = vec![u64::MAX; n];
        multiplier.multiply_into(x, bits, &small, &mut out);
        assert!(out == expected, "multiply_into, {kernel:?}, n = {n}, {bits} bits");
        out.fill(u64::MAX);
        multiplier.multiply(&multiplier.prepare_wide(x, bits), &small, &mut out);
        assert!(out == expected, "multiply, {kernel:?}, n = {n}, {bits} bits");
    }
}

fn random_words(n: usize, bits: u32, seed: u64) -> Vec<u64> {
    let mut words = vec![0; n];
    Prg::derive(&[8; 32], "words", &[seed]).fill_words(&mut words, bits);
    words
}

#[test]
fn every_length() {
    for log_n in 4..=11 {
        let n = 1 << log_n;
        for bits in [1, 26, 32, 33, 48, 53, 54, 64] {
            let mut prg = Prg::derive(&[6; 32], "small", &[log_n, bits as u64]);
            let x = random_words(n, bits, log_n);
            let mut s = vec![0i8; n];
            sample::ternary(Kernel::of(Cpu::detect()), &mut prg, &mut s);
            check(n, bits, &x, &s);
            sample::noise(Kernel::of(Cpu::detect()), &mut prg, &mut s);
            check(n, bits, &x, &s);
        }
    }
}

#[test]
fn longest_lengths() {
    for n in [4096, 8192] {
        let mut s = vec![0i8; n];
        sample::ternary(Kernel::of(Cpu::detect()), &mut Prg::new([4; 32]), &mut s);
        check(n, 54, &random_words(n, 54, 1), &s);
    }
}

/// Operands whose product has coefficients as large as they get, of either sign.
fn check_extremes(n: usize, bits: u32, values: &[i8]) {
    let least = 1u64 << (bits - 1);
    for word in [least, least - 1, crate::mask(bits)] {
        for &value in values {
            // With one sign throughout all terms add up at coefficient n - 1, where none has wrapped around; with
            // the sign of all but the constant turned, at coefficient 0, where all but one have.
            let flat = vec![value; n];
            let mut turned: Vec<i8> = flat.iter().map(|v| v.saturating_neg()).collect();
            turned[0] = value;
            check(n, bits, &vec![word; n], &flat);
            check(n, bits, &vec![word; n], &turned);
        }
    }
}

#[test]
fn extreme_operands() {
    for n in [16, 32, 256] {
        for bits in [1, 2, 40, 47, 48, 49, 63, 64] {
            check_extremes(n, bits, &[1, -1, 21, -21, 127, -128]);
        }
    }
    // Both sides of the step from two primes to three.
    for bits in [48, 49] {
        check_extremes(2048, bits, &[1, -1]);
    }
}

#[test]
fn number_of_primes() {
    assert_eq!(primes_for(2048, 48, 1), 2);
    assert_eq!(primes_for(2048, 49, 1), 3);
    assert_eq!(primes_for(2048, 26, ANY_I8), 2);
    assert_eq!(primes_for(4096, 47, 1), 2);
    assert_eq!(primes_for(4096, 48, 1), 3);
    assert_eq!(primes_for(8192, 64, ANY_I8), 3);
}

#[test]
fn class_of_small_polynomials() {
    let multiplier = Multiplier::new(Kernel::of(Cpu::detect()), 16);
    for value in i8::MIN..=i8::MAX {
        let mut s = [0; 16];
        s[7] = value;
        assert_eq!(multiplier.prepare_small(&s).bound == 1, (-1..=1).contains(&value), "{value}");
    }
}

#[test]
fn primes_are_prime_and_have_roots() {
    for prime in PRIMES {
        assert!(prime < 1 << 30 && prime % (2 * LENGTHS.end()) as u32 == 1);
        assert!((2..).take_while(|d| d * d <= prime).all(|d| prime % d != 0));
    }
    assert!(PRIMES.is_sorted_by(|a, b| a > b));
}

#[test]
fn multipliers_of_one_length_share_tables() {
    assert!(Arc::ptr_eq(
        &Multiplier::new(Kernel::of(Cpu::detect()), 64).tables,
        &Multiplier::new(Kernel::of(Cpu::detect()), 64).tables
    ));
    assert_eq!(Multiplier::new(Kernel::of(Cpu::detect()), 2048).kernel(), Kernel::of(Cpu::detect()));
}

#[test]
#[should_panic(expected = "another multiplier")]
fn operands_of_another_length_are_refused() {
    let small = Multiplier::new(Kernel::of(Cpu::detect()), 32).prepare_small(&[0; 32]);
    Multiplier::new(Kernel::of(Cpu::detect()), 16).multiply_into(&[0; 16], 48, &small, &mut [0; 16]);
}

#[test]
fn scratch_is_cleared() {
    let multiplier = Multiplier::new(Kernel::of(Cpu::detect()), 64);
    let small = multiplier.prepare_small(&[1; 64]);
    multiplier.multiply_into(&random_words(64, 48, 3), 48, &small, &mut [0; 64]);
    SCRATCH.with_borrow(|scratch| assert!(crate::simd::words(scratch).iter().all(|&word| word == 0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_operands(log_n in 4u32..=8, bits in 1u32..=64, seed in any::<u64>(), small in any::<bool>()) {
        let n = 1 << log_n;
        let mut bytes = vec![0u8; n];
        Prg::derive(&[2; 32], "any", &[seed]).fill(&mut bytes);
        let s: Vec<i8> = bytes.into_iter().map(|b| if small { (b % 3) as i8 - 1 } else { b as i8 }).collect();
        check(n, bits, &random_words(n, 64, seed), &s);
    }
}
