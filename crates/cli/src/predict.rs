//! `jaguar predict`: asks a server about inputs, one or many, and shows the answers.

use std::collections::VecDeque;
use std::io::{Lines, StdinLock, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use jaguar::answer::{Class, Output, class_name};
use jaguar::client::{Connected, Limits, Prediction, Ready, connect_for, together};
use jaguar::compile::samples::{self as samples, Input, Source};
use jaguar::hint::HintPlace;
use jaguar::kept::keeper::{self, Keeper};
use jaguar::machine::memory::room;
use jaguar::machine::{Between, Imitated, link, store};
use jaguar::net::Dialer;
use jaguar::network::Network;
use jaguar::plan::batch;
use jaguar::plan::memory::{Load, Side};
use jaguar::progress::Progress;
use jaguar::report::{Predicted, Report, caveat};
use jaguar::reports::tables::cost;
use jaguar::reports::terminal::table::{bytes, count};
use jaguar::reports::terminal::{in_one_line, say, size, threads};
use jaguar::wire::framed::Options;
use jaguar::{Cpu, EngineError, Stock, prepared_bytes};
use serde::Serialize;

use crate::batch::{Shared, size as batch_size};
use crate::cache::Cache;
use crate::kit::kit;
use crate::notes::{collect, warn, warning_of_memory};
use crate::one_round::{self, Protocol};
use crate::page;
use crate::progress::Bars;
use crate::protocol::LpnNoise;
use crate::reach::Reach;
use crate::rows::Rows;
use crate::trace::Trace;

/// Groups of the options in `--help`.
const ASKED: &str = "What to ask and show";
const SPEED: &str = "How fast";
const FILES: &str = "Files";

#[derive(clap::Args)]
#[command(next_help_heading = ASKED)]
pub struct Args {
    /// Images, preprocessed tensors (.npy), or folders of them.
    ///
    /// Images are JPEG, PNG, WebP, BMP, PNM or the first frame of a GIF; tensors are in the model's layout.
    #[arg(help_heading = None, required_unless_present = "stdin")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    reach: Reach,
    /// How to compute.
    ///
    /// The server must do the same. Without it: interactive.
    #[arg(long, help_heading = ASKED, hide_default_value = true, default_value_t, value_parser = Protocol::parser())]
    protocol: Protocol,
    /// Stay connected, and read paths of further inputs, one a line.
    ///
    /// From standard input, until its end. Each is answered as it comes. With --keep, what can be done without an input is done while none is
    /// there.
    #[arg(long, help_heading = ASKED, conflicts_with = "batch")]
    stdin: bool,
    /// How many classes to show.
    #[arg(long, help_heading = ASKED, value_name = "CLASSES", default_value_t = 5, value_parser = jaguar::reports::terminal::at_least_one)]
    top: usize,
    /// Print what each layer and each stage cost, beside what was predicted.
    #[arg(long, help_heading = ASKED)]
    costs: bool,
    /// Print one line of JSON per input instead of text.
    ///
    /// It has all logits, the whole cost table, and warnings; for an input that cannot be used, an error.
    #[arg(long, help_heading = ASKED, conflicts_with = "costs")]
    json: bool,
    /// How many prepared queries to have ready, for sooner answers.
    ///
    /// An input then waits for the online part only. Both parties hold them in memory, and there is a second connection (default: 1 with
    /// --stdin or more than one input, else 0).
    #[arg(long, help_heading = SPEED, value_name = "QUERIES")]
    keep: Option<u32>,
    /// Memory that they may hold here, such as 500M or 2G (default: 2G); --keep with more is refused.
    #[arg(long, help_heading = SPEED, hide = true, value_name = "SIZE", value_parser = size)]
    keep_memory: Option<u64>,
    /// Ask about so many inputs in one query, a power of two.
    ///
    /// That means fewer rounds, and less work for layers with small maps. The server must allow it (--max-batch). Zeros fill up the last
    /// query. `jaguar plan --batch` tells where it pays.
    #[arg(long, help_heading = SPEED, value_name = "IMAGES", default_value_t = 1, value_parser = batch_size)]
    batch: u32,
    /// Whether the correlations' noise may be stationary, if the server asks for that.
    ///
    /// It sends less, by an assumption that is younger than the others (docs/protocols/oblivious-transfer.md).
    #[arg(long, help_heading = SPEED, hide = true, value_enum, default_value_t)]
    lpn_noise: LpnNoise,
    /// Threads that compute (0: one per core).
    #[arg(long, help_heading = SPEED, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
    /// Imitate a slower link, for measurements (the server must too).
    #[arg(long, help_heading = SPEED, hide = true, value_enum)]
    link: Option<Imitated>,
    #[command(flatten)]
    cache: Cache,
    /// Write one row an input into this CSV file, as the answers come.
    ///
    /// For many pictures: one bar is shown for all. An input that cannot be used has a row with its error.
    #[arg(long, help_heading = FILES, value_name = "FILE", conflicts_with_all = ["json", "costs"])]
    csv: Option<PathBuf>,
    /// Go on with a --csv file that is there: inputs that have an answer in it are left out.
    #[arg(long, help_heading = FILES, hide = true, requires = "csv")]
    resume: bool,
    /// Write a timeline of both parties, as a page or for a trace viewer.
    ///
    /// A web page if the name ends in .html; else a file for chrome://tracing or ui.perfetto.dev.
    #[arg(long, help_heading = FILES, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    one_round: one_round::Predict,
}

#[derive(Serialize)]
struct Answer<'a> {
    input: String,
    model: String,
    /// What a person should know of this answer, or of this run.
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top: Vec<Class>,
    /// The integer logits, of each output by its own scale in `logit_scales`.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<&'a [i64]>,
    logit_scales: &'a [f64],
    /// The model's outputs as real numbers, with what it ends in (softmax, sigmoid) applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Output>,
    label: usize,
    /// How the answer shares its query: `cost` is that of all images together. None in a query of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<Shared>,
    /// How many layers have signs of reduced precision.
    reduced_signs: usize,
    cost: &'a Report,
    /// Prepared queries that are ready here. (What the server keeps is in `cost`.)
    ready: Stock,
    /// What the plan predicts of it.
    predicted: Predicted,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    if let Protocol::OneRound(protocol) = args.protocol {
        let request = one_round::Request {
            reach: &args.reach,
            inputs: &args.inputs,
            cache: args.cache.folder(),
            top: args.top,
            json: args.json,
            link: args.link,
        };
        return protocol.predict(&request, &args.one_round.0);
    }
    let files = collect(&args.inputs)?;
    if let Some(trace) = &args.trace {
        ensure!(!files.contains(trace), "--trace {} would overwrite an input", trace.display());
        page::check_place("--trace", trace)?;
    }
    if let Some(csv) = &args.csv {
        ensure!(!files.contains(csv), "--csv {} would overwrite an input", csv.display());
        page::check_place("--csv", csv)?;
    }
    let rows = args.csv.as_ref().map(|path| Rows::open(path, args.resume)).transpose()?;
    let (files, skipped) = match &rows {
        None => (files, 0),
        Some(rows) => {
            let before = files.len();
            let files: Vec<PathBuf> = files.into_iter().filter(|file| !rows.has(file)).collect();
            let skipped = before - files.len();
            (files, skipped)
        }
    };
    if skipped > 0 {
        say!("{} have an answer already", count(skipped as u64));
        if files.is_empty() && !args.stdin {
            return Ok(());
        }
    }
    let mut bars = if rows.is_some() { Bars::of_many(files.len() as u64) } else { Bars::new(args.json) };
    let several = args.stdin || args.csv.is_some() || files.len() > 1;
    let mut inputs = Inputs {
        args,
        several,
        all: files.len(),
        files: files.into(),
        lines: args.stdin.then(|| stdin().lines()),
        failed: Vec::new(),
        answered: 0,
        rows,
    };
    // A file that cannot be read is told before anything is sent or fetched, if it is the first.
    let named = inputs.all > 0;
    let first = if named { inputs.next(&mut bars) } else { None };
    if first.is_none() && (named && !args.stdin) {
        return inputs.end();
    }

    let (cache, place) = (args.cache.folder(), args.cache.place(|warning| bars.warning(warning)));
    let dial = Dial {
        dialer: args.reach.dialer()?,
        model: args.reach.model.clone(),
        link: args.link,
        timeline: args.trace.is_some(),
        images: args.batch,
        stationary_noise: args.lpn_noise == LpnNoise::Stationary,
    };
    let connected = args.reach.advised(dial.connect())?;
    let mut next = match first {
        Some(first) => {
            let fits = inputs.that_fit(connected.network(), Some(first), &mut bars);
            if fits.is_none() {
                return inputs.end();
            }
            fits
        }
        None => None,
    };
    let model = format!("{} ({})", connected.network().name, connected.model());
    if !args.json {
        say!(
            "model {model} at {}, protocol {}",
            args.reach.server,
            connected.plan().choices.names(connected.network())
        );
        if let Some(caveat) = caveat(connected.network()) {
            say!("({caveat})");
        }
    }
    let machine = store::known_machine(Cpu::detect(), &kit(), cache.as_deref());
    let between = Between::to(cache.as_deref(), &args.reach.host(), args.link);
    let site = machine
        .as_ref()
        .zip(between.as_ref())
        .map(|(machine, between)| between.site(machine, jaguar::plan::predict::Aim::Query));
    let mut trace = args.trace.is_some().then(Trace::new);

    let [here, there] = prepared_bytes(connected.plan());
    let mut options = keeper::Options::new(args.keep.unwrap_or(several.into()), place);
    options.memory = args.keep_memory.unwrap_or(options.memory);
    if args.keep.is_none() && here > options.memory {
        options.keep = 0;
    }
    let images = connected.plan().images();
    let mut expected = inputs.queries(images);
    options.total = (!args.stdin).then_some(expected);
    options.overlap = !args.stdin;
    options.timeline = dial.timeline;
    let keep = u64::from(options.keep);
    if keep > 0 && (args.keep.is_some() || args.stdin) {
        let (here, there) = (bytes(keep * here), bytes(keep * there));
        eprintln!("note: {keep} prepared queries hold up to {here} here and {there} at the server");
    }
    let load = Load { clients: 1, kept: keep, threads: threads() };
    let warning = warning_of_memory(connected.network(), connected.plan(), load, Side::Client);
    let too_large = |room| {
        batch::too_large(
            connected.network(),
            connected.plan(),
            connected.plan().choices.weaknesses(),
            load,
            room,
        )
    };
    if let Some(found) = room().and_then(too_large) {
        bail!("{}", jaguar::reports::tables::batch::too_large(&found, "--batch "));
    }
    // (A client that waited for a second place would hold the first meanwhile.)
    let second = dial.at_once();
    options.dial_second = Some(Arc::new(move || second.connect()));
    // This refuses more than --keep-memory allows: an error needs no warning beside it.
    let mut keeper = Keeper::over(connected, Arc::new(move || dial.connect()), options, &mut bars)?;
    warn(warning);
    if let Some(reason) = keeper.no_runner() {
        eprintln!("note: no second connection ({reason}); an input waits for a query that is being prepared");
    }
    let mut told = None;
    let mut sent = 0;
    while let Some(first) = next.take().or_else(|| inputs.that_fit(keeper.network(), None, &mut bars)) {
        let mut asked = vec![first];
        while asked.len() < images
            && let Some(other) = inputs.that_fit(keeper.network(), None, &mut bars)
        {
            asked.push(other);
        }
        let input = together(asked.iter().map(|(_, input)| input.as_slice()), images);
        let names: Vec<String> = asked.iter().map(|(path, _)| path.display().to_string()).collect();
        let (predictions, report) = match keeper.predict_batch(&input, &mut bars) {
            // What was prepared is gone with its connection. The same input in another query is nothing new to the server.
            Err(reason) if several && !matches!(reason, EngineError::Input(_)) => {
                eprintln!("note: the connection broke off ({}); trying again", in_one_line(&reason));
                keeper.predict_batch(&input, &mut bars)?
            }
            answer => answer?,
        };
        bars.finish();
        if let Some(trace) = &mut trace {
            trace.add(&names.join(", "), &report);
        }
        let warnings: Vec<String> = bars.take_warnings();
        inputs.answered += asked.len();
        if let Some(rows) = &mut inputs.rows {
            for ((path, _), prediction) in asked.iter().zip(&predictions) {
                rows.answer(path, keeper.network(), prediction, (&report, asked.len()))?;
            }
            sent += report.offline.bytes_up
                + report.offline.bytes_down
                + report.online.bytes_up
                + report.online.bytes_down;
        }
        bars.inputs((inputs.answered + inputs.failed.len()) as u64, inputs.all as u64);
        let about = About { model: &model, network: keeper.network(), ready: keeper.stock() };
        let answers = if inputs.rows.is_none() { &predictions[..asked.len()] } else { &[] };
        for (index, (name, prediction)) in names.into_iter().zip(answers).enumerate() {
            let shared = Shared { images, inputs: asked.len(), index };
            let predicted = Predicted::new(keeper.plan(), &report, site.as_ref());
            show(args, (name, warnings.clone()), &about, (prediction, shared), (&report, predicted))?;
        }
        if let Some(why) = keeper.no_room().filter(|why| told != Some(*why)) {
            eprintln!("note: {why}");
            told = Some(why);
        }
        if !args.stdin {
            next = inputs.that_fit(keeper.network(), None, &mut bars);
            // Inputs that cannot be used leave queries over.
            expected -= 1;
            let left = inputs.queries(images);
            (left..expected).for_each(|_| keeper.one_less());
            expected = left;
        }
    }
    keeper.close()?;
    if let Some(path) = &args.csv {
        let (seconds, answered) = (bars.seconds(), inputs.answered);
        bars.end();
        let each = answered.max(1) as f64;
        say!(
            "{answered} of {} inputs answered in {seconds:.0} s ({:.2} s and {} each), in {}",
            inputs.all,
            seconds / each,
            bytes(sent / answered.max(1) as u64),
            path.display()
        );
    }
    if let (Some(path), Some(trace)) = (&args.trace, trace) {
        trace.write(path, &format!("{model} at {}", args.reach.server))?;
    }
    inputs.end()
}

