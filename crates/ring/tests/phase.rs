//! The crate's parts together, as the layers above use them: a convolution of both halves of RLWE ciphertexts decrypts
//! to the convolution of the messages.
//!
//! With `b = m + e - a s` for each input channel, `A = sum w X^t a` and `B = sum w X^t b`, the phase `B + A s` is
//! `sum w X^t (m + e)` exactly, modulo `2^48`. The left side takes the limb-plane product and the auxiliary primes, the
//! right side is computed with 128-bit integers.

use jaguar_ring::cpu::Cpu;
use jaguar_ring::{Kernel, LimbPlanes, Multiplier, PackedWeights, Prg, Term, mask, sample, spa_gemm};

const N: usize = 2048;
const BITS: u32 = 48;
const CHANNELS: usize = 3;
const OUTS: usize = 5;
/// Powers of X of a 3 by 3 kernel over rows of 32.
const SHIFTS: [usize; 9] = [0, 1, 2, 32, 33, 34, 64, 65, 66];

/// `sum over c, i of weights[d][c][i] X^SHIFTS[i] poly[c]`, for every d, by the kernel.
fn convolve(polys: &[Vec<u64>], weights: &[i16]) -> Vec<u64> {
    let mut planes = LimbPlanes::new(Kernel::of(Cpu::detect()), BITS, CHANNELS, 2 * N);
    let mut terms = Vec::new();
    for (row, poly) in polys.iter().enumerate() {
        // [p, -p] read from N - t on is -X^t p: with -p in place of p no weight has to change its sign.
        let negated: Vec<u64> = poly.iter().map(|word| word.wrapping_neg()).collect();
        planes.set_row_negacyclic(row, &negated);
        terms.extend(SHIFTS.map(|t| Term { row: row as u32, offset: (N - t) as u32 }));
    }
    let packed = PackedWeights::new(OUTS, terms.len(), 12, weights);
    let mut out = vec![0; OUTS * N];
    spa_gemm(&planes, &terms, &packed, N, &mut out, N);
    out
}

#[test]
fn convolution_commutes_with_decryption() {
    let mut prg = Prg::derive(&[1; 32], "phase", &[]);
    let multiplier = Multiplier::new(Kernel::of(Cpu::detect()), N);
    let mut secret = vec![0i8; N];
    sample::ternary(Kernel::of(Cpu::detect()), &mut prg, &mut secret);
    let key = multiplier.prepare_small(&secret);
    let weights: Vec<i16> =
        (0..OUTS * CHANNELS * SHIFTS.len()).map(|_| (prg.next_u64() % 4095) as i16 - 2047).collect();

    let (mut a_polys, mut b_polys, mut noisy) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CHANNELS {
        let (mut a, mut m, mut a_s) = (vec![0; N], vec![0; N], vec![0; N]);
        let mut e = vec![0i8; N];
        prg.fill_words(&mut a, BITS);
        prg.fill_words(&mut m, BITS);
        sample::noise(Kernel::of(Cpu::detect()), &mut prg, &mut e);
        multiplier.multiply_into(&a, BITS, &key, &mut a_s);
        let m: Vec<u64> = m.iter().zip(&e).map(|(m, &e)| m.wrapping_add(i64::from(e) as u64)).collect();
        b_polys.push(m.iter().zip(&a_s).map(|(m, a_s)| m.wrapping_sub(*a_s)).collect::<Vec<u64>>());
        a_polys.push(a);
        noisy.push(m);
    }

    let (a_out, b_out) = (convolve(&a_polys, &weights), convolve(&b_polys, &weights));
    for d in 0..OUTS {
        let mut expected = vec![0i128; N];
        for (c, poly) in noisy.iter().enumerate() {
            for (i, shift) in SHIFTS.into_iter().enumerate() {
                let weight = i128::from(weights[(d * CHANNELS + c) * SHIFTS.len() + i]);
                for (j, &word) in poly.iter().enumerate() {
                    let product = weight * i128::from(word as i64);
                    if j + shift < N {
                        expected[j + shift] += product
                    } else {
                        expected[j + shift - N] -= product
                    }
                }
            }
        }
        let mut a_s = vec![0; N];
        multiplier.multiply_into(&a_out[d * N..][..N], BITS, &key, &mut a_s);
        for j in 0..N {
            let phase = b_out[d * N + j].wrapping_add(a_s[j]) & mask(BITS);
            assert_eq!(i128::from(phase), expected[j].rem_euclid(1 << BITS), "output {d}, coefficient {j}");
        }
    }
}
