//! \[Σ_j x_ij² / 2^s + ε\] mod 2^out <- SquaredRows(\[x\] mod 2^(out+s)): of every row of values the sum of their squares,
//! as a norm takes it. The sum is rounded, not each square.
//!
//! Let L = out + s. A row is a matrix of 1 × k and its transposed one of k × 1, so it is a product of matrices (`super`)
//! with one mask: a random row α_i and γ_i = Σ_j α_ij² mod 2^L are prepared, both shared. Online both open D = X − α: **one
//! turn**, L bits each way a value. Then Σ x² = Σ d² + 2·Σ d·α + γ, where only the server adds Σ d².
//!
//! *The pairs*, offline: Σ α² = Σ α_c² + Σ α_s² + Σ α_c·(2·α_s), and only the last needs both parties. It is made in
//! one of two ways, whichever is cheaper by public sizes ([`SquaredRowsParams::is_encrypted`]):
//!
//! - *by ciphertexts*: the one cross term of α_c and 2·α_s as in a product of matrices, a row's number each. T rows
//!   share a ciphertext, and R answers a pack (`tiling.rs`).
//! - *value by value*: [`Cross`] with w = 1, as a square does (`square.rs`), and each party adds its shares up.
//!
//! **Error.** Less than one ulp and no bias, as of a truncation; by ciphertexts, and ε of 2^-11 ulp where s ≥ 12 (2/2^s
//! below): one cross term's, half of what a product of matrices has. So a multiple of 2^s may become a neighbour, in
//! particular zero −1. The result is wrong by a multiple of 2^out where the sum / 2^s does not fit into out bits.
//!
//! **Who learns what.** *By ciphertexts*, what the parties see is what they see in a product of matrices, of fewer
//! messages. D is masked by the peer's half of α, uniform mod 2^L and used once; the client's share of γ is uniform in
//! the upper out + min(s, 12) bits: by the packs' b halves, which come of a seed. *Value by value* its lowest bit is that of Σ α_c, for 2·α_c·α_s
//! is even: a sum of halves that are uniform and hidden from the server; all above it is uniform. `tiny.rs` counts all
//! views of a row of two. Semi-honest.
//!
//! For 197 rows of 192 and L = 48: 0.3 MiB offline, keys that the query shares left out, and 0.22 MiB each way
//! online. Value by value it were 5.1 MiB and 1.8 million COTs. Exact figures: [`Nonlinear::cost`].

use jaguar_ot::{CotSource, Role};
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use super::kernel::add_products;
use super::tiling::Layout;
use super::tools::Words;
use super::triple::{Triple, making_bytes};
use super::{Material, MatrixProductParams, SLACK, SentKeys, prepared};
use crate::block::{self, Block, Flights, ranges};
use crate::cost::{self, Cost};
use crate::error::{MpcError, check_range};
use crate::nonlinear::{Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::cross::Cross;
use crate::protocols::opening::Opening;
use crate::protocols::product::ProductParams;
use crate::semantics::Matrices;

/// What sums of squares do. They take the values row by row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SquaredRowsParams {
    /// The results are shares mod 2^`out_bits`: 3 to 39.
    pub out_bits: u32,
    /// How many bits of each sum are cut off: 1 or more, with `out_bits` at most 63. The values are shares mod
    /// 2^(`out_bits` + `shift`).
    pub shift: u32,
    /// How many rows there are.
    pub rows: usize,
    /// How many values each has: one or more.
    pub columns: usize,
}

/// L at most.
const WIDEST: u32 = 63;

impl SquaredRowsParams {
    /// As of a product of two values.
    pub(super) const fn rounding(&self) -> ProductParams {
        ProductParams { out_bits: self.out_bits, shift: self.shift, offsets: [0; 2] }
    }

    /// Rows by themselves, as matrices.
    pub(super) const fn matrices(&self) -> Matrices {
        Matrices { batch: self.rows, rows: 1, inner: self.columns, columns: 1, transposed: [false; 2] }
    }

    /// Of the only term that takes both parties, value by value.
    const fn cross(&self) -> Cross {
        Cross { ring: self.rounding().ring_bits(), doubled: 1 }
    }

    /// How many values there are.
    fn count(&self) -> Result<usize, MpcError> {
        check_range("width of a sum of squares", self.out_bits, 3..=39)?;
        check_range("number of bits cut off a sum of squares", self.shift, 1..=WIDEST - self.out_bits)?;
        let most = MatrixProductParams::MOST_VALUES;
        self.rows
            .checked_mul(self.columns)
            .filter(|&count| self.columns > 0 && count.max(self.columns) <= most)
            .ok_or_else(|| {
                let found = format!("{} rows of {}", self.rows, self.columns);
                MpcError::misuse("values of rows", found, format!("one each, and {most} in all at most"))
            })
    }

