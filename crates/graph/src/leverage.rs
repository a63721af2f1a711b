//! How much a single hidden value weighs in what is opened.
//!
//! A rounding moves a hidden value by one unit or by none, and the client knows which ([`Hiding`](crate::network::Hiding)). What is opened moves by
//! the value's column J of the Jacobian. The longer the longest column is, the more noise it takes to hide the rounding.

use jaguar_ring::cpu::Cpu;
use rayon::prelude::*;

use crate::ir::draws::Draws;
use crate::network::{Model, Network, Node, Shape, Work};
use crate::ops::operator::{Operands, Source};
use crate::reference::{self, ReferenceError};

/// Up to so many opened values, the Jacobian's columns are computed exactly.
const EXACT: usize = 16;
/// From more, by so many random sums of them twice: by the first the longest columns are chosen, by the second they are measured. (Of
/// many that are measured with an error, the one that is found to be the longest is not.)
const SUMS: usize = 16;
/// So many sums are worked out side by side: each holds a number for every value of the network.
const AT_ONCE: usize = 4;
/// So many columns are measured.
const CHOSEN: usize = 8;
/// What the squares of values that share their weights are divided by together. Their coins add up where they share a column too (there
/// is a mean behind them), and most of all where they share a fraction (an image of one colour). One value by itself shows itself after
/// 40 or more times the queries that [`crate::network::hidden_for`] states; of so many values together that leaves about two, and four
/// were found (`linear/src/own_images.rs`).
const TOGETHER: f64 = 25.0;

/// How much hidden values weigh.
#[derive(Clone, Debug, PartialEq)]
pub struct Leverage {
    /// The largest `‖J‖` of all.
    pub longest: f64,
    /// The largest of each node's values, and a fifth of its channels'; 0 where none is hidden. Where it is by random sums, the longest of
    /// many that are measured with an error: rather too long than too short.
    pub by_node: Vec<f64>,
}

/// The largest `‖J‖` over all hidden values and `inputs` (integers, as [`reference::run`] takes them), for a model that has
/// passed [`Model::validate`]: by how many units what is opened moves, as a Euclidean length, where the value moves by one. If it is
/// larger, a fifth of that of a channel's values together, which share their weights: the root of the sum of the squares.
/// 0 of a network without hidden layers.
///
/// Hidden is what a linear layer or a protocol makes and rounds, unless it is opened, be it moved. What is then compared passes it on,
/// or not: so a unit that is not active weighs nothing. The Jacobian is that at the inputs;
/// others may have a larger one. `done` hears how many inputs are through.
///
/// # Errors
/// [`ReferenceError::Input`] for an input of the wrong length.
pub fn leverage(
    cpu: Cpu,
    model: &Model,
    inputs: &[Vec<i64>],
    done: &mut dyn FnMut(usize),
) -> Result<Leverage, ReferenceError> {
    let network = &model.network;
    let hidden = hidden(network);
    let opened: usize = network.nodes.last().map_or(0, |n| n.shape.iter().product());
    let exact = opened <= EXACT;
    let (sums, weight) = if exact { (opened, 1.0) } else { (SUMS, 1.0 / SUMS as f64) };
    let (mut largest, mut by_node) = (0f64, vec![0f64; network.nodes.len()]);
    for (index, input) in inputs.iter().enumerate() {
        let values = reference::run(cpu, model, input)?.values;
        let squares = |half: usize| -> Result<Vec<Vec<f64>>, ReferenceError> {
            let mut squares: Vec<Vec<f64>> = vec![Vec::new(); network.nodes.len()];
            let slopes = |sum: usize| {
                let by: Vec<f32> = match exact {
                    true => (0..opened).map(|k| if k == sum { 1.0 } else { 0.0 }).collect(),
                    false => signs((2 * index + half) * SUMS + sum, opened),
                };
                backwards(cpu, model, &values, by, &hidden)
            };
            for first in (0..sums).step_by(AT_ONCE) {
                let several: Vec<_> =
                    (first..sums.min(first + AT_ONCE)).into_par_iter().map(slopes).collect();
                // (Added up in the order of the sums, so that the result is the same each time.)
                for slopes in several {
                    squares.par_iter_mut().zip(slopes?).zip(&hidden).for_each(|((own, slopes), &hidden)| {
                        own.resize(if hidden { slopes.len().max(own.len()) } else { 0 }, 0.0);
                        own.iter_mut()
                            .zip(&slopes)
                            .for_each(|(square, &s)| *square += weight * f64::from(s).powi(2));
                    });
                }
            }
            Ok(weights(network, &squares))
        };
        let of_nodes = squares(0)?;
        for (most, own) in by_node.iter_mut().zip(&of_nodes) {
            *most = own.iter().copied().fold(*most, f64::max);
        }
        let first = of_nodes.concat();
        let second = if exact { first.clone() } else { squares(1)?.concat() };
        let mut order: Vec<usize> = (0..first.len()).collect();
        if order.len() > CHOSEN {
            order.select_nth_unstable_by(CHOSEN, |&a, &b| first[b].total_cmp(&first[a]).then(a.cmp(&b)));
        }
        largest = order.into_iter().take(CHOSEN).map(|i| second[i]).fold(largest, f64::max);
        done(index + 1);
    }
    let by_node = by_node.into_iter().map(f64::sqrt).collect();
    Ok(Leverage { longest: largest.sqrt(), by_node })
}

