//! The server's own times of a query, as they travel to a client that asks for a timeline.

use std::sync::Arc;
use std::time::Duration;

use jaguar_ot::threads::{self, Worked};
use jaguar_wire::{Channel, Stage, Wait};
use serde::{Deserialize, Serialize};

use crate::exec::clock::NodeTimes;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What a party keeps of a query for a timeline, beside its work on nodes.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// When it waited for its peer.
    pub waits: Vec<Wait>,
    /// When each thread of the pool worked for it.
    pub threads: Vec<Vec<Worked>>,
}

impl Log {
    /// From here on waits on `channel`, and what is given to other threads by this one, are kept until [`end`](Self::end).
    pub fn begin(channel: &mut Channel) {
        channel.log_waits();
        threads::watch(Arc::clone(channel.clock()));
    }

    /// Adds what was kept since [`begin`](Self::begin).
    pub fn end(&mut self, channel: &mut Channel) {
        self.waits.extend(channel.take_waits());
        let worked = threads::watched();
        let count = self.threads.len().max(worked.len());
        self.threads.resize_with(count, Vec::new);
        self.threads.iter_mut().zip(worked).for_each(|(all, more)| all.extend(more));
    }
}

/// What the server says of its times: microseconds from its mark.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerTimes {
    /// Microseconds from the mark until the answer left.
    pub answered: u64,
    pub stretches: Stretches,
}

/// What a party did when, in microseconds from its own mark.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stretches {
    /// Stage, node, and (start, length, waited) of each piece.
    pub work: Vec<(Stage, u32, [u64; 3])>,
    /// (since the end of the one before, length).
    pub waits: Vec<(u64, u64)>,
    /// The same of the stretches in which each thread of the pool worked for the party.
    pub threads: Vec<Vec<(u64, u64)>>,
}

/// Of how many threads a timeline tells, and how many stretches of them all: bounds the message.
const MAX_THREADS: usize = 32;
const MAX_STRETCHES: usize = 1 << 15;

/// How many pieces of work a timeline holds: bounds the message.
const MAX_PIECES: usize = 1 << 15;

#[cfg(feature = "server")]
impl ServerTimes {
    pub fn new(times: &NodeTimes, log: &Log, answered: Duration) -> Self {
        Self { answered: micros(answered), stretches: Stretches::of(times, log) }
    }
}

impl Stretches {
    /// A party's own times.
    pub fn of(times: &NodeTimes, log: &Log) -> Self {
        let work = times
            .pieces
            .iter()
            .take(MAX_PIECES)
            .map(|(stage, node, s)| (*stage, *node as u32, [s.start, s.wall, s.waited].map(micros)))
            .collect();
        let in_turn = |stretches: &mut dyn Iterator<Item = (Duration, Duration)>| {
            let mut end = times.origin();
            let since = |(start, length): (Duration, Duration)| {
                let since = start.saturating_sub(end);
                end = start + length;
                (micros(since), micros(length))
            };
            stretches.map(since).collect()
        };
        let waits = in_turn(&mut log.waits.iter().map(|wait| (wait.start, wait.length)));
        let count = log.threads.len().min(MAX_THREADS);
        let thread = |worked: &Vec<Worked>| {
            in_turn(&mut worked.iter().take(MAX_STRETCHES / count).map(|w| (w.start, w.length)))
        };
        let threads = log.threads.iter().take(count).map(thread).collect();
        Self { work, waits, threads }
    }
}
