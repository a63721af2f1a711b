//! How much memory a plan will take, before anything runs.
//!
//! What is held is counted: weights, keys, correlations, prepared queries, and the shares of the values that are alive
//! together while a query runs. What an allocator keeps beyond that, and what steps of milliseconds take, is estimated by
//! figures that were measured ([`PROGRAM`], `COPIES`); `docs/planner.md` compares with measured peaks.

use jaguar_graph::network::Network;
use jaguar_mpc::cost;
use serde::Serialize;

use crate::{Allowed, BackendId, Choices, Plan, Step};

/// The program itself, its threads and tables.
pub const PROGRAM: u64 = 14 << 20;

/// Copies of the values that are alive together: shares, the same in another domain, as numbers in a sum, windows of a
/// pool, and what the allocator has not given back. Measured with networks of 0.5 to 26 million values.
const COPIES: u64 = 5;

/// Correlations that a block of comparisons is prepared from take so much, whatever their width: 23 to 27 a comparison.
const DRAWN: u64 = 7 << 20;

/// What one party's memory holds at its fullest, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartyMemory {
    /// The program itself, before any model.
    pub program: u64,
    /// The server's weights, as the compiled model has them and as backends want them.
    pub model: u64,
    /// Keys of clients, which the server keeps.
    pub keys: u64,
    /// What correlations of a session are made from, and those that blocks in preparation have drawn.
    pub correlations: u64,
    /// Queries that are prepared, those that are kept included.
    pub prepared: u64,
    /// What a query takes while it runs, beyond what was prepared.
    pub running: u64,
}

impl PartyMemory {
    /// The sum of all parts.
    pub fn total(&self) -> u64 {
        let Self { program, model, keys, correlations, prepared, running } = *self;
        [program, model, keys, correlations, prepared, running].into_iter().fold(0, u64::saturating_add)
    }
}

/// What both parties' memory holds at its fullest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// What the client's memory holds.
    pub client: PartyMemory,
    /// What the server's memory holds.
    pub server: PartyMemory,
}

impl Memory {
    /// What this party's memory holds.
    pub fn of(&self, party: Side) -> &PartyMemory {
        match party {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }
}

/// A party, where its memory is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Who has the input.
    Client,
    /// Who has the weights.
    Server,
}

/// What both parties have to do at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Clients of the server, each with a query that runs.
    pub clients: u64,
    /// Prepared queries that each of them keeps besides.
    pub kept: u64,
    /// Threads of either party.
    pub threads: usize,
}

/// What a new program may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Bytes that a new program may take.
    pub bytes: u64,
    /// What it is that bounds them.
    pub bound: Bound,
}

/// What bounds the memory of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// What the machine has left.
    Machine,
    /// The limit of a control group, as containers have.
    ControlGroup,
    /// A limit of this process, as `ulimit -v` sets it.
    Process,
}

impl Bound {
    /// In words, behind a number of bytes.
    pub fn words(self) -> &'static str {
        match self {
            Self::Machine => "free on this machine",
            Self::ControlGroup => "left below the limit of this container (control group)",
            Self::Process => "left below the limit of this process (ulimit)",
        }
    }
}

impl Load {
    /// One client, one query.
    pub fn single(threads: usize) -> Self {
        Self { clients: 1, kept: 0, threads }
    }
}

/// Bytes that one prepared query holds between offline and online, at most: at the client and at the server. Masks
/// and correlations are in it; what a query takes while it runs is not.
pub fn prepared_bytes(plan: &Plan) -> [u64; 2] {
    let steps = plan.steps.iter().map(step_prepared);
    steps.fold([0; 2], |sum, step| [sum[0] + step[0], sum[1] + step[1]])
}

/// What one step of it holds.
fn step_prepared(step: &Step) -> [u64; 2] {
    let mut bytes = [step.cost.client_memory, step.cost.server_memory];
    if let Some(layer) = &step.layer {
        let [client, server] = layer.prepared_bytes();
        bytes = [bytes[0] + client, bytes[1] + server];
    }
    bytes
}

