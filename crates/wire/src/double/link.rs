//! Both ends of a connection in one process, on which one thing goes wrong at a chosen message.
//!
//! **Time.** Nobody waits here for real. The link knows when both ends wait for a message and none is on its way. Then
//! nothing can happen any more but that somebody's patience ends: the link's clock jumps to that moment. So a session that
//! gives up after minutes does so at once, on a busy machine as on an idle one, and a session in which both parties wait
//! for ever is found out ([`Watch::hung`]).
//!
//! A *message* is what a channel hands over at once, at a flush. What its bytes mean is not known here: the first of them
//! are often a length.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::frame::Farewell;
use crate::stream::Side;
use crate::{Clock, Transport, WireError};

/// What goes wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The connection ends in its place. What came before it arrives.
    Cut,
    /// Half of it arrives, then the connection ends.
    Truncate,
    /// The connection is reset in its place: what came before it and was not read is lost as well.
    Reset,
    /// From it on nothing passes in either direction, and no signs of life do.
    Stall,
    /// From it on nothing passes in its direction.
    StallOneWay,
    /// It is lost. Both ends live, and what comes behind it arrives.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives behind the next one of its direction; if none comes, when nothing else happens.
    Reorder,
    /// One bit of it arrives flipped.
    Flip {
        /// Which byte, counted from the first; beyond the last, from the first again.
        byte: usize,
        /// Which bit of that byte, from 0 (the lowest) to 7.
        bit: u8,
    },
}

/// A fault, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Who sends the message.
    pub from: Side,
    /// Its number among those that this side sends; the first is 0.
    pub message: usize,
    /// What goes wrong with it.
    pub fault: Fault,
}

/// How long a link is silent before an end says so: what a real connection waits.
pub const SILENCE: Duration = Duration::from_secs(15);

/// The link's clock, and what has passed over it. It outlives both ends.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

/// One end.
pub struct End {
    shared: Arc<Shared>,
    side: usize,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// By side, the connecting one first.
#[derive(Default)]
struct State {
    now: Duration,
    at: Option<At>,
    happened: bool,
    hung: bool,
    sent: [Vec<usize>; 2],
    /// What is on its way to a side.
    inbox: [VecDeque<Vec<u8>>; 2],
    /// A message to a side that waits for the one behind it.
    held: [Option<Vec<u8>>; 2],
    /// Why nothing more comes to a side, behind its inbox.
    end: [Option<Why>; 2],
    /// What is sent to a side is lost.
    deaf: [bool; 2],
    /// Whether an end waits, and until when.
    waiting: [Option<Option<Duration>>; 2],
}

#[derive(Clone)]
enum Why {
    Closed,
    Silent,
    Aborted(Farewell),
}

/// The two ends of a link that is faulty `at` a message (or sound), the connecting one first.
pub fn pair(at: Option<At>) -> (End, End, Watch) {
    let state = Mutex::new(State { at, ..State::default() });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    let end = |side| End { shared: Arc::clone(&shared), side };
    (end(0), end(1), Watch(Arc::clone(&shared)))
}

impl Shared {
    /// Every change is made in one piece, so that a panic of one end leaves it sound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// The lengths of the messages that a side has sent.
    pub fn sent(&self, side: Side) -> Vec<usize> {
        self.0.lock().sent[side as usize].clone()
    }

    /// Whether the fault has happened: the session had such a message.
    pub fn happened(&self) -> bool {
        self.0.lock().happened
    }

    /// Whether both ends waited without a limit of time, and nothing was on its way. (They were told that the other closed.)
    pub fn hung(&self) -> bool {
        self.0.lock().hung
    }
}

impl Clock for Watch {
    fn now(&self) -> Duration {
        self.0.lock().now
    }
}

impl State {
    fn cut(&mut self) {
        self.end = [Some(Why::Closed), Some(Why::Closed)];
        self.deaf = [true; 2];
    }

