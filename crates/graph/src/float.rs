//! The float graph that an ONNX file becomes, and its interpreter: the baseline that the integer network is
//! compared with, and what calibration watches.
//!
//! Every value is `[C, H, W]`, row-major, whatever the ONNX file's layout was. Each operation of a finished graph becomes one of
//! the integer network, so that node i of a float graph is node i of the network made from it. [`FloatOperator`] is all that an
//! import, its fusion and calibration ask of one; the forms themselves are in their operators' folders.

use std::any::Any;
use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};

use jaguar_ring::cpu::Cpu;
use rayon::prelude::*;

use crate::network::{self, NodeId, OutputPart, Shape};
pub use crate::ops::float::*;
pub use crate::ops::operator::Known;
use crate::ops::operator::{EACH, Sign};

/// An imported network in floating point. The default is empty: no nodes, no map before them, and nothing left out.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// What an import left out behind the outputs; `None` if they are the model's own, or were asked for.
    pub tail: Option<Tail>,
    /// Names of layers that the file gives blocks, which factors by channel in front of them took away: they are dense.
    pub lost_blocks: Vec<String>,
}

/// The end of a model, which no private run computes: whoever gets the outputs does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// How many ONNX nodes it has.
    pub nodes: usize,
    /// Which of their operators cannot be run privately.
    pub refused: Vec<String>,
}

impl Graph {
    /// What whoever compiles must know of a tail that was left out; `None` if none was.
    pub fn left_out(&self) -> Option<String> {
        let Tail { nodes, refused } = self.tail.as_ref()?;
        let outputs = self.outputs.iter().map(|part| format!("{} {:?}", part.name, part.dims));
        let (is, last) = match nodes {
            1 => ("is", "last node".into()),
            _ => ("are", format!("last {nodes} nodes")),
        };
        Some(format!(
            "the model's {last} {is} left out, for {} cannot be run privately and no layer follows: the answer is what {last} would \
             take, {}, and whoever gets it does the rest (--output-name names other values)",
            refused.join(", "),
            outputs.collect::<Vec<_>>().join(", ")
        ))
    }
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

/// An operation of a float graph: any [`FloatOperator`], whose methods it has.
#[derive(Clone)]
pub struct Op(Box<dyn FloatOperator>);

impl Op {
    /// The operation that an operator is.
    pub fn new(operator: impl FloatOperator) -> Self {
        Self(Box::new(operator))
    }

    /// Whether the operation is a `T`.
    pub fn is<T: FloatOperator>(&self) -> bool {
        self.downcast_ref::<T>().is_some()
    }

    /// The operator, if it is a `T`.
    pub fn downcast_ref<T: FloatOperator>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    /// [`Op::downcast_ref`], to be changed.
    pub fn downcast_mut<T: FloatOperator>(&mut self) -> Option<&mut T> {
        let any: &mut dyn Any = &mut *self.0;
        any.downcast_mut()
    }

    /// The linear layer that the operation is, if it is one.
    pub fn linear(&self) -> Option<&Linear> {
        self.downcast_ref()
    }

    /// [`Op::linear`], to be changed.
    pub fn linear_mut(&mut self) -> Option<&mut Linear> {
        self.downcast_mut()
    }

    /// What the operation is called in reports.
    pub fn name(&self) -> &'static str {
        self.integer(&Known::default()).map_or("unfused", |op| op.name())
    }

    /// Whether the operation's value can be negative.
    pub(crate) fn sign(&self) -> Sign {
        self.integer(&Known::default()).map_or(Sign::Any, |op| op.sign())
    }
}

impl<T: FloatOperator> From<T> for Op {
    fn from(operator: T) -> Self {
        Self::new(operator)
    }
}

impl Deref for Op {
    type Target = dyn FloatOperator;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for Op {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other)
    }
}

impl Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

/// What a float operator has without a word, by deriving `Clone`, `Debug` and `PartialEq`.
pub trait Instance: Any + Debug + Send + Sync {
    /// A copy of it, of whatever type it is.
    fn boxed(&self) -> Box<dyn FloatOperator>;

    /// Whether it is an operation of the same type and with the same parameters.
    fn is_equal(&self, other: &Op) -> bool;
}

impl<T: FloatOperator + Clone + PartialEq> Instance for T {
    fn boxed(&self) -> Box<dyn FloatOperator> {
        Box::new(self.clone())
    }

    fn is_equal(&self, other: &Op) -> bool {
        other.downcast_ref() == Some(self)
    }
}

