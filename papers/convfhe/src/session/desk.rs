//! Inputs that wait, those that are computed, and answers that wait for their clients.
//!
//! An evaluation takes gigabytes, so in this process there is one thread for all of them; where others evaluate, there is one for
//! each that runs at the same time ([`Evaluation::at_once`]). What is loaded for one client stays until another's turn comes, or until
//! the client has left.
//!
//! Inputs are on the disk before their clients have a ticket, and answers before anybody gets them ([`super::records`]). So a server that
//! is started anew begins evaluations again that were cut, under fresh noise, and no input has two answers that left the server: an
//! answer that the disk does not take is given all the same, but its input is removed before.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use jaguar_engine::EngineError;
use jaguar_engine::server::QueriesSpent;
use jaguar_graph::bundle::{FileError, ModelId};

use super::limits::DeskLimits;
use super::message::MAX_REASON;
use super::records::{Kept, Record, Records};
use super::store::{InUse, KeyStore, disk_failed};
use super::{Owner, Ticket};

/// A client's keys on the disk.
#[derive(Clone, Copy, Debug)]
pub struct OfClient<'a> {
    /// The file.
    pub path: &'a Path,
    /// BLAKE3 of all its bytes when they came.
    pub hash: &'a [u8; 32],
}

/// Begins to evaluate with a client's keys.
pub trait Evaluation: Send + Sync {
    /// Reads the keys. It takes long, and much memory. Soon after `stop` is set it fails.
    ///
    /// # Errors
    /// When there is not enough memory, or the file holds no keys, or others than came.
    fn open(&self, keys: OfClient<'_>, stop: &AtomicBool) -> Result<Box<dyn Evaluator>, Failure>;

    /// Bytes of an answer.
    fn answer_bytes(&self) -> usize;

    /// How many evaluations run at the same time.
    fn at_once(&self) -> usize {
        1
    }

    /// Whether they run in this process: one may be what ends it then, and is not begun ever again.
    fn is_here(&self) -> bool {
        true
    }

    /// What was loaded is dropped.
    fn dropped(&self) {}
}

/// Evaluates with one client's keys.
pub trait Evaluator: Send {
    /// Computes the encrypted answer to an encrypted input, which its ticket names, to the next server as well. `progress` takes how many layers of how many are done. Soon after `stop`
    /// is set it fails.
    ///
    /// # Errors
    /// When the input is malformed, or the evaluation ends for another reason. It is of no use then.
    fn answer(
        &mut self,
        asked: (Ticket, &[u8]),
        progress: &mut dyn FnMut(u32, u32),
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, Failure>;
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct Failure {
    /// For the client: no path, and nothing else of the server's.
    pub told: String,
    /// For the server's log.
    pub detail: String,
    /// The keys are none: they are not kept.
    pub spoilt_keys: bool,
}

/// How far an answer is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    /// So many are before it.
    Queued(usize),
    /// So many layers of so many are done.
    Running(u32, u32),
    /// The answer, and how long it took.
    Done(Arc<[u8]>, Duration),
    /// Why there is no answer, as the client is told.
    Failed(String),
    /// The server ends; the next one goes on.
    Ended(String),
    /// There is nothing under this ticket for this owner.
    Unknown,
}

pub(super) struct Desk {
    inner: Arc<Inner>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

struct Inner {
    evaluation: Box<dyn Evaluation>,
    limits: DeskLimits,
    log: Box<dyn Fn(&str) + Send + Sync>,
    records: Records,
    state: Mutex<State>,
    changed: Condvar,
    /// Nothing is computed any more: what is under way ends.
    stop: AtomicBool,
}

#[derive(Default)]
struct State {
    /// What was asked for, the oldest first.
    entries: VecDeque<Entry>,
    /// The order of the next one.
    next: u64,
    /// Sessions by the keys that they have.
    visits: HashMap<(Owner, [u8; 32]), usize>,
    /// Why nothing is computed any more.
    ended: Option<String>,
    /// How long the last evaluation took.
    took: Option<Duration>,
}

struct Entry {
    record: Record,
    stage: Stage,
}

enum Stage {
    /// It is being written to the disk.
    Coming,
    Waiting(Task),
    Running {
        done: u32,
        of: u32,
    },
    Done {
        answer: Arc<[u8]>,
        took: Duration,
    },
    Failed(String),
}

/// An input with the keys that it is evaluated under.
#[derive(Clone)]
struct Task {
    keys: InUse,
    input: Arc<[u8]>,
}

impl Stage {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Coming | Self::Waiting(_) | Self::Running { .. })
    }
}

impl Entry {
    fn is(&self, ticket: Ticket, owner: Owner) -> bool {
        self.record.ticket == ticket && self.record.owner == owner
    }
}

/// A session that has given keys.
pub(super) struct Visit<'a> {
    desk: &'a Desk,
    keys: (Owner, [u8; 32]),
}

