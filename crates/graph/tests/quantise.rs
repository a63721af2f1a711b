//! The choice of scales and shifts: what must hold for any graph, and what is refused.
use std::cell::Cell;

use jaguar_graph::agreement::{Agreement, agreement, beyond, logit_error};
use jaguar_graph::float::{
    Add, Affine, AveragePool, Bias, Clip, Concat, Decay, Demand, FloatOperands, FloatOperator, Function,
    Graph, Input, Known, Linear, MatrixProduct, MaxPool, Node, Op, Prelu, Primitive, Product, Relu,
};
use jaguar_graph::network::{self, Hiding, Rearrange, Shape, Window};
use jaguar_graph::quantise::{
    CoarseValues, Options, QuantiseError, Samples, Trial, Warning, Width, calibrate, fewest_bits, narrowest,
};
use jaguar_graph::reference;
use jaguar_graph::signs::{self, choose};
use jaguar_ring::cpu::Cpu;
use proptest::prelude::*;

fn node(op: impl Into<Op>, inputs: &[usize], shape: Shape) -> Node {
    let name = format!("n{}", inputs.last().map_or(0, |i| i + 1));
    Node { name, op: op.into(), inputs: inputs.into(), shape }
}

/// A 1×1 convolution.
fn pointwise(channels: usize, weights: Vec<f32>, bias: f32) -> Linear {
    let spec = network::Linear {
        out_channels: channels,
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4],
        groups: 1,
        shift: 0,
        max_exponent: 0,
        blocks: None,
    };
    Linear { spec, weights, bias: Bias::PerChannel(vec![bias; channels]) }
}

fn graph(nodes: Vec<Node>) -> Graph {
    Graph { name: "test".into(), nodes, ..Graph::default() }
}

/// One channel, 2×2: input, layer, something, layer.
fn chain(first: f32, between: impl Into<Op>, second: f32) -> Graph {
    let shape = [1, 2, 2];
    graph(vec![
        node(Input, &[], shape),
        node(pointwise(1, vec![first], 0.1), &[0], shape),
        node(between, &[1], shape),
        node(pointwise(1, vec![second], 0.0), &[2], shape),
    ])
}

#[test]
fn clips_become_powers_of_two() {
    let image = vec![1.0, -1.0, 0.5, 0.25];
    for (ceiling, weight) in [(6.0, 20.0), (6.0, 0.5), (1.0, 3.0), (0.3, 100.0)] {
        let graph = chain(weight, Clip { ceiling }, 1.0);
        let (model, _) = calibrate(Cpu::detect(), &graph, std::slice::from_ref(&image), &Options::default())
            .expect("quantises");
        let Some(&network::Relu6 { log2_six, .. }) = model.network.nodes[2].op.downcast_ref() else {
            panic!("a clip stays one")
        };
        assert_eq!(f64::from(ceiling) * model.scales[2], f64::from(log2_six).exp2());
        assert_eq!(model.scales[1], model.scales[2]);
        // The largest scale that leaves the pre-activation its headroom.
        let largest = f64::from(weight * 1.0 + 0.1) * model.scales[1];
        assert!(largest <= 4096.0 && (largest > 2048.0 || log2_six == 13), "{largest}");
    }
}

/// What calibration saw is not beyond it; twice as much is, at the nodes where it is, the farthest first.
/// A curve is as far from the function as its lines and the layers' rounding are, and beyond all that was seen it goes on: to a
/// line or a constant.
#[test]
fn curves_go_on_beyond_what_was_seen() {
    let image = vec![1.0, -1.0, 0.5, 0.25];
    for function in [Function::swish(1.0), Function::gelu(false), Function::mish()] {
        let graph = chain(6.0, Op::from(function.clone()), 1.0);
        let options = Options::default();
        let (model, report) =
            calibrate(Cpu::detect(), &graph, std::slice::from_ref(&image), &options).expect("quantises");
        let [layer, curve] = [1, 2].map(|i| report.nodes[i].scale);
        // (Of scales that clients are told no more than an order of magnitude.)
        assert!([layer, curve].iter().all(|scale| scale.log2().fract() == 0.0), "{layer}, {curve}");
        for x in [-3.9f32, -2.0, -1.0, -0.4, -0.1, 0.0, 0.07, 0.3, 0.9, 1.7, 3.8] {
            let input = vec![(f64::from(x) * model.scales[0]).round() as i64; 4];
            let values = reference::run(Cpu::detect(), &model, &input).expect("runs").values;
            let want = function.at(values[1][0] as f64 / layer) * curve;
            let off = (values[2][0] as f64 - want).abs();
            assert!(off <= 2.0, "{function:?} of {x}: off by {off} units");
        }
    }
}

/// A softsign of values far beyond its bend has a warning, for it is straight nowhere; a tanh, which becomes level, has none.
#[test]
fn curves_that_are_coarse_are_named() {
    let image = vec![1.0, -1.0, 0.5, 0.25];
    for (primitive, weight, named) in [
        (Primitive::Tanh, 2.0, false),
        (Primitive::Tanh, 300.0, false),
        (Primitive::Softsign, 2.0, false),
        (Primitive::Softsign, 300.0, true),
    ] {
        let curve = Function::Of(primitive, Box::new(Function::Value));
        let graph = chain(weight, Op::from(curve), 1.0);
        let images = std::slice::from_ref(&image);
        let (_, report) = calibrate(Cpu::detect(), &graph, images, &Options::default()).expect("quantises");
        let found =
            |w: &Warning| matches!(w, Warning::Coarse { node, units } if node == "n2" && *units > 2.0);
        assert_eq!(report.warnings.iter().any(found), named, "{:?}", report.warnings);
    }
}

