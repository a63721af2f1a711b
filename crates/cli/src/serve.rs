//! `jaguar serve`

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use jaguar_cpu::Cpu;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::Reveal;
use jaguar_engine::prepared_bytes;
use jaguar_engine::server::{self, KeepLimits, Notice, Service};
use jaguar_linear::product::{self, Hardware};
use jaguar_net::{Bound, Listener, TokenFile, tls};
use jaguar_plan::memory::{Load, Party};
use jaguar_plan::{BackendId, Choices, Plan};
use jaguar_profile::{Between, Imitated, When, kept, link};
use jaguar_serve::metrics::Metrics;
use jaguar_serve::{Control, Event, Hosted, Limits, ServeError, Server};
use jaguar_tables::event;
use jaguar_terminal::table::bytes;
use jaguar_terminal::{size, threads};
use jaguar_wire::Traffic;
use tracing::{error, info, warn};

use crate::guard::{self, GuardBits};
use crate::leakage::{self, AcceptSignLeakage};
use crate::log::{self, TARGET};
use crate::notes::{self, tell, warning_of_memory};
use crate::one_round::{self, Protocol};
use crate::protocol;
use crate::reach::Tls;

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
    /// Address and port to listen on, or `unix:` and the path of a socket.
    #[arg(long, default_value = "127.0.0.1:7447")]
    listen: String,
    #[command(flatten)]
    admission: Admission,
    #[command(flatten)]
    guard_bits: GuardBits,
    /// Which backends may run linear layers, with commas between: a layer has the first one that can run it, or the one that makes the query faster. Clients follow.
    #[arg(long, value_delimiter = ',', default_values_t = protocol::secure(), value_parser = protocol::parse)]
    backends: Vec<BackendId>,
    #[command(flatten)]
    leakage: AcceptSignLeakage,
    /// What clients get to know.
    #[arg(long, value_enum, default_value_t = Shown::Logits)]
    reveal: Shown,
    /// Threads for the linear layers (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar_terminal::thread_count)]
    threads: usize,
    /// Where the plain integers of Fregata's online part are computed: `auto` takes an NVIDIA card, if there is one and this program
    /// was built with the feature `cuda`.
    #[arg(long, value_enum, default_value_t)]
    device: product::Choice,
    /// Imitate a slower link, for measurements (the clients must too).
    #[arg(long, value_enum)]
    link: Option<Imitated>,
    /// The link to plan for: loopback, lan, wan, or a file of `jaguar calibrate --link-to` (default: the imitated link, else
    /// loopback where nobody else can connect, else lan).
    #[arg(long, value_parser = str::parse::<Between>)]
    plan_for: Option<Between>,
    /// What is to be short.
    #[arg(long, value_enum, default_value_t)]
    prefer: protocol::Prefer,
    /// When to measure this machine, to plan by.
    #[arg(long, value_enum, default_value_t)]
    calibrate: When,
    /// Where figures and choices are kept (default: the user's cache folder).
    #[arg(long)]
    cache: Option<PathBuf>,
    #[command(flatten)]
    bounds: Bounds,
    /// Address and port to answer Prometheus (`/metrics`) and probes (`/live`, `/ready`) at, in the clear: one that clients do not reach.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// How lines of the log look.
    #[arg(long, value_enum, default_value_t)]
    log: log::Format,
    /// Seconds that clients have to get through with what they asked for when this server is told to end (SIGTERM, SIGINT).
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    grace: u64,
    /// Hints an hour that clients may have, in the long run: whole ones, for new clients and old. After a quiet time some more
    /// come at once. Who is beyond it is told when to come back.
    #[arg(long, default_value_t = server::Limits::default().hints_per_hour)]
    new_hints_per_hour: NonZeroU32,
    /// Prepared queries that a client may have kept here (0: none; clients prepare when they have an input).
    #[arg(long, default_value_t = KeepLimits::default().queries)]
    keep_queries: u32,
    /// Memory that prepared queries of all clients may hold together, such as 500M or 2G (default: 2G). Who is beyond it is told,
    /// and prepares when it has an input.
    #[arg(long, value_parser = size)]
    keep_memory: Option<u64>,
    /// Seconds after which a client loses what it has kept here, and its connection, if it asks for nothing.
    #[arg(long, default_value_t = KeepLimits::default().idle.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    keep_idle: u64,
    /// Memory that keys of all clients may hold together, from one session to the next, such as 500M or 8G (default: 4G). Where
    /// there is no room, those go that were not used for the longest; their client sends them again.
    #[arg(long, value_parser = size)]
    keep_keys: Option<u64>,
    #[command(flatten)]
    memory: protocol::WeightMemory,
    /// How to compute; clients must ask for the same. With `convfhe`, options of backends, hints and prepared queries mean nothing.
    #[arg(long, value_enum, default_value_t)]
    protocol: Protocol,
    #[command(flatten)]
    storage: one_round::Storage,
}

