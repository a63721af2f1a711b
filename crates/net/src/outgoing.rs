//! Bytes on their way into a stream, for what runs around it (TLS, WebSocket).

use std::io::{self, ErrorKind, IoSlice};

use jaguar_wire::ByteStream;

/// What is sealed or framed, and not written yet. It belongs to whoever writes.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    written: usize,
    /// Bytes of the caller's that are in it, and that the caller was not told of, since the network did not take them in time.
    pub(crate) owed: usize,
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
}
