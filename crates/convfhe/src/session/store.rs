//! Clients' evaluation keys on a server's disk: one set for each owner, within a quota, those that were used longest ago go first.
//!
//! In the folder, which only its owner may enter:
//!
//! | file | what it is |
//! |---|---|
//! | `OWNER-HASH.keys` | keys that are complete and match their hash |
//! | `OWNER-HASH.part` | their beginning, while they come or after a cut |
//! | `lock` | held by the server that uses the folder |
//!
//! OWNER and HASH are 64 hexadecimal digits. A file's time of change is when its keys were used last.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use jaguar_bundle::{FileError, files};

use super::Owner;

/// Why keys are not kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The client sent what cannot be right.
    #[error("{0}")]
    Misbehaved(String),
    /// They are more than the server keeps of all clients.
    #[error(
        "the keys have {need} bytes, and the server keeps {quota} of all clients together (--key-storage)"
    )]
    Quota {
        /// Their bytes.
        need: u64,
        /// The quota.
        quota: u64,
    },
    /// All that is kept is in use.
    #[error(
        "the server's storage for keys ({quota} bytes, --key-storage) is taken up by clients that use it now; come back later"
    )]
    AllInUse {
        /// The quota.
        quota: u64,
    },
    /// This client's former keys, or these, are in use.
    #[error("this client's keys are in use by another session or evaluation; come back when it is through")]
    Busy,
    /// Another server works in the folder.
    #[error("{} is used by another server", .0.display())]
    Locked(PathBuf),
    /// The disk.
    #[error(transparent)]
    File(#[from] FileError),
}

impl StoreError {
    /// What the client is told: no path.
    pub(super) fn for_client(&self) -> String {
        match self {
            Self::File(e) => match e.source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    "the server's disk is full: the keys were not kept; ask its operator".into()
                }
                _ => "the server's disk failed: the keys were not kept; ask its operator".into(),
            },
            Self::Locked(_) => "the server's folder for keys is in use".into(),
            other => other.to_string(),
        }
    }
}

/// A folder with clients' keys.
pub struct KeyStore(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    quota: u64,
    entries: Mutex<HashMap<Owner, Entry>>,
    /// Held as long as the folder is used.
    _lock: File,
}

struct Entry {
    hash: [u8; 32],
    /// What the complete keys have, counted from the first byte on.
    bytes: u64,
    complete: bool,
    used: SystemTime,
    /// Sessions and evaluations.
    users: usize,
}

/// Keys that are complete, and stay as long as this does.
#[derive(Clone)]
pub struct InUse(Arc<Use>);

struct Use {
    shared: Arc<Shared>,
    owner: Owner,
    path: PathBuf,
    hash: [u8; 32],
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

impl KeyStore {
    /// Opens a folder, which is made if it is not there. What it holds counts; `bytes` is how long complete keys are, and what else
    /// is there under a key's name is removed.
    ///
    /// # Errors
    /// When the folder cannot be made or read, or another server uses it.
    pub fn open(folder: &Path, bytes: u64, quota: u64) -> Result<Self, StoreError> {
        let failed = |e| FileError::new("opening the folder for keys", folder, e);
        private_folder(folder).map_err(failed)?;
        let lock = files::private().truncate(false).open(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked(folder.to_owned())),
            Err(TryLockError::Error(e)) => return Err(failed(e).into()),
        }
        let mut entries = HashMap::<Owner, Entry>::new();
        for file in std::fs::read_dir(folder).map_err(failed)? {
            let file = file.map_err(failed)?;
            let name = file.file_name();
            let Some((owner, hash, complete)) = name.to_str().and_then(parse) else { continue };
            let about = file.metadata().map_err(failed)?;
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let fits = about.is_file() && (if complete { about.len() == bytes } else { about.len() < bytes });
            let newer = entries.get(&owner).is_none_or(|other| other.used < used);
            if !fits || !newer {
                std::fs::remove_file(file.path()).map_err(failed)?;
                continue;
            }
            if let Some(older) = entries.insert(owner, Entry { hash, bytes, complete, used, users: 0 }) {
                std::fs::remove_file(path(folder, owner, &older)).map_err(failed)?;
            }
        }
        Ok(Self(Arc::new(Shared {
            folder: folder.to_owned(),
            quota,
            entries: Mutex::new(entries),
            _lock: lock,
        })))
    }

