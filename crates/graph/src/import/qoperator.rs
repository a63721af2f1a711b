//! Quantised models in the form of integer operators (ONNX's QLinearConv and ONNX Runtime's own), written out in the QDQ form: each
//! operator takes what a DequantizeLinear makes of its inputs, and a QuantizeLinear makes integers of what it makes.

use std::collections::HashMap;

use super::is_standard;
use crate::onnx::{AttributeProto, GraphProto, NodeProto};

/// Where an operator lists a value, and its scale, which the zero point follows.
type Place = [usize; 2];

/// What an integer operator is in real numbers.
struct Form {
    operator: &'static str,
    /// Of ONNX's own domain, and not of ONNX Runtime's.
    standard: bool,
    /// The operator of real numbers.
    real: &'static str,
    /// The values that it takes.
    takes: &'static [Place],
    /// Where its result's scale is.
    makes: usize,
    /// Where its bias is, if it has one: integers at the scale of the first two values together.
    bias: Option<usize>,
}

impl Form {
    const fn new(operator: &'static str, real: &'static str, takes: &'static [Place], makes: usize) -> Self {
        Self { operator, standard: false, real, takes, makes, bias: None }
    }
}

const ONE: &[Place] = &[[0, 1]];
const TWO: &[Place] = &[[0, 1], [3, 4]];

/// All but QLinearConcat, which takes any number of values.
const FORMS: [Form; 10] = [
    Form { standard: true, bias: Some(8), ..Form::new("QLinearConv", "Conv", TWO, 6) },
    Form { standard: true, ..Form::new("QLinearMatMul", "MatMul", TWO, 6) },
    Form::new("QLinearAdd", "Add", TWO, 6),
    Form::new("QLinearMul", "Mul", TWO, 6),
    Form::new("QLinearAveragePool", "AveragePool", ONE, 3),
    Form::new("QLinearGlobalAveragePool", "GlobalAveragePool", ONE, 3),
    Form::new("QLinearLeakyRelu", "LeakyRelu", ONE, 3),
    Form::new("QLinearSigmoid", "Sigmoid", ONE, 3),
    Form::new("QLinearSoftmax", "Softmax", ONE, 3),
    Form { bias: Some(6), ..Form::new("QGemm", "Gemm", TWO, 7) },
];

const CONCAT: &str = "QLinearConcat";

/// Operators that pick or compare integers as they are, so that what they make has their input's scale.
const ALIKE: [&str; 5] = ["Gather", "MaxPool", "Resize", "Slice", "Split"];

/// Others that at most move integers: a scale goes on behind them.
const MOVES: [&str; 6] = ["Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];

/// What is written of a node; `None` where it is no such operator, or one with channels last or a factor, which stays what it is.
fn form(node: &NodeProto) -> Option<&'static Form> {
    let found = FORMS.iter().find(|form| form.operator == node.op_type())?;
    let attribute = |name: &str| node.attribute.iter().find(|attribute| attribute.name() == name);
    let plain = attribute("channels_last").and_then(|a| a.i).unwrap_or(0) == 0
        && (found.real != "Gemm" || attribute("alpha").and_then(|a| a.f).unwrap_or(1.0) == 1.0);
    (is_standard_or_runtime(node) == Some(found.standard) && plain).then_some(found)
}

/// Whether a node is of ONNX's domain, and not of ONNX Runtime's; `None` if of another.
fn is_standard_or_runtime(node: &NodeProto) -> Option<bool> {
    match node.domain() {
        "com.microsoft" => Some(false),
        _ => is_standard(node.domain.as_deref()).then_some(true),
    }
}

/// Whether there are such operators in a graph.
pub(super) fn has_any(graph: &GraphProto) -> bool {
    graph.node.iter().any(|node| form(node).is_some() || joins(node))
}

fn joins(node: &NodeProto) -> bool {
    node.op_type() == CONCAT && is_standard_or_runtime(node) == Some(false)
}

/// The graph with every such operator written out.
pub(super) fn written_out(graph: &GraphProto) -> GraphProto {
    let mut writer = Writer { nodes: Vec::with_capacity(4 * graph.node.len()), scales: HashMap::new() };
    for node in &graph.node {
        writer.write(node);
    }
    GraphProto { node: writer.nodes, ..graph.clone() }
}

struct Writer {
    nodes: Vec<NodeProto>,
    /// By value of integers, the names of its scale and zero point.
    scales: HashMap<String, [String; 2]>,
}

impl Writer {
    fn write(&mut self, node: &NodeProto) {
        let quantised = node.input.first().and_then(|name| self.scales.get(name)).cloned();
        match (form(node), quantised) {
            (Some(form), _) => self.real(node, form),
            (None, _) if joins(node) => self.joined(node),
            (None, Some(scale)) if ALIKE.contains(&node.op_type()) => self.alike(node, &scale),
            (None, quantised) => {
                let scale = match node.op_type() {
                    "QuantizeLinear" => named(node, 1),
                    operator if MOVES.contains(&operator) => quantised,
                    _ => None,
                };
                if let (Some(scale), Some(made)) = (scale, node.output.first()) {
                    self.scales.insert(made.clone(), scale);
                }
                self.nodes.push(node.clone());
            }
        }
    }

