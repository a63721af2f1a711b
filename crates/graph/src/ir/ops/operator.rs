//! What the integer network asks of an operator.

use std::ops::RangeInclusive;

use jaguar_cpu::Cpu;
use serde::{Deserialize, Serialize};

use crate::ir::convolution::Weights;
use crate::ir::draws::Draws;
use crate::ir::error::NodeError;
use crate::ir::shape::{NodeId, Shape};

/// Where the scale of an operator's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// It has its own.
    Own,
    /// It is the inputs', which all have the same.
    Inherited,
    /// It is the input's times this.
    Gained(u64),
}

/// Who computes an operation in a private run, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The client gives it.
    Input,
    /// A linear backend does, with the server's weights.
    Linear,
    /// A protocol of both parties that compares each value: ReLU, clips.
    Activation,
    /// A protocol of both parties that compares the values of a window.
    MaxPool,
    /// A protocol of both parties that multiplies two values.
    Product,
    /// Each party by itself, on its shares: for what is linear over the integers, and for nothing else.
    Local,
}

/// An operator: its rules and its meaning. All shapes are `[C, H, W]`.
pub(crate) trait Operator {
    /// What it is called in reports.
    fn name(&self) -> &'static str;

    /// Who computes it, and how. It has no default: an operator that said nothing here would be computed on shares locally.
    fn part(&self) -> Part;

    /// It in a few words, for people.
    fn describe(&self) -> String {
        self.name().to_lowercase()
    }

    /// How many inputs it takes, also in words.
    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (1..=1, "one")
    }

    /// The shape that it makes of inputs of these shapes, as many as [`Operator::arity`] allows; `declared` is what the
    /// network says. Parameters may be anything: no sum or product may overflow, nothing large may be walked through.
    ///
    /// # Errors
    /// Shapes that do not go together, parameters out of range.
    fn shape(&self, inputs: &[Shape], declared: Shape) -> Result<Shape, NodeError>;

    /// Whether the parameters are in the range that they may have in a network with n = `activation_bits`, 8 to 24.
    ///
    /// # Errors
    /// The one that is out of range.
    fn check(&self, _activation_bits: u32) -> Result<(), NodeError> {
        Ok(())
    }

    /// Whether these weights, none of them above `limit`, are what it needs.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check_weights(
        &self,
        _input: Option<Shape>,
        _output: Shape,
        weights: Option<&Weights>,
        _limit: i32,
    ) -> Result<(), NodeError> {
        if weights.is_some() { Err(NodeError::Weights) } else { Ok(()) }
    }

    /// Into how many bits its values fit as signed integers, where its inputs' widest values take `widest` and n =
    /// `activation_bits`.
    fn value_bits(&self, widest: u32, _activation_bits: u32) -> u32 {
        widest
    }

    /// Where the scale of its value comes from.
    fn scale(&self) -> Scale {
        Scale::Inherited
    }

    /// How many low bits its signs leave out; `None` where it takes none.
    fn ignored(&self) -> Option<u32> {
        None
    }

    /// [`Operator::ignored`], to be changed.
    fn ignored_mut(&mut self) -> Option<&mut u32> {
        None
    }

    /// How many its signs may leave out at most; `None` where it takes none.
    fn most_ignored(&self, _activation_bits: u32) -> Option<u32> {
        None
    }

    /// The plaintext reference: its value from its inputs' values, exact, a linear layer's rounded to nearest. `None`
    /// if the weights are not its own.
    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>>;

    /// The same as it may turn out in a private run, by `chance`.
    fn apply_drawn(&self, of: &Operands<'_>, _chance: &Chance) -> Option<Vec<i64>> {
        self.apply(of)
    }
}

/// What an operator is applied to: at least one input, each with as many values as its shape says.
pub(crate) struct Operands<'a> {
    shapes: Vec<Shape>,
    values: &'a [&'a [i64]],
    /// The shape of what it makes.
    pub(crate) output: Shape,
    /// A linear layer's.
    pub(crate) weights: Option<&'a Weights>,
    /// What it may be computed with.
    pub(crate) cpu: Cpu,
}

impl<'a> Operands<'a> {
    /// `None` unless there is an input and each has as many values as its shape says.
    pub(crate) fn new(
        cpu: Cpu,
        shapes: Vec<Shape>,
        values: &'a [&'a [i64]],
        output: Shape,
        weights: Option<&'a Weights>,
    ) -> Option<Self> {
        let lengths = shapes.iter().map(|s| s.iter().product::<usize>());
        let fits = !values.is_empty() && lengths.eq(values.iter().map(|x| x.len()));
        fits.then_some(Self { shapes, values, output, weights, cpu })
    }

    /// The first input's shape and values.
    pub(crate) fn first(&self) -> (Shape, &'a [i64]) {
        (self.shapes[0], self.values[0])
    }

    /// All inputs' values.
    pub(crate) fn values(&self) -> &'a [&'a [i64]] {
        self.values
    }
}

/// The chance of one node in one imitated run.
pub(crate) struct Chance {
    /// The run.
    pub(crate) draws: Draws,
    /// The node.
    pub(crate) node: NodeId,
}

impl Chance {
    /// The client's share of one element: 64 uniform bits.
    pub(crate) fn share(&self, element: usize) -> u64 {
        self.draws.bits(self.node, element)
    }

    /// What `of` makes of each value and the client's share of it.
    pub(crate) fn each(&self, x: &[i64], of: impl Fn(i64, u64) -> i64) -> Vec<i64> {
        x.iter().enumerate().map(|(i, &v)| of(v, self.share(i))).collect()
    }
}
