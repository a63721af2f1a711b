//! Noise of each operation, in coefficients, over many random ones. N = 2^10, so a bound that is 7 standard
//! deviations or more fails by chance once in 10^8 tests; seeds are fixed besides.

use super::*;
use crate::spec::KeyKind;

/// A polynomial of integers under X → X^element.
fn moved(x: &[f64], element: usize) -> Vec<f64> {
    let mut out = vec![0.0; N];
    for (k, &x) in x.iter().enumerate() {
        let place = k * element % (2 * N);
        out[place % N] = if place < N { x } else { -x };
    }
    out
}

/// The product of two polynomials of integers, divided: schoolbook.
fn product(x: &[f64], y: &[f64], divisor: f64) -> Vec<f64> {
    let integers = |x: &[f64]| -> Vec<i128> { x.iter().map(|&x| x as i128).collect() };
    let (x, y) = (integers(x), integers(y));
    let mut out = vec![0i128; N];
    for (i, &x) in x.iter().enumerate() {
        let (low, high) = y.split_at(N - i);
        out[i..].iter_mut().zip(low).for_each(|(out, y)| *out += x * y);
        out[..i].iter_mut().zip(high).for_each(|(out, y)| *out -= x * y);
    }
    out.iter().map(|&x| x as f64 / divisor).collect()
}

/// Noise of a fresh encryption is e: at most 21.
#[test]
fn fresh_ciphertexts() {
    let (party, mut prg) = (&*PARTY, prg(40));
    for level in 0..=26 {
        let values: Vec<f64> = (0..N).map(|_| (random(&mut prg) * SCALE).round() / SCALE).collect();
        let plaintext = party.context.encode_coefficients(&values, level, SCALE).unwrap();
        let (ct, _) = party.secret.encrypt(&plaintext, &mut prg);
        let exact: Vec<f64> = values.iter().map(|x| x * SCALE).collect();
        let noise = distance(&party.phase(&ct), &exact);
        assert!((5.0..=21.0).contains(&noise), "{noise}");
        // Under the public key: e0 + e·u + e1·s, of variance 10.5·(1 + 2·N·2/3): sigma = 120.
        let public = party.secret.public_key(level, &mut prg).unwrap();
        let noise = distance(&party.phase(&public.encrypt(&plaintext, &mut prg).unwrap()), &exact);
        assert!((100.0..900.0).contains(&noise), "{noise}");
    }
}

/// A key switch adds Σ digits·e / P: at most 5 digits of up to 2^0.5·P, uniform: sigma below sqrt(5·N·10.5·2/12) =
/// 95, and less than half of that with the digits that there are; and the rounding by P, of variance (1 + 2N/3)/12:
/// sigma = 7.5. Over 1,100 switches.
#[test]
fn key_switches() {
    let (party, mut prg) = (&*PARTY, prg(41));
    let mut worst: f64 = 0.0;
    for i in 0..100 {
        let level = [26, 14, 7, 3, 1][i % 5];
        let ct = party.encrypt(&random_slots(&mut prg, N / 2), level, SCALE, &mut prg);
        let phase = party.phase(&ct);
        let elements: Vec<usize> = STEPS
            .iter()
            .map(|&steps| party.context.rotation(steps))
            .chain([party.context.conjugation()])
            .collect();
        for (&element, rotated) in elements.iter().zip(party.evaluator.automorphisms(&ct, &elements).unwrap())
        {
            worst = worst.max(distance(&party.phase(&rotated), &moved(&phase, element)));
        }
    }
    assert!((50.0..250.0).contains(&worst), "{worst}");
    // With two special primes: one digit of two primes.
    let ct = party.encrypt(&random_slots(&mut prg, N / 2), 1, SCALE, &mut prg);
    let moved = moved(&party.phase(&ct), 3);
    let noise = distance(&party.phase(&party.evaluator.automorphism(&ct, 3).unwrap()), &moved);
    assert!(noise < 200.0, "{noise}");
    // A key of level 1 is smaller.
    let spec = crate::KeySpec { kind: KeyKind::Galois(3), level: 1, special: 2 };
    assert_eq!(crate::wire::key_bytes(&party.context, &spec).unwrap(), 48 + 24 + 32 + 4 * N / 8 * 50);
}

