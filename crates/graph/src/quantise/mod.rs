//! Calibration: from a float graph and sample inputs to the integer network.
//!
//! Values that meet without a linear layer between them share one scale (a *class*): what goes into and comes
//! out of ReLU, pooling and rearrangements, the terms of an addition, the parts of a concatenation. A class's
//! scale S follows from the largest absolute value x seen in it: `S = 2^(n-2) / (x·headroom)`, so that with
//! the usual headroom of 4 everything seen stays below 2^(n-4), and everything up to four times as large below
//! 2^(n-2), which comparisons and extensions rely on. A class with a clip at c (ReLU6: 6) takes the largest
//! `S = 2^j / c` below that instead. A sum over a window stands for its mean with S times the window's size. A product of
//! values with the scales S_a and S_b takes the largest `S = S_a·S_b / 2^f` that its class allows.
//!
//! A linear layer between scales S_in and S_out has the integer weights `round(w·2^f·S_out/S_in)` with the largest
//! shift f for which they fit into `weight_bits`, and its bias at the scale of the products, `2^f·S_out`. Before
//! that, channels of very different sizes are brought closer together ([`Options::equalise`]).

#![deny(clippy::wildcard_enum_match_arm)]

mod equalise;
mod factors;
pub mod layers;
mod narrow;
mod ranges;
mod samples;
mod scales;
mod width;

use std::fmt;

use jaguar_ring::cpu::Cpu;
use thiserror::Error;

pub use ranges::ChannelRanges;
pub use samples::Oddity;
pub use width::{Chosen, CoarseValues, MOST_COARSE, Samples, Trial, Width, fewest_bits, narrowest};

use self::factors::Factors;
use self::scales::{governing, scales_by_node, summed};
use crate::float::{self, Demand, Graph};
use crate::limits::{ACTIVATION_BITS, MAX_BIAS, MAX_EXPONENT, WEIGHT_BITS};
use crate::network::NetworkError;
use crate::network::{
    Bias, Hiding, ImageSpec, InputSpec, Linear, Model, Network, Node, NodeId, Op, OutputSpec, Weights,
    may_guard,
};
use crate::ops::narrowed::narrowed;
use crate::ops::operator::{Excess, Known, Local, Scale, Source, Work};
use crate::ops::product::{most_product_shift, product_shift};
use crate::outputs::Apart;

/// The largest sum of activation bits and shift.
pub const MAX_PRODUCT_BITS: u32 = 44;

/// log2 of a linear layer's modulus: activation bits, guard bits and shift together have no more.
const MODULUS_BITS: u32 = 48;

/// How to quantise.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// n, the bits of an activation: 8 to 24.
    pub activation_bits: u32,
    /// Lines of curves are as near to them as if activations had so many bits; `None`, or no fewer than these, for as near as
    /// activations can tell.
    pub curve_bits: Option<u32>,
    /// The same of a softmax's exponentials; `None` for as many as other curves have. Whatever this says, they are within an 80th of the largest.
    pub exponential_bits: Option<u32>,
    /// By node: how many bits fewer than others its value may have where it is a factor of products and nothing else; none where there is
    /// no number.
    pub spare: Vec<u32>,
    /// Whether what goes into curves, and what these make that is small, may have as many bits fewer too.
    pub narrow: bool,
    /// Significant bits of a weight, for each output channel apart; 2 to 16.
    pub weight_bits: u32,
    /// How many times larger than all seen a value may be and still stay below 2^(n-2); at least 1.
    pub headroom: f64,
    /// The largest shift, 1 to 40; less where n + f would exceed [`MAX_PRODUCT_BITS`], or 48 with the guard bits.
    pub max_shift: u32,
    /// The guard bits and the noise that the model will be given ([`Model::guarded`]): shifts leave room for the guard bits, 0, or 2
    /// to 12.
    pub hiding: Hiding,
    /// Whether to rescale channels between linear layers first, so that small ones keep more bits. The float
    /// function stays the same.
    pub equalise: bool,
    /// How an image becomes the tensors that calibration is given; recorded in the network.
    pub image: ImageSpec,
    /// Names by class, or none; recorded in the network.
    pub labels: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            activation_bits: 16,
            curve_bits: None,
            exponential_bits: None,
            spare: Vec::new(),
            narrow: true,
            weight_bits: 15,
            headroom: 4.0,
            max_shift: 24,
            hiding: Hiding::default(),
            equalise: true,
            image: ImageSpec::default(),
            labels: Vec::new(),
        }
    }
}

impl Options {
    /// [`Known::coarse`] of this operator.
    fn coarse(&self, op: &float::Op) -> u32 {
        let curves = self.curve_bits.unwrap_or(self.activation_bits);
        let bits = if op.is_weight() { self.exponential_bits.unwrap_or(curves) } else { curves };
        self.activation_bits.saturating_sub(bits)
    }
}

