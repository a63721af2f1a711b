//! The integer network: what the two parties evaluate together.
//!
//! Every value is a tensor `[C, H, W]` (row-major) of signed integers; an integer `v` of a value with scale `S`
//! stands for the real number `v / S`. A [`Network`] is public: architecture, widths and shifts, labels and
//! preprocessing, and no weight. The weights are in [`Weights`], which only the server ever holds.

use jaguar_bracket::Bracket;
use serde::{Deserialize, Serialize};

pub use crate::seen::Seen;
pub use crate::validate::{
    MAX_ELEMENTS, MAX_MULTIPLY_ADDS, MAX_NODES, MAX_TOTAL_ELEMENTS, MAX_WEIGHTS, NetworkError, NodeError,
    output_shape,
};

/// `[channels, height, width]`. A vector is `[len, 1, 1]`.
pub type Shape = [usize; 3];

/// The index of a node in [`Network::nodes`], and of the value that it makes.
pub type NodeId = usize;

/// The public description of a quantised network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// The model's name, for people.
    pub name: String,
    /// n: nonlinear layers take shares mod 2^n; every value that one of them (or a linear layer) makes lies in
    /// `-2^(n-1) .. 2^(n-1)`.
    pub activation_bits: u32,
    /// Weights lie in `-(2^(weight_bits-1) - 1) ..= 2^(weight_bits-1) - 1`, times two to their channel's exponent; at
    /// most 16.
    pub weight_bits: u32,
    /// In topological order; `nodes[0]` is the input and the last one the output.
    pub nodes: Vec<Node>,
    /// How an image becomes the input tensor.
    pub input: InputSpec,
    /// What the output means.
    pub output: OutputSpec,
}

/// One operation and the value that it makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The name of the ONNX node (or of the last one that was fused into this).
    pub name: String,
    /// What is computed.
    pub op: Op,
    /// Whose values it takes; each smaller than this node's own index.
    pub inputs: Vec<NodeId>,
    /// The shape of the value that it makes.
    pub shape: Shape,
}

/// The operations of the integer network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// The client's input.
    Input,
    /// Convolution or fully connected layer: `y = (Σ w·x + bias) / 2^shift`, rounded to a neighbour.
    Linear(Linear),
    /// `max(x, 0)`.
    Relu {
        /// The sign leaves out this many low bits, at most n - 4: where `0 <= x < 2^ignored - 1` the result may be 0 instead of x.
        /// None and one are exact. More than one is chosen at compile time only, by calibration and on request
        /// ([`crate::signs`]).
        ignored: u32,
    },
    /// `min(max(x, 0), 2^log2_six)`: the scale is such that the real 6 (or whatever other bound the model clips
    /// at) is the integer 2^log2_six.
    Relu6 {
        /// j with 6·S = 2^j.
        log2_six: u32,
        /// As for [`Op::Relu`], and less than `log2_six`. Here the upper bound's comparison leaves them out too: x may remain where
        /// `2^log2_six < x < 2^log2_six + 2^ignored - 1`.
        ignored: u32,
    },
    /// The largest value of each window; padding never wins.
    MaxPool {
        /// The windows.
        window: Window,
        /// Its comparisons leave out this many low bits, at most n - 4: of two values less than `2^(ignored-1)` apart either may win, so
        /// the result may be as much below the largest for each level of [`Window::bracket`]. Otherwise as for [`Op::Relu`].
        ignored: u32,
    },
    /// The sum of each window, times a small public integer where the window hangs over the border (so that
    /// averages that do not count the padding come out right). The division is in the consumer's scale.
    SumPool {
        /// The windows.
        window: Window,
        /// For averages that do not count the padding: the output at `(oh, ow)` is the sum times
        /// `full / real` where `full` is this number and `real` how many of the window's places lie inside
        /// the image; `real` divides `full` everywhere. `None`: the plain sum.
        count_real_places: Option<u32>,
    },
    /// Two values of the same scale and shape.
    Add,
    /// Along the channels; all inputs of the same scale.
    Concat,
    /// Moves values about, and puts zeros where none came from.
    Rearrange(Rearrange),
}

