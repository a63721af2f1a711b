//! The difference in floating point.

pub use super::Difference;
use crate::float::{Demand, FloatOperands, FloatOperator};
use crate::network;
use crate::ops::operator::Known;

impl FloatOperator for Difference {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(Difference))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().zip(of.inputs[1].1).map(|(a, b)| a - b).collect()
    }
}
