//! Where the program is that computes on ciphertexts, and how 32 bytes are shown.

use std::path::PathBuf;

use anyhow::Result;
use jaguar_convfhe::Fhe;

/// The group of this protocol's options in `--help`.
pub const HEADING: &str = "One round (--protocol convfhe)";

/// Where the program is that computes on ciphertexts.
#[derive(clap::Args)]
pub struct Program {
    /// The program jaguar-fhe (default: beside this one, or in PATH).
    #[arg(long, hide = true, value_name = "FILE")]
    fhe_program: Option<PathBuf>,
}

impl Program {
    /// It, on as many threads as this process computes on.
    ///
    /// # Errors
    /// When it is nowhere, or cannot be run.
    pub fn find(&self) -> Result<Fhe> {
        Ok(Fhe::find(self.fhe_program.as_deref())?.on_threads(jaguar::reports::terminal::threads()))
    }
}

/// 32 bytes as 64 hexadecimal digits.
pub fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
