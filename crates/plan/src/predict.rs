//! What a plan will cost: bytes exactly, seconds as far as a machine's constants tell.
//!
//! # Bytes
//!
//! Every length follows from the plan, so the bytes of a query are exact: ciphertexts, corrections and tables by node, what the
//! extension of correlated OTs sends for as many as are drawn (that depends on how many the connection has drawn before), the
//! request, the query's key and the seed of its masks, and the result. The server's report of its own times is no part of it.
//! So are the rounds online, of which branches beside each other share theirs (`rounds.rs`).
//!
//! # Seconds
//!
//! A node's work is a sum of constants ([`Machine`]) times counts, for each role. From work to time:
//!
//! - *Before the input* both parties work side by side and hardly ever wait: the time is that of the slower one. Where both
//!   share a machine, it is at least all their work divided by what the machine's threads gain.
//! - *Online* they mostly take turns. A linear layer's time is the sum of both parties' work; a nonlinear one's is measured with
//!   both at work, for on big layers they overlap.
//! - *Threads*: both kinds of layers use all of them, by what they gain on this machine ([`Speedups`](crate::machine::Speedups)).
//! - *Transfers* go on while the parties compute, but not always: of computing and transfer, the time is the root of the sum of
//!   squares, which lies between the longer one and the sum. Round trips come on top.

use jaguar_linear::backend::{Traffic, Work};
use jaguar_mpc::cost::{self, Drawn, Instances, Width};
use jaguar_mpc::{ArgmaxParams, Cost, Elementwise, Nonlinear};
use serde::{Deserialize, Serialize};

use crate::machine::{Link, Machine, NonlinearKind, Placement};
use crate::{DIGIT, Plan, Step};

/// Seconds of the two parties, each on its own threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Seconds of the client's processor.
    pub client: f64,
    /// Seconds of the server's processor.
    pub server: f64,
}

/// One node's cost in one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct NodeStage {
    /// Bytes from the client to the server.
    pub bytes_up: u64,
    /// Bytes from the server to the client.
    pub bytes_down: u64,
    /// How often the client waits for an answer: not at all in what goes alongside another node.
    pub rounds: u64,
    /// Each party's time; `None` where the machine's constants do not cover the ring.
    pub seconds: Option<Seconds>,
}

/// What one node will cost, by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct NodeCost {
    /// Bytes of the hint, which a client fetches once.
    pub hint_bytes: u64,
    /// Once per model: the server's time for the a half.
    pub a_half_seconds: Option<f64>,
    /// Once per client: the server's time for the hint.
    pub hint_seconds: Option<f64>,
    /// Before the input. The bytes of the OT extension are shared out by the COTs that a node draws, rounded down.
    pub offline: NodeStage,
    /// Of the stage that begins with the input.
    pub online: NodeStage,
}

/// One stage of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Bytes from the client to the server.
    pub bytes_up: u64,
    /// Bytes from the server to the client.
    pub bytes_down: u64,
    /// How often the client waits for an answer.
    pub rounds: u64,
    /// Seconds that each party computes.
    pub work: Option<Seconds>,
    /// Seconds from beginning to end, waits included.
    pub seconds: Option<f64>,
}

/// What a plan will cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// One for each node, in the network's order.
    pub nodes: Vec<NodeCost>,
    /// Bytes of the hint, which a client fetches once.
    pub hint_bytes: u64,
    /// Once per model: the server's time for all a halves.
    pub a_half_seconds: Option<f64>,
    /// Once per client: until the hint is there, the a half being ready.
    pub hint_seconds: Option<f64>,
    /// Bytes of keys that the client sends once, and the server keeps.
    pub key_bytes: u64,
    /// Once per client: their way. (Their making takes less.)
    pub key_seconds: Option<f64>,
    /// Of the stage before the input is known.
    pub offline: Total,
    /// Of the stage that begins with the input.
    pub online: Total,
}

/// Where a plan is to run.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// What a step takes on the parties' machines.
    pub machine: &'a Machine,
    /// What is between the parties.
    pub link: Link,
    /// Whether they share the machine.
    pub placement: Placement,
    /// What is to be short.
    pub aim: Aim,
}

/// What a plan is chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// The whole query: a second before the input counts as one with it.
    #[default]
    Query,
    /// The answer to an input: queries are prepared ahead of their inputs, and a second before the input counts
    /// [`AHEAD`](Self::AHEAD) of one with it.
    Online,
}

impl Aim {
    /// What a second before the input counts under [`Online`](Self::Online): between plans that answer alike, the one that
    /// is prepared sooner.
    pub const AHEAD: f64 = 0.02;

