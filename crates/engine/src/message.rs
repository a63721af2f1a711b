//! The control messages. Everything bulky travels outside them, in lengths that follow from the plan.

use serde::{Deserialize, Serialize};

use crate::kept::stock::Stock;
use crate::server_times::ServerTimes;

/// Control messages (but the network) are at most this long.
pub(crate) const MAX_MESSAGE: usize = 1 << 20;

/// A probe of the link is at most this long in each direction.
pub(crate) const MAX_PROBE: u32 = 16 << 20;

/// Behind the client's choice of the interactive protocol: its own plan's digest, and what the connection is for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Accept {
    pub plan: [u8; 32],
    pub purpose: Purpose,
}

/// What a client's connection is for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// A session: the client's name towards this model, and how much of the hint it has.
    Session { nonce: [u8; 32], have_blocks: u32 },
    /// To run what another session of the client has prepared. The answer is a [`Stock`].
    Join(Secret),
}

/// Opens a session's kept queries to another connection of the same client.
#[derive(Serialize, Deserialize)]
pub(crate) struct Secret(pub [u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
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
    /// Tell the [`Secret`] under which other connections find this session's queries.
    Ticket,
    /// Prepare a query, and keep it until it is asked for by its number: the session's first has 0, each the next. The answer
    /// is `Result<(), NoRoom>`; where there is room the query is prepared, and a [`Kept`] follows.
    Prepare {
        /// The query's number in this session, from 0.
        id: u64,
        /// Whether the server tells its times, as in `Query`.
        timeline: bool,
    },
    /// Run the kept query of this number.
    Run { id: u64 },
    /// Take so many bytes, then send so many: to see what the link carries. Each at most [`MAX_PROBE`].
    Probe { up: u32, down: u32 },
    /// The client asks for nothing more.
    Leave,
}

/// A query was prepared and is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub id: u64,
    /// What the server keeps for this client, this query included.
    pub stock: Stock,
}

/// The server's own cost by node, for the client's table: microseconds of its work (waiting not counted).
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerCost {
    pub hint: Vec<u32>,
    pub offline: Vec<u32>,
    pub online: Vec<u32>,
    /// Peak memory of the server's process in KiB, 0 if unknown.
    pub peak_kib: u64,
    /// The number of the query, if it was kept.
    pub kept: Option<u64>,
    /// What the server still keeps for this client.
    pub stock: Stock,
    /// If it was asked for.
    pub timeline: Option<ServerTimes>,
}
