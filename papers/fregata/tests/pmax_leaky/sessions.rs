//! Sessions by PMax: they compute what they should, and what each party holds at the end of a layer gives the other's
//! secrets away. The same attacks on sealed sessions find nothing.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Connected, Limits, Reveal, connect};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::report::Predicted;
use jaguar_engine::server::Service;
use jaguar_engine::verify::verify;
use jaguar_graph::network::{
    Bias, Input, InputSpec, Linear, Model, Network, Node, Op, OutputSpec, Relu, Shape, Weights,
};
use jaguar_graph::reference;
use jaguar_linear::plaintext_insecure;
use jaguar_plan::{Allowed, Choices, Comparison, Kit, Plan};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, memory_pair};

use crate::networks::{input, kit, leaky, network};

/// A client that accepts it.
pub fn connected(channel: Channel) -> Connected {
    connect(&kit(), channel, &Limits { accept_leaks: true, ..Limits::default() }).unwrap()
}

pub fn leaky_service(bundle: Bundle, reveal: Reveal) -> Service {
    let choices = leaky(&bundle, Kit::JAGUAR);
    let allowed = Allowed { leaks: true, ..Allowed::default() };
    Service::allowing(Cpu::detect(), bundle, choices, reveal, allowed).unwrap()
}

pub fn sealed_service(bundle: Bundle) -> Service {
    let choices = Choices::standard(&bundle.model.network, Kit::JAGUAR);
    Service::new(bundle, choices, Reveal::Logits).unwrap()
}

/// A ReLU or a ReLU6 beside a product, a max-pool, layers behind each other, under several backends, of which one wants
/// shares modulo an odd number.
#[test]
fn every_operation_agrees_with_the_reference_layer_by_layer() {
    let guarded = || Bundle::with_hiding(network(None, true).model, 4).unwrap();
    let reduced = || {
        let mut model = network(None, true).model;
        model.network.nodes.iter_mut().filter_map(|n| n.op.ignored_mut()).for_each(|ignored| *ignored = 9);
        Bundle::with_hiding(model, 0).unwrap()
    };
    let kit = kit().with(plaintext_insecure::ALL);
    let [plain, odd] =
        ["plaintext-insecure", "plaintext-prime-insecure"].map(|name| kit.backend(name).unwrap());
    for (bundle, backend, reveal) in [
        (network(None, false), Kit::JAGUAR, Reveal::Logits),
        (network(None, true), Kit::JAGUAR, Reveal::Label),
        (network(None, true), Kit::CHEETAH, Reveal::Logits),
        (guarded(), Kit::JAGUAR, Reveal::Logits),
        // Signs are exact, whatever the network lets them ignore.
        (reduced(), Kit::JAGUAR, Reveal::Logits),
        (network(None, false), plain, Reveal::Logits),
        (network(None, true), odd, Reveal::Logits),
    ] {
        let choices = leaky(&bundle, backend);
        assert_ne!(choices.comparison, Comparison::Sealed);
        let guard_bits = bundle.model.network.guard_bits;
        let inputs = [0, 1].map(|query| input(query).iter().map(|v| v << guard_bits).collect::<Vec<_>>());
        let checks = verify(&kit, bundle, choices, reveal, &inputs, HintPlace::Memory).unwrap();
        for layer in checks.iter().flat_map(|check| &check.layers) {
            assert!(layer.wrong == 0 && layer.reduced == 0, "{layer:?}");
        }
        // (The plain backends do not round.)
        assert!(!backend.backend().is_secure() || checks[0].layers.iter().any(|l| l.max_ulps > 0.5));
    }
}

