//! What each linear layer would cost with weights in blocks, by block size: for tools that choose the sizes.

use jaguar_graph::network::{BLOCK_SIZES, BlockKind, Blocks, Network, Op, Shape, block_size, possible_sizes};
use serde::Serialize;

use crate::Plan;
use crate::planner::{Figures, planned, step_figures};
use crate::predict::Site;

/// One linear layer with every block size that it could have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizes {
    /// The node.
    pub node: usize,
    /// Its name.
    pub name: String,
    /// `[C, H, W]` of its output.
    pub shape: Shape,
    /// Its own block size; 1 for a dense layer.
    pub own: usize,
    /// By block size, ascending, from 1 on.
    pub costs: Vec<SizeCost>,
}

/// What a layer would cost with one block size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeCost {
    /// The block size.
    pub b: usize,
    /// The kind of block that is asked about.
    pub kind: BlockKind,
    /// As blocks of which size the layer would run.
    pub effective: usize,
    /// What it would cost.
    pub figures: Figures,
}

/// For each linear layer of `plan`, which is one of `network`, what it would cost with each block size that divides its channels,
/// choices being as they are. Layers of several groups can have no blocks, and are left out. Nothing is asked of the weights:
/// the network may be a dense one. Without a `site` there are bytes and no seconds.
pub fn block_sizes(network: &Network, plan: &Plan, site: Option<&Site<'_>>) -> Vec<Sizes> {
    let input = |node: usize| network.nodes[network.nodes[node].inputs[0]].shape;
    let plans: Vec<(usize, Plan)> = std::iter::once(1)
        .chain(BLOCK_SIZES)
        .filter_map(|size| {
            let mut network = network.clone();
            let shapes: Vec<Shape> = network.nodes.iter().map(|node| node.shape).collect();
            for node in &mut network.nodes {
                let Op::Linear(spec) = &mut node.op else { continue };
                if possible_sizes(spec, shapes[node.inputs[0]]).any(|possible| possible == size) {
                    spec.blocks = (size > 1).then(|| Blocks::skew(size));
                }
            }
            Some((size, planned(&network, plan.choices.clone()).ok()?))
        })
        .collect();
    let layers = network.nodes.iter().enumerate().filter_map(|(node, of)| match &of.op {
        Op::Linear(spec) if spec.groups == 1 => Some((node, of, spec)),
        _ => None,
    });
    layers
        .map(|(node, of, spec)| {
            let sizes: Vec<usize> = possible_sizes(spec, input(node)).collect();
            let costs = plans.iter().filter(|(size, _)| sizes.contains(size)).map(|(size, plan)| {
                let step = &plan.steps[node];
                let effective = step.layer.as_ref().map_or(1, |layer| layer.block_size());
                SizeCost { b: *size, kind: BlockKind::Skew, effective, figures: step_figures(step, site) }
            });
            Sizes {
                node,
                name: of.name.clone(),
                shape: of.shape,
                own: block_size(spec),
                costs: costs.collect(),
            }
        })
        .collect()
}
