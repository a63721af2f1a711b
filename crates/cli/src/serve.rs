//! `jaguar serve`: models on a port, until a signal ends it.

mod file;
mod memory;
mod models;
mod reload;
mod settings;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, ValueEnum};
use jaguar::bundle::FileError;
use jaguar::client::Reveal;
use jaguar::machine::{Between, Imitated, When, link, store};
use jaguar::net::{Bound, Listener, Network, TokenFile, tls};
use jaguar::plan::memory::{Load, Room, memory as needs};
use jaguar::prepared_bytes;
use jaguar::reports::tables::event;
use jaguar::reports::terminal::table::bytes;
use jaguar::reports::terminal::{size, threads};
use jaguar::serve::metrics::Metrics;
use jaguar::serve::site::PAGES;
use jaguar::serve::{Control, Counts, Event, Hosted, Limits, Models, Named, ServeError, Server};
use jaguar::server::{self, Common, KeepLimits, Notice};
use jaguar::wire::Traffic;
use tracing::{error, info, warn};

use crate::batch;
use crate::hide::HideFor;
use crate::log::{self, TARGET};
use crate::one_round::{self, OneRound, Protocol};
use crate::protocol;
use crate::reach::Tls;

use memory::ForSessions;
use models::{Builder, Built, rules, specs};
use reload::Reloader;
pub use settings::Settings;

#[derive(clap::Args)]
pub struct Args {
    /// Compiled models, or folders of them.
    ///
    /// In a folder, all that end in .jaguar. Clients name a model by its file's name without the ending.
    #[arg(value_name = "MODEL")]
    model_files: Vec<PathBuf>,
    /// A file (TOML) with these options, and with models and clients.
    ///
    /// Options have the names that they have here, without dashes in front. Models and clients have tables: `[models.NAME]`,
    /// `[clients.NAME]`. On SIGHUP the file is read again, and models too.
    #[arg(long, help_heading = SERVED, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to compute.
    ///
    /// Clients must ask for the same. Without it: interactive.
    #[arg(long, help_heading = SERVED, hide_default_value = true, default_value_t, value_parser = Protocol::parser())]
    protocol: Protocol,
    #[command(flatten)]
    model: ModelOptions,
    /// An address and a port, or unix:PATH.
    ///
    /// Where clients come.
    #[arg(long, help_heading = ADMISSION, value_name = "ADDRESS", default_value = "127.0.0.1:7447")]
    listen: String,
    /// Show browsers a page that asks, at the same address.
    ///
    /// Browsers take it from this machine, or by TLS with a certificate that they believe (--tls-cert). See docs/browser.md.
    #[arg(
        long,
        help_heading = ADMISSION,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value_t = false,
        hide_default_value = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    web: bool,
    #[command(flatten)]
    admission: Admission,
    #[command(flatten)]
    bounds: Bounds,
    /// New hints an hour, for all clients together.
    ///
    /// Whole ones, for new clients and old, in the long run. After a quiet time some more come at once. Who is beyond it is told
    /// when to come back.
    #[arg(long, help_heading = LIMITS, hide = true, value_name = "HINTS", default_value_t = server::Limits::default().hints_per_hour)]
    new_hints_per_hour: NonZeroU32,
    /// Prepared queries that a client may keep here.
    ///
    /// With 0, clients prepare when they have an input.
    #[arg(long, help_heading = LIMITS, value_name = "QUERIES", default_value_t = KeepLimits::default().queries)]
    keep_queries: u32,
    /// Memory for prepared queries of all clients, such as 500M or 8G (default: 2G, or a quarter of a control group's limit).
    ///
    /// Who is beyond it is told, and prepares when it has an input.
    #[arg(long, help_heading = LIMITS, hide = true, value_name = "SIZE", value_parser = size)]
    keep_memory: Option<u64>,
    /// Seconds after which a client that asks for nothing loses its connection, and what it has kept here.
    #[arg(long, help_heading = LIMITS, hide = true, value_name = "SECONDS", default_value_t = KeepLimits::default().idle.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    keep_idle: u64,
    /// Memory for keys of all clients, from one session to the next, such as 500M or 8G (default: 4G, or an eighth of a control group's limit).
    ///
    /// Where there is no room, those go that were not used for the longest; their client sends them again.
    #[arg(long, help_heading = LIMITS, hide = true, value_name = "SIZE", value_parser = size)]
    keep_keys: Option<u64>,
    /// For certificates, figures and counts (default: the user's cache folder).
    ///
    /// A certificate that is made on first use, what this machine takes, what was chosen for a model, and how much each client has asked.
    #[arg(long, help_heading = FILES, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// The file that counts queries by client and day (default: in the cache folder), or a store that servers share, redis://HOST[:PORT][/NUMBER].
    ///
    /// With it a restart does not forget what --max-queries-per-client-and-day bounds; with a store the limit holds over all servers.
    /// JAGUAR_COUNTS_PASSWORD in the environment is its password.
    #[arg(long, help_heading = FILES, hide = true, value_name = "FILE|ADDRESS")]
    counts: Option<PathBuf>,
    /// Threads that compute linear layers (0: one per core).
    #[arg(long, help_heading = RUNNING, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
    /// Answer Prometheus and probes at this address, in the clear.
    ///
    /// At /metrics, /live, /accepting and /ready: an address that clients do not reach.
    #[arg(long, help_heading = RUNNING, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// How lines of the log look.
    #[arg(long, help_heading = RUNNING, value_enum, default_value_t)]
    log: log::Format,
    /// Seconds that clients have to finish when this server is told to end (SIGTERM, SIGINT).
    #[arg(long, help_heading = RUNNING, hide = true, value_name = "SECONDS", default_value_t = 60)]
    grace: u64,
    #[command(flatten, next_help_heading = RUNNING)]
    device: crate::kit::Device,
    /// When to measure this machine, to plan by.
    #[arg(long, help_heading = RUNNING, hide = true, value_enum, default_value_t)]
    measure: When,
    /// Imitate a slower link, for measurements (the clients must too).
    #[arg(long, help_heading = RUNNING, hide = true, value_enum)]
    link: Option<Imitated>,
    #[command(flatten)]
    one_round: one_round::Serve,
}

