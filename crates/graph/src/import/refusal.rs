//! What cannot be translated: which node, why, what would help, and what the import goes on with behind it.
//!
//! An import that fails has looked at the whole model, so that one text holds everything that stands in the way. Behind
//! a refused node it goes on with a value of the shape that the node's result has, where that is known.

use std::collections::HashMap;
use std::fmt;

use super::build::{Activation, Builder, Call, Reject, Value};
use super::tensor::{broadcast, reshape_sizes, wrap};
use super::view::View;
use crate::limits::MAX_ELEMENTS;
use crate::onnx::GraphProto;

/// An ONNX node that cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The node's name, or where it stands.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// The shapes of its inputs; `None` if unknown.
    pub inputs: Vec<Option<Vec<usize>>>,
    /// What is not supported.
    pub reason: String,
    /// What helps.
    pub instead: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&self.node, 0))
    }
}

impl Unsupported {
    /// What the reason is, whatever the shapes and numbers in it.
    fn kind_of_reason(&self) -> String {
        let mut kind = String::with_capacity(self.reason.len());
        for c in self.reason.chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            // A list is as one number, however long it is.
            let goes_on = matches!(c, '0' | ',' | ' ') && kind.ends_with('0');
            if !goes_on {
                kind.push(c);
            }
        }
        kind
    }

    /// One line: `names`, operator, shapes, why (of so many `others` for other shapes), what helps.
    fn told(&self, names: &str, others: usize) -> String {
        /// Concatenations can have hundreds of inputs.
        const SHOWN: usize = 6;
        let shape = |shape: &Option<Vec<usize>>| shape.as_ref().map_or("?".into(), |s| format!("{s:?}"));
        let shapes: Vec<String> = self.inputs.iter().take(SHOWN).map(shape).collect();
        let of = if shapes.is_empty() { "" } else { " of " };
        let more = match self.inputs.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let Self { operator, reason, instead, .. } = self;
        let alike = match others {
            0 => "",
            _ => " (and alike, with other numbers)",
        };
        format!("{names} ({operator}{of}{}{more}): {reason}{alike}. {instead}", shapes.join(", "))
    }
}

/// A line for each kind of refusal (operator, reason but for the shapes in it, advice): the first nodes of it by name, the first one's
/// shapes.
pub(super) fn list(nodes: &[Unsupported]) -> String {
    const NAMED: usize = 3;
    let mut kinds: Vec<Vec<&Unsupported>> = Vec::new();
    let mut places: HashMap<(&str, String, &str), usize> = HashMap::new();
    for node in nodes {
        let kind = (node.operator.as_str(), node.kind_of_reason(), node.instead.as_str());
        let place = *places.entry(kind).or_insert(kinds.len());
        match kinds.get_mut(place) {
            Some(kind) => kind.push(node),
            None => kinds.push(vec![node]),
        }
    }
    let line = |kind: &Vec<&Unsupported>| {
        let names: Vec<&str> = kind.iter().take(NAMED).map(|n| n.node.as_str()).collect();
        let more = match kind.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let others = kind.iter().filter(|node| node.reason != kind[0].reason).count();
        format!("\n  {}", kind[0].told(&(names.join(", ") + &more), others))
    };
    let reasons = match kinds.len() {
        all if all == nodes.len() => String::new(),
        1 => ", all for one reason".into(),
        some => format!(", for {some} reasons"),
    };
    let lines: String = kinds.iter().map(line).collect();
    format!("{} of the model's nodes cannot be run privately{reasons}:{lines}", nodes.len())
}

pub(super) fn report(call: &Call<'_>, reason: String, instead: String) -> Unsupported {
    let shape = |value: &Option<Value>| match value {
        Some(Value::Constant(tensor)) => Some(tensor.dims.clone()),
        Some(Value::Activation(activation)) => Some(activation.view.sizes()),
        _ => None,
    };
    let instead = if instead.is_empty() {
        "docs/models.md lists what is read: leave it out, or write it with these, and export again".into()
    } else {
        instead
    };
    Unsupported {
        node: call.name.clone(),
        operator: call.operator().chars().take(200).collect(),
        inputs: call.inputs.iter().map(shape).collect(),
        reason,
        instead,
    }
}

