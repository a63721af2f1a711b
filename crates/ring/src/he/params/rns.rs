//! Rings with a product of primes as modulus.

use crate::modular;

use super::{Estimate, ParameterError};

/// A checked choice of ring: `Z_Q[X]/(X^N + 1)`, Q a product of different primes that are 1 modulo 2N; uniform ternary
/// secrets and centred binomial noise of variance 10.5 (σ = 3.24).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RnsParameters {
    ring_dim: usize,
    primes: Vec<u64>,
    estimate: Estimate,
}

impl RnsParameters {
    /// Most primes of Q.
    pub(crate) const MAX_LIMBS: usize = 16;

    /// Fewest bits of a prime.
    const LEAST_BITS: u32 = 20;

    /// The set with this ring and these primes, if an estimate of at least 128 bits is on record for it.
    ///
    /// # Errors
    /// Without such an estimate, and when the numbers are not different primes of 20 to 60 bits that are 1 modulo 2N.
    pub fn new(ring_dim: usize, primes: &[u64]) -> Result<Self, ParameterError> {
        let mut params = Self::insecure(ring_dim, primes)?;
        params.estimate = super::estimate(ring_dim, params.modulus_bits())?;
        Ok(params)
    }

    /// As [`new`](Self::new), with `count` primes of `bits` bits: the largest ones.
    ///
    /// # Errors
    /// As `new`, and when there are not so many.
    pub fn search(ring_dim: usize, bits: u32, count: usize) -> Result<Self, ParameterError> {
        Self::new(ring_dim, &largest_primes(ring_dim, bits, count)?)
    }

    /// Any ring, without an estimate: for tests on small rings, and to measure.
    ///
    /// # Errors
    /// As [`new`](Self::new), its first reason excepted.
    pub fn insecure(ring_dim: usize, primes: &[u64]) -> Result<Self, ParameterError> {
        if !ring_dim.is_power_of_two() || !modular::LENGTHS.contains(&ring_dim) {
            return Err(ParameterError::RingDim { ring_dim });
        }
        if primes.is_empty() || primes.len() > Self::MAX_LIMBS {
            return Err(ParameterError::Limbs { found: primes.len(), most: Self::MAX_LIMBS });
        }
        let order = 2 * ring_dim;
        for (i, &prime) in primes.iter().enumerate() {
            let fits = prime >> (Self::LEAST_BITS - 1) != 0 && prime % order as u64 == 1;
            if !fits || primes[..i].contains(&prime) || !modular::is_prime(prime) {
                return Err(ParameterError::Prime { prime, order });
            }
        }
        Ok(Self { ring_dim, primes: primes.to_vec(), estimate: Estimate::Insecure })
    }

    /// N: how many coefficients a polynomial has.
    pub fn ring_dim(&self) -> usize {
        self.ring_dim
    }

    /// The primes, in the order of the limbs.
    pub fn primes(&self) -> &[u64] {
        &self.primes
    }

    /// Q is below 2 to this.
    pub fn modulus_bits(&self) -> u32 {
        // Off by less than 2^-40 bits, and upwards: a Q that close to a power of two counts as above it.
        (self.modulus_log2() + 2f64.powi(-40)).ceil() as u32
    }

    /// log2 Q, to about 2^-45.
    pub(crate) fn modulus_log2(&self) -> f64 {
        self.primes.iter().map(|&p| (p as f64).log2()).sum()
    }

    /// What the set rests on.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Whether the set may be used with real data.
    pub fn is_secure(&self) -> bool {
        self.estimate != Estimate::Insecure
    }
}

/// Hyena's published ring and plaintext prime: N = 2048, q one prime of 60 bits, p = 307201 (Roh and Choi, after Gazelle). **Far
/// less than 128 bits of security**: for the figures of that paper's tables only. No session can have it, for sessions take
/// sets with an estimate on record.
pub fn insecure_published_hyena() -> (RnsParameters, u64) {
    let primes = largest_primes(2048, 60, 1).expect("a prime of 60 bits");
    (RnsParameters::insecure(2048, &primes).expect("a length of the transforms"), 307_201)
}

