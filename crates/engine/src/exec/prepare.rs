//! The offline stage: all that a query needs and that does not depend on its input.

use std::sync::Arc;

use jaguar_graph::network::NodeId;
use jaguar_linear::backend::Online;
use jaguar_mpc::{Argmax, ArgmaxParams, Block, Extend, MpcError, Nonlinear, Party, Truncate};
use jaguar_ot::{Cots, Role};
use jaguar_plan::{DIGIT, Exchange, Schedule};
use jaguar_ring::wipe_stack;
use jaguar_wire::{Channel, Stage};
use serde::{Deserialize, Serialize};

use super::backends::Backends;
use super::clock::{NodeTimes, label};
use super::values::PlannedNetwork;
use crate::error::EngineError;
use crate::progress::Progress;

/// What the client gets to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reveal {
    /// All logits.
    #[default]
    Logits,
    /// The position of the largest logit only.
    Label,
}

/// The hints of linear layers, which the client fetches once: how one role moves and reads them.
pub(crate) trait LayerHints {
    /// Moves what the client lacks of a layer's hint from the server to the client. Says whether that was anything.
    fn transfer(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        progress: &mut dyn Progress,
    ) -> Result<bool, EngineError>;

    /// All of a layer's hint at the client; nothing at the server.
    fn read(&mut self, node: NodeId) -> Result<Arc<Vec<u8>>, EngineError>;
}

/// A step of what completes a block.
type Completing = fn(&mut Block, &mut Channel) -> Result<(), MpcError>;

/// What was prepared for one node.
pub(crate) struct PreparedStep {
    /// Of a linear layer's input, into the layer's domain.
    pub(super) conversion: Option<Vec<Block>>,
    pub(super) op: PreparedOp,
    pub(super) truncation: Option<Truncate>,
    pub(super) extension: Option<Extend>,
}

/// What was prepared for a node's operation.
pub(super) enum PreparedOp {
    /// Input, sums, moves: nothing.
    Local,
    Linear(Box<dyn Online>),
    Nonlinear(Vec<Block>),
}

/// What was prepared for the result.
pub(crate) enum PreparedResult {
    Logits,
    /// One for each image.
    Label(Vec<Argmax>),
}

/// What was prepared for a whole plan.
pub(crate) struct PreparedPlan {
    /// One for each node, in the network's order.
    pub steps: Vec<PreparedStep>,
    pub result: PreparedResult,
}

/// What one role uses in the offline stage of a query.
pub(crate) struct Offline<'a> {
    pub channel: &'a mut Channel,
    pub party: &'a mut Party<Cots>,
    pub backends: &'a mut Backends,
    pub hints: &'a mut dyn LayerHints,
    pub times: &'a mut NodeTimes,
    pub progress: &'a mut dyn Progress,
    /// When the client takes answers; the server has no use for it.
    pub schedule: Schedule,
}

/// Prepares every node and the result. What the client lacks of a linear layer's hint travels when its turn comes, so that
/// the link carries the hint while both parties work on what comes between.
pub(crate) fn prepare(
    planned: PlannedNetwork<'_>,
    reveal: Reveal,
    offline: Offline<'_>,
) -> Result<PreparedPlan, EngineError> {
    // What is prepared has variants of different lengths: its padding is what the stack held, keys of the setup for example.
    wipe_stack::<{ 64 << 10 }>();
    prepare_all(planned, reveal, offline)
}

