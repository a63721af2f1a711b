//! The largest value of each window; padding never wins. The comparisons are exact or leave out some low bits.

pub(crate) mod float;
pub(crate) mod onnx;

use std::cmp::Reverse;
use std::sync::Arc;

use jaguar_mpc::semantics::{channel_ignoring, pool_slack};
use jaguar_mpc::{Nonlinear, PoolParams, PoolShape, Pooling};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{check_ignored, most_ignored};
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Chance, Effort, Excess, Interactive, Joined, Makes, Numbered, Operands, Operator, Part, Place, Ran,
    Scale, Shares, Sign, Signs, Source, Takes, Value, Work,
};
use crate::ops::window::{Window, pool, spread};

/// The largest value of each window; padding never wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPool {
    /// Which places each value is made of.
    pub window: Window,
    /// Its comparisons leave out this many low bits, at most n - 4: of two values less than `2^(ignored-1)` apart
    /// either may win, so the result may be as much below the largest for each level of [`Window::bracket`].
    /// Otherwise as for [`Relu`](super::relu::Relu).
    pub ignored: u32,
}

impl Numbered for MaxPool {
    const NUMBER: u32 = 4;
}

impl Operator for MaxPool {
    fn name(&self) -> &'static str {
        "MaxPool"
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    fn describe(&self) -> String {
        format!("max-pool {}", self.window.describe())
    }

    /// No window may lie in the padding altogether.
    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        self.window.shape(inputs[0], true)
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        check_ignored(self.ignored, activation_bits)
    }

    fn ignored_mut(&mut self) -> Option<&mut u32> {
        Some(&mut self.ignored)
    }

    fn value_bits(&self, widest: u32, _: u32) -> u32 {
        widest
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Inherited, sign: Sign::Inherited, source: Source::Several }
    }

    /// Nothing of it is measured in the values' scale.
    fn rescale(&mut self, _: i32) -> Result<(), &'static str> {
        Ok(())
    }

    fn effort(&self, inputs: &[Shape], output: Shape) -> Effort {
        let [[_, h, _], [_, oh, ow]] = [inputs[0], output].map(|shape| shape.map(|d| d as u64));
        let [down, right] = self.window.kernel.map(|d| d as u64);
        Effort { operations: self.window.effort(output), places: h * ow * right + oh * ow * down }
    }

    fn keeps_channels(&self, _: Shape, _: Shape) -> bool {
        true
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let (shape, x) = of.first();
        Some(pool(&self.window, shape, x, i64::MIN, i64::max, |best, _| best))
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        if self.ignored <= 1 {
            return self.apply(of);
        }
        let ([_, height, width], x) = of.first();
        // A share for every value, winners too: theirs are fresh.
        let bracket = self.window.bracket([height, width]);
        let values = bracket.values();
        let channel = |(c, x): (usize, &[i64])| {
            channel_ignoring(&bracket, x, self.ignored, |i| chance.share(c * values + i))
        };
        Some(x.par_chunks(bracket.places()).enumerate().flat_map_iter(channel).collect())
    }

    /// To the first of the largest values of each window.
    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let (shape, x) = of.first();
        Some(vec![spread(&self.window, shape, by, |channel, places, by, slopes| {
            let plane = &x[channel * slopes.len()..];
            let largest = places.iter().max_by_key(|&&place| (plane[place], Reverse(place)));
            largest.into_iter().for_each(|&place| slopes[place] += by);
        })])
    }
}

impl Interactive for MaxPool {
    fn part(&self) -> Part {
        Part::MaxPool
    }

    fn shares(&self) -> Shares {
        Shares {
            excess: Excess::Passes,
            takes: Takes::Compared,
            makes: Makes::TakenRing,
            joined: Joined::Pairs,
        }
    }

    fn signs(&self) -> Option<&dyn Signs> {
        Some(self)
    }

    /// Each image's channels are channels of their own.
    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        let [channels, h, w] = at.inputs[0];
        let Window { kernel, stride, pads } = self.window;
        let shape = PoolShape { channels: channels * at.images, size: [h, w], kernel, stride, pads };
        let params = PoolParams { bits: at.bits, digit: at.digit, ignored: at.left_out(self.ignored) };
        Arc::new(Pooling { shape, params })
    }
}

impl Signs for MaxPool {
    fn ignored(&self) -> u32 {
        self.ignored
    }

    /// Its values must keep below 2^(n-2) - 2^(s-2) then: fifteen sixteenths of what they may be.
    fn most_ignored(&self, activation_bits: u32) -> u32 {
        most_ignored(activation_bits)
    }

    fn caveat(&self) -> &'static str {
        "a max-pool may take a value slightly below the largest"
    }

    /// Shares of what is made on the way are not known. A value may come out if it is one of the window's, below the largest by no
    /// more than each level may lose.
    fn reduced(&self, ignored: u32, run: &Ran<'_>) -> Vec<i64> {
        let [_, height, width] = run.shape;
        let window = &self.window;
        let [h, w] = window.output_hw([height, width]).expect("a valid network's windows fit");
        let below = window.bracket([height, width]).levels().len() as i64 * pool_slack(ignored);
        let one = |(i, (&made, &largest)): (usize, (&i64, &i64))| {
            let plane = &run.input[i / (h * w) * height * width..][..height * width];
            let columns = window.span(1, i % w, width);
            let mut rows = window.span(0, i / w % h, height);
            let found = rows.any(|row| plane[row * width..][columns.clone()].contains(&made));
            if found && (largest - below..=largest).contains(&made) { made } else { largest }
        };
        run.made.iter().zip(run.exact).enumerate().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The reference and the protocol look at the same windows.
        #[test]
        fn both_have_the_same_windows(
            size in prop::array::uniform2(1usize..12), kernel in prop::array::uniform2(1usize..6),
            stride in prop::array::uniform2(1usize..4), pads in prop::array::uniform4(0usize..3),
        ) {
            // Paddings are less than the window.
            let pads: [usize; 4] = std::array::from_fn(|side| pads[side] % kernel[side % 2]);
            let window = Window { kernel, stride, pads };
            let shape = PoolShape { channels: 1, size, kernel, stride, pads };
            let output = window.output_hw(size);
            prop_assert_eq!(output, shape.output().ok());
            for (axis, outputs) in output.into_iter().flatten().enumerate() {
                for at in 0..outputs {
                    prop_assert_eq!(window.span(axis, at, size[axis]), shape.window(axis, at));
                }
            }
        }
    }
}
