//! Models that were quantised before: their rounding goes, and a saturation that is an activation stays one.

use super::float::Clip;
use crate::float::{Input, Op, Relu};
use crate::import::build::{Activation, Builder, Call, Reject, Value, finite, non_negative};
use crate::network::{Finish, NodeId};

/// Quantisation of the model's own leaves no trace but where its saturation does what an activation did: a lowest
/// integer that stands for zero makes a ReLU, and a highest one that stands for six a ReLU6. Other bounds are those
/// that the model's calibration found; they cut what is rarely there, and are left out.
pub(crate) fn quantize_linear(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let Value::Activation(x) = call.input(0)? else {
        return Err(Reject::unsupported("its scale is computed by the network"));
    };
    if x.quantised.is_some() {
        return Err(Reject::invalid("quantises what is quantised"));
    }
    let (scale, zero) = quantisation(call)?;
    let (low, high) = call.quantised_range()?;
    let mut node = x.node;
    let is_input = |node: NodeId| builder.nodes[node].op.is::<Input>();
    let plain = x.finish == Finish::None && !is_input(node) && !non_negative(&builder.nodes, node);
    if plain && zero == low {
        const SIX: f32 = 6.0;
        let top = (high - low) as f32 * scale;
        let six = (SIX - 2.0 * scale..SIX + scale).contains(&top);
        let op = if six { Op::new(Clip { ceiling: SIX }) } else { Relu.into() };
        let shape = builder.shape(node);
        node = builder.push(&call.name, op, vec![node], shape)?;
    }
    Ok(vec![Value::Activation(Activation { node, quantised: Some((scale, zero)), ..x.clone() })])
}

pub(crate) fn dequantize_linear(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let Value::Activation(x) = call.input(0)? else {
        return Err(Reject::unsupported("its scale is computed by the network"));
    };
    let quantised = quantisation(call)?;
    match x.quantised {
        Some(made) if made == quantised => {
            Ok(vec![Value::Activation(Activation { quantised: None, ..x.clone() })])
        }
        Some(_) => {
            Err(Reject::unsupported("has another scale or zero point than the QuantizeLinear before it"))
        }
        None => Err(Reject::instead(
            "takes integers that no QuantizeLinear made",
            "Export with a float input, or the float model",
        )),
    }
}

/// Scale and zero point of an activation.
fn quantisation(call: &Call<'_>) -> Result<(f32, i64), Reject> {
    let [scale] = finite(call.constant(1)?)?[..] else {
        return Err(Reject::unsupported("quantises a value of the network by channel"));
    };
    let zero = if call.has_input(2) { call.constant_ints(2)? } else { vec![0] };
    match zero[..] {
        [zero] if scale > 0.0 => Ok((scale, zero)),
        _ => Err(Reject::invalid("has a scale that is not positive, or several zero points")),
    }
}
