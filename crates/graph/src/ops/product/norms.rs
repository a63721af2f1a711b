//! Norms, each as operations that there are: the mean is a sum over windows and a layer of few values, the centred value a sum, the
//! squares' sum a product of matrices (each row by itself), their mean a layer of few values, the inverse root a
//! [power](crate::float::Power) in bands, and the scaling a product.
//!
//! ```text
//! m = mean(x),   c = x − m,   v = mean(c·c) + ε,   y = c·v^(−1/2)
//! ```
//!
//! What training found, the factor and the offset of each channel, becomes part of linear layers as any such map does. ε is of the
//! architecture, but hidden in a layer too. Exporters that write a norm in primitive nodes arrive at the same operations one by one,
//! but for the squares: there each is a value, and their mean a sum over windows.

use super::float::Product;
use super::onnx::product;
use crate::float::{AveragePool, MatrixProduct};
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation};
use crate::import::moves::{materialise, reshaped, spread_to};
use crate::import::tensor::{Tensor, wrap};
use crate::import::view::View;
use crate::import::windows::{reduced, reduced_dims, reduced_with_itself};
use crate::network::Window;
use crate::ops::add::onnx::plus;
use crate::ops::curve::onnx::{NORM_BANDS, powered};
use crate::ops::linear::affine::{affine, few};
use crate::ops::sum_pool::onnx::means;

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("GroupNormalization", group),
    ("InstanceNormalization", instance),
    ("LRN", local_response),
    ("LayerNormalization", layer),
    ("LpNormalization", length),
    ("MeanVarianceNormalization", mean_variance),
    ("RMSNormalization", root_mean_square),
    ("ReduceL2", reduce_length),
    ("ReduceSumSquare", reduce_squares),
];

/// `x·x`.
fn square(builder: &mut Builder, call: &Call<'_>, x: &Activation) -> Result<Activation, Reject> {
    let op = Product { gain: 1.0, offsets: [0.0; 2] };
    let shape = builder.shape(x.node);
    Ok(x.at(builder.push(&call.name, op, vec![x.node; 2], shape)?))
}

/// `mul·mean(x²) + add`, the mean over these dimensions: of each set of values the product with itself, and a layer of few values.
fn squares_mean(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
    [mul, add]: [f32; 2],
) -> Result<Activation, Reject> {
    let sizes = x.view.sizes();
    let count: usize = dims.iter().map(|&d| sizes[d]).product();
    let op = MatrixProduct { gain: 1.0, transposed: [false, true] };
    let sums = reduced_with_itself(builder, call, x, dims, op)?;
    let node = few(builder, call, sums.node, mul / count as f32, add)?;
    Ok(sums.at(node))
}

/// The only value that a builder made.
fn only(made: Vec<Value>) -> Result<Activation, Reject> {
    match made.into_iter().next() {
        Some(Value::Activation(made)) => Ok(made),
        _ => Err(Reject::Follows),
    }
}

/// What is to be scaled, its mean over these dimensions taken away if it is to be `centred`.
fn ready(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
    centred: bool,
) -> Result<Activation, Reject> {
    let mut x = x.clone();
    // (A sum's division, which nothing here takes: in few values, not channel by channel.)
    if builder.nodes[x.node].op.takes_means() {
        x = x.at(few(builder, call, x.node, 1.0, 0.0)?);
    }
    if !centred {
        return Ok(x);
    }
    if let Some(made) = centred_in_parts(builder, call, &x, dims)? {
        return Ok(made);
    }
    let less = means(builder, call, &x, dims, [-1.0, 0.0])?;
    plus(builder, call, x, &less)
}

/// So many values share a mean's rounding at most.
const SHARED: usize = 12;

/// `x − m`, with a mean for every few values of a norm over one dimension: the same number, which a layer rounds for each by itself. One rounding that moves
/// all values of a row weighs as much as all of them together, more than any other in a transformer, and noise is by what weighs most
/// (`docs/attacks.md`). Copies are made of the sum, so the layer has more values, not weights. `None` where the dimension is in no such parts.
fn centred_in_parts(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
) -> Result<Option<Activation>, Reject> {
    let (sizes, &[dim]) = (x.view.sizes(), dims) else { return Ok(None) };
    let size = sizes[dim];
    let Some(each) = (2..=SHARED).rev().find(|each| size.is_multiple_of(*each) && size > *each) else {
        return Ok(None);
    };
    // The dimension as two: parts, and values of a part.
    let split = |[parts, each]: [usize; 2]| {
        let mut split = sizes.clone();
        split.splice(dim..=dim, [parts, each]);
        split
    };
    let (whole, one) = (split([size / each, each]), split([1, 1]));
    let Some(view) = x.view.reshaped(&whole) else { return Ok(None) };
    let sums =
        reduced(builder, call, x, dims, true, |window| AveragePool { window, count_padding: true }.into())?;
    let Some(own) = sums.view.reshaped(&one) else { return Ok(None) };
    let copies = spread_to(builder, &call.name, &Activation::new(sums.node, own), &split([size / each, 1]))?;
    let less = copies.at(few(builder, call, copies.node, -1.0, 0.0)?);
    let made = plus(builder, call, Activation { view, ..x.clone() }, &less)?;
    let view = made.view.reshaped(&sizes);
    Ok(view.map(|view| Activation { view, ..made }))
}

