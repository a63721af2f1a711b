//! What is done, layer by layer: which ring each value's shares live in, where they are extended, and how each
//! linear layer is laid out.
//!
//! A plan follows from the public network and the planner's [`Choices`] alone; both parties make it for themselves and compare
//! their [`Plan::digest`]s before anything secret is sent.
//!
//! # Rings
//!
//! A linear layer with shift f takes shares mod 2^(n+f) and makes shares mod 2^n; nonlinear layers take shares mod 2^n, and ReLU can
//! make any larger ring at little cost. So the plan walks backwards and asks what ring each value is needed in. A value
//! is made in the largest ring that a consumer asks for; the others take its shares modulo their own. Where the maker can
//! only make 2^n (a linear layer, a max-pool) and a consumer asks for more, an extension follows.
//!
//! This holds for Jaguar's protocol; under Cheetah's every value has the same ring (`cheetah.rs`).

use std::sync::Arc;

use jaguar_graph::network::{Network, Node, NodeId, Op, Window};
use jaguar_linear::layout::Layout;
use jaguar_linear::{cheetah as cheetah_layer, jaguar as jaguar_layer};
use jaguar_mpc::{
    Cost, Elementwise, ExtendParams, MpcError, Nonlinear, PoolParams, PoolShape, Pooling, Range, Relu6Params,
    ReluParams, TruncateParams,
};
use jaguar_rlwe::{ParameterError, Parameters};

mod cheetah;
mod choices;
mod layer;
pub mod machine;
pub mod planner;
pub mod predict;
#[cfg(test)]
mod tests;

pub use choices::{Choices, DIGIT, Protocol};
pub use layer::Layer;

/// Why a network has no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The parameter set is not one that may be used.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// A choice that cannot be followed.
    #[error("a choice that cannot be followed: {0}")]
    Choices(String),
    /// A linear layer does not fit.
    #[error("layer '{name}': {source}")]
    Layer {
        /// The node's name.
        name: String,
        /// Why.
        source: jaguar_layer::LayerError,
    },
    /// A linear layer does not fit Cheetah's ring.
    #[error("layer '{name}': {source}")]
    CheetahLayer {
        /// The node's name.
        name: String,
        /// Why.
        source: cheetah_layer::LayerError,
    },
    /// Products need wider shares than the nonlinear protocols take.
    #[error(
        "Cheetah keeps products whole: the value of '{name}' takes {bits} bits, and its comparisons at most {}",
        jaguar_mpc::WIDEST
    )]
    Products {
        /// The node's name.
        name: String,
        /// Bits needed.
        bits: u32,
    },
    /// A nonlinear layer would take values that may be wider than it can.
    #[error("'{name}' would compare values of {bits} bits; the network's activations have {activation_bits}")]
    Wide {
        /// The node's name.
        name: String,
        /// Bits of its input.
        bits: u32,
        /// n.
        activation_bits: u32,
    },
    /// A nonlinear layer's parameters are out of its protocol's range.
    #[error("layer '{name}': {source}")]
    Nonlinear {
        /// The node's name.
        name: String,
        /// Why.
        source: MpcError,
    },
    /// A value needs a ring wider than shares can have.
    #[error("the value of '{name}' would need shares of {bits} bits; at most {MAX_SHARE_BITS} fit")]
    Ring {
        /// The node's name.
        name: String,
        /// Bits needed.
        bits: u32,
    },
}

/// Shares have at most this many bits.
pub const MAX_SHARE_BITS: u32 = 48;

/// Standard deviations of its noise that a linear layer's result may be off by beyond its rounding.
pub const SIGMAS: f64 = 8.0;

/// The version of everything that two parties must do alike: message order, packing, derivations.
pub const PROTOCOL_VERSION: u32 = 13;

/// One node's part of the plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// The ring in which the operation itself makes its value: shares modulo 2^made.
    pub made: u32,
    /// The ring in which its consumers find it, after what follows the operation.
    pub ring: u32,
    /// The value is the network's times 2^excess: products that are not yet truncated (Cheetah's only).
    pub excess: u32,
    /// How a linear layer is laid out.
    pub layer: Option<Layer>,
    /// A nonlinear layer: its protocol, parameters and size.
    pub nonlinear: Option<Arc<dyn Nonlinear>>,
    /// The truncation that follows the operation (Cheetah's only).
    pub truncation: Option<TruncateParams>,
    /// The extension that follows the operation, if a consumer needs a wider ring than the operation makes (Jaguar's
    /// only).
    pub extension: Option<ExtendParams>,
    /// The client knows its share of a nonlinear layer's operand before the input, so it can correct early
    /// ([`jaguar_mpc::Block::correct`]): the operand is a linear layer's output, or locally made of nothing else.
    pub early: bool,
    /// How many values the operation makes.
    pub values: usize,
    /// COTs, bytes and rounds of the nonlinear part and of what follows.
    pub cost: Cost,
}

