//! Sessions whose comparisons leak: they compute what they should, both sides must accept them, and what each party holds at the end of
//! a layer gives the other's secrets away. The same attacks on sealed sessions find nothing.

mod asked_once;

use std::collections::BTreeMap;
use std::sync::Mutex;

use jaguar_graph::reference;
use jaguar_plan::{Allowed, Comparison};
use jaguar_ring::cpu::Cpu;

use super::*;
use crate::handshake;
use crate::message::{Accept, MAX_MESSAGE, Purpose};

const ALLOWED: Allowed = Allowed { insecure_backends: false, sign_leakage: true };

fn accepting() -> Limits {
    Limits { accept_sign_leakage: true, ..Limits::default() }
}

fn leaky(bundle: &Bundle, backend: BackendId) -> Choices {
    let network = &bundle.model.network;
    Choices::standard(network, backend).leaking_signs(network).unwrap()
}

fn leaky_service(bundle: Bundle, reveal: Reveal) -> Service {
    let choices = leaky(&bundle, Kit::JAGUAR);
    Service::allowing(Cpu::detect(), bundle, choices, reveal, ALLOWED).unwrap()
}

#[test]
fn every_operation_agrees_with_the_reference_layer_by_layer() {
    let guarded = || {
        let Bundle { model, .. } = everything();
        Bundle::with_guard_bits(model, 4).unwrap()
    };
    let reduced = || {
        let mut model = everything().model;
        model.network.nodes.iter_mut().filter_map(|n| n.op.ignored_mut()).for_each(|ignored| *ignored = 10);
        Bundle::with_guard_bits(model, 0).unwrap()
    };
    let inputs: Vec<Vec<i64>> = (0..2).map(|s| input(s, 3 * 17 * 15)).collect();
    for (i, (bundle, backend, reveal)) in [
        (everything(), Kit::JAGUAR, Reveal::Logits),
        (everything(), Kit::JAGUAR, Reveal::Label),
        (everything(), Kit::CHEETAH, Reveal::Logits),
        (guarded(), Kit::JAGUAR, Reveal::Logits),
        // Signs are exact, whatever the network lets them ignore.
        (reduced(), Kit::JAGUAR, Reveal::Logits),
    ]
    .into_iter()
    .enumerate()
    {
        let cache = Scratch::new(&format!("pmax-verify-{i}"));
        let choices = leaky(&bundle, backend);
        assert_ne!(choices.comparison, Comparison::Sealed);
        let inputs: Vec<Vec<i64>> = match bundle.model.network.guard_bits {
            0 => inputs.clone(),
            bits => inputs.iter().map(|x| x.iter().map(|v| v << bits).collect()).collect(),
        };
        let checks = verify(bundle, choices, reveal, &inputs, &cache.0).unwrap();
        for layer in checks.iter().flat_map(|check| &check.layers) {
            assert!(layer.wrong == 0 && layer.reduced == 0, "{layer:?}");
        }
        assert!(checks[0].layers.iter().any(|l| l.max_ulps > 0.5));
    }
}

/// Layers of other backends, and modulo an odd number.
#[test]
fn any_backend_may_stand_before_it() {
    for name in ["plaintext-insecure", "plaintext-prime-insecure"] {
        let backend = backend(name);
        let bundle = everything();
        let choices = leaky(&bundle, backend);
        let inputs = [input(4, 3 * 17 * 15)];
        for check in verify(bundle, choices, Reveal::Logits, &inputs, HintPlace::Memory).unwrap() {
            assert!(check.layers.iter().all(|layer| layer.wrong == 0), "{name}: {check:?}");
        }
    }
}

#[test]
fn bytes_and_rounds_are_those_of_the_plan() {
    let service = leaky_service(everything(), Reveal::Logits);
    let (served, x) = (HintPlace::Memory, input(5, 3 * 17 * 15));
    let (reports, result) = session(&service, |channel| {
        let mut ready = connect(channel, &accepting()).unwrap().prepare_client(served).unwrap();
        let mut reports = Vec::new();
        for _ in 0..2 {
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            let (_, report, next) = prepared.run(&x, &mut NoProgress).unwrap();
            reports.push(report);
            ready = next;
        }
        ready.leave().unwrap();
        reports
    });
    result.unwrap();
    for report in &reports {
        for (row, step) in
            report.rows.iter().zip(&service.plan().steps).filter(|(_, s)| s.nonlinear.is_some())
        {
            let bytes = (row.online.bytes_up, row.online.bytes_down);
            assert_eq!(bytes, (step.cost.up, step.cost.down), "{}", row.name);
            // Layers that do not depend on each other share their rounds.
            assert!(row.online.rounds <= step.cost.client_rounds, "{}", row.name);
        }
        let predicted = crate::report::Predicted::new(service.plan(), report, None);
        for (counted, predicted) in [(&report.offline, predicted.offline), (&report.online, predicted.online)]
        {
            assert_eq!((counted.bytes_up, counted.bytes_down), (predicted.bytes_up, predicted.bytes_down));
        }
        assert!(
            report.leaks.as_ref().is_some_and(|leaks| leaks.contains("weights")),
            "it says what it leaks"
        );
    }
}

