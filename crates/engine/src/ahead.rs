//! Queries prepared in the background, over one session or several: while one runs, the next is made ready.
//!
//! A session prepares and runs one query at a time, so what overlaps needs sessions of its own. Each has its own connection, base
//! OTs, COTs, query secrets and masks; the sessions of a client share nothing but the hint. No more queries are prepared at any time
//! than there are sessions, and no more in all than were announced: that bounds the memory (`Plan::nonlinear_cost` says what one
//! prepared query holds).

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::client::{Prepared, Ready};
use crate::error::EngineError;
use crate::progress::NoProgress;

/// A prepared query.
pub struct Next {
    /// The query.
    pub prepared: Prepared,
    /// The session that it belongs to, by the number that it was given.
    pub session: usize,
}

/// What a session's thread comes back with.
enum Outcome {
    Prepared(usize, Box<Prepared>),
    NotOpened(EngineError),
    Failed(EngineError),
}

/// Reports a thread's outcome, also when the thread panics.
struct Reporter {
    to: Sender<Outcome>,
    outcome: Option<Outcome>,
}

impl Reporter {
    fn run(mut self, session: usize, open: impl FnOnce() -> Result<Ready, EngineError>) {
        self.outcome = Some(match open() {
            Err(e) => Outcome::NotOpened(e),
            Ok(ready) => match ready.prepare_query(&mut NoProgress) {
                Ok(prepared) => Outcome::Prepared(session, Box::new(prepared)),
                Err(e) => Outcome::Failed(e),
            },
        });
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| {
            Outcome::Failed(EngineError::Input("preparing a query in the background broke off".into()))
        });
        // Nobody may want it any more.
        let _ = self.to.send(outcome);
    }
}

/// Owns the sessions that prepare.
pub struct Ahead {
    outcomes: (Sender<Outcome>, Receiver<Outcome>),
    /// Sessions that have nothing to do.
    idle: Vec<(usize, Ready)>,
    /// How many threads will still come back.
    underway: usize,
    /// How many queries are still to be begun.
    left: usize,
    not_opened: Option<EngineError>,
}

impl Ahead {
    /// Will prepare `queries` queries, once there are sessions.
    pub fn new(queries: usize) -> Self {
        Self { outcomes: channel(), idle: Vec::new(), underway: 0, left: queries, not_opened: None }
    }

    /// Adds a session that `open` opens, in the background, and begins a query with it (if none is left, `open` is not called).
    /// One that cannot be opened is done without: see [`not_opened`](Self::not_opened). `session` is the caller's number for it.
    ///
    /// Every session of a client reads the same hint, which must be complete before a second one opens it
    /// ([`Ready::hint`]).
    pub fn open(
        &mut self,
        session: usize,
        open: impl FnOnce() -> Result<Ready, EngineError> + Send + 'static,
    ) {
        if self.left > 0 {
            self.begin(session, open);
        }
    }

    /// Adds a session, or gives one back after its query. It begins the next query at once, if any is left to be prepared.
    pub fn add(&mut self, session: usize, ready: Ready) {
        if self.left > 0 {
            self.begin(session, move || Ok(ready));
        } else {
            self.idle.push((session, ready));
        }
    }

    fn begin(&mut self, session: usize, open: impl FnOnce() -> Result<Ready, EngineError> + Send + 'static) {
        self.left -= 1;
        self.underway += 1;
        let reporter = Reporter { to: self.outcomes.0.clone(), outcome: None };
        thread::spawn(move || reporter.run(session, open));
    }

    /// The query that is ready first, waiting for it if need be; none when all that were announced have been taken, or no session
    /// is there to prepare one. Its session prepares the next when it is given back with [`add`](Self::add), the others meanwhile.
    ///
    /// # Errors
    /// When a session fails. It is gone then; the others go on.
    pub fn take(&mut self) -> Result<Option<Next>, EngineError> {
        loop {
            while self.left > 0
                && let Some((session, ready)) = self.idle.pop()
            {
                self.begin(session, move || Ok(ready));
            }
            if self.underway == 0 {
                return Ok(None);
            }
            let outcome = self.outcomes.1.recv().expect("this end holds a sender too");
            self.underway -= 1;
            match outcome {
                Outcome::Prepared(session, prepared) => {
                    return Ok(Some(Next { prepared: *prepared, session }));
                }
                // Another session prepares what this one was to.
                Outcome::NotOpened(e) => {
                    self.left += 1;
                    self.not_opened = Some(e);
                }
                Outcome::Failed(e) => {
                    self.left += 1;
                    return Err(e);
                }
            }
        }
    }

    /// Why the last session that could not be opened could not, told once.
    pub fn not_opened(&mut self) -> Option<EngineError> {
        self.not_opened.take()
    }

    /// One query less will be wanted than was announced. (It may be under way already; then it is left over.)
    pub fn one_less(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Ends the sessions that have nothing to do. Those that are preparing end when they are through.
    ///
    /// # Errors
    /// When a connection fails.
    pub fn leave(self) -> Result<(), EngineError> {
        self.idle.into_iter().try_for_each(|(_, ready)| ready.leave())
    }
}
