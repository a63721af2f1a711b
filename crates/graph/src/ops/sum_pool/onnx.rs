//! From ONNX's means and sums over places.

use super::float::AveragePool;
use crate::float::Op;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation};
use crate::import::windows::{global_pool, pool_window, reduce, reduced};
use crate::network::{Rearrange, Window};
use crate::ops::linear::affine::{few, mapped};

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("AveragePool", average_pool),
    ("GlobalAveragePool", |builder, call| global_pool(builder, call, mean)),
    ("ReduceMean", |builder, call| reduce(builder, call, mean, divided)),
    ("ReduceSum", reduce_sum),
];

/// The division of a mean, where nothing may come that takes it: a layer of few values.
fn divided(builder: &mut Builder, call: &Call<'_>, mean: Activation) -> Result<Activation, Reject> {
    let node = few(builder, call, mean.node, 1.0, 0.0)?;
    Ok(mean.at(node))
}

/// `mul·m + add` of the means of values that differ in these dimensions alone, which keep the size one.
pub(crate) fn means(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
    [mul, add]: [f32; 2],
) -> Result<Activation, Reject> {
    let sums = reduced(builder, call, x, dims, true, mean)?;
    let node = few(builder, call, sums.node, mul, add)?;
    Ok(sums.at(node))
}

/// Of whole rows, columns or images.
fn mean(window: Window) -> Op {
    AveragePool { window, count_padding: true }.into()
}

fn average_pool(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let mut node = builder.image(call, call.activation(0)?)?;
    let (mut window, beyond) = pool_window(call, builder.shape(node))?;
    let mut count_padding = call.attribute_int("count_include_pad", 0) != 0 || window.pads == [0; 4];
    if count_padding && beyond != [0; 2] {
        // The given padding counts, what rounding up added to it does not: make the given part real zeros.
        let [top, left, bottom, right] = window.pads;
        let before = [0, top, left];
        let after = [0, bottom - beyond[0], right - beyond[1]];
        if before != [0; 3] || after != [0; 3] {
            node = builder.push(&call.name, Rearrange::Pad { before, after }, vec![node], [0; 3])?;
        }
        window.pads = [0, 0, beyond[0], beyond[1]];
        count_padding = false;
    }
    let node = builder.push(&call.name, AveragePool { window, count_padding }, vec![node], [0; 3])?;
    Ok(builder.made(call, node))
}

/// A mean, times how many it is of.
fn reduce_sum(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let made = reduce(builder, call, mean, divided)?;
    let [Value::Activation(mean)] = &made[..] else { return Ok(made) };
    let elements = |x: &Activation| x.view.sizes().iter().product::<usize>();
    let of = elements(call.activation(0)?) / elements(mean);
    let node = mapped(builder, call, mean.node, of as f32, 0.0)?;
    Ok(activation(node, mean.view.clone()))
}
