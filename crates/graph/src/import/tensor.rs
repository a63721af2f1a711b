//! Constant tensors, and ONNX's rules for shapes and indices.

use crate::onnx::{Values, data_type};

/// A constant tensor of any rank, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its shape; empty for a single number.
    pub dims: Vec<usize>,
    /// As many as the shape says.
    pub values: Values,
}

impl Tensor {
    pub(crate) fn ints(values: Vec<i64>) -> Tensor {
        Tensor { dims: vec![values.len()], values: Values::Int(values) }
    }

    /// As integers; real numbers only if they are whole.
    pub fn to_ints(&self) -> Option<Vec<i64>> {
        match &self.values {
            Values::Int(v) => Some(v.clone()),
            Values::Float(v) => {
                v.iter().map(|&v| (v.fract() == 0.0 && v.abs() < 1e9).then_some(v as i64)).collect()
            }
        }
    }

    /// The values as real numbers; truth values are 0 and 1.
    pub fn to_floats(&self) -> Vec<f32> {
        match &self.values {
            Values::Float(v) => v.clone(),
            Values::Int(v) => v.iter().map(|&v| v as f32).collect(),
        }
    }

    /// The same tensor with the elements at `positions`, in that order, under another shape.
    pub(crate) fn gathered(&self, dims: Vec<usize>, positions: impl Iterator<Item = usize>) -> Tensor {
        let values = match &self.values {
            Values::Float(v) => Values::Float(positions.map(|p| v[p]).collect()),
            Values::Int(v) => Values::Int(positions.map(|p| v[p]).collect()),
        };
        Tensor { dims, values }
    }

    /// With its dimensions in this order; `None` if that is no permutation of them.
    pub(crate) fn transposed(&self, perm: &[usize]) -> Option<Tensor> {
        let rank = self.dims.len();
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..rank) {
            return None;
        }
        let mut strides = vec![1; rank];
        for axis in (1..rank).rev() {
            strides[axis - 1] = strides[axis] * self.dims[axis];
        }
        let mut positions = vec![0];
        for &axis in perm {
            let steps = 0..self.dims[axis];
            positions = positions
                .iter()
                .flat_map(|p| steps.clone().map(|i| p + i * strides[axis]).collect::<Vec<_>>())
                .collect();
        }
        Some(self.gathered(perm.iter().map(|&p| self.dims[p]).collect(), positions.into_iter()))
    }

    pub(crate) fn with_dims(&self, dims: Vec<usize>) -> Tensor {
        Tensor { dims, values: self.values.clone() }
    }
}

/// A possibly negative index or axis below `len`.
pub(crate) fn wrap(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    (0..len).contains(&index).then_some(index as usize)
}

/// The shape that a broadcast of two shapes has.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
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
pub(crate) fn broadcast_positions(dims: &[usize], shape: &[usize]) -> Vec<usize> {
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

/// A new shape by ONNX's Reshape rules: 0 copies (unless `allow_zero`), -1 takes what is left.
pub(crate) fn reshape_sizes(old: &[usize], new: &[i64], allow_zero: bool) -> Option<Vec<usize>> {
    let total = old.iter().product::<usize>();
    let mut sizes = Vec::with_capacity(new.len());
    let (mut open, mut product) = (None, 1usize);
    for (i, &size) in new.iter().enumerate() {
        let size = match size {
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            0 if !allow_zero => *old.get(i)?,
            size => usize::try_from(size).ok()?,
        };
        product = product.checked_mul(size)?;
        sizes.push(size);
    }
    if let Some(open) = open {
        sizes[open] = total.checked_div(product)?;
        product *= sizes[open];
    }
    (product == total).then_some(sizes)
}

/// A dimension's part of a Slice: first index, how many, step.
pub(crate) type SliceRange = (usize, usize, isize);

/// [`SliceRange`] by ONNX's rules; `None` if it is empty.
pub(crate) fn slice_range(start: i64, end: i64, step: i64, size: usize) -> Option<SliceRange> {
    let size = i64::try_from(size).ok()?;
    let wrap = |v: i64| if v < 0 { v.saturating_add(size) } else { v };
    // Backwards, indices end before the first one.
    let shift = i64::from(step < 0);
    let clamp = |v: i64| wrap(v).clamp(-shift, size - shift);
    let (start, end) = (clamp(start), clamp(end));
    let span = if step < 0 { start - end } else { end - start };
    if step == 0 || span <= 0 {
        return None;
    }
    // A step beyond the end takes one element; the cut keeps it small.
    let step = step.clamp(-size.max(1), size.max(1));
    Some((start as usize, ((span - 1) / step.abs() + 1) as usize, step as isize))
}

/// The indices of a [`SliceRange`].
pub(crate) fn slice_indices((start, len, step): SliceRange) -> impl Iterator<Item = usize> + Clone {
    (0..len).map(move |i| start.wrapping_add_signed(i as isize * step))
}

/// What integers of a type lie between; `None` for a type that nothing is quantised to.
pub(crate) fn integer_range(kind: i32) -> Option<(i64, i64)> {
    Some(match kind {
        data_type::UINT8 => (0, 255),
        data_type::INT8 => (-128, 127),
        data_type::UINT16 => (0, 65535),
        data_type::INT16 => (-32768, 32767),
        data_type::INT32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshape_rules() {
        assert_eq!(reshape_sizes(&[2, 3, 4], &[0, -1], false), Some(vec![2, 12]));
        assert_eq!(reshape_sizes(&[2, 3, 4], &[4, 6], false), Some(vec![4, 6]));
        assert_eq!(reshape_sizes(&[2, 3, 4], &[5, -1], false), None);
        assert_eq!(reshape_sizes(&[2, 3, 4], &[-1, -1], false), None);
        assert_eq!(reshape_sizes(&[2, 3, 4], &[i64::MAX, i64::MAX], false), None);
        assert_eq!(reshape_sizes(&[2, 3, 4], &[0, -1], true), None);
    }

    #[test]
    fn slices_clamp_like_onnx() {
        assert_eq!(slice_range(0, i64::MAX, 2, 5), Some((0, 3, 2)));
        assert_eq!(slice_range(-3, -1, 1, 5), Some((2, 2, 1)));
        assert_eq!(slice_range(i64::MIN, i64::MAX, i64::MAX, 5), Some((0, 1, 5)));
        assert_eq!(slice_range(4, 2, 1, 5), None);
        assert_eq!(slice_range(0, 5, -1, 5), None);
        assert_eq!(slice_range(-1, i64::MIN, -1, 5), Some((4, 5, -1)));
        assert_eq!(slice_range(i64::MAX, 0, -2, 5), Some((4, 2, -2)));
        assert_eq!(slice_range(0, 1, 0, 5), None);
        assert!(slice_indices((4, 3, -2)).eq([4, 2, 0]));
    }

    #[test]
    fn broadcasting() {
        assert_eq!(broadcast(&[3, 1], &[2, 1, 4]), Some(vec![2, 3, 4]));
        assert_eq!(broadcast(&[3], &[4]), None);
        assert_eq!(broadcast_positions(&[3, 1], &[2, 3, 2]), [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
    }
}
