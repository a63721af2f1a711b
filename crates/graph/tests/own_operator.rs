//! An operator from outside, in floating point and from ONNX: by what is public alone.

use std::path::Path;

use jaguar_graph::float::{Demand, FloatOperands, FloatOperator, Graph, Growth, Known};
use jaguar_graph::import::{
    Build, Builder, Call, ImportError, Options, Reject, Unsupported, Value, import_model,
};
use jaguar_graph::network::{self, Operators};
use jaguar_graph::onnx::{self, AttributeProto};
use jaguar_graph::quantise::{self, calibrate};
use jaguar_graph::reference;
use jaguar_ring::cpu::Cpu;

/// `min(max(x, 0), 1)`.
#[derive(Clone, Debug, PartialEq)]
struct Gate;

impl FloatOperator for Gate {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let log2_six = known.scales.map_or(1, |(_, own)| own.log2().round() as u32);
        Some(network::Op::new(network::Relu6 { log2_six, ignored: 0 }))
    }

    fn demands(&self) -> Demand {
        Demand::Power(1.0)
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().map(|x| x.clamp(0.0, 1.0)).collect()
    }

    fn growth(&self) -> Growth {
        Growth::Alike
    }
}

fn gate(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    match call.attribute_float("slope", 1.0) {
        1.0 => builder.elementwise(call, Gate),
        slope => Err(Reject::instead(&format!("has the slope {slope}"), "Fold it into the layer before")),
    }
}

const ONNX: &[(&str, Build)] = &[("com.example:Gate", gate)];

/// A model of a layer, a gate and max-pooling, twice, and a last layer.
fn import(operators: &Operators, slope: Option<f32>) -> Result<Graph, ImportError> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pool_after_relus_13.onnx");
    let mut model = onnx::read(&path).expect("a model");
    for node in &mut model.graph.as_mut().expect("a graph").node {
        if matches!(node.op_type(), "Relu" | "Clip") {
            (node.op_type, node.domain) = (Some("Gate".into()), Some("com.example".into()));
            node.input.truncate(1);
            let slope = slope.map(|f| AttributeProto {
                name: Some("slope".into()),
                f: Some(f),
                ..AttributeProto::default()
            });
            node.attribute = slope.into_iter().collect();
        }
    }
    import_model(&model, "gates", &Options::new(operators))
}

#[test]
fn it_is_read_fused_and_quantised() {
    let graph = import(&Operators::standard().from_onnx(ONNX), None).expect("imports");
    let gates: Vec<usize> = (0..graph.nodes.len()).filter(|&i| graph.nodes[i].op.is::<Gate>()).collect();
    // Pooling has gone before each: it can, since a gate grows.
    assert_eq!(gates.len(), 2);
    for gate in gates {
        assert_eq!(graph.nodes[graph.nodes[gate].inputs[0]].op.name(), "MaxPool");
    }
    let count = graph.input_shape().iter().product();
    let input: Vec<f32> = (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let options = quantise::Options { activation_bits: 20, ..quantise::Options::default() };
    let (model, _) =
        calibrate(Cpu::detect(), &graph, std::slice::from_ref(&input), &options).expect("scales");
    let run = reference::run(Cpu::detect(), &model, &model.network.input.quantise(&input, 20)).expect("runs");
    let wanted = graph.forward(Cpu::detect(), &input).expect("runs");
    let largest = wanted.iter().fold(0f32, |m, v| m.max(v.abs()));
    for (found, wanted) in model.network.output.logits(run.output()).into_iter().zip(&wanted) {
        assert!((found as f32 - wanted).abs() < 1e-3 * largest, "{found} for {wanted}");
    }
}

#[test]
fn its_refusals_are_named_and_others_do_not_know_it() {
    let message = |operators: &Operators, slope| import(operators, slope).expect_err("refused").to_string();
    let text = message(&Operators::standard().from_onnx(ONNX), Some(2.0));
    assert!(text.contains("has the slope 2") && text.contains("Fold it into the layer before"), "{text}");
    let text = message(&Operators::standard(), None);
    assert!(text.contains(r#"an operator of the domain "com.example""#), "{text}");
}

/// What is refused of a fixture.
fn refused(name: &str, operators: &Operators) -> Vec<Unsupported> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.onnx"));
    match import_model(&onnx::read(&path).expect("a model"), name, &Options::new(operators)) {
        Err(ImportError::Unsupported(nodes)) => nodes,
        Ok(_) => Vec::new(),
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
fn no_advice_contradicts_it() {
    let taking = |onnx| Operators::standard().from_onnx(onnx);
    let told = |nodes: &[Unsupported]| nodes.iter().map(Unsupported::to_string).collect::<String>();
    // Of an activation by its name; and the root behind it is one of what is not negative then.
    let exp = refused("unsupported_13", &taking(&[("Exp", gate)]));
    assert!(exp.len() == 3 && !told(&exp).contains("Exp of"), "{}", told(&exp));
    // Of the same operator of another domain.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/unsupported_13.onnx");
    let mut model = onnx::read(&path).expect("a model");
    for node in &mut model.graph.as_mut().expect("a graph").node {
        if node.op_type() == "Exp" {
            node.domain = Some("com.example".into());
        }
    }
    let advice = |operators: &Operators| match import_model(&model, "foreign", &Options::new(operators)) {
        Err(ImportError::Unsupported(nodes)) => {
            nodes.iter().find(|n| n.operator == "Exp").expect("Exp").instead.clone()
        }
        other => panic!("{other:?}"),
    };
    assert!(advice(&Operators::standard()).contains("At the end it can be cut off"));
    let own = advice(&taking(&[("Exp", gate)]));
    assert!(own.contains("ONNX's own Exp") && !own.contains("cut off"), "{own}");
}
