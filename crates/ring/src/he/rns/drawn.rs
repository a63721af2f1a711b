//! Ciphertexts of messages that nobody chose.
//!
//! Who encrypts uniform numbers modulo t, and may take any, need not send all of a b half. Let v = e − a·s, m the
//! message that v stands for (the nearest multiple of Q/t), and r = v − Q·m/t what is left of it, within Q/(2t). The
//! a half and numbers u modulo t come of a public seed. The ciphertext (a, b) with b = Q·u/t + r has the phase `b +
//! a·s = Q·(u − m)/t + e`: its message is u − m. So **only r is sent**, and of r no lower bits than noise has room
//! for: log2(Q/t) bits or fewer, where b has log2 Q. Coefficients whose message must be zero take u = m, which is
//! sent.
//!
//! **Security.** v is pseudorandom: with a it is an RLWE sample. Of a uniform v every m comes with every r equally
//! often, so r tells nothing of m, and u − m is uniform whatever u is. Only at the ends of the stretches of Q/t that
//! stand for a message are there r that some m have and others do not: v is **drawn anew** where it has one of these
//! (in a coefficient with a chance of 3·t/Q + 2^-60 at most: [`DrawnMessages::may_be_sent`]). So the pair (r, m) is
//! uniform over all r that may be sent and all m. [`PlainModulus::round`], whose last place may be wrong at the very
//! end of a stretch, is exact for what is left.

use crate::cpu::secret::declassify;
use crate::modular::Modulus;
use crate::prg::Prg;
use zeroize::Zeroizing;

use super::ciphertext::expand;
use super::keys::{noise, seed};
use super::{Ciphertext, Coefficients, PlainModulus, Poly, Ring, SecretKey, Values};
use crate::he::params::ParameterError;

/// How ciphertexts of drawn messages modulo 2^L travel.
#[derive(Clone)]
pub struct DrawnMessages {
    plain: PlainModulus,
    message_bits: u32,
    dropped: u32,
    offset_bits: u32,
    /// The largest r that may be sent, and with the other sign the smallest.
    most: i128,
}

/// A ciphertext as it travels.
pub struct DrawnCiphertext {
    /// What a and u come of.
    pub seed: [u8; 32],
    /// r without its lowest bits, N numbers of [`DrawnMessages::offset_bits`] bits.
    pub offsets: Vec<u64>,
    /// Of coefficients whose message is zero, in their order: u, of L bits.
    pub zeros: Vec<u64>,
}

impl DrawnMessages {
    /// Bits of an offset without its `dropped` lowest: in a ring of these primes, for messages modulo
    /// 2^`message_bits`. `None` where Q has more than 126 bits, an offset more than 63, or more are dropped than 62.
    pub fn bits(primes: &[u64], message_bits: u32, dropped: u32) -> Option<u32> {
        let q = product(primes).filter(|_| dropped <= 62)?;
        // In magnitude, with room for what rounding adds.
        let largest = q.checked_shr(message_bits + dropped + 1)? + 2;
        let bits = 1 + u128::BITS - largest.leading_zeros();
        (bits < u64::BITS).then_some(bits)
    }

    /// For messages modulo 2^`message_bits` in `ring`, where the `dropped` lowest bits of offsets are rounded off.
    ///
    /// # Errors
    /// As [`PlainModulus::new`]; where [`bits`](Self::bits) has none; and where Q/t is below 8·N, for most ciphertexts
    /// would be drawn in vain.
    pub fn new(ring: &Ring, message_bits: u32, dropped: u32) -> Result<Self, ParameterError> {
        let t = 1u64.checked_shl(message_bits).unwrap_or(0);
        let plain = PlainModulus::new(ring, t)?;
        let bits = Self::bits(ring.primes(), message_bits, dropped);
        let offset_bits = bits.ok_or(ParameterError::PlainModulus { t })?;
        let q = product(ring.primes()).expect("it has few bits, for an offset has bits");
        if (q >> message_bits) / 8 < ring.n() as u128 {
            return Err(ParameterError::PlainModulus { t });
        }
        // One less for what Q·m/t is rounded by, and 2^-60 of it for what `PlainModulus::round` may be wrong by.
        let half = q >> (message_bits + 1);
        let most = (half - (half >> 60) - 1) as i128;
        Ok(Self { plain, message_bits, dropped, offset_bits, most })
    }

    /// Bits of an offset as it is sent.
    pub fn offset_bits(&self) -> u32 {
        self.offset_bits
    }

    /// u.
    fn uppers(&self, ring: &Ring, seed: &[u8; 32]) -> Vec<u64> {
        let mut uppers = vec![0; ring.n()];
        Prg::derive(seed, "jaguar rns drawn message", &[]).fill_words(&mut uppers, self.message_bits);
        uppers
    }

