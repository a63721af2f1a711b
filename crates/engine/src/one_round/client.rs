//! The client's side of one-round sessions.

use jaguar_bundle::ModelId;
use jaguar_wire::{Channel, Stage};

use super::Ticket;
use super::message::{Have, KEY_CHUNK, MAX_MESSAGE, MAX_REASON, Reply, Request};
use crate::error::EngineError;
use crate::handshake::{self, ONE_ROUND, ProtocolName};

/// A one-round protocol, as its client needs it. It holds the client's secrets; they never leave it.
///
/// Errors are sentences for the caller. The server is not told them.
pub trait Protocol {
    /// The protocol's name: at most 64 lower-case letters, digits and hyphens.
    fn name(&self) -> &str;

    /// Its version: both sides must have the same.
    fn version(&self) -> u32;

    /// Takes the public parameters that the server offers, which may be any bytes (at most 512 KiB).
    ///
    /// # Errors
    /// When they are malformed, or not acceptable to this client.
    fn open(&mut self, parameters: &[u8]) -> Result<(), String>;

    /// Bytes of an encrypted output, at most.
    fn max_output_bytes(&self) -> u64;

    /// The evaluation keys: what the server needs to compute, and may know. Empty if there are none. The same bytes at every call,
    /// so that a server that has them need not get them again.
    ///
    /// # Errors
    /// When they cannot be made.
    fn keys(&mut self) -> Result<Vec<u8>, String>;

    /// Encrypts an input, integers `[C, H, W]` in the range that the parameters name.
    ///
    /// # Errors
    /// When the input does not fit.
    fn encrypt(&mut self, input: &[i64]) -> Result<Vec<u8>, String>;

    /// Decrypts an output, which may be any bytes.
    ///
    /// # Errors
    /// When it is malformed.
    fn decrypt(&mut self, output: &[u8]) -> Result<Vec<i64>, String>;
}

/// A connection whose parties agree on a one-round protocol. No keys have passed.
pub struct Connected<'p> {
    channel: Channel,
    protocol: &'p mut dyn Protocol,
    model: ModelId,
}

/// A session whose server has the keys.
pub struct Ready<'p>(Connected<'p>);

/// A session whose server computes an answer.
pub struct Asked<'p> {
    connected: Connected<'p>,
    ticket: Ticket,
}

/// Greets the server at the other end of `channel`, and picks `protocol` from what it offers. The protocol is borrowed: it outlives
/// a connection that fails, and so do its keys.
///
/// # Errors
/// When the connection fails, the server does not offer this protocol in this version, or the protocol refuses its parameters.
pub fn connect(channel: Channel, protocol: &mut dyn Protocol) -> Result<Connected<'_>, EngineError> {
    let mut connected = Connected { channel, protocol, model: ModelId([0; 32]) };
    connected.guarded(|Connected { channel, protocol, model }| {
        let name = protocol.name().to_owned();
        let wanted = ProtocolName { kind: ONE_ROUND, name: &name, version: protocol.version() };
        let (offered, parameters) = handshake::client::ask(channel, wanted)?;
        *model = offered;
        protocol.open(&parameters).map_err(|reason| EngineError::Protocol { name: name.clone(), reason })?;
        handshake::client::choose(channel, wanted)
    })?;
    Ok(connected)
}

impl<'p> Connected<'p> {
    /// The model's public name.
    pub fn model(&self) -> ModelId {
        self.model
    }

    /// Runs a part of the session; the server is told if it fails.
    fn guarded<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        part(self).inspect_err(|e| self.channel.abort(&e.for_peer()))
    }

    /// What the protocol makes, or its complaint.
    fn protocol<T>(
        &mut self,
        part: impl FnOnce(&mut dyn Protocol) -> Result<T, String>,
    ) -> Result<T, EngineError> {
        part(self.protocol)
            .map_err(|reason| EngineError::Protocol { name: self.protocol.name().to_owned(), reason })
    }

    /// Sends what the server lacks of the keys. `progress` hears how many bytes of how many are there.
    ///
    /// # Errors
    /// When the connection fails, or the server refuses. What has arrived is kept there: the next session sends the rest.
    pub fn send_keys(mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<Ready<'p>, EngineError> {
        self.guarded(|connected| {
            let keys = connected.protocol(|protocol| protocol.keys())?;
            let channel = &mut connected.channel;
            channel.enter(Stage::Client, "keys");
            let total = keys.len() as u64;
            channel.send_message(&Request::Keys { bytes: total, hash: *blake3::hash(&keys).as_bytes() })?;
            let Have { bytes: have } = channel.recv_message("what is there of the keys", MAX_MESSAGE)?;
            if have > total || (have < total && !have.is_multiple_of(KEY_CHUNK as u64)) {
                let text = format!("{have} bytes of {total} of the keys, which is no number of whole chunks");
                return Err(EngineError::PeerMisbehaved(text));
            }
            progress(have, total);
            if have == total {
                return Ok(());
            }
            let mut sent = have;
            for chunk in keys[have as usize..].chunks(KEY_CHUNK) {
                channel.send(chunk)?;
                channel.send(blake3::hash(chunk).as_bytes())?;
                sent += chunk.len() as u64;
                progress(sent, total);
            }
            let Have { bytes } = channel.recv_message("a receipt for the keys", MAX_MESSAGE)?;
            if bytes != total {
                return Err(EngineError::PeerMisbehaved(format!("a receipt for {bytes} bytes of {total}")));
            }
            Ok(())
        })?;
        Ok(Ready(self))
    }
}

