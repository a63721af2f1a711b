//! Convolution in plaintext for the float interpreter (`f32`) and the integer reference (`f64`, exact for
//! integers below 2^53): patches are gathered into panels of a few columns (im2col, a panel at a time), and a
//! register tile of rows by columns runs down the reduction dimension.
//!
//! The tile is plain Rust that the compiler turns into vector instructions, compiled twice: for the machine that the
//! build targets, and for AVX2 with FMA, which is taken where the caller's [`Cpu`] has it. The two differ in single precision
//! by the rounding of the products, and not at all in exact integers.

use std::ops::{AddAssign, Mul, Range};

use jaguar_ring::cpu::{Cpu, Feature};
use rayon::prelude::*;

use crate::ir::convolution::Linear;
use crate::ir::shape::Shape;

/// What the convolution computes in.
pub(crate) trait Element: Copy + Default + Send + Sync + AddAssign + Mul<Output = Self> {
    /// `self·by + to` with one rounding.
    fn fused(self, by: Self, to: Self) -> Self;

    /// [`multiply_columns`] with as many columns as suit the type: two vectors of 256 bits a row.
    fn multiply_columns(task: &Task<'_, Self>, columns: Range<usize>) -> Vec<Self>;
}

impl Element for f32 {
    fn fused(self, by: f32, to: f32) -> f32 {
        self.mul_add(by, to)
    }

    fn multiply_columns(task: &Task<'_, f32>, columns: Range<usize>) -> Vec<f32> {
        multiply_columns::<f32, 16>(task, columns)
    }
}

impl Element for f64 {
    fn fused(self, by: f64, to: f64) -> f64 {
        self.mul_add(by, to)
    }

    fn multiply_columns(task: &Task<'_, f64>, columns: Range<usize>) -> Vec<f64> {
        multiply_columns::<f64, 8>(task, columns)
    }
}

/// What all tasks of a group's product share.
pub(crate) struct Task<'a, T> {
    spec: &'a Linear,
    input: Shape,
    /// The group's weights, as [`pack_rows`] lays them out.
    packed: &'a [T],
    x: &'a [T],
    group: usize,
    out_width: usize,
    /// Whether AVX2 and FMA may be used.
    wide: Option<Wide>,
}

/// Rows (output channels) of a register tile.
const ROWS: usize = 4;
/// Columns that one parallel task takes.
const TASK_COLUMNS: usize = 64;
/// Partial sums of a scalar product.
const LANES: usize = 8;
/// Below this many output channels in a group, gathering patches costs more than it saves.
const FEW_CHANNELS: usize = 3;

/// Proof that the processor has what the wide tile is compiled for.
#[derive(Clone, Copy)]
struct Wide(());

impl Wide {
    fn of(cpu: Cpu) -> Option<Wide> {
        cpu.has_all(&[Feature::Avx2, Feature::Fma]).then_some(Wide(()))
    }
}