/// How many low bits a sign may ignore without being wrong: leaving out one is exact but for
/// the two lowest values of the ring, which no value and no difference in range is.
const EXACTLY_IGNORED: u32 = 1;

/// The protocol of `node` on shares mod 2^`bits` of its value times 2^`excess`; max(x, 0) and its like may come out
/// in a wider ring, mod 2^`out_bits`. `None` where the operation has none.
fn nonlinear(
    network: &Network,
    node: &Node,
    (bits, out_bits, excess): (u32, u32, u32),
    digit: u32,
) -> Option<Arc<dyn Nonlinear>> {
    // What the network ignores on purpose it means in its own units.
    let ignored = |bits: u32| if bits > EXACTLY_IGNORED { bits + excess } else { EXACTLY_IGNORED };
    let count = node.shape.iter().product();
    Some(match &node.op {
        Op::Relu { ignored: low } => {
            let params = ReluParams { out_bits, digit, ignored: ignored(*low), ..ReluParams::new(bits) };
            Arc::new(Elementwise { count, params })
        }
        Op::Relu6 { log2_six, ignored: low } => {
            let exact = Relu6Params::new(bits, *log2_six + excess);
            let params = Relu6Params { out_bits, digit, ignored: ignored(*low), ..exact };
            Arc::new(Elementwise { count, params })
        }
        Op::MaxPool { window: Window { kernel, stride, pads }, ignored: low } => {
            let [channels, h, w] = network.nodes[node.inputs[0]].shape;
            let (kernel, stride, pads) = (*kernel, *stride, *pads);
            let shape = PoolShape { channels, size: [h, w], kernel, stride, pads };
            let params = PoolParams { digit, ignored: ignored(*low), ..PoolParams::new(bits) };
            Arc::new(Pooling { shape, params })
        }
        _ => return None,
    })
}

impl Step {
    /// Checks and prices what was planned for `node`; rings and layouts are sound.
    fn finish(mut self, node: &Node) -> Result<Self, PlanError> {
        let values = self.values;
        let nonlinear = self.nonlinear.as_deref();
        let truncation = self.truncation.map(|params| Elementwise { count: values, params });
        let extension = self.extension.map(|params| Elementwise { count: values, params });
        let check = || -> Result<(), MpcError> {
            nonlinear.map_or(Ok(()), Nonlinear::check)?;
            truncation.as_ref().map_or(Ok(()), Nonlinear::check)?;
            extension.as_ref().map_or(Ok(()), Nonlinear::check)
        };
        check().map_err(|source| PlanError::Nonlinear { name: node.name.clone(), source })?;
        let nonlinear = nonlinear.map_or_else(Cost::default, |layer| match self.early {
            true => layer.cost_corrected_early(),
            false => layer.cost(),
        });
        let truncation = truncation.as_ref().map_or_else(Cost::default, Nonlinear::cost);
        let extension = extension.as_ref().map_or_else(Cost::default, Nonlinear::cost);
        self.cost = match &self.layer {
            // The server begins a truncation of products along with its response.
            Some(Layer::Cheetah(_)) => Cost { client_rounds: 0, ..truncation },
            _ => nonlinear.then_server(truncation) + extension,
        };
        Ok(self)
    }

    /// The largest difference between this step's value and what its operation makes, exactly, of the same inputs: in
    /// units of the network's last place. Zero is exact.
    ///
    /// A linear layer's noise counts with [`SIGMAS`] standard deviations, at worst-case weights.
    pub fn error_ulps(&self) -> f64 {
        let truncated = if self.truncation.is_some() { 1.0 } else { 0.0 };
        truncated + self.layer.as_ref().map_or(0.0, |layer| layer.error_ulps(SIGMAS))
    }
}

/// What both parties do, in order: one step per node.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What was chosen.
    pub choices: Choices,
    /// The parameter set of all linear layers.
    pub params: Parameters,
    /// By node of the network.
    pub steps: Vec<Step>,
    digest: [u8; 32],
    hint_digest: [u8; 32],
}

impl Plan {
    /// Plans `network`, which must be valid (`Network::validate`), as `choices` say.
    ///
    /// # Errors
    /// When the choices are not sound, a layer fits no layout, or a value no ring.
    pub fn new(network: &Network, choices: Choices) -> Result<Self, PlanError> {
        let params = choices.check(network)?;
        let steps = match choices.protocol {
            Protocol::Jaguar => jaguar_steps(network, params, &choices)?,
            Protocol::Cheetah => cheetah::steps(network, &choices)?,
        };
        let hint_digest = hint_digest(network, &params, &steps);
        let digest = digest(&hint_digest, &choices, &steps);
        Ok(Self { choices, params, steps, digest, hint_digest })
    }

