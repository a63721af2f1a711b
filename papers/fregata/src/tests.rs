//! Both roles over a channel in memory against the integer reference, the matrix product against its definition, and
//! what a mask that is used twice gives away.

use std::sync::Arc;
use std::thread;

use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_graph::reference::linear_exact;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;
use jaguar_wire::memory_pair;
use proptest::prelude::*;

use super::matrix::{self, Matrix, Tilings};
use super::{Fregata, Hme, Mask};
use jaguar_cheetah::{Encoding, Sizes};
use jaguar_linear::backend::{Backend, Layers, Request};
use jaguar_linear::product::{Device, Processor, ProductShape};

const WEIGHT_BITS: u32 = 12;
const ACTIVATION_BITS: u32 = 24;
const GUARD_BITS: u32 = 8;

fn spec(out: usize, k: usize, stride: usize, pad: usize, groups: usize) -> Linear {
    Linear { kernel: [k; 2], stride: [stride; 2], pads: [pad; 4], groups, ..Linear::same(out, 1, 12) }
}

/// Random weights, with exponents where the layer has them.
fn weights(spec: &Linear, in_shape: Shape, prg: &mut Prg) -> Weights {
    let [h, w] = spec.output_hw(in_shape).unwrap();
    let each = in_shape[0] / spec.groups * spec.kernel[0] * spec.kernel[1];
    let bias = match prg.next_u64() % 2 {
        0 => Bias::PerChannel((0..spec.out_channels).map(|_| signed(prg, 30)).collect()),
        _ => Bias::PerElement((0..spec.out_channels * h * w).map(|_| signed(prg, 30)).collect()),
    };
    Weights {
        weights: (0..spec.out_channels * each).map(|_| signed(prg, WEIGHT_BITS) as i16).collect(),
        exponents: (0..spec.out_channels)
            .map(|_| (prg.next_u64() % (u64::from(spec.max_exponent) + 1)) as u8)
            .collect(),
        bias,
    }
}

/// Above −2^(bits − 1) and below 2^(bits − 1).
fn signed(prg: &mut Prg, bits: u32) -> i64 {
    let bound = 1i64 << (bits - 1);
    ((prg.next_u64() >> (64 - bits)) as i64 - bound).max(1 - bound)
}

// ---- The matrix product ----

/// The product modulo X^n + 1 and 2^64, as it is defined.
fn negacyclic(a: &[i32], b: &[u64]) -> Vec<u64> {
    let mut out = vec![0u64; a.len()];
    for (i, &a) in a.iter().enumerate().filter(|(_, a)| **a != 0) {
        for (j, &b) in b.iter().enumerate() {
            let product = (i64::from(a) as u64).wrapping_mul(b);
            let at = (i + j) % out.len();
            out[at] =
                if i + j < out.len() { out[at].wrapping_add(product) } else { out[at].wrapping_sub(product) };
        }
    }
    out
}

/// Any sizes, so that any tiling may be the cheapest.
fn sizes(up: usize, down: usize) -> Sizes {
    Sizes { up, down, max_outs: usize::MAX }
}

