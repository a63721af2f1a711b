//! What a connection is made of: bytes in order, both ways.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who connected.
    Connecting,
    /// Who was connected to.
    Accepting,
}

/// A connection that carries bytes in order, both ways: TCP, or what runs on it.
///
/// Two threads use it at once, one reads and one writes: neither may keep the other waiting. (What has one state for
/// both directions, as TLS has, locks it for as long as it computes, not while it waits for the network.)
pub trait ByteStream: Send + Sync {
    /// Reads what has come, up to `buf.len()` bytes, and waits for the first of them. 0 says that the peer's direction
    /// has ended.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] or [`ErrorKind::TimedOut`] when nothing came within the timeout: the stream is as it
    /// was. Others when the connection is gone.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes some of `parts`, one after the other, and says how many bytes. 0 says that the peer takes nothing more.
    ///
    /// After an error that says that the time is over, the same bytes are written again, or none: some of them may be
    /// on their way.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// How long a read waits at most.
    ///
    /// # Errors
    /// When the system refuses.
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// How long a write waits at most. Until it is set, a write waits for ever.
    ///
    /// # Errors
    /// When the system refuses.
    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// Ends one direction, or both: the peer sees the end behind all that was written, and a read that waits here
    /// returns.
    ///
    /// # Errors
    /// When the connection is gone already.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;

    /// A value that names this very connection: both its ends know it, it differs between the sides, and nobody in the
    /// middle can bring two connections to have the same. None if nothing is encrypted.
    fn binding(&self, _side: Side) -> Option<[u8; 32]> {
        None
    }
}

/// A stream as the standard library knows them.
pub(crate) struct Handle<'a>(pub &'a dyn ByteStream);

impl Read for Handle<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Handle<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(buf)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A read or write that ran into its timeout (which of the two depends on the platform).
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
