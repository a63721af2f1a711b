//! The operators of the integer network, one file each.
//!
//! [`Op`] is what a network holds. All that the rest of the crate asks of an operation it asks through
//! [`operator::Operator`], which each operator's file implements; `Op::ask` is the one place that knows them all.

#![deny(clippy::wildcard_enum_match_arm)]

mod add;
mod concat;
mod input;
pub(crate) mod linear;
pub(crate) mod max_pool;
pub(crate) mod operator;
mod product;
pub(crate) mod rearrange;
mod relu;
mod relu6;
mod sum_pool;
pub(crate) mod window;

use serde::{Deserialize, Serialize};

use crate::ir::convolution::{Linear, Weights};
use crate::ir::draws::Draws;
use crate::ir::error::NodeError;
use crate::ir::limits::bounded;
pub use crate::ir::ops::operator::Part;
use crate::ir::ops::operator::{Chance, Operands, Operator, Scale};
use crate::ir::ops::rearrange::Rearrange;
use crate::ir::ops::window::Window;
use crate::ir::shape::{NodeId, Shape};

/// The operations of the integer network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// The client's input.
    Input,
    /// Convolution or fully connected layer: `y = (Σ w·x + bias) / 2^shift`, rounded to a neighbour.
    Linear(Linear),
    /// `max(x, 0)`.
    Relu {
        /// The sign leaves out this many low bits, at most n - 4: where `0 <= x < 2^ignored - 1` the result may be 0
        /// instead of x. None and one are exact. More than one is chosen at compile time only, by calibration and on
        /// request ([`crate::signs`]).
        ignored: u32,
    },
    /// `min(max(x, 0), 2^log2_six)`: the scale is such that the real 6 (or whatever other bound the model clips
    /// at) is the integer 2^log2_six.
    Relu6 {
        /// j with 6·S = 2^j.
        log2_six: u32,
        /// As for [`Op::Relu`], and less than `log2_six`. Here the upper bound's comparison leaves them out too: x may
        /// remain where `2^log2_six < x < 2^log2_six + 2^ignored - 1`.
        ignored: u32,
    },
    /// The largest value of each window; padding never wins.
    MaxPool {
        /// The windows.
        window: Window,
        /// Its comparisons leave out this many low bits, at most n - 4: of two values less than `2^(ignored-1)` apart
        /// either may win, so the result may be as much below the largest for each level of [`Window::bracket`].
        /// Otherwise as for [`Op::Relu`].
        ignored: u32,
    },
    /// The sum of each window, times a small public integer where the window hangs over the border (so that
    /// averages that do not count the padding come out right). The division is in the consumer's scale.
    SumPool {
        /// The windows.
        window: Window,
        /// For averages that do not count the padding: the output at `(oh, ow)` is the sum times
        /// `full / real` where `full` is this number and `real` how many of the window's places lie inside
        /// the image; `real` divides `full` everywhere. `None`: the plain sum.
        count_real_places: Option<u32>,
    },
    /// Two values of the same scale and shape.
    Add,
    /// `(a + o_a)·(b + o_b) / 2^shift`, rounded to a neighbour: of two values, each of a scale of its own. The second
    /// has the first one's shape, or is one number a channel, `[C, 1, 1]`.
    Product {
        /// How many bits of the product are cut off.
        shift: u32,
        /// What is added to each factor first.
        offsets: [i64; 2],
    },
    /// Along the channels; all inputs of the same scale.
    Concat,
    /// Moves values about, and puts zeros where none came from.
    Rearrange(Rearrange),
}

impl Op {
    /// Asks the operator behind the operation. **The one place that knows all of them.**
    fn ask<T>(&self, question: impl FnOnce(&dyn Operator) -> T) -> T {
        match self {
            Op::Input => question(&input::Input),
            Op::Linear(linear) => question(linear),
            &Op::Relu { ignored } => question(&relu::Relu { ignored }),
            &Op::Relu6 { log2_six, ignored } => question(&relu6::Relu6 { log2_six, ignored }),
            Op::MaxPool { window, ignored } => question(&max_pool::MaxPool { window, ignored: *ignored }),
            Op::SumPool { window, count_real_places } => {
                question(&sum_pool::SumPool { window, count_real_places: *count_real_places })
            }
            Op::Add => question(&add::Add),
            &Op::Product { shift, offsets } => question(&product::Product { shift, offsets }),
            Op::Concat => question(&concat::Concat),
            Op::Rearrange(rearrange) => question(rearrange),
        }
    }

