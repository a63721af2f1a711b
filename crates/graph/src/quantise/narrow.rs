//! Values with fewer bits than others have, and rings that are as much narrower.
//!
//! What goes into curves and nowhere else (a layer before a GELU, the scores of a softmax and the largest of them) needs not be as fine as a value that a
//! network sums up layer by layer. So its scale is lower, by as many bits as [`Options::spare`](super::Options::spare) says, and what makes it says
//! so ([`Narrow`](crate::network::Narrow)): curves and max-pools take it in a ring of so many bits less.
//!
//! *By how many.* Of the numbers of bits that are spare, the first with which curves, max-pools and products behind them take the fewest bytes, by their
//! protocols' own count. A curve's pieces have as many integers fewer then, and its lines are as much less too large: where nothing of that is left,
//! lines would be finer than they need be, and take more bytes. Where its value is as coarse as its lines are ([`small`]), they are larger by as much
//! again, and x may have fewer bits still. Lines that are farther from the function are none.

use super::factors::{Factors, LEAST_BITS, LEAST_SHIFT, Tried, bytes};
use super::scales::{governing, scales_by_node};
use crate::float::Demand;
use crate::network::{NodeId, Op, Scale, Work};
use crate::ops::curve::fit::MOST;
use crate::ops::narrow::MOST_FEWER;
use crate::ops::narrowed::{makes_narrow, of_narrow};
use crate::ops::operator::{Known, Source};
use crate::ops::product::{most_product_shift, product_shift};

/// What is tried.
struct Trial<T> {
    /// By class.
    scale: Vec<f64>,
    /// By node: how many bits fewer its value has.
    narrow: Vec<u32>,
    /// By node: by how many bits lines may be coarser.
    coarse: Vec<u32>,
    /// What it is called.
    name: T,
}

/// The first of all with which `touched` take the fewest bytes. None of their lines is farther from its function than in the first of all.
fn cheapest<T>(of: &Factors<'_>, touched: &[NodeId], trials: impl Iterator<Item = Trial<T>>) -> Option<T> {
    let &Factors { graph, network, class, bits: [bits, _], .. } = of;
    let mut best: Option<(T, f64)> = None;
    let mut usual: Option<Vec<f64>> = None;
    for Trial { scale, narrow, coarse, name } in trials {
        let scales = scales_by_node(network, class, &scale);
        let off = |&id: &NodeId| {
            let node = &graph.nodes[id];
            let own: Vec<f64> = node.inputs.iter().map(|&input| scales[input]).collect();
            let (fewer, scales) = (narrow[node.inputs[0]], Some((&own[..], scales[id])));
            let known = Known { bits, coarse: coarse[id], fewer, scales, ..Known::default() };
            if node.op.heeds_coarse() { node.op.coarseness(&known) } else { 0.0 }
        };
        let off: Vec<f64> = touched.iter().map(off).collect();
        let usual = usual.get_or_insert_with(|| off.clone());
        if off.iter().zip(usual.iter()).any(|(off, usual)| *off > usual.max(MOST)) {
            continue;
        }
        let tried = Tried { scales: &scales, narrow: &narrow, coarse: &|id| coarse[id] };
        let bytes = bytes(of, touched.iter().copied(), &tried);
        if best.as_ref().is_none_or(|(_, least)| bytes < *least) {
            best = Some((name, bytes));
        }
    }
    best.map(|(name, _)| name)
}

/// The scales, where that of class `own` is lower by so many bits.
fn lower(scale: &[f64], own: NodeId, fewer: u32) -> Vec<f64> {
    let mut scale = scale.to_vec();
    scale[own] *= f64::from(fewer).exp2().recip();
    scale
}

