//! The greeting: who connects says that it is a Jaguar, and of which wire version; who accepts answers alike.
//!
//! | from | bytes | content |
//! |---|---|---|
//! | C | 16 | `JAGUAR/`, the wire version in four digits, an empty line |
//! | C | 33 | 1 and the connection's binding for the connecting side, or zeros |
//! | C | 2 | how many seconds it would wait for a place (0: it wants to be told at once) |
//! | C | 1 + n | the length of a token, and the token (n = 0: none) |
//! | S | 16, 33, 2, 1 | the same of its side, without a wait and a token |
//!
//! The *binding* ties the session to the TLS connection that carries it ([`ByteStream::binding`]): each side derives both
//! sides' values from its own end, so they agree only if there is one connection. Who decrypts in the middle and passes on
//! what it reads is found. (Who is taken for the peer, and rewrites the greeting, is not: that is what certificates are for.)
//!
//! Whoever is no Jaguar (a browser, a TLS client, a port scanner) is recognised by its first bytes, or within a given time
//! when it sends none, and is told so in its own terms if it speaks HTTP. (Who asks for something by HTTP's `GET` may be a
//! WebSocket's client: [`greet_back`] hands it over to a caller that knows those.)

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::WireError;
use crate::error::{io_error, is_closed};
use crate::frame::{self, FrameKind};
use crate::stream::{ByteStream, Handle, Side, is_timeout};
use crate::time::Instant;

/// Both sides must run the same framing and the same meaning of the bytes in it.
pub const WIRE_VERSION: u16 = 3;

/// What a greeting begins with, whatever the version.
const MAGIC: &[u8; 7] = b"JAGUAR/";

/// `JAGUAR/`, the version in four digits, and an empty line, so that a server that waits for the end of a
/// request's head answers at once instead of waiting for more.
const GREETING_LEN: usize = 16;

/// Bytes of a token, at most.
pub const MAX_TOKEN: usize = 255;

/// What the connecting side says of itself.
#[derive(Clone, Copy, Default)]
pub struct Introduction<'a> {
    /// What shows who connects, of at most [`MAX_TOKEN`] bytes. Empty: nothing.
    pub token: &'a [u8],
    /// TLS may end before the peer, at a proxy that is trusted with all that is said. The session is not bound then.
    pub unbound: bool,
    /// Seconds that it would wait for a place, if the accepting side has none. 0: it wants to be told at once.
    pub wait: u16,
}

/// What follows the first line.
///
/// # Panics
/// When the token is too long.
fn second_part(binding: Option<[u8; 32]>, wait: u16, token: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(36 + token.len()));
    bytes.push(binding.is_some().into());
    bytes.extend_from_slice(&binding.unwrap_or_default());
    bytes.extend_from_slice(&wait.to_le_bytes());
    bytes.push(u8::try_from(token.len()).expect("tokens are short"));
    bytes.extend_from_slice(token);
    bytes
}

/// Greets as the side that connected to `name`, and waits for the answer.
pub(crate) fn greet_first(
    stream: &dyn ByteStream,
    name: &str,
    introduction: &Introduction<'_>,
    patience: Duration,
) -> Result<(), WireError> {
    let Introduction { token, unbound, wait } = introduction;
    let ours = stream.binding(Side::Connecting).filter(|_| !unbound);
    let words = Zeroizing::new([&greeting(WIRE_VERSION)[..], &second_part(ours, *wait, token)].concat());
    let sent = Handle(stream).write_all(&words);
    sent.map_err(|e| io_error(format!("greeting {name}"), e))?;
    let waiting = Waiting { stream, name, patience, deadline: Instant::now() + patience };
    waiting.read_greeting().map_err(|(error, _)| error)?;
    let SecondPart { binding: theirs, .. } = waiting.read_second_part()?;
    let expected = stream.binding(Side::Accepting).filter(|_| !unbound);
    match (expected, theirs) {
        (None, _) => Ok(()),
        (Some(expected), Some(theirs)) if expected == theirs => Ok(()),
        (_, None) => Err(not_bound(name, "TLS ends before it, at something that can read all")),
        (_, Some(_)) => Err(not_bound(name, ANEW)),
    }
}

