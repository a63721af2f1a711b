//! The integer network: what the two parties evaluate together.
//!
//! Every value is a tensor `[C, H, W]` (row-major) of signed integers; an integer `v` of a value with scale `S`
//! stands for the real number `v / S`. A [`Network`] is public: architecture, widths and shifts, labels and
//! preprocessing, and no weight. The weights are in [`Weights`], which only the server ever holds.

use std::collections::BTreeMap;

use serde::Serialize;

pub use crate::ir::blocks::{BLOCK_SIZES, BlockKind, Blocks, Misplaced};
pub use crate::ir::convolution::{Bias, Weights, block_size, possible_sizes};
pub use crate::ir::error::{NetworkError, NodeError};
pub use crate::ir::guard::{DEFAULT_GUARD_BITS, DEFAULT_HIDDEN_FOR, Hiding, LEAST_NOISE_BITS, hidden_for};
pub use crate::ir::limits::{
    ACTIVATION_BITS, MAX_ELEMENTS, MAX_MULTIPLY_ADDS, MAX_NODES, MAX_NOISE_BITS, MAX_TOTAL_ELEMENTS,
    MAX_WEIGHTS, NOISE_MARGIN, may_guard,
};
pub use crate::ir::reading::ReadError;
pub use crate::ir::seen::Seen;
pub use crate::ir::shape::{NodeId, Shape, elements};
pub use crate::ir::specs::{
    Filter, Finish, ImageSpec, InputSpec, OutputPart, OutputSpec, Resize, softmax, without_names,
};
pub use crate::ops::curve::{Level, Straight};
pub use crate::ops::integer::*;
pub use crate::ops::narrow::Narrow;
pub use crate::ops::operator::{
    Effort, Excess, Interactive, Joined, Local, Makes, Part, Place, Ran, Scale, Shares, Sign, Signs, Takes,
    Work,
};
pub use crate::ops::window::Window;
pub use crate::ops::{Op, OperatorKind, Operators, output_shape};
pub use jaguar_mpc::semantics::argmax;

/// The public description of a quantised network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Network {
    /// The model's name, for people.
    pub name: String,
    /// n: nonlinear layers take shares mod 2^n; every value that one of them (or a linear layer) makes lies in
    /// `-2^(n-1) .. 2^(n-1)`.
    pub activation_bits: u32,
    /// g: the lowest g of those bits are *guard bits*. A rounding, which the client knows, moves a value by 2^-g of the last
    /// place above them at most, and the server's noise in what is opened hides that ([`Self::noise_bits`],
    /// [`Model::guarded`]). 0: there is neither.
    pub guard_bits: u32,
    /// b: the server adds to each opened value the sum of four numbers that are uniform in `0 .. 2^b`, less its mean
    /// ([`jaguar_mpc::semantics::opened_noise`]). 0 where nothing is added, as without guard bits.
    pub noise_bits: u32,
    /// Weights lie in `-(2^(weight_bits-1) - 1) ..= 2^(weight_bits-1) - 1`, times two to their channel's exponent; at
    /// most 16.
    pub weight_bits: u32,
    /// In topological order; `nodes[0]` is the input and the last one the output.
    pub nodes: Vec<Node>,
    /// How an image becomes the input tensor.
    pub input: InputSpec,
    /// What the output means: its scale, its parts, the names of the classes.
    pub output: OutputSpec,
}

/// One operation and the value that it makes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// What it is called, by both parties. An import calls it as the ONNX node (or the last one that was fused into this) is
    /// called; a compiled model by its kind and number, unless asked otherwise ([`Network::without_names`]).
    pub name: String,
    /// What is computed, with public parameters only.
    pub op: Op,
    /// Whose values it takes; each smaller than this node's own index.
    pub inputs: Vec<NodeId>,
    /// The shape of the value that it makes.
    pub shape: Shape,
}

impl Node {
    /// Whether both of two inputs are one value: `x·x`.
    pub fn inputs_are_same(&self) -> bool {
        matches!(self.inputs[..], [first, second] if first == second)
    }
}

/// A quantised model, whole: the server's secret.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// The public part, all that the client gets to know.
    pub network: Network,
    /// By node; `Some` exactly for the linear ones.
    pub weights: Vec<Option<Weights>>,
    /// S by node: the integer v stands for v / S.
    pub scales: Vec<f64>,
    /// How much a hidden channel weighs at most in what is opened, where it was measured ([`mod@crate::leverage`]).
    pub leverage: Option<f64>,
}

impl Network {
    /// The network with names that tell nothing of the file that it comes from: each node is called by its kind and number
    /// (`conv 3`), each output by its number. The model's own name and the names of the classes stay: whoever compiles gives them.
    #[must_use]
    pub fn without_names(mut self) -> Self {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for node in &mut self.nodes {
            // The first word of a description is the kind: the rest are sizes.
            let kind = node.op.describe().split([' ', ',']).next().unwrap_or_default().to_owned();
            let number = seen.entry(kind.clone()).or_default();
            *number += 1;
            node.name = if node.op.part() == Part::Input { kind } else { format!("{kind} {number}") };
        }
        self.output.parts = without_names(self.output.parts);
        self
    }