/// Lowers the scales of what curves make that is small whatever they take, as exponentials are: by less than lines may be coarser (`coarse` bits, by node). Adds to
/// `fewer` by how many bits. What goes into these curves may become [`narrow`] then.
pub(super) fn small(of: &Factors<'_>, scale: &mut [f64], spare: &[u32], coarse: &[u32], fewer: &mut [u32]) {
    let &Factors { graph, network, class, range, clip, bits: [bits, _] } = of;
    if spare.iter().all(|&spare| spare == 0) {
        return;
    }
    let nodes = &network.nodes;
    let governed: Vec<NodeId> = (0..nodes.len()).map(|id| governing(network, class, id)).collect();
    for own in (0..nodes.len()).filter(|&id| class[id] == id && range[id] > 0.0 && clip[id].is_none()) {
        let members = || (0..nodes.len()).filter(|&id| class[id] == own);
        let scales = scales_by_node(network, class, scale);
        let is_small = |id: NodeId| {
            let curve = Some(&graph.nodes[id]).filter(|node| node.op.heeds_coarse());
            curve.is_some_and(|node| {
                let own = scales[node.inputs[0]];
                let scales = Some((&[own][..], scales[id]));
                let known = Known { bits, coarse: coarse[id], scales, ..Known::default() };
                node.op.integer(&known).is_some_and(|op| op.value_bits(bits, bits) < bits)
            })
        };
        let moved = |id: NodeId| nodes[id].op.value().source == Source::Moved;
        if fewer[own] > 0 || governed.last() == Some(&own) || !members().all(|id| moved(id) || is_small(id)) {
            continue;
        }
        let curves: Vec<NodeId> = members().filter(|&id| !moved(id)).collect();
        let least = curves.iter().map(|&id| coarse[id]).min().unwrap_or(0);
        let mut most = left(of, own, scale, spare).min(least.saturating_sub(1));
        let mut touched = curves.clone();
        for (id, node) in nodes.iter().enumerate() {
            let Demand::Shifted { gain, .. } = graph.nodes[id].op.demands() else { continue };
            let times = node.inputs.iter().filter(|&&input| governed[input] == own).count() as u32;
            let shift = product_shift(gain, [0, 1].map(|i| scales[node.inputs[i]]), scales[id]).round();
            let more = (shift - f64::from(LEAST_SHIFT)).max(0.0) as u32;
            if let Some(each) = more.checked_div(times) {
                most = most.min(each);
                touched.push(id);
            }
        }
        // What goes into them, if that is of one class.
        let from: Vec<NodeId> = curves.iter().map(|&id| governed[nodes[id].inputs[0]]).collect();
        let from = from.first().copied().filter(|first| from.iter().all(|from| from == first));
        let most_from = from.map_or(0, |from| most_narrow(of, &governed, from, scale, spare));
        touched.extend(from.iter().flat_map(|&from| comparisons(of, &governed, from)));
        let each = (0..=most).flat_map(|less| (0..=most_from).map(move |before| (less, before)));
        let trials = each.map(|(less, before)| Trial {
            scale: from.map_or_else(|| scale.to_vec(), |from| lower(&lower(scale, own, less), from, before)),
            narrow: governed.iter().map(|&at| if Some(at) == from { before } else { 0 }).collect(),
            coarse: class
                .iter()
                .zip(coarse)
                .map(|(&at, c)| if at == own { c.saturating_sub(less) } else { *c })
                .collect(),
            name: less,
        });
        let best = cheapest(of, &touched, trials).unwrap_or(0);
        scale[own] *= f64::from(best).exp2().recip();
        members().for_each(|id| fewer[id] = best);
    }
}

/// By how many bits a class's scale may fall, so that enough are left of the largest value seen.
fn left(of: &Factors<'_>, own: NodeId, scale: &[f64], spare: &[u32]) -> u32 {
    let members = (0..of.class.len()).filter(|&id| of.class[id] == own);
    let spared = members.map(|id| spare.get(id).copied().unwrap_or(0)).min().unwrap_or(0);
    let least = LEAST_BITS.max(of.bits[0] / 2 - 2);
    ((of.range[own] * scale[own]).log2().floor() - f64::from(least)).clamp(0.0, f64::from(spared)) as u32
}

