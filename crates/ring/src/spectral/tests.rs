//! Every kernel against sums in 128-bit integers, and against [`spa_gemm`](crate::gemm::spa_gemm).

use super::*;
use crate::cpu::Cpu;
use crate::gemm::spa_gemm;
use crate::planes::LimbPlanes;
use crate::prg::Prg;
use proptest::prelude::*;

/// How the operands are chosen.
#[derive(Clone, Copy, Debug)]
enum Values {
    Random,
    /// The words `-2^(bits-1)` and the most negative weight: the largest sums.
    MostPositive,
    /// The same words and the largest weight.
    MostNegative,
    /// Any extreme at random.
    Mixed,
}

const ALL_VALUES: [Values; 4] = [Values::Random, Values::MostPositive, Values::MostNegative, Values::Mixed];

#[derive(Clone, Debug)]
struct Case {
    n: usize,
    lanes: usize,
    bits: u32,
    weight_bits: u32,
    rows: usize,
    terms: usize,
    outs: usize,
    /// Offsets below this.
    reach: usize,
    values: Values,
}

/// All words, some in the middle of a row of lanes, and parts of several sizes.
fn wanted_of(n: usize) -> Vec<Wanted> {
    let parts = |parts, len| Wanted { parts, len };
    vec![
        Wanted::first(n),
        Wanted::first(n / 2 + 3),
        parts(2, 1),
        Wanted::first(7),
        parts(4, n / 4),
        parts(8, n / 16 + 1),
    ]
}

/// The definition.
fn oracle(bits: u32, rows: &[Vec<u64>], terms: &[Term], weights: &[i16], n: usize) -> Vec<u64> {
    let modulus = 1i128 << bits;
    let mut out = Vec::new();
    for weights in weights.chunks_exact(terms.len()) {
        for j in 0..n {
            let sum: i128 = terms
                .iter()
                .zip(weights)
                .map(|(term, &w)| {
                    let at = j + term.offset as usize;
                    let word = i128::from(rows[term.row as usize][at % n]);
                    i128::from(w) * if at < n { word } else { -word }
                })
                .sum();
            out.push(sum.rem_euclid(modulus) as u64);
        }
    }
    out
}

