//! A certificate's name in 64 digits.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};

use crate::token::{from_hex, push_hex};

/// The SHA-256 of a certificate (its DER form), as `openssl x509 -noout -fingerprint -sha256` shows it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// A text that is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no fingerprint: the SHA-256 of a certificate has 64 hexadecimal digits, with or without colons"
)]
pub struct NoFingerprint(String);

impl Fingerprint {
    pub(crate) fn of(certificate: &[u8]) -> Self {
        Self(digest(&SHA256, certificate).as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = String::with_capacity(64);
        push_hex(&mut digits, &self.0);
        f.write_str(&digits)
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digits: String = text.trim().chars().filter(|&c| c != ':').collect();
        from_hex(&digits).map(Self).ok_or_else(|| NoFingerprint(text.chars().take(128).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_openssl_shows_them() {
        // printf abc | sha256sum
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let of = Fingerprint::of(b"abc");
        assert_eq!(of.to_string(), abc);
        let digits: Vec<char> = abc.to_uppercase().chars().collect();
        let colons = digits.chunks(2).map(String::from_iter).collect::<Vec<_>>().join(":");
        for text in [abc, &abc.to_uppercase(), &colons, &format!(" {abc}\n")] {
            assert_eq!(text.parse(), Ok(of));
        }
        for bad in ["", &abc[1..], &format!("{abc}0"), &abc.replace('b', "x")] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
