//! Which backends there are: one line each. The first one is the default.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::backend::{Backend, LayerError};
use crate::cheetah::{self, Cheetah};
use crate::fregata::Fregata;
use crate::hyena::Hyena;
use crate::jaguar::Jaguar;
use crate::plaintext_insecure::Plaintext;
use crate::probe::{RnsProbe, RnsProbeSpec};

/// All of them.
static BACKENDS: &[&dyn Backend] = &[
    &Jaguar,
    &Cheetah,
    &Fregata::HME,
    &Fregata::CHEETAH,
    &Fregata::JAGUAR,
    &Hyena::PACKED,
    &Hyena::PADDED,
    &Hyena::CONVENTIONAL,
    &Hyena::BLOCKS,
    &Plaintext::POWER_OF_TWO,
    &Plaintext::PRIME,
];

/// All backends, the default one first.
pub fn all() -> &'static [&'static dyn Backend] {
    BACKENDS
}

/// A layer in an RNS ring, to time: of the backend whose steps stand for those of all that use such rings.
///
/// # Errors
/// If no such layer has a ring of so many primes.
pub fn rns_probe(spec: RnsProbeSpec) -> Result<Box<dyn RnsProbe>, LayerError> {
    Ok(Box::new(cheetah::Probe::new(spec)?))
}

/// A backend's name, known to exist.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BackendId(usize);

impl BackendId {
    /// The default.
    pub const JAGUAR: Self = Self(0);
    /// The baseline.
    pub const CHEETAH: Self = Self(1);

    /// The backend of this name.
    pub fn of(name: &str) -> Option<Self> {
        BACKENDS.iter().position(|backend| backend.name() == name).map(Self)
    }

    /// All of them, the default one first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..BACKENDS.len()).map(Self)
    }

    /// The backend.
    pub fn backend(self) -> &'static dyn Backend {
        BACKENDS[self.0]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.backend().name()
    }
}

impl std::fmt::Display for BackendId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Debug for BackendId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for BackendId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for BackendId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::of(&name).ok_or_else(|| serde::de::Error::custom(format!("no backend is called {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for id in BackendId::all() {
            assert_eq!(BackendId::of(id.name()), Some(id));
            assert!(id.name().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        }
        assert_eq!(BackendId::of("none"), None);
        assert!(BackendId::default().backend().is_secure());
    }
}
