//! \[A·B / 2^s\] mod 2^out <- MatrixProduct(\[A\], \[B\] mod 2^(out+s)): matrices that both parties share.
//!
//! The parameters and what they mean are here. The protocol is not: [`Nonlinear::check`] refuses it.

use jaguar_ot::CotSource;
use jaguar_wire::Channel;

use crate::block::Block;
use crate::cost::Cost;
use crate::error::{MpcError, check_range};
use crate::nonlinear::{Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::semantics::Matrices;

/// What a product of matrices does. It takes the values of the first factor, and behind them those of the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatrixProductParams {
    /// The results are shares mod 2^`out_bits`: 3 to 61.
    pub out_bits: u32,
    /// How many bits of each sum of products are cut off: 1 or more, with `out_bits` at most 63. The factors are shares mod
    /// 2^(`out_bits` + `shift`).
    pub shift: u32,
    /// The matrices' sizes.
    pub matrices: Matrices,
}

impl MatrixProductParams {
    /// L: the factors' ring is mod 2^L.
    pub const fn ring_bits(&self) -> u32 {
        self.out_bits + self.shift
    }
}

impl Nonlinear for MatrixProductParams {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    fn check(&self) -> Result<(), MpcError> {
        check_range("width of a product", self.out_bits, 3..=61)?;
        check_range("number of bits cut off a product", self.shift, 1..=63 - self.out_bits)?;
        Err(MpcError::misuse("layer", "a product of matrices", "one that has a protocol"))
    }

    fn cost(&self) -> Cost {
        Cost::default()
    }

    /// Rounding.
    fn error(&self) -> f64 {
        1.0
    }

    fn prepare(&self, _: &mut Party<dyn CotSource + '_>, _: &mut Channel) -> Result<Vec<Block>, MpcError> {
        self.check().map(|()| Vec::new())
    }
}