/// `x / sqrt(mul·mean(x²) + add)`, the mean over these dimensions.
fn scaled(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
    of: [f32; 2],
) -> Result<Activation, Reject> {
    let mean = squares_mean(builder, call, x, dims, of)?;
    let inverse = powered(builder, call, &mean, -0.5, NORM_BANDS)?;
    only(product(builder, call, x, &inverse)?)
}

fn epsilon(call: &Call<'_>) -> Result<f32, Reject> {
    let epsilon = call.attribute_float("epsilon", 1e-5);
    let known = epsilon.is_finite() && epsilon >= 0.0;
    known.then_some(epsilon).ok_or_else(|| Reject::invalid("has an epsilon out of range"))
}

/// Refuses results beyond the first, which a training would take.
fn one_result(call: &Call<'_>) -> Result<(), Reject> {
    match call.proto.output.iter().skip(1).all(|name| name.is_empty()) {
        true => Ok(()),
        false => Err(Reject::unsupported("has the mean or the deviation as a result")),
    }
}

/// The factor at input 1 and the offset at input 2, if they are there, each as a constant of these sizes.
fn learned(
    builder: &mut Builder,
    call: &Call<'_>,
    x: Activation,
    dims: &dyn Fn(&Tensor) -> Option<Tensor>,
) -> Result<Vec<Value>, Reject> {
    let mut made = vec![Value::from(x)];
    for (index, map) in [(1, (|v| (v, 0.0)) as fn(f32) -> (f32, f32)), (2, |v| (1.0, v))] {
        if !call.has_input(index) {
            continue;
        }
        let wrong = || Reject::invalid("has parameters of another shape than what it scales");
        let constant = dims(call.constant(index)?).ok_or_else(wrong)?;
        made = affine(builder, call, &only(made)?, &constant, map)?;
    }
    Ok(made)
}

