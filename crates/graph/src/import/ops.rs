//! The builders: what each ONNX operator becomes.

use std::sync::Arc;

use super::constant::{self, SliceRange, Tensor, broadcast, broadcast_positions, slice_indices, wrap};
use super::refusal::{NORM, instead};
use super::view::View;
use super::{Activation, Builder, Call, Reject, Value, finite, non_negative, refusal};
use crate::float::{
    Add, Affine, AveragePool, Bias, Clip, Concat, Input, Linear, MaxPool, Op, Prelu, Product, Relu,
};
use crate::network::{self, Finish, NodeId, Rearrange, Shape, Window};
use crate::onnx::Values;

type Build = fn(&mut Builder, &Call<'_>) -> Result<Vec<Value>, Reject>;

/// From operator name to builder.
pub(super) const TABLE: &[(&str, Build)] = &[
    ("Abs", |builder, call| sloped(builder, call, -1.0)),
    ("Add", add),
    ("AveragePool", average_pool),
    ("BatchNormalization", batch_normalization),
    ("Cast", identity),
    ("Clip", clip),
    ("Concat", concat),
    ("Conv", conv),
    ("ConvTranspose", conv_transpose),
    ("DepthToSpace", depth_to_space),
    ("DequantizeLinear", dequantize_linear),
    ("Div", |builder, call| arithmetic(builder, call)),
    ("Dropout", dropout),
    ("Expand", expand),
    ("Flatten", flatten),
    ("Gather", gather),
    ("GatherND", gather_nd),
    ("Gemm", gemm),
    ("GlobalAveragePool", |builder, call| global_pool(builder, call, false)),
    ("GlobalMaxPool", |builder, call| global_pool(builder, call, true)),
    ("HardSigmoid", hard_sigmoid),
    ("HardSwish", hard_swish),
    ("Identity", identity),
    ("LeakyRelu", |builder, call| sloped(builder, call, call.attribute_float("alpha", 0.01))),
    ("LogSoftmax", softmax),
    ("MatMul", mat_mul),
    ("Max", |builder, call| bound(builder, call, false)),
    ("MaxPool", max_pool),
    ("Min", |builder, call| bound(builder, call, true)),
    ("Mul", |builder, call| arithmetic(builder, call)),
    ("Neg", |builder, call| scaled(builder, call, -1.0)),
    ("PRelu", prelu),
    ("Pad", pad),
    ("Pow", pow),
    ("QuantizeLinear", quantize_linear),
    ("ReduceMax", |builder, call| reduce(builder, call, true)),
    ("ReduceMean", |builder, call| reduce(builder, call, false)),
    ("ReduceSum", reduce_sum),
    ("Relu", |builder, call| elementwise(builder, call, Relu)),
    ("Reshape", reshape),
    ("Resize", resize),
    ("Shape", shape_of),
    ("Size", size_of),
    ("Shrink", shrink),
    ("Sigmoid", sigmoid),
    ("Slice", slice),
    ("Softmax", softmax),
    ("SpaceToDepth", space_to_depth),
    ("Split", split),
    ("Squeeze", squeeze),
    ("Sub", |builder, call| arithmetic(builder, call)),
    ("Sum", add),
    ("ThresholdedRelu", thresholded_relu),
    ("Transpose", transpose),
    ("Unsqueeze", unsqueeze),
    ("Upsample", resize),
];

/// Whether an operator at most gives its first input another shape.
pub(super) fn only_reshapes(operator: &str) -> bool {
    const RESHAPES: [&str; 10] = [
        "Cast",
        "DequantizeLinear",
        "Dropout",
        "Flatten",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ];
    RESHAPES.contains(&operator)
}

fn activation(node: NodeId, view: View) -> Vec<Value> {
    vec![Value::Activation(Activation::new(node, view))]
}

/// Moves values until the node's order is the ONNX tensor's and its shape is `shape`; `shape` must have as many
/// elements. Costs nothing where that holds already.
pub(super) fn materialise(
    builder: &mut Builder,
    name: &str,
    value: &Activation,
    shape: Shape,
) -> Result<NodeId, Reject> {
    let mut node = value.node;
    let own = builder.nodes[node].shape;
    if !value.view.in_order() {
        builder.list(own.iter().sum())?;
        if let Some(axes) = value.view.by_axis_order(own) {
            node = builder.push(name, selection(axes.map(picks), own), vec![node], own)?;
        } else {
            for (grouped, perm) in value.view.moves() {
                if grouped != builder.nodes[node].shape {
                    node = builder.push(name, Rearrange::Reshape, vec![node], grouped)?;
                }
                node = builder.push(name, Rearrange::Transpose { perm }, vec![node], [0; 3])?;
            }
        }
    }
    if builder.nodes[node].shape != shape {
        node = builder.push(name, Rearrange::Reshape, vec![node], shape)?;
    }
    Ok(node)
}

fn picks(indices: Vec<usize>) -> Vec<Option<usize>> {
    indices.into_iter().map(Some).collect()
}

/// The simplest operation that picks these indices of a value of this shape.
pub(super) fn selection(mut axes: [Vec<Option<usize>>; 3], from: Shape) -> Rearrange {
    for (picks, size) in axes.iter_mut().zip(from) {
        if picks.iter().copied().eq((0..size).map(Some)) {
            picks.clear();
        }
    }
    let (mut start, mut step) = ([0; 3], [1; 3]);
    for (axis, picks) in axes.iter().enumerate().filter(|(_, picks)| !picks.is_empty()) {
        let Some(Some(first)) = picks.first().copied() else { return Rearrange::Select { axes } };
        start[axis] = first;
        if let Some(Some(second)) = picks.get(1).copied() {
            step[axis] = second.saturating_sub(first);
        }
        let regular = (0..picks.len()).map(|i| Some(first + i * step[axis]));
        if step[axis] == 0 || !picks.iter().copied().eq(regular) {
            return Rearrange::Select { axes };
        }
    }
    Rearrange::Slice { start, step }
}

/// Picks indices axis by axis, of a node.
fn select_axes(
    builder: &mut Builder,
    name: &str,
    node: NodeId,
    axes: [Vec<Option<usize>>; 3],
) -> Result<NodeId, Reject> {
    let from = builder.nodes[node].shape;
    let mut to = from;
    for (to, picks) in to.iter_mut().zip(&axes).filter(|(_, picks)| !picks.is_empty()) {
        *to = picks.len();
    }
    match selection(axes, from) {
        Rearrange::Slice { step: [1, 1, 1], .. } if from == to => Ok(node),
        op => builder.push(name, op, vec![node], to),
    }
}

/// Picks indices of one ONNX dimension.
fn select(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dim: usize,
    indices: &[usize],
) -> Result<Activation, Reject> {
    if indices.iter().copied().eq(0..x.view.sizes()[dim]) {
        return Ok(x.clone());
    }
    let own = builder.nodes[x.node].shape;
    builder.list(x.view.count_of_selected(own, dim, indices.len()).unwrap_or(indices.len()))?;
    let mut axes: [Vec<Option<usize>>; 3] = Default::default();
    if let Some((axis, indices, view)) = x.view.selected(own, dim, indices) {
        axes[axis] = picks(indices);
        let node = select_axes(builder, &call.name, x.node, axes)?;
        return Ok(Activation::new(node, view));
    }
    let (node, layout) = laid_out(builder, call, x)?;
    let axis = dim.checked_sub(1).and_then(|d| layout.get(d).copied());
    let axis = axis.ok_or_else(|| Reject::unsupported("changes the batch"))?;
    axes[axis] = picks(indices.to_vec());
    let node = select_axes(builder, &call.name, node, axes)?;
    let view = View::with_layout(builder.nodes[node].shape, &layout);
    Ok(Activation::new(node, view))
}

/// A node for an operator that works dimension by dimension, and its axis of each dimension after the batch.
fn laid_out(builder: &mut Builder, call: &Call<'_>, x: &Activation) -> Result<(NodeId, Vec<usize>), Reject> {
    if let Some(layout) = x.view.layout(builder.nodes[x.node].shape) {
        return Ok((x.node, layout));
    }
    let shape = match x.view.sizes()[..] {
        [1, c, h, w] => [c, h, w],
        [1, c, h] => [c, h, 1],
        [1, c] => [c, 1, 1],
        _ => return Err(Reject::unsupported("its input is flattened or regrouped")),
    };
    let node = materialise(builder, &call.name, x, shape)?;
    Ok((node, (0..x.view.rank() - 1).collect()))
}

/// A node whose axes are the ONNX dimensions `[1, C, H, W]`.
fn as_image(builder: &mut Builder, call: &Call<'_>, value: &Activation) -> Result<NodeId, Reject> {
    match value.view.sizes()[..] {
        [1, c, h, w] => materialise(builder, &call.name, value, [c, h, w]),
        ref sizes => Err(Reject::Unsupported {
            reason: format!("its input of shape {sizes:?} is no image [1, C, H, W]"),
            instead: "Only two-dimensional layers are supported".into(),
        }),
    }
}

fn identity(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    Ok(vec![call.input(0)?.clone()])
}

fn dropout(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if call.has_input(2) && call.constant_ints(2)? != [0] {
        return Err(Reject::instead(
            "is in training mode: it would drop values by chance",
            "Export the model in evaluation mode (in PyTorch: model.eval() before torch.onnx.export)",
        ));
    }
    identity(builder, call)
}

pub(super) fn constant(call: &Call<'_>) -> Result<Tensor, Reject> {
    if let Some(tensor) = call.attribute_tensor("value")? {
        return Ok(tensor);
    }
    let scalar = |values| Tensor { dims: Vec::new(), values };
    for attribute in &call.proto.attribute {
        return Ok(match attribute.name() {
            "value_float" => scalar(Values::Float(vec![attribute.f.unwrap_or(0.0)])),
            "value_int" => scalar(Values::Int(vec![attribute.i.unwrap_or(0)])),
            "value_floats" => {
                Tensor { dims: vec![attribute.floats.len()], values: Values::Float(attribute.floats.clone()) }
            }
            "value_ints" => Tensor::ints(attribute.ints.clone()),
            _ => continue,
        });
    }
    Err(Reject::unsupported("a constant that is no tensor of numbers"))
}

fn shape_of(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let sizes = call.activation(0)?.view.sizes();
    let rank = sizes.len() as i64;
    let bound = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
    let (start, end) = (bound(call.attribute_int("start", 0)), bound(call.attribute_int("end", rank)));
    let part = sizes.get(start..end).unwrap_or(&[]);
    Ok(vec![Value::Constant(Arc::new(Tensor::ints(part.iter().map(|&s| s as i64).collect())))])
}

fn size_of(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let size = call.activation(0)?.view.sizes().iter().product::<usize>() as i64;
    Ok(vec![Value::Constant(Arc::new(Tensor { dims: Vec::new(), values: Values::Int(vec![size]) }))])
}

fn elementwise(builder: &mut Builder, call: &Call<'_>, op: impl Into<Op>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let node = builder.push(&call.name, op, vec![x.node], [0; 3])?;
    Ok(activation(node, x.view.clone()))
}

fn clip(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let bound = |name: &str, index: usize, default: f32| -> Result<f32, Reject> {
        if call.has_input(index) {
            return scalar(call.constant(index)?);
        }
        Ok(call.attribute_float(name, default))
    };
    let (min, max) = (bound("min", 1, f32::NEG_INFINITY)?, bound("max", 2, f32::INFINITY)?);
    let x = call.activation(0)?;
    let node = clamped(builder, call, x.node, min, max)?;
    Ok(activation(node, x.view.clone()))
}

fn scalar(constant: &Tensor) -> Result<f32, Reject> {
    match constant.to_floats()[..] {
        [value] => Ok(value),
        _ => Err(Reject::unsupported("has a bound that is no single number")),
    }
}

/// A node's value between two bounds: a ReLU or a clip from 0, moved.
fn clamped(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    min: f32,
    max: f32,
) -> Result<NodeId, Reject> {
    /// A bound that no value of a trained network reaches.
    const BEYOND: f32 = 1e6;
    if min.is_nan() || max.is_nan() || min >= max {
        return Err(Reject::Unsupported {
            reason: format!("clips to {min}..{max}"),
            instead: "The lower bound must be below the upper one".into(),
        });
    }
    let shape = builder.nodes[node].shape;
    let from_zero = non_negative(&builder.nodes, node, 8);
    let low = Some(min).filter(|low| *low >= -BEYOND && !(from_zero && *low <= 0.0));
    let high = Some(max).filter(|high| *high <= BEYOND);
    // (sign, offset): the operation is on sign·x + offset.
    let (sign, offset, op) = match (low, high) {
        (None, None) => return Ok(node),
        (Some(low), None) => (1.0, -low, Op::new(Relu)),
        (Some(low), Some(high)) => (1.0, -low, Clip { ceiling: high - low }.into()),
        (None, Some(high)) if from_zero && high > 0.0 => (1.0, 0.0, Clip { ceiling: high }.into()),
        (None, Some(high)) => (-1.0, high, Relu.into()),
    };
    let moved = mapped(builder, call, node, sign, offset)?;
    let bounded = builder.push(&call.name, op, vec![moved], shape)?;
    mapped(builder, call, bounded, sign, -sign * offset)
}

/// Max or Min: of a value and a constant, or of two values.
fn bound(builder: &mut Builder, call: &Call<'_>, upper: bool) -> Result<Vec<Value>, Reject> {
    if let (2, Value::Activation(_), Value::Activation(_)) =
        (call.inputs(), call.input(0)?, call.input(call.inputs() - 1)?)
    {
        // max(a, b) = b + relu(a - b), and min(a, b) = b - relu(b - a).
        let (a, b) = (call.activation(0)?, call.activation(1)?);
        let (first, second) = if upper { (b, a) } else { (a, b) };
        let minus = Activation { node: negative(builder, call, second)?, ..second.clone() };
        let difference = plus(builder, call, first.clone(), &minus)?;
        let mut more = rectified(builder, call, difference)?;
        if upper {
            more.node = negative(builder, call, &more)?;
        }
        let result = plus(builder, call, more, b)?;
        return Ok(activation(result.node, result.view));
    }
    let (x, c) = match (call.input(0)?, call.inputs()) {
        (Value::Activation(_), 1) => return identity(builder, call),
        (Value::Activation(_), 2) => (call.activation(0)?, call.constant(1)?),
        (Value::Constant(c), 2) => (call.activation(1)?, c.as_ref()),
        _ => return Err(Reject::unsupported("only Max and Min with one number are supported")),
    };
    let value = scalar(c)?;
    let (min, max) = if upper { (f32::NEG_INFINITY, value) } else { (value, f32::INFINITY) };
    let node = clamped(builder, call, x.node, min, max)?;
    Ok(activation(node, x.view.clone()))
}

/// `x` where it is above alpha, else 0: a ReLU where alpha is 0. Any other alpha makes it jump, which no sum of ReLUs does.
fn thresholded_relu(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let alpha = call.attribute_float("alpha", 1.0);
    if alpha != 0.0 {
        return Err(Reject::instead(
            &format!("jumps from 0 to {alpha}"),
            "Use alpha = 0, which is Relu, or relu(x - alpha), and retrain",
        ));
    }
    elementwise(builder, call, Relu)
}

/// `x - bias` above lambd, `x + bias` below -lambd, 0 between, where bias is lambd: relu(x - lambd) - relu(-x - lambd).
fn shrink(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (lambd, bias) = (call.attribute_float("lambd", 0.5), call.attribute_float("bias", 0.0));
    if lambd != bias || lambd < 0.0 {
        return Err(Reject::instead(
            &format!("jumps at {lambd} (its bias is {bias})"),
            "Use the bias lambd (a soft shrinkage), and retrain",
        ));
    }
    let x = call.activation(0)?;
    let side = |builder: &mut Builder, sign: f32| {
        let node = mapped(builder, call, x.node, sign, -lambd)?;
        rectified(builder, call, Activation { node, ..x.clone() })
    };
    let (above, mut below) = (side(builder, 1.0)?, side(builder, -1.0)?);
    below.node = negative(builder, call, &below)?;
    let sum = plus(builder, call, above, &below)?;
    Ok(activation(sum.node, sum.view))
}

/// `min(max(alpha·x + beta, 0), 1)`.
fn hard_sigmoid(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let (alpha, beta) = (call.attribute_float("alpha", 0.2), call.attribute_float("beta", 0.5));
    let node = mapped(builder, call, x.node, alpha, beta)?;
    let node = clamped(builder, call, node, 0.0, 1.0)?;
    Ok(activation(node, x.view.clone()))
}

/// `x·clip(x + 3, 0, 6)/6`.
fn hard_swish(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let moved = mapped(builder, call, x.node, 1.0, 3.0)?;
    let gate = clamped(builder, call, moved, 0.0, 6.0)?;
    let shape = builder.nodes[x.node].shape;
    let op = Product { gain: 1.0 / 6.0, offsets: [0.0; 2] };
    let node = builder.push(&call.name, op, vec![x.node, gate], shape)?;
    Ok(activation(node, x.view.clone()))
}

/// `x^1` and `x^2`.
fn pow(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    match call.constant(1)?.to_floats()[..] {
        [1.0] => identity(builder, call),
        [2.0] => product(builder, call, x, x),
        _ => Err(Reject::instead("raises to a power that is neither 1 nor 2", instead(call.operator()))),
    }
}

/// `x` where it is positive, `slope·x` elsewhere: LeakyRelu, and Abs with the slope -1.
fn sloped(builder: &mut Builder, call: &Call<'_>, slope: f32) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    if !slope.is_finite() {
        return Err(Reject::invalid("has a slope that is not finite"));
    }
    if non_negative(&builder.nodes, x.node, 8) {
        return Ok(activation(x.node, x.view.clone()));
    }
    let shape = builder.nodes[x.node].shape;
    let op = Prelu { slope: vec![slope; shape[0]] };
    let node = builder.push(&call.name, op, vec![x.node], shape)?;
    Ok(activation(node, x.view.clone()))
}

