//! Sessions: two parties run a plan over a connection. Client and server as libraries.
//!
//! A session has four phases, and a type for each state between them, so that what one phase makes cannot be
//! used in another, or twice:
//!
//! ```text
//! client::connect ──model──> Connected ──client──> Ready ──preprocessing──> Prepared ──online──> Prediction + Ready
//! server::Service::serve runs the same phases until the client leaves.
//! ```
//!
//! | phase | when | what passes |
//! |---|---|---|
//! | model | once per connection | versions, the public network, the plan's digest |
//! | client | once per client | the hint (kept on the client's disk), base OTs |
//! | preprocessing | per query, before the input | p0, mask seeds, OT extension, all hashing |
//! | online | per query | b up; the nonlinear layers' corrections both ways; the result |
//!
//! Features, all on by default: `client`, `server`, and `files` (hints in a cache folder; without it they are held in
//! memory).
//!
//! The client's side ([`client`]) has no type that could hold a weight, and the server's ([`server`]) none that could
//! hold a query's secret: [`jaguar_he::power_of_two::QuerySecret`] is made in `client` only, and nothing of it but RLWE samples is
//! ever sent.

// With a role or files left out, some of what both roles share is without use.
#![cfg_attr(not(all(feature = "client", feature = "server", feature = "files")), allow(dead_code))]

#[cfg(feature = "client")]
pub mod ahead;
#[cfg(feature = "client")]
pub mod answer;
#[cfg(feature = "client")]
pub mod client;
pub mod hint;
mod message;
mod program;
pub mod report;
#[cfg(feature = "server")]
pub mod server;
#[cfg(all(test, feature = "client", feature = "server", feature = "files"))]
mod tests;
pub mod timeline;
#[cfg(all(feature = "client", feature = "server", feature = "files"))]
pub mod verify;

use std::path::Path;

pub use jaguar_bundle as bundle;
use jaguar_bundle::{BundleError, FileError};
use jaguar_linear::backend::BackendError;
use jaguar_mpc::MpcError;
use jaguar_ot::OtError;
use jaguar_plan::PlanError;
use jaguar_wire::WireError;
pub use message::Reveal;

/// What ends a session. The other party is told, as well as the connection still can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The connection, or what came over it.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Oblivious transfer.
    #[error("oblivious transfer: {0}")]
    Ot(#[from] OtError),
    /// A nonlinear layer.
    #[error("nonlinear layer: {0}")]
    Mpc(#[from] MpcError),
    /// The network cannot be run with these parameters.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What happened in the middle of a layer.
    #[error("layer '{layer}', {phase}: {source}")]
    InLayer {
        /// The node's name.
        layer: String,
        /// Preparing or running.
        phase: &'static str,
        /// What happened.
        source: Box<EngineError>,
    },
    /// The peer speaks another version, or is no Jaguar.
    #[error("this is protocol version {ours}, the peer's is {theirs}: use the same release on both sides")]
    Version {
        /// Ours.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The peer sent something that cannot be right.
    #[error("the peer broke the protocol: {0}")]
    PeerMisbehaved(String),
    /// A compiled model that cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A hint that cannot be used.
    #[error("hint: {0}")]
    Hint(String),
    /// Something the caller gave is not what the network takes.
    #[error("{0}")]
    Input(String),
    /// The disk.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<BackendError> for EngineError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Wire(error) => Self::Wire(error),
            other => Self::PeerMisbehaved(other.to_string()),
        }
    }
}

impl EngineError {
    pub(crate) fn file(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        FileError::new(what, path, source).into()
    }

    /// What the peer is told: never a value, a path, or anything else of this side's.
    pub(crate) fn for_peer(&self) -> String {
        match self {
            Self::PeerMisbehaved(_) | Self::Version { .. } => self.to_string(),
            Self::Wire(e @ WireError::PeerMisbehaved { .. }) => e.to_string(),
            Self::Ot(OtError::PeerMisbehaved { .. }) => "you broke the protocol: oblivious transfer".into(),
            Self::Wire(_) | Self::Ot(_) | Self::Mpc(_) => "the connection failed on the other side".into(),
            Self::Plan(_) => "the network cannot be planned".into(),
            Self::InLayer { source, .. } => source.for_peer(),
            Self::Bundle(_) | Self::Hint(_) | Self::Input(_) | Self::File(_) => {
                "the other side gave up for reasons of its own".into()
            }
        }
    }

    pub(crate) fn in_layer(self, layer: &str, phase: &'static str) -> Self {
        Self::InLayer { layer: layer.to_owned(), phase, source: Box::new(self) }
    }
}
