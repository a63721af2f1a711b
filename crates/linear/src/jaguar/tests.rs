//! The layer against the convolution from its definition: bit for bit where the ring is noiseless and nothing is
//! rounded on the way, within one unit of the last place with the parameters that are really used.

use std::collections::HashSet;
use std::slice::from_mut;
use std::thread;

use jaguar_graph::network::{Bias, Linear, Shape, Weights, block_size};
use jaguar_graph::reference::linear_exact;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::{
    PublicSeed, QuerySecret, Rerandomiser, Ring, ZeroKey, client_share, server_share,
};
use jaguar_ring::prg::Prg;
use jaguar_wire::double::Recorder;
use jaguar_wire::{Channel, memory_pair, memory_transports, pack};
use proptest::prelude::*;

use super::*;

pub(super) const WEIGHT_BITS: u32 = 12;

pub(super) struct Case {
    pub(super) layer: Layer,
    weight_bits: u32,
    pub(super) weights: Weights,
    /// Signed inputs.
    pub(super) x: Vec<i64>,
    ring: Ring,
}

impl Case {
    fn new(
        params: Parameters,
        spec: Linear,
        in_shape: Shape,
        n: u32,
        seed: u64,
        extreme: bool,
    ) -> Option<Self> {
        Self::with_weights(params, spec, in_shape, (n, WEIGHT_BITS), seed, extreme)
    }

    fn with_weights(
        params: Parameters,
        spec: Linear,
        in_shape: Shape,
        (n, weight_bits): (u32, u32),
        seed: u64,
        extreme: bool,
    ) -> Option<Self> {
        let layout = Layout::new(params.ring_dim(), &spec, in_shape).ok()?;
        Self::over(params, layout, (n, weight_bits), seed, extreme)
    }

