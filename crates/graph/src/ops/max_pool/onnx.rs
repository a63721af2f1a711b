//! From ONNX's maxima over places.

use super::float::MaxPool;
use crate::import::build::{Build, Builder, Call, Reject, Value};
use crate::import::windows::{global_pool, pool_window, reduce};

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("GlobalMaxPool", |builder, call| global_pool(builder, call, |window| MaxPool(window).into())),
    ("MaxPool", max_pool),
    ("ReduceMax", |builder, call| {
        reduce(builder, call, |window| MaxPool(window).into(), |_, _, largest| Ok(largest))
    }),
];

fn max_pool(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let node = builder.image(call, call.activation(0)?)?;
    let (window, _) = pool_window(call, builder.shape(node))?;
    let node = builder.push(&call.name, MaxPool(window), vec![node], [0; 3])?;
    Ok(builder.made(call, node))
}
