//! Both roles over a channel in memory against the integer reference, noise against its estimate, and the search.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use jaguar_graph::network::{BLOCK_SIZES, Bias, BlockKind, Blocks, Linear, Shape, Weights, block_size};
use jaguar_graph::reference::linear_exact;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::{RnsParameters, largest_primes};
use jaguar_ring::he::rns::{Ciphertext, GaloisKey, JointKeys, Noise, SecretKey};
use jaguar_ring::prg::Prg;
use jaguar_wire::double::Recorder;
use jaguar_wire::{Channel, memory_pair, memory_transports};
use proptest::prelude::*;

use super::client::{Client, encode};
use super::interleaved::{Interleaved, Sum};
use super::layer::HyenaLayers;
use super::server::{Keys, Server, walsh_hadamard, without_primes};
use super::*;
use jaguar_linear::backend::{self, BackendParty, Layers, Online, Request};

const WEIGHT_BITS: u32 = 10;
/// Of a client's keys.
const SEED: [u8; 32] = [5; 32];
const FORMS: [Form; 5] =
    [Form::Interleaved, Form::Padded, Form::WalshHadamard, Form::Conventional, Form::Blocks];

/// A layer of random weights and its input.
#[derive(Debug)]
struct Case {
    spec: Linear,
    in_shape: Shape,
    activation_bits: u32,
    weights: Weights,
    x: Vec<i64>,
    /// Which packing is taken, where there are several with as many channels.
    pick: usize,
}

/// From −2^(bits − 1) + 1 to 2^(bits − 1) − 1.
fn signed(prg: &mut Prg, bits: u32) -> i64 {
    let bound = 1i64 << (bits - 1);
    ((prg.next_u64() >> (64 - bits)) as i64 - bound).max(1 - bound)
}

impl Case {
    /// Values of which no sum wraps: activations of `activation_bits`, less the room that the sums need.
    fn new(spec: Linear, in_shape: Shape, activation_bits: u32, extreme: bool, seed: u64) -> Self {
        let mut prg = Prg::derive(&[1; 32], "hyena case", &[seed]);
        let prg = &mut prg;
        let [h, w] = spec.output_hw(in_shape).unwrap();
        let each = in_shape[0] / spec.groups * spec.kernel[0] * spec.kernel[1];
        let narrow = WEIGHT_BITS - spec.max_exponent;
        let largest = (1 << (narrow - 1)) - 1;
        let bias = match prg.next_u64() % 2 {
            0 => Bias::PerChannel((0..spec.out_channels).map(|_| signed(prg, activation_bits)).collect()),
            _ => Bias::PerElement(
                (0..spec.out_channels * h * w).map(|_| signed(prg, activation_bits)).collect(),
            ),
        };
        let weight = |prg: &mut Prg| if extreme { largest } else { signed(prg, narrow) as i16 };
        let mut weights: Vec<i16> = (0..spec.out_channels * each).map(|_| weight(prg)).collect();
        if let Some(blocks) = spec.blocks {
            blocks.repeat(&mut weights, in_shape[0], spec.kernel);
        }
        let size = block_size(&spec);
        let exponent = |d: usize| ((d / size) as u32 % (spec.max_exponent + 1)) as u8;
        let weights = Weights { weights, exponents: (0..spec.out_channels).map(exponent).collect(), bias };
        let x = (0..in_shape.iter().product()).map(|_| signed(prg, activation_bits)).collect();
        Self { spec, in_shape, activation_bits, weights, x, pick: seed as usize }
    }

