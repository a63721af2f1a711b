//! Every fixture (`fixtures/make.py`) against ONNX Runtime: imported, in floats, and quantised.
use std::path::{Path, PathBuf};

use jaguar_graph::agreement::agreement;
use jaguar_graph::float::{Add, Concat, Curve, Function, Graph, MatrixProduct, Node, Op, Product};
use jaguar_graph::import::{
    ImportError, Options as ImportOptions, Unsupported, import_bytes, import_file, import_model,
};
use jaguar_graph::network::{self, Finish, Operators, OutputSpec, Rearrange};
use jaguar_graph::onnx::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use jaguar_graph::quantise::{Options, calibrate};
use jaguar_graph::reference;
use jaguar_ring::cpu::Cpu;
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// An imported fixture with its input and what ONNX Runtime made of it.
struct Fixture {
    name: String,
    graph: Graph,
    input: Vec<f32>,
    expected: Vec<f32>,
}

fn load(name: &str) -> Fixture {
    load_with(name, &ImportOptions::new(&Operators::standard()))
}

fn load_with(name: &str, options: &ImportOptions) -> Fixture {
    let data = std::fs::read(folder().join(format!("{name}.io"))).expect("the fixture's values");
    let words: Vec<[u8; 4]> = data.as_chunks::<4>().0.to_vec();
    let inputs = u32::from_le_bytes(words[0]) as usize;
    let values: Vec<f32> = words[2..].iter().map(|&b| f32::from_le_bytes(b)).collect();
    let graph = import_file(&folder().join(format!("{name}.onnx")), options);
    let graph = graph.unwrap_or_else(|e| panic!("{name}: {e}"));
    let (input, expected) = values.split_at(inputs);
    Fixture { name: name.into(), graph, input: input.into(), expected: expected.into() }
}

/// All fixtures that import, but those that are quantised.
fn all() -> Vec<Fixture> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the fixtures")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".io").map(String::from))
        // These round activations, and we do not: they have a test of their own.
        .filter(|name| !name.starts_with("qdq_"))
        .collect();
    names.sort();
    assert!(names.len() > 50, "only {} fixtures found", names.len());
    names.iter().map(|name| load(name)).collect()
}

/// ONNX's output from logits: models that end in a softmax or its logarithm say which by their values.
fn finish(fixture: &Fixture, logits: &[f64]) -> Vec<f64> {
    let output = OutputSpec { parts: fixture.graph.outputs.clone(), ..OutputSpec::plain(1.0) };
    let mut finished = Vec::new();
    for (part, logits) in output.split(logits) {
        let values = part.finish.apply(logits);
        let expected = &fixture.expected[finished.len()..][..logits.len()];
        let softmax = matches!(part.finish, Finish::Softmax | Finish::Softmaxes { .. });
        let logarithm = softmax && expected.iter().any(|&v| v < 0.0);
        finished.extend(values.into_iter().map(|v| if logarithm { v.ln() } else { v }));
    }
    finished
}

/// The largest difference, relative to the largest expected value.
fn error(found: &[f64], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
    found.iter().zip(expected).fold(0f64, |m, (a, b)| m.max((a - f64::from(*b)).abs())) / scale
}

#[test]
fn float_graphs_compute_what_onnx_runtime_does() {
    for fixture in all() {
        let logits =
            fixture.graph.forward(Cpu::detect(), &fixture.input).expect("an input of the right length");
        let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
        let error = error(&finish(&fixture, &logits), &fixture.expected);
        assert!(error < 1e-5, "{}: off by {error:e}", fixture.name);
    }
}

#[test]
fn quantised_models_compute_nearly_the_same() {
    for fixture in all() {
        let options = Options { activation_bits: 20, weight_bits: 16, ..Options::default() };
        let (model, _) =
            calibrate(Cpu::detect(), &fixture.graph, std::slice::from_ref(&fixture.input), &options)
                .unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
        let network = &model.network;
        let run = reference::run(Cpu::detect(), &model, &network.input.quantise(&fixture.input, 20))
            .expect("the right length");
        assert_eq!((run.total_overflows(), run.tight.iter().sum::<usize>()), (0, 0), "{}", fixture.name);
        let found = finish(&fixture, &network.output.logits(run.output()));
        let error = error(&found, &fixture.expected);
        // 18 bits of activation and 15 of weight, a few layers, sums of some dozen terms.
        assert!(error < 1e-3, "{}: off by {error:e}", fixture.name);
    }
}

/// Each of several outputs has a scale of its own, though they are joined and taken apart on the way: scores that are a thousandth of the
/// boxes beside them are as near to ONNX Runtime's. A model whose output says another scale than its values have is refused.
#[test]
fn a_small_output_beside_a_large_one_keeps_its_bits() {
    let fixture = load("uneven_outputs_13");
    let cpu = Cpu::detect();
    let (mut model, _) =
        calibrate(cpu, &fixture.graph, std::slice::from_ref(&fixture.input), &Options::default())
            .expect("scales");
    let network = &model.network;
    let [boxes, scores] = network.output.scales[..] else { panic!("two outputs") };
    assert!(scores > 200.0 * boxes, "{boxes} {scores}");
    let input = network.input.quantise(&fixture.input, network.activation_bits);
    let run = reference::run(cpu, &model, &input).expect("runs");
    let found = finish(&fixture, &network.output.logits(run.output()));
    let count = network.output.parts[0].count().expect("few");
    let errors = [
        error(&found[..count], &fixture.expected[..count]),
        error(&found[count..], &fixture.expected[count..]),
    ];
    assert!(errors.iter().all(|&error| error < 5e-4), "{errors:?}");
    let found =
        agreement(cpu, &fixture.graph, &model, std::slice::from_ref(&fixture.input)).expect("it fits");
    assert!(found.outputs.len() == 2 && found.worst_relative_error < 2e-3, "{found:?}");
    model.network.output.scales[1] = boxes;
    let text = model.validate().expect_err("another scale").to_string();
    assert!(text.contains("an output's scale"), "{text}");
}

/// Attention takes heads as layers make them, channel by channel: nothing is moved before its products. The factor of
/// the queries went into their layer; one of scores is the product's own.
#[test]
fn attention_moves_nothing_before_its_products() {
    let Fixture { graph, .. } = load("attention_13");
    let found: Vec<(f32, [bool; 2])> = graph
        .nodes
        .iter()
        .filter_map(|node| node.op.downcast_ref::<MatrixProduct>())
        .map(|product| (product.gain, product.transposed))
        .collect();
    assert_eq!(found[..2], [(1.0, [true, false]), (1.0, [false, true])]);
    assert_eq!(found.len(), 4);
    let scores = graph.nodes.iter().find(|node| node.op.is::<MatrixProduct>()).expect("there is one");
    for &input in &scores.inputs {
        let Node { op, inputs, .. } = &graph.nodes[input];
        assert!(
            matches!(op.downcast_ref(), Some(Rearrange::Reshape))
                && graph.nodes[inputs[0]].op.linear().is_some()
        );
    }
    let shapes: Vec<_> = graph.nodes.iter().filter(|n| n.op.is::<MatrixProduct>()).map(|n| n.shape).collect();
    assert_eq!(shapes, [[3, 16, 16], [3, 16, 4], [1, 12, 2], [3, 2, 4]]);
    let Fixture { graph, .. } = load("matrices_13");
    let gains = graph.nodes.iter().filter_map(|node| node.op.downcast_ref::<MatrixProduct>());
    assert_eq!(gains.map(|product| product.gain).collect::<Vec<_>>(), [0.5, 1.0, 1.0]);
}

