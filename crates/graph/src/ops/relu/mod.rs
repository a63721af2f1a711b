//! `max(x, 0)`, the sign exact or without some low bits.

pub(crate) mod float;
pub(crate) mod onnx;
pub(crate) mod prelu;

use std::sync::Arc;

use jaguar_mpc::semantics::{relu, relu_ignoring};
use jaguar_mpc::{Elementwise, Nonlinear, ReluParams};
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{check_ignored, most_ignored};
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Chance, Effort, Excess, Interactive, Joined, Makes, Numbered, Operands, Operator, Part, Place, Ran,
    Scale, Shares, Sign, Signs, Source, Takes, Value, Work,
};

/// `max(x, 0)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relu {
    /// The sign leaves out this many low bits, at most n - 4: where `0 <= x < 2^ignored - 1` the result may be 0
    /// instead of x. None and one are exact. More than one is chosen at compile time only, by calibration and on
    /// request ([`crate::signs`]).
    pub ignored: u32,
}

/// What comes of a sign that leaves out low bits, in words.
pub(super) const ZEROS: &str = "small positive values may become zero there";

impl Numbered for Relu {
    const NUMBER: u32 = 2;
}

impl Operator for Relu {
    fn name(&self) -> &'static str {
        "Relu"
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        Ok(inputs[0])
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
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

    /// Nothing of it is measured in the values' scale.
    fn rescale(&mut self, _: i32) -> Result<(), &'static str> {
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    fn keeps_channels(&self, _: Shape, _: Shape) -> bool {
        true
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        Some(of.first().1.iter().map(|&v| relu(v)).collect())
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        match self.ignored {
            0 | 1 => self.apply(of),
            ignored => Some(chance.each(of.first().1, |v, share| relu_ignoring(v, ignored, share))),
        }
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        Some(of.pull_back_each(by, |x| if x > 0 { 1.0 } else { 0.0 }))
    }
}

impl Interactive for Relu {
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
        let params = ReluParams { bits, output, digit, ignored: at.left_out(self.ignored) };
        Arc::new(Elementwise { count, params })
    }
}

impl Signs for Relu {
    fn ignored(&self) -> u32 {
        self.ignored
    }

    fn most_ignored(&self, activation_bits: u32) -> u32 {
        most_ignored(activation_bits)
    }

    fn caveat(&self) -> &'static str {
        ZEROS
    }

    fn reduced(&self, ignored: u32, run: &Ran<'_>) -> Vec<i64> {
        run.each(|x, share| relu_ignoring(x, ignored, share))
    }
}