const ENDED: &str = "the server is shutting down; ask again later";

/// For those who wait.
const ENDED_MEANWHILE: &str =
    "the server is shutting down; what waits is on its disk, and the next one goes on with it";

/// When a client that found all places taken may try again, where no evaluation tells how long one takes.
const SOON: Duration = Duration::from_secs(60);

/// How often what is too old is looked for.
const TIDY: Duration = Duration::from_secs(60);

impl Desk {
    /// Goes on with what the folder of `store` has of `model`. `sizes` are bytes of an input and of an answer.
    pub fn new(
        evaluation: Box<dyn Evaluation>,
        (store, model, sizes): (&KeyStore, ModelId, [usize; 2]),
        limits: DeskLimits,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Self, FileError> {
        let folder = store.queue();
        let (records, found) = Records::open(&folder, model, sizes, &limits)?;
        if found.damaged > 0 {
            log(&format!("removed {} damaged files from {}", found.damaged, folder.display()));
        }
        let mut state = State::default();
        for (mut record, ciphertext) in found.records {
            state.next = record.order.saturating_add(1);
            let stage = match &record.kept {
                Kept::Input => match restart(&record, store, &limits) {
                    Ok(keys) => Stage::Waiting(Task { keys, input: ciphertext.into() }),
                    Err(reason) => {
                        record.since = SystemTime::now();
                        record.kept = Kept::Failure { reason: reason.clone() };
                        records.write(&record, &[])?;
                        Stage::Failed(reason)
                    }
                },
                Kept::Answer { took } => Stage::Done { answer: ciphertext.into(), took: *took },
                Kept::Failure { reason } => Stage::Failed(reason.clone()),
            };
            state.entries.push_back(Entry { record, stage });
        }
        let (state, changed, stop) = (Mutex::new(state), Condvar::new(), AtomicBool::new(false));
        let inner = Arc::new(Inner { evaluation, limits, log, records, state, changed, stop });
        // (Dropped, it ends those that have begun.)
        let desk = Self { inner, workers: Mutex::default() };
        for _ in 0..desk.inner.evaluation.at_once().max(1) {
            let worker = Arc::clone(&desk.inner);
            let worker = thread::Builder::new().name("evaluations".into()).spawn(move || worker.work());
            let worker =
                worker.map_err(|e| FileError::new("starting a thread for evaluations, with", &folder, e))?;
            desk.workers().push(worker);
        }
        Ok(desk)
    }

    /// How many inputs wait, and how many answers wait for their clients.
    pub fn stock(&self) -> [usize; 2] {
        let state = self.inner.state();
        let pending = state.entries.iter().filter(|entry| entry.stage.is_pending()).count();
        [pending, state.entries.len() - pending]
    }

    /// A session has these keys. As long as it lasts, they stay loaded, if nobody else's turn comes. (Keys that their owner had before
    /// do not: it could not replace them.)
    pub fn visit(&self, keys: &InUse) -> Visit<'_> {
        let keys = (keys.owner(), keys.hash());
        *self.inner.state().visits.entry(keys).or_default() += 1;
        Visit { desk: self, keys }
    }

