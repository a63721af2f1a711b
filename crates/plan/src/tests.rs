//! Predictions and choices under constants that are made up, so that what must come out is known.

use jaguar_cheetah::RnsRings;
use jaguar_graph::float::{self, Function, Known, Primitive};
use jaguar_graph::network::{
    Add, Concat, Hiding, Input, InputSpec, Linear, MaxPool, Narrow, Network, Node, Op, OutputSpec, Place,
    Product, Rearrange, Relu, Relu6, Shape, Straight, SumPool, Window, Work,
};
use jaguar_linear::jaguar::{RINGS, Rings};
use jaguar_linear::layout::{Layout, Packing};
use jaguar_linear::plaintext_insecure;
use jaguar_mpc::Range;
use jaguar_mpc::cost::{Bin, Drawn, Instances, Noise};
use jaguar_ring::he::params::Parameters;

use crate::double::SAID_TO_LEAK;
use crate::machine::tests::{change, round_figures};
use crate::machine::{DIGITS, Link, Machine, NonlinearKind, PerByte, PerCot, Placement, Speedups};
use crate::planner::{MARGIN, choose, choose_within, explain};
use crate::predict::{Aim, Prediction, Session, Site, Total, predict};
use crate::{
    BackendId, Choices, Comparison, ComparisonsId, Exchange, Kit, NamedChoices, Plan, PlanError, Schedule,
};

/// A convolution, a max-pool, a ReLU, a layer that packs, a ReLU6, a fully connected layer.
pub(crate) fn network() -> Network {
    let conv = |out_channels, kernel| Op::new(Linear::same(out_channels, kernel, 12));
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    let pool = Op::new(MaxPool { window, ignored: 0 });
    let fully = Op::new(Linear { pads: [0; 4], ..Linear::same(10, 14, 12) });
    let nodes = [
        ("input", Op::new(Input), [3, 28, 28]),
        ("first", conv(16, 3), [16, 28, 28]),
        ("pool", pool, [16, 14, 14]),
        ("relu", Op::new(Relu { ignored: 0 }), [16, 14, 14]),
        ("second", conv(8, 1), [8, 14, 14]),
        ("six", Op::new(Relu6 { log2_six: 12, ignored: 0 }), [8, 14, 14]),
        ("last", fully, [10, 1, 1]),
    ];
    Network {
        name: "made up".into(),
        activation_bits: 16,
        guard_bits: 0,
        noise_bits: 0,
        weight_bits: 12,
        nodes: nodes
            .into_iter()
            .enumerate()
            .map(|(i, (name, op, shape))| Node {
                name: name.into(),
                op,
                inputs: if i == 0 { vec![] } else { vec![i - 1] },
                shape,
            })
            .collect(),
        input: InputSpec::plain(1.0),
        output: OutputSpec::plain(1.0),
    }
}

/// Every backend that there is, those that protect nothing among them.
pub(crate) fn kit() -> Kit {
    Kit::standard().with(jaguar_fregata::ALL).with(jaguar_hyena::ALL).with(plaintext_insecure::ALL)
}

/// The backend of a name.
pub(crate) fn backend(name: &str) -> BackendId {
    kit().backend(name).unwrap()
}

const FREE: Link = Link { bytes_per_second: 1e18, round_trip: 0.0 };

fn site(machine: &Machine, link: Link, placement: Placement) -> Site<'_> {
    Site { machine, link, placement, aim: Aim::Query }
}

fn standard(network: &Network) -> Plan {
    Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} is not {b}");
}

#[test]
fn a_linear_layer_by_hand() {
    let (network, machine) = (network(), round_figures());
    let plan = standard(&network);
    let p = predict(&plan, &Session::default(), Some(&site(&machine, FREE, Placement::Apart)));
    // 28 rows, 29 apart: 811 coefficients from the first to the last. Three maps, two to a ciphertext.
    let Some(spec) = network.nodes[1].op.linear() else { panic!("a linear layer") };
    let layout = Layout::new(plan.choices.ring_dim as usize, spec, network.nodes[0].shape).unwrap();
    let bits = network.weight_bits + spec.max_exponent;
    let n = network.activation_bits;
    let layer = jaguar_linear::jaguar::Layer::new(Parameters::DEFAULT, layout, 1, n, bits, false).unwrap();
    let layout = layer.layout();
    assert_eq!(
        (layout.responses(), layout.ciphertexts(), layout.export_len(&layout.tiles()[0])),
        (16, 2, 811)
    );
    let before = p.nodes[1].offline.seconds.unwrap();
    close(before.client, (2.0 * 1e-5 + 16.0 * (1e-5 + 1e-5 * 810.0 / 1000.0)) / 2.0);
    close(before.server, 16.0 * 1e-5 / 2.0);
    let (words, outputs) = (layer.upload().0 as f64, 16.0 * 784.0);
    let products = 16.0 * 27.0 * 816.0;
    let online = p.nodes[1].online.seconds.unwrap();
    close(online.client, words * 1e-9);
    close(online.server, words * 2e-9 + outputs * 3e-9 + products * 1e-11 / 2.0);
    close(p.nodes[1].a_half_seconds.unwrap(), 16.0 * 27.0 * 2048.0 * 1e-11 / 2.0);
    close(p.nodes[1].hint_seconds.unwrap(), 16.0 * 1e-5 / 2.0);
}

#[test]
fn a_nonlinear_layer_by_hand() {
    let (network, machine) = (network(), round_figures());
    let plan = standard(&network);
    let p = predict(&plan, &Session::default(), Some(&site(&machine, FREE, Placement::Apart)));
    let cost = plan.steps[3].cost;
    let (a, b) = (cost.from_server().total() as f64, cost.from_client().total() as f64);
    let before = p.nodes[3].offline.seconds.unwrap();
    close(before.client, a * 1e-8 + b * 2e-8);
    close(before.server, a * 2e-8 + b * 1e-8);
    let bytes = (cost.prepare_up + cost.up + cost.down) as f64;
    let online = p.nodes[3].online.seconds.unwrap();
    close(online.client, bytes * 1e-9);
    close(online.server, bytes * 2e-9);
}

/// Threads take their part of a nonlinear layer's time: of a party alone, of both together, and of a party online.
#[test]
fn nonlinear_layers_gain_by_threads() {
    let (network, slow) = (network(), round_figures());
    let mut machine = slow.clone();
    machine.threads = 8;
    machine.speedups = Speedups { linear: 2.0, preparing: 4.0, preparing_both: 5.0, running: 3.0 };
    let plan = standard(&network);
    let at =
        |machine: &Machine, place| predict(&plan, &Session::default(), Some(&site(machine, FREE, place)));
    let (one, all) = (at(&slow, Placement::Apart), at(&machine, Placement::Apart));
    let stage = |p: &Prediction| (p.nodes[3].offline.seconds.unwrap(), p.nodes[3].online.seconds.unwrap());
    let ((before, online), (sooner, answered)) = (stage(&one), stage(&all));
    close(sooner.client, before.client / 4.0);
    close(sooner.server, before.server / 4.0);
    close(answered.client, online.client / 3.0);
    // Where both share the machine, their linear work is on eight threads, the rest gains five times.
    let nonlinear = |p: &Prediction| {
        let of = |n: &crate::predict::NodeCost| n.offline.seconds.unwrap();
        p.nodes.iter().filter(|n| n.hint_bytes == 0).map(|n| of(n).client + of(n).server).sum::<f64>()
    };
    let linear = |p: &Prediction| {
        let of = |n: &crate::predict::NodeCost| n.offline.seconds.unwrap();
        p.nodes.iter().filter(|n| n.hint_bytes > 0).map(|n| of(n).client + of(n).server).sum::<f64>()
    };
    let shared = at(&machine, Placement::Shared).offline.seconds.unwrap();
    let work = all.offline.work.unwrap();
    close(shared, work.client.max(work.server).max(2.0 * linear(&one) / 8.0 + nonlinear(&one) / 5.0));
}

