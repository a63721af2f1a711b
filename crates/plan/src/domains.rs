//! In which domain the shares of every value live, for any mixture of backends.
//!
//! A linear layer states where its input must live and where its output does ([`Domain`]). Its output lives modulo a power of two:
//!
//! - a backend that *truncates* makes shares mod 2^n, of the network's own scale;
//! - one that *keeps products* makes shares mod 2^l, and its output is the network's value times 2^f, its *excess* f. l is what the
//!   widest value of the plan takes, at most 48 ([`jaguar_mpc::WIDEST`]); Cheetah and OpenCheetah have 37.
//!
//! Its input may live modulo any power of two (2^(n+f), 2^l) or any odd number. In between, shares are mod 2^b of the network's
//! scale, the *base* ring: b = n where any layer truncates, and l where all keep their products, as Cheetah has it. Where b = n, small
//! values live in fewer bits, as far as what takes them can take these.
//!
//! Where a kit's comparisons take extra bits ([`crate::Comparison::By`]), n and l are so many bits larger than values
//! need.
//!
//! 1. *Excess, forwards.* ReLU and ReLU6 truncate what they make, as OpenCheetah does, where the sign is known (max-pools and
//!    residual sums in between pass the excess on, so fewer values are truncated; a sum's other operand is scaled up by each party
//!    alone). Where any consumer needs the network's own scale, as a linear layer or the output does, the products are
//!    truncated at once. Either costs the same, f + 1 bits and one COT a value.
//!    A product of two values takes both truncated, in a ring with room for its own shift, and makes shares mod 2^n.
//! 2. *Odd moduli, backwards.* A value lives modulo an odd p if all that read it ask for p and it can be made there: the input, a
//!    ReLU's or ReLU6's value (modulo p at the price of a larger ring), and sums, moves and average pools of nothing but such.
//! 3. *Powers of two, backwards.* In which of these rings is every other value needed? ReLU can make any larger ring at little cost.
//!    A truncation needs room for what it cuts off in a word besides, so from l = 44 or so on quotients leave in a narrower ring.
//! 4. *Conversions, forwards.* A value is made in the largest ring that a consumer asks for; the others take its shares modulo
//!    their own. Where the maker cannot (a linear layer, a max-pool), an extension follows. A layer that wants an odd modulus of
//!    a value that lives modulo a power of two converts its input itself.

use std::sync::Arc;

use jaguar_graph::network::{
    Excess, Makes, Network, Node, NodeId, Part, Place, Shape, Shares, Takes, Work, elements,
};
use jaguar_linear::backend::{BackendId, Layers, Planned, Request};
use jaguar_mpc::share::{Domain, Modulus};
use jaguar_mpc::{Cost, Elementwise, ExtendParams, Range, TruncateParams, WIDEST};

use crate::kit::in_order;
use crate::{Choices, PlanError, Step, check_ring, known_early, opened, opened_once, summable};

/// Shares of products that nothing truncated have at least this many bits: fewer no backend takes.
const NARROWEST: u32 = 8;

/// What is planned: by node, and by backend.
pub(crate) struct Planning {
    pub steps: Vec<Step>,
    pub layers: Vec<Arc<dyn Layers>>,
}

/// What is known of every value before any layer is planned; by node.
struct Values<'a> {
    network: &'a Network,
    /// Which backend runs it; `None` for what is not linear.
    backends: Vec<Option<BackendId>>,
    /// Into how many bits its values fit, at the network's scale.
    bits: Vec<u32>,
    /// The excess of what its operation computes.
    computed_excess: Vec<u32>,
    /// What is left of that after a truncation.
    excess: Vec<u32>,
    /// Whether its values cannot be negative.
    non_negative: Vec<bool>,
    /// l: bits of shares that hold every product.
    product_bits: u32,
    /// b: bits of shares that comparisons take.
    base: u32,
    /// How many bits more than values need their shares have where they are compared, or made and not truncated.
    extra_bits: u32,
}

