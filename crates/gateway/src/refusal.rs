//! Why a request has no answer, as both protocols say it.

use hyper::StatusCode;

/// A request that is not answered with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It cannot be understood, or is not what the model takes; in words what is expected.
    #[error("{0}")]
    Invalid(String),
    /// It comes from where nobody is answered.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such model, version or path.
    #[error("{0}")]
    Unknown(String),
    /// The path takes another method.
    #[error("{0} is the method of this path")]
    Method(&'static str),
    /// It has more bytes than a request may have.
    #[error("the request has more than the {0} bytes that one may have")]
    TooLarge(usize),
    /// It did not come within the time for it.
    #[error("the request did not come within {0} s")]
    Slow(u64),
    /// It is done in a way that is not known here.
    #[error("{0}")]
    Unsupported(String),
    /// The server is away, or too many ask: later it may be answered.
    #[error("{why}")]
    Later {
        /// Why not now.
        why: String,
        /// Seconds after which to come back.
        seconds: u64,
    },
}

/// A request that is not as expected, in the words of `format!`.
macro_rules! invalid {
    ($($text:tt)*) => { $crate::refusal::Refusal::Invalid(format!($($text)*)) };
}
pub(crate) use invalid;

/// After how many seconds who was turned away may come back.
pub(crate) const COME_BACK: u64 = 5;

impl Refusal {
    /// The server cannot be asked, and why.
    pub(crate) fn away(why: &str) -> Self {
        Self::later(format!("the server is away: {why}"), COME_BACK)
    }

    pub(crate) fn later(why: impl Into<String>, seconds: u64) -> Self {
        Self::Later { why: why.into(), seconds }
    }

    /// The status of HTTP.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Later { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The number of gRPC's status.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Invalid(_) | Self::Method(_) => 3,
            Self::Slow(_) => 4,
            Self::Unknown(_) => 5,
            Self::Forbidden(_) => 7,
            Self::TooLarge(_) => 8,
            Self::Unsupported(_) => 12,
            Self::Later { .. } => 14,
        }
    }
}