/// Operations that only move values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rearrange {
    /// Zeros before and after, by axis.
    Pad {
        /// By axis `[C, H, W]`.
        before: Shape,
        /// By axis `[C, H, W]`.
        after: Shape,
    },
    /// Output index i of an axis is input index `start + i·step`.
    Slice {
        /// By axis.
        start: Shape,
        /// By axis, at least 1.
        step: Shape,
    },
    /// Axis i of the output is axis `perm[i]` of the input.
    Transpose {
        /// A permutation of 0, 1, 2.
        perm: [usize; 3],
    },
    /// The same values in row-major order under another shape.
    Reshape,
    /// Picks indices axis by axis: permutes channels, repeats pixels, spreads them with zeros between.
    Select {
        /// By axis, for each output index the input index that it takes, or `None` for zeros. Empty: the whole axis
        /// as it is.
        axes: [Vec<Option<usize>>; 3],
    },
}

/// A convolution (a fully connected layer has the kernel `[H, W]` of its whole input).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Linear {
    /// C_out; divisible by `groups`.
    pub out_channels: usize,
    /// `[k_h, k_w]`.
    pub kernel: [usize; 2],
    /// `[s_h, s_w]`.
    pub stride: [usize; 2],
    /// `[d_h, d_w]`.
    pub dilation: [usize; 2],
    /// Rows and columns of zeros: `[top, left, bottom, right]`.
    pub pads: [usize; 4],
    /// C_in and C_out are divided into this many parts that see each other only; C_in for depthwise.
    pub groups: usize,
    /// f: how many bits the products gain, and the result is shifted down by.
    pub shift: u32,
    /// The largest of the layer's [`Weights::exponents`] may be this. Public: it bounds the noise.
    pub max_exponent: u32,
}

/// The windows of a pooling layer. Output size by axis: `(in + pads - kernel) / stride + 1`, rounded down
/// (rounding up is expressed by larger end pads).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// `[k_h, k_w]`.
    pub kernel: [usize; 2],
    /// `[s_h, s_w]`.
    pub stride: [usize; 2],
    /// `[top, left, bottom, right]`.
    pub pads: [usize; 4],
}

/// The secret of one linear layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// `[C_out, C_in/groups, k_h, k_w]`, row-major.
    pub weights: Vec<i16>,
    /// `[C_out]`: all weights of output channel d count 2^exponents\[d\] times. Empty: all exponents are 0.
    ///
    /// Channels of one layer may differ much in size. With an exponent each, large ones are rounded more coarsely, and
    /// small ones keep all their bits.
    pub exponents: Vec<u8>,
    /// Added to `Σ w·x` before the shift.
    pub bias: Bias,
}

impl Weights {
    /// The exponent of output channel `channel`.
    pub fn exponent(&self, channel: usize) -> u32 {
        self.exponents.get(channel).map_or(0, |&e| u32::from(e))
    }
}

/// What a linear layer adds, at the scale of its products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Bias {
    /// One value per output channel, `[C_out]`.
    PerChannel(Vec<i64>),
    /// One value per output, `[C_out, H_out, W_out]`: a shift that was folded forward through zero padding.
    PerElement(Vec<i64>),
}

/// A quantised model, whole: the server's secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// What the client may know.
    pub network: Network,
    /// By node; `Some` exactly for the linear ones.
    pub weights: Vec<Option<Weights>>,
    /// S by node: the integer v stands for v / S.
    pub scales: Vec<f64>,
}

/// What the client does with an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputSpec {
    /// S of the input: the tensor's value t becomes the integer round(t·S), clamped to the activation range.
    pub scale: f64,
    /// Image to tensor.
    pub image: ImageSpec,
    /// A constant affine map at the graph's head, by channel: `t' = t·mul + add`. Empty: none.
    pub affine: Vec<(f32, f32)>,
    /// Whether the ONNX model takes `[H, W, C]` (for tensors given as files; images are laid out as needed).
    pub channels_last: bool,
    /// The ONNX input's own dimensions without the batch, as the file (or whoever imported it) gives them: `[C, H,
    /// W]`, `[H, W, C]` where the channels come last, `[C, H]` or `[C]`; a tensor file may have them, with a leading
    /// 1 or without. The elements run as those of the network's input `[C, H, W]`, unless the channels come last.
    /// Empty: as the input's shape says.
    pub layout_dims: Vec<usize>,
    /// The range of the tensors that calibration saw, before `affine`; `None` where it is not known.
    pub seen: Option<Seen>,
}

