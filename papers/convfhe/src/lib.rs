//! One round: from a float network to what is evaluated on ciphertexts, and sessions in which that is done.
//!
//! ConvFHE knows one kind of layer: a sum of convolutions of earlier values, a bias, ReLU. Whatever lies between two ReLUs is
//! linear, and becomes such a sum here: residual connections are one more term, option-A shortcuts a kernel of size 1 with a stride,
//! an average pool a kernel of its window's size, and a fully connected layer behind it is multiplied into it. Groups and dilation
//! are written out with zeros. ReLU6 is the difference of two ReLUs, a max-pool takes ReLUs of differences (`max_pool`). What has no
//! such form is refused, with a reason.

mod description;
mod elsewhere;
mod evaluation;
mod form;
pub mod keys;
mod machine;
mod max_pool;
mod model;
pub mod network;
pub mod party;
pub mod session;
mod sets;
mod split;
mod stress;

use jaguar_graph::float::{Add, AveragePool, Clip, Graph, Input, MaxPool, Node, Op, Relu};
use jaguar_graph::network::{Rearrange, Shape};

pub use description::{Description, Floats, Layer, Polynomial, Term};
pub use elsewhere::{Elsewhere, ElsewhereError, evaluate};
pub use evaluation::{Figures, InProcess};
use form::Form;
pub use machine::memory;
pub use model::{Calibration, Compiled, Inputs, Loaded, ModelError, Simulated};
pub use sets::{COARSE_SET, DEFAULT_SET, FULL_SET, Set, SetError};
pub use split::{NoCut, last_layers};
pub use stress::{STRESS_MARGIN, stress};

/// Why a network cannot be evaluated in one round.
#[derive(Debug, thiserror::Error)]
#[error("node {node} ({name}) cannot be evaluated in one round: {refusal}")]
pub struct Unsupported {
    /// Which node of the graph.
    pub node: usize,
    /// What the file calls the node.
    pub name: String,
    /// Why it cannot be computed in ciphertexts.
    #[source]
    pub refusal: Refusal,
}

/// What is wrong with a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Neither linear nor ReLU.
    #[error("{0} is neither linear nor a ReLU, and no polynomial for it is built")]
    Operation(&'static str),
    /// A padded max-pool of values that may be negative: zeros beside them might be the largest.
    #[error("a max-pool with padding takes what a ReLU gives, and nothing else")]
    MaxPoolPadding,
    /// Two linear layers without a ReLU between them.
    #[error(
        "it follows another linear layer without a ReLU between them, and neither is only a matrix over channels"
    )]
    TwoInARow,
    /// Different steps down and right.
    #[error("its stride is {0:?}; rows and columns must have the same")]
    Stride([usize; 2]),
    /// An average that counts only real places.
    #[error("its average does not count the padding")]
    Pool,
    /// A bias that differs by place.
    #[error("its bias differs by place, not only by channel")]
    BiasByElement,
    /// Values moved about in an irregular way.
    #[error("it moves values in a way that is no stride: {0:?}")]
    Rearrange(Rearrange),
    /// More weights than a description may have.
    #[error("its kernel, written out, has too many weights")]
    TooLarge,
    /// The output is a ReLU, or not one number a channel.
    #[error("the network's output must be one number a channel, without ReLU")]
    Output,
    /// Weights or inputs are missing.
    #[error("it is malformed")]
    Malformed,
}

