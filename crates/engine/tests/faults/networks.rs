//! Networks so small that a session is milliseconds, and the protocols that run them.

use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Limits, Prediction, Reveal};
use jaguar_engine::server::{self, KeepLimits, Service};
use jaguar_graph::network::{
    Add, Bias, Blocks, Input, InputSpec, Linear, MaxPool, Model, Network, Node, Op, OutputSpec, Product,
    Relu, Relu6, Shape, Weights, Window, argmax,
};
use jaguar_graph::reference;
use jaguar_ring::cpu::Cpu;

use jaguar_plan::{Choices, Kit};
use std::num::NonZeroU32;
use std::time::Duration;

/// Every backend that protects both parties.
pub fn kit() -> Kit {
    Kit::standard().with(jaguar_fregata::ALL).with(jaguar_hyena::ALL)
}

/// How long a client waits for data from a server that lives, in a link's own time.
pub const CLIENT_STALLED: Duration = Duration::from_secs(60);

/// The same for the server.
pub const SERVER_IDLE: Duration = Duration::from_secs(90);

const INPUT: Shape = [4, 6, 6];

/// A convolution, an activation, a max-pool, a convolution beside a sum, a fully connected layer.
pub fn bundle(blocks: Option<Blocks>) -> Bundle {
    network(blocks, false)
}

/// The first activation is a ReLU, or a HardSwish.
pub fn network(blocks: Option<Blocks>, swish: bool) -> Bundle {
    let mut nodes: Vec<Node> = Vec::new();
    let mut weights = Vec::new();
    let mut state = 1u64;
    let mut add = |op: Op, inputs: &[usize], shape: Shape, in_channels: usize| {
        let id = nodes.len();
        weights.push(match op.linear() {
            Some(spec) => {
                let terms = in_channels * spec.kernel[0] * spec.kernel[1];
                let limit = (4096.0 * 1.5 / (terms as f64).sqrt()).min(2047.0);
                let mut random = || {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    ((state >> 40) as f64 / f64::from(1u32 << 23) - 1.0) * limit
                };
                let mut values: Vec<i16> = (0..spec.out_channels * terms).map(|_| random() as i16).collect();
                if let Some(blocks) = spec.blocks {
                    blocks.repeat(&mut values, in_channels, spec.kernel);
                }
                let bias = Bias::PerChannel(vec![1000; spec.out_channels]);
                Some(Weights { weights: values, exponents: vec![0; spec.out_channels], bias })
            }
            None => None,
        });
        nodes.push(Node { name: format!("node{id}"), op, inputs: inputs.to_vec(), shape });
        id
    };
    let conv = |out: usize, kernel: usize, pad: usize, blocks: Option<Blocks>| {
        Op::new(Linear {
            out_channels: out,
            kernel: [kernel; 2],
            stride: [1; 2],
            dilation: [1; 2],
            pads: [pad; 4],
            groups: 1,
            shift: 12,
            max_exponent: 2,
            blocks,
        })
    };
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    add(Op::new(Input), &[], INPUT, 0);
    let stem = add(conv(4, 3, 1, blocks), &[0], [4, 6, 6], 4);
    let relu = if swish {
        let six = add(Op::new(Relu6 { log2_six: 11, ignored: 0 }), &[stem], [4, 6, 6], 0);
        add(Op::new(Product { shift: 11, offsets: [-1024, 0] }), &[stem, six], [4, 6, 6], 0)
    } else {
        add(Op::new(Relu { ignored: 0 }), &[stem], [4, 6, 6], 0)
    };
    let pool = add(Op::new(MaxPool { window, ignored: 0 }), &[relu], [4, 3, 3], 0);
    let branch = add(conv(4, 1, 0, blocks), &[pool], [4, 3, 3], 4);
    let sum = add(Op::new(Add), &[branch, pool], [4, 3, 3], 0);
    let relu = add(Op::new(Relu { ignored: 0 }), &[sum], [4, 3, 3], 0);
    add(conv(3, 3, 0, None), &[relu], [3, 1, 1], 4);
    let network = Network {
        name: "small".into(),
        activation_bits: 16,
        guard_bits: 0,
        noise_bits: 0,
        weight_bits: 12,
        nodes,
        input: InputSpec::plain(1.0),
        output: OutputSpec::plain(1.0),
    };
    let scales = vec![1.0; weights.len()];
    Bundle::with_hiding(Model { network, weights, scales, leverage: None }, 0).expect("a sound network")
}

