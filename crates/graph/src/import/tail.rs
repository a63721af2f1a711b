//! Where a model can be cut so that what is refused falls away: its tail, from the first refused nodes on, if no layer follows them. Whoever gets
//! the answer then does what was cut off, as the arithmetic of a detector's boxes.

use std::collections::{HashMap, HashSet};

use super::build::Value;
use super::taken;
use crate::limits::MAX_OUTPUTS;
use crate::onnx::{GraphProto, NodeProto};

/// Layers: whoever gets the answer would need their weights.
const LAYERS: [&str; 12] = [
    "BatchNormalization",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "GRU",
    "Gemm",
    "LSTM",
    "MatMul",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    "RNN",
];

/// Weights that are so few are arithmetic, as the numbers 0 to 15 by which detectors take means.
const FEW: usize = 64;

/// What whoever gets an answer computes in a line or two. A tail is left out by itself only where nothing else is refused: another operator may be a
/// fault of the export, or the network's own work. (ArgMax is not among them: whose model says a label alone may not want to say more.)
const ARITHMETIC: [&str; 40] = [
    "Abs",
    "Add",
    "And",
    "Cast",
    "Ceil",
    "Clip",
    "Cos",
    "Div",
    "Equal",
    "Exp",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "Or",
    "Pow",
    "Reciprocal",
    "ReduceL1",
    "ReduceLogSumExp",
    "ReduceProd",
    "Round",
    "ScatterND",
    "Sin",
    "Softmax",
    "Sqrt",
    "Sub",
    "TopK",
    "Where",
];

/// Whether a tail may be left out by itself where this is refused.
pub(super) fn is_arithmetic(operator: &str) -> bool {
    ARITHMETIC.contains(&operator)
}

/// Where a model's tail can be cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The values that the tail takes, in the model's order.
    pub outputs: Vec<String>,
    /// Of how many nodes the tail is.
    pub nodes: usize,
}

/// How to cut off all that depends on the nodes `refused`, by index; `None` if a layer is among it, or if nothing would be left. A softmax that leads
/// into the tail goes with it, if no layer follows it either: whoever gets the answer does it for nothing (the distances of a detector's boxes).
pub(super) fn cut(
    graph: &GraphProto,
    live: &HashSet<usize>,
    refused: &[usize],
    outputs: &[&str],
    values: &HashMap<&str, Value>,
) -> Option<Cut> {
    let mut refused = refused.to_vec();
    let mut found = cut_before(graph, live, &refused, outputs, values)?;
    for (softmax, _) in nodes(graph, live).filter(|(_, node)| node.op_type() == "Softmax") {
        let tail = depending(graph, live, &refused);
        if depending(graph, live, &[softmax]).iter().any(|index| tail.contains(index)) {
            refused.push(softmax);
            match cut_before(graph, live, &refused, outputs, values) {
                Some(cut) => found = cut,
                None => drop(refused.pop()),
            }
        }
    }
    Some(found)
}

/// The nodes that the outputs depend on, by index, in the model's order.
fn nodes<'a>(graph: &'a GraphProto, live: &HashSet<usize>) -> impl Iterator<Item = (usize, &'a NodeProto)> {
    graph.node.iter().enumerate().filter(|(index, _)| live.contains(index))
}

/// The nodes `first`, by index, and all that depend on them, in the model's order.
fn depending(graph: &GraphProto, live: &HashSet<usize>, first: &[usize]) -> Vec<usize> {
    let mut made: HashSet<&str> = HashSet::new();
    let mut tail = Vec::new();
    // (Nodes come after those that make what they take.)
    for (index, node) in nodes(graph, live) {
        if first.contains(&index) || taken(node).iter().any(|name| made.contains(name)) {
            made.extend(node.output.iter().map(String::as_str));
            tail.push(index);
        }
    }
    tail
}

fn cut_before(
    graph: &GraphProto,
    live: &HashSet<usize>,
    refused: &[usize],
    outputs: &[&str],
    values: &HashMap<&str, Value>,
) -> Option<Cut> {
    let tail: Vec<&NodeProto> =
        depending(graph, live, refused).into_iter().map(|index| &graph.node[index]).collect();
    let made: HashSet<&str> = tail.iter().flat_map(|node| &node.output).map(String::as_str).collect();
    let constant = |name: &&str| match values.get(name) {
        Some(Value::Constant(tensor)) => Some(tensor.values.len()),
        _ => None,
    };
    let is_layer = |node: &&NodeProto| {
        let weights = taken(node).iter().filter_map(constant).max();
        LAYERS.contains(&node.op_type()) && weights.is_none_or(|weights| weights > FEW)
    };
    if tail.iter().any(is_layer) {
        return None;
    }
    let wanted: HashSet<&str> =
        tail.iter().flat_map(|node| taken(node)).chain(outputs.iter().copied()).collect();
    let kept = |name: &str| {
        wanted.contains(name)
            && !made.contains(name)
            && matches!(values.get(name), Some(Value::Activation(_)))
    };
    // What no node makes is the input.
    let all_made = nodes(graph, live).flat_map(|(_, node)| node.output.iter().map(String::as_str));
    let outputs: Vec<String> = all_made.filter(|name| kept(name)).map(String::from).collect();
    let names = outputs.len();
    let from_the_input = wanted.iter().filter(|name| kept(name)).count() > names;
    let plain = outputs.iter().all(|name| !name.contains(','));
    ((1..=MAX_OUTPUTS).contains(&names) && !from_the_input && plain)
        .then_some(Cut { outputs, nodes: tail.len() })
}
