//! The handshake: which model, and which protocol the two parties will run.
//!
//! | from | message | content |
//! |---|---|---|
//! | C | [`Hello`], [`Ask`] | its release's protocol version; which kinds of session it can do; which model it wants, if it names one; how many images a query shall have |
//! | S | [`Hello`], [`Offer`] | its own version; the model's public name, the protocols that it can run for the model |
//! | S | network | the public part of the network, if the client can do interactive sessions and the server offers one |
//! | C | [`Choice`] | the protocol that it picked; what follows depends on the protocol's kind |
//!
//! A *kind* says how a session goes: [`INTERACTIVE`] is the conversation over secret shares (`client` and `server`),
//! [`ONE_ROUND`] is encrypted input up and encrypted output down ([`crate::one_round`]: the handshake only). Kinds and protocols are names, not numbers, so that
//! each side can tell a person what the other one wanted and it cannot do.

#[cfg(feature = "client")]
pub(crate) mod client;
#[cfg(feature = "server")]
pub(crate) mod server;

use jaguar_graph::bundle::ModelId;
use jaguar_plan::Choices;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::exec::prepare::Reveal;

/// Sessions in which both parties talk layer by layer.
pub const INTERACTIVE: &str = "interactive";

/// Sessions with keys that go up once, then one message up and one down for each input.
pub const ONE_ROUND: &str = "one-round";

/// The one interactive protocol: the network's plan, layer by layer, over secret shares.
const SHARES: ProtocolName<'static> = ProtocolName { kind: INTERACTIVE, name: "secret-shares", version: 1 };

/// Characters of a kind or of a protocol's name, at most.
const MAX_NAME: usize = 64;

/// Bytes of a protocol's public parameters, at most. (All messages but the network are below 1 MiB.)
pub const MAX_PARAMETERS: usize = 1 << 19;

/// First words of either side. The version comes first, so that every later release can read it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub version: u32,
}

/// The kinds of session that the client can do, and the name under which the server has the model that it wants. Without one: the
/// only model that it may have.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub kinds: Vec<String>,
    pub model: Option<String>,
    /// How many images a query shall have.
    pub images: u32,
}

/// A protocol that the server offers, with what it says of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub model: ModelId,
    pub protocols: Vec<Protocol>,
}

/// A protocol that the server can run for the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Protocol {
    pub kind: String,
    pub name: String,
    /// Of this protocol: parties of different versions do not understand each other.
    pub version: u32,
    /// What both parties must know of it, in a form that is the protocol's own.
    pub parameters: Vec<u8>,
}

/// The protocol that the client picked from the offer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Choice {
    pub kind: String,
    pub name: String,
    pub version: u32,
}

/// The parameters of the interactive protocol. As they are received, choices are names.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SharesParameters<C = Choices> {
    /// The choices that the plan follows from.
    pub choices: C,
    pub reveal: Reveal,
}

/// A protocol without its parameters: what must be equal on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolName<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    pub version: u32,
}

impl std::fmt::Display for ProtocolName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} '{}' version {}", self.kind, self.name, self.version)
    }
}

impl Protocol {
    pub fn name(&self) -> ProtocolName<'_> {
        ProtocolName { kind: &self.kind, name: &self.name, version: self.version }
    }
}

/// A kind or a name of a protocol: short, of lower-case letters, digits and hyphens.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether a server may have a model under this name: 1 to 64 letters (A to Z), digits, `-`, `_` and `.`, of which the last does not come
/// first.
pub fn is_model_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// A peer's kind or name, once it is known to be fit to be shown.
fn checked<'a>(what: &str, name: &'a str) -> Result<&'a str, EngineError> {
    if is_name(name) {
        return Ok(name);
    }
    let text = format!("{what} that is no name of 1 to {MAX_NAME} lower-case letters, digits and hyphens");
    Err(EngineError::PeerMisbehaved(text))
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "none".into() } else { items.join(", ") }
}
