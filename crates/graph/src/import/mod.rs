//! ONNX to a [`Graph`]: parse, translate by the operators' builders, fuse.
//!
//! One pass goes through all nodes that the output depends on. What is constant is computed on the spot, what
//! moves no value (`view`) costs nothing, and each other operator becomes one or a few operations. What
//! cannot be translated is collected, all of it, so that one import names everything that stands in the way.
//! `fuse` then leaves nothing but the operations of the integer network.
//!
//! Opsets 7 to 24. The batch dimension is 1 or symbolic, or one is taken of a fixed batch of images.

mod arithmetic;
mod blocks;
pub(crate) mod build;
pub(crate) mod constant;
pub(crate) mod finish;
mod first;
mod fuse;
pub(crate) mod moves;
mod qoperator;
pub(crate) mod refusal;
mod sizes;
mod tables;
mod tail;
pub(crate) mod tensor;
pub(crate) mod view;
pub(crate) mod windows;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use jaguar_ring::cpu::Cpu;
use thiserror::Error;

use self::build::only_reshapes;
pub use self::build::{Activation, Build, Builder, Call, Reject, Value};
pub use self::first::first_parts;
pub use self::refusal::Unsupported;
use self::refusal::{list, report, stand_in};
pub use self::tail::Cut;
pub use self::tensor::Tensor;
use self::view::View;
use crate::float::{Graph, Known, Node, Tail};
use crate::limits::{self, MAX_TOTAL_ELEMENTS};
use crate::network::{NodeId, OutputPart, Shape};
use crate::onnx::{self, GraphProto, ModelProto, NodeProto, OnnxError, Values};
use crate::ops::list::Operators;

/// The opsets that are read: from those that broadcast as NumPy does to the newest whose operators were compared with
/// ours.
pub const OPSETS: std::ops::RangeInclusive<i64> = 7..=24;
/// How many ONNX nodes a graph may have.
const MAX_ONNX_NODES: usize = 1 << 13;
/// The most elements of a computed constant that is larger than what it is computed from.
const MAX_GROWN: usize = 1 << 22;

/// Why a model could not be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read as ONNX.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// Another version of the operators.
    #[error("opset {found} is not supported (7 to 24 are): export the model again with one of these")]
    Opset {
        /// The file's; 0 if it names none.
        found: i64,
    },
    /// The graph's input is not one that is read; why, in words.
    #[error("the model's input: {0}")]
    Input(String),
    /// The graph's output is not one that is read; why, in words.
    #[error("the model's output: {0}")]
    Output(String),
    /// The file contradicts ONNX's rules.
    #[error("node {node}: {problem}")]
    Invalid {
        /// What the file calls the node, or where it stands.
        node: String,
        /// Which rule it breaks, and how.
        problem: String,
    },
    /// What the metadata says of weights in blocks.
    #[error("the model's metadata jaguar.blocks {0}")]
    Metadata(String),
    /// A layer without the blocks that the metadata says it has.
    #[error("layer {layer}: {problem}")]
    Blocks {
        /// What the file calls the layer.
        layer: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// More than a private inference could take.
    #[error("the model has too many {0}")]
    TooLarge(&'static str),
    /// Operators that have no counterpart.
    #[error("{}", list(.0))]
    Unsupported(Vec<Unsupported>),
}

/// What an import may be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which ONNX operators are read, and as what.
    pub operators: Operators,
    /// The input's ONNX shape, batch included, for models that leave sizes open.
    pub input_shape: Option<Vec<usize>>,
    /// Which outputs to compute, in this order. They are flattened and put one after the other. Empty: all that the
    /// model has.
    pub outputs: Vec<String>,
    /// Inputs that are always the same, by name: their values in C order, or a single one that fills them.
    pub constants: Vec<(String, Vec<f32>)>,
    /// What constants are computed with.
    pub cpu: Cpu,
}

impl Options {
    /// Those for a model with one input, whose sizes are all said.
    pub fn new(operators: &Operators) -> Self {
        let (operators, outputs, constants) = (operators.clone(), Vec::new(), Vec::new());
        Self { operators, input_shape: None, outputs, constants, cpu: Cpu::default() }
    }
}