/// `Σ w·x`, `[C_out, H_out, W_out]`, without bias.
///
/// `spec` must fit `input` (its `output_hw` is `Some`), `weights` have `weights_len` entries, and `x` have as
/// many as `input`: callers check this once, for a whole graph.
pub(crate) fn convolve<T: Element>(cpu: Cpu, spec: &Linear, input: Shape, weights: &[T], x: &[T]) -> Vec<T> {
    let wide = Wide::of(cpu);
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
            .map(|&(group, ref columns)| {
                let task = Task { spec, input, packed: &packed[group], x, group, out_width: w, wide };
                T::multiply_columns(&task, columns.clone())
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

/// `Σ a·b` in interleaved partial sums.
fn dot<T: Element>(a: &[T], b: &[T]) -> T {
    let mut lanes = [T::default(); LANES];
    let (a_full, b_full) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut sum = T::default();
    for (&x, &y) in a_full.remainder().iter().zip(b_full.remainder()) {
        sum += x * y;
    }
    for (x, y) in a_full.zip(b_full) {
        for lane in 0..LANES {
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

/// A tile's sums: `packed` is `[depth, ROWS]`, `panel` `[depth, N]`.
#[inline(always)]
fn tile<T: Element, const N: usize, const FUSED: bool>(packed: &[T], panel: &[[T; N]]) -> [[T; N]; ROWS] {
    let mut sums = [[T::default(); N]; ROWS];
    for (weights, values) in packed.as_chunks::<ROWS>().0.iter().zip(panel) {
        for (sums, &weight) in sums.iter_mut().zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(values) {
                if FUSED {
                    *sum = weight.fused(value, *sum);
                } else {
                    *sum += weight * value;
                }
            }
        }
    }
    sums
}

/// [`tile`] compiled for AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn tile_wide<T: Element, const N: usize>(packed: &[T], panel: &[[T; N]]) -> [[T; N]; ROWS] {
    tile::<T, N, true>(packed, panel)
}

fn choose_tile<T: Element, const N: usize>(
    packed: &[T],
    panel: &[[T; N]],
    wide: Option<Wide>,
) -> [[T; N]; ROWS] {
    #[cfg(target_arch = "x86_64")]
    if let Some(Wide(())) = wide {
        // SAFETY: a `Wide` exists only where the CPU was found to have AVX2 and FMA.
        return unsafe { tile_wide::<T, N>(packed, panel) };
    }
    let _ = wide;
    tile::<T, N, false>(packed, panel)
}

/// The output positions `columns` of one group, `[rows, columns]`, N columns at a time.
fn multiply_columns<T: Element, const N: usize>(task: &Task<'_, T>, columns: Range<usize>) -> Vec<T> {
    let spec = task.spec;
    let depth = task.input[0] / spec.groups * spec.kernel[0] * spec.kernel[1];
    let rows = spec.out_channels / spec.groups;
    let mut out = vec![T::default(); rows * columns.len()];
    let mut panel = vec![[T::default(); N]; depth];
    for start in columns.clone().step_by(N) {
        let width = N.min(columns.end - start);
        gather_panel(task, start..start + width, &mut panel);
        for (index, packed) in task.packed.chunks_exact(ROWS * depth).enumerate() {
            let sums = choose_tile(packed, &panel, task.wide);
            for (row, sums) in sums.iter().enumerate().take(rows - index * ROWS) {
                let at = (index * ROWS + row) * columns.len() + start - columns.start;
                out[at..at + width].copy_from_slice(&sums[..width]);
            }
        }
    }
    out
}

/// The patches of up to N output positions, one line per input channel and kernel offset; zeros where the patch
/// lies in the padding and in unused columns.
fn gather_panel<T: Element, const N: usize>(task: &Task<'_, T>, columns: Range<usize>, panel: &mut [[T; N]]) {
    let Task { spec, input, out_width, .. } = *task;
    let channels = input[0] / spec.groups;
    let plane = input[1] * input[2];
    let source = &task.x[task.group * channels * plane..][..channels * plane];
    let area = spec.kernel[0] * spec.kernel[1];
    for tap in 0..area {
        let (row, column) = (tap / spec.kernel[1], tap % spec.kernel[1]);
        let mut offsets = [usize::MAX; N];
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
            let spec = Linear { out_channels: groups * rows, kernel, stride, dilation, pads, groups, shift: 0, max_exponent: 0, blocks: None };
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
            for cpu in [Cpu::scalar(), Cpu::detect()] {
                let found = convolve(cpu, &spec, input, &float(&weights), &float(&x));
                prop_assert_eq!(found, float(&expected));
            }
            // Single precision is exact as well while everything stays below 2^24.
            let small = |v: &[i64]| v.iter().map(|&v| v % 64).collect::<Vec<_>>();
            let single = |v: &[i64]| v.iter().map(|&v| v as f32).collect::<Vec<_>>();
            let (weights, x) = (small(&weights), small(&x));
            let expected = single(&schoolbook(&spec, input, &weights, &x));
            for cpu in [Cpu::scalar(), Cpu::detect()] {
                prop_assert_eq!(convolve(cpu, &spec, input, &single(&weights), &single(&x)), expected.clone());
            }
        }
    }
}
