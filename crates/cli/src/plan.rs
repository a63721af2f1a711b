//! `jaguar plan`

use std::path::PathBuf;

use anyhow::Result;
use jaguar_cpu::Cpu;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::report::caveat;
use jaguar_graph::network::{Blocks, Network, block_size};
use jaguar_linear::backend::Planned as PlannedLayer;
use jaguar_linear::layout::Packing;
use jaguar_mpc::Cost;
use jaguar_plan::block_sizes::{Sizes, block_sizes};
use jaguar_plan::machine::{Link, Placement};
use jaguar_plan::planner::{self, Alternative, Explanation};
use jaguar_plan::predict::{NodeStage, Prediction, Seconds, Session, predict};
use jaguar_plan::{BackendId, Choices, Comparison, Domain, Plan, Step};
use jaguar_profile::{Between, When, kept};
use jaguar_terminal::say;
use jaguar_terminal::table::{bytes, count, millis, plain, trimmed};
use serde::Serialize;

use crate::guard::GuardBits;
use crate::leakage::{self, AcceptSignLeakage};
use crate::notes::{tell, words};
use crate::protocol;

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
    #[command(flatten)]
    guard_bits: GuardBits,
    #[command(flatten)]
    leakage: AcceptSignLeakage,
    #[command(flatten)]
    memory: protocol::WeightMemory,
    /// Which backends may run linear layers, with commas between: a layer has the first one that can run it, or the one that makes the query faster.
    #[arg(long, value_delimiter = ',', default_values_t = protocol::secure(), value_parser = protocol::parse)]
    backends: Vec<BackendId>,
    /// The link to plan for: loopback, lan, wan, or a file of `jaguar calibrate --link-to`.
    #[arg(long, value_parser = str::parse::<Between>, default_value = "loopback")]
    link: Between,
    /// What is to be short.
    #[arg(long, value_enum, default_value_t)]
    prefer: protocol::Prefer,
    /// For every choice, what else there was and what it would cost.
    #[arg(long)]
    explain: bool,
    /// For every linear layer, what it would cost with weights in skew-circulant blocks of 1, 2, 4, 8 and 16.
    #[arg(long)]
    block_sizes: bool,
    /// Everything as JSON.
    #[arg(long)]
    json: bool,
    /// When to measure this machine; what a server chose before counts unless it is off.
    #[arg(long, value_enum, default_value_t)]
    calibrate: When,
    /// Where figures and choices are kept (default: the user's cache folder).
    #[arg(long)]
    cache: Option<PathBuf>,
    /// Threads for the linear layers (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar_terminal::thread_count)]
    threads: usize,
}

#[derive(Serialize)]
struct Planned<'a> {
    network: &'a str,
    model: String,
    choices: &'a Choices,
    /// What is learned beyond the result, and by whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    leaks: Option<String>,
    link: Option<Link>,
    placement: Option<Placement>,
    layers: Vec<Layer<'a>>,
    prediction: &'a Prediction,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_sizes: Option<&'a [Sizes]>,
}

