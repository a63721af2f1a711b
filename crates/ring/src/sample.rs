//! Coefficients of secrets and of noise.
//!
//! | distribution | support | variance | used for |
//! |---|---|---|---|
//! | [`ternary`] | -1, 0, 1, each with probability 1/3 exactly | 2/3 | secret keys, the `u` of a zero-encryption |
//! | [`noise`] | -21..=21, centred binomial with eta = 21 | 10.5 (sigma 3.24) | RLWE errors |
//!
//! The standard's errors have sigma = 3.2 (Homomorphic Encryption Security Standard, 2018, section 2.1); a centred
//! binomial of slightly larger variance replaces the discrete Gaussian as in NewHope and Kyber: only the variance
//! enters the attacks' estimates, and it needs neither tables nor branches.
//!
//! Time: `noise` takes the same time for all outputs. `ternary` takes time that depends on the rejected bytes only,
//! which are independent of the accepted ones.

use crate::cpu::secret::declassify;

use crate::kernel::Kernel;
use crate::prg::Prg;
use crate::simd::{Line, wipe};
use zeroize::Zeroize;

/// Number of coins on each side of the binomial; also the largest magnitude of [`noise`].
pub const NOISE_ETA: u32 = 21;

/// `3^5`: a byte below it holds five uniform ternary digits.
const FIVE_DIGITS: u8 = 243;

/// Bytes whose digits are taken together: their first digits, then their second ones, and so on.
const BLOCK: usize = 512;

/// Small coefficients of one polynomial. Secret: zeroised on drop, no `Debug`, not `Clone`.
pub(crate) struct SmallPoly {
    n: usize,
    lines: Vec<Line>,
}

impl SmallPoly {
    /// A polynomial of n zeros.
    pub(crate) fn new(n: usize) -> SmallPoly {
        SmallPoly { n, lines: vec![Line::ZERO; n.div_ceil(size_of::<Line>())] }
    }

    /// The coefficients.
    pub(crate) fn coefficients(&self) -> &[i8] {
        &bytemuck::cast_slice(&self.lines)[..self.n]
    }

    /// The coefficients, to be written.
    pub(crate) fn coefficients_mut(&mut self) -> &mut [i8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.n]
    }
}

crate::simd::wipe_on_drop!(SmallPoly.lines);

/// Fills `out` with independent, exactly uniform values of {-1, 0, 1}: the same ones on every kernel.
pub fn ternary(kernel: Kernel, prg: &mut Prg, out: &mut [i8]) {
    const MOST: usize = BLOCK * 17 / 16 + 2;
    let (mut bytes, mut accepted) = ([0u8; MOST], [0u8; BLOCK + MOST]);
    for block in out.chunks_mut(5 * BLOCK) {
        let wanted = block.len().div_ceil(5);
        let mut count = 0;
        while count < wanted {
            // As many bytes as are still wanted, a sixteenth more for those that will be rejected.
            let bytes = &mut bytes[..(wanted - count) * 17 / 16 + 2];
            prg.fill(bytes);
            for &byte in &*bytes {
                accepted[count] = byte;
                count += usize::from(byte < FIVE_DIGITS);
            }
            // How many were refused tells nothing of the others: they are independent.
            declassify(std::slice::from_mut(&mut count));
        }
        for digits in block.chunks_mut(wanted) {
            next_digit(kernel, &mut accepted[..wanted], digits);
        }
    }
    wipe(&mut bytes);
    wipe(&mut accepted);
}

/// `value / 3` for `value < 256`, by a multiplication: divisions take time that depends on their operands.
#[inline(always)]
fn third(value: u16) -> u16 {
    (value * 171) >> 9
}

/// Takes the lowest ternary digit out of each value and writes it, minus one. Compilers turn it into vectors.
#[inline(always)]
fn next_digit_lanes<S>(_: S, values: &mut [u8], digits: &mut [i8]) {
    for (value, digit) in values.iter_mut().zip(digits) {
        let quotient = third(u16::from(*value)) as u8;
        *digit = value.wrapping_sub(quotient.wrapping_mul(3)).wrapping_sub(1) as i8;
        *value = quotient;
    }
}

crate::simd::multiversion! {
    fn next_digit(values: &mut [u8], digits: &mut [i8]) = next_digit_lanes;
}

/// Fills `out` with independent values of the centred binomial distribution with [`NOISE_ETA`] coins a side: the same ones on
/// every kernel.
pub fn noise(kernel: Kernel, prg: &mut Prg, out: &mut [i8]) {
    let mut words = [0u64; 256];
    for piece in out.chunks_mut(words.len()) {
        let words = &mut words[..piece.len()];
        prg.fill_u64(words);
        // Arm counts bits in one instruction.
        count_coins(kernel.unless_neon(), words, piece);
    }
    words.zeroize();
}

/// Coins of one side.
const COINS: u64 = (1 << NOISE_ETA) - 1;

/// The lowest [`NOISE_ETA`] coins of each word minus the next [`NOISE_ETA`].
fn count_coins_scalar(words: &[u64], out: &mut [i8]) {
    for (value, word) in out.iter_mut().zip(words) {
        let heads = (word & COINS).count_ones() as i32;
        let tails = ((word >> NOISE_ETA) & COINS).count_ones() as i32;
        *value = (heads - tails) as i8;
    }
}

/// The same in 32-bit lanes by sums of neighbouring fields, which compilers turn into vectors.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn count_coins_lanes<S>(_: S, words: &[u64], out: &mut [i8]) {
    for (value, &word) in out.iter_mut().zip(words) {
        let heads = (word & COINS) as u32;
        let tails = ((word >> NOISE_ETA) & COINS) as u32;
        // popcount(heads) - popcount(tails), with 32 - popcount(!tails) for the latter.
        *value = (ones(heads) + ones(!tails)) as i8 - 32;
    }
}

