//! From ONNX's operators that move no value: they say otherwise how it lies, or what is known of it.

use std::sync::Arc;

use crate::import::build::{Activation, Builder, Call, Reject, Value};
use crate::import::build::{activation, identity};
use crate::import::constant::{squeezed, unsqueezed};
use crate::import::moves::{materialise, no_image};
use crate::import::refusal::AT_THE_END;
use crate::import::tensor::{Tensor, reshape_sizes, wrap};
use crate::import::view::View;
use crate::onnx::Values;

pub(crate) fn dropout(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if call.has_input(2) && call.constant_ints(2)? != [0] {
        return Err(Reject::instead(
            "is in training mode: it would drop values by chance",
            "Export the model in evaluation mode (in PyTorch: model.eval() before torch.onnx.export)",
        ));
    }
    identity(builder, call)
}

pub(crate) fn shape_of(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let sizes = call.activation(0)?.view.sizes();
    let rank = sizes.len() as i64;
    let bound = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
    let (start, end) = (bound(call.attribute_int("start", 0)), bound(call.attribute_int("end", rank)));
    let part = sizes.get(start..end).unwrap_or(&[]);
    Ok(vec![Value::Constant(Arc::new(Tensor::ints(part.iter().map(|&s| s as i64).collect())))])
}

pub(crate) fn size_of(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let size = call.activation(0)?.view.sizes().iter().product::<usize>() as i64;
    Ok(vec![Value::Constant(Arc::new(Tensor { dims: Vec::new(), values: Values::Int(vec![size]) }))])
}

/// Ones on a diagonal, zeros elsewhere: of the input only the sizes count.
pub(crate) fn eye_like(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let sizes = match call.input(0)? {
        Value::Constant(x) => x.dims.clone(),
        _ => call.activation(0)?.view.sizes(),
    };
    let [rows, columns] = sizes[..] else { return Err(Reject::invalid("takes no matrix")) };
    let k = call.attribute_int("k", 0);
    builder.list(rows.saturating_mul(columns))?;
    let one = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        f32::from(u8::from(column as i64 - row as i64 == k))
    };
    let values = Values::Float((0..rows * columns).map(one).collect());
    Ok(vec![Value::Constant(Arc::new(Tensor { dims: sizes, values }))])
}

/// Gives the value other dimensions; without moving it, unless they cut its own unevenly.
fn regroup(builder: &mut Builder, call: &Call<'_>, sizes: &[usize]) -> Result<Vec<Value>, Reject> {
    // A softmax at the end may be reshaped.
    let Value::Activation(x) = call.input(0)? else {
        return Err(Reject::unsupported("its input is constant"));
    };
    if let Some(view) = x.view.reshaped(sizes) {
        return Ok(vec![Activation { view, ..x.clone() }.into()]);
    }
    let count = x.view.sizes().iter().product();
    let view = View::vector(count, 2).reshaped(sizes);
    let view = view.ok_or_else(|| Reject::invalid("changes the number of elements"))?;
    let node = materialise(builder, &call.name, x, [count, 1, 1])?;
    Ok(vec![Activation { node, view, ..x.clone() }.into()])
}

fn view_sizes(call: &Call<'_>) -> Result<Vec<usize>, Reject> {
    match call.input(0)? {
        Value::Activation(x) => Ok(x.view.sizes()),
        _ => Err(Reject::unsupported("its input is constant")),
    }
}

/// Sizes of a reshape that was exported for a fixed batch, for one of it.
fn one_of(batch: usize, old: &[usize], new: &mut [i64]) -> Result<(), Reject> {
    match (old.first(), new.first().copied()) {
        (Some(1), Some(first)) if usize::try_from(first) == Ok(batch) => new[0] = 1,
        // As many as are left, or as there were: of whole samples.
        (_, Some(-1..=0)) => {}
        // Elsewhere what is left would take the batch, too.
        _ if new.contains(&-1) => return Err(Reject::invalid("reshapes a batch and its samples together")),
        _ => {}
    }
    Ok(())
}

pub(crate) fn reshape(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let mut new = call.constant_ints(1)?;
    let old = view_sizes(call)?;
    if let Some(batch) = builder.batch {
        one_of(batch, &old, &mut new)?;
    }
    let sizes = reshape_sizes(&old, &new, call.attribute_int("allowzero", 0) != 0);
    let sizes = sizes.ok_or_else(|| Reject::Invalid(format!("reshapes {old:?} to {new:?}")))?;
    regroup(builder, call, &sizes)
}

pub(crate) fn flatten(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let old = view_sizes(call)?;
    let axis = call.attribute_int("axis", 1);
    let axis = if axis == old.len() as i64 { Some(old.len()) } else { wrap(axis, old.len()) };
    let axis = axis.ok_or_else(|| Reject::invalid("has an axis out of range"))?;
    regroup(builder, call, &[old[..axis].iter().product(), old[axis..].iter().product()])
}

pub(crate) fn squeeze(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let axes = call.ints("axes", 1)?;
    regroup(builder, call, &squeezed(&view_sizes(call)?, axes.as_deref())?)
}

pub(crate) fn unsqueeze(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let axes = call.ints("axes", 1)?.ok_or_else(|| Reject::invalid("has no axes"))?;
    regroup(builder, call, &unsqueezed(&view_sizes(call)?, &axes)?)
}

pub(crate) fn transpose(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
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
    let finish = x.finish.transposed(&x.view.sizes(), &perm).ok_or_else(|| {
        Reject::instead("orders the result of a softmax anew, which was reshaped unevenly", AT_THE_END)
    })?;
    Ok(vec![Activation { view, finish, ..x.clone() }.into()])
}

/// `[1, C, H, W]` and the size of a block.
fn blocks_of(call: &Call<'_>) -> Result<([usize; 3], usize), Reject> {
    let sizes = call.activation(0)?.view.sizes();
    let block = usize::try_from(call.attribute_int("blocksize", 0)).ok();
    let block = block.filter(|&b| (1..=crate::limits::MAX_EXTENT).contains(&b));
    match (&sizes[..], block) {
        (&[1, c, h, w], Some(block)) => Ok(([c, h, w], block)),
        (_, None) => Err(Reject::invalid("has no blocksize that can be")),
        _ => Err(no_image(&sizes)),
    }
}

/// The value with its dimensions cut into `parts`, these put into the order `perm`, and joined to `whole`.
fn regrouped(x: &Activation, parts: &[usize], perm: &[usize], whole: &[usize]) -> Result<Vec<Value>, Reject> {
    let view = x.view.reshaped(parts).and_then(|v| v.transposed(perm)).and_then(|v| v.reshaped(whole));
    let view = view.ok_or_else(|| Reject::unsupported("its input is flattened or regrouped"))?;
    Ok(activation(x.node, view))
}

/// Groups of channels become squares of places.
pub(crate) fn depth_to_space(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
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
pub(crate) fn space_to_depth(_: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let ([c, h, w], b) = blocks_of(call)?;
    if h % b != 0 || w % b != 0 {
        return Err(Reject::invalid("has a height or width that its blocksize does not divide"));
    }
    let whole = [1, c * b * b, h / b, w / b];
    regrouped(call.activation(0)?, &[1, c, h / b, b, w / b, b], &[0, 3, 5, 1, 2, 4], &whole)
}
