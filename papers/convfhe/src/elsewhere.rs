//! Evaluations by other processes, on other machines perhaps, that share a folder with the server.
//!
//! The server puts a task into the folder, and waits for what comes of it. Who evaluates reads the model and the client's keys by the
//! paths that the task names, so all machines have them at the same paths. Whoever runs the processes (`jaguar.ray` does, as tasks of
//! Ray) begins one again that died: [`evaluate`] may run twice for one task, at the same time even.
//!
//! In the folder, which only its owner may enter, for each ticket (64 hexadecimal digits):
//!
//! | file | from | what it is |
//! |---|---|---|
//! | `TICKET.input` | server | the encrypted input |
//! | `TICKET.task` | server, after the input | a [`Task`] |
//! | `TICKET.progress` | who evaluates | how many layers are done, and of how many |
//! | `TICKET.answer` | who evaluates | the encrypted answer |
//! | `TICKET.failure` | who evaluates | why there is none |
//!
//! Each is written beside and renamed, so it is whole or not there. The server removes all of them when it has what came. A server that
//! is started anew finds the task, or what came of it, under the same ticket.
//!
//! **Who learns what.** Who evaluates has what the server has: the model, the keys, the encrypted input. The answer is checked for
//! its length, and no further: a server trusts whoever may write into the folder as it trusts itself.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use jaguar_graph::bundle::{FileError, ModelId, files};
use jaguar_ring::prg::os_random;
use serde::{Deserialize, Serialize};

use crate::evaluation::{Figures, InProcess};
use crate::keys::KeyError;
use crate::machine::{memory, too_small};
use crate::model::{Compiled, Loaded, ModelError};
use crate::session::{Evaluation, Evaluator, Failure, OfClient, Ticket, hex, private_folder, unhex};

/// How often the server looks what has come.
const LOOK: Duration = Duration::from_millis(100);

/// What nobody has touched for so long is of no server's any more: as long as an input waits at most, twice.
const OLD: Duration = Duration::from_secs(48 * 3600);

/// Bytes that a task, progress or a failure has at most.
const MAX_WORDS: u64 = 1 << 16;

