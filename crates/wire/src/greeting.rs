//! The greeting: who connects says that it is a Jaguar, and of which wire version; who accepts answers alike.
//!
//! The connecting side sends 16 bytes of text with the wire version, the accepting side answers with its own. Whoever is no
//! Jaguar (a browser, a TLS client, a port scanner) is recognised by its first bytes, or within a given time when it sends none,
//! and is told so in its own terms if it speaks HTTP.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::WireError;
use crate::error::{io_error, is_closed};
use crate::stream::{ByteStream, Handle, is_timeout};

/// Both sides must run the same framing and the same meaning of the bytes in it.
pub const WIRE_VERSION: u16 = 1;

/// What a greeting begins with, whatever the version.
const MAGIC: &[u8; 7] = b"JAGUAR/";

/// `JAGUAR/`, the version in four digits, and an empty line, so that a server that waits for the end of a
/// request's head answers at once instead of waiting for more.
const GREETING_LEN: usize = 16;

/// Greets as the side that connected to `name`, and waits for the answer.
pub(crate) fn greet_first(stream: &dyn ByteStream, name: &str, patience: Duration) -> Result<(), WireError> {
    let sent = Handle(stream).write_all(&greeting(WIRE_VERSION));
    sent.map_err(|e| io_error(format!("greeting {name}"), e))?;
    read_greeting(stream, name, patience).map_err(|(error, _)| error)
}

/// Waits for the greeting of `name`, which connected, and answers. Strangers are told what they have come to.
pub(crate) fn greet_back(stream: &dyn ByteStream, name: &str, patience: Duration) -> Result<(), WireError> {
    let greeted = read_greeting(stream, name, patience);
    let reply: &[u8] = match &greeted {
        Err((_, Stranger::Http)) => HTTP_REFUSAL,
        Err((_, Stranger::Gone)) => &[],
        // Any other stranger gets our greeting, which is text and names the version.
        _ => &greeting(WIRE_VERSION),
    };
    let sent = Handle(stream).write_all(reply);
    if let Err((error, _)) = greeted {
        refuse(stream);
        return Err(error);
    }
    sent.map_err(|e| io_error(format!("greeting {name}"), e))
}

/// What a browser or a health check is told.
const HTTP_REFUSAL: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
This is a Jaguar private-inference server. It does not speak HTTP: use the jaguar client.\r\n";

fn greeting(version: u16) -> [u8; GREETING_LEN] {
    let mut bytes = *b"JAGUAR/0000 \r\n\r\n";
    let mut rest = version;
    for digit in bytes[MAGIC.len()..MAGIC.len() + 4].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

/// Who greeted wrongly, as far as the answer depends on it.
enum Stranger {
    Http,
    Gone,
    Other,
}

fn read_greeting(
    stream: &dyn ByteStream,
    name: &str,
    patience: Duration,
) -> Result<(), (WireError, Stranger)> {
    let waiting_for = || format!("waiting for the greeting of {name}");
    let deadline = Instant::now() + patience;
    let mut bytes = [0; GREETING_LEN];
    let mut have = 0;
    // Stops at the first byte that cannot belong to a greeting: a stranger need not send sixteen.
    while have < GREETING_LEN && MAGIC.starts_with(&bytes[..have.min(MAGIC.len())]) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(match have {
                0 => (WireError::Silent { silence: patience, waiting_for: waiting_for() }, Stranger::Other),
                _ => (stranger(name, &bytes[..have], "and then nothing"), Stranger::Other),
            });
        }
        let io_failure = |e| (io_error(waiting_for(), e), Stranger::Gone);
        stream.set_read_timeout(left).map_err(io_failure)?;
        match stream.read(&mut bytes[have..]) {
            Ok(0) if have == 0 => {
                return Err((WireError::Closed { waiting_for: waiting_for() }, Stranger::Gone));
            }
            Ok(0) => return Err((stranger(name, &bytes[..have], "and the end"), Stranger::Gone)),
            Ok(n) => have += n,
            Err(e) if e.kind() == ErrorKind::Interrupted || is_timeout(&e) => {}
            Err(e) => {
                return Err((lost(e, waiting_for()), Stranger::Gone));
            }
        }
    }
    let got = &bytes[..have];
    if *got == greeting(WIRE_VERSION) {
        return Ok(());
    }
    let kind = if speaks_http(got) { Stranger::Http } else { Stranger::Other };
    Err((stranger(name, got, ""), kind))
}

fn speaks_http(bytes: &[u8]) -> bool {
    const METHODS: [&[u8]; 8] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"HTTP"];
    METHODS.iter().any(|m| bytes.starts_with(m)) || bytes.starts_with(b"CONN") || bytes.starts_with(b"PRI ")
}

/// The error for a greeting that is not ours, naming what it looks like.
fn stranger(name: &str, bytes: &[u8], then: &str) -> WireError {
    let shown = bytes.escape_ascii();
    let found = match bytes {
        _ if speaks_http(bytes) => format!("HTTP (\"{shown}\")"),
        [0x16, 0x03, ..] => "a TLS handshake".to_owned(),
        _ if bytes.starts_with(b"SSH-") => format!("SSH (\"{shown}\")"),
        _ if bytes.starts_with(MAGIC) => format!("another version (\"{shown}\")"),
        _ => format!("\"{shown}\""),
    };
    WireError::misbehaved(
        "the greeting",
        format!("{found} {then}").trim_end(),
        format!("a Jaguar of wire version {WIRE_VERSION} at {name}"),
    )
}

/// What a read's failure means before there is a connection.
fn lost(error: io::Error, waiting_for: String) -> WireError {
    if is_closed(error.kind()) {
        return WireError::Closed { waiting_for };
    }
    io_error(format!("{waiting_for} (reading from the socket)"), error)
}

/// Lets the refusal reach the stranger before the connection is closed.
fn refuse(stream: &dyn ByteStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Duration::from_millis(200));
    let mut buf = [0; 1 << 12];
    for _ in 0..16 {
        if !matches!(stream.read(&mut buf), Ok(n) if n > 0) {
            break;
        }
    }
}
