//! What T·d tells of d: what is left to guess, counted for every T. The tables of `docs/protocols/pmax-leaky.md` are
//! these tests': `cargo test -p jaguar-fregata --features pmax-leaky told -- --nocapture` prints them.
//!
//! Who sees P = T·d knows that d is an integer, that T is one from 1 to 2^t, and how large values may be. So d is
//! among the *candidates* P / S, for the divisors S of P up to 2^t that give no larger value.

use jaguar_fregata::pmax_leaky::PmaxLeakyParams;

/// The page that has the tables.
const PAGE: &str = include_str!("../../../../docs/protocols/pmax-leaky.md");

/// What the tables show.
const FACTOR_BITS: std::ops::RangeInclusive<u32> = 1..=8;

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The rows stand on the page, in this order.
#[track_caller]
fn assert_on_the_page(rows: &[String]) {
    println!("{}", rows.join("\n"));
    assert!(PAGE.contains(&rows.join("\n")), "the page has other figures");
}

/// The values that P may stand for, smaller than `limit` in size, in no order.
fn candidates(product: i64, factor_bits: u32, limit: i64) -> impl Iterator<Item = i64> {
    let factors = 1..=1i64 << factor_bits;
    factors.filter(move |s| product % s == 0).map(move |s| product / s).filter(move |d| d.abs() < limit)
}

/// How many candidates T·d leaves on average, over all T and all d of exactly `bits` bits, where values lie below
/// `limit`: counted.
fn mean_candidates(factor_bits: u32, bits: u32, limit: u64) -> f64 {
    let (most, lowest, end) = (1u64 << factor_bits, 1u64 << (bits - 1), 1u64 << bits);
    let pairs = (1..=most).flat_map(|t| (1..=most).map(move |s| (t, s)));
    // S divides T·d where S / gcd(S, T) divides d; and T·d / S < limit.
    let counted = pairs.map(|(t, s)| {
        let (step, end) = (s / gcd(s, t), end.min((limit * s).div_ceil(t)).max(lowest));
        (end - 1) / step - (lowest - 1) / step
    });
    counted.sum::<u64>() as f64 / (most * (end - lowest)) as f64
}

/// The share of pairs of T and d of exactly `bits` bits whose T·d has one candidate, by trying all.
fn unique(factor_bits: u32, bits: u32, limit: i64) -> f64 {
    let (most, values) = (1i64 << factor_bits, 1i64 << (bits - 1)..1i64 << bits);
    let pairs = values.clone().flat_map(|d| (1..=most).map(move |t| t * d));
    let alone = pairs.filter(|&product| candidates(product, factor_bits, limit).nth(1).is_none()).count();
    alone as f64 / (most * (values.end - values.start)) as f64
}

#[test]
fn counting_agrees_with_trying() {
    for (factor_bits, bits) in [(1, 3), (2, 6), (3, 5), (5, 7), (8, 6)] {
        for limit in [1u64 << bits, 1 << (bits + 2), 1 << 40] {
            let values = 1i64 << (bits - 1)..1i64 << bits;
            let all = values.clone().flat_map(|d| (1..=1i64 << factor_bits).map(move |t| t * d));
            let tried: Vec<usize> =
                all.map(|product| candidates(product, factor_bits, limit as i64).count()).collect();
            let mean = tried.iter().sum::<usize>() as f64 / tried.len() as f64;
            assert!((mean_candidates(factor_bits, bits, limit) - mean).abs() < 1e-9);
        }
    }
}

