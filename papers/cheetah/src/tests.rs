//! The layer against the convolution from its definition, its bytes against the formulas and against what
//! OpenCheetah sends, and what the client sees against uniform words.

use std::thread;

use jaguar_graph::network::{Bias, Weights};
use jaguar_graph::reference::linear_exact;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::double::Recorder;
use jaguar_wire::{memory_pair, memory_transports};
use proptest::prelude::*;

use super::*;

/// The rings of a smaller N.
fn insecure(n: usize) -> impl Fn(usize) -> Result<RnsParameters, ParameterError> {
    move |limbs| RnsParameters::insecure(n, &primes(limbs)?)
}

struct Case {
    server: ServerLayer,
    weights: Weights,
    /// Signed inputs.
    x: Vec<i64>,
}

impl Case {
    /// Random weights and inputs, or the extremes of either sign.
    fn new(layer: Layer, x_bits: u32, weight_bits: u32, seed: u64, extreme: bool) -> Self {
        let mut prg = Prg::derive(&[7; 32], "cheetah case", &[seed]);
        let mut signed = |bits: u32| {
            let bound = 1i64 << (bits - 1);
            let v = (prg.next_u64() >> (64 - bits)) as i64 - bound;
            if !extreme {
                v.max(1 - bound)
            } else if v < 0 {
                1 - bound
            } else {
                bound - 1
            }
        };
        let layout = &layer.layout;
        let spec = layout.spec();
        let count = spec.out_channels * encoding::terms(spec, layout.in_shape());
        let weights = (0..count).map(|_| signed(weight_bits) as i16).collect();
        let bias = if seed.is_multiple_of(2) {
            Bias::PerChannel((0..spec.out_channels).map(|_| signed(30)).collect())
        } else {
            Bias::PerElement((0..layout.outputs()).map(|_| signed(30)).collect())
        };
        let x = (0..layout.in_shape().iter().product()).map(|_| signed(x_bits)).collect();
        let most = u64::from(spec.max_exponent);
        let exponents = (0..spec.out_channels as u64).map(|d| ((seed ^ d) % (most + 1)) as u8).collect();
        let weights = Weights { weights, exponents, bias };
        Self { server: ServerLayer::new(Cpu::detect(), layer, &weights), weights, x }
    }

    /// Client's and server's share of the input.
    fn shares(&self) -> (Vec<u64>, Vec<u64>) {
        let bits = self.server.layer().share_bits;
        let mut client = vec![0; self.x.len()];
        Prg::derive(&[2; 32], "shares", &[]).fill_words(&mut client, bits);
        let difference = |(&x, &c): (&i64, &u64)| (x as u64).wrapping_sub(c) & ((1 << bits) - 1);
        let server = self.x.iter().zip(&client).map(difference).collect();
        (client, server)
    }

    /// Both parties over a channel; the output shares.
    fn run(&self, query: u64) -> (Vec<u64>, Vec<u64>) {
        let layer = self.server.layer();
        let (x_client, x_server) = self.shares();
        let (mut to_server, mut to_client) = memory_pair();
        let (client, server, traffic) = thread::scope(|s| {
            // (It takes its end with it: where it fails, nobody waits for it.)
            let server = s.spawn(move || {
                let key = PublicKey::receive(layer, &mut to_client).unwrap().prepare(Cpu::detect(), layer);
                let upload = Upload::receive(layer, &mut to_client).unwrap();
                let prepared = self.server.prepare(&mut Prg::derive(&[5; 32], "server", &[query]));
                let (response, share) = self.server.evaluate(prepared, &key, &upload, &x_server);
                response.send(layer, &mut to_client).unwrap();
                to_client.flush().unwrap();
                share
            });
            let mut secret =
                Secret::from_prg(Cpu::detect(), layer, Prg::derive(&[1; 32], "client", &[query]));
            secret.key().send(&mut to_server).unwrap();
            secret.prepare(layer).encrypt(layer, &x_client).send(&mut to_server).unwrap();
            let response = Response::receive(layer, &mut to_server).unwrap();
            (secret.decrypt(layer, &response), server.join().unwrap(), to_server.total())
        });
        assert_eq!(traffic.sent as usize, layer.key_bytes() + layer.upload_bytes());
        assert_eq!((traffic.received as usize, traffic.rounds), (layer.response_bytes(), 1));
        (client, server)
    }

