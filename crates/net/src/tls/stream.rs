//! TLS as a byte stream around another.
//!
//! One thread reads and another writes. Encryption has one state for both, which is locked for as long as records are
//! sealed or opened; nobody holds it while waiting for the network. What came and is not opened yet belongs to the
//! reader, what is sealed and not written yet to the writer.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jaguar_wire::{ByteStream, Side, WireError};
use rustls::{Connection, Error};

use super::subject::common_name;
use super::{Fingerprint, PROTOCOL, explain, versioned};
use crate::outgoing::{Outgoing, READ, is_timeout, lock};

/// What both ends derive the binding under.
const BINDING: &[u8] = b"EXPORTER-jaguar-session";

/// A connection inside TLS.
pub(crate) struct TlsStream {
    socket: Box<dyn ByteStream>,
    connection: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    /// Of the connecting and the accepting side, once the handshake is through.
    bindings: [[u8; 32]; 2],
}

/// What came from the network and is not opened yet.
struct Incoming {
    buffer: Vec<u8>,
    read: usize,
    end: usize,
}

/// Why there is no TLS with a peer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It does not speak TLS. These are its first bytes.
    NoTls(Vec<u8>),
    /// It said nothing more.
    Silent,
    /// It closed the connection.
    Closed,
    /// TLS, or the connection under it.
    Io(io::Error),
}

impl Failure {
    /// As an error of the connection with `peer`, which had `patience`.
    pub(crate) fn error(self, peer: &str, patience: Duration) -> WireError {
        let what = || format!("TLS with {peer}");
        match self {
            Self::NoTls(first) => WireError::misbehaved(
                "the TLS handshake",
                format!("{} \"{}\"", looks_like(&first), first.escape_ascii()).trim_start(),
                format!("TLS at {peer}"),
            ),
            Self::Silent => {
                WireError::Silent { silence: patience, waiting_for: format!("waiting for {}", what()) }
            }
            Self::Closed => WireError::Closed { waiting_for: format!("waiting for {}", what()) },
            Self::Io(source) => WireError::Io { what: what(), source },
        }
    }
}

/// Who speaks in the clear.
fn looks_like(first: &[u8]) -> &'static str {
    if first.starts_with(b"JAGUAR/") { "a Jaguar that speaks in the clear," } else { "" }
}

fn tls_error(error: &Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, explain(error))
}

impl TlsStream {
    /// Shakes hands over `socket`. What will be spoken inside must be one of `protocols`, of which one may be none named (as
    /// proxies do that end TLS).
    ///
    /// # Errors
    /// When the peer is gone or not through within `patience`, does not speak TLS 1.3, or one side does not accept the other's
    /// certificate. The socket comes back, so that the peer can be told.
    pub(crate) fn open(
        socket: Box<dyn ByteStream>,
        connection: Connection,
        protocols: &[Option<&[u8]>],
        patience: Duration,
    ) -> Result<Self, (Box<dyn ByteStream>, Failure)> {
        let incoming = Incoming { buffer: vec![0; READ], read: 0, end: 0 };
        let mut stream = Self {
            socket,
            connection: Mutex::new(connection),
            incoming: Mutex::new(incoming),
            outgoing: Mutex::default(),
            bindings: [[0; 32]; 2],
        };
        match stream.shake_hands(Instant::now() + patience).and_then(|()| stream.agreed(protocols)) {
            Ok(()) => Ok(stream),
            Err(failure) => {
                // The peer hears why (an alert), if it speaks TLS.
                if matches!(failure, Failure::Io(_)) {
                    let mut outgoing = lock(&stream.outgoing);
                    let sealed = collect(&mut lock(&stream.connection), &mut outgoing.bytes);
                    let _ = sealed.and_then(|()| outgoing.flush(&*stream.socket));
                }
                Err((stream.socket, failure))
            }
        }
    }

    /// The certificate that the peer showed: its fingerprint, and the common name in it, if there is one.
    pub(crate) fn peer_certificate(&self) -> Option<(Fingerprint, Option<String>)> {
        let connection = lock(&self.connection);
        let certificate = connection.peer_certificates()?.first()?;
        Some((Fingerprint::of(certificate), common_name(certificate)))
    }

