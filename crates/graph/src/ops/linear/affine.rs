//! Maps `x·mul + add`, which become parts of linear layers: what ONNX has of them, and what other operators' translations need.

use crate::float::{Affine, Bias, Linear};
use crate::import::build::{Activation, Builder, Call, Reject, Value};
use crate::import::build::{activation, finite, only_reshapes};
use crate::import::moves::{channels_first, materialise, reshaped, select_axes, widened};
use crate::import::tensor::{Tensor, broadcast, broadcast_positions};
use crate::import::view::View;
use crate::network::NodeId;
use crate::onnx::Values;

/// `x·mul + add` with constants given in the ONNX tensor's shape.
pub(crate) fn affine(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    constant: &Tensor,
    map: impl Fn(f32) -> (f32, f32),
) -> Result<Vec<Value>, Reject> {
    let values = finite(constant)?;
    let sizes = x.view.sizes();
    let wide = broadcast(&sizes, &constant.dims)
        .ok_or_else(|| Reject::invalid("has a constant whose shape does not go with the value's"))?;
    let x = &widened(builder, call, x, &wide)?;
    let view = x.view.clone();
    let shape = builder.shape(x.node);
    let plane = shape[1] * shape[2];

    // By channel of the node, if the constant is the same all over each.
    let offset = wide.len() - constant.dims.len();
    let varying: Vec<usize> =
        (0..constant.dims.len()).filter(|&d| constant.dims[d] > 1).map(|d| d + offset).collect();
    let (mul, add): (Vec<f32>, Bias) = match varying[..] {
        [] => {
            let (mul, add) = map(values[0]);
            (vec![mul; shape[0]], Bias::PerChannel(vec![add; shape[0]]))
        }
        [dim] if view.is_channels(dim, shape) => {
            let (mul, add): (Vec<f32>, Vec<f32>) = values.iter().map(|&v| map(v)).unzip();
            (mul, Bias::PerChannel(add))
        }
        _ => {
            let mut by_element = vec![(0.0, 0.0); shape.iter().product()];
            for (from, to) in broadcast_positions(&constant.dims, &wide).into_iter().zip(view.positions()) {
                by_element[to] = map(values[from]);
            }
            let mul: Vec<f32> = by_element.iter().step_by(plane).map(|v| v.0).collect();
            if by_element.chunks_exact(plane).zip(&mul).any(|(plane, mul)| plane.iter().any(|v| v.0 != *mul))
            {
                if by_element.iter().all(|&v| v == (1.0, 0.0) || v == (0.0, 0.0)) {
                    let kept: Vec<bool> = by_element.iter().map(|v| v.0 == 1.0).collect();
                    return Ok(activation(masked(builder, call, x.node, &kept)?, view));
                }
                // A factor for each of the last dimension's indices is one of a layer's features, which become the channels. (Others, as a
                // detector's numbers of anchors, are arithmetic that the answer's reader does.)
                let last = wide.len() - 1;
                if constant.dims.len() == 1 && !view.is_everything(last) {
                    let moved = channels_first(builder, &call.name, x, &[last])?;
                    return affine(builder, call, &moved, constant, map);
                }
                return Err(Reject::instead(
                    "multiplies by a constant that varies within a channel",
                    "One number a channel is supported; one a place, where it can be made part of the weights of a layer",
                ));
            }
            (mul, Bias::PerElement(by_element.into_iter().map(|v| v.1).collect()))
        }
    };
    let (Bias::PerChannel(adds) | Bias::PerElement(adds)) = &add;
    if !mul.iter().chain(adds).all(|v| v.is_finite()) {
        return Err(Reject::invalid("divides by zero"));
    }
    let node = builder.push(&call.name, Affine { mul, add }, vec![x.node], shape)?;
    Ok(activation(node, view))
}

/// A node's values, zero where they are not kept: a selection.
pub(crate) fn masked(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    kept: &[bool],
) -> Result<NodeId, Reject> {
    builder.list(kept.len())?;
    let picks = kept.iter().enumerate().map(|(at, kept)| kept.then_some(at)).collect();
    let shape = builder.shape(node);
    let flat = reshaped(builder, &call.name, node, [1, 1, kept.len()])?;
    let made = select_axes(builder, &call.name, flat, [Vec::new(), Vec::new(), picks])?;
    reshaped(builder, &call.name, made, shape)
}

pub(crate) fn scaled(builder: &mut Builder, call: &Call<'_>, by: f32) -> Result<Vec<Value>, Reject> {
    let one = Tensor { dims: Vec::new(), values: Values::Float(vec![by]) };
    affine(builder, call, call.activation(0)?, &one, |v| (v, 0.0))
}

fn finite_map(mul: f32, add: f32) -> Result<(), Reject> {
    match mul.is_finite() && add.is_finite() {
        true => Ok(()),
        false => Err(Reject::invalid("has a parameter that is not finite")),
    }
}

