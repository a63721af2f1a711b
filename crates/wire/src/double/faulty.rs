//! A connection on which one thing goes wrong, at a byte of a direction: for protocols, whose messages have known lengths.

use std::time::Duration;

use crate::{Transport, WireError};

/// What goes wrong, and after how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection ends once this side has sent so many bytes. The peer sees it close.
    CutSent(u64),
    /// The connection ends once this side has received so many bytes.
    CutReceived(u64),
    /// One bit of what this side sends arrives flipped.
    FlipSent {
        /// Counted from the first byte sent.
        byte: u64,
        /// Which bit of that byte, from 0 (the lowest) to 7.
        bit: u8,
    },
    /// One bit of what this side receives is flipped.
    FlipReceived {
        /// Counted from the first byte received.
        byte: u64,
        /// Which bit of that byte, from 0 (the lowest) to 7.
        bit: u8,
    },
    /// Once this side has received so many bytes, the peer seems to have stopped: nothing more comes, and
    /// `recv` says so at once (a real transport waits first).
    Silence(u64),
}

/// A connection on which one thing goes wrong.
pub struct Faulty<T> {
    /// `None` once the connection was cut.
    inner: Option<T>,
    fault: Fault,
    sent: u64,
    received: u64,
}

impl<T: Transport> Faulty<T> {
    /// `inner`, with `fault`.
    pub fn new(inner: T, fault: Fault) -> Self {
        Self { inner: Some(inner), fault, sent: 0, received: 0 }
    }
}

/// Cuts `chunk`, which begins at byte `start` of its direction, down to what comes before byte `end`.
/// Says whether the direction ends with it.
fn cut(chunk: &mut Vec<u8>, start: u64, end: u64) -> bool {
    let left = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
    let ends = chunk.len() >= left;
    chunk.truncate(left);
    ends
}

fn flip(chunk: &mut [u8], start: u64, byte: u64, bit: u8) {
    let at = byte.checked_sub(start).and_then(|at| usize::try_from(at).ok());
    if let Some(hit) = at.and_then(|at| chunk.get_mut(at)) {
        *hit ^= 1 << bit;
    }
}

impl<T: Transport> Transport for Faulty<T> {
    fn send(&mut self, mut chunk: Vec<u8>) -> Result<(), WireError> {
        let closed = || WireError::Closed { waiting_for: "sending".into() };
        let inner = self.inner.as_mut().ok_or_else(closed)?;
        let start = self.sent;
        self.sent += chunk.len() as u64;
        match self.fault {
            Fault::CutSent(end) => {
                let ends = cut(&mut chunk, start, end);
                inner.send(chunk)?;
                if ends {
                    self.inner = None;
                    return if self.sent > end { Err(closed()) } else { Ok(()) };
                }
                return Ok(());
            }
            Fault::FlipSent { byte, bit } => flip(&mut chunk, start, byte, bit),
            _ => {}
        }
        inner.send(chunk)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        self.next(|inner| inner.recv().map(Some)).map(|chunk| chunk.expect("it waits until there is one"))
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        self.next(|inner| inner.recv_within(time))
    }

    fn abort(&mut self, reason: &str) {
        if let Some(inner) = &mut self.inner {
            inner.abort(reason);
        }
    }

    fn put_off(&mut self, reason: &str) {
        if let Some(inner) = &mut self.inner {
            inner.put_off(reason);
        }
    }
}

impl<T: Transport> Faulty<T> {
    fn next(
        &mut self,
        receive: impl FnOnce(&mut T) -> Result<Option<Vec<u8>>, WireError>,
    ) -> Result<Option<Vec<u8>>, WireError> {
        let closed = || WireError::Closed { waiting_for: "receiving".into() };
        let silent = || WireError::Silent { silence: Duration::ZERO, waiting_for: "receiving".into() };
        let start = self.received;
        match self.fault {
            Fault::CutReceived(0) => self.inner = None,
            Fault::Silence(end) if start >= end => return Err(silent()),
            _ => {}
        }
        let Some(mut chunk) = receive(self.inner.as_mut().ok_or_else(closed)?)? else { return Ok(None) };
        match self.fault {
            Fault::CutReceived(end) => {
                let ends = cut(&mut chunk, start, end);
                self.inner = self.inner.take().filter(|_| !ends);
            }
            Fault::Silence(end) => {
                cut(&mut chunk, start, end);
            }
            Fault::FlipReceived { byte, bit } => flip(&mut chunk, start, byte, bit),
            _ => {}
        }
        self.received += chunk.len() as u64;
        Ok(Some(chunk))
    }
}