    /// Every output is right or off by one; returns how many are off.
    fn check(&self, query: u64) -> usize {
        let layer = self.server.layer();
        let (client, server) = self.run(query);
        let mask = (1u64 << layer.share_bits) - 1;
        let exact =
            linear_exact(Cpu::detect(), layer.layout.spec(), layer.layout.in_shape(), &self.weights, &self.x);
        assert_eq!(exact.len(), client.len());
        let errors = exact.iter().zip(client.iter().zip(&server)).enumerate().map(|(i, (&m, (c, s)))| {
            let error = c.wrapping_add(*s).wrapping_sub(m as u64) & mask;
            assert!([0, 1, mask].contains(&error), "output {i}: {m} became {}", c.wrapping_add(*s) & mask);
            usize::from(error != 0)
        });
        errors.sum()
    }
}

fn spec(out: usize, k: usize, stride: usize, pad: usize, groups: usize) -> Linear {
    Linear {
        out_channels: out,
        kernel: [k, k],
        stride: [stride; 2],
        dilation: [1, 1],
        pads: [pad; 4],
        groups,
        shift: 12,
        max_exponent: 0,
        blocks: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn any_layer(
        (h, w) in (1usize..10, 1usize..10),
        kernel in prop::array::uniform2(1usize..4),
        stride in prop::array::uniform2(1usize..4),
        dilation in prop::array::uniform2(1usize..3),
        pads in prop::array::uniform4(0usize..3),
        (groups, cg, og) in (1usize..4, 1usize..4, 1usize..4),
        share_bits in 24u32..=48,
        log_n in 5u32..9,
        seed: u64,
        (extreme, one_output) in any::<(bool, bool)>(),
        max_exponent in 0u32..6,
    ) {
        let out_channels = groups * og;
        let spec = Linear { out_channels, kernel, stride, dilation, pads, groups, shift: 8, max_exponent, blocks: None };
        let shape = [groups * cg, h, w];
        prop_assume!(spec.output_hw(shape).is_some());
        let windows = if one_output { Windows::OneOutput } else { Windows::FewestBytes };
        // Inputs of the whole ring: the products wrap around, and so does the reference.
        let widths = (share_bits, 12 + max_exponent);
        if let Ok(layer) = Layer::in_ring(insecure(1 << log_n), &spec, shape, widths, windows, Layer::MAX_NOISE) {
            prop_assert!(layer.noise_ulps() <= Layer::MAX_NOISE);
            Case::new(layer, share_bits, 12, seed, extreme).check(1);
        }
    }

    /// Kernels that reach far past tiny maps, in many channels.
    #[test]
    fn any_layer_over_a_tiny_map(
        (h, w) in (1usize..4, 1usize..4),
        kernel in prop::array::uniform2(1usize..10),
        stride in prop::array::uniform2(1usize..3),
        pads in prop::array::uniform4(0usize..9),
        (groups, cg) in prop_oneof![(Just(1usize), 1usize..200), (1usize..200, Just(1usize))],
        log_n in 6u32..10,
        seed: u64,
    ) {
        let spec = Linear { kernel, stride, pads, groups, ..Linear::same(2 * groups, 1, 8) };
        let shape = [groups * cg, h, w];
        prop_assume!(spec.output_hw(shape).is_some());
        let layer = Layer::in_ring(insecure(1 << log_n), &spec, shape, (37, 12), Windows::FewestBytes, Layer::MAX_NOISE);
        if let Ok(layer) = layer {
            Case::new(layer, 24, 12, seed, false).check(1);
        }
    }
}

/// Windows of every place over tiny maps, in padding alone too: each coefficient is the input's or nothing.
#[test]
fn windows_hold_what_they_lie_over() {
    let mut in_padding_alone = 0;
    for index in 0..3 * 4 * 9 * 9 * 2 {
        let digit = |below: &mut usize, base: usize| {
            let digit = *below % base;
            *below /= base;
            digit
        };
        let mut rest = index;
        let (w, kernel, before, behind) =
            (1 + digit(&mut rest, 3), 1 + digit(&mut rest, 4), digit(&mut rest, 9), digit(&mut rest, 9));
        let stride = 1 + digit(&mut rest, 2);
        let pads = [behind, before, before, behind];
        let spec = Linear { kernel: [2, kernel], stride: [1, stride], pads, ..Linear::same(1, 1, 8) };
        let shape = [3, 2, w];
        let Some([oh, ow]) = spec.output_hw(shape) else { continue };
        let Ok(layer) =
            Layer::in_ring(insecure(64), &spec, shape, (37, 12), Windows::FewestBytes, Layer::MAX_NOISE)
        else {
            continue;
        };
        let layout = &layer.layout;
        let x: Vec<u64> = (1..=6 * w as u64).collect();
        let [wh, ww] = layout.window();
        for (at, tile) in layout.tiles().iter().enumerate() {
            for block in 0..layout.in_blocks() {
                let mut found = vec![0; layout.ring_dim()];
                layout.write_inputs(at, block, &x, &mut found);
                let mut want = vec![0; layout.ring_dim()];
                let channels = layout.blocks().0;
                for (channel, c) in (block * channels..((block + 1) * channels).min(3)).enumerate() {
                    for (y, dy, z, dx) in outputs_and_taps(tile, [2, kernel]) {
                        // A layer with a kernel of one steps over inputs; every other steps over its windows.
                        let step = if kernel == 1 { stride } else { 1 };
                        let to = [y + dy, z * stride / step + dx];
                        let from = [tile.row + y + dy, (tile.column + z) * stride + dx];
                        let place = [from[0].checked_sub(pads[0]), from[1].checked_sub(pads[1])];
                        if let [Some(r), Some(s)] = place
                            && r < 2
                            && s < w
                        {
                            want[(channel * wh + to[0]) * ww + to[1]] = x[(c * 2 + r) * w + s];
                        }
                    }
                }
                in_padding_alone += usize::from(want.iter().all(|&v| v == 0));
                // (What lies between two steps is in the window, and no weight meets it.)
                let same = found.iter().zip(&want).all(|(&f, &want)| f == want || want == 0);
                assert!(same, "{spec:?} {shape:?} -> {oh} x {ow}, window {at}: {found:?}, not {want:?}");
            }
        }
    }
    assert!(in_padding_alone > 100, "{in_padding_alone}");
}

/// Every output of a tile with every tap of a kernel: rows, then columns.
fn outputs_and_taps(
    tile: &jaguar_linear::layout::Tile,
    [kh, kw]: [usize; 2],
) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let (height, width) = (tile.height, tile.width);
    (0..height).flat_map(move |y| {
        (0..kh).flat_map(move |dy| (0..width).flat_map(move |z| (0..kw).map(move |dx| (y, dy, z, dx))))
    })
}

