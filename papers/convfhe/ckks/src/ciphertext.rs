//! Ciphertexts and plaintexts.

use jaguar_ring::modular::slices;
use jaguar_ring::modular::{Factor, Modulus};

use zeroize::Zeroizing;

use crate::encoder::Encoder;
use crate::poly::{Coefficients, Poly, Secret, Values};
use crate::{Complex, Context, Error};

/// An encryption `(a, b)` of a polynomial: its phase `b + a·s` is that polynomial times the scale, plus noise.
pub struct Ciphertext {
    pub(crate) a: Poly<Values>,
    pub(crate) b: Poly<Values>,
    pub(crate) level: usize,
    pub(crate) scale: f64,
}

impl Ciphertext {
    /// How often it can be rescaled.
    pub fn level(&self) -> usize {
        self.level
    }

    /// By how much its phase is larger than the polynomial.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The halves a and b.
    pub fn halves(&self) -> [&Poly<Values>; 2] {
        [&self.a, &self.b]
    }
}

/// Copies it, which takes as much memory again.
impl Clone for Ciphertext {
    fn clone(&self) -> Self {
        Self { a: self.a.duplicate(), b: self.b.duplicate(), level: self.level, scale: self.scale }
    }
}

/// An encoded polynomial, times its scale, rounded. Wiped when it is dropped: a client's input is one.
pub struct Plaintext {
    pub(crate) poly: Secret<Values>,
    pub(crate) level: usize,
    pub(crate) scale: f64,
}

impl Plaintext {
    /// The level that it is encoded for. It serves lower ones, too.
    pub fn level(&self) -> usize {
        self.level
    }

    /// By how much it is larger than the polynomial.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Its values modulo the primes of its level.
    pub fn poly(&self) -> &Poly<Values> {
        &self.poly
    }
}

/// log2 of what an encoded coefficient may not reach.
const COEFFICIENT_BITS: u32 = 62;
/// log2 of what a constant may not reach.
const CONSTANT_BITS: u32 = 120;

pub(crate) fn check_scale(operation: &'static str, scale: f64) -> Result<(), Error> {
    let fits = (1.0..2f64.powi(CONSTANT_BITS as i32)).contains(&scale);
    if fits { Ok(()) } else { Err(Error::Scale { operation, scale }) }
}

/// An integer in floating point modulo p, for public numbers below 2^120.
fn reduce_float_vt(m: &Modulus, x: f64) -> u64 {
    let bits = x.abs().to_bits();
    let exponent = (bits >> 52) as i32 - 1075;
    let mantissa = m.reduce((bits & ((1 << 52) - 1)) | (1 << 52));
    let r = match exponent {
        // What is shifted out is zero, x being an integer; less than 1 is zero.
        ..=-53 => 0,
        -52..=0 => m.reduce(x.abs() as u64),
        1.. => (0..exponent).fold(mantissa, |r, _| m.add(r, r)),
    };
    if x < 0.0 { m.negate(r) } else { r }
}

/// A constant times a scale, rounded: an integer for each part.
pub(crate) fn round_constant(
    operation: &'static str,
    constant: Complex,
    scale: f64,
) -> Result<Complex, Error> {
    let part = |value: f64| {
        let rounded = (value * scale).round();
        // Also if it is no number.
        if rounded.abs() < 2f64.powi(CONSTANT_BITS as i32) {
            Ok(rounded)
        } else {
            Err(Error::Value { operation, value, scale, limit: CONSTANT_BITS })
        }
    };
    Ok(Complex::new(part(constant.re)?, part(constant.im)?))
}

impl Context {
    /// By half of the values: a Gaussian integer modulo a prime.
    pub(crate) fn constant_factors(&self, prime: usize, integer: Complex) -> [Factor; 2] {
        let m = self.modulus(prime);
        let (re, im) = (reduce_float_vt(m, integer.re), reduce_float_vt(m, integer.im));
        let im = m.mul(im, self.unit(prime));
        [m.factor(m.add(re, im)), m.factor(m.sub(re, im))]
    }

