//! Tables that exporters compute in the file of constants: masks of windows, tables of positions and of places relative to each other.

use super::build::{Call, Reject, finite};
use super::tensor::{Tensor, broadcast, broadcast_positions, wrap};
use crate::onnx::Values;

/// The operators that are computed here.
pub(super) const OPERATORS: [&str; 12] = [
    "Conv",
    "Cos",
    "CumSum",
    "GatherND",
    "MatMul",
    "ReduceL2",
    "Relu",
    "ScatterND",
    "Sin",
    "Softmax",
    "Tile",
    "Trilu",
];

/// Computes one of [`OPERATORS`]; `limit` bounds the number of elements of the result.
pub(super) fn fold(call: &Call<'_>, limit: usize) -> Result<Tensor, Reject> {
    let x = call.constant(0)?;
    match call.operator() {
        "Conv" => convolution(call, x, limit),
        "Cos" => Ok(each(x, f64::cos)),
        "Sin" => Ok(each(x, f64::sin)),
        "Relu" => Ok(each(x, |v| v.max(0.0))),
        "CumSum" => running_sum(call, x),
        "GatherND" => gathered(call, x, limit),
        "MatMul" => product(x, call.constant(1)?, limit),
        "ReduceL2" => lengths(call, x),
        "ScatterND" => scattered(call, x),
        "Softmax" => softmax(call, x),
        "Tile" => tiled(x, &call.constant_ints(1)?, limit),
        "Trilu" => triangle(call, x),
        other => Err(Reject::not_computed(other)),
    }
}

/// The parts of a constant along an axis, one for each result.
pub(super) fn split(call: &Call<'_>) -> Result<Vec<Tensor>, Reject> {
    let x = call.constant(0)?;
    let (axis, [outer, size, inner]) = along(call, x, 0)?;
    let lengths = call.split_lengths(size)?;
    let mut first = 0;
    let part = |length: usize| {
        let from = first;
        first += length;
        let run = move |o: usize| (0..length * inner).map(move |i| (o * size + from) * inner + i);
        let mut dims = x.dims.clone();
        dims[axis] = length;
        x.gathered(dims, (0..outer).flat_map(run))
    };
    Ok(lengths.into_iter().map(part).collect())
}

/// A function of each number.
fn each(x: &Tensor, function: fn(f64) -> f64) -> Tensor {
    let values = x.to_floats().into_iter().map(|v| function(v.into()) as f32).collect();
    Tensor { dims: x.dims.clone(), values: Values::Float(values) }
}

/// An axis by its attribute: which it is, and how many elements there are before it, along it and behind it.
fn along(call: &Call<'_>, x: &Tensor, default: i64) -> Result<(usize, [usize; 3]), Reject> {
    axis_of(x, call.attribute_int("axis", default))
}

fn axis_of(x: &Tensor, axis: i64) -> Result<(usize, [usize; 3]), Reject> {
    let axis = wrap(axis, x.dims.len()).ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    Ok((axis, [x.dims[..axis].iter().product(), x.dims[axis], x.dims[axis + 1..].iter().product()]))
}

fn running_sum(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    let &[axis] = &call.constant_ints(1)?[..] else { return Err(Reject::invalid("has no axis")) };
    let (_, [outer, size, inner]) = axis_of(x, axis)?;
    let (exclusive, reverse) =
        (call.attribute_int("exclusive", 0) != 0, call.attribute_int("reverse", 0) != 0);
    let mut sums: Vec<f64> = x.to_floats().into_iter().map(f64::from).collect();
    for o in 0..outer {
        for i in 0..inner {
            let mut sum = 0.0;
            for step in 0..size {
                let at = (o * size + if reverse { size - 1 - step } else { step }) * inner + i;
                let before = sum;
                sum += sums[at];
                sums[at] = if exclusive { before } else { sum };
            }
        }
    }
    let values = match x.values {
        Values::Int(_) => Values::Int(sums.into_iter().map(|v| v as i64).collect()),
        Values::Float(_) => Values::Float(sums.into_iter().map(|v| v as f32).collect()),
    };
    Ok(Tensor { dims: x.dims.clone(), values })
}

/// Where each tuple of the last dimension of `indices` points to among `sizes`: the first element of a run, and how long runs are.
fn pointed(indices: &Tensor, sizes: &[usize]) -> Result<(Vec<usize>, usize), Reject> {
    let values = indices.to_ints().ok_or_else(|| Reject::invalid("has indices that are no integers"))?;
    let depth = indices.dims.last().copied().filter(|&depth| depth >= 1 && depth <= sizes.len());
    let depth = depth.ok_or_else(|| Reject::invalid("has another number of indices than dimensions"))?;
    let run = sizes[depth..].iter().product();
    let place = |tuple: &[i64]| {
        tuple.iter().zip(sizes).try_fold(0, |at, (&index, &size)| Some(at * size + wrap(index, size)?))
    };
    let places: Option<Vec<usize>> =
        values.chunks_exact(depth).map(|tuple| place(tuple).map(|at| at * run)).collect();
    Ok((places.ok_or_else(|| Reject::invalid("has an index out of range"))?, run))
}

