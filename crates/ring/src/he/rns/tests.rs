//! Rings against integers of any size, ciphertexts against the schoolbook method.

use crate::cpu::Cpu;
use crate::modular;
use crate::prg::Prg;
use crate::sample::NOISE_ETA;
use num_bigint::{BigInt, Sign};
use proptest::prelude::*;

use super::*;
use crate::he::params::{ParameterError, RnsParameters, largest_primes};

/// Rings of this length: primes of one size and of several, one and many.
pub(super) fn rings(n: usize) -> Vec<Ring> {
    let of = |sizes: &[(u32, usize)]| {
        let primes: Vec<u64> =
            sizes.iter().flat_map(|&(bits, count)| largest_primes(n, bits, count).unwrap()).collect();
        Ring::new(Cpu::detect(), RnsParameters::insecure(n, &primes).unwrap())
    };
    vec![of(&[(60, 1)]), of(&[(30, 2)]), of(&[(60, 3)]), of(&[(40, 1), (21, 1), (59, 2)]), of(&[(50, 5)])]
}

pub(super) fn big(x: u64) -> BigInt {
    BigInt::from(x)
}

pub(super) fn modulus(ring: &Ring) -> BigInt {
    ring.primes().iter().map(|&p| big(p)).product()
}

pub(super) fn rem(x: &BigInt, q: &BigInt) -> BigInt {
    let r = x % q;
    if r.sign() == Sign::Minus { r + q } else { r }
}

/// The nearest integer to `x / y`, y above zero; halves go up.
pub(super) fn nearest(x: &BigInt, y: &BigInt) -> BigInt {
    let twice: BigInt = 2 * x + y;
    let floor = rem(&twice, &(2 * y));
    (twice - floor) / (2 * y)
}

pub(super) fn centred(x: &BigInt, q: &BigInt) -> BigInt {
    let r = rem(x, q);
    if &r * 2 > *q { r - q } else { r }
}

/// The coefficients in `0..Q`: the sum of `r·(Q/p)·((Q/p)^-1 mod p)`.
pub(super) fn integers(ring: &Ring, poly: &Poly<Coefficients>) -> Vec<BigInt> {
    let q = modulus(ring);
    let unit = |p: u64| {
        let cofactor = &q / big(p);
        &cofactor * cofactor.modpow(&big(p - 2), &big(p))
    };
    let units: Vec<BigInt> = ring.primes().iter().map(|&p| unit(p)).collect();
    let residue = |limb: usize, i: usize| big(poly.residues()[limb * ring.n() + i]);
    (0..ring.n()).map(|i| rem(&(0..ring.limbs()).map(|l| residue(l, i) * &units[l]).sum(), &q)).collect()
}

/// The polynomial with these coefficients.
pub(super) fn from_integers(ring: &Ring, values: &[BigInt]) -> Poly<Coefficients> {
    let words: Vec<u64> = ring
        .primes()
        .iter()
        .flat_map(|&p| values.iter().map(move |v| u64::try_from(rem(v, &big(p))).unwrap()))
        .collect();
    ring.from_residues(&words)
}

/// `x y` modulo `X^N + 1`, over the integers.
pub(super) fn schoolbook(x: &[BigInt], y: &[BigInt]) -> Vec<BigInt> {
    let n = x.len();
    let mut sums = vec![BigInt::ZERO; n];
    for (i, x) in x.iter().enumerate() {
        for (j, y) in y.iter().enumerate() {
            if i + j < n { sums[i + j] += x * y } else { sums[i + j - n] -= x * y }
        }
    }
    sums
}

/// X -> X^g, over the integers.
pub(super) fn moved(x: &[BigInt], g: usize) -> Vec<BigInt> {
    let n = x.len();
    let mut out = vec![BigInt::ZERO; n];
    for (i, x) in x.iter().enumerate() {
        let at = i * g % (2 * n);
        out[at % n] = if at < n { x.clone() } else { -x };
    }
    out
}

pub(super) fn all(values: &[BigInt], f: impl Fn(&BigInt) -> BigInt) -> Vec<BigInt> {
    values.iter().map(f).collect()
}

pub(super) fn minus(ring: &Ring, x: &Ciphertext<Values>) -> Ciphertext<Values> {
    let mut out = x.duplicate();
    out.multiply_scalar(ring, -1);
    out
}