/// Groups of the options in `--help`.
const SERVED: &str = "What to serve";
const ADMISSION: &str = "Who may ask";
const LIMITS: &str = "Limits (who is beyond one is told so)";
const FILES: &str = "Files";
const RUNNING: &str = "This machine";

/// How a model is run. In a configuration file each model may have its own.
#[derive(clap::Args)]
#[command(next_help_heading = SERVED)]
pub struct ModelOptions {
    #[command(flatten)]
    hide_for: HideFor,
    #[command(flatten)]
    backends: protocol::Backends,
    /// What clients learn.
    #[arg(long, value_enum, default_value_t = Shown::Logits)]
    reveal: Shown,
    /// The link to plan for: loopback, lan, wan, or a file of `jaguar measure --link-to`.
    ///
    /// Without it: the imitated link, else loopback where nobody else can connect, else lan.
    #[arg(long, hide = true, value_name = "LINK", value_parser = str::parse::<Between>)]
    plan_for: Option<Between>,
    /// What is to be short.
    #[arg(long, hide = true, value_enum, default_value_t)]
    prefer: protocol::Prefer,
    /// Images that a query may have, a power of two.
    ///
    /// Clients ask for 1, 2, 4, ... of them at once (`jaguar predict --batch`). Each size that is asked for takes memory for weights of
    /// its own.
    #[arg(long, hide = true, value_name = "IMAGES", default_value_t = 1, value_parser = batch::size)]
    max_batch: u32,
    #[command(flatten)]
    memory: protocol::WeightMemory,
    #[command(flatten)]
    noise: protocol::Noise,
}

