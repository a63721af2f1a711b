//! What ONNX's convolutions and pools say of their windows.

use super::build::{Activation, Builder, Call, Reject, Value, activation, identity};
use super::moves::{materialise, reshaped};
use super::tensor::wrap;
use super::view::{Runs, View};
use crate::float::Op;
use crate::network::{NodeId, Shape, Window};

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
    let kernel = call.sizes::<2>("kernel_shape", 1, 1)?;
    if call.attribute("kernel_shape").is_none() {
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
    Ok(builder.made(call, node))
}

/// The operator's own reduction by `pool`; what reduces more than height and width goes through `otherwise` then.
pub(crate) fn reduce(
    builder: &mut Builder,
    call: &Call<'_>,
    pool: fn(Window) -> Op,
    otherwise: fn(&mut Builder, &Call<'_>, Activation) -> Result<Activation, Reject>,
) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let axes = call.ints("axes", 1)?.unwrap_or_default();
    if axes.is_empty() && call.attribute_int("noop_with_empty_axes", 0) != 0 {
        return identity(builder, call);
    }
    let dims = reduced_dims(&axes, x.view.rank())?;
    let keep = call.attribute_int("keepdims", 1) != 0;
    let shape = builder.nodes[x.node].shape;
    match x.view.reduced(shape, &dims, keep) {
        Some(([channels, rows, columns], view)) if !channels || shape[0] == 1 => {
            let window = whole_image(shape, [rows, columns]);
            let node = builder.push(&call.name, pool(window), vec![x.node], [0; 3])?;
            Ok(activation(node, view))
        }
        _ => {
            let made = reduced(builder, call, x, &dims, keep, pool)?;
            Ok(vec![otherwise(builder, call, made)?.into()])
        }
    }
}

/// The dimensions that these axes are; all, if there are none.
pub(crate) fn reduced_dims(axes: &[i64], rank: usize) -> Result<Vec<usize>, Reject> {
    let dims: Option<Vec<usize>> = match axes.len() {
        0 => Some((0..rank).collect()),
        _ => axes.iter().map(|&a| wrap(a, rank)).collect(),
    };
    dims.ok_or_else(|| Reject::invalid("has an axis out of range"))
}

/// What `pool` makes of each set of values that differ in these dimensions alone, whatever they are: a node `[1, 1, n]`.
pub(crate) fn reduced(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
    keep: bool,
    pool: impl Fn(Window) -> Op,
) -> Result<Activation, Reject> {
    let kept = kept_of(x, dims);
    let (node, order, [outer, gone, inner]) = in_three(builder, call, x, &kept, false)?;
    let [rows, columns] = match inner {
        1 => split(gone),
        _ => [gone, 1],
    };
    let shape = [outer, rows, columns * inner];
    let node = reshaped(builder, &call.name, node, shape)?;
    let window = Window { kernel: [rows, columns], stride: [1, 1], pads: [0; 4] };
    let node = builder.push(&call.name, pool(window), vec![node], [0; 3])?;
    in_tensor_order(builder, call, node, x, &kept, &order, keep)
}

/// What an operation makes of each set of values that differ in these dimensions alone, a row by itself: its second factor comes
/// transposed. A node `[1, 1, n]`, and the dimensions kept.
pub(crate) fn reduced_with_itself(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
    op: impl Into<Op>,
) -> Result<Activation, Reject> {
    let kept = kept_of(x, dims);
    let (node, order, [outer, gone, _]) = in_three(builder, call, x, &kept, true)?;
    let node = reshaped(builder, &call.name, node, [outer, 1, gone])?;
    let node = builder.push(&call.name, op, vec![node; 2], [outer, 1, 1])?;
    in_tensor_order(builder, call, node, x, &kept, &order, true)
}

/// Which dimensions stay.
fn kept_of(x: &Activation, dims: &[usize]) -> Vec<bool> {
    (0..x.view.sizes().len()).map(|d| !dims.contains(&d)).collect()
}

/// One value for each place of what is `kept` of `x`, which `node` has in this order of dimensions.
fn in_tensor_order(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    x: &Activation,
    kept: &[bool],
    order: &[usize],
    keep: bool,
) -> Result<Activation, Reject> {
    let sizes = x.view.sizes();
    let here: Vec<usize> = order.iter().map(|&d| sizes[d]).collect();
    let count = here.iter().product();
    let node = reshaped(builder, &call.name, node, [1, 1, count])?;
    // From the node's order to the tensor's.
    let in_order = View::vector(count, 2).reshaped(&here);
    let mut to: Vec<usize> = (0..order.len()).collect();
    to.sort_unstable_by_key(|&i| order[i]);
    let view = in_order.and_then(|view| view.transposed(&to)).and_then(|view| {
        let sizes = sizes.iter().enumerate().filter(|&(d, _)| keep || kept[d]);
        view.reshaped(&sizes.map(|(d, &size)| if kept[d] { size } else { 1 }).collect::<Vec<_>>())
    });
    let view = view.ok_or_else(|| Reject::unsupported("reduces values in an order that cannot be made"))?;
    Ok(Activation::new(node, view))
}

/// Values as `[outer, gone, inner]`, where what is `kept` (by dimension) is outside and inside, or outside alone if what goes is to come
/// `last`: a node whose order this is, and the kept dimensions in that order.
fn in_three(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    kept: &[bool],
    last: bool,
) -> Result<(NodeId, Vec<usize>, [usize; 3]), Reject> {
    if let Some(Runs { runs, order }) = x.view.runs(kept) {
        let three = match runs[..] {
            [] => Some([1, 1, 1]),
            [(true, outer)] => Some([outer, 1, 1]),
            [(false, gone)] => Some([1, gone, 1]),
            [(true, outer), (false, gone)] => Some([outer, gone, 1]),
            [(false, gone), (true, inner)] => Some([1, gone, inner]),
            [(true, outer), (false, gone), (true, inner)] => Some([outer, gone, inner]),
            _ => None,
        };
        if let Some(three) = three.filter(|[_, _, inner]| !last || *inner == 1) {
            return Ok((x.node, order, three));
        }
    }
    // What goes comes last.
    let sizes = x.view.sizes();
    let order: Vec<usize> = (0..sizes.len()).filter(|&d| kept[d]).collect();
    let perm: Vec<usize> = order.iter().copied().chain((0..sizes.len()).filter(|&d| !kept[d])).collect();
    let view = x.view.transposed(&perm).ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    let outer = order.iter().map(|&d| sizes[d]).product::<usize>();
    let gone = sizes.iter().product::<usize>() / outer;
    let node = materialise(builder, &call.name, &Activation { view, ..x.clone() }, [outer, gone, 1])?;
    Ok((node, order, [outer, gone, 1]))
}

/// Two factors of a number, neither much larger than the other where that can be.
fn split(count: usize) -> [usize; 2] {
    let root = (1..).take_while(|f| f * f <= count).filter(|f| count.is_multiple_of(*f)).last().unwrap_or(1);
    [count / root, root]
}