/// Imports a model file; its name becomes the graph's.
///
/// # Errors
/// [`ImportError`]: the file cannot be read, is no ONNX, or holds what has no counterpart.
pub fn import_file(path: &Path, options: &Options) -> Result<Graph, ImportError> {
    let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    import_model(&onnx::read(path)?, &name, options)
}

/// Imports a model from memory (without tensor files beside it).
///
/// # Errors
/// As [`import_file`].
pub fn import_bytes(bytes: &[u8], name: &str, options: &Options) -> Result<Graph, ImportError> {
    import_model(&onnx::decode(bytes)?, name, options)
}

/// Imports a decoded model.
///
/// # Errors
/// As [`import_file`].
pub fn import_model(model: &ModelProto, name: &str, options: &Options) -> Result<Graph, ImportError> {
    // (An empty file, and some texts, are protocol buffers without anything.)
    let graph = model.graph.as_ref().ok_or(OnnxError::NoGraph)?;
    let opsets = model.opset_import.iter();
    let opset =
        opsets.filter(|o| is_standard(o.domain.as_deref())).filter_map(|o| o.version).max().unwrap_or(0);
    if !OPSETS.contains(&opset) {
        return Err(ImportError::Opset { found: opset });
    }
    let written = qoperator::has_any(graph).then(|| qoperator::written_out(graph));
    let graph = written.as_ref().unwrap_or(graph);
    if graph.node.len() > MAX_ONNX_NODES {
        return Err(ImportError::TooLarge("nodes"));
    }
    let blocks = blocks::Named::read(model)?;
    let translated = |options: &Options| translate(graph, blocks.clone(), opset, options);
    let (draft, tail) = match translated(options) {
        Ok(draft) => (draft, None),
        Err(ImportError::Unsupported(refused)) if options.outputs.is_empty() => {
            without_tail(refused, options, translated)?
        }
        Err(error) => return Err(of_batch(graph, options, error)),
    };
    let mut graph = fuse::fuse(options.cpu, draft, name)?;
    graph.tail = tail;
    blocks::check_folded(&mut graph)?;
    check(&graph)?;
    Ok(graph)
}

/// The model up to the tail that holds all that is `refused`, where there is one, and what is left out so.
fn without_tail(
    refused: Vec<Unsupported>,
    options: &Options,
    translated: impl Fn(&Options) -> Result<Draft, ImportError>,
) -> Result<(Draft, Option<Tail>), ImportError> {
    let simple = refused.iter().all(|node| tail::is_arithmetic(&node.operator));
    let cut = refused.iter().find_map(|node| node.cut.clone()).filter(|_| simple);
    let Some(Cut { outputs, nodes }) = cut else { return Err(ImportError::Unsupported(refused)) };
    let mut operators: Vec<String> = Vec::new();
    for node in &refused {
        if !operators.contains(&node.operator) {
            operators.push(node.operator.clone());
        }
    }
    match translated(&Options { outputs, ..options.clone() }) {
        Ok(draft) => Ok((draft, Some(Tail { nodes, refused: operators }))),
        Err(_) => Err(ImportError::Unsupported(refused)),
    }
}

fn is_standard(domain: Option<&str>) -> bool {
    matches!(domain, None | Some("" | "ai.onnx"))
}

