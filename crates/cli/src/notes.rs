//! What a person is told of what libraries found: the machine's profile, and files.

use std::error::Error;
use std::path::PathBuf;

use jaguar_plan::machine::Link;
use jaguar_profile::Note;
use jaguar_samples::folder::{self, FolderError, Found};

/// Prints a note to standard error.
pub fn tell(note: Note) {
    match note {
        Note::Measuring => eprintln!("{note} (--calibrate off leaves it out)"),
        note => eprintln!("{note}"),
    }
}

/// A link in words.
pub fn words(link: &Link) -> String {
    format!("{:.0} MB/s, {:.2} ms round trip", link.bytes_per_second * 1e-6, link.round_trip * 1e3)
}

/// The inputs among `paths` and in folders among them. What is skipped is named on standard error.
///
/// # Errors
/// When a folder cannot be read or holds none.
pub fn collect(paths: &[PathBuf]) -> Result<Vec<PathBuf>, FolderError> {
    let found = folder::collect(paths)?;
    name_skipped(&found);
    Ok(found.files)
}

/// Names on standard error what was skipped.
pub fn name_skipped(found: &Found) {
    found.skipped.iter().for_each(|skipped| eprintln!("note: {skipped}"));
}

/// The error and its causes. Most errors here tell their cause themselves: what was said is not said again.
pub fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let said = error.to_string();
        if text.is_empty() {
            text = said;
        } else if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