    pub(crate) fn check_level(&self, operation: &'static str, level: usize) -> Result<(), Error> {
        let top = self.params().top();
        if level <= top {
            Ok(())
        } else {
            Err(Error::Level { operation, found: level, expected: format!("0 to {top}") })
        }
    }

    /// A polynomial of real coefficients times a scale, rounded: coefficient k of the argument, of which there are a
    /// power of two, stands at k·N/len.
    pub(crate) fn encode_sparse(
        &self,
        operation: &'static str,
        coefficients: &[f64],
        scale: f64,
        ordinary: usize,
        special: usize,
    ) -> Result<Poly<Values>, Error> {
        let n = self.params().n();
        check_scale(operation, scale)?;
        let count = coefficients.len();
        if !count.is_power_of_two() || count > n {
            let expected = format!("a power of two of up to {n}");
            return Err(Error::Count { operation, what: "coefficients", found: count, expected });
        }
        let limit = 2f64.powi(COEFFICIENT_BITS as i32);
        let mut rounded = Zeroizing::new(vec![0i64; count]);
        for (out, &value) in rounded.iter_mut().zip(coefficients) {
            let scaled = (value * scale).round();
            if scaled.is_nan() || scaled.abs() >= limit {
                return Err(Error::Value { operation, value, scale, limit: COEFFICIENT_BITS });
            }
            *out = scaled as i64;
        }
        let gap = n / count;
        Ok(self.make(ordinary, special, |prime, _, limb| {
            let m = self.modulus(prime);
            if gap > 1 {
                limb.fill(0);
            }
            for (out, &value) in limb.iter_mut().step_by(gap).zip(rounded.iter()) {
                *out = m.reduce_signed(value);
            }
            self.ntt(prime).forward(limb);
        }))
    }

    /// Encodes slots, whose number is a power of two and divides N/2: with fewer they repeat. Precision: a
    /// coefficient is rounded to an integer at the scale, and to 50 bits of the largest.
    ///
    /// # Errors
    /// If there is no such level, the number of slots is another, or scaled coefficients reach 2^62.
    pub fn encode_slots(&self, slots: &[Complex], level: usize, scale: f64) -> Result<Plaintext, Error> {
        self.check_level("encode", level)?;
        let poly = self.slots_to_poly(slots, scale, self.params().limbs(level), 0)?;
        Ok(Plaintext { poly: Secret::new(poly), level, scale })
    }

    pub(crate) fn slots_to_poly(
        &self,
        slots: &[Complex],
        scale: f64,
        ordinary: usize,
        special: usize,
    ) -> Result<Poly<Values>, Error> {
        let most = self.params().n() / 2;
        if !slots.len().is_power_of_two() || slots.len() > most {
            let expected = format!("a power of two of up to {most}");
            return Err(Error::Count { operation: "encode", what: "slots", found: slots.len(), expected });
        }
        let coefficients = Zeroizing::new(self.encoder().coefficients(slots));
        self.encode_sparse("encode", &coefficients, scale, ordinary, special)
    }

    /// Encodes values as coefficients: value v of `count` is the coefficient of X^(v·N/count). Their number is a
    /// power of two, at most N.
    ///
    /// # Errors
    /// If there is no such level, the number of values is another, or scaled values reach 2^62.
    pub fn encode_coefficients(&self, values: &[f64], level: usize, scale: f64) -> Result<Plaintext, Error> {
        self.check_level("encode", level)?;
        let poly = self.encode_sparse("encode", values, scale, self.params().limbs(level), 0)?;
        Ok(Plaintext { poly: Secret::new(poly), level, scale })
    }

    /// The monomial X^exponent, at the scale 1: a product with it moves coefficients, and is exact.
    ///
    /// # Errors
    /// If there is no such level, or the exponent is 2N or more. (X^N is -1.)
    pub fn monomial(&self, exponent: usize, level: usize) -> Result<Plaintext, Error> {
        self.check_level("monomial", level)?;
        let n = self.params().n();
        if exponent >= 2 * n {
            let (what, expected) = ("as the exponent", format!("a number below {}", 2 * n));
            return Err(Error::Count { operation: "monomial", what, found: exponent, expected });
        }
        let poly = self.make(self.params().limbs(level), 0, |prime, _, limb| {
            limb.fill(0);
            limb[exponent % n] = if exponent < n { 1 } else { self.modulus(prime).negate(1) };
            self.ntt(prime).forward(limb);
        });
        Ok(Plaintext { poly: Secret::new(poly), level, scale: 1.0 })
    }

