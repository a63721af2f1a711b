//! `jaguar bench e2e`: whole networks, beside the figures of Jaguar's paper (Tables 5, 10 and 11).
//!
//! Both parties run in this process, each in its own threads, over TCP on loopback, shaped if asked for; the hint is there and
//! the first query is not counted. Inputs are random: neither time nor bytes depend on them.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};
use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Limits, Reveal, connect};
use jaguar_engine::report::{NoProgress, Report};
use jaguar_engine::server::Service;
use jaguar_graph::network::Network;
use jaguar_plan::{Choices, Protocol};
use jaguar_wire::tcp::{Listener, Options, Tcp};
use serde::Serialize;

use super::{load_average, machine, median};
use crate::link::{self, Shape};
use crate::table::{plain, trimmed};

#[derive(clap::Args)]
pub struct Args {
    /// Compiled models. Those named resnet18, resnet50 and mobilenetv2 stand beside the paper's figures.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// Imitate a link.
    #[arg(long, value_enum)]
    link: Option<Shape>,
    /// Queries that are measured, after one that is not.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Threads that each party's linear layers share with the other's (0: one per core).
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Also writes the figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// (network, protocol, LAN seconds, WAN seconds, MiB): Table 5 of Jaguar's paper, two Xeon Gold 6250 at 3.9 GHz, four threads, AVX off.
const PAPER: &[(&str, &str, f64, f64, f64)] = &[
    ("resnet18", "Cheetah", 30.30, 36.94, 366.94),
    ("resnet18", "Rhombus", 29.04, 36.24, 344.01),
    ("resnet18", "Jaguar", 8.64, 15.94, 315.02),
    ("resnet50", "Cheetah", 120.82, 142.72, 1335.63),
    ("resnet50", "Rhombus", 96.77, 111.44, 750.22),
    ("resnet50", "Jaguar", 32.44, 51.50, 962.00),
    ("mobilenetv2", "Cheetah", 46.99, 67.25, 1042.62),
    ("mobilenetv2", "Rhombus", 58.98, 77.19, 836.81),
    ("mobilenetv2", "Jaguar", 18.41, 32.42, 592.50),
];

#[derive(Serialize)]
struct Measured {
    network: String,
    hint_mib: f64,
    preprocessing_seconds: f64,
    online_seconds: f64,
    preprocessing_mib: f64,
    online_mib: f64,
    preprocessing_rounds: u64,
    online_rounds: u64,
}

#[derive(Serialize)]
struct Results {
    machine: String,
    load_average: Option<f64>,
    threads: usize,
    link: String,
    repeats: u32,
    networks: Vec<Measured>,
}

pub fn run(args: &Args) -> Result<()> {
    crate::set_threads(args.threads)?;
    let cache = std::env::temp_dir().join(format!("jaguar-bench-{}", std::process::id()));
    let networks = args
        .models
        .iter()
        .map(|path| measure(args, path, &cache).with_context(|| path.display().to_string()))
        .collect::<Result<Vec<_>>>();
    let _ = std::fs::remove_dir_all(&cache);
    let link = match args.link {
        None => "loopback",
        Some(Shape::Lan) => "384 MB/s, 0.3 ms (imitated)",
        Some(Shape::Wan) => "62.5 MB/s, 20 ms (imitated)",
    };
    let results = Results {
        machine: machine(),
        load_average: load_average(),
        threads: rayon::current_num_threads(),
        link: link.into(),
        repeats: args.repeats,
        networks: networks?,
    };
    print(args, &results);
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&results)?)
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn measure(args: &Args, path: &Path, cache: &Path) -> Result<Measured> {
    let bundle = Bundle::read(path)?;
    let choices = Choices::standard(&bundle.model.network, Protocol::Jaguar);
    let service = Service::new(bundle, choices, Reveal::Logits)?;
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address()?.to_string();
    let reports = thread::scope(|scope| -> Result<Vec<Report>> {
        let server = scope.spawn(|| -> Result<()> {
            let tcp = listener.accept()?.greet(Options::default())?;
            Ok(service.serve(link::channel(tcp, args.link), &mut |_| ())?)
        });
        let client = || -> Result<Vec<Report>> {
            let tcp = Tcp::connect(address.as_str(), Options::default())?;
            let connected = connect(link::channel(tcp, args.link), &Limits::default())?;
            let mut ready = connected.prepare_client(cache)?;
            let mut reports = Vec::new();
            for query in 0..=args.repeats {
                let input = random_input(ready.network(), u64::from(query));
                let prepared = ready.prepare_query(&mut NoProgress)?;
                let (_, report, next) = prepared.run(&input, &mut NoProgress)?;
                ready = next;
                reports.push(report);
            }
            ready.leave()?;
            Ok(reports)
        };
        let reports = client();
        let served = server.join().expect("the server's thread does not panic");
        let reports = reports?;
        served?;
        Ok(reports)
    })?;
    let counted = &reports[1..];
    let middle = |f: fn(&Report) -> f64| median(counted.iter().map(f));
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let last = &reports[reports.len() - 1];
    Ok(Measured {
        network: service.network().name.clone(),
        hint_mib: mib(service.plan().hint_bytes() as u64),
        preprocessing_seconds: middle(|r| r.preprocessing_seconds),
        online_seconds: middle(|r| r.online_seconds),
        preprocessing_mib: mib(last.preprocessing.bytes_up + last.preprocessing.bytes_down),
        online_mib: mib(last.online.bytes_up + last.online.bytes_down),
        preprocessing_rounds: last.preprocessing.rounds,
        online_rounds: last.online.rounds,
    })
}