    /// Of each coefficient of v the message m that it stands for, and r.
    fn split(&self, ring: &Ring, mut v: Poly<Coefficients>) -> (Zeroizing<Vec<u64>>, Zeroizing<Vec<i128>>) {
        let messages = self.plain.round(ring, &v);
        ring.sub_assign(&mut v, &self.plain.scale(ring, &messages));
        let left = centred(ring, &v);
        (messages, left)
    }

    /// r as it is sent: without its lowest bits, and not negative.
    fn offset(&self, r: i128) -> u64 {
        let half = 1i128 << (self.offset_bits - 1);
        let round = (1i128 << self.dropped) >> 1;
        (((r + round) >> self.dropped) + half) as u64
    }

    /// Whether every message comes with each of these r.
    fn may_be_sent(&self, left: &[i128]) -> bool {
        // Negative if one of them is out of range.
        let outside = left.iter().fold(0, |outside, r| outside | (self.most - r) | (self.most + r));
        let mut all_within = outside >= 0;
        // Tells of draws alone that are refused as a whole: those that are taken are independent of them.
        declassify(std::slice::from_mut(&mut all_within));
        all_within
    }

    /// The ciphertext, of what was sent. Any words stand for one.
    ///
    /// # Panics
    /// If there are not N offsets, or fewer zeros than coefficients that are.
    pub fn expand(
        &self,
        ring: &Ring,
        sent: &DrawnCiphertext,
        is_zero: impl Fn(usize) -> bool,
    ) -> Ciphertext<Values> {
        let mut uppers = self.uppers(ring, &sent.seed);
        let zeros = uppers.iter_mut().enumerate().filter(|(i, _)| is_zero(*i)).map(|(_, upper)| upper);
        let mut own = sent.zeros.iter();
        zeros.for_each(|upper| *upper = *own.next().expect("as many as there are"));
        let half = 1i64 << (self.offset_bits - 1);
        let offsets: Vec<i64> = sent.offsets.iter().map(|&offset| offset as i64 - half).collect();
        let mut b = ring.from_signed(&offsets);
        ring.multiply_scalar(&mut b, 1 << self.dropped);
        ring.add_assign(&mut b, &self.plain.scale(ring, &uppers));
        Ciphertext { a: expand(ring, &sent.seed), b: ring.to_values(b) }
    }
}

impl SecretKey {
    /// An encryption of a uniform message, and the message; it is zero where `is_zero` says so. `prg` must be secret
    /// and never give the same again.
    pub fn encrypt_drawn(
        &self,
        ring: &Ring,
        drawn: &DrawnMessages,
        is_zero: impl Fn(usize) -> bool,
        prg: &mut Prg,
    ) -> (DrawnCiphertext, Zeroizing<Vec<u64>>) {
        let (seed, mut messages, left) = loop {
            let seed = seed(prg);
            let v = self.hide(ring, &expand(ring, &seed), ring.to_values(noise(ring, prg)));
            let (messages, left) = drawn.split(ring, ring.to_coefficients(v));
            if drawn.may_be_sent(&left) {
                break (seed, messages, left);
            }
        };
        let offsets = left.iter().map(|&r| drawn.offset(r)).collect();
        let mut zeros = Vec::new();
        let mask = (1u64 << drawn.message_bits) - 1;
        for (i, (message, upper)) in messages.iter_mut().zip(drawn.uppers(ring, &seed)).enumerate() {
            if is_zero(i) {
                zeros.push(*message);
                *message = 0;
            } else {
                *message = upper.wrapping_sub(*message) & mask;
            }
        }
        (DrawnCiphertext { seed, offsets, zeros }, messages)
    }
}

/// Primes of 20 bits or more in 126 bits.
const MOST_LIMBS: usize = 6;

/// Q, where it has at most 126 bits.
fn product(primes: &[u64]) -> Option<u128> {
    let q = primes.iter().try_fold(1u128, |q, &p| q.checked_mul(p.into()))?;
    (q >> 126 == 0).then_some(q)
}

