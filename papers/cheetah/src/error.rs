//! What a layer may take, and why it cannot run.

use jaguar_ring::he::params::ParameterError;

/// Windows of one layer, and of all layers of a plan: each takes its own ciphertexts, of 30 KiB and more. (The largest
/// convolution of common networks has tens.)
pub const MAX_WINDOWS: usize = 1 << 18;

/// Why a layer cannot run in this backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The kernel of one output does not fit.
    #[error("a single output of this layer needs more than {ring_dim} coefficients")]
    KernelTooLarge {
        /// N: how many coefficients a polynomial has.
        ring_dim: usize,
    },
    /// A layer that is cut into too many windows.
    #[error("this layer falls into {windows} windows; at most {MAX_WINDOWS} are taken")]
    Windows {
        /// How many windows the layer would have.
        windows: usize,
    },
    /// Not a share width of this backend.
    #[error("shares of {share_bits} bits; this backend takes 8 to 48")]
    ShareBits {
        /// l: bits of the shares that it works on.
        share_bits: u32,
    },
    /// The noise would be felt.
    #[error(
        "the noise of this layer would have a standard deviation of {ulps:.2} ulp even with three primes; \
         at most {most:.2} is allowed"
    )]
    Noise {
        /// In units of the last place.
        ulps: f64,
        /// The standard deviation that is allowed.
        most: f64,
    },
    /// The ring has no record of its security.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
}