#[test]
fn values_beyond_calibration_are_found() {
    let image = vec![1.0, -1.0, 0.5, 0.25];
    let graph = chain(1.0, Relu, 1.0);
    let (model, report) = calibrate(Cpu::detect(), &graph, std::slice::from_ref(&image), &Options::default())
        .expect("quantises");
    let run = |images: &[Vec<f32>]| beyond(Cpu::detect(), &model, &report, images).expect("the images fit");
    assert_eq!(run(std::slice::from_ref(&image)), []);
    let found = run(&[image.clone(), vec![2.0, -2.0, 0.5, 1.0]]);
    // The input to 2; behind the first layer, which adds 0.1, to 2.1 instead of 1.1 (and to -1.9).
    let by_node: Vec<(usize, usize)> = found.iter().map(|b| (b.node, b.values)).collect();
    assert_eq!(by_node, [(0, 2), (1, 2), (2, 1), (3, 1)]);
    for (beyond, times) in found.iter().zip([2.0, 2.1 / 1.1, 2.1 / 1.1, 2.1 / 1.1]) {
        assert!((beyond.times - times).abs() < 0.01, "{beyond:?}");
    }
}

#[test]
fn what_cannot_be_quantised_is_named() {
    let image = vec![1.0, -1.0, 0.5, 0.25];
    let run = |graph: &Graph, options: Options| {
        calibrate(Cpu::detect(), graph, std::slice::from_ref(&image), &options).map(|_| ())
    };
    let plain = chain(1.0, Relu, 1.0);
    assert_eq!(
        calibrate(Cpu::detect(), &plain, &[], &Options::default()).unwrap_err(),
        QuantiseError::NoImages
    );
    let wrong = QuantiseError::Image { index: 0, found: 3, expected: 4 };
    assert_eq!(calibrate(Cpu::detect(), &plain, &[vec![0.0; 3]], &Options::default()).unwrap_err(), wrong);
    for options in [
        Options { activation_bits: 30, ..Options::default() },
        Options { weight_bits: 1, ..Options::default() },
        Options { headroom: f64::NAN, ..Options::default() },
        Options { max_shift: 0, ..Options::default() },
        Options { hiding: 1.into(), ..Options::default() },
    ] {
        assert!(matches!(run(&plain, options), Err(QuantiseError::Option { .. })));
    }
    let infinite = chain(f32::MAX, Relu, f32::MAX);
    assert_eq!(run(&infinite, Options::default()), Err(QuantiseError::NotFinite("n3".into())));
    // A clip a hundred thousand times below what reaches it.
    let clipped = chain(1e5, Clip { ceiling: 1.0 }, 1.0);
    assert!(
        matches!(run(&clipped, Options::default()), Err(QuantiseError::Clip { node, .. }) if node == "n2")
    );

    // Two clips that share a scale through an addition.
    let shape = [1, 2, 2];
    let two = |second: f32| {
        graph(vec![
            node(Input, &[], shape),
            node(pointwise(1, vec![9.0], 0.0), &[0], shape),
            node(Clip { ceiling: 6.0 }, &[1], shape),
            node(pointwise(1, vec![5.0], 0.0), &[0], shape),
            node(Clip { ceiling: second }, &[3], shape),
            node(Add, &[2, 4], shape),
        ])
    };
    assert!(matches!(run(&two(5.0), Options::default()), Err(QuantiseError::ClipConflict(..))));
    for second in [6.0, 3.0, 12.0] {
        assert_eq!(run(&two(second), Options::default()), Ok(()));
    }
}

#[test]
fn shifts_leave_room_for_guard_bits() {
    // Small weights over many terms want a shift of more than 20.
    let count = 2048;
    let weights: Vec<f32> = (0..count).map(|i| if i % 3 == 0 { 1e-3 } else { -4e-4 }).collect();
    let shape = [count, 1, 1];
    let graph = graph(vec![node(Input, &[], shape), node(pointwise(1, weights, 0.0), &[0], [1, 1, 1])]);
    let image = [(0..count).map(|i| (i % 7) as f32).collect::<Vec<f32>>()];
    let shift = |guard_bits: u32| {
        let options = Options { activation_bits: 21, hiding: guard_bits.into(), ..Options::default() };
        let (model, _) = calibrate(Cpu::detect(), &graph, &image, &options).expect("quantises");
        model.network.nodes[1].op.linear().expect("a linear layer").shift
    };
    assert!(shift(0) > 48 - 21 - 8, "a layer that guard bits concern");
    assert_eq!([shift(8), shift(12)], [48 - 21 - 8, 48 - 21 - 12]);
}

/// A sum over 64 × 64 places takes twelve bits more than its values, which may have 40 in all: with guard bits too many is an error of that
/// width, so that a search goes on.
#[test]
fn sums_that_guard_bits_make_too_wide_are_refused() {
    let [shape, one] = [[1, 64, 64], [1, 1, 1]];
    let window = Window { kernel: [64, 64], stride: [64, 64], pads: [0; 4] };
    let graph = graph(vec![
        node(Input, &[], shape),
        node(pointwise(1, vec![1.0], 0.1), &[0], shape),
        node(AveragePool { window, count_padding: true }, &[1], one),
        node(pointwise(1, vec![1.0], 0.0), &[2], one),
    ]);
    let image = [(0..4096).map(|i| (i % 7) as f32).collect::<Vec<f32>>()];
    let with = |guard_bits: u32| {
        let options = Options { activation_bits: 21, hiding: guard_bits.into(), ..Options::default() };
        calibrate(Cpu::detect(), &graph, &image, &options).map(drop)
    };
    assert_eq!(with(7), Ok(()));
    assert!(matches!(with(8), Err(QuantiseError::Network(_))));
}

#[test]
fn a_layer_with_weights_too_large_lowers_its_output() {
    // Two large terms cancel: weights far above output over input.
    let shape = [2, 1, 1];
    let graph =
        graph(vec![node(Input, &[], shape), node(pointwise(1, vec![5000.0, -5000.0], 0.0), &[0], [1, 1, 1])]);
    let image = [vec![1.0, 0.99999]];
    let narrow = Options { weight_bits: 6, ..Options::default() };
    let (model, report) = calibrate(Cpu::detect(), &graph, &image, &narrow).expect("quantises");
    assert!(report.warnings.iter().any(|w| matches!(w, Warning::Lowered { node, .. } if node == "n1")));
    let weights = model.weights[1].as_ref().expect("linear");
    assert!(weights.weights[0] >= 15 && weights.weights[1] == -weights.weights[0]);

    let hopeless = [vec![1.0, 1.0 - f32::EPSILON]];
    let error =
        calibrate(Cpu::detect(), &graph, &hopeless, &Options { weight_bits: 2, ..Options::default() })
            .unwrap_err();
    assert!(matches!(error, QuantiseError::Weights { ref node, .. } if node == "n1"), "{error}");
}

