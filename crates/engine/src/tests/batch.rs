//! Queries of several images: what each image gives is what it gives by itself, in the rounds of one.

use std::collections::BTreeSet;

use jaguar_plan::{MOST_IMAGES, Plan};

use super::*;
use crate::client::together;
use crate::message::{Accept, MAX_MESSAGE, Purpose};

const VALUES: usize = 3 * 17 * 15;

fn inputs(count: u8) -> Vec<Vec<i64>> {
    (0..count).map(|seed| input(seed, VALUES)).collect()
}

/// A service that takes batches of up to 8 images.
fn batches(reveal: Reveal) -> Service {
    let bundle = everything();
    let choices = standard(&bundle);
    Service::new(bundle, choices, reveal).unwrap().with_batches(8).unwrap()
}

/// The plan for queries of so many images.
fn plan_for(service: &Service, images: usize) -> &Plan {
    service.plans().find(|plan| plan.images() == images).unwrap()
}

#[test]
fn a_batch_is_filled_up_with_zeros() {
    let inputs: [&[i64]; 3] = [&[1, 2], &[3, 4], &[5, 6]];
    assert_eq!(together(inputs.into_iter(), 4), [1, 2, 3, 4, 5, 6, 0, 0]);
    assert_eq!(together(inputs.into_iter().take(1), 1), [1, 2]);
}

/// Every node's value of every image, against the plaintext reference on the same inputs of the layer. Five images in batches of four: the
/// last one is filled up.
#[test]
fn every_operation_agrees_with_the_reference_in_batches() {
    let cache = Scratch::new("verify-batch");
    for images in [2, 4, 16] {
        let choices = standard(&everything()).of_images(images);
        let checks = verify(everything(), choices, Reveal::Logits, &inputs(5), &cache.0).unwrap();
        assert_eq!(checks.len(), 5);
        for layer in checks.iter().flat_map(|check| &check.layers) {
            assert_eq!(layer.wrong, 0, "{layer:?} of {images}");
        }
        assert!(checks[0].layers.iter().any(|l| l.max_ulps > 0.5));
        // Each image has its own answer.
        let answers: BTreeSet<_> = checks.iter().map(|check| format!("{:?}", check.prediction)).collect();
        assert_eq!(answers.len(), 5);
    }
}

/// With guard bits, and signs of reduced precision.
#[test]
fn guard_bits_and_reduced_signs_in_batches() {
    let cache = Scratch::new("verify-batch-guard");
    let guarded = || {
        let mut model = everything().model;
        model.network.nodes.iter_mut().filter_map(|n| n.op.ignored_mut()).for_each(|ignored| *ignored = 6);
        Bundle::with_hiding(model, 4).unwrap()
    };
    let choices = standard(&guarded()).of_images(4);
    let checks = verify(guarded(), choices, Reveal::Logits, &inputs(4), &cache.0).unwrap();
    assert!(checks.iter().flat_map(|check| &check.layers).all(|layer| layer.wrong == 0), "{checks:?}");
}

/// Labels of all images come in the rounds of one image's, and are those of the logits.
#[test]
fn labels_of_a_batch() {
    let cache = Scratch::new("label-batch");
    let choices = || standard(&everything()).of_images(8);
    let of = |reveal| verify(everything(), choices(), reveal, &inputs(8), &cache.0).unwrap();
    for (logits, label) in of(Reveal::Logits).iter().zip(of(Reveal::Label)) {
        let (Prediction::Logits(logits), Prediction::Label(label)) = (&logits.prediction, label.prediction)
        else {
            panic!("other things are revealed");
        };
        // Two runs round differently.
        assert!(logits[label] >= logits.iter().max().unwrap() - 8, "{label} of {logits:?}");
    }
}