/// The real ring: windows, blocks on both sides, groups, a fully connected layer, both numbers of primes.
#[test]
fn real_parameters() {
    for (seed, (spec, shape, share_bits, limbs)) in [
        (spec(6, 3, 1, 1, 1), [20, 14, 14], 37, 2),
        (spec(3, 3, 1, 1, 1), [2, 70, 70], 37, 2),
        (spec(4, 7, 2, 3, 1), [3, 64, 64], 37, 2),
        (spec(40, 3, 2, 1, 40), [40, 28, 28], 37, 2),
        (spec(16, 1, 2, 0, 1), [30, 28, 28], 37, 2),
        (spec(10, 1, 1, 0, 1), [5000, 1, 1], 37, 2),
        (spec(10, 1, 1, 0, 1), [512, 1, 1], 44, 3),
    ]
    .into_iter()
    .enumerate()
    {
        for extreme in [false, true] {
            let layer = Layer::new(&spec, shape, share_bits, 12, Windows::FewestBytes).unwrap();
            assert_eq!(layer.limbs(), limbs, "{spec:?}");
            let case = Case::new(layer, 24, 12, seed as u64, extreme);
            let outputs = case.server.layer().layout.outputs();
            let wrong = (case.check(1) + case.check(2)) as f64 / (2 * outputs) as f64;
            // An output is off with a probability of E|ε| = 0.8 σ(ε) at most; five standard errors above it.
            let expected = 0.8 * case.server.layer().noise_ulps();
            let bound = expected + 5.0 * (expected / (2 * outputs) as f64).sqrt();
            assert!(wrong <= bound, "{wrong} of the outputs are off, expected {expected}: {spec:?}");
        }
    }
}