/// Of each node's hidden values one after the other, and of its channels, what they weigh together.
fn weights(network: &Network, squares: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of_node = |(squares, node): (&Vec<f64>, &Node)| {
        let planes = squares.chunks(node.shape[1] * node.shape[2]);
        let channels = planes.map(|plane| plane.iter().sum::<f64>() / TOGETHER);
        squares.iter().copied().chain(channels).collect()
    };
    squares.iter().zip(&network.nodes).map(of_node).collect()
}

/// By node, whether its value is rounded and hidden.
fn hidden(network: &Network) -> Vec<bool> {
    // (What takes signs passes on values that are rounded before.)
    let rounded = |work: Work<'_>| match work {
        Work::Linear(_) => true,
        Work::Interactive(operator) => operator.signs().is_none(),
        Work::Input | Work::Local(_) => false,
    };
    let mut hidden: Vec<bool> = network.nodes.iter().map(|node| rounded(node.op.work())).collect();
    let mut last = network.nodes.len() - 1;
    // (The input, which nothing makes, ends the walk.)
    while network.nodes[last].op.value().source == Source::Moved && network.nodes[last].inputs.len() == 1 {
        last = network.nodes[last].inputs[0];
    }
    hidden[last] = false;
    hidden
}

/// 1 or -1 by chance, reproducible.
fn signs(number: usize, count: usize) -> Vec<f32> {
    let draws = Draws { seed: number as u64, rounding: false };
    (0..count).map(|i| if draws.bits(0, i) & 1 == 0 { 1.0 } else { -1.0 }).collect()
}

