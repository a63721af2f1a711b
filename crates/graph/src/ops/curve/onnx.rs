//! From ONNX's curves. Those that exporters write in several nodes, as x·sigmoid(x), become one when operations are fused.

use super::float::Curve;
use super::function::{Function, Primitive};
use crate::import::build::{Build, Builder, Call, Reject, Value};
use crate::import::finish;

pub(crate) const ONNX: &[(&str, Build)] = &[
    ("Celu", |builder, call| {
        let alpha = call.attribute_float("alpha", 1.0);
        exponential(builder, call, [alpha, alpha, 1.0])
    }),
    ("Elu", |builder, call| exponential(builder, call, [call.attribute_float("alpha", 1.0), 1.0, 1.0])),
    ("Erf", |builder, call| primitive(builder, call, Primitive::Erf)),
    ("Gelu", gelu),
    ("Mish", |builder, call| curve(builder, call, Function::mish())),
    ("Selu", |builder, call| {
        let alpha = call.attribute_float("alpha", 1.673_263_2);
        exponential(builder, call, [alpha, 1.0, call.attribute_float("gamma", 1.050_701)])
    }),
    ("Sigmoid", sigmoid),
    ("Softplus", |builder, call| primitive(builder, call, Primitive::Softplus)),
    ("Softsign", |builder, call| primitive(builder, call, Primitive::Softsign)),
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
    if call.last { finish::sigmoid(call) } else { primitive(builder, call, Primitive::Sigmoid) }
}
