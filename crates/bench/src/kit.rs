//! What is measured: the standard kit, and the papers' backends and comparisons.

use jaguar_plan::{BackendId, Kit};

/// All of it.
pub fn kit() -> Kit {
    let kit = Kit::standard().with(jaguar_fregata::ALL).with(jaguar_hyena::ALL);
    kit.with_comparisons(jaguar_fregata::COMPARISONS)
}

/// One backend of it.
pub fn backend(name: &str) -> BackendId {
    kit().backend(name).expect("a backend of the kit")
}