impl Clone for Box<dyn FloatOperator> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// An operator in floating point: what it computes, which integer operator it becomes, and what fusion may do with it.
///
/// What must be said has no default. A default means that fusion leaves the operator where it is: that is right, and at most slower.
pub trait FloatOperator: Instance {
    /// The integer operation with the same geometry, its numbers as far as what they depend on is `known`. `None` of what is
    /// there during an import only, and becomes another operation or part of one.
    fn integer(&self, known: &Known<'_>) -> Option<network::Op>;

    /// How far the integer operation is from this one at most, roundings aside, in units of the last place.
    fn coarseness(&self, _known: &Known<'_>) -> f64 {
        0.0
    }

    /// Whether the integer operation depends on [`Known::coarse`].
    fn heeds_coarse(&self) -> bool {
        false
    }

    /// Whether its values are weights of a sum that is divided by the sum of them, as a softmax's exponentials are: what lines of one are off by, others
    /// make up for ([`Options::exponential_bits`](crate::quantise::Options::exponential_bits)).
    fn is_weight(&self) -> bool {
        false
    }

    /// What it demands of the scale of its value.
    fn demands(&self) -> Demand;

    /// Its value, `[C, H, W]` of the output's shape in row-major order.
    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32>;

    /// Whether its value is its only input, for an input and a value of these shapes.
    fn is_identity(&self, _input: Shape, _output: Shape) -> bool {
        false
    }

    /// Whether it makes the same of a mapped input as the map makes of its value. It keeps the number of channels then.
    fn commutes_with(&self, _map: &Affine) -> bool {
        false
    }

    /// What does behind it, one after the other, what a map by element does in front of it: operations, and the shapes of what they
    /// make. `None` where nothing does.
    fn with_map_behind(&self, _input: Shape, _map: &ElementMap) -> Option<Vec<(Op, Shape)>> {
        None
    }

    /// Of a product of two values the factor that it is multiplied by, positive, and what is added to each of the two
    /// first, if it takes that: fusion puts other factors in. `None` of anything else.
    fn gain_mut(&mut self) -> Option<(&mut f32, &mut [f32])> {
        None
    }

    /// It with so many rows and columns more of zeros around its only input, `[top, left, bottom, right]`, which it thinks of by
    /// itself. `non_negative` says whether the input is nowhere below them.
    fn padded(&self, _more: [usize; 4], _non_negative: bool) -> Option<Op> {
        None
    }

    /// How each of its values follows from the one at the same place of its only input.
    fn growth(&self) -> Growth {
        Growth::Unknown
    }

    /// What it makes at each place, if that is one function of one number everywhere, where its inputs are these functions of it. Numbers
    /// in it are public: those of a network that were learned may not be.
    fn function(&self, _of: &[&Function]) -> Option<Function> {
        None
    }

    /// Whether its value surely has no negative elements, over these inputs; `known` says whether one of them has none.
    fn is_non_negative(&self, inputs: &[NodeId], known: &dyn Fn(NodeId) -> bool) -> bool {
        match self.integer(&Known::default()).map_or(Sign::Any, |op| op.sign()) {
            Sign::NonNegative => true,
            Sign::Inherited => inputs.iter().all(|&input| known(input)),
            Sign::Any => false,
        }
    }

    /// Where its value may be negative, by element: where this is above zero, `of` saying the same of its inputs. `None` where it can tell no
    /// more than [`FloatOperator::is_non_negative`] does.
    fn doubts(&self, _of: &FloatOperands<'_>) -> Option<Vec<f32>> {
        None
    }

    /// Told when calibration is through: the largest absolute value of its first input, and n, the bits of an activation without guard
    /// bits. What it takes from that is public: the order of magnitude at most. Says whether it makes something else now.
    fn seen(&mut self, _largest: f64, _bits: u32) -> bool {
        false
    }

    /// Whether each of its values is a sum of squares, where it takes these inputs and makes this shape: none is negative then.
    fn sums_squares(&self, _inputs: &[NodeId], _shape: Shape) -> bool {
        false
    }

    /// If it is 0 below zero, and changes nothing between zero and this bound: infinity of a ReLU.
    fn clips_at(&self) -> Option<f32> {
        None
    }

    /// Whether each of its values is the largest of some of the same channel.
    fn takes_largest(&self) -> bool {
        false
    }

    /// Whether each of its values is a mean of some of the same channel, the same places in each channel.
    fn takes_means(&self) -> bool {
        false
    }

    /// Whether it only moves values, and puts zeros where none came from.
    fn moves(&self) -> bool {
        false
    }

    /// Several operations that do the same, where no integer operator does. `source` is its only input, of this shape; `add`
    /// appends an operation and says which node it is. The last operation, and what it takes, is the result: it comes in its place.
    fn expanded(
        &self,
        _source: NodeId,
        _shape: Shape,
        _add: &mut dyn FnMut(Op, Vec<NodeId>, Shape) -> NodeId,
    ) -> Option<(Op, Vec<NodeId>)> {
        None
    }

    /// What becomes of it in the end, when all rules have been applied, over an input of this shape. `feeds_weights` says whether
    /// its value comes to nothing but linear layers and the output, moved at most: these can take a division.
    ///
    /// # Errors
    /// What of it is too much, in words.
    fn settled(&self, _input: Shape, _feeds_weights: &dyn Fn() -> bool) -> Result<Settled, &'static str> {
        Ok(Settled::Stays)
    }
}