/// `x·mul + add` for a node's value.
pub(crate) fn mapped(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    mul: f32,
    add: f32,
) -> Result<NodeId, Reject> {
    finite_map(mul, add)?;
    if (mul, add) == (1.0, 0.0) {
        return Ok(node);
    }
    let shape = builder.shape(node);
    let affine = Affine { mul: vec![mul; shape[0]], add: Bias::PerChannel(vec![add; shape[0]]) };
    builder.push(&call.name, affine, vec![node], shape)
}

/// `x·mul + add` of few values, as a layer of their own: a map would be moved to where there may be many of them.
pub(crate) fn few(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    mul: f32,
    add: f32,
) -> Result<NodeId, Reject> {
    finite_map(mul, add)?;
    let shape = builder.shape(node);
    let flat = reshaped(builder, &call.name, node, [1, 1, shape.iter().product()])?;
    let layer = Linear { bias: Bias::PerChannel(vec![add]), ..Linear::depthwise(1, [1, 1], vec![mul]) };
    let made = builder.push(&call.name, layer, vec![flat], [0; 3])?;
    reshaped(builder, &call.name, made, shape)
}

/// The node of `-x`.
pub(crate) fn negative(builder: &mut Builder, call: &Call<'_>, x: &Activation) -> Result<NodeId, Reject> {
    mapped(builder, call, x.node, -1.0, 0.0)
}

pub(crate) fn batch_normalization(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    // Until opset 13, results beyond the first mean training.
    let results = call.proto.output.iter().filter(|name| !name.is_empty()).count();
    if call.attribute_int("training_mode", 0) != 0 || results > 1 {
        return Err(Reject::instead(
            "is in training mode: it would normalise by the batch's own mean and variance",
            "Export the model in evaluation mode (in PyTorch: model.eval() before torch.onnx.export)",
        ));
    }
    if call.opset < 9 && call.attribute_int("spatial", 1) != 1 {
        return Err(Reject::instead(
            "has parameters by place (spatial = 0)",
            "Parameters by channel are supported",
        ));
    }
    let epsilon = f64::from(call.attribute_float("epsilon", 1e-5));
    let parameter = |index| finite(call.constant(index)?);
    let (scale, shift, mean, variance) = (parameter(1)?, parameter(2)?, parameter(3)?, parameter(4)?);
    let sizes = x.view.sizes();
    let channels = sizes.get(1).copied().unwrap_or(0);
    if [&scale, &shift, &mean, &variance].iter().any(|p| p.len() != channels) {
        return Err(Reject::invalid("has parameters of another number than channels"));
    }
    // Dimension 1 must be the node's channels.
    let moved = if x.view.is_channels(1, builder.shape(x.node)) {
        x.clone()
    } else if let [1, len] = sizes[..] {
        let node = materialise(builder, &call.name, x, [len, 1, 1])?;
        Activation::new(node, View::vector(len, 2))
    } else {
        let node = builder.image(call, x)?;
        Activation::new(node, builder.image_view(call, node))
    };
    let mul: Vec<f64> =
        scale.iter().zip(&variance).map(|(&s, &v)| f64::from(s) / (f64::from(v) + epsilon).sqrt()).collect();
    let add =
        shift.iter().zip(&mean).zip(&mul).map(|((&b, &m), mul)| (f64::from(b) - f64::from(m) * mul) as f32);
    let add = Bias::PerChannel(add.collect());
    let mul: Vec<f32> = mul.into_iter().map(|v| v as f32).collect();
    let (Bias::PerChannel(adds) | Bias::PerElement(adds)) = &add;
    if !mul.iter().chain(adds).all(|v| v.is_finite()) {
        return Err(Reject::invalid("has a variance that is not positive"));
    }
    let shape = builder.nodes[moved.node].shape;
    let node = builder.push(&call.name, Affine { mul, add }, vec![moved.node], shape)?;
    Ok(activation(node, moved.view))
}

/// A constant that is added right before a softmax: minus infinity, which leaves a place out of it, becomes the lowest number.
pub(crate) fn for_softmax(call: &Call<'_>, constant: &Tensor) -> Tensor {
    let before = |taker: &&str| *taker == "Softmax" || only_reshapes(taker);
    let mut constant = constant.clone();
    if let Values::Float(values) = &mut constant.values
        && !call.takers.is_empty()
        && call.takers.iter().all(before)
    {
        values.iter_mut().filter(|v| **v == f32::NEG_INFINITY).for_each(|v| *v = f32::MIN);
    }
    constant
}

/// A map by a constant, where one of two inputs is one: behind the value it makes a map, before it another.
pub(crate) fn with_constant(
    builder: &mut Builder,
    call: &Call<'_>,
    [behind, before]: [fn(f32) -> (f32, f32); 2],
) -> Result<Option<Vec<Value>>, Reject> {
    match (call.input(0)?, call.input(1)?) {
        (Value::Activation(_), Value::Constant(c)) => {
            affine(builder, call, call.activation(0)?, c, behind).map(Some)
        }
        (Value::Constant(c), Value::Activation(_)) => {
            affine(builder, call, call.activation(1)?, c, before).map(Some)
        }
        _ => Ok(None),
    }
}
