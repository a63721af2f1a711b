//! From ONNX's layers with weights.

use super::affine::{affine, batch_normalization, scaled};
use crate::float::{Bias, Linear};
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, activation, finite};
use crate::import::moves::{channels_first, lying_first, materialise, select_axes};
use crate::import::tensor::{Tensor, broadcast, broadcast_positions};
use crate::import::view::View;
use crate::import::windows::window_pads;
use crate::network::{self, NodeId};

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("BatchNormalization", batch_normalization),
    ("Conv", conv),
    ("ConvTranspose", conv_transpose),
    ("Gemm", gemm),
    ("Neg", |builder, call| scaled(builder, call, -1.0)),
];

/// The shape of a convolution's weights, `[C, C/groups, k_h, k_w]` of either side, and its groups. Along one axis k_h is 1.
fn weights_of(call: &Call<'_>) -> Result<([usize; 4], usize), Reject> {
    let (channels, per_group, [kh, kw]) = match call.constant(1)?.dims[..] {
        [channels, per_group, kh, kw] => (channels, per_group, [kh, kw]),
        [channels, per_group, kw] => (channels, per_group, [1, kw]),
        _ => return Err(Reject::unsupported("its weights have another rank than 3 or 4")),
    };
    if call.rank().is_some_and(|rank| rank != call.constant(1).map_or(0, |weights| weights.dims.len())) {
        return Err(Reject::invalid("has weights of another rank than its input"));
    }
    let kernel = call.sizes::<2>("kernel_shape", 1, 1)?;
    if call.attribute("kernel_shape").is_some() && kernel != [kh, kw] {
        return Err(Reject::invalid("has a kernel_shape that its weights have not"));
    }
    let groups = usize::try_from(call.attribute_int("group", 1)).unwrap_or(0);
    Ok(([channels, per_group, kh, kw], groups))
}

fn bias_of(call: &Call<'_>, channels: usize) -> Result<Vec<f32>, Reject> {
    let bias = if call.has_input(2) { finite(call.constant(2)?)? } else { vec![0.0; channels] };
    match bias.len() == channels {
        true => Ok(bias),
        false => Err(Reject::invalid("has a bias of another number than channels")),
    }
}