/// The inputs, one after the other; those that cannot be used are reported and left out.
struct Inputs<'a> {
    args: &'a Args,
    /// Whether there may be more than one.
    several: bool,
    /// How many were there so far.
    all: usize,
    files: VecDeque<PathBuf>,
    /// Standard input, where paths of further inputs come from.
    lines: Option<Lines<StdinLock<'static>>>,
    failed: Vec<anyhow::Error>,
    answered: usize,
    /// Where answers and errors are written, in place of standard output.
    rows: Option<Rows>,
}

impl Inputs<'_> {
    /// How many queries of so many images are still to be asked, as far as is known.
    fn queries(&self, images: usize) -> u64 {
        (self.all - self.answered - self.failed.len()).div_ceil(images) as u64
    }

    /// The next that can be read.
    fn next(&mut self, bars: &mut Bars) -> Option<(PathBuf, Source)> {
        loop {
            let path = match self.files.pop_front() {
                Some(path) => path,
                None => {
                    self.more(bars)?;
                    continue;
                }
            };
            match samples::open(&path) {
                Ok(source) => return Some((path, source)),
                Err(e) => self.fail(&path, e.into(), bars),
            }
        }
    }

    /// Waits for a line that names more. None at the end.
    fn more(&mut self, bars: &mut Bars) -> Option<()> {
        let line = match self.lines.as_mut()?.next()? {
            Ok(line) => line,
            Err(e) => {
                self.lines = None;
                self.fail(Path::new("standard input"), e.into(), bars);
                return None;
            }
        };
        if !line.trim().is_empty() {
            let path = PathBuf::from(line);
            match collect(std::slice::from_ref(&path)) {
                Ok(files) => {
                    self.all += files.len();
                    self.files.extend(files);
                }
                Err(e) => {
                    self.all += 1;
                    self.fail(&path, e.into(), bars);
                }
            }
        }
        Some(())
    }

    /// `source`, or the next that can be read and is of the network's shape, as integers. What is unusual about it is told.
    fn that_fit(
        &mut self,
        network: &Network,
        mut source: Option<(PathBuf, Source)>,
        bars: &mut Bars,
    ) -> Option<(PathBuf, Vec<i64>)> {
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
                Err(e) => self.fail(&path, e, bars),
            }
        }
    }

    fn fail(&mut self, path: &Path, error: anyhow::Error, bars: &mut Bars) {
        if self.args.json {
            let error = in_one_line(error.as_ref());
            say!("{}", serde_json::json!({ "input": path.display().to_string(), "error": error }));
        }
        if let Some(rows) = &mut self.rows
            && let Err(error) = rows.error(path, &in_one_line(error.as_ref()))
        {
            bars.line(&format!("error: {}", in_one_line(error.as_ref())));
        }
        // A single one is the command's own error.
        if self.several {
            bars.line(&format!("error: {}", in_one_line(error.as_ref())));
        }
        self.failed.push(error);
        bars.inputs((self.answered + self.failed.len()) as u64, self.all as u64);
    }

    /// Fails if an input could not be used.
    fn end(mut self) -> Result<()> {
        match (self.failed.len(), self.several) {
            (0, _) => Ok(()),
            (_, false) => Err(self.failed.remove(0)),
            (failed, true) => bail!("{failed} of {} inputs could not be used", self.all),
        }
    }
}

