//! The noise that the server adds to guard bits.

/// ν for one value, from 64 random bits: the sum of four numbers that are uniform in `0 .. 2^(g-1)`, less its mean; below
/// 2^g in absolute value, with a standard deviation of `sqrt((4^(g-1) - 1) / 3)`, 0.29 of 2^g (0.25 for
/// g = 2). Zero for g = 0 and 1.
///
/// Unlike a uniform number it has no sharp ends: the largest of many results would tell more of the value below a uniform
/// ν than their mean does.
///
/// # Panics
/// In debug builds, when `guard_bits` exceeds 13.
pub fn guard_noise(random: u64, guard_bits: u32) -> i64 {
    debug_assert!(guard_bits <= 13, "four summands must fit a lane");
    const LANES: u64 = 0x0001_0001_0001_0001;
    let largest = (1u64 << guard_bits.saturating_sub(1)) - 1;
    // Four lanes of 16 bits, summed into the topmost one.
    let sum = (random & (LANES * largest)).wrapping_mul(LANES) >> 48;
    // The mean of four summands is twice the largest of one.
    sum as i64 - 2 * largest as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_their_bounds() {
        assert_eq!(guard_noise(0, 8), -254);
        assert_eq!(guard_noise(u64::MAX, 8), 254);
        assert_eq!((guard_noise(0, 13), guard_noise(u64::MAX, 13)), (-8190, 8190));
        assert_eq!(guard_noise(0x0003_0002_0001_0000, 3), 0);
        for guard_bits in [0, 1] {
            assert_eq!((guard_noise(0, guard_bits), guard_noise(u64::MAX, guard_bits)), (0, 0));
        }
    }
}
