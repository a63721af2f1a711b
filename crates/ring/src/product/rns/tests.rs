//! The ring against the schoolbook method in 128-bit integers modulo q.

use super::*;
use crate::cpu::Cpu;
use crate::product::ntt::PRIMES;
use proptest::prelude::*;

/// Coefficients in `0..q` from residues, by Garner's method in its plainest form.
fn integers(rns: &Rns, poly: &RnsPoly) -> Vec<u128> {
    let words = rns.to_words(poly);
    (0..rns.n())
        .map(|i| {
            let (mut x, mut product) = (u128::from(words[i]), u128::from(rns.limbs[0].prime));
            for (limb, prime) in rns.primes().enumerate().skip(1) {
                let p = u128::from(prime);
                let inverse = u128::from(ntt::invert((product % p) as u64, prime));
                let missing = (u128::from(words[limb * rns.n() + i]) + p - x % p) % p;
                x += product * (missing * inverse % p);
                product *= p;
            }
            x
        })
        .collect()
}

/// `x · w` modulo `X^n + 1` and q; `|w| <= 2^15`, so that a product is below `2^105`.
fn schoolbook(x: &[u128], w: &[i32], q: u128) -> Vec<u128> {
    let n = x.len();
    let mut sums = vec![0i128; n];
    for (i, &w) in w.iter().enumerate() {
        for (j, &x) in x.iter().enumerate() {
            let product = i128::from(w) * x as i128 % q as i128;
            let sum = &mut sums[(i + j) % n];
            *sum = (*sum + if i + j < n { product } else { -product }) % q as i128;
        }
    }
    sums.into_iter().map(|sum| sum.rem_euclid(q as i128) as u128).collect()
}

fn coefficients(rns: &Rns, mut sum: RnsSum) -> Vec<u128> {
    let mut poly = rns.zero();
    rns.invert_into(&mut sum, &mut poly);
    integers(rns, &poly)
}

/// All kernels and numbers of limbs; the largest primes of 30 bits and the smallest.
fn rings(n: usize) -> impl Iterator<Item = Rns> {
    let all: Vec<u32> = modular::primes(LIMB_BITS, 1 << 14).map(|p| p as u32).collect();
    let smallest = all[all.len() - 3..].to_vec();
    let sets = [vec![PRIMES[0]], PRIMES[..2].to_vec(), PRIMES.to_vec(), smallest];
    Kernel::all(Cpu::detect()).flat_map(move |kernel| sets.clone().map(|set| Rns::new(kernel, n, &set)))
}

/// A polynomial that is random or, for seed 0, as large as residues get.
fn poly(rns: &Rns, seed: u64) -> RnsPoly {
    if seed == 0 {
        let largest = rns.primes().flat_map(|p| vec![u64::from(p) - 1; rns.n()]);
        return rns.from_words(&largest.collect::<Vec<_>>());
    }
    rns.uniform(&mut Prg::derive(&[3; 32], "poly", &[seed]))
}

fn small_values(n: usize, seed: u64) -> Vec<i8> {
    let mut bytes = vec![0u8; n];
    Prg::derive(&[4; 32], "small", &[seed]).fill(&mut bytes);
    bytes.into_iter().map(|b| b as i8).collect()
}

#[test]
fn the_modulus_is_the_product() {
    let log2 = |limbs| (Rns::new(Kernel::SCALAR, 16, &PRIMES[..limbs]).modulus() as f64).log2();
    assert!((59.9..60.0).contains(&log2(2)) && (89.9..90.0).contains(&log2(3)));
}

