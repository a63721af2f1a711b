//! Every protocol against its plaintext reference, with its cost.

mod common;

use std::sync::Arc;

use common::{Seen, both, share, words};
use jaguar_mpc::cost::Cost;
use jaguar_mpc::reference::{self, open, residue, signed};
use jaguar_mpc::semantics::{Beyond, Matrices, Pieces};
use jaguar_mpc::*;
use jaguar_ot::Role;
use proptest::prelude::*;

fn of<T>(role: Role, pair: &[Vec<T>; 2]) -> &[T] {
    &pair[usize::from(role == Role::Server)]
}

/// 2^bits.
fn ring(bits: u32) -> Modulus {
    Modulus::power_of_two(bits)
}

/// The counters of both parties are those of the cost table.
#[track_caller]
fn assert_cost(seen: [Seen; 2], want: Cost) {
    let [client, server] = seen;
    assert_eq!(client.drawn, (want.from_client(), want.from_server()), "correlations");
    assert_eq!(server.drawn, (want.from_server(), want.from_client()), "correlations");
    let prepared = (client.prepared.sent, client.prepared.received);
    assert_eq!(prepared, (want.prepare_up, want.prepare_down), "preparation, client");
    let prepared = (server.prepared.sent, server.prepared.received);
    assert_eq!(prepared, (want.prepare_down, want.prepare_up), "preparation, server");
    assert_eq!((client.online.sent, client.online.received), (want.up, want.down), "online, client");
    assert_eq!((server.online.sent, server.online.received), (want.down, want.up), "online, server");
    assert_eq!(client.online.rounds, want.client_rounds, "rounds of the client");
    assert_eq!(server.online.rounds, want.server_rounds, "rounds of the server");
}

/// What `count` values cost by the table.
fn priced<P>(count: usize, params: P) -> Cost
where
    Elementwise<P>: Nonlinear,
{
    Elementwise { count, params }.cost()
}

/// Runs a protocol on shares mod 2^bits and adds up its results modulo `out`.
fn on_shares<P>(
    shares: &[Vec<u64>; 2],
    out: Modulus,
    want: Cost,
    prepare: impl Fn(&mut common::TestParty, &mut jaguar_wire::Channel) -> Result<P, MpcError> + Sync,
    run: impl Fn(P, &mut jaguar_wire::Channel, &[u64]) -> Result<Vec<u64>, MpcError> + Sync,
) -> Vec<i64> {
    let count = shares[0].len();
    let [(c, seen_c), (s, seen_s)] =
        both(count as u64 + 1, prepare, |p, role, chan| run(p, chan, of(role, shares)));
    assert_cost([seen_c, seen_s], want);
    assert!(c.iter().chain(&s).all(|&x| x == out.reduce(x)), "shares are reduced");
    c.iter().zip(&s).map(|(&c, &s)| out.open(c, s)).collect()
}

fn relu(shares: &[Vec<u64>; 2], params: ReluParams) -> Vec<i64> {
    let n = shares[0].len();
    let want = priced(n, params);
    on_shares(shares, params.output, want, |p, c| Relu::prepare(p, c, n, params), Relu::run)
}

fn relu6(shares: &[Vec<u64>; 2], params: Relu6Params) -> Vec<i64> {
    let n = shares[0].len();
    let want = priced(n, params);
    on_shares(shares, params.output, want, |p, c| Relu6::prepare(p, c, n, params), Relu6::run)
}

/// All pairs of shares mod 2^bits.
fn all_shares(bits: u32) -> [Vec<u64>; 2] {
    (0..1u64 << (2 * bits)).map(|i| (i >> bits, i & ((1 << bits) - 1))).unzip::<_, _, Vec<_>, Vec<_>>().into()
}

fn opened(shares: &[Vec<u64>; 2], bits: u32) -> Vec<i64> {
    shares[0].iter().zip(&shares[1]).map(|(&c, &s)| open(c, s, bits)).collect()
}

/// The extremes, their neighbours, and random values in −2^(bits−1)..2^(bits−1).
fn interesting(bits: u32, count: usize, seed: u64) -> Vec<i64> {
    let top = 1i64 << (bits - 1);
    let mut values = vec![0, 1, -1, 2, -2, top - 1, top - 2, -top, 1 - top, top / 2, -top / 2, top / 2 - 1];
    values.extend(words(seed, count).iter().map(|&w| signed(w, bits)));
    values
}

#[test]
fn relu_on_all_small_shares() {
    for (bits, out_bits, digit) in
        [(3, 3, 4), (3, 9, 1), (6, 6, 4), (6, 6, 1), (6, 20, 2), (7, 30, 3), (7, 7, 3), (5, 37, 4)]
    {
        let shares = all_shares(bits);
        let want: Vec<i64> = opened(&shares, bits).iter().map(|&x| reference::relu(x)).collect();
        assert_eq!(
            relu(&shares, ReluParams { output: ring(out_bits), digit, ..ReluParams::new(bits) }),
            want,
            "{bits} {out_bits} {digit}"
        );
    }
}

#[test]
fn relu6_on_all_small_shares() {
    for (bits, out_bits, digit) in [(6, 6, 4), (6, 17, 1), (7, 7, 2), (7, 20, 3), (3, 3, 4)] {
        let shares = all_shares(bits);
        for log2_six in 1..=bits - 2 {
            let params = Relu6Params { output: ring(out_bits), digit, ..Relu6Params::new(bits, log2_six) };
            let want: Vec<i64> =
                opened(&shares, bits).iter().map(|&x| reference::relu6(x, log2_six)).collect();
            assert_eq!(relu6(&shares, params), want, "{params:?}");
        }
    }
}

#[test]
fn activations_at_real_widths() {
    for (bits, out_bits) in [
        (12, 12),
        (12, 40),
        (16, 16),
        (16, 30),
        (20, 20),
        (20, 40),
        (24, 24),
        (24, 56),
        (32, 32),
        (37, 37),
        (37, 49),
        (40, 63),
    ] {
        for digit in [2, 3, 4] {
            let values = interesting(bits, 1000, u64::from(bits + out_bits));
            let mut shares = share(&values, bits, 5);
            // The shares' own extremes.
            for i in 0..12 {
                shares[0][i] = [0, (1 << bits) - 1, 1 << (bits - 1)][i % 3];
                shares[1][i] = residue(values[i] - shares[0][i] as i64, bits);
            }
            let want: Vec<i64> = values.iter().map(|&x| reference::relu(x)).collect();
            assert_eq!(
                relu(&shares, ReluParams { output: ring(out_bits), digit, ..ReluParams::new(bits) }),
                want,
                "{bits} {out_bits} {digit}"
            );
            let lowest = 1.max((2 * bits).saturating_sub(64));
            for log2_six in [lowest, lowest + 4, bits - 5, bits - 3, bits - 2] {
                let want: Vec<i64> = values.iter().map(|&x| reference::relu6(x, log2_six)).collect();
                let params =
                    Relu6Params { output: ring(out_bits), digit, ..Relu6Params::new(bits, log2_six) };
                assert_eq!(relu6(&shares, params), want, "{params:?}");
            }
        }
    }
}

#[test]
fn a_relu_that_ignores_low_bits_errs_as_stated() {
    for (bits, out_bits, ignored, digit) in [(6, 6, 1, 4), (6, 20, 3, 2), (7, 7, 5, 3), (16, 30, 3, 4)] {
        let shares = if bits < 8 {
            all_shares(bits)
        } else {
            let mut values = interesting(bits, 4000, 3);
            values.iter_mut().skip(2000).for_each(|v| *v %= 16);
            share(&values, bits, 4)
        };
        let got = relu(&shares, ReluParams { bits, output: ring(out_bits), digit, ignored });
        let mut wrong = 0;
        for (i, y) in got.into_iter().enumerate() {
            let (c, s) = (shares[0][i], shares[1][i]);
            let x = open(c, s, bits);
            if x < (1 << ignored) - (1 << (bits - 1)) {
                continue;
            }
            assert_eq!(y, reference::relu_ignoring(c, s, bits, ignored), "{x}");
            if y != reference::relu(x) {
                assert!(y == 0 && (0..(1 << ignored) - 1).contains(&x), "{x} gave {y}");
                wrong += 1;
            }
        }
        assert_eq!(wrong > 0, ignored > 1, "one bit makes no difference, more do");
    }
}

#[test]
fn a_relu6_that_ignores_low_bits_errs_as_stated() {
    for (bits, out_bits, ignored, log2_six) in [(6, 6, 1, 3), (6, 6, 1, 4), (7, 20, 1, 2), (7, 7, 3, 4)] {
        let shares = all_shares(bits);
        let params = Relu6Params { output: ring(out_bits), ignored, ..Relu6Params::new(bits, log2_six) };
        let mut wrong = 0;
        for (x, y) in opened(&shares, bits).into_iter().zip(relu6(&shares, params)) {
            let (six, border) = (1 << log2_six, (1 << ignored) - 1);
            if x >= (1 << ignored) - (1 << (bits - 1)) && y != reference::relu6(x, log2_six) {
                let low = y == 0 && (0..border).contains(&x);
                let high = y == x && (six..six + border).contains(&x);
                assert!(low || high, "{x} gave {y}");
                wrong += 1;
            }
        }
        assert_eq!(wrong > 0, ignored > 1, "one bit makes no difference, more do");
    }
}

/// Blocks share their rounds, and put together what each of them makes; the last ones are short, or beyond the window.
#[test]
fn layers_of_many_blocks() {
    const BLOCK: usize = 1 << 14;
    for count in [BLOCK, BLOCK + 1, 3 * BLOCK - 500, 9 * BLOCK + 77] {
        let values: Vec<i64> = words(count as u64, count).iter().map(|&w| signed(w, 15)).collect();
        let shares = share(&values, 16, 3);
        let want: Vec<i64> = values.iter().map(|&x| reference::relu(x)).collect();
        assert_eq!(relu(&shares, ReluParams { output: ring(30), ..ReluParams::new(16) }), want, "{count}");
        let want: Vec<i64> = values.iter().map(|&x| reference::relu6(x, 11)).collect();
        assert_eq!(
            relu6(&shares, Relu6Params { output: ring(30), ..Relu6Params::new(16, 11) }),
            want,
            "{count}"
        );
        let params = ExtendParams { bits: 16, output: ring(30), range: Range::Signed };
        let got = on_shares(
            &shares,
            ring(30),
            priced(count, params),
            |p, c| Extend::prepare(p, c, count, params),
            Extend::run,
        );
        assert_eq!(got, values, "{count}");
    }
    let shape = |channels, size| PoolShape { channels, size, kernel: [3, 3], stride: [2, 2], pads: [1; 4] };
    maxpool(shape(70, [40, 40]), PoolParams::new(16), 1);
    maxpool(shape(3, [200, 220]), PoolParams { digit: 3, ..PoolParams::new(16) }, 2);
}

/// Runs blocks, and sends all of it.
fn in_order(blocks: Vec<Block>, chan: &mut jaguar_wire::Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
    let out = jaguar_mpc::run_blocks(blocks, chan, x)?;
    chan.flush()?;
    Ok(out)
}

/// Prepares blocks and corrects them early, then runs them in their order; results mod 2^out.
fn corrected_early(
    shares: &[Vec<u64>; 2],
    out: Modulus,
    want: Cost,
    prepare: impl Fn(&mut common::TestParty, &mut jaguar_wire::Channel) -> Result<Vec<Block>, MpcError> + Sync,
) -> Vec<i64> {
    on_shares(
        shares,
        out,
        want,
        |party, chan| {
            let mut blocks = prepare(party, chan)?;
            blocks.iter_mut().try_for_each(|block| block.complete(chan))?;
            let known = (party.role() == Role::Client).then_some(&shares[0]);
            for block in &mut blocks {
                block.correct(chan, known.map(|x| &x[block.inputs()]))?;
            }
            Ok(blocks)
        },
        in_order,
    )
}