    fn wanted(&self, form: Form) -> Wanted<'_> {
        Wanted {
            form,
            spec: &self.spec,
            in_shape: self.in_shape,
            activation_bits: self.activation_bits,
            weight_bits: WEIGHT_BITS,
            weight_memory: 4 << 30,
        }
    }

    fn request(&self, form: Form) -> Request<'_> {
        Request {
            node: 2,
            spec: &self.spec,
            in_shape: self.in_shape,
            activation_bits: self.activation_bits,
            guard_bits: 0,
            weight_bits: WEIGHT_BITS,
            opened: false,
            product_bits: 30,
            packing: Default::default(),
            images: 1,
            ring: Default::default(),
            backend: form.name(),
            weight_memory: 4 << 30,
        }
    }

    /// In `ring`, with the packing that has about `channels` channels in a ciphertext; `None` where it does not
    /// fit.
    fn layers(&self, form: Form, ring: Chosen, channels: usize) -> Option<HyenaLayers> {
        let all = Fitted::all(ring.params.ring_dim(), &self.wanted(form));
        let most = all.iter().map(|f| f.packing.channels()).filter(|&c| c <= channels).max()?;
        let like: Vec<Fitted> = all.into_iter().filter(|fitted| fitted.packing.channels() == most).collect();
        let fitted = like[self.pick % like.len()].clone();
        if fitted.failure(&ring) > MOST_FAILURES {
            return None;
        }
        let found = Found { ring, layers: vec![fitted], weighed: Vec::new() };
        HyenaLayers::new(&[2], &[self.wanted(form)], found).ok()
    }

    /// The layer's result in whole numbers, before the shift.
    fn exact(&self) -> Vec<i64> {
        linear_exact(Cpu::detect(), &self.spec, self.in_shape, &self.weights, &self.x)
    }

    fn all_weights(&self) -> [Option<Weights>; 3] {
        [None, None, Some(self.weights.clone())]
    }

    fn shares(&self, modulus: Modulus) -> [Vec<u64>; 2] {
        let mut prg = Prg::new([2; 32]);
        let client: Vec<u64> = self.x.iter().map(|_| modulus.reduce(prg.next_u64())).collect();
        let rest = |(&x, &c): (&i64, &u64)| modulus.sub(modulus.from_signed(x), c);
        let server = self.x.iter().zip(&client).map(rest).collect();
        [client, server]
    }

    /// A session of two queries through the traits: every output within the layer's bound, and the stated bytes and
    /// rounds.
    fn check(&self, layers: Arc<dyn Layers>) {
        let hardware = Cpu::detect().into();
        let model = Arc::clone(&layers).model(&hardware, [0; 32], &self.all_weights(), WEIGHT_BITS);
        let layer = layers.layer(2).unwrap();
        let [x_client, x_server] = self.shares(layer.input().modulus);
        let (mut to_server, mut to_client) = memory_pair();
        let party = |mut party: Box<dyn BackendParty>, channel: &mut Channel, x: &[u64]| {
            let mut outputs = Vec::new();
            for _ in 0..2 {
                party.begin_query(channel).unwrap();
                let mut online: Box<dyn Online> = party.prepare(2, &[], channel).unwrap();
                online.feed_all(channel, x).unwrap();
                outputs.push(online.finish(channel, x).unwrap().into_values());
                channel.flush().unwrap();
            }
            outputs
        };
        let client = Arc::clone(&layers).client(Cpu::detect(), [0; 32]);
        let (ours, theirs, total) = thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut server = model.party(&[0; 32]);
                server.take_keys(None, &mut to_client).unwrap();
                party(server, &mut to_client, &x_server)
            });
            let mut client = client;
            client.send_keys(&SEED, true, &mut to_server).unwrap();
            let client = party(client, &mut to_server, &x_client);
            (client, server.join().unwrap(), to_server.total())
        });
        let (traffic, keys) = (layer.traffic(), layers.client_keys().sent);
        assert_eq!(total.sent as usize, keys + 2 * traffic.online.0);
        assert_eq!(total.received as usize, 2 * traffic.online.1);
        assert_eq!(total.rounds, 2 * traffic.rounds);
        let output = layer.output().modulus;
        for (client, server) in ours.iter().zip(&theirs) {
            for (i, (&m, (&c, &s))) in self.exact().iter().zip(client.iter().zip(server)).enumerate() {
                let want = m as f64 / 2f64.powi(self.spec.shift as i32);
                assert!(want.abs() < output.value() as f64 / 2.0, "a case whose sums do not wrap");
                let got = output.open(c, s) as f64;
                assert!(
                    (got - want).abs() <= layer.rounding_ulps(),
                    "output {i}: {got} for {want}: {layer:?}"
                );
            }
        }
    }
}

/// A ring without an estimate, with a q wide enough for all that tests ask for.
fn insecure(n: usize, digit_bits: u32) -> Chosen {
    let primes = largest_primes(n, 50, 4).unwrap();
    let joint = Joint { count: Joint::TOGETHER, digit_bits: 25 };
    Chosen { params: RnsParameters::insecure(n, &primes).unwrap(), kept: 2, digit_bits, joint }
}