/// Describes a graph whose inputs, behind [`Graph::affine`], are at most `input_bound` in absolute value.
///
/// # Errors
/// [`Unsupported`]: the first node that has no place in a chain of sums of convolutions.
pub fn describe(graph: &Graph, input_bound: f64) -> Result<Description, Unsupported> {
    let mut layers = Layers { layers: Vec::new(), shapes: vec![graph.input_shape()] };
    let mut forms: Vec<Form> = Vec::new();
    let behind = relus_behind_pools(graph);
    for (index, node) in graph.nodes.iter().enumerate() {
        let of = |i: usize| node.inputs.get(i).and_then(|&from| forms.get(from)).ok_or(Refusal::Malformed);
        let op = &node.op;
        let form = (|| {
            if op.is::<Input>() {
                Form::value(0, node.shape)
            } else if op.is::<Relu>() {
                if behind[index] { Ok(of(0)?.clone()) } else { layers.push(&node.name, "", of(0)?.clone()) }
            } else if let Some(Clip { ceiling }) = op.downcast_ref() {
                // min(max(x, 0), c) = ReLU(x) - ReLU(x - c): two layers.
                let form = of(0)?.clone();
                let below = layers.push(&node.name, "", form.clone())?;
                let above = layers.push(&node.name, ", above its ceiling", form.scaled(1.0, -ceiling))?;
                Ok(below.plus(&above.scaled(-1.0, 0.0)))
            } else if let Some(linear) = op.linear() {
                of(0)?.convolved(linear, node)
            } else if let Some(AveragePool { window, count_padding }) = op.downcast_ref() {
                of(0)?.averaged(window, *count_padding, node)
            } else if op.is::<Add>() {
                Ok(of(0)?.clone().plus(of(1)?))
            } else if let Some(rearrange) = op.downcast_ref::<Rearrange>() {
                of(0)?.rearranged(rearrange, node.shape)
            } else if let Some(MaxPool(window)) = op.downcast_ref() {
                let (input, rectified) = (of(0)?, is_rectified(graph, node.inputs[0]));
                if window.pads != [0; 4] && !rectified {
                    return Err(Refusal::MaxPoolPadding);
                }
                let values = layers.shapes.clone();
                let mut relu = |form| layers.push(&node.name, ", a comparison", form);
                let pooled = max_pool::max_pool(input, window, node.shape, &values, &mut relu)?;
                if rectified {
                    // The ReLU that was left out; or one that changes nothing, so that a convolution can follow.
                    layers.push(&node.name, "", pooled)
                } else if takers(graph, index).all(|taker| taker.op.is::<Relu>()) {
                    Ok(pooled)
                } else {
                    // x = ReLU(x) - ReLU(-x)
                    let above = layers.push(&node.name, "", pooled.clone())?;
                    let below = layers.push(&node.name, ", below zero", pooled.scaled(-1.0, 0.0))?;
                    Ok(above.plus(&below.scaled(-1.0, 0.0)))
                }
            } else {
                Err(Refusal::Operation(op.name()))
            }
        })();
        let form = form.map_err(|refusal| Unsupported { node: index, name: node.name.clone(), refusal })?;
        forms.push(form);
    }
    let (last, form) = graph.nodes.iter().zip(forms).next_back().expect("a graph has nodes");
    let fail = |refusal| Unsupported { node: graph.nodes.len() - 1, name: last.name.clone(), refusal };
    if is_activation(&last.op) || form.shape[1..] != [1, 1] {
        return Err(fail(Refusal::Output));
    }
    let output = Layer { name: last.name.clone(), terms: form.terms, bias: Floats(form.bias), bound: None };
    Ok(Description {
        name: graph.name.clone(),
        input: graph.input_shape(),
        input_bound,
        relu: Polynomial::default(),
        images: 1,
        layers: layers.layers,
        output,
    })
}

/// Layers, and the shapes of all values: the input's, then theirs.
struct Layers {
    layers: Vec<Layer>,
    shapes: Vec<Shape>,
}

impl Layers {
    /// A layer that rectifies a form, and the value that it is.
    fn push(&mut self, name: &str, suffix: &str, form: Form) -> Result<Form, Refusal> {
        let Form { terms, bias, shape } = form;
        self.layers.push(Layer { name: format!("{name}{suffix}"), terms, bias: Floats(bias), bound: None });
        self.shapes.push(shape);
        Form::value(self.layers.len(), shape)
    }
}

/// What takes a node's values.
fn takers(graph: &Graph, node: usize) -> impl Iterator<Item = &Node> {
    graph.nodes.iter().filter(move |taker| taker.inputs.contains(&node))
}

/// Whether an operation is a ReLU, with a ceiling or without.
fn is_activation(op: &Op) -> bool {
    op.is::<Relu>() || op.is::<Clip>()
}

/// Whether a node's values are never negative.
fn is_rectified(graph: &Graph, node: usize) -> bool {
    let Node { op, inputs, .. } = &graph.nodes[node];
    is_activation(op) || op.is::<MaxPool>() && is_rectified(graph, inputs[0])
}

/// Which nodes are ReLUs that only a max-pool without padding takes: it takes them behind itself.
fn relus_behind_pools(graph: &Graph) -> Vec<bool> {
    let behind = |node: usize| {
        let pools = |op: &Op| op.downcast_ref().is_some_and(|MaxPool(window)| window.pads == [0; 4]);
        graph.nodes[node].op.is::<Relu>()
            && takers(graph, node).count() == 1
            && takers(graph, node).all(|taker| pools(&taker.op))
    };
    (0..graph.nodes.len()).map(behind).collect()
}