/// Why a product of two of the network's values is refused whose sizes do not suit.
pub(crate) fn product() -> Reject {
    Reject::instead(
        "multiplies two values of the network of which neither is as large as the product",
        "Expand one of them first, or multiply values of one size, or a value by one number a channel",
    )
}

/// Why a node with subgraphs is refused, and what is in these: nothing looks into them, so other reasons may hide there.
pub(super) fn subgraphs(call: &Call<'_>) -> Option<Reject> {
    /// Operators that are named of a subgraph.
    const SHOWN: usize = 8;
    let graphs: Vec<(&str, &GraphProto)> =
        call.proto.attribute.iter().filter_map(|a| Some((a.name(), a.g.as_ref()?))).collect();
    if graphs.is_empty() {
        return None;
    }
    let described = |(name, graph): &(&str, &GraphProto)| {
        let mut operators: Vec<&str> = graph.node.iter().map(|node| node.op_type()).collect();
        operators.retain(|&operator| operator != "Constant");
        operators.sort_unstable();
        operators.dedup();
        let more = match operators.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        operators.truncate(SHOWN);
        let (name, nodes) = (name.chars().take(200).collect::<String>(), graph.node.len());
        let operators: String = operators.join(", ").chars().take(400).collect();
        format!("{name} of {nodes} nodes ({operators}{more})")
    };
    let described: Vec<String> = graphs.iter().map(described).collect();
    let what = match call.operator() {
        "If" => "chooses between subgraphs",
        "Loop" | "Scan" => "repeats a subgraph",
        _ => "computes a subgraph",
    };
    let condition = match (call.operator(), call.inputs.first()) {
        ("If", Some(Some(Value::Constant(condition)))) => condition.to_floats().first().copied(),
        _ => None,
    };
    let (always, instead) = match condition {
        Some(value) => {
            let branch = if value == 0.0 { "else_branch" } else { "then_branch" };
            let always = format!("; with these constants it is always {branch}");
            (
                always,
                format!("Put the nodes of {branch} in its place, or trace the model instead of scripting it"),
            )
        }
        None => (String::new(), instead(call.operator()).to_owned()),
    };
    let reason = format!("{what}, which are not looked into: {}{always}", described.join(", "));
    Some(Reject::Unsupported { reason, instead })
}

/// Advice for norms.
pub(crate) const NORM: &str = "A norm at the end can be cut off (--output-name with the value before it): whoever gets the vector \
                    divides it by its length. Inside a network there is no stand-in";

/// What could stand in for an operator that is not in the table.
pub(crate) fn instead(operator: &str) -> &'static str {
    match operator {
        "InstanceNormalization"
        | "LayerNormalization"
        | "GroupNormalization"
        | "LRN"
        | "MeanVarianceNormalization"
        | "RMSNormalization" => "Replace the normalisation by BatchNormalization and retrain",
        "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "LpNormalization" => NORM,
        "QLinearConv"
        | "QLinearMatMul"
        | "ConvInteger"
        | "MatMulInteger"
        | "DynamicQuantizeLinear"
        | "QLinearAdd"
        | "QLinearConcat"
        | "QLinearAveragePool"
        | "QLinearGlobalAveragePool"
        | "QLinearLeakyRelu"
        | "QGemm" => {
            "Quantise in the QDQ form (QuantFormat.QDQ in ONNX Runtime), or import the float model: quantisation \
             happens here"
        }
        "If" | "Loop" | "Scan" => "Export with fixed control flow (trace the model instead of scripting it)",
        "ArgMax" | "TopK" => {
            "Cut it off (--output-name with the value before it): the client takes the largest output itself, or \
             only its index is revealed"
        }
        "NonMaxSuppression" | "NonZero" | "RoiAlign" | "ScatterND" => {
            "Cut it off (--output-name with the values before it): the client does what follows the network's last \
             layers"
        }
        "Pow" => {
            "Squares are supported: x² is x·x. At the end another power can be cut off (--output-name with the value before \
             it) and done by the client; inside a network there is no stand-in"
        }
        "Exp" | "Log" | "Sqrt" | "Reciprocal" | "Sin" | "Cos" => {
            "At the end it can be cut off (--output-name with the value before it) and done by the client; inside a \
             network there is no stand-in"
        }
        "ReduceSum" => "Use a mean over height and width, or a convolution",
        "Einsum" => "Write it as MatMul with a constant, or as a convolution",
        "DepthToSpace" => "Use a ConvTranspose, or nearest Upsample",
        "GridSample" => "Use nearest Resize, or a ConvTranspose",
        "LSTM" | "GRU" | "RNN" | "Attention" | "MultiHeadAttention" => {
            "Only convolutional networks are supported"
        }
        "LpPool" | "GlobalLpPool" => "Use average or max pooling",
        _ => "",
    }
}