/// Layers whose products gain so many bits that no sum wraps.
fn any_spec() -> impl Strategy<Value = (Linear, Shape)> {
    let axes = (1usize..9, 1usize..9, prop::array::uniform2(1usize..4), prop::array::uniform2(1usize..4));
    let more = (prop::array::uniform2(1usize..3), prop::array::uniform4(0usize..3));
    let kind = prop_oneof![Just(BlockKind::Skew), Just(BlockKind::Circulant)];
    let blocks = prop::option::of((prop::sample::select(&BLOCK_SIZES[..]), kind));
    (axes, more, (1usize..5, 1usize..4, 1usize..4), 0u32..3, blocks).prop_filter_map(
        "a kernel that fits",
        |((h, w, kernel, stride), (dilation, pads), (groups, cg, og), max_exponent, blocks)| {
            let blocks = blocks.map(|(size, kind)| Blocks { size, kind });
            let (groups, cg, og) = match blocks {
                Some(Blocks { size, .. }) => (1, size * cg, size * og),
                None => (groups, cg, og),
            };
            let shift = WEIGHT_BITS + (kernel[0] * kernel[1] * cg).ilog2() + 1;
            let out_channels = groups * og;
            let spec =
                Linear { out_channels, kernel, stride, dilation, pads, groups, shift, max_exponent, blocks };
            let shape = [groups * cg, h, w];
            spec.output_hw(shape).map(|_| (spec, shape))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any layer, in every form and packing, tiles included.
    #[test]
    fn any_layer(
        (spec, in_shape) in any_spec(),
        log_n in 6u32..9,
        channels in prop::sample::select(vec![1usize, 2, 4, 16]),
        form in prop::sample::select(FORMS.to_vec()),
        activation_bits in 12u32..20,
        extreme: bool,
        count in 1usize..=4,
        seed: u64,
    ) {
        let case = Case::new(spec, in_shape, activation_bits, extreme, seed);
        let ring = insecure(1 << log_n, 25);
        let joint = Joint { count, ..ring.joint };
        let layers = case.layers(form, Chosen { joint, ..ring }, channels);
        prop_assume!(layers.is_some());
        case.check(Arc::new(layers.unwrap()));
    }
}

/// What the noise of a layer is, and what the search counts: log2 of deviations of a coefficient, the largest of all sums, and
/// of all responses as they are sent; `None` where the layer does not fit.
///
/// # Panics
/// If any coefficient is beyond its bound, seven of the largest deviations.
fn noise_of(case: &Case, form: Form, chosen: &Chosen, channels: usize, seed: u64) -> Option<[[f64; 2]; 2]> {
    let layers = Arc::new(case.layers(form, chosen.clone(), channels)?);
    let layer = layers.of(2).clone();
    let model = Arc::clone(&layers).with_weights(Cpu::detect(), &case.all_weights());
    let (ring, server) = (&model.ring, model.server(2));
    let prg = &mut Prg::derive(&[3; 32], "noise", &[seed]);
    let secrets: Vec<SecretKey> = (0..chosen.joint.count).map(|_| SecretKey::from_prg(ring, prg)).collect();
    let own: Vec<&SecretKey> = secrets.iter().collect();
    let rotations =
        layers.elements.iter().map(|&g| GaloisKey::new(own[0], g, chosen.digit_bits, prg)).collect();
    let wide = response_ring(ring, chosen.joint_limbs());
    let keys = Keys { joint: JointKeys::new(&wide, &own, chosen.joint.digit_bits, prg), rotations };
    let tools = layer.tools(ring).unwrap();
    let x: Vec<u64> = case.x.iter().map(|&x| layer.modulus.from_signed(x)).collect();
    let inputs: Vec<Vec<Ciphertext<_>>> = (0..layer.packing().in_blocks())
        .map(|block| {
            let mut fresh = own[0].encrypt(ring, &ring.zero(), prg).expand(ring);
            fresh.add_plain(ring, &encode(&layer, ring, &tools, block, &x));
            server.rotated(ring, &keys, block, vec![fresh]).remove(0)
        })
        .collect();
    let deviation = |noise: &[f64], bound: Noise| {
        let largest = noise.iter().fold(1.0f64, |x, &y| x.max(y)).log2();
        let bits = bound.bits() + layer.fitted.together().log2() / 2.0;
        assert!(largest <= bits, "{largest} bits, {bits} estimated: {layer:?}");
        (noise.iter().map(|x| x * x).sum::<f64>() / noise.len() as f64).sqrt().log2()
    };
    let small = response_ring(ring, chosen.kept);
    let bounds =
        [layer.fitted.noise(chosen.digits(), chosen.digit_bits), layer.fitted.response_noise(chosen)];
    let mut most = [f64::MIN; 2];
    let blocks: Vec<usize> = (0..layer.packing().out_blocks()).collect();
    for blocks in blocks.chunks(chosen.joint.count) {
        let sums: Vec<_> = blocks.iter().map(|&block| server.evaluate(ring, &keys, &inputs, block)).collect();
        let messages: Vec<_> = sums.iter().map(|sum| own[0].decrypt(ring, &tools.plain, sum)).collect();
        for (sum, message) in sums.iter().zip(&messages) {
            let noise = own[0].noise_vt(ring, &tools.plain, sum, message);
            most[0] = most[0].max(deviation(&noise, bounds[0]));
        }
        // As they are sent.
        let zeros = keys.joint.encrypt_zeros(&wide, sums.len(), prg).into_coefficients(&wide);
        let dropped = |sum: Ciphertext<_>| without_primes(ring, &small, sum.into_coefficients(ring));
        let mut sent = keys.joint.join(&wide, sums.into_iter().map(dropped).collect());
        sent.add_assign(&small, &zeros.drop_prime(&wide));
        let a = small.to_values(sent.a);
        for ((b, message), secret) in sent.b.into_iter().zip(&messages).zip(&own) {
            let response = Ciphertext { a: a.duplicate(), b: small.to_values(b) };
            assert_eq!(&secret.decrypt(&small, &tools.plain, &response), message);
            let noise = secret.noise_vt(&small, &tools.plain, &response, message);
            most[1] = most[1].max(deviation(&noise, bounds[1]));
        }
    }
    Some([0, 1].map(|at| [most[at], bounds[at].deviation().log2()]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The noise of every sum and response is below its bound, which is made for the largest weights.
    #[test]
    fn noise_is_below_its_bound(
        (spec, in_shape) in any_spec(),
        log_n in 5u32..8,
        channels in prop::sample::select(vec![1usize, 2, 4, 16]),
        form in prop::sample::select(FORMS.to_vec()),
        digit_bits in prop::sample::select(vec![5u32, 17, 25]),
        extreme: bool,
        seed: u64,
    ) {
        let case = Case::new(spec, in_shape, 12, extreme, seed);
        prop_assume!(noise_of(&case, form, &insecure(1 << log_n, digit_bits), channels, seed).is_some());
    }
}

/// How far the search's deviation may lie above the one that a layer's noise has, in bits.
const APART: f64 = 2.0;

/// Random layers in the forms that sessions run, with weights that make the most noise: numbers are the largest ones, plaintexts are
/// random. (Sizes are small: the code is the same for all.) The deviation of the noise of sums and of responses is what the search
/// counts, to [`APART`] bits.
fn bounds_are_near(layers: usize) {
    let (mut seen, mut apart) = (0, [[0f64; 2]; 2]);
    for seed in 0.. {
        let mut prg = Prg::derive(&[8; 32], "layers", &[seed]);
        let mut pick = |count: usize| prg.next_u64() as usize % count;
        let form = [Form::Interleaved, Form::Padded, Form::Conventional, Form::Blocks][pick(4)];
        let (k, stride, map) = ([1, 3, 5][pick(3)], 1 + pick(2), [1 + pick(8), 1 + pick(8)]);
        let [mut inputs, mut outputs] = [3 + pick(22), 4 + pick(21)];
        let blocks = (form == Form::Blocks).then(|| {
            let size = BLOCK_SIZES[pick(BLOCK_SIZES.len())];
            Blocks { size, kind: [BlockKind::Skew, BlockKind::Circulant][pick(2)] }
        });
        if let Some(Blocks { size, .. }) = blocks {
            [inputs, outputs] = [inputs, outputs].map(|channels| channels.next_multiple_of(size));
        }
        let depthwise = blocks.is_none() && pick(4) == 0;
        let groups = if depthwise { inputs } else { 1 };
        let outputs = if depthwise { inputs } else { outputs };
        let shift = WEIGHT_BITS + (k * k * inputs / groups).ilog2() + 1;
        let in_shape = [inputs, map[0], map[1]];
        let spec = Linear { shift, blocks, ..spec(outputs, k, stride, k / 2, groups) };
        let (n, channels, digit_bits) = (32 << pick(3), [1, 2, 4, 16][pick(4)], [5, 17, 25][pick(3)]);
        let numbers = form == Form::Padded || channels == 1 && form != Form::Blocks;
        let mut case = Case::new(spec, in_shape, 12, numbers, seed);
        case.weights.exponents.fill(case.spec.max_exponent as u8);
        if numbers {
            case.weights.weights.iter_mut().for_each(|weight| *weight *= 1 - 2 * (pick(2) as i16));
        }
        let Some(noise) = noise_of(&case, form, &insecure(n, digit_bits), channels, seed) else { continue };
        for ([found, counted], apart) in noise.into_iter().zip(&mut apart) {
            assert!(
                counted - found < APART,
                "{found:.2} bits, {counted:.2} counted: {form:?}, {channels} channels, digits of {digit_bits}, {case:?}"
            );
            *apart = [apart[0].max(counted - found), apart[1] + (counted - found) / layers as f64];
        }
        seen += 1;
        if seen == layers {
            break;
        }
    }
    println!(
        "{layers} layers, counted above found, most and mean: sums {:.2?}, responses {:.2?}",
        apart[0], apart[1]
    );
}

#[test]
fn bounds_are_near_the_noise_of_layers() {
    bounds_are_near(300);
}

#[test]
#[ignore = "minutes"]
fn bounds_are_near_the_noise_of_ten_thousand_layers() {
    bounds_are_near(10_000);
}

fn spec(out: usize, k: usize, stride: usize, pad: usize, groups: usize) -> Linear {
    Linear { kernel: [k; 2], stride: [stride; 2], pads: [pad; 4], groups, ..Linear::same(out, 1, 18) }
}

/// Rings on record, found by the search: several channels a ciphertext, a map in tiles, depthwise, groups, strides,
/// one place.
#[test]
fn real_parameters() {
    for (seed, (spec, in_shape)) in [
        (spec(6, 3, 1, 1, 1), [5, 14, 14]),
        (spec(3, 3, 1, 1, 1), [2, 70, 70]),
        (spec(5, 3, 2, 1, 5), [5, 30, 30]),
        (spec(4, 1, 2, 0, 2), [4, 28, 28]),
        (spec(10, 1, 1, 0, 1), [40, 1, 1]),
        // Kernels as large as their maps: a matrix, and none for its padding.
        (spec(6, 3, 1, 0, 1), [5, 3, 3]),
        (spec(6, 3, 1, 1, 1), [5, 3, 3]),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(spec, in_shape, 16, seed % 2 == 0, seed as u64);
        for form in FORMS {
            case.check(Arc::new(Hyena::layers(&[case.request(form)]).unwrap()));
        }
    }
}

/// The paper's example: for p = 307201 and N = 2048, h = 84248, and k = 11 is a record. Another k makes less noise,
/// for k itself is a factor too.
#[test]
fn the_papers_factor() {
    let p = 307_201;
    let h = row_pattern(p).unwrap();
    assert_eq!(h, 84_248);
    let records = Scaling::records(h, p);
    let found: Vec<(u64, u64)> = records.iter().map(|r| (r.k, r.product)).collect();
    assert!(found.starts_with(&[
        (1, 84_248),
        (3, 54_457),
        (4, 29_791),
        (7, 24_666),
        (11, 5_125),
        (51, 4_166)
    ]));
    assert_eq!(found.last().unwrap().1, 1);
    // By trying all.
    let mut least = p;
    let all = (1..p).filter_map(|k| {
        let product = (k * h % p).min(p - k * h % p);
        (product < least).then(|| {
            least = product;
            (k, product)
        })
    });
    assert_eq!(found, all.collect::<Vec<_>>());
    assert_eq!(Scaling::quietest(h, p), Scaling { k: 299, product: 330 });
}

/// The pattern of two rows is what h says, for any N.
#[test]
fn the_row_pattern_has_two_coefficients() {
    for (n, bits) in [(16, 20), (64, 30), (4096, 40)] {
        let plain = PlainPrime::new(n, bits).unwrap();
        let p = Modulus::odd(plain.p).unwrap();
        let batch = Batch::new(n, plain.p).unwrap();
        let slots: Vec<u64> = (0..n).map(|slot| if slot < n / 2 { 1 } else { p.neg(1) }).collect();
        let h = row_pattern(plain.p).unwrap();
        for (i, c) in batch.encode(&slots).into_iter().enumerate() {
            let expected = if i == n / 4 || i == 3 * n / 4 { h } else { 0 };
            assert_eq!(p.centred(c).unsigned_abs(), expected, "N = {n}, coefficient {i}");
        }
    }
}

#[test]
fn plaintext_primes_are_near_multiples() {
    for n in [64, 4096, 8192] {
        for bits in 16..54 {
            let plain = PlainPrime::new(n, bits).unwrap();
            assert_eq!(plain.p, (plain.multiple << bits) + 1);
            assert!(plain.multiple <= 128 && plain.p % (2 * n as u64) == 1, "{bits}: {plain:?}");
        }
        assert_eq!(PlainPrime::new(n, 60), None);
    }
}

#[test]
fn walsh_and_hadamard() {
    let mut f = vec![3, -5, 7, 11];
    walsh_hadamard(&mut f);
    assert_eq!(f, [16, 4, -20, 12]);
    walsh_hadamard(&mut f);
    assert_eq!(f, [12, -20, 28, 44]);
}

/// Every ring that is chosen has an estimate of 128 bits, and a chance of failure below the bound; what it is
/// weighed against is listed.
#[test]
fn the_search_keeps_to_the_record() {
    let layers = [(spec(64, 3, 1, 1, 1), [64, 32, 32]), (spec(10, 1, 1, 0, 1), [512, 1, 1])];
    let wanted = |form, i: usize, activation_bits| Wanted {
        form,
        spec: &layers[i].0,
        in_shape: layers[i].1,
        activation_bits,
        weight_bits: 12,
        weight_memory: 4 << 30,
    };
    for form in FORMS {
        let found = search(&[wanted(form, 0, 16), wanted(form, 1, 16)]).unwrap();
        assert!(found.ring.params.is_secure() && !found.weighed.is_empty());
        assert_eq!(found.weighed[0].ring, found.ring);
        for weighed in &found.weighed {
            assert!(weighed.failure <= MOST_FAILURES + 1.0 && weighed.ring.params.is_secure());
            assert!(weighed.seconds >= found.weighed[0].seconds);
        }
        assert!(found.layers.iter().all(|layer| layer.failure(&found.ring) <= MOST_FAILURES));
    }
    let (at, why) =
        search(&[wanted(Form::WalshHadamard, 0, 16), wanted(Form::WalshHadamard, 1, 44)]).unwrap_err();
    assert_eq!(at, 1);
    assert!(why.contains("62 bits"), "{why}");
    let large = Linear { kernel: [80; 2], ..spec(1, 1, 1, 0, 1) };
    let wide = Wanted { spec: &large, in_shape: [1, 90, 90], ..wanted(Form::Padded, 0, 16) };
    assert!(search(&[wide]).unwrap_err().1.contains("slots of a row"));
}

/// The baseline is not charged for what it does not do. With one channel in a ciphertext its plaintexts are constants,
/// and make the noise that Hyena's numbers make; with two they have three coefficients that are not zero, whatever N
/// is.
#[test]
fn constants_make_no_noise_of_dense_plaintexts() {
    let layer = spec(8, 3, 1, 1, 1);
    let wanted = |form, in_shape| Wanted {
        form,
        spec: &layer,
        in_shape,
        activation_bits: 16,
        weight_bits: 12,
        weight_memory: 4 << 30,
    };
    let ring = insecure(8192, 25);
    let noise = |form, in_shape, channels| {
        let ways = Fitted::all(8192, &wanted(form, in_shape));
        let way = ways.into_iter().find(|way| way.packing.channels() == channels).unwrap();
        way.noise(ring.digits(), ring.digit_bits).bits()
    };
    let forms = [Form::Conventional, Form::WalshHadamard];
    let [conventional, hyena] = forms.map(|form| noise(form, [3, 224, 224], 1));
    assert_eq!(conventional, hyena);
    let dense = noise(Form::Conventional, [8, 28, 28], 4);
    // N/12·p² of four channels against 3·(p/2)² of two, in bits of a deviation.
    let two = noise(Form::Conventional, [8, 56, 56], 2);
    assert!((4.0..6.0).contains(&(dense - two)), "{dense} and {two}");
    // So three primes hold it where dense plaintexts would take four.
    let layer = Linear::same(64, 3, 12);
    let wanted = Wanted { spec: &layer, ..wanted(Form::Conventional, [3, 224, 224]) };
    assert_eq!(search(&[wanted]).unwrap().ring.params.primes().len(), 3);
}

/// A model in numbers takes the weights' own bytes and the fixed patterns; one in plaintexts thousands of times as
/// much.
#[test]
fn models_of_numbers_are_small() {
    let case = Case::new(spec(16, 3, 1, 1, 1), [16, 32, 32], 16, false, 1);
    let bytes = FORMS.map(|form| {
        let layers = Arc::new(Hyena::layers(&[case.request(form)]).unwrap());
        let channels = layers.of(2).packing().channels();
        let (n, words) = (layers.ring.params.ring_dim(), layers.ring.params.primes().len());
        let server = Arc::clone(&layers).with_weights(Cpu::detect(), &case.all_weights()).server(2);
        let (fixed, own) = server.bytes();
        (fixed.bytes() + own, channels, n * words * 8)
    });
    let weights = 16 * 16 * 9 * 2;
    let [interleaved, padded, patterns, conventional, _] = bytes;
    assert_eq!([interleaved.0, padded.0], [weights; 2]);
    assert!(interleaved.1 > 2);
    assert_eq!(patterns.0, weights + (patterns.1 - 1) * patterns.2);
    assert_eq!(conventional.0, weights + 16 * 16 / conventional.1 * 9 * conventional.2);
}

/// What the client receives is uniform, here of a layer whose values are all zero; and nothing repeats from one
/// query to the next.
#[test]
fn the_client_sees_uniform_residues() {
    let mut case = Case::new(spec(4, 3, 1, 1, 1), [2, 6, 6], 16, false, 2);
    case.x.fill(0);
    case.weights.bias = Bias::PerChannel(vec![0; 4]);
    let layers = Arc::new(case.layers(Form::WalshHadamard, insecure(1024, 25), 2).unwrap());
    let model = Arc::new(Arc::clone(&layers).with_weights(Cpu::detect(), &case.all_weights()));
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let (mut to_server, mut to_client) = memory_pair();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut server = Server::new(Arc::clone(&model), Prg::new([6; 32]));
            server.take_keys(None, &mut to_client).unwrap();
            for _ in 0..2 {
                let mut online = server.prepare(2, &[], &mut to_client).unwrap();
                online.feed_all(&mut to_client, &[0; 72]).unwrap();
                online.finish(&mut to_client, &[0; 72]).unwrap();
                to_client.flush().unwrap();
            }
        });
        let mut client = Client::new(Arc::clone(&layers), Cpu::detect(), Prg::new([7; 32]));
        client.send_keys(&SEED, true, &mut to_server).unwrap();
        let bytes = backend::Layer::traffic(layers.of(2)).online.1;
        for _ in 0..2 {
            let mut online = client.prepare(2, &[], &mut to_server).unwrap();
            online.feed_all(&mut to_server, &[0; 72]).unwrap();
            seen.push(to_server.recv(bytes).unwrap());
        }
    });
    let bits = layers.ring.limb_bits();
    let words = |bytes: &[u8]| jaguar_wire::pack::unpack(bytes, bytes.len() * 8 / bits as usize, bits);
    let (first, second) = (words(&seen[0]), words(&seen[1]));
    assert!(first.iter().zip(&second).all(|(x, y)| x != y), "50 bits agree by chance once in 2^50");
    let mut cells = [0f64; 64];
    first.iter().chain(&second).for_each(|word| cells[(word >> (bits - 6)) as usize] += 1.0);
    let expected = 2.0 * first.len() as f64 / 64.0;
    // P(chi2(63) > 140) is 1e-7; the primes are just below a power of two.
    assert!(cells.iter().map(|c| (c - expected).powi(2) / expected).sum::<f64>() < 140.0, "{cells:?}");
}

