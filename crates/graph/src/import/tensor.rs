//! Constant tensors, and how the elements of several meet.

use crate::onnx::Values;

/// A constant tensor of any rank, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub(super) dims: Vec<usize>,
    pub(super) values: Values,
}

impl Tensor {
    pub(super) fn ints(values: Vec<i64>) -> Tensor {
        Tensor { dims: vec![values.len()], values: Values::Int(values) }
    }

    /// As integers; real numbers only if they are whole.
    pub(super) fn to_ints(&self) -> Option<Vec<i64>> {
        match &self.values {
            Values::Int(v) => Some(v.clone()),
            Values::Float(v) => {
                v.iter().map(|&v| (v.fract() == 0.0 && v.abs() < 1e9).then_some(v as i64)).collect()
            }
        }
    }

    pub(super) fn to_floats(&self) -> Vec<f32> {
        match &self.values {
            Values::Float(v) => v.clone(),
            Values::Int(v) => v.iter().map(|&v| v as f32).collect(),
        }
    }

    /// The same tensor with the elements at `positions`, in that order, under another shape.
    pub(super) fn gathered(&self, dims: Vec<usize>, positions: impl Iterator<Item = usize>) -> Tensor {
        let values = match &self.values {
            Values::Float(v) => Values::Float(positions.map(|p| v[p]).collect()),
            Values::Int(v) => Values::Int(positions.map(|p| v[p]).collect()),
        };
        Tensor { dims, values }
    }

    pub(super) fn with_dims(&self, dims: Vec<usize>) -> Tensor {
        Tensor { dims, values: self.values.clone() }
    }
}

/// A possibly negative index or axis below `len`.
pub(super) fn wrap(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    (0..len).contains(&index).then_some(index as usize)
}

/// The shape that a broadcast of two shapes has.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], i: usize| if i + dims.len() < rank { 1 } else { dims[i + dims.len() - rank] };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (1, x) | (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// For each element of `shape` in row-major order, the element of a tensor `dims` broadcast to it.
pub(super) fn broadcast_positions(dims: &[usize], shape: &[usize]) -> Vec<usize> {
    let mut positions = vec![0];
    for (i, &size) in shape.iter().enumerate() {
        let own = if i + dims.len() < shape.len() { 1 } else { dims[i + dims.len() - shape.len()] };
        // Row-major position so far, times this axis, plus the index if the tensor has the axis.
        positions = positions
            .iter()
            .flat_map(|&p| (0..size).map(move |index| p * own + if own > 1 { index } else { 0 }))
            .collect();
    }
    positions
}
