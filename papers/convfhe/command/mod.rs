//! `--protocol convfhe` of the command `jaguar`, which takes this module into its kit (`crates/cli/src/kit.rs`).

mod accuracy;
mod compile;
mod parameters;
mod precision;
mod predict;
mod serve;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use jaguar::reports::terminal::threads;
use jaguar_convfhe::{evaluate, party, session};

use crate::one_round::protocol::{OneRound, Request, Serving, Source, Unencrypted, Which};
use crate::progress::Steps;

/// The group of this protocol's options in `--help`.
const HEADING: &str = "One round (--protocol convfhe)";

/// 32 bytes as 64 hexadecimal digits.
fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The protocol, for the command's kit.
pub struct Convfhe;

impl OneRound for Convfhe {
    fn name(&self) -> &'static str {
        session::NAME
    }

    fn about(&self) -> &'static str {
        "The client sends one encrypted image and gets one encrypted answer: minutes, and gigabytes (keys, once, and memory)"
    }

    fn heading(&self) -> &'static str {
        HEADING
    }

    fn options(&self, which: Which, to: Command) -> Command {
        match which {
            Which::Compile => compile::CompileOptions::augment_args(to),
            // (A ticket stands for an input that was sent before.)
            Which::Predict => predict::Later::augment_args(to)
                .mut_arg("inputs", |inputs| inputs.required_unless_present("ticket")),
            Which::Serve => serve::Storage::augment_args(to),
        }
    }

    fn compile(
        &self,
        source: Source<'_>,
        options: &ArgMatches,
        output: &Path,
        steps: &mut Steps,
    ) -> Result<()> {
        compile::compile(source, &compile::CompileOptions::from_arg_matches(options)?, output, steps)
    }

    fn predict(&self, request: &Request<'_>, options: &ArgMatches) -> Result<()> {
        predict::predict(request, &predict::Later::from_arg_matches(options)?)
    }

    fn serve(&self, model: &Path, cache: Option<PathBuf>, options: &ArgMatches) -> Result<Box<dyn Serving>> {
        Ok(Box::new(serve::serve(&serve::Storage::from_arg_matches(options)?, model, cache)?))
    }

    fn open(&self, model: &Path) -> Result<Option<Box<dyn Unencrypted>>> {
        Ok(accuracy::open(model)?.map(|open| Box::new(open) as Box<dyn Unencrypted>))
    }

    fn evaluate(&self, task: &Path) -> Result<()> {
        Ok(evaluate(task, threads(), crate::memory::give_back)?)
    }

    fn secrets(&self, cache: &Path) -> Vec<PathBuf> {
        party::secrets(cache)
    }
}
