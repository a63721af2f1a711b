//! How well a quantised model agrees with the float graph that it was made from, over images.

use crate::float::Graph;
use crate::network::{Model, argmax};
use crate::reference::{self, ReferenceError};

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
    /// Elements out of the integer network's range, over all images and nodes: must be 0 for a private run to
    /// be right.
    pub overflows: usize,
    /// Elements that use the last bit of the range, which nonlinear layers may need.
    pub tight: usize,
    /// By image, both classes: integer, float.
    pub classes: Vec<(usize, usize)>,
}

/// Runs both on each image tensor (as [`crate::image_input::tensor`] makes it).
///
/// # Errors
/// An image of the wrong length.
pub fn agreement(graph: &Graph, model: &Model, images: &[Vec<f32>]) -> Result<Agreement, ReferenceError> {
    let network = &model.network;
    let mut result = Agreement {
        images: images.len(),
        same_class: 0,
        max_error: 0.0,
        mean_error: 0.0,
        largest_logit: 0.0,
        overflows: 0,
        tight: 0,
        classes: Vec::with_capacity(images.len()),
    };
    let mut logits = 0usize;
    for image in images {
        let expected = graph.input_shape().iter().product();
        let wrong = ReferenceError::Input { found: image.len(), expected };
        let float = graph.forward(image).ok_or(wrong)?;
        let run = reference::run(model, &network.input.quantise(image, network.activation_bits))?;
        let integer = network.output.logits(run.output());
        for (a, b) in integer.iter().zip(&float) {
            let error = (a - f64::from(*b)).abs();
            result.max_error = result.max_error.max(error);
            result.mean_error += error;
            result.largest_logit = result.largest_logit.max(f64::from(b.abs()));
        }
        logits += float.len();
        let classes = (argmax(&integer), argmax(&float));
        result.same_class += usize::from(classes.0 == classes.1);
        result.classes.push(classes);
        result.overflows += run.total_overflows();
        result.tight += run.tight.iter().sum::<usize>();
    }
    result.mean_error /= logits.max(1) as f64;
    Ok(result)
}
