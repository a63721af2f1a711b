//! Every kernel against sums in 128-bit integers.

use super::*;
use crate::Prg;
use crate::cpu::Cpu;
use proptest::prelude::*;

/// The definition, without limbs, packing or 64-bit wrap-around.
fn oracle(
    bits: u32,
    rows: &[Vec<u64>],
    terms: &[Term],
    weights: &[i16],
    outs: usize,
    len: usize,
) -> Vec<Vec<u64>> {
    let modulus = 1i128 << bits;
    (0..outs)
        .map(|d| {
            (0..len)
                .map(|j| {
                    let sum: i128 = terms
                        .iter()
                        .zip(&weights[d * terms.len()..])
                        .map(|(term, &w)| {
                            i128::from(w) * i128::from(rows[term.row as usize][term.offset as usize + j])
                        })
                        .sum();
                    sum.rem_euclid(modulus) as u64
                })
                .collect()
        })
        .collect()
}

/// How the operands are chosen.
#[derive(Clone, Copy, Debug)]
enum Values {
    Random,
    /// Words whose limbs are all `-2^15` and the most negative weight: every sum takes its largest value.
    MostPositive,
    /// Limbs `-2^15` and the largest weight: every sum takes its least value.
    MostNegative,
    /// Limbs of `2^15 - 1` and the largest weight.
    AlmostMost,
    /// Any of the extremes at random.
    Mixed,
}

const ALL_VALUES: [Values; 5] =
    [Values::Random, Values::MostPositive, Values::MostNegative, Values::AlmostMost, Values::Mixed];

struct Case {
    bits: u32,
    weight_bits: u32,
    terms: usize,
    outs: usize,
    len: usize,
    values: Values,
}

/// A word whose balanced limbs are all `-2^15`: `w + B = 0` modulo `2^64`.
const ALL_LOW: u64 = 0x8000_8000_8000_8000u64.wrapping_neg();
const ALL_HIGH: u64 = 0x7fff_7fff_7fff_7fff;

fn check(case: &Case) {
    let Case { bits, weight_bits, terms: term_count, outs, len, values } = *case;
    let label = format!("{bits} {weight_bits} {term_count} {outs} {len} {values:?}");
    let mut prg = Prg::derive(&[5; 32], &label, &[]);
    let row_count = term_count.clamp(1, 5);
    let row_len = len + 9;
    let most = max_weight(weight_bits) as i16;
    let mut word = || {
        let random = prg.next_u64();
        match values {
            Values::Random => random,
            Values::MostPositive | Values::MostNegative => ALL_LOW,
            Values::AlmostMost => ALL_HIGH,
            Values::Mixed => [ALL_LOW, ALL_HIGH, 0, u64::MAX, 1 << 47, 1 << 15][(random % 6) as usize],
        }
    };
    let rows: Vec<Vec<u64>> = (0..row_count).map(|_| (0..row_len).map(|_| word()).collect()).collect();
    let terms: Vec<Term> = (0..term_count)
        .map(|_| Term {
            row: (prg.next_u64() % row_count as u64) as u32,
            offset: (prg.next_u64() % (row_len - len + 1) as u64) as u32,
        })
        .collect();
    let weights: Vec<i16> = (0..outs * term_count)
        .map(|_| {
            let random = prg.next_u64();
            match values {
                Values::Random => ((random % (2 * most as u64 + 1)) as i32 - i32::from(most)) as i16,
                Values::MostPositive => -most,
                Values::MostNegative | Values::AlmostMost => most,
                Values::Mixed => [most, -most, 0, 1][(random % 4) as usize],
            }
        })
        .collect();

    let mut planes = LimbPlanes::new(Kernel::of(Cpu::detect()), bits, row_count, row_len);
    for (i, row) in rows.iter().enumerate() {
        planes.set_row(i, row);
    }
    let packed = PackedWeights::new(outs, term_count, weight_bits, &weights);
    for t in 0..term_count {
        let of_term: Vec<u32> = packed.of_term(t).flatten().collect();
        assert!((0..outs).all(|d| of_term[d] == u32::from(weights[d * term_count + t] as u16)));
    }
    for d in 0..outs {
        for t in 0..term_count {
            assert_eq!(packed.weight(d, t), weights[d * term_count + t]);
        }
    }
    let expected = oracle(bits, &rows, &terms, &weights, outs, len);
    let whole = Rows { words: &rows.concat(), row_len, bits };
    let stride = len + 3;
    let mark = 0xdead_beef_dead_beef;
    for kernel in Kernel::all(Cpu::detect()) {
        let mut out = vec![mark; outs * stride + 2];
        spa_gemm_part(kernel, &planes, &terms, &packed, 0..packed.outs(), len, &mut out, stride);
        for (d, expected) in expected.iter().enumerate() {
            assert_eq!(&out[d * stride..][..len], expected, "{kernel:?} {label}, output {d}");
        }
        // What lies between and behind the rows is left alone.
        for (at, &word) in out.iter().enumerate() {
            assert!(
                word == mark || (at / stride < outs && at % stride < len),
                "{kernel:?} {label}: word {at}"
            );
        }
        // In parts, as long as 8 and 16 outputs by turns.
        let (mut first, mut short) = (0, true);
        while first < outs {
            let part = first..outs.min(first + if short { TILE } else { 2 * TILE });
            let mut out = vec![mark; part.len() * stride];
            spa_gemm_part(kernel, &planes, &terms, &packed, part.clone(), len, &mut out, stride);
            for (d, row) in part.clone().zip(out.chunks(stride)) {
                assert_eq!(&row[..len], expected[d], "{kernel:?} {label}, output {d} of {part:?}");
                assert!(row[len..].iter().all(|&word| word == mark), "{kernel:?} {label}, {part:?}");
            }
            (first, short) = (part.end, !short);
        }
        let mut out = vec![mark; outs * len];
        spa_words(kernel, whole, &terms, &packed, len, &mut out);
        assert_eq!(out, expected.concat(), "{kernel:?} {label}, whole words");
    }
}