    /// How the rows lie in ciphertexts, where they may.
    fn layout(&self) -> Option<Layout> {
        let ring = self.rounding().ring_bits();
        let terms = [[self.rows, 1, self.columns, 1]];
        let fits = self.rows > 0 && ring <= MatrixProductParams::WIDEST;
        fits.then(|| Layout::of_terms(&terms, ring, self.out_bits + self.shift.min(SLACK)))?
    }

    /// What the preparation takes value by value.
    fn one_by_one(&self, count: usize) -> Cost {
        let sent = ranges(count).map(|range| self.cross().sent(range.len()) as u64).sum();
        let bits_from_server = u64::from(self.rounding().ring_bits()) * count as u64;
        Cost { bits_from_server, prepare_down: sent, ..Cost::default() }
    }

    /// How the rows lie in ciphertexts, where that is cheaper than to take value by value: in bytes before the input, with
    /// correlations and key switches counted as bytes.
    pub(super) fn encrypted(&self) -> Option<Layout> {
        let other = self.one_by_one(self.count().ok()?);
        let layout = self.layout()?;
        layout.pays(&other).then_some(layout)
    }

    /// Rounding, and the cross term's error if it is made by ciphertexts.
    pub(super) fn error_of(&self, encrypted: bool) -> f64 {
        let below = 2.0 * 2f64.powi(-(self.shift.min(SLACK) as i32));
        1.0 + if encrypted { below } else { 0.0 }
    }

    /// Whether the pairs are made by ciphertexts.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted().is_some()
    }
}

impl Nonlinear for SquaredRowsParams {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    fn check(&self) -> Result<(), MpcError> {
        self.count().map(|_| ())
    }

    fn cost(&self) -> Cost {
        let Ok(count) = self.count() else { return Cost::default() };
        let prepared = match self.encrypted() {
            Some(layout) => layout.cost(),
            None => self.one_by_one(count),
        };
        let opened = pack::packed_len(count, self.rounding().ring_bits()) as u64;
        let kept = ((count + self.rows) * size_of::<u64>()) as u64;
        let own = Cost { client_memory: kept, server_memory: kept, up: opened, down: opened, ..prepared };
        cost::in_one_round(count, own)
    }

    fn answered(&self) -> u64 {
        self.encrypted().map_or(0, |layout| layout.cost().prepare_down)
    }

    fn known(&self, keys: &mut SentKeys) -> u64 {
        self.encrypted().map_or(0, |layout| keys.known(&layout))
    }

    fn making_bytes(&self, threads: usize) -> [u64; 2] {
        self.encrypted().map_or([0; 2], |layout| making_bytes(&layout, &self.matrices(), threads))
    }

    fn error(&self) -> f64 {
        self.error_of(self.is_encrypted())
    }

    /// All of it is one block.
    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        SquaredRows::blocks(party, chan, *self)
    }
}

/// Prepared sums of squares, for one run.
///
/// ```
/// use jaguar_mpc::{Party, SquaredRows, SquaredRowsParams, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let params = SquaredRowsParams { out_bits: 16, shift: 12, rows: 1, columns: 2 };
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, values: [u64; 2]| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let squares = SquaredRows::prepare(&mut party, chan, params).unwrap();
///     let y = squares.run(chan, &values).unwrap()[0];
///     chan.flush().unwrap();
///     y
/// };
/// // 300·300 + 1000·1000 = 1090000, over 4096; the shares wrap mod 2^28.
/// let ring = 1 << 28;
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, [307, 1009]));
///     (one(Role::Client, &mut to_server, [ring - 7, ring - 9]), server.join().unwrap())
/// });
/// assert!([266, 267].contains(&reference::open(client, server, 16)));
/// ```
pub struct SquaredRows {
    blocks: Vec<Block>,
}