/// Who is let in, and how.
#[derive(clap::Args)]
#[command(next_help_heading = ADMISSION)]
struct Admission {
    /// When to speak TLS.
    #[arg(long, value_enum, default_value_t)]
    tls: Tls,
    /// The certificate (PEM) to show (default: one that is made and kept).
    ///
    /// With what leads to its authority behind it.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Only clients whose certificate an authority in this file (PEM) signed.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Only clients with a token of this file; `jaguar token` adds to it.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Web pages of this origin may open WebSockets here, such as `https://www.example` (default: none).
    ///
    /// May be given more than once.
    #[arg(long, hide = true, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Balancers, which say where each client comes from (PROXY protocol, version 2): addresses, or networks such as 192.0.2.0/24.
    ///
    /// Each connection of theirs must begin so (HAProxy: send-proxy-v2). Without it all their clients have the balancer's address.
    #[arg(long, hide = true, value_name = "NETWORK,...", value_delimiter = ',')]
    balancers: Vec<Network>,
}

/// What clients may take. Who is beyond it is told when to come back.
#[derive(clap::Args)]
#[command(next_help_heading = LIMITS)]
struct Bounds {
    /// Clients served at once.
    #[arg(long, value_name = "CLIENTS", default_value_t = 8, value_parser = jaguar::reports::terminal::at_least_one)]
    max_clients: usize,
    /// Clients served at once from one address (default: as many as in all).
    #[arg(long, hide = true, value_name = "CLIENTS", value_parser = jaguar::reports::terminal::at_least_one)]
    max_clients_per_address: Option<usize>,
    /// Sessions that one address may begin in an hour, in the long run.
    #[arg(long, hide = true, value_name = "SESSIONS", default_value_t = Limits::default().sessions_per_address_and_hour)]
    max_sessions_per_address_and_hour: NonZeroU32,
    /// Sessions that one client may have at once (default: any number).
    ///
    /// Where tokens or certificates tell clients apart. A client with --keep has two.
    #[arg(long, hide = true, value_name = "SESSIONS", value_parser = jaguar::reports::terminal::at_least_one)]
    max_sessions_per_client: Option<usize>,
    /// Queries that a client has in a day.
    ///
    /// Days are those of UTC, and queries that were prepared ahead count (default: any number). Where tokens or certificates tell clients
    /// apart.
    #[arg(long, hide = true, value_name = "QUERIES")]
    max_queries_per_client_and_day: Option<u64>,
    /// New hints an hour for one client, beside --new-hints-per-hour for all.
    ///
    /// Where nothing tells clients apart, for one address.
    #[arg(long, hide = true, value_name = "HINTS", default_value_t = Limits::default().hints_per_address_and_hour)]
    new_hints_per_address_and_hour: NonZeroU32,
    /// Memory of all sessions, such as 8G.
    ///
    /// As it is estimated for each. Models, and what is kept for clients, are not in it. (Default: what a limit of this process or its
    /// control group leaves, as containers have; any without one.)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_memory: Option<u64>,
    /// Bytes that a session may move, both ways together, such as 20G (default: any number).
    #[arg(long, hide = true, value_name = "SIZE", value_parser = size)]
    max_session_bytes: Option<u64>,
    /// Seconds that a client may ask for nothing.
    #[arg(long, hide = true, value_name = "SECONDS", default_value_t = Limits::default().idle.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    max_idle: u64,
    /// Seconds without data from a client in the middle of what it asked for.
    #[arg(long, hide = true, value_name = "SECONDS", default_value_t = Limits::default().stalled.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    max_stalled: u64,
}

