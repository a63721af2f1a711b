//! Parameter sets by name, as models, terms and folders name them.
//!
//! A set is a ring of [`jaguar_ckks`]; what the protocol fixes beside it is in [`network`](crate::network).

use std::fmt;

use jaguar_ckks::circuits::COMPOSITES;
use jaguar_ckks::{Literal, Parameters};

use crate::network::fits;

/// The default where accuracy does not bear [`COARSE_SET`].
pub const DEFAULT_SET: &str = "n16";

/// That with fewer levels for ReLU: smaller keys and less time, for larger errors.
pub const COARSE_SET: &str = "n16-relu8";

/// That with a value in every coefficient: room for more inputs in a ciphertext, for more time and other keys.
pub const FULL_SET: &str = "n16-full";

/// log2 N of the sets that protect nothing: for tests, and for measuring in little memory.
const INSECURE_LOG_N: [u32; 3] = [10, 12, 14];

/// A parameter set, checked against its record.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    params: Parameters,
}

/// Why there is no such set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The name is that of no set.
    #[error("no parameter set is called {name:?}; there are {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The set contradicts itself or its record.
    #[error(transparent)]
    Parameters(#[from] jaguar_ckks::Error),
}

impl Set {
    fn literals() -> impl Iterator<Item = Literal> {
        let insecure = INSECURE_LOG_N.map(|log_n| Literal::n16().insecure(log_n));
        let secure = [Literal::n16(), Literal::n16_relu8(), Literal::n16().full()];
        let others = [Literal::n16_relu8(), Literal::n16().full()].map(|literal| literal.insecure(10));
        secure.into_iter().chain(insecure).chain(others)
    }

    /// The names of all sets, the default first.
    pub fn names() -> Vec<String> {
        Self::literals().map(|literal| literal.name).collect()
    }

    /// The set of this name.
    ///
    /// # Errors
    /// [`SetError::Unknown`].
    pub fn by_name(name: &str) -> Result<Self, SetError> {
        let literal = Self::literals().find(|literal| literal.name == name);
        // A name may come from a peer: as much of it as a name can have is shown.
        let shown = || name.chars().filter(|c| !c.is_control()).take(32).collect();
        let literal = literal.ok_or_else(|| SetError::Unknown { name: shown(), known: Self::names() })?;
        Ok(Self { params: Parameters::new(&literal)? })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.params.name()
    }

    /// Its ring.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// Whether it protects nothing.
    pub fn is_insecure(&self) -> bool {
        self.params.security().is_none()
    }

    /// How many levels there are for ReLU: those of the finest polynomial that fits.
    pub fn relu_levels(&self) -> usize {
        let fitting = COMPOSITES.iter().filter(|composite| fits(&self.params, **composite));
        fitting.map(|composite| composite.levels()).max().unwrap_or(0)
    }
}

/// How secure the set is, in words.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.params.security() {
            // Downwards.
            Some(bits) => write!(f, "{}: {:.0} bits on record", self.name(), bits.floor()),
            None => write!(f, "{}: insecure, for tests and measurements only", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_found_by_name() {
        assert_eq!(Set::names()[0], DEFAULT_SET);
        for name in Set::names() {
            let set = Set::by_name(&name).unwrap();
            assert_eq!(set.name(), name);
            assert_eq!(set.is_insecure(), set.params().security().is_none());
            assert_eq!(set.is_insecure(), ![DEFAULT_SET, COARSE_SET, FULL_SET].contains(&&*name));
            assert_eq!(set.relu_levels(), if name.ends_with("relu8") { 8 } else { 11 });
        }
        for name in [DEFAULT_SET, COARSE_SET, FULL_SET] {
            assert_eq!(Set::by_name(name).unwrap().to_string(), format!("{name}: 144 bits on record"));
        }
    }

    #[test]
    fn other_names_are_refused_and_shown_in_part() {
        for name in ["", "n17", "N16", "insecure", "n16\n"] {
            let refusal = Set::by_name(name).unwrap_err().to_string();
            assert!(refusal.contains("there are n16, n16-relu8, n16-full, insecure-n10"), "{refusal}");
        }
        let refusal = Set::by_name(&"x\u{7}".repeat(1000)).unwrap_err().to_string();
        assert_eq!((refusal.matches('x').count(), refusal.contains('\u{7}')), (32, false), "{refusal}");
    }
}
