//! A hint in a file: what the file says, wherever it lies.

use std::io::{self, ErrorKind};
use std::path::Path;

use jaguar_graph::bundle::ModelId;
use jaguar_plan::Plan;
use zeroize::Zeroizing;

use super::{Block, HintStore, Identity, blocks, intact};
use crate::error::EngineError;

const MAGIC: &[u8; 8] = b"JAGHINT\x02";
/// Magic number, model, plan, the client's name, the seed of its keys.
const HEADER: u64 = 8 + 4 * 32;

/// A file for one hint. One that may be written is nobody else's meanwhile.
pub trait HintFile: Send {
    /// Whether it may be written.
    fn writable(&self) -> bool {
        true
    }

    /// Fills `bytes` from a position on.
    ///
    /// # Errors
    /// `UnexpectedEof` when there are not as many; others when they cannot be read.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at a position.
    ///
    /// # Errors
    /// When there is no room.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Drops what is behind the first `len` bytes.
    ///
    /// # Errors
    /// When that cannot be.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Nothing more will be written: others may read.
    ///
    /// # Errors
    /// When that cannot be told to them.
    fn complete(&mut self) -> io::Result<()>;

    /// Removes it.
    fn remove(&mut self);

    /// What it is called in messages.
    fn name(&self) -> String;
}

/// The store of a hint in a file.
pub struct Kept {
    file: Box<dyn HintFile>,
}

impl Kept {
    /// Takes what is sound in `file`, and begins it anew if it is about another model or plan: the store, how many blocks are there,
    /// who the client is: `new`, in a file that is begun.
    pub(super) fn open(
        file: Box<dyn HintFile>,
        model: ModelId,
        plan: &Plan,
        new: &Identity,
    ) -> Result<(Self, usize, Identity), EngineError> {
        let mut store = Self { file };
        let head = [&MAGIC[..], &model.0, &plan.hint_digest()].concat();
        let identity = match store.identity(&head)? {
            Some(identity) => identity,
            None if store.file.writable() => {
                if let Err(e) = store.begin(&head, new) {
                    store.discard();
                    return Err(e);
                }
                new.clone()
            }
            None => return Err(EngineError::Hint(format!("{} is in use for another plan", store.name()))),
        };
        let blocks = blocks(plan);
        let (have, end) = store.whole_blocks(&blocks)?;
        if store.file.writable() {
            store.file.cut(HEADER + end).map_err(|e| store.error("writing", e))?;
        } else if have < blocks.len() {
            return Err(EngineError::Hint(format!(
                "{} is incomplete, and may not be written or is in use by another process",
                store.name()
            )));
        }
        Ok((store, have, identity))
    }

    fn error(&self, what: &'static str, e: io::Error) -> EngineError {
        EngineError::file(what, Path::new(&self.file.name()), e)
    }

    /// Fills `bytes`; false where the file ends before.
    fn filled(&mut self, at: u64, bytes: &mut [u8]) -> Result<bool, EngineError> {
        match self.file.read(at, bytes) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(self.error("reading", e)),
        }
    }

    /// The client's name and seed from the header, if the file is about this model and plan (the header's first 72 bytes).
    fn identity(&mut self, head: &[u8]) -> Result<Option<Identity>, EngineError> {
        let mut header = Zeroizing::new([0; HEADER as usize]);
        let own = self.filled(0, &mut header[..])? && header.starts_with(head);
        let part = |at: usize| header[at..at + 32].try_into().expect("32 bytes");
        Ok(own.then(|| Identity { nonce: part(head.len()), key_seed: Zeroizing::new(part(head.len() + 32)) }))
    }

    /// Empties the file, and writes a header.
    fn begin(&mut self, head: &[u8], identity: &Identity) -> Result<(), EngineError> {
        let Identity { nonce, key_seed } = identity;
        let header = Zeroizing::new([head, nonce, &key_seed[..]].concat());
        self.file.cut(0).and_then(|()| self.file.write(0, &header)).map_err(|e| self.error("writing", e))
    }

    /// Reads the blocks until one is missing or damaged: how many there are, and how many bytes they take.
    fn whole_blocks(&mut self, blocks: &[Block]) -> Result<(usize, u64), EngineError> {
        let mut buffer = Vec::new();
        let (mut have, mut end) = (0, 0);
        for block in blocks {
            buffer.resize(block.bytes + 32, 0);
            if !self.filled(HEADER + end, &mut buffer)? || !intact(&buffer) {
                break;
            }
            have += 1;
            end += buffer.len() as u64;
        }
        Ok((have, end))
    }
}

impl HintStore for Kept {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.file.write(HEADER + at, bytes).map_err(|e| self.error("writing", e))
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        self.file.read(HEADER + at, bytes).map_err(|e| self.error("reading", e))
    }

    fn complete(&mut self) -> Result<(), EngineError> {
        self.file.complete().map_err(|e| self.error("locking", e))
    }

    fn discard(&mut self) {
        self.file.remove();
    }

    fn name(&self) -> String {
        self.file.name()
    }
}
