//! The product in floating point.

use crate::float::{Demand, FloatOperands, FloatOperator, Function};
use crate::network::{self, NodeId};
use crate::ops::operator::Known;

/// `gain·(a + o_a)·(b + o_b)`: of two values, of which the second has the first one's shape or is one number a
/// channel, `[C, 1, 1]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Positive and finite.
    pub gain: f32,
    /// What is added to each factor first.
    pub offsets: [f32; 2],
}

impl FloatOperator for Product {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(super::Product::of(self.gain, self.offsets, known)))
    }

    fn demands(&self) -> Demand {
        Demand::Shifted { gain: self.gain, offsets: self.offsets, ring_bits: super::RING_BITS }
    }

    fn gain_mut(&mut self) -> Option<(&mut f32, &mut [f32])> {
        Some((&mut self.gain, &mut self.offsets))
    }

    /// A square, too.
    fn is_non_negative(&self, inputs: &[NodeId], known: &dyn Fn(NodeId) -> bool) -> bool {
        let square = inputs[0] == inputs[1] && self.offsets[0] == self.offsets[1];
        square || self.offsets.iter().all(|o| *o >= 0.0) && inputs.iter().all(|&input| known(input))
    }

    fn function(&self, of: &[&Function]) -> Option<Function> {
        let &[f, g] = of else { return None };
        let known = Function::Value.mapped(self.gain, 0.0).is_some()
            && self.offsets.iter().all(|&offset| Function::Value.mapped(1.0, offset).is_some());
        known.then(|| Function::Product {
            gain: self.gain,
            offsets: self.offsets,
            of: Box::new([f.clone(), g.clone()]),
        })
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let (x, factors) = (of.first().1, of.inputs[1].1);
        let [first, second] = self.offsets;
        let each = x.len() / factors.len();
        x.iter().enumerate().map(|(i, a)| self.gain * (a + first) * (factors[i / each] + second)).collect()
    }
}