impl<'p> Ready<'p> {
    /// Encrypts `input` and sends it.
    ///
    /// # Errors
    /// When the protocol refuses the input, the connection fails, or the server refuses. The session is over then.
    pub fn send(self, input: &[i64]) -> Result<Asked<'p>, EngineError> {
        let mut connected = self.0;
        let ticket = connected.guarded(|connected| {
            let input = connected.protocol(|protocol| protocol.encrypt(input))?;
            let channel = &mut connected.channel;
            channel.enter(Stage::Online, "input");
            channel.send_message(&Request::Input { bytes: input.len() as u64 })?;
            channel.send(&input)?;
            Ok(channel.recv_message("a ticket", MAX_MESSAGE)?)
        })?;
        Ok(Asked { connected, ticket })
    }

    /// Asks for the answer to an input of an earlier session, with the ticket from there.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn collect(self, ticket: Ticket) -> Result<Asked<'p>, EngineError> {
        let mut connected = self.0;
        connected.guarded(|connected| {
            connected.channel.enter(Stage::Online, "input");
            connected.channel.send_message(&Request::Collect { ticket })?;
            Ok(connected.channel.flush()?)
        })?;
        Ok(Asked { connected, ticket })
    }

    /// Says good-bye.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn leave(mut self) -> Result<(), EngineError> {
        self.0.channel.send_message(&Request::Leave)?;
        Ok(self.0.channel.flush()?)
    }
}

impl<'p> Asked<'p> {
    /// Names the answer: if this connection ends, the next one can [`collect`](Ready::collect) it.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Waits for the output and decrypts it. `progress` hears how many thousandths are done, ascending.
    ///
    /// # Errors
    /// When the connection fails, the server has no output to give, or the protocol cannot decrypt it. The session is over then.
    pub fn answer(mut self, progress: &mut dyn FnMut(u16)) -> Result<(Vec<i64>, Ready<'p>), EngineError> {
        let ticket = self.ticket;
        let values = self.connected.guarded(|connected| {
            let channel = &mut connected.channel;
            channel.enter(Stage::Online, "output");
            let mut done = None;
            let bytes = loop {
                match channel.recv_message("an answer", MAX_MESSAGE)? {
                    // Ascending, so there are at most 1001 of them.
                    Reply::Progress { thousandths } if thousandths <= 1000 && done < Some(thousandths) => {
                        done = Some(thousandths);
                        progress(thousandths);
                    }
                    Reply::Progress { thousandths } => {
                        let text =
                            format!("progress of {thousandths} thousandths after {:?}", done.unwrap_or(0));
                        return Err(EngineError::PeerMisbehaved(text));
                    }
                    Reply::Output { bytes } => break bytes,
                    Reply::Failed { reason } => {
                        let shown: String =
                            reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
                        let name = connected.protocol.name().to_owned();
                        return Err(EngineError::Protocol { name, reason: format!("the server: {shown}") });
                    }
                    Reply::Unknown => return Err(EngineError::NoAnswer),
                }
            };
            let most = connected.protocol.max_output_bytes();
            if bytes > most {
                return Err(EngineError::PeerMisbehaved(format!(
                    "an output of {bytes} bytes (at most {most})"
                )));
            }
            let output = connected.channel.recv(bytes as usize)?;
            let values = connected.protocol(|protocol| protocol.decrypt(&output))?;
            connected.channel.send_message(&Request::Received { ticket })?;
            connected.channel.flush()?;
            Ok(values)
        })?;
        Ok((values, Ready(self.connected)))
    }
}
