//! The server's side of one-round sessions.

use std::sync::Arc;

use jaguar_bundle::ModelId;
use jaguar_ring::prg::os_random;
use jaguar_wire::{Channel, Stage};

use super::Ticket;
use super::message::{Have, KEY_CHUNK, MAX_MESSAGE, MAX_REASON, Reply, Request};
use super::stores::{Answer, Answers, KeyStore, Keys};
use crate::error::EngineError;
use crate::handshake::{self, MAX_PARAMETERS, ONE_ROUND, ProtocolName};

/// Bytes of each thing that a client sends or gets, at most.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of the evaluation keys. A session holds them in memory.
    pub keys: u64,
    /// Of an encrypted input.
    pub input: u64,
    /// Of an encrypted output.
    pub output: u64,
}

/// What a server keeps of all its clients together, at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of keys between sessions.
    pub keys_bytes: u64,
    /// Answers that are computed or wait to be collected.
    pub answers: usize,
    /// Bytes of outputs that wait to be collected. (The newest output may exceed it alone.)
    pub answers_bytes: u64,
}

impl Default for Limits {
    /// 4 GiB of keys, 64 answers, 256 MiB of outputs.
    fn default() -> Self {
        Self { keys_bytes: 4 << 30, answers: 64, answers_bytes: 256 << 20 }
    }
}

/// A one-round protocol for one model, as its server needs it: for any number of clients.
///
/// Errors are sentences that the client is told.
pub trait Protocol: Send + Sync {
    /// The protocol's name: at most 64 lower-case letters, digits and hyphens.
    fn name(&self) -> &str;

    /// Its version: both sides must have the same.
    fn version(&self) -> u32;

    /// What a client must know: public, at most 512 KiB.
    fn parameters(&self) -> Vec<u8>;

    /// What passes, at most.
    fn sizes(&self) -> Sizes;

    /// Takes a client's evaluation keys, which may be any bytes of the announced length.
    ///
    /// # Errors
    /// When they are malformed.
    fn open(&self, keys: Arc<[u8]>) -> Result<Box<dyn Evaluator>, String>;
}

/// Computes answers for one client.
pub trait Evaluator {
    /// Computes the encrypted output for an encrypted input, which may be any bytes. `progress` takes how much of how much is done.
    ///
    /// # Errors
    /// When the input is malformed.
    fn answer(&mut self, input: &[u8], progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<u8>, String>;
}

/// One-round protocols that are offered for a model, and what is kept for their clients.
pub struct Service {
    model: ModelId,
    offers: Vec<Offered>,
    limits: Limits,
}

struct Offered {
    protocol: Box<dyn Protocol>,
    keys: KeyStore,
    answers: Answers,
}

impl Service {
    /// Offers nothing yet. `model` is the model's public name.
    pub fn new(model: ModelId, limits: Limits) -> Self {
        Self { model, offers: Vec::new(), limits }
    }

    /// Offers a protocol. Each has the limits for itself.
    ///
    /// # Errors
    /// When its name or its parameters cannot be offered.
    pub fn with(mut self, protocol: Box<dyn Protocol>) -> Result<Self, EngineError> {
        let parameters = protocol.parameters().len();
        if !handshake::is_name(protocol.name()) || parameters > MAX_PARAMETERS {
            return Err(EngineError::Input(format!(
                "the protocol {:?} with {parameters} bytes of parameters (at most {MAX_PARAMETERS}) cannot be offered",
                protocol.name()
            )));
        }
        let Limits { keys_bytes, answers, answers_bytes } = self.limits;
        let (keys, answers) = (KeyStore::new(keys_bytes), Answers::new(answers, answers_bytes));
        self.offers.push(Offered { protocol, keys, answers });
        Ok(self)
    }

    /// Serves one client until it leaves. The network stays hidden: what a client must know is in the protocol's parameters.
    ///
    /// # Errors
    /// When the connection fails or the client breaks the protocol. The client is told; other clients are not concerned.
    pub fn serve(&self, mut channel: Channel) -> Result<(), EngineError> {
        let mut session = || -> Result<(), EngineError> {
            let index = handshake::server::answer(&mut channel, self.model, &self.protocols(), None)?;
            self.serve_chosen(index, &mut channel)
        };
        let result = session();
        result.inspect_err(|e| channel.abort(&e.for_peer()))
    }

    /// What the handshake offers.
    pub(crate) fn protocols(&self) -> Vec<handshake::Protocol> {
        let offer = |Offered { protocol, .. }: &Offered| {
            let name = ProtocolName { kind: ONE_ROUND, name: protocol.name(), version: protocol.version() };
            handshake::Protocol::new(name, protocol.parameters())
        };
        self.offers.iter().map(offer).collect()
    }