/// Offsets of products are public, and never a number of the model's: `(y - 0.25)²` in `products_13` keeps its quarter in a layer.
#[test]
fn offsets_of_products_tell_nothing() {
    let mut products = 0;
    for name in ["mobilenet_v3_14", "products_13"] {
        let Fixture { graph, input, .. } = load(name);
        let (model, _) =
            calibrate(Cpu::detect(), &graph, &[input], &Options::default()).expect("it is quantised");
        for node in &model.network.nodes {
            let Some(&network::Product { offsets, .. }) = node.op.downcast_ref() else { continue };
            products += 1;
            assert_eq!(offsets, [0; 2], "{name}, {}", node.name);
        }
    }
    assert!(products >= 4, "{products}");
}

/// A softmax at the end is left to the client, so nothing in the network may take what it makes. One that is taken inside is the network's own,
/// even if it is an output too.
#[test]
fn no_product_takes_a_softmax_of_the_clients() {
    let mut model = jaguar_graph::onnx::read(&folder().join("channels_last_13.onnx")).expect("a model");
    let graph = model.graph.as_mut().expect("a graph");
    let softmax = graph.output[0].name.clone().expect("a name");
    let last = softmax.clone();
    graph.node.push(NodeProto {
        input: vec![softmax.clone(), softmax],
        output: vec!["squared".into()],
        op_type: Some("Mul".into()),
        ..NodeProto::default()
    });
    graph.output[0].name = Some("squared".into());
    let import = |outputs: &[&str]| {
        let outputs = outputs.iter().map(|&name| name.to_owned()).collect();
        let options = ImportOptions { outputs, ..ImportOptions::new(&Operators::standard()) };
        import_model(&model, "squared", &options)
    };
    for outputs in [&[&last, "squared"][..], &["squared"]] {
        let parts = import(outputs).expect("imports").outputs;
        assert!(parts.iter().all(|part| part.finish == Finish::None), "{parts:?}");
    }
    // Behind what only gives it another name, nobody looks.
    let graph = model.graph.as_mut().expect("a graph");
    let squared = graph.node.last_mut().expect("a product");
    squared.input = vec!["same".into(), "same".into()];
    let before = graph.node.len() - 1;
    let same = NodeProto {
        input: vec![last],
        output: vec!["same".into()],
        op_type: Some("Identity".into()),
        ..NodeProto::default()
    };
    graph.node.insert(before, same);
    let outputs = vec!["same".into(), "squared".into()];
    let options = ImportOptions { outputs, ..ImportOptions::new(&Operators::standard()) };
    let refused = import_model(&model, "squared", &options).expect_err("refused").to_string();
    assert!(refused.contains("takes the result of a softmax"), "{refused}");
}

/// The operations that are left, in order.
fn operations(name: &str) -> Vec<String> {
    let word = |op: &Op| match op.is::<Rearrange>() {
        true => "Rearrange".to_owned(),
        false => format!("{op:?}").chars().take_while(char::is_ascii_alphanumeric).collect(),
    };
    load(name).graph.nodes.iter().map(|node| word(&node.op)).collect()
}

#[test]
fn fusion_leaves_what_it_should() {
    let ops = operations("batch_norm_both_sides_17");
    assert_eq!(ops, ["Input", "Linear", "Relu", "Linear", "Relu", "Linear", "Relu", "Linear"]);
    // The first normalisation goes through the pooling; the second cannot and costs a layer of its own.
    let ops = operations("batch_norm_through_pools_13");
    let expected = [
        "Input",
        "Linear",
        "MaxPool",
        "Relu",
        "Linear",
        "Relu",
        "Linear",
        "MaxPool",
        "Relu",
        "AveragePool",
        "Linear",
        "MaxPool",
        "Relu",
        "Linear",
    ];
    assert_eq!(ops, expected);
    let expected =
        ["Input", "Linear", "Linear", "Concat", "MaxPool", "Relu", "Linear", "MaxPool", "Clip", "Linear"];
    assert_eq!(operations("pool_after_relus_13"), expected);
    // Normalisation in front of a padded layer becomes the input's own map.
    assert_eq!(operations("batch_norm_first_and_last_13"), ["Input", "Linear", "Linear", "Add", "Linear"]);
    assert_eq!(load("batch_norm_first_and_last_13").graph.affine.len(), 3);
    assert_eq!(operations("input_scaling_9"), ["Input", "Linear"]);
    // Averages go first, but for padding that counts: there the bias would be averaged with zeros. One
    // of those feeds another average and so becomes a layer.
    let expected = [
        "Input",
        "Linear",
        "Relu",
        "AveragePool",
        "Linear",
        "Linear",
        "AveragePool",
        "Linear",
        "Linear",
        "AveragePool",
        "Linear",
    ];
    assert_eq!(operations("averages_after_pointwise_13"), expected);
    // Moving nothing costs nothing: flattening, squeezing, views, channels last.
    for name in ["view_chain_9", "size_chain_13", "symbolic_batch_13"] {
        assert_eq!(operations(name), ["Input", "Linear", "Relu", "Linear"], "{name}");
    }
    let last = load("channels_last_13").graph;
    assert!(last.channels_last && last.outputs[0].finish == Finish::Softmax && last.affine.len() == 3);
    let transposes = |n: &&jaguar_graph::float::Node| {
        matches!(n.op.downcast_ref(), Some(Rearrange::Transpose { .. } | Rearrange::Reshape))
    };
    assert_eq!(last.nodes.iter().filter(transposes).count(), 0);
    // Two halves; the shuffle is the next layer's, which takes its channels in any order.
    let count = |name: &str, what: &str| operations(name).iter().filter(|o| *o == what).count();
    assert_eq!(count("channel_shuffle_13", "Rearrange"), 2);
    // A HardSwish is one curve, however it is written; what is left is a gate, whose HardSigmoid is a clip.
    let counts = ["Linear", "Curve", "Product", "Clip"].map(|what| count("mobilenet_v3_14", what));
    assert_eq!(counts, [8, 4, 1, 1]);
    // A shuffle and what half of the channels is taken: one selection each, however they are written.
    for name in ["shuffle_and_split_13", "shuffle_by_halves_11"] {
        let graph = load(name).graph;
        let select = |n: &&jaguar_graph::float::Node| {
            let Some(moved) = n.op.downcast_ref() else { return false };
            assert!(matches!(moved, Rearrange::Select { .. } | Rearrange::Slice { .. }));
            true
        };
        let blocks = graph.nodes.iter().filter(|n| n.op.is::<Concat>()).count();
        assert_eq!(graph.nodes.iter().filter(select).count(), 2 * blocks, "{name}");
    }
    // Another order of the input's channels costs nothing.
    assert_eq!(operations("gathers_13")[..3], ["Input", "Linear", "Relu"]);
}

/// What makes an image larger does so behind the layer that takes it, whose input stays small.
#[test]
fn images_grow_after_layers() {
    for (name, layers) in [("transposed_convolutions_13", 5), ("nearest_13", 4)] {
        let graph = load(name).graph;
        let linears = graph.nodes.iter().filter(|n| n.op.linear().is_some());
        let inputs: Vec<_> = linears.map(|n| graph.nodes[n.inputs[0]].shape).collect();
        assert_eq!(inputs.len(), layers, "{name}");
        assert!(inputs[1..layers - 1].iter().all(|s| s[1..] == [3, 3]), "{name}: {inputs:?}");
    }
}

