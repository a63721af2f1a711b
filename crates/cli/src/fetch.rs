//! `jaguar fetch`

use std::path::PathBuf;

use anyhow::{Context, Result};
use jaguar_engine::hint::Place;
use jaguar_profile::Imitated;
use jaguar_terminal::say;
use jaguar_terminal::table::bytes;

use crate::batch;
use crate::leakage::AcceptSignLeakage;
use crate::predict::{Dial, NO_CACHE, cache};
use crate::progress::Bars;
use crate::reach::Reach;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Where the hint is kept (default: the user's cache folder).
    #[arg(long)]
    cache: Option<PathBuf>,
    #[command(flatten)]
    leakage: AcceptSignLeakage,
    /// The hint for queries of so many images ("predict --batch").
    #[arg(long, value_name = "IMAGES", default_value_t = 1, value_parser = batch::size)]
    batch: u32,
    /// Imitate a slower link, for measurements (the server must too).
    #[arg(long, value_enum)]
    link: Option<Imitated>,
}

pub fn run(args: &Args) -> Result<()> {
    let limits = args.leakage.limits();
    let (model, link, images) = (args.reach.model.clone(), args.link, args.batch);
    let dial = Dial { dialer: args.reach.dialer()?, model, link, timeline: false, limits, images };
    let cache = cache(args.cache.as_ref()).context(NO_CACHE)?;
    let connected = dial.connect()?;
    let model = format!("{} ({})", connected.network().name, connected.model());
    let mut bars = Bars::new(false);
    // To keep it is what this is for: a folder that fails is an error.
    let ready = dial.ready(connected, Place::Folder(cache), &mut bars)?;
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
