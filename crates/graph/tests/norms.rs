//! Norms, as ONNX has words for them, against their definitions in double precision: imported, and as integers on inputs that
//! calibration did not see. (What ONNX Runtime makes of them, and of those that are written out, is in `onnx_models.rs`.)

use jaguar_graph::float::{AveragePool, Graph, Node};
use jaguar_graph::import::{Options as ImportOptions, import_file, import_model};
use jaguar_graph::network::{Curve, MatrixProduct, Model, Op, Operators, Product, Rearrange};
use jaguar_graph::onnx::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use jaguar_graph::quantise::{Options, Warning, calibrate};
use jaguar_graph::reference;
use jaguar_ring::cpu::Cpu;

const CHANNELS: usize = 8;
const SIDE: usize = 6;
const PLACES: usize = SIDE * SIDE;

/// An ONNX attribute.
enum Is {
    Int(i64),
    Ints(&'static [i64]),
    Float(f32),
}

/// One operator on x, `[1, 8, 6, 6]`, by name and attributes; and the factors and offsets that it takes.
struct Norm {
    operator: &'static str,
    opset: i64,
    attributes: &'static [(&'static str, Is)],
    parameters: usize,
    /// From x to y.
    of: fn(&[f64]) -> Vec<f64>,
}

/// Numbers between -1 and 1, evenly spread.
fn uniform(seed: usize) -> impl Iterator<Item = f64> {
    let mut state = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / 2f64.powi(52) - 1.0
    })
}

/// An input whose channels have different means and sizes, and places different sizes: variances are up to some 60 times apart.
fn input(seed: usize) -> Vec<f32> {
    let values = uniform(seed).take(CHANNELS * PLACES).enumerate();
    let one = |(i, v): (usize, f64)| {
        let (channel, place) = (i / PLACES, i % PLACES);
        let size = (1.0 + (channel % 3) as f64) * (1.0 + place as f64 / 12.0);
        (size * v + 0.3 * channel as f64 - 1.0) as f32
    };
    values.map(one).collect()
}

fn parameter(of: usize, channel: usize) -> f64 {
    f64::from([0.5 + 0.25 * channel as f32, 0.125 * channel as f32 - 0.5][of])
}

/// `(x − m)/sqrt(v + epsilon)` over each of these sets of places, with no m taken away where there is no `centre`.
fn normalised(x: &[f64], sets: &[Vec<usize>], centre: bool, epsilon: f64) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for set in sets {
        let mean = |f: &dyn Fn(f64) -> f64| set.iter().map(|&i| f(x[i])).sum::<f64>() / set.len() as f64;
        let middle = if centre { mean(&|v| v) } else { 0.0 };
        let variance = mean(&|v| (v - middle).powi(2));
        set.iter().for_each(|&i| y[i] = (x[i] - middle) / (variance + epsilon).sqrt());
    }
    y
}

/// `count` sets that follow each other.
fn stretches(count: usize) -> Vec<Vec<usize>> {
    let each = CHANNELS * PLACES / count;
    (0..count).map(|set| (set * each..(set + 1) * each).collect()).collect()
}

/// The channels at each place.
fn columns() -> Vec<Vec<usize>> {
    (0..PLACES).map(|place| (0..CHANNELS).map(|c| c * PLACES + place).collect()).collect()
}

/// A factor and an offset for each channel.
fn learned(y: Vec<f64>) -> Vec<f64> {
    let one = |(i, v)| parameter(0, i / PLACES) * v + parameter(1, i / PLACES);
    y.into_iter().enumerate().map(one).collect()
}

fn local_response(x: &[f64]) -> Vec<f64> {
    let (alpha, beta, size) = (0.25, 0.75, 3);
    let one = |(i, v): (usize, &f64)| {
        let (channel, place) = (i / PLACES, i % PLACES);
        let near = (channel.saturating_sub(1)..CHANNELS.min(channel + 2)).map(|c| x[c * PLACES + place]);
        let sum: f64 = near.map(|v| v * v).sum();
        v * (1.0 + alpha / f64::from(size) * sum).powf(-beta)
    };
    x.iter().enumerate().map(one).collect()
}

