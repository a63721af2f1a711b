//! Which nonlinear layers take the same values one after the other, and open them once: a norm's rows by themselves, and by
//! their numbers ([`jaguar_mpc::opened_once`]).
//!
//! It follows from the network and from where its values live, so both parties find the same; the plan's digest covers it.

use std::collections::BTreeMap;

use jaguar_graph::network::{Network, NodeId};
use jaguar_mpc::{Cost, opened_once};

use crate::{PlanError, Step};

/// Joins such layers, each with the last one before it that opens the same values and is in no other pair.
pub(crate) fn join(network: &Network, steps: &mut [Step]) -> Result<(), PlanError> {
    // By the values that they take: layers of one value.
    let mut before: BTreeMap<(NodeId, usize), NodeId> = BTreeMap::new();
    for (id, node) in network.nodes.iter().enumerate() {
        if steps[id].nonlinear.is_none() || steps[id].replaced {
            continue;
        }
        let Some(values) = values_of(network, steps, node.inputs[0]) else { continue };
        if node.inputs.len() == 1 || network.takes_once(id) {
            before.insert(values, id);
            continue;
        }
        let Some(&first) = before.get(&values).filter(|&&first| waits_for(network, id, first)) else {
            continue;
        };
        let [Some(own), Some(other)] = [id, first].map(|at| steps[at].nonlinear.as_deref()) else { continue };
        let Some([opening, behind]) = opened_once(other, own) else { continue };
        before.remove(&values);
        for (at, layer, behind) in [(first, opening, None), (id, behind, Some(first))] {
            let step = Step { nonlinear: Some(layer), behind, cost: Cost::default(), ..steps[at].clone() };
            steps[at] = step.finish(&network.nodes[at])?;
        }
    }
    Ok(())
}

/// Whose values the shares of `id` are, modulo some power of two, and as how many channels: equal ones stand in the same
/// order, those of several images, too. `None` where they live elsewhere.
fn values_of(network: &Network, steps: &[Step], mut id: NodeId) -> Option<(NodeId, usize)> {
    let [channels, ..] = network.nodes[id].shape;
    loop {
        let domain = steps[id].domain;
        if domain.modulus.log2().is_none() || domain.excess > 0 {
            return None;
        }
        match network.reshaped(id) {
            Some(input) => id = input,
            None => return Some((id, channels)),
        }
    }
}

/// Whether `id` is computed of what `first` made.
fn waits_for(network: &Network, id: NodeId, first: NodeId) -> bool {
    let mut seen = vec![false; id - first];
    let mut todo = vec![id];
    while let Some(at) = todo.pop() {
        for &input in &network.nodes[at].inputs {
            if input == first {
                return true;
            }
            if input > first && !std::mem::replace(&mut seen[input - first], true) {
                todo.push(input);
            }
        }
    }
    false
}