/// Number of ones of a 32-bit word.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn ones(x: u32) -> u32 {
    let x = x - ((x >> 1) & 0x5555_5555);
    let x = (x & 0x3333_3333) + ((x >> 2) & 0x3333_3333);
    let x = (x + (x >> 4)) & 0x0f0f_0f0f;
    x.wrapping_mul(0x0101_0101) >> 24
}

crate::simd::multiversion! {
    fn count_coins(words: &[u64], out: &mut [i8]) = count_coins_lanes, scalar count_coins_scalar;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;

    const COUNT: usize = 300_000;

    /// Pearson's statistic of `counts` against `expected`.
    fn chi_square(counts: &[f64], expected: &[f64]) -> f64 {
        counts.iter().zip(expected).map(|(c, e)| (c - e) * (c - e) / e).sum()
    }

    #[test]
    fn thirds() {
        for value in 0..256 {
            assert_eq!(third(value), value / 3);
        }
        for kernel in Kernel::all(Cpu::detect()) {
            let mut values: Vec<u8> = (0..=255).collect();
            for power in [1u32, 3, 9, 27, 81] {
                let mut digits = vec![9i8; 256];
                next_digit(kernel, &mut values, &mut digits);
                for (value, digit) in digits.into_iter().enumerate() {
                    assert_eq!(i32::from(digit), (value as u32 / power % 3) as i32 - 1, "{kernel:?}");
                }
            }
        }
    }

    #[test]
    fn ternary_is_uniform_in_pairs() {
        let mut out = vec![0i8; COUNT];
        ternary(Kernel::of(Cpu::detect()), &mut Prg::new([1; 32]), &mut out);
        // Neighbours, and the digits of one byte: nine cells, eight degrees of freedom.
        for distance in [1, 2, 3, BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK] {
            let mut cells = [0.0; 9];
            for i in 0..COUNT - distance {
                assert!((-1..=1).contains(&out[i]));
                cells[((out[i] + 1) * 3 + out[i + distance] + 1) as usize] += 1.0;
            }
            let expected = [(COUNT - distance) as f64 / 9.0; 9];
            // P(chi2(8) > 40) is 3e-6; a bias of 1 % of a cell would give about 30 on top.
            assert!(chi_square(&cells, &expected) < 40.0, "distance {distance}: {cells:?}");
        }
    }

    #[test]
    fn ternary_of_every_short_length_is_a_prefix_of_nothing_stale() {
        for len in 0..40 {
            let mut out = vec![99i8; len];
            ternary(Kernel::of(Cpu::detect()), &mut Prg::new([2; 32]), &mut out);
            assert!(out.iter().all(|value| (-1..=1).contains(value)));
        }
    }

    #[test]
    fn every_kernel_counts_alike() {
        let mut words = vec![0; 1003];
        Prg::new([4; 32]).fill_u64(&mut words);
        words[..4].copy_from_slice(&[0, u64::MAX, COINS, COINS << NOISE_ETA]);
        let mut reference = vec![0; words.len()];
        count_coins(Kernel::SCALAR, &words, &mut reference);
        assert_eq!(reference[..4], [0, 0, 21, -21]);
        for kernel in Kernel::all(Cpu::detect()) {
            let mut out = vec![0; words.len()];
            count_coins(kernel, &words, &mut out);
            assert_eq!(out, reference, "{kernel:?}");
        }
    }

    #[test]
    fn every_kernel_draws_the_same() {
        for draw in [ternary, noise] {
            let mut reference = vec![99; 5003];
            draw(Kernel::SCALAR, &mut Prg::new([5; 32]), &mut reference);
            for kernel in Kernel::all(Cpu::detect()) {
                let mut out = vec![99; 5003];
                draw(kernel, &mut Prg::new([5; 32]), &mut out);
                assert_eq!(out, reference, "{kernel:?}");
            }
        }
    }

    #[test]
    fn noise_is_binomial() {
        let mut out = vec![0i8; COUNT];
        noise(Kernel::of(Cpu::detect()), &mut Prg::new([3; 32]), &mut out);
        // The difference of two binomials(21, 1/2) plus 21 is binomial(42, 1/2).
        let mut probability = vec![0.5f64.powi(42)];
        for i in 1..=42 {
            let last = probability[i - 1];
            probability.push(last * (43 - i) as f64 / i as f64);
        }
        let mut counts = [0.0; 43];
        for &value in &out {
            assert!(i32::from(value).unsigned_abs() <= NOISE_ETA);
            counts[(i32::from(value) + 21) as usize] += 1.0;
        }
        // The tails beyond 12 in magnitude are pooled; 25 + 2 cells, 26 degrees of freedom.
        let pool = |cells: &[f64]| -> Vec<f64> {
            let mut pooled = cells[9..34].to_vec();
            pooled.push(cells[..9].iter().sum());
            pooled.push(cells[34..].iter().sum());
            pooled
        };
        let expected: Vec<f64> = pool(&probability).iter().map(|p| p * COUNT as f64).collect();
        // P(chi2(26) > 75) is 1e-6.
        assert!(chi_square(&pool(&counts), &expected) < 75.0);
        let mean = out.iter().map(|&v| f64::from(v)).sum::<f64>() / COUNT as f64;
        let variance = out.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / COUNT as f64;
        // Six standard deviations: sqrt(10.5 / COUNT), and about 10.5 * sqrt(2 / COUNT).
        assert!(mean.abs() < 6.0 * (10.5 / COUNT as f64).sqrt(), "mean {mean}");
        assert!((variance - 10.5).abs() < 6.0 * 10.5 * (2.0 / COUNT as f64).sqrt(), "variance {variance}");
    }
}
