//! What the translation of one ONNX operator has to do with: the node with its inputs, the nodes made so far, and ways to refuse.
//!
//! A builder ([`Build`]) takes what it needs of the [`Call`], adds nodes to the [`Builder`], and gives its results. One that works
//! element by element is a line, `|builder, call| builder.elementwise(call, Relu)`. One that needs an image takes it by
//! `builder.image(call, call.activation(0)?)`, and gives `builder.made(call, node)`.

use std::sync::Arc;

use jaguar_ring::cpu::Cpu;

use super::tensor::{SliceRange, Tensor, integer_range, slice_range, wrap};
use super::view::View;
use crate::float::{Concat, FloatOperands, Input, Known, Node, Op};
use crate::limits::{self, MAX_TOTAL_ELEMENTS};
use crate::network::{Finish, NodeId, Shape};
use crate::onnx::{self, AttributeProto, NodeProto, Values};

/// The most weights that all layers may have together: as many as a file that is read has, or what few of them are repeated to.
const MAX_WEIGHTS: usize = 1 << 28;
/// The most elements that all computed constants may have together.
const MAX_FOLDED: usize = 1 << 28;
/// The most indices that all selections of a model may list: far more than any network has, of which few bytes can ask for more.
const MAX_INDICES: usize = 1 << 24;

/// What an ONNX operator becomes: its results, in ONNX's order, and the nodes that it needs for them.
///
/// # Errors
/// Why it cannot be translated, and what would help; or what is wrong with the file.
pub type Build = fn(&mut Builder, &Call<'_>) -> Result<Vec<Value>, Reject>;

/// An ONNX value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Known at import.
    Constant(Arc<Tensor>),
    /// Computed by a node.
    Activation(Activation),
    /// What an unsupported operator made.
    Unknown,
}

/// An ONNX tensor that a node computes. Its elements may lie in the node's value otherwise than in the tensor: transpositions and
/// reshapes move nothing. What works element by element need not know ([`Activation::at`]); [`Builder::image`] brings them in order.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The node that computes it.
    pub node: NodeId,
    pub(crate) view: View,
    /// This was applied to it (and is left out, for the client to do).
    pub(crate) finish: Finish,
    /// Scale and zero point, if a QuantizeLinear made integers of it (which is left out too).
    pub(crate) quantised: Option<(f32, i64)>,
}

impl Activation {
    pub(crate) fn new(node: NodeId, view: View) -> Activation {
        Activation { node, view, finish: Finish::None, quantised: None }
    }

    /// The ONNX tensor's shape, the batch included.
    pub fn sizes(&self) -> Vec<usize> {
        self.view.sizes()
    }

    /// A tensor of the same shape that `node` computes, whose value has this one's node's shape and lies alike.
    pub fn at(&self, node: NodeId) -> Activation {
        Activation { node, ..self.clone() }
    }
}

impl From<Activation> for Value {
    fn from(activation: Activation) -> Self {
        Value::Activation(activation)
    }
}

/// What a builder gives if its only result lies so in a node's value.
pub(crate) fn activation(node: NodeId, view: View) -> Vec<Value> {
    vec![Activation::new(node, view).into()]
}

/// The first input as it is.
pub(crate) fn identity(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    Ok(vec![call.input(0)?.clone()])
}

/// Why a builder gives up.
#[derive(Clone, Debug, PartialEq)]
pub enum Reject {
    /// The node has no counterpart. All such are collected, so that one import names them all.
    Unsupported {
        /// What is not supported, as what follows "it".
        reason: String,
        /// What helps; empty where only leaving it out does.
        instead: String,
    },
    /// The file is wrong: the import ends.
    Invalid(String),
    /// Too much of something: the import ends.
    TooLarge(&'static str),
    /// An input is unknown because of an earlier rejection: nothing to report.
    Follows,
}

impl Reject {
    /// An operator on constants that nothing here computes.
    pub(crate) fn not_computed(operator: &str) -> Reject {
        Reject::unsupported(&format!("{operator} of constants is not computed"))
    }