/// Why a graph could not be quantised.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum QuantiseError {
    /// An option out of its range.
    #[error("{what} is {found}; allowed is {allowed}")]
    Option {
        /// Which option it is.
        what: &'static str,
        /// The value that it was given.
        found: String,
        /// The values that are allowed, in words.
        allowed: &'static str,
    },
    /// There is no image to calibrate with.
    #[error("calibration needs at least one image")]
    NoImages,
    /// An image of the wrong size.
    #[error("image {index} has {found} values, the network takes {expected}")]
    Image {
        /// Which of the images it is, from 0.
        index: usize,
        /// How many values the image has.
        found: usize,
        /// How many values the network takes.
        expected: usize,
    },
    /// The float network itself does not work on an image.
    #[error("node {0}: its values are not finite")]
    NotFinite(String),
    /// Values many times larger than the clip that they go through.
    #[error(
        "node {node} clips at {ceiling}, but values up to {range} reach it: {bits} activation bits cannot hold both"
    )]
    Clip {
        /// What the graph calls the node that clips.
        node: String,
        /// The real number that it clips at.
        ceiling: f32,
        /// The largest value seen in its class.
        range: f64,
        /// n: the activation bits that were tried.
        bits: u32,
    },
    /// Two clips that would need different scales.
    #[error("nodes {0} and {1} share a scale but clip at bounds that are no power of two apart")]
    ClipConflict(String, String),
    /// A product whose scale follows from its factors', and is fixed otherwise too.
    #[error(
        "node {0} multiplies two values, and its result shares a scale with what is clipped or multiplied elsewhere: no shift \
         by whole bits leads from one scale to the other"
    )]
    ProductConflict(String),
    /// A product that is much larger than its factors' scales allow.
    #[error(
        "node {0} multiplies two values, and its result has no bits left at a scale that a shift by one bit leads to"
    )]
    ProductApart(String),
    /// No scale suits a layer.
    #[error(
        "layer {node}: its weights reach {weight} between values up to {input} and {output}: too much for {bits} weight bits"
    )]
    Weights {
        /// What the graph calls the layer.
        node: String,
        /// The largest absolute weight that the scales ask for.
        weight: f64,
        /// The largest value of its input.
        input: f64,
        /// The largest value of its output.
        output: f64,
        /// Bits that its weights may have.
        bits: u32,
    },
    /// An operation that the importer makes part of others, and that was left over. No integer operation computes it.
    #[error("node {0}: an affine map or a PReLU that was not fused into a layer has no integer counterpart")]
    Unfused(String),
    /// A bias that dwarfs everything else.
    #[error("layer {0}: its bias does not fit")]
    Bias(String),
    /// The result is no valid network.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// What calibration found and chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// One for each node of the network, in its order.
    pub nodes: Vec<NodeReport>,
    /// What may cost accuracy without an error anywhere.
    pub warnings: Vec<Warning>,
}

/// One node's part of a [`Report`].
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// What the ONNX model (or the importer) calls the node.
    pub name: String,
    /// What its operation is called, as [`Op::name`] says.
    pub operation: &'static str,
    /// The largest absolute value seen, as a real number.
    pub range: f64,
    /// The scale S of its value: the integer v stands for v / S.
    pub scale: f64,
    /// How many bits the largest value seen leaves unused of those that [`Network::value_bits`] says.
    pub spare_bits: f64,
    /// How its weights came out; linear nodes only.
    pub linear: Option<LinearReport>,
}

/// A linear layer's part of a [`Report`].
#[derive(Clone, Debug, PartialEq)]
pub struct LinearReport {
    /// The shift f: how many bits the products gain.
    pub shift: u32,
    /// The largest absolute integer weight, its exponent included.
    pub largest_weight: i64,
    /// Channels whose weights are so much smaller than the layer's largest that fewer than four bits are left,
    /// though their values are not small.
    pub thin_channels: usize,
    /// Channels whose weights all became zero though they are not.
    pub lost_channels: usize,
    /// Bits that the result would need if every input had the largest absolute value seen in its tensor, and
    /// the sign of its weight. More than n is usual, and no error.
    pub worst_case_bits: f64,
}

/// What may cost accuracy without an error anywhere.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// A layer with channels of very different sizes.
    ThinChannels {
        /// What the graph calls the layer.
        node: String,
        /// How many channels keep fewer than four bits of weight.
        channels: usize,
        /// How many channels the layer has.
        of: usize,
    },
    /// A scale was lowered so that a layer's weights fit.
    Lowered {
        /// What the graph calls the layer.
        node: String,
        /// How many bits its output lost.
        bits: u32,
    },
    /// A value that is small beside others of its class.
    Small {
        /// What the graph calls the node.
        node: String,
        /// How many bits its largest value has.
        bits: f64,
    },
    /// A curve whose pieces are not fine enough.
    Coarse {
        /// The node.
        node: String,
        /// How far its lines are from it at most, in units of its value's last place.
        units: f64,
    },
    /// A layer that no input reached.
    Dead {
        /// What the graph calls the node.
        node: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::ThinChannels { node, channels, of } => write!(
                f,
                "layer {node}: {channels} of {of} channels keep fewer than 4 bits of weight; more weight bits would help"
            ),
            Warning::Lowered { node, bits } => {
                write!(f, "layer {node}: its output keeps {bits} bits less, so that its weights fit")
            }
            Warning::Small { node, bits } => {
                write!(
                    f,
                    "node {node}: its values have {bits:.1} bits only, since it shares a scale with larger ones"
                )
            }
            Warning::Coarse { node, units } => write!(
                f,
                "node {node}: its lines are up to {units:.1} units from the curve, since values go far beyond where it bends"
            ),
            Warning::Dead { node } => write!(f, "node {node}: all zero on the calibration images"),
        }
    }
}

