//! The product of two matrices that the network computes, each element a sum of products of values.

use super::onnx::product;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value};
use crate::import::tensor::broadcast;
use crate::ops::linear::onnx::by_constant;
use crate::ops::sum_pool::onnx::means;

pub(crate) const ONNX: &[(&str, Build)] = &[("MatMul", mat_mul)];

/// The most products of values that one takes: each has some 250 bytes before the input is known, so that these are 1 GiB.
const MOST: usize = 1 << 22;

fn mat_mul(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    match call.input(1)? {
        Value::Activation(_) => of_values(builder, call, call.activation(0)?, call.activation(1)?),
        Value::Constant(_) | Value::Unknown => by_constant(builder, call),
    }
}

/// `[.., n, k]` times `[.., k, m]`: the products of `[.., n, 1, k]` and `[.., 1, m, k]`, summed along the last dimension.
fn of_values(
    builder: &mut Builder,
    call: &Call<'_>,
    a: &Activation,
    b: &Activation,
) -> Result<Vec<Value>, Reject> {
    let (left, right) = (a.view.sizes(), b.view.sizes());
    let ([outer @ .., n, k], [others @ .., inner, m]) = (&left[..], &right[..]) else {
        return Err(Reject::unsupported("multiplies vectors without a second dimension"));
    };
    let outer_sizes = broadcast(outer, others).filter(|_| k == inner);
    let mut sizes = outer_sizes.ok_or_else(|| Reject::invalid("has factors that do not fit each other"))?;
    sizes.extend([*n, *m]);
    let count = sizes.iter().try_fold(*k, |count, &size| count.checked_mul(size));
    if count.is_none_or(|count| count > MOST) {
        return Err(Reject::instead(
            &format!(
                "multiplies two matrices that the network computes, {n} × {k} and {k} × {m}, value by value"
            ),
            &format!(
                "At most {MOST} products are taken, of some 250 bytes each: attention over many places is not supported. Take fewer \
                 places, or a convolutional network without attention"
            ),
        ));
    }
    let beyond = || Reject::unsupported("multiplies matrices in an order that cannot be made");
    let rank = sizes.len();
    let wide = |x: &Activation, own: &[usize], [rows, columns]: [usize; 2]| {
        let mut sizes = vec![1; rank - 2 - own.len()];
        sizes.extend(own);
        sizes.extend([rows, columns, *k]);
        x.view.reshaped(&sizes).map(|view| Activation { view, ..x.clone() })
    };
    let mut turned: Vec<usize> = (0..right.len()).collect();
    turned.swap(right.len() - 1, right.len() - 2);
    let b = Activation { view: b.view.transposed(&turned).ok_or_else(beyond)?, ..b.clone() };
    let left = wide(a, outer, [*n, 1]).ok_or_else(beyond)?;
    let right = wide(&b, others, [1, *m]).ok_or_else(beyond)?;
    let made = product(builder, call, &left, &right)?;
    let [Value::Activation(products)] = &made[..] else { return Ok(made) };
    let sums = means(builder, call, products, &[rank], [*k as f32, 0.0])?;
    let view = sums.view.reshaped(&sizes).ok_or_else(beyond)?;
    Ok(vec![Activation { view, ..sums }.into()])
}