/// How to reach the server again and again, always for the same.
pub struct Dial {
    pub dialer: Dialer,
    /// The name of the model to ask.
    pub model: Option<String>,
    pub link: Option<Imitated>,
    pub timeline: bool,
    /// How many images a query has.
    pub images: u32,
    /// Whether correlations may have stationary noise.
    pub stationary_noise: bool,
}

impl Dial {
    /// The same, without waiting for a place.
    fn at_once(&self) -> Self {
        Self { dialer: self.dialer.at_once(), model: self.model.clone(), ..*self }
    }

    pub fn connect(&self) -> Result<Connected, EngineError> {
        let channel = link::channel(self.dialer.connect(Options::default())?, self.link);
        let limits = Limits { accept_stationary_noise: self.stationary_noise, ..Limits::default() };
        let limits = limits.of_images(self.images).with_room(room().map(|room| room.bytes));
        connect_for(&kit(), channel, self.model.as_deref(), &limits, self.images)
    }

    pub fn ready(
        &self,
        connected: Connected,
        place: HintPlace,
        progress: &mut dyn Progress,
    ) -> Result<Ready, EngineError> {
        let ready = connected.prepare_client_at(place, progress)?;
        Ok(if self.timeline { ready.with_timeline() } else { ready })
    }
}

/// What all answers of a run have in common.
struct About<'a> {
    model: &'a str,
    network: &'a Network,
    /// How many prepared queries are ready here.
    ready: Stock,
}