impl Bounds {
    /// With so many bytes of memory for all sessions.
    fn limits(&self, memory: u64) -> Limits {
        Limits {
            clients: self.max_clients,
            clients_per_address: self.max_clients_per_address.unwrap_or(self.max_clients),
            sessions_per_address_and_hour: self.max_sessions_per_address_and_hour,
            hints_per_address_and_hour: self.new_hints_per_address_and_hour,
            memory,
            session_bytes: self.max_session_bytes.unwrap_or(u64::MAX),
            idle: Duration::from_secs(self.max_idle),
            stalled: Duration::from_secs(self.max_stalled),
            ..Limits::default()
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Shown {
    /// All logits.
    Logits,
    /// The most likely label only.
    Label,
}

impl From<Shown> for Reveal {
    fn from(shown: Shown) -> Self {
        match shown {
            Shown::Logits => Self::Logits,
            Shown::Label => Self::Label,
        }
    }
}

/// Serves what the options say that stand behind `jaguar serve`.
pub fn run() -> Result<()> {
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    let settings = Settings::load(&words)?;
    jaguar::reports::terminal::set_threads(settings.args.threads)?;
    match settings.args.protocol {
        Protocol::Interactive => run_interactive(settings, words),
        Protocol::OneRound(protocol) => run_one_round(protocol, &settings),
    }
}

fn run_interactive(settings: Settings, words: Vec<OsString>) -> Result<()> {
    let args = &settings.args;
    let specs = specs(&settings)?;
    let rules = rules(&settings, &specs)?;
    let Place { listener, bound, tokens } = args.place()?;
    let hardware = args.device.open()?;
    let hints_per_hour = args.new_hints_per_hour;
    let hints_at_once = server::Limits::default().hints_at_once.min(hints_per_hour);
    let room = memory::room_of_own();
    let keep = args.keep_limits(room);
    let sessions = Arc::new(ForSessions::new(args.bounds.max_memory, keep.bytes.saturating_add(keep.keys)));
    let common = Common::new(server::Limits { hints_at_once, hints_per_hour }, keep);
    let cache = store::cache(args.cache.as_deref());
    let how = (args.measure, args.link, bound.is_local());
    let mut builder = Builder::new(hardware, common.clone(), cache, how);
    let mut models = Vec::new();
    for spec in &specs {
        let built = builder.build(spec, None, sessions.said());
        // (With one model, an error says itself which it is.)
        let built =
            if specs.len() == 1 { built? } else { built.with_context(|| format!("model {}", spec.name))? };
        if let Built::New(named) = built {
            models.push(named);
        }
    }
    let least = largest_session(&models);
    sessions.look(memory::room_of_own(), prepared_models(&models), least);
    let server = Server::new(Models::new(common, models), listener, args.bounds.limits(sessions.bytes()))?;
    let unwritten = server.control().set_rules(rules, args.counts())?;
    run_until_told(args, tokens, server, |server, metrics| {
        announce(server, keep);
        announce_memory(&sessions);
        tell_unwritten(unwritten.as_ref());
        let models = server.shared_service();
        let (control, counts, first) = (server.control(), settings.args.counts(), settings.effective.clone());
        let mut reloader = Reloader { words, first, builder, models, control, metrics, counts, sessions };
        reload_on_signal(move || reloader.reload())
    })
}

fn run_one_round(protocol: &dyn OneRound, settings: &Settings) -> Result<()> {
    let (args, name) = (&settings.args, protocol.name());
    let specs = specs(settings)?;
    let [model] = specs.as_slice() else {
        bail!("--protocol {name} serves one model at a time, not {}", specs.len());
    };
    let rules = rules(settings, &specs)?;
    let cache = store::cache(args.cache.as_deref());
    log::start(args.log);
    let service = protocol.serve(&model.file, cache, &args.one_round.0)?;
    let Place { listener, tokens, .. } = args.place()?;
    let limits = args.bounds.limits(args.bounds.max_memory.unwrap_or(u64::MAX));
    let server = Server::new(service, listener, limits)?;
    let (service, control) = (server.shared_service(), server.control());
    tell_unwritten(control.set_rules(rules, args.counts())?.as_ref());
    let ran = run_until_told(args, tokens, server, |server, metrics| {
        server.service().announce(server.bound());
        let control = server.control();
        let reason = format!("with --protocol {name} everything but the certificate takes a restart");
        reload_on_signal(move || {
            metrics.reloaded(reload::renew_certificate(&control));
            warn!(target: TARGET, event = "takes-restart", reason, "{reason}");
        })
    });
    // What is computed holds gigabytes: it ends before this process does.
    service.end(&control);
    ran
}

/// Says that queries are counted, and not written.
fn tell_unwritten(why: Option<&FileError>) {
    if let Some(why) = why {
        log_event(Event::NotCounted(why));
    }
}

/// Where clients come to, and who is let in.
struct Place {
    listener: Listener,
    bound: Bound,
    tokens: Option<TokenFile>,
}

impl Args {
    /// `room` is what this process may take, if that is limited.
    fn keep_limits(&self, room: Option<Room>) -> KeepLimits {
        let default = KeepLimits::default();
        let (bytes, keys) =
            (memory::part_for_kept(default.bytes, room, 4), memory::part_for_kept(default.keys, room, 8));
        KeepLimits {
            queries: self.keep_queries,
            bytes: self.keep_memory.unwrap_or(bytes),
            idle: Duration::from_secs(self.keep_idle),
            keys: self.keep_keys.unwrap_or(keys),
        }
    }

    /// Where queries are counted, if they have to be.
    fn counts(&self) -> Option<Counts> {
        let default = || Some(store::cache(self.cache.as_deref())?.join("queries"));
        self.counts.clone().or_else(default).map(Counts::from)
    }

    fn place(&self) -> Result<Place> {
        let address = self.listen.parse().with_context(|| format!("listening on {}", self.listen))?;
        let listener = Listener::bind(&address)?;
        let (bound, cache) = (listener.bound()?, store::cache(self.cache.as_deref()));
        let listener = self.admission.around(listener, cache)?;
        let listener = if self.web { listener.with_pages(PAGES) } else { listener };
        let tokens = self.admission.tokens.as_ref().map(TokenFile::open).transpose()?;
        Ok(Place { listener, bound, tokens })
    }
}

/// Serves until a signal ends it.
fn run_until_told<S: Hosted>(
    args: &Args,
    tokens: Option<TokenFile>,
    server: Server<S>,
    started: impl FnOnce(&Server<S>, Arc<Metrics>) -> Result<()>,
) -> Result<()> {
    let imitated = args.link;
    let server = server.with_channel(move |connection| link::channel(connection, imitated));
    let server = match tokens {
        Some(tokens) => server.with_tokens(tokens),
        None => server,
    };
    if args.protocol.is_interactive() {
        log::start(args.log);
    }
    let metrics = Arc::new(Metrics::new(server.control()));
    if let Some(address) = &args.metrics {
        let address = metrics.clone().answer_at(address)?;
        info!(target: TARGET, event = "metrics", %address, "metrics, and whether it lives and is ready, at http://{address}/");
    }
    end_on_signals(server.control(), Duration::from_secs(args.grace))?;
    announce_admission(&server, &args.admission);
    announce_page(&server, args.web);
    started(&server, metrics.clone())?;
    let drained = server.run(move |event| {
        metrics.hear(&event);
        log_event(event);
    })?;
    let cut = drained.cut;
    info!(target: TARGET, event = "ended", cut, "ended; {cut} clients were cut off");
    Ok(())
}

impl Admission {
    /// What clients come to: `listener`, and TLS around it where it is wanted.
    fn around(&self, listener: Listener, cache: Option<PathBuf>) -> Result<Listener> {
        let named = self.tls_cert.is_some() || self.client_ca.is_some();
        ensure!(
            !(self.tls == Tls::Off && named),
            "--tls off leaves nothing for which --tls-cert or --client-ca would be needed"
        );
        let listener = listener.with_origins(&self.allow_origin).with_balancers(&self.balancers);
        let bound = listener.bound()?;
        if !self.tls.is_on(named, bound.is_local()) {
            ensure!(
                self.tokens.is_none() || bound.is_local(),
                "--tokens needs TLS beyond this machine: a token would be read on its way"
            );
            return Ok(listener);
        }
        ensure!(
            self.tls_cert.is_some() == self.tls_key.is_some(),
            "--tls-cert and --tls-key belong together: one of them is missing"
        );
        let clients = self.client_ca.as_deref();
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => tls::Server::from_files(certificate, key, clients)?,
            _ => {
                let cache = cache.context(
                    "no folder is known to keep a certificate in: name one with --cache, or give --tls-cert and --tls-key",
                )?;
                tls::Server::made(&cache.join("tls"), clients)?
            }
        };
        Ok(listener.with_tls(tls))
    }

    /// Whether whoever reaches the port is served.
    fn is_open(&self) -> bool {
        self.tokens.is_none() && self.client_ca.is_none()
    }
}

/// Ends the server in an orderly way at the first signal to end, and at once at the second.
#[cfg(unix)]
fn end_on_signals(control: Control, grace: Duration) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            control.drain(grace);
        }
        if signals.next().is_some() {
            control.drain(Duration::ZERO);
        }
    })?;
    Ok(())
}