    /// Queues an input, which `count` counts once there is a place for it. Returns how many are before it.
    ///
    /// # Errors
    /// When it is not taken, for now or at all: what the client is to be told.
    pub fn ask(
        &self,
        ticket: Ticket,
        owner: Owner,
        (keys, input): (InUse, Vec<u8>),
        count: &dyn Fn() -> Result<(), QueriesSpent>,
    ) -> Result<usize, EngineError> {
        let inner = &self.inner;
        let (record, ahead) = {
            let mut state = inner.state();
            if state.ended.is_some() {
                return Err(EngineError::Refused(ENDED.into()));
            }
            inner.tidy(&mut state);
            let pending = state.entries.iter().filter(|entry| entry.stage.is_pending());
            let (all, own) =
                pending.fold((0, 0), |(all, own), e| (all + 1, own + usize::from(e.record.owner == owner)));
            let DeskLimits { waiting, waiting_of_one, .. } = inner.limits;
            // A place becomes free with the next answer.
            let again = state.took.unwrap_or(SOON).as_secs().max(1);
            if own >= waiting_of_one {
                return Err(EngineError::Later(format!(
                    "{own} inputs of this client wait already, and no more may; come back in {again} seconds or more"
                )));
            }
            if all >= waiting {
                return Err(EngineError::Later(format!(
                    "{all} inputs wait already, and no more may; come back in {again} seconds or more"
                )));
            }
            let order = state.next;
            state.next = order.saturating_add(1);
            let (hash, since, kept) = (keys.hash(), SystemTime::now(), Kept::Input);
            let record = Record { ticket, owner, keys: hash, order, begun: 0, since, kept };
            // Its place is taken; the disk is not waited for under the lock.
            state.entries.push_back(Entry { record: record.clone(), stage: Stage::Coming });
            (record, all)
        };
        let written = count().map_err(EngineError::from).and_then(|()| {
            inner.records.write(&record, &input).map_err(|e| {
                (inner.log)(&e.to_string());
                EngineError::Refused(disk_failed(&e, "the input was"))
            })
        });
        let mut state = inner.state();
        match &written {
            Ok(()) => state.set(ticket, Stage::Waiting(Task { keys, input: input.into() })),
            Err(_) => state.entries.retain(|entry| entry.record.ticket != ticket),
        }
        drop(state);
        inner.changed.notify_all();
        written.map(|()| ahead)
    }

    /// Waits, for `time` at most, until an answer is further than `last`.
    pub fn wait(&self, ticket: Ticket, owner: Owner, last: Option<&Seen>, time: Duration) -> Seen {
        let deadline = Instant::now() + time;
        let mut state = self.inner.state();
        loop {
            self.inner.tidy(&mut state);
            let seen = state.see(ticket, owner);
            let left = deadline.saturating_duration_since(Instant::now());
            if last != Some(&seen) || left.is_zero() {
                return seen;
            }
            let woken = self.inner.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Drops an answer that is there. One that is being computed goes on.
    pub fn forget(&self, ticket: Ticket, owner: Owner) {
        let mut state = self.inner.state();
        let before = state.entries.len();
        state.entries.retain(|entry| !entry.is(ticket, owner) || entry.stage.is_pending());
        if state.entries.len() < before {
            self.inner.remove(ticket);
        }
    }

    /// Ends the evaluation that runs, and begins no other.
    pub fn end(&self) {
        self.inner.give_up(ENDED_MEANWHILE);
        let workers = std::mem::take(&mut *self.workers());
        for worker in workers {
            // It ends as soon as the evaluation has.
            let _ = worker.join();
        }
    }

    fn workers(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.inner.state();
        if let Some(visits) = state.visits.get_mut(&self.keys) {
            *visits -= 1;
            if *visits == 0 {
                state.visits.remove(&self.keys);
            }
        }
        self.desk.inner.changed.notify_all();
    }
}

/// What an input of an earlier server goes on with, or why it does not.
fn restart(record: &Record, store: &KeyStore, limits: &DeskLimits) -> Result<InUse, String> {
    if record.begun >= limits.begin {
        return Err(format!(
            "the server ended {} times in the middle of its evaluation, which is not begun again",
            record.begun
        ));
    }
    store.find(record.owner, record.keys).ok_or_else(|| {
        "the server has these keys no longer, since it was started anew; send them and the input again".into()
    })
}

impl State {
    fn see(&self, ticket: Ticket, owner: Owner) -> Seen {
        let mut before = 0;
        for entry in &self.entries {
            if entry.is(ticket, owner) {
                return match (&entry.stage, &self.ended) {
                    (Stage::Done { answer, took }, _) => Seen::Done(answer.clone(), *took),
                    (Stage::Failed(reason), _) => Seen::Failed(reason.clone()),
                    (_, Some(reason)) => Seen::Ended(reason.clone()),
                    (Stage::Running { done, of }, None) => Seen::Running(*done, *of),
                    (Stage::Coming | Stage::Waiting(_), None) => Seen::Queued(before),
                };
            }
            before += usize::from(entry.stage.is_pending());
        }
        Seen::Unknown
    }

    fn set(&mut self, ticket: Ticket, stage: Stage) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.record.ticket == ticket) {
            entry.stage = stage;
        }
    }
}

