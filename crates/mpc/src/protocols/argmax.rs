//! client: index of the largest <- Argmax(\[x\] mod 2^n), E logits, |x| < 2^(n−2). The server learns nothing,
//! and the client nothing else, not even the values.
//!
//! A tournament of ⌈log2 E⌉ levels over neighbours. Each comparison a ≥ b multiplies the difference of the
//! values and that of their positions, as in `mux.rs`, with one pair of COTs; the last level needs positions
//! only. At the end the server sends its share of the winner's position. Neighbours are compared in order and
//! a tie goes to the former, so **of equal largest logits the first wins**.
//!
//! Exact in the stated range. Exact figures: [`Nonlinear::cost`].

use std::collections::VecDeque;

use jaguar_ot::{CotSource, Role};
use jaguar_ring::cpu::secret::declassify;
use jaguar_wire::{Channel, WireError, pack};
use zeroize::Zeroizing;

use crate::block::{self, Block, Flights};
use crate::cost::Cost;
use crate::error::{MpcError, check_count, check_range};
use crate::gates::formula::Formula;
use crate::nonlinear::{Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::relu::ReluParams;
use crate::protocols::select::{self, Products, Run, Select};
use crate::protocols::selection::Selection;
use crate::shares::ring_mask;

/// Bits of a position among `count`.
fn index_bits(count: usize) -> u32 {
    (usize::BITS - count.saturating_sub(1).leading_zeros()).max(1)
}

/// Bytes of the server's last message.
fn index_bytes(count: usize) -> usize {
    pack::packed_len(1, index_bits(count))
}

/// Comparisons of every level, and the widths of what is multiplied.
fn levels(count: usize, bits: u32) -> Vec<(usize, Vec<u32>)> {
    let index = index_bits(count);
    let mut left = count;
    let mut levels = Vec::new();
    while left > 1 {
        let parts = if left == 2 { vec![index] } else { vec![index, bits] };
        levels.push((left / 2, parts));
        left = left.div_ceil(2);
    }
    levels
}

/// An argmax over a whole tensor, as a layer. It makes one value, the position, in the client's output alone: the
/// server's output is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgmaxParams {
    /// How many logits: 1..=2^31.
    pub count: usize,
    /// The shares come mod 2^`bits`: 3 to [`crate::WIDEST`].
    pub bits: u32,
    /// Bits per digit of the comparisons: 1..=4.
    pub digit: u32,
}

impl Nonlinear for ArgmaxParams {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::MaxPool
    }

    fn error(&self) -> f64 {
        0.0
    }

    fn check(&self) -> Result<(), MpcError> {
        ReluParams { digit: self.digit, ..ReluParams::new(self.bits) }.check()?;
        check_range("number of logits", u32::try_from(self.count).unwrap_or(u32::MAX), 1..=1 << 31)
    }

    fn cost(&self) -> Cost {
        let formula = self.formula();
        let mut all = select::tournament_cost(levels(self.count, self.bits).into_iter(), &formula);
        if self.count > 1 {
            all.down += index_bytes(self.count) as u64;
            // The index comes with the server's last message, unless the client spoke last.
            all.client_rounds += u64::from(formula.depth().is_multiple_of(2));
        }
        all
    }

    fn digit(&self) -> Option<u32> {
        Some(self.digit)
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Ok(vec![Argmax::prepare(party, chan, *self)?.0])
    }
}

impl ArgmaxParams {
    fn formula(&self) -> Formula {
        Formula::sign(self.bits, self.digit, 0)
    }
}

/// A prepared argmax, for one run.
pub struct Argmax(Block);

impl Argmax {
    /// Prepares one argmax.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        params: ArgmaxParams,
    ) -> Result<Self, MpcError> {
        params.check()?;
        let mut prepared = VecDeque::new();
        for (count, parts) in levels(params.count, params.bits) {
            let products = Products { parts, output: None, second: None };
            prepared.push_back(Select::prepare(party, chan, count, params.formula(), &products)?);
        }
        let race = Race {
            role: party.role(),
            params,
            // A level's last step is the next one's first.
            level_steps: prepared.front().map_or(0, |level| level.steps() - 1),
            last: prepared.front().map_or(0, |level| (level.steps() - 1) * prepared.len()),
            levels: prepared,
            level: None,
            values: Zeroizing::default(),
            positions: Zeroizing::default(),
        };
        Ok(Self(Block::new(0..params.count, 0..1, race)))
    }

    /// The position of the largest logit at the client, `None` at the server; `x` are this party's shares mod
    /// 2^bits.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Option<usize>, MpcError> {
        check_count("logits", x.len(), self.0.inputs().len())?;
        let position = block::run(vec![self.0], chan, x)?;
        Ok(position.first().map(|&position| position as usize))
    }

    /// Several of equally many logits, in the rounds of one: the positions at the client, none at the server; `x` are this party's shares
    /// of all logits, one after the other's. (Where there are more than eight, a slow link may add round trips.)
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_all(all: Vec<Self>, chan: &mut Channel, x: &[u64]) -> Result<Vec<usize>, MpcError> {
        let blocks = all.into_iter().enumerate().map(|(i, argmax)| argmax.0.at(i)).collect();
        let positions = block::run(blocks, chan, x)?;
        Ok(positions.into_iter().map(|position| position as usize).collect())
    }
}

