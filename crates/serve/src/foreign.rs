//! Readers of foreign bytes that only the fuzzer calls from outside.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use jaguar_engine::bundle::FileError;

use crate::http::{Answer, reply};
use crate::queries::QueryBook;

/// What the endpoint for figures answers to who says what `read` brings, if each page shows its own path.
pub fn scrape(read: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>) -> String {
    reply(read, &|path| Answer::text("200 OK", path))
}

/// Opens a file of today's queries, and writes it as it was understood.
///
/// # Errors
/// When it is none, or cannot be written.
pub fn open_queries(path: PathBuf) -> Result<(), FileError> {
    QueryBook::open(Some(path), SystemTime::now()).and_then(|(_, written)| written)
}
