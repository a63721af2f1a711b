//! What can be folded into the weights of a linear layer in floating point, and what can be cut off them.

use jaguar_ring::cpu::Cpu;

use crate::float::{Bias, Linear};
use crate::ir::kernel::convolve;
use crate::network::{self, Shape};

/// The product of a bias with a factor per channel.
pub(crate) fn scale_bias(bias: &Bias, mul: &[f32], shape: Shape) -> Bias {
    let plane = shape[1] * shape[2];
    match bias {
        Bias::PerChannel(b) => Bias::PerChannel(b.iter().zip(mul).map(|(b, m)| b * m).collect()),
        Bias::PerElement(b) => {
            Bias::PerElement(b.iter().enumerate().map(|(i, b)| b * mul[i / plane]).collect())
        }
    }
}

pub(crate) fn sum_bias(a: &Bias, b: &Bias, shape: Shape) -> Bias {
    let sum = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a + b).collect();
    match (a, b) {
        (Bias::PerChannel(a), Bias::PerChannel(b)) => Bias::PerChannel(sum(a, b)),
        _ => Bias::PerElement(sum(&a.spread(shape), &b.spread(shape))),
    }
}

/// What a linear layer without bias makes of an input that is `add` everywhere; `None` if finding out costs too
/// much.
pub(crate) fn linear_of_constant(
    cpu: Cpu,
    linear: &Linear,
    add: &Bias,
    input: Shape,
    output: Shape,
) -> Option<Bias> {
    /// More multiply-adds than any constant part of a real layer takes.
    const TOO_MUCH: u64 = 1 << 33;
    let spec = &linear.spec;
    let add = match add {
        Bias::PerElement(_) if spec.multiply_adds(input)? as u64 > TOO_MUCH => return None,
        Bias::PerElement(add) => {
            return Some(Bias::PerElement(convolve(cpu, spec, input, &linear.weights, add)));
        }
        Bias::PerChannel(add) => add,
    };
    // Constant channels: add up each kernel over the input channels first.
    let (per_group, rows) = (input[0] / spec.groups, spec.out_channels / spec.groups);
    let area = spec.kernel[0] * spec.kernel[1];
    let mut kernels = vec![0f64; spec.out_channels * area];
    for (d, kernel) in kernels.chunks_exact_mut(area).enumerate() {
        for c in 0..per_group {
            let add = f64::from(add[d / rows * per_group + c]);
            let taps = &linear.weights[(d * per_group + c) * area..][..area];
            kernel.iter_mut().zip(taps).for_each(|(sum, &w)| *sum += add * f64::from(w));
        }
    }
    if spec.pads == [0; 4] {
        return Some(Bias::PerChannel(
            kernels.chunks_exact(area).map(|k| k.iter().sum::<f64>() as f32).collect(),
        ));
    }
    // The kernel's rows (or columns) that lie inside the image, by output row (or column).
    let inside = |axis: usize| -> Vec<std::ops::Range<usize>> {
        let (pad, dilation) = (spec.pads[axis], spec.dilation[axis]);
        let range = |at: usize| {
            let start = at * spec.stride[axis];
            let first = pad.saturating_sub(start).div_ceil(dilation);
            let end = (input[axis + 1] + pad).saturating_sub(start).div_ceil(dilation).min(spec.kernel[axis]);
            first.min(end)..end
        };
        (0..output[axis + 1]).map(range).collect()
    };
    let (rows, columns) = (inside(0), inside(1));
    let mut values = Vec::with_capacity(output.iter().product());
    for kernel in kernels.chunks_exact(area) {
        for rows in &rows {
            for columns in &columns {
                let lines = kernel[rows.start * spec.kernel[1]..rows.end * spec.kernel[1]]
                    .chunks_exact(spec.kernel[1]);
                values.push(lines.map(|line| line[columns.clone()].iter().sum::<f64>()).sum::<f64>() as f32);
            }
        }
    }
    Some(Bias::PerElement(values))
}