/// The last look at what an import hands on: shapes follow from operations, weights are numbers.
fn check(graph: &Graph) -> Result<(), ImportError> {
    if graph.nodes.len() > limits::MAX_NODES {
        return Err(ImportError::TooLarge("nodes"));
    }
    let values = graph.nodes.iter().map(|node| node.shape.iter().product::<usize>());
    if values.sum::<usize>() > MAX_TOTAL_ELEMENTS {
        return Err(ImportError::TooLarge("values"));
    }
    if graph.nodes.len() < 2 {
        return Err(ImportError::Output("nothing is computed on the way from the input".into()));
    }
    for node in &graph.nodes {
        let problem = |problem: String| ImportError::Invalid { node: node.name.clone(), problem };
        let inputs: Vec<Shape> = node.inputs.iter().map(|&i| graph.nodes[i].shape).collect();
        let op = node.op.integer(&Known::default()).ok_or_else(|| problem("was left unfused".into()))?;
        let shape =
            crate::network::output_shape(&op, &inputs, node.shape).map_err(|e| problem(e.to_string()))?;
        if shape != node.shape {
            return Err(problem(format!("has shape {:?}, {shape:?} follows", node.shape)));
        }
        if let Some(linear) = node.op.linear() {
            let (crate::float::Bias::PerChannel(bias) | crate::float::Bias::PerElement(bias)) = &linear.bias;
            if !linear.weights.iter().chain(bias).all(|w| w.is_finite()) {
                return Err(problem("has weights that are not finite".into()));
            }
        }
    }
    Ok(())
}

/// What translation makes: nodes whose inputs come earlier, with affine operations still in place.
struct Draft {
    nodes: Vec<Node>,
    output: NodeId,
    channels_last: bool,
    layout_dims: Vec<usize>,
    outputs: Vec<OutputPart>,
}

/// The values that a node takes, its subgraphs included.
fn taken(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> = node.input.iter().map(String::as_str).collect();
    names.extend(captured(node));
    names
}

/// The values from outside that a node's subgraphs take, besides its own inputs.
fn captured(node: &NodeProto) -> Vec<&str> {
    let mut names = Vec::new();
    for graph in node.attribute.iter().filter_map(|a| a.g.as_ref()) {
        let mut own: HashSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
        own.extend(graph.input.iter().map(|input| input.name()));
        own.extend(graph.node.iter().flat_map(|node| &node.output).map(String::as_str));
        let taken = graph.node.iter().flat_map(taken);
        names.extend(taken.filter(|name| !name.is_empty() && !own.contains(name)));
        // A subgraph may hand on a value from outside as it is.
        let outputs = graph.output.iter().map(|output| output.name());
        names.extend(outputs.filter(|name| !own.contains(name)));
    }
    names
}

/// The ONNX nodes that the outputs depend on, by index; and those of them after which values only change their shape.
fn live_nodes(graph: &GraphProto, outputs: &[&str]) -> Result<(HashSet<usize>, HashSet<usize>), ImportError> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            if makers.insert(name, index).is_some() {
                let problem = format!("makes {name:?}, which another node makes too");
                return Err(ImportError::Invalid { node: describe(node, index), problem });
            }
        }
    }
    let reach = |follow: fn(&NodeProto) -> usize| {
        let mut found = HashSet::new();
        let mut open = outputs.to_vec();
        while let Some(name) = open.pop() {
            if let Some(&index) = makers.get(name)
                && found.insert(index)
            {
                let node = &graph.node[index];
                open.extend(node.input.iter().take(follow(node)).map(String::as_str));
                open.extend(captured(node));
            }
        }
        found
    };
    let last = reach(|node| usize::from(only_reshapes(node.op_type())));
    Ok((reach(|_| usize::MAX), last))
}

/// By value, the operators of these nodes that take it; an empty name for the model's outputs.
fn takers<'a>(
    graph: &'a GraphProto,
    live: &HashSet<usize>,
    outputs: &[&'a str],
) -> HashMap<&'a str, Vec<&'a str>> {
    let mut takers: HashMap<&str, Vec<&str>> = HashMap::new();
    for (_, node) in graph.node.iter().enumerate().filter(|(index, _)| live.contains(index)) {
        taken(node).into_iter().for_each(|name| takers.entry(name).or_default().push(node.op_type()));
    }
    outputs.iter().for_each(|name| takers.entry(name).or_default().push(""));
    takers
}

fn describe(node: &NodeProto, index: usize) -> String {
    let shorten = |text: &str| text.chars().take(200).collect::<String>();
    match (node.name(), node.output.first()) {
        ("", Some(output)) if !output.is_empty() => shorten(output),
        ("", _) => format!("#{index}"),
        (name, _) => shorten(name),
    }
}

