//! The server's end: a TCP port or a Unix socket, with TLS around what comes or without.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jaguar_wire::framed::{Came, Framed, Options};
use jaguar_wire::{ByteStream, Side, WireError, see_out, tcp, turn_away};
use rustls::ServerConnection;
use zeroize::Zeroizing;

use crate::advice::advised;
use crate::pages::{self, Asked, Page};
use crate::proxied::{self, Network};
use crate::tls::{self, Failure, Fingerprint, HTTP, PROTOCOL, TlsStream};
use crate::{Address, websocket};

/// A place that clients come to.
pub struct Listener {
    socket: Socket,
    tls: Option<tls::Server>,
    origins: Arc<[String]>,
    pages: &'static [Page],
    balancers: Vec<Network>,
}

enum Socket {
    Tcp(tcp::Listener),
    #[cfg(unix)]
    Unix {
        listener: UnixListener,
        path: PathBuf,
        came: AtomicU64,
    },
}

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A TCP port, on this address.
    Tcp(SocketAddr),
    /// A Unix socket, at this path.
    Unix(PathBuf),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Bound {
    /// Whether only this machine can come there.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Comes there and goes, so that who waits in [`Listener::accept`] returns.
    ///
    /// # Errors
    /// When nobody listens there any more.
    pub fn knock(&self) -> io::Result<()> {
        match self {
            Self::Tcp(address) => {
                let ip = match address.ip() {
                    IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                    IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                    ip => ip,
                };
                TcpStream::connect_timeout(&SocketAddr::new(ip, address.port()), KNOCK).map(drop)
            }
            #[cfg(unix)]
            Self::Unix(path) => UnixStream::connect(path).map(drop),
            #[cfg(not(unix))]
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// How long this machine may take to connect to itself.
const KNOCK: Duration = Duration::from_secs(2);

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// From a TCP address.
    Tcp(SocketAddr),
    /// Over the Unix socket, as the connection of this number.
    Unix(u64),
}

impl Peer {
    /// The machine that it comes from, if that has an address.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip().to_canonical()),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(number) => write!(f, "unix#{number}"),
        }
    }
}

impl Listener {
    /// Listens at `address` (TCP: port 0 lets the system choose). A Unix socket that a dead process left is replaced.
    ///
    /// # Errors
    /// When the address does not resolve or cannot be bound; the error names it.
    pub fn bind(address: &Address) -> Result<Self, WireError> {
        let socket = match address {
            Address::Tcp(address) => Socket::Tcp(tcp::Listener::bind(address.as_str()).map_err(advised)?),
            Address::Unix(path) => Socket::bind_unix(path).map_err(|source| {
                advised(WireError::Io { what: format!("listening on {address}"), source })
            })?,
            Address::WebSocket(_) => {
                let why = "a server takes WebSockets at every address: name host:port alone";
                let source = io::Error::new(io::ErrorKind::InvalidInput, why);
                return Err(WireError::Io { what: format!("listening on {address}"), source });
            }
        };
        Ok(Self { socket, tls: None, origins: Arc::default(), pages: &[], balancers: Vec::new() })
    }

    /// Speaks TLS with everybody who comes.
    #[must_use]
    pub fn with_tls(mut self, tls: tls::Server) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Takes WebSockets of web pages of these origins (such as `https://www.example`). Without any, pages are refused: each that
    /// somebody looks at could else ask in that person's place.
    #[must_use]
    pub fn with_origins(mut self, origins: &[String]) -> Self {
        self.origins = origins.into();
        self
    }

    /// Shows these pages to browsers, and takes the WebSockets that they open: over TLS, or from this machine.
    #[must_use]
    pub fn with_pages(mut self, pages: &'static [Page]) -> Self {
        self.pages = pages;
        self
    }

    /// Believes balancers at these addresses where their clients come from. They say so first, by version 2 of the PROXY protocol.
    #[must_use]
    pub fn with_balancers(mut self, balancers: &[Network]) -> Self {
        self.balancers = balancers.to_vec();
        self
    }

    /// What is spoken, if it is TLS.
    pub fn tls(&self) -> Option<&tls::Server> {
        self.tls.as_ref()
    }

