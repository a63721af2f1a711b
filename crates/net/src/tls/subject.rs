//! The name in a certificate that was believed.

use x509_parser::prelude::{FromDer, X509Certificate};

/// Characters of a name, at most.
const LONGEST: usize = 64;

/// The common name of a certificate's subject (DER): the last one, which is the most special. None where there is none that is 1 to 64
/// characters long and without control characters.
pub(super) fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().last()?.as_str().ok()?;
    let fits = (1..=LONGEST).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    fits.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn of(names: &[(DnType, &str)]) -> Option<String> {
        let mut parameters = CertificateParams::new(vec!["san.example".into()]).expect("parameters");
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            parameters.distinguished_name.push(kind.clone(), *name);
        }
        let certificate = parameters.self_signed(&KeyPair::generate().expect("a key")).expect("signed");
        let der = certificate.der();
        for end in [0, 1, der.len() / 2, der.len() - 1] {
            assert_eq!(common_name(&der[..end]), None, "cut off");
        }
        common_name(der)
    }

    #[test]
    fn the_common_name_is_found_among_others() {
        let organisation = (DnType::OrganizationName, "Example");
        assert_eq!(of(&[organisation.clone(), (DnType::CommonName, "alice")]).as_deref(), Some("alice"));
        let other = [(DnType::CommonName, "Zo\u{eb} 1"), organisation.clone()];
        assert_eq!(of(&other).as_deref(), Some("Zo\u{eb} 1"));
        let long = "x".repeat(200);
        let nothing: [&[(DnType, &str)]; 4] =
            [&[organisation], &[], &[(DnType::CommonName, "a\nb")], &[(DnType::CommonName, &long)]];
        for names in nothing {
            assert_eq!(of(names), None);
        }
    }
}
