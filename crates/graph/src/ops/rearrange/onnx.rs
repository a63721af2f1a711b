//! From ONNX's operators that pick values, repeat them, or put zeros between.

use super::Rearrange;
use super::resize::resize;
use super::views;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation, identity};
use crate::import::moves::{cut, laid_out, select, select_axes, widened};
use crate::import::tensor::{SliceRange, broadcast, wrap};
use crate::import::view::View;
use crate::ops::linear::affine::mapped;

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("Cast", identity),
    ("DepthToSpace", views::depth_to_space),
    ("Dropout", views::dropout),
    ("Expand", expand),
    ("EyeLike", views::eye_like),
    ("Flatten", views::flatten),
    ("Gather", gather),
    ("GatherND", gather_nd),
    ("Identity", identity),
    ("Pad", pad),
    ("Reshape", views::reshape),
    ("Resize", resize),
    ("Shape", views::shape_of),
    ("Size", views::size_of),
    ("Slice", slice),
    ("SpaceToDepth", views::space_to_depth),
    ("Split", split),
    ("Squeeze", views::squeeze),
    ("Tile", tile),
    ("Transpose", views::transpose),
    ("Unsqueeze", views::unsqueeze),
    ("Upsample", resize),
];

fn pad(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let mode = call.attribute_text("mode").unwrap_or("constant");
    if !["constant", "reflect", "edge", "wrap"].contains(&mode) {
        return Err(Reject::Invalid(format!("pads by {mode:?}")));
    }
    let value = match call.attribute("value") {
        Some(attribute) => attribute.f.unwrap_or(0.0),
        None if call.has_input(2) => call.constant(2)?.to_floats().first().copied().unwrap_or(0.0),
        None => 0.0,
    };
    let value = if mode == "constant" { value } else { 0.0 };
    // What never wins in a max-pooling: the edge does not either, since each window that sees the padding sees the edge.
    let never = value == f32::NEG_INFINITY
        && !call.takers.is_empty()
        && call.takers.iter().all(|&taker| taker == "MaxPool");
    let (mode, value) = if never { ("edge", 0.0) } else { (mode, value) };
    if !value.is_finite() {
        return Err(Reject::instead(
            &format!("pads with {value}, and not for a max-pooling alone"),
            "Let the max-pooling that follows pad: its padding never wins",
        ));
    }
    let pads = call.ints("pads", 1)?.ok_or_else(|| Reject::invalid("has no pads"))?;
    let rank = x.view.rank();
    let axes = match call.has_input(3) {
        true => call.constant_ints(3)?,
        false => (0..rank as i64).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Reject::invalid("has another number of pads than two a dimension"));
    }
    let sizes = x.view.sizes();
    let mut by_dim = vec![[0; 2]; rank];
    // What is cut off, where a number is negative: first index, count and step.
    let mut left: Vec<SliceRange> = sizes.iter().map(|&size| (0, size, 1)).collect();
    for (i, &axis) in axes.iter().enumerate() {
        let dim = wrap(axis, rank).ok_or_else(|| Reject::invalid("has an axis out of range"))?;
        for (side, &pad) in [pads[i], pads[i + axes.len()]].iter().enumerate() {
            let size = usize::try_from(pad.unsigned_abs()).ok().filter(|&p| p <= crate::limits::MAX_EXTENT);
            let size = size.ok_or_else(|| Reject::unsupported("pads by a very large number"))?;
            if pad >= 0 {
                by_dim[dim][side] = size;
                continue;
            }
            let (first, count, _) = &mut left[dim];
            *first += if side == 0 { size } else { 0 };
            *count = count
                .checked_sub(size)
                .filter(|&count| count > 0)
                .ok_or_else(|| Reject::unsupported("cuts off all that there is, by negative pads"))?;
        }
    }
    let cut = match cut(builder, call, x, &left)? {
        Value::Activation(cut) => cut,
        other => return Ok(vec![other]),
    };
    if by_dim.iter().all(|p| *p == [0, 0]) {
        return Ok(vec![cut.into()]);
    }
    if by_dim[0] != [0, 0] {
        return Err(Reject::unsupported("pads the batch"));
    }
    let (mut node, layout) = laid_out(builder, call, &cut)?;
    let (mut before, mut after) = ([0; 3], [0; 3]);
    for (dim, &axis) in layout.iter().enumerate() {
        [before[axis], after[axis]] = by_dim[dim + 1];
    }
    if mode == "constant" {
        // Another value is zero once it is taken away.
        node = mapped(builder, call, node, 1.0, -value)?;
        node = builder.push(&call.name, Rearrange::Pad { before, after }, vec![node], [0; 3])?;
        node = mapped(builder, call, node, 1.0, value)?;
    } else {
        let shape = builder.shape(node);
        let mut axes: [Vec<Option<usize>>; 3] = Default::default();
        for (axis, picks) in axes.iter_mut().enumerate() {
            let size = shape[axis];
            if mode == "reflect" && before[axis].max(after[axis]) >= size {
                return Err(Reject::unsupported("reflects more than there is"));
            }
            builder.list(before[axis] + size + after[axis])?;
            *picks = (0..before[axis] + size + after[axis])
                .map(|at| match mode {
                    "edge" => Some(at.saturating_sub(before[axis]).min(size - 1)),
                    "wrap" => Some((at + before[axis] * (size - 1)) % size),
                    // Back and forth.
                    _ => {
                        let at = at.abs_diff(before[axis]);
                        Some(if at < size { at } else { 2 * (size - 1) - at })
                    }
                })
                .collect();
        }
        node = select_axes(builder, &call.name, node, axes)?;
    }
    Ok(activation(node, View::with_layout(builder.shape(node), &layout)))
}