/// A correlation has the price of its layer's digit.
#[test]
fn correlations_are_priced_by_digit() {
    let (network, mut machine) = (network(), round_figures());
    let price = |digit: u32| 1e-8 * f64::from(digit);
    machine.cots[NonlinearKind::Relu as usize] =
        DIGITS.map(|digit| PerCot { sent: price(digit), received: 3.0 * price(digit) });
    for digit in DIGITS {
        let digits = vec![digit as u8; network.nodes.len()];
        let plan =
            Plan::new(&network, Choices { digits, ..Choices::standard(&network, Kit::JAGUAR) }).unwrap();
        let p = predict(&plan, &Session::default(), Some(&site(&machine, FREE, Placement::Apart)));
        let cost = plan.steps[3].cost;
        let (a, b) = (cost.from_server().total() as f64, cost.from_client().total() as f64);
        let before = p.nodes[3].offline.seconds.unwrap();
        close(before.client, (3.0 * a + b) * price(digit));
        close(before.server, (a + 3.0 * b) * price(digit));
    }
}

#[test]
fn phases_by_hand() {
    let (network, machine) = (network(), round_figures());
    let plan = standard(&network);
    let at = |link, placement| predict(&plan, &Session::default(), Some(&site(&machine, link, placement)));
    let p = at(FREE, Placement::Apart);
    let sum = |f: &dyn Fn(&crate::predict::NodeCost) -> f64| p.nodes.iter().map(f).sum::<f64>();
    let work = p.offline.work.unwrap();
    close(work.client, sum(&|n| n.offline.seconds.unwrap().client));
    close(work.server, sum(&|n| n.offline.seconds.unwrap().server));
    // Side by side: the slower one. On one machine: at least all work over all threads.
    close(p.offline.seconds.unwrap(), work.client.max(work.server));
    let linear = |n: &crate::predict::NodeCost| {
        if n.hint_bytes > 0 { n.offline.seconds.map(|s| 2.0 * (s.client + s.server)).unwrap() } else { 0.0 }
    };
    let other = |n: &crate::predict::NodeCost| {
        if n.hint_bytes > 0 { 0.0 } else { n.offline.seconds.map(|s| s.client + s.server).unwrap() }
    };
    let cores = sum(&linear) + sum(&other);
    let shared = at(FREE, Placement::Shared).offline.seconds.unwrap();
    close(shared, work.client.max(work.server).max(cores / 2.0));
    // Rounds come on top, transfers partly.
    let slow = Link { bytes_per_second: 1e6, round_trip: 0.5 };
    let far = at(slow, Placement::Apart);
    let bytes = p.online.bytes_up.max(p.online.bytes_down) as f64;
    let without = p.online.seconds.unwrap();
    close(far.online.seconds.unwrap(), without.hypot(bytes / 1e6) + 0.5 * p.online.rounds as f64);
    // Bytes do not depend on the place.
    assert_eq!(far.online.bytes_up, predict(&plan, &Session::default(), None).online.bytes_up);
}

#[test]
fn without_constants_there_are_bytes_and_no_seconds() {
    let (network, mut machine) = (network(), round_figures());
    change(&mut machine, |rings: &mut Rings| rings.0.retain(|r| r.ring_dim == 4096));
    let p = predict(&standard(&network), &Session::default(), Some(&site(&machine, FREE, Placement::Apart)));
    assert_eq!((p.offline.seconds, p.online.seconds, p.hint_seconds), (None, None, None));
    assert!(p.online.bytes_up > 0 && p.hint_bytes > 0);
}

/// Bytes decide where few pass, the cache where many do; and a few correlations do not pay for a long secret.
#[test]
fn instances_follow_the_link() {
    let machine = round_figures();
    let chosen_on = |machine: &Machine, bytes_per_second, count: u64| {
        let link = Link { bytes_per_second, round_trip: 1e-3 };
        let drawn = Drawn { bits: count, vectors: count };
        let site = site(machine, link, Placement::Apart);
        crate::planner::instances((drawn, Drawn { vectors: 0, ..drawn }), &site, Noise::Fresh)
    };
    let fresh = |bits, vectors| Instances { bits, vectors, noise: Noise::Fresh };
    let chosen = |bytes_per_second, count| chosen_on(&machine, bytes_per_second, count);
    let (least, small, most) = (Bin::B512, Bin::B1024, Bin::B4096);
    assert_eq!(chosen(1e12, 1 << 28), fresh(least, least));
    // Where bytes take no time they have a price: 4 ns are worth 0.1 bytes, but 8 are not.
    let mut close = machine.clone();
    close.making = [[1e-8, 1.4e-8, 2.2e-8, 3.4e-8]; 2];
    assert_eq!(chosen_on(&close, 1e12, 1 << 28), fresh(small, small));
    assert_eq!(chosen(1e5, 1 << 28), fresh(most, most));
    assert_eq!(chosen(1e5, 1000), fresh(least, least));
    // Where nothing is drawn, what takes the least to set up.
    assert_eq!(chosen(1e12, 0), fresh(least, least));
}

/// Rounds decide where they are long, bytes where few pass: the digits of every layer.
#[test]
fn digits_follow_the_link() {
    let network = network();
    // Working costs nothing here.
    let mut machine = round_figures();
    machine.cots = Default::default();
    machine.nonlinear = [[PerByte::default(); 3]; NonlinearKind::ALL.len()];
    let far = Link { bytes_per_second: 1e15, round_trip: 0.1 };
    let narrow = Link { bytes_per_second: 1e4, round_trip: 1e-9 };
    let digits = |link, node: usize| {
        let site = site(&machine, link, Placement::Apart);
        u32::from(choose(&network, &[Kit::JAGUAR], &site, None).unwrap().digits[node])
    };
    let fewest = |node: usize, of: &dyn Fn(&Plan) -> u64| {
        let plan = |digit: u32| {
            let digits = vec![digit as u8; network.nodes.len()];
            Plan::new(&network, Choices { digits, ..Choices::standard(&network, Kit::JAGUAR) }).unwrap()
        };
        let figures = DIGITS.map(|d| (of(&plan(d)), d));
        let least = figures.iter().map(|f| f.0).min().unwrap();
        // Of equals, the largest digit.
        (node, figures.iter().rev().find(|f| f.0 == least).unwrap().1)
    };
    for node in [2, 3, 5] {
        let (_, rounds) = fewest(node, &|p| p.steps[node].cost.client_rounds);
        assert_eq!(digits(far, node), rounds, "node {node}, far");
        let bytes = |p: &Plan| p.steps[node].cost.up.max(p.steps[node].cost.down);
        let (_, bytes) = fewest(node, &bytes);
        assert_eq!(digits(narrow, node), bytes, "node {node}, narrow");
        assert!(bytes < rounds, "the two links ask for different digits");
    }
}