pub(super) fn to_values(ring: &Ring, x: Ciphertext<Coefficients>) -> Ciphertext<Values> {
    Ciphertext { a: ring.to_values(x.a), b: ring.to_values(x.b) }
}

pub(super) fn random(prg: &mut Prg, n: usize, below: u64) -> Vec<u64> {
    (0..n).map(|_| prg.next_u64() % below).collect()
}

/// A ring, a secret, plaintexts and where randomness comes from.
pub(super) struct Setting {
    pub(super) ring: Ring,
    pub(super) secret: SecretKey,
    pub(super) plain: PlainModulus,
    pub(super) prg: Prg,
}

impl Setting {
    pub(super) fn new(ring: Ring, t: u64, seed: u64) -> Self {
        let mut prg = Prg::derive(&[5; 32], "rns tests", &[seed]);
        let secret = SecretKey::from_prg(&ring, &mut prg);
        Self { plain: PlainModulus::new(&ring, t).unwrap(), secret, ring, prg }
    }

    pub(super) fn message(&mut self) -> Vec<u64> {
        random(&mut self.prg, self.ring.n(), self.plain.value())
    }

    pub(super) fn encrypt(&mut self, message: &[u64]) -> Ciphertext<Values> {
        let scaled = self.plain.scale(&self.ring, message);
        self.secret.encrypt(&self.ring, &scaled, &mut self.prg).expand(&self.ring)
    }

    fn decrypt(&self, ciphertext: &Ciphertext<Values>) -> Vec<u64> {
        self.secret.decrypt(&self.ring, &self.plain, ciphertext).to_vec()
    }

    /// The secret: the phase of (1, 0).
    pub(super) fn s(&self) -> Vec<BigInt> {
        let mut one = vec![0i64; self.ring.n()];
        one[0] = 1;
        let a = self.ring.to_values(self.ring.from_signed(&one));
        let phase = self.secret.phase(&self.ring, &Ciphertext { a, b: self.ring.zero() });
        let q = modulus(&self.ring);
        all(&integers(&self.ring, &phase), |s| centred(s, &q))
    }
}

