//! A plan of a compiled model: what is done in each layer, and what it will cost.

use std::fmt;

use crate::terminal::table::{bytes, count, millis, plain, trimmed};
use comfy_table::Table;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::report::caveat;
use jaguar_graph::network::{Blocks, Network, block_size};
use jaguar_linear::backend::Planned as PlannedLayer;
use jaguar_linear::layout::Packing;
use jaguar_mpc::Cost;
use jaguar_plan::block_sizes::{Sizes, block_sizes};
use jaguar_plan::machine::{Link, Placement};
use jaguar_plan::planner::{self, Alternative, Explanation};
use jaguar_plan::predict::{NodeStage, Prediction, Seconds, Session, Site, predict};
use jaguar_plan::{Allowed, BackendId, Choices, Comparison, Domain, Plan, PlanError, Step};
use serde::Serialize;

use crate::tables::batch::BatchCosts;
use crate::tables::memory::MemoryNeeds;

/// A plan as a person reads it (`Display`), and a program ([`Serialize`]).
#[derive(Serialize)]
pub struct Planned<'a> {
    #[serde(rename = "network")]
    name: &'a str,
    model: String,
    choices: &'a Choices,
    /// What is learned beyond the result, and by whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    leaks: Option<String>,
    link: Option<Link>,
    placement: Option<Placement>,
    layers: Vec<LayerRow<'a>>,
    /// What the answer consists of.
    outputs: Vec<OutputRow<'a>>,
    /// How many of the ONNX model's last nodes are left to whoever gets the answer.
    tail: u32,
    prediction: Prediction,
    memory: MemoryNeeds,
    /// What a query of several images costs beside queries of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<BatchCosts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_sizes: Option<Vec<Sizes>>,
    #[serde(skip)]
    network: &'a Network,
    #[serde(skip)]
    plan: &'a Plan,
    /// How many threads the figures of the machine are for.
    #[serde(skip)]
    threads: Option<usize>,
    /// Bytes that all nonlinear layers send and COTs that they take, had they exact signs, if they have not.
    #[serde(skip)]
    exact: Option<(u64, u64)>,
}

#[derive(Serialize)]
struct OutputRow<'a> {
    name: &'a str,
    shape: &'a [usize],
}

#[derive(Serialize)]
struct LayerRow<'a> {
    name: &'a str,
    operation: String,
    shape: [usize; 3],
    /// Of weights; none in a dense layer.
    blocks: Option<Blocks>,
    /// As blocks of which size they run.
    effective_block_size: usize,
    tiles: usize,
    maps_per_ciphertext: usize,
    /// How many images of a batch share a ciphertext.
    interleaved: usize,
    ciphertexts: usize,
    responses: usize,
    cots: u64,
    noise_ulps: Option<f64>,
}

impl<'a> Planned<'a> {
    /// `plan` of the network in `bundle`, with the `memory` that it takes; seconds only if `site` says where it runs; the
    /// planner's reasons beside the backends that it was given, and what weights in blocks would cost, if they are asked for.
    ///
    /// # Errors
    /// When the network with exact signs, to compare with, cannot be planned.
    pub fn new(
        bundle: &'a Bundle,
        plan: &'a Plan,
        allowed: Allowed,
        site: Option<&Site<'_>>,
        memory: MemoryNeeds,
        (explained, in_blocks): (Option<&[BackendId]>, bool),
    ) -> Result<Self, PlanError> {
        let network = &bundle.model.network;
        let exact = match caveat(network) {
            None => None,
            Some(_) => {
                let exact = Plan::allowing(&with_exact_signs(network), plan.choices.clone(), allowed)?;
                let cost = exact.nonlinear_cost();
                Some((sent(&cost), (cost.from_client() + cost.from_server()).total()))
            }
        };
        Ok(Self {
            name: &network.name,
            model: bundle.id().to_string(),
            choices: &plan.choices,
            leaks: plan.choices.comparison.caveat(),
            link: site.map(|s| s.link),
            placement: site.map(|s| s.placement),
            layers: layers(network, plan),
            outputs: network
                .output
                .parts
                .iter()
                .map(|p| OutputRow { name: &p.name, shape: &p.dims })
                .collect(),
            tail: network.output.tail,
            prediction: predict(plan, &Session::default(), site),
            memory,
            batch: None,
            explanation: explained.map(|among| planner::explain(network, plan, among, site)),
            block_sizes: in_blocks.then(|| block_sizes(network, plan, site)),
            network,
            plan,
            threads: site.map(|s| s.machine.threads),
            exact,
        })
    }

