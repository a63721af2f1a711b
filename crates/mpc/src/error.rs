//! What can go wrong, sorted by who is to blame.

use crate::share::Modulus;
use jaguar_ot::OtError;
use jaguar_wire::WireError;

/// A failure of a protocol of this crate. After one, the session is spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpcError {
    /// The connection failed, or the peer broke the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Preparing the correlated OTs failed.
    #[error(transparent)]
    Ot(#[from] OtError),
    /// An earlier preparation failed: what the parties have drawn may differ since.
    #[error("an earlier error has ended this party's session")]
    Spent,
    /// The caller asked for something that the protocol does not offer.
    #[error("unusable {what}: found {found}, expected {expected}")]
    Misuse {
        /// The argument that is wrong.
        what: &'static str,
        /// The value that was given.
        found: String,
        /// The values that may be given.
        expected: String,
    },
}

impl MpcError {
    pub(crate) fn misuse(what: &'static str, found: impl ToString, expected: impl ToString) -> Self {
        Self::Misuse { what, found: found.to_string(), expected: expected.to_string() }
    }
}

/// `found` must lie in `range`.
pub(crate) fn check_range(
    what: &'static str,
    found: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<(), MpcError> {
    if range.contains(&found) {
        return Ok(());
    }
    Err(MpcError::misuse(what, found, format!("{} to {}", range.start(), range.end())))
}

/// `found` must be odd, or a power of two of which the logarithm lies in `range`. (No modulus has more than 63 bits.)
pub(crate) fn check_output(
    what: &'static str,
    found: Modulus,
    range: std::ops::RangeInclusive<u32>,
) -> Result<(), MpcError> {
    found.log2().map_or(Ok(()), |bits| check_range(what, bits, range))
}

/// There must be `expected` values.
pub(crate) fn check_count(what: &'static str, found: usize, expected: usize) -> Result<(), MpcError> {
    if found == expected {
        return Ok(());
    }
    Err(MpcError::misuse(what, format!("{found} values"), format!("{expected} values, as prepared")))
}
