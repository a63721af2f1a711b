//! The control messages of one-round sessions. What is bulky follows them, in the length that they announce.

use serde::{Deserialize, Serialize};

use super::Ticket;

/// Control messages are at most this long.
pub(crate) const MAX_MESSAGE: usize = 1 << 12;

/// Keys travel in chunks of this many bytes; the last one may be shorter.
pub(crate) const KEY_CHUNK: usize = 1 << 18;

/// A reason in [`Reply::Failed`] has at most this many bytes.
pub(crate) const MAX_REASON: usize = 1 << 10;

/// What the client wants next.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// These keys are to be used from here on. [`Have`] answers.
    Keys { bytes: u64, hash: [u8; 32] },
    /// An input of so many bytes follows. A [`Ticket`] answers, then [`Reply`]s.
    Input { bytes: u64 },
    /// The answer of an earlier input is wanted. [`Reply`]s answer.
    Collect { ticket: Ticket },
    /// The output has come: it may be forgotten. Nothing answers.
    Received { ticket: Ticket },
    /// That was all.
    Leave,
}

/// So many bytes of the keys are there.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Have {
    pub bytes: u64,
}

/// How far the server is with an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Thousandths that are done, more than the last time.
    Progress { thousandths: u16 },
    /// An output of so many bytes follows.
    Output { bytes: u64 },
    /// There will be no output.
    Failed { reason: String },
    /// No answer is kept under this ticket.
    Unknown,
}
