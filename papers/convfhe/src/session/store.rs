//! Clients' evaluation keys on a server's disk: one set for each owner, within a quota, those that were used longest ago go first.
//!
//! In the folder, which only its owner may enter:
//!
//! | file | what it is |
//! |---|---|
//! | `OWNER-HASH-SHARE.keys` | keys that are complete and match their hash |
//! | `OWNER-HASH-SHARE.part` | their beginning, while they come or after a cut |
//! | `queue` | inputs and answers ([`super::records`]) |
//! | `lock` | held by the server that uses the folder |
//!
//! OWNER and HASH are 64 hexadecimal digits, SHARE 16. A file's time of change is when its keys were used last.
//!
//! **Who gives way.** Where the quota leaves no room, the keys go that were used longest ago of those whose [`Share`] is the largest, the
//! new ones counted. So a share never takes from one that is smaller than itself: whoever draws names and sends keys under each pushes
//! out its own, and at most one set of keys of others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use jaguar_graph::bundle::{FileError, files};

use super::{Owner, Share};

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
        /// Bytes of the keys that were to be kept.
        need: u64,
        /// Bytes that all clients' keys may take.
        quota: u64,
    },
    /// All that is kept is in use.
    #[error(
        "the server's storage for keys ({quota} bytes, --key-storage) is taken up by clients that use it now; come back in 60 seconds \
         or more"
    )]
    AllInUse {
        /// Bytes that all clients' keys may take.
        quota: u64,
    },
    /// What is not in use belongs to shares that are smaller than this client's.
    #[error(
        "the server's storage for keys ({quota} bytes, --key-storage) is full, and clients without a token at this address have their share \
         of it, which is in use; come back in 60 seconds or more"
    )]
    ShareInUse {
        /// Bytes that all clients' keys may take.
        quota: u64,
    },
    /// This client's former keys, or these, are in use.
    #[error("this client's keys are in use by another session or evaluation; come back when it is through")]
    Busy,
    /// Another server works in the folder.
    #[error("{} is used by another server", .0.display())]
    Locked(PathBuf),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl StoreError {
    /// Whether there may be room later, without anybody's doing.
    pub(super) fn is_for_now(&self) -> bool {
        match self {
            Self::AllInUse { .. } | Self::ShareInUse { .. } | Self::Busy => true,
            Self::Misbehaved(_) | Self::Quota { .. } | Self::Locked(_) | Self::File(_) => false,
        }
    }

    /// What the client is told: no path.
    pub(super) fn for_client(&self) -> String {
        match self {
            Self::File(e) => disk_failed(e, "the keys were"),
            Self::Locked(_) => "the server's folder for keys is in use".into(),
            other => other.to_string(),
        }
    }
}

/// What a client is told when the disk takes nothing. `what` was not kept.
pub(super) fn disk_failed(e: &FileError, what: &str) -> String {
    let how = match e.source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => "is full",
        _ => "failed",
    };
    format!("the server's disk {how}: {what} not kept; ask its operator")
}

/// A folder with clients' keys.
pub struct KeyStore(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    quota: u64,
    entries: Mutex<HashMap<Owner, Entry>>,
    /// Held as long as the folder is used.
    _lock: files::Lock,
}