fn prelu(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let (x, slope) = (call.activation(0)?, call.constant(1)?);
    let values = finite(slope)?;
    if let [slope] = values[..] {
        return sloped(builder, call, slope);
    }
    let sizes = x.view.sizes();
    let shape = builder.nodes[x.node].shape;
    let by_channel = || Reject::unsupported("has slopes that vary within a channel");
    if broadcast(&sizes, &slope.dims).as_ref() != Some(&sizes) {
        return Err(Reject::invalid("has slopes that do not fit its input"));
    }
    let offset = sizes.len() - slope.dims.len();
    let mut varying = (0..slope.dims.len()).filter(|&d| slope.dims[d] > 1).map(|d| d + offset);
    match (varying.next(), varying.next()) {
        (Some(dim), None) if x.view.is_channels(dim, shape) => {}
        _ => return Err(by_channel()),
    }
    let node = builder.push(&call.name, Prelu { slope: values }, vec![x.node], shape)?;
    Ok(activation(node, x.view.clone()))
}

/// Quantisation of the model's own leaves no trace but where its saturation does what an activation did: a lowest
/// integer that stands for zero makes a ReLU, and a highest one that stands for six a ReLU6. Other bounds are those
/// that the model's calibration found; they cut what is rarely there, and are left out.
fn quantize_linear(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let Value::Activation(x) = call.input(0)? else {
        return Err(Reject::unsupported("its scale is computed by the network"));
    };
    if x.quantised.is_some() {
        return Err(Reject::invalid("quantises what is quantised"));
    }
    let (scale, zero) = quantisation(call)?;
    let (low, high) = call.quantised_range()?;
    let mut node = x.node;
    let is_input = |node: NodeId| builder.nodes[node].op.is::<Input>();
    let plain = x.finish == Finish::None && !is_input(node) && !non_negative(&builder.nodes, node, 8);
    if plain && zero == low {
        const SIX: f32 = 6.0;
        let top = (high - low) as f32 * scale;
        let six = (SIX - 2.0 * scale..SIX + scale).contains(&top);
        let op = if six { Op::new(Clip { ceiling: SIX }) } else { Relu.into() };
        let shape = builder.nodes[node].shape;
        node = builder.push(&call.name, op, vec![node], shape)?;
    }
    Ok(vec![Value::Activation(Activation { node, quantised: Some((scale, zero)), ..x.clone() })])
}

