//! What a certificate says, for people who look for what is wrong. (Whether it is believed is decided elsewhere.)

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::Fingerprint;
use crate::pem::{self, FileError};

/// A certificate's public words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certificate {
    /// The SHA-256 of its DER form, which clients pin.
    pub fingerprint: Fingerprint,
    /// Names and IP addresses that it is for.
    pub names: Vec<String>,
    /// Since when it is valid: seconds since 1970.
    pub from: i64,
    /// Until when: seconds since 1970.
    pub until: i64,
}

/// Names that are shown, at most.
const NAMES: usize = 16;

impl Certificate {
    /// The certificate in `der`. None if it is none.
    pub fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let names = names.filter_map(shown).take(NAMES).collect();
        let validity = certificate.validity();
        Some(Self {
            fingerprint: Fingerprint::of(der),
            names,
            from: validity.not_before.timestamp(),
            until: validity.not_after.timestamp(),
        })
    }

    /// The first certificate in a file (PEM).
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        const WHAT: &str = "the certificate in";
        let certificates = pem::certificates(WHAT, path)?;
        Self::of(&certificates[0]).ok_or_else(|| FileError::new(WHAT, path, "no sound certificate"))
    }
}

/// A name as text, without what would not be a name.
fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => {
            Some(name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
        }
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|bytes| Ipv4Addr::from(bytes).to_string());
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|bytes| Ipv6Addr::from(bytes).to_string())).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn names_and_dates_are_read() {
        let names = ["inference.example", "192.0.2.7", "2001:db8::7"].map(str::to_owned);
        let mut parameters = CertificateParams::new(names.to_vec()).expect("parameters");
        parameters.not_before = date_time_ymd(2001, 1, 1);
        parameters.not_after = date_time_ymd(2002, 1, 1);
        let made = parameters.self_signed(&KeyPair::generate().expect("a key")).expect("signed");
        let read = Certificate::of(made.der()).expect("a certificate");
        assert_eq!(read.names, names);
        // date -u -d 2001-01-01 +%s, and a year of 365 days.
        assert_eq!((read.from, read.until), (978_307_200, 978_307_200 + 365 * 86400));
        // Bytes that are none, and one that is cut off anywhere.
        assert_eq!(Certificate::of(b"nonsense"), None);
        for end in 0..made.der().len() {
            assert_eq!(Certificate::of(&made.der()[..end]), None);
        }
    }
}