#[cfg(not(unix))]
fn end_on_signals(_: Control, _: Duration) -> Result<()> {
    Ok(())
}

/// Has `reload` called at each SIGHUP, in a thread of its own: those that come meanwhile are one.
#[cfg(unix)]
fn reload_on_signal(mut reload: impl FnMut() + Send + 'static) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGHUP])?;
    std::thread::Builder::new()
        .name("reload".into())
        .spawn(move || signals.forever().for_each(|_| reload()))?;
    Ok(())
}

#[cfg(not(unix))]
fn reload_on_signal(_: impl FnMut() + Send + 'static) -> Result<()> {
    Ok(())
}

/// Bytes that a session of the largest model takes, as estimated.
fn largest_session(models: &[Arc<Named>]) -> u64 {
    models.iter().map(|named| named.service().session_bytes()).max().unwrap_or(0)
}

/// Bytes that models take when they are prepared, as estimated.
fn prepared_models(models: &[Arc<Named>]) -> u64 {
    let of = |named: &Arc<Named>| {
        let service = named.service();
        needs(service.network(), service.plan(), Load::single(threads())).server.model
    };
    models.iter().map(of).fold(0, u64::saturating_add)
}

/// Says how much memory sessions may take, where that is bounded.
fn announce_memory(sessions: &ForSessions) {
    let all = sessions.bytes();
    if all < u64::MAX {
        info!(target: TARGET, event = "memory", bytes = all, "sessions may take {} of memory together", bytes(all));
    }
    if sessions.is_too_little() {
        eprintln!(
            "warning: not even one session fits the memory that is left below the limit, beside what is kept for clients \
             (--keep-memory, --keep-keys)"
        );
    }
}