struct Entry {
    hash: [u8; 32],
    share: Share,
    /// What the complete keys have, counted from the first byte on.
    bytes: u64,
    complete: bool,
    used: SystemTime,
    /// How many sessions and evaluations use them.
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

/// 2 digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What [`hex`] wrote, if it is just that long.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
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
        let lock = files::Lock::take(&folder.join("lock")).map_err(|e| match e.kind() {
            io::ErrorKind::ResourceBusy => StoreError::Locked(folder.to_owned()),
            _ => failed(e).into(),
        })?;
        let mut entries = HashMap::<Owner, Entry>::new();
        for file in std::fs::read_dir(folder).map_err(failed)? {
            let file = file.map_err(failed)?;
            let name = file.file_name();
            let Some((owner, hash, share, complete)) = name.to_str().and_then(parse) else { continue };
            let about = file.metadata().map_err(failed)?;
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let fits = about.is_file() && (if complete { about.len() == bytes } else { about.len() < bytes });
            let newer = entries.get(&owner).is_none_or(|other| other.used < used);
            if !fits || !newer {
                std::fs::remove_file(file.path()).map_err(failed)?;
                continue;
            }
            let entry = Entry { hash, share, bytes, complete, used, users: 0 };
            if let Some(older) = entries.insert(owner, entry) {
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
    pub(super) fn receive(
        &self,
        (owner, share): (Owner, Share),
        hash: [u8; 32],
        bytes: u64,
    ) -> Result<Receiving, StoreError> {
        let shared = &self.0;
        if bytes > shared.quota {
            return Err(StoreError::Quota { need: bytes, quota: shared.quota });
        }
        let failed = |e| FileError::new("keeping keys in", &shared.folder, e);
        let share = {
            let mut entries = shared.entries();
            if entries.get(&owner).is_some_and(|entry| entry.users > 0) {
                return Err(StoreError::Busy);
            }
            // Complete ones are not asked for again.
            if entries.get(&owner).is_some_and(|entry| entry.hash != hash || entry.complete) {
                shared.remove(&mut entries, owner).map_err(failed)?;
            }
            // A part stays where it came from.
            let share = entries.remove(&owner).map_or(share, |part| part.share);
            let used = SystemTime::now();
            entries.insert(owner, Entry { hash, share, bytes, complete: false, used, users: 1 });
            if let Err(e) = shared.make_room(&mut entries, share) {
                // (Nothing of them was there: a part has its room.)
                let _ = shared.remove(&mut entries, owner);
                return Err(e);
            }
            share
        };
        // From here on dropping it gives the place back.
        let part = file(&shared.folder, (owner, share), &hash, false);
        let mut receiving = Receiving {
            shared: shared.clone(),
            owner,
            share,
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

    /// Where inputs and answers are kept.
    pub(super) fn queue(&self) -> PathBuf {
        self.0.folder.join("queue")
    }

    /// Bytes that keys take, announced ones included, and of how many owners.
    pub fn stock(&self) -> (usize, u64) {
        let entries = self.0.entries();
        (entries.len(), entries.values().map(|entry| entry.bytes).sum())
    }
}

/// Owner, hash, share and whether it is complete, by a file's name.
fn parse(name: &str) -> Option<(Owner, [u8; 32], Share, bool)> {
    let (stem, kind) = name.split_once('.')?;
    let (owner, rest) = stem.split_once('-')?;
    let (hash, share) = rest.split_once('-')?;
    let complete = match kind {
        "keys" => true,
        "part" => false,
        _ => return None,
    };
    Some((Owner(unhex(owner)?), unhex(hash)?, Share(unhex(share)?), complete))
}

fn path(folder: &Path, owner: Owner, entry: &Entry) -> PathBuf {
    file(folder, (owner, entry.share), &entry.hash, entry.complete)
}

fn file(folder: &Path, (owner, share): (Owner, Share), hash: &[u8; 32], complete: bool) -> PathBuf {
    let kind = if complete { "keys" } else { "part" };
    folder.join(format!("{}-{}-{}.{kind}", hex(&owner.0), hex(hash), hex(&share.0)))
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

    /// Removes keys until all are within the quota, new ones of `share` included, which are in use.
    fn make_room(&self, entries: &mut HashMap<Owner, Entry>, share: Share) -> Result<(), StoreError> {
        let quota = self.quota;
        loop {
            let mut shares = HashMap::<Share, u64>::new();
            for entry in entries.values() {
                *shares.entry(entry.share).or_default() += entry.bytes;
            }
            if shares.values().sum::<u64>() <= quota {
                return Ok(());
            }
            let mut idle = entries.iter().filter(|(_, entry)| entry.users == 0).peekable();
            if idle.peek().is_none() {
                return Err(StoreError::AllInUse { quota });
            }
            let not_smaller = idle.filter(|(_, entry)| shares[&entry.share] >= shares[&share]);
            let first = not_smaller.max_by_key(|(_, entry)| (shares[&entry.share], Reverse(entry.used)));
            let Some(owner) = first.map(|(owner, _)| *owner) else {
                return Err(StoreError::ShareInUse { quota });
            };
            let failed = |e| FileError::new("keeping keys in", &self.folder, e);
            self.remove(entries, owner).map_err(failed)?;
        }
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
    /// The file of the keys.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The client that the keys belong to.
    pub(super) fn owner(&self) -> Owner {
        self.0.owner
    }

    /// The BLAKE3 hash of the keys.
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
    share: Share,
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

    /// Drops what came, for the first byte to come again.
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
        let path = file(&self.shared.folder, (self.owner, self.share), &self.hash, true);
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
