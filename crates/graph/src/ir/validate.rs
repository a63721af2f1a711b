//! The checks that a network passes before it is used.
//!
//! A [`Network`] may come from a peer, so nothing here trusts it: every sum and product is checked, every size
//! is bounded before anything is allocated by it, and the first thing that is wrong is named.

use crate::ir::error::{NetworkError, NodeError};
use crate::ir::limits::{
    ACTIVATION_BITS, MAX_LABELS, MAX_NAME, MAX_NODES, MAX_NOISE_BITS, MAX_OUTPUTS, MAX_RANK,
    MAX_TOTAL_ELEMENTS, NOISE_MARGIN, WEIGHT_BITS, may_guard,
};
use crate::ir::network::{Model, Network, OutputPart, Seen, Work};
use crate::ops::operator::Scale;
use crate::ops::output_shape;
use crate::outputs::Apart;

impl Network {
    /// Checks a network that came from elsewhere: indices in order, shapes as they follow from the operations,
    /// all sizes bounded. After this, a run allocates no more than `MAX_TOTAL_ELEMENTS` values.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), NetworkError> {
        fn bound(
            ok: bool,
            what: &'static str,
            found: impl ToString,
            allowed: &str,
        ) -> Result<(), NetworkError> {
            let error = || NetworkError::Bound { what, found: found.to_string(), allowed: allowed.into() };
            if ok { Ok(()) } else { Err(error()) }
        }
        let n = self.activation_bits;
        let g = self.guard_bits;
        bound(may_guard(g), "guard_bits", g, "0, or 2 to 12")?;
        let kept = n.saturating_sub(g);
        bound(ACTIVATION_BITS.contains(&kept), "activation_bits without guard bits", kept, "8 to 24")?;
        let b = self.noise_bits;
        bound(
            b <= MAX_NOISE_BITS && (b == 0 || g > 0),
            "noise_bits",
            b,
            "up to 20, and 0 without guard bits",
        )?;
        bound(
            b == 0 || b + NOISE_MARGIN <= n,
            "noise_bits",
            b,
            "4 bits below an activation's, guard bits included",
        )?;
        bound(WEIGHT_BITS.contains(&self.weight_bits), "weight_bits", self.weight_bits, "2 to 16")?;
        bound(
            (2..=MAX_NODES).contains(&self.nodes.len()),
            "the number of nodes",
            self.nodes.len(),
            "2 to 4096",
        )?;
        bound(self.name.len() <= MAX_NAME, "the name's length", self.name.len(), "up to 4096")?;
        let labels = &self.output.labels;
        bound(labels.len() <= MAX_LABELS, "the number of labels", labels.len(), "up to 131072")?;
        bound(labels.iter().all(|l| l.len() <= MAX_NAME), "a label's length", "more", "up to 4096")?;
        let outputs = self.output.scales.iter().map(|&scale| ("an output's scale", scale));
        for (what, scale) in [("the input's scale", self.input.scale)].into_iter().chain(outputs) {
            bound(scale.is_finite() && scale > 0.0, what, scale, "finite and positive")?;
        }

        let mut total = 0usize;
        for (index, node) in self.nodes.iter().enumerate() {
            let wrap = |source| NetworkError::Node { index, op: node.op.name(), source };
            if (index == 0) != matches!(node.op.work(), Work::Input) {
                return Err(wrap(NodeError::Range("position")));
            }
            if node.name.len() > MAX_NAME {
                return Err(wrap(NodeError::Range("name's length")));
            }
            let mut shapes = Vec::with_capacity(node.inputs.len().min(MAX_NODES));
            for &input in &node.inputs {
                if input >= index {
                    return Err(wrap(NodeError::Order(input)));
                }
                if shapes.len() == MAX_NODES {
                    return Err(wrap(NodeError::Range("number of inputs")));
                }
                shapes.push(self.nodes[input].shape);
            }
            let expected = output_shape(&node.op, &shapes, node.shape).map_err(wrap)?;
            if expected != node.shape {
                return Err(wrap(NodeError::Shape { found: node.shape, expected }));
            }
            node.op.check(n).map_err(wrap)?;
            total += expected.iter().product::<usize>();
            bound(total <= MAX_TOTAL_ELEMENTS, "the number of all values", total, "up to 2^28")?;
        }
        let widest = self.value_bits().into_iter().max().unwrap_or(0);
        bound(widest <= 40, "the width of the widest value in bits", widest, "up to 40")?;