    /// With random weights, in the blocks that the layer has.
    pub(super) fn over(
        params: Parameters,
        layout: Layout,
        (n, weight_bits): (u32, u32),
        seed: u64,
        extreme: bool,
    ) -> Option<Self> {
        let mut prg = Prg::derive(&[7; 32], "test case", &[seed]);
        let (spec, in_shape) = (layout.spec().clone(), layout.in_shape());
        let all_bits = weight_bits + spec.max_exponent;
        let layer = Layer::new(params, layout, 3, n, all_bits, seed.is_multiple_of(3)).ok()?;
        let (count, terms) = (spec.out_channels, layer.layout.terms_per_output());
        let mut signed = |bits: u32| {
            let v = (prg.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1));
            if extreme { if v < 0 { -(1 << (bits - 1)) + 1 } else { (1 << (bits - 1)) - 1 } } else { v }
        };
        let least = 1 - (1 << (weight_bits - 1));
        let mut weights: Vec<i16> =
            (0..count * terms).map(|_| signed(weight_bits).max(least) as i16).collect();
        if let Some(blocks) = spec.blocks {
            blocks.repeat(&mut weights, in_shape[0], spec.kernel);
        }
        let bias = if seed.is_multiple_of(2) {
            Bias::PerChannel((0..count).map(|_| signed(n)).collect())
        } else {
            let [_, h, w] = layer.layout.out_shape();
            Bias::PerElement((0..count * h * w).map(|_| signed(n)).collect())
        };
        let x = (0..layer.layout.inputs()).map(|_| signed(n)).collect();
        let exponents = match spec.max_exponent {
            0 => Vec::new(),
            most => {
                let of_block = |d: usize| (d / block_size(&spec)) as u64;
                (0..count).map(|d| ((seed ^ of_block(d)) % (u64::from(most) + 1)) as u8).collect()
            }
        };
        Some(Self {
            layer,
            weight_bits,
            weights: Weights { weights, exponents, bias },
            x,
            ring: Ring::new(Cpu::detect(), params),
        })
    }

    /// Σ w·x + bias, of each image by itself.
    fn exact(&self) -> Vec<i64> {
        let layout = &self.layer.layout;
        let (images, spec, in_shape) = (layout.images(), layout.spec(), layout.in_shape());
        let (inputs, outputs) = (in_shape[1] * in_shape[2], layout.plane_len() / images);
        let mut all = vec![0; layout.outputs()];
        for image in 0..images {
            let own = self.x.chunks(inputs).skip(image).step_by(images);
            let x: Vec<i64> = own.flatten().copied().collect();
            let y = linear_exact(Cpu::detect(), spec, in_shape, &self.weights, &x);
            let planes = all.chunks_mut(outputs).skip(image).step_by(images);
            planes.zip(y.chunks(outputs)).for_each(|(plane, y)| plane.copy_from_slice(y));
        }
        all
    }

    /// The server's output for a random b and share, before any channel is made. The same call gives the same.
    pub(super) fn begin<'s>(&self, server: &'s ServerLayer, seed: u64) -> ServerOutput<&'s ServerLayer> {
        let (layer, ring) = (&self.layer, &self.ring);
        let mut prg = Prg::derive(&[6; 32], "whole and parts", &[seed]);
        let (mut x, mut b) = (vec![0; self.x.len()], vec![0; layer.upload_bytes()]);
        prg.fill_words(&mut x, layer.input_bits());
        prg.fill(&mut b);
        let p1 = PublicSeed([9; 32]).p1(&layer.params);
        let mut rounding = Prg::derive(&[4; 32], "rounding", &[0]);
        let key = |i: usize| {
            let mut secret = Prg::derive(&[1; 32], "secret", &[i as u64]);
            ZeroKey::new(ring, &QuerySecret::from_prg(ring, &mut secret).zero_key(ring, &p1), &mut rounding)
        };
        let keys: Vec<_> = (0..layer.secrets()).map(key).collect();
        let (mut client, mut channel) = memory_pair();
        client.send(&b).unwrap();
        client.flush().unwrap();
        let b = server.receive(&mut channel).unwrap();
        server.begin(server.prepare(ring, &[5; 32], &keys, &[6; 32]), b, &x)
    }

    /// Runs the protocol for a query that `query` numbers: output shares of client and server, and the client's exact masked
    /// phase of every output.
    pub(super) fn run(&self, query: u64) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let (layer, ring) = (&self.layer, &self.ring);
        let public = PublicSeed([9; 32]);
        let (hint_key, mask_seed) = ([5; 32], [query as u8; 32]);
        let server = ServerLayer::new(Cpu::detect(), layer.clone(), &self.weights, self.weight_bits);
        let p1 = public.p1(&layer.params);
        let hint = server.hint(ring, &public, &ring.prepare_wide(&p1), &hint_key, 0..layer.hint_responses());
        assert_eq!(hint.len(), layer.hint_bytes());
        let secret =
            |i: usize| QuerySecret::from_prg(ring, &mut Prg::derive(&[1; 32], "secret", &[query, i as u64]));
        // A query may have more secrets than the layer takes.
        let mut secrets: Vec<_> = (0..layer.secrets() + query as usize % 2).map(secret).collect();
        let p0: Vec<_> = secrets.iter_mut().map(|secret| secret.zero_key(ring, &p1)).collect();

        let modulus = (1u64 << layer.input_bits()) - 1;
        let mut prg = Prg::derive(&[2; 32], "shares", &[query]);
        let mut x_client = vec![0; self.x.len()];
        prg.fill_words(&mut x_client, layer.input_bits());
        let x_server: Vec<u64> =
            self.x.iter().zip(&x_client).map(|(&x, &c)| (x as u64).wrapping_sub(c) & modulus).collect();

        // Ciphertexts go out as their values become known, however little or much that is at a time.
        let count = x_client.len();
        let pieces = [0, count / 3, count / 2 + query as usize % 2, count];
        let (mut to_server, mut to_client) = memory_pair();
        let (client_out, server_out, sent) = thread::scope(|s| {
            let server = s.spawn(|| {
                let mut prg = Prg::derive(&[4; 32], "rounding", &[query]);
                let keys: Vec<_> = p0.iter().map(|p0| ZeroKey::new(ring, p0, &mut prg)).collect();
                let prepared = server.prepare(ring, &hint_key, &keys, &mask_seed);
                let mut b = Upload::default();
                for values in pieces {
                    server.receive_ready(&mut b, &mut to_client, values).unwrap();
                }
                let mut output = server.begin(prepared, b, &x_server);
                if !query.is_multiple_of(2) {
                    make_bit_by_bit(&server, &mut output, query);
                }
                output.finish()
            });
            let mut prepared = prepare(layer, ring, &public, &hint, &mut secrets, &mask_seed);
            for values in pieces {
                prepared.send(layer, &mut to_server, &x_client[..values]).unwrap();
            }
            let out = prepared.run(layer, &mut to_server, &x_client).unwrap();
            to_server.flush().unwrap();
            (out, server.join().unwrap(), to_server.total())
        });
        assert_eq!(sent.sent, layer.upload_bytes() as u64);
        assert_eq!((sent.received, sent.rounds), (0, 0));

        let k = layer.params.modulus_bits();
        let hint_ring = layer.hint_ring(ring.kernel());
        let plane_len = layer.layout.plane_len();
        let mut phases = layer.masks(&mask_seed).to_vec();
        let layout = &layer.layout;
        for r in 0..layout.responses() {
            let (t, row) = (r / layout.responses_per_tile(), r % layout.responses_per_tile());
            let from = t / layer.secrets() * layout.responses_per_tile() + row;
            let bytes = &hint[from * layer.hint_response_bytes()..][..layer.hint_response_bytes()];
            let small = secrets[t % layer.secrets()].for_responses(&hint_ring);
            let mut response = hint_ring.residues();
            pack::unpack_u32_into(bytes, layer.hint_bits, response.words_mut());
            let mut product = vec![0; layer.layout.ring_dim()];
            hint_ring.multiply_received_into(&mut response, &small, k, 1, &mut product);
            for part in 0..layout.parts() {
                let (d, at) = (layout.channel(row, part), part * layout.part_len());
                let plane = &mut phases[d * plane_len..][..plane_len];
                layout.each_export(&layout.tiles()[t], &product[at..], plane, |_, phase, p| {
                    *phase = phase.wrapping_add(p) & layer.params.mask();
                });
            }
        }
        (client_out, server_out, phases)
    }

    /// Without noise, both shares are a function of m and the client's phase, but for what rounding A and p0 to a prime of 30 bits
    /// may have added: h/2 units of `2^k/p` for A's, h for p0's, one each for the ways back, h being N at most.
    pub(super) fn check_bit_for_bit(&self) {
        let (client, server, phases) = self.run(1);
        let layer = &self.layer;
        let unit = (1 << layer.params.modulus_bits()) / u64::from(prime::prime_of(30)) + 1;
        let bound = (3 * layer.layout.ring_dim() as u64 / 2 + 2) * unit;
        for (i, m) in self.exact().into_iter().enumerate() {
            let r = phases[i].wrapping_sub((m as u64) << layer.delta_bits());
            assert_eq!(
                client[i],
                client_share(phases[i], &layer.params, layer.activation_bits),
                "client, output {i}"
            );
            let shares = [r, r.wrapping_sub(bound), r.wrapping_add(bound)]
                .map(|r| server_share(r, &layer.params, layer.activation_bits));
            assert!(shares.contains(&server[i]), "server, output {i}: {} is none of {shares:?}", server[i]);
        }
    }

    /// Two queries under one hint, each within one ulp; returns the mean error in ulps.
    pub(super) fn check_within_one_ulp(&self) -> f64 {
        let (n, f) = (self.layer.activation_bits, self.layer.layout.spec().shift);
        let exact = self.exact();
        let mut sum = 0.0;
        for query in [1, 2] {
            let (client, server, _) = self.run(query);
            for (i, &m) in exact.iter().enumerate() {
                let want = m as f64 / 2f64.powi(f as i32);
                let got = client[i].wrapping_add(server[i]) & ((1 << n) - 1);
                // The difference modulo 2^n, centred: values may wrap around.
                let error = (got as f64 - want).rem_euclid(2f64.powi(n as i32));
                let error = if error > 2f64.powi(n as i32 - 1) { error - 2f64.powi(n as i32) } else { error };
                assert!(error.abs() < 1.0 + 8.0 * self.layer.noise_ulps, "output {i}: {want} became {got}");
                sum += error;
            }
        }
        sum / (2 * exact.len()) as f64
    }
}

