//! The plaintext modulus of a layer, and the factor that keeps the pattern [1, −1] small.

use jaguar_ring::modular::{self, Modulus, Ntt};

/// Modulo what a layer computes, and how its results leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlainPrime {
    /// p = μ·2^(n+f) + 1, 1 modulo 2N.
    pub p: u64,
    /// μ. The results are multiplied by it: then rounding from Z_p to Z_(2^n) divides them by 2^f·(1 + 1/(p − 1)).
    pub multiple: u64,
}

/// Largest μ that is tried.
const MOST: u64 = 1 << 10;

impl PlainPrime {
    /// The smallest p with slots for N = `ring_dim` and room for signed products of `bits` = n + f bits; `None` if
    /// there is none of up to 60 bits. About one in ln(p)/2 numbers of this form is prime, so μ rarely has more
    /// than 6 bits.
    pub(crate) fn new(ring_dim: usize, bits: u32) -> Option<Self> {
        if !(2..modular::MAX_BITS).contains(&bits) {
            return None;
        }
        let prime = |multiple: u64| {
            let p = multiple.checked_mul(1 << bits)?.checked_add(1)?;
            let fits = p >> modular::MAX_BITS == 0 && p % (2 * ring_dim as u64) == 1 && modular::is_prime(p);
            fits.then_some(Self { p, multiple })
        };
        (1..=MOST).find_map(prime)
    }

    /// Bits of p.
    pub fn bits(&self) -> u32 {
        u64::BITS - self.p.leading_zeros()
    }
}

/// h for a prime p that is 1 modulo 8: the polynomial `h·X^(N/4) + h·X^(3N/4)` is 1 in all slots of one row and −1
/// in those of the other, for any N. (ζ^(N/4) + ζ^(3N/4) squared is −2 at all slots' roots ζ, so h² = −1/2.) Of the
/// two the smaller one.
pub fn row_pattern(p: u64) -> Option<u64> {
    let m = Modulus::new(p);
    // The value of the pattern's sum at psi, a root of 1 of order 32.
    let ntt = Ntt::new(16, p)?;
    let mut sum = [0; 16];
    (sum[4], sum[12]) = (1, 1);
    ntt.forward(&mut sum);
    let h = m.inverse(sum[0])?;
    Some(h.min(p - h))
}

/// A candidate for the factor k: k, and the least absolute value of k·h modulo p.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// k: the factor that is tried.
    pub k: u64,
    /// min(k·h mod p, −k·h mod p).
    pub product: u64,
}

impl Scaling {
    /// Every k whose product is less than that of all smaller ones, in their order: the denominators of h/p's
    /// continued fraction. The last one has the product 1.
    pub fn records(h: u64, p: u64) -> Vec<Self> {
        let m = Modulus::new(p);
        let of = |k: u64| {
            let product = m.mul(k % p, h % p);
            Self { k, product: product.min(p - product) }
        };
        let (mut numbers, mut denominators) = ((p, h % p), (0u64, 1u64));
        let mut records: Vec<Self> = Vec::new();
        while numbers.1 != 0 {
            let record = of(denominators.1);
            if records.last().is_none_or(|last| record.product < last.product) {
                records.push(record);
            }
            let quotient = numbers.0 / numbers.1;
            numbers = (numbers.1, numbers.0 % numbers.1);
            let next = quotient.checked_mul(denominators.1).and_then(|v| v.checked_add(denominators.0));
            let Some(next) = next.filter(|&next| next < p) else { break };
            denominators = (denominators.1, next);
        }
        records
    }

    /// The one of `records` with the least noise: the pattern of ones multiplies by k, the other one by two
    /// coefficients k·h.
    pub(crate) fn quietest(h: u64, p: u64) -> Self {
        let records = Self::records(h, p);
        records.into_iter().min_by(|a, b| a.squares().total_cmp(&b.squares())).expect("k = 1 is one")
    }

    /// The sum of squares of all coefficients of both patterns: by so much the noise's variance grows.
    pub fn squares(&self) -> f64 {
        (self.k as f64).powi(2) + 2.0 * (self.product as f64).powi(2)
    }
}
