//! Bytes on their way into a stream, for what runs around it (TLS, WebSocket), and what else both have.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jaguar_wire::ByteStream;

/// Bytes that one read from the network takes, at most.
pub(crate) const READ: usize = 1 << 16;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a read or a write only ran into its timeout.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// What is sealed or framed, and not written yet. It belongs to whoever writes.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    written: usize,
    /// Bytes of the caller's that are in it, and that the caller was not told of, since the network did not take them in time.
    owed: usize,
}

impl Outgoing {
    /// Writes all of it.
    ///
    /// # Errors
    /// As [`ByteStream::write`]. The rest stays, and goes first next time.
    pub(crate) fn flush(&mut self, socket: &dyn ByteStream) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match socket.write(&[IoSlice::new(&self.bytes[self.written..])]) {
                Ok(0) => return Err(ErrorKind::BrokenPipe.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.bytes.clear();
        self.written = 0;
        Ok(())
    }

    /// Writes what `make` appends for some of the caller's bytes, behind what waits, and says how many of them these were. After a
    /// timeout the next call goes on with the same.
    ///
    /// # Errors
    /// As [`ByteStream::write`], and those of `make`.
    pub(crate) fn send(
        &mut self,
        socket: &dyn ByteStream,
        make: impl FnOnce(&mut Vec<u8>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.owed == 0 {
            // What the peer's messages gave rise to goes ahead.
            self.flush(socket)?;
            self.owed = make(&mut self.bytes)?;
        }
        self.flush(socket)?;
        Ok(std::mem::take(&mut self.owed))
    }
}
