//! Parameter sets with the estimate that each rests on.

/// A checked choice of ring: `Z_q[X]/(X^N + 1)` with `q = 2^k`, uniform ternary secrets and centred binomial
/// noise of variance 10.5 (σ = 3.24).
///
/// Security is that of RLWE with a small secret. Only the size of q matters to every known attack, and
/// hardness holds for any modulus (Peikert, Regev, Stephens-Davidowitz, STOC 2017); messages sit in the top
/// bits, so the noise shares no factor with q. The estimates are those of `params/rlwe.json` (lattice
/// estimator, cost model MATZOV, minimum over primal uSVP, BDD and dual hybrid).
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

/// How hard the best known attack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Estimate {
    /// At least 2^(tenths/10) operations.
    TenthsOfBits(u32),
    /// For tests and measurements only.
    Insecure,
}

/// Why a parameter set was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// No estimate of at least 128 bits is on record.
    #[error(
        "N = {ring_dim} with a modulus of {modulus_bits} bits has no estimate of 128 bits or more on record \
         (N = 2048 takes at most 53 bits, N = 4096 at most 54 here)"
    )]
    NoEstimate {
        /// N.
        ring_dim: usize,
        /// k.
        modulus_bits: u32,
    },
}

/// (N, largest k, tenths of bits): `params/rlwe.json`. A smaller k is only harder.
const ESTIMATES: &[(usize, u32, u32)] = &[
    (2048, 45, 1536),
    (2048, 48, 1432),
    (2048, 50, 1371),
    (2048, 52, 1313),
    (2048, 53, 1288),
    (4096, 64, 2246),
];

/// Words must leave room for products with small numbers in 64 bits.
const MAX_MODULUS_BITS: u32 = 54;

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
        ESTIMATES
            .iter()
            .find(|&&(n, k, bits)| n == ring_dim && modulus_bits <= k && bits >= 1280)
            .filter(|_| (16..=MAX_MODULUS_BITS).contains(&modulus_bits))
            .map(|&(_, _, bits)| Self {
                ring_dim,
                modulus_bits,
                noise: Noise::Binomial,
                estimate: Estimate::TenthsOfBits(bits),
            })
            .ok_or(ParameterError::NoEstimate { ring_dim, modulus_bits })
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

    /// N.
    pub fn ring_dim(&self) -> usize {
        self.ring_dim
    }

    /// k, where q = 2^k.
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }

    /// q - 1.
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
        for (n, k) in [(2048, 54), (1024, 27), (2048, 64), (4096, 60), (2048, 0)] {
            assert!(Parameters::new(n, k).is_err(), "{n} {k}");
        }
        assert!(!Parameters::insecure(2048, 54).is_secure());
    }
}