/// A transposed convolution is one with its kernel turned round, over pixels that are spread with zeros between.
fn conv_transpose(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let node = builder.image(call, call.activation(0)?)?;
    let input = builder.shape(node);
    let ([channels, per_group, kh, kw], groups) = weights_of(call)?;
    let fits = groups > 0 && channels == input[0] && channels.is_multiple_of(groups);
    let out_channels = per_group.checked_mul(groups).filter(|&c| fits && c > 0 && kh * kw > 0);
    let out_channels =
        out_channels.ok_or_else(|| Reject::invalid("has weights that do not fit its input's channels"))?;
    let bias = bias_of(call, out_channels)?;
    let (stride, dilation) = (call.sizes::<2>("strides", 1, 1)?, call.sizes::<2>("dilations", 1, 1)?);
    let more = call.sizes::<2>("output_padding", 0, 0)?;
    let extent = [(kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1];
    let spread = [0, 1].map(|axis| (input[axis + 1] - 1) * stride[axis] + 1);
    let whole = [0, 1].map(|axis| spread[axis] + extent[axis] - 1 + more[axis]);
    let wanted = match call.attribute_ints("output_shape") {
        Some(wanted) => {
            let [h, w] = match (wanted, call.rank()) {
                (&[w], Some(3)) => [1, w],
                (&[.., h, w], _) => [h, w],
                _ => return Err(Reject::invalid("has an output_shape of another rank")),
            };
            let size = |v: i64| usize::try_from(v).ok().filter(|&v| v > 0);
            let sizes = size(h).zip(size(w));
            let (h, w) = sizes.ok_or_else(|| Reject::invalid("has an output_shape out of range"))?;
            Some([h, w])
        }
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
    let values = finite(call.constant(1)?)?;
    let (ins, area) = (channels / groups, kh * kw);
    let mut turned = Vec::with_capacity(values.len());
    for out in 0..out_channels {
        for c in 0..ins {
            let at = ((out / per_group * ins + c) * per_group + out % per_group) * area;
            turned.extend(values[at..at + area].iter().rev());
        }
    }
    let layer = network::Linear::same(out_channels, 1, 0);
    let spec = network::Linear { kernel: [kh, kw], dilation, pads, groups, ..layer };
    let linear = Linear { spec, weights: turned, bias: Bias::PerChannel(bias) };
    let node = builder.push(&call.name, linear, vec![node], [0; 3])?;
    Ok(builder.made(call, node))
}

fn conv(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let batch = match x.view.sizes()[..] {
        [batch, _, _, _] if batch > 1 => Some(batch),
        _ => None,
    };
    // (Several images, as windows are, lie below each other.)
    let (node, input) = match (batch, &x.view.sizes()[..]) {
        (Some(batch), &[_, c, h, w]) => {
            let view = x.view.transposed(&[1, 0, 2, 3]).ok_or_else(uneven)?;
            let below = Activation { view, ..x.clone() };
            (materialise(builder, &call.name, &below, [c, batch * h, w])?, [c, h, w])
        }
        _ => {
            let node = builder.image(call, x)?;
            (node, builder.shape(node))
        }
    };
    let ([out_channels, per_group, kh, kw], groups) = weights_of(call)?;
    if groups == 0 || per_group.checked_mul(groups) != Some(input[0]) || out_channels == 0 || kh * kw == 0 {
        return Err(Reject::invalid("has weights that do not fit its input's channels"));
    }
    let (stride, dilation) = (call.sizes("strides", 1, 1)?, call.sizes("dilations", 1, 1)?);
    let extent = [(kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1];
    let pads = window_pads(call, input, extent, stride)?;
    let bias = bias_of(call, out_channels)?;
    let layer = network::Linear::same(out_channels, 1, 0);
    let spec = network::Linear { kernel: [kh, kw], stride, dilation, pads, groups, ..layer };
    let linear = Linear { spec, weights: finite(call.constant(1)?)?, bias: Bias::PerChannel(bias) };
    if let Some(batch) = batch {
        return below_each_other(builder, call, node, linear, [batch, input[1], extent[0]]);
    }
    let node = builder.push(&call.name, linear, vec![node], [0; 3])?;
    Ok(builder.made(call, node))
}

/// A convolution over several images below each other, each of `height` rows: with zeros between them, so that no window sees two, and what the
/// windows across them make left out.
fn below_each_other(
    builder: &mut Builder,
    call: &Call<'_>,
    node: NodeId,
    mut linear: Linear,
    [batch, height, extent]: [usize; 3],
) -> Result<Vec<Value>, Reject> {
    let [top, left, bottom, right] = linear.spec.pads;
    let stride = linear.spec.stride[0];
    let padded = top + height + bottom;
    let Some(room) = padded.checked_sub(extent) else {
        return Err(Reject::invalid("has a window larger than its input"));
    };
    let (made, each) = (room / stride + 1, padded.div_ceil(stride));
    builder.list((each * stride).saturating_add(made).saturating_mul(batch))?;
    let row = |at: usize| {
        let (image, row) = (at / (each * stride), at % (each * stride));
        row.checked_sub(top).filter(|row| *row < height).map(|row| image * height + row)
    };
    let rows = (0..batch * each * stride).map(row).collect();
    let apart = select_axes(builder, &call.name, node, [Vec::new(), rows, Vec::new()])?;
    linear.spec.pads = [0, left, 0, right];
    let all = builder.push(&call.name, linear, vec![apart], [0; 3])?;
    let rows = (0..batch * made).map(|at| Some(at / made * each + at % made)).collect();
    let node = select_axes(builder, &call.name, all, [Vec::new(), rows, Vec::new()])?;
    let [channels, _, width] = builder.shape(node);
    let view = View::natural([channels, batch * made, width]).reshaped(&[channels, batch, made, width]);
    let view = view.and_then(|view| view.transposed(&[1, 0, 2, 3])).ok_or_else(uneven)?;
    Ok(activation(node, view))
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
    let [channels, h, w] = builder.shape(x.node);
    let inputs = channels * h * w;
    let mut laid_out = vec![0.0; inputs * outputs];
    for (k, position) in x.view.positions().into_iter().enumerate() {
        for j in 0..outputs {
            laid_out[j * inputs + position] = weights(k, j);
        }
    }
    let spec = network::Linear { kernel: [h, w], ..network::Linear::same(outputs, 1, 0) };
    let linear = Linear { spec, weights: laid_out, bias: Bias::PerChannel(bias) };
    builder.push(&call.name, linear, vec![x.node], [0; 3])
}

fn gemm(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    if x.view.rank() != 2 {
        return Err(Reject::invalid("takes a value that is no matrix"));
    }
    let turned = match call.attribute_int("transA", 0) {
        0 => None,
        _ => x.view.transposed(&[1, 0]).map(|view| Activation { view, ..x.clone() }),
    };
    let x = turned.as_ref().unwrap_or(x);
    let (rows, inputs) = (x.view.sizes()[0], x.view.sizes()[1]);
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
    let weight = |k: usize, j: usize| {
        alpha * if transposed { matrix[j * inputs + k] } else { matrix[k * outputs + j] }
    };
    let mut bias = vec![0.0; outputs];
    let mut by_row = None;
    if call.has_input(2) {
        let c = call.constant(2)?;
        let values = finite(c)?;
        if broadcast(&c.dims, &[rows, outputs]).as_deref() != Some(&[rows, outputs]) {
            return Err(Reject::invalid("has a bias of another shape than its output"));
        }
        if broadcast(&c.dims, &[1, outputs]).as_deref() == Some(&[1, outputs]) {
            for (bias, from) in bias.iter_mut().zip(broadcast_positions(&c.dims, &[1, outputs])) {
                *bias = beta * values[from];
            }
        } else {
            by_row = Some(c);
        }
    }
    let made = times(builder, call, x, outputs, weight, bias)?;
    match by_row {
        Some(c) => affine(builder, call, &made, c, |v| (1.0, beta * v)),
        None => Ok(vec![made.into()]),
    }
}

/// The order of so many dimensions in which the last two are exchanged.
fn turn(rank: usize) -> Option<Vec<usize>> {
    let last = rank.checked_sub(2)?;
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(last, last + 1);
    Some(order)
}

/// A value of matrices, transposed.
fn turned(x: &Activation) -> Result<Activation, Reject> {
    let view = turn(x.view.rank()).and_then(|order| x.view.transposed(&order)).ok_or_else(uneven)?;
    Ok(Activation { view, ..x.clone() })
}

/// A MatMul of which one factor is constant.
pub(crate) fn by_constant(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    match (call.input(0)?, call.input(1)?) {
        (Value::Constant(a), _) => {
            // A·X = (Xᵀ·Aᵀ)ᵀ
            let x = turned(call.activation(1)?)?;
            let order = turn(a.dims.len())
                .ok_or_else(|| Reject::unsupported("multiplies matrices by a vector in front of them"))?;
            let a = a.transposed(&order).ok_or_else(uneven)?;
            match by_matrices(builder, call, &x, &a)?.first() {
                Some(Value::Activation(made)) => Ok(vec![turned(made)?.into()]),
                _ => Err(uneven()),
            }
        }
        _ => by_matrices(builder, call, call.activation(0)?, call.constant(1)?),
    }
}

/// `[.., n, k]` by a constant `[.., k, m]` or `[k]`.
pub(crate) fn by_matrices(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    b: &Tensor,
) -> Result<Vec<Value>, Reject> {
    let (outer, k, outputs) = match b.dims[..] {
        [ref outer @ .., k, outputs] => (outer, k, outputs),
        [k] => (&[][..], k, 1),
        [] => return Err(Reject::invalid("multiplies by a single number")),
    };
    let sizes = x.view.sizes();
    if sizes.last() != Some(&k) || outputs == 0 {
        return Err(Reject::invalid("has weights that do not fit its input"));
    }
    let matrix = finite(b)?;
    if outer.iter().any(|&size| size != 1) {
        return by_group(builder, call, x, &b.dims, &matrix);
    }
    let made = times(builder, call, x, outputs, |k, j| matrix[k * outputs + j], vec![0.0; outputs])?;
    let mut sizes = made.view.sizes();
    if b.dims.len() == 1 {
        sizes.pop();
    }
    let more = outer.len().saturating_sub(sizes.len().saturating_sub(2));
    let sizes = [&vec![1; if outer.is_empty() { 0 } else { more }], &sizes[..]].concat();
    let view = made.view.reshaped(&sizes).ok_or_else(uneven)?;
    Ok(vec![Activation { view, ..made }.into()])
}

fn uneven() -> Reject {
    Reject::unsupported("multiplies neither a whole vector nor the channels")
}

/// The product of a value's last dimension and the matrix `weight(k, j)`, `[k, outputs]`, and a bias: a layer over all of the value, or over
/// its channels.
fn times(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    outputs: usize,
    weight: impl Fn(usize, usize) -> f32,
    bias: Vec<f32>,
) -> Result<Activation, Reject> {
    let sizes = x.view.sizes();
    let last = sizes.len().checked_sub(1).ok_or_else(uneven)?;
    let inputs = sizes[last];
    if x.view.is_everything(last) {
        let node = fully_connected(builder, call, x, outputs, weight, bias)?;
        return Ok(Activation::new(node, View::vector(outputs, sizes.len())));
    }
    let moved;
    let x = match x.view.is_channels(last, builder.shape(x.node)) {
        true => x,
        false => {
            moved = channels_first(builder, &call.name, x, &[last])?;
            &moved
        }
    };
    let shape = builder.shape(x.node);
    if !x.view.is_channels(last, shape) {
        return Err(uneven());
    }
    // Channels last: a 1×1 convolution.
    let weights =
        (0..outputs).flat_map(|j| (0..inputs).map(move |k| (k, j))).map(|(k, j)| weight(k, j)).collect();
    let spec = network::Linear::same(outputs, 1, 0);
    let linear = Linear { spec, weights, bias: Bias::PerChannel(bias) };
    let node = builder.push(&call.name, linear, vec![x.node], [0; 3])?;
    Ok(Activation::new(node, x.view.with_channels(last, shape, outputs)))
}

/// `[.., n, k]` by constant matrices `[.., k, m]`, another one for each index of the dimensions before: a 1×1 convolution of groups.
fn by_group(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dims: &[usize],
    matrix: &[f32],
) -> Result<Vec<Value>, Reject> {
    let sizes = x.view.sizes();
    let (rank, [k, outputs]) = (sizes.len(), [dims[dims.len() - 2], dims[dims.len() - 1]]);
    let Some(more) = rank.checked_sub(dims.len()) else {
        return Err(Reject::unsupported("multiplies by constants of more dimensions than the value's"));
    };
    // Of the dimensions before the last two, those that the constant has.
    let apart: Vec<usize> = (0..rank - 2).filter(|&d| d >= more && dims[d - more] > 1).collect();
    if apart.iter().any(|&d| sizes[d] != dims[d - more]) {
        return Err(Reject::unsupported("multiplies a value by several constants at each place"));
    }
    let order = [&apart[..], &[rank - 1]].concat();
    let groups: usize = apart.iter().map(|&d| sizes[d]).product();
    if k != sizes[rank - 1] {
        return Err(Reject::invalid("has weights that do not fit its input"));
    }
    let x = channels_first(builder, &call.name, x, &order)?;
    let weights = (0..groups)
        .flat_map(|g| (0..outputs).flat_map(move |j| (0..k).map(move |i| (g * k + i) * outputs + j)));
    let weights: Vec<f32> = weights.map(|at| matrix[at]).collect();
    let bias = Bias::PerChannel(vec![0.0; groups * outputs]);
    let spec = network::Linear { groups, ..network::Linear::same(groups * outputs, 1, 0) };
    let made = builder.push(&call.name, Linear { spec, weights, bias }, vec![x.node], [0; 3])?;
    let mut made_sizes = sizes;
    made_sizes[rank - 1] = outputs;
    let view = lying_first(builder.shape(made), &made_sizes, &order);
    Ok(activation(made, view.ok_or_else(uneven)?))
}
