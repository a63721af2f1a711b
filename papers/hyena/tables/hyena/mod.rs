//! `jaguar-bench hyena`: convolutions in SIMD slots in several forms, beside our default backend and the paper's figures.
//!
//! | table | what is measured |
//! |---|---|
//! | `operations` | Table 1: homomorphic operations, in the paper's parameters and in ours |
//! | `ablation` | Figure 4: the conventional form, and the proposed one without each of its means |
//! | `memory` | Table 2: what the server stores, and the input's ciphertexts |
//! | `layers` | Table 3: single layers, both parties |
//! | `networks` | Figure 5: the linear layers of whole networks |
//! | `queries` | whole networks by `hyena` and by our default backend |
//!
//! A large layer takes minutes and gigabytes, and all its diagonals are alike. So `ablation` and `networks` run some of
//! each layer's ciphertexts and diagonals, check what comes out, and multiply by how many there are
//! ([`jaguar_hyena::steps`]). Ways of one layer take turns. `layers` and `queries` run whole sessions, as `bench e2e` does.
//!
//! The paper's own parameters have far less than 128 bits of security: their rows say so.

mod layers;
mod networks;
mod operations;
mod paper;
mod tables;
mod units;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use jaguar_engine::bundle::Bundle;
use jaguar_graph::network::Linear;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::{RnsParameters, insecure_published_hyena, largest_primes};
use jaguar_ring::he::rns::Ring;
use serde::Serialize;

use crate::e2e::Run;
use crate::e2e::session::{Session, Way};
use crate::fregata::Link;
use crate::fregata::layers::{Case, SHIFT};
use crate::kit::backend;
use crate::limits::Peaks;
use crate::plot::Dots;
use crate::report::{Output, Report};
use crate::setting::{Setting, link_text};
use layers::{FORMS, Set};
use networks::Linears;
use operations::Operation;
use units::Sampling;

#[derive(clap::Args)]
pub struct Args {
    /// Compiled models, for `networks` and `queries`. Those named vgg16, resnet20_imagenet and mobilenet_v1 stand beside the paper's
    /// figures (`papers/hyena/export_hyena.py` exports them).
    models: Vec<PathBuf>,
    /// Which tables, with commas between (default: all).
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Only layers of Tables 2 and 3 whose name contains this, e.g. `28x28` or `64>128`.
    #[arg(long)]
    filter: Option<String>,
    /// Which parameters `ablation` and `memory` take, with commas between (default: both).
    #[arg(long, value_enum, value_delimiter = ',')]
    sets: Vec<Set>,
    /// Ciphertexts of the input that are run of each layer.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    inputs: u32,
    /// Groups of diagonals that are run of each layer. (Those of a group share reads of memory.)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    groups: u32,
    /// Guard bits of single layers (0: what the paper's figures are compared with).
    #[arg(long, value_name = "BITS", default_value_t = 0)]
    guard_bits: u32,
    /// The link that sessions imitate.
    #[arg(long, value_enum, default_value_t = Link::Loopback)]
    link: Link,
    /// How often each is measured, after once that is not.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    Operations,
    Ablation,
    Memory,
    Layers,
    Networks,
    Queries,
}

/// A whole session.
#[derive(Clone, Serialize)]
pub struct Measured {
    /// The layer's or the network's name.
    pub name: String,
    #[serde(flatten)]
    pub run: Run,
}

/// The operations of a ring.
#[derive(Clone, Serialize)]
pub struct Operations {
    pub set: Set,
    pub n: usize,
    pub limbs: usize,
    pub bits: u32,
    pub digit_bits: u32,
    pub operations: Vec<Operation>,
}

#[derive(Default, Serialize)]
pub struct Figures {
    pub operations: Vec<Operations>,
    pub ablation: Vec<layers::Ablation>,
    pub memory: Vec<layers::Storage>,
    pub layers: Vec<Measured>,
    pub linears: Vec<Linears>,
    pub queries: Vec<Measured>,
}

fn operations(cpu: Cpu, repeats: u32) -> Result<Vec<Operations>> {
    let one = |set: Set| -> Result<Operations> {
        let ((params, t), digit_bits) = match set {
            Set::Published => (insecure_published_hyena(), 20),
            // As the search finds them.
            Set::Secure => ((RnsParameters::search(8192, 50, 4)?, largest_primes(8192, 42, 1)?[0]), 25),
        };
        let (n, limbs) = (params.ring_dim(), params.primes().len());
        let bits = u64::BITS - params.primes()[0].leading_zeros();
        let operations = operations::operations(&Ring::new(cpu, params), t, digit_bits, repeats as usize)?;
        Ok(Operations { set, n, limbs, bits, digit_bits, operations })
    };
    [Set::Published, Set::Secure].into_iter().map(one).collect()
}