#[test]
fn limits_of_every_width() {
    for bits in [1, 16, 17, 32, 33, 47, 48, 49, 54, 64] {
        for weight_bits in [2, 8, 12, 15, 16] {
            for values in ALL_VALUES {
                // More terms than fit between two carries, and an odd number of them.
                check(&Case { bits, weight_bits, terms: 77, outs: 9, len: 35, values });
                check(&Case { bits, weight_bits, terms: 77, outs: 1, len: 35, values });
            }
        }
    }
}

#[test]
fn long_reductions_cross_blocks_of_terms() {
    for values in ALL_VALUES {
        check(&Case { bits: 48, weight_bits: 12, terms: 1031, outs: 11, len: 70, values });
        check(&Case { bits: 64, weight_bits: 16, terms: 531, outs: 5, len: 40, values });
        check(&Case { bits: 32, weight_bits: 16, terms: 1031, outs: 5, len: 40, values });
    }
    // Eight-bit weights: 516 terms between two carries.
    check(&Case { bits: 48, weight_bits: 8, terms: 1200, outs: 3, len: 33, values: Values::MostPositive });
}

#[test]
fn large_products_are_spread_over_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    pool.install(|| {
        // Many blocks of positions, and one block with many outputs.
        check(&Case { bits: 48, weight_bits: 12, terms: 45, outs: 27, len: 1003, values: Values::Random });
        check(&Case { bits: 48, weight_bits: 12, terms: 101, outs: 203, len: 61, values: Values::Mixed });
        // One output over many positions takes the direct path in every task.
        check(&Case { bits: 48, weight_bits: 12, terms: 150, outs: 1, len: 4001, values: Values::Random });
    });
}

#[test]
fn negacyclic_rows_multiply_by_powers_of_x() {
    // (3 X^5 - 2) * a modulo X^n + 1, read from the extension [a, -a].
    let (n, bits) = (64usize, 48);
    let mut a = vec![0; n];
    Prg::new([9; 32]).fill_words(&mut a, bits);
    let mut planes = LimbPlanes::new(Kernel::of(Cpu::detect()), bits, 1, 2 * n);
    planes.set_row_negacyclic(0, &a);
    // X^5 a = -(entries n - 5 .. 2n - 5 of the extension): a minus sign that goes into the weight.
    let terms = [Term { row: 0, offset: n as u32 - 5 }, Term { row: 0, offset: 0 }];
    let mut out = vec![0; n];
    spa_gemm(&planes, &terms, &PackedWeights::new(1, 2, 4, &[-3, -2]), n, &mut out, n);
    for (j, &value) in out.iter().enumerate() {
        let shifted = if j >= 5 { a[j - 5] as i128 } else { -(a[n + j - 5] as i128) };
        let expected = (3 * shifted - 2 * a[j] as i128).rem_euclid(1 << bits) as u64;
        assert_eq!(value, expected);
    }
}