/// Whatever a peer sends is some polynomial: the shares are garbage, and nothing panics.
#[test]
fn bytes_of_a_peer_never_panic() {
    let case = Case::new(spec(3, 3, 1, 1, 1), [3, 5, 5], 16, true, 3);
    for form in FORMS {
        let layers = Arc::new(case.layers(form, insecure(128, 25), 4).unwrap());
        let model = Arc::new(Arc::clone(&layers).with_weights(Cpu::detect(), &case.all_weights()));
        let (up, down) = backend::Layer::traffic(layers.of(2)).online;
        let (mut hostile, mut channel) = memory_pair();
        hostile.send(&vec![0xff; layers.client_keys().sent + up]).unwrap();
        hostile.flush().unwrap();
        let mut server = Server::new(model, Prg::new([6; 32]));
        server.take_keys(None, &mut channel).unwrap();
        let mut online = server.prepare(2, &[], &mut channel).unwrap();
        online.feed_all(&mut channel, &[9; 75]).unwrap();
        let share = online.finish(&mut channel, &[9; 75]).unwrap().into_values();
        assert!(share.iter().all(|&s| s < 1 << 16));

        let (mut hostile, mut channel) = memory_pair();
        let mut client = Client::new(Arc::clone(&layers), Cpu::detect(), Prg::new([7; 32]));
        client.send_keys(&SEED, true, &mut channel).unwrap();
        let mut online = client.prepare(2, &[], &mut channel).unwrap();
        online.feed_all(&mut channel, &[9; 75]).unwrap();
        hostile.send(&vec![0xff; down]).unwrap();
        hostile.flush().unwrap();
        let share = online.finish(&mut channel, &[9; 75]).unwrap().into_values();
        assert!(share.iter().all(|&s| s < 1 << 16));
    }
}

