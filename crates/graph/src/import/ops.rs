//! The builders: what each ONNX operator becomes.

use std::sync::Arc;

use super::constant::{self, Tensor, broadcast, broadcast_positions, wrap};
use super::view::View;
use super::{Activation, Builder, Call, Reject, Value, finite};
use crate::float::{Affine, Bias, Linear, Op};
use crate::network::{self, Finish, NodeId, Rearrange, Shape, Window};
use crate::onnx::Values;

type Build = fn(&mut Builder, &Call<'_>) -> Result<Vec<Value>, Reject>;

/// From operator name to builder.
pub(super) const TABLE: &[(&str, Build)] = &[
    ("Add", add),
    ("AveragePool", average_pool),
    ("BatchNormalization", batch_normalization),
    ("Cast", identity),
    ("Clip", clip),
    ("Concat", concat),
    ("Conv", conv),
    ("Div", |builder, call| arithmetic(builder, call)),
    ("Dropout", identity),
    ("Flatten", flatten),
    ("Gemm", gemm),
    ("GlobalAveragePool", |builder, call| global_pool(builder, call, false)),
    ("GlobalMaxPool", |builder, call| global_pool(builder, call, true)),
    ("Identity", identity),
    ("LogSoftmax", softmax),
    ("MatMul", mat_mul),
    ("Max", |builder, call| bound(builder, call, false)),
    ("MaxPool", max_pool),
    ("Min", |builder, call| bound(builder, call, true)),
    ("Mul", |builder, call| arithmetic(builder, call)),
    ("Neg", |builder, call| scaled(builder, call, -1.0)),
    ("Pad", pad),
    ("ReduceMax", |builder, call| reduce(builder, call, true)),
    ("ReduceMean", |builder, call| reduce(builder, call, false)),
    ("Relu", |builder, call| elementwise(builder, call, Op::Relu)),
    ("Reshape", reshape),
    ("Shape", shape_of),
    ("Size", size_of),
    ("Sigmoid", sigmoid),
    ("Slice", slice),
    ("Softmax", softmax),
    ("Split", split),
    ("Squeeze", squeeze),
    ("Sub", |builder, call| arithmetic(builder, call)),
    ("Sum", add),
    ("Transpose", transpose),
    ("Unsqueeze", unsqueeze),
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

/// What could stand in for an operator that is not in the table.
pub(super) fn instead(operator: &str) -> &'static str {
    match operator {
        "Sigmoid" | "HardSigmoid" | "HardSwish" | "Swish" | "Mish" | "Gelu" | "Erf" | "Tanh"
        | "LeakyRelu" | "PRelu" | "Elu" | "Selu" | "Celu" | "ThresholdedRelu" | "Softplus" | "Softsign"
        | "Exp" | "HardTanh" => {
            "Replace the activation by Relu or by Clip with bounds 0 and 6, and retrain (as EfficientNet-Lite does); \
             a last Sigmoid can be cut off, since it does not change which class is largest"
        }
        "InstanceNormalization"
        | "LayerNormalization"
        | "GroupNormalization"
        | "LRN"
        | "MeanVarianceNormalization"
        | "LpNormalization"
        | "RMSNormalization" => "Replace the normalisation by BatchNormalization and retrain",
        "QLinearConv"
        | "QLinearMatMul"
        | "ConvInteger"
        | "MatMulInteger"
        | "QuantizeLinear"
        | "DequantizeLinear"
        | "DynamicQuantizeLinear"
        | "QLinearAdd" => "Import the float model: quantisation happens here",
        "If" | "Loop" | "Scan" => "Export with fixed control flow (trace the model instead of scripting it)",
        "ArgMax" | "TopK" => {
            "Cut it off: the client takes the largest output itself, or only its index is revealed"
        }
        "ConvTranspose" | "Resize" | "Upsample" => "Only networks that shrink their input are supported",
        "LSTM" | "GRU" | "RNN" | "Attention" | "MultiHeadAttention" => {
            "Only convolutional networks are supported"
        }
        "LpPool" | "GlobalLpPool" => "Use average or max pooling",
        _ => "",
    }
}

/// Whether an unsupported operator at least gives a value of its (largest) input's shape.
pub(super) fn keeps_shape(operator: &str) -> bool {
    const KEEP: [&str; 40] = [
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Swish",
        "Mish",
        "Gelu",
        "Erf",
        "Tanh",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Celu",
        "ThresholdedRelu",
        "Softplus",
        "Softsign",
        "Exp",
        "InstanceNormalization",
        "LayerNormalization",
        "GroupNormalization",
        "LRN",
        "MeanVarianceNormalization",
        "LpNormalization",
        "Mul",
        "Add",
        "Sub",
        "Div",
        "Pow",
        "Sqrt",
        "Abs",
        "Neg",
        "Clip",
        "Max",
        "Min",
        "BatchNormalization",
        "Softmax",
        "LogSoftmax",
        "Reciprocal",
        "Log",
        "Where",
    ];
    KEEP.contains(&operator)
}

fn activation(node: NodeId, view: View) -> Vec<Value> {
    vec![Value::Activation(Activation { node, view, finish: Finish::None })]
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
    let reshape = || Op::Rearrange(Rearrange::Reshape);
    if !value.view.in_order() {
        let (grouped, perm) = value
            .view
            .permutation()
            .ok_or_else(|| Reject::unsupported("its input is transposed in too many ways"))?;
        if grouped != builder.nodes[node].shape {
            node = builder.push(name, reshape(), vec![node], grouped)?;
        }
        node = builder.push(name, Op::Rearrange(Rearrange::Transpose { perm }), vec![node], [0; 3])?;
    }
    if builder.nodes[node].shape != shape {
        node = builder.push(name, reshape(), vec![node], shape)?;
    }
    Ok(node)
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

fn elementwise(builder: &mut Builder, call: &Call<'_>, op: Op) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let node = builder.push(&call.name, op, vec![x.node], [0; 3])?;
    Ok(activation(node, x.view.clone()))
}

fn clip(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let bound = |name: &str, index: usize, default: f32| -> Result<f32, Reject> {
        if call.has_input(index) {
            let values = call.constant(index)?.to_floats();
            return match values[..] {
                [value] => Ok(value),
                _ => Err(Reject::invalid("has a bound that is no single number")),
            };
        }
        Ok(call.attribute_float(name, default))
    };
    let (min, max) = (bound("min", 1, f32::NEG_INFINITY)?, bound("max", 2, f32::INFINITY)?);
    elementwise(builder, call, clip_op(min, max)?)
}

fn clip_op(min: f32, max: f32) -> Result<Op, Reject> {
    /// A bound that no value of a trained network reaches.
    const BEYOND: f32 = 1e6;
    match (min, max) {
        (0.0, max) if max > BEYOND => Ok(Op::Relu),
        (0.0, max) if max > 0.0 => Ok(Op::Clip { ceiling: max }),
        (min, max) => Err(Reject::Unsupported {
            reason: format!("clips to {min}..{max}; a clip from 0 to a positive bound is supported"),
            instead: instead("HardTanh").into(),
        }),
    }
}

/// Max with the constant 0 is a ReLU; Min with a positive constant, after one, the upper half of a clip.
fn bound(builder: &mut Builder, call: &Call<'_>, upper: bool) -> Result<Vec<Value>, Reject> {
    let reject =
        || Reject::unsupported("only Max with 0, and after it Min with a positive number, are supported");
    let (x, c) = match (call.input(0)?, call.inputs()) {
        (Value::Activation(_), 2) => (call.activation(0)?, call.constant(1)?),
        (Value::Constant(c), 2) => (call.activation(1)?, c.as_ref()),
        _ => return Err(reject()),
    };
    let [value] = c.to_floats()[..] else { return Err(reject()) };
    let non_negative = matches!(builder.nodes[x.node].op, Op::Relu | Op::Clip { .. });
    let op = match upper {
        false if value == 0.0 => Op::Relu,
        true if non_negative => clip_op(0.0, value)?,
        _ => return Err(reject()),
    };
    let node = builder.push(&call.name, op, vec![x.node], [0; 3])?;
    Ok(activation(node, x.view.clone()))
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
    let wide =
        broadcast(&sizes, &constant.dims).filter(|d| d.iter().product::<usize>() == sizes.iter().product());
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
    let node = builder.push(&call.name, Op::Affine(Affine { mul, add }), vec![x.node], shape)?;
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
                _ => affine(builder, call, x, c, |v| (1.0 / v, 0.0)),
            }
        }
        (Value::Constant(c), Value::Activation(_)) if operator != "Div" => {
            let x = call.activation(1)?;
            match operator {
                "Sub" => affine(builder, call, x, c, |v| (-1.0, v)),
                _ => affine(builder, call, x, c, |v| (v, 0.0)),
            }
        }
        (Value::Activation(_), Value::Activation(_)) if operator == "Mul" => Err(Reject::instead(
            "multiplies two values of the network",
            "Squeeze-and-excitation and self-gating are not supported: use a variant without (EfficientNet-Lite, MobileNetV2)",
        )),
        _ => Err(Reject::instead(
            &format!("{operator} is supported with a constant on its right"),
            "The difference of two values can be had by changing the sign of the weights before one",
        )),
    }
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
        let other = call.activation(index)?;
        let sizes = sum.view.sizes();
        if sizes != other.view.sizes() {
            return Err(Reject::instead(
                "adds values of different shapes",
                "Only sums without broadcasting are supported",
            ));
        }
        let shape = builder.nodes[sum.node].shape;
        if shape != builder.nodes[other.node].shape || !sum.view.same_as(&other.view) {
            let (shape, view) = match sizes[..] {
                [1, c, h, w] => ([c, h, w], View::natural([c, h, w])),
                _ => {
                    let len = sizes.iter().product();
                    let flat = View::vector(len, 2).reshaped(&sizes);
                    ([len, 1, 1], flat.ok_or_else(|| Reject::unsupported("adds values in different orders"))?)
                }
            };
            let left = materialise(builder, &call.name, &sum, shape)?;
            let right = materialise(builder, &call.name, other, shape)?;
            sum = Activation {
                node: builder.push(&call.name, Op::Add, vec![left, right], shape)?,
                view,
                finish: Finish::None,
            };
        } else {
            sum.node = builder.push(&call.name, Op::Add, vec![sum.node, other.node], shape)?;
        }
    }
    Ok(activation(sum.node, sum.view))
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
        Activation { node, view: View::vector(len, 2), finish: Finish::None }
    } else {
        let node = as_image(builder, call, x)?;
        Activation { node, view: View::natural(builder.nodes[node].shape), finish: Finish::None }
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
    let node = builder.push(&call.name, Op::Affine(Affine { mul, add }), vec![moved.node], shape)?;
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
    let spec = network::Linear { out_channels, kernel: [kh, kw], stride, dilation, pads, groups, shift: 0 };
    let linear = Linear { spec, weights: finite(weights)?, bias: Bias::PerChannel(bias) };
    let node = builder.push(&call.name, Op::Linear(linear), vec![node], [0; 3])?;
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
    };
    let linear = Linear { spec, weights: laid_out, bias: Bias::PerChannel(bias) };
    builder.push(&call.name, Op::Linear(linear), vec![x.node], [0; 3])
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
        return Err(Reject::unsupported(
            "its second factor is computed by the network, and must be constant",
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
        let node = builder.push(&call.name, Op::Linear(linear), vec![x.node], [0; 3])?;
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
    let node = builder.push(&call.name, Op::MaxPool(window), vec![node], [0; 3])?;
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
            node = builder.push(
                &call.name,
                Op::Rearrange(Rearrange::Pad { before, after }),
                vec![node],
                [0; 3],
            )?;
        }
        window.pads = [0, 0, beyond[0], beyond[1]];
        count_padding = false;
    }
    let node = builder.push(&call.name, Op::AveragePool { window, count_padding }, vec![node], [0; 3])?;
    Ok(activation(node, View::natural(builder.nodes[node].shape)))
}