/// Whether an unsupported operator at least gives a value of its (largest) input's shape.
fn keeps_shape(operator: &str) -> bool {
    const KEEP: [&str; 39] = [
        "Sigmoid",
        "HardSigmoid",
        "Swish",
        "Mish",
        "Gelu",
        "Erf",
        "Tanh",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Celu",
        "ThresholdedRelu",
        "Softplus",
        "Softsign",
        "Exp",
        "InstanceNormalization",
        "LayerNormalization",
        "GroupNormalization",
        "LRN",
        "MeanVarianceNormalization",
        "LpNormalization",
        "Mul",
        "Add",
        "Sub",
        "Div",
        "Pow",
        "Sqrt",
        "Abs",
        "Neg",
        "Clip",
        "Max",
        "Min",
        "BatchNormalization",
        "Softmax",
        "LogSoftmax",
        "Reciprocal",
        "Log",
        "Where",
    ];
    KEEP.contains(&operator)
}

/// What to go on with after a refused node: its input, as if it had done nothing, where operators of its kind keep the
/// shape, or a value of the shape that its result has. The import fails in the end; this only lets it look at the rest.
pub(super) fn stand_in(builder: &mut Builder, call: &Call<'_>) -> Value {
    if keeps_shape(call.operator()) {
        let activations = call.inputs.iter().flatten().filter(|v| matches!(v, Value::Activation(_)));
        let size = |v: &&Value| match v {
            Value::Activation(a) => a.view.sizes().iter().product::<usize>(),
            _ => 0,
        };
        return activations.max_by_key(size).cloned().unwrap_or(Value::Unknown);
    }
    result_sizes(call).and_then(|sizes| placeholder(builder, call, &sizes)).unwrap_or(Value::Unknown)
}

/// A value of these sizes that nothing computes.
fn placeholder(builder: &mut Builder, call: &Call<'_>, sizes: &[usize]) -> Option<Value> {
    let count = sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s))?;
    if count == 0 || count > MAX_ELEMENTS {
        return None;
    }
    let (shape, view) = match *sizes {
        [1, c, h, w] => ([c, h, w], View::natural([c, h, w])),
        _ => ([count, 1, 1], View::vector(count, 2).reshaped(sizes)?),
    };
    let node = builder.input(&call.name, shape).ok()?;
    Some(Value::Activation(Activation::new(node, view)))
}

