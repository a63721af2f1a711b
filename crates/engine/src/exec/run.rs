//! The online stage: the walk over the network.
//!
//! Everything that waits for no answer is done first: local operations, linear layers. What needs answers, the nonlinear
//! layers that are ready then, makes up a *wave*: their blocks go through their steps together, so that tensors which do not
//! depend on each other share their rounds, and linear layers behind them get their ciphertexts block by block. Then the
//! next wave. All of it follows from the public network, so both parties do it in the same order.
//!
//! A linear layer's output may be incomplete when the wave behind it begins, and so may a sum of such: a block's first step has
//! computed what it takes in, and leaves before the rest is computed. Whatever else reads a value has all of it computed before.

use jaguar_graph::network::{Joined, NodeId, Work};
use jaguar_linear::backend::Online;
use jaguar_mpc::{Block, Extend, Surroundings, Truncate, drive};
use jaguar_ot::Role;
use jaguar_plan::Step;
use jaguar_wire::{Channel, Stage};
use zeroize::Zeroizing;

use super::clock::{Account, NodeTimes};
use super::prepare::{PreparedOp, PreparedStep};
use super::values::{
    PlannedNetwork, Share, ShareObserver, Value, Values, adds, one_behind_the_other, pairs, reduce, reduced,
};
use crate::error::EngineError;
use crate::progress::Progress;

/// Who hears of a run.
pub(crate) struct Observers<'a> {
    pub times: &'a mut NodeTimes,
    pub progress: &'a mut dyn Progress,
    pub shares: ShareObserver<'a>,
}

/// Runs the plan as `role` on this party's share of the input, `[C, H, W]`; returns its share of the output, in the last step's ring.
pub(crate) fn run(
    planned: PlannedNetwork<'_>,
    role: Role,
    channel: &mut Channel,
    steps: Vec<PreparedStep>,
    input: Share,
    observers: Observers<'_>,
) -> Result<Share, EngineError> {
    let nodes = &planned.network.nodes;
    let mut consumers = vec![Vec::new(); nodes.len()];
    for (id, node) in nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&i| consumers[i].push(id));
    }
    let Observers { times, progress, shares } = observers;
    let mut walk = Walk {
        planned,
        role,
        account: Account { network: planned.network, channel, times },
        progress,
        values: Values::new(planned, shares),
        steps: steps.into_iter().map(Some).collect(),
        consumers,
        input: Some(input),
        wave: Vec::new(),
    };
    walk.account.channel.set_turn(false);
    let mut todo: Vec<NodeId> = (0..nodes.len()).collect();
    loop {
        walk.begin_ready(&mut todo)?;
        if walk.wave.is_empty() {
            break;
        }
        walk.run_wave()?;
    }
    // What nobody read is computed now: it is observed like the others.
    (0..nodes.len()).try_for_each(|id| walk.values.complete(&mut walk.account, id))?;
    Ok(walk.values.into_output())
}

/// A nonlinear layer, or the extension behind a layer, in a wave.
struct Job {
    node: NodeId,
    blocks: Vec<Block>,
    /// What it works on; if none, the value of the node's input.
    operand: Option<Value>,
    /// The outputs of the blocks that are through, from the first on.
    output: Share,
    /// The linear layer that takes them, if they are its converted input.
    linear: Option<Box<dyn Online>>,
    truncation: Option<Truncate>,
    extension: Option<Extend>,
}

impl Job {
    /// Whether what its blocks make is the node's value as it is.
    fn is_value(&self) -> bool {
        self.linear.is_none() && self.truncation.is_none() && self.extension.is_none()
    }
}

/// One role's run.
struct Walk<'a> {
    planned: PlannedNetwork<'a>,
    role: Role,
    account: Account<'a>,
    progress: &'a mut dyn Progress,
    values: Values<'a>,
    /// By node: what was prepared, until it begins.
    steps: Vec<Option<PreparedStep>>,
    /// By node: who reads its value.
    consumers: Vec<Vec<NodeId>>,
    /// This party's share of the network's input, until the input node begins.
    input: Option<Share>,
    wave: Vec<Job>,
}