pub(super) const T: u64 = 65537;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn arithmetic_is_that_of_big_integers(seed: u64, c: i64, step in 0usize..32) {
        for ring in rings(32) {
            let q = modulus(&ring);
            let mut prg = Prg::derive(&[6; 32], "ring", &[seed]);
            let (x, y) = (ring.uniform::<Coefficients>(&mut prg), ring.uniform::<Coefficients>(&mut prg));
            let (bx, by) = (integers(&ring, &x), integers(&ring, &y));
            let again = from_integers(&ring, &bx);
            prop_assert_eq!(again.residues(), x.residues());
            let reduced = |values: Vec<BigInt>| all(&values, |v| rem(v, &q));

            let mut sum = x.duplicate();
            ring.add_assign(&mut sum, &y);
            prop_assert_eq!(integers(&ring, &sum), reduced(bx.iter().zip(&by).map(|(x, y)| x + y).collect()));
            ring.sub_assign(&mut sum, &x);
            prop_assert_eq!(sum.residues(), y.residues());
            ring.negate(&mut sum);
            ring.multiply_scalar(&mut sum, c);
            prop_assert_eq!(integers(&ring, &sum), reduced(all(&by, |y| -y * c)));

            let mut product = ring.to_values(x.duplicate());
            let vy = ring.to_values(y.duplicate());
            ring.multiply_assign(&mut product, &vy);
            ring.multiply_add(&mut product, &vy, &vy);
            let expected = schoolbook(&bx, &by).into_iter().zip(schoolbook(&by, &by)).map(|(a, b)| a + b);
            prop_assert_eq!(integers(&ring, &ring.to_coefficients(product)), reduced(expected.collect()));

            let g = 2 * step + 1;
            let automorphism = ring.automorphism(g);
            let by_values = automorphism.apply(&ring, &ring.to_values(x.duplicate()));
            prop_assert_eq!(integers(&ring, &ring.to_coefficients(by_values)), reduced(moved(&bx, g)));

            if let Some(smaller) = ring.smaller() {
                let p = big(*ring.primes().last().unwrap());
                let q = modulus(&smaller);
                let switched = integers(&smaller, &ring.drop_prime(&x));
                prop_assert_eq!(switched, all(&bx, |x| rem(&nearest(x, &p), &q)));
            }
        }
    }

    #[test]
    fn messages_are_scaled_and_rounded_to_the_nearest(
        seed: u64, t in prop_oneof![2u64..100, 1u64 << 16..1 << 20, 1u64 << 50..1 << 60, Just(1u64 << 37)]
    ) {
        for ring in rings(16) {
            let mut prg = Prg::derive(&[7; 32], "scale", &[seed]);
            let Ok(plain) = PlainModulus::new(&ring, t) else { continue };
            for ring in std::iter::successors(Some(ring), Ring::smaller) {
                let q = modulus(&ring);
                let mut message = random(&mut prg, 16, t);
                (message[0], message[1], message[2]) = (0, t - 1, t / 2);
                let scaled = integers(&ring, &plain.scale(&ring, &message));
                for (&m, scaled) in message.iter().zip(&scaled) {
                    let exact: BigInt = &q * m;
                    let off: BigInt = centred(&(scaled - nearest(&exact, &big(t))), &q);
                    // One less where the fraction is a half.
                    let tie = rem(&(2 * &exact), &big(t)) == BigInt::ZERO;
                    prop_assert!(off == BigInt::ZERO || (tie && off == BigInt::from(-1)), "{} of {}: {}", m, t, off);
                }
                let phase = ring.uniform::<Coefficients>(&mut prg);
                let expected = integers(&ring, &phase).into_iter().map(|x| rem(&nearest(&(x * t), &q), &big(t)));
                let rounded: Vec<BigInt> = plain.round(&ring, &phase).iter().map(|&m| big(m)).collect();
                prop_assert_eq!(rounded, expected.collect::<Vec<_>>());
            }
        }
    }

    /// A computation of every operation but key switching, step by step over the integers: the same ciphertext.
    #[test]
    fn ciphertexts_are_those_of_the_schoolbook(seed: u64, c in -1000i64..1000) {
        for ring in rings(16) {
            let q = modulus(&ring);
            let mut at = Setting::new(ring.clone(), 257, seed);
            let (m0, m1, m2) = (at.message(), at.message(), at.message());
            let s = at.s();
            prop_assert!(s.iter().all(|s| [-1, 0, 1].map(BigInt::from).contains(s)));
            let w: Vec<i64> = random(&mut at.prg, 16, 255).into_iter().map(|w| w as i64 - 127).collect();
            let (x, y) = (at.encrypt(&m0), at.encrypt(&m1));
            let of = |ct: &Ciphertext<Values>| {
                let ct = ct.duplicate().into_coefficients(&ring);
                [integers(&ring, &ct.a), integers(&ring, &ct.b)]
            };
            let phase = |[a, b]: &[Vec<BigInt>; 2]| -> Vec<BigInt> {
                schoolbook(a, &s).iter().zip(b).map(|(p, b)| rem(&(p + b), &q)).collect()
            };
            // Fresh: the noise is that of a centred binomial.
            for (ct, m) in [(&x, &m0), (&y, &m1)] {
                let scaled = integers(&ring, &at.plain.scale(&ring, m));
                for (phase, scaled) in phase(&of(ct)).iter().zip(&scaled) {
                    prop_assert!(centred(&(phase - scaled), &q).magnitude() <= &NOISE_ETA.into());
                }
                prop_assert_eq!(&at.decrypt(ct), m);
            }
            let (bx, by, bw) = (of(&x), of(&y), w.iter().map(|&w| BigInt::from(w)).collect::<Vec<_>>());

            // (w·x + c·y - x + m2)·w
            let vw = ring.to_values(ring.from_signed(&w));
            let mut out = y.duplicate();
            out.multiply_scalar(&ring, c);
            out.multiply_add(&ring, &x, &vw);
            out.add_assign(&ring, &minus(&ring, &x));
            out.add_plain(&ring, &ring.to_values(at.plain.scale(&ring, &m2)));
            out.multiply_assign(&ring, &vw);
            let scaled = integers(&ring, &at.plain.scale(&ring, &m2));
            let expected = [0, 1].map(|half: usize| -> Vec<BigInt> {
                let wx = schoolbook(&bx[half], &bw);
                let sum: Vec<BigInt> = (0..16)
                    .map(|i| &wx[i] + c * &by[half][i] - &bx[half][i] + scaled[i].clone() * (half as u64))
                    .collect();
                all(&schoolbook(&sum, &bw), |v| rem(v, &q))
            });
            prop_assert_eq!(&of(&out), &expected);
            // Its phase decrypts as BFV's does, whether the noise is small or not.
            let exact: Vec<BigInt> =
                phase(&expected).iter().map(|x| rem(&nearest(&(x * 257), &q), &big(257))).collect();
            prop_assert_eq!(at.decrypt(&out).iter().map(|&m| big(m)).collect::<Vec<_>>(), exact.clone());
            if q.bits() > 50 {
                let signed = |m: &[u64]| m.iter().map(|&m| big(m)).collect::<Vec<_>>();
                let (m0, m1, m2) = (signed(&m0), signed(&m1), signed(&m2));
                let wm = schoolbook(&m0, &bw);
                let sum: Vec<BigInt> = (0..16).map(|i| &wm[i] + c * &m1[i] - &m0[i] + &m2[i]).collect();
                prop_assert_eq!(exact, all(&schoolbook(&sum, &bw), |v| rem(v, &big(257))));
            }
        }
    }

    /// Sums that are reduced once are those that are reduced at every step.
    #[test]
    fn lazy_sums_are_sums(seed: u64, count in 1usize..6, rows in 1usize..4, bits in 1u32..40) {
        for ring in rings(512) {
            let mut prg = Prg::derive(&[10; 32], "lazy", &[seed]);
            let mut terms: Vec<Ciphertext<Values>> =
                (0..count).map(|_| Ciphertext { a: ring.uniform(&mut prg), b: ring.uniform(&mut prg) }).collect();
            // The largest residues of all.
            terms[0].a = ring.zero();
            let one = ring.to_values(ring.from_signed(&[&[1i64][..], &vec![0; 511]].concat()));
            ring.sub_assign(&mut terms[0].a, &one);
            let weight = |word: u64| (word as i64) >> (64 - bits - 1);
            let mut weights: Vec<Vec<i64>> =
                (0..rows).map(|_| (0..count).map(|_| weight(prg.next_u64())).collect()).collect();
            weights[0].fill(1 - (1i64 << bits));
            let refs: Vec<&Ciphertext<Values>> = terms.iter().collect();
            for (sum, row) in ring.weighted_sums(&refs, &weights, bits + 1).iter().zip(&weights) {
                let mut expected = Ciphertext { a: ring.zero(), b: ring.zero() };
                for (term, &weight) in terms.iter().zip(row) {
                    let mut product = term.duplicate();
                    product.multiply_scalar(&ring, weight);
                    expected.add_assign(&ring, &product);
                }
                prop_assert_eq!(sum.a.residues(), expected.a.residues());
                prop_assert_eq!(sum.b.residues(), expected.b.residues());
            }
        }
    }

    /// What repeats in slots is a polynomial of the subring, and sums with its residues are sums of products with it.
    #[test]
    fn factors_of_a_subring_are_plaintexts(
        seed: u64,
        log_d in prop::sample::select(vec![0u32, 2, 3, 4, 6]),
        count in 1usize..4,
        rows in 1usize..4,
    ) {
        let (n, d) = (512, 1usize << log_d);
        for ring in rings(n) {
            let (batch, plain) = (Batch::new(n, T).unwrap(), PlainModulus::new(&ring, T).unwrap());
            let subring = Subring::new(&ring, T, d).unwrap();
            let mut prg = Prg::derive(&[12; 32], "subring", &[seed]);
            let terms: Vec<Ciphertext<Values>> =
                (0..count).map(|_| Ciphertext { a: ring.uniform(&mut prg), b: ring.uniform(&mut prg) }).collect();
            let width = (count * rows).next_multiple_of(8);
            let slots: Vec<Vec<u64>> = (0..count * rows).map(|_| random(&mut prg, d, T)).collect();
            let mut columns = vec![0; d * width];
            for (at, slots) in slots.iter().enumerate() {
                slots.iter().zip(subring.places()).for_each(|(&slot, &row)| columns[row as usize * width + at] = slot);
            }
            let factors = subring.encode(&ring, &plain, &mut columns, width);
            let refs: Vec<&Ciphertext<Values>> = terms.iter().collect();
            let start = |_| Ciphertext { a: ring.zero(), b: terms[0].b.duplicate() };
            let mut sums: Vec<Ciphertext<Values>> = (0..rows).map(start).collect();
            ring.add_subring_products(&refs, &factors, &mut sums);
            for (row, sum) in sums.iter().enumerate() {
                let mut expected = start(row);
                for (i, term) in terms.iter().enumerate() {
                    let own = &slots[i * rows + row];
                    let each = (d / 2).max(1);
                    let all: Vec<u64> = (0..n).map(|s| own[(s / (n / 2) * each + s % each) % d]).collect();
                    let poly = ring.to_values(ring.from_signed(&plain.centred(&batch.encode(&all))));
                    expected.multiply_add(&ring, term, &poly);
                }
                prop_assert_eq!(sum.a.residues(), expected.a.residues());
                prop_assert_eq!(sum.b.residues(), expected.b.residues());
            }
        }
    }

    #[test]
    fn slots_add_multiply_and_rotate(seed: u64, log_n in 4u32..8, steps in -100i64..100) {
        let n = 1usize << log_n;
        let batch = Batch::new(n, T).unwrap();
        let mut prg = Prg::derive(&[8; 32], "slots", &[seed]);
        let (x, y) = (random(&mut prg, n, T), random(&mut prg, n, T));
        let (px, py) = (batch.encode(&x), batch.encode(&y));
        prop_assert_eq!(batch.decode(&px), x.clone());
        let integers = |p: &[u64]| p.iter().map(|&c| big(c)).collect::<Vec<_>>();
        let residues = |p: &[BigInt]| p.iter().map(|c| u64::try_from(rem(c, &big(T))).unwrap()).collect::<Vec<_>>();
        let product = residues(&schoolbook(&integers(&px), &integers(&py)));
        prop_assert_eq!(batch.decode(&product), x.iter().zip(&y).map(|(x, y)| x * y % T).collect::<Vec<_>>());

        let turned = residues(&moved(&integers(&px), rotation(n, steps)));
        let row = n / 2;
        let from = |i: usize| x[i / row * row + (i as i64 % row as i64 + steps).rem_euclid(row as i64) as usize];
        prop_assert_eq!(batch.decode(&turned), (0..n).map(from).collect::<Vec<_>>());
        let swapped = residues(&moved(&integers(&px), row_swap(n)));
        prop_assert_eq!(batch.decode(&swapped), [&x[row..], &x[..row]].concat());
        // Fewer values: zeros.
        let few = batch.decode(&batch.encode(&x[..3]));
        prop_assert!(few[..3] == x[..3] && few[3..].iter().all(|&v| v == 0));
    }

    /// Digits of any size, on every level of the ring, with keys made once for the largest.
    #[test]
    fn rotations_of_ciphertexts_rotate_slots(seed: u64, digit_bits in prop::sample::select(vec![2u32, 3, 8, 15, 20])) {
        let n = 32;
        let primes = largest_primes(n, 45, 3).unwrap();
        let mut at = Setting::new(Ring::new(Cpu::detect(), RnsParameters::insecure(n, &primes).unwrap()), T, seed);
        let batch = Batch::new(n, T).unwrap();
        let values = at.message();
        let mut ct = at.encrypt(&batch.encode(&values));
        let elements = [rotation(n, 1), rotation(n, -3), row_swap(n), 5];
        // As they arrive.
        let keys = elements.map(|g| {
            let key = GaloisKey::new(&at.secret, g, digit_bits, &mut at.prg);
            let (seed, b) = key.switching_key().parts();
            let b = b.map(|b| at.ring.from_residues(b.residues())).collect();
            GaloisKey::from_parts(&at.ring, g, SwitchingKey::from_parts(&at.ring, digit_bits, *seed, b))
        });
        loop {
            let hoisted = Hoisted::new(&at.ring, &ct, digit_bits);
            let zero = Ciphertext { a: at.ring.zero(), b: at.ring.zero() };
            let zero = Hoisted::new(&at.ring, &zero, digit_bits);
            let together = [zero, Hoisted::new(&at.ring, &ct, digit_bits)];
            let together = Hoisted::apply_all(&at.ring, &together, &keys.each_ref());
            for (both, key) in together[1].iter().zip(&keys) {
                let alone = hoisted.apply(&at.ring, key);
                prop_assert_eq!([both.a.residues(), both.b.residues()], [alone.a.residues(), alone.b.residues()]);
            }
            let halves = |turned: &Ciphertext<Values>| [turned.a.residues(), turned.b.residues()].concat();
            prop_assert!(together[0].iter().all(|turned| halves(turned).iter().all(|&word| word == 0)));
            for (key, g) in keys.iter().zip(elements) {
                let turned = hoisted.apply(&at.ring, key);
                let alone = ct.apply(&at.ring, key);
                prop_assert_eq!(turned.a.residues(), alone.a.residues());
                prop_assert_eq!(turned.b.residues(), alone.b.residues());
                let poly: Vec<BigInt> = batch.encode(&values).into_iter().map(big).collect();
                let expected = all(&moved(&poly, g), |c| rem(c, &big(T)));
                prop_assert_eq!(at.decrypt(&turned).into_iter().map(big).collect::<Vec<_>>(), expected);
                if g == rotation(n, 1) {
                    let slots = batch.decode(&at.decrypt(&turned));
                    prop_assert_eq!(&slots[..15], &values[1..16]);
                    prop_assert_eq!((slots[15], slots[31]), (values[0], values[16]));
                }
            }
            let Some(smaller) = at.ring.smaller() else { break };
            ct = to_values(&smaller, ct.into_coefficients(&at.ring).drop_prime(&at.ring));
            at.ring = smaller;
            if at.ring.limbs() == 1 && digit_bits > 15 {
                break; // 45 bits of Q, 17 of t: no room for the noise of such digits.
            }
        }
    }
}