/// Who is let in, and how.
#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
struct Admission {
    /// When to speak TLS.
    #[arg(long, value_enum, default_value_t)]
    tls: Tls,
    /// The certificate (PEM) to show, with what leads to its authority behind it (default: one that is made on first use and kept).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let those in who show a certificate that an authority in this file (PEM) signed, and nobody else.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Let those in who show a token of this file, and nobody else. `jaguar token` adds to it.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Let web pages of this origin, such as https://www.example, open WebSockets here. May be given more than once (default: no
    /// pages).
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
}

/// What clients may take. Who is beyond it is told when to come back.
#[derive(clap::Args)]
#[command(next_help_heading = "Limits")]
struct Bounds {
    /// Clients served at once; more are turned away.
    #[arg(long, default_value_t = 8, value_parser = jaguar_terminal::at_least_one)]
    max_clients: usize,
    /// Of these, clients from one address (default: all).
    #[arg(long, value_name = "CLIENTS", value_parser = jaguar_terminal::at_least_one)]
    max_clients_per_address: Option<usize>,
    /// Sessions that one address may begin in an hour, in the long run.
    #[arg(long, value_name = "SESSIONS", default_value_t = Limits::default().sessions_per_address_and_hour)]
    max_sessions_per_address_and_hour: NonZeroU32,
    /// Bytes that a session may move, both ways together, such as 20G (default: any number).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_session_bytes: Option<u64>,
    /// Seconds that a client may ask for nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().idle.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    max_idle: u64,
    /// Seconds without data from a client in the middle of what it asked for.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().stalled.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    max_stalled: u64,
}