/// Ciphertexts and responses where one output takes one response: what OpenCheetah was seen to send, at 62.4
/// kB a ciphertext (56x56, 64 to 256 channels: 3.81 MiB up and so on).
#[test]
fn counts_are_those_of_the_published_code() {
    for (spec, shape, ciphertexts, responses) in [
        (spec(256, 1, 1, 0, 1), [64, 56, 56], 64, 256),
        (spec(64, 1, 1, 0, 1), [256, 56, 56], 256, 64),
        (spec(512, 1, 1, 0, 1), [128, 28, 28], 26, 512),
        (spec(256, 1, 1, 0, 1), [1024, 14, 14], 52, 256),
        (spec(1024, 1, 1, 0, 1), [256, 14, 14], 13, 1024),
        (spec(2048, 1, 1, 0, 1), [512, 7, 7], 7, 2048),
        (spec(512, 1, 1, 0, 1), [2048, 7, 7], 25, 512),
        (spec(64, 3, 1, 1, 1), [64, 56, 56], 64, 64),
        (spec(128, 3, 1, 1, 1), [128, 28, 28], 32, 128),
        (spec(256, 3, 1, 1, 1), [256, 14, 14], 16, 256),
        (spec(512, 3, 1, 1, 1), [512, 7, 7], 11, 512),
        (spec(64, 7, 2, 3, 1), [3, 224, 224], 48, 1024),
    ] {
        let layer = Layer::new(&spec, shape, 37, 12, Windows::OneOutput).unwrap();
        let layout = layer.layout();
        assert_eq!(
            (layout.ciphertexts(), layout.responses()),
            (ciphertexts, responses),
            "{spec:?} {shape:?}"
        );
        assert_eq!(layer.limbs(), 2);
        // N·⌈log2 q⌉ bits a ciphertext; N·(l + 10) a response and l + 5 an output.
        assert_eq!(layer.upload_bytes(), 32 + ciphertexts * 4096 * 60 / 8);
        let outputs = layout.outputs();
        assert_eq!(layer.response_bytes(), responses * 4096 * 47 / 8 + (outputs * 42).div_ceil(8));
        let fewest = Layer::new(&spec, shape, 37, 12, Windows::FewestBytes).unwrap();
        assert!(
            fewest.upload_bytes() + fewest.response_bytes() <= layer.upload_bytes() + layer.response_bytes()
        );
    }
}

