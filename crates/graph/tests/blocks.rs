//! Weights in blocks, from an ONNX file's metadata to the integer network.

use jaguar_graph::float::Graph;
use jaguar_graph::import::{ImportError, Options as ImportOptions, import_model};
use jaguar_graph::network::{self, BlockKind, Blocks, NodeError, Operators};
use jaguar_graph::onnx::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use jaguar_graph::quantise::{Options, calibrate};
use jaguar_ring::cpu::Cpu;

const CHANNELS: usize = 8;

/// A number between -1 and 1.
fn value(seed: usize) -> f32 {
    (seed.wrapping_mul(2_654_435_761) % 1999) as f32 / 999.5 - 1.0
}

/// Weights `[outs, ins, area]` with blocks; block rows differ in size, so that equalisation has something to do.
fn weights(blocks: Blocks, [outs, ins, area]: [usize; 3], seed: usize) -> Vec<f32> {
    let b = blocks.size;
    let entry = |at: usize| {
        let (out, input, tap) = (at / area / ins, at / area % ins, at % area);
        let (i, j) = (out % b, input % b);
        let negative = blocks.kind == BlockKind::Skew && i < j;
        let place = ((out / b * ins + input / b) * area + tap) * b + (i + b - j) % b;
        let w = value(seed + place) / (1.0 + 20.0 * (out / b) as f32);
        if negative { -w } else { w }
    };
    (0..outs * ins * area).map(entry).collect()
}

/// What the parts of the model are.
struct Parts {
    conv: Vec<f32>,
    /// γ of the batch normalisation behind it.
    gamma: Vec<f32>,
    gemm: Vec<f32>,
    /// What each channel in front of the last layer is multiplied by.
    factors: Vec<f32>,
    metadata: Option<String>,
}

impl Parts {
    fn sound() -> Self {
        Self {
            conv: weights(Blocks::skew(4), [CHANNELS, CHANNELS, 9], 5),
            gamma: (0..CHANNELS).map(|c| [0.7, 1.3][c / 4]).collect(),
            gemm: weights(Blocks { size: 2, kind: BlockKind::Circulant }, [CHANNELS, CHANNELS, 1], 900),
            factors: (0..CHANNELS).map(|c| [0.5, 1.5, 0.8, 2.0][c / 2]).collect(),
            metadata: Some(
                r#"{"conv.weight": {"b": 4, "kind": "skew"}, "/fc/Gemm": {"b": 2, "kind": "circulant"},
                    "second.weight": {"b": 1, "kind": "skew"}}"#
                    .into(),
            ),
        }
    }

    fn model(&self) -> ModelProto {
        let ints = |name: &str, values: &[i64]| AttributeProto {
            name: Some(name.into()),
            ints: values.into(),
            ..Default::default()
        };
        let int = |name: &str, value: i64| AttributeProto {
            name: Some(name.into()),
            i: Some(value),
            ..Default::default()
        };
        let node =
            |operator: &str, name: &str, inputs: &[&str], output: &str, attribute: Vec<AttributeProto>| {
                NodeProto {
                    input: inputs.iter().map(|i| i.to_string()).collect(),
                    output: vec![output.into()],
                    name: Some(name.into()),
                    op_type: Some(operator.into()),
                    attribute,
                    ..Default::default()
                }
            };
        let tensor = |name: &str, dims: &[usize], values: Vec<f32>| TensorProto {
            name: Some(name.into()),
            dims: dims.iter().map(|&d| d as i64).collect(),
            data_type: Some(1),
            float_data: values,
            ..Default::default()
        };
        let pads = || vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1; 4])];
        let c = CHANNELS;
        let per_channel = |seed: usize| (0..c).map(|i| value(seed + i)).collect::<Vec<_>>();
        let dim = |v: usize| DimensionProto { dim_value: Some(v as i64), ..Default::default() };
        let shape = TensorShapeProto { dim: [1, c, 6, 6].map(dim).into() };
        let tensor_type = TensorTypeProto { elem_type: Some(1), shape: Some(shape) };
        let graph = GraphProto {
            node: vec![
                node("Conv", "/conv/Conv", &["x", "conv.weight"], "a", pads()),
                node("BatchNormalization", "/bn", &["a", "gamma", "beta", "mean", "variance"], "b", vec![]),
                node("Relu", "/relu", &["b"], "c", vec![]),
                node("Conv", "/second/Conv", &["c", "second.weight"], "d", pads()),
                node("Relu", "/relu2", &["d"], "e", vec![]),
                node("GlobalAveragePool", "/pool", &["e"], "f", vec![]),
                node("Flatten", "/flatten", &["f"], "g", vec![]),
                node("Mul", "/norm/Mul", &["g", "factors"], "h", vec![]),
                node("Gemm", "/fc/Gemm", &["h", "fc.weight", "fc.bias"], "y", vec![int("transB", 1)]),
            ],
            initializer: vec![
                tensor("conv.weight", &[c, c, 3, 3], self.conv.clone()),
                tensor("gamma", &[c], self.gamma.clone()),
                tensor("beta", &[c], per_channel(40)),
                tensor("mean", &[c], per_channel(60)),
                tensor("variance", &[c], vec![0.81; c]),
                tensor("second.weight", &[c, c, 3, 3], (0..c * c * 9).map(|i| value(i + 3000)).collect()),
                tensor("factors", &[c], self.factors.clone()),
                tensor("fc.weight", &[c, c], self.gemm.clone()),
                tensor("fc.bias", &[c], per_channel(80)),
            ],
            input: vec![ValueInfoProto {
                name: Some("x".into()),
                r#type: Some(TypeProto { tensor_type: Some(tensor_type) }),
            }],
            output: vec![ValueInfoProto { name: Some("y".into()), r#type: None }],
            ..Default::default()
        };
        let entry = |value: &String| StringStringEntryProto {
            key: Some("jaguar.blocks".into()),
            value: Some(value.clone()),
        };
        ModelProto {
            graph: Some(graph),
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(13) }],
            metadata_props: self.metadata.iter().map(entry).collect(),
            ..Default::default()
        }
    }

    fn import(&self) -> Result<Graph, ImportError> {
        import_model(&self.model(), "blocks", &ImportOptions::new(&Operators::standard()))
    }

    fn refused(&self) -> String {
        self.import().expect_err("to be refused").to_string()
    }
}

