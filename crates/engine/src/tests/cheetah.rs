//! Sessions under Cheetah's protocol: the same operations, its bytes and rounds, what a peer may not do.

use std::thread;

use jaguar_cheetah::{Layer, Windows};
use jaguar_graph::network::{Add, Concat, MaxPool, Op, Relu, Relu6, Window};
use jaguar_mpc::{Cost, Range};
use jaguar_plan::{Choices, Kit, Plan, PlanError};
use jaguar_wire::memory_pair;

use super::{
    Builder, Scratch, connect, everything, greet, input, nothing_repeats, queries, root, session, verify,
};
use crate::client::{Limits, Prediction, Reveal};
use crate::error::EngineError;
use crate::message::Request;
use crate::progress::NoProgress;
use crate::server::Service;
use jaguar_graph::bundle::Bundle;

fn choices(bundle: &Bundle) -> Choices {
    Choices::standard(&bundle.model.network, Kit::CHEETAH)
}

fn service(bundle: Bundle) -> Service {
    let choices = choices(&bundle);
    Service::new(bundle, choices, Reveal::Logits).unwrap()
}

/// A linear layer of each kind of successor: its products are truncated at once where anything needs them so, else after the
/// ReLU behind a max-pool, a sum with what is truncated already, or a concatenation with products of another shift.
pub(super) fn deferred() -> Bundle {
    let mut b = Builder::new([3, 12, 12]);
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    let stem = b.conv(0, 6, 3, 1, 1, 1);
    let pool = b.add(Op::new(MaxPool { window, ignored: 0 }), &[stem], [6, 6, 6]);
    let relu = b.add(Op::new(Relu { ignored: 0 }), &[pool], [6, 6, 6]);
    let branch = b.conv(relu, 6, 3, 1, 1, 1);
    let other = b.conv_shifted(relu, 6, 1, 1, 0, 1, 10);
    let sum = b.add(Op::new(Add), &[branch, relu], [6, 6, 6]);
    let both = b.add(Op::new(Concat), &[sum, other], [12, 6, 6]);
    let relu = b.add(Op::new(Relu6 { log2_six: 11, ignored: 0 }), &[both], [12, 6, 6]);
    // Linear after linear, and a sum that a linear layer takes: at once.
    let narrow = b.conv(relu, 4, 1, 1, 0, 1);
    let wide = b.conv(narrow, 4, 1, 1, 0, 1);
    let sum = b.add(Op::new(Add), &[narrow, wide], [4, 6, 6]);
    let ignoring = b.add(Op::new(Relu { ignored: 4 }), &[sum], [4, 6, 6]);
    b.conv(ignoring, 5, 6, 1, 0, 1);
    b.bundle()
}

#[test]
fn every_operation_agrees_with_the_reference_layer_by_layer() {
    let cache = Scratch::new("cheetah-verify");
    for (bundle, values) in [(everything as fn() -> Bundle, 3 * 17 * 15), (deferred, 3 * 12 * 12)] {
        let inputs: Vec<Vec<i64>> = (0..3).map(|s| input(s, values)).collect();
        let network = bundle().model.network;
        let plan = Plan::new(&network, choices(&bundle())).unwrap();
        let checks = verify(bundle(), choices(&bundle()), Reveal::Logits, &inputs, &cache.0).unwrap();
        assert_eq!(checks.len(), 3);
        for check in &checks {
            for ((layer, step), node) in check.layers.iter().zip(&plan.steps).zip(&network.nodes) {
                if node.op.reduced().is_some() {
                    continue;
                }
                assert_eq!(layer.wrong, 0, "{layer:?}");
                // What is truncated is rounded, and only that.
                assert_eq!(layer.max_ulps > 0.01, step.truncation.is_some(), "{layer:?}");
                assert!(layer.bound_ulps < 1.01);
            }
        }
    }
}

/// Where products are truncated, and what that is known of them.
#[test]
fn truncations_wait_for_the_relu_where_they_can() {
    let bundle = deferred();
    let plan = Plan::new(&bundle.model.network, choices(&bundle)).unwrap();
    let truncations: Vec<_> =
        plan.steps.iter().map(|s| (s.domain.excess, s.truncation.map(|t| (t.shift, t.range)))).collect();
    let (later, early) = (Some((12, Range::NonNegative)), Some((12, Range::Signed)));
    let expected = [
        (0, None), // input
        (12, None),
        (12, None),
        (0, later),
        (12, None),
        (10, None),
        (12, None), // the sum, its other operand scaled up
        (12, None),
        (0, later),
        (0, early),
        (12, None),
        (12, None),
        (0, later),
        (0, early),
    ];
    // `narrow` is truncated for the linear layer behind it; the sum of it and of whole products waits.
    assert_eq!(truncations, expected);
    // n + f everywhere, and no ring changes.
    assert!(
        plan.steps
            .iter()
            .all(|s| [s.computed, s.domain].map(|d| d.modulus.bits()) == [28, 28] && s.extension.is_none())
    );
    assert_eq!(plan.hint_bytes(), 0);
    assert!(plan.layers().all(|layer| layer.hint_parts() == (0, 0)));
}