    /// With what the linear layers take beside queries of one image, which `single` plans.
    #[must_use]
    pub fn beside(self, single: &Plan, site: Option<&Site<'_>>) -> Self {
        Self { batch: Some(BatchCosts::new(self.network, single, self.plan, site)), ..self }
    }
}

impl Planned<'_> {
    /// What else the plan could have been, if that was asked for.
    pub fn explanation(&self) -> Option<&Explanation> {
        self.explanation.as_ref()
    }
}

impl fmt::Display for Planned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, plan, prediction, .. } = self;
        writeln!(f, "{} (model {}), protocol {}", self.name, self.model, plan.choices.names(network))?;
        writeln!(
            f,
            "{}; activations {} bits and {} guard bits, weights {} bits",
            rings(plan),
            network.activation_bits - network.guard_bits,
            network.guard_bits,
            network.weight_bits
        )?;
        if self.outputs.len() > 1 || self.tail > 0 {
            let outputs: Vec<String> =
                self.outputs.iter().map(|o| format!("{} {:?}", o.name, o.shape)).collect();
            writeln!(f, "the answer is {}", outputs.join(", "))?;
        }
        if let Some(left_out) = network.output.left_out() {
            writeln!(f, "{left_out}")?;
        }
        if let Some(warning) = &self.leaks {
            writeln!(f, "WARNING: {warning}")?;
        }
        match (self.threads, &self.link, self.placement) {
            (Some(threads), Some(link), Some(placement)) => writeln!(
                f,
                "{threads} threads a party, {}, {}",
                match placement {
                    Placement::Shared => "both parties on this machine",
                    Placement::Apart => "each party on a machine like this one",
                },
                words(link)
            )?,
            _ => writeln!(f, "seconds: not measured (jaguar measure)")?,
        }
        writeln!(f, "\n{}\n", by_layer(network, plan, prediction))?;
        write!(f, "{}", by_stage(prediction))?;
        write!(f, "\n\n{}", self.memory)?;
        let keys: usize = plan.backends.iter().map(|layers| layers.session_bytes().0).sum();
        if keys > 0 {
            write!(f, "\nonce per session: a key of {}", bytes(keys as u64))?;
        }
        let keys = plan.client_keys();
        if keys.sent > 0 {
            write!(
                f,
                "\nonce per client: keys of {}; the server keeps {} of them",
                bytes(keys.sent as u64),
                bytes(keys.kept)
            )?;
        }
        if let (Some(caveat), Some((exact_sent, exact_cots))) = (caveat(network), self.exact) {
            write!(
                f,
                "\n{caveat}\n(exact signs: nonlinear layers {} in all instead of {}, {} COTs)",
                bytes(exact_sent),
                bytes(sent(&plan.nonlinear_cost())),
                count(exact_cots),
            )?;
        }
        if let Some(batch) = &self.batch {
            write!(f, "\n\n{batch}")?;
        }
        if let Some(sizes) = &self.block_sizes {
            write!(f, "\n\n{}", by_block_size(sizes))?;
        }
        if let Some(explanation) = &self.explanation {
            writeln!(f)?;
            explain(explanation, f)?;
        }
        Ok(())
    }
}

/// What a link moves in a second, and its round trip.
pub fn words(link: &Link) -> String {
    format!("{:.0} MB/s, {:.2} ms round trip", link.bytes_per_second * 1e-6, link.round_trip * 1e3)
}

fn sent(cost: &Cost) -> u64 {
    cost.prepare_up + cost.prepare_down + cost.up + cost.down
}

/// What the network would be had nobody asked for reduced-precision signs.
fn with_exact_signs(network: &Network) -> Network {
    let mut exact = network.clone();
    for ignored in exact.nodes.iter_mut().filter_map(|node| node.op.ignored_mut()) {
        *ignored = 0;
    }
    exact
}

/// The rings of the linear layers and their security.
fn rings(plan: &Plan) -> String {
    plan.backends.iter().map(|layers| layers.describe()).collect::<Vec<_>>().join("; ")
}