/// Table 3's layers as networks.
fn table3() -> Vec<Case> {
    let case = |row: &paper::Layer| {
        let paper::Layer { size, inputs, outputs, kernel, depthwise, .. } = *row;
        let groups = if depthwise { inputs } else { 1 };
        Case {
            name: "layer",
            what: row.name(),
            in_shape: [inputs, size, size],
            layers: vec![Linear { groups, ..Linear::same(outputs, kernel, SHIFT) }],
            relus: false,
        }
    };
    paper::LAYERS.iter().map(case).collect()
}

/// Operations are short: so many rounds of them for one of all else.
const ROUNDS: u32 = 10;

pub fn run(args: &Args) -> Result<()> {
    let wanted = |part: Part| args.only.is_empty() || args.only.contains(&part);
    ensure!(
        args.models.is_empty() || wanted(Part::Networks) || wanted(Part::Queries),
        "models are given, but --only leaves out networks and queries"
    );
    let cpu = Cpu::detect();
    jaguar_report::terminal::set_threads(1)?;
    let link = args.link.imitated();
    let mut setting = Setting::new(
        cpu,
        "one thread of both parties together".into(),
        link_text(link, "TCP on loopback"),
        args.repeats,
    );
    let peaks = Peaks::measure(cpu)?;
    let sampling =
        Sampling { inputs: args.inputs as usize, groups: args.groups as usize, repeats: args.repeats };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let session = |bundle: &(dyn Fn() -> Result<Bundle> + Sync),
                   name: &str,
                   backends: &[&str],
                   guard_bits| {
        let ways: Vec<Way> = backends.iter().map(|name| Way::sealed(backend(name))).collect();
        let hardware = cpu.into();
        let session =
            Session { hardware, bundle, ways: &ways, link, guard_bits, repeats: args.repeats, machine: None };
        let runs = session.measure(&peaks, 1).with_context(|| name.to_owned())?;
        Ok::<_, anyhow::Error>(
            runs.into_iter().map(|run| Measured { name: name.to_owned(), run }).collect::<Vec<_>>(),
        )
    };
    let forms = FORMS.map(|form| form.name());
    let with_default = [forms[0], forms[1], forms[2], DEFAULT];

    let filter = args.filter.as_deref();
    let sets = if args.sets.is_empty() { &Set::ALL } else { args.sets.as_slice() };
    let mut figures = Figures::default();
    if wanted(Part::Operations) {
        eprintln!("operations ...");
        figures.operations = pool.install(|| operations(cpu, args.repeats * ROUNDS))?;
    }
    for &set in sets {
        for row in layers::rows(filter) {
            if wanted(Part::Memory) {
                figures.memory.push(layers::storage(set, row)?);
            }
            if wanted(Part::Ablation) {
                eprintln!("{}, {} ...", layers::name(row), set.name());
                figures.ablation.push(pool.install(|| layers::ablation(cpu, set, row, sampling))?);
            }
        }
    }
    if wanted(Part::Layers) {
        for case in table3() {
            if filter.is_none_or(|filter| case.what.contains(filter)) {
                eprintln!("{} ...", case.what);
                let bundle = || case.bundle(args.guard_bits);
                figures.layers.extend(session(&bundle, &case.what, &with_default, Some(args.guard_bits))?);
            }
        }
    }
    for path in &args.models {
        eprintln!("{} ...", path.display());
        let read = || Ok(Bundle::read(path, crate::kit::kit().operators())?);
        if wanted(Part::Networks) {
            let linears = pool.install(|| networks::linears(cpu, &read()?, sampling));
            figures.linears.push(linears.with_context(|| path.display().to_string())?);
        }
        if wanted(Part::Queries) {
            let name = read()?.model.network.name;
            // One by one: each has the model for itself.
            for backend in [forms[0], DEFAULT] {
                figures.queries.extend(session(&read, &name, &[backend], None)?);
            }
        }
    }
    if args.models.is_empty() && (wanted(Part::Networks) || wanted(Part::Queries)) {
        eprintln!("networks and queries: left out, no model was given");
    }
    setting.done();
    let tables = tables::all(&figures);
    ensure!(!tables.is_empty(), "nothing was measured: give models, or other tables and filters");
    let plot: Dots = tables::plot(&figures);
    args.output.hand_out(&Report { setting, peaks, tables, figures }, &plot)
}

/// The backend that a plan has unless it is told otherwise.
const DEFAULT: &str = "jaguar";

#[cfg(test)]
mod tests {
    use super::layers::{Ablation, ablation, storage};
    use super::*;
    use crate::limits::tests::PEAKS;
    use crate::report::tests::{met, missed};

    const SAMPLING: Sampling = Sampling { inputs: 1, groups: 2, repeats: 1 };

    /// A layer that is small in every way.
    const SMALL: paper::Memory =
        paper::Memory { size: 32, inputs: 5, outputs: 4, conventional: [1.0; 3], proposed: [1.0; 3] };

