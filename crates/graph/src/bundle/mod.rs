//! The compiled model in a file, its public name, and how files are kept: whole, or not there.

mod compiled;
pub mod files;

use std::io;
use std::path::Path;

pub use compiled::{Bundle, ModelId};

/// Why a compiled model cannot be used or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The model is not sound, or the file is missing, no bundle, of another version, or damaged.
    #[error("{0}")]
    Unusable(String),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What the operating system refused to do with a file.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}: {source}")]
pub struct FileError {
    /// What was tried, as "read" or "write".
    pub what: &'static str,
    /// The file or folder that it was tried with.
    pub path: String,
    /// What the operating system says of it.
    pub source: io::Error,
}

impl FileError {
    /// `what` was tried with the file at `path`, in a word such as "writing".
    pub fn new(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self { what, path: path.display().to_string(), source }
    }
}