#[test]
fn bytes_and_rounds_are_those_of_the_plan() {
    let service = leaky_service(network(None, true), Reveal::Logits);
    let (client_end, server_end) = memory_pair();
    let reports = thread::scope(|scope| {
        let server = scope.spawn(|| service.serve(server_end, &mut |_| ()));
        let mut ready = connected(client_end).prepare_client(HintPlace::Memory).unwrap();
        let mut reports = Vec::new();
        for _ in 0..2 {
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            let (_, report, next) = prepared.run(&input(0), &mut NoProgress).unwrap();
            reports.push(report);
            ready = next;
        }
        ready.leave().unwrap();
        server.join().unwrap().unwrap();
        reports
    });
    for report in &reports {
        for (row, step) in
            report.rows.iter().zip(&service.plan().steps).filter(|(_, s)| s.nonlinear.is_some())
        {
            let bytes = (row.online.bytes_up, row.online.bytes_down);
            assert_eq!(bytes, (step.cost.up, step.cost.down), "{}", row.name);
        }
        let predicted = Predicted::new(service.plan(), report, None);
        for (counted, predicted) in [(&report.offline, predicted.offline), (&report.online, predicted.online)]
        {
            assert_eq!((counted.bytes_up, counted.bytes_down), (predicted.bytes_up, predicted.bytes_down));
        }
        assert_eq!(report.online.rounds, predicted.online.rounds);
        assert!(
            report.leaks.as_ref().is_some_and(|leaks| leaks.contains("weights")),
            "it says what it leaks"
        );
    }
}

/// It takes fewer bytes and rounds online, and the client promises nothing: it sends corrections while it prepares.
#[test]
fn it_is_cheaper_online_than_the_sealed_form() {
    let bundle = || network(None, false);
    let (leaky, sealed) = (leaky_service(bundle(), Reveal::Logits), sealed_service(bundle()));
    let compared = leaky.plan().steps.iter().zip(&sealed.plan().steps).filter(|(s, _)| s.nonlinear.is_some());
    for (step, sealed) in compared {
        assert!(step.replaced);
        assert_eq!(step.nonlinear.as_ref().unwrap().digit(), None);
        assert!(step.cost.up + step.cost.down < sealed.cost.up + sealed.cost.down);
        assert!(step.cost.client_rounds < sealed.cost.client_rounds);
    }
    let promises = [&leaky, &sealed].map(|service| service.plan().promise());
    assert_eq!(promises, [0, sealed.plan().nonlinear_cost().bits_from_client]);
}

/// Wider than the ring takes: no wrap, but no plan. (What nothing takes is refused by its number.)
#[test]
fn factors_beyond_the_ring_are_refused() {
    let bundle = network(None, false);
    let good = leaky(&bundle, Kit::JAGUAR);
    let Comparison::By { name, extra_bits } = good.comparison else { panic!("sealed") };
    assert!((1..=8).contains(&extra_bits));
    for extra_bits in [0, extra_bits + 1, 17] {
        let choices = Choices { comparison: Comparison::By { name, extra_bits }, ..good.clone() };
        assert!(Plan::accepting_leaks(&bundle.model.network, choices).is_err(), "{extra_bits}");
    }
}

// ---- Attacks. ----

const UNITS: usize = 96;
pub const PIXELS: usize = 4;

