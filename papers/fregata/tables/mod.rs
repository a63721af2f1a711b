//! `jaguar-bench fregata`: Fregata's split of a network beside ours and Cheetah's, and beside the paper's figures.
//!
//! | table | what is measured |
//! |---|---|
//! | `matrices` | Table IV and Figure 6: the homomorphic matrix product beside Cheetah's |
//! | `layers` | Tables V and VI: single linear layers, offline and online |
//! | `schedule` | Figure 7: layers one after the other, with the client's messages streamed or not, by both comparisons |
//! | `nonlinear` | Tables VII and VIII: a network's activations and max-pools, sealed and by PMax |
//! | `networks` | Figures 8 and 10: whole networks |
//! | `accuracy` | Figure 9: the float network, the integer network, private runs |
//!
//! Single layers and networks run as `bench e2e` runs them: both parties in this process, over TCP, imitating the
//! paper's link. A network's backends take turns, query by query. PMax **leaks**: its rows are made with the feature
//! `pmax-leaky` alone.

mod accuracy;
pub mod layers;
mod matrices;
mod paper;
mod tables;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use jaguar_engine::bundle::Bundle;
use jaguar_fregata::gpu;
use jaguar_graph::network::Shape;
use jaguar_plan::Schedule;
use jaguar_profile::{Imitated, Note, When, store};
use jaguar_ring::cpu::Cpu;
use serde::Serialize;

use crate::e2e::Run;
use crate::e2e::session::{Session, Way};
use crate::kit::{backend, kit};
use crate::limits::Peaks;
use crate::plot::Dots;
use crate::report::{Output, Report};
use crate::setting::{Setting, link_text};