/// Indices of one dimension, that are known.
fn gather(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (x, indices) = (call.activation(0)?, call.constant(1)?);
    let sizes = x.view.sizes();
    let dim = wrap(call.attribute_int("axis", 0), sizes.len())
        .ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    let chosen = indices.to_ints().and_then(|v| v.into_iter().map(|i| wrap(i, sizes[dim])).collect());
    let chosen: Vec<usize> = chosen.ok_or_else(|| Reject::invalid("has an index out of range"))?;
    if chosen.is_empty() {
        return Err(Reject::unsupported("gathers nothing"));
    }
    let gathered = select(builder, call, x, dim, &chosen)?;
    let sizes = [&sizes[..dim], &indices.dims, &sizes[dim + 1..]].concat();
    let view = gathered.view.reshaped(&sizes);
    let view = view.ok_or_else(|| Reject::unsupported("gathers into dimensions that cut others unevenly"))?;
    Ok(vec![Value::Activation(Activation { view, ..gathered })])
}

/// Indices of the first dimensions, as long as they are all combinations of some of each.
fn gather_nd(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (x, indices) = (call.activation(0)?, call.constant(1)?);
    let sizes = x.view.sizes();
    let values = indices.to_ints().ok_or_else(|| Reject::invalid("has indices that are no integers"))?;
    let Some((&depth, shape)) = indices.dims.split_last() else {
        return Err(Reject::invalid("has indices without dimensions"));
    };
    if depth == 0 || depth > sizes.len() || values.is_empty() {
        return Err(Reject::invalid("has another number of indices than dimensions"));
    }
    if call.attribute_int("batch_dims", 0) != 0 {
        return Err(Reject::unsupported("gathers by batch"));
    }
    // The first dimension's indices vary slowest: each is constant over runs, which then repeat.
    let mut gathered = x.clone();
    let mut rest = values.len() / depth;
    for (dim, &size) in sizes[..depth].iter().enumerate() {
        let column: Option<Vec<usize>> =
            values.iter().skip(dim).step_by(depth).map(|&i| wrap(i, size)).collect();
        let column = column.ok_or_else(|| Reject::invalid("has an index out of range"))?;
        let runs = |inner: &usize| {
            let whole = rest.is_multiple_of(*inner);
            whole && column.iter().enumerate().all(|(n, &i)| i == column[n % rest / inner * inner])
        };
        let inner = if dim + 1 == depth { Some(1) } else { (1..=rest).rev().find(runs) };
        let inner = inner.filter(runs);
        let inner =
            inner.ok_or_else(|| Reject::unsupported("gathers other than all combinations of indices"))?;
        let chosen: Vec<usize> = column[..rest].iter().copied().step_by(inner).collect();
        gathered = select(builder, call, &gathered, dim, &chosen)?;
        rest = inner;
    }
    let sizes = [shape, &sizes[depth..]].concat();
    let view = gathered.view.reshaped(&sizes);
    let view = view.ok_or_else(|| Reject::unsupported("gathers into dimensions that cut others unevenly"))?;
    Ok(vec![Value::Activation(Activation { view, ..gathered })])
}

/// Repeats along dimensions of size one.
fn expand(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (x, shape) = (call.activation(0)?, call.constant_ints(1)?);
    let shape: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
    let sizes = x.view.sizes();
    let wide = shape.and_then(|shape| broadcast(&sizes, &shape));
    let wide = wide.ok_or_else(|| Reject::invalid("has shapes that do not go together"))?;
    Ok(vec![Value::Activation(widened(builder, call, x, &wide)?)])
}

/// Repeats along each dimension.
fn tile(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (x, repeats) = (call.activation(0)?, call.constant_ints(1)?);
    let sizes = x.view.sizes();
    if repeats.len() != sizes.len() {
        return Err(Reject::invalid("has another number of repeats than dimensions"));
    }
    let mut tiled = x.clone();
    for (dim, (&size, &times)) in sizes.iter().zip(&repeats).enumerate() {
        let times = usize::try_from(times).ok().filter(|&times| times > 0);
        let times = times.ok_or_else(|| Reject::unsupported("repeats a dimension less than once"))?;
        if times > 1 {
            let picked = size.checked_mul(times).filter(|&count| count <= crate::limits::MAX_ELEMENTS);
            let picked = picked.ok_or(Reject::TooLarge("values"))?;
            let picked: Vec<usize> = (0..picked).map(|at| at % size).collect();
            tiled = select(builder, call, &tiled, dim, &picked)?;
        }
    }
    Ok(vec![Value::Activation(tiled)])
}

fn slice(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let ranges = call.slice_ranges(&x.view.sizes(), false)?;
    Ok(vec![cut(builder, call, x, &ranges)?])
}

fn split(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let sizes = x.view.sizes();
    let axis = wrap(call.attribute_int("axis", 0), sizes.len())
        .ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    let lengths = call.split_lengths(sizes[axis])?;
    let mut first = 0;
    let mut values = Vec::with_capacity(lengths.len());
    for length in lengths {
        let mut ranges: Vec<SliceRange> = sizes.iter().map(|&s| (0, s, 1)).collect();
        ranges[axis] = (first, length, 1);
        values.push(cut(builder, call, x, &ranges)?);
        first += length;
    }
    Ok(values)
}
