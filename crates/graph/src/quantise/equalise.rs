//! Cross-layer equalisation (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
//! ICCV 2019, section 4.1).
//!
//! Channel c between two linear layers, with nothing but ReLU, pooling and movement of whole channels between them,
//! may be multiplied by any s_c > 0 in the first layer and divided by it in the second: `relu(s·x) = s·relu(x)`. All
//! weights of a layer share one scale here, so channels much smaller than the largest lose bits. The paper's
//! `s_c = sqrt(r2_c / r1_c)`, r1 and r2 the largest weights that make and take channel c, gives both layers the
//! same say. Activations share a scale too, so s_c is cut where channel c would outgrow the largest one.
//!
//! Layers may have weights in blocks ([`Blocks`](crate::network::Blocks)): all channels of a block have the same s_c.
//!
//! A clip (ReLU6) between the layers rules this out, and so does an addition or concatenation.

use super::ChannelRanges;
use crate::float::{Bias, Graph, Linear};
use crate::network::{self, NodeId, block_size};
use crate::ops::operator::Known;

/// Layers influence each other along chains; a few rounds settle them.
const ROUNDS: usize = 8;
/// The largest s_c of one round, and 1 over the smallest.
const MOST: f64 = 256.0;

/// A linear layer, what passes its channels on, and the linear layers that take them.
struct Link {
    from: NodeId,
    through: Vec<NodeId>,
    to: Vec<NodeId>,
}

/// Rescales the weights; `ranges` (by node and channel) follows. What the graph computes stays the same.
pub(super) fn equalise(graph: &mut Graph, ranges: &mut ChannelRanges) {
    let links = links(graph);
    for _ in 0..ROUNDS {
        for link in &links {
            balance(graph, ranges, link);
        }
    }
}

/// All places where channels may be rescaled.
fn links(graph: &Graph) -> Vec<Link> {
    let mut consumers: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&input| consumers[input].push(id));
    }
    let linear = |id: &NodeId| graph.nodes[*id].op.linear().is_some();
    let follow = |from: NodeId| -> Option<Link> {
        let (mut through, mut to, mut open) = (Vec::new(), Vec::new(), vec![from]);
        while let Some(id) = open.pop() {
            // The output's scale per channel is not ours to change.
            if consumers[id].is_empty() {
                return None;
            }
            for &next in &consumers[id] {
                let node = &graph.nodes[next];
                let keeps = |op: network::Op| op.keeps_channels(graph.nodes[id].shape, node.shape);
                if linear(&next) {
                    to.push(next);
                } else if node.op.integer(&Known::default()).is_some_and(keeps) {
                    through.push(next);
                    open.push(next);
                } else {
                    return None;
                }
            }
        }
        Some(Link { from, through, to })
    };
    (0..graph.nodes.len()).filter(linear).filter_map(follow).collect()
}

fn weights_of(graph: &Graph, id: NodeId) -> Option<&Linear> {
    graph.nodes[id].op.linear()
}

fn largest(weights: &[f32]) -> f64 {
    f64::from(weights.iter().fold(0f32, |m, w| m.max(w.abs())))
}

/// For each kernel in a layer's weights over `channels` inputs, the input channel that it takes.
fn taken_channels(linear: &Linear, channels: usize) -> impl Iterator<Item = usize> + use<> {
    let per_group = channels / linear.spec.groups;
    let rows = linear.spec.out_channels / linear.spec.groups;
    (0..linear.spec.out_channels).flat_map(move |d| (0..per_group).map(move |c| d / rows * per_group + c))
}

