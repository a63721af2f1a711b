//! `--protocol convfhe`: one message up, one message down.

mod compile;
mod predict;
mod serve;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use jaguar_convfhe::Fhe;

pub use compile::{Last, Margins, Source, compile};
pub use predict::{Later, Request, predict};
pub use serve::{Storage, announce, serve};

/// How server and client compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Both parties talk layer by layer: seconds, and tens of megabytes.
    #[default]
    Interactive,
    /// The client sends one encrypted image and gets one encrypted answer: minutes, and gigabytes (keys, once, and memory).
    Convfhe,
}

/// Where the program is that computes on ciphertexts.
#[derive(clap::Args)]
pub struct Program {
    /// The program jaguar-fhe, for --protocol convfhe (default: beside this one, or in PATH).
    #[arg(long, value_name = "FILE")]
    fhe_program: Option<PathBuf>,
}

impl Program {
    fn find(&self) -> Result<Fhe> {
        Ok(Fhe::find(self.fhe_program.as_deref())?.on_threads(jaguar_terminal::threads()))
    }
}

/// 64 hexadecimal digits.
fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
