//! `jaguar`: private inference between two machines.

mod accuracy;
mod bench;
mod calibrate;
mod compile;
mod constants;
mod fetch;
mod link;
mod npy;
mod picture;
mod plan;
mod predict;
mod progress;
mod protocol;
mod serve;
mod table;
mod trace;
mod verify;

use std::io::Write;

use clap::{Parser, Subcommand};

/// Private CNN inference: the image stays with the client, the weights with the server.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Quantise an ONNX model and check it against the float model.
    Compile(compile::Args),
    /// Show what a compiled model does, layer by layer, what it will cost, and why it is done so.
    #[command(visible_alias = "inspect")]
    Plan(plan::Args),
    /// Measure this machine, for the planner.
    Calibrate(calibrate::Args),
    /// Serve a compiled model.
    Serve(serve::Args),
    /// Run both parties here and compare every layer with the plaintext reference.
    Verify(verify::Args),
    /// Count how often the right class comes out, on labelled pictures.
    Accuracy(accuracy::Args),
    /// Get the prediction for an image from a server that may not see it.
    Predict(predict::Args),
    /// Fetch what a server's model needs at the client, once, ahead of the first query (which would fetch it on its way).
    Fetch(fetch::Args),
    /// Measure the parts on this machine, beside published figures.
    Bench(bench::Args),
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Compile(args) => compile::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", in_one_line(&error));
            std::process::ExitCode::FAILURE
        }
    }
}

/// The error and its causes. Most errors below tell their cause themselves: what was said is not said again.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The most threads that may be asked for.
const MAX_THREADS: usize = 1024;

/// A number of threads, for the command line.
fn thread_count(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|n| *n <= MAX_THREADS);
    threads.ok_or_else(|| format!("a number up to {MAX_THREADS} is needed (0: one per core)"))
}

/// Limits the threads of the linear layers and the preparation; 0 leaves it to the number of cores.
fn set_threads(threads: usize) -> anyhow::Result<()> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    Ok(())
}

/// Prints a line to standard output. Who closes it early (`| head`) has seen enough.
macro_rules! say {
    ($($text:tt)*) => { $crate::print(format_args!($($text)*)) };
}
pub(crate) use say;

fn print(line: std::fmt::Arguments<'_>) {
    if writeln!(std::io::stdout().lock(), "{line}").is_err() {
        std::process::exit(0);
    }
}
