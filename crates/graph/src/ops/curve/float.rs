//! A curve in floating point.

pub use super::bend::{Band, Cap, Power, Steep};
pub use super::function::{Function, Primitive};
use crate::float::{Demand, FloatOperands, FloatOperator, Op};
use crate::network::{self, NodeId};
use crate::ops::operator::Known;

/// A function of each value by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Which.
    pub function: Function,
}

impl Curve {
    /// The integer curve and how far it is from this one, where calibration knows the scales.
    fn fitted(&self, known: &Known<'_>) -> Option<(super::Curve, f64)> {
        let (&[input], own) = known.scales? else { return None };
        Some(super::Curve::fitted(&self.function, [input, own], known.bits))
    }
}

impl From<Function> for Op {
    /// The function of each value.
    fn from(function: Function) -> Self {
        Curve { function }.into()
    }
}

impl FloatOperator for Curve {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let nothing = || {
            let (offsets, slopes) = (vec![0; 4], vec![0; 4]);
            (super::Curve { low: 1, offset_shift: 0, shift: 1, offsets, slopes }, 0.0)
        };
        let (curve, _) = if known.scales.is_some() { self.fitted(known)? } else { nothing() };
        Some(network::Op::new(curve))
    }

    fn coarseness(&self, known: &Known<'_>) -> f64 {
        self.fitted(known).map_or(0.0, |(_, error)| error)
    }

    fn demands(&self) -> Demand {
        Demand::Told
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().map(|&x| self.function.at(x.into()) as f32).collect()
    }

    fn is_non_negative(&self, _: &[NodeId], _: &dyn Fn(NodeId) -> bool) -> bool {
        self.function.is_non_negative()
    }

    fn function(&self, of: &[&Function]) -> Option<Function> {
        let &[inner] = of else { return None };
        Some(self.function.after(inner))
    }
}
