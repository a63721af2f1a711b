//! Networks as a peer could send them: refused with the reason, or fit to run; never a panic.
use jaguar_graph::network::{
    Add, Bias, Concat, Curve, Difference, Finish, ImageSpec, Input, InputSpec, Level, Linear, MatrixProduct,
    MaxPool, Model, Network, Node, Op, Operators, OutputPart, OutputSpec, Product, Rearrange, Relu, Relu6,
    Resize, Seen, Shape, Straight, SumPool, Weights, Window,
};
use jaguar_graph::reference;
use jaguar_ring::cpu::Cpu;
use proptest::prelude::*;

fn node(op: Op, inputs: &[usize], shape: Shape) -> Node {
    Node { name: "node".into(), op, inputs: inputs.into(), shape }
}

fn curve() -> Curve {
    let (offsets, slopes) = ((-4..4).collect(), (-8..0).rev().collect());
    Curve { low: 9, offset_shift: 12, shift: 8, offsets, slopes }
}

/// Zero up to -256, and x from 256 on.
fn straight() -> Straight {
    let (offsets, slopes) = (vec![0, 0, 1, 2, 3, 4, 32, 48], vec![0, 0, 1, -1, 2, 3, 256, 256]);
    Straight { low: 7, offset_shift: 11, shift: 8, offsets, slopes }
}

/// The same as of a curve from −1000 on, and level outside.
fn level() -> Level {
    let (offsets, slopes) = (vec![-4, -4, -2, -1, 0, 1, 2, 3], vec![0, 0, -3, -4, -5, -6, -7, -8]);
    Level { begin: -1000, lines: Curve { offsets, slopes, ..curve() } }
}

fn conv(out_channels: usize, kernel: usize, pads: usize, groups: usize) -> Op {
    Op::new(Linear {
        out_channels,
        kernel: [kernel; 2],
        stride: [1; 2],
        dilation: [1; 2],
        pads: [pads; 4],
        groups,
        shift: 6,
        max_exponent: 0,
        blocks: None,
    })
}

fn matrices(shift: u32, transposed: [bool; 2]) -> Op {
    Op::new(MatrixProduct { transposed, shift })
}

fn part(dims: &[usize], finish: Finish) -> OutputPart {
    OutputPart { name: "part".into(), dims: dims.into(), finish }
}