fn translate(
    graph: &GraphProto,
    mut blocks: blocks::Named,
    opset: i64,
    options: &Options,
) -> Result<Draft, ImportError> {
    let outputs = choose_outputs(graph, options)?;
    let (live, last) = live_nodes(graph, &outputs)?;
    let mut values: HashMap<&str, Value> = HashMap::new();
    let used: HashSet<&str> = live.iter().flat_map(|&i| taken(&graph.node[i])).collect();
    for tensor in graph.initializer.iter().filter(|t| used.contains(t.name())) {
        let (dims, data) = tensor.values()?;
        values.insert(tensor.name(), Value::Constant(Arc::new(Tensor { dims, values: data })));
    }

    for (name, given) in &options.constants {
        let (name, tensor) = constant_input(graph, name, given)?;
        values.insert(name, Value::Constant(Arc::new(tensor)));
    }

    let (input, shape, layout) = read_input(graph, &values, &used, options)?;
    let layout_dims = layout.iter().map(|&axis| shape[axis]).collect();
    let channels_last = layout == [1, 2, 0];
    let mut builder = Builder::new();
    let node = builder
        .input(input, shape)
        .map_err(|_| ImportError::Input(format!("{input:?} of shape {shape:?} is too large or empty")))?;
    let view = View::with_layout(shape, &layout);
    values.insert(input, Value::Activation(Activation::new(node, view)));
    builder.batch = fixed_batch(graph, input);

    let mut kinds: HashMap<&str, i32> =
        graph.initializer.iter().filter_map(|t| Some((t.name(), t.data_type?))).collect();
    let takers = takers(graph, &live, &outputs);
    let (mut unsupported, mut refused) = (Vec::new(), Vec::new());
    for (index, proto) in graph.node.iter().enumerate().filter(|(index, _)| live.contains(index)) {
        let name = describe(proto, index);
        let mut inputs = Vec::with_capacity(proto.input.len());
        for input in &proto.input {
            inputs.push(match (input.as_str(), values.get(input.as_str())) {
                ("", _) => None,
                (_, Some(value)) => Some(value.clone()),
                (_, None) => {
                    let problem = format!("takes {input:?}, which nothing before it makes");
                    return Err(ImportError::Invalid { node: name, problem });
                }
            });
        }
        let by_input: Vec<Option<i32>> =
            proto.input.iter().map(|name| kinds.get(name.as_str()).copied()).collect();
        let made_kind = match proto.op_type() {
            "Constant" => proto.attribute.iter().find_map(|a| a.t.as_ref()?.data_type),
            "Identity" => by_input.first().copied().flatten(),
            _ => None,
        };
        if let (Some(kind), Some(output)) = (made_kind, proto.output.first()) {
            kinds.insert(output, kind);
        }
        let takers =
            proto.output.first().and_then(|name| takers.get(name.as_str())).cloned().unwrap_or_default();
        let last = last.contains(&index);
        let call = Call { proto, name, opset, inputs, kinds: by_input, last, takers };
        let before = builder.nodes.len();
        let made = match build(&mut builder, &call, &options.operators) {
            Ok(made) => {
                blocks.give(proto, &mut builder.nodes[before..])?;
                made
            }
            // What was refused before says more of the model than that the rest is too large.
            Err(Reject::TooLarge(_)) if !unsupported.is_empty() => {
                return Err(ImportError::Unsupported(unsupported));
            }
            Err(Reject::TooLarge(what)) => return Err(ImportError::TooLarge(what)),
            // Behind a refused node it may be the stand-in that does not fit.
            Err(Reject::Invalid(problem)) if unsupported.is_empty() => {
                return Err(ImportError::Invalid { node: call.name, problem });
            }
            Err(Reject::Follows | Reject::Invalid(_)) => Vec::new(),
            Err(Reject::Unsupported { reason, instead }) => {
                unsupported.push(report(&call, reason, instead, live.len()));
                refused.push(index);
                vec![stand_in(&mut builder, &call)]
            }
        };
        let mut made = made.into_iter();
        for output in &proto.output {
            values.insert(output, made.next().unwrap_or(Value::Unknown));
        }
    }
    if let Some(first) = unsupported.first_mut() {
        first.cut = tail::cut(graph, &live, &refused, &outputs, &values);
        return Err(ImportError::Unsupported(unsupported));
    }
    blocks.finish()?;
    let mut nodes = Vec::with_capacity(outputs.len());
    let mut parts = Vec::with_capacity(outputs.len());
    for &name in &outputs {
        let Some(Value::Activation(last)) = values.get(name) else {
            let others = if outputs.len() > 1 { ": name the others with --output-name" } else { "" };
            return Err(ImportError::Output(format!("{name:?} does not depend on the input{others}")));
        };
        let dims = last.view.sizes();
        if name.len() > limits::MAX_NAME || dims.len() > limits::MAX_RANK {
            return Err(ImportError::Output("its name or rank is too large".into()));
        }
        if builder.batch.is_some() && dims.first() == builder.batch.as_ref() {
            return Err(ImportError::Output(format!("{name:?} has values of a whole batch")));
        }
        nodes.push(finish_output(&mut builder, name, last, outputs.len() > 1)?);
        parts.push(OutputPart { name: name.into(), dims, finish: last.finish });
    }
    let output = match nodes[..] {
        [one] => one,
        _ => builder.joined("outputs", nodes).map_err(|_| ImportError::TooLarge("values in its outputs"))?,
    };
    Ok(Draft { nodes: builder.nodes, output, channels_last, layout_dims, outputs: parts })
}

