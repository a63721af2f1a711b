//! A hint in the cache folder.

use std::fs::{File, TryLockError};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jaguar_graph::bundle::files::private;
use jaguar_plan::Plan;
use jaguar_wire::{Clock, SystemClock};
use zeroize::Zeroizing;

use super::{Block, HintStore, Identity, blocks, intact};
use crate::error::EngineError;
use crate::progress::Progress;
use jaguar_graph::bundle::ModelId;

const MAGIC: &[u8; 8] = b"JAGHINT\x02";
/// Magic number, model, plan, the client's name, the seed of its keys.
const HEADER: u64 = 8 + 4 * 32;

/// How often a lock is tried.
const POLL: Duration = Duration::from_millis(50);

/// In a file, locked: one process fetches at a time, any number may read what is complete.
pub struct FileStore {
    path: PathBuf,
    file: File,
    /// Whether it may be written.
    exclusive: bool,
}

impl FileStore {
    /// Opens or begins the file, and waits up to `patience` while another process fetches; `waiting` is called if that
    /// happens.
    fn open(path: PathBuf, patience: Duration, waiting: &mut dyn FnMut(&str)) -> Result<Self, EngineError> {
        let io = |e| EngineError::file("opening", &path, e);
        let begin = || private().read(true).truncate(false).open(&path);
        let (file, writable) = match begin() {
            Ok(file) => (file, true),
            // Whoever may not write can still use what is whole.
            Err(e) => (File::open(&path).map_err(|_| io(e))?, false),
        };
        let deadline = SystemClock.now() + patience;
        let mut told = false;
        let exclusive = loop {
            if writable {
                match file.try_lock() {
                    Ok(()) => break true,
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(e)) => return Err(EngineError::file("locking", &path, e)),
                }
            }
            match file.try_lock_shared() {
                Ok(()) => break false,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(EngineError::file("locking", &path, e)),
            }
            if SystemClock.now() >= deadline {
                return Err(EngineError::Hint(format!(
                    "{} is being fetched by another process; wait for it, or give this one its own --cache",
                    path.display()
                )));
            }
            if !told {
                let seconds = patience.as_secs_f64();
                let text =
                    format!("another process is fetching the hint; waiting for it, {seconds:.0} s at most");
                waiting(&text);
                told = true;
            }
            std::thread::sleep(POLL);
        };
        Ok(Self { path, file, exclusive })
    }

    fn error(&self, what: &'static str, e: std::io::Error) -> EngineError {
        EngineError::file(what, &self.path, e)
    }

    /// The client's name and seed from the header, if the file is about this model and plan (the header's first 72 bytes).
    fn identity(&mut self, head: &[u8]) -> Result<Option<Identity>, EngineError> {
        let mut header = Zeroizing::new(Vec::with_capacity(HEADER as usize));
        self.file.seek(SeekFrom::Start(0)).map_err(|e| self.error("reading", e))?;
        (&mut self.file).take(HEADER).read_to_end(&mut header).map_err(|e| self.error("reading", e))?;
        let own = header.len() as u64 == HEADER && header.starts_with(head);
        let part = |at: usize| header[at..at + 32].try_into().expect("32 bytes");
        Ok(own.then(|| Identity { nonce: part(head.len()), key_seed: Zeroizing::new(part(head.len() + 32)) }))
    }

    /// Empties the file, and writes a header.
    fn begin(&mut self, head: &[u8], identity: &Identity) -> Result<(), EngineError> {
        let Identity { nonce, key_seed } = identity;
        let header = Zeroizing::new([head, nonce, &key_seed[..]].concat());
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)
        };
        write(&mut self.file).map_err(|e| self.error("writing", e))
    }

    /// Reads the blocks until one is missing or damaged: how many there are, and how many bytes they take.
    fn whole_blocks(&mut self, blocks: &[Block]) -> Result<(usize, u64), EngineError> {
        self.file.seek(SeekFrom::Start(HEADER)).map_err(|e| self.error("reading", e))?;
        let mut reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut buffer = Vec::new();
        let (mut have, mut end) = (0, 0);
        for block in blocks {
            buffer.resize(block.bytes + 32, 0);
            if reader.read_exact(&mut buffer).is_err() || !intact(&buffer) {
                break;
            }
            have += 1;
            end += buffer.len() as u64;
        }
        Ok((have, end))
    }
}

impl HintStore for FileStore {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), EngineError> {
        let write = |file: &mut File| {
            file.seek(SeekFrom::Start(HEADER + at))?;
            file.write_all(bytes)
        };
        write(&mut self.file).map_err(|e| self.error("writing", e))
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        let mut read = |file: &mut File| {
            file.seek(SeekFrom::Start(HEADER + at))?;
            file.read_exact(bytes)
        };
        read(&mut self.file).map_err(|e| self.error("reading", e))
    }

    fn complete(&mut self) -> Result<(), EngineError> {
        if !self.exclusive {
            return Ok(());
        }
        self.file.unlock().map_err(|e| self.error("unlocking", e))?;
        self.file.lock_shared().map_err(|e| self.error("locking", e))
    }

    fn discard(&mut self) {
        // Emptied first: a process that has it open keeps a file's room taken.
        let _ = self.file.set_len(0);
        let _ = std::fs::remove_file(&self.path);
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Opens the file of a hint under `cache`: the file, how many blocks are there, who the client is: `new`, in a file that is
/// begun.
pub(super) fn open(
    cache: &Path,
    model: ModelId,
    plan: &Plan,
    new: &Identity,
    patience: Duration,
    progress: &mut dyn Progress,
) -> Result<(FileStore, usize, Identity), EngineError> {
    let folder = cache.join("hints");
    if !folder.is_dir() {
        std::fs::create_dir_all(&folder).map_err(|e| EngineError::file("creating", &folder, e))?;
    }
    // The hint for batches of images is another one: a client may need both.
    let name = match plan.images() {
        1 => format!("{}.hint", model.in_full()),
        images => format!("{}-{images}.hint", model.in_full()),
    };
    let path = folder.join(name);
    let mut store = FileStore::open(path, patience, &mut |text| progress.note(text))?;
    let head = [&MAGIC[..], &model.0, &plan.hint_digest()].concat();
    let identity = match store.identity(&head)? {
        Some(identity) => identity,
        None if store.exclusive => {
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
    if store.exclusive {
        store.file.set_len(HEADER + end).map_err(|e| store.error("writing", e))?;
    } else if have < blocks.len() {
        return Err(EngineError::Hint(format!(
            "{} is incomplete, and may not be written or is in use by another process",
            store.name()
        )));
    }
    Ok((store, have, identity))
}

/// What a person is told when the cache is done without.
pub(super) fn without_cache(folder: &Path, cause: &EngineError) -> String {
    format!(
        "the hint cannot be kept in the cache folder {} ({cause}): this run goes on with it in memory",
        folder.display()
    )
}