    /// What two parties must have in common before they talk about secrets.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// What a hint was made for: the network and the layout of its linear layers. Choices that leave these alone, such as
    /// the digits of comparisons, leave a client's hint valid.
    pub fn hint_digest(&self) -> [u8; 32] {
        self.hint_digest
    }

    /// The linear layers, in order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.steps.iter().filter_map(|s| s.layer.as_ref())
    }

    /// COTs, bytes and rounds of all nonlinear layers and extensions.
    pub fn nonlinear_cost(&self) -> Cost {
        self.steps.iter().fold(Cost::default(), |sum, step| sum + step.cost)
    }

    /// The linear layers that have a hint, in order: Jaguar's.
    pub fn hinted(&self) -> impl Iterator<Item = &jaguar_layer::Layer> {
        self.layers().filter_map(Layer::jaguar)
    }

    /// One of Cheetah's layers for each ring that they use, by number of primes: each ring has a key of its own.
    pub fn cheetah_rings(&self) -> Vec<&cheetah_layer::Layer> {
        let mut rings: Vec<&cheetah_layer::Layer> = Vec::new();
        for layer in self.layers().filter_map(Layer::cheetah) {
            if rings.iter().all(|other| other.limbs() != layer.limbs()) {
                rings.push(layer);
            }
        }
        rings.sort_by_key(|layer| layer.limbs());
        rings
    }

    /// Bytes from the client to the server and back in all linear layers, online.
    pub fn linear_bytes(&self) -> (usize, usize) {
        let both = self.layers().map(|l| (l.upload_bytes(), l.response_bytes()));
        both.fold((0, 0), |(up, down), (u, d)| (up + u, down + d))
    }

    /// Bytes of the whole hint; Cheetah has none.
    pub fn hint_bytes(&self) -> usize {
        self.hinted().map(jaguar_layer::Layer::hint_bytes).sum()
    }

    /// Responses of all linear layers. Jaguar spends a product modulo one prime on each per query, on either side.
    pub fn responses(&self) -> usize {
        self.layers().map(Layer::responses).sum()
    }
}

fn jaguar_steps(network: &Network, params: Parameters, choices: &Choices) -> Result<Vec<Step>, PlanError> {
    let n = network.activation_bits;
    let nodes = &network.nodes;
    let bits = network.value_bits();
    let free = made_in_any_ring(network);
    let opened = opened(network);

    // Backwards: in which ring is each value needed?
    let mut needed = vec![n; nodes.len()];
    if let Some(last) = nodes.len().checked_sub(1) {
        needed[last] = bits[last].max(n);
    }
    for (id, node) in nodes.iter().enumerate().rev() {
        let asks = match &node.op {
            Op::Input => continue,
            Op::Linear(l) => n + l.shift,
            Op::Relu { .. } | Op::Relu6 { .. } | Op::MaxPool { .. } => n,
            Op::SumPool { .. } => needed[id].max(bits[id]),
            Op::Add | Op::Concat | Op::Rearrange(_) => {
                if free[id] {
                    needed[id]
                } else {
                    n
                }
            }
        };
        for &input in &node.inputs {
            needed[input] = needed[input].max(asks);
        }
    }

    // Forwards: what is made, and what must be extended?
    let mut steps: Vec<Step> = Vec::with_capacity(nodes.len());
    for (id, node) in nodes.iter().enumerate() {
        let ring = needed[id];
        check_ring(node, ring)?;
        let made = match &node.op {
            Op::Input => ring,
            Op::Linear(_) | Op::MaxPool { .. } => n,
            Op::Relu { .. } | Op::Relu6 { .. } => ring,
            Op::SumPool { .. } | Op::Add | Op::Concat | Op::Rearrange(_) => {
                if free[id] {
                    ring
                } else {
                    n
                }
            }
        };
        let layer = match &node.op {
            Op::Linear(spec) => {
                let in_shape = nodes[node.inputs[0]].shape;
                let layer = Layout::with_packing(params.ring_dim(), spec, in_shape, choices.packings[id])
                    .map_err(jaguar_layer::LayerError::from)
                    .and_then(|layout| {
                        let weight_bits = network.weight_bits + spec.max_exponent;
                        jaguar_layer::Layer::new(params, layout, id, n, weight_bits, opened[id])
                    })
                    .map_err(|source| PlanError::Layer { name: node.name.clone(), source })?;
                Some(Layer::Jaguar(Box::new(layer)))
            }
            _ => None,
        };
        if matches!(node.op, Op::Relu { .. } | Op::Relu6 { .. } | Op::MaxPool { .. })
            && let Some(&wide) = node.inputs.iter().map(|&i| &bits[i]).find(|b| **b > n)
        {
            return Err(PlanError::Wide { name: node.name.clone(), bits: wide, activation_bits: n });
        }
        let nonlinear = nonlinear(network, node, (n, made, 0), u32::from(choices.digits[id]));
        let extension =
            (ring > made).then_some(ExtendParams { bits: made, out_bits: ring, range: Range::Signed });
        let step = Step {
            made,
            ring,
            excess: 0,
            layer,
            early: nonlinear.is_some() && known_early(network, &steps, node.inputs[0]),
            nonlinear,
            truncation: None,
            extension,
            values: node.shape.iter().product(),
            cost: Cost::default(),
        };
        steps.push(step.finish(node)?);
    }
    Ok(steps)
}

