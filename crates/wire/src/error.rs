//! What can go wrong between two parties, sorted by who is to blame.

use std::io;
use std::time::Duration;

/// A failure of the connection or of what came over it. After one, the session is spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The peer closed the connection, or its process ended.
    #[error("the peer closed the connection while {waiting_for}")]
    Closed {
        /// What this side was doing.
        waiting_for: String,
    },
    /// The peer sent nothing, not even a sign of life, for too long.
    #[error("the peer has been silent for {silence:?} while {waiting_for}")]
    Silent {
        /// How long this side waited.
        silence: Duration,
        /// What this side was doing.
        waiting_for: String,
    },
    /// The peer's process lives, but it did not go on for longer than this side waits.
    #[error("the peer did not go on for {patience:?} while {waiting_for}")]
    Idle {
        /// How long this side waited.
        patience: Duration,
        /// What this side was doing.
        waiting_for: String,
    },
    /// The peer gave up and said why.
    #[error("the peer gave up: {0}")]
    PeerAborted(String),
    /// The peer does not do it for now, said why, and that it may be tried again later.
    #[error("the peer gave up: {0}")]
    PeerBusy(String),
    /// The peer sent something that the protocol does not allow.
    #[error("the peer broke the protocol: {what} (found {found}, expected {expected}){step}")]
    PeerMisbehaved {
        /// The rule that the peer broke.
        what: &'static str,
        /// What came from the peer.
        found: String,
        /// What the protocol allows there.
        expected: String,
        /// What this side was at, in brackets; empty if that is not known.
        step: String,
    },
    /// This side ended the session, and told the peer why.
    #[error("this side ended the session: {0}")]
    Ended(String),
    /// The two ends of what should be one encrypted connection do not have the same: something between them decrypts.
    #[error("the session is not bound to one TLS connection with {peer}: {found}")]
    NotBound {
        /// What the user calls the peer.
        peer: String,
        /// What the two ends have not alike.
        found: &'static str,
    },
    /// The operating system failed.
    #[error("{what}: {source}")]
    Io {
        /// What this side tried, in words.
        what: String,
        /// What the operating system says of it.
        source: io::Error,
    },
}

impl WireError {
    /// A `PeerMisbehaved` from displayable parts.
    pub fn misbehaved(what: &'static str, found: impl ToString, expected: impl ToString) -> Self {
        let step = String::new();
        Self::PeerMisbehaved { what, found: found.to_string(), expected: expected.to_string(), step }
    }

    pub(crate) fn idle(patience: Duration) -> Self {
        Self::Idle { patience, waiting_for: "receiving".into() }
    }

    /// The same error, saying at which step of the session this side was.
    #[must_use]
    pub(crate) fn during(mut self, step: impl std::fmt::Display) -> Self {
        match &mut self {
            Self::PeerMisbehaved { step: text, .. } => *text = format!(" ({step})"),
            Self::Closed { waiting_for: text }
            | Self::Silent { waiting_for: text, .. }
            | Self::Idle { waiting_for: text, .. }
            | Self::PeerAborted(text)
            | Self::PeerBusy(text)
            | Self::Ended(text)
            | Self::Io { what: text, .. } => *text = format!("{text} ({step})"),
            Self::NotBound { .. } => {}
        }
        self
    }
}

/// The operating system's refusal of `what`.
pub(crate) fn io_error(what: String, source: io::Error) -> WireError {
    WireError::Io { what, source }
}

/// Whether an error says that the connection is gone.
pub(crate) fn is_closed(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    matches!(kind, ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected)
}
