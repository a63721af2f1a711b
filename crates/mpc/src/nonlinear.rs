//! What a nonlinear layer is to those who plan and run networks: a value that can be checked, priced and prepared.
//!
//! A layer holds its public parameters only, the same at both parties. [`Nonlinear::prepare`] makes this party's
//! secret material of it, once for every query, as [`Block`]s to be run step by step. Each protocol implements the
//! trait in its own file under `protocols/`; whoever plans or runs a network asks the trait and never which protocol
//! it is.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use jaguar_ot::CotSource;
use jaguar_wire::Channel;

use crate::block::Block;
use crate::cost::Cost;
use crate::error::MpcError;
use crate::party::Party;
use crate::protocols::matrix_product::SentKeys;

/// Which measured figures tell a layer's time: layers of one kind and digit take about as long for each COT and each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonlinearKind {
    /// max(x, 0).
    Relu,
    /// x clipped.
    Relu6,
    /// A tournament: the largest of each window, or of all values.
    MaxPool,
    /// A wider ring for the same value, and the truncation that needs one.
    Extension,
    /// A product of two shared values.
    Product,
    /// A public curve in pieces.
    Curve,
}

impl NonlinearKind {
    /// All kinds, in the order of their numbers (`kind as usize`).
    pub const ALL: [Self; 6] =
        [Self::Relu, Self::Relu6, Self::MaxPool, Self::Extension, Self::Product, Self::Curve];
}

/// A nonlinear layer: public parameters, its size included.
///
/// ```
/// use jaguar_mpc::{Elementwise, Nonlinear, ReluParams};
///
/// let relu: &dyn Nonlinear = &Elementwise { count: 1 << 20, params: ReluParams::new(16) };
/// assert!(relu.check().is_ok());
/// let cost = relu.cost();
/// assert_eq!((cost.up + cost.down) >> 20, 15);
/// // The client's part of it can travel before the input, where its share is known by then.
/// assert_eq!(relu.cost_corrected_early().up + relu.correction_bytes(), cost.up);
/// ```
pub trait Nonlinear: Any + Debug + Send + Sync {
    /// Which measured figures tell its time.
    fn kind(&self) -> NonlinearKind;

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// [`MpcError::Misuse`] when one is out of its range.
    fn check(&self) -> Result<(), MpcError>;

    /// COTs, bytes, memory and rounds of one preparation and its run; for parameters that [`Nonlinear::check`] accepts.
    fn cost(&self) -> Cost;

    /// The largest difference from what it computes exactly, in units of its results' last place: 0 is exact.
    fn error(&self) -> f64;

    /// Bytes of [`Nonlinear::cost`] that the client can send offline where it knows its share of the input by then
    /// ([`Block::correct`]). Zero where the protocol has nothing to say early.
    fn correction_bytes(&self) -> u64 {
        0
    }

    /// [`Nonlinear::cost`] when all blocks are corrected early.
    fn cost_corrected_early(&self) -> Cost {
        self.cost().with_early(self.correction_bytes())
    }

    /// How many bits the client may promise to draw before it sends anything else ([`Party::promise`]): all of one
    /// preparation. None where it sends something in between, which no layer of this crate does.
    fn promise(&self) -> u64 {
        self.cost().bits_from_client
    }

    /// Bytes that the server sends when both call [`Block::complete`], and the client receives in [`Block::settle`].
    fn answered(&self) -> u64 {
        0
    }

    /// Bytes of [`Cost::prepare_up`] that are not sent behind layers of the same query, for these `keys` were. All of
    /// its own are there from then on.
    fn known(&self, _keys: &mut SentKeys) -> u64 {
        0
    }

    /// Bytes that the client and the server hold at most while it is prepared on so many threads, besides what
    /// [`Nonlinear::cost`] says they keep and correlations. Zero where that is a block's.
    fn making_bytes(&self, _threads: usize) -> [u64; 2] {
        [0; 2]
    }

    /// Bits per digit of its comparisons (1..=4); `None` where it compares nothing by digits.
    fn digit(&self) -> Option<u32> {
        None
    }

    /// The same layer whose signs or comparisons ignore the lowest `ignored` bits; `None` where it has none that could.
    fn ignoring(&self, _ignored: u32) -> Option<Arc<dyn Nonlinear>> {
        None
    }

    /// As [`Nonlinear::prepare`], of a layer that has material in common with one before it
    /// ([`opened_once`](crate::opened_once)): `before` are that one's blocks, which were prepared and not completed.
    ///
    /// # Errors
    /// As there, and when these are other blocks.
    fn prepare_behind(
        &self,
        _before: &mut [Block],
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        self.prepare(party, chan)
    }

    /// Uses up the COTs and makes this party's material, block by block. Both parties call it at the same point of
    /// their session. What the client has to say besides its draws it should say when both call
    /// [`Block::complete`], for it could promise none of them otherwise ([`Nonlinear::promise`]). The blocks cover the layer's inputs and outputs in order, and all take equally many steps; see
    /// [`Block`].
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError>;
}

/// A layer that does the same to each of `count` values by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elementwise<P> {
    /// How many values it takes and makes.
    pub count: usize,
    /// What it does to each: a protocol's public parameters.
    pub params: P,
}
