//! What the package computes with: the standard kit, and the papers' backends for whoever asks for them.

use jaguar::plan::Kit;
use jaguar::{Cpu, Hardware};
use jaguar_fregata::gpu;

/// All that may be named.
pub fn kit() -> Kit {
    Kit::standard().with(jaguar_fregata::ALL).with(jaguar_hyena::ALL)
}

/// What a server's layers are computed with; `tell` hears when a card fails later on.
pub fn hardware(tell: impl Fn(String) + Send + Sync + 'static) -> Hardware {
    let failed = move |why: &gpu::GpuError| tell(format!("{why}; the processor computes this product"));
    gpu::open(gpu::Choice::Auto, Cpu::detect(), failed).unwrap_or_else(|_| Cpu::detect().into())
}
