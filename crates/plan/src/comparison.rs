//! How nonlinear layers compare: as their operators do it, or as comparisons of the kit do
//! ([`jaguar_mpc::Comparisons`]).

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use jaguar_mpc::{Comparisons, Nonlinear};
use serde::{Deserialize, Serialize, Serializer};

use crate::PlanError;

/// Comparisons of a kit, by their name: two of one name are the same.
#[derive(Clone, Copy)]
pub struct ComparisonsId(&'static dyn Comparisons);

impl ComparisonsId {
    /// Those of `comparisons`.
    pub const fn new(comparisons: &'static dyn Comparisons) -> Self {
        Self(comparisons)
    }

    /// The comparisons.
    pub fn comparisons(self) -> &'static dyn Comparisons {
        self.0
    }

    /// Their name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

impl PartialEq for ComparisonsId {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for ComparisonsId {}

impl Display for ComparisonsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Debug for ComparisonsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// As their name. Who reads one back asks a kit.
impl Serialize for ComparisonsId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
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
        /// Which.
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
            Self::By { name, extra_bits } => name.comparisons().caveat(extra_bits),
        }
    }

    /// What does the work of `layer`, where that is not the layer itself: and whose it is.
    pub(crate) fn instead(self, layer: &dyn Nonlinear) -> Option<(ComparisonsId, Arc<dyn Nonlinear>)> {
        match self {
            Self::Sealed => None,
            Self::By { name, extra_bits } => Some((name, name.comparisons().instead(layer, extra_bits)?)),
        }
    }

    /// Whether a plan may compare so: with `leaks`, also if it tells a party something.
    pub(crate) fn check(self, leaks: bool) -> Result<(), PlanError> {
        let Self::By { name, extra_bits } = self else { return Ok(()) };
        let possible = name.comparisons().extra_bits();
        if !possible.contains(&extra_bits) {
            let (least, most) = possible.into_inner();
            let text =
                format!("{extra_bits} bits more in comparisons by {name} ({least} to {most} are possible)");
            return Err(PlanError::Choices(text));
        }
        match self.caveat() {
            Some(caveat) if !leaks => Err(PlanError::Leaks(caveat)),
            _ => Ok(()),
        }
    }
}
