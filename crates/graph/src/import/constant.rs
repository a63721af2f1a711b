//! Constants and what exporters compute with them: shapes read, sliced, joined and reshaped, weights transposed.

use super::build::{Call, Reject};
use super::tensor::{Tensor, broadcast, broadcast_positions, reshape_sizes, slice_indices, wrap};
use super::{arithmetic, tables};
use crate::onnx::{Values, data_type};

/// What a Constant node holds.
pub(super) fn given(call: &Call<'_>) -> Result<Tensor, Reject> {
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

/// The operators that are computed when all their inputs are constants.
pub(super) fn folds(operator: &str) -> bool {
    const FOLDED: [&str; 29] = [
        "Identity",
        "Cast",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Concat",
        "Gather",
        "Slice",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Neg",
        "Sqrt",
        "Floor",
        "Ceil",
        "Clip",
        "Max",
        "Min",
        "ReduceProd",
        "ConstantOfShape",
        "Shape",
        "Size",
        "Expand",
        "Split",
        "QuantizeLinear",
        "DequantizeLinear",
    ];
    FOLDED.contains(&operator)
        || arithmetic::OPERATORS.contains(&operator)
        || tables::OPERATORS.contains(&operator)
}

/// Computes an operator on constants. `limit` bounds the number of elements of the result.
pub(super) fn fold(call: &Call<'_>, limit: usize) -> Result<Tensor, Reject> {
    let too_large = || Reject::invalid("makes too large a constant");
    let x = call.constant(0)?;
    let count = x.values.len();
    let axes = |index: usize| -> Result<Option<Vec<i64>>, Reject> {
        match call.attribute_ints("axes") {
            Some(axes) => Ok(Some(axes.to_vec())),
            None if call.has_input(index) => Ok(Some(call.constant_ints(index)?)),
            None => Ok(None),
        }
    };
    Ok(match call.operator() {
        "Identity" => x.clone(),
        "Cast" => match (call.attribute_int("to", 0) as i32, &x.values) {
            (data_type::INT64 | data_type::INT32 | data_type::BOOL, Values::Float(v)) => {
                Tensor { dims: x.dims.clone(), values: Values::Int(v.iter().map(|&v| v as i64).collect()) }
            }
            (data_type::FLOAT | data_type::DOUBLE | data_type::FLOAT16, Values::Int(_)) => {
                Tensor { dims: x.dims.clone(), values: Values::Float(x.to_floats()) }
            }
            _ => x.clone(),
        },
        "Reshape" => {
            let new = call.constant_ints(1)?;
            let dims = reshape_sizes(&x.dims, &new, call.attribute_int("allowzero", 0) != 0);
            x.with_dims(dims.ok_or_else(|| Reject::invalid("reshapes a constant to another size"))?)
        }
        "Flatten" => {
            let axis = call.attribute_int("axis", 1);
            // (Behind the last dimension is no axis by a negative number.)
            let axis =
                if axis == x.dims.len() as i64 { Some(x.dims.len()) } else { wrap(axis, x.dims.len()) };
            let axis = axis.ok_or_else(|| Reject::invalid("has no such axis"))?;
            x.with_dims(vec![x.dims[..axis].iter().product(), x.dims[axis..].iter().product()])
        }
        "Transpose" => {
            let rank = x.dims.len();
            let perm: Vec<usize> = match call.attribute_ints("perm") {
                Some(perm) => perm.iter().filter_map(|&p| wrap(p, rank)).collect(),
                None => (0..rank).rev().collect(),
            };
            x.transposed(&perm).ok_or_else(|| Reject::invalid("has no permutation"))?
        }
        "Squeeze" => x.with_dims(squeezed(&x.dims, axes(1)?.as_deref())?),
        "Unsqueeze" => {
            let axes = axes(1)?.ok_or_else(|| Reject::invalid("has no axes"))?;
            x.with_dims(unsqueezed(&x.dims, &axes)?)
        }
        "Concat" => {
            let parts = (0..call.inputs()).map(|i| call.constant(i)).collect::<Result<Vec<_>, _>>()?;
            let axis = wrap(call.attribute_int("axis", 0), x.dims.len());
            let axis = axis.ok_or_else(|| Reject::invalid("has no such axis"))?;
            let total: usize = parts.iter().map(|p| p.values.len()).sum();
            if total > limit {
                return Err(too_large());
            }
            let mut dims = x.dims.clone();
            dims[axis] = 0;
            for part in &parts {
                let others_agree = part.dims.len() == dims.len()
                    && part.dims.iter().zip(&x.dims).enumerate().all(|(i, (a, b))| i == axis || a == b);
                if !others_agree {
                    return Err(Reject::invalid("joins constants of different shapes"));
                }
                dims[axis] += part.dims[axis];
            }
            let outer: usize = dims[..axis].iter().product();
            let real = parts.iter().any(|p| matches!(p.values, Values::Float(_)));
            let mut floats = Vec::new();
            let mut ints = Vec::new();
            for o in 0..outer {
                for part in &parts {
                    let run = part.values.len() / outer;
                    match &part.values {
                        Values::Int(v) if !real => ints.extend_from_slice(&v[o * run..][..run]),
                        _ => floats.extend_from_slice(&part.to_floats()[o * run..][..run]),
                    }
                }
            }
            Tensor { dims, values: if real { Values::Float(floats) } else { Values::Int(ints) } }
        }
        "Gather" => {
            let indices = call.constant(1)?;
            let axis = wrap(call.attribute_int("axis", 0), x.dims.len());
            let axis = axis.ok_or_else(|| Reject::invalid("has no such axis"))?;
            let chosen: Option<Vec<usize>> =
                indices.to_ints().and_then(|v| v.into_iter().map(|i| wrap(i, x.dims[axis])).collect());
            let chosen = chosen.ok_or_else(|| Reject::invalid("has an index out of range"))?;
            let outer: usize = x.dims[..axis].iter().product();
            let inner: usize = x.dims[axis + 1..].iter().product();
            if outer.saturating_mul(inner).saturating_mul(chosen.len()) > limit {
                return Err(too_large());
            }
            let size = x.dims[axis];
            let positions = (0..outer).flat_map(|o| {
                chosen.iter().flat_map(move |&c| (0..inner).map(move |i| (o * size + c) * inner + i))
            });
            let dims = [&x.dims[..axis], &indices.dims, &x.dims[axis + 1..]].concat();
            x.gathered(dims, positions)
        }
        "Slice" => {
            let ranges = call.slice_ranges(&x.dims, true)?;
            let mut positions = vec![0];
            for (&range, &size) in ranges.iter().zip(&x.dims) {
                positions =
                    positions.iter().flat_map(|p| slice_indices(range).map(move |i| p * size + i)).collect();
            }
            x.gathered(ranges.iter().map(|r| r.1).collect(), positions.into_iter())
        }
        "Clip" => clipped(call, x)?,
        // (Of one, it is that one.)
        "Max" | "Min" if call.inputs() == 1 => x.clone(),
        "Max" | "Min" if call.inputs() > 2 => {
            return Err(Reject::unsupported(&format!(
                "{} of more than two constants is not computed",
                call.operator()
            )));
        }
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" => {
            let y = call.constant(1)?;
            let dims = broadcast(&x.dims, &y.dims)
                .ok_or_else(|| Reject::invalid("has shapes that do not go together"))?;
            let size = dims.iter().try_fold(1usize, |p, &d| p.checked_mul(d)).filter(|&size| size <= limit);
            size.ok_or_else(too_large)?;
            let (at_x, at_y) = (broadcast_positions(&x.dims, &dims), broadcast_positions(&y.dims, &dims));
            let pairs = at_x.into_iter().zip(at_y);
            let values = match (&x.values, &y.values) {
                (Values::Int(x), Values::Int(y)) => {
                    let of: fn(i64, i64) -> Option<i64> = match call.operator() {
                        "Add" => i64::checked_add,
                        "Sub" => i64::checked_sub,
                        "Mul" => i64::checked_mul,
                        "Div" => i64::checked_div,
                        "Max" => |x, y| Some(x.max(y)),
                        "Min" => |x, y| Some(x.min(y)),
                        other => return Err(Reject::not_computed(other)),
                    };
                    let values: Option<Vec<i64>> = pairs.map(|(i, j)| of(x[i], y[j])).collect();
                    Values::Int(values.ok_or_else(|| Reject::invalid("overflows"))?)
                }
                _ => {
                    let (x, y) = (x.to_floats(), y.to_floats());
                    let of: fn(f32, f32) -> f32 = match call.operator() {
                        "Add" => |x, y| x + y,
                        "Sub" => |x, y| x - y,
                        "Mul" => |x, y| x * y,
                        "Div" => |x, y| x / y,
                        "Max" => f32::max,
                        "Min" => f32::min,
                        other => return Err(Reject::not_computed(other)),
                    };
                    Values::Float(pairs.map(|(i, j)| of(x[i], y[j])).collect())
                }
            };
            Tensor { dims, values }
        }
        "Neg" | "Sqrt" | "Floor" | "Ceil" => {
            let values = match (&x.values, call.operator()) {
                (Values::Int(v), "Neg") => Values::Int(v.iter().map(|v| v.wrapping_neg()).collect()),
                (Values::Int(_), "Floor" | "Ceil") => x.values.clone(),
                (_, "Neg") => Values::Float(x.to_floats().iter().map(|v| -v).collect()),
                (_, "Sqrt") => Values::Float(x.to_floats().iter().map(|v| v.sqrt()).collect()),
                (_, "Floor") => Values::Float(x.to_floats().iter().map(|v| v.floor()).collect()),
                (_, "Ceil") => Values::Float(x.to_floats().iter().map(|v| v.ceil()).collect()),
                (_, other) => return Err(Reject::not_computed(other)),
            };
            Tensor { dims: x.dims.clone(), values }
        }
        "ReduceProd" => {
            let all = axes(1)?.is_none_or(|a| a.len() == x.dims.len());
            let ints = x
                .to_ints()
                .filter(|_| all)
                .ok_or_else(|| Reject::unsupported("reduces a constant by axis"))?;
            let product = ints.iter().try_fold(1i64, |p, &v| p.checked_mul(v));
            let product = product.ok_or_else(|| Reject::invalid("overflows"))?;
            let keep = call.attribute_int("keepdims", 1) != 0;
            Tensor {
                dims: if keep { vec![1; x.dims.len()] } else { Vec::new() },
                values: Values::Int(vec![product]),
            }
        }
        "ConstantOfShape" | "Expand" => {
            let shape = call.constant_ints(usize::from(call.operator() == "Expand"))?;
            let dims: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
            let dims = dims.ok_or_else(|| Reject::invalid("has a negative size"))?;
            let source = match call.operator() {
                "Expand" => x.clone(),
                "ConstantOfShape" => match call.attribute_tensor("value")? {
                    Some(tensor) => tensor.with_dims(Vec::new()),
                    None => Tensor { dims: Vec::new(), values: Values::Float(vec![0.0]) },
                },
                other => return Err(Reject::not_computed(other)),
            };
            let dims = broadcast(&dims, &source.dims)
                .ok_or_else(|| Reject::invalid("has shapes that do not go together"))?;
            let size = dims.iter().try_fold(1usize, |p, &d| p.checked_mul(d)).filter(|&size| size <= limit);
            if source.values.is_empty() || size.is_none() {
                return Err(too_large());
            }
            source.gathered(dims.clone(), broadcast_positions(&source.dims, &dims).into_iter())
        }
        "QuantizeLinear" | "DequantizeLinear" => quantisation(call, x)?,
        "Shape" => Tensor::ints(x.dims.iter().map(|&d| d as i64).collect()),
        "Size" => Tensor { dims: Vec::new(), values: Values::Int(vec![count as i64]) },
        operator if tables::OPERATORS.contains(&operator) => tables::fold(call, limit)?,
        _ => arithmetic::fold(call, limit)?,
    })
}

