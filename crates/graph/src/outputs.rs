//! Which values of a network's output belong together, so that each lot is judged by its own spread.
//!
//! A detector's boxes may reach to hundreds where its scores stay within one: beside the spread of both together, scores that are
//! all wrong look right. So the output is taken apart into *heads*: the ONNX model's outputs, and within each of these what comes
//! from different layers, for detectors pack several into one tensor. Joins, moves, and what works value by value (ReLU, clips, a
//! factor for each channel behind a join) are looked through.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::{BTreeMap, BTreeSet};

use jaguar_ring::cpu::Cpu;

use crate::network::{Network, Node, NodeId};
use crate::ops::operator::Source;
use crate::reference;

/// How far `got` is from `want`, two lists of logits, relative to how far the wanted ones lie from each other: the
/// root of the mean square of the difference over the standard deviation of `want`. What all logits have in common,
/// which says nothing of classes, is left out of both; only a single logit is taken as it is.
pub fn logit_error(got: &[f64], want: &[f64]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        let mean = if values.len() > 1 { values.iter().sum::<f64>() / values.len() as f64 } else { 0.0 };
        values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>()
    };
    let difference = squares(&mut got.iter().zip(want).map(|(a, b)| a - b));
    // Equal logits are right whatever they are.
    if difference == 0.0 { 0.0 } else { (difference / squares(&mut want.iter().copied())).sqrt() }
}

/// The larger of two errors, and a NaN if one of them is: `f64::max` would pass over it.
pub fn worse(one: f64, other: f64) -> f64 {
    if one.is_nan() || other <= one { one } else { other }
}

/// An output that is packed of more layers than this is taken as it is.
const MOST: usize = 64;

/// Where a value comes from: a node's number and one, or 0 for padding.
type Label = i64;

/// A part of the output that is judged by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The output's name, with that of the layer which makes these values if others make the rest.
    pub name: String,
    /// Which of the output's values.
    places: Vec<usize>,
}

impl Head {
    /// How many values it has.
    pub fn values(&self) -> usize {
        self.places.len()
    }

    /// Its values of an output.
    pub fn of(&self, output: &[f64]) -> Vec<f64> {
        self.places.iter().filter_map(|&place| output.get(place).copied()).collect()
    }
}

/// The parts of a network's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Heads(Vec<Head>);

impl Heads {
    /// Those of `network`, which is valid ([`Network::validate`]).
    pub fn new(network: &Network) -> Self {
        let count: usize = network.nodes.last().map_or(0, |node| node.shape.iter().product());
        let sources = labels(network, |id| source(network, &network.nodes[id])).pop().unwrap_or_default();
        let whole = [("output", count)];
        let parts = network.output.parts.iter().map(|part| (part.name.as_str(), part.count().unwrap_or(0)));
        let parts: Vec<(&str, usize)> =
            if network.output.parts.is_empty() { whole.to_vec() } else { parts.collect() };
        let (mut heads, mut from) = (Vec::new(), 0);
        for (name, count) in parts {
            let mut by_source: BTreeMap<Label, Vec<usize>> = BTreeMap::new();
            for place in from..from + count {
                match sources.get(place) {
                    Some(0) => {}
                    source => by_source.entry(source.copied().unwrap_or(0)).or_default().push(place),
                }
            }
            let packed = (2..=MOST).contains(&by_source.len());
            if packed {
                heads.extend(by_source.into_iter().map(|(source, places)| {
                    let layer = network.nodes.get((source as usize).wrapping_sub(1));
                    let layer = layer.map_or("?", |node| node.name.as_str());
                    Head { name: format!("{name} (from {layer})"), places }
                }));
            } else {
                heads.push(Head { name: name.to_owned(), places: (from..from + count).collect() });
            }
            from += count;
        }
        Self(heads)
    }

    /// The heads, in the order of the outputs.
    pub fn all(&self) -> &[Head] {
        &self.0
    }

    /// By head, how far `got` is from `want`, two outputs, relative to how far the wanted values lie from each other: see
    /// [`logit_error`].
    pub fn errors(&self, got: &[f64], want: &[f64]) -> Vec<f64> {
        self.0.iter().map(|head| logit_error(&head.of(got), &head.of(want))).collect()
    }

    /// The largest of [`errors`](Self::errors).
    pub fn worst_error(&self, got: &[f64], want: &[f64]) -> f64 {
        self.errors(got, want).into_iter().fold(0.0, worse)
    }
}

