//! `jaguar-bench paper`: all records of a paper, measured anew, and put into the pages that show them.
//!
//! Each benchmark is a process of its own, so that none inherits another's memory, threads or instruction set. Networks that are not
//! there are made first: exported by a script of this repository, and compiled by the command beside this program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use jaguar_report::terminal::say;

use super::setting;

#[derive(clap::Args)]
pub struct Args {
    /// Which papers (default: all).
    #[arg(value_enum)]
    papers: Vec<Paper>,
    /// The folder that the figures (`*.json`) and the plots (`*.svg`) go to.
    #[arg(long, default_value = "docs/figures")]
    out: PathBuf,
    /// Where networks are, and go to, as ONNX files and compiled.
    #[arg(long, default_value = "models")]
    models: PathBuf,
    /// A Python that has torch and torchvision, for networks that are not there (`make torch-models` makes it).
    #[arg(long, default_value = ".venv/torch/bin/python")]
    python: PathBuf,
    /// How often each is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Only records whose names contain this, e.g. `relu`.
    #[arg(long)]
    filter: Option<String>,
    /// Only says what would be done, and about how long it takes.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Paper {
    Jaguar,
    Fregata,
    Hyena,
    Privcirnet,
    Convfhe,
}

/// What is measured in one run of a benchmark.
struct Record {
    /// The file's name, without its ending.
    name: &'static str,
    words: &'static [&'static str],
    /// Names of [`NETWORKS`].
    networks: &'static [&'static str],
    /// About what it takes, three times measured, on sixteen threads of a Xeon: Fregata's were measured, the others are estimates.
    minutes: u32,
    /// Whether a page shows its plot.
    plotted: bool,
}

const fn record(
    name: &'static str,
    words: &'static [&'static str],
    networks: &'static [&'static str],
    minutes: u32,
) -> Record {
    Record { name, words, networks, minutes, plotted: true }
}

impl Record {
    const fn without_plot(self) -> Self {
        Self { plotted: false, ..self }
    }
}

const IMAGENET: &[&str] = &["squeezenet1_1", "resnet18", "mobilenetv2", "resnet50"];
const OF_HYENA_PAPER: &[&str] = &["vgg16", "resnet20_imagenet", "mobilenet_v1"];
const CIFAR: &[&str] = &["resnet18_cifar_32", "resnet50_cifar_32", "resnet101_cifar_32"];

impl Paper {
    const ALL: [Self; 5] = [Self::Jaguar, Self::Fregata, Self::Hyena, Self::Privcirnet, Self::Convfhe];

    fn name(self) -> &'static str {
        match self {
            Self::Jaguar => "jaguar",
            Self::Fregata => "fregata",
            Self::Hyena => "hyena",
            Self::Privcirnet => "privcirnet",
            Self::Convfhe => "convfhe",
        }
    }

    /// The page that says what the paper has, what we get, and why they differ.
    fn page(self) -> &'static str {
        match self {
            Self::Jaguar | Self::Privcirnet => "docs/benchmarks.md",
            Self::Fregata => "docs/protocols/fregata.md",
            Self::Hyena => "docs/protocols/hyena.md",
            Self::Convfhe => "docs/protocols/convfhe.md",
        }
    }

    fn records(self) -> &'static [Record] {
        match self {
            Self::Jaguar => {
                const {
                    &[
                        record("conv", &["conv"], &[], 4),
                        record("conv-scalar", &["conv", "--kernel", "scalar"], &[], 12),
                        record("relu", &["relu"], &[], 1),
                        record("relu-lan", &["relu", "--link", "lan"], &[], 1).without_plot(),
                        record("relu-wan", &["relu", "--link", "wan"], &[], 2).without_plot(),
                        record("e2e", &["e2e", "--protocol", "both"], IMAGENET, 5),
                        record("e2e-one", &["e2e", "--threads", "1"], IMAGENET, 4).without_plot(),
                        record("e2e-four", &["e2e", "--threads", "4"], IMAGENET, 2).without_plot(),
                        record(
                            "e2e-lan",
                            &["e2e", "--protocol", "both", "--link", "lan", "--both-kernels"],
                            IMAGENET,
                            6,
                        ),
                        record(
                            "e2e-wan",
                            &["e2e", "--protocol", "both", "--link", "wan", "--both-kernels"],
                            IMAGENET,
                            21,
                        ),
                    ]
                }
            }
            Self::Fregata => {
                const {
                    &[
                        record("fregata-matrices", &["fregata", "--only", "matrices"], &[], 1).without_plot(),
                        record("fregata-layers", &["fregata", "--only", "layers"], &[], 1).without_plot(),
                        record("fregata-schedule", &["fregata", "--only", "schedule"], &[], 2).without_plot(),
                        record("fregata-networks", &["fregata", "--only", "networks"], &["squeezenet1_1"], 1)
                            .without_plot(),
                        record(
                            "fregata-networks-resnet50",
                            &["fregata", "--only", "networks"],
                            &["resnet50"],
                            3,
                        )
                        .without_plot(),
                        record(
                            "fregata-networks-densenet121",
                            &["fregata", "--only", "networks"],
                            &["densenet121"],
                            4,
                        )
                        .without_plot(),
                        record("fregata-networks-cifar", &["fregata", "--only", "networks"], CIFAR, 3)
                            .without_plot(),
                    ]
                }
            }
            Self::Hyena => {
                const {
                    &[
                        record("hyena", &["hyena", "--only", "operations,ablation"], &[], 14),
                        record("hyena-layers", &["hyena", "--only", "memory,layers"], &[], 2).without_plot(),
                        record("hyena-networks", &["hyena", "--only", "networks"], OF_HYENA_PAPER, 20)
                            .without_plot(),
                        record("hyena-queries", &["hyena", "--only", "queries"], OF_HYENA_PAPER, 8)
                            .without_plot(),
                    ]
                }
            }
            Self::Privcirnet => {
                const {
                    &[
                        record("circulant", &["circulant"], &[], 4),
                        record("cirencode", &["cirencode"], &[], 8),
                    ]
                }
            }
            Self::Convfhe => {
                const {
                    &[
                        record(
                            "convfhe-convolution",
                            &["convfhe", "--only", "convolution", "--vectors"],
                            &[],
                            5,
                        )
                        .without_plot(),
                        record("convfhe-layers", &["convfhe", "--only", "layers", "--vectors"], &[], 8)
                            .without_plot(),
                        record("convfhe-networks", &["convfhe", "--only", "networks"], &[], 60)
                            .without_plot(),
                        record("convfhe-plans", &["convfhe", "--only", "plans"], &[], 1).without_plot(),
                    ]
                }
            }
        }
    }
}