/// Brings an output into ONNX's order; flat, if there are others.
fn finish_output(
    builder: &mut Builder,
    name: &str,
    last: &Activation,
    flat: bool,
) -> Result<NodeId, ImportError> {
    let natural = View::natural(builder.nodes[last.node].shape);
    if last.view.in_order() && (last.view.rank() == 4 && !flat || natural.is_everything(1)) {
        return Ok(last.node);
    }
    let sizes = last.view.sizes();
    let shape = match sizes[..] {
        [_, c, h, w] if !flat => [c, h, w],
        _ => [sizes.iter().product(), 1, 1],
    };
    moves::materialise(builder, name, last, shape)
        .map_err(|_| ImportError::Output("its order of elements cannot be made".into()))
}

fn choose_outputs<'a>(graph: &'a GraphProto, options: &'a Options) -> Result<Vec<&'a str>, ImportError> {
    let names: Vec<&str> = graph.output.iter().map(|o| o.name()).collect();
    let wanted: Vec<&str> = options.outputs.iter().map(String::as_str).collect();
    let wanted = if wanted.is_empty() { names.clone() } else { wanted };
    if wanted.is_empty() {
        return Err(ImportError::Output("there is none".into()));
    }
    if wanted.len() > limits::MAX_OUTPUTS {
        return Err(ImportError::Output(format!(
            "there are {}, and at most {} are taken: name some with --output-name, of {}",
            wanted.len(),
            limits::MAX_OUTPUTS,
            shown(&names)
        )));
    }
    // Values inside may be named too: that cuts the rest off.
    let made = |name: &str| graph.node.iter().any(|node| node.output.iter().any(|o| o == name));
    for (index, name) in wanted.iter().enumerate() {
        if name.is_empty() || !names.contains(name) && !made(name) {
            return Err(ImportError::Output(format!(
                "there is no {name:?} among {} or the values inside",
                shown(&names)
            )));
        }
        if wanted[..index].contains(name) {
            return Err(ImportError::Output(format!("{name:?} is named twice")));
        }
    }
    Ok(wanted)
}