/// The paper's indices, and its coefficient.
#[test]
fn a_single_tile_has_the_papers_indices() {
    for (m, n, k) in [(3, 2, 2), (1, 5, 4), (4, 4, 4), (7, 1, 9), (2, 8, 4)] {
        let (spec, in_shape) = (spec(m, 1, 1, 0, 1), [n, 1, k]);
        let prg = &mut Prg::derive(&[1; 32], "indices", &[m as u64, n as u64, k as u64]);
        let weights = weights(&spec, in_shape, prg);
        let matrix = Matrix::new(64, &spec, in_shape, sizes(1, 1), Tilings::Paper).unwrap();
        assert_eq!((matrix.ciphertexts(), matrix.responses()), (1, 1), "{m} x {n} x {k}");
        let x: Vec<u64> = (0..n * k).map(|_| prg.next_u64()).collect();
        let (mut w_hat, mut m_hat) = (vec![0; 64], vec![0; 64]);
        matrix.write_weights(0, 0, &weights, &mut w_hat);
        matrix.write_inputs(0, 0, &x, &mut m_hat);
        // The columns of M are the outputs from the last to the first.
        let entry = |i: usize, j: usize| x[i * k + k - 1 - j];
        let mut expected = (vec![0; 64], vec![0; 64]);
        for i in 0..m {
            (0..n).for_each(|j| expected.0[i * n * k + j] = i32::from(weights.weights[i * n + j]));
        }
        for j in 0..k {
            (0..n).for_each(|i| expected.1[n * k - j * n - i - 1] = entry(i, j));
        }
        assert_eq!((&w_hat, &m_hat), (&expected.0, &expected.1), "{m} x {n} x {k}");
        let product = negacyclic(&w_hat, &m_hat);
        for i in 0..m {
            for j in 0..k {
                let terms =
                    (0..n).map(|t| (i64::from(weights.weights[i * n + t]) as u64).wrapping_mul(entry(t, j)));
                let exact = terms.fold(0u64, u64::wrapping_add);
                assert_eq!(product[i * n * k + k * n - 1 - j * n], exact, "{m} x {n} x {k}, {i}, {j}");
            }
        }
    }
}

