//! The integer network: what the two parties evaluate together.
//!
//! Every value is a tensor `[C, H, W]` (row-major) of signed integers; an integer `v` of a value with scale `S`
//! stands for the real number `v / S`. A [`Network`] is public: architecture, widths and shifts, labels and
//! preprocessing, and no weight. The weights are in [`Weights`], which only the server ever holds.

use serde::{Deserialize, Serialize};

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
    /// Weights lie in `-(2^(weight_bits-1) - 1) ..= 2^(weight_bits-1) - 1`; at most 16.
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
    Relu,
    /// `min(max(x, 0), 2^log2_six)`: the scale is such that the real 6 is the integer 2^log2_six.
    Relu6 {
        /// j with 6·S = 2^j.
        log2_six: u32,
    },
    /// The largest value of each window; padding never wins.
    MaxPool(Window),
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
    /// Added to `Σ w·x` before the shift.
    pub bias: Bias,
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
}

/// Image to tensor: resize, crop, order, `(pixel - mean) · factor` with pixels in 0..=255.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resize {
    /// Straight to height and width, whatever the shape.
    Exact,
    /// The shorter side to this many pixels, then the centre is cut out.
    Shorter(u32),
}

/// What the output means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// S of the output.
    pub scale: f64,
    /// Whether the ONNX model ends in a softmax, which the client applies to the logits itself.
    pub softmax: bool,
    /// Names by class; empty if none were given.
    pub labels: Vec<String>,
}
