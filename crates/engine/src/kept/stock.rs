//! Prepared queries that two parties keep: how many, what they hold, and why there are no more.

pub use jaguar_plan::memory::prepared_bytes;
use serde::{Deserialize, Serialize};

/// Kept queries, and the memory that they hold at the party that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stock {
    /// How many queries are kept.
    pub queries: u32,
    /// Bytes that they take, by [`prepared_bytes`].
    pub bytes: u64,
}

/// Why a server does not keep another query. The session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum NoRoom {
    /// There is no more room for this client.
    #[error("the server keeps {most} prepared queries for a client and no more")]
    Client {
        /// How many queries a client may have prepared.
        most: u32,
    },
    /// There is no more room for any client.
    #[error(
        "the server keeps {most} bytes of prepared queries for all its clients together, and has no room now"
    )]
    All {
        /// How many bytes all clients' queries may take.
        most: u64,
    },
    /// What is prepared counts as asked, and the client may have no more today.
    #[error(
        "the server prepares no more queries for this client today (UTC): too few are left of those that it may have in a day"
    )]
    Queries,
}
