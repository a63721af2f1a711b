//! From ONNX's Concat.

use super::Concat;
use crate::import::build::{Build, Builder, Call, Reject, Value, activation};
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
        _ => return Err(Reject::unsupported("joins along something else than the channels")),
    };
    let node = builder.push(&call.name, Concat, nodes, [0; 3])?;
    Ok(activation(node, View::with_layout(builder.shape(node), &layout)))
}