/// Not 2^t values are left, but a few: S must divide T·d.
#[test]
fn one_product_leaves_few_candidates() {
    let row = |factor_bits: u32| {
        // Values of 12, 16 and 24 bits (16, and guard bits) that fill a bit less than there is, or have two bits of
        // room, or many.
        let means = |room: u32| {
            let of = |bits| mean_candidates(factor_bits, bits, 1 << (bits + room));
            let [first, others @ ..] = [12, 16, 24].map(of);
            // How many bits there are makes next to no difference.
            assert!(others.iter().all(|mean| (mean / first - 1.0).abs() < 0.01), "{first} {others:?}");
            others[0]
        };
        format!(
            "| {factor_bits} | {} | {:.1} | {:.1} | {:.1} | {:.0} % |",
            1 << factor_bits,
            means(0),
            means(2),
            means(20),
            100.0 * unique(factor_bits, 12, 1 << 14),
        )
    };
    assert_on_the_page(&FACTOR_BITS.map(row).collect::<Vec<_>>());
}

/// Another value e = d·a / b beside d, a and b coprime: P = T·d may stand for e if T = a·m, for m from 1 to `most`.
struct Other {
    value: i64,
    a: i64,
    most: i64,
}

/// All that any T·d may stand for beside d. (None beside 0.)
fn others(d: i64, factor_bits: u32, limit: i64) -> Vec<Other> {
    let factors = 1i64 << factor_bits;
    let of = |b: i64| {
        (1..=factors).filter(move |&a| a != b && gcd(a as u64, b as u64) == 1).map(move |a| Other {
            value: d / b * a,
            a,
            most: factors / a.max(b),
        })
    };
    let divisors = (1..=factors).filter(|b| d != 0 && d % b == 0);
    divisors.flat_map(of).filter(|other| other.value.abs() < limit).collect()
}

/// For all pairs of factors T and T': how many other values both T·d and T'·(d − c) leave together, on average, and
/// the share of pairs that leaves none.
fn of_two_products(d: i64, c: i64, factor_bits: u32, limit: i64) -> (f64, f64) {
    let factors = 1i64 << factor_bits;
    // By other value: the T and the T' that leave it.
    let mut left: Vec<[(i64, i64); 2]> = Vec::new();
    for other in others(d, factor_bits, limit) {
        let (mine, its) = (d - c, other.value - c);
        if mine.signum() != its.signum() {
            continue;
        }
        // T'·mine = S'·its for some S' up to 2^t.
        let common = gcd(mine.unsigned_abs(), its.unsigned_abs()) as i64;
        let (a, b) = (its.abs() / common, mine.abs() / common);
        if a.max(b) <= factors {
            left.push([(other.a, other.most), (a, factors / a.max(b))]);
        }
    }
    let pairs = factors * factors;
    let counted: i64 = left.iter().map(|[(_, m), (_, n)]| m * n).sum();
    let hit = |t: i64, (a, most): (i64, i64)| t % a == 0 && t / a <= most;
    let mut alone = 0;
    for t in 1..=factors {
        let seconds: Vec<(i64, i64)> =
            left.iter().filter(|[first, _]| hit(t, *first)).map(|[_, second]| *second).collect();
        alone += match seconds.is_empty() {
            true => factors,
            false => (1..=factors).filter(|&t| !seconds.iter().any(|&second| hit(t, second))).count() as i64,
        };
    }
    (counted as f64 / pairs as f64, alone as f64 / pairs as f64)
}

#[test]
fn two_products_are_counted_right() {
    let (factor_bits, limit) = (3, 1 << 8);
    for d in (-40..40).filter(|&d| d != 0 && d != 16) {
        let (mut more, mut alone) = (0, 0);
        for t in 1..=1i64 << factor_bits {
            for u in 1..=1i64 << factor_bits {
                let second: Vec<i64> =
                    candidates(u * (d - 16), factor_bits, 1 << 20).map(|e| e + 16).collect();
                let left = candidates(t * d, factor_bits, limit).filter(|e| second.contains(e)).count();
                assert!(left >= 1);
                more += left - 1;
                alone += usize::from(left == 1);
            }
        }
        let counted = of_two_products(d, 16, factor_bits, limit);
        assert!(
            (counted.0 - more as f64 / 64.0).abs() < 1e-9 && (counted.1 - alone as f64 / 64.0).abs() < 1e-9
        );
    }
}

