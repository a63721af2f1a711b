//! The server's side: its certificate, and whose clients it takes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};

use super::{Certificate, Fingerprint, HTTP, PROTOCOL, provider, versioned};
use crate::pem::{self, FileError};

/// How a server speaks TLS. Copies of one are renewed together.
#[derive(Clone)]
pub struct Server {
    now: Arc<RwLock<Now>>,
    files: Arc<Files>,
}

/// What new connections get.
struct Now {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    until: Option<i64>,
}

/// Where it comes from.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<PathBuf>,
}

const CERTIFICATE: &str = "the server's certificate";
const KEY: &str = "the server's key";
const CLIENTS: &str = "the authority of clients";

impl Server {
    /// Shows the certificate (with what leads to its authority behind it) in one file, of the key in another, both PEM. With
    /// `clients`, a file of authorities, clients must show a certificate that one of them signed.
    ///
    /// # Errors
    /// When a file cannot be read or holds something else, others may use the key ([`Exposed::of_server_key`](crate::Exposed)), or it is
    /// not the certificate's.
    pub fn from_files(certificate: &Path, key: &Path, clients: Option<&Path>) -> Result<Self, FileError> {
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            clients: clients.map(Path::to_owned),
        };
        Ok(Self { now: Arc::new(RwLock::new(files.read()?)), files: Arc::new(files) })
    }

    /// Reads the files again, for connections that come from now on. Says whether the certificate is another.
    ///
    /// # Errors
    /// As [`from_files`](Self::from_files). Then it stays as it was.
    pub fn renew(&self) -> Result<bool, FileError> {
        let read = self.files.read()?;
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let other = now.fingerprint != read.fingerprint;
        *now = read;
        Ok(other)
    }

    /// Shows the certificate in `folder`, which is made on first use: it signs itself, so that clients pin it. The files
    /// (`certificate.pem`, `key.pem`) are for their owner alone.
    ///
    /// # Errors
    /// When the folder cannot be written, or holds something else; as [`from_files`](Self::from_files).
    pub fn made(folder: &Path, clients: Option<&Path>) -> Result<Self, FileError> {
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
        if !certificate.exists() {
            make(folder, &certificate, &key)?;
        }
        Self::from_files(&certificate, &key, clients)
    }

    /// What a connection gets that comes now.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now().config)
    }

    fn now(&self) -> RwLockReadGuard<'_, Now> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fingerprint of the certificate, which clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.now().fingerprint
    }

    /// Until when the certificate is valid: seconds since 1970; none if it does not say so soundly.
    pub fn valid_until(&self) -> Option<i64> {
        self.now().until
    }
}

impl Files {
    fn read(&self) -> Result<Now, FileError> {
        let file = self.certificate.as_path();
        let chain = pem::certificates(CERTIFICATE, file)?;
        let (key, clients) = (pem::server_key(KEY, &self.key)?, self.clients.as_deref());
        let fingerprint = Fingerprint::of(&chain[0]);
        let until = Certificate::of(&chain[0]).map(|it| it.until);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has suites of TLS 1.3");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(CLIENTS, path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| FileError::new(CLIENTS, path, e))?)
            }
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|e| FileError::new(CERTIFICATE, file, e))?;
        config.alpn_protocols = vec![versioned(), PROTOCOL.to_vec(), HTTP.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Now { config: Arc::new(config), fingerprint, until })
    }
}

/// The authorities in a file.
pub(super) fn roots(what: &'static str, path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(what, path)? {
        roots.add(certificate).map_err(|e| FileError::new(what, path, e))?;
    }
    Ok(roots)
}

/// Makes a key (ECDSA on P-256) and a certificate of it. The certificate comes last: where it is, the key is.
fn make(folder: &Path, certificate: &Path, key: &Path) -> Result<(), FileError> {
    let failed = |e: rcgen::Error| FileError::new("making the server's certificate", certificate, e);
    let pair = KeyPair::generate().map_err(failed)?;
    let mut parameters = CertificateParams::new(Vec::new()).map_err(failed)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "Jaguar server");
    let made = parameters.self_signed(&pair).map_err(failed)?;
    let text = zeroize::Zeroizing::new(pair.serialize_pem());
    fs::create_dir_all(folder).map_err(FileError::io("the folder of the server's certificate", folder))?;
    for (path, what, text) in [(key, KEY, text.as_str()), (certificate, CERTIFICATE, &made.pem())] {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let written = options.open(&part).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, path)
        });
        written.map_err(|e| {
            // (Of a key, too, no part is left behind.)
            let _ = fs::remove_file(&part);
            FileError::io(what, path)(e)
        })?;
    }
    Ok(())
}
