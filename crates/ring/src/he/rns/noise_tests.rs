//! Noise against its estimates, operation by operation.

use crate::cpu::Cpu;
use crate::prg::Prg;

use super::tests::{Setting, T, minus, to_values};
use super::*;
use crate::he::params::RnsParameters;

/// Ciphertexts whose noise is held against its estimate.
struct Measured {
    at: Setting,
    batch: Batch,
}

impl Measured {
    /// One line of the table: the noise is not above its estimate, nor much below it, and the message is right.
    fn close(&self, what: &str, ct: &Ciphertext<Values>, message: &[u64], estimate: Noise) {
        self.close_in(&self.at.ring, what, ct, message, estimate);
    }

    /// The same in a ring with fewer primes.
    fn close_in(&self, ring: &Ring, what: &str, ct: &Ciphertext<Values>, message: &[u64], estimate: Noise) {
        let Setting { plain, secret, .. } = &self.at;
        let (measured, bound) = (secret.noise_bits_vt(ring, plain, ct, message), estimate.bits());
        println!("{what:<44} {measured:>9.2} {bound:>9.2} {:>9.2}", bound - measured);
        assert!(
            measured <= bound && bound < measured + 2.0,
            "{what}: {measured:.2} bits, {bound:.2} estimated"
        );
        assert_eq!(secret.decrypt(ring, plain, ct).to_vec(), message, "{what}");
    }

    fn slots(&self, messages: &[&[u64]], of: impl Fn(&[u64]) -> u64) -> Vec<u64> {
        let slots: Vec<Vec<u64>> = messages.iter().map(|m| self.batch.decode(m)).collect();
        let at = |i: usize| of(&slots.iter().map(|slots| slots[i]).collect::<Vec<_>>()) % T;
        self.batch.encode(&(0..self.batch.slots()).map(at).collect::<Vec<_>>())
    }

    /// A message after its slots were rotated to the left, and after its rows were exchanged.
    fn turned(&self, message: &[u64], steps: usize) -> Vec<u64> {
        let (slots, row) = (self.batch.decode(message), self.batch.slots() / 2);
        let from = |i: usize| slots[i / row * row + (i % row + steps) % row];
        self.batch.encode(&(0..2 * row).map(from).collect::<Vec<_>>())
    }

    fn swapped(&self, message: &[u64]) -> Vec<u64> {
        let (slots, row) = (self.batch.decode(message), self.batch.slots() / 2);
        self.batch.encode(&[&slots[row..], &slots[..row]].concat())
    }
}

/// The sum of squares of a polynomial's numbers of least absolute value.
fn squares(plain: &PlainModulus, poly: &[u64]) -> f64 {
    plain.centred(poly).iter().map(|&c| (c as f64).powi(2)).sum()
}

/// Digits of a polynomial of this ring.
fn digits_of(ring: &Ring, digit_bits: u32) -> usize {
    ring.moduli().map(|m| m.bits().div_ceil(digit_bits) as usize).sum()
}

