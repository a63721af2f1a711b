//! Pages that are written beside what a command prints.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use jaguar::bundle::files;
use jaguar::reports::terminal::say;

/// Whether a path's name is that of a web page.
pub fn is_page(path: &Path) -> bool {
    path.extension()
        .and_then(OsStr::to_str)
        .is_some_and(|e| matches!(e.to_ascii_lowercase().as_str(), "html" | "htm"))
}

/// Refuses a place where a page cannot be written, or where something else would be lost: before the work.
pub fn check(path: &Path) -> Result<()> {
    ensure!(is_page(path), "--report {}: a name that ends in .html is needed", path.display());
    check_place("--report", path)
}

/// Refuses a place, named by `option`, where no file can be written: before the work.
pub fn check_place(option: &str, path: &Path) -> Result<()> {
    let shown = path.display();
    if path.is_dir() {
        bail!("{option} {shown}: that is no file");
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(folder.is_dir(), "{option} {shown}: {} is no folder", folder.display());
    Ok(())
}

/// Writes a page, and says so.
pub fn write(path: &Path, page: &str) -> Result<()> {
    files::save(path, page.as_bytes())?;
    say!("wrote {}", path.display());
    Ok(())
}

/// The last two parts of a file's path: a page may be passed on, and where its maker keeps files is nobody's business.
pub fn short(path: &Path) -> String {
    let parts: Vec<_> = path.components().rev().take(2).collect();
    parts.into_iter().rev().collect::<std::path::PathBuf>().display().to_string()
}
