//! The sum of two values of the same scale and shape. Calibration keeps it within the width of activations.

pub(crate) mod float;
pub(crate) mod onnx;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Effort, Excess, Local, Numbered, Operands, Operator, Scale, Sign, Source, Value, Work,
};

/// Two values of the same scale and shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Add;

impl Numbered for Add {
    const NUMBER: u32 = 6;
}

impl Operator for Add {
    fn name(&self) -> &'static str {
        "Add"
    }

    fn work(&self) -> Work<'_> {
        Work::Local(Local { excess: Excess::PassesTogether, widens: false, adds: true })
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (2..=2, "two")
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        if inputs[0] == inputs[1] { Ok(inputs[0]) } else { Err(NodeError::Mismatch(inputs[0], inputs[1])) }
    }

    fn check(&self, _: u32) -> Result<(), NodeError> {
        Ok(())
    }

    /// As many as any activation has: small values of curves have fewer, and their sum is larger.
    fn value_bits(&self, widest: u32, activation_bits: u32) -> u32 {
        widest.max(activation_bits)
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Inherited, sign: Sign::Inherited, source: Source::Several }
    }

    /// Nothing of it is measured in the values' scale.
    fn rescale(&mut self, _: i32) -> Result<(), &'static str> {
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let [x, y] = of.values() else { return None };
        Some(x.iter().zip(*y).map(|(a, b)| a + b).collect())
    }

    fn pull_back(&self, _: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        Some(vec![by.to_vec(); 2])
    }
}