    /// The node has no counterpart, and nothing stands in for it.
    pub fn unsupported(reason: &str) -> Reject {
        Reject::Unsupported { reason: reason.into(), instead: String::new() }
    }

    /// The node has no counterpart; `instead` says what helps.
    pub fn instead(reason: &str, instead: &str) -> Reject {
        Reject::Unsupported { reason: reason.into(), instead: instead.into() }
    }

    /// The file contradicts ONNX's rules.
    pub fn invalid(problem: &str) -> Reject {
        Reject::Invalid(problem.into())
    }
}

/// One ONNX node with its inputs looked up.
#[derive(Debug)]
pub struct Call<'a> {
    pub(crate) proto: &'a NodeProto,
    pub(crate) name: String,
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<Option<Value>>,
    /// By input, the data type, as far as constants and what is quantised have one that is known.
    pub(crate) kinds: Vec<Option<i32>>,
    /// Whether nothing but changes of shape lies between its result and the model's outputs.
    pub(crate) last: bool,
    /// The operators that take its first result; an empty name where the model's output is that result.
    pub(crate) takers: Vec<&'a str>,
}

impl Call<'_> {
    /// Whether it ends the model: its result goes nowhere but to the outputs. (One that is an output and is taken inside, too, does not.)
    pub(crate) fn ends(&self) -> bool {
        self.last && self.takers.iter().all(|taker| taker.is_empty() || only_reshapes(taker))
    }

    /// What the node is called in reports, and the nodes that it becomes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The opset of the model.
    pub fn opset(&self) -> i64 {
        self.opset
    }

    /// The ONNX operator, without the domain.
    pub fn operator(&self) -> &str {
        self.proto.op_type()
    }

    /// How many inputs the node lists, those that are left out included.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Whether an input is there.
    pub fn has_input(&self, index: usize) -> bool {
        matches!(self.inputs.get(index), Some(Some(_)))
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.proto.attribute.iter().find(|a| a.name() == name)
    }

    /// An attribute that is an integer.
    pub fn attribute_int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).and_then(|a| a.i).unwrap_or(default)
    }

    /// An attribute that is a real number.
    pub fn attribute_float(&self, name: &str, default: f32) -> f32 {
        self.attribute(name).and_then(|a| a.f).unwrap_or(default)
    }

    /// An attribute that lists integers.
    pub fn attribute_ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|a| a.ints.as_slice())
    }

    /// An attribute that is a text.
    pub fn attribute_text(&self, name: &str) -> Option<&str> {
        self.attribute(name).and_then(|a| a.s.as_deref()).and_then(|s| std::str::from_utf8(s).ok())
    }

    pub(crate) fn attribute_tensor(&self, name: &str) -> Result<Option<Tensor>, Reject> {
        let Some(tensor) = self.attribute(name).and_then(|a| a.t.as_ref()) else { return Ok(None) };
        let (dims, values) = tensor.values().map_err(|e| Reject::Invalid(e.to_string()))?;
        Ok(Some(Tensor { dims, values }))
    }

    /// An attribute of `N` sizes, each at least `low`, by height and width (pads: before both, then behind both). Where the first input
    /// has its places along one axis, `[1, C, L]`, the file has those of the width alone, and height has the default.
    ///
    /// # Errors
    /// Others, or another number of them.
    pub fn sizes<const N: usize>(
        &self,
        name: &str,
        default: usize,
        low: usize,
    ) -> Result<[usize; N], Reject> {
        let Some(values) = self.attribute_ints(name) else { return Ok([default; N]) };
        let sizes: Option<Vec<usize>> = values
            .iter()
            .map(|&v| usize::try_from(v).ok().filter(|&v| v >= low && v <= limits::MAX_EXTENT))
            .collect();
        let problem = || Reject::unsupported(&format!("{name} = {values:?}"));
        let sizes = sizes.ok_or_else(problem)?;
        let sizes = match self.rank() == Some(3) && 2 * sizes.len() == N {
            true => sizes.into_iter().flat_map(|size| [default, size]).collect(),
            false => sizes,
        };
        sizes.try_into().map_err(|_| problem())
    }

    /// The first input's number of dimensions, the batch included, if the network computes it.
    pub(crate) fn rank(&self) -> Option<usize> {
        match self.inputs.first() {
            Some(Some(Value::Activation(x))) => Some(x.view.rank()),
            _ => None,
        }
    }

    /// An input of any kind.
    ///
    /// # Errors
    /// It is missing, or unknown because of what was refused before.
    pub fn input(&self, index: usize) -> Result<&Value, Reject> {
        match self.inputs.get(index) {
            Some(Some(Value::Unknown)) => Err(Reject::Follows),
            Some(Some(value)) => Ok(value),
            _ => Err(Reject::Invalid(format!("{} has no input {index}", self.operator()))),
        }
    }

    /// An input that the network computes.
    ///
    /// # Errors
    /// As [`Call::input`]; and it is a constant, a probability, or integers of a quantised model.
    pub fn activation(&self, index: usize) -> Result<&Activation, Reject> {
        match self.input(index)? {
            Value::Activation(a) if a.finish != Finish::None => Err(Reject::instead(
                "takes the result of a softmax or sigmoid",
                "These are supported as the model's last operators only",
            )),
            Value::Activation(a) if a.quantised.is_some() => Err(Reject::instead(
                "takes quantised integers",
                "Export with a DequantizeLinear before every operator (the QDQ form), or the float model",
            )),
            Value::Activation(a) => Ok(a),
            _ => Err(Reject::unsupported("a constant stands where the network's value is expected")),
        }
    }

    /// An input known at import.
    ///
    /// # Errors
    /// As [`Call::input`], and if the network computes it.
    pub fn constant(&self, index: usize) -> Result<&Tensor, Reject> {
        match self.input(index)? {
            Value::Constant(tensor) => Ok(tensor),
            _ => Err(Reject::unsupported(&format!(
                "input {index} is computed by the network, and must be constant"
            ))),
        }
    }

    /// [`Call::constant`], of integers.
    ///
    /// # Errors
    /// As there, and other numbers.
    pub fn constant_ints(&self, index: usize) -> Result<Vec<i64>, Reject> {
        self.constant(index)?
            .to_ints()
            .ok_or_else(|| Reject::Invalid(format!("input {index} holds no integers")))
    }

    /// Integers from an attribute (older opsets) or an input (newer ones).
    ///
    /// # Errors
    /// As [`Call::constant_ints`].
    pub fn ints(&self, name: &str, index: usize) -> Result<Option<Vec<i64>>, Reject> {
        match self.attribute_ints(name) {
            Some(ints) => Ok(Some(ints.to_vec())),
            None if self.has_input(index) => self.constant_ints(index).map(Some),
            None => Ok(None),
        }
    }

    /// The integers that a QuantizeLinear makes lie between these.
    pub(crate) fn quantised_range(&self) -> Result<(i64, i64), Reject> {
        let kind = match self.attribute_int("output_dtype", 0) {
            0 if !self.has_input(2) => Some(onnx::data_type::UINT8),
            0 => self.kinds.get(2).copied().flatten(),
            kind => i32::try_from(kind).ok(),
        };
        let range = kind.and_then(integer_range);
        range
            .ok_or_else(|| Reject::unsupported("quantises to another type than integers of 8, 16 or 32 bits"))
    }

    /// Into how many indices each a Split cuts a dimension of this size.
    pub(crate) fn split_lengths(&self, size: usize) -> Result<Vec<usize>, Reject> {
        let outputs = self.proto.output.len().max(1);
        let lengths: Vec<usize> = match self.ints("split", 1)? {
            Some(lengths) => lengths.iter().map(|&l| usize::try_from(l).unwrap_or(usize::MAX)).collect(),
            None => {
                // Equal parts, the last one smaller.
                let each = size.div_ceil(outputs);
                (0..outputs).map(|i| each.min(size.saturating_sub(i * each))).collect()
            }
        };
        let total = lengths.iter().try_fold(0usize, |sum, &l| sum.checked_add(l));
        match lengths.len() == outputs && total == Some(size) && !lengths.contains(&0) {
            true => Ok(lengths),
            false => Err(Reject::invalid("splits into parts that do not add up")),
        }
    }

    /// A Slice's parameters over a tensor of these sizes: by dimension, first index, count and step.
    /// Only of constants it may be empty.
    pub(crate) fn slice_ranges(&self, sizes: &[usize], empty: bool) -> Result<Vec<SliceRange>, Reject> {
        let missing = || Reject::invalid("has no starts or ends");
        let starts = self.ints("starts", 1)?.ok_or_else(missing)?;
        let ends = self.ints("ends", 2)?.ok_or_else(missing)?;
        let axes = self.ints("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.ints("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
        if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
            return Err(Reject::invalid("has starts, ends, axes and steps of different lengths"));
        }
        let mut ranges: Vec<SliceRange> = sizes.iter().map(|&s| (0, s, 1)).collect();
        for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
            let axis = wrap(*axis, sizes.len()).ok_or_else(|| Reject::invalid("has an axis out of range"))?;
            let range = slice_range(*start, *end, *step, sizes[axis]);
            let nothing = (empty && *step != 0).then_some((0, 0, 1));
            ranges[axis] = range.or(nothing).ok_or_else(|| Reject::unsupported("the slice is empty"))?;
        }
        Ok(ranges)
    }
}

