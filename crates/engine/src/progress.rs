//! Who hears how far a session has come.

use jaguar_wire::Stage;

/// Hears how far a session has come. All methods are called often and should return at once.
pub trait Progress {
    /// A node's turn: `index` of `total` in `stage`.
    fn step(&mut self, stage: Stage, index: usize, total: usize, name: &str);

    /// Bytes of the hint that are there.
    fn hint(&mut self, done: u64, total: u64);

    /// Something that a person may like to know.
    fn note(&mut self, _text: &str) {}

    /// Something that a person should know.
    fn warning(&mut self, _text: &str) {}
}

/// Hears nothing.
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&mut self, _: Stage, _: usize, _: usize, _: &str) {}
    fn hint(&mut self, _: u64, _: u64) {}
}
