//! What is done, layer by layer: in which domain each value's shares live, what converts them, and how each
//! linear layer is laid out.
//!
//! A plan follows from the public network and the planner's [`Choices`] alone; both parties make it for themselves and compare
//! their [`Plan::digest`]s before anything secret is sent.
//!
//! Every linear layer has a backend of its own (`jaguar_linear::backend`). In which domains shares live between them, and what
//! converts them, is in `domains.rs`.

// An operation that is not listed would be computed on shares, by each party alone.
#![deny(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use jaguar_graph::network::{Network, Node, NodeId, Work};
pub use jaguar_linear::backend::BackendId;
use jaguar_linear::backend::{KeyBytes, LayerError, Layers, Planned};
pub use jaguar_mpc::share::{Domain, Modulus};
use jaguar_mpc::{Cost, Elementwise, ExtendParams, MpcError, Nonlinear, SentKeys, TruncateParams};
pub use jaguar_wire::PROTOCOL_VERSION;

pub mod batch;
pub mod block_sizes;
mod choices;
mod comparison;
mod domains;
#[cfg(any(test, feature = "testing"))]
pub mod double;
mod exchange;
mod kit;
pub mod machine;
pub mod memory;
mod opened_once;
pub mod planner;
pub mod predict;
mod rounds;
#[cfg(test)]
mod tests;

pub use choices::{Allowed, Choices, DIGIT, MOST_IMAGES, NamedChoices, WEIGHT_MEMORY};
pub use comparison::{Comparison, ComparisonsId};
pub use exchange::{Exchange, IN_FLIGHT, Schedule};
pub use kit::{Kit, UnknownName};
use rounds::Rounds;

/// Why a network has no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A choice that cannot be followed.
    #[error("a choice that cannot be followed: {0}")]
    Choices(String),
    /// Comparisons that tell a party something, as they say, and nobody said that they may.
    #[error("{0}; both sides must accept that")]
    Leaks(String),
    /// A linear layer does not fit its backend.
    #[error("layer '{name}': {source}")]
    Layer {
        /// The node's number in the network.
        node: NodeId,
        /// What the network calls the node.
        name: String,
        /// Why the backend does not take it.
        source: LayerError,
    },
    /// Products need wider shares than the nonlinear protocols take.
    #[error(
        "its backend does not truncate products: the value of '{name}' takes {bits} bits, and its comparisons at most {}",
        jaguar_mpc::WIDEST
    )]
    Products {
        /// What the network calls the node.
        name: String,
        /// Bits that shares of it would need.
        bits: u32,
    },
    /// An operation that the network says needs a protocol, and the plan has none for it, or the other way round.
    #[error(
        "no way to compute '{name}' ({op}) is planned that suits it: the planner does not know this operation"
    )]
    Unplanned {
        /// What the network calls the node.
        name: String,
        /// What its operation is called.
        op: &'static str,
    },
    /// A nonlinear layer would take values that may be wider than it can.
    #[error("'{name}' would take values of {bits} bits; it can take {most}")]
    Wide {
        /// What the network calls the node.
        name: String,
        /// Bits that its input may take.
        bits: u32,
        /// The most that it can take.
        most: u32,
    },
    /// A nonlinear layer's parameters are out of its protocol's range.
    #[error("layer '{name}': {source}")]
    Nonlinear {
        /// What the network calls the node.
        name: String,
        /// Why the protocol does not take it.
        source: MpcError,
    },
    /// A value needs a ring wider than shares can have.
    #[error("the value of '{name}' would need shares of {bits} bits; at most {MAX_SHARE_BITS} fit")]
    Ring {
        /// What the network calls the node.
        name: String,
        /// Bits that shares of it would need.
        bits: u32,
    },
}

/// Shares have at most this many bits. The widest are those of a product's factors ([`jaguar_mpc::ProductParams`]).
pub(crate) const MAX_SHARE_BITS: u32 = 61;

/// Standard deviations of its noise that a linear layer's result may be off by beyond its rounding.
pub const SIGMAS: f64 = 8.0;