/// A client that has not accepted it leaves, whatever the server offers; both are told why.
#[test]
fn a_client_refuses_what_it_has_not_accepted() {
    let service = leaky_service(everything(), Reveal::Logits);
    let (error, served) = session(&service, |channel| connect(channel, &Limits::default()).err().unwrap());
    assert!(matches!(error.root(), EngineError::Plan(jaguar_plan::PlanError::SignLeakage)), "{error}");
    assert!(error.to_string().contains("--accept-sign-leakage"));
    let served = served.unwrap_err().to_string();
    assert!(served.contains("does not accept"), "{served}");
    // Backends that protect nothing are another matter.
    let insecure = Limits { allow_insecure_backends: true, ..Limits::default() };
    let (error, _) = session(&service, |channel| connect(channel, &insecure).err().unwrap());
    assert!(matches!(error.root(), EngineError::Plan(jaguar_plan::PlanError::SignLeakage)), "{error}");
}

/// A server offers it only if it was made so; a client that accepts it, or wants it, gets the sealed form.
#[test]
fn a_server_refuses_what_it_has_not_accepted() {
    let bundle = everything();
    let choices = leaky(&bundle, Kit::JAGUAR);
    for error in [
        Service::new(everything(), choices.clone(), Reveal::Logits).err(),
        Service::allowing_insecure_backends(everything(), choices.clone(), Reveal::Logits).err(),
    ] {
        assert!(matches!(error, Some(EngineError::Plan(jaguar_plan::PlanError::SignLeakage))));
    }

    let service = service(everything());
    let (comparison, served) = session(&service, |channel| {
        let connected = connect(channel, &accepting()).unwrap();
        let comparison = connected.plan().choices.comparison;
        connected.prepare_client(HintPlace::Memory).unwrap().leave().unwrap();
        comparison
    });
    served.unwrap();
    assert_eq!(comparison, Comparison::Sealed);

    // A client that goes on as if it had been offered.
    let leaky_plan = Plan::accepting_sign_leakage(service.network(), choices).unwrap();
    assert_ne!(leaky_plan.digest(), service.plan().digest());
    let (_, served) = session(&service, |mut channel| {
        handshake::client::ask_for_shares(&kit(), &mut channel, None, 1).unwrap();
        let _: Network =
            channel.recv_message_as("network", 16 << 20, |b| kit().operators().decode(b)).unwrap();
        handshake::client::choose_shares(&mut channel).unwrap();
        let purpose = Purpose::Session { nonce: [7; 32], have_blocks: 0 };
        let accept = Accept { plan: leaky_plan.digest(), purpose };
        channel.send_message(&accept).unwrap();
        channel.recv_message::<Request>("nothing", MAX_MESSAGE).err().unwrap()
    });
    assert!(matches!(served, Err(EngineError::PeerMisbehaved(_))), "{served:?}");
}

#[test]
fn impossible_factors_are_refused() {
    let bundle = everything();
    let good = leaky(&bundle, Kit::JAGUAR);
    for factor_bits in [0, 17, 32, u32::MAX] {
        let choices = Choices { comparison: Comparison::PmaxLeaky { factor_bits }, ..good.clone() };
        let error = Plan::allowing(&bundle.model.network, choices, ALLOWED).err().unwrap().to_string();
        assert!(error.contains("factors of"), "{error}");
    }
    // Wider than the ring takes: no wrap, but no plan.
    let choices = Choices { comparison: Comparison::PmaxLeaky { factor_bits: 16 }, ..good };
    assert!(Plan::allowing(&bundle.model.network, choices, ALLOWED).is_err());
}

// ---- Attacks. ----

const UNITS: usize = 96;
const PIXELS: usize = 4;

/// Pixels, a layer of hidden units with ReLUs, and ten logits. Weights and biases are as given, by unit.
fn hidden_layer(weights: &[[i16; PIXELS]], biases: &[i64]) -> Bundle {
    let mut b = Builder::new([PIXELS, 1, 1]);
    let hidden = b.conv(0, weights.len(), 1, 1, 0, 1);
    b.weights[hidden] = Some(Weights {
        weights: weights.concat(),
        exponents: vec![0; weights.len()],
        bias: Bias::PerChannel(biases.to_vec()),
    });
    let relu = b.add(Op::new(Relu { ignored: 0 }), &[hidden], [weights.len(), 1, 1]);
    b.conv(relu, 10, 1, 1, 0, 1);
    b.bundle()
}

/// The node of the hidden units.
const HIDDEN: usize = 2;

/// A party's shares of every node's value.
type Shares = BTreeMap<usize, Vec<u64>>;

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
        let mut ready = connect(client_end, &accepting()).unwrap().prepare_client(HintPlace::Memory).unwrap();
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
fn pattern(share: &[u64]) -> Vec<bool> {
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
    for view in views(&service(random_layer()), &[image]) {
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
    let found = weights_found(&service(bundle()), &weights, &biases);
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
    assert!(right(&service(bundle())) <= 1);
}
