//! The transport over any [`ByteStream`]: framed chunks, signs of life, and an orderly end.
//!
//! A connection begins with a greeting (`greeting.rs`); then come frames (`frame.rs`): data, keep-alives (sent when
//! nothing else was for [`Options::keep_alive`]), and at the end an abort, if there is one. Who connected and said that it would wait
//! for a place is told first, as often as that changes, which one it has in the line, and then that it is served.
//!
//! **Threads.** A connection has a writer and a reader thread with a queue each, bounded by
//! [`Options::queue`] bytes. So `send` does not wait for the peer, data arrives while this side computes, and
//! a party that computes for minutes still gives signs of life: only a peer that was stopped or cut off is
//! *silent*. A keep-alive shows that the peer's process lives, not that it makes progress.
//!
//! **Blame.** [`WireError::Closed`] after an end of stream or a reset, [`WireError::Silent`] after
//! [`Options::silence`] without any frame, [`WireError::Idle`] after [`Options::stalled`] in which a peer that lives took
//! nothing of what is queued for it, [`WireError::PeerAborted`] or [`WireError::PeerBusy`] with the peer's reason,
//! [`WireError::PeerMisbehaved`] for frames that break the rules above (the peer is told). What arrived in order
//! before the end is still delivered first.
//!
//! Nothing here is encrypted or authenticated: that is the stream's part.

use std::collections::VecDeque;
use std::io::{self, BufReader, ErrorKind, IoSlice, Read};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::error::{io_error, is_closed};
use crate::frame::{self, BadHead, Farewell, FrameKind, HEAD, MAX_DATA, Queued};
use crate::greeting::{Caller, Introduction, greet_back, greet_first};
use crate::stream::{ByteStream, Handle, is_timeout};
use crate::time::Instant;
use crate::{Transport, WireError};

/// Bookkeeping that a queued chunk costs beside its bytes; without it, a flood of tiny frames would take
/// many times the memory that the queue's bound promises.
const CHUNK_OVERHEAD: usize = 64;

/// How often who waits for a place looks whether it should go on.
const LOOK: Duration = Duration::from_millis(100);

/// How long the end of a connection waits for the peer to close its side as well.
const FAREWELL: Duration = Duration::from_secs(2);

/// How patient a connection is and how much it queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// A peer from which no frame came for so long is given up. Must be several times its `keep_alive`.
    pub silence: Duration,
    /// When nothing else was sent for so long, a keep-alive is.
    pub keep_alive: Duration,
    /// How long connecting over TCP tries each of an address's resolutions.
    pub connect: Duration,
    /// How long the peer has for its greeting.
    pub greeting: Duration,
    /// How long dropping a connection may take to send what is still queued.
    pub linger: Duration,
    /// Bytes that either queue (sent, not yet taken by the peer; arrived, not yet read) may hold. `send`
    /// blocks beyond it; what would arrive beyond it stays in the network.
    pub queue: usize,
    /// How long `send` blocks on a peer that lives and takes nothing. (A peer that computes takes as much as its queue holds.)
    pub stalled: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(15),
            keep_alive: Duration::from_secs(1),
            connect: Duration::from_secs(10),
            greeting: Duration::from_secs(5),
            linger: Duration::from_secs(30),
            queue: 256 << 20,
            stalled: Duration::from_secs(900),
        }
    }
}

impl Options {
    /// How often a blocked read or write looks whether it should go on.
    fn tick(&self) -> Duration {
        (self.silence / 8).clamp(Duration::from_millis(5), Duration::from_millis(250))
    }
}

/// Who came to [`Framed::accept_any`].
pub enum Came {
    /// A Jaguar, with the token that it introduced itself with.
    Greeted(Framed, Zeroizing<Vec<u8>>),
    /// Who asks for something by HTTP's `GET`: the stream, of which these first bytes are read.
    Http(Box<dyn ByteStream>, Vec<u8>),
}

