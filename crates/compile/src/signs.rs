//! Signs of reduced precision: the search for them, and what they save.

use std::time::{Duration, Instant};

use jaguar_graph::network::Model;
use jaguar_graph::signs::{self, Options, SearchStage};
use jaguar_plan::Plan;
use jaguar_plan::predict::mean_extension_bytes;
use jaguar_ring::cpu::Cpu;

use crate::CompileError;

/// What was chosen, and how it was checked.
#[derive(Clone, Debug)]
pub struct ReducedSigns {
    /// By layer that has signs, in the network's order.
    pub layers: Vec<SignLayer>,
    /// In how many of them bits are left out.
    pub reduced: usize,
    /// How long the search took.
    pub took: Duration,
    /// The largest error of logits in a run of the final choice, as a part of their spread.
    pub worst_error: f64,
    /// How many imitated runs that choice passed.
    pub runs: usize,
    /// The sample (its index) on which the next larger budget failed, and how.
    pub limited_by: Option<(usize, signs::Failure)>,
}

/// One layer's signs.
#[derive(Clone, Debug)]
pub struct SignLayer {
    /// The layer's name.
    pub name: String,
    /// How many bits its signs leave out; 1 is exact.
    pub ignored: u32,
    /// The error of logits that this layer alone should make, as a part of their spread.
    pub alone: f64,
    /// COTs of a query, both directions.
    pub cots: u64,
    /// The same with exact signs.
    pub cots_exact: u64,
    /// Bytes of a query, both ways, with those of making its COTs.
    pub bytes: u64,
    /// The same with exact signs.
    pub bytes_exact: u64,
}

/// Chooses the bits that signs may leave out, and writes the choice into the model, which has no guard bits. What they
/// cost is that in `plan`, of the model with those that it will get.
pub(crate) fn reduce(
    cpu: Cpu,
    model: &mut Model,
    samples: &[Vec<f32>],
    (plan, bound): (&Plan, f64),
    stage: &mut dyn FnMut(SearchStage),
) -> Result<ReducedSigns, CompileError> {
    let network = &model.network;
    let inputs: Vec<Vec<i64>> =
        samples.iter().map(|x| network.input.quantise(x, network.activation_bits)).collect();
    let options = Options { bound, cpu, ..Options::default() };
    let start = Instant::now();
    let price = |node, ignored| sign_cost(plan, node, ignored).1;
    let report = signs::choose(model, &inputs, &price, &options, stage)?;
    signs::apply(model, &report);
    let network = &model.network;
    let layers = report.layers.iter().map(|layer| {
        let (exact, reduced) = (sign_cost(plan, layer.node, 1), sign_cost(plan, layer.node, layer.ignored));
        SignLayer {
            name: network.nodes[layer.node].name.clone(),
            ignored: layer.ignored,
            alone: layer.alone,
            cots: reduced.0,
            cots_exact: exact.0,
            bytes: reduced.1,
            bytes_exact: exact.1,
        }
    });
    Ok(ReducedSigns {
        layers: layers.collect(),
        reduced: network.reduced_signs(),
        took: start.elapsed(),
        worst_error: report.worst_error,
        runs: report.runs,
        limited_by: report.limited_by,
    })
}

/// COTs, and bytes with those of making them, per query of a plan's step if its sign leaves out so many bits besides
/// the guard bits. Exact signs compare those, too.
fn sign_cost(plan: &Plan, node: usize, ignored: u32) -> (u64, u64) {
    let step = &plan.steps[node];
    // One bit is left out even of exact signs.
    let ignored = if ignored > 1 { step.guard_bits + ignored } else { 1 };
    let reduced = step.nonlinear.as_ref().and_then(|layer| layer.ignoring(ignored));
    let cost = reduced.map_or(step.cost, |layer| layer.cost());
    let drawn = cost.from_client() + cost.from_server();
    let making = mean_extension_bytes(plan.choices.instances, drawn);
    (drawn.total(), cost.up + cost.down + cost.prepare_down + making)
}