#[test]
fn a_packing_wins_by_a_margin_or_not_at_all() {
    let network = network();
    let packing = |ciphertext: f64, a_half: f64| {
        let mut machine = round_figures();
        change(&mut machine, |rings: &mut Rings| {
            rings.0.iter_mut().for_each(|r| (r.ciphertext, r.a_half.wide) = (ciphertext, a_half));
        });
        let site = site(&machine, FREE, Placement::Apart);
        choose(&network, &[Kit::JAGUAR], &site, None).unwrap().packings[4]
    };
    // 16 maps of 196: eight to a ciphertext at the distance of a power of two, ten side by side; two ciphertexts either way.
    assert_eq!(packing(1.0, 1e-11), Packing::PowerOfTwo);
    let mut wider = network.clone();
    wider.nodes[1].shape[0] = 40;
    wider.nodes[2].shape[0] = 40;
    wider.nodes[3].shape[0] = 40;
    let Some(first) = wider.nodes[1].op.linear_mut() else { panic!("a convolution") };
    first.out_channels = 40;
    let of = |ciphertext: f64, a_half: f64| {
        let mut machine = round_figures();
        change(&mut machine, |rings: &mut Rings| {
            rings.0.iter_mut().for_each(|r| (r.ciphertext, r.a_half.wide) = (ciphertext, a_half));
        });
        let site = site(&machine, FREE, Placement::Apart);
        choose(&wider, &[Kit::JAGUAR], &site, None).unwrap().packings[4]
    };
    // Five and four: it pays where ciphertexts are dear, not where they are cheap, nor where the a half is much dearer.
    assert_eq!(of(1.0, 1e-11), Packing::Tight);
    assert_eq!(of(1e-9, 1e-11), Packing::PowerOfTwo);
    assert_eq!(of(1.0, 1e3), Packing::PowerOfTwo);
}

#[test]
fn what_hints_are_bound_to_stays() {
    let (network, machine) = (network(), round_figures());
    let here = site(&machine, FREE, Placement::Apart);
    let first = choose(&network, &[Kit::JAGUAR], &here, None).unwrap();
    let digest = |choices: &Choices| Plan::new(&network, choices.clone()).unwrap().hint_digest();
    // The next measurement differs by a few per cent, up and down.
    for factor in [0.97, 1.03] {
        let mut other = machine.clone();
        change(&mut other, |rings: &mut Rings| {
            for ring in rings.0.iter_mut().filter(|r| r.ring_dim == 4096 || r.modulus_bits == 53) {
                ring.client_response.iter_mut().for_each(|p| p.1 *= factor);
                ring.ciphertext *= factor;
            }
        });
        let again = choose(&network, &[Kit::JAGUAR], &site(&other, FREE, Placement::Apart), None).unwrap();
        assert_eq!(digest(&again), digest(&first));
    }
    // What was chosen before is kept even where it is not the best any more; digits follow the link all the same.
    let packings = vec![Packing::Tight; network.nodes.len()];
    let kept = Choices { ring_dim: 4096, packings, ..first.clone() };
    let narrow = Link { bytes_per_second: 1e4, round_trip: 1e-9 };
    let again =
        choose(&network, &[Kit::JAGUAR], &site(&machine, narrow, Placement::Apart), Some(&kept)).unwrap();
    assert_eq!(digest(&again), digest(&kept));
    assert_ne!(again.digits, first.digits);
    // Unless they make no plan any more, or are another protocol's.
    for broken in [
        Choices { modulus_bits: 60, ..kept.clone() },
        Choices { packings: vec![], ..kept.clone() },
        Choices { backends: vec![Kit::CHEETAH; network.nodes.len()], ..kept },
    ] {
        let again = choose(&network, &[Kit::JAGUAR], &here, Some(&broken)).unwrap();
        assert_eq!(again, first);
    }
}

#[test]
fn choices_for_another_network_are_refused() {
    let network = network();
    let good = Choices::standard(&network, Kit::JAGUAR);
    for bad in [
        Choices { packings: vec![], ..good.clone() },
        Choices { packings: vec![Packing::Tight; 100], ..good.clone() },
        Choices { digits: vec![4; 6], ..good.clone() },
    ] {
        assert!(matches!(bad.check(&network), Err(PlanError::Choices(_))));
    }
    good.check(&network).unwrap();
    // Packings are part of what a hint is bound to; digits are not.
    let digest = |choices| Plan::new(&network, choices).unwrap().hint_digest();
    let tight = Choices { packings: vec![Packing::Tight; network.nodes.len()], ..good.clone() };
    let fine = Choices { digits: vec![2; network.nodes.len()], ..good.clone() };
    assert_ne!(digest(tight), digest(good.clone()));
    assert_eq!(digest(fine), digest(good));
}

#[test]
fn an_explanation_names_what_was_not_taken() {
    let (network, machine) = (network(), round_figures());
    let here = site(&machine, FREE, Placement::Apart);
    let choices = choose(&network, &[Kit::JAGUAR], &here, None).unwrap();
    let plan = Plan::new(&network, choices).unwrap();
    let why = explain(&network, &plan, &kit().secure(), Some(&here));
    assert_eq!(why.rings.len(), RINGS.len());
    assert_eq!(why.rings.iter().filter(|r| r.taken).count(), 1);
    // Two limbs are too few for 16 bits: the noise is named.
    let narrow = why.rings.iter().find(|r| r.what.contains("2^32")).unwrap();
    assert!(narrow.refused.as_ref().unwrap().contains("ulp"), "{narrow:?}");
    assert_eq!(why.activations.len(), 9);
    let bytes = |bits: usize| why.activations[bits - 12].figures.unwrap().bytes;
    assert!(why.activations[4].taken && bytes(12) < bytes(16) && bytes(16) < bytes(18));
    // With guard bits the network's own width is that above them, and the line is the plan itself.
    let guarded = network.guarded(8).unwrap();
    let own = Plan::new(&guarded, plan.choices.clone()).unwrap();
    let widths = explain(&guarded, &own, &kit().secure(), Some(&here)).activations;
    assert_eq!(widths.iter().position(|a| a.taken), Some(4));
    let total = predict(&own, &Session::default(), None);
    let sent = |t: Total| t.bytes_up + t.bytes_down;
    assert_eq!(widths[4].figures.unwrap().bytes, sent(total.offline) + sent(total.online));
    let digits: Vec<&str> =
        why.layers.iter().filter(|d| d.about == "digits").map(|d| d.name.as_str()).collect();
    assert_eq!(digits, ["pool", "relu", "six"]);
    for decision in &why.layers {
        assert_eq!(decision.alternatives.iter().filter(|a| a.taken).count(), 1, "{}", decision.name);
        assert!(!decision.reason.is_empty());
    }
    // Without constants nothing is compared, and it says so.
    let dark = explain(&network, &plan, &kit().secure(), None);
    assert!(dark.ring_reason.contains("nothing was measured"), "{}", dark.ring_reason);
}

