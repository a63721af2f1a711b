//! Arithmetic on constants that exporters leave in a file: comparisons and choices (paddings that depend on sizes),
//! reductions and norms of weights (weight standardisation).

use super::build::{Call, Reject, finite};
use super::tensor::{Tensor, broadcast, broadcast_positions, wrap};

use crate::onnx::Values;

/// The operators that are computed here.
pub(super) const OPERATORS: [&str; 23] = [
    "Abs",
    "And",
    "BatchNormalization",
    "Equal",
    "Exp",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Log",
    "Mod",
    "Not",
    "Or",
    "Pow",
    "Range",
    "Reciprocal",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "Sigmoid",
    "Tanh",
    "Where",
];

/// Computes one of [`OPERATORS`]; `limit` bounds the number of elements of the result.
pub(super) fn fold(call: &Call<'_>, limit: usize) -> Result<Tensor, Reject> {
    let x = call.constant(0)?;
    match call.operator() {
        "Abs" => Ok(Tensor { dims: x.dims.clone(), values: absolute(&x.values) }),
        "Exp" => Ok(each(x, f64::exp)),
        "Log" => Ok(each(x, f64::ln)),
        "Reciprocal" => Ok(each(x, f64::recip)),
        "Sigmoid" => Ok(each(x, |v| 1.0 / (1.0 + (-v).exp()))),
        "Tanh" => Ok(each(x, f64::tanh)),
        "Not" => Ok(Tensor { dims: x.dims.clone(), values: negated(&x.values) }),
        "BatchNormalization" => batch_normalization(call, x),
        "Range" => range(call, limit),
        "Where" => choice(call, limit),
        "ReduceMax" => reduction(call, x, Reduction::Max),
        "ReduceMean" => reduction(call, x, Reduction::Mean),
        "ReduceMin" => reduction(call, x, Reduction::Min),
        "ReduceSum" => reduction(call, x, Reduction::Sum),
        operator @ ("And" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Mod"
        | "Or" | "Pow") => {
            let y = call.constant(1)?;
            let (dims, [at_x, at_y]) = broadcast_all([x, y], limit)?;
            let pairs = at_x.into_iter().zip(at_y);
            let undefined = || Reject::invalid("divides by zero, or overflows");
            let values = match (&x.values, &y.values) {
                (Values::Int(x), Values::Int(y)) => {
                    // (As in C: the result has the dividend's sign.)
                    let as_in_c = operator == "Mod" && call.attribute_int("fmod", 0) != 0;
                    let of = |x: i64, y| if as_in_c { x.checked_rem(y) } else { of_ints(operator, x, y) };
                    let values: Option<Vec<i64>> = pairs.map(|(i, j)| of(x[i], y[j])).collect();
                    Values::Int(values.ok_or_else(undefined)?)
                }
                _ => {
                    let (x, y) = (x.to_floats(), y.to_floats());
                    of_floats(operator, pairs.map(|(i, j)| (x[i], y[j])))?
                }
            };
            Ok(Tensor { dims, values })
        }
        other => Err(Reject::not_computed(other)),
    }
}

/// A function of each number.
fn each(x: &Tensor, function: fn(f64) -> f64) -> Tensor {
    let values = x.to_floats().into_iter().map(|v| function(v.into()) as f32).collect();
    Tensor { dims: x.dims.clone(), values: Values::Float(values) }
}

/// 1 where it is zero, 0 elsewhere.
fn negated(values: &Values) -> Values {
    Values::Int(match values {
        Values::Int(v) => v.iter().map(|&v| i64::from(v == 0)).collect(),
        Values::Float(v) => v.iter().map(|&v| i64::from(v == 0.0)).collect(),
    })
}

fn absolute(values: &Values) -> Values {
    match values {
        Values::Int(v) => Values::Int(v.iter().map(|v| v.saturating_abs()).collect()),
        Values::Float(v) => Values::Float(v.iter().map(|v| v.abs()).collect()),
    }
}

/// `None` where there is no result. A comparison gives 0 or 1.
fn of_ints(operator: &str, x: i64, y: i64) -> Option<i64> {
    Some(match operator {
        "And" => i64::from(x != 0 && y != 0),
        "Or" => i64::from(x != 0 || y != 0),
        "Equal" => i64::from(x == y),
        "Greater" => i64::from(x > y),
        "GreaterOrEqual" => i64::from(x >= y),
        "Less" => i64::from(x < y),
        "LessOrEqual" => i64::from(x <= y),
        "Mod" => {
            // The result has the divisor's sign.
            let rest = x.checked_rem(y)?;
            if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
        }
        "Pow" => x.checked_pow(u32::try_from(y).ok()?)?,
        _ => return None,
    })
}