/// A constant between bounds, which are inputs, or attributes in older files.
fn clipped(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    let bound = |index: usize, name: &str, none: f32| -> Result<Tensor, Reject> {
        if call.has_input(index) {
            let bound = call.constant(index)?;
            return match bound.values.len() {
                1 => Ok(bound.clone()),
                _ => Err(Reject::invalid("has a bound that is no single number")),
            };
        }
        Ok(Tensor { dims: Vec::new(), values: Values::Float(vec![call.attribute_float(name, none)]) })
    };
    let (low, high) = (bound(1, "min", f32::NEG_INFINITY)?, bound(2, "max", f32::INFINITY)?);
    let values = match &x.values {
        Values::Int(values) => {
            // (An infinite bound becomes the farthest integer.)
            let int = |bound: &Tensor| match &bound.values {
                Values::Int(v) => v[0],
                Values::Float(v) => v[0] as i64,
            };
            let (low, high) = (int(&low), int(&high));
            Values::Int(values.iter().map(|&v| v.max(low).min(high)).collect())
        }
        Values::Float(values) => {
            let (low, high) = (low.to_floats()[0], high.to_floats()[0]);
            Values::Float(values.iter().map(|&v| v.max(low).min(high)).collect())
        }
    };
    Ok(Tensor { dims: x.dims.clone(), values })
}