    /// Where it really is.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn bound(&self) -> Result<Bound, WireError> {
        Ok(match &self.socket {
            Socket::Tcp(listener) => Bound::Tcp(listener.address()?),
            #[cfg(unix)]
            Socket::Unix { path, .. } => Bound::Unix(path.clone()),
        })
    }

    /// Waits for the next connection. Neither side has said anything yet: greet in the thread that serves it.
    ///
    /// # Errors
    /// When the system fails (out of file descriptors, say). The listener remains usable.
    pub fn accept(&self) -> Result<Incoming, WireError> {
        let (stream, peer): (Box<dyn ByteStream>, Peer) = match &self.socket {
            Socket::Tcp(listener) => {
                let incoming = listener.accept()?;
                let peer = Peer::Tcp(incoming.peer());
                (Box::new(incoming.into_socket()?), peer)
            }
            #[cfg(unix)]
            Socket::Unix { listener, came, .. } => {
                let accepted = listener.accept();
                let doing = |source| WireError::Io { what: "accepting a connection".into(), source };
                (Box::new(accepted.map_err(doing)?.0), Peer::Unix(came.fetch_add(1, Ordering::Relaxed) + 1))
            }
        };
        let incoming = Incoming::over_line(stream, peer, self.tls.clone(), Arc::clone(&self.origins));
        let balanced = peer.ip().is_some_and(|ip| self.balancers.iter().any(|network| network.contains(ip)));
        Ok(Incoming { pages: self.pages, balanced, ..incoming })
    }
}

impl Socket {
    #[cfg(unix)]
    fn bind_unix(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt;
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                let left = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
                    && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
                if !left {
                    return Err(e);
                }
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        Ok(Self::Unix { listener, path: path.to_owned(), came: AtomicU64::new(0) })
    }

