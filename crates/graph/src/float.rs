//! The float graph that an ONNX file becomes, and its interpreter: the baseline that the integer network is
//! compared with, and what calibration watches.
//!
//! Every value is `[C, H, W]`, row-major, whatever the ONNX file's layout was. The operations match those of
//! [`crate::network::Op`] one to one, so that node i of a float graph is node i of the network made from it.

use jaguar_ring::cpu::Cpu;

use crate::ir::kernel::convolve;
use crate::network::{self, NodeId, OutputPart, Rearrange, Shape, Window};
use crate::ops::operator::{Known, Sign};
use crate::ops::rearrange::rearrange;
use crate::ops::window::pool;

/// An imported network in floating point.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The model's name, for people.
    pub name: String,
    /// In topological order; `nodes[0]` is the input and the last one the output.
    pub nodes: Vec<Node>,
    /// A constant affine map at the graph's head, by channel: `t' = t·mul + add`. Empty: none.
    pub affine: Vec<(f32, f32)>,
    /// What the file calls the node that became this map (the last one, if they were several); empty if there is none.
    pub affine_name: String,
    /// Whether the ONNX model takes `[H, W, C]`.
    pub channels_last: bool,
    /// The ONNX input's own dimensions without the batch; empty for a graph that no file gave.
    pub layout_dims: Vec<usize>,
    /// The ONNX outputs that the last value consists of, and what is left to whoever gets it; empty: one, as it is.
    pub outputs: Vec<OutputPart>,
}

/// One operation and the value that it makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name of the ONNX node (or of the last one that was fused into this).
    pub name: String,
    /// What is computed, with its weights.
    pub op: Op,
    /// Whose values it takes; in a finished graph each smaller than this node's own index.
    pub inputs: Vec<NodeId>,
    /// The shape of the value that it makes.
    pub shape: Shape,
}

