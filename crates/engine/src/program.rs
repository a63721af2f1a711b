//! Walking a plan, for both roles: prepare every step, then run them in order.

use std::time::{Duration, Instant};

use jaguar_graph::network::{Network, NodeId, Op};
use jaguar_graph::reference;
use jaguar_linear::backend::{Layers, Online, Output, Party as LinearParty};
use jaguar_mpc::{Argmax, ArgmaxParams, Block, Extend, Party, Truncate, lead, order};
use jaguar_ot::{Cots, Role};
use jaguar_plan::{DIGIT, Plan};
use jaguar_wire::{Channel, Phase};

use crate::EngineError;
use crate::message::Reveal;
use crate::report::Progress;

/// One role's way through a plan.
pub(crate) struct Program<'a> {
    pub network: &'a Network,
    pub plan: &'a Plan,
}

/// Sees this party's share of every node's value: `(node, share)`. Only `verify` looks.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(usize, &[u64]);

/// Who looks on while a plan runs.
pub(crate) struct Onlookers<'a> {
    pub clock: &'a mut Clock,
    pub progress: &'a mut dyn Progress,
    pub watch: Watch<'a>,
}

/// What the client fetches once of every layer, on its way: how one role passes it on.
pub(crate) trait HintPath {
    /// Passes on what the client's hint lacks of a layer, from the server to the client. Says whether that was anything.
    fn pass(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        progress: &mut dyn Progress,
    ) -> Result<bool, EngineError>;

    /// All of a layer's hint, at the client; nothing at the server.
    fn of(&mut self, node: NodeId) -> Result<Vec<u8>, EngineError>;
}

/// One role's parties in a session: one for each backend of the plan, in the plan's order.
pub(crate) struct Backends {
    parties: Vec<Box<dyn LinearParty>>,
    /// By node: whose it is.
    of_node: Vec<Option<usize>>,
}

impl Backends {
    /// Makes a party of each backend.
    pub fn new(plan: &Plan, party: impl FnMut(&std::sync::Arc<dyn Layers>) -> Box<dyn LinearParty>) -> Self {
        let of_node =
            (0..plan.steps.len()).map(|id| plan.backends.iter().position(|b| b.layer(id).is_some()));
        Self { parties: plan.backends.iter().map(party).collect(), of_node: of_node.collect() }
    }

    /// Once per session: keys.
    pub fn setup(&mut self, channel: &mut Channel) -> Result<(), EngineError> {
        self.parties.iter_mut().try_for_each(|party| Ok(party.setup(channel)?))
    }

    /// Once per query: fresh secrets.
    pub fn begin_query(&mut self, channel: &mut Channel) -> Result<(), EngineError> {
        self.parties.iter_mut().try_for_each(|party| Ok(party.begin_query(channel)?))
    }

    fn prepare(
        &mut self,
        node: NodeId,
        hint: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, EngineError> {
        let party = self.of_node[node].expect("a linear layer has a backend");
        Ok(self.parties[party].prepare(node, hint, channel)?)
    }
}

/// What was prepared for one node.
pub(crate) struct PreparedStep {
    op: PreparedOp,
    truncation: Option<Truncate>,
    extension: Option<Extend>,
}

enum PreparedOp {
    /// Input, sums, moves.
    Local,
    Linear(Box<dyn Online>),
    Nonlinear(Vec<Block>),
}

/// What was prepared for the result.
pub(crate) enum PreparedResult {
    Logits,
    Label(Box<Argmax>),
}

/// What was prepared for a whole plan.
pub(crate) type PreparedPlan = (Vec<PreparedStep>, PreparedResult);

/// Time by node: wall, and waiting for the peer.
pub(crate) struct Clock {
    /// All times count from here.
    origin: Instant,
    /// Fetching or sending what the client's hint lacked.
    pub hint: Vec<Spent>,
    pub preparing: Vec<Spent>,
    pub online: Vec<Spent>,
    /// All of these in the order in which they ended.
    pub pieces: Vec<(Phase, NodeId, Spent)>,
    /// Correlated OTs by node, both directions.
    pub cots: Vec<u64>,
    /// When all of the first linear layer's input had been passed.
    pub first_input: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub start: Duration,
    pub wall: Duration,
    pub waited: Duration,
}

impl Spent {
    /// Time in which this party worked.
    pub fn busy(&self) -> Duration {
        self.wall.saturating_sub(self.waited)
    }
}

impl Clock {
    pub fn new(nodes: usize) -> Self {
        Self {
            origin: Instant::now(),
            hint: vec![Spent::default(); nodes],
            preparing: vec![Spent::default(); nodes],
            online: vec![Spent::default(); nodes],
            pieces: Vec::new(),
            cots: vec![0; nodes],
            first_input: None,
        }
    }

