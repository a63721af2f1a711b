//! What ONNX says of the size of a node's result, whether the node is read or not.

use super::build::{Call, Value};
use super::tensor::{broadcast, reshape_sizes, wrap};

/// Operators that work element by element.
const ELEMENTWISE: [&str; 33] = [
    "Abs",
    "Add",
    "Cast",
    "Celu",
    "Clip",
    "Div",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "HardSigmoid",
    "Identity",
    "LeakyRelu",
    "Log",
    "Max",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
    "Where",
];

/// Others whose result has the shape of their first input.
const OF_ONE_SHAPE: [&str; 10] = [
    "BatchNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "RMSNormalization",
    "Softmax",
];

/// Whether an operator's result has the shape of its (largest) input.
pub(super) fn keeps_shape(operator: &str) -> bool {
    ELEMENTWISE.contains(&operator) || OF_ONE_SHAPE.contains(&operator)
}

/// The sizes of a refused node's (first) result, as far as they follow from what is known of its inputs.
pub(super) fn result_sizes(call: &Call<'_>) -> Option<Vec<usize>> {
    let sizes = |index: usize| match call.inputs.get(index)? {
        Some(Value::Activation(a)) => Some(a.view.sizes()),
        Some(Value::Constant(tensor)) => Some(tensor.dims.clone()),
        _ => None,
    };
    let x = sizes(0)?;
    match call.operator() {
        "MatMul" => {
            let y = sizes(1)?;
            let ([a @ .., rows, inner], [b @ .., other, columns]) = (&x[..], &y[..]) else { return None };
            let batch = broadcast(a, b).filter(|_| inner == other)?;
            Some([&batch[..], &[*rows, *columns]].concat())
        }
        "Concat" => {
            let axis = wrap(call.attribute_int("axis", 1), x.len())?;
            let along = |index| sizes(index).and_then(|s| s.get(axis).copied());
            let total: Option<usize> = (0..call.inputs()).map(along).sum();
            Some([&x[..axis], &[total?], &x[axis + 1..]].concat())
        }
        "Reshape" => reshape_sizes(&x, &call.constant_ints(1).ok()?, call.attribute_int("allowzero", 0) != 0),
        "Conv" | "MaxPool" | "AveragePool" | "LpPool" => window_sizes(call, &x, sizes(1)),
        "Resize" => {
            let whole = [0, 1, 2].map(|i| call.constant(i + 1).ok().filter(|t| !t.values.is_empty()));
            match whole {
                [_, _, Some(sizes)] => sizes.to_ints()?.iter().map(|&s| usize::try_from(s).ok()).collect(),
                [_, Some(scales), None] => {
                    let scaled = |(&size, scale): (&usize, f32)| (size as f32 * scale) as usize;
                    Some(x.iter().zip(scales.to_floats()).map(scaled).collect())
                }
                _ => None,
            }
        }
        operator if operator.starts_with("Reduce") => {
            let axes = call.ints("axes", 1).ok()?.unwrap_or_else(|| (0..x.len() as i64).collect());
            let gone: Vec<usize> = axes.iter().filter_map(|&a| wrap(a, x.len())).collect();
            let keep = call.attribute_int("keepdims", 1) != 0;
            let left = x.iter().enumerate().filter(|(d, _)| keep || !gone.contains(d));
            Some(left.map(|(d, &size)| if gone.contains(&d) { 1 } else { size }).collect())
        }
        _ => None,
    }
}

/// What windows over any number of dimensions leave of `x`; `weights` has a convolution's sizes.
fn window_sizes(call: &Call<'_>, x: &[usize], weights: Option<Vec<usize>>) -> Option<Vec<usize>> {
    let places = x.get(2..)?;
    let small = |values: &[i64]| values.iter().map(|&v| usize::try_from(v).ok()).collect::<Option<Vec<_>>>();
    let attribute = |name: &str, default: usize, count: usize| match call.attribute_ints(name) {
        Some(values) => small(values).filter(|v| v.len() == count),
        None => Some(vec![default; count]),
    };
    let (channels, kernel) = match weights {
        Some(weights) if call.operator() == "Conv" => (*weights.first()?, weights.get(2..)?.to_vec()),
        _ => (*x.get(1)?, small(call.attribute_ints("kernel_shape")?)?),
    };
    let (stride, dilation) =
        (attribute("strides", 1, places.len())?, attribute("dilations", 1, places.len())?);
    let pads = attribute("pads", 0, 2 * places.len())?;
    let mut made = vec![x[0], channels];
    for (d, &size) in places.iter().enumerate() {
        let extent = kernel.get(d)?.checked_sub(1)?.checked_mul(dilation[d])?.checked_add(1)?;
        let room = size.checked_add(pads[d])?.checked_add(pads[d + places.len()])?.checked_sub(extent)?;
        made.push(room.checked_div(stride[d])? + 1);
    }
    Some(made)
}