    /// The keys of an owner with this hash, if all are there.
    pub(super) fn find(&self, owner: Owner, hash: [u8; 32]) -> Option<InUse> {
        let mut entries = self.0.entries();
        let entry = entries.get_mut(&owner).filter(|entry| entry.complete && entry.hash == hash)?;
        let path = path(&self.0.folder, owner, entry);
        // Somebody may have tidied up.
        if !std::fs::metadata(&path).is_ok_and(|about| about.len() == entry.bytes) {
            entries.remove(&owner);
            return None;
        }
        entry.used = SystemTime::now();
        entry.users += 1;
        // The order matters after a restart only.
        let _ = File::options().append(true).open(&path).and_then(|file| file.set_modified(entry.used));
        Some(InUse(Arc::new(Use { shared: self.0.clone(), owner, path, hash })))
    }

    /// Makes room for keys of an owner, and goes on with what is there of them.
    pub(super) fn receive(&self, owner: Owner, hash: [u8; 32], bytes: u64) -> Result<Receiving, StoreError> {
        let shared = &self.0;
        if bytes > shared.quota {
            return Err(StoreError::Quota { need: bytes, quota: shared.quota });
        }
        let failed = |e| FileError::new("keeping keys in", &shared.folder, e);
        {
            let mut entries = shared.entries();
            if entries.get(&owner).is_some_and(|entry| entry.users > 0) {
                return Err(StoreError::Busy);
            }
            // Complete ones are not asked for again.
            if entries.get(&owner).is_some_and(|entry| entry.hash != hash || entry.complete) {
                shared.remove(&mut entries, owner).map_err(failed)?;
            }
            while entries.iter().map(|(other, e)| if *other == owner { 0 } else { e.bytes }).sum::<u64>()
                + bytes
                > shared.quota
            {
                let idle = entries.iter().filter(|(other, entry)| **other != owner && entry.users == 0);
                let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(other, _)| *other) else {
                    return Err(StoreError::AllInUse { quota: shared.quota });
                };
                shared.remove(&mut entries, oldest).map_err(failed)?;
            }
            let used = SystemTime::now();
            entries.insert(owner, Entry { hash, bytes, complete: false, used, users: 1 });
        }
        // From here on dropping it gives the place back.
        let part = part_of(&shared.folder, owner, &hash);
        let mut receiving = Receiving {
            shared: shared.clone(),
            owner,
            hash,
            bytes,
            part: part.clone(),
            file: None,
            hasher: blake3::Hasher::new(),
            have: 0,
            spoilt: false,
        };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let opened = options.open(&part).and_then(|mut file| {
            let mut buffer = vec![0; 1 << 20];
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    n => {
                        receiving.hasher.update(&buffer[..n]);
                        receiving.have += n as u64;
                    }
                }
            }
            receiving.file = Some(file);
            Ok(())
        });
        opened.map_err(|e| receiving.failed(e))?;
        if receiving.have >= bytes {
            receiving.restart()?;
        }
        Ok(receiving)
    }

    /// Bytes that keys take, announced ones included, and of how many owners.
    pub fn stock(&self) -> (usize, u64) {
        let entries = self.0.entries();
        (entries.len(), entries.values().map(|entry| entry.bytes).sum())
    }
}

/// Owner, hash and whether it is complete, by a file's name.
fn parse(name: &str) -> Option<(Owner, [u8; 32], bool)> {
    let (stem, kind) = name.split_once('.')?;
    let (owner, hash) = stem.split_once('-')?;
    let complete = match kind {
        "keys" => true,
        "part" => false,
        _ => return None,
    };
    Some((Owner(unhex(owner)?), unhex(hash)?, complete))
}

fn path(folder: &Path, owner: Owner, entry: &Entry) -> PathBuf {
    if entry.complete { keys_of(folder, owner, &entry.hash) } else { part_of(folder, owner, &entry.hash) }
}

fn keys_of(folder: &Path, owner: Owner, hash: &[u8; 32]) -> PathBuf {
    folder.join(format!("{}-{}.keys", hex(&owner.0), hex(hash)))
}

fn part_of(folder: &Path, owner: Owner, hash: &[u8; 32]) -> PathBuf {
    folder.join(format!("{}-{}.part", hex(&owner.0), hex(hash)))
}