/// Layers go to another backend where the whole query gains by that, and nowhere else.
#[test]
fn backends_are_weighed() {
    let network = network();
    let both = [Kit::JAGUAR, Kit::CHEETAH];
    let of = |machine: &Machine, allowed: &[BackendId]| {
        let here = site(machine, FREE, Placement::Apart);
        let choices = choose(&network, allowed, &here, None).unwrap();
        let plan = Plan::new(&network, choices.clone()).unwrap();
        let why = explain(&network, &plan, &kit().secure(), Some(&here));
        let weighed = why.rings.iter().find(|r| r.taken).unwrap().figures.unwrap().weighed.unwrap();
        (choices, weighed, why)
    };
    let linear = |choices: &Choices| -> Vec<BackendId> {
        let nodes = network.nodes.iter().zip(&choices.backends);
        nodes.filter(|(node, _)| node.op.is::<Linear>()).map(|(_, &b)| b).collect()
    };

    let mut slow = round_figures();
    change(&mut slow, |rings: &mut RnsRings| {
        rings.0.iter_mut().for_each(|r| (r.product, r.response, r.decryption) = (1.0, 1.0, 1.0));
    });
    let (choices, ..) = of(&slow, &both);
    assert_eq!(choices, of(&slow, &[Kit::JAGUAR]).0);
    assert!(linear(&choices).iter().all(|&b| b == Kit::JAGUAR));

    let mut fast = round_figures();
    change(&mut fast, |rings: &mut Rings| {
        rings.0.iter_mut().flat_map(|r| &mut r.client_response).for_each(|p| p.1 = 1.0);
    });
    let (choices, weighed, why) = of(&fast, &both);
    assert!(linear(&choices).iter().all(|&b| b == Kit::CHEETAH), "{choices:?}");
    let alone = of(&fast, &[Kit::JAGUAR]).1;
    assert!(weighed < alone * (1.0 - MARGIN), "{weighed} of {alone}");
    // What each backend would cost is told for each linear layer, and the other one would cost more.
    let backends: Vec<_> = why.layers.iter().filter(|d| d.about == "backend").collect();
    assert_eq!(backends.len(), linear(&choices).len());
    for decision in backends {
        let weighed = |id: BackendId| {
            let found = decision.alternatives.iter().find(|a| a.what == id.name());
            found.unwrap().figures.unwrap().weighed.unwrap()
        };
        let secure = kit().secure().len();
        assert_eq!(decision.alternatives.len(), secure);
        assert!(weighed(Kit::CHEETAH) < weighed(Kit::JAGUAR), "{decision:?}");
        assert!(
            decision.reason.contains("of a query") || decision.reason.contains("to a query"),
            "{}",
            decision.reason
        );
    }

    // A single layer, the only one with few positions, is slow by itself: it moves, whatever the others do, and the mixture
    // costs no more than either backend everywhere.
    let mut mixed = round_figures();
    change(&mut mixed, |rings: &mut Rings| rings.0.iter_mut().for_each(|r| r.online.narrow = 1e-3));
    let (choices, weighed, _) = of(&mixed, &both);
    assert_eq!(choices.backends[6], Kit::CHEETAH);
    for id in both {
        assert!(weighed <= of(&mixed, &[id]).1, "{id} everywhere");
    }
}

/// A backend that is named twice is tried once: the planner asks with one of the allowed ones put before all of them.
#[test]
fn a_backend_that_is_allowed_twice_is_tried_once() {
    // Its last layer has a map so wide that in slots it would be cut into too many tiles.
    let mut network = network();
    network.nodes = [0, 4, 6].map(|node| network.nodes[node].clone()).into();
    for (at, shape) in [[3, 100, 100], [2, 100, 100], [1, 4200, 4200]].into_iter().enumerate() {
        let node = &mut network.nodes[at];
        (node.shape, node.inputs) = (shape, at.checked_sub(1).into_iter().collect());
    }
    network.nodes[1].op = Op::new(Linear::same(2, 1, 12));
    network.nodes[2].op = Op::new(Linear { pads: [2050; 4], ..Linear::same(1, 1, 12) });
    let network = network.guarded(12).unwrap();
    let hyena = backend("hyena");
    assert!(Choices::among(&network, &[hyena, hyena]).is_err(), "runs everything");
    let choices = Choices::among(&network, &[hyena, hyena, Kit::JAGUAR]).unwrap();
    assert_eq!(choices, Choices::among(&network, &[hyena, Kit::JAGUAR]).unwrap());
    assert_eq!(choices.backends[1..], [hyena, Kit::JAGUAR]);
    let machine = round_figures();
    let here = site(&machine, FREE, Placement::Apart);
    assert!(choose(&network, &[hyena, Kit::JAGUAR], &here, None).is_ok());
}

#[test]
fn a_layer_of_an_rns_ring_by_hand() {
    let (network, machine) = (network(), round_figures());
    let plan = Plan::new(&network, Choices::standard(&network, Kit::CHEETAH)).unwrap();
    let p = predict(&plan, &Session::default(), Some(&site(&machine, FREE, Placement::Apart)));
    // 30 x 30 with the padding: a ciphertext holds one of the three maps, a response four of the 16 outputs.
    let geometry = plan.steps[1].layer.as_ref().unwrap().geometry();
    assert_eq!((geometry.ring_dim, geometry.ciphertexts, geometry.responses), (4096, 3, 4));
    let before = p.nodes[1].offline.seconds.unwrap();
    close(before.client, 3.0 * 1e-4 / 2.0);
    close(before.server, 4.0 * 1e-5 / 2.0);
    let online = p.nodes[1].online.seconds.unwrap();
    close(online.client, (3.0 * 1e-5 + 4.0 * 1e-5) / 2.0);
    close(online.server, (3.0 * 2e-5 + 12.0 * 1e-6 + 4.0 * 5e-5) / 2.0);
    close(p.nodes[1].a_half_seconds.unwrap(), 12.0 * 1e-5 / 2.0);
    close(p.nodes[1].hint_seconds.unwrap(), 0.0);
}

#[test]
fn kinds_are_in_the_order_of_the_table() {
    for (i, kind) in NonlinearKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, i);
    }
}

/// The client sends for all layers before it takes the first answer; each answer is taken once, in order.
#[test]
fn exchanges_are_streamed() {
    let network = network();
    let backend = backend("fregata-hme");
    let plan = Plan::new(&network, Choices::standard(&network, backend)).unwrap();
    let (send, collect) = (Exchange::Send, Exchange::Collect);
    let streamed = [send(1), send(4), send(6), collect(1), collect(4), collect(6)];
    assert_eq!(plan.exchanges(Schedule::Streamed), streamed);
    let each = [send(1), collect(1), send(4), collect(4), send(6), collect(6)];
    assert_eq!(plan.exchanges(Schedule::LayerByLayer), each);
    assert_eq!(plan.exchange_rounds(), 1);
    assert_eq!(standard(&network).exchanges(Schedule::Streamed), []);
    assert_eq!(standard(&network).exchange_rounds(), 0);
}