fn check(case: &Case) {
    let Case { n, lanes, bits, weight_bits, rows: row_count, terms: term_count, outs, reach, values } = *case;
    let mut prg = Prg::derive(&[5; 32], &format!("{case:?}"), &[]);
    let most = (1i16 << (weight_bits - 1)) - 1;
    let rows: Vec<Vec<u64>> = (0..row_count)
        .map(|_| {
            (0..n)
                .map(|_| match (values, prg.next_u64()) {
                    (Values::Random, word) => word,
                    (Values::MostPositive | Values::MostNegative, _) => 1 << (bits - 1),
                    (Values::Mixed, random) => {
                        [1 << (bits - 1), (1 << (bits - 1)) - 1, 0, u64::MAX, 0x8000_8000_8000_8000]
                            [(random % 5) as usize]
                    }
                })
                .collect()
        })
        .collect();
    let mut terms: Vec<Term> = Vec::new();
    while terms.len() < term_count.min(row_count * reach) {
        let term = Term {
            row: (prg.next_u64() % row_count as u64) as u32,
            offset: (prg.next_u64() % reach as u64) as u32,
        };
        if !terms.contains(&term) {
            terms.push(term);
        }
    }
    let weights: Vec<i16> = (0..outs * terms.len())
        .map(|_| {
            let random = prg.next_u64();
            match values {
                Values::Random => ((random % (2 * most as u64 + 1)) as i32 - i32::from(most)) as i16,
                Values::MostPositive => -most,
                Values::MostNegative => most,
                Values::Mixed => [most, -most, 0, 1][(random % 4) as usize],
            }
        })
        .collect();
    let packed = PackedWeights::new(outs, terms.len(), weight_bits, &weights);
    let expected = oracle(bits, &rows, &terms, &weights, n);
    for kernel in Kernel::all(Cpu::detect()) {
        let product = SpectralProduct {
            n,
            bits,
            rows: row_count,
            terms: &terms,
            weight_bits,
            wanted: Wanted::first(n),
        };
        for wanted in wanted_of(n) {
            let plan = Spectral::with_lanes(kernel, SpectralProduct { wanted, ..product }, lanes);
            let plan = plan.expect("a product that six primes cover");
            let transformed = plan.rows(|row, words| words.copy_from_slice(&rows[row]));
            let mut seen = vec![0; outs];
            plan.multiply(&transformed, &plan.weights(&packed), &mut seen, |d, words, seen| {
                let parts = expected[d * n..][..n].chunks(n / wanted.parts);
                let right: Vec<u64> = parts.flat_map(|part| &part[..wanted.len]).copied().collect();
                assert_eq!(words, right, "{kernel:?} {case:?}, {wanted:?} of output {d}");
                seen[0] = 1;
            });
            assert_eq!(seen, vec![1; outs]);
        }
        let plan = Spectral::with_lanes(kernel, product, lanes).expect("as before");
        let prepared = plan.weights(&packed);
        let transformed = plan.rows(|row, words| words.copy_from_slice(&rows[row]));
        let mut out = vec![7; outs * n];
        plan.multiply(&transformed, &prepared, &mut out, |d, words, out| {
            assert_eq!(words, &expected[d * n..][..n], "{kernel:?} {case:?}, output {d}");
            out.copy_from_slice(words);
        });
        // In parts, the last of which may be short.
        for first in (0..outs).step_by(BLOCK) {
            let part = first..(first + BLOCK).min(outs);
            let mut some = vec![7; part.len() * n];
            plan.multiply_part(&transformed, &prepared, part.clone(), &mut some, |d, words, out| {
                assert!(part.contains(&d));
                out.copy_from_slice(words);
            });
            assert!(some == out[first * n..][..some.len()], "{kernel:?} {case:?}, outputs from {first}");
        }
        for (d, (got, expected)) in out.chunks_exact(n).zip(expected.chunks_exact(n)).enumerate() {
            assert_eq!(got, expected, "{kernel:?} {case:?}, output {d}");
        }
    }
    let mut planes = LimbPlanes::new(Kernel::of(Cpu::detect()), bits, row_count, 2 * n);
    rows.iter().enumerate().for_each(|(i, row)| planes.set_row_negacyclic(i, row));
    let mut by_limbs = vec![0; outs * n];
    spa_gemm(&planes, &terms, &packed, n, &mut by_limbs, n);
    assert_eq!(by_limbs, expected, "{case:?}");
}

#[test]
fn limits_of_every_width() {
    for values in ALL_VALUES {
        for (bits, weight_bits, terms) in
            [(48, 12, 890), (54, 12, 600), (48, 15, 300), (32, 8, 100), (64, 2, 50)]
        {
            let base =
                Case { n: 128, lanes: 32, bits, weight_bits, rows: 9, terms, outs: 2, reach: 128, values };
            check(&base);
        }
    }
}

#[test]
fn every_length_of_transform() {
    for log_n in 6..=12 {
        for log_lanes in (log_n - 7).max(5)..log_n {
            let (n, lanes) = (1usize << log_n, 1usize << log_lanes);
            let values = Values::Random;
            check(&Case {
                n,
                lanes,
                bits: 48,
                weight_bits: 12,
                rows: 2,
                terms: 5,
                outs: 2,
                reach: n,
                values,
            });
        }
    }
}

#[test]
fn as_many_pairs_as_fit_between_reductions_and_one_more() {
    for terms in [16, 17, 18, 19, 20, 23, 24, 25, 26, 47, 48, 49, 50] {
        for values in ALL_VALUES {
            let reach = terms;
            check(&Case {
                n: 128,
                lanes: 64,
                bits: 48,
                weight_bits: 12,
                rows: 1,
                terms,
                outs: 9,
                reach,
                values,
            });
        }
    }
}