fn whole_image(shape: Shape, [rows, columns]: [bool; 2]) -> Window {
    let kernel = [if rows { shape[1] } else { 1 }, if columns { shape[2] } else { 1 }];
    Window { kernel, stride: [1, 1], pads: [0; 4] }
}

fn pool_op(window: Window, maximum: bool) -> Op {
    if maximum { Op::MaxPool(window) } else { Op::AveragePool { window, count_padding: true } }
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
    let node = builder.push(&call.name, Op::Concat, nodes, [0; 3])?;
    Ok(activation(node, View::with_layout(builder.nodes[node].shape, &layout)))
}

/// For an operator that works dimension by dimension: the node's axis of each dimension after the batch.
fn axes_of(builder: &Builder, x: &Activation) -> Result<Vec<usize>, Reject> {
    let layout = x.view.layout(builder.nodes[x.node].shape);
    layout.ok_or_else(|| Reject::unsupported("its input is flattened or regrouped"))
}

fn pad(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let mode = call.attribute_text("mode").unwrap_or("constant");
    if mode != "constant" {
        return Err(Reject::instead(&format!("pads by {mode:?}"), "Pad with zeros and retrain"));
    }
    let value = match call.attribute("value") {
        Some(attribute) => attribute.f.unwrap_or(0.0),
        None if call.has_input(2) => call.constant(2)?.to_floats().first().copied().unwrap_or(0.0),
        None => 0.0,
    };
    if value != 0.0 {
        return Err(Reject::instead(&format!("pads with {value}"), "Only padding with zeros is supported"));
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
            let size = usize::try_from(pad).ok().filter(|&p| p <= crate::validate::MAX_EXTENT);
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
    let layout = axes_of(builder, x)?;
    let (mut before, mut after) = ([0; 3], [0; 3]);
    for (dim, &axis) in layout.iter().enumerate() {
        [before[axis], after[axis]] = by_dim[dim + 1];
    }
    let node =
        builder.push(&call.name, Op::Rearrange(Rearrange::Pad { before, after }), vec![x.node], [0; 3])?;
    Ok(activation(node, View::with_layout(builder.nodes[node].shape, &layout)))
}

/// Cuts a range (first index, count, step) out of each ONNX dimension.
fn cut(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    ranges: &[(usize, usize, usize)],
) -> Result<Value, Reject> {
    let sizes = x.view.sizes();
    if ranges.iter().zip(&sizes).all(|(&(_, len, _), &size)| len == size) {
        return Ok(Value::Activation(x.clone()));
    }
    let layout = axes_of(builder, x)?;
    let (mut start, mut step, mut declared) = ([0; 3], [1; 3], builder.nodes[x.node].shape);
    for (&axis, &range) in layout.iter().zip(&ranges[1..]) {
        (start[axis], declared[axis], step[axis]) = range;
    }
    let op = Op::Rearrange(Rearrange::Slice { start, step });
    let node = builder.push(&call.name, op, vec![x.node], declared)?;
    Ok(Value::Activation(Activation {
        node,
        view: View::with_layout(declared, &layout),
        finish: Finish::None,
    }))
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
        let mut ranges: Vec<(usize, usize, usize)> = sizes.iter().map(|&s| (0, s, 1)).collect();
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
