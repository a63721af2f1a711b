//! A backend of one's own, with figures of its own: what anybody may write in a crate of theirs, by the public interface alone.

use std::sync::Arc;

use jaguar_graph::network::{InputSpec, Linear, Network, Node, Op, OutputSpec, Relu, Weights};
use jaguar_linear::backend::{
    Backend, BackendId, ChosenRing, Domain, Geometry, Layer, LayerError, Layers, Model, Party, Request, Rlwe,
    Traffic, Work,
};
use jaguar_linear::constants::{Constants, Impossible, Measured, Probe, ProbeError};
use jaguar_linear::product::Hardware;
use jaguar_mpc::cost::{Bin, Width};
use jaguar_plan::machine::{DIGITS, Kind, Link, Machine, PerByte, PerCot, Placement};
use jaguar_plan::planner::{choose, explain};
use jaguar_plan::predict::{Aim, Session, Site, predict};
use jaguar_plan::{Choices, Kit, Plan};
use jaguar_ring::cpu::Cpu;
use serde::{Deserialize, Serialize};

/// Seconds of a value sent, by N of the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Toys(Vec<(u32, f64)>);

impl Constants for Toys {
    const NAME: &'static str = "toy values";

    fn measure(_: Cpu) -> Result<Self, ProbeError> {
        Ok(Self(vec![(64, 3e-3), (128, 1e-3)]))
    }

    fn impossible(&self) -> Option<Impossible> {
        self.0.iter().find_map(|&(n, t)| Impossible::time(format_args!("a value in N = {n}"), t, 1e-12))
    }
}

/// **Insecure**, for this test: nothing is encrypted, and nothing runs. It leaves two rings to choose from.
struct Toy;

const RINGS: [ChosenRing; 2] =
    [ChosenRing { ring_dim: 64, modulus_bits: 20 }, ChosenRing { ring_dim: 128, modulus_bits: 20 }];

impl Backend for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn about(&self) -> &'static str {
        "for a test"
    }

    fn keeps_products(&self) -> bool {
        false
    }

    fn probes(&self) -> Vec<Probe> {
        vec![Probe::of::<Toys>()]
    }

    fn rings(&self) -> &'static [ChosenRing] {
        &RINGS
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        let layer = |r: &Request<'_>| ToyLayer {
            node: r.node,
            spec: r.spec.clone(),
            values: r.in_shape.iter().product(),
            bits: r.activation_bits,
            ring_dim: r.ring.ring_dim,
        };
        match requests.iter().position(|r| !RINGS.contains(&r.ring)) {
            Some(at) => Err((at, LayerError::Refused("no such ring".into()))),
            None => Ok(Arc::new(ToyLayers(requests.iter().map(layer).collect()))),
        }
    }
}

#[derive(Debug)]
struct ToyLayers(Vec<ToyLayer>);

impl Layers for ToyLayers {
    fn backend(&self) -> &'static str {
        "toy"
    }

    fn layer(&self, node: usize) -> Option<&(dyn Layer + 'static)> {
        self.0.iter().find(|layer| layer.node == node).map(|layer| layer as _)
    }

    fn describe(&self) -> String {
        "nothing".into()
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        Vec::new()
    }

    fn model(self: Arc<Self>, _: &Hardware, _: [u8; 32], _: &[Option<Weights>], _: u32) -> Arc<dyn Model> {
        unimplemented!("nothing runs")
    }

    fn client(self: Arc<Self>, _: Cpu, _: [u8; 32]) -> Box<dyn Party> {
        unimplemented!("nothing runs")
    }
}

#[derive(Debug)]
struct ToyLayer {
    node: usize,
    spec: Linear,
    values: usize,
    bits: u32,
    ring_dim: u32,
}

impl Layer for ToyLayer {
    fn spec(&self) -> &Linear {
        &self.spec
    }

    fn input(&self) -> Domain {
        Domain::power_of_two(self.bits)
    }

    fn output(&self) -> Domain {
        Domain::power_of_two(self.bits)
    }

    fn geometry(&self) -> Geometry {
        Geometry::default()
    }

    fn traffic(&self) -> Traffic {
        Traffic { online: (2 * self.values, 0), ..Traffic::default() }
    }

    fn work(&self, machine: &Measured) -> Option<Work> {
        let (_, each) = machine.get::<Toys>()?.0.iter().find(|(n, _)| *n == self.ring_dim)?;
        Some(Work { online: [self.values as f64 * each, 0.0], ..Work::default() })
    }

    fn noise_ulps(&self) -> f64 {
        0.0
    }

    fn rounding_ulps(&self) -> f64 {
        1.0
    }

    fn absorb(&self) -> Vec<u64> {
        vec![u64::from(self.ring_dim)]
    }

    fn block_size(&self) -> usize {
        1
    }

    fn model_bytes(&self) -> u64 {
        0
    }
}

const TOY: BackendId = BackendId::new(&Toy);

/// A convolution, a ReLU and another one: 2 + 4 channels of 8 x 8 go in.
fn network() -> Network {
    let conv = |out| Op::Linear(Linear::same(out, 3, 12));
    let nodes = [
        ("input", Op::Input, 2),
        ("first", conv(4), 4),
        ("relu", Op::Relu(Relu { ignored: 0 }), 4),
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
        speedup: 1.0,
        linear,
        making: [[0.0; Bin::ALL.len()]; Width::ALL.len()],
        cots: [PerCot { sent: 1e-9, received: 1e-9 }; Kind::ALL.len()],
        nonlinear: [[PerByte::default(); DIGITS.len()]; Kind::ALL.len()],
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
