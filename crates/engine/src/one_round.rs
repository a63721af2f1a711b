//! The handshake of one-round sessions: an encrypted input goes up, an encrypted output comes down. What follows the handshake is
//! the protocol's own, in a crate of its own. A party of another protocol hears what was asked for and what there is.

use jaguar_graph::bundle::ModelId;
use jaguar_wire::Channel;

use crate::error::EngineError;
use crate::handshake::{self, ONE_ROUND, ProtocolName};

pub use crate::handshake::MAX_PARAMETERS;

/// Greets the server and asks for a protocol: the model, and the protocol's public parameters for it, which may be any bytes.
/// [`choose`] is next.
///
/// # Errors
/// When the connection fails, the versions differ, or the server does not offer this protocol in this version.
#[cfg(feature = "client")]
pub fn ask(channel: &mut Channel, name: &str, version: u32) -> Result<(ModelId, Vec<u8>), EngineError> {
    handshake::client::ask(channel, None, ProtocolName { kind: ONE_ROUND, name, version }, 1)
}

/// Picks the protocol that was asked for. This travels with the protocol's first message.
///
/// # Errors
/// When the connection fails.
#[cfg(feature = "client")]
pub fn choose(channel: &mut Channel, name: &str, version: u32) -> Result<(), EngineError> {
    handshake::client::choose(channel, ProtocolName { kind: ONE_ROUND, name, version })
}

/// The server's part: offers one protocol, and returns once the client has picked it.
///
/// # Errors
/// When the connection fails, the versions differ, or the client wants another protocol or names a model; [`tell`] it then.
#[cfg(feature = "server")]
pub fn offer(
    channel: &mut Channel,
    model: ModelId,
    (name, version): (&str, u32),
    parameters: &[u8],
) -> Result<(), EngineError> {
    let protocol =
        handshake::Protocol::new(ProtocolName { kind: ONE_ROUND, name, version }, parameters.to_vec());
    let asked = handshake::server::greet(channel)?;
    if asked.model().is_some() {
        return Err(EngineError::Refused(
            "this server has one model, which has no name: ask for none".into(),
        ));
    }
    if asked.images() != 1 {
        let text = format!("'{name}' answers one image at a time, not {}", asked.images());
        return Err(EngineError::Refused(text));
    }
    handshake::server::answer(channel, asked, model, &[protocol], None).map(|_| ())
}

/// What a one-round session tells the server. Nothing is under way for the client then.
#[cfg(feature = "server")]
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Keys of `bytes` are there; `received` of them came now.
    Keys {
        /// Bytes of all keys together.
        bytes: u64,
        /// What came in this session.
        received: u64,
    },
    /// An input waits behind `ahead` others; its client stays, or has left.
    Asked {
        /// Evaluations that come before it.
        ahead: usize,
        /// Whether the client waits for the answer.
        stays: bool,
    },
    /// An answer was sent, whose evaluation took so long.
    Answered {
        /// Bytes of the answer that were sent.
        bytes: u64,
        /// Time of the evaluation, without that in the queue.
        took: std::time::Duration,
    },
    /// There was no answer to give: an evaluation failed, or the client asked for one that is not there.
    NoAnswer,
}

/// Tells the peer, as well as the connection still can, why the session ends here, and whether it may come back later: never a value, a
/// path, or anything else of this side's.
pub fn tell(channel: &mut Channel, error: &EngineError) {
    error.tell(channel);
}