/// The sizes of a refused node's (first) result, as far as they follow from what is known of its inputs.
fn result_sizes(call: &Call<'_>) -> Option<Vec<usize>> {
    let sizes = |index: usize| match call.inputs.get(index)? {
        Some(Value::Activation(a)) => Some(a.view.sizes()),
        Some(Value::Constant(tensor)) => Some(tensor.dims.clone()),
        _ => None,
    };
    let x = sizes(0)?;
    match call.operator() {
        "MatMul" => {
            let y = sizes(1)?;
            let ([a @ .., rows, inner], [b @ .., other, columns]) = (&x[..], &y[..]) else { return None };
            let batch = broadcast(a, b).filter(|_| inner == other)?;
            Some([&batch[..], &[*rows, *columns]].concat())
        }
        "Concat" => {
            let axis = wrap(call.attribute_int("axis", 1), x.len())?;
            let along = |index| sizes(index).and_then(|s| s.get(axis).copied());
            let total: Option<usize> = (0..call.inputs()).map(along).sum();
            Some([&x[..axis], &[total?], &x[axis + 1..]].concat())
        }
        "Reshape" => reshape_sizes(&x, &call.constant_ints(1).ok()?, call.attribute_int("allowzero", 0) != 0),
        "Conv" | "MaxPool" | "AveragePool" | "LpPool" => window_sizes(call, &x, sizes(1)),
        "Resize" => {
            let whole = [0, 1, 2].map(|i| call.constant(i + 1).ok().filter(|t| !t.values.is_empty()));
            match whole {
                [_, _, Some(sizes)] => sizes.to_ints()?.iter().map(|&s| usize::try_from(s).ok()).collect(),
                [_, Some(scales), None] => {
                    let scaled = |(&size, scale): (&usize, f32)| (size as f32 * scale) as usize;
                    Some(x.iter().zip(scales.to_floats()).map(scaled).collect())
                }
                _ => None,
            }
        }
        operator if operator.starts_with("Reduce") => {
            let axes = call.ints("axes", 1).ok()?.unwrap_or_else(|| (0..x.len() as i64).collect());
            let gone: Vec<usize> = axes.iter().filter_map(|&a| wrap(a, x.len())).collect();
            let keep = call.attribute_int("keepdims", 1) != 0;
            let left = x.iter().enumerate().filter(|(d, _)| keep || !gone.contains(d));
            Some(left.map(|(d, &size)| if gone.contains(&d) { 1 } else { size }).collect())
        }
        _ => None,
    }
}

/// What windows over any number of dimensions leave of `x`; `weights` has a convolution's sizes.
fn window_sizes(call: &Call<'_>, x: &[usize], weights: Option<Vec<usize>>) -> Option<Vec<usize>> {
    let places = x.get(2..)?;
    let small = |values: &[i64]| values.iter().map(|&v| usize::try_from(v).ok()).collect::<Option<Vec<_>>>();
    let attribute = |name: &str, default: usize, count: usize| match call.attribute_ints(name) {
        Some(values) => small(values).filter(|v| v.len() == count),
        None => Some(vec![default; count]),
    };
    let (channels, kernel) = match weights {
        Some(weights) if call.operator() == "Conv" => (*weights.first()?, weights.get(2..)?.to_vec()),
        _ => (*x.get(1)?, small(call.attribute_ints("kernel_shape")?)?),
    };
    let (stride, dilation) =
        (attribute("strides", 1, places.len())?, attribute("dilations", 1, places.len())?);
    let pads = attribute("pads", 0, 2 * places.len())?;
    let mut made = vec![x[0], channels];
    for (d, &size) in places.iter().enumerate() {
        let extent = kernel.get(d)?.checked_sub(1)?.checked_mul(dilation[d])?.checked_add(1)?;
        let room = size.checked_add(pads[d])?.checked_add(pads[d + places.len()])?.checked_sub(extent)?;
        made.push(room.checked_div(stride[d])? + 1);
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasons that differ in shapes only are one line.
    #[test]
    fn shapes_are_no_reasons() {
        let refused = |node: &str, reason: &str| Unsupported {
            node: node.into(),
            operator: "Reshape".into(),
            inputs: vec![Some(vec![1, 4])],
            reason: reason.into(),
            instead: "Do not".into(),
        };
        let uneven =
            |from: &str, to: &str| format!("reshapes {from} to {to}, which cuts dimensions unevenly");
        let mut nodes = vec![
            refused("a", &uneven("[1, 196, 128]", "[1, 196, 4, 32]")),
            refused("b", &uneven("[1, 49, 256]", "[1, 49, 8, 32]")),
            refused("c", &uneven("[1, 16, 1, 384]", "[16, 384]")),
        ];
        let text = list(&nodes);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("3 of the model's nodes") && text.contains("all for one reason"), "{text}");
        assert!(text.contains("a, b, c (Reshape") && text.contains("with other numbers"), "{text}");
        nodes.push(refused("d", "its input is constant"));
        let text = list(&nodes);
        assert!(text.contains("for 2 reasons") && text.lines().count() == 3, "{text}");
        // Nothing is said of others where there are none.
        assert!(!list(&nodes[2..]).contains("other numbers"));
    }
}