/// The nodes made so far.
#[derive(Debug)]
pub struct Builder {
    pub(crate) nodes: Vec<Node>,
    /// Elements that values may still have, that weights may, and that constants may.
    elements_left: usize,
    weights_left: usize,
    pub(crate) folded_left: usize,
    /// Indices that selections may still list.
    indices_left: usize,
    /// N, where the file has a fixed batch of more than one, of which one is taken: sizes in the file may have it.
    pub(crate) batch: Option<usize>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            elements_left: MAX_TOTAL_ELEMENTS,
            weights_left: MAX_WEIGHTS,
            folded_left: MAX_FOLDED,
            indices_left: MAX_INDICES,
            batch: None,
        }
    }

    /// The shape of a node's value, `[C, H, W]`.
    pub fn shape(&self, node: NodeId) -> Shape {
        self.nodes[node].shape
    }

    /// To be called before so many indices are listed.
    pub(crate) fn list(&mut self, count: usize) -> Result<(), Reject> {
        self.indices_left = self.indices_left.checked_sub(count).ok_or(Reject::TooLarge("indices"))?;
        Ok(())
    }

    /// A value that nothing computes.
    pub(crate) fn input(&mut self, name: &str, shape: Shape) -> Result<NodeId, Reject> {
        self.push(name, Input, Vec::new(), shape)
    }

    /// Values one after the other.
    pub(crate) fn joined(&mut self, name: &str, nodes: Vec<NodeId>) -> Result<NodeId, Reject> {
        self.push(name, Concat, nodes, [0; 3])
    }

    /// One operation on a node's only input, element by element: its result, for a builder to give.
    ///
    /// # Errors
    /// As [`Call::activation`] and [`Builder::push`].
    pub fn elementwise(&mut self, call: &Call<'_>, op: impl Into<Op>) -> Result<Vec<Value>, Reject> {
        let x = call.activation(0)?;
        Ok(vec![x.at(self.push(&call.name, op, vec![x.node], self.shape(x.node))?).into()])
    }

    /// Adds a node; its shape follows from its inputs (`declared` where the operation leaves it open, and where no integer operation
    /// computes it).
    ///
    /// # Errors
    /// Shapes that do not go together, parameters out of range, and more than a network may have.
    pub fn push(
        &mut self,
        name: &str,
        op: impl Into<Op>,
        inputs: Vec<NodeId>,
        declared: Shape,
    ) -> Result<NodeId, Reject> {
        let op = op.into();
        let shapes: Vec<Shape> = inputs.iter().map(|&i| self.nodes[i].shape).collect();
        let shape = match op.integer(&Known::default()) {
            Some(op) => crate::network::output_shape(&op, &shapes, declared)
                .map_err(|e| Reject::unsupported(&e.to_string()))?,
            None => declared,
        };
        // Weights count too: many layers may name one constant. What moves values holds none of its own, and much of it falls away when
        // operations are fused: it is counted then.
        let weights = op.linear().map_or(0, |linear| linear.weights.len());
        let values = if op.moves() { 0 } else { shape.iter().product::<usize>() };
        let left = self.elements_left.checked_sub(values);
        self.elements_left = left.ok_or(Reject::TooLarge("values"))?;
        let left = self.weights_left.checked_sub(weights);
        self.weights_left = left.ok_or(Reject::TooLarge("weights"))?;
        if self.nodes.len() == 4 * limits::MAX_NODES {
            return Err(Reject::TooLarge("operations"));
        }
        self.nodes.push(Node { name: name.into(), op, inputs, shape });
        Ok(self.nodes.len() - 1)
    }
}