    /// Whether both inputs of a node are one value that its protocol takes once.
    pub fn takes_once(&self, id: NodeId) -> bool {
        let node = &self.nodes[id];
        let shapes = || node.inputs.iter().map(|&input| self.nodes[input].shape).collect::<Vec<_>>();
        match node.op.work() {
            Work::Interactive(operator) => node.inputs_are_same() && operator.takes_once(&shapes()),
            Work::Input | Work::Linear(_) | Work::Local(_) => false,
        }
    }

    /// The value that a node only gives another shape: each image's numbers stay in their order.
    pub fn reshaped(&self, id: NodeId) -> Option<NodeId> {
        let node = &self.nodes[id];
        let reshapes = node.op.downcast_ref() == Some(&Rearrange::Reshape);
        node.inputs.first().copied().filter(|_| reshapes)
    }

    /// How many nodes have signs of reduced precision, and so may err where others do not.
    pub fn reduced_signs(&self) -> usize {
        self.nodes.iter().filter(|n| self.left_out(&n.op).is_some()).count()
    }

    /// How many low bits besides the guard bits the signs of an operation leave out; `None` where that makes no
    /// difference.
    pub fn left_out(&self, op: &Op) -> Option<u32> {
        op.ignored().and_then(|ignored| ignored.checked_sub(self.guard_bits)).filter(|&bits| bits > 1)
    }

    /// An operation in a few words, with what its signs leave out.
    pub fn describe(&self, op: &Op) -> String {
        let what = op.describe();
        match self.left_out(op) {
            Some(bits) => format!("{what} without {bits} bits"),
            None => what,
        }
    }

    /// By node: into how many bits its values fit as signed integers, `-2^(b-1) .. 2^(b-1)`. What a linear or
    /// nonlinear layer makes has n bits, or fewer where a curve's lines say that values are small or where it is [`Narrow`]; a [`SumPool`] adds the
    /// logarithm of its window (with the multiplier); [`Rearrange`] passes on the widest input; a [`Concat`] and an [`Add`]
    /// do, too, and have n bits at least: an [`Add`] stays within its scale class, for which calibration keeps n bits.
    ///
    /// For a network that passed [`Network::validate`].
    pub fn value_bits(&self) -> Vec<u32> {
        let mut bits: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let widest = node
                .inputs
                .iter()
                .filter_map(|&i| bits.get(i))
                .copied()
                .max()
                .unwrap_or(self.activation_bits);
            bits.push(node.op.value_bits(widest, self.activation_bits));
        }
        bits
    }

    /// By node: whether its value cannot be negative.
    pub fn non_negative(&self) -> Vec<bool> {
        let mut known: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            known.push(match node.op.sign() {
                Sign::NonNegative => true,
                Sign::Any => false,
                Sign::Inherited => node.inputs.iter().all(|&i| known.get(i) == Some(&true)),
            });
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_kind_and_number() {
        let window = Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] };
        let linear = |groups| {
            Op::new(Linear {
                out_channels: 4,
                kernel: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                pads: [0; 4],
                groups,
                shift: 4,
                max_exponent: 0,
                blocks: None,
            })
        };
        let ops = [
            Op::new(Input),
            linear(1),
            Op::new(Relu { ignored: 0 }),
            linear(4),
            Op::new(MaxPool { window: window.clone(), ignored: 0 }),
            linear(1),
            Op::new(Relu { ignored: 3 }),
            Op::new(SumPool { window, count_real_places: None }),
        ];
        let node = |op| Node { name: "backbone/stage".into(), op, inputs: Vec::new(), shape: [4, 4, 4] };
        let part = |name: &str| OutputPart { name: name.into(), dims: vec![4], finish: Finish::None };
        let network = Network {
            name: "mine".into(),
            activation_bits: 16,
            guard_bits: 0,
            noise_bits: 0,
            weight_bits: 15,
            nodes: ops.map(node).into(),
            input: InputSpec::plain(1.0),
            output: OutputSpec { parts: vec![part("a"), part("b")], ..OutputSpec::plain(1.0) },
        };
        let public = network.without_names();
        let names: Vec<&str> = public.nodes.iter().map(|node| node.name.as_str()).collect();
        let expected =
            ["input", "conv 1", "relu 1", "depthwise 1", "max-pool 1", "conv 2", "relu 2", "average 1"];
        assert_eq!(names, expected);
        assert_eq!((public.name.as_str(), public.output.parts[1].name.as_str()), ("mine", "output 2"));
        assert_eq!(without_names(vec![part("a")])[0].name, "output");
    }
}