const NORMS: [Norm; 8] = [
    Norm {
        operator: "InstanceNormalization",
        opset: 13,
        attributes: &[],
        parameters: 2,
        of: |x| learned(normalised(x, &stretches(CHANNELS), true, 1e-5)),
    },
    Norm {
        operator: "GroupNormalization",
        opset: 21,
        attributes: &[("num_groups", Is::Int(4)), ("epsilon", Is::Float(1e-3))],
        parameters: 2,
        of: |x| learned(normalised(x, &stretches(4), true, 1e-3)),
    },
    Norm {
        operator: "LayerNormalization",
        opset: 17,
        attributes: &[("axis", Is::Int(1))],
        parameters: 2,
        of: |x| learned(normalised(x, &stretches(1), true, 1e-5)),
    },
    Norm {
        operator: "RMSNormalization",
        opset: 23,
        attributes: &[("axis", Is::Int(1))],
        parameters: 0,
        of: |x| normalised(x, &stretches(1), false, 1e-5),
    },
    Norm {
        operator: "MeanVarianceNormalization",
        opset: 13,
        attributes: &[("axes", Is::Ints(&[1]))],
        parameters: 0,
        of: |x| normalised(x, &columns(), true, 0.0),
    },
    Norm {
        operator: "MeanVarianceNormalization",
        opset: 13,
        attributes: &[],
        parameters: 0,
        of: |x| normalised(x, &stretches(CHANNELS), true, 0.0),
    },
    Norm {
        operator: "LpNormalization",
        opset: 13,
        attributes: &[("axis", Is::Int(1))],
        parameters: 0,
        of: |x| normalised(x, &columns(), false, 0.0).iter().map(|v| v / (CHANNELS as f64).sqrt()).collect(),
    },
    Norm {
        operator: "LRN",
        opset: 13,
        attributes: &[("size", Is::Int(3)), ("alpha", Is::Float(0.25))],
        parameters: 0,
        of: local_response,
    },
];