/// What a person should know at the start.
fn announce(server: &Server<Models>, keep: KeepLimits) {
    let (models, address) = (server.service().now(), server.bound());
    let kept = |named: &Arc<Named>| {
        let service = named.service();
        prepared_bytes(service.plan())[1]
    };
    let each = models.iter().map(kept).max().unwrap_or(0);
    if keep.queries > 0 {
        let (queries, for_all) = (keep.queries, keep.bytes);
        info!(
            target: TARGET, event = "keeps", queries, bytes_each = each, bytes_for_all = for_all,
            "keeps up to {queries} prepared queries a client, {} each, {} for all clients", bytes(each), bytes(for_all),
        );
    }
    if keep.queries > 0 && each > keep.bytes {
        eprintln!("warning: none fits --keep-memory: clients prepare when they have an input");
    }
    for named in models.iter().filter(|named| named.service().most_images() > 1) {
        let (name, most) = (named.name(), named.service().most_images());
        info!(target: TARGET, event = "batches", network = name, most, "{name}: up to {most} images a query");
    }
    if let Some(named) = models.iter().find(|named| named.service().has_online_products()) {
        let device = named.service().device();
        info!(target: TARGET, event = "device", device, "online products: {device}");
    }
    let protocol = |named: &Named| named.service().plan().choices.names(named.service().network());
    if let [named] = models.as_slice() {
        let (name, model) = (&named.service().network().name, named.service().model());
        let protocol = protocol(named);
        info!(
            target: TARGET, event = "listening", network = name, %model, protocol, %address,
            "{name} (model {model}), protocol {protocol}, listening on {address}",
        );
        return;
    }
    for named in &models {
        let (name, model, protocol) = (named.name(), named.service().model(), protocol(named));
        info!(
            target: TARGET, event = "model", network = name, %model, protocol,
            "model {name}: {} ({model}), protocol {protocol}", named.service().network().name,
        );
    }
    let names = models.iter().map(|named| named.name()).collect::<Vec<_>>().join(", ");
    info!(
        target: TARGET, event = "listening", network = names, %address,
        "{} models ({names}), listening on {address}", models.len(),
    );
}

