//! Files that are whole or not there.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::FileError;

/// Writes a file beside `path`, then moves it there: a crash or a full disk leaves the old one as it was.
///
/// # Errors
/// When the file cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let io = |e| FileError::new("writing", path, e);
    let write = || {
        let mut file = std::fs::File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|e| {
        let _ = std::fs::remove_file(&part);
        io(e)
    })
}

/// Where a user's caches belong: `$XDG_CACHE_HOME/jaguar`, or `~/.cache/jaguar`.
pub fn default_cache() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|h| h.join(".cache")))
        .map(|p| p.join("jaguar"))
}