    /// What began at `start` and ends now.
    fn since(&self, start: Instant, waited: Duration) -> Spent {
        Spent { start: start - self.origin, wall: start.elapsed(), waited }
    }

    /// Adds what began at `start` and ends now to a node's time. Its work may come in pieces, with other nodes' in between.
    fn add(&mut self, phase: Phase, node: NodeId, start: Instant, waited: Duration) {
        let piece = self.since(start, waited);
        let spent = match phase {
            Phase::Model | Phase::Client => &mut self.hint,
            Phase::Preprocessing => &mut self.preparing,
            Phase::Online => &mut self.online,
        };
        let spent = &mut spent[node];
        if spent.wall.is_zero() {
            spent.start = piece.start;
        }
        spent.wall += piece.wall;
        spent.waited += piece.waited;
        self.pieces.push((phase, node, piece));
    }

    /// When it was made.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Since it was made.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// This party's work by node, in microseconds.
pub(crate) fn work(spent: &[Spent]) -> Vec<u32> {
    spent.iter().map(|s| u32::try_from(s.busy().as_micros()).unwrap_or(u32::MAX)).collect()
}

/// The label under which a node's traffic is counted.
pub(crate) fn label(node: usize, name: &str) -> String {
    format!("{node:04} {name}")
}

/// Shares of the whole plan are reduced to the ring in which they are used.
fn reduce(x: &[u64], bits: u32) -> Vec<u64> {
    let mask = u64::MAX >> (64 - bits);
    x.iter().map(|v| v & mask).collect()
}

/// Sums and moves, which each party does on its own shares: what the reference does on plain values, for these operations are
/// linear over the integers and so over every ring. (The plan keeps the sums below 2^63.) Inputs of less excess than the
/// result's are scaled up. What [`Op::Add`] is given may be the same part of both inputs.
fn local<'a>(network: &Network, plan: &Plan, node: NodeId, arg: impl Fn(usize) -> &'a [u64]) -> Vec<u64> {
    let step = &plan.steps[node];
    let scaled = |(i, &from): (usize, &NodeId)| -> Vec<i64> {
        let up = step.excess - plan.steps[from].excess;
        if up == 0 {
            return arg(i).iter().map(|&v| v as i64).collect();
        }
        let mask = u64::MAX >> (64 - step.ring);
        arg(i).iter().map(|&v| (v << up & mask) as i64).collect()
    };
    let inputs: Vec<Vec<i64>> = network.nodes[node].inputs.iter().enumerate().map(scaled).collect();
    if let (Op::Add, [x, y]) = (&network.nodes[node].op, &inputs[..]) {
        return x.iter().zip(y).map(|(x, y)| (x + y) as u64).collect();
    }
    let inputs: Vec<&[i64]> = inputs.iter().map(Vec::as_slice).collect();
    let value =
        reference::apply_op(network, node, None, &inputs).expect("a valid network, and its own shapes");
    value.into_iter().map(|v| v as u64).collect()
}

impl Program<'_> {
    /// Prepares every node and the result. What the client lacks of a linear layer's hint travels when its turn comes, so that
    /// the link carries the hint while both parties work on what comes between.
    #[allow(clippy::too_many_arguments)]
    pub fn prepare(
        &self,
        channel: &mut Channel,
        party: &mut Party<Cots>,
        reveal: Reveal,
        clock: &mut Clock,
        progress: &mut dyn Progress,
        backends: &mut Backends,
        hints: &mut dyn HintPath,
    ) -> Result<PreparedPlan, EngineError> {
        if party.role() == Role::Client {
            // In preparation the client sends nothing but what belongs to its COTs.
            party.promise(self.plan.nonlinear_cost().bits_from_client);
        }
        let mut steps = Vec::with_capacity(self.plan.steps.len());
        for (id, (node, step)) in self.network.nodes.iter().zip(&self.plan.steps).enumerate() {
            progress.step(Phase::Preprocessing, id, self.network.nodes.len(), &node.name);
            if step.layer.is_some() {
                channel.enter(Phase::Client, &label(id, &node.name));
                let (start, waited) = (Instant::now(), channel.waited());
                let passed = hints.pass(id, channel, progress);
                if passed.map_err(|e| e.in_layer(&node.name, "hint"))? {
                    clock.add(Phase::Client, id, start, channel.waited() - waited);
                }
            }
            channel.enter(Phase::Preprocessing, &label(id, &node.name));
            let (start, waited) = (Instant::now(), channel.waited());
            let before = party.used();
            let mut prepare = || -> Result<PreparedStep, EngineError> {
                let op = match (&step.layer, &step.nonlinear) {
                    (Some(_), _) => PreparedOp::Linear(backends.prepare(id, &hints.of(id)?, channel)?),
                    (_, Some(nonlinear)) => PreparedOp::Nonlinear(nonlinear.prepare(party, channel)?),
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
                Ok(PreparedStep { op, truncation, extension })
            };
            steps.push(prepare().map_err(|e| e.in_layer(&node.name, "preparing"))?);
            let after = party.used();
            clock.cots[id] = (after.0 + after.1).total() - (before.0 + before.1).total();
            clock.add(Phase::Preprocessing, id, start, channel.waited() - waited);
        }
        let last = self.network.nodes.last().expect("a valid network has nodes");
        let result = match reveal {
            Reveal::Logits => PreparedResult::Logits,
            Reveal::Label => {
                channel.enter(Phase::Preprocessing, "result");
                let bits = self.plan.steps.last().expect("planned").ring;
                let count = last.shape.iter().product();
                let params = ArgmaxParams { count, bits, digit: DIGIT };
                PreparedResult::Label(Box::new(Argmax::prepare(party, channel, params)?))
            }
        };
        // All that the client promised has been drawn: it may send something else.
        self.correct(channel, party.role(), &mut steps, clock)?;
        // The peer needs the last of it now; the input may be long in coming.
        channel.flush()?;
        Ok((steps, result))
    }

    /// What the client can send of nonlinear layers before the input is known, where it knows its share of their operand (the
    /// plan's `early`).
    fn correct(
        &self,
        channel: &mut Channel,
        role: Role,
        steps: &mut [PreparedStep],
        clock: &mut Clock,
    ) -> Result<(), EngineError> {
        for (id, node) in self.network.nodes.iter().enumerate().filter(|&(id, _)| self.plan.steps[id].early) {
            channel.enter(Phase::Preprocessing, &label(id, &node.name));
            let (start, waited) = (Instant::now(), channel.waited());
            let (before, from_here) = steps.split_at_mut(id);
            let output = |of: NodeId| match &before[of].op {
                PreparedOp::Linear(linear) => linear.early_output().expect("the client knows it"),
                _ => unreachable!("the plan asks for shares of linear layers only"),
            };
            let operand = node.inputs[0];
            let made;
            let share = match (role, &before[operand].op) {
                (Role::Server, _) => None,
                (_, PreparedOp::Linear(_)) => Some(output(operand)),
                _ => {
                    let inputs = &self.network.nodes[operand].inputs;
                    made = local(self.network, self.plan, operand, |i| output(inputs[i]));
                    Some(&made[..])
                }
            };
            if let PreparedOp::Nonlinear(blocks) = &mut from_here[0].op {
                for block in blocks {
                    let sent = block.correct(channel, share.map(|share| &share[block.inputs()]));
                    sent.map_err(|e| EngineError::from(e).in_layer(&node.name, "preparing"))?;
                }
            }
            clock.add(Phase::Preprocessing, id, start, channel.waited() - waited);
        }
        Ok(())
    }

    /// Runs the plan on this party's share of the input; returns its share of the output, in the last step's ring.
    ///
    /// Everything that waits for no answer is done first: local operations, linear layers. What needs answers, the nonlinear
    /// layers that are ready then, makes up a *wave*: their blocks go through their steps together, so that tensors which do not
    /// depend on each other share their rounds, and linear layers behind them get their ciphertexts block by block. Then the
    /// next wave. All of it follows from the public network, so both parties do it in the same order.
    ///
    /// A linear layer's output may still be in the making when the wave behind it begins ([`Output`]), and so may a sum of such:
    /// a block's first step has made what it takes in, and leaves before the rest is made. Whatever else reads a value has all
    /// of it made before.
    pub fn run(
        &self,
        channel: &mut Channel,
        steps: Vec<PreparedStep>,
        input: Vec<u64>,
        onlookers: Onlookers<'_>,
    ) -> Result<Vec<u64>, EngineError> {
        let nodes = &self.network.nodes;
        let mut consumers = vec![Vec::new(); nodes.len()];
        for (id, node) in nodes.iter().enumerate() {
            node.inputs.iter().for_each(|&i| consumers[i].push(id));
        }
        let mut walk = Walk {
            program: self,
            channel,
            onlookers,
            steps: steps.into_iter().map(Some).collect(),
            uses: consumers.iter().map(Vec::len).collect(),
            consumers,
            values: (0..nodes.len()).map(|_| None).collect(),
            input: Some(input),
            wave: Vec::new(),
        };
        let mut todo: Vec<NodeId> = (0..nodes.len()).collect();
        loop {
            walk.begin(&mut todo)?;
            if walk.wave.is_empty() {
                break;
            }
            walk.run_wave()?;
        }
        // What nobody read is made now: it is looked at like the others.
        (0..nodes.len()).try_for_each(|id| walk.complete(id))?;
        match walk.values.pop().flatten() {
            Some(Value::Whole(output)) => Ok(output),
            _ => unreachable!("a valid network has an output, and it is complete"),
        }
    }
}

/// This party's share of a node's value.
enum Value {
    Whole(Vec<u64>),
    /// Of a linear layer, in the making.
    Making(Box<dyn Output>),
    /// The first elements of a sum of which some operand is in the making.
    Sum(Vec<u64>),
}

impl Value {
    /// The elements that are there.
    fn made(&self) -> &[u64] {
        match self {
            Self::Whole(made) | Self::Sum(made) => made,
            Self::Making(output) => output.values(),
        }
    }
}

/// A nonlinear layer, or what follows a layer, in a wave.
struct Job {
    node: NodeId,
    blocks: Vec<Block>,
    /// What it works on; if none, the value of the node's input.
    operand: Option<Value>,
    /// The outputs of the blocks that are through, from the first on.
    made: Vec<u64>,
    truncation: Option<Truncate>,
    extension: Option<Extend>,
}

/// One role's run.
struct Walk<'a, 'o> {
    program: &'a Program<'a>,
    channel: &'a mut Channel,
    onlookers: Onlookers<'o>,
    /// Until they begin.
    steps: Vec<Option<PreparedStep>>,
    /// From when their making begins until their last consumer has read them: that is when it begins, or when it is through if it
    /// reads them in pieces.
    values: Vec<Option<Value>>,
    /// Consumers that have not read all of it.
    uses: Vec<usize>,
    consumers: Vec<Vec<NodeId>>,
    input: Option<Vec<u64>>,
    wave: Vec<Job>,
}

impl Walk<'_, '_> {
    /// Does `work` on a node's account.
    fn on<T>(
        &mut self,
        node: NodeId,
        work: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let name = &self.program.network.nodes[node].name;
        self.channel.enter(Phase::Online, &label(node, name));
        let (start, waited) = (Instant::now(), self.channel.waited());
        let result = work(self).map_err(|e| e.in_layer(name, "online"))?;
        let waited = self.channel.waited() - waited;
        self.onlookers.clock.add(Phase::Online, node, start, waited);
        Ok(result)
    }