/// The largest sums there are, across several reductions, and random ones: every kernel, both panel widths.
#[test]
fn sums_of_products() {
    let n = 32;
    for rns in rings(n) {
        let q = rns.modulus();
        for terms in [1, 2, 11, 12, 23, 34] {
            for (seed, outs) in [(0u64, 2), (1, 2), (1, 1)] {
                let pair = |i: u64| [2 * i, 2 * i + 1].map(|i| poly(&rns, if seed == 0 { 0 } else { i + 1 }));
                let inputs: Vec<Vec<[RnsPoly; 2]>> =
                    (0..2).map(|t| (0..terms as u64 + 1).map(|i| pair(100 * t + i)).collect()).collect();
                let weight = |out: usize, term: usize| -> Vec<i32> {
                    let values = small_values(2 * n, (out * 50 + term) as u64);
                    let byte = |i: usize| i32::from(values[i]);
                    let word = |i: usize| byte(2 * i) << 16 | byte(2 * i + 1) & 0xffff;
                    (0..n).map(|i| if seed == 0 { -1 << 26 } else { word(i) }).collect()
                };
                let panel = rns.panel(outs, terms, |out, term, to| to.copy_from_slice(&weight(out, term)));
                assert_eq!(panel.bytes(), 4 * outs * terms * rns.limbs() * n);
                let expected: Vec<Vec<u128>> = inputs
                    .iter()
                    .flat_map(|pairs| (0..outs).flat_map(move |out| [(pairs, out, 0), (pairs, out, 1)]))
                    .map(|(pairs, out, half)| {
                        let mut sum = vec![0; n];
                        for (term, pair) in pairs[1..].iter().enumerate() {
                            let product = schoolbook(&integers(&rns, &pair[half]), &weight(out, term), q);
                            sum.iter_mut()
                                .zip(product)
                                .for_each(|(sum, product)| *sum = (*sum + product) % q);
                        }
                        sum
                    })
                    .collect();
                let transformed: Vec<RnsPairs> = inputs
                    .into_iter()
                    .map(|pairs| {
                        let pairs: Vec<_> = pairs.into_iter().map(|p| p.map(|p| rns.transform(p))).collect();
                        rns.pairs(&pairs)
                    })
                    .collect();
                // What is in the memory of an earlier sum does not matter.
                let mut sums = vec![[0, 1].map(|_| RnsSum(vec![Line([7; 16]); rns.zero_lines().len()]))];
                rns.accumulate(&panel, &transformed, 1, &mut sums);
                let got: Vec<_> = sums.into_iter().flatten().map(|sum| coefficients(&rns, sum)).collect();
                assert!(got == expected, "{terms} terms, {outs} sums, {:?}", rns.kernel);
            }
        }
    }
}

#[test]
fn words_of_a_peer_are_residues() {
    for rns in rings(16) {
        let words = vec![u64::MAX; rns.limbs() * 16];
        let expected: Vec<u64> = rns.primes().flat_map(|p| [(1u64 << 30) - 1 - u64::from(p); 16]).collect();
        let poly = rns.from_words(&words);
        assert_eq!(rns.to_words(&poly), expected);
        let ones = rns.from_words(&vec![1; rns.limbs() * 16]);
        let mut one = [0; 16];
        one[0] = 1;
        let product = rns.multiply(&rns.transform(poly), &rns.prepare_small(&one));
        assert_eq!(rns.to_words(&product), expected);
        assert_eq!(integers(&rns, &ones), [1; 16]);
    }
}

#[test]
fn uniform_is_the_same_everywhere_and_uniform() {
    let all: Vec<Vec<u64>> = Kernel::all(Cpu::detect())
        .map(|kernel| {
            let rns = Rns::new(kernel, 4096, &PRIMES);
            rns.to_words(&rns.uniform(&mut Prg::new([5; 32])))
        })
        .collect();
    assert!(all.iter().all(|words| *words == all[0]));
    for (words, &p) in all[0].chunks(4096).zip(&PRIMES) {
        assert!(words.iter().all(|&word| word < u64::from(p)));
        let mut cells = [0f64; 16];
        words.iter().for_each(|&word| cells[(word * 16 / u64::from(p)) as usize] += 1.0);
        // P(chi2(15) > 60) is 2e-7.
        assert!(cells.iter().map(|c| (c - 256.0) * (c - 256.0) / 256.0).sum::<f64>() < 60.0, "{cells:?}");
    }
}

