//! A comparison, and values multiplied by its result: the common body of ReLU, ReLU6 and the tournaments.
//!
//! Flights, for a formula with L levels of gates (turn L + 1 opens the bits of the multiplication):
//!
//! | flight | from | carries |
//! |---|---|---|
//! | 1 | client | corrections of the digits; ε of its shares |
//! | 2 | server | tables; ε of its shares; choices of the extension; its half of turn 1 |
//! | 3 | client | the extension's d; its halves of turns 1 and 2 |
//! | 4 | server | its halves of turns 2 and 3 |
//! | … | | |
//!
//! so with L = 2 the client has its result after flight 4 and its last message, half of turn 3, rides along
//! with whatever it sends next. Only the turns depend on the comparison's result: the products β·x and, where
//! a larger ring is asked for, the extensions of both values that b·x may have (β·x for c = 0, x − β·x for c
//! = 1; the right one is in the extension's range) are ready before.

use jaguar_ot::{CotSource, Role};
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::error::check_count;
use crate::evaluate::{self, ClientStarted, Running, exchange};
use crate::formula::Formula;
use crate::kernel::Level;
use crate::lanes::plane_bytes;
use crate::mux::{self, add_plane, choose, plane_to_bytes};
use crate::party::Party;
use crate::{Cost, MpcError, bit, cost, extend};

/// What follows the comparison.
pub(crate) struct Shape {
    /// Widths of the values multiplied by the first result.
    pub(crate) parts: Vec<u32>,
    /// The first of them leaves in shares of so many bits, if more.
    pub(crate) out_bits: Option<u32>,
    /// The second result leaves in arithmetic shares of so many bits.
    pub(crate) second: Option<u32>,
}

/// A run's results.
pub(crate) struct Selected {
    /// The products with the first result.
    pub(crate) values: Vec<Vec<u64>>,
    /// The second result.
    pub(crate) second: Option<Vec<u64>>,
}

/// Prepared material.
pub(crate) struct Select {
    role: Role,
    level: Level,
    count: usize,
    compare: evaluate::Prepared,
    mux: mux::Prepared,
    parts: usize,
    extend: Option<extend::Prepared>,
    second: Option<bit::Prepared>,
}

/// What preparation and run cost.
pub(crate) fn cost(count: usize, formula: &Formula, shape: &Shape) -> Cost {
    let mut all = cost::of_formula(count, formula) + mux::cost(count, &shape.parts);
    if let Some(out_bits) = shape.out_bits {
        all = all + extend::cost(count, 2, shape.parts[0], out_bits);
    }
    if let Some(bits) = shape.second {
        all = all + bit::cost(count, bits);
    }
    let opened = plane_bytes(count, 1 + usize::from(shape.second.is_some())) as u64;
    let (client_rounds, server_rounds) = cost::rounds(count, formula.depth() + 1);
    Cost { up: all.up + opened, down: all.down + opened, client_rounds, server_rounds, ..all }
}