#[test]
fn corrections_may_go_early() {
    let early = |layer: &dyn Nonlinear, shares: &[Vec<u64>; 2], out| {
        let (all, cost) = (layer.cost(), layer.cost_corrected_early());
        assert!(cost.up < all.up && cost.up + cost.prepare_up == all.up);
        corrected_early(shares, out, early_rounds(cost), |party, chan| layer.prepare(party, chan))
    };
    for count in [1, 700, (1 << 14) + 300] {
        let values: Vec<i64> = words(count as u64, count).iter().map(|&w| signed(w, 15)).collect();
        let shares = share(&values, 16, 6);
        let params = ReluParams { output: ring(30), ignored: 1, ..ReluParams::new(16) };
        let got = early(&Elementwise { count, params }, &shares, ring(30));
        assert_eq!(got, values.iter().map(|&x| reference::relu(x)).collect::<Vec<_>>());

        let params = Relu6Params { output: ring(24), ..Relu6Params::new(16, 11) };
        let got = early(&Elementwise { count, params }, &shares, ring(24));
        assert_eq!(got, values.iter().map(|&x| reference::relu6(x, 11)).collect::<Vec<_>>());
    }
    // Of a max-pool, the first level's.
    let shape =
        PoolShape { channels: 20, size: [31, 30], kernel: [3, 3], stride: [2, 2], pads: [1, 1, 1, 1] };
    let values: Vec<i64> = words(7, 20 * 31 * 30).iter().map(|&w| signed(w, 14)).collect();
    let got = early(&Pooling { shape, params: PoolParams::new(16) }, &share(&values, 16, 8), ring(16));
    assert_eq!(got, reference::maxpool(&values, &shape));
}

/// Every layer as a value: prepared and run as blocks by who does not know which protocol it is, at the cost that it states.
#[test]
fn layers_are_values() {
    let count = (1 << 14) + 300;
    let shape = PoolShape { channels: 1, size: [116, 144], kernel: [2, 2], stride: [2, 2], pads: [0; 4] };
    let values: Vec<i64> = words(9, count).iter().map(|&w| signed(w, 14).abs()).collect();
    let shares = share(&values, 16, 10);
    let extend = ExtendParams { bits: 16, output: ring(30), range: Range::Signed };
    let cut = TruncateParams { bits: 16, out_bits: 16, shift: 4, range: Range::NonNegative };
    let shrink = TruncateParams { out_bits: 12, ..cut };
    let layers: [(&dyn Nonlinear, u32); 6] = [
        (&Elementwise { count, params: ReluParams::new(16) }, 16),
        (&Elementwise { count, params: Relu6Params::new(16, 11) }, 16),
        (&Elementwise { count, params: extend }, 30),
        (&Elementwise { count, params: cut }, 16),
        (&Elementwise { count, params: shrink }, 12),
        (&Pooling { shape, params: PoolParams::new(16) }, 16),
    ];
    for (layer, out) in layers {
        assert!(layer.check().is_ok(), "{layer:?}");
        let size = match layer.kind() {
            NonlinearKind::MaxPool => shape.size[0] * shape.size[1],
            _ => count,
        };
        let shares =
            [&shares[0], &shares[1]].map(|x| x.iter().cycle().take(size).copied().collect::<Vec<_>>());
        let got = on_shares(&shares, ring(out), layer.cost(), |p, c| layer.prepare(p, c), in_order);
        let close = |got: i64, x: i64| got == x || got == x + 1;
        for (got, &x) in got.iter().zip(&values) {
            let ok = match layer.kind() {
                NonlinearKind::Relu => *got == x,
                NonlinearKind::Relu6 => *got == x.min(1 << 11),
                NonlinearKind::Extension if out == 30 => *got == x,
                NonlinearKind::Extension => close(*got, x >> 4),
                NonlinearKind::MaxPool | NonlinearKind::Product | NonlinearKind::Curve => true,
            };
            assert!(ok, "{got} of {x} by {layer:?}");
        }
        if layer.kind() == NonlinearKind::MaxPool {
            let values: Vec<i64> = values.iter().cycle().take(size).copied().collect();
            assert_eq!(got, reference::maxpool(&values, &shape));
        }
        // Fewer bits in the signs cost less, where there are signs.
        let reduced = layer.ignoring(8).map(|layer| layer.cost().vectors_from_server);
        assert_eq!(reduced.is_some(), layer.digit().is_some());
        assert!(reduced.is_none_or(|vectors| vectors < layer.cost().vectors_from_server));
    }
    let logits = ArgmaxParams { count: 100, bits: 16, digit: 4 };
    let shares = [&shares[0], &shares[1]].map(|x| x[..100].to_vec());
    let [(c, seen_c), (s, seen_s)] =
        both(11, |p, c| logits.prepare(p, c), |p, role, c| in_order(p, c, of(role, &shares)));
    assert_cost([seen_c, seen_s], logits.cost());
    assert_eq!((c, s), (vec![reference::argmax(&values[..100]) as u64], vec![]));
}

/// The server begins by itself, so it waits once less than it would; the client as often.
fn early_rounds(cost: Cost) -> Cost {
    Cost { server_rounds: cost.server_rounds - 1, ..cost }
}

#[test]
fn relu_from_real_correlations() {
    let values = interesting(16, 5000, 8);
    let shares = share(&values, 16, 9);
    let params = ReluParams { output: ring(30), ..ReluParams::new(16) };
    let one = |role: Role, mut chan: jaguar_wire::Channel| {
        let source = jaguar_ot::Cots::setup(&mut chan, role, jaguar_ot::Instances::default()).unwrap();
        let mut party = Party::new(role, source);
        let relu = Relu::prepare(&mut party, &mut chan, values.len(), params).unwrap();
        let y = relu.run(&mut chan, of(role, &shares)).unwrap();
        chan.flush().unwrap();
        assert_eq!(party.used(), party.source().counters());
        y
    };
    let (a, b) = jaguar_wire::memory_pair();
    let (c, s) = std::thread::scope(|scope| {
        let client = scope.spawn(|| one(Role::Client, a));
        let server = scope.spawn(|| one(Role::Server, b));
        (client.join().unwrap(), server.join().unwrap())
    });
    for (i, &x) in values.iter().enumerate() {
        assert_eq!(open(c[i], s[i], 30), reference::relu(x));
    }
}

#[test]
fn batches_of_all_sizes() {
    for count in [0, 1, 2, 63, 64, 65, 511, 512, 513, 1000, 8192, 8193, 16384, 16385, 40000] {
        let values: Vec<i64> = words(count as u64, count).iter().map(|&w| signed(w, 16)).collect();
        let shares = share(&values, 16, 9);
        let want: Vec<i64> = values.iter().map(|&x| reference::relu(x)).collect();
        assert_eq!(relu(&shares, ReluParams { output: ring(30), ..ReluParams::new(16) }), want, "{count}");
    }
}

#[test]
fn bits_above_the_ring_are_ignored() {
    let values = interesting(16, 100, 1);
    let mut shares = share(&values, 16, 2);
    for pair in &mut shares {
        pair.iter_mut().for_each(|x| *x |= 0xabcd << 16);
    }
    let want: Vec<i64> = values.iter().map(|&x| reference::relu(x)).collect();
    assert_eq!(relu(&shares, ReluParams::new(16)), want);
    let want: Vec<i64> = values.iter().map(|&x| reference::relu6(x, 12)).collect();
    assert_eq!(relu6(&shares, Relu6Params::new(16, 12)), want);
}

fn bit_shares(pair: [(Bits, Seen); 2], want: Cost) -> Vec<u64> {
    let [(c, seen_c), (s, seen_s)] = pair;
    assert_cost([seen_c, seen_s], want);
    assert_eq!(c.len(), s.len());
    c.to_vec().iter().zip(s.to_vec()).map(|(c, s)| c ^ s).collect()
}

#[test]
fn comparisons() {
    for bits in [1, 4, 5, 6] {
        for m in 1..=4 {
            let shares = all_shares(bits);
            let n = shares[0].len();
            let pair =
                both(3, |p, c| LessThan::prepare(p, c, n, bits, m), |p, role, c| p.run(c, of(role, &shares)));
            let want: Vec<u64> = shares[0].iter().zip(&shares[1]).map(|(a, b)| u64::from(a < b)).collect();
            assert_eq!(bit_shares(pair, LessThan::cost(n, bits, m)), want, "{bits} bits, digits of {m}");
            if bits >= 3 {
                let pair = both(
                    3,
                    |p, c| NonNegative::prepare(p, c, n, bits, m),
                    |p, role, c| p.run(c, of(role, &shares)),
                );
                let want: Vec<u64> = opened(&shares, bits).iter().map(|&x| u64::from(x >= 0)).collect();
                assert_eq!(bit_shares(pair, NonNegative::cost(n, bits, m)), want);
            }
        }
    }
    for (bits, m) in
        [(17, 4), (23, 4), (32, 4), (32, 2), (37, 4), (37, 3), (37, 2), (40, 4), (40, 3), (40, 1)]
    {
        let (mut a, mut b) = (words(1, 1000), words(2, 1000));
        for (i, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
            (*a, *b) = (*a >> (64 - bits), *b >> (64 - bits));
            match i % 6 {
                0 => *b = *a,
                1 => *b = *a ^ 1,
                2 => *b = *a ^ 1 << (bits - 1),
                3 => (*a, *b) = (0, (1 << bits) - 1),
                _ => {}
            }
        }
        let want: Vec<u64> = a.iter().zip(&b).map(|(a, b)| u64::from(a < b)).collect();
        let shares = [a, b];
        let pair =
            both(4, |p, c| LessThan::prepare(p, c, 1000, bits, m), |p, role, c| p.run(c, of(role, &shares)));
        assert_eq!(bit_shares(pair, LessThan::cost(1000, bits, m)), want, "{bits} bits, digits of {m}");
        let values = interesting(bits, 1000, 3);
        let n = values.len();
        let shares = share(&values, bits, 4);
        let pair =
            both(5, |p, c| NonNegative::prepare(p, c, n, bits, m), |p, role, c| p.run(c, of(role, &shares)));
        let want: Vec<u64> = values.iter().map(|&x| u64::from(x >= 0)).collect();
        assert_eq!(bit_shares(pair, NonNegative::cost(n, bits, m)), want, "{bits} bits, digits of {m}");
    }
}

fn random_bits(seed: u64, n: usize) -> Vec<bool> {
    words(seed, n).iter().map(|w| w >> 40 & 1 == 1).collect()
}

