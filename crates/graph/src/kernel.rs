//! Convolution in plaintext for the float interpreter (`f32`) and the integer reference (`f64`, exact for
//! integers below 2^53): patches are gathered into panels of a few columns (im2col, a panel at a time), and a
//! register tile of rows by columns runs down the reduction dimension. Plain Rust that the compiler turns into
//! vector instructions; no `unsafe`.

use std::ops::{AddAssign, Mul, Range};

use rayon::prelude::*;

use crate::network::{Linear, Shape};

/// What the convolution computes in.
pub(crate) trait Element: Copy + Default + Send + Sync + AddAssign + Mul<Output = Self> {}
impl Element for f32 {}
impl Element for f64 {}

/// Rows (output channels) of a register tile.
const ROWS: usize = 4;
/// Columns (output positions) of a register tile.
const COLUMNS: usize = 8;
/// Columns that one parallel task takes.
const TASK_COLUMNS: usize = 64;
/// Below this many output channels in a group, gathering patches costs more than it saves.
const FEW_CHANNELS: usize = 3;

/// `Σ w·x`, `[C_out, H_out, W_out]`, without bias.
///
/// `spec` must fit `input` (its `output_hw` is `Some`), `weights` have `weights_len` entries, and `x` have as
/// many as `input`: callers check this once, for a whole graph.
pub(crate) fn convolve<T: Element>(spec: &Linear, input: Shape, weights: &[T], x: &[T]) -> Vec<T> {
    let [h, w] = spec.output_hw(input).unwrap_or([0, 0]);
    let positions = h * w;
    let mut out = vec![T::default(); spec.out_channels * positions];
    if out.is_empty() {
        return out;
    }
    let rows = spec.out_channels / spec.groups;
    let depth = weights.len() / spec.out_channels;
    if positions == 1 && spec.kernel == [input[1], input[2]] && spec.pads == [0; 4] {
        // A fully connected layer: a plain product of a matrix and a vector, group by group.
        let inputs = input[0] / spec.groups * input[1] * input[2];
        out.par_iter_mut().enumerate().for_each(|(d, out)| {
            let x = &x[d / rows * inputs..][..inputs];
            *out = dot(&weights[d * depth..][..depth], x);
        });
    } else if rows <= FEW_CHANNELS {
        out.par_chunks_mut(positions).enumerate().for_each(|(d, plane)| {
            accumulate_plane(spec, input, &weights[d * depth..][..depth], x, d / rows, [h, w], plane);
        });
    } else {
        let packed: Vec<Vec<T>> =
            weights.par_chunks(rows * depth).map(|group| pack_rows(group, depth)).collect();
        let tasks: Vec<(usize, Range<usize>)> = (0..spec.groups)
            .flat_map(|g| {
                let starts = (0..positions).step_by(TASK_COLUMNS);
                starts.map(move |start| (g, start..(start + TASK_COLUMNS).min(positions)))
            })
            .collect();
        let blocks: Vec<Vec<T>> = tasks
            .par_iter()
            .map(|(group, columns)| {
                multiply_columns(spec, input, &packed[*group], x, *group, w, columns.clone())
            })
            .collect();
        for ((group, columns), block) in tasks.iter().zip(&blocks) {
            for (row, values) in block.chunks_exact(columns.len()).enumerate() {
                out[(group * rows + row) * positions..][columns.clone()].copy_from_slice(values);
            }
        }
    }
    out
}

