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

/// The values before the tail, in the model's order, and of how many nodes it is.
pub(super) struct Cut {
    pub(super) outputs: Vec<String>,
    pub(super) nodes: usize,
}

/// How to cut off all that depends on the nodes `refused`, by index; `None` if a layer is among it, or if nothing would be left.
pub(super) fn cut(
    graph: &GraphProto,
    live: &HashSet<usize>,
    refused: &[usize],
    outputs: &[&str],
    values: &HashMap<&str, Value>,
) -> Option<Cut> {
    let nodes = || graph.node.iter().enumerate().filter(|(index, _)| live.contains(index));
    let mut made: HashSet<&str> = HashSet::new();
    let mut tail: Vec<&NodeProto> = Vec::new();
    // (Nodes come after those that make what they take.)
    for (index, node) in nodes() {
        if refused.contains(&index) || taken(node).iter().any(|name| made.contains(name)) {
            made.extend(node.output.iter().map(String::as_str));
            tail.push(node);
        }
    }
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
    let all_made = nodes().flat_map(|(_, node)| node.output.iter().map(String::as_str));
    let outputs: Vec<String> = all_made.filter(|name| kept(name)).map(String::from).collect();
    let names = outputs.len();
    let from_the_input = wanted.iter().filter(|name| kept(name)).count() > names;
    let plain = outputs.iter().all(|name| !name.contains(','));
    ((1..=MAX_OUTPUTS).contains(&names) && !from_the_input && plain)
        .then_some(Cut { outputs, nodes: tail.len() })
}
