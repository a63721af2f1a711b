//! From ONNX's products of values.

use super::float::Product;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation, identity};
use crate::import::moves::{by_rows, materialise, reshaped, together};
use crate::import::refusal::AT_THE_END;
use crate::import::tensor::{Tensor, broadcast};
use crate::ops::add::onnx::aligned;
use crate::ops::curve::function::well_known;
use crate::ops::curve::onnx::{NORM_BANDS, cube, powered};
use crate::ops::linear::affine::{affine, with_constant};

pub(crate) const ONNX: &[(&str, Build)] = &[("Div", div), ("Mul", mul), ("Pow", pow)];

fn mul(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if let (Value::Activation(_), Value::Constant(table)) = (call.input(0)?, call.input(1)?)
        && turns(table)
    {
        return turned(builder, call, table);
    }
    match with_constant(builder, call, [|v| (v, 0.0); 2])? {
        Some(made) => Ok(made),
        None => product(builder, call, call.activation(0)?, call.activation(1)?),
    }
}

/// Whether a constant is a table by place and feature of which each number serves a pair of features, neighbours or half of all apart: the
/// cosines and sines by which positions turn queries and keys.
fn turns(table: &Tensor) -> bool {
    let [.., places, features] = &table.dims[..] else { return false };
    if *places < 2 || *features < 4 || features % 2 != 0 {
        return false;
    }
    let values = table.to_floats();
    let mut rows = values.chunks_exact(*features);
    let halves = |row: &[f32]| row[..features / 2] == row[features / 2..];
    let neighbours = |row: &[f32]| row.chunks_exact(2).all(|pair| pair[0] == pair[1]);
    rows.clone().all(halves) || rows.all(neighbours)
}

/// A value times a table of factors, which becomes a value of its own: a layer of zeros, whose bias it is. So it stays hidden, as weights do.
fn turned(builder: &mut Builder, call: &Call<'_>, table: &Tensor) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    match affine(builder, call, x, table, |v| (v, 0.0)) {
        Err(Reject::Unsupported { .. }) if x.view.rank() > 2 => {}
        made => return made,
    }
    let made = affine(builder, call, x, table, |v| (0.0, v))?;
    match &made[..] {
        [Value::Activation(table)] => product(builder, call, x, table),
        _ => Ok(made),
    }
}

/// A quotient: by a constant, or by a value that cannot be negative.
fn div(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    match (call.input(0)?, call.input(1)?) {
        (Value::Activation(_), Value::Constant(c)) => {
            affine(builder, call, call.activation(0)?, c, |v| (1.0 / v, 0.0))
        }
        (first, _) => {
            let inverse = powered(builder, call, call.activation(1)?, -1.0, NORM_BANDS)?;
            match first {
                Value::Constant(c) => affine(builder, call, &inverse, c, |v| (v, 0.0)),
                _ => product(builder, call, call.activation(0)?, &inverse),
            }
        }
    }
}

/// The product of two values of the network: of the same sizes, or each of the other's sizes or one.
pub(crate) fn product(
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
    let (a, b, sizes) = if wide == others { (b, a, sizes) } else { (a, b, others) };
    // One number a channel.
    let shape = builder.nodes[a.node].shape;
    let offset = wide.len() - sizes.len();
    let mut varying = (0..sizes.len()).filter(|&d| sizes[d] > 1).map(|d| d + offset);
    let by_channel = match (varying.next(), varying.next()) {
        _ if wide != a.view.sizes() => false,
        (None, _) => shape[0] == 1,
        (Some(dim), None) => a.view.is_channels(dim, shape),
        _ => false,
    };
    if by_channel {
        let gate = materialise(builder, &call.name, b, [shape[0], 1, 1])?;
        return Ok(activation(builder.push(&call.name, op, vec![a.node, gate], shape)?, a.view.clone()));
    }
    // One number a row.
    if wide == a.view.sizes()
        && let Some(factors) = by_rows(builder, &call.name, a, b)?
    {
        let made = builder.push(&call.name, op, factors.to_vec(), builder.shape(factors[0]))?;
        return Ok(activation(reshaped(builder, &call.name, made, shape)?, a.view.clone()));
    }
    // Otherwise it is repeated along the axes that it has not.
    let ([x, y], shape, view) = together(builder, &call.name, a, b)?;
    Ok(activation(builder.push(&call.name, op, vec![x, y], shape)?, view))
}

/// `x^1`, `x^2` and `x^3`; other powers of what cannot be negative.
fn pow(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    match call.constant(1)?.to_floats()[..] {
        [1.0] => identity(builder, call),
        [2.0] => product(builder, call, x, x),
        [3.0] => cube(builder, call),
        [exponent] if well_known(exponent) && exponent != 0.0 => {
            Ok(vec![powered(builder, call, x, exponent.into(), NORM_BANDS)?.into()])
        }
        _ => Err(Reject::instead(
            "raises to a power that training may have found",
            &format!("Squares, cubes and powers by well-known fractions are supported. {AT_THE_END}"),
        )),
    }
}
