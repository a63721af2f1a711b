//! What cannot be translated: which node, why, what would help, and what the import goes on with behind it.
//!
//! An import that fails has looked at the whole model, so that one text holds everything that stands in the way. Behind
//! a refused node it goes on with a value of the shape that the node's result has, where that is known.

use std::collections::HashMap;
use std::fmt;

use super::build::{Activation, Builder, Call, Reject, Value};
use super::sizes::{keeps_shape, result_sizes};
use super::tail::Cut;
use super::view::View;
use crate::limits::MAX_ELEMENTS;
use crate::onnx::GraphProto;
use crate::ops::list::Operators;

/// An ONNX node that cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The node's name, or where it stands.
    pub node: String,
    /// Its ONNX operator, without the domain.
    pub operator: String,
    /// The shapes of its inputs; `None` if unknown.
    pub inputs: Vec<Option<Vec<usize>>>,
    /// What of it is not supported, as what follows "it".
    pub reason: String,
    /// What could be exported instead, or how to cut it off.
    pub instead: String,
    /// Of how many nodes it is one: those of the model that its outputs depend on.
    pub of: usize,
    /// How all that is refused can be cut off with what follows it, said with the first node only; `None` if a layer follows.
    pub cut: Option<Cut>,
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
    let all = nodes.first().map_or(0, |node| node.of);
    let cut = nodes.iter().find_map(|node| node.cut.as_ref()).map(|cut| format!("\n  {}", cut_off(cut)));
    let cut = cut.unwrap_or_default();
    format!("{} of the model's {all} nodes cannot be run privately{reasons}:{lines}{cut}", nodes.len())
}

/// What is said of a node that was refused, one of so many.
pub(super) fn report(call: &Call<'_>, reason: String, instead: String, of: usize) -> Unsupported {
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
        of,
        cut: None,
    }
}

/// What is said of a tail that can be cut off.
fn cut_off(Cut { outputs, nodes }: &Cut) -> String {
    let nodes = if *nodes == 1 { "this node".into() } else { format!("the last {nodes} nodes") };
    format!(
        "No layer follows: {nodes} can be left to whoever gets the answer, with --output-name {}",
        outputs.join(",")
    )
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

/// Advice where a vector is divided by a norm that is not its length.
const NORM: &str = "A norm at the end can be cut off (--output-name with the value before it): whoever gets the vector \
                    divides it. Inside a network there is no stand-in but the length (ReduceL2)";

/// Advice for what only a client can compute.
pub(crate) const AT_THE_END: &str = "At the end it can be cut off (--output-name with the value before it) and done by the client; inside a \
                          network there is no stand-in";

/// What could stand in for operators that none of the standard ones takes. (What is said of others is their builders'.)
const ADVICE: [(&[&str], &str); 10] = [
    (&["ReduceL1"], NORM),
    (
        &[
            "ConvInteger",
            "MatMulInteger",
            "DynamicQuantizeLinear",
            "QLinearAveragePool",
            "QLinearGlobalAveragePool",
            "QGemm",
        ],
        "Quantise in the QDQ form (QuantFormat.QDQ in ONNX Runtime), or import the float model: quantisation happens here",
    ),
    (&["If", "Loop", "Scan"], "Export with fixed control flow (trace the model instead of scripting it)"),
    (
        &["ArgMax", "TopK"],
        "Cut it off (--output-name with the value before it): the client takes the largest output itself, or only its index is \
         revealed",
    ),
    (
        &["NonMaxSuppression", "NonZero", "RoiAlign", "ScatterND"],
        "Cut it off (--output-name with the values before it): the client does what follows the network's last layers",
    ),
    (&["Exp", "Log", "Sin", "Cos"], AT_THE_END),
    (&["GridSample"], "Use nearest Resize, or a ConvTranspose"),
    (&["LSTM", "GRU", "RNN"], "Layers with a memory are not supported"),
    (
        &["MultiHeadAttention"],
        "Export without optimisations that are bound to a runtime: attention in ONNX's own operators is supported",
    ),
    (&["LpPool", "GlobalLpPool"], "Use average or max pooling"),
];

/// What could stand in for an operator that nothing takes; empty where nothing is known.
pub(super) fn instead(operator: &str) -> &'static str {
    ADVICE.iter().find(|(operators, _)| operators.contains(&operator)).map_or("", |(_, advice)| advice)
}

/// Why an operator of another domain than ONNX's is refused, which nothing takes.
pub(super) fn foreign(call: &Call<'_>, operators: &Operators) -> Reject {
    let operator = call.operator();
    let advice = match instead(operator) {
        _ if operators.onnx(operator).is_some() => {
            format!(
                "Export it as ONNX's own {operator}, or without optimisations that are bound to a runtime"
            )
        }
        "" => "Export without optimisations that are bound to a runtime".into(),
        advice => advice.into(),
    };
    let domain: String = call.proto.domain().chars().take(200).collect();
    Reject::instead(&format!("an operator of the domain {domain:?}"), &advice)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_for_what_no_operator_takes() {
        let standard = Operators::standard();
        for operator in ADVICE.iter().flat_map(|(operators, _)| *operators) {
            assert!(standard.onnx(operator).is_none(), "{operator} is taken: its builder says what helps");
        }
    }

    /// Reasons that differ in shapes only are one line.
    #[test]
    fn shapes_are_no_reasons() {
        let refused = |node: &str, reason: &str| Unsupported {
            node: node.into(),
            operator: "Reshape".into(),
            inputs: vec![Some(vec![1, 4])],
            reason: reason.into(),
            instead: "Do not".into(),
            of: 214,
            cut: None,
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
        assert!(text.contains("3 of the model's 214 nodes") && text.contains("all for one reason"), "{text}");
        assert!(text.contains("a, b, c (Reshape") && text.contains("with other numbers"), "{text}");
        nodes.push(refused("d", "its input is constant"));
        let text = list(&nodes);
        assert!(text.contains("for 2 reasons") && text.lines().count() == 3, "{text}");
        // Nothing is said of others where there are none.
        assert!(!list(&nodes[2..]).contains("other numbers"));
    }
}
