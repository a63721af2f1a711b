//! Where a server is.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens, or is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; an IPv6 address stands in brackets.
    Tcp(String),
    /// `unix:PATH`, a Unix domain socket.
    Unix(PathBuf),
    /// `ws://host[:port][/path]` or `wss://...`: a WebSocket, for clients. (Servers take them where they take others.)
    WebSocket(WebSocket),
}

/// Where a WebSocket is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocket {
    /// Inside TLS: `wss://`.
    pub secure: bool,
    /// `host:port`, as [`Address::Tcp`] has it.
    pub host: String,
    /// What stands behind it, from the first `/` on.
    pub path: String,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoAddress {
    /// No port behind the last colon.
    #[error(
        "'{0}' is no address: host:port is needed, such as 127.0.0.1:7447, [::1]:7447 or unix:/run/jaguar.sock"
    )]
    NoPort(String),
    /// A port that is none.
    #[error("'{0}' is no address: a port is a number from 0 to 65535")]
    Port(String),
    /// A URL of something else.
    #[error(
        "'{0}' is no address: host:port is needed, without a scheme; or the URL of a WebSocket, ws:// or wss://"
    )]
    Scheme(String),
    /// An IPv6 address that does not stand in brackets.
    #[error("'{0}' is no address: an IPv6 address stands in brackets, as in [::1]:7447")]
    NoBrackets(String),
    /// `ws://` or `wss://`, and then what is no path of a URL.
    #[error("'{0}' is no address: a WebSocket's path has visible ASCII characters, and no fragment (#)")]
    NoUrl(String),
    /// `unix:` without a path.
    #[error("'{0}' is no address: a path is needed, as in unix:/run/jaguar.sock")]
    NoPath(String),
}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            let named = (!path.is_empty()).then(|| Self::Unix(path.into()));
            return named.ok_or_else(|| NoAddress::NoPath(text.into()));
        }
        for (scheme, secure, port) in [("ws://", false, 80), ("wss://", true, 443)] {
            if let Some(rest) = text.strip_prefix(scheme) {
                return WebSocket::read(text, rest, secure, port).map(Self::WebSocket);
            }
        }
        if text.contains("://") {
            return Err(NoAddress::Scheme(text.into()));
        }
        let no_port = || NoAddress::NoPort(text.into());
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        if host.is_empty() || port.is_empty() || port.bytes().any(|b| !b.is_ascii_digit()) {
            return Err(no_port());
        }
        if port.parse::<u16>().is_err() {
            return Err(NoAddress::Port(text.into()));
        }
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.contains(':') && !bracketed {
            return Err(NoAddress::NoBrackets(text.into()));
        }
        Ok(Self::Tcp(text.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::WebSocket(WebSocket { secure, host, path }) => {
                write!(f, "{}://{host}{path}", if *secure { "wss" } else { "ws" })
            }
        }
    }
}

impl WebSocket {
    /// What stands behind the scheme.
    fn read(text: &str, rest: &str, secure: bool, port: u16) -> Result<Self, NoAddress> {
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let visible = rest.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'#' | b'@' | b'\\' | b'"'));
        if !visible || path.starts_with('?') {
            return Err(NoAddress::NoUrl(text.into()));
        }
        let ends_in_port = |host: &str| host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let host = if ends_in_port(host) { host.to_owned() } else { format!("{host}:{port}") };
        let path = if path.is_empty() { "/" } else { path }.to_owned();
        match host.parse()? {
            Address::Tcp(host) => Ok(Self { secure, host, path }),
            _ => Err(NoAddress::NoPort(text.into())),
        }
    }
}

impl Address {
    /// Whether what is said to it stays on this machine: a Unix socket, or a name of which every address is loopback. A name
    /// that does not resolve is none.
    pub fn is_local(&self) -> bool {
        let loopback = |found: Vec<SocketAddr>| {
            !found.is_empty() && found.iter().all(|a| a.ip().to_canonical().is_loopback())
        };
        self.host_and_port().is_none() || self.resolve().is_ok_and(loopback)
    }

    /// Whether the address itself says that TLS is spoken (`wss://`), or that it is not (`ws://`).
    pub fn says_tls(&self) -> Option<bool> {
        match self {
            Self::WebSocket(WebSocket { secure, .. }) => Some(*secure),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// `host:port`; none of a Unix socket.
    pub fn host_and_port(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(address) | Self::WebSocket(WebSocket { host: address, .. }) => Some(address),
        }
    }

    /// What the host's name stands for; nothing for a Unix socket.
    ///
    /// # Errors
    /// When the name has no address, or nobody can tell.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        self.host_and_port()
            .map_or_else(|| Ok(Vec::new()), |address| Ok(address.to_socket_addrs()?.collect()))
    }

    /// The host's name, without the port; none of a Unix socket.
    pub(crate) fn host(&self) -> Option<&str> {
        let address = self.host_and_port()?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        Some(host.trim_start_matches('[').trim_end_matches(']'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["127.0.0.1:7447", "[::1]:0", "example.org:65535", "unix:/run/jaguar.sock", "unix:rel"] {
            assert_eq!(text.parse::<Address>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
        for (text, part) in [
            ("localhost", "host:port"),
            (":7447", "host:port"),
            ("host:", "host:port"),
            ("host:65536", "0 to 65535"),
            ("host:port", "host:port"),
            ("https://host:7447", "without a scheme"),
            ("ws://host:65536", "0 to 65535"),
            ("::1:7447", "[::1]:7447"),
            ("unix:", "a path is needed"),
            ("ws://", "host:port"),
            ("wss://:443/", "host:port"),
            ("ws://::1/", "[::1]:7447"),
            ("wss://host:1/a b", "visible ASCII"),
            ("wss://host:1/#part", "visible ASCII"),
            ("wss://alice@host:1/", "visible ASCII"),
            ("wss://host?x", "visible ASCII"),
            ("wss://unix:x/", "host:port"),
        ] {
            assert!(text.parse::<Address>().is_err_and(|e| e.to_string().contains(part)), "{text}");
        }
    }

    #[test]
    fn websockets_are_read_with_what_is_left_out() {
        for (text, shown) in [
            ("ws://host", "ws://host:80/"),
            ("wss://host", "wss://host:443/"),
            ("wss://[::1]", "wss://[::1]:443/"),
            ("wss://[::1]:7/a/b?c=d:e", "wss://[::1]:7/a/b?c=d:e"),
            ("ws://127.0.0.1:7447/jaguar", "ws://127.0.0.1:7447/jaguar"),
        ] {
            let address = text.parse::<Address>().expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.says_tls(), Some(text.starts_with("wss")));
        }
    }

    #[test]
    fn what_stays_here_is_told_from_what_does_not() {
        let local = |text: &str| text.parse::<Address>().expect("an address").is_local();
        for text in
            ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:x", "ws://127.0.0.1/x"]
        {
            assert!(local(text), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1", "wss://192.0.2.1/"] {
            assert!(!local(text), "{text}");
        }
    }

    #[test]
    fn hosts_are_named_without_ports() {
        let host = |text: &str| text.parse::<Address>().expect("an address").host().map(str::to_owned);
        assert_eq!(host("[::1]:7").as_deref(), Some("::1"));
        assert_eq!(host("wss://example.org/x").as_deref(), Some("example.org"));
        assert_eq!(host("example.org:7").as_deref(), Some("example.org"));
        assert_eq!(host("unix:x"), None);
    }
}
