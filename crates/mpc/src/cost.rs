//! What every protocol costs, before it is run. Tests assert that runs cost exactly this.

use std::ops::Add;

pub use jaguar_ot::extension_bytes;

use jaguar_ot::Role;

use crate::evaluate::stride;
use crate::extend::{ExtendParams, Range};
use crate::formula::{And, Formula};
use crate::lanes::{Lanes, groups, plane_bytes};
use crate::maxpool::{PoolParams, PoolShape};
use crate::relu::ReluParams;
use crate::relu6::Relu6Params;
use crate::select::Shape;
use crate::truncate::TruncateParams;
use crate::{argmax, bit, extend, maxpool, mux, select};

/// COTs, bytes, memory and rounds of one prepared batch and its run. What making the COTs themselves sends
/// is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// COTs with the server as the sender.
    pub cots_from_server: u64,
    /// COTs with the client as the sender.
    pub cots_from_client: u64,
    /// Bytes that the client keeps between preparation and run.
    pub client_memory: u64,
    /// Bytes that the server keeps between preparation and run.
    pub server_memory: u64,
    /// Bytes from the client to the server in preparation: early corrections only.
    pub prepare_up: u64,
    /// Bytes from the server to the client in preparation.
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
    /// The same with `bytes` of corrections sent in preparation ([`crate::Block::correct`]), which the server keeps until the
    /// run.
    #[must_use]
    pub fn with_early(self, bytes: u64) -> Self {
        Self {
            prepare_up: self.prepare_up + bytes,
            up: self.up - bytes,
            server_memory: self.server_memory + bytes,
            ..self
        }
    }

    /// One of [`relu`] or [`relu6`], then `next`, which the server begins ([`extend`] and [`truncate`] of values in a known
    /// range do): where the last message of the first is the server's too, both come at once and the client waits once less.
    pub fn then_server(self, next: Self) -> Self {
        // Flights alternate and the client sends the first: it waits as often as the server if the server sends the last.
        let together = self.client_rounds > 0 && self.client_rounds == self.server_rounds;
        let mut all = self + next;
        all.client_rounds -= u64::from(together && next.client_rounds > 0);
        all
    }
}

/// What making `count` COTs sends in the long run, rounded down.
pub fn mean_extension_bytes(count: u64) -> u64 {
    (count as f64 * jaguar_ot::mean_extension_bytes()) as u64
}

impl Add for Cost {
    type Output = Self;

