//! `jaguar-bench all`: what `docs/benchmarks.md` shows, measured anew.
//!
//! Each benchmark is a process of its own, so that none inherits another's memory, threads or instruction set. After it,
//! `tools/benchmark_tables.py` puts the tables into the page.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use jaguar_report::terminal::say;

use super::setting;

#[derive(clap::Args)]
pub struct Args {
    /// Compiled models, for whole networks; without any, those benchmarks are left out.
    models: Vec<PathBuf>,
    /// The folder that the figures (`*.json`) and the plots (`*.svg`) go to.
    #[arg(long)]
    out: PathBuf,
    /// How often each is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Only those whose names contain this, e.g. `relu`.
    #[arg(long)]
    filter: Option<String>,
}

/// Names of files, and what makes them.
const BENCHMARKS: [(&str, &[&str]); 11] = [
    ("conv", &["conv"]),
    ("conv-scalar", &["conv", "--kernel", "scalar"]),
    ("circulant", &["circulant"]),
    ("cirencode", &["cirencode"]),
    ("relu", &["relu"]),
    ("relu-lan", &["relu", "--link", "lan"]),
    ("relu-wan", &["relu", "--link", "wan"]),
    ("hyena", &["hyena", "--only", "operations,ablation,memory,layers"]),
    ("e2e", &["e2e", "--protocol", "both"]),
    ("e2e-lan", &["e2e", "--protocol", "both", "--link", "lan", "--both-kernels"]),
    ("e2e-wan", &["e2e", "--protocol", "both", "--link", "wan", "--both-kernels"]),
];

pub fn run(args: &Args) -> Result<()> {
    setting::recordable()?;
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let program = std::env::current_exe()?;
    let wanted = |name: &str| args.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    let mut measured = 0;
    for (name, words) in BENCHMARKS.iter().filter(|(name, _)| wanted(name)) {
        let networks = words[0] == "e2e";
        if networks && args.models.is_empty() {
            eprintln!("{name}: left out, no model was given");
            continue;
        }
        let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        if networks {
            arguments.extend(args.models.iter().map(OsString::from));
        }
        arguments.extend(["--repeats".into(), args.repeats.to_string().into()]);
        arguments.extend(["--json".into(), args.out.join(format!("{name}.json")).into()]);
        arguments.extend(["--plot".into(), args.out.join(format!("{name}.svg")).into()]);
        say!("\n==== {name} ====\n");
        let status = Command::new(&program).args(arguments).status()?;
        ensure!(status.success(), "{name} ended with {status}");
        measured += 1;
    }
    ensure!(measured > 0, "nothing was measured: see --filter, and give models for whole networks");
    Ok(())
}