impl Select {
    pub(crate) fn prepare<S: CotSource>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        formula: Formula,
        shape: &Shape,
    ) -> Result<Self, MpcError> {
        Ok(Self {
            role: party.role(),
            level: party.level,
            count,
            compare: evaluate::Prepared::new(party, chan, count, formula)?,
            mux: mux::Prepared::new(party, chan, count, &shape.parts)?,
            parts: shape.parts.len(),
            extend: match shape.out_bits {
                Some(out) => Some(extend::Prepared::new(party, chan, count, 2, (shape.parts[0], out))?),
                None => None,
            },
            second: match shape.second {
                Some(bits) => Some(bit::Prepared::new(party, chan, count, bits)?),
                None => None,
            },
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Compares the shared `x` and multiplies every part of `values`.
    pub(crate) fn run(self, chan: &mut Channel, x: &[u64], values: &[&[u64]]) -> Result<Selected, MpcError> {
        check_count("shares", x.len(), self.count)?;
        assert!(values.len() == self.parts && values.iter().all(|v| v.len() == self.count), "one per part");
        match self.role {
            Role::Client => self.client(chan, x, values),
            Role::Server => self.server(chan, x, values),
        }
    }

    fn client(self, chan: &mut Channel, x: &[u64], values: &[&[u64]]) -> Result<Selected, MpcError> {
        // 1. Corrections of the digits, and of the multiplications.
        let started: ClientStarted = self.compare.client_start(chan, x)?;
        for (p, value) in values.iter().enumerate() {
            self.mux.send_corrections(chan, p, value)?;
        }
        // 2. The server's tables and corrections, and its choices in the extension.
        let running = started.take(chan)?;
        let mut candidates = Vec::new();
        for (p, value) in values.iter().enumerate() {
            let products = self.mux.recv_products(chan, p, value)?;
            candidates.push(self.mux.candidates(p, value, products));
        }
        let planes = self.extend.as_ref().map(|extend| extend.client_recv(chan)).transpose()?;
        // 3. The turns; the answer to the extension goes out with the first.
        let extend = self.extend;
        turns(chan, self.role, running, &self.mux, self.second, self.level, candidates, |chan, candidates| {
            match (extend, planes) {
                (Some(extend), Some(planes)) => extend.client_answer(chan, &planes, candidates).map(Some),
                _ => Ok(None),
            }
        })
    }

    fn server(self, chan: &mut Channel, x: &[u64], values: &[&[u64]]) -> Result<Selected, MpcError> {
        // 1 and 2. Batch by batch: the client's corrections, the tables.
        let running = self.compare.server_serve(chan, x)?;
        let mut candidates = Vec::new();
        for (p, value) in values.iter().enumerate() {
            let products = self.mux.recv_products(chan, p, value)?;
            candidates.push(self.mux.candidates(p, value, products));
        }
        for (p, value) in values.iter().enumerate() {
            self.mux.send_corrections(chan, p, value)?;
        }
        if let Some(extend) = &self.extend {
            extend.server_send(chan, &candidates[0])?;
        }
        // 3. The turns; the client's answer to the extension comes with its first half.
        let extend = self.extend;
        turns(chan, self.role, running, &self.mux, self.second, self.level, candidates, |chan, candidates| {
            match extend {
                Some(extend) => extend.server_finish(chan, candidates).map(Some),
                None => Ok(None),
            }
        })
    }
}

type Candidates = [Zeroizing<Vec<u64>>; 2];

/// The gates' turns and the last one, which opens c = b ⊕ β; then every value is picked by its c.
#[allow(clippy::too_many_arguments)] // the fields of a `Select` that outlive its first steps
fn turns(
    chan: &mut Channel,
    role: Role,
    mut running: Running,
    mux: &mux::Prepared,
    second: Option<bit::Prepared>,
    level: Level,
    mut candidates: Vec<Candidates>,
    extend: impl FnOnce(&mut Channel, &Candidates) -> Result<Option<Vec<Zeroizing<Vec<u64>>>>, MpcError>,
) -> Result<Selected, MpcError> {
    let count = candidates[0][0].len();
    let mut extend = Some(extend);
    let mut extended = None;
    let first = &candidates[0];
    let mut between = |chan: &mut Channel| {
        if let Some(extend) = extend.take() {
            extended = extend(chan, first)?;
        }
        Ok(())
    };
    let levels = running.levels_left();
    for turn in 1..=levels {
        let mine = running.opening();
        let theirs = exchange(chan, role, turn, &mine, &mut between)?;
        running.close(&theirs);
    }
    let results = running.results();
    let mut c = mux.opening(&results[0]);
    let mut c2 = second.as_ref().map(|second| second.opening(&results[1]));
    let mut mine = plane_to_bytes(&c, count);
    mine.extend(c2.iter().flat_map(|c2| plane_to_bytes(c2, count)));
    let theirs = exchange(chan, role, levels + 1, &mine, &mut between)?;
    let mut theirs = &theirs[..];
    add_plane(&mut c, count, &mut theirs);
    if let Some(c2) = &mut c2 {
        add_plane(c2, count, &mut theirs);
    }
    // The client's last half may wait for what it sends next; the server has nothing to send by itself.
    if role == Role::Server {
        chan.flush()?;
    }
    if let Some(extended) = extended {
        candidates[0] = extended.try_into().unwrap_or_else(|_| unreachable!("two candidates went in"));
    }
    Ok(Selected {
        values: candidates.into_iter().map(|pair| choose(level, pair, &c)).collect(),
        second: second.zip(c2).map(|(second, c2)| second.finish(&c2)),
    })
}
