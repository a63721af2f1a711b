//! Convolution or fully connected layer: `y = (Σ w·x + bias) / 2^shift`, rounded to a neighbour.
//!
//! The plaintext reference rounds to nearest. A private run rounds to one of the two neighbours by chance.

pub(crate) mod affine;
pub(crate) mod choice;
pub(crate) mod float;
pub(crate) mod fold;
pub(crate) mod onnx;
mod transposed;

use jaguar_mpc::semantics::{round_shift, shift_by_share};
use jaguar_ring::cpu::Cpu;
use rayon::prelude::*;

pub use crate::ir::convolution::Linear;
use crate::ir::convolution::{Bias, Weights};
use crate::ir::error::NodeError;
use crate::ir::kernel::convolve;
use crate::ir::limits::{MAX_BIAS, MAX_EXPONENT, MAX_MULTIPLY_ADDS, MAX_WEIGHTS, SHIFTS, check, extents};
use crate::ir::shape::Shape;
use crate::ops::operator::{Chance, Effort, Numbered, Operands, Operator, Scale, Sign, Source, Value, Work};

impl Numbered for Linear {
    const NUMBER: u32 = 1;
}

impl Operator for Linear {
    fn name(&self) -> &'static str {
        "Linear"
    }

    fn work(&self) -> Work<'_> {
        Work::Linear(self)
    }

    fn describe(&self) -> String {
        let size = format!("{}x{}/{}", self.kernel[0], self.kernel[1], self.stride[0]);
        if self.groups > 1 && self.groups == self.out_channels {
            return format!("depthwise {size}");
        }
        let groups = if self.groups > 1 { format!(" in {} groups", self.groups) } else { String::new() };
        let blocks = self.blocks.map_or_else(String::new, |blocks| format!(", {blocks}"));
        format!("conv {size}{groups}{blocks}")
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        let input = inputs[0];
        extents("kernel", 1, &self.kernel)?;
        extents("stride", 1, &self.stride)?;
        extents("dilation", 1, &self.dilation)?;
        extents("pads", 0, &self.pads)?;
        check(self.out_channels >= 1, "channels")?;
        let divides = |channels: usize| self.groups >= 1 && channels.is_multiple_of(self.groups);
        check(divides(input[0]) && divides(self.out_channels), "groups")?;
        check(self.blocks.is_none_or(|blocks| blocks.fit(self, input[0])), "block size")?;
        let weights = self.weights_len(input[0]).ok_or(NodeError::Range("number of weights"))?;
        check(weights <= MAX_WEIGHTS, "number of weights")?;
        let [h, w] = self.output_hw(input).ok_or(NodeError::Range("kernel"))?;
        let work = self.multiply_adds(input).ok_or(NodeError::Range("number of multiply-adds"))?;
        check(work as u64 <= MAX_MULTIPLY_ADDS, "number of multiply-adds")?;
        Ok([self.out_channels, h, w])
    }

    fn check(&self, _: u32) -> Result<(), NodeError> {
        check(SHIFTS.contains(&self.shift), "shift")?;
        check(self.max_exponent <= MAX_EXPONENT, "max_exponent")
    }

    fn check_weights(
        &self,
        input: Option<Shape>,
        output: Shape,
        weights: Option<&Weights>,
        limit: i32,
    ) -> Result<(), NodeError> {
        let (Some(input), Some(weights)) = (input, weights) else { return Err(NodeError::Weights) };
        let length = |what, found, expected| {
            if found == expected { Ok(()) } else { Err(NodeError::Length { what, found, expected }) }
        };
        let expected = self.weights_len(input[0]).ok_or(NodeError::Range("groups"))?;
        length("weights", weights.weights.len(), expected)?;
        check(weights.weights.iter().all(|&w| i32::from(w).abs() <= limit), "a weight")?;
        if !weights.exponents.is_empty() {
            length("exponents", weights.exponents.len(), self.out_channels)?;
        }
        check(weights.exponents.iter().all(|&e| u32::from(e) <= self.max_exponent), "an exponent")?;
        if let Some(blocks) = self.blocks {
            let misplaced = blocks.misplaced(&weights.weights, input[0], self.kernel);
            misplaced.map_or(Ok(()), |entry| Err(NodeError::Block { blocks, entry }))?;
            let alike = |of_block: &[u8]| of_block.iter().all(|e| e == &of_block[0]);
            check(weights.exponents.chunks(blocks.size).all(alike), "exponents of a block")?;
        }
        let biases = match &weights.bias {
            Bias::PerChannel(b) => (b, self.out_channels),
            Bias::PerElement(b) => (b, output.iter().product()),
        };
        length("biases", biases.0.len(), biases.1)?;
        check(biases.0.iter().all(|b| b.unsigned_abs() <= MAX_BIAS.unsigned_abs()), "a bias")
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn value(&self) -> Value {
        let at_place = (self.kernel, self.stride, self.pads) == ([1, 1], [1, 1], [0; 4]);
        let by_channel = self.groups == self.out_channels;
        let source = if at_place && by_channel { Source::Scaled } else { Source::Several };
        Value { scale: Scale::Own, sign: Sign::Any, source }
    }

    /// Its shift is from the scale of products to that of values, which both move.
    fn rescale(&mut self, _: i32) -> Result<(), &'static str> {
        Ok(())
    }

    fn effort(&self, inputs: &[Shape], _: Shape) -> Effort {
        let places = (self.kernel[0] as u64).saturating_mul(self.kernel[1] as u64);
        let products = self.multiply_adds(inputs[0]);
        let operations = products.map_or(u64::MAX, |m| (m as u64).saturating_add(places));
        Effort { operations, ..Effort::default() }
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let mut values = self.products(of)?;
        values.iter_mut().for_each(|m| *m = round_shift(*m, self.shift));
        Some(values)
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        if !chance.draws.rounding {
            return self.apply(of);
        }
        Some(chance.each(&self.products(of)?, |m, share| shift_by_share(m, self.shift, share)))
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let (shape, _) = of.first();
        Some(vec![transposed::apply(of.cpu, self, shape, of.weights?, by)?])
    }
}