/// Where the answer to an input alone counts, layers do more before it: over a slow link those that then send fewer bytes.
#[test]
fn what_is_to_be_short_decides() {
    let (mut network, machine) = (network(), round_figures());
    // A linear layer alone, whose input takes most of what passes.
    network.nodes.truncate(2);
    (network.nodes[1].op, network.nodes[1].shape) = (Op::new(Linear::same(1, 3, 12)), [1, 28, 28]);
    let allowed = [Kit::JAGUAR, backend("fregata-jaguar")];
    let slow = Link { bytes_per_second: 1e5, round_trip: 1e-3 };
    let chosen = |aim| {
        let site = Site { aim, ..site(&machine, slow, Placement::Apart) };
        let plan = Plan::new(&network, choose(&network, &allowed, &site, None).unwrap()).unwrap();
        predict(&plan, &Session::default(), Some(&site))
    };
    let (query, online) = (chosen(Aim::Query), chosen(Aim::Online));
    assert!(online.online.bytes_up < query.online.bytes_up);
    assert!(online.online.seconds.unwrap() < query.online.seconds.unwrap());
    let all = |p: &crate::predict::Prediction| p.offline.seconds.unwrap() + p.online.seconds.unwrap();
    assert!(all(&query) < all(&online));
}

/// A layer's time counts what it passes before the input, and all that its engine does.
#[test]
fn what_passes_before_the_input_counts() {
    let (network, machine) = (network(), round_figures());
    let weighed = |name: &str, link: Link| {
        let backends = Choices::standard(&network, backend(name));
        let plan = Plan::new(&network, backends).unwrap();
        let at = site(&machine, link, Placement::Apart);
        let alternatives = explain(&network, &plan, &kit().secure(), Some(&at)).layers;
        let decision = alternatives.iter().find(|d| d.node == 4 && d.about == "backend").unwrap();
        decision.alternatives.iter().find(|a| a.taken).unwrap().figures.unwrap()
    };
    let (free, slow) =
        (weighed("fregata-hme", FREE), weighed("fregata-hme", Link { bytes_per_second: 1e6, ..FREE }));
    let before = (slow.bytes - slow.online_bytes) as f64;
    assert!(before > 0.0 && slow.seconds.unwrap() - slow.online_seconds.unwrap() > before / 2.0 / 1e6);
    assert!(free.seconds.unwrap() > free.online_seconds.unwrap());
    // (V: l bits a value.)
    assert_eq!(slow.online_bytes, 16 * 196 * 28 / 8);
}

/// A kit's comparisons, said to leak: refused unless accepted, in shares with room for them, and part of the digest.
#[test]
fn comparisons_that_leak_are_planned_where_they_are_accepted() {
    let network = network();
    let sealed = standard(&network);
    let by = ComparisonsId(SAID_TO_LEAK[0]);
    let choices = sealed.choices.clone().comparing_by(&network, by).unwrap();
    let extra_bits = choices.comparison.extra_bits();
    for refused in [Plan::new, Plan::allowing_insecure_backends] {
        assert!(matches!(refused(&network, choices.clone()), Err(PlanError::Leaks(_))));
    }
    let plan = Plan::accepting_leaks(&network, choices.clone()).unwrap();
    assert_ne!(plan.digest(), sealed.digest());
    let with =
        |extra_bits| Choices { comparison: Comparison::By { name: by, extra_bits }, ..choices.clone() };
    assert_ne!(Plan::accepting_leaks(&network, with(extra_bits - 1)).unwrap().digest(), plan.digest());
    for (step, other) in plan.steps.iter().zip(&sealed.steps) {
        assert_eq!(step.computed.modulus.bits(), other.computed.modulus.bits() + extra_bits);
        assert_eq!(step.replaced, step.nonlinear.is_some());
        assert_eq!(step.nonlinear.is_some(), other.nonlinear.is_some());
        // The protocol is the other one, in wider shares.
        assert!(step.nonlinear.is_none() || step.cost.up > other.cost.up);
    }
    // The most bits that fit: one bit more has no plan, if there may be more at all.
    if extra_bits < 8 {
        assert!(Plan::accepting_leaks(&network, with(extra_bits + 1)).is_err());
    }
    for impossible in [0, 9, u32::MAX] {
        let refused = Plan::accepting_leaks(&network, with(impossible)).unwrap_err().to_string();
        assert!(refused.contains("(1 to 8 are possible)"), "{refused}");
    }
    // What they tell is told; explanations go on from what was accepted.
    let caveat = choices.comparison.caveat().unwrap();
    assert!(caveat.contains(&format!("with {extra_bits} bits more")), "{caveat}");
    assert_eq!(sealed.choices.comparison.caveat(), None);
    let explained = explain(&network, &plan, &kit().secure(), None);
    assert!(explained.rings.iter().any(|ring| ring.taken && ring.refused.is_none()));
}

/// Choices that compare as ever are written as ever; names mean something in a kit that has them.
#[test]
fn comparisons_are_read_by_name() {
    let network = network();
    let sealed = standard(&network).choices;
    let by = ComparisonsId(SAID_TO_LEAK[0]);
    let choices = Choices { comparison: Comparison::By { name: by, extra_bits: 3 }, ..sealed.clone() };
    assert_eq!(postcard::to_stdvec(&sealed.comparison).unwrap(), [0]);
    assert_eq!(postcard::to_stdvec(&choices.comparison).unwrap(), b"\x01\x0csaid-to-leak\x03");
    let written = postcard::to_stdvec(&choices).unwrap();
    let read = || postcard::from_bytes::<NamedChoices>(&written).unwrap();
    let kit = kit().with_comparisons(SAID_TO_LEAK);
    assert_eq!(kit.comparisons(), [by]);
    assert_eq!(read().resolve(kit.backends(), kit.comparisons()), Ok(choices));
    let unknown = read().resolve(kit.backends(), &[]).unwrap_err().to_string();
    assert_eq!(unknown, "no comparisons are called 'said-to-leak'; there are none");
}

/// A value that is wider than the others is refused as in the sealed form: it would take the room of the comparison.
#[test]
fn extra_bits_are_left_to_the_widest_value() {
    let mut network = network();
    // 2 x 2 sums of 16 bits: 18 bits, and a ReLU of them.
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    network.nodes[2].op = Op::new(SumPool { window, count_real_places: None });
    let choices = Choices::standard(&network, Kit::JAGUAR);
    assert!(matches!(Plan::new(&network, choices.clone()), Err(PlanError::Wide { bits: 18, .. })));
    let comparison = Comparison::By { name: ComparisonsId(SAID_TO_LEAK[0]), extra_bits: 4 };
    let refused = Plan::accepting_leaks(&network, Choices { comparison, ..choices });
    assert!(matches!(refused, Err(PlanError::Wide { bits: 18, .. })));
}