/// Who connected.
pub(crate) enum Caller {
    /// A Jaguar, with its token, and how many seconds it would wait for a place.
    Jaguar(Zeroizing<Vec<u8>>, u16),
    /// Who asks for something by HTTP's `GET`. These are its first bytes; nothing was answered.
    Http(Vec<u8>),
}

/// Waits for the greeting of `name`, which connected, and answers. Strangers are told what they have come to, but for those who
/// speak HTTP if the caller `takes_http`.
pub(crate) fn greet_back(
    stream: &dyn ByteStream,
    name: &str,
    patience: Duration,
    takes_http: bool,
) -> Result<Caller, WireError> {
    let waiting = Waiting { stream, name, patience, deadline: Instant::now() + patience };
    if let Err((error, stranger)) = waiting.read_greeting() {
        let line = greeting(WIRE_VERSION);
        let _ = Handle(stream).write_all(match stranger {
            Stranger::Http(first) if takes_http && asks_for_a_page(&first) => {
                return Ok(Caller::Http(first));
            }
            Stranger::Http(_) => HTTP_REFUSAL,
            Stranger::Gone => &[],
            // Any other stranger gets our greeting, which is text and names the version.
            Stranger::Other => &line,
        });
        see_out(stream);
        return Err(error);
    }
    let read = waiting.read_second_part();
    let answer =
        [&greeting(WIRE_VERSION)[..], &second_part(stream.binding(Side::Accepting), 0, &[])].concat();
    let sent = Handle(stream).write_all(&answer);
    let checked = read.and_then(|part| match (stream.binding(Side::Connecting), part.binding) {
        (None, _) => Ok(part),
        (Some(expected), Some(theirs)) if expected == theirs => Ok(part),
        (_, None) => Err(not_bound(name, "the client does not say that TLS ends with it")),
        (_, Some(_)) => Err(not_bound(name, ANEW)),
    });
    if checked.is_err() {
        see_out(stream);
    }
    let SecondPart { token, wait, .. } = checked?;
    sent.map_err(|e| io_error(format!("greeting {name}"), e))?;
    Ok(Caller::Jaguar(token, wait))
}

const ANEW: &str = "something between decrypts, and encrypts anew";

fn not_bound(peer: &str, found: &'static str) -> WireError {
    WireError::NotBound { peer: peer.to_owned(), found }
}

/// Tells a peer that has come to the wrong door, where `first` are its first bytes: a Jaguar hears `reason`, others what
/// this is. Ends the connection.
pub fn turn_away(stream: &dyn ByteStream, first: &[u8], reason: &str) {
    let reason = frame::bounded(reason).as_bytes();
    let mut answer = greeting(WIRE_VERSION).to_vec();
    if first.starts_with(MAGIC) {
        answer.extend_from_slice(&second_part(None, 0, &[]));
        answer.extend_from_slice(&frame::head(FrameKind::Abort, reason.len()));
        answer.extend_from_slice(reason);
    }
    let _ = Handle(stream).write_all(if speaks_http(first) { HTTP_REFUSAL } else { &answer });
    see_out(stream);
}

/// What a browser or a health check is told.
const HTTP_REFUSAL: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
This is a Jaguar private-inference server. It has no pages: use the jaguar client.\r\n";

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
    /// With its first bytes.
    Http(Vec<u8>),
    Gone,
    Other,
}

/// What follows the first line.
struct SecondPart {
    binding: Option<[u8; 32]>,
    wait: u16,
    token: Zeroizing<Vec<u8>>,
}

/// A side that waits for the other's greeting.
struct Waiting<'a> {
    stream: &'a dyn ByteStream,
    name: &'a str,
    patience: Duration,
    deadline: Instant,
}