impl Bounds {
    fn limits(&self) -> Limits {
        Limits {
            clients: self.max_clients,
            clients_per_address: self.max_clients_per_address.unwrap_or(self.max_clients),
            sessions_per_address_and_hour: self.max_sessions_per_address_and_hour,
            session_bytes: self.max_session_bytes.unwrap_or(u64::MAX),
            idle: Duration::from_secs(self.max_idle),
            stalled: Duration::from_secs(self.max_stalled),
            ..Limits::default()
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Shown {
    /// All logits.
    Logits,
    /// The most likely label only.
    Label,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar_terminal::set_threads(args.threads)?;
    if args.protocol == Protocol::Convfhe {
        return run_one_round(args);
    }
    let bundle = args.guard_bits.apply(Bundle::read(&args.model)?)?;
    if let Some(caveat) = guard::caveat(&bundle) {
        eprintln!("warning: {caveat}");
    }
    let reveal = match args.reveal {
        Shown::Logits => Reveal::Logits,
        Shown::Label => Reveal::Label,
    };
    let Place { listener, bound, tokens } = args.place()?;
    let choices = choose(args, &bundle, bound.is_local())?;
    let choices = args.leakage.apply(choices, &bundle.model.network)?;
    let hints_per_hour = args.new_hints_per_hour;
    let hints_at_once = server::Limits::default().hints_at_once.min(hints_per_hour);
    let failed = |why: &product::GpuError| eprintln!("warning: {why}; the processor computes this product");
    let hardware = Hardware::open(args.device, Cpu::detect(), failed).context("--device gpu")?;
    let plan = Plan::allowing(&bundle.model.network, choices, args.leakage.allowed())?;
    notes::warn(warning_of_memory(
        &bundle.model.network,
        &plan,
        args.leakage.allowed(),
        Load::single(threads()),
        Party::Server,
    ));
    let service = Service::with_plan(hardware, bundle, plan, reveal)?;
    if let Some(warning) = leakage::warning(service.plan()) {
        eprintln!("warning: {warning}");
    }
    let keep = KeepLimits {
        queries: args.keep_queries,
        bytes: args.keep_memory.unwrap_or(KeepLimits::default().bytes),
        idle: Duration::from_secs(args.keep_idle),
        keys: args.keep_keys.unwrap_or(KeepLimits::default().keys),
    };
    let service =
        service.with_limits(server::Limits { hints_at_once, hints_per_hour }).with_keep_limits(keep);
    run_until_told(args, tokens, Server::new(service, listener, args.bounds.limits())?, |server| {
        announce(server, keep);
    })?;
    Ok(())
}

fn run_one_round(args: &Args) -> Result<()> {
    // A label alone would take a comparison under encryption.
    ensure!(matches!(args.reveal, Shown::Logits), "--reveal label is not possible with --protocol convfhe");
    let cache = kept::cache(args.cache.as_deref());
    log::start(args.log);
    let service = one_round::serve(&args.storage, &args.model, cache)?;
    let Place { listener, tokens, .. } = args.place()?;
    let server = Server::new(service, listener, args.bounds.limits())?;
    let (service, control) = (server.shared_service(), server.control());
    let ran = run_until_told(args, tokens, server, one_round::announce);
    // What is computed holds gigabytes: it ends before this process does.
    service.end(&control);
    ran
}

/// Where clients come to, and who is let in.
struct Place {
    listener: Listener,
    bound: Bound,
    tokens: Option<TokenFile>,
}

impl Args {
    fn place(&self) -> Result<Place> {
        let address = self.listen.parse().with_context(|| format!("listening on {}", self.listen))?;
        let listener = Listener::bind(&address)?;
        let (bound, cache) = (listener.bound()?, kept::cache(self.cache.as_deref()));
        let listener = self.admission.around(listener, cache)?;
        let tokens = self.admission.tokens.as_ref().map(TokenFile::open).transpose()?;
        Ok(Place { listener, bound, tokens })
    }
}

/// Serves until a signal ends it.
fn run_until_told<S: Hosted>(
    args: &Args,
    tokens: Option<TokenFile>,
    server: Server<S>,
    announce: impl FnOnce(&Server<S>),
) -> Result<()> {
    let imitated = args.link;
    let server = server.with_channel(move |connection| link::channel(connection, imitated));
    let server = match tokens {
        Some(tokens) => server.with_tokens(tokens),
        None => server,
    };
    if args.protocol == Protocol::Interactive {
        log::start(args.log);
    }
    let metrics = Arc::new(Metrics::new(server.control()));
    if let Some(address) = &args.metrics {
        let address = metrics.clone().answer_at(address)?;
        info!(target: TARGET, event = "metrics", %address, "metrics, and whether it lives and is ready, at http://{address}/");
    }
    end_on_signals(server.control(), Duration::from_secs(args.grace))?;
    announce_admission(&server, &args.admission);
    announce(&server);
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
        let listener = listener.with_origins(&self.allow_origin);
        let bound = listener.bound()?;
        if !self.tls.is_on(named, bound.is_local()) {
            ensure!(
                self.tokens.is_none() || bound.is_local(),
                "--tokens needs TLS beyond this machine: a token would be read on its way"
            );
            return Ok(listener);
        }
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

    /// Whether anything tells clients apart.
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

/// What a person should know at the start.
fn announce(server: &Server, keep: KeepLimits) {
    let (service, address) = (server.service(), server.bound());
    let (name, model) = (&service.network().name, service.model());
    let protocol = service.plan().choices.names(service.network());
    let [_, each] = prepared_bytes(service.network(), service.plan());
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
    if service.has_online_products() {
        let device = service.device();
        info!(target: TARGET, event = "device", device, "online products: {device}");
    }
    info!(
        target: TARGET, event = "listening", network = name, %model, protocol, %address,
        "{name} (model {model}), protocol {protocol}, listening on {address}",
    );
}

/// How clients come, and who.
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

/// A line for what happened, with its figures as fields.
fn log_event(event: Event<'_>) {
    let Some(line) = event::line(&event) else { return };
    match event {
        Event::ModelPrepared(time) => {
            let seconds = time.as_secs_f64();
            info!(target: TARGET, event = "prepared", seconds, "{line}");
        }
        Event::Connected(peer, None) => info!(target: TARGET, event = "connected", %peer, "{line}"),
        Event::Connected(peer, Some(client)) => {
            info!(target: TARGET, event = "connected", %peer, client, "{line}");
        }
        Event::Query(peer, Notice::Answered(served)) => {
            let (offline, online) = (served.offline.as_secs_f64(), served.online.as_secs_f64());
            let Traffic { received, sent, rounds, .. } = served.traffic;
            info!(
                target: TARGET, event = "answered", %peer, kept = served.kept.is_some(), offline_seconds = offline,
                online_seconds = online, received, sent, rounds, "{line}",
            );
        }
        Event::Query(peer, Notice::Kept { offline, traffic, .. }) => {
            let (seconds, Traffic { received, sent, .. }) = (offline.as_secs_f64(), traffic);
            info!(target: TARGET, event = "kept", %peer, offline_seconds = seconds, received, sent, "{line}");
        }
        Event::Query(peer, Notice::NoRoom(_)) => info!(target: TARGET, event = "not-kept", %peer, "{line}"),
        Event::OneRound(peer, _) => info!(target: TARGET, event = "one-round", %peer, "{line}"),
        Event::Left(peer) => info!(target: TARGET, event = "left", %peer, "{line}"),
        Event::Ended(peer, ServeError::Refused(why)) => {
            info!(target: TARGET, event = "refused", %peer, reason = why.kind(), "{line}");
        }
        Event::Ended(peer, _) => warn!(target: TARGET, event = "failed", %peer, "{line}"),
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

/// What to do how. What hints are bound to stays as it was chosen when this model was first served.
fn choose(args: &Args, bundle: &Bundle, alone: bool) -> Result<Choices> {
    let network = &bundle.model.network;
    let cache = kept::cache(args.cache.as_deref());
    let Some(machine) = kept::machine(Cpu::detect(), args.calibrate, cache.as_deref(), &mut tell)? else {
        return Ok(args.memory.apply(Choices::among(network, &args.backends)?));
    };
    let between = match (&args.plan_for, args.link) {
        (Some(between), _) => between.clone(),
        (None, Some(shape)) => Between::Imitated(shape),
        (None, None) if alone => Between::Loopback,
        (None, None) => Between::Measured(Imitated::Lan.figures()),
    };
    let (site, cache) = (between.site(&machine, args.prefer.into()), cache.as_deref());
    let memory = args.memory.bytes();
    Ok(kept::choose_to_serve(network, bundle.id(), &args.backends, &site, memory, cache, &mut tell)?)
}
