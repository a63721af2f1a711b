//! A network in two: the client evaluates the first part in the clear, and the server the last layers on ciphertexts (the paper's
//! ImageNet tail). The client must then have the weights of the first part.

use crate::is_activation;
use jaguar_graph::float::{Graph, Input, Node};

/// Why a network cannot be cut there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCut {
    /// There are not so many.
    #[error("the network has {0} ReLUs, so at most {less} layers can be cut off", less = .0.saturating_sub(1))]
    TooFew(usize),
    /// A residual connection crosses the cut.
    #[error("node {node} takes node {from}, which lies before the cut at node {cut}")]
    Crossed {
        /// What takes it.
        node: usize,
        /// What it takes.
        from: usize,
        /// The last node of the first part.
        cut: usize,
    },
}

/// The first part, which ends in a ReLU, and the part behind it, with so many ReLUs.
///
/// # Errors
/// [`NoCut`] if there are not more ReLUs than that, or if a later node takes what lies before the cut.
pub fn last_layers(graph: &Graph, layers: usize) -> Result<(Graph, Graph), NoCut> {
    let relus: Vec<usize> = (0..graph.nodes.len()).filter(|&i| is_activation(&graph.nodes[i].op)).collect();
    let cut = relus.len().checked_sub(layers + 1).map(|i| relus[i]).ok_or(NoCut::TooFew(relus.len()))?;
    let input = Node {
        name: graph.nodes[cut].name.clone(),
        op: Input.into(),
        inputs: Vec::new(),
        shape: graph.nodes[cut].shape,
    };
    let mut nodes = vec![input];
    for (node, of) in graph.nodes.iter().enumerate().skip(cut + 1) {
        let inputs =
            of.inputs.iter().map(|&from| from.checked_sub(cut).ok_or(NoCut::Crossed { node, from, cut }));
        nodes.push(Node { inputs: inputs.collect::<Result<_, _>>()?, ..of.clone() });
    }
    let head = Graph {
        nodes: graph.nodes[..=cut].to_vec(),
        layout_dims: Vec::new(),
        outputs: Vec::new(),
        tail: None,
        ..graph.clone()
    };
    let tail = Graph {
        name: format!("{}, last {layers} layers", graph.name),
        nodes,
        affine: Vec::new(),
        affine_name: String::new(),
        channels_last: false,
        layout_dims: graph.layout_dims.clone(),
        outputs: graph.outputs.clone(),
        tail: graph.tail.clone(),
        lost_blocks: Vec::new(),
    };
    Ok((head, tail))
}
