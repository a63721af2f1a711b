//! Whose scale a value has: its class's, or that of the value which it was moved or summed from.

use crate::network::{Network, Node, NodeId, Scale, Work};
use crate::ops::operator::Source;

/// The node whose scale times a number is that of node `id`, and the number; `None` if its class has it.
fn follows(network: &Network, id: NodeId) -> Option<(NodeId, f64)> {
    let node = &network.nodes[id];
    match (node.op.scale(), node.op.work()) {
        (Scale::Gained(gain), _) => Some((node.inputs[0], gain as f64)),
        // What each party moves by itself has its input's, which may be a sum's.
        (Scale::Inherited, Work::Local(_)) if node.inputs.len() == 1 => Some((node.inputs[0], 1.0)),
        // What is left has its class's.
        (Scale::Inherited | Scale::Own, _) => None,
    }
}

/// The class by which the scale of a node's value goes: that of the value which it was moved or summed from.
pub(super) fn governing(network: &Network, class: &[NodeId], mut id: NodeId) -> NodeId {
    while let Some((from, _)) = follows(network, id) {
        id = from;
    }
    class[id]
}

/// S by node, from S by class.
pub(super) fn scales_by_node(network: &Network, class: &[NodeId], scale: &[f64]) -> Vec<f64> {
    let mut scales: Vec<f64> = class.iter().map(|&c| scale[c]).collect();
    for id in 0..scales.len() {
        if let Some((from, times)) = follows(network, id) {
            scales[id] = scales[from] * times;
        }
    }
    scales
}

/// Of how many values each of node `id`'s is the sum, moved at most.
pub(super) fn summed(network: &Network, id: NodeId) -> u64 {
    let Node { op, inputs, .. } = &network.nodes[id];
    match (op.scale(), op.value().source, &inputs[..]) {
        (Scale::Gained(gain), _, _) => gain,
        (_, Source::Moved, &[input]) => summed(network, input),
        _ => 1,
    }
}