    fn small() -> Case {
        let conv = |out, kernel| Linear::same(out, kernel, SHIFT);
        let layers = vec![conv(4, 3), conv(3, 1)];
        Case { name: "vgg16-like", what: "small".into(), in_shape: [3, 12, 12], layers, relus: true }
    }

    #[test]
    fn a_short_run_fills_every_table() {
        let cpu = Cpu::detect();
        let bundle = || small().bundle(0);
        let ways = ["hyena", "hyena-conventional", DEFAULT].map(|name| Way::sealed(backend(name)));
        let session = Session {
            hardware: cpu.into(),
            bundle: &bundle,
            ways: &ways,
            link: None,
            guard_bits: None,
            repeats: 1,
            machine: None,
        };
        let runs = session.measure(&PEAKS, 1).unwrap().into_iter();
        let runs: Vec<Measured> = runs.map(|run| Measured { name: run.network.clone(), run }).collect();
        let mut figures = Figures {
            operations: operations(cpu, 1).unwrap(),
            ablation: Set::ALL.map(|set| ablation(cpu, set, &SMALL, SAMPLING).unwrap()).to_vec(),
            memory: Set::ALL.map(|set| storage(set, &SMALL).unwrap()).to_vec(),
            layers: runs.clone(),
            linears: vec![networks::linears(cpu, &bundle().unwrap(), SAMPLING).unwrap()],
            queries: runs,
        };
        let tables = tables::all(&figures);
        let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
        assert_eq!(names, ["operations", "ablation", "memory", "layers", "networks", "queries", "goals"]);
        for table in &tables {
            assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{}", table.name);
        }
        // Two layers, each in three forms; the network has a goal of its own, for its name is one of the paper's.
        let linears = &figures.linears[0];
        assert!(linears.layers.len() == 2 && linears.layers.iter().all(|layer| layer.forms.len() == 3));
        let goals = &tables.last().unwrap().rows;
        assert!(goals.iter().any(|row| row[0].starts_with("VGG-16: linear layers")));
        tables::plot(&figures).svg().unwrap();
        serde_json::to_string(&figures).unwrap();
        for reached in [true, false] {
            planted(&mut figures, reached);
            let goals = tables::goals(&figures);
            assert_eq!((goals.len(), met(&goals), missed(&goals)), (9, reached, !reached));
        }
    }

    /// Figures as good as one could wish, or as bad.
    fn planted(figures: &mut Figures, good: bool) {
        let [much, little] = if good { [1e9, 1e-9] } else { [1e-9, 1e9] };
        for one in &mut figures.ablation {
            one.name = layers::name(&paper::MEMORY[0]);
            for variant in &mut one.variants {
                variant.seconds.sums = if variant.label == "a" { much } else { little };
            }
        }
        for one in &mut figures.memory {
            one.name = layers::name(&paper::MEMORY[0]);
            for (form, stored) in one.forms.iter_mut().enumerate() {
                stored.numbers = 2;
                stored.polynomials = if (form != 1) == good { 0 } else { 1 << 50 };
            }
        }
        for one in &mut figures.layers {
            one.name = paper::LAYERS[0].name();
        }
        for one in figures.layers.iter_mut().chain(&mut figures.queries) {
            let conventional = one.run.protocol == "hyena-conventional";
            one.run.online.busy_seconds = if conventional { much } else { little };
            one.run.online.bytes_up = if good { 0 } else { 1 << 50 };
        }
        for layer in figures.linears.iter_mut().flat_map(|network| &mut network.layers) {
            layer.forms.iter_mut().for_each(|form| form.seconds.sums = little);
        }
    }

    /// Bytes of one table and of the other are those of the same plan.
    #[test]
    fn steps_and_sessions_agree_on_bytes() {
        let bundle = || small().bundle(0);
        let linears = networks::linears(Cpu::detect(), &bundle().unwrap(), SAMPLING).unwrap();
        let session = Session {
            hardware: Cpu::detect().into(),
            bundle: &bundle,
            ways: &[Way::sealed(backend("hyena"))],
            link: None,
            guard_bits: None,
            repeats: 1,
            machine: None,
        };
        let run = session.measure(&PEAKS, 1).unwrap().remove(0);
        let linear = &run.online.kinds[0];
        assert_eq!(linear.bytes, linears.forms[0].query as u64);
    }

    #[test]
    fn the_means_are_what_differs() {
        let Ablation { variants, .. } = ablation(Cpu::detect(), Set::Published, &SMALL, SAMPLING).unwrap();
        let labels: Vec<&str> = variants.iter().map(|variant| variant.label).collect();
        assert_eq!(labels, ["a", "b", "c", "d", "e", "f"]);
        assert!(variants.iter().all(|variant| variant.limbs == 1 && variant.channels == 2));
        // The search lets keys have fewer digits.
        assert!(variants[2].digits > variants[3].digits && variants[3].digits == variants[4].digits);
    }
}