/// Cuts off what of a kernel sees nothing but padding over an input of this shape: a 3 × 3 kernel over a map of one pixel is one of
/// 1 × 1. The outputs stay the same.
pub(crate) fn crop_kernel(linear: &mut Linear, input: Shape) {
    let spec = &linear.spec;
    let Some(outputs) = spec.output_hw(input) else { return };
    // By axis, how many of its first and last kernel rows go.
    let mut cut = [[0; 2]; 2];
    for axis in 0..2 {
        let (dilation, size) = (spec.dilation[axis], input[axis + 1]);
        let sees = |row: usize| {
            let mut places = (0..outputs[axis]).map(|at| at * spec.stride[axis] + row * dilation);
            places.any(|place| place.checked_sub(spec.pads[axis]).is_some_and(|inside| inside < size))
        };
        // As many rows of padding go with each; one kernel row stays in any case.
        let most = |pad: usize| (pad / dilation).min(spec.kernel[axis] - 1);
        let first = (0..most(spec.pads[axis])).take_while(|&row| !sees(row)).count();
        let last = most(spec.pads[axis + 2]).min(spec.kernel[axis] - 1 - first);
        let last = (0..last).take_while(|row| !sees(spec.kernel[axis] - 1 - row)).count();
        cut[axis] = [first, last];
    }
    if cut == [[0; 2]; 2] {
        return;
    }
    let [kh, kw] = spec.kernel;
    let [rows, columns] = [0, 1].map(|axis| cut[axis][0]..spec.kernel[axis] - cut[axis][1]);
    let kept = |kernel: &[f32]| -> Vec<f32> {
        kernel[rows.start * kw..rows.end * kw]
            .chunks_exact(kw)
            .flat_map(|row| &row[columns.clone()])
            .copied()
            .collect()
    };
    linear.weights = linear.weights.chunks_exact(kh * kw).flat_map(kept).collect();
    for (axis, [first, last]) in cut.into_iter().enumerate() {
        linear.spec.kernel[axis] -= first + last;
        linear.spec.pads[axis] -= first * linear.spec.dilation[axis];
        linear.spec.pads[axis + 2] -= last * linear.spec.dilation[axis];
    }
}

/// How a selection makes an axis longer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// So many indices for one.
    pub(crate) by: usize,
    /// The same value in all of them, rather than in the first one and zeros in the others (and none behind the last).
    pub(crate) repeated: bool,
}

/// The [`Spread`] that `picks` makes of an axis; `None` for other selections.
pub(crate) fn spread(picks: &[Option<usize>], size: usize) -> Option<Spread> {
    if picks.is_empty() {
        return Some(Spread { by: 1, repeated: true });
    }
    let repeated = Spread { by: picks.len() / size, repeated: true };
    let apart = Spread { by: (picks.len() - 1).checked_div(size - 1).unwrap_or(1), repeated: false };
    [repeated, apart].into_iter().find(|spread| {
        let by = spread.by.max(1);
        let place = |at: usize| (spread.repeated || at.is_multiple_of(by)).then_some(at / by);
        let len = if spread.repeated { size * by } else { (size - 1) * by + 1 };
        len == picks.len() && picks.iter().enumerate().all(|(at, pick)| *pick == place(at))
    })
}

