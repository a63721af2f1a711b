//! Where a server is.

use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens, or is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; an IPv6 address stands in brackets.
    Tcp(String),
    /// `unix:PATH`, a Unix domain socket.
    Unix(PathBuf),
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
    /// An IPv6 address that does not stand in brackets.
    #[error("'{0}' is no address: an IPv6 address stands in brackets, as in [::1]:7447")]
    NoBrackets(String),
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
        let no_port = || NoAddress::NoPort(text.into());
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(no_port());
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
        }
    }
}

impl Address {
    /// Whether what is said to it stays on this machine: a Unix socket, or a name of which every address is loopback. A name
    /// that does not resolve is none.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => address.to_socket_addrs().is_ok_and(|found| {
                let mut found = found.peekable();
                found.peek().is_some() && found.all(|a| a.ip().to_canonical().is_loopback())
            }),
        }
    }

    /// The host's name, without the port; none of a Unix socket.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(address) => {
                let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
                Some(host.trim_start_matches('[').trim_end_matches(']'))
            }
        }
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
            ("host:65536", "host:port"),
            ("::1:7447", "[::1]:7447"),
            ("unix:", "a path is needed"),
        ] {
            assert!(text.parse::<Address>().is_err_and(|e| e.to_string().contains(part)), "{text}");
        }
    }

    #[test]
    fn what_stays_here_is_told_from_what_does_not() {
        let local = |text: &str| text.parse::<Address>().expect("an address").is_local();
        for text in ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:x"] {
            assert!(local(text), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1"] {
            assert!(!local(text), "{text}");
        }
    }

    #[test]
    fn hosts_are_named_without_ports() {
        let host = |text: &str| text.parse::<Address>().expect("an address").host().map(str::to_owned);
        assert_eq!(host("[::1]:7").as_deref(), Some("::1"));
        assert_eq!(host("example.org:7").as_deref(), Some("example.org"));
        assert_eq!(host("unix:x"), None);
    }
}
