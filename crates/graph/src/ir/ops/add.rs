//! The sum of two values of the same scale and shape. Calibration keeps it within the width of its inputs.

use std::ops::RangeInclusive;

use crate::ir::error::NodeError;
use crate::ir::ops::operator::{Operands, Operator, Part};
use crate::ir::shape::Shape;

pub(crate) struct Add;

impl Operator for Add {
    fn name(&self) -> &'static str {
        "Add"
    }

    fn part(&self) -> Part {
        Part::Local
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (2..=2, "two")
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        if inputs[0] == inputs[1] { Ok(inputs[0]) } else { Err(NodeError::Mismatch(inputs[0], inputs[1])) }
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let [x, y] = of.values() else { return None };
        Some(x.iter().zip(*y).map(|(a, b)| a + b).collect())
    }
}
