//! `jaguar-bench e2e`: whole networks, beside the figures of Jaguar's paper (Tables 5, 10 and 11).
//!
//! Both parties run in this process, each in its own threads, over TCP on loopback, shaped if asked for; the hint is there and
//! the first query is not counted. Inputs are random: neither time nor bytes depend on them.

pub mod session;
mod tables;

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use jaguar_engine::bundle::Bundle;
use jaguar_engine::report::Predicted;
use jaguar_graph::network::Shape;
use jaguar_plan::{BackendId, ComparisonsId, Kit};
use jaguar_profile::{Imitated, Note, When, store};
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use serde::{Deserialize, Serialize};

use super::kit::kit;
use super::limits::{Limit, Peaks};
use super::report::{Output, Report};
use super::setting::{Instructions, Setting, link_text};

#[derive(clap::Args)]
pub struct Args {
    /// Compiled models. Those named resnet18, resnet50 and mobilenetv2 stand beside the paper's figures.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// What to measure: backends' names with commas between, each in sessions of its own, or both (jaguar and cheetah).
    #[arg(long, value_parser = str::parse::<Protocols>, default_value = "jaguar")]
    protocol: Protocols,
    /// Measures all once more, by turns, by other comparisons than the operators' own. They may leak.
    #[arg(long, value_name = "NAME", value_parser = comparisons)]
    comparisons: Option<ComparisonsId>,
    /// Guard bits in place of those that the models were compiled with (0: what papers' figures are compared with).
    #[arg(long, value_name = "BITS")]
    guard_bits: Option<u32>,
    /// Imitate a link.
    #[arg(long, value_enum)]
    link: Option<Imitated>,
    /// Queries that are measured, after one that is not.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Threads that each party's linear layers share with the other's (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar_report::terminal::thread_count)]
    threads: usize,
    /// The instruction set of all but AES.
    #[arg(long, value_enum, default_value_t)]
    kernel: Instructions,
    /// Measures all of it once more without vector instructions in the linear layers (Table 10).
    #[arg(long, conflicts_with = "kernel")]
    both_kernels: bool,
    /// When to measure this machine, to plan by and to predict from.
    #[arg(long, value_enum, default_value_t)]
    measure: When,
    #[command(flatten)]
    output: Output,
}

/// Side by side.
#[derive(Clone, Debug)]
struct Protocols(Vec<BackendId>);

impl FromStr for Protocols {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "both" {
            return Ok(Self(vec![Kit::JAGUAR, Kit::CHEETAH]));
        }
        let of = |name: &str| kit().backend(name).map_err(|e| e.to_string());
        text.split(',').map(of).collect::<std::result::Result<_, _>>().map(Self)
    }
}

/// The comparisons of a name. Those that this program was built without are refused by how to build with them.
fn comparisons(name: &str) -> Result<ComparisonsId, String> {
    let found = kit().comparisons().iter().copied().find(|by| by.0.name() == name);
    found.ok_or_else(|| match jaguar_fregata::LEFT_OUT.contains(&name) {
        true => format!("this program is built without them; `cargo run --release -p jaguar-bench --features {name}` has them"),
        false => format!("no comparisons are called '{name}'"),
    })
}

/// What one protocol took for one network: medians over the queries.
#[derive(Clone, Serialize, Deserialize)]
pub struct Run {
    pub network: String,
    /// `[C, H, W]` of the network's input.
    pub input: Shape,
    pub protocol: String,
    /// The instruction set of all but AES.
    pub kernel: String,
    /// MiB that a client fetches once.
    pub hint_mib: f64,
    /// Of the stage before the input is known.
    pub offline: Stage,
    /// Of the stage that begins with the input.
    pub online: Stage,
    /// The first query that counts, as the planner predicts it.
    pub predicted: Predicted,
}

impl Run {
    pub fn seconds(&self) -> f64 {
        self.offline.seconds + self.online.seconds
    }