/// A product, relinearised and rescaled: the key switch' noise is divided by 2^36, so what is left is rounding: (1 +
/// s)·u, u uniform in -1/2..1/2: sigma = 7.5. The exact product of both phases, noise included, is the reference.
/// Over 1,000 products.
#[test]
fn products() {
    let (party, mut prg) = (&*PARTY, prg(42));
    let evaluator = &party.evaluator;
    let mut worst: f64 = 0.0;
    for i in 0..500 {
        let level = 4 + i % 4;
        let a = party.encrypt(&random_slots(&mut prg, N / 2), level, SCALE, &mut prg);
        let b = party.encrypt(&random_slots(&mut prg, N / 2), level, SCALE, &mut prg);
        let modulus = party.context.params().modulus(level);
        let (x, y) = (party.phase(&a), party.phase(&b));
        let found = evaluator.rescale(&evaluator.multiply(&a, &b).unwrap()).unwrap();
        worst = worst.max(distance(&party.phase(&found), &product(&x, &y, modulus)));
        let found = evaluator.rescale(&evaluator.square(&a).unwrap()).unwrap();
        worst = worst.max(distance(&party.phase(&found), &product(&x, &x, modulus)));
    }
    assert!((10.0..60.0).contains(&worst), "{worst}");
}

/// Sums, constants and products with plaintexts are exact.
#[test]
fn what_needs_no_key_is_exact() {
    let (party, mut prg) = (&*PARTY, prg(43));
    let evaluator = &party.evaluator;
    for _ in 0..300 {
        let a = party.encrypt(&random_slots(&mut prg, N / 2), 4, SCALE, &mut prg);
        let b = party.encrypt(&random_slots(&mut prg, N / 2), 3, SCALE, &mut prg);
        let (x, y) = (party.phase(&a), party.phase(&b));
        let sum: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        assert_eq!(distance(&party.phase(&evaluator.add(&a, &b).unwrap()), &sum), 0.0);
        let constant = Complex::new(3.0, -2.0);
        let mut gaussian = vec![0.0; N];
        (gaussian[0], gaussian[N / 2]) = (3.0, -2.0);
        let found = evaluator.multiply_constant(&a, constant, 1.0).unwrap();
        assert_eq!(distance(&party.phase(&found), &product(&x, &gaussian, 1.0)), 0.0);
        let mut shifted = x.clone();
        shifted[0] += (random_slots(&mut prg, 1)[0].re * 0.0 + 0.25) * SCALE;
        assert_eq!(distance(&party.phase(&evaluator.add_constant(&a, 0.25.into()).unwrap()), &shifted), 0.0);
    }
}

/// The raised phase is factor·(m + q0·I), |I| at most 16, up to 1 + weight 32 halves; other coefficients than those
/// of values vanish.
#[test]
fn raises() {
    let (party, mut prg) = (&*PARTY, prg(44));
    let q0 = party.context.params().modulus(0);
    for i in 0..60 {
        let values = [N, N / 2, N / 8, N][i % 4];
        let factor = [1, 16, 5][i % 3];
        let slots = random_slots(&mut prg, values / 2);
        let scale = 2f64.powi(41);
        let ct = party.encrypt(&slots, 0, scale, &mut prg);
        let phase = party.phase(&ct);
        let raised = party.evaluator.raise(&ct, factor, values).unwrap();
        assert_eq!((raised.level(), raised.scale()), (26, scale * factor as f64));
        let (gap, mut multiples) = (N / values, 0.0f64);
        for (k, (&raised, &m)) in party.phase(&raised).iter().zip(&phase).enumerate() {
            let noise = if k % gap == 0 {
                let difference = raised - m * factor as f64;
                let multiple = (difference / (q0 * factor as f64)).round();
                multiples = multiples.max(multiple.abs());
                difference - multiple * q0 * factor as f64
            } else {
                raised
            };
            // That of the first switch is multiplied by the factor: one digit of 2^50 by one special prime, sigma =
            // 31; the second adds 8 of rounding. Traces: up to three switches of sigma 95. Phases are rounded to 2^8
            // at 2^60.
            assert!(
                noise.abs() < 700.0 + 120.0 * factor as f64,
                "{noise} of coefficient {k}, {values} values"
            );
        }
        assert!((2.0..=17.0).contains(&multiples), "{multiples}");
    }
}