/// How far an operation may be from what it stands for, in units of the last place, without a warning.
const MOST_UNITS: f64 = 2.0;

/// Disjoint sets of nodes: those of one set share a scale.
struct Classes(Vec<NodeId>);

impl Classes {
    fn find(&mut self, mut node: NodeId) -> NodeId {
        while self.0[node] != node {
            self.0[node] = self.0[self.0[node]];
            node = self.0[node];
        }
        node
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.find(a), self.find(b));
        // The earlier node stands for the class.
        self.0[a.max(b)] = a.min(b);
    }
}

/// Quantises a graph by what it does on sample images (tensors as [`crate::image_input::tensor`] makes them, before
/// the graph's own affine map), run with the instructions that `cpu` has.
///
/// # Errors
/// [`QuantiseError`]: images that do not fit, or a layer for which no scale does; it is named.
pub fn calibrate(
    cpu: Cpu,
    graph: &Graph,
    images: &[Vec<f32>],
    options: &Options,
) -> Result<(Model, Report), QuantiseError> {
    let ranges = measure(cpu, graph, images)?;
    quantise(graph, &ranges, options)
}

/// The largest absolute values over all images.
///
/// # Errors
/// No images, images of the wrong length, values that are not finite.
pub fn measure(cpu: Cpu, graph: &Graph, images: &[Vec<f32>]) -> Result<ChannelRanges, QuantiseError> {
    if images.is_empty() {
        return Err(QuantiseError::NoImages);
    }
    let mut ranges: ChannelRanges = graph.nodes.iter().map(|node| vec![0.0; node.shape[0]]).collect();
    for (index, image) in images.iter().enumerate() {
        widen(cpu, graph, (index, image), &mut ranges)?;
    }
    Ok(ranges)
}

/// Widens ranges by the values on one image, which has this number; gives the network's output.
fn widen(
    cpu: Cpu,
    graph: &Graph,
    (index, image): (usize, &[f32]),
    ranges: &mut ChannelRanges,
) -> Result<Vec<f32>, QuantiseError> {
    let expected = graph.input_shape().iter().product();
    let mut values =
        graph.run(cpu, image).ok_or(QuantiseError::Image { index, found: image.len(), expected })?;
    for ((ranges, values), node) in ranges.iter_mut().zip(&values).zip(&graph.nodes) {
        for (range, plane) in ranges.iter_mut().zip(values.chunks_exact(node.shape[1] * node.shape[2])) {
            // `f32::max` would pass over a NaN.
            let largest = plane.iter().fold(0f32, |m, v| if v.abs() <= m { m } else { v.abs() });
            if !largest.is_finite() {
                return Err(QuantiseError::NotFinite(node.name.clone()));
            }
            *range = range.max(f64::from(largest));
        }
    }
    Ok(values.pop().unwrap_or_default())
}

