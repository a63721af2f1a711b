//! Every kernel against plain Rust, over random primes, lengths and extreme residues: the same bits.

use crate::cpu::Cpu;
use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;
use crate::kernel::Kernel;
#[cfg(target_arch = "x86_64")]
use crate::kernel::Set;
use crate::prg::Prg;
use basis::Fraction;
use slices::{Digits, Sources};

/// All kernels of this processor but plain Rust; the widest also without IFMA.
fn kernels() -> Vec<Kernel> {
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut all: Vec<Kernel> = Kernel::all(Cpu::detect()).skip(1).collect();
    #[cfg(target_arch = "x86_64")]
    if let Some(&Kernel(Set::Avx512(simd))) = all.last() {
        all.push(Kernel(Set::Avx512(simd.without_ifma())));
    }
    all
}

/// One of the primes of `bits` bits that have roots for transforms of length n.
fn prime(n: usize, bits: u32, seed: u64) -> u64 {
    let found: Vec<u64> = primes(bits, 2 * n as u64).take(1 + seed as usize % 7).collect();
    *found.last().expect("a prime of this size")
}

/// Residues below p, extreme ones among them; or, for some seeds, nothing else.
fn residues(prg: &mut Prg, n: usize, p: u64) -> Vec<u64> {
    let extremes = [0, 1, p / 2, p / 2 + 1, p - 2, p - 1];
    let kind = prg.next_u64() % 4;
    let mut next = || match prg.next_u64() % 16 {
        at if kind == 0 || (kind > 1 && at < 6) => extremes[at as usize % 6],
        _ => prg.next_u64() % p,
    };
    let first = next();
    (0..n).map(|_| if kind == 1 { first } else { next() }).collect()
}

const SIZES: [u32; 12] = [20, 21, 30, 31, 39, 41, 49, 50, 51, 52, 53, 60];