/// A folder that only its owner may enter.
pub(crate) fn private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

impl Shared {
    fn entries(&self) -> MutexGuard<'_, HashMap<Owner, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets an owner's keys, and frees their place on the disk.
    fn remove(&self, entries: &mut HashMap<Owner, Entry>, owner: Owner) -> io::Result<()> {
        let Some(entry) = entries.get(&owner) else { return Ok(()) };
        match std::fs::remove_file(path(&self.folder, owner, entry)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        entries.remove(&owner);
        Ok(())
    }
}

impl InUse {
    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whose they are.
    pub(super) fn owner(&self) -> Owner {
        self.0.owner
    }

    /// BLAKE3 of them.
    pub(super) fn hash(&self) -> [u8; 32] {
        self.0.hash
    }

    /// They turned out to be no keys: the client must send others.
    pub(super) fn spoilt(&self) {
        let Use { shared, owner, path, .. } = &*self.0;
        let mut entries = shared.entries();
        if let Some(entry) = entries.get_mut(owner).filter(|entry| entry.complete) {
            entry.complete = false;
            // Their place is counted until the owner's next keys, or others', take it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut entries = self.shared.entries();
        if let Some(entry) = entries.get_mut(&self.owner).filter(|entry| entry.hash == self.hash) {
            entry.users = entry.users.saturating_sub(1);
        }
    }
}

/// Keys that are coming. Dropped, what is there of them stays, for the next session to go on with.
pub(super) struct Receiving {
    shared: Arc<Shared>,
    owner: Owner,
    hash: [u8; 32],
    bytes: u64,
    part: PathBuf,
    file: Option<File>,
    hasher: blake3::Hasher,
    have: u64,
    /// Nothing of it is to stay.
    spoilt: bool,
}

impl Receiving {
    /// How many bytes are there.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// The hash of those.
    pub fn running(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }

    fn failed(&mut self, e: io::Error) -> StoreError {
        // A part that nobody can complete would keep a full disk full.
        self.spoilt = true;
        FileError::new("writing keys to", &self.part, e).into()
    }

    /// Begins anew.
    pub fn restart(&mut self) -> Result<(), StoreError> {
        (self.have, self.hasher) = (0, blake3::Hasher::new());
        let cut = self.file.as_ref().map_or(Ok(()), |file| file.set_len(0));
        cut.map_err(|e| self.failed(e))
    }

    /// Appends a chunk, behind which everything has the hash `running`.
    pub fn append(&mut self, chunk: &[u8], running: [u8; 32]) -> Result<(), StoreError> {
        self.hasher.update(chunk);
        if self.running() != running {
            // What was written before is as the client has it.
            let text = format!("the keys arrived damaged behind {} bytes", self.have);
            return Err(StoreError::Misbehaved(text));
        }
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(chunk));
        written.map_err(|e| self.failed(e))?;
        self.have += chunk.len() as u64;
        Ok(())
    }

    /// All has come: it is compared with its hash, and kept.
    pub fn finish(mut self) -> Result<InUse, StoreError> {
        if self.have != self.bytes || self.running() != self.hash {
            self.spoilt = true;
            return Err(StoreError::Misbehaved("keys that do not match their hash".into()));
        }
        let path = keys_of(&self.shared.folder, self.owner, &self.hash);
        let synced = self.file.take().map_or(Ok(()), |file| file.sync_all());
        synced.and_then(|()| std::fs::rename(&self.part, &path)).map_err(|e| self.failed(e))?;
        let (shared, owner, hash) = (self.shared.clone(), self.owner, self.hash);
        if let Some(entry) = shared.entries().get_mut(&owner) {
            entry.complete = true;
            // The one that this gives back when it is dropped is the session's.
            entry.users += 1;
        }
        Ok(InUse(Arc::new(Use { shared, owner, path, hash })))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let mut entries = self.shared.entries();
        if self.spoilt || self.have == 0 {
            let _ = std::fs::remove_file(&self.part);
        }
        let Some(entry) = entries.get_mut(&self.owner) else { return };
        entry.users = entry.users.saturating_sub(1);
        if !entry.complete && (self.spoilt || self.have == 0) {
            entries.remove(&self.owner);
        }
    }
}