/// The operations of a float graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// The network's input.
    Input,
    /// Convolution or fully connected layer.
    Linear(Linear),
    /// `x·mul + add` by channel. Only while a graph is being imported: fusion turns each into part of a linear
    /// layer.
    Affine(Affine),
    /// `x` where it is positive, `x·slope` elsewhere, by channel. Only while a graph is being imported: fusion makes
    /// it of a ReLU and a linear layer.
    Prelu {
        /// `[C]`.
        slope: Vec<f32>,
    },
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), ceiling)`; ReLU6 has the ceiling 6.
    Clip {
        /// The upper bound, positive and finite.
        ceiling: f32,
    },
    /// The largest value of each window; padding never wins.
    MaxPool(Window),
    /// The mean of each window.
    AveragePool {
        /// The windows.
        window: Window,
        /// Divide by the window's size, or only by how many of its places lie inside the image.
        count_padding: bool,
    },
    /// Two values of the same shape.
    Add,
    /// `gain·(a + o_a)·(b + o_b)`: of two values, of which the second has the first one's shape or is one number a
    /// channel, `[C, 1, 1]`.
    Product {
        /// Positive and finite.
        gain: f32,
        /// What is added to each factor first.
        offsets: [f32; 2],
    },
    /// Along the channels.
    Concat,
    /// Moves values about.
    Rearrange(Rearrange),
}

/// A convolution (a fully connected layer has the kernel `[H, W]` of its whole input).
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Its geometry; `shift` is 0, since nothing is quantised yet.
    pub spec: network::Linear,
    /// `[C_out, C_in/groups, k_h, k_w]`, row-major.
    pub weights: Vec<f32>,
    /// What is added to `Σ w·x`, in the units of the output.
    pub bias: Bias,
}

/// `x·mul + add`.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    /// The factor of each channel, `[C]`.
    pub mul: Vec<f32>,
    /// Added after the multiplication.
    pub add: Bias,
}

/// What is added to a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Bias {
    /// One number per channel, `[C]`.
    PerChannel(Vec<f32>),
    /// One number per element, `[C, H, W]`.
    PerElement(Vec<f32>),
}

impl Bias {
    /// Adds it to a value of this shape.
    fn add_to(&self, shape: Shape, values: &mut [f32]) {
        match self {
            Bias::PerChannel(add) => {
                for (plane, add) in values.chunks_exact_mut(shape[1] * shape[2]).zip(add) {
                    plane.iter_mut().for_each(|v| *v += add);
                }
            }
            Bias::PerElement(add) => values.iter_mut().zip(add).for_each(|(v, add)| *v += add),
        }
    }

    /// By element of a value of this shape.
    pub(crate) fn spread(&self, shape: Shape) -> Vec<f32> {
        let mut values = vec![0.0; shape.iter().product()];
        self.add_to(shape, &mut values);
        values
    }

    /// Whether it adds nothing.
    pub(crate) fn is_zero(&self) -> bool {
        let (Bias::PerChannel(add) | Bias::PerElement(add)) = self;
        add.iter().all(|&v| v == 0.0)
    }
}

impl Op {
    /// What the operation is called in reports.
    pub fn name(&self) -> &'static str {
        self.integer(&Known::default()).map_or("unfused", |op| op.name())
    }

    /// The integer operation with the same geometry, as far as it is `known` (a linear layer's shift is 0); `None` for
    /// [`Op::Affine`] and [`Op::Prelu`], which have none.
    pub(crate) fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        Some(match self {
            Op::Input => network::Op::new(network::Input),
            Op::Linear(linear) => network::Op::new(linear.spec.clone()),
            Op::Affine(_) | Op::Prelu { .. } => return None,
            Op::Relu => network::Op::new(network::Relu { ignored: 0 }),
            Op::Clip { ceiling } => network::Op::new(network::Relu6::clipping(*ceiling, known)),
            Op::MaxPool(window) => network::Op::new(network::MaxPool { window: window.clone(), ignored: 0 }),
            Op::AveragePool { window, count_padding } => {
                network::Op::new(network::SumPool::averaging(window, *count_padding, known))
            }
            Op::Add => network::Op::new(network::Add),
            Op::Product { gain, offsets } => network::Op::new(network::Product::of(*gain, *offsets, known)),
            Op::Concat => network::Op::new(network::Concat),
            Op::Rearrange(rearrange) => network::Op::new(rearrange.clone()),
        })
    }

    /// Whether the operation's value can be negative.
    pub(crate) fn sign(&self) -> Sign {
        self.integer(&Known::default()).map_or(Sign::Any, |op| op.sign())
    }

    /// What the operation demands of the scale of its value.
    pub(crate) fn demands(&self) -> Demand {
        match self {
            Op::Clip { ceiling } => Demand::Power(*ceiling),
            Op::Product { gain, .. } => Demand::Shifted(*gain),
            Op::Input
            | Op::Linear(_)
            | Op::Affine(_)
            | Op::Prelu { .. }
            | Op::Relu
            | Op::MaxPool(_)
            | Op::AveragePool { .. }
            | Op::Add
            | Op::Concat
            | Op::Rearrange(_) => Demand::Nothing,
        }
    }

    /// The linear layer that the operation is, if it is one.
    pub fn linear(&self) -> Option<&Linear> {
        if let Op::Linear(linear) = self { Some(linear) } else { None }
    }

    /// [`Op::linear`], to be changed.
    pub fn linear_mut(&mut self) -> Option<&mut Linear> {
        if let Op::Linear(linear) = self { Some(linear) } else { None }
    }
}

/// What an operation demands of the scale of its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Demand {
    /// Nothing.
    Nothing,
    /// That this real number is a power of two: values are clipped there.
    Power(f32),
    /// That it is its factors' scales' product over this and a power of two.
    Shifted(f32),
}

impl Graph {
    /// The shape of the network's input, `[C, H, W]`.
    pub fn input_shape(&self) -> Shape {
        self.nodes[0].shape
    }

    /// All values, by node, for a tensor of the input's shape (before [`Graph::affine`], which is applied
    /// first, so that value 0 is what the first layer takes). `None` if the tensor has another length. Sums of products round
    /// once with instructions that `cpu` may have, twice without.
    pub fn run(&self, cpu: Cpu, tensor: &[f32]) -> Option<Vec<Vec<f32>>> {
        let [channels, h, w] = self.input_shape();
        if tensor.len() != channels * h * w {
            return None;
        }
        let mut input = tensor.to_vec();
        for (plane, (mul, add)) in input.chunks_exact_mut(h * w).zip(&self.affine) {
            plane.iter_mut().for_each(|t| *t = *t * mul + add);
        }
        let mut values: Vec<Vec<f32>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let inputs: Vec<(Shape, &[f32])> =
                node.inputs.iter().map(|&i| (self.nodes[i].shape, values[i].as_slice())).collect();
            let value =
                if let Op::Input = node.op { std::mem::take(&mut input) } else { apply(cpu, node, &inputs) };
            values.push(value);
        }
        Some(values)
    }

    /// The output for a tensor of the input's shape: logits, before any softmax or sigmoid. `None` as for
    /// [`Graph::run`].
    pub fn forward(&self, cpu: Cpu, tensor: &[f32]) -> Option<Vec<f32>> {
        self.run(cpu, tensor)?.pop()
    }
}

/// One node's value from its inputs' values. [`Op::Input`] has no value of its own: empty.
fn apply(cpu: Cpu, node: &Node, inputs: &[(Shape, &[f32])]) -> Vec<f32> {
    let Some(&(shape, x)) = inputs.first() else { return Vec::new() };
    match &node.op {
        Op::Input => Vec::new(),
        Op::Linear(linear) => {
            let mut values = convolve(cpu, &linear.spec, shape, &linear.weights, x);
            linear.bias.add_to(node.shape, &mut values);
            values
        }
        Op::Affine(affine) => {
            let mut values = x.to_vec();
            for (plane, mul) in values.chunks_exact_mut(shape[1] * shape[2]).zip(&affine.mul) {
                plane.iter_mut().for_each(|v| *v *= mul);
            }
            affine.add.add_to(shape, &mut values);
            values
        }
        Op::Prelu { slope } => {
            let mut values = x.to_vec();
            for (plane, slope) in values.chunks_exact_mut(shape[1] * shape[2]).zip(slope) {
                plane.iter_mut().filter(|v| **v < 0.0).for_each(|v| *v *= slope);
            }
            values
        }
        Op::Relu => x.iter().map(|v| v.max(0.0)).collect(),
        Op::Clip { ceiling } => x.iter().map(|v| v.max(0.0).min(*ceiling)).collect(),
        Op::MaxPool(window) => pool(window, shape, x, f32::NEG_INFINITY, f32::max, |best, _| best),
        Op::AveragePool { window, count_padding } => {
            let whole = (window.kernel[0] * window.kernel[1]) as f32;
            pool(
                window,
                shape,
                x,
                0.0,
                |a, b| a + b,
                |sum, real| sum / if *count_padding { whole } else { real as f32 },
            )
        }
        Op::Add => x.iter().zip(inputs[1].1).map(|(a, b)| a + b).collect(),
        Op::Product { gain, offsets: [first, second] } => {
            let factors = inputs[1].1;
            let each = x.len() / factors.len();
            x.iter().enumerate().map(|(i, a)| gain * (a + first) * (factors[i / each] + second)).collect()
        }
        Op::Concat => inputs.iter().flat_map(|(_, x)| x.iter().copied()).collect(),
        Op::Rearrange(r) => rearrange(r, shape, node.shape, x),
    }
}
