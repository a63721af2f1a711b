//! What the desk keeps on a server's disk: inputs that wait, and answers that wait for their clients. A server that is started anew
//! finds them there.
//!
//! In the folder, which only its owner may enter, one file for each ticket, `TICKET.ticket` (64 hexadecimal digits), mode 0600:
//!
//! ```text
//! [length of the head: u32, little-endian][head: a record][ciphertext, or nothing][BLAKE3 of all before]
//! ```
//!
//! A file is written beside and renamed, so that it is whole or as it was: the answer takes the input's place in one step. What does not
//! match its hash is removed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jaguar_graph::bundle::{FileError, ModelId, files};
use serde::{Deserialize, Serialize};

use super::limits::DeskLimits;
use super::store::{hex, private_folder, unhex};
use super::{Owner, Ticket};

/// What is known of an input or its answer, apart from the ciphertext.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub ticket: Ticket,
    pub owner: Owner,
    /// BLAKE3 of the keys that it is to be evaluated with.
    pub keys: [u8; 32],
    /// Inputs are evaluated in this order.
    pub order: u64,
    /// How often its evaluation was begun, and ended with its server.
    pub begun: u32,
    /// When it came; of an answer, when it was there.
    pub since: SystemTime,
    pub kept: Kept,
}

/// What the ciphertext is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Kept {
    /// The input: it waits, or its evaluation was cut.
    Input,
    /// The answer, and how long it took.
    Answer { took: Duration },
    /// There is none. Why not.
    Failure { reason: String },
}

impl Record {
    /// Time since then; none if that lies in the future, since clocks are set.
    pub fn age(&self) -> Duration {
        SystemTime::now().duration_since(self.since).unwrap_or_default()
    }

    /// Whether it is kept no longer.
    pub fn is_old(&self, limits: &DeskLimits) -> bool {
        self.age() >= if self.kept == Kept::Input { limits.wait } else { limits.keep }
    }
}

/// A head has at most this many bytes: a reason, and a little more.
const MAX_HEAD: usize = 1 << 12;

const HASH: usize = 32;

/// The folder.
pub(super) struct Records {
    folder: PathBuf,
    model: ModelId,
    /// Bytes of an input and of an answer.
    sizes: [usize; 2],
}

/// What stands in a file.
#[derive(Serialize, Deserialize)]
struct Head {
    /// An answer is of no use under another model.
    model: [u8; 32],
    record: Record,
}

/// What was found: records with their ciphertexts in their order, and how many files were damaged.
pub(super) struct Found {
    pub records: Vec<(Record, Vec<u8>)>,
    pub damaged: usize,
}

impl Records {
    /// Opens the folder of a model, which is made if it is not there. What is too old, damaged or left half written is removed. Another
    /// model's records stay until they are too old.
    ///
    /// # Errors
    /// When the folder cannot be made, read or tidied up.
    pub fn open(
        folder: &Path,
        model: ModelId,
        sizes: [usize; 2],
        limits: &DeskLimits,
    ) -> Result<(Self, Found), FileError> {
        let failed = |e| FileError::new("opening the folder for inputs and answers", folder, e);
        private_folder(folder).map_err(failed)?;
        let this = Self { folder: folder.to_owned(), model, sizes };
        let mut found = Found { records: Vec::new(), damaged: 0 };
        for file in std::fs::read_dir(folder).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((digits, kind)) = name.split_once('.') else { continue };
            let Some(ticket) = unhex(digits).map(Ticket) else { continue };
            let removed = match kind {
                "ticket" => match this.read(&path, ticket).map_err(failed)? {
                    Some((head, _)) if head.record.is_old(limits) => true,
                    Some((head, ciphertext)) => {
                        if head.model == model.0 {
                            found.records.push((head.record, ciphertext));
                        }
                        false
                    }
                    None => {
                        found.damaged += 1;
                        true
                    }
                },
                // Half of one: its writer is gone.
                part => part.ends_with(".part"),
            };
            if removed {
                std::fs::remove_file(&path).map_err(failed)?;
            }
        }
        found.records.sort_by_key(|(record, _)| record.order);
        Ok((this, found))
    }

    /// Reads a file; none if it is not as it was written.
    fn read(&self, path: &Path, ticket: Ticket) -> io::Result<Option<(Head, Vec<u8>)>> {
        let most = 4 + MAX_HEAD + self.sizes[0].max(self.sizes[1]) + HASH;
        let mut bytes = Vec::new();
        File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        Ok(self.parse(bytes, ticket))
    }

    fn parse(&self, mut bytes: Vec<u8>, ticket: Ticket) -> Option<(Head, Vec<u8>)> {
        let hash = bytes.split_off(bytes.len().checked_sub(HASH)?);
        if blake3::hash(&bytes) != *hash.first_chunk::<HASH>()? {
            return None;
        }
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let head: Head = jaguar_wire::decode("a record", bytes.get(4..4usize.checked_add(length)?)?).ok()?;
        let ciphertext = bytes.split_off(4 + length);
        // (Another model's ciphertexts may have other sizes.)
        let fits = head.model != self.model.0
            || ciphertext.len()
                == match head.record.kept {
                    Kept::Input => self.sizes[0],
                    Kept::Answer { .. } => self.sizes[1],
                    Kept::Failure { .. } => 0,
                };
        (fits && head.record.ticket == ticket).then_some((head, ciphertext))
    }

    /// Writes a record in place of the one that the ticket had.
    ///
    /// # Errors
    /// When the disk takes nothing; the former one is as it was.
    pub fn write(&self, record: &Record, ciphertext: &[u8]) -> Result<(), FileError> {
        let head = jaguar_wire::encode(&Head { model: self.model.0, record: record.clone() });
        let mut bytes = Vec::with_capacity(4 + head.len() + ciphertext.len() + HASH);
        bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(ciphertext);
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        files::replace(&self.path(record.ticket), &bytes)?;
        self.sync()
    }

    /// Removes a ticket's record, if there is one.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&self, ticket: Ticket) -> Result<(), FileError> {
        let path = self.path(ticket);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FileError::new("removing", &path, e)),
            _ => self.sync(),
        }
    }

    /// A cut of power must not bring back what was replaced.
    fn sync(&self) -> Result<(), FileError> {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| FileError::new("writing", &self.folder, e))
    }

    fn path(&self, ticket: Ticket) -> PathBuf {
        self.folder.join(format!("{}.ticket", hex(&ticket.0)))
    }
}
