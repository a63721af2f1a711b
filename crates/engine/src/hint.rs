//! The hint: what a client fetches once per model and keeps on its disk.
//!
//! It comes in blocks of responses, each with its BLAKE3 hash, in the order of the plan: a layer's blocks when the first query
//! prepares that layer (or all at once, for a client that asks for no query). A download that was cut off goes on at the first
//! block that is missing or damaged. The file names model and plan, so that it is never used with another.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use jaguar_plan::Plan;
use jaguar_wire::Channel;

use crate::EngineError;
use crate::bundle::ModelId;
use crate::report::Progress;

const MAGIC: &[u8; 8] = b"JAGHINT\x01";
const HEADER: u64 = 8 + 32 + 32 + 32;

/// Responses of one block: a third of a megabyte at N = 2048.
const BLOCK: usize = 48;

/// A run of one layer's responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The node.
    pub node: usize,
    /// Which of its responses.
    pub responses: Range<usize>,
    /// How many bytes they take.
    pub bytes: usize,
}

/// The blocks of a plan's hint, in order.
pub fn blocks(plan: &Plan) -> Vec<Block> {
    let mut blocks = Vec::new();
    for layer in plan.hinted() {
        let count = layer.layout().responses();
        for start in (0..count).step_by(BLOCK) {
            let responses = start..count.min(start + BLOCK);
            let bytes = responses.len() * layer.hint_response_bytes();
            blocks.push(Block { node: layer.index(), responses, bytes });
        }
    }
    blocks
}

/// A client's hint file.
pub struct HintFile {
    path: PathBuf,
    file: File,
    blocks: Vec<Block>,
    /// How many blocks are there, checked.
    have: usize,
    nonce: [u8; 32],
}

