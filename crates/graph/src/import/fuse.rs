//! Fusion: from what the exporter wrote to the operations of the integer network.
//!
//! Rules are applied until none fits:
//!
//! - an affine map (batch normalisation, scaling by constants) at the input becomes the graph's own, behind a
//!   linear layer goes into its weights, in front of linear layers goes into theirs (exactly, also over zero
//!   padding, where the bias then differs by element), and moves through pooling, means over tokens and rearrangements to
//!   get there; what that costs a layer of its blocks is told;
//! - a curve and what is made of it and its input place by place, as x·sigmoid(x), is one curve: not where a number comes in
//!   that a network may have learned, for curves are public;
//! - a factor that is the same for a whole value goes into the product that takes or makes it;
//! - numbers that scale the rows of a matrix scale those of its product instead, where they are shorter: so a softmax's inverse sums
//!   scale mixtures, and not the weights of which these are made;
//! - max-pooling goes before ReLU, where they commute, so that fewer ReLUs are left;
//! - averaging goes before a 1×1 convolution, which then has fewer outputs to compute;
//! - zero padding goes into the window that follows;
//! - rows and columns of a kernel that see nothing but padding, whatever the output, are cut off.
//!
//! What is left of affine maps becomes a depthwise 1×1 convolution, and so does an average whose consumer has no
//! weights to take the division.

use jaguar_ring::cpu::Cpu;

use super::blocks::are_kept;
use super::build::non_negative;
use super::moves::selection;
use super::{Draft, ImportError};
use crate::float::{
    Affine, Bias, Concat, ElementMap, Function, Graph, Growth, Known, Linear, Node, Op, Settled,
};
use crate::limits;
use crate::network::{self, NodeId, Rearrange, Shape};
use crate::ops::linear::fold::{
    crop_kernel, linear_of_constant, scale_bias, spread, spread_linear, sum_bias,
};
use crate::ops::matrix_product::rows::scaled_behind;
use crate::ops::rearrange::rearrange;

/// How a node's value is used.
#[derive(Clone, Copy, Default)]
struct Uses {
    count: usize,
    /// The last node found that takes it.
    by: NodeId,
}

struct Fusion {
    cpu: Cpu,
    nodes: Vec<Node>,
    output: NodeId,
    affine: Vec<(f32, f32)>,
    /// What the file calls the node that became `affine`.
    affine_name: String,
    uses: Vec<Uses>,
    /// Layers whose blocks factors in front of them took away.
    lost_blocks: Vec<String>,
}

type Rule = fn(&mut Fusion, NodeId) -> bool;

/// In order of preference: what makes a node vanish comes before what moves one.
const RULES: [Rule; 20] = [
    Fusion::drop_identity,
    Fusion::one_curve,
    Fusion::merge_affines,
    Fusion::affine_into_linear_before,
    Fusion::affine_into_input,
    Fusion::affine_into_linears_after,
    Fusion::scaling_into_product_after,
    Fusion::scaling_into_product_before,
    Fusion::rows_past_matrices,
    Fusion::affine_before_pool,
    Fusion::affine_onward,
    Fusion::affine_past_moves,
    Fusion::pad_into_window,
    Fusion::drop_repeated_relu,
    Fusion::concat_before_relu,
    Fusion::pool_before_relu,
    Fusion::average_before_pointwise,
    Fusion::merge_selections,
    Fusion::order_into_linear,
    Fusion::pointwise_into_linears,
];

pub(super) fn fuse(cpu: Cpu, draft: Draft, name: &str) -> Result<Graph, ImportError> {
    let Draft { nodes, output, channels_last, layout_dims, outputs } = draft;
    let mut fusion = Fusion::new(cpu, nodes, output);
    // Each rule removes a node or moves one past another: real graphs stay far below two a node.
    let most = 2 * fusion.nodes.len() + 1024;
    let mut rewrites = 0;
    loop {
        let before = rewrites;
        for rule in RULES {
            // Nodes that a rule appends are looked at too.
            let mut node = 0;
            while node < fusion.nodes.len() {
                if fusion.uses[node].count > 0 && rule(&mut fusion, node) {
                    rewrites += 1;
                    if rewrites > most {
                        return Err(ImportError::TooLarge("operations to fuse"));
                    }
                    fusion.count_uses();
                }
                node += 1;
            }
        }
        // Only then, so that pooling has gone before them.
        if rewrites == before && !fusion.expand() {
            break;
        }
    }
    fusion.materialise_affines();
    fusion.spread_afterwards();
    fusion.settle()?;
    fusion.crop_kernels();
    Ok(Graph {
        name: name.chars().take(limits::MAX_NAME / 4).collect(),
        nodes: fusion.sorted(),
        affine: fusion.affine,
        affine_name: fusion.affine_name,
        channels_last,
        layout_dims,
        outputs,
        tail: None,
        lost_blocks: fusion.lost_blocks,
    })
}

