//! The hint: what a client fetches once per model and keeps, on its disk where it can. Beside it stand the client's name
//! towards the model and the seed of keys that the server keeps under this name.
//!
//! It comes in blocks of responses, each with its BLAKE3 hash, in the order of the plan: a layer's blocks when the
//! first query prepares that layer (or all at once, for a client that asks for no query). A download that was cut off
//! goes on at the first block that is missing or damaged. The file names model and plan, so that it is never used with
//! another.
//!
//! A query needs the hint but no file: where the disk fails, and the client allows it ([`HintPlace::FolderOrMemory`]),
//! memory takes over.

#[cfg(feature = "files")]
mod file;
mod kept;

use std::collections::BTreeMap;
use std::ops::Range;
#[cfg(feature = "files")]
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "files")]
use std::time::Duration;

use jaguar_plan::Plan;
use jaguar_ring::prg::os_fill;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::error::EngineError;
use crate::progress::Progress;
use jaguar_graph::bundle::ModelId;
use jaguar_graph::network::NodeId;

pub use kept::{HintFile, Kept};

/// Responses of one block: a third of a megabyte at N = 2048.
const BLOCK: usize = 48;

/// A run of one layer's responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The node's number in the network.
    pub node: usize,
    /// Which of the node's responses the block has.
    pub responses: Range<usize>,
    /// How many bytes they take.
    pub bytes: usize,
}

/// The blocks of a plan's hint, in order.
pub fn blocks(plan: &Plan) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (node, step) in plan.steps.iter().enumerate() {
        let (count, each) = step.layer.as_ref().map_or((0, 0), |layer| layer.hint_parts());
        for start in (0..count).step_by(BLOCK) {
            let responses = start..count.min(start + BLOCK);
            let bytes = responses.len() * each;
            blocks.push(Block { node, responses, bytes });
        }
    }
    blocks
}

/// Where a client keeps its hint.
#[derive(Clone)]
pub enum HintPlace {
    /// In the cache folder, and nowhere else: what cannot be kept is an error, and so is a file that another process
    /// fetches.
    #[cfg(feature = "files")]
    Folder(PathBuf),
    /// In the cache folder if that can be; else in memory, for this session and those that share it. A file that
    /// another process is fetching is waited for, but no longer than this.
    #[cfg(feature = "files")]
    FolderOrMemory(PathBuf, Duration),
    /// In a file that the caller opens, if it does and the file takes it; else in memory.
    Opened(Opener),
    /// In memory, as long as the client lives.
    Memory,
    /// Where another session of this client has it ([`Hint::place`]).
    Shared(SharedHint),
}

/// Opens a file for the only hint that is kept in it. None: nothing is kept.
pub type Opener = Arc<dyn Fn() -> Option<Box<dyn HintFile>> + Send + Sync>;

#[cfg(feature = "files")]
impl<P: AsRef<Path>> From<P> for HintPlace {
    fn from(folder: P) -> Self {
        Self::Folder(folder.as_ref().to_owned())
    }
}

/// A complete hint in memory, for other sessions with the same model.
#[derive(Clone)]
pub struct SharedHint {
    store: MemoryStore,
    identity: Identity,
    model: ModelId,
    plan: [u8; 32],
}

/// Who a client is towards one model: random, and new where the plan of the model's linear layers is.
#[derive(Clone)]
struct Identity {
    /// Its name. The server learns it.
    nonce: [u8; 32],
    /// Of its keys: secret.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "hints are there without a client too"))]
    key_seed: Zeroizing<[u8; 32]>,
}

impl Identity {
    fn new(nonce: [u8; 32]) -> Self {
        let mut key_seed = Zeroizing::new([0; 32]);
        os_fill(key_seed.as_mut());
        Self { nonce, key_seed }
    }
}

/// Where the blocks of a hint lie, each followed by its hash, one after the other.
pub trait HintStore: Send {
    /// Writes `bytes` at a position that is the end so far.
    ///
    /// # Errors
    /// When there is no room.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), EngineError>;

    /// Fills `bytes` from a position on.
    ///
    /// # Errors
    /// When they cannot be read.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError>;

    /// Nothing more will be written: others may read.
    ///
    /// # Errors
    /// When that cannot be told to them.
    fn complete(&mut self) -> Result<(), EngineError>;

    /// Gives back the room that it takes. It is of no use afterwards.
    fn discard(&mut self);

    /// What it is called in messages.
    fn name(&self) -> String;