#[test]
fn keys_and_ciphertexts_survive_the_way() {
    let ring = rings(64).remove(3);
    let mut at = Setting::new(ring.clone(), T, 1);
    let message = at.message();
    let scaled = at.plain.scale(&ring, &message);
    let sent = at.secret.encrypt(&ring, &scaled, &mut at.prg);
    let received = SeededCiphertext { seed: sent.seed, b: ring.from_residues(sent.b.residues()) };
    assert_eq!(at.decrypt(&received.expand(&ring)), message);

    let key = JointKeys::public(&ring, &at.secret, &mut at.prg);
    let (seed, p0) = key.parts();
    let p0 = p0.map(|p0| ring.from_residues(p0.residues())).collect();
    let key = JointKeys::from_parts(&ring, 1, 2, *seed, p0);
    let mut ct = key.encrypt_zero(&ring, &mut at.prg);
    ct.add_plain(&ring, &ring.to_values(scaled));
    assert_eq!(at.decrypt(&ct), message);
    // In a ring with fewer primes.
    let smaller = ring.smaller().unwrap();
    let scaled = at.plain.scale(&smaller, &message);
    let mut ct = key.encrypt_zero(&smaller, &mut at.prg);
    ct.add_plain(&smaller, &smaller.to_values(scaled));
    assert_eq!(*at.secret.decrypt(&smaller, &at.plain, &ct), message);

    // No two ciphertexts share an a half, nor noise.
    let zero = ring.zero();
    let two = [0, 1].map(|_| at.secret.encrypt(&ring, &zero, &mut at.prg));
    assert!(two[0].seed != two[1].seed && two[0].b.residues() != two[1].b.residues());
}