/// Says how clients come here, and who is let in.
fn announce_admission<S: Hosted>(server: &Server<S>, admission: &Admission) {
    let address = server.bound();
    match server.listener().tls() {
        Some(tls) => {
            let fingerprint = tls.fingerprint();
            info!(target: TARGET, event = "tls", %fingerprint, "TLS 1.3; clients know this server by --pin {fingerprint}");
        }
        None if !address.is_local() => eprintln!(
            "warning: --tls off: whoever is on the way can read and change what is said; put a tunnel (TLS, SSH, WireGuard) in front"
        ),
        None => {}
    }
    if admission.is_open() && !address.is_local() {
        eprintln!("warning: whoever reaches this port is served; --tokens or --client-ca says who is");
    }
}

fn announce_page<S: Hosted>(server: &Server<S>, web: bool) {
    let Bound::Tcp(address) = server.bound() else { return };
    if web {
        let scheme = if server.listener().tls().is_some() { "https" } else { "http" };
        info!(target: TARGET, event = "page", "a page for browsers at {scheme}://{address}/");
    }
}

/// A line for what happened, with its figures as fields.
fn log_event(event: Event<'_>) {
    let Some(line) = event::line(&event) else { return };
    match event {
        Event::ModelPrepared(network, time) => {
            let seconds = time.as_secs_f64();
            info!(target: TARGET, event = "prepared", network, seconds, "{line}");
        }
        Event::Connected(peer, None) => info!(target: TARGET, event = "connected", %peer, "{line}"),
        Event::Connected(peer, Some(client)) => {
            info!(target: TARGET, event = "connected", %peer, client, "{line}");
        }
        Event::Waits(peer, client, place) => {
            let (client, place, seconds) = (client.unwrap_or_default(), place.place, place.seconds);
            info!(target: TARGET, event = "waits", %peer, client, place, seconds, "{line}");
        }
        Event::Uses(peer, network) => info!(target: TARGET, event = "uses", %peer, network, "{line}"),
        Event::Query(peer, network, Notice::Answered(served)) => {
            let (offline, online) = (served.offline.as_secs_f64(), served.online.as_secs_f64());
            let Traffic { received, sent, rounds, .. } = served.traffic;
            info!(
                target: TARGET, event = "answered", %peer, network, images = served.images, kept = served.kept.is_some(), offline_seconds = offline,
                online_seconds = online, received, sent, rounds, "{line}",
            );
        }
        Event::Query(peer, network, Notice::Kept { offline, traffic, .. }) => {
            let (seconds, Traffic { received, sent, .. }) = (offline.as_secs_f64(), traffic);
            info!(target: TARGET, event = "kept", %peer, network, offline_seconds = seconds, received, sent, "{line}");
        }
        Event::Query(peer, network, Notice::NoRoom(_)) => {
            info!(target: TARGET, event = "not-kept", %peer, network, "{line}");
        }
        Event::OneRound(peer, _) => info!(target: TARGET, event = "one-round", %peer, "{line}"),
        Event::Left(peer) => info!(target: TARGET, event = "left", %peer, "{line}"),
        Event::Ended(peer, ServeError::Refused(why)) => {
            info!(target: TARGET, event = "refused", %peer, reason = why.kind(), "{line}");
        }
        Event::Ended(peer, _) => warn!(target: TARGET, event = "failed", %peer, "{line}"),
        Event::NotCounted(_) => error!(target: TARGET, event = "not-counted", "{line}"),
        Event::NoTokens(_) => error!(target: TARGET, event = "no-tokens", "{line}"),
        Event::NotAccepted(_) => error!(target: TARGET, event = "not-accepted", "{line}"),
        Event::NoThread(_) => error!(target: TARGET, event = "no-thread", "{line}"),
        Event::Draining(clients, grace) => {
            let seconds = grace.as_secs_f64();
            info!(target: TARGET, event = "draining", clients, seconds, "{line}");
        }
        _ => {}
    }
}
