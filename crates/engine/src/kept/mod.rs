//! What the two parties keep, where, and for how long. All of it is in memory only: nothing here outlives its process.
//!
//! | what | who keeps it | until | file |
//! |---|---|---|---|
//! | prepared queries, by number | both parties, each its half | one input is run on it, or the session that prepared it ends | `query.rs` (client), `shelf.rs` (server) |
//! | a connection that prepares ahead | the client | it is dropped, or breaks | `keeper.rs` |
//! | clients' evaluation keys, by the client's name | the server | their room is needed, or the server ends | `keys.rs` |
//!
//! `stock.rs` counts prepared queries and says why there are no more. What is kept on disk is elsewhere: hints in
//! [`crate::hint`], measured figures in `jaguar_profile::store`.

#[cfg(feature = "client")]
pub mod keeper;
#[cfg(feature = "server")]
pub(crate) mod keys;
#[cfg(feature = "client")]
pub(crate) mod query;
#[cfg(feature = "server")]
pub(crate) mod shelf;
pub(crate) mod stock;