/// The choice of windows in numbers: blocks on both sides under the noise bound.
#[test]
fn fewest_bytes() {
    for (spec, shape, window, blocks, products) in [
        // 103 uploads of 30 kB and 128 responses of 24 kB; (16, 5) would be 128 and 103, (12, 6) 171 and 86.
        (spec(512, 1, 1, 0, 1), [2048, 7, 7], [7, 7], (20, 4), 103 * 128),
        // Depthwise: block and block coincide.
        (spec(384, 3, 1, 1, 384), [384, 14, 14], [16, 16], (4, 4), 96),
        // Subsampled: a 1x1 kernel of stride 2 reads a quarter.
        (spec(128, 1, 2, 0, 1), [64, 56, 56], [28, 28], (2, 2), 32 * 64),
    ] {
        let layer = Layer::new(&spec, shape, 37, 12, Windows::FewestBytes).unwrap();
        let layout = layer.layout();
        assert_eq!(
            (layout.window(), layout.blocks(), layout.products()),
            (window, blocks, products),
            "{spec:?}"
        );
    }
}

/// With noise allowed that a truncation hides, two primes do: the products are
/// off by that noise, no more.
#[test]
fn noise_below_a_truncation() {
    let spec = spec(64, 3, 1, 1, 1);
    let plan = |most| Layer::with_noise(&spec, [64, 7, 7], 40, 14, Windows::FewestBytes, most);
    let (strict, layer) = (plan(Layer::MAX_NOISE).unwrap(), plan(16.0).unwrap());
    assert_eq!((strict.limbs(), layer.limbs()), (3, 2));
    assert!(layer.upload_bytes() < strict.upload_bytes());
    assert!(layer.noise_ulps() > 1.0 && layer.noise_ulps() <= 16.0);
    let case = Case::new(layer.clone(), 16, 14, 3, true);
    let (client, server) = case.run(1);
    let exact = linear_exact(Cpu::detect(), &spec, [64, 7, 7], &case.weights, &case.x);
    let errors = exact.iter().zip(client.iter().zip(&server)).map(|(&m, (c, s))| {
        let error = c.wrapping_add(*s).wrapping_sub(m as u64) << 24;
        (error as i64 >> 24) as f64
    });
    let square = errors.map(|e| {
        assert!(e.abs() <= 1.0 + 8.0 * layer.noise_ulps(), "{e}");
        e * e
    });
    // All weights are as large as they may be: the noise is what was foretold.
    let sigma = (square.sum::<f64>() / exact.len() as f64).sqrt();
    assert!((0.8..1.25).contains(&(sigma / layer.noise_ulps())), "{sigma} {}", layer.noise_ulps());
}

/// Weights that are transformed on the way give the very bytes that kept ones give.
#[test]
fn kept_or_on_the_way() {
    for (spec, shape) in [(spec(40, 3, 2, 1, 40), [40, 28, 28]), (spec(6, 3, 1, 1, 1), [20, 30, 30])] {
        let layer = Layer::new(&spec, shape, 37, 12, Windows::FewestBytes).unwrap();
        let mut case = Case::new(layer.clone(), 24, 12, 5, false);
        assert_eq!(case.server.weight_bytes(), layer.weight_bytes());
        let kept = case.run(3);
        case.server = ServerLayer::on_the_way(Cpu::detect(), layer, &case.weights);
        assert_eq!(case.server.weight_bytes(), 0);
        assert_eq!(case.run(3), kept);
    }
}

/// A layer of a few bytes whose windows are tens of thousands is planned at once.
#[test]
fn endless_windows_are_counted_at_once() {
    let layer = Layer::new(&spec(1, 60, 1, 0, 1), [1, 1083, 1083], 37, 12, Windows::FewestBytes).unwrap();
    assert!(layer.layout.ciphertexts() > 40_000);
    let more = Layer::new(&spec(1, 64, 1, 0, 1), [1, 600, 600], 37, 12, Windows::FewestBytes);
    assert!(matches!(more, Err(LayerError::Windows { windows: 288_369 })));
}