#[test]
fn what_it_does_not_cover() {
    let term = |row, offset| Term { row, offset };
    let plan = |bits, terms: &[Term], weight_bits| {
        let wanted = Wanted::first(256);
        Spectral::with_lanes(
            Kernel::SCALAR,
            SpectralProduct { n: 256, bits, rows: 3, terms, weight_bits, wanted },
            64,
        )
    };
    let some = [term(0, 0), term(2, 70)];
    assert_eq!(plan(48, &some, 12).map(|plan| (plan.primes(), plan.taps())), Some((5, 2)));
    assert!(plan(48, &some, 16).is_none(), "wide weights");
    assert!(plan(64, &some, 15).is_some());
    let many: Vec<Term> = (0..600).map(|i| term(i / 256, i % 256)).collect();
    assert!(plan(64, &many, 15).is_none(), "sums of 88 bits");
    assert!(plan(48, &[term(1, 5), term(1, 5)], 12).is_none(), "the same term twice");
    assert!(plan(48, &[term(1, 256)], 12).is_none(), "an offset of n");
    // 7x7 maps in distances of 64, 32 of them a row: nine taps instead of 288; and nothing to gain where maps fill the ring.
    let packed: Vec<Term> = (0..288).map(|i| term(0, i / 9 * 64 + i % 9 / 3 * 8 + i % 3)).collect();
    let best = |rows, terms: &[Term], outs| {
        let wanted = Wanted::first(2048);
        let product = SpectralProduct { n: 2048, bits: 48, rows, terms, weight_bits: 12, wanted };
        Spectral::best(Kernel::of(Cpu::detect()), product, outs)
    };
    let plan = best(1, &packed, 512).expect("a packed layer");
    assert!(plan.taps() <= 9, "{} taps", plan.taps());
    let split: Vec<Term> = (0..64).map(|i| term(i, 0)).collect();
    assert!(best(64, &split, 64).is_none());
    assert!(best(1, &[], 64).is_none());
}

/// Rows that are read alike go together, and what is left over two shifts at a time: no lane is read for nothing but the last.
#[test]
fn taps_in_pairs() {
    let terms = |rows: usize, shifts: &[u32]| -> Vec<Term> {
        let of_row = |row| shifts.iter().map(move |&offset| Term { row, offset });
        (0..rows as u32).flat_map(of_row).collect()
    };
    let nine = [0, 1, 2, 8, 9, 10, 16, 17, 18];
    for (rows, shifts, pairs, streams) in
        // The third row alone: 0 and 1, 2 and 8, ..., and at last 18 alone.
        [
            (4, &nine[..], 18, 2),
            (3, &nine[..], 14, 4),
            (1, &[0, 1, 2, 3, 4, 5], 3, 1),
            (1, &[7], 1, 1),
        ]
    {
        let found = Pairs::of(&terms(rows, shifts), 64);
        assert_eq!((found.reads.len(), found.streams.len()), (pairs, streams), "{rows} rows, {shifts:?}");
        assert_eq!(found.numbers.len(), rows * shifts.len());
    }
    // Strided layers: rows of different components have different shifts.
    let mixed = [terms(1, &nine), terms(2, &[3]), terms(4, &[3, 4])[4..].to_vec()].concat();
    let found = Pairs::of(&mixed, 64);
    assert_eq!(found.numbers.len(), 9 + 2 + 4);
}

fn one_term(weight_bits: u32) -> SpectralProduct<'static> {
    let terms = &[Term { row: 0, offset: 3 }];
    SpectralProduct { n: 64, bits: 48, rows: 1, terms, weight_bits, wanted: Wanted::first(64) }
}

#[test]
fn no_outputs() {
    let plan = Spectral::with_lanes(Kernel::of(Cpu::detect()), one_term(12), 32).unwrap();
    let rows = plan.rows(|_, words| words.fill(1));
    plan.multiply(&rows, &plan.weights(&PackedWeights::new(0, 1, 12, &[])), &mut [0u64; 0], |_, _, _| {
        panic!("no output")
    });
}

#[test]
#[should_panic(expected = "weights of 9 bits")]
fn a_wide_weight_is_refused() {
    let plan = Spectral::with_lanes(Kernel::of(Cpu::detect()), one_term(8), 32).unwrap();
    plan.weights(&PackedWeights::new(1, 1, 9, &[-128]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_shape(
        (log_n, log_lanes) in (6usize..11).prop_flat_map(|n| (Just(n), 5.max(n.saturating_sub(7))..n)),
        bits in 1u32..=54,
        weight_bits in 2u32..=15,
        rows in 1usize..6,
        terms in 1usize..80,
        outs in 1usize..36,
        reach_in in 1usize..64,
        values in prop::sample::select(ALL_VALUES.to_vec()),
    ) {
        let n = 1 << log_n;
        let reach = n * reach_in / 64 + 1;
        check(&Case { n, lanes: 1 << log_lanes, bits, weight_bits, rows, terms, outs, reach: reach.min(n), values });
    }
}
