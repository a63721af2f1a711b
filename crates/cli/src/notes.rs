//! What a person is told of the machine's profile, in words.

use jaguar_plan::machine::Link;
use jaguar_profile::Note;

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
