//! `jaguar serve`

use std::io::Write;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use jaguar_cpu::Cpu;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::Reveal;
use jaguar_engine::prepared_bytes;
use jaguar_engine::server::{self, KeepLimits, Service};
use jaguar_linear::product::{self, Hardware};
use jaguar_plan::{BackendId, Choices};
use jaguar_profile::{Between, Imitated, When, kept, link};
use jaguar_serve::{Event, Limits, Server};
use jaguar_tables::event;
use jaguar_terminal::size;
use jaguar_terminal::table::bytes;
use jaguar_wire::tcp::Listener;

use crate::guard::{self, GuardBits};
use crate::leakage::{self, AcceptSignLeakage};
use crate::notes::tell;
use crate::protocol;

/// Prints a line; the server goes on when nobody reads it.
macro_rules! log {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stdout().lock(), $($text)*);
    }};
}

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
    /// Address and port to listen on.
    #[arg(long, default_value = "127.0.0.1:7447")]
    listen: String,
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
    /// Clients served at once; more are turned away.
    #[arg(long, default_value_t = 8, value_parser = jaguar_terminal::at_least_one)]
    max_clients: usize,
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
    let bundle = args.guard_bits.apply(Bundle::read(&args.model)?)?;
    if let Some(caveat) = guard::caveat(&bundle) {
        eprintln!("warning: {caveat}");
    }
    let reveal = match args.reveal {
        Shown::Logits => Reveal::Logits,
        Shown::Label => Reveal::Label,
    };
    let listener = Listener::bind(args.listen.as_str())?;
    let choices = choose(args, &bundle, listener.address()?.ip().is_loopback())?;
    let choices = args.leakage.apply(choices, &bundle.model.network)?;
    let limits = Limits { clients: args.max_clients, ..Limits::default() };
    let imitated = args.link;
    let hints_per_hour = args.new_hints_per_hour;
    let hints_at_once = server::Limits::default().hints_at_once.min(hints_per_hour);
    let failed = |why: &product::GpuError| eprintln!("warning: {why}; the processor computes this product");
    let hardware = Hardware::open(args.device, Cpu::detect(), failed).context("--device gpu")?;
    let service = Service::allowing(hardware, bundle, choices, reveal, args.leakage.allowed())?;
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
    let server = Server::new(service, listener, limits).with_channel(move |tcp| link::channel(tcp, imitated));
    let (service, address) = (server.service(), server.address()?);
    let (name, protocol) = (&service.network().name, service.plan().choices.names(service.network()));
    log!("{name} (model {}), protocol {protocol}, listening on {address}", service.model());
    let [_, each] = prepared_bytes(service.network(), service.plan());
    if keep.queries > 0 {
        log!(
            "keeps up to {} prepared queries a client, {} each, {} for all clients",
            keep.queries,
            bytes(each),
            bytes(keep.bytes)
        );
    }
    if keep.queries > 0 && each > keep.bytes {
        eprintln!("warning: none fits --keep-memory: clients prepare when they have an input");
    }
    if service.has_online_products() {
        log!("online products: {}", service.device());
    }
    if !address.ip().is_loopback() {
        eprintln!(
            "warning: the connection itself is neither encrypted nor authenticated; put a tunnel (TLS, SSH, WireGuard) in front"
        );
    }
    Ok(server.run(log)?)
}

/// Prints what happened.
fn log(event: Event<'_>) {
    match event::line(&event) {
        Some(line) if event::is_fault(&event) => eprintln!("{line}"),
        Some(line) => log!("{line}"),
        None => {}
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
