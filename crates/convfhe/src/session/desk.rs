//! One evaluation at a time: inputs that wait, the one that is computed, and answers that wait for their clients.
//!
//! An evaluation takes gigabytes, so there is one thread for all of them. What it has loaded for one client stays until another's turn
//! comes, or until the client has left.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::store::InUse;
use super::{Owner, Ticket};

/// Begins to evaluate with a client's keys.
pub trait Evaluation: Send + Sync {
    /// Reads the keys. It takes long, and much memory.
    ///
    /// # Errors
    /// When there is not enough memory, or the file holds no keys.
    fn open(&self, keys: &Path) -> Result<Box<dyn Evaluator>, Failure>;

    /// Bytes of an answer.
    fn answer_bytes(&self) -> usize;
}

/// Evaluates with one client's keys.
pub trait Evaluator: Send {
    /// Ends it from another thread.
    fn stopper(&self) -> Stopper;

    /// Computes the encrypted answer to an encrypted input. `progress` takes how many layers of how many are done.
    ///
    /// # Errors
    /// When the input is malformed, or the evaluation ends for another reason. It is of no use then.
    fn answer(&mut self, input: &[u8], progress: &mut dyn FnMut(u32, u32)) -> Result<Vec<u8>, Failure>;
}

/// Ends an evaluation: its [`Evaluator::answer`] fails soon.
pub type Stopper = Box<dyn Fn() + Send>;

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

/// What a server holds of all clients together.
#[derive(Clone, Copy, Debug)]
pub struct DeskLimits {
    /// Inputs that wait, and the one that is computed.
    pub waiting: usize,
    /// Of those, one client's.
    pub waiting_of_one: usize,
    /// Answers that nobody has fetched yet; the oldest make place.
    pub answers: usize,
    /// How long one is kept.
    pub keep: Duration,
}

impl Default for DeskLimits {
    /// 16 inputs, 4 of one client; 64 answers, for an hour.
    fn default() -> Self {
        Self { waiting: 16, waiting_of_one: 4, answers: 64, keep: Duration::from_secs(3600) }
    }
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
    /// Why there is none.
    Failed(String),
    /// There is nothing under this ticket for this owner.
    Unknown,
}

pub(super) struct Desk {
    inner: Arc<Inner>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    evaluation: Box<dyn Evaluation>,
    limits: DeskLimits,
    log: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    entries: VecDeque<Entry>,
    /// Sessions by owner.
    visits: HashMap<Owner, usize>,
    /// Ends what is computed.
    stop: Option<Stopper>,
    ended: bool,
}

struct Entry {
    ticket: Ticket,
    owner: Owner,
    stage: Stage,
}

enum Stage {
    Waiting { keys: InUse, input: Vec<u8> },
    Running { done: u32, of: u32 },
    Done { answer: Arc<[u8]>, took: Duration, since: Instant },
    Failed { reason: String, since: Instant },
}

impl Stage {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Running { .. })
    }
}

/// A session of an owner.
pub(super) struct Visit<'a> {
    desk: &'a Desk,
    owner: Owner,
}

const ENDED: &str = "the server is shutting down, and with it the evaluation; ask again later";

impl Desk {
    pub fn new(
        evaluation: Box<dyn Evaluation>,
        limits: DeskLimits,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> io::Result<Self> {
        let inner =
            Arc::new(Inner { evaluation, limits, log, state: Mutex::default(), changed: Condvar::new() });
        let worker = Arc::clone(&inner);
        let worker = thread::Builder::new().name("evaluations".into()).spawn(move || worker.work())?;
        Ok(Self { inner, worker: Mutex::new(Some(worker)) })
    }

    /// A session of this owner begins. As long as it lasts, what was loaded for it stays, if nobody else's turn comes.
    pub fn visit(&self, owner: Owner) -> Visit<'_> {
        *self.inner.state().visits.entry(owner).or_default() += 1;
        Visit { desk: self, owner }
    }

    /// Queues an input. Returns how many are before it, or why it is not taken.
    pub fn ask(&self, ticket: Ticket, owner: Owner, keys: InUse, input: Vec<u8>) -> Result<usize, String> {
        let mut state = self.inner.state();
        if state.ended {
            return Err(ENDED.into());
        }
        state.expire(&self.inner.limits);
        let pending = state.entries.iter().filter(|entry| entry.stage.is_pending());
        let (all, own) = pending.fold((0, 0), |(all, own), e| (all + 1, own + usize::from(e.owner == owner)));
        let DeskLimits { waiting, waiting_of_one, .. } = self.inner.limits;
        if own >= waiting_of_one {
            return Err(format!(
                "{own} inputs of this client wait already, and no more may; come back later"
            ));
        }
        if all >= waiting {
            return Err(format!("{all} inputs wait already, and no more may; come back later"));
        }
        state.entries.push_back(Entry { ticket, owner, stage: Stage::Waiting { keys, input } });
        self.inner.changed.notify_all();
        Ok(all)
    }

