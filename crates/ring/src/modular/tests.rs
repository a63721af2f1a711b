//! Reductions against 128-bit remainders, transforms against the schoolbook product and against evaluation.

use super::*;
use crate::prg::Prg;
use proptest::prelude::*;

fn moduli() -> Vec<u64> {
    let of_size = |bits: u32| primes(bits, 32).next().unwrap();
    let mut all: Vec<u64> = [8, 13, 20, 30, 31, 45, 59, 60].map(of_size).to_vec();
    all.extend([2, 3, 4, 65536, (1 << 60) - 1, 1 << 59]);
    all
}

proptest! {
    #[test]
    fn reductions_are_remainders(x: u64, y: u64, s: i64) {
        for value in moduli() {
            let m = Modulus::new(value);
            for x in [x, 0, value - 1, value, 2 * value, u64::MAX] {
                prop_assert_eq!(m.reduce(x), x % value);
                let factor = m.factor(y);
                let product = u128::from(x) * u128::from(y % value) % u128::from(value);
                prop_assert_eq!(u128::from(m.mul_factor(x, factor)), product);
                prop_assert!(m.mul_factor_lazy(x, factor) < 2 * value);
                let wide = u128::from(x) * u128::from(y % value);
                let (quotient, rest) = m.divide_product(x, factor);
                prop_assert_eq!(u128::from(quotient) * u128::from(value) + u128::from(rest), wide);
                prop_assert!(rest < value);
            }
            for (a, b) in [(x % value, y % value), (value - 1, value - 1), (0, y % value), (value - 1, 0)] {
                let (wide_a, wide_b, wide) = (u128::from(a), u128::from(b), u128::from(value));
                prop_assert_eq!(u128::from(m.mul(a, b)), wide_a * wide_b % wide);
                prop_assert_eq!(u128::from(m.add(a, b)), (wide_a + wide_b) % wide);
                prop_assert_eq!(u128::from(m.sub(a, b)), (wide_a + wide - wide_b) % wide);
                prop_assert_eq!(u128::from(m.negate(a)), (wide - wide_a) % wide);
                let c = i128::from(m.centred(a));
                prop_assert_eq!(c.rem_euclid(value.into()), a.into());
                prop_assert!(2 * c.abs() <= value.into());
            }
            for s in [s, 0, -1, i64::MIN, i64::MAX, value as i64, -(value as i64)] {
                prop_assert_eq!(i128::from(m.reduce_signed(s)), i128::from(s).rem_euclid(value.into()));
            }
        }
    }

    #[test]
    fn transforms_make_products(seed: u64, log_n in 4u32..7, bits in prop::sample::select(vec![20u32, 30, 31, 47, 60])) {
        let n = 1usize << log_n;
        let p = primes(bits, 2 * n as u64).next().unwrap();
        let ntt = Ntt::new(n, p).unwrap();
        let mut prg = Prg::derive(&[1; 32], "modular", &[seed]);
        let mut random = || -> Vec<u64> { (0..n).map(|_| prg.next_u64() % p).collect() };
        let (mut a, mut b) = (random(), random());
        if seed % 4 == 0 {
            a.fill(p - 1);
            b.fill(p - 1);
        }
        let mut expected = vec![0i128; n];
        for (i, &a) in a.iter().enumerate() {
            for (j, &b) in b.iter().enumerate() {
                let product = (u128::from(a) * u128::from(b) % u128::from(p)) as i128;
                let sum = &mut expected[(i + j) % n];
                *sum = (*sum + if i + j < n { product } else { -product }).rem_euclid(p.into());
            }
        }
        let (before, mut product) = (a.clone(), a.clone());
        ntt.forward(&mut a);
        ntt.forward(&mut b);
        product.iter_mut().zip(a.iter().zip(&b)).for_each(|(c, (&a, &b))| *c = ntt.modulus().mul(a, b));
        ntt.backward(&mut product);
        prop_assert_eq!(product.iter().map(|&c| i128::from(c)).collect::<Vec<_>>(), expected);
        ntt.backward(&mut a);
        prop_assert_eq!(a, before);
    }
}

/// Value k of the transform of X is psi to the exponent of k.
#[test]
fn values_are_where_the_exponents_say() {
    for (n, bits) in [(16, 20), (64, 50), (1024, 60)] {
        let ntt = Ntt::new(n, primes(bits, 2 * n as u64).next().unwrap()).unwrap();
        let mut x = vec![0; n];
        x[1] = 1;
        ntt.forward(&mut x);
        let psi = x[ntt.index(1)];
        for (k, &value) in x.iter().enumerate() {
            assert_eq!(ntt.index(ntt.exponent(k)), k);
            assert_eq!(value, ntt.modulus().power_vt(psi, ntt.exponent(k) as u64));
        }
        assert_eq!(ntt.modulus().power_vt(psi, n as u64), ntt.modulus().value() - 1);
    }
}

#[test]
fn primes_are_found_in_order() {
    let sieve = |n: u64| n >= 2 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    for n in 0..5000 {
        assert_eq!(is_prime(n), sieve(n), "{n}");
    }
    // Strong pseudoprimes to the first bases.
    for n in [3_215_031_751u64, 3_474_749_660_383, 341_550_071_728_321] {
        assert!(!is_prime(n), "{n}");
    }
    let found: Vec<u64> = primes(12, 64).collect();
    let expected: Vec<u64> = (2048..4096).rev().filter(|&n| n % 64 == 1 && sieve(n)).collect();
    assert_eq!(found, expected);
    // Those of `product`.
    let known = crate::product::ntt::PRIMES.map(u64::from);
    assert_eq!(primes(30, 1 << 14).take(3).collect::<Vec<_>>(), known);
    assert!(primes(60, 1 << 16).take(40).all(|p| p >> 59 == 1 && p % (1 << 16) == 1));
}

#[test]
fn unfit_transforms_are_refused() {
    assert!(Ntt::new(16, 97).is_some());
    for (n, p) in
        [(8, 97), (24, 97), (16, 96), (16, 129), (32, 97), (65536, 97), (16, u64::MAX), (16, 0), (16, 1)]
    {
        assert!(Ntt::new(n, p).is_none(), "{n} {p}");
    }
    let m = Modulus::new(97);
    assert_eq!((m.inverse(0), m.inverse(97), m.inverse(2)), (None, None, Some(49)));
}