    /// A node of ONNX's domain, called as the one that it is written for.
    fn push(
        &mut self,
        from: &NodeProto,
        operator: &str,
        input: Vec<String>,
        output: Vec<String>,
    ) -> &mut NodeProto {
        let name = from.name.clone().filter(|name| !name.is_empty()).or_else(|| from.output.first().cloned());
        let op_type = Some(operator.to_owned());
        self.nodes.push(NodeProto { input, output, name, op_type, attribute: Vec::new(), domain: None });
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    /// What the integers at a place of a node stand for.
    fn dequantised(&mut self, node: &NodeProto, [value, scale]: Place, axis: i64) -> String {
        let listed = |place: usize| node.input.get(place).cloned().unwrap_or_default();
        let made = format!("{}: input {value} of {}", listed(value), first(&node.output));
        let input = vec![listed(value), listed(scale), listed(scale + 1)];
        let axis = AttributeProto { name: Some("axis".into()), i: Some(axis), ..AttributeProto::default() };
        self.push(node, "DequantizeLinear", input, vec![made.clone()]).attribute.push(axis);
        made
    }

    /// The operator of real numbers, and integers of its result.
    fn finish(&mut self, node: &NodeProto, operator: &str, input: Vec<String>, scale: Option<[String; 2]>) {
        let made = first(&node.output).to_owned();
        let Some([scale, zero]) = scale else {
            self.push(node, operator, input, node.output.clone()).attribute.clone_from(&node.attribute);
            return;
        };
        let real = format!("{made}: real");
        let outputs = std::iter::once(real.clone()).chain(node.output.iter().skip(1).cloned());
        self.push(node, operator, input, outputs.collect()).attribute.clone_from(&node.attribute);
        self.push(node, "QuantizeLinear", vec![real, scale.clone(), zero.clone()], vec![made.clone()]);
        self.scales.insert(made, [scale, zero]);
    }

    fn real(&mut self, node: &NodeProto, form: &Form) {
        let mut input: Vec<String> = Vec::with_capacity(3);
        for (index, place) in form.takes.iter().enumerate() {
            let turned = node.attribute.iter().any(|a| a.name() == "transB" && a.i == Some(1));
            let axis = match form.real {
                "Conv" if index == 1 => 0,
                "Gemm" if index == 1 && turned => 0,
                _ => 1,
            };
            input.push(self.dequantised(node, *place, axis));
        }
        let bias = form.bias.and_then(|place| node.input.get(place)).filter(|name| !name.is_empty());
        if let Some(bias) = bias {
            let scales =
                form.takes.iter().map(|[_, scale]| node.input.get(*scale).cloned().unwrap_or_default());
            let [together, real] =
                ["scale", "real"].map(|what| format!("{bias}: {what} of {}", first(&node.output)));
            self.push(node, "Mul", scales.collect(), vec![together.clone()]);
            let axis = AttributeProto { name: Some("axis".into()), i: Some(0), ..AttributeProto::default() };
            let listed = vec![bias.clone(), together];
            self.push(node, "DequantizeLinear", listed, vec![real.clone()]).attribute.push(axis);
            input.push(real);
        }
        self.finish(node, form.real, input, named(node, form.makes));
    }

    /// Its result's scale and zero point, then three names for each value.
    fn joined(&mut self, node: &NodeProto) {
        let places = (2..node.input.len()).step_by(3);
        let input = places.map(|place| self.dequantised(node, [place, place + 1], 1)).collect();
        self.finish(node, "Concat", input, named(node, 0));
    }

    fn alike(&mut self, node: &NodeProto, scale: &[String; 2]) {
        let [own, zero] = scale;
        let taken = first(&node.input);
        let real = format!("{taken}: real of {}", first(&node.output));
        self.push(
            node,
            "DequantizeLinear",
            vec![taken.to_owned(), own.clone(), zero.clone()],
            vec![real.clone()],
        );
        let input = std::iter::once(real).chain(node.input.iter().skip(1).cloned()).collect();
        let outputs: Vec<String> = node.output.iter().map(|name| format!("{name}: real")).collect();
        self.push(node, node.op_type(), input, outputs.clone()).attribute.clone_from(&node.attribute);
        for (real, made) in outputs.into_iter().zip(&node.output).filter(|(_, made)| !made.is_empty()) {
            self.push(node, "QuantizeLinear", vec![real, own.clone(), zero.clone()], vec![made.clone()]);
            self.scales.insert(made.clone(), scale.clone());
        }
    }
}

fn first(names: &[String]) -> &str {
    names.first().map_or("", String::as_str)
}

/// The names of the scale at a place and of the zero point behind it; `None` if there is no scale.
fn named(node: &NodeProto, scale: usize) -> Option<[String; 2]> {
    let name = |place: usize| node.input.get(place).cloned().unwrap_or_default();
    Some([name(scale), name(scale + 1)]).filter(|[scale, _]| !scale.is_empty())
}
