//! From ONNX's Where, by a condition that is known: of two values, what each of them gives, and zeros elsewhere, is a selection.

use super::affine::{affine, for_softmax};
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, finite};
use crate::import::moves::widened;
use crate::import::tensor::{Tensor, broadcast, broadcast_positions};
use crate::onnx::Values;
use crate::ops::add::onnx::plus;

pub(crate) const ONNX: &[(&str, Build)] = &[("Where", choice)];

fn choice(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let Value::Constant(condition) = call.input(0)? else {
        return Err(Reject::instead(
            "chooses by what the network computes",
            "A condition that is known is supported; max, min and Clip choose by comparing",
        ));
    };
    let sizes = |index: usize| -> Result<Vec<usize>, Reject> {
        match call.input(index)? {
            Value::Constant(tensor) => Ok(tensor.dims.clone()),
            Value::Activation(_) | Value::Unknown => Ok(call.activation(index)?.view.sizes()),
        }
    };
    let misfit = || Reject::invalid("has shapes that do not go together");
    let wide = broadcast(&sizes(1)?, &sizes(2)?).and_then(|wide| broadcast(&wide, &condition.dims));
    let wide = wide.ok_or_else(misfit)?;
    let count = wide.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    count.filter(|&count| count <= crate::limits::MAX_ELEMENTS).ok_or(Reject::TooLarge("values"))?;
    let chosen: Vec<bool> = condition.to_floats().into_iter().map(|v| v != 0.0).collect();
    let mut sum: Option<Activation> = None;
    for (index, own) in [(1, true), (2, false)] {
        if let Value::Activation(_) = call.input(index)? {
            let x = widened(builder, call, call.activation(index)?, &wide)?;
            let kept = chosen.iter().map(|&chosen| f32::from(u8::from(chosen == own))).collect();
            let kept = Tensor { dims: condition.dims.clone(), values: Values::Float(kept) };
            let made = affine(builder, call, &x, &kept, |v| (v, 0.0))?;
            let [Value::Activation(part)] = &made[..] else { return Ok(made) };
            sum = Some(match sum {
                Some(sum) => plus(builder, call, sum, part)?,
                None => part.clone(),
            });
        }
    }
    let sum = sum.ok_or_else(|| Reject::unsupported("chooses of constants alone"))?;
    for (index, own) in [(1, true), (2, false)] {
        if let Value::Constant(given) = call.input(index)? {
            let given = for_softmax(call, given);
            let values = finite(&given)?;
            let places = broadcast_positions(&given.dims, &wide).into_iter();
            let conditions = broadcast_positions(&condition.dims, &wide).into_iter();
            let added = places.zip(conditions).map(|(at, c)| if chosen[c] == own { values[at] } else { 0.0 });
            let added = Tensor { values: Values::Float(added.collect()), dims: wide };
            return affine(builder, call, &sum, &added, |v| (1.0, v));
        }
    }
    Ok(vec![sum.into()])
}
