//! Rings with a power of two as modulus.

use super::{Estimate, ParameterError};

/// A checked choice of ring: `Z_q[X]/(X^N + 1)` with `q = 2^k`, uniform ternary secrets and centred binomial
/// noise of variance 10.5 (σ = 3.24).
///
/// Messages sit in the top bits, so the noise shares no factor with q.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    ring_dim: usize,
    modulus_bits: u32,
    noise: Noise,
    estimate: Estimate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Noise {
    Binomial,
    /// For tests that compare bit for bit. Offers no security at all.
    None,
}

/// Words must leave room for products with small numbers in 64 bits.
const MAX_MODULUS_BITS: u32 = 54;

/// The largest N that linear layers were tried with.
const MAX_RING_DIM: usize = 4096;

impl Parameters {
    /// N = 2048, k = 48: three 16-bit limbs, 143 bits of security.
    pub const DEFAULT: Self = Self {
        ring_dim: 2048,
        modulus_bits: 48,
        noise: Noise::Binomial,
        estimate: Estimate::TenthsOfBits(1432),
    };

    /// The set with this ring and modulus, if an estimate of at least 128 bits is on record for it.
    ///
    /// # Errors
    /// Otherwise.
    pub fn new(ring_dim: usize, modulus_bits: u32) -> Result<Self, ParameterError> {
        if !(16..=MAX_MODULUS_BITS).contains(&modulus_bits) || ring_dim > MAX_RING_DIM {
            return Err(ParameterError::NoEstimate { ring_dim, modulus_bits });
        }
        let estimate = super::estimate(ring_dim, modulus_bits)?;
        Ok(Self { ring_dim, modulus_bits, noise: Noise::Binomial, estimate })
    }

    /// Any ring, with noise: for tests on small rings, and to measure the published parameters (N = 2048,
    /// k = 54: 126 bits).
    pub fn insecure(ring_dim: usize, modulus_bits: u32) -> Self {
        assert!(ring_dim.is_power_of_two() && (16..=MAX_MODULUS_BITS).contains(&modulus_bits));
        Self { ring_dim, modulus_bits, noise: Noise::Binomial, estimate: Estimate::Insecure }
    }

    /// Any ring, without noise: for tests that compare bit for bit.
    pub fn insecure_noiseless(ring_dim: usize, modulus_bits: u32) -> Self {
        Self { noise: Noise::None, ..Self::insecure(ring_dim, modulus_bits) }
    }

    /// N: how many coefficients a polynomial has.
    pub fn ring_dim(&self) -> usize {
        self.ring_dim
    }

    /// k, where q = 2^k.
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }

    /// q − 1: the bits of a coefficient.
    pub fn mask(&self) -> u64 {
        (1 << self.modulus_bits) - 1
    }

    /// What the set rests on.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Whether the set may be used with real data.
    pub fn is_secure(&self) -> bool {
        self.estimate != Estimate::Insecure
    }

    pub(crate) fn is_noisy(&self) -> bool {
        self.noise == Noise::Binomial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sets_on_record_are_made() {
        assert_eq!(Parameters::new(2048, 48).unwrap(), Parameters::DEFAULT);
        assert_eq!(Parameters::new(2048, 47).unwrap().estimate(), Estimate::TenthsOfBits(1432));
        assert!(Parameters::new(2048, 53).unwrap().is_secure());
        for (n, k) in [(2048, 54), (1024, 27), (2048, 64), (4096, 60), (8192, 48), (2048, 0)] {
            assert!(Parameters::new(n, k).is_err(), "{n} {k}");
        }
        assert!(!Parameters::insecure(2048, 54).is_secure());
    }
}
