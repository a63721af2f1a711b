//! `jaguar predict`

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jaguar_cpu::Cpu;
use jaguar_engine::EngineError;
use jaguar_engine::ahead::{Ahead, Next};
use jaguar_engine::answer::{Class, Output, class_name};
use jaguar_engine::client::{Connected, Limits, Prediction, Ready, connect};
use jaguar_engine::hint::Place;
use jaguar_engine::progress::{NoProgress, Progress};
use jaguar_engine::report::{Predicted, Report, caveat};
use jaguar_graph::network::Network;
use jaguar_profile::{Between, Imitated, kept, link};
use jaguar_samples::{self as samples, Input, Source};
use jaguar_terminal::say;
use jaguar_terminal::table::bytes;
use jaguar_wire::tcp::{Options, Tcp};
use serde::Serialize;

use crate::costs;
use crate::notes::{collect, in_one_line};
use crate::progress::Bars;
use crate::trace::Trace;

#[derive(clap::Args)]
pub struct Args {
    /// The server's address and port.
    #[arg(long, default_value = "127.0.0.1:7447")]
    server: String,
    /// Images (JPEG, PNG, WebP, BMP, PNM, the first frame of a GIF), tensors that are already preprocessed (.npy, in
    /// the model's layout), or folders of them.
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Where the hint is kept between runs (default: the user's cache folder).
    #[arg(long)]
    cache: Option<PathBuf>,
    /// Keep nothing: the hint is fetched for this run alone, and held in memory.
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
    /// How many classes to show.
    #[arg(long, default_value_t = 5, value_parser = jaguar_terminal::at_least_one)]
    top: usize,
    /// Print what each layer and each stage cost, beside what was predicted.
    #[arg(long)]
    costs: bool,
    /// One line of JSON per input instead of text: all logits, the whole cost table, and warnings; for an input that
    /// cannot be used, an error.
    #[arg(long, conflicts_with = "costs")]
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
    link: Option<Imitated>,
    /// Threads (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar_terminal::thread_count)]
    threads: usize,
}

#[derive(Serialize)]
struct Answer<'a> {
    input: String,
    model: String,
    /// What a person should know of this answer, or of this run.
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top: Vec<Class>,
    /// The integer logits, scale in `logit_scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<&'a [i64]>,
    logit_scale: f64,
    /// The model's outputs as real numbers, with what it ends in (softmax, sigmoid) applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Output>,
    label: usize,
    /// How many layers have signs of reduced precision.
    reduced_signs: usize,
    cost: &'a Report,
    /// What the plan predicts of it.
    predicted: Predicted,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar_terminal::set_threads(args.threads)?;
    let files = collect(&args.inputs)?;
    if let Some(trace) = &args.trace {
        ensure!(!files.contains(trace), "--trace {} would overwrite an input", trace.display());
    }
    let mut bars = Bars::new(args.json);
    // A file that cannot be read is told before anything is sent or fetched, if it is the first.
    let mut inputs = Inputs { args, files: files.iter(), all: files.len(), failed: Vec::new() };
    let Some(first) = inputs.next(&mut bars) else { return inputs.end() };

    let cache = if args.no_cache { None } else { cache(args.cache.as_ref()) };
    if cache.is_none() && !args.no_cache {
        bars.warning(&format!("{NO_CACHE}; the hint is kept in memory for this run"));
    }
    let place = match &cache {
        None => Place::Memory,
        Some(folder) => Place::FolderOrMemory(folder.clone(), PATIENCE),
    };
    let dial = Dial { server: args.server.clone(), link: args.link, timeline: args.trace.is_some() };
    let connected = dial.connect()?;
    let Some(mut first) = inputs.that_fit(connected.network(), Some(first), &mut bars) else {
        return inputs.end();
    };
    let model = format!("{} ({})", connected.network().name, connected.model());
    if !args.json {
        say!(
            "model {model} at {}, protocol {}",
            args.server,
            connected.plan().choices.names(connected.network())
        );
        if let Some(caveat) = caveat(connected.network()) {
            say!("({caveat})");
        }
    }
    let machine = kept::known_machine(Cpu::detect(), cache.as_deref());
    let between = Between::to(cache.as_deref(), &args.server, args.link);
    let site = machine.as_ref().zip(between.as_ref()).map(|(machine, between)| between.site(machine));
    let mut trace = args.trace.is_some().then(Trace::new);
    let id = connected.model();
    let ready = dial.ready(connected, place, &mut bars)?;
    let mut next = Some(Next { prepared: ready.prepare_query(&mut bars)?, session: 0 });
    // The first query has brought the hint; now others may read it.
    let mut ahead = Ahead::new(files.len() - 1 - inputs.failed.len());
    let mut lost = None;
    if args.ahead != Some(0)
        && let Some(Next { prepared, .. }) = &next
    {
        let place = prepared.hint_place();
        ahead.open(1, move || {
            let connected = dial.connect()?;
            if connected.model() != id {
                return Err(EngineError::Input("the server has another model now".into()));
            }
            dial.ready(connected, place, &mut NoProgress)
        });
    }
    loop {
        let Some(Next { prepared, session }) = next else {
            return Err(lost.map_or_else(|| anyhow::anyhow!("no connection is left"), Into::into));
        };
        let (path, input) = first;
        let name = path.display().to_string();
        let (prediction, report, ready) = prepared.run(&input, &mut bars)?;
        bars.finish();
        if let Some(trace) = &mut trace {
            trace.add(session, &name, &report);
        }
        let predicted = Predicted::new(ready.plan(), &report, site.as_ref());
        let warnings = bars.take_warnings();
        show(args, (name, warnings), &model, ready.network(), &prediction, (&report, predicted))?;
        let failed = inputs.failed.len();
        let following = inputs.that_fit(ready.network(), None, &mut bars);
        (failed..inputs.failed.len()).for_each(|_| ahead.one_less());
        ahead.add(session, ready);
        let Some(following) = following else { break };
        first = following;
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
    inputs.end()
}

/// The inputs, one after the other; those that cannot be used are reported and left out.
struct Inputs<'a> {
    args: &'a Args,
    files: std::slice::Iter<'a, PathBuf>,
    /// How many there are.
    all: usize,
    failed: Vec<anyhow::Error>,
}

