//! Where queries are counted: in a file of this server's own, or in a store that servers share.

use std::path::PathBuf;
use std::time::SystemTime;

use jaguar_engine::bundle::FileError;

use crate::book::Book;
use crate::queries::QueryBook;

/// Where queries are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counts {
    /// In a file of this server's own.
    File(PathBuf),
    /// In a Redis store that servers share: its address. `JAGUAR_COUNTS_PASSWORD` in the environment is its password.
    Redis(String),
}

impl From<PathBuf> for Counts {
    /// What begins with `redis` and goes on as an address does is a store, anything else a file.
    fn from(name: PathBuf) -> Self {
        match name.to_str() {
            Some(address)
                if ["redis://", "rediss://", "redis+unix://"].iter().any(|s| address.starts_with(s)) =>
            {
                Self::Redis(address.to_owned())
            }
            _ => Self::File(name),
        }
    }
}

/// A book, and why it could not be written.
type Opened<B> = (B, Result<(), FileError>);

/// Opens the book. The other value says why it could not be written: then it counts in memory, and each count tries again.
///
/// # Errors
/// When there is none, another server uses the file, it holds something else or cannot be read, or an address is none.
pub(crate) fn open(counts: Option<Counts>, now: SystemTime) -> Result<Opened<Box<dyn Book>>, FileError> {
    match counts {
        Some(Counts::Redis(address)) => store(&address),
        Some(Counts::File(path)) => {
            let (book, written) = QueryBook::open(Some(path), now)?;
            Ok((Box::new(book), written))
        }
        None => {
            let (book, written) = QueryBook::open(None, now)?;
            Ok((Box::new(book), written))
        }
    }
}

#[cfg(feature = "redis")]
fn store(address: &str) -> Result<Opened<Box<dyn Book>>, FileError> {
    use crate::shared_queries::{PASSWORD, SharedBook};

    let (book, told) = SharedBook::open(address, std::env::var(PASSWORD).ok())?;
    Ok((Box::new(book), told))
}

#[cfg(not(feature = "redis"))]
fn store(address: &str) -> Result<Opened<Box<dyn Book>>, FileError> {
    use std::io::{Error, ErrorKind};

    let why = Error::new(ErrorKind::Unsupported, "this program was built without the feature 'redis'");
    Err(FileError::new(crate::book::WHAT, std::path::Path::new(address), why))
}