impl Linear {
    /// [`linear_exact`], if the weights are the layer's own.
    fn products(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let (shape, x) = of.first();
        let products = linear_exact(of.cpu, self, shape, of.weights?, x);
        (products.len() == of.output.iter().product::<usize>()).then_some(products)
    }
}

/// Products above this are not exact in double precision.
const EXACT: f64 = (1u64 << 53) as f64;

/// `Σ w·x + bias` of a linear layer, before the shift: `[C_out, H_out, W_out]`.
///
/// `x` has the shape `in_shape`, `weights` belong to `spec` over it (as
/// [`Model::validate`](crate::network::Model::validate) checks); else the result is empty. Sums beyond 64 bits wrap
/// around; no validated model with inputs of up to 40 bits comes near. All instructions that `cpu` has give the same result.
pub fn linear_exact(cpu: Cpu, spec: &Linear, in_shape: Shape, weights: &Weights, x: &[i64]) -> Vec<i64> {
    let fits = spec.weights_len(in_shape[0]) == Some(weights.weights.len())
        && x.len() == in_shape.iter().product::<usize>()
        && spec.out_channels > 0;
    let Some([h, w]) = spec.output_hw(in_shape).filter(|_| fits) else { return Vec::new() };
    let depth = weights.weights.len() / spec.out_channels;
    let heaviest =
        weights.weights.chunks_exact(depth.max(1)).map(|row| row.iter().map(|&w| f64::from(w).abs()).sum());
    let heaviest: f64 = heaviest.fold(0.0, f64::max);
    let largest = x.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
    // Where every partial sum is an integer below 2^53, double precision adds without rounding.
    let is_exact = |largest: f64| heaviest * largest < EXACT;
    let convolved = |part: &dyn Fn(i64) -> i64| {
        let as_f64: Vec<f64> = weights.weights.iter().map(|&w| f64::from(w)).collect();
        let x: Vec<f64> = x.iter().map(|&v| part(v) as f64).collect();
        convolve(cpu, spec, in_shape, &as_f64, &x).into_iter().map(|v| v as i64)
    };
    let half = (64 - largest.leading_zeros()).div_ceil(2);
    let unit = f64::from(half).exp2();
    let mut products: Vec<i64> = if is_exact(largest as f64) {
        convolved(&|v| v).collect()
    } else if is_exact(unit) && is_exact(largest as f64 / unit + 1.0) {
        // Of either half of the values by itself.
        let high = convolved(&|v| v >> half);
        let low = convolved(&|v| v & ((1 << half) - 1));
        high.zip(low).map(|(high, low)| (high << half).wrapping_add(low)).collect()
    } else {
        convolve_integers(spec, in_shape, &weights.weights, x, [h, w])
    };
    if !weights.exponents.is_empty() {
        for (d, plane) in products.chunks_exact_mut(h * w).enumerate() {
            plane.iter_mut().for_each(|m| *m <<= weights.exponent(d));
        }
    }
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

/// The definition of a convolution, in 64-bit integers, for the rare layer that double precision cannot hold, not even in halves.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The fast paths against the definition, at the largest values: of 30 bits and more they are cut in halves.
        #[test]
        fn both_ways_to_convolve_agree(
            size in prop::array::uniform2(1usize..9), kernel in prop::array::uniform2(1usize..4),
            stride in prop::array::uniform2(1usize..3), pads in prop::array::uniform4(0usize..3),
            groups in 1usize..3, bits in 8u32..41, seed in any::<u64>(),
        ) {
            let spec = Linear { out_channels: 4 * groups, kernel, stride, dilation: [1, 1], pads, groups, shift: 8, max_exponent: 0, blocks: None };
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
            let fast = linear_exact(Cpu::detect(), &spec, input, &Weights { weights, exponents: Vec::new(), bias: Bias::PerElement(vec![0; slow.len()]) }, &x);
            prop_assert_eq!(fast, slow);
        }
    }
}
