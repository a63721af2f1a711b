//! From ONNX's curves. Those that exporters write in several nodes, as x·sigmoid(x), become one when operations are fused.

use super::bend::Power;
use super::float::Curve;
use super::function::{Function, Primitive};
use crate::float::Node;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value, non_negative_by_element};
use crate::import::finish;
use crate::import::refusal::AT_THE_END;
use crate::network::{NodeId, Rearrange, Shape};
use crate::ops::linear::affine::few;

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("Celu", |builder, call| {
        let alpha = call.attribute_float("alpha", 1.0);
        exponential(builder, call, [alpha, alpha, 1.0])
    }),
    ("Elu", |builder, call| exponential(builder, call, [call.attribute_float("alpha", 1.0), 1.0, 1.0])),
    ("Erf", |builder, call| primitive(builder, call, Primitive::Erf)),
    ("Gelu", gelu),
    ("HardSwish", |builder, call| curve(builder, call, Function::hard_swish())),
    ("Mish", |builder, call| curve(builder, call, Function::mish())),
    ("Reciprocal", |builder, call| power(builder, call, -1.0)),
    ("Selu", |builder, call| {
        let alpha = call.attribute_float("alpha", 1.673_263_2);
        exponential(builder, call, [alpha, 1.0, call.attribute_float("gamma", 1.050_701)])
    }),
    ("Sigmoid", sigmoid),
    ("Softplus", |builder, call| primitive(builder, call, Primitive::Softplus)),
    ("Softsign", |builder, call| primitive(builder, call, Primitive::Softsign)),
    ("Sqrt", |builder, call| power(builder, call, 0.5)),
    ("Swish", |builder, call| {
        let alpha = call.attribute_float("alpha", 1.0);
        if !alpha.is_finite() {
            return Err(Reject::invalid("has a parameter that is not finite"));
        }
        curve(builder, call, Function::swish(alpha))
    }),
    ("Tanh", |builder, call| primitive(builder, call, Primitive::Tanh)),
];

pub(crate) fn curve(
    builder: &mut Builder,
    call: &Call<'_>,
    function: Function,
) -> Result<Vec<Value>, Reject> {
    builder.elementwise(call, Curve { function })
}

fn primitive(builder: &mut Builder, call: &Call<'_>, primitive: Primitive) -> Result<Vec<Value>, Reject> {
    curve(builder, call, Function::Of(primitive, Box::new(Function::Value)))
}

/// x³.
pub(crate) fn cube(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    primitive(builder, call, Primitive::Cube)
}

/// Bands of a power by which a norm scales: [`Power`] says what they are.
pub(crate) const NORM_BANDS: u32 = 3;

fn power(builder: &mut Builder, call: &Call<'_>, exponent: f64) -> Result<Vec<Value>, Reject> {
    Ok(vec![powered(builder, call, call.activation(0)?, exponent, NORM_BANDS)?.into()])
}

/// `x^exponent` of what cannot be negative; a power of a power is one. Where values were repeated, it is taken of what they were before.
///
/// # Errors
/// The value may be negative.
pub(crate) fn powered(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    exponent: f64,
    bands: u32,
) -> Result<Activation, Reject> {
    let (mut node, moves) = before_moves(builder, x.node);
    let mut exponent = exponent;
    if let Some(Power { exponent: inner, .. }) = builder.nodes[node].op.downcast_ref() {
        exponent *= inner;
        node = builder.nodes[node].inputs[0];
    }
    if !non_negative_by_element(&builder.nodes, node) {
        return Err(Reject::instead(
            "takes a power, a root or an inverse of a value that may be negative",
            &format!("Squares, their means and their roots are supported, as in norms. {AT_THE_END}"),
        ));
    }
    if builder.nodes[node].op.takes_means() {
        node = few(builder, call, node, 1.0, 0.0)?;
    }
    if exponent != 1.0 {
        let shape = builder.shape(node);
        node = builder.push(&call.name, Power::of(exponent, bands), vec![node], shape)?;
    }
    for (op, shape) in moves.into_iter().rev() {
        node = builder.push(&call.name, op, vec![node], shape)?;
    }
    Ok(x.at(node))
}

/// Of which node no larger than this one the values were moved or repeated, and how: the last move first.
fn before_moves(builder: &Builder, node: NodeId) -> (NodeId, Vec<(Rearrange, Shape)>) {
    let count = |node: NodeId| builder.shape(node).iter().product::<usize>();
    let (mut at, mut moves) = (node, Vec::new());
    while let Node { op, inputs, shape, .. } = &builder.nodes[at]
        && let Some(moved) = op.downcast_ref::<Rearrange>()
    {
        let zeros = match moved {
            Rearrange::Pad { .. } => true,
            Rearrange::Select { axes } => axes.iter().flatten().any(Option::is_none),
            Rearrange::Reshape | Rearrange::Transpose { .. } | Rearrange::Slice { .. } => false,
        };
        if zeros {
            break;
        }
        moves.push((moved.clone(), *shape));
        at = inputs[0];
    }
    if count(at) <= count(node) { (at, moves) } else { (node, Vec::new()) }
}

fn exponential(
    builder: &mut Builder,
    call: &Call<'_>,
    [alpha, beta, gamma]: [f32; 3],
) -> Result<Vec<Value>, Reject> {
    if ![alpha, beta, gamma].iter().all(|p| p.is_finite()) || beta == 0.0 {
        return Err(Reject::invalid("has a parameter that is not finite, or divides by zero"));
    }
    primitive(builder, call, Primitive::Exponential { alpha, beta, gamma })
}

fn gelu(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let by_tanh = match call.attribute_text("approximate") {
        None | Some("none") => false,
        Some("tanh") => true,
        Some(other) => return Err(Reject::unsupported(&format!("approximate = {other:?}"))),
    };
    curve(builder, call, Function::gelu(by_tanh))
}

/// At the model's end the client does it.
fn sigmoid(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    if call.ends() { finish::sigmoid(call) } else { primitive(builder, call, Primitive::Sigmoid) }
}
