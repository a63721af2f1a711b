//! As much of HTTP/1.1 as a probe or Prometheus needs: one request, one answer, and the end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crate::PAUSE;

/// Bytes of a request's head, at most.
const LONGEST: usize = 8 << 10;

/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections whose request is not read yet, at most. Beyond it the oldest gives way to who comes: so those that are slow keep no
/// probe out.
const ASKING: usize = 16;

/// Those whose request is read and whose answer is on its way, at most: of figures, which are long, and of all others.
const ANSWERED: [usize; 2] = [16, 64];

/// An answer: a status line's number and words, a content type, and a text.
pub(crate) struct Answer {
    pub status: &'static str,
    pub kind: &'static str,
    pub body: String,
}

impl Answer {
    pub fn text(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// One of a limited number, free again when dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        // Counted before it is compared: of two that come at once, one is turned away.
        let before = taken.fetch_add(1, Ordering::SeqCst);
        let counted = Self(taken.clone());
        (before < limit).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Connections whose request is not read yet, by the order in which they came.
#[derive(Default)]
struct Asking {
    came: u64,
    there: BTreeMap<u64, Arc<TcpStream>>,
}

fn lock(asking: &Mutex<Asking>) -> MutexGuard<'_, Asking> {
    asking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers `GET path` with what `answer` says to the path, until the process ends.
pub(crate) fn answer_all(
    listener: TcpListener,
    answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
) -> io::Result<()> {
    let (answer, asking) = (Arc::new(answer), Arc::<Mutex<Asking>>::default());
    let answered: [Arc<AtomicUsize>; 2] = Default::default();
    // (Threads of connections that gave way may be about to end.)
    let threads = Arc::<AtomicUsize>::default();
    Builder::new().name("metrics".into()).spawn(move || {
        loop {
            let Ok((socket, _)) = listener.accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            let most = 2 * ASKING + ANSWERED.iter().sum::<usize>();
            let Some(thread) = Counted::take(&threads, most) else { continue };
            let socket = Arc::new(socket);
            let number = {
                let mut asking = lock(&asking);
                if asking.there.len() >= ASKING
                    && let Some((_, oldest)) = asking.there.pop_first()
                {
                    let _ = oldest.shutdown(Shutdown::Both);
                }
                asking.came += 1;
                let number = asking.came;
                asking.there.insert(number, socket.clone());
                number
            };
            let (answer, known, answered) = (answer.clone(), asking.clone(), answered.clone());
            // (Who gets no thread gets no answer, and asks again.)
            let started = Builder::new().name("metrics-answer".into()).spawn(move || {
                let _ = converse(&socket, &*answer, &|path| {
                    lock(&known).there.remove(&number);
                    let long = usize::from(path != FIGURES);
                    Counted::take(&answered[long], ANSWERED[long])
                });
                lock(&known).there.remove(&number);
                drop(thread);
            });
            if started.is_err() {
                lock(&asking).there.remove(&number);
            }
        }
    })?;
    Ok(())
}

/// The path of all figures.
pub(crate) const FIGURES: &str = "/metrics";

/// Reads a request and answers it. `slot` gives a place for the answer to a path, if there is one.
fn converse(
    mut socket: &TcpStream,
    answer: &dyn Fn(&str) -> Answer,
    slot: &dyn Fn(&str) -> Option<Counted>,
) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut read = |buf: &mut [u8]| -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        socket.read(buf)
    };
    let held = Cell::new(None);
    let text = reply(&mut read, &|path| match slot(path) {
        Some(place) => {
            held.set(Some(place));
            answer(path)
        }
        None => Answer::text("503 Service Unavailable", "too many ask at once\n"),
    });
    socket.write_all(text.as_bytes())?;
    socket.shutdown(Shutdown::Write)?;
    // Closing with unread bytes in it would reset the connection, and the answer with it.
    socket.set_read_timeout(Some(PAUSE))?;
    let _ = socket.read(&mut [0; 1024]);
    Ok(())
}

/// The head of a request, to its end. None if `read` ends before that, or it is too long.
fn head(read: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while head.len() <= LONGEST {
        let mut some = [0; 1024];
        match read(&mut some) {
            Ok(0) => return None,
            Ok(n) => head.extend_from_slice(&some[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        if head.windows(4).any(|w| w == b"\r\n\r\n") {
            return Some(head);
        }
    }
    None
}

/// What goes back to who says what `read` brings.
pub(crate) fn reply(
    read: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>,
    answer: &dyn Fn(&str) -> Answer,
) -> String {
    let request = head(read);
    let (Answer { status, kind, body }, with_body) = match request.as_deref().and_then(parse) {
        None => (Answer::text("400 Bad Request", "not a request that is understood here\n"), true),
        Some(("GET", path)) => (answer(path), true),
        Some(("HEAD", path)) => (answer(path), false),
        Some(_) => (Answer::text("405 Method Not Allowed", "GET and HEAD only\n"), true),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body { head + &body } else { head }
}

/// Method and path, without what is behind a `?`.
fn parse(head: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(head.split(|&b| b == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let path = target.split('?').next()?;
    (version.starts_with("HTTP/1.") && words.next().is_none() && path.starts_with('/'))
        .then_some((method, path))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// What who asks for a path is told.
    fn get(address: SocketAddr, path: &str) -> String {
        let mut socket = TcpStream::connect(address).expect("answered");
        socket.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("sent");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("an answer");
        text
    }

    #[test]
    fn slow_ones_keep_no_probe_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        answer_all(listener, |path| Answer::text("200 OK", path)).expect("a thread");
        // They have begun a request, and do not end it.
        let slow: Vec<TcpStream> = (0..5 * ASKING)
            .map(|_| {
                let mut socket = TcpStream::connect(address).expect("taken");
                // (One that has given way already may refuse it.)
                let _ = socket.write_all(b"GET /live HTTP/1.1\r\n");
                socket
            })
            .collect();
        for path in ["/live", FIGURES, "/live"] {
            assert!(get(address, path).ends_with(path));
        }
        // The first of them lost their places; the last have them still, and are answered.
        let mut last = slow.last().expect("some");
        last.write_all(b"\r\n").expect("open");
        let mut text = String::new();
        last.read_to_string(&mut text).expect("an answer");
        assert!(text.ends_with("/live"), "{text}");
        assert_eq!((&slow[0]).read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn requests_are_read() {
        assert_eq!(parse(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n"), Some(("GET", "/metrics")));
        assert_eq!(parse(b"POST / HTTP/1.0\r\n\r\n"), Some(("POST", "/")));
        for bad in [
            &b"GET\r\n"[..],
            b"GET / SMTP\r\n",
            b"GET / HTTP/1.1 x\r\n",
            b"\xff / HTTP/1.1\r\n",
            b"GET x HTTP/1.1\r\n",
        ] {
            assert_eq!(parse(bad), None, "{}", bad.escape_ascii());
        }
    }
}
