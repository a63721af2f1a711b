//! What the module asks of JavaScript, as functions of the import module `jaguar`.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jaguar_engine::hint::HintFile;
use jaguar_wire::ByteStream;

#[link(wasm_import_module = "jaguar")]
unsafe extern "C" {
    /// Fills `len` bytes at `to` with what the browser's `crypto.getRandomValues` gives.
    fn random(to: *mut u8, len: usize);
    /// Reads up to `len` bytes of the connection to `to`, and waits at most `milliseconds` for the first. Says how many; 0 at the end of
    /// the stream, -1 if none came in time.
    fn read(to: *mut u8, len: usize, milliseconds: f64) -> i32;
    /// Sends `len` bytes, a whole frame (or greeting), as one message. Says whether the connection still takes any.
    fn write(from: *const u8, len: usize) -> i32;
    /// Ends the connection behind what was sent.
    safe fn close();
    /// Whether there is a file for the hint, opened and nobody else's.
    safe fn kept() -> i32;
    /// Fills `len` bytes at `to` from the file's place `at`. Says 1; 0 if the file ends before; -1 if it fails.
    fn kept_read(at: f64, to: *mut u8, len: usize) -> i32;
    /// Writes `len` bytes to the file's place `at`. Says 1, or -1 if it fails.
    fn kept_write(at: f64, from: *const u8, len: usize) -> i32;
    /// Drops what is behind the file's first `len` bytes. Says 1, or -1 if it fails.
    safe fn kept_cut(len: f64) -> i32;
    /// Removes the file.
    safe fn kept_remove();
    /// Tells who called what happens: `len` bytes of JSON at `from`.
    fn tell(from: *const u8, len: usize);
}

/// The connection, which JavaScript has opened.
pub struct Socket {
    /// How long a read waits, in milliseconds.
    patience: AtomicU64,
}

impl Socket {
    /// The one that there is.
    pub fn new() -> Self {
        Self { patience: AtomicU64::new(0) }
    }
}

impl ByteStream for Socket {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        // SAFETY: JavaScript writes no more than `len` bytes, all of them within `buf`.
        let n = unsafe { read(buf.as_mut_ptr(), buf.len(), self.patience.load(Ordering::Relaxed) as f64) };
        usize::try_from(n).map_err(|_| ErrorKind::TimedOut.into())
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        // SAFETY: JavaScript reads `len` bytes, all of them within `whole`, before it returns.
        match unsafe { write(whole.as_ptr(), whole.len()) } {
            0 => Err(ErrorKind::BrokenPipe.into()),
            _ => Ok(whole.len()),
        }
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.patience.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(())
    }

    fn set_write_timeout(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        close();
        Ok(())
    }
}

/// The file for the hint, which JavaScript has opened in the origin's private file system.
struct KeptFile;

/// That file, if there is one.
pub fn kept_file() -> Option<Box<dyn HintFile>> {
    (kept() != 0).then(|| Box::new(KeptFile) as Box<dyn HintFile>)
}

/// What JavaScript said of something that it was to do.
fn done(said: i32) -> io::Result<()> {
    match said {
        1 => Ok(()),
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::other("the browser's storage fails")),
    }
}

impl HintFile for KeptFile {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        // SAFETY: JavaScript writes no more than `len` bytes, all of them within `bytes`.
        done(unsafe { kept_read(at as f64, bytes.as_mut_ptr(), bytes.len()) })
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: JavaScript reads `len` bytes, all of them within `bytes`, before it returns.
        done(unsafe { kept_write(at as f64, bytes.as_ptr(), bytes.len()) })
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        done(kept_cut(len as f64))
    }

    fn complete(&mut self) -> io::Result<()> {
        // (It stays this session's.)
        Ok(())
    }

    fn remove(&mut self) {
        kept_remove();
    }

    fn name(&self) -> String {
        "the browser's storage".into()
    }
}

/// Tells who called.
pub fn say(event: &serde_json::Value) {
    let text = event.to_string();
    // SAFETY: JavaScript reads `len` bytes, all of them within `text`, before it returns.
    unsafe { tell(text.as_ptr(), text.len()) };
}

/// What the `getrandom` crate asks where it knows no system (its option `getrandom_backend="custom"`).
// SAFETY: nothing else has this name, which `getrandom` asks for.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(to: *mut u8, len: usize) -> Result<(), getrandom::Error> {
    // SAFETY: `getrandom` promises `len` bytes at `to` that may be written, and JavaScript writes no others.
    unsafe { random(to, len) };
    Ok(())
}