/// There is no hint to fetch, and asking for it does no harm.
#[test]
fn there_is_no_hint() {
    let cache = Scratch::new("cheetah-hint");
    let service = service(everything());
    let ((), served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        assert_eq!(ready.hint(), (0, 0));
        ready.fetch_hint(&mut NoProgress).unwrap().leave().unwrap();
    });
    served.unwrap();
}

/// Bytes and rounds of every layer are those of Cheetah's formulas, with the sizes of this ring: N = 4096, two primes of 30
/// bits, l = 28. What the plan says is the same.
#[test]
fn bytes_and_rounds_are_the_formulas() {
    let cache = Scratch::new("cheetah-bytes");
    let service = service(everything());
    let (network, plan) = (service.network(), service.plan());
    let reports = queries(&service, &cache, &input(5, 3 * 17 * 15), 2);
    let (ciphertext, l) = (4096 * 60 / 8, 28);
    let packed = |count: usize, bits: usize| (count * bits).div_ceil(8) as u64;
    for report in &reports {
        for ((row, step), node) in report.rows.iter().zip(&plan.steps).zip(&network.nodes) {
            let (mut up, mut down, mut rounds) = (0, 0, 0);
            if let Some(spec) = node.op.linear() {
                let in_shape = network.nodes[node.inputs[0]].shape;
                let [in_channels, ..] = in_shape;
                let bits = network.weight_bits + spec.max_exponent;
                let noise = 2f64.powi(spec.shift as i32 - 10).max(Layer::MAX_NOISE);
                let layer =
                    Layer::with_noise(spec, in_shape, l as u32, bits, Windows::FewestBytes, noise).unwrap();
                let [out_channels, h, w] = node.shape;
                // d windows of H_w x W_w; C_w and M_w channels a polynomial.
                let layout = layer.layout();
                let ((c_w, m_w), [h_w, w_w]) = (layout.blocks(), layout.window());
                assert!(m_w * c_w * h_w * w_w <= 4096);
                assert_eq!((layout.tiles().len(), layer.limbs()), (1, 2), "small maps: one window");
                let (ciphertexts, responses) = (in_channels.div_ceil(c_w), out_channels.div_ceil(m_w));
                assert_eq!((row.ciphertexts, row.responses), (ciphertexts, responses));
                up += 32 + (ciphertexts * ciphertext) as u64;
                down += packed(responses * 4096, l + 10) + packed(out_channels * h * w, l + 5);
                rounds += 1;
            }
            let nonlinear = step.nonlinear.as_ref().map_or_else(Cost::default, |layer| layer.cost());
            up += nonlinear.up;
            down += nonlinear.down;
            rounds += nonlinear.client_rounds;
            if let Some(truncation) = &step.truncation {
                // One bit down (in words of 64), f bits up. The bits down come along with a response, or with the last message of a ReLU where
                // that is the server's: at 28 bits it is (three levels of ANDs, four turns).
                up += packed(step.values, truncation.shift as usize);
                down += 8 * step.values.div_ceil(64) as u64;
            }
            let online = &row.online;
            // The second branch's activation goes alongside the first's; its truncation comes after the first's.
            let waited = if row.name == "node17" { 1 } else { rounds };
            assert_eq!(
                (online.bytes_up, online.bytes_down, online.rounds),
                (up, down, waited),
                "{}",
                row.name
            );
            let traffic = step.layer.as_ref().map_or_else(Default::default, |layer| layer.traffic());
            let planned = (
                traffic.online.0 as u64 + step.cost.up,
                traffic.online.1 as u64 + step.cost.down,
                traffic.rounds + step.cost.client_rounds,
            );
            assert_eq!((up, down, rounds), planned, "{}", row.name);
            // Preparation of a linear layer sends nothing.
            if step.layer.is_some() && step.truncation.is_none() {
                let before = &row.offline;
                assert_eq!((before.bytes_up, before.bytes_down, before.rounds), (0, 0, 0), "{}", row.name);
            }
        }
        // Beside the layers: "query" up; the server's share of the logits down.
        let sum = |f: fn(&crate::report::Row) -> u64| report.rows.iter().map(f).sum::<u64>();
        assert_eq!(report.offline.bytes_up - sum(|r| r.offline.bytes_up), 6);
        assert_eq!(report.online.bytes_up, sum(|r| r.online.bytes_up));
        assert_eq!(report.online.bytes_down - sum(|r| r.online.bytes_down), packed(10, l));
        assert_eq!(report.online.rounds, sum(|r| r.online.rounds) + 1);
    }
    // The key is the session's.
    assert_eq!(reports[1].client.bytes_up + reports[1].client.bytes_down, 0);
    let keys: Vec<usize> = plan.backends.iter().map(|layers| layers.session_bytes().0).collect();
    assert_eq!(keys, [32 + ciphertext]);
    let jaguars = super::service(everything());
    let (without, served) = session(&jaguars, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (_, report, ready) = prepared.run(&input(5, 3 * 17 * 15), &mut NoProgress).unwrap();
        ready.leave().unwrap();
        report.client.bytes_up
    });
    served.unwrap();
    assert_eq!(reports[0].client.bytes_up, without + 32 + ciphertext as u64);
}

