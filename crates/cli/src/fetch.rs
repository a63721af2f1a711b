//! `jaguar fetch`: a model's hint, ahead of the first query.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jaguar::hint::HintPlace;
use jaguar::machine::{Imitated, store};
use jaguar::reports::terminal::say;
use jaguar::reports::terminal::table::bytes;

use crate::batch;
use crate::cache::NO_CACHE;
use crate::predict::Dial;
use crate::progress::Bars;
use crate::reach::Reach;

/// The group of these options in `--help`.
const HINT: &str = "The hint";

#[derive(clap::Args)]
#[command(next_help_heading = HINT)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// How many images a query will have.
    ///
    /// As with `jaguar predict --batch`: each number has a hint of its own.
    #[arg(long, help_heading = HINT, value_name = "IMAGES", default_value_t = 1, value_parser = batch::size)]
    batch: u32,
    /// Where the hint is kept (default: the user's cache folder).
    #[arg(long, help_heading = HINT, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Imitate a slower link, for measurements (the server must too).
    #[arg(long, help_heading = HINT, hide = true, value_enum)]
    link: Option<Imitated>,
}

pub fn run(args: &Args) -> Result<()> {
    let (model, link, images) = (args.reach.model.clone(), args.link, args.batch);
    let dial = Dial {
        dialer: args.reach.dialer()?,
        model,
        link,
        timeline: false,
        images,
        // A hint is public, and no correlation is drawn for it.
        stationary_noise: true,
    };
    let cache = store::cache(args.cache.as_deref()).context(NO_CACHE)?;
    let connected = args.reach.advised(dial.connect())?;
    let model = format!("{} ({})", connected.network().name, connected.model());
    let mut bars = Bars::new(false);
    // To keep it is what this is for: a folder that fails is an error.
    let ready = dial.ready(connected, HintPlace::Folder(cache), &mut bars)?;
    let (there, total) = ready.hint();
    let ready = ready.fetch_hint(&mut bars)?;
    bars.finish();
    ready.leave()?;
    if total == 0 {
        say!("{model} needs no hint under the server's protocol");
    } else if there == total {
        say!("the hint of {model} was there: {}", bytes(total));
    } else {
        say!("fetched the hint of {model}: {} of {}", bytes(total - there), bytes(total));
    }
    Ok(())
}