/// Memory at its fullest of both parties to `plan` of `network`, under `load`. A session that keeps queries has a second
/// connection, and a client one query in the making.
pub fn memory(network: &Network, plan: &Plan, load: Load) -> Memory {
    let Load { clients, kept, threads } = load;
    let [client, server] = prepared_bytes(plan);
    let [client_runs, server_runs] = running_bytes(network, plan, threads);
    // (The client makes bits ahead. The server, for which theirs wait, is counted as a client of one thread.)
    let [client_holds, server_holds] =
        [threads, 1].map(|threads| cost::session_bytes(plan.choices.instances, threads));
    let drawn = drawn_bytes(plan, threads);
    let queries = 1 + kept;
    let weights = network.nodes.iter().filter_map(|node| {
        let [channels, ..] = network.nodes[*node.inputs.first()?].shape;
        node.op.linear()?.weights_len(channels)
    });
    let compiled: u64 = weights.map(|count| (count * size_of::<i16>()) as u64).sum();
    let backends: u64 = plan.layers().map(|layer| layer.model_bytes()).sum();
    Memory {
        client: PartyMemory {
            program: PROGRAM,
            correlations: client_holds.saturating_add(drawn),
            prepared: client.saturating_mul(queries),
            running: client_runs,
            ..PartyMemory::default()
        },
        server: PartyMemory {
            program: PROGRAM,
            model: compiled.saturating_add(backends),
            keys: plan.client_keys().kept.saturating_mul(clients),
            correlations: server_holds.saturating_add(drawn).saturating_mul(clients),
            prepared: server.saturating_mul(queries).saturating_mul(clients),
            running: server_runs.saturating_mul(clients),
        },
    }
}

/// Correlations of the blocks that are prepared at the same time: one for each thread, one that waits, if there are several
/// (`jaguar_ot::threads::UnderWay`), and the one that is drawn for.
fn drawn_bytes(plan: &Plan, threads: usize) -> u64 {
    let drawn = |step: &Step| {
        let (server, client) = (step.cost.from_server(), step.cost.from_client());
        server.bits + server.vectors + client.bits + client.vectors
    };
    let all: u64 = plan.steps.iter().map(drawn).sum();
    let blocks = if threads > 1 { threads as u64 + 2 } else { 1 };
    (all * size_of::<u128>() as u64).min(blocks.saturating_mul(DRAWN))
}

/// What a query takes while it is made or runs, beyond what was prepared, at its fullest: at the client and at the server. What was
/// prepared for a step is given back when the step is through.
fn running_bytes(network: &Network, plan: &Plan, threads: usize) -> [u64; 2] {
    let values = |id: usize| plan.steps[id].values as u64;
    let mut last_use: Vec<usize> = (0..network.nodes.len()).collect();
    for (id, node) in network.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&input| last_use[input] = id);
    }
    // Values that are not needed any more after a step. (The last one is the result.)
    let mut gone = vec![0; network.nodes.len()];
    last_use.iter().enumerate().for_each(|(id, &last)| gone[last] += values(id));
    let (mut alive, mut used, mut most) = (0, [0; 2], [0; 2]);
    for (id, step) in plan.steps.iter().enumerate() {
        alive += values(id);
        let shares = COPIES * size_of::<u64>() as u64 * alive;
        let layer = step.layer.as_ref().map_or([0; 2], |layer| layer.running_bytes(threads));
        let making = step.nonlinear.as_ref().map_or([0; 2], |layer| layer.making_bytes(threads));
        let prepared = step_prepared(step);
        for role in 0..2 {
            // (While that is made nothing runs yet, but others' material is there.)
            most[role] = most[role].max(making[role]);
            most[role] = shares.saturating_add(layer[role]).saturating_sub(used[role]).max(most[role]);
            used[role] += prepared[role];
        }
        alive -= gone[id];
    }
    most
}

/// What to do otherwise so that a party's memory is enough: one thing, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Keep at most so many prepared queries.
    Keep(u64),
    /// Serve at most so many clients at once.
    Clients(u64),
    /// Compute with so many threads.
    Threads(usize),
    /// Keep at most so many bytes of weights as polynomials.
    WeightMemory(u64),
    /// Take at most so many images a query.
    Images(u32),
    /// Run all linear layers with this backend.
    Backend(BackendId),
}

