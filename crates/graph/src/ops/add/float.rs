//! The sum in floating point.

pub use super::Add;
use crate::float::{Demand, FloatOperands, FloatOperator, Function};
use crate::network;
use crate::ops::operator::Known;

impl FloatOperator for Add {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(Add))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn function(&self, of: &[&Function]) -> Option<Function> {
        let &[f, g] = of else { return None };
        Some(Function::Sum(Box::new([f.clone(), g.clone()])))
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().zip(of.inputs[1].1).map(|(a, b)| a + b).collect()
    }
}