/// A network by the name of its compiled model.
struct Network {
    name: &'static str,
    /// Its ONNX file: in the folder of networks, or in this repository.
    onnx: &'static str,
    /// The script that makes it, and its name there; `None` if it is in this repository.
    made_by: Option<[&'static str; 2]>,
    /// With which options: samples, how pictures are prepared, bits.
    compiled: &'static [&'static str],
}

const TORCHVISION: &str = "tools/export_torchvision.py";
const OF_HYENA: &str = "papers/hyena/export_hyena.py";
const TRAINED: &[&str] =
    &["--calibrate", "demo/calibration", "--bgr", "--mean", "103.939,116.779,123.68", "--resize", "256"];
/// Of random weights one picture tells as much as any number.
const LARGE: &[&str] = &["--calibrate", "demo/photo.jpg", "--mean", "116", "--std", "58", "--resize", "256"];
const SMALL: &[&str] = &["--calibrate", "demo/photo.jpg", "--mean", "116", "--std", "58", "--resize", "32"];
/// Widths that are not searched: VGG-16 compiles in a minute.
const NARROW: &[&str] = &[
    "--calibrate",
    "demo/photo.jpg",
    "--mean",
    "116",
    "--std",
    "58",
    "--resize",
    "256",
    "--activation-bits",
    "16",
    "--weight-bits",
    "14",
];

const fn exported(
    name: &'static str,
    onnx: &'static str,
    made_by: [&'static str; 2],
    compiled: &'static [&'static str],
) -> Network {
    Network { name, onnx, made_by: Some(made_by), compiled }
}

const NETWORKS: [Network; 11] = [
    Network { name: "squeezenet1_1", onnx: "demo/squeezenet1_1.onnx", made_by: None, compiled: TRAINED },
    exported("resnet18", "resnet18.onnx", [TORCHVISION, "resnet18"], LARGE),
    exported("mobilenetv2", "mobilenetv2.onnx", [TORCHVISION, "mobilenet_v2"], LARGE),
    exported("resnet50", "resnet50.onnx", [TORCHVISION, "resnet50"], LARGE),
    exported("densenet121", "densenet121.onnx", [TORCHVISION, "densenet121"], LARGE),
    exported("resnet18_cifar_32", "torchvision/resnet18_cifar_32.onnx", [TORCHVISION, "resnet18"], SMALL),
    exported("resnet50_cifar_32", "torchvision/resnet50_cifar_32.onnx", [TORCHVISION, "resnet50"], SMALL),
    exported("resnet101_cifar_32", "torchvision/resnet101_cifar_32.onnx", [TORCHVISION, "resnet101"], SMALL),
    exported("vgg16", "vgg16.onnx", [OF_HYENA, "vgg16"], NARROW),
    exported("resnet20_imagenet", "resnet20_imagenet.onnx", [OF_HYENA, "resnet20_imagenet"], NARROW),
    exported("mobilenet_v1", "mobilenet_v1.onnx", [OF_HYENA, "mobilenet_v1"], NARROW),
];

/// What puts tables into pages.
const TABLES: &str = "tools/benchmark_tables.py";

