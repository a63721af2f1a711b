//! A ReLU with a slope below zero: there during an import only. It becomes a ReLU and a linear layer.

use super::float::Relu;
use crate::float::{Demand, FloatOperands, FloatOperator, Growth, Linear, Op};
use crate::network::{self, NodeId, Rearrange, Shape};
use crate::ops::concat::Concat;
use crate::ops::operator::Known;

/// `x` where it is positive, `x·slope` elsewhere, by channel. Only while a graph is being imported: fusion makes
/// it of a ReLU and a linear layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Prelu {
    /// `[C]`: by channel, the factor of what is negative.
    pub slope: Vec<f32>,
}

impl FloatOperator for Prelu {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        None
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let (shape, x) = of.first();
        let mut values = x.to_vec();
        for (plane, slope) in values.chunks_exact_mut(shape[1] * shape[2]).zip(&self.slope) {
            plane.iter_mut().filter(|v| **v < 0.0).for_each(|v| *v *= slope);
        }
        values
    }

    fn growth(&self) -> Growth {
        if self.slope.iter().all(|&a| a >= 0.0) { Growth::ByChannel } else { Growth::Unknown }
    }

    /// `y = a·x + (1 - a)·relu(x)`: a layer by place over x and relu(x), side by side channel by channel.
    fn expanded(
        &self,
        source: NodeId,
        shape: Shape,
        add: &mut dyn FnMut(Op, Vec<NodeId>, Shape) -> NodeId,
    ) -> Option<(Op, Vec<NodeId>)> {
        let channels = shape[0];
        let weights = self.slope.iter().flat_map(|a| [*a, 1.0 - a]).collect();
        let side_by_side = (0..2 * channels).map(|i| Some(i / 2 + i % 2 * channels)).collect();
        let axes = [side_by_side, Vec::new(), Vec::new()];
        let wide = [2 * channels, shape[1], shape[2]];
        let relu = add(Relu.into(), vec![source], shape);
        let both = add(Concat.into(), vec![source, relu], wide);
        let paired = add(Rearrange::Select { axes }.into(), vec![both], wide);
        Some((Linear::depthwise(channels, [1, 1], weights).into(), vec![paired]))
    }
}
