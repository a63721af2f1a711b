//! Sessions: two parties run a plan over a connection. Client and server as libraries.
//!
//! A session has four stages, and a type for each state between them, so that what one stage makes cannot be
//! used in another, or twice:
//!
//! ```text
//! client::connect ──model──> Connected ──client──> Ready ──offline──> Prepared ──online──> Prediction + Ready
//! server::Service::serve runs the same stages until the client leaves.
//! ```
//!
//! Prepared queries may also be kept, several at a time ([`client::Kept`]); [`kept::keeper::Keeper`] is a client that does so.
//!
//! | stage | when | what passes |
//! |---|---|---|
//! | model | once per connection | versions, the public network, the plan's digest |
//! | client | once per client | the hint (kept on the client's disk), base OTs |
//! | offline | per query, before the input | p0, mask seeds, OT extension, all hashing |
//! | online | per query | b up; the nonlinear layers' corrections both ways; the result |
//!
//! Features, all on by default: `client`, `server`, and `files` (hints in a cache folder; without it they are held in
//! memory).
//!
//! The client's side ([`client`]) has no type that could hold a weight, and the server's ([`server`]) none that could
//! hold a query's secret: a `QuerySecret` (`jaguar_ring::he`) is made in `client` only, and nothing of it but RLWE
//! samples is ever sent.

#[cfg(feature = "client")]
pub mod answer;
#[cfg(feature = "server")]
mod budget;
#[cfg(feature = "client")]
pub mod client;
mod error;
mod exec;
#[cfg(feature = "client")]
mod family;
#[cfg(feature = "server")]
mod guest;
mod handshake;
pub mod hint;
pub mod kept;
mod memory;
mod message;
pub mod one_round;
pub mod progress;
#[cfg(feature = "client")]
pub mod report;
#[cfg(feature = "server")]
pub mod server;
mod server_times;
pub mod stop;
#[cfg(all(test, feature = "client", feature = "server", feature = "files"))]
mod tests;
#[cfg(feature = "client")]
pub mod timeline;
#[cfg(all(feature = "client", feature = "server"))]
pub mod verify;

pub use error::{EngineError, QueriesSpent};
pub use exec::prepare::Reveal;
pub use handshake::is_model_name;
pub use jaguar_graph::bundle;
pub use kept::stock::{NoRoom, Stock, prepared_bytes};
pub use memory::peak_kib;

#[cfg(not(any(feature = "client", feature = "server")))]
compile_error!("a session has two roles: turn on the feature `client`, `server` or both");
