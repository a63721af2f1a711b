//! A buffered, counted, length-checked byte stream between the two parties.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, SystemClock};
use crate::{Transport, WireError, pack};

/// The stages of a session: what needs no client, no query, no input, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Agreeing on version, parameters and plan, and fetching the model's public part.
    Model,
    /// Once per client: base OTs and the hint.
    Client,
    /// Offline: once per query, before the input is known.
    Offline,
    /// Online: once per query, with the input.
    Online,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "model",
            Self::Client => "client",
            Self::Offline => "offline",
            Self::Online => "online",
        })
    }
}

/// Bytes, rounds and waiting time under one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Payload bytes sent (framing not counted).
    pub sent: u64,
    /// Payload bytes received.
    pub received: u64,
    /// How often this party waited for an answer after having sent (or at the very first read).
    pub rounds: u64,
    /// Time spent waiting in `recv`.
    pub waited: Duration,
}

impl Traffic {
    /// Adds another label's figures to these.
    pub fn add(&mut self, other: &Traffic) {
        self.sent += other.sent;
        self.received += other.received;
        self.rounds += other.rounds;
        self.waited += other.waited;
    }
}

/// Traffic by stage and label.
pub type Stats = BTreeMap<(Stage, String), Traffic>;

/// When a party waited for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Since when, on the channel's clock.
    pub start: Duration,
    /// How long the wait took.
    pub length: Duration,
}

/// One party's end of the conversation.
pub struct Channel {
    transport: Box<dyn Transport>,
    clock: Arc<dyn Clock>,
    /// Sent by the protocol, not yet given to the transport.
    out: Vec<u8>,
    /// Came from the transport, not yet read by the protocol: `input[read..]`.
    input: Vec<u8>,
    read: usize,
    /// Came behind it.
    later: VecDeque<Vec<u8>>,
    /// Of a stretch: what is sent stays in `out`.
    holds: bool,
    /// Whether anything was sent since the last wait (so that the next wait is a new round).
    turn: bool,
    stats: Stats,
    key: (Stage, String),
    current: Traffic,
    waited: Duration,
    /// The single waits, if somebody wants to know.
    waits: Option<Vec<Wait>>,
    /// How long a single wait may last.
    patience: Option<Duration>,
}

/// Shorter waits are not kept one by one.
const SHORT_WAIT: Duration = Duration::from_micros(50);

/// How many waits are kept: bounds what a timeline takes in memory and in messages.
const MAX_WAITS: usize = 1 << 15;

/// Buffered output is handed to the transport at the latest when it has grown to this many bytes.
const FLUSH_AT: usize = 1 << 18;

/// Memory is reserved for at most this many bytes ahead of what the peer has really sent.
const TRUSTED_RESERVE: usize = 1 << 20;

impl Channel {
    /// A channel over `transport`, counting under [`Stage::Model`] and the label `"handshake"`.
    pub fn new(transport: impl Transport + 'static) -> Self {
        Self::with_clock(transport, Arc::new(SystemClock))
    }

    /// As [`new`](Self::new); everything that this session measures is measured with `clock`.
    pub fn with_clock(transport: impl Transport + 'static, clock: Arc<dyn Clock>) -> Self {
        Self {
            transport: Box::new(transport),
            clock,
            out: Vec::new(),
            input: Vec::new(),
            read: 0,
            later: VecDeque::new(),
            holds: false,
            turn: true,
            stats: Stats::new(),
            key: (Stage::Model, "handshake".into()),
            current: Traffic::default(),
            waited: Duration::ZERO,
            waits: None,
            patience: None,
        }
    }

    /// The clock of this session.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Counts everything from here on under `stage` and `label`.
    pub fn enter(&mut self, stage: Stage, label: &str) {
        self.close_label();
        self.key = (stage, label.to_owned());
    }

    /// What the session is at, as errors name it: `online: 0003 relu`.
    pub fn step(&self) -> String {
        name(&self.key)
    }

