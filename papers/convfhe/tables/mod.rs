//! `jaguar-bench convfhe`: the one-round protocol beside its paper, and the interactive path beside it.
//!
//! | table | what is measured |
//! |---|---|
//! | `relu` | polynomials for ReLU: levels and error |
//! | `convolution` | Figure 5 and Table I: one convolution by batch and kernel, beside the same in slots; encrypted weights (IV-D) |
//! | `layers` | Figure 6: one layer by phase, by batch and kernel, beside the same in slots |
//! | `networks` | Tables III and IV: networks by phase; kernels take turns |
//! | `plans` | the 27 networks of Figure 7: bootstraps, pieces and products of each, by its plan |
//! | `interactive` | compiled models by the interactive protocol: seconds, bytes, rounds |
//!
//! Both parties are in this process. Weights and inputs are random: times do not depend on them.

mod convolutions;
mod layers;
mod paper;
mod polynomials;
mod rows;
mod shapes;
mod slots;
mod tables;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use jaguar_ckks::{Literal, Parameters};
use jaguar_convfhe::Description;
use jaguar_convfhe::network::Plan;
use jaguar_engine::bundle::Bundle;
use jaguar_plan::Kit;
use jaguar_profile::{Imitated, Note, When, store};
use jaguar_ring::cpu::Cpu;
use serde::Serialize;

use self::rows::{Convolution, Keys, Layer, Planned, Polynomial};
use self::slots::Baseline;
use crate::e2e::Run;
use crate::e2e::session::{Session, Way};
use crate::kit::kit;
use crate::limits::Peaks;
use crate::report::{Output, Report};
use crate::setting::{Setting, hardware_threads, link_text};

#[derive(clap::Args)]
pub struct Args {
    /// Compiled models, for `interactive`.
    models: Vec<PathBuf>,
    /// Which tables, with commas between (default: all).
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// INSECURE: small rings and small shapes, to test the benchmark in seconds. Its figures say nothing.
    #[arg(long)]
    small: bool,
    /// Also times convolutions and layers in slots, the paper's baseline; convolutions are counted in any case.
    #[arg(long)]
    vectors: bool,
    /// Only networks whose names contain this, e.g. `d20` or `k3`.
    #[arg(long)]
    filter: Option<String>,
    /// Only so many layers of each network.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    first: Option<u32>,
    /// The link of `interactive`.
    #[arg(long, value_enum)]
    link: Option<Imitated>,
    /// How often each is measured; medians are shown.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Threads of the server, or of both parties of `interactive` (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar_report::terminal::thread_count)]
    threads: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    Relu,
    Convolution,
    Layers,
    Networks,
    Plans,
    Interactive,
}

/// All that was measured, every repeat.
#[derive(Default, Serialize)]
pub struct Figures {
    pub polynomials: Vec<Polynomial>,
    pub convolutions: Vec<Convolution>,
    pub keys: Vec<Keys>,
    pub layers: Vec<Layer>,
    /// The same layers in slots.
    pub slots: Vec<Layer>,
    pub networks: Vec<Layer>,
    pub plans: Vec<Planned>,
    pub interactive: Vec<Run>,
}

/// What is measured with, and on what.
struct Sizes {
    literal: fn() -> Literal,
    batches: &'static [usize],
    kernels: &'static [usize],
    /// Channels and side of single layers.
    single: &'static [(usize, usize)],
}

const PAPER: Sizes = Sizes {
    literal: Literal::n16,
    batches: &[4, 16, 64, 256],
    kernels: &[3, 5, 7],
    single: &[(16, 32), (64, 16), (256, 8)],
};

const SMALL: Sizes =
    Sizes { literal: || Literal::n16().insecure(10), batches: &[4, 16], kernels: &[3, 5], single: &[(4, 8)] };

impl Sizes {
    fn networks(&self, small: bool) -> Vec<Description> {
        if small {
            return vec![shapes::layer(12, 6, 3)];
        }
        let plain20 = self.kernels.iter().map(|&kernel| shapes::plain(kernel, 20, 1));
        let tails = [3, 5].map(shapes::tail);
        let wide = [(5, 8), (3, 14), (3, 20)].map(|(kernel, depth)| shapes::plain(kernel, depth, 3));
        // Of Figure 7 those that are worth their seconds, but for what Table IV has.
        let shallow = [(7, 1), (3, 2), (3, 3)].map(|(kernel, width)| shapes::plain(kernel, 8, width));
        plain20.chain(wide).chain(shallow).chain(tails).collect()
    }
}