    /// Begins every node whose inputs are there or in the making; leaves in `todo` the others.
    fn begin(&mut self, todo: &mut Vec<NodeId>) -> Result<(), EngineError> {
        let nodes = &self.program.network.nodes;
        for id in std::mem::take(todo) {
            if nodes[id].inputs.iter().any(|&i| self.values[i].is_none()) {
                todo.push(id);
                continue;
            }
            self.onlookers.progress.step(Phase::Online, id, nodes.len(), &nodes[id].name);
            let PreparedStep { op, truncation, extension } = self.steps[id].take().expect("begins once");
            if let PreparedOp::Nonlinear(blocks) = op {
                let (operand, made) = (None, Vec::new());
                self.wave.push(Job { node: id, blocks, operand, made, truncation, extension });
                continue;
            }
            let in_the_making = |&i: &NodeId| !matches!(self.values[i], Some(Value::Whole(_)));
            if matches!(nodes[id].op, Op::Add) && nodes[id].inputs.iter().any(in_the_making) {
                let sum = Value::Sum(Vec::with_capacity(self.program.plan.steps[id].values));
                self.follow(id, sum, truncation, extension)?;
                continue;
            }
            nodes[id].inputs.iter().try_for_each(|&i| self.complete(i))?;
            let made = self.on(id, |walk| walk.compute(id, op))?;
            self.release(id);
            self.follow(id, made, truncation, extension)?;
        }
        Ok(())
    }

