//! The engine's small networks, and a kit that has PMax.

use jaguar_engine::bundle::Bundle;
use jaguar_plan::{BackendId, Choices, Kit};

#[allow(dead_code)] // the engine has more ways
#[path = "../../../../crates/engine/tests/faults/networks.rs"]
mod small;

#[allow(unused_imports)] // of this crate's tests, each takes some
pub use small::{CLIENT_STALLED, SERVER_IDLE, Way, input, network};

/// Backends that protect both parties, and PMax.
pub fn kit() -> Kit {
    small::kit().with_comparisons(jaguar_fregata::COMPARISONS)
}

/// Choices for this backend, by PMax.
pub fn leaky(bundle: &Bundle, backend: BackendId) -> Choices {
    let network = &bundle.model.network;
    let choices = Choices::standard(network, backend);
    choices.comparing_by(network, kit().comparisons()[0]).unwrap()
}
