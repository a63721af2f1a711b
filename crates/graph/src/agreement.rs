//! How well a quantised model agrees with the float graph that it was made from, over images.

use jaguar_cpu::Cpu;

use crate::float::Graph;
use crate::network::{Model, argmax};
use crate::quantise::Report;
use crate::reference::{self, Draws, ReferenceError};

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

/// The comparison over all images.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// How many images were compared.
    pub images: usize,
    /// For how many both give the same class.
    pub same_class: usize,
    /// The largest difference of a logit, in the model's own units.
    pub max_error: f64,
    /// The mean absolute difference of a logit.
    pub mean_error: f64,
    /// The largest absolute float logit, to judge the errors by.
    pub largest_logit: f64,
    /// [`logit_error`] of the image for which it is largest.
    pub worst_relative_error: f64,
    /// Elements out of the integer network's range, over all images and nodes: must be 0 for a private run to
    /// be right.
    pub overflows: usize,
    /// Elements that use the last bit of the range, which nonlinear layers may need.
    pub tight: usize,
    /// By image, both classes: integer, float.
    pub classes: Vec<(usize, usize)>,
}

impl Agreement {
    /// Of both lists of images together.
    #[must_use]
    pub fn and(mut self, other: &Agreement) -> Agreement {
        let (a, b) = (self.images as f64, other.images as f64);
        self.mean_error = (self.mean_error * a + other.mean_error * b) / (a + b).max(1.0);
        self.images += other.images;
        self.same_class += other.same_class;
        self.max_error = self.max_error.max(other.max_error);
        self.largest_logit = self.largest_logit.max(other.largest_logit);
        self.worst_relative_error = self.worst_relative_error.max(other.worst_relative_error);
        self.overflows += other.overflows;
        self.tight += other.tight;
        self.classes.extend_from_slice(&other.classes);
        self
    }
}

/// Runs both on each image tensor (as [`crate::image_input::tensor`] makes it), the integer network exactly.
///
/// # Errors
/// An image of the wrong length.
pub fn agreement(
    cpu: Cpu,
    graph: &Graph,
    model: &Model,
    images: &[Vec<f32>],
) -> Result<Agreement, ReferenceError> {
    agreement_heard(cpu, graph, model, images, &mut |_| ())
}

/// As [`agreement`]; `heard` is told how many images are done, after each.
///
/// # Errors
/// As [`agreement`].
pub fn agreement_heard(
    cpu: Cpu,
    graph: &Graph,
    model: &Model,
    images: &[Vec<f32>],
    heard: &mut dyn FnMut(usize),
) -> Result<Agreement, ReferenceError> {
    compare(cpu, graph, model, images, None, heard)
}

/// As [`agreement`], but with the integer network as a private run may turn out; every image has chances of its own,
/// from `seed`.
///
/// # Errors
/// As [`agreement`].
pub fn private_agreement(
    cpu: Cpu,
    graph: &Graph,
    model: &Model,
    images: &[Vec<f32>],
    seed: u64,
) -> Result<Agreement, ReferenceError> {
    private_agreement_heard(cpu, graph, model, images, seed, &mut |_| ())
}

/// As [`private_agreement`]; `heard` is told how many images are done, after each.
///
/// # Errors
/// As [`agreement`].
pub fn private_agreement_heard(
    cpu: Cpu,
    graph: &Graph,
    model: &Model,
    images: &[Vec<f32>],
    seed: u64,
    heard: &mut dyn FnMut(usize),
) -> Result<Agreement, ReferenceError> {
    compare(cpu, graph, model, images, Some(seed), heard)
}

fn compare(
    cpu: Cpu,
    graph: &Graph,
    model: &Model,
    images: &[Vec<f32>],
    seed: Option<u64>,
    heard: &mut dyn FnMut(usize),
) -> Result<Agreement, ReferenceError> {
    let network = &model.network;
    let mut result = Agreement {
        images: images.len(),
        same_class: 0,
        max_error: 0.0,
        mean_error: 0.0,
        largest_logit: 0.0,
        worst_relative_error: 0.0,
        overflows: 0,
        tight: 0,
        classes: Vec::with_capacity(images.len()),
    };
    let mut logits = 0usize;
    for (index, image) in images.iter().enumerate() {
        let expected = graph.input_shape().iter().product();
        let wrong = ReferenceError::Input { found: image.len(), expected };
        let float = graph.forward(cpu, image).ok_or(wrong)?;
        let input = network.input.quantise(image, network.activation_bits);
        let run = match seed {
            None => reference::run(cpu, model, &input)?,
            Some(seed) => {
                let draws = Draws {
                    seed: seed.wrapping_add(index as u64),
                    rounding: true,
                    guard_bits: model.network.guard_bits,
                };
                reference::run_drawn(cpu, model, &input, draws)?
            }
        };
        let integer = network.output.logits(run.output());
        for (a, b) in integer.iter().zip(&float) {
            let error = (a - f64::from(*b)).abs();
            result.max_error = result.max_error.max(error);
            result.mean_error += error;
            result.largest_logit = result.largest_logit.max(f64::from(b.abs()));
        }
        let float: Vec<f64> = float.into_iter().map(f64::from).collect();
        result.worst_relative_error = result.worst_relative_error.max(logit_error(&integer, &float));
        logits += float.len();
        let classes = (argmax(&integer), argmax(&float));
        result.same_class += usize::from(classes.0 == classes.1);
        result.classes.push(classes);
        result.overflows += run.total_overflows();
        result.tight += run.tight.iter().sum::<usize>();
        heard(index + 1);
    }
    result.mean_error /= logits.max(1) as f64;
    Ok(result)
}

/// A node whose values reach beyond what calibration saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// The node.
    pub node: usize,
    /// How many values do, over all images.
    pub values: usize,
    /// The largest, as a multiple of the largest that calibration saw. (Private runs are right up to the headroom.)
    pub times: f64,
}

/// Where values of the integer network on these images reach beyond what calibration saw, by more than its rounding: by
/// node, the farthest first. `report` is that of the model's calibration.
///
/// # Errors
/// An image of the wrong length.
pub fn beyond(
    cpu: Cpu,
    model: &Model,
    report: &Report,
    images: &[Vec<f32>],
) -> Result<Vec<Beyond>, ReferenceError> {
    let network = &model.network;
    let unit = f64::from(network.guard_bits).exp2();
    // In integers of the network, with room for the error of a value.
    let bounds: Vec<f64> = report.nodes.iter().map(|node| node.range * node.scale * unit).collect();
    let mut found: Vec<Beyond> =
        (0..network.nodes.len()).map(|node| Beyond { node, values: 0, times: 0.0 }).collect();
    for image in images {
        let run = reference::run(cpu, model, &network.input.quantise(image, network.activation_bits))?;
        for ((found, values), &bound) in found.iter_mut().zip(&run.values).zip(&bounds) {
            let beyond = bound * 1.01 + 2.0 * unit;
            let largest = values.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0) as f64;
            if largest > beyond {
                found.values += values.iter().filter(|v| v.unsigned_abs() as f64 > beyond).count();
                found.times = found.times.max(largest / bound.max(unit));
            }
        }
    }
    found.retain(|beyond| beyond.values > 0);
    found.sort_by(|a, b| b.times.total_cmp(&a.times));
    Ok(found)
}