/// A layer with one large and three small channels, then a clip, which rules out equalisation, then a layer that brings
/// the small ones to the size of the large one.
/// What fusion should have made part of other layers has no integer counterpart, and is refused: not taken for a ReLU.
#[test]
fn what_was_left_unfused_is_refused() {
    let affine = || Op::new(Affine { mul: vec![2.0], add: Bias::PerChannel(vec![1.0]) });
    for left in [affine(), Prelu { slope: vec![0.1] }.into()] {
        let graph = chain(1.0, left, 1.0);
        let image = vec![1.0, -1.0, 0.5, 0.25];
        let refused = calibrate(Cpu::detect(), &graph, &[image], &Options::default()).map(|_| ());
        assert_eq!(refused, Err(QuantiseError::Unfused("n2".into())));
    }
}

/// Two layers packed into one output, of which one's values are thousands of times larger: each is judged by its own spread, and told
/// by its layer.
#[test]
fn packed_outputs_are_judged_apart() {
    let shape = [1, 2, 2];
    let packed = |small: f32| {
        graph(vec![
            node(Input, &[], shape),
            Node { name: "boxes".into(), ..node(pointwise(1, vec![400.0], 0.0), &[0], shape) },
            Node { name: "scores".into(), ..node(pointwise(1, vec![small], 0.0), &[0], shape) },
            // A score is changed value by value on its way.
            node(Relu, &[2], shape),
            node(Concat, &[1, 3], [2, 2, 2]),
            node(Rearrange::Reshape, &[4], [8, 1, 1]),
        ])
    };
    let images: Vec<Vec<f32>> =
        (1..5).map(|i| (0..4).map(|at| ((i * 5 + at * 3) % 7) as f32 / 7.0).collect()).collect();
    let found = |graph: &Graph| {
        let (model, _) = calibrate(Cpu::detect(), graph, &images, &Options::default()).expect("quantises");
        (agreement(Cpu::detect(), graph, &model, &images).expect("images fit"), model)
    };
    let (uneven, model) = found(&packed(0.2));
    let names: Vec<&str> = uneven.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(names, ["output (from boxes)", "output (from scores)"]);
    assert!(uneven.outputs.iter().all(|output| output.values == 4 && output.errors.len() == images.len()));
    let [boxes, scores] = [0, 1].map(|i| uneven.outputs[i].worst_error());
    assert!(boxes < 0.001 && scores > 0.02, "{boxes} {scores}");
    assert_eq!(uneven.worst_relative_error, scores);
    // Beside both together nothing would be seen.
    let logits = |image: &Vec<f32>| {
        let run = jaguar_graph::reference::run(
            Cpu::detect(),
            &model,
            &model.network.input.quantise(image, model.network.activation_bits),
        );
        model.network.output.logits(run.expect("runs").output())
    };
    let float = |image: &Vec<f32>| -> Vec<f64> {
        let values = packed(0.2).forward(Cpu::detect(), image).expect("runs");
        values.into_iter().map(f64::from).collect()
    };
    assert!(images.iter().all(|image| logit_error(&logits(image), &float(image)) < 0.001));
    // Of one size they are right.
    let (even, _) = found(&packed(400.0));
    assert!(even.worst_relative_error < 0.001, "{even:?}");
}