#[test]
fn the_label_alone_is_revealed_on_request() {
    let cache = Scratch::new("cheetah-label");
    let inputs = vec![input(1, 3 * 12 * 12)];
    let run = |reveal| verify(deferred(), choices(&deferred()), reveal, &inputs, &cache.0).unwrap();
    let (Prediction::Logits(logits), Prediction::Label(label)) =
        (run(Reveal::Logits)[0].prediction.clone(), run(Reveal::Label)[0].prediction.clone())
    else {
        panic!("each as asked");
    };
    // Two runs round differently: the label is one of those within a few ulps of the top.
    assert!(logits[label] >= logits.iter().max().unwrap() - 8, "{label} of {logits:?}");
}

#[test]
fn no_message_repeats() {
    nothing_repeats(&service(everything()), &Scratch::new("cheetah-repeat"));
}

/// Networks that are sound but would cost a client hours or gigabytes, and choices that a plan cannot follow.
#[test]
fn endless_work_is_refused_at_once() {
    // Small windows of a huge map: tens of gigabytes of ciphertexts.
    let mut windows = Builder::new([1, 1024, 1024]);
    windows.conv(0, 1, 61, 1, 0, 1);
    let error = greet(windows, Kit::CHEETAH).unwrap_err();
    assert!(error.to_string().contains("bytes of ciphertexts"), "{error}");
    let mut kernel = Builder::new([1, 200, 200]);
    kernel.conv(0, 1, 65, 1, 0, 1);
    let error = greet(kernel, Kit::CHEETAH).unwrap_err();
    assert!(matches!(error.root(), EngineError::Plan(PlanError::Layer { .. })), "{error}");
    // Products of more bits than are compared.
    let mut wide = Builder::new([1, 4, 4]);
    wide.conv_shifted(0, 1, 1, 1, 0, 1, 33);
    let error = greet(wide, Kit::CHEETAH).unwrap_err();
    assert!(matches!(error.root(), EngineError::Plan(PlanError::Products { bits: 49, .. })), "{error}");
    // A limit of the caller's.
    let server = service(everything());
    let limits = Limits { ciphertext_bytes: 100, ..Limits::default() };
    let (result, _) = session(&server, |channel| connect(channel, &limits).map(|_| ()));
    assert!(result.unwrap_err().to_string().contains("ciphertexts"));
}

/// A client that asks for a hint that there is none of, or sends garbage for keys and ciphertexts, gets an error or a useless
/// answer, never a panic.
#[test]
fn a_client_that_breaks_the_protocol_is_told() {
    let server = service(deferred());
    let (_, served) = session(&server, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap();
        let mut ready = ready.prepare_client(&Scratch::new("cheetah-hint").0).unwrap();
        let channel = ready.channel();
        channel.send_message(&Request::Hint).and_then(|()| channel.flush()).unwrap();
        // Its answer is the reason.
        assert!(channel.recv(1).unwrap_err().to_string().contains("no hint"));
    });
    assert!(matches!(root(&served.unwrap_err()), EngineError::PeerMisbehaved(_)));
    // What a client sends of its key and its ciphertexts, all bits set.
    let (client_end, server_end) = memory_pair();
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(server_end, &mut |_| ()));
        let mut ready = connect(client_end, &Limits::default())
            .unwrap()
            .prepare_client(&Scratch::new("cheetah-garbage").0)
            .unwrap();
        let channel = ready.channel();
        channel.send_message(&Request::Query { timeline: false }).unwrap();
        channel.send(&vec![0xff; 1 << 20]).and_then(|()| channel.flush()).unwrap();
        drop(ready);
        assert!(serving.join().expect("no panic").is_err());
    });
}