fn of_floats(operator: &str, pairs: impl Iterator<Item = (f32, f32)>) -> Result<Values, Reject> {
    let compare: fn(f32, f32) -> bool = match operator {
        "And" => |x, y| x != 0.0 && y != 0.0,
        "Or" => |x, y| x != 0.0 || y != 0.0,
        "Equal" => |x, y| x == y,
        "Greater" => |x, y| x > y,
        "GreaterOrEqual" => |x, y| x >= y,
        "Less" => |x, y| x < y,
        "LessOrEqual" => |x, y| x <= y,
        "Mod" => return Ok(Values::Float(pairs.map(|(x, y)| x % y).collect())),
        "Pow" => return Ok(Values::Float(pairs.map(|(x, y)| x.powf(y)).collect())),
        other => return Err(Reject::not_computed(other)),
    };
    Ok(Values::Int(pairs.map(|(x, y)| i64::from(compare(x, y))).collect()))
}

/// The shape of a broadcast, and for each of its elements where each tensor has it.
fn broadcast_all<const N: usize>(
    tensors: [&Tensor; N],
    limit: usize,
) -> Result<(Vec<usize>, [Vec<usize>; N]), Reject> {
    let dims = tensors.iter().try_fold(Vec::new(), |dims, tensor| broadcast(&dims, &tensor.dims));
    let dims = dims.ok_or_else(|| Reject::invalid("has shapes that do not go together"))?;
    let size = dims.iter().try_fold(1usize, |p, &d| p.checked_mul(d)).filter(|&size| size <= limit);
    size.ok_or_else(|| Reject::invalid("makes too large a constant"))?;
    let places = tensors.map(|tensor| broadcast_positions(&tensor.dims, &dims));
    Ok((dims, places))
}

/// The first value where the condition holds, else the second.
fn choice(call: &Call<'_>, limit: usize) -> Result<Tensor, Reject> {
    let parts = [call.constant(0)?, call.constant(1)?, call.constant(2)?];
    let (dims, [at, at_x, at_y]) = broadcast_all(parts, limit)?;
    let condition: Vec<bool> = match &parts[0].values {
        Values::Int(v) => v.iter().map(|&v| v != 0).collect(),
        Values::Float(v) => v.iter().map(|&v| v != 0.0).collect(),
    };
    let places = at.into_iter().zip(at_x.into_iter().zip(at_y));
    let values = match (&parts[1].values, &parts[2].values) {
        (Values::Int(x), Values::Int(y)) => {
            Values::Int(places.map(|(c, (i, j))| if condition[c] { x[i] } else { y[j] }).collect())
        }
        _ => {
            let (x, y) = (parts[1].to_floats(), parts[2].to_floats());
            Values::Float(places.map(|(c, (i, j))| if condition[c] { x[i] } else { y[j] }).collect())
        }
    };
    Ok(Tensor { dims, values })
}

/// From the first number by steps, the end left out.
fn range(call: &Call<'_>, limit: usize) -> Result<Tensor, Reject> {
    let numbers = [call.constant(0)?, call.constant(1)?, call.constant(2)?];
    numbers.iter().try_for_each(|n| exact(n))?;
    let floats = numbers.map(|n| n.to_floats().first().copied());
    let [Some(start), Some(end), Some(step)] = floats else {
        return Err(Reject::invalid("has an empty bound"));
    };
    let count = ((f64::from(end) - f64::from(start)) / f64::from(step)).ceil();
    if !(count.is_finite() && count <= limit as f64) {
        return Err(Reject::invalid("makes too large a constant"));
    }
    let count = count.max(0.0) as usize;
    let values = match numbers.map(|n| &n.values) {
        [Values::Int(start), Values::Int(_), Values::Int(step)] => {
            let at = |i: usize| step[0].checked_mul(i as i64).and_then(|v| v.checked_add(start[0]));
            let values: Option<Vec<i64>> = (0..count).map(at).collect();
            Values::Int(values.ok_or_else(|| Reject::invalid("overflows"))?)
        }
        _ => Values::Float((0..count).map(|i| start + i as f32 * step).collect()),
    };
    Ok(Tensor { dims: vec![count], values })
}

/// Refuses integers that single precision does not hold.
fn exact(x: &Tensor) -> Result<(), Reject> {
    match &x.values {
        Values::Int(values) if values.iter().any(|v| v.unsigned_abs() > 1 << 24) => {
            Err(Reject::invalid("computes with integers beyond 2^24"))
        }
        _ => Ok(()),
    }
}

/// What becomes of the values that a reduction takes together.
#[derive(Clone, Copy)]
enum Reduction {
    Max,
    Mean,
    Min,
    Sum,
}

