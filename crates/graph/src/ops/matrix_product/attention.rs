//! From ONNX's Attention: what it is made of, as an exporter of an older opset writes it.
//!
//! ```text
//! Y = softmax(scale·Q·Kᵀ + mask)·V
//! ```
//!
//! for each head; with a softcap c, softmax(c·tanh(scale·Q·Kᵀ / c)).

use super::onnx::of_values;
use crate::float::{Curve, Function, Primitive};
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value};
use crate::import::moves::select;
use crate::import::tensor::{Tensor, broadcast, broadcast_positions};
use crate::onnx::{Values, data_type};
use crate::ops::linear::affine::{affine, mapped};
use crate::ops::product::softmax::over;

pub(crate) const ONNX: &[(&str, Build)] = &[("Attention", attention)];

fn beyond() -> Reject {
    Reject::unsupported("takes values in an order that cannot be made")
}

/// An input as `[batch, heads, places, features]`. `[batch, places, heads·features]` has its number of heads in an attribute.
fn by_head(call: &Call<'_>, index: usize, attribute: &str) -> Result<Activation, Reject> {
    let x = call.activation(index)?;
    match x.view.sizes()[..] {
        [_, _, _, _] => Ok(x.clone()),
        [batch, places, width] => {
            let heads = usize::try_from(call.attribute_int(attribute, 0)).unwrap_or(0);
            let each = width.checked_div(heads).filter(|each| each * heads == width && *each > 0);
            let each = each.ok_or_else(|| Reject::invalid("has heads that do not divide its features"))?;
            let view = x.view.reshaped(&[batch, places, heads, each]);
            let view = view.and_then(|view| view.transposed(&[0, 2, 1, 3])).ok_or_else(beyond)?;
            Ok(Activation { view, ..x.clone() })
        }
        _ => Err(Reject::invalid("takes a value of another rank than 3 or 4")),
    }
}

fn attention(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if (4..call.inputs()).any(|index| call.has_input(index)) {
        return Err(Reject::instead(
            "takes keys and values of earlier calls",
            "Export the model without a cache: each query is of its own",
        ));
    }
    if call.proto.output.iter().skip(1).any(|name| !name.is_empty()) {
        return Err(Reject::instead(
            "has its keys, values or scores as results",
            "Export the model without a cache, and without attention weights as outputs",
        ));
    }
    let queries = by_head(call, 0, "q_num_heads")?;
    let (mut keys, mut values) = (by_head(call, 1, "kv_num_heads")?, by_head(call, 2, "kv_num_heads")?);
    let (q, k, v) = (queries.view.sizes(), keys.view.sizes(), values.view.sizes());
    let misfit = || Reject::invalid("has queries, keys and values that do not fit each other");
    if k[..3] != v[..3] || q[0] != k[0] || q[3] != k[3] {
        return Err(misfit());
    }
    let each = q[1].checked_div(k[1]).filter(|each| *each > 0 && each * k[1] == q[1]).ok_or_else(misfit)?;
    if each > 1 {
        // Several heads of queries share keys and values.
        let shared: Vec<usize> = (0..q[1]).map(|head| head / each).collect();
        keys = select(builder, call, &keys, 1, &shared)?;
        values = select(builder, call, &values, 1, &shared)?;
    }
    let scale = call.attribute_float("scale", (1.0 / (q[3] as f64).sqrt()) as f32);
    let cap = call.attribute_float("softcap", 0.0);
    if !(scale.is_finite() && scale > 0.0 && cap.is_finite() && cap >= 0.0) {
        return Err(Reject::unsupported("has a scale or a softcap that is not positive"));
    }
    keys.view = keys.view.transposed(&[0, 1, 3, 2]).ok_or_else(beyond)?;
    let mut scores = of_values(builder, call, &queries, &keys, scale)?;
    let mask = mask(call, &[q[0], q[1], q[2], k[2]])?;
    if cap > 0.0 {
        if mask.is_some() {
            return Err(Reject::unsupported("has a mask and a softcap"));
        }
        let node = mapped(builder, call, scores.node, 1.0 / cap, 0.0)?;
        let tanh = Curve { function: Function::Of(Primitive::Tanh, Box::new(Function::Value)) };
        let shape = builder.shape(node);
        let node = builder.push(&call.name, tanh, vec![node], shape)?;
        scores = scores.at(mapped(builder, call, node, cap, 0.0)?);
    }
    if let Some(mask) = mask {
        let made = affine(builder, call, &scores, &mask, |v| (1.0, v))?;
        let [Value::Activation(masked)] = &made[..] else { return Ok(made) };
        scores = masked.clone();
    }
    let weights = over(builder, call, &scores, &[3])?;
    let mut mixed = of_values(builder, call, &weights, &values, 1.0)?;
    if call.rank() == Some(3) {
        let view = mixed.view.transposed(&[0, 2, 1, 3]);
        let view = view.and_then(|view| view.reshaped(&[q[0], q[2], q[1] * v[3]]));
        mixed.view = view.ok_or_else(beyond)?;
    }
    Ok(vec![mixed.into()])
}

/// What is added to the scores, if anything is: of truth values, nothing where they are true.
fn mask(call: &Call<'_>, sizes: &[usize; 4]) -> Result<Option<Tensor>, Reject> {
    if call.attribute_int("is_causal", 0) != 0 {
        if call.has_input(3) {
            return Err(Reject::invalid("is causal and has a mask"));
        }
        let &[_, _, rows, columns] = sizes;
        let later = |at: usize| if at % columns > at / columns { f32::MIN } else { 0.0 };
        let count = rows.checked_mul(columns).filter(|&count| count <= crate::limits::MAX_ELEMENTS);
        let values = (0..count.ok_or(Reject::TooLarge("values"))?).map(later).collect();
        return Ok(Some(Tensor { dims: vec![rows, columns], values: Values::Float(values) }));
    }
    if !call.has_input(3) {
        return Ok(None);
    }
    let mask = call.constant(3)?;
    if broadcast(&mask.dims, sizes).as_deref() != Some(sizes) {
        return Err(Reject::invalid("has a mask of another shape than its scores"));
    }
    let number = |kind: Option<&Option<i32>>| matches!(kind, Some(Some(kind)) if *kind != data_type::BOOL);
    let added: Vec<f32> = match &mask.values {
        Values::Int(v) if !number(call.kinds.get(3)) => {
            v.iter().map(|&kept| if kept != 0 { 0.0 } else { f32::MIN }).collect()
        }
        Values::Int(_) | Values::Float(_) => {
            mask.to_floats().into_iter().map(|v| if v == f32::NEG_INFINITY { f32::MIN } else { v }).collect()
        }
    };
    // (A mask of each place, or of fewer dimensions, is one of rows and columns then.)
    let [.., rows, columns] = *sizes;
    let wide = broadcast(&mask.dims, &[rows, columns]).unwrap_or_default();
    let at = broadcast_positions(&mask.dims, &wide);
    let values = Values::Float(at.into_iter().map(|at| added[at]).collect());
    Ok(Some(Tensor { dims: wide, values }))
}