    fn close_label(&mut self) {
        if self.current != Traffic::default() {
            self.stats.entry(self.key.clone()).or_default().add(&self.current);
            self.current = Traffic::default();
        }
    }

    /// The figures up to now, by stage and label.
    pub fn stats(&mut self) -> &Stats {
        self.close_label();
        &self.stats
    }

    /// Time spent waiting for the peer since the channel was made.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Keeps from here on when this party waits, until [`take_waits`](Self::take_waits): the first 2^15 waits of 50 µs or more.
    pub fn log_waits(&mut self) {
        self.waits = Some(Vec::new());
    }

    /// The waits since [`log_waits`](Self::log_waits), in order; nothing is kept any more.
    pub fn take_waits(&mut self) -> Vec<Wait> {
        self.waits.take().unwrap_or_default()
    }

    /// Takes the figures and starts counting anew.
    pub fn take_stats(&mut self) -> Stats {
        self.close_label();
        std::mem::take(&mut self.stats)
    }

    /// Everything since the last `take_stats`, added up.
    pub fn total(&mut self) -> Traffic {
        let mut all = Traffic::default();
        self.stats().values().for_each(|t| all.add(t));
        all
    }

    /// Sends `bytes` (buffered until the next flush or read).
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.current.sent += bytes.len() as u64;
        self.turn = true;
        self.out.extend_from_slice(bytes);
        if self.out.len() >= FLUSH_AT { self.flush() } else { Ok(()) }
    }

    /// As [`send`](Self::send), for bytes that answer nothing and that the peer need not answer: a stream that runs in one
    /// direction begins no round.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_ahead(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let turn = self.turn;
        let result = self.send(bytes);
        self.turn = turn;
        result
    }

    /// Runs `f`, part of a conversation that goes alongside another and waits when that does: its messages begin no round of
    /// their own.
    pub fn alongside<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let turn = std::mem::take(&mut self.turn);
        let result = f(self);
        self.turn = turn;
        result
    }

    /// From here on this party counts as having sent something that it waits for an answer to (what it sent
    /// [`alongside`](Self::alongside) another conversation, say), or as having sent nothing.
    pub fn set_turn(&mut self, sent: bool) {
        self.turn = sent;
    }

    /// Hands everything buffered to the transport.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn flush(&mut self) -> Result<(), WireError> {
        if self.out.is_empty() || self.holds {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.out);
        self.transport.send(chunk).map_err(|e| e.during(name(&self.key)))
    }

    /// From here on a single wait for the peer lasts at most `patience` ([`WireError::Idle`] then), also if the peer's process
    /// lives; without it, as long as the transport waits.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    /// Flushes, and waits for at most `time` until there is something to receive. Says whether there is.
    ///
    /// # Errors
    /// When the peer has gone or is silent.
    pub fn wait_for_input(&mut self, time: Duration) -> Result<bool, WireError> {
        self.flush()?;
        if self.read < self.input.len() || !self.later.is_empty() {
            return Ok(true);
        }
        let arrived = self.transport.recv_within(time).map_err(|e| e.during(name(&self.key)))?;
        let Some(chunk) = arrived.filter(|chunk| !chunk.is_empty()) else { return Ok(false) };
        (self.input, self.read) = (chunk, 0);
        Ok(true)
    }

    /// Waits for the next chunk, everything before it having been read.
    fn wait(&mut self) -> Result<(), WireError> {
        self.flush()?;
        if std::mem::take(&mut self.turn) {
            self.current.rounds += 1;
        }
        debug_assert_eq!(self.read, self.input.len(), "waits only when nothing is left to read");
        if let Some(chunk) = self.later.pop_front() {
            (self.input, self.read) = (chunk, 0);
            return Ok(());
        }
        let start = self.clock.now();
        let arrived = match self.patience {
            None => self.transport.recv(),
            Some(patience) => self
                .transport
                .recv_within(patience)
                .and_then(|chunk| chunk.ok_or_else(|| WireError::idle(patience))),
        };
        self.input = arrived.map_err(|e| e.during(name(&self.key)))?;
        let waited = self.clock.now().saturating_sub(start);
        self.current.waited += waited;
        self.waited += waited;
        if let Some(waits) = self.waits.as_mut().filter(|w| w.len() < MAX_WAITS && waited >= SHORT_WAIT) {
            waits.push(Wait { start, length: waited });
        }
        self.read = 0;
        Ok(())
    }

    /// Whether the next `n` bytes are there, so that to receive them does not wait. Flushes nothing.
    ///
    /// # Errors
    /// When the peer has gone or is silent.
    pub fn has_arrived(&mut self, n: usize) -> Result<bool, WireError> {
        let mut there = self.input.len() - self.read + self.later.iter().map(Vec::len).sum::<usize>();
        while there < n {
            let arrived = self.transport.recv_within(Duration::ZERO);
            let Some(chunk) = arrived.map_err(|e| e.during(name(&self.key)))? else { return Ok(false) };
            there += chunk.len();
            self.later.push_back(chunk);
        }
        Ok(true)
    }

    /// A stretch of this conversation, for another thread: there is `input` to read and nothing behind it, and what is sent is held
    /// until [`into_sent`](Self::into_sent). This channel has counted the input; [`send_held`](Self::send_held) counts the rest.
    #[must_use]
    pub fn stretch(&self, input: Vec<u8>) -> Self {
        let mut stretch = Self::with_clock(Nowhere, Arc::clone(&self.clock));
        stretch.key = self.key.clone();
        (stretch.input, stretch.holds, stretch.turn) = (input, true, false);
        stretch
    }

    /// What was sent on a [`stretch`](Self::stretch).
    ///
    /// # Panics
    /// When not all of its input was read, which would be read by nobody.
    #[must_use]
    pub fn into_sent(mut self) -> Vec<u8> {
        assert_eq!(self.read, self.input.len(), "a stretch reads all that was received for it");
        std::mem::take(&mut self.out)
    }

    /// As [`send`](Self::send), of what was sent on a stretch.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_held(&mut self, bytes: Vec<u8>) -> Result<(), WireError> {
        if !self.out.is_empty() || bytes.is_empty() {
            return if bytes.is_empty() { Ok(()) } else { self.send(&bytes) };
        }
        self.current.sent += bytes.len() as u64;
        self.turn = true;
        self.out = bytes;
        if self.out.len() >= FLUSH_AT { self.flush() } else { Ok(()) }
    }

    /// Fills `buf` from the peer, after a flush.
    ///
    /// # Errors
    /// When the peer has gone or is silent.
    pub fn recv_into(&mut self, mut buf: &mut [u8]) -> Result<(), WireError> {
        self.flush()?;
        self.current.received += buf.len() as u64;
        while !buf.is_empty() {
            if self.read == self.input.len() {
                self.wait()?;
                continue;
            }
            let n = buf.len().min(self.input.len() - self.read);
            let (head, tail) = buf.split_at_mut(n);
            head.copy_from_slice(&self.input[self.read..self.read + n]);
            self.read += n;
            buf = tail;
        }
        Ok(())
    }

    /// Receives `n` bytes. Memory grows only as bytes really arrive.
    ///
    /// # Errors
    /// When the peer has gone or is silent.
    pub fn recv(&mut self, n: usize) -> Result<Vec<u8>, WireError> {
        if n > 0 {
            self.flush()?;
            if self.read == self.input.len() {
                self.wait()?;
            }
            if self.read == 0 && self.input.len() == n {
                // A whole chunk is handed on as it came.
                self.current.received += n as u64;
                return Ok(std::mem::take(&mut self.input));
            }
        }
        let mut buf = Vec::new();
        while buf.len() < n {
            let start = buf.len();
            buf.resize(n.min(start + TRUSTED_RESERVE), 0);
            self.recv_into(&mut buf[start..])?;
        }
        Ok(buf)
    }

    /// Sends a control message, with its length in front.
    ///
    /// # Errors
    /// When the connection is gone.
    ///
    /// # Panics
    /// When `message` cannot be serialised, which plain data always can.
    pub fn send_message<T: Serialize>(&mut self, message: &T) -> Result<(), WireError> {
        let bytes = encode(message);
        self.send(&u32::try_from(bytes.len()).expect("control messages are small").to_le_bytes())?;
        self.send(&bytes)
    }

    /// Receives a control message of at most `max` bytes.
    ///
    /// # Errors
    /// When the peer has gone, announces more than `max` bytes, or sends something else than a `T`.
    pub fn recv_message<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        max: usize,
    ) -> Result<T, WireError> {
        self.recv_message_as(what, max, whole)
    }

    /// [`recv_message`](Self::recv_message) of what only `read` can make of bytes, because it must know more than the type.
    ///
    /// # Errors
    /// The same; what `read` says is wrong with the bytes.
    pub fn recv_message_as<T, E: std::fmt::Display>(
        &mut self,
        what: &'static str,
        max: usize,
        read: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, WireError> {
        let mut len = [0; 4];
        self.recv_into(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > max {
            let error = WireError::misbehaved(what, format!("{len} bytes"), format!("at most {max} bytes"));
            return Err(error.during(self.step()));
        }
        read(&self.recv(len)?).map_err(|e| ill_formed(what, e).during(self.step()))
    }

    /// Sends the low `bits` bits of every value, packed without gaps. `bits` in 1..=64.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_packed(&mut self, values: &[u64], bits: u32) -> Result<(), WireError> {
        self.send(&pack::pack(values, bits))
    }

    /// Receives `count` values of `bits` bits each, packed without gaps.
    ///
    /// # Errors
    /// When the peer has gone or is silent.
    pub fn recv_packed(&mut self, count: usize, bits: u32) -> Result<Vec<u64>, WireError> {
        let bytes = self.recv(pack::packed_len(count, bits))?;
        Ok(pack::unpack(&bytes, count, bits))
    }

    /// Tells the peer why this side gives up. The channel is of no use afterwards.
    pub fn abort(&mut self, reason: &str) {
        let _ = self.flush();
        self.transport.abort(reason);
    }

    /// Tells the peer why this side does not do it for now: it may come back later. The channel is of no use afterwards.
    pub fn put_off(&mut self, reason: &str) {
        let _ = self.flush();
        self.transport.put_off(reason);
    }
}