impl<'a> Values<'a> {
    fn new(network: &'a Network, choices: &Choices) -> Result<Self, PlanError> {
        let nodes = &network.nodes;
        let bits = network.value_bits();
        let linear = |(node, &backend): (&Node, _)| node.op.linear().map(|_| backend);
        let backends: Vec<Option<BackendId>> = nodes.iter().zip(&choices.backends).map(linear).collect();
        let keeps = |id: NodeId| backends[id].is_some_and(|b| b.backend().keeps_products());
        let truncates = backends.iter().flatten().any(|b| !b.backend().keeps_products());
        let any_keeps = (0..nodes.len()).any(keeps);

        let may_keep_excess = may_keep_excess(network, truncates);
        let mut computed_excess: Vec<u32> = Vec::with_capacity(nodes.len());
        let mut excess: Vec<u32> = Vec::with_capacity(nodes.len());
        let extra_bits = choices.comparison.extra_bits();
        let mut product_bits = NARROWEST;
        for (id, node) in nodes.iter().enumerate() {
            let largest = node.inputs.iter().map(|&i| excess[i]).max().unwrap_or(0);
            computed_excess.push(match node.op.linear() {
                Some(spec) if keeps(id) => spec.shift,
                Some(_) => 0,
                None => largest,
            });
            excess.push(match excess_of(node) {
                None if may_keep_excess[id] => computed_excess[id],
                None | Some(Excess::Truncates | Excess::Refuses) => 0,
                Some(Excess::Passes | Excess::PassesTogether) => largest,
            });
            let needs = bits[id] + computed_excess[id];
            if any_keeps && (!truncates || computed_excess[id] > 0) {
                if needs > WIDEST {
                    return Err(PlanError::Products { name: node.name.clone(), bits: needs });
                }
                product_bits = product_bits.max(needs);
            }
            // What such a layer takes must fit too.
            if keeps(id) {
                product_bits = node.inputs.iter().map(|&i| bits[i]).fold(product_bits, u32::max);
            }
        }
        product_bits += extra_bits;
        let base = if truncates || !any_keeps { network.activation_bits + extra_bits } else { product_bits };
        let non_negative = network.non_negative();
        Ok(Self {
            network,
            backends,
            bits,
            computed_excess,
            excess,
            non_negative,
            product_bits,
            base,
            extra_bits,
        })
    }

    /// In how many bits a comparison takes its operands, and a sum or a move: where one ring serves all, no more than they need; but n for a ReLU and a
    /// clip, for the place where one cuts is a number of n bits.
    fn compared_bits(&self, id: NodeId) -> u32 {
        let cuts = interactive(&self.network.nodes[id]).is_some_and(|shares| shares.makes == Makes::AnyRing);
        match self.computed_excess[id] {
            0 if !cuts && self.base == self.activation_bits() => {
                self.base.min(self.widest(id) + self.extra_bits)
            }
            0 => self.base,
            _ => self.product_bits,
        }
    }

    /// Into how many bits all fits that a node takes, and what each party makes of it by itself.
    fn widest(&self, id: NodeId) -> u32 {
        let node = &self.network.nodes[id];
        let own = if matches!(node.op.work(), Work::Interactive(_)) { 0 } else { self.bits[id] };
        node.inputs.iter().map(|&input| self.bits[input]).fold(own, u32::max)
    }

    /// In how many bits a value is shared at least.
    fn least_bits(&self, id: NodeId) -> u32 {
        let one_ring = self.base == self.activation_bits();
        if one_ring { self.base.min(self.bits[id] + self.extra_bits) } else { self.base }
    }

    /// In how many bits an activation is shared.
    fn activation_bits(&self) -> u32 {
        self.network.activation_bits + self.extra_bits
    }

    /// In how many bits what makes activations makes these: no more than they need, where one ring serves all.
    fn made_bits(&self, id: NodeId) -> u32 {
        self.bits[id].min(self.network.activation_bits) + self.extra_bits
    }

    /// In how many bits a nonlinear layer takes its operands.
    fn taken_bits(&self, id: NodeId) -> u32 {
        match interactive(&self.network.nodes[id]).map(|shares| shares.takes) {
            Some(Takes::Activations { more }) => self.activation_bits() + more,
            Some(Takes::Needed { least, fewer }) => {
                let most = self.network.activation_bits;
                let least = least.max(most.saturating_sub(fewer));
                self.widest(id).max(least).min(most) + self.extra_bits
            }
            Some(Takes::Compared) | None => self.compared_bits(id),
        }
    }

    /// In which range node `id`'s values lie.
    fn range(&self, id: NodeId) -> Range {
        if self.non_negative[id] { Range::NonNegative } else { Range::Signed }
    }
}

