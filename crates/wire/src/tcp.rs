//! Connections over TCP: [`Framed`] on a socket.
//!
//! Nothing here is encrypted or authenticated: what goes farther than loopback runs inside a stream that is (TLS, in the
//! crate `net`).

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::error::io_error;
use crate::framed::Framed;
use crate::{Transport, WireError};

pub use crate::framed::Options;
pub use crate::greeting::WIRE_VERSION;

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Listens on `address` (`host:port`; port 0 lets the system choose).
    ///
    /// # Errors
    /// When the address does not resolve or cannot be bound; the error names it.
    pub fn bind(address: impl ToSocketAddrs + Display) -> Result<Self, WireError> {
        let listener =
            TcpListener::bind(&address).map_err(|e| io_error(format!("listening on {address}"), e))?;
        Ok(Self { listener })
    }

    /// The address that is really bound.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> Result<SocketAddr, WireError> {
        self.listener.local_addr().map_err(|e| io_error("asking for the bound address".into(), e))
    }

    /// Waits for the next connection. It has not greeted yet: do that in the thread that serves it, so
    /// that a peer that says nothing does not keep others waiting.
    ///
    /// # Errors
    /// When the system fails (out of file descriptors, say). The listener remains usable.
    pub fn accept(&self) -> Result<Incoming, WireError> {
        loop {
            match self.listener.accept() {
                Ok((socket, peer)) => return Ok(Incoming { socket, peer }),
                // The peer was gone again before we looked: its trouble, not the listener's.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(e) => return Err(io_error("accepting a connection".into(), e)),
            }
        }
    }
}

/// A connection that has been accepted and not yet greeted.
#[derive(Debug)]
pub struct Incoming {
    socket: TcpStream,
    peer: SocketAddr,
}

impl Incoming {
    /// Where it comes from.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection itself, ready for a greeting or for what goes around one.
    ///
    /// # Errors
    /// When the system refuses to set it up.
    pub fn into_socket(self) -> Result<TcpStream, WireError> {
        set_up(&self.socket, &self.peer.to_string())?;
        Ok(self.socket)
    }

    /// Exchanges greetings and starts the connection.
    ///
    /// # Errors
    /// When the peer is no Jaguar or one of another wire version (it is told), says nothing, or is gone.
    pub fn greet(self, options: Options) -> Result<Tcp, WireError> {
        let name = self.peer.to_string();
        Ok(Tcp(Framed::accept(Box::new(self.into_socket()?), name, options)?))
    }
}

/// A greeted connection.
pub struct Tcp(Framed);

impl Tcp {
    /// Connects to a listening party at `address` (`host:port`).
    ///
    /// # Errors
    /// When the address does not resolve, nobody listens there, or who listens there is no Jaguar of this
    /// wire version. The error names the address.
    pub fn connect(address: impl ToSocketAddrs + Display, options: Options) -> Result<Self, WireError> {
        let name = address.to_string();
        let socket = open(address, options.connect)?;
        Ok(Self(Framed::connect(Box::new(socket), name, options)?))
    }

    /// The peer's address as it was given (connecting) or seen (accepting).
    pub fn peer(&self) -> &str {
        self.0.peer()
    }
}

/// Opens a connection to `address` (`host:port`), which has not greeted yet. Each of the name's addresses is tried for `patience`.
///
/// # Errors
/// When the address does not resolve, or nobody listens there. The error names the address.
pub fn open(address: impl ToSocketAddrs + Display, patience: Duration) -> Result<TcpStream, WireError> {
    let name = address.to_string();
    let doing = || format!("connecting to {name}");
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for resolved in address.to_socket_addrs().map_err(|e| io_error(doing(), e))? {
        match TcpStream::connect_timeout(&resolved, patience) {
            Ok(socket) => {
                set_up(&socket, &name)?;
                return Ok(socket);
            }
            Err(e) => last = e,
        }
    }
    Err(io_error(doing(), last))
}

/// Rounds count, not packets: a small frame must leave at once. The buffers are left to the kernel, which grows them as
/// the link deserves unless a fixed size is asked for.
fn set_up(socket: &TcpStream, peer: &str) -> Result<(), WireError> {
    let set = socket.set_nodelay(true);
    set.map_err(|e| io_error(format!("setting up the connection with {peer}"), e))
}

impl Transport for Tcp {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        self.0.send(chunk)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        self.0.recv()
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        self.0.recv_within(time)
    }

    fn abort(&mut self, reason: &str) {
        self.0.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.0.put_off(reason);
    }
}