fn any_spec() -> impl Strategy<Value = (Linear, Shape)> {
    let axes = (1usize..8, 1usize..8, prop::array::uniform2(1usize..4), prop::array::uniform2(1usize..4));
    let more = (prop::array::uniform2(1usize..3), prop::array::uniform4(0usize..3));
    (axes, more, (1usize..5, 1usize..4, 1usize..4), 0u32..4).prop_filter_map(
        "a kernel that fits",
        |((h, w, kernel, stride), (dilation, pads), (groups, cg, og), max_exponent)| {
            let out_channels = groups * og;
            let spec = Linear {
                out_channels,
                kernel,
                stride,
                dilation,
                pads,
                groups,
                shift: 12,
                max_exponent,
                blocks: None,
            };
            let shape = [groups * cg, h, w];
            spec.output_hw(shape).map(|_| (spec, shape))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Any layer in any tiling, bit for bit.
    #[test]
    fn tiles_add_up_to_the_layer(
        (spec, in_shape) in any_spec(),
        log_n in 4u32..9,
        (up, down) in (0usize..100_000, 0usize..100_000),
        paper: bool,
        seed: u64,
    ) {
        let n = 1 << log_n;
        let prg = &mut Prg::derive(&[2; 32], "tiles", &[seed]);
        let tilings = if paper && spec.groups == 1 { Tilings::Paper } else { Tilings::Cheapest };
        let mut weights = weights(&spec, in_shape, prg);
        weights.bias = Bias::PerChannel(vec![0; spec.out_channels]);
        let x: Vec<i64> = (0..in_shape.iter().product()).map(|_| signed(prg, 40)).collect();
        let words: Vec<u64> = x.iter().map(|&v| v as u64).collect();
        let exact = linear_exact(Cpu::detect(), &spec, in_shape, &weights, &x);
        let matrix = Matrix::new(n, &spec, in_shape, sizes(up, down), tilings).unwrap();
        let mut out = vec![None; exact.len()];
        for tile in 0..matrix.tile_count() {
            for block in 0..matrix.out_blocks() {
                let mut sum = vec![0u64; n];
                for input in matrix.inputs_of(block) {
                    let (mut w_hat, mut m_hat) = (vec![0; n], vec![0; n]);
                    matrix.write_weights(block, input, &weights, &mut w_hat);
                    matrix.write_inputs(tile, input, &words, &mut m_hat);
                    let product = negacyclic(&w_hat, &m_hat);
                    sum.iter_mut().zip(product).for_each(|(sum, p)| *sum = sum.wrapping_add(p));
                }
                let mut exported = 0;
                for (from, to, len) in matrix.exports(tile, block) {
                    for i in 0..len {
                        let first = out[to + i].replace(sum[from + i * matrix.column_stride()] as i64);
                        prop_assert!(first.is_none(), "an output twice");
                    }
                    exported += len;
                }
                prop_assert_eq!(exported, matrix.exported(tile, block));
            }
        }
        let out: Option<Vec<i64>> = out.into_iter().collect();
        prop_assert_eq!(out, Some(exact));
    }

    /// The online product, in parts, against the reference.
    #[test]
    fn plain_products_are_exact((spec, in_shape) in any_spec(), bits in 20u32..=48, seed: u64) {
        let prg = &mut Prg::derive(&[3; 32], "products", &[seed]);
        let mut weights = weights(&spec, in_shape, prg);
        weights.bias = Bias::PerChannel(vec![0; spec.out_channels]);
        let x: Vec<i64> = (0..in_shape.iter().product()).map(|_| signed(prg, 48)).collect();
        let words: Vec<u64> = x.iter().map(|&v| v as u64).collect();
        let shape = ProductShape { spec: &spec, in_shape, bits, weight_bits: WEIGHT_BITS };
        let mut running = Processor(Cpu::detect()).load(shape, &weights).begin(&words);
        let exact = linear_exact(Cpu::detect(), &spec, in_shape, &weights, &x);
        let plane = exact.len() / spec.out_channels;
        for first in (0..spec.out_channels).step_by(running.together()) {
            let channels = first..(first + running.together()).min(spec.out_channels);
            let mut out = vec![0; channels.len() * plane];
            running.channels(channels.clone(), &mut out);
            let exact = exact[channels.start * plane..channels.end * plane].iter();
            prop_assert!(exact.zip(&out).all(|(&m, &out)| m as u64 & ((1 << bits) - 1) == out));
        }
    }
}

/// Table IV: ciphertexts each way and products.
#[test]
fn the_papers_products_take_its_ciphertexts() {
    for ((m, n, k), count) in [((64, 32, 32), 16), ((16, 64, 64), 16), ((32, 32, 128), 32)] {
        let layer = |tilings| {
            matrix::layer(&spec(m, 1, 1, 0, 1), [n, 1, k], (37, WEIGHT_BITS), 4.0, tilings).unwrap()
        };
        let layout = layer(Tilings::Paper);
        let layout = layout.layout();
        assert_eq!(
            [layout.ciphertexts(), layout.products(), layout.responses()],
            [count; 3],
            "{m}, {n}, {k}"
        );
        assert_eq!(layout.ring_dim(), 4096);
        // What is chosen by cost takes fewer bytes.
        let (paper, cheapest) = (layer(Tilings::Paper), layer(Tilings::Cheapest));
        let bytes = |l: &jaguar_cheetah::Layer<Matrix>| l.upload_bytes() + l.response_bytes();
        assert!(bytes(&cheapest) < bytes(&paper) / 2, "{:?}", cheapest.layout().tiling());
    }
}

/// Depthwise layers on small maps share ciphertexts between groups.
#[test]
fn groups_share_ciphertexts_where_they_fit() {
    let layer =
        matrix::layer(&spec(96, 3, 1, 1, 96), [96, 7, 7], (37, WEIGHT_BITS), 4.0, Tilings::Cheapest).unwrap();
    let tiling = layer.layout().tiling();
    assert!(tiling.groups > 1 && layer.layout().ciphertexts() < 96, "{tiling:?}");
}

// ---- Both roles ----

fn request<'a>(spec: &'a Linear, in_shape: Shape) -> Request<'a> {
    Request {
        node: 0,
        spec,
        in_shape,
        activation_bits: ACTIVATION_BITS,
        guard_bits: GUARD_BITS,
        weight_bits: WEIGHT_BITS + spec.max_exponent,
        opened: false,
        product_bits: 0,
        packing: Default::default(),
        images: 1,
        ring: Default::default(),
        backend: "",
        weight_memory: 0,
    }
}

