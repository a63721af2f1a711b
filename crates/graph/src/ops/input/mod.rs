//! The client's input: values of n bits, in a scale of their own.

pub(crate) mod float;
pub(crate) mod onnx;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::shape::Shape;
use crate::ops::operator::{Effort, Numbered, Operands, Operator, Scale, Sign, Source, Value, Work};

/// The client's input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input;

impl Numbered for Input {
    const NUMBER: u32 = 0;
}

impl Operator for Input {
    fn name(&self) -> &'static str {
        "Input"
    }

    fn work(&self) -> Work<'_> {
        Work::Input
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (0..=0, "no")
    }

    /// The declared shape: nothing else says one.
    fn shape(&self, _: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
        Ok(declared)
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Own, sign: Sign::Any, source: Source::Several }
    }

    fn check(&self, _: u32) -> Result<(), NodeError> {
        Ok(())
    }

    /// Nothing of it is measured in the values' scale.
    fn rescale(&mut self, _: i32) -> Result<(), &'static str> {
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    /// It has no inputs to compute from.
    fn apply(&self, _: &Operands<'_>) -> Option<Vec<i64>> {
        None
    }

    fn pull_back(&self, _: &Operands<'_>, _: &[f32]) -> Option<Vec<Vec<f32>>> {
        None
    }
}