    /// The slots of a polynomial's coefficients, of which there are twice as many: those of X^(N/2·slots). As
    /// [`SecretKey::decrypt`](crate::SecretKey::decrypt) gives them, or every so-manieth.
    ///
    /// # Errors
    /// If their number is no power of two from 2 to N.
    pub fn slots_of(&self, coefficients: &[f64]) -> Result<Vec<Complex>, Error> {
        let n = self.params().n();
        let count = coefficients.len();
        if !count.is_power_of_two() || !(2..=n).contains(&count) {
            let expected = format!("a power of two from 2 to {n}");
            return Err(Error::Count { operation: "decode", what: "coefficients", found: count, expected });
        }
        Ok(self.encoder().slots(coefficients))
    }

    /// The coefficients, in floating point, of the integers of least absolute value that residues stand for: balanced
    /// digits of mixed radix (Garner), so that small ones are exact to 53 bits. Takes the same time for all residues.
    pub(crate) fn centred(&self, poly: &Poly<Coefficients>) -> Zeroizing<Vec<f64>> {
        let moduli: Vec<&Modulus> = (0..poly.ordinary()).map(|prime| self.modulus(prime)).collect();
        // By limb: the inverse of the product of the primes before, and these primes' products modulo it.
        let tables: Vec<(Factor, Vec<Factor>)> = moduli
            .iter()
            .enumerate()
            .map(|(i, m)| {
                let mut radix = 1;
                let mut radices = Vec::new();
                for before in &moduli[..i] {
                    radices.push(m.factor(radix));
                    radix = m.mul(radix, m.reduce(before.value()));
                }
                (m.factor(m.inverse(radix).expect("different primes")), radices)
            })
            .collect();
        const PIECE: usize = 256;
        let mut out = Zeroizing::new(vec![0.0; self.params().n()]);
        self.each(out.chunks_mut(PIECE).enumerate(), |(piece, out)| {
            let mut digits = Zeroizing::new(vec![0i64; moduli.len()]);
            for (k, out) in out.iter_mut().enumerate() {
                let (mut sum, mut radix) = (0.0, 1.0);
                for (i, (m, (inverse, radices))) in moduli.iter().zip(&tables).enumerate() {
                    let before = digits.iter().zip(radices).fold(0, |sum, (&digit, &radix)| {
                        m.add(sum, m.mul_factor(m.reduce_signed(digit), radix))
                    });
                    let residue = poly.limb(i)[piece * PIECE + k];
                    digits[i] = m.centred(m.mul_factor(m.sub(residue, before), *inverse));
                    sum += digits[i] as f64 * radix;
                    radix *= m.value() as f64;
                }
                *out = sum;
            }
        });
        out
    }

    pub(crate) fn multiply_into(&self, prime: usize, out: &mut [u64], x: &[u64], y: &[u64]) {
        out.copy_from_slice(x);
        slices::multiply(self.kernel(), self.modulus(prime), out, y);
    }

    fn encoder(&self) -> &Encoder {
        &self.encoder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigInt;

    #[test]
    fn large_integers_are_reduced() {
        let m = Modulus::new(1_125_899_906_826_241);
        for x in [0.0, 1.0, -1.0, 3.0, 1e15, -1e16, 2f64.powi(53) + 2.0, 1e18, -1e20, 1.5 * 2f64.powi(119)] {
            let exact = if x.abs() < 1e18 { BigInt::from(x as i64) } else { BigInt::from(x as i128) };
            let p = BigInt::from(m.value());
            assert_eq!(BigInt::from(reduce_float_vt(&m, x)), ((exact % &p) + &p) % &p, "{x}");
        }
    }
}
