//! What operations do to slots, and what they refuse.

use super::*;
use crate::Error;
use crate::circuits::{Giant, Matrix, Term};

/// Errors of slots are below this: noise of 2^10 in each coefficient, at ReLU's scale.
const BOUND: f64 = 1.0 / (1u64 << 20) as f64;

#[test]
fn arithmetic_is_that_of_the_slots() {
    let (party, mut prg) = (&*PARTY, prg(20));
    let evaluator = &party.evaluator;
    let (x, y) = (random_slots(&mut prg, N / 2), random_slots(&mut prg, N / 2));
    let (a, b) = (party.encrypt(&x, 6, SCALE, &mut prg), party.encrypt(&y, 5, SCALE, &mut prg));
    let each = |f: &dyn Fn(Complex, Complex) -> Complex| -> Vec<Complex> {
        x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect()
    };
    let check = |ct: Result<Ciphertext, Error>, level: usize, f: &dyn Fn(Complex, Complex) -> Complex| {
        let ct = ct.unwrap();
        assert_eq!(ct.level(), level);
        assert_slots(&party.slots(&ct), &each(f), BOUND);
        ct
    };
    check(evaluator.add(&a, &b), 5, &|x, y| x + y);
    check(evaluator.subtract(&b, &a), 5, &|x, y| y - x);
    let (c, k) = (Complex::new(0.3, -0.7), Complex::new(-3.0, 2.0));
    check(evaluator.add_constant(&a, c), 6, &|x, _| x + c);
    assert_eq!(check(evaluator.multiply_constant(&a, k, 1.0), 6, &|x, _| x * k).scale(), SCALE);
    check(evaluator.multiply_constant(&a, c, SCALE), 6, &|x, _| x * c);
    let product = check(evaluator.multiply(&a, &b), 5, &|x, y| x * y);
    assert_eq!(product.scale(), SCALE * SCALE);
    let rescaled = check(evaluator.rescale(&product), 4, &|x, y| x * y);
    assert_eq!(rescaled.scale(), SCALE * SCALE / party.context.params().modulus(5));
    // A constant at a scale beyond a word.
    check(evaluator.add_constant(&product, c), 5, &|x, y| x * y + c);
    check(evaluator.square(&a), 6, &|x, _| x * x);
    check(evaluator.conjugate(&a), 6, &|x, _| x.conjugate());
    check(evaluator.drop_to(&a, 2), 2, &|x, _| x);
    let plain = evaluator.encode(&y, 4, SCALE).unwrap();
    check(evaluator.multiply_plain(&a, &plain), 4, &|x, y| x * y);
    let doubled = evaluator.with_scale(a.clone(), SCALE / 2.0);
    check(Ok(doubled), 6, &|x, _| x + x);
    for steps in [0, 1, 5, 256] {
        let mut moved = x.clone();
        moved.rotate_left(steps);
        let rotated = evaluator.rotate(&a, steps).unwrap();
        assert_slots(&party.slots(&rotated), &moved, BOUND);
    }
    let elements = [1, 5, 16].map(|steps| party.context.rotation(steps));
    for (ct, steps) in evaluator.automorphisms(&a, &elements).unwrap().iter().zip([1, 5, 16]) {
        let mut moved = x.clone();
        moved.rotate_left(steps);
        assert_slots(&party.slots(ct), &moved, BOUND);
    }
}

/// Down to level 0, through the level of two primes.
#[test]
fn a_chain_of_squares() {
    let (party, mut prg) = (&*PARTY, prg(21));
    let evaluator = &party.evaluator;
    let mut x: Vec<Complex> =
        (0..N / 2).map(|_| Complex::new(0.99 + random(&mut prg) / 128.0, 0.0)).collect();
    let mut ct = party.encrypt(&x, 14, SCALE, &mut prg);
    for level in (4..=14).rev() {
        ct = evaluator.rescale(&evaluator.square(&ct).unwrap()).unwrap();
        x.iter_mut().for_each(|x| *x = *x * *x);
        // To a scale that stays.
        if level > 10 {
            let scale = party.context.params().modulus(level - 1);
            let correction = scale * SCALE / ct.scale();
            let lower = evaluator.multiply_constant(&ct, Complex::ONE, correction).unwrap();
            ct = evaluator.rescale(&lower).unwrap();
            break;
        }
    }
    assert_slots(&party.slots(&ct), &x, BOUND);
    // The level of 60 bits in two primes.
    let a = party.encrypt(&x, 3, 2f64.powi(30), &mut prg);
    let b =
        evaluator.rescale(&evaluator.multiply_constant(&a, Complex::ONE, 2f64.powi(60)).unwrap()).unwrap();
    assert_eq!(b.level(), 2);
    assert_slots(&party.slots(&b), &x, 2f64.powi(-14));
    let c = evaluator.rescale(&evaluator.rescale(&evaluator.with_scale(b, 2f64.powi(118))).unwrap()).unwrap();
    assert_eq!(c.level(), 0);
    assert!(matches!(evaluator.rescale(&c), Err(Error::Level { found: 0, .. })));
}

