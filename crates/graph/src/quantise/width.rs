//! The fewest activation bits that keep a bound: `Chosen <- narrowest(graph, images, options, widths, bound)`.
//!
//! Every bit less makes each comparison a bit shorter and every ring of shares a bit narrower, and doubles the rounding error of each
//! linear layer. Narrow widths are tried first. A width is good if on every image the imitated private run, rounding by chance
//! included, finds the class of the float network, leaves no range, and its logits differ from the float ones by at most `bound`
//! relative to their spread ([`crate::agreement::logit_error`]).

use std::ops::RangeInclusive;

use super::{Options, QuantiseError, Report, measure, quantise};
use crate::agreement::{Agreement, private_agreement};
use crate::float::Graph;
use crate::network::Model;

/// The model at the width that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The model.
    pub model: Model,
    /// How its scales came out.
    pub report: Report,
    /// How an imitated private run compares with the float network.
    pub agreement: Agreement,
    /// Whether the bound is kept. If no width keeps it, the widest is chosen.
    pub kept: bool,
}

/// Quantises with the fewest activation bits among `widths` that keep `bound`; other options are as given. `tried` hears of every
/// width, and how it did if there are scales for it.
///
/// # Errors
/// As [`super::calibrate`], of the widest width where no other has scales; a clip, for example, may need more bits than the narrow
/// ones.
pub fn narrowest(
    graph: &Graph,
    images: &[Vec<f32>],
    options: &Options,
    widths: RangeInclusive<u32>,
    bound: f64,
    tried: &mut dyn FnMut(u32, Option<&Agreement>),
) -> Result<Chosen, QuantiseError> {
    let ranges = measure(graph, images)?;
    let (mut widest, mut error) = (None, None);
    for activation_bits in widths {
        let (model, report) = match quantise(graph, &ranges, &Options { activation_bits, ..options.clone() })
        {
            Ok(made) => made,
            Err(e) => {
                tried(activation_bits, None);
                error = Some(e);
                continue;
            }
        };
        // `measure` has run the graph on these images.
        let agreement = private_agreement(graph, &model, images, SEED).expect("the images fit");
        tried(activation_bits, Some(&agreement));
        let kept = agreement.overflows == 0
            && agreement.same_class == images.len()
            && agreement.worst_relative_error <= bound;
        let chosen = Chosen { model, report, agreement, kept };
        if kept {
            return Ok(chosen);
        }
        widest = Some(chosen);
    }
    widest.ok_or_else(|| {
        error.unwrap_or(QuantiseError::Option {
            what: "widths of activations",
            found: "none".into(),
            allowed: "one or more",
        })
    })
}

/// Any will do; a fixed one makes the choice reproducible.
const SEED: u64 = 1;