#[derive(Serialize)]
struct Layer<'a> {
    name: &'a str,
    operation: String,
    shape: [usize; 3],
    /// Of weights; none in a dense layer.
    blocks: Option<Blocks>,
    /// As blocks of which size they run.
    effective_block_size: usize,
    tiles: usize,
    maps_per_ciphertext: usize,
    ciphertexts: usize,
    responses: usize,
    cots: u64,
    noise_ulps: Option<f64>,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar_terminal::set_threads(args.threads)?;
    let bundle = args.guard_bits.apply(Bundle::read(&args.model)?)?;
    let network = &bundle.model.network;
    let cache = kept::cache(args.cache.as_deref());
    let machine = kept::machine(Cpu::detect(), args.calibrate, cache.as_deref(), &mut tell)?;
    let site = machine.as_ref().map(|machine| args.link.site(machine, args.prefer.into()));
    let choices = match &site {
        None => args.memory.apply(Choices::among(network, &args.backends)?),
        Some(site) => {
            let memory = args.memory.bytes();
            kept::choose(network, bundle.id(), &args.backends, site, memory, cache.as_deref(), &mut tell)?
        }
    };
    let choices = args.leakage.apply(choices, network)?;
    let plan = Plan::allowing(network, choices, args.leakage.allowed())?;
    let prediction = predict(&plan, &Session::default(), site.as_ref());
    let sizes = args.block_sizes.then(|| block_sizes(network, &plan, site.as_ref()));
    let explanation = args.explain.then(|| planner::explain(network, &plan, site.as_ref()));
    if args.json {
        let planned = Planned {
            network: &network.name,
            model: bundle.id().to_string(),
            choices: &plan.choices,
            leaks: leakage::warning(&plan),
            link: site.map(|s| s.link),
            placement: site.map(|s| s.placement),
            layers: layers(network, &plan),
            prediction: &prediction,
            explanation: explanation.as_ref(),
            block_sizes: sizes.as_deref(),
        };
        say!("{}", serde_json::to_string_pretty(&planned)?);
        return Ok(());
    }
    say!("{} (model {}), protocol {}", network.name, bundle.id(), plan.choices.names(network));
    say!(
        "{}; activations {} bits and {} guard bits, weights {} bits",
        rings(&plan),
        network.activation_bits - network.guard_bits,
        network.guard_bits,
        network.weight_bits
    );
    if let Some(warning) = leakage::warning(&plan) {
        say!("WARNING: {warning}");
    }
    match &site {
        None => say!("seconds: not measured (jaguar calibrate)"),
        Some(site) => say!(
            "{} threads a party, {}, {}",
            site.machine.threads,
            match site.placement {
                Placement::Shared => "both parties on this machine",
                Placement::Apart => "each party on a machine like this one",
            },
            words(&site.link)
        ),
    }
    say!("\n{}\n", by_layer(network, &plan, &prediction));
    say!("{}", by_stage(&prediction));
    let keys: usize = plan.backends.iter().map(|layers| layers.session_bytes().0).sum();
    if keys > 0 {
        say!("once per session: a key of {}", bytes(keys as u64));
    }
    let keys = plan.client_keys();
    if keys.sent > 0 {
        say!(
            "once per client: keys of {}; the server keeps {} of them",
            bytes(keys.sent as u64),
            bytes(keys.kept)
        );
    }
    if let Some(caveat) = caveat(network) {
        let exact = Plan::allowing(&with_exact_signs(network), plan.choices.clone(), args.leakage.allowed())?;
        let (exact, reduced) = (exact.nonlinear_cost(), plan.nonlinear_cost());
        let sent = |c: &Cost| c.prepare_up + c.prepare_down + c.up + c.down;
        say!(
            "{caveat}\n(exact signs: nonlinear layers {} in all instead of {}, {} COTs)",
            bytes(sent(&exact)),
            bytes(sent(&reduced)),
            count((exact.from_client() + exact.from_server()).total()),
        );
    }
    if let Some(sizes) = &sizes {
        say!("\n{}", by_block_size(sizes));
    }
    if let Some(explanation) = &explanation {
        explain(explanation);
    }
    Ok(())
}

/// What the network would be had nobody asked for reduced-precision signs.
fn with_exact_signs(network: &Network) -> Network {
    let mut exact = network.clone();
    for ignored in exact.nodes.iter_mut().filter_map(|node| node.op.ignored_mut()) {
        *ignored = network.guard_bits;
    }
    exact
}

/// The rings of the linear layers and their security.
fn rings(plan: &Plan) -> String {
    plan.backends.iter().map(|layers| layers.describe()).collect::<Vec<_>>().join("; ")
}

fn layers<'a>(network: &'a Network, plan: &Plan) -> Vec<Layer<'a>> {
    let one = |(node, step): (&'a jaguar_graph::network::Node, &Step)| {
        let layer = step.layer.as_ref();
        Layer {
            name: &node.name,
            operation: network.describe(&node.op),
            shape: node.shape,
            blocks: layer.and_then(|l| l.spec().blocks),
            effective_block_size: layer.map_or(1, |l| l.block_size()),
            tiles: layer.map_or(0, |l| l.geometry().tiles),
            maps_per_ciphertext: layer.map_or(0, |l| l.geometry().maps_per_ciphertext),
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
        } else if let (Some(_), Comparison::PmaxLeaky { factor_bits }) =
            (&step.nonlinear, plan.choices.comparison)
        {
            format!("LEAKS, factor 2^{factor_bits}")
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

fn explain(explanation: &Explanation) {
    let query = |title: &str, alternatives: &[Alternative]| {
        let mut table = plain(
            &[
                title,
                "",
                "query s",
                "online s",
                "query",
                "online",
                "rounds",
                "hint",
                "ciphertexts",
                "responses",
                "COTs",
                "noise/ulp",
            ],
            2,
        );
        alternatives.iter().for_each(|a| {
            table.add_row(row(a));
        });
        trimmed(&table)
    };
    say!("\n{}\n{}", query("ring", &explanation.rings), explanation.ring_reason);
    say!(
        "\n{}\nfixed when the network is compiled (jaguar compile --activation-bits)",
        query("activations", &explanation.activations)
    );
    for decision in &explanation.layers {
        let mut table = plain(
            &[
                "",
                "",
                "query ms",
                "online ms",
                "bytes",
                "online",
                "rounds",
                "hint",
                "ciphertexts",
                "responses",
                "COTs",
                "noise/ulp",
            ],
            2,
        );
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
        say!("\n{}: {}\n{}\n{}", decision.name, decision.about, trimmed(&table), decision.reason);
    }
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
