//! In which domain the shares of every value live, for any mixture of backends.
//!
//! A linear layer states where its input must live and where its output does ([`Domain`]). Two kinds of backends:
//!
//! - one *truncates*: it takes shares mod 2^(n+f) and makes shares mod 2^n, of the network's own scale;
//! - one *keeps products*: it takes and makes shares mod 2^l, and its output is the network's value times 2^f, its *excess* f. l is
//!   what the widest value of the plan takes, at most 40 ([`jaguar_mpc::WIDEST`]); Cheetah and OpenCheetah have 37.
//!
//! Between them, shares mod 2^b of the network's scale, the *base* ring: b = n where any layer truncates, and l where all keep
//! their products, as Cheetah has it.
//!
//! 1. *Excess, forwards.* ReLU and ReLU6 truncate what they make, as OpenCheetah does, where the sign is known (max-pools and
//!    residual sums in between pass the excess on, so fewer values are truncated; a sum's other operand is scaled up by each party
//!    alone). Where any consumer needs the network's own scale, as a linear layer or the output does, the products are
//!    truncated at once. Either costs the same, f + 1 bits and one COT a value.
//! 2. *Rings, backwards.* In which ring is each value needed? ReLU can make any larger ring at little cost.
//! 3. *Conversions, forwards.* A value is made in the largest ring that a consumer asks for; the others take its shares modulo
//!    their own. Where the maker cannot (a linear layer, a max-pool), an extension follows.

use std::sync::Arc;

use jaguar_graph::network::{Network, NodeId, Op};
use jaguar_he::params::Parameters;
use jaguar_linear::backend::{Layers, Planned, Request};
use jaguar_linear::registry::BackendId;
use jaguar_mpc::{Cost, ExtendParams, Range, TruncateParams, WIDEST};

use crate::{Choices, PlanError, Step, check_ring, known_early, nonlinear, opened};

/// Shares of whole products have at least this many bits: fewer no backend takes.
const NARROWEST: u32 = 8;

/// What is planned: by node, and by backend.
pub(crate) struct Planning {
    pub steps: Vec<Step>,
    pub layers: Vec<Arc<dyn Layers>>,
}

/// By node, which backend runs it; `None` for what is not linear.
fn assigned(network: &Network, choices: &Choices) -> Vec<Option<BackendId>> {
    let nodes = network.nodes.iter().zip(&choices.backends);
    nodes.map(|(node, &backend)| matches!(node.op, Op::Linear(_)).then_some(backend)).collect()
}

