//! Times, and what is made of many of them.

use std::hint::black_box;
use std::time::Instant;

use jaguar_profile::busy;
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

/// What `f` gives, and the milliseconds that it took, from beginning to end.
pub fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = black_box(f());
    (value, start.elapsed().as_secs_f64() * 1e3)
}

/// The same, but the milliseconds on cores, of all threads that do it: other load hardly counts.
pub fn timed_busy<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let (span, value) = busy::timed(|| black_box(f()));
    (value, span.busy.as_secs_f64() * 1e3)
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

/// The mean seconds on cores of a call of `f`, of all threads that do its work ([`jaguar_profile::busy`]), after one
/// call to warm up.
pub fn busy_seconds(repeats: usize, mut f: impl FnMut()) -> f64 {
    f();
    let (span, ()) = busy::timed(|| (0..repeats).for_each(|_| f()));
    span.busy.as_secs_f64() / repeats as f64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    /// What a pool does while the caller waits is the caller's work.
    #[test]
    fn work_on_a_pool_counts() {
        const WORK: std::time::Duration = std::time::Duration::from_millis(30);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let work = || {
            let start = busy::Start::now();
            while start.span().busy < WORK {}
        };
        let told = busy_seconds(2, || pool.install(work));
        assert!(told >= WORK.as_secs_f64(), "{told}");
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
