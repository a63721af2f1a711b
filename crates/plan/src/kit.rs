//! What a program computes with, as a value: which operators and backends there are, and which comparisons besides the operators'
//! own. Whoever imports, compiles, plans, serves or asks is handed one.
//!
//! [`Kit::standard`] is what a product needs; a backend of one's own, or a paper's, is added by [`Kit::with`], operators by
//! [`Kit::with_operators`], comparisons by [`Kit::with_comparisons`]. Names and numbers that come from a file or from a peer mean
//! something only in a kit.

use jaguar_graph::network::{OperatorKind, Operators};
use jaguar_linear::backend::{BackendId, ChosenRing};
use jaguar_linear::constants::Probe;
use jaguar_linear::jaguar;
use jaguar_mpc::Comparisons;

use crate::comparison::ComparisonsId;

/// What there is to compute with.
#[derive(Clone, Debug)]
pub struct Kit {
    operators: Operators,
    backends: Vec<BackendId>,
    comparisons: Vec<ComparisonsId>,
}

/// A name that nothing in a kit has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} called '{name}'; there are {}", if known.is_empty() { "none".into() } else { known.join(", ") })]
pub struct UnknownName {
    /// What there is not: `no backend is`, `no comparisons are`.
    kind: &'static str,
    /// What was asked for; its beginning, if it is too long for a name.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

/// Characters of a name that are shown.
const SHOWN: usize = 64;

impl Kit {
    /// The main path.
    pub const JAGUAR: BackendId = jaguar::JAGUAR;
    /// The baseline.
    pub const CHEETAH: BackendId = jaguar_cheetah::CHEETAH;

    /// The project's operators, with Jaguar and Cheetah.
    pub fn standard() -> Self {
        Self {
            operators: Operators::standard(),
            backends: vec![Self::JAGUAR, Self::CHEETAH],
            comparisons: Vec::new(),
        }
    }

    /// The same with `more` operators.
    ///
    /// # Panics
    /// As [`Operators::with`].
    #[must_use]
    pub fn with_operators(mut self, more: impl IntoIterator<Item = OperatorKind>) -> Self {
        self.operators = self.operators.with(more);
        self
    }

    /// The same with `more` backends. One takes the place of another that has its name.
    #[must_use]
    pub fn with(mut self, more: impl IntoIterator<Item = BackendId>) -> Self {
        for new in more {
            match self.backends.iter_mut().find(|old| **old == new) {
                Some(old) => *old = new,
                None => self.backends.push(new),
            }
        }
        self
    }

    /// The operators that it knows, by number and by ONNX's names.
    pub fn operators(&self) -> &Operators {
        &self.operators
    }

    /// The backends that it knows, by which plans are made.
    pub fn backends(&self) -> &[BackendId] {
        &self.backends
    }

    /// The same with `more` comparisons besides the operators' own. Of two with one name the first ones count.
    #[must_use]
    pub fn with_comparisons(mut self, more: &[&'static dyn Comparisons]) -> Self {
        self.comparisons.extend(more.iter().copied().map(ComparisonsId));
        self
    }

    /// All comparisons besides the operators' own.
    pub fn comparisons(&self) -> &[ComparisonsId] {
        &self.comparisons
    }

    /// What its backends need to know of a machine; each family of figures once.
    pub fn probes(&self) -> Vec<Probe> {
        let mut probes: Vec<Probe> = Vec::new();
        for probe in self.backends.iter().flat_map(|id| id.backend().probes()) {
            if probes.iter().all(|other| other.name() != probe.name()) {
                probes.push(probe);
            }
        }
        probes
    }

    /// Those that protect both parties.
    pub fn secure(&self) -> Vec<BackendId> {
        self.backends.iter().copied().filter(|id| id.backend().is_secure()).collect()
    }

    /// The backend of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn backend(&self, name: &str) -> Result<BackendId, UnknownName> {
        named("no backend is", name, &self.backends, BackendId::name)
    }

