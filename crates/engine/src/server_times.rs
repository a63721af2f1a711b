//! The server's own times of a query, as they travel to a client that asks for a timeline.

use std::time::Duration;

use jaguar_wire::{Stage, Wait};
use serde::{Deserialize, Serialize};

use crate::exec::clock::NodeTimes;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
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
}

/// How many pieces of work a timeline holds: bounds the message.
const MAX_PIECES: usize = 1 << 15;

#[cfg(feature = "server")]
impl ServerTimes {
    pub fn new(times: &NodeTimes, waits: &[Wait], answered: Duration) -> Self {
        Self { answered: micros(answered), stretches: Stretches::of(times, waits) }
    }
}

impl Stretches {
    /// A party's own times.
    pub fn of(times: &NodeTimes, waits: &[Wait]) -> Self {
        let work = times
            .pieces
            .iter()
            .take(MAX_PIECES)
            .map(|(stage, node, s)| (*stage, *node as u32, [s.start, s.wall, s.waited].map(micros)))
            .collect();
        let mut end = times.origin();
        let waits = waits
            .iter()
            .map(|wait| {
                let since = wait.start.saturating_sub(end);
                end = wait.start + wait.length;
                (micros(since), micros(wait.length))
            })
            .collect();
        Self { work, waits }
    }
}