    /// What is there of the value of input `i` of node `id`.
    fn input(&self, id: NodeId, i: usize) -> &[u64] {
        let from = self.program.network.nodes[id].inputs[i];
        self.values[from].as_ref().expect("its consumers keep it").made()
    }

    /// A linear layer or a local operation, on inputs that are whole.
    fn compute(&mut self, id: NodeId, op: PreparedOp) -> Result<Value, EngineError> {
        let Program { network, plan } = *self.program;
        match op {
            PreparedOp::Linear(mut linear) => {
                let layer = plan.steps[id].layer.as_ref().expect("planned");
                let x = reduce(self.input(id, 0), layer.input().bits);
                linear.feed_all(self.channel, &x)?;
                self.onlookers.clock.first_input.get_or_insert_with(Instant::now);
                let output = linear.finish(self.channel, &x)?;
                let all = output.values().len() == plan.steps[id].values;
                Ok(if all { Value::Whole(output.into_values()) } else { Value::Making(output) })
            }
            PreparedOp::Nonlinear(_) => unreachable!("part of a wave"),
            PreparedOp::Local => {
                let value = match &network.nodes[id].op {
                    Op::Input => self.input.take().expect("one input"),
                    _ => local(network, plan, id, |i| self.input(id, i)),
                };
                Ok(Value::Whole(reduce(&value, plan.steps[id].made)))
            }
        }
    }

