//! Pages for browsers that come to the port, which open their WebSocket there too.
//!
//! A page may not be framed, asks nobody else for anything, and is isolated from other origins: only so a browser gives it the memory
//! that its threads share.

use std::io::{ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use jaguar_wire::{ByteStream, WireError, see_out};

/// A file that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Where it is, from `/` on.
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// What is in it.
    pub body: &'static [u8],
}

/// What a request is for.
pub(crate) enum Asked {
    /// A WebSocket: the bytes that came, and the origin of this listener's own pages, if they may open one here.
    WebSocket(Vec<u8>, Option<String>),
    /// A page, which was sent.
    Page,
}

/// Bytes of a request's head, at most.
const LONGEST: usize = 16 << 10;

/// What comes with every answer.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
img-src 'self' blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
Cross-Origin-Opener-Policy: same-origin\r\n\
Cross-Origin-Embedder-Policy: require-corp\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
X-Content-Type-Options: nosniff\r\n\
Referrer-Policy: no-referrer\r\n\
Cache-Control: no-cache\r\n\
Connection: close\r\n";

/// Reads the request of `peer`, of which `first` came already, and answers it if it is for a page. `secure`: TLS is spoken.
///
/// # Errors
/// When nothing whole comes within `patience`, or the page cannot be sent.
pub(crate) fn answer(
    stream: &dyn ByteStream,
    first: Vec<u8>,
    pages: &[Page],
    (peer, secure): (&str, bool),
    patience: Duration,
) -> Result<Asked, WireError> {
    let head = read_head(stream, first, peer, patience)?;
    let text = String::from_utf8_lossy(&head);
    if header(&text, "upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        let own = header(&text, "host").filter(|host| secure || is_here(host));
        let own = own.map(|host| format!("{}://{host}", if secure { "https" } else { "http" }));
        return Ok(Asked::WebSocket(head, own));
    }
    let path = text.split(' ').nth(1).and_then(|target| target.split('?').next());
    let (status, kind, body) = match pages.iter().find(|page| Some(page.path) == path) {
        Some(page) => ("200 OK", page.kind, page.body),
        None => ("404 Not Found", "text/plain", &b"There is no such page.\n"[..]),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{HEADERS}\r\n",
        body.len()
    );
    write_all(stream, answer.as_bytes(), peer, patience)?;
    write_all(stream, body, peer, patience)?;
    see_out(stream);
    Ok(Asked::Page)
}

/// The value of a line of a head.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// Whether a host's name says that it is this machine. (In the clear any other name may be a stranger's, who has it mean this machine.)
fn is_here(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(n, _)| n);
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

fn read_head(
    stream: &dyn ByteStream,
    mut head: Vec<u8>,
    peer: &str,
    patience: Duration,
) -> Result<Vec<u8>, WireError> {
    let waiting_for = || format!("waiting for the request of {peer}");
    let deadline = Instant::now() + patience;
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > LONGEST {
            see_out(stream);
            return Err(WireError::misbehaved(
                "a request",
                "a long head",
                format!("at most {LONGEST} bytes"),
            ));
        }
        let mut some = [0; 1 << 10];
        let n = read_some(stream, &mut some, &waiting_for, (deadline, patience))?;
        head.extend_from_slice(&some[..n]);
    }
    Ok(head)
}

/// Reads something of what comes until `deadline`, for which `patience` was given.
///
/// # Errors
/// When nothing comes until then, or the stream has ended or fails.
pub(crate) fn read_some(
    stream: &dyn ByteStream,
    buf: &mut [u8],
    waiting_for: &dyn Fn() -> String,
    (deadline, patience): (Instant, Duration),
) -> Result<usize, WireError> {
    let failed = |source| WireError::Io { what: waiting_for(), source };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(WireError::Silent { silence: patience, waiting_for: waiting_for() });
        }
        stream.set_read_timeout(left).map_err(failed)?;
        match stream.read(buf) {
            Ok(0) => return Err(WireError::Closed { waiting_for: waiting_for() }),
            Ok(n) => return Ok(n),
            Err(e) if is_for_now(e.kind()) => {}
            Err(e) => return Err(failed(e)),
        }
    }
}

fn write_all(
    stream: &dyn ByteStream,
    mut bytes: &[u8],
    peer: &str,
    patience: Duration,
) -> Result<(), WireError> {
    let what = || format!("sending a page to {peer}");
    let failed = |source| WireError::Io { what: what(), source };
    stream.set_write_timeout(patience).map_err(failed)?;
    let mut moved = Instant::now();
    while !bytes.is_empty() {
        match stream.write(&[IoSlice::new(bytes)]) {
            Ok(0) => return Err(WireError::Closed { waiting_for: what() }),
            Ok(n) => {
                bytes = &bytes[n..];
                moved = Instant::now();
            }
            Err(e) if is_for_now(e.kind()) && moved.elapsed() < patience => {}
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(())
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_here() {
        for here in ["localhost", "localhost:7447", "127.0.0.1:80", "[::1]:7447", "[::1]"] {
            assert!(is_here(here), "{here}");
        }
        for strange in
            ["evil.example", "localhost.evil.example:7447", "127.0.0.1.evil.example", "192.0.2.1:7447", ""]
        {
            assert!(!is_here(strange), "{strange}");
        }
    }

    #[test]
    fn lines_of_a_head_are_found() {
        let head = "GET / HTTP/1.1\r\nhost: a:1 \r\nUPGRADE:websocket\r\n\r\n";
        assert_eq!(header(head, "Host"), Some("a:1"));
        assert_eq!(header(head, "upgrade"), Some("websocket"));
        assert_eq!(header(head, "origin"), None);
    }
}
