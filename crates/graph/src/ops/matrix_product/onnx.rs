//! From ONNX's MatMul: of two values that the network computes. By a constant it is a linear layer.

use super::float::MatrixProduct;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value};
use crate::import::moves::{materialise, widened};
use crate::import::tensor::broadcast;
use crate::import::view::View;
use crate::network::NodeId;
use crate::ops::linear::onnx::by_constant;

pub(crate) const ONNX: &[(&str, Build)] = &[("MatMul", mat_mul)];

fn mat_mul(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    match (call.input(0)?, call.input(1)?) {
        (Value::Activation(_), Value::Activation(_)) => {
            let made = of_values(builder, call, call.activation(0)?, call.activation(1)?, 1.0)?;
            Ok(vec![made.into()])
        }
        (Value::Activation(_), Value::Constant(_) | Value::Unknown)
        | (Value::Constant(_) | Value::Unknown, _) => by_constant(builder, call),
    }
}

fn beyond() -> Reject {
    Reject::unsupported("multiplies matrices in an order that cannot be made")
}

/// `[.., n, k]` times `[.., k, m]`. Dimensions before these are a batch: repeated where only one factor has them, or,
/// where all of them are the first factor's, more rows of it. The product is taken `gain` times.
pub(crate) fn of_values(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
    gain: f32,
) -> Result<Activation, Reject> {
    let (left, right) = (a.view.sizes(), b.view.sizes());
    let ([outer @ .., n, k], [others @ .., inner, m]) = (&left[..], &right[..]) else {
        return Err(Reject::unsupported("multiplies vectors without a second dimension"));
    };
    let (&n, &k, &m) = (n, k, m);
    let batch = broadcast(outer, others).filter(|_| k == *inner);
    let batch = batch.ok_or_else(|| Reject::invalid("has factors that do not fit each other"))?;
    let sizes = [&batch[..], &[n, m]].concat();
    let one = others.iter().all(|&size| size == 1);
    let (a, b, rows) = if one {
        (a.clone(), b.clone(), batch.iter().product::<usize>() * n)
    } else {
        let [a_wide, b_wide] = [[n, k], [k, m]].map(|own| [&batch[..], &own[..]].concat());
        (widened(builder, call, a, &a_wide)?, widened(builder, call, b, &b_wide)?, n)
    };
    let batch = if one { 1 } else { batch.iter().product() };
    let (a, first) = factor(builder, call, &a, [batch, rows, k])?;
    let (b, second) = factor(builder, call, &b, [batch, k, m])?;
    let op = MatrixProduct { gain, transposed: [first, second] };
    let shape = [batch, rows, m];
    let made = builder.push(&call.name, op, vec![a, b], shape)?;
    Ok(Activation::new(made, View::natural(shape).reshaped(&sizes).ok_or_else(beyond)?))
}

/// A node for `[batch, height, width]`, and whether it is `[batch, width, height]`: whichever its values stand in
/// already.
fn factor(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    shape: [usize; 3],
) -> Result<(NodeId, bool), Reject> {
    let [batch, height, width] = shape;
    let view = x.view.reshaped(&shape).ok_or_else(beyond)?;
    let turned = view.transposed(&[0, 2, 1]).ok_or_else(beyond)?;
    // (A vector stands as it is.)
    if !view.in_order() && turned.in_order() {
        let turned = Activation { view: turned, ..x.clone() };
        return Ok((materialise(builder, &call.name, &turned, [batch, width, height])?, true));
    }
    let upright = Activation { view, ..x.clone() };
    Ok((materialise(builder, &call.name, &upright, shape)?, false))
}