impl<'a> Inputs<'a> {
    /// The next that can be read.
    fn next(&mut self, bars: &mut Bars) -> Option<(&'a Path, Source)> {
        loop {
            let path = self.files.next()?;
            match samples::open(path) {
                Ok(source) => return Some((path, source)),
                Err(e) => self.fail(path, e.into(), bars),
            }
        }
    }

    /// `source`, or the next that can be read and is of the network's shape, as integers. What is unusual about it is told.
    fn that_fit(
        &mut self,
        network: &Network,
        mut source: Option<(&'a Path, Source)>,
        bars: &mut Bars,
    ) -> Option<(&'a Path, Vec<i64>)> {
        loop {
            let (path, read) = match source.take() {
                Some(source) => source,
                None => self.next(bars)?,
            };
            match read.input(network).with_context(|| path.display().to_string()) {
                Ok(Input { integers, warning }) => {
                    if let Some(warning) = warning {
                        bars.warning(&format!("{}: {warning}", path.display()));
                    }
                    return Some((path, integers));
                }
                Err(e) => self.fail(path, e, bars),
            }
        }
    }

    fn fail(&mut self, path: &Path, error: anyhow::Error, bars: &mut Bars) {
        if self.args.json {
            let error = in_one_line(error.as_ref());
            say!("{}", serde_json::json!({ "input": path.display().to_string(), "error": error }));
        }
        // A single one is the command's own error.
        if self.all > 1 {
            bars.line(&format!("error: {}", in_one_line(error.as_ref())));
        }
        self.failed.push(error);
    }

    /// How the command ends.
    fn end(mut self) -> Result<()> {
        match (self.failed.len(), self.all) {
            (0, _) => Ok(()),
            (_, 1) => Err(self.failed.remove(0)),
            (failed, all) => bail!("{failed} of {all} inputs could not be used"),
        }
    }
}

/// How long another process that fetches the same hint is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to say where [`cache`] knows none.
pub const NO_CACHE: &str =
    "no cache folder is known (neither HOME nor XDG_CACHE_HOME is set; --cache names one)";

/// Where hints are kept.
pub fn cache(named: Option<&PathBuf>) -> Option<PathBuf> {
    kept::cache(named.map(PathBuf::as_path))
}

/// How to reach the server.
pub struct Dial {
    pub server: String,
    pub link: Option<Imitated>,
    pub timeline: bool,
}

impl Dial {
    pub fn connect(&self) -> Result<Connected, EngineError> {
        let tcp = Tcp::connect(self.server.as_str(), Options::default())?;
        connect(link::channel(tcp, self.link), &Limits::default())
    }

    pub fn ready(
        &self,
        connected: Connected,
        place: Place,
        progress: &mut dyn Progress,
    ) -> Result<Ready, EngineError> {
        let ready = connected.prepare_client_at(place, progress)?;
        Ok(if self.timeline { ready.with_timeline() } else { ready })
    }
}

fn show(
    args: &Args,
    (input, warnings): (String, Vec<String>),
    model: &str,
    network: &Network,
    prediction: &Prediction,
    (report, predicted): (&Report, Predicted),
) -> Result<()> {
    let (top, label) = (prediction.top(network, args.top), prediction.label());
    if args.json {
        let logits = match prediction {
            Prediction::Logits(l) => Some(l.as_slice()),
            Prediction::Label(_) => None,
        };
        let answer = Answer {
            input,
            model: model.to_owned(),
            warnings,
            top,
            logits,
            logit_scale: network.output.scale,
            outputs: prediction.outputs(network),
            label,
            reduced_signs: network.reduced_signs(),
            cost: report,
            predicted,
        };
        say!("{}", serde_json::to_string(&answer)?);
        return Ok(());
    }
    say!("\n{input}");
    if top.is_empty() {
        say!("  {} (the server reveals the label only)", class_name(network, label));
    }
    for (rank, c) in top.iter().enumerate() {
        say!("  {}  {:5.1} %  {}", rank + 1, c.probability * 100.0, c.name);
    }
    say!("  ({})", costs::line(report));
    if args.costs {
        say!("\n{}", costs::tables(report, &predicted));
        say!(
            "peak memory: client {}, server {}",
            bytes(report.client_peak_kib * 1024),
            bytes(report.server_peak_kib.saturating_mul(1024))
        );
    }
    Ok(())
}
