//! The connecting side of a framed connection where a program has one thread: in a browser's worker.
//!
//! It says and takes the same frames as [`Framed`](crate::Framed), whose reader and writer are threads. Here the owner reads and
//! writes itself, so two things are the stream's part: it takes all that is written at once, however slow the peer reads (a
//! WebSocket does), and it sends a [`KEEP_ALIVE`] between two writes when nothing was written for a second, also while the owner
//! computes. A frame is written at once.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::time::Duration;

use crate::error::{io_error, is_closed};
use crate::frame::{self, Farewell, FrameKind, HEAD, MAX_DATA, Queued};
use crate::framed::Options;
use crate::greeting::{Introduction, greet_first};
use crate::stream::{ByteStream, is_timeout};
use crate::time::Instant;
use crate::{Transport, WireError};

/// How long what the peer said last is looked for, once the connection takes nothing more.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The frame that says that this side lives.
pub const KEEP_ALIVE: [u8; HEAD] = [FrameKind::KeepAlive as u8, 0, 0, 0, 0];

/// A greeted connection of one thread.
pub struct Unthreaded {
    stream: Box<dyn ByteStream>,
    options: Options,
    /// Of the frame that is being read: head and payload, as far as they came.
    frame: Vec<u8>,
    /// When the peer was heard last, or the owner last began to wait for it.
    heard: Instant,
    /// Nothing more is said: a farewell was, or the peer's came.
    ended: bool,
}

/// What came.
enum Came {
    Data(Vec<u8>),
    Place(Queued),
}

impl Unthreaded {
    /// Greets over `stream`, which this side has connected to `peer` (its address, for messages), as `introduction` says.
    ///
    /// # Errors
    /// As [`Framed::connect_as`](crate::Framed::connect_as).
    pub fn connect_as(
        stream: Box<dyn ByteStream>,
        peer: &str,
        introduction: &Introduction<'_>,
        options: Options,
    ) -> Result<Self, WireError> {
        greet_first(&*stream, peer, introduction, options.greeting)?;
        let heard = Instant::now();
        Ok(Self { stream, options, frame: Vec::new(), heard, ended: false })
    }

    /// As [`Framed::wait_for_place`](crate::Framed::wait_for_place), of a side that said that it would wait.
    ///
    /// # Errors
    /// As there.
    pub fn wait_for_place(
        &mut self,
        patience: Duration,
        hear: &mut dyn FnMut(Queued) -> bool,
    ) -> Result<(), WireError> {
        let start = Instant::now();
        let waiting_for = "waiting for a place";
        loop {
            let left = patience.saturating_sub(start.elapsed());
            match self.next(left, waiting_for)? {
                Some(Came::Place(Queued::SERVED)) => return Ok(()),
                Some(Came::Place(place)) => {
                    if !hear(place) {
                        let source = io::Error::new(ErrorKind::Interrupted, "this side was asked to stop");
                        return Err(io_error(waiting_for.into(), source));
                    }
                }
                Some(Came::Data(data)) => {
                    let found = format!("{} bytes of data", data.len());
                    return Err(self.misbehaved("what comes before a place", &found, "a place in the line"));
                }
                None => return Err(WireError::Idle { patience, waiting_for: waiting_for.into() }),
            }
        }
    }

    /// What comes next, within `time`.
    fn next(&mut self, time: Duration, doing: &str) -> Result<Option<Came>, WireError> {
        let start = Instant::now();
        // (Time in which nobody read is not the peer's silence.)
        self.heard = start;
        loop {
            if let Some((kind, payload)) = self.whole_frame()? {
                match kind {
                    FrameKind::Data if payload.is_empty() => {}
                    FrameKind::Data => return Ok(Some(Came::Data(payload))),
                    FrameKind::KeepAlive => {}
                    FrameKind::Place => {
                        let Some(place) = Queued::from_bytes(&payload) else {
                            let found = format!("{} bytes", payload.len());
                            return Err(self.misbehaved("a place in the line", &found, "8 bytes"));
                        };
                        return Ok(Some(Came::Place(place)));
                    }
                    FrameKind::Abort | FrameKind::Later => {
                        let Ok(reason) = String::from_utf8(payload) else {
                            return Err(self.misbehaved("an abort's reason", "other bytes", "UTF-8"));
                        };
                        self.ended = true;
                        let later = kind == FrameKind::Later;
                        return Err(Farewell { later, reason: frame::printable(&reason) }.error());
                    }
                }
                continue;
            }
            let left = time.saturating_sub(start.elapsed());
            if !self.read_some(left, doing)? {
                if self.heard.elapsed() >= self.options.silence {
                    let silence = self.options.silence;
                    return Err(WireError::Silent { silence, waiting_for: doing.into() });
                }
                if time <= start.elapsed() {
                    return Ok(None);
                }
            }
        }
    }

