//! Factors of products with fewer bits than other values have.
//!
//! A product of values of b and c bits takes a ring of some b + c bits: by correlations it takes twice as many of them, and its bytes grow
//! with their square. A value that goes into products and nowhere else needs not have as many bits as a value that
//! is summed up layer by layer. So its scale may be lower, by as many bits as `Options::spare` says: what makes the value rounds it anyway, and the
//! product is shifted by so many bits less. No protocol is another one.
//!
//! *Which.* Of all that share the scale, what makes them is a linear layer, or makes few values beside the products: a curve with a coarser
//! value takes more bytes, and so does a product that is shifted by more. What takes them are products, or sums over windows
//! that go to a linear layer (the mean of squeeze-and-excitation).
//!
//! *By how much.* Of the numbers of bits that are spare, the first with which the products' protocols take the fewest bytes. (By ciphertexts
//! bytes go by steps: `docs/protocols/nonlinear.md`.) At least [`LEAST_BITS`] bits of the largest value seen are left, and a
//! product is still shifted by [`LEAST_SHIFT`] bits.

use jaguar_mpc::share::Modulus;

use super::scales::{governing, scales_by_node, summed};
use crate::float::{Demand, Graph};
use crate::network::{Makes, Network, NodeId, Place, Scale, Shape, Takes, Work};
use crate::ops::curve::coarse::weighed;
use crate::ops::operator::Known;
use crate::ops::product::product_shift;

/// Bits that are left of the largest value seen.
pub(super) const LEAST_BITS: u32 = 8;

/// A product is shifted by so many bits: with eight guard bits by twelve, so that its cross terms by ciphertexts are off by no more than they
/// always are (`docs/protocols/nonlinear.md`).
pub(super) const LEAST_SHIFT: u32 = 4;

/// What is not linear makes at most so large a part of what the products make.
const FEW: usize = 8;

/// A product by its node, and how many of its two factors have the scale in question.
type Taken = (NodeId, usize);

/// What is known when scales are chosen.
pub(super) struct Factors<'a> {
    pub(super) graph: &'a Graph,
    pub(super) network: &'a Network,
    /// By node.
    pub(super) class: &'a [NodeId],
    /// By class, as what follows.
    pub(super) range: &'a [f64],
    pub(super) clip: &'a [Option<(NodeId, f32)>],
    /// Of activations, and guard bits.
    pub(super) bits: [u32; 2],
}

/// Lowers the scales of such classes. Says by node by how many bits.
pub(super) fn coarsen(of: &Factors<'_>, scale: &mut [f64], spare: &[u32]) -> Vec<u32> {
    let &Factors { graph, network, class, range, clip, bits } = of;
    let count = network.nodes.len();
    let mut fewer = vec![0; count];
    let narrow = vec![0; count];
    if spare.iter().all(|&spare| spare == 0) {
        return fewer;
    }
    let governed: Vec<NodeId> = (0..count).map(|id| governing(network, class, id)).collect();
    let least = LEAST_BITS.max(bits[0] / 2 - 2);
    for own in (0..count).filter(|&id| class[id] == id && range[id] > 0.0) {
        let Some(products) = taken_by_products(graph, network, class, &governed, own) else { continue };
        let members = || (0..count).filter(|&id| class[id] == own);
        let spared = members().map(|id| spare.get(id).copied().unwrap_or(0)).min().unwrap_or(0);
        let largest = clip[own].map_or(range[own], |(_, ceiling)| range[own].min(f64::from(ceiling)));
        let left = (largest * scale[own]).log2().floor() - f64::from(least);
        let mut most = left.clamp(0.0, f64::from(spared)) as u32;
        let scales = scales_by_node(network, class, scale);
        for &(product, times) in &products {
            let node = &graph.nodes[product];
            let Demand::Shifted { gain, .. } = node.op.demands() else { continue };
            let factors = [0, 1].map(|i| scales[node.inputs[i]]);
            let shift = product_shift(gain, factors, scales[product]).round();
            let more = (shift - f64::from(LEAST_SHIFT)).max(0.0) / times as f64;
            most = most.min(more as u32);
        }
        let mut best = (0, f64::INFINITY);
        for less in 0..=most {
            let mut tried = scale.to_vec();
            tried[own] *= f64::from(less).exp2().recip();
            let scales = &scales_by_node(network, class, &tried);
            let tried = Tried { scales, narrow: &narrow, coarse: &|_| 0 };
            let bytes = bytes(of, products.iter().map(|&(product, _)| product), &tried);
            if bytes < best.1 {
                best = (less, bytes);
            }
        }
        scale[own] *= f64::from(best.0).exp2().recip();
        members().for_each(|id| fewer[id] = best.0);
    }
    fewer
}

