//! Max-pooling in floating point.

use crate::float::{Affine, Bias, Demand, FloatOperands, FloatOperator, Op};
use crate::network::{self, Shape};
use crate::ops::operator::Known;
use crate::ops::window::{Window, pool};

/// The largest value of each window; padding never wins.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool(pub Window);

impl FloatOperator for MaxPool {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(super::MaxPool { window: self.0.clone(), ignored: 0 }))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let (shape, x) = of.first();
        pool(&self.0, shape, x, f32::NEG_INFINITY, f32::max, |best, _| best)
    }

    fn is_identity(&self, _: Shape, _: Shape) -> bool {
        self.0.is_one_place()
    }

    fn commutes_with(&self, map: &Affine) -> bool {
        matches!(map.add, Bias::PerChannel(_)) && map.mul.iter().all(|&m| m > 0.0)
    }

    /// Zeros never win against what is not negative.
    fn padded(&self, more: [usize; 4], non_negative: bool) -> Option<Op> {
        non_negative.then(|| MaxPool(self.0.padded(more)).into())
    }

    fn takes_largest(&self) -> bool {
        true
    }
}