#[test]
fn fewer_slots_repeat_and_coefficients_stand_apart() {
    let (party, mut prg) = (&*PARTY, prg(22));
    for count in [1, 2, 16, N / 2] {
        let x = random_slots(&mut prg, count);
        let ct = party.encrypt(&x, 2, SCALE, &mut prg);
        assert_slots(&party.slots(&ct), &x, BOUND);
    }
    for count in [1, 16, N / 2, N] {
        let values: Vec<f64> = (0..count).map(|_| random(&mut prg)).collect();
        let plaintext = party.context.encode_coefficients(&values, 1, SCALE).unwrap();
        let ct = party.secret.encrypt(&plaintext, &mut prg).0;
        let found = party.secret.decrypt(&ct);
        for (k, &x) in found.iter().enumerate() {
            let expected = if k % (N / count) == 0 { values[k / (N / count)] } else { 0.0 };
            assert!((x - expected).abs() < 64.0 / SCALE, "coefficient {k} of {count}");
        }
    }
}

fn product(matrix: &Matrix, v: &[Complex]) -> Vec<Complex> {
    let rotated = |v: &[Complex], steps: usize| -> Vec<Complex> {
        (0..v.len()).map(|j| v[(j + steps) % v.len()]).collect()
    };
    let mut sum = vec![Complex::ZERO; v.len()];
    for giant in &matrix.giants {
        let mut inner = vec![Complex::ZERO; v.len()];
        for term in &giant.terms {
            let moved = rotated(v, term.rotation);
            for (j, sum) in inner.iter_mut().enumerate() {
                *sum += term.diagonal[j % matrix.slots] * moved[j];
            }
        }
        for (sum, x) in sum.iter_mut().zip(rotated(&inner, giant.rotation)) {
            *sum += x;
        }
    }
    sum
}