/// Names for a message, and how many more there are.
fn shown(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    let more = names.len().saturating_sub(SHOWN);
    let first = format!("{:?}", &names[..names.len() - more]);
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// An input that is told to be constant, under the name that the graph has for it. Sizes that it leaves open are 1.
fn constant_input<'a>(
    graph: &'a GraphProto,
    name: &str,
    given: &[f32],
) -> Result<(&'a str, Tensor), ImportError> {
    let error = |what: String| ImportError::Input(format!("{name:?}, which is to be constant, {what}"));
    let input =
        graph.input.iter().find(|input| input.name() == name).ok_or_else(|| error("is none".into()))?;
    let kind = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let dims = kind.and_then(|t| t.shape.as_ref()).map_or(&[][..], |shape| &shape.dim[..]);
    let size = |dim: &onnx::DimensionProto| dim.dim_value.and_then(|v| usize::try_from(v).ok()).unwrap_or(1);
    let dims: Vec<usize> = dims.iter().map(size).collect();
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MAX_TOTAL_ELEMENTS);
    let count = count.ok_or_else(|| error(format!("has shape {dims:?}, which is too large")))?;
    let values = match given {
        [one] => vec![*one; count],
        _ if given.len() == count => given.to_vec(),
        _ => return Err(error(format!("has shape {dims:?}; {} numbers were given", given.len()))),
    };
    if !values.iter().all(|v| v.is_finite()) {
        return Err(error("needs finite numbers".into()));
    }
    let float = matches!(
        kind.and_then(|t| t.elem_type),
        None | Some(onnx::data_type::FLOAT | onnx::data_type::FLOAT16 | onnx::data_type::DOUBLE)
    );
    let values = if float {
        Values::Float(values)
    } else if values.iter().all(|v| v.fract() == 0.0) {
        Values::Int(values.iter().map(|&v| v as i64).collect())
    } else {
        return Err(error("takes whole numbers".into()));
    };
    Ok((input.name(), Tensor { dims, values }))
}

/// N, where an input is declared as images in a batch of N, more than one.
fn fixed_batch(graph: &GraphProto, input: &str) -> Option<usize> {
    let input = graph.input.iter().find(|i| i.name() == input)?;
    let dims = &input.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?.dim;
    let batch = usize::try_from(dims.first()?.dim_value?).ok()?;
    (dims.len() == 4 && batch > 1).then_some(batch)
}

/// The error of a model that was exported for a fixed batch, where what the file says of sizes may be why.
fn of_batch(graph: &GraphProto, options: &Options, error: ImportError) -> ImportError {
    let given = |name: &str| options.constants.iter().any(|(constant, _)| constant == name);
    let inputs = graph.input.iter().map(|input| input.name()).filter(|name| !given(name));
    let batch = inputs.filter_map(|name| Some((name, fixed_batch(graph, name)?))).next();
    match (batch, error) {
        (Some((name, batch)), error @ (ImportError::Invalid { .. } | ImportError::Output(_))) => {
            ImportError::Input(format!(
                "{name:?} has batch size {batch}, and one of it cannot be taken ({error}): export with 1"
            ))
        }
        (_, error) => error,
    }
}

