//! Shape inference and the checks that a network passes before it is used.
//!
//! A [`Network`] may come from a peer, so nothing here trusts it: every sum and product is checked, every size
//! is bounded before anything is allocated by it, and the first thing that is wrong is named.

use thiserror::Error;

use crate::network::{
    Bias, Linear, Model, Network, Op, OutputPart, Rearrange, Seen, Shape, Weights, Window, elements,
};

/// The most nodes a network may have.
pub const MAX_NODES: usize = 4096;
/// The most values a tensor may have.
pub const MAX_ELEMENTS: usize = 1 << 26;
/// The most values that all nodes together may have: bounds what a whole run allocates.
pub const MAX_TOTAL_ELEMENTS: usize = 1 << 28;
/// The largest kernel, stride, dilation or pad.
pub const MAX_EXTENT: usize = 1 << 12;
/// The most weights a linear layer may have.
pub const MAX_WEIGHTS: usize = 1 << 29;
/// The most multiply-adds a linear layer may take in plaintext.
pub const MAX_MULTIPLY_ADDS: usize = 1 << 38;
/// The most labels, and the longest name or label in bytes.
pub const MAX_LABELS: usize = 1 << 17;
/// The longest name or label in bytes.
pub const MAX_NAME: usize = 4096;
/// The most outputs that a network's output consists of.
pub const MAX_OUTPUTS: usize = 64;
/// The most dimensions that such an output has in its ONNX model.
pub const MAX_RANK: usize = 16;
/// The largest multiplier that makes up for padding in a [`Op::SumPool`].
pub const MAX_POOL_GAIN: u64 = 1 << 16;
/// The largest bias, in absolute value: leaves room to add any sum of products.
pub const MAX_BIAS: i64 = 1 << 60;
/// What [`Network::activation_bits`] may be.
pub const ACTIVATION_BITS: std::ops::RangeInclusive<u32> = 8..=24;
/// What [`Network::weight_bits`] may be.
pub const WEIGHT_BITS: std::ops::RangeInclusive<u32> = 2..=16;
/// The largest [`Linear::max_exponent`].
pub const MAX_EXPONENT: u32 = 12;
/// What [`Linear::shift`] may be.
pub const SHIFTS: std::ops::RangeInclusive<u32> = 1..=40;

/// Why a network or a model is not fit for use.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A number of the whole network is out of its range.
    #[error("{what} is {found}; allowed is {allowed}")]
    Bound {
        /// Which number.
        what: &'static str,
        /// Its value.
        found: String,
        /// The range.
        allowed: String,
    },
    /// A node contradicts itself or its inputs.
    #[error("node {index} ({op}): {source}")]
    Node {
        /// Its index.
        index: usize,
        /// Its operation.
        op: &'static str,
        /// What is wrong.
        source: NodeError,
    },
}

