//! The integer network in plaintext, exactly: what a private run is compared with.
//!
//! A linear layer here rounds to nearest: `(m + 2^(f-1)) >> f` for the exact product m, bias included. The private
//! run rounds to one of the two neighbours of `m / 2^f` and so differs by at most one unit per linear layer;
//! [`linear_exact`] gives m itself, for comparing bit for bit when the rounding is known.

use rayon::prelude::*;
use thiserror::Error;

use crate::float::{pool, rearrange};
use crate::kernel::convolve;
use crate::network::{Bias, Linear, Model, Network, NodeId, Op, Shape, Weights};

/// Why a reference run cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// An input of the wrong length.
    #[error("the input has {found} values, the network takes {expected}")]
    Input {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Arguments that do not belong to the node.
    #[error("node {0}: the inputs or weights given are not this node's")]
    Node(NodeId),
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// By node, its value.
    pub values: Vec<Vec<i64>>,
    /// By node, how many of its elements lie outside the range that [`Network::value_bits`] says. A private run
    /// wraps these around, so it agrees with the reference only if there are none.
    pub overflows: Vec<usize>,
    /// By node, how many of its elements use the last bit of that range. Nonlinear layers may need that bit.
    pub tight: Vec<usize>,
}

impl Run {
    /// The network's output.
    pub fn output(&self) -> &[i64] {
        self.values.last().map_or(&[], Vec::as_slice)
    }

    /// Elements out of range, all together.
    pub fn total_overflows(&self) -> usize {
        self.overflows.iter().sum()
    }
}

/// Products above this are not exact in double precision.
const EXACT: f64 = (1u64 << 53) as f64;

/// `Σ w·x + bias` of a linear layer, before the shift: `[C_out, H_out, W_out]`.
///
/// `x` has the shape `in_shape`, `weights` belong to `spec` over it (as [`Model::validate`] checks); else the result
/// is empty. Sums beyond 64 bits wrap around; no validated model with inputs of up to 40 bits comes near.
pub fn linear_exact(spec: &Linear, in_shape: Shape, weights: &Weights, x: &[i64]) -> Vec<i64> {
    let fits = spec.weights_len(in_shape[0]) == Some(weights.weights.len())
        && x.len() == in_shape.iter().product()
        && spec.out_channels > 0;
    let Some([h, w]) = spec.output_hw(in_shape).filter(|_| fits) else { return Vec::new() };
    let depth = weights.weights.len() / spec.out_channels;
    let heaviest =
        weights.weights.chunks_exact(depth.max(1)).map(|row| row.iter().map(|&w| f64::from(w).abs()).sum());
    let heaviest: f64 = heaviest.fold(0.0, f64::max);
    let largest = x.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0) as f64;
    let mut products: Vec<i64> = if heaviest * largest < EXACT {
        // Every partial sum is an integer below 2^53: double precision adds without rounding.
        let as_f64: Vec<f64> = weights.weights.iter().map(|&w| f64::from(w)).collect();
        let x: Vec<f64> = x.iter().map(|&v| v as f64).collect();
        convolve(spec, in_shape, &as_f64, &x).into_iter().map(|v| v as i64).collect()
    } else {
        convolve_integers(spec, in_shape, &weights.weights, x, [h, w])
    };
    match &weights.bias {
        Bias::PerChannel(bias) => {
            for (plane, bias) in products.chunks_exact_mut(h * w).zip(bias) {
                plane.iter_mut().for_each(|m| *m = m.wrapping_add(*bias));
            }
        }
        Bias::PerElement(bias) => {
            products.iter_mut().zip(bias).for_each(|(m, bias)| *m = m.wrapping_add(*bias))
        }
    }
    products
}

/// The definition of a convolution, in 64-bit integers, for the rare layer that double precision cannot hold.
fn convolve_integers(
    spec: &Linear,
    input: Shape,
    weights: &[i16],
    x: &[i64],
    [h, w]: [usize; 2],
) -> Vec<i64> {
    let (per_group, rows) = (input[0] / spec.groups, spec.out_channels / spec.groups);
    let [kh, kw] = spec.kernel;
    let mut out = vec![0i64; spec.out_channels * h * w];
    out.par_chunks_mut(h * w).enumerate().for_each(|(d, plane)| {
        for (position, out) in plane.iter_mut().enumerate() {
            for tap in 0..per_group * kh * kw {
                let (c, u, v) = (tap / (kh * kw), tap / kw % kh, tap % kw);
                let row = (position / w * spec.stride[0] + u * spec.dilation[0]).checked_sub(spec.pads[0]);
                let column = (position % w * spec.stride[1] + v * spec.dilation[1]).checked_sub(spec.pads[1]);
                let (Some(row), Some(column)) = (row, column) else { continue };
                if row < input[1] && column < input[2] {
                    let value = x[((d / rows * per_group + c) * input[1] + row) * input[2] + column];
                    let product = i64::from(weights[d * per_group * kh * kw + tap]).wrapping_mul(value);
                    *out = out.wrapping_add(product);
                }
            }
        }
    });
    out
}

/// The nearest integer to `m / 2^shift`, halves upwards, for shifts of 1 to 63.
pub fn round_shift(m: i64, shift: u32) -> i64 {
    // Without overflow for any m: the bit below the cut says whether to go up.
    (m >> shift) + ((m >> (shift - 1)) & 1)
}

