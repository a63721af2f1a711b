//! ReLU in floating point.

pub use super::prelu::Prelu;
use crate::float::{Demand, FloatOperands, FloatOperator, Growth};
use crate::network;
use crate::ops::operator::Known;

/// `max(x, 0)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Relu;

impl FloatOperator for Relu {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(super::Relu { ignored: 0 }))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().map(|v| v.max(0.0)).collect()
    }

    fn growth(&self) -> Growth {
        Growth::Alike
    }

    fn clips_at(&self) -> Option<f32> {
        Some(f32::INFINITY)
    }
}
