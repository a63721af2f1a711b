//! A linear layer backwards: its transposed matrix times a vector, in single precision.

use jaguar_ring::cpu::Cpu;
use rayon::prelude::*;

use crate::ir::convolution::{Linear, Weights};
use crate::ir::kernel::convolve;
use crate::ir::shape::Shape;

/// `x[c, ·] = Σ w·y / 2^shift` over all outputs y that input x goes to with weight w: `[C_out, H_out, W_out]` to `[C, H, W]` of
/// shape `input`. `None` if the weights or the values are not the layer's.
///
/// It is a convolution again: of the outputs, moved apart by the stride, with each kernel turned round.
pub(super) fn apply(
    cpu: Cpu,
    spec: &Linear,
    input: Shape,
    weights: &Weights,
    values: &[f32],
) -> Option<Vec<f32>> {
    let [channels, height, width] = input;
    let [h, w] = spec.output_hw(input)?;
    let fits = spec.weights_len(channels) == Some(weights.weights.len());
    if !fits || values.len() != spec.out_channels * h * w {
        return None;
    }
    let (per_group, rows, area) =
        (channels / spec.groups, spec.out_channels / spec.groups, spec.kernel[0] * spec.kernel[1]);
    let unit = |d| 2f32.powi(weights.exponent(d) as i32 - spec.shift as i32);
    if [h, w] == [1, 1] && spec.kernel == [height, width] && spec.pads == [0; 4] {
        // A fully connected layer: each row of weights times its value.
        let mut x = vec![0.0; channels * area];
        x.par_chunks_mut(area).enumerate().for_each(|(c, plane)| {
            for row in 0..rows {
                let d = c / per_group * rows + row;
                let by = unit(d) * values[d];
                let weights = &weights.weights[(d * per_group + c % per_group) * area..][..area];
                plane.iter_mut().zip(weights).for_each(|(x, &weight)| *x += by * f32::from(weight));
            }
        });
        return Some(x);
    }
    let margin = [0, 1].map(|axis| (spec.kernel[axis] - 1) * spec.dilation[axis]);
    let size = [height + margin[0], width + margin[1]];
    // Where output `at` comes to lie; nothing of the input sees those that have no place.
    let place = |axis: usize, at: usize| {
        (at * spec.stride[axis] + margin[axis]).checked_sub(spec.pads[axis]).filter(|&p| p < size[axis])
    };
    let mut apart = vec![0.0; spec.out_channels * size[0] * size[1]];
    apart.par_chunks_mut(size[0] * size[1]).zip(values.par_chunks(h * w)).enumerate().for_each(
        |(d, (plane, values))| {
            let unit = unit(d);
            for (at, line) in values.chunks_exact(w).enumerate() {
                let Some(row) = place(0, at) else { continue };
                for (at, value) in line.iter().enumerate() {
                    if let Some(column) = place(1, at) {
                        plane[row * size[1] + column] = unit * value;
                    }
                }
            }
        },
    );
    let mut turned = vec![0.0; weights.weights.len()];
    turned.par_chunks_mut(rows * area).enumerate().for_each(|(c, kernels)| {
        for (row, kernel) in kernels.chunks_exact_mut(area).enumerate() {
            let d = c / per_group * rows + row;
            let own = &weights.weights[(d * per_group + c % per_group) * area..][..area];
            kernel.iter_mut().zip(own.iter().rev()).for_each(|(turned, &weight)| *turned = f32::from(weight));
        }
    });
    let backwards =
        Linear { out_channels: channels, stride: [1; 2], pads: [0; 4], blocks: None, ..spec.clone() };
    Some(convolve(cpu, &backwards, [spec.out_channels, size[0], size[1]], &turned, &apart))
}