/// One node's value from its inputs' values (as plain integers, not wrapped around).
///
/// `network` has passed [`Network::validate`], and `weights` are the node's own for a linear node, `None` for others.
///
/// # Errors
/// [`ReferenceError::Node`] if the inputs' lengths or the weights are not what the node needs; the input node has
/// no inputs to compute from and is refused too.
pub fn apply_op(
    network: &Network,
    node: NodeId,
    weights: Option<&Weights>,
    inputs: &[&[i64]],
) -> Result<Vec<i64>, ReferenceError> {
    let error = ReferenceError::Node(node);
    let Some(this) = network.nodes.get(node) else { return Err(error) };
    let shapes: Vec<Shape> = this.inputs.iter().map(|&i| network.nodes[i].shape).collect();
    let lengths = shapes.iter().map(|s| s.iter().product::<usize>());
    if inputs.is_empty() || !lengths.eq(inputs.iter().map(|x| x.len())) {
        return Err(error);
    }
    let (shape, x) = (shapes[0], inputs[0]);
    Ok(match (&this.op, weights) {
        (Op::Linear(spec), Some(weights)) => {
            let mut values = linear_exact(spec, shape, weights, x);
            if values.len() != this.shape.iter().product::<usize>() {
                return Err(error);
            }
            values.iter_mut().for_each(|m| *m = round_shift(*m, spec.shift));
            values
        }
        (Op::Input | Op::Linear(_), _) | (_, Some(_)) => return Err(error),
        (Op::Relu { .. }, _) => x.iter().map(|&v| v.max(0)).collect(),
        (Op::Relu6 { log2_six, .. }, _) => x.iter().map(|&v| v.clamp(0, 1 << log2_six)).collect(),
        (Op::MaxPool(window), _) => pool(window, shape, x, i64::MIN, i64::max, |best, _| best),
        (Op::SumPool { window, count_real_places }, _) => {
            let full = count_real_places.map(i64::from);
            pool(
                window,
                shape,
                x,
                0,
                |a, b| a + b,
                |sum, real| sum * full.map_or(1, |full| full / real as i64),
            )
        }
        (Op::Add, _) => x.iter().zip(inputs[1]).map(|(a, b)| a + b).collect(),
        (Op::Concat, _) => inputs.concat(),
        (Op::Rearrange(r), _) => rearrange(r, shape, this.shape, x),
    })
}

/// Runs a model that has passed [`Model::validate`] on the input's integers.
///
/// # Errors
/// [`ReferenceError::Input`] for an input of the wrong length.
pub fn run(model: &Model, input: &[i64]) -> Result<Run, ReferenceError> {
    let network = &model.network;
    let expected = network.nodes[0].shape.iter().product();
    if input.len() != expected {
        return Err(ReferenceError::Input { found: input.len(), expected });
    }
    let mut values: Vec<Vec<i64>> = vec![input.to_vec()];
    for node in 1..network.nodes.len() {
        let inputs: Vec<&[i64]> = network.nodes[node].inputs.iter().map(|&i| values[i].as_slice()).collect();
        let weights = model.weights.get(node).and_then(Option::as_ref);
        values.push(apply_op(network, node, weights, &inputs)?);
    }
    let beyond = |bits: u32, values: &[i64]| {
        let bound = 1i64 << (bits - 1);
        values.iter().filter(|v| !(-bound..bound).contains(*v)).count()
    };
    let bits = network.value_bits();
    let overflows: Vec<usize> = values.iter().zip(&bits).map(|(v, &b)| beyond(b, v)).collect();
    let tight = values.iter().zip(&bits).zip(&overflows).map(|((v, &b), o)| beyond(b - 1, v) - o).collect();
    Ok(Run { values, overflows, tight })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rounding_is_to_nearest() {
        for (m, shift, expected) in
            [(5, 1, 3), (-5, 1, -2), (7, 2, 2), (-7, 2, -2), (-9, 2, -2), (i64::MAX, 1, 1 << 62)]
        {
            assert_eq!(round_shift(m, shift), expected, "{m} >> {shift}");
        }
    }

    proptest! {
        #[test]
        fn rounding_is_off_by_half_at_most(m in any::<i64>(), shift in 1u32..40) {
            let error = i128::from(m) - (i128::from(round_shift(m, shift)) << shift);
            prop_assert!(2 * error < 1 << shift && 2 * error >= -(1 << shift));
        }

        /// The fast path against the definition, at the largest values.
        #[test]
        fn both_ways_to_convolve_agree(
            size in prop::array::uniform2(1usize..9), kernel in prop::array::uniform2(1usize..4),
            stride in prop::array::uniform2(1usize..3), pads in prop::array::uniform4(0usize..3),
            groups in 1usize..3, bits in 8u32..24, seed in any::<u64>(),
        ) {
            let spec = Linear { out_channels: 4 * groups, kernel, stride, dilation: [1, 1], pads, groups, shift: 8 };
            let input = [3 * groups, size[0], size[1]];
            let hw = spec.output_hw(input);
            prop_assume!(hw.is_some());
            let mut state = seed | 1;
            let mut draw = || { state ^= state << 13; state ^= state >> 7; state ^= state << 17; state };
            // Mostly extremes.
            let bound = 1i64 << (bits - 1);
            let x: Vec<i64> = (0..input.iter().product()).map(|_| match draw() % 3 {
                0 => -bound,
                1 => bound - 1,
                _ => (draw() as i64).rem_euclid(2 * bound) - bound,
            }).collect();
            let weights: Vec<i16> = (0..spec.weights_len(input[0]).unwrap()).map(|_| match draw() % 3 {
                0 => -i16::MAX,
                1 => i16::MAX,
                _ => draw() as i16,
            }).collect();
            let slow = convolve_integers(&spec, input, &weights, &x, hw.unwrap());
            let fast = linear_exact(&spec, input, &Weights { weights, bias: Bias::PerElement(vec![0; slow.len()]) }, &x);
            prop_assert_eq!(fast, slow);
        }
    }
}
