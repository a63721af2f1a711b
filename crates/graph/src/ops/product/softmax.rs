//! Softmax inside a network, as operations that there are: the largest value is a max-pool, e^x a curve, the sum a mean and a layer of
//! few values, its inverse a [power](crate::float::Power) in bands, and the scaling a product.
//!
//! ```text
//! t = max(x) − x,   y = e^(−t) · (Σ e^(−t))^(−1)
//! ```
//!
//! t is nowhere below zero, so the sum is at least 1; e^(−t) is a curve in bands, as powers are, for it bends most near zero. Of two
//! values a softmax is the sigmoid of their difference. At the model's end the client does it.

use super::onnx::product;
use crate::float::{Curve, Function, MaxPool, Power, Primitive, Steep};
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value};
use crate::import::finish;
use crate::import::moves::select;
use crate::import::tensor::wrap;
use crate::import::windows::reduced;
use crate::ops::add::onnx::{minus, plus};
use crate::ops::curve::onnx::NORM_BANDS;
use crate::ops::linear::affine::few;
use crate::ops::sum_pool::onnx::means;

pub(crate) const ONNX: &[(&str, Build)] = &[("LogSoftmax", log_softmax), ("Softmax", softmax)];

/// The dimensions that it runs over, and, where these are not all of the value, over how many values and how far these lie apart.
fn dims_of(call: &Call<'_>, x: &Activation) -> Result<(Vec<usize>, Option<[usize; 2]>), Reject> {
    let rank = x.view.rank();
    let old_rules = call.opset < 13;
    let axis = wrap(call.attribute_int("axis", if old_rules { 1 } else { -1 }), rank);
    let axis = axis.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    // Before opset 13 it runs over everything from the axis on.
    let dims: Vec<usize> = if old_rules { (axis..rank).collect() } else { vec![axis] };
    let whole = if old_rules { x.view.is_everything_from(axis) } else { x.view.is_everything(axis) };
    let sizes = x.view.sizes();
    let [size, apart] = [&sizes[axis..axis + dims.len()], &sizes[axis + dims.len()..]];
    Ok((dims, (!whole).then(|| [size, apart].map(|sizes| sizes.iter().product()))))
}

fn log_softmax(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (_, by_place) = dims_of(call, call.activation(0)?)?;
    match call.ends() {
        true => finish::softmax(call, by_place),
        false => Err(Reject::instead(
            "runs inside the network",
            "At the end it is supported, and a Softmax is everywhere",
        )),
    }
}

fn softmax(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let (dims, by_place) = dims_of(call, x)?;
    if call.ends() {
        return finish::softmax(call, by_place);
    }
    let sizes = x.view.sizes();
    let count: usize = dims.iter().map(|&d| sizes[d]).product();
    if let (2, Some(&dim)) = (count, dims.iter().find(|&&d| sizes[d] == 2)) {
        let other = select(builder, call, x, dim, &[1, 0])?;
        let more = minus(builder, call, x, &other)?;
        let function = Function::Of(Primitive::Sigmoid, Box::new(Function::Value));
        return Ok(vec![curved(builder, call, &more, function)?.into()]);
    }
    let largest = reduced(builder, call, x, &dims, true, |window| MaxPool(window).into())?;
    let less = x.at(few(builder, call, x.node, -1.0, 0.0)?);
    let below = plus(builder, call, less, &largest)?;
    let bent = |builder: &mut Builder, x: &Activation, function: Steep| {
        let (power, shape) = (Power { function, bands: NORM_BANDS }, builder.shape(x.node));
        Ok(x.at(builder.push(&call.name, power, vec![x.node], shape)?))
    };
    let exponentials = bent(builder, &below, Steep::Decay)?;
    let sums = means(builder, call, &exponentials, &dims, [count as f32, 0.0])?;
    let inverse = bent(builder, &sums, Steep::Power(-1.0))?;
    product(builder, call, &exponentials, &inverse)
}

fn curved(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    function: Function,
) -> Result<Activation, Reject> {
    let shape = builder.shape(x.node);
    Ok(x.at(builder.push(&call.name, Curve { function }, vec![x.node], shape)?))
}