/// Whether a node's value surely has no negative elements, as far as some dozens of operations before it tell. (Behind a norm's sums there are
/// the moves that bring its values together.)
pub(crate) fn non_negative(nodes: &[Node], node: NodeId) -> bool {
    /// Over so many operations, of one input each; half as many behind one of several.
    const DEPTH: usize = 48;
    non_negative_within(nodes, node, DEPTH)
}

fn non_negative_within(nodes: &[Node], node: NodeId, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Node { op, inputs, shape, .. } = &nodes[node];
    let depth = if inputs.len() == 1 { depth } else { depth / 2 };
    op.sums_squares(inputs, *shape)
        || op.is_non_negative(inputs, &|input| non_negative_within(nodes, input, depth))
}

/// Whether a node's value surely has no negative elements, where parts of the values before it may: element by element.
///
/// (The sum that linear attention divides by is one column of a product, of factors whose other columns may be negative.)
pub(crate) fn non_negative_by_element(nodes: &[Node], node: NodeId) -> bool {
    /// As for [`non_negative`]: what is far behind decides nothing here, and is looked at once for each way to it.
    const DEPTH: usize = 24;
    non_negative(nodes, node) || doubts(nodes, node, DEPTH).iter().all(|doubt| *doubt == 0.0)
}

/// Above zero where a node's value may be negative.
fn doubts(nodes: &[Node], node: NodeId, depth: usize) -> Vec<f32> {
    let Node { op, inputs, shape, .. } = &nodes[node];
    let all = |doubt: f32| vec![doubt; shape.iter().product()];
    if non_negative(nodes, node) {
        return all(0.0);
    }
    let depth = if inputs.len() == 1 { depth.saturating_sub(1) } else { depth / 2 };
    if depth == 0 || inputs.is_empty() {
        return all(1.0);
    }
    let of: Vec<Vec<f32>> = inputs.iter().map(|&input| doubts(nodes, input, depth)).collect();
    let of: Vec<(Shape, &[f32])> =
        inputs.iter().zip(&of).map(|(&input, doubts)| (nodes[input].shape, &doubts[..])).collect();
    let operands = FloatOperands { inputs: &of, output: *shape, cpu: Cpu::default() };
    op.doubts(&operands).unwrap_or_else(|| all(1.0))
}

/// All real numbers of a constant, refused if one is not finite.
pub(crate) fn finite(tensor: &Tensor) -> Result<Vec<f32>, Reject> {
    match &tensor.values {
        Values::Float(v) if v.iter().all(|v| v.is_finite()) => Ok(v.clone()),
        Values::Int(_) => Ok(tensor.to_floats()),
        Values::Float(_) => Err(Reject::invalid("has weights that are not finite")),
    }
}

/// Whether an operator at most gives its first input another shape.
pub(crate) fn only_reshapes(operator: &str) -> bool {
    const RESHAPES: [&str; 10] = [
        "Cast",
        "DequantizeLinear",
        "Dropout",
        "Flatten",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ];
    RESHAPES.contains(&operator)
}