#[test]
fn small_channels_beside_large_ones_keep_their_bits() {
    let shape = [4, 2, 2];
    let weights: Vec<f32> = (0..16)
        .map(|i| (i * 7 % 11) as f32 / 11.0 - 0.45)
        .enumerate()
        .map(|(i, w)| if i / 4 == 0 { 40.0 * w } else { w / 20.0 })
        .collect();
    let mixed: Vec<f32> =
        (0..16).map(|i| if i % 4 == 0 { 0.01 } else { 8.0 * (i % 3) as f32 - 8.5 }).collect();
    let graph = graph(vec![
        node(Input, &[], shape),
        node(pointwise(4, weights, 0.01), &[0], shape),
        node(Clip { ceiling: 6.0 }, &[1], shape),
        node(pointwise(4, mixed, 0.0), &[2], shape),
    ]);
    let images: Vec<Vec<f32>> =
        (0..4).map(|seed| (0..16).map(|i| ((i * 13 + seed * 7) % 17) as f32 / 17.0).collect()).collect();
    let options = Options { activation_bits: 20, ..Options::default() };
    let (model, report) = calibrate(Cpu::detect(), &graph, &images, &options).expect("quantises");
    let weights = model.weights[1].as_ref().expect("linear");
    assert!(weights.exponent(0) >= 4 && (1..4).all(|d| weights.exponent(d) == 0), "{:?}", weights.exponents);
    let error = agreement(Cpu::detect(), &graph, &model, &images).expect("images fit").worst_relative_error;
    assert!(error < 0.01, "{error}");
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

/// What is always zero still has noise of a unit now and then in a private run: it must not count behind large weights.
#[test]
fn a_dead_layer_does_not_amplify_noise() {
    let shape = [1, 2, 2];
    let graph = graph(vec![
        node(Input, &[], shape),
        node(pointwise(1, vec![0.0], 0.0), &[0], shape),
        node(Relu, &[1], shape),
        node(pointwise(1, vec![50.0], 0.5), &[2], shape),
    ]);
    let images = [vec![1.0, -1.0, 0.5, 0.25]];
    let (model, report) = calibrate(Cpu::detect(), &graph, &images, &Options::default()).expect("quantises");
    assert!(report.warnings.iter().any(|w| matches!(w, Warning::Dead { node } if node == "n1")));
    let Some(last) = model.network.nodes[3].op.linear() else { panic!("a linear layer") };
    let weights = model.weights[3].as_ref().expect("linear");
    let gain =
        f64::from(weights.weights[0]) * f64::from(weights.exponent(0)).exp2() / f64::from(last.shift).exp2();
    let outputs = 0.5 * model.scales[3];
    assert!(gain.abs() < outputs / 50.0, "a unit becomes {gain} of {outputs}");
}

/// A gate on a branch that is always zero, added to large values where another is tiny, as in a residual network whose last
/// norms are zero: the zeros' scale is so fine that the product would be shifted further than any protocol takes it.
#[test]
fn a_gated_dead_branch_is_shifted_no_further_than_protocols_take() {
    let shape = [1, 2, 2];
    let product = |offset| Op::from(Product { gain: 1.0, offsets: [offset, 0.0] });
    let matrices = Op::from(MatrixProduct { gain: 1.0, transposed: [false; 2] });
    for (product, ring_bits, offset) in
        [(product(0.0), 63, "offset 0"), (product(3.0), 63, "offset 3"), (matrices, 58, "matrices")]
    {
        for weight in [0.0, 1e-7, 1e-4] {
            let graph = graph(vec![
                node(Input, &[], shape),
                node(pointwise(1, vec![1e-4], 0.0), &[0], shape),
                node(pointwise(1, vec![weight], 0.0), &[0], shape),
                node(pointwise(1, vec![0.1], 0.2), &[0], shape),
                node(Relu, &[3], shape),
                node(product.clone(), &[2, 4], shape),
                node(pointwise(1, vec![1000.0], 0.0), &[0], shape),
                node(Add, &[5, 6], shape),
                node(Add, &[7, 1], shape),
            ]);
            for activation_bits in [12, 18, 24] {
                for guard_bits in [0, 8, 12] {
                    let options =
                        Options { activation_bits, hiding: guard_bits.into(), ..Options::default() };
                    let images = [vec![1.0, -1.0, 0.5, 0.25]];
                    let made = calibrate(Cpu::detect(), &graph, &images, &options);
                    let (model, _) = made.unwrap_or_else(|e| {
                        panic!("{weight}, {offset}, {activation_bits} + {guard_bits} bits: {e}")
                    });
                    let model =
                        model.guarded(guard_bits).unwrap_or_else(|e| panic!("{activation_bits}: {e}"));
                    let op = &model.network.nodes[5].op;
                    let values = op.downcast_ref::<network::Product>().map(|op| op.shift);
                    let of_matrices = || op.downcast_ref::<network::MatrixProduct>().map(|op| op.shift);
                    let shift = values.or_else(of_matrices).expect("a product");
                    let bits = activation_bits + guard_bits;
                    assert!(shift <= 32 && shift + bits <= ring_bits, "{shift} of {bits}");
                    let error = agreement(Cpu::detect(), &graph, &model, &images)
                        .expect("images fit")
                        .worst_relative_error;
                    assert!(
                        error < 0.01,
                        "{activation_bits} + {guard_bits} bits, {weight}, {offset}: {error}"
                    );
                }
            }
        }
    }
}

/// Queries by keys and weights by values, factors in every order: the integers are the floats, and the factor that
/// scores take is the product's own.
#[test]
fn products_of_matrices_are_as_in_floating_point() {
    let (heads, places, each) = (2, 5, 3);
    let channels = heads * each;
    let weights = |seed: usize| {
        let draw = |i: usize| ((i * 37 + seed * 101) % 29) as f32 / 14.0 - 1.0;
        (0..channels * channels).map(draw).collect::<Vec<_>>()
    };
    let shape = [channels, places, 1];
    let by_head = [heads, each, places];
    let reshape = || Op::from(Rearrange::Reshape);
    let product = |gain, transposed| MatrixProduct { gain, transposed };
    for turned in [false, true] {
        let mut nodes = vec![
            node(Input, &[], shape),
            node(pointwise(channels, weights(1), 0.1), &[0], shape),
            node(pointwise(channels, weights(2), -0.2), &[0], shape),
            node(pointwise(channels, weights(3), 0.0), &[0], shape),
            node(reshape(), &[1], by_head),
            node(reshape(), &[2], by_head),
            node(reshape(), &[3], by_head),
        ];
        let queries = if turned {
            nodes.push(node(Rearrange::Transpose { perm: [0, 2, 1] }, &[4], [heads, places, each]));
            7
        } else {
            4
        };
        let scores = nodes.len();
        nodes.push(node(product(0.577, [!turned, false]), &[queries, 5], [heads, places, places]));
        nodes.push(node(Relu, &[scores], [heads, places, places]));
        nodes.push(node(product(0.1, [false, true]), &[scores + 1, 6], [heads, places, each]));
        nodes.push(node(
            pointwise(heads, vec![0.5; heads * heads], 0.0),
            &[scores + 2],
            [heads, places, each],
        ));
        let graph = graph(nodes);
        let images: Vec<Vec<f32>> = (0..4)
            .map(|seed| {
                (0..channels * places).map(|i| ((i * 53 + seed * 7) % 41) as f32 / 20.0 - 1.0).collect()
            })
            .collect();
        let options = Options { activation_bits: 18, ..Options::default() };
        let (model, _) = calibrate(Cpu::detect(), &graph, &images, &options).expect("quantises");
        model.validate().expect("a valid model");
        let found = agreement(Cpu::detect(), &graph, &model, &images).expect("images fit");
        assert!(found.worst_relative_error < 1e-3, "{}", found.worst_relative_error);
    }
}

/// Scales come from every second sample, and are tried on the others; then the other way round.
#[test]
fn samples_that_do_not_go_together_show() {
    let graph = chain(1.0, Relu, 1.0);
    let image = |size: f32| vec![size, -size, 0.5 * size, 0.25 * size];
    let found = |images: &[Vec<f32>]| {
        let samples = Samples::new(Cpu::detect(), &graph, images, &mut |_| ()).expect("images that fit");
        samples.held_out(&Options::default()).expect("quantises")
    };
    let alike = found(&[image(1.0), image(0.9), image(0.8), image(1.1)]);
    assert_eq!((alike.images, alike.overflows), (4, 0));
    assert!(alike.worst_relative_error < 0.01);
    // Ten times what the scales were made for.
    let apart = found(&[image(1.0), image(10.0)]);
    assert!(apart.overflows > 0 || apart.worst_relative_error > 0.1);
    // One sample has to do for both.
    assert_eq!(found(&[image(1.0)]).images, 1);
    assert!(matches!(Samples::new(Cpu::detect(), &graph, &[], &mut |_| ()), Err(QuantiseError::NoImages)));
}

/// Numbers from -1 to 1.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Curves take the fewest bits with which answers are within the bound, half of it theirs; a network without curves stays as it is.
#[test]
fn curves_take_the_fewest_bits_that_do() {
    let shape = [16, 2, 2];
    let of = |between: Op| {
        graph(vec![
            node(Input, &[], shape),
            node(pointwise(16, noise(256, 1), 0.1), &[0], shape),
            node(between, &[1], shape),
            node(pointwise(4, noise(64, 2), 0.0), &[2], [4, 2, 2]),
        ])
    };
    let images: Vec<Vec<f32>> = (3..9).map(|seed| noise(64, seed)).collect();
    let options = Options { activation_bits: 20, ..Options::default() };
    let width = Width { activation_bits: 20, hiding: options.hiding };
    let search = |graph: &Graph, bound: f64| {
        let samples = Samples::new(Cpu::detect(), graph, &images, &mut |_| ()).expect("images that fit");
        let fine = narrowest(&samples, &options, &[width], bound, &mut |_| ()).expect("quantises");
        let mut tried = Vec::new();
        let mut note = |trial: Trial<'_>| {
            if let Trial::Coarse(CoarseValues::Curves, bits, found) = trial {
                tried.push((bits, found.worst_relative_error));
            }
        };
        let found = fewest_bits(CoarseValues::Curves, &samples, &options, &fine, bound, &mut note)
            .expect("quantises");
        (fine, found, tried)
    };
    let gelu = of(Function::gelu(false).into());
    let mut last = 0;
    for bound in [0.02, 0.005, 0.001] {
        let (fine, found, tried) = search(&gelu, bound);
        let own = fine.held_out.worst_relative_error;
        let most = own.hypot(0.5 * bound).min(bound).max(own);
        let (bits, found) = found.unwrap_or_else(|| panic!("of 20: {most}, {tried:?}"));
        assert!((12..20).contains(&bits) && bits >= last, "{bits}, {tried:?}");
        assert!(found.held_out.worst_relative_error <= most, "{bits}, {tried:?}");
        for (tried, error) in tried {
            assert_eq!(tried >= bits, error <= most, "{tried} bits: {error}, at most {most}");
        }
        let with = Options { curve_bits: Some(bits), ..options.clone() };
        let samples = Samples::new(Cpu::detect(), &gelu, &images, &mut |_| ()).expect("images that fit");
        assert_eq!(samples.quantise(&with).expect("quantises").0, found.model);
        last = bits;
    }
    assert!(last > 12, "{last}");
    let (_, found, tried) = search(&of(Relu.into()), 0.02);
    assert!(found.is_none() && tried.is_empty());
}