/// A greeted connection.
pub struct Framed {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Framed {
    /// Greets over `stream`, which this side has connected to `peer` (its address, for messages).
    ///
    /// # Errors
    /// When the peer is no Jaguar of this wire version, says nothing, or is gone, or is not at the other end of this very
    /// TLS connection. The error names it.
    pub fn connect(stream: Box<dyn ByteStream>, peer: String, options: Options) -> Result<Self, WireError> {
        Self::connect_as(stream, peer, &Introduction::default(), options)
    }

    /// [`connect`](Self::connect), and says who connects.
    ///
    /// # Errors
    /// As `connect`.
    pub fn connect_as(
        stream: Box<dyn ByteStream>,
        peer: String,
        introduction: &Introduction<'_>,
        options: Options,
    ) -> Result<Self, WireError> {
        greet_first(&*stream, &peer, introduction, options.greeting)?;
        let line = if introduction.wait > 0 { Line::Waits(None) } else { Line::None };
        Self::start(stream, peer, options, line)
    }

    /// Waits for the greeting of `peer` over `stream`, which this side has accepted, and answers it.
    ///
    /// # Errors
    /// When the peer is no Jaguar or one of another wire version (it is told), says nothing, is gone, or is not at the
    /// other end of this very TLS connection.
    pub fn accept(stream: Box<dyn ByteStream>, peer: String, options: Options) -> Result<Self, WireError> {
        Self::accept_introduced(stream, peer, options).map(|(connection, _)| connection)
    }

    /// [`accept`](Self::accept), with the token that the peer introduced itself with (empty: none), which nobody has looked at.
    ///
    /// # Errors
    /// As `accept`.
    pub fn accept_introduced(
        stream: Box<dyn ByteStream>,
        peer: String,
        options: Options,
    ) -> Result<(Self, Zeroizing<Vec<u8>>), WireError> {
        match greet_back(&*stream, &peer, options.greeting, false)? {
            Caller::Jaguar(token, wait) => {
                Ok((Self::start(stream, peer, options, Line::would_wait(wait))?, token))
            }
            Caller::Http(_) => unreachable!("refused where it is not asked for"),
        }
    }

    /// [`accept_introduced`](Self::accept_introduced), where the peer may also open a WebSocket before it greets.
    ///
    /// # Errors
    /// As `accept`.
    pub fn accept_any(
        stream: Box<dyn ByteStream>,
        peer: String,
        options: Options,
    ) -> Result<Came, WireError> {
        Ok(match greet_back(&*stream, &peer, options.greeting, true)? {
            Caller::Jaguar(token, wait) => {
                Came::Greeted(Self::start(stream, peer, options, Line::would_wait(wait))?, token)
            }
            Caller::Http(first) => Came::Http(stream, first),
        })
    }

    /// The peer's name as it was given.
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// Waits for at most `time` until the network has taken all that was sent. Says whether it has.
    pub fn drained(&self, time: Duration) -> bool {
        let waiting = |s: &mut State| s.outbox_cost > 0 && s.incoming.is_none() && s.outgoing.is_none();
        let state = self.shared.lock();
        self.shared.changed.wait_while(state, time, waiting).outbox_cost == 0
    }

    /// How long the peer, which connected, would wait for a place.
    pub fn would_wait(&self) -> Duration {
        match self.shared.lock().line {
            Line::WouldWait { seconds, .. } => Duration::from_secs(seconds.into()),
            Line::None | Line::Waits(_) => Duration::ZERO,
        }
    }

    /// Tells the peer, which connected and [would wait](Self::would_wait), which place it has in the line. With [`Queued::SERVED`] its
    /// wait is over; nothing is told behind that. A peer that would not wait is told nothing.
    pub fn tell_place(&self, place: Queued) {
        let mut state = self.shared.lock();
        if let Line::WouldWait { seconds, tell } = &mut state.line
            && *seconds > 0
        {
            *tell = Some(place);
            if place == Queued::SERVED {
                *seconds = 0;
            }
            drop(state);
            self.shared.queued.notify();
        }
    }

    /// Whether the peer is still there.
    ///
    /// # Errors
    /// Why it is not.
    pub fn is_there(&self) -> Result<(), WireError> {
        let state = self.shared.lock();
        state.incoming.as_ref().or(state.outgoing.as_ref()).map_or(Ok(()), |why| Err(why.error("waiting")))
    }

