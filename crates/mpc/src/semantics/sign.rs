//! ReLU and ReLU6, on signed integers.

/// max(x, 0).
pub const fn relu(x: i64) -> i64 {
    if x > 0 { x } else { 0 }
}

/// `x` clipped to `0 ..= 2^log2_six`, for `log2_six` of at most 62.
pub fn relu6(x: i64, log2_six: u32) -> i64 {
    x.clamp(0, 1 << log2_six)
}

/// What a sign that leaves out the lowest `ignored` bits (at most 62) takes for ⌊x / 2^ignored⌋: one less if the
/// lowest bits of both parties' shares carry. `client` is the client's share; only its lowest bits matter. If they
/// are uniform, the carry has probability `1 - (x mod 2^ignored + 1) / 2^ignored`.
pub(crate) fn seen(x: i64, ignored: u32, client: u64) -> i64 {
    let low = (1u64 << ignored) - 1;
    (x >> ignored) - i64::from(client & low > x as u64 & low)
}

/// What a ReLU whose sign leaves out the lowest `ignored` bits makes of x, if `client` is the client's share of it
/// (of which only the lowest bits matter): 0 or x where `0 <= x < 2^ignored - 1`, and max(x, 0) elsewhere.
pub fn relu_ignoring(x: i64, ignored: u32, client: u64) -> i64 {
    if seen(x, ignored, client) >= 0 { x } else { 0 }
}

/// As [`relu_ignoring`] with a clip at 2^log2_six, from which x may remain where `2^log2_six < x < 2^log2_six +
/// 2^ignored - 1`. For `ignored < log2_six`.
pub fn relu6_ignoring(x: i64, log2_six: u32, ignored: u32, client: u64) -> i64 {
    match seen(x, ignored, client) {
        ..0 => 0,
        seen if seen >> (log2_six - ignored) > 0 => 1 << log2_six,
        _ => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All shares of all values of eight bits: what comes out, and how often, is what the header of
    /// `mpc/src/protocols/relu.rs` states.
    #[test]
    fn signs_of_reduced_precision_err_as_often_as_stated() {
        for ignored in 0..5u32 {
            let (whole, six) = (1i64 << ignored, 5u32);
            for x in -100..100 {
                let share = |c: i64| relu_ignoring(x, ignored, c as u64);
                let lost = (0..whole).filter(|&c| share(c) != x.max(0)).count() as i64;
                assert!((0..whole).all(|c| share(c) == x.max(0) || share(c) == 0));
                let expected = if (1..whole).contains(&x) { whole - (x + 1) } else { 0 };
                assert_eq!(lost, expected, "{x} without {ignored} bits");

                let share = |c: i64| relu6_ignoring(x, six, ignored, c as u64);
                let over = x - (1 << six);
                let kept = if (1..whole).contains(&over) { whole - (over + 1) } else { 0 };
                let got: Vec<i64> = (0..whole).map(share).filter(|&y| y != x.clamp(0, 1 << six)).collect();
                assert_eq!(got.len() as i64, expected + kept, "{x} without {ignored} bits");
                assert!(got.iter().all(|&y| y == if expected > 0 { 0 } else { x }));
            }
        }
    }
}