/// By node, how a function of what is opened that grows by `by` grows with each element; empty where it does not depend on the node,
/// of the input, and of most that are not `wanted`.
fn backwards(
    cpu: Cpu,
    model: &Model,
    values: &[Vec<i64>],
    by: Vec<f32>,
    wanted: &[bool],
) -> Result<Vec<Vec<f32>>, ReferenceError> {
    let nodes = &model.network.nodes;
    let mut slopes: Vec<Vec<f32>> = vec![Vec::new(); nodes.len()];
    slopes[nodes.len() - 1] = by;
    for (id, node) in nodes.iter().enumerate().rev() {
        // Nobody asks for the input's, and the first layer is the largest.
        if slopes[id].is_empty() || node.inputs.iter().all(|&input| input == 0) {
            continue;
        }
        let error = || ReferenceError::Node(id);
        let inputs: Vec<&[i64]> = node.inputs.iter().map(|&i| values[i].as_slice()).collect();
        let shapes: Vec<Shape> = node.inputs.iter().map(|&i| nodes[i].shape).collect();
        let weights = model.weights.get(id).and_then(Option::as_ref);
        let operands = Operands::new(cpu, shapes, &inputs, node.shape, weights).ok_or_else(error)?;
        let own = node.op.pull_back(&operands, &slopes[id]).ok_or_else(error)?;
        if !wanted[id] {
            slopes[id] = Vec::new();
        }
        for (&input, own) in node.inputs.iter().zip(own) {
            add(&mut slopes[input], own).ok_or_else(error)?;
        }
    }
    slopes[0].clear();
    Ok(slopes)
}

