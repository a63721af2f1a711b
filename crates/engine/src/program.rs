//! Walking a plan, for both roles: prepare every step, then run them in order.

use std::time::{Duration, Instant};

use jaguar_graph::network::{Network, NodeId, Op};
use jaguar_graph::reference;
use jaguar_mpc::{Argmax, Extend, MaxPool, Party, Relu, Relu6, Truncate};
use jaguar_ot::{Cots, Role};
use jaguar_plan::{DIGIT, Layer, Nonlinear, Plan};
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

/// A linear layer's part before the input, as one role does it.
pub(crate) trait Prepare {
    /// What that role keeps for the online part.
    type Prepared;

    /// Passes on what the client's hint lacks of this layer, from the server to the client. Says whether that was anything.
    fn hint(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        progress: &mut dyn Progress,
    ) -> Result<bool, EngineError>;

    /// Prepares the layer for this query. Nothing passes.
    fn prepare(&mut self, node: NodeId, layer: &Layer) -> Result<Self::Prepared, EngineError>;
}

/// A linear layer's online part, as one role does it.
pub(crate) trait Linear {
    /// What that role prepared.
    type Prepared;

    /// Makes this party's share of the output of node `node` from its share of the input.
    fn run(
        &mut self,
        node: NodeId,
        layer: &Layer,
        prepared: Self::Prepared,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<Vec<u64>, EngineError>;
}

/// What was prepared for one node.
pub(crate) struct PreparedStep<L> {
    op: PreparedOp<L>,
    truncation: Option<Truncate>,
    extension: Option<Extend>,
}

enum PreparedOp<L> {
    /// Input, sums, moves.
    Local,
    Linear(L),
    Relu(Relu),
    Relu6(Relu6),
    MaxPool(MaxPool),
}

/// What was prepared for the result.
pub(crate) enum PreparedResult {
    Logits,
    Label(Box<Argmax>),
}

/// What was prepared for a whole plan.
pub(crate) type PreparedPlan<L> = (Vec<PreparedStep<L>>, PreparedResult);

/// Time by node: wall, and waiting for the peer.
pub(crate) struct Clock {
    /// All times count from here.
    origin: Instant,
    /// Fetching or sending what the client's hint lacked.
    pub hint: Vec<Spent>,
    preparing: Vec<Spent>,
    online: Vec<Spent>,
    /// Correlated OTs by node, both directions.
    pub cots: Vec<u64>,
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
            cots: vec![0; nodes],
        }
    }

    /// What began at `start` and ends now.
    fn since(&self, start: Instant, waited: Duration) -> Spent {
        Spent { start: start - self.origin, wall: start.elapsed(), waited }
    }

    pub fn of(&self, phase: Phase) -> &[Spent] {
        if phase == Phase::Preprocessing { &self.preparing } else { &self.online }
    }

    /// This party's work by node, preparing and online.
    pub fn microseconds(&self) -> (Vec<u32>, Vec<u32>) {
        let micros = |spent: &[Spent]| {
            spent.iter().map(|s| u32::try_from(s.busy().as_micros()).unwrap_or(u32::MAX)).collect()
        };
        (micros(&self.preparing), micros(&self.online))
    }
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
/// result's are scaled up.
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
    let inputs: Vec<&[i64]> = inputs.iter().map(Vec::as_slice).collect();
    let value =
        reference::apply_op(network, node, None, &inputs).expect("a valid network, and its own shapes");
    value.into_iter().map(|v| v as u64).collect()
}

