//! The client's end.

use std::io;
#[cfg(unix)]
use std::os::unix::net::UnixStream;

use std::time::{Duration, Instant};

use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{ByteStream, Introduction, WireError, tcp};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::advice::with_advice;
use crate::tls::{self, HTTP, PROTOCOL, TlsStream};
use crate::{Address, Token, websocket};

/// How to reach a server, as often as wanted.
#[derive(Clone)]
pub struct Dialer {
    address: Address,
    tls: Option<tls::Client>,
    token: Option<Token>,
    proxy: bool,
}

/// How far a connection has come: the time of each step, and what was seen on the way.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Steps {
    /// Until the network's connection was there.
    pub connected: Option<Duration>,
    /// Of TLS, where it is spoken.
    pub secured: Option<Duration>,
    /// The certificate that the server showed and that was believed (DER).
    pub certificate: Option<Vec<u8>>,
    /// Of the opening of a WebSocket, where there is one.
    pub opened: Option<Duration>,
    /// How long the greetings took, where both came.
    pub greeted: Option<Duration>,
}

impl Dialer {
    /// Reaches the server at `address`, with nothing encrypted.
    pub fn new(address: Address) -> Self {
        Self { address, tls: None, token: None, proxy: false }
    }

    /// Speaks TLS with it.
    #[must_use]
    pub fn with_tls(mut self, tls: tls::Client) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Introduces itself with `token`, once the server has shown who it is.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Accepts that TLS ends before the server, at a proxy that is trusted with all that is said.
    #[must_use]
    pub fn through_proxy(mut self) -> Self {
        self.proxy = true;
        self
    }

    /// Where the server is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Connects and greets.
    ///
    /// # Errors
    /// When the address does not resolve, nobody listens there, who listens there is no Jaguar of this wire version or none that
    /// this side believes, or the session is not bound to the connection. The error names the address. A token is not sent in
    /// the clear beyond this machine.
    pub fn connect(&self, options: Options) -> Result<Framed, WireError> {
        self.connect_noting(options, &mut Steps::default())
    }

    /// [`connect`](Self::connect), for those who look for what is wrong: `steps` says how far it came.
    ///
    /// # Errors
    /// As `connect`.
    pub fn connect_noting(&self, options: Options, steps: &mut Steps) -> Result<Framed, WireError> {
        let name = self.address.to_string();
        let failed =
            |source| WireError::Io { what: format!("connecting to {name}"), source: with_advice(source) };
        self.check()?;
        let begun = Instant::now();
        let stream: Box<dyn ByteStream> = match &self.address {
            #[cfg(unix)]
            Address::Unix(path) => Box::new(UnixStream::connect(path).map_err(failed)?),
            #[cfg(not(unix))]
            Address::Unix(_) => return Err(failed(io::ErrorKind::Unsupported.into())),
            other => {
                let address = other.host_and_port().expect("all but Unix sockets have one");
                let opened = tcp::open(address, options.connect);
                Box::new(opened.map_err(|error| named(error, &name))?)
            }
        };
        steps.connected = Some(begun.elapsed());
        self.connect_over(stream, options, steps)
    }

    /// The same, over a connection to the server that is there already.
    ///
    /// # Errors
    /// As `connect`.
    pub fn connect_over(
        &self,
        mut stream: Box<dyn ByteStream>,
        options: Options,
        steps: &mut Steps,
    ) -> Result<Framed, WireError> {
        self.check()?;
        let name = self.address.to_string();
        let mut begun = Instant::now();
        let mut passed = || {
            let now = Instant::now();
            Some(now.duration_since(std::mem::replace(&mut begun, now)))
        };
        let websocket = self.address.says_tls();
        if let Some(tls) = &self.tls {
            let (config, protocol) = match websocket {
                None => (tls.config.clone(), PROTOCOL),
                Some(_) => (tls.for_websocket(), HTTP),
            };
            let connection = ClientConnection::new(config, self.server_name(tls)).map_err(|e| {
                WireError::Io { what: format!("connecting to {name}"), source: io::Error::other(e) }
            })?;
            let accepted = [Some(protocol), None];
            let unnamed = self.proxy || websocket.is_some();
            let accepted = if unnamed { &accepted[..] } else { &accepted[..1] };
            let opened = TlsStream::open(stream, connection.into(), accepted, options.greeting);
            let opened = opened.map_err(|(_, failure)| failure.error(&name, options.greeting))?;
            steps.certificate = opened.peer_certificate_der();
            steps.secured = passed();
            stream = Box::new(opened);
        }
        if websocket.is_some() {
            stream = Box::new(websocket::connect(stream, &name, options.greeting)?);
            steps.opened = passed();
        }
        let token = self.token.as_ref().map_or(&[][..], Token::bytes);
        let framed = Framed::connect_as(stream, name, &Introduction { token, unbound: self.proxy }, options)?;
        steps.greeted = passed();
        Ok(framed)
    }

    /// That what is to be spoken fits the address.
    fn check(&self) -> Result<(), WireError> {
        let refused = |why: &str| {
            let source = io::Error::new(io::ErrorKind::InvalidInput, why);
            Err(WireError::Io { what: format!("connecting to {}", self.address), source })
        };
        if self.token.is_some() && self.tls.is_none() && !self.address.is_local() {
            return refused("a token is not sent over a connection that is not encrypted");
        }
        if self.address.says_tls().is_some_and(|secure| secure != self.tls.is_some()) {
            return refused("ws:// is a WebSocket in the clear, wss:// one inside TLS");
        }
        Ok(())
    }

    /// The name that the server's certificate must have. (A pinned one may have any.)
    fn server_name(&self, tls: &tls::Client) -> ServerName<'static> {
        let of_host = || ServerName::try_from(self.address.host()?.to_owned()).ok();
        let none = || ServerName::try_from("unnamed.invalid").expect("a name");
        tls.name.clone().or_else(of_host).unwrap_or_else(none)
    }
}

/// The same error, of an address with more to it than host and port.
fn named(error: WireError, name: &str) -> WireError {
    match error {
        WireError::Io { source, .. } => {
            WireError::Io { what: format!("connecting to {name}"), source: with_advice(source) }
        }
        other => other,
    }
}
