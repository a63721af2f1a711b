//! The comparison that leaks: it computes what it should, for what it should cost, and messages tell what is stated.

use jaguar_fregata::pmax_leaky::{PmaxLeakyParams, PmaxLeakyPooling, PmaxLeakyRelu};
use jaguar_mpc::cost::Cost;
use jaguar_mpc::reference::{self, residue, signed};
use jaguar_mpc::*;
use jaguar_ot::{Cots, Instances, Role};
use jaguar_wire::double::Recorder;
use jaguar_wire::{Channel, memory_pair, memory_transports};
use proptest::prelude::*;

use crate::common::{self, Seen, both, share, words};

fn of<T>(role: Role, pair: &[Vec<T>; 2]) -> &[T] {
    &pair[usize::from(role == Role::Server)]
}

/// Bytes, rounds and COTs of both parties are those of the cost table.
#[track_caller]
fn assert_cost(seen: [Seen; 2], want: Cost) {
    let [client, server] = seen;
    assert_eq!(client.drawn, (want.from_client(), want.from_server()), "correlations");
    assert_eq!(server.drawn, (want.from_server(), want.from_client()), "correlations");
    let prepared = (client.prepared.sent, client.prepared.received);
    assert_eq!(prepared, (want.prepare_up, want.prepare_down), "preparation");
    assert_eq!((server.prepared.received, server.prepared.sent), prepared, "preparation");
    assert_eq!((client.online.sent, client.online.received), (want.up, want.down), "online");
    assert_eq!((server.online.received, server.online.sent), (want.up, want.down), "online");
    assert_eq!(client.online.rounds, want.client_rounds, "rounds of the client");
    assert_eq!(server.online.rounds, want.server_rounds, "rounds of the server");
}

/// Runs a layer, with its corrections offline if they are `early`; the opened results.
fn run(layer: &dyn Nonlinear, shares: &[Vec<u64>; 2], out: Modulus, early: bool) -> Vec<i64> {
    layer.check().unwrap();
    let prepare = |p: &mut common::TestParty, c: &mut Channel| {
        let mut blocks = layer.prepare(p, c)?;
        if early {
            for block in &mut blocks {
                let range = block.inputs();
                let x = (p.role() == Role::Client).then(|| &shares[0][range]);
                block.correct(c, x)?;
            }
        }
        Ok(blocks)
    };
    let run = |blocks, role, chan: &mut Channel| run_blocks(blocks, chan, of(role, shares));
    let [(c, seen_c), (s, seen_s)] = both(shares[0].len() as u64 + 1, prepare, run);
    let cost = if early { layer.cost_corrected_early() } else { layer.cost() };
    // What the server received last offline, it has sent nothing since: its first wait is no round.
    let received = u64::from(cost.prepare_up > 0);
    assert_cost(
        [seen_c, seen_s],
        Cost { server_rounds: cost.server_rounds.saturating_sub(received), ..cost },
    );
    assert!(c.iter().chain(&s).all(|&x| x == out.reduce(x)), "shares are reduced");
    c.iter().zip(&s).map(|(&c, &s)| out.open(c, s)).collect()
}

fn relu(params: PmaxLeakyParams, shares: &[Vec<u64>; 2], early: bool) -> Vec<i64> {
    run(&PmaxLeakyRelu { count: shares[0].len(), params }, shares, params.output, early)
}

/// What it computes of these values.
fn want(params: &PmaxLeakyParams, values: &[i64]) -> Vec<i64> {
    let one = |&x: &i64| params.log2_six.map_or(reference::relu(x), |six| reference::relu6(x, six));
    values.iter().map(one).collect()
}

/// The extremes of n bits and of the clip, their neighbours, and random values.
fn interesting(bits: u32, count: usize, seed: u64) -> Vec<i64> {
    let top = 1i64 << (bits - 1);
    let mut values = vec![0, 1, -1, 2, -2, top - 1, top - 2, -top, 1 - top, top / 2, -top / 2, top / 2 - 1];
    values.extend(words(seed, count).iter().map(|&w| signed(w, bits)));
    values
}