/// A layer's messages under fixed randomness, by form. A change here is a change of the wire format or of the
/// arithmetic.
#[test]
fn the_wire_format_is_as_recorded() {
    let case = Case::new(spec(5, 3, 1, 1, 1), [3, 5, 5], 16, false, 4);
    let found = FORMS.map(|form| {
        // Of two channels, one in a row, none are interleaved.
        let (n, channels) = if form == Form::Interleaved { (512, 8) } else { (128, 2) };
        let layers = Arc::new(case.layers(form, insecure(n, 25), channels).unwrap());
        let model = Arc::new(Arc::clone(&layers).with_weights(Cpu::detect(), &case.all_weights()));
        let mut server = Server::new(model, Prg::new([6; 32]));
        let mut client = Client::new(Arc::clone(&layers), Cpu::detect(), Prg::new([7; 32]));
        let [x_client, x_server] = case.shares(layers.of(2).modulus);
        let (a, b) = memory_transports();
        let (a, transcript) = Recorder::hashing(a);
        let (mut to_server, mut to_client) = (Channel::new(a), Channel::new(b));
        thread::scope(|scope| {
            scope.spawn(|| {
                server.take_keys(None, &mut to_client).unwrap();
                let mut online = server.prepare(2, &[], &mut to_client).unwrap();
                online.feed_all(&mut to_client, &x_server).unwrap();
                online.finish(&mut to_client, &x_server).unwrap();
                to_client.flush().unwrap();
            });
            client.send_keys(&SEED, true, &mut to_server).unwrap();
            let mut online = client.prepare(2, &[], &mut to_server).unwrap();
            online.feed_all(&mut to_server, &x_client).unwrap();
            online.finish(&mut to_server, &x_client).unwrap();
        });
        transcript.digest()[..8].iter().map(|b| format!("{b:02x}")).collect::<String>()
    });
    assert_eq!(
        found,
        ["86d37e7e927a4638", "563365fe534bf643", "0b8f120a9de79042", "2f83dcf7c32c9942", "75ecc8e787ce2bc3"]
    );
}

