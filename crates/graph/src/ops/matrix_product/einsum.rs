//! From ONNX's Einsum of two factors: a product of matrices in another notation, or a product element by element.
//!
//! A letter of both factors and the result is a batch; of both factors alone, what is summed over; of one factor and the result, rows or
//! columns.

use super::onnx::of_values;
use crate::import::build::{Activation, Build, Builder, Call, Reject, Value};
use crate::import::tensor::Tensor;
use crate::limits::MAX_RANK;
use crate::ops::linear::affine::affine;
use crate::ops::linear::onnx::by_matrices;
use crate::ops::product::onnx::product;

pub(crate) const ONNX: &[(&str, Build)] = &[("Einsum", einsum)];

fn refused(reason: &str) -> Reject {
    Reject::instead(reason, "Write it as MatMul, with Transpose and Reshape around it")
}

fn uneven() -> Reject {
    Reject::unsupported("multiplies values in an order that cannot be made")
}

/// The letters of the terms and of the result; an ellipsis is so many letters of its own, the last ones where a term has fewer.
fn letters(equation: &str, ranks: &[usize]) -> Result<(Vec<Vec<char>>, Vec<char>), Reject> {
    /// Longer equations than people write.
    const LONGEST: usize = 256;
    let wrong = || Reject::invalid("has an equation that does not fit its factors");
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    if equation.len() > LONGEST {
        return Err(wrong());
    }
    let (terms, result) = match equation.split_once("->") {
        Some((terms, result)) => (terms, Some(result)),
        None => (&equation[..], None),
    };
    let terms: Vec<&str> = terms.split(',').collect();
    if terms.len() != ranks.len() {
        return Err(wrong());
    }
    let named = |term: &str| term.chars().filter(|c| *c != '.').count();
    let more = terms.iter().zip(ranks).filter(|(term, _)| term.contains("..."));
    let more = more.map(|(term, rank)| rank.checked_sub(named(term)).filter(|more| *more <= MAX_RANK));
    let most = more.collect::<Option<Vec<_>>>().ok_or_else(wrong)?.into_iter().max().unwrap_or(0);
    let own = |count: usize| (most - count..most).filter_map(|i| char::from_u32(0xe000 + i as u32));
    let spelled = |term: &str, count: usize| -> Result<Vec<char>, Reject> {
        let spelled: Vec<char> = match term.split_once("...") {
            Some((before, behind)) => before.chars().chain(own(count)).chain(behind.chars()).collect(),
            None => term.chars().collect(),
        };
        let known = |c: &char| c.is_ascii_alphabetic() || ('\u{e000}'..'\u{e100}').contains(c);
        let once = spelled.iter().enumerate().all(|(at, c)| !spelled[..at].contains(c));
        match (spelled.iter().all(known), once) {
            (false, _) => Err(wrong()),
            (true, false) => Err(refused("takes a diagonal")),
            (true, true) => Ok(spelled),
        }
    };
    let inputs = terms.iter().zip(ranks).map(|(term, &rank)| {
        let spelled = spelled(term, rank.saturating_sub(named(term)).min(most))?;
        (spelled.len() == rank).then_some(spelled).ok_or_else(wrong)
    });
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let result = match result {
        Some(result) => spelled(result, most)?,
        None => {
            // Letters that there are once: an ellipsis first, then by the alphabet.
            let all: Vec<char> = inputs.iter().flatten().copied().collect();
            let mut once: Vec<char> = all
                .iter()
                .copied()
                .filter(|c| !c.is_ascii() || all.iter().filter(|other| *other == c).count() == 1)
                .collect();
            once.sort_unstable_by_key(|c| (c.is_ascii(), *c));
            once.dedup();
            once
        }
    };
    match result.iter().all(|c| inputs.iter().any(|term| term.contains(c))) {
        true => Ok((inputs, result)),
        false => Err(wrong()),
    }
}

/// A factor: computed, or constant.
enum Factor {
    Computed(Activation),
    Constant(Tensor),
}

impl Factor {
    fn of(call: &Call<'_>, index: usize) -> Result<Factor, Reject> {
        match call.input(index)? {
            Value::Constant(tensor) => Ok(Factor::Constant((**tensor).clone())),
            Value::Activation(_) | Value::Unknown => Ok(Factor::Computed(call.activation(index)?.clone())),
        }
    }

    fn sizes(&self) -> Vec<usize> {
        match self {
            Factor::Computed(x) => x.view.sizes(),
            Factor::Constant(tensor) => tensor.dims.clone(),
        }
    }

    /// With its dimensions in this order, and as these sizes.
    fn arranged(&self, order: &[usize], sizes: &[usize]) -> Result<Factor, Reject> {
        match self {
            Factor::Computed(x) => {
                let view =
                    x.view.transposed(order).and_then(|view| view.reshaped(sizes)).ok_or_else(uneven)?;
                Ok(Factor::Computed(Activation { view, ..x.clone() }))
            }
            Factor::Constant(tensor) => {
                let turned = tensor.transposed(order).ok_or_else(uneven)?;
                Ok(Factor::Constant(turned.with_dims(sizes.to_vec())))
            }
        }
    }
}