/// One node's part of the plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// Where the shares live that the operation itself computes.
    pub computed: Domain,
    /// Where its consumers find them, after what follows the operation.
    pub domain: Domain,
    /// The conversion of a linear layer's input, where that lives in a domain that does not reduce to the layer's.
    pub conversion: Option<Elementwise<ExtendParams>>,
    /// A linear layer, as its backend runs it.
    pub layer: Option<Planned>,
    /// A nonlinear layer: its protocol, parameters and size.
    pub nonlinear: Option<Arc<dyn Nonlinear>>,
    /// The step before that opens this layer's values for both, if one does: its blocks are made of that one's
    /// ([`Nonlinear::prepare_behind`]).
    pub behind: Option<NodeId>,
    /// Whether that is by the choices' [`Comparison`], in the place of the operator's own.
    pub replaced: bool,
    /// The truncation that follows the operation, where its backend keeps products as they are.
    pub truncation: Option<TruncateParams>,
    /// The extension that follows the operation, if a consumer needs a wider ring than the operation makes.
    pub extension: Option<ExtendParams>,
    /// The client knows its share of a nonlinear layer's operand before the input, so it can correct early
    /// ([`jaguar_mpc::Block::correct`]): the operand is a linear layer's output, or locally made of nothing else.
    pub early: bool,
    /// g: how many of a value's low bits are guard bits.
    pub guard_bits: u32,
    /// How many values the operation makes, of all images of a query.
    pub values: usize,
    /// COTs, bytes and rounds of the nonlinear part and of what follows, by itself; without keys that steps before it have sent.
    pub cost: Cost,
    /// Whether the client sends something else between its draws when it is prepared ([`Nonlinear::promise`]).
    pub sends: bool,
}

impl Step {
    /// Checks and prices what was planned for `node`; rings and layouts are sound.
    fn finish(mut self, node: &Node) -> Result<Self, PlanError> {
        // What has neither a backend nor a protocol is computed on shares, by each party alone.
        let planned = match node.op.work() {
            Work::Input | Work::Local(_) => self.layer.is_none() && self.nonlinear.is_none(),
            Work::Linear(_) => self.layer.is_some() && self.nonlinear.is_none(),
            Work::Interactive(_) => self.layer.is_none() && self.nonlinear.is_some(),
        };
        if !planned {
            return Err(PlanError::Unplanned { name: node.name.clone(), op: node.op.name() });
        }
        let values = self.values;
        let nonlinear = self.nonlinear.as_deref();
        let truncation = self.truncation.map(|params| Elementwise { count: values, params });
        let extension = self.extension.map(|params| Elementwise { count: values, params });
        let conversion = self.conversion.as_ref();
        let check = || -> Result<(), MpcError> {
            conversion.map_or(Ok(()), Nonlinear::check)?;
            nonlinear.map_or(Ok(()), Nonlinear::check)?;
            truncation.as_ref().map_or(Ok(()), Nonlinear::check)?;
            extension.as_ref().map_or(Ok(()), Nonlinear::check)
        };
        check().map_err(|source| PlanError::Nonlinear { name: node.name.clone(), source })?;
        self.sends = nonlinear.is_some_and(|layer| layer.promise() < layer.cost().bits_from_client);
        let nonlinear = nonlinear.map_or_else(Cost::default, |layer| match self.early {
            true => layer.cost_corrected_early(),
            false => layer.cost(),
        });
        let truncation = truncation.as_ref().map_or_else(Cost::default, Nonlinear::cost);
        let extension = extension.as_ref().map_or_else(Cost::default, Nonlinear::cost);
        let conversion = conversion.map_or_else(Cost::default, Nonlinear::cost);
        self.cost = match &self.layer {
            // The server begins a truncation of products along with its response.
            Some(layer) if layer.traffic().rounds > 0 => {
                conversion + Cost { client_rounds: 0, ..truncation } + extension
            }
            _ if self.truncation.is_none() => conversion + nonlinear.then_server(extension),
            _ => conversion + nonlinear.then_server(truncation) + extension,
        };
        Ok(self)
    }

    /// Standard deviation of a linear layer's noise at worst-case weights, in units of the last place above the guard bits.
    pub fn noise_ulps(&self) -> Option<f64> {
        Some(self.layer.as_ref()?.noise_ulps() / f64::from(1u32 << self.guard_bits))
    }