fn dequantize_linear(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let Value::Activation(x) = call.input(0)? else {
        return Err(Reject::unsupported("its scale is computed by the network"));
    };
    let quantised = quantisation(call)?;
    match x.quantised {
        Some(made) if made == quantised => {
            Ok(vec![Value::Activation(Activation { quantised: None, ..x.clone() })])
        }
        Some(_) => {
            Err(Reject::unsupported("has another scale or zero point than the QuantizeLinear before it"))
        }
        None => Err(Reject::instead(
            "takes integers that no QuantizeLinear made",
            "Export with a float input, or the float model",
        )),
    }
}

/// Scale and zero point of an activation.
fn quantisation(call: &Call<'_>) -> Result<(f32, i64), Reject> {
    let [scale] = finite(call.constant(1)?)?[..] else {
        return Err(Reject::unsupported("quantises a value of the network by channel"));
    };
    let zero = if call.has_input(2) { call.constant_ints(2)? } else { vec![0] };
    match zero[..] {
        [zero] if scale > 0.0 => Ok((scale, zero)),
        _ => Err(Reject::invalid("has a scale that is not positive, or several zero points")),
    }
}

/// How Resize chooses pixels.
struct Nearest<'a> {
    coordinates: &'a str,
    rounding: &'a str,
}