/// Quantises a graph whose ranges (as [`measure`] gives them) are known.
///
/// # Errors
/// As [`calibrate`].
pub fn quantise(
    graph: &Graph,
    ranges: &ChannelRanges,
    options: &Options,
) -> Result<(Model, Report), QuantiseError> {
    check_options(options)?;
    let (mut graph, mut ranges) = (graph.clone(), ranges.clone());
    if options.equalise {
        equalise::equalise(&mut graph, &mut ranges);
    }
    let by_channel = ranges;
    let ranges: Vec<f64> = by_channel.iter().map(|r| r.iter().copied().fold(0.0, f64::max)).collect();
    let n = options.activation_bits;
    tell(&mut graph, &ranges, n);
    let mut network = skeleton(&graph, options)?;
    let mut warnings = Vec::new();
    let apart = Apart::new(&network);
    let Scales { scales, fewer, narrow } =
        choose_scales(&graph, &network, &apart, &ranges, options, &mut warnings)?;

    let mut weights: Vec<Option<Weights>> = Vec::with_capacity(graph.nodes.len());
    let mut linear_reports = Vec::with_capacity(graph.nodes.len());
    for (id, node) in graph.nodes.iter().enumerate() {
        let own: Vec<f64> = node.inputs.iter().map(|&input| scales[input]).collect();
        let input = node.inputs.first().map(|&input| graph.nodes[input].shape);
        // (Units that are coarser themselves.)
        let coarse = options.coarse(&node.op).saturating_sub(fewer[id]);
        let taken = node.inputs.first().map_or(0, |&input| narrow[input]);
        let known = Known { bits: n, coarse, fewer: taken, input, scales: Some((&own, scales[id])) };
        network.nodes[id].op = integer(node, &known)?;
        let units = node.op.coarseness(&known);
        if units > MOST_UNITS {
            warnings.push(Warning::Coarse { node: node.name.clone(), units });
        }
        let many = node.inputs.first().map_or(1, |&input| summed(&network, input));
        let (quantised, report) = match (node.op.linear(), network.nodes[id].op.linear_mut()) {
            (Some(linear), Some(spec)) => {
                let (input, scale) = (node.inputs[0], scales[id] / scales[node.inputs[0]]);
                let terms = linear.weights.len() / spec.out_channels;
                // (One weight that stands for many values is worth the bits of all of them.)
                let many = if terms == 1 { many } else { 1 };
                let typical = typical_input(&graph, input, &scales, options) * many as f64;
                (spec.shift, spec.max_exponent) = shift(linear, scale, terms, typical, options);
                let quantised = round_weights(linear, scale, scales[id], spec.shift, options)
                    .ok_or_else(|| QuantiseError::Bias(node.name.clone()))?;
                let report = inspect(
                    linear,
                    &quantised,
                    spec.shift,
                    ranges[input] * scales[input],
                    &by_channel[id],
                    scales[id],
                );
                // A few such channels do no harm: often their values hardly vary.
                if report.thin_channels * 20 > spec.out_channels {
                    let (channels, of) = (report.thin_channels, spec.out_channels);
                    warnings.push(Warning::ThinChannels { node: node.name.clone(), channels, of });
                }
                (Some(quantised), Some(report))
            }
            _ => (None, None),
        };
        if let Some(op) = narrowed(&network.nodes[id].op, narrow[id]) {
            network.nodes[id].op = op;
        }
        weights.push(quantised);
        linear_reports.push(report);
    }
    network.input.scale = scales[0];
    let last = scales[scales.len() - 1];
    network.output.scales = match apart.origins() {
        [] => vec![last],
        outputs => outputs.iter().map(|made| made.first().map_or(last, |&origin| scales[origin])).collect(),
    };

    let bits = network.value_bits();
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for ((id, node), linear) in network.nodes.iter().enumerate().zip(linear_reports) {
        let largest = ranges[id] * scales[id];
        // (What has fewer bits as a factor was chosen to have them, and its answers were looked at.)
        if largest == 0.0 {
            warnings.push(Warning::Dead { node: node.name.clone() });
        } else if largest * f64::from(fewer[id] + narrow[id]).exp2() < f64::from(1u32 << (n / 2 - 2))
            && !repeated_addend(&graph, &network, id)
            && !apart.moves(id)
        {
            warnings.push(Warning::Small { node: node.name.clone(), bits: largest.log2() });
        }
        nodes.push(NodeReport {
            name: node.name.clone(),
            operation: node.op.name(),
            range: ranges[id],
            scale: scales[id],
            spare_bits: f64::from(bits[id] - 1) - largest.max(1.0).log2(),
            linear,
        });
    }
    let model = Model { network, weights, scales, leverage: None };
    model.validate()?;
    // (Sums over many places may be too wide with guard bits only.)
    model.network.guarded(options.hiding)?.validate()?;
    Ok((model, Report { nodes, warnings }))
}

/// Tells each operation what calibration saw of its first input, in a network of n = `bits` bits, guard bits not among them. Says whether
/// any makes something else then.
fn tell(graph: &mut Graph, ranges: &[f64], bits: u32) -> bool {
    let told = graph.nodes.iter_mut().map(|node| match node.inputs.first() {
        Some(&input) => node.op.seen(ranges[input], bits),
        None => false,
    });
    told.fold(false, |any, one| any | one)
}

fn check_options(options: &Options) -> Result<(), QuantiseError> {
    let (n, w, f) = (options.activation_bits, options.weight_bits, options.max_shift);
    let check = |ok: bool, what, found: String, allowed| match ok {
        true => Ok(()),
        false => Err(QuantiseError::Option { what, found, allowed }),
    };
    check(ACTIVATION_BITS.contains(&n), "activation_bits", n.to_string(), "8 to 24")?;
    check(WEIGHT_BITS.contains(&w), "weight_bits", w.to_string(), "2 to 16")?;
    check((1..=40).contains(&f), "max_shift", f.to_string(), "1 to 40")?;
    let guard_bits = options.hiding.guard_bits;
    check(may_guard(guard_bits), "guard_bits", guard_bits.to_string(), "0, or 2 to 12")?;
    let headroom = options.headroom;
    check((1.0..=1e3).contains(&headroom), "headroom", headroom.to_string(), "1 to 1000")
}

