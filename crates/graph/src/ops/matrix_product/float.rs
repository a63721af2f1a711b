//! The product of matrices in floating point.

use jaguar_mpc::MatrixProductParams;

use super::matrices;
use super::products::products;
use crate::float::{Demand, FloatOperands, FloatOperator};
use crate::network::{self, NodeId, Shape};
use crate::ops::operator::Known;
use crate::ops::product::product_shift;

/// `gain·A·B`: of `[batch, n, k]` and `[batch, k, m]`, or of factors that come transposed.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixProduct {
    /// Positive and finite.
    pub gain: f32,
    /// Whether the first factor comes as `[batch, k, n]`, and the second as `[batch, m, k]`.
    pub transposed: [bool; 2],
}

impl FloatOperator for MatrixProduct {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let shift = match known.scales {
            Some((&[a, b], own)) => product_shift(self.gain, [a, b], own).round() as u32,
            _ => 1,
        };
        Some(network::Op::new(super::MatrixProduct { transposed: self.transposed, shift }))
    }

    fn demands(&self) -> Demand {
        Demand::Shifted { gain: self.gain, offsets: [0.0; 2], ring_bits: MatrixProductParams::WIDEST }
    }

    fn gain_mut(&mut self) -> Option<(&mut f32, &mut [f32])> {
        Some((&mut self.gain, &mut []))
    }

    fn is_non_negative(&self, inputs: &[NodeId], known: &dyn Fn(NodeId) -> bool) -> bool {
        inputs.iter().all(|&input| known(input))
    }

    /// A sum of products is in doubt where a factor of one of them is.
    fn doubts(&self, of: &FloatOperands<'_>) -> Option<Vec<f32>> {
        let [(first, a), (second, b)] = [of.inputs[0], of.inputs[1]];
        let beside = |doubts: &[f32]| vec![1.0; doubts.len()];
        let (ones_a, ones_b) = (beside(a), beside(b));
        let by_a = self.apply(&FloatOperands { inputs: &[(first, a), (second, &ones_b)], ..*of });
        let by_b = self.apply(&FloatOperands { inputs: &[(first, &ones_a), (second, b)], ..*of });
        Some(by_a.iter().zip(by_b).map(|(a, b)| a + b).collect())
    }

    /// Of vectors by themselves.
    fn sums_squares(&self, inputs: &[NodeId], [_, rows, columns]: Shape) -> bool {
        inputs[0] == inputs[1] && [rows, columns] == [1, 1]
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let [(first, a), (second, b)] = [of.inputs[0], of.inputs[1]];
        let sizes = matrices([first, second], self.transposed).expect("factors that fit each other");
        let mut out = products(&sizes, a, b);
        out.iter_mut().for_each(|out| *out *= self.gain);
        out
    }
}
