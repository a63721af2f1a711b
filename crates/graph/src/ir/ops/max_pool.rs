//! The largest value of each window; padding never wins. The comparisons are exact or leave out some low bits.

use jaguar_semantics::{Bracket, channel_ignoring};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{check_ignored, most_ignored};
use crate::ir::ops::operator::{Chance, Operands, Operator, Part};
use crate::ir::ops::window::{Window, pool};
use crate::ir::shape::Shape;

/// The largest value of each window; padding never wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaxPool {
    /// The windows.
    pub window: Window,
    /// Its comparisons leave out this many low bits, at most n - 4: of two values less than `2^(ignored-1)` apart
    /// either may win, so the result may be as much below the largest for each level of [`Window::bracket`].
    /// Otherwise as for [`Relu`](super::relu::Relu).
    pub ignored: u32,
}

impl Operator for MaxPool {
    fn name(&self) -> &'static str {
        "MaxPool"
    }

    fn part(&self) -> Part {
        Part::MaxPool
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

    fn ignored(&self) -> Option<u32> {
        Some(self.ignored)
    }

    fn ignored_mut(&mut self) -> Option<&mut u32> {
        Some(&mut self.ignored)
    }

    /// Its values must keep below 2^(n-2) - 2^(s-2) then: fifteen sixteenths of what they may be.
    fn most_ignored(&self, activation_bits: u32) -> Option<u32> {
        Some(most_ignored(activation_bits))
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
        Some(maxpool_ignoring(&bracket, x, self.ignored, |c, i| chance.share(c * values + i)))
    }
}

/// [`channel_ignoring`] for all channels of `x`, `[C, H, W]`, where `client(c, i)` is the client's share of value
/// number i of channel c. `bracket` is that of the pool over `[H, W]` ([`Window::bracket`]).
pub fn maxpool_ignoring(
    bracket: &Bracket,
    x: &[i64],
    ignored: u32,
    client: impl Fn(usize, usize) -> u64 + Sync,
) -> Vec<i64> {
    x.par_chunks(bracket.places())
        .enumerate()
        .flat_map_iter(|(c, x)| channel_ignoring(bracket, x, ignored, |i| client(c, i)))
        .collect()
}