#[test]
fn exact_on_all_small_shares() {
    for (bits, factor_bits) in [(3, 1), (6, 1), (6, 3), (8, 2), (8, 6)] {
        let values = bits - factor_bits;
        let most = 1i64 << (values - 1);
        let (values, client): (Vec<i64>, Vec<u64>) =
            (-most..most).flat_map(|x| (0..1u64 << bits).map(move |c| (x, c))).unzip();
        let server = values.iter().zip(&client).map(|(&x, &c)| residue(x - c as i64, bits)).collect();
        let shares = [client, server];
        for output in
            [Modulus::power_of_two(bits), Modulus::power_of_two(bits + 5), Modulus::odd(1009).unwrap()]
        {
            for log2_six in std::iter::once(None).chain((0..bits.saturating_sub(1 + factor_bits)).map(Some)) {
                let params = PmaxLeakyParams { output, log2_six, ..PmaxLeakyParams::new(bits, factor_bits) };
                assert_eq!(relu(params, &shares, factor_bits == 1), want(&params, &values), "{params:?}");
            }
        }
    }
}

#[test]
fn exact_at_real_widths() {
    let odd = Modulus::odd((1 << 50) + 55).unwrap();
    for (n, factor_bits) in [(12, 1), (16, 8), (24, 7), (24, 16), (30, 10), (40, 16)] {
        let bits = n + factor_bits;
        let values = interesting(n, 1500, u64::from(bits));
        let mut shares = share(&values, bits, 5);
        // The shares' own extremes.
        for i in 0..12 {
            shares[0][i] = [0, (1 << bits) - 1, 1 << (bits - 1)][i % 3];
            shares[1][i] = residue(values[i].wrapping_sub(shares[0][i] as i64), bits);
        }
        let wide = Modulus::power_of_two((bits + 14).min(63));
        for output in [Modulus::power_of_two(bits), Modulus::power_of_two(bits + 1), wide, odd] {
            for log2_six in [None, Some(n - 3)] {
                let params = PmaxLeakyParams { output, log2_six, ..PmaxLeakyParams::new(bits, factor_bits) };
                for early in [false, true] {
                    assert_eq!(relu(params, &shares, early), want(&params, &values), "{params:?}");
                }
            }
        }
    }
}

#[test]
fn batches_of_all_sizes() {
    let params = PmaxLeakyParams { output: Modulus::power_of_two(36), ..PmaxLeakyParams::new(24, 8) };
    for count in [0, 1, 2, 7, 8, 9, 511, 512, 513, (1 << 14) - 1, (1 << 14) + 1, 3 << 14] {
        let values: Vec<i64> = words(count as u64, count).iter().map(|&w| signed(w, 16)).collect();
        for early in [false, count > 0] {
            assert_eq!(relu(params, &share(&values, 24, 1), early), want(&params, &values), "{count}");
        }
    }
}

/// Values beyond the stated range: some factors make a product wrap, and its sign is wrong.
#[test]
fn wider_values_fail_as_stated() {
    let params = PmaxLeakyParams::new(24, 8);
    let values = vec![1i64 << 20; 1000];
    let got = relu(params, &share(&values, 24, 1), false);
    // T·2^20 is negative mod 2^24 for T = 8 to 15 mod 16, and zero for T = 0 mod 16.
    let wrong = got.iter().filter(|&&y| y == 0).count();
    assert!(got.iter().all(|&y| y == 0 || y == 1 << 20));
    assert!((450..680).contains(&wrong), "{wrong} of 1000");
}

fn pool(shape: PoolShape, n: u32, factor_bits: u32, seed: u64, early: bool) {
    let bits = n + factor_bits;
    let count = shape.channels * shape.size[0] * shape.size[1];
    // The two farthest apart, next to each other, and many ties.
    let most = (1i64 << (n - 2)) - 1;
    let value = |w: &u64| match w % 5 {
        0 => most,
        1 => -most,
        2 => signed(*w >> 8, 3),
        _ => signed(*w >> 8, n - 1).max(-most),
    };
    let x: Vec<i64> = words(seed, count).iter().map(value).collect();
    let layer = PmaxLeakyPooling { shape, bits, factor_bits };
    let got = run(&layer, &share(&x, bits, seed), Modulus::power_of_two(bits), early);
    assert_eq!(got, reference::maxpool(&x, &shape), "{shape:?}");
}

