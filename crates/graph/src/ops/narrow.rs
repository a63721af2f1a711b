//! A layer, a product or a sum whose values have fewer bits than others have.
//!
//! The operator is the same in all else: its scale is so low that its values stay as far within n − `fewer` bits as others stay within n. So what
//! takes them, a curve or a max-pool, takes them in a ring that is as much narrower. Calibration says where that may be ([`crate::quantise`]).

use std::ops::RangeInclusive;
use std::sync::Arc;

use jaguar_mpc::Nonlinear;
use serde::{Deserialize, Serialize};

use crate::ir::convolution::{Linear, Weights};
use crate::ir::error::NodeError;
use crate::ir::limits::{ACTIVATION_BITS, check};
use crate::ir::shape::Shape;
use crate::ops::integer::{Add, Concat, Difference, MatrixProduct};
use crate::ops::operator::{
    Chance, Effort, Interactive, Numbered, Operands, Operator, Part, Place, Shares, Signs, Takes, Value, Work,
};

/// The most bits that are missing.
pub const MOST_FEWER: u32 = 8;

/// What makes values of fewer bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Narrow<T> {
    /// What it is else.
    pub of: T,
    /// How many bits fewer its values have, 1 to 8.
    pub fewer: u32,
}

impl Numbered for Narrow<Linear> {
    const NUMBER: u32 = 14;
}

impl Numbered for Narrow<MatrixProduct> {
    const NUMBER: u32 = 15;
}

impl Numbered for Narrow<Add> {
    const NUMBER: u32 = 16;
}

impl Numbered for Narrow<Concat> {
    const NUMBER: u32 = 17;
}

impl Numbered for Narrow<Difference> {
    const NUMBER: u32 = 19;
}

impl<T: Operator> Operator for Narrow<T>
where
    Self: Numbered,
{
    fn name(&self) -> &'static str {
        self.of.name()
    }

    fn work(&self) -> Work<'_> {
        match self.of.work() {
            Work::Interactive(_) => Work::Interactive(self),
            other => other,
        }
    }

    fn describe(&self) -> String {
        self.of.describe()
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        self.of.arity()
    }

    fn shape(&self, inputs: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
        self.of.shape(inputs, declared)
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        let left = activation_bits.saturating_sub(self.fewer);
        check((1..=MOST_FEWER).contains(&self.fewer) && left >= *ACTIVATION_BITS.start(), "number of bits")?;
        if let Work::Interactive(operator) = self.of.work()
            && let Takes::Activations { more } = operator.shares().takes
        {
            check(more >= self.fewer, "shift")?;
        }
        self.of.check(activation_bits)
    }

    fn check_weights(
        &self,
        input: Option<Shape>,
        output: Shape,
        weights: Option<&Weights>,
        limit: i32,
    ) -> Result<(), NodeError> {
        self.of.check_weights(input, output, weights, limit)
    }

    fn value_bits(&self, widest: u32, activation_bits: u32) -> u32 {
        self.of.value_bits(widest, activation_bits).saturating_sub(self.fewer)
    }

    fn value(&self) -> Value {
        self.of.value()
    }

    fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        self.of.rescale(by)
    }

    fn effort(&self, inputs: &[Shape], output: Shape) -> Effort {
        self.of.effort(inputs, output)
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        self.of.apply(of)
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        self.of.apply_drawn(of, chance)
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        self.of.pull_back(of, by)
    }
}

impl<T: Operator> Narrow<T> {
    fn interactive(&self) -> &dyn Interactive {
        match self.of.work() {
            Work::Interactive(operator) => operator,
            Work::Input | Work::Linear(_) | Work::Local(_) => unreachable!("asked of protocols only"),
        }
    }
}

impl<T: Operator> Interactive for Narrow<T> {
    fn part(&self) -> Part {
        self.interactive().part()
    }

    /// The ring of a product has room for its shift and its value.
    fn shares(&self) -> Shares {
        let shares = self.interactive().shares();
        let takes = match shares.takes {
            Takes::Activations { more } => Takes::Activations { more: more.saturating_sub(self.fewer) },
            same @ (Takes::Compared | Takes::Needed { .. }) => same,
        };
        Shares { takes, ..shares }
    }

    fn takes_once(&self, inputs: &[Shape]) -> bool {
        self.interactive().takes_once(inputs)
    }

    fn signs(&self) -> Option<&dyn Signs> {
        self.interactive().signs()
    }

    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        self.interactive().protocol(at)
    }
}
