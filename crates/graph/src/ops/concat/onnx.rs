//! From ONNX's Concat.

use super::Concat;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation, finite};
use crate::import::moves::{materialise, select_or_zero};
use crate::import::tensor::{Tensor, wrap};
use crate::import::view::View;
use crate::limits::MAX_ELEMENTS;
use crate::onnx::Values;
use crate::ops::linear::affine::affine;

pub(crate) const ONNX: &[(&str, Build)] = &[("Concat", concat)];

/// What is joined: of so many indices of a value, or a constant.
enum Piece<'a> {
    Value(usize),
    Constant(&'a Tensor),
}

fn concat(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let inputs = (0..call.inputs()).map(|i| call.input(i)).collect::<Result<Vec<_>, _>>()?;
    let first = inputs.iter().position(|input| matches!(input, Value::Activation(_)));
    let first = first.ok_or_else(|| Reject::unsupported("joins constants alone"))?;
    let rank = call.activation(first)?.view.rank();
    let axis = wrap(call.attribute_int("axis", 1), rank)
        .ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    let (mut parts, mut pieces) = (Vec::new(), Vec::new());
    for (index, input) in inputs.into_iter().enumerate() {
        match input {
            // (Exporters join nothing, too.)
            Value::Constant(constant) if constant.values.is_empty() => {}
            Value::Constant(constant) => pieces.push(Piece::Constant(constant)),
            Value::Activation(_) | Value::Unknown => {
                let part = call.activation(index)?;
                if part.view.rank() != rank {
                    return Err(Reject::invalid("joins values of different rank"));
                }
                pieces.push(Piece::Value(part.view.sizes()[axis]));
                parts.push(part);
            }
        }
    }
    let made = joined(builder, call, &parts, axis)?;
    match &made[..] {
        [Value::Activation(values)] if pieces.len() > parts.len() => {
            between(builder, call, values, axis, &pieces)
        }
        _ => Ok(made),
    }
}

/// Constants put between `values` along an axis, as a class token is: zeros first, and a map that adds what belongs there.
fn between(
    builder: &mut Builder,
    call: &Call<'_>,
    values: &Activation,
    axis: usize,
    pieces: &[Piece<'_>],
) -> Result<Vec<Value>, Reject> {
    let mut sizes = values.view.sizes();
    let mut total = 0usize;
    for piece in pieces {
        let length = match piece {
            Piece::Value(length) => *length,
            Piece::Constant(constant) => {
                let alike = |(d, (a, b)): (usize, (&usize, &usize))| d == axis || a == b;
                let fits = constant.dims.len() == sizes.len()
                    && constant.dims.iter().zip(&sizes).enumerate().all(alike);
                fits.then(|| constant.dims[axis])
                    .ok_or_else(|| Reject::invalid("joins values of different shapes"))?
            }
        };
        total =
            total.checked_add(length).filter(|&sum| sum <= MAX_ELEMENTS).ok_or(Reject::TooLarge("values"))?;
    }
    builder.list(total)?;
    let mut indices = Vec::with_capacity(total);
    let mut next = 0;
    for piece in pieces {
        match piece {
            Piece::Value(length) => {
                indices.extend((next..next + length).map(Some));
                next += length;
            }
            Piece::Constant(constant) => indices.extend(std::iter::repeat_n(None, constant.dims[axis])),
        }
    }
    let spread = select_or_zero(builder, call, values, axis, &indices)?;
    sizes[axis] = total;
    let (outer, inner) = (sizes[..axis].iter().product(), sizes[axis + 1..].iter().product::<usize>());
    let given = pieces.iter().map(|piece| match piece {
        Piece::Value(length) => Ok((vec![0.0; length * inner], 0)),
        Piece::Constant(constant) => Ok((finite(constant)?, constant.dims[axis] * inner)),
    });
    let given = given.collect::<Result<Vec<_>, Reject>>()?;
    let mut added = Vec::with_capacity(sizes.iter().product());
    for o in 0..outer {
        for (values, stride) in &given {
            let run = if *stride == 0 { &values[..] } else { &values[o * stride..][..*stride] };
            added.extend_from_slice(run);
        }
    }
    affine(builder, call, &spread, &Tensor { dims: sizes, values: Values::Float(added) }, |v| (1.0, v))
}

fn joined(
    builder: &mut Builder,
    call: &Call<'_>,
    parts: &[&Activation],
    axis: usize,
) -> Result<Vec<Value>, Reject> {
    let rank = parts[0].view.rank();
    if let [only] = parts[..] {
        return Ok(activation(only.node, only.view.clone()));
    }
    // As they are, if all lie alike and the axis is the channels; else in ONNX's own order.
    let layouts: Vec<Option<Vec<usize>>> =
        parts.iter().map(|p| p.view.layout(builder.nodes[p.node].shape)).collect();
    let as_they_are = match &layouts[0] {
        Some(layout) if axis >= 1 && layout[axis - 1] == 0 => {
            layouts.iter().all(|l| l.as_ref() == Some(layout))
        }
        _ => false,
    };
    let mut nodes = Vec::with_capacity(parts.len());
    let layout = match (&layouts[0], axis, rank) {
        (Some(layout), ..) if as_they_are => {
            nodes.extend(parts.iter().map(|p| p.node));
            layout.clone()
        }
        (_, 1, 4) if parts[0].view.sizes()[0] == 1 => {
            for part in parts {
                nodes.push(builder.image(call, part)?);
            }
            vec![0, 1, 2]
        }
        (_, 1, 2) if parts[0].view.sizes()[0] == 1 => {
            for part in parts {
                let len = part.view.sizes().iter().product();
                nodes.push(materialise(builder, &call.name, part, [len, 1, 1])?);
            }
            vec![0]
        }
        _ => return along(builder, call, parts, axis),
    };
    let node = builder.push(&call.name, Concat, nodes, [0; 3])?;
    Ok(activation(node, View::with_layout(builder.shape(node), &layout)))
}

/// Joins along any dimension, which becomes the outermost of the node.
fn along(
    builder: &mut Builder,
    call: &Call<'_>,
    parts: &[&Activation],
    axis: usize,
) -> Result<Vec<Value>, Reject> {
    let sizes = parts[0].view.sizes();
    let order: Vec<usize> = std::iter::once(axis).chain((0..sizes.len()).filter(|&d| d != axis)).collect();
    let beyond = || Reject::unsupported("joins values in an order that cannot be made");
    let (mut nodes, mut total) = (Vec::with_capacity(parts.len()), 0usize);
    let (columns, rows) = match &order[1..] {
        [outer @ .., last] => (sizes[*last], outer.iter().map(|&d| sizes[d]).product()),
        [] => (1, 1),
    };
    for part in parts {
        let own = part.view.sizes();
        if own.iter().zip(&sizes).enumerate().any(|(d, (a, b))| d != axis && a != b) {
            return Err(Reject::invalid("joins values of different shapes"));
        }
        let view = part.view.transposed(&order).ok_or_else(beyond)?;
        let turned = Activation { view, ..(*part).clone() };
        nodes.push(materialise(builder, &call.name, &turned, [own[axis], rows, columns])?);
        total = total.checked_add(own[axis]).ok_or(Reject::TooLarge("values"))?;
    }
    let node = builder.push(&call.name, Concat, nodes, [0; 3])?;
    let mut turned: Vec<usize> = order.iter().map(|&d| sizes[d]).collect();
    turned[0] = total;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &d)| back[d] = at);
    let view =
        View::vector(turned.iter().product(), 2).reshaped(&turned).and_then(|view| view.transposed(&back));
    Ok(activation(node, view.ok_or_else(beyond)?))
}