fn gathered(call: &Call<'_>, x: &Tensor, limit: usize) -> Result<Tensor, Reject> {
    if call.attribute_int("batch_dims", 0) != 0 {
        return Err(Reject::unsupported("gathers by batch"));
    }
    let indices = call.constant(1)?;
    let (places, run) = pointed(indices, &x.dims)?;
    if places.len().saturating_mul(run) > limit {
        return Err(Reject::invalid("makes too large a constant"));
    }
    let depth = indices.dims[indices.dims.len() - 1];
    let dims = [&indices.dims[..indices.dims.len() - 1], &x.dims[depth..]].concat();
    Ok(x.gathered(dims, places.into_iter().flat_map(|at| at..at + run)))
}

fn scattered(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    if !matches!(call.attribute_text("reduction"), None | Some("none")) {
        return Err(Reject::unsupported("adds up what it scatters"));
    }
    let (places, run) = pointed(call.constant(1)?, &x.dims)?;
    let updates = call.constant(2)?;
    if places.len().checked_mul(run) != Some(updates.values.len()) {
        return Err(Reject::invalid("scatters another number of values than it has places for"));
    }
    let mut made = x.clone();
    let targets = places.iter().flat_map(|&at| at..at + run);
    match (&mut made.values, &updates.values) {
        (Values::Int(to), Values::Int(from)) => targets.zip(from).for_each(|(at, v)| to[at] = *v),
        (Values::Float(to), Values::Float(from)) => targets.zip(from).for_each(|(at, v)| to[at] = *v),
        (Values::Int(_), Values::Float(_)) | (Values::Float(_), Values::Int(_)) => {
            return Err(Reject::invalid("scatters values of another type"));
        }
    }
    Ok(made)
}

fn tiled(x: &Tensor, repeats: &[i64], limit: usize) -> Result<Tensor, Reject> {
    let times: Option<Vec<usize>> = repeats.iter().map(|&times| usize::try_from(times).ok()).collect();
    let times = times.filter(|times| times.len() == x.dims.len());
    let times = times.ok_or_else(|| Reject::invalid("has another number of repeats than dimensions"))?;
    let dims: Option<Vec<usize>> =
        x.dims.iter().zip(&times).map(|(d, times)| d.checked_mul(*times)).collect();
    let count = dims.as_ref().and_then(|dims| dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    let Some(dims) = dims.filter(|_| count.is_some_and(|count| count <= limit)) else {
        return Err(Reject::invalid("makes too large a constant"));
    };
    let mut places = vec![0];
    for (&wide, &size) in dims.iter().zip(&x.dims) {
        places = places.iter().flat_map(|p| (0..wide).map(move |i| p * size + i % size)).collect();
    }
    Ok(x.gathered(dims, places.into_iter()))
}

/// What is on one side of a diagonal, and zeros.
fn triangle(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    let &[.., rows, columns] = &x.dims[..] else { return Err(Reject::invalid("takes no matrix")) };
    let k = match call.has_input(1) {
        true => call.constant_ints(1)?.first().copied().unwrap_or(0),
        false => 0,
    };
    let upper = call.attribute_int("upper", 1) != 0;
    let kept = |at: usize| {
        let (row, column) = (at / columns % rows, at % columns);
        let beyond = (column as i64 - row as i64).saturating_sub(k);
        if upper { beyond >= 0 } else { beyond <= 0 }
    };
    let values = match &x.values {
        Values::Int(v) => {
            Values::Int(v.iter().enumerate().map(|(at, &v)| if kept(at) { v } else { 0 }).collect())
        }
        Values::Float(v) => {
            Values::Float(v.iter().enumerate().map(|(at, &v)| if kept(at) { v } else { 0.0 }).collect())
        }
    };
    Ok(Tensor { dims: x.dims.clone(), values })
}

/// `[.., n, k]` times `[.., k, m]`.
fn product(x: &Tensor, y: &Tensor, limit: usize) -> Result<Tensor, Reject> {
    /// Multiplications, of which a file of little could ask for many.
    const MOST: usize = 1 << 24;
    let misfit = || Reject::invalid("has factors that do not fit each other");
    let ([outer @ .., n, k], [others @ .., inner, m]) = (&x.dims[..], &y.dims[..]) else {
        return Err(Reject::unsupported("multiplies vectors without a second dimension"));
    };
    let (&n, &k, &m) = (n, k, m);
    let batch = broadcast(outer, others).filter(|_| k == *inner).ok_or_else(misfit)?;
    let dims = [&batch[..], &[n, m]].concat();
    let count =
        dims.iter().try_fold(1usize, |count, &d| count.checked_mul(d)).filter(|&count| count <= limit);
    count
        .and_then(|count| count.checked_mul(k))
        .filter(|&all| all <= MOST)
        .ok_or(Reject::TooLarge("computed constants"))?;
    let (a, b) = (finite(x)?, finite(y)?);
    let mut made = Vec::with_capacity(count.unwrap_or(0));
    let places = broadcast_positions(outer, &batch).into_iter().zip(broadcast_positions(others, &batch));
    for (at_a, at_b) in places {
        let (a, b) = (&a[at_a * n * k..][..n * k], &b[at_b * k * m..][..k * m]);
        for row in 0..n {
            made.extend((0..m).map(|column| {
                let terms = (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[i * m + column]));
                terms.sum::<f64>() as f32
            }));
        }
    }
    let whole = matches!((&x.values, &y.values), (Values::Int(_), Values::Int(_)));
    let values = match whole {
        true => Values::Int(made.into_iter().map(|v| v as i64).collect()),
        false => Values::Float(made),
    };
    Ok(Tensor { dims, values })
}

