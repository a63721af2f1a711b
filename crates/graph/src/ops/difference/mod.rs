//! The difference of two values of the same scale and shape. Calibration keeps it within the width of activations.
//!
//! Each party subtracts its own shares. What it takes and how large it may be is as of a sum. (A layer of the weight −1 before a sum would be computed under encryption, value by value.)

pub(crate) mod float;
pub(crate) mod onnx;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::shape::Shape;
use crate::ops::integer::Add;
use crate::ops::operator::{
    Effort, Excess, Local, Numbered, Operands, Operator, Scale, Sign, Source, Value, Work,
};

/// The first value less the second, of the same scale and shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference;

impl Numbered for Difference {
    const NUMBER: u32 = 18;
}

impl Operator for Difference {
    fn name(&self) -> &'static str {
        "Difference"
    }

    fn work(&self) -> Work<'_> {
        Work::Local(Local { excess: Excess::PassesTogether, widens: false, adds: false })
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        Add.arity()
    }

    fn shape(&self, inputs: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
        Add.shape(inputs, declared)
    }

    fn check(&self, _: u32) -> Result<(), NodeError> {
        Ok(())
    }

    fn value_bits(&self, widest: u32, activation_bits: u32) -> u32 {
        Add.value_bits(widest, activation_bits)
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Inherited, sign: Sign::Any, source: Source::Several }
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
        Some(x.iter().zip(*y).map(|(a, b)| a - b).collect())
    }

    fn pull_back(&self, _: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        Some(vec![by.to_vec(), by.iter().map(|by| -by).collect()])
    }
}
