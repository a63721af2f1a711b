//! The windows of pooling layers.

use jaguar_mpc::semantics::Bracket;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{bounded, extents};
use crate::ir::shape::{Shape, places};

/// The windows of a pooling layer. Output size by axis: `(in + pads - kernel) / stride + 1`, rounded down
/// (rounding up is expressed by larger end pads).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Height and width in places, `[k_h, k_w]`.
    pub kernel: [usize; 2],
    /// Steps from one window to the next, `[s_h, s_w]`: down, right.
    pub stride: [usize; 2],
    /// Rows and columns of padding, `[top, left, bottom, right]`.
    pub pads: [usize; 4],
}

impl Window {
    /// `[H_out, W_out]` over `[H, W]`; `None` if the window does not fit or the parameters are out of range.
    pub fn output_hw(&self, input: [usize; 2]) -> Option<[usize; 2]> {
        let [top, left, bottom, right] = self.pads;
        Some([
            places(input[0], top, bottom, self.kernel[0], 1, self.stride[0])?,
            places(input[1], left, right, self.kernel[1], 1, self.stride[1])?,
        ])
    }

    /// How many places of the window at output index `at` of `axis` (0: rows, 1: columns) lie inside an
    /// input of `size`.
    pub fn real_places(&self, axis: usize, at: usize, size: usize) -> usize {
        let span = self.span(axis, at, size);
        span.end - span.start
    }

    /// The input indices along `axis` that the window at output index `at` covers, cut to `0..size`.
    pub fn span(&self, axis: usize, at: usize, size: usize) -> std::ops::Range<usize> {
        let start = (at * self.stride[axis]).saturating_sub(self.pads[axis]).min(size);
        let end = (at * self.stride[axis] + self.kernel[axis]).saturating_sub(self.pads[axis]).min(size);
        start..end.max(start)
    }

    /// In which order a max-pool compares in one channel of `[H, W]` input places.
    ///
    /// # Panics
    /// When a window covers nothing but padding, which no valid network's max-pool has.
    pub fn bracket(&self, input: [usize; 2]) -> Bracket {
        let output = self.output_hw(input).unwrap_or([0, 0]);
        let spans = [0, 1]
            .map(|axis| (0..output[axis]).map(|at| self.span(axis, at, input[axis])).collect::<Vec<_>>());
        Bracket::new(input, &spans[0], &spans[1])
    }

    /// Whether each window is one place, each place in turn.
    pub(crate) fn is_one_place(&self) -> bool {
        (self.kernel, self.stride, self.pads) == ([1, 1], [1, 1], [0; 4])
    }

    /// The same windows over so much more padding, `[top, left, bottom, right]`.
    pub(crate) fn padded(&self, more: [usize; 4]) -> Self {
        Self { pads: std::array::from_fn(|side| self.pads[side] + more[side]), ..self.clone() }
    }

    /// How often a value of the input is looked at.
    pub(crate) fn effort(&self, output: Shape) -> u64 {
        let places = (self.kernel[0] as u64).saturating_mul(self.kernel[1] as u64);
        (output.iter().product::<usize>() as u64).saturating_mul(places)
    }

    /// Size and step, for people.
    pub(crate) fn describe(&self) -> String {
        format!("{}x{}/{}", self.kernel[0], self.kernel[1], self.stride[0])
    }

    /// The shape that a pooling layer makes; where it must see something, no window may lie in the padding altogether.
    pub(crate) fn shape(&self, input: Shape, must_see_something: bool) -> Result<Shape, NodeError> {
        extents("kernel", 1, &self.kernel)?;
        extents("stride", 1, &self.stride)?;
        extents("pads", 0, &self.pads)?;
        let [h, w] = self.output_hw([input[1], input[2]]).ok_or(NodeError::Range("kernel"))?;
        // Before the windows are walked through: the number of them is bounded.
        let shape = bounded([input[0], h, w])?;
        if must_see_something {
            for (axis, outputs) in [(0, h), (1, w)] {
                if (0..outputs).any(|at| self.real_places(axis, at, input[axis + 1]) == 0) {
                    return Err(NodeError::EmptyWindow);
                }
            }
        }
        Ok(shape)
    }
}

/// Distributes what each window has over its real places, `[C, H_out, W_out]` to `[C, H, W]`: `give(channel, places, value, plane)`
/// for each of `values`. Places are indices into the channel's plane, in ascending order.
pub(crate) fn spread(
    window: &Window,
    [channels, height, width]: Shape,
    values: &[f32],
    give: impl Fn(usize, &[usize], f32, &mut [f32]) + Sync,
) -> Vec<f32> {
    let [h, w] = window.output_hw([height, width]).unwrap_or([0, 0]);
    let mut given = vec![0.0; channels * height * width];
    let planes = given.par_chunks_mut(height * width).zip(values.par_chunks((h * w).max(1)));
    planes.enumerate().for_each(|(channel, (plane, values))| {
        let mut places = Vec::new();
        for (position, &value) in values.iter().enumerate() {
            places.clear();
            for row in window.span(0, position / w, height) {
                places.extend(window.span(1, position % w, width).map(|column| row * width + column));
            }
            give(channel, &places, value, plane);
        }
    });
    given
}

/// Folds each window's real places with `join` from `start`, then `finish(result, real places)`;
/// `[C, H_out, W_out]`.
pub(crate) fn pool<T: Copy + Default + Send + Sync>(
    window: &Window,
    shape: Shape,
    x: &[T],
    start: T,
    join: impl Fn(T, T) -> T + Sync,
    finish: impl Fn(T, usize) -> T + Sync,
) -> Vec<T> {
    let [_, height, width] = shape;
    let [h, w] = window.output_hw([height, width]).unwrap_or([0, 0]);
    let mut out = vec![T::default(); shape[0] * h * w];
    out.par_chunks_mut((h * w).max(1)).zip(x.par_chunks(height * width)).for_each(|(out, plane)| {
        for (position, out) in out.iter_mut().enumerate() {
            let rows = window.span(0, position / w, height);
            let columns = window.span(1, position % w, width);
            let mut result = start;
            for row in rows.clone() {
                for &value in &plane[row * width..][columns.clone()] {
                    result = join(result, value);
                }
            }
            *out = finish(result, rows.len() * columns.len());
        }
    });
    out
}