    /// Seconds before the input and with it, as they count together.
    pub fn weigh(self, offline: f64, online: f64) -> f64 {
        match self {
            Self::Query => offline + online,
            Self::Online => offline * Self::AHEAD + online,
        }
    }
}

/// What does not depend on the machine: how the session stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    /// Correlations that the connection has handed out before this query: sent by the server, sent by the client.
    pub used: (Drawn, Drawn),
    /// The label alone is revealed, by an argmax.
    pub label: bool,
}

/// The request for a query, as it is sent: a length and a number.
const REQUEST_BYTES: u64 = 6;

/// Correlations that a query of `plan` draws: sent by the server, sent by the client.
pub fn correlations(plan: &Plan, session: &Session) -> (Drawn, Drawn) {
    let all = plan.nonlinear_cost() + result_cost(plan, session.label);
    (all.from_server(), all.from_client())
}

/// The argmax, if there is one.
fn result_cost(plan: &Plan, label: bool) -> Cost {
    match plan.steps.last() {
        Some(last) if label => {
            // One for each image, all in the same rounds.
            let count = last.values / plan.images();
            let one = ArgmaxParams { count, bits: last.domain.modulus.bits(), digit: DIGIT }.cost();
            let other = Cost { client_rounds: 0, server_rounds: 0, ..one };
            (1..plan.images()).fold(one, |sum, _| sum + other)
        }
        _ => Cost::default(),
    }
}

/// What `plan` will cost one query; seconds if `site` says where.
pub fn predict(plan: &Plan, session: &Session, site: Option<&Site<'_>>) -> Prediction {
    let steps = plan.steps.iter().zip(&plan.rounds.by_node);
    let nodes: Vec<NodeCost> =
        steps.map(|(step, &rounds)| node_cost(step, rounds, plan.choices.instances, site)).collect();
    let waits: u64 = plan.rounds.by_node.iter().sum();
    let result = result_cost(plan, session.label);
    let all = plan.nonlinear_cost() + result;
    let (from_server, from_client) = correlations(plan, session);
    let instances = plan.choices.instances;
    let (uploads, responses) = plan.linear_bytes();
    let (uploads, responses) = (uploads as u64, responses as u64);
    let logits = match plan.steps.last() {
        Some(last) if !session.label => packed_len(last.values, last.domain.modulus.bits()),
        _ => 0,
    };
    // Once per query, and what a layer passes offline.
    let linear =
        plan.backends.iter().map(|b| b.query_bytes()).chain(plan.layers().map(|l| l.traffic().offline));
    let (linear_up, linear_down) = linear.fold((0, 0), |(up, down), (u, d)| (up + u as u64, down + d as u64));
    let mut offline = Total {
        bytes_up: REQUEST_BYTES
            + linear_up
            + all.prepare_up
            + cost::extension_bytes(instances, session.used.1, from_client),
        bytes_down: linear_down
            + all.prepare_down
            + cost::extension_bytes(instances, session.used.0, from_server),
        // The seed, and what layers exchange; whatever is drawn from both directions runs ahead.
        rounds: 1 + plan.exchange_rounds(),
        ..Total::default()
    };
    let mut online = Total {
        bytes_up: uploads + all.up,
        bytes_down: responses + all.down + logits,
        rounds: waits + result.client_rounds + u64::from(logits > 0 && plan.rounds.sent),
        ..Total::default()
    };
    let sum = |f: &dyn Fn(&NodeCost) -> Option<f64>| nodes.iter().map(f).sum::<Option<f64>>();
    let both = |f: &dyn Fn(&NodeCost) -> Option<Seconds>| {
        nodes.iter().try_fold(Seconds::default(), |sum, n| {
            f(n).map(|s| Seconds { client: sum.client + s.client, server: sum.server + s.server })
        })
    };
    let hint_bytes = plan.hint_bytes() as u64;
    let key_bytes = plan.client_keys().sent as u64;
    let key_seconds = site.map(|site| key_bytes as f64 / site.link.bytes_per_second);
    let (mut a_half_seconds, mut hint_seconds) = (None, None);
    if let Some(site) = site {
        a_half_seconds = sum(&|n| n.a_half_seconds);
        hint_seconds = sum(&|n| n.hint_seconds)
            .map(|computing| overlapped(computing, hint_bytes as f64 / site.link.bytes_per_second));
        // By the layers' constants with the default instances; what others take more, or less.
        let making = |instances| site.machine.making(instances, from_server + from_client);
        let more = making(instances) - making(Instances::default());
        offline.work = both(&|n| n.offline.seconds).map(|s| {
            let s = with(s, correlations_seconds(NonlinearKind::MaxPool, DIGIT, &result, site));
            let more = more / site.machine.speedups.preparing;
            Seconds { client: (s.client + more).max(0.0), server: (s.server + more).max(0.0) }
        });
        offline.seconds = offline.work.and_then(|work| {
            let shared = plan.steps.iter().map(|s| step_shared(s, site)).sum::<Option<f64>>()?;
            let more = 2.0 * more / site.machine.speedups.preparing_both;
            let computing = beside(work, (shared + more).max(0.0), site);
            let most = offline.bytes_up.max(offline.bytes_down) as f64;
            Some(
                overlapped(computing, most / site.link.bytes_per_second)
                    + offline.rounds as f64 * site.link.round_trip,
            )
        });
        let (result_work, result_both) = nonlinear_online(NonlinearKind::MaxPool, DIGIT, &result, site);
        online.work = both(&|n| n.online.seconds).map(|s| with(s, result_work));
        let computing = plan.steps.iter().map(|s| step_online(s, site)).sum::<Option<f64>>();
        online.seconds = computing.map(|computing| {
            let most = online.bytes_up.max(online.bytes_down) as f64;
            overlapped(computing + result_both, most / site.link.bytes_per_second)
                + online.rounds as f64 * site.link.round_trip
        });
    }
    Prediction { nodes, hint_bytes, a_half_seconds, hint_seconds, key_bytes, key_seconds, offline, online }
}