/// What becomes of an operation in the end.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It stays what it is.
    Stays,
    /// Another comes in its place, which makes the same value.
    Becomes(Op),
    /// Another comes behind it, which makes the same value of its value.
    Before(Op),
}

/// How an operation's values follow those at the same place of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// In a way that is not told.
    Unknown,
    /// Nowhere does one fall where the other grows, by a function of each channel's own.
    ByChannel,
    /// The same, by one function for all channels.
    Alike,
}

/// What an operation is applied to.
#[derive(Clone, Copy, Debug)]
pub struct FloatOperands<'a> {
    /// Shapes and values of its inputs, at least one.
    pub inputs: &'a [(Shape, &'a [f32])],
    /// The shape of what it makes.
    pub output: Shape,
    /// What it may be computed with.
    pub cpu: Cpu,
}

impl<'a> FloatOperands<'a> {
    /// The first input's shape and values.
    pub fn first(&self) -> (Shape, &'a [f32]) {
        self.inputs[0]
    }

    /// What `function` makes of each of the first input's values.
    pub fn each(&self, function: impl Fn(f32) -> f32 + Sync) -> Vec<f32> {
        self.first().1.par_iter().with_min_len(EACH).map(|&x| function(x)).collect()
    }
}

/// What an operation demands of the scale of its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Nothing.
    Nothing,
    /// That this real number is a power of two: values are clipped there.
    Power(f32),
    /// That it is its factors' scales' product over the gain and a power of two.
    Shifted {
        /// Positive and finite.
        gain: f32,
        /// What is added to each factor first; at the factor's scale it must fit into an activation.
        offsets: [f32; 2],
        /// Bits that the factors have at most, with the shift.
        ring_bits: u32,
    },
    /// That it and its inputs' are powers of two, where nothing else fixes them: the operation's public numbers tell them.
    Told,
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

/// `x·mul + add` by channel. Only while a graph is being imported: fusion turns each into part of a linear layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    /// The factor of each channel, `[C]`.
    pub mul: Vec<f32>,
    /// What is added after the multiplication.
    pub add: Bias,
}

/// An affine map's numbers, by element of `[C, H, W]`.
pub struct ElementMap {
    /// Factors; `None` where zeros were put in, which may be multiplied by anything.
    pub mul: Vec<Option<f32>>,
    /// What is added.
    pub add: Vec<f32>,
}

impl ElementMap {
    pub(crate) fn of(affine: &Affine, shape: Shape) -> Self {
        let area = shape[1] * shape[2];
        let mul = affine.mul.iter().flat_map(|&m| std::iter::repeat_n(Some(m), area)).collect();
        Self { mul, add: affine.add.spread(shape) }
    }

    /// The same map, unless it multiplies by numbers that vary within a channel of this shape.
    pub(crate) fn by_channel(&self, shape: Shape) -> Option<Affine> {
        let area = shape[1] * shape[2];
        let one = |plane: &[Option<f32>]| {
            let mut given = plane.iter().flatten();
            let first = given.next().copied().unwrap_or(1.0);
            given.all(|&m| m == first).then_some(first)
        };
        let mul: Vec<f32> = self.mul.chunks_exact(area).map(one).collect::<Option<_>>()?;
        // Back to one number a channel where that says the same.
        let by_channel: Vec<f32> = self.add.iter().step_by(area).copied().collect();
        let constant =
            self.add.chunks_exact(area).zip(&by_channel).all(|(plane, a)| plane.iter().all(|v| v == a));
        let add = if constant { Bias::PerChannel(by_channel) } else { Bias::PerElement(self.add.clone()) };
        Some(Affine { mul, add })
    }
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
    pub(crate) fn add_to(&self, shape: Shape, values: &mut [f32]) {
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

    /// Whether it takes nothing away anywhere.
    pub(crate) fn is_non_negative(&self) -> bool {
        let (Bias::PerChannel(add) | Bias::PerElement(add)) = self;
        add.iter().all(|&v| v >= 0.0)
    }

    /// Whether it adds nothing.
    pub(crate) fn is_zero(&self) -> bool {
        let (Bias::PerChannel(add) | Bias::PerElement(add)) = self;
        add.iter().all(|&v| v == 0.0)
    }
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
            values.push(match inputs[..] {
                [] => std::mem::take(&mut input),
                _ => node.op.apply(&FloatOperands { inputs: &inputs, output: node.shape, cpu }),
            });
        }
        Some(values)
    }

    /// The output for a tensor of the input's shape: logits, before any softmax or sigmoid. `None` as for
    /// [`Graph::run`].
    pub fn forward(&self, cpu: Cpu, tensor: &[f32]) -> Option<Vec<f32>> {
        self.run(cpu, tensor)?.pop()
    }
}