/// QuantizeLinear or DequantizeLinear of a constant: as a whole, or slice by slice of one axis.
fn quantisation(call: &Call<'_>, x: &Tensor) -> Result<Tensor, Reject> {
    if call.attribute_int("block_size", 0) != 0 {
        return Err(Reject::unsupported("is quantised by blocks"));
    }
    let scale = call.constant(1)?.to_floats();
    let integers = || Reject::invalid("has a zero point that is no integer");
    let zero = match call.has_input(2) {
        true => call.constant(2)?.to_ints().ok_or_else(integers)?,
        false => vec![0; scale.len()],
    };
    if scale.is_empty() || scale.len() != zero.len() {
        return Err(Reject::invalid("has scales and zero points of different numbers"));
    }
    let (mut size, mut inner) = (1, 1);
    if scale.len() > 1 {
        let axis = wrap(call.attribute_int("axis", 1), x.dims.len());
        let axis = axis.ok_or_else(|| Reject::invalid("has no such axis"))?;
        (size, inner) = (x.dims[axis], x.dims[axis + 1..].iter().product());
        if size != scale.len() {
            return Err(Reject::invalid("has another number of scales than slices"));
        }
    }
    let place = |i: usize| i / inner % size;
    let values = if call.operator() == "DequantizeLinear" {
        let ints = x.to_ints().ok_or_else(|| Reject::invalid("takes what was not quantised"))?;
        let real = |(i, v): (usize, i64)| v.saturating_sub(zero[place(i)]) as f32 * scale[place(i)];
        Values::Float(ints.into_iter().enumerate().map(real).collect())
    } else {
        let (low, high) = call.quantised_range()?;
        let quantise = |(i, v): (usize, f32)| {
            let rounded = (v / scale[place(i)]).round_ties_even() as i64;
            rounded.saturating_add(zero[place(i)]).clamp(low, high)
        };
        Values::Int(x.to_floats().into_iter().enumerate().map(quantise).collect())
    };
    Ok(Tensor { dims: x.dims.clone(), values })
}