/// Bytes and rounds are what the plan says; the rounds are those of a query of one image.
#[test]
fn bytes_and_rounds_of_a_batch() {
    let cache = Scratch::new("batch-bytes");
    for reveal in [Reveal::Logits, Reveal::Label] {
        let service = batches(reveal);
        let single = &queries(&service, &cache, &input(5, VALUES), 1)[0];
        for images in [2, 8] {
            let plan = plan_for(&service, images);
            let (reports, served) = session(&service, |channel| {
                let connected = connect_for(channel, None, &Limits::default(), images as u32).unwrap();
                assert_eq!(connected.plan().digest(), plan.digest());
                let mut ready = connected.prepare_client(&cache.0).unwrap();
                let mut reports = Vec::new();
                for _ in 0..2 {
                    let prepared = ready.prepare_query(&mut NoProgress).unwrap();
                    let x = inputs(images as u8).concat();
                    let (predictions, report, next) = prepared.run_batch(&x, &mut NoProgress).unwrap();
                    assert_eq!(predictions.len(), images);
                    reports.push(report);
                    ready = next;
                }
                ready.leave().unwrap();
                reports
            });
            served.unwrap();
            for report in &reports {
                passed_as_predicted(plan, report);
                assert_eq!(report.online.rounds, single.online.rounds, "{images} images");
                assert_eq!(report.offline.rounds, single.offline.rounds, "{images} images");
            }
            // The hint is fetched once, and single images keep their own.
            assert_eq!(reports[1].client.bytes_down, 0);
            let again = &queries(&service, &cache, &input(5, VALUES), 1)[0];
            let hint: u64 = crate::hint::blocks(plan).iter().map(|b| b.bytes as u64 + 32).sum();
            assert_eq!(reports[0].client.bytes_down - again.client.bytes_down, hint);
        }
    }
}

/// A batch's hint does not take another place than that of its plan, and no larger one than the plan says.
#[test]
fn responses_and_hints_of_a_batch() {
    let service = batches(Reveal::Logits);
    let single = service.plan();
    for images in [2, 4, 8] {
        let plan = plan_for(&service, images);
        assert_ne!(plan.hint_digest(), single.hint_digest());
        // Small maps: all of a batch's images share every response.
        assert_eq!(plan.responses(), single.responses());
        assert_eq!(plan.hint_bytes(), single.hint_bytes());
        for (step, one) in plan.steps.iter().zip(&single.steps) {
            assert_eq!(step.values, images * one.values);
            assert_eq!(step.cost.client_rounds, one.cost.client_rounds);
            assert_eq!((step.computed, step.domain, step.early), (one.computed, one.domain, one.early));
        }
    }
}

/// Kept batches run on the session that prepared them and on one that joined it; one that asks for another size cannot join.
#[test]
fn batches_are_kept() {
    let cache = Scratch::new("batch-kept");
    let service = batches(Reveal::Logits);
    let x = inputs(4).concat();
    let limits = Limits::default();
    thread::scope(|scope| {
        let dial = |images| {
            let (client_end, server_end) = memory_pair();
            scope.spawn(|| service.serve(server_end, &mut |_| ()));
            connect_for(client_end, None, &limits, images).unwrap()
        };
        let ready = dial(4).prepare_client(&cache.0).unwrap();
        let (ready, first) = ready.keep_query(&mut NoProgress).unwrap();
        let (ready, second) = ready.keep_query(&mut NoProgress).unwrap();
        let [_, each] = crate::prepared_bytes(plan_for(&service, 4));
        assert_eq!(ready.server_keeps().bytes, 2 * each);
        let (ticket, ready) = ready.ticket().unwrap();
        let refused = dial(2).join(&ticket).err().expect("another plan");
        assert!(matches!(refused.root(), EngineError::Input(_)), "{refused}");
        let runner = dial(4).join(&ticket).unwrap();
        let (on_runner, _, runner) = runner.run_batch(second.unwrap(), &x, &mut NoProgress).unwrap();
        let (on_first, _, ready) = ready.run_kept_batch(first.unwrap(), &x, &mut NoProgress).unwrap();
        for (a, b) in on_runner.iter().zip(&on_first) {
            let (Prediction::Logits(a), Prediction::Logits(b)) = (a, b) else { panic!("logits") };
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 8), "{a:?} {b:?}");
        }
        runner.leave().unwrap();
        ready.leave().unwrap();
    });
}

/// Whoever joins under a wrong plan by its own hand is refused by the server.
#[test]
fn a_kept_query_of_another_size_is_refused() {
    let cache = Scratch::new("batch-wrong");
    let service = batches(Reveal::Logits);
    let other = plan_for(&service, 2).digest();
    thread::scope(|scope| {
        let serve = || {
            let (client_end, server_end) = memory_pair();
            (client_end, scope.spawn(|| service.serve(server_end, &mut |_| ())))
        };
        let (channel, _first) = serve();
        let ready =
            connect_for(channel, None, &Limits::default(), 4).unwrap().prepare_client(&cache.0).unwrap();
        let (mut ready, kept) = ready.keep_query(&mut NoProgress).unwrap();
        assert!(kept.is_ok());
        ready.channel().send_message(&Request::Ticket).unwrap();
        let secret: crate::message::Secret = ready.channel().recv_message("ticket", MAX_MESSAGE).unwrap();
        let (mut channel, second) = serve();
        crate::handshake::client::ask_for_shares(&kit(), &mut channel, None, 2).unwrap();
        let _: Network =
            channel.recv_message_as("network", 16 << 20, |b| kit().operators().decode(b)).unwrap();
        crate::handshake::client::choose_shares(&mut channel).unwrap();
        channel.send_message(&Accept { plan: other, purpose: Purpose::Join(secret) }).unwrap();
        channel.send_message(&Request::Run { id: 0 }).unwrap();
        channel.flush().unwrap();
        let error = second.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("another plan"), "{error}");
        ready.leave().unwrap();
    });
}