/// By how many bits values of this class may be narrow at most; 0 of what something else than a curve takes.
fn most_narrow(of: &Factors<'_>, governed: &[NodeId], own: NodeId, scale: &[f64], spare: &[u32]) -> u32 {
    let &Factors { graph, network, class, range, clip, bits: [bits, guard_bits] } = of;
    let nodes = &network.nodes;
    let members = || (0..nodes.len()).filter(|&id| class[id] == own);
    let made = members().all(|id| may_be_narrow(&nodes[id].op, bits));
    if range[own] <= 0.0 || clip[own].is_some() || governed.last() == Some(&own) || !made {
        return 0;
    }
    if !goes_into_curves(of, governed, own) {
        return 0;
    }
    let mut most = left(of, own, scale, spare).min(MOST_FEWER);
    let scales = scales_by_node(network, class, scale);
    for id in members() {
        let Demand::Shifted { gain, ring_bits, .. } = graph.nodes[id].op.demands() else { continue };
        let factors = [0, 1].map(|i| scales[nodes[id].inputs[i]]);
        let shift = product_shift(gain, factors, scales[id]).round();
        let widest = f64::from(most_product_shift(ring_bits, bits + guard_bits) - guard_bits);
        most = most.min((widest - shift).max(0.0) as u32);
    }
    most
}

/// What compares values of this class and makes others of it: max-pools.
fn comparisons<'a>(
    of: &'a Factors<'_>,
    governed: &'a [NodeId],
    own: NodeId,
) -> impl Iterator<Item = NodeId> + 'a {
    let nodes = &of.network.nodes;
    (0..nodes.len()).filter(move |&id| {
        let interactive = matches!(nodes[id].op.work(), Work::Interactive(_));
        interactive && governed[id] == own && !makes_narrow(&nodes[id].op)
    })
}

/// Lowers the scales of what goes into curves and nowhere else. Says by node how many bits fewer its value has. Lines may be coarser by `coarse` bits, less by
/// what their values are (`coarser`): both by node.
pub(super) fn narrow(
    of: &Factors<'_>,
    scale: &mut [f64],
    spare: &[u32],
    coarse: &[u32],
    coarser: &[u32],
) -> Vec<u32> {
    let &Factors { graph, network, class, .. } = of;
    let nodes = &network.nodes;
    let governed: Vec<NodeId> = (0..nodes.len()).map(|id| governing(network, class, id)).collect();
    let mut fewer = vec![0; nodes.len()];
    if spare.iter().all(|&spare| spare == 0) {
        return fewer;
    }
    let coarse: Vec<u32> =
        coarse.iter().zip(coarser).map(|(&coarse, &coarser)| coarse.saturating_sub(coarser)).collect();
    for own in (0..nodes.len()).filter(|&id| class[id] == id) {
        let most = most_narrow(of, &governed, own, scale, spare);
        if most == 0 {
            continue;
        }
        let curves = (0..nodes.len()).filter(|&id| {
            nodes[id].inputs.iter().any(|&input| governed[input] == own) && graph.nodes[id].op.heeds_coarse()
        });
        let touched: Vec<NodeId> = curves.chain(comparisons(of, &governed, own)).collect();
        let trials = (0..=most).map(|less| Trial {
            scale: lower(scale, own, less),
            narrow: governed
                .iter()
                .zip(&fewer)
                .map(|(&at, &fewer)| if at == own { less } else { fewer })
                .collect(),
            coarse: coarse.clone(),
            name: less,
        });
        let best = cheapest(of, &touched, trials).unwrap_or(0);
        scale[own] *= f64::from(best).exp2().recip();
        (0..nodes.len()).filter(|&id| governed[id] == own).for_each(|id| fewer[id] = best);
    }
    fewer
}

/// Whether it makes values of fewer bits, by itself or of such.
fn may_be_narrow(op: &Op, bits: u32) -> bool {
    makes_narrow(op)
        || op.scale() == Scale::Inherited && (of_narrow(op) || op.value_bits(bits - 1, bits) < bits)
}

/// Whether what takes values of this class are curves, beside what has the class itself.
fn goes_into_curves(of: &Factors<'_>, governed: &[NodeId], own: NodeId) -> bool {
    let nodes = &of.network.nodes;
    let mut curves = 0;
    for (id, node) in nodes.iter().enumerate() {
        let takes = node.inputs.iter().any(|&input| governed[input] == own);
        let passes = governed[id] == own && !matches!(node.op.scale(), Scale::Gained(_));
        let is_curve = of.graph.nodes[id].op.heeds_coarse();
        match (takes, passes) {
            (true, false) if is_curve => curves += 1,
            (true, false) => return false,
            (true, true) | (false, _) => (),
        }
    }
    curves > 0
}