fn show(
    args: &Args,
    (input, warnings): (String, Vec<String>),
    &About { model, network, ready }: &About<'_>,
    (prediction, shared): (&Prediction, Shared),
    (report, predicted): (&Report, Predicted),
) -> Result<()> {
    let (top, label) = (prediction.top(network, args.top), prediction.label(network));
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
            logit_scales: &network.output.scales,
            outputs: prediction.outputs(network),
            label,
            batch: (shared.images > 1).then_some(shared),
            reduced_signs: network.reduced_signs(),
            cost: report,
            ready,
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
    if let Some(left_out) = network.output.left_out() {
        say!("  {left_out}: --json has its values");
    }
    if !shared.is_last() {
        return Ok(());
    }
    match shared.images {
        1 => say!("  ({})", cost::line(report)),
        _ => say!("  (all {}: {})", shared.inputs, cost::line(report)),
    }
    let server = report.server_keeps;
    if ready.queries + server.queries > 0 {
        say!(
            "  (ready: {} here, {}; {} at the server, {})",
            count(ready.queries.into()),
            bytes(ready.bytes),
            count(server.queries.into()),
            bytes(server.bytes)
        );
    }
    if args.costs {
        say!("\n{}", cost::tables(report, &predicted));
        say!(
            "peak memory: client {}, server {}",
            bytes(report.client_peak_kib * 1024),
            bytes(report.server_peak_kib.saturating_mul(1024))
        );
    }
    Ok(())
}