/// Whether the client knows its share of node `id`'s value before the input: a linear layer's output as it is, or what is
/// locally made of nothing else.
fn known_early(network: &Network, steps: &[Step], id: NodeId) -> bool {
    let linear = |i: NodeId| steps[i].layer.is_some() && steps[i].extension.is_none();
    let step = &steps[id];
    let local = step.layer.is_none() && step.nonlinear.is_none() && step.extension.is_none();
    let inputs = &network.nodes[id].inputs;
    linear(id) || local && !inputs.is_empty() && inputs.iter().all(|&i| linear(i))
}

/// Whether shares of `node`'s value may be modulo 2^ring.
fn check_ring(node: &Node, ring: u32) -> Result<(), PlanError> {
    // Sums over windows are taken on whole words before they are reduced.
    let gained = node.op.scale_gain().next_power_of_two().trailing_zeros();
    if ring > MAX_SHARE_BITS || ring + gained > 63 {
        return Err(PlanError::Ring { name: node.name.clone(), bits: ring + gained });
    }
    Ok(())
}

/// For each node: whether its value can be made in a ring of any width without an extension of its own.
fn made_in_any_ring(network: &Network) -> Vec<bool> {
    let mut free: Vec<bool> = Vec::with_capacity(network.nodes.len());
    for node in &network.nodes {
        free.push(match &node.op {
            // The sum of a window may need more bits than its parts: its inputs come in the wider ring.
            Op::Input | Op::Relu { .. } | Op::Relu6 { .. } | Op::SumPool { .. } => true,
            Op::Linear(_) | Op::MaxPool { .. } => false,
            Op::Add | Op::Concat | Op::Rearrange(_) => node.inputs.iter().all(|&i: &NodeId| free[i]),
        });
    }
    free
}

/// For each node: whether its value reaches the output without a linear layer in between.
fn opened(network: &Network) -> Vec<bool> {
    let mut opened = vec![false; network.nodes.len()];
    if let Some(last) = opened.last_mut() {
        *last = true;
    }
    for (id, node) in network.nodes.iter().enumerate().rev() {
        if opened[id] && !matches!(node.op, Op::Linear(_)) {
            node.inputs.iter().for_each(|&i| opened[i] = true);
        }
    }
    opened
}

/// Covers what follows from the network too, so that two builds that plan alike by name only do not meet, and no hint is used
/// with another layout than it was made for.
fn hint_digest(network: &Network, params: &Parameters, steps: &[Step]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("jaguar plan of linear layers");
    hasher.update(&PROTOCOL_VERSION.to_le_bytes());
    hasher.update(&(params.ring_dim() as u64).to_le_bytes());
    hasher.update(&params.modulus_bits().to_le_bytes());
    hasher.update(&postcard::to_stdvec(network).expect("plain data serialises"));
    for layer in steps.iter().filter_map(|s| s.layer.as_ref()) {
        let facts = layer.facts();
        hasher.update(&(facts.len() as u64).to_le_bytes());
        for fact in facts {
            hasher.update(&fact.to_le_bytes());
        }
    }
    *hasher.finalize().as_bytes()
}

fn digest(linear: &[u8; 32], choices: &Choices, steps: &[Step]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("jaguar plan");
    hasher.update(linear);
    hasher.update(&postcard::to_stdvec(choices).expect("plain data serialises"));
    for step in steps {
        hasher.update(&step.made.to_le_bytes());
        hasher.update(&step.ring.to_le_bytes());
        hasher.update(&step.excess.to_le_bytes());
        hasher.update(&[u8::from(step.early)]);
        hasher.update(&step.truncation.map_or(0, |t| t.shift).to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}
