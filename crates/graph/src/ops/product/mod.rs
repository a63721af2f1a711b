//! `(a + o_a)·(b + o_b) / 2^shift`, rounded to nearest: the product of two values of the network.

pub(crate) mod float;
pub(crate) mod norms;
pub(crate) mod onnx;
pub(crate) mod softmax;

use std::ops::RangeInclusive;
use std::sync::Arc;

use jaguar_mpc::{Elementwise, Nonlinear, ProductParams, RowProductParams, SquareParams};
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{SHIFTS, check};
use crate::ir::shape::{Shape, elements};
use crate::ops::operator::{
    Chance, Effort, Excess, Interactive, Joined, Known, Makes, Numbered, Operands, Operator, Part, Place,
    Scale, Shares, Sign, Signs, Source, Takes, Value, Work,
};

/// `(a + o_a)·(b + o_b) / 2^shift`, rounded to a neighbour: of two values, each of a scale of its own. The second
/// has the first one's shape, or is one number a channel, `[C, 1, 1]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Product {
    /// How many bits of the product are cut off.
    pub shift: u32,
    /// What is added to each factor first.
    pub offsets: [i64; 2],
}

/// By how many bits a product of values with these scales is shifted to have the scale `own`; no integer where it cannot.
pub(crate) fn product_shift(gain: f32, factors: [f64; 2], own: f64) -> f64 {
    (factors[0] * factors[1] / f64::from(gain) / own).log2()
}

/// By how many bits at most a product may be shifted, where values have so many bits, and its factors `ring_bits` at
/// most: an extension adds 32 at most.
pub(crate) const fn most_product_shift(ring_bits: u32, activation_bits: u32) -> u32 {
    let room = ring_bits - activation_bits;
    if room < 32 { room } else { 32 }
}

/// Bits that factors of a product of two values have at most, with the shift.
pub(crate) const RING_BITS: u32 = 63;

/// An offset is below 2 to this.
const MOST_OFFSET_BITS: u32 = 40;

impl Product {
    /// `gain·(a + o_a)·(b + o_b)` of real numbers.
    pub(crate) fn of(gain: f32, offsets: [f32; 2], known: &Known<'_>) -> Self {
        let Some((&[a, b], own)) = known.scales else { return Self { shift: 1, offsets: [0; 2] } };
        let integer = |offset: f32, scale: f64| (f64::from(offset) * scale).round() as i64;
        Self {
            shift: product_shift(gain, [a, b], own).round() as u32,
            offsets: [integer(offsets[0], a), integer(offsets[1], b)],
        }
    }

    /// The products before the shift. Values have at most 40 bits, and so have offsets.
    fn exact(&self, of: &Operands<'_>) -> Option<Vec<i128>> {
        let [a, b] = *of.values() else { return None };
        let each = a.len().checked_div(b.len()).filter(|each| each * b.len() == a.len())?;
        let wide = |v: i64, offset: i64| i128::from(v) + i128::from(offset);
        let factor = |i: usize| wide(b[i / each], self.offsets[1]);
        Some(a.iter().enumerate().map(|(i, &v)| wide(v, self.offsets[0]) * factor(i)).collect())
    }
}

/// m / 2^shift, rounded down, for a product m and what is added before.
pub(crate) fn shifted(m: i128, add: i128, shift: u32) -> i64 {
    let shifted = (m + add) >> shift;
    // (No value of a sound network is so large; it counts as one out of range.)
    i64::try_from(shifted).unwrap_or(if shifted < 0 { i64::MIN } else { i64::MAX })
}

impl Numbered for Product {
    const NUMBER: u32 = 7;
}

impl Operator for Product {
    fn name(&self) -> &'static str {
        "Product"
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (2..=2, "two")
    }

    /// The second factor is of the same shape, or one number a channel.
    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        check(SHIFTS.contains(&self.shift), "shift")?;
        check(self.offsets.iter().all(|o| o.unsigned_abs() < 1 << MOST_OFFSET_BITS), "offset")?;
        let (a, b) = (inputs[0], inputs[1]);
        // (Rows of a channel must be counted without an overflow.)
        elements(a).ok_or(NodeError::Range("tensor size"))?;
        if a == b || b == [a[0], 1, 1] { Ok(a) } else { Err(NodeError::Mismatch(a, b)) }
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        check(self.shift <= most_product_shift(RING_BITS, activation_bits), "shift")?;
        check(self.offsets.iter().all(|o| o.unsigned_abs() < 1 << (activation_bits - 1)), "offset")
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Own, sign: Sign::Any, source: Source::Several }
    }

    /// A product has both factors' scales, and its value one.
    fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        let factor = 2f64.powi(by);
        self.shift = self.shift.checked_add_signed(by).filter(|&shift| shift > 0).ok_or("shift")?;
        self.offsets.iter_mut().for_each(|o| *o = (*o as f64 * factor).round() as i64);
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let half = 1 << (self.shift - 1);
        Some(self.exact(of)?.into_iter().map(|m| shifted(m, half, self.shift)).collect())
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        if !chance.draws.rounding {
            return self.apply(of);
        }
        let low = (1u64 << self.shift) - 1;
        let one = |(i, m): (usize, i128)| {
            let up = i128::from(chance.share(i) & low);
            shifted(m, up, self.shift)
        };
        Some(self.exact(of)?.into_iter().enumerate().map(one).collect())
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let [a, b] = *of.values() else { return None };
        let each = a.len().checked_div(b.len()).filter(|each| each * b.len() == a.len())?;
        let unit = 2f32.powi(-(self.shift as i32));
        let factor = |v: i64, offset: i64| unit * (v + offset) as f32;
        let first = by.iter().enumerate().map(|(i, by)| factor(b[i / each], self.offsets[1]) * by).collect();
        let second = a
            .chunks(each)
            .zip(by.chunks(each))
            .map(|(a, by)| a.iter().zip(by).map(|(&v, by)| factor(v, self.offsets[0]) * by).sum());
        Some(vec![first, second.collect()])
    }
}

impl Interactive for Product {
    fn part(&self) -> Part {
        Part::Product
    }

    fn shares(&self) -> Shares {
        Shares {
            excess: Excess::Refuses,
            takes: Takes::Activations { more: self.shift },
            makes: Makes::Activations,
            joined: Joined::Pairs,
        }
    }

    fn signs(&self) -> Option<&dyn Signs> {
        None
    }

    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        let Self { shift, offsets } = *self;
        let (count, params) = (at.count(), ProductParams { out_bits: at.bits - shift, shift, offsets });
        if at.same {
            return Arc::new(Elementwise { count, params: SquareParams(params) });
        }
        // One number a channel, of each image: rows by numbers, where that is cheaper.
        let [rows, columns] = [at.inputs[0][0] * at.images, at.inputs[0][1] * at.inputs[0][2]];
        let by_row = RowProductParams { product: params, rows, columns };
        if at.inputs[1] == [at.inputs[0][0], 1, 1] && by_row.pays() {
            return Arc::new(by_row);
        }
        Arc::new(Elementwise { count, params })
    }
}