    /// What the operation is called in reports.
    pub fn name(&self) -> &'static str {
        self.ask(|operator| operator.name())
    }

    /// Who computes the operation in a private run, and how.
    pub fn part(&self) -> Part {
        self.ask(|operator| operator.part())
    }

    /// The operation in a few words, its sizes included, for people.
    pub fn describe(&self) -> String {
        self.ask(|operator| operator.describe())
    }

    /// How many low bits the operation's signs (a max-pool's are those of differences) leave out; `None` for
    /// operations that take no signs.
    pub fn ignored(&self) -> Option<u32> {
        self.ask(|operator| operator.ignored())
    }

    /// The most low bits that the operation's signs may leave out in a network with n = `activation_bits`; `None` as
    /// for [`Op::ignored`].
    pub(crate) fn most_ignored(&self, activation_bits: u32) -> Option<u32> {
        self.ask(|operator| operator.most_ignored(activation_bits))
    }

    /// [`Op::ignored`], to be changed.
    pub fn ignored_mut(&mut self) -> Option<&mut u32> {
        match self {
            Op::Relu { ignored } | Op::Relu6 { ignored, .. } | Op::MaxPool { ignored, .. } => Some(ignored),
            Op::Input
            | Op::Linear(_)
            | Op::SumPool { .. }
            | Op::Add
            | Op::Product { .. }
            | Op::Concat
            | Op::Rearrange(_) => None,
        }
    }

    /// How many low bits the operation's signs leave out, if that can make a difference.
    pub fn reduced(&self) -> Option<u32> {
        self.ignored().filter(|&ignored| ignored > 1)
    }

    /// Where the scale of the operation's value comes from.
    pub(crate) fn scale(&self) -> Scale {
        self.ask(|operator| operator.scale())
    }

    /// The factor between the sum that a [`Op::SumPool`] gives and the average: its scale grows by as much. One
    /// for every other operation.
    pub fn scale_gain(&self) -> u64 {
        match self.scale() {
            Scale::Gained(gain) => gain,
            Scale::Own | Scale::Inherited => 1,
        }
    }

    /// Into how many bits the operation's values fit as signed integers, where its inputs' widest values take
    /// `widest` and n = `activation_bits`.
    pub(crate) fn value_bits(&self, widest: u32, activation_bits: u32) -> u32 {
        self.ask(|operator| operator.value_bits(widest, activation_bits))
    }

    /// Whether the parameters are in the range that they may have in a network with n = `activation_bits`.
    pub(crate) fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        self.ask(|operator| operator.check(activation_bits))
    }

    /// Whether `weights` are what the operation needs between values of shapes `input` and `output`, each at most
    /// `limit`.
    pub(crate) fn check_weights(
        &self,
        input: Option<Shape>,
        output: Shape,
        weights: Option<&Weights>,
        limit: i32,
    ) -> Result<(), NodeError> {
        self.ask(|operator| operator.check_weights(input, output, weights, limit))
    }

    /// The value from the inputs' values; `None` if the weights are not the operation's. Exact, a linear layer
    /// rounded to nearest; with `draws`, for node `node`, as they say.
    pub(crate) fn apply(&self, operands: &Operands<'_>, chance: Option<(Draws, NodeId)>) -> Option<Vec<i64>> {
        self.ask(|operator| match chance {
            None => operator.apply(operands),
            Some((draws, node)) => operator.apply_drawn(operands, &Chance { draws, node }),
        })
    }
}

/// The shape that `op` makes of inputs of these shapes. [`Rearrange::Reshape`] and [`Rearrange::Slice`] cannot know
/// theirs, so they take the `declared` one; all others but the input ignore it.
///
/// # Errors
/// Wrong arity, shapes that do not go together, parameters out of range.
pub fn output_shape(op: &Op, inputs: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
    op.ask(|operator| {
        let (arity, expected) = operator.arity();
        if !arity.contains(&inputs.len()) {
            return Err(NodeError::Arity { found: inputs.len(), expected });
        }
        bounded(operator.shape(inputs, declared)?)
    })
}