/// If the thread of evaluations breaks off, nobody waits for it.
struct Broken<'a>(&'a Inner);

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.give_up("evaluations broke off on the server");
        }
    }
}

/// What is loaded.
struct Loaded {
    evaluator: Box<dyn Evaluator>,
    keys: InUse,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what was kept long enough: answers that nobody fetched, the oldest of too many, inputs whose turn never came.
    fn tidy(&self, state: &mut State) {
        let limits = &self.limits;
        let there = state.entries.iter().filter(|entry| !entry.stage.is_pending()).count();
        let mut surplus = there.saturating_sub(limits.answers);
        state.entries.retain_mut(|entry| {
            let old = entry.record.is_old(limits);
            match &entry.stage {
                Stage::Coming | Stage::Running { .. } => return true,
                Stage::Waiting(_) if !old => return true,
                Stage::Waiting(_) => {
                    let reason = "its turn did not come in time; ask again".to_owned();
                    entry.record.since = SystemTime::now();
                    entry.record.kept = Kept::Failure { reason: reason.clone() };
                    self.keep(&entry.record, &[]);
                    entry.stage = Stage::Failed(reason);
                    return true;
                }
                Stage::Done { .. } | Stage::Failed(_) if !old && surplus == 0 => return true,
                Stage::Done { .. } | Stage::Failed(_) => {}
            }
            surplus = surplus.saturating_sub(1);
            self.remove(entry.record.ticket);
            false
        });
    }

    /// Writes a record, and says whether that could be done.
    fn keep(&self, record: &Record, ciphertext: &[u8]) -> bool {
        self.records.write(record, ciphertext).inspect_err(|e| (self.log)(&e.to_string())).is_ok()
    }

    fn remove(&self, ticket: Ticket) {
        if let Err(e) = self.records.remove(ticket) {
            (self.log)(&e.to_string());
        }
    }

