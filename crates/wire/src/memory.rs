//! Two parties in one process, for tests: the same channel over queues.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::frame::Farewell;
use crate::{Channel, Transport, WireError};

/// One end of an in-memory connection.
pub struct Memory {
    to: Sender<Result<Vec<u8>, Farewell>>,
    from: Receiver<Result<Vec<u8>, Farewell>>,
}

/// Two connected in-memory transports.
pub fn memory_transports() -> (Memory, Memory) {
    let (to_b, from_a) = channel();
    let (to_a, from_b) = channel();
    (Memory { to: to_b, from: from_b }, Memory { to: to_a, from: from_a })
}

/// Two connected in-memory channels.
pub fn memory_pair() -> (Channel, Channel) {
    let (a, b) = memory_transports();
    (Channel::new(a), Channel::new(b))
}

impl Transport for Memory {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        self.to.send(Ok(chunk)).map_err(|_| WireError::Closed { waiting_for: "sending".into() })
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        match self.from.recv() {
            Ok(arrived) => arrived.map_err(Farewell::error),
            Err(_) => Err(WireError::Closed { waiting_for: "receiving".into() }),
        }
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        match self.from.recv_timeout(time) {
            Ok(arrived) => arrived.map(Some).map_err(Farewell::error),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(WireError::Closed { waiting_for: "receiving".into() }),
        }
    }

    fn abort(&mut self, reason: &str) {
        let _ = self.to.send(Err(Farewell::new(false, reason)));
    }

    fn put_off(&mut self, reason: &str) {
        let _ = self.to.send(Err(Farewell::new(true, reason)));
    }
}
