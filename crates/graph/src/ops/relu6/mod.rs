//! `min(max(x, 0), 2^log2_six)`, the comparisons exact or without some low bits.

pub(crate) mod float;
pub(crate) mod onnx;
mod quantised;

use std::sync::Arc;

use jaguar_mpc::semantics::{relu6, relu6_ignoring};
use jaguar_mpc::{Elementwise, Nonlinear, Relu6Params};
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{ACTIVATION_BITS, MAX_GUARD_BITS, check, check_ignored, most_ignored};
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Chance, Effort, Excess, Interactive, Joined, Known, Makes, Numbered, Operands, Operator, Part, Place,
    Ran, Scale, Shares, Sign, Signs, Source, Takes, Value, Work,
};
use crate::ops::relu::ZEROS;

/// `min(max(x, 0), 2^log2_six)`: the scale is such that the real 6 (or whatever other bound the model clips
/// at) is the integer 2^log2_six.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relu6 {
    /// j with 6·S = 2^j.
    pub log2_six: u32,
    /// As for [`Relu`](super::relu::Relu), and less than `log2_six`. Here the upper bound's comparison leaves them out
    /// too: x may remain where `2^log2_six < x < 2^log2_six + 2^ignored - 1`.
    pub ignored: u32,
}

/// The largest position of a bound: two below the widest activations, guard bits included.
const MOST_LOG2_SIX: u32 = *ACTIVATION_BITS.end() + MAX_GUARD_BITS - 2;

impl Relu6 {
    /// That clips at the real number `ceiling`.
    pub(crate) fn clipping(ceiling: f32, known: &Known<'_>) -> Self {
        let log2_six = known.scales.map_or(1, |(_, own)| (f64::from(ceiling) * own).log2().round() as u32);
        Self { log2_six, ignored: 0 }
    }
}

impl Numbered for Relu6 {
    const NUMBER: u32 = 3;
}

impl Operator for Relu6 {
    fn name(&self) -> &'static str {
        "Relu6"
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        check((1..=MOST_LOG2_SIX).contains(&self.log2_six), "log2_six")?;
        Ok(inputs[0])
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        // A clipping bound outside the values' range could never be reached.
        check(self.log2_six <= activation_bits - 2, "log2_six")?;
        // The clip's comparison is of the bits below it.
        check(self.ignored == 0 || self.ignored < self.log2_six, "number of ignored bits")?;
        check_ignored(self.ignored, activation_bits)
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn ignored_mut(&mut self) -> Option<&mut u32> {
        Some(&mut self.ignored)
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Inherited, sign: Sign::NonNegative, source: Source::SamePlace }
    }

    /// The bound moves; what signs leave out stays.
    fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        self.log2_six = self.log2_six.checked_add_signed(by).ok_or("log2_six")?;
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        Some(of.first().1.iter().map(|&v| relu6(v, self.log2_six)).collect())
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        match (self.log2_six, self.ignored) {
            (_, 0 | 1) => self.apply(of),
            (j, ignored) => Some(chance.each(of.first().1, |v, share| relu6_ignoring(v, j, ignored, share))),
        }
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let inside = 1..1i64 << self.log2_six;
        Some(of.pull_back_each(by, |x| if inside.contains(&x) { 1.0 } else { 0.0 }))
    }
}

impl Interactive for Relu6 {
    fn part(&self) -> Part {
        Part::Activation
    }

    fn shares(&self) -> Shares {
        Shares {
            excess: Excess::Truncates,
            takes: Takes::Compared,
            makes: Makes::AnyRing,
            joined: Joined::Pairs,
        }
    }

    fn signs(&self) -> Option<&dyn Signs> {
        Some(self)
    }

    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        let (count, bits, output, digit) = (at.count(), at.bits, at.output, at.digit);
        let log2_six = self.log2_six + at.excess;
        let params = Relu6Params { bits, output, digit, log2_six, ignored: at.left_out(self.ignored) };
        Arc::new(Elementwise { count, params })
    }
}

impl Signs for Relu6 {
    fn ignored(&self) -> u32 {
        self.ignored
    }

    fn most_ignored(&self, activation_bits: u32) -> u32 {
        most_ignored(activation_bits).min(self.log2_six.saturating_sub(1))
    }

    fn caveat(&self) -> &'static str {
        ZEROS
    }

    fn reduced(&self, ignored: u32, run: &Ran<'_>) -> Vec<i64> {
        run.each(|x, share| relu6_ignoring(x, self.log2_six, ignored, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_activations_may_be_clipped_with_all_their_guard_bits() {
        let widest = ACTIVATION_BITS.end() + MAX_GUARD_BITS;
        let clip = |log2_six| Relu6 { log2_six, ignored: MAX_GUARD_BITS };
        assert!(clip(widest - 2).shape(&[[1, 1, 1]], [1, 1, 1]).is_ok());
        assert!(clip(widest - 2).check(widest).is_ok());
        assert!(clip(widest - 1).shape(&[[1, 1, 1]], [1, 1, 1]).is_err());
        assert!(clip(widest - 2).check(widest - 1).is_err());
    }
}