    /// Makes at least the first `count` elements of `value`, which is that of `node`, or what the operation that follows it takes.
    fn make(&mut self, node: NodeId, value: &mut Value, count: usize) -> Result<(), EngineError> {
        if value.made().len() >= count {
            return Ok(());
        }
        match value {
            Value::Whole(_) => Ok(()),
            Value::Making(output) => self.on(node, |_| {
                output.make(count);
                Ok(())
            }),
            Value::Sum(made) => {
                let Program { network, plan } = *self.program;
                network.nodes[node].inputs.iter().try_for_each(|&i| self.make_kept(i, count))?;
                self.on(node, |walk| {
                    let new = made.len()..count;
                    let sum = local(network, plan, node, |i| &walk.input(node, i)[new.clone()]);
                    made.extend(reduce(&sum, plan.steps[node].made));
                    Ok(())
                })
            }
        }
    }

    /// Makes at least the first `count` elements of a node's value, which is kept for its consumers.
    fn make_kept(&mut self, node: NodeId, count: usize) -> Result<(), EngineError> {
        let mut value = self.values[node].take().expect("its consumers keep it");
        self.make(node, &mut value, count)?;
        self.values[node] = Some(value);
        Ok(())
    }

    /// Makes the rest of `value`, which is that of `node`, or what the operation that follows it takes.
    fn whole(&mut self, node: NodeId, mut value: Value) -> Result<Vec<u64>, EngineError> {
        self.make(node, &mut value, self.program.plan.steps[node].values)?;
        Ok(match value {
            Value::Whole(made) => made,
            Value::Making(output) => output.into_values(),
            Value::Sum(made) => {
                self.program.network.nodes[node].inputs.iter().try_for_each(|&i| self.complete(i))?;
                self.release(node);
                made
            }
        })
    }

    /// Makes the rest of a node's value, if it is still kept.
    fn complete(&mut self, node: NodeId) -> Result<(), EngineError> {
        if let Some(value) = self.values[node].take_if(|value| !matches!(value, Value::Whole(_))) {
            let made = self.whole(node, value)?;
            (self.onlookers.watch)(node, &made);
            self.values[node] = Some(Value::Whole(made));
        }
        Ok(())
    }