#[derive(clap::Args)]
pub struct Args {
    /// Compiled models, for `nonlinear`, `networks` and `accuracy`. Those named squeezenet, resnet50 and densenet121 stand beside
    /// the paper's figures.
    models: Vec<PathBuf>,
    /// Which tables, with commas between (default: all).
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Guard bits (0: what the paper's figures are compared with).
    #[arg(long, value_name = "BITS", default_value_t = 0)]
    guard_bits: u32,
    /// Runs a network's backends one after the other instead of by turns: for networks whose backends do not fit into
    /// memory together. (Each transforms the weights; ResNet-50's five take 17 GiB.) What else the machine does then
    /// hits them unevenly.
    #[arg(long)]
    one_by_one: bool,
    /// The link that is imitated.
    #[arg(long, value_enum, default_value_t = Link::Lan460)]
    link: Link,
    /// Queries that are measured, after one that is not.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Threads that each party's linear layers share with the other's (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar_report::terminal::thread_count)]
    threads: usize,
    /// Where online products are computed.
    #[arg(long, value_enum, default_value = "cpu")]
    device: gpu::Choice,
    /// When to measure this machine, to plan by.
    #[arg(long, value_enum, default_value_t)]
    measure: When,
    #[command(flatten)]
    accuracy: accuracy::Pictures,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    Matrices,
    Layers,
    Schedule,
    /// Whole networks: their nonlinear layers, and all of them.
    Networks,
    /// How often the right class comes out: needs --float and --data.
    Accuracy,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Link {
    Loopback,
    /// 460 MB/s.
    Lan460,
    Lan,
    Wan,
}

impl Link {
    pub fn imitated(self) -> Option<Imitated> {
        match self {
            Self::Loopback => None,
            Self::Lan460 => Some(Imitated::Lan460),
            Self::Lan => Some(Imitated::Lan),
            Self::Wan => Some(Imitated::Wan),
        }
    }
}

/// One way of one case or network.
#[derive(Clone, Serialize)]
pub struct Measured {
    pub part: &'static str,
    /// The case's or the network's name.
    pub name: String,
    pub what: String,
    /// `[C, H, W]` of its input.
    pub input: Shape,
    /// Whether the client's messages before the input were streamed.
    pub streamed: bool,
    #[serde(flatten)]
    pub run: Run,
}

#[derive(Serialize)]
pub struct Figures {
    pub matrices: Vec<matrices::Row>,
    pub runs: Vec<Measured>,
    pub accuracy: Vec<accuracy::Found>,
}

pub fn run(args: &Args) -> Result<()> {
    let wanted = |part: Part| args.only.is_empty() || args.only.contains(&part);
    ensure!(
        args.models.is_empty() || wanted(Part::Networks) || wanted(Part::Accuracy),
        "models are given, but --only leaves out the networks and their accuracy"
    );
    ensure!(
        args.only.is_empty() || wanted(Part::Accuracy) == args.accuracy.is_given(),
        "accuracy takes --float and --data, and nothing else does"
    );
    let failed = |why: &gpu::GpuError| eprintln!("warning: {why}");
    let hardware = gpu::open(args.device, Cpu::detect(), failed).context("--device gpu")?;
    jaguar_report::terminal::set_threads(args.threads)?;
    let threads = rayon::current_num_threads();
    let link = args.link.imitated();
    let threads_text = format!("threads of both parties together: {threads}");
    let mut setting =
        Setting::new(hardware.cpu, threads_text, link_text(link, "TCP on loopback"), args.repeats);
    let mut tell = |note| match note {
        Note::Measuring => eprintln!("{note} (--measure off leaves it out)"),
        note => eprintln!("{note}"),
    };
    let machine =
        store::machine(hardware.cpu, &kit(), args.measure, store::cache(None).as_deref(), &mut tell)?;
    let peaks = Peaks::measure(hardware.cpu)?;
    let measure = |bundle: &(dyn Fn() -> Result<Bundle> + Sync), ways: &[Way]| {
        let session = Session {
            hardware: hardware.clone(),
            bundle,
            ways,
            link,
            guard_bits: Some(args.guard_bits),
            repeats: args.repeats,
            machine: machine.as_ref(),
        };
        session.measure(&peaks, threads)
    };

    let matrices = if wanted(Part::Matrices) {
        eprintln!("matrix products ...");
        matrices::measure(hardware.cpu, args.repeats.max(5) as usize)?
    } else {
        Vec::new()
    };
    let mut runs = Vec::new();
    let fregata = Way::sealed(backend("fregata-hme"));
    let leaky = kit().comparisons().first().map(|&by| Way { compared_by: Some(by), ..fregata });
    if leaky.is_none() && (wanted(Part::Schedule) || wanted(Part::Networks)) {
        eprintln!("the paper's comparison, which leaks, is left out: build with --features pmax-leaky");
    }
    let mut cases = |part: &'static str, cases: Vec<layers::Case>, ways: &[Way]| -> Result<()> {
        for case in cases {
            eprintln!("{}: {} ...", case.name, case.what);
            let measured = measure(&|| case.bundle(args.guard_bits), ways).context(case.name)?;
            runs.extend(measured.into_iter().zip(ways).map(|(run, way)| Measured {
                part,
                name: case.name.into(),
                what: case.what.clone(),
                input: case.in_shape,
                streamed: way.schedule == Schedule::Streamed,
                run,
            }));
        }
        Ok(())
    };
    if wanted(Part::Layers) {
        let names = ["fregata-hme", "fregata-cheetah", "fregata-jaguar", "jaguar", "cheetah"];
        cases("layers", layers::linear(), &names.map(|name| Way::sealed(backend(name))))?;
    }
    if wanted(Part::Schedule) {
        let waiting = |way: Way| Way { schedule: Schedule::LayerByLayer, ..way };
        let ways = [fregata].into_iter().chain(leaky).flat_map(|way| [way, waiting(way)]);
        cases("schedule", layers::chains(), &ways.collect::<Vec<_>>())?;
    }
    if wanted(Part::Networks) {
        let names = ["fregata-jaguar", "jaguar", "cheetah"].map(|name| Way::sealed(backend(name)));
        let ways: Vec<Way> = [fregata].into_iter().chain(leaky).chain(names).collect();
        for path in &args.models {
            eprintln!("{} ...", path.display());
            let input = Bundle::read(path, kit().operators())?.model.network.nodes[0].shape;
            let together = if args.one_by_one { 1 } else { ways.len() };
            let measured = ways
                .chunks(together)
                .map(|ways| measure(&|| Ok(Bundle::read(path, kit().operators())?), ways));
            let measured =
                measured.collect::<Result<Vec<_>>>().with_context(|| path.display().to_string())?;
            let measured = measured.into_iter().flatten();
            runs.extend(measured.map(|run| Measured {
                part: "networks",
                name: run.network.clone(),
                what: String::new(),
                input,
                streamed: true,
                run,
            }));
        }
        if args.models.is_empty() {
            eprintln!("networks: left out, no model was given");
        }
    }
    let accuracy = if wanted(Part::Accuracy) && args.accuracy.is_given() {
        accuracy::measure_all(&args.accuracy, &args.models, backend("fregata-hme"))?
    } else {
        Vec::new()
    };
    ensure!(
        !(matrices.is_empty() && runs.is_empty() && accuracy.is_empty()),
        "nothing was measured: give models, or other tables"
    );
    setting.done();
    let mut tables = tables::all(&matrices, &runs);
    tables.extend((!accuracy.is_empty()).then(|| accuracy::table(&accuracy)));
    let plot: Dots = match (runs.is_empty(), accuracy.is_empty()) {
        (false, _) => tables::plot(&runs),
        (true, false) => accuracy::plot(&accuracy),
        (true, true) => tables::plot_of_products(&matrices),
    };
    args.output
        .hand_out(&Report { setting, peaks, tables, figures: Figures { matrices, runs, accuracy } }, &plot)
}
