//! How large the noise of a ciphertext is, by what was done to it.

/// Variance of a coefficient of fresh noise.
const FRESH: f64 = 10.5;

/// Variance of rounding to the nearest.
const ROUNDING: f64 = 1.0 / 12.0;

/// Standard deviations that a bound allows for. Of a normal distribution 2^-38 lie beyond.
const DEVIATIONS: f64 = 7.0;

/// The variance of a coefficient of the noise `phase - Q·m/t`. It is an estimate: coefficients are treated as independent
/// and normal, as is usual; tests compare it with what ciphertexts have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    variance: f64,
}

impl Noise {
    /// Of an encryption under the secret.
    pub fn fresh() -> Self {
        Self { variance: FRESH + ROUNDING }
    }

    /// Of an encryption under the public key, in a ring of length `n`: e0 + e·u + e1·s.
    pub fn fresh_public(n: usize) -> Self {
        Self { variance: FRESH * (1.0 + 2.0 * weight(n)) + ROUNDING }
    }

    /// Of a product with a polynomial, or number, whose coefficients have this sum of squares.
    #[must_use]
    pub fn multiply(self, sum_of_squares: f64) -> Self {
        Self { variance: self.variance * sum_of_squares }
    }

    /// After a message was added that is not encrypted: it is rounded to a multiple of 1/Q.
    #[must_use]
    pub fn add_plain(self) -> Self {
        Self { variance: self.variance + ROUNDING }
    }

    /// After the lowest `bits` bits of b were rounded off, which was made of two multiples of Q/t and what is between them.
    #[must_use]
    pub fn rounded(self, bits: u32) -> Self {
        Self { variance: self.variance + ROUNDING * (2.0 + 4f64.powi(bits as i32)) }
    }

    /// What key switching adds in a ring of length `n`, with so many digits of `digit_bits` bits in all. Digits of base B are uniform, with
    /// a variance of B²/12.
    pub fn of_digits(n: usize, digits: usize, digit_bits: u32) -> Self {
        let base = 2f64.powi(digit_bits as i32);
        Self { variance: digits as f64 * n as f64 * FRESH * base * base * ROUNDING }
    }

    /// What a rounded key adds besides ([`SwitchingKey`](super::SwitchingKey)), in a ring of length `n` whose last prime is `p`.
    pub fn of_rounded_key(n: usize, p: u64) -> Self {
        Self { variance: ROUNDING * weight(n) * (p as f64).powi(2) }
    }

    /// After a division by `p` in a ring of length `n`, with rounding.
    #[must_use]
    pub fn divide(self, n: usize, p: u64) -> Self {
        let p = p as f64;
        Self { variance: self.variance / (p * p) + ROUNDING * (1.0 + weight(n)) }
    }

    /// Standard deviation of a coefficient.
    pub fn deviation(self) -> f64 {
        self.variance.sqrt()
    }

    /// log2 of a bound of all coefficients: seven standard deviations.
    pub fn bits(self) -> f64 {
        (DEVIATIONS * self.deviation()).log2()
    }
}

/// Of a sum, or difference, of independent ciphertexts. (Of one with itself: [`Noise::multiply`] by 4.)
impl std::ops::Add for Noise {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { variance: self.variance + other.variance }
    }
}

/// Expected number of coefficients of a secret that are not zero.
fn weight(n: usize) -> f64 {
    2.0 / 3.0 * n as f64
}
