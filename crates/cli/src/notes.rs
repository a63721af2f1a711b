//! What a person is told of what libraries found: the machine's profile, and files.

use std::path::PathBuf;

use jaguar::compile::samples::folder::{self, FolderError};
use jaguar::machine::Note;
use jaguar::machine::memory::room;
use jaguar::network::Network;
use jaguar::plan::Plan;
use jaguar::plan::memory::{Load, Side};
use jaguar::reports::tables::memory::MemoryNeeds;

/// Prints a note to standard error.
pub fn tell(note: Note) {
    match note {
        Note::Measuring => eprintln!("{note} (--measure off leaves it out)"),
        note => eprintln!("{note}"),
    }
}

/// What is to be said, before it runs, if what `party` has to do will not fit this machine's memory, and what would.
pub fn warning_of_memory(network: &Network, plan: &Plan, load: Load, party: Side) -> Option<String> {
    MemoryNeeds::new(network, plan, plan.choices.weaknesses(), load, room(), &crate::kit::standard())
        .warning(party)
}

/// Prints a warning to standard error, if there is one.
pub fn warn(warning: Option<String>) {
    if let Some(warning) = warning {
        eprintln!("warning: {warning}");
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