impl Waiting<'_> {
    fn what(&self) -> String {
        format!("waiting for the greeting of {}", self.name)
    }

    /// Reads something into `buf`. `have` is what came before it.
    fn read(&self, buf: &mut [u8], have: &[u8]) -> Result<usize, (WireError, Stranger)> {
        let Self { stream, name, patience, deadline } = *self;
        // (A part of our greeting is no stranger's.)
        let cut = greeting(WIRE_VERSION).starts_with(have);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let error = if cut {
                    WireError::Silent { silence: patience, waiting_for: self.what() }
                } else {
                    stranger(name, have, "and then nothing")
                };
                return Err((error, Stranger::Other));
            }
            stream.set_read_timeout(left).map_err(|e| (io_error(self.what(), e), Stranger::Gone))?;
            match stream.read(buf) {
                Ok(0) if cut => {
                    return Err((WireError::Closed { waiting_for: self.what() }, Stranger::Gone));
                }
                Ok(0) => return Err((stranger(name, have, "and the end"), Stranger::Gone)),
                Ok(n) => return Ok(n),
                Err(e) if e.kind() == ErrorKind::Interrupted || is_timeout(&e) => {}
                Err(e) => return Err((lost(e, self.what()), Stranger::Gone)),
            }
        }
    }

    /// Reads the first line.
    fn read_greeting(&self) -> Result<(), (WireError, Stranger)> {
        let mut bytes = [0; GREETING_LEN];
        let mut have = 0;
        // Stops at the first byte that cannot belong to a greeting: a stranger need not send sixteen.
        while have < GREETING_LEN && MAGIC.starts_with(&bytes[..have.min(MAGIC.len())]) {
            let (before, rest) = bytes.split_at_mut(have);
            have += self.read(rest, before)?;
        }
        let got = &bytes[..have];
        if *got == greeting(WIRE_VERSION) {
            return Ok(());
        }
        let kind = if speaks_http(got) { Stranger::Http(got.to_vec()) } else { Stranger::Other };
        Err((stranger(self.name, got, ""), kind))
    }

    fn read_exact(&self, buf: &mut [u8]) -> Result<(), WireError> {
        let mut have = 0;
        while have < buf.len() {
            have += self.read(&mut buf[have..], &greeting(WIRE_VERSION)).map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    /// Reads what follows the first line.
    fn read_second_part(&self) -> Result<SecondPart, WireError> {
        let mut head = [0; 36];
        self.read_exact(&mut head)?;
        let [bound, binding @ .., low, high, len] = head;
        let binding = match bound {
            0 => None,
            1 => Some(binding),
            other => {
                return Err(WireError::misbehaved("a greeting's second part", other, "0 or 1"));
            }
        };
        let mut token = Zeroizing::new(vec![0; len.into()]);
        self.read_exact(&mut token)?;
        Ok(SecondPart { binding, wait: u16::from_le_bytes([low, high]), token })
    }
}

/// Whether these first bytes, of which the first may be all, begin a `GET`. (No greeting begins so.)
fn asks_for_a_page(bytes: &[u8]) -> bool {
    const GET: &[u8] = b"GET ";
    bytes.starts_with(GET) || !bytes.is_empty() && GET.starts_with(bytes)
}

fn speaks_http(bytes: &[u8]) -> bool {
    const METHODS: [&[u8]; 8] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"HTTP"];
    let known = METHODS.iter().any(|m| bytes.starts_with(m));
    known || asks_for_a_page(bytes) || bytes.starts_with(b"CONN") || bytes.starts_with(b"PRI ")
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

/// Ends the connection so that what was written last reaches the peer: closing with unread bytes in it would reset it.
pub fn see_out(stream: &dyn ByteStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Duration::from_millis(200));
    let mut buf = [0; 1 << 12];
    for _ in 0..16 {
        if !matches!(stream.read(&mut buf), Ok(n) if n > 0) {
            break;
        }
    }
}