#[test]
fn empty_shapes() {
    let planes = LimbPlanes::new(Kernel::of(Cpu::detect()), 48, 1, 8);
    spa_gemm(&planes, &[], &PackedWeights::new(0, 0, 8, &[]), 8, &mut [], 8);
    for kernel in Kernel::all(Cpu::detect()) {
        let mut out = [7; 24];
        spa_gemm_part(kernel, &planes, &[], &PackedWeights::new(3, 0, 8, &[]), 0..3, 8, &mut out, 8);
        assert_eq!(out, [0; 24], "an empty sum is zero");
    }
}

#[test]
#[should_panic(expected = "leaves the source")]
fn a_term_beyond_its_row_is_refused() {
    let planes = LimbPlanes::new(Kernel::of(Cpu::detect()), 48, 1, 8);
    spa_gemm(&planes, &[Term { row: 0, offset: 1 }], &PackedWeights::new(1, 1, 8, &[1]), 8, &mut [0; 8], 8);
}

#[test]
#[should_panic(expected = "does not fit")]
fn a_short_output_is_refused() {
    let planes = LimbPlanes::new(Kernel::of(Cpu::detect()), 48, 1, 8);
    spa_gemm(
        &planes,
        &[Term { row: 0, offset: 0 }],
        &PackedWeights::new(2, 1, 8, &[1, 1]),
        8,
        &mut [0; 15],
        8,
    );
}

#[test]
#[should_panic(expected = "overlap")]
fn overlapping_rows_are_refused() {
    let planes = LimbPlanes::new(Kernel::of(Cpu::detect()), 48, 1, 8);
    spa_gemm(
        &planes,
        &[Term { row: 0, offset: 0 }],
        &PackedWeights::new(2, 1, 8, &[1, 1]),
        8,
        &mut [0; 16],
        7,
    );
}

#[test]
#[should_panic(expected = "4..9 of 9 outputs")]
fn a_part_that_begins_between_tiles_is_refused() {
    let planes = LimbPlanes::new(Kernel::of(Cpu::detect()), 48, 1, 8);
    let (terms, weights) = ([Term { row: 0, offset: 0 }], PackedWeights::new(9, 1, 8, &[1; 9]));
    spa_gemm_part(Kernel::SCALAR, &planes, &terms, &weights, 4..9, 8, &mut [0; 40], 8);
}

#[test]
#[should_panic(expected = "2 outputs of 8 words")]
fn whole_words_for_a_short_output_are_refused() {
    let (words, terms) = ([0; 8], [Term { row: 0, offset: 0 }]);
    let rows = Rows { words: &words, row_len: 8, bits: 48 };
    spa_words(Kernel::SCALAR, rows, &terms, &PackedWeights::new(2, 1, 8, &[1, 1]), 8, &mut [0; 15]);
}

#[test]
#[should_panic(expected = "out of range")]
fn whole_words_beyond_a_row_are_refused() {
    let (words, terms) = ([0; 16], [Term { row: 0, offset: 1 }]);
    let rows = Rows { words: &words, row_len: 8, bits: 48 };
    spa_words(Kernel::SCALAR, rows, &terms, &PackedWeights::new(1, 1, 8, &[1]), 8, &mut [0; 8]);
}

#[test]
#[should_panic(expected = "more than 8 bits")]
fn a_wide_weight_is_refused() {
    PackedWeights::new(1, 2, 8, &[127, -128]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_shape(
        bits in 1u32..=64,
        weight_bits in 2u32..=16,
        terms in 0usize..80,
        outs in 1usize..21,
        len in 1usize..150,
        values in prop::sample::select(ALL_VALUES.to_vec()),
    ) {
        check(&Case { bits, weight_bits, terms, outs, len, values });
    }
}
