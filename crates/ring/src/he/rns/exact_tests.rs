//! BFV over whole numbers modulo Q, operation by operation from its definition, and our ciphertexts beside it: the same, to
//! the last unit, under the same randomness.

use num_bigint::BigInt;
use proptest::prelude::*;

use super::keys::{noise, seed, ternary};
use super::tests::{
    T, all, big, centred, integers, modulus, moved, nearest, random, rem, rings, schoolbook, to_values,
};
use super::*;
use crate::prg::Prg;

/// (a, b) with the phase `b + a·s`.
type Pair = [Vec<BigInt>; 2];

/// BFV with plaintexts modulo t in `Z_Q[X]/(X^N + 1)`.
struct Schoolbook {
    q: BigInt,
    t: BigInt,
}

impl Schoolbook {
    fn reduced(&self, x: impl Iterator<Item = BigInt>) -> Vec<BigInt> {
        x.map(|x| rem(&x, &self.q)).collect()
    }

    fn sum(&self, x: &[BigInt], y: &[BigInt]) -> Vec<BigInt> {
        self.reduced(x.iter().zip(y).map(|(x, y)| x + y))
    }

    fn product(&self, x: &[BigInt], y: &[BigInt]) -> Vec<BigInt> {
        self.reduced(schoolbook(x, y).into_iter())
    }

    fn both(&self, x: &Pair, of: impl Fn(&[BigInt]) -> Vec<BigInt>) -> Pair {
        [of(&x[0]), of(&x[1])]
    }

    /// `Q·m/t`, to the nearest, halves downwards.
    fn scale(&self, m: &[u64]) -> Vec<BigInt> {
        let half = &self.t / 2;
        let of = |m: &u64| (&self.q * (m % u64::try_from(&self.t).unwrap()) + &half) / &self.t;
        m.iter().map(of).collect()
    }

    fn phase(&self, s: &[BigInt], x: &Pair) -> Vec<BigInt> {
        self.sum(&x[1], &self.product(&x[0], s))
    }

    fn encrypt(&self, s: &[BigInt], a: &[BigInt], e: &[BigInt], scaled: &[BigInt]) -> Pair {
        let product = self.product(a, s);
        let b = self.reduced(scaled.iter().zip(e).zip(&product).map(|((m, e), product)| m + e - product));
        [a.to_vec(), b]
    }

    /// Under the public key (p1, p0).
    fn encrypt_public(&self, key: &Pair, u: &[BigInt], e: [&[BigInt]; 2], scaled: &[BigInt]) -> Pair {
        let [a, b] = self.both(key, |half| self.product(half, u));
        [self.sum(&a, e[0]), self.sum(&self.sum(&b, e[1]), scaled)]
    }

    fn decrypt(&self, s: &[BigInt], x: &Pair) -> Vec<BigInt> {
        self.phase(s, x).iter().map(|x| rem(&nearest(&(x * &self.t), &self.q), &self.t)).collect()
    }

    /// By the gadget of `key`: the digits of a, limb by limb, each in `-B/2..B/2` but for the last.
    fn switch(&self, primes: &[u64], digit_bits: u32, key: &[Pair], x: &Pair) -> Pair {
        let base = BigInt::from(1u64 << digit_bits);
        let mut digits: Vec<Vec<BigInt>> = Vec::new();
        for &p in primes {
            let mut rest = all(&x[0], |a| centred(a, &big(p)));
            let count = (u64::BITS - p.leading_zeros()).div_ceil(digit_bits);
            for digit in 1..=count {
                let last = digit == count;
                let cut =
                    |r: &BigInt| if last { r.clone() } else { rem(&(r + &base / 2), &base) - &base / 2 };
                let low = all(&rest, cut);
                rest = rest.iter().zip(&low).map(|(r, d)| (r - d) / &base).collect();
                digits.push(low);
            }
        }
        let zero = vec![BigInt::ZERO; x[0].len()];
        let mut out = [zero, x[1].clone()];
        for (digit, part) in digits.iter().zip(key) {
            out = [0, 1].map(|half| self.sum(&out[half], &self.product(digit, &part[half])));
        }
        out
    }
}

/// The two halves over the integers.
fn pair(ring: &Ring, ct: &Ciphertext<Values>) -> Pair {
    let ct = ct.duplicate().into_coefficients(ring);
    [integers(ring, &ct.a), integers(ring, &ct.b)]
}

fn values(ring: &Ring, poly: Poly<Values>) -> Vec<BigInt> {
    integers(ring, &ring.to_coefficients(poly))
}

