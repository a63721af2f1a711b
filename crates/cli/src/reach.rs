//! How a client reaches its server, and whom it believes.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use jaguar::EngineError;
use jaguar::net::tls::{self, Fingerprint};
use jaguar::net::{Address, Dialer, Token};
use jaguar::wire::{Queued, WireError};

/// The group of these options in `--help`.
pub const SERVER: &str = "The server, and how to know it";

/// Where the server is, and how to know it.
#[derive(clap::Args)]
#[command(next_help_heading = SERVER)]
pub struct Reach {
    /// HOST:PORT, unix:PATH or wss://HOST/PATH.
    ///
    /// Where the server is. A WebSocket's address may have a port, too: `wss://HOST:PORT/PATH`.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7447")]
    pub server: String,
    /// The model to ask, by its name at the server (default: the only one).
    ///
    /// The only one, that is, which this client may use.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Seconds to wait for a place, where the server has none free.
    ///
    /// The server says which place it is in its line, and when its turn may come. With 0 it says when to come back.
    #[arg(long, hide = true, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=65_000))]
    wait: u64,
    #[command(flatten)]
    trust: Trust,
}

impl Reach {
    /// Host and port of it, for what is known of the link; the address itself where there are none.
    pub fn host(&self) -> String {
        host(&self.server)
    }

    /// A dialer that reaches the server, and believes it as the options say.
    pub fn dialer(&self) -> Result<Dialer> {
        let told = Mutex::new(None);
        let hear = move |queued: Option<Queued>| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            // (The estimate alone may change with every session that ends.)
            if let Some(queued) = queued.filter(|queued| *told != Some(queued.place)) {
                let Queued { place, seconds } = queued;
                eprintln!(
                    "note: the server has no free place: number {place} in its line, about {seconds} s"
                );
                *told = Some(place);
            }
            true
        };
        Ok(self.trust.dialer(&self.server)?.waiting(Duration::from_secs(self.wait), hear))
    }

    /// What came of connecting; of a server without a free place also what helps.
    pub fn advised<T>(&self, connected: Result<T, EngineError>) -> Result<T> {
        connected.map_err(|error| match error {
            EngineError::Wire(WireError::PeerBusy(_)) if self.wait == 0 => {
                anyhow!("{error} (`--wait SECONDS` waits)")
            }
            error => error.into(),
        })
    }
}

/// Host and port of a server; its address itself where there are none.
pub fn host(server: &str) -> String {
    let address: Option<Address> = server.parse().ok();
    address.as_ref().and_then(Address::host_and_port).unwrap_or(server).to_owned()
}

/// When to speak TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Tls {
    /// Beyond this machine, and where a certificate is named.
    #[default]
    Auto,
    /// Everywhere, on this machine too.
    On,
    /// Never: what is said can be read and changed on the way.
    Off,
}

impl Tls {
    /// Whether it is spoken, where `named` says that somebody named a certificate, and `local` that nothing leaves this machine.
    pub fn is_on(self, named: bool, local: bool) -> bool {
        self == Self::On || self == Self::Auto && (named || !local)
    }
}

/// Which server is believed, and what it is shown.
#[derive(clap::Args)]
#[command(next_help_heading = SERVER)]
pub struct Trust {
    /// When to speak TLS with the server.
    #[arg(long, hide = true, value_enum, default_value_t)]
    tls: Tls,
    /// Believe the server whose certificate has this fingerprint (SHA-256).
    ///
    /// As `jaguar serve` shows it when it starts.
    #[arg(long, value_name = "FINGERPRINT", conflicts_with = "ca")]
    pin: Option<String>,
    /// Believe the server if an authority of this file (PEM) signed for it.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The name that the certificate must have with --ca (default: the one in the server's address).
    #[arg(long, hide = true, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// The certificate (PEM) to show to a server that asks for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The file with the token to show to a server that asks for one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Accept that TLS ends before the server, at a proxy that can read what both parties say.
    #[arg(long, hide = true)]
    accept_proxy: bool,
}

impl Trust {
    /// A dialer to `server`, with what is believed and shown.
    pub fn dialer(&self, server: &str) -> Result<Dialer> {
        let address: Address = server.parse().with_context(|| format!("connecting to {server}"))?;
        let named = self.pin.is_some() || self.ca.is_some() || self.cert.is_some();
        ensure!(
            !(self.tls == Tls::Off && named),
            "--tls off leaves nothing for which --pin, --ca or --cert would be needed"
        );
        let on = match address.says_tls() {
            None => self.tls.is_on(named, address.is_local()),
            Some(true) => {
                ensure!(self.tls != Tls::Off, "--tls off, and wss:// is inside TLS: ws:// is in the clear");
                true
            }
            Some(false) => {
                ensure!(!named && self.tls != Tls::On, "ws:// is in the clear: wss:// is inside TLS");
                ensure!(
                    self.tls == Tls::Off || address.is_local(),
                    "ws:// is in the clear beyond this machine: take wss://, or say so with --tls off"
                );
                false
            }
        };
        let mut dialer = Dialer::new(address);
        if on {
            dialer = dialer.with_tls(self.client()?);
        }
        if let Some(path) = &self.token_file {
            dialer = dialer.with_token(Token::read(path)?);
        }
        Ok(if self.accept_proxy { dialer.through_proxy() } else { dialer })
    }

    /// Files that only their owner should be able to read.
    pub fn secrets(&self) -> impl Iterator<Item = &Path> {
        [&self.key, &self.token_file].into_iter().flatten().map(PathBuf::as_path)
    }

    /// The file with the token that the client shows, if it shows one.
    pub fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Whether the server is believed by its fingerprint.
    pub fn pins(&self) -> bool {
        self.pin.is_some()
    }

    fn client(&self) -> Result<tls::Client> {
        let trust = match (&self.pin, &self.ca) {
            (Some(pin), _) => tls::Trust::Pin(pin.parse::<Fingerprint>().context("--pin")?),
            (None, Some(file)) => tls::Trust::Authorities(file.clone()),
            (None, None) => tls::Trust::Nobody,
        };
        let shows = self.cert.as_deref().zip(self.key.as_deref());
        let client = tls::Client::new(&trust, shows)?;
        match &self.server_name {
            None => Ok(client),
            Some(name) => {
                client.expecting(name).with_context(|| format!("--server-name: '{name}' is no host's name"))
            }
        }
    }
}
