//! Files that are whole or not there, and that nobody else may read.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::bundle::FileError;

/// How a file is created that only its owner may read and write (on Unix: mode 0600).
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A file that is locked until this is dropped.
pub struct Lock(File);

impl Lock {
    /// Locks a file, which is made if it is not there.
    ///
    /// # Errors
    /// Of the kind [`ErrorKind::ResourceBusy`] if somebody else has it; else the disk's.
    pub fn take(path: &Path) -> io::Result<Self> {
        let file = private().truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

impl Drop for Lock {
    /// A process that was begun meanwhile has the file open until it runs its own program: closing it here would not free it.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Writes a file beside `path`, then moves it there: a crash or a full disk leaves the old one as it was. Only its owner
/// may read the new one.
///
/// # Errors
/// When the file cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let io = |e| FileError::new("writing", path, e);
    let write = || {
        let mut file = private().truncate(true).open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|e| {
        let _ = std::fs::remove_file(&part);
        io(e)
    })
}

/// The same for what a person asked for by name, such as a page: a full disk takes no former one away. What is there and is no file,
/// such as a pipe, is written to as it is.
///
/// # Errors
/// When it cannot be written.
pub fn save(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return std::fs::write(path, bytes).map_err(|e| FileError::new("writing", path, e));
    }
    replace(path, bytes)
}

/// Where a user's caches belong: `$XDG_CACHE_HOME/jaguar`, or `~/.cache/jaguar`.
pub fn default_cache() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|h| h.join(".cache")))
        .map(|p| p.join("jaguar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_a_process_begun_meanwhile_has_the_file_open() {
        let path = std::env::temp_dir().join(format!("jaguar-lock-{}", std::process::id()));
        let lock = Lock::take(&path).expect("made");
        let inherited = lock.0.try_clone().expect("as a new process has it");
        assert!(Lock::take(&path).is_err_and(|e| e.kind() == ErrorKind::ResourceBusy));
        drop(lock);
        drop(Lock::take(&path).expect("free"));
        drop(inherited);
        std::fs::remove_file(&path).expect("ours");
    }
}
