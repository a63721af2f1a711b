//! Linear layers in floating point, and the affine maps that become part of them.

use crate::float::{Affine, Bias, Demand, FloatOperands, FloatOperator, Function, Linear, Op};
use crate::ir::kernel::convolve;
use crate::network::{self, NodeId, Shape};
use crate::ops::operator::Known;

impl Linear {
    /// One output channel for each of `channels`, without bias, padding or strides: `weights` holds as many kernels a channel as each
    /// sees channels of the input.
    pub(crate) fn depthwise(channels: usize, kernel: [usize; 2], weights: Vec<f32>) -> Self {
        let spec = network::Linear { kernel, groups: channels, ..network::Linear::same(channels, 1, 0) };
        Self { spec, weights, bias: Bias::PerChannel(vec![0.0; channels]) }
    }
}

impl FloatOperator for Linear {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(self.spec.clone()))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let (shape, x) = of.first();
        let mut values = convolve(of.cpu, &self.spec, shape, &self.weights, x);
        self.bias.add_to(of.output, &mut values);
        values
    }

    fn is_non_negative(&self, inputs: &[NodeId], known: &dyn Fn(NodeId) -> bool) -> bool {
        self.weights.iter().all(|w| *w >= 0.0) && self.bias.is_non_negative() && known(inputs[0])
    }

    fn padded(&self, more: [usize; 4], _: bool) -> Option<Op> {
        let mut padded = self.clone();
        padded.spec.pads.iter_mut().zip(more).for_each(|(pad, more)| *pad += more);
        Some(padded.into())
    }
}

impl FloatOperator for Affine {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        None
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let (shape, x) = of.first();
        let mut values = x.to_vec();
        for (plane, mul) in values.chunks_exact_mut(shape[1] * shape[2]).zip(&self.mul) {
            plane.iter_mut().for_each(|v| *v *= mul);
        }
        self.add.add_to(shape, &mut values);
        values
    }

    fn is_non_negative(&self, inputs: &[NodeId], known: &dyn Fn(NodeId) -> bool) -> bool {
        self.mul.iter().all(|m| *m >= 0.0) && self.add.is_non_negative() && known(inputs[0])
    }

    fn doubts(&self, of: &FloatOperands<'_>) -> Option<Vec<f32>> {
        let (shape, x) = of.first();
        let added = self.add.spread(shape);
        let plane = shape[1] * shape[2];
        let doubt = |(at, (x, added)): (usize, (&f32, f32))| {
            let mul = self.mul[at / plane];
            if mul >= 0.0 && added >= 0.0 { mul * x } else { 1.0 }
        };
        Some(x.iter().zip(added).enumerate().map(doubt).collect())
    }

    fn function(&self, of: &[&Function]) -> Option<Function> {
        let (&[f], Bias::PerChannel(add)) = (of, &self.add) else { return None };
        let same = |values: &[f32]| values.iter().all(|v| *v == values[0]).then_some(values[0]);
        f.mapped(same(&self.mul)?, same(add)?)
    }

    fn is_identity(&self, _: Shape, _: Shape) -> bool {
        self.mul.iter().all(|&m| m == 1.0) && self.add.is_zero()
    }
}
