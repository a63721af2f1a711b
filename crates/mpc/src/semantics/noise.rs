//! The noise that the server adds to what it opens.

/// ν for one opened value, from two random words: the sum of four numbers that are uniform in `0 .. 2^bits`, less its mean; at most
/// `2^(bits + 1) - 2` in absolute value, with a standard deviation of `sqrt((4^bits - 1) / 3)`. Zero for `bits` = 0.
///
/// Every integer between the bounds can come. A noise of wider steps than the values' own would show what moves them by less than a
/// step. And unlike a uniform number it has no sharp ends: the largest of many results would tell more of the value below a uniform ν
/// than their mean does.
///
/// # Panics
/// In debug builds, when `bits` exceeds 32.
pub fn opened_noise(random: [u64; 2], bits: u32) -> i64 {
    debug_assert!(bits <= 32, "a summand must fit half a word");
    let largest = (1i64 << bits) - 1;
    let sum: i64 = random.iter().map(|&word| (word as i64 & largest) + ((word >> 32) as i64 & largest)).sum();
    // The mean of four summands is twice the largest of one.
    sum - 2 * largest
}

#[cfg(test)]
mod tests {
    use jaguar_ring::prg::Prg;

    use super::*;

    #[test]
    fn sums_have_their_bounds() {
        let ends = |bits| [[0; 2], [u64::MAX; 2]].map(|random| opened_noise(random, bits));
        assert_eq!(ends(11), [-4094, 4094]);
        assert_eq!(ends(30), [2 - (1 << 31), (1 << 31) - 2]);
        assert_eq!(opened_noise([1 << 32, 3 << 32 | 2], 2), 0);
        assert_eq!(ends(0), [0, 0]);
    }

    #[test]
    fn noise_has_the_distribution_that_is_claimed() {
        for bits in [1, 5, 11, 15] {
            let mut words = vec![0u64; 200_000];
            Prg::derive(&[3; 32], "noise", &[u64::from(bits)]).fill_u64(&mut words);
            let noise: Vec<f64> =
                words.as_chunks().0.iter().map(|&words| opened_noise(words, bits) as f64).collect();
            let moment = |k| noise.iter().map(|v| v.powi(k)).sum::<f64>() / noise.len() as f64;
            let variance = (4f64.powi(bits as i32) - 1.0) / 3.0;
            assert!(moment(1).abs() < 0.02 * variance.sqrt(), "{bits}: {}", moment(1));
            assert!((moment(2) / variance - 1.0).abs() < 0.02, "{bits}: {}", moment(2));
            // Of four uniform numbers: 3 − 6/5/4 = 2.7, where one has 1.8 and a Gaussian 3. (Of single bits it is less.)
            if bits > 4 {
                let kurtosis = moment(4) / moment(2).powi(2);
                assert!((2.65..2.75).contains(&kurtosis), "{bits}: {kurtosis}");
            }
            // Odd and even values are equally likely: there is no wider step.
            let odd = noise.iter().filter(|v| v.rem_euclid(2.0) == 1.0).count() as f64 / noise.len() as f64;
            assert!((odd - 0.5).abs() < 0.01, "{bits}: {odd}");
            // Neighbours know nothing of each other.
            let products = noise.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / noise.len() as f64;
            assert!(products.abs() < 0.02 * variance, "{bits}");
        }
    }
}
