//! The server's part of the handshake.

use jaguar_graph::bundle::ModelId;
use jaguar_graph::network::Network;
use jaguar_plan::PROTOCOL_VERSION;
use jaguar_wire::{Channel, Stage};

use super::{
    Ask, Choice, Hello, INTERACTIVE, Offer, Protocol, ProtocolName, SHARES, SharesParameters, checked,
    is_model_name, list,
};
use crate::error::EngineError;
use crate::kept::shelf::KeepLimits;
use crate::message::MAX_MESSAGE;

/// Kinds that a client asks for, at most.
const MAX_KINDS: usize = 8;

impl Protocol {
    /// An offer.
    pub fn new(name: ProtocolName<'_>, parameters: Vec<u8>) -> Self {
        let ProtocolName { kind, name, version } = name;
        Self { kind: kind.into(), name: name.into(), version, parameters }
    }
}

impl SharesParameters {
    /// The interactive protocol with these parameters.
    pub fn protocol(&self) -> Protocol {
        Protocol::new(SHARES, jaguar_wire::encode(self))
    }
}

/// What a client asked for in its first words.
#[derive(Debug)]
pub struct Asked {
    kinds: Vec<String>,
    model: Option<String>,
    images: u32,
}

impl Asked {
    /// The name of the model that it wants, if it named one; [`is_model_name`] holds.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// How many images it wants to ask about in a query: any number.
    pub(crate) fn images(&self) -> u32 {
        self.images
    }
}

/// The server's first words. In the middle of what belongs together nobody is waited for without end, from here on.
///
/// # Errors
/// When the connection fails, the versions differ, or what the client asks for cannot be right.
pub(crate) fn greet(channel: &mut Channel) -> Result<Asked, EngineError> {
    channel.enter(Stage::Model, "handshake");
    channel.set_patience(Some(KeepLimits::default().idle));
    let Hello { version } = channel.recv_message("greeting", MAX_MESSAGE)?;
    channel.send_message(&Hello { version: PROTOCOL_VERSION })?;
    if version != PROTOCOL_VERSION {
        return Err(EngineError::Version { ours: PROTOCOL_VERSION, theirs: version });
    }
    let Ask { kinds, model, images } = channel.recv_message("kinds of session", MAX_MESSAGE)?;
    if kinds.len() > MAX_KINDS {
        let text = format!("{} kinds of session (at most {MAX_KINDS})", kinds.len());
        return Err(EngineError::PeerMisbehaved(text));
    }
    kinds.iter().try_for_each(|kind| checked("a kind of session", kind).map(|_| ()))?;
    if model.as_deref().is_some_and(|name| !is_model_name(name)) {
        let text = "a model's name that is not 1 to 64 letters, digits, '-', '_' and '.'";
        return Err(EngineError::PeerMisbehaved(text.into()));
    }
    Ok(Asked { kinds, model, images })
}

/// The server's part after [`greet`]: returns which of `protocols` the client picked. `network` is sent to clients of interactive
/// sessions.
///
/// # Errors
/// When the connection fails, or the client can do none of the protocols.
pub(crate) fn answer(
    channel: &mut Channel,
    Asked { kinds, .. }: Asked,
    model: ModelId,
    protocols: &[Protocol],
    network: Option<&Network>,
) -> Result<usize, EngineError> {
    let offered = || list(protocols.iter().map(Protocol::name));
    if !protocols.iter().any(|protocol| kinds.contains(&protocol.kind)) {
        return Err(EngineError::NoCommonProtocol { wanted: list(&kinds), offered: offered() });
    }
    let asked_for = |protocol: &&Protocol| kinds.contains(&protocol.kind);
    channel
        .send_message(&Offer { model, protocols: protocols.iter().filter(asked_for).cloned().collect() })?;
    if let Some(network) = network.filter(|_| kinds.iter().any(|kind| kind == INTERACTIVE)) {
        channel.send_message(network)?;
    }
    let Choice { kind, name, version } = channel.recv_message("choice of a protocol", MAX_MESSAGE)?;
    let chosen = ProtocolName {
        kind: checked("a kind of session", &kind)?,
        name: checked("a protocol", &name)?,
        version,
    };
    match protocols.iter().position(|protocol| protocol.name() == chosen) {
        Some(index) => Ok(index),
        None => Err(EngineError::NoCommonProtocol { wanted: chosen.to_string(), offered: offered() }),
    }
}