/// A node's integer operation, as far as it is known.
fn integer(node: &float::Node, known: &Known<'_>) -> Result<Op, QuantiseError> {
    node.op.integer(known).ok_or_else(|| QuantiseError::Unfused(node.name.clone()))
}

/// The network without its numbers.
///
/// # Errors
/// An operation without an integer counterpart.
fn skeleton(graph: &Graph, options: &Options) -> Result<Network, QuantiseError> {
    let nodes = graph.nodes.iter().map(|node| {
        let input = node.inputs.first().map(|&input| graph.nodes[input].shape);
        let op = integer(node, &Known { bits: options.activation_bits, input, ..Known::default() })?;
        Ok(Node { name: node.name.clone(), op, inputs: node.inputs.clone(), shape: node.shape })
    });
    Ok(Network {
        name: graph.name.clone(),
        activation_bits: options.activation_bits,
        guard_bits: 0,
        noise_bits: 0,
        weight_bits: options.weight_bits,
        nodes: nodes.collect::<Result<_, QuantiseError>>()?,
        input: InputSpec {
            scale: 1.0,
            image: options.image.clone(),
            affine: graph.affine.clone(),
            channels_last: graph.channels_last,
            layout_dims: graph.layout_dims.clone(),
            seen: None,
        },
        output: OutputSpec {
            scales: vec![1.0],
            parts: graph.outputs.clone(),
            tail: graph.tail.as_ref().map_or(0, |tail| tail.nodes as u32),
            labels: options.labels.clone(),
        },
    })
}

/// A value that is always zero is given the range of the smallest other one, divided by this.
const DEAD_DIVISOR: f64 = 256.0;

/// By node.
struct Scales {
    /// S.
    scales: Vec<f64>,
    /// How many bits fewer the value has as a [factor](factors).
    fewer: Vec<u32>,
    /// How many bits fewer it has in a [ring that is as much narrower](narrow).
    narrow: Vec<u32>,
}

