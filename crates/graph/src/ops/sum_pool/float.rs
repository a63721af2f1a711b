//! Average pooling in floating point. It becomes a sum, and the division part of what takes it.

use super::real_places_multiple;
use crate::float::{Affine, Bias, Demand, ElementMap, FloatOperands, FloatOperator, Linear, Op, Settled};
use crate::limits::MAX_POOL_GAIN;
use crate::network::{self, Rearrange, Shape};
use crate::ops::operator::Known;
use crate::ops::window::{Window, pool};

/// The mean of each window.
#[derive(Clone, Debug, PartialEq)]
pub struct AveragePool {
    /// Which places each value is made of.
    pub window: Window,
    /// Divide by the window's size, or only by how many of its places lie inside the image.
    pub count_padding: bool,
}

impl FloatOperator for AveragePool {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        Some(network::Op::new(super::SumPool::averaging(&self.window, self.count_padding, known)))
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let (shape, x) = of.first();
        let whole = (self.window.kernel[0] * self.window.kernel[1]) as f32;
        let mean = |sum, real| sum / if self.count_padding { whole } else { real as f32 };
        pool(&self.window, shape, x, 0.0, |a, b| a + b, mean)
    }

    fn is_identity(&self, _: Shape, _: Shape) -> bool {
        self.window.is_one_place()
    }

    /// Padding that counts averages zeros in, which the map would not have left zero.
    fn commutes_with(&self, map: &Affine) -> bool {
        matches!(map.add, Bias::PerChannel(_)) && (self.takes_means() || map.add.is_zero())
    }

    /// Where factors are the same in each window, they may come behind the mean, and so may what the map adds.
    fn with_map_behind(&self, input: Shape, map: &ElementMap) -> Option<Vec<(Op, Shape)>> {
        let mul: Vec<f32> = map.mul.iter().copied().collect::<Option<_>>()?;
        let of =
            |x: &[f32], first, by: fn(f32, f32) -> f32| pool(&self.window, input, x, first, by, |v, _| v);
        let [least, most] = [of(&mul, f32::INFINITY, f32::min), of(&mul, f32::NEG_INFINITY, f32::max)];
        let [height, width] = self.window.output_hw([input[1], input[2]])?;
        if self.window.pads != [0; 4] || least != most {
            return None;
        }
        let places = (self.window.kernel[0] * self.window.kernel[1]) as f32;
        let add = of(&map.add, 0.0, |a, b| a + b).into_iter().map(|sum| sum / places).collect();
        let (channels, made) = ([most.len(), 1, 1], [input[0], height, width]);
        let reshape = Op::new(Rearrange::Reshape);
        let map = Affine { mul: most, add: Bias::PerChannel(add) };
        Some(vec![(reshape.clone(), channels), (map.into(), channels), (reshape, made)])
    }

    fn padded(&self, more: [usize; 4], _: bool) -> Option<Op> {
        let counts = self.count_padding || self.window.pads == [0; 4];
        counts.then(|| AveragePool { window: self.window.padded(more), count_padding: true }.into())
    }

    fn takes_means(&self) -> bool {
        !self.count_padding || self.window.pads == [0; 4]
    }

    /// It is a local sum if whatever takes it has weights or is the output. Others get weights.
    fn settled(&self, input: Shape, feeds_weights: &dyn Fn() -> bool) -> Result<Settled, &'static str> {
        let Self { window, count_padding } = self;
        let (channels, [height, width]) = (input[0], window.kernel);
        let places = height.saturating_mul(width);
        if !count_padding && real_places_multiple(window, input).is_none() {
            return Err("different counts of real places in an average's windows");
        }
        if (!count_padding || places as u64 <= MAX_POOL_GAIN) && feeds_weights() {
            return Ok(Settled::Stays);
        }
        // (Of a whole image a layer has fewer values to take behind the sum.)
        let whole = window.kernel == [input[1], input[2]] && window.pads == [0; 4];
        Ok(if *count_padding && !(whole && places as u64 <= MAX_POOL_GAIN) {
            let mut layer =
                Linear::depthwise(channels, window.kernel, vec![1.0 / places as f32; channels * places]);
            (layer.spec.stride, layer.spec.pads) = (window.stride, window.pads);
            Settled::Becomes(layer.into())
        } else {
            Settled::Before(Linear::depthwise(channels, [1, 1], vec![1.0; channels]).into())
        })
    }
}