    fn pass(&mut self, side: usize, mut chunk: Vec<u8>) {
        let (to, number) = (1 - side, self.sent[side].len());
        self.sent[side].push(chunk.len());
        if self.deaf[to] {
            return;
        }
        let hit = self.at.filter(|at| at.from as usize == side && at.message == number);
        self.happened |= hit.is_some();
        match hit.map(|at| at.fault) {
            None => self.inbox[to].push_back(chunk),
            Some(Fault::Cut) => self.cut(),
            Some(Fault::Truncate) => {
                chunk.truncate(chunk.len() / 2);
                self.inbox[to].push_back(chunk);
                self.cut();
            }
            Some(Fault::Reset) => {
                self.inbox.iter_mut().for_each(VecDeque::clear);
                self.cut();
            }
            Some(Fault::Stall) => {
                self.now += SILENCE;
                self.end = [Some(Why::Silent), Some(Why::Silent)];
                self.deaf = [true; 2];
            }
            Some(Fault::StallOneWay) => {
                self.now += SILENCE;
                self.end[to] = Some(Why::Silent);
                self.deaf[to] = true;
            }
            Some(Fault::Drop) => {}
            Some(Fault::Duplicate) => self.inbox[to].extend([chunk.clone(), chunk]),
            Some(Fault::Reorder) => {
                self.held[to] = Some(chunk);
                return;
            }
            Some(Fault::Flip { byte, bit }) => {
                if !chunk.is_empty() {
                    let byte = byte % chunk.len();
                    chunk[byte] ^= 1 << bit;
                }
                self.inbox[to].push_back(chunk);
            }
        }
        let held = self.held[to].take();
        self.inbox[to].extend(held);
    }

    /// If nothing happens any more but the end of somebody's patience, it ends now.
    fn pass_time(&mut self) -> bool {
        let stuck = |side: usize| {
            let waits = self.waiting[side].is_some_and(|until| until.is_none_or(|until| until > self.now));
            waits && self.inbox[side].is_empty() && self.end[side].is_none()
        };
        if !(stuck(0) && stuck(1)) {
            return false;
        }
        if let Some(to) = (0..2).find(|&to| self.held[to].is_some()) {
            let held = self.held[to].take();
            self.inbox[to].extend(held);
            return true;
        }
        match self.waiting.iter().flatten().flatten().min() {
            Some(&until) => self.now = until,
            None => {
                self.hung = true;
                self.cut();
            }
        }
        true
    }
}

impl End {
    fn wait(&self, time: Option<Duration>) -> Result<Option<Vec<u8>>, WireError> {
        let Self { shared, side } = self;
        let mut state = shared.lock();
        let until = time.map(|time| state.now.saturating_add(time));
        let result = loop {
            if let Some(chunk) = state.inbox[*side].pop_front() {
                break Ok(Some(chunk));
            }
            let waiting_for = || "receiving".to_owned();
            match &state.end[*side] {
                None => {}
                Some(Why::Closed) => break Err(WireError::Closed { waiting_for: waiting_for() }),
                Some(Why::Silent) => {
                    break Err(WireError::Silent { silence: SILENCE, waiting_for: waiting_for() });
                }
                Some(Why::Aborted(farewell)) => break Err(farewell.clone().error()),
            }
            if until.is_some_and(|until| until <= state.now) {
                break Ok(None);
            }
            state.waiting[*side] = Some(until);
            if state.pass_time() {
                shared.changed.notify_all();
                continue;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.waiting[*side] = None;
        result
    }

    /// Ends the direction to the peer, behind what is on its way.
    fn finish(&self, why: Why) {
        let mut state = self.shared.lock();
        let to = 1 - self.side;
        if !state.deaf[to] {
            let held = state.held[to].take();
            state.inbox[to].extend(held);
            state.end[to].get_or_insert(why);
            state.deaf[to] = true;
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Transport for End {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        let mut state = self.shared.lock();
        if let Some(Why::Closed) = state.end[self.side] {
            return Err(WireError::Closed { waiting_for: "sending".into() });
        }
        state.pass(self.side, chunk);
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        self.wait(None).map(|chunk| chunk.expect("it waits until there is one"))
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        self.wait(Some(time))
    }

    fn abort(&mut self, reason: &str) {
        self.finish(Why::Aborted(Farewell::new(false, reason)));
    }

    fn put_off(&mut self, reason: &str) {
        self.finish(Why::Aborted(Farewell::new(true, reason)));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.finish(Why::Closed);
        // Who has gone reads nothing any more, and keeps nothing.
        let mut state = self.shared.lock();
        state.deaf[self.side] = true;
        state.inbox[self.side].clear();
    }
}
