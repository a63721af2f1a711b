//! `jaguar predict`

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jaguar_engine::EngineError;
use jaguar_engine::ahead::{Ahead, Next};
use jaguar_engine::client::{Connected, Limits, Prediction, Ready, connect};
use jaguar_engine::report::{Report, caveat};
use jaguar_graph::network::{Finish, Network, softmax};
use jaguar_plan::Plan;
use jaguar_plan::predict::{Site, Total, predict};
use jaguar_wire::tcp::{Options, Tcp};
use serde::{Deserialize, Serialize};

use crate::constants;
use crate::link;
use crate::picture;
use crate::plan;
use crate::progress::Bars;
use crate::table;
use crate::trace::Trace;

#[derive(clap::Args)]
pub struct Args {
    /// The server's address and port.
    #[arg(long, default_value = "127.0.0.1:7447")]
    server: String,
    /// Images (JPEG or PNG), or tensors that are already preprocessed (.npy, float32, in the model's layout).
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Where the hint is kept between runs (default: the user's cache folder).
    #[arg(long)]
    cache: Option<PathBuf>,
    /// How many classes to show.
    #[arg(long, default_value_t = 5)]
    top: usize,
    /// One line of JSON per input instead of text: all logits and the whole cost table.
    #[arg(long)]
    json: bool,
    /// Write a timeline of both parties that a browser's trace viewer opens (chrome://tracing, ui.perfetto.dev).
    #[arg(long)]
    trace: Option<PathBuf>,
    /// How many pictures ahead are prepared while one is predicted: 1 takes a second connection to the server, and twice the
    /// memory (default: 1 if there is more than one picture).
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=1))]
    ahead: Option<u8>,
    /// Imitate a slower link, for measurements (the server must too).
    #[arg(long, value_enum)]
    link: Option<link::Shape>,
    /// Threads (0: one per core).
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

#[derive(Serialize)]
struct Answer<'a> {
    input: String,
    model: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top: Vec<Class>,
    /// The integer logits, scale in `logit_scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<&'a [i64]>,
    logit_scale: f64,
    /// The model's outputs as real numbers, with what it ends in (softmax, sigmoid) applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Output<'a>>,
    label: usize,
    /// How many layers have signs of reduced precision.
    reduced_signs: usize,
    cost: &'a Report,
    /// What the plan predicts of it.
    predicted: Predicted,
}

/// Predicted totals, to stand beside the measured ones.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Predicted {
    pub preprocessing: Total,
    pub online: Total,
}

impl Predicted {
    /// Of the query that `report` is about.
    pub fn new(plan: &Plan, report: &Report, site: Option<&Site<'_>>) -> Self {
        let p = predict(plan, &report.session, site);
        Self { preprocessing: p.preparation, online: p.online }
    }
}

#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    /// As in the ONNX model, the batch included.
    shape: &'a [usize],
    values: Vec<f64>,
}

#[derive(Serialize)]
struct Class {
    class: usize,
    name: String,
    logit: f64,
    probability: f64,
}

pub fn run(args: &Args) -> Result<()> {
    crate::set_threads(args.threads)?;
    let cache = cache(args.cache.as_ref())?;
    // Look at the files before anything is sent or fetched.
    let sources = args.inputs.iter().map(|p| picture::open(p)).collect::<Result<Vec<_>>>()?;

    let dial = Dial { server: args.server.clone(), link: args.link, timeline: args.trace.is_some() };
    let connected = dial.connect()?;
    let inputs = sources
        .iter()
        .zip(&args.inputs)
        .map(|(s, path)| s.integers(connected.network()).with_context(|| path.display().to_string()))
        .collect::<Result<Vec<_>>>()?;
    let model = format!("{} ({})", connected.network().name, connected.model());
    let mut bars = Bars::new(args.json);
    if !args.json {
        crate::say!("model {model} at {}, protocol {}", args.server, connected.plan().choices.protocol);
    }
    let machine = constants::known_machine(Some(&cache));
    let between = constants::between(Some(&cache), &args.server, args.link);
    let site = machine.as_ref().zip(between.as_ref()).map(|(machine, between)| plan::site(machine, between));
    let mut trace = args.trace.is_some().then(Trace::new);
    let id = connected.model();
    let ready = dial.ready(connected, &cache)?;
    let mut next = Some(Next { prepared: ready.prepare_query(&mut bars)?, session: 0 });
    // The first query has brought the hint; now others may read it.
    let mut ahead = Ahead::new(inputs.len() - 1);
    let mut lost = None;
    if args.ahead != Some(0) {
        ahead.open(1, move || {
            let connected = dial.connect()?;
            if connected.model() != id {
                return Err(EngineError::Bundle("the server has another model now".into()));
            }
            dial.ready(connected, &cache)
        });
    }
    for (input, path) in inputs.iter().zip(&args.inputs) {
        let Some(Next { prepared, session }) = next else {
            return Err(lost.map_or_else(|| anyhow::anyhow!("no connection is left"), Into::into));
        };
        let (prediction, report, ready) = prepared.run(input, &mut bars)?;
        bars.finish();
        if let Some(trace) = &mut trace {
            trace.add(session, &path.display().to_string(), &report);
        }
        let predicted = Predicted::new(ready.plan(), &report, site.as_ref());
        show(args, path.display().to_string(), &model, ready.network(), &prediction, (&report, predicted))?;
        ahead.add(session, ready);
        next = loop {
            match ahead.take() {
                Ok(next) => break next,
                // The other connection does what this one was to.
                Err(e) => {
                    eprintln!("note: a connection broke off while it prepared a picture ({e})");
                    lost = Some(e);
                }
            }
        };
        if let Some(reason) = ahead.not_opened() {
            eprintln!("note: no second connection ({reason}); one picture is prepared after the other");
        }
    }
    ahead.leave()?;
    if let (Some(path), Some(trace)) = (&args.trace, trace) {
        trace.write(path)?;
    }
    Ok(())
}

