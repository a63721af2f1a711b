//! `jaguar config show`: which settings count for `jaguar serve`.

use std::ffi::OsString;

use anyhow::Result;
use clap::Subcommand;
use jaguar::reports::terminal::say;

use crate::serve::{self, Settings};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print every option of `jaguar serve` as it counts, and where it comes from.
    ///
    /// It takes the options that `serve` takes; what it prints is a configuration file.
    Show(Box<serve::Args>),
}

pub fn run(args: &Args) -> Result<()> {
    let Command::Show(_) = &args.command;
    let words: Vec<OsString> = std::env::args_os().skip(3).collect();
    say!("{}", Settings::load(&words)?.show().trim_end());
    Ok(())
}
