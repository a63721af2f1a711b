//! What is measured: the standard kit, and the papers' backends.

use jaguar_plan::{BackendId, Kit};

/// All of it.
pub fn kit() -> Kit {
    Kit::standard().with(jaguar_fregata::ALL).with(jaguar_hyena::ALL)
}

/// One backend of it.
pub fn backend(name: &str) -> BackendId {
    kit().backend(name).expect("a backend of the kit")
}