/// Image to tensor: resize, crop, order, `(pixel - mean) · factor` with pixels in 0..=255. The default leaves the pixels as
/// they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageSpec {
    /// Resize before the crop.
    pub resize: Resize,
    /// BGR instead of RGB.
    pub bgr: bool,
    /// By channel of the tensor (after the reordering).
    pub mean: Vec<f32>,
    /// By channel of the tensor.
    pub factor: Vec<f32>,
}

/// How an image is brought to the network's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resize {
    /// Straight to height and width, whatever the shape.
    #[default]
    Exact,
    /// The shorter side to this many pixels, then the centre is cut out.
    Shorter(u32),
}

/// What the output means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// S of the output.
    pub scale: f64,
    /// The ONNX outputs that the output consists of, flattened and one after the other. Empty: one without a name, as
    /// it is.
    pub parts: Vec<OutputPart>,
    /// Names by class; empty if none were given.
    pub labels: Vec<String>,
}

/// One ONNX output's place in the network's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputPart {
    /// What the ONNX model calls it.
    pub name: String,
    /// Its ONNX dimensions, the batch included. Their product is how many values of the output it takes.
    pub dims: Vec<usize>,
    /// What the ONNX model ends in, and the client applies to the values itself.
    pub finish: Finish,
}

/// What the client applies to an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// Nothing.
    #[default]
    None,
    /// A softmax over all values (or its logarithm, of which it is the exponential).
    Softmax,
    /// `1 / (1 + e^-v)`, value by value.
    Sigmoid,
}

/// How a window lies along one axis: `(size + before + after - extent) / stride + 1` with
/// `extent = (kernel - 1)·dilation + 1`. `None` if a parameter is zero, nothing fits, or a sum overflows.
fn places(
    size: usize,
    before: usize,
    after: usize,
    kernel: usize,
    dilation: usize,
    stride: usize,
) -> Option<usize> {
    let extent = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    let room = size.checked_add(before)?.checked_add(after)?.checked_sub(extent)?;
    if dilation == 0 { None } else { room.checked_div(stride)?.checked_add(1) }
}

/// The number of values in a tensor, if it can be counted.
pub fn elements(shape: Shape) -> Option<usize> {
    shape[0].checked_mul(shape[1])?.checked_mul(shape[2])
}

impl Op {
    /// How many low bits the operation's signs (a max-pool's are those of differences) leave out; `None` for operations that
    /// take no signs.
    pub fn ignored(&self) -> Option<u32> {
        match *self {
            Op::Relu { ignored } | Op::Relu6 { ignored, .. } | Op::MaxPool { ignored, .. } => Some(ignored),
            _ => None,
        }
    }

    /// [`Op::ignored`], to be changed.
    pub fn ignored_mut(&mut self) -> Option<&mut u32> {
        match self {
            Op::Relu { ignored } | Op::Relu6 { ignored, .. } | Op::MaxPool { ignored, .. } => Some(ignored),
            _ => None,
        }
    }

    /// How many low bits the operation's signs leave out, if that can make a difference.
    pub fn reduced(&self) -> Option<u32> {
        self.ignored().filter(|&ignored| ignored > 1)
    }

    /// What the operation is called in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input => "Input",
            Op::Linear(_) => "Linear",
            Op::Relu { .. } => "Relu",
            Op::Relu6 { .. } => "Relu6",
            Op::MaxPool { .. } => "MaxPool",
            Op::SumPool { .. } => "SumPool",
            Op::Add => "Add",
            Op::Concat => "Concat",
            Op::Rearrange(Rearrange::Pad { .. }) => "Pad",
            Op::Rearrange(Rearrange::Slice { .. }) => "Slice",
            Op::Rearrange(Rearrange::Transpose { .. }) => "Transpose",
            Op::Rearrange(Rearrange::Reshape) => "Reshape",
            Op::Rearrange(Rearrange::Select { .. }) => "Select",
        }
    }
}

impl Linear {
    /// A convolution of `kernel` x `kernel` that keeps an input's size (for odd kernels): stride 1, as many zeros around it, one group.
    pub fn same(out_channels: usize, kernel: usize, shift: u32) -> Self {
        Self {
            out_channels,
            kernel: [kernel; 2],
            stride: [1; 2],
            dilation: [1; 2],
            pads: [kernel / 2; 4],
            groups: 1,
            shift,
            max_exponent: 0,
        }
    }