impl Nearest<'_> {
    /// Which of `size` pixels each of `count` takes; in single precision, as ONNX Runtime computes it.
    fn indices(&self, size: usize, count: usize, scale: f32) -> Result<Vec<usize>, Reject> {
        let place = |at: f32| match self.coordinates {
            "half_pixel" => Ok((at + 0.5) / scale - 0.5),
            "pytorch_half_pixel" => Ok(if count > 1 { (at + 0.5) / scale - 0.5 } else { 0.0 }),
            "asymmetric" => Ok(at / scale),
            "tf_half_pixel_for_nn" => Ok((at + 0.5) / scale),
            "align_corners" if count == 1 => Ok(0.0),
            "align_corners" => Ok(at * (size - 1) as f32 / (count - 1) as f32),
            other => Err(Reject::Unsupported {
                reason: format!("has the coordinate transformation {other:?}"),
                instead: "Use asymmetric or half_pixel".into(),
            }),
        };
        let round = |place: f32| match self.rounding {
            "floor" => Ok(place.floor()),
            "ceil" => Ok(place.ceil()),
            "round_prefer_ceil" => Ok((place + 0.5).floor()),
            "round_prefer_floor" => Ok((place - 0.5).ceil()),
            other => Err(Reject::Invalid(format!("has the rounding {other:?}"))),
        };
        let index = |at: usize| Ok(round(place(at as f32)?)?.clamp(0.0, (size - 1) as f32) as usize);
        (0..count).map(index).collect()
    }
}

/// Upsample, and Resize by the nearest pixel.
fn resize(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let mode = call.attribute_text("mode").unwrap_or("nearest");
    if mode != "nearest" {
        return Err(Reject::instead(
            &format!("interpolates (mode {mode:?})"),
            "Use the mode nearest, or a ConvTranspose, and retrain",
        ));
    }
    let sizes = x.view.sizes();
    // Before opset 11 there is one rule: rounded down where the size grows, up where it shrinks.
    let old = call.operator() == "Upsample" || call.opset < 11;
    let given = |index: usize| -> Result<Option<&Tensor>, Reject> {
        if !call.has_input(index) {
            return Ok(None);
        }
        call.constant(index).map(|t| Some(t).filter(|t| !t.values.is_empty()))
    };
    let (scales, counts) = match old {
        true if call.has_input(1) => (given(1)?.map(Tensor::to_floats), None),
        true => (call.attribute("scales").map(|a| a.floats.clone()), None),
        false => (given(2)?.map(Tensor::to_floats), given(3)?),
    };
    let axes: Vec<i64> =
        call.attribute_ints("axes").map_or_else(|| (0..sizes.len() as i64).collect(), <[i64]>::to_vec);
    if counts.is_some() && !matches!(call.attribute_text("keep_aspect_ratio_policy"), None | Some("stretch"))
    {
        return Err(Reject::unsupported("keeps the aspect ratio"));
    }
    let counts = match counts {
        Some(counts) => {
            Some(counts.to_ints().ok_or_else(|| Reject::invalid("has sizes that are no integers"))?)
        }
        None => None,
    };
    let length = scales.as_ref().map(Vec::len).or(counts.as_ref().map(Vec::len));
    if length != Some(axes.len()) {
        return Err(Reject::invalid("has another number of scales or sizes than dimensions"));
    }
    let mut resized = x.clone();
    for (i, &axis) in axes.iter().enumerate() {
        let dim = wrap(axis, sizes.len()).ok_or_else(|| Reject::invalid("has an axis out of range"))?;
        let size = sizes[dim];
        let (scale, count) = match (&scales, &counts) {
            (Some(scales), _) => (scales[i], (size as f32 * scales[i]).floor()),
            (None, Some(counts)) => (counts[i] as f32 / size as f32, counts[i] as f32),
            (None, None) => (1.0, size as f32),
        };
        if !(scale.is_finite() && scale > 0.0 && (1.0..=1e6).contains(&count)) {
            return Err(Reject::Unsupported {
                reason: format!("resizes a dimension of {size} by {scale}"),
                instead: String::new(),
            });
        }
        let nearest = Nearest {
            coordinates: match old {
                true => "asymmetric",
                false => call.attribute_text("coordinate_transformation_mode").unwrap_or("half_pixel"),
            },
            rounding: match old {
                true if scale < 1.0 => "ceil",
                true => "floor",
                false => call.attribute_text("nearest_mode").unwrap_or("round_prefer_floor"),
            },
        };
        let indices = nearest.indices(size, count as usize, scale)?;
        resized = select(builder, call, &resized, dim, &indices)?;
    }
    Ok(vec![Value::Activation(resized)])
}

