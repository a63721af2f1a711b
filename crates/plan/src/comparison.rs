//! How nonlinear layers compare: as their operators do it, or as comparisons of the kit do
//! ([`jaguar_mpc::Comparisons`]).

use std::sync::Arc;

use jaguar_mpc::{Comparisons, Nonlinear};
use serde::{Deserialize, Serialize, Serializer};

use crate::PlanError;

/// Comparisons of a kit. Two of one name are the same.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonsId(pub &'static dyn Comparisons);

impl PartialEq for ComparisonsId {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for ComparisonsId {}

/// As their name. Who reads one back asks a kit.
impl Serialize for ComparisonsId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

/// How the layers of a plan compare that compare at all. (An argmax is always sealed.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparison<C = ComparisonsId> {
    /// As each operator does. Neither party learns a thing.
    #[default]
    Sealed,
    /// As comparisons of a kit do, where they know how; **what a party learns of it, they say**
    /// ([`Comparison::caveat`]).
    By {
        /// Which protocol compares.
        name: C,
        /// How many bits more than values have their shares, where they are compared; of what the comparisons allow.
        extra_bits: u32,
    },
}

impl Comparison {
    /// How many bits more than a value its shares have where it is compared.
    pub fn extra_bits(self) -> u32 {
        match self {
            Self::Sealed => 0,
            Self::By { extra_bits, .. } => extra_bits,
        }
    }

    /// What a person must know of a plan that compares so; nothing where neither party learns a thing.
    pub fn caveat(self) -> Option<String> {
        match self {
            Self::Sealed => None,
            Self::By { name, extra_bits } => name.0.caveat(extra_bits),
        }
    }

    /// What does the work of `layer`, where that is not the layer itself.
    pub(crate) fn instead(self, layer: &dyn Nonlinear) -> Option<Arc<dyn Nonlinear>> {
        match self {
            Self::Sealed => None,
            Self::By { name, extra_bits } => name.0.instead(layer, extra_bits),
        }
    }

    /// Whether a plan may compare so: with `leaks`, also if it tells a party something.
    pub(crate) fn check(self, leaks: bool) -> Result<(), PlanError> {
        let Self::By { name, extra_bits } = self else { return Ok(()) };
        let (name, most) = (name.0.name(), name.0.most_extra_bits());
        if !(1..=most).contains(&extra_bits) {
            let text = format!("{extra_bits} bits more in comparisons by {name} (1 to {most} are possible)");
            return Err(PlanError::Choices(text));
        }
        match self.caveat() {
            Some(caveat) if !leaks => Err(PlanError::Leaks(caveat)),
            _ => Ok(()),
        }
    }
}