    /// Takes the frame that was read, if all of it is there.
    fn whole_frame(&mut self) -> Result<Option<(FrameKind, Vec<u8>)>, WireError> {
        if self.frame.len() < HEAD {
            return Ok(None);
        }
        let (kind, len) = self.head()?;
        if self.frame.len() < HEAD + len {
            return Ok(None);
        }
        let mut payload = std::mem::take(&mut self.frame);
        payload.drain(..HEAD);
        Ok(Some((kind, payload)))
    }

    /// Of the frame whose first bytes are there.
    fn head(&mut self) -> Result<(FrameKind, usize), WireError> {
        let head = self.frame.first_chunk().expect("as long as a head");
        frame::parse(*head).map_err(|bad| self.misbehaved(bad.what, &bad.found, &bad.expected))
    }

    /// Reads of the frame that is under way what comes within `time` and a look's length. Says whether anything did.
    fn read_some(&mut self, time: Duration, doing: &str) -> Result<bool, WireError> {
        let have = self.frame.len();
        // Bounded: a frame has at most 1 MiB.
        let wanted = if have < HEAD { HEAD } else { HEAD + self.head()?.1 };
        let failed = |source: io::Error| match source.kind() {
            kind if is_closed(kind) => WireError::Closed { waiting_for: doing.into() },
            _ => io_error(format!("{doing} (reading from the socket)"), source),
        };
        self.stream.set_read_timeout(time.min(self.options.silence / 8)).map_err(failed)?;
        self.frame.resize(wanted, 0);
        let read = self.stream.read(&mut self.frame[have..]);
        self.frame.truncate(have + read.as_ref().map_or(0, |n| *n));
        match read {
            Ok(0) => Err(WireError::Closed { waiting_for: doing.into() }),
            Ok(_) => {
                self.heard = Instant::now();
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted || is_timeout(&e) => Ok(false),
            Err(e) => Err(failed(e)),
        }
    }

    fn write(&self, kind: FrameKind, payload: &[u8]) -> Result<(), WireError> {
        let whole = [&frame::head(kind, payload.len())[..], payload].concat();
        let mut left = &whole[..];
        while !left.is_empty() {
            match self.stream.write(&[IoSlice::new(left)]) {
                Ok(0) => return Err(WireError::Closed { waiting_for: "sending".into() }),
                Ok(n) => left = &left[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted || is_timeout(&e) => {}
                Err(e) if is_closed(e.kind()) => {
                    return Err(WireError::Closed { waiting_for: "sending".into() });
                }
                Err(e) => return Err(io_error("sending (writing to the socket)".into(), e)),
            }
        }
        Ok(())
    }

    /// Why the connection takes nothing more: what the peer said before it closed, if it did; else `closed`.
    fn why_closed(&mut self, closed: WireError) -> WireError {
        let start = Instant::now();
        while let Some(left) = LAST_WORDS.checked_sub(start.elapsed()) {
            match self.next(left, "sending") {
                Ok(Some(Came::Data(_) | Came::Place(_))) => {}
                Err(said @ (WireError::PeerAborted(_) | WireError::PeerBusy(_))) => return said,
                Ok(None) | Err(_) => break,
            }
        }
        closed
    }

    /// The error of a peer that breaks the framing, which is told so.
    fn misbehaved(&mut self, what: &'static str, found: &str, expected: &str) -> WireError {
        self.end(&Farewell::new(
            false,
            &format!("broken framing: {what} (found {found}, expected {expected})"),
        ));
        WireError::misbehaved(what, found, expected)
    }

    fn end(&mut self, farewell: &Farewell) {
        if !std::mem::replace(&mut self.ended, true) {
            // (It may be gone already.)
            let _ = self.write(farewell.kind(), farewell.reason.as_bytes());
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

impl Transport for Unthreaded {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        let sent = chunk.chunks(MAX_DATA).try_for_each(|part| self.write(FrameKind::Data, part));
        sent.map_err(|error| match error {
            WireError::Closed { .. } => self.why_closed(error),
            other => other,
        })
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        loop {
            if let Some(chunk) = self.recv_within(Duration::from_secs(3600))? {
                return Ok(chunk);
            }
        }
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        match self.next(time, "receiving")? {
            Some(Came::Data(chunk)) => Ok(Some(chunk)),
            Some(Came::Place(_)) => {
                Err(self.misbehaved("a place in the line", "8 bytes", "none, of a side that is served"))
            }
            None => Ok(None),
        }
    }

    fn abort(&mut self, reason: &str) {
        self.end(&Farewell::new(false, reason));
    }

    fn put_off(&mut self, reason: &str) {
        self.end(&Farewell::new(true, reason));
    }
}

impl Drop for Unthreaded {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