impl Norm {
    /// A model of this operator alone, behind a layer that changes nothing.
    fn model(&self) -> ModelProto {
        let attribute = |(name, value): &(&str, Is)| {
            let own = AttributeProto { name: Some((*name).into()), ..Default::default() };
            match value {
                Is::Int(i) => AttributeProto { i: Some(*i), ..own },
                Is::Ints(ints) => AttributeProto { ints: ints.to_vec(), ..own },
                Is::Float(f) => AttributeProto { f: Some(*f), ..own },
            }
        };
        let tensor = |name: &str, dims: &[usize], float_data: Vec<f32>| TensorProto {
            name: Some(name.into()),
            dims: dims.iter().map(|&d| d as i64).collect(),
            data_type: Some(1),
            float_data,
            ..Default::default()
        };
        let same = (0..CHANNELS * CHANNELS).map(|i| f32::from(i % (CHANNELS + 1) == 0)).collect();
        // (A layer norm's parameters have the shape of what it scales.)
        let by_place = if self.operator == "LayerNormalization" { PLACES } else { 1 };
        let dims: &[usize] = if by_place > 1 { &[CHANNELS, SIDE, SIDE] } else { &[CHANNELS] };
        let learned = |of: usize| (0..CHANNELS * by_place).map(move |i| parameter(of, i / by_place) as f32);
        let names = ["scale", "offset"];
        let initializer = std::iter::once(tensor("same", &[CHANNELS, CHANNELS, 1, 1], same))
            .chain((0..self.parameters).map(|of| tensor(names[of], dims, learned(of).collect())));
        let inputs = ["h"].iter().chain(&names[..self.parameters]).map(|name| (*name).to_owned());
        let node =
            |operator: &str, input: Vec<String>, output: &str, attribute: Vec<AttributeProto>| NodeProto {
                input,
                output: vec![output.into()],
                name: Some(operator.into()),
                op_type: Some(operator.into()),
                attribute,
                ..Default::default()
            };
        let dim = |v: usize| DimensionProto { dim_value: Some(v as i64), ..Default::default() };
        let shape = TensorShapeProto { dim: [1, CHANNELS, SIDE, SIDE].map(dim).into() };
        let kind =
            TypeProto { tensor_type: Some(TensorTypeProto { elem_type: Some(1), shape: Some(shape) }) };
        let graph = GraphProto {
            node: vec![
                node("Conv", vec!["x".into(), "same".into()], "h", Vec::new()),
                node(self.operator, inputs.collect(), "y", self.attributes.iter().map(attribute).collect()),
            ],
            initializer: initializer.collect(),
            input: vec![ValueInfoProto { name: Some("x".into()), r#type: Some(kind) }],
            output: vec![ValueInfoProto { name: Some("y".into()), r#type: None }],
            ..Default::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: None, version: Some(self.opset) }];
        ModelProto { graph: Some(graph), opset_import, ..Default::default() }
    }

    fn graph(&self) -> Graph {
        let imported =
            import_model(&self.model(), self.operator, &ImportOptions::new(&Operators::standard()));
        imported.unwrap_or_else(|e| panic!("{}: {e}", self.operator))
    }

    fn want(&self, x: &[f32]) -> Vec<f64> {
        (self.of)(&x.iter().map(|&v| f64::from(v)).collect::<Vec<_>>())
    }
}

/// The largest difference, relative to the largest value.
fn off(found: &[f64], want: &[f64]) -> f64 {
    assert_eq!(found.len(), want.len());
    let largest = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    found.iter().zip(want).fold(0f64, |m, (a, b)| m.max((a - b).abs())) / largest
}

#[test]
fn norms_are_what_they_say() {
    for norm in &NORMS {
        let (graph, x) = (norm.graph(), input(1));
        let found = graph.forward(Cpu::detect(), &x).expect("the right length");
        let off = off(&found.into_iter().map(f64::from).collect::<Vec<_>>(), &norm.want(&x));
        assert!(off < 1e-5, "{}: off by {off:e}", norm.operator);
    }
}

fn quantised(graph: &Graph, guard_bits: u32) -> Model {
    let samples: Vec<Vec<f32>> = (10..14).map(input).collect();
    let (model, report) =
        calibrate(Cpu::detect(), graph, &samples, &Options::default()).expect("it is quantised");
    assert_eq!(report.warnings, [], "{}", graph.name);
    model.guarded(guard_bits).expect("it is guarded")
}

/// Of 16 bits, four of them headroom: the largest value of what goes in has 2^12 units. With guard bits, as runs have
/// them, what is left is the weights', the curves' and one rounding.
#[test]
fn integers_are_as_good_as_their_bits() {
    for norm in &NORMS {
        let graph = norm.graph();
        for (guard_bits, most) in [(0, 6e-3), (8, 4e-4)] {
            let model = quantised(&graph, guard_bits);
            let network = &model.network;
            let mut worst = 0f64;
            for x in (0..8).map(input) {
                let run = reference::run(
                    Cpu::detect(),
                    &model,
                    &network.input.quantise(&x, network.activation_bits),
                );
                let run = run.expect("the right length");
                assert_eq!(run.total_overflows(), 0, "{}", norm.operator);
                worst = worst.max(off(&network.output.logits(run.output()), &norm.want(&x)));
            }
            println!("{} with {guard_bits} guard bits: off by {worst:.1e}", norm.operator);
            assert!(worst < most, "{} with {guard_bits} guard bits: off by {worst:e}", norm.operator);
        }
    }
}

/// How many curves, products, clips and layers a norm becomes.
#[test]
fn norms_become_what_they_are_made_of() {
    for (norm, layers) in NORMS.iter().zip([4, 4, 4, 2, 3, 3, 2, 2]) {
        let graph = norm.graph();
        let count = |name: &str| graph.nodes.iter().filter(|node| node.op.name() == name).count();
        // Of LRN's windows, which overlap, squares are values of their own.
        let [bands, values, rows] = if norm.operator == "LRN" { [2, 2, 0] } else { [3, 1, 1] };
        let found = ["Curve", "Relu6", "Product", "MatrixProduct", "Linear"].map(count);
        // (One layer is the model's own. Another is the factors', where there are any.)
        assert_eq!(found, [bands, bands, values, rows, layers], "{}", norm.operator);
        // Sums over windows and moves apart, everything but the products, what is centred and the factors is of few values.
        let all = CHANNELS * PLACES;
        let many = graph.nodes.iter().filter(|node| node.shape.iter().product::<usize>() == all);
        let few_only = ["Curve", "Relu6"];
        assert!(norm.operator == "LRN" || many.into_iter().all(|node| !few_only.contains(&node.op.name())));
    }
}

/// What everybody knows of the network: two norms whose ε and factors differ have the same curves.
#[test]
fn curves_tell_nothing_of_factors_or_epsilon() {
    let curves = |model: &ModelProto| -> Vec<Op> {
        let graph =
            import_model(model, "norm", &ImportOptions::new(&Operators::standard())).expect("imports");
        let nodes = quantised(&graph, 8).network.nodes.into_iter();
        let own = |op: &Op| op.is::<Curve>() || op.is::<Product>() || op.is::<MatrixProduct>();
        nodes.map(|node| node.op).filter(own).collect()
    };
    let model = NORMS[1].model();
    let mut other = model.clone();
    let graph = other.graph.as_mut().expect("a graph");
    graph.node[1].attribute[1].f = Some(1.7e-3);
    for tensor in &mut graph.initializer[1..] {
        tensor.float_data.iter_mut().for_each(|v| *v *= 0.987);
    }
    assert_eq!(curves(&model).len(), 5);
    assert_eq!(curves(&model), curves(&other));
}

/// No norm, but of the same form.
const SOFTMAX: Norm = Norm {
    operator: "Softmax",
    opset: 13,
    attributes: &[("axis", Is::Int(1))],
    parameters: 0,
    of: |x| x.to_vec(),
};

/// The largest of a softmax's values may be near zero where others are far below: it is repeated and goes into differences alone.
#[test]
fn the_largest_of_a_softmax_may_be_small() {
    let mut model = SOFTMAX.model();
    let graph = model.graph.as_mut().expect("a graph");
    let [input, output] = [vec!["y".into(), "same".into()], vec!["z".into()]];
    let last = NodeProto { input, output, name: Some("last".into()), ..graph.node[0].clone() };
    graph.node.push(last);
    graph.output[0].name = Some("z".into());
    let imported = import_model(&model, "softmax", &ImportOptions::new(&Operators::standard()));
    let graph = imported.expect("imports");
    let sample = |seed: usize| -> Vec<f32> {
        let values = uniform(seed).take(CHANNELS * PLACES).enumerate();
        values.map(|(i, v)| if i < PLACES { 0.01 * v as f32 } else { -60.0 - (i / PLACES) as f32 }).collect()
    };
    let samples: Vec<Vec<f32>> = (0..4).map(sample).collect();
    let options = Options { activation_bits: 14, ..Options::default() };
    let (_, report) = calibrate(Cpu::detect(), &graph, &samples, &options).expect("quantises");
    let small = |warning: &Warning| matches!(warning, Warning::Small { .. });
    assert!(!report.warnings.iter().any(small), "{:?}", report.warnings);
}

/// A small value that is repeated in a sum may be small; not where a layer makes it larger before.
#[test]
fn what_a_layer_makes_larger_may_not_be_small() {
    let small = |factor: f32| {
        let mut model = SOFTMAX.model();
        let graph = model.graph.as_mut().expect("a graph");
        let node = |operator: &str, input: &[&str], output: &str, attribute: Vec<AttributeProto>| NodeProto {
            input: input.iter().map(|&name| name.into()).collect(),
            output: vec![output.into()],
            name: Some(output.into()),
            op_type: Some(operator.into()),
            attribute,
            ..Default::default()
        };
        let group = AttributeProto { name: Some("group".into()), i: Some(8), ..Default::default() };
        graph.initializer.push(TensorProto {
            name: Some("each".into()),
            dims: vec![CHANNELS as i64, 1, 1, 1],
            data_type: Some(1),
            float_data: vec![factor; CHANNELS],
            ..Default::default()
        });
        graph.node.truncate(1);
        graph.node.push(node("GlobalMaxPool", &["h"], "largest", Vec::new()));
        graph.node.push(node("Conv", &["largest", "each"], "factor", vec![group]));
        graph.node.push(node("Add", &["h", "factor"], "sum", Vec::new()));
        graph.node.push(node("Conv", &["sum", "same"], "last", Vec::new()));
        graph.output[0].name = Some("last".into());
        let imported = import_model(&model, "sum", &ImportOptions::new(&Operators::standard()));
        let graph = imported.expect("imports");
        let sample = |seed: usize| -> Vec<f32> {
            let values = uniform(seed).take(CHANNELS * PLACES).enumerate();
            values.map(|(i, v)| if i % PLACES == 0 { 0.01 * v.abs() as f32 } else { -60.0 }).collect()
        };
        let samples: Vec<Vec<f32>> = (0..4).map(sample).collect();
        let options = Options { activation_bits: 14, ..Options::default() };
        let (_, report) = calibrate(Cpu::detect(), &graph, &samples, &options).expect("quantises");
        report
            .warnings
            .iter()
            .any(|warning| matches!(warning, Warning::Small { node, .. } if node == "largest"))
    };
    assert_eq!([1.0, 100.0].map(small), [false, true]);
}

#[test]
fn what_is_no_norm_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut GraphProto), norm: &Norm| {
        let mut model = norm.model();
        change(model.graph.as_mut().expect("a graph"));
        let imported = import_model(&model, "norm", &ImportOptions::new(&Operators::standard()));
        imported.expect_err("is refused").to_string()
    };
    let set = |graph: &mut GraphProto, name: &str, value: i64| {
        let node = &mut graph.node[1].attribute;
        node.push(AttributeProto { name: Some(name.into()), i: Some(value), ..Default::default() });
    };
    let text = refused(&|graph| set(graph, "p", 1), &NORMS[6]);
    assert!(text.contains("LpNormalization") && text.contains("Only p = 2"), "{text}");
    let text = refused(&|graph| graph.node[1].output.push("mean".into()), &NORMS[2]);
    assert!(text.contains("LayerNormalization") && text.contains("as a result"), "{text}");
    let groups = |graph: &mut GraphProto| graph.node[1].attribute[0].i = Some(3);
    assert!(refused(&groups, &NORMS[1]).contains("groups that do not divide"), "groups");
    let few = |graph: &mut GraphProto| {
        graph.initializer[1].dims = vec![3];
        graph.initializer[1].float_data.truncate(3);
    };
    assert!(refused(&few, &NORMS[0]).contains("parameters of another shape"), "parameters");
    let size = |graph: &mut GraphProto| graph.node[1].attribute[0].i = Some(0);
    assert!(refused(&size, &NORMS[7]).contains("parameters out of range"), "size");
}

/// A layer norm takes away a mean for every few values of a row, each rounded by itself: of 8 two, of 6 two, of 24 two.
#[test]
fn means_of_a_layer_norm_are_shared_by_few() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (name, rows) in [("vision_transformer_17", vec![17; 3]), ("shifted_windows_17", vec![64, 16])] {
        let path = folder.join(format!("{name}.onnx"));
        let graph = import_file(&path, &ImportOptions::new(&Operators::standard())).expect("imports");
        let negative = |node: &Node| {
            let layer =
                node.op.linear().filter(|layer| layer.weights.len() == 1 && layer.weights[0] < 0.0)?;
            // (A softmax takes a largest score away, which is no mean.)
            let mut origin = node.inputs[0];
            while graph.nodes[origin].op.is::<Rearrange>() {
                origin = graph.nodes[origin].inputs[0];
            }
            let of_means = graph.nodes[origin].op.is::<AveragePool>() && layer.spec.out_channels == 1;
            of_means.then(|| node.shape.iter().product::<usize>())
        };
        let made: Vec<usize> = graph.nodes.iter().filter_map(negative).collect();
        let want: Vec<usize> = rows.iter().map(|rows| 2 * rows).collect();
        assert_eq!(made, want, "{name}");
    }
}