#[test]
fn what_cannot_run_is_refused() {
    let new = |spec: &Linear, shape, share_bits, weight_bits| {
        Layer::new(spec, shape, share_bits, weight_bits, Windows::FewestBytes).map(|layer| layer.limbs())
    };
    let large = spec(1, 70, 1, 0, 1);
    assert!(matches!(new(&large, [1, 80, 80], 37, 12), Err(LayerError::KernelTooLarge { ring_dim: 4096 })));
    let small = spec(1, 1, 1, 0, 1);
    for share_bits in [0, 7, 49, 64] {
        assert!(matches!(new(&small, [1, 8, 8], share_bits, 12), Err(LayerError::ShareBits { .. })));
    }
    // Between shares of 48 bits and q lie 2^12 with two primes, 2^42 with three.
    assert_eq!(new(&small, [1, 8, 8], 48, 16).unwrap(), 3);
    assert!(matches!(new(&small, [1, 8, 8], 48, 40), Err(LayerError::Noise { ulps, .. }) if ulps > 0.1));
}

/// Two outputs with the same weights: if their responses shared a zero-encryption, A would be the same. And
/// what the client sees of the outputs is uniform, here of a layer whose true values are all zero.
#[test]
fn the_client_sees_uniform_words() {
    let spec = spec(8, 1, 1, 0, 1);
    let layer = Layer::new(&spec, [2, 40, 40], 37, 12, Windows::OneOutput).unwrap();
    let mut case = Case::new(layer.clone(), 12, 12, 2, false);
    case.weights =
        Weights { weights: vec![9; 16], exponents: Vec::new(), bias: Bias::PerChannel(vec![0; 8]) };
    case.x.fill(0);
    case.server = ServerLayer::new(Cpu::detect(), layer.clone(), &case.weights);
    let (x_client, x_server) = case.shares();
    let mut secret = Secret::fresh(Cpu::detect(), &layer);
    let key = secret.key().prepare(Cpu::detect(), &layer);
    let upload = secret.prepare(&layer).encrypt(&layer, &x_client);
    let mut prg = Prg::new([3; 32]);
    let mut answer = || {
        let prepared = case.server.prepare(&mut prg);
        case.server.evaluate(prepared, &key, &upload, &x_server).0
    };
    let (first, second) = (answer(), answer());
    let unpacked = |r: &Response| pack::unpack(&r.a, layer.layout.responses() * 4096, layer.a_bits());
    let (first_a, second_a) = (unpacked(&first), unpacked(&second));
    let a: Vec<&[u64]> = first_a.chunks(4096).chain(second_a.chunks(4096)).collect();
    for (i, a_i) in a.iter().enumerate() {
        for a_j in &a[..i] {
            assert!(a_i.iter().zip(*a_j).filter(|(x, y)| x == y).count() < 4);
        }
    }
    for (words, bits) in [(&first_a, layer.a_bits()), (&first.b, layer.b_bits())] {
        let mut cells = [0f64; 64];
        words.iter().for_each(|word| cells[(word >> (bits - 6)) as usize] += 1.0);
        let expected = words.len() as f64 / 64.0;
        // P(chi2(63) > 140) is 1e-7.
        assert!(cells.iter().map(|c| (c - expected).powi(2) / expected).sum::<f64>() < 140.0, "{cells:?}");
    }
}

/// A fresh secret, seed and noise for every call: the same input twice gives unrelated messages.
#[test]
fn nothing_repeats_between_uploads() {
    let layer = Layer::new(&spec(1, 1, 1, 0, 1), [1, 8, 8], 37, 12, Windows::FewestBytes).unwrap();
    let mut secret = Secret::fresh(Cpu::detect(), &layer);
    let mut upload = || secret.prepare(&layer).encrypt(&layer, &[5; 64]);
    let (first, second) = (upload(), upload());
    assert_ne!(first.seed, second.seed);
    // Bytes of uniform residues agree once in 256: 120 of 30720, with a deviation of 11.
    assert!(first.b.iter().zip(&second.b).filter(|(x, y)| x == y).count() < 210);
    assert_ne!(secret.key().seed, secret.key().seed);
}