fn einsum(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let equation = call.attribute_text("equation").ok_or_else(|| Reject::invalid("has no equation"))?;
    let factors = (0..call.inputs()).map(|i| Factor::of(call, i)).collect::<Result<Vec<_>, _>>()?;
    let ranks: Vec<usize> = factors.iter().map(|factor| factor.sizes().len()).collect();
    let (terms, result) = letters(equation, &ranks)?;
    let ([a, b], [first, second]) = (&factors[..], &terms[..]) else {
        return match (&factors[..], &terms[..]) {
            ([Factor::Computed(x)], [term]) => {
                let order: Option<Vec<usize>> =
                    result.iter().map(|c| term.iter().position(|own| own == c)).collect();
                let view = order.and_then(|order| x.view.transposed(&order));
                let view = view.ok_or_else(|| refused("sums over dimensions of one value"))?;
                Ok(vec![Activation { view, ..x.clone() }.into()])
            }
            _ => Err(refused("multiplies other than two factors")),
        };
    };
    // What is constant comes second.
    let ((a, first), (b, second)) = match (a, b) {
        (Factor::Constant(_), Factor::Computed(_)) => ((b, second), (a, first)),
        (Factor::Computed(_), _) | (Factor::Constant(_), Factor::Constant(_)) => ((a, first), (b, second)),
    };
    let Factor::Computed(_) = a else { return Err(Reject::unsupported("its factors are constant")) };
    let (left_sizes, right_sizes) = (a.sizes(), b.sizes());
    let size = |c: &char| {
        let [left, right] = [(first, &left_sizes), (second, &right_sizes)]
            .map(|(term, sizes)| term.iter().position(|own| own == c).map(|at| sizes[at]));
        match (left, right) {
            (Some(left), Some(right)) if left != right => None,
            (left, right) => left.or(right),
        }
    };
    let fits = first.iter().chain(second).all(|c| size(c).is_some());
    if !fits {
        return Err(refused("has factors of different sizes under one letter"));
    }
    let count = |of: &[char]| of.iter().filter_map(size).product::<usize>();
    let pick =
        |of: &[char], kept: &dyn Fn(&char) -> bool| of.iter().copied().filter(kept).collect::<Vec<char>>();
    let batch = pick(&result, &|c| first.contains(c) && second.contains(c));
    let rows = pick(&result, &|c| !second.contains(c));
    let columns = pick(&result, &|c| !first.contains(c));
    let summed = pick(first, &|c| second.contains(c) && !result.contains(c));
    if first.iter().chain(second).any(|c| {
        let both = first.contains(c) && second.contains(c);
        !both && !result.contains(c)
    }) {
        return Err(refused("sums over a dimension of one factor alone"));
    }
    let sizes = |of: &[char]| of.iter().filter_map(size).collect::<Vec<usize>>();
    let order = |term: &[char], of: [&[char]; 3]| {
        of.concat().iter().filter_map(|c| term.iter().position(|own| own == c)).collect::<Vec<usize>>()
    };
    let (left_order, right_order) =
        (order(first, [&batch, &rows, &summed]), order(second, [&batch, &summed, &columns]));
    let batch_sizes = sizes(&batch);
    let made = if summed.is_empty() {
        // Element by element.
        let wide = |own: &[char], other: &[char], behind: bool| match behind {
            true => [&batch_sizes[..], &vec![1; other.len()], &sizes(own)].concat(),
            false => [&batch_sizes[..], &sizes(own), &vec![1; other.len()]].concat(),
        };
        let a = a.arranged(&left_order, &wide(&rows, &columns, false))?;
        let b = b.arranged(&right_order, &wide(&columns, &rows, true))?;
        match (&a, &b) {
            (Factor::Computed(a), Factor::Computed(b)) => product(builder, call, a, b)?,
            (Factor::Computed(a), Factor::Constant(b)) => affine(builder, call, a, b, |v| (v, 0.0))?,
            (Factor::Constant(_), _) => return Err(uneven()),
        }
    } else {
        let a = a.arranged(&left_order, &[&batch_sizes[..], &[count(&rows), count(&summed)]].concat())?;
        let b = b.arranged(&right_order, &[&batch_sizes[..], &[count(&summed), count(&columns)]].concat())?;
        match (&a, &b) {
            (Factor::Computed(a), Factor::Computed(b)) => vec![of_values(builder, call, a, b, 1.0)?.into()],
            (Factor::Computed(a), Factor::Constant(b)) => by_matrices(builder, call, a, b)?,
            (Factor::Constant(_), _) => return Err(uneven()),
        }
    };
    let [Value::Activation(made)] = &made[..] else { return Ok(made) };
    let lying = [&batch[..], &rows, &columns].concat();
    let order: Vec<usize> = result.iter().filter_map(|c| lying.iter().position(|own| own == c)).collect();
    let view = made.view.reshaped(&sizes(&lying)).and_then(|view| view.transposed(&order));
    Ok(vec![Activation { view: view.ok_or_else(uneven)?, ..made.clone() }.into()])
}
