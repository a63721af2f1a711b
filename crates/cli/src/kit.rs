//! What the command computes with: the standard kit, and the backends and protocols of the papers with which it was built, for whoever
//! asks for them. Only this file knows which there are.

#[cfg(feature = "convfhe")]
#[path = "../../../papers/convfhe/command/mod.rs"]
mod convfhe;

#[cfg(feature = "fregata")]
use anyhow::Context;
use anyhow::Result;
use jaguar::plan::{BackendId, Kit};
use jaguar::{Cpu, Hardware};
#[cfg(feature = "fregata")]
use jaguar_fregata::gpu;

use crate::one_round::OneRound;

/// All that may be named. (What protects nothing is not among it.)
pub fn kit() -> Kit {
    let kit = Kit::standard();
    #[cfg(feature = "fregata")]
    let kit = kit.with(jaguar_fregata::ALL);
    #[cfg(feature = "hyena")]
    let kit = kit.with(jaguar_hyena::ALL);
    kit
}

/// Protocols of one round, for `--protocol`.
pub const ONE_ROUND: &[&dyn OneRound] = &[
    #[cfg(feature = "convfhe")]
    &convfhe::Convfhe,
];

/// The names of those that this program is built without. Each is its feature's name, too.
pub const LEFT_OUT: &[&str] = &[
    #[cfg(not(feature = "convfhe"))]
    "convfhe",
];

/// What may run linear layers unless something else is asked for.
pub fn standard() -> Vec<BackendId> {
    Kit::standard().backends().to_vec()
}

/// `--device`, where a backend has a use for it.
#[derive(clap::Args)]
pub struct Device {
    /// Which device computes the plain products of Fregata's online part.
    ///
    /// `auto` takes an NVIDIA card, if there is one and this program was built with the feature `cuda`.
    #[cfg(feature = "fregata")]
    #[arg(long, hide = true, value_enum, default_value_t)]
    device: gpu::Choice,
}

impl Device {
    /// What layers are computed with.
    ///
    /// # Errors
    /// When a card is asked for and there is none.
    #[cfg(feature = "fregata")]
    pub fn open(&self) -> Result<Hardware> {
        let failed = |why: &gpu::GpuError| eprintln!("warning: {why}; the processor computes this product");
        gpu::open(self.device, Cpu::detect(), failed).context("--device gpu")
    }

    /// The processor: nothing here runs on another device.
    #[cfg(not(feature = "fregata"))]
    pub fn open(&self) -> Result<Hardware> {
        Ok(Cpu::detect().into())
    }
}