/// p - 1 times itself is 1: of the largest residues, as many products as are added up between two reductions, and more.
#[test]
fn largest_residues_add_up() {
    const N: usize = 16;
    for bits in SIZES {
        let m = Modulus::new(prime(N, bits, 0));
        let ntt = Ntt::new(N, m.value()).unwrap();
        let sources = Sources::new((0..N).map(|k| ntt.index(ntt.exponent(k)) as u32).collect());
        let largest = vec![m.value() - 1; N];
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            for count in 1..40 {
                let all = vec![&largest[..]; count];
                let [mut a, mut b] = [0; 2].map(|_| largest.clone());
                slices::add_products(kernel, &m, &all, [&all, &all], [&mut a, &mut b]);
                let expected = vec![count as u64 - 1; N];
                assert!(a == expected && b == expected, "{kernel:?}, {count} products, {bits} bits");
                slices::moved_products(
                    kernel,
                    &m,
                    &sources,
                    &all,
                    [&all, &all],
                    &largest,
                    0,
                    [&mut a, &mut b],
                );
                assert!(b == expected, "{kernel:?}, {count} products, {bits} bits");
                assert!(a.iter().all(|&a| a == count as u64), "{kernel:?}, {count} products, {bits} bits");
            }
            let [mut x, mut y] = [0; 2].map(|_| largest.clone());
            slices::sum_and_difference(kernel, &m, &mut x, &mut y, &largest);
            assert!(x == [0; N] && y.iter().all(|&y| y == m.value() - 2), "{kernel:?}, {bits} bits");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn transforms_are_those_of_plain_rust(seed: u64, log_n in 4u32..17, bits in prop::sample::select(SIZES.to_vec())) {
        let n = 1usize << log_n;
        let p = prime(n, bits, seed);
        let scalar = Ntt::new(n, p).unwrap();
        let mut prg = Prg::derive(&[1; 32], "kernels", &[seed]);
        let x = residues(&mut prg, n, p);
        let (mut forward, mut backward) = (x.clone(), x.clone());
        scalar.forward(&mut forward);
        scalar.backward(&mut backward);
        for kernel in kernels() {
            let ntt = scalar.clone().on(kernel);
            let (mut there, mut back) = (x.clone(), x.clone());
            ntt.forward(&mut there);
            prop_assert!(there == forward, "{kernel:?} forward, {n} {p}");
            ntt.backward(&mut back);
            prop_assert!(back == backward, "{kernel:?} backward, {n} {p}");
            ntt.backward(&mut there);
            prop_assert!(there == x, "{kernel:?} there and back, {n} {p}");
        }
    }

    /// Of a polynomial without higher coefficients, as of one that has zeros there.
    #[test]
    fn short_transforms_are_transforms(
        seed: u64,
        log_n in 4u32..14,
        shorter in 0u32..10,
        bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let (n, short) = (1usize << log_n, 1usize << log_n.saturating_sub(shorter).max(4));
        let scalar = Ntt::new(n, prime(n, bits, seed)).unwrap();
        let x = residues(&mut Prg::derive(&[9; 32], "kernels", &[seed]), short, scalar.modulus().value());
        let mut expected = x.clone();
        expected.resize(n, 0);
        scalar.forward(&mut expected);
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            let mut got = vec![7; n];
            scalar.clone().on(kernel).forward_short(&x, &mut got);
            prop_assert!(got == expected, "{kernel:?}, {short} of {n}, {bits} bits");
        }
    }

    #[test]
    fn slices_are_those_of_plain_rust(
        seed: u64,
        blocks in 1usize..40,
        bits in prop::sample::select(SIZES.to_vec()),
        other_bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let n = 8 * blocks;
        let m = Modulus::new(prime(16, bits, seed));
        let other = Modulus::new(prime(16, other_bits, seed / 7));
        let mut prg = Prg::derive(&[2; 32], "kernels", &[seed]);
        let [x, y, z] = [0; 3].map(|_| residues(&mut prg, n, m.value()));
        let last = residues(&mut prg, n, other.value());
        let words: Vec<u64> = x.iter().map(|&x| match x % 4 { 0 => u64::MAX - x, _ => prg.next_u64() }).collect();
        let narrow: Vec<u64> = words.iter().map(|word| word >> 12).collect();
        let factor = m.factor(z[0]);
        type Operation<'a> = (&'static str, &'a dyn Fn(Kernel, &mut [u64]), &'a dyn Fn(usize) -> u64);
        let (wide, p) = (u128::from, u128::from(m.value()));
        let operations: [Operation<'_>; 12] = [
            ("add", &|k, v| slices::add(k, &m, v, &y), &|i| ((wide(x[i]) + wide(y[i])) % p) as u64),
            ("sub", &|k, v| slices::sub(k, &m, v, &y), &|i| ((wide(x[i]) + p - wide(y[i])) % p) as u64),
            ("negate", &|k, v| slices::negate(k, &m, v), &|i| ((p - wide(x[i])) % p) as u64),
            ("multiply", &|k, v| slices::multiply(k, &m, v, &y), &|i| (wide(x[i]) * wide(y[i]) % p) as u64),
            ("multiply_add", &|k, v| slices::multiply_add(k, &m, v, &y, &z),
                &|i| ((wide(x[i]) + wide(y[i]) * wide(z[i])) % p) as u64),
            ("multiply_factor", &|k, v| slices::multiply_factor(k, &m, v, factor),
                &|i| (wide(x[i]) * wide(z[0]) % p) as u64),
            ("sub_multiply_factor", &|k, v| slices::sub_multiply_factor(k, &m, v, &y, factor),
                &|i| ((wide(x[i]) + p - wide(y[i])) % p * wide(z[0]) % p) as u64),
            ("affine of words", &|k, v| slices::affine(k, &m, v, &words, 64, factor, z[1]),
                &|i| ((wide(words[i]) * wide(z[0]) + wide(z[1])) % p) as u64),
            ("affine of 52 bits", &|k, v| slices::affine(k, &m, v, &narrow, 52, factor, z[1]),
                &|i| ((wide(narrow[i]) * wide(z[0]) + wide(z[1])) % p) as u64),
            ("reduce", &|k, v| slices::reduce(k, &m, v, &words), &|i| words[i] % m.value()),
            ("signed_multiples", &|k, v| slices::signed_multiples(k, &m, v, &words, factor), &|i| {
                (i128::from(words[i] as i64) * i128::from(z[0])).rem_euclid(p as i128) as u64
            }),
            ("sub_centred", &|k, v| slices::sub_centred(k, &m, v, &last, &other, factor), &|i| {
                let difference = (i128::from(x[i]) - i128::from(other.centred(last[i]))).rem_euclid(p as i128);
                (difference as u128 * wide(z[0]) % p) as u64
            }),
        ];
        for (name, run, exact) in operations {
            let expected: Vec<u64> = (0..n).map(exact).collect();
            for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
                let mut got = x.clone();
                run(kernel, &mut got);
                prop_assert!(got == expected, "{name} on {kernel:?}, modulo {} and {}", m.value(), other.value());
            }
        }
    }

    #[test]
    fn digits_add_up(
        seed: u64,
        digit_bits in 2u32..61,
        bits in prop::sample::select(SIZES.to_vec()),
        other_bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let n = 64;
        let from = Modulus::new(prime(16, bits, seed));
        let to = Modulus::new(prime(16, other_bits, seed / 7));
        let mut prg = Prg::derive(&[3; 32], "kernels", &[seed]);
        let x = residues(&mut prg, n, from.value());
        let digits = Digits::new(&from, digit_bits);
        prop_assert_eq!(digits.count(), bits.div_ceil(digit_bits));
        // As at school: the least digit of what is left, and at the end all of it.
        let mut rest: Vec<i128> = x.iter().map(|&x| from.centred(x).into()).collect();
        let half = 1i128 << (digit_bits - 1);
        for digit in 0..digits.count() {
            let last = digit + 1 == digits.count();
            let least = |r: &mut i128| {
                let d = if last { *r } else { (*r + half).rem_euclid(2 * half) - half };
                *r = (*r - d) >> digit_bits;
                d
            };
            let signed: Vec<i128> = rest.iter_mut().map(least).collect();
            prop_assert!(signed.iter().all(|&d| -half <= d && d <= half));
            for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
                let mut got = vec![0; n];
                digits.take(kernel, &to, &x, digit, &mut got);
                let expected = signed.iter().map(|d| d.rem_euclid(to.value().into()) as u64);
                prop_assert_eq!(got, expected.collect::<Vec<_>>(), "{:?}", kernel);
            }
        }
    }

    #[test]
    fn moved_products_are_those_of_plain_rust(
        seed: u64,
        log_n in 4u32..9,
        count in 0usize..35,
        bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let n = 1usize << log_n;
        let m = Modulus::new(prime(n, bits, seed));
        let ntt = Ntt::new(n, m.value()).unwrap();
        let element = (seed as usize % n) * 2 + 1;
        let sources: Vec<u32> =
            (0..n).map(|k| ntt.index(element * ntt.exponent(k) % (2 * n)) as u32).collect();
        let mut prg = Prg::derive(&[4; 32], "kernels", &[seed]);
        let mut many = || -> Vec<Vec<u64>> { (0..count).map(|_| residues(&mut prg, n, m.value())).collect() };
        let [digits, a, b] = [many(), many(), many()];
        let plus = residues(&mut prg, n, m.value());
        let before = [0; 2].map(|_| residues(&mut prg, n, m.value()));
        fn refs(polys: &[Vec<u64>]) -> Vec<&[u64]> {
            polys.iter().map(|poly| &poly[..]).collect()
        }
        let exact = |keys: &[Vec<u64>], before: &[u64], plus: &[u64]| -> Vec<u64> {
            let p = u128::from(m.value());
            let product = |i: usize, j: usize| u128::from(digits[j][sources[i] as usize]) * u128::from(keys[j][i]) % p;
            let added = |i: usize| u128::from(before[i]) + u128::from(plus[i]);
            (0..n).map(|i| ((0..count).map(|j| product(i, j)).sum::<u128>() + added(i)) % p)
                .map(|sum| sum as u64).collect()
        };
        let checked = Sources::new(sources.clone());
        let moved: Vec<u64> = sources.iter().map(|&source| plus[source as usize]).collect();
        let zeros = vec![0; n];
        let expected = [exact(&a, &before[0], &zeros), exact(&b, &before[1], &moved)];
        let alone = [exact(&a, &zeros, &zeros), exact(&b, &zeros, &moved)];
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            let mut sums = before.clone();
            let [to_a, to_b] = &mut sums;
            let keys = [&refs(&a)[..], &refs(&b)[..]];
            // In two parts.
            let cut = seed as usize / 7 % (n / 8 + 1) * 8;
            let ((low_a, high_a), (low_b, high_b)) = (to_a.split_at_mut(cut), to_b.split_at_mut(cut));
            for (start, part) in [(0, [low_a, low_b]), (cut, [high_a, high_b])] {
                slices::add_moved_products(kernel, &m, &checked, &refs(&digits), keys, &plus, start, part);
            }
            prop_assert!(sums == expected, "{kernel:?}, {n} {}", m.value());
            let [to_a, to_b] = &mut sums;
            slices::moved_products(kernel, &m, &checked, &refs(&digits), keys, &plus, 0, [to_a, to_b]);
            prop_assert!(sums == alone, "{kernel:?}, {n} {}", m.value());
            let mut out = vec![7; n];
            slices::permute(kernel, &checked, &plus, &mut out);
            prop_assert!(out == moved, "{kernel:?}, {n}");
        }
    }

    /// Also more products than are added up between two reductions.
    #[test]
    fn two_sums_of_products_are_those_of_plain_rust(
        seed: u64,
        blocks in 1usize..12,
        count in 0usize..35,
        bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let n = 8 * blocks;
        let m = Modulus::new(prime(16, bits, seed));
        let mut prg = Prg::derive(&[10; 32], "kernels", &[seed]);
        let mut many = || -> Vec<Vec<u64>> { (0..count).map(|_| residues(&mut prg, n, m.value())).collect() };
        let [x, y, z] = [many(), many(), many()];
        let before = [0; 2].map(|_| residues(&mut prg, n, m.value()));
        let p = u128::from(m.value());
        let exact = |ys: &[Vec<u64>], before: &[u64]| -> Vec<u64> {
            let product = |i: usize, j: usize| u128::from(x[j][i]) * u128::from(ys[j][i]) % p;
            let sum = |i: usize| (0..count).map(|j| product(i, j)).sum::<u128>() + u128::from(before[i]);
            (0..n).map(|i| (sum(i) % p) as u64).collect()
        };
        let expected = [exact(&y, &before[0]), exact(&z, &before[1])];
        let [sum, difference] = [before[0].clone(), before[1].clone()];
        let w = residues(&mut prg, n, m.value());
        let products: Vec<u64> = difference.iter().zip(&w).map(|(&y, &w)| (u128::from(y) * u128::from(w) % p) as u64).collect();
        let added: Vec<u64> = sum.iter().zip(&products).map(|(x, y)| (x + y) % m.value()).collect();
        let subtracted: Vec<u64> = sum.iter().zip(&products).map(|(x, y)| (x + m.value() - y) % m.value()).collect();
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            let mut sums = before.clone();
            let [a, b] = &mut sums;
            let [x, y, z] = [&x, &y, &z].map(|polys| polys.iter().map(|poly| &poly[..]).collect::<Vec<_>>());
            slices::add_products(kernel, &m, &x, [&y, &z], [a, b]);
            prop_assert!(sums == expected, "{kernel:?}, {count} of {n} modulo {}", m.value());
            let [mut x, mut y] = [sum.clone(), difference.clone()];
            slices::sum_and_difference(kernel, &m, &mut x, &mut y, &w);
            prop_assert!(x == added && y == subtracted, "{kernel:?}, {n} modulo {}", m.value());
        }
    }

    /// Numbers of up to half the source primes' product, by their residues: the same numbers modulo another prime.
    #[test]
    fn extensions_keep_the_number(
        seed: u64,
        sizes in prop::collection::vec(20u32..=NARROW_BITS, 1..20),
        bits in prop::sample::select(vec![20u32, 30, 36, 49, 50]),
    ) {
        let n = 64;
        let mut order: Vec<u64> = Vec::new();
        for (i, &bits) in sizes.iter().enumerate() {
            let fresh = primes(bits, 32).skip((seed as usize + 3 * i) % 50).find(|p| !order.contains(p));
            order.push(fresh.unwrap());
        }
        let sources: Vec<Modulus> = order.iter().map(|&p| Modulus::new(p)).collect();
        let target = Modulus::new(primes(bits, 32).skip(60).find(|p| !order.contains(p)).unwrap());
        let product: BigInt = order.iter().map(|&p| BigInt::from(p)).product();
        let mut prg = Prg::derive(&[8; 32], "kernels", &[seed]);
        let numbers: Vec<BigInt> = (0..n)
            .map(|i| {
                let limbs: BigInt = (0..order.len()).fold(0.into(), |x: BigInt, _| (x << 64) + prg.next_u64());
                match i % 4 {
                    0 => (BigInt::from(prg.next_u64() >> 40) - (1 << 23)) % (&product / 2),
                    // Within 2^-40 of a half the rounding goes either way.
                    1 => (&product - (&product >> 40)) / 2 - BigInt::from(i),
                    2 => ((&product >> 40) - &product) / 2 + BigInt::from(i),
                    _ => limbs % (&product - (&product >> 40)) - ((&product - (&product >> 40)) / 2),
                }
            })
            .collect();
        let residue = |x: &BigInt, p: u64| -> u64 {
            let r: BigInt = ((x % p) + p) % p;
            u64::try_from(r).unwrap()
        };
        let scaled: Vec<Vec<u64>> = sources
            .iter()
            .map(|m| {
                let cofactor = residue(&(&product / m.value()), m.value());
                let inverse = m.factor(m.inverse(cofactor).unwrap());
                numbers.iter().map(|x| m.mul_factor(residue(x, m.value()), inverse)).collect()
            })
            .collect();
        let fractions: Vec<Fraction> = sources.iter().map(Fraction::new).collect();
        let mut weights: Vec<u64> =
            order.iter().map(|&p| residue(&(&product / p), target.value())).collect();
        weights.push(residue(&-product, target.value()));
        let expected: Vec<u64> = numbers.iter().map(|x| residue(x, target.value())).collect();
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            let mut terms: Vec<&[u64]> = scaled.iter().map(|x| &x[..]).collect();
            let (mut quotients, mut out) = (vec![7; n], vec![7; n]);
            basis::quotients(kernel, &terms, &fractions, &mut quotients);
            terms.push(&quotients);
            basis::combine(kernel, &target, &terms, &weights, &mut out);
            prop_assert!(out == expected, "{kernel:?}, {} primes to {}", order.len(), target.value());
        }
    }

    /// Also more terms than are added up between two reductions.
    #[test]
    fn weighted_sums_are_those_of_big_numbers(
        seed: u64,
        blocks in prop::sample::select(vec![1usize, 2, 5, 16, 17, 32]),
        count in prop::sample::select(vec![0usize, 1, 2, 31, 255, 256, 300, 600]),
        rows in 0usize..20,
        weight_bits in 1u32..50,
        bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let n = 8 * blocks;
        let m = Modulus::new(prime(16, bits, seed));
        let mut prg = Prg::derive(&[5; 32], "kernels", &[seed]);
        let terms: Vec<Vec<u64>> = (0..count).map(|_| residues(&mut prg, n, m.value())).collect();
        let refs: Vec<&[u64]> = terms.iter().map(|term| &term[..]).collect();
        let most = (1i64 << weight_bits) - 1;
        let extreme = seed % 3;
        let weights: Vec<i64> = (0..count * rows)
            .map(|_| match extreme {
                0 => most,
                1 => -most,
                _ => (prg.next_u64() as i64 >> (63 - weight_bits)).max(-most),
            })
            .collect();
        let p = i128::from(m.value());
        let exact = |row: usize, i: usize| -> u64 {
            let product = |j: usize| i128::from(terms[j][i]) * i128::from(weights[j * rows + row]) % p;
            (0..count).map(product).sum::<i128>().rem_euclid(p) as u64
        };
        let expected: Vec<Vec<u64>> =
            (0..rows).map(|row| (0..n).map(|i| exact(row, i)).collect()).collect();
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            let mut sums = vec![vec![7; n]; rows];
            let mut refs_mut: Vec<&mut [u64]> = sums.iter_mut().map(|sum| &mut sum[..]).collect();
            slices::weighted_sums(kernel, &m, &refs, &weights, weight_bits, &mut refs_mut);
            prop_assert!(sums == expected, "{kernel:?}, {} terms of {n}, {rows} rows, modulo {}", count, m.value());
        }
    }

    /// Parts from one vector to longer than what is copied at once; also more terms than are added up between two reductions.
    #[test]
    fn weighted_parts_are_sums_of_each_part(
        seed: u64,
        parts in prop::sample::select(vec![1usize, 2, 4, 8]),
        blocks in prop::sample::select(vec![1usize, 2, 5, 16, 17]),
        count in prop::sample::select(vec![0usize, 1, 2, 31, 129, 257]),
        rows in 1usize..20,
        bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let part = 8 * blocks;
        let n = parts * part;
        let m = Modulus::new(prime(16, bits, seed));
        let mut prg = Prg::derive(&[6; 32], "kernels", &[seed]);
        let terms: Vec<Vec<u64>> = (0..count).map(|_| residues(&mut prg, n, m.value())).collect();
        let refs: Vec<&[u64]> = terms.iter().map(|term| &term[..]).collect();
        let width = count * rows + seed as usize % 3;
        let before = residues(&mut prg, n, m.value());
        let weights = residues(&mut prg, parts * width, m.value());
        let p = u128::from(m.value());
        let exact = |row: usize, i: usize| -> u64 {
            let weight = |j: usize| u128::from(weights[i / part * width + j * rows + row]);
            (((0..count).map(|j| u128::from(terms[j][i]) * weight(j) % p).sum::<u128>() + u128::from(before[i])) % p) as u64
        };
        let expected: Vec<Vec<u64>> =
            (0..rows).map(|row| (0..n).map(|i| exact(row, i)).collect()).collect();
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            let mut sums = vec![before.clone(); rows];
            let mut refs_mut: Vec<&mut [u64]> = sums.iter_mut().map(|sum| &mut sum[..]).collect();
            slices::weighted_parts(kernel, &m, &refs, &weights, width, &mut refs_mut);
            prop_assert!(sums == expected, "{kernel:?}, {count} terms, {parts} of {part}, modulo {}", m.value());
        }
    }

    /// Each column of rows is a transform of its own, as that of its length.
    #[test]
    fn rows_are_transforms_side_by_side(
        seed: u64,
        log_d in 0u32..9,
        blocks in 1usize..4,
        bits in prop::sample::select(SIZES.to_vec()),
    ) {
        let (n, d, width) = (512, 1usize << log_d, 8 * blocks);
        let p = prime(n, bits, seed);
        let tables = Ntt::new(n, p).unwrap();
        let mut prg = Prg::derive(&[7; 32], "kernels", &[seed]);
        let x = residues(&mut prg, d * width, p);
        // A polynomial in X^(n/d) has the values of the short one, each n/d times.
        let column = |at: usize| -> Vec<u64> {
            let mut sparse = vec![0; n];
            (0..d).for_each(|i| sparse[i * (n / d)] = x[i * width + at]);
            tables.forward(&mut sparse);
            sparse
        };
        let columns: Vec<Vec<u64>> = (0..width).map(column).collect();
        for kernel in [Kernel::SCALAR].into_iter().chain(kernels()) {
            let mut got = x.clone();
            let ntt = tables.clone().on(kernel);
            ntt.forward_rows(&mut got, width);
            for (at, column) in columns.iter().enumerate() {
                for (k, &value) in column.iter().enumerate() {
                    prop_assert_eq!(got[k / (n / d) * width + at], value, "{:?}, value {}", kernel, k);
                }
            }
            ntt.backward_rows(&mut got, width);
            prop_assert!(got == x, "{kernel:?} there and back");
        }
    }
}