fn layers<'a>(network: &'a Network, plan: &Plan) -> Vec<LayerRow<'a>> {
    let one = |(node, step): (&'a jaguar_graph::network::Node, &Step)| {
        let layer = step.layer.as_ref();
        LayerRow {
            name: &node.name,
            operation: network.describe(&node.op),
            shape: node.shape,
            blocks: layer.and_then(|l| l.spec().blocks),
            effective_block_size: layer.map_or(1, |l| l.block_size()),
            tiles: layer.map_or(0, |l| l.geometry().tiles),
            maps_per_ciphertext: layer.map_or(0, |l| l.geometry().maps_per_ciphertext),
            interleaved: layer.map_or(0, |l| l.geometry().interleaved),
            ciphertexts: layer.map_or(0, |l| l.geometry().ciphertexts),
            responses: layer.map_or(0, |l| l.geometry().responses),
            cots: (step.cost.from_client() + step.cost.from_server()).total(),
            noise_ulps: step.noise_ulps(),
        }
    };
    network.nodes.iter().zip(&plan.steps).map(one).collect()
}

fn by_layer(network: &Network, plan: &Plan, prediction: &Prediction) -> String {
    let mut table = plain(
        &[
            "layer",
            "operation",
            "choice",
            "shape",
            "b",
            "shift",
            "ring",
            "tiles",
            "maps/ct",
            "ciphertexts",
            "responses",
            "hint",
            "up",
            "down",
            "COTs",
            "rounds",
            "noise/ulp",
            "prep. c ms",
            "prep. s",
            "online c",
            "online s",
        ],
        3,
    );
    for (id, (node, step)) in network.nodes.iter().zip(&plan.steps).enumerate() {
        let [c, h, w] = node.shape;
        let cost = &prediction.nodes[id];
        let none = || "-".to_owned();
        let layer = step.layer.as_ref();
        let of_layer = |f: &dyn Fn(&PlannedLayer) -> String| layer.map_or_else(none, f);
        let choice = if layer
            .is_some_and(|l| l.geometry().packing_distance.is_some() && l.geometry().maps_per_ciphertext > 1)
        {
            match plan.choices.packings[id] {
                Packing::PowerOfTwo => "power of two".into(),
                Packing::Tight => "tight".into(),
            }
        } else if let (true, Comparison::By { name, extra_bits }) = (step.replaced, plan.choices.comparison) {
            let leaks = if name.0.caveat(extra_bits).is_some() { "LEAKS: " } else { "" };
            format!("{leaks}{}, {extra_bits} bits more", name.0.name())
        } else if step.nonlinear.is_some() {
            format!("{}-bit digits", plan.choices.digits[id])
        } else {
            none()
        };
        let time = |stage: &NodeStage, of: fn(&Seconds) -> f64| {
            stage.seconds.as_ref().map_or_else(none, |s| millis(of(s)))
        };
        table.add_row([
            node.name.clone(),
            network.describe(&node.op),
            choice,
            format!("{c}x{h}x{w}"),
            of_layer(&|l| match (block_size(l.spec()), l.block_size()) {
                (own, runs) if own == runs => own.to_string(),
                (own, runs) => format!("{own} as {runs}"),
            }),
            of_layer(&|l| l.spec().shift.to_string()),
            match (&step.extension, &step.truncation) {
                (Some(_), _) => format!("{}>{}", ring(step.computed), ring(step.domain)),
                (None, Some(truncation)) => format!("{} /2^{}", ring(step.domain), truncation.shift),
                (None, None) => ring(step.domain),
            },
            of_layer(&|l| l.geometry().tiles.to_string()),
            of_layer(&|l| l.geometry().maps_per_ciphertext.to_string()),
            of_layer(&|l| l.geometry().ciphertexts.to_string()),
            of_layer(&|l| l.geometry().responses.to_string()),
            bytes(cost.hint_bytes),
            bytes(cost.offline.bytes_up + cost.online.bytes_up),
            bytes(cost.offline.bytes_down + cost.online.bytes_down),
            count((step.cost.from_client() + step.cost.from_server()).total()),
            count(cost.online.rounds),
            step.noise_ulps().map_or_else(none, |noise| format!("{noise:.4}")),
            time(&cost.offline, |s| s.client),
            time(&cost.offline, |s| s.server),
            time(&cost.online, |s| s.client),
            time(&cost.online, |s| s.server),
        ]);
    }
    trimmed(&table)
}

/// The bits of a power of two, and an odd modulus as it is.
fn ring(domain: Domain) -> String {
    domain.modulus.log2().map_or_else(|| format!("mod {}", domain.modulus), |bits| bits.to_string())
}

fn seconds(of: Option<f64>) -> String {
    of.map_or_else(|| "-".into(), |s| format!("{s:.2}"))
}