#[test]
fn hostile_batch_sizes_are_refused() {
    // A server that was not told to take batches takes none.
    for (service, most) in [(service(everything()), 1), (batches(Reveal::Logits), 8)] {
        assert_eq!(service.most_images(), most);
        for images in [0, 3, 5, 16, 128, 1 << 31, u32::MAX] {
            let (found, served) = session(&service, |channel| {
                connect_for(channel, None, &Limits::default(), images).map(|_| ())
            });
            let (found, served) = (found.unwrap_err().to_string(), served.unwrap_err().to_string());
            let what = if most == 1 { "one image a query" } else { "powers of two up to 8" };
            assert!(found.contains(what) && served.contains(what), "{images}: {found}; {served}");
        }
    }
    // Plans beyond what is possible, at either party.
    for images in [0, 3, 2 * MOST_IMAGES, u32::MAX] {
        let error = Plan::new(&everything().model.network, standard(&everything()).of_images(images));
        assert!(error.unwrap_err().to_string().contains("power of two"), "{images}");
    }
    // A backend that takes no batches.
    let choices = Choices::standard(&everything().model.network, Kit::CHEETAH);
    let error = Service::new(everything(), choices, Reveal::Logits).unwrap().with_batches(2).err().unwrap();
    assert!(error.to_string().contains("takes no batches"), "{error}");
    // Indices have 32 bits.
    let mut wide = Builder::new([64, 1024, 1024]);
    wide.conv(0, 1, 1, 1, 0, 1);
    let choices = Choices::standard(&wide.network, Kit::JAGUAR).of_images(64);
    let error = Plan::new(&wide.network, choices).unwrap_err();
    assert!(error.to_string().contains("has 4294967296 values"), "{error}");
}

/// A server that offers another size than was asked for.
#[test]
fn another_size_than_asked_for_is_refused() {
    let bundle = everything();
    let (client_end, mut server_end) = memory_pair();
    server_end.send_message(&crate::handshake::Hello { version: PROTOCOL_VERSION }).unwrap();
    let choices = standard(&bundle).of_images(8);
    let offer = crate::handshake::Offer {
        model: jaguar_graph::bundle::ModelId([1; 32]),
        protocols: vec![SharesParameters { choices, reveal: Reveal::Logits }.protocol()],
    };
    server_end.send_message(&offer).unwrap();
    server_end.flush().unwrap();
    let error = connect_for(client_end, None, &Limits::default(), 4).err().unwrap();
    assert!(error.to_string().contains("queries of 8 images, where 4 were asked for"), "{error}");
}

/// A batch that holds more than the client's limit is refused with the largest that does not.
#[test]
fn a_batch_that_does_not_fit_says_what_would() {
    let service = batches(Reveal::Logits);
    let prepared = |images| crate::prepared_bytes(plan_for(&service, images))[0];
    for (limit, what) in [(prepared(4), "the largest batch that fits has 4"), (10, "not even one image fits")]
    {
        let limits = Limits { prepared_bytes: limit, ..Limits::default() };
        let (error, _) = session(&service, |channel| connect_for(channel, None, &limits, 8).err().unwrap());
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// What is not as many images as a query has is named before anything is sent.
#[test]
fn inputs_of_another_number_are_refused() {
    let cache = Scratch::new("batch-number");
    let service = batches(Reveal::Logits);
    for count in [1, 3, 5] {
        let (error, _) = session(&service, |channel| {
            let ready =
                connect_for(channel, None, &Limits::default(), 4).unwrap().prepare_client(&cache.0).unwrap();
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            prepared.run_batch(&inputs(count).concat(), &mut NoProgress).err().unwrap()
        });
        assert!(error.to_string().contains("a query has 4 images"), "{error}");
    }
}
