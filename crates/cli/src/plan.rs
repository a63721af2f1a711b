//! `jaguar plan`: who runs which layer, what that costs, and why.

use std::path::PathBuf;

use anyhow::Result;
use jaguar::Cpu;
use jaguar::bundle::{Bundle, files};
use jaguar::machine::memory::room;
use jaguar::machine::{Between, Imitated, When, store};
use jaguar::plan::memory::Load;
use jaguar::plan::{Choices, Plan, batch as batches};
use jaguar::reports::cost;
use jaguar::reports::tables::memory::MemoryNeeds;
use jaguar::reports::tables::plan::Planned;
use jaguar::reports::terminal::say;

use crate::batch;
use crate::hide::HideFor;
use crate::notes::tell;
use crate::page;
use crate::security::Security;
use crate::{kit, protocol};

/// Groups of the options in `--help`.
const PLANNED: &str = "What is planned, and for which link";
const SHOWN: &str = "What is shown";
const LOAD: &str = "This machine, and what it has to carry";

#[derive(clap::Args)]
#[command(next_help_heading = PLANNED)]
pub struct Args {
    /// The compiled model.
    #[arg(help_heading = None)]
    model: PathBuf,
    #[command(flatten)]
    hide_for: HideFor,
    #[command(flatten)]
    memory: protocol::WeightMemory,
    #[command(flatten)]
    noise: protocol::Noise,
    #[command(flatten)]
    backends: protocol::Backends,
    /// loopback, lan, wan, or a measured link's file (default: loopback).
    ///
    /// `jaguar measure --link-to SERVER --out FILE` writes such a file.
    #[arg(long, value_parser = str::parse::<Between>)]
    link: Option<Between>,
    /// What is to be short (default: query).
    #[arg(long, value_enum)]
    prefer: Option<protocol::Prefer>,
    /// Plan queries of so many images, a power of two.
    ///
    /// And tell by layer what that takes beside as many queries of one.
    #[arg(long, value_name = "IMAGES", default_value_t = 1, value_parser = batch::size)]
    batch: u32,
    /// For every choice, what else there was and what it would cost.
    #[arg(long, help_heading = SHOWN)]
    explain: bool,
    /// What each linear layer would cost in skew-circulant blocks.
    ///
    /// Of 1, 2, 4, 8 and 16.
    #[arg(long, help_heading = SHOWN)]
    block_sizes: bool,
    /// Instead of costs: on what security rests, and who learns what.
    ///
    /// With the estimate on record for each assumption, and with the known weaknesses that apply.
    #[arg(long, help_heading = SHOWN, conflicts_with_all = ["explain", "block_sizes", "report"])]
    security: bool,
    /// Print everything as JSON.
    #[arg(long, help_heading = SHOWN)]
    json: bool,
    /// Write a web page too: costs, and where the time goes.
    ///
    /// By layer and by backend, with sliders for the link; with --explain also what else there was.
    #[arg(long, help_heading = SHOWN, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// When to measure this machine.
    ///
    /// Without it: auto. What a server chose before counts unless it is off.
    #[arg(long, help_heading = LOAD, hide_default_value = true, value_enum, default_value_t)]
    measure: When,
    /// The folder for figures and choices (default: the user's cache folder).
    #[arg(long, help_heading = LOAD, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Clients that the server has at once, for its memory.
    #[arg(long, help_heading = LOAD, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    clients: u64,
    /// Prepared queries that each of them keeps.
    ///
    /// For the memory of both sides.
    #[arg(long, help_heading = LOAD, value_name = "QUERIES", default_value_t = 0)]
    keep: u32,
    /// Threads that compute linear layers (0: one per core).
    #[arg(long, help_heading = LOAD, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    if let Some(path) = &args.report {
        page::check(path)?;
    }
    let bundle = args.hide_for.apply(Bundle::read(&args.model, kit::kit().operators())?)?;
    let (network, named) = (&bundle.model.network, args.backends.named());
    let cache = store::cache(args.cache.as_deref());
    let machine = store::machine(Cpu::detect(), &kit::kit(), args.measure, cache.as_deref(), &mut tell)?;
    if machine.is_none() && (args.link.is_some() || args.prefer.is_some()) {
        eprintln!("note: nothing is known of this machine's speed, so --link and --prefer choose nothing");
    }
    let (link, aim) =
        (args.link.clone().unwrap_or(Between::Loopback), args.prefer.unwrap_or_default().into());
    let site = machine.as_ref().map(|machine| link.site(machine, aim));
    let choices = match &site {
        None => args.memory.apply(Choices::among(network, &named)?),
        Some(site) => {
            let memory = args.memory.bytes();
            store::choose(network, bundle.id(), &named, site, memory, cache.as_deref(), &mut tell)?
        }
    };
    let allowed = args.noise.allowed();
    let single = Plan::allowing(network, args.noise.apply(network, choices, site.as_ref())?, allowed)?;
    let plan = batches::plan(network, &single.choices, &named, args.batch, allowed)?;
    if args.security {
        let security = Security::new(&bundle, &plan);
        if args.json {
            say!("{}", serde_json::to_string_pretty(&security)?);
        } else {
            say!("{}", security.to_string().trim_end());
        }
        return Ok(());
    }
    let load =
        Load { clients: args.clients, kept: args.keep.into(), threads: jaguar::reports::terminal::threads() };
    let needs = MemoryNeeds::new(network, &plan, allowed, load, room(), &kit::standard());
    let shown = (args.explain.then_some(named.as_slice()), args.block_sizes);
    let planned = Planned::new(&bundle, &plan, allowed, site.as_ref(), needs, shown)?;
    let planned = if args.batch > 1 { planned.beside(&single, site.as_ref()) } else { planned };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&planned)?);
    } else {
        say!("{}", planned.to_string().trim_end());
    }
    if let Some(path) = &args.report {
        let id = bundle.id().to_string();
        let links = [Imitated::Lan, Imitated::Wan].map(|link| (link.name(), link.figures()));
        let explanation = planned.explanation();
        let subject = cost::Subject {
            network,
            id: &id,
            plan: &plan,
            allowed,
            load,
            site: site.as_ref(),
            links: &links,
            backends: &named,
            explanation,
        };
        let page = cost::page(&subject)?;
        // (With --json nothing else is printed.)
        if args.json { files::save(path, page.as_bytes())? } else { page::write(path, &page)? }
    }
    Ok(())
}