/// What is wrong with one node.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The wrong number of inputs.
    #[error("takes {expected} inputs, has {found}")]
    Arity {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: &'static str,
    },
    /// An input that does not come earlier.
    #[error("input {0} does not come before it")]
    Order(usize),
    /// Inputs whose shapes do not go together.
    #[error("inputs of shapes {0:?} and {1:?} do not go together")]
    Mismatch(Shape, Shape),
    /// The declared shape is not the one that follows from the inputs.
    #[error("declares shape {found:?}, but {expected:?} follows from its inputs")]
    Shape {
        /// Declared.
        found: Shape,
        /// Computed.
        expected: Shape,
    },
    /// A size or parameter out of range.
    #[error("{0} out of range")]
    Range(&'static str),
    /// A window that lies in the padding altogether.
    #[error("a window covers nothing but padding")]
    EmptyWindow,
    /// Weights or biases of the wrong number.
    #[error("has {found} {what}, needs {expected}")]
    Length {
        /// Weights, biases.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Weights where there should be none, or none where there should be some.
    #[error("weights are there exactly for linear nodes")]
    Weights,
}

fn check(ok: bool, what: &'static str) -> Result<(), NodeError> {
    if ok { Ok(()) } else { Err(NodeError::Range(what)) }
}

fn extents(what: &'static str, low: usize, values: &[usize]) -> Result<(), NodeError> {
    check(values.iter().all(|&v| (low..=MAX_EXTENT).contains(&v)), what)
}

fn bounded(shape: Shape) -> Result<Shape, NodeError> {
    let count = elements(shape).ok_or(NodeError::Range("tensor size"))?;
    check((1..=MAX_ELEMENTS).contains(&count), "tensor size")?;
    Ok(shape)
}

/// The shape that `op` makes of inputs of these shapes. [`Rearrange::Reshape`] cannot know its shape, so it
/// takes the declared one; all others ignore `declared`.
///
/// # Errors
/// Wrong arity, shapes that do not go together, parameters out of range.
pub fn output_shape(op: &Op, inputs: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
    let arity = |expected: usize, text| {
        if inputs.len() == expected {
            Ok(())
        } else {
            Err(NodeError::Arity { found: inputs.len(), expected: text })
        }
    };
    match op {
        Op::Input => arity(0, "no")?,
        Op::Add => arity(2, "two")?,
        Op::Concat if (2..=MAX_NODES).contains(&inputs.len()) => {}
        Op::Concat => return Err(NodeError::Arity { found: inputs.len(), expected: "two or more" }),
        _ => arity(1, "one")?,
    }
    bounded(match op {
        Op::Input => declared,
        Op::Relu { .. } => inputs[0],
        Op::Relu6 { log2_six, .. } => {
            check((1..=22).contains(log2_six), "log2_six")?;
            inputs[0]
        }
        Op::Linear(linear) => linear_shape(linear, inputs[0])?,
        Op::MaxPool { window, .. } => pool_shape(window, inputs[0], true)?,
        Op::SumPool { window, count_real_places } => {
            let shape = pool_shape(window, inputs[0], count_real_places.is_some())?;
            check(op.scale_gain() <= MAX_POOL_GAIN, "sum of a window")?;
            if let Some(full) = count_real_places {
                check(*full >= 1, "count_real_places")?;
                let by_axis = |axis: usize| {
                    let mut counts: Vec<u64> = (0..shape[axis + 1])
                        .map(|at| window.real_places(axis, at, inputs[0][axis + 1]) as u64)
                        .collect();
                    counts.sort_unstable();
                    counts.dedup();
                    counts
                };
                let (rows, columns) = (by_axis(0), by_axis(1));
                let divides = |h: &u64, w: &u64| u64::from(*full).is_multiple_of(h * w);
                check(rows.iter().all(|h| columns.iter().all(|w| divides(h, w))), "count_real_places")?;
            }
            shape
        }
        Op::Add if inputs[0] == inputs[1] => inputs[0],
        Op::Add => return Err(NodeError::Mismatch(inputs[0], inputs[1])),
        Op::Concat => {
            let mut shape = inputs[0];
            for other in &inputs[1..] {
                if other[1..] != shape[1..] {
                    return Err(NodeError::Mismatch(inputs[0], *other));
                }
                shape[0] = shape[0].checked_add(other[0]).ok_or(NodeError::Range("channels"))?;
            }
            shape
        }
        Op::Rearrange(rearrange) => rearranged_shape(rearrange, inputs[0], declared)?,
    })
}

fn linear_shape(linear: &Linear, input: Shape) -> Result<Shape, NodeError> {
    extents("kernel", 1, &linear.kernel)?;
    extents("stride", 1, &linear.stride)?;
    extents("dilation", 1, &linear.dilation)?;
    extents("pads", 0, &linear.pads)?;
    check(linear.out_channels >= 1, "channels")?;
    let divides = |channels: usize| linear.groups >= 1 && channels.is_multiple_of(linear.groups);
    check(divides(input[0]) && divides(linear.out_channels), "groups")?;
    let weights = linear.weights_len(input[0]).ok_or(NodeError::Range("number of weights"))?;
    check(weights <= MAX_WEIGHTS, "number of weights")?;
    let [h, w] = linear.output_hw(input).ok_or(NodeError::Range("kernel"))?;
    let work = linear.multiply_adds(input).ok_or(NodeError::Range("number of multiply-adds"))?;
    check(work <= MAX_MULTIPLY_ADDS, "number of multiply-adds")?;
    Ok([linear.out_channels, h, w])
}

fn pool_shape(window: &Window, input: Shape, must_see_something: bool) -> Result<Shape, NodeError> {
    extents("kernel", 1, &window.kernel)?;
    extents("stride", 1, &window.stride)?;
    extents("pads", 0, &window.pads)?;
    let [h, w] = window.output_hw([input[1], input[2]]).ok_or(NodeError::Range("kernel"))?;
    // Before the windows are walked through: the number of them is bounded.
    let shape = bounded([input[0], h, w])?;
    if must_see_something {
        for (axis, outputs) in [(0, h), (1, w)] {
            if (0..outputs).any(|at| window.real_places(axis, at, input[axis + 1]) == 0) {
                return Err(NodeError::EmptyWindow);
            }
        }
    }
    Ok(shape)
}

fn rearranged_shape(rearrange: &Rearrange, input: Shape, declared: Shape) -> Result<Shape, NodeError> {
    let mut shape = input;
    match rearrange {
        Rearrange::Pad { before, after } => {
            for axis in 0..3 {
                let sum = input[axis].checked_add(before[axis]).and_then(|v| v.checked_add(after[axis]));
                shape[axis] = sum.ok_or(NodeError::Range("pads"))?;
            }
        }
        Rearrange::Slice { start, step } => {
            // The end is in the declared shape: index start + (count - 1)·step must exist.
            for axis in 0..3 {
                let last = declared[axis].checked_sub(1).and_then(|v| v.checked_mul(step[axis]));
                let last = last.and_then(|v| v.checked_add(start[axis])).ok_or(NodeError::Range("slice"))?;
                check(step[axis] >= 1 && last < input[axis], "slice")?;
            }
            shape = declared;
        }
        Rearrange::Transpose { perm } => {
            let mut seen = [false; 3];
            for (axis, &from) in perm.iter().enumerate() {
                check(from < 3 && !std::mem::replace(&mut seen[from.min(2)], true), "permutation")?;
                shape[axis] = input[from];
            }
        }
        Rearrange::Select { axes } => {
            for (axis, picks) in axes.iter().enumerate().filter(|(_, picks)| !picks.is_empty()) {
                check(picks.iter().flatten().all(|&from| from < input[axis]), "selection")?;
                shape[axis] = picks.len();
            }
        }
        Rearrange::Reshape => {
            if elements(declared) != elements(input) {
                return Err(NodeError::Mismatch(input, declared));
            }
            shape = declared;
        }
    }
    Ok(shape)
}

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
        bound(ACTIVATION_BITS.contains(&n), "activation_bits", n, "8 to 24")?;
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
        for (what, scale) in
            [("the input's scale", self.input.scale), ("the output's scale", self.output.scale)]
        {
            bound(scale.is_finite() && scale > 0.0, what, scale, "finite and positive")?;
        }

        let mut total = 0usize;
        for (index, node) in self.nodes.iter().enumerate() {
            let wrap = |source| NetworkError::Node { index, op: node.op.name(), source };
            if (index == 0) != matches!(node.op, Op::Input) {
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
            match &node.op {
                Op::Linear(linear) if !SHIFTS.contains(&linear.shift) => {
                    return Err(wrap(NodeError::Range("shift")));
                }
                Op::Linear(linear) if linear.max_exponent > MAX_EXPONENT => {
                    return Err(wrap(NodeError::Range("max_exponent")));
                }
                // A clipping bound outside the values' range could never be reached.
                Op::Relu6 { log2_six, .. } if *log2_six > n - 2 => {
                    return Err(wrap(NodeError::Range("log2_six")));
                }
                // The clip's comparison is of the bits below it.
                Op::Relu6 { log2_six, ignored } if *ignored > 0 && ignored >= log2_six => {
                    return Err(wrap(NodeError::Range("number of ignored bits")));
                }
                // A sign that left out all but two bits would be a coin.
                op if op.ignored().is_some_and(|ignored| ignored > n - 4) => {
                    return Err(wrap(NodeError::Range("number of ignored bits")));
                }
                _ => {}
            }
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
        let counted = parts.iter().try_fold(0usize, |sum, p| sum.checked_add(p.count()?));
        bound(
            parts.is_empty() || counted == Some(outputs),
            "the number of values of all output parts",
            counted.map_or("too large".into(), |c| c.to_string()),
            "as many as the output's",
        )?;
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
        for (what, found) in
            [("the number of weight sets", self.weights.len()), ("the number of scales", self.scales.len())]
        {
            if found != nodes.len() {
                let allowed = format!("{}, as many as nodes", nodes.len());
                return Err(NetworkError::Bound { what, found: found.to_string(), allowed });
            }
        }
        let limit = (1i32 << (self.network.weight_bits - 1)) - 1;
        for (index, node) in nodes.iter().enumerate() {
            let wrap = |source| NetworkError::Node { index, op: node.op.name(), source };
            if !(self.scales[index].is_finite() && self.scales[index] > 0.0) {
                return Err(wrap(NodeError::Range("scale")));
            }
            // Only a linear layer can change the scale; a sum over a window changes its meaning.
            let gain = node.op.scale_gain() as f64;
            let agrees = |&i: &usize| (self.scales[i] * gain / self.scales[index] - 1.0).abs() < 1e-9;
            if !matches!(node.op, Op::Input | Op::Linear(_)) && !node.inputs.iter().all(agrees) {
                return Err(wrap(NodeError::Range("scale beside its inputs' scales")));
            }
            match (&node.op, &self.weights[index]) {
                (Op::Linear(linear), Some(weights)) => {
                    check_weights(linear, nodes[node.inputs[0]].shape, node.shape, weights, limit)
                        .map_err(wrap)?;
                }
                (Op::Linear(_), None) | (_, Some(_)) => return Err(wrap(NodeError::Weights)),
                (_, None) => {}
            }
        }
        Ok(())
    }
}

fn check_weights(
    linear: &Linear,
    input: Shape,
    output: Shape,
    weights: &Weights,
    limit: i32,
) -> Result<(), NodeError> {
    let length = |what, found, expected| {
        if found == expected { Ok(()) } else { Err(NodeError::Length { what, found, expected }) }
    };
    let expected = linear.weights_len(input[0]).ok_or(NodeError::Range("groups"))?;
    length("weights", weights.weights.len(), expected)?;
    check(weights.weights.iter().all(|&w| i32::from(w).abs() <= limit), "a weight")?;
    if !weights.exponents.is_empty() {
        length("exponents", weights.exponents.len(), linear.out_channels)?;
    }
    check(weights.exponents.iter().all(|&e| u32::from(e) <= linear.max_exponent), "an exponent")?;
    let biases = match &weights.bias {
        Bias::PerChannel(b) => (b, linear.out_channels),
        Bias::PerElement(b) => (b, output.iter().product()),
    };
    length("biases", biases.0.len(), biases.1)?;
    check(biases.0.iter().all(|b| b.unsigned_abs() <= MAX_BIAS.unsigned_abs()), "a bias")
}
