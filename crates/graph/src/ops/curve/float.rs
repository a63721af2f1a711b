//! A curve in floating point.

pub use super::function::{Function, Primitive};
use crate::float::{Demand, FloatOperands, FloatOperator, Op};
use crate::network;
use crate::ops::operator::Known;

/// A function of each value by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Which.
    pub function: Function,
}

impl From<Function> for Op {
    /// The function of each value.
    fn from(function: Function) -> Self {
        Curve { function }.into()
    }
}

impl FloatOperator for Curve {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let curve = match known.scales {
            Some((&[input], own)) => super::Curve::fitted(&self.function, [input, own], known.bits).0,
            Some(_) => return None,
            None => {
                super::Curve { low: 1, offset_shift: 0, shift: 1, offsets: vec![0; 4], slopes: vec![0; 4] }
            }
        };
        Some(network::Op::new(curve))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().map(|&x| self.function.at(x.into()) as f32).collect()
    }

    fn function(&self, of: &[&Function]) -> Option<Function> {
        let &[inner] = of else { return None };
        Some(self.function.after(inner))
    }
}
