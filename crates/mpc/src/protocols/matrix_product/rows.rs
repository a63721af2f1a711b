//! \[x_ij·s_i / 2^s + ε\] mod 2^out <- RowProduct(\[x\], \[s\] mod 2^(out+s)): every row of values times a number of
//! that row, both shared. Public constants may be added to x and s first, as in a product of two values (`product.rs`).
//!
//! A row is a matrix of 1 × m, its number one of 1 × 1: a product of matrices (`super`) with a batch of as many as
//! there are rows. Its triple has a random number α_i and a random row β_ij, and γ_ij = α_i·β_ij, so α is masked and
//! opened once a row, not once a value. Both cross terms are made of full ciphertexts (`tiling.rs`): T ≤ K rows side by
//! side, or the numbers of T rows.
//!
//! ```text
//! the client's rows:     x̂[j·T + t] = β_tj    ŵ_t = α_t·X^(−t)                  (x̂·ŵ_t)[j·T] = α_t·β_tj
//! the client's numbers:  x̂[t] = α_t           ŵ_t[j·T − t] = β_tj, X^N = −1     (x̂·ŵ_t)[j·T] = α_t·β_tj
//! ```
//!
//! R such responses become one pack. Both terms lie alike, so that they are added up before: half the packs and key
//! switches.
//!
//! **Error, and who learns what**, as of a product of matrices: less than one ulp and no bias, and ε of 2^-10 ulp where
//! s ≥ 12. What the parties see is what they see there, of other matrices.
//!
//! *Beside a product value by value*, which takes 2L COTs and L·(L + 1) bits a value offline: for 197 rows of 192 and
//! L = 48 this takes 27 bytes a value offline, and keys that the query shares, instead of 294, and 6 each way online
//! instead of 12. Few or short rows are dearer, for keys and ciphertexts are of one size: [`RowProductParams::pays`].
//! Exact figures: [`Nonlinear::cost`].

use std::ops::Range;

use jaguar_ot::{CotSource, Role};
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use super::{MatrixProduct, MatrixProductParams, Run, SentKeys, prepared};
use crate::block::{self, Block, Flights};
use crate::cost::Cost;
use crate::error::MpcError;
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::product::ProductParams;
use crate::semantics::Matrices;

/// What a product of rows does. It takes pairs: a value and its row's number, then the next value, row by row. The
/// number is the same in all pairs of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowProductParams {
    /// Rings, shift, and what the server adds to values and to numbers first. `out_bits` is at most 39, with the shift
    /// at most 58.
    pub product: ProductParams,
    /// How many rows there are.
    pub rows: usize,
    /// How many values each has.
    pub columns: usize,
}

impl RowProductParams {
    /// The numbers, and behind them the rows.
    pub(super) fn matrices(&self) -> MatrixProductParams {
        let matrices =
            Matrices { batch: self.rows, rows: 1, inner: 1, columns: self.columns, transposed: [false; 2] };
        MatrixProductParams { out_bits: self.product.out_bits, shift: self.product.shift, matrices }
    }

    /// Whether the protocol takes these parameters, and is cheaper than a product value by value: in bytes before the
    /// input, with correlations and key switches counted as bytes.
    pub fn pays(&self) -> bool {
        let Ok((counts, Some(layout))) = self.matrices().sizes() else { return false };
        layout.pays(&Elementwise { count: counts[2], params: self.product }.cost())
    }
}

impl Nonlinear for RowProductParams {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    fn check(&self) -> Result<(), MpcError> {
        self.product.check()?;
        self.matrices().check()
    }

    fn cost(&self) -> Cost {
        self.matrices().cost()
    }

    fn answered(&self) -> u64 {
        self.matrices().answered()
    }

    fn known(&self, keys: &mut SentKeys) -> u64 {
        self.matrices().known(keys)
    }

    fn making_bytes(&self, threads: usize) -> [u64; 2] {
        self.matrices().making_bytes(threads)
    }

    fn error(&self) -> f64 {
        self.matrices().error()
    }

    /// All of it is one block.
    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        _: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        RowProduct::blocks(party, *self)
    }
}

/// A prepared product of rows by numbers, for one run.
///
/// ```
/// use jaguar_mpc::{Party, ProductParams, RowProduct, RowProductParams, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let product = ProductParams { out_bits: 16, shift: 12, offsets: [0; 2] };
/// let params = RowProductParams { product, rows: 1, columns: 2 };
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, pairs: [u64; 4]| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let product = RowProduct::prepare(&mut party, chan, params).unwrap();
///     let y = product.run(chan, &pairs).unwrap();
///     chan.flush().unwrap();
///     y
/// };
/// // (300, −8) times 3.5, where 4096 stands for one; the shares wrap mod 2^28.
/// let ring = 1 << 28;
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, [307, 14336 - 9, ring - 8, 14336 - 9]));
///     (one(Role::Client, &mut to_server, [ring - 7, 9, 0, 9]), server.join().unwrap())
/// });
/// let y: Vec<i64> = client.iter().zip(&server).map(|(c, s)| reference::open(*c, *s, 16)).collect();
/// assert!((y[0] - 1050).abs() <= 1 && (y[1] + 28).abs() <= 1);
/// ```
pub struct RowProduct {
    blocks: Vec<Block>,
}

impl RowProduct {
    /// Prepares a product, with keys of its own.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        params: RowProductParams,
    ) -> Result<Self, MpcError> {
        Ok(Self { blocks: prepared(party, chan, |party, _| Self::blocks(party, params))? })
    }

    /// To be completed.
    fn blocks<S: ?Sized + CotSource>(
        party: &Party<S>,
        params: RowProductParams,
    ) -> Result<Vec<Block>, MpcError> {
        params.check()?;
        let Some(run) = MatrixProduct::planned(party, params.matrices())? else { return Ok(Vec::new()) };
        let of = |range: Range<usize>, each: usize| each * range.start..each * range.end;
        let made = 0..run.counts[2];
        Ok(vec![Block::new(of(made.clone(), 2), made, Rows { run, params })])
    }

    /// This party's shares mod 2^out of x·s / 2^shift, rounded up or down, row by row; `pairs` are its shares mod
    /// 2^(out + shift) of each value and of its row's number (higher bits are ignored). The server's last message may
    /// remain in the channel's buffer. Steps are those of a product of matrices ([`MatrixProduct::run`]).
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, pairs: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, pairs)
    }
}

/// The run of all of it.
pub(super) struct Rows {
    pub run: Run,
    pub params: RowProductParams,
}

impl Flights for Rows {
    fn steps(&self) -> usize {
        self.run.steps()
    }

    fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.run.complete(chan)
    }

    fn settle(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.run.settle(chan)
    }

    fn start(&mut self, pairs: &[u64]) {
        let RowProductParams { product, rows, columns } = self.params;
        // (Constants are the server's to add.)
        let [x, s] = match self.run.opening.role {
            Role::Server => product.offsets.map(|offset| offset as u64),
            Role::Client => [0; 2],
        };
        let mut values = Zeroizing::new(Vec::with_capacity(rows + rows * columns));
        values.extend(pairs.chunks_exact(2 * columns).map(|row| row[1].wrapping_add(s)));
        values.extend(pairs.chunks_exact(2).map(|pair| pair[0].wrapping_add(x)));
        self.run.start(&values);
    }

    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        self.run.correct(chan, x)
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        self.run.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        self.run.reads(step)
    }

    fn finish(&mut self) -> Vec<u64> {
        self.run.finish()
    }
}
