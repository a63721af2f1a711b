//! The control messages of one-round sessions. What is bulky follows them, in a length that both sides know.

use serde::{Deserialize, Serialize};

use super::Ticket;

/// Control messages are at most this long.
pub(super) const MAX_MESSAGE: usize = 1 << 12;

/// Keys travel in chunks of this many bytes; the last one may be shorter.
pub(super) const CHUNK: usize = 1 << 20;

/// A reason has at most this many bytes.
pub(super) const MAX_REASON: usize = 1 << 10;

/// What the client wants next.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// These keys are to be used from here on. [`Have`] answers.
    Keys { bytes: u64, hash: [u8; 32] },
    /// An encrypted input follows. A [`Ticket`] answers, then, if the client waits, [`Reply`]s.
    Input { waits: bool },
    /// The answer to an earlier input is wanted. [`Reply`]s answer.
    Collect { ticket: Ticket },
    /// The answer has come: it may be forgotten. Nothing answers.
    Received { ticket: Ticket },
    /// The client asks for nothing more.
    Leave,
}

/// So many bytes of the keys are there, and this is their hash.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Have {
    pub bytes: u64,
    pub hash: [u8; 32],
}

/// The keys follow from here on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct From {
    pub offset: u64,
}

/// How far the server is with an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It waits; so many are computed before it.
    Queued { ahead: u32 },
    /// So many layers of so many are done. None of none: keys are being read.
    Running { done: u32, of: u32 },
    /// The answer follows.
    Answer,
    /// There will be none.
    Failed { reason: String },
    /// No answer is kept under this ticket for this client.
    Unknown,
}