/// (Not inlined: all of its frame has been wiped.)
#[inline(never)]
fn prepare_all(
    planned: PlannedNetwork<'_>,
    reveal: Reveal,
    mut offline: Offline<'_>,
) -> Result<PreparedPlan, EngineError> {
    let PlannedNetwork { network, plan } = planned;
    offline.party.forget_keys();
    offline.exchange(planned)?;
    if offline.party.role() == Role::Client {
        // From here on the client sends nothing but what belongs to its COTs, unless the plan says so.
        offline.party.promise(plan.promise());
    }
    let mut steps = Vec::with_capacity(plan.steps.len());
    for (id, node) in network.nodes.iter().enumerate() {
        offline.progress.step(Stage::Offline, id, network.nodes.len(), &node.name);
        offline.transfer_hint(planned, id)?;
        let step = offline.prepare_step(planned, id, &mut steps)?;
        steps.push(step);
    }
    let result = match reveal {
        Reveal::Logits => PreparedResult::Logits,
        Reveal::Label => {
            offline.channel.enter(Stage::Offline, "result");
            let count = network.nodes.last().expect("a valid network has nodes").shape.iter().product();
            let bits = plan.steps.last().expect("planned").domain.modulus.bits();
            let params = ArgmaxParams { count, bits, digit: DIGIT };
            let each = (0..plan.images()).map(|_| Argmax::prepare(offline.party, offline.channel, params));
            PreparedResult::Label(each.collect::<Result<_, _>>()?)
        }
    };
    // All that the client promised has been drawn: it may send something else.
    assert_eq!(offline.party.promised(), 0, "the plan's cost counts what its layers draw");
    offline.complete(planned, &mut steps)?;
    // No more products of matrices are made of them.
    offline.party.forget_keys();
    offline.send_early_corrections(planned, &mut steps)?;
    // The peer needs the last of it now; the input may be long in coming.
    offline.channel.flush()?;
    Ok(PreparedPlan { steps, result })
}

