//! What evaluation keys are for.

/// Which evaluation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// From the secret's square to the secret: for products.
    Relinearise,
    /// From s(X^g) to s: for the automorphism X → X^g. Slots are rotated by k with g = 5^k mod 2N and conjugated with
    /// g = 2N - 1.
    Galois(usize),
    /// From the secret to the ephemeral one: before the modulus is raised. At level 0, with one special prime.
    ToEphemeral,
    /// From the ephemeral secret to the main one: after the modulus is raised. At all levels, with all special primes
    /// and one digit.
    FromEphemeral,
}

/// One evaluation key: for what, up to which level, and with how many special primes. More of those make fewer
/// digits, which are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// For what.
    pub kind: KeyKind,
    /// Up to which level. That of the ephemeral keys is given.
    pub level: usize,
    /// How many special primes. Those of the ephemeral keys are given.
    pub special: usize,
}
