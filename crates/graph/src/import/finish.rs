//! From ONNX's operators that a model ends with and a network leaves out: whoever gets the output does them.

use super::build::{Activation, Call, Reject, Value};
use crate::network::Finish;

/// The model's last operator.
pub(crate) fn sigmoid(call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    Ok(vec![Value::Activation(Activation { finish: Finish::Sigmoid, ..x.clone() })])
}

/// The model's last operator, over all of the value; or by place, over `size` values that lie `apart` in its order.
pub(crate) fn softmax(call: &Call<'_>, by_place: Option<[usize; 2]>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let finish = by_place.map_or(Finish::Softmax, |[size, apart]| Finish::Softmaxes { size, apart });
    Ok(vec![Value::Activation(Activation { finish, ..x.clone() })])
}
