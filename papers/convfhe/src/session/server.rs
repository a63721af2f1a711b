//! The server's side of one-round sessions.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use jaguar_engine::EngineError;
use jaguar_engine::one_round::{self, Notice};
use jaguar_engine::server::QueriesSpent;
use jaguar_graph::bundle::ModelId;
use jaguar_ring::prg::os_random;
use jaguar_wire::{Channel, Stage};

use super::desk::{Desk, Evaluation, Seen, Visit};
use super::limits::DeskLimits;
use super::message::{CHUNK, From, Have, MAX_MESSAGE, Reply, Request};
use super::store::{InUse, KeyStore, Receiving, StoreError};
use super::{NAME, Owner, Share, Terms, Ticket, VERSION};

/// What passes, in bytes. It follows from the parameter set.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of a client's evaluation keys.
    pub keys: u64,
    /// Bytes of an encrypted input.
    pub input: usize,
    /// Bytes of an encrypted answer.
    pub answer: usize,
}

/// A model that is evaluated on ciphertexts, for any number of clients, one evaluation at a time.
pub struct Service {
    model: ModelId,
    terms: Terms,
    parameters: Vec<u8>,
    sizes: Sizes,
    store: KeyStore,
    desk: Desk,
}

/// How long no part of the keys may come, if the connection has no shorter limit of its own.
const STALLED: Duration = Duration::from_secs(3600);

/// For how long a session waits for what an earlier one is giving up.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// How often a waiting session looks by itself how far its answer is.
const LOOK: Duration = Duration::from_secs(1);

/// How long a waiting session looks whether its client is still there.
const GLANCE: Duration = Duration::from_millis(1);

