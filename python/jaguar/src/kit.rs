//! What the package computes with: the standard kit, and the papers' backends for whoever asks for them.

use jaguar_linear::{fregata, hyena};
use jaguar_plan::Kit;

/// All that may be named.
pub fn kit() -> Kit {
    Kit::standard().with(fregata::ALL).with(hyena::ALL)
}