/// A ReLU. Where lines are coarser than by so many bits, it is a max-pool of one value instead, which may be negative for all that is known, or
/// nothing.
#[derive(Clone, Debug, PartialEq)]
struct Stiff {
    most: u32,
    pools: bool,
}

impl FloatOperator for Stiff {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let window = Window { kernel: [1; 2], stride: [1; 2], pads: [0; 4] };
        match known.coarse <= self.most {
            true => Some(network::Op::new(network::Relu { ignored: 0 })),
            false => self.pools.then(|| network::Op::new(network::MaxPool { window, ignored: 0 })),
        }
    }

    fn heeds_coarse(&self) -> bool {
        true
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().map(|x| x.max(0.0)).collect()
    }
}

/// What cannot be made does not hold, and ends no search: the coarsest lines of all that can be made are found.
#[test]
fn what_cannot_be_made_ends_no_search() {
    let shape = [16, 2, 2];
    let graph = graph(vec![
        node(Input, &[], shape),
        node(pointwise(16, noise(256, 1), 0.1), &[0], shape),
        node(Function::gelu(false), &[1], shape),
        node(Stiff { most: 3, pools: false }, &[2], shape),
        node(pointwise(4, noise(64, 2), 0.0), &[3], [4, 2, 2]),
    ]);
    let images: Vec<Vec<f32>> = (3..9).map(|seed| noise(64, seed)).collect();
    let options = Options { activation_bits: 20, ..Options::default() };
    let width = Width { activation_bits: 20, hiding: options.hiding };
    let samples = Samples::new(Cpu::detect(), &graph, &images, &mut |_| ()).expect("images that fit");
    let fine = narrowest(&samples, &options, &[width], 0.02, &mut |_| ()).expect("quantises");
    let too_coarse = Options { curve_bits: Some(16), ..options.clone() };
    assert_eq!(samples.held_out(&too_coarse), Err(QuantiseError::Unfused("n3".into())));
    let found =
        fewest_bits(CoarseValues::Curves, &samples, &options, &fine, 0.02, &mut |_| ()).expect("ends");
    assert_eq!(found.map(|(bits, _)| bits), Some(17));
}

/// Where values take the last bit of their range that did not before, bits do not hold, however small the error is.
#[test]
fn values_in_the_bit_to_spare_do_not_hold() {
    let graph = chain(1.0, Stiff { most: 3, pools: true }, 1.0);
    // With scales of the others, every other image takes the last bit. (Of what is never negative it is not to spare.)
    let images: Vec<Vec<f32>> =
        (0..4).map(|i| [0.3, 0.4, 0.5, 0.6].map(|x| x * (1 + i % 2) as f32).to_vec()).collect();
    let width = Width { activation_bits: 18, hiding: Hiding::NONE };
    let options = Options { headroom: 1.5, ..width.of(&Options::default()) };
    let samples = Samples::new(Cpu::detect(), &graph, &images, &mut |_| ()).expect("images that fit");
    let chosen = narrowest(&samples, &options, &[width], 0.02, &mut |_| ()).expect("quantises");
    let coarse = samples.held_out(&Options { curve_bits: Some(14), ..options.clone() }).expect("quantises");
    assert!(coarse.tight > chosen.held_out.tight);
    let but_for_that = Agreement { tight: chosen.held_out.tight, ..coarse };
    assert_eq!(but_for_that, chosen.held_out);
    let found =
        fewest_bits(CoarseValues::Curves, &samples, &options, &chosen, 0.02, &mut |_| ()).expect("quantises");
    assert_eq!(found.map(|(bits, _)| bits), Some(15));
}