/// The dimensions from `axis` on.
fn from_axis(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, Reject> {
    let axis = wrap(call.attribute_int("axis", -1), rank);
    Ok((axis.ok_or_else(|| Reject::invalid("has an axis out of range"))?..rank).collect())
}

fn layer(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    one_result(call)?;
    let x = call.activation(0)?;
    let dims = from_axis(call, x.view.rank())?;
    let x = ready(builder, call, x, &dims, true)?;
    let y = scaled(builder, call, &x, &dims, [1.0, epsilon(call)?])?;
    by_place(builder, call, y)
}

/// [`learned`], of parameters as they are; over all of a value each element is a channel of its own.
fn by_place(builder: &mut Builder, call: &Call<'_>, x: Activation) -> Result<Vec<Value>, Reject> {
    let sizes = x.view.sizes();
    let count = sizes.iter().product();
    let each = (1..3).any(|i| call.constant(i).is_ok_and(|constant| constant.values.len() == count));
    let mut x = x;
    if each && let Some(view) = View::vector(count, 2).reshaped(&sizes) {
        x = Activation::new(materialise(builder, &call.name, &x, [count, 1, 1])?, view);
    }
    learned(builder, call, x, &|constant| Some(constant.clone()))
}

fn root_mean_square(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let dims = from_axis(call, x.view.rank())?;
    let x = ready(builder, call, x, &dims, false)?;
    let y = scaled(builder, call, &x, &dims, [1.0, epsilon(call)?])?;
    by_place(builder, call, y)
}

/// A constant of one number a channel, or fewer that are repeated, beside a value of this rank.
fn by_channel(constant: &Tensor, channels: usize, rank: usize) -> Option<Tensor> {
    let count = constant.values.len();
    let each = channels.checked_div(count).filter(|each| each * count == channels)?;
    let mut dims = vec![1; rank];
    dims[1] = channels;
    Some(constant.gathered(dims, (0..channels).map(|c| c / each)))
}

/// Of a value whose first two dimensions are the batch and channels.
fn channels(x: &Activation) -> Result<(usize, usize), Reject> {
    match x.view.sizes()[..] {
        [_, channels, _, ..] => Ok((channels, x.view.rank())),
        _ => Err(Reject::invalid("takes a value without places")),
    }
}

fn instance(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let (channels, rank) = channels(x)?;
    let dims: Vec<usize> = (2..rank).collect();
    let x = ready(builder, call, x, &dims, true)?;
    let y = scaled(builder, call, &x, &dims, [1.0, epsilon(call)?])?;
    learned(builder, call, y, &|constant| by_channel(constant, channels, rank))
}

fn group(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let (channels, rank) = channels(x)?;
    let groups = usize::try_from(call.attribute_int("num_groups", 0)).unwrap_or(0);
    let each = channels.checked_div(groups).filter(|each| each * groups == channels);
    let each = each.ok_or_else(|| Reject::invalid("has groups that do not divide its channels"))?;
    let sizes = x.view.sizes();
    let apart: Vec<usize> = [&[1, groups, each], &sizes[2..]].concat();
    let beyond = || Reject::unsupported("has channels in an order that cannot be made");
    let regrouped = Activation { view: x.view.reshaped(&apart).ok_or_else(beyond)?, ..x.clone() };
    let dims: Vec<usize> = (2..apart.len()).collect();
    let x = ready(builder, call, &regrouped, &dims, true)?;
    let mut y = scaled(builder, call, &x, &dims, [1.0, epsilon(call)?])?;
    y.view = y.view.reshaped(&sizes).ok_or_else(beyond)?;
    learned(builder, call, y, &|constant| by_channel(constant, channels, rank))
}

fn mean_variance(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let axes = call.attribute_ints("axes").unwrap_or(&[0, 2, 3]);
    let dims = reduced_dims(axes, x.view.rank())?;
    let x = ready(builder, call, x, &dims, true)?;
    Ok(vec![scaled(builder, call, &x, &dims, [1.0, 0.0])?.into()])
}

/// A vector through its length.
fn length(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if call.attribute_int("p", 2) != 2 {
        return Err(Reject::instead(
            "divides by a sum of absolute values (p = 1)",
            "Only p = 2, the length, is supported",
        ));
    }
    let x = call.activation(0)?;
    let axis = reduced_dims(&[call.attribute_int("axis", -1)], x.view.rank())?;
    let count = x.view.sizes()[axis[0]];
    let x = ready(builder, call, x, &axis, false)?;
    Ok(vec![scaled(builder, call, &x, &axis, [count as f32, 0.0])?.into()])
}

/// `x·(bias + alpha/size·Σ x²)^(−beta)`, the sum over channels beside each.
fn local_response(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    /// Where what is added is not small beside the sum, two bands go as far as three.
    const BANDS: u32 = 2;
    let size = usize::try_from(call.attribute_int("size", 0)).unwrap_or(0);
    let number = |name: &str, default: f32| call.attribute_float(name, default);
    let [alpha, beta, bias] = [number("alpha", 1e-4), number("beta", 0.75), number("bias", 1.0)];
    let positive = [alpha, beta, bias].iter().all(|p| p.is_finite() && *p >= 0.0);
    if size == 0 || !positive || beta == 0.0 {
        return Err(Reject::invalid("has parameters out of range"));
    }
    let node = builder.image(call, call.activation(0)?)?;
    let shape = builder.shape(node);
    let x = Activation::new(node, builder.image_view(call, node));
    let squares = square(builder, call, &x)?;
    let columns = reshaped(builder, &call.name, squares.node, [1, shape[0], shape[1] * shape[2]])?;
    let (before, after) = ((size - 1) / 2, size / 2);
    let window = Window { kernel: [size, 1], stride: [1, 1], pads: [before, 0, after, 0] };
    let means =
        builder.push(&call.name, AveragePool { window, count_padding: true }, vec![columns], [0; 3])?;
    let sums = few(builder, call, means, alpha, bias)?;
    let sums = reshaped(builder, &call.name, sums, shape)?;
    let factor = powered(builder, call, &x.at(sums), -f64::from(beta), BANDS)?;
    let op = Product { gain: 1.0, offsets: [0.0; 2] };
    let made = builder.push(&call.name, op, vec![node, factor.node], shape)?;
    Ok(activation(made, x.view))
}

/// Sums of squares over an operator's axes.
fn squares(builder: &mut Builder, call: &Call<'_>) -> Result<Activation, Reject> {
    let x = call.activation(0)?;
    let axes = call.ints("axes", 1)?.unwrap_or_default();
    if axes.is_empty() && call.attribute_int("noop_with_empty_axes", 0) != 0 {
        return square(builder, call, x);
    }
    let dims = reduced_dims(&axes, x.view.rank())?;
    let sizes = x.view.sizes();
    let count: usize = dims.iter().map(|&d| sizes[d]).product();
    let mut sums = squares_mean(builder, call, x, &dims, [count as f32, 0.0])?;
    if call.attribute_int("keepdims", 1) == 0 {
        let kept = sizes.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, &size)| size);
        let view = sums.view.reshaped(&kept.collect::<Vec<_>>());
        sums.view = view.ok_or_else(|| Reject::unsupported("drops dimensions that cannot be dropped"))?;
    }
    Ok(sums)
}

fn reduce_squares(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    Ok(vec![squares(builder, call)?.into()])
}

fn reduce_length(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let sums = squares(builder, call)?;
    Ok(vec![powered(builder, call, &sums, 0.5, NORM_BANDS)?.into()])
}
