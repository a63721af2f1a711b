//! What a person is told of what libraries found: the machine's profile, and files.

use std::path::PathBuf;

use jaguar_profile::Note;
use jaguar_samples::folder::{self, FolderError};

/// Prints a note to standard error.
pub fn tell(note: Note) {
    match note {
        Note::Measuring => eprintln!("{note} (--calibrate off leaves it out)"),
        note => eprintln!("{note}"),
    }
}

/// The inputs among `paths` and in folders among them. What is skipped is named on standard error.
///
/// # Errors
/// When a folder cannot be read or holds none.
pub fn collect(paths: &[PathBuf]) -> Result<Vec<PathBuf>, FolderError> {
    let found = folder::collect(paths)?;
    found.skipped.iter().for_each(|skipped| eprintln!("note: {skipped}"));
    Ok(found.files)
}