    pub fn mib(&self) -> f64 {
        self.offline.mib() + self.online.mib()
    }

    pub fn limit(&self) -> f64 {
        self.offline.limit.seconds() + self.online.limit.seconds()
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Stage {
    pub seconds: f64,
    /// Of both parties together, on cores. Older records have none.
    #[serde(default)]
    pub busy_seconds: f64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub rounds: u64,
    pub limit: Limit,
    /// In the order of [`NodeKind::ALL`].
    pub kinds: Vec<ByKind>,
}

impl Stage {
    pub fn mib(&self) -> f64 {
        (self.bytes_up + self.bytes_down) as f64 / 1_048_576.0
    }
}

/// What layers of one kind took together.
#[derive(Clone, Serialize, Deserialize)]
pub struct ByKind {
    pub kind: NodeKind,
    /// Of the client's time, waiting for the server included.
    pub wall_seconds: f64,
    pub client_seconds: f64,
    pub server_seconds: f64,
    pub bytes: u64,
    pub rounds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    Linear,
    Relu,
    MaxPool,
    /// Sums, pools, extensions behind them; keys; the result.
    Rest,
}

impl NodeKind {
    pub const ALL: [Self; 4] = [Self::Linear, Self::Relu, Self::MaxPool, Self::Rest];
}

#[derive(Serialize)]
pub struct Figures {
    pub runs: Vec<Run>,
}

pub fn run(args: &Args) -> Result<()> {
    let cpu = args.kernel.cpu()?;
    let mut cpus = vec![cpu];
    if args.both_kernels && Kernel::of(cpu) != Kernel::SCALAR {
        cpus.push(Cpu::scalar());
    }
    jaguar_report::terminal::set_threads(args.threads)?;
    let threads = rayon::current_num_threads();
    let threads_text = format!("threads of both parties together: {threads}");
    let mut setting = Setting::new(cpu, threads_text, link_text(args.link, "TCP on loopback"), args.repeats);
    let mut tell = |note| match note {
        Note::Measuring => eprintln!("{note} (--measure off leaves it out)"),
        note => eprintln!("{note}"),
    };
    let mut runs = Vec::new();
    // Each with the peaks and the plan of its instructions; those of the first are reported.
    let mut first_peaks = None;
    for cpu in cpus {
        let machine = store::machine(cpu, &kit(), args.measure, store::cache(None).as_deref(), &mut tell)?;
        let peaks = Peaks::measure(cpu)?;
        for path in &args.models {
            eprintln!("{}, {} ...", path.display(), Kernel::of(cpu).name());
            let ways = args.protocol.0.iter().flat_map(|&protocol| {
                let sealed = session::Way::sealed(protocol);
                let other = args.comparisons.map(|by| session::Way { compared_by: Some(by), ..sealed });
                [Some(sealed), other].into_iter().flatten()
            });
            let ways: Vec<_> = ways.collect();
            let what = session::Session {
                hardware: cpu.into(),
                bundle: &|| Ok(Bundle::read(path, kit().operators())?),
                ways: &ways,
                link: args.link,
                guard_bits: args.guard_bits,
                repeats: args.repeats,
                machine: machine.as_ref(),
            };
            runs.extend(what.measure(&peaks, threads).with_context(|| path.display().to_string())?);
        }
        first_peaks.get_or_insert(peaks);
    }
    let peaks = first_peaks.expect("there is at least one kernel");
    setting.done();
    let tables = tables::all(&runs, args.link);
    let plot = tables::plot(&runs, args.link);
    args.output.hand_out(&Report { setting, peaks, tables, figures: Figures { runs } }, &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_that_are_not_built_in_are_refused_by_how_to_build_with_them() {
        for name in jaguar_fregata::LEFT_OUT {
            assert!(comparisons(name).unwrap_err().contains(&format!("--features {name}")));
        }
        assert!(comparisons("other").unwrap_err().contains("no comparisons are called 'other'"));
    }
}
