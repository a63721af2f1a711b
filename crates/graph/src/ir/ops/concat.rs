//! Values one after the other along the channels, all of the same scale, height and width.

use std::ops::RangeInclusive;

use crate::ir::error::NodeError;
use crate::ir::limits::MAX_NODES;
use crate::ir::ops::operator::{Operands, Operator, Part};
use crate::ir::shape::Shape;

pub(crate) struct Concat;

impl Operator for Concat {
    fn name(&self) -> &'static str {
        "Concat"
    }

    fn part(&self) -> Part {
        Part::Local
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

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        Some(of.values().concat())
    }
}