    /// Ends what is computed, and tells those who wait.
    fn give_up(&self, reason: &str) {
        let mut state = self.state();
        state.ended.get_or_insert_with(|| reason.into());
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn work(&self) {
        let _broken = Broken(self);
        let mut loaded: Option<Loaded> = None;
        while let Some((mut record, task)) = self.next(&mut loaded) {
            let counts = u32::from(self.evaluation.is_here());
            record.begun += counts;
            self.keep(&record, &task.input);
            let begun = Instant::now();
            let result = self.guarded(record.ticket, &task, &mut loaded);
            let took = begun.elapsed();
            let ended = self.state().ended.is_some();
            if ended && result.is_err() {
                // It was told to end: that is not held against the input.
                record.begun -= counts;
                self.keep(&record, &task.input);
                return;
            }
            if let Err(Failure { detail, spoilt_keys, .. }) = &result {
                // Of no use any more. The client hears of it last, and may ask again at once.
                if loaded.take().is_some() {
                    self.evaluation.dropped();
                }
                if *spoilt_keys {
                    task.keys.spoilt();
                }
                (self.log)(detail);
            }
            drop(task);
            self.finish(record, result, took);
        }
    }

    /// Keeps an answer, or why there is none, and tells who waits.
    fn finish(&self, mut record: Record, result: Result<Vec<u8>, Failure>, took: Duration) {
        record.since = SystemTime::now();
        let (kept, stage, ciphertext): (_, _, Arc<[u8]>) = match result {
            Ok(answer) => {
                let answer: Arc<[u8]> = answer.into();
                (Kept::Answer { took }, Stage::Done { answer: answer.clone(), took }, answer)
            }
            Err(Failure { told: reason, .. }) => {
                let reason: String = reason.chars().take(MAX_REASON / 4).collect();
                (Kept::Failure { reason: reason.clone() }, Stage::Failed(reason), Arc::default())
            }
        };
        record.kept = kept;
        if !self.keep(&record, &ciphertext) {
            // The next server must not evaluate it again.
            self.remove(record.ticket);
        }
        let mut state = self.state();
        state.took = Some(took);
        if let Some(entry) = state.entries.iter_mut().find(|e| e.record.ticket == record.ticket) {
            (entry.record, entry.stage) = (record, stage);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the next input. What is loaded is given up when no session has these keys and no input waits.
    fn next(&self, loaded: &mut Option<Loaded>) -> Option<(Record, Task)> {
        let mut state = self.state();
        loop {
            if state.ended.is_some() {
                return None;
            }
            let waiting = state.entries.iter_mut().find(|e| matches!(e.stage, Stage::Waiting(_)));
            if let Some(entry) = waiting {
                let running = Stage::Running { done: 0, of: 0 };
                let Stage::Waiting(task) = std::mem::replace(&mut entry.stage, running) else {
                    return None;
                };
                let record = entry.record.clone();
                self.changed.notify_all();
                return Some((record, task));
            }
            let alone = |l: &Loaded| !state.visits.contains_key(&(l.keys.owner(), l.keys.hash()));
            if loaded.as_ref().is_some_and(alone) {
                drop(state);
                *loaded = None;
                self.evaluation.dropped();
                state = self.state();
                continue;
            }
            state = self.changed.wait_timeout(state, TIDY).unwrap_or_else(PoisonError::into_inner).0;
            self.tidy(&mut state);
        }
    }

    /// As [`evaluate`](Self::evaluate). A panic in there is a failure of this evaluation alone.
    fn guarded(&self, ticket: Ticket, task: &Task, loaded: &mut Option<Loaded>) -> Result<Vec<u8>, Failure> {
        // What a panic leaves half done is dropped: whatever failed is loaded anew.
        let evaluate = AssertUnwindSafe(|| self.evaluate(ticket, task, loaded));
        std::panic::catch_unwind(evaluate).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(Failure {
                told: "the evaluation broke off on the server, which goes on; ask its operator".into(),
                detail: format!("evaluation: it panicked: {text}"),
                spoilt_keys: false,
            })
        })
    }

    fn evaluate(
        &self,
        ticket: Ticket,
        Task { keys, input }: &Task,
        loaded: &mut Option<Loaded>,
    ) -> Result<Vec<u8>, Failure> {
        let same = |l: &Loaded| l.keys.owner() == keys.owner() && l.keys.hash() == keys.hash();
        if !loaded.as_ref().is_some_and(same) {
            // The former one's memory is needed first.
            if loaded.take().is_some() {
                self.evaluation.dropped();
            }
            let of_client = OfClient { path: keys.path(), hash: &keys.hash() };
            let evaluator = self.evaluation.open(of_client, &self.stop)?;
            *loaded = Some(Loaded { evaluator, keys: keys.clone() });
        }
        let evaluator = &mut loaded.as_mut().expect("just loaded").evaluator;
        let mut progress = |done, of| {
            self.state().set(ticket, Stage::Running { done, of });
            self.changed.notify_all();
        };
        let answer = evaluator.answer((ticket, input), &mut progress, &self.stop)?;
        let most = self.evaluation.answer_bytes();
        if answer.len() != most {
            let told = format!("an answer of {} bytes, where {most} are right", answer.len());
            return Err(Failure { detail: told.clone(), told, spoilt_keys: false });
        }
        Ok(answer)
    }
}
