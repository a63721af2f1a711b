//! The server's side: its certificate, and whose clients it takes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};

use super::{Fingerprint, HTTP, PROTOCOL, provider};
use crate::pem::{self, FileError};

/// How a server speaks TLS.
#[derive(Clone)]
pub struct Server {
    pub(crate) config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
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
        let chain = pem::certificates(CERTIFICATE, certificate)?;
        Self::new((chain, certificate), pem::server_key(KEY, key)?, clients)
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

    fn new(
        (chain, file): (Vec<CertificateDer<'static>>, &Path),
        key: PrivateKeyDer<'static>,
        clients: Option<&Path>,
    ) -> Result<Self, FileError> {
        let fingerprint = Fingerprint::of(&chain[0]);
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
        config.alpn_protocols = vec![PROTOCOL.to_vec(), HTTP.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), fingerprint })
    }

    /// The fingerprint of the certificate, which clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
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