#[test]
fn pools_in_common_shapes() {
    for (i, (size, kernel, stride, pads)) in
        [([24, 24], 3, 2, [0; 4]), ([15, 17], 3, 2, [1; 4]), ([8, 8], 2, 2, [0; 4]), ([5, 5], 1, 1, [0; 4])]
            .into_iter()
            .enumerate()
    {
        // The last one in several blocks of channels.
        for channels in [1, 3, 120] {
            let shape = PoolShape { channels, size, kernel: [kernel; 2], stride: [stride; 2], pads };
            pool(shape, 16, 8, i as u64, kernel > 1 && channels == 3);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn pools_in_any_shape(
        channels in 1usize..4, size in [1usize..9, 1usize..9], kernel in [1usize..5, 1usize..5],
        stride in [1usize..4, 1usize..4], pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        n in 4u32..=24, factor_bits in 1u32..=16, seed: u64,
    ) {
        let pads: [usize; 4] = std::array::from_fn(|side| pads[side] % kernel[side % 2]);
        let shape = PoolShape { channels, size, kernel, stride, pads };
        prop_assume!(shape.output().is_ok());
        pool(shape, n, factor_bits, seed, false);
    }

    #[test]
    fn activations_in_any_width(
        n in 4u32..=40, factor_bits in 1u32..=16, wider in 0u32..=23, six in 0u32..40, clipped: bool, early: bool,
        count in 1usize..700, seed: u64,
    ) {
        let bits = n + factor_bits;
        let values = interesting(n, count, seed);
        let log2_six = clipped.then(|| six % (n - 2));
        let output = Modulus::power_of_two((bits + wider).min(63));
        let params = PmaxLeakyParams { output, log2_six, ..PmaxLeakyParams::new(bits, factor_bits) };
        prop_assert_eq!(relu(params, &share(&values, bits, seed), early), want(&params, &values));
    }
}

#[test]
fn unusable_parameters_are_refused() {
    let good = PmaxLeakyParams::new(24, 8);
    assert!(good.check().is_ok());
    for bad in [
        PmaxLeakyParams { bits: 2, ..good },
        PmaxLeakyParams { bits: 57, output: Modulus::power_of_two(57), ..good },
        PmaxLeakyParams { factor_bits: 0, ..good },
        PmaxLeakyParams { factor_bits: 17, ..good },
        PmaxLeakyParams { bits: 9, ..good },
        PmaxLeakyParams { output: Modulus::power_of_two(23), ..good },
        PmaxLeakyParams { output: Modulus::power_of_two(57), ..good },
        PmaxLeakyParams { log2_six: Some(15), ..good },
    ] {
        assert!(matches!(bad.check(), Err(MpcError::Misuse { .. })), "{bad:?}");
    }
}

#[test]
fn from_real_correlations() {
    let values = interesting(16, 20_000, 8);
    let params = PmaxLeakyParams { output: Modulus::power_of_two(36), ..PmaxLeakyParams::new(24, 8) };
    let shares = share(&values, 24, 9);
    let (a, b) = memory_pair();
    let one = |role: Role, mut chan: Channel| {
        let mut party = Party::new(role, Cots::setup(&mut chan, role, Instances::default()).unwrap());
        let relu = PmaxLeakyRelu { count: values.len(), params };
        let blocks = relu.prepare(&mut party, &mut chan).unwrap();
        let y = run_blocks(blocks, &mut chan, of(role, &shares)).unwrap();
        chan.flush().unwrap();
        y
    };
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| one(Role::Server, b));
        (one(Role::Client, a), server.join().unwrap())
    });
    let got: Vec<i64> = client.iter().zip(&server).map(|(&c, &s)| params.output.open(c, s)).collect();
    assert_eq!(got, want(&params, &values));
}