/// Adds `more`; to nothing, too. `None` if the lengths differ.
fn add(sum: &mut Vec<f32>, more: Vec<f32>) -> Option<()> {
    if sum.is_empty() {
        *sum = more;
        return Some(());
    }
    (sum.len() == more.len()).then(|| sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::import::{Options as ImportOptions, import_file};
    use crate::network::{
        Add, Bias, Concat, Curve, Difference, Input, InputSpec, Linear, MatrixProduct, MaxPool, Op,
        Operators, OutputSpec, Product, Rearrange, Relu, Relu6, Scale, SumPool, Weights, Window,
    };
    use crate::ops::linear::linear_exact;
    use crate::ops::output_shape;
    use crate::quantise::{Options, calibrate};

    fn layer(weights: Vec<i16>, exponents: Vec<u8>, outputs: usize) -> Weights {
        Weights { weights, exponents, bias: Bias::PerChannel(vec![0; outputs]) }
    }

    fn fully_connected(shape: Shape, outputs: usize, shift: u32) -> Op {
        Op::new(Linear { kernel: [shape[1], shape[2]], pads: [0; 4], ..Linear::same(outputs, 1, shift) })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// `<by, W·x> = <Wᵀ·by, x>`, for every geometry.
        #[test]
        fn linear_layers_are_transposed(
            groups in 1usize..4, per_group in 1usize..4, rows in 1usize..6,
            size in prop::array::uniform2(1usize..10), kernel in prop::array::uniform2(1usize..5),
            stride in prop::array::uniform2(1usize..4), dilation in prop::array::uniform2(1usize..3),
            pads in prop::array::uniform4(0usize..6), whole in any::<bool>(), seed in any::<u64>(),
        ) {
            let shape = [groups * per_group, size[0], size[1]];
            let (kernel, pads) = if whole { (size, [0; 4]) } else { (kernel, pads) };
            let spec = Linear {
                out_channels: groups * rows, kernel, stride, dilation, pads, groups, shift: 3, max_exponent: 2, blocks: None,
            };
            let Some([h, w]) = spec.output_hw(shape) else { return Ok(()) };
            let draws = Draws { seed, rounding: false };
            let draw = |node: usize, i: usize| draws.bits(node, i) as i64 % 64;
            let weights = layer(
                (0..spec.weights_len(shape[0]).unwrap()).map(|i| draw(0, i) as i16).collect(),
                (0..groups * rows).map(|i| (draw(3, i) & 1) as u8).collect(),
                groups * rows,
            );
            let x: Vec<i64> = (0..shape.iter().product()).map(|i| draw(1, i)).collect();
            let by: Vec<f32> = (0..groups * rows * h * w).map(|i| draw(2, i) as f32).collect();
            let forwards = linear_exact(Cpu::detect(), &spec, shape, &weights, &x);
            let inputs = [x.as_slice()];
            let operands = Operands::new(Cpu::detect(), vec![shape], &inputs, [groups * rows, h, w], Some(&weights));
            let back = Op::new(spec).pull_back(&operands.unwrap(), &by).unwrap().remove(0);
            let left: f64 = forwards.iter().zip(&by).map(|(&y, &by)| y as f64 * f64::from(by) / 8.0).sum();
            let right: f64 = back.iter().zip(&x).map(|(&b, &x)| f64::from(b) * x as f64).sum();
            prop_assert!((left - right).abs() <= 1e-4 * (1.0 + left.abs() + right.abs()) + 1.0, "{left} {right}");
        }
    }

    /// Each element's slope is what comes of moving it: by far less than what lies between any two values, where an operator has corners.
    #[test]
    fn other_operators_slopes_are_differences() {
        let window =
            |kernel, stride, pad| Window { kernel: [kernel; 2], stride: [stride; 2], pads: [pad; 4] };
        let first = [4, 5, 6];
        let cases: Vec<(Op, Vec<Shape>, Shape)> = vec![
            (Op::new(Add), vec![first; 2], first),
            (Op::new(Difference), vec![first; 2], first),
            (Op::new(Concat), vec![first, [2, 5, 6]], first),
            (Op::new(Relu { ignored: 0 }), vec![first], first),
            (Op::new(Relu6 { log2_six: 19, ignored: 0 }), vec![first], first),
            (Op::new(MaxPool { window: window(3, 2, 1), ignored: 0 }), vec![first], first),
            (Op::new(MaxPool { window: window(2, 1, 0), ignored: 0 }), vec![first], first),
            (Op::new(SumPool { window: window(3, 2, 1), count_real_places: Some(36) }), vec![first], first),
            (Op::new(SumPool { window: window(2, 2, 0), count_real_places: None }), vec![first], first),
            (Op::new(Product { shift: 9, offsets: [3, -70_000] }), vec![first; 2], first),
            (Op::new(Product { shift: 9, offsets: [-90_000, 5] }), vec![first, [4, 1, 1]], first),
            (Op::new(MatrixProduct { shift: 9, transposed: [false; 2] }), vec![first, [4, 6, 3]], [4, 5, 3]),
            (Op::new(MatrixProduct { shift: 9, transposed: [true; 2] }), vec![first, [4, 3, 5]], [4, 6, 3]),
            (
                Op::new(MatrixProduct { shift: 9, transposed: [false, true] }),
                vec![first, [4, 3, 6]],
                [4, 5, 3],
            ),
            (
                Op::new(MatrixProduct { shift: 9, transposed: [true, false] }),
                vec![first, [4, 5, 3]],
                [4, 6, 3],
            ),
            (
                Op::new(Curve {
                    low: 18,
                    offset_shift: 0,
                    shift: 2,
                    offsets: vec![9; 4],
                    slopes: vec![3, -5, 70, 0],
                }),
                vec![first],
                first,
            ),
            (Op::new(Rearrange::Transpose { perm: [2, 0, 1] }), vec![first], first),
            (Op::new(Rearrange::Slice { start: [1, 0, 1], step: [2, 1, 3] }), vec![first], [2, 5, 2]),
            (Op::new(Rearrange::Pad { before: [0, 1, 2], after: [3, 0, 0] }), vec![first], first),
            (
                Op::new(Rearrange::Select { axes: [vec![Some(3), None, Some(3)], vec![], vec![Some(0)]] }),
                vec![first],
                first,
            ),
            (Op::new(Rearrange::Reshape), vec![first], [20, 6, 1]),
        ];
        for (op, shapes, declared) in cases {
            let output = output_shape(&op, &shapes, declared).expect("it fits");
            let draws = Draws { seed: 5, rounding: false };
            let mut inputs: Vec<Vec<i64>> = Vec::new();
            for (input, shape) in shapes.iter().enumerate() {
                let count = shape.iter().product();
                inputs.push((0..count).map(|i| draws.bits(input, i) as i64 >> 43).collect());
            }
            let by: Vec<f32> =
                (0..output.iter().product()).map(|i| (draws.bits(9, i) % 16) as f32 - 7.5).collect();
            let applied = |inputs: &[Vec<i64>]| -> (f64, Vec<Vec<f32>>) {
                let slices: Vec<&[i64]> = inputs.iter().map(Vec::as_slice).collect();
                let of = Operands::new(Cpu::detect(), shapes.clone(), &slices, output, None).expect("fits");
                let value = op.apply(&of, None).expect("applies");
                let sum = value.iter().zip(&by).map(|(&v, &by)| v as f64 * f64::from(by)).sum();
                (sum, op.pull_back(&of, &by).expect("has slopes"))
            };
            let (_, slopes) = applied(&inputs);
            for input in 0..inputs.len() {
                for element in 0..inputs[input].len() {
                    let mut moved = |to: i64| {
                        inputs[input][element] += to;
                        let (sum, _) = applied(&inputs);
                        inputs[input][element] -= to;
                        sum
                    };
                    let found = (moved(8) - moved(-8)) / 16.0;
                    let slope = f64::from(slopes[input][element]);
                    // Of each value that is rounded half a unit is left, on either side.
                    let rounded = if op.scale() == Scale::Own { 7.5 / 8.0 * 30.0 } else { 1e-9 };
                    let what = op.describe();
                    assert!((found - slope).abs() <= rounded, "{what}: {input} {element} {found} {slope}");
                }
            }
        }
    }

    /// A hidden layer whose columns are known, also behind a move, and by random sums.
    #[test]
    fn the_longest_column_is_found() {
        let node =
            |op, inputs: &[usize], shape| Node { name: String::new(), op, inputs: inputs.into(), shape };
        for (outputs, exact) in [(2, true), (64, false)] {
            let network = Network {
                name: String::new(),
                activation_bits: 16,
                guard_bits: 0,
                noise_bits: 0,
                weight_bits: 12,
                nodes: vec![
                    node(Op::new(Input), &[], [2, 1, 1]),
                    node(fully_connected([2, 1, 1], 3, 1), &[0], [3, 1, 1]),
                    node(Op::new(Relu { ignored: 0 }), &[1], [3, 1, 1]),
                    node(fully_connected([3, 1, 1], outputs, 2), &[2], [outputs, 1, 1]),
                    node(Op::new(Rearrange::Reshape), &[3], [1, outputs, 1]),
                ],
                input: InputSpec::plain(1.0),
                output: OutputSpec::plain(1.0),
            };
            // Units 0 and 1 are active, unit 2, whose column is the longest, is not.
            let first = vec![2, 0, 0, 2, -2, -2];
            let second: Vec<i16> =
                (0..outputs).flat_map(|k| if k < 2 { [4, 8, 100] } else { [0, 0, 100] }).collect();
            let model = Model {
                network,
                weights: vec![
                    None,
                    Some(layer(first, Vec::new(), 3)),
                    None,
                    Some(layer(second, vec![0; outputs], outputs)),
                    None,
                ],
                scales: vec![1.0; 5],
                leverage: None,
            };
            model.validate().expect("a sound model");
            let found = leverage(Cpu::detect(), &model, &[vec![50, 60], vec![30, 1]], &mut |_| ()).unwrap();
            let expected = 8f64.sqrt();
            let off = if exact { 1e-6 } else { 0.5 * expected };
            // (What is behind the hidden layer is opened.)
            let [_, hidden, compared, opened, _] = found.by_node[..] else { panic!("{found:?}") };
            assert_eq!([compared, opened], [0.0; 2]);
            for found in [found.longest, hidden] {
                assert!((found - expected).abs() <= off, "{found} for {expected}");
            }
        }
    }

    /// A network with two group norms: the columns of each hidden node, among them the inverse roots and what they are made of, are as long
    /// as those of differences, each value moved by a quarter of a unit; and so the longest.
    #[test]
    fn columns_through_a_norm_are_differences() {
        const GUARD_BITS: u32 = 12;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let path = folder.join("group_norms_21.onnx");
        let graph = import_file(&path, &ImportOptions::new(&Operators::standard())).expect("imports");
        let data = std::fs::read(path.with_extension("io")).expect("its values");
        let count = graph.input_shape().iter().product();
        let floats = data.as_chunks::<4>().0[2..].iter().map(|&bytes| f32::from_le_bytes(bytes));
        let x: Vec<f32> = floats.take(count).collect();
        let options = Options { hiding: GUARD_BITS.into(), ..Options::default() };
        let cpu = Cpu::detect();
        let (model, _) = calibrate(cpu, &graph, std::slice::from_ref(&x), &options).expect("scales");
        let model = model.guarded(GUARD_BITS).expect("guarded");
        let network = &model.network;
        let input = network.input.quantise(&x, network.activation_bits);
        let values = reference::run(cpu, &model, &input).expect("runs").values;
        let unit = 1i64 << (GUARD_BITS - 2);
        let moved = |at: usize, element: usize, by: i64| {
            let mut values = values.clone();
            values[at][element] += by;
            for (id, node) in network.nodes.iter().enumerate().skip(at + 1) {
                let inputs: Vec<&[i64]> = node.inputs.iter().map(|&i| values[i].as_slice()).collect();
                let shapes = node.inputs.iter().map(|&i| network.nodes[i].shape).collect();
                let of = Operands::new(cpu, shapes, &inputs, node.shape, model.weights[id].as_ref());
                values[id] = node.op.apply(&of.expect("fits"), None).expect("applies");
            }
            values.pop().expect("an output")
        };
        let column = |at: usize, element: usize| -> f64 {
            let [up, down] = [unit, -unit].map(|by| moved(at, element, by));
            up.iter().zip(&down).map(|(a, b)| ((a - b) as f64 / (2 * unit) as f64).powi(2)).sum()
        };
        let squares: Vec<Vec<f64>> = hidden(network)
            .iter()
            .enumerate()
            .map(
                |(at, hidden)| {
                    if *hidden { (0..values[at].len()).map(|i| column(at, i)).collect() } else { vec![] }
                },
            )
            .collect();
        let mut slopes: Vec<Vec<f64>> = squares.iter().map(|own| vec![0.0; own.len()]).collect();
        for output in 0..values[values.len() - 1].len() {
            let by = (0..values[values.len() - 1].len()).map(|k| if k == output { 1.0 } else { 0.0 });
            let all =
                backwards(cpu, &model, &values, by.collect(), &vec![true; values.len()]).expect("has slopes");
            for (own, all) in slopes.iter_mut().zip(all) {
                own.iter_mut().zip(all).for_each(|(own, slope)| *own += f64::from(slope).powi(2));
            }
        }
        for (at, node) in network.nodes.iter().enumerate().filter(|(at, _)| !squares[*at].is_empty()) {
            let [found, want] = [&slopes[at], &squares[at]].map(|own| own.iter().sum::<f64>().sqrt());
            let near = (found - want).abs() <= 0.05 * want + 1e-3;
            assert!(near, "{at}, {}: {found} for {want}", node.op.describe());
        }
        let largest = |weights: &[f64]| weights.iter().copied().fold(0.0, f64::max).sqrt();
        let by_node: Vec<f64> = weights(network, &squares).iter().map(|own| largest(own)).collect();
        let longest = by_node.iter().copied().fold(0.0, f64::max);
        let found = leverage(cpu, &model, &[input], &mut |_| ()).expect("is measured");
        assert!((found.longest / longest - 1.0).abs() < 0.01, "{found:?} for {longest}");
        for (found, want) in found.by_node.iter().zip(by_node) {
            assert!((found - want).abs() <= 0.05 * want + 1e-3, "{found} for {want}");
        }
    }
}