/// A leaky ReLU is a ReLU beside its input, and costs no linear layer of its own where linear layers take it.
#[test]
fn leaky_activations_are_relus() {
    let ops = operations("leaky_13");
    assert_eq!(ops.iter().filter(|o| **o == "Relu").count(), 7);
    // Six layers, and one for the end; the sum and what goes into it take one each.
    assert_eq!(ops.iter().filter(|o| **o == "Linear").count(), 9, "{ops:?}");
    // Pooling comes first where slopes are positive.
    let place = |what: &str| ops.iter().position(|o| *o == what).expect("is there");
    let relus = ops[..place("MaxPool")].iter().filter(|o| **o == "Relu").count();
    assert_eq!(relus, 1, "{ops:?}");
}

/// Models quantised by ONNX Runtime: weights as they are there, activations as before; ReLUs that its quantiser has
/// left to the saturation are back.
#[test]
fn quantised_files_import() {
    let count = |name: &str, what: &str| operations(name).iter().filter(|o| *o == what).count();
    for (name, clips, tolerance) in [
        ("qdq_by_channel_13", 0, 0.02),
        ("qdq_relu6_13", 2, 0.02),
        ("qdq_signed_13", 0, 0.02),
        // Activations of 16 bits: what is left is the difference in the weights, and there is none.
        ("qdq_16_bits_21", 0, 2e-4),
        ("qdq_contrib_13", 0, 2e-4),
        // ONNX Runtime's own operators and ONNX's, of integers.
        ("qdq_operators_13", 0, 0.02),
    ] {
        let fixture = load(name);
        let logits =
            fixture.graph.forward(Cpu::detect(), &fixture.input).expect("an input of the right length");
        let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
        let error = error(&finish(&fixture, &logits), &fixture.expected);
        assert!(error < tolerance, "{name}: off by {error:e}");
        assert_eq!((count(name, "Relu"), count(name, "Clip")), (5 - clips, clips), "{name}");
    }
    let odd = complaint("qdq_odd_13");
    assert!(odd.contains("another scale"), "{odd}");
    let Fixture { graph, input, expected, .. } = load("qdq_operators_too_13");
    let logits = graph.forward(Cpu::detect(), &input).expect("an input of the right length");
    let found: Vec<f64> =
        graph.outputs[0].finish.apply(&logits.into_iter().map(f64::from).collect::<Vec<_>>());
    assert!(error(&found, &expected) < 0.05, "{found:?} for {expected:?}");
    let (nodes, text) = complaints("integers_13");
    assert!(nodes.iter().any(|n| n.operator == "ConvInteger" && n.instead.contains("QDQ")), "{text}");
}

#[test]
fn advice_fits() {
    let (nodes, _) = complaints("refusals_behind_refusals_13");
    let norm = nodes[2].to_string();
    assert!(norm.contains("ReduceL1") && norm.contains("--output-name"), "{norm}");
    // The divisor is refused, and what is made of the refused quotient is refused for itself.
    let (nodes, text) = complaints("divided_by_what_may_be_negative_13");
    let operators: Vec<&str> = nodes.iter().map(|n| n.operator.as_str()).collect();
    assert_eq!(operators, ["Div", "Sqrt", "Pow"], "{text}");
    assert!(nodes[0].reason.contains("may be negative") && nodes[2].reason.contains("training"), "{text}");
    assert!(complaint("dropout_in_training_13").contains("model.eval()"));
    // The value before it has a name, which can be taken.
    let bytes = std::fs::read(folder().join("embedding_13.onnx")).expect("the fixture");
    let graph = jaguar_graph::onnx::decode(&bytes).expect("decodes").graph.expect("a graph");
    let gemm = graph.node.iter().find(|n| n.op_type() == "Gemm").expect("a layer");
    let options =
        ImportOptions { outputs: vec![gemm.output[0].clone()], ..ImportOptions::new(&Operators::standard()) };
    let graph = import_bytes(&bytes, "cut", &options).expect("imports");
    assert_eq!(graph.outputs[0].dims, [1, 4]);
}

