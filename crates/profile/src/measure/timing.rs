//! How probes of linear layers are timed, and what is made of the times.

use std::time::{Duration, Instant};

use jaguar_linear::backend::LayerError;
use jaguar_plan::PlanError;

use crate::ProfileError;

/// How often every probe of a linear layer runs. Each takes a millisecond or less, so that most runs are over before
/// anything else wants the core.
pub(super) const REPEATS: usize = 12;

/// A slow or busy machine is content with fewer runs, once a probe has taken this long.
pub(super) const PATIENCE: Duration = Duration::from_millis(40);

/// But not with fewer than these.
pub(super) const LEAST_REPEATS: usize = 3;

/// Bits of the probes' weights: what `compile` makes.
pub(super) const WEIGHT_BITS: u32 = 14;

/// A probe that no ring of the planner can run.
pub(super) fn refused(why: String) -> ProfileError {
    PlanError::Layer { node: 0, name: "probe".into(), source: LayerError::Refused(why) }.into()
}

/// The seconds that something took, and what it made.
pub(super) fn timed<T>(f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = f();
    (start.elapsed().as_secs_f64(), value)
}

/// A time that a difference of two measurements left: not less than nothing.
pub(super) fn positive(seconds: f64) -> f64 {
    seconds.max(1e-13)
}

/// x and y with a·x + b·y = c for both (a, b, c); not less than nothing.
pub(super) fn solve([a, b, c]: [f64; 3], [d, e, f]: [f64; 3]) -> [f64; 2] {
    let determinant = a * e - b * d;
    if determinant == 0.0 {
        // Nothing tells the two apart: they count alike.
        return [positive((c + f) / (a + b + d + e)); 2];
    }
    [positive((c * e - b * f) / determinant), positive((a * f - c * d) / determinant)]
}