pub fn run(args: &Args) -> Result<()> {
    let papers = if args.papers.is_empty() { &Paper::ALL[..] } else { &args.papers };
    let wanted =
        |record: &&Record| args.filter.as_ref().is_none_or(|filter| record.name.contains(filter.as_str()));
    let records: Vec<(Paper, &Record)> = papers
        .iter()
        .flat_map(|&paper| paper.records().iter().filter(wanted).map(move |record| (paper, record)))
        .collect();
    let filter = args.filter.as_deref().unwrap_or_default();
    ensure!(!records.is_empty(), "--filter: no record of these papers has '{filter}' in its name");
    ensure!(
        Path::new(TABLES).is_file(),
        "{TABLES} is not here: run this program in the folder of the project"
    );
    let minutes: u32 = records.iter().map(|(_, record)| record.minutes).sum();
    for (paper, record) in &records {
        let what = [record.words, record.networks].concat().join(" ");
        say!("{:11} {:30} {:4} min   {what}", paper.name(), record.name, record.minutes);
    }
    let about = "minutes for three repeats on 16 threads; fewer threads take longer";
    say!("{} records, some {minutes} {about}", records.len());
    if args.list {
        return Ok(());
    }
    setting::recordable()?;
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let names: Vec<&str> = records.iter().flat_map(|(_, record)| record.networks.iter().copied()).collect();
    make(args, &names)?;

    let program = std::env::current_exe()?;
    for (_, record) in &records {
        let mut arguments: Vec<OsString> = record.words.iter().map(OsString::from).collect();
        arguments.extend(record.networks.iter().map(|name| compiled(args, name).into_os_string()));
        arguments.extend(["--repeats".into(), args.repeats.to_string().into()]);
        arguments.extend(["--json".into(), args.out.join(format!("{}.json", record.name)).into()]);
        if record.plotted {
            arguments.extend(["--plot".into(), args.out.join(format!("{}.svg", record.name)).into()]);
        }
        say!("\n==== {} ====\n", record.name);
        ran(Command::new(&program).args(arguments), record.name)?;
    }
    ran(Command::new("python3").arg(TABLES).arg("--figures").arg(&args.out), TABLES)?;
    for paper in Paper::ALL.into_iter().filter(|paper| records.iter().any(|(of, _)| of == paper)) {
        say!("what the paper says, what was measured, and why they differ: {}", paper.page());
    }
    Ok(())
}

fn compiled(args: &Args, name: &str) -> PathBuf {
    args.models.join(format!("{name}.jaguar"))
}

/// Exports and compiles networks that are not there.
fn make(args: &Args, names: &[&str]) -> Result<()> {
    let missing =
        |network: &&Network| names.contains(&network.name) && !compiled(args, network.name).is_file();
    let missing: Vec<&Network> = NETWORKS.iter().filter(missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let jaguar = std::env::current_exe()?.with_file_name("jaguar");
    ensure!(
        jaguar.is_file(),
        "{} is missing: `cargo build --release --package jaguar-cli` makes it, to compile networks",
        jaguar.display()
    );
    for network in missing {
        let onnx = match network.made_by {
            None => PathBuf::from(network.onnx),
            Some(_) => args.models.join(network.onnx),
        };
        if let Some([script, name]) = network.made_by.filter(|_| !onnx.is_file()) {
            let hint = format!(
                "{} has torch and torchvision? `make torch-models` makes such a one",
                args.python.display()
            );
            ran(Command::new(&args.python).arg(script).arg("--to").arg(&args.models).arg(name), script)
                .context(hint)?;
        }
        say!("compiling {} ...", network.name);
        let mut compile = Command::new(&jaguar);
        compile.arg("compile").arg(&onnx).args(network.compiled);
        ran(compile.arg("--output").arg(compiled(args, network.name)), network.name)?;
    }
    Ok(())
}

fn ran(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| command.get_program().to_string_lossy().into_owned())?;
    ensure!(status.success(), "{what} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is of one paper, its networks can be made, and pages show it.
    #[test]
    fn every_record_is_shown_and_has_its_networks() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages = [
            "docs/benchmarks.md",
            "docs/protocols/fregata.md",
            "docs/protocols/hyena.md",
            "docs/protocols/convfhe.md",
        ];
        let pages = pages.map(|page| std::fs::read_to_string(root.join(page)).unwrap());
        let mut names = std::collections::HashSet::new();
        for paper in Paper::ALL {
            assert!(root.join(paper.page()).is_file());
            for record in paper.records() {
                assert!(names.insert(record.name), "{} twice", record.name);
                let asked = format!("<!-- figures: {} ", record.name);
                assert!(pages.iter().any(|page| page.contains(&asked)), "no page shows {}", record.name);
                let plot = pages.iter().any(|page| page.contains(&format!("{asked}plot -->")));
                assert_eq!(plot, record.plotted, "the plot of {}", record.name);
                for name in record.networks {
                    assert!(NETWORKS.iter().any(|network| network.name == *name), "{name}");
                }
            }
        }
        for network in NETWORKS {
            match network.made_by {
                None => assert!(root.join(network.onnx).is_file()),
                Some([script, _]) => assert!(root.join(script).is_file()),
            }
        }
    }
}