/// Every message but the signs looks random whatever the values are; the parties' shares of what is not positive are zero, so
/// that both know the pattern.
#[test]
fn only_products_and_signs_tell_anything() {
    let count = 1 << 14;
    let params = PmaxLeakyParams { output: Modulus::power_of_two(36), ..PmaxLeakyParams::new(24, 8) };
    for x in [0, 1, 32767, -32768] {
        let shares = share(&vec![x; count], 24, 77);
        let (a, b) = memory_transports();
        let (a, transcript) = Recorder::new(a);
        let one = |role: Role, mut chan: Channel| {
            let dealer = jaguar_ot::insecure_test_dealer::InsecureTestDealer::new(5, role);
            let relu = PmaxLeakyRelu { count, params };
            let blocks = relu.prepare(&mut Party::new(role, dealer), &mut chan).unwrap();
            let y = run_blocks(blocks, &mut chan, of(role, &shares)).unwrap();
            chan.flush().unwrap();
            y
        };
        let (client, server) = std::thread::scope(|scope| {
            let server = scope.spawn(|| one(Role::Server, Channel::new(b)));
            (one(Role::Client, Channel::new(a)), server.join().unwrap())
        });
        for share in [client, server] {
            let zeros = share.iter().filter(|&&y| y == 0).count();
            assert!(if x > 0 { zeros < 10 } else { zeros == count }, "{x}: {zeros}");
        }
        let (mut sent, received) = (transcript.sent(), transcript.received());
        let signs = sent.split_off(sent.len() - count / 8);
        assert!(signs.iter().all(|&byte| byte == if x > 0 { 0xff } else { 0 }));
        for bytes in [sent, received] {
            let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
            let bits = 8.0 * bytes.len() as f64;
            assert!((f64::from(ones) / bits - 0.5).abs() < 5.0 * 0.5 / bits.sqrt(), "{x}: {ones} of {bits}");
        }
    }
}

/// All bytes of a ReLU, a ReLU6 into an odd modulus and a max-pool. A change of the wire format must be meant.
#[test]
fn the_traffic_is_pinned() {
    let relu = PmaxLeakyParams { output: Modulus::power_of_two(36), ..PmaxLeakyParams::new(24, 8) };
    let six = PmaxLeakyParams { output: Modulus::odd(1_000_003).unwrap(), log2_six: Some(10), ..relu };
    let shape = PoolShape { channels: 3, size: [8, 8], kernel: [3, 3], stride: [2, 2], pads: [1, 1, 0, 0] };
    let count = 192;
    let layers: [&dyn Nonlinear; 3] = [
        &PmaxLeakyRelu { count, params: relu },
        &PmaxLeakyRelu { count, params: six },
        &PmaxLeakyPooling { shape, bits: 24, factor_bits: 8 },
    ];
    let shares = share(&interesting(15, count - 12, 3), 24, 4);
    let (a, b) = memory_transports();
    let (a, transcript) = Recorder::new(a);
    let all = |role: Role, mut chan: Channel| {
        let dealer = jaguar_ot::insecure_test_dealer::InsecureTestDealer::new(6, role);
        let mut party = Party::new(role, dealer);
        for layer in layers {
            let blocks = layer.prepare(&mut party, &mut chan).unwrap();
            run_blocks(blocks, &mut chan, of(role, &shares)).unwrap();
        }
        chan.flush().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| all(Role::Server, Channel::new(b)));
        all(Role::Client, Channel::new(a));
    });
    let hashes = [transcript.sent(), transcript.received()].map(|bytes| blake3::hash(&bytes).to_hex());
    let pinned = [
        "3f1748242a30c41793b85bbac5073c2354cabc0b5a2670b1949f6425157c2aa0",
        "63ebfdaffbf01c9aeef92ddda8643c34ad3f14a5410b49f9d5cd9e85cb214018",
    ];
    assert_eq!(hashes.each_ref().map(|hash| hash.as_str()), pinned);
}

/// A peer that stops in the middle ends the run with an error.
#[test]
fn a_peer_that_stops_is_an_error() {
    let params = PmaxLeakyParams { output: Modulus::power_of_two(36), ..PmaxLeakyParams::new(24, 8) };
    for stops in [Role::Client, Role::Server] {
        let (a, b) = memory_pair();
        let one = |role: Role, mut chan: Channel| {
            let dealer = jaguar_ot::insecure_test_dealer::InsecureTestDealer::new(5, role);
            let relu = PmaxLeakyRelu { count: 100, params };
            let blocks = relu.prepare(&mut Party::new(role, dealer), &mut chan).unwrap();
            chan.flush().unwrap();
            if role == stops { Ok(Vec::new()) } else { run_blocks(blocks, &mut chan, &[1; 100]) }
        };
        let results = std::thread::scope(|scope| {
            let server = scope.spawn(|| one(Role::Server, b));
            [one(Role::Client, a), server.join().unwrap()]
        });
        assert!(matches!(results[usize::from(stops == Role::Client)], Err(MpcError::Wire(_))));
    }
}