/// A layer of single pixels, `[1, C, ..]` by `[M, C, 1, ..]`: what makes features of a table of positions.
fn convolution(call: &Call<'_>, x: &Tensor, limit: usize) -> Result<Tensor, Reject> {
    /// Multiplications, of which a file of little could ask for many.
    const MOST: usize = 1 << 27;
    let weights = call.constant(1)?;
    let plain = |name| call.attribute_ints(name).is_none_or(|values| values.iter().all(|&v| v == 1));
    let unpadded = call.attribute_ints("pads").is_none_or(|pads| pads.iter().all(|&v| v == 0));
    let ([1, channels, places @ ..], [made, of, window @ ..]) = (&x.dims[..], &weights.dims[..]) else {
        return Err(Reject::unsupported("takes a batch of constants"));
    };
    if window.iter().any(|&size| size != 1)
        || call.attribute_int("group", 1) != 1
        || !plain("strides")
        || !unpadded
    {
        return Err(Reject::unsupported("has windows, groups or strides over a constant"));
    }
    let bias = if call.has_input(2) { finite(call.constant(2)?)? } else { vec![0.0; *made] };
    if of != channels || window.len() != places.len() || bias.len() != *made {
        return Err(Reject::invalid("has weights that do not fit its input"));
    }
    let (x, weights) = (finite(x)?, finite(weights)?);
    let plane: usize = places.iter().product();
    let count = made.checked_mul(plane).filter(|&count| count <= limit);
    let all = count.and_then(|count| count.checked_mul(*channels)).filter(|&all| all <= MOST);
    all.ok_or(Reject::TooLarge("computed constants"))?;
    let mut sums = Vec::with_capacity(made * plane);
    for (row, &bias) in weights.chunks_exact((*channels).max(1)).zip(&bias) {
        let mut sum = vec![f64::from(bias); plane];
        for (&weight, values) in row.iter().zip(x.chunks_exact(plane.max(1))) {
            sum.iter_mut().zip(values).for_each(|(sum, &v)| *sum += f64::from(weight) * f64::from(v));
        }
        sums.extend(sum.into_iter().map(|v| v as f32));
    }
    let dims = [&[1, *made], places].concat();
    Ok(Tensor { dims, values: Values::Float(sums) })
}

/// Lengths of vectors along one axis.
fn lengths(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    let Some(&[axis]) = call.ints("axes", 1)?.as_deref() else {
        return Err(Reject::unsupported("takes lengths of a constant over several dimensions"));
    };
    let (axis, [outer, size, inner]) = axis_of(x, axis)?;
    let values = x.to_floats();
    let length = |at: usize| {
        let (o, i) = (at / inner, at % inner);
        let squares = (0..size).map(|step| f64::from(values[(o * size + step) * inner + i]).powi(2));
        squares.sum::<f64>().sqrt() as f32
    };
    let made = (0..outer * inner).map(length).collect();
    let mut dims = x.dims.clone();
    match call.attribute_int("keepdims", 1) {
        0 => drop(dims.remove(axis)),
        _ => dims[axis] = 1,
    }
    Ok(Tensor { dims, values: Values::Float(made) })
}

fn softmax(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    let (_, [outer, size, inner]) = along(call, x, if call.opset < 13 { 1 } else { -1 })?;
    if call.opset < 13 && inner != 1 {
        return Err(Reject::unsupported("runs over several dimensions of a constant"));
    }
    let mut made = x.to_floats();
    for o in 0..outer {
        for i in 0..inner {
            let places = (0..size).map(|step| (o * size + step) * inner + i);
            let largest = places.clone().map(|at| made[at]).fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = places.clone().map(|at| f64::from(made[at] - largest).exp()).sum();
            places.for_each(|at| made[at] = (f64::from(made[at] - largest).exp() / sum) as f32);
        }
    }
    Ok(Tensor { dims: x.dims.clone(), values: Values::Float(made) })
}
