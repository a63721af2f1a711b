//! Long calls: they run in a thread of their own, while the thread that called gives Python's lock away, tells how far they are,
//! and looks for Ctrl-C.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use jaguar::progress::Progress;
use jaguar::stop::Stop;
use jaguar::wire::Stage;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::failure::Failure;

/// How often the calling thread looks.
const LOOK: Duration = Duration::from_millis(50);

/// How long a call that was asked to end may take for it before it is left to end alone. (With [`LOOK`] it is less than the second that
/// is promised.)
const PATIENCE: Duration = Duration::from_millis(700);

/// How far a call is: what it does, `done` of `of`, and with what.
#[derive(Clone, Default, PartialEq)]
struct At {
    what: String,
    done: u64,
    of: u64,
    detail: String,
}

#[derive(Default)]
struct Told {
    at: Option<At>,
    /// Kind ("note" or "warning") and text.
    notes: Vec<(&'static str, String)>,
}

/// A call that is under way.
#[derive(Default)]
pub struct Task {
    told: Mutex<Told>,
    stop: Stop,
    /// What is to end with it.
    others: Mutex<Vec<Stop>>,
}

/// What unwinds through work that was asked to end.
struct Stopped;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Task {
    /// Asks the work to end.
    pub fn stop(&self) {
        self.stop.now();
        lock(&self.others).iter().for_each(Stop::now);
    }

    /// Whether it was asked to.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }

    /// Lets `other` end with it.
    pub fn stops(&self, other: &Stop) {
        lock(&self.others).push(other.clone());
        if self.is_stopped() {
            other.now();
        }
    }

    /// Tells how far the work is. Does not return if it was asked to end: it unwinds, and [`run`] catches that. What is under way
    /// must be of no use to anybody then.
    pub fn at(&self, what: &str, done: usize, of: usize, detail: &str) {
        if self.is_stopped() {
            resume_unwind(Box::new(Stopped));
        }
        let at = At { what: what.into(), done: done as u64, of: of as u64, detail: detail.into() };
        lock(&self.told).at = Some(at);
    }

    /// Tells which place the call has in a server's line. (A connection is under way, which is what ends.)
    pub fn waits(&self, place: u32, seconds: u32) {
        if !self.is_stopped() {
            self.at("waiting for a place", 0, 0, &format!("number {place}, about {seconds} s"));
        }
    }

    /// Tells something that a person may like to know.
    pub fn note(&self, text: impl Into<String>) {
        lock(&self.told).notes.push(("note", text.into()));
    }

    /// Tells something that a person should know.
    pub fn warning(&self, text: impl Into<String>) {
        lock(&self.told).notes.push(("warning", text.into()));
    }

    /// Tells `listener` what is new: it is called with a kind ("at", "note", "warning"), a text, how much is done and of how much, and a
    /// detail.
    fn tell(&self, py: Python<'_>, listener: Option<&Py<PyAny>>, last: &mut Option<At>) -> PyResult<()> {
        let Told { at, notes } = {
            let mut told = lock(&self.told);
            Told { at: told.at.clone(), notes: std::mem::take(&mut told.notes) }
        };
        let Some(listener) = listener else { return Ok(()) };
        for (kind, text) in notes {
            listener.call1(py, (kind, text, 0u64, 0u64, ""))?;
        }
        if let Some(now) = &at
            && at != *last
        {
            let detail = PyString::new(py, &now.detail);
            listener.call1(py, ("at", &now.what, now.done, now.of, detail))?;
        }
        *last = at;
        Ok(())
    }
}

/// A session's progress, as a task tells it. It does not unwind: a session's connections are what ends it ([`Task::stops`]).
pub struct Heard<'a> {
    /// The task.
    pub task: &'a Task,
    /// Whether it unwinds all the same: where no connection is to end.
    pub unwinds: bool,
}

impl Progress for Heard<'_> {
    fn step(&mut self, stage: Stage, index: usize, total: usize, name: &str) {
        let what = match stage {
            Stage::Offline => "preparing",
            Stage::Online => "predicting",
            _ => "getting ready",
        };
        if self.unwinds || !self.task.is_stopped() {
            self.task.at(what, index + 1, total, name);
        }
    }

    fn hint(&mut self, done: u64, total: u64) {
        if done < total && (self.unwinds || !self.task.is_stopped()) {
            self.task.at("fetching the hint (once)", done as usize, total as usize, "bytes");
        }
    }

    fn note(&mut self, text: &str) {
        self.task.note(text);
    }

    fn warning(&mut self, text: &str) {
        self.task.warning(text);
    }
}

static POOL: Once = Once::new();

/// Where the work leaves its result.
type Slot<T> = (Mutex<Option<Result<T, Failure>>>, Condvar);

fn wait<T>(slot: &Slot<T>, time: Duration) -> Option<Result<T, Failure>> {
    let end = Instant::now() + time;
    let mut result = lock(&slot.0);
    loop {
        if result.is_some() {
            return result.take();
        }
        let left = end.checked_duration_since(Instant::now())?;
        result = slot.1.wait_timeout(result, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Runs `work` in a thread of its own and waits for it.
///
/// # Errors
/// What the work failed with; what Ctrl-C or `listener` raised. The work was asked to end then, and has ended, or ends by itself at its
/// next step.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    task: &Arc<Task>,
    listener: Option<&Py<PyAny>>,
    work: impl FnOnce(&Arc<Task>) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    // The pool's threads stay; under a name of their own, nobody takes them for a call that was left behind.
    POOL.call_once(|| {
        // If somebody else has started them, they are there.
        let _ = rayon::ThreadPoolBuilder::new().thread_name(|_| "jaguar-pool".into()).build_global();
    });
    let slot: Arc<Slot<T>> = Arc::new((Mutex::new(None), Condvar::new()));
    let (there, own) = (Arc::clone(&slot), Arc::clone(task));
    let started = Builder::new().name("jaguar".into()).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| work(&own))).unwrap_or_else(|panic| {
            Err(if panic.is::<Stopped>() {
                interrupted()
            } else {
                Failure::new("JaguarError", "an error in Jaguar itself: the thread of this call panicked")
            })
        });
        *lock(&there.0) = Some(result);
        there.1.notify_all();
    });
    started.map_err(|e| Failure::new("JaguarError", format!("starting a thread: {e}")))?;
    let mut last = None;
    loop {
        let result = py.detach(|| wait(&slot, LOOK));
        let raised = py.check_signals().and_then(|()| task.tell(py, listener, &mut last)).err();
        if let Some(raised) = raised {
            task.stop();
            if result.is_none() {
                py.detach(|| wait(&slot, PATIENCE));
            }
            return Err(raised);
        }
        match result {
            // Whatever a session says of a connection that was ended on purpose.
            Some(Err(_)) if task.is_stopped() => return Err(interrupted().into()),
            Some(result) => return Ok(result?),
            None => {}
        }
    }
}

/// What a call ends with that was asked to.
pub fn interrupted() -> Failure {
    Failure::new("InterruptedCallError", "the call was interrupted")
}