#[test]
fn transforms_are_matrix_products() {
    let (party, mut prg) = (&*PARTY, prg(23));
    let evaluator = &party.evaluator;
    for (slots, giants, babies) in [
        (N / 2, vec![0, 16, 80, 144], vec![0, 1, 2, 5]),
        (N / 2, vec![0], vec![0]),
        (N / 2, vec![8], vec![3]),
        (32, vec![0, 8, 12], vec![0, 1, 3]),
    ] {
        let mut terms = || -> Vec<Term> {
            let term = |&rotation: &usize| Term { rotation, diagonal: random_slots(&mut prg, slots) };
            babies.iter().map(term).collect()
        };
        let giants = giants.iter().map(|&rotation| Giant { rotation, terms: terms() }).collect();
        let matrix = Matrix { slots, giants };
        let x = random_slots(&mut prg, slots);
        let full: Vec<Complex> = x.iter().cycle().take(N / 2).copied().collect();
        let ct = party.encrypt(&x, 25, SCALE, &mut prg);
        let prepared = evaluator.prepare(&matrix, 20, SCALE).unwrap();
        let out = evaluator.transform(&ct, &prepared).unwrap();
        assert_eq!((out.level(), out.scale()), (20, SCALE * SCALE));
        assert_slots(&party.slots(&out), &product(&matrix, &full), BOUND);
        let low = evaluator.drop_to(&ct, 19).unwrap();
        assert!(matches!(evaluator.transform(&low, &prepared), Err(Error::Level { found: 19, .. })));
    }
    let wrong = |giants: Vec<Giant>| {
        let matrix = Matrix { slots: 4, giants };
        assert!(matches!(evaluator.prepare(&matrix, 3, SCALE), Err(Error::Count { .. })));
    };
    wrong(vec![]);
    wrong(vec![Giant { rotation: 0, terms: vec![] }]);
    wrong(vec![Giant { rotation: 0, terms: vec![Term { rotation: 0, diagonal: vec![Complex::ONE; 3] }] }]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let (party, mut prg) = (&*PARTY, prg(24));
    let (evaluator, context) = (&party.evaluator, &party.context);
    let ct = party.encrypt(&[Complex::ONE], 2, SCALE, &mut prg);
    let other = party.encrypt(&[Complex::ONE], 2, SCALE * 1.001, &mut prg);
    assert!(matches!(evaluator.add(&ct, &other), Err(Error::Scales { .. })));
    assert!(matches!(evaluator.subtract(&ct, &other), Err(Error::Scales { .. })));
    let close = party.encrypt(&[Complex::ONE], 2, SCALE * (1.0 + 1e-7), &mut prg);
    assert!(evaluator.add(&ct, &close).is_ok());
    assert!(matches!(evaluator.drop_to(&ct, 3), Err(Error::Level { found: 2, .. })));
    assert!(matches!(evaluator.rotate(&ct, 7), Err(Error::Key { level: 2, .. })));
    // The key for packing is one of level 1.
    assert!(matches!(evaluator.automorphism(&ct, 3), Err(Error::Key { level: 2, .. })));
    assert!(evaluator.automorphism(&evaluator.drop_to(&ct, 1).unwrap(), 3).is_ok());
    // It has other special primes than the rotations.
    let low = evaluator.drop_to(&ct, 1).unwrap();
    assert!(matches!(evaluator.automorphisms(&low, &[5, 3]), Err(Error::Key { .. })));
    for scale in [0.5, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(context.encode_slots(&[Complex::ONE], 2, scale), Err(Error::Scale { .. })));
        assert!(matches!(evaluator.multiply_constant(&ct, Complex::ONE, scale), Err(Error::Scale { .. })));
    }
    for value in [f64::NAN, f64::INFINITY, 2f64.powi(26)] {
        assert!(matches!(context.encode_coefficients(&[value], 2, SCALE), Err(Error::Value { .. })));
    }
    assert!(matches!(evaluator.add_constant(&ct, f64::NAN.into()), Err(Error::Value { .. })));
    assert!(matches!(evaluator.add_constant(&ct, 2f64.powi(84).into()), Err(Error::Value { .. })));
    for count in [0, 3, N] {
        let found = context.encode_slots(&vec![Complex::ONE; count], 2, SCALE);
        assert!(matches!(found, Err(Error::Count { .. })), "{count} slots");
    }
    assert!(matches!(context.encode_slots(&[Complex::ONE], 27, SCALE), Err(Error::Level { found: 27, .. })));
    assert!(matches!(evaluator.raise(&ct, 1, N), Err(Error::Level { found: 2, .. })));
    let bottom = evaluator.drop_to(&ct, 0).unwrap();
    // 72 bits do not fit 50, nor do they as a constant's scale.
    assert!(matches!(evaluator.square(&bottom), Err(Error::Level { found: 0, .. })));
    assert!(matches!(evaluator.multiply(&bottom, &ct), Err(Error::Level { found: 0, .. })));
    let plain = context.encode_slots(&[Complex::ONE], 0, SCALE).unwrap();
    assert!(matches!(evaluator.multiply_plain(&ct, &plain), Err(Error::Level { found: 0, .. })));
    let plain = context.encode_slots(&[Complex::ONE], 2, SCALE).unwrap();
    let mut sum = evaluator.multiply_plain(&ct, &plain).unwrap();
    assert!(matches!(evaluator.multiply_add(&mut sum, &low, &plain), Err(Error::Level { found: 2, .. })));
    assert!(matches!(evaluator.multiply_add(&mut sum, &other, &plain), Err(Error::Scales { .. })));
    evaluator.multiply_add(&mut sum, &ct, &plain).unwrap();
    assert_slots(&party.slots(&sum), &[Complex::from(2.0)], 2f64.powi(-12));
    let constant = evaluator.multiply_constant(&bottom, Complex::ONE, SCALE);
    assert!(matches!(constant, Err(Error::Level { found: 0, .. })));
    for values in [0, 1, 3, 2 * N] {
        assert!(matches!(evaluator.raise(&bottom, 1, values), Err(Error::Count { .. })));
    }
    assert!(matches!(evaluator.raise(&bottom, 0, N), Err(Error::Factor { factor: 0 })));
    assert!(matches!(evaluator.rescale(&bottom), Err(Error::Level { .. })));
}