fn balance(graph: &mut Graph, ranges: &mut ChannelRanges, link: &Link) {
    let channels = graph.nodes[link.from].shape[0];
    let Some(first) = weights_of(graph, link.from) else { return };
    // Largest weights by channel, relative to their layer's largest, since each layer has its own scale.
    let whole = largest(&first.weights);
    let depth = first.weights.len() / channels;
    let made: Vec<f64> = first.weights.chunks_exact(depth).map(|row| largest(row) / whole).collect();
    let mut taken = vec![0f64; channels];
    for &id in &link.to {
        let Some(second) = weights_of(graph, id) else { return };
        let whole = largest(&second.weights);
        let area = second.spec.kernel[0] * second.spec.kernel[1];
        for (kernel, c) in second.weights.chunks_exact(area).zip(taken_channels(second, channels)) {
            taken[c] = taken[c].max(largest(kernel) / whole);
        }
    }
    // Channels that are rescaled together: those of the largest block before or behind them, sizes being powers of two.
    let size = |&id: &NodeId| weights_of(graph, id).map_or(1, |linear| block_size(&linear.spec));
    let together = link.to.iter().chain([&link.from]).map(size).max().unwrap_or(1);
    let of_block = |values: &[f64], c: usize| {
        values[c / together * together..].iter().take(together).copied().fold(0.0, f64::max)
    };
    let widest = ranges[link.from].iter().copied().fold(0.0, f64::max);
    let factors: Vec<f64> = (0..channels)
        .map(|c| {
            let wanted = (of_block(&taken, c) / of_block(&made, c)).sqrt();
            let allowed = widest / of_block(&ranges[link.from], c);
            // Channels that nothing makes or takes, or that were never seen alive, stay as they are.
            let usable = wanted.is_finite() && wanted > 0.0 && allowed.is_finite();
            if usable { wanted.min(allowed).clamp(1.0 / MOST, MOST) } else { 1.0 }
        })
        .collect();

    if let Some(first) = graph.nodes[link.from].op.linear_mut() {
        for (row, s) in first.weights.chunks_exact_mut(depth).zip(&factors) {
            row.iter_mut().for_each(|w| *w = (f64::from(*w) * s) as f32);
        }
        let (Bias::PerChannel(bias) | Bias::PerElement(bias)) = &mut first.bias;
        let plane = bias.len() / channels;
        for (bias, s) in bias.chunks_exact_mut(plane).zip(&factors) {
            bias.iter_mut().for_each(|b| *b = (f64::from(*b) * s) as f32);
        }
    }
    for &id in &link.to {
        let Some(second) = graph.nodes[id].op.linear_mut() else { continue };
        let area = second.spec.kernel[0] * second.spec.kernel[1];
        let channel = taken_channels(second, channels);
        for (kernel, c) in second.weights.chunks_exact_mut(area).zip(channel) {
            kernel.iter_mut().for_each(|w| *w = (f64::from(*w) / factors[c]) as f32);
        }
    }
    for &id in std::iter::once(&link.from).chain(&link.through) {
        ranges[id].iter_mut().zip(&factors).for_each(|(range, s)| *range *= s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jaguar_ring::cpu::Cpu;

    use crate::float::{Input, MaxPool, Node, Relu};
    use crate::network::Window;

    fn linear(
        name: &str,
        input: NodeId,
        groups: usize,
        weights: Vec<f32>,
        channels: usize,
        pads: usize,
    ) -> Node {
        let spec = network::Linear {
            out_channels: channels,
            kernel: [1, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [pads; 4],
            groups,
            shift: 0,
            max_exponent: 0,
            blocks: None,
        };
        let bias = Bias::PerChannel((0..channels).map(|c| c as f32 / 4.0).collect());
        let size = 2 + 2 * pads;
        let op = Linear { spec, weights, bias }.into();
        Node { name: name.into(), op, inputs: vec![input], shape: [channels, size, size] }
    }

    #[test]
    fn the_function_stays_and_small_channels_grow() {
        let pool = Window { kernel: [2, 2], stride: [1, 1], pads: [0; 4] };
        let plain = |op, input, shape| Node { name: String::new(), op, inputs: vec![input], shape };
        let mut graph = Graph {
            name: String::new(),
            nodes: vec![
                Node { name: String::new(), op: Input.into(), inputs: vec![], shape: [2, 2, 2] },
                linear("a", 0, 1, vec![8.0, -4.0, 0.001, 0.002, 1.0, 1.0, 0.0, 0.0], 4, 0),
                plain(Relu.into(), 1, [4, 2, 2]),
                linear("b", 2, 4, vec![0.001, 900.0, -1.0, 2.0], 4, 1),
                plain(Relu.into(), 3, [4, 4, 4]),
                plain(MaxPool(pool).into(), 4, [4, 3, 3]),
                linear("c", 5, 2, vec![1.0, 0.5, 0.25, -3.0], 2, 0),
            ],
            ..Graph::default()
        };
        graph.nodes[6].shape = [2, 3, 3];
        let input = [0.5, -0.25, 1.0, 0.75, -0.5, 0.125, 0.3, -0.9];
        let mut ranges = super::super::measure(Cpu::detect(), &graph, &[input.to_vec()]).unwrap();
        let before = graph.forward(Cpu::detect(), &input).unwrap();
        let smallest = |graph: &Graph| largest(&weights_of(graph, 1).unwrap().weights[2..4]);
        let spread = |graph: &Graph| largest(&weights_of(graph, 1).unwrap().weights) / smallest(graph);
        assert!(spread(&graph) > 1000.0);
        equalise(&mut graph, &mut ranges);
        for (a, b) in before.iter().zip(graph.forward(Cpu::detect(), &input).unwrap()) {
            assert!((a - b).abs() < 1e-4 * before.iter().fold(0.0, |m: f32, v| m.max(v.abs())), "{a} {b}");
        }
        assert!(spread(&graph) < 50.0, "{}", spread(&graph));
        // The ranges are those of the new graph.
        let again = super::super::measure(Cpu::detect(), &graph, &[input.to_vec()]).unwrap();
        for (a, b) in ranges.iter().flatten().zip(again.iter().flatten()) {
            assert!((a - b).abs() <= 1e-4 * a.abs(), "{a} {b}");
        }
    }
}