impl Program<'_> {
    /// Prepares every node and the result. What the client lacks of a linear layer's hint travels when its turn comes, so that
    /// the link carries the hint while both parties work on what comes between.
    pub fn prepare<B: Prepare>(
        &self,
        channel: &mut Channel,
        party: &mut Party<Cots>,
        reveal: Reveal,
        clock: &mut Clock,
        progress: &mut dyn Progress,
        backend: &mut B,
    ) -> Result<PreparedPlan<B::Prepared>, EngineError> {
        if party.role() == Role::Client {
            // In preparation the client sends nothing but what belongs to its COTs.
            party.promise(self.plan.nonlinear_cost().cots_from_client);
        }
        let mut steps = Vec::with_capacity(self.plan.steps.len());
        for (id, (node, step)) in self.network.nodes.iter().zip(&self.plan.steps).enumerate() {
            progress.step(Phase::Preprocessing, id, self.network.nodes.len(), &node.name);
            if step.layer.is_some() {
                channel.enter(Phase::Client, "hint");
                let (start, waited) = (Instant::now(), channel.waited());
                let passed = backend.hint(id, channel, progress);
                if passed.map_err(|e| e.in_layer(&node.name, "hint"))? {
                    clock.hint[id] = clock.since(start, channel.waited() - waited);
                }
            }
            channel.enter(Phase::Preprocessing, &label(id, &node.name));
            let (start, waited) = (Instant::now(), channel.waited());
            let before = party.used();
            let mut prepare = || -> Result<PreparedStep<B::Prepared>, EngineError> {
                let op = match (&step.layer, &step.nonlinear) {
                    (Some(layer), _) => PreparedOp::Linear(backend.prepare(id, layer)?),
                    (_, Some(Nonlinear::Relu(params))) => {
                        PreparedOp::Relu(Relu::prepare(party, channel, step.values, *params)?)
                    }
                    (_, Some(Nonlinear::Relu6(params))) => {
                        PreparedOp::Relu6(Relu6::prepare(party, channel, step.values, *params)?)
                    }
                    (_, Some(Nonlinear::MaxPool { shape, bits, digit })) => {
                        PreparedOp::MaxPool(MaxPool::prepare(party, channel, *shape, *bits, *digit)?)
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
                Ok(PreparedStep { op, truncation, extension })
            };
            steps.push(prepare().map_err(|e| e.in_layer(&node.name, "preparing"))?);
            let after = party.used();
            clock.cots[id] = after.0 + after.1 - before.0 - before.1;
            clock.preparing[id] = clock.since(start, channel.waited() - waited);
        }
        let last = self.network.nodes.last().expect("a valid network has nodes");
        let result = match reveal {
            Reveal::Logits => PreparedResult::Logits,
            Reveal::Label => {
                channel.enter(Phase::Preprocessing, "result");
                let bits = self.plan.steps.last().expect("planned").ring;
                let count = last.shape.iter().product();
                PreparedResult::Label(Box::new(Argmax::prepare(party, channel, count, bits, DIGIT)?))
            }
        };
        // The peer needs the last of it now; the input may be long in coming.
        channel.flush()?;
        Ok((steps, result))
    }

    /// Runs the plan on this party's share of the input; returns its share of the output, in the last step's ring.
    pub fn run<B: Linear>(
        &self,
        channel: &mut Channel,
        steps: Vec<PreparedStep<B::Prepared>>,
        input: Vec<u64>,
        backend: &mut B,
        onlookers: Onlookers<'_>,
    ) -> Result<Vec<u64>, EngineError> {
        let Onlookers { clock, progress, watch } = onlookers;
        let nodes = &self.network.nodes;
        let mut uses = vec![0usize; nodes.len()];
        nodes.iter().flat_map(|n| &n.inputs).for_each(|&i| uses[i] += 1);
        let mut values: Vec<Option<Vec<u64>>> = vec![None; nodes.len()];
        let mut input = Some(input);
        for (id, (node, prepared)) in nodes.iter().zip(steps).enumerate() {
            let step = &self.plan.steps[id];
            progress.step(Phase::Online, id, nodes.len(), &node.name);
            channel.enter(Phase::Online, &label(id, &node.name));
            let (start, waited) = (Instant::now(), channel.waited());
            let compute = || -> Result<Vec<u64>, EngineError> {
                let arg =
                    |i: usize| values[node.inputs[i]].as_deref().expect("computed before its consumers");
                let made = match prepared.op {
                    PreparedOp::Linear(linear) => {
                        let layer = step.layer.as_ref().expect("planned");
                        backend.run(id, layer, linear, channel, &reduce(arg(0), layer.input_bits()))?
                    }
                    PreparedOp::Relu(relu) => relu.run(channel, arg(0))?,
                    PreparedOp::Relu6(relu6) => relu6.run(channel, arg(0))?,
                    PreparedOp::MaxPool(pool) => pool.run(channel, arg(0))?,
                    PreparedOp::Local => {
                        let value = match &node.op {
                            Op::Input => input.take().expect("one input"),
                            _ => local(self.network, self.plan, id, |i| arg(i)),
                        };
                        reduce(&value, step.made)
                    }
                };
                let made = match prepared.truncation {
                    Some(truncation) => truncation.run(channel, &made)?,
                    None => made,
                };
                Ok(match prepared.extension {
                    Some(extension) => extension.run(channel, &made)?,
                    None => made,
                })
            };
            let value = compute().map_err(|e| e.in_layer(&node.name, "online"))?;
            watch(id, &value);
            values[id] = Some(value);
            for &i in &node.inputs {
                uses[i] -= 1;
                if uses[i] == 0 {
                    values[i] = None;
                }
            }
            clock.online[id] = clock.since(start, channel.waited() - waited);
        }
        Ok(values.pop().flatten().expect("a valid network has an output"))
    }
}
