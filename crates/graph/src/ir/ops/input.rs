//! The client's input: values of n bits, in a scale of their own.

use std::ops::RangeInclusive;

use crate::ir::error::NodeError;
use crate::ir::ops::operator::{Operands, Operator, Part, Scale};
use crate::ir::shape::Shape;

pub(crate) struct Input;

impl Operator for Input {
    fn name(&self) -> &'static str {
        "Input"
    }

    fn part(&self) -> Part {
        Part::Input
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (0..=0, "no")
    }

    /// As declared.
    fn shape(&self, _: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
        Ok(declared)
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn scale(&self) -> Scale {
        Scale::Own
    }

    /// It has no inputs to compute from.
    fn apply(&self, _: &Operands<'_>) -> Option<Vec<i64>> {
        None
    }
}
