//! `jaguar evaluate`: one evaluation of a protocol of one round, for a server that has others evaluate.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::one_round::Protocol;

#[derive(clap::Args)]
#[command(next_help_heading = "How to compute")]
pub struct Args {
    /// The task: a file in the folder of `jaguar serve --evaluations`.
    #[arg(help_heading = None)]
    task: PathBuf,
    /// The server's protocol, which is one of one round.
    #[arg(long, hide_possible_values = true, value_parser = Protocol::parser())]
    protocol: Protocol,
    /// Threads that compute (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    match args.protocol {
        Protocol::OneRound(protocol) => {
            protocol.evaluate(&args.task).with_context(|| args.task.display().to_string())
        }
        Protocol::Interactive => bail!("--protocol interactive has nothing that is evaluated elsewhere"),
    }
}
