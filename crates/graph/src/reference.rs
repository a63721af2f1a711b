//! The integer network in plaintext, exactly: what a private run is compared with.
//!
//! A linear layer here rounds to nearest: `(m + 2^(f-1)) >> f` for the exact product m, bias included. The private
//! run rounds to one of the two neighbours of `m / 2^f` and so differs by at most one unit per linear layer;
//! [`linear_exact`] gives m itself, for comparing bit for bit when the rounding is known. Signs and the comparisons of max-pools are
//! exact here, whatever number of bits [`Op::Relu`] says may be left out of them.
//!
//! What a private run leaves to chance is imitated by [`run_drawn`]: how linear layers round, and what signs of reduced precision
//! make of small values and differences. Both depend on the low bits of a share, which are uniform and independent from element to element.

use jaguar_bracket::Bracket;
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

/// The chance in one private run, imitated: the low bits of the client's share of every value, those inside a max-pool included. Reproducible from the seed; made
/// for studying errors, and of no use as a source of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Runs with different seeds are independent.
    pub seed: u64,
    /// Whether linear layers round by chance too, as they do in a private run, instead of to nearest.
    pub rounding: bool,
}

impl Draws {
    /// 64 bits for one element of a node's input (of a max-pool, also for what it makes on the way): the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), over
    /// the place and then, with the seed, once more.
    fn bits(self, node: NodeId, element: usize) -> u64 {
        let place = (node as u64) << 32 | element as u64;
        mix(mix(place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            ^ mix(self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// What a sign that leaves out the lowest `ignored` bits (at most 62) takes for ⌊x / 2^ignored⌋: one less if the lowest bits of both
/// parties' shares carry. `client` is the client's share; only its lowest bits matter. If they are uniform, the carry has
/// probability `1 - (x mod 2^ignored + 1) / 2^ignored`.
fn seen(x: i64, ignored: u32, client: u64) -> i64 {
    let low = (1u64 << ignored) - 1;
    (x >> ignored) - i64::from(client & low > x as u64 & low)
}

/// What a ReLU whose sign leaves out the lowest `ignored` bits makes of x, if `client` is the client's share of it (of which only the
/// lowest bits matter): 0 or x where `0 <= x < 2^ignored - 1`, and max(x, 0) elsewhere.
pub fn relu_ignoring(x: i64, ignored: u32, client: u64) -> i64 {
    if seen(x, ignored, client) >= 0 { x } else { 0 }
}

/// As [`relu_ignoring`] with a clip at 2^log2_six, from which x may remain where `2^log2_six < x < 2^log2_six + 2^ignored - 1`. For
/// `ignored < log2_six`.
pub fn relu6_ignoring(x: i64, log2_six: u32, ignored: u32, client: u64) -> i64 {
    match seen(x, ignored, client) {
        ..0 => 0,
        seen if seen >> (log2_six - ignored) > 0 => 1 << log2_six,
        _ => x,
    }
}

/// What a max-pool whose comparisons leave out the lowest `ignored` bits (at most 62) makes of `x`, `[C, H, W]`, if `client(c, i)` is the
/// client's share of value number i, in the `bracket`'s numbers, of channel c (of which only the lowest bits matter): one
/// of the window's values, below the largest by at most [`pool_slack`] for each level.
///
/// `bracket` is that of the pool over `[H, W]` ([`Window::bracket`](crate::network::Window::bracket)).
pub fn maxpool_ignoring(
    bracket: &Bracket,
    x: &[i64],
    ignored: u32,
    client: impl Fn(usize, usize) -> u64 + Sync,
) -> Vec<i64> {
    // What is compared is the difference and this, so that mistakes are as likely on either side.
    let offset = pool_slack(ignored);
    let channel = |(c, x): (usize, &[i64])| -> Vec<i64> {
        let mut values = Vec::with_capacity(bracket.values());
        values.extend_from_slice(x);
        for &(a, b) in bracket.levels().iter().flatten() {
            let share = client(c, a).wrapping_sub(client(c, b));
            let first = seen(values[a] - values[b] + offset, ignored, share) >= 0;
            values.push(values[if first { a } else { b }]);
        }
        bracket.outputs().iter().map(|&i| values[i]).collect()
    };
    x.par_chunks(bracket.places()).enumerate().flat_map_iter(channel).collect()
}

/// By how much the smaller of two values that win a comparison without the lowest `ignored` bits may lie below the larger.
pub fn pool_slack(ignored: u32) -> i64 {
    ((1i64 << ignored) / 2 - 1).max(0)
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
        (Op::MaxPool { window, .. }, _) => pool(window, shape, x, i64::MIN, i64::max, |best, _| best),
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

/// [`apply_op`], but with what a private run leaves to chance as `draws` say.
///
/// # Errors
/// As [`apply_op`].
pub fn apply_op_drawn(
    network: &Network,
    node: NodeId,
    weights: Option<&Weights>,
    inputs: &[&[i64]],
    draws: Draws,
) -> Result<Vec<i64>, ReferenceError> {
    let by_chance = |of: &dyn Fn(i64, u64) -> i64, x: &[i64]| {
        x.iter().enumerate().map(|(i, &v)| of(v, draws.bits(node, i))).collect()
    };
    let this = network.nodes.get(node).ok_or(ReferenceError::Node(node))?;
    match (&this.op, inputs, weights) {
        (&Op::Relu { ignored: s @ 2.. }, [x], None) => Ok(by_chance(&|v, c| relu_ignoring(v, s, c), x)),
        (&Op::Relu6 { log2_six: j, ignored: s @ 2.. }, [x], None) => {
            Ok(by_chance(&|v, c| relu6_ignoring(v, j, s, c), x))
        }
        (Op::MaxPool { window, ignored: s @ 2.. }, [x], None) => {
            let shape = network.nodes[this.inputs[0]].shape;
            if x.len() != shape.iter().product::<usize>() {
                return Err(ReferenceError::Node(node));
            }
            // A share for every value, winners too: theirs are fresh.
            let bracket = window.bracket([shape[1], shape[2]]);
            let values = bracket.values();
            Ok(maxpool_ignoring(&bracket, x, *s, |c, i| draws.bits(node, c * values + i)))
        }
        (Op::Linear(spec), [x], Some(weights)) if draws.rounding => {
            let shape = network.nodes[this.inputs[0]].shape;
            let exact = linear_exact(spec, shape, weights, x);
            if exact.len() != this.shape.iter().product::<usize>() {
                return Err(ReferenceError::Node(node));
            }
            // Up with probability (m mod 2^f) / 2^f: a uniform f-bit number carries out of the fraction so often.
            let low = (1u64 << spec.shift) - 1;
            Ok(by_chance(&|m, c| m.wrapping_add((c & low) as i64) >> spec.shift, &exact))
        }
        _ => apply_op(network, node, weights, inputs),
    }
}

/// Runs a model that has passed [`Model::validate`] on the input's integers.
///
/// # Errors
/// [`ReferenceError::Input`] for an input of the wrong length.
pub fn run(model: &Model, input: &[i64]) -> Result<Run, ReferenceError> {
    walk(model, input, |node, weights, inputs| apply_op(&model.network, node, weights, inputs))
}

/// [`run`], but as a private run may turn out: with `draws` for what is left to chance there. (The noise of linear layers, some
/// thousandths of a unit, is left out.)
///
/// # Errors
/// As [`run`].
pub fn run_drawn(model: &Model, input: &[i64], draws: Draws) -> Result<Run, ReferenceError> {
    walk(model, input, |node, weights, inputs| apply_op_drawn(&model.network, node, weights, inputs, draws))
}

fn walk(
    model: &Model,
    input: &[i64],
    apply: impl Fn(NodeId, Option<&Weights>, &[&[i64]]) -> Result<Vec<i64>, ReferenceError>,
) -> Result<Run, ReferenceError> {
    let network = &model.network;
    let expected = network.nodes[0].shape.iter().product();
    if input.len() != expected {
        return Err(ReferenceError::Input { found: input.len(), expected });
    }
    let mut values: Vec<Vec<i64>> = vec![input.to_vec()];
    for node in 1..network.nodes.len() {
        let inputs: Vec<&[i64]> = network.nodes[node].inputs.iter().map(|&i| values[i].as_slice()).collect();
        let weights = model.weights.get(node).and_then(Option::as_ref);
        values.push(apply(node, weights, &inputs)?);
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
    use crate::network::Window;

    #[test]
    fn rounding_is_to_nearest() {
        for (m, shift, expected) in
            [(5, 1, 3), (-5, 1, -2), (7, 2, 2), (-7, 2, -2), (-9, 2, -2), (i64::MAX, 1, 1 << 62)]
        {
            assert_eq!(round_shift(m, shift), expected, "{m} >> {shift}");
        }
    }

    /// All shares of all values of eight bits: what comes out, and how often, is what the header of `mpc/relu.rs` states.
    #[test]
    fn signs_of_reduced_precision_err_as_often_as_stated() {
        for ignored in 0..5u32 {
            let (whole, six) = (1i64 << ignored, 5u32);
            for x in -100..100 {
                let share = |c: i64| relu_ignoring(x, ignored, c as u64);
                let lost = (0..whole).filter(|&c| share(c) != x.max(0)).count() as i64;
                assert!((0..whole).all(|c| share(c) == x.max(0) || share(c) == 0));
                let expected = if (1..whole).contains(&x) { whole - (x + 1) } else { 0 };
                assert_eq!(lost, expected, "{x} without {ignored} bits");

                let share = |c: i64| relu6_ignoring(x, six, ignored, c as u64);
                let over = x - (1 << six);
                let kept = if (1..whole).contains(&over) { whole - (over + 1) } else { 0 };
                let got: Vec<i64> = (0..whole).map(share).filter(|&y| y != x.clamp(0, 1 << six)).collect();
                assert_eq!(got.len() as i64, expected + kept, "{x} without {ignored} bits");
                assert!(got.iter().all(|&y| y == if expected > 0 { 0 } else { x }));
            }
        }
    }

    /// The draws of one run, counted over its elements: within five standard deviations of the stated probability, and
    /// different from node to node and seed to seed.
    #[test]
    fn draws_are_uniform() {
        const COUNT: usize = 1 << 16;
        for (seed, node) in [(0, 1), (0, 2), (1, 1), (u64::MAX, 1 << 19)] {
            let draws = Draws { seed, rounding: false };
            for (x, ignored) in [(0, 4), (7, 4), (14, 4), (100, 8), (3, 2)] {
                let lost = |i| relu_ignoring(x, ignored, draws.bits(node, i)) == 0;
                let p = if x == 0 { 1.0 } else { 1.0 - (x as f64 + 1.0) / f64::from(1u32 << ignored) };
                let found = (0..COUNT).filter(|&i| lost(i)).count() as f64;
                let deviation = (COUNT as f64 * p * (1.0 - p)).sqrt();
                assert!(
                    (found - p * COUNT as f64).abs() <= 5.0 * deviation,
                    "{found} of {COUNT} at {x}, {p}"
                );
            }
        }
        let of = |seed, node| (0..64).map(move |i| Draws { seed, rounding: false }.bits(node, i) & 1);
        assert!(of(0, 1).ne(of(0, 2)) && of(0, 1).ne(of(1, 1)));
    }

    /// A window of three neighbours, all shares of all its values modulo eight: what comes out, and how often.
    #[test]
    fn reduced_comparisons_err_as_often_as_stated() {
        let bracket = Window { kernel: [1, 3], stride: [1, 1], pads: [0; 4] }.bracket([1, 3]);
        let pool = |x: &[i64], ignored, shares: [u64; 4]| {
            let y = maxpool_ignoring(&bracket, x, ignored, |_, i| shares[i]);
            assert_eq!(y.len(), 1);
            y[0]
        };
        let all = || (0..1u64 << 12).map(|i| [i & 7, i >> 3 & 7, i >> 6 & 7, i >> 9]);
        for low in [-5i64, 0, 2] {
            // The larger of two that are t apart loses with probability 1/2 - t/8, wherever it stands; the third is far below.
            for t in 1..6 {
                for x in [[low + t, low, low - 40], [low, low + t, low - 40]] {
                    let lost = all().filter(|&shares| pool(&x, 3, shares) == low).count() as i64;
                    assert_eq!(lost, 4096 * (4 - t).max(0) / 8, "{t} apart");
                    assert!(all().all(|shares| [low, low + t].contains(&pool(&x, 3, shares))));
                    // Nothing is lost where no more than one bit is left out.
                    assert!(all().all(|shares| [0, 1].iter().all(|&s| pool(&x, s, shares) == low + t)));
                }
            }
            // Two levels lose twice the slack at most, and do.
            let x = [low + 6, low + 3, low];
            assert_eq!(all().map(|shares| pool(&x, 3, shares)).min(), Some(x[0] - 2 * pool_slack(3)));
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
            let spec = Linear { out_channels: 4 * groups, kernel, stride, dilation: [1, 1], pads, groups, shift: 8, max_exponent: 0 };
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
            let fast = linear_exact(&spec, input, &Weights { weights, exponents: Vec::new(), bias: Bias::PerElement(vec![0; slow.len()]) }, &x);
            prop_assert_eq!(fast, slow);
        }
    }
}
