//! `jaguar predict`

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use jaguar_engine::client::{Limits, Prediction, connect};
use jaguar_engine::files::default_cache;
use jaguar_engine::report::{Report, caveat};
use jaguar_graph::network::{Network, softmax};
use jaguar_wire::tcp::{Options, Tcp};
use serde::Serialize;

use crate::link;
use crate::picture;
use crate::progress::Bars;
use crate::table;

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
    /// Write a timeline that a browser's trace viewer opens (chrome://tracing, ui.perfetto.dev).
    #[arg(long)]
    trace: Option<PathBuf>,
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
    label: usize,
    /// How many layers have signs of reduced precision.
    reduced_signs: usize,
    cost: &'a Report,
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
    let cache = args.cache.clone().or_else(default_cache).context(
        "no cache folder is known (neither HOME nor XDG_CACHE_HOME is set); name one with --cache",
    )?;
    // Look at the files before anything is sent or fetched.
    let sources = args.inputs.iter().map(|p| picture::open(p)).collect::<Result<Vec<_>>>()?;

    let channel = link::channel(Tcp::connect(args.server.as_str(), Options::default())?, args.link);
    let connected = connect(channel, &Limits::default())?;
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
    let mut ready = connected.prepare_client(&cache)?;
    let (origin, mut events) = (Instant::now(), Vec::new());
    for (input, path) in inputs.iter().zip(&args.inputs) {
        let began = origin.elapsed().as_secs_f64();
        let prepared = ready.prepare_query(&mut bars)?;
        let (prediction, report, next) = prepared.run(input, &mut bars)?;
        bars.finish();
        ready = next;
        if args.trace.is_some() {
            trace(&mut events, began, &report);
        }
        show(args, path.display().to_string(), &model, ready.network(), &prediction, &report)?;
    }
    ready.leave()?;
    if let Some(path) = &args.trace {
        let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
        serde_json::to_writer(std::io::BufWriter::new(file), &serde_json::json!({ "traceEvents": events }))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Adds one query's layers as complete events ("ph": "X", times in microseconds), one row by phase.
fn trace(events: &mut Vec<serde_json::Value>, began: f64, report: &Report) {
    for row in &report.rows {
        for (tid, phase, span, cost) in [
            (1, "preprocessing", row.preprocessing_span, row.preprocessing),
            (2, "online", row.online_span, row.online),
        ] {
            events.push(serde_json::json!({
                "name": row.name, "cat": phase, "ph": "X", "pid": 1, "tid": tid,
                "ts": (began + span.start) * 1e6, "dur": span.length * 1e6,
                "args": { "operation": row.operation, "cost": cost },
            }));
        }
    }
}

fn show(
    args: &Args,
    input: String,
    model: &str,
    network: &Network,
    prediction: &Prediction,
    report: &Report,
) -> Result<()> {
    let name =
        |class: usize| network.output.labels.get(class).cloned().unwrap_or_else(|| format!("class {class}"));
    let (top, label) = match prediction {
        Prediction::Label(label) => (Vec::new(), *label),
        Prediction::Logits(logits) => {
            let real = network.output.logits(logits);
            let probabilities = softmax(&real);
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
        let answer = Answer {
            input,
            model: model.to_owned(),
            top,
            logits,
            logit_scale: network.output.scale,
            label,
            reduced_signs: network.reduced_signs(),
            cost: report,
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
    crate::say!("\n{}", table::costs(report));
    crate::say!(
        "peak memory: client {}, server {}",
        table::bytes(report.client_peak_kib * 1024),
        table::bytes(report.server_peak_kib.saturating_mul(1024))
    );
    Ok(())
}
