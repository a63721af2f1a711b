//! From ONNX's Concat.

use super::Concat;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation};
use crate::import::moves::materialise;
use crate::import::tensor::wrap;
use crate::import::view::View;

pub(crate) const ONNX: &[(&str, Build)] = &[("Concat", concat)];

fn concat(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let parts = (0..call.inputs()).map(|i| call.activation(i)).collect::<Result<Vec<_>, _>>()?;
    let rank = parts[0].view.rank();
    let axis = wrap(call.attribute_int("axis", 1), rank)
        .ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    if parts.iter().any(|p| p.view.rank() != rank) {
        return Err(Reject::invalid("joins values of different rank"));
    }
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
        (_, 1, 4) => {
            for part in &parts {
                nodes.push(builder.image(call, part)?);
            }
            vec![0, 1, 2]
        }
        (_, 1, 2) => {
            for part in &parts {
                let len = part.view.sizes().iter().product();
                nodes.push(materialise(builder, &call.name, part, [len, 1, 1])?);
            }
            vec![0]
        }
        _ => return along(builder, call, &parts, axis),
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
