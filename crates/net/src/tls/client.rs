//! The client's side: which server it believes, and what it shows.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme, version,
};

use super::server::roots;
use super::{Fingerprint, HTTP, PROTOCOL, provider, versioned};
use crate::pem::{self, FileError};

/// Which server's certificate is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The one with this fingerprint, whatever name and date it has.
    Pin(Fingerprint),
    /// Those that an authority in this file (PEM) signed for the server's name.
    Authorities(PathBuf),
    /// None: the error tells the fingerprint, so that it can be compared and pinned.
    Nobody,
}

/// How a client speaks TLS.
#[derive(Clone)]
pub struct Client {
    pub(crate) config: Arc<ClientConfig>,
    /// The server's name in place of that in its address.
    pub(crate) name: Option<ServerName<'static>>,
}

const AUTHORITIES: &str = "the authorities of servers";
const CERTIFICATE: &str = "the client's certificate";
const KEY: &str = "the client's key";

impl Client {
    /// Believes those whom `trust` names, and shows the certificate and key (files, PEM), if there are any.
    ///
    /// # Errors
    /// When a file cannot be read or holds something else, or the key is not the certificate's.
    pub fn new(trust: &Trust, shows: Option<(&Path, &Path)>) -> Result<Self, FileError> {
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            Trust::Pin(pin) => Arc::new(Pinned { pin: Some(*pin), provider: provider() }),
            Trust::Nobody => Arc::new(Pinned { pin: None, provider: provider() }),
            Trust::Authorities(path) => {
                let roots = Arc::new(roots(AUTHORITIES, path)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
                verifier.map_err(|e| FileError::new(AUTHORITIES, path, e))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has suites of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match shows {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = pem::certificates(CERTIFICATE, certificate)?;
                let key = pem::private_key(KEY, key)?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|e| FileError::new(CERTIFICATE, certificate, e))?
            }
        };
        config.alpn_protocols = vec![versioned(), PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name: None })
    }

    /// The same, in which a WebSocket will be opened.
    pub(crate) fn for_websocket(&self) -> Arc<ClientConfig> {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![HTTP.to_vec()];
        Arc::new(config)
    }

    /// Expects the certificate of another name than that in the server's address. None if it is no name and no IP address.
    #[must_use]
    pub fn expecting(mut self, name: &str) -> Option<Self> {
        self.name = Some(ServerName::try_from(name.to_owned()).ok()?);
        Some(self)
    }
}

/// Believes the certificate with one fingerprint, or none at all. The server must have its key, as with every other.
#[derive(Debug)]
struct Pinned {
    pin: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

/// Why a certificate was not believed.
#[derive(Debug)]
enum Distrust {
    Other { found: Fingerprint, pinned: Fingerprint },
    Unknown { found: Fingerprint },
}

impl std::error::Error for Distrust {}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { found, pinned } => write!(
                f,
                "the server's certificate is not the pinned one: its fingerprint is {found}, pinned is {pinned}"
            ),
            Self::Unknown { found } => write!(
                f,
                "nothing tells whose the server's certificate is; its fingerprint is {found}: if that is what the server's \
                 operator says, pin it, else name the authority that signed it"
            ),
        }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(end_entity);
        let why = match self.pin {
            Some(pinned) if pinned == found => return Ok(ServerCertVerified::assertion()),
            Some(pinned) => Distrust::Other { found, pinned },
            None => Distrust::Unknown { found },
        };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why)))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
