//! What the command computes with: the standard kit, and the papers' backends for whoever asks for them.

use jaguar_linear::{fregata, hyena};
use jaguar_plan::{BackendId, Kit};

/// All that may be named. (What protects nothing is not among it.)
pub fn kit() -> Kit {
    Kit::standard().with(fregata::ALL).with(hyena::ALL)
}

/// What may run linear layers unless something else is asked for.
pub fn standard() -> Vec<BackendId> {
    Kit::standard().backends().to_vec()
}
