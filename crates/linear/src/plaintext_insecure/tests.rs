//! Both forms as backends, over a channel in memory, against the plaintext convolution.

use std::sync::Arc;
use std::thread;

use jaguar_graph::network::{Bias, Weights};
use jaguar_graph::reference::linear_exact;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::double::Recorder;
use jaguar_wire::{Channel, memory_pair, memory_transports};
use proptest::prelude::*;

use super::server::Server;
use super::*;
use crate::backend::{self, Backend, Layers, Online, Request};

/// The layer number 3 of a plan.
fn planned(backend: &Plaintext, spec: &Linear, in_shape: Shape) -> Arc<dyn Layers> {
    backend.plan(&[request(spec, in_shape)]).unwrap()
}

fn request(spec: &Linear, in_shape: Shape) -> Request<'_> {
    Request {
        node: 3,
        spec,
        in_shape,
        activation_bits: 16,
        guard_bits: 0,
        weight_bits: 12,
        opened: false,
        product_bits: 30,
        packing: Default::default(),
        images: 1,
        ring: Default::default(),
        backend: "",
        weight_memory: 0,
    }
}

/// One query through the traits: output shares, and the client's traffic.
fn run(
    layers: Arc<dyn Layers>,
    weights: &Weights,
    [x_client, x_server]: [&[u64]; 2],
) -> ([Vec<u64>; 2], jaguar_wire::Traffic) {
    let model = Arc::clone(&layers).model(
        &Cpu::detect().into(),
        [0; 32],
        &[None, None, None, Some(weights.clone())],
        12,
    );
    let (mut to_server, mut to_client) = memory_pair();
    let party = |mut party: Box<dyn backend::BackendParty>, channel: &mut Channel, x: &[u64]| {
        party.setup(channel).unwrap();
        party.begin_query(channel).unwrap();
        let mut online: Box<dyn Online> = party.prepare(3, &[], channel).unwrap();
        let early = online.early_output().map(<[u64]>::to_vec);
        online.feed_all(channel, x).unwrap();
        let mut output = online.finish(channel, x).unwrap();
        // In two parts.
        output.make(1);
        assert!(!output.values().is_empty());
        let output = output.into_values();
        assert!(early.is_none_or(|early| early == output));
        channel.flush().unwrap();
        output
    };
    let client = layers.client(Cpu::detect(), [0; 32]);
    thread::scope(|scope| {
        let server = scope.spawn(|| party(model.party(&[0; 32]), &mut to_client, x_server));
        let client = party(client, &mut to_server, x_client);
        ([client, server.join().unwrap()], to_server.total())
    })
}

fn words(count: usize, seed: u64) -> Vec<u64> {
    let mut words = vec![0; count];
    Prg::derive(&[3; 32], "plaintext", &[seed]).fill_u64(&mut words);
    words
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Both forms, any layer: within the stated error of the quotient, at the stated bytes.
    #[test]
    fn any_layer(
        (h, w, kernel, stride, pad) in (1usize..9, 1usize..9, 1usize..4, 1usize..3, 0usize..2),
        (groups, cg, og) in (1usize..3, 1usize..4, 1usize..4),
        (shift, max_exponent) in (1u32..20, 0u32..4),
        prime: bool,
        seed: u64,
    ) {
        let spec = Linear {
            out_channels: groups * og,
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1; 2],
            pads: [pad; 4],
            groups,
            shift,
            max_exponent,
            blocks: None,
        };
        let in_shape = [groups * cg, h, w];
        prop_assume!(spec.output_hw(in_shape).is_some());
        let backend = if prime { &Plaintext::PRIME } else { &Plaintext::POWER_OF_TWO };
        let layers = planned(backend, &spec, in_shape);
        let layer = layers.layer(3).unwrap();
        let (input, output) = (layer.input().modulus, layer.output().modulus);
        prop_assert_eq!((input.log2().is_none(), output.bits()), (prime, if prime { 20 } else { 16 }));

        let signed = |word: u64, bits: u32| (word as i64) >> (64 - bits);
        let count = spec.weights_len(in_shape[0]).unwrap();
        let weights = Weights {
            weights: words(count, seed).into_iter().map(|v| signed(v, 8) as i16).collect(),
            exponents: (0..spec.out_channels).map(|d| (d as u32 % (max_exponent + 1)) as u8).collect(),
            bias: Bias::PerChannel(words(spec.out_channels, !seed).into_iter().map(|v| signed(v, 12)).collect()),
        };
        let x: Vec<i64> = words(in_shape.iter().product(), seed ^ 1).into_iter().map(|v| signed(v, 6)).collect();
        let client: Vec<u64> = words(x.len(), seed ^ 2).into_iter().map(|v| input.reduce(v)).collect();
        let server: Vec<u64> = x.iter().zip(&client).map(|(&x, &c)| input.sub(input.from_signed(x), c)).collect();

        let ([y_client, y_server], traffic) = run(Arc::clone(&layers), &weights, [&client, &server]);
        let expected = layer.traffic();
        prop_assert_eq!(traffic.sent as usize, expected.offline.0 + expected.online.0);
        prop_assert_eq!(traffic.received as usize, expected.offline.1 + expected.online.1);
        // Products beyond the ring wrap around, in both alike: to the nearest of all that are the same there.
        let turn = 2f64.powi(output.bits() as i32);
        for ((&m, &c), &s) in linear_exact(Cpu::detect(), &spec, in_shape, &weights, &x).iter().zip(&y_client).zip(&y_server) {
            let want = input.centred(input.from_signed(m)) as f64 / 2f64.powi(shift as i32);
            let off = (output.open(c, s) as f64 - want).rem_euclid(turn);
            // (Of products beyond 2^(n+f-1) the scale errs by more than is stated for values of n bits.)
            let large = (want.abs() / 32768.0).max(1.0);
            prop_assert!(off.min(turn - off) <= 1.0 + (layer.rounding_ulps() - 1.0) * large, "{} where {} was right", off, want);
        }
    }
}