    /// Waits until the peer, to which this side said that it would wait, says that it is served. `hear` is called with each place that
    /// the peer tells, and with none several times a second: if it says no, the wait is over.
    ///
    /// # Errors
    /// When the peer refuses, is gone, says nothing of it for longer than `patience`, or the wait is over.
    pub fn wait_for_place(
        &mut self,
        patience: Duration,
        hear: &mut dyn FnMut(Option<Queued>) -> bool,
    ) -> Result<(), WireError> {
        let start = Instant::now();
        loop {
            let mut state = self.shared.lock();
            let told = match &mut state.line {
                Line::Waits(told) => told.take(),
                Line::None | Line::WouldWait { .. } => return Ok(()),
            };
            if told == Some(Queued::SERVED) {
                state.line = Line::None;
                return Ok(());
            }
            if told.is_none() {
                if let Some(failure) = &state.incoming {
                    return Err(failure.error("waiting for a place"));
                }
                if start.elapsed() >= patience {
                    return Err(WireError::Idle { patience, waiting_for: "waiting for a place".into() });
                }
                drop(self.shared.changed.wait(state, LOOK));
            } else {
                drop(state);
            }
            if !hear(told) {
                let source = io::Error::new(ErrorKind::Interrupted, "this side was asked to stop");
                return Err(io_error("waiting for a place".into(), source));
            }
        }
    }

    fn start(
        stream: Box<dyn ByteStream>,
        peer: String,
        options: Options,
        line: Line,
    ) -> Result<Self, WireError> {
        let tick = options.tick();
        let set = stream.set_read_timeout(tick).and_then(|()| stream.set_write_timeout(tick));
        set.map_err(|e| io_error(format!("setting up the connection with {peer}"), e))?;
        let shared = Arc::new(Shared {
            stream,
            peer,
            options,
            state: Mutex::new(State { line, ..State::default() }),
            queued: Signal::default(),
            taken: Signal::default(),
            arrived: Signal::default(),
            changed: Signal::default(),
        });
        // If the second thread cannot be started, dropping `framed` ends the first.
        let mut framed = Self { shared, threads: Vec::new() };
        for (name, run) in [("wire-writer", Shared::write as fn(&Shared)), ("wire-reader", Shared::read)] {
            let shared = Arc::clone(&framed.shared);
            let thread = Builder::new()
                .name(name.into())
                .spawn(move || run(&shared))
                .map_err(|e| io_error(format!("starting the thread {name}"), e))?;
            framed.threads.push(thread);
        }
        Ok(framed)
    }

    fn give_up(&mut self, farewell: Farewell) {
        let mut state = self.shared.lock();
        if state.incoming.is_none() {
            state.goodbye = state.outgoing.is_none().then_some(farewell);
            state.incoming = Some(Failure::GaveUp);
        }
        state.clear_outbox();
        state.inbox.clear();
        state.inbox_cost = 0;
        drop(state);
        self.end(Instant::now() + FAREWELL);
    }