/// Up to four ciphertexts with a common a half: each decrypts under its own secret, to what it was, and under no other. Keys survive
/// the way.
#[test]
fn joined_ciphertexts_are_those_that_were_joined() {
    for (seed, ring) in rings(64).into_iter().enumerate().skip(1) {
        let mut at = Setting::new(ring.clone(), T, seed as u64);
        let others: Vec<SecretKey> = (0..3).map(|_| SecretKey::from_prg(&ring, &mut at.prg)).collect();
        let secrets: Vec<&SecretKey> = std::iter::once(&at.secret).chain(&others).collect();
        let keys = JointKeys::new(&ring, &secrets, 4, &mut at.prg);
        let (seed, sent) = keys.parts();
        let sent: Vec<Poly<Values>> = sent.map(|b| ring.from_residues(b.residues())).collect();
        let keys = JointKeys::from_parts(&ring, 4, 4, *seed, sent);
        let messages: Vec<Vec<u64>> = (0..4).map(|i| (0..64).map(|j| (j * 7919 + i) % T).collect()).collect();
        let level = ring.smaller().unwrap();
        for count in 1..=4 {
            let encrypt = |message: &Vec<u64>| {
                let scaled = at.plain.scale(&level, message);
                at.secret.encrypt(&level, &scaled, &mut Prg::new([message[0] as u8; 32])).expand(&level)
            };
            let coefficients = |c: Ciphertext<Values>| c.into_coefficients(&level);
            let ciphertexts = messages[..count].iter().map(encrypt).map(coefficients).collect();
            let mut joined = keys.join(&ring, ciphertexts);
            let zeros = keys.encrypt_zeros(&ring, count, &mut at.prg).into_coefficients(&ring);
            joined.add_assign(&level, &zeros.drop_prime(&ring));
            let JointCiphertext { a, b } = joined;
            let a = level.to_values(a);
            assert_eq!(b.len(), count);
            for (j, b) in b.into_iter().enumerate() {
                for (i, secret) in secrets.iter().enumerate() {
                    let got = at.plain.round(&level, &secret.phase_of(&level, &a, &b));
                    assert_eq!(*got == messages[j], i == j, "{count} joined, number {j} under secret {i}");
                }
            }
        }
    }
}