/// `x·mul + add` with constants given in the ONNX tensor's shape.
fn affine(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    constant: &Tensor,
    map: impl Fn(f32) -> (f32, f32),
) -> Result<Vec<Value>, Reject> {
    let values = finite(constant)?;
    let sizes = x.view.sizes();
    let wide = broadcast(&sizes, &constant.dims)
        .filter(|d| d.iter().product::<usize>() == sizes.iter().product::<usize>());
    let wide = wide.ok_or_else(|| Reject::unsupported("the constant widens the value"))?;
    let view = x.view.reshaped(&wide).ok_or_else(|| Reject::unsupported("the constant widens the value"))?;
    let shape = builder.nodes[x.node].shape;
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
                return Err(Reject::unsupported("multiplies by a constant that varies within a channel"));
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

fn scaled(builder: &mut Builder, call: &Call<'_>, by: f32) -> Result<Vec<Value>, Reject> {
    let one = Tensor { dims: Vec::new(), values: Values::Float(vec![by]) };
    affine(builder, call, call.activation(0)?, &one, |v| (v, 0.0))
}

/// Sub, Mul and Div with a constant.
fn arithmetic(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let operator = call.operator();
    match (call.input(0)?, call.input(1)?) {
        (Value::Activation(_), Value::Constant(c)) => {
            let x = call.activation(0)?;
            match operator {
                "Sub" => affine(builder, call, x, c, |v| (1.0, -v)),
                "Mul" => affine(builder, call, x, c, |v| (v, 0.0)),
                "Div" => affine(builder, call, x, c, |v| (1.0 / v, 0.0)),
                other => {
                    Err(Reject::unsupported(&format!("{other} of a value and a constant is not supported")))
                }
            }
        }
        (Value::Constant(c), Value::Activation(_)) if operator == "Sub" => {
            affine(builder, call, call.activation(1)?, c, |v| (-1.0, v))
        }
        (Value::Constant(c), Value::Activation(_)) if operator == "Mul" => {
            affine(builder, call, call.activation(1)?, c, |v| (v, 0.0))
        }
        (Value::Activation(a), Value::Activation(b)) if operator == "Mul" => product(builder, call, a, b),
        (Value::Activation(_), Value::Activation(_)) if operator == "Sub" => {
            let minus = Activation {
                node: negative(builder, call, call.activation(1)?)?,
                ..call.activation(1)?.clone()
            };
            let sum = plus(builder, call, call.activation(0)?.clone(), &minus)?;
            Ok(activation(sum.node, sum.view))
        }
        _ if operator == "Div" => Err(Reject::instead("divides by a value of the network", NORM)),
        _ => Err(Reject::unsupported(&format!("{operator} of such inputs is not supported"))),
    }
}

/// The product of two values of the network: of the same sizes, or of one that the other's sizes hold several times.
fn product(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
) -> Result<Vec<Value>, Reject> {
    let op = Product { gain: 1.0, offsets: [0.0; 2] };
    let (sizes, others) = (a.view.sizes(), b.view.sizes());
    if sizes == others {
        let (x, y, shape, view) = aligned(builder, call, a, b)?;
        return Ok(activation(builder.push(&call.name, op, vec![x, y], shape)?, view));
    }
    let wide = broadcast(&sizes, &others)
        .ok_or_else(|| Reject::invalid("has factors that do not fit each other"))?;
    let (a, b, sizes) = match () {
        () if wide == sizes => (a, b, others),
        () if wide == others => (b, a, sizes),
        () => return Err(refusal::product()),
    };
    // One number a channel.
    let shape = builder.nodes[a.node].shape;
    let offset = wide.len() - sizes.len();
    let mut varying = (0..sizes.len()).filter(|&d| sizes[d] > 1).map(|d| d + offset);
    let by_channel = match (varying.next(), varying.next()) {
        (None, _) => shape[0] == 1,
        (Some(dim), None) => a.view.is_channels(dim, shape),
        _ => false,
    };
    if by_channel {
        let gate = materialise(builder, &call.name, b, [shape[0], 1, 1])?;
        return Ok(activation(builder.push(&call.name, op, vec![a.node, gate], shape)?, a.view.clone()));
    }
    // Otherwise, of images, it is repeated along the axes that it has not.
    let [1, c, h, w] = wide[..] else { return Err(refusal::product()) };
    let mut small = [1; 4];
    small[offset.min(4)..].copy_from_slice(&sizes);
    let (whole, part) = ([c, h, w], [small[1], small[2], small[3]]);
    let x = materialise(builder, &call.name, a, whole)?;
    let y = materialise(builder, &call.name, b, part)?;
    builder.list(whole.iter().sum())?;
    let axes = [0, 1, 2].map(|axis| match part[axis] == whole[axis] {
        true => Vec::new(),
        false => vec![Some(0); whole[axis]],
    });
    let y = builder.push(&call.name, Rearrange::Select { axes }, vec![y], whole)?;
    let node = builder.push(&call.name, op, vec![x, y], whole)?;
    Ok(activation(node, View::natural(whole)))
}

/// Two values of the same sizes as nodes of one shape whose elements run alike, and the view of both.
fn aligned(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
) -> Result<(NodeId, NodeId, Shape, View), Reject> {
    let shape = builder.nodes[a.node].shape;
    if shape == builder.nodes[b.node].shape && a.view.same_as(&b.view) {
        return Ok((a.node, b.node, shape, a.view.clone()));
    }
    let sizes = a.view.sizes();
    let (shape, view) = match sizes[..] {
        [1, c, h, w] => ([c, h, w], View::natural([c, h, w])),
        _ => {
            let len = sizes.iter().product();
            let flat = View::vector(len, 2).reshaped(&sizes);
            ([len, 1, 1], flat.ok_or_else(|| Reject::unsupported("takes values in different orders"))?)
        }
    };
    let left = materialise(builder, &call.name, a, shape)?;
    let right = materialise(builder, &call.name, b, shape)?;
    Ok((left, right, shape, view))
}

/// Add and Sum: of two or more values, or of one and a constant.
fn add(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if call.inputs() == 1 {
        return identity(builder, call);
    }
    if let (Value::Activation(_), Value::Constant(c), 2) = (call.input(0)?, call.input(1)?, call.inputs()) {
        return affine(builder, call, call.activation(0)?, c, |v| (1.0, v));
    }
    if let (Value::Constant(c), Value::Activation(_), 2) = (call.input(0)?, call.input(1)?, call.inputs()) {
        return affine(builder, call, call.activation(1)?, c, |v| (1.0, v));
    }
    let mut sum = call.activation(0)?.clone();
    for index in 1..call.inputs() {
        sum = plus(builder, call, sum, call.activation(index)?)?;
    }
    Ok(activation(sum.node, sum.view))
}

/// The sum of two values.
fn plus(
    builder: &mut Builder,
    call: &Call<'_>,
    sum: Activation,
    other: &Activation,
) -> Result<Activation, Reject> {
    if sum.view.sizes() != other.view.sizes() {
        return Err(Reject::instead(
            "adds values of different shapes",
            "Only sums without broadcasting are supported",
        ));
    }
    let (left, right, shape, view) = aligned(builder, call, &sum, other)?;
    Ok(Activation::new(builder.push(&call.name, Add, vec![left, right], shape)?, view))
}

/// The node of `-x`.
fn negative(builder: &mut Builder, call: &Call<'_>, x: &Activation) -> Result<NodeId, Reject> {
    mapped(builder, call, x.node, -1.0, 0.0)
}

/// `relu(x)`, of x as it lies.
fn rectified(builder: &mut Builder, call: &Call<'_>, mut x: Activation) -> Result<Activation, Reject> {
    let shape = builder.nodes[x.node].shape;
    x.node = builder.push(&call.name, Relu, vec![x.node], shape)?;
    Ok(x)
}

fn batch_normalization(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
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
    let moved = if x.view.is_channels(1, builder.nodes[x.node].shape) {
        x.clone()
    } else if let [1, len] = sizes[..] {
        let node = materialise(builder, &call.name, x, [len, 1, 1])?;
        Activation::new(node, View::vector(len, 2))
    } else {
        let node = as_image(builder, call, x)?;
        Activation::new(node, View::natural(builder.nodes[node].shape))
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

/// `[top, left, bottom, right]` by ONNX's `pads` or `auto_pad`.
fn window_pads(
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

/// A transposed convolution is one with its kernel turned round, over pixels that are spread with zeros between.
fn conv_transpose(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let node = as_image(builder, call, call.activation(0)?)?;
    let input = builder.nodes[node].shape;
    let weights = call.constant(1)?;
    let [channels, per_group, kh, kw] = weights.dims[..] else {
        return Err(Reject::unsupported("its weights have another rank than 4"));
    };
    let kernel = call.sizes::<2>("kernel_shape", 0, 1)?;
    if kernel != [0, 0] && kernel != [kh, kw] {
        return Err(Reject::invalid("has a kernel_shape that its weights have not"));
    }
    let groups = usize::try_from(call.attribute_int("group", 1)).unwrap_or(0);
    let fits = groups > 0 && channels == input[0] && channels.is_multiple_of(groups);
    let out_channels = per_group.checked_mul(groups).filter(|&c| fits && c > 0 && kh * kw > 0);
    let out_channels =
        out_channels.ok_or_else(|| Reject::invalid("has weights that do not fit its input's channels"))?;
    let bias = if call.has_input(2) { finite(call.constant(2)?)? } else { vec![0.0; out_channels] };
    if bias.len() != out_channels {
        return Err(Reject::invalid("has a bias of another number than channels"));
    }
    let (stride, dilation) = (call.sizes::<2>("strides", 1, 1)?, call.sizes::<2>("dilations", 1, 1)?);
    let more = call.sizes::<2>("output_padding", 0, 0)?;
    let extent = [(kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1];
    let spread = [0, 1].map(|axis| (input[axis + 1] - 1) * stride[axis] + 1);
    let whole = [0, 1].map(|axis| spread[axis] + extent[axis] - 1 + more[axis]);
    let wanted = match call.attribute_ints("output_shape") {
        Some([.., h, w]) => {
            let size = |v: i64| usize::try_from(v).ok().filter(|&v| v > 0);
            let sizes = size(*h).zip(size(*w));
            let (h, w) = sizes.ok_or_else(|| Reject::invalid("has an output_shape out of range"))?;
            Some([h, w])
        }
        Some(_) => return Err(Reject::invalid("has an output_shape of another rank")),
        None => None,
    };
    let auto = call.attribute_text("auto_pad").unwrap_or("NOTSET");
    let wanted = match (wanted, auto) {
        (None, "SAME_UPPER" | "SAME_LOWER") => Some([0, 1].map(|axis| input[axis + 1] * stride[axis])),
        (wanted, _) => wanted,
    };
    let cut: [usize; 4] = match wanted {
        Some(wanted) => {
            let mut cut = [0; 4];
            for axis in 0..2 {
                let total = whole[axis].checked_sub(wanted[axis]);
                let total = total
                    .ok_or_else(|| Reject::unsupported("has an output larger than its kernel reaches"))?;
                cut[axis] = if auto == "SAME_UPPER" { total / 2 } else { total - total / 2 };
                cut[axis + 2] = total - cut[axis];
            }
            cut
        }
        None if auto == "VALID" => [0; 4],
        None => call.sizes::<4>("pads", 0, 0)?,
    };
    // Around the spread pixels, the kernel's reach less what is cut: zeros, or fewer pixels.
    let (mut axes, mut pads): ([Vec<Option<usize>>; 3], _) = (Default::default(), [0; 4]);
    for axis in 0..2 {
        let sides = [
            (extent[axis] - 1) as i64 - cut[axis] as i64,
            (extent[axis] - 1 + more[axis]) as i64 - cut[axis + 2] as i64,
        ];
        let [fewer_before, fewer_after] = sides.map(|side| (-side).max(0) as usize);
        (pads[axis], pads[axis + 2]) = (sides[0].max(0) as usize, sides[1].max(0) as usize);
        let pixels = fewer_before..spread[axis].saturating_sub(fewer_after);
        if pixels.is_empty() {
            return Err(Reject::invalid("has pads that leave nothing"));
        }
        builder.list(pixels.len())?;
        let place = |at: usize| at.is_multiple_of(stride[axis]).then_some(at / stride[axis]);
        axes[axis + 1] = pixels.map(place).collect();
    }
    let node = select_axes(builder, &call.name, node, axes)?;
    let values = finite(weights)?;
    let (ins, area) = (channels / groups, kh * kw);
    let mut turned = Vec::with_capacity(values.len());
    for out in 0..out_channels {
        for c in 0..ins {
            let at = ((out / per_group * ins + c) * per_group + out % per_group) * area;
            turned.extend(values[at..at + area].iter().rev());
        }
    }
    let spec = network::Linear {
        out_channels,
        kernel: [kh, kw],
        stride: [1, 1],
        dilation,
        pads,
        groups,
        shift: 0,
        max_exponent: 0,
        blocks: None,
    };
    let linear = Linear { spec, weights: turned, bias: Bias::PerChannel(bias) };
    let node = builder.push(&call.name, linear, vec![node], [0; 3])?;
    Ok(activation(node, View::natural(builder.nodes[node].shape)))
}

fn conv(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let node = as_image(builder, call, call.activation(0)?)?;
    let input = builder.nodes[node].shape;
    let weights = call.constant(1)?;
    let [out_channels, per_group, kh, kw] = weights.dims[..] else {
        return Err(Reject::unsupported("its weights have another rank than 4"));
    };
    let kernel = call.sizes::<2>("kernel_shape", 0, 1)?;
    if kernel != [0, 0] && kernel != [kh, kw] {
        return Err(Reject::invalid("has a kernel_shape that its weights have not"));
    }
    let groups = usize::try_from(call.attribute_int("group", 1)).unwrap_or(0);
    if groups == 0 || per_group.checked_mul(groups) != Some(input[0]) || out_channels == 0 || kh * kw == 0 {
        return Err(Reject::invalid("has weights that do not fit its input's channels"));
    }
    let (stride, dilation) = (call.sizes("strides", 1, 1)?, call.sizes("dilations", 1, 1)?);
    let extent = [(kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1];
    let pads = window_pads(call, input, extent, stride)?;
    let bias = if call.has_input(2) { finite(call.constant(2)?)? } else { vec![0.0; out_channels] };
    if bias.len() != out_channels {
        return Err(Reject::invalid("has a bias of another number than channels"));
    }
    let spec = network::Linear {
        out_channels,
        kernel: [kh, kw],
        stride,
        dilation,
        pads,
        groups,
        shift: 0,
        max_exponent: 0,
        blocks: None,
    };
    let linear = Linear { spec, weights: finite(weights)?, bias: Bias::PerChannel(bias) };
    let node = builder.push(&call.name, linear, vec![node], [0; 3])?;
    Ok(activation(node, View::natural(builder.nodes[node].shape)))
}

/// A product with a constant matrix `weights(k, j)`, `[inputs, outputs]`, over all of the value: a layer with the
/// whole input as its kernel, the weights laid out for the node's order.
fn fully_connected(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    outputs: usize,
    weights: impl Fn(usize, usize) -> f32,
    bias: Vec<f32>,
) -> Result<NodeId, Reject> {
    let [channels, h, w] = builder.nodes[x.node].shape;
    let inputs = channels * h * w;
    let mut laid_out = vec![0.0; inputs * outputs];
    for (k, position) in x.view.positions().into_iter().enumerate() {
        for j in 0..outputs {
            laid_out[j * inputs + position] = weights(k, j);
        }
    }
    let spec = network::Linear {
        out_channels: outputs,
        kernel: [h, w],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4],
        groups: 1,
        shift: 0,
        max_exponent: 0,
        blocks: None,
    };
    let linear = Linear { spec, weights: laid_out, bias: Bias::PerChannel(bias) };
    builder.push(&call.name, linear, vec![x.node], [0; 3])
}

fn gemm(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let transposed_a = call.attribute_int("transA", 0) != 0;
    let (rows, inputs) = match (&x.view.sizes()[..], transposed_a) {
        (&[a, b], false) | (&[b, a], true) => (a, b),
        _ => return Err(Reject::unsupported("its input is no vector [1, K]")),
    };
    if rows != 1 {
        return Err(Reject::unsupported("its input has more than one row"));
    }
    let b = call.constant(1)?;
    let matrix = finite(b)?;
    let transposed = call.attribute_int("transB", 0) != 0;
    let (k, outputs) = match (&b.dims[..], transposed) {
        (&[k, n], false) | (&[n, k], true) => (k, n),
        _ => return Err(Reject::invalid("has weights of another rank than 2")),
    };
    if k != inputs || outputs == 0 {
        return Err(Reject::invalid("has weights that do not fit its input"));
    }
    let (alpha, beta) = (call.attribute_float("alpha", 1.0), call.attribute_float("beta", 1.0));
    let mut bias = vec![0.0; outputs];
    if call.has_input(2) {
        let c = call.constant(2)?;
        let values = finite(c)?;
        if broadcast(&c.dims, &[1, outputs]).as_deref() != Some(&[1, outputs]) {
            return Err(Reject::invalid("has a bias of another length than its output"));
        }
        for (bias, from) in bias.iter_mut().zip(broadcast_positions(&c.dims, &[1, outputs])) {
            *bias = beta * values[from];
        }
    }
    let weight = |k: usize, j: usize| {
        alpha * if transposed { matrix[j * inputs + k] } else { matrix[k * outputs + j] }
    };
    let node = fully_connected(builder, call, x, outputs, weight, bias)?;
    Ok(activation(node, View::vector(outputs, 2)))
}

fn mat_mul(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if let Value::Activation(_) = call.input(1)? {
        return Err(Reject::instead(
            "multiplies two matrices that the network computes",
            "Attention is not supported: take a convolutional network without",
        ));
    }
    let (x, b) = (call.activation(0)?, call.constant(1)?);
    let matrix = finite(b)?;
    let sizes = x.view.sizes();
    let (Some(&inputs), &[k, outputs]) = (sizes.last(), &b.dims[..]) else {
        return Err(Reject::unsupported("its weights have another rank than 2"));
    };
    if k != inputs || outputs == 0 {
        return Err(Reject::invalid("has weights that do not fit its input"));
    }
    let last = sizes.len() - 1;
    let shape = builder.nodes[x.node].shape;
    if x.view.is_everything(last) {
        let weight = |k: usize, j: usize| matrix[k * outputs + j];
        let node = fully_connected(builder, call, x, outputs, weight, vec![0.0; outputs])?;
        return Ok(activation(node, View::vector(outputs, sizes.len())));
    }
    if x.view.is_channels(last, shape) {
        // Channels last: a 1×1 convolution.
        let weights =
            (0..outputs).flat_map(|j| (0..inputs).map(move |k| (k, j))).map(|(k, j)| matrix[k * outputs + j]);
        let spec = network::Linear::same(outputs, 1, 0);
        let linear = Linear { spec, weights: weights.collect(), bias: Bias::PerChannel(vec![0.0; outputs]) };
        let node = builder.push(&call.name, linear, vec![x.node], [0; 3])?;
        return Ok(activation(node, x.view.with_channels(last, shape, outputs)));
    }
    Err(Reject::unsupported("multiplies neither a whole vector nor the channels"))
}

/// A pooling operator's windows over `input`; and how far a rounded-up output size reaches beyond the given pads,
/// at the bottom and on the right.
fn pool_window(call: &Call<'_>, input: Shape) -> Result<(Window, [usize; 2]), Reject> {
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

fn max_pool(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let node = as_image(builder, call, call.activation(0)?)?;
    let (window, _) = pool_window(call, builder.nodes[node].shape)?;
    let node = builder.push(&call.name, MaxPool(window), vec![node], [0; 3])?;
    Ok(activation(node, View::natural(builder.nodes[node].shape)))
}

fn average_pool(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let mut node = as_image(builder, call, call.activation(0)?)?;
    let (mut window, beyond) = pool_window(call, builder.nodes[node].shape)?;
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
    Ok(activation(node, View::natural(builder.nodes[node].shape)))
}

fn whole_image(shape: Shape, [rows, columns]: [bool; 2]) -> Window {
    let kernel = [if rows { shape[1] } else { 1 }, if columns { shape[2] } else { 1 }];
    Window { kernel, stride: [1, 1], pads: [0; 4] }
}

fn pool_op(window: Window, maximum: bool) -> Op {
    if maximum { MaxPool(window).into() } else { AveragePool { window, count_padding: true }.into() }
}

fn global_pool(builder: &mut Builder, call: &Call<'_>, maximum: bool) -> Result<Vec<Value>, Reject> {
    let node = as_image(builder, call, call.activation(0)?)?;
    let window = whole_image(builder.nodes[node].shape, [true, true]);
    let node = builder.push(&call.name, pool_op(window, maximum), vec![node], [0; 3])?;
    Ok(activation(node, View::natural(builder.nodes[node].shape)))
}

fn reduce(builder: &mut Builder, call: &Call<'_>, maximum: bool) -> Result<Vec<Value>, Reject> {
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
            let node = builder.push(&call.name, pool_op(window, maximum), vec![x.node], [0; 3])?;
            Ok(activation(node, view))
        }
        _ => Err(Reject::unsupported("reduces something else than height and width")),
    }
}

/// A mean, times how many it is of.
fn reduce_sum(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let made = reduce(builder, call, false)?;
    let [Value::Activation(mean)] = &made[..] else { return Ok(made) };
    let elements = |x: &Activation| x.view.sizes().iter().product::<usize>();
    let of = elements(call.activation(0)?) / elements(mean);
    let node = mapped(builder, call, mean.node, of as f32, 0.0)?;
    Ok(activation(node, mean.view.clone()))
}

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
                nodes.push(as_image(builder, call, part)?);
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
    Ok(activation(node, View::with_layout(builder.nodes[node].shape, &layout)))
}

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
    if !value.is_finite() {
        return Err(Reject::instead(
            &format!("pads with {value}"),
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
    let mut by_dim = vec![[0; 2]; rank];
    for (i, &axis) in axes.iter().enumerate() {
        let dim = wrap(axis, rank).ok_or_else(|| Reject::invalid("has an axis out of range"))?;
        for (side, &pad) in [pads[i], pads[i + axes.len()]].iter().enumerate() {
            let size = usize::try_from(pad).ok().filter(|&p| p <= crate::limits::MAX_EXTENT);
            by_dim[dim][side] =
                size.ok_or_else(|| Reject::unsupported("pads by a negative or very large number"))?;
        }
    }
    if by_dim.iter().all(|p| *p == [0, 0]) {
        return identity(builder, call);
    }
    if by_dim[0] != [0, 0] {
        return Err(Reject::unsupported("pads the batch"));
    }
    let (mut node, layout) = laid_out(builder, call, x)?;
    let (mut before, mut after) = ([0; 3], [0; 3]);
    for (dim, &axis) in layout.iter().enumerate() {
        [before[axis], after[axis]] = by_dim[dim + 1];
    }
    if mode == "constant" {
        // Another value is zero once it is taken away.
        node = shifted(builder, call, node, -value)?;
        node = builder.push(&call.name, Rearrange::Pad { before, after }, vec![node], [0; 3])?;
        node = shifted(builder, call, node, value)?;
    } else {
        let shape = builder.nodes[node].shape;
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
    Ok(activation(node, View::with_layout(builder.nodes[node].shape, &layout)))
}

/// A node's value and a number.
fn shifted(builder: &mut Builder, call: &Call<'_>, node: NodeId, add: f32) -> Result<NodeId, Reject> {
    mapped(builder, call, node, 1.0, add)
}

/// `x·mul + add` for a node's value.
fn mapped(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    mul: f32,
    add: f32,
) -> Result<NodeId, Reject> {
    if !(mul.is_finite() && add.is_finite()) {
        return Err(Reject::invalid("has a parameter that is not finite"));
    }
    if (mul, add) == (1.0, 0.0) {
        return Ok(node);
    }
    let shape = builder.nodes[node].shape;
    let affine = Affine { mul: vec![mul; shape[0]], add: Bias::PerChannel(vec![add; shape[0]]) };
    builder.push(&call.name, affine, vec![node], shape)
}

/// Cuts a range (first index, count, step) out of each ONNX dimension.
fn cut(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    ranges: &[SliceRange],
) -> Result<Value, Reject> {
    let mut rest = x.clone();
    for (dim, &range) in ranges.iter().enumerate() {
        let indices: Vec<usize> = slice_indices(range).collect();
        rest = select(builder, call, &rest, dim, &indices)?;
    }
    Ok(Value::Activation(rest))
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
    let mut padded = vec![1; wide.len() - sizes.len()];
    padded.extend(&sizes);
    let view = x.view.reshaped(&padded).ok_or_else(|| Reject::unsupported("expands a flattened value"))?;
    let mut expanded = Activation { view, ..x.clone() };
    for (dim, (&to, &from)) in wide.iter().zip(&padded).enumerate() {
        if to != from {
            if to > crate::limits::MAX_ELEMENTS {
                return Err(Reject::TooLarge("values"));
            }
            expanded = select(builder, call, &expanded, dim, &vec![0; to])?;
        }
    }
    Ok(vec![Value::Activation(expanded)])
}

fn slice(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let ranges = call.slice_ranges(&x.view.sizes())?;
    Ok(vec![cut(builder, call, x, &ranges)?])
}

fn split(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let sizes = x.view.sizes();
    let axis = wrap(call.attribute_int("axis", 0), sizes.len())
        .ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    let outputs = call.proto.output.len().max(1);
    let lengths: Vec<usize> = match call.ints("split", 1)? {
        Some(lengths) => lengths.iter().map(|&l| usize::try_from(l).unwrap_or(usize::MAX)).collect(),
        None => {
            // Equal parts, the last one smaller.
            let each = sizes[axis].div_ceil(outputs);
            (0..outputs).map(|i| each.min(sizes[axis].saturating_sub(i * each))).collect()
        }
    };
    let total = lengths.iter().try_fold(0usize, |sum, &l| sum.checked_add(l));
    if lengths.len() != outputs || total != Some(sizes[axis]) || lengths.contains(&0) {
        return Err(Reject::invalid("splits into parts that do not add up"));
    }
    let mut first = 0;
    let mut values = Vec::with_capacity(outputs);
    for length in lengths {
        let mut ranges: Vec<SliceRange> = sizes.iter().map(|&s| (0, s, 1)).collect();
        ranges[axis] = (first, length, 1);
        values.push(cut(builder, call, x, &ranges)?);
        first += length;
    }
    Ok(values)
}

/// Gives the value other dimensions without moving it.
fn regroup(call: &Call<'_>, sizes: &[usize]) -> Result<Vec<Value>, Reject> {
    // A softmax at the end may be reshaped.
    let Value::Activation(x) = call.input(0)? else {
        return Err(Reject::unsupported("its input is constant"));
    };
    let view = x.view.reshaped(sizes).ok_or_else(|| Reject::Unsupported {
        reason: format!("reshapes {:?} to {sizes:?}, which cuts dimensions unevenly", x.view.sizes()),
        instead: String::new(),
    })?;
    Ok(vec![Value::Activation(Activation { view, ..x.clone() })])
}

fn view_sizes(call: &Call<'_>) -> Result<Vec<usize>, Reject> {
    match call.input(0)? {
        Value::Activation(x) => Ok(x.view.sizes()),
        _ => Err(Reject::unsupported("its input is constant")),
    }
}

fn reshape(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let new = call.constant_ints(1)?;
    let old = view_sizes(call)?;
    let sizes = constant::reshape_sizes(&old, &new, call.attribute_int("allowzero", 0) != 0);
    let sizes = sizes.ok_or_else(|| Reject::Invalid(format!("reshapes {old:?} to {new:?}")))?;
    regroup(call, &sizes)
}

fn flatten(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let old = view_sizes(call)?;
    let axis = call.attribute_int("axis", 1);
    let axis = if axis == old.len() as i64 { Some(old.len()) } else { wrap(axis, old.len()) };
    let axis = axis.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    regroup(call, &[old[..axis].iter().product(), old[axis..].iter().product()])
}

fn squeeze(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let axes = call.ints("axes", 1)?;
    regroup(call, &constant::squeezed(&view_sizes(call)?, axes.as_deref())?)
}

fn unsqueeze(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let axes = call.ints("axes", 1)?.ok_or_else(|| Reject::invalid("has no axes"))?;
    regroup(call, &constant::unsqueezed(&view_sizes(call)?, &axes)?)
}

fn transpose(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    // As in `regroup`.
    let Value::Activation(x) = call.input(0)? else {
        return Err(Reject::unsupported("its input is constant"));
    };
    let rank = x.view.rank();
    let perm: Vec<usize> = match call.attribute_ints("perm") {
        Some(perm) => perm.iter().filter_map(|&p| wrap(p, rank)).collect(),
        None => (0..rank).rev().collect(),
    };
    let view = x.view.transposed(&perm).ok_or_else(|| Reject::invalid("has no permutation"))?;
    Ok(vec![Value::Activation(Activation { view, ..x.clone() })])
}

/// `[1, C, H, W]` and the size of a block.
fn blocks_of(call: &Call<'_>) -> Result<([usize; 3], usize), Reject> {
    let sizes = call.activation(0)?.view.sizes();
    let block = usize::try_from(call.attribute_int("blocksize", 0)).ok();
    let block = block.filter(|&b| (1..=crate::limits::MAX_EXTENT).contains(&b));
    match (&sizes[..], block) {
        (&[1, c, h, w], Some(block)) => Ok(([c, h, w], block)),
        (_, None) => Err(Reject::invalid("has no blocksize that can be")),
        _ => Err(Reject::Unsupported {
            reason: format!("its input of shape {sizes:?} is no image [1, C, H, W]"),
            instead: "Only two-dimensional layers are supported".into(),
        }),
    }
}

/// The value with its dimensions cut into `parts`, these put into the order `perm`, and joined to `whole`.
fn regrouped(x: &Activation, parts: &[usize], perm: &[usize], whole: &[usize]) -> Result<Vec<Value>, Reject> {
    let view = x.view.reshaped(parts).and_then(|v| v.transposed(perm)).and_then(|v| v.reshaped(whole));
    let view = view.ok_or_else(|| Reject::unsupported("its input is flattened or regrouped"))?;
    Ok(activation(x.node, view))
}

/// Groups of channels become squares of places.
fn depth_to_space(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let ([c, h, w], b) = blocks_of(call)?;
    if c % (b * b) != 0 {
        return Err(Reject::invalid("has channels that its blocksize does not divide"));
    }
    let depth = c / (b * b);
    let whole = [1, depth, h * b, w * b];
    match call.attribute_text("mode") {
        None | Some("DCR") => {
            regrouped(call.activation(0)?, &[1, b, b, depth, h, w], &[0, 3, 4, 1, 5, 2], &whole)
        }
        Some("CRD") => regrouped(call.activation(0)?, &[1, depth, b, b, h, w], &[0, 1, 4, 2, 5, 3], &whole),
        Some(other) => Err(Reject::Invalid(format!("has the mode {other:?}"))),
    }
}

/// Squares of places become groups of channels.
fn space_to_depth(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let ([c, h, w], b) = blocks_of(call)?;
    if h % b != 0 || w % b != 0 {
        return Err(Reject::invalid("has a height or width that its blocksize does not divide"));
    }
    let whole = [1, c * b * b, h / b, w / b];
    regrouped(call.activation(0)?, &[1, c, h / b, b, w / b, b], &[0, 3, 5, 1, 2, 4], &whole)
}

fn sigmoid(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    if !call.last {
        return Err(Reject::instead(
            "a sigmoid is supported as the model's last operator only",
            instead("Sigmoid"),
        ));
    }
    Ok(vec![Value::Activation(Activation { finish: Finish::Sigmoid, ..x.clone() })])
}

fn softmax(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let old_rules = call.opset < 13;
    let axis = wrap(call.attribute_int("axis", if old_rules { 1 } else { -1 }), x.view.rank());
    let axis = axis.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    // Before opset 13 it runs over everything from the axis on.
    let whole = if old_rules { x.view.is_everything_from(axis) } else { x.view.is_everything(axis) };
    if !whole {
        return Err(Reject::instead(
            "runs over a part of the value",
            "A softmax over all classes is supported",
        ));
    }
    Ok(vec![Value::Activation(Activation { finish: Finish::Softmax, ..x.clone() })])
}