impl SquaredRows {
    /// Prepares them, with keys of their own.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        params: SquaredRowsParams,
    ) -> Result<Self, MpcError> {
        Ok(Self { blocks: prepared(party, chan, |party, chan| Self::blocks(party, chan, params))? })
    }

    /// To be completed.
    fn blocks<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        params: SquaredRowsParams,
    ) -> Result<Vec<Block>, MpcError> {
        let count = params.count()?;
        if params.rows == 0 {
            return Ok(Vec::new());
        }
        let material = match params.encrypted() {
            Some(layout) => Material::planned(party, layout),
            None => Material::Made(value_by_value(party, chan, count, &params)?),
        };
        let bits = params.rounding().ring_bits();
        let opening = Opening { role: party.role(), bits, values: Vec::new() };
        Ok(vec![Block::new(0..count, 0..params.rows, Run { params, material, opening })])
    }

    /// This party's shares mod 2^out of the rows' sums of squares / 2^s, rounded up or down; `values` are its shares mod
    /// 2^(out + s) (higher bits are ignored). The server's last message may remain in the channel's buffer.
    ///
    /// 1. C: sends its share of D = X − α.
    /// 2. S: sends its own.
    /// 3. Both: 2·Σ d·α + γ, and S adds Σ d². Each party shifts by itself.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, values: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, values)
    }
}

/// α and γ, of which γ = Σ α² of this party's halves alone. (Higher bits of γ are to be ignored.)
fn alone(a: Words, params: &SquaredRowsParams) -> Triple {
    let mut c = Zeroizing::new(vec![0; params.rows]);
    add_products(&params.matrices(), &a, &a, &mut c);
    Triple { a, c, ..Triple::default() }
}

/// The pairs, by a cross term for each value.
fn value_by_value<S: CotSource + ?Sized>(
    party: &mut Party<S>,
    chan: &mut Channel,
    count: usize,
    params: &SquaredRowsParams,
) -> Result<Triple, MpcError> {
    let words = || Zeroizing::new(vec![0u64; count]);
    let (mut a, mut shares) = (words(), words());
    for range in ranges(count) {
        params.cross().prepare(party, chan, &mut a[range.clone()], &mut shares[range])?;
    }
    // The client waits for this.
    chan.flush()?;
    let mut triple = alone(a, params);
    for (sum, row) in triple.c.iter_mut().zip(shares.chunks(params.columns)) {
        *sum = row.iter().fold(*sum, |sum, share| sum.wrapping_add(*share));
    }
    Ok(triple)
}

/// What the one cross term takes of the server: 2·α_s. (Of the client it takes α_c.)
pub(super) fn doubled(alpha: &[u64], ring: u32) -> Words {
    Zeroizing::new(alpha.iter().map(|a| a << 1 & (u64::MAX >> (64 - ring))).collect())
}

/// This party's shares of the rounded sums, of D that was opened, its α, and its γ.
pub(super) fn summed(
    params: &SquaredRowsParams,
    opening: &Opening,
    mut alpha: Words,
    mut gamma: Words,
) -> Vec<u64> {
    let own = if opening.role == Role::Server { u64::MAX } else { 0 };
    // 2·α, and d is the server's to add.
    alpha.iter_mut().zip(&opening.values).for_each(|(a, d)| *a = (*a << 1).wrapping_add(d & own));
    add_products(&params.matrices(), &opening.values, &alpha, &mut gamma);
    let rounding = params.rounding();
    gamma.iter().map(|&share| rounding.shifted(opening.role, share)).collect()
}

/// The run of all of it.
pub(super) struct Run {
    pub params: SquaredRowsParams,
    pub material: Material,
    /// Of D.
    pub opening: Opening,
}

impl Flights for Run {
    fn steps(&self) -> usize {
        Opening::STEPS
    }

    fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        let (params, role) = (self.params, self.opening.role);
        let ring = params.rounding().ring_bits();
        let drawn = |prg: &mut Prg| {
            let mut a = Zeroizing::new(vec![0; params.rows * params.columns]);
            prg.fill_words(&mut a, ring);
            alone(a, &params)
        };
        let factors = |triple: &Triple| vec![doubled(&triple.a, ring)];
        let of_factors = |mut factors: Vec<Words>| alone(factors.pop().unwrap_or_default(), &params);
        self.material.complete(role, &params.matrices(), drawn, factors, of_factors, chan)
    }

    fn settle(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.material.settle(&self.params.matrices(), chan)
    }

    fn start(&mut self, values: &[u64]) {
        // (A step without a triple is refused.)
        let Material::Made(Triple { a, .. }) = &self.material else { return };
        self.opening.mask(values.iter().copied(), a);
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        self.material.triple()?;
        self.opening.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        Some(self.opening.reads(self.params.rows * self.params.columns, step))
    }

    fn finish(&mut self) -> Vec<u64> {
        let Material::Made(Triple { a, c, .. }) = &mut self.material else { return Vec::new() };
        summed(&self.params, &self.opening, std::mem::take(a), std::mem::take(c))
    }
}
