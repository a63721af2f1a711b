//! The input of a float graph.

pub use super::Input;
use crate::float::{Demand, FloatOperands, FloatOperator};
use crate::network;
use crate::ops::operator::Known;

impl FloatOperator for Input {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(Input))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    /// It is given, not computed.
    fn apply(&self, _: &FloatOperands<'_>) -> Vec<f32> {
        Vec::new()
    }
}