/// The products that take values of this class as factors; `None` if anything else does, or they are made by what had better not make
/// coarser ones.
fn taken_by_products(
    graph: &Graph,
    network: &Network,
    class: &[NodeId],
    governed: &[NodeId],
    own: NodeId,
) -> Option<Vec<Taken>> {
    let nodes = &network.nodes;
    if governed.last() == Some(&own) {
        return None;
    }
    let mut products: Vec<Taken> = Vec::new();
    for (id, node) in nodes.iter().enumerate() {
        let times = node.inputs.iter().filter(|&&input| governed[input] == own).count();
        if times == 0 {
            continue;
        }
        let is_product = matches!(graph.nodes[id].op.demands(), Demand::Shifted { .. });
        let passes = class[id] == own || governed[id] == own;
        let few_sums = node.op.linear().is_some() && summed(network, node.inputs[0]) > 1;
        match (is_product, passes) {
            (true, false) => products.push((id, times)),
            (false, true) => (),
            (false, false) if few_sums => (),
            (true, true) | (false, false) => return None,
        }
    }
    let elements = |id: NodeId| nodes[id].shape.iter().product::<usize>();
    let made: usize = products.iter().map(|&(id, _)| elements(id)).sum();
    let may_make = |id: NodeId| match (nodes[id].op.scale(), nodes[id].op.work()) {
        (Scale::Inherited, _) | (_, Work::Linear(_)) => governed[id] == own,
        (Scale::Own, Work::Interactive(_)) => elements(id) * FEW <= made,
        (Scale::Own, Work::Input | Work::Local(_)) | (Scale::Gained(_), _) => false,
    };
    let sound = (0..nodes.len()).filter(|&id| class[id] == own).all(may_make);
    (sound && !products.is_empty()).then_some(products)
}

/// What is tried.
pub(super) struct Tried<'a> {
    /// By node.
    pub(super) scales: &'a [f64],
    /// By node, how many bits fewer its value has than others.
    pub(super) narrow: &'a [u32],
    /// By how many bits lines of a node's curve may be coarser.
    pub(super) coarse: &'a dyn Fn(NodeId) -> u32,
}

/// The bytes that these products, curves and max-pools take; infinitely many where one cannot be.
pub(super) fn bytes(of: &Factors<'_>, nodes: impl Iterator<Item = NodeId>, tried: &Tried<'_>) -> f64 {
    let &Factors { graph, network, bits: [activation_bits, guard_bits], .. } = of;
    let bits = activation_bits + guard_bits;
    let mut sum = 0.0;
    for id in nodes {
        let node = &graph.nodes[id];
        let own: Vec<f64> = node.inputs.iter().map(|&input| tried.scales[input]).collect();
        let inputs: Vec<Shape> = node.inputs.iter().map(|&input| graph.nodes[input].shape).collect();
        let fewer = node.inputs.first().map_or(0, |&input| tried.narrow[input]);
        let known = Known {
            bits: activation_bits,
            coarse: (tried.coarse)(id),
            fewer,
            scales: Some((&own, tried.scales[id])),
            input: inputs.first().copied(),
        };
        let Some(mut op) = node.op.integer(&known) else { return f64::INFINITY };
        let guarded = op.rescale(guard_bits as i32).is_ok() && op.check(bits).is_ok();
        let Work::Interactive(operator) = op.work() else { continue };
        let shares = operator.shares();
        let taken = match shares.takes {
            Takes::Activations { more } => bits + more,
            Takes::Compared => bits - fewer,
            Takes::Needed { least, fewer: most } => (bits - fewer.min(most)).max(least).min(bits),
        };
        let made = if shares.makes == Makes::TakenRing { taken } else { op.value_bits(bits, bits) };
        let protocol = guarded.then(|| {
            operator.protocol(&Place {
                bits: taken,
                excess: 0,
                output: Modulus::power_of_two(made),
                digit: 4,
                images: 1,
                inputs: &inputs,
                same: network.takes_once(id),
                shape: node.shape,
            })
        });
        sum += match protocol {
            Some(protocol) if protocol.check().is_ok() => weighed(&protocol.cost()),
            Some(_) | None => f64::INFINITY,
        };
    }
    sum
}
