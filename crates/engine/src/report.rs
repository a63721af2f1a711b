//! What a query cost, layer by layer, and how far it has come.

use std::time::Duration;

use jaguar_graph::network::{Network, Op};
use jaguar_plan::Plan;
use jaguar_plan::predict::{Session, Site, Total, predict};
use jaguar_wire::{Phase, Stats, Traffic};
use serde::{Deserialize, Serialize};

use crate::message::ServerCost;
use crate::program::{Clock, Spent, label};
use crate::timeline::Timeline;

/// The label of the server's report.
pub(crate) const REPORT: &str = "report";

/// Hears how far a session has come. All methods are called often and should return at once.
pub trait Progress {
    /// A node's turn: `index` of `total` in `phase`.
    fn step(&mut self, phase: Phase, index: usize, total: usize, name: &str);

    /// Bytes of the hint that are there.
    fn hint(&mut self, done: u64, total: u64);

    /// Something that a person may like to know.
    fn note(&mut self, _text: &str) {}

    /// Something that a person should know.
    fn warning(&mut self, _text: &str) {}
}

/// Hears nothing.
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&mut self, _: Phase, _: usize, _: usize, _: &str) {}
    fn hint(&mut self, _: u64, _: u64) {}
}

/// One phase's cost of one node, or of all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Bytes from the client to the server.
    pub bytes_up: u64,
    /// Bytes from the server to the client.
    pub bytes_down: u64,
    /// How often the client waited for an answer.
    pub rounds: u64,
    /// Seconds that it took at the client, waiting included.
    pub wall_seconds: f64,
    /// Seconds in which the client worked.
    pub client_seconds: f64,
    /// Seconds in which the server worked.
    pub server_seconds: f64,
}

impl Cost {
    fn add(&mut self, other: &Cost) {
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.rounds += other.rounds;
        self.wall_seconds += other.wall_seconds;
        self.client_seconds += other.client_seconds;
        self.server_seconds += other.server_seconds;
    }

    fn of_traffic(t: &Traffic) -> Self {
        Self { bytes_up: t.sent, bytes_down: t.received, rounds: t.rounds, ..Self::default() }
    }
}

/// The cost of one node of the network.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The node's name.
    pub name: String,
    /// The operation.
    pub operation: String,
    /// Input ciphertexts (b halves), of linear layers.
    pub ciphertexts: usize,
    /// Responses: products modulo one prime, on either side, in preprocessing.
    pub responses: usize,
    /// Correlated OTs, both directions.
    pub cots: u64,
    /// What the client's hint lacked.
    pub hint: Cost,
    /// Before the input.
    pub preprocessing: Cost,
    /// With the input.
    pub online: Cost,
}

/// The cost of one query (and of what came before it on this connection).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was run.
    pub protocol: String,
    /// By node.
    pub rows: Vec<Row>,
    /// Handshake.
    pub model: Cost,
    /// Hint and base OTs, as far as they were needed.
    pub client: Cost,
    /// Sum over the nodes, and the query's keys.
    pub preprocessing: Cost,
    /// Sum over the nodes, and the result.
    pub online: Cost,
    /// Wall seconds of fetching what the hint lacked, while the client had nothing else to do.
    pub hint_seconds: f64,
    /// Wall seconds of preprocessing, waiting included.
    pub preprocessing_seconds: f64,
    /// Wall seconds from the input to the result.
    pub online_seconds: f64,
    /// How the connection stood before: what a prediction of the bytes needs to know.
    #[serde(skip)]
    pub session: Session,
    /// Peak memory of the client's process in KiB, 0 if unknown.
    pub client_peak_kib: u64,
    /// Peak memory of the server's process in KiB, 0 if unknown.
    pub server_peak_kib: u64,
    /// When both parties did what, if it was asked for.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