fn packed_len(count: usize, bits: u32) -> u64 {
    (count as u64 * u64::from(bits)).div_ceil(8)
}

fn with(a: Seconds, b: Seconds) -> Seconds {
    Seconds { client: a.client + b.client, server: a.server + b.server }
}

/// Computing and transfer, partly at the same time.
pub(crate) fn overlapped(computing: f64, transfer: f64) -> f64 {
    computing.hypot(transfer)
}

/// What the threads gain where a party makes nonlinear layers' material beside the other one.
pub(crate) fn preparing(site: &Site<'_>) -> f64 {
    match site.placement {
        Placement::Apart => site.machine.speedups.preparing,
        // Of what is gained for both, each has half.
        Placement::Shared => (site.machine.speedups.preparing_both / 2.0).max(1.0),
    }
}

/// Time of two parties that work side by side for `each`, and for `shared` where they share a machine's threads.
fn beside(each: Seconds, shared: f64, site: &Site<'_>) -> f64 {
    let slower = each.client.max(each.server);
    match site.placement {
        Placement::Apart => slower,
        Placement::Shared => slower.max(shared),
    }
}

/// Both roles' time to make a nonlinear step's material.
pub(crate) fn correlations_seconds(kind: NonlinearKind, digit: u32, cost: &Cost, site: &Site<'_>) -> Seconds {
    let (a, b) = (cost.from_server().total() as f64, cost.from_client().total() as f64);
    let cot = site.machine.cot(kind, digit);
    let speedup = site.machine.speedups.preparing;
    let [client, server] = [a * cot.received + b * cot.sent, a * cot.sent + b * cot.received];
    Seconds { client: client / speedup, server: server / speedup }
}

/// Each party's work in a nonlinear step, and the time of both together.
fn nonlinear_online(kind: NonlinearKind, digit: u32, cost: &Cost, site: &Site<'_>) -> (Seconds, f64) {
    // Priced without early corrections: the server reads those online.
    let bytes = (cost.up + cost.down) as f64;
    let per_byte = site.machine.nonlinear(kind, digit);
    let bytes = bytes / site.machine.speedups.running;
    let work = Seconds { client: bytes * per_byte.client, server: bytes * per_byte.server };
    (work, bytes * per_byte.both)
}

/// The protocols of a step with what they cost.
pub(crate) fn protocols(step: &Step) -> impl Iterator<Item = (NonlinearKind, u32, Cost)> + '_ {
    fn of(layer: &dyn Nonlinear) -> (NonlinearKind, u32, Cost) {
        (layer.kind(), layer.digit().unwrap_or(DIGIT), layer.cost())
    }
    let count = step.values;
    let conversion = step.conversion.as_ref().map(|layer| of(layer));
    let nonlinear = step.nonlinear.as_deref().map(of);
    let truncation = step.truncation.map(|params| of(&Elementwise { count, params }));
    let extension = step.extension.map(|params| of(&Elementwise { count, params }));
    conversion.into_iter().chain(nonlinear).chain(truncation).chain(extension)
}

/// A step's linear work, if the machine's constants cover it: `Some(None)` where it is not linear.
fn step_linear(step: &Step, site: &Site<'_>) -> Option<Option<Work>> {
    match &step.layer {
        None => Some(None),
        Some(layer) => Some(Some(layer.work(&site.machine.linear)?)),
    }
}