/// The input's name, the node's shape, and how the ONNX dimensions lie over it.
fn read_input<'a>(
    graph: &'a GraphProto,
    values: &HashMap<&str, Value>,
    used: &HashSet<&str>,
    options: &Options,
) -> Result<(&'a str, Shape, Vec<usize>), ImportError> {
    // Older files list initializers as inputs too.
    let initialised: HashSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
    let inputs: Vec<_> = graph.input.iter().filter(|i| !initialised.contains(i.name())).collect();
    let mut wanted = inputs.iter().filter(|i| used.contains(i.name()) && !values.contains_key(i.name()));
    let (Some(input), None) = (wanted.next(), wanted.next()) else {
        let names: Vec<&str> = inputs.iter().map(|i| i.name()).collect();
        return Err(ImportError::Input(format!(
            "there must be exactly one; found {names:?} (--constant NAME=NUMBER for those that are always the same)"
        )));
    };
    let name = input.name();
    let declared = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).and_then(|t| t.shape.as_ref());
    let open =
        || ImportError::Input(format!("{name:?} has no shape: give one, as --input-shape 1,3,224,224"));
    let sizes: Vec<Option<usize>> = match &options.input_shape {
        Some(shape) => shape.iter().map(|&s| Some(s)).collect(),
        None => {
            let dims = declared.ok_or_else(open)?.dim.iter();
            dims.map(|d| d.dim_value.and_then(|v| usize::try_from(v).ok()).filter(|&v| v > 0)).collect()
        }
    };
    let Some((batch, rest)) = sizes.split_first() else { return Err(open()) };
    let of_images = options.input_shape.is_none() && fixed_batch(graph, name).is_some();
    if let Some(batch) = batch.filter(|&batch| batch != 1 && !of_images) {
        let one = match options.input_shape {
            Some(_) => "--input-shape begins with 1: one query has one input",
            None => "export with 1",
        };
        return Err(ImportError::Input(format!("{name:?} has batch size {batch}: {one}")));
    }
    let rest: Option<Vec<usize>> = rest.iter().copied().collect();
    let problem = || {
        ImportError::Input(format!(
            "{name:?} leaves sizes other than the batch open: fix them, as --input-shape 1,3,224,224"
        ))
    };
    // What the last dimension is, ONNX does not say; images have few channels.
    let few = |c: usize| c <= 4;
    match rest.ok_or_else(problem)?[..] {
        [h, w, c] if few(c) && !few(h) => Ok((name, [c, h, w], vec![1, 2, 0])),
        [c, h, w] => Ok((name, [c, h, w], vec![0, 1, 2])),
        [c, h] => Ok((name, [c, h, 1], vec![0, 1])),
        [c] => Ok((name, [c, 1, 1], vec![0])),
        ref other => {
            let dims: Vec<usize> = [1].iter().chain(other).copied().collect();
            let why = match other.len() {
                4.. => ": three-dimensional convolutions (volumes, video) are not supported",
                _ => "",
            };
            Err(ImportError::Input(format!(
                "{name:?} has {} dimensions, {dims:?}, and 2 to 4 are read, as [1, C, H, W]{why}",
                dims.len()
            )))
        }
    }
}

/// Translates one node.
fn build(builder: &mut Builder, call: &Call<'_>, operators: &Operators) -> Result<Vec<Value>, Reject> {
    let operator = call.operator();
    // Where the standard operators know no 16-bit integers, ONNX Runtime's quantiser takes its own, which are the same.
    let quantises = matches!(operator, "QuantizeLinear" | "DequantizeLinear");
    let standard = is_standard(call.proto.domain.as_deref());
    if !(standard || quantises && call.proto.domain() == "com.microsoft") {
        if let Some(build) = operators.onnx(&format!("{}:{operator}", call.proto.domain())) {
            return build(builder, call);
        }
        return Err(refusal::foreign(call, operators));
    }
    if operator == "Constant" {
        return Ok(vec![Value::Constant(Arc::new(constant::given(call)?))]);
    }
    let all_constant = call.inputs.iter().flatten().all(|v| matches!(v, Value::Constant(_)));
    if all_constant && constant::folds(operator) && call.inputs() > 0 {
        let given: usize = call
            .inputs
            .iter()
            .flatten()
            .map(|v| if let Value::Constant(t) = v { t.values.len() } else { 0 })
            .sum();
        let made = match operator {
            "Split" => tables::split(call)?,
            _ => vec![constant::fold(call, given.max(MAX_GROWN))?],
        };
        // What grows out of little is dearer: a small file must not fill the memory.
        let count = made.iter().map(|tensor| tensor.values.len()).sum::<usize>();
        let price = if count > given { 16 } else { 1 };
        let left = builder.folded_left.checked_sub(price * count);
        builder.folded_left = left.ok_or(Reject::TooLarge("computed constants"))?;
        return Ok(made.into_iter().map(|tensor| Value::Constant(Arc::new(tensor))).collect());
    }
    if let Some(reject) = refusal::subgraphs(call) {
        return Err(reject);
    }
    match operators.onnx(operator) {
        Some(build) => build(builder, call),
        // What is computed of constants, after what is not known.
        None if constant::folds(operator)
            && call.inputs.iter().any(|v| matches!(v, Some(Value::Unknown))) =>
        {
            Err(Reject::Follows)
        }
        None => Err(Reject::instead("the operator is not supported", refusal::instead(operator))),
    }
}
