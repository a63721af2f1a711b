//! Why a circuit cannot be made or evaluated.

use std::error::Error as StdError;

use super::fourier::LayoutError;

/// Why a circuit cannot be made or evaluated. `E` is the evaluator's own error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E: StdError + 'static> {
    /// An operation failed.
    #[error("{circuit}: {source}")]
    Evaluator {
        /// In which circuit.
        circuit: &'static str,
        /// Why.
        #[source]
        source: E,
    },
    /// There are too few levels.
    #[error("{circuit} needs level {needed} to begin with, and has {found}")]
    Level {
        /// Which circuit.
        circuit: &'static str,
        /// At which level it can begin at the lowest.
        needed: usize,
        /// The level that there is.
        found: usize,
    },
    /// A ciphertext of level 0 is needed.
    #[error("ModUp takes level 0, not {found}")]
    NotAtTheBottom {
        /// The level that there is.
        found: usize,
    },
    /// Values are too large beside q0: the sine is x mod 1 near integers only.
    #[error("a value of 2^{log_scale} before ModUp is more than a sixteenth of q0 = {q0}")]
    Message {
        /// log2 of the scale before ModUp.
        log_scale: u32,
        /// The lowest modulus.
        q0: f64,
    },
    /// A transform cannot be cut so.
    #[error("a transform: {0}")]
    Layout(#[from] LayoutError),
    /// A mask of another length.
    #[error("a mask of {found} values for {needed}")]
    Mask {
        /// How many values the layout has.
        needed: usize,
        /// How many the mask has.
        found: usize,
    },
    /// One ciphertext is needed, or two if every coefficient carries a value.
    #[error("{found} ciphertexts of slots, not {needed}")]
    Ciphertexts {
        /// How many there should be.
        needed: usize,
        /// How many there are.
        found: usize,
    },
    /// A polynomial without a power of x has nothing that could carry its value.
    #[error("a polynomial of degree 0 takes no ciphertext")]
    Constant,
}

/// Names the circuit in which an operation failed.
pub(super) trait In<T, E: StdError + 'static> {
    /// The same, with the circuit's name.
    fn within(self, circuit: &'static str) -> Result<T, Error<E>>;
}

impl<T, E: StdError + 'static> In<T, E> for Result<T, E> {
    fn within(self, circuit: &'static str) -> Result<T, Error<E>> {
        self.map_err(|source| Error::Evaluator { circuit, source })
    }
}