impl Graph {
    /// The same network with the affine map at its head in the layers behind it: clients get that map, and not the layers'
    /// weights. Zero padding stays zero of what the map makes, so a layer's bias may differ by element then.
    /// `None` where there is no such map, or the layers cannot take it without one layer more, unless that is `allowed`.
    pub fn with_map_in_layers(&self, cpu: Cpu, one_layer_more: bool) -> Option<Graph> {
        if self.affine.is_empty() {
            return None;
        }
        let (mul, add) = self.affine.iter().copied().unzip();
        let mut fusion = Fusion::new(cpu, self.nodes.clone(), self.nodes.len() - 1);
        let head = fusion.nodes.len();
        fusion.redirect(0, head);
        let (name, shape) = (self.affine_name.clone(), self.nodes[0].shape);
        let op = Affine { mul, add: Bias::PerChannel(add) }.into();
        fusion.nodes.push(Node { name, op, inputs: vec![0], shape });
        fusion.count_uses();
        // It moves past what it commutes with. Each move takes it nearer to the output, so this ends.
        let step = |fusion: &mut Fusion, at: NodeId| {
            fusion.uses[at].count > 0 && (fusion.affine_into_linears_after(at) || fusion.affine_onward(at))
        };
        while (0..fusion.nodes.len()).any(|at| step(&mut fusion, at)) {
            fusion.count_uses();
        }
        let left = |fusion: &Fusion| {
            (0..fusion.nodes.len()).any(|at| fusion.uses[at].count > 0 && fusion.affine(at).is_some())
        };
        if !fusion.lost_blocks.is_empty() {
            return None;
        }
        if left(&fusion) {
            if !one_layer_more {
                return None;
            }
            fusion.materialise_affines();
        }
        let nodes = fusion.sorted();
        let mut graph = Graph { nodes, affine: Vec::new(), affine_name: String::new(), ..self.clone() };
        // A factor by channel can cost a layer its blocks.
        super::blocks::check_folded(&mut graph).ok()?;
        super::check(&graph).ok()?;
        Some(graph)
    }
}

impl Fusion {
    fn new(cpu: Cpu, nodes: Vec<Node>, output: NodeId) -> Self {
        let (affine, affine_name, uses) = (Vec::new(), String::new(), Vec::new());
        let mut fusion = Self { cpu, nodes, output, affine, affine_name, uses, lost_blocks: Vec::new() };
        fusion.count_uses();
        fusion
    }

    /// Counts uses by nodes that the output depends on; the output itself counts as one more.
    fn count_uses(&mut self) {
        self.uses.clear();
        self.uses.resize(self.nodes.len(), Uses::default());
        self.uses[self.output] = Uses { count: 1, by: NodeId::MAX };
        let mut open = vec![self.output];
        while let Some(node) = open.pop() {
            for &input in &self.nodes[node].inputs {
                if self.uses[input].count == 0 {
                    open.push(input);
                }
                self.uses[input].count += 1;
                if self.uses[input].by != NodeId::MAX {
                    self.uses[input].by = node;
                }
            }
        }
    }

    /// The one node that takes this one's value, if there is just one.
    fn only_consumer(&self, node: NodeId) -> Option<NodeId> {
        let uses = self.uses[node];
        (uses.count == 1 && uses.by != NodeId::MAX).then_some(uses.by)
    }

    /// All nodes that take this one's value; `None` if the output does.
    fn consumers(&self, node: NodeId) -> Option<Vec<NodeId>> {
        let live = |n: &NodeId| self.uses[*n].count > 0 && self.nodes[*n].inputs.contains(&node);
        (self.output != node).then(|| (0..self.nodes.len()).filter(live).collect())
    }

    /// Lets everything that takes `from` take `to` instead.
    fn redirect(&mut self, from: NodeId, to: NodeId) {
        for node in &mut self.nodes {
            node.inputs.iter_mut().filter(|input| **input == from).for_each(|input| *input = to);
        }
        if self.output == from {
            self.output = to;
        }
    }

    /// Exchanges the operations of `first` and of `second`, its only consumer; `between` is the shape of the
    /// value between them afterwards.
    fn exchange(&mut self, first: NodeId, second: NodeId, between: Shape) {
        let (a, b) = (first.min(second), first.max(second));
        let (head, tail) = self.nodes.split_at_mut(b);
        std::mem::swap(&mut head[a].op, &mut tail[0].op);
        std::mem::swap(&mut head[a].name, &mut tail[0].name);
        self.nodes[first].shape = between;
    }

    fn input_shape(&self, node: NodeId) -> Shape {
        self.nodes[self.nodes[node].inputs[0]].shape
    }

    fn affine(&self, node: NodeId) -> Option<&Affine> {
        self.nodes[node].op.downcast_ref()
    }

    fn linear(&self, node: NodeId) -> Option<&Linear> {
        self.nodes[node].op.linear()
    }

    fn rearrange(&self, node: NodeId) -> Option<&Rearrange> {
        self.nodes[node].op.downcast_ref()
    }

    fn drop_identity(&mut self, node: NodeId) -> bool {
        let Node { op, inputs, shape, .. } = &self.nodes[node];
        let Some(&input) = inputs.first() else { return false };
        if op.is_identity(self.nodes[input].shape, *shape) {
            self.redirect(node, input);
            return true;
        }
        let reshapes = |node| self.rearrange(node) == Some(&Rearrange::Reshape);
        let both = reshapes(node) && reshapes(input);
        if both {
            self.nodes[node].inputs = self.nodes[input].inputs.clone();
        }
        both
    }