/// Inputs wider than activations, as the sums of an average pool are.
#[test]
fn inputs_may_be_sums() {
    for seed in 0..3 {
        let spec = Linear { shift: 14, ..spec(10, 1, 1, 0, 1) };
        let mut case = Case::new(spec, [64, 1, 1], 24, false, seed);
        case.x.iter_mut().for_each(|x| *x = x.abs() << 2);
        for form in FORMS {
            case.check(Arc::new(Hyena::layers(&[case.request(form)]).unwrap()));
        }
    }
}

/// 5·2^39 + 1 is 10·2^38 + 1: layers of different shifts may have one prime, and not the same μ.
#[test]
fn layers_that_share_a_prime_keep_their_own_scale() {
    let cases = [15, 14].map(|shift| {
        let spec = Linear { shift, ..spec(4, 1, 1, 0, 1) };
        Case::new(spec, [4, 1, 1], 24, false, u64::from(shift))
    });
    for form in FORMS {
        let requests = cases.iter().enumerate();
        let requests: Vec<Request<'_>> =
            requests.map(|(i, case)| Request { node: 1 + i, ..case.request(form) }).collect();
        let layers = Hyena::layers(&requests).unwrap();
        let (first, second) = (layers.of(1).fitted.plain, layers.of(2).fitted.plain);
        assert_eq!((first.p, first.multiple, second.multiple), (second.p, 5, 10));
        let ring = Ring::new(Cpu::detect(), layers.ring.params.clone());
        let layers = Arc::new(layers);
        let all = [None, Some(cases[0].weights.clone()), Some(cases[1].weights.clone())];
        let model = Arc::clone(&layers).with_weights(Cpu::detect(), &all);
        for node in [1, 2] {
            let expected = layers.of(node).tools(&ring).unwrap().back;
            assert_eq!(model.server(node).bytes().0.tools.back, expected);
        }
    }
}

