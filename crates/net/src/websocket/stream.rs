//! An opened WebSocket as a byte stream.
//!
//! One thread reads and another writes. The library's state is one for both, and is locked while frames are taken apart or
//! made, never while the network is waited for: the library reads from memory and writes to memory ([`Pipe`]).

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jaguar_wire::{ByteStream, Side};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Bytes, Error, Message, WebSocket};

use super::{ANSWERS, SENT};
use crate::outgoing::{Outgoing, READ, is_timeout, lock};

/// What the library reads from and writes to.
#[derive(Default)]
pub(crate) struct Pipe {
    /// While the WebSocket is opened: the network itself, and until when.
    direct: Option<(Arc<dyn ByteStream>, Instant)>,
    came: Vec<u8>,
    read: usize,
    /// Nothing comes any more.
    ended: bool,
    goes: Vec<u8>,
    /// Beyond so many bytes nothing more is taken: answers to pings wait for their turn.
    most: usize,
}

impl Pipe {
    /// Reads `first`, and then from the network; writes to the network, all until `deadline`.
    pub(crate) fn direct(socket: Arc<dyn ByteStream>, first: Vec<u8>, deadline: Instant) -> Self {
        Self { direct: Some((socket, deadline)), came: first, ..Self::default() }
    }

    /// Gives what came from the network, when all before it is read. Nothing is the end.
    fn feed(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.read, self.came.len(), "the rest is read first");
        self.came.clear();
        self.came.extend_from_slice(bytes);
        self.read = 0;
        self.ended = bytes.is_empty();
    }
}