/// Whatever a peer sends of the right length is taken as residues; the shares are garbage, and nothing
/// panics.
#[test]
fn bytes_of_a_peer_never_panic() {
    let layer = Layer::new(&spec(3, 3, 1, 1, 1), [3, 9, 9], 37, 12, Windows::FewestBytes).unwrap();
    let case = Case::new(layer.clone(), 12, 12, 1, true);
    let (mut hostile, mut channel) = memory_pair();
    hostile.send(&vec![0xff; layer.key_bytes() + layer.upload_bytes()]).unwrap();
    hostile.flush().unwrap();
    let key = PublicKey::receive(&layer, &mut channel).unwrap().prepare(Cpu::detect(), &layer);
    let upload = Upload::receive(&layer, &mut channel).unwrap();
    let prepared = case.server.prepare(&mut Prg::new([1; 32]));
    let (response, share) = case.server.evaluate(prepared, &key, &upload, &vec![u64::MAX; 243]);
    assert!(share.iter().all(|&s| s < 1 << 37));
    assert_eq!((response.a.len(), response.b.len()), (layer.layout.responses() * 4096 * 47 / 8, 243));
    channel.send(&vec![0xff; layer.response_bytes()]).unwrap();
    channel.flush().unwrap();
    let response = Response::receive(&layer, &mut hostile).unwrap();
    let share = Secret::fresh(Cpu::detect(), &layer).decrypt(&layer, &response);
    assert!(share.iter().all(|&s| s < 1 << 37));
}

/// The first bytes of the hash of all that the client sends and receives for one layer, under fixed randomness: its key, the upload,
/// and the response.
fn recorded(case: &Case) -> String {
    let layer = case.server.layer();
    let (x_client, x_server) = case.shares();
    let (a, b) = memory_transports();
    let (a, transcript) = Recorder::hashing(a);
    let (mut to_server, mut to_client) = (Channel::new(a), Channel::new(b));
    thread::scope(|s| {
        s.spawn(|| {
            let key = PublicKey::receive(layer, &mut to_client).unwrap().prepare(Cpu::detect(), layer);
            let upload = Upload::receive(layer, &mut to_client).unwrap();
            let prepared = case.server.prepare(&mut Prg::derive(&[5; 32], "server", &[]));
            let (response, _) = case.server.evaluate(prepared, &key, &upload, &x_server);
            response.send(layer, &mut to_client).unwrap();
            to_client.flush().unwrap();
        });
        let mut secret = Secret::from_prg(Cpu::detect(), layer, Prg::derive(&[1; 32], "client", &[]));
        secret.key().send(&mut to_server).unwrap();
        secret.prepare(layer).encrypt(layer, &x_client).send(&mut to_server).unwrap();
        Response::receive(layer, &mut to_server).unwrap();
    });
    transcript.digest()[..8].iter().map(|b| format!("{b:02x}")).collect()
}

/// A layer's messages under fixed randomness. A change here is a change of the wire format or of the arithmetic.
#[test]
fn the_wire_format_is_as_recorded() {
    let found = [(1, 1, [8, 12, 12], 30), (1, 2, [3, 40, 40], 37), (8, 1, [8, 9, 9], 44)].map(
        |(groups, stride, shape, bits)| {
            let spec = spec(8, 3, stride, 1, groups);
            let layer = Layer::new(&spec, shape, bits, 12, Windows::FewestBytes).unwrap();
            (layer.limbs(), recorded(&Case::new(layer, 16, 12, 3, false)))
        },
    );
    let expected = [(2, "0fcc95d3fb26411b"), (2, "ec6704f88517b360"), (3, "e8757cdd3368c142")];
    assert_eq!(found, expected.map(|(limbs, hash)| (limbs, hash.to_owned())));
}

#[test]
fn parts_are_those_of_every_number_of_cuts() {
    for size in 1..400usize {
        let mut all: Vec<usize> = (1..=size).map(|count| size.div_ceil(count)).collect();
        all.dedup();
        assert_eq!(layout::parts(size).collect::<Vec<_>>(), all);
    }
    // No number of cuts is tried in vain.
    assert!(layout::parts(1 << 40).count() < 1 << 22);
}
