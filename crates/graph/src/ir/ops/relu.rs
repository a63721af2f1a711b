//! `max(x, 0)`, the sign exact or without some low bits.

use jaguar_semantics::{relu, relu_ignoring};
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{check_ignored, most_ignored};
use crate::ir::ops::operator::{Chance, Operands, Operator, Part};
use crate::ir::shape::Shape;

/// `max(x, 0)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relu {
    /// The sign leaves out this many low bits, at most n - 4: where `0 <= x < 2^ignored - 1` the result may be 0
    /// instead of x. None and one are exact. More than one is chosen at compile time only, by calibration and on
    /// request ([`crate::signs`]).
    pub ignored: u32,
}

impl Operator for Relu {
    fn name(&self) -> &'static str {
        "Relu"
    }

    fn part(&self) -> Part {
        Part::Activation
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        Ok(inputs[0])
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        check_ignored(self.ignored, activation_bits)
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn ignored(&self) -> Option<u32> {
        Some(self.ignored)
    }

    fn ignored_mut(&mut self) -> Option<&mut u32> {
        Some(&mut self.ignored)
    }

    fn most_ignored(&self, activation_bits: u32) -> Option<u32> {
        Some(most_ignored(activation_bits))
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        Some(of.first().1.iter().map(|&v| relu(v)).collect())
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        match self.ignored {
            0 | 1 => self.apply(of),
            ignored => Some(chance.each(of.first().1, |v, share| relu_ignoring(v, ignored, share))),
        }
    }
}
