//! From ONNX's operators that a model ends with and a network leaves out: whoever gets the output does them.

use super::build::{Activation, Build, Builder, Call, Reject, Value};
use super::tensor::wrap;
use crate::network::Finish;

pub(crate) const ONNX: &[(&str, Build)] = &[("LogSoftmax", softmax), ("Softmax", softmax)];

/// The model's last operator.
pub(crate) fn sigmoid(call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    Ok(vec![Value::Activation(Activation { finish: Finish::Sigmoid, ..x.clone() })])
}

fn softmax(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let old_rules = call.opset < 13;
    let axis = wrap(call.attribute_int("axis", if old_rules { 1 } else { -1 }), x.view.rank());
    let axis = axis.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    // Before opset 13 it runs over everything from the axis on.
    let whole = if old_rules { x.view.is_everything_from(axis) } else { x.view.is_everything(axis) };
    if !whole {
        return Err(Reject::instead(
            "runs over a part of the value",
            "A softmax over all classes is supported",
        ));
    }
    Ok(vec![Value::Activation(Activation { finish: Finish::Softmax, ..x.clone() })])
}
