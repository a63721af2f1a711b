//! Certificates, folders and pairs of parties, for tests.
#![allow(dead_code, reason = "not every test binary needs all of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jaguar_net::tls::Server;
use jaguar_net::{Dialer, Greeted, Listener};
use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{Channel, Transport, WireError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A folder of one test, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jaguar-net-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// A file that its owner alone may use.
    pub fn write_secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("our own file");
        }
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Who signs certificates.
pub struct Authority {
    pub name: &'static str,
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &'static str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec![]).expect("parameters");
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).expect("signed");
        Self { name, certificate, issuer: Issuer::new(parameters, key) }
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    fn sign(&self, subject: &str, until: Option<i32>) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec![subject.to_owned()]).expect("parameters");
        if let Some(year) = until {
            parameters.not_before = date_time_ymd(year - 1, 1, 1);
            parameters.not_after = date_time_ymd(year, 1, 1);
        }
        (parameters.signed_by(&key, &self.issuer).expect("signed"), key)
    }

    /// A certificate's files, and its key's.
    pub fn client(&self, folder: &Scratch, subject: &str) -> (PathBuf, PathBuf) {
        self.files(folder, subject, None)
    }

    fn files(&self, folder: &Scratch, subject: &str, until: Option<i32>) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.sign(subject, until);
        let name = |kind| format!("{}-{subject}-{until:?}-{kind}.pem", self.name);
        (
            folder.write(&name("certificate"), &certificate.pem()),
            folder.write_secret(&name("key"), &key.serialize_pem()),
        )
    }

    /// A server with a certificate of this authority, valid until the year.
    pub fn server(&self, folder: &Scratch, subject: &str, until: Option<i32>) -> Server {
        let (certificate, key) = self.files(folder, subject, until);
        Server::from_files(&certificate, &key, None).expect("sound")
    }

    /// TLS without anything of this crate, as a proxy has it.
    pub fn raw_server(&self, subject: &str) -> Arc<ServerConfig> {
        let (certificate, key) = self.sign(subject, None);
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).expect("sound");
        config.alpn_protocols = vec![b"jaguar".to_vec()];
        Arc::new(config)
    }

    /// As `raw_server`, believing this authority.
    pub fn raw_client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.certificate.der().to_vec())).expect("sound");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"jaguar".to_vec()];
        Arc::new(config)
    }
}

/// Impatient with silence; patient enough for a handshake on a busy machine.
pub fn options() -> Options {
    let mut options = Options::default();
    options.silence = Duration::from_millis(1500);
    options.keep_alive = Duration::from_millis(50);
    options.greeting = Duration::from_secs(5);
    options
}

/// On a port of the system's choice, with what it is called.
pub fn listen(tls: Option<Server>) -> (Listener, String) {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("an address")).expect("bound");
    let address = listener.bound().expect("known").to_string();
    (
        match tls {
            Some(tls) => listener.with_tls(tls),
            None => listener,
        },
        address,
    )
}

/// The next client.
pub fn greet(listener: &Listener) -> Result<Greeted, WireError> {
    let mut options = options();
    // Of those who say nothing.
    options.greeting = Duration::from_secs(2);
    listener.accept()?.greet(options)
}

/// A client's view and the server's of one connection.
pub fn both(listener: &Listener, dialer: &Dialer) -> (Result<Framed, WireError>, Result<Greeted, WireError>) {
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept()?.greet(options()));
        let connected = dialer.connect(options());
        (connected, accepting.join().expect("no panic"))
    })
}

/// The error of a side that must have one, as text.
#[track_caller]
pub fn refused<T>(result: Result<T, WireError>) -> String {
    result.err().expect("refused").to_string()
}

/// Much more than the network holds, both ways at once, in chunks of all sizes.
#[track_caller]
pub fn much_both_ways(client: Framed, server: Framed) {
    const N: usize = 30_000_000;
    let work = |transport, byte: u8| {
        move || {
            let mut channel = Channel::new(transport);
            let data: Vec<u8> = (0..N).map(|i| (i * 31 % 251) as u8 ^ byte).collect();
            data.chunks(77_777).for_each(|chunk| channel.send(chunk).expect("sent"));
            let got = channel.recv(N).expect("all of it");
            assert!(got.iter().zip(&data).all(|(theirs, ours)| theirs ^ ours == 0xff));
        }
    };
    let [one, other] = [(client, 0x55), (server, 0xaa)].map(|(end, byte)| thread::spawn(work(end, byte)));
    one.join().expect("the client's side");
    other.join().expect("the server's side");
}

/// What is queued when one side goes still arrives at the other.
#[track_caller]
pub fn what_is_queued_arrives(mut one: Framed, mut other: Framed) {
    let sending = thread::spawn(move || other.send(vec![7; 20_000_000]).expect("sent"));
    let mut got = 0;
    let error = loop {
        match one.recv() {
            Ok(chunk) => got += chunk.len(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WireError::Closed { .. }), "{error}");
    assert_eq!(got, 20_000_000);
    sending.join().expect("sent");
    assert!(one.send(vec![1]).is_err());
}