pub(crate) fn plan(network: &Network, params: Parameters, choices: &Choices) -> Result<Planning, PlanError> {
    let nodes = &network.nodes;
    let n = network.activation_bits;
    let bits = network.value_bits();
    let assigned = assigned(network, choices);
    let keeps = |id: NodeId| assigned[id].is_some_and(|b| b.backend().keeps_products());
    let truncates = assigned.iter().flatten().any(|b| !b.backend().keeps_products());
    let any_keeps = (0..nodes.len()).any(keeps);

    // 1. Excess. `made` is that of the operation's own result, `excess` what is left of it after a truncation.
    let whole = may_stay_whole(network, truncates);
    let mut excess: Vec<u32> = Vec::with_capacity(nodes.len());
    let mut made: Vec<u32> = Vec::with_capacity(nodes.len());
    let mut whole_bits = NARROWEST;
    for (id, node) in nodes.iter().enumerate() {
        let widest = node.inputs.iter().map(|&i| excess[i]).max().unwrap_or(0);
        made.push(match &node.op {
            Op::Linear(spec) if keeps(id) => spec.shift,
            Op::Linear(_) => 0,
            _ => widest,
        });
        excess.push(match &node.op {
            Op::Linear(_) if whole[id] => made[id],
            Op::Input | Op::Relu { .. } | Op::Relu6 { .. } | Op::SumPool { .. } | Op::Linear(_) => 0,
            Op::MaxPool { .. } | Op::Add | Op::Concat | Op::Rearrange(_) => widest,
        });
        let needs = bits[id] + made[id];
        if any_keeps && (!truncates || made[id] > 0) {
            if needs > WIDEST {
                return Err(PlanError::Products { name: node.name.clone(), bits: needs });
            }
            whole_bits = whole_bits.max(needs);
        }
        // What such a layer takes must fit too.
        if keeps(id) {
            whole_bits = node.inputs.iter().map(|&i| bits[i]).fold(whole_bits, u32::max);
        }
    }
    let base = if truncates || !any_keeps { n } else { whole_bits };

    // Layers, backend by backend.
    let opened = opened(network);
    let mut all: Vec<Arc<dyn Layers>> = Vec::new();
    let mut planned: Vec<Option<Planned>> = vec![None; nodes.len()];
    for backend in BackendId::all() {
        let requests: Vec<Request<'_>> = nodes
            .iter()
            .enumerate()
            .filter(|&(id, _)| assigned[id] == Some(backend))
            .filter_map(|(id, node)| match &node.op {
                Op::Linear(spec) => Some(Request {
                    node: id,
                    spec,
                    in_shape: nodes[node.inputs[0]].shape,
                    activation_bits: n,
                    weight_bits: network.weight_bits + spec.max_exponent,
                    opened: opened[id],
                    whole_bits,
                    packing: choices.packings[id],
                    params,
                }),
                _ => None,
            })
            .collect();
        if requests.is_empty() {
            continue;
        }
        let layers = backend.backend().plan(&requests).map_err(|(i, source)| {
            let node = requests[i].node;
            PlanError::Layer { node, name: nodes[node].name.clone(), source }
        })?;
        for request in &requests {
            planned[request.node] = Planned::new(Arc::clone(&layers), request.node);
        }
        all.push(layers);
    }

    // 2. Rings. In which ring does each operation take its operands?
    let free = made_in_any_ring(network);
    let takes = |id: NodeId| if made[id] > 0 { whole_bits } else { base };
    let mut needed = vec![base; nodes.len()];
    if let Some(last) = nodes.len().checked_sub(1) {
        needed[last] = bits[last].max(base);
    }
    for (id, node) in nodes.iter().enumerate().rev() {
        let asks = match &node.op {
            Op::Input => continue,
            Op::Linear(_) => planned[id].as_ref().map_or(base, |layer| layer.input().bits),
            Op::Relu { .. } | Op::Relu6 { .. } | Op::MaxPool { .. } => takes(id),
            Op::SumPool { .. } => needed[id].max(bits[id]),
            Op::Add | Op::Concat | Op::Rearrange(_) if free[id] => needed[id],
            Op::Add | Op::Concat | Op::Rearrange(_) => takes(id),
        };
        for &input in &node.inputs {
            needed[input] = needed[input].max(asks);
        }
    }

    // 3. Conversions.
    let mut steps: Vec<Step> = Vec::with_capacity(nodes.len());
    for (id, node) in nodes.iter().enumerate() {
        let ring_made = match &node.op {
            Op::Input => needed[id],
            Op::Linear(_) => planned[id].as_ref().map_or(base, |layer| layer.output().bits),
            Op::Relu { .. } | Op::Relu6 { .. } if made[id] == 0 => needed[id],
            Op::SumPool { .. } | Op::Add | Op::Concat | Op::Rearrange(_) if free[id] => needed[id],
            _ => takes(id),
        };
        let ring = needed[id].max(ring_made);
        check_ring(node, ring)?;
        if matches!(node.op, Op::Relu { .. } | Op::Relu6 { .. } | Op::MaxPool { .. })
            && let Some(&wide) = node.inputs.iter().map(|&i| &bits[i]).find(|b| **b + made[id] > takes(id))
        {
            return Err(PlanError::Wide { name: node.name.clone(), bits: wide, activation_bits: n });
        }
        let widths = (takes(id), ring_made, made[id]);
        let nonlinear = nonlinear(network, node, widths, u32::from(choices.digits[id]));
        let range = match &node.op {
            Op::Relu { .. } | Op::Relu6 { .. } => Range::NonNegative,
            _ => Range::Signed,
        };
        let shift = made[id] - excess[id];
        let truncation =
            (shift > 0).then_some(TruncateParams { bits: ring_made, out_bits: ring_made, shift, range });
        let extension = (ring > ring_made).then_some(ExtendParams {
            bits: ring_made,
            out_bits: ring,
            range: Range::Signed,
        });
        let step = Step {
            made: ring_made,
            ring,
            excess: excess[id],
            layer: planned[id].take(),
            early: nonlinear.is_some() && known_early(network, &steps, node.inputs[0]),
            nonlinear,
            truncation,
            extension,
            values: node.shape.iter().product(),
            cost: Cost::default(),
        };
        steps.push(step.finish(node)?);
    }
    Ok(Planning { steps, layers: all })
}

/// For each node: whether all that its value reaches takes products that are not truncated. In a `mixed` plan only what compares
/// does: a sum's other operand may live in a narrower ring.
fn may_stay_whole(network: &Network, mixed: bool) -> Vec<bool> {
    let mut whole = vec![true; network.nodes.len()];
    if let Some(output) = whole.last_mut() {
        *output = false;
    }
    for (id, node) in network.nodes.iter().enumerate().rev() {
        let takes = match &node.op {
            Op::Relu { .. } | Op::Relu6 { .. } => true,
            Op::MaxPool { .. } | Op::Rearrange(_) => whole[id],
            Op::Add | Op::Concat => whole[id] && !mixed,
            Op::Input | Op::Linear(_) | Op::SumPool { .. } => false,
        };
        if !takes {
            node.inputs.iter().for_each(|&i| whole[i] = false);
        }
    }
    whole
}

/// For each node: whether its value can be made in a ring of any width without an extension of its own.
fn made_in_any_ring(network: &Network) -> Vec<bool> {
    let mut free: Vec<bool> = Vec::with_capacity(network.nodes.len());
    for node in &network.nodes {
        free.push(match &node.op {
            // The sum of a window may need more bits than its parts: its inputs come in the wider ring.
            Op::Input | Op::Relu { .. } | Op::Relu6 { .. } | Op::SumPool { .. } => true,
            Op::Linear(_) | Op::MaxPool { .. } => false,
            Op::Add | Op::Concat | Op::Rearrange(_) => node.inputs.iter().all(|&i: &NodeId| free[i]),
        });
    }
    free
}
