//! Differences inside what is taken apart: of ONNX's own, one side changes its sign and a [sum](crate::ops::add) is left, for which there are more rules.

use super::Difference;
use crate::import::build::{Activation, Build, Builder, Call, Reject};
use crate::import::moves::together;

pub(crate) const ONNX: &[(&str, Build)] = &[];

/// `a − b`, of which the smaller is repeated.
pub(crate) fn less(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
) -> Result<Activation, Reject> {
    let ([left, right], shape, view) = together(builder, &call.name, a, b)?;
    Ok(Activation::new(builder.push(&call.name, Difference, vec![left, right], shape)?, view))
}
