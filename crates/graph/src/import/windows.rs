//! What ONNX's convolutions and pools say of their windows.

use super::build::{Builder, Call, Reject, Value, activation, identity};
use super::tensor::wrap;
use crate::float::Op;
use crate::network::{Shape, Window};

/// `[top, left, bottom, right]` by ONNX's `pads` or `auto_pad`.
pub(crate) fn window_pads(
    call: &Call<'_>,
    input: Shape,
    extent: [usize; 2],
    stride: [usize; 2],
) -> Result<[usize; 4], Reject> {
    let same = |upper: bool| {
        let mut pads = [0; 4];
        for axis in 0..2 {
            let size = input[axis + 1];
            let total =
                ((size.div_ceil(stride[axis]) - 1) * stride[axis] + extent[axis]).saturating_sub(size);
            let small = total / 2;
            pads[axis] = if upper { small } else { total - small };
            pads[axis + 2] = total - pads[axis];
        }
        pads
    };
    match call.attribute_text("auto_pad") {
        None | Some("" | "NOTSET") => call.sizes::<4>("pads", 0, 0),
        Some("VALID") => Ok([0; 4]),
        Some("SAME_UPPER") => Ok(same(true)),
        Some("SAME_LOWER") => Ok(same(false)),
        Some(other) => Err(Reject::Invalid(format!("has auto_pad {other:?}"))),
    }
}

/// A pooling operator's windows over `input`; and how far a rounded-up output size reaches beyond the given pads,
/// at the bottom and on the right.
pub(crate) fn pool_window(call: &Call<'_>, input: Shape) -> Result<(Window, [usize; 2]), Reject> {
    let kernel = call.sizes::<2>("kernel_shape", 0, 1)?;
    if kernel == [0, 0] {
        return Err(Reject::invalid("has no kernel_shape"));
    }
    if call.sizes::<2>("dilations", 1, 1)? != [1, 1] {
        return Err(Reject::unsupported("its window is dilated"));
    }
    let stride = call.sizes::<2>("strides", 1, 1)?;
    let mut pads = window_pads(call, input, kernel, stride)?;
    let mut beyond = [0; 2];
    if call.attribute_int("ceil_mode", 0) != 0 {
        for axis in 0..2 {
            let (size, before, after) = (input[axis + 1], pads[axis], pads[axis + 2]);
            let room = (size + before + after).checked_sub(kernel[axis]);
            let room = room.ok_or_else(|| Reject::invalid("has a window larger than its input"))?;
            let mut outputs = room.div_ceil(stride[axis]) + 1;
            // A window must not start in the padding at the end.
            if (outputs - 1) * stride[axis] >= size + before {
                outputs -= 1;
            }
            let reach = ((outputs - 1) * stride[axis] + kernel[axis]).saturating_sub(size + before);
            beyond[axis] = reach.saturating_sub(after);
            pads[axis + 2] = after + beyond[axis];
        }
    }
    Ok((Window { kernel, stride, pads }, beyond))
}

fn whole_image(shape: Shape, [rows, columns]: [bool; 2]) -> Window {
    let kernel = [if rows { shape[1] } else { 1 }, if columns { shape[2] } else { 1 }];
    Window { kernel, stride: [1, 1], pads: [0; 4] }
}

pub(crate) fn global_pool(
    builder: &mut Builder,
    call: &Call<'_>,
    pool: fn(Window) -> Op,
) -> Result<Vec<Value>, Reject> {
    let node = builder.image(call, call.activation(0)?)?;
    let window = whole_image(builder.nodes[node].shape, [true, true]);
    let node = builder.push(&call.name, pool(window), vec![node], [0; 3])?;
    Ok(builder.made(node))
}

pub(crate) fn reduce(
    builder: &mut Builder,
    call: &Call<'_>,
    pool: fn(Window) -> Op,
) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let axes = call.ints("axes", 1)?.unwrap_or_default();
    if axes.is_empty() && call.attribute_int("noop_with_empty_axes", 0) != 0 {
        return identity(builder, call);
    }
    let rank = x.view.rank();
    let dims: Option<Vec<usize>> = match axes.len() {
        0 => Some((0..rank).collect()),
        _ => axes.iter().map(|&a| wrap(a, rank)).collect(),
    };
    let dims = dims.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    let shape = builder.nodes[x.node].shape;
    match x.view.reduced(shape, &dims, call.attribute_int("keepdims", 1) != 0) {
        Some(([channels, rows, columns], view)) if !channels || shape[0] == 1 => {
            let window = whole_image(shape, [rows, columns]);
            let node = builder.push(&call.name, pool(window), vec![x.node], [0; 3])?;
            Ok(activation(node, view))
        }
        _ => Err(Reject::unsupported("reduces something else than height and width")),
    }
}