/// A product takes values that are wider than activations, as far as its own ring holds them.
#[test]
fn products_refuse_what_their_ring_does_not_hold() {
    let planned = |shift| {
        let mut network = network();
        // 2 x 2 sums of 16 bits: 18 bits, and their squares.
        let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
        network.nodes[2].op = Op::new(SumPool { window, count_real_places: None });
        network.nodes[3].op = Op::new(Product { shift, offsets: [0; 2] });
        network.nodes[3].inputs = vec![2, 2];
        Plan::new(&network, Choices::standard(&network, Kit::JAGUAR)).map(|_| ())
    };
    planned(2).unwrap();
    assert!(matches!(planned(1), Err(PlanError::Wide { bits: 18, most: 17, .. })));
}

/// Large maps, small maps with many channels, and a fully connected layer.
fn three_maps() -> Network {
    let conv = |out, k| Op::new(Linear::same(out, k, 12));
    let pool = |k: usize| {
        let window = Window { kernel: [k; 2], stride: [k; 2], pads: [0; 4] };
        Op::new(MaxPool { window, ignored: 0 })
    };
    let fully = Op::new(Linear { pads: [0; 4], ..Linear::same(10, 6, 12) });
    let nodes = [
        ("input", Op::new(Input), [3, 60, 60]),
        ("large", conv(64, 3), [64, 60, 60]),
        ("rectified", Op::new(Relu { ignored: 0 }), [64, 60, 60]),
        ("narrow", conv(64, 1), [64, 60, 60]),
        ("pool", pool(2), [64, 30, 30]),
        ("small", conv(64, 3), [64, 30, 30]),
        ("relu", Op::new(Relu { ignored: 0 }), [64, 30, 30]),
        ("corner", pool(5), [64, 6, 6]),
        ("last", fully, [10, 1, 1]),
    ];
    let nodes = nodes.into_iter().enumerate().map(|(i, (name, op, shape))| Node {
        name: name.into(),
        op,
        inputs: if i == 0 { vec![] } else { vec![i - 1] },
        shape,
    });
    Network { nodes: nodes.collect(), ..network() }
}

fn hyena(names: &[&str]) -> Vec<BackendId> {
    names.iter().map(|name| backend(name)).collect()
}

/// Among Hyena's forms every layer has the one that costs least: that of interleaved channels, where it is allowed. Without it large
/// maps have numbers, small maps and fully connected layers plaintexts. They share one ring, and cost less than any form
/// everywhere. With no memory for plaintexts, more layers have numbers.
#[test]
fn hyenas_forms_are_mixed_in_one_ring() {
    let (network, machine) = (three_maps(), round_figures());
    network.validate().unwrap();
    let here = site(&machine, FREE, Placement::Apart);
    let weighed = |choices: &Choices| {
        let plan = Plan::new(&network, choices.clone()).unwrap();
        assert_eq!(plan.backends.len(), 1, "one ring and one set of keys");
        let why = explain(&network, &plan, &kit().secure(), Some(&here));
        why.rings.iter().find(|r| r.taken).unwrap().figures.unwrap().weighed.unwrap()
    };
    let numbers = |choices: &Choices| {
        let plan = Plan::new(&network, choices.clone()).unwrap();
        plan.layers().filter(|layer| layer.backend() != "hyena-conventional").count()
    };
    let three = hyena(&["hyena-conventional", "hyena-padded", "hyena"]);
    let best = choose(&network, &three, &here, None).unwrap();
    let plan = Plan::new(&network, best.clone()).unwrap();
    assert!(plan.layers().all(|layer| layer.backend() == "hyena"), "{:?}", best.backends);
    let all = hyena(&["hyena-padded", "hyena-conventional"]);
    let chosen = choose(&network, &all, &here, None).unwrap();
    assert!(weighed(&best) < weighed(&chosen));
    let plan = Plan::new(&network, chosen.clone()).unwrap();
    let of = |node: usize| plan.steps[node].layer.as_ref().unwrap().backend();
    assert_ne!(of(3), "hyena-conventional", "{:?}", chosen.backends);
    assert_eq!((of(5), of(8)), ("hyena-conventional", "hyena-conventional"), "{:?}", chosen.backends);
    for &one in &all {
        let alone = choose(&network, &[one], &here, None).unwrap();
        assert!(weighed(&chosen) <= weighed(&alone), "{one} everywhere");
    }
    // Whatever comes first.
    let reversed: Vec<BackendId> = three.iter().rev().copied().collect();
    let again = choose(&network, &reversed, &here, None).unwrap();
    assert!(weighed(&again) < weighed(&best) * (1.0 + MARGIN));

    let short = choose_within(&network, &all, &here, None, 0).unwrap();
    assert!(numbers(&short) > numbers(&chosen), "{:?}", short.backends);
    let forced = Choices { weight_memory: 0, ..chosen };
    assert!(weighed(&short) <= weighed(&forced));
}

/// What is kept of a client's keys counts as a hint does.
#[test]
fn keys_count_once_a_client() {
    let (network, machine) = (three_maps(), round_figures());
    let slow = Link { bytes_per_second: 1e6, round_trip: 0.0 };
    let [id] = hyena(&["hyena"])[..] else { panic!("one") };
    let plan = Plan::new(&network, Choices::standard(&network, id)).unwrap();
    let p = predict(&plan, &Session::default(), Some(&site(&machine, slow, Placement::Apart)));
    let keys = plan.client_keys();
    assert!(keys.sent > 1 << 20 && keys.kept > keys.sent as u64);
    assert_eq!(p.key_bytes, keys.sent as u64);
    close(p.key_seconds.unwrap(), keys.sent as f64 / 1e6);
}

/// A layer's work is the counts of its steps times what they take.
#[test]
fn a_layer_in_slots_by_hand() {
    let (network, machine) = (three_maps(), round_figures());
    let [id] = hyena(&["hyena-padded"])[..] else { panic!("one") };
    let plan = Plan::new(&network, Choices::standard(&network, id)).unwrap();
    let p = predict(&plan, &Session::default(), Some(&site(&machine, FREE, Placement::Apart)));
    // 1 x 1, so nothing is rotated before the products. 60 x 60 places take a row, and the other one stays empty.
    let layer = plan.steps[3].layer.as_ref().unwrap();
    let geometry = layer.geometry();
    assert_eq!((geometry.ring_dim, geometry.maps_per_ciphertext), (8192, 1));
    assert_eq!((geometry.ciphertexts, geometry.responses), (64, 64));
    // "ring N = 8192, q of 3 primes of 56 bits (154.4 bits of security), 2 of them in responses, of which 4 share an a half"
    let text = plan.backends[0].describe();
    let numbers: Vec<f64> =
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    let [limbs, bits, kept, together] = [1, 2, 5, 6].map(|at| numbers[at]);
    let halves = (64.0 / together).ceil();
    assert_eq!(layer.traffic().online.0 as f64, 64.0 * (32.0 + limbs * bits * 1024.0), "{text}");
    assert_eq!(layer.traffic().online.1 as f64, (64.0 + halves) * kept * bits * 1024.0, "{text}");
    let before = p.nodes[3].offline.seconds.unwrap();
    close(before.client, 64.0 * limbs * 2e-4 / 2.0);
    // Encryptions of zero have a prime more than responses, if there is one; a third of each is its b half.
    let wide = (kept + 1.0).min(limbs);
    let dropped = (wide * (wide - 1.0) - kept * (kept - 1.0)) / 2.0;
    let half = wide * (4e-4 / 3.0 + 1e-4) + dropped * 2e-5;
    let cover = halves * (half + wide * 4e-4 / 3.0) + 64.0 * (half + kept * (2e-5 + 2e-5) + 1e-4);
    close(before.server, cover / 2.0);
    let online = p.nodes[3].online.seconds.unwrap();
    let sent = 1e-4 + limbs * (2e-5 + 1e-4 + 1e-5);
    let half = kept * (1e-5 + 1e-4);
    let opened = half + kept * (2e-5 + 2e-5) + 1e-4;
    close(online.client, (64.0 * (sent + opened) + halves * half) / 2.0);
}