impl Offline<'_> {
    /// Exchanges what linear layers' clients send before the input. Their hints come first: nothing else may then stand between an
    /// answer and the one before it.
    fn exchange(&mut self, planned: PlannedNetwork<'_>) -> Result<(), EngineError> {
        let PlannedNetwork { network, plan } = planned;
        for id in plan.exchanging() {
            self.transfer_hint(planned, id)?;
        }
        for step in plan.exchanges(self.schedule) {
            let Self { channel, backends, hints, times, progress, .. } = self;
            let (Exchange::Send(id) | Exchange::Collect(id)) = step;
            let name = &network.nodes[id].name;
            channel.enter(Stage::Offline, &label(id, name));
            let began = times.begin(channel);
            let mut pass = || -> Result<(), EngineError> {
                match step {
                    Exchange::Send(_) => {
                        progress.step(Stage::Offline, id, network.nodes.len(), name);
                        backends.exchange(id, &hints.read(id)?, channel)
                    }
                    Exchange::Collect(_) => backends.collect(id, channel),
                }
            };
            pass().map_err(|e| e.in_layer(name, "offline"))?;
            times.add(Stage::Offline, id, began, channel);
        }
        Ok(())
    }

    /// Moves what the client lacks of the hint of `node`, if it is a linear layer.
    fn transfer_hint(&mut self, planned: PlannedNetwork<'_>, id: NodeId) -> Result<(), EngineError> {
        let Self { channel, hints, times, progress, .. } = self;
        if planned.plan.steps[id].layer.is_none() {
            return Ok(());
        }
        let name = &planned.network.nodes[id].name;
        channel.enter(Stage::Client, &label(id, name));
        let began = times.begin(channel);
        if hints.transfer(id, channel, *progress).map_err(|e| e.in_layer(name, "hint"))? {
            times.add(Stage::Client, id, began, channel);
        }
        Ok(())
    }

    /// Prepares the operation of `node`, with the conversions before and behind it; `before` are the steps before it.
    fn prepare_step(
        &mut self,
        planned: PlannedNetwork<'_>,
        id: NodeId,
        before: &mut [PreparedStep],
    ) -> Result<PreparedStep, EngineError> {
        let Self { channel, party, backends, hints, times, .. } = self;
        let party: &mut Party<Cots> = party;
        let (name, step) = (&planned.network.nodes[id].name, &planned.plan.steps[id]);
        channel.enter(Stage::Offline, &label(id, name));
        let began = times.begin(channel);
        let used = party.used();
        let mut prepare = || -> Result<PreparedStep, EngineError> {
            let conversion = match &step.conversion {
                Some(conversion) => Some(conversion.prepare(party, channel)?),
                None => None,
            };
            let op = match (&step.layer, &step.nonlinear) {
                (Some(layer), _) => {
                    // An exchange had the hint already.
                    let exchanged = layer.traffic().offline.0 > 0;
                    let hint = if exchanged { Arc::default() } else { hints.read(id)? };
                    let prepared = backends.prepare(id, &hint, channel)?;
                    wipe_stack::<{ 64 << 10 }>();
                    PreparedOp::Linear(prepared)
                }
                (_, Some(nonlinear)) => {
                    PreparedOp::Nonlinear(match step.behind.map(|at| &mut before[at].op) {
                        Some(PreparedOp::Nonlinear(first)) => {
                            nonlinear.prepare_behind(first, party, channel)?
                        }
                        _ => nonlinear.prepare(party, channel)?,
                    })
                }
                (None, None) => PreparedOp::Local,
            };
            let truncation = match step.truncation {
                Some(params) => Some(Truncate::prepare(party, channel, step.values, params)?),
                None => None,
            };
            let extension = match step.extension {
                Some(params) => Some(Extend::prepare(party, channel, step.values, params)?),
                None => None,
            };
            Ok(PreparedStep { conversion, op, truncation, extension })
        };
        let prepared = prepare().map_err(|e| e.in_layer(name, "offline"))?;
        let after = party.used();
        times.cots[id] = (after.0 + after.1).total() - (used.0 + used.1).total();
        times.add(Stage::Offline, id, began, channel);
        Ok(prepared)
    }

    /// Sends what is left to be said of the preparation of nonlinear layers, and takes the answers.
    fn complete(
        &mut self,
        planned: PlannedNetwork<'_>,
        steps: &mut [PreparedStep],
    ) -> Result<(), EngineError> {
        let Self { channel, times, .. } = self;
        let PlannedNetwork { network, plan } = planned;
        for completion in plan.completions() {
            let (id, what): (_, Completing) = match completion {
                Exchange::Send(id) => (id, Block::complete),
                Exchange::Collect(id) => (id, Block::settle),
            };
            let PreparedOp::Nonlinear(blocks) = &mut steps[id].op else { continue };
            let name = &network.nodes[id].name;
            channel.enter(Stage::Offline, &label(id, name));
            let began = times.begin(channel);
            let done = blocks.iter_mut().try_for_each(|block| what(block, channel));
            done.map_err(|e| EngineError::from(e).in_layer(name, "offline"))?;
            times.add(Stage::Offline, id, began, channel);
        }
        Ok(())
    }

    /// Sends what the client can send of nonlinear layers before the input is known: where it knows its share of their operand
    /// (the plan's `early`).
    fn send_early_corrections(
        &mut self,
        planned: PlannedNetwork<'_>,
        steps: &mut [PreparedStep],
    ) -> Result<(), EngineError> {
        let PlannedNetwork { network, plan } = planned;
        let Self { channel, party, times, .. } = self;
        for (id, node) in network.nodes.iter().enumerate().filter(|&(id, _)| plan.steps[id].early) {
            channel.enter(Stage::Offline, &label(id, &node.name));
            let began = times.begin(channel);
            let (before, from_here) = steps.split_at_mut(id);
            let output = |of: NodeId| match &before[of].op {
                PreparedOp::Linear(linear) => linear.early_output().expect("the client knows it"),
                _ => unreachable!("the plan asks for shares of linear layers only"),
            };
            let operand = node.inputs[0];
            let local;
            let share = match (party.role(), &before[operand].op) {
                (Role::Server, _) => None,
                (_, PreparedOp::Linear(_)) => Some(output(operand)),
                _ => {
                    let inputs = &network.nodes[operand].inputs;
                    local = planned.local(operand, |i| output(inputs[i]));
                    Some(&local[..])
                }
            };
            if let PreparedOp::Nonlinear(blocks) = &mut from_here[0].op {
                for block in blocks {
                    let sent = block.correct(channel, share.map(|share| &share[block.inputs()]));
                    sent.map_err(|e| EngineError::from(e).in_layer(&node.name, "offline"))?;
                }
            }
            times.add(Stage::Offline, id, began, channel);
        }
        Ok(())
    }
}