/// The quotient against long division: the nearest integer, save where the error of `2^-61` decides.
fn check_switch(rns: &Rns, poly: &RnsPoly, bits: u32) {
    let q = rns.modulus();
    let mut out = vec![0; rns.n()];
    rns.switch_into(poly, bits, &mut out);
    for (x, got) in integers(rns, poly).into_iter().zip(out) {
        // floor(x 2^bits / q) by long division, with the remainder as a fraction of q.
        let (mut quotient, mut remainder) = (0u64, x);
        for _ in 0..bits {
            remainder *= 2;
            quotient = 2 * quotient + u64::from(remainder >= q);
            remainder -= if remainder >= q { q } else { 0 };
        }
        let fraction = remainder as f64 / q as f64;
        let slack = 2f64.powi(bits as i32 - 61);
        let fits = match got.wrapping_sub(quotient) & crate::mask(bits) {
            0 => fraction <= 0.5 + slack,
            1 => fraction >= 0.5 - slack,
            _ => false,
        };
        assert!(fits, "{x} of {q} to {bits} bits: {got}, not {quotient} + {fraction}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn coefficientwise(seed in 0u64..1000, bits in 1u32..=62) {
        for rns in rings(32) {
            let q = rns.modulus();
            let e = small_values(32, seed);
            let mut sum = poly(&rns, seed);
            let x = integers(&rns, &sum);
            rns.add_small(&mut sum, &e);
            let add = |(&x, &e): (&u128, &i8)| (x as i128 + i128::from(e)).rem_euclid(q as i128) as u128;
            let added: Vec<u128> = x.iter().zip(&e).map(add).collect();
            prop_assert_eq!(integers(&rns, &sum), added.clone());
            rns.negate(&mut sum);
            prop_assert_eq!(integers(&rns, &sum), added.iter().map(|x| (q - x) % q).collect::<Vec<_>>());

            // round(q m / 2^bits) by long division on the other side: 2^bits times it is within half of q m.
            let mut values = vec![0; 32];
            Prg::derive(&[1; 32], "values", &[seed]).fill_words(&mut values, 64);
            values[..3].copy_from_slice(&[0, u64::MAX, 1 << (bits - 1)]);
            let mut scaled = rns.zero();
            rns.add_scaled(&mut scaled, &values, bits);
            for (&m, got) in values.iter().zip(integers(&rns, &scaled)) {
                let m = m & crate::mask(bits);
                // q m = sum over the bits of m of q 2^i; floor(q m / 2^bits) bit by bit, lowest first.
                let (mut floor, mut below) = (0u128, 0.0);
                for i in 0..bits {
                    if m >> i & 1 == 1 {
                        floor += q;
                    }
                    below = (below + (floor & 1) as f64) / 2.0;
                    floor >>= 1;
                }
                let error = (got as i128 - floor as i128).rem_euclid(q as i128);
                let nearest = error == 0 && below <= 0.5 || error == 1 && below >= 0.5;
                prop_assert!(nearest, "{} of 2^{}: {}, not {} + {}", m, bits, got, floor, below);
            }
            for bits in [1, 37, 47, 60] {
                check_switch(&rns, &poly(&rns, seed), bits);
            }
        }
    }

    #[test]
    fn products(seed in 0u64..1000) {
        for rns in rings(32) {
            let s = small_values(32, seed);
            let wide: Vec<i32> = s.iter().map(|&s| i32::from(s)).collect();
            let x = poly(&rns, seed);
            let expected = schoolbook(&integers(&rns, &x), &wide, rns.modulus());
            let (x, s) = (rns.transform(x), rns.prepare_small(&s));
            prop_assert_eq!(integers(&rns, &rns.multiply(&x, &s)), expected.clone());
            let mut sum = RnsSum(rns.zero_lines());
            rns.add_product(&mut sum, &x, &s);
            rns.add_product(&mut sum, &x, &s);
            let twice: Vec<u128> = expected.iter().map(|x| 2 * x % rns.modulus()).collect();
            prop_assert_eq!(coefficients(&rns, sum), twice);
        }
    }
}