/// A network in which layers multiply each other: input, two layers and what is between each and the product, the product, a layer.
fn gated(values: Shape, first: &[Op], gates: Shape, second: &[Op]) -> Graph {
    let [channels, height, width] = values;
    let mut nodes = vec![node(Input, &[], values)];
    let mut factors = Vec::new();
    for (seed, shape, ops) in [(1, values, first), (2, gates, second)] {
        let layer = pointwise(channels, noise(channels * channels, seed), 0.1);
        let pool = Window { kernel: [height, width], stride: [1, 1], pads: [0; 4] };
        let mut at = 0;
        if shape != values {
            nodes.push(node(AveragePool { window: pool, count_padding: false }, &[0], shape));
            at = nodes.len() - 1;
        }
        for op in std::iter::once(Op::from(layer)).chain(ops.iter().cloned()) {
            nodes.push(Node { name: format!("n{}", nodes.len()), op, inputs: vec![at], shape });
            at = nodes.len() - 1;
        }
        factors.push(at);
    }
    nodes.push(node(Product { gain: 1.0, offsets: [0.0; 2] }, &factors, values));
    let product = nodes.len() - 1;
    nodes.push(node(pointwise(4, noise(4 * channels, 3), 0.0), &[product], [4, height, width]));
    graph(nodes)
}

/// The first product's shift.
fn shift_of(model: &network::Model) -> u32 {
    let products = model.network.nodes.iter().find_map(|node| node.op.downcast_ref::<network::Product>());
    products.expect("a product").shift
}

/// Factors have the fewest bits with which answers are within the bound, half of it theirs; without products, or bits that are spared, the
/// network stays as it is.
#[test]
fn factors_take_the_fewest_bits_that_do() {
    let shape = [8, 4, 4];
    let images: Vec<Vec<f32>> = (3..9).map(|seed| noise(128, seed)).collect();
    let search = |graph: &Graph, spare: u32, bound: f64| {
        let spare = vec![spare; graph.nodes.len()];
        // (With neither guard bits nor noise what is rounded counts.)
        let options = Options { activation_bits: 16, hiding: Hiding::NONE, spare, ..Options::default() };
        let width = Width { activation_bits: 16, hiding: Hiding::NONE };
        let samples = Samples::new(Cpu::detect(), graph, &images, &mut |_| ()).expect("images that fit");
        let fine = Options { spare: Vec::new(), ..options.clone() };
        let fine = narrowest(&samples, &fine, &[width], bound, &mut |_| ()).expect("quantises");
        let mut tried = Vec::new();
        let mut note = |trial: Trial<'_>| {
            if let Trial::Coarse(CoarseValues::Factors, bits, found) = trial {
                tried.push((bits, found.worst_relative_error));
            }
        };
        let found = fewest_bits(CoarseValues::Factors, &samples, &options, &fine, bound, &mut note)
            .expect("quantises");
        if let Some((bits, found)) = &found {
            let with = options.with_coarse(CoarseValues::Factors, *bits, width);
            assert_eq!(samples.quantise(&with).expect("quantises").0, found.model);
        }
        (fine, found, tried)
    };
    let both = gated(shape, &[], shape, &[]);
    let mut last = 0;
    for bound in [0.02, 0.002, 0.0005] {
        let (fine, found, tried) = search(&both, 8, bound);
        let own = fine.held_out.worst_relative_error;
        let most = own.hypot(0.5 * bound).min(bound).max(own);
        for &(bits, error) in &tried {
            let enough = found.as_ref().map_or(16, |(bits, _)| *bits);
            assert_eq!(bits >= enough, error <= most, "{bits} bits: {error}, at most {most}");
        }
        let bits = match found {
            Some((bits, found)) => {
                let fewer = shift_of(&fine.model) - shift_of(&found.model);
                // (Eight bits of the largest value are left: three or four fewer.)
                let each = 16 - bits;
                assert!((2 * each.min(3)..=2 * each.min(4)).contains(&fewer), "{fewer} of {each}");
                bits
            }
            None => 16,
        };
        assert!(bits >= last, "{bits}, {tried:?}");
        last = bits;
    }
    assert!(last > 8, "a small bound leaves more bits: {last}");
    for (graph, spare) in [(&both, 0), (&chain(1.0, Relu, 1.0), 8)] {
        let images: Vec<Vec<f32>> =
            images.iter().map(|x| x[..graph.input_shape().iter().product()].to_vec()).collect();
        let width = Width { activation_bits: 16, hiding: Hiding::NONE };
        let options = Options { spare: vec![spare; graph.nodes.len()], ..width.of(&Options::default()) };
        let samples = Samples::new(Cpu::detect(), graph, &images, &mut |_| ()).expect("images that fit");
        let fine = narrowest(&samples, &Options::default(), &[width], 0.02, &mut |_| ()).expect("quantises");
        let mut nothing = |_: Trial<'_>| panic!("nothing is tried");
        let found = fewest_bits(CoarseValues::Factors, &samples, &options, &fine, 0.02, &mut nothing)
            .expect("quantises");
        assert!(found.is_none());
    }
}