/// Runs one layer of `backend` as a session does, the input coming in two parts. Output shares, the client's first.
fn run(layers: &Arc<dyn Layers>, weights: &Weights, client: &[u64], server: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let layer = layers.layer(0).unwrap();
    let model =
        Arc::clone(layers).model(&Cpu::detect().into(), [4; 32], &[Some(weights.clone())], WEIGHT_BITS);
    let hint = model.hint(0, 0..layer.hint_parts().0, &[5; 32]);
    let (mut up, mut down) = memory_pair();
    let part = client.len() / 2;
    thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            let mut party = Arc::clone(&model).party(&[5; 32]);
            party.setup(&mut down).unwrap();
            party.begin_query(&mut down).unwrap();
            down.flush().unwrap();
            party.exchange(0, &[], &mut down).unwrap();
            let mut online = party.prepare(0, &[], &mut down).unwrap();
            online.receive(&mut down, part).unwrap();
            online.feed_all(&mut down, server).unwrap();
            let mut output = online.finish(&mut down, server).unwrap();
            output.make(1);
            output.into_values()
        });
        let mut party = Arc::clone(layers).client(Cpu::detect(), [4; 32]);
        party.setup(&mut up).unwrap();
        party.begin_query(&mut up).unwrap();
        let before = up.total();
        party.exchange(0, &hint, &mut up).unwrap();
        party.collect(0, &mut up).unwrap();
        let mut online = party.prepare(0, &hint, &mut up).unwrap();
        let early = online.early_output().expect("before the input").to_vec();
        let offline = up.total();
        online.feed(&mut up, &client[..part]).unwrap();
        online.feed_all(&mut up, client).unwrap();
        let output = online.finish(&mut up, client).unwrap().into_values();
        up.flush().unwrap();
        assert_eq!(early, output);
        let (traffic, after) = (layer.traffic(), up.total());
        let passed = (offline.sent - before.sent, offline.received - before.received);
        assert_eq!(passed, (traffic.offline.0 as u64, traffic.offline.1 as u64));
        let passed = (after.sent - offline.sent, after.received - offline.received);
        assert_eq!(passed, (traffic.online.0 as u64, traffic.online.1 as u64));
        (output, theirs.join().unwrap())
    })
}

/// Both roles of a layer on a random input: every output is within its bound of the exact quotient.
fn check(backend: &dyn Backend, spec: &Linear, in_shape: Shape, seed: u64) {
    let prg = &mut Prg::derive(&[6; 32], "check", &[seed]);
    let layers = backend.plan(&[request(spec, in_shape)]).unwrap();
    let (layer, weights) = (layers.layer(0).unwrap(), weights(spec, in_shape, prg));
    let (l, n) = (ACTIVATION_BITS + spec.shift, ACTIVATION_BITS);
    assert_eq!((layer.input().modulus.bits(), layer.output().modulus.bits()), (l, n));
    assert!(layer.output_known_early() && layer.traffic().rounds == 0);
    let x: Vec<i64> = (0..in_shape.iter().product()).map(|_| signed(prg, ACTIVATION_BITS)).collect();
    let mut client = vec![0; x.len()];
    prg.fill_words(&mut client, l);
    let server: Vec<u64> =
        x.iter().zip(&client).map(|(&x, &c)| (x as u64).wrapping_sub(c) & ((1 << l) - 1)).collect();
    let (ours, theirs) = run(&layers, &weights, &client, &server);
    let bound = layer.rounding_ulps() + 8.0 * layer.noise_ulps();
    assert!(layer.noise_ulps() <= f64::from(1 << GUARD_BITS) / 16.0);
    let exact = linear_exact(Cpu::detect(), spec, in_shape, &weights, &x);
    assert_eq!((ours.len(), theirs.len()), (exact.len(), exact.len()));
    for (i, (&m, (&c, &s))) in exact.iter().zip(ours.iter().zip(&theirs)).enumerate() {
        assert!(c >> n == 0 && s >> n == 0, "reduced");
        // Modulo 2^n.
        let turn = 2f64.powi(n as i32);
        let off = (c.wrapping_add(s) as f64 - m as f64 / f64::from(1 << spec.shift)).rem_euclid(turn);
        let off = off.min(turn - off);
        assert!(off < bound, "{}: output {i} is off by {off} of {bound}", backend.name());
    }
}

