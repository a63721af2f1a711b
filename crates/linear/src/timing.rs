//! How probes are timed, and what is made of the times.

use std::time::{Duration, Instant};

use jaguar_graph::network::{Bias, Weights};
use jaguar_ring::prg::Prg;

/// How often every probe of a linear layer runs. Each takes a millisecond or less, so that most runs are over before
/// anything else wants the core.
pub const REPEATS: usize = 12;

/// A slow or busy machine is content with fewer runs, once a probe has taken this long.
const PATIENCE: Duration = Duration::from_millis(40);

/// But not with fewer than these.
const LEAST_REPEATS: usize = 3;

/// Bits of the probes' weights: what `compile` makes.
pub const WEIGHT_BITS: u32 = 14;

/// Weights of [`WEIGHT_BITS`] bits, of no importance: for so many output channels with so many weights each.
pub fn weights(out_channels: usize, each: usize) -> Weights {
    let mut words = vec![0; out_channels * each];
    Prg::new([1; 32]).fill_words(&mut words, WEIGHT_BITS - 1);
    let middle = 1i64 << (WEIGHT_BITS - 2);
    Weights {
        weights: words.into_iter().map(|w| (w as i64 - middle) as i16).collect(),
        exponents: Vec::new(),
        bias: Bias::PerChannel(vec![1; out_channels]),
    }
}

/// The seconds that something took, and what it made.
pub fn timed<T>(f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = f();
    (start.elapsed().as_secs_f64(), value)
}

/// What several runs of `f` made: [`REPEATS`] of them, or fewer where they take long.
pub fn runs<T>(mut f: impl FnMut() -> T) -> impl Iterator<Item = T> {
    let start = Instant::now();
    (0..REPEATS).take_while(move |&run| run < LEAST_REPEATS || start.elapsed() < PATIENCE).map(move |_| f())
}

/// The least of each of the steps' times: what disturbs a machine only ever adds.
pub fn least<const STEPS: usize>(runs: impl IntoIterator<Item = [f64; STEPS]>) -> [f64; STEPS] {
    let least = |a: [f64; STEPS], b: [f64; STEPS]| std::array::from_fn(|i| a[i].min(b[i]));
    runs.into_iter().fold([f64::INFINITY; STEPS], least)
}

/// A time that a difference of two measurements left: not less than nothing. (Whether it may be nothing,
/// [`Constants::impossible`](crate::constants::Constants::impossible) says.)
pub fn positive(seconds: f64) -> f64 {
    seconds.max(0.0)
}

/// x and y with a·x + b·y = c for both (a, b, c); not less than nothing.
pub fn solve([a, b, c]: [f64; 3], [d, e, f]: [f64; 3]) -> [f64; 2] {
    let determinant = a * e - b * d;
    if determinant == 0.0 {
        // Nothing tells the two apart: they count alike.
        return [positive((c + f) / (a + b + d + e)); 2];
    }
    [positive((c * e - b * f) / determinant), positive((a * f - c * d) / determinant)]
}
