//! TLS 1.3 around a connection.
//!
//! | side | shows | believes |
//! |---|---|---|
//! | [`Server`] | a certificate from files, or one [made on first use](Server::made) | clients with a certificate of an authority, if it asks for one |
//! | [`Client`] | a certificate, if it has one | the server with the pinned [`Fingerprint`], or with a certificate of an authority |
//!
//! Cryptography is rustls with the provider `ring`. There is no resumption and no early data.

mod certificate;
mod client;
mod fingerprint;
mod server;
mod stream;
mod subject;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::{AlertDescription, CertificateError, Error};

use jaguar_wire::PROTOCOL_VERSION;

pub use certificate::Certificate;
pub use client::{Client, Trust};
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use server::Server;
pub(crate) use stream::{Failure, TlsStream};

/// What both sides say that they will speak (ALPN). The wire version is greeted inside.
pub(crate) const PROTOCOL: &[u8] = b"jaguar";

/// The same with the version of the protocol, `jaguar/36`. It is said before [`PROTOCOL`], in the clear: so a balancer that sees no
/// more than bytes sends clients of two versions to servers of two versions. A side that says another one agrees on [`PROTOCOL`], and
/// both are told inside.
pub(crate) fn versioned() -> Vec<u8> {
    [PROTOCOL, format!("/{PROTOCOL_VERSION}").as_bytes()].concat()
}

/// The same of those who open a WebSocket, which proxies and browsers do in HTTP/1.1.
pub(crate) const HTTP: &[u8] = b"http/1.1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What happened, in words that say whose certificate is meant.
fn explain(error: &Error) -> String {
    use AlertDescription as Alert;
    match error {
        Error::AlertReceived(alert) => match alert {
            Alert::CertificateRequired => "the other side lets nobody in without a certificate".into(),
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::AccessDenied
            | Alert::DecryptError => {
                format!("the other side does not accept this side's certificate ({alert:?})")
            }
            Alert::NoApplicationProtocol => {
                "the other side speaks TLS, but not Jaguar's protocol in it".into()
            }
            Alert::ProtocolVersion => "the other side does not speak TLS 1.3".into(),
            other => format!("the other side gave up TLS ({other:?})"),
        },
        Error::NoCertificatesPresented => {
            "the other side shows no certificate, which this side asks for".into()
        }
        Error::InvalidCertificate(why) => match why {
            CertificateError::Other(why) => why.to_string(),
            CertificateError::UnknownIssuer => {
                "the other side's certificate is signed by no authority that this side knows".into()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the other side's certificate is not valid any more (or this side's clock is wrong)".into()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the other side's certificate is not valid yet (or this side's clock is wrong)".into()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the other side's certificate is for another name ({why})")
            }
            why => format!("the other side's certificate is not valid: {why}"),
        },
        Error::NoApplicationProtocol => "the other side speaks TLS, but not Jaguar's protocol in it".into(),
        other => other.to_string(),
    }
}
