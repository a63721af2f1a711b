//! The control messages. Everything bulky travels outside them, in lengths that follow from the plan.

use serde::{Deserialize, Serialize};

use crate::server_times::ServerTimes;

/// Control messages (but the network) are at most this long.
pub(crate) const MAX_MESSAGE: usize = 1 << 20;

/// A probe of the link is at most this long in each direction.
pub(crate) const MAX_PROBE: u32 = 16 << 20;

/// Behind the client's choice of the interactive protocol: its own plan's digest, its name towards this model, and how much of the hint it has.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Accept {
    pub plan: [u8; 32],
    pub nonce: [u8; 32],
    pub have_blocks: u32,
}

/// What the client wants next.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Send what is missing of the hint, and nothing else.
    Hint,
    /// Prepare a query, sending what is missing of each layer's hint on the way, then run it.
    Query {
        /// Whether the report on its cost shall tell when the server did what.
        timeline: bool,
    },
    /// Take so many bytes, then send so many: to see what the link carries. Each at most [`MAX_PROBE`].
    Probe { up: u32, down: u32 },
    /// That was all.
    Leave,
}

/// The server's own cost by node, for the client's table: microseconds of its work (waiting not counted).
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerCost {
    pub hint: Vec<u32>,
    pub offline: Vec<u32>,
    pub online: Vec<u32>,
    /// Peak memory of the server's process in KiB, 0 if unknown.
    pub peak_kib: u64,
    /// If it was asked for.
    pub timeline: Option<ServerTimes>,
}
