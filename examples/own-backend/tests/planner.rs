//! The planner weighs a backend of one's own by that backend's own figures.

use std::sync::Arc;

use jaguar::Cpu;
use jaguar::linear::backend::{Backend, BackendId, ChosenRing, LayerError, Layers, Request};
use jaguar::linear::constants::{Measured, Probe};
use jaguar::network::{Input, InputSpec, Linear, Network, Node, Op, OutputSpec, Relu};
use jaguar::nonlinear::cost::{Bin, Width};
use jaguar::plan::machine::{DIGITS, Link, Machine, NonlinearKind, PerByte, PerCot, Placement, Speedups};
use jaguar::plan::planner::{choose, explain};
use jaguar::plan::predict::{Aim, Session, Site, predict};
use jaguar::plan::{Choices, Kit, Plan};
use own_backend::{RINGS, Toy, Toys};

/// The toy, as if it were secure: a planner takes no other.
struct Pretending;

impl Backend for Pretending {
    fn name(&self) -> &'static str {
        Toy.name()
    }

    fn about(&self) -> &'static str {
        Toy.about()
    }

    fn keeps_products(&self) -> bool {
        Toy.keeps_products()
    }

    fn probes(&self) -> Vec<Probe> {
        Toy.probes()
    }

    fn rings(&self) -> &'static [ChosenRing] {
        Toy.rings()
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        Toy.plan(requests)
    }
}

const TOY: BackendId = BackendId::new(&Pretending);

/// A convolution, a ReLU and another one: 2 + 4 channels of 8 x 8 go in.
fn network() -> Network {
    let conv = |out| Op::new(Linear::same(out, 3, 12));
    let nodes = [
        ("input", Op::new(Input), 2),
        ("first", conv(4), 4),
        ("relu", Op::new(Relu { ignored: 0 }), 4),
        ("last", conv(3), 3),
    ];
    let nodes = nodes.into_iter().enumerate().map(|(i, (name, op, channels))| Node {
        name: name.into(),
        op,
        inputs: i.checked_sub(1).into_iter().collect(),
        shape: [channels, 8, 8],
    });
    Network {
        name: "two layers".into(),
        activation_bits: 16,
        guard_bits: 0,
        noise_bits: 0,
        weight_bits: 12,
        nodes: nodes.collect(),
        input: InputSpec::plain(1.0),
        output: OutputSpec::plain(1.0),
    }
}

/// A machine on which nothing but linear layers takes any time, of which this was measured for these.
fn machine(linear: Measured) -> Machine {
    Machine {
        cpu: "some".into(),
        kernel: "none".into(),
        threads: 1,
        speedups: Speedups::NONE,
        linear,
        making: [[0.0; Bin::ALL.len()]; Width::ALL.len()],
        cots: [[PerCot { sent: 1e-9, received: 1e-9 }; DIGITS.len()]; NonlinearKind::ALL.len()],
        nonlinear: [[PerByte::default(); DIGITS.len()]; NonlinearKind::ALL.len()],
        loopback: Link { bytes_per_second: 1e18, round_trip: 0.0 },
    }
}

fn site(machine: &Machine) -> Site<'_> {
    Site { machine, link: machine.loopback, placement: Placement::Apart, aim: Aim::Query }
}

/// What its probe found is kept, found again, looked up by its layers, and decides which of its rings is taken.
#[test]
fn the_planner_weighs_it_by_its_own_figures() {
    let (network, kit) = (network(), Kit::standard().with([TOY]));
    let without = machine(Measured::default());
    assert_eq!(without.lacks(&kit).len(), 3);
    let probe = TOY.backend().probes()[0];
    let mut measured = Measured::default();
    probe.measure(Cpu::detect(), &mut measured).unwrap();
    assert_eq!(measured.get(), Some(&Toys(vec![(64, 3e-3), (128, 1e-3)])));
    let machine = machine(measured);
    assert!(machine.lacks(&kit).iter().all(|lacking| lacking.name() != probe.name()));
    assert_eq!(machine.impossible(&kit), None);

    // Nothing is known of a machine that was not measured for it: its first ring is taken.
    let default = Choices::standard(&network, TOY);
    assert_eq!(default.ring(), RINGS[0]);
    assert_eq!(choose(&network, &[TOY], &site(&without), None).unwrap().ring(), RINGS[0]);
    let chosen = choose(&network, &[TOY], &site(&machine), None).unwrap();
    assert_eq!(chosen.ring(), RINGS[1]);
    let plan = Plan::new(&network, chosen).unwrap();
    let seconds = |site: &Site<'_>| predict(&plan, &Session::default(), Some(site)).online.seconds;
    assert!((seconds(&site(&machine)).unwrap() - 6.0 * 64.0 * 1e-3).abs() < 1e-9);
    assert_eq!(seconds(&site(&without)), None);

    // Its rings are told, and those of backends that are weighed beside it; a ring of another one is refused by name.
    let why = explain(&network, &plan, &[TOY, Kit::JAGUAR], Some(&site(&machine)));
    assert_eq!(why.rings.len(), RINGS.len() + Kit::JAGUAR.backend().rings().len());
    assert_eq!(why.rings[1].what, "N = 128, q = 2^20");
    assert!(why.rings[1].taken && why.rings[0].refused.is_none());
    assert!(why.rings[2..].iter().all(|other| other.refused.as_ref().unwrap().contains("no such ring")));
}

/// A figure that cannot be is told by the backend whose it is.
#[test]
fn its_figures_are_looked_at() {
    let kit = Kit::standard().with([TOY]);
    let mut measured = Measured::default();
    measured.insert(Toys(vec![(64, 0.0)])).unwrap();
    let why = machine(measured).impossible(&kit).unwrap().to_string();
    assert_eq!(why, "a value in N = 64: 0.0 ns, where no processor takes less than 0.0 ns");
}