    /// Waits, for `time` at most, until an answer is further than `last`.
    pub fn wait(&self, ticket: Ticket, owner: Owner, last: Option<&Seen>, time: Duration) -> Seen {
        let deadline = Instant::now() + time;
        let mut state = self.inner.state();
        loop {
            state.expire(&self.inner.limits);
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
        state.entries.retain(|e| e.ticket != ticket || e.owner != owner || e.stage.is_pending());
    }

    /// Ends the evaluation that runs, and begins no other.
    pub fn end(&self) {
        self.inner.give_up(ENDED);
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(worker) = worker {
            // It ends as soon as the evaluation has.
            let _ = worker.join();
        }
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
        if let Some(visits) = state.visits.get_mut(&self.owner) {
            *visits -= 1;
            if *visits == 0 {
                state.visits.remove(&self.owner);
            }
        }
        self.desk.inner.changed.notify_all();
    }
}

impl State {
    /// Drops answers that nobody fetched: old ones, and the oldest of too many.
    fn expire(&mut self, limits: &DeskLimits) {
        self.entries.retain(|entry| match &entry.stage {
            Stage::Done { since, .. } | Stage::Failed { since, .. } => since.elapsed() < limits.keep,
            Stage::Waiting { .. } | Stage::Running { .. } => true,
        });
        let mut there = self.entries.iter().filter(|entry| !entry.stage.is_pending()).count();
        while there > limits.answers
            && let Some(oldest) = self.entries.iter().position(|entry| !entry.stage.is_pending())
        {
            self.entries.remove(oldest);
            there -= 1;
        }
    }

    fn see(&self, ticket: Ticket, owner: Owner) -> Seen {
        let mut before = 0;
        for entry in &self.entries {
            if entry.ticket == ticket && entry.owner == owner {
                return match &entry.stage {
                    Stage::Waiting { .. } => Seen::Queued(before),
                    Stage::Running { done, of } => Seen::Running(*done, *of),
                    Stage::Done { answer, took, .. } => Seen::Done(answer.clone(), *took),
                    Stage::Failed { reason, .. } => Seen::Failed(reason.clone()),
                };
            }
            before += usize::from(entry.stage.is_pending());
        }
        Seen::Unknown
    }

    fn set(&mut self, ticket: Ticket, stage: Stage) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.ticket == ticket) {
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

    /// Ends what is computed, and tells those who wait.
    fn give_up(&self, reason: &str) {
        let mut state = self.state();
        state.ended = true;
        if let Some(stop) = &state.stop {
            stop();
        }
        for entry in &mut state.entries {
            if entry.stage.is_pending() {
                entry.stage = Stage::Failed { reason: reason.into(), since: Instant::now() };
            }
        }
        self.changed.notify_all();
    }

    fn work(&self) {
        let _broken = Broken(self);
        let mut loaded: Option<Loaded> = None;
        while let Some((ticket, keys, input)) = self.next(&mut loaded) {
            let begun = Instant::now();
            let result = self.evaluate(ticket, &keys, &input, &mut loaded);
            let took = begun.elapsed();
            let ended = {
                let mut state = self.state();
                state.stop = None;
                state.ended
            };
            if ended {
                return;
            }
            if let Err(Failure { detail, spoilt_keys, .. }) = &result {
                // Of no use any more. The client hears of it last, and may ask again at once.
                loaded = None;
                if *spoilt_keys {
                    keys.spoilt();
                }
                (self.log)(detail);
            }
            drop(keys);
            let since = Instant::now();
            let stage = match result {
                Ok(answer) => Stage::Done { answer: answer.into(), took, since },
                Err(Failure { told, .. }) => Stage::Failed { reason: told, since },
            };
            self.state().set(ticket, stage);
            self.changed.notify_all();
        }
    }

    /// Waits for the next input. What is loaded is given up when its owner has no session and no input here.
    fn next(&self, loaded: &mut Option<Loaded>) -> Option<(Ticket, InUse, Vec<u8>)> {
        let mut state = self.state();
        loop {
            if state.ended {
                return None;
            }
            let waiting = state.entries.iter_mut().find(|e| matches!(e.stage, Stage::Waiting { .. }));
            if let Some(entry) = waiting {
                let running = Stage::Running { done: 0, of: 0 };
                let Stage::Waiting { keys, input } = std::mem::replace(&mut entry.stage, running) else {
                    return None;
                };
                let ticket = entry.ticket;
                self.changed.notify_all();
                return Some((ticket, keys, input));
            }
            let alone = |l: &Loaded| !state.visits.contains_key(&l.keys.owner());
            if loaded.as_ref().is_some_and(alone) {
                drop(state);
                *loaded = None;
                state = self.state();
                continue;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn evaluate(
        &self,
        ticket: Ticket,
        keys: &InUse,
        input: &[u8],
        loaded: &mut Option<Loaded>,
    ) -> Result<Vec<u8>, Failure> {
        let same = |l: &Loaded| l.keys.owner() == keys.owner() && l.keys.hash() == keys.hash();
        if !loaded.as_ref().is_some_and(same) {
            // The former one's memory is needed first.
            *loaded = None;
            let evaluator = self.evaluation.open(keys.path())?;
            *loaded = Some(Loaded { evaluator, keys: keys.clone() });
        }
        let evaluator = &mut loaded.as_mut().expect("just loaded").evaluator;
        {
            let mut state = self.state();
            if state.ended {
                evaluator.stopper()();
            }
            state.stop = Some(evaluator.stopper());
        }
        let answer = evaluator.answer(input, &mut |done, of| {
            self.state().set(ticket, Stage::Running { done, of });
            self.changed.notify_all();
        })?;
        let most = self.evaluation.answer_bytes();
        if answer.len() != most {
            let told = format!("an answer of {} bytes, where {most} are right", answer.len());
            return Err(Failure { detail: told.clone(), told, spoilt_keys: false });
        }
        Ok(answer)
    }
}
