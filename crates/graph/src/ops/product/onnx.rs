//! From ONNX's products of values.

use super::float::Product;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation, identity};
use crate::import::moves::materialise;
use crate::import::refusal::{self, AT_THE_END};
use crate::import::tensor::broadcast;
use crate::import::view::View;
use crate::network::Rearrange;
use crate::ops::add::onnx::aligned;
use crate::ops::curve::onnx::cube;
use crate::ops::linear::affine::{mapped, with_constant};
use crate::ops::relu6::onnx::clamped;

pub(crate) const ONNX: &[(&str, Build)] = &[("HardSwish", hard_swish), ("Mul", mul), ("Pow", pow)];

fn mul(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    match with_constant(builder, call, [|v| (v, 0.0); 2])? {
        Some(made) => Ok(made),
        None => product(builder, call, call.activation(0)?, call.activation(1)?),
    }
}

/// The product of two values of the network: of the same sizes, or of one that the other's sizes hold several times.
fn product(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
) -> Result<Vec<Value>, Reject> {
    let op = Product { gain: 1.0, offsets: [0.0; 2] };
    let (sizes, others) = (a.view.sizes(), b.view.sizes());
    if sizes == others {
        let (x, y, shape, view) = aligned(builder, call, a, b)?;
        return Ok(activation(builder.push(&call.name, op, vec![x, y], shape)?, view));
    }
    let wide = broadcast(&sizes, &others)
        .ok_or_else(|| Reject::invalid("has factors that do not fit each other"))?;
    let (a, b, sizes) = match () {
        () if wide == sizes => (a, b, others),
        () if wide == others => (b, a, sizes),
        () => return Err(refusal::product()),
    };
    // One number a channel.
    let shape = builder.nodes[a.node].shape;
    let offset = wide.len() - sizes.len();
    let mut varying = (0..sizes.len()).filter(|&d| sizes[d] > 1).map(|d| d + offset);
    let by_channel = match (varying.next(), varying.next()) {
        (None, _) => shape[0] == 1,
        (Some(dim), None) => a.view.is_channels(dim, shape),
        _ => false,
    };
    if by_channel {
        let gate = materialise(builder, &call.name, b, [shape[0], 1, 1])?;
        return Ok(activation(builder.push(&call.name, op, vec![a.node, gate], shape)?, a.view.clone()));
    }
    // Otherwise, of images, it is repeated along the axes that it has not.
    let [1, c, h, w] = wide[..] else { return Err(refusal::product()) };
    let mut small = [1; 4];
    small[offset.min(4)..].copy_from_slice(&sizes);
    let (whole, part) = ([c, h, w], [small[1], small[2], small[3]]);
    let x = materialise(builder, &call.name, a, whole)?;
    let y = materialise(builder, &call.name, b, part)?;
    builder.list(whole.iter().sum())?;
    let axes = [0, 1, 2].map(|axis| match part[axis] == whole[axis] {
        true => Vec::new(),
        false => vec![Some(0); whole[axis]],
    });
    let y = builder.push(&call.name, Rearrange::Select { axes }, vec![y], whole)?;
    let node = builder.push(&call.name, op, vec![x, y], whole)?;
    Ok(activation(node, View::natural(whole)))
}

/// `x·clip(x + 3, 0, 6)/6`.
fn hard_swish(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let moved = mapped(builder, call, x.node, 1.0, 3.0)?;
    let gate = clamped(builder, call, moved, 0.0, 6.0)?;
    let shape = builder.shape(x.node);
    let op = Product { gain: 1.0 / 6.0, offsets: [0.0; 2] };
    let node = builder.push(&call.name, op, vec![x.node, gate], shape)?;
    Ok(activation(node, x.view.clone()))
}

/// `x^1`, `x^2` and `x^3`.
fn pow(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    match call.constant(1)?.to_floats()[..] {
        [1.0] => identity(builder, call),
        [2.0] => product(builder, call, x, x),
        [3.0] => cube(builder, call),
        _ => Err(Reject::instead(
            "raises to a power that is none of 1, 2 and 3",
            &format!("Squares and cubes are supported. {AT_THE_END}"),
        )),
    }
}
