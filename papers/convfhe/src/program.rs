//! Drives `jaguar-fhe` as a child process. Its stdin and stdout are one end of a Unix socket; the frames are those of
//! `papers/convfhe/fhe/frames/frames.go`: `[kind: u8][length: u32, little-endian][payload]`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const DATA: u8 = 1;
const ABORT: u8 = 3;
const END: u8 = 16;
const PROGRESS: u8 = 17;

/// A data frame carries at most this much.
const MAX_DATA: usize = 1 << 20;
/// So does a reason.
const MAX_REASON: usize = 1 << 10;
/// So much of what the program complains about is shown.
const MAX_COMPLAINT: u64 = 1 << 12;

/// How long it may take to end, once its socket is closed, and how often this looks.
const LAST_WORDS: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// What went wrong with the program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It could not be started.
    #[error("{program} cannot be started ({source}); `make fhe` builds it")]
    Start {
        /// Which file.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is nowhere.
    #[error(
        "the one-round protocol needs the program jaguar-fhe, which is neither beside this one nor in PATH: `make fhe` builds it \
         (with Go), --fhe-program names it"
    )]
    NotFound,
    /// A command of it failed.
    #[error("jaguar-fhe: {0}")]
    Failed(String),
    /// It gave up, and said why.
    #[error("jaguar-fhe gave up: {0}")]
    GaveUp(String),
    /// It ended without an answer.
    #[error("jaguar-fhe ended without an answer: {0}")]
    Ended(String),
    /// It sent what no frame is, or too much.
    #[error("jaguar-fhe sent {0}")]
    Malformed(String),
    /// The socket failed.
    #[error("the connection to jaguar-fhe failed")]
    Io(#[from] io::Error),
}

/// A running `jaguar-fhe encrypt`, `evaluate` or `decrypt`. Dropped, it is ended.
pub struct Program {
    child: Child,
    stream: UnixStream,
}

impl Program {
    /// Starts what [`Fhe::command`](crate::Fhe::command) gives.
    ///
    /// # Errors
    /// [`ProgramError::Start`] and [`ProgramError::Io`].
    pub fn start(mut command: Command) -> Result<Self, ProgramError> {
        let (stream, other) = UnixStream::pair()?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(other.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(other)))
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| ProgramError::Start { program: command.get_program().into(), source })?;
        Ok(Self { child, stream })
    }

    /// Sends a message and receives its answer of at most `most` bytes. `progress` hears how many steps of how many are done.
    ///
    /// # Errors
    /// When the program gives up, ends, or sends what is not expected. It is of no use then.
    pub fn ask(
        &mut self,
        message: &[u8],
        most: usize,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Vec<u8>, ProgramError> {
        match send(&mut self.stream, message).and_then(|()| receive(&mut self.stream, most, progress)) {
            Err(ProgramError::Io(e))
                if matches!(
                    e.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) =>
            {
                Err(ProgramError::Ended(self.complaint()))
            }
            result => result,
        }
    }

    /// The end of what the program wrote on stderr. Its socket is closed, so it is about to end, or is ended.
    fn complaint(&mut self) -> String {
        let deadline = Instant::now() + LAST_WORDS;
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
                Ok(None) | Err(_) => {
                    let _ = self.child.kill();
                    break self.child.wait();
                }
                Ok(Some(status)) => break Ok(status),
            }
        };
        let mut text = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            // What was read until an error is shown.
            let _ = stderr.take(MAX_COMPLAINT).read_to_end(&mut text);
        }
        match (shown(&text), status) {
            (shown, Ok(status)) if shown.is_empty() => format!("it said nothing ({status})"),
            (shown, _) => shown,
        }
    }

    /// A handle that ends it from another thread: who waits for its answer hears that it ended.
    ///
    /// # Errors
    /// When the system gives no second handle.
    pub(crate) fn stopper(&self) -> io::Result<impl Fn() + Send + use<>> {
        let stream = self.stream.try_clone()?;
        Ok(move || {
            // It sees the end of its input and leaves.
            let _ = stream.shutdown(Shutdown::Both);
        })
    }
}

