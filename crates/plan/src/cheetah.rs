//! A network under Cheetah's protocol: the baseline.
//!
//! Every value is shared modulo the same 2^l, and products keep their full precision until they are truncated. l is what the
//! widest value takes, at most 40 ([`jaguar_mpc::WIDEST`]); Cheetah and OpenCheetah have 37.
//!
//! *Truncation.* A linear layer leaves its products whole: its value is the network's times 2^f, its *excess* f. ReLU and
//! ReLU6 truncate theirs away afterwards, as OpenCheetah does, where the sign is known (max-pools and residual sums in
//! between pass the excess on, so fewer values are truncated; a sum's other operand is scaled up by each party alone).
//! Where any consumer needs the network's own scale, as a linear layer or the output does, the products are truncated at once.
//! Either costs the same, f + 1 bits and one COT a value.

use jaguar_graph::network::{Network, Op};
use jaguar_linear::cheetah::{Layer as CheetahLayer, Windows};
use jaguar_mpc::{Cost, Range, TruncateParams, WIDEST};

use crate::{Choices, Layer, PlanError, Step, check_ring, nonlinear};

/// Shares have at least this many bits: fewer the backend does not take.
const NARROWEST: u32 = 8;

/// Noise may have a standard deviation of 2^-NOISE_GUARD units of the network's last place: eight of them are 2^-7 of what
/// the truncation rounds by. What is asked of a product that nothing truncates, a tenth of its own last place, is
/// hundreds of times less, and would take a third prime.
const NOISE_GUARD: i32 = 10;

pub(crate) fn steps(network: &Network, choices: &Choices) -> Result<Vec<Step>, PlanError> {
    let nodes = &network.nodes;
    let bits = network.value_bits();
    let whole = may_stay_whole(network);

    // What is each value's excess, and how many bits does that take?
    let mut excess: Vec<u32> = Vec::with_capacity(nodes.len());
    // The excess that each operation's own result has.
    let mut made: Vec<u32> = Vec::with_capacity(nodes.len());
    let mut share_bits = NARROWEST;
    for (id, node) in nodes.iter().enumerate() {
        let widest = node.inputs.iter().map(|&i| excess[i]).max().unwrap_or(0);
        made.push(match &node.op {
            Op::Linear(spec) => spec.shift,
            _ => widest,
        });
        excess.push(match &node.op {
            Op::Input | Op::Relu { .. } | Op::Relu6 { .. } | Op::SumPool { .. } => 0,
            Op::Linear(spec) => {
                if whole[id] {
                    spec.shift
                } else {
                    0
                }
            }
            Op::MaxPool { .. } | Op::Add | Op::Concat | Op::Rearrange(_) => widest,
        });
        let needs = bits[id] + made[id];
        if needs > WIDEST {
            return Err(PlanError::Products { name: node.name.clone(), bits: needs });
        }
        share_bits = share_bits.max(needs);
    }

    let mut steps: Vec<Step> = Vec::with_capacity(nodes.len());
    for (id, node) in nodes.iter().enumerate() {
        check_ring(node, share_bits)?;
        let layer = match &node.op {
            Op::Linear(spec) => {
                let noise = 2f64.powi(spec.shift as i32 - NOISE_GUARD);
                let in_shape = nodes[node.inputs[0]].shape;
                let layer = CheetahLayer::with_noise(
                    spec,
                    in_shape,
                    share_bits,
                    network.weight_bits + spec.max_exponent,
                    Windows::FewestBytes,
                    noise.max(CheetahLayer::MAX_NOISE),
                );
                let layer =
                    layer.map_err(|source| PlanError::CheetahLayer { name: node.name.clone(), source })?;
                Some(Layer::Cheetah(Box::new(layer)))
            }
            _ => None,
        };
        let nonlinear =
            nonlinear(network, node, (share_bits, share_bits, made[id]), u32::from(choices.digits[id]));
        let range = match &node.op {
            Op::Relu { .. } | Op::Relu6 { .. } => Range::NonNegative,
            _ => Range::Signed,
        };
        let shift = made[id] - excess[id];
        let truncation =
            (shift > 0).then_some(TruncateParams { bits: share_bits, out_bits: share_bits, shift, range });
        let step = Step {
            made: share_bits,
            ring: share_bits,
            excess: excess[id],
            layer,
            nonlinear,
            truncation,
            extension: None,
            early: false,
            values: node.shape.iter().product(),
            cost: Cost::default(),
        };
        steps.push(step.finish(node)?);
    }
    Ok(steps)
}

/// For each node: whether all that its value reaches takes products that are not truncated.
fn may_stay_whole(network: &Network) -> Vec<bool> {
    let mut whole = vec![true; network.nodes.len()];
    if let Some(output) = whole.last_mut() {
        *output = false;
    }
    for (id, node) in network.nodes.iter().enumerate().rev() {
        let takes = match &node.op {
            Op::Relu { .. } | Op::Relu6 { .. } => true,
            Op::MaxPool { .. } | Op::Add | Op::Concat | Op::Rearrange(_) => whole[id],
            Op::Input | Op::Linear(_) | Op::SumPool { .. } => false,
        };
        if !takes {
            node.inputs.iter().for_each(|&i| whole[i] = false);
        }
    }
    whole
}