    /// What `node` makes at each place as a function of another node's value there, over at most `depth` operations: of its own,
    /// and of those that it is made of, so far as one function says it.
    fn functions(&self, node: NodeId, depth: usize) -> Vec<(NodeId, Function)> {
        /// No curve that people use has more parts; what is larger is no curve, but a file that is to take long.
        const MOST: usize = 24;
        let mut found = vec![(node, Function::Value)];
        let Node { op, inputs, .. } = &self.nodes[node];
        let Some(depth) = depth.checked_sub(1) else { return found };
        let mut add = |root: NodeId, of: &[&Function]| {
            let function = op.function(of).filter(|function| function.size() <= MOST);
            // (The first of several ways to one node is as good as any.)
            if let Some(function) = function
                && found.iter().all(|(other, _)| *other != root)
            {
                found.push((root, function));
            }
        };
        match inputs[..] {
            [input] => {
                self.functions(input, depth).iter().for_each(|(root, inner)| add(*root, &[inner]));
            }
            [first, second] => {
                let [first, second] = [first, second].map(|input| self.functions(input, depth));
                for (root, f) in &first {
                    second.iter().filter(|(other, _)| other == root).for_each(|(_, g)| add(*root, &[f, g]));
                }
            }
            _ => {}
        }
        found
    }

    /// A curve, and what is made of it place by place, are one curve of the value that all of it is made of. A curve whose value
    /// others take too stays: it would be computed twice. (Not for a product, which costs more.)
    fn one_curve(&mut self, node: NodeId) -> bool {
        /// Of GELU by tanh, written out, six lie behind each other: two products, a factor, a sum, a factor, and the tanh.
        const DEPTH: usize = 6;
        let Node { op, inputs, .. } = &self.nodes[node];
        let alone = op.function(&vec![&Function::Value; inputs.len()]);
        let Some(alone) = alone else { return false };
        let product = matches!(alone, Function::Product { .. });
        let is_curve = |node: NodeId| {
            let Node { op, inputs, .. } = &self.nodes[node];
            inputs.len() == 1 && op.function(&[&Function::Value]).is_some_and(|f| f.is_curved())
        };
        let once = inputs.iter().any(|&input| is_curve(input) && self.uses[input].count == 1);
        if !(product || once || alone.is_curved()) {
            return false;
        }
        let unchanged = |root: NodeId| alone.is_curved() && inputs[..] == [root];
        let candidates = self.functions(node, DEPTH).into_iter();
        let useful = candidates.filter(|(root, f)| *root != node && f.is_curved() && !unchanged(*root));
        let Some((root, function)) = useful.max_by_key(|(_, function)| function.size()) else { return false };
        self.nodes[node].op = function.into();
        self.nodes[node].inputs = vec![root];
        true
    }

    fn merge_affines(&mut self, node: NodeId) -> bool {
        let Some(second) = self.affine(node) else { return false };
        let before = self.nodes[node].inputs[0];
        let Some(first) = self.affine(before) else { return false };
        // Where others take the first one too, it goes into the layer before it, if it can.
        let source = self.nodes[before].inputs[0];
        let folds = self.uses[source].count == 1 && self.linear(source).is_some();
        if self.uses[before].count > 1 && folds {
            return false;
        }
        let shape = self.nodes[node].shape;
        let mul = first.mul.iter().zip(&second.mul).map(|(a, b)| a * b).collect();
        let add = sum_bias(&scale_bias(&first.add, &second.mul, shape), &second.add, shape);
        self.nodes[node].inputs = self.nodes[before].inputs.clone();
        self.nodes[node].op = Affine { mul, add }.into();
        true
    }

    fn affine_into_linear_before(&mut self, node: NodeId) -> bool {
        let Some(affine) = self.affine(node).cloned() else { return false };
        let before = self.nodes[node].inputs[0];
        if self.uses[before].count != 1 {
            return false;
        }
        let name = self.nodes[node].name.clone();
        let Node { op, shape, name: own, .. } = &mut self.nodes[before];
        let Some(linear) = op.linear_mut() else { return false };
        let depth = linear.weights.len() / linear.spec.out_channels;
        for (weights, mul) in linear.weights.chunks_exact_mut(depth).zip(&affine.mul) {
            weights.iter_mut().for_each(|w| *w *= mul);
        }
        linear.bias = sum_bias(&scale_bias(&linear.bias, &affine.mul, *shape), &affine.add, *shape);
        *own = name;
        self.redirect(node, before);
        true
    }

    fn affine_into_input(&mut self, node: NodeId) -> bool {
        let Some(Affine { mul, add: Bias::PerChannel(add) }) = self.affine(node) else { return false };
        let before = self.nodes[node].inputs[0];
        let at_head = self.nodes[before].inputs.is_empty() && self.uses[before].count == 1;
        if !at_head || !self.affine.is_empty() {
            return false;
        }
        self.affine = mul.iter().copied().zip(add.iter().copied()).collect();
        self.affine_name = self.nodes[node].name.clone();
        self.redirect(node, before);
        true
    }

