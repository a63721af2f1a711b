//! Values one after the other along the channels, all of the same scale, height and width.

pub(crate) mod float;
pub(crate) mod onnx;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::MAX_NODES;
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Effort, Excess, Local, Numbered, Operands, Operator, Scale, Sign, Source, Value, Work,
};

/// Values along the channels, all of the same scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concat;

impl Numbered for Concat {
    const NUMBER: u32 = 8;
}

impl Operator for Concat {
    fn name(&self) -> &'static str {
        "Concat"
    }

    fn work(&self) -> Work<'_> {
        Work::Local(Local { excess: Excess::PassesTogether, widens: false, adds: false })
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (2..=MAX_NODES, "two or more")
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        let mut shape = inputs[0];
        for other in &inputs[1..] {
            if other[1..] != shape[1..] {
                return Err(NodeError::Mismatch(inputs[0], *other));
            }
            shape[0] = shape[0].checked_add(other[0]).ok_or(NodeError::Range("channels"))?;
        }
        Ok(shape)
    }

    fn check(&self, _: u32) -> Result<(), NodeError> {
        Ok(())
    }

    /// As many as any activation has: beside values of either sign those that are never negative would have one more than they say.
    fn value_bits(&self, widest: u32, activation_bits: u32) -> u32 {
        widest.max(activation_bits)
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Inherited, sign: Sign::Inherited, source: Source::Moved }
    }

    /// Nothing of it is measured in the values' scale.
    fn rescale(&mut self, _: i32) -> Result<(), &'static str> {
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        Some(of.values().concat())
    }

    fn pull_back(&self, of: &Operands<'_>, mut by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let part = |x: &&[i64]| Some(by.split_off(..x.len())?.to_vec());
        of.values().iter().map(part).collect()
    }
}