/// How a node's protocol takes and makes shares; `None` of what has none.
fn interactive(node: &Node) -> Option<Shares> {
    match node.op.work() {
        Work::Interactive(operator) => Some(operator.shares()),
        Work::Input | Work::Linear(_) | Work::Local(_) => None,
    }
}

/// What a node does with products that nothing truncated; `None` of a linear layer, which makes them or not.
fn excess_of(node: &Node) -> Option<Excess> {
    match node.op.work() {
        Work::Input => Some(Excess::Refuses),
        Work::Linear(_) => None,
        Work::Local(local) => Some(local.excess),
        Work::Interactive(operator) => Some(operator.shares().excess),
    }
}

pub(crate) fn plan(network: &Network, choices: &Choices) -> Result<Planning, PlanError> {
    let nodes = &network.nodes;
    // 1. Excess.
    let values = Values::new(network, choices)?;
    let (mut planned, layers) = plan_layers(&values, choices)?;
    // 2. and 3. Where values live.
    let odd = odd_moduli(&values, &planned);
    let needed = needed_bits(&values, &planned, &odd);

    // 4. Conversions.
    let free = computed_in_any_ring(network);
    let mut steps: Vec<Step> = Vec::with_capacity(nodes.len());
    for (id, node) in nodes.iter().enumerate() {
        let (computed_excess, excess) = (values.computed_excess[id], values.excess[id]);
        let compared = values.compared_bits(id);
        let computed_bits = match node.op.work() {
            Work::Linear(_) => output_bits(planned[id].as_ref(), values.base),
            Work::Interactive(operator) if operator.shares().makes == Makes::Activations => {
                // A curve can make them in any ring up to n bits, which is less than an extension from a narrower one; and an extension
                // adds so many bits at most.
                let (own, most) = (values.made_bits(id), values.activation_bits());
                match operator.part() == Part::Activation {
                    true if needed[id] <= most => needed[id].max(own),
                    true => own.max(needed[id].saturating_sub(ExtendParams::MOST_ADDED)).min(most),
                    false => own,
                }
            }
            // (Where all inputs are free, there is no excess.)
            Work::Input | Work::Local(_) | Work::Interactive(_) if free[id] && computed_excess == 0 => {
                needed[id]
            }
            // In the ring that its inputs live in anyway, as far as it is of use.
            Work::Local(_) if computed_excess == 0 && odd[id].is_none() => {
                let rings = node.inputs.iter().map(|&i| steps[i].domain.modulus.log2().unwrap_or(compared));
                rings.fold(needed[id], u32::min).max(compared)
            }
            Work::Input | Work::Local(_) | Work::Interactive(_) => compared,
        };
        let shift = computed_excess - excess;
        // What is truncated may have to leave its ring for a narrower one; who wants the wider one extends it.
        let made_bits = match shift {
            0 => computed_bits,
            shift => computed_bits.min(TruncateParams::most_out_bits(computed_bits, shift)),
        };
        let bits = needed[id].max(made_bits);
        if odd[id].is_none() {
            check_ring(node, bits)?;
        }
        let modulus = |bits: u32| odd[id].unwrap_or_else(|| Modulus::power_of_two(bits));
        let computed = Domain::new(modulus(computed_bits)).with_excess(computed_excess);
        let domain = Domain::new(modulus(bits)).with_excess(excess);
        // Its operands must fit into the ring that it takes them in, with their excess and the extra bits.
        let most = match interactive(node).map(|shares| shares.takes) {
            Some(Takes::Compared) => Some(compared - computed_excess - values.extra_bits),
            Some(Takes::Activations { more }) => Some(network.activation_bits + more),
            Some(Takes::Needed { .. }) => Some(network.activation_bits),
            None => None,
        };
        if let Some(most) = most
            && let Some(bits) = node.inputs.iter().map(|&i| values.bits[i]).find(|bits| *bits > most)
        {
            return Err(PlanError::Wide { name: node.name.clone(), bits, most });
        }
        let inputs: Vec<Shape> = node.inputs.iter().map(|&i| nodes[i].shape).collect();
        let nonlinear = match node.op.work() {
            Work::Interactive(operator) => Some(operator.protocol(&Place {
                bits: values.taken_bits(id),
                excess: computed_excess,
                output: computed.modulus,
                digit: u32::from(choices.digits[id]),
                images: choices.images as usize,
                inputs: &inputs,
                same: network.takes_once(id),
                shape: node.shape,
            })),
            Work::Input | Work::Linear(_) | Work::Local(_) => None,
        };
        let instead = nonlinear.as_deref().and_then(|own| choices.comparison.instead(own));
        let range = values.range(id);
        let truncation =
            (shift > 0).then_some(TruncateParams { bits: computed_bits, out_bits: made_bits, shift, range });
        let extension = (modulus(made_bits) != domain.modulus).then_some(ExtendParams {
            bits: made_bits,
            output: domain.modulus,
            range,
        });
        let layer = planned[id].take();
        let conversion = layer.as_ref().and_then(|layer| {
            let from = node.inputs[0];
            let step: &Step = &steps[from];
            let wanted = layer.input();
            // All other domains reduce to what their consumers want.
            (!step.domain.reduces_to(wanted)).then(|| Elementwise {
                count: step.values,
                params: ExtendParams {
                    bits: values.bits[from].min(step.domain.modulus.bits()),
                    output: wanted.modulus,
                    range: values.range(from),
                },
            })
        });
        let step = Step {
            computed,
            domain,
            conversion,
            layer,
            early: nonlinear.is_some()
                && node.inputs.len() == 1
                && known_early(network, &steps, node.inputs[0]),
            replaced: instead.is_some(),
            nonlinear: instead.or(nonlinear),
            behind: None,
            truncation,
            extension,
            guard_bits: network.guard_bits,
            values: choices.images as usize * node.shape.iter().product::<usize>(),
            cost: Cost::default(),
            sends: false,
        };
        steps.push(step.finish(node)?);
    }
    opened_once::join(network, &mut steps)?;
    Ok(Planning { steps, layers })
}