/// Sums, means and extremes over some dimensions, or over all.
fn reduction(call: &Call<'_>, x: &Tensor, of: Reduction) -> Result<Tensor, Reject> {
    exact(x)?;
    if matches!((&x.values, of), (Values::Int(_), Reduction::Mean)) {
        return Err(Reject::instead("it takes the mean of integers", "Take it of floating-point numbers."));
    }
    let axes = call.ints("axes", 1)?.unwrap_or_default();
    if axes.is_empty() && call.attribute_int("noop_with_empty_axes", 0) != 0 {
        return Ok(x.clone());
    }
    let rank = x.dims.len();
    let gone: Option<Vec<usize>> = axes.iter().map(|&a| wrap(a, rank)).collect();
    let gone = gone.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    let is_gone = |d: usize| gone.is_empty() || gone.contains(&d);
    let whole: Vec<usize> = x.dims.iter().enumerate().map(|(d, &s)| if is_gone(d) { 1 } else { s }).collect();
    let count = whole.iter().product::<usize>();
    let each = x.values.len().checked_div(count).filter(|&each| each > 0);
    let each = each.ok_or_else(|| Reject::invalid("reduces nothing"))?;
    let places = broadcast_positions(&whole, &x.dims).into_iter();
    let start = match of {
        Reduction::Max => f64::NEG_INFINITY,
        Reduction::Min => f64::INFINITY,
        Reduction::Mean | Reduction::Sum => 0.0,
    };
    let mut reduced = vec![start; count];
    for (place, value) in places.zip(x.to_floats()) {
        let value = f64::from(value);
        let to = &mut reduced[place];
        *to = match of {
            Reduction::Max => to.max(value),
            Reduction::Min => to.min(value),
            Reduction::Mean | Reduction::Sum => *to + value,
        };
    }
    let values = match (&x.values, of) {
        (Values::Int(_), Reduction::Max | Reduction::Min | Reduction::Sum) => {
            Values::Int(reduced.into_iter().map(|v| v as i64).collect())
        }
        (Values::Float(_), Reduction::Max | Reduction::Min | Reduction::Sum) => {
            Values::Float(reduced.into_iter().map(|v| v as f32).collect())
        }
        (Values::Int(_) | Values::Float(_), Reduction::Mean) => {
            Values::Float(reduced.into_iter().map(|v| (v / each as f64) as f32).collect())
        }
    };
    let keep = call.attribute_int("keepdims", 1) != 0;
    let dims = whole.iter().enumerate().filter(|&(d, _)| keep || !is_gone(d)).map(|(_, &s)| s);
    Ok(Tensor { dims: dims.collect(), values })
}

/// Of weights, with the mean and variance that they have (in training mode) or with given ones. This is how torch writes
/// a convolution that standardises its weights.
fn batch_normalization(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    let results = call.proto.output.iter().filter(|name| !name.is_empty()).count();
    let training = call.attribute_int("training_mode", 0) != 0 || call.opset < 14 && results > 1;
    let channels = x.dims.get(1).copied().unwrap_or(0);
    let values = finite(x)?;
    let parameter = |index: usize| -> Result<Vec<f64>, Reject> {
        let values = finite(call.constant(index)?)?;
        match values.len() == channels {
            true => Ok(values.into_iter().map(f64::from).collect()),
            false => Err(Reject::invalid("has parameters of another number than channels")),
        }
    };
    let inner: usize = x.dims.get(2..).map_or(1, |d| d.iter().product());
    if channels == 0 || values.is_empty() {
        return Err(Reject::invalid("has no values"));
    }
    let channel = |i: usize| i / inner % channels;
    let (scale, shift) = (parameter(1)?, parameter(2)?);
    let (mean, variance) = if training {
        let each = (values.len() / channels) as f64;
        let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
        for (i, &v) in values.iter().enumerate() {
            mean[channel(i)] += f64::from(v) / each;
        }
        for (i, &v) in values.iter().enumerate() {
            variance[channel(i)] += (f64::from(v) - mean[channel(i)]).powi(2) / each;
        }
        (mean, variance)
    } else {
        (parameter(3)?, parameter(4)?)
    };
    let epsilon = f64::from(call.attribute_float("epsilon", 1e-5));
    let normal = |(i, v): (usize, f32)| {
        let c = channel(i);
        ((f64::from(v) - mean[c]) * scale[c] / (variance[c] + epsilon).sqrt() + shift[c]) as f32
    };
    Ok(Tensor {
        dims: x.dims.clone(),
        values: Values::Float(values.into_iter().enumerate().map(normal).collect()),
    })
}