impl Report {
    pub(crate) fn new(
        network: &Network,
        plan: &Plan,
        stats: &Stats,
        clock: &Clock,
        server: &ServerCost,
        online: Duration,
        session: Session,
    ) -> Self {
        let sum = |phase: Phase| {
            let mut all = Traffic::default();
            // The server's word about its own times is no part of the query.
            let counts = |(p, label): &(Phase, String)| *p == phase && label != REPORT;
            stats.iter().filter(|(key, _)| counts(key)).for_each(|(_, t)| all.add(t));
            Cost::of_traffic(&all)
        };
        let wall = |spent: &[Spent]| spent.iter().map(|s| s.wall.as_secs_f64()).sum();
        let mut report = Self {
            protocol: plan.choices.names(network),
            rows: Vec::new(),
            model: sum(Phase::Model),
            client: sum(Phase::Client),
            preprocessing: sum(Phase::Preprocessing),
            online: sum(Phase::Online),
            hint_seconds: wall(&clock.hint),
            preprocessing_seconds: wall(&clock.preparing),
            online_seconds: online.as_secs_f64(),
            session,
            client_peak_kib: peak_kib(),
            server_peak_kib: server.peak_kib,
            timeline: None,
        };
        for (id, (node, step)) in network.nodes.iter().zip(&plan.steps).enumerate() {
            let cost = |phase: Phase, ours: &[Spent], theirs: &[u32]| {
                let traffic = stats.get(&(phase, label(id, &node.name))).copied().unwrap_or_default();
                Cost {
                    wall_seconds: ours[id].wall.as_secs_f64(),
                    client_seconds: ours[id].busy().as_secs_f64(),
                    server_seconds: theirs.get(id).map_or(0.0, |&us| f64::from(us) * 1e-6),
                    ..Cost::of_traffic(&traffic)
                }
            };
            let row = Row {
                name: node.name.clone(),
                operation: describe(&node.op),
                ciphertexts: step.layer.as_ref().map_or(0, |l| l.geometry().ciphertexts),
                responses: step.layer.as_ref().map_or(0, |l| l.geometry().responses),
                cots: clock.cots[id],
                hint: cost(Phase::Client, &clock.hint, &server.hint),
                preprocessing: cost(Phase::Preprocessing, &clock.preparing, &server.preparing),
                online: cost(Phase::Online, &clock.online, &server.online),
            };
            for (total, part) in [
                (&mut report.client, row.hint),
                (&mut report.preprocessing, row.preprocessing),
                (&mut report.online, row.online),
            ] {
                total.add(&Cost { bytes_up: 0, bytes_down: 0, rounds: 0, ..part });
            }
            report.rows.push(row);
        }
        report
    }
}

/// What a plan predicts of a query, to stand beside its [`Report`].
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Before the input.
    pub preprocessing: Total,
    /// With the input.
    pub online: Total,
}

impl Predicted {
    /// Of the query that `report` is about; seconds only if `site` says where it ran.
    pub fn new(plan: &Plan, report: &Report, site: Option<&Site<'_>>) -> Self {
        let p = predict(plan, &report.session, site);
        Self { preprocessing: p.offline, online: p.online }
    }
}

/// An operation in a few words.
pub fn describe(op: &Op) -> String {
    op.describe()
}

/// What a person must know of a network whose signs are not exact; nothing of others.
pub fn caveat(network: &Network) -> Option<String> {
    let all = network.nodes.iter().filter(|n| n.op.ignored().is_some()).count();
    let most = network.nodes.iter().filter_map(|n| n.op.reduced()).max()?;
    let reduced = |pools: bool| {
        let is = |op: &Op| op.reduced().is_some() && matches!(op, Op::MaxPool { .. }) == pools;
        network.nodes.iter().any(|n| is(&n.op))
    };
    let zeros = reduced(false).then_some("small positive values may become zero there");
    let lower = reduced(true).then_some("a max-pool may take a value slightly below the largest");
    let effects: Vec<&str> = zeros.into_iter().chain(lower).collect();
    Some(format!(
        "reduced-precision signs in {} of {all} activation and max-pool layers, up to {most} low bits left out: {}",
        network.reduced_signs(),
        effects.join(", and ")
    ))
}

/// The most memory that this process ever held, in KiB (0 where the system does not say).
pub fn peak_kib() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| {
            let line = s.lines().find(|l| l.starts_with("VmHWM:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}