/// The transport of a stretch, which is never asked for anything: who follows its protocol reads no more than was received for it.
struct Nowhere;

impl Nowhere {
    fn nothing<T>() -> Result<T, WireError> {
        Err(WireError::Closed { waiting_for: "what was not received for this step".into() })
    }
}

impl Transport for Nowhere {
    fn send(&mut self, _: Vec<u8>) -> Result<(), WireError> {
        Self::nothing()
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        Self::nothing()
    }

    fn recv_within(&mut self, _: Duration) -> Result<Option<Vec<u8>>, WireError> {
        Self::nothing()
    }

    fn put_off(&mut self, _: &str) {}
}

/// A message's bytes, without their length.
///
/// # Panics
/// As [`Channel::send_message`].
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("plain data serialises")
}

/// Reads a message that came as bytes. `what` names it in the error.
///
/// # Errors
/// When the bytes are no `T`, or more than one.
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, WireError> {
    whole(bytes).map_err(|e| ill_formed(what, e))
}

/// A message, and nothing behind it.
fn whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|e| e.to_string())?;
    if rest.is_empty() { Ok(message) } else { Err(format!("{} bytes behind it", rest.len())) }
}

fn ill_formed(what: &'static str, why: impl std::fmt::Display) -> WireError {
    WireError::misbehaved(what, why, "a well-formed message")
}

/// How an error names what the session was at: `online: relu 3`.
fn name((stage, label): &(Stage, String)) -> String {
    format!("{stage}: {label}")
}

impl Drop for Channel {
    /// A party whose last act is to send has nothing left to read that would flush it. Errors are nobody's
    /// concern any more; a party that failed midway sends nothing further.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.flush();
        }
    }
}
