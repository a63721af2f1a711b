//! `jaguar verify`: both parties here, and every layer beside the plaintext reference.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use jaguar::bundle::Bundle;
use jaguar::client::{Prediction, Reveal};
use jaguar::machine::{Between, When, store};
use jaguar::network::argmax;
use jaguar::plan::predict::Aim;
use jaguar::plan::{Choices, planner};
use jaguar::report::caveat;
use jaguar::reports::terminal::say;
use jaguar::reports::terminal::table::{plain, trimmed};
use jaguar::verify::verify;
use jaguar::{Cpu, reference};

use crate::hide::HideFor;
use crate::notes::{collect, tell};
use crate::{kit, protocol};

#[derive(clap::Args)]
#[command(next_help_heading = "How to compute")]
pub struct Args {
    /// The compiled model.
    #[arg(help_heading = None)]
    model: PathBuf,
    /// Images, .npy tensors, or folders of them.
    #[arg(help_heading = None, required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    hide_for: HideFor,
    #[command(flatten)]
    backends: protocol::Backends,
    #[command(flatten)]
    memory: protocol::WeightMemory,
    #[command(flatten)]
    noise: protocol::Noise,
    /// When to measure this machine.
    ///
    /// To plan by what it takes. Without it: off.
    #[arg(long, hide_default_value = true, value_enum, default_value_t = When::Off)]
    measure: When,
    /// Threads that compute (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    let bundle = args.hide_for.apply(Bundle::read(&args.model, kit::kit().operators())?)?;
    let files = collect(&args.inputs)?;
    let inputs = files
        .iter()
        .map(|path| {
            let input = jaguar::compile::samples::open(path)?.input(&bundle.model.network);
            let input = input.with_context(|| path.display().to_string())?;
            if let Some(warning) = input.warning {
                eprintln!("warning: {}: {warning}", path.display());
            }
            Ok(input.integers)
        })
        .collect::<Result<Vec<_>>>()?;
    let expected = inputs
        .iter()
        .map(|x| Ok(argmax(reference::run(Cpu::detect(), &bundle.model, x)?.output())))
        .collect::<Result<Vec<_>>>()?;
    // A folder of its own: the hint of a check is no client's.
    let cache = std::env::temp_dir().join(format!("jaguar-verify-{}", std::process::id()));
    let figures = store::cache(None);
    let machine = store::machine(Cpu::detect(), &kit::kit(), args.measure, figures.as_deref(), &mut tell)?;
    let network = &bundle.model.network;
    let site = machine.as_ref().map(|machine| Between::Loopback.site(machine, Aim::Query));
    let choices = match &site {
        None => args.memory.apply(Choices::among(network, &args.backends.named())?),
        Some(site) => {
            planner::choose_within(network, &args.backends.named(), site, None, args.memory.bytes())?
        }
    };
    let choices = args.noise.apply(network, choices, site.as_ref())?;
    let caveat = caveat(&bundle.model.network);
    let checks = verify(&kit::kit(), bundle, choices, Reveal::Logits, &inputs, &cache);
    let _ = std::fs::remove_dir_all(&cache);
    let checks = checks?;

    let mut table =
        plain(&["layer", "values", "largest error", "mean error", "bound", "outside", "reduced"], 1);
    let (mut wrong, mut same) = (0, 0);
    for (i, node) in checks[0].layers.iter().enumerate() {
        let all = || checks.iter().map(|c| &c.layers[i]);
        let outside: usize = all().map(|l| l.wrong).sum();
        wrong += outside;
        table.add_row([
            node.name.clone(),
            node.values.to_string(),
            format!("{:.3}", all().fold(0.0, |m, l| l.max_ulps.max(m))),
            format!("{:+.4}", all().map(|l| l.mean_ulps).sum::<f64>() / checks.len() as f64),
            format!("{:.3}", node.bound_ulps),
            outside.to_string(),
            all().map(|l| l.reduced).sum::<usize>().to_string(),
        ]);
    }
    say!("{}", trimmed(&table));
    say!("(errors in units of the last place, against the reference on the same inputs of the layer)");
    if let Some(caveat) = &caveat {
        say!("{caveat}; 'reduced' counts the values to which that happened");
    }
    for ((file, check), &want) in files.iter().zip(&checks).zip(&expected) {
        let got = match &check.prediction {
            Prediction::Logits(l) => argmax(l),
            Prediction::Label(l) => *l,
        };
        same += usize::from(got == want);
        say!("{}: private class {got}, reference {want}", file.display());
    }
    say!("same class: {same}/{}", checks.len());
    ensure!(wrong == 0, "{wrong} values are outside their protocol's bound");
    Ok(())
}
