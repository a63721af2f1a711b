//! What a target is, and the randomness that all of them run with.

use std::sync::OnceLock;

/// How much of the heap an input may take: `fixed + per_byte · length` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Whatever the input.
    pub fixed: usize,
    /// For each byte of it.
    pub per_byte: usize,
}

impl Bound {
    /// For an input of so many bytes.
    pub fn of(self, length: usize) -> usize {
        self.fixed + self.per_byte * length
    }
}

/// A reader, or several that read the same, and what it is held to.
pub struct Target {
    /// Its name: of letters, digits and hyphens.
    pub name: &'static str,
    /// Hands it an input.
    pub run: fn(&[u8]),
    /// Inputs from which a fuzzer begins.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Memory.
    pub bound: Bound,
    /// Longer inputs tell nothing new.
    pub longest: usize,
    /// How many inputs `make test` makes up: as many as take a second or two.
    pub tried: usize,
}

/// Runs its second argument with randomness that its first one fixes.
pub type Fixed = fn([u8; 32], &mut dyn FnMut());

static FIXED: OnceLock<Fixed> = OnceLock::new();

/// To be called first: `jaguar_ring::prg::with_insecure_fixed_randomness`, which only tests and fuzzers have.
pub fn fix_randomness(fixed: Fixed) {
    FIXED.get_or_init(|| fixed);
}

/// Runs `f`. All its randomness is that of `seed`: the same input does the same.
///
/// # Panics
/// Where nobody has called [`fix_randomness`].
pub fn fixed<T>(seed: u8, f: impl FnOnce() -> T) -> T {
    let (mut f, mut result) = (Some(f), None);
    FIXED.get().expect("randomness is fixed")([seed; 32], &mut || result = f.take().map(|f| f()));
    result.expect("it was run")
}
