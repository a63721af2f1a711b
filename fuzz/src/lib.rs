//! Foreign bytes for every reader: what a peer sends, what a file holds.
//!
//! A [`Target`] hands an input to readers as they are in the programs. Whatever the input is, the reader must come to its end
//! without a panic, and within a bound of memory that depends on the input's length alone ([`Bound`]). What the
//! reader makes of the input is not looked at: that is what the tests of each crate do.
//!
//! | file | targets |
//! |---|---|
//! | `greetings.rs` | the greeting, frames |
//! | `connections.rs` | what is around a connection: WebSockets, TLS; and who asks for figures |
//! | `offers.rs` | the offer, the public network, its plan, what a client does with its preprocessing and its answers |
//! | `sessions.rs` | every message of a session, both roles, every backend: a recorded session with changes |
//! | `primitives.rs` | oblivious transfer and every nonlinear protocol, both roles |
//! | `one_round.rs` | one-round sessions, both roles; the program's frames; its model file; what a server keeps of them |
//! | `files.rs` | bundle, hint, ONNX, pictures, `.npy`, lists of labels, tokens, certificates, options, configuration, counts |
//!
//! `tests/corpora.rs` runs the kept inputs and some thousand others; `make fuzz` runs a coverage-guided fuzzer
//! (`docs/fuzzing.md`).

#[path = "../../crates/cli/src/serve/file.rs"]
mod configuration;
mod connections;
pub mod doubles;
pub mod files;
mod greetings;
pub mod memory;
pub mod models;
pub mod offers;
mod one_round;
mod primitives;
pub mod script;
pub mod sessions;
mod target;

pub use target::{Bound, Fixed, Target, fix_randomness, fixed};

/// All of them.
pub fn targets() -> Vec<Target> {
    let parts = [
        greetings::targets(),
        connections::targets(),
        offers::targets(),
        sessions::targets(),
        primitives::targets(),
        one_round::targets(),
    ];
    parts.into_iter().flatten().chain(files::targets()).collect()
}

/// Hands `input` to the target. Returns the bytes of the heap that it took at most.
///
/// # Panics
/// Where the reader does, or takes more than its bound.
pub fn check(target: &Target, input: &[u8]) -> usize {
    let ((), peak) = memory::peak_of(|| fixed(7, || (target.run)(input)));
    let bound = target.bound.of(input.len());
    assert!(
        peak <= bound,
        "{}: {} bytes of input took {peak} bytes, the bound is {bound}",
        target.name,
        input.len()
    );
    peak
}