/// A shape without some (or all) dimensions of size one.
pub(crate) fn squeezed(dims: &[usize], axes: Option<&[i64]>) -> Result<Vec<usize>, Reject> {
    let gone: Vec<usize> = match axes {
        Some(axes) => axes.iter().filter_map(|&a| wrap(a, dims.len())).collect(),
        None => (0..dims.len()).filter(|&i| dims[i] == 1).collect(),
    };
    if gone.iter().any(|&i| dims[i] != 1) || axes.is_some_and(|a| a.len() != gone.len()) {
        return Err(Reject::invalid("drops a dimension that is not one"));
    }
    Ok(dims.iter().enumerate().filter(|(i, _)| !gone.contains(i)).map(|(_, &d)| d).collect())
}

/// A shape with dimensions of size one put in.
pub(crate) fn unsqueezed(dims: &[usize], axes: &[i64]) -> Result<Vec<usize>, Reject> {
    let rank = dims.len() + axes.len();
    let mut new: Vec<usize> = axes.iter().filter_map(|&a| wrap(a, rank)).collect();
    new.sort_unstable();
    new.dedup();
    if new.len() != axes.len() || rank > 64 {
        return Err(Reject::invalid("has axes out of range"));
    }
    let mut old = dims.iter();
    Ok((0..rank).map(|i| if new.contains(&i) { 1 } else { old.next().copied().unwrap_or(1) }).collect())
}