#[test]
fn multiplications_and_conversions() {
    for bits in [1, 2, 13, 32, 33, 37, 40] {
        for n in [0, 1, 700, 9000] {
            let b = [random_bits(1, n), random_bits(2, n)];
            let values: Vec<i64> = words(3, n).iter().map(|&w| signed(w, bits)).collect();
            let x = share(&values, bits, 4);
            let bit = |i: usize| i64::from(b[0][i] ^ b[1][i]);
            let [(c, seen_c), (s, seen_s)] = both(
                5,
                |p, c| Mux::prepare(p, c, n, bits),
                |p, role, c| p.run(c, &Bits::new(of(role, &b)), of(role, &x)),
            );
            assert_cost([seen_c, seen_s], Mux::cost(n, bits));
            for i in 0..n {
                assert_eq!(open(c[i], s[i], bits), values[i] * bit(i));
            }
            let [(c, seen_c), (s, seen_s)] = both(
                6,
                |p, c| BitToArithmetic::prepare(p, c, n, ring(bits)),
                |p, role, c| p.run(c, &Bits::new(of(role, &b))),
            );
            assert_cost([seen_c, seen_s], BitToArithmetic::cost(n, ring(bits)));
            for i in 0..n {
                assert_eq!(c[i].wrapping_add(s[i]) & (u64::MAX >> (64 - bits)), bit(i) as u64);
            }
            for p in [3, 97, (1 << 62) - 1] {
                let p = Modulus::odd(p).unwrap();
                let [(c, seen_c), (s, seen_s)] = both(
                    7,
                    |party, c| BitToArithmetic::prepare(party, c, n, p),
                    |bits, role, c| bits.run(c, &Bits::new(of(role, &b))),
                );
                assert_cost([seen_c, seen_s], BitToArithmetic::cost(n, p));
                for i in 0..n {
                    assert_eq!(p.add(c[i], s[i]), bit(i) as u64);
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_the_opposite() {
    let bits = random_bits(1, 70);
    let flipped = Bits::new(&bits).flipped().to_vec();
    assert!(bits.iter().zip(flipped).all(|(&b, f)| u64::from(!b) == f));
}

fn extend(shares: &[Vec<u64>; 2], params: ExtendParams) -> Vec<i64> {
    let n = shares[0].len();
    let want = priced(n, params);
    on_shares(shares, params.output, want, |p, c| Extend::prepare(p, c, n, params), Extend::run)
}

#[test]
fn extensions() {
    for (bits, out_bits) in
        [(6, 7), (6, 38), (8, 20), (12, 40), (16, 30), (20, 40), (32, 33), (37, 49), (40, 63)]
    {
        let quarter = 1i64 << (bits - 2);
        let (values, shares) = if bits <= 8 {
            let shares = all_shares(bits);
            (opened(&shares, bits), shares)
        } else {
            let values = interesting(bits, if bits == 16 { 9000 } else { 4000 }, 1);
            let shares = share(&values, bits, 2);
            (values, shares)
        };
        for (range, allowed) in [(Range::Signed, -quarter..quarter), (Range::NonNegative, 0..2 * quarter)] {
            let got = extend(&shares, ExtendParams { bits, output: ring(out_bits), range });
            let mut checked = 0;
            for (x, got) in values.iter().zip(got).filter(|(x, _)| allowed.contains(x)) {
                assert_eq!(*x, got, "{bits} {out_bits} {range:?}");
                checked += 1;
            }
            assert!(checked > 1000);
        }
        for digit in [if bits < 8 { 1 } else { 3 }, 4] {
            let got =
                extend(&shares, ExtendParams { bits, output: ring(out_bits), range: Range::Full { digit } });
            assert_eq!(got, values, "{bits} {out_bits}, digits of {digit}");
        }
    }
}

/// All shares of all values of a few bits, into moduli from the smallest to the largest: the value modulo each.
#[test]
fn extensions_into_odd_moduli() {
    for (bits, p) in [(6, 3), (6, 63), (6, 65), (8, 251), (8, 12_289), (7, (1 << 62) - 1)] {
        let output = Modulus::odd(p).unwrap();
        let shares = all_shares(bits);
        let values = opened(&shares, bits);
        let quarter = 1i64 << (bits - 2);
        for (range, allowed) in [
            (Range::Signed, -quarter..quarter),
            (Range::NonNegative, 0..2 * quarter),
            (Range::Full { digit: 1 }, -2 * quarter..2 * quarter),
            (Range::Full { digit: 4 }, -2 * quarter..2 * quarter),
        ] {
            let got = extend(&shares, ExtendParams { bits, output, range });
            let mut checked = 0;
            for (&x, got) in values.iter().zip(got).filter(|(x, _)| allowed.contains(x)) {
                assert_eq!(output.centred(output.from_signed(x)), got, "{x} modulo {p}, {range:?}");
                checked += 1;
            }
            assert!(checked > 1000);
        }
        let clipped = |y: i64| output.centred(output.from_signed(y));
        let params = ReluParams { output, ..ReluParams::new(bits) };
        let want: Vec<i64> = values.iter().map(|&x| clipped(reference::relu(x))).collect();
        assert_eq!(relu(&shares, params), want, "{bits} bits to {p}");
        let params = Relu6Params { output, digit: 3, ..Relu6Params::new(bits, 3) };
        let want: Vec<i64> = values.iter().map(|&x| clipped(reference::relu6(x, 3))).collect();
        assert_eq!(relu6(&shares, params), want, "{bits} bits to {p}");
    }
}

fn truncate(shares: &[Vec<u64>; 2], params: TruncateParams) -> Vec<i64> {
    let n = shares[0].len();
    let want = priced(n, params);
    on_shares(shares, ring(params.out_bits), want, |p, c| Truncate::prepare(p, c, n, params), Truncate::run)
}

/// Truncates, and checks every value that lies in the range: against the shares' own rounding, and against
/// division, from which it differs by less than one. Returns the mean of that difference.
fn check_truncation(shares: &[Vec<u64>; 2], params: TruncateParams) -> f64 {
    let TruncateParams { bits, out_bits, shift, range } = params;
    let top = 1i64 << (bits - 1);
    let allowed = match range {
        _ if out_bits + shift <= bits => -top..top,
        Range::Signed => -top / 2..top / 2,
        Range::NonNegative => 0..top,
        Range::Full { .. } => -top..top,
    };
    let got = truncate(shares, params);
    let (mut checked, mut sum) = (0, 0.0);
    for (i, got) in got.into_iter().enumerate() {
        let (c, s) = (shares[0][i], shares[1][i]);
        let x = open(c, s, bits);
        if !allowed.contains(&x) {
            continue;
        }
        assert_eq!(got, signed(reference::truncate(c, s, bits, shift) as u64, out_bits), "{params:?}, {x}");
        // The quotient itself, where the result's ring holds it.
        let quotient = x >> shift;
        if out_bits > bits - shift {
            let error = i128::from(got << shift) - i128::from(x);
            assert!(error.abs() < 1 << shift, "{params:?}, {x} gave {got}");
            assert!(got == quotient || got == quotient + 1);
            sum += error as f64 / (1i64 << shift) as f64;
        }
        checked += 1;
    }
    assert!(checked > 100, "{params:?}");
    sum / f64::from(checked)
}

const RANGES: [Range; 4] =
    [Range::Signed, Range::NonNegative, Range::Full { digit: 4 }, Range::Full { digit: 3 }];

#[test]
fn truncations_on_all_small_shares() {
    for bits in [5, 6] {
        let shares = all_shares(bits);
        for range in RANGES {
            for shift in [1, 2, bits - 1] {
                for out_bits in [1, bits - shift, bits - shift + 1, bits, bits + 20] {
                    check_truncation(&shares, TruncateParams { bits, out_bits, shift, range });
                }
            }
        }
    }
}

#[test]
fn truncations_at_real_widths() {
    for (bits, out_bits, shift) in [
        (16, 16, 4),
        (28, 16, 12),
        (32, 32, 12),
        (32, 20, 12),
        (37, 37, 12),
        (37, 25, 12),
        (37, 26, 12),
        (37, 24, 36),
        (40, 40, 12),
        (40, 40, 23),
        (40, 50, 13),
        (40, 1, 1),
        (49, 37, 12),
        (63, 40, 23),
    ] {
        let mut values = interesting(bits, 2000, u64::from(bits));
        // Multiples of 2^s, and values that are small, as after a ReLU.
        values.extend(words(9, 500).iter().map(|&w| signed(w, bits) >> shift << shift));
        values.extend(words(10, 500).iter().map(|&w| (w >> (64 - bits + 4)) as i64));
        let mut shares = share(&values, bits, 5);
        // The shares' own extremes.
        for i in 0..600 {
            shares[0][i] = [0, (1 << bits) - 1, 1 << (bits - 1), (1 << shift) - 1][i % 4];
            shares[1][i] = residue(values[i].wrapping_sub(shares[0][i] as i64), bits);
        }
        for range in RANGES {
            check_truncation(&shares, TruncateParams { bits, out_bits, shift, range });
        }
    }
}

#[test]
fn truncation_has_no_bias_and_spares_multiples() {
    let (bits, shift) = (37, 12);
    let params = TruncateParams { bits, out_bits: bits, shift, range: Range::NonNegative };
    // One value again and again, in fresh shares: 2^14 roundings, whose mean has a standard deviation below
    // 0.5 / 2^7 = 0.004.
    for fraction in [1, 1000, 2048, 4095] {
        let values = vec![(77 << shift) + fraction; 1 << 14];
        let bias = check_truncation(&share(&values, bits, fraction as u64), params);
        assert!(bias.abs() < 0.02, "{fraction}: {bias}");
    }
    let values = vec![77 << shift; 1000];
    assert!(truncate(&share(&values, bits, 1), params).iter().all(|&y| y == 77));
}

/// Cheetah's nonlinear layer as a whole: a ReLU at full width, then the truncation of what is known not to be
/// negative.
#[test]
fn relu_and_truncation_at_full_width() {
    let (bits, shift) = (37, 12);
    let values = interesting(bits, 3000, 7);
    let n = values.len();
    let shares = share(&values, bits, 8);
    let relu = ReluParams::new(bits);
    let cut = TruncateParams { bits, out_bits: bits, shift, range: Range::NonNegative };
    let got = on_shares(
        &shares,
        ring(bits),
        priced(n, relu) + priced(n, cut),
        |p, c| Ok((Relu::prepare(p, c, n, relu)?, Truncate::prepare(p, c, n, cut)?)),
        |(relu, cut), c, x| {
            let y = relu.run(c, x)?;
            cut.run(c, &y)
        },
    );
    let check = |got: Vec<i64>| {
        for (&x, y) in values.iter().zip(got) {
            let floor = reference::relu(x) >> shift;
            assert!(y == floor || y == floor + 1 && x % (1 << shift) != 0, "{x} gave {y}");
        }
    };
    check(got);
    // The same in the ReLU's flights: it makes the room, and the truncation is local.
    let relu = ReluParams { output: ring(bits + shift), ..relu };
    let cut = TruncateParams { bits: bits + shift, ..cut };
    check(on_shares(
        &shares,
        ring(bits),
        priced(n, relu),
        |p, c| Ok((Relu::prepare(p, c, n, relu)?, Truncate::prepare(p, c, n, cut)?)),
        |(relu, cut), c, x| {
            let y = relu.run(c, x)?;
            cut.run(c, &y)
        },
    ));
}

/// Values in a max-pool's range, with its extremes and with ties, what it made of them, and what is right.
/// Shares of pairs, element by element.
fn pairs(a: &[Vec<u64>; 2], b: &[Vec<u64>; 2]) -> [Vec<u64>; 2] {
    let one = |a: &[u64], b: &[u64]| a.iter().zip(b).flat_map(|(&a, &b)| [a, b]).collect();
    [one(&a[0], &b[0]), one(&a[1], &b[1])]
}

/// Products of matrices of these sizes, of random factors of so many bits or of the largest of either sign.
fn matrix_product(params: MatrixProductParams, bits: u32, extreme: bool) {
    let MatrixProductParams { out_bits, shift, matrices } = params;
    let ring = out_bits + shift;
    let [first, second, made] = matrices.counts().unwrap();
    let bound = 1i64 << (bits - 1);
    let signed = |w: u64| {
        let v = (w >> 9) as i64 % bound;
        if !extreme {
            v
        } else if v % 2 == 0 {
            bound - 1
        } else {
            -bound
        }
    };
    let values: Vec<i64> = words(first as u64 * 3 + 1, first + second).into_iter().map(signed).collect();
    let mut shares = share(&values, ring, 5);
    // (Higher bits are ignored.)
    shares[1][0] |= 1 << 63;
    let out = Modulus::power_of_two(out_bits);
    let found = on_shares(
        &shares,
        out,
        params.cost(),
        |p, c| MatrixProduct::prepare(p, c, params),
        MatrixProduct::run,
    );
    assert_eq!(found.len(), made);
    let slack = (4u64 << (shift - shift.min(12))) as i128;
    let exact = matrices.exact(&values[..first], &values[first..]).unwrap();
    for (i, (found, exact)) in found.into_iter().zip(exact).enumerate() {
        let least = (exact - slack).div_euclid(1 << shift);
        let most = -(-exact - slack).div_euclid(1 << shift);
        let above = (i128::from(found) - least).rem_euclid(1 << out_bits);
        assert!(above <= most - least, "{params:?}, {i}: {found} for {exact}");
    }
}

/// What the page says of ViT-Tiny's two.
#[test]
fn products_of_matrices_take_what_the_page_says() {
    for ([inner, columns], said) in
        [([64, 197], ["0.49", "0.45", "0.38", "1.20"]), ([197, 64], ["1.07", "0.29", "0.77", "1.30"])]
    {
        let matrices = Matrices { batch: 3, rows: 197, inner, columns, transposed: [false; 2] };
        let product = MatrixProductParams { out_bits: 26, shift: 16, matrices };
        let cost = product.cost();
        assert_eq!(without_keys(&product), said);
        assert_eq!((cost.up, cost.client_rounds, cost.server_rounds), (cost.down, 1, 1));
    }
}

/// Rows by numbers of so many bits, random or the largest of either sign, and what is added to them first.
fn row_product(params: RowProductParams, bits: u32, extreme: bool) {
    let RowProductParams { product: ProductParams { out_bits, shift, offsets }, rows, columns } = params;
    let bound = 1i64 << (bits - 1);
    let signed = |w: u64| {
        let v = (w >> 9) as i64 % bound;
        if extreme { [bound - 1, -bound, 0][v.unsigned_abs() as usize % 3] } else { v }
    };
    let of = |seed: u64, n: usize| words(seed, n).into_iter().map(signed).collect::<Vec<i64>>();
    let (values, numbers) = (of(1 + rows as u64, rows * columns), of(2 + columns as u64, rows));
    let ring = out_bits + shift;
    let less = |values: &[i64], offset: i64| values.iter().map(|v| v - offset).collect::<Vec<i64>>();
    let shares = share(&less(&values, offsets[0]), ring, 5);
    let few = share(&less(&numbers, offsets[1]), ring, 6);
    let repeated = few.each_ref().map(|few| few.iter().flat_map(|&s| vec![s; columns]).collect());
    let mut shares = pairs(&shares, &repeated);
    // (Higher bits are ignored.)
    shares[1][0] |= 1 << 63;
    let out = Modulus::power_of_two(out_bits);
    let found =
        on_shares(&shares, out, params.cost(), |p, c| RowProduct::prepare(p, c, params), RowProduct::run);
    assert_eq!(found.len(), rows * columns);
    let slack = (4u64 << (shift - shift.min(12))) as i128;
    for (i, (found, x)) in found.into_iter().zip(&values).enumerate() {
        let exact = i128::from(*x) * i128::from(numbers[i / columns]);
        let least = (exact - slack).div_euclid(1 << shift);
        let most = -(-exact - slack).div_euclid(1 << shift);
        let above = (i128::from(found) - least).rem_euclid(1 << out_bits);
        assert!(above <= most - least, "{params:?}, {i}: {found} for {exact}");
    }
}

#[test]
fn products_of_rows_are_rounded_to_a_neighbour() {
    for (rows, columns, out_bits, shift, bits) in [
        (1, 1, 16, 12, 13),
        (37, 192, 28, 20, 24),
        (5, 1, 20, 10, 13),
        (1, 5000, 24, 14, 15),
        (70, 3, 3, 1, 2),
        // A ring of 8,192.
        (19, 33, 36, 22, 27),
    ] {
        for extreme in [false, true] {
            let product = ProductParams { out_bits, shift, offsets: [0; 2] };
            row_product(RowProductParams { product, rows, columns }, bits, extreme);
            let product = ProductParams { offsets: [1 - (1 << (bits - 1)), 3], ..product };
            row_product(RowProductParams { product, rows, columns }, bits, extreme);
        }
    }
    // Nothing of nothing.
    let product = ProductParams { out_bits: 16, shift: 4, offsets: [0; 2] };
    let none = RowProductParams { product, rows: 0, columns: 7 };
    assert_eq!(none.cost(), Cost::default());
}

/// Rows by themselves, of numbers of so many bits, random or the largest of either sign.
fn squared_rows(params: SquaredRowsParams, bits: u32, extreme: bool) {
    let SquaredRowsParams { out_bits, shift, rows, columns } = params;
    let bound = 1i64 << (bits - 1);
    let signed = |w: u64| {
        let v = (w >> 9) as i64 % bound;
        if extreme { [bound - 1, -bound, 0][v.unsigned_abs() as usize % 3] } else { v }
    };
    let values: Vec<i64> = words(3 + rows as u64, rows * columns).into_iter().map(signed).collect();
    let mut shares = share(&values, out_bits + shift, 5);
    // (Higher bits are ignored.)
    shares[1][0] |= 1 << 63;
    let out = Modulus::power_of_two(out_bits);
    let found =
        on_shares(&shares, out, params.cost(), |p, c| SquaredRows::prepare(p, c, params), SquaredRows::run);
    assert_eq!(found.len(), rows);
    let slack = if params.is_encrypted() { (2u64 << (shift - shift.min(12))) as i128 - 1 } else { 0 };
    for (i, (found, row)) in found.into_iter().zip(values.chunks(columns)).enumerate() {
        let exact: i128 = row.iter().map(|&x| i128::from(x) * i128::from(x)).sum();
        let least = (exact - slack).div_euclid(1 << shift);
        let most = -(-exact - slack).div_euclid(1 << shift);
        let above = (i128::from(found) - least).rem_euclid(1 << out_bits);
        assert!(above <= most - least, "{params:?}, {i}: {found} for {exact}");
    }
}

#[test]
fn sums_of_squares_are_rounded_once() {
    for (encrypted, rows, columns, out_bits, shift, bits) in [
        (false, 1, 1, 16, 12, 13),
        (false, 70, 3, 3, 1, 2),
        (false, 1, 197, 28, 20, 20),
        // Too wide for a ring on record.
        (false, 2, 9000, 39, 24, 26),
        (true, 197, 192, 28, 20, 20),
        (true, 1, 20_000, 24, 14, 13),
        (true, 40, 768, 28, 30, 24),
        (true, 300, 64, 26, 12, 15),
    ] {
        let params = SquaredRowsParams { out_bits, shift, rows, columns };
        assert_eq!(params.is_encrypted(), encrypted, "{params:?}");
        squared_rows(params, bits, false);
        squared_rows(params, bits, true);
    }
    // Nothing of nothing.
    assert_eq!(SquaredRowsParams { out_bits: 16, shift: 4, rows: 0, columns: 7 }.cost(), Cost::default());
}

/// Rows by themselves and by numbers, of which the server's are larger by constants.
fn rows_twice(params: RowsTwiceParams, bits: u32, extreme: bool) {
    let RowsTwiceParams { squares, product: RowProductParams { product, rows, columns } } = params;
    let bound = 1i64 << (bits - 1);
    let signed = |w: u64| {
        let v = (w >> 9) as i64 % bound;
        if extreme { [bound - 1, -bound, 0][v.unsigned_abs() as usize % 3] } else { v }
    };
    let of = |seed: u64, count: usize| words(seed, count).into_iter().map(signed).collect::<Vec<i64>>();
    let (values, numbers) = (of(1 + rows as u64, rows * columns), of(2 + columns as u64, rows));
    let of_numbers: Vec<i64> = numbers.iter().flat_map(|&number| vec![number; columns]).collect();
    let mut shares = share(&values, squares.out_bits + squares.shift, 5);
    // (Higher bits are ignored.)
    shares[1][0] |= 1 << 63;
    let number_shares = share(&of_numbers, product.ring_bits(), 6);
    // (Shares of a row's number are the same in all of its pairs, and nothing is read of values.)
    let number = |role, i: usize| self::of(role, &number_shares)[i / columns * columns];
    let pairs = |role| (0..rows * columns).flat_map(|i| [i as u64, number(role, i)]).collect::<Vec<_>>();
    let [first, second] = params.layers();
    let [(client, seen_c), (server, seen_s)] = both(
        9,
        |p, c| RowsTwice::prepare(p, c, params),
        |rows: RowsTwice, role, chan| {
            let (squares, opened) = rows.squares(chan, self::of(role, &shares))?;
            chan.flush()?;
            Ok((squares, opened.multiply(chan, &pairs(role))?))
        },
    );
    assert_cost([seen_c, seen_s], first.cost() + second.cost());
    let near = |found: i64, exact: i128, (out, shift): (u32, u32), parts: u64| {
        let slack = (parts * (2u64 << (shift - shift.min(12)))) as i128 - 1;
        let least = (exact - slack).div_euclid(1 << shift);
        let most = -(-exact - slack).div_euclid(1 << shift);
        let above = (i128::from(found) - least).rem_euclid(1 << out);
        assert!(above <= most - least, "{params:?}: {found} for {exact}");
    };
    assert_eq!((client.0.len(), client.1.len()), (rows, rows * columns));
    for (i, row) in values.chunks(columns).enumerate() {
        let exact: i128 = row.iter().map(|&x| i128::from(x) * i128::from(x)).sum();
        let found = open(client.0[i], server.0[i], squares.out_bits);
        near(found, exact, (squares.out_bits, squares.shift), 1);
    }
    for (i, (&x, &number)) in values.iter().zip(&of_numbers).enumerate() {
        let [x, number] =
            [(x, 0), (number, 1)].map(|(v, at)| i128::from(v) + i128::from(product.offsets[at]));
        let found = open(client.1[i], server.1[i], product.out_bits);
        near(found, x * number, (product.out_bits, product.shift), 2);
    }
}

#[test]
fn rows_taken_twice_are_opened_once() {
    for (pays, rows, columns, out_bits, [first, second], bits) in [
        (true, 197, 192, 27, [22, 18], 20),
        (true, 197, 192, 28, [20, 20], 20),
        (true, 300, 64, 26, [14, 12], 15),
        (true, 40, 768, 28, [30, 22], 22),
        (false, 3, 9, 20, [9, 9], 12),
        (true, 5, 4100, 16, [14, 12], 13),
    ] {
        let squares = SquaredRowsParams { out_bits, shift: first, rows, columns };
        for offsets in [[0; 2], [-77, 1000]] {
            let product = ProductParams { out_bits, shift: second, offsets };
            let params = RowsTwiceParams { squares, product: RowProductParams { product, rows, columns } };
            assert_eq!(params.pays(), pays, "{params:?}");
            rows_twice(params, bits, false);
            rows_twice(params, bits, true);
        }
    }
}

/// MiB as pages have them: before the input up and down, then online.
fn mib(cost: &Cost) -> [String; 4] {
    [cost.prepare_up, cost.prepare_down, cost.up, cost.down]
        .map(|bytes| format!("{:.2}", bytes as f64 / f64::from(1 << 20)))
}

/// The same without keys, which products of a query share; and in the place of what comes down online, the keys.
fn without_keys(layer: &dyn Nonlinear) -> [String; 4] {
    let mut sent = SentKeys::default();
    let keys = (0..2).map(|_| layer.known(&mut sent)).max().unwrap_or(0);
    let cost = layer.cost();
    mib(&Cost { prepare_up: cost.prepare_up - keys, down: keys, ..cost })
}

/// What the page says of a norm's squares in ViT-Tiny.
#[test]
fn sums_of_squares_take_what_the_page_says() {
    let squares = SquaredRowsParams { out_bits: 28, shift: 20, rows: 197, columns: 192 };
    let norm = squares.cost();
    let each = priced(37_824, SquareParams(ProductParams { out_bits: 28, shift: 20, offsets: [0; 2] }));
    assert_eq!(without_keys(&squares), ["0.22", "0.09", "0.22", "0.67"]);
    assert_eq!(mib(&each), ["0.00", "5.09", "0.22", "0.22"]);
    assert_eq!((norm.client_rounds, norm.server_rounds, norm.bits_from_server), (1, 1, 0));
}

/// What the page says of a norm in ViT-Tiny, and which products are made so.
#[test]
fn products_of_rows_take_what_the_page_says() {
    let product = ProductParams { out_bits: 28, shift: 20, offsets: [0; 2] };
    let rows = |rows: usize, columns: usize| RowProductParams { product, rows, columns };
    let (norm, each) = (rows(197, 192).cost(), priced(37_824, product));
    assert_eq!(without_keys(&rows(197, 192)), ["0.87", "0.09", "0.22", "1.24"]);
    assert_eq!(mib(&each), ["0.00", "10.61", "0.43", "0.43"]);
    assert_eq!((norm.client_rounds, norm.server_rounds, norm.bits_from_server), (1, 1, 0));
    assert!(norm.client_memory < each.client_memory);
    for (pays, params) in [
        (true, rows(197, 192)),
        (true, rows(591, 64)),
        (true, rows(591, 197)),
        (false, rows(4, 64)),
        (false, rows(197, 1)),
        (false, rows(10_000, 4)),
    ] {
        assert_eq!(params.pays(), pays, "{params:?}");
    }
}

/// What the page says of both in a norm of ViT-Tiny: of the second alone what is prepared, and of the first alone what is
/// opened of rows.
#[test]
fn rows_taken_twice_take_what_the_page_says() {
    let (rows, columns, out_bits) = (197, 192, 28);
    let squares = SquaredRowsParams { out_bits, shift: 20, rows, columns };
    let product = ProductParams { out_bits, shift: 20, offsets: [0; 2] };
    let params = RowsTwiceParams { squares, product: RowProductParams { product, rows, columns } };
    let [first, second] = params.layers();
    assert_eq!(without_keys(&*first), ["0.00", "0.00", "0.22", "0.00"]);
    assert_eq!(without_keys(&*second), ["0.88", "0.19", "0.00", "1.45"]);
    // Each by itself.
    let alone: [&dyn Nonlinear; 2] = [&squares, &params.product];
    let keys = |layer: &dyn Nonlinear| {
        let mut sent = SentKeys::default();
        (0..2).map(|_| layer.known(&mut sent)).max().unwrap_or(0)
    };
    let both = alone.iter().fold(Cost::default(), |sum, layer| sum + layer.cost());
    let up = both.prepare_up - alone.map(keys).iter().sum::<u64>();
    assert_eq!(mib(&Cost { prepare_up: up, ..both }), ["1.09", "0.19", "0.43", "0.43"]);
    for layer in [first, second] {
        let cost = layer.cost();
        assert_eq!((cost.client_rounds, cost.server_rounds, cost.bits_from_server), (1, 1, 0));
    }
    // By themselves, and joined only with the same rows before.
    let product = &params.product;
    assert!(opened_once(&squares, product).is_some() && opened_once(product, &squares).is_none());
    for other in [
        SquaredRowsParams { rows: 196, ..squares },
        // Products in the wider ring; shares made of other bits; rows that are taken value by value.
        SquaredRowsParams { shift: 19, ..squares },
        SquaredRowsParams { out_bits: 29, ..squares },
        SquaredRowsParams { rows: 2, columns: 4, ..squares },
    ] {
        assert!(opened_once(&other, product).is_none(), "{other:?}");
    }
    assert!(opened_once(product, product).is_none());
}

#[test]
fn products_of_matrices_are_rounded_to_a_neighbour() {
    let sizes = |[batch, rows, inner, columns]: [usize; 4], transposed| Matrices {
        batch,
        rows,
        inner,
        columns,
        transposed,
    };
    for (of, out_bits, shift, bits) in [
        (sizes([1, 1, 1, 1], [false; 2]), 16, 12, 13),
        (sizes([2, 3, 5, 4], [true, false]), 20, 10, 13),
        (sizes([3, 17, 8, 17], [false, true]), 26, 20, 22),
        (sizes([1, 5, 70, 33], [true; 2]), 24, 14, 15),
        (sizes([1, 2, 3, 2], [false; 2]), 3, 1, 2),
        // A ring of 8,192.
        (sizes([1, 4, 6, 3], [false; 2]), 36, 22, 27),
    ] {
        for extreme in [false, true] {
            matrix_product(MatrixProductParams { out_bits, shift, matrices: of }, bits, extreme);
        }
    }
    // Nothing of nothing.
    let params = MatrixProductParams { out_bits: 16, shift: 4, matrices: sizes([2, 0, 3, 4], [false; 2]) };
    assert_eq!(params.cost(), Cost::default());
}

fn product(pairs: &[Vec<u64>; 2], params: ProductParams) -> Vec<i64> {
    let n = pairs[0].len() / 2;
    let (want, ring) = (priced(n, params), ring(params.out_bits));
    on_shares(pairs, ring, want, |p, c| Product::prepare(p, c, n, params), Product::run)
}

#[test]
fn products_on_all_small_shares() {
    let params = ProductParams { out_bits: 3, shift: 1, offsets: [0; 2] };
    let all = all_shares(4);
    let (mut a, mut b) = ([vec![], vec![]], [vec![], vec![]]);
    for i in 0..all[0].len() {
        for j in 0..all[0].len() {
            for role in 0..2 {
                a[role].push(all[role][i]);
                b[role].push(all[role][j]);
            }
        }
    }
    let got = product(&pairs(&a, &b), params);
    let (mut up, mut odd) = (0, 0);
    for ((got, a), b) in got.iter().zip(opened(&a, 4)).zip(opened(&b, 4)) {
        let wrapped = |x: i64| signed(x as u64, 3);
        let (low, high) = (wrapped((a * b) >> 1), wrapped((a * b + 1) >> 1));
        assert!([low, high].contains(got), "{a}·{b}/2 became {got}");
        if low != high {
            odd += 1;
            up += usize::from(*got == high);
        }
    }
    // Halves go up as often as down: within five standard deviations. (Seeds are fixed.)
    assert!((up as f64 - odd as f64 / 2.0).abs() < 2.5 * (odd as f64).sqrt(), "{up} of {odd}");
}

#[test]
fn products_at_real_widths() {
    for (out_bits, shift) in [(16, 12), (24, 20), (24, 1), (3, 60), (61, 2)] {
        let params = ProductParams { out_bits, shift, offsets: [3, -70] };
        let bits = params.ring_bits();
        // Factors whose product fits, and more elements than a block has.
        let count = if out_bits == 24 { (1 << 14) + 77 } else { 3000 };
        let widest = ((bits - 2) / 2).min(30);
        let [a, b] =
            [1, 2].map(|seed| words(seed, count).iter().map(|&w| signed(w, widest)).collect::<Vec<_>>());
        let shares = pairs(&share(&a, bits, 3), &share(&b, bits, 4));
        let got = product(&shares, params);
        let (mut up, mut expected, mut variance) = (0.0, 0.0, 0.0);
        for ((&got, &a), &b) in got.iter().zip(&a).zip(&b) {
            let exact = i128::from(a + 3) * i128::from(b - 70);
            // The result may wrap where its ring is small.
            let rounded = (i128::from(got) - (exact >> shift)).rem_euclid(1 << out_bits);
            let part = (exact.rem_euclid(1 << shift)) as f64 / f64::from(shift).exp2();
            assert!(rounded == 0 || rounded == 1 && part > 0.0, "{a}·{b}: {got} for {exact}, {params:?}");
            (up, expected, variance) = (up + rounded as f64, expected + part, variance + part * (1.0 - part));
        }
        // Up as often as it is more than a multiple: no bias. (Seeds are fixed.)
        assert!((up - expected).abs() < 5.0 * variance.sqrt().max(1.0), "{up} for {expected}, {params:?}");
    }
}

/// x·x, and x's product with itself beside other constants, against integers; bytes as planned.
#[test]
fn squares_at_real_widths() {
    for (out_bits, shift, offsets) in
        [(16, 12, [0, 0]), (24, 20, [7, 7]), (24, 1, [3, -70]), (3, 60, [-1, 0]), (61, 2, [0, 0])]
    {
        let params = ProductParams { out_bits, shift, offsets };
        let bits = params.ring_bits();
        let count = if out_bits == 24 { (1 << 14) + 77 } else { 3000 };
        let widest = ((bits - 2) / 2).min(30);
        let values: Vec<i64> = words(1, count).iter().map(|&w| signed(w, widest)).collect();
        let want = priced(count, SquareParams(params));
        let got = on_shares(
            &share(&values, bits, 3),
            ring(out_bits),
            want,
            |p, c| Square::prepare(p, c, count, SquareParams(params)),
            Square::run,
        );
        let (mut up, mut expected, mut variance) = (0.0, 0.0, 0.0);
        for (&got, &x) in got.iter().zip(&values) {
            let exact = i128::from(x + offsets[0]) * i128::from(x + offsets[1]);
            // The result may wrap where its ring is small.
            let rounded = (i128::from(got) - (exact >> shift)).rem_euclid(1 << out_bits);
            let part = (exact.rem_euclid(1 << shift)) as f64 / f64::from(shift).exp2();
            assert!(rounded == 0 || rounded == 1 && part > 0.0, "{x}: {got} for {exact}, {params:?}");
            (up, expected, variance) = (up + rounded as f64, expected + part, variance + part * (1.0 - part));
        }
        // Up as often as it is more than a multiple: no bias. (Seeds are fixed.)
        assert!((up - expected).abs() < 5.0 * variance.sqrt().max(1.0), "{up} for {expected}, {params:?}");
    }
}

#[test]
fn a_product_costs_what_its_header_says() {
    let cost = priced(1 << 20, ProductParams { out_bits: 24, shift: 16, offsets: [0; 2] });
    let each = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    assert_eq!((each(cost.prepare_down), each(cost.up), each(cost.down)), (205.0, 10.0, 10.0));
    assert_eq!((cost.bits_from_server >> 20, cost.bits_from_client, cost.vectors_from_server), (80, 0, 0));
    assert_eq!((cost.client_rounds, cost.server_rounds, cost.prepare_up), (1, 1, 0));
    assert_eq!((each(cost.client_memory), each(cost.server_memory)), (24.0, 24.0));
    let cost = priced(1 << 20, SquareParams(ProductParams { out_bits: 24, shift: 16, offsets: [0; 2] }));
    assert_eq!((each(cost.prepare_down), each(cost.up), each(cost.down)), (97.5, 5.0, 5.0));
    assert_eq!((cost.bits_from_server >> 20, cost.bits_from_client, cost.vectors_from_server), (40, 0, 0));
}

fn curve(shares: &[Vec<u64>; 2], params: &CurveParams) -> Vec<i64> {
    let n = shares[0].len();
    let cost = priced(n, params.clone());
    // The server has waited for what completes the preparation.
    let want = if cost.prepare_up > 0 { early_rounds(cost) } else { cost };
    on_shares(shares, ring(params.out_bits), want, |p, c| Curve::prepare(p, c, n, params), Curve::run)
}

/// Pieces that look random: 2^`log2` of 2^`low` integers.
fn pieces(low: u32, log2: u32, shift: u32, sizes: [u32; 2], seed: u64) -> Pieces {
    let random =
        |seed: u64, bits: u32| words(seed, 1 << log2).iter().map(|&w| signed(w >> 9, bits)).collect();
    let pieces = Pieces {
        low,
        offset_shift: shift - 1,
        shift,
        offsets: random(seed, sizes[0]),
        slopes: random(seed + 1, sizes[1]),
        beyond: Beyond::Repeated,
    };
    pieces.check().unwrap();
    pieces
}

/// The same, with lines that go on: level below, and with the slope `tail` above.
fn straight(mut pieces: Pieces, tail: i64) -> Pieces {
    let (end, whole) = (pieces.offsets.len() - 1, tail << pieces.shift);
    pieces.slopes[..2].fill(0);
    pieces.slopes[end - 1..].fill(whole);
    pieces.offsets[1] = pieces.offsets[0];
    pieces.offsets[end] = pieces.offsets[end - 1] + (whole << pieces.low >> pieces.offset_shift);
    pieces.beyond = Beyond::Straight;
    pieces.check().unwrap();
    pieces
}

/// The same from `begin` on, and level outside.
fn level(mut pieces: Pieces, begin: i64) -> Pieces {
    pieces.slopes[..2].fill(0);
    pieces.offsets[1] = pieces.offsets[0];
    pieces.beyond = Beyond::Level { begin };
    pieces.check().unwrap();
    pieces
}

/// Each value is one of the line's neighbours, both come up, and none but its own where the line is whole.
fn check_curve(shares: &[Vec<u64>; 2], params: &CurveParams) {
    let got = curve(shares, params);
    let unit = 1i128 << params.pieces.shift;
    let mut up = [0.0, 0.0];
    // Lines go on as far as there is a sign.
    let half = 1 << (params.bits - 1);
    let known = |x: i64| match params.pieces.beyond {
        // (All is level, however far away.)
        Beyond::Repeated | Beyond::Level { .. } => true,
        Beyond::Straight => (-half..half).contains(&(x - params.pieces.begin())),
    };
    for (&x, got) in opened(shares, params.bits).iter().zip(got).filter(|(x, _)| known(**x)) {
        let line = params.pieces.line(x);
        let wrapped = |y: i128| signed(y as u64, params.out_bits);
        let low = line.div_euclid(unit);
        let off = i64::from(got != wrapped(low));
        let whole = line.rem_euclid(unit) == 0;
        assert!(off == 0 || !whole && got == wrapped(low + 1), "{x}: {got}, {line} / {unit}");
        up[0] += off as f64;
        up[1] += line.rem_euclid(unit) as f64 / unit as f64;
    }
    // No bias: six deviations of so many coins.
    assert!((up[0] - up[1]).abs() < 3.0 * (shares[0].len() as f64).sqrt() + 1.0, "{up:?}");
}

#[test]
fn curves_on_all_small_shares() {
    for (bits, low, log2, out_bits, shift, digit) in [
        (3, 1, 2, 6, 1, 4),
        (5, 2, 2, 5, 3, 1),
        (6, 3, 3, 8, 2, 2),
        (7, 1, 6, 9, 1, 3),
        (7, 4, 3, 7, 4, 3),
        // Fewer bits than the shares have.
        (7, 3, 2, 8, 1, 4),
    ] {
        for sizes in [[5, 4], [1, 3], [4, 1], [6, 6]] {
            let pieces = Arc::new(pieces(low, log2, shift, sizes, 11));
            check_curve(&all_shares(bits), &CurveParams { bits, out_bits, digit, pieces });
        }
    }
}

#[test]
fn lines_go_on_for_all_small_shares() {
    for (bits, low, log2, out_bits, shift, digit, tail) in [
        (5, 1, 2, 5, 3, 1, 1),
        (6, 1, 3, 6, 2, 2, -3),
        (7, 3, 2, 7, 1, 4, 2),
        (8, 2, 4, 8, 3, 4, 1),
        // Of few bits, and of so few that nothing is added.
        (7, 1, 2, 4, 3, 3, 1),
        (6, 2, 2, 2, 4, 4, 1),
        // Wider than x, by as many bits as the slope is even; and of few bits.
        (6, 2, 2, 7, 2, 4, 2),
        (6, 1, 3, 8, 3, 3, -4),
        (7, 2, 3, 10, 3, 2, 24),
        (7, 3, 2, 8, 1, 4, 8),
        (6, 2, 2, 5, 2, 4, 4),
        (6, 2, 2, 4, 2, 4, 4),
        // No slope: the result may have any width.
        (7, 2, 2, 9, 2, 3, 0),
        (8, 1, 5, 8, 2, 4, 0),
    ] {
        for sizes in [[5, 4], [1, 3], [6, 6]] {
            let pieces = Arc::new(straight(pieces(low, log2, shift, sizes, 11), tail));
            let params = CurveParams { bits, out_bits, digit, pieces };
            check_curve(&all_shares(bits), &params);
            // What is above the pieces is known to so many bits, and to no more.
            if tail != 0 {
                let known = bits + tail.trailing_zeros();
                let wide = |out_bits| CurveParams { out_bits, ..params.clone() }.check();
                assert!(wide(known).is_ok() && wide(known + 1).is_err(), "{bits} bits, slope {tail}");
            }
        }
    }
}

#[test]
fn lines_go_on_at_real_widths() {
    for (bits, low, log2, shift, tail) in [
        (16, 6, 7, 7, 1),
        (16, 9, 5, 10, 2),
        (24, 11, 7, 9, 1),
        (24, 14, 5, 8, 0),
        (36, 20, 8, 9, 4),
        (20, 9, 9, 10, 1),
    ] {
        let pieces = straight(pieces(low, log2, shift, [17, 11], 5), tail);
        let mut values = interesting(bits, 3000, u64::from(bits + log2));
        // Around both ends, where random values seldom are.
        let end = 1i64 << (low + log2 - 1);
        values.extend((-70..70).flat_map(|by| [end + by, by - end, by]));
        let params = CurveParams { bits, out_bits: bits, digit: 4, pieces: Arc::new(pieces) };
        check_curve(&share(&values, bits, 8), &params);
    }
}

#[test]
fn all_is_level_outside_of_pieces_for_all_small_shares() {
    for (bits, low, log2, out_bits, shift, digit, begin) in [
        (5, 1, 2, 5, 3, 1, -3),
        (6, 1, 3, 6, 2, 2, 0),
        (7, 3, 2, 7, 1, 4, -16),
        (8, 2, 4, 8, 3, 4, 5),
        (8, 3, 3, 8, 3, 3, -41),
        (7, 2, 2, 9, 2, 3, 15),
        (8, 1, 5, 6, 2, 4, -32),
    ] {
        for sizes in [[5, 4], [1, 3], [6, 6]] {
            let pieces = Arc::new(level(pieces(low, log2, shift, sizes, 11), begin));
            check_curve(&all_shares(bits), &CurveParams { bits, out_bits, digit, pieces });
        }
    }
}

#[test]
fn all_is_level_outside_of_pieces_at_real_widths() {
    for (bits, low, log2, shift, begin) in [
        (16, 6, 7, 7, -300),
        (16, 9, 5, 10, 0),
        (24, 11, 7, 9, -100_001),
        (26, 15, 6, 3, -1_280_257),
        (26, 14, 8, 2, 77),
        (20, 9, 9, 10, -(1 << 17)),
    ] {
        let pieces = level(pieces(low, log2, shift, [17, 11], 5), begin);
        let mut values = interesting(bits, 3000, u64::from(bits + log2));
        // Around both ends, where random values seldom are.
        let ends = [begin, begin + (2 << low), begin + (1 << (low + log2))];
        values.extend((-70..70).flat_map(|by| ends.map(|end| end + by)));
        let params = CurveParams { bits, out_bits: bits, digit: 4, pieces: Arc::new(pieces) };
        check_curve(&share(&values, bits, 8), &params);
    }
}

#[test]
fn curves_at_real_widths() {
    for (bits, low, log2, out_bits, shift, sizes) in [
        (16, 10, 5, 16, 6, [17, 9]),
        (16, 8, 8, 16, 8, [18, 10]),
        (24, 15, 8, 24, 9, [12, 12]),
        (24, 15, 9, 24, 8, [16, 16]),
        (37, 30, 7, 40, 23, [12, 20]),
        // Coefficients of which only the lowest bits are in the ring.
        (12, 6, 6, 8, 5, [30, 30]),
        // None that differ.
        (12, 6, 6, 12, 5, [0, 0]),
    ] {
        let pieces = if sizes == [0, 0] {
            Pieces {
                low,
                offset_shift: 0,
                shift,
                offsets: vec![-77; 1 << log2],
                slopes: vec![-3; 1 << log2],
                beyond: Beyond::Repeated,
            }
        } else {
            pieces(low, log2, shift, sizes, 5)
        };
        let values = interesting(bits, 3000, u64::from(bits + log2));
        let params = CurveParams { bits, out_bits, digit: 4, pieces: Arc::new(pieces) };
        check_curve(&share(&values, bits, 8), &params);
    }
}

/// The least ring of slope·u whose top bit says that it wrapped, of all slopes and all u: none is below zero, and twice the largest fits.
fn ring_of_products(pieces: &Pieces) -> u32 {
    let products = || pieces.slopes.iter().flat_map(|slope| (0..1i64 << pieces.low).map(move |u| slope * u));
    let (least, most) = (products().min().unwrap().min(0), products().max().unwrap().max(0));
    (1..).find(|bits| most - least < 1 << (bits - 1)).unwrap().max(pieces.low + 1)
}

/// A curve whose slopes are multiplied in a ring of their own, the least: right on all shares, at its cost. Of a few values they are not.
/// How much longer each party waits.
fn check_narrow(params: &CurveParams) -> [u64; 2] {
    let (shares, whole) = (all_shares(params.bits), params.out_bits + params.pieces.shift);
    let least = ring_of_products(&params.pieces).max(whole.saturating_sub(32));
    // Offsets: what they differ by, and a bit more, above those that all have.
    let (offsets, units) = (&params.pieces.offsets, whole - params.pieces.offset_shift);
    let differ = offsets.iter().max().unwrap() - offsets.iter().min().unwrap();
    let bits = (1..).find(|bits| differ < 1 << bits).unwrap();
    let narrow = (bits + 1).max(units.saturating_sub(32));
    let pays = narrow < units && bits * (units - narrow) > units - narrow + 2;
    let [offsets, products] = params.sum_bits(shares[0].len());
    assert_eq!((offsets, products), (if pays { narrow } else { units }, least), "{params:?}");
    assert!(least < whole && params.sum_bits(20) == [units, whole], "{params:?}");
    check_curve(&shares, params);
    check_curve(&shares.each_ref().map(|x| x[x.len() - 20..].to_vec()), params);
    let costs = [shares[0].len(), 20].map(|count| priced(count, params.clone()));
    let waits = costs.map(|cost| [cost.client_rounds, cost.server_rounds]);
    [0, 1].map(|party| waits[0][party] - waits[1][party])
}

#[test]
fn slopes_are_multiplied_in_a_ring_of_their_own() {
    // Slopes of either sign, none below zero, and none above.
    let signs: [fn(i64) -> i64; 3] = [|slope| slope, i64::abs, |slope| -slope.abs()];
    let mut waits = Vec::new();
    for (bits, low, log2, out_bits, shift, digit) in
        [(6, 3, 3, 24, 2, 2), (7, 1, 6, 17, 1, 3), (7, 4, 3, 12, 9, 3), (7, 3, 2, 54, 8, 4)]
    {
        for sign in signs {
            let mut pieces = pieces(low, log2, shift, [9, 4], 11);
            pieces.slopes.iter_mut().for_each(|slope| *slope = sign(*slope));
            waits.push(check_narrow(&CurveParams { bits, out_bits, digit, pieces: Arc::new(pieces) }));
        }
    }
    for (bits, low, log2, out_bits, shift, digit, tail) in
        [(6, 1, 3, 22, 2, 2, 0), (7, 2, 3, 7, 15, 4, 1), (7, 3, 2, 7, 13, 1, -1)]
    {
        let pieces = Arc::new(straight(pieces(low, log2, shift, [12, 5], 11), tail));
        waits.push(check_narrow(&CurveParams { bits, out_bits, digit, pieces }));
    }
    for (bits, low, log2, out_bits, shift, digit, begin) in
        [(6, 1, 3, 21, 3, 3, -3), (7, 3, 2, 17, 2, 1, -16), (7, 2, 3, 19, 3, 4, 15)]
    {
        let pieces = Arc::new(level(pieces(low, log2, shift, [12, 5], 11), begin));
        waits.push(check_narrow(&CurveParams { bits, out_bits, digit, pieces }));
    }
    // After an even number of turns the client waits no longer.
    assert!([[0, 1], [1, 1]].iter().all(|some| waits.contains(some)), "{waits:?}");
    assert!(waits.iter().all(|[client, server]| *client <= 1 && *server == 1), "{waits:?}");
}

/// What a ring of their own saves: of an exponential's slopes, seven bits of them, in L = 29 bits and in 23, of nine bits of its offsets in 14 and in 10; and of few values nothing, where a flight
/// is dearer.
#[test]
fn narrow_slopes_save_bytes() {
    let slopes = (0..64).map(|j| if j < 2 { 0 } else { 2 * j });
    let pieces = Pieces {
        low: 15,
        offset_shift: 15,
        shift: 3,
        offsets: (0..64).map(|j| if j < 2 { 0 } else { 8 * j }).collect(),
        slopes: slopes.collect(),
        beyond: Beyond::Level { begin: -1 << 20 },
    };
    let params = CurveParams { bits: 26, out_bits: 26, digit: 4, pieces: Arc::new(pieces) };
    const FEW: usize = 1 << 10;
    let (few, many) = (priced(FEW, params.clone()), priced(FEW << 8, params.clone()));
    assert_eq!([FEW, FEW << 8].map(|count| params.sum_bits(count)), [[14, 29], [10, 23]]);
    let bits = |fewer: u64, more: u64| (FEW as u64 / 8) * fewer - (FEW as u64 / 8) * more;
    // Conversions of the carry and of nine bits; corrections both ways; of extensions answers up, and choices down.
    assert_eq!(few.prepare_down - (many.prepare_down >> 8), bits(6 + 9 * 4, 0));
    assert_eq!(few.up - (many.up >> 8), bits(7 * 6, 6 + 4));
    assert_eq!(few.down - (many.down >> 8), bits(7 * 6, 2));
    assert_eq!((many.bits_from_client >> 8) - few.bits_from_client, 2 * FEW as u64);
    assert_eq!(
        (many.bits_from_server >> 8, many.vectors_from_server >> 8),
        (few.bits_from_server, few.vectors_from_server)
    );
    // Where it begins to pay.
    let saved = |count: usize| (6 + 2 * 7 * 6 - 6 - 2 + 9 * 4 - 4 - 2) * count as u64 / 8;
    let first = (1..).find(|&count| params.sum_bits(count)[1] == 23).unwrap();
    assert!(saved(first) >= 1 << 14 && saved(first - 1) < 1 << 14, "{first}");
}

/// More than one block, its first message early.
#[test]
fn curves_of_many_blocks() {
    let values = interesting(16, (1 << 15) + 700, 3);
    let params =
        CurveParams { bits: 16, out_bits: 16, digit: 3, pieces: Arc::new(pieces(9, 7, 7, [16, 9], 2)) };
    check_many(&values, params);
    // (Not above what has a sign.)
    let values: Vec<i64> = values.into_iter().filter(|x| *x < 1 << 14).collect();
    let pieces = straight(pieces(5, 7, 7, [10, 9], 2), 1);
    check_many(&values, CurveParams { bits: 16, out_bits: 16, digit: 4, pieces: Arc::new(pieces) });
    let pieces = level(self::pieces(6, 7, 7, [10, 9], 2), -2000);
    check_many(&values, CurveParams { bits: 16, out_bits: 16, digit: 4, pieces: Arc::new(pieces) });
}

fn check_many(values: &[i64], params: CurveParams) {
    check_curve(&share(values, 16, 4), &params);
    let layer = Elementwise { count: values.len(), params };
    let cost = layer.cost_corrected_early();
    let cost = if cost.prepare_up > 0 { early_rounds(cost) } else { cost };
    let got = corrected_early(&share(values, 16, 4), ring(16), cost, |p, c| layer.prepare(p, c));
    let lines = values.iter().map(|&x| layer.params.pieces.line(x) >> 7);
    assert!(lines.zip(got).all(|(low, y)| low == y.into() || low + 1 == y.into()));
}

fn pooled(shape: PoolShape, params: PoolParams, seed: u64) -> [Vec<i64>; 3] {
    let PoolParams { bits, ignored, .. } = params;
    let n = shape.channels * shape.size[0] * shape.size[1];
    // Less than 2^(n−2) − 2^(s−2).
    let most = (1 << (bits - 2)) - ((1 << ignored) / 4) - 1;
    let values: Vec<i64> = words(seed, n)
        .iter()
        .enumerate()
        .map(|(i, &w)| match i % 5 {
            0 => most,
            1 => -most,
            // Neighbours that a reduced comparison may confuse.
            2 => ((w % (1 << ignored)) as i64).min(most),
            _ => signed(w, bits - 1).clamp(-most, most),
        })
        .collect();
    let shares = share(&values, bits, seed);
    let got = on_shares(
        &shares,
        ring(bits),
        Pooling { shape, params }.cost(),
        |p, c| MaxPool::prepare(p, c, shape, params),
        MaxPool::run,
    );
    let right = reference::maxpool(&values, &shape);
    [values, got, right]
}

#[track_caller]
fn maxpool(shape: PoolShape, params: PoolParams, seed: u64) {
    let [_, got, right] = pooled(shape, params, seed);
    assert_eq!(got, right, "{shape:?}");
}

#[test]
fn maxpool_in_common_shapes() {
    let shape = |channels, size, kernel, stride, pads| PoolShape { channels, size, kernel, stride, pads };
    let of = |bits| PoolParams::new(bits);
    let threes = |bits| PoolParams { digit: 3, ..of(bits) };
    maxpool(shape(3, [12, 14], [3, 3], [2, 2], [1, 1, 1, 1]), of(16), 1);
    maxpool(shape(2, [13, 13], [3, 3], [2, 2], [0, 0, 0, 0]), of(12), 2);
    maxpool(shape(4, [8, 8], [2, 2], [2, 2], [0, 0, 0, 0]), of(20), 3);
    maxpool(shape(1, [6, 6], [5, 5], [1, 1], [2, 2, 2, 2]), threes(16), 4);
    maxpool(shape(1, [6, 6], [5, 5], [1, 1], [2, 2, 2, 2]), PoolParams { ignored: 0, ..of(16) }, 4);
    // At full width.
    for bits in [32, 37, 40] {
        maxpool(shape(2, [12, 11], [3, 3], [2, 2], [1, 1, 1, 1]), of(bits), 9);
        maxpool(shape(1, [8, 8], [2, 2], [2, 2], [0, 0, 0, 0]), threes(bits), 10);
    }
    // A window of one place, steps beyond the window, a window larger than the image.
    maxpool(shape(2, [5, 7], [1, 1], [1, 1], [0, 0, 0, 0]), of(16), 5);
    maxpool(shape(2, [5, 7], [1, 1], [2, 3], [0, 0, 0, 0]), of(16), 6);
    maxpool(shape(2, [9, 9], [2, 2], [4, 3], [0, 0, 0, 0]), of(16), 7);
    maxpool(shape(2, [2, 3], [4, 5], [1, 1], [1, 2, 3, 4]), of(16), 8);
    // 3 × 3 with stride 2 takes six comparisons a window, inside.
    let inside = shape(1, [101, 101], [3, 3], [2, 2], [0, 0, 0, 0]);
    let per_window = Pooling { shape: inside, params: of(16) }.cost().bits_from_client as f64
        / priced(50 * 50, ReluParams::new(16)).bits_from_client as f64;
    assert!(per_window < 6.1, "{per_window}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The network's plaintext reference, by which reduced-precision signs are chosen and checked, makes of every value and
    /// the client's share of it just what the protocols make: so with shares as they are here, uniform, it errs as often.
    #[test]
    fn the_imitation_of_reduced_signs_is_exact(
        bits in 6u32..=20, low in 0u32..20, up in 0u32..20, digit in 1u32..=4, wider in 0u32..16, seed: u64,
    ) {
        let ignored = low % (bits - 3);
        let log2_six = ignored + 1 + up % (bits - 2 - ignored);
        // Anywhere, and about the borders.
        let floor = (1 << ignored) - (1 << (bits - 1));
        let mut values: Vec<i64> = words(seed, 400).iter().map(|&w| signed(w, bits).max(floor)).collect();
        let near = |w: &u64| (w % (3 << ignored)) as i64 - (1 << ignored);
        let borders = words(seed ^ 1, 400);
        values.extend(borders.iter().map(near).map(|v| v.max(floor)));
        values.extend(borders.iter().map(near).map(|v| (v + (1 << log2_six)).min((1 << (bits - 1)) - 1)));
        let shares = share(&values, bits, seed ^ 2);
        let with_client = || values.iter().zip(&shares[0]);

        let got = relu(&shares, ReluParams { bits, output: ring(bits + wider), digit, ignored });
        let want: Vec<i64> = with_client().map(|(&x, &c)| jaguar_mpc::semantics::relu_ignoring(x, ignored, c)).collect();
        prop_assert_eq!(&got, &want);
        prop_assert_eq!(got.iter().zip(&values).any(|(&y, &x)| y != reference::relu(x)), ignored > 1);

        let params = Relu6Params { output: ring(bits + wider), digit, ignored, ..Relu6Params::new(bits, log2_six) };
        let got = relu6(&shares, params);
        let want: Vec<i64> =
            with_client().map(|(&x, &c)| jaguar_mpc::semantics::relu6_ignoring(x, log2_six, ignored, c)).collect();
        prop_assert_eq!(got, want);
    }

    #[test]
    fn maxpool_in_any_shape(
        channels in 1usize..4,
        size in [1usize..9, 1usize..9],
        kernel in [1usize..6, 1usize..6],
        stride in [1usize..5, 1usize..5],
        pads in [0usize..5, 0usize..5, 0usize..5, 0usize..5],
        seed: u64,
    ) {
        let shape = PoolShape { channels, size, kernel, stride, pads };
        prop_assume!(shape.output().is_ok());
        maxpool(shape, PoolParams::new(10), seed);
    }

    /// Ignoring bits, a max-pool gives one of the window's values, at most 2^(s−1) − 1 below the largest for each level that they play.
    #[test]
    fn a_maxpool_that_ignores_low_bits_errs_as_stated(
        channels in 1usize..4,
        size in [1usize..9, 1usize..9],
        kernel in [1usize..6, 1usize..6],
        stride in [1usize..4, 1usize..4],
        pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        params in (8u32..20, 1u32..=4, 0u32..20).prop_map(|(bits, digit, low)| PoolParams { bits, digit, ignored: low % (bits - 1) }),
        seed: u64,
    ) {
        // Paddings are less than the window.
        let pads: [usize; 4] = std::array::from_fn(|side| pads[side] % kernel[side % 2]);
        let shape = PoolShape { channels, size, kernel, stride, pads };
        let Ok([height, width]) = shape.output() else { return Err(TestCaseError::reject("no window")) };
        let [values, got, right] = pooled(shape, params, seed);
        let levels: u32 = [0, 1].map(|axis| kernel[axis].min(size[axis]).next_power_of_two().ilog2()).iter().sum();
        let below = i64::from(levels) * ((1 << params.ignored) / 2 - 1).max(0);
        for (i, (&got, &right)) in got.iter().zip(&right).enumerate() {
            prop_assert!((right - below..=right).contains(&got), "{} where {} is the largest", got, right);
            let (channel, at) = (i / (height * width), [i / width % height, i % width]);
            let inside = |place: usize, axis: usize| {
                let at = (at[axis] * stride[axis]) as isize - pads[axis] as isize;
                (at..at + kernel[axis] as isize).contains(&(place as isize))
            };
            let plane = &values[channel * size[0] * size[1]..][..size[0] * size[1]];
            let of_window = |place: usize| inside(place / size[1], 0) && inside(place % size[1], 1);
            prop_assert!((0..plane.len()).any(|place| of_window(place) && plane[place] == got));
        }
    }

    #[test]
    fn truncation_in_any_width(
        bits in 3u32..=WIDEST, shift: u32, out_bits: u32, range in 0usize..4, seed: u64,
    ) {
        let shift = 1 + shift % (bits - 1);
        let out_bits = 1 + out_bits % (63.min(bits + 32) - shift);
        // A quarter of the values near zero, where narrow results do not wrap.
        let values = words(seed, 1200).into_iter().enumerate();
        let values: Vec<i64> =
            values.map(|(i, w)| signed(w, if i % 4 == 0 { bits.div_ceil(2) } else { bits })).collect();
        check_truncation(
            &share(&values, bits, seed ^ 1),
            TruncateParams { bits, out_bits, shift, range: RANGES[range] },
        );
    }

    #[test]
    fn relu_in_any_width(
        bits in 3u32..=WIDEST, more in 0u32..=32, digit in 1u32..=4, count in 1usize..300, seed: u64, j: u32,
    ) {
        let more = more.min(63 - bits);
        let values: Vec<i64> = words(seed, count).iter().map(|&w| signed(w, bits)).collect();
        let shares = share(&values, bits, seed ^ 1);
        let want: Vec<i64> = values.iter().map(|&x| reference::relu(x)).collect();
        prop_assert_eq!(relu(&shares, ReluParams { output: ring(bits + more), digit, ..ReluParams::new(bits) }), want);
        let lowest = 1.max((2 * bits).saturating_sub(64));
        let log2_six = lowest + j % (bits - 1 - lowest);
        let want: Vec<i64> = values.iter().map(|&x| reference::relu6(x, log2_six)).collect();
        let params = Relu6Params { output: ring(bits + more), digit, ..Relu6Params::new(bits, log2_six) };
        prop_assert_eq!(relu6(&shares, params), want, "{:?}", params);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// ReLU, ReLU6 and extensions into any odd modulus that holds the values: exact, at the stated cost.
    #[test]
    fn any_odd_modulus(
        bits in 4u32..=WIDEST, more in 1u32..=58, low: u64, digit in 1u32..=4, count in 1usize..300, seed: u64, j: u32,
    ) {
        let width = (bits + more).min(62);
        let output = Modulus::odd(1 << (width - 1) | low >> (65 - width) | 1).unwrap();
        prop_assert_eq!(output.bits(), width);
        let values: Vec<i64> = words(seed, count).iter().map(|&w| signed(w, bits)).collect();
        let shares = share(&values, bits, seed ^ 1);
        let want: Vec<i64> = values.iter().map(|&x| reference::relu(x)).collect();
        prop_assert_eq!(relu(&shares, ReluParams { output, digit, ..ReluParams::new(bits) }), want);
        let lowest = 1.max((2 * bits).saturating_sub(64));
        let log2_six = lowest + j % (bits - 1 - lowest);
        let want: Vec<i64> = values.iter().map(|&x| reference::relu6(x, log2_six)).collect();
        let params = Relu6Params { output, digit, ..Relu6Params::new(bits, log2_six) };
        prop_assert_eq!(relu6(&shares, params), want, "{:?}", params);
        let range = Range::Full { digit };
        prop_assert_eq!(&extend(&shares, ExtendParams { bits, output, range }), &values);
        for (range, small) in [(Range::Signed, bits - 1), (Range::NonNegative, bits)] {
            let values: Vec<i64> = values.iter().map(|&x| signed(x as u64, small)).collect();
            let values: Vec<i64> =
                values.into_iter().map(|x| if range == Range::Signed { x } else { x.max(0) }).collect();
            let shares = share(&values, bits, seed ^ 2);
            prop_assert_eq!(extend(&shares, ExtendParams { bits, output, range }), values, "{:?}", range);
        }
    }
}

#[test]
fn unusable_shapes_are_refused() {
    let good = PoolShape { channels: 1, size: [4, 4], kernel: [2, 2], stride: [1, 1], pads: [0; 4] };
    assert!(good.output().is_ok());
    for bad in [
        PoolShape { channels: 0, ..good },
        PoolShape { size: [0, 4], ..good },
        PoolShape { kernel: [2, 0], ..good },
        PoolShape { stride: [0, 1], ..good },
        PoolShape { pads: [2, 0, 0, 0], ..good },
        PoolShape { kernel: [5, 2], ..good },
    ] {
        assert!(matches!(bad.output(), Err(MpcError::Misuse { .. })), "{bad:?}");
    }
}

fn argmax(values: &[i64], bits: u32) -> usize {
    let shares = share(values, bits, 11);
    let n = values.len();
    let params = ArgmaxParams { count: n, bits, digit: 4 };
    let [(c, seen_c), (s, seen_s)] =
        both(n as u64, |p, c| Argmax::prepare(p, c, params), |p, role, c| p.run(c, of(role, &shares)));
    assert_cost([seen_c, seen_s], params.cost());
    assert_eq!(s, None);
    c.unwrap()
}

#[test]
fn argmax_finds_the_first_of_the_largest() {
    for n in [1, 2, 3, 4, 5, 7, 8, 10, 100, 1000, 1001] {
        for bits in [12, 16, 20, 37, 40] {
            let limit = 1i64 << (bits - 2);
            let mut values: Vec<i64> = words(n as u64, n).iter().map(|&w| signed(w, bits - 1)).collect();
            assert_eq!(argmax(&values, bits), reference::argmax(&values));
            // The largest wins everywhere, even against the smallest possible.
            for at in [0, n / 2, n - 1] {
                let mut one = vec![1 - limit; n];
                one[at] = limit - 1;
                assert_eq!(argmax(&one, bits), at);
            }
            // Ties.
            values.iter_mut().for_each(|v| *v = v.rem_euclid(3));
            assert_eq!(argmax(&values, bits), reference::argmax(&values));
            assert_eq!(argmax(&vec![-5; n], bits), 0);
        }
    }
}

/// The tables of `docs/protocols/nonlinear.md`, where comparisons are in it, say what they cost.
#[test]
fn the_page_says_what_it_costs() {
    let page = include_str!("../../../docs/protocols/nonlinear.md").replace("**", "");
    const N: usize = 1 << 20;
    let relu = |bits, out, digit, ignored| {
        priced(N, ReluParams { output: ring(out), digit, ignored, ..ReluParams::new(bits) })
    };
    let mut rows = vec![
        ("sign alone".into(), NonNegative::cost(N, 16, 4)),
        ("ReLU, 16 bits, digits of three".into(), relu(16, 16, 3, 0)),
        ("ReLU, 16 bits, digits of two".into(), relu(16, 16, 2, 0)),
        ("ReLU, 24 bits".into(), relu(24, 24, 4, 0)),
        ("ReLU, 24 bits, digits of three".into(), relu(24, 24, 3, 0)),
        ("ReLU, 24 bits, digits of two".into(), relu(24, 24, 2, 0)),
        ("ReLU, 32 bits".into(), relu(32, 32, 4, 0)),
        ("ReLU, 37 bits".into(), relu(37, 37, 4, 0)),
        ("ReLU, 37 bits, digits of three".into(), relu(37, 37, 3, 0)),
        ("ReLU, 37 bits, low 12 ignored".into(), relu(37, 37, 4, 12)),
        ("ReLU, 37 bits, low 12 ignored, digits of three".into(), relu(37, 37, 3, 12)),
        ("ReLU, 40 bits".into(), relu(40, 40, 4, 0)),
        ("ReLU, 37 → 49 bits (room for a local truncation by 12)".into(), relu(37, 49, 4, 0)),
    ];
    for out in [16, 30] {
        for (ignored, name) in [(0, ""), (1, ", lowest bit ignored")] {
            rows.push((format!("ReLU, out {out}{name}"), relu(16, out, 4, ignored)));
            for six in [11, 12] {
                let params = Relu6Params { output: ring(out), ignored, ..Relu6Params::new(16, six) };
                rows.push((format!("ReLU6, j = {six}, out {out}{name}"), priced(N, params)));
            }
        }
    }
    // As calibration makes them for SiLU: values of 16 bits, and eight guard bits or none.
    for (bits, log2) in [(16, 7), (16, 8), (24, 7), (24, 8), (24, 9)] {
        let low = bits - 1 - log2;
        let shift = 16 - log2;
        let up_to = |bits: u32| (0..1i64 << log2).map(|j| if j == 0 { 0 } else { (1 << bits) - 1 }).collect();
        let (offsets, slopes) = (up_to(16), up_to(shift + 1));
        let pieces = Arc::new(Pieces {
            low,
            offset_shift: shift + bits - 18,
            shift,
            offsets,
            slopes,
            beyond: Beyond::Repeated,
        });
        let params = CurveParams { bits, out_bits: bits, digit: 4, pieces };
        rows.push((format!("curve, {bits} bits, {} pieces", 1 << log2), priced(N, params)));
    }
    // As it makes them for values up to 200: SiLU's line goes on with a slope of one, a sigmoid's is level.
    for (bits, log2, tail) in [(16, 5, 1), (24, 5, 1), (24, 7, 1), (24, 7, 0)] {
        let (low, shift) = (bits - 6 - log2, 11 - log2);
        let up_to = |bits: u32| (0..1i64 << log2).map(|j| if j == 0 { 0 } else { (1 << bits) - 1 }).collect();
        let (offsets, slopes) = (up_to(11), up_to(shift + 1));
        let pieces =
            Pieces { low, offset_shift: shift + bits - 18, shift, offsets, slopes, beyond: Beyond::Straight };
        let pieces = Arc::new(straight(pieces, tail));
        let params = CurveParams { bits, out_bits: bits, digit: 4, pieces };
        let level = if tail == 0 { ", level" } else { "" };
        rows.push((
            format!("curve with straight ends{level}, {bits} bits, {} pieces", 1 << log2),
            priced(N, params),
        ));
    }
    // An exponential's, as of 18 bits and eight guard bits.
    let (offsets, slopes) = ([512, 512], [0, 0]);
    let up_to =
        |first: [i64; 2], most: i64| first.into_iter().chain((2..64).map(|j| j * most / 63)).collect();
    let pieces = Pieces {
        low: 15,
        offset_shift: 15,
        shift: 3,
        offsets: up_to(offsets, 511),
        slopes: up_to(slopes, -120),
        beyond: Beyond::Level { begin: -1 << 20 },
    };
    let params = CurveParams { bits: 26, out_bits: 26, digit: 4, pieces: Arc::new(pieces) };
    rows.push(("curve, level outside of 64 pieces, 26 bits".into(), priced(N, params)));
    for (out_bits, shift) in [(16, 12), (24, 20)] {
        let params = ProductParams { out_bits, shift, offsets: [0; 2] };
        rows.push((format!("product, out {out_bits}, s = {shift}"), priced(N, params)));
        rows.push((format!("square, out {out_bits}, s = {shift}"), priced(N, SquareParams(params))));
    }
    let any = TruncateParams { bits: 37, out_bits: 37, shift: 12, range: Range::Full { digit: 4 } };
    rows.push(("truncation, 37 bits by 12, any x".into(), priced(N, any)));
    let each = |n: u64| n as f64 / N as f64;
    let bytes = |n: u64| if n == 0 { "0".into() } else { format!("{:.3}", each(n)) };
    let thousands = |n: u64| {
        let digits = n.to_string();
        let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
        String::from_utf8(groups.join(&b','))
    };
    let pool = |kernel, pads, channels, size| Pooling {
        shape: PoolShape { channels, size: [size; 2], kernel, stride: [2; 2], pads },
        params: PoolParams::new(16),
    };
    let logits = |count| ArgmaxParams { count, bits: 16, digit: 4 };
    let layers: [(&str, &dyn Nonlinear); 4] = [
        (
            "max-pool 3×3, stride 2, padding 1, 64 × 112 × 112 (200,704 outputs) | 1,193,472 (5.95 an output)",
            &pool([3, 3], [1; 4], 64, 112),
        ),
        ("max-pool 2×2, stride 2, 64 × 32 × 32 (16,384 outputs) | 49,152 (3)", &pool([2, 2], [0; 4], 64, 32)),
        ("argmax over 1000 | 999", &logits(1000)),
        ("argmax over 10 | 9", &logits(10)),
    ];
    let layers = layers.map(|(name, layer)| {
        let c = layer.cost();
        let figures = [c.vectors_from_server, c.bits_from_server, c.bits_from_client, c.up, c.down];
        let figures = figures.map(|n| thousands(n).unwrap()).join(" | ");
        format!("| {name} | {figures} | {} |", c.client_rounds + c.server_rounds)
    });
    let wrong: Vec<String> = rows
        .into_iter()
        .map(|(name, c)| {
            let drawn = [c.vectors_from_server, c.bits_from_server, c.bits_from_client].map(|n| n / N as u64);
            let offline = c.prepare_up + c.prepare_down;
            let bytes = [offline, c.up, c.down, c.up + c.down].map(bytes).join(" | ");
            let (kept, flights) =
                ((each(c.client_memory), each(c.server_memory)), c.client_rounds + c.server_rounds);
            let [v, s, d] = drawn;
            format!("| {name} | {v} | {s} | {d} | {bytes} | {:.2} | {:.2} | {flights} |", kept.0, kept.1)
        })
        .chain(layers)
        .filter(|row| !page.contains(row))
        .collect();
    assert!(wrong.is_empty(), "the page lacks\n{}", wrong.join("\n"));
}

#[test]
fn prepared_memory_is_about_thirty_bytes() {
    let cost = priced(1 << 20, ReluParams { output: ring(30), ..ReluParams::new(16) });
    let each = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    assert_eq!((each(cost.client_memory), each(cost.server_memory)), (29.875, 31.75));
    // The figures of relu.rs's header.
    let figures = |cost: Cost| {
        let drawn = [cost.vectors_from_server, cost.bits_from_server, cost.bits_from_client];
        (each(cost.up + cost.down), drawn.map(|n| n >> 20))
    };
    assert_eq!(figures(cost), (17.625, [7, 4, 6]));
    assert_eq!(figures(priced(1 << 20, ReluParams::new(16))), (15.625, [7, 4, 4]));
    let cost = priced(1 << 20, Relu6Params::new(16, 12));
    assert_eq!((figures(cost), each(cost.prepare_down)), ((19.625, [7, 6, 5]), 0.375));
    // At full width, and the truncation's header.
    assert_eq!(figures(priced(1 << 20, ReluParams::new(37))), (38.875, [17, 9, 9]));
    let cut = TruncateParams { bits: 37, out_bits: 37, shift: 12, range: Range::NonNegative };
    let cost = priced(1 << 20, cut);
    assert_eq!((each(cost.up), each(cost.down)), (1.5, 0.125));
    assert_eq!(figures(cost).1, [0, 0, 1]);
    // Where the ring shrinks with the value, nothing.
    let cost = priced(1 << 20, TruncateParams { bits: 28, out_bits: 16, ..cut });
    assert_eq!(cost, Cost::default());
}