    /// One after the other.
    fn add(self, other: Self) -> Self {
        Self {
            cots_from_server: self.cots_from_server + other.cots_from_server,
            cots_from_client: self.cots_from_client + other.cots_from_client,
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

/// Rounds of a run with so many alternating turns after corrections and tables.
pub(crate) fn rounds(count: usize, turns: usize) -> (u64, u64) {
    if count == 0 { (0, 0) } else { (1 + turns as u64 / 2, 1 + turns.div_ceil(2) as u64) }
}

/// Digits and gates, without rounds.
pub(crate) fn of_formula(count: usize, formula: &Formula) -> Cost {
    let ands = formula.circuit.ands().count();
    let opened: usize = formula.circuit.ands().map(And::opened).sum();
    let memory = |role| (groups(count) * stride(formula, role) * size_of::<Lanes>()) as u64;
    Cost {
        cots_from_server: ((formula.corrections() + ands) * count) as u64,
        cots_from_client: (ands * count) as u64,
        client_memory: memory(Role::Client),
        server_memory: memory(Role::Server),
        up: plane_bytes(count, formula.corrections() + opened) as u64,
        down: plane_bytes(count, formula.message_planes() + opened) as u64,
        ..Cost::default()
    }
}

fn comparison(count: usize, formula: &Formula) -> Cost {
    let (client_rounds, server_rounds) = rounds(count, formula.depth());
    Cost { client_rounds, server_rounds, ..of_formula(count, formula) }
}

/// [`crate::LessThan`] on `count` numbers of `bits` bits in digits of `digit`.
pub fn less_than(count: usize, bits: u32, digit: u32) -> Cost {
    comparison(count, &Formula::less(bits, digit))
}

/// [`crate::NonNegative`] on `count` values mod 2^`bits` in digits of `digit`.
pub fn non_negative(count: usize, bits: u32, digit: u32) -> Cost {
    comparison(count, &Formula::sign(bits, digit, 0))
}

/// [`crate::Relu`].
pub fn relu(count: usize, params: &ReluParams) -> Cost {
    select::cost(count, &params.formula(), &params.shape())
}

/// What of [`relu`]'s bytes can be sent early.
pub fn relu_correction(count: usize, params: &ReluParams) -> u64 {
    select::correction_bytes(count, &params.formula(), &params.shape()) as u64
}

/// What of [`relu6`]'s bytes can be sent early.
pub fn relu6_correction(count: usize, params: &Relu6Params) -> u64 {
    select::correction_bytes(count, &params.formula(), &params.shape()) as u64
}

/// What of [`maxpool`]'s bytes can be sent early: the first level's.
pub fn maxpool_correction(shape: &PoolShape, params: &PoolParams) -> u64 {
    let relu = params.relu();
    let first = |block: Vec<usize>| block.first().map_or(0, |&count| relu_correction(count, &relu));
    maxpool::level_counts(shape).into_iter().map(first).sum()
}

/// [`crate::Relu6`].
pub fn relu6(count: usize, params: &Relu6Params) -> Cost {
    select::cost(count, &params.formula(), &params.shape())
}

/// One round for both, if there is anything to do.
fn once(count: usize, cost: Cost) -> Cost {
    let rounds = u64::from(count > 0);
    Cost { client_rounds: rounds, server_rounds: rounds, ..cost }
}

/// [`crate::Extend`].
pub fn extend(count: usize, params: &ExtendParams) -> Cost {
    match params.range {
        Range::Signed | Range::NonNegative => {
            once(count, extend::cost(count, 1, params.bits, params.out_bits))
        }
        Range::Full { digit } => extend::full_cost(count, digit, params.bits, params.out_bits),
    }
}

/// [`crate::Truncate`].
pub fn truncate(count: usize, params: &TruncateParams) -> Cost {
    params.extension().map_or_else(Cost::default, |extension| extend(count, &extension))
}

/// [`crate::Mux`] mod 2^`bits`.
pub fn mux(count: usize, bits: u32) -> Cost {
    let opened = plane_bytes(count, 1) as u64;
    let cost = mux::cost(count, &[bits]);
    once(count, Cost { up: cost.up + opened, down: cost.down + opened, ..cost })
}

/// [`crate::BitToArithmetic`] to shares mod 2^`bits`.
pub fn bit_to_arithmetic(count: usize, bits: u32) -> Cost {
    let opened = plane_bytes(count, 1) as u64;
    once(count, Cost { up: opened, down: opened, ..bit::cost(count, bits) })
}

/// A tournament: so many elements with such parts, level after level.
fn tournament(levels: impl Iterator<Item = (usize, Vec<u32>)>, formula: &Formula) -> Cost {
    let mut all = Cost::default();
    for (count, parts) in levels.filter(|(count, _)| *count > 0) {
        let between = all.server_rounds > 0 && formula.depth().is_multiple_of(2);
        all = all + select::cost(count, formula, &Shape { parts, out_bits: None, second: None });
        // The client's last message of one level comes along with its first of the next.
        all.server_rounds -= u64::from(between);
    }
    all
}

/// [`crate::MaxPool`], for a shape that it accepts.
pub fn maxpool(shape: &PoolShape, params: &PoolParams) -> Cost {
    let formula = params.relu().formula();
    // The blocks of channels share their rounds.
    let block =
        |counts: Vec<usize>| tournament(counts.into_iter().map(|count| (count, vec![params.bits])), &formula);
    maxpool::level_counts(shape).into_iter().map(block).fold(Cost::default(), |all, block| Cost {
        client_rounds: all.client_rounds.max(block.client_rounds),
        server_rounds: all.server_rounds.max(block.server_rounds),
        ..all + block
    })
}

/// [`crate::Argmax`] over `count` values mod 2^`bits` in digits of `digit`.
pub fn argmax(count: usize, bits: u32, digit: u32) -> Cost {
    let formula = Formula::sign(bits, digit, 0);
    let mut all = tournament(argmax::levels(count, bits).into_iter(), &formula);
    if count > 1 {
        all.down += argmax::index_bytes(count) as u64;
        // The index comes with the server's last message, unless the client spoke last.
        all.client_rounds += u64::from(formula.depth().is_multiple_of(2));
    }
    all
}