    fn affine_into_linears_after(&mut self, node: NodeId) -> bool {
        let Some(affine) = self.affine(node).cloned() else { return false };
        let (before, input) = (self.nodes[node].inputs[0], self.nodes[node].shape);
        let Some(consumers) = self.consumers(node) else { return false };
        // All or none: a rest would keep the affine map alive.
        let (mut folded, mut lost) = (Vec::with_capacity(consumers.len()), Vec::new());
        for &consumer in &consumers {
            let Some(mut linear) = self.linear(consumer).cloned() else { return false };
            // (Dense, it costs less than a layer of factors beside blocks: such a layer's hint is larger.)
            if linear.spec.blocks.is_some_and(|blocks| !are_kept(blocks, &affine.mul)) {
                linear.spec.blocks = None;
                lost.push(self.nodes[consumer].name.clone());
            }
            let shape = self.nodes[consumer].shape;
            if !affine.add.is_zero() {
                let Some(add) = linear_of_constant(self.cpu, &linear, &affine.add, input, shape) else {
                    return false;
                };
                linear.bias = sum_bias(&linear.bias, &add, shape);
            }
            let rows = linear.spec.out_channels / linear.spec.groups;
            let per_group = input[0] / linear.spec.groups;
            let area = linear.spec.kernel[0] * linear.spec.kernel[1];
            for (at, taps) in linear.weights.chunks_exact_mut(area).enumerate() {
                let mul = affine.mul[at / per_group / rows * per_group + at % per_group];
                taps.iter_mut().for_each(|w| *w *= mul);
            }
            folded.push(linear);
        }
        for (consumer, linear) in consumers.into_iter().zip(folded) {
            self.nodes[consumer].op = linear.into();
        }
        self.lost_blocks.extend(lost);
        self.redirect(node, before);
        true
    }

    /// `x·m + c` for the whole value, with m > 0, if the node is that.
    fn scaling(&self, node: NodeId) -> Option<(f32, f32)> {
        let Affine { mul, add: Bias::PerChannel(add) } = self.affine(node)? else { return None };
        let same = |values: &[f32]| values.iter().all(|v| v == &values[0]).then_some(values[0]);
        let (mul, add) = (same(mul)?, same(add)?);
        (mul > 0.0 && add.is_finite() && (add / mul).is_finite()).then_some((mul, add))
    }

    /// `(x·m + o)·b` is `m·(x + o/m)·b`. Of maps that add something the product's offsets would tell: these stay layers.
    fn scaling_into_product_after(&mut self, node: NodeId) -> bool {
        let Some((mul, 0.0)) = self.scaling(node) else { return false };
        let Some(&[next]) = self.consumers(node).as_deref() else { return false };
        let before = self.nodes[node].inputs[0];
        let Node { op, inputs, .. } = &mut self.nodes[next];
        let Some((gain, offsets)) = op.gain_mut() else { return false };
        // (A square takes it twice.)
        let taken = inputs.iter().filter(|input| **input == node).count();
        let more = *gain * mul.powi(taken as i32);
        if !more.is_normal() {
            return false;
        }
        *gain = more;
        let own = inputs.iter().zip(offsets).filter(|(input, _)| **input == node);
        own.for_each(|(_, offset)| *offset /= mul);
        inputs.iter_mut().filter(|input| **input == node).for_each(|input| *input = before);
        true
    }

    /// A product that is multiplied by a constant.
    fn scaling_into_product_before(&mut self, node: NodeId) -> bool {
        let Some((mul, 0.0)) = self.scaling(node) else { return false };
        let product = self.nodes[node].inputs[0];
        if self.uses[product].count != 1 {
            return false;
        }
        let Some((gain, _)) = self.nodes[product].op.gain_mut() else { return false };
        let more = *gain * mul;
        if !more.is_normal() {
            return false;
        }
        *gain = more;
        self.redirect(node, product);
        true
    }

    fn rows_past_matrices(&mut self, node: NodeId) -> bool {
        let once = |id: NodeId| self.uses[id].count == 1;
        let Some((last, made)) = scaled_behind(&self.nodes, &once, node) else { return false };
        self.nodes.extend(made);
        self.nodes[node] = last;
        true
    }

    fn affine_before_pool(&mut self, node: NodeId) -> bool {
        let Some(affine) = self.affine(node) else { return false };
        let pool = self.nodes[node].inputs[0];
        if self.uses[pool].count != 1 || !self.nodes[pool].op.commutes_with(affine) {
            return false;
        }
        let linear = self.nodes[pool].inputs[0];
        if self.uses[linear].count != 1 || self.linear(linear).is_none() {
            return false;
        }
        let between = self.nodes[linear].shape;
        self.exchange(pool, node, between);
        true
    }