/// The time that is left, which bounds the next wait on `socket`.
fn wait_until(socket: &dyn ByteStream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(left)?;
    socket.set_write_timeout(left)
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = &self.came[self.read..];
        if rest.is_empty() {
            let Some((socket, deadline)) = &self.direct else {
                return if self.ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
            };
            loop {
                wait_until(&**socket, *deadline)?;
                match socket.read(buf) {
                    Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => {}
                    result => return result,
                }
            }
        }
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        self.read += n;
        Ok(n)
    }
}

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Some((socket, deadline)) = &self.direct else {
            if self.goes.len() > self.most {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.goes.extend_from_slice(buf);
            return Ok(buf.len());
        };
        let (mut outgoing, all) = (Outgoing::default(), buf.len());
        outgoing.bytes.extend_from_slice(buf);
        loop {
            wait_until(&**socket, *deadline)?;
            match outgoing.flush(&**socket) {
                Ok(()) => return Ok(all),
                Err(e) if is_timeout(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection inside a WebSocket.
pub(crate) struct WebSocketStream {
    socket: Arc<dyn ByteStream>,
    state: Mutex<State>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

/// What belongs to the reader.
struct Incoming {
    /// The rest of the message that is being read.
    message: Bytes,
    /// What one read from the network brought.
    buffer: Vec<u8>,
}

/// What both threads need.
struct State {
    websocket: WebSocket<Pipe>,
    /// Why nothing more is read.
    over: Option<Over>,
}

#[derive(Clone)]
enum Over {
    /// The other side has closed.
    Closed,
    /// The other side does not keep to the rules.
    Broken(String),
}

/// What comes next.
enum Next {
    Data(Bytes),
    /// Only the network can tell.
    Unknown,
    Over(Over),
}

impl State {
    fn next(&mut self) -> Next {
        if let Some(over) = &self.over {
            return Next::Over(over.clone());
        }
        self.websocket.get_mut().most = ANSWERS;
        let over = loop {
            match self.websocket.read() {
                Ok(Message::Binary(bytes)) if !bytes.is_empty() => return Next::Data(bytes),
                Ok(Message::Text(_)) => break self.refuse(CloseCode::Unsupported, "a text message"),
                Ok(Message::Close(_)) => break Over::Closed,
                Ok(_) => {}
                Err(Error::Io(e)) if is_timeout(&e) => return Next::Unknown,
                Err(Error::ConnectionClosed | Error::AlreadyClosed) => break Over::Closed,
                // An end without WebSocket's own farewell is taken for an end too.
                Err(_) if self.websocket.get_ref().ended => break Over::Closed,
                Err(Error::Capacity(e)) => break self.refuse(CloseCode::Size, &e.to_string()),
                Err(Error::Protocol(e)) => break self.refuse(CloseCode::Protocol, &e.to_string()),
                Err(e) => break self.refuse(CloseCode::Protocol, &e.to_string()),
            }
        };
        self.over = Some(over.clone());
        Next::Over(over)
    }

    /// Tells the other side what is wrong with `found`, behind what is on its way.
    fn refuse(&mut self, code: CloseCode, found: &str) -> Over {
        let _ = self.websocket.close(Some(CloseFrame { code, reason: found.into() }));
        Over::Broken(format!("the other side breaks the rules of WebSocket: {found}"))
    }

    /// Moves all that is to be sent to the writer. `make` puts something there before.
    fn collect(
        &mut self,
        framed: &mut Vec<u8>,
        make: impl FnOnce(&mut WebSocket<Pipe>) -> Result<(), Error>,
    ) -> io::Result<()> {
        self.websocket.get_mut().most = usize::MAX;
        // What earlier messages gave rise to goes first; then there is room for one more.
        let answered = self.websocket.flush();
        let made = answered.and_then(|()| make(&mut self.websocket));
        framed.append(&mut self.websocket.get_mut().goes);
        made.map_err(|e| io::Error::new(ErrorKind::BrokenPipe, e.to_string()))
    }
}

impl WebSocketStream {
    /// Over `socket`, on which `websocket` was opened.
    pub(super) fn new(socket: Arc<dyn ByteStream>, mut websocket: WebSocket<Pipe>) -> Self {
        websocket.get_mut().direct = None;
        Self {
            socket,
            state: Mutex::new(State { websocket, over: None }),
            incoming: Mutex::new(Incoming { message: Bytes::new(), buffer: vec![0; READ] }),
            outgoing: Mutex::default(),
        }
    }
}

impl ByteStream for WebSocketStream {
    /// A message, or a fragment of one, that is not whole yet is nothing: a peer that sends it drop by drop is not waited for
    /// longer than one that is silent.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut incoming = lock(&self.incoming);
        let mut asked = false;
        while incoming.message.is_empty() {
            let next = lock(&self.state).next();
            match next {
                Next::Data(bytes) => incoming.message = bytes,
                Next::Over(Over::Closed) => return Ok(0),
                Next::Over(Over::Broken(why)) => return Err(io::Error::new(ErrorKind::InvalidData, why)),
                Next::Unknown if asked => return Err(ErrorKind::WouldBlock.into()),
                Next::Unknown => {
                    asked = true;
                    let n = self.socket.read(&mut incoming.buffer)?;
                    lock(&self.state).websocket.get_mut().feed(&incoming.buffer[..n]);
                }
            }
        }
        let n = incoming.message.len().min(buf.len());
        buf[..n].copy_from_slice(&incoming.message.split_to(n));
        Ok(n)
    }

    /// One message of what is given, or of its beginning.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        lock(&self.outgoing).send(&*self.socket, |framed| {
            let mut message =
                Vec::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>().min(SENT));
            for part in parts {
                message.extend_from_slice(&part[..part.len().min(SENT - message.len())]);
            }
            let taken = message.len();
            if taken > 0 {
                lock(&self.state).collect(framed, |websocket| websocket.send(Message::binary(message)))?;
            }
            Ok(taken)
        })
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(timeout)
    }

    /// The end of this direction is a close frame, behind what is written, as far as the network takes it at once. The stream
    /// under it stays open: a proxy between may take the end of one direction for the end of both.
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            return self.socket.shutdown(how);
        }
        let mut outgoing = lock(&self.outgoing);
        // (An error says that the other side has closed before; the answer to that goes out all the same.)
        let _ = lock(&self.state).collect(&mut outgoing.bytes, |websocket| websocket.close(None));
        outgoing.flush(&*self.socket)
    }

    fn binding(&self, side: Side) -> Option<[u8; 32]> {
        self.socket.binding(side)
    }
}