/// The scale S of each node's value, and how many bits fewer it has than others.
fn choose_scales(
    graph: &Graph,
    network: &Network,
    apart: &Apart,
    ranges: &[f64],
    options: &Options,
    warnings: &mut Vec<Warning>,
) -> Result<Scales, QuantiseError> {
    let n = options.activation_bits;
    let count = network.nodes.len();
    let mut classes = Classes((0..count).collect());
    for (id, node) in network.nodes.iter().enumerate() {
        if node.op.scale() == Scale::Inherited && !apart.moves(id) {
            node.inputs.iter().for_each(|&input| classes.join(id, input));
        }
    }
    for pair in apart.origins().iter().flat_map(|made| made.windows(2)) {
        classes.join(pair[0], pair[1]);
    }
    let class: Vec<NodeId> = (0..count).map(|id| classes.find(id)).collect();
    let mut range = vec![0f64; count];
    for id in 0..count {
        range[class[id]] = range[class[id]].max(ranges[id]);
    }

    // By class, the highest scale that its range and its clips allow.
    let target = f64::from(1u32 << (n - 2)) / options.headroom;
    // What is always zero gets the finest scale: a unit of noise in it, multiplied by the weights behind it, must not
    // count.
    let smallest = range.iter().copied().filter(|&r| r > 0.0).fold(f64::INFINITY, f64::min);
    let dead = if smallest.is_finite() { smallest / DEAD_DIVISOR } else { 1.0 };
    let mut scale: Vec<f64> = range.iter().map(|&r| target / if r > 0.0 { r } else { dead }).collect();
    let mut clip: Vec<Option<(NodeId, f32)>> = vec![None; count];
    for (id, node) in graph.nodes.iter().enumerate() {
        let Demand::Power(ceiling) = node.op.demands() else { continue };
        let class = class[id];
        match clip[class] {
            None => {
                let highest = (f64::from(ceiling) * scale[class]).log2().floor().min(f64::from(n - 3));
                scale[class] = highest.exp2() / f64::from(ceiling);
                clip[class] = Some((id, ceiling));
            }
            Some((other, first)) => {
                let apart = (f64::from(ceiling) / f64::from(first)).log2();
                if apart != apart.round() {
                    return Err(QuantiseError::ClipConflict(
                        network.nodes[other].name.clone(),
                        node.name.clone(),
                    ));
                }
                // Neither bound may leave the range.
                let over = (f64::from(ceiling) * scale[class]).log2().round() - f64::from(n - 3);
                scale[class] *= (-over.max(0.0)).exp2();
            }
        }
    }

    // What clients are told of a scale is no more than an order of magnitude.
    for (id, node) in graph.nodes.iter().enumerate().filter(|(_, node)| node.op.demands() == Demand::Told) {
        for class in node.inputs.iter().chain([&id]).map(|&told| class[told]).filter(|&c| clip[c].is_none()) {
            scale[class] = scale[class].log2().floor().exp2();
        }
    }

    anchor_products(graph, network, &class, &mut scale, &clip)?;
    let bits = [n, options.hiding.guard_bits];
    let factors = Factors { graph, network, class: &class, range: &range, clip: &clip, bits };
    let coarse: Vec<u32> = graph.nodes.iter().map(|node| options.coarse(&node.op)).collect();
    let mut fewer = factors::coarsen(&factors, &mut scale, &options.spare);
    let spare = if options.narrow { &options.spare[..] } else { &[] };
    narrow::small(&factors, &mut scale, spare, &coarse, &mut fewer);
    let narrow = narrow::narrow(&factors, &mut scale, spare, &coarse, &fewer);

    // A layer whose weights would not fit at shift 1 takes a lower output scale, and so does a product that would not be
    // shifted at all; a product that would be shifted too far takes a lower scale of a factor. That raises the shifts before
    // or after it, so it is repeated until nothing changes; scales only fall, so it ends.
    let by_node = |scale: &[f64]| scales_by_node(network, &class, scale);
    let limit = f64::from((1i32 << (options.weight_bits - 1)) - 1);
    let most_offset = f64::from(n - 2).exp2();
    let guard_bits = options.hiding.guard_bits;
    for _ in 0..count * 64 {
        let scales = by_node(&scale);
        let too_large = graph.nodes.iter().enumerate().find_map(|(id, node)| {
            if let Some(linear) = node.op.linear() {
                let largest = largest_weight(linear) * scales[id] / scales[node.inputs[0]];
                let terms = linear.weights.len() / linear.spec.out_channels;
                let excess = (2.0 * largest / limit).log2() - f64::from(most_exponent(terms, options));
                return (excess > 0.0)
                    .then(|| Lower::new(id, class[id], excess.ceil().max(1.0), Some(linear)));
            }
            match node.op.demands() {
                Demand::Shifted { gain, offsets, ring_bits } => {
                    let most_shift = f64::from(most_product_shift(ring_bits, n + guard_bits) - guard_bits);
                    let factors = [0, 1].map(|i| scales[node.inputs[i]]);
                    let over = [0, 1]
                        .map(|i| (f64::from(offsets[i].abs()) * factors[i] / most_offset).log2().ceil());
                    if let Some(i) = over.iter().position(|&over| over > 0.0) {
                        let factor = governing(network, &class, node.inputs[i]);
                        return Some(Lower::new(id, factor, over[i], None));
                    }
                    let shift = product_shift(gain, factors, scales[id]).round();
                    if shift > most_shift {
                        // Bit by bit: what is always zero can spare them, and then the factor with more.
                        let bits = |class| {
                            if range[class] > 0.0 { range[class] * scale[class] } else { f64::INFINITY }
                        };
                        let [a, b] = [0, 1].map(|i| governing(network, &class, node.inputs[i]));
                        let own = class[id];
                        let first = b == own || a != own && bits(a) >= bits(b);
                        return Some(Lower::new(id, if first { a } else { b }, 1.0, None));
                    }
                    (shift < 1.0).then(|| Lower::new(id, class[id], 1.0 - shift, None))
                }
                Demand::Nothing | Demand::Power(_) | Demand::Told => None,
            }
        });
        let Some(Lower { id, class: lowered, bits, linear }) = too_large else { break };
        scale[lowered] *= (-bits).exp2();
        // A value that has no bits left to give is the end of it; but not a factor of what does not count in a sum.
        if lowered == class[id] && range[lowered] * scale[lowered] < 4.0 {
            let node = &graph.nodes[id];
            let Some(linear) = linear else { return Err(QuantiseError::ProductApart(node.name.clone())) };
            return Err(QuantiseError::Weights {
                node: node.name.clone(),
                weight: largest_weight(linear),
                input: ranges[node.inputs[0]],
                output: ranges[id],
                bits: options.weight_bits,
            });
        }
        if linear.is_some() {
            warnings.push(Warning::Lowered { node: graph.nodes[id].name.clone(), bits: bits as u32 });
        }
    }
    for (id, node) in graph.nodes.iter().enumerate() {
        let Demand::Power(ceiling) = node.op.demands() else { continue };
        if f64::from(ceiling) * scale[class[id]] < 1.5 {
            let (node, range) = (graph.nodes[id].name.clone(), range[class[id]]);
            return Err(QuantiseError::Clip { node, ceiling, range, bits: n });
        }
    }
    Ok(Scales { scales: by_node(&scale), fewer, narrow })
}

/// The class whose scale falls by so many bits, for the sake of node `id`.
struct Lower<'a> {
    id: NodeId,
    class: NodeId,
    bits: f64,
    linear: Option<&'a float::Linear>,
}

impl<'a> Lower<'a> {
    const fn new(id: NodeId, class: NodeId, bits: f64, linear: Option<&'a float::Linear>) -> Self {
        Self { id, class, bits, linear }
    }
}