/// The coefficients as numbers in `-Q/2..Q/2`: digits of mixed radix, by Garner's method.
fn centred(ring: &Ring, poly: &Poly<Coefficients>) -> Zeroizing<Vec<i128>> {
    let moduli: Vec<&Modulus> = ring.moduli().collect();
    let q = product(ring.primes()).expect("checked when the messages' form was made") as i128;
    // By limb: the inverse of the product of the primes before it, which are below 2^126 together.
    let inverse = |limb: usize| {
        let m = moduli[limb];
        let before = moduli[..limb].iter().fold(1, |product, p| m.mul(product, m.reduce(p.value())));
        m.factor(m.inverse(before).expect("different primes"))
    };
    let inverses: Vec<_> = (0..moduli.len()).map(inverse).collect();
    let residues: Vec<&[u64]> = ring.limbs_of(poly).collect();
    let one = |i: usize| {
        let mut digits = [0; MOST_LIMBS];
        let (mut sum, mut radix) = (0i128, 1i128);
        for (limb, m) in moduli.iter().enumerate() {
            let (mut known, mut product) = (0, 1);
            for (&digit, p) in digits.iter().zip(&moduli[..limb]) {
                known = m.add(known, m.mul(m.reduce(digit), product));
                product = m.mul(product, m.reduce(p.value()));
            }
            digits[limb] = m.mul_factor(m.sub(residues[limb][i], known), inverses[limb]);
            sum += radix * i128::from(digits[limb]);
            radix *= i128::from(m.value());
        }
        // Minus Q where it is above Q/2.
        sum - (q & ((q / 2 - sum) >> (i128::BITS - 1)))
    };
    Zeroizing::new((0..ring.n()).map(one).collect())
}

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;

    use super::super::tests::{centred as big_centred, integers, modulus, rings};
    use super::*;
    use crate::cpu::Cpu;
    use crate::he::params::{RnsParameters, largest_primes};

    /// Whole numbers of any size are the oracle for what is left of a coefficient.
    #[test]
    fn coefficients_are_the_numbers_that_residues_stand_for() {
        let fits = |ring: &&Ring| product(ring.primes()).is_some();
        let three = RnsParameters::insecure(64, &largest_primes(64, 42, 3).unwrap()).unwrap();
        let mut all: Vec<Ring> = rings(64).iter().filter(fits).cloned().collect();
        assert_eq!(all.len(), 2);
        all.push(Ring::new(Cpu::detect(), three));
        for ring in &all {
            let poly: Poly<Coefficients> = ring.uniform(&mut Prg::new([5; 32]));
            let q = modulus(ring);
            let expected: Vec<BigInt> = integers(ring, &poly).iter().map(|x| big_centred(x, &q)).collect();
            let found: Vec<BigInt> = centred(ring, &poly).iter().map(|&x| BigInt::from(x)).collect();
            assert_eq!(found, expected);
        }
    }

    /// What the peer expands is a ciphertext of what this party calls the message, but for noise of the size on
    /// record; zeros are where they should be, and all other numbers uniform. In all rings that products
    /// take.
    #[test]
    fn what_is_expanded_is_an_encryption_of_the_message() {
        for (n, prime_bits, limbs) in [(4096, 50, 2), (4096, 51, 2), (4096, 53, 2), (8192, 42, 3)] {
            let ring = Ring::new(Cpu::detect(), RnsParameters::search(n, prime_bits, limbs).unwrap());
            for (bits, dropped) in [(55, 0), (55, 6), (48, 13), (58, 1), (44, 20)] {
                // (Of three primes an offset has 20 bits more.)
                let dropped = dropped + 10 * (limbs as u32 - 2);
                let drawn = DrawnMessages::new(&ring, bits, dropped).unwrap();
                assert_eq!(drawn.offset_bits(), prime_bits * limbs as u32 - bits - dropped);
                for every in [1, 3, n] {
                    let is_zero = |i: usize| !i.is_multiple_of(every);
                    let mut prg = Prg::new([every as u8; 32]);
                    let secret = SecretKey::from_prg(&ring, &mut prg);
                    let (sent, message) = secret.encrypt_drawn(&ring, &drawn, is_zero, &mut prg);
                    let fits = |words: &[u64], bits: u32| words.iter().all(|word| word >> bits == 0);
                    assert!(fits(&sent.offsets, drawn.offset_bits()) && fits(&sent.zeros, bits));
                    assert_eq!(sent.zeros.len(), (0..n).filter(|&i| is_zero(i)).count());
                    assert!((0..n).all(|i| message[i] >> bits == 0 && (message[i] == 0 || !is_zero(i))));
                    let ciphertext = drawn.expand(&ring, &sent, is_zero);
                    let noise = secret.noise_vt(&ring, &drawn.plain, &ciphertext, &message);
                    let squares = noise.iter().map(|e| e * e).sum::<f64>() / n as f64;
                    let expected = super::super::Noise::fresh().rounded(dropped).deviation();
                    let ratio = squares.sqrt() / expected;
                    assert!((0.9..1.1).contains(&ratio), "{ratio} of {expected}, {bits} bits, {dropped}");
                    if every == 1 {
                        // The upper bits' mean, in standard deviations of it.
                        let mean = message.iter().map(|m| *m as f64).sum::<f64>() / n as f64;
                        let off = (mean / 2f64.powi(bits as i32) - 0.5) * (12.0 * n as f64).sqrt();
                        assert!(off.abs() < 5.0, "{off}");
                    }
                }
            }
        }
    }

    /// Of all v modulo a small Q: with each offset that may be sent every message comes equally often. No more than a
    /// few v are refused.
    #[test]
    fn an_offset_tells_nothing_of_its_message() {
        let primes = largest_primes(64, 20, 1).unwrap();
        let ring = Ring::new(Cpu::detect(), RnsParameters::insecure(64, &primes).unwrap());
        let (q, t) = (primes[0] as usize, 8);
        for dropped in [0, 1] {
            let drawn = DrawnMessages::new(&ring, 3, dropped).unwrap();
            let mut counts = vec![[0; 8]; 1 << drawn.offset_bits()];
            let mut sent = 0;
            for first in (0..q).step_by(64) {
                let all: Vec<i64> = (first..first + 64).map(|v| v.min(q - 1) as i64).collect();
                let (messages, left) = drawn.split(&ring, ring.from_signed(&all));
                for i in (0..64.min(q - first)).filter(|&i| drawn.may_be_sent(&left[i..=i])) {
                    counts[drawn.offset(left[i]) as usize][messages[i] as usize] += 1;
                    sent += 1;
                }
            }
            for (offset, of) in counts.iter().enumerate() {
                assert!(
                    of.iter().all(|count| *count == of[0]),
                    "{of:?} of offset {offset}, {dropped} dropped"
                );
            }
            assert!(sent > q - 4 * t, "{sent} of {q}");
        }
    }

    /// The same in rings that products take, at the ends of what may be sent: there every message has them.
    #[test]
    fn every_message_has_the_outermost_offsets() {
        for (n, prime_bits, limbs) in [(4096, 50, 2), (4096, 51, 2), (4096, 53, 2), (8192, 42, 3)] {
            let ring = Ring::new(Cpu::detect(), RnsParameters::search(n, prime_bits, limbs).unwrap());
            for bits in [44, 48, 58] {
                let drawn = DrawnMessages::new(&ring, bits, 20).unwrap();
                let mut messages = vec![0; n];
                Prg::new([7; 32]).fill_words(&mut messages, bits);
                messages[..4].copy_from_slice(&[0, 1, 1 << (bits - 1), (1 << bits) - 1]);
                for r in [drawn.most, -drawn.most] {
                    let mut v = ring.from_signed(&vec![(r >> 40) as i64; n]);
                    ring.multiply_scalar(&mut v, 1 << 40);
                    ring.add_assign(&mut v, &ring.from_signed(&vec![(r & ((1 << 40) - 1)) as i64; n]));
                    ring.add_assign(&mut v, &drawn.plain.scale(&ring, &messages));
                    let (found, left) = drawn.split(&ring, v);
                    assert!(found[..] == messages && left.iter().all(|&found| found == r));
                    assert!(drawn.may_be_sent(&left) && !drawn.may_be_sent(&[0, r + r.signum()]));
                }
            }
        }
    }

    /// What is encrypted is drawn until it may be sent: where every third is refused, none is sent that is.
    #[test]
    fn what_may_not_be_sent_is_drawn_anew() {
        let primes = largest_primes(64, 20, 1).unwrap();
        let ring = Ring::new(Cpu::detect(), RnsParameters::insecure(64, &primes).unwrap());
        let drawn = DrawnMessages::new(&ring, 10, 0).unwrap();
        let mut prg = Prg::new([9; 32]);
        let secret = SecretKey::from_prg(&ring, &mut prg);
        let within = drawn.offset(-drawn.most)..=drawn.offset(drawn.most);
        for _ in 0..100 {
            let (sent, _) = secret.encrypt_drawn(&ring, &drawn, |_| false, &mut prg);
            assert!(sent.offsets.iter().all(|offset| within.contains(offset)));
        }
    }

    #[test]
    fn forms_without_room_are_refused() {
        let two = largest_primes(4096, 53, 2).unwrap();
        assert_eq!(DrawnMessages::bits(&two, 55, 6), Some(45));
        assert_eq!(DrawnMessages::bits(&two, 40, 2), None);
        assert_eq!(DrawnMessages::bits(&two, 20, 63), None);
        assert_eq!(DrawnMessages::bits(&largest_primes(8192, 53, 3).unwrap(), 55, 50), None);
        // Nor those of which most would be refused.
        let primes = largest_primes(64, 20, 1).unwrap();
        let ring = Ring::new(Cpu::detect(), RnsParameters::insecure(64, &primes).unwrap());
        assert!(DrawnMessages::new(&ring, 10, 0).is_ok() && DrawnMessages::new(&ring, 11, 0).is_err());
    }
}