/// Which values have fewer bits: what a layer makes, or what makes few; no more than are spared, and none that something else takes.
#[test]
fn what_is_more_than_a_factor_keeps_its_bits() {
    let (values, gates) = ([8, 4, 4], [8, 1, 1]);
    let sigmoid = || Op::from(Function::Of(Primitive::Sigmoid, Box::new(Function::Value)));
    let images: Vec<Vec<f32>> = (3..6).map(|seed| noise(128, seed)).collect();
    let scales = |graph: &Graph, spare: &dyn Fn(usize) -> u32| {
        let spare = (0..graph.nodes.len()).map(spare).collect();
        let options = Options { activation_bits: 20, spare, ..Options::default() };
        let (model, _) = calibrate(Cpu::detect(), graph, &images, &options).expect("quantises");
        let product = graph.nodes.iter().position(|node| node.op.is::<Product>()).expect("a product");
        let [a, b] = [0, 1].map(|i| model.scales[graph.nodes[product].inputs[i]]);
        ([a, b], f64::from(shift_of(&model)), model)
    };
    // By how many bits the factors' scales fall, and the shift.
    let fewer = |graph: &Graph, spare: &dyn Fn(usize) -> u32| {
        let (fine, shift, _) = scales(graph, &|_| 0);
        let (coarse, less, model) = scales(graph, spare);
        let by = [0, 1].map(|i| (fine[i] / coarse[i]).log2());
        assert_eq!(shift - less, by[0] + by[1]);
        // The integer product is that of the float ones, to its rounding.
        let x = model.network.input.quantise(&images[0], 20);
        let values = reference::run(Cpu::detect(), &model, &x).expect("runs").values;
        let product = graph.nodes.iter().position(|node| node.op.is::<Product>()).expect("a product");
        let [a, b] = [0, 1].map(|i| &values[graph.nodes[product].inputs[i]]);
        let each = a.len() / b.len();
        for (i, &made) in values[product].iter().enumerate() {
            let exact = a[i] as f64 * b[i / each] as f64 / less.exp2();
            assert!((made as f64 - exact).abs() <= 0.5, "{made} for {exact}");
        }
        by
    };
    let all = |_: usize| 8;
    let both = gated(values, &[], values, &[]);
    // Four bits are left to be shifted by.
    let (_, shift, _) = scales(&both, &|_| 0);
    assert_eq!(fewer(&both, &all), [8.0, (shift - 12.0).min(8.0)]);
    assert_eq!(fewer(&both, &|id| if id == 1 { 3 } else { 8 }), [3.0, (shift - 7.0).min(8.0)]);
    // A curve of as many values takes more bytes if its value is coarser; of few it does not matter.
    assert_eq!(fewer(&gated(values, &[], values, &[sigmoid()]), &all), [8.0, 0.0]);
    let [value, gate] = fewer(&gated(values, &[], gates, &[sigmoid()]), &all);
    assert!(value + gate > 8.0 && gate > 0.0, "{value} {gate}");
    // A value that a layer takes too, or a sum, or that is an output.
    let mut taken = gated(values, &[], values, &[]);
    let layer = taken.nodes.len() - 1;
    taken.nodes.push(node(pointwise(4, noise(32, 4), 0.0), &[1], [4, 4, 4]));
    taken.nodes.push(node(Add, &[layer, layer + 1], [4, 4, 4]));
    assert_eq!(fewer(&taken, &all), [0.0, 8.0]);
    let mut residual = gated(values, &[], values, &[]);
    residual.nodes.truncate(layer);
    residual.nodes.push(node(Add, &[1, layer - 1], values));
    assert_eq!(fewer(&residual, &all)[0], 0.0);
}

/// What goes into a curve and nowhere else has fewer bits, as many as are spared and its lines bear; and it says so, so that its ring is as much narrower.
#[test]
fn what_goes_into_curves_is_narrow() {
    let images: Vec<Vec<f32>> = (3..9).map(|seed| noise(256, seed)).collect();
    let of = |graph: &Graph, spare: &dyn Fn(usize) -> u32| {
        let spare = (0..graph.nodes.len()).map(spare).collect();
        let options = Options { activation_bits: 18, curve_bits: Some(14), spare, ..Options::default() };
        let samples = Samples::new(Cpu::detect(), graph, &images, &mut |_| ()).expect("images that fit");
        let (model, _) = samples.quantise(&options).expect("quantises");
        (model, samples.held_out(&options).expect("quantises"))
    };
    let fewer = |model: &network::Model| {
        let narrow: Option<&network::Narrow<network::Linear>> = model.network.nodes[1].op.downcast_ref();
        let fewer = narrow.map_or(0, |narrow| narrow.fewer);
        assert_eq!(model.network.value_bits()[1], 18 - fewer);
        fewer
    };
    // (Of few values a message has as many bytes, whatever their bits.)
    let shape = [1, 16, 16];
    let mut graph = chain(1.0, Function::gelu(false), 1.0);
    graph.nodes.iter_mut().for_each(|node| node.shape = shape);
    let (fine, _) = of(&graph, &|_| 0);
    let (coarse, found) = of(&graph, &|_| 8);
    let by = fewer(&coarse);
    assert!(fewer(&fine) == 0 && by >= 1, "{by} bits");
    assert_eq!(fine.scales[1] / coarse.scales[1], f64::from(1 << by));
    assert!(found.worst_relative_error < 0.01 && found.overflows == 0, "{found:?}");
    // No more than are spared.
    assert_eq!(fewer(&of(&graph, &|id| if id == 1 { 1 } else { 8 }).0), 1);
    assert_eq!(fewer(&of(&graph, &|id| if id == 1 { 0 } else { 8 }).0), 0);
    // A value that a sum takes too keeps them.
    let mut taken = graph.clone();
    taken.nodes.push(node(Add, &[1, 3], shape));
    assert_eq!(fewer(&of(&taken, &|_| 8).0), 0);
    // What is too large for its own range is found, though others may be as large.
    let once = coarse.network.input.quantise(&images[0], 18);
    let run = |times: i64| {
        let input: Vec<i64> = once.iter().map(|x| x * times).collect();
        let run = reference::run(Cpu::detect(), &coarse, &input).expect("an image that fits");
        (run.values[1].iter().map(|v| v.abs()).max().unwrap(), run.overflows[1])
    };
    let found: Vec<(i64, usize)> = (1..64).map(run).collect();
    assert!(found.iter().all(|&(most, overflows)| (overflows > 0) == (most > 1 << (17 - by))), "{found:?}");
    assert!(found.iter().any(|&(most, overflows)| overflows > 0 && most < 1 << 17), "{found:?}");
}