    /// The same certificate itself (DER).
    pub(crate) fn peer_certificate_der(&self) -> Option<Vec<u8>> {
        lock(&self.connection).peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// Whether both sides said that they speak Jaguar's protocol inside, and not HTTP or nothing.
    pub(crate) fn speaks_jaguar(&self) -> bool {
        unversioned(lock(&self.connection).alpn_protocol()) == Some(PROTOCOL)
    }

    fn shake_hands(&mut self, deadline: Instant) -> Result<(), Failure> {
        let mut first = true;
        loop {
            {
                let mut outgoing = lock(&self.outgoing);
                collect(&mut lock(&self.connection), &mut outgoing.bytes).map_err(Failure::Io)?;
                outgoing.flush(&*self.socket).map_err(Failure::Io)?;
            }
            if !lock(&self.connection).is_handshaking() {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Silent);
            }
            let mut incoming = lock(&self.incoming);
            let set = self.socket.set_read_timeout(left).and_then(|()| self.socket.set_write_timeout(left));
            set.map_err(Failure::Io)?;
            match self.socket.read(&mut incoming.buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(n) => (incoming.read, incoming.end) = (0, n),
                Err(e) if is_timeout(&e) || e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(Failure::Io(e)),
            }
            // A handshake record, or an alert.
            if std::mem::take(&mut first) && !matches!(incoming.buffer[0], 0x15 | 0x16) {
                return Err(Failure::NoTls(incoming.buffer[..incoming.end.min(64)].to_vec()));
            }
            let mut connection = lock(&self.connection);
            while incoming.read < incoming.end && connection.is_handshaking() {
                incoming.open(&mut connection).map_err(Failure::Io)?;
            }
        }
    }

    /// Checks what was agreed, and derives what names this connection.
    fn agreed(&mut self, protocols: &[Option<&[u8]>]) -> Result<(), Failure> {
        let connection = lock(&self.connection);
        if !protocols.contains(&unversioned(connection.alpn_protocol())) {
            return Err(Failure::Io(tls_error(&Error::NoApplicationProtocol)));
        }
        for (binding, side) in self.bindings.iter_mut().zip([&b"connecting"[..], b"accepting"]) {
            let derived = connection.export_keying_material(&mut binding[..], BINDING, Some(side));
            derived.map_err(|e| Failure::Io(tls_error(&e)))?;
        }
        Ok(())
    }
}

/// What was agreed by ALPN, whichever version it named.
fn unversioned(agreed: Option<&[u8]>) -> Option<&[u8]> {
    agreed.map(|protocol| if protocol == versioned() { PROTOCOL } else { protocol })
}

/// Takes over what is sealed.
fn collect(connection: &mut Connection, sealed: &mut Vec<u8>) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(sealed)?;
    }
    Ok(())
}

impl Incoming {
    /// Hands some of what came to TLS.
    fn open(&mut self, connection: &mut Connection) -> io::Result<()> {
        let mut rest = &self.buffer[self.read..self.end];
        // (Memory has no end of its own: who takes no more has failed to open something before.)
        let closed = |e: io::Error| {
            io::Error::new(e.kind(), format!("TLS: what came before could not be opened ({e})"))
        };
        self.read += connection.read_tls(&mut rest).map_err(closed)?;
        connection.process_new_packets().map(drop).map_err(|e| tls_error(&e))
    }
}

/// Takes what is opened. 0 says that the peer's direction has ended; none, that there is nothing yet.
fn opened(connection: &mut Connection, buf: &mut [u8]) -> io::Result<Option<usize>> {
    match connection.reader().read(buf) {
        Ok(n) => Ok(Some(n)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

impl ByteStream for TlsStream {
    /// An end without TLS's own farewell is taken for an end too: what runs over this knows how much is to come.
    ///
    /// A record that is not whole yet is nothing: a peer that sends it drop by drop is not waited for longer than one that is
    /// silent.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut incoming = lock(&self.incoming);
        let mut filled = 0;
        let mut asked = false;
        loop {
            {
                let mut connection = lock(&self.connection);
                while filled < buf.len() {
                    match opened(&mut connection, &mut buf[filled..])? {
                        Some(0) => return Ok(filled),
                        Some(n) => filled += n,
                        None if incoming.read < incoming.end => match incoming.open(&mut connection) {
                            // What was in order before it is delivered first; the error stays.
                            Err(_) if filled > 0 => return Ok(filled),
                            result => result?,
                        },
                        None => break,
                    }
                }
            }
            if filled > 0 {
                return Ok(filled);
            }
            if asked {
                return Err(ErrorKind::WouldBlock.into());
            }
            asked = true;
            incoming.read = 0;
            incoming.end = 0;
            match self.socket.read(&mut incoming.buffer)? {
                0 => return Ok(0),
                n => incoming.end = n,
            }
        }
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        lock(&self.outgoing).send(&*self.socket, |sealed| {
            let mut connection = lock(&self.connection);
            let taken = connection.writer().write_vectored(parts)?;
            collect(&mut connection, sealed)?;
            Ok(taken)
        })
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(timeout)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        // To end a write that waits, its thread's lock is not needed. Else the farewell goes behind what is written, as
        // far as the network takes it at once.
        if how == Shutdown::Write {
            let mut outgoing = lock(&self.outgoing);
            let mut connection = lock(&self.connection);
            connection.send_close_notify();
            collect(&mut connection, &mut outgoing.bytes)?;
            drop(connection);
            let _ = outgoing.flush(&*self.socket);
        }
        self.socket.shutdown(how)
    }

    fn binding(&self, side: Side) -> Option<[u8; 32]> {
        let [connecting, accepting] = self.bindings;
        Some(match side {
            Side::Connecting => connecting,
            Side::Accepting => accepting,
        })
    }
}