impl Service {
    /// Offers `model` under `terms`. Keys are kept in `store`; `log` hears what went wrong in evaluations.
    ///
    /// # Errors
    /// When the terms are too long to be offered, or what earlier servers kept cannot be read.
    pub fn new(
        (model, terms, sizes): (ModelId, Terms, Sizes),
        store: KeyStore,
        evaluation: Box<dyn Evaluation>,
        limits: DeskLimits,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Self, EngineError> {
        let parameters = jaguar_wire::encode(&terms);
        if parameters.len() > one_round::MAX_PARAMETERS {
            return Err(EngineError::Input(format!(
                "{} bytes of terms (labels, mostly) cannot be offered: at most {}",
                parameters.len(),
                one_round::MAX_PARAMETERS
            )));
        }
        let kept = (&store, model, [sizes.input, sizes.answer]);
        let desk = Desk::new(evaluation, kept, limits, log)?;
        Ok(Self { model, terms, parameters, sizes, store, desk })
    }

    /// The model's public name, which tells compiled models apart.
    pub fn model(&self) -> ModelId {
        self.model
    }

    /// The model, the set, and the limits that clients are offered.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// How many inputs wait, and how many answers wait for their clients.
    pub fn stock(&self) -> [usize; 2] {
        self.desk.stock()
    }

    /// Ends what is being computed; the next server begins it again. Who waits is told; nothing is computed any more.
    pub fn end(&self) {
        self.desk.end();
    }

    /// Serves one client until it leaves. `known` is who it is, if it has shown that; `address` where it comes from (none: over a Unix
    /// socket). Of an input for which there is a place, `count` says whether the client may have one more; if not, it is told why.
    ///
    /// # Errors
    /// When the connection fails, the client breaks the protocol, or it may have no more. The client is told; other clients are not
    /// concerned.
    pub fn serve(
        &self,
        mut channel: Channel,
        (known, address): (Option<Owner>, Option<IpAddr>),
        count: &dyn Fn() -> Result<(), QueriesSpent>,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<(), EngineError> {
        let share = known.map_or_else(|| Share::unknown(address), Share::known);
        let result = self.converse(&mut channel, (known, share), count, tell);
        result.inspect_err(|e| one_round::tell(&mut channel, e))
    }

    fn converse(
        &self,
        channel: &mut Channel,
        (known, share): (Option<Owner>, Share),
        count: &dyn Fn() -> Result<(), QueriesSpent>,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<(), EngineError> {
        one_round::offer(channel, self.model, (NAME, VERSION), &self.parameters)?;
        let mut client = [0; 32];
        channel.enter(Stage::Client, "client");
        channel.recv_into(&mut client)?;
        let owner = known.unwrap_or_else(|| Owner::unknown(&client));
        let mut keys: Option<(InUse, Visit<'_>)> = None;
        loop {
            channel.enter(Stage::Client, "request");
            channel.set_patience(None);
            let request = channel.recv_message("request", MAX_MESSAGE)?;
            channel.set_patience(Some(STALLED));
            match request {
                Request::Leave => return Ok(()),
                Request::Keys { bytes, hash } => {
                    channel.enter(Stage::Client, "keys");
                    drop(keys.take());
                    let (there, received) = self.receive_keys(channel, (owner, share), bytes, hash)?;
                    let visit = self.desk.visit(&there);
                    keys = Some((there, visit));
                    tell(Notice::Keys { bytes, received });
                }
                Request::Input { waits } => {
                    channel.enter(Stage::Online, "input");
                    let input = channel.recv(self.sizes.input)?;
                    let Some((keys, _)) = &keys else {
                        return Err(EngineError::PeerMisbehaved("an input before the keys".into()));
                    };
                    let ticket = Ticket(os_random());
                    let ahead = self.desk.ask(ticket, owner, (keys.clone(), input), count)?;
                    channel.send_message(&ticket)?;
                    channel.flush()?;
                    tell(Notice::Asked { ahead, stays: waits });
                    if waits {
                        self.send_answer(channel, owner, ticket, tell)?;
                    }
                }
                Request::Collect { ticket } => self.send_answer(channel, owner, ticket, tell)?,
                Request::Received { ticket } => self.desk.forget(ticket, owner),
            }
        }
    }

    /// Makes room for keys. What an evaluation had loaded is in use for a moment longer than the session it was for: that moment is
    /// waited for.
    fn room(&self, who: (Owner, Share), hash: [u8; 32], bytes: u64) -> Result<Receiving, StoreError> {
        let deadline = Instant::now() + GIVEN_UP;
        loop {
            match self.store.receive(who, hash, bytes) {
                Err(e) if e.is_for_now() && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10))
                }
                result => return result,
            }
        }
    }

    /// Receives what is missing of a client's keys, and says how many bytes that was.
    fn receive_keys(
        &self,
        channel: &mut Channel,
        (owner, share): (Owner, Share),
        bytes: u64,
        hash: [u8; 32],
    ) -> Result<(InUse, u64), EngineError> {
        if bytes != self.sizes.keys {
            return Err(EngineError::PeerMisbehaved(format!(
                "keys of {bytes} bytes; those of parameter set '{}' have {}",
                self.terms.set, self.sizes.keys
            )));
        }
        if let Some(there) = self.store.find(owner, hash) {
            channel.send_message(&Have { bytes, hash })?;
            channel.flush()?;
            return Ok((there, 0));
        }
        let mut receiving = self.room((owner, share), hash, bytes).map_err(told)?;
        channel.send_message(&Have { bytes: receiving.have(), hash: receiving.running() })?;
        let From { offset } = channel.recv_message("where the keys go on", MAX_MESSAGE)?;
        match offset {
            0 => receiving.restart().map_err(told)?,
            offset if offset == receiving.have() => {}
            offset => {
                let text =
                    format!("keys from byte {offset} on, where {} or 0 would be right", receiving.have());
                return Err(EngineError::PeerMisbehaved(text));
            }
        }
        let from = receiving.have();
        while receiving.have() < bytes {
            let left = usize::try_from(bytes - receiving.have()).unwrap_or(CHUNK);
            let chunk = channel.recv(left.min(CHUNK))?;
            let mut running = [0; 32];
            channel.recv_into(&mut running)?;
            receiving.append(&chunk, running).map_err(told)?;
        }
        let there = receiving.finish().map_err(told)?;
        channel.send_message(&Have { bytes, hash })?;
        channel.flush()?;
        Ok((there, bytes - from))
    }

    /// Says how an answer comes into being, and sends it.
    fn send_answer(
        &self,
        channel: &mut Channel,
        owner: Owner,
        ticket: Ticket,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<(), EngineError> {
        channel.enter(Stage::Online, "answer");
        let mut last = None;
        loop {
            let seen = self.desk.wait(ticket, owner, last.as_ref(), LOOK);
            let reply = match &seen {
                Seen::Ended(reason) => {
                    tell(Notice::NoAnswer);
                    return Err(EngineError::Refused(reason.clone()));
                }
                Seen::Queued(ahead) => Reply::Queued { ahead: u32::try_from(*ahead).unwrap_or(u32::MAX) },
                Seen::Running(done, of) => Reply::Running { done: *done, of: *of },
                Seen::Done(..) => Reply::Answer,
                Seen::Failed(reason) => Reply::Failed { reason: reason.clone() },
                Seen::Unknown => Reply::Unknown,
            };
            if last.as_ref() != Some(&seen) {
                channel.send_message(&reply)?;
            }
            match &seen {
                Seen::Done(answer, took) => {
                    debug_assert_eq!(answer.len(), self.sizes.answer, "the evaluation's length was checked");
                    channel.send(answer)?;
                    channel.flush()?;
                    tell(Notice::Answered { bytes: answer.len() as u64, took: *took });
                    return Ok(());
                }
                Seen::Failed(_) | Seen::Unknown | Seen::Ended(_) => {
                    channel.flush()?;
                    tell(Notice::NoAnswer);
                    return Ok(());
                }
                Seen::Queued(_) | Seen::Running(..) => {
                    // It has nothing to say now. If it is gone, its place is free at once; its answer comes into being all the same.
                    channel.wait_for_input(GLANCE)?;
                }
            }
            last = Some(seen);
        }
    }
}

/// What a client is told of its keys.
fn told(error: StoreError) -> EngineError {
    match error {
        StoreError::Misbehaved(text) => EngineError::PeerMisbehaved(text),
        error if error.is_for_now() => EngineError::Later(error.for_client()),
        error => EngineError::Refused(error.for_client()),
    }
}
