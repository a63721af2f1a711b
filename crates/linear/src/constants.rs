//! What a backend needs to know of a machine: *families* of figures, each of which its backend names, measures and reads itself.
//! Plans hand them through and a profile keeps them; neither knows what is in them.
//!
//! | value | what it is |
//! |---|---|
//! | [`Constants`] | a family: a type of the backend's own, say with the figures of all rings of one kind |
//! | [`Probe`] | the same for whoever measures: [`Backend::probes`](crate::backend::Backend::probes) lists those of a backend |
//! | [`Measured`] | the families of one machine, by name: a backend's layers look up what they need |

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Debug, Display};
use std::sync::{Arc, OnceLock};

use jaguar_ring::cpu::Cpu;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Why a family could not be measured, in its own words.
pub type ProbeError = Box<dyn Error + Send + Sync>;

/// A family of figures of one machine. Times are seconds of one core.
///
/// Several backends may share one. It is kept as JSON: a number that is not finite is not kept.
pub trait Constants: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in kept files. No other family of a kit has it.
    const NAME: &'static str;

    /// Measures all of it, with the instructions that `cpu` has, on a pool of one thread. ([`crate::timing`] has what probes share.)
    ///
    /// # Errors
    /// When there is nothing to measure. What other work disturbs is measured all the same.
    fn measure(cpu: Cpu) -> Result<Self, ProbeError>;

    /// The first figure that is missing or that no machine can have. Then all of a machine is measured again, and in the end refused.
    fn impossible(&self) -> Option<Impossible>;

    /// Seconds of some work that all threads of the current pool share, as they share a linear layer before the input: how much they
    /// help is then known. None by default.
    fn shared_work(_cpu: Cpu) -> Option<Result<f64, ProbeError>> {
        None
    }

    /// What a person may like to see of it, in rows, their head first. None by default.
    fn table(&self) -> Vec<Vec<String>> {
        Vec::new()
    }
}

/// A figure that no machine can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{figure}: {found}, where {expected}")]
pub struct Impossible {
    /// Which constant it is, in words.
    pub figure: String,
    /// The figure that was measured, with its unit.
    pub found: String,
    /// What figure a machine can have, in words.
    pub expected: String,
}

impl Impossible {
    /// Of a time in seconds that is not finite or less than `least`.
    pub fn time(figure: impl Display, seconds: f64, least: f64) -> Option<Self> {
        let ns = |seconds: f64| format!("{:.1} ns", seconds * 1e9);
        (!seconds.is_finite() || seconds < least).then(|| Self {
            figure: figure.to_string(),
            found: ns(seconds),
            expected: format!("no processor takes less than {}", ns(least)),
        })
    }

    /// Of a figure that is not there.
    pub fn missing(figure: impl Display) -> Self {
        Self { figure: figure.to_string(), found: "missing".into(), expected: "every machine has it".into() }
    }
}

/// Fewer seconds than any processor takes for one of many words: it loads 32 of them in a cycle, at best.
///
/// The least of a step over N words is N times this. A step's time that a fit found in the noise of others is far below.
pub const LEAST_WORD: f64 = 2e-12;

/// The families of one machine, by name. They are typed when they are first looked up: reading a kept file takes no backend.
#[derive(Clone, Default)]
pub struct Measured(BTreeMap<String, Arc<Family>>);

/// One family as it is kept, and as its type has it once that was asked for; nothing if it is not of that type.
struct Family {
    kept: Value,
    typed: OnceLock<Option<Box<dyn Any + Send + Sync>>>,
}

impl Measured {
    /// The family of this type, if it is there and can be read.
    pub fn get<T: Constants>(&self) -> Option<&T> {
        let family = self.0.get(T::NAME)?;
        let read = || T::deserialize(&family.kept).ok().map(|figures| Box::new(figures) as _);
        family.typed.get_or_init(read).as_ref()?.downcast_ref()
    }

    /// Puts a family in, in place of the one that was there.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn insert<T: Constants>(&mut self, figures: T) -> Result<(), serde_json::Error> {
        let kept = serde_json::to_value(&figures)?;
        let typed = OnceLock::from(Some(Box::new(figures) as _));
        self.0.insert(T::NAME.into(), Arc::new(Family { kept, typed }));
        Ok(())
    }
}

impl PartialEq for Measured {
    fn eq(&self, other: &Self) -> bool {
        self.0
            .iter()
            .map(|(name, family)| (name, &family.kept))
            .eq(other.0.iter().map(|(name, family)| (name, &family.kept)))
    }
}

impl Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, family)| (name, &family.kept))).finish()
    }
}

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, family)| (name, &family.kept)))
    }
}

impl<'de> Deserialize<'de> for Measured {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kept = BTreeMap::<String, Value>::deserialize(deserializer)?.into_iter();
        Ok(Self(kept.map(|(name, kept)| (name, Arc::new(Family { kept, typed: OnceLock::new() }))).collect()))
    }
}

