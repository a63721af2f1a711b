//! `jaguar bench`: measurements on this machine, each beside published figures.

mod conv;
mod e2e;
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
    /// Single convolutions: the published form, ours and Cheetah's (Tables 3 and 9 of Jaguar's paper).
    Conv(conv::Args),
    /// Whole networks (Tables 5, 10 and 11 of Jaguar's paper).
    E2e(e2e::Args),
    /// The nonlinear layers: Jaguar's flow and Cheetah's (Tables 2 and 4 of Jaguar's paper).
    Relu(relu::Args),
}

pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Conv(args) => conv::run(args),
        What::E2e(args) => e2e::run(args),
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

/// How many threads of this machine wanted to run, over the last minute.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[mid - 1] + values[mid]) / 2.0 } else { values[mid] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }
}