    /// Moves an affine map towards linear layers that could take it.
    fn affine_onward(&mut self, node: NodeId) -> bool {
        let Some(affine) = self.affine(node) else { return false };
        let before = self.nodes[node].inputs[0];
        if self.uses[before].count == 1 && self.linear(before).is_some() {
            return false;
        }
        let Some(next) = self.only_consumer(node) else { return false };
        let after = self.nodes[next].shape;
        if self.nodes[next].op.commutes_with(affine) {
            self.exchange(node, next, after);
            return true;
        }
        if let Some(rearrange) = self.rearrange(next) {
            let from = self.nodes[node].shape;
            let moved = moved(&ElementMap::of(affine, from), rearrange, from, after).by_channel(after);
            let Some(moved) = moved else { return false };
            self.nodes[node].op = moved.into();
            self.exchange(node, next, after);
            return true;
        }
        self.nodes[next].op.is::<Concat>() && self.affines_past_concat(next)
    }

    /// Moves an affine map past several rearrangements, to where its numbers are by channel again; past a mean over places that
    /// have the same ones, as a transformer's mean over tokens behind its last norm is; and into a layer that sees all elements.
    fn affine_past_moves(&mut self, node: NodeId) -> bool {
        let Some(affine) = self.affine(node) else { return false };
        let before = self.nodes[node].inputs[0];
        if self.uses[before].count == 1 && self.linear(before).is_some() {
            return false;
        }
        let mut spread = ElementMap::of(affine, self.nodes[node].shape);
        let mut last = node;
        while let Some(next) = self.only_consumer(last) {
            let (from, to) = (self.nodes[last].shape, self.nodes[next].shape);
            if let Some(rearrange) = self.rearrange(next) {
                spread = moved(&spread, rearrange, from, to);
                last = next;
                let Some(affine) = spread.by_channel(to) else { continue };
                self.redirect(node, before);
                self.append_after(last, affine.into());
                return true;
            }
            if let Some(behind) = self.nodes[next].op.with_map_behind(from, &spread) {
                self.redirect(node, before);
                self.redirect(next, self.nodes.len() + behind.len() - 1);
                let (mut last, name) = (next, self.nodes[node].name.clone());
                for (op, shape) in behind {
                    self.nodes.push(Node { name: name.clone(), op, inputs: vec![last], shape });
                    last = self.nodes.len() - 1;
                }
                return true;
            }
            if last == node {
                return false;
            }
            let Some(mut linear) = self.linear(next).cloned() else { return false };
            let Linear { spec, .. } = &linear;
            let sees_all = spec.kernel == [from[1], from[2]] && spec.pads == [0; 4] && spec.groups == 1;
            if !sees_all || spec.blocks.is_some() {
                return false;
            }
            let add = Bias::PerElement(spread.add);
            if !add.is_zero() {
                let Some(add) = linear_of_constant(self.cpu, &linear, &add, from, to) else { return false };
                linear.bias = sum_bias(&linear.bias, &add, to);
            }
            for row in linear.weights.chunks_exact_mut(spread.mul.len()) {
                row.iter_mut().zip(&spread.mul).for_each(|(w, mul)| *w *= mul.unwrap_or(1.0));
            }
            self.nodes[next].op = linear.into();
            self.redirect(node, before);
            return true;
        }
        false
    }

