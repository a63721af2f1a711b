//! Parameter sets with the estimate that each rests on.
//!
//! Security is that of RLWE with a small secret. Only N and the size of q matter to every known attack: hardness holds for
//! any modulus (Peikert, Regev, Stephens-Davidowitz, STOC 2017). The estimates are those of `params/rlwe.json` (lattice
//! estimator, cost model MATZOV, minimum over primal uSVP, BDD and dual hybrid); `make lint` compares the table here with
//! that record.

mod power_of_two;
mod rns;

pub use power_of_two::Parameters;
pub use rns::{RnsParameters, insecure_published_hyena, largest_primes};

/// How hard the best known attack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Estimate {
    /// At least 2^(tenths/10) operations.
    TenthsOfBits(u32),
    /// For tests and measurements only.
    Insecure,
}

/// Why a parameter set was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterError {
    /// No estimate of at least 128 bits is on record.
    #[error(
        "N = {ring_dim} with a modulus of {modulus_bits} bits has no estimate of 128 bits or more on record \
         (N = 2048 takes at most 53 bits, N = 4096 at most 106, N = 8192 at most 214; a power of two at most 54)"
    )]
    NoEstimate {
        /// N: how many coefficients a polynomial has.
        ring_dim: usize,
        /// How many bits q has.
        modulus_bits: u32,
    },
    /// Not a length of the transforms.
    #[error("N = {ring_dim} is no power of two in 16..=65536")]
    RingDim {
        /// N: how many coefficients a polynomial has.
        ring_dim: usize,
    },
    /// The transforms cannot use this number.
    #[error("{prime} is no prime of 20 to 60 bits that is 1 modulo 2N = {order}, or it stands here twice")]
    Prime {
        /// The number that was given.
        prime: u64,
        /// 2N, which the prime must be 1 modulo.
        order: usize,
    },
    /// There are not so many primes.
    #[error("there are no {count} primes of {bits} bits that are 1 modulo 2N = {order}")]
    TooFewPrimes {
        /// How many were asked for.
        count: usize,
        /// How many bits they should have.
        bits: u32,
        /// 2N, which the prime must be 1 modulo.
        order: usize,
    },
    /// A product of no primes, or of too many.
    #[error("q must be a product of 1 to {most} primes, not of {found}")]
    Limbs {
        /// How many primes were given.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// Not a modulus of plaintexts.
    #[error("plaintexts modulo {t}: it takes 2 to 60 bits and no factor of q")]
    PlainModulus {
        /// t: what plaintexts would be modulo.
        t: u64,
    },
    /// Plaintexts modulo t have no SIMD slots.
    #[error("plaintexts modulo {t} have no {ring_dim} slots: t must be a prime that is 1 modulo 2N")]
    Batch {
        /// t: what plaintexts would be modulo.
        t: u64,
        /// N: how many coefficients a polynomial has.
        ring_dim: usize,
    },
}

/// (N, largest bits of q, tenths of bits): `params/rlwe.json`. A smaller q is only harder.
const ESTIMATES: &[(usize, u32, u32)] = &[
    (2048, 45, 1536),
    (2048, 48, 1432),
    (2048, 50, 1371),
    (2048, 52, 1313),
    (2048, 53, 1288),
    (4096, 64, 2246),
    (4096, 80, 1751),
    (4096, 90, 1538),
    (4096, 96, 1434),
    (4096, 106, 1289),
    (8192, 128, 2259),
    (8192, 180, 1544),
    (8192, 214, 1283),
];

/// Tenths of bits that are on record for N and a q below `2^modulus_bits`, if there are 128 bits or more.
fn estimate(ring_dim: usize, modulus_bits: u32) -> Result<Estimate, ParameterError> {
    ESTIMATES
        .iter()
        .find(|&&(n, most, tenths)| n == ring_dim && modulus_bits <= most && tenths >= 1280)
        .map(|&(_, _, tenths)| Estimate::TenthsOfBits(tenths))
        .ok_or(ParameterError::NoEstimate { ring_dim, modulus_bits })
}