impl Walk<'_> {
    /// Begins every node whose inputs have begun; leaves the others in `todo`.
    fn begin_ready(&mut self, todo: &mut Vec<NodeId>) -> Result<(), EngineError> {
        let nodes = &self.planned.network.nodes;
        for id in std::mem::take(todo) {
            if nodes[id].inputs.iter().any(|&i| self.values.of(i).is_none()) {
                todo.push(id);
                continue;
            }
            self.progress.step(Stage::Online, id, nodes.len(), &nodes[id].name);
            let PreparedStep { conversion, op, truncation, extension } =
                self.steps[id].take().expect("begins once");
            let (blocks, linear, op) = match (conversion, op) {
                (None, PreparedOp::Nonlinear(blocks)) => (Some(blocks), None, PreparedOp::Local),
                (Some(blocks), PreparedOp::Linear(linear)) => (Some(blocks), Some(linear), PreparedOp::Local),
                (_, op) => (None, None, op),
            };
            if let Some(blocks) = blocks {
                let operand = if linear.is_none() { self.two(id)? } else { None };
                let output = room(&blocks);
                self.wave.push(Job { node: id, blocks, operand, output, linear, truncation, extension });
                continue;
            }
            let incomplete = |&i: &NodeId| !self.values.of(i).is_some_and(Value::is_complete);
            if adds(&nodes[id]) && nodes[id].inputs.iter().any(incomplete) {
                let sum = Vec::with_capacity(self.planned.plan.steps[id].values);
                let sum = Value::PartialSum(Zeroizing::new(sum));
                self.convert_and_keep(id, sum, truncation, extension)?;
                continue;
            }
            nodes[id].inputs.iter().try_for_each(|&i| self.values.complete(&mut self.account, i))?;
            let output = self.compute(id, op)?;
            self.values.release_inputs(id);
            self.convert_and_keep(id, output, truncation, extension)?;
        }
        Ok(())
    }

    /// What a nonlinear layer of two inputs works on. `None` where it works on one.
    fn two(&mut self, id: NodeId) -> Result<Option<Value>, EngineError> {
        let node = &self.planned.network.nodes[id];
        let Work::Interactive(operator) = node.op.work() else { return Ok(None) };
        let join = match operator.shares().joined {
            _ if node.inputs.len() != 2 || self.planned.network.takes_once(id) => return Ok(None),
            Joined::Pairs => pairs,
            Joined::OneBehindTheOther => one_behind_the_other,
        };
        node.inputs.iter().try_for_each(|&i| self.values.complete(&mut self.account, i))?;
        let joined = join(self.values.input(id, 0), self.values.input(id, 1));
        self.values.release_inputs(id);
        Ok(Some(Value::Complete(joined)))
    }

    /// A linear layer or a local operation, on inputs that are complete.
    fn compute(&mut self, id: NodeId, op: PreparedOp) -> Result<Value, EngineError> {
        let Self { planned, role, account, values, input, .. } = self;
        let PlannedNetwork { network, plan } = *planned;
        account.timed(id, |channel| match op {
            PreparedOp::Linear(online) => {
                let layer = plan.steps[id].layer.as_ref().expect("planned");
                let x = reduce(values.input(id, 0), layer.input().modulus);
                linear(&plan.steps[id], *role, online, channel, &x)
            }
            PreparedOp::Nonlinear(_) => unreachable!("part of a wave"),
            PreparedOp::Local => {
                let value = match network.nodes[id].op.work() {
                    Work::Input => input.take().expect("one input"),
                    Work::Local(_) => planned.local(id, |i| values.input(id, i)),
                    Work::Linear(_) | Work::Interactive(_) => {
                        unreachable!("the plan has a backend or a protocol for it")
                    }
                };
                Ok(Value::Complete(reduced(value, plan.steps[id].computed.modulus)))
            }
        })
    }

    /// Behind a node's operation: truncates its output, then extends it (as a job of the next wave) or keeps it as the node's
    /// value.
    fn convert_and_keep(
        &mut self,
        node: NodeId,
        mut output: Value,
        truncation: Option<Truncate>,
        extension: Option<Extend>,
    ) -> Result<(), EngineError> {
        if let Some(truncation) = truncation {
            let products = self.values.complete_value(&mut self.account, node, output)?;
            let truncated = self.account.timed(node, |channel| Ok(truncation.run(channel, &products)?))?;
            output = Value::Complete(Zeroizing::new(truncated));
        }
        match extension {
            Some(extension) => {
                let blocks = extension.into_blocks();
                let (operand, output) = (Some(output), room(&blocks));
                let (linear, truncation, extension) = (None, None, None);
                self.wave.push(Job { node, blocks, operand, output, linear, truncation, extension });
            }
            None => self.values.keep(node, output),
        }
        Ok(())
    }

    /// Takes all steps of all blocks of the wave.
    fn run_wave(&mut self) -> Result<(), EngineError> {
        let mut jobs = std::mem::take(&mut self.wave);
        let (mut blocks, mut job_of) = (Vec::new(), Vec::new());
        for (j, job) in jobs.iter_mut().enumerate() {
            job_of.resize(job_of.len() + job.blocks.len(), j);
            blocks.append(&mut job.blocks);
        }
        drive(blocks, &mut Wave { walk: self, jobs: &mut jobs, job_of: &job_of })?;
        for job in jobs {
            match job.operand {
                // A sum's operands have been read.
                Some(operand) => drop(self.values.complete_value(&mut self.account, job.node, operand)?),
                None => {
                    let input = self.planned.network.nodes[job.node].inputs[0];
                    self.values.complete(&mut self.account, input)?;
                    self.values.release_inputs(job.node);
                }
            }
            let output = match job.linear {
                Some(online) => {
                    let (step, role) = (&self.planned.plan.steps[job.node], self.role);
                    self.account
                        .timed(job.node, |channel| linear(step, role, online, channel, &job.output))?
                }
                None => Value::Complete(job.output),
            };
            self.convert_and_keep(job.node, output, job.truncation, job.extension)?;
        }
        Ok(())
    }

    /// Makes at least the first `count` elements of what a job works on.
    fn make_operand(&mut self, job: &mut Job, count: usize) -> Result<(), EngineError> {
        if let Some(operand) = &mut job.operand {
            return self.values.make(&mut self.account, job.node, operand, count);
        }
        let input = self.planned.network.nodes[job.node].inputs[0];
        self.values.make_kept(&mut self.account, input, count)
    }

    /// The linear layers behind `node` that take its output as it comes, where both parties have begun it.
    fn streams(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let begun = |step: &Option<PreparedStep>| {
            matches!(step, Some(PreparedStep { conversion: None, op: PreparedOp::Linear(_), .. }))
        };
        let taken = move |&id: &NodeId| self.planned.plan.steps[id].layer.is_some() && begun(&self.steps[id]);
        self.consumers[node].iter().copied().filter(taken)
    }

    /// Receives what the client sends of linear layers behind `node` when it knows the first `count` values of its output.
    fn receive_for_linear_consumers(&mut self, node: NodeId, count: usize) -> Result<(), EngineError> {
        for id in self.streams(node).collect::<Vec<_>>() {
            let Some(PreparedStep { op: PreparedOp::Linear(linear), .. }) = &mut self.steps[id] else {
                continue;
            };
            self.account.timed(id, |channel| Ok(linear.receive(channel, count)?))?;
        }
        Ok(())
    }

    /// Sends those ciphertexts of linear layers behind `node` that follow from `output`, the first values of its output.
    fn feed_linear_consumers(&mut self, node: NodeId, output: &[u64]) -> Result<(), EngineError> {
        for id in self.streams(node).collect::<Vec<_>>() {
            let Some(PreparedStep { op: PreparedOp::Linear(linear), .. }) = &mut self.steps[id] else {
                continue;
            };
            // The layer's own beginning counts, whenever that is: no round hangs on how far others have come.
            self.account
                .timed(id, |channel| Ok(channel.alongside(|channel| linear.feed(channel, output))?))?;
        }
        Ok(())
    }
}