    /// The content, if it is in memory.
    fn memory(&self) -> Option<&MemoryStore> {
        None
    }
}

/// In this process, for as long as it lasts. Clones are the same one.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Vec<u8>>>);

impl MemoryStore {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HintStore for MemoryStore {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), EngineError> {
        let mut all = self.bytes();
        all.truncate(at as usize);
        all.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        let all = self.bytes();
        let found = all.get(at as usize..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(found.ok_or_else(|| EngineError::Hint("a part in memory is missing".into()))?);
        Ok(())
    }

    fn complete(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    fn discard(&mut self) {
        self.bytes().clear();
    }

    fn name(&self) -> String {
        "memory".into()
    }

    fn memory(&self) -> Option<&MemoryStore> {
        Some(self)
    }
}

/// A client's hint.
pub struct Hint {
    store: Box<dyn HintStore>,
    blocks: Vec<Block>,
    /// How many blocks are there, checked.
    have: usize,
    identity: Identity,
    model: ModelId,
    plan: [u8; 32],
    /// Whether memory takes over where the store fails.
    or_memory: bool,
    /// Layers that were read from a file, and what stays of them in memory ([`HELD`]).
    read: BTreeMap<NodeId, Option<Arc<Vec<u8>>>>,
}

/// A hint of so many bytes in all stays in memory from the second reading of each layer on: then the session has several queries, and
/// each would read it from its file, and hash it. A larger one is read and hashed by each query.
const HELD: u64 = 64 << 20;

impl Hint {
    /// Opens the hint of `model` at `place`, or begins one: `nonce` (the client's name towards this model, random)
    /// is used for a new one only. Damaged or foreign content is cut off. What a person should know goes to `progress`.
    ///
    /// # Errors
    /// When the disk fails, or another process is using the file; never for a place that may be in memory.
    pub fn open(
        place: &HintPlace,
        model: ModelId,
        plan: &Plan,
        nonce: [u8; 32],
        progress: &mut dyn Progress,
    ) -> Result<Self, EngineError> {
        let digest = plan.hint_digest();
        let begun = |store: Box<dyn HintStore>, have, identity, or_memory| Self {
            store,
            blocks: blocks(plan),
            have,
            identity,
            model,
            plan: digest,
            or_memory,
            read: BTreeMap::new(),
        };
        let new = Identity::new(nonce);
        let in_memory = || begun(Box::<MemoryStore>::default(), 0, new.clone(), false);
        match place {
            HintPlace::Memory => Ok(in_memory()),
            HintPlace::Opened(opener) => {
                let Some(file) = opener() else { return Ok(in_memory()) };
                let name = file.name();
                match Kept::open(file, model, plan, &new) {
                    Ok((store, have, identity)) => {
                        let mut hint = begun(Box::new(store), have, identity, true);
                        hint.share_if_complete(progress)?;
                        Ok(hint)
                    }
                    Err(e) => {
                        progress.warning(&without_file(&name, &e));
                        Ok(in_memory())
                    }
                }
            }
            HintPlace::Shared(hint) if (hint.model, hint.plan) == (model, digest) => {
                let have = blocks(plan).len();
                Ok(begun(Box::new(hint.store.clone()), have, hint.identity.clone(), false))
            }
            // Of another model: of no use here.
            HintPlace::Shared(_) => Ok(in_memory()),
            #[cfg(feature = "files")]
            HintPlace::Folder(folder) => {
                let (store, have, identity) =
                    file::open(folder, model, plan, &new, Duration::ZERO, progress)?;
                let mut hint = begun(Box::new(store), have, identity, false);
                hint.share_if_complete(progress)?;
                Ok(hint)
            }
            #[cfg(feature = "files")]
            HintPlace::FolderOrMemory(folder, patience) => {
                match file::open(folder, model, plan, &new, *patience, progress) {
                    Ok((store, have, identity)) => {
                        let mut hint = begun(Box::new(store), have, identity, true);
                        hint.share_if_complete(progress)?;
                        Ok(hint)
                    }
                    Err(e) => {
                        progress
                            .warning(&without_file(&format!("the cache folder {}", folder.display()), &e));
                        Ok(in_memory())
                    }
                }
            }
        }
    }

    /// Lets others use the hint once nothing more will be written.
    fn share_if_complete(&mut self, progress: &mut dyn Progress) -> Result<(), EngineError> {
        if self.have < self.blocks.len() {
            return Ok(());
        }
        match self.store.complete() {
            // It can be read, which is all that this session needs.
            Err(e) if self.or_memory => {
                progress.warning(&format!("the hint may have to be fetched again ({e})"));
                Ok(())
            }
            result => result,
        }
    }

