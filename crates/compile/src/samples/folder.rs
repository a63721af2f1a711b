//! Which files of a folder are inputs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::samples::KNOWN;

/// The names that such files have.
const EXTENSIONS: [&str; 11] =
    ["jpg", "jpeg", "png", "webp", "bmp", "gif", "pbm", "pgm", "ppm", "pnm", "npy"];

/// Folders in folders in folders are looked into, but not for ever.
const MAX_DEPTH: usize = 8;

/// How many skipped files are named.
const NAMED: usize = 3;

/// Inputs, and what was left out.
#[derive(Debug, Default)]
pub struct Found {
    /// The files, in the order of their names within a folder.
    pub files: Vec<PathBuf>,
    /// What was skipped, by folder.
    pub skipped: Vec<Skipped>,
}

/// Files of a folder that are no inputs, by their names. As text: how many, and the first of them.
#[derive(Debug, PartialEq)]
pub struct Skipped {
    /// The folder.
    pub folder: PathBuf,
    /// One or more, in the order of their names.
    pub files: Vec<PathBuf>,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |p: &PathBuf| p.strip_prefix(&self.folder).unwrap_or(p).display().to_string();
        let names: Vec<String> = self.files.iter().take(NAMED).map(name).collect();
        let more = if self.files.len() > NAMED { ", ..." } else { "" };
        let count = self.files.len();
        let files = if count == 1 { "1 file is" } else { &format!("{count} files are") };
        let folder = self.folder.display();
        write!(f, "{folder}: {files} skipped, being no {KNOWN}: {}{more}", names.join(", "))
    }
}

/// A folder without inputs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The folder, or one in it.
        path: PathBuf,
        /// The operating system's word.
        source: std::io::Error,
    },
    /// Nothing in it is an input.
    #[error("{}: no {KNOWN} file in this folder", .0.display())]
    Empty(PathBuf),
}

/// The images and tensors among `paths`: files as they are, folders by their content and that of the folders in them,
/// in the order of their names.
///
/// # Errors
/// When a folder cannot be read or holds none.
pub fn collect(paths: &[PathBuf]) -> Result<Found, FolderError> {
    let mut all = Found::default();
    for path in paths {
        if path.is_dir() {
            let found = folder(path)?;
            all.files.extend(found.files);
            all.skipped.extend(found.skipped);
        } else {
            all.files.push(path.clone());
        }
    }
    Ok(all)
}

/// The images and tensors in a folder and the folders in it.
///
/// # Errors
/// When it cannot be read or holds none.
pub fn folder(path: &Path) -> Result<Found, FolderError> {
    let (mut files, mut skipped) = (Vec::new(), Vec::new());
    walk(path, 0, &mut BTreeSet::new(), &mut files, &mut skipped)?;
    files.sort();
    skipped.sort();
    if files.is_empty() {
        return Err(FolderError::Empty(path.to_owned()));
    }
    let skipped = (!skipped.is_empty()).then(|| Skipped { folder: path.to_owned(), files: skipped });
    Ok(Found { files, skipped: skipped.into_iter().collect() })
}

fn walk(
    path: &Path,
    depth: usize,
    seen: &mut BTreeSet<PathBuf>,
    found: &mut Vec<PathBuf>,
    skipped: &mut Vec<PathBuf>,
) -> Result<(), FolderError> {
    let at = |source| FolderError::Read { path: path.to_owned(), source };
    // A link may lead back up.
    if depth > MAX_DEPTH || !seen.insert(path.canonicalize().map_err(at)?) {
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(at)? {
        let entry = entry.map_err(at)?;
        // What systems leave in every folder is nobody's picture.
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let file = entry.path();
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if file.is_dir() {
            walk(&file, depth + 1, seen, found, skipped)?;
        } else if EXTENSIONS.iter().any(|k| extension.eq_ignore_ascii_case(k)) {
            found.push(file);
        } else {
            skipped.push(file);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_lead_back_end() {
        let folder = std::env::temp_dir().join(format!("jaguar-loop-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/x.PNG"), b"").unwrap();
        std::fs::write(folder.join("a/notes.txt"), b"").unwrap();
        std::fs::write(folder.join(".hidden"), b"").unwrap();
        #[cfg(unix)]
        let _ = std::os::unix::fs::symlink(&folder, folder.join("a/up"));
        let (mut found, mut skipped) = (Vec::new(), Vec::new());
        let walked = walk(&folder, 0, &mut BTreeSet::new(), &mut found, &mut skipped);
        let note = Skipped { folder: folder.clone(), files: skipped.clone() }.to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        walked.unwrap();
        assert_eq!(found, [folder.join("a/x.PNG")]);
        assert_eq!(skipped, [folder.join("a/notes.txt")]);
        assert!(note.contains("1 file is skipped") && note.contains("a/notes.txt"));
    }
}
