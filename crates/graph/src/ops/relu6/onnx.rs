//! From ONNX's clips, and from what bounds values on one side or both.

use super::float::Clip;
use super::quantised::{dequantize_linear, quantize_linear};
use crate::float::{Op, Relu};
use crate::import::build::{Build, Builder, Call, Reject, Value, activation, identity, non_negative};
use crate::import::tensor::Tensor;
use crate::network::NodeId;
use crate::ops::add::onnx::plus;
use crate::ops::linear::affine::{mapped, negative};
use crate::ops::relu::onnx::rectified;

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("Clip", clip),
    ("DequantizeLinear", dequantize_linear),
    ("HardSigmoid", hard_sigmoid),
    ("Max", |builder, call| bound(builder, call, false)),
    ("Min", |builder, call| bound(builder, call, true)),
    ("QuantizeLinear", quantize_linear),
];

fn clip(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let bound = |name: &str, index: usize, default: f32| -> Result<f32, Reject> {
        if call.has_input(index) {
            return scalar(call.constant(index)?);
        }
        Ok(call.attribute_float(name, default))
    };
    let (min, max) = (bound("min", 1, f32::NEG_INFINITY)?, bound("max", 2, f32::INFINITY)?);
    let x = call.activation(0)?;
    let node = clamped(builder, call, x.node, min, max)?;
    Ok(activation(node, x.view.clone()))
}

fn scalar(constant: &Tensor) -> Result<f32, Reject> {
    match constant.to_floats()[..] {
        [value] => Ok(value),
        _ => Err(Reject::unsupported("has a bound that is no single number")),
    }
}

/// A node's value between two bounds: a ReLU or a clip from 0, moved.
pub(crate) fn clamped(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    min: f32,
    max: f32,
) -> Result<NodeId, Reject> {
    /// A bound that no value of a trained network reaches.
    const BEYOND: f32 = 1e6;
    /// A bound that keeps a divisor from being zero: values that are not negative are not raised by so little.
    const NOTHING: f32 = 1e-6;
    if min.is_nan() || max.is_nan() || min >= max {
        return Err(Reject::Unsupported {
            reason: format!("clips to {min}..{max}"),
            instead: "The lower bound must be below the upper one".into(),
        });
    }
    let shape = builder.shape(node);
    let from_zero = non_negative(&builder.nodes, node);
    let min = if from_zero && min <= NOTHING { min.min(0.0) } else { min };
    let low = Some(min).filter(|low| *low >= -BEYOND && !(from_zero && *low <= 0.0));
    let high = Some(max).filter(|high| *high <= BEYOND);
    // (sign, offset): the operation is on sign·x + offset.
    let (sign, offset, op) = match (low, high) {
        (None, None) => return Ok(node),
        (Some(low), None) => (1.0, -low, Op::new(Relu)),
        (Some(low), Some(high)) => (1.0, -low, Clip { ceiling: high - low }.into()),
        (None, Some(high)) if from_zero && high > 0.0 => (1.0, 0.0, Clip { ceiling: high }.into()),
        (None, Some(high)) => (-1.0, high, Relu.into()),
    };
    let moved = mapped(builder, call, node, sign, offset)?;
    let bounded = builder.push(&call.name, op, vec![moved], shape)?;
    mapped(builder, call, bounded, sign, -sign * offset)
}

/// Max or Min: of a value and a constant, or of two values.
fn bound(builder: &mut Builder, call: &Call<'_>, upper: bool) -> Result<Vec<Value>, Reject> {
    if let (2, Value::Activation(_), Value::Activation(_)) =
        (call.inputs(), call.input(0)?, call.input(call.inputs() - 1)?)
    {
        // max(a, b) = b + relu(a - b), and min(a, b) = b - relu(b - a).
        let (a, b) = (call.activation(0)?, call.activation(1)?);
        let (first, second) = if upper { (b, a) } else { (a, b) };
        let minus = second.at(negative(builder, call, second)?);
        let difference = plus(builder, call, first.clone(), &minus)?;
        let mut more = rectified(builder, call, difference)?;
        if upper {
            more.node = negative(builder, call, &more)?;
        }
        let result = plus(builder, call, more, b)?;
        return Ok(activation(result.node, result.view));
    }
    let (x, c) = match (call.input(0)?, call.inputs()) {
        (Value::Activation(_), 1) => return identity(builder, call),
        (Value::Activation(_), 2) => (call.activation(0)?, call.constant(1)?),
        (Value::Constant(c), 2) => (call.activation(1)?, c.as_ref()),
        _ => return Err(Reject::unsupported("only Max and Min with one number are supported")),
    };
    let value = scalar(c)?;
    let (min, max) = if upper { (f32::NEG_INFINITY, value) } else { (value, f32::INFINITY) };
    let node = clamped(builder, call, x.node, min, max)?;
    Ok(activation(node, x.view.clone()))
}

/// `min(max(alpha·x + beta, 0), 1)`.
fn hard_sigmoid(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let (alpha, beta) = (call.attribute_float("alpha", 0.2), call.attribute_float("beta", 0.5));
    let node = mapped(builder, call, x.node, alpha, beta)?;
    let node = clamped(builder, call, node, 0.0, 1.0)?;
    Ok(activation(node, x.view.clone()))
}