/// Time of both roles before the input, where they share the machine's threads and these never wait.
pub(crate) fn step_shared(step: &Step, site: &Site<'_>) -> Option<f64> {
    let linear = step_linear(step, site)?.unwrap_or_default().offline;
    let cots = protocols(step)
        .map(|(kind, digit, cost)| correlations_seconds(kind, digit, &cost, site))
        .fold(Seconds::default(), with);
    let speedups = &site.machine.speedups;
    let cots = (cots.client + cots.server) * speedups.preparing / speedups.preparing_both;
    Some((linear[0] + linear[1]) / site.machine.threads as f64 + cots)
}

/// Time of a step online, without the link.
pub(crate) fn step_online(step: &Step, site: &Site<'_>) -> Option<f64> {
    let linear = step_linear(step, site)?.unwrap_or_default();
    let parallel = linear.online_parallel[0] + linear.online_parallel[1];
    let linear = linear.online[0] + linear.online[1] + parallel / site.machine.speedups.linear;
    let nonlinear: f64 =
        protocols(step).map(|(kind, digit, cost)| nonlinear_online(kind, digit, &cost, site).1).sum();
    Some(linear + nonlinear)
}

/// Each party's time before the input.
pub(crate) fn step_offline(step: &Step, site: &Site<'_>) -> Option<Seconds> {
    let linear = step_linear(step, site)?.unwrap_or_default().offline;
    let speedup = site.machine.speedups.linear;
    let linear = Seconds { client: linear[0] / speedup, server: linear[1] / speedup };
    Some(
        protocols(step)
            .map(|(kind, digit, cost)| correlations_seconds(kind, digit, &cost, site))
            .fold(linear, with),
    )
}

/// What making so many correlations sends in the long run, rounded down.
pub fn mean_extension_bytes(instances: Instances, drawn: Drawn) -> u64 {
    let of = |width, count: u64| count as f64 * cost::mean_extension_bytes(instances, width);
    (of(Width::Bit, drawn.bits) + of(Width::Vector, drawn.vectors)) as u64
}

/// What a step costs in which the client waits so many `rounds` online.
fn node_cost(step: &Step, rounds: u64, instances: Instances, site: Option<&Site<'_>>) -> NodeCost {
    let cost = step.cost;
    let linear = step.layer.as_ref().map_or_else(Traffic::default, |layer| layer.traffic());
    let mut node = NodeCost {
        hint_bytes: linear.hint as u64,
        offline: NodeStage {
            bytes_up: linear.offline.0 as u64
                + cost.prepare_up
                + mean_extension_bytes(instances, cost.from_client()),
            bytes_down: linear.offline.1 as u64
                + cost.prepare_down
                + mean_extension_bytes(instances, cost.from_server()),
            ..NodeStage::default()
        },
        online: NodeStage {
            bytes_up: cost.up + linear.online.0 as u64,
            bytes_down: cost.down + linear.online.1 as u64,
            rounds,
            seconds: None,
        },
        ..NodeCost::default()
    };
    let Some(site) = site else { return node };
    let Some(linear) = step_linear(step, site) else { return node };
    let speedup = site.machine.speedups.linear;
    node.a_half_seconds = Some(linear.map_or(0.0, |l| l.model / speedup));
    node.hint_seconds = Some(linear.map_or(0.0, |l| l.hint / speedup));
    node.offline.seconds = step_offline(step, site);
    let linear = linear.unwrap_or_default();
    let [client, server] = [0, 1].map(|role| linear.online[role] + linear.online_parallel[role] / speedup);
    let online = Seconds { client, server };
    node.online.seconds = Some(
        protocols(step)
            .map(|(kind, digit, cost)| nonlinear_online(kind, digit, &cost, site).0)
            .fold(online, with),
    );
    node
}

/// The time that a step adds to a query, before the input and with it: the slower party's before it, both online, and the link.
pub(crate) fn step_seconds(step: &Step, site: &Site<'_>) -> Option<[f64; 2]> {
    let linear = step.layer.as_ref().map(|l| l.traffic()).unwrap_or_default();
    let before = beside(step_offline(step, site)?, step_shared(step, site)?, site);
    // Of what is made before the input, only what the layer itself passes: correlations are few bytes.
    let exchanged = linear.offline.0.max(linear.offline.1) as f64 / site.link.bytes_per_second;
    let (up, down) = (step.cost.up + linear.online.0 as u64, step.cost.down + linear.online.1 as u64);
    let transfer = up.max(down) as f64 / site.link.bytes_per_second;
    let rounds = step.cost.client_rounds + linear.rounds;
    let online = overlapped(step_online(step, site)?, transfer) + rounds as f64 * site.link.round_trip;
    Some([overlapped(before, exchanged), online])
}