    /// Where another session of this process finds the hint when it is complete. `folder`: where this one was to keep
    /// it.
    pub fn place(&self, folder: &HintPlace) -> HintPlace {
        match self.store.memory() {
            Some(memory) if self.have == self.blocks.len() => HintPlace::Shared(SharedHint {
                store: memory.clone(),
                identity: self.identity.clone(),
                model: self.model,
                plan: self.plan,
            }),
            Some(_) => HintPlace::Memory,
            None => folder.clone(),
        }
    }

    /// The client's name towards this model.
    pub fn nonce(&self) -> [u8; 32] {
        self.identity.nonce
    }

    /// The seed of the client's keys.
    #[cfg(feature = "client")]
    pub(crate) fn key_seed(&self) -> &[u8; 32] {
        &self.identity.key_seed
    }

    /// How many blocks are there, from the first on.
    pub fn have(&self) -> usize {
        self.have
    }

    /// The blocks of the hint, in the order in which they are fetched.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Bytes of the blocks in `range`.
    pub(crate) fn bytes(&self, range: Range<usize>) -> u64 {
        self.blocks[range].iter().map(|b| b.bytes as u64).sum()
    }

    /// Where a block begins in the store; each is followed by its hash.
    fn position(&self, block: usize) -> u64 {
        self.bytes(0..block) + 32 * block as u64
    }

    /// Appends the next block with its hash. Where the disk takes no more, the file is given up: it could never be
    /// completed, and would keep the disk full.
    ///
    /// # Errors
    /// When the hash does not match, or the disk is full and memory may not take over.
    fn append(
        &mut self,
        block: &[u8],
        hash: &[u8; 32],
        progress: &mut dyn Progress,
    ) -> Result<(), EngineError> {
        if blake3::hash(block) != *hash {
            let text = format!("block {} of the hint arrived damaged", self.have);
            return Err(EngineError::PeerMisbehaved(text));
        }
        let at = self.position(self.have);
        let written =
            self.store.write(at, block).and_then(|()| self.store.write(at + block.len() as u64, hash));
        if let Err(e) = written {
            if !self.or_memory {
                self.store.discard();
                return Err(e);
            }
            let mut there = vec![0; at as usize];
            self.store.read(0, &mut there)?;
            self.store.discard();
            progress.warning(&format!(
                "the hint cannot be kept ({e}): this run goes on with it in memory, the next one fetches it again"
            ));
            there.extend_from_slice(block);
            there.extend_from_slice(hash);
            self.store = Box::new(MemoryStore(Arc::new(Mutex::new(there))));
            self.or_memory = false;
        }
        self.have += 1;
        self.share_if_complete(progress)
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
            self.append(&bytes, &hash, progress)?;
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
    pub fn layer(&mut self, node: usize) -> Result<Arc<Vec<u8>>, EngineError> {
        if let Some(Some(held)) = self.read.get(&node) {
            return Ok(Arc::clone(held));
        }
        let range = self.of_node(node);
        assert!(range.end <= self.have, "a layer is read when its blocks are there");
        let mut at = self.position(range.start);
        let mut layer = Vec::with_capacity(self.bytes(range.clone()) as usize + 32);
        for block in &self.blocks[range] {
            let start = layer.len();
            layer.resize(start + block.bytes + 32, 0);
            self.store.read(at, &mut layer[start..])?;
            at += block.bytes as u64 + 32;
            if !intact(&layer[start..]) {
                return Err(EngineError::Hint(format!(
                    "{} is damaged; delete it and it will be fetched again",
                    self.store.name()
                )));
            }
            layer.truncate(start + block.bytes);
        }
        let layer = Arc::new(layer);
        let in_memory = self.store.memory().is_some();
        if !in_memory && self.bytes(0..self.blocks.len()) <= HELD {
            let again = self.read.contains_key(&node);
            self.read.insert(node, again.then(|| Arc::clone(&layer)));
        }
        Ok(layer)
    }
}

/// What a person is told when the file is done without.
fn without_file(name: &str, cause: &EngineError) -> String {
    format!("the hint cannot be kept in {name} ({cause}): this run goes on with it in memory")
}

fn intact(block_and_hash: &[u8]) -> bool {
    let (block, hash) = block_and_hash.split_at(block_and_hash.len() - 32);
    blake3::hash(block).as_bytes()[..] == *hash
}
