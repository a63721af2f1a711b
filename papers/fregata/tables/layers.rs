//! The single layers of Fregata's paper, and of others, as networks that a session runs.

use anyhow::Result;
use jaguar_engine::bundle::Bundle;
use jaguar_graph::network::{
    Bias, Input, InputSpec, Linear, Model, Network, Node, Op, OutputSpec, Relu, Shape, Weights,
};

/// f, and the widths of an activation and of a weight: those of the other benchmarks.
pub const SHIFT: u32 = 12;
pub const ACTIVATION_BITS: u32 = 16;
pub const WEIGHT_BITS: u32 = 12;

/// A layer of Tables V and VI, a chain of Figure 7, or another paper's layer.
pub struct Case {
    pub name: &'static str,
    pub what: String,
    pub in_shape: Shape,
    pub layers: Vec<Linear>,
    /// Whether a ReLU follows each of them.
    pub relus: bool,
}

fn fully_connected(outputs: usize) -> Linear {
    Linear { pads: [0; 4], ..Linear::same(outputs, 1, SHIFT) }
}

/// Tables V and VI. (The paper does not tell pads; with these a stride of two halves the size.)
pub fn linear() -> Vec<Case> {
    let dense = |name, outputs: usize, inputs: usize| Case {
        name,
        what: format!("{outputs} x {inputs}"),
        in_shape: [inputs, 1, 1],
        layers: vec![fully_connected(outputs)],
        relus: false,
    };
    let convolution = |name, [size, inputs, outputs, kernel, stride]: [usize; 5]| Case {
        name,
        what: format!("{size}x{size}, {inputs}>{outputs}, {kernel}x{kernel}/{stride}"),
        in_shape: [inputs, size, size],
        layers: vec![Linear { stride: [stride; 2], ..Linear::same(outputs, kernel, SHIFT) }],
        relus: false,
    };
    vec![
        dense("FC1", 128, 16),
        dense("FC2", 64, 128),
        dense("FC3", 1024, 128),
        convolution("Conv1", [16, 32, 32, 1, 1]),
        convolution("Conv2", [32, 64, 32, 5, 2]),
        convolution("Conv3", [64, 128, 128, 3, 2]),
    ]
}

/// Figure 7's linear layers with ReLUs behind them, there and back again: what overlaps is one layer's messages with
/// the next one's computing, so there must be a next one.
pub fn chains() -> Vec<Case> {
    let chain = |name, [m, n, k]: [usize; 3]| {
        // k places as a map: nothing but their number matters to a kernel of 1 x 1.
        let height = 1 << (k.ilog2() / 2);
        Case {
            name,
            what: format!("{m} x {n} x {k}, ReLU, {n} x {m} x {k}, ReLU"),
            in_shape: [n, height, k / height],
            layers: vec![fully_connected(m), fully_connected(n)],
            relus: true,
        }
    };
    vec![chain("BC1", [1024, 128, 4096]), chain("BC2", [512, 256, 4096]), chain("BC3", [512, 128, 2048])]
}

impl Case {
    /// It as a model with weights of no meaning.
    pub fn bundle(&self, guard_bits: u32) -> Result<Bundle> {
        let mut nodes =
            vec![Node { name: "input".into(), op: Op::new(Input), inputs: vec![], shape: self.in_shape }];
        let mut weights = vec![None];
        for (i, spec) in self.layers.iter().enumerate() {
            let from = nodes.len() - 1;
            let in_shape = nodes[from].shape;
            let [h, w] = spec.output_hw(in_shape).expect("the kernel fits");
            let shape = [spec.out_channels, h, w];
            let count = spec.out_channels * (in_shape[0] / spec.groups) * spec.kernel[0] * spec.kernel[1];
            let bound = 1i64 << (WEIGHT_BITS - 1);
            weights.push(Some(Weights {
                weights: (0..count as i64).map(|i| (i * 7919 % (2 * bound - 1) - bound + 1) as i16).collect(),
                exponents: Vec::new(),
                bias: Bias::PerChannel(vec![0; spec.out_channels]),
            }));
            nodes.push(Node {
                name: format!("linear{i}"),
                op: Op::new(spec.clone()),
                inputs: vec![from],
                shape,
            });
            if self.relus {
                let op = Op::new(Relu { ignored: 0 });
                nodes.push(Node { name: format!("relu{i}"), op, inputs: vec![nodes.len() - 1], shape });
                weights.push(None);
            }
        }
        let network = Network {
            name: self.name.into(),
            activation_bits: ACTIVATION_BITS,
            guard_bits: 0,
            noise_bits: 0,
            weight_bits: WEIGHT_BITS,
            input: InputSpec::plain(1.0),
            output: OutputSpec::plain(1.0),
            nodes,
        };
        let scales = vec![1.0; network.nodes.len()];
        Ok(Bundle::with_hiding(Model { network, weights, scales, leverage: None }, guard_bits)?)
    }
}