/// The tournament, level by level, and then the winner's position for the client.
struct Race {
    role: Role,
    params: ArgmaxParams,
    /// Levels that have not begun.
    levels: VecDeque<Select>,
    /// The one under way.
    level: Option<Run>,
    /// Steps of a level that are its own.
    level_steps: usize,
    /// The step that ends the last level.
    last: usize,
    /// This party's shares of those still in the race, mod 2^bits; empty once only positions matter.
    values: Zeroizing<Vec<u64>>,
    /// And of their positions. At the end the winner's: the client's has the server's share added to it.
    positions: Zeroizing<Vec<u64>>,
}

impl Race {
    /// Begins the next level.
    fn begin(&mut self, select: Select) {
        let (bits, width) = (self.params.bits, index_bits(self.params.count));
        let last = self.values.len() == 2;
        let differences = |v: &[u64], bits| {
            let differences: Vec<u64> = v.chunks_exact(2).map(|pair| pair[0].wrapping_sub(pair[1])).collect();
            ring_mask(&differences, bits)
        };
        let (x, p) = (differences(&self.values, bits), differences(&self.positions, width));
        let parts = if last { vec![p] } else { vec![p, x.clone()] };
        self.level = Some(select.start(x, parts));
    }

    /// Takes over the winners of the level that ends.
    fn advance(&mut self, mut level: Run) {
        let (bits, width) = (self.params.bits, index_bits(self.params.count));
        let mut chosen = level.finish().values.into_iter();
        self.positions = advance(&self.positions, &chosen.next().expect("positions"), width);
        self.values = match chosen.next() {
            Some(chosen) => advance(&self.values, &chosen, bits),
            None => Zeroizing::default(),
        };
    }
}

impl Flights for Race {
    fn steps(&self) -> usize {
        // The client reads the winner's position in a step of its own.
        if self.params.count > 1 { self.last + 2 } else { 1 }
    }

    /// It has nothing to say early.
    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn start(&mut self, x: &[u64]) {
        self.values = ring_mask(x, self.params.bits);
        // Positions are public at first: the server's shares are they, the client's are zero.
        let own = u64::from(self.role == Role::Server);
        self.positions = Zeroizing::new((0..x.len() as u64).map(|i| i * own).collect());
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        if self.params.count == 1 {
            return Ok(());
        }
        let width = index_bits(self.params.count);
        if step > self.last {
            if self.role == Role::Client {
                let theirs = chan.recv_packed(1, width)?[0];
                let mut index = theirs.wrapping_add(self.positions[0]) & (u64::MAX >> (64 - width));
                // The answer, which is the client's to look at.
                declassify(std::slice::from_mut(&mut index));
                if index >= self.params.count as u64 {
                    let expected = format!("less than {}", self.params.count);
                    return Err(
                        WireError::misbehaved("position of the largest logit", index, expected).into()
                    );
                }
                self.positions[0] = index;
            }
            return Ok(());
        }
        if step.is_multiple_of(self.level_steps) {
            if let Some(mut level) = self.level.take() {
                level.step(chan, self.level_steps)?;
                self.advance(level);
            }
            if let Some(select) = self.levels.pop_front() {
                self.begin(select);
            }
        }
        match &mut self.level {
            Some(level) => level.step(chan, step % self.level_steps),
            None if self.role == Role::Server => {
                chan.send_packed(&self.positions, width)?;
                Ok(chan.flush()?)
            }
            None => Ok(()),
        }
    }

    /// Levels are small: one block, step by step.
    fn reads(&self, _: usize) -> Option<usize> {
        None
    }

    fn finish(&mut self) -> Vec<u64> {
        match self.role {
            Role::Client => std::mem::take(&mut self.positions),
            Role::Server => Vec::new(),
        }
    }
}

/// The next level's values: the second of each pair plus what was chosen of the difference, then the odd one.
fn advance(values: &[u64], chosen: &[u64], bits: u32) -> Zeroizing<Vec<u64>> {
    let pairs = values.chunks_exact(2);
    let odd = pairs.remainder();
    let next: Vec<u64> =
        pairs.zip(chosen).map(|(pair, c)| pair[1].wrapping_add(*c)).chain(odd.iter().copied()).collect();
    ring_mask(&next, bits)
}