/// Whatever a peer sends is some polynomial.
#[test]
fn any_words_are_residues() {
    for ring in rings(16) {
        for word in [0, 1, u64::MAX, 1 << 60, ring.primes()[0], ring.primes()[0] - 1] {
            let poly: Poly<Values> = ring.from_residues(&vec![word; ring.words()]);
            let expected = ring.primes().iter().flat_map(|p| vec![word % p; 16]);
            assert_eq!(poly.residues(), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn unfit_plaintexts_are_refused() {
    let ring = rings(16).remove(3);
    for t in [0, 1, 1 << 60, u64::MAX, ring.primes()[1], 3 * ring.primes()[1]] {
        assert!(matches!(PlainModulus::new(&ring, t), Err(ParameterError::PlainModulus { .. })), "{t}");
    }
    for (n, t) in [(16, 65536), (16, 17), (4096, 12289), (24, 97), (16, 0)] {
        assert!(matches!(Batch::new(n, t), Err(ParameterError::Batch { .. })), "{n} {t}");
    }
    assert!(modular::is_prime(17) && Batch::new(16, 97).is_ok());
    let plain = PlainModulus::new(&ring, 100).unwrap();
    assert_eq!(plain.centred(&[50, 99, 0, 49, 150]), [50, -1, 0, 49, 50]);
}

/// The ring on vector kernels and the one on words are the same ring.
#[test]
fn lanes_compute_in_the_same_ring() {
    for limbs in [1, 2, 3] {
        let params = RnsParameters::insecure(1024, &largest_primes(1024, 30, limbs).unwrap()).unwrap();
        let (rns, ring) = (lanes::ring(Cpu::detect(), &params).unwrap(), Ring::new(Cpu::detect(), params));
        let mut prg = Prg::new([9; 32]);
        let x = rns.uniform(&mut prg);
        let s: Vec<i8> = random(&mut prg, 1024, 3).into_iter().map(|s| s as i8 - 1).collect();
        let words = rns.to_words(&x);
        let product = rns.to_words(&rns.multiply(&rns.transform(x), &rns.prepare_small(&s)));
        let mut other = ring.to_values(ring.from_residues(&words));
        ring.multiply_assign(&mut other, &ring.to_values(ring.from_signed(&s)));
        assert_eq!(ring.to_coefficients(other).residues(), product);
    }
    for (n, bits, count) in [(64, 30, 4), (64, 31, 2), (64, 29, 2), (16384, 30, 2)] {
        let primes = largest_primes(n, bits, count).unwrap();
        assert!(
            lanes::ring(Cpu::detect(), &RnsParameters::insecure(n, &primes).unwrap()).is_none(),
            "{n} {bits} {count}"
        );
    }
}