/// Every operation once, over `[4, 6, 6]`.
fn sample() -> Network {
    let window = |kernel: usize, stride: usize, pad: usize| Window {
        kernel: [kernel; 2],
        stride: [stride; 2],
        pads: [pad; 4],
    };
    let nodes = vec![
        node(Op::new(Input), &[], [4, 6, 6]),
        node(conv(8, 3, 1, 2), &[0], [8, 6, 6]),
        node(Op::new(MaxPool { window: window(2, 2, 0), ignored: 0 }), &[1], [8, 3, 3]),
        node(Op::new(Relu { ignored: 0 }), &[2], [8, 3, 3]),
        node(conv(8, 1, 0, 8), &[3], [8, 3, 3]),
        node(Op::new(Relu6 { log2_six: 10, ignored: 0 }), &[4], [8, 3, 3]),
        node(Op::new(Add), &[5, 3], [8, 3, 3]),
        node(Op::new(Concat), &[6, 5], [16, 3, 3]),
        node(Op::new(Rearrange::Slice { start: [1, 0, 1], step: [2, 1, 1] }), &[7], [8, 3, 2]),
        node(Op::new(Rearrange::Pad { before: [0, 0, 1], after: [1, 0, 0] }), &[8], [9, 3, 3]),
        node(Op::new(Rearrange::Transpose { perm: [0, 2, 1] }), &[9], [9, 3, 3]),
        node(Op::new(Rearrange::Reshape), &[10], [1, 9, 9]),
        node(Op::new(SumPool { window: window(3, 3, 0), count_real_places: None }), &[11], [1, 3, 3]),
        node(conv(3, 3, 1, 1), &[12], [3, 3, 3]),
        node(Op::new(SumPool { window: window(3, 2, 1), count_real_places: Some(36) }), &[13], [3, 2, 2]),
        node(conv(5, 2, 0, 1), &[14], [5, 1, 1]),
        node(
            Op::new(Rearrange::Select {
                axes: [vec![Some(4), Some(0), None, Some(4)], vec![], vec![None, Some(0)]],
            }),
            &[15],
            [4, 1, 2],
        ),
        node(conv(5, 1, 0, 1), &[16], [5, 1, 2]),
        node(Op::new(Rearrange::Slice { start: [0, 0, 1], step: [1; 3] }), &[17], [5, 1, 1]),
        node(Op::new(Product { shift: 9, offsets: [3, -3] }), &[17, 18], [5, 1, 2]),
        node(Op::new(curve()), &[19], [5, 1, 2]),
        node(matrices(9, [true, false]), &[18, 20], [5, 1, 2]),
        node(Op::new(Difference), &[21, 20], [5, 1, 2]),
        node(Op::new(Rearrange::Slice { start: [0, 0, 1], step: [1; 3] }), &[22], [5, 1, 1]),
    ];
    let image = ImageSpec { resize: Resize::Shorter(8), mean: vec![0.5; 4], ..ImageSpec::default() };
    Network {
        name: "sample".into(),
        activation_bits: 16,
        guard_bits: 0,
        noise_bits: 0,
        weight_bits: 12,
        nodes,
        input: InputSpec {
            scale: 100.0,
            image,
            affine: vec![(1.0, 0.0); 4],
            channels_last: true,
            layout_dims: vec![6, 6, 4],
            seen: Some(Seen { lowest: -1.0, highest: 1.0 }),
        },
        output: OutputSpec {
            scales: vec![50.0, 50.0],
            parts: vec![part(&[1, 2], Finish::Softmax), part(&[3], Finish::Sigmoid)],
            tail: 0,
            labels: vec!["label".into(); 5],
        },
    }
}

/// Weights for all linear nodes, and scales that suit.
fn model(mut network: Network) -> Model {
    let most = (1i16 << (network.weight_bits - 1).min(14)) - 1;
    let weights = network.nodes.iter().map(|node| {
        let linear = node.op.linear()?;
        let channels = network.nodes[node.inputs[0]].shape[0];
        let len = linear.weights_len(channels).expect("a validated layer");
        let weights = (0..len).map(|i| ((i % 7) as i16 - 3).clamp(-most, most)).collect();
        Some(Weights {
            weights,
            exponents: vec![linear.max_exponent.min(2) as u8; linear.out_channels],
            bias: Bias::PerChannel(vec![64; linear.out_channels]),
        })
    });
    let weights = weights.collect();
    let mut scales: Vec<f64> = vec![100.0];
    for node in &network.nodes[1..] {
        let gain = node.op.scale_gain() as f64;
        scales.push(if node.op.linear().is_some() { 100.0 } else { scales[node.inputs[0]] * gain });
    }
    network.output.scales.fill(scales[scales.len() - 1]);
    Model { network, weights, scales, leverage: None }
}

#[test]
fn the_sample_is_valid() {
    let network = sample();
    network.validate().expect("valid");
    let bits = network.value_bits();
    // 9 values add four bits, 36 times a ninth of 9 values six.
    assert_eq!((bits[11], bits[12], bits[13], bits[14], bits[15]), (16, 20, 16, 22, 16));
    let model = model(network);
    model.validate().expect("valid");
    let input: Vec<i64> = (0..144).map(|i| i * 50 - 3000).collect();
    assert_eq!(reference::run(Cpu::detect(), &model, &input).expect("runs").output().len(), 5);
}

