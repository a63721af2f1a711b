//! How well a quantised model agrees with the float graph that it was made from, over images.

use jaguar_ring::cpu::Cpu;

use crate::float::Graph;
use crate::network::{Model, argmax};
pub use crate::outputs::logit_error;
use crate::outputs::{Head, Heads, worse};
use crate::quantise::Report;
use crate::reference::{self, Draws, ReferenceError};

/// The comparison of one part of the output over all images: see [`Heads`].
#[derive(Clone, Debug, PartialEq)]
pub struct OutputAgreement {
    /// What it is called.
    pub name: String,
    /// How many values it has.
    pub values: usize,
    /// The largest difference of a value.
    pub max_error: f64,
    /// The mean absolute difference of a value.
    pub mean_error: f64,
    /// The largest absolute float value.
    pub largest: f64,
    /// By image, [`logit_error`]. A single value beside other outputs is judged by the root of its mean square over all images.
    pub errors: Vec<f64>,
}

impl OutputAgreement {
    /// The largest of the images' errors.
    pub fn worst_error(&self) -> f64 {
        self.errors.iter().copied().fold(0.0, worse)
    }

    /// On half of the images or more the error is at least this: the median, and the larger one of two in the middle. A NaN if any is.
    pub fn typical_error(&self) -> f64 {
        if self.errors.iter().any(|error| error.is_nan()) {
            return f64::NAN;
        }
        let mut errors = self.errors.clone();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied().unwrap_or(0.0)
    }
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
    /// [`logit_error`] of the image and the part of the output for which it is largest: each part is judged by its own spread.
    pub worst_relative_error: f64,
    /// By part of the output.
    pub outputs: Vec<OutputAgreement>,
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
    pub(crate) fn and(mut self, other: &Agreement) -> Agreement {
        let (a, b) = (self.images as f64, other.images as f64);
        self.mean_error = (self.mean_error * a + other.mean_error * b) / (a + b).max(1.0);
        for (own, other) in self.outputs.iter_mut().zip(&other.outputs) {
            own.mean_error = (own.mean_error * a + other.mean_error * b) / (a + b).max(1.0);
            own.max_error = own.max_error.max(other.max_error);
            own.largest = own.largest.max(other.largest);
            own.errors.extend_from_slice(&other.errors);
        }
        self.images += other.images;
        self.same_class += other.same_class;
        self.max_error = self.max_error.max(other.max_error);
        self.largest_logit = self.largest_logit.max(other.largest_logit);
        self.worst_relative_error = worse(self.worst_relative_error, other.worst_relative_error);
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
    compare(cpu, model, beside(cpu, graph, images), None, heard)
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
    compare(cpu, model, beside(cpu, graph, images), Some(seed), &mut |_| ())
}

/// As [`private_agreement`], of images with what the float network makes of each; `heard` is told how many are done, after each.
///
/// # Errors
/// As [`agreement`].
pub(crate) fn private_agreement_beside(
    cpu: Cpu,
    model: &Model,
    images: &[[Vec<f32>; 2]],
    seed: u64,
    heard: &mut dyn FnMut(usize),
) -> Result<Agreement, ReferenceError> {
    let images = images.iter().map(|[image, output]| Ok((image.as_slice(), output.clone())));
    compare(cpu, model, images, Some(seed), heard)
}

/// An image and what the float network makes of it.
type Beside<'a> = Result<(&'a [f32], Vec<f32>), ReferenceError>;

fn beside<'a>(
    cpu: Cpu,
    graph: &'a Graph,
    images: &'a [Vec<f32>],
) -> impl ExactSizeIterator<Item = Beside<'a>> {
    images.iter().map(move |image| {
        let expected = graph.input_shape().iter().product();
        let output = graph.forward(cpu, image);
        Ok((image.as_slice(), output.ok_or(ReferenceError::Input { found: image.len(), expected })?))
    })
}

fn compare<'a>(
    cpu: Cpu,
    model: &Model,
    images: impl ExactSizeIterator<Item = Beside<'a>>,
    seed: Option<u64>,
    heard: &mut dyn FnMut(usize),
) -> Result<Agreement, ReferenceError> {
    let network = &model.network;
    let count = images.len();
    let mut result = Agreement {
        images: count,
        same_class: 0,
        max_error: 0.0,
        mean_error: 0.0,
        largest_logit: 0.0,
        worst_relative_error: 0.0,
        outputs: Vec::new(),
        overflows: 0,
        tight: 0,
        classes: Vec::with_capacity(count),
    };
    let heads = Heads::new(network);
    let mut outputs: Vec<Judge<'_>> = heads.all().iter().map(Judge::new).collect();
    let mut logits = 0usize;
    for (index, image) in images.enumerate() {
        let (image, float) = image?;
        let input = network.input.quantise(image, network.activation_bits);
        let run = match seed {
            None => reference::run(cpu, model, &input)?,
            Some(seed) => {
                let draws = Draws { seed: seed.wrapping_add(index as u64), rounding: true };
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
        outputs.iter_mut().for_each(|output| output.add(&integer, &float));
        logits += float.len();
        let classes = (argmax(&integer), argmax(&float));
        result.same_class += usize::from(classes.0 == classes.1);
        result.classes.push(classes);
        result.overflows += run.total_overflows();
        result.tight += run.tight.iter().sum::<usize>();
        heard(index + 1);
    }
    result.mean_error /= logits.max(1) as f64;
    let several = outputs.len() > 1;
    result.outputs = outputs.into_iter().map(|output| output.done(several)).collect();
    let worst = result.outputs.iter().map(OutputAgreement::worst_error);
    result.worst_relative_error = worst.fold(0.0, worse);
    Ok(result)
}

/// One part of the output, image by image.
struct Judge<'a> {
    head: &'a Head,
    found: OutputAgreement,
    /// Of a single value: both networks', by image.
    singles: Vec<[f64; 2]>,
}

impl<'a> Judge<'a> {
    fn new(head: &'a Head) -> Self {
        let (name, values) = (head.name.clone(), head.values());
        let errors = Vec::new();
        let found = OutputAgreement { name, values, max_error: 0.0, mean_error: 0.0, largest: 0.0, errors };
        Self { head, found, singles: Vec::new() }
    }

    fn add(&mut self, integer: &[f64], float: &[f64]) {
        let (got, want) = (self.head.of(integer), self.head.of(float));
        let found = &mut self.found;
        for (a, b) in got.iter().zip(&want) {
            found.max_error = found.max_error.max((a - b).abs());
            found.mean_error += (a - b).abs();
            found.largest = found.largest.max(b.abs());
        }
        found.errors.push(logit_error(&got, &want));
        if let ([got], [want]) = (&got[..], &want[..]) {
            self.singles.push([*got, *want]);
        }
    }

    fn done(mut self, several: bool) -> OutputAgreement {
        let images = self.found.errors.len().max(1);
        self.found.mean_error /= (images * self.found.values.max(1)) as f64;
        // (With one image that is the value itself.)
        if several && self.singles.len() == self.found.errors.len() {
            let square = self.singles.iter().map(|[_, want]| want * want).sum::<f64>() / images as f64;
            let error = |[got, want]: &[f64; 2]| match (got - want).abs() {
                0.0 => 0.0,
                apart => apart / square.sqrt(),
            };
            self.found.errors = self.singles.iter().map(error).collect();
        }
        self.found
    }
}

/// A node whose values reach beyond what calibration saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// The node's number in the network.
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
