//! What a query of a plan will cost: by stage, by backend, by kind of layer and by layer, and over which link.
//!
//! The page calculates times anew for another link. It uses the planner's own formula ([`jaguar_plan::predict`]): time of computing
//! and of transfer as the root of the sum of squares, and the round trips on top. What the plan chose stays as it is.

use crate::terminal::table::count;
use askama::Template;
use jaguar_plan::machine::{Link, Placement};
use jaguar_plan::memory::{Load, Memory, PartyMemory, memory};
use jaguar_plan::predict::{NodeCost, Prediction, Session, Site, Total, predict};
use jaguar_plan::{Choices, Plan};
use serde::Serialize;

use crate::alternatives::Alternatives;
use crate::batch::Batch;
pub use crate::subject::Subject;
use crate::{Frame, NodeKind, ReportError, mib, render, thousands};

#[derive(Template)]
#[template(path = "cost.html")]
struct Page<'a> {
    frame: Frame,
    name: &'a str,
    id: &'a str,
    protocol: String,
    rings: Vec<String>,
    leaks: Option<String>,
    place: Option<String>,
    /// Bytes a second and the round trip of the link that all seconds are for.
    link: Option<[String; 2]>,
    /// How many a query has.
    images: usize,
    /// Seconds of a query, offline and online, over its images.
    an_image: String,
    /// What the page's sliders calculate with.
    data: Data,
    stages: Vec<Stage>,
    backends: Vec<Backend>,
    kinds: Vec<Sum>,
    /// Seconds of the busier party offline as layers count them, and as the plan's LPN instances make them, if these differ.
    instances: Option<[String; 2]>,
    load: Load,
    /// Of client and server, in MiB: as [`PartyMemory`] has it, then all of it.
    memory: [(&'static str, [String; 7]); 2],
    layers: Vec<Row<'a>>,
    batch: Option<Batch>,
    alternatives: Option<Alternatives>,
    presets: Vec<(usize, &'a str)>,
}

/// What the page's script computes seconds from when a slider moves.
#[derive(Serialize)]
struct Data {
    images: usize,
    link: Link,
    links: Vec<Link>,
    /// The plan, then each backend alone.
    plans: Vec<Option<Timed>>,
    layers: Vec<[u64; 2]>,
}

/// Times of a plan but for the link.
#[derive(Clone, Copy, Serialize)]
struct Timed {
    offline: Part,
    online: Part,
    hint: Part,
    keys: u64,
}

/// What a stage takes but for the link.
#[derive(Clone, Copy, Serialize)]
struct Part {
    /// Seconds over a link that takes no time.
    seconds: f64,
    /// Of the two directions the one with more bytes.
    bytes: u64,
    rounds: u64,
}

struct Stage {
    what: &'static str,
    /// The script's name of its seconds.
    key: &'static str,
    up: String,
    down: String,
    rounds: String,
    client: String,
    server: String,
    seconds: String,
}

struct Backend {
    name: String,
    about: &'static str,
    refused: Option<String>,
    offline: String,
    online: String,
    sent: String,
    received: String,
    rounds: u64,
    hint: String,
    keys: String,
    taken: bool,
}

struct Sum {
    kind: NodeKind,
    layers: usize,
    /// Client offline, server offline, client online, server online.
    seconds: [String; 4],
    up: String,
    down: String,
    rounds: u64,
    hint: String,
    /// Where its share begins and how wide it is, of 1000, before the input and with it, and of bytes.
    bars: [(String, String); 3],
}

struct Row<'a> {
    index: usize,
    name: &'a str,
    operation: String,
    kind: NodeKind,
    shape: String,
    backend: &'static str,
    /// Milliseconds in the columns of [`Sum`].
    seconds: [String; 4],
    /// Milliseconds of transfer and round trips online.
    link: String,
    up: String,
    down: String,
    rounds: String,
    hint: String,
    cots: String,
    /// Of a bar, 0 to 100.
    time: String,
    bytes: String,
}

/// So many decisions about single layers are unfolded on paper; of more only those that the reader opened.
const PRINTED: usize = 60;

/// A link that takes no time.
const NONE: Link = Link { bytes_per_second: f64::INFINITY, round_trip: 0.0 };

/// The page.
///
/// # Errors
/// When the system gives no random bytes.
pub fn page(of: &Subject<'_>) -> Result<String, ReportError> {
    let Subject { network, plan, site, .. } = *of;
    let prediction = predict(plan, &Session::default(), site);
    let mut plans = vec![site.and_then(|site| timed(plan, site))];
    let mut backends =
        vec![backend("as planned".into(), "what the planner chose, layer by layer", &prediction)];
    backends[0].taken = true;
    for &id in of.backends {
        let choices = Choices { weight_memory: plan.choices.weight_memory, ..Choices::standard(network, id) };
        let choices = choices.of_images(plan.choices.images);
        let about = id.backend().about();
        match Plan::allowing(network, choices, of.allowed) {
            Ok(plan) => {
                let prediction = predict(&plan, &Session::default(), site);
                backends.push(backend(id.to_string(), about, &prediction));
                plans.push(site.and_then(|site| timed(&plan, site)));
            }
            Err(error) => {
                let mut refused = backend(id.to_string(), about, &prediction);
                refused.refused = Some(error.to_string());
                backends.push(refused);
                plans.push(None);
            }
        }
    }
    let link = site.map_or(NONE, |site| site.link);
    let data = Data {
        images: plan.images(),
        link,
        links: of.links.iter().map(|(_, link)| *link).collect(),
        plans,
        layers: prediction.nodes.iter().map(moved).collect(),
    };
    let page = Page {
        frame: Frame::new()?,
        name: &network.name,
        id: of.id,
        protocol: plan.choices.names(network),
        rings: plan.backends.iter().map(|layers| layers.describe()).collect(),
        leaks: plan.choices.comparison.caveat(),
        place: site.map(|site| {
            format!(
                "{}, {} threads a party, {}",
                site.machine.cpu,
                site.machine.threads,
                match site.placement {
                    Placement::Shared => "both parties on this machine",
                    Placement::Apart => "each party on a machine like this one",
                }
            )
        }),
        link: site.map(|site| [rate(site.link.bytes_per_second), millis(site.link.round_trip)]),
        images: plan.images(),
        an_image: seconds(
            prediction
                .offline
                .seconds
                .zip(prediction.online.seconds)
                .map(|(a, b)| (a + b) / plan.images() as f64),
        ),
        data,
        stages: stages(&prediction),
        backends,
        kinds: kinds(of, &prediction),
        instances: instances(&prediction),
        load: of.load,
        memory: both(memory(network, plan, of.load)),
        layers: rows(of, &prediction),
        batch: if plan.images() > 1 { Some(Batch::new(of)?) } else { None },
        alternatives: of.explanation.map(Alternatives::new),
        presets: of.links.iter().enumerate().map(|(i, (name, _))| (i, *name)).collect(),
    };
    render(&page)
}

/// `None` where the machine's constants do not cover the plan.
fn timed(plan: &Plan, site: &Site<'_>) -> Option<Timed> {
    let alone = predict(plan, &Session::default(), Some(&Site { link: NONE, ..*site }));
    let part = |total: &Total| {
        let bytes = total.bytes_up.max(total.bytes_down);
        Some(Part { seconds: total.seconds?, bytes, rounds: total.rounds })
    };
    Some(Timed {
        offline: part(&alone.offline)?,
        online: part(&alone.online)?,
        hint: Part { seconds: alone.hint_seconds?, bytes: alone.hint_bytes, rounds: 0 },
        keys: alone.key_bytes,
    })
}

fn seconds(of: Option<f64>) -> String {
    of.map_or_else(|| "–".into(), |s| format!("{s:.2}"))
}

/// Of a layer online: bytes of the direction with more of them, and round trips.
fn moved(node: &NodeCost) -> [u64; 2] {
    let (up, down) = (node.online.bytes_up, node.online.bytes_down);
    [up.max(down), node.online.rounds]
}

/// Three digits, as the page's script writes them.
fn three(value: f64) -> String {
    let places = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

fn rate(bytes: f64) -> String {
    if bytes >= 1e9 { format!("{} GB/s", three(bytes / 1e9)) } else { format!("{} MB/s", three(bytes / 1e6)) }
}

fn millis(seconds: f64) -> String {
    format!("{} ms", three(seconds * 1e3))
}

fn both(Memory { client, server }: Memory) -> [(&'static str, [String; 7]); 2] {
    [("client", client), ("server", server)].map(|(who, party)| {
        let PartyMemory { program, model, keys, correlations, prepared, running } = party;
        (who, [program, model, keys, correlations, prepared, running, party.total()].map(mib))
    })
}

fn stages(p: &Prediction) -> Vec<Stage> {
    let none = || "–".to_owned();
    let mut stages = vec![
        Stage {
            what: "once per model: a half",
            key: "",
            up: none(),
            down: none(),
            rounds: none(),
            client: none(),
            server: seconds(p.a_half_seconds),
            seconds: seconds(p.a_half_seconds),
        },
        Stage {
            what: "once per client: hint",
            key: "hint",
            up: none(),
            down: mib(p.hint_bytes),
            rounds: none(),
            client: none(),
            server: seconds(p.nodes.iter().map(|n| n.hint_seconds).sum::<Option<f64>>()),
            seconds: seconds(p.hint_seconds),
        },
    ];
    if p.key_bytes > 0 {
        stages.push(Stage {
            what: "once per client: keys",
            key: "keys",
            up: mib(p.key_bytes),
            down: none(),
            rounds: none(),
            client: none(),
            server: none(),
            seconds: seconds(p.key_seconds),
        });
    }
    for (what, key, total) in [
        ("query: offline, before the input", "offline", &p.offline),
        ("query: online, with the input", "online", &p.online),
    ] {
        stages.push(Stage {
            what,
            key,
            up: mib(total.bytes_up),
            down: mib(total.bytes_down),
            rounds: total.rounds.to_string(),
            client: seconds(total.work.map(|w| w.client)),
            server: seconds(total.work.map(|w| w.server)),
            seconds: seconds(total.seconds),
        });
    }
    stages
}

fn backend(name: String, about: &'static str, p: &Prediction) -> Backend {
    Backend {
        name,
        about,
        refused: None,
        offline: seconds(p.offline.seconds),
        online: seconds(p.online.seconds),
        sent: mib(p.offline.bytes_up + p.online.bytes_up),
        received: mib(p.offline.bytes_down + p.online.bytes_down),
        rounds: p.offline.rounds + p.online.rounds,
        hint: mib(p.hint_bytes),
        keys: mib(p.key_bytes),
        taken: false,
    }
}

/// Client offline, server offline, client online, server online; `None` where it is not known.
fn four(node: &NodeCost) -> Option<[f64; 4]> {
    let (offline, online) = (node.offline.seconds?, node.online.seconds?);
    Some([offline.client, offline.server, online.client, online.server])
}

/// Layers are priced with the default LPN instances, a query with those that the plan chose.
fn instances(p: &Prediction) -> Option<[String; 2]> {
    let layers = p.nodes.iter().map(four).collect::<Option<Vec<_>>>()?;
    let sum = |party: usize| layers.iter().map(|l| l[party]).sum::<f64>();
    let (by_layer, work) = (sum(0).max(sum(1)), p.offline.work?);
    let whole = work.client.max(work.server);
    ((by_layer - whole).abs() > 0.02 * whole).then(|| [seconds(Some(by_layer)), seconds(Some(whole))])
}

fn kinds(of: &Subject<'_>, p: &Prediction) -> Vec<Sum> {
    let kind = |node: &jaguar_graph::network::Node| NodeKind::of(node.op.part());
    struct All {
        kind: NodeKind,
        layers: usize,
        seconds: Option<[f64; 4]>,
        bytes: [u64; 2],
        rounds: u64,
        hint: u64,
    }
    let sum = |which: NodeKind| {
        let mut all =
            All { kind: which, layers: 0, seconds: Some([0.0; 4]), bytes: [0; 2], rounds: 0, hint: 0 };
        for (_, cost) in of.network.nodes.iter().zip(&p.nodes).filter(|(node, _)| kind(node) == which) {
            all.layers += 1;
            all.seconds = all.seconds.zip(four(cost)).map(|(sum, own)| [0, 1, 2, 3].map(|i| sum[i] + own[i]));
            all.bytes[0] += cost.offline.bytes_up + cost.online.bytes_up;
            all.bytes[1] += cost.offline.bytes_down + cost.online.bytes_down;
            all.rounds += cost.online.rounds;
            all.hint += cost.hint_bytes;
        }
        all
    };
    let sums: Vec<All> = NodeKind::ALL.into_iter().map(sum).filter(|all| all.layers > 0).collect();
    // Before the input both work at once and the slower one counts; with it they take turns.
    let shares = |all: &All| {
        let [a, b, c, d] = all.seconds.unwrap_or_default();
        [a.max(b), c + d, (all.bytes[0] + all.bytes[1]) as f64]
    };
    let whole = sums.iter().map(shares).fold([f64::MIN_POSITIVE; 3], |w, s| [0, 1, 2].map(|i| w[i] + s[i]));
    let mut start = [0.0; 3];
    let one = |all: &All| {
        let own = shares(all);
        let bars = [0, 1, 2].map(|i| {
            let (at, width) = (1000.0 * start[i] / whole[i], 1000.0 * own[i] / whole[i]);
            start[i] += own[i];
            (format!("{at:.1}"), format!("{width:.1}"))
        });
        Sum {
            kind: all.kind,
            layers: all.layers,
            seconds: [0, 1, 2, 3].map(|i| seconds(all.seconds.map(|s| s[i]))),
            up: mib(all.bytes[0]),
            down: mib(all.bytes[1]),
            rounds: all.rounds,
            hint: mib(all.hint),
            bars,
        }
    };
    sums.iter().map(one).collect()
}

fn rows<'a>(of: &Subject<'a>, p: &Prediction) -> Vec<Row<'a>> {
    let time = |node| four(node).map_or(0.0, |[a, b, c, d]| a.max(b) + c + d);
    let sent = |node: &NodeCost| {
        node.offline.bytes_up + node.offline.bytes_down + node.online.bytes_up + node.online.bytes_down
    };
    let longest = p.nodes.iter().map(time).fold(f64::MIN_POSITIVE, f64::max);
    let most = p.nodes.iter().map(sent).max().unwrap_or(0).max(1) as f64;
    let row = |(index, (node, step)): (usize, (&'a jaguar_graph::network::Node, &jaguar_plan::Step))| {
        let cost = &p.nodes[index];
        let operation = of.network.describe(&node.op);
        let [c, h, w] = node.shape;
        let four = four(cost);
        Row {
            index,
            name: &node.name,
            kind: NodeKind::of(node.op.part()),
            operation,
            shape: format!("{c} × {h} × {w}"),
            backend: step.layer.as_ref().map_or("–", |_| of.plan.choices.backends[index].name()),
            seconds: [0, 1, 2, 3].map(|i| match four {
                Some(s) if s[i] >= 5e-6 => format!("{:.2}", 1e3 * s[i]),
                _ => "–".into(),
            }),
            link: of.site.map_or_else(
                || "–".into(),
                |site| {
                    let [bytes, rounds] = moved(cost).map(|n| n as f64);
                    let seconds = bytes / site.link.bytes_per_second + rounds * site.link.round_trip;
                    if seconds < 5e-6 { "–".into() } else { format!("{:.2}", 1e3 * seconds) }
                },
            ),
            up: mib(cost.offline.bytes_up + cost.online.bytes_up),
            down: mib(cost.offline.bytes_down + cost.online.bytes_down),
            rounds: if cost.online.rounds == 0 { "–".into() } else { thousands(cost.online.rounds) },
            hint: mib(cost.hint_bytes),
            cots: match (step.cost.from_client() + step.cost.from_server()).total() {
                0 => "–".into(),
                cots => count(cots),
            },
            time: format!("{:.1}", 100.0 * time(cost) / longest),
            bytes: format!("{:.1}", 100.0 * sent(cost) as f64 / most),
        }
    };
    of.network.nodes.iter().zip(&of.plan.steps).enumerate().map(row).collect()
}