fn by_stage(p: &Prediction) -> String {
    let mut table = plain(&["stage", "up", "down", "rounds", "client s", "server s", "seconds"], 1);
    let none = || "-".to_owned();
    table.add_row([
        "once per model: a half".into(),
        none(),
        none(),
        none(),
        none(),
        seconds(p.a_half_seconds),
        seconds(p.a_half_seconds),
    ]);
    table.add_row([
        "once per client: hint".into(),
        none(),
        bytes(p.hint_bytes),
        none(),
        none(),
        seconds(p.nodes.iter().map(|n| n.hint_seconds).sum::<Option<f64>>()),
        seconds(p.hint_seconds),
    ]);
    if p.key_bytes > 0 {
        table.add_row([
            "once per client: keys".into(),
            bytes(p.key_bytes),
            none(),
            none(),
            none(),
            none(),
            seconds(p.key_seconds),
        ]);
    }
    for (name, total) in [("query: before the input", &p.offline), ("query: online", &p.online)] {
        table.add_row([
            name.into(),
            bytes(total.bytes_up),
            bytes(total.bytes_down),
            count(total.rounds),
            seconds(total.work.map(|w| w.client)),
            seconds(total.work.map(|w| w.server)),
            seconds(total.seconds),
        ]);
    }
    trimmed(&table)
}

/// One row for each layer and block size.
fn by_block_size(sizes: &[Sizes]) -> String {
    let mut table = plain(
        &[
            "layer",
            "shape",
            "b",
            "runs as",
            "query ms",
            "online ms",
            "bytes",
            "hint",
            "ciphertexts",
            "responses",
        ],
        2,
    );
    for layer in sizes {
        let [c, h, w] = layer.shape;
        for cost in &layer.costs {
            let f = &cost.figures;
            let time = |of: Option<f64>| of.map_or_else(|| "-".into(), |s| format!("{:.3}", s * 1e3));
            table.add_row([
                layer.name.clone(),
                format!("{c}x{h}x{w}"),
                format!("{}{}", cost.b, if cost.b == layer.own { " <" } else { "" }),
                cost.effective.to_string(),
                time(f.seconds),
                time(f.online_seconds),
                bytes(f.bytes),
                bytes(f.hint_bytes),
                count(f.ciphertexts as u64),
                count(f.responses as u64),
            ]);
        }
    }
    trimmed(&table)
}

/// An empty table of alternatives; the times' unit and the bytes are as the heads say.
fn alternatives_of(title: &str, [query, online, bytes]: [&str; 3]) -> Table {
    let rest = ["online", "rounds", "hint", "ciphertexts", "responses", "COTs", "noise/ulp"];
    plain(&[&[title, "", query, online, bytes], &rest[..]].concat(), 2)
}

/// For every choice, what else there was.
fn explain(explanation: &Explanation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let query = |title: &str, alternatives: &[Alternative]| {
        let mut table = alternatives_of(title, ["query s", "online s", "query"]);
        alternatives.iter().for_each(|a| {
            table.add_row(row(a));
        });
        trimmed(&table)
    };
    writeln!(f, "\n{}\n{}", query("ring", &explanation.rings), explanation.ring_reason)?;
    writeln!(
        f,
        "\n{}\nfixed when the network is compiled (jaguar compile --activation-bits)",
        query("activations", &explanation.activations)
    )?;
    for decision in &explanation.layers {
        let mut table = alternatives_of("", ["query ms", "online ms", "bytes"]);
        for a in &decision.alternatives {
            let mut row = row(a);
            for (at, of) in
                [(2, a.figures.and_then(|f| f.seconds)), (3, a.figures.and_then(|f| f.online_seconds))]
            {
                if let Some(seconds) = of {
                    row[at] = format!("{:.3}", seconds * 1e3);
                }
            }
            table.add_row(row);
        }
        writeln!(f, "\n{}: {}\n{}\n{}", decision.name, decision.about, trimmed(&table), decision.reason)?;
    }
    Ok(())
}

fn row(a: &Alternative) -> [String; 12] {
    let mark = if a.taken { "<" } else { "" };
    match (&a.figures, &a.refused) {
        (Some(f), _) => [
            a.what.clone(),
            mark.into(),
            seconds(f.seconds),
            seconds(f.online_seconds),
            bytes(f.bytes),
            bytes(f.online_bytes),
            count(f.rounds),
            bytes(f.hint_bytes),
            count(f.ciphertexts as u64),
            count(f.responses as u64),
            count(f.cots),
            format!("{:.4}", f.noise_ulps),
        ],
        (None, refused) => {
            let mut row: [String; 12] = Default::default();
            row[0] = format!("{}: {}", a.what, refused.as_deref().unwrap_or("impossible"));
            row[1] = mark.into();
            row
        }
    }
}
