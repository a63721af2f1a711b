//! Times, and what is made of many of them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

/// The middle value, or the mean of the two in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[mid - 1] + values[mid]) / 2.0 } else { values[mid] }
}

/// The median of each figure.
pub fn medians<T, const N: usize>(runs: &[T], figures: [fn(&T) -> f64; N]) -> [f64; N] {
    figures.map(|figure| median(runs.iter().map(figure)))
}

/// What `f` gives, and the milliseconds that it took.
pub fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = black_box(f());
    (value, start.elapsed().as_secs_f64() * 1e3)
}

/// The least seconds of a call of `f`, over `repeats` batches of `batch` calls, after one call to warm up.
pub fn least_seconds(repeats: usize, batch: usize, mut f: impl FnMut()) -> f64 {
    f();
    let batches = (0..repeats).map(|_| {
        let start = Instant::now();
        (0..batch).for_each(|_| f());
        start.elapsed().as_secs_f64() / batch as f64
    });
    batches.fold(f64::INFINITY, f64::min)
}

/// The mean seconds on a core of a call of `f` on this thread, after one call to warm up; where the system does not tell them,
/// the least elapsed ones. The calls together should take a tenth of a second or more.
pub fn busy_seconds(repeats: usize, mut f: impl FnMut()) -> f64 {
    f();
    let (mut busy, mut least) = (0.0, f64::INFINITY);
    for _ in 0..repeats {
        let start = Start::now();
        f();
        let span = start.span();
        busy += span.busy.as_secs_f64();
        least = least.min(span.elapsed.as_secs_f64());
    }
    if busy > 0.0 { busy / repeats as f64 } else { least }
}

/// A geometric mean with its range.
#[derive(Clone, Copy, Serialize)]
pub struct Ratio {
    pub mean: f64,
    pub least: f64,
    pub most: f64,
}

impl Ratio {
    /// `None` of nothing.
    pub fn new(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| Self {
            mean: (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp(),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(0.0, f64::max),
        })
    }

    pub fn text(ratio: Option<Self>) -> String {
        ratio.map_or("-".into(), |r| {
            format!("{} ({}–{})", significant(r.mean), significant(r.least), significant(r.most))
        })
    }
}

/// Three significant digits, without an exponent.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { "-".into() };
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.digits$}")
}

/// How long something took.
#[derive(Clone, Copy)]
pub struct Span {
    pub elapsed: Duration,
    /// Of it, the time that this thread had a core. Zero where the system does not tell.
    pub busy: Duration,
}

/// The beginning of a [`Span`].
pub struct Start {
    at: Instant,
    busy: Duration,
}

impl Start {
    pub fn now() -> Self {
        Self { at: Instant::now(), busy: on_a_core() }
    }

    pub fn span(&self) -> Span {
        Span { elapsed: self.at.elapsed(), busy: on_a_core().saturating_sub(self.busy) }
    }
}

/// How long this thread has had a core since it began, to within some milliseconds.
fn on_a_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn geometric_means() {
        let ratio = Ratio::new([0.5, 8.0].into_iter()).unwrap();
        assert!((ratio.mean - 2.0).abs() < 1e-12 && ratio.least == 0.5 && ratio.most == 8.0);
        assert!(Ratio::new(std::iter::empty()).is_none());
    }

    #[test]
    fn three_digits() {
        let texts = [0.0, 0.001_234, 0.0999, 1.0, 23.456, 999.9, 12_345.6].map(significant);
        assert_eq!(texts, ["0", "0.00123", "0.0999", "1.00", "23.5", "1000", "12346"]);
        assert_eq!(significant(f64::NAN), "-");
    }
}