impl HintFile {
    /// Opens the hint of `model` under `cache`, or begins one: `nonce` (the client's name towards this model, random)
    /// is used for a new one only. Damaged or foreign content is cut off.
    ///
    /// # Errors
    /// When the disk fails, or another process is using the file.
    pub fn open(cache: &Path, model: ModelId, plan: &Plan, nonce: [u8; 32]) -> Result<Self, EngineError> {
        let folder = cache.join("hints");
        std::fs::create_dir_all(&folder).map_err(|e| EngineError::file("creating", &folder, e))?;
        let path = folder.join(format!("{model}.hint"));
        let io = |e| EngineError::file("opening", &path, e);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        // One process fetches at a time; any number may use what is complete.
        let exclusive = file.try_lock().is_ok();
        if !exclusive && file.try_lock_shared().is_err() {
            return Err(EngineError::Hint(format!(
                "{} is being fetched by another process; wait for it, or give this one its own --cache",
                path.display()
            )));
        }
        let mut header = Vec::new();
        (&mut file).take(HEADER).read_to_end(&mut header).map_err(io)?;
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&model.0);
        head.extend_from_slice(&plan.hint_digest());
        let nonce = if header.len() as u64 == HEADER && header[..72] == head {
            header[72..].try_into().expect("32 bytes")
        } else if !exclusive {
            return Err(EngineError::Hint(format!(
                "{} is being replaced by another process",
                path.display()
            )));
        } else {
            file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)).map(drop)).map_err(io)?;
            head.extend_from_slice(&nonce);
            file.write_all(&head).map_err(io)?;
            nonce
        };
        let blocks = blocks(plan);
        let mut have = 0;
        let mut at = HEADER;
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let mut buffer = Vec::new();
        for block in &blocks {
            buffer.resize(block.bytes + 32, 0);
            if reader.read_exact(&mut buffer).is_err() || !intact(&buffer) {
                break;
            }
            have += 1;
            at += buffer.len() as u64;
        }
        if exclusive {
            file.set_len(at).and_then(|()| file.seek(SeekFrom::Start(at)).map(drop)).map_err(io)?;
        } else if have < blocks.len() {
            return Err(EngineError::Hint(format!(
                "{} is damaged and in use by another process; end that one first",
                path.display()
            )));
        }
        let hint = Self { path, file, blocks, have, nonce };
        hint.share_if_complete()?;
        Ok(hint)
    }

    /// Lets other processes use the file once nothing more will be written.
    fn share_if_complete(&self) -> Result<(), EngineError> {
        if self.have < self.blocks.len() {
            return Ok(());
        }
        let io = |e| EngineError::file("unlocking", &self.path, e);
        self.file.unlock().map_err(io)?;
        self.file.lock_shared().map_err(io)
    }

    /// The client's name towards this model.
    pub fn nonce(&self) -> [u8; 32] {
        self.nonce
    }

    /// How many blocks are there, from the first on.
    pub fn have(&self) -> usize {
        self.have
    }

    /// All blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Bytes of the blocks in `range`.
    pub fn bytes(&self, range: Range<usize>) -> u64 {
        self.blocks[range].iter().map(|b| b.bytes as u64).sum()
    }

    /// Where a block begins in the file; each is followed by its hash.
    fn position(&self, block: usize) -> u64 {
        HEADER + self.bytes(0..block) + 32 * block as u64
    }

    /// Appends the next block with its hash.
    ///
    /// # Errors
    /// When the hash does not match, or the disk is full.
    pub fn append(&mut self, block: &[u8], hash: &[u8; 32]) -> Result<(), EngineError> {
        if blake3::hash(block) != *hash {
            return Err(EngineError::Hint(format!("block {} of the hint arrived damaged", self.have)));
        }
        let at = self.position(self.have);
        let write = |file: &mut File| {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(block)?;
            file.write_all(hash)
        };
        write(&mut self.file).map_err(|e| EngineError::file("writing", &self.path, e))?;
        self.have += 1;
        self.share_if_complete()
    }

    /// Receives the missing blocks up to `end` from the server. Says whether there were any.
    ///
    /// # Errors
    /// When the connection or the disk fails, or a block does not match its hash. What came before it is kept.
    pub fn receive(
        &mut self,
        end: usize,
        channel: &mut Channel,
        progress: &mut dyn Progress,
    ) -> Result<bool, EngineError> {
        if self.have >= end {
            return Ok(false);
        }
        let total = self.bytes(0..self.blocks.len());
        while self.have < end {
            let bytes = channel.recv(self.blocks[self.have].bytes)?;
            let mut hash = [0; 32];
            channel.recv_into(&mut hash)?;
            self.append(&bytes, &hash)?;
            progress.hint(self.bytes(0..self.have), total);
        }
        Ok(true)
    }

    /// The blocks of `node`: none for a node without a hint.
    pub fn of_node(&self, node: usize) -> Range<usize> {
        self.blocks.partition_point(|b| b.node < node)..self.blocks.partition_point(|b| b.node <= node)
    }

    /// Reads the hint of `node`.
    ///
    /// # Errors
    /// When the disk fails or the content was changed.
    ///
    /// # Panics
    /// When a block of it is missing.
    pub fn layer(&mut self, node: usize) -> Result<Vec<u8>, EngineError> {
        let range = self.of_node(node);
        assert!(range.end <= self.have, "a layer is read when its blocks are there");
        let at = self.position(range.start);
        let io = |e| EngineError::file("reading", &self.path, e);
        self.file.seek(SeekFrom::Start(at)).map_err(io)?;
        let mut layer = Vec::with_capacity(self.bytes(range.clone()) as usize + 32);
        for block in &self.blocks[range] {
            let start = layer.len();
            layer.resize(start + block.bytes + 32, 0);
            self.file.read_exact(&mut layer[start..]).map_err(io)?;
            if !intact(&layer[start..]) {
                return Err(EngineError::Hint(format!(
                    "{} is damaged; delete it and it will be fetched again",
                    self.path.display()
                )));
            }
            layer.truncate(start + block.bytes);
        }
        Ok(layer)
    }
}

fn intact(block_and_hash: &[u8]) -> bool {
    let (block, hash) = block_and_hash.split_at(block_and_hash.len() - 32);
    blake3::hash(block).as_bytes()[..] == *hash
}