/// What is changed, and a part of the error that must come.
type Change = (fn(&mut Network), &'static str);

#[test]
fn every_contradiction_is_named() {
    const HUGE: usize = usize::MAX;
    fn linear(network: &mut Network) -> &mut Linear {
        network.nodes[1].op.linear_mut().expect("node 1 is linear")
    }
    fn selected(network: &mut Network, axis: usize) -> &mut Vec<Option<usize>> {
        let Some(Rearrange::Select { axes }) = network.nodes[16].op.downcast_mut() else {
            unreachable!("node 16 selects")
        };
        &mut axes[axis]
    }
    let changes: Vec<Change> = vec![
        (|n| n.activation_bits = 7, "activation_bits"),
        (|n| n.activation_bits = 25, "activation_bits"),
        (|n| n.weight_bits = 17, "weight_bits"),
        (|n| linear(n).max_exponent = 13, "max_exponent"),
        (|n| n.nodes.truncate(1), "number of nodes"),
        (|n| n.nodes = vec![n.nodes[0].clone(); 5000], "number of nodes"),
        (|n| n.nodes[3].inputs = vec![3], "does not come before"),
        (|n| n.nodes[3].inputs = vec![HUGE], "does not come before"),
        (|n| n.nodes[3].inputs = vec![], "takes one inputs"),
        (|n| n.nodes[6].inputs = vec![5], "takes two inputs"),
        (|n| n.nodes[7].inputs = vec![5], "two or more"),
        (|n| n.nodes[6].inputs = vec![5, 1], "do not go together"),
        (|n| n.nodes[7].inputs = vec![5, 1], "do not go together"),
        (|n| n.nodes[4].op = Op::new(Input), "position"),
        (|n| n.nodes[0].op = Op::new(Relu { ignored: 0 }), "position"),
        (|n| n.nodes[0].shape = [HUGE, HUGE, 2], "tensor size"),
        (|n| n.nodes[0].shape = [1 << 14, 1 << 13, 1], "tensor size"),
        (|n| n.nodes[0].shape = [0, 6, 6], "tensor size"),
        (|n| n.nodes[3].shape = [8, 3, 4], "declares shape"),
        (|n| linear(n).shift = 0, "shift"),
        (|n| linear(n).shift = 41, "shift"),
        (|n| linear(n).groups = 0, "groups"),
        (|n| linear(n).groups = 3, "groups"),
        (|n| linear(n).kernel = [0, 3], "kernel"),
        (|n| linear(n).kernel = [9, 3], "kernel"),
        (|n| linear(n).stride = [1, 0], "stride"),
        (|n| linear(n).dilation = [HUGE, 1], "dilation"),
        (|n| linear(n).pads = [HUGE; 4], "pads"),
        (|n| linear(n).out_channels = 0, "channels"),
        (|n| linear(n).out_channels = 1 << 62, "weights"),
        (|n| n.nodes[5].op = Op::new(Relu6 { log2_six: 15, ignored: 0 }), "log2_six"),
        (|n| n.nodes[5].op = Op::new(Relu6 { log2_six: u32::MAX, ignored: 0 }), "log2_six"),
        (|n| n.nodes[5].op = Op::new(Relu6 { log2_six: 8, ignored: 8 }), "ignored bits"),
        (|n| n.nodes[19].op = Op::new(Product { shift: 0, offsets: [0; 2] }), "shift"),
        (|n| n.nodes[19].op = Op::new(Product { shift: u32::MAX, offsets: [0; 2] }), "shift"),
        (|n| n.nodes[19].op = Op::new(Product { shift: 33, offsets: [0; 2] }), "shift"),
        (|n| n.nodes[19].op = Op::new(Product { shift: 9, offsets: [1 << 15, 0] }), "offset"),
        (|n| n.nodes[19].op = Op::new(Product { shift: 9, offsets: [0, i64::MIN] }), "offset"),
        (|n| n.nodes[19].inputs = vec![17], "two"),
        (|n| n.nodes[21].op = matrices(0, [true, false]), "shift"),
        (|n| n.nodes[21].op = matrices(u32::MAX, [true, false]), "shift"),
        (|n| n.nodes[21].op = matrices(33, [true, false]), "shift"),
        (|n| n.nodes[21].op = matrices(9, [true; 2]), "do not go together"),
        (|n| n.nodes[21].inputs = vec![20], "two"),
        (|n| n.nodes[21].inputs = vec![20, 18], "declares shape"),
        (|n| n.nodes[21].inputs = vec![18, 8], "do not go together"),
        (|n| n.nodes[22].inputs = vec![21], "two"),
        (|n| n.nodes[22].inputs = vec![21, 20, 20], "two"),
        (|n| n.nodes[22].inputs = vec![21, 18], "do not go together"),
        (|n| n.nodes[20].op = Op::new(Curve { low: 0, ..curve() }), "width of a piece"),
        (|n| n.nodes[20].op = Op::new(Curve { low: 14, ..curve() }), "width of a piece"),
        (|n| n.nodes[20].op = Op::new(Curve { low: u32::MAX, ..curve() }), "width of a piece"),
        (|n| n.nodes[20].op = Op::new(Curve { shift: 0, ..curve() }), "shift"),
        (|n| n.nodes[20].op = Op::new(Curve { shift: u32::MAX, ..curve() }), "shift"),
        (|n| n.nodes[20].op = Op::new(Curve { offset_shift: 24, ..curve() }), "shift of offsets"),
        (|n| n.nodes[20].op = Op::new(Curve { offset_shift: u32::MAX, ..curve() }), "shift of offsets"),
        (|n| n.nodes[20].op = Op::new(Curve { offsets: vec![0; 7], ..curve() }), "number of pieces"),
        (|n| n.nodes[20].op = Op::new(Curve { slopes: Vec::new(), ..curve() }), "number of pieces"),
        (|n| n.nodes[20].op = Op::new(Curve { offsets: vec![i64::MIN; 8], ..curve() }), "offset"),
        (|n| n.nodes[20].op = Op::new(Curve { slopes: vec![1 << 40; 8], ..curve() }), "slope"),
        (
            |n| {
                let (offsets, slopes) = (vec![0; 8], vec![0; 8]);
                n.nodes[20].op = Op::new(Straight { low: 12, offsets, slopes, ..straight() });
            },
            "width of a piece",
        ),
        (|n| n.nodes[20].op = Op::new(Straight { low: u32::MAX, ..straight() }), "width of a piece"),
        (|n| n.nodes[20].op = Op::new(Straight { shift: 9, ..straight() }), "line at an end"),
        (|n| n.nodes[20].op = Op::new(Straight { low: 8, ..straight() }), "line at an end"),
        (|n| n.nodes[20].op = Op::new(Straight { slopes: vec![1; 8], ..straight() }), "line at an end"),
        (
            |n| n.nodes[20].op = Op::new(Straight { offsets: (0..8).collect(), ..straight() }),
            "line at an end",
        ),
        (|n| n.nodes[20].op = Op::new(Straight { slopes: Vec::new(), ..straight() }), "number of pieces"),
        (|n| n.nodes[20].op = Op::new(Level { begin: 1 << 14, ..level() }), "begin of the pieces"),
        (|n| n.nodes[20].op = Op::new(Level { begin: -(1 << 14) - 1, ..level() }), "begin of the pieces"),
        (|n| n.nodes[20].op = Op::new(Level { begin: i64::MIN, ..level() }), "begin of the pieces"),
        (|n| n.nodes[20].op = Op::new(Level { lines: curve(), ..level() }), "line at an end"),
        (
            |n| {
                let lines = Curve { offsets: vec![0; 8], slopes: vec![0; 8], low: 12, ..curve() };
                n.nodes[20].op = Op::new(Level { lines, ..level() });
            },
            "width of a piece",
        ),
        (
            |n| {
                let lines = Curve { offsets: vec![0; 7], slopes: Vec::new(), ..curve() };
                n.nodes[20].op = Op::new(Level { lines, ..level() });
            },
            "number of pieces",
        ),
        (|n| n.nodes[19].inputs = vec![18, 17], "shape"),
        (|n| n.nodes[3].op = Op::new(Relu { ignored: 13 }), "ignored bits"),
        (|n| n.nodes[3].op = Op::new(Relu { ignored: u32::MAX }), "ignored bits"),
        (|n| *n.nodes[2].op.ignored_mut().expect("a max-pool") = 13, "ignored bits"),
        (|n| *n.nodes[2].op.ignored_mut().expect("a max-pool") = u32::MAX, "ignored bits"),
        (
            |n| {
                // The last window starts behind the image.
                let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0, 0, 2, 2] };
                n.nodes[2].op = Op::new(MaxPool { window, ignored: 0 });
                n.nodes[2].shape = [8, 4, 4];
            },
            "nothing but padding",
        ),
        (
            |n| {
                let window = Window { kernel: [3; 2], stride: [2; 2], pads: [1; 4] };
                n.nodes[14].op = Op::new(SumPool { window, count_real_places: Some(35) });
            },
            "count_real_places",
        ),
        (
            |n| {
                let window = Window { kernel: [3; 2], stride: [2; 2], pads: [1; 4] };
                n.nodes[14].op = Op::new(SumPool { window, count_real_places: Some(0) });
            },
            "out of range",
        ),
        (|n| n.nodes[8].op = Op::new(Rearrange::Slice { start: [2, 0, 1], step: [2, 1, 1] }), "slice"),
        (|n| n.nodes[8].op = Op::new(Rearrange::Slice { start: [1, 0, 1], step: [0, 1, 1] }), "slice"),
        (|n| n.nodes[8].op = Op::new(Rearrange::Slice { start: [HUGE; 3], step: [HUGE; 3] }), "slice"),
        (|n| n.nodes[9].op = Op::new(Rearrange::Pad { before: [HUGE; 3], after: [1; 3] }), "pads"),
        (|n| n.nodes[10].op = Op::new(Rearrange::Transpose { perm: [0, 1, 1] }), "permutation"),
        (|n| n.nodes[10].op = Op::new(Rearrange::Transpose { perm: [0, 1, 3] }), "permutation"),
        (|n| *selected(n, 0) = vec![Some(5)], "selection"),
        (|n| *selected(n, 2) = vec![None, Some(HUGE)], "selection"),
        (|n| *selected(n, 1) = vec![Some(0); 2], "declares shape"),
        (|n| *selected(n, 1) = vec![None; 1 << 24], "tensor size"),
        (|n| *selected(n, 0) = vec![], "declares shape"),
        (|n| n.nodes[11].shape = [1, 9, 10], "do not go together"),
        (|n| n.input.scale = f64::NAN, "input's scale"),
        (|n| n.output.scales.truncate(1), "number of output scales"),
        (|n| n.output.scales[1] = -1.0, "output's scale"),
        (|n| n.input.affine.truncate(3), "affine"),
        (|n| n.input.affine[0].0 = f32::INFINITY, "affine"),
        (|n| n.input.image.mean.push(1.0), "mean"),
        (|n| n.input.layout_dims[0] = 5, "input's own dimensions"),
        (|n| n.input.layout_dims = vec![6, 24], "input's own dimensions"),
        (|n| n.input.layout_dims = vec![4, 6, 6], "input's own dimensions"),
        (|n| n.input.layout_dims = vec![HUGE, 6, HUGE], "input's own dimensions"),
        (|n| n.output.parts[0].dims[0] = 2, "all output parts"),
        (|n| n.output.parts[1].dims = vec![HUGE, 3], "all output parts"),
        (|n| n.output.parts.truncate(1), "all output parts"),
        (|n| n.output.parts[0].dims = vec![1; 4000], "an output part"),
        (|n| n.output.parts = vec![part(&[0], Finish::None); 5000], "the number of output parts"),
        (
            |n| n.output.parts[1].finish = Finish::Softmaxes { size: 2, apart: 1 },
            "a softmax behind an output",
        ),
        (
            |n| n.output.parts[1].finish = Finish::Softmaxes { size: 0, apart: 1 },
            "a softmax behind an output",
        ),
        (
            |n| n.output.parts[1].finish = Finish::Softmaxes { size: HUGE, apart: HUGE },
            "a softmax behind an output",
        ),
        (|n| n.output.parts[0].name = "x".repeat(5000), "an output part"),
        (|n| n.output.labels.truncate(4), "labels"),
        (|n| n.output.labels[0] = "x".repeat(5000), "label"),
        (|n| n.name = "x".repeat(5000), "name"),
        (|n| n.nodes[3].name = "x".repeat(5000), "name"),
    ];
    for (index, (change, part)) in changes.into_iter().enumerate() {
        let mut network = sample();
        change(&mut network);
        let error = network.validate().expect_err(&format!("change {index}, about {part}")).to_string();
        assert!(error.contains(part), "change {index}: {error:?} does not name {part:?}");
    }
}

