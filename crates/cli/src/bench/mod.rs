//! `jaguar bench`: measurements on this machine, each beside published figures.

mod relu;

use anyhow::Result;
use clap::Subcommand;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The nonlinear layers: Jaguar's flow and Cheetah's (Tables 2 and 4 of Jaguar's paper).
    Relu(relu::Args),
}

pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Relu(args) => relu::run(args),
    }
}

/// The processor and how many of its threads there are, as measurements are to name it.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{model}, {cores} hardware threads")
}