/// The mean share of pairs of factors that leave nothing but d, over every `step`-th d of at most `bits` bits, of
/// both signs.
fn told_by_relu6(factor_bits: u32, bits: u32, log2_six: u32, step: usize) -> f64 {
    // Values have room for two bits more, and PMax takes the clip.
    let n = bits + 3;
    let params =
        PmaxLeakyParams { log2_six: Some(log2_six), ..PmaxLeakyParams::new(n + factor_bits, factor_bits) };
    params.check().unwrap();
    let (most, c) = (1i64 << bits, 1i64 << log2_six);
    let values: Vec<i64> = (1 - most..most).step_by(step).filter(|&d| d != 0 && d != c).collect();
    let alone = |&d: &i64| of_two_products(d, c, factor_bits, 1 << (n - 1)).1;
    values.iter().map(alone).sum::<f64>() / values.len() as f64
}

/// ReLU6's second product, T'·(d − 2^j), leaves d alone in nearly all cases.
#[test]
fn the_second_product_of_a_relu6_makes_the_value_known() {
    let row = |factor_bits: u32| {
        // 2^j is as large as the largest values, or a quarter of that; without guard bits, and with 8.
        let shares = [(12, 12, 7), (12, 10, 7), (20, 20, 1601), (20, 18, 1601)]
            .map(|(bits, log2_six, step)| told_by_relu6(factor_bits, bits, log2_six, step));
        assert!(shares.iter().all(|&share| share > 0.98), "{shares:?}");
        let [a, b, c, d] = shares.map(|share| format!("{:.2} %", 100.0 * share));
        format!("| {factor_bits} | {a} | {b} | {c} | {d} |")
    };
    assert_on_the_page(&FACTOR_BITS.map(row).collect::<Vec<_>>());
}

/// Numbers that look random, from 1 on, of less than so many bits.
fn numbers(bits: u32) -> impl FnMut() -> i64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        1 + ((state >> 33) % ((1 << bits) - 1)) as i64
    }
}

/// A max-pool behind ReLUs, on windows of two: T·a and T'·b of the ReLUs, and T''·(a − b).
#[test]
fn the_differences_of_a_max_pool_make_values_known() {
    const PAIRS: usize = 2000;
    let row = |factor_bits: u32| {
        let (bits, limit) = (12, 1 << 14);
        let (mut value, mut factor) = (numbers(bits), numbers(factor_bits + 16));
        let factors = 1i64 << factor_bits;
        let mut factor = || factor() % factors + 1;
        // Both units are active: pairs that fit all three products.
        let (mut alone, mut left) = (0, 0);
        for _ in 0..PAIRS {
            let (a, b) = (value(), value());
            let (first, second, difference) = (factor() * a, factor() * b, factor() * (a - b));
            let fits = |a: i64, b: i64| match difference {
                0 => a == b,
                d => a != b && d % (a - b) == 0 && (1..=factors).contains(&(d / (a - b))),
            };
            let of_b: Vec<i64> = candidates(second, factor_bits, limit).collect();
            let pairs = candidates(first, factor_bits, limit)
                .map(|a| of_b.iter().filter(|&&b| fits(a, b)).count())
                .sum::<usize>();
            left += pairs;
            alone += usize::from(pairs == 1);
        }
        // One of the two is not: the difference is another multiple of the other one. Counted, over all a.
        let values = 1i64..1 << bits;
        let counted = values.clone().map(|a| {
            let twice = |other: &Other| (other.most * other.most) as f64;
            others(a, factor_bits, limit).iter().map(twice).sum::<f64>()
        });
        let pairs = (factors * factors * (values.end - values.start)) as f64;
        let of_one = 1.0 + counted.sum::<f64>() / pairs;
        let (left, alone) = (left as f64 / PAIRS as f64, 100.0 * alone as f64 / PAIRS as f64);
        format!("| {factor_bits} | {left:.2} | {alone:.0} % | {of_one:.1} |")
    };
    assert_on_the_page(&FACTOR_BITS.map(row).collect::<Vec<_>>());
}