/// Layers by node, and by backend.
type PlannedLayers = (Vec<Option<Planned>>, Vec<Arc<dyn Layers>>);

/// Asks every backend for its layers.
fn plan_layers(values: &Values<'_>, choices: &Choices) -> Result<PlannedLayers, PlanError> {
    let network = values.network;
    let nodes = &network.nodes;
    let opened = opened(network);
    let mut all: Vec<Arc<dyn Layers>> = Vec::new();
    let mut planned: Vec<Option<Planned>> = vec![None; nodes.len()];
    let mut families: Vec<&str> = Vec::new();
    for backend in in_order(values.backends.iter().flatten().copied().collect()) {
        // All layers of a family together, in the order of the network.
        let family = backend.backend().family();
        if families.contains(&family) {
            continue;
        }
        families.push(family);
        let own = |id: NodeId| values.backends[id].filter(|other| other.backend().family() == family);
        let requests: Vec<Request<'_>> = nodes
            .iter()
            .enumerate()
            .filter_map(|(id, node)| {
                let (spec, own) = (node.op.linear()?, own(id)?);
                Some(Request {
                    node: id,
                    backend: own.name(),
                    spec,
                    in_shape: nodes[node.inputs[0]].shape,
                    images: choices.images as usize,
                    activation_bits: values.activation_bits(),
                    guard_bits: network.guard_bits,
                    weight_bits: network.weight_bits + spec.max_exponent,
                    opened: opened[id],
                    product_bits: values.product_bits,
                    packing: choices.packings[id],
                    ring: choices.ring(),
                    weight_memory: choices.weight_memory,
                })
            })
            .collect();
        let layers = backend.backend().plan(&requests).map_err(|(i, source)| {
            let node = requests[i].node;
            PlanError::Layer { node, name: nodes[node].name.clone(), source }
        })?;
        for request in &requests {
            planned[request.node] = Planned::new(Arc::clone(&layers), request.node);
        }
        all.push(layers);
    }
    Ok((planned, all))
}

/// The bits of a layer's output.
fn output_bits(layer: Option<&Planned>, base: u32) -> u32 {
    layer.map_or(base, |layer| layer.output().modulus.bits())
}