/// The only complaint about a fixture that is refused.
fn complaint(name: &str) -> String {
    let path = folder().join(format!("{name}.onnx"));
    // (Of an output that is named no tail is left out.)
    let graph = jaguar_graph::onnx::read(&path).expect("a file").graph.expect("a graph");
    let outputs = graph.output.iter().map(|output| output.name().into()).collect();
    match import_file(&path, &ImportOptions { outputs, ..ImportOptions::new(&Operators::standard()) }) {
        Err(ImportError::Unsupported(nodes)) if nodes.len() == 1 => nodes[0].to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn batch_normalization_in_training_is_refused() {
    for opset in [8, 12, 15] {
        let text = complaint(&format!("batch_norm_in_training_{opset}"));
        assert!(text.contains("training mode") && text.contains("model.eval()"), "{text}");
    }
    assert!(complaint("batch_norm_by_place_8").contains("spatial"));
}

/// What the client applies to each output, and its shape.
#[test]
fn outputs_say_what_they_are() {
    let parts = |name: &str| {
        let outputs = load(name).graph.outputs;
        outputs.into_iter().map(|p| (p.dims, p.finish)).collect::<Vec<_>>()
    };
    assert_eq!(parts("sigmoid_at_the_end_13"), [(vec![1, 72], Finish::Sigmoid)]);
    assert_eq!(parts("gemms_9"), [(vec![1, 4], Finish::None)]);
}

/// Softmaxes by place, and others at the end of outputs, are the client's: no operation of the network is one. A gate that is an output and is
/// taken inside is the network's own.
#[test]
fn each_output_ends_in_its_own_way() {
    let graph = load("softmax_by_place_13").graph;
    let finishes: Vec<Finish> = graph.outputs.iter().map(|part| part.finish).collect();
    let softmaxes = |size, apart| Finish::Softmaxes { size, apart };
    let want = [
        softmaxes(5, 36),
        // The classes are the last but two of the dimensions now.
        softmaxes(5, 6),
        softmaxes(3, 1),
        softmaxes(9, 20),
        Finish::None,
        Finish::Sigmoid,
        Finish::None,
    ];
    assert_eq!(finishes, want);
    let curves: Vec<&Node> = graph.nodes.iter().filter(|node| node.op.is::<Curve>()).collect();
    assert_eq!(curves.len(), 1, "the gate: {curves:?}");
    // Of the first sizes (softmax, whether by place), as the file was of an older opset.
    let old = load("softmax_by_place_11").graph;
    assert_eq!(
        old.outputs.iter().map(|part| part.finish).take(3).collect::<Vec<_>>(),
        [softmaxes(5, 1), softmaxes(5, 36), softmaxes(3, 1)]
    );
}

/// Nobody needs to name outputs: all are taken, in the file's order.
#[test]
fn several_outputs_are_all_taken_or_chosen_by_name() {
    let path = folder().join("several_outputs_13.onnx");
    let import = |names: &[String]| {
        import_file(
            &path,
            &ImportOptions { outputs: names.to_vec(), ..ImportOptions::new(&Operators::standard()) },
        )
    };
    let file = jaguar_graph::onnx::read(&path).expect("a file").graph.expect("a graph");
    let names: Vec<String> = file.output.iter().map(|output| output.name().to_owned()).collect();
    let all = load("several_outputs_13");
    let taken: Vec<&str> = all.graph.outputs.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(taken, names);
    let dims: Vec<_> = all.graph.outputs.iter().map(|p| p.dims.clone()).collect();
    assert_eq!(dims, [vec![1, 5], vec![1, 5], vec![1, 6, 6, 3], vec![1, 2]]);
    // In another order, and alone.
    let values =
        |names: &[String]| import(names).expect("imports").forward(Cpu::detect(), &all.input).expect("runs");
    let whole = values(&names);
    assert_eq!(values(&[names[3].clone(), names[1].clone()]), [&whole[118..], &whole[5..10]].concat());
    assert_eq!(values(&names[2..3]).len(), 108);
    let twice = import(&[names[0].clone(), names[0].clone()]).expect_err("named twice");
    assert!(twice.to_string().contains("twice"));
    // One that is constant stands in the way of all, and says what helps; so do too many.
    let mut model = jaguar_graph::onnx::read(&path).expect("a file");
    let graph = model.graph.as_mut().expect("a graph");
    let (known, first) = (graph.initializer[0].name().to_owned(), graph.output[0].clone());
    graph.output.push(ValueInfoProto { name: Some(known.clone()), ..first.clone() });
    let text = |model: &ModelProto| {
        let options = ImportOptions::new(&Operators::standard());
        import_model(model, "outputs", &options).expect_err("refused").to_string()
    };
    let constant = text(&model);
    assert!(
        constant.contains(&known) && constant.contains("name the others with --output-name"),
        "{constant}"
    );
    let many = (0..65).map(|i| ValueInfoProto { name: Some(format!("y{i}")), ..first.clone() });
    model.graph.as_mut().expect("a graph").output = many.collect();
    let many = text(&model);
    assert!(many.contains("there are 65, and at most 64") && many.contains("--output-name"), "{many}");
}

/// A factor of zeros and ones is no layer, whatever it varies along; another one that varies within a channel is still refused.
#[test]
fn masks_are_selections() {
    let ops = operations("masks_13");
    // The three convolutions, the mean, the sum.
    assert_eq!(ops.iter().filter(|op| *op == "Linear").count(), 3, "{ops:?}");
    let mut model = jaguar_graph::onnx::read(&folder().join("masks_13.onnx")).expect("a model");
    let tensors = &mut model.graph.as_mut().expect("a graph").initializer;
    let mask = tensors.iter_mut().find(|tensor| tensor.dims == [6, 6]).expect("the triangle");
    let raw = mask.raw_data.as_mut().expect("its numbers");
    raw[..4].copy_from_slice(&0.5f32.to_le_bytes());
    let output = model.graph.as_ref().expect("a graph").output[0].name().to_owned();
    let options = ImportOptions { outputs: vec![output], ..ImportOptions::new(&Operators::standard()) };
    let text = import_model(&model, "masks", &options).expect_err("another factor").to_string();
    assert!(text.contains("multiplies by a constant that varies within a channel"), "{text}");
}

/// What is refused behind the last layers comes with the option that cuts it off, and with that the model is read. In front of a layer nothing can
/// be cut off.
#[test]
fn a_tail_that_is_refused_can_be_cut_off() {
    let path = folder().join("detector_13.onnx");
    let graph = jaguar_graph::onnx::read(&path).expect("a file").graph.expect("a graph");
    let outputs: Vec<String> = graph.output.iter().map(|o| o.name().to_owned()).collect();
    let import = |outputs: Vec<String>| {
        import_file(&path, &ImportOptions { outputs, ..ImportOptions::new(&Operators::standard()) })
    };
    let text = import(outputs).expect_err("refused").to_string();
    let (_, named) = text.rsplit_once("with --output-name ").expect("an option");
    assert!(text.contains("the last 5 nodes can be left to whoever gets the answer"), "{text}");
    let dims = import(named.split(',').map(String::from).collect()).expect("imports").outputs;
    let dims: Vec<_> = dims.into_iter().map(|part| part.dims).collect();
    // The sizes before Exp, what is added to the places, the largest scores.
    assert_eq!(dims, [vec![1, 2, 36], vec![1, 2, 36], vec![1, 36]]);
    let (_, text) = complaints("exp_before_a_layer_13");
    assert!(!text.contains("can be left"), "{text}");
}

/// Where nobody named outputs, a tail that cannot be run is left out, and the graph, and what is made of it, says so; in front of a layer it
/// is refused as ever.
#[test]
fn a_tail_is_left_out_and_told() {
    let path = folder().join("detector_tail_13.onnx");
    let import = |outputs: &[&str]| {
        let outputs = outputs.iter().map(|&name| name.into()).collect();
        import_file(&path, &ImportOptions { outputs, ..ImportOptions::new(&Operators::standard()) })
    };
    let graph = import(&[]).expect("up to the tail");
    let dims: Vec<_> = graph.outputs.iter().map(|part| part.dims.clone()).collect();
    // The scores, what the softmax takes: it is not refused, but leads into what is.
    assert_eq!(dims, [vec![1, 3, 36], vec![1, 4, 4, 36]]);
    assert!(graph.nodes.iter().all(|node| !node.op.is::<Product>()));
    assert_eq!(graph.outputs[0].finish, Finish::Sigmoid);
    let text = graph.left_out().expect("what is left out");
    assert!(text.contains("last 5 nodes are left out, for Mul cannot be run"), "{text}");
    assert!(graph.outputs.iter().all(|part| text.contains(&part.name)), "{text}");
    let image: Vec<f32> = (0..192).map(|i| (i % 7) as f32 / 7.0).collect();
    let (model, _) = calibrate(Cpu::detect(), &graph, &[image], &Options::default()).expect("scales");
    assert_eq!(model.network.output.tail, 5);
    // Who names outputs gets them, or why not.
    let names: Vec<&str> = graph.outputs.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(import(&names).expect("imports").left_out(), None);
    let file = jaguar_graph::onnx::read(&path).expect("a file").graph.expect("a graph");
    assert!(matches!(import(&[file.output[0].name()]), Err(ImportError::Unsupported(_))));
}

/// One of a batch of four is taken, where sizes in the file are the batch's; where samples are mixed, the refusal says so. (What it computes is
/// compared with all others.)
#[test]
fn one_of_a_fixed_batch_is_taken() {
    let graph = load("fixed_batch_13").graph;
    assert_eq!((graph.nodes[0].shape, &graph.outputs[0].dims[..]), ([3, 8, 8], &[1, 5][..]));
    for (name, why) in [
        ("mixed_batch_13", "reshapes a batch and its samples together"),
        ("added_to_a_batch_13", "values of a whole batch"),
    ] {
        let path = folder().join(format!("{name}.onnx"));
        let options = ImportOptions::new(&Operators::standard());
        let text = import_file(&path, &options).expect_err("samples are mixed").to_string();
        assert!(text.contains("\"x\" has batch size 4, and one of it cannot be taken"), "{text}");
        assert!(text.contains(why) && text.contains("export with 1"), "{text}");
    }
    let path = folder().join("fixed_batch_13.onnx");
    let with = |shape: &[usize]| {
        let options =
            ImportOptions { input_shape: Some(shape.into()), ..ImportOptions::new(&Operators::standard()) };
        import_file(&path, &options).map(|graph| graph.outputs[0].dims.clone())
    };
    assert_eq!(with(&[1, 3, 8, 8]).expect("imports"), [1, 5]);
    let text = with(&[4, 3, 8, 8]).expect_err("a batch").to_string();
    assert!(text.contains("--input-shape begins with 1"), "{text}");
}

#[test]
fn open_sizes_name_the_flag() {
    let bytes = std::fs::read(folder().join("symbolic_batch_13.onnx")).expect("the fixture");
    let mut model = jaguar_graph::onnx::decode(&bytes).expect("decodes");
    let graph = model.graph.as_mut().expect("a graph");
    let tensor = graph.input[0].r#type.as_mut().and_then(|t| t.tensor_type.as_mut()).expect("a type");
    tensor.shape.as_mut().expect("a shape").dim[2].dim_value = None;
    let error =
        import_model(&model, "open", &ImportOptions::new(&Operators::standard())).expect_err("open sizes");
    assert!(error.to_string().contains("--input-shape"), "{error}");
}

#[test]
fn everything_unsupported_is_named_at_once() {
    let Err(ImportError::Unsupported(nodes)) =
        import_file(&folder().join("unsupported_13.onnx"), &ImportOptions::new(&Operators::standard()))
    else {
        panic!("the model should be refused")
    };
    let operators: Vec<&str> = nodes.iter().map(|n| n.operator.as_str()).collect();
    // (The last takes weights that the network computes.)
    assert_eq!(operators, ["Exp", "Sqrt", "Log", "Resize", "Conv"]);
    let Unsupported { inputs, instead, .. } = &nodes[1];
    assert_eq!(inputs[0], Some(vec![1, 4, 6, 6]));
    assert!(instead.contains("--output-name"));
    let text = ImportError::Unsupported(nodes).to_string();
    assert!(text.contains("5 of the model's 11 nodes"), "{text}");
}

/// A table of cosines is a value of its own, of a layer of zeros: four products for each pair of queries and keys, in both forms.
#[test]
fn positions_turn_by_products() {
    let ops = operations("turned_positions_13");
    // Of two softmaxes each one product scales.
    assert_eq!(ops.iter().filter(|op| *op == "Product").count(), 2 * 4 + 2, "{ops:?}");
    let mut model = jaguar_graph::onnx::read(&folder().join("turned_positions_13.onnx")).expect("a model");
    let tables = &mut model.graph.as_mut().expect("a graph").initializer;
    // Numbers that serve no pair are a layer's, of which the shape is not known to be.
    let table = tables.iter_mut().find(|tensor| tensor.dims == [16, 8]).expect("cosines");
    table.raw_data.as_mut().expect("its numbers")[4..8].copy_from_slice(&0.25f32.to_le_bytes());
    let output = model.graph.as_ref().expect("a graph").output[0].name().to_owned();
    let options = ImportOptions { outputs: vec![output], ..ImportOptions::new(&Operators::standard()) };
    let text = import_model(&model, "turned", &options).expect_err("no turn").to_string();
    assert!(text.contains("multiplies by a constant that varies within a channel"), "{text}");
}

/// What linear attention divides by is one column of a product: it is known not to be negative where what makes that column is.
#[test]
fn sums_that_may_be_negative_divide_nothing() {
    let complaint = complaint("attention_by_negative_sums_13");
    assert!(complaint.contains("a root or an inverse of a value that may be negative"), "{complaint}");
}

/// All complaints about a fixture that is refused, and the text that says so.
fn complaints(name: &str) -> (Vec<Unsupported>, String) {
    let path = folder().join(format!("{name}.onnx"));
    // (Of an output that is named no tail is left out.)
    let graph = jaguar_graph::onnx::read(&path).expect("a file").graph.expect("a graph");
    let outputs = graph.output.iter().map(|output| output.name().into()).collect();
    match import_file(&path, &ImportOptions { outputs, ..ImportOptions::new(&Operators::standard()) }) {
        Err(ImportError::Unsupported(nodes)) => (nodes.clone(), ImportError::Unsupported(nodes).to_string()),
        other => panic!("{name}: {other:?}"),
    }
}

/// How many nodes of a fixture are curves, and how many others take two values.
fn curves_and_pairs(name: &str) -> (usize, usize) {
    let nodes = load(name).graph.nodes;
    let count = |which: &dyn Fn(&Node) -> bool| nodes.iter().filter(|node| which(node)).count();
    (count(&|node| node.op.is::<Curve>()), count(&|node| node.inputs.len() == 2 && !node.op.is::<Add>()))
}

#[test]
fn curves_in_several_nodes_become_one() {
    // (Two are HardSwishes, of clips.)
    assert_eq!(curves_and_pairs("curves_13"), (7, 0));
    for (name, curves) in [("named_curves_13", 9), ("named_curves_20", 12), ("named_curves_24", 14)] {
        assert_eq!(curves_and_pairs(name), (curves, 1), "{name}");
    }
}

/// A factor that may have been learned is in no curve: curves are public.
#[test]
fn learned_factors_stay_in_layers() {
    assert_eq!(curves_and_pairs("learned_curves_13"), (2, 1));
    for node in load("learned_curves_13").graph.nodes {
        if let Some(Curve { function }) = node.op.downcast_ref() {
            assert!(matches!(function, Function::Of(_, of) if **of == Function::Value), "{function:?}");
        }
    }
}

#[test]
fn what_follows_a_refusal_is_looked_at() {
    let (nodes, text) = complaints("refusals_behind_refusals_13");
    let operators: Vec<&str> = nodes.iter().map(|n| n.operator.as_str()).collect();
    assert_eq!(operators, ["LpPool", "Resize", "ReduceL1"], "{text}");
    assert_eq!(nodes[2].inputs, [Some(vec![1, 4, 8, 8])], "sizes behind a Resize");
    assert!(nodes.iter().all(|n| !n.reason.is_empty() && !n.instead.is_empty()), "{text}");
}

#[test]
fn open_and_chosen_shapes() {
    let dims = |name: &str| load(name).graph.layout_dims;
    assert_eq!((dims("channels_last_13"), dims("gemms_9")), (vec![6, 7, 3], vec![3, 8, 8]));
    let path = folder().join("symbolic_batch_13.onnx");
    let options = ImportOptions {
        input_shape: Some(vec![1, 3, 8, 8]),
        outputs: vec![],
        ..ImportOptions::new(&Operators::standard())
    };
    assert_eq!(import_file(&path, &options).expect("imports").input_shape(), [3, 8, 8]);
    let options = ImportOptions {
        input_shape: Some(vec![2, 3, 8, 8]),
        outputs: vec![],
        ..ImportOptions::new(&Operators::standard())
    };
    assert!(matches!(import_file(&path, &options), Err(ImportError::Input(_))));
    let options = ImportOptions {
        input_shape: None,
        outputs: vec!["nothing".into()],
        ..ImportOptions::new(&Operators::standard())
    };
    assert!(matches!(import_file(&path, &options), Err(ImportError::Output(_))));
}

/// An input that is told to be constant takes part as an initializer does.
#[test]
fn inputs_may_be_constant() {
    let mut model = chain(&[("Relu", &[]), ("Mul", &["k"])], 3);
    let graph = model.graph.as_mut().expect("a graph");
    let dim = |v| DimensionProto { dim_value: Some(v), ..Default::default() };
    let shape = TensorShapeProto { dim: [4, 1, 1].map(dim).into() };
    let tensor_type = TensorTypeProto { elem_type: Some(1), shape: Some(shape) };
    let k =
        ValueInfoProto { name: Some("k".into()), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) };
    graph.input.push(k);
    let import = |constants: &[(&str, &[f32])]| {
        let constants =
            constants.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect();
        import_model(
            &model,
            "gain",
            &ImportOptions { constants, ..ImportOptions::new(&Operators::standard()) },
        )
    };
    let x: Vec<f32> = (0..256).map(|i| i as f32 / 16.0 - 8.0).collect();
    for (given, gains) in [(&[0.5][..], [0.5; 4]), (&[1.0, 2.0, -1.0, 0.25], [1.0, 2.0, -1.0, 0.25])] {
        let graph = import(&[("k", given)]).expect("imports");
        let found = graph.forward(Cpu::detect(), &x).expect("runs");
        let expected = |i: usize| (f64::from(x[i]).max(0.0) * gains[i / 64]).max(0.0);
        assert!((0..256).all(|i| (f64::from(found[i]) - expected(i)).abs() < 1e-4), "{given:?}");
    }
    let refused = |constants: &[(&str, &[f32])]| import(constants).expect_err("refused").to_string();
    assert!(refused(&[]).contains("--constant"));
    assert!(refused(&[("k", &[1.0, 2.0])]).contains("2 numbers"));
    assert!(refused(&[("m", &[1.0])]).contains("\"m\""));
    assert!(refused(&[("k", &[f32::NAN])]).contains("finite"));
}

/// A model of so many nodes in a row, each an operator with a constant or without.
fn chain(operators: &[(&str, &[&str])], length: usize) -> ModelProto {
    let name = |i: usize| if i == 0 { "x".to_string() } else { format!("v{i}") };
    let ints = |name: &str, ints: &[i64]| AttributeProto {
        name: Some(name.into()),
        ints: ints.into(),
        ..Default::default()
    };
    let node = |i: usize| {
        let (operator, constants) = operators[i % operators.len()];
        NodeProto {
            input: std::iter::once(name(i)).chain(constants.iter().map(|c| c.to_string())).collect(),
            output: vec![name(i + 1)],
            op_type: Some(operator.into()),
            attribute: vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1; 4])],
            ..Default::default()
        }
    };
    let tensor = |name: &str, dims: &[i64], value: f32| TensorProto {
        name: Some(name.into()),
        dims: dims.into(),
        data_type: Some(1),
        float_data: vec![value; dims.iter().product::<i64>() as usize],
        ..Default::default()
    };
    let dim = |v| DimensionProto { dim_value: Some(v), ..Default::default() };
    let shape = TensorShapeProto { dim: [1, 4, 8, 8].map(dim).into() };
    let tensor_type = TensorTypeProto { elem_type: Some(1), shape: Some(shape) };
    let input =
        ValueInfoProto { name: Some("x".into()), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) };
    let graph = GraphProto {
        node: (0..length).map(node).collect(),
        initializer: vec![tensor("half", &[4, 1, 1], 0.5)],
        input: vec![input],
        output: vec![ValueInfoProto { name: Some(name(length)), r#type: None }],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: None, version: Some(13) };
    ModelProto { graph: Some(graph), opset_import: vec![opset], ..Default::default() }
}

/// The affine map behind the input, in the layers behind it: the same function, no node more, nothing public left of it.
#[test]
fn a_map_at_the_head_goes_into_the_layers() {
    let mut seen = 0;
    for fixture in all().into_iter().filter(|f| !f.graph.affine.is_empty()) {
        let Fixture { name, graph, input, .. } = &fixture;
        assert!(!graph.affine_name.is_empty(), "{name}");
        let run = |graph: &Graph| graph.forward(Cpu::detect(), input).expect("an input of the right length");
        let want = run(graph);
        let largest = want.iter().fold(0f32, |m, v| m.max(v.abs()));
        let same = |moved: &Graph| {
            assert!(moved.affine.is_empty() && moved.affine_name.is_empty(), "{name}");
            let off = run(moved).iter().zip(&want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
            assert!(off <= 1e-5 * largest, "{name}: off by {off} of {largest}");
        };
        if let Some(moved) = graph.with_map_in_layers(Cpu::detect(), false) {
            assert_eq!(moved.nodes.len(), graph.nodes.len(), "{name}");
            same(&moved);
            seen += 1;
        }
        same(&graph.with_map_in_layers(Cpu::detect(), true).unwrap_or_else(|| panic!("{name}")));
    }
    // Over zero padding, with two layers behind it, with channels last: at least these.
    assert!(seen >= 3, "{seen}");
    assert!(load("view_chain_9").graph.with_map_in_layers(Cpu::detect(), true).is_none());
}

/// An If is refused with what is in its branches; the values that only they take are inputs of the network too.
#[test]
fn subgraphs_are_named() {
    let mut model = chain(&[("Relu", &[])], 3);
    let graph = model.graph.as_mut().expect("a graph");
    let node = |operator: &str, input: &str, output: &str| NodeProto {
        input: vec![input.into()],
        output: vec![output.into()],
        op_type: Some(operator.into()),
        ..Default::default()
    };
    let branch = |operator: &str| GraphProto {
        node: vec![node("Constant", "", "c"), node(operator, "v1", "made"), node("Relu", "made", "y")],
        output: vec![ValueInfoProto { name: Some("y".into()), r#type: None }],
        ..Default::default()
    };
    let attribute = |name: &str, operator: &str| AttributeProto {
        name: Some(name.into()),
        g: Some(branch(operator)),
        ..Default::default()
    };
    let choice = |condition: &str| NodeProto {
        attribute: vec![attribute("then_branch", "LSTM"), attribute("else_branch", "Conv")],
        ..node("If", condition, "v3")
    };
    graph.node[2] = choice("v2");
    let complaint =
        |model: &ModelProto| match import_model(model, "choice", &ImportOptions::new(&Operators::standard()))
        {
            Err(error) => error.to_string(),
            Ok(_) => panic!("refused"),
        };
    let text = complaint(&model);
    for part in [
        "chooses between subgraphs",
        "then_branch of 3 nodes (LSTM, Relu)",
        "else_branch of 3 nodes (Conv, Relu)",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(text.contains("trace the model"), "{text}");
    // By a constant: which branch it is.
    let graph = model.graph.as_mut().expect("a graph");
    graph.node[2] = choice("always");
    graph.initializer.push(TensorProto {
        name: Some("always".into()),
        data_type: Some(9),
        int32_data: vec![1],
        ..Default::default()
    });
    let text = complaint(&model);
    assert!(text.contains("always then_branch") && text.contains("Put the nodes of then_branch"), "{text}");
    // The picture goes into the branches alone: it is an input, besides the one that chooses.
    let graph = model.graph.as_mut().expect("a graph");
    graph.node = vec![choice("which")];
    graph.initializer.clear();
    for attribute in &mut graph.node[0].attribute {
        attribute.g.as_mut().expect("a branch").node[1].input = vec!["x".into()];
    }
    graph.input.push(ValueInfoProto { name: Some("which".into()), ..graph.input[0].clone() });
    let text = complaint(&model);
    assert!(text.contains("exactly one") && text.contains("\"which\"") && text.contains("\"x\""), "{text}");
}

#[test]
fn volumes_are_told_so() {
    let mut model = chain(&[("Relu", &[])], 1);
    let input = &mut model.graph.as_mut().expect("a graph").input[0];
    let tensor = input.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()).expect("a type");
    let dims = &mut tensor.shape.as_mut().expect("a shape").dim;
    dims.push(DimensionProto { dim_value: Some(16), ..Default::default() });
    let error = import_model(&model, "volume", &ImportOptions::new(&Operators::standard()))
        .expect_err("five dimensions")
        .to_string();
    assert!(error.contains("5 dimensions, [1, 4, 8, 8, 16]"), "{error}");
    assert!(error.contains("three-dimensional convolutions"), "{error}");
}

#[test]
fn endless_models_are_refused() {
    let import =
        |model: &ModelProto| import_model(model, "chain", &ImportOptions::new(&Operators::standard()));
    // Short ones are fine.
    let graph = import(&chain(&[("Relu", &[]), ("MaxPool", &[]), ("Mul", &["half"])], 5)).expect("imports");
    assert!(graph.nodes.len() > 2);
    let too_large = |model: &ModelProto| matches!(import(model), Err(ImportError::TooLarge(_)));
    assert!(too_large(&chain(&[("Relu", &[])], 10_000)));
    assert!(too_large(&chain(&[("Relu", &[]), ("Mul", &["half"])], 8000)));
    assert!(too_large(&chain(&[("Relu", &[]), ("MaxPool", &[])], 3000)));
    // Everything fuses into the input's own map: nothing is left to compute.
    assert!(matches!(import(&chain(&[("Mul", &["half"])], 4)), Err(ImportError::Output(_))));
}

/// A few bytes that ask for many indices are refused before the indices are listed. (A fuzzer found one that took 2 GiB.)
#[test]
fn few_bytes_list_few_indices() {
    let ints = |name: &str, values: &[i64]| TensorProto {
        name: Some(name.into()),
        dims: vec![values.len() as i64],
        data_type: Some(7),
        int64_data: values.into(),
        ..Default::default()
    };
    let import = |grown: i64| {
        let mut model = chain(&[("Reshape", &["parts"]), ("Resize", &["", "", "grown"])], 2);
        let graph = model.graph.as_mut().expect("a graph");
        let dim = |v| DimensionProto { dim_value: Some(v), ..Default::default() };
        let value_type =
            graph.input[0].r#type.as_mut().and_then(|t| t.tensor_type.as_mut()).expect("a tensor");
        value_type.shape = Some(TensorShapeProto { dim: [1, 1 << 20, 4].map(dim).into() });
        // One axis of the node in two parts, of which the inner one grows.
        graph.initializer = vec![ints("parts", &[1, 1024, 1024, 4]), ints("grown", &[1, 1024, grown, 4])];
        import_model(&model, "grown", &ImportOptions::new(&Operators::standard()))
    };
    let last = import(2048).expect("imports").nodes.pop().expect("a node");
    assert_eq!(last.shape.iter().product::<usize>(), 1024 * 2048 * 4);
    for grown in [16_385, 65_535, 999_999] {
        assert!(matches!(import(grown), Err(ImportError::TooLarge("indices"))), "{grown}");
    }
}

#[test]
fn a_file_cut_short_anywhere_is_an_error() {
    for name in ["view_chain_13", "channels_last_9"] {
        let bytes = std::fs::read(folder().join(format!("{name}.onnx"))).expect("the fixture");
        let options = ImportOptions::new(&Operators::standard());
        assert!(import_bytes(&bytes, name, &options).is_ok());
        // Behind the graph there is only the opset, without which the file is refused too.
        for length in 0..bytes.len() {
            assert!(import_bytes(&bytes[..length], name, &options).is_err(), "{name} cut to {length}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    /// Damaged files are refused or import to something that runs; nothing panics.
    #[test]
    fn damaged_files_never_panic(
        which in 0usize..9, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let name = [
            "channels_last_13",
            "channel_shuffle_13",
            "average_pools_19",
            "pads_and_slices_18",
            "shuffle_by_halves_11",
            "transposed_convolutions_13",
            "leaky_13",
            "nearest_18",
            "qdq_relu6_13",
        ][which];
        let mut bytes = std::fs::read(folder().join(format!("{name}.onnx"))).expect("the fixture");
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] ^= value;
        }
        if let Ok(graph) = import_bytes(&bytes, name, &ImportOptions::new(&Operators::standard())) {
            let input = vec![0.5; graph.input_shape().iter().product()];
            if input.len() < 10_000 {
                prop_assert!(graph.forward(Cpu::detect(), &input).is_some());
                if let Ok((model, _)) = calibrate(Cpu::detect(), &graph, std::slice::from_ref(&input), &Options::default()) {
                    let run = reference::run(Cpu::detect(), &model, &model.network.input.quantise(&input, 16));
                    prop_assert!(run.is_ok());
                }
            }
        }
    }
}

/// What attention is made of, and the tables beside it.
const OF_TRANSFORMERS: [&str; 12] = [
    "attention_13",
    "attention_operator_23",
    "attention_without_softmax_17",
    "convolved_tables_17",
    "joined_with_constants_13",
    "masked_softmax_13",
    "matrices_by_constants_13",
    "shifted_windows_17",
    "sums_of_products_13",
    "tables_17",
    "turned_positions_13",
    "vision_transformer_20",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    /// Files whose axes, indices, sizes and equations are others, or whose nodes take something else, are refused or import to something that
    /// runs; nothing panics.
    #[test]
    fn damaged_numbers_never_panic(
        which in 0..OF_TRANSFORMERS.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u8..6, 0usize..12), 1..4),
    ) {
        const NUMBERS: [i64; 12] =
            [0, 1, -1, 2, 3, -2, 5, 16, 1 << 20, 1 << 40, i64::MAX, i64::MIN];
        const EQUATIONS: [&str; 6] = ["", "...", "ab,bc->ac", "aa,ab->b", "...a,...b->ba...", "ab,ab->cd,ef"];
        let name = OF_TRANSFORMERS[which];
        let mut model = jaguar_graph::onnx::read(&folder().join(format!("{name}.onnx"))).expect("the fixture");
        let graph = model.graph.as_mut().expect("a graph");
        for (place, within, kind, number) in damage {
            let node = place.index(graph.node.len());
            let tensor = place.index(graph.initializer.len());
            let number = NUMBERS[number];
            match kind {
                0 | 1 => for attribute in &mut graph.node[node].attribute {
                    if attribute.i.is_some() {
                        attribute.i = Some(number);
                    }
                    if !attribute.ints.is_empty() {
                        let at = within.index(attribute.ints.len());
                        attribute.ints[at] = number;
                    }
                    if attribute.s.is_some() {
                        attribute.s = Some(EQUATIONS[within.index(EQUATIONS.len())].into());
                    }
                },
                2 => {
                    // Of all tensors of whole numbers one.
                    let mut whole: Vec<_> = graph.initializer.iter_mut().filter(|t| t.data_type == Some(7)).collect();
                    if !whole.is_empty() {
                        let at = place.index(whole.len());
                        let raw = whole[at].raw_data.as_mut().expect("its numbers");
                        if raw.len() >= 8 {
                            let at = within.index(raw.len() / 8) * 8;
                            raw[at..at + 8].copy_from_slice(&number.to_le_bytes());
                        }
                    }
                }
                3 => {
                    let dims = &mut graph.initializer[tensor].dims;
                    if !dims.is_empty() {
                        let at = within.index(dims.len());
                        dims.swap(0, at);
                    }
                }
                4 => {
                    let other = &graph.initializer[tensor].name().to_owned();
                    let inputs = &mut graph.node[node].input;
                    if !inputs.is_empty() {
                        let at = within.index(inputs.len());
                        inputs[at] = other.clone();
                    }
                }
                _ => {
                    let other = graph.node[within.index(node + 1)].input.first().cloned().unwrap_or_default();
                    if let Some(input) = graph.node[node].input.last_mut() {
                        *input = other;
                    }
                }
            }
        }
        if let Ok(graph) = import_model(&model, name, &ImportOptions::new(&Operators::standard())) {
            let input = vec![0.5; graph.input_shape().iter().product()];
            prop_assert!(graph.forward(Cpu::detect(), &input).is_some());
        }
    }
}

/// What is refused of attention is refused by name, and with what helps.
#[test]
fn forms_of_attention_are_refused_by_name() {
    let refused = |name: &str, change: &dyn Fn(&mut GraphProto)| {
        let mut model = jaguar_graph::onnx::read(&folder().join(format!("{name}.onnx"))).expect("a model");
        change(model.graph.as_mut().expect("a graph"));
        let imported = import_model(&model, name, &ImportOptions::new(&Operators::standard()));
        imported.err().map_or("imports".into(), |e| e.to_string())
    };
    fn all<'a>(graph: &'a mut GraphProto, kind: &'a str) -> impl Iterator<Item = &'a mut NodeProto> {
        graph.node.iter_mut().filter(move |node| node.op_type() == kind)
    }
    let set = |node: &mut NodeProto, name: &str, value: i64| {
        let own = node.attribute.iter_mut().find(|a| a.name() == name).expect("the attribute");
        own.i = Some(value);
    };
    let text = refused("attention_operator_23", &|graph| {
        let cached = all(graph, "Attention").next().expect("one");
        let keys = cached.input[1].clone();
        cached.input.extend([String::new(), keys.clone(), keys]);
    });
    assert!(text.contains("keys and values of earlier calls") && text.contains("without a cache"), "{text}");
    let text = refused("attention_operator_23", &|graph| {
        all(graph, "Attention").next().expect("one").output.extend(["keys".into(), "values".into()]);
    });
    assert!(text.contains("its keys, values or scores as results"), "{text}");
    for heads in [0, 5, -3, i64::MAX] {
        let text = refused("attention_operator_23", &|graph| {
            set(all(graph, "Attention").next().expect("one"), "q_num_heads", heads);
        });
        assert!(text.contains("heads that do not divide its features"), "{text}");
    }
    let text = refused("attention_operator_23", &|graph| {
        let scale =
            all(graph, "Attention").nth(1).and_then(|node| node.attribute.first_mut()).expect("a scale");
        scale.f = Some(f32::NAN);
    });
    assert!(text.contains("a scale or a softcap that is not positive"), "{text}");
    for (equation, why) in [
        ("bhdi,bhdj->bhik", "an equation that does not fit"),
        ("bhdi->bhi", "an equation that does not fit"),
        ("bhd,bhdj->bhj", "an equation that does not fit"),
        ("bhdd,bhdj->bhj", "takes a diagonal"),
        ("bhdi,bhej->bhij", "sums over a dimension of one factor alone"),
        ("bhdi,bhjd->bhij", "different sizes under one letter"),
    ] {
        let text = refused("sums_of_products_13", &|graph| {
            let first = all(graph, "Einsum").nth(1).expect("there is one");
            first.attribute[0].s = Some(equation.into());
        });
        assert!(text.contains(why), "{equation}: {text}");
    }
    // Nothing is left of a row.
    let text = refused("masked_softmax_13", &|graph| {
        let taken = all(graph, "Add").next().expect("one").input[1].clone();
        let mask = graph.initializer.iter_mut().find(|t| t.name() == taken).expect("a mask");
        let raw = mask.raw_data.as_mut().expect("its numbers");
        raw.chunks_exact_mut(4).for_each(|v| v.copy_from_slice(&f32::NEG_INFINITY.to_le_bytes()));
    });
    assert!(text.contains("leaves out all of what it runs over"), "{text}");
    // Minus infinity elsewhere than in front of a softmax.
    let text = refused("masked_softmax_13", &|graph| {
        all(graph, "Softmax").for_each(|node| node.op_type = Some("Relu".into()));
    });
    assert!(text.contains("not finite"), "{text}");
    let text = refused("masked_softmax_13", &|graph| {
        let chosen = all(graph, "Where").next().expect("one");
        chosen.input[0] = chosen.input[2].clone();
    });
    assert!(text.contains("chooses by what the network computes"), "{text}");
}

/// A place that a mask leaves out takes nothing of the scores' range, however low its number is; and the largest of the others is found among
/// these alone.
#[test]
fn masks_take_no_bits() {
    let Fixture { graph, .. } = load("shifted_windows_13");
    let largest = graph.nodes.iter().filter_map(|node| node.op.linear()).flat_map(|linear| {
        let (jaguar_graph::float::Bias::PerChannel(bias) | jaguar_graph::float::Bias::PerElement(bias)) =
            &linear.bias;
        bias.iter().copied()
    });
    assert!(largest.fold(0f32, |most, v| most.max(v.abs())) < 10.0);
}

/// Of an empty file, or a text, it is told that it is no network, and not that some version of one is needed.
#[test]
fn what_is_no_model_is_told_so() {
    for nothing in [&b""[..], b"x\n"] {
        let error = import_bytes(nothing, "nothing", &ImportOptions::new(&Operators::standard()))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "the file holds no graph: it is empty, or no ONNX model");
    }
}

/// A softmax's inverse sums scale the mixtures of values, which are four numbers a row, and not the weights, seventeen.
#[test]
fn a_softmax_scales_mixtures() {
    for name in ["vision_transformer_17", "vision_transformer_20"] {
        let nodes = load(name).graph.nodes;
        let origin = |mut at: usize| {
            while nodes[at].op.downcast_ref() == Some(&Rearrange::Reshape) {
                at = nodes[at].inputs[0];
            }
            at
        };
        let behind = |node: &Node| node.inputs.first().map(|&input| origin(input));
        let products = |node: &&Node| node.op.is::<MatrixProduct>();
        let weighted =
            nodes.iter().filter(products).filter_map(behind).any(|at| nodes[at].op.is::<Product>());
        assert!(!weighted, "{name}: weights are scaled");
        let scaled = nodes.iter().filter(|node| node.op.is::<Product>() && node.shape == [34, 4, 1]);
        let mixtures = scaled.filter_map(behind).filter(|&at| nodes[at].op.is::<MatrixProduct>());
        assert_eq!(mixtures.count(), 1, "{name}");
    }
}

/// A norm's factors by feature go past a mean over tokens, into the layer behind: else they were a layer by element, whose hint is larger than all others'.
#[test]
fn factors_go_past_means_over_tokens() {
    let graph = load("tokens_averaged_17").graph;
    let by_channel = |node: &&jaguar_graph::float::Node| {
        let linear: Option<&jaguar_graph::float::Linear> = node.op.downcast_ref();
        linear.is_some_and(|linear| linear.spec.groups > 1)
    };
    let left: Vec<_> = graph.nodes.iter().filter(by_channel).map(|node| (&node.name, node.shape)).collect();
    assert_eq!(left, []);
}
