//! Shifts down, and which way they round.

/// The nearest integer to `m / 2^shift`, halves upwards, for shifts of 1 to 63.
pub fn round_shift(m: i64, shift: u32) -> i64 {
    // Without overflow for any m: the bit below the cut says whether to go up.
    (m >> shift) + ((m >> (shift - 1)) & 1)
}

/// `m / 2^shift` as shares make it, rounded up or down: up where the lowest `shift` bits (at most 62) of `share`
/// carry out of the fraction. Of uniform bits that has probability (m mod 2^shift) / 2^shift, so there is no bias.
pub fn shift_by_share(m: i64, shift: u32, share: u64) -> i64 {
    let low = (1u64 << shift) - 1;
    m.wrapping_add((share & low) as i64) >> shift
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rounding_is_to_nearest() {
        for (m, shift, expected) in
            [(5, 1, 3), (-5, 1, -2), (7, 2, 2), (-7, 2, -2), (-9, 2, -2), (i64::MAX, 1, 1 << 62)]
        {
            assert_eq!(round_shift(m, shift), expected, "{m} >> {shift}");
        }
    }

    /// All shares of all fractions: as often as stated.
    #[test]
    fn shares_round_up_as_often_as_stated() {
        for shift in 1..6 {
            for m in -200..200i64 {
                let up =
                    (0..1u64 << shift).filter(|&c| shift_by_share(m, shift, c) == (m >> shift) + 1).count();
                assert_eq!(up as i64, m & ((1 << shift) - 1), "{m} >> {shift}");
                assert!((0..1 << shift).all(|c| shift_by_share(m, shift, c) - (m >> shift) <= 1));
            }
        }
    }

    proptest! {
        #[test]
        fn rounding_is_off_by_half_at_most(m in any::<i64>(), shift in 1u32..40) {
            let error = i128::from(m) - (i128::from(round_shift(m, shift)) << shift);
            prop_assert!(2 * error < 1 << shift && 2 * error >= -(1 << shift));
        }
    }
}