/// The scores of a softmax, the largest of them and what they are below it are narrow together, and its exponential is level outside.
#[test]
fn the_scores_of_a_softmax_are_narrow() {
    let (square, row) = ([1, 8, 8], [1, 8, 1]);
    let window = Window { kernel: [1, 8], stride: [1; 2], pads: [0; 4] };
    let repeated = Rearrange::Select { axes: [vec![], vec![], vec![Some(0); 8]] };
    let graph = graph(vec![
        node(Input, &[], square),
        node(pointwise(1, vec![1.0], 0.0), &[0], square),
        node(pointwise(1, vec![-0.8], 0.1), &[0], square),
        node(MatrixProduct { gain: 1.0, transposed: [false, true] }, &[1, 2], square),
        node(pointwise(1, vec![-1.0], -7.25), &[3], square),
        node(MaxPool(window), &[3], row),
        node(repeated, &[5], square),
        node(Add, &[4, 6], square),
        node(Decay, &[7], square),
        node(pointwise(1, vec![1.0], 0.0), &[8], square),
    ]);
    let images: Vec<Vec<f32>> = (3..9).map(|seed| noise(64, seed)).collect();
    let options =
        Options { activation_bits: 19, curve_bits: Some(14), spare: vec![4; 10], ..Options::default() };
    let samples = Samples::new(Cpu::detect(), &graph, &images, &mut |_| ()).expect("images that fit");
    let (model, _) = samples.quantise(&options).expect("quantises");
    let bits = model.network.value_bits();
    let scores = bits[3];
    assert!((15..19).contains(&scores), "{bits:?}");
    assert_eq!(bits[..8], [19, 19, 19, scores, scores, scores, scores, scores]);
    let found = samples.held_out(&options).expect("quantises");
    assert!(found.worst_relative_error < 0.01 && found.overflows == 0, "{found:?}");
    assert!(model.network.nodes[8].op.is::<network::Level>());
    let wide = Options { spare: vec![0; 10], ..options };
    let (wide, _) = samples.quantise(&wide).expect("quantises");
    assert_eq!(wide.network.value_bits()[..8], [19; 8]);
    assert_eq!(wide.scales[3] / model.scales[3], f64::from(1 << (19 - scores)));
    // Signs over them may leave out as many bits fewer: a comparison of the rest must be left.
    let most = |model: &network::Model| {
        let most = Cell::new(0);
        let price = |_, ignored: u32| {
            most.set(ignored.max(most.get()));
            u64::from(100 - ignored)
        };
        let inputs = [model.network.input.quantise(&images[0], 19)];
        choose(model, &inputs, &price, &signs::Options::default(), &mut |_| ()).expect("chooses");
        most.get()
    };
    assert_eq!((most(&wide), most(&model)), (19 - 4, scores - 4));
}

/// What is told of inputs that were left out has the noise that answers will have.
#[test]
fn held_out_inputs_meet_the_noise_of_answers() {
    let graph = chain(1.0, Relu, 1.0);
    let images: Vec<Vec<f32>> = (0..40).map(|i| vec![0.5 + 0.01 * i as f32; 4]).collect();
    let samples = Samples::new(Cpu::detect(), &graph, &images, &mut |_| ()).expect("images that fit");
    let error = |guard_bits| {
        let options =
            Options { activation_bits: 12, hiding: Hiding::by_guard_bits(guard_bits), ..Options::default() };
        samples.held_out(&options).expect("quantises").mean_error
    };
    let model = samples.quantise(&Options { activation_bits: 12, ..Options::default() }).unwrap().0;
    let guarded = model.guarded(8).unwrap().network;
    let deviation = guarded.noise_deviation() / guarded.output.scales[0];
    assert!((0.5..1.5).contains(&(error(8) / deviation)), "{} of {deviation}", error(8));
    assert!(error(0) < 0.25 * deviation, "{} of {deviation}", error(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// A small residual network with random weights, at all widths: integers follow floats within the error that
    /// the widths allow, nothing overflows, and every value class has one scale.
    #[test]
    fn integers_follow_floats(
        seed in any::<u64>(), activation_bits in 12u32..=20, weight_bits in 8u32..=16, gain in -6i32..6,
        clip in any::<bool>(), equalise in any::<bool>(),
    ) {
        let mut state = seed | 1;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut weights = |count: usize| (0..count).map(|_| draw()).collect::<Vec<f32>>();
        let wide: Shape = [4, 4, 4];
        let mut scaled = weights(12);
        scaled.iter_mut().for_each(|w| *w *= (gain as f32).exp2());
        let pool = Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] };
        let average = Window { kernel: [3, 3], stride: [1, 1], pads: [1; 4] };
        let ceiling = 1.5 * (gain as f32).exp2();
        let graph = graph(vec![
            node(Input, &[], [3, 4, 4]),
            node(pointwise(4, scaled, 0.0), &[0], wide),
            node(if clip { Op::new(Clip { ceiling }) } else { Relu.into() }, &[1], wide),
            node(pointwise(4, weights(16), 0.1), &[2], wide),
            node(Add, &[3, 2], wide),
            node(MaxPool(pool), &[4], [4, 2, 2]),
            node(Relu, &[5], [4, 2, 2]),
            node(Concat, &[5, 6], [8, 2, 2]),
            node(Rearrange::Transpose { perm: [0, 2, 1] }, &[7], [8, 2, 2]),
            node(AveragePool { window: average, count_padding: false }, &[8], [8, 2, 2]),
            node(pointwise(3, weights(24), 0.0), &[9], [3, 2, 2]),
        ]);
        let images: Vec<Vec<f32>> = (0..3).map(|_| weights(48)).collect();
        let options = Options { activation_bits, weight_bits, equalise, ..Options::default() };
        let (model, report) = calibrate(Cpu::detect(), &graph, &images, &options).expect("quantises");
        prop_assert_eq!(model.validate(), Ok(()));
        prop_assert!(model.scales[1..9].windows(2).all(|s| s[0] == s[1] || model.scales[3] != s[0]));
        prop_assert_eq!(model.scales[9], 4.0 * model.scales[8]);
        let result = agreement(Cpu::detect(), &graph, &model, &images).expect("fits");
        prop_assert_eq!((result.overflows, result.tight), (0, 0));
        for node in &report.nodes {
            // n-1 bits hold a magnitude, two of them are kept free.
            prop_assert!(node.spare_bits > 1.9, "{} has {} spare bits", node.name, node.spare_bits);
        }
        // Each of three layers errs by some units of each width.
        let allowed = 40.0 * ((-(activation_bits as f64) + 3.0).exp2() + (-(weight_bits as f64) + 1.0).exp2());
        prop_assert!(result.max_error <= allowed * result.largest_logit.max(1e-3), "{} of {}", result.max_error, result.largest_logit);
    }
}
