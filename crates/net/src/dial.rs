//! The client's end.

use std::io;
#[cfg(unix)]
use std::os::unix::net::UnixStream;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{ByteStream, Introduction, Queued, WireError, tcp};
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
    wait: Option<Wait>,
}

/// For how long a place is waited for, and who hears of it.
#[derive(Clone)]
struct Wait {
    time: Duration,
    hear: Arc<dyn Fn(Option<Queued>) -> bool + Send + Sync>,
}

/// How often who waits looks whether it should go on.
const LOOK: Duration = Duration::from_millis(100);

/// After how long a server that refused for now is asked again, by who waits.
const AGAIN: Duration = Duration::from_secs(10);

/// How much longer than it was told that this side waits, a server may take.
const LENIENCE: Duration = Duration::from_secs(30);

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
        Self { address, tls: None, token: None, proxy: false, wait: None }
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

    /// Waits for a place, for at most `time` (18 hours), where the server has none, in its line; and where that is too long, comes back
    /// every ten seconds. `hear` is called with each place in the line that the server tells, and with none several times a second:
    /// if it says no, the wait is over.
    #[must_use]
    pub fn waiting(
        mut self,
        time: Duration,
        hear: impl Fn(Option<Queued>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.wait = (!time.is_zero()).then(|| Wait { time, hear: Arc::new(hear) });
        self
    }

    /// The same server, without waiting for a place.
    #[must_use]
    pub fn at_once(&self) -> Self {
        Self { wait: None, ..self.clone() }
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
        let Some(Wait { time, hear }) = &self.wait else {
            return self.connect_noting(options, &mut Steps::default());
        };
        let begun = Instant::now();
        loop {
            let left = time.saturating_sub(begun.elapsed());
            let wait = Some(Wait { time: left, hear: hear.clone() });
            let connected = Self { wait, ..self.clone() }.connect_noting(options, &mut Steps::default());
            match connected {
                Err(WireError::PeerBusy(_)) if time.saturating_sub(begun.elapsed()) > AGAIN => {}
                connected => return connected,
            }
            let until = Instant::now() + AGAIN;
            while Instant::now() < until {
                if !hear(None) {
                    return Err(self.stopped());
                }
                thread::sleep(LOOK);
            }
        }
    }

    fn stopped(&self) -> WireError {
        let source = io::Error::new(io::ErrorKind::Interrupted, "this side was asked to stop");
        WireError::Io { what: format!("waiting for a place at {}", self.address), source }
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
        // (Rounded up: who waits at all says so.)
        let seconds = |wait: &Wait| u16::try_from(wait.time.as_secs() + 1).unwrap_or(u16::MAX);
        let wait = self.wait.as_ref().map_or(0, seconds);
        let introduction = Introduction { token, unbound: self.proxy, wait };
        let mut framed = Framed::connect_as(stream, name, &introduction, options)?;
        steps.greeted = passed();
        if let Some(Wait { time, hear }) = &self.wait {
            framed.wait_for_place(*time + LENIENCE, &mut |told| hear(told))?;
        }
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