    /// Waits until both threads are through or `deadline` is over, then ends them.
    fn end(&mut self, deadline: Instant) {
        let shared = &self.shared;
        let mut state = shared.lock();
        state.closing.get_or_insert(deadline);
        shared.wake_all();
        let threads = self.threads.len();
        let mut written = None;
        while state.ended < threads {
            let now = Instant::now();
            // Once everything is written, all that is left is the peer's own end of stream.
            if state.writer_ended && written.is_none() {
                written = Some(now + FAREWELL);
            }
            let until = written.map_or(deadline, |w| w.min(deadline));
            if now >= until {
                break;
            }
            state = shared.changed.wait(state, until - now).0;
        }
        state.closing = Some(Instant::now());
        drop(state);
        shared.wake_all();
        let _ = shared.stream.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Transport for Framed {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        if chunk.is_empty() {
            return Ok(());
        }
        let Shared { options, queued, changed, .. } = &*self.shared;
        let cost = chunk.len() + CHUNK_OVERHEAD;
        let mut state = self.shared.lock();
        let mut progress = (state.written, Instant::now());
        let mut taken = progress;
        loop {
            if state.outgoing.is_some() && state.incoming.is_none() {
                // A write failed. What the peer said before it closed may still be on its way through the
                // reader, and is the better answer.
                let patience = FAREWELL.min(options.silence);
                let open = |s: &mut State| s.incoming.is_none() && s.inbox_cost < options.queue;
                state = changed.wait_while(state, patience, open);
            }
            if let Some(failure) = state.incoming.as_ref().or(state.outgoing.as_ref()) {
                return Err(failure.error("sending"));
            }
            // A chunk larger than the whole queue passes when the queue is empty.
            if state.outbox_cost == 0 || state.outbox_cost + cost <= options.queue {
                state.outbox_cost += cost;
                state.outbox.push_back(chunk);
                drop(state);
                queued.notify();
                return Ok(());
            }
            // Nor need it be dead: one that lives may hold what is queued here for as long as it likes.
            if state.written != taken.0 {
                taken = (state.written, Instant::now());
            } else if taken.1.elapsed() >= options.stalled {
                let failure = Failure::Idle(options.stalled);
                let error = failure.error("sending (it takes nothing)");
                state.incoming = Some(failure);
                state.clear_outbox();
                return Err(error);
            }
            // The reader notices a peer that died, unless the inbox is full: then nobody reads on either
            // side, and only the lack of progress tells.
            if state.written != progress.0 || state.inbox_cost < options.queue {
                progress = (state.written, Instant::now());
            } else if progress.1.elapsed() >= options.silence {
                let failure = Failure::Silent(options.silence);
                let error = failure.error("sending (both queues are full)");
                state.incoming = Some(failure);
                state.clear_outbox();
                return Err(error);
            }
            state = changed.wait(state, options.tick()).0;
        }
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        loop {
            if let Some(chunk) = self.recv_within(Duration::from_secs(3600))? {
                return Ok(chunk);
            }
        }
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        let Shared { taken, arrived, .. } = &*self.shared;
        let start = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(chunk) = state.inbox.pop_front() {
                state.inbox_cost -= chunk.len() + CHUNK_OVERHEAD;
                drop(state);
                taken.notify();
                return Ok(Some(chunk));
            }
            if let Some(failure) = &state.incoming {
                return Err(failure.error("receiving"));
            }
            let Some(left) = time.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(None);
            };
            state = arrived.wait(state, left).0;
        }
    }

    /// Sends the reason ahead of everything still queued and closes, within two seconds.
    fn abort(&mut self, reason: &str) {
        self.give_up(Farewell::new(false, reason));
    }

    /// As `abort`.
    fn put_off(&mut self, reason: &str) {
        self.give_up(Farewell::new(true, reason));
    }
}

impl Drop for Framed {
    /// Sends what is queued (within [`Options::linger`]) and closes.
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        let linger = self.shared.options.linger;
        self.end(Instant::now() + linger);
    }
}

/// What the owner and the two threads share.
struct Shared {
    stream: Box<dyn ByteStream>,
    peer: String,
    options: Options,
    state: Mutex<State>,
    /// To the writer: something to write, or an end.
    queued: Signal,
    /// To the reader: room in the inbox, or an end.
    taken: Signal,
    /// To the owner that waits for input: something arrived, or failed.
    arrived: Signal,
    /// To the owner that waits for anything else: something arrived, was written, failed, or ended.
    changed: Signal,
}

/// Tells a thread that waits that the state has changed. Where nobody waits, which is most often, it takes no system call; and
/// nobody is woken for what it does not wait for.
#[derive(Default)]
struct Signal {
    condvar: Condvar,
    /// How many threads wait. It grows under the state's lock: who changes the state after they looked at it finds them.
    waiting: AtomicUsize,
}

