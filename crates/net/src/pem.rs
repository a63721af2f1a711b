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
        Ok(Self::by(&std::fs::metadata(path)?))
    }

    #[cfg(unix)]
    fn by(about: &std::fs::Metadata) -> Option<Self> {
        let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777;
        (mode & 0o077 != 0).then_some(Self { mode })
    }

    #[cfg(not(unix))]
    fn by(_: &std::fs::Metadata) -> Option<Self> {
        None
    }
}

/// Refuses a file whose secret others than its owner may use.
pub(crate) fn private(what: &'static str, path: &Path) -> Result<(), FileError> {
    match Exposed::of(path).map_err(FileError::io(what, path))? {
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