/// The input of query number `query` of a session.
pub fn input(query: usize) -> Vec<i64> {
    (0..INPUT.iter().product::<usize>())
        .map(|i| ((i * 7919 + query * 104_729) % 8192) as i64 - 4096)
        .collect()
}

/// A way in which a session may go.
pub struct Way {
    pub name: String,
    make: Box<dyn Fn() -> Service>,
    pub limits: Limits,
    /// By query: what the plaintext network says.
    right: Vec<Vec<i64>>,
}

impl Way {
    /// [`bundle`] served as `make` says.
    pub fn new(name: &str, blocks: Option<Blocks>, make: impl Fn(Bundle) -> Service + 'static) -> Self {
        Self::of(name, move || bundle(blocks), make)
    }

    /// A network served as `make` says.
    pub fn of(
        name: &str,
        bundle: impl Fn() -> Bundle + 'static,
        make: impl Fn(Bundle) -> Service + 'static,
    ) -> Self {
        let limits = Limits { stalled: CLIENT_STALLED, ..Limits::default() };
        let model = bundle().model;
        let plain = |query| reference::run(Cpu::detect(), &model, &input(query)).expect("it runs");
        let right = (0..2).map(|query| plain(query).output().to_vec()).collect();
        Self { name: name.into(), make: Box::new(move || make(bundle())), limits, right }
    }

    /// Whether this is what the plaintext network says of the input of a query, but for how linear layers round.
    pub fn is_right(&self, prediction: &Prediction, query: usize) -> bool {
        let want = &self.right[query];
        match prediction {
            Prediction::Logits(got) => got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 32),
            Prediction::Label(label) => want[argmax(want)] - want[*label] <= 64,
        }
    }

    /// A server, which keeps no client's keys, and makes as many hints as are asked for.
    pub fn service(&self) -> Service {
        let many = NonZeroU32::MAX;
        (self.make)()
            .with_limits(server::Limits { hints_at_once: many, hints_per_hour: many })
            .with_keep_limits(KeepLimits { idle: SERVER_IDLE, keys: 0, ..KeepLimits::default() })
    }
}

fn service(bundle: Bundle, choices: Choices, reveal: Reveal) -> Service {
    Service::new(bundle, choices, reveal).expect("a sound plan")
}

/// Every secure backend, each alone; several in one network; blocks of weights; products of values; the label
/// alone.
pub fn ways() -> Vec<Way> {
    let standard = |bundle: Bundle, backend, reveal| {
        let choices = Choices::standard(&bundle.model.network, backend);
        service(bundle, choices, reveal)
    };
    let secure = kit().secure();
    let mut ways: Vec<Way> = secure
        .into_iter()
        .map(|id| Way::new(id.name(), None, move |b| standard(b, id, Reveal::Logits)))
        .collect();
    ways.push(Way::new("mixed", None, |bundle| {
        let mut choices = Choices::standard(&bundle.model.network, Kit::JAGUAR);
        choices.backends[4] = Kit::CHEETAH;
        choices.backends[7] = kit().backend("hyena-conventional").expect("there");
        service(bundle, choices, Reveal::Logits)
    }));
    for backend in ["jaguar", "cirencode"] {
        let id = kit().backend(backend).expect("there");
        let name = format!("{backend} in skew-circulant blocks");
        ways.push(Way::new(&name, Some(Blocks::skew(4)), move |b| standard(b, id, Reveal::Logits)));
    }
    let swish = move |b| standard(b, Kit::JAGUAR, Reveal::Logits);
    ways.push(Way::of("products", || network(None, true), swish));
    ways.push(Way::new("label", None, move |b| standard(b, Kit::JAGUAR, Reveal::Label)));
    ways
}