/// The parts of a key; each is an encryption of `2^(wj)·g_i·s'`, of a rounded key P times as much, with the noise of a fresh one.
fn parts(ring: &Ring, key: &SwitchingKey) -> Vec<Pair> {
    key.pairs().map(|part| pair(ring, part)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Encryption under both keys, products, rotations one by one and hoisted, sums of lazy products, modulus switching
    /// and decryption.
    #[test]
    fn every_operation_is_that_of_whole_numbers(
        random_seed: u64,
        digit_bits in prop::sample::select(vec![3u32, 9, 15, 21, 30]),
        steps in 0i64..16,
    ) {
        const N: usize = 32;
        for ring in rings(N).into_iter().filter(|ring| ring.limbs() > 1) {
            let exact = Schoolbook { q: modulus(&ring), t: big(T) };
            let plain = PlainModulus::new(&ring, T).unwrap();
            // The same stream twice: for our secrets and for those of the schoolbook.
            let stream = || Prg::derive(&[6; 32], "exact", &[random_seed]);
            let (mut ours, mut theirs) = (stream(), stream());
            let secret = SecretKey::from_prg(&ring, &mut ours);
            let s = all(&values(&ring, ternary(&ring, &mut theirs)), |s| centred(s, &exact.q));
            let small = |prg: &mut Prg| all(&integers(&ring, &noise(&ring, prg)), |e| centred(e, &exact.q));

            let m0 = random(&mut Prg::derive(&[7; 32], "messages", &[random_seed]), N, T);
            let m1 = random(&mut Prg::derive(&[8; 32], "messages", &[random_seed]), N, T);
            let scaled = plain.scale(&ring, &m0);
            prop_assert_eq!(integers(&ring, &scaled), exact.reduced(exact.scale(&m0).into_iter()));
            let x = secret.encrypt(&ring, &scaled, &mut ours);
            let a_seed = seed(&mut theirs);
            prop_assert_eq!(x.seed, a_seed);
            let x = x.expand(&ring);
            let e = small(&mut theirs);
            let bx = exact.encrypt(&s, &pair(&ring, &x)[0], &e, &exact.scale(&m0));
            prop_assert_eq!(&pair(&ring, &x), &bx);

            let public = JointKeys::public(&ring, &secret, &mut ours);
            let key_seed = seed(&mut theirs);
            let (sent, mut p0) = public.parts();
            prop_assert_eq!(sent, &key_seed);
            let zero = SeededCiphertext { seed: key_seed, b: p0.next().unwrap().duplicate() }.expand(&ring);
            let key = exact.encrypt(&s, &pair(&ring, &zero)[0], &small(&mut theirs), &vec![BigInt::ZERO; N]);
            prop_assert_eq!(&pair(&ring, &zero), &key);
            let mut y = public.encrypt_zero(&ring, &mut ours);
            y.add_plain(&ring, &ring.to_values(plain.scale(&ring, &m1)));
            let u = values(&ring, ternary(&ring, &mut theirs));
            let e1 = small(&mut theirs);
            let e0 = small(&mut theirs);
            let by = exact.encrypt_public(&key, &u, [&e1, &e0], &exact.scale(&m1));
            prop_assert_eq!(&pair(&ring, &y), &by);
            for (ct, of) in [(&x, &bx), (&y, &by)] {
                let ours: Vec<BigInt> = secret.decrypt(&ring, &plain, ct).iter().map(|&m| big(m)).collect();
                prop_assert_eq!(ours, exact.decrypt(&s, of));
            }

            // A product with a dense polynomial, by both ways, and lazy sums.
            let w: Vec<i64> = m1.iter().map(|&m| plain.centred(&[m])[0]).collect();
            let bw: Vec<BigInt> = w.iter().map(|&w| BigInt::from(w)).collect();
            let vw = ring.to_values(ring.from_signed(&w));
            let mut product = x.duplicate();
            product.multiply_assign(&ring, &vw);
            product.multiply_add(&ring, &y, &vw);
            let bp = exact.both(&bx, |half| exact.product(half, &bw));
            let bp = [0, 1].map(|half| exact.sum(&bp[half], &exact.product(&by[half], &bw)));
            prop_assert_eq!(&pair(&ring, &product), &bp);
            let rows = vec![vec![w[0], w[1]], vec![w[2], w[3]], vec![w[4], -w[5]], vec![w[6], w[7]]];
            let bsum = |row: &[i64]| -> Pair {
                [0, 1].map(|half| {
                    exact.reduced((0..N).map(|i| &bx[half][i] * row[0] + &by[half][i] * row[1]))
                })
            };
            for (ours, row) in ring.weighted_sums(&[&x, &y], &rows, 17).iter().zip(&rows) {
                prop_assert_eq!(&pair(&ring, ours), &bsum(row));
            }
            let patterned =
                ring.weighted_sums_by_patterns(&[&x, &y], &rows, 17, -3, std::slice::from_ref(&vw));
            for (ours, rows) in patterned.iter().zip(rows.chunks(2)) {
                let (first, second) = (bsum(&rows[0]), bsum(&rows[1]));
                let expected = [0, 1].map(|half| {
                    let scaled = all(&first[half], |x| x * -3);
                    exact.sum(&scaled, &exact.product(&second[half], &bw))
                });
                prop_assert_eq!(&pair(&ring, ours), &expected);
            }

            // Rotations.
            let mut at = product;
            let mut expected = bp;
            for element in [rotation(N, steps), row_swap(N)] {
                let key = GaloisKey::new(&secret, element, digit_bits, &mut ours);
                let gadget = parts(&ring, key.switching_key());
                let turned = exact.both(&expected, |half| exact.reduced(moved(half, element).into_iter()));
                let switched = exact.switch(ring.primes(), digit_bits, &gadget, &turned);
                let hoisted = Hoisted::new(&ring, &at, digit_bits).apply(&ring, &key);
                let alone = at.apply(&ring, &key);
                // Digits are taken before the automorphism, which moves them and changes signs: of an even base, halves
                // may be rounded to the other side, so that hoisted rotations need not be those of the definition. What
                // they decrypt to is.
                prop_assert_eq!(&pair(&ring, &hoisted), &pair(&ring, &alone));
                let before = exact.both(&expected, |half| half.to_vec());
                let digits_first = exact.switch(ring.primes(), digit_bits, &moved_back(&exact, &gadget, element, N), &before);
                let digits_first = exact.both(&digits_first, |half| exact.reduced(moved(half, element).into_iter()));
                prop_assert_eq!(&pair(&ring, &alone), &digits_first);
                let off = exact.phase(&s, &switched).iter().zip(&exact.phase(&s, &digits_first))
                    .map(|(x, y)| centred(&(x - y), &exact.q).magnitude().bits()).max().unwrap();
                prop_assert!(off <= u64::from(digit_bits) + 16, "{off} bits apart");
                // A rounded key: of what a is to the nearest multiple of the last prime, without that prime.
                let key = GaloisKey::rounded(&secret, element, digit_bits, &mut Prg::derive(&[9; 32], "rounded", &[random_seed]));
                let gadget = moved_back(&exact, &parts(&ring, key.switching_key()), element, N);
                let (last, others) = ring.primes().split_last().expect("several primes");
                let quotient = all(&expected[0], |a| nearest(a, &big(*last)));
                let rounded = exact.switch(others, digit_bits, &gadget, &[quotient, expected[1].clone()]);
                let rounded = exact.both(&rounded, |half| exact.reduced(moved(half, element).into_iter()));
                prop_assert_eq!(&pair(&ring, &at.apply(&ring, &key)), &rounded);
                let off = exact.phase(&s, &rounded).iter().zip(&exact.phase(&s, &digits_first))
                    .map(|(x, y)| centred(&(x - y), &exact.q).magnitude().bits()).max().unwrap();
                let most = u64::from(digit_bits.max(u64::BITS - last.leading_zeros())) + 16;
                prop_assert!(off <= most, "{off} bits apart, {most} allowed");
                (at, expected) = (alone, digits_first);
            }

            // Modulus switching, down to one prime.
            let (mut ring, mut at) = (ring.clone(), at.into_coefficients(&ring));
            while let Some(smaller) = ring.smaller() {
                let p = big(*ring.primes().last().unwrap());
                at = at.drop_prime(&ring);
                let q = modulus(&smaller);
                expected = [0, 1].map(|half| all(&expected[half], |x| rem(&nearest(x, &p), &q)));
                prop_assert_eq!(&integers(&smaller, &at.a), &expected[0]);
                prop_assert_eq!(&integers(&smaller, &at.b), &expected[1]);
                let level = Schoolbook { q, t: big(T) };
                let values = to_values(&smaller, at.duplicate());
                let ours: Vec<BigInt> =
                    secret.decrypt(&smaller, &plain, &values).iter().map(|&m| big(m)).collect();
                prop_assert_eq!(ours, level.decrypt(&s, &expected));
                ring = smaller;
            }
        }
    }
}

/// The parts of a key before the automorphism X -> X^element.
fn moved_back(exact: &Schoolbook, key: &[Pair], element: usize, n: usize) -> Vec<Pair> {
    let inverse = (1..2 * n).find(|inverse| inverse * element % (2 * n) == 1).expect("an odd element");
    key.iter().map(|part| exact.both(part, |half| exact.reduced(moved(half, inverse).into_iter()))).collect()
}
