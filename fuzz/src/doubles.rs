//! Peers that are nothing but bytes.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jaguar_wire::{ByteStream, Channel, Transport, WireError};

/// A peer that says what was recorded, whatever it hears, and then goes.
pub struct Replay(std::vec::IntoIter<Vec<u8>>);

impl Replay {
    /// Says these chunks.
    pub fn new(chunks: Vec<Vec<u8>>) -> Self {
        Self(chunks.into_iter())
    }

    /// A channel to such a peer.
    pub fn channel(chunks: Vec<Vec<u8>>) -> Channel {
        Channel::new(Self::new(chunks))
    }
}

impl Transport for Replay {
    fn send(&mut self, _chunk: Vec<u8>) -> Result<(), WireError> {
        Ok(())
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        self.0.next().ok_or_else(|| WireError::Closed { waiting_for: "a recorded chunk".into() })
    }

    fn recv_within(&mut self, _time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        self.recv().map(Some)
    }

    fn put_off(&mut self, _reason: &str) {}
}

/// What a party has heard, chunk by chunk.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Vec<u8>>>>);

impl Heard {
    /// All chunks.
    pub fn chunks(&self) -> Vec<Vec<u8>> {
        self.0.lock().expect("no recorder panics").clone()
    }
}

/// A transport that keeps what it hears.
pub struct Recording<T>(T, Heard);

impl<T> Recording<T> {
    /// Around another transport.
    pub fn new(inner: T) -> (Self, Heard) {
        let heard = Heard::default();
        (Self(inner, heard.clone()), heard)
    }

    fn keep(&self, chunk: &[u8]) {
        self.1.0.lock().expect("no recorder panics").push(chunk.to_vec());
    }
}

impl<T: Transport> Transport for Recording<T> {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        self.0.send(chunk)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        let chunk = self.0.recv()?;
        self.keep(&chunk);
        Ok(chunk)
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        let chunk = self.0.recv_within(time)?;
        chunk.iter().for_each(|chunk| self.keep(chunk));
        Ok(chunk)
    }

    fn abort(&mut self, reason: &str) {
        self.0.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.0.put_off(reason);
    }
}

/// What was written to a peer.
pub type Written = Arc<Mutex<Vec<u8>>>;

/// What a peer says, given what it has heard.
type Says = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// A byte stream whose peer has said these bytes, and closed. It takes whatever is written.
pub struct Fed {
    bytes: OnceLock<Vec<u8>>,
    /// Where the bytes come from, if not given at first.
    says: Option<Says>,
    read: AtomicUsize,
    /// Bytes that a read gives at most: not zero.
    step: usize,
    /// None: what is written is forgotten.
    heard: Option<Written>,
}

impl Fed {
    /// These bytes, of which a read gives `step` at most.
    pub fn new(bytes: Vec<u8>, step: usize) -> Self {
        Self { bytes: bytes.into(), says: None, read: AtomicUsize::new(0), step: step.max(1), heard: None }
    }

    /// What `says` makes of all that is written before the first read.
    pub fn answering(says: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static, step: usize) -> Self {
        let fed = Self { bytes: OnceLock::new(), says: Some(Box::new(says)), ..Self::new(Vec::new(), step) };
        fed.keeping(Written::default())
    }

    /// The same; what is written goes there.
    pub fn keeping(self, heard: Written) -> Self {
        Self { heard: Some(heard), ..self }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| match (&self.says, &self.heard) {
            (Some(says), Some(heard)) => says(&lock(heard)),
            _ => Vec::new(),
        })
    }
}

/// What was heard, also after a panic.
pub fn lock(heard: &Written) -> MutexGuard<'_, Vec<u8>> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ByteStream for Fed {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let (bytes, at) = (self.bytes(), self.read.load(Ordering::SeqCst));
        let count = buf.len().min(self.step).min(bytes.len() - at);
        buf[..count].copy_from_slice(&bytes[at..at + count]);
        self.read.store(at + count, Ordering::SeqCst);
        Ok(count)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(heard) = &self.heard {
            let mut heard = lock(heard);
            parts.iter().for_each(|part| heard.extend_from_slice(part));
        }
        Ok(parts.iter().map(|part| part.len()).sum())
    }

    fn set_read_timeout(&self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn set_write_timeout(&self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self, _how: Shutdown) -> io::Result<()> {
        Ok(())
    }
}
