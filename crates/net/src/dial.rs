//! The client's end.

use std::io;
#[cfg(unix)]
use std::os::unix::net::UnixStream;

use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{ByteStream, Introduction, WireError, tcp};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::tls::{self, TlsStream};
use crate::{Address, Token};

/// How to reach a server, as often as wanted.
#[derive(Clone)]
pub struct Dialer {
    address: Address,
    tls: Option<tls::Client>,
    token: Option<Token>,
    proxy: bool,
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
        let name = self.address.to_string();
        let failed = |source| WireError::Io { what: format!("connecting to {name}"), source };
        if self.token.is_some() && self.tls.is_none() && !self.address.is_local() {
            let why = "a token is not sent over a connection that is not encrypted";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let socket: Box<dyn ByteStream> = match &self.address {
            Address::Tcp(address) => Box::new(tcp::open(address.as_str(), options.connect)?),
            #[cfg(unix)]
            Address::Unix(path) => Box::new(UnixStream::connect(path).map_err(failed)?),
            #[cfg(not(unix))]
            Address::Unix(_) => return Err(failed(io::ErrorKind::Unsupported.into())),
        };
        let stream: Box<dyn ByteStream> = match &self.tls {
            None => socket,
            Some(tls) => {
                let connection = ClientConnection::new(tls.config.clone(), self.server_name(tls))
                    .map_err(|e| failed(io::Error::other(e)))?;
                let opened = TlsStream::open(socket, connection.into(), self.proxy, options.greeting);
                Box::new(opened.map_err(|(_, failure)| failure.error(&name, options.greeting))?)
            }
        };
        let token = self.token.as_ref().map_or(&[][..], Token::bytes);
        Framed::connect_as(stream, name, &Introduction { token, unbound: self.proxy }, options)
    }

    /// The name that the server's certificate must have. (A pinned one may have any.)
    fn server_name(&self, tls: &tls::Client) -> ServerName<'static> {
        let of_host = || ServerName::try_from(self.address.host()?.to_owned()).ok();
        let none = || ServerName::try_from("unnamed.invalid").expect("a name");
        tls.name.clone().or_else(of_host).unwrap_or_else(none)
    }
}