/// What would fit into `room` bytes at `party`, with the bytes that it would take, where `plan` under `load` does not.
/// The `others` among backends are tried one at a time.
pub fn remedies(
    network: &Network,
    plan: &Plan,
    allowed: Allowed,
    load: Load,
    (party, room): (Side, u64),
    others: &[BackendId],
) -> Vec<(Remedy, u64)> {
    let bytes = |plan: &Plan, load: Load| memory(network, plan, load).of(party).total();
    let fitting = |plan: &Plan, load: Load| Some(bytes(plan, load)).filter(|&bytes| bytes <= room);
    let planned = |choices: Choices| Plan::allowing(network, choices, allowed).ok();
    let under = |load: Load, remedy| fitting(plan, load).map(|bytes| (remedy, bytes));
    let mut found = Vec::new();
    found.extend((0..load.kept).rev().find_map(|kept| under(Load { kept, ..load }, Remedy::Keep(kept))));
    let fewer = (1..load.clients).rev();
    found.extend(fewer.clone().find_map(|n| under(Load { clients: n, ..load }, Remedy::Clients(n))));
    let fewer = (1..load.threads).rev();
    found.extend(fewer.clone().find_map(|n| under(Load { threads: n, ..load }, Remedy::Threads(n))));
    if party == Side::Server {
        // What is kept now, halved until it fits.
        let now: u64 = plan.layers().map(|layer| layer.model_bytes()).sum();
        let halves = (1..=8).map(|i| if i == 8 { 0 } else { plan.choices.weight_memory.min(now) >> i });
        found.extend(halves.into_iter().find_map(|weight_memory| {
            let other = planned(Choices { weight_memory, ..plan.choices.clone() })?;
            Some((Remedy::WeightMemory(weight_memory), fitting(&other, load)?))
        }));
    }
    let smaller = std::iter::successors(Some(plan.choices.images / 2), |size| Some(size / 2));
    found.extend(smaller.take_while(|&size| size > 0).find_map(|images| {
        let other = planned(plan.choices.clone().of_images(images))?;
        Some((Remedy::Images(images), fitting(&other, load)?))
    }));
    if plan.images() > 1 {
        // Other backends take no batches.
        return found;
    }
    let used: Vec<&str> = plan.layers().map(|layer| layer.backend()).collect();
    for &id in others {
        if used.iter().all(|&name| name == id.name()) {
            continue;
        }
        let other = Choices::among(network, &[id]).ok().and_then(planned);
        found.extend(other.and_then(|other| Some((Remedy::Backend(id), fitting(&other, load)?))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kit;
    use crate::tests::network;

    #[test]
    fn more_to_do_takes_more_memory_and_remedies_fit() {
        let network = network();
        let plan = Plan::new(&network, Choices::standard(&network, Kit::JAGUAR)).unwrap();
        let total = |load| {
            let memory = memory(&network, &plan, load);
            [Side::Client, Side::Server].map(|party| memory.of(party).total())
        };
        let single = Load::single(2);
        let load = Load { clients: 3, kept: 4, ..single };
        let [one, many] = [total(single), total(load)];
        assert!(many[0] > one[0] && many[1] > one[1]);
        let [prepared, _] = prepared_bytes(&plan);
        assert_eq!(many[0] - one[0], 4 * prepared, "a client has no other clients");
        for party in [Side::Client, Side::Server] {
            let room = total(load)[party as usize] - 1;
            let found = remedies(
                &network,
                &plan,
                Allowed::default(),
                load,
                (party, room),
                Kit::standard().backends(),
            );
            assert!(found.iter().any(|(remedy, _)| matches!(remedy, Remedy::Keep(3))), "{found:?}");
            assert!(found.iter().all(|&(_, bytes)| bytes <= room));
            let clients = found.iter().any(|(remedy, _)| matches!(remedy, Remedy::Clients(2)));
            assert_eq!(clients, party == Side::Server);
            assert!(
                remedies(&network, &plan, Allowed::default(), load, (party, 0), Kit::standard().backends())
                    .is_empty()
            );
        }
    }
}