/// Where hints are kept.
pub fn cache(named: Option<&PathBuf>) -> Result<PathBuf> {
    constants::cache(named.map(PathBuf::as_path))
        .context("no cache folder is known (neither HOME nor XDG_CACHE_HOME is set); name one with --cache")
}

/// How to reach the server.
pub struct Dial {
    pub server: String,
    pub link: Option<link::Shape>,
    pub timeline: bool,
}

impl Dial {
    pub fn connect(&self) -> Result<Connected, EngineError> {
        let tcp = Tcp::connect(self.server.as_str(), Options::default())?;
        connect(link::channel(tcp, self.link), &Limits::default())
    }

    pub fn ready(&self, connected: Connected, cache: &Path) -> Result<Ready, EngineError> {
        let ready = connected.prepare_client(cache)?;
        Ok(if self.timeline { ready.with_timeline() } else { ready })
    }
}

fn show(
    args: &Args,
    input: String,
    model: &str,
    network: &Network,
    prediction: &Prediction,
    (report, predicted): (&Report, Predicted),
) -> Result<()> {
    let name =
        |class: usize| network.output.labels.get(class).cloned().unwrap_or_else(|| format!("class {class}"));
    let (top, label) = match prediction {
        Prediction::Label(label) => (Vec::new(), *label),
        Prediction::Logits(logits) => {
            let real = network.output.logits(logits);
            let finished = network.output.parts.iter().any(|p| p.finish != Finish::None);
            let probabilities = if finished { network.output.finish(logits) } else { softmax(&real) };
            let mut order: Vec<usize> = (0..real.len()).collect();
            order.sort_by(|&a, &b| logits[b].cmp(&logits[a]).then(a.cmp(&b)));
            let top: Vec<Class> = order
                .iter()
                .take(args.top)
                .map(|&class| Class {
                    class,
                    name: name(class),
                    logit: real[class],
                    probability: probabilities[class],
                })
                .collect();
            (top, order.first().copied().unwrap_or(0))
        }
    };
    if args.json {
        let logits = match prediction {
            Prediction::Logits(l) => Some(l.as_slice()),
            Prediction::Label(_) => None,
        };
        let real = logits.map_or(Vec::new(), |l| network.output.logits(l));
        let outputs = network.output.split(&real).filter(|(_, values)| !values.is_empty());
        let outputs = outputs.map(|(part, values)| Output {
            name: &part.name,
            shape: &part.dims,
            values: part.finish.apply(values),
        });
        let answer = Answer {
            input,
            model: model.to_owned(),
            top,
            logits,
            logit_scale: network.output.scale,
            outputs: outputs.collect(),
            label,
            reduced_signs: network.reduced_signs(),
            cost: report,
            predicted,
        };
        crate::say!("{}", serde_json::to_string(&answer)?);
        return Ok(());
    }
    crate::say!("\n{input}");
    if top.is_empty() {
        crate::say!("  {} (the server reveals the label only)", name(label));
    }
    for (rank, c) in top.iter().enumerate() {
        crate::say!("  {}  {:5.1} %  {}", rank + 1, c.probability * 100.0, c.name);
    }
    if let Some(caveat) = caveat(network) {
        crate::say!("  ({caveat})");
    }
    crate::say!("\n{}", table::costs(report, &predicted));
    crate::say!(
        "peak memory: client {}, server {}",
        table::bytes(report.client_peak_kib * 1024),
        table::bytes(report.server_peak_kib.saturating_mul(1024))
    );
    Ok(())
}