    #[cfg(not(unix))]
    fn bind_unix(_: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Self::Unix { path, .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What may be spoken inside TLS: Jaguar's own protocol, or a WebSocket is opened, as by a client of HTTP, or by a proxy that
/// says nothing.
const INSIDE: [Option<&[u8]>; 3] = [Some(PROTOCOL), Some(HTTP), None];

/// What is under a connection, for who looks at it and may cut it from another thread.
#[derive(Clone)]
pub struct Line(Arc<Watched>);

struct Watched {
    stream: Box<dyn ByteStream>,
    spoken: AtomicBool,
}

impl Line {
    fn new(stream: Box<dyn ByteStream>) -> Self {
        Self(Arc::new(Watched { stream, spoken: AtomicBool::new(false) }))
    }

    /// Whether a byte has come over it.
    pub fn has_spoken(&self) -> bool {
        self.0.spoken.load(Ordering::Relaxed)
    }

    /// Ends it both ways: whoever reads or writes there is told so at once.
    pub fn cut(&self) {
        // (It may be gone already.)
        let _ = self.0.stream.shutdown(Shutdown::Both);
    }
}

impl ByteStream for Line {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.0.stream.read(buf)?;
        if read > 0 {
            self.0.spoken.store(true, Ordering::Relaxed);
        }
        Ok(read)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.stream.write(parts)
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.0.stream.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.0.stream.set_write_timeout(timeout)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.stream.shutdown(how)
    }

    fn binding(&self, side: Side) -> Option<[u8; 32]> {
        self.0.stream.binding(side)
    }
}

/// A connection that has been accepted and not yet greeted.
pub struct Incoming {
    stream: Line,
    peer: Peer,
    tls: Option<tls::Server>,
    origins: Arc<[String]>,
    pages: &'static [Page],
    /// A balancer's, which has not said yet for whom.
    balanced: bool,
}

/// What came of a connection.
pub enum Arrived {
    /// A client.
    Client(Greeted),
    /// A browser, which got the page that it asked for (or was told that there is none).
    Page,
}

/// A client that has greeted.
pub struct Greeted {
    /// The connection, greeted and with TLS if there is any.
    pub connection: Framed,
    /// The token that it introduced itself with (empty: none), which nobody has looked at.
    pub token: Zeroizing<Vec<u8>>,
    /// The certificate that it showed, if an authority that is believed here signed it.
    pub certificate: Option<Fingerprint>,
    /// The common name in it, of 1 to 64 characters, if it has one.
    pub subject: Option<String>,
}

impl Incoming {
    /// A connection that something else has accepted: `peer` came over `stream`, and speaks TLS if there is `tls`. Pages of web
    /// sites must be of one of `origins`, as at [`Listener::with_origins`].
    pub fn over(
        stream: Box<dyn ByteStream>,
        peer: Peer,
        tls: Option<tls::Server>,
        origins: &[String],
    ) -> Self {
        Self::over_line(stream, peer, tls, origins.into())
    }

    fn over_line(
        stream: Box<dyn ByteStream>,
        peer: Peer,
        tls: Option<tls::Server>,
        origins: Arc<[String]>,
    ) -> Self {
        Self { stream: Line::new(stream), peer, tls, origins, pages: &[], balanced: false }
    }

    /// What is under it.
    pub fn line(&self) -> Line {
        self.stream.clone()
    }

    /// Where the connection comes from. Of a balancer: where that is, until [`introduced`](Self::introduced).
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether a balancer has yet to say for whom it comes ([`Listener::with_balancers`]).
    pub fn is_balanced(&self) -> bool {
        self.balanced
    }

    /// The same, once a balancer has said for whom it comes.
    ///
    /// # Errors
    /// When it does not say so within the time for a greeting, or breaks the rules.
    pub fn introduced(mut self, options: Options) -> Result<Self, WireError> {
        if std::mem::take(&mut self.balanced)
            && let Some(client) = proxied::read(&self.stream, &self.peer.to_string(), options.greeting)?
        {
            self.peer = Peer::Tcp(client);
        }
        Ok(self)
    }

    /// Shakes hands (TLS), takes a WebSocket if the peer opens one, exchanges greetings, and starts the connection. Each but the
    /// last has the time for a greeting.
    ///
    /// # Errors
    /// When the peer speaks no TLS where it must, shows no certificate that this side takes, is no Jaguar or one of another wire
    /// version (it is told), says nothing, or is gone.
    pub fn greet(self, options: Options) -> Result<Greeted, WireError> {
        let it = self.introduced(options)?;
        let peer = it.peer;
        match it.receive(options)? {
            Arrived::Client(greeted) => Ok(greeted),
            Arrived::Page => {
                Err(WireError::Closed { waiting_for: format!("waiting for the greeting of {peer}") })
            }
        }
    }

    /// As [`greet`](Self::greet), where the peer may also be a browser that asks for a page ([`Listener::with_pages`]).
    ///
    /// # Errors
    /// As there; or when the page cannot be sent.
    pub fn receive(self, options: Options) -> Result<Arrived, WireError> {
        let it = self.introduced(options)?;
        let name = it.peer.to_string();
        let (mut certificate, mut subject) = (None, None);
        let secure = it.tls.is_some();
        let opened = |stream: Box<dyn ByteStream>, first, name: &str| {
            let mut origins = Cow::Borrowed(&*it.origins);
            let mut first = first;
            if !it.pages.is_empty() {
                match pages::answer(&*stream, first, it.pages, (name, secure), options.greeting)? {
                    Asked::Page => return Ok(None),
                    Asked::WebSocket(head, own) => {
                        first = head;
                        origins.to_mut().extend(own);
                    }
                }
            }
            let opened = websocket::accept(stream, first, (name, &origins), options.greeting);
            opened.map(|stream| Some(Box::new(stream) as Box<dyn ByteStream>))
        };
        let line = Box::new(it.stream);
        let stream: Option<Box<dyn ByteStream>> = match it.tls {
            None => match Framed::accept_any(line, name.clone(), options)? {
                Came::Greeted(connection, token) => {
                    return Ok(Arrived::Client(Greeted { connection, token, certificate, subject }));
                }
                Came::Http(stream, first) => opened(stream, first, &name)?,
            },
            Some(tls) => {
                let connection = ServerConnection::new(tls.config()).map_err(|e| WireError::Io {
                    what: format!("TLS with {name}"),
                    source: io::Error::other(e),
                })?;
                let secured = TlsStream::open(line, connection.into(), &INSIDE, options.greeting);
                let secured = secured.map_err(|(socket, failure)| {
                    if let Failure::NoTls(first) = &failure {
                        turn_away(
                            &*socket,
                            first,
                            "this server speaks TLS only; ask its operator for the fingerprint to pin",
                        );
                    } else {
                        see_out(&*socket);
                    }
                    failure.error(&name, options.greeting)
                })?;
                if let Some((fingerprint, name)) = secured.peer_certificate() {
                    (certificate, subject) = (Some(fingerprint), name);
                }
                let jaguar = secured.speaks_jaguar();
                let stream: Box<dyn ByteStream> = Box::new(secured);
                if jaguar { Some(stream) } else { opened(stream, Vec::new(), &name)? }
            }
        };
        let Some(stream) = stream else { return Ok(Arrived::Page) };
        let (connection, token) = Framed::accept_introduced(stream, name, options)?;
        Ok(Arrived::Client(Greeted { connection, token, certificate, subject }))
    }
}
