//! Certificates and keys in files (PEM), and who may read what is secret.

use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}: {why}", path = path.display())]
pub struct FileError {
    what: &'static str,
    path: PathBuf,
    why: String,
}

impl FileError {
    pub(crate) fn new(what: &'static str, path: &Path, why: impl ToString) -> Self {
        Self { what, path: path.to_owned(), why: why.to_string() }
    }

    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |e| Self::new(what, path, e)
    }
}

/// A file of certificates is not larger.
const LARGEST: u64 = 8 << 20;

pub(crate) fn read(what: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let size = std::fs::metadata(path).map_err(FileError::io(what, path))?.len();
    if size > LARGEST {
        return Err(FileError::new(what, path, format!("{size} bytes (at most {LARGEST})")));
    }
    Ok(Zeroizing::new(std::fs::read(path).map_err(FileError::io(what, path))?))
}

/// A file whose secret others than its owner may read or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("others may use it (mode {mode:o})")]
pub struct Exposed {
    /// The permissions of the file.
    mode: u32,
}

impl Exposed {
    /// What to do about the file.
    pub fn advice(path: &Path) -> String {
        format!("chmod 600 {}; who could read it may have done so", path.display())
    }

    /// How a file is exposed; none if its owner alone may use it, or the system has no such permissions.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        Ok(Self::by(&std::fs::metadata(path)?, |_| 0))
    }

    /// How the file of a server's key is. A group may read it where it is root's: so orchestrators and distributions hand a key to a
    /// service that is not root (0440, 0640).
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of_server_key(path: &Path) -> io::Result<Option<Self>> {
        Ok(Self::by(&std::fs::metadata(path)?, Self::readers))
    }

    /// What others may do with a server's key of this user.
    fn readers(owner: u32) -> u32 {
        if owner == 0 { 0o040 } else { 0 }
    }

    /// How a file is exposed beyond what others may do with one of that user.
    #[cfg(unix)]
    fn by(about: &std::fs::Metadata, allowed: fn(u32) -> u32) -> Option<Self> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let mode = about.permissions().mode() & 0o777;
        (mode & 0o077 & !allowed(about.uid()) != 0).then_some(Self { mode })
    }

    #[cfg(not(unix))]
    fn by(_: &std::fs::Metadata, _: fn(u32) -> u32) -> Option<Self> {
        None
    }
}

/// Refuses a file whose secret others than its owner may use.
pub(crate) fn private(what: &'static str, path: &Path) -> Result<(), FileError> {
    refuse(what, path, Exposed::of(path))
}

fn refuse(what: &'static str, path: &Path, exposed: io::Result<Option<Exposed>>) -> Result<(), FileError> {
    match exposed.map_err(FileError::io(what, path))? {
        None => Ok(()),
        Some(exposed) => Err(FileError::new(what, path, format!("{exposed}: {}", Exposed::advice(path)))),
    }
}

/// The certificates of a file, in its order, at least one.
pub(crate) fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = read(what, path)?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|e| FileError::new(what, path, format!("no sound PEM ({e:?})")))?;
    if found.is_empty() {
        return Err(FileError::new(what, path, "no certificate in it (PEM is needed)"));
    }
    Ok(found)
}

/// The first private key of a file.
pub(crate) fn key(what: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let text = read(what, path)?;
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| FileError::new(what, path, "no private key in it (PEM is needed, not encrypted)"))
}

/// The same, of a file that its owner alone may use.
pub(crate) fn private_key(what: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let key = key(what, path)?;
    private(what, path).map(|()| key)
}

/// The same of a server, as [`Exposed::of_server_key`].
pub(crate) fn server_key(what: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let key = key(what, path)?;
    refuse(what, path, Exposed::of_server_key(path)).map(|()| key)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::Exposed;

    #[test]
    fn a_group_reads_a_servers_key_of_root_only() {
        let path = std::env::temp_dir().join(format!("jaguar-key-{}", std::process::id()));
        std::fs::write(&path, "").expect("written");
        let exposed = |mode, allowed| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("our own file");
            Exposed::by(&path.metadata().expect("there"), allowed).is_some()
        };
        let root: fn(u32) -> u32 = |_| Exposed::readers(0);
        let other: fn(u32) -> u32 = |_| Exposed::readers(1000);
        for (mode, of_root, of_others) in [
            (0o600, false, false),
            (0o400, false, false),
            (0o440, false, true),
            (0o640, false, true),
            (0o660, true, true),
            (0o604, true, true),
            (0o644, true, true),
        ] {
            assert_eq!([exposed(mode, root), exposed(mode, other)], [of_root, of_others], "{mode:o}");
        }
        std::fs::remove_file(path).expect("removed");
    }
}
