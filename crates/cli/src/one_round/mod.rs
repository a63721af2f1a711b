//! `--protocol convfhe`: one message up, one message down.

mod belongs;
mod compile;
mod predict;
mod serve;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use jaguar_convfhe::Fhe;

pub use belongs::{DEFAULT, check, misplaced};
pub use compile::{CompileOptions, Source, compile};
pub use predict::{Later, Request, predict};
pub use serve::{Storage, announce, serve};

/// The group of options in `--help` that are for this protocol alone.
const HEADING: &str = "One round (--protocol convfhe)";

/// How server and client compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Both parties talk layer by layer: seconds, and tens of megabytes.
    #[default]
    Interactive,
    /// The client sends one encrypted image and gets one encrypted answer: minutes, and gigabytes (keys, once, and memory).
    Convfhe,
}

impl Protocol {
    /// As it stands behind `--protocol`.
    fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Convfhe => "convfhe",
        }
    }
}

/// Where the program is that computes on ciphertexts.
#[derive(clap::Args)]
pub struct Program {
    /// The program jaguar-fhe (default: beside this one, or in PATH).
    #[arg(long, hide = true, value_name = "FILE")]
    fhe_program: Option<PathBuf>,
}

impl Program {
    fn find(&self) -> Result<Fhe> {
        Ok(Fhe::find(self.fhe_program.as_deref())?.on_threads(jaguar_report::terminal::threads()))
    }
}

/// 32 bytes as 64 hexadecimal digits.
fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
