//! `jaguar gateway`: answers other programs of this machine, in the protocol that they ask public models in.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use jaguar::client::{Limits, connect_for};
use jaguar::machine::memory::room;
use jaguar::reports::terminal::table::count;
use jaguar::reports::terminal::{say, size};
use jaguar::stop::Stop;
use jaguar::wire::Channel;
use jaguar::wire::framed::Options as Connection;
use jaguar_gateway::{Ending, Event, Gateway, GatewayError, Options, listen};

use crate::batch::size as batch_size;
use crate::cache::Cache;
use crate::kit::kit;
use crate::protocol::LpnNoise;
use crate::reach::Reach;

/// Groups of the options in `--help`.
const ASKED: &str = "Who may ask";
const SPEED: &str = "How fast";

#[derive(clap::Args)]
#[command(next_help_heading = ASKED)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// An address of this machine, and a port.
    ///
    /// Where programs ask, over HTTP and gRPC. What they say is in the clear.
    #[arg(long, help_heading = ASKED, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    listen: String,
    /// Listen at an address that other machines reach, too.
    ///
    /// Pictures go over the network in the clear then, and whoever reaches the address may ask: for a network that you trust.
    #[arg(long, help_heading = ASKED)]
    allow_remote: bool,
    /// Pictures that may wait for their answers.
    ///
    /// Who comes beyond it is told to come back.
    #[arg(long, help_heading = ASKED, value_name = "PICTURES", default_value_t = 64, value_parser = jaguar::reports::terminal::at_least_one)]
    max_waiting: usize,
    /// Seconds that a request waits for its answer at most.
    #[arg(long, help_heading = ASKED, hide = true, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// How many prepared queries to have ready.
    ///
    /// A picture then waits for the online part only. Both parties hold them in memory, and there is a second connection. The server keeps
    /// as many as its --keep-queries says.
    #[arg(long, help_heading = SPEED, value_name = "QUERIES", default_value_t = 2)]
    keep: u32,
    /// Memory that they may hold here, such as 500M or 2G (default: 2G); --keep with more is refused.
    #[arg(long, help_heading = SPEED, hide = true, value_name = "SIZE", value_parser = size)]
    keep_memory: Option<u64>,
    /// Ask about so many pictures in one query, a power of two.
    ///
    /// Those that come at once share it, and zeros fill it up. The server must allow it (--max-batch). `jaguar plan --batch` tells where it
    /// pays.
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
    #[command(flatten)]
    cache: Cache,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    let images = args.batch as usize;
    ensure!(
        args.max_waiting >= images,
        "--max-waiting {} would never fill a query of --batch {images}",
        args.max_waiting
    );
    let listener = listen(&args.listen, args.allow_remote).map_err(|error| match error {
        GatewayError::Remote(_) => anyhow!("--listen {}: {error} (`--allow-remote` allows it)", args.listen),
        error => error.into(),
    })?;
    let place = args.cache.place(|warning| eprintln!("warning: {warning}"));
    let mut options = Options::new(args.keep, place);
    options.memory = args.keep_memory.unwrap_or(options.memory);
    options.waiting = args.max_waiting;
    options.patience = Duration::from_secs(args.timeout);

    let (dialer, model, images) = (args.reach.dialer()?, args.reach.model.clone(), args.batch);
    let limits =
        Limits { accept_stationary_noise: args.lpn_noise == LpnNoise::Stationary, ..Limits::default() };
    let dial = move |stop: &Stop, wait: bool| {
        let connection = if wait {
            dialer.connect(Connection::default())?
        } else {
            dialer.at_once().connect(Connection::default())?
        };
        let channel = Channel::new(stop.over(connection));
        connect_for(
            &kit(),
            channel,
            model.as_deref(),
            &limits.of_images(images).with_room(room().map(|room| room.bytes)),
            images,
        )
    };
    let name = args.reach.model.clone();
    let gateway = Gateway::start(listener, name, Arc::new(dial), options, Arc::new(tell))?;
    end_on_signals(gateway.ending())?;
    say!("listening on http://{}/v2 (HTTP and gRPC)", gateway.address()?);
    gateway.run()?;
    Ok(())
}

fn tell(event: Event) {
    match event {
        Event::Connected(name, version) => say!("model {name} ({version}): the server is there"),
        Event::Ready(queries) => say!("ready: {} prepared", count(queries.into())),
        Event::Note(note) => eprintln!("note: {note}"),
        Event::Away(why) => eprintln!("warning: the server is away ({why}); trying again"),
    }
}

/// Ends the gateway at a signal to end.
#[cfg(unix)]
fn end_on_signals(ending: Ending) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            ending.end();
        }
    })?;
    Ok(())
}

#[cfg(not(unix))]
fn end_on_signals(_: Ending) -> Result<()> {
    Ok(())
}