impl Signal {
    /// Waits for at most `time`. Says whether that has passed.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> (MutexGuard<'a, State>, bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (state, wait) = self.condvar.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        (state, wait.timed_out())
    }

    /// Waits for at most `time` in all while `condition` holds.
    fn wait_while<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        time: Duration,
        mut condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        let start = Instant::now();
        while condition(&mut state) {
            let Some(left) = time.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else { break };
            state = self.wait(state, left).0;
        }
        state
    }

    /// Wakes who waits; behind a change of the state, which the caller has made under its lock.
    fn notify(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.condvar.notify_all();
        }
    }
}

#[derive(Default)]
struct State {
    /// Sent by the owner, not yet taken by the writer.
    outbox: VecDeque<Vec<u8>>,
    /// Bytes and overhead of the outbox and of what the writer holds.
    outbox_cost: usize,
    /// Bytes that the system took, to tell progress from standstill.
    written: u64,
    /// Arrived, not yet read by the owner.
    inbox: VecDeque<Vec<u8>>,
    inbox_cost: usize,
    /// Why nothing more comes in. Set once, by the reader or by `abort`.
    incoming: Option<Failure>,
    /// Why nothing more goes out although the reader still reads.
    outgoing: Option<Failure>,
    /// The reason that the writer sends as its last frame.
    goodbye: Option<Farewell>,
    /// This side is ending: nobody reads the inbox any more, and both threads stop at the deadline.
    closing: Option<Instant>,
    writer_ended: bool,
    /// How many of the threads have ended.
    ended: usize,
    line: Line,
}

/// How far a side is that waits for a place, before it has one.
#[derive(Default)]
enum Line {
    /// Nobody waits.
    #[default]
    None,
    /// This side does. What it was told last, and has not read.
    Waits(Option<Queued>),
    /// The peer would. What it is to be told next.
    WouldWait { seconds: u16, tell: Option<Queued> },
}

impl Line {
    fn would_wait(seconds: u16) -> Self {
        if seconds > 0 { Self::WouldWait { seconds, tell: None } } else { Self::None }
    }

    /// Notes what the peer says. False: it may not say that.
    fn hear(&mut self, place: Queued) -> bool {
        let Self::Waits(told) = self else { return false };
        if *told == Some(Queued::SERVED) {
            return false;
        }
        *told = Some(place);
        true
    }
}

impl State {
    fn clear_outbox(&mut self) {
        self.outbox.clear();
        self.outbox_cost = 0;
    }

