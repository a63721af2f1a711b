//! What each linear layer would cost with weights in blocks, by block size: for tools that choose the sizes.

use jaguar_graph::network::{BLOCK_SIZES, BlockKind, Blocks, Network, Shape, block_size, possible_sizes};
use serde::Serialize;

use crate::planner::{Figures, planned, step_figures};
use crate::predict::Site;
use crate::{Plan, PlanError};

/// One linear layer with every block size that it could have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizes {
    /// The node's number in the network.
    pub node: usize,
    /// What the network calls the node.
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
    /// b: the weights' blocks are of b × b channels.
    pub b: usize,
    /// The kind of block that is asked about.
    pub kind: BlockKind,
    /// As blocks of which size the layer would run.
    pub effective: usize,
    /// What a query would cost with this block size.
    pub figures: Figures,
}

/// For each linear layer of `plan`, which is one of `network`, what it would cost with each block size that divides its channels,
/// choices being as they are. Layers of several groups can have no blocks, and are left out. Nothing is asked of the weights:
/// the network may be a dense one. Without a `site` there are bytes and no seconds.
pub fn block_sizes(network: &Network, plan: &Plan, site: Option<&Site<'_>>) -> Vec<Sizes> {
    let input = |node: usize| network.nodes[network.nodes[node].inputs[0]].shape;
    let plans: Vec<(usize, Asked, Plan)> = std::iter::once(1)
        .chain(BLOCK_SIZES)
        .filter_map(|size| {
            let (asked, plan) = with_blocks(network, plan, size)?;
            Some((size, asked, plan))
        })
        .collect();
    let layers = network.nodes.iter().enumerate().filter_map(|(node, of)| {
        let spec = of.op.linear()?;
        (spec.groups == 1).then_some((node, of, spec))
    });
    layers
        .map(|(node, of, spec)| {
            let sizes: Vec<usize> = possible_sizes(spec, input(node)).collect();
            let taken = plans.iter().filter(|(size, asked, _)| sizes.contains(size) && asked[node]);
            let costs = taken.map(|(size, _, plan)| {
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

/// By node: whether it was planned with the size that was asked for.
type Asked = Vec<bool>;

/// `network` as `plan` has it, with blocks of `size` wherever they can be. A layer that its backend refuses with them stays as it is:
/// of such there is no cost. `None` where the network has no plan at all.
fn with_blocks(network: &Network, plan: &Plan, size: usize) -> Option<(Asked, Plan)> {
    let shapes: Vec<Shape> = network.nodes.iter().map(|node| node.shape).collect();
    let mut changed = network.clone();
    let mut asked = vec![false; network.nodes.len()];
    for (id, node) in changed.nodes.iter_mut().enumerate() {
        let Some(spec) = node.op.linear_mut() else { continue };
        if possible_sizes(spec, shapes[node.inputs[0]]).any(|possible| possible == size) {
            spec.blocks = (size > 1).then(|| Blocks::skew(size));
            asked[id] = true;
        }
    }
    loop {
        match planned(&changed, plan.choices.clone()) {
            Ok(plan) => return Some((asked, plan)),
            Err(PlanError::Layer { node, .. }) if asked[node] => {
                asked[node] = false;
                changed.nodes[node] = network.nodes[node].clone();
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Choices;
    use crate::tests::{kit, network};

    /// Backends that know blocks run them; others say that they compute a dense layer.
    #[test]
    fn backends_say_in_which_blocks_they_compute() {
        let network = network();
        let effective = |backend: &str| -> Vec<usize> {
            let backend = kit().backend(backend).expect("a backend");
            let plan = Plan::new(&network, Choices::standard(&network, backend)).expect("plans");
            // The second layer, from 16 channels to 8.
            let sizes = block_sizes(&network, &plan, None);
            let layer = sizes.iter().find(|layer| layer.name == "second").expect("it has blocks");
            assert_eq!(layer.costs.iter().map(|cost| cost.b).collect::<Vec<_>>(), [1, 2, 4, 8]);
            layer.costs.iter().map(|cost| cost.effective).collect()
        };
        assert_eq!(effective("cirencode"), [1, 2, 4, 8]);
        assert_eq!(effective("cheetah"), [1, 1, 1, 1]);
        assert_eq!(effective("hyena"), [1, 1, 1, 1]);
        assert_eq!(effective("fregata-hme"), [1, 1, 1, 1]);
        assert!(effective("jaguar").iter().any(|&size| size > 1));
    }
}