/// Makes some or all of a server's output in the smallest parts that there are, as `seed` says.
pub(super) fn make_bit_by_bit(server: &ServerLayer, output: &mut ServerOutput<&ServerLayer>, seed: u64) {
    output.together = server.channels_indivisible();
    let layout = server.layer().layout();
    let (channels, plane) = (layout.out_shape()[0], layout.plane_len());
    let mut prg = Prg::derive(&[3; 32], "parts", &[seed]);
    let mut wanted = 0;
    for _ in 0..channels {
        let before = output.ready().len();
        wanted += (prg.next_u64() % (2 * plane) as u64) as usize;
        output.make(wanted);
        let made = output.ready();
        assert!(made.len() >= wanted.min(channels * plane) && made.len().is_multiple_of(plane));
        // No more than was asked for, but for what cannot be parted.
        assert!(made.len() < before.max(wanted) + plane * output.together, "{} for {wanted}", made.len());
    }
}

fn spec(out: usize, kernel: [usize; 2], stride: usize, pad: usize, groups: usize) -> Linear {
    Linear {
        out_channels: out,
        kernel,
        stride: [stride; 2],
        dilation: [1, 1],
        pads: [pad; 4],
        groups,
        shift: 10,
        max_exponent: 0,
        blocks: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_layer_bit_for_bit(
        (h, w) in (1usize..10, 1usize..10),
        kernel in prop::array::uniform2(1usize..4),
        stride in prop::array::uniform2(1usize..3),
        pads in prop::array::uniform4(0usize..3),
        (groups, cg, og) in (1usize..3, 1usize..4, 1usize..4),
        shift in 1u32..16,
        max_exponent in 0u32..8,
        log_n in 5u32..9,
        seed: u64,
        extreme: bool,
    ) {
        prop_assume!(h + pads[0] + pads[2] >= kernel[0] && w + pads[1] + pads[3] >= kernel[1]);
        let spec = Linear { out_channels: groups * og, kernel, stride, dilation: [1, 1], pads, groups, shift, max_exponent, blocks: None };
        // Wrap-around of every kind is in the range of the inputs: the reference wraps alike.
        let params = Parameters::insecure_noiseless(1 << log_n, 32);
        if let Some(case) = Case::new(params, spec, [groups * cg, h, w], 16, seed, extreme) {
            case.check_bit_for_bit();
        }
    }

    /// Kernels that reach far past tiny maps, in many channels.
    #[test]
    fn any_layer_over_a_tiny_map_bit_for_bit(
        (h, w) in (1usize..4, 1usize..4),
        kernel in prop::array::uniform2(1usize..10),
        stride in prop::array::uniform2(1usize..3),
        pads in prop::array::uniform4(0usize..9),
        (groups, cg) in prop_oneof![(Just(1usize), 1usize..200), (1usize..200, Just(1usize))],
        log_n in 6u32..10,
        seed: u64,
    ) {
        prop_assume!(h + pads[0] + pads[2] >= kernel[0] && w + pads[1] + pads[3] >= kernel[1]);
        let spec =
            Linear { kernel, stride, pads, groups, max_exponent: 3, ..Linear::same(groups * 2, 1, 10) };
        let params = Parameters::insecure_noiseless(1 << log_n, 32);
        if let Some(case) = Case::new(params, spec, [groups * cg, h, w], 16, seed, false) {
            case.check_bit_for_bit();
        }
    }
}

/// The rounding is unbiased: over all layers' outputs its mean is 0 within five standard errors (0.41 ulp each). `errors` has the
/// mean of each layer, and its outputs, each of which was looked at twice.
pub(super) fn assert_unbiased(errors: &[(f64, usize)]) {
    let outputs: usize = errors.iter().map(|(_, n)| 2 * n).sum();
    let mean = errors.iter().map(|(m, n)| m * 2.0 * *n as f64).sum::<f64>() / outputs as f64;
    let bound = 5.0 * 0.41 / (outputs as f64).sqrt();
    assert!(mean.abs() < bound, "mean error {mean} ulp over {outputs} outputs");
}

#[test]
fn real_parameters_within_one_ulp() {
    let mut errors = Vec::new();
    for (seed, (spec, shape)) in [
        (spec(8, [3, 3], 1, 1, 1), [20, 14, 14]),
        (spec(4, [3, 3], 1, 1, 1), [3, 56, 56]),
        (spec(4, [7, 7], 2, 3, 1), [3, 64, 64]),
        (spec(24, [3, 3], 2, 1, 24), [24, 28, 28]),
        (spec(16, [1, 1], 1, 0, 1), [64, 28, 28]),
        (spec(10, [1, 1], 1, 0, 1), [3000, 1, 1]),
        (spec(10, [7, 7], 1, 0, 1), [64, 7, 7]),
        (spec(16, [3, 3], 1, 1, 1), [512, 1, 1]),
        (spec(512, [3, 3], 1, 1, 512), [512, 1, 1]),
        (spec(128, [5, 5], 1, 2, 128), [128, 2, 2]),
        (spec(4, [9, 9], 1, 4, 1), [40, 4, 4]),
        (Linear { max_exponent: 5, ..spec(24, [3, 3], 1, 1, 24) }, [24, 14, 14]),
        (Linear { max_exponent: 3, ..spec(16, [3, 3], 1, 1, 1) }, [64, 7, 7]),
    ]
    .into_iter()
    .enumerate()
    {
        for extreme in [false, true] {
            let case = Case::new(Parameters::DEFAULT, spec.clone(), shape, 16, seed as u64, extreme)
                .expect("layer fits");
            let mean = case.check_within_one_ulp();
            if !extreme {
                errors.push((mean, case.layer.layout.outputs()));
            }
        }
    }
    assert_unbiased(&errors);
}

/// However little of a layer's output is asked for at a time, it is what the whole layer makes, bit for bit: with one group and
/// with several, strided, in several tiles, fully connected, and where shifts wrap around.
#[test]
fn parts_make_up_the_whole_bit_for_bit() {
    for (seed, (spec, shape, tiles, parts)) in [
        (spec(50, [3, 3], 1, 1, 1), [20, 14, 14], 1, 7),
        (spec(17, [3, 3], 1, 1, 1), [3, 56, 56], 2, 3),
        (spec(20, [7, 7], 2, 3, 1), [3, 96, 96], 2, 3),
        (spec(24, [3, 3], 2, 1, 24), [24, 28, 28], 1, 24),
        (spec(8, [3, 3], 1, 1, 8), [8, 56, 56], 2, 8),
        (spec(12, [3, 3], 1, 1, 4), [20, 14, 14], 1, 4),
        (spec(40, [1, 1], 2, 0, 1), [64, 28, 28], 1, 5),
        (spec(100, [1, 1], 1, 0, 1), [3000, 1, 1], 1, 13),
        (spec(10, [7, 7], 1, 0, 1), [64, 7, 7], 1, 2),
        (Linear { max_exponent: 4, ..spec(50, [3, 3], 1, 1, 1) }, [20, 14, 14], 1, 7),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(Parameters::DEFAULT, spec, shape, 16, seed as u64, seed % 2 == 1).unwrap();
        let layer = &case.layer;
        assert_eq!(layer.layout.tiles().len(), tiles, "layer {seed}");
        let server = ServerLayer::new(Cpu::detect(), layer.clone(), &case.weights, WEIGHT_BITS);
        let begin = || case.begin(&server, seed as u64);
        let whole = begin().finish();
        let mut output = begin();
        make_bit_by_bit(&server, &mut output, seed as u64);
        assert_eq!(*output.ready(), whole[..output.ready().len()]);
        assert!(output.finish() == whole, "layer {seed}");
        // One value more than there is: the next part, and no other.
        let mut output = begin();
        output.together = server.channels_indivisible();
        let mut made = vec![0];
        while output.ready().len() < whole.len() {
            output.make(output.ready().len() + 1);
            assert!(output.ready().len() > *made.last().unwrap());
            made.push(output.ready().len());
        }
        assert_eq!(made.len() - 1, parts, "layer {seed}: {made:?}");
        assert!(output.finish() == whole, "layer {seed}");
    }
}

/// What is made together is a matter of cost, but never all of a large layer, and never a part of what cannot be parted.
#[test]
fn large_layers_are_made_in_parts() {
    for (spec, shape, channels) in [
        (spec(256, [1, 1], 1, 0, 1), [64, 56, 56], 88),
        (spec(64, [3, 3], 1, 1, 1), [64, 56, 56], 32),
        (spec(512, [3, 3], 1, 1, 1), [512, 7, 7], 72),
        (spec(10, [1, 1], 1, 0, 1), [100, 1, 1], 10),
        (spec(96, [3, 3], 1, 1, 96), [96, 112, 112], 96),
        (spec(60, [3, 3], 1, 1, 3), [300, 28, 28], 40),
    ] {
        let case = Case::new(Parameters::DEFAULT, spec.clone(), shape, 16, 1, false).unwrap();
        let server = ServerLayer::new(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        let together = server.channels_together();
        assert!(together.is_multiple_of(server.channels_indivisible()));
        assert_eq!(together.min(spec.out_channels), channels, "{spec:?}");
    }
}

#[test]
fn other_secure_parameters_work_too() {
    for (ring_dim, k, n) in [(2048, 53, 18), (4096, 54, 20), (2048, 45, 14)] {
        let params = Parameters::new(ring_dim, k).unwrap();
        Case::new(params, spec(3, [3, 3], 1, 1, 1), [6, 9, 9], n, 4, false).unwrap().check_within_one_ulp();
    }
}

/// The ends of what a plan may choose: the widest and the narrowest ring and activations, weights of up to 16 bits, all operands as
/// large as they can be.
#[test]
fn the_ends_of_the_parameters_within_one_ulp() {
    for (ring_dim, k, n, weight_bits) in
        [(2048, 32, 12, 8), (2048, 53, 20, 14), (2048, 53, 20, 16), (4096, 54, 20, 16), (2048, 48, 8, 16)]
    {
        let params = Parameters::new(ring_dim, k).unwrap();
        for (spec, shape) in
            [(spec(20, [3, 3], 1, 1, 1), [64, 7, 7]), (spec(17, [1, 1], 1, 0, 1), [3000, 1, 1])]
        {
            for (seed, extreme) in [(3, true), (4, true), (5, false)] {
                let case = Case::with_weights(params, spec.clone(), shape, (n, weight_bits), seed, extreme);
                case.unwrap_or_else(|| panic!("N = {ring_dim}, k = {k}, n = {n}")).check_within_one_ulp();
            }
        }
    }
}

/// Both ways to the a half give the same bits; the first four layers go by frequencies.
#[test]
fn the_a_half_is_the_same_from_limbs_and_from_frequencies() {
    let public = PublicSeed([9; 32]);
    for (i, (spec, shape)) in [
        (spec(20, [3, 3], 1, 1, 1), [70, 7, 7]),
        (spec(33, [3, 3], 2, 1, 1), [20, 14, 14]),
        (spec(97, [1, 1], 1, 0, 1), [200, 14, 14]),
        (spec(10, [1, 1], 1, 0, 1), [3000, 1, 1]),
        (spec(6, [1, 1], 1, 0, 1), [8, 56, 56]),
        (spec(24, [3, 3], 1, 1, 24), [24, 14, 14]),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(Parameters::DEFAULT, spec, shape, 16, 1, i % 2 == 0).unwrap();
        let transformed = ServerLayer::new(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        let plain = ServerLayer::from_limbs(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        assert_eq!(transformed.spectral().is_some(), i < 4, "layer {i}");
        assert!(plain.spectral().is_none());
        assert!(transformed.a_half(&public) == plain.a_half(&public), "layer {i}");
    }
}

#[test]
fn a_layer_that_the_ring_cannot_hold_is_refused() {
    let layout = |shift| Layout::new(2048, &Linear { shift, ..spec(2, [1, 1], 1, 0, 1) }, [4, 4, 4]).unwrap();
    assert!(matches!(
        Layer::new(Parameters::DEFAULT, layout(40), 0, 16, 12, false),
        Err(LayerError::Modulus { modulus_bits: 48, .. })
    ));
    // 16-bit weights in front of 24-bit activations leave no room above the noise at k = 32.
    let small = Parameters::new(2048, 32).unwrap();
    assert!(matches!(Layer::new(small, layout(4), 0, 16, 16, false), Err(LayerError::Noise { .. })));
}

/// Two responses with one zero-encryption would give their difference away. So: every (client, layer, response)
/// has its own, and the same one gives the same bytes whenever it is fetched (a resumed download must fit).
#[test]
fn no_two_responses_share_a_zero_encryption() {
    let ring = Ring::new(Cpu::detect(), Parameters::DEFAULT);
    let p1 = ring.prepare_wide(&PublicSeed([9; 32]).p1(ring.params()));
    let zero = vec![0; 2048];
    let mut seen = HashSet::new();
    for client in 0..3u8 {
        for layer in 0..5 {
            for response in 0..20 {
                let z1 =
                    |()| Rerandomiser::new(&ring, &[client; 32], layer, response).hint(&ring, &zero, &p1);
                let first = z1(());
                assert_eq!(first, z1(()));
                assert!(seen.insert(first), "client {client}, layer {layer}, response {response}");
            }
        }
    }
}

/// The same through the server itself: with all weights zero, a hint is its zero-encryptions alone, and no two responses of any
/// tile, channel or layer have the same.
#[test]
fn no_two_responses_of_a_server_share_a_zero_encryption() {
    let params = Parameters::DEFAULT;
    let ring = Ring::new(Cpu::detect(), params);
    let public = PublicSeed([9; 32]);
    let p1 = ring.prepare_wide(&public.p1(&params));
    let mut seen = HashSet::new();
    for (index, (spec, shape)) in [
        (spec(6, [3, 3], 1, 1, 1), [2, 90, 90]),
        (spec(6, [3, 3], 1, 1, 2), [2, 90, 90]),
        (spec(4, [1, 1], 1, 0, 4), [4, 5, 5]),
    ]
    .into_iter()
    .enumerate()
    {
        let layout = Layout::new(params.ring_dim(), &spec, shape).unwrap();
        let layer = Layer::new(params, layout, index, 16, WEIGHT_BITS, false).unwrap();
        let (terms, outs) = (layer.layout.terms_per_output(), spec.out_channels);
        let weights = Weights {
            weights: vec![0; terms * outs],
            exponents: Vec::new(),
            bias: Bias::PerChannel(vec![0; outs]),
        };
        let server = ServerLayer::new(Cpu::detect(), layer.clone(), &weights, WEIGHT_BITS);
        let hint = server.hint(&ring, &public, &p1, &[5; 32], 0..layer.layout.responses());
        for response in hint.chunks_exact(layer.hint_response_bytes()) {
            assert!(seen.insert(response.to_vec()), "layer {index}");
        }
    }
    assert_eq!(seen.len(), 6 * 5 * 2 + 4);
}

/// The same query twice under fresh secrets: nothing of what is sent repeats.
#[test]
fn queries_share_nothing() {
    let case = Case::new(Parameters::DEFAULT, spec(4, [3, 3], 1, 1, 1), [4, 8, 8], 16, 1, false).unwrap();
    let (a, b) = (case.run(1), case.run(2));
    let same = a.0.iter().zip(&b.0).filter(|(x, y)| x == y).count();
    assert!(same < 8, "{same} of {} client shares repeat", a.0.len());
    let same = a.2.iter().zip(&b.2).filter(|(x, y)| x == y).count();
    assert_eq!(same, 0, "phases repeat");
}

/// What a client sees of a first layer under the default parameters: its masked phases, in the order of the outputs.
pub(crate) fn client_phases(spec: &Linear, in_shape: Shape, weights: &Weights, x: &[i64]) -> Vec<u64> {
    let params = Parameters::DEFAULT;
    let layout = Layout::new(params.ring_dim(), spec, in_shape).unwrap();
    let layer = Layer::new(params, layout, 3, 16, WEIGHT_BITS, true).unwrap();
    let (weights, x) = (weights.clone(), x.to_vec());
    Case { layer, weight_bits: WEIGHT_BITS, weights, x, ring: Ring::new(Cpu::detect(), params) }.run(1).2
}

/// The first bytes of the hash of all that the client sends and receives for one layer, under fixed randomness: its hint, the query's
/// key and seed, and b.
fn recorded(spec: Linear, in_shape: Shape, seed: u64) -> String {
    let case = Case::new(Parameters::DEFAULT, spec, in_shape, 16, seed, false).expect("it fits");
    let (layer, ring) = (&case.layer, &case.ring);
    let (public, hint_key, mask_seed) = (PublicSeed([9; 32]), [5; 32], [6; 32]);
    let server = ServerLayer::new(Cpu::detect(), layer.clone(), &case.weights, case.weight_bits);
    let p1 = public.p1(&layer.params);
    let hint = server.hint(ring, &public, &ring.prepare_wide(&p1), &hint_key, 0..layer.layout.responses());
    let mut x = vec![0; case.x.len()];
    Prg::derive(&[2; 32], "shares", &[seed]).fill_words(&mut x, layer.input_bits());

    let (a, b) = memory_transports();
    let (a, transcript) = Recorder::hashing(a);
    let (mut to_server, mut to_client) = (Channel::new(a), Channel::new(b));
    thread::scope(|s| {
        s.spawn(|| {
            to_client.send(&hint).unwrap();
            to_client.send(&mask_seed).unwrap();
            to_client.flush().unwrap();
            to_client.recv_packed(ring.params().ring_dim(), ring.params().modulus_bits()).unwrap();
            server.receive_ready(&mut Upload::default(), &mut to_client, x.len()).unwrap();
        });
        let mut secret = QuerySecret::from_prg(ring, &mut Prg::derive(&[1; 32], "secret", &[seed]));
        to_server.send_packed(&secret.zero_key(ring, &p1), ring.params().modulus_bits()).unwrap();
        let hint = to_server.recv(layer.hint_bytes()).unwrap();
        let mut mask_seed = [0; 32];
        to_server.recv_into(&mut mask_seed).unwrap();
        prepare(layer, ring, &public, &hint, from_mut(&mut secret), &mask_seed)
            .run(layer, &mut to_server, &x)
            .unwrap();
        to_server.flush().unwrap();
    });
    transcript.digest()[..8].iter().map(|b| format!("{b:02x}")).collect()
}

/// A layer's messages under fixed randomness. A change here is a change of the wire format, of what is derived from the public name and
/// the hint key, or of the arithmetic.
#[test]
fn the_wire_format_is_as_recorded() {
    let spec = |groups: usize, stride: usize| Linear {
        out_channels: 8,
        kernel: [3; 2],
        stride: [stride; 2],
        dilation: [1; 2],
        pads: [1; 4],
        groups,
        shift: 12,
        max_exponent: 0,
        blocks: None,
    };
    let found = [(1, 1, [8, 12, 12]), (1, 2, [3, 40, 40]), (8, 1, [8, 9, 9])]
        .map(|(groups, stride, shape)| recorded(spec(groups, stride), shape, 3));
    assert_eq!(found, ["a92475e4bd1c669f", "dc9987959681e521", "72196a783083db96"]);
}