pub fn run(args: &Args) -> Result<()> {
    let wanted = |part: Part| args.only.is_empty() || args.only.contains(&part);
    ensure!(
        args.models.is_empty() || wanted(Part::Interactive),
        "models are given, but --only leaves out the interactive protocol"
    );
    let sizes = if args.small { SMALL } else { PAPER };
    let threads = if args.threads == 0 { hardware_threads() } else { args.threads };
    jaguar_report::terminal::set_threads(threads)?;
    let cpu = Cpu::detect();
    let threads_text = format!("threads of the server, of both parties in `interactive`: {threads}");
    let mut setting = Setting::new(cpu, threads_text, link_text(args.link, "TCP on loopback"), args.repeats);
    let peaks = Peaks::measure(cpu)?;
    let ring = || anyhow::Ok(jaguar_ckks::Context::new(cpu, Parameters::new(&(sizes.literal)())?, threads)?);
    let mut figures = Figures::default();
    if wanted(Part::Relu) {
        figures.polynomials = polynomials::all();
    }
    if wanted(Part::Convolution) {
        let row = |row: Convolution| {
            eprintln!("B = {}, k = {}: {:.2} s", row.batch, row.kernel, row.seconds());
            figures.convolutions.push(row);
        };
        convolutions::measure(&ring()?, sizes.batches, sizes.kernels, args.repeats, args.vectors, row)?;
    }
    let mut evaluated = |networks: Vec<Description>,
                         first: Option<u32>,
                         behind: &mut dyn FnMut(usize) -> Result<()>|
     -> Result<Vec<Layer>> {
        let mut layers = Vec::new();
        let named =
            |d: &Description| args.filter.as_ref().is_none_or(|filter| d.name.contains(filter.as_str()));
        let networks: Vec<_> = networks.into_iter().filter(named).collect();
        ensure!(!networks.is_empty(), "no network's name contains {:?}", args.filter);
        let row = |layer: Layer| {
            let Layer { network, index, layers: all, .. } = &layer;
            eprintln!("{network}: layer {index} of {all}: {:.2} s", layer.seconds());
            layers.push(layer);
        };
        layers::measure(
            &ring()?,
            networks,
            first,
            args.repeats,
            |keys| figures.keys.push(keys),
            row,
            behind,
        )?;
        Ok(layers)
    };
    if wanted(Part::Layers) {
        let single = sizes
            .single
            .iter()
            .flat_map(|&(channels, side)| sizes.kernels.iter().map(move |&kernel| [channels, side, kernel]));
        let single: Vec<_> = single.collect();
        let networks: Vec<_> =
            single.iter().map(|&[channels, side, kernel]| shapes::layer(channels, side, kernel)).collect();
        let names: Vec<_> = networks.iter().map(|network| network.name.clone()).collect();
        let baseline = match args.vectors {
            true => Some(Baseline::new(cpu, (sizes.literal)(), threads)?),
            false => None,
        };
        let mut slots = Vec::new();
        let mut behind = |place: usize| {
            if let Some(baseline) = &baseline {
                let layer = baseline.layer(&names[place], single[place])?;
                eprintln!("{}, in slots: {:.2} s", layer.network, layer.seconds());
                slots.push(layer);
            }
            Ok(())
        };
        figures.layers = evaluated(networks, Some(1), &mut behind)?;
        figures.slots = slots;
    }
    if wanted(Part::Networks) {
        figures.networks = evaluated(sizes.networks(args.small), args.first, &mut |_| Ok(()))?;
    }
    if wanted(Part::Plans) {
        figures.plans = plans(Literal::n16())?;
    }
    if wanted(Part::Interactive) {
        if args.models.is_empty() {
            eprintln!("interactive: left out, no model was given");
        }
        figures.interactive = interactive(args, cpu, &peaks, threads)?;
    }
    setting.done();
    let tables = tables::all(&figures);
    ensure!(!tables.is_empty(), "nothing was measured: give models, or other tables");
    let plot = tables::plot(&figures);
    args.output.hand_out(&Report { setting, peaks, tables, figures }, &plot)
}

/// The networks of Figure 7, by their plans.
fn plans(literal: Literal) -> Result<Vec<Planned>> {
    let values = Parameters::new(&literal)?.values();
    let [kernels, depths, widths] = shapes::VARIANTS;
    let mut found = Vec::new();
    for width in widths {
        for depth in depths {
            for kernel in kernels {
                let plan = Plan::new(shapes::plain(kernel, depth, width), values)?;
                found.push(Planned {
                    network: plan.description().name.clone(),
                    kernel,
                    depth,
                    width,
                    bootstraps: plan.bootstraps(),
                    pieces: plan.pieces(),
                    products: plan.products(),
                    cost: plan.cost(),
                });
            }
        }
    }
    Ok(found)
}

/// Ours, over the link.
fn interactive(args: &Args, cpu: Cpu, peaks: &Peaks, threads: usize) -> Result<Vec<Run>> {
    let mut tell = |note: Note| eprintln!("{note}");
    let machine = match args.models.is_empty() {
        true => None,
        false => store::machine(cpu, &kit(), When::Auto, store::cache(None).as_deref(), &mut tell)?,
    };
    let mut runs = Vec::new();
    for path in &args.models {
        eprintln!("{} ...", path.display());
        let session = Session {
            hardware: cpu.into(),
            bundle: &|| Ok(Bundle::read(path, kit().operators())?),
            ways: &[Way::sealed(Kit::JAGUAR)],
            link: args.link,
            guard_bits: None,
            repeats: args.repeats,
            machine: machine.as_ref(),
        };
        runs.extend(session.measure(peaks, threads).with_context(|| path.display().to_string())?);
    }
    Ok(runs)
}
