//! Max-pools as ReLUs of differences: max(a, b) = b + ReLU(a - b).
//!
//! The values of a window are combined along its rows, then along its columns. With a stride s, rows of windows that are s apart share
//! what was combined along them: `min(s, k) (k - 1)` ReLUs of an output value for rows, and k - 1 for columns. ReLUs for rows are one
//! layer with more channels, so that they share ciphertexts.
//!
//! | window, stride | layers | ReLUs of an output value |
//! |---|---|---|
//! | 2 × 2, 2 | 2 | 3 |
//! | 3 × 3, 2 | 4 | 6 |
//! | 3 × 3, 1 | 4 | 4 |
//!
//! A ReLU before the pool is taken behind it (both orders give the same), where there are fewer values. With padding it is taken before,
//! too: what lies outside of a rectified value is zero, and so never the largest; of any other value it is not.

use jaguar_graph::network::{Shape, Window};

use crate::Refusal;
use crate::description::Term;
use crate::form::{Form, at, empty};

/// Which value of the source each output takes: output (o, i, j) is channel `channels[o].0` at row `stride·i + channels[o].1 - top` and
/// column `stride·j + channels[o].2 - left`.
struct Pick {
    channels: Vec<[usize; 3]>,
    stride: usize,
    /// Rows above the input and columns left of it that are padding.
    pads: [usize; 2],
    /// `[C, H, W]` of the output.
    shape: Shape,
}

/// Pools `input`; `values` are the shapes of what it is a form of. `relu` makes a layer of a form: the value that it is. The result may
/// be negative only where the input may.
pub(crate) fn max_pool(
    input: &Form,
    window: &Window,
    [channels, height, width]: Shape,
    values: &[Shape],
    relu: &mut dyn FnMut(Form) -> Result<Form, Refusal>,
) -> Result<Form, Refusal> {
    let [down, right] = window.stride;
    // A window over everything has no steps.
    let single = [height, width] == [1, 1];
    if down != right && !single {
        return Err(Refusal::Stride(window.stride));
    }
    let stride = if single { 1 } else { down };
    let ([rows, columns], [top, left, ..]) = (window.kernel, window.pads);
    if window.pads != [0; 4] && !input.is_zero_outside() {
        return Err(Refusal::MaxPoolPadding);
    }
    // Row r of a window is row r / stride of phase r % stride.
    let phases = stride.min(rows);
    let shape = [phases * channels, height + (rows - 1) / stride, width];
    let mut along = None;
    for column in 0..columns {
        let picked = (0..phases).flat_map(|row| (0..channels).map(move |c| [c, row, column])).collect();
        let next = Pick { channels: picked, stride, pads: [top, left], shape };
        along = Some(larger(along, next.of(input, values)?, relu)?);
    }
    let along = along.ok_or(Refusal::Malformed)?;
    // What was pushed since has the same shape.
    let mut values = values.to_vec();
    values.resize(values.len() + columns - 1, shape);
    let mut all = None;
    for row in 0..rows {
        let picked = (0..channels).map(|c| [row % stride * channels + c, row / stride, 0]).collect();
        let next = Pick { channels: picked, stride: 1, pads: [0; 2], shape: [channels, height, width] };
        all = Some(larger(all, next.of(&along, &values)?, relu)?);
    }
    all.ok_or(Refusal::Malformed)
}

/// The larger one: `next + ReLU(before - next)`.
fn larger(
    before: Option<Form>,
    next: Form,
    relu: &mut dyn FnMut(Form) -> Result<Form, Refusal>,
) -> Result<Form, Refusal> {
    let Some(before) = before else { return Ok(next) };
    let above = relu(before.plus(&next.clone().scaled(-1.0, 0.0)))?;
    Ok(next.plus(&above))
}

impl Pick {
    fn of(&self, form: &Form, values: &[Shape]) -> Result<Form, Refusal> {
        let terms = form.terms.iter().map(|term| {
            let source = values.get(term.from).ok_or(Refusal::Malformed)?;
            self.of_term(term, source)
        });
        let bias = self.channels.iter().map(|&[from, ..]| form.bias[from]).collect();
        Ok(Form { terms: terms.collect::<Result<_, _>>()?, bias, shape: self.shape })
    }

    /// The kernel, moved to where the value is that is picked, in a kernel that has room for all of them.
    fn of_term(&self, term: &Term, source: &Shape) -> Result<Term, Refusal> {
        let stride = term.stride * self.stride;
        let [top, left, ..] = term.padding;
        let furthest = |axis: usize| self.channels.iter().map(|pick| pick[axis]).max().unwrap_or(0);
        // Size, zeros before and after, and where in the kernel its own rows or columns begin.
        let fit = |axis: usize, kernel: usize, before: usize| -> [usize; 4] {
            let before = before + self.pads[axis - 1] * term.stride;
            // (A kernel is larger than its padding.)
            let size = (kernel + furthest(axis) * term.stride).max(before + 1);
            // The last output's kernel ends here; what the source has beyond that makes no further output.
            let end = stride * (self.shape[axis] - 1) + size;
            let after = end.saturating_sub(source[axis] + before);
            let size = size + (source[axis] + before).saturating_sub(end + stride - 1);
            // The last output may have padding only: then the kernel reaches back.
            let back = (after + 1).saturating_sub(size);
            [size + back, before + back, after, back]
        };
        let [height, top, bottom, down] = fit(1, term.height, top);
        let [width, left, right, across] = fit(2, term.width, left);
        let padding = [top, left, bottom, right];
        let mut moved = empty(Term { out: self.shape[0], height, width, stride, padding, ..term.clone() })?;
        for (out, &[from, row, column]) in self.channels.iter().enumerate() {
            for c in 0..term.channels {
                for a in 0..term.height {
                    let (row, column) = (down + row * term.stride, across + column * term.stride);
                    let to = at(&moved, out, c, row + a, column);
                    let begin = at(term, from, c, a, 0);
                    moved.weights.0[to..][..term.width]
                        .copy_from_slice(&term.weights.0[begin..][..term.width]);
                }
            }
        }
        Ok(moved)
    }
}
