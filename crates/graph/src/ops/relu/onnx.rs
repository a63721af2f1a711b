//! From ONNX's ReLUs and what is made of them alone.

use super::float::Relu;
use super::prelu::Prelu;
use crate::import::build::{
    Activation, Build, Builder, Call, Reject, Value, activation, finite, non_negative,
};
use crate::import::tensor::broadcast;
use crate::ops::add::onnx::plus;
use crate::ops::linear::affine::{mapped, negative};

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("Abs", |builder, call| sloped(builder, call, -1.0)),
    ("LeakyRelu", |builder, call| sloped(builder, call, call.attribute_float("alpha", 0.01))),
    ("PRelu", prelu),
    ("Relu", |builder, call| builder.elementwise(call, Relu)),
    ("Shrink", shrink),
    ("ThresholdedRelu", thresholded_relu),
];

/// `relu(x)`, of x as it lies.
pub(crate) fn rectified(
    builder: &mut Builder,
    call: &Call<'_>,
    mut x: Activation,
) -> Result<Activation, Reject> {
    let shape = builder.shape(x.node);
    x.node = builder.push(&call.name, Relu, vec![x.node], shape)?;
    Ok(x)
}

/// `x` where it is positive, `slope·x` elsewhere: LeakyRelu, and Abs with the slope -1.
fn sloped(builder: &mut Builder, call: &Call<'_>, slope: f32) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    if !slope.is_finite() {
        return Err(Reject::invalid("has a slope that is not finite"));
    }
    if non_negative(&builder.nodes, x.node) {
        return Ok(activation(x.node, x.view.clone()));
    }
    let shape = builder.shape(x.node);
    let op = Prelu { slope: vec![slope; shape[0]] };
    let node = builder.push(&call.name, op, vec![x.node], shape)?;
    Ok(activation(node, x.view.clone()))
}

fn prelu(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (x, slope) = (call.activation(0)?, call.constant(1)?);
    let values = finite(slope)?;
    if let [slope] = values[..] {
        return sloped(builder, call, slope);
    }
    let sizes = x.view.sizes();
    let shape = builder.shape(x.node);
    let by_channel = || Reject::unsupported("has slopes that vary within a channel");
    if broadcast(&sizes, &slope.dims).as_ref() != Some(&sizes) {
        return Err(Reject::invalid("has slopes that do not fit its input"));
    }
    let offset = sizes.len() - slope.dims.len();
    let mut varying = (0..slope.dims.len()).filter(|&d| slope.dims[d] > 1).map(|d| d + offset);
    match (varying.next(), varying.next()) {
        (Some(dim), None) if x.view.is_channels(dim, shape) => {}
        _ => return Err(by_channel()),
    }
    let node = builder.push(&call.name, Prelu { slope: values }, vec![x.node], shape)?;
    Ok(activation(node, x.view.clone()))
}

/// `x - bias` above lambd, `x + bias` below -lambd, 0 between, where bias is lambd: relu(x - lambd) - relu(-x - lambd).
fn shrink(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (lambd, bias) = (call.attribute_float("lambd", 0.5), call.attribute_float("bias", 0.0));
    if lambd != bias || lambd < 0.0 {
        return Err(Reject::instead(
            &format!("jumps at {lambd} (its bias is {bias})"),
            "Use the bias lambd (a soft shrinkage), and retrain",
        ));
    }
    let x = call.activation(0)?;
    let side = |builder: &mut Builder, sign: f32| {
        let node = mapped(builder, call, x.node, sign, -lambd)?;
        rectified(builder, call, x.at(node))
    };
    let (above, mut below) = (side(builder, 1.0)?, side(builder, -1.0)?);
    below.node = negative(builder, call, &below)?;
    let sum = plus(builder, call, above, &below)?;
    Ok(activation(sum.node, sum.view))
}

/// `x` where it is above alpha, else 0: a ReLU where alpha is 0. Any other alpha makes it jump, which no sum of ReLUs does.
fn thresholded_relu(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let alpha = call.attribute_float("alpha", 1.0);
    if alpha != 0.0 {
        return Err(Reject::instead(
            &format!("jumps from 0 to {alpha}"),
            "Use alpha = 0, which is Relu, or relu(x - alpha), and retrain",
        ));
    }
    builder.elementwise(call, Relu)
}