/// What moves values into several outputs, and does nothing else: each output so has a scale of its own, whatever it is moved beside.
pub(crate) struct Apart {
    /// By node that moves values there: by value, where it is from. Empty of all others.
    labels: Vec<Vec<Label>>,
    /// By output, which nodes make its values.
    origins: Vec<Vec<NodeId>>,
}

impl Apart {
    /// Of a valid network ([`Network::validate`]); nothing, where there are not several outputs.
    pub(crate) fn new(network: &Network) -> Self {
        let nodes = &network.nodes;
        let mut moves = vec![network.output.parts.len() > 1; nodes.len()];
        for id in (0..nodes.len()).rev() {
            moves[id] &= nodes[id].op.value().source == Source::Moved;
            if !moves[id] {
                nodes[id].inputs.iter().for_each(|&input| moves[input] = false);
            }
        }
        // (Without several outputs nothing is moved apart.)
        let source = |id: NodeId| if moves[id] { Source::Moved } else { Source::Several };
        let mut labels = labels(network, source);
        let output = labels.last().cloned().unwrap_or_default();
        let made = |labels: &[Label]| {
            let made: BTreeSet<NodeId> = labels.iter().filter_map(|&l| (l as usize).checked_sub(1)).collect();
            made.into_iter().collect()
        };
        let parts = network.output.split(&output).map(|(_, labels)| made(labels));
        let origins: Vec<_> = if moves.contains(&true) { parts.collect() } else { Vec::new() };
        labels.iter_mut().zip(moves).filter(|(_, moves)| !moves).for_each(|(labels, _)| labels.clear());
        Self { labels, origins }
    }

    /// Whether node `id` is such.
    pub(crate) fn moves(&self, id: NodeId) -> bool {
        !self.labels[id].is_empty()
    }

    /// By output, which nodes make its values; nothing, where there are not several outputs.
    pub(crate) fn origins(&self) -> &[Vec<NodeId>] {
        &self.origins
    }

    /// The scale of a value of node `id`, of the scales by node.
    pub(crate) fn scale(&self, scales: &[f64], id: NodeId, place: usize) -> f64 {
        let origin = self.labels[id].get(place).and_then(|&label| (label as usize).checked_sub(1));
        scales[origin.unwrap_or(id)]
    }
}

/// By node, of those whose values reach the output, which node's each of them is, seen through nodes of whose `source` more is known than
/// that it is several values.
fn labels(network: &Network, source: impl Fn(NodeId) -> Source) -> Vec<Vec<Label>> {
    let nodes = &network.nodes;
    let Some(output) = nodes.len().checked_sub(1) else { return Vec::new() };
    let mut wanted = vec![false; nodes.len()];
    wanted[output] = true;
    for id in (0..nodes.len()).rev().filter(|&id| source(id) != Source::Several) {
        if wanted[id] {
            nodes[id].inputs.iter().for_each(|&input| wanted[input] = true);
        }
    }
    let mut labels: Vec<Vec<Label>> = vec![Vec::new(); nodes.len()];
    for (id, node) in nodes.iter().enumerate().filter(|(id, _)| wanted[*id]) {
        let own = || vec![id as Label + 1; node.shape.iter().product()];
        let first = node.inputs.first().map_or(&[][..], |&input| &labels[input][..]);
        labels[id] = match source(id) {
            Source::Several => own(),
            Source::SamePlace => first.to_vec(),
            // Behind a join it works on what several layers make; elsewhere it has a scale of its own.
            Source::Scaled if first.iter().all(|label| *label == first[0]) => own(),
            Source::Scaled => first.to_vec(),
            Source::Moved => {
                let inputs: Vec<&[Label]> = node.inputs.iter().map(|&input| &labels[input][..]).collect();
                // What is moved is the same whatever the values are.
                reference::apply_op(Cpu::scalar(), network, id, None, &inputs).unwrap_or_else(|_| own())
            }
        };
    }
    labels
}

/// Of which values of its inputs a node makes each of its own.
fn source(network: &Network, node: &Node) -> Source {
    let source = node.op.value().source;
    let as_many = node.inputs.first().is_some_and(|&input| network.nodes[input].shape == node.shape);
    if source == Source::Scaled && !as_many { Source::Several } else { source }
}

#[cfg(test)]
mod tests {
    use super::worse;

    #[test]
    fn a_nan_is_the_worst() {
        for errors in [[f64::NAN, 0.001], [0.001, f64::NAN]] {
            assert!(errors.into_iter().fold(0.0, worse).is_nan());
        }
        assert_eq!([0.2, 0.3, 0.1].into_iter().fold(0.0, worse), 0.3);
    }
}