/// What a program complained about, fit to be shown.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = &text[..text.len().min(MAX_COMPLAINT as usize)];
    String::from_utf8_lossy(text).trim().chars().filter(|c| !c.is_control()).collect()
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has nothing to save. If it is gone already, both fail, and there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a message.
fn send(to: &mut impl Write, message: &[u8]) -> Result<(), ProgramError> {
    for part in message.chunks(MAX_DATA) {
        to.write_all(&head(DATA, part.len()))?;
        to.write_all(part)?;
    }
    to.write_all(&head(END, 0))?;
    Ok(to.flush()?)
}

/// A frame's first bytes.
fn head(kind: u8, length: usize) -> [u8; 5] {
    let [a, b, c, d] = (length as u32).to_le_bytes();
    [kind, a, b, c, d]
}

/// Receives a message of at most `most` bytes. Memory is taken as bytes arrive.
fn receive(
    from: &mut impl Read,
    most: usize,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Vec<u8>, ProgramError> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        let allowed = match kind {
            DATA => MAX_DATA,
            ABORT => MAX_REASON,
            END => 0,
            PROGRESS => 8,
            _ => return Err(ProgramError::Malformed(format!("a frame of kind {kind}"))),
        };
        if length > allowed {
            return Err(ProgramError::Malformed(format!("a frame of kind {kind} with {length} bytes")));
        }
        if kind == DATA && message.len() + length > most {
            return Err(ProgramError::Malformed(format!("more than {most} bytes")));
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        match kind {
            DATA => message.extend_from_slice(&payload),
            END => return Ok(message),
            PROGRESS => {
                let [a, b, c, d, e, f, g, h] = payload
                    .as_slice()
                    .try_into()
                    .map_err(|_| ProgramError::Malformed(format!("progress of {length} bytes")))?;
                progress(u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
            }
            _ => {
                let reason = String::from_utf8_lossy(&payload);
                return Err(ProgramError::GaveUp(reason.chars().filter(|c| !c.is_control()).collect()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        [&head(kind, payload.len()), payload].concat()
    }

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let message: Vec<u8> = (0..MAX_DATA + 7).map(|i| i as u8).collect();
        let mut wire = frame(PROGRESS, &[3, 0, 0, 0, 20, 0, 0, 0]);
        send(&mut wire, &message).unwrap();
        let mut told = Vec::new();
        let got =
            receive(&mut wire.as_slice(), message.len(), &mut |done, of| told.push((done, of))).unwrap();
        assert!(got == message);
        assert_eq!(told, [(3, 20)]);
    }

    #[test]
    fn bad_frames_are_refused() {
        for (wire, reason) in [
            (frame(2, b""), "a frame of kind 2"),
            (head(DATA, MAX_DATA + 1).to_vec(), "with 1048577 bytes"),
            (frame(DATA, b"hello world"), "more than 10 bytes"),
            (frame(PROGRESS, b"abc"), "progress of 3 bytes"),
            (frame(ABORT, b"no\nmemory"), "gave up: nomemory"),
            (vec![DATA, 5], "connection"),
        ] {
            let error = receive(&mut wire.as_slice(), 10, &mut |_, _| {}).unwrap_err().to_string();
            assert!(error.contains(reason), "{error} is not {reason}");
        }
    }

    #[test]
    fn a_program_answers_or_its_complaint_is_told() {
        // `cat` sends back what it gets, frames and all.
        let start = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments);
            Program::start(command)
        };
        let mut echo = start("cat", &[]).unwrap();
        assert_eq!(echo.ask(b"jaguar", 6, &mut |_, _| {}).unwrap(), b"jaguar");
        let mut fails = start("cat", &["/nowhere/at/all"]).unwrap();
        let error = fails.ask(b"jaguar", 6, &mut |_, _| {}).unwrap_err().to_string();
        assert!(error.contains("ended without an answer") && error.contains("/nowhere/at/all"), "{error}");
        let missing = start("/nowhere/jaguar-fhe", &[]).err().unwrap().to_string();
        assert!(missing.contains("make fhe"), "{missing}");
    }
}