/// `Σ a·b` in eight interleaved partial sums.
fn dot<T: Element>(a: &[T], b: &[T]) -> T {
    let mut lanes = [T::default(); COLUMNS];
    let (a_full, b_full) = (a.chunks_exact(COLUMNS), b.chunks_exact(COLUMNS));
    let mut sum = T::default();
    for (&x, &y) in a_full.remainder().iter().zip(b_full.remainder()) {
        sum += x * y;
    }
    for (x, y) in a_full.zip(b_full) {
        for lane in 0..COLUMNS {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    lanes.into_iter().for_each(|lane| sum += lane);
    sum
}

/// One output channel by whole rows: for each input channel and kernel offset, the input row times the weight
/// is added to the output row.
fn accumulate_plane<T: Element>(
    spec: &Linear,
    input: Shape,
    weights: &[T],
    x: &[T],
    group: usize,
    [h, w]: [usize; 2],
    plane: &mut [T],
) {
    let channels = input[0] / spec.groups;
    let area = spec.kernel[0] * spec.kernel[1];
    for (tap, &weight) in weights.iter().enumerate() {
        let (c, row, column) = (tap / area, tap % area / spec.kernel[1], tap % spec.kernel[1]);
        let source = &x[(group * channels + c) * input[1] * input[2]..][..input[1] * input[2]];
        for oh in 0..h {
            let Some(ih) = (oh * spec.stride[0] + row * spec.dilation[0]).checked_sub(spec.pads[0]) else {
                continue;
            };
            if ih >= input[1] {
                break;
            }
            let line = &source[ih * input[2]..][..input[2]];
            // The first and the last output column whose input column ow·stride + shift - pad exists.
            let shift = column * spec.dilation[1];
            let first = spec.pads[1].saturating_sub(shift).div_ceil(spec.stride[1]);
            let end = (input[2] + spec.pads[1]).saturating_sub(shift).div_ceil(spec.stride[1]).min(w);
            if first >= end {
                continue;
            }
            let from = first * spec.stride[1] + shift - spec.pads[1];
            let target = &mut plane[oh * w + first..oh * w + end];
            for (out, &value) in target.iter_mut().zip(line[from..].iter().step_by(spec.stride[1])) {
                *out += weight * value;
            }
        }
    }
}

/// `[rows, depth]` to tiles `[rows/ROWS, depth, ROWS]`, missing rows zero.
fn pack_rows<T: Element>(weights: &[T], depth: usize) -> Vec<T> {
    let rows = weights.len() / depth;
    let mut packed = vec![T::default(); rows.div_ceil(ROWS) * ROWS * depth];
    for (row, line) in weights.chunks_exact(depth).enumerate() {
        let tile = &mut packed[row / ROWS * ROWS * depth..];
        for (k, &weight) in line.iter().enumerate() {
            tile[k * ROWS + row % ROWS] = weight;
        }
    }
    packed
}

/// The output positions `columns` of one group: `[rows, columns]`.
fn multiply_columns<T: Element>(
    spec: &Linear,
    input: Shape,
    packed: &[T],
    x: &[T],
    group: usize,
    out_width: usize,
    columns: Range<usize>,
) -> Vec<T> {
    let channels = input[0] / spec.groups;
    let depth = channels * spec.kernel[0] * spec.kernel[1];
    let rows = spec.out_channels / spec.groups;
    let mut out = vec![T::default(); rows * columns.len()];
    let mut panel = vec![[T::default(); COLUMNS]; depth];
    for start in columns.clone().step_by(COLUMNS) {
        let width = COLUMNS.min(columns.end - start);
        gather_panel(spec, input, x, group, out_width, start..start + width, &mut panel);
        for (tile_index, tile) in packed.chunks_exact(ROWS * depth).enumerate() {
            let mut sums = [[T::default(); COLUMNS]; ROWS];
            for (weights, values) in tile.as_chunks::<ROWS>().0.iter().zip(&panel) {
                for (sum, &weight) in sums.iter_mut().zip(weights) {
                    for (sum, &value) in sum.iter_mut().zip(values) {
                        *sum += weight * value;
                    }
                }
            }
            for (row, sum) in sums.iter().enumerate().take(rows - (tile_index * ROWS).min(rows)) {
                let at = (tile_index * ROWS + row) * columns.len() + start - columns.start;
                out[at..at + width].copy_from_slice(&sum[..width]);
            }
        }
    }
    out
}

/// The patches of up to [`COLUMNS`] output positions, one line per input channel and kernel offset; zeros where
/// the patch lies in the padding and in unused columns.
fn gather_panel<T: Element>(
    spec: &Linear,
    input: Shape,
    x: &[T],
    group: usize,
    out_width: usize,
    columns: Range<usize>,
    panel: &mut [[T; COLUMNS]],
) {
    let channels = input[0] / spec.groups;
    let plane = input[1] * input[2];
    let source = &x[group * channels * plane..][..channels * plane];
    let area = spec.kernel[0] * spec.kernel[1];
    for tap in 0..area {
        let (row, column) = (tap / spec.kernel[1], tap % spec.kernel[1]);
        let mut offsets = [usize::MAX; COLUMNS];
        for (offset, position) in offsets.iter_mut().zip(columns.clone()) {
            let ih = position / out_width * spec.stride[0] + row * spec.dilation[0];
            let iw = position % out_width * spec.stride[1] + column * spec.dilation[1];
            if let (Some(ih), Some(iw)) = (ih.checked_sub(spec.pads[0]), iw.checked_sub(spec.pads[1]))
                && ih < input[1]
                && iw < input[2]
            {
                *offset = ih * input[2] + iw;
            }
        }
        for c in 0..channels {
            let values = &source[c * plane..][..plane];
            let line = &mut panel[c * area + tap];
            for (value, &offset) in line.iter_mut().zip(&offsets) {
                *value = values.get(offset).copied().unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, one output at a time, in integers.
    fn schoolbook(spec: &Linear, input: Shape, weights: &[i64], x: &[i64]) -> Vec<i64> {
        let [h, w] = spec.output_hw(input).unwrap();
        let (per_group, rows) = (input[0] / spec.groups, spec.out_channels / spec.groups);
        let mut out = Vec::new();
        for d in 0..spec.out_channels {
            for oh in 0..h {
                for ow in 0..w {
                    let mut sum = 0;
                    for c in 0..per_group {
                        for u in 0..spec.kernel[0] {
                            for v in 0..spec.kernel[1] {
                                let ih =
                                    (oh * spec.stride[0] + u * spec.dilation[0]) as i64 - spec.pads[0] as i64;
                                let iw =
                                    (ow * spec.stride[1] + v * spec.dilation[1]) as i64 - spec.pads[1] as i64;
                                if (0..input[1] as i64).contains(&ih) && (0..input[2] as i64).contains(&iw) {
                                    let channel = d / rows * per_group + c;
                                    let at = (channel * input[1] + ih as usize) * input[2] + iw as usize;
                                    let tap = ((d * per_group + c) * spec.kernel[0] + u) * spec.kernel[1] + v;
                                    sum += weights[tap] * x[at];
                                }
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn convolution_is_the_definition(
            groups in 1usize..4, per_group in 1usize..4, rows in 1usize..7,
            size in prop::array::uniform2(1usize..12), kernel in prop::array::uniform2(1usize..5),
            stride in prop::array::uniform2(1usize..4), dilation in prop::array::uniform2(1usize..3),
            pads in prop::array::uniform4(0usize..4), whole in any::<bool>(), seed in any::<u64>(),
        ) {
            let input = [groups * per_group, size[0], size[1]];
            let kernel = if whole { size } else { kernel };
            let pads = if whole { [0; 4] } else { pads };
            let spec = Linear { out_channels: groups * rows, kernel, stride, dilation, pads, groups, shift: 0 };
            prop_assume!(spec.output_hw(input).is_some());
            let mut state = seed;
            let mut draw = |bits: u32| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as i64 % (1 << bits) - (1 << (bits - 1))
            };
            let weights: Vec<i64> = (0..spec.weights_len(input[0]).unwrap()).map(|_| draw(16)).collect();
            let x: Vec<i64> = (0..input.iter().product::<usize>()).map(|_| draw(20)).collect();
            let expected = schoolbook(&spec, input, &weights, &x);
            let float = |v: &[i64]| v.iter().map(|&v| v as f64).collect::<Vec<_>>();
            let found = convolve(&spec, input, &float(&weights), &float(&x));
            prop_assert_eq!(found, float(&expected));
        }
    }
}