/// Splitting plaintexts (the paper's "plaintext decomposition") lowers the noise of products by the square root of p, and
/// takes a ciphertext up, its rotations and a product for each part. Here the search is made with it, each layer in as many
/// parts as cost it least in the ring: whole networks gain less than a twentieth. A response has to carry p and the 40 bits of
/// failure whatever the noise, so q does not become much smaller; a fully connected layer alone would gain.
#[test]
fn splitting_plaintexts_gains_next_to_nothing() {
    let resnet20 = [
        (1, spec(16, 3, 1, 1, 1), [3, 32, 32]),
        (6, spec(16, 3, 1, 1, 1), [16, 32, 32]),
        (1, spec(32, 3, 2, 1, 1), [16, 32, 32]),
        (5, spec(32, 3, 1, 1, 1), [32, 16, 16]),
        (1, spec(64, 3, 2, 1, 1), [32, 16, 16]),
        (5, spec(64, 3, 1, 1, 1), [64, 8, 8]),
        (1, spec(10, 1, 1, 0, 1), [64, 1, 1]),
    ];
    let resnet18 = [
        (1, spec(64, 7, 2, 3, 1), [3, 224, 224]),
        (4, spec(64, 3, 1, 1, 1), [64, 56, 56]),
        (1, spec(128, 3, 2, 1, 1), [64, 56, 56]),
        (3, spec(128, 3, 1, 1, 1), [128, 28, 28]),
        (3, spec(256, 3, 1, 1, 1), [256, 14, 14]),
        (3, spec(512, 3, 1, 1, 1), [512, 7, 7]),
        (1, spec(1000, 1, 1, 0, 1), [512, 1, 1]),
    ];
    for (name, network) in [("ResNet-20", &resnet20), ("ResNet-18", &resnet18)] {
        for bits in [36, 41, 45] {
            let [whole, split] = [1, 3].map(|parts| least_cost(network, bits, parts).unwrap());
            assert!(split > 0.95 * whole, "{name}, {bits} bits: {split} ns instead of {whole}");
        }
    }
}

/// Nanoseconds that a network with these layers, so many of each and with products of `bits` bits, takes at least in any ring
/// on record, in the conventional form; keys do not count. Every layer's plaintexts are split into up to `most` parts.
fn least_cost(network: &[(usize, Linear, Shape)], bits: u32, most: u32) -> Option<f64> {
    let mut least: Option<f64> = None;
    for n in search::RING_DIMS {
        let ways: Vec<Vec<Fitted>> = network
            .iter()
            .map(|(_, layer, in_shape)| {
                let layer = Linear { shift: 14, ..layer.clone() };
                let wanted = Wanted {
                    form: Form::Conventional,
                    spec: &layer,
                    in_shape: *in_shape,
                    activation_bits: bits - 14,
                    weight_bits: 14,
                    weight_memory: u64::MAX,
                };
                Fitted::all(n, &wanted).into_iter().filter(|way| way.packing.channels() <= 256).collect()
            })
            .collect();
        let sets = (1..=search::MOST_LIMBS)
            .flat_map(|limbs| search::LIMB_BITS.filter_map(move |bits| search::on_record(n, bits, limbs)));
        for params in sets {
            let limbs = params.primes().len();
            let limb_bits = u64::BITS - params.primes()[0].leading_zeros();
            for (kept, digits) in
                (1..=limbs).flat_map(|kept| (1..=search::MOST_DIGITS).map(move |d| (kept, d)))
            {
                let digit_bits = limb_bits.div_ceil(digits);
                let ring = Chosen { params: params.clone(), kept, digit_bits, joint: Joint::ALONE };
                let cost = |way: &Fitted, parts: u32| {
                    let failure = match parts {
                        1 => way.failure(&ring),
                        parts => way.failure_in_parts(parts, &ring),
                    };
                    let more =
                        way.another_part(ring.sizes()).seconds(&search::nominal(n, search::costs(limb_bits)))
                            + search::BYTE * way.bytes(&ring).0 as f64;
                    (failure <= MOST_FAILURES)
                        .then(|| way.nanoseconds(&ring, false) + f64::from(parts - 1) * more)
                };
                let layer = |ways: &Vec<Fitted>| {
                    let all =
                        ways.iter().flat_map(|way| (1..=most).filter_map(move |parts| cost(way, parts)));
                    all.min_by(f64::total_cmp)
                };
                let all =
                    network.iter().zip(&ways).map(|((count, ..), ways)| Some(*count as f64 * layer(ways)?));
                if let Some(cost) = all.sum::<Option<f64>>() {
                    least = Some(least.map_or(cost, |least| least.min(cost)));
                }
            }
        }
    }
    least
}