    /// The largest difference between this step's value and what its operation makes, exactly, of the same inputs: in
    /// units of the network's last place. Zero is exact.
    ///
    /// The noise of a linear layer counts with [`SIGMAS`] standard deviations, at worst-case weights.
    pub fn error_ulps(&self) -> f64 {
        let truncated = if self.truncation.is_some() { 1.0 } else { 0.0 };
        let nonlinear = self.nonlinear.as_ref().map_or(0.0, |layer| layer.error());
        let layer = |l: &Planned| l.rounding_ulps() + SIGMAS * l.noise_ulps();
        truncated + nonlinear + self.layer.as_ref().map_or(0.0, layer)
    }
}

/// What both parties do, in order: one step per node.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the planner chose: all that the plan follows from, besides the network.
    pub choices: Choices,
    /// By node of the network.
    pub steps: Vec<Step>,
    /// The linear layers by backend.
    pub backends: Vec<Arc<dyn Layers>>,
    rounds: Rounds,
    digest: [u8; 32],
    hint_digest: [u8; 32],
}

impl Plan {
    /// Plans `network`, which must be valid (`Network::validate`), as `choices` say.
    ///
    /// # Errors
    /// When the choices are not sound, a layer fits no layout, or a value no ring.
    pub fn new(network: &Network, choices: Choices) -> Result<Self, PlanError> {
        Self::allowing(network, choices, Allowed::default())
    }

    /// **Insecure**: [`new`](Self::new) that takes backends which protect nothing too. For tests and checks where both parties are
    /// the same person.
    ///
    /// # Errors
    /// As `new`.
    pub fn allowing_insecure_backends(network: &Network, choices: Choices) -> Result<Self, PlanError> {
        Self::allowing(network, choices, Allowed { insecure_backends: true, ..Allowed::default() })
    }

    /// **Leaks**: [`new`](Self::new) that takes comparisons which tell a party something, too ([`Comparison::caveat`]).
    ///
    /// # Errors
    /// As `new`.
    pub fn accepting_leaks(network: &Network, choices: Choices) -> Result<Self, PlanError> {
        Self::allowing(network, choices, Allowed { leaks: true, ..Allowed::default() })
    }