/// Any integers within an eighth of the activation range; no randomness that matters.
fn random_input(network: &Network, query: u64) -> Vec<i64> {
    let bound = 1i64 << (network.activation_bits - 4);
    let count: usize = network.nodes[0].shape.iter().product();
    (0..count as u64)
        .map(|i| {
            let mixed = (i ^ query << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed >> 40) as i64) % (2 * bound) - bound
        })
        .collect()
}

fn print(args: &Args, results: &Results) {
    crate::say!(
        "{}; {} threads for both parties; load {:.1}; {}; median of {}",
        results.machine,
        results.threads,
        results.load_average.unwrap_or(f64::NAN),
        results.link,
        results.repeats
    );
    let mut table = plain(
        &[
            "network",
            "protocol",
            "before the input s",
            "online s",
            "query s",
            "MiB",
            "rounds",
            "hint MiB, once",
        ],
        2,
    );
    for m in &results.networks {
        table.add_row([
            m.network.clone(),
            "this".into(),
            format!("{:.2}", m.preprocessing_seconds),
            format!("{:.2}", m.online_seconds),
            format!("{:.2}", m.preprocessing_seconds + m.online_seconds),
            format!("{:.1}", m.preprocessing_mib + m.online_mib),
            format!("{}+{}", m.preprocessing_rounds, m.online_rounds),
            format!("{:.1}", m.hint_mib),
        ]);
        for (_, protocol, lan, wan, mib) in PAPER.iter().filter(|p| m.network.starts_with(p.0)) {
            let seconds = match args.link {
                None => "-".into(),
                Some(Shape::Lan) => format!("{lan:.2}"),
                Some(Shape::Wan) => format!("{wan:.2}"),
            };
            let none = || "-".to_owned();
            table.add_row([
                String::new(),
                format!("{protocol}, as published"),
                none(),
                none(),
                seconds,
                format!("{mib:.1}"),
                none(),
                none(),
            ]);
        }
    }
    crate::say!("{}", trimmed(&table));
    crate::say!(
        "(published figures: another machine, four threads a party, LAN 384 MB/s and 0.3 ms, WAN 62.5 MB/s and 20 ms)"
    );
}