/// For each node: the odd modulus that its value lives under, if it does.
///
/// Backwards: what do its consumers ask for? A local operation that lives modulo p asks its inputs for p. If one of them cannot
/// follow, the operation does not live there either, so begin again without it.
fn odd_moduli(values: &Values<'_>, planned: &[Option<Planned>]) -> Vec<Option<Modulus>> {
    let nodes = &values.network.nodes;
    // Operations that can be done modulo an odd number.
    let mut able: Vec<bool> = nodes
        .iter()
        .enumerate()
        .map(|(id, node)| {
            let in_any = match node.op.work() {
                Work::Input | Work::Local(_) => true,
                Work::Linear(_) => false,
                Work::Interactive(operator) => operator.shares().makes == Makes::AnyRing,
            };
            in_any && values.computed_excess[id] == 0
        })
        .collect();
    if let Some(output) = able.last_mut() {
        *output = false;
    }
    let local = |node: &Node| matches!(node.op.work(), Work::Local(_));
    loop {
        let mut asked: Vec<Vec<Option<Modulus>>> = vec![Vec::new(); nodes.len()];
        let mut odd: Vec<Option<Modulus>> = vec![None; nodes.len()];
        for (id, node) in nodes.iter().enumerate().rev() {
            if let Some((&Some(p), others)) = asked[id].split_first()
                && able[id]
                && others.iter().all(|other| *other == Some(p))
                && summable(node, p.bits())
            {
                odd[id] = Some(p);
            }
            let asks = match &planned[id] {
                Some(layer) => Some(layer.input().modulus).filter(|modulus| modulus.log2().is_none()),
                None if local(node) => odd[id],
                None => None,
            };
            node.inputs.iter().for_each(|&i| asked[i].push(asks));
        }
        let stuck = nodes.iter().enumerate().position(|(id, node)| {
            odd[id].is_some() && local(node) && node.inputs.iter().any(|&i| odd[i] != odd[id])
        });
        match stuck {
            Some(id) => able[id] = false,
            None => return odd,
        }
    }
}

/// For each node: how many bits shares of its value need, where they live modulo a power of two.
fn needed_bits(values: &Values<'_>, planned: &[Option<Planned>], odd: &[Option<Modulus>]) -> Vec<u32> {
    let nodes = &values.network.nodes;
    let free = computed_in_any_ring(values.network);
    let mut needed: Vec<u32> = (0..nodes.len()).map(|id| values.least_bits(id)).collect();
    if let Some(last) = nodes.len().checked_sub(1) {
        needed[last] = values.bits[last].max(values.base);
    }
    for (id, node) in nodes.iter().enumerate().rev() {
        let compared = values.compared_bits(id);
        for &input in &node.inputs {
            let asks = match node.op.work() {
                Work::Input => continue,
                Work::Linear(_) => planned[id].as_ref().map_or(values.base, |layer| {
                    // What is converted must have its values all told apart.
                    layer.input().modulus.log2().unwrap_or(values.bits[input])
                }),
                Work::Interactive(_) => values.taken_bits(id),
                Work::Local(_) if odd[id].is_some() => continue,
                Work::Local(local) if local.widens => needed[id].max(values.bits[id]),
                Work::Local(_) if free[id] => needed[id],
                // What is extended before it is moved is so for all that take it, if there is no more of it.
                Work::Local(_)
                    if node.inputs.len() == 1
                        && elements(nodes[input].shape) <= elements(node.shape)
                        && values.computed_excess[id] == 0 =>
                {
                    needed[id].max(compared)
                }
                Work::Local(_) => compared,
            };
            needed[input] = needed[input].max(asks);
        }
    }
    needed
}

/// For each node: whether all that its value reaches takes products that are not truncated. In a `mixed` plan only what compares
/// does: a sum's other operand may live in a narrower ring.
fn may_keep_excess(network: &Network, mixed: bool) -> Vec<bool> {
    let mut may = vec![true; network.nodes.len()];
    if let Some(output) = may.last_mut() {
        *output = false;
    }
    for (id, node) in network.nodes.iter().enumerate().rev() {
        let takes = match excess_of(node) {
            Some(Excess::Truncates) => true,
            Some(Excess::Passes) => may[id],
            Some(Excess::PassesTogether) => may[id] && !mixed,
            Some(Excess::Refuses) | None => false,
        };
        if !takes {
            node.inputs.iter().for_each(|&i| may[i] = false);
        }
    }
    may
}

/// For each node: whether its value can be computed in a ring of any width without an extension of its own.
fn computed_in_any_ring(network: &Network) -> Vec<bool> {
    let mut free: Vec<bool> = Vec::with_capacity(network.nodes.len());
    for node in &network.nodes {
        free.push(match node.op.work() {
            Work::Input => true,
            Work::Linear(_) => false,
            // The inputs of what widens come in the wider ring.
            Work::Local(local) => local.widens || node.inputs.iter().all(|&i: &NodeId| free[i]),
            Work::Interactive(operator) => operator.shares().makes == Makes::AnyRing,
        });
    }
    free
}