    fn overdue(&self) -> bool {
        self.closing.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether a write that does not get on should be given up: the peer is gone, or the time is over.
    fn hopeless(&self) -> bool {
        use Failure::{Aborted, Closed, Idle, Io, Silent};
        self.overdue() || matches!(self.incoming, Some(Closed | Silent(_) | Idle(_) | Aborted(_) | Io { .. }))
    }
}

/// Why a direction ended. (A `WireError` that can be reported more than once.)
#[derive(Clone, Debug)]
enum Failure {
    Closed,
    Silent(Duration),
    Idle(Duration),
    Aborted(Farewell),
    Misbehaved { what: &'static str, found: String, expected: String },
    Io { doing: &'static str, kind: ErrorKind, text: String },
    GaveUp,
}

impl Failure {
    fn io(doing: &'static str, error: &io::Error) -> Self {
        match error.kind() {
            kind if is_closed(kind) => Self::Closed,
            kind => Self::Io { doing, kind, text: error.to_string() },
        }
    }

    fn error(&self, doing: &str) -> WireError {
        match self.clone() {
            Self::Closed => WireError::Closed { waiting_for: doing.into() },
            Self::Silent(silence) => WireError::Silent { silence, waiting_for: doing.into() },
            Self::Idle(patience) => WireError::Idle { patience, waiting_for: doing.into() },
            Self::Aborted(farewell) => farewell.error(),
            Self::Misbehaved { what, found, expected } => WireError::misbehaved(what, found, expected),
            Self::Io { doing: at, kind, text } => {
                io_error(format!("{doing} ({at})"), io::Error::new(kind, text))
            }
            Self::GaveUp => io_error(
                doing.into(),
                io::Error::new(ErrorKind::NotConnected, "this side has given up the session"),
            ),
        }
    }
}

impl From<BadHead> for Failure {
    fn from(BadHead { what, found, expected }: BadHead) -> Self {
        Self::Misbehaved { what, found, expected }
    }
}

/// What the writer does next.
enum Work {
    Place(Queued),
    Data(Vec<u8>),
    KeepAlive,
    Goodbye(Farewell),
    End,
}

impl Shared {
    /// A panic in one thread leaves the queues consistent: every change is made in one piece.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        [&self.queued, &self.taken, &self.arrived, &self.changed].into_iter().for_each(Signal::notify);
    }

    // ---- The writer thread ----

    fn write(&self) {
        if let Err(failure) = self.write_frames() {
            let mut state = self.lock();
            state.outgoing.get_or_insert(failure);
            state.clear_outbox();
        }
        // The peer sees the end of the stream behind everything that was written.
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut state = self.lock();
        state.writer_ended = true;
        state.ended += 1;
        drop(state);
        self.wake_all();
    }

    fn write_frames(&self) -> Result<(), Failure> {
        loop {
            match self.next_work() {
                Work::Place(place) => self.write_frame(FrameKind::Place, &place.to_bytes())?,
                Work::Data(chunk) => {
                    for part in chunk.chunks(MAX_DATA) {
                        self.write_frame(FrameKind::Data, part)?;
                        let mut state = self.lock();
                        if state.goodbye.is_some() || state.incoming.is_some() {
                            break;
                        }
                        state.outbox_cost -= part.len();
                        drop(state);
                        self.changed.notify();
                    }
                    let mut state = self.lock();
                    // (Already nothing if the queue was cleared meanwhile.)
                    state.outbox_cost = state.outbox_cost.saturating_sub(CHUNK_OVERHEAD);
                    drop(state);
                    self.changed.notify();
                }
                Work::KeepAlive => self.write_frame(FrameKind::KeepAlive, &[])?,
                Work::Goodbye(last) => return self.write_frame(last.kind(), last.reason.as_bytes()),
                Work::End => return Ok(()),
            }
        }
    }

    fn next_work(&self) -> Work {
        let mut state = self.lock();
        loop {
            if let Some(farewell) = state.goodbye.take() {
                return Work::Goodbye(farewell);
            }
            if state.incoming.is_some() {
                return Work::End;
            }
            if let Line::WouldWait { tell, .. } = &mut state.line
                && let Some(place) = tell.take()
            {
                return Work::Place(place);
            }
            if let Some(chunk) = state.outbox.pop_front() {
                return Work::Data(chunk);
            }
            if state.closing.is_some() {
                return Work::End;
            }
            let (guard, timed_out) = self.queued.wait(state, self.options.keep_alive);
            state = guard;
            let told = !matches!(state.line, Line::WouldWait { tell: Some(_), .. });
            let idle = state.outbox.is_empty() && state.goodbye.is_none() && state.incoming.is_none() && told;
            if timed_out && idle && state.closing.is_none() {
                return Work::KeepAlive;
            }
        }
    }

    fn write_frame(&self, kind: FrameKind, payload: &[u8]) -> Result<(), Failure> {
        let head = frame::head(kind, payload.len());
        let mut done = 0;
        while done < head.len() + payload.len() {
            let (head, payload) = match done.checked_sub(head.len()) {
                None => (&head[done..], payload),
                Some(done) => (&[][..], &payload[done..]),
            };
            match self.stream.write(&[IoSlice::new(head), IoSlice::new(payload)]) {
                Ok(0) => return Err(Failure::Closed),
                Ok(n) => {
                    done += n;
                    self.lock().written += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    // The peer takes nothing at the moment, which is its right while it computes. Go on
                    // unless the reader has found it dead or this side's time is over.
                    if self.lock().hopeless() {
                        return Err(Failure::Closed);
                    }
                }
                Err(e) => return Err(Failure::io("writing to the socket", &e)),
            }
        }
        Ok(())
    }

    // ---- The reader thread ----

    fn read(&self) {
        let failure = self.read_frames();
        let mut state = self.lock();
        if let Failure::Misbehaved { what, found, expected } = &failure {
            let reason = format!("broken framing: {what} (found {found}, expected {expected})");
            state.goodbye = Some(Farewell::new(false, &reason));
            state.closing.get_or_insert(Instant::now() + FAREWELL);
        }
        let misbehaved = matches!(failure, Failure::Misbehaved { .. });
        state.incoming.get_or_insert(failure);
        // Whatever the reason, nobody will read what is still queued.
        state.clear_outbox();
        drop(state);
        self.wake_all();
        if misbehaved {
            self.discard();
        }
        self.lock().ended += 1;
        self.wake_all();
    }

    fn read_frames(&self) -> Failure {
        let mut input = BufReader::with_capacity(1 << 16, Handle(&*self.stream));
        let mut heard = Instant::now();
        loop {
            match self.read_frame(&mut input, &mut heard) {
                Ok(()) => {}
                Err(failure) => return failure,
            }
        }
    }

    fn read_frame(&self, input: &mut impl Read, heard: &mut Instant) -> Result<(), Failure> {
        let mut head = [0; HEAD];
        self.fill(input, &mut head, heard)?;
        let (kind, len) = frame::parse(head)?;
        // Bounded by the check above: at most 1 MiB.
        let mut payload = vec![0; len];
        self.fill(input, &mut payload, heard)?;
        match kind {
            FrameKind::Data if len > 0 => {
                self.deliver(payload);
                // Time that this side let pass without reading is not the peer's silence.
                *heard = Instant::now();
            }
            FrameKind::Data | FrameKind::KeepAlive => {}
            FrameKind::Place => {
                let place = Queued::from_bytes(&payload);
                let mut state = self.lock();
                if !place.is_some_and(|place| state.line.hear(place)) {
                    drop(state);
                    return Err(Failure::Misbehaved {
                        what: "a place in the line",
                        found: format!("{len} bytes"),
                        expected: "8 bytes, of a side that accepted, while this side waits".into(),
                    });
                }
                drop(state);
                self.changed.notify();
            }
            FrameKind::Abort | FrameKind::Later => {
                return Err(match String::from_utf8(payload) {
                    Ok(reason) => Failure::Aborted(Farewell {
                        later: kind == FrameKind::Later,
                        reason: frame::printable(&reason),
                    }),
                    Err(_) => Failure::Misbehaved {
                        what: "an abort's reason",
                        found: "other bytes".into(),
                        expected: "UTF-8".into(),
                    },
                });
            }
        }
        Ok(())
    }

    fn fill(&self, input: &mut impl Read, mut buf: &mut [u8], heard: &mut Instant) -> Result<(), Failure> {
        while !buf.is_empty() {
            match input.read(buf) {
                Ok(0) => return Err(Failure::Closed),
                Ok(n) => {
                    buf = &mut buf[n..];
                    *heard = Instant::now();
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    let state = self.lock();
                    if state.overdue() {
                        return Err(Failure::Closed);
                    }
                    if heard.elapsed() >= self.options.silence {
                        return Err(Failure::Silent(self.options.silence));
                    }
                }
                Err(e) => return Err(Failure::io("reading from the socket", &e)),
            }
        }
        Ok(())
    }

    fn deliver(&self, payload: Vec<u8>) {
        let mut state = self.lock();
        while state.inbox_cost >= self.options.queue && state.closing.is_none() {
            state = self.taken.wait(state, self.options.tick()).0;
        }
        // Once this side is ending, what still comes is read and thrown away: closing a socket with unread
        // bytes in it resets the connection, and with it what we sent last.
        if state.closing.is_none() {
            state.inbox_cost += payload.len() + CHUNK_OVERHEAD;
            state.inbox.push_back(payload);
            drop(state);
            self.arrived.notify();
            self.changed.notify();
        }
    }

    /// Reads and throws away until the peer closes, for a bounded time.
    fn discard(&self) {
        let end = Instant::now() + FAREWELL;
        let mut buf = [0; 1 << 12];
        while Instant::now() < end && !self.lock().overdue() {
            match self.stream.read(&mut buf) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted || is_timeout(&e) => {}
                Err(_) => return,
            }
        }
    }
}
