//! Softmax inside a network, as operations that there are: the largest value is a max-pool, e^x a curve, the sum a mean and a layer of
//! few values, its inverse a [power](crate::float::Power) in bands, and the scaling a product.
//!
//! ```text
//! t = max(x) − x,   y = e^(−t) · (Σ e^(−t))^(−1)
//! ```
//!
//! t is nowhere below zero, so the sum is at least 1. e^(−t) is one curve ([`Decay`]), and level where t is beyond it. Of two
//! values a softmax is the sigmoid of their difference. At the model's end the client does it.

use super::onnx::product;
use crate::float::{
    Affine, Bias, Curve, Decay, Function, MatrixProduct, MaxPool, Node, Power, Primitive, Product,
};
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value};
use crate::import::finish;
use crate::import::moves::{reshaped, select, select_axes};
use crate::import::tensor::wrap;
use crate::import::windows::reduced;
use crate::network::NodeId;
use crate::ops::add::onnx::minus;
use crate::ops::curve::onnx::NORM_BANDS;
use crate::ops::difference::onnx::less;
use crate::ops::linear::affine::{few, masked as masked_values};
use crate::ops::sum_pool::onnx::means;

pub(crate) const ONNX: &[(&str, Build)] = &[("LogSoftmax", log_softmax), ("Softmax", softmax)];

/// The dimensions that it runs over, and, where these are not all of the value, over how many values and how far these lie apart.
fn dims_of(call: &Call<'_>, x: &Activation) -> Result<(Vec<usize>, Option<[usize; 2]>), Reject> {
    let rank = x.view.rank();
    let old_rules = call.opset < 13;
    let axis = wrap(call.attribute_int("axis", if old_rules { 1 } else { -1 }), rank);
    let axis = axis.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    // Before opset 13 it runs over everything from the axis on.
    let dims: Vec<usize> = if old_rules { (axis..rank).collect() } else { vec![axis] };
    let whole = if old_rules { x.view.is_everything_from(axis) } else { x.view.is_everything(axis) };
    let sizes = x.view.sizes();
    let [size, apart] = [&sizes[axis..axis + dims.len()], &sizes[axis + dims.len()..]];
    Ok((dims, (!whole).then(|| [size, apart].map(|sizes| sizes.iter().product()))))
}

fn log_softmax(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (_, by_place) = dims_of(call, call.activation(0)?)?;
    match call.ends() {
        true => finish::softmax(call, by_place),
        false => Err(Reject::instead(
            "runs inside the network",
            "At the end it is supported, and a Softmax is everywhere",
        )),
    }
}

fn softmax(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let (dims, by_place) = dims_of(call, x)?;
    if call.ends() {
        return finish::softmax(call, by_place);
    }
    Ok(vec![over(builder, call, x, &dims)?.into()])
}

/// Softmax over some dimensions that follow each other.
pub(crate) fn over(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
) -> Result<Activation, Reject> {
    let sizes = x.view.sizes();
    let count: usize = dims.iter().map(|&d| sizes[d]).product();
    let masked = unmasked(builder, call, x, dims)?;
    let (x, kept) = match &masked {
        Some((x, kept)) => (x, Some(kept)),
        None => (x, None),
    };
    let apart;
    let x = match of_products(builder, x.node) {
        true => {
            apart = x.at(few(builder, call, x.node, 1.0, 0.0)?);
            &apart
        }
        false => x,
    };
    if let (2, Some(&dim), None) = (count, dims.iter().find(|&&d| sizes[d] == 2), kept) {
        let other = select(builder, call, x, dim, &[1, 0])?;
        let more = minus(builder, call, x, &other)?;
        let function = Function::Of(Primitive::Sigmoid, Box::new(Function::Value));
        return curved(builder, call, &more, function);
    }
    let largest = reduced(builder, call, x, dims, true, |window| MaxPool(window).into())?;
    // (Moved where there are few of them, and subtracted by each party alone.)
    let moved = largest.at(few(builder, call, largest.node, 1.0, -Decay::MOVED)?);
    let below = less(builder, call, &moved, x)?;
    let shape = builder.shape(below.node);
    let mut exponentials = below.at(builder.push(&call.name, Decay, vec![below.node], shape)?);
    if let Some(kept) = kept {
        let kept = in_order_of(&exponentials, kept);
        exponentials = exponentials.at(masked_values(builder, call, exponentials.node, &kept)?);
    }
    let sums = means(builder, call, &exponentials, dims, [count as f32, 0.0])?;
    let shape = builder.shape(sums.node);
    let inverse = sums.at(builder.push(&call.name, Power::of(-1.0, NORM_BANDS), vec![sums.node], shape)?);
    match product(builder, call, &exponentials, &inverse)?.pop() {
        Some(Value::Activation(made)) => Ok(made),
        _ => Err(Reject::Follows),
    }
}

