//! From ONNX's sums and differences.

use super::Add;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation, identity};
use crate::import::moves::{materialise, natural, together};
use crate::import::view::View;
use crate::network::{NodeId, Shape};
use crate::ops::linear::affine::{affine, few, for_softmax, negative, with_constant};

pub(crate) const ONNX: &[(&str, Build)] = &[("Add", add), ("Sub", sub), ("Sum", add)];

/// Add and Sum: of two or more values, or of one and a constant.
fn add(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if call.inputs() == 1 {
        return identity(builder, call);
    }
    match (call.inputs(), call.input(0)?, call.input(1)?) {
        (2, Value::Activation(_), Value::Constant(c)) => {
            return affine(builder, call, call.activation(0)?, &for_softmax(call, c), |v| (1.0, v));
        }
        (2, Value::Constant(c), Value::Activation(_)) => {
            return affine(builder, call, call.activation(1)?, &for_softmax(call, c), |v| (1.0, v));
        }
        _ => {}
    }
    let mut sum = call.activation(0)?.clone();
    for index in 1..call.inputs() {
        sum = plus(builder, call, sum, call.activation(index)?)?;
    }
    Ok(activation(sum.node, sum.view))
}

/// The sum of two values.
pub(crate) fn plus(
    builder: &mut Builder,
    call: &Call<'_>,
    sum: Activation,
    other: &Activation,
) -> Result<Activation, Reject> {
    let ([left, right], shape, view) = match sum.view.sizes() == other.view.sizes() {
        true => {
            let (left, right, shape, view) = aligned(builder, call, &sum, other)?;
            ([left, right], shape, view)
        }
        false => together(builder, &call.name, &sum, other)?,
    };
    Ok(Activation::new(builder.push(&call.name, Add, vec![left, right], shape)?, view))
}

/// `a − b`; what is repeated changes its sign before.
pub(crate) fn minus(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
) -> Result<Activation, Reject> {
    let count = |x: &Activation| x.view.sizes().iter().product::<usize>();
    let node = match count(b) < count(a) {
        true => few(builder, call, b.node, -1.0, 0.0)?,
        false => negative(builder, call, b)?,
    };
    plus(builder, call, a.clone(), &b.at(node))
}

/// Two values of the same sizes as nodes of one shape whose elements run alike, and the view of both.
pub(crate) fn aligned(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
) -> Result<(NodeId, NodeId, Shape, View), Reject> {
    let shape = builder.nodes[a.node].shape;
    if shape == builder.nodes[b.node].shape && a.view.same_as(&b.view) {
        return Ok((a.node, b.node, shape, a.view.clone()));
    }
    let (shape, view) = natural(&a.view.sizes())?;
    let left = materialise(builder, &call.name, a, shape)?;
    let right = materialise(builder, &call.name, b, shape)?;
    Ok((left, right, shape, view))
}

fn sub(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if let Some(made) = with_constant(builder, call, [|v| (1.0, -v), |v| (-1.0, v)])? {
        return Ok(made);
    }
    Ok(vec![minus(builder, call, call.activation(0)?, call.activation(1)?)?.into()])
}
