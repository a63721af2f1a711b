//! Who wins a comparison: of a max-pool, of an argmax.

use crate::semantics::Bracket;
use crate::semantics::sign::seen;

/// What a max-pool whose comparisons leave out the lowest `ignored` bits (at most 62) makes of one channel `x`, `[H,
/// W]`, if `client(i)` is the client's share of value number i in the `bracket`'s numbers (of which only the lowest
/// bits matter): by window, one of its values, below the largest by at most [`pool_slack`] for each level. The
/// largest for `ignored` of 0 and 1.
///
/// # Panics
/// When `x` has not as many values as the bracket has places.
pub fn channel_ignoring(
    bracket: &Bracket,
    x: &[i64],
    ignored: u32,
    client: impl Fn(usize) -> u64,
) -> Vec<i64> {
    assert_eq!(x.len(), bracket.places(), "one value a place");
    // What is compared is the difference and this, so that mistakes are as likely on either side.
    let offset = pool_slack(ignored);
    let mut values = Vec::with_capacity(bracket.values());
    values.extend_from_slice(x);
    for &(a, b) in bracket.levels().iter().flatten() {
        let share = client(a).wrapping_sub(client(b));
        let first = seen(values[a] - values[b] + offset, ignored, share) >= 0;
        values.push(values[if first { a } else { b }]);
    }
    bracket.outputs().iter().map(|&i| values[i]).collect()
}

/// By how much the smaller of two values that win a comparison without the lowest `ignored` bits may lie below the
/// larger.
pub fn pool_slack(ignored: u32) -> i64 {
    ((1i64 << ignored) / 2 - 1).max(0)
}

/// The index of the largest value, the first of equals; 0 for an empty slice.
pub fn argmax<T: PartialOrd + Copy>(values: &[T]) -> usize {
    let mut best = 0;
    for (i, v) in values.iter().enumerate() {
        if *v > values[best] {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of three neighbours, all shares of all its values modulo eight: what comes out, and how often.
    #[test]
    fn reduced_comparisons_err_as_often_as_stated() {
        let spans = [0..1, 0..3];
        let bracket = Bracket::new([1, 3], &spans[..1], &spans[1..]);
        let pool = |x: &[i64], ignored, shares: [u64; 4]| {
            let y = channel_ignoring(&bracket, x, ignored, |i| shares[i]);
            assert_eq!(y.len(), 1);
            y[0]
        };
        let all = || (0..1u64 << 12).map(|i| [i & 7, i >> 3 & 7, i >> 6 & 7, i >> 9]);
        for low in [-5i64, 0, 2] {
            // The larger of two that are t apart loses with probability 1/2 - t/8, wherever it stands; the third is
            // far below.
            for t in 1..6 {
                for x in [[low + t, low, low - 40], [low, low + t, low - 40]] {
                    let lost = all().filter(|&shares| pool(&x, 3, shares) == low).count() as i64;
                    assert_eq!(lost, 4096 * (4 - t).max(0) / 8, "{t} apart");
                    assert!(all().all(|shares| [low, low + t].contains(&pool(&x, 3, shares))));
                    // Nothing is lost where no more than one bit is left out.
                    assert!(all().all(|shares| [0, 1].iter().all(|&s| pool(&x, s, shares) == low + t)));
                }
            }
            // Two levels lose twice the slack at most, and do.
            let x = [low + 6, low + 3, low];
            assert_eq!(all().map(|shares| pool(&x, 3, shares)).min(), Some(x[0] - 2 * pool_slack(3)));
        }
    }
}
