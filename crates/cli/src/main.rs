//! `jaguar`: private inference between two machines.

/// As the standard library's, but for one thing: where nothing can be written to standard error (a full disk, say), the program goes
/// on instead of panicking. What it was to do matters more than what it says of it.
macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod accuracy;
mod batch;
mod cache;
mod commas;
mod compile;
mod config;
mod doctor;
mod dumps;
mod evaluate;
mod fetch;
mod gateway;
mod help;
mod hide;
mod kit;
mod log;
mod measure;
mod memory;
mod notes;
mod one_round;
mod page;
#[cfg(test)]
mod pages;
mod params;
mod plan;
mod predict;
mod progress;
mod protocol;
mod reach;
mod rows;
mod scores;
mod security;
mod serve;
mod token;
mod trace;
mod verify;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

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
    /// Show by layer what a compiled model does, what it will cost, and why.
    #[command(visible_alias = "inspect")]
    Plan(plan::Args),
    /// Search a backend's parameters for a model or a layer, and show what was weighed.
    Params(params::Args),
    /// Measure this machine, for the planner.
    Measure(measure::Args),
    /// Serve compiled models.
    #[command(
        after_long_help = "Each option can also be set in the environment and in a configuration file, under the same name: \
        --max-clients is JAGUAR_MAX_CLIENTS there and max-clients here. Flags come before the environment, that before the file. \
        `jaguar config show` tells what counts."
    )]
    Serve(Box<serve::Args>),
    /// Evaluate an encrypted input that a server has put into its folder of evaluations.
    ///
    /// With `jaguar serve --evaluations`: whatever runs programs on a cluster calls this for each task. The answer, or why there is none,
    /// is left beside it for the server. Where it fails, it may be run again, on another machine too.
    Evaluate(evaluate::Args),
    /// Show which options count for `jaguar serve`, and where they come from.
    ///
    /// From the command line, the environment, a configuration file or defaults.
    Config(config::Args),
    /// Give a client a token, and add its hash to the file of those that a server knows.
    Token(token::Args),
    /// Run both parties here and compare every layer with the plaintext reference.
    Verify(verify::Args),
    /// Count how often the right class comes out, on labelled pictures.
    Accuracy(accuracy::Args),
    /// Get the prediction for an image from a server that may not see it.
    Predict(predict::Args),
    /// Fetch what a server's model needs at the client, once, ahead of the first query.
    ///
    /// The first query would fetch it on its way.
    Fetch(fetch::Args),
    /// Answer programs of this machine in the Open Inference Protocol (KServe, Triton), and ask the server privately.
    Gateway(gateway::Args),
    /// Look for what would keep a server or a client from working here, and say what to do.
    Doctor(doctor::Args),
}

/// What the words say. Where they say nothing that can be done, the program ends.
fn read(mut words: Vec<OsString>) -> Cli {
    let mut command = help::command(Cli::command(), &mut words);
    let read = command.try_get_matches_from_mut(&words).and_then(|matches| {
        one_round::check(&command, &matches)?;
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    read.unwrap_or_else(|error| {
        let tip = if error.use_stderr() { commas::tip(&words) } else { None };
        let Some(tip) = tip else { error.exit() };
        let _ = error.print();
        eprintln!("\n{tip}");
        std::process::exit(error.exit_code());
    })
}

fn main() -> std::process::ExitCode {
    let cli = read(std::env::args_os().collect());
    dumps::switch_off();
    let result = match cli.command {
        Command::Compile(args) => compile::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Params(args) => params::run(&args),
        Command::Measure(args) => measure::run(&args),
        Command::Serve(_) => serve::run(),
        Command::Evaluate(args) => evaluate::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", jaguar::reports::terminal::in_one_line(error.as_ref()));
            std::process::ExitCode::FAILURE
        }
    }
}