/// A convolution with a stride of 1 that keeps the map as large as it is, and random weights that keep values as large.
pub fn convolution(prg: &mut Prg, channels: usize, out: usize, kernel: usize) -> (Linear, Weights) {
    let terms = channels * kernel * kernel;
    let limit = (4096.0 * 1.5 / (terms as f64).sqrt()).min(2047.0);
    let mut random = |bound: f64| {
        let unit = (prg.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        ((2.0 * unit - 1.0) * bound) as i64
    };
    let exponents: Vec<u8> = (0..out).map(|d| (d % 3) as u8).collect();
    let each = exponents.iter().flat_map(|&e| std::iter::repeat_n(e, terms));
    let weights = each.map(|e| random(limit / f64::from(e).exp2()) as i16).collect();
    let bias = Bias::PerChannel((0..out).map(|_| random(1e6)).collect());
    (Linear { max_exponent: 2, ..Linear::same(out, kernel, 12) }, Weights { weights, exponents, bias })
}

/// Pixels, a first layer that keeps the map's size, with ReLUs, and ten logits.
pub fn first_layer([channels, h, w]: Shape, (spec, weights): (Linear, Weights)) -> Bundle {
    let hidden = [spec.out_channels, h, w];
    let (logits, of_logits) = convolution(&mut Prg::new([43; 32]), hidden.iter().product(), 10, 1);
    let logits = Linear { kernel: [h, w], pads: [0; 4], ..logits };
    let nodes = [
        ("pixels", Op::new(Input), [channels, h, w]),
        ("layer", Op::new(spec), hidden),
        ("hidden", Op::new(Relu { ignored: 0 }), hidden),
        ("logits", Op::new(logits), [10, 1, 1]),
    ];
    let node = |(id, (name, op, shape)): (usize, (&str, Op, Shape))| {
        let inputs = id.checked_sub(1).into_iter().collect();
        Node { name: name.into(), op, inputs, shape }
    };
    let network = Network {
        name: "first layer".into(),
        activation_bits: 16,
        guard_bits: 0,
        noise_bits: 0,
        weight_bits: 12,
        nodes: nodes.into_iter().enumerate().map(node).collect(),
        input: InputSpec::plain(1.0),
        output: OutputSpec::plain(1.0),
    };
    let weights = vec![None, Some(weights), None, Some(of_logits)];
    Bundle::with_hiding(Model { network, weights, scales: vec![1.0; 4], leverage: None }, 0).unwrap()
}

/// Pixels, a layer of hidden units with ReLUs, and ten logits. Weights and biases are as given, by unit.
pub fn hidden_layer(weights: &[[i16; PIXELS]], biases: &[i64]) -> Bundle {
    let spec = Linear { max_exponent: 2, ..Linear::same(weights.len(), 1, 12) };
    let weights = Weights {
        weights: weights.concat(),
        exponents: vec![0; weights.len()],
        bias: Bias::PerChannel(biases.to_vec()),
    };
    first_layer([PIXELS, 1, 1], (spec, weights))
}

/// The node of the hidden units.
pub const HIDDEN: usize = 2;

/// A party's shares of every node's value.
pub type Shares = BTreeMap<usize, Vec<u64>>;

/// What a party that follows the protocol holds of the hidden units, query by query: its own shares, the client's first.
fn views(service: &Service, images: &[Vec<i64>]) -> [Vec<Vec<u64>>; 2] {
    let (client_end, server_end) = memory_pair();
    let of_server = Mutex::new(Vec::new());
    let of_client = thread::scope(|scope| {
        let server = scope.spawn(|| {
            service.serve_observed(server_end, &mut |_| (), &mut |node, share| {
                if node == HIDDEN {
                    of_server.lock().unwrap().push(share.to_vec());
                }
            })
        });
        let mut ready = connected(client_end).prepare_client(HintPlace::Memory).unwrap();
        let mut seen = Vec::new();
        for image in images {
            let mut shares = Shares::new();
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            let observe = &mut |node: usize, share: &[u64]| drop(shares.insert(node, share.to_vec()));
            ready = prepared.run_observed(image, &mut NoProgress, observe).unwrap().2;
            seen.push(shares.remove(&HIDDEN).unwrap());
        }
        ready.leave().unwrap();
        server.join().unwrap().unwrap();
        seen
    });
    [of_client, of_server.into_inner().unwrap()]
}

/// The attack on one query: a unit whose share is zero is not active.
pub fn pattern(share: &[u64]) -> Vec<bool> {
    share.iter().map(|&share| share != 0).collect()
}

fn agreeing(a: &[bool], b: &[bool]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a == b).count()
}

fn random_layer() -> Bundle {
    let mut prg = Prg::new([9; 32]);
    let mut word = |bits: u32| (prg.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1));
    let weights: Vec<[i16; PIXELS]> = (0..UNITS).map(|_| std::array::from_fn(|_| word(11) as i16)).collect();
    let biases: Vec<i64> = (0..UNITS).map(|_| word(20)).collect();
    hidden_layer(&weights, &biases)
}

