//! \[f(x)\] mod M <- Select(\[x\] mod 2^n), value by value: what a comparison of x, and x times its result, make of x.
//!
//! One protocol for all functions of that kind. A [`Selection`] says which comparison (a [`Formula`]), modulo what the results
//! are wanted, and what each party makes of its shares of them by itself. Everything else follows: the flights
//! (`select.rs`), the cost, the blocks, what travels early. `relu.rs` and `relu6.rs` are such.
//!
//! Exact as far as the formula is. Neither party learns a thing: what is sent is the comparison's and the selection's.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::share::Modulus;
use jaguar_ot::CotSource;
use jaguar_wire::Channel;

use crate::block::{self, Block};
use crate::cost::Cost;
use crate::error::MpcError;
use crate::gates::formula::Formula;
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::select::{self, Join, Products, SelectBlock, Selected};

/// A function of one value by a comparison and a selection: its public parameters.
pub trait Selection: Copy + Debug + Send + Sync + 'static {
    /// Which measured figures tell its time.
    const KIND: NonlinearKind;

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    fn check(&self) -> Result<(), MpcError>;

    /// The shares come mod 2 to this.
    fn bits(&self) -> u32;

    /// Bits per digit of the comparison.
    fn digit(&self) -> u32;

    /// The same, but for the lowest `ignored` bits, which the comparison leaves out.
    #[must_use]
    fn ignoring(self, ignored: u32) -> Self;

    /// The comparison.
    fn formula(&self) -> Formula;

    /// The shares of x times its first result leave modulo this: 2^bits at least and 2^32 times as much at most; or any odd number.
    fn output(&self) -> Modulus;

    /// The second result leaves in shares modulo this, if it has one.
    fn second(&self) -> Option<Modulus>;

    /// This party's shares of f(x) modulo [`Selection::output`], from its shares of what was `selected`, x or 0, and of the second
    /// result.
    fn join(&self, selected: Vec<u64>, second: Option<Vec<u64>>) -> Vec<u64>;
}

fn products<P: Selection>(of: &P) -> Products {
    let (bits, output) = (of.bits(), of.output());
    let output = (output != Modulus::power_of_two(bits)).then_some(output);
    Products { parts: vec![bits], output, second: of.second() }
}

impl<P: Selection> Nonlinear for Elementwise<P> {
    fn kind(&self) -> NonlinearKind {
        P::KIND
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.check()
    }

    fn cost(&self) -> Cost {
        select::cost(self.count, &self.params.formula(), &products(&self.params))
    }

    fn error(&self) -> f64 {
        0.0
    }

    fn correction_bytes(&self) -> u64 {
        select::correction_bytes(self.count, &self.params.formula(), &products(&self.params)) as u64
    }

    fn digit(&self) -> Option<u32> {
        Some(self.params.digit())
    }

    fn ignoring(&self, ignored: u32) -> Option<Arc<dyn Nonlinear>> {
        Some(Arc::new(Self { params: self.params.ignoring(ignored), ..*self }))
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Ok(Selections::prepare(party, chan, self.count, self.params)?.into_blocks())
    }
}

/// A prepared batch of selections, for one run.
pub struct Selections<P> {
    blocks: Vec<Block>,
    of: PhantomData<P>,
}

impl<P: Selection> Selections<P> {
    /// Prepares `count` of them: uses up COTs, needs no input.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: P,
    ) -> Result<Self, MpcError> {
        params.check()?;
        let blocks = Block::each(count, |count| Self::block(party, chan, count, params))?;
        Ok(Self { blocks, of: PhantomData })
    }

    pub(crate) fn block<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: P,
    ) -> Result<SelectBlock, MpcError> {
        let join = move |selected: Selected| {
            let [x] = <[_; 1]>::try_from(selected.values).expect("one part");
            params.join(x, selected.second)
        };
        let products = (&products(&params), Box::new(join) as Join);
        SelectBlock::prepare(party, chan, (count, params.bits()), params.formula(), products)
    }

    /// Its blocks, for who runs them step by step.
    pub fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// This party's shares of the results; `x` are its shares mod 2^bits (higher bits are ignored). The client's last
    /// message may still be in the channel's buffer: what it sends next, or a flush, carries it.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, x)
    }
}
