//! `jaguar measure`: what this machine, and the link to a server, take.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jaguar::Cpu;
use jaguar::client::{Limits, connect};
use jaguar::hint::HintPlace;
use jaguar::machine::memory::room;
use jaguar::machine::{Imitated, When, link, store};
use jaguar::plan::Kit;
use jaguar::plan::machine::{DIGITS, Link, Machine, NonlinearKind};
use jaguar::reports::tables::plan::words;
use jaguar::reports::terminal::say;
use jaguar::reports::terminal::table::{plain, trimmed};
use jaguar::wire::framed::Options;
use serde::Serialize;

use crate::kit::kit;
use crate::notes::tell;
use crate::reach::{Trust, host};

#[derive(clap::Args)]
#[command(next_help_heading = "What is measured, and where it goes")]
pub struct Args {
    /// Where the figures are kept (default: the user's cache folder).
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Threads that compute linear layers (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
    /// Measure the link to this server too.
    ///
    /// And keep the figures, for what is said of this server later.
    #[arg(long, value_name = "HOST:PORT")]
    link_to: Option<String>,
    /// Also write the link to this file, for `jaguar plan --link FILE`.
    #[arg(long, value_name = "FILE", requires = "link_to")]
    out: Option<PathBuf>,
    /// Imitate a slower link to it (the server must too).
    #[arg(long, hide = true, value_enum, requires = "link_to")]
    link: Option<Imitated>,
    #[command(flatten)]
    trust: Trust,
}

#[derive(Serialize)]
struct Measured<'a> {
    machine: &'a Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<Link>,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    let cache = store::cache(args.cache.as_deref());
    let kit = kit();
    let Some(machine) = store::machine(Cpu::detect(), &kit, When::Anew, cache.as_deref(), &mut tell)? else {
        return Ok(());
    };
    let measured = match &args.link_to {
        None => None,
        Some(server) => {
            let cache = cache.context("no cache folder is known; name one with --cache")?;
            let channel = link::channel(args.trust.dialer(server)?.connect(Options::default())?, args.link);
            let limits = Limits::default().with_room(room().map(|room| room.bytes));
            let ready = connect(&kit, channel, &limits)?.prepare_client(HintPlace::Memory)?;
            let (link, ready) = ready.measure_link()?;
            ready.leave()?;
            // An imitated link says nothing of the real one.
            if args.link.is_none() {
                store::keep_link(&cache, &host(server), link)?;
            }
            if let Some(path) = &args.out {
                store::write_link(path, link)?;
            }
            Some(link)
        }
    };
    if args.json {
        let figures = Measured { machine: &machine, link: measured };
        say!("{}", serde_json::to_string_pretty(&figures)?);
        return Ok(());
    }
    show(&machine, &kit);
    if let (Some(server), Some(measured)) = (&args.link_to, &measured) {
        say!("{server}: {}", words(measured));
    }
    Ok(())
}

fn show(machine: &Machine, kit: &Kit) {
    say!(
        "{}, {} threads; times one of them: {:.2} on linear layers, {:.2} on nonlinear ones before the input, {:.2} online\n",
        machine.cpu,
        machine.threads,
        machine.speedups.linear,
        machine.speedups.preparing,
        machine.speedups.running
    );
    for table in kit.probes().into_iter().map(|probe| probe.table(&machine.linear)) {
        let [head, rows @ ..] = &table[..] else { continue };
        let mut shown = plain(&head.iter().map(String::as_str).collect::<Vec<_>>(), 1);
        shown.add_rows(rows);
        say!("{}\n", trimmed(&shown));
    }
    let mut nonlinear = plain(
        &["nonlinear", "digits", "a COT ns: sent", "received", "a byte online ns: client", "server", "both"],
        1,
    );
    for kind in NonlinearKind::ALL {
        for digit in DIGITS {
            let digitless = kind == NonlinearKind::Extension;
            if digitless && digit != DIGITS[0] {
                continue;
            }
            let (per_cot, per_byte) = (machine.cot(kind, digit), machine.nonlinear(kind, digit));
            nonlinear.add_row([
                format!("{kind:?}").to_lowercase(),
                if digitless { "-".into() } else { digit.to_string() },
                format!("{:.1}", per_cot.sent * 1e9),
                format!("{:.1}", per_cot.received * 1e9),
                format!("{:.2}", per_byte.client * 1e9),
                format!("{:.2}", per_byte.server * 1e9),
                format!("{:.2}", per_byte.both * 1e9),
            ]);
        }
    }
    say!("{}\n", trimmed(&nonlinear));
    say!("loopback: {}", words(&machine.loopback));
}