/// The noise of each operation, at the ring of a parameter set on record: never above its estimate, and within two bits of
/// it. Seeds are fixed: what is measured is the same every time. (`--nocapture` shows the table.)
#[test]
fn noise_is_what_the_estimates_say() {
    let params = RnsParameters::search(4096, 35, 3).unwrap();
    assert!(params.is_secure());
    println!("{:<44} {:>9} {:>9} {:>9}", "operation, noise in bits", "measured", "estimated", "apart");
    for seed in 0..3 {
        let ring = Ring::new(Cpu::detect(), params.clone());
        let n = ring.n();
        let mut measured =
            Measured { at: Setting::new(ring.clone(), T, seed), batch: Batch::new(n, T).unwrap() };
        let at = &mut measured.at;
        let plain = at.plain.clone();
        let messages: Vec<Vec<u64>> = (0..8).map(|_| at.message()).collect();
        let fresh: Vec<Ciphertext<Values>> = messages.iter().map(|m| at.encrypt(m)).collect();
        let (m0, m1, x, y) = (&messages[0], &messages[1], &fresh[0], &fresh[1]);
        let public = JointKeys::public(&ring, &at.secret, &mut at.prg);
        let mut by_public = public.encrypt_zero(&ring, &mut at.prg);
        by_public.add_plain(&ring, &ring.to_values(plain.scale(&ring, m0)));
        let m = &measured;
        m.close("encryption under the secret", x, m0, Noise::fresh());
        m.close("encryption under the public key", &by_public, m0, Noise::fresh_public(n));

        let of_sum = Noise::fresh_public(n) + Noise::fresh();
        let sum = m.slots(&[m0, m1], |v| v[0] + v[1]);
        let mut added = by_public.duplicate();
        added.add_assign(&ring, y);
        m.close("sum", &added, &sum, of_sum);
        let mut difference = by_public.duplicate();
        difference.add_assign(&ring, &minus(&ring, y));
        difference = minus(&ring, &difference);
        m.close("difference", &difference, &m.slots(&[m0, m1], |v| T - v[0] + v[1]), of_sum);
        let mut with_plain = x.duplicate();
        with_plain.add_plain(&ring, &ring.to_values(plain.scale(&ring, m1)));
        m.close("sum with a plaintext", &with_plain, &sum, Noise::fresh().add_plain());

        let mut scaled = added.duplicate();
        scaled.multiply_scalar(&ring, -300);
        let m300 = m.slots(&[&sum], |v| (T - v[0]) * 300);
        m.close("product with a number", &scaled, &m300, of_sum.multiply(9e4));
        let numbers = [5i64, -900, 77, 400, -3, 1000, 811, -12];
        let refs: Vec<&Ciphertext<Values>> = fresh.iter().collect();
        let lazy = ring.weighted_sums(&refs, &[numbers.to_vec()], 10).remove(0);
        let messages: Vec<&[u64]> = messages.iter().map(|m| &m[..]).collect();
        let weigh = |v: &[u64]| {
            let products = v.iter().zip(numbers).map(|(&v, w)| v as i64 * w);
            products.sum::<i64>().rem_euclid(T as i64) as u64
        };
        let weighed = m.slots(&messages, weigh);
        let of_lazy = Noise::fresh().multiply(numbers.iter().map(|&w| (w * w) as f64).sum());
        m.close("lazy sum of products with numbers", &lazy, &weighed, of_lazy);

        // A product whose exact message follows from a sparse polynomial: w = 5 X^3 - 1000 X^4095.
        let mut w = vec![0i64; n];
        (w[3], w[n - 1]) = (5, -1000);
        let product: Vec<u64> = (0..n)
            .map(|i| {
                let low = if i >= 3 { sum[i - 3] } else { T - sum[i + n - 3] };
                let high = if i + 1 == n { T - sum[0] } else { sum[i + 1] };
                (5 * low + 1000 * high) % T
            })
            .collect();
        let mut multiplied = added.duplicate();
        multiplied.multiply_assign(&ring, &ring.to_values(ring.from_signed(&w)));
        let of_product = of_sum.multiply(25.0 + 1e6);
        m.close("product with a sparse plaintext", &multiplied, &product, of_product);
        let dense = ring.to_values(ring.from_signed(&plain.centred(m1)));
        let mut times = x.duplicate();
        times.multiply_assign(&ring, &dense);
        times.multiply_add(&ring, y, &dense);
        let of_dense = (Noise::fresh() + Noise::fresh()).multiply(squares(&plain, m1));
        let of_slots = m.slots(&[m0, m1], |v| (v[0] + v[1]) * v[1]);
        m.close("sum of products with a dense plaintext", &times, &of_slots, of_dense);
        let rows = [vec![2, -7, 0, 0, 30, 1, 0, 5], vec![11, 0, 3, -9, 0, 0, 1, 1]];
        let pattern = std::slice::from_ref(&dense);
        let patterned = ring.weighted_sums_by_patterns(&refs, &rows, 5, 100, pattern).remove(0);
        let of = |row: &[i64], v: &[u64]| -> i64 { v.iter().zip(row).map(|(&v, w)| v as i64 * w).sum() };
        let of_patterns = |v: &[u64]| {
            let second = of(&rows[1], v).rem_euclid(T as i64) * v[1] as i64;
            (100 * of(&rows[0], v) + second).rem_euclid(T as i64) as u64
        };
        let norm = |row: &[i64]| row.iter().map(|&w| (w * w) as f64).sum::<f64>();
        let of_pattern = Noise::fresh().multiply(1e4 * norm(&rows[0]) + squares(&plain, m1) * norm(&rows[1]));
        let expected = m.slots(&messages, of_patterns);
        m.close("lazy sums, times patterns", &patterned, &expected, of_pattern);

        for digit_bits in [7, 12, 18] {
            let mut prg = Prg::derive(&[11; 32], "keys", &[seed, digit_bits.into()]);
            let secret = &m.at.secret;
            let key = |element, prg: &mut Prg| GaloisKey::new(secret, element, digit_bits, prg);
            let keys = [key(rotation(n, 1), &mut prg), key(row_swap(n), &mut prg)];
            let of_key = Noise::of_digits(n, keys[0].switching_key().digits(&ring), digit_bits);
            let of_one = Noise::fresh() + of_key;
            let turned = x.apply(&ring, &keys[0]);
            let expected = m.turned(m0, 1);
            m.close(&format!("rotation, digits of {digit_bits} bits"), &turned, &expected, of_one);
            let of_two = of_one + of_key;
            let twice = turned.apply(&ring, &keys[1]);
            m.close("rotation, then exchanged rows", &twice, &m.swapped(&expected), of_two);
            let key = GaloisKey::rounded(secret, rotation(n, 1), digit_bits, &mut prg);
            assert_eq!(key.switching_key().digits(&ring), digits_of(&ring.smaller().unwrap(), digit_bits));
            let of_rounded = Noise::of_digits(n, key.switching_key().digits(&ring), digit_bits)
                + Noise::of_rounded_key(n, ring.primes()[ring.limbs() - 1]);
            let turned = x.apply(&ring, &key);
            m.close("rotation by a rounded key", &turned, &expected, Noise::fresh() + of_rounded);
            let of_times = of_dense + of_key;
            let hoisted = Hoisted::new(&ring, &times, digit_bits).apply(&ring, &keys[0]);
            m.close("hoisted rotation of a product", &hoisted, &m.turned(&of_slots, 1), of_times);
        }

        // Each of three joined ciphertexts has the noise of three key switchings, divided by the last prime.
        let others: Vec<SecretKey> =
            (0..2).map(|i| SecretKey::from_prg(&ring, &mut Prg::new([i; 32]))).collect();
        let secrets: Vec<&SecretKey> = std::iter::once(&m.at.secret).chain(&others).collect();
        let (own, last) = (ring.smaller().unwrap(), ring.primes()[ring.limbs() - 1]);
        for digit_bits in [18, 35] {
            let keys =
                JointKeys::new(&ring, &secrets, digit_bits, &mut Prg::derive(&[12; 32], "keys", &[seed]));
            let of_key =
                Noise::of_digits(n, digits_of(&own, digit_bits), digit_bits).multiply(3.0).divide(n, last);
            let of_one = Noise::fresh().divide(n, last);
            let dropped = |c: &Ciphertext<Values>| c.duplicate().into_coefficients(&ring).drop_prime(&ring);
            let joined = keys.join(&ring, fresh[..3].iter().map(dropped).collect());
            let zeros = keys.encrypt_zeros(&ring, 3, &mut Prg::derive(&[13; 32], "zeros", &[seed]));
            let a = own.to_values(joined.a);
            for (j, (secret, b)) in secrets.iter().zip(joined.b).enumerate() {
                let close =
                    |ring: &Ring, ct: &Ciphertext<Values>, message: &[u64], estimate: Noise, what: &str| {
                        let (measured, bound) =
                            (secret.noise_bits_vt(ring, &plain, ct, message), estimate.bits());
                        println!("{what:<44} {measured:>9.2} {bound:>9.2} {:>9.2}", bound - measured);
                        assert!(
                            measured <= bound && bound < measured + 2.0,
                            "{what}: {measured} bits, not {bound}"
                        );
                    };
                let ct = Ciphertext { a: a.duplicate(), b: own.to_values(b) };
                close(&own, &ct, messages[j], of_one + of_key, "joined ciphertext");
                let ct = Ciphertext { a: zeros.a.duplicate(), b: zeros.b[j].duplicate() };
                close(&ring, &ct, &vec![0; n], Noise::fresh_public(n), "joint encryption of zero");
            }
        }

        let (mut level, mut estimate) = (ring.clone(), of_product);
        let mut dropped = multiplied.into_coefficients(&ring);
        while let Some(smaller) = level.smaller() {
            dropped = dropped.drop_prime(&level);
            estimate = estimate.divide(n, level.primes()[level.limbs() - 1]);
            let what = format!("modulus switch to {} primes", smaller.limbs());
            m.close_in(&smaller, &what, &to_values(&smaller, dropped.duplicate()), &product, estimate);
            level = smaller;
        }
    }
}