    fn affines_past_concat(&mut self, concat: NodeId) -> bool {
        let inputs = self.nodes[concat].inputs.clone();
        let own = |i: NodeId| self.affine(i).filter(|_| self.uses[i].count == 1);
        let channels = self.nodes[concat].shape[0];
        let scaling = Affine { mul: vec![2.0; channels], add: Bias::PerChannel(vec![0.0; channels]) };
        // Whatever takes a factor takes the map, or lets it pass.
        let takes = |&n: &NodeId| self.linear(n).is_some() || self.nodes[n].op.commutes_with(&scaling);
        let welcome = self.consumers(concat).is_some_and(|c| c.iter().all(takes));
        if !welcome && !inputs.iter().all(|&i| own(i).is_some()) {
            return false;
        }
        let by_channel = inputs.iter().all(|&i| own(i).is_none_or(|a| matches!(a.add, Bias::PerChannel(_))));
        let (mut mul, mut add, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for &input in &inputs {
            let shape = self.nodes[input].shape;
            let identity = Affine { mul: vec![1.0; shape[0]], add: Bias::PerChannel(vec![0.0; shape[0]]) };
            let affine = own(input).unwrap_or(&identity);
            mul.extend(&affine.mul);
            match &affine.add {
                Bias::PerChannel(values) if by_channel => add.extend(values),
                other => add.extend(other.spread(shape)),
            }
            sources.push(if own(input).is_some() { self.nodes[input].inputs[0] } else { input });
        }
        let add = if by_channel { Bias::PerChannel(add) } else { Bias::PerElement(add) };
        self.nodes[concat].inputs = sources;
        self.append_after(concat, Affine { mul, add }.into());
        true
    }

    /// Puts an operation that keeps the shape between a node and everything that takes its value.
    fn append_after(&mut self, node: NodeId, op: Op) {
        let new = self.nodes.len();
        self.redirect(node, new);
        let Node { name, shape, .. } = &self.nodes[node];
        let appended = Node { name: name.clone(), op, inputs: vec![node], shape: *shape };
        self.nodes.push(appended);
    }

    fn pad_into_window(&mut self, node: NodeId) -> bool {
        let Some(&Rearrange::Pad { before, after }) = self.rearrange(node) else { return false };
        let source = self.nodes[node].inputs[0];
        if before[0] != 0 || after[0] != 0 {
            return false;
        }
        let more = [before[1], before[2], after[1], after[2]];
        let non_negative = non_negative(&self.nodes, source);
        let input = self.nodes[source].shape;
        let mut changed = false;
        for consumer in self.consumers(node).unwrap_or_default() {
            let shape = self.nodes[consumer].shape;
            let Some(op) = self.nodes[consumer].op.padded(more, non_negative) else { continue };
            // Windows in the padding alone, or pads too wide, are left as they were.
            let fits = op
                .integer(&Known::default())
                .is_some_and(|op| network::output_shape(&op, &[input], shape) == Ok(shape));
            if fits {
                self.nodes[consumer].op = op;
                self.nodes[consumer].inputs = vec![source];
                changed = true;
            }
        }
        changed
    }

    fn drop_repeated_relu(&mut self, node: NodeId) -> bool {
        let Some(&input) = self.nodes[node].inputs.first() else { return false };
        let ceiling = |node: NodeId| self.nodes[node].op.clips_at();
        let (Some(own), Some(earlier)) = (ceiling(node), ceiling(input)) else { return false };
        if own >= earlier {
            self.redirect(node, input);
        } else {
            self.nodes[node].inputs = self.nodes[input].inputs.clone();
        }
        true
    }

    /// ReLUs that are joined and then max-pooled: join first, so that the pooling can go before them.
    fn concat_before_relu(&mut self, node: NodeId) -> bool {
        let Node { op, inputs, .. } = &self.nodes[node];
        let pooled = self.only_consumer(node).is_some_and(|next| self.nodes[next].op.takes_largest());
        if !op.is::<Concat>() || !pooled {
            return false;
        }
        let op = self.nodes[inputs[0]].op.clone();
        let alike = |&i: &NodeId| self.nodes[i].op == op && self.uses[i].count == 1;
        if op.growth() != Growth::Alike || !inputs.iter().all(alike) {
            return false;
        }
        self.nodes[node].inputs = inputs.iter().map(|&i| self.nodes[i].inputs[0]).collect();
        self.append_after(node, op);
        true
    }

    fn pool_before_relu(&mut self, node: NodeId) -> bool {
        if !self.nodes[node].op.takes_largest() {
            return false;
        }
        let relu = self.nodes[node].inputs[0];
        if self.uses[relu].count != 1 || self.nodes[relu].op.growth() == Growth::Unknown {
            return false;
        }
        let between = self.nodes[node].shape;
        self.exchange(relu, node, between);
        true
    }

    /// A 1×1 convolution treats all places alike, so an average may be taken of its inputs instead.
    fn average_before_pointwise(&mut self, node: NodeId) -> bool {
        let Some(&linear) = self.nodes[node].inputs.first() else { return false };
        let Some(Linear { spec, bias, .. }) = self.linear(linear) else { return false };
        let pointwise = spec.kernel == [1, 1] && spec.stride == [1, 1] && spec.pads == [0; 4];
        let keeps_bias = matches!(bias, Bias::PerChannel(_)) && self.nodes[node].op.takes_means();
        let [_, h, w] = self.nodes[node].shape;
        let [channels, height, width] = self.input_shape(linear);
        if !pointwise || !keeps_bias || self.uses[linear].count != 1 || h * w >= height * width {
            return false;
        }
        self.exchange(linear, node, [channels, h, w]);
        true
    }

    /// Two selections in a row are one.
    fn merge_selections(&mut self, node: NodeId) -> bool {
        let picks = |node: &Node| -> Option<[Vec<Option<usize>>; 3]> {
            match node.op.downcast_ref()? {
                Rearrange::Select { axes } => Some(axes.clone()),
                Rearrange::Slice { start, step } => Some(std::array::from_fn(|axis| {
                    (0..node.shape[axis]).map(|i| Some(start[axis] + i * step[axis])).collect()
                })),
                Rearrange::Pad { .. } | Rearrange::Transpose { .. } | Rearrange::Reshape => None,
            }
        };
        let Some(second) = picks(&self.nodes[node]) else { return false };
        let before = self.nodes[node].inputs[0];
        let Some(first) = picks(&self.nodes[before]) else { return false };
        let source = self.nodes[before].inputs[0];
        let axes = std::array::from_fn(|axis| match (&first[axis], &second[axis]) {
            (first, second) if second.is_empty() => first.clone(),
            (first, second) if first.is_empty() => second.clone(),
            (first, second) => second.iter().map(|from| from.and_then(|i| first[i])).collect(),
        });
        self.nodes[node].op = selection(axes, self.nodes[source].shape).into();
        self.nodes[node].inputs = vec![source];
        true
    }

    /// A layer that sees all channels takes them in any order.
    fn order_into_linear(&mut self, node: NodeId) -> bool {
        let Some(Linear { spec, .. }) = self.linear(node) else { return false };
        let before = self.nodes[node].inputs[0];
        let Some(Rearrange::Select { axes: [channels, rows, columns] }) = self.rearrange(before) else {
            return false;
        };
        // Another order of its inputs would break blocks of weights.
        if spec.groups != 1 || spec.blocks.is_some() || !rows.is_empty() || !columns.is_empty() {
            return false;
        }
        let source = self.nodes[before].inputs[0];
        // Where each channel went, if each went somewhere, and to one place.
        let mut to = vec![usize::MAX; self.nodes[source].shape[0]];
        for (at, from) in channels.iter().enumerate() {
            match from.map(|from| std::mem::replace(&mut to[from], at)) {
                Some(usize::MAX) => {}
                _ => return false,
            }
        }
        if to.contains(&usize::MAX) {
            return false;
        }
        let area = spec.kernel[0] * spec.kernel[1];
        if let Some(linear) = self.nodes[node].op.linear_mut() {
            let rows = linear.weights.chunks_exact(to.len() * area);
            linear.weights = rows
                .flat_map(|row| to.iter().flat_map(|&at| row[at * area..][..area].iter().copied()))
                .collect();
        }
        self.nodes[node].inputs = vec![source];
        true
    }

    /// Lets linear layers do what a layer in front of them does to each place, where each of its channels comes of
    /// one or two others: what is left of a leaky ReLU, or of a map by channel.
    fn pointwise_into_linears(&mut self, node: NodeId) -> bool {
        /// A layer over twice the channels costs as much as one more over the channels as they are: no gain for more
        /// consumers.
        const MOST: usize = 2;
        let Some(first) = self.linear(node) else { return false };
        let (spec, source) = (&first.spec, self.nodes[node].inputs[0]);
        let (input, output) = (self.nodes[source].shape, self.nodes[node].shape);
        let from = input[0] / spec.groups;
        let by_place = spec.kernel == [1, 1] && spec.stride == [1, 1] && spec.pads == [0; 4];
        if !by_place || spec.groups != spec.out_channels || from > 2 {
            return false;
        }
        let Some(consumers) = self.consumers(node).filter(|c| c.len() <= MOST) else { return false };
        let mut composed = Vec::with_capacity(consumers.len());
        for &consumer in &consumers {
            let Some(second) = self.linear(consumer) else { return false };
            let shape = self.nodes[consumer].shape;
            if second.spec.blocks.is_some() {
                return false;
            }
            let mut linear = second.clone();
            if !first.bias.is_zero() {
                let Some(add) = linear_of_constant(self.cpu, second, &first.bias, output, shape) else {
                    return false;
                };
                linear.bias = sum_bias(&linear.bias, &add, shape);
            }
            let rows = second.spec.out_channels / second.spec.groups;
            let per_group = output[0] / second.spec.groups;
            let area = second.spec.kernel[0] * second.spec.kernel[1];
            linear.weights = Vec::with_capacity(second.weights.len() * from);
            for (at, taps) in second.weights.chunks_exact(area).enumerate() {
                let channel = at / per_group / rows * per_group + at % per_group;
                for factor in &first.weights[channel * from..][..from] {
                    linear.weights.extend(taps.iter().map(|w| w * factor));
                }
            }
            if linear.weights.len() > limits::MAX_WEIGHTS {
                return false;
            }
            composed.push(linear);
        }
        for (consumer, linear) in consumers.into_iter().zip(composed) {
            self.nodes[consumer].op = linear.into();
            self.nodes[consumer].inputs = vec![source];
        }
        true
    }

    /// Puts several operations in the place of each that no integer operation computes. Says whether there were any.
    fn expand(&mut self) -> bool {
        let mut found = false;
        for node in 0..self.nodes.len() {
            let Some(&source) = self.nodes[node].inputs.first() else { continue };
            if self.uses[node].count == 0 {
                continue;
            }
            let Node { name, op, shape, .. } = self.nodes[node].clone();
            let mut add = |op, inputs, shape| {
                self.nodes.push(Node { name: name.clone(), op, inputs, shape });
                self.nodes.len() - 1
            };
            if let Some((op, inputs)) = op.expanded(source, shape, &mut add) {
                found = true;
                (self.nodes[node].op, self.nodes[node].inputs) = (op, inputs);
            }
        }
        self.count_uses();
        found
    }

    fn materialise_affines(&mut self) {
        for node in &mut self.nodes {
            if let Some(Affine { mul, add }) = node.op.downcast_ref() {
                let layer = Linear::depthwise(node.shape[0], [1, 1], mul.clone());
                node.op = Linear { bias: add.clone(), ..layer }.into();
            }
        }
    }

    /// A convolution over pixels that zeros were put between, as a transposed one is, or that were repeated: of its
    /// outputs, those s apart see pixels alike. So it is a convolution over the pixels as they are, with so many
    /// times the channels, whose outputs are then laid side by side; a network pays for inputs, not for moves.
    fn spread_afterwards(&mut self) {
        /// Weights and biases that all such layers may have together: more than any decoder's.
        const MOST: usize = 1 << 26;
        let mut left = MOST;
        self.count_uses();
        for node in 0..self.nodes.len() {
            let Some(linear) = self.linear(node) else { continue };
            if linear.spec.blocks.is_some() {
                continue;
            }
            let before = self.nodes[node].inputs[0];
            let Some(Rearrange::Select { axes }) = self.rearrange(before) else { continue };
            let source = self.nodes[before].inputs[0];
            let input = self.nodes[source].shape;
            let [channels, rows, columns] = axes;
            let axes = spread(rows, input[1]).zip(spread(columns, input[2])).map(|(h, w)| [h, w]);
            let Some(axes) = axes.filter(|_| channels.is_empty() && self.uses[node].count > 0) else {
                continue;
            };
            let shape = self.nodes[node].shape;
            let Some(wide) = spread_linear(linear, axes, input, shape, &mut left) else { continue };
            let Some([high, broad]) = wide.spec.output_hw(input) else { continue };
            let ([c, h, w], [s, t]) = (shape, axes.map(|a| a.by));
            let name = self.nodes[node].name.clone();
            let mut add = |op, from: NodeId, shape: Shape| {
                self.nodes.push(Node { name: name.clone(), op, inputs: vec![from], shape });
                self.nodes.len() - 1
            };
            let reshape = Op::new(Rearrange::Reshape);
            let turn = |perm| Rearrange::Transpose { perm }.into();
            // Channels run as (output, row, column); then rows go outwards, and from there and from within between
            // the pixels.
            let outputs = add(wide.into(), source, [c * s * t, high, broad]);
            let grouped = add(reshape.clone(), outputs, [c, s, t * high * broad]);
            let rows = add(turn([1, 0, 2]), grouped, [s, c, t * high * broad]);
            let grouped = add(reshape.clone(), rows, [s * c, t, high * broad]);
            let columns = add(turn([0, 2, 1]), grouped, [s * c, high * broad, t]);
            let grouped = add(reshape.clone(), columns, [s, c * high, broad * t]);
            let both = add(turn([1, 0, 2]), grouped, [c * high, s, broad * t]);
            let whole = add(reshape, both, [c, high * s, broad * t]);
            let cut = Rearrange::Slice { start: [0; 3], step: [1; 3] }.into();
            let last = if [h, w] == [high * s, broad * t] { whole } else { add(cut, whole, shape) };
            self.redirect(node, last);
            self.count_uses();
        }
        // Outputs of one channel, or spread along one axis, move less.
        loop {
            let mut changed = false;
            for node in 0..self.nodes.len() {
                changed |= self.uses[node].count > 0 && self.drop_identity(node);
            }
            if !changed {
                return;
            }
            self.count_uses();
        }
    }

    /// Lets each operation be what it is in the end.
    fn settle(&mut self) -> Result<(), ImportError> {
        self.count_uses();
        for node in 0..self.nodes.len() {
            if self.uses[node].count == 0 || self.nodes[node].inputs.is_empty() {
                continue;
            }
            let feeds_weights = || self.feeds_weights(node);
            let settled = self.nodes[node].op.settled(self.input_shape(node), &feeds_weights);
            match settled.map_err(ImportError::TooLarge)? {
                Settled::Stays => continue,
                Settled::Becomes(op) => self.nodes[node].op = op,
                Settled::Before(op) => self.append_after(node, op),
            }
            self.count_uses();
        }
        Ok(())
    }

    fn crop_kernels(&mut self) {
        for node in 0..self.nodes.len() {
            let Some(&input) = self.nodes[node].inputs.first() else { continue };
            let input = self.nodes[input].shape;
            if let Some(linear) = self.nodes[node].op.linear_mut() {
                crop_kernel(linear, input);
            }
        }
    }

    /// Whether a value reaches nothing but linear layers and the output, rearranged at most.
    fn feeds_weights(&self, node: NodeId) -> bool {
        let mut open = vec![node];
        let mut seen = vec![false; self.nodes.len()];
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            for (consumer, Node { op, inputs, .. }) in self.nodes.iter().enumerate() {
                if self.uses[consumer].count == 0 || !inputs.contains(&node) {
                    continue;
                }
                if op.moves() {
                    open.push(consumer);
                } else if op.linear().is_none() {
                    return false;
                }
            }
        }
        true
    }