/// Why what a task asks for was not evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElsewhereError {
    /// It is no task.
    #[error("{}: no task of an evaluation: {why}", path.display())]
    NoTask {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The model is not the one that the server has.
    #[error("{}: model {found}, and the task is for {wanted}", path.display())]
    OtherModel {
        /// The model's file.
        path: PathBuf,
        /// The public name of the model in it.
        found: ModelId,
        /// The public name that the task has.
        wanted: String,
    },
    /// The model cannot be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It cannot be evaluated so.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// This machine has too little memory now.
    #[error("{0}")]
    TooSmall(String),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// An evaluation that a server asks for.
#[derive(Serialize, Deserialize)]
struct Task {
    /// The model's file.
    model: PathBuf,
    /// Its public name, in hexadecimal digits.
    model_id: String,
    /// The file of the client's keys.
    keys: PathBuf,
    /// BLAKE3 of those, in hexadecimal digits.
    keys_hash: String,
    /// Bytes of memory that it takes, estimated: for who places it.
    memory: u64,
}

/// Why there is no answer.
#[derive(Serialize, Deserialize)]
struct Refused {
    told: String,
    detail: String,
    #[serde(default)]
    spoilt_keys: bool,
}

/// The files of one evaluation.
struct Files {
    folder: PathBuf,
    ticket: String,
}

impl Files {
    fn path(&self, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", self.ticket))
    }

    /// Writes a file that another process may write at the same time; one of them counts.
    fn put(&self, kind: &str, bytes: &[u8]) -> Result<(), FileError> {
        let (path, beside) = (self.path(kind), self.path(&format!("{}.beside", hex(&os_random::<8>()))));
        files::replace(&beside, bytes)?;
        std::fs::rename(&beside, &path).map_err(|e| FileError::new("writing", &path, e))
    }

    /// What a file holds, `most` bytes at most; none if it is not there.
    fn take(&self, kind: &str, most: u64) -> Result<Option<Vec<u8>>, FileError> {
        let path = self.path(kind);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(most).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(FileError::new("reading", &path, e)),
        }
    }

    /// Removes all of them. The task goes first: nobody begins it any more.
    fn remove(&self) -> Result<(), FileError> {
        for kind in ["task", "input", "progress", "failure", "answer"] {
            let path = self.path(kind);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(FileError::new("removing", &path, e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Puts evaluations into a folder, where others take them.
pub struct Elsewhere {
    folder: PathBuf,
    model: PathBuf,
    model_id: ModelId,
    figures: Figures,
    at_once: usize,
}

impl Elsewhere {
    /// In `folder`, which is made if it is not there, of the model in the file `model`; `at_once` of them at most. What an earlier
    /// server left there long ago is removed.
    ///
    /// # Errors
    /// When the folder cannot be made, read or tidied up, or the model's path has no beginning.
    pub fn new(
        folder: &Path,
        (model, model_id): (&Path, ModelId),
        figures: Figures,
        at_once: usize,
    ) -> Result<Self, FileError> {
        let failed = |e| FileError::new("opening the folder for evaluations", folder, e);
        private_folder(folder).map_err(failed)?;
        // Others have another folder to work in.
        let absolute = std::path::absolute(folder).map_err(failed)?;
        let model = std::path::absolute(model).map_err(|e| FileError::new("finding", model, e))?;
        for file in std::fs::read_dir(folder).map_err(failed)? {
            let file = file.map_err(failed)?;
            let name = file.file_name();
            let ours = name.to_str().and_then(|name| name.split_once('.')).and_then(|it| unhex::<32>(it.0));
            let touched = file.metadata().and_then(|about| about.modified());
            let age =
                touched.map_or(Duration::ZERO, |at| SystemTime::now().duration_since(at).unwrap_or_default());
            if ours.is_some() && age > OLD {
                std::fs::remove_file(file.path()).map_err(failed)?;
            }
        }
        Ok(Self { folder: absolute, model, model_id, figures, at_once })
    }
}

impl Evaluation for Elsewhere {
    fn open(&self, keys: OfClient<'_>, _stop: &AtomicBool) -> Result<Box<dyn Evaluator>, Failure> {
        let task = Task {
            model: self.model.clone(),
            model_id: self.model_id.in_full(),
            keys: std::path::absolute(keys.path).unwrap_or_else(|_| keys.path.to_owned()),
            keys_hash: hex(keys.hash),
            memory: self.figures.memory,
        };
        let task = serde_json::to_vec(&task).map_err(|e| broken(&e))?;
        Ok(Box::new(Asked { folder: self.folder.clone(), task, answer: self.figures.answer }))
    }

    fn answer_bytes(&self) -> usize {
        self.figures.answer
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn is_here(&self) -> bool {
        false
    }
}

/// A client's evaluations.
struct Asked {
    folder: PathBuf,
    task: Vec<u8>,
    answer: usize,
}

/// What the client is told of what concerns the operator alone.
fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure {
        told: "the server cannot hand the evaluation on; ask its operator".into(),
        detail: format!("evaluation: {error}"),
        spoilt_keys: false,
    }
}

impl Asked {
    /// Puts the task there, if an earlier server has not, and waits for what comes.
    fn wait(
        &self,
        files: &Files,
        input: &[u8],
        progress: &mut dyn FnMut(u32, u32),
        stop: &AtomicBool,
    ) -> Result<Result<Vec<u8>, Failure>, FileError> {
        let mut seen = (0, 0);
        if !files.path("task").exists() {
            files.remove()?;
            files.put("input", input)?;
            files.put("task", &self.task)?;
        }
        loop {
            // (One byte more than is right: the desk refuses it.)
            if let Some(answer) = files.take("answer", self.answer as u64 + 1)? {
                return Ok(Ok(answer));
            }
            if let Some(failure) = files.take("failure", MAX_WORDS)? {
                let failure = serde_json::from_slice(&failure)
                    .map(|Refused { told, detail, spoilt_keys }| Failure { told, detail, spoilt_keys });
                return Ok(Err(failure.unwrap_or_else(|e| broken(&e))));
            }
            if stop.load(Ordering::Relaxed) {
                let told = "stopped".to_owned();
                return Ok(Err(Failure { detail: format!("evaluation: {told}"), told, spoilt_keys: false }));
            }
            let words = files.take("progress", MAX_WORDS)?.unwrap_or_default();
            if let Ok(now) = serde_json::from_slice::<(u32, u32)>(&words)
                && now != seen
            {
                progress(now.0, now.1);
                seen = now;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Evaluator for Asked {
    fn answer(
        &mut self,
        (ticket, input): (Ticket, &[u8]),
        progress: &mut dyn FnMut(u32, u32),
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, Failure> {
        let files = Files { folder: self.folder.clone(), ticket: hex(&ticket.0) };
        let found = self.wait(&files, input, progress, stop).map_err(|e| broken(&e))?;
        // One that was stopped goes on without this server; the next one has what comes of it.
        if found.is_ok() || !stop.load(Ordering::Relaxed) {
            files.remove().map_err(|e| broken(&e))?;
        }
        found
    }
}

/// Evaluates what a task asks for, on so many threads, and leaves the answer beside it, or what the client is to be told. `give_back`
/// is called when what was loaded is dropped.
///
/// # Errors
/// When another machine, or this one later, may do better: nothing is left then.
pub fn evaluate(path: &Path, threads: usize, give_back: fn()) -> Result<(), ElsewhereError> {
    let no_task = |why: String| ElsewhereError::NoTask { path: path.to_owned(), why };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ticket = name.strip_suffix(".task").and_then(unhex::<32>);
    let ticket = ticket.ok_or_else(|| no_task("its name is not a ticket's with .task behind it".into()))?;
    let files = Files { folder: path.parent().unwrap_or(Path::new("")).to_owned(), ticket: hex(&ticket) };
    let words = files.take("task", MAX_WORDS)?.ok_or_else(|| no_task("there is none".into()))?;
    let task: Task = serde_json::from_slice(&words).map_err(|e| no_task(e.to_string()))?;
    let hash = unhex::<32>(&task.keys_hash).ok_or_else(|| no_task("the keys' hash is none".into()))?;
    let Loaded { id, set, plan, .. } = Compiled::load(&task.model)?;
    if id.in_full() != task.model_id {
        return Err(ElsewhereError::OtherModel { path: task.model, found: id, wanted: task.model_id });
    }
    let evaluation = InProcess::new(set, plan, threads, give_back)?;
    let figures = evaluation.figures();
    if let Some(told) = too_small("an evaluation", figures.memory, memory()) {
        return Err(ElsewhereError::TooSmall(told));
    }
    // What is not to be seen from here may be seen from elsewhere.
    File::open(&task.keys).map_err(|e| FileError::new("opening", &task.keys, e))?;
    let input = files.take("input", figures.input as u64 + 1)?;
    let input = input.ok_or_else(|| no_task("there is no input beside it".into()))?;
    let go_on = AtomicBool::new(false);
    let mut progress = |done: u32, of: u32| {
        // Nothing depends on it.
        let _ = files.put("progress", format!("[{done},{of}]").as_bytes());
    };
    let keys = OfClient { path: &task.keys, hash: &hash };
    let found = evaluation
        .open(keys, &go_on)
        .and_then(|mut evaluator| evaluator.answer((Ticket(ticket), &input), &mut progress, &go_on));
    // (The server may have what it wants from another process that had the same task: then nobody waits for this one's.)
    if !files.path("task").exists() {
        return Ok(());
    }
    match found {
        Ok(answer) => files.put("answer", &answer)?,
        Err(Failure { told, detail, spoilt_keys }) => {
            let words = serde_json::to_vec(&Refused { told, detail, spoilt_keys });
            files.put("failure", &words.map_err(|e| no_task(e.to_string()))?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