    /// The backend of this name, or those of a group: all whose names are this one, a dash, and more. A planner weighs them
    /// layer by layer.
    ///
    /// # Errors
    /// When there is none.
    pub fn group(&self, name: &str) -> Result<Vec<BackendId>, UnknownName> {
        let known = self.backend(name).map(|id| vec![id]);
        let of_group =
            |id: &BackendId| id.name().strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
        known.or_else(|unknown| {
            let group: Vec<BackendId> = self.backends.iter().copied().filter(of_group).collect();
            if group.is_empty() { Err(unknown) } else { Ok(group) }
        })
    }

    /// The backend of linear layers for which nothing was chosen.
    pub fn first(&self) -> BackendId {
        self.backends[0]
    }
}

/// What has this name `among` some, whose names are `of` them; `kind` says what there is not.
pub(crate) fn named<T: Copy>(
    kind: &'static str,
    name: &str,
    among: &[T],
    of: fn(T) -> &'static str,
) -> Result<T, UnknownName> {
    among.iter().copied().find(|&id| of(id) == name).ok_or_else(|| UnknownName {
        kind,
        name: name.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        known: among.iter().map(|&id| of(id)).collect(),
    })
}

/// The rings that are weighed for backends `among` these, each once; the default one where they leave no choice.
pub(crate) fn rings(among: &[BackendId]) -> Vec<ChosenRing> {
    let mut rings: Vec<ChosenRing> = Vec::new();
    for ring in among.iter().flat_map(|id| id.backend().rings()) {
        if !rings.contains(ring) {
            rings.push(*ring);
        }
    }
    if rings.is_empty() { vec![ChosenRing::default()] } else { rings }
}

/// In which order the backends of a session speak: those of the standard kit, then by name. Both parties must agree on it, whatever
/// else is in their kits.
pub(crate) fn in_order(mut backends: Vec<BackendId>) -> Vec<BackendId> {
    let standard = Kit::standard().backends;
    let place = |id: &BackendId| standard.iter().position(|other| other == id).unwrap_or(standard.len());
    backends.sort_by_key(|id| (place(id), id.name()));
    backends.dedup();
    backends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::kit;

    #[test]
    fn names_are_told_apart() {
        let kit = kit();
        for &id in kit.backends() {
            assert_eq!(kit.backend(id.name()), Ok(id));
            assert!(id.name().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        }
        let error = Kit::standard().backend("hyena").unwrap_err().to_string();
        assert_eq!(error, "no backend is called 'hyena'; there are jaguar, cheetah");
        let long = kit.backend(&"\n".repeat(1000)).unwrap_err().name;
        assert_eq!(long.chars().count(), SHOWN);
        assert!(!long.contains('\n'));
        assert!(Kit::standard().backends().iter().all(|id| id.backend().is_secure()));
        assert_eq!(kit.clone().with(kit.secure()).backends(), kit.backends());
    }

    #[test]
    fn a_name_is_a_backends_or_a_groups() {
        let names = |name: &str| -> Vec<&str> {
            kit()
                .group(name)
                .map(|group| group.into_iter().map(BackendId::name).collect())
                .unwrap_or_default()
        };
        assert_eq!(names("fregata"), ["fregata-jaguar", "fregata-cheetah", "fregata-hme"]);
        assert_eq!(names("fregata-hme"), ["fregata-hme"]);
        // A backend's own name stands for it alone, though others begin with it.
        assert_eq!(names("hyena"), ["hyena"]);
        assert!(names("freg").is_empty() && names("fregata-").is_empty() && names("").is_empty());
    }

    /// The order of a session's messages is its backends', not the kit's.
    #[test]
    fn the_order_is_the_same_for_every_kit() {
        let mut all = kit().backends().to_vec();
        let order = in_order(all.clone());
        all.reverse();
        assert_eq!(in_order(all.clone()), order);
        all.extend(order.clone());
        assert_eq!(in_order(all), order);
        assert_eq!(order[..2], [Kit::JAGUAR, Kit::CHEETAH]);
    }
}