    /// What comes behind a node's operation; the node's value, if that is nothing (more).
    fn follow(
        &mut self,
        node: NodeId,
        made: Value,
        truncation: Option<Truncate>,
        extension: Option<Extend>,
    ) -> Result<(), EngineError> {
        let made = match truncation {
            Some(truncation) => {
                let made = self.whole(node, made)?;
                Value::Whole(self.on(node, |walk| Ok(truncation.run(walk.channel, &made)?))?)
            }
            None => made,
        };
        if let Some(extension) = extension {
            self.wave.push(Job {
                node,
                blocks: extension.into_blocks(),
                operand: Some(made),
                made: Vec::new(),
                truncation: None,
                extension: None,
            });
        } else {
            if let Value::Whole(made) = &made {
                (self.onlookers.watch)(node, made);
            }
            self.values[node] = Some(made);
        }
        Ok(())
    }

    /// Forgets a node's inputs, if it was their last consumer.
    fn release(&mut self, node: NodeId) {
        for &i in &self.program.network.nodes[node].inputs {
            self.uses[i] -= 1;
            if self.uses[i] == 0 {
                self.values[i] = None;
            }
        }
    }

    /// Makes at least the first `count` elements of what a job works on.
    fn make_operand(&mut self, job: &mut Job, count: usize) -> Result<(), EngineError> {
        if let Some(operand) = &mut job.operand {
            return self.make(job.node, operand, count);
        }
        self.make_kept(self.program.network.nodes[job.node].inputs[0], count)
    }

    /// Takes all steps of all blocks of the wave.
    fn run_wave(&mut self) -> Result<(), EngineError> {
        let mut jobs = std::mem::take(&mut self.wave);
        let mut blocks: Vec<(usize, Option<Block>)> = Vec::new();
        for (j, job) in jobs.iter_mut().enumerate() {
            blocks.extend(job.blocks.drain(..).map(|block| (j, Some(block))));
        }
        let steps: Vec<usize> =
            blocks.iter().map(|(_, block)| block.as_ref().map_or(0, Block::steps)).collect();
        let (lead, order) = (lead(&steps), order(&steps));
        for (i, &(b, step)) in order.iter().enumerate() {
            let (j, block) = &mut blocks[b];
            let job = &mut jobs[*j];
            let one = block.as_mut().expect("until its last step");
            if step == 0 {
                self.make_operand(job, one.inputs().end)?;
            }
            self.on(job.node, |walk| {
                if step == 0 {
                    let operand = job.operand.as_ref().map_or_else(|| walk.input(job.node, 0), Value::made);
                    one.start(&operand[one.inputs()])?;
                }
                if b == lead { one.step(walk.channel) } else { walk.channel.alongside(|c| one.step(c)) }?;
                Ok(())
            })?;
            if step + 1 == steps[b] {
                // A layer's blocks have equally many steps, so they come through in order.
                job.made.extend(block.take().expect("until its last step").finish());
                if job.truncation.is_none() && job.extension.is_none() {
                    self.pass(job.node, &job.made)?;
                }
            }
            if i + 1 < order.len() {
                // It travels, and the peer works on it, while this party goes on.
                self.channel.flush()?;
            }
        }
        for job in jobs {
            match job.operand {
                // A sum's operands have been read.
                Some(operand) => drop(self.whole(job.node, operand)?),
                None => {
                    self.complete(self.program.network.nodes[job.node].inputs[0])?;
                    self.release(job.node);
                }
            }
            self.follow(job.node, Value::Whole(job.made), job.truncation, job.extension)?;
        }
        Ok(())
    }

    /// Passes on the ciphertexts of linear layers behind `node` that can be made of the first values of its output, `made`.
    fn pass(&mut self, node: NodeId, made: &[u64]) -> Result<(), EngineError> {
        for i in 0..self.consumers[node].len() {
            let id = self.consumers[node][i];
            if self.program.plan.steps[id].layer.is_none() {
                continue;
            }
            let mut step = self.steps[id].take();
            if let Some(PreparedStep { op: PreparedOp::Linear(linear), .. }) = &mut step {
                self.on(id, |walk| Ok(linear.feed(walk.channel, made)?))?;
            }
            self.steps[id] = step;
        }
        Ok(())
    }
}
