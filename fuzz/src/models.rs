//! Small networks with random weights.

use jaguar_graph::bundle::Bundle;
use jaguar_graph::network::{
    Add, Bias, Input, InputSpec, Linear, MaxPool, Model, Network, Node, Op, OutputSpec, Product, Rearrange,
    Relu, Relu6, Scale, Shape, SumPool, Weights, Window,
};
use jaguar_linear::plaintext_insecure;
use jaguar_plan::Kit;
use jaguar_ring::prg::Prg;

/// Every backend that there is, those that protect nothing among them; and comparisons that leak, if this is built with
/// them.
pub fn kit() -> Kit {
    let all = Kit::standard().with(jaguar_fregata::ALL).with(jaguar_hyena::ALL).with(plaintext_insecure::ALL);
    all.with_comparisons(jaguar_fregata::COMPARISONS)
}

/// A network under construction.
struct Builder {
    network: Network,
    weights: Vec<Option<Weights>>,
    prg: Prg,
}

impl Builder {
    fn new(shape: Shape) -> Self {
        let network = Network {
            name: "small".into(),
            activation_bits: 16,
            guard_bits: 0,
            noise_bits: 0,
            weight_bits: 12,
            nodes: vec![Node { name: "input".into(), op: Op::new(Input), inputs: vec![], shape }],
            input: InputSpec::plain(1.0),
            output: OutputSpec::plain(1.0),
        };
        Self { network, weights: vec![None], prg: Prg::new([42; 32]) }
    }

    fn add(&mut self, op: Op, inputs: &[usize], shape: Shape) -> usize {
        let id = self.network.nodes.len();
        self.network.nodes.push(Node { name: format!("node {id}"), op, inputs: inputs.to_vec(), shape });
        self.weights.push(None);
        id
    }

    /// A convolution that leaves height and width as they are.
    fn conv(&mut self, input: usize, out: usize, kernel: usize, groups: usize) -> usize {
        let [c, h, w] = self.network.nodes[input].shape;
        let spec = Linear { groups, max_exponent: 2, ..Linear::same(out, kernel, 12) };
        let terms = c / groups * kernel * kernel;
        let exponents: Vec<u8> = (0..out).map(|d| (d % 3) as u8).collect();
        let prg = &mut self.prg;
        let count = exponents.iter().flat_map(|&e| std::iter::repeat_n(e, terms));
        let weights = count.map(|e| ((prg.next_u64() % 400) as i16 - 200) >> e).collect();
        let bias = Bias::PerChannel((0..out).map(|i| i as i64 * 1000).collect());
        let id = self.add(Op::new(spec), &[input], [out, h, w]);
        self.weights[id] = Some(Weights { weights, exponents, bias });
        id
    }

    fn model(self) -> Model {
        let mut scales: Vec<f64> = Vec::new();
        for node in &self.network.nodes {
            scales.push(match node.op.scale() {
                Scale::Own => 1.0,
                Scale::Inherited | Scale::Gained(_) => scales[node.inputs[0]] * node.op.scale_gain() as f64,
            });
        }
        Model { network: self.network, weights: self.weights, scales, leverage: None }
    }
}

/// Every operation once, in the smallest size: `[2, 6, 5]` in, 4 out.
pub fn everything() -> Model {
    let mut b = Builder::new([2, 6, 5]);
    let stem = b.conv(0, 4, 3, 1);
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0, 0, 0, 1] };
    let pooled = b.add(Op::new(MaxPool { window, ignored: 0 }), &[stem], [4, 3, 3]);
    let relu = b.add(Op::new(Relu { ignored: 0 }), &[pooled], [4, 3, 3]);
    let depth = b.conv(relu, 4, 3, 4);
    let six = b.add(Op::new(Relu6 { log2_six: 11, ignored: 0 }), &[depth], [4, 3, 3]);
    let product = b.add(Op::new(Product { shift: 11, offsets: [-1024, 0] }), &[depth, six], [4, 3, 3]);
    let sum = b.add(Op::new(Add), &[product, relu], [4, 3, 3]);
    let twice = b.conv(sum, 4, 1, 1); // linear after linear: an extension
    let window = Window { kernel: [2; 2], stride: [1; 2], pads: [0; 4] };
    let mean = b.add(Op::new(SumPool { window, count_real_places: None }), &[twice], [4, 2, 2]);
    let slice = Rearrange::Slice { start: [0, 0, 0], step: [1, 2, 1] };
    let sliced = b.add(Op::new(slice), &[mean], [4, 1, 2]);
    let flat = b.add(Op::new(Rearrange::Reshape), &[sliced], [8, 1, 1]);
    b.conv(flat, 4, 1, 1);
    b.model()
}

/// A convolution, a ReLU, a convolution: for backends whose ciphertexts are large.
pub fn short() -> Model {
    let mut b = Builder::new([1, 4, 4]);
    let stem = b.conv(0, 2, 3, 1);
    let relu = b.add(Op::new(Relu { ignored: 0 }), &[stem], [2, 4, 4]);
    b.conv(relu, 2, 1, 1);
    b.model()
}

/// A model with a secret, to be served.
///
/// # Panics
/// When the model is not sound.
pub fn bundle(model: Model) -> Bundle {
    Bundle::with_hiding(model, 0).expect("a sound model")
}

/// An input for a network.
pub fn input(network: &Network) -> Vec<i64> {
    let count: usize = network.nodes[0].shape.iter().product();
    (0..count as i64).map(|i| i * 37 % 512 - 256).collect()
}