const ENGINES: [&Fregata; 3] = [&Fregata::HME, &Fregata::CHEETAH, &Fregata::JAGUAR];

#[test]
fn layers_of_every_kind_are_within_their_bounds() {
    for (seed, engine) in ENGINES.into_iter().enumerate() {
        let wide = Linear { dilation: [2, 1], max_exponent: 3, ..spec(5, 3, 1, 2, 1) };
        for (spec, in_shape) in [
            (spec(10, 1, 1, 0, 1), [17, 1, 1]),
            (spec(6, 3, 1, 1, 1), [4, 9, 7]),
            (spec(4, 1, 2, 0, 1), [9, 8, 8]),
            (spec(12, 3, 2, 1, 12), [12, 8, 8]),
            (spec(8, 5, 2, 2, 2), [6, 11, 10]),
            (spec(16, 7, 2, 3, 1), [3, 32, 32]),
            (wide, [3, 9, 9]),
        ] {
            check(engine, &spec, in_shape, seed as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_layer_is_within_its_bound((spec, in_shape) in any_spec(), engine in 0usize..3, seed: u64) {
        check(ENGINES[engine], &spec, in_shape, seed);
    }
}

/// V has as many bits as a value, and holds what some output reads: of a thin strided layer every s-th row and column.
#[test]
fn what_no_output_reads_is_not_sent() {
    let bytes = |spec: &Linear, in_shape: Shape| {
        let layers = Fregata::HME.plan(&[request(spec, in_shape)]).unwrap();
        layers.layer(0).unwrap().traffic().online
    };
    assert_eq!(bytes(&spec(4, 3, 1, 1, 1), [5, 8, 8]), (5 * 64 * 36 / 8, 0));
    assert_eq!(bytes(&spec(4, 1, 2, 0, 1), [5, 8, 8]), (5 * 16 * 36 / 8, 0));
    assert_eq!(bytes(&spec(4, 3, 2, 1, 1), [5, 8, 8]), (5 * 64 * 36 / 8, 0));
}

/// The engine's noise, of many outputs, against its estimate at worst-case weights.
#[test]
fn noise_is_within_its_estimate() {
    let (spec, in_shape) = (spec(32, 3, 1, 1, 1), [16, 10, 10]);
    let prg = &mut Prg::derive(&[7; 32], "noise", &[]);
    let most = (1i64 << (WEIGHT_BITS - 1)) - 1;
    let extreme = |word: u64| if word & 1 == 0 { most as i16 } else { -most as i16 };
    let weights = Weights {
        weights: (0..32 * 16 * 9).map(|_| extreme(prg.next_u64())).collect(),
        exponents: Vec::new(),
        bias: Bias::PerChannel(vec![0; 32]),
    };
    let l = ACTIVATION_BITS + spec.shift;
    let request = Request { product_bits: l, ..request(&spec, in_shape) };
    let layers = Hme.plan(&[request]).unwrap();
    let mut m = vec![0u64; 1600];
    prg.fill_words(&mut m, l);
    let x: Vec<i64> = m.iter().map(|&m| m as i64).collect();
    // The engine as it is: its input is M, all of it the client's.
    let (client, server) = run_engine(&layers, &weights, &m);
    let exact = linear_exact(Cpu::detect(), &spec, in_shape, &weights, &x);
    let error = |((&c, &s), &m): ((&u64, &u64), &i64)| {
        let off = c.wrapping_add(s).wrapping_sub(m as u64) << (64 - l);
        (off as i64 >> (64 - l)) as f64
    };
    let errors: Vec<f64> = client.iter().zip(&server).zip(&exact).map(error).collect();
    let deviation = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
    let estimate = layers.layer(0).unwrap().noise_ulps() * f64::from(1 << spec.shift);
    // The rounding of the shares adds at most half a unit.
    assert!(
        deviation <= 1.1 * estimate + 0.5 && errors.iter().all(|e| e.abs() <= 8.0 * estimate + 1.0),
        "{deviation}, {estimate}"
    );
}

fn run_engine(layers: &Arc<dyn Layers>, weights: &Weights, m: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let model =
        Arc::clone(layers).model(&Cpu::detect().into(), [4; 32], &[Some(weights.clone())], WEIGHT_BITS);
    let (mut up, mut down) = memory_pair();
    thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            let mut party = Arc::clone(&model).party(&[5; 32]);
            party.setup(&mut down).unwrap();
            let mut online = party.prepare(0, &[], &mut down).unwrap();
            let zeros = vec![0; m.len()];
            online.feed_all(&mut down, &zeros).unwrap();
            let values = online.finish(&mut down, &zeros).unwrap().into_values();
            down.flush().unwrap();
            values
        });
        let mut party = Arc::clone(layers).client(Cpu::detect(), [4; 32]);
        party.setup(&mut up).unwrap();
        let mut online = party.prepare(0, &[], &mut up).unwrap();
        online.feed_all(&mut up, m).unwrap();
        (online.finish(&mut up, m).unwrap().into_values(), theirs.join().unwrap())
    })
}

