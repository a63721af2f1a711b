//! Moves in floating point: the same as of integers.

pub use super::Rearrange;
use super::rearrange;
use crate::float::{Demand, FloatOperands, FloatOperator};
use crate::network::{self, Shape};
use crate::ops::operator::Known;

impl FloatOperator for Rearrange {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(self.clone()))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let (shape, x) = of.first();
        rearrange(self, shape, of.output, x)
    }

    fn is_identity(&self, input: Shape, output: Shape) -> bool {
        match self {
            Rearrange::Reshape | Rearrange::Pad { .. } | Rearrange::Slice { .. } => input == output,
            Rearrange::Transpose { perm } => *perm == [0, 1, 2],
            Rearrange::Select { axes } => axes.iter().all(Vec::is_empty),
        }
    }

    /// (The zeros that it puts in are not negative.)
    fn doubts(&self, of: &FloatOperands<'_>) -> Option<Vec<f32>> {
        Some(self.apply(of))
    }

    fn moves(&self) -> bool {
        true
    }
}