/// The layer over pixels as they are that does what `linear` does over pixels spread by s = `axes[0].by` and t =
/// `axes[1].by`; output number `(o·s + r)·t + c` at (q, p) is its output o at (s·q + r, t·p + c). `None` where there
/// is nothing to gain, or the layer has strides, or it would have more weights and outputs than are `left`.
pub(crate) fn spread_linear(
    linear: &Linear,
    axes: [Spread; 2],
    input: Shape,
    output: Shape,
    left: &mut usize,
) -> Option<Linear> {
    let spec = &linear.spec;
    let apart = axes.map(|a| a.by);
    // Nor is there anything to gain where the outputs become many times the kernel.
    let area = spec.kernel[0] * spec.kernel[1];
    let many = apart[0].checked_mul(apart[1]).is_none_or(|components| components / 32 > area);
    if apart == [1, 1] || spec.stride != [1, 1] || many {
        return None;
    }
    // By axis: for a rest r of an output's index by s, and a tap, which pixel it meets, counted from q, if it is none
    // of the zeros.
    let pixel = |axis: usize, rest: usize, tap: usize| -> Option<i64> {
        let by = apart[axis] as i64;
        let place = (rest + tap * spec.dilation[axis]) as i64 - spec.pads[axis] as i64;
        (axes[axis].repeated || place.rem_euclid(by) == 0).then_some(place.div_euclid(by))
    };
    let (mut kernel, mut pads, mut start) = ([0; 2], [0; 4], [0i64; 2]);
    for axis in 0..2 {
        let rests = (0..apart[axis]).flat_map(|rest| (0..spec.kernel[axis]).map(move |tap| (rest, tap)));
        let pixels = rests.filter_map(|(rest, tap)| pixel(axis, rest, tap));
        let (first, last) = pixels.fold((0, 0), |(first, last), at| (at.min(first), at.max(last)));
        start[axis] = first;
        kernel[axis] = (last - first + 1) as usize;
        pads[axis] = -first as usize;
        let places = output[axis + 1].div_ceil(apart[axis]) + kernel[axis] - 1;
        // More places than are needed are cut off in the end.
        pads[axis + 2] = places.saturating_sub(input[axis + 1] + pads[axis]);
    }
    let components = apart[0] * apart[1];
    let out_channels = spec.out_channels.checked_mul(components)?;
    let wide = network::Linear { out_channels, kernel, pads, dilation: [1, 1], ..spec.clone() };
    let fits = network::output_shape(&network::Op::new(wide.clone()), &[input], output);
    let [_, high, broad] = fits.ok()?;
    // A kernel much larger than the old one is no gain.
    let weights_len = wide.weights_len(input[0]).filter(|n| n / 32 <= linear.weights.len())?;
    *left = left.checked_sub(weights_len + out_channels * high * broad)?;
    let depth = linear.weights.len() / spec.out_channels / area;
    let mut weights = vec![0.0; weights_len];
    for (at, taps) in weights.chunks_exact_mut(kernel[0] * kernel[1]).enumerate() {
        let (out, c) = (at / depth, at % depth);
        let old = &linear.weights[(out / components * depth + c) * area..][..area];
        let rests = [out % components / apart[1], out % apart[1]];
        for (tap, weight) in old.iter().enumerate() {
            let taps_at = [tap / spec.kernel[1], tap % spec.kernel[1]];
            let [row, column] = [0, 1].map(|axis| pixel(axis, rests[axis], taps_at[axis]));
            if let (Some(row), Some(column)) = (row, column) {
                taps[(row - start[0]) as usize * kernel[1] + (column - start[1]) as usize] += weight;
            }
        }
    }
    let bias = match &linear.bias {
        Bias::PerChannel(bias) => {
            Bias::PerChannel(bias.iter().flat_map(|&b| std::iter::repeat_n(b, components)).collect())
        }
        Bias::PerElement(bias) => {
            let mut spread = vec![0.0; out_channels * high * broad];
            for (at, value) in spread.iter_mut().enumerate() {
                let (out, place) = (at / (high * broad), at % (high * broad));
                let row = place / broad * apart[0] + out % components / apart[1];
                let column = place % broad * apart[1] + out % apart[1];
                if row < output[1] && column < output[2] {
                    *value = bias[(out / components * output[1] + row) * output[2] + column];
                }
            }
            Bias::PerElement(spread)
        }
    };
    Some(Linear { spec: wide, weights, bias })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cropped_kernels_compute_the_same(
            (h, w) in (1usize..6, 1usize..6),
            kernel in prop::array::uniform2(1usize..9),
            stride in prop::array::uniform2(1usize..4),
            dilation in prop::array::uniform2(1usize..3),
            pads in prop::array::uniform4(0usize..8),
        ) {
            let spec = network::Linear { kernel, stride, dilation, pads, groups: 2, ..network::Linear::same(4, 1, 0) };
            let input = [6, h, w];
            prop_assume!(spec.output_hw(input).is_some());
            let weights: Vec<f32> = (0..spec.weights_len(6).unwrap()).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
            let mut linear = Linear { spec: spec.clone(), weights, bias: Bias::PerChannel(vec![0.0; 4]) };
            let x: Vec<f32> = (0..6 * h * w).map(|i| (i * 5 % 17) as f32 - 8.0).collect();
            let want = convolve(Cpu::detect(), &spec, input, &linear.weights, &x);
            crop_kernel(&mut linear, input);
            prop_assert_eq!(linear.spec.output_hw(input), spec.output_hw(input));
            prop_assert_eq!(linear.spec.weights_len(6), Some(linear.weights.len()));
            prop_assert_eq!(convolve(Cpu::detect(), &linear.spec, input, &linear.weights, &x), want);
        }
    }

    #[test]
    fn a_kernel_over_one_pixel_is_pointwise() {
        let mut linear = Linear {
            spec: network::Linear::same(1, 3, 0),
            weights: (0..9).map(|i| i as f32).collect(),
            bias: Bias::PerChannel(vec![0.0]),
        };
        crop_kernel(&mut linear, [1, 1, 1]);
        assert_eq!((linear.spec, linear.weights), (network::Linear::same(1, 1, 0), vec![4.0]));
    }
}
