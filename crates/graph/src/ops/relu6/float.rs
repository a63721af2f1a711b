//! A clip in floating point.

use crate::float::{Demand, FloatOperands, FloatOperator, Function, Growth, Primitive};
use crate::network;
use crate::ops::operator::Known;

/// `min(max(x, 0), ceiling)`; ReLU6 has the ceiling 6.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// The upper bound, positive and finite.
    pub ceiling: f32,
}

impl FloatOperator for Clip {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(super::Relu6::clipping(self.ceiling, known)))
    }

    fn demands(&self) -> Demand {
        Demand::Power(self.ceiling)
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().map(|v| v.max(0.0).min(self.ceiling)).collect()
    }

    fn growth(&self) -> Growth {
        Growth::Alike
    }

    fn function(&self, of: &[&Function]) -> Option<Function> {
        let &[inner] = of else { return None };
        Some(Function::Of(Primitive::Clip { ceiling: self.ceiling }, Box::new(inner.clone())))
    }

    fn clips_at(&self) -> Option<f32> {
        Some(self.ceiling)
    }
}