    /// `[H_out, W_out]` over an input of shape `[C, H, W]`; `None` if the kernel does not fit or the parameters
    /// are out of range.
    pub fn output_hw(&self, input: Shape) -> Option<[usize; 2]> {
        let [top, left, bottom, right] = self.pads;
        Some([
            places(input[1], top, bottom, self.kernel[0], self.dilation[0], self.stride[0])?,
            places(input[2], left, right, self.kernel[1], self.dilation[1], self.stride[1])?,
        ])
    }

    /// How many weights the layer has over `in_channels` channels: `C_out · C_in/groups · k_h · k_w`. `None`
    /// if the channels are not divisible by the groups or the product overflows.
    pub fn weights_len(&self, in_channels: usize) -> Option<usize> {
        if self.groups == 0
            || !in_channels.is_multiple_of(self.groups)
            || !self.out_channels.is_multiple_of(self.groups)
        {
            return None;
        }
        self.out_channels
            .checked_mul(in_channels / self.groups)?
            .checked_mul(self.kernel[0])?
            .checked_mul(self.kernel[1])
    }

    /// Multiplications in plaintext, padding included; `None` where [`Linear::output_hw`] or
    /// [`Linear::weights_len`] is.
    pub fn multiply_adds(&self, input: Shape) -> Option<usize> {
        let [h, w] = self.output_hw(input)?;
        self.weights_len(input[0])?.checked_mul(h)?.checked_mul(w)
    }

    /// Whether each input channel makes its own output channels and sees no other.
    pub fn is_depthwise(&self, in_channels: usize) -> bool {
        self.groups == in_channels && in_channels > 1
    }
}

impl Window {
    /// `[H_out, W_out]` over `[H, W]`; `None` if the window does not fit or the parameters are out of range.
    pub fn output_hw(&self, input: [usize; 2]) -> Option<[usize; 2]> {
        let [top, left, bottom, right] = self.pads;
        Some([
            places(input[0], top, bottom, self.kernel[0], 1, self.stride[0])?,
            places(input[1], left, right, self.kernel[1], 1, self.stride[1])?,
        ])
    }

    /// How many places of the window at output index `at` of `axis` (0: rows, 1: columns) lie inside an
    /// input of `size`.
    pub fn real_places(&self, axis: usize, at: usize, size: usize) -> usize {
        let span = self.span(axis, at, size);
        span.end - span.start
    }

    /// The input indices along `axis` that the window at output index `at` covers, cut to `0..size`.
    pub fn span(&self, axis: usize, at: usize, size: usize) -> std::ops::Range<usize> {
        let start = (at * self.stride[axis]).saturating_sub(self.pads[axis]).min(size);
        let end = (at * self.stride[axis] + self.kernel[axis]).saturating_sub(self.pads[axis]).min(size);
        start..end.max(start)
    }

    /// In which order a max-pool compares in one channel of `[H, W]` input places.
    ///
    /// # Panics
    /// When a window covers nothing but padding, which no valid network's max-pool has.
    pub fn bracket(&self, input: [usize; 2]) -> Bracket {
        let output = self.output_hw(input).unwrap_or([0, 0]);
        let spans = [0, 1]
            .map(|axis| (0..output[axis]).map(|at| self.span(axis, at, input[axis])).collect::<Vec<_>>());
        Bracket::new(input, &spans[0], &spans[1])
    }
}

impl Op {
    /// The factor between the sum that a [`Op::SumPool`] gives and the average: its scale grows by as much. One
    /// for every other operation.
    pub fn scale_gain(&self) -> u64 {
        match self {
            Op::SumPool { count_real_places: Some(full), .. } => u64::from(*full),
            Op::SumPool { window, count_real_places: None } => {
                (window.kernel[0] as u64).saturating_mul(window.kernel[1] as u64)
            }
            _ => 1,
        }
    }
}

impl Network {
    /// How many nodes have signs of reduced precision, and so may err where others do not.
    pub fn reduced_signs(&self) -> usize {
        self.nodes.iter().filter(|n| n.op.reduced().is_some()).count()
    }

