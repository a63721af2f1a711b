//! Layer by layer, how far the integer network's values are from the float network's, over images.
//!
//! Calibration may rescale channels ([`Options::equalise`](super::Options)). So the float network that is compared here is the rescaled
//! one, which computes the same function and has the same node numbers.

use jaguar_ring::cpu::Cpu;

use super::equalise::equalise;
use super::{ChannelRanges, QuantiseError, measure, tell};
use crate::float::{Demand, Graph, Op};
use crate::network::Model;
use crate::ops::operator::Sign;
use crate::outputs::{Apart, Heads};
use crate::reference;

/// Bars of a histogram: an odd number, so that one has zero in its middle.
pub const BARS: usize = 41;

/// The rescaled network rounds otherwise than the one that ranges were measured on: by less than this part of them.
const ROUNDING: f64 = 1e-5;

/// One node's values over all images.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerStatistics {
    /// The largest absolute float value on the calibration images: the histogram reaches from minus this to this.
    pub range: f64,
    /// How many values were compared.
    pub values: u64,
    /// Float values by size, in [`BARS`] equal bars over `-range..=range`; what lies beyond counts in the outermost ones.
    pub histogram: [u64; BARS],
    /// Root of the mean square of the difference, in the float network's units.
    pub rms_error: f64,
    /// Root of the mean square of the float values.
    pub rms_value: f64,
    /// The largest absolute difference from the float value.
    pub largest_error: f64,
    /// Float values beyond `range`: of images that had no part in calibration.
    pub beyond: u64,
    /// Integer values that leave their range: a private run goes wrong there.
    pub overflows: u64,
    /// Values that an activation clips: zeros of a ReLU, zeros and ceilings of a ReLU6. `None` for other nodes.
    pub clipped: Option<Clipped>,
}

/// What an activation makes of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clipped {
    /// How many values it makes zero.
    pub low: u64,
    /// Those that become the ceiling.
    pub high: u64,
}

/// One image's outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The float network's logits.
    pub float: Vec<f64>,
    /// The integer network's, rounded to nearest.
    pub integer: Vec<f64>,
    /// How far these are from each other: of the output's parts, each judged by its own spread, the largest error
    /// ([`Heads::worst_error`]).
    pub error: f64,
    /// Values of any node that leave their range.
    pub overflows: u64,
}

/// Runs the float network that `model` was made from by the ranges of the `calibration` images, and the integer network, on
/// those and the `others`, tensors as [`crate::image_input::tensor`] makes them. Returns one [`LayerStatistics`] a node and one
/// [`Image`] an image. `heard` is told how many images are done, after each.
///
/// # Errors
/// No calibration images, images of the wrong length, values that are not finite.
pub fn compare(
    cpu: Cpu,
    graph: &Graph,
    model: &Model,
    [calibration, others]: [&[Vec<f32>]; 2],
    heard: &mut dyn FnMut(usize),
) -> Result<(Vec<LayerStatistics>, Vec<Image>), QuantiseError> {
    let mut graph = graph.clone();
    let mut ranges = measure(cpu, &graph, calibration)?;
    equalise(&mut graph, &mut ranges);
    let largest = |ranges: &Vec<f64>| ranges.iter().copied().fold(0.0, f64::max);
    let of_nodes = |ranges: &ChannelRanges| ranges.iter().map(largest).collect::<Vec<f64>>();
    if tell(&mut graph, &of_nodes(&ranges), model.network.activation_bits - model.network.guard_bits) {
        ranges = measure(cpu, &graph, calibration)?;
    }
    let ranges = of_nodes(&ranges);
    let mut layers: Vec<LayerStatistics> =
        graph.nodes.iter().zip(&ranges).map(|(node, &range)| LayerStatistics::new(&node.op, range)).collect();
    let (heads, apart) = (Heads::new(&model.network), Apart::new(&model.network));
    let mut images = Vec::with_capacity(calibration.len() + others.len());
    for (index, image) in calibration.iter().chain(others).enumerate() {
        let wrong = || QuantiseError::Image {
            index,
            found: image.len(),
            expected: graph.input_shape().iter().product(),
        };
        let float = graph.run(cpu, image).ok_or_else(wrong)?;
        let input = model.network.input.quantise(image, model.network.activation_bits);
        let run = reference::run(cpu, model, &input).map_err(|_| wrong())?;
        for (id, layer) in layers.iter_mut().enumerate() {
            let ceiling = match graph.nodes[id].op.demands() {
                Demand::Power(ceiling) => f64::from(ceiling),
                Demand::Nothing | Demand::Shifted { .. } | Demand::Told => f64::INFINITY,
            };
            let scale = |place: usize| apart.scale(&model.scales, id, place);
            layer.add(&float[id], &run.values[id], scale, ceiling);
            layer.overflows += run.overflows[id] as u64;
        }
        let integer = model.network.output.logits(run.output());
        let float: Vec<f64> = float.last().into_iter().flatten().map(|&v| f64::from(v)).collect();
        let overflows = run.total_overflows() as u64;
        images.push(Image { error: heads.worst_error(&integer, &float), float, integer, overflows });
        heard(index + 1);
    }
    for layer in &mut layers {
        let values = layer.values.max(1) as f64;
        layer.rms_error = (layer.rms_error / values).sqrt();
        layer.rms_value = (layer.rms_value / values).sqrt();
    }
    Ok((layers, images))
}

impl LayerStatistics {
    fn new(op: &Op, range: f64) -> Self {
        let clips = op.sign() == Sign::NonNegative;
        Self {
            range,
            values: 0,
            histogram: [0; BARS],
            rms_error: 0.0,
            rms_value: 0.0,
            largest_error: 0.0,
            beyond: 0,
            overflows: 0,
            clipped: clips.then(Clipped::default),
        }
    }

    /// Adds one image's values; the roots of mean squares are sums of squares until all are there.
    fn add(&mut self, float: &[f32], integer: &[i64], scale: impl Fn(usize) -> f64, ceiling: f64) {
        let width = 2.0 * self.range / BARS as f64;
        for (place, (&float, &integer)) in float.iter().zip(integer).enumerate() {
            let float = f64::from(float);
            let error = (float - integer as f64 / scale(place)).abs();
            self.values += 1;
            self.rms_error += error * error;
            self.rms_value += float * float;
            self.largest_error = self.largest_error.max(error);
            self.beyond += u64::from(float.abs() > self.range * (1.0 + ROUNDING));
            // (A cast from floating point saturates; with a range of zero all is in the middle.)
            let bar = if width > 0.0 { ((float + self.range) / width) as usize } else { BARS / 2 };
            self.histogram[bar.min(BARS - 1)] += 1;
            if let Some(clipped) = &mut self.clipped {
                clipped.low += u64::from(float <= 0.0);
                clipped.high += u64::from(float >= ceiling);
            }
        }
    }

    /// The error beside the values: root of the mean square over root of the mean square. Zero where there is no error.
    pub fn relative_error(&self) -> f64 {
        if self.rms_error == 0.0 { 0.0 } else { self.rms_error / self.rms_value }
    }
}
