//! What a protocol costs, before it is run: the unit that all protocols count in.
//!
//! Each protocol's own figures stand beside it ([`crate::Nonlinear::cost`], [`crate::LessThan::cost`] and the like).
//! Tests assert that runs cost exactly this.

use std::ops::Add;

pub use jaguar_ot::{
    Bin, Drawn, Instances, LpnSize, Noise, Width, extension_bytes, mean_extension_bytes, setup_bytes,
};

/// How many bits a party of one thread makes ahead of their use, if it may: what both use up in some twenty
/// milliseconds, for 8 MiB.
pub(crate) const AHEAD: usize = 1 << 19;

/// The same on so many threads, which use them up faster: at most 32 MiB. No more of them are used in a link's round
/// trip than were made ahead, so this bounds how fast two parties prepare that are far from each other.
pub(crate) fn ahead(threads: usize) -> usize {
    AHEAD * threads.clamp(1, 4)
}

/// Bytes that a party on so many threads holds for a session at most: what its source does, and bits that were made ahead of their use.
pub fn session_bytes(instances: Instances, threads: usize) -> u64 {
    jaguar_ot::session_bytes(instances) + (ahead(threads) * size_of::<jaguar_ot::Block>()) as u64
}

/// Correlations, bytes, memory and rounds of one prepared batch and its run. What making the correlations themselves
/// sends is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Vector correlations with the server as the sender. The client sends none.
    pub vectors_from_server: u64,
    /// Correlations of one bit with the server as the sender.
    pub bits_from_server: u64,
    /// The same with the client as the sender.
    pub bits_from_client: u64,
    /// Bytes that the client keeps between preparation and run.
    pub client_memory: u64,
    /// Bytes that the server keeps between preparation and run.
    pub server_memory: u64,
    /// Bytes from the client to the server offline, once all is prepared: what completes it, and early corrections.
    pub prepare_up: u64,
    /// Bytes from the server to the client offline.
    pub prepare_down: u64,
    /// Bytes from the client to the server in the run.
    pub up: u64,
    /// Bytes from the server to the client in the run.
    pub down: u64,
    /// How often the client waits for an answer in the run, when it starts with something unsent.
    pub client_rounds: u64,
    /// The same for the server; where a batch is not cut into blocks, as long as its corrections are one flush.
    pub server_rounds: u64,
}

impl Cost {
    /// The correlations that the server sends.
    pub fn from_server(&self) -> Drawn {
        Drawn { bits: self.bits_from_server, vectors: self.vectors_from_server }
    }

    /// The correlations that the client sends.
    pub fn from_client(&self) -> Drawn {
        Drawn { bits: self.bits_from_client, vectors: 0 }
    }

    /// The same with `bytes` of corrections sent offline ([`crate::Block::correct`]), which the server keeps until the
    /// run.
    #[must_use]
    pub(crate) fn with_early(self, bytes: u64) -> Self {
        Self {
            prepare_up: self.prepare_up + bytes,
            up: self.up - bytes,
            server_memory: self.server_memory + bytes,
            ..self
        }
    }

    /// Blocks that share their rounds.
    #[must_use]
    pub fn alongside(self, other: Self) -> Self {
        Self {
            client_rounds: self.client_rounds.max(other.client_rounds),
            server_rounds: self.server_rounds.max(other.server_rounds),
            ..self + other
        }
    }

    /// A layer in alternating flights, then `next`, which the server begins (an extension or truncation of values in a known range
    /// does): where the last message of the first is the server's too, both come at once and the client waits once
    /// less.
    pub fn then_server(self, next: Self) -> Self {
        // Flights alternate and the client sends the first: it waits as often as the server if the server sends the
        // last.
        let together = self.client_rounds > 0 && self.client_rounds == self.server_rounds;
        let mut all = self + next;
        all.client_rounds -= u64::from(together && next.client_rounds > 0);
        all
    }
}

impl Add for Cost {
    type Output = Self;

    /// One after the other.
    fn add(self, other: Self) -> Self {
        Self {
            vectors_from_server: self.vectors_from_server + other.vectors_from_server,
            bits_from_server: self.bits_from_server + other.bits_from_server,
            bits_from_client: self.bits_from_client + other.bits_from_client,
            client_memory: self.client_memory + other.client_memory,
            server_memory: self.server_memory + other.server_memory,
            prepare_up: self.prepare_up + other.prepare_up,
            prepare_down: self.prepare_down + other.prepare_down,
            up: self.up + other.up,
            down: self.down + other.down,
            client_rounds: self.client_rounds + other.client_rounds,
            server_rounds: self.server_rounds + other.server_rounds,
        }
    }
}

/// Rounds of the client and of the server in a run with so many alternating turns after corrections and tables.
pub(crate) fn rounds(count: usize, turns: usize) -> (u64, u64) {
    if count == 0 { (0, 0) } else { (1 + turns as u64 / 2, 1 + turns.div_ceil(2) as u64) }
}

/// `cost` with one round for either party, if there is anything to do.
pub(crate) fn in_one_round(count: usize, cost: Cost) -> Cost {
    let rounds = u64::from(count > 0);
    Cost { client_rounds: rounds, server_rounds: rounds, ..cost }
}
