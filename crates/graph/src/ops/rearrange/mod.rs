//! Operations that only move values, and put zeros where none came from.

pub(crate) mod float;
pub(crate) mod onnx;
mod resize;
mod views;

use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::check;
use crate::ir::shape::{Shape, elements};
use crate::ops::operator::{
    Effort, Excess, Local, Numbered, Operands, Operator, Scale, Sign, Source, Value, Work,
};

/// Operations that only move values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rearrange {
    /// Zeros before and after, by axis.
    Pad {
        /// By axis `[C, H, W]`.
        before: Shape,
        /// By axis `[C, H, W]`.
        after: Shape,
    },
    /// Output index i of an axis is input index `start + i·step`.
    Slice {
        /// The first place that is kept, by axis.
        start: Shape,
        /// By axis, at least 1.
        step: Shape,
    },
    /// Axis i of the output is axis `perm[i]` of the input.
    Transpose {
        /// A permutation of 0, 1, 2.
        perm: [usize; 3],
    },
    /// The same values in row-major order under another shape.
    Reshape,
    /// Picks indices axis by axis: permutes channels, repeats pixels, spreads them with zeros between.
    Select {
        /// By axis, for each output index the input index that it takes, or `None` for zeros. Empty: the whole axis
        /// as it is.
        axes: [Vec<Option<usize>>; 3],
    },
}

impl Numbered for Rearrange {
    const NUMBER: u32 = 9;
}

impl Operator for Rearrange {
    fn name(&self) -> &'static str {
        match self {
            Rearrange::Pad { .. } => "Pad",
            Rearrange::Slice { .. } => "Slice",
            Rearrange::Transpose { .. } => "Transpose",
            Rearrange::Reshape => "Reshape",
            Rearrange::Select { .. } => "Select",
        }
    }

    fn work(&self) -> Work<'_> {
        Work::Local(Local { excess: Excess::Passes, widens: false, adds: false })
    }

    fn shape(&self, inputs: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
        let input = inputs[0];
        let mut shape = input;
        match self {
            Rearrange::Pad { before, after } => {
                for axis in 0..3 {
                    let sum = input[axis].checked_add(before[axis]).and_then(|v| v.checked_add(after[axis]));
                    shape[axis] = sum.ok_or(NodeError::Range("pads"))?;
                }
            }
            Rearrange::Slice { start, step } => {
                // The end is in the declared shape: index start + (count - 1)·step must exist.
                for axis in 0..3 {
                    let last = declared[axis].checked_sub(1).and_then(|v| v.checked_mul(step[axis]));
                    let last =
                        last.and_then(|v| v.checked_add(start[axis])).ok_or(NodeError::Range("slice"))?;
                    check(step[axis] >= 1 && last < input[axis], "slice")?;
                }
                shape = declared;
            }
            Rearrange::Transpose { perm } => {
                let mut seen = [false; 3];
                for (axis, &from) in perm.iter().enumerate() {
                    check(from < 3 && !std::mem::replace(&mut seen[from.min(2)], true), "permutation")?;
                    shape[axis] = input[from];
                }
            }
            Rearrange::Select { axes } => {
                for (axis, picks) in axes.iter().enumerate().filter(|(_, picks)| !picks.is_empty()) {
                    check(picks.iter().flatten().all(|&from| from < input[axis]), "selection")?;
                    shape[axis] = picks.len();
                }
            }
            Rearrange::Reshape => {
                if elements(declared) != elements(input) {
                    return Err(NodeError::Mismatch(input, declared));
                }
                shape = declared;
            }
        }
        Ok(shape)
    }

    fn check(&self, _: u32) -> Result<(), NodeError> {
        Ok(())
    }

    fn value_bits(&self, widest: u32, _: u32) -> u32 {
        widest
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

    fn keeps_channels(&self, input: Shape, output: Shape) -> bool {
        match self {
            Rearrange::Pad { .. } | Rearrange::Slice { .. } => input[0] == output[0],
            Rearrange::Select { axes } => axes[0].is_empty(),
            Rearrange::Transpose { .. } | Rearrange::Reshape => false,
        }
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let (shape, x) = of.first();
        Some(rearrange(self, shape, of.output, x))
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let (shape, x) = of.first();
        // Where each value comes from, counted from one: zero is none of them.
        let numbers: Vec<usize> = (1..=x.len()).collect();
        let mut slopes = vec![0.0; x.len()];
        for (from, by) in rearrange(self, shape, of.output, &numbers).into_iter().zip(by) {
            from.checked_sub(1).into_iter().for_each(|from| slopes[from] += by);
        }
        Some(vec![slopes])
    }
}

/// Moves values; `from` and `to` are the shapes before and after.
pub(crate) fn rearrange<T: Copy + Default>(rearrange: &Rearrange, from: Shape, to: Shape, x: &[T]) -> Vec<T> {
    // Every case but the reshape is: the output at (c, h, w) is the input at some place, or zero.
    let source = |at: Shape| -> Option<Shape> {
        match rearrange {
            Rearrange::Pad { before, .. } => {
                let mut place = [0; 3];
                for axis in 0..3 {
                    place[axis] = at[axis].checked_sub(before[axis]).filter(|&i| i < from[axis])?;
                }
                Some(place)
            }
            Rearrange::Slice { start, step } => {
                Some(std::array::from_fn(|axis| start[axis] + at[axis] * step[axis]))
            }
            Rearrange::Transpose { perm } => {
                let mut place = [0; 3];
                for axis in 0..3 {
                    place[perm[axis]] = at[axis];
                }
                Some(place)
            }
            Rearrange::Select { axes } => {
                let mut place = at;
                for (place, picks) in place.iter_mut().zip(axes).filter(|(_, picks)| !picks.is_empty()) {
                    *place = picks[*place]?;
                }
                Some(place)
            }
            Rearrange::Reshape => Some(at),
        }
    };
    if let Rearrange::Reshape = rearrange {
        return x.to_vec();
    }
    let mut out = Vec::with_capacity(to.iter().product());
    for c in 0..to[0] {
        for h in 0..to[1] {
            for w in 0..to[2] {
                let value = source([c, h, w]).map(|[c, h, w]| x[(c * from[1] + h) * from[2] + w]);
                out.push(value.unwrap_or_default());
            }
        }
    }
    out
}
