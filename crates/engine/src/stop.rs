//! Ending sessions from another thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jaguar_wire::{Transport, WireError};

/// How long a session waits at most before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// A request to end, which any number of connections share. It is made once and stays.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks all that share it to end.
    pub fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether sessions were asked to end.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// `transport`, on which whatever is sent or received fails once it was asked to end. So a session over it ends with an
    /// error at its next message, and tells its peer.
    pub fn over<T: Transport>(&self, transport: T) -> Stoppable<T> {
        Stoppable { transport, stop: self.clone() }
    }

    fn check(&self) -> Result<(), WireError> {
        if !self.is_asked() {
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::Interrupted, "this side was asked to stop");
        Err(WireError::Io { what: "the session".into(), source })
    }
}

/// A connection that [`Stop`] ends.
pub struct Stoppable<T> {
    transport: T,
    stop: Stop,
}

impl<T: Transport> Transport for Stoppable<T> {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        self.stop.check()?;
        self.transport.send(chunk)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        loop {
            self.stop.check()?;
            if let Some(chunk) = self.transport.recv_within(LOOK)? {
                return Ok(chunk);
            }
        }
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        let mut left = time;
        loop {
            self.stop.check()?;
            let part = left.min(LOOK);
            if let Some(chunk) = self.transport.recv_within(part)? {
                return Ok(Some(chunk));
            }
            left -= part;
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn abort(&mut self, reason: &str) {
        self.transport.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.transport.put_off(reason);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use jaguar_wire::memory_transports;

    use super::*;

    #[test]
    fn who_waits_is_stopped() {
        let (ours, mut theirs) = memory_transports();
        let stop = Stop::default();
        let mut ours = stop.over(ours);
        theirs.send(vec![1, 2]).unwrap();
        assert_eq!(ours.recv().unwrap(), [1, 2]);
        assert_eq!(ours.recv_within(Duration::from_millis(60)).unwrap(), None);
        let waiting = thread::spawn(move || (ours.recv(), ours));
        stop.now();
        let (got, mut ours) = waiting.join().unwrap();
        assert!(got.is_err_and(|e| e.to_string().contains("asked to stop")));
        assert!(ours.send(vec![3]).is_err());
        assert!(ours.recv_within(Duration::from_secs(3600)).is_err());
    }
}
