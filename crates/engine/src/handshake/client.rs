//! The client's part of the handshake.

use jaguar_graph::bundle::ModelId;
use jaguar_plan::{Kit, NamedChoices, PROTOCOL_VERSION};
use jaguar_wire::{Channel, Stage};

use super::{
    Ask, Choice, Hello, MAX_PARAMETERS, Offer, Protocol, ProtocolName, SHARES, SharesParameters, checked,
    list,
};
use crate::error::EngineError;
use crate::message::MAX_MESSAGE;

/// Protocols that a server offers, at most.
const MAX_PROTOCOLS: usize = 16;

/// Exchanges versions; the client speaks first.
fn greet_first(
    channel: &mut Channel,
    kind: &str,
    model: Option<&str>,
    images: u32,
) -> Result<(), EngineError> {
    channel.enter(Stage::Model, "handshake");
    channel.send_message(&Hello { version: PROTOCOL_VERSION })?;
    channel.send_message(&Ask { kinds: vec![kind.into()], model: model.map(str::to_owned), images })?;
    let Hello { version } = channel.recv_message("greeting", MAX_MESSAGE)?;
    if version != PROTOCOL_VERSION {
        return Err(EngineError::Version { ours: PROTOCOL_VERSION, theirs: version });
    }
    Ok(())
}

/// The client's part up to the offer: the model (the one that the server has under the name `named`), and the parameters of the
/// protocol `wanted` for queries of `images` images.
///
/// # Errors
/// When the connection fails, the versions differ, or the server does not offer this protocol.
pub(crate) fn ask(
    channel: &mut Channel,
    named: Option<&str>,
    wanted: ProtocolName<'_>,
    images: u32,
) -> Result<(ModelId, Vec<u8>), EngineError> {
    greet_first(channel, wanted.kind, named, images)?;
    let Offer { model, protocols } = channel.recv_message("offer", MAX_MESSAGE)?;
    if protocols.len() > MAX_PROTOCOLS {
        let text = format!("an offer of {} protocols (at most {MAX_PROTOCOLS})", protocols.len());
        return Err(EngineError::PeerMisbehaved(text));
    }
    for Protocol { kind, name, parameters, .. } in &protocols {
        checked("a kind of session", kind)?;
        checked("a protocol", name)?;
        if parameters.len() > MAX_PARAMETERS {
            let text =
                format!("{} bytes of parameters for '{name}' (at most {MAX_PARAMETERS})", parameters.len());
            return Err(EngineError::PeerMisbehaved(text));
        }
    }
    let offered = list(protocols.iter().map(Protocol::name));
    match protocols.into_iter().find(|protocol| protocol.name() == wanted) {
        Some(protocol) => Ok((model, protocol.parameters)),
        None => Err(EngineError::NoCommonProtocol { wanted: wanted.to_string(), offered }),
    }
}

/// [`ask`] for the interactive protocol, with the backends of `kit`.
pub(crate) fn ask_for_shares(
    kit: &Kit,
    channel: &mut Channel,
    named: Option<&str>,
    images: u32,
) -> Result<(ModelId, SharesParameters), EngineError> {
    let (model, parameters) = ask(channel, named, SHARES, images)?;
    let SharesParameters::<NamedChoices> { choices, reveal } =
        jaguar_wire::decode("the protocol's parameters", &parameters)?;
    if choices.images != images {
        let offered = choices.images;
        let text = format!("a plan for queries of {offered} images, where {images} were asked for");
        return Err(EngineError::PeerMisbehaved(text));
    }
    let choices = choices
        .resolve(kit.backends(), kit.comparisons())
        .map_err(|e| EngineError::Refused(format!("the server's plan: {e}")))?;
    Ok((model, SharesParameters { choices, reveal }))
}

/// The client's choice. It travels with the first message of the protocol.
pub(crate) fn choose(channel: &mut Channel, wanted: ProtocolName<'_>) -> Result<(), EngineError> {
    let ProtocolName { kind, name, version } = wanted;
    Ok(channel.send_message(&Choice { kind: kind.into(), name: name.into(), version })?)
}

/// [`choose`] the interactive protocol.
pub(crate) fn choose_shares(channel: &mut Channel) -> Result<(), EngineError> {
    choose(channel, SHARES)
}