/// A step that does not suit its operation is refused: without a protocol a ReLU would be computed on shares.
#[test]
fn an_operation_without_its_protocol_is_refused() {
    let network = network();
    let plan = standard(&network);
    let refused = |id: usize, step: crate::Step| match step.finish(&network.nodes[id]) {
        Err(PlanError::Unplanned { name, op }) => Some((name, op)),
        _ => None,
    };
    let (pool, relu, six, first) = (&plan.steps[2], &plan.steps[3], &plan.steps[5], &plan.steps[1]);
    let without = |step: &crate::Step| crate::Step { nonlinear: None, ..step.clone() };
    assert_eq!(refused(2, without(pool)), Some(("pool".into(), "MaxPool")));
    assert_eq!(refused(3, without(relu)), Some(("relu".into(), "Relu")));
    assert_eq!(refused(5, without(six)), Some(("six".into(), "Relu6")));
    assert_eq!(refused(1, crate::Step { layer: None, ..first.clone() }), Some(("first".into(), "Linear")));
    // Nor is anything else taken for local that has a protocol.
    assert_eq!(refused(0, relu.clone()), Some(("input".into(), "Input")));
    assert_eq!(refused(3, relu.clone()), None);
}

/// What each value of `node` costs, in bytes, with the making of its correlations: before the input, and with it.
fn bytes_a_value(network: &Network, node: usize) -> [f64; 2] {
    let instances = Instances { bits: Bin::B4096, vectors: Bin::B4096, noise: Noise::Fresh };
    let plan = Plan::new(network, Choices { instances, ..Choices::standard(network, Kit::JAGUAR) }).unwrap();
    let cost = predict(&plan, &Session::default(), None).nodes[node];
    [cost.offline, cost.online].map(|s| (s.bytes_up + s.bytes_down) as f64 / plan.steps[node].values as f64)
}

/// A layer with these behind it, each of which takes what is named.
fn behind_a_layer(ops: Vec<(Op, Vec<usize>)>) -> Network {
    let mut network = network();
    network.nodes.truncate(2);
    let shape = network.nodes[1].shape;
    let nodes = ops.into_iter().map(|(op, inputs)| Node { name: "behind".into(), op, inputs, shape });
    network.nodes.extend(nodes);
    network
}

/// The curve that calibration makes of a function, where 1 is so many units of the value and of what is made of it.
fn curve(function: Function, one: f64) -> Op {
    let known = Known { bits: 16, scales: Some((&[one], one)), ..Known::default() };
    float::Op::from(function).integer(&known).unwrap()
}

/// A SiLU and a GELU of 16 bits, of values up to 4 or more (with fourfold headroom 1,024 units are one then), cost at most 160 bytes a value in
/// all, and 60 of them online: the goal for curves. In 64 pieces with straight ends it is 61 online.
#[test]
fn curves_cost_few_bytes() {
    let mut all = Vec::new();
    for function in [Function::swish(1.0), Function::gelu(false), Function::gelu(true)] {
        for one in [1024.0, 512.0, 256.0, 128.0, 16.0] {
            let op = curve(function.clone(), one);
            let most = if op.is::<Straight>() { 61.0 } else { 60.0 };
            let what = op.describe();
            let [before, online] = bytes_a_value(&behind_a_layer(vec![(op, vec![1])]), 2);
            println!("{one} units, {what}: {before:.1} and {online:.1}");
            all.push((one, what, before, online, most));
        }
    }
    assert!(
        all.iter().any(|(_, what, ..)| what.contains("256")) && all.iter().any(|a| a.4 > 60.0),
        "{all:?}"
    );
    for (one, what, before, online, most) in all {
        assert!(online <= most && before + online <= 160.0, "{one} units, {what}: {before} and {online}");
    }
}

/// With eight guard bits a HardSwish takes at most 0.6 of what a clip and a product took before the input, as which it was made before.
#[test]
fn a_hard_swish_is_cheaper_than_a_product() {
    const HIDING: Hiding = Hiding { guard_bits: 8, noise_bits: 8 };
    let clip = Op::new(Relu6 { log2_six: 12, ignored: 0 });
    let product = Op::new(Product { shift: 12, offsets: [-2048, 0] });
    let former = behind_a_layer(vec![(clip, vec![1]), (product, vec![1, 2])]).guarded(HIDING).unwrap();
    let former = bytes_a_value(&former, 2)[0] + bytes_a_value(&former, 3)[0];
    for one in [1024.0, 512.0, 256.0, 128.0, 16.0] {
        let op = curve(Function::hard_swish(), one);
        let what = format!("{one} units: {}", op.describe());
        let [before, _] = bytes_a_value(&behind_a_layer(vec![(op, vec![1])]).guarded(HIDING).unwrap(), 2);
        println!("{what}: {before:.1} of {former:.1}");
        assert!(before <= 0.6 * former, "{what}: {before} of {former}");
    }
}

/// A curve whose lines say that its values are small makes shares in a ring that is as narrow, and what takes these extends them.
#[test]
fn small_values_of_curves_are_made_in_a_narrow_ring() {
    let product = || Op::new(Product { shift: 8, offsets: [0; 2] });
    let plan = |op: Op| standard(&behind_a_layer(vec![(op, vec![1]), (product(), vec![1, 2])]));
    // 256 is the largest value: with a bit above, and a sign.
    let sigmoid = Function::Of(Primitive::Sigmoid, Box::new(Function::Value));
    let step = &plan(curve(sigmoid, 256.0)).steps[2];
    let extension = step.extension.expect("the product takes 24 bits");
    assert_eq!((step.computed.modulus.bits(), extension.bits, extension.output.bits()), (10, 10, 24));
    assert_eq!(extension.range, Range::NonNegative);
    // A SiLU's may be anything.
    assert_eq!(plan(curve(Function::swish(1.0), 256.0)).steps[2].computed.modulus.bits(), 16);
}

/// An extension adds 32 bits at most: a curve makes a small value in a ring that is as near to the one that a product takes.
#[test]
fn small_values_are_made_where_an_extension_reaches() {
    let sigmoid = Function::Of(Primitive::Sigmoid, Box::new(Function::Value));
    let product = |shift| Op::new(Product { shift, offsets: [0; 2] });
    let plan = |shift| {
        standard(&behind_a_layer(vec![(curve(sigmoid.clone(), 64.0), vec![1]), (product(shift), vec![1, 2])]))
    };
    for (shift, bits) in [(24, 8), (25, 9), (32, 16)] {
        let extension = plan(shift).steps[2].extension.expect("the product takes more");
        assert_eq!((extension.bits, extension.output.bits()), (bits, 16 + shift));
    }
}