// ---- What is used twice ----

/// A client that hides two inputs under one M shows their difference. The types do not let it: this M is drawn twice
/// from one seed.
#[test]
fn a_mask_that_is_used_twice_shows_the_difference() {
    let mask = |seed: u8| Mask::fresh(&mut Prg::derive(&[seed; 32], "mask", &[]), 3, 28);
    let (x, y) = ([5, 1 << 27, 77], [9, 3, 1 << 20]);
    let difference = |a: &[u64], b: &[u64]| -> Vec<u64> {
        a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b) & ((1 << 28) - 1)).collect()
    };
    assert_eq!(difference(&mask(1).hide(&x), &mask(1).hide(&y)), difference(&x, &y));
    assert_ne!(difference(&mask(1).hide(&x), &mask(2).hide(&y)), difference(&x, &y));
}

/// A server that masks two products by one R shows W·(M1 − M2): with M1 − M2 = 1 in one place, a column of W.
#[test]
fn a_product_that_is_masked_twice_by_the_same_shows_the_weights() {
    let (spec, in_shape) = (spec(4, 1, 1, 0, 1), [3, 1, 1]);
    let weights = weights(&spec, in_shape, &mut Prg::derive(&[8; 32], "masks", &[]));
    let product = |m: [i64; 3]| linear_exact(Cpu::detect(), &spec, in_shape, &weights, &m);
    let share = |m: [i64; 3], seed: u8| -> Vec<i64> {
        let mut r = Prg::derive(&[seed; 32], "R", &[]);
        product(m).iter().map(|p| p.wrapping_sub(r.next_u64() as i64)).collect()
    };
    let column: Vec<i64> = (0..4).map(|row| i64::from(weights.weights[3 * row + 1])).collect();
    let shown =
        |a: Vec<i64>, b: Vec<i64>| -> Vec<i64> { a.iter().zip(b).map(|(a, b)| a.wrapping_sub(b)).collect() };
    assert_eq!(shown(share([10, 21, 30], 1), share([10, 20, 30], 1)), column);
    assert_ne!(shown(share([10, 21, 30], 1), share([10, 20, 30], 2)), column);
}
