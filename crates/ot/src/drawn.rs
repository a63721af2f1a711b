//! Numbers of correlations.

use std::ops::Add;

/// How many correlations of each width.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drawn {
    /// Correlations of one bit.
    pub bits: u64,
    /// Correlations of four bits.
    pub vectors: u64,
}

impl Drawn {
    /// Of both widths together.
    pub const fn total(self) -> u64 {
        self.bits + self.vectors
    }
}

impl Add for Drawn {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bits: self.bits + other.bits, vectors: self.vectors + other.vectors }
    }
}