/// Gives each product's class the largest scale below its own that the product can be shifted to; where that is fixed, a
/// factor's class. From then on, scales of classes that multiply or are products change by powers of two only, as those with
/// a clip do.
fn anchor_products(
    graph: &Graph,
    network: &Network,
    class: &[NodeId],
    scale: &mut [f64],
    clip: &[Option<(NodeId, f32)>],
) -> Result<(), QuantiseError> {
    let mut fixed: Vec<bool> = clip.iter().map(Option::is_some).collect();
    for (id, node) in graph.nodes.iter().enumerate() {
        let Demand::Shifted { gain, .. } = node.op.demands() else { continue };
        let scales = scales_by_node(network, class, scale);
        let bits = product_shift(gain, [0, 1].map(|i| scales[node.inputs[i]]), scale[class[id]]);
        let factors = [0, 1].map(|i| governing(network, class, node.inputs[i]));
        if !fixed[class[id]] && !factors.contains(&class[id]) {
            scale[class[id]] *= (bits - bits.ceil().max(1.0)).exp2();
        } else if (bits - bits.round()).abs() > 1e-6 {
            // A factor whose scale is free gives way.
            let free: Vec<NodeId> = factors.into_iter().filter(|&f| f != class[id] && !fixed[f]).collect();
            let Some(&first) = free.first() else {
                return Err(QuantiseError::ProductConflict(node.name.clone()));
            };
            let times = free.iter().filter(|&&f| f == first).count();
            scale[first] *= ((bits.floor() - bits) / times as f64).exp2();
        }
        factors.into_iter().chain([class[id]]).for_each(|c| fixed[c] = true);
    }
    Ok(())
}

/// Whether a value is repeated and then goes nowhere but into sums and differences, as a mean that is taken away from what it is of, or the largest of
/// a softmax: there it may be small. (A layer that makes each value of one, and no larger, may be on the way.)
fn repeated_addend(graph: &Graph, network: &Network, id: NodeId) -> bool {
    let count = |id: NodeId| network.nodes[id].shape.iter().product::<usize>();
    let moved = |id: NodeId| network.nodes[id].op.value().source == Source::Moved;
    let mut origin = id;
    while let (true, &[input]) = (moved(origin), &network.nodes[origin].inputs[..]) {
        origin = input;
    }
    let mut open = vec![id];
    while let Some(at) = open.pop() {
        let takes: Vec<NodeId> =
            (0..network.nodes.len()).filter(|&next| network.nodes[next].inputs.contains(&at)).collect();
        // (Of values of one scale, place by place.)
        let sum = |next: NodeId| {
            let Node { op, inputs, shape, .. } = &network.nodes[next];
            let together = matches!(op.work(), Work::Local(Local { excess: Excess::PassesTogether, .. }));
            together && inputs.iter().all(|&input| network.nodes[input].shape == *shape)
        };
        let passes = |next: NodeId| moved(next) || no_larger(graph, next);
        if takes.is_empty()
            || !takes.iter().all(|&next| passes(next) || sum(next) && count(next) > count(origin))
        {
            return false;
        }
        open.extend(takes.into_iter().filter(|&next| passes(next)));
    }
    true
}

/// Whether it is a layer that makes each of its values of one, by a factor of one at most.
fn no_larger(graph: &Graph, id: NodeId) -> bool {
    let node = &graph.nodes[id];
    node.op.linear().is_some_and(|linear| {
        let by_value = linear.spec.kernel == [1, 1] && linear.spec.groups == node.shape[0];
        by_value && graph.nodes[node.inputs[0]].shape == node.shape && largest_weight(linear) <= 1.0
    })
}

fn largest_weight(linear: &float::Linear) -> f64 {
    f64::from(linear.weights.iter().fold(0f32, |m, w| m.max(w.abs())))
}

/// How large the values of node `id` are, in units, as the root of their mean square: a guess from public figures,
/// the range and the clip, so that the shift that follows from it tells nothing of the weights.
fn typical_input(graph: &Graph, id: NodeId, scales: &[f64], options: &Options) -> f64 {
    let op = &graph.nodes[id].op;
    let highest = f64::from(options.activation_bits - 2).exp2() / options.headroom;
    match op.demands() {
        Demand::Power(ceiling) => f64::from(ceiling) * scales[id] / 2.0,
        Demand::Nothing | Demand::Shifted { .. } | Demand::Told if graph.nodes[id].inputs.is_empty() => {
            highest / 2.0
        }
        Demand::Nothing | Demand::Shifted { .. } | Demand::Told => highest / 8.0,
    }
}

/// The smallest exponent at which weights up to `largest`, in units of the shift, fit into the weight bits.
fn exponent(largest: f64, options: &Options) -> u32 {
    let limit = f64::from((1i32 << (options.weight_bits - 1)) - 1);
    (0..=64).find(|&e| (largest * f64::from(e).exp2().recip()).round() <= limit).unwrap_or(64)
}