/// Either party knows after one query which hidden units are active. Of the sealed form they guess.
#[test]
fn one_query_gives_the_active_units_away() {
    let image = vec![1500, -900, 400, 2500];
    let run = reference::run(Cpu::detect(), &random_layer().model, &image).unwrap();
    let active: Vec<bool> = run.values[HIDDEN].iter().map(|&y| y > 0).collect();
    let count = active.iter().filter(|&&a| a).count();
    assert!((UNITS / 4..=3 * UNITS / 4).contains(&count), "{count} active units");

    for view in views(&leaky_service(random_layer(), Reveal::Logits), std::slice::from_ref(&image)) {
        // Rounding may take the smallest values to zero.
        assert!(agreeing(&pattern(&view[0]), &active) >= UNITS - 2);
    }
    for view in views(&sealed_service(random_layer()), &[image]) {
        // Shares of all units are random: all seem active.
        assert!(agreeing(&pattern(&view[0]), &active) <= count + 1);
    }
}

/// Weights up to the scale of each unit, from signs alone: with bias b > 0 and one pixel at −α, a unit ends where w·α = b. Steps of α
/// give w / b for every unit and pixel at once.
fn weights_found(service: &Service, weights: &[[i16; PIXELS]], biases: &[i64]) -> usize {
    const STEPS: i64 = 40;
    let level = |step: i64| -> i64 { (100.0 * 1.1f64.powi(step as i32)) as i64 };
    let image = |pixel: usize, step: i64| {
        let mut image = vec![0; PIXELS];
        image[pixel] = -level(step);
        image
    };
    let images: Vec<Vec<i64>> =
        (0..PIXELS).flat_map(|pixel| (0..STEPS).map(move |step| image(pixel, step))).collect();
    let [seen, _] = views(service, &images);
    let mut found = 0;
    for pixel in 0..PIXELS {
        let of_pixel = &seen[pixel * STEPS as usize..][..STEPS as usize];
        for (unit, weights) in weights.iter().enumerate() {
            // The first step at which the unit is off.
            let Some(off) = of_pixel.iter().position(|share| share[unit] == 0) else { continue };
            if off == 0 {
                continue;
            }
            let ratio = 1.0 / ((level(off as i64) + level(off as i64 - 1)) as f64 / 2.0);
            let truth = f64::from(weights[pixel]) / biases[unit] as f64;
            found += usize::from((ratio / truth - 1.0).abs() < 0.1);
        }
    }
    found
}

#[test]
fn chosen_images_give_the_weights_away_by_signs_alone() {
    let units = 24;
    let mut prg = Prg::new([11; 32]);
    // Positive weights, so that every unit ends somewhere; what their ratio is, is the secret.
    let weights: Vec<[i16; PIXELS]> =
        (0..units).map(|_| std::array::from_fn(|_| 300 + (prg.next_u64() % 1700) as i16)).collect();
    let biases: Vec<i64> = (0..units).map(|_| 400_000 + (prg.next_u64() % 400_000) as i64).collect();
    let bundle = || hidden_layer(&weights, &biases);
    let all = units * PIXELS;
    let found = weights_found(&leaky_service(bundle(), Reveal::Logits), &weights, &biases);
    assert!(found >= all * 9 / 10, "{found} of {all}");
    let found = weights_found(&sealed_service(bundle()), &weights, &biases);
    assert!(found <= 1, "{found} of {all} of the sealed form");
}

/// The server sees the signs of hidden units. Units that look at one pixel each tell it which pixels are bright.
#[test]
fn the_servers_signs_tell_about_the_image() {
    let weights: Vec<[i16; PIXELS]> =
        (0..PIXELS).map(|unit| std::array::from_fn(|pixel| if unit == pixel { 2000 } else { 0 })).collect();
    let images: Vec<Vec<i64>> = (0..16)
        .map(|bits| (0..PIXELS).map(|p| if bits >> p & 1 == 1 { 2000 } else { -2000 }).collect())
        .collect();
    let bundle = || hidden_layer(&weights, &[0; PIXELS]);
    let right = |service: &Service| {
        let [_, seen] = views(service, &images);
        seen.iter()
            .zip(&images)
            .filter(|(share, image)| {
                pattern(share).iter().zip(*image).all(|(&bright, &pixel)| bright == (pixel > 0))
            })
            .count()
    };
    assert_eq!(right(&leaky_service(bundle(), Reveal::Logits)), 16);
    // All pixels seem bright: one of the 16 images is.
    assert!(right(&sealed_service(bundle())) <= 1);
}