/// The largest `count` primes of `bits` bits that are 1 modulo 2N.
///
/// # Errors
/// When there are not so many, or N or `bits` is out of range.
pub fn largest_primes(ring_dim: usize, bits: u32, count: usize) -> Result<Vec<u64>, ParameterError> {
    if !ring_dim.is_power_of_two() || !modular::LENGTHS.contains(&ring_dim) {
        return Err(ParameterError::RingDim { ring_dim });
    }
    let order = 2 * ring_dim;
    let too_few = ParameterError::TooFewPrimes { count, bits, order };
    if count > RnsParameters::MAX_LIMBS || bits > modular::MAX_BITS {
        return Err(too_few);
    }
    let primes: Vec<u64> = modular::primes(bits, order as u64).take(count).collect();
    if primes.len() == count { Ok(primes) } else { Err(too_few) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sets_on_record_are_made() {
        let set = RnsParameters::search(4096, 30, 2).unwrap();
        assert_eq!((set.modulus_bits(), set.estimate()), (60, Estimate::TenthsOfBits(2246)));
        let set = RnsParameters::search(4096, 53, 2).unwrap();
        assert_eq!((set.modulus_bits(), set.estimate()), (106, Estimate::TenthsOfBits(1289)));
        assert_eq!(RnsParameters::search(8192, 53, 4).unwrap().modulus_bits(), 212);
        assert!(RnsParameters::search(2048, 53, 1).unwrap().is_secure());
        for (n, bits, count) in
            [(2048, 27, 2), (4096, 54, 2), (4096, 36, 3), (8192, 54, 4), (1024, 26, 1), (16384, 30, 1)]
        {
            let refused = RnsParameters::search(n, bits, count).unwrap_err();
            assert!(matches!(refused, ParameterError::NoEstimate { .. }), "{n} {bits} {count}: {refused}");
            let primes = largest_primes(n, bits, count).unwrap();
            assert!(!RnsParameters::insecure(n, &primes).unwrap().is_secure());
        }
    }

    #[test]
    fn what_hyena_published_is_insecure() {
        let (set, p) = insecure_published_hyena();
        assert!(!set.is_secure() && set.primes()[0] >> 59 == 1 && modular::is_prime(p));
        assert_eq!(p % (2 * set.ring_dim() as u64), 1);
        let refused = RnsParameters::new(set.ring_dim(), set.primes()).unwrap_err();
        assert!(matches!(refused, ParameterError::NoEstimate { .. }));
    }

    #[test]
    fn unfit_numbers_are_refused() {
        let p = largest_primes(64, 30, 2).unwrap();
        let why = |n, primes: &[u64]| RnsParameters::insecure(n, primes).unwrap_err();
        assert!(matches!(why(64, &[]), ParameterError::Limbs { found: 0, .. }));
        assert!(matches!(why(64, &[p[0]; 17]), ParameterError::Limbs { found: 17, .. }));
        for primes in [&[p[0], p[0]][..], &[p[0] + 2], &[p[0], 257], &[0], &[u64::MAX], &[1]] {
            assert!(matches!(why(64, primes), ParameterError::Prime { .. }), "{primes:?}");
        }
        for n in [0, 8, 48, 131_072, usize::MAX] {
            assert!(matches!(why(n, &p), ParameterError::RingDim { .. }), "{n}");
            assert!(matches!(largest_primes(n, 30, 1), Err(ParameterError::RingDim { .. })), "{n}");
        }
        for (bits, count) in [(8, 1), (21, 17), (61, 1), (63, 1), (u32::MAX, 1)] {
            let found = largest_primes(4096, bits, count);
            assert!(matches!(found, Err(ParameterError::TooFewPrimes { .. })), "{bits} {count}");
        }
    }
}