#[test]
fn primes_are_told_apart() {
    let small = |p: u64| p > 2 && (2..p).all(|d| !p.is_multiple_of(d));
    assert!((3..2000).step_by(2).all(|p| is_prime(p) == small(p)));
    // A Carmichael number, a strong pseudoprime to the first eight primes, a square of a prime, and Mersenne's 2^61 - 1.
    for (p, prime) in
        [(561, false), (341_550_071_728_321, false), (1_000_003 * 1_000_003, false), ((1 << 61) - 1, true)]
    {
        assert_eq!(is_prime(p), prime, "{p}");
    }
    assert_eq!(prime_above(1 << 32).value(), (1 << 32) + 15);
}

#[test]
fn layers_that_no_modulus_holds_are_refused() {
    let spec = Linear::same(4, 1, 40);
    assert!(Layer::new(&spec, [4, 2, 2], 24, true).is_err());
    assert!(Layer::new(&Linear::same(4, 1, 20), [4, 2, 2], 24, true).is_ok());
}

/// A layer's messages under fixed randomness, by form. A change here is a change of the wire format.
#[test]
fn the_wire_format_is_as_recorded() {
    let spec = Linear::same(4, 3, 12);
    let in_shape = [3, 6, 6];
    let found = [Plaintext::POWER_OF_TWO, Plaintext::PRIME].map(|backend| {
        let layers = Arc::new(backend.layers(&[request(&spec, in_shape)]).unwrap());
        let weights =
            Weights { weights: vec![1; 108], exponents: vec![], bias: Bias::PerChannel(vec![0; 4]) };
        let model = Arc::clone(&layers).with_weights(Cpu::detect(), &[None, None, None, Some(weights)]);
        let mut server: Box<dyn backend::BackendParty> =
            Box::new(Server { model: Arc::new(model), prg: Prg::new([4; 32]) });
        let mut client = layers.client(Cpu::detect(), [0; 32]);
        let x = vec![5; 108];
        let (a, b) = memory_transports();
        let (a, transcript) = Recorder::hashing(a);
        let (mut to_server, mut to_client) = (Channel::new(a), Channel::new(b));
        thread::scope(|scope| {
            scope.spawn(|| {
                server.prepare(3, &[], &mut to_client).unwrap().feed_all(&mut to_client, &x).unwrap();
            });
            client.prepare(3, &[], &mut to_server).unwrap().feed_all(&mut to_server, &x).unwrap();
            to_server.flush().unwrap();
        });
        transcript.digest()[..8].iter().map(|b| format!("{b:02x}")).collect::<String>()
    });
    assert_eq!(found, ["8690615f3b22052e", "90c129864dcecf03"]);
}