    /// [`new`](Self::new) that takes the weaknesses that are `allowed`.
    ///
    /// # Errors
    /// As `new`.
    pub fn allowing(network: &Network, choices: Choices, allowed: Allowed) -> Result<Self, PlanError> {
        choices.check_allowing(network, allowed)?;
        let domains::Planning { mut steps, layers } = domains::plan(network, &choices)?;
        // In the order in which they are sent.
        let mut keys = SentKeys::default();
        for step in &mut steps {
            step.cost.prepare_up -= step.nonlinear.as_ref().map_or(0, |layer| layer.known(&mut keys));
        }
        let hint_digest = hint_digest(network, &choices, &steps);
        let digest = digest(&hint_digest, &choices, &steps);
        let rounds = rounds::count(network, &steps);
        Ok(Self { choices, steps, backends: layers, rounds, digest, hint_digest })
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

    /// How many images a query has.
    pub fn images(&self) -> usize {
        self.choices.images as usize
    }

    /// The linear layers, in order.
    pub fn layers(&self) -> impl Iterator<Item = &Planned> {
        self.steps.iter().filter_map(|s| s.layer.as_ref())
    }

    /// COTs, bytes and rounds of all nonlinear layers and extensions, one after the other.
    pub fn nonlinear_cost(&self) -> Cost {
        self.steps.iter().fold(Cost::default(), |sum, step| sum + step.cost)
    }

    /// How many correlations of a bit the client may promise to draw before it sends anything else offline
    /// ([`Nonlinear::promise`]): all, unless some layer sends in between.
    pub fn promise(&self) -> u64 {
        if self.steps.iter().any(|step| step.sends) { 0 } else { self.nonlinear_cost().bits_from_client }
    }

    /// Bytes from the client to the server and back in all linear layers, online.
    pub fn linear_bytes(&self) -> (usize, usize) {
        let both = self.layers().map(|l| l.traffic().online);
        both.fold((0, 0), |(up, down), (u, d)| (up + u, down + d))
    }

    /// Bytes of the whole hint; some backends have none.
    pub fn hint_bytes(&self) -> usize {
        self.layers().map(|l| l.traffic().hint).sum()
    }

    /// Keys that a client sends once, of all backends: bytes on their way, and in the server's memory.
    pub fn client_keys(&self) -> KeyBytes {
        let keys = self.backends.iter().map(|layers| layers.client_keys());
        keys.fold(KeyBytes::default(), |sum, keys| KeyBytes {
            sent: sum.sent + keys.sent,
            kept: sum.kept + keys.kept,
        })
    }

    /// Responses of all linear layers.
    pub fn responses(&self) -> usize {
        self.layers().map(|l| l.geometry().responses).sum()
    }
}

/// Whether the client knows its share of node `id`'s value before the input: a linear layer's output as it is, or what is
/// locally made of nothing else.
fn known_early(network: &Network, steps: &[Step], id: NodeId) -> bool {
    let linear = |i: NodeId| {
        let step = &steps[i];
        let known = step.layer.as_ref().is_some_and(|layer| layer.output_known_early());
        known && step.extension.is_none() && step.truncation.is_none()
    };
    let step = &steps[id];
    let local = step.layer.is_none() && step.nonlinear.is_none() && step.extension.is_none();
    let inputs = &network.nodes[id].inputs;
    linear(id) || local && !inputs.is_empty() && inputs.iter().all(|&i| linear(i))
}

/// How many bits `node` adds to shares of `bits` bits, and whether they fit a signed word then: sums over windows are taken on words
/// before they are reduced.
fn grown(node: &Node, bits: u32) -> (u32, bool) {
    let grown = bits + node.op.scale_gain().next_power_of_two().trailing_zeros();
    (grown, grown <= 63)
}

/// Whether `node` can sum shares of so many bits.
fn summable(node: &Node, bits: u32) -> bool {
    grown(node, bits).1
}

/// Whether shares of `node`'s value may be modulo 2^`bits`.
fn check_ring(node: &Node, bits: u32) -> Result<(), PlanError> {
    let (grown, fits) = grown(node, bits);
    if bits > MAX_SHARE_BITS || !fits {
        return Err(PlanError::Ring { name: node.name.clone(), bits: grown });
    }
    Ok(())
}

/// For each node: whether its value reaches the output without a linear layer in between.
fn opened(network: &Network) -> Vec<bool> {
    let mut opened = vec![false; network.nodes.len()];
    if let Some(last) = opened.last_mut() {
        *last = true;
    }
    for (id, node) in network.nodes.iter().enumerate().rev() {
        if opened[id] && node.op.linear().is_none() {
            node.inputs.iter().for_each(|&i| opened[i] = true);
        }
    }
    opened
}

/// Covers what follows from the network too, so that two builds that plan alike by name only do not meet, and no hint is used
/// with another layout than it was made for.
fn hint_digest(network: &Network, choices: &Choices, steps: &[Step]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("jaguar plan of linear layers");
    hasher.update(&PROTOCOL_VERSION.to_le_bytes());
    hasher.update(&u64::from(choices.ring_dim).to_le_bytes());
    hasher.update(&choices.modulus_bits.to_le_bytes());
    hasher.update(&postcard::to_stdvec(network).expect("plain data serialises"));
    for layer in steps.iter().filter_map(|s| s.layer.as_ref()) {
        let figures = layer.absorb();
        hasher.update(layer.backend().as_bytes());
        hasher.update(&(figures.len() as u64).to_le_bytes());
        for figure in figures {
            hasher.update(&figure.to_le_bytes());
        }
    }
    *hasher.finalize().as_bytes()
}

fn digest(linear: &[u8; 32], choices: &Choices, steps: &[Step]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("jaguar plan");
    hasher.update(linear);
    hasher.update(&postcard::to_stdvec(choices).expect("plain data serialises"));
    for step in steps {
        for domain in [step.computed, step.domain] {
            hasher.update(&domain.modulus.value().to_le_bytes());
            hasher.update(&domain.excess.to_le_bytes());
        }
        hasher.update(&[u8::from(step.early)]);
        hasher.update(&step.behind.map_or(0, |first| first as u64 + 1).to_le_bytes());
        hasher.update(&step.truncation.map_or(0, |t| t.shift).to_le_bytes());
        hasher.update(&step.conversion.map_or(0, |c| c.params.output.value()).to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}
