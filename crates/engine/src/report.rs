//! What a query cost, layer by layer, and how far it has come.

use std::collections::BTreeSet;
use std::time::Duration;

use jaguar_graph::network::{Network, Part};
use jaguar_plan::Plan;
use jaguar_plan::predict::{Session, Site, Total, predict};
use jaguar_wire::{Stage, Stats, Traffic};
use serde::{Deserialize, Serialize};

use crate::exec::clock::{NodeTimes, Spent, label};
use crate::kept::stock::Stock;
use crate::memory::peak_kib;
use crate::message::ServerCost;
use crate::timeline::Timeline;

/// The label of the server's report.
pub(crate) const REPORT: &str = "report";

/// One stage's cost of one node, or of all.
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
    /// What the network calls the node.
    pub name: String,
    /// What the node computes, in a few words.
    pub operation: String,
    /// Who computes it, and how.
    pub kind: Part,
    /// Input ciphertexts (b halves), of linear layers.
    pub ciphertexts: usize,
    /// Responses: products modulo one prime, on either side, in offline.
    pub responses: usize,
    /// Correlated OTs that the node uses up, of both directions.
    pub cots: u64,
    /// What the client's hint lacked.
    pub hint: Cost,
    /// Of the stage before the input is known.
    pub offline: Cost,
    /// Of the stage that begins with the input.
    pub online: Cost,
}

/// The cost of one query (and of what came before it on this connection).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The protocol that was run, by its name.
    pub protocol: String,
    /// What the protocol tells the parties beyond the result: see [`jaguar_plan::Comparison::caveat`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaks: Option<String>,
    /// One for each node, in the network's order.
    pub rows: Vec<Row>,
    /// Of the handshake, with the model's public part.
    pub model: Cost,
    /// Hint and base OTs, as far as they were needed.
    pub client: Cost,
    /// Sum over the nodes, and the query's keys.
    pub offline: Cost,
    /// Sum over the nodes, and the result.
    pub online: Cost,
    /// Wall seconds of fetching what the hint lacked, while the client had nothing else to do.
    pub hint_seconds: f64,
    /// Wall seconds of offline, waiting included.
    pub offline_seconds: f64,
    /// Wall seconds from the input to the result.
    pub online_seconds: f64,
    /// The query's number, if both parties kept it until the input was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// What the server still keeps for this client.
    pub server_keeps: Stock,
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
        times: &NodeTimes,
        server: &ServerCost,
        online: Duration,
        session: Session,
    ) -> Self {
        let sum = |stage: Stage| {
            let mut all = Traffic::default();
            // The server's word about its own times is no part of the query.
            let counts = |(p, label): &(Stage, String)| *p == stage && label != REPORT;
            stats.iter().filter(|(key, _)| counts(key)).for_each(|(_, t)| all.add(t));
            Cost::of_traffic(&all)
        };
        let wall = |spent: &[Spent]| spent.iter().map(|s| s.wall.as_secs_f64()).sum();
        let mut report = Self {
            protocol: plan.choices.names(network),
            leaks: plan.choices.comparison.caveat(),
            rows: Vec::new(),
            model: sum(Stage::Model),
            client: sum(Stage::Client),
            offline: sum(Stage::Offline),
            online: sum(Stage::Online),
            hint_seconds: wall(&times.hint),
            offline_seconds: wall(&times.offline),
            online_seconds: online.as_secs_f64(),
            kept: server.kept,
            server_keeps: server.stock,
            session,
            client_peak_kib: peak_kib(),
            server_peak_kib: server.peak_kib,
            timeline: None,
        };
        for (id, (node, step)) in network.nodes.iter().zip(&plan.steps).enumerate() {
            let cost = |stage: Stage, ours: &[Spent], theirs: &[u32]| {
                let traffic = stats.get(&(stage, label(id, &node.name))).copied().unwrap_or_default();
                Cost {
                    wall_seconds: ours[id].wall.as_secs_f64(),
                    client_seconds: ours[id].busy().as_secs_f64(),
                    server_seconds: theirs.get(id).map_or(0.0, |&us| f64::from(us) * 1e-6),
                    ..Cost::of_traffic(&traffic)
                }
            };
            let row = Row {
                name: node.name.clone(),
                operation: network.describe(&node.op),
                kind: node.op.part(),
                ciphertexts: step.layer.as_ref().map_or(0, |l| l.geometry().ciphertexts),
                responses: step.layer.as_ref().map_or(0, |l| l.geometry().responses),
                cots: times.cots[id],
                hint: cost(Stage::Client, &times.hint, &server.hint),
                offline: cost(Stage::Offline, &times.offline, &server.offline),
                online: cost(Stage::Online, &times.online, &server.online),
            };
            for (total, part) in [
                (&mut report.client, row.hint),
                (&mut report.offline, row.offline),
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
    /// Of the stage before the input is known.
    pub offline: Total,
    /// Of the stage that begins with the input.
    pub online: Total,
}

impl Predicted {
    /// Of the query that `report` is about; seconds only if `site` says where it ran.
    pub fn new(plan: &Plan, report: &Report, site: Option<&Site<'_>>) -> Self {
        let p = predict(plan, &report.session, site);
        Self { offline: p.offline, online: p.online }
    }
}

/// What a person must know of a network whose signs are not exact; nothing of others.
pub fn caveat(network: &Network) -> Option<String> {
    let all = network.nodes.iter().filter(|n| n.op.ignored().is_some()).count();
    let most = network.nodes.iter().filter_map(|n| network.left_out(&n.op)).max()?;
    let reduced = network.nodes.iter().filter(|n| network.left_out(&n.op).is_some());
    let effects: BTreeSet<(Part, &str)> =
        reduced.filter_map(|n| Some((n.op.part(), n.op.signs()?.caveat()))).collect();
    let effects: Vec<&str> = effects.into_iter().map(|(_, effect)| effect).collect();
    Some(format!(
        "reduced-precision signs in {} of {all} activation and max-pool layers, up to {most} low bits left out: {}",
        network.reduced_signs(),
        effects.join(", and ")
    ))
}