        let channels = self.nodes[0].shape[0];
        let affine = &self.input.affine;
        bound(
            affine.is_empty() || affine.len() == channels,
            "the length of affine",
            affine.len(),
            "none or one a channel",
        )?;
        bound(affine.iter().all(|(m, a)| m.is_finite() && a.is_finite()), "affine", "not finite", "finite")?;
        let sound = |s: &Seen| s.lowest.is_finite() && s.highest.is_finite() && s.lowest <= s.highest;
        bound(self.input.seen.as_ref().is_none_or(sound), "the range of the input", "not one", "a range")?;
        let image = &self.input.image;
        for (what, values) in [("the length of mean", &image.mean), ("the length of factor", &image.factor)] {
            bound(
                values.is_empty() || values.len() == channels,
                what,
                values.len(),
                "none or one a channel",
            )?;
            bound(values.iter().all(|v| v.is_finite()), what, "not finite", "finite")?;
        }
        let (dims, [c, h, w]) = (&self.input.layout_dims, self.nodes[0].shape);
        let fits = match (dims.as_slice(), self.input.channels_last) {
            ([], _) => true,
            (dims, true) => dims == [h, w, c],
            // Sizes of one at the end may be left out.
            (dims, false) => {
                dims.len() <= 3 && (0..3).all(|i| dims.get(i).copied().unwrap_or(1) == [c, h, w][i])
            }
        };
        bound(
            fits,
            "a size among the input's own dimensions",
            format!("{dims:?}"),
            "as the input's shape says",
        )?;
        let outputs: usize = self.nodes[self.nodes.len() - 1].shape.iter().product();
        let parts = &self.output.parts;
        bound(parts.len() <= MAX_OUTPUTS, "the number of output parts", parts.len(), "up to 64")?;
        let short = |p: &OutputPart| p.name.len() <= MAX_NAME && p.dims.len() <= MAX_RANK;
        bound(parts.iter().all(short), "the name or rank of an output part", "more", "up to 4096 and 16")?;
        let suits = |p: &OutputPart| p.count().is_none_or(|count| p.finish.suits(count));
        bound(parts.iter().all(suits), "a softmax behind an output", "uneven", "a divisor of its values")?;
        let counted = parts.iter().try_fold(0usize, |sum, p| sum.checked_add(p.count()?));
        bound(
            parts.is_empty() || counted == Some(outputs),
            "the number of values of all output parts",
            counted.map_or("too large".into(), |c| c.to_string()),
            "as many as the output's",
        )?;
        let scales = self.output.scales.len();
        bound(scales == parts.len().max(1), "the number of output scales", scales, "one a part")?;
        bound(
            labels.is_empty() || labels.len() == outputs,
            "the number of labels",
            labels.len(),
            "none or one a class",
        )
    }
}

impl Model {
    /// [`Network::validate`], and that every linear node has weights of the right number and range, and scales
    /// are finite and positive.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), NetworkError> {
        self.network.validate()?;
        let nodes = &self.network.nodes;
        if let Some(leverage) = self.leverage.filter(|leverage| !(leverage.is_finite() && *leverage >= 0.0)) {
            let (found, allowed) = (leverage.to_string(), "finite and not negative".into());
            return Err(NetworkError::Bound { what: "the leverage", found, allowed });
        }
        for (what, found) in
            [("the number of weight sets", self.weights.len()), ("the number of scales", self.scales.len())]
        {
            if found != nodes.len() {
                let allowed = format!("{}, as many as nodes", nodes.len());
                return Err(NetworkError::Bound { what, found: found.to_string(), allowed });
            }
        }
        let apart = Apart::new(&self.network);
        let same = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let limit = (1i32 << (self.network.weight_bits - 1)) - 1;
        for (index, node) in nodes.iter().enumerate() {
            let wrap = |source| NetworkError::Node { index, op: node.op.name(), source };
            if !(self.scales[index].is_finite() && self.scales[index] > 0.0) {
                return Err(wrap(NodeError::Range("scale")));
            }
            // Only a linear layer can change the scale; a sum over a window changes its meaning.
            let gain = node.op.scale_gain() as f64;
            let agrees = |&i: &usize| same(self.scales[i] * gain, self.scales[index]);
            if node.op.scale() != Scale::Own && !apart.moves(index) && !node.inputs.iter().all(agrees) {
                return Err(wrap(NodeError::Range("scale beside its inputs' scales")));
            }
            let input = node.inputs.first().map(|&i| nodes[i].shape);
            let weights = self.weights[index].as_ref();
            node.op.check_weights(input, node.shape, weights, limit).map_err(wrap)?;
        }
        for (scale, origins) in self.network.output.scales.iter().zip(apart.origins()) {
            let own = |&origin: &usize| same(self.scales[origin], *scale);
            if !origins.iter().all(own) {
                let (found, allowed) = (scale.to_string(), "that of the values it is made of".into());
                return Err(NetworkError::Bound { what: "an output's scale", found, allowed });
            }
        }
        Ok(())
    }
}
