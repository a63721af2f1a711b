//! What is measured: the standard kit, and the papers' backends.

use jaguar_linear::{fregata, hyena};
use jaguar_plan::{BackendId, Kit};

/// All of it.
pub fn kit() -> Kit {
    Kit::standard().with(fregata::ALL).with(hyena::ALL)
}

/// One backend of it.
pub fn backend(name: &str) -> BackendId {
    kit().backend(name).expect("a backend of the kit")
}