/// Whether these are scores of queries and keys that are products themselves, as each through its length. Then a scale follows from factors' on
/// either side, and the clips of a softmax could have none of their own but behind a layer.
fn of_products(builder: &Builder, node: NodeId) -> bool {
    let origin = |mut node: NodeId| {
        // (A factor of all scores, as a temperature, becomes part of the product.)
        let factor =
            |affine: &Affine| affine.add.is_zero() && affine.mul.iter().all(|&mul| mul == affine.mul[0]);
        while let Node { op, inputs, .. } = &builder.nodes[node]
            && (op.moves() || op.downcast_ref().is_some_and(factor))
            && let [input] = inputs[..]
        {
            node = input;
        }
        &builder.nodes[node]
    };
    let Node { op, inputs, .. } = origin(node);
    op.is::<MatrixProduct>() && inputs.iter().all(|&input| origin(input).op.is::<Product>())
}

/// What is so low that it leaves a place out: e^(−100) is below 2^(−144).
const MASKED: f32 = -100.0;

/// The value before a mask was added, where that is the last thing done to it, and by element of the ONNX tensor which are kept. What is
/// masked becomes one of those that are not, so that it changes no extreme; the caller takes its exponentials away.
fn unmasked(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
) -> Result<Option<(Activation, Vec<bool>)>, Reject> {
    let Node { op, inputs, shape, .. } = &builder.nodes[x.node];
    let (Some(Affine { mul, add }), &[before], &shape) = (op.downcast_ref(), &inputs[..], shape) else {
        return Ok(None);
    };
    let mut added = add.spread(shape);
    if !added.iter().any(|&v| v <= MASKED) {
        return Ok(None);
    }
    let here: Vec<bool> = added.iter().map(|&v| v > MASKED).collect();
    added.iter_mut().filter(|v| **v <= MASKED).for_each(|v| *v = 0.0);
    let identity = mul.iter().all(|&mul| mul == 1.0) && added.iter().all(|&v| v == 0.0);
    let mul = mul.clone();
    let node = match identity {
        true => before,
        false => {
            builder.push(&call.name, Affine { mul, add: Bias::PerElement(added) }, vec![before], shape)?
        }
    };
    let positions = x.view.positions();
    let kept: Vec<bool> = positions.iter().map(|&at| here[at]).collect();
    let sizes = x.view.sizes();
    let (first, last) = (dims[0], dims[dims.len() - 1]);
    let inner: usize = sizes[last + 1..].iter().product();
    let count: usize = sizes[first..=last].iter().product();
    let mut picks: Vec<Option<usize>> = vec![None; positions.len()];
    builder.list(positions.len())?;
    for row in 0..positions.len() / count {
        let place = |step: usize| (row / inner * count + step) * inner + row % inner;
        let stays = (0..count).map(place).find(|&at| kept[at]);
        let stays = stays.ok_or_else(|| Reject::unsupported("leaves out all of what it runs over"))?;
        for at in (0..count).map(place) {
            picks[positions[at]] = Some(positions[if kept[at] { at } else { stays }]);
        }
    }
    let flat = reshaped(builder, &call.name, node, [1, 1, positions.len()])?;
    let picked = select_axes(builder, &call.name, flat, [Vec::new(), Vec::new(), picks])?;
    let node = reshaped(builder, &call.name, picked, shape)?;
    Ok(Some((x.at(node), kept)))
}

/// By element of its node, what is given by element of the ONNX tensor.
fn in_order_of(x: &Activation, kept: &[bool]) -> Vec<bool> {
    let mut here = vec![false; kept.len()];
    x.view.positions().into_iter().zip(kept).for_each(|(at, &kept)| here[at] = kept);
    here
}

fn curved(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    function: Function,
) -> Result<Activation, Reject> {
    let shape = builder.shape(x.node);
    Ok(x.at(builder.push(&call.name, Curve { function }, vec![x.node], shape)?))
}