    /// Serves a client that chose the protocol with this index.
    pub(crate) fn serve_chosen(&self, index: usize, channel: &mut Channel) -> Result<(), EngineError> {
        let offered = &self.offers[index];
        let mut evaluator = None;
        loop {
            channel.enter(Stage::Client, "request");
            match channel.recv_message("request", MAX_MESSAGE)? {
                Request::Leave => return Ok(()),
                Request::Keys { bytes, hash } => {
                    channel.enter(Stage::Client, "keys");
                    let keys = offered.receive_keys(channel, bytes, hash)?;
                    let opened = offered.protocol.open(keys);
                    evaluator = Some(opened.map_err(|e| EngineError::PeerMisbehaved(format!("keys: {e}")))?);
                    channel.send_message(&Have { bytes })?;
                    channel.flush()?;
                }
                Request::Input { bytes } => {
                    channel.enter(Stage::Online, "input");
                    let most = offered.protocol.sizes().input;
                    if bytes > most {
                        let text = format!("an input of {bytes} bytes (at most {most})");
                        return Err(EngineError::PeerMisbehaved(text));
                    }
                    let Some(evaluator) = &mut evaluator else {
                        return Err(EngineError::PeerMisbehaved("an input before the keys".into()));
                    };
                    let input = channel.recv(bytes as usize)?;
                    offered.answer(channel, &mut **evaluator, &input)?;
                }
                Request::Collect { ticket } => {
                    channel.enter(Stage::Online, "output");
                    offered.send_answer(channel, ticket)?;
                }
                Request::Received { ticket } => offered.answers.forget(ticket),
            }
        }
    }
}

impl Offered {
    /// Receives what is missing of a client's keys. The last receipt is the caller's, once the protocol has taken them.
    fn receive_keys(
        &self,
        channel: &mut Channel,
        bytes: u64,
        hash: [u8; 32],
    ) -> Result<Arc<[u8]>, EngineError> {
        let most = self.protocol.sizes().keys;
        if bytes > most {
            return Err(EngineError::PeerMisbehaved(format!("{bytes} bytes of keys (at most {most})")));
        }
        let mut keys = match self.keys.take(&hash) {
            Keys::Complete(keys) if keys.len() as u64 == bytes => return Ok(keys),
            Keys::Partial(keys) if (keys.len() as u64) < bytes => keys,
            // Of another length: they are not what was announced once, or now.
            _ => Vec::new(),
        };
        // Nothing is missing of no bytes.
        if bytes > 0 {
            channel.send_message(&Have { bytes: keys.len() as u64 })?;
        }
        let received = receive_chunks(channel, &mut keys, bytes);
        if let Err(e) = received {
            self.keys.put(hash, Keys::Partial(keys));
            return Err(e);
        }
        if *blake3::hash(&keys).as_bytes() != hash {
            return Err(EngineError::PeerMisbehaved("keys that do not match their hash".into()));
        }
        let keys: Arc<[u8]> = keys.into();
        self.keys.put(hash, Keys::Complete(Arc::clone(&keys)));
        Ok(keys)
    }

    /// Gives the client a ticket, and computes its answer. If the connection ends meanwhile, the answer is kept.
    fn answer(
        &self,
        channel: &mut Channel,
        evaluator: &mut dyn Evaluator,
        input: &[u8],
    ) -> Result<(), EngineError> {
        let Some(running) = self.answers.begin(Ticket(os_random())) else {
            return Err(EngineError::Busy);
        };
        let ticket = running.ticket;
        let mut connection = channel.send_message(&ticket).and_then(|()| channel.flush());
        channel.enter(Stage::Online, "output");
        let mut told = 0;
        let computed = evaluator.answer(input, &mut |done, total| {
            let thousandths = u128::from(done.min(total)) * 1000 / u128::from(total.max(1));
            let thousandths = thousandths as u16;
            if thousandths > told {
                told = thousandths;
                running.progress(thousandths);
                if connection.is_ok() {
                    let sent = channel.send_message(&Reply::Progress { thousandths });
                    connection = sent.and_then(|()| channel.flush());
                }
            }
        });
        let most = self.protocol.sizes().output;
        running.end(match computed {
            Ok(output) if output.len() as u64 <= most => Answer::Done(output.into()),
            Ok(output) => Answer::Failed(format!("an output of {} bytes (at most {most})", output.len())),
            Err(reason) => Answer::Failed(reason),
        });
        connection?;
        self.send_end(channel, self.answers.wait(ticket, None))
    }

    /// Sends an answer as it comes into being.
    fn send_answer(&self, channel: &mut Channel, ticket: Ticket) -> Result<(), EngineError> {
        let mut seen = None;
        loop {
            match self.answers.wait(ticket, seen) {
                Some(Answer::Running(thousandths)) => {
                    seen = Some(thousandths);
                    channel.send_message(&Reply::Progress { thousandths })?;
                    channel.flush()?;
                }
                end => return self.send_end(channel, end),
            }
        }
    }

    fn send_end(&self, channel: &mut Channel, answer: Option<Answer>) -> Result<(), EngineError> {
        match answer {
            Some(Answer::Done(output)) => {
                channel.send_message(&Reply::Output { bytes: output.len() as u64 })?;
                channel.send(&output)?;
            }
            Some(Answer::Failed(reason)) => {
                let end = reason.floor_char_boundary(MAX_REASON);
                channel.send_message(&Reply::Failed { reason: reason[..end].to_owned() })?;
            }
            Some(Answer::Running(_)) | None => channel.send_message(&Reply::Unknown)?,
        }
        Ok(channel.flush()?)
    }
}

/// Appends chunks to `keys` until there are `bytes` of them. What is appended matched its hash.
fn receive_chunks(channel: &mut Channel, keys: &mut Vec<u8>, bytes: u64) -> Result<(), EngineError> {
    while (keys.len() as u64) < bytes {
        let left = usize::try_from(bytes - keys.len() as u64).unwrap_or(usize::MAX);
        let chunk = channel.recv(left.min(KEY_CHUNK))?;
        let mut hash = [0; 32];
        channel.recv_into(&mut hash)?;
        if *blake3::hash(&chunk).as_bytes() != hash {
            let text = format!("the keys arrived damaged behind {} bytes", keys.len());
            return Err(EngineError::PeerMisbehaved(text));
        }
        keys.extend_from_slice(&chunk);
    }
    Ok(())
}