    /// By node: into how many bits its values fit as signed integers, `-2^(b-1) .. 2^(b-1)`. What a linear or
    /// nonlinear layer makes has n bits; a [`Op::SumPool`] adds the logarithm of its window (with the
    /// multiplier); [`Op::Concat`] and [`Op::Rearrange`] pass on the widest input; an [`Op::Add`] stays within
    /// its scale class, for which calibration keeps n bits.
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
            bits.push(match &node.op {
                Op::Input | Op::Linear(_) | Op::Relu { .. } | Op::Relu6 { .. } => self.activation_bits,
                Op::SumPool { .. } => {
                    widest + node.op.scale_gain().max(1).next_power_of_two().trailing_zeros()
                }
                Op::MaxPool { .. } | Op::Add | Op::Concat | Op::Rearrange(_) => widest,
            });
        }
        bits
    }
}

impl InputSpec {
    /// The input tensor (in `[C, H, W]` order, as [`crate::image_input`] makes it) as integers: the affine map,
    /// then `round(t·S)`, clamped to `-2^(n-1) .. 2^(n-1)`.
    ///
    /// `tensor` is split evenly over the channels of `affine`; a tensor whose length is not a multiple of their
    /// number keeps its tail untouched by the map.
    pub fn quantise(&self, tensor: &[f32], activation_bits: u32) -> Vec<i64> {
        let limit = f64::from(activation_bits.clamp(1, 62) - 1).exp2();
        self.scaled(tensor).map(|v| v.clamp(-limit, limit - 1.0) as i64).collect()
    }

    /// How many values of the tensor [`quantise`](Self::quantise) clamps.
    pub fn clamped(&self, tensor: &[f32], activation_bits: u32) -> usize {
        let limit = f64::from(activation_bits.clamp(1, 62) - 1).exp2();
        self.scaled(tensor).filter(|v| !(-limit..limit).contains(v)).count()
    }

    fn scaled(&self, tensor: &[f32]) -> impl Iterator<Item = f64> {
        let per_channel = (tensor.len() / self.affine.len().max(1)).max(1);
        let map =
            move |i: usize, t: f32| self.affine.get(i / per_channel).map_or(t, |&(mul, add)| t * mul + add);
        tensor.iter().enumerate().map(move |(i, &t)| (f64::from(map(i, t)) * self.scale).round())
    }
}

impl OutputSpec {
    /// The output's integers as real numbers, before any [`Finish`].
    pub fn logits(&self, values: &[i64]) -> Vec<f64> {
        values.iter().map(|&v| v as f64 / self.scale).collect()
    }

    /// What the ONNX model would give: the logits, with each part's [`Finish`] applied.
    pub fn finish(&self, values: &[i64]) -> Vec<f64> {
        let logits = self.logits(values);
        if self.parts.is_empty() {
            return logits;
        }
        self.split(&logits).flat_map(|(part, logits)| part.finish.apply(logits)).collect()
    }

    /// Each part with its values, of an output of the right length. (None of them where there are no parts.)
    pub fn split<'a, T>(&'a self, values: &'a [T]) -> impl Iterator<Item = (&'a OutputPart, &'a [T])> {
        let mut rest = values;
        self.parts.iter().map(move |part| {
            let (own, others) = rest.split_at(part.count().unwrap_or(0).min(rest.len()));
            rest = others;
            (part, own)
        })
    }
}

impl OutputPart {
    /// How many values it has, if they can be counted.
    pub fn count(&self) -> Option<usize> {
        self.dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim))
    }
}

impl Finish {
    /// What it makes of the values of one output.
    pub fn apply(self, values: &[f64]) -> Vec<f64> {
        match self {
            Finish::None => values.to_vec(),
            Finish::Softmax => softmax(values),
            Finish::Sigmoid => values.iter().map(|v| 1.0 / (1.0 + (-v).exp())).collect(),
        }
    }
}

/// e^v by its sum over all values: what a softmax makes of logits.
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut values: Vec<f64> = logits.iter().map(|v| (v - top).exp()).collect();
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|v| *v /= sum);
    values
}

/// The index of the largest value, the first of equals; 0 for an empty slice.
pub fn argmax<T: PartialOrd + Copy>(values: &[T]) -> usize {
    let mut best = 0;
    for (i, v) in values.iter().enumerate() {
        if *v > values[best] {
            best = i;
        }
    }
    best
}