#[test]
fn models_are_checked_too() {
    type Change = (fn(&mut Model), &'static str);
    let changes: Vec<Change> = vec![
        (|m| m.weights[1] = None, "linear"),
        (|m| m.weights[2] = m.weights[1].clone(), "linear"),
        (|m| m.weights.truncate(15), "weight sets"),
        (|m| m.scales.truncate(15), "scales"),
        (|m| m.scales[3] = 0.0, "scale"),
        (|m| m.scales[3] *= 2.0, "scale"),
        (|m| m.scales[12] /= 9.0, "scale"),
        (|m| m.weights[1].as_mut().expect("linear").weights[0] = 2048, "weight"),
        (|m| m.weights[1].as_mut().expect("linear").weights[0] = i16::MIN, "weight"),
        (|m| m.weights[1].as_mut().expect("linear").weights.push(0), "weights"),
        (|m| m.weights[1].as_mut().expect("linear").exponents.truncate(3), "exponents"),
        (|m| m.weights[1].as_mut().expect("linear").exponents[3] = 1, "exponent"),
        (|m| m.weights[1].as_mut().expect("linear").bias = Bias::PerElement(vec![0; 8]), "biases"),
        (|m| m.weights[1].as_mut().expect("linear").bias = Bias::PerChannel(vec![i64::MIN; 8]), "bias"),
    ];
    for (index, (change, part)) in changes.into_iter().enumerate() {
        let mut model = model(sample());
        change(&mut model);
        let error = model.validate().expect_err(&format!("change {index}, about {part}")).to_string();
        assert!(error.contains(part), "change {index}: {error:?} does not name {part:?}");
    }
}

#[test]
fn what_stands_behind_a_network_is_refused() {
    let mut bytes = postcard::to_stdvec(&sample()).expect("encodes");
    let decode = |bytes: &[u8]| Operators::standard().decode::<Network>(bytes);
    assert!(decode(&bytes).is_ok());
    bytes.extend_from_slice(&[0; 3]);
    let error = decode(&bytes).expect_err("three bytes too many").to_string();
    assert!(error.contains("3 bytes too many"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]
    /// Damaged encodings that still decode are refused, or fit to run.
    #[test]
    fn damaged_networks_never_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = postcard::to_stdvec(&sample()).expect("encodes");
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] ^= value;
        }
        let Ok(network) = Operators::standard().decode::<Network>(&bytes) else { return Ok(()) };
        if network.validate().is_err() {
            return Ok(());
        }
        prop_assert!(network.value_bits().iter().all(|b| (8..=40).contains(b)));
        let total: usize = network.nodes.iter().map(|n| n.shape.iter().product::<usize>()).sum();
        if total < 10_000 {
            let model = model(network);
            let checked = model.validate();
            // A max-pool that became a sum changes the scale of what follows, for which a network has no word.
            if checked.as_ref().is_err_and(|e| e.to_string().contains("scale beside its inputs' scales")) {
                return Ok(());
            }
            prop_assert_eq!(checked, Ok(()));
            let input = vec![-(1 << 15); model.network.nodes[0].shape.iter().product()];
            let run = reference::run(Cpu::detect(), &model, &input).expect("a valid model runs");
            for (values, node) in run.values.iter().zip(&model.network.nodes) {
                prop_assert_eq!(values.len(), node.shape.iter().product::<usize>());
            }
        }
    }
}
