//! A hint in the cache folder.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jaguar_graph::bundle::files::private;
use jaguar_plan::Plan;
use jaguar_wire::{Clock, SystemClock};

use super::Identity;
use super::kept::{HintFile, Kept};
use crate::error::EngineError;
use crate::progress::Progress;
use jaguar_graph::bundle::ModelId;

/// How often a lock is tried.
const POLL: Duration = Duration::from_millis(50);

/// Locked: one process fetches at a time, any number may read what is complete.
struct LockedFile {
    path: PathBuf,
    file: File,
    /// Whether it may be written.
    exclusive: bool,
}

impl LockedFile {
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
}

impl HintFile for LockedFile {
    fn writable(&self) -> bool {
        self.exclusive
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.file.write_all(bytes)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn complete(&mut self) -> io::Result<()> {
        if !self.exclusive {
            return Ok(());
        }
        self.file.unlock()?;
        self.file.lock_shared()
    }

    fn remove(&mut self) {
        // Emptied first: a process that has it open keeps a file's room taken.
        let _ = self.file.set_len(0);
        let _ = std::fs::remove_file(&self.path);
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Opens the file of a hint under `cache`, as [`Kept::open`] says.
pub(super) fn open(
    cache: &Path,
    model: ModelId,
    plan: &Plan,
    new: &Identity,
    patience: Duration,
    progress: &mut dyn Progress,
) -> Result<(Kept, usize, Identity), EngineError> {
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
    let file = LockedFile::open(path, patience, &mut |text| progress.note(text))?;
    Kept::open(Box::new(file), model, plan, new)
}