fn blocks_of(graph: &Graph) -> Vec<Option<Blocks>> {
    graph.nodes.iter().filter_map(|node| Some(node.op.linear()?.spec.blocks)).collect()
}

fn input() -> Vec<f32> {
    (0..CHANNELS * 36).map(|i| value(i + 7)).collect()
}

#[test]
fn blocks_come_through_folding_and_quantisation() {
    let graph = Parts::sound().import().unwrap();
    let expected = [Some(Blocks::skew(4)), None, Some(Blocks { size: 2, kind: BlockKind::Circulant })];
    assert_eq!(blocks_of(&graph), expected);
    // The same file without the metadata computes the same.
    let dense = Parts { metadata: None, ..Parts::sound() }.import().unwrap();
    assert_eq!(blocks_of(&dense), [None; 3]);
    let outputs = [&graph, &dense].map(|graph| graph.forward(Cpu::detect(), &input()).unwrap());
    assert_eq!(outputs[0], outputs[1]);

    for (weight_bits, equalise) in [(15, true), (15, false), (6, true)] {
        let options = Options { weight_bits, equalise, ..Options::default() };
        let (model, _) = calibrate(Cpu::detect(), &graph, &[input()], &options).unwrap();
        let specs: Vec<_> =
            model.network.nodes.iter().filter_map(|node| Some(node.op.linear()?.blocks)).collect();
        assert_eq!(specs, expected);
        // Which the calibration has validated; a weight that leaves its block is noticed.
        let first = model.network.nodes.iter().position(|node| node.op.linear().is_some()).unwrap();
        let mut wrong = model.clone();
        wrong.weights[first].as_mut().unwrap().weights[10] ^= 1;
        let error = wrong.validate().unwrap_err();
        assert!(
            matches!(error, network::NetworkError::Node { source: NodeError::Block { .. }, .. }),
            "{error}"
        );
        let mut wrong = model.clone();
        if let Some(spec) = wrong.network.nodes[first].op.linear_mut() {
            spec.max_exponent += 1;
        }
        wrong.weights[first].as_mut().unwrap().exponents[1] += 1;
        assert!(wrong.validate().unwrap_err().to_string().contains("exponents of a block"));
    }
}