/// A wave, as its blocks see it.
struct Wave<'w, 'a> {
    walk: &'w mut Walk<'a>,
    jobs: &'w mut [Job],
    /// By block: whose it is.
    job_of: &'w [usize],
}

impl Wave<'_, '_> {
    /// What a job works on, as far as it is there.
    fn operand<'j>(&'j self, job: &'j Job) -> &'j [u64] {
        match &job.operand {
            Some(operand) => operand.available(),
            None => self.walk.values.input(job.node, 0),
        }
    }
}

impl Surroundings for Wave<'_, '_> {
    type Error = EngineError;

    fn on<T>(
        &mut self,
        b: usize,
        work: impl FnOnce(&mut Channel) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.walk.account.timed(self.jobs[self.job_of[b]].node, work)
    }

    fn is_there(&self, b: usize, block: &Block) -> bool {
        self.operand(&self.jobs[self.job_of[b]]).len() >= block.inputs().end
    }

    fn start(&mut self, b: usize, block: &mut Block) -> Result<(), EngineError> {
        let job = &mut self.jobs[self.job_of[b]];
        self.walk.make_operand(job, block.inputs().end)?;
        let Walk { account, values, .. } = &mut *self.walk;
        account.timed(job.node, |_| {
            let operand = job.operand.as_ref().map_or_else(|| values.input(job.node, 0), Value::available);
            Ok(block.start(&operand[block.inputs()])?)
        })
    }

    fn finish(&mut self, b: usize, results: Zeroizing<Vec<u64>>) -> Result<(), EngineError> {
        // A layer's blocks have equally many steps, so they come through in order.
        let job = &mut self.jobs[self.job_of[b]];
        job.output.extend_from_slice(&results);
        if job.is_value() {
            self.walk.feed_linear_consumers(job.node, &job.output)?;
        }
        Ok(())
    }

    fn follows(&self, b: usize) -> bool {
        let job = &self.jobs[self.job_of[b]];
        self.walk.role == Role::Server && job.is_value() && self.walk.streams(job.node).next().is_some()
    }

    fn receive(&mut self, b: usize, block: &Block) -> Result<(), EngineError> {
        self.walk.receive_for_linear_consumers(self.jobs[self.job_of[b]].node, block.outputs().end)
    }
}

/// Room for all that the blocks of a layer make.
fn room(blocks: &[Block]) -> Share {
    Zeroizing::new(Vec::with_capacity(blocks.last().map_or(0, |block| block.outputs().end)))
}

/// The linear layer of `step`, on all of this party's share of its input, in the layer's domain.
fn linear(
    step: &Step,
    role: Role,
    mut online: Box<dyn Online>,
    channel: &mut Channel,
    x: &[u64],
) -> Result<Value, EngineError> {
    if role == Role::Client && step.layer.as_ref().is_some_and(|layer| layer.traffic().online.0 > 0) {
        // Also where all has been sent, as it came.
        channel.set_turn(true);
    }
    online.feed_all(channel, x)?;
    let output = online.finish(channel, x)?;
    let all = output.values().len() == step.values;
    Ok(if all { Value::Complete(Zeroizing::new(output.into_values())) } else { Value::Partial(output) })
}
