//! Certificates and keys in files (PEM).

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