/// A ReLU6 takes small values in n bits all the same, for the place of six may be beyond theirs; a max-pool does not.
#[test]
fn cuts_take_all_bits() {
    let tanh = || curve(Function::Of(Primitive::Tanh, Box::new(Function::Value)), 256.0);
    let pool = MaxPool { window: Window { kernel: [1, 1], stride: [1, 1], pads: [0; 4] }, ignored: 0 };
    let clip = Op::new(Relu6 { log2_six: 13, ignored: 0 });
    let ops = vec![(tanh(), vec![1]), (Op::new(pool), vec![2]), (clip, vec![3])];
    let plan = standard(&behind_a_layer(ops));
    let taken = |id: usize| plan.steps[id].computed.modulus.bits();
    assert_eq!((taken(2), taken(3)), (11, 11));
    assert!(plan.steps[4].computed.modulus.bits() >= 16);
}

/// A sum of small values is larger than they are, and so is what stands beside values of either sign: both have all bits, and a sum over a
/// window of them has as many more.
#[test]
fn sums_of_small_values_have_all_bits() {
    let small = |primitive| curve(Function::Of(primitive, Box::new(Function::Value)), 256.0);
    let window = Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] };
    let mut network = behind_a_layer(vec![
        (small(Primitive::Sigmoid), vec![1]),
        (small(Primitive::Tanh), vec![1]),
        (Op::new(Add), vec![2, 2]),
        (Op::new(Concat), vec![2, 3]),
        (Op::new(SumPool { window, count_real_places: None }), vec![4]),
    ]);
    network.nodes[5].shape[0] *= 2;
    assert_eq!(network.value_bits()[2..], [10, 11, 16, 16, 18]);
}

/// The rings of values by which node `id` could come to cost what it does.
fn rings_taken(network: &Network, plan: &Plan, id: usize) -> Vec<u32> {
    let (node, step) = (&network.nodes[id], &plan.steps[id]);
    let inputs: Vec<Shape> = node.inputs.iter().map(|&input| network.nodes[input].shape).collect();
    let Work::Interactive(operator) = node.op.work() else { panic!("node {id} has no protocol") };
    let own = step.nonlinear.as_ref().unwrap().cost();
    let costs_as_much = |&bits: &u32| {
        let protocol = operator.protocol(&Place {
            bits,
            excess: 0,
            output: step.computed.modulus,
            digit: u32::from(plan.choices.digits[id]),
            images: 1,
            inputs: &inputs,
            same: false,
            shape: node.shape,
        });
        protocol.check().is_ok() && protocol.cost() == own
    };
    (8..=40).filter(costs_as_much).collect()
}

/// Values that have fewer bits are compared, and taken by curves, in rings that are as much narrower; a sum of others has all bits beside them.
#[test]
fn narrow_values_are_taken_in_narrow_rings() {
    const FEWER: u32 = 3;
    let window = Window { kernel: [3; 2], stride: [1; 2], pads: [1; 4] };
    let layer = || Linear::same(16, 1, 12 + FEWER);
    let network = behind_a_layer(vec![
        (Op::new(Narrow { of: layer(), fewer: FEWER }), vec![1]),
        (Op::new(MaxPool { window, ignored: 0 }), vec![2]),
        (Op::new(Narrow { of: Add, fewer: FEWER }), vec![2, 3]),
        (curve(Function::Of(Primitive::Sigmoid, Box::new(Function::Value)), 16.0), vec![4]),
        (Op::new(Add), vec![2, 3]),
        (curve(Function::Of(Primitive::Sigmoid, Box::new(Function::Value)), 16.0), vec![6]),
    ]);
    assert_eq!(network.value_bits()[1..7], [16, 13, 13, 13, 8, 16]);
    let plan = standard(&network);
    let computed = [3, 4, 6].map(|id: usize| plan.steps[id].computed.modulus.bits());
    assert_eq!(computed, [13, 13, 16]);
    assert_eq!([3, 5, 7].map(|id| rings_taken(&network, &plan, id)), [vec![13], vec![13], vec![16]]);
}

/// A curve takes small values in no ring in which its pieces have no room, and in none in which its result would not be known: above its pieces a SiLU of
/// n bits is known modulo as much as x is.
#[test]
fn curves_take_small_values_in_rings_that_they_have() {
    let small = || curve(Function::Of(Primitive::Tanh, Box::new(Function::Value)), 256.0);
    let whole = curve(Function::gelu(false), 4096.0);
    let straight = curve(Function::swish(1.0), 16.0);
    let level = curve(Function::Of(Primitive::Sigmoid, Box::new(Function::Value)), 16.0);
    assert!(!whole.is::<Straight>() && straight.is::<Straight>() && level.is::<Straight>());
    let rings = |op: &Op, backend| {
        let network = behind_a_layer(vec![(small(), vec![1]), (op.clone(), vec![2])]);
        let plan = Plan::new(&network, Choices::standard(&network, backend)).unwrap();
        rings_taken(&network, &plan, 3)
    };
    assert_eq!(rings(&straight, Kit::JAGUAR), [16]);
    assert_eq!(rings(&level, Kit::JAGUAR), [11]);
    // (Bits above the domain cost nothing.)
    assert!(rings(&whole, Kit::JAGUAR).contains(&15));
    // Where no layer truncates, shares that layers take are wider. A curve has no use for that.
    assert_eq!(rings(&level, Kit::CHEETAH), [11]);
    assert_eq!(rings(&straight, Kit::CHEETAH), [16]);
}

/// What two take in wide rings is extended once, before it is moved; but not before what leaves most of it out.
#[test]
fn what_is_moved_is_extended_once() {
    let sizes = [16, 28, 28];
    let square = || Op::new(Product { shift: 8, offsets: [0; 2] });
    let part = Op::new(Rearrange::Slice { start: [0; 3], step: [1; 3] });
    let mut network = behind_a_layer(vec![
        (Op::new(Rearrange::Reshape), vec![1]),
        (square(), vec![1, 1]),
        (square(), vec![2, 2]),
        (part, vec![2]),
    ]);
    network.nodes[5].shape = [1, 28, 28];
    network.nodes.push(Node { name: "squared".into(), op: square(), inputs: vec![5, 5], shape: [1, 28, 28] });
    assert_eq!(network.nodes[2].shape, sizes);
    let extended = |plan: &Plan| plan.steps.iter().map(|step| step.extension.is_some()).collect::<Vec<_>>();
    // Node 5 takes its part of what is wide already.
    assert_eq!(extended(&standard(&network)), [false, true, false, false, false, false, false]);
    // If nothing else asks for it, the part alone is extended.
    for node in [3, 4] {
        network.nodes[node].op = Op::new(Relu { ignored: 0 });
        network.nodes[node].inputs.truncate(1);
    }
    assert_eq!(extended(&standard(&network)), [false, false, false, false, false, true, false]);
}