/// By how many bits weights may be wider than the weight bits: what the noise of a layer leaves, at the modulus of 2^48
/// ([linear layers](../../../docs/protocols/linear.md)).
fn most_exponent(terms: usize, options: &Options) -> u32 {
    let room =
        f64::from(MODULUS_BITS) - f64::from(options.activation_bits) - 5.0 - (terms as f64).log2() / 2.0;
    // Half a bit of it belongs to what else there is of noise.
    ((room - 0.5 - f64::from(options.weight_bits)).floor().max(0.0) as u32).min(MAX_EXPONENT)
}

/// The shift and the largest exponent of a layer whose weights are to be multiplied by `scale` = S_out/S_in.
///
/// The shift is the least at which rounding the weights of a small channel, over inputs of the `typical` size, costs
/// a quarter of what rounding its outputs does; less where even the largest exponent would not do for the largest
/// channel.
fn shift(linear: &float::Linear, scale: f64, terms: usize, typical: f64, options: &Options) -> (u32, u32) {
    let product_bits = MAX_PRODUCT_BITS.min(MODULUS_BITS - options.hiding.guard_bits);
    let most = options.max_shift.min(product_bits - options.activation_bits);
    let wanted = ((typical * (terms as f64).sqrt()).log2() + 2.0).ceil().max(1.0) as u32;
    let largest = largest_weight(linear) * scale;
    let at = |shift: u32| exponent(largest * f64::from(shift).exp2(), options);
    let most_exponent = most_exponent(terms, options);
    let shift = (1..=wanted.min(most)).rev().find(|&f| at(f) <= most_exponent).unwrap_or(1);
    (shift, at(shift))
}

/// Weights and bias as integers; `None` if the bias is out of range.
fn round_weights(
    linear: &float::Linear,
    scale: f64,
    out_scale: f64,
    shift: u32,
    options: &Options,
) -> Option<Weights> {
    let factor = scale * f64::from(shift).exp2();
    let depth = linear.weights.len() / linear.spec.out_channels;
    let mut weights = Vec::with_capacity(linear.weights.len());
    let mut exponents = Vec::with_capacity(linear.spec.out_channels);
    for row in linear.weights.chunks_exact(depth) {
        let largest = row.iter().fold(0f64, |m, &w| m.max(f64::from(w).abs()));
        let exponent = exponent(largest * factor, options);
        let unit = factor * f64::from(exponent).exp2().recip();
        weights.extend(row.iter().map(|&w| (f64::from(w) * unit).round() as i16));
        exponents.push(exponent as u8);
    }
    let factor = out_scale * f64::from(shift).exp2();
    let round = |values: &[f32]| -> Option<Vec<i64>> {
        let bound = MAX_BIAS as f64 / 2.0;
        let scaled = values.iter().map(|&b| (f64::from(b) * factor).round());
        scaled.map(|b| (b.abs() <= bound).then_some(b as i64)).collect()
    };
    let bias = match &linear.bias {
        float::Bias::PerChannel(b) => Bias::PerChannel(round(b)?),
        float::Bias::PerElement(b) => Bias::PerElement(round(b)?),
    };
    Some(Weights { weights, exponents, bias })
}

fn inspect(
    linear: &float::Linear,
    quantised: &Weights,
    shift: u32,
    largest_input: f64,
    outputs: &[f64],
    scale: f64,
) -> LinearReport {
    /// Output values below this, in units, are rounded so coarsely that coarse weights do not matter.
    const SMALL: f64 = 64.0;
    let Linear { out_channels, .. } = linear.spec;
    let depth = linear.weights.len() / out_channels;
    let (mut thin, mut lost, mut heaviest) = (0, 0, 0f64);
    let rows = linear.weights.chunks_exact(depth).zip(quantised.weights.chunks_exact(depth));
    let mut heaviest_weight = 0;
    for (d, ((float, integer), range)) in rows.zip(outputs).enumerate() {
        let matters = range * scale >= SMALL;
        let largest = integer.iter().map(|w| i64::from(*w).abs() << quantised.exponent(d)).max().unwrap_or(0);
        let empty = float.iter().all(|&w| w == 0.0);
        thin += usize::from(largest < 8 && !empty && matters);
        lost += usize::from(largest == 0 && !empty);
        heaviest_weight = heaviest_weight.max(largest);
        let sum: f64 = integer.iter().map(|w| f64::from(i32::from(*w).abs())).sum();
        heaviest = heaviest.max(sum * f64::from(quantised.exponent(d)).exp2());
    }
    let (Bias::PerChannel(bias) | Bias::PerElement(bias)) = &quantised.bias;
    let bias = bias.iter().map(|b| b.unsigned_abs()).max().unwrap_or(0) as f64;
    let worst = (heaviest * largest_input + bias) / f64::from(shift).exp2();
    LinearReport {
        shift,
        largest_weight: heaviest_weight,
        thin_channels: thin,
        lost_channels: lost,
        worst_case_bits: worst.max(1.0).log2() + 1.0,
    }
}