/// Ciphertexts and responses of the layers of the paper's Table 3, without keys, in MB: beside the paper's, which are printed in
/// whole ones, and the fewest that any way takes whose noise holds, at whatever time.
#[test]
fn the_bytes_of_table_3() {
    let layers = [
        (spec(64, 3, 1, 1, 1), [3, 224, 224], 67, [3.23, 57.34], 59.61),
        (spec(256, 1, 1, 0, 1), [64, 56, 56], 20, [4.92, 16.38], 18.26),
        (spec(64, 1, 1, 0, 1), [256, 56, 56], 20, [19.27, 4.01], 19.96),
        (spec(192, 3, 1, 1, 192), [192, 28, 28], 3, [4.82, 3.01], 6.49),
    ];
    for (layer, in_shape, printed, expected, fewest) in layers {
        let layer = Linear { shift: 12, ..layer };
        let wanted = Wanted {
            form: Form::Interleaved,
            spec: &layer,
            in_shape,
            activation_bits: 16,
            weight_bits: 12,
            weight_memory: 0,
        };
        let found = search(&[wanted]).unwrap();
        let (up, down) = found.layers[0].bytes(&found.ring);
        let mega = |bytes: usize| (bytes as f64 / 1e4).round() / 100.0;
        assert_eq!([up, down].map(mega), expected, "{in_shape:?}, {printed} in the paper");
        assert_eq!(search::fewest_bytes(&wanted).map(mega), Some(fewest), "{in_shape:?}");
        // Every response has its b half, and four share an a half.
        let packing = &found.layers[0].packing;
        let halves = packing.responses() + packing.groups() * packing.out_blocks().div_ceil(4);
        assert_eq!(down, halves * found.ring.poly_bytes(found.ring.kept));
    }
}

/// Terms are counted as they are listed.
#[test]
fn terms_are_counted() {
    for (layer, in_shape) in [
        (spec(5, 3, 1, 1, 1), [11, 6, 6]),
        (spec(40, 1, 1, 0, 1), [70, 1, 1]),
        (spec(8, 3, 2, 1, 4), [4, 9, 9]),
        (spec(3, 3, 1, 1, 1), [2, 40, 40]),
    ] {
        for outputs in [Outputs::One, Outputs::All] {
            for packing in Packing::all(1024, &layer, in_shape, outputs) {
                for block in 0..packing.out_blocks() {
                    let listed: usize = packing.diagonals(block).iter().map(|(_, inputs)| inputs.len()).sum();
                    assert_eq!(packing.terms(block), listed, "{packing:?}, block {block}");
                }
            }
        }
    }
}

/// Every weight is in one place of the sums of interleaved channels, no term is of zeros alone, and nothing is rotated for nothing.
#[test]
fn terms_of_interleaved_channels_have_all_weights_and_no_zeros() {
    for (layer, in_shape) in [
        (spec(5, 3, 1, 1, 1), [11, 6, 6]),
        (spec(40, 1, 1, 0, 1), [70, 1, 1]),
        (spec(12, 3, 1, 1, 12), [12, 7, 7]),
        (spec(8, 3, 2, 1, 4), [4, 9, 9]),
        (spec(12, 3, 1, 1, 3), [24, 5, 5]),
        (spec(3, 3, 1, 1, 1), [2, 40, 40]),
        (spec(6, 4, 1, 0, 1), [5, 4, 4]),
    ] {
        for packing in Interleaved::all(1024, &layer, in_shape) {
            let [inputs, ..] = packing.in_shape();
            let taps: usize = packing.spec().kernel.iter().product();
            let weights = packing.spec().out_channels * inputs / layer.groups * taps;
            let sums: Vec<Sum> = (0..packing.out_blocks()).flat_map(|block| packing.sums(block)).collect();
            let mut seen = HashSet::new();
            let mut turned = HashSet::new();
            for sum in &sums {
                for &(input, turn) in &sum.terms {
                    turned.insert(turn);
                    let term = packing.term(input, turn);
                    let own: HashSet<_> = (0..packing.dimension())
                        .filter_map(|slot| packing.weight(sum, &term, slot))
                        .collect();
                    assert!(!own.is_empty(), "{packing:?}: ({input}, {turn}) of {sum:?}");
                    own.into_iter()
                        .for_each(|weight| assert!(seen.insert(weight), "{packing:?}: {weight:?} twice"));
                }
            }
            assert_eq!(seen.len(), weights, "{packing:?}");
            assert_eq!(turned.len(), packing.turns().len(), "{packing:?}");
            let counted = packing.work();
            assert_eq!(counted.sums, sums.len(), "{packing:?}");
            assert_eq!(
                counted.products,
                sums.iter().map(|sum| sum.terms.len()).sum::<usize>(),
                "{packing:?}"
            );
            let rotated = |&&(_, turn): &&(usize, usize)| packing.turned_by(packing.turns()[turn]) > 0;
            let of = |block| packing.sums(block).iter().flat_map(|sum| &sum.terms).filter(rotated).count();
            assert_eq!(Some(counted.turned), (0..packing.out_blocks()).map(of).max(), "{packing:?}");
            if layer.groups == in_shape[0] && layer.groups == layer.out_channels {
                assert_eq!(packing.turns().len(), taps, "{packing:?}");
            }
        }
    }
}
