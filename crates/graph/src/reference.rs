//! The integer network in plaintext, exactly: what a private run is compared with.
//!
//! A linear layer here rounds to nearest: `(m + 2^(f-1)) >> f` for the exact product m, bias included. The private
//! run rounds to one of the two neighbours of `m / 2^f` and so differs by at most one unit per linear layer;
//! [`linear_exact`] gives m itself, for comparing bit for bit when the rounding is known. Signs and the comparisons of
//! max-pools are exact here, whatever number of bits an operator says may be left out of them.
//!
//! What a private run leaves to chance is imitated by [`run_drawn`]: how linear layers round, and what signs of reduced
//! precision make of small values and differences. Both depend on the low bits of a share, which are uniform and
//! independent from element to element.
//!
//! What each operator computes stands in its own file under `ops/`, and what nonlinear layers compute in the crate
//! `semantics`, which the protocols share. Whatever instructions the caller's [`Cpu`] has, the results are the same.

pub use jaguar_mpc::semantics::{pool_slack, relu_ignoring, relu6_ignoring, round_shift};
use jaguar_ring::cpu::Cpu;
use thiserror::Error;

pub use crate::ir::draws::Draws;
use crate::network::{Model, Network, NodeId, Shape, Weights};
pub use crate::ops::linear::linear_exact;
use crate::ops::operator::Operands;

/// Why a reference run cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// An input of the wrong length.
    #[error("the input has {found} values, the network takes {expected}")]
    Input {
        /// How many values the input has.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Arguments that do not belong to the node.
    #[error("node {0}: the inputs or weights given are not this node's")]
    Node(NodeId),
}

/// The values of every node, of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// By node, its value `[C, H, W]`, row-major, as plain integers that are not wrapped around.
    pub values: Vec<Vec<i64>>,
    /// By node, how many of its elements lie outside the range that [`Network::value_bits`] says. A private run
    /// wraps these around, so it agrees with the reference only if there are none.
    pub overflows: Vec<usize>,
    /// By node, how many of its elements use the last bit of that range. Nonlinear layers may need that bit, but of values that are never negative.
    pub tight: Vec<usize>,
}

impl Run {
    /// The value of the last node: logits, at the scale of the network's output.
    pub fn output(&self) -> &[i64] {
        self.values.last().map_or(&[], Vec::as_slice)
    }

    /// Elements out of range, all together.
    pub fn total_overflows(&self) -> usize {
        self.overflows.iter().sum()
    }
}

/// One node's value from its inputs' values (as plain integers, not wrapped around).
///
/// `network` has passed [`Network::validate`], and `weights` are the node's own for a linear node, `None` for others.
///
/// # Errors
/// [`ReferenceError::Node`] if the inputs' lengths or the weights are not what the node needs; the input node has
/// no inputs to compute from and is refused too.
pub fn apply_op(
    cpu: Cpu,
    network: &Network,
    node: NodeId,
    weights: Option<&Weights>,
    inputs: &[&[i64]],
) -> Result<Vec<i64>, ReferenceError> {
    apply(cpu, network, node, weights, inputs, None)
}

/// [`apply_op`], but with what a private run leaves to chance as `draws` say.
///
/// # Errors
/// As [`apply_op`].
pub(crate) fn apply_op_drawn(
    cpu: Cpu,
    network: &Network,
    node: NodeId,
    weights: Option<&Weights>,
    inputs: &[&[i64]],
    draws: Draws,
) -> Result<Vec<i64>, ReferenceError> {
    apply(cpu, network, node, weights, inputs, Some(draws))
}

fn apply(
    cpu: Cpu,
    network: &Network,
    node: NodeId,
    weights: Option<&Weights>,
    inputs: &[&[i64]],
    draws: Option<Draws>,
) -> Result<Vec<i64>, ReferenceError> {
    let error = ReferenceError::Node(node);
    let Some(this) = network.nodes.get(node) else { return Err(error) };
    // Only linear layers have weights; one without its own finds out itself.
    if weights.is_some() && this.op.linear().is_none() {
        return Err(error);
    }
    let shapes: Vec<Shape> = this.inputs.iter().map(|&i| network.nodes[i].shape).collect();
    let operands = Operands::new(cpu, shapes, inputs, this.shape, weights).ok_or(error.clone())?;
    this.op.apply(&operands, draws.map(|draws| (draws, node))).ok_or(error)
}

/// Runs a model that has passed [`Model::validate`] on the input's integers.
///
/// # Errors
/// [`ReferenceError::Input`] for an input of the wrong length.
pub fn run(cpu: Cpu, model: &Model, input: &[i64]) -> Result<Run, ReferenceError> {
    walk(model, input, |node, weights, inputs| apply_op(cpu, &model.network, node, weights, inputs))
}

/// [`run`], but as a private run may turn out: with `draws` for what is left to chance there, and where roundings are, with the
/// server's noise in the output. (The noise of linear layers, some thousandths of a unit, is left out.)
///
/// # Errors
/// As [`run`].
pub fn run_drawn(cpu: Cpu, model: &Model, input: &[i64], draws: Draws) -> Result<Run, ReferenceError> {
    let network = &model.network;
    let mut run = walk(model, input, |node, weights, inputs| {
        apply_op_drawn(cpu, network, node, weights, inputs, draws)
    })?;
    if draws.rounding
        && let Some(output) = run.values.last_mut()
    {
        let noise = |i| draws.noise(network.nodes.len(), i, network.noise_bits);
        output.iter_mut().enumerate().for_each(|(i, value)| *value = value.saturating_add(noise(i)));
    }
    Ok(run)
}

fn walk(
    model: &Model,
    input: &[i64],
    apply: impl Fn(NodeId, Option<&Weights>, &[&[i64]]) -> Result<Vec<i64>, ReferenceError>,
) -> Result<Run, ReferenceError> {
    let network = &model.network;
    let expected = network.nodes[0].shape.iter().product();
    if input.len() != expected {
        return Err(ReferenceError::Input { found: input.len(), expected });
    }
    let mut values: Vec<Vec<i64>> = vec![input.to_vec()];
    for node in 1..network.nodes.len() {
        let inputs: Vec<&[i64]> = network.nodes[node].inputs.iter().map(|&i| values[i].as_slice()).collect();
        let weights = model.weights.get(node).and_then(Option::as_ref);
        values.push(apply(node, weights, &inputs)?);
    }
    let beyond = |bits: u32, values: &[i64]| {
        let bound = 1i64 << (bits - 1);
        values.iter().filter(|v| !(-bound..bound).contains(*v)).count()
    };
    let bits = network.value_bits();
    let overflows: Vec<usize> = values.iter().zip(&bits).map(|(v, &b)| beyond(b, v)).collect();
    let signed = network.non_negative().into_iter().map(|known| !known);
    let tight = values
        .iter()
        .zip(&bits)
        .zip(&overflows)
        .zip(signed)
        .map(|(((v, &b), o), signed)| if signed { beyond(b - 1, v) - o } else { 0 });
    let tight = tight.collect();
    Ok(Run { values, overflows, tight })
}