/// A family whose type was forgotten.
trait Figures {
    fn impossible(&self) -> Option<Impossible>;
    fn table(&self) -> Vec<Vec<String>>;
}

impl<T: Constants> Figures for T {
    fn impossible(&self) -> Option<Impossible> {
        Constants::impossible(self)
    }

    fn table(&self) -> Vec<Vec<String>> {
        Constants::table(self)
    }
}

/// What measures a family, and looks at what was measured of it.
#[derive(Clone, Copy)]
pub struct Probe {
    name: &'static str,
    measure: fn(Cpu, &mut Measured) -> Result<(), ProbeError>,
    shared_work: fn(Cpu) -> Option<Result<f64, ProbeError>>,
    get: fn(&Measured) -> Option<&dyn Figures>,
}

impl Probe {
    /// That of the family `T`.
    pub const fn of<T: Constants>() -> Self {
        Self {
            name: T::NAME,
            measure: |cpu, into| Ok(into.insert(T::measure(cpu)?)?),
            shared_work: T::shared_work,
            get: |measured| measured.get::<T>().map(|figures| figures as &dyn Figures),
        }
    }

    /// What files call the family's constants.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Measures it on the current thread ([`Constants::measure`]).
    ///
    /// # Errors
    /// As there, and when the figures cannot be kept.
    pub fn measure(self, cpu: Cpu, into: &mut Measured) -> Result<(), ProbeError> {
        (self.measure)(cpu, into)
    }

    /// [`Constants::shared_work`].
    pub fn shared_work(self, cpu: Cpu) -> Option<Result<f64, ProbeError>> {
        (self.shared_work)(cpu)
    }

    /// Whether it was measured, and can be read.
    pub fn is_in(self, measured: &Measured) -> bool {
        (self.get)(measured).is_some()
    }

    /// [`Constants::impossible`] of what was measured.
    pub fn impossible(self, measured: &Measured) -> Option<Impossible> {
        (self.get)(measured)?.impossible()
    }

    /// [`Constants::table`] of what was measured.
    pub fn table(self, measured: &Measured) -> Vec<Vec<String>> {
        (self.get)(measured).map(Figures::table).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A family of one figure, and another one of its name.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct One(f64);
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Other(String);

    impl Constants for One {
        const NAME: &'static str = "one";

        fn measure(_: Cpu) -> Result<Self, ProbeError> {
            Ok(Self(2.0))
        }

        fn impossible(&self) -> Option<Impossible> {
            Impossible::time("the figure", self.0, LEAST_WORD)
        }
    }

    impl Constants for Other {
        const NAME: &'static str = "one";

        fn measure(_: Cpu) -> Result<Self, ProbeError> {
            Err("it cannot be".into())
        }

        fn impossible(&self) -> Option<Impossible> {
            None
        }
    }

    #[test]
    fn families_are_kept_by_name_and_typed_when_they_are_asked_for() {
        let (probe, cpu) = (Probe::of::<One>(), Cpu::detect());
        let mut measured = Measured::default();
        assert!(!probe.is_in(&measured) && probe.impossible(&measured).is_none());
        probe.measure(cpu, &mut measured).unwrap();
        assert_eq!(measured.get(), Some(&One(2.0)));
        let text = serde_json::to_string(&measured).unwrap();
        assert_eq!(text, r#"{"one":2.0}"#);
        let read: Measured = serde_json::from_str(&text).unwrap();
        assert_eq!(read, measured);
        assert_eq!(read.clone().get(), Some(&One(2.0)));
        assert!(
            probe.is_in(&read) && read.get::<Other>().is_none(),
            "the first type that is asked for counts"
        );
        // What no program of today knows stays.
        let foreign = r#"{"of yesterday":[1],"one":"text"}"#;
        let mut read: Measured = serde_json::from_str(foreign).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), foreign);
        assert!(!probe.is_in(&read), "text is no figure");
        probe.measure(cpu, &mut read).unwrap();
        assert!(probe.is_in(&read) && read.0.len() == 2);
        let why = Probe::of::<Other>().measure(cpu, &mut read).unwrap_err().to_string();
        assert_eq!((why.as_str(), probe.is_in(&read)), ("it cannot be", true));
    }

    #[test]
    fn times_that_no_machine_takes_are_told() {
        let told = |seconds: f64| {
            let mut measured = Measured::default();
            measured.insert(One(seconds)).unwrap();
            Probe::of::<One>().impossible(&measured).map(|why| why.to_string())
        };
        assert_eq!(told(LEAST_WORD), None);
        assert_eq!(told(0.0).unwrap(), "the figure: 0.0 ns, where no processor takes less than 0.0 ns");
        for seconds in [1e-13, -1.0, f64::NAN, f64::INFINITY] {
            assert!(told(seconds).is_some(), "{seconds}");
        }
    }
}
