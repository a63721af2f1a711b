//! Values one after the other, in floating point.

pub use super::Concat;
use crate::float::{Demand, FloatOperands, FloatOperator};
use crate::network;
use crate::ops::operator::Known;

impl FloatOperator for Concat {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(Concat))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.inputs.iter().flat_map(|(_, x)| x.iter().copied()).collect()
    }

    fn doubts(&self, of: &FloatOperands<'_>) -> Option<Vec<f32>> {
        Some(self.apply(of))
    }
}