    /// The nodes that the output depends on, inputs before consumers, renumbered.
    fn sorted(&mut self) -> Vec<Node> {
        const UNSEEN: NodeId = NodeId::MAX;
        let mut place = vec![UNSEEN; self.nodes.len()];
        let mut order: Vec<NodeId> = Vec::new();
        // Depth first; a node is placed when it comes up with all its inputs placed.
        let mut open = vec![self.output];
        while let Some(&node) = open.last() {
            let waiting = self.nodes[node].inputs.iter().rev().filter(|&&i| place[i] == UNSEEN);
            let before = open.len();
            open.extend(waiting);
            if open.len() == before {
                open.pop();
                if place[node] == UNSEEN {
                    place[node] = order.len();
                    order.push(node);
                }
            }
        }
        let renumbered = order.iter().map(|&node| {
            let Node { name, op, inputs, shape } = self.nodes[node].clone();
            Node { name, op, inputs: inputs.into_iter().map(|i| place[i]).collect(), shape }
        });
        renumbered.collect()
    }
}

/// What does behind a rearrangement what `map` does in front of it.
fn moved(map: &ElementMap, by: &Rearrange, from: Shape, to: Shape) -> ElementMap {
    ElementMap { mul: rearrange(by, from, to, &map.mul), add: rearrange(by, from, to, &map.add) }
}