#[test]
fn rounding_is_taken_for_what_it_is() {
    let mut parts = Parts::sound();
    parts.conv.iter_mut().enumerate().for_each(|(i, w)| *w *= 1.0 + (i % 3) as f32 * 2e-7);
    let (model, _) =
        calibrate(Cpu::detect(), &parts.import().unwrap(), &[input()], &Options::default()).unwrap();
    model.validate().unwrap();
}

#[test]
fn weights_without_the_blocks_are_refused() {
    let mut parts = Parts::sound();
    parts.conv[(5 * CHANNELS + 2) * 9 + 4] += 0.01;
    let text = parts.refused();
    assert!(text.contains("/conv/Conv") && text.contains("skew blocks of 4"), "{text}");
    assert!(text.contains("output channel 5, input channel 2, tap (1, 1)"), "{text}");
    // A circulant block is no skew one.
    let circulant = Blocks { size: 4, kind: BlockKind::Circulant };
    let parts = Parts { conv: weights(circulant, [CHANNELS, CHANNELS, 9], 5), ..Parts::sound() };
    assert!(parts.refused().contains("output channel 0, input channel 1"), "{}", parts.refused());
}

#[test]
fn batch_normalisation_by_channel_is_refused() {
    let mut parts = Parts::sound();
    parts.gamma[2] = 0.71;
    let text = parts.refused();
    assert!(text.contains("all 4 channels") && text.contains("batch normalisation"), "{text}");
    assert!(text.contains("/bn") && text.contains("of output channel 2 follows"), "{text}");
}

/// A norm's factors by channel, which nobody trained for blocks, take these away: that is told, and the layer is dense.
#[test]
fn factors_in_front_of_blocks_may_cost_these() {
    let mut parts = Parts::sound();
    parts.factors[3] = 1.51;
    let graph = parts.import().unwrap();
    assert_eq!(blocks_of(&graph), [Some(Blocks::skew(4)), None, None]);
    assert_eq!(graph.lost_blocks, ["/fc/Gemm"]);
    let dense = Parts { metadata: None, ..parts }.import().unwrap();
    let outputs = [&graph, &dense].map(|graph| graph.forward(Cpu::detect(), &input()).unwrap());
    assert_eq!(outputs[0], outputs[1]);
    assert!(calibrate(Cpu::detect(), &graph, &[input()], &Options::default()).is_ok());
    assert!(Parts::sound().import().unwrap().lost_blocks.is_empty());
}

#[test]
fn metadata_that_means_nothing_is_refused() {
    let refused = |metadata: &str| Parts { metadata: Some(metadata.into()), ..Parts::sound() }.refused();
    for (metadata, why) in [
        ("[]", "invalid type"),
        (r#"{"conv.weight": {"b": 4}}"#, "kind"),
        (r#"{"conv.weight": {"b": 4, "kind": "skew", "c": 1}}"#, "unknown field"),
        (r#"{"conv.weight": {"b": 4, "kind": "toeplitz"}}"#, "unknown variant"),
        (r#"{"conv.weight": {"b": 3, "kind": "skew"}}"#, "blocks of 3"),
        (r#"{"conv.weight": {"b": 16, "kind": "skew"}}"#, "multiples of 16"),
        (r#"{"nothing": {"b": 4, "kind": "skew"}}"#, "\"nothing\""),
        (r#"{"/relu": {"b": 4, "kind": "skew"}}"#, "\"/relu\""),
        (
            r#"{"conv.weight": {"b": 4, "kind": "skew"}, "/conv/Conv": {"b": 2, "kind": "skew"}}"#,
            "different blocks",
        ),
    ] {
        let text = refused(metadata);
        assert!(text.contains(why), "{metadata}: {text}");
    }
    let mut twice = Parts::sound().model();
    twice.metadata_props.push(twice.metadata_props[0].clone());
    assert!(import_model(&twice, "blocks", &ImportOptions::new(&Operators::standard())).is_err());
}
