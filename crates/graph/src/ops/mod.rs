//! The operators of the integer network, one file each.
//!
//! [`Op`] is what a network holds. All that the rest of the crate asks of an operation it asks through
//! [`operator::Operator`], which each operator's file implements. The list below is the one place that knows them all.

#![deny(clippy::wildcard_enum_match_arm)]

pub(crate) mod add;
pub(crate) mod concat;
pub(crate) mod input;
pub(crate) mod linear;
pub(crate) mod list;
pub(crate) mod max_pool;
pub(crate) mod operator;
pub(crate) mod product;
pub(crate) mod rearrange;
pub(crate) mod relu;
pub(crate) mod relu6;
mod standard;
pub(crate) mod sum_pool;
pub(crate) mod window;

use serde::{Deserialize, Serialize};

use crate::ir::convolution::{Linear, Weights};
use crate::ir::draws::Draws;
use crate::ir::error::NodeError;
use crate::ir::limits::bounded;
use crate::ir::shape::{NodeId, Shape};
use crate::ops::add::Add;
use crate::ops::concat::Concat;
use crate::ops::input::Input;
use crate::ops::max_pool::MaxPool;
use crate::ops::operator::{Chance, Effort, Operands, Operator, Part, Scale, Sign, Signs, Value, Work};
use crate::ops::product::Product;
use crate::ops::rearrange::Rearrange;
use crate::ops::relu::Relu;
use crate::ops::relu6::Relu6;
use crate::ops::sum_pool::SumPool;

/// Makes [`Op`] of a list, and what leads from an operation to its operator. Behind a variant's name stands its parameters' type,
/// with a name for them; without parameters nothing does.
macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident $(($own:ident: $parameters:ty))?,)*) => {
        /// The operations of the integer network.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Op {
            $($(#[$doc])* $name $(($parameters))?,)*
        }

        impl Op {
            /// The operator behind the operation.
            fn operator(&self) -> &dyn Operator {
                match self {
                    $(Op::$name $(($own))? => operators!(@of $name $($own)?),)*
                }
            }

            /// The same, to change its parameters; `None` where it has none.
            fn operator_mut(&mut self) -> Option<&mut dyn Operator> {
                match self {
                    $(Op::$name $(($own))? => operators!(@change $($own)?),)*
                }
            }
        }
    };
    (@of $name:ident) => { &$name };
    (@of $name:ident $own:ident) => { $own };
    (@change) => { None };
    (@change $own:ident) => { Some($own) };
}

// **The list of operators.** Their order is part of what is stored and sent: a new one goes to the end.
operators! {
    /// The client's input.
    Input,
    /// A linear layer: convolution or fully connected.
    Linear(linear: Linear),
    /// `max(x, 0)`.
    Relu(relu: Relu),
    /// `min(max(x, 0), 2^log2_six)`.
    Relu6(relu6: Relu6),
    /// The largest value of each window.
    MaxPool(pool: MaxPool),
    /// The sum of each window.
    SumPool(pool: SumPool),
    /// Two values of the same scale and shape.
    Add,
    /// The product of two values.
    Product(product: Product),
    /// Along the channels; all inputs of the same scale.
    Concat,
    /// Moves values about, and puts zeros where none came from.
    Rearrange(rearrange: Rearrange),
}

impl Op {
    /// What the operation is called in reports.
    pub fn name(&self) -> &'static str {
        self.operator().name()
    }

    /// Who computes the operation in a private run, and how.
    pub fn work(&self) -> Work<'_> {
        self.operator().work()
    }

    /// In which row of reports the operation counts.
    pub fn part(&self) -> Part {
        match self.work() {
            Work::Input => Part::Input,
            Work::Linear(_) => Part::Linear,
            Work::Local(_) => Part::Local,
            Work::Interactive(operator) => operator.part(),
        }
    }

    /// The linear layer that the operation is, if it is one.
    pub fn linear(&self) -> Option<&Linear> {
        if let Op::Linear(linear) = self { Some(linear) } else { None }
    }

    /// [`Op::linear`], to be changed.
    pub fn linear_mut(&mut self) -> Option<&mut Linear> {
        if let Op::Linear(linear) = self { Some(linear) } else { None }
    }

    /// The operation in a few words, its sizes included, for people.
    pub fn describe(&self) -> String {
        self.operator().describe()
    }

    /// What the operation says of signs that leave out low bits; `None` where it takes no signs.
    pub fn signs(&self) -> Option<&dyn Signs> {
        match self.work() {
            Work::Interactive(operator) => operator.signs(),
            Work::Input | Work::Linear(_) | Work::Local(_) => None,
        }
    }

    /// How many low bits the operation's signs (a max-pool's are those of differences) leave out; `None` for
    /// operations that take no signs.
    pub fn ignored(&self) -> Option<u32> {
        Some(self.signs()?.ignored())
    }

    /// [`Op::ignored`], to be changed.
    pub fn ignored_mut(&mut self) -> Option<&mut u32> {
        self.operator_mut()?.ignored_mut()
    }

    /// How many low bits the operation's signs leave out, if that can make a difference.
    pub fn reduced(&self) -> Option<u32> {
        self.ignored().filter(|&ignored| ignored > 1)
    }

    /// What follows of the operation's value from its inputs'.
    pub(crate) fn value(&self) -> Value {
        self.operator().value()
    }

    /// Where the scale of the operation's value comes from.
    pub(crate) fn scale(&self) -> Scale {
        self.value().scale
    }

    /// Whether the operation's value can be negative.
    pub fn sign(&self) -> Sign {
        self.value().sign
    }

    /// Changes the parameters that are measured in the inputs' scale, as that grows to 2^`by` times as much.
    ///
    /// # Errors
    /// The parameter that cannot be so.
    pub fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        self.operator_mut().map_or(Ok(()), |operator| operator.rescale(by))
    }

    /// Whether channel c of the operation's value is made of channel c of its only input, and grows with it.
    pub(crate) fn keeps_channels(&self, input: Shape, output: Shape) -> bool {
        self.operator().keeps_channels(input, output)
    }

    /// What it takes to plan the operation and to compute it in plaintext, for inputs and a value of these shapes.
    pub fn effort(&self, inputs: &[Shape], output: Shape) -> Effort {
        self.operator().effort(inputs, output)
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
        self.operator().value_bits(widest, activation_bits)
    }

    /// Whether the parameters are in the range that they may have in a network with n = `activation_bits`.
    pub(crate) fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        self.operator().check(activation_bits)
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
        self.operator().check_weights(input, output, weights, limit)
    }

    /// The value from the inputs' values; `None` if the weights are not the operation's. Exact, a linear layer
    /// rounded to nearest; with `draws`, for node `node`, as they say.
    pub(crate) fn apply(&self, operands: &Operands<'_>, chance: Option<(Draws, NodeId)>) -> Option<Vec<i64>> {
        let operator = self.operator();
        match chance {
            None => operator.apply(operands),
            Some((draws, node)) => operator.apply_drawn(operands, &Chance { draws, node }),
        }
    }
}

/// The shape that `op` makes of inputs of these shapes. [`Rearrange::Reshape`] and [`Rearrange::Slice`] cannot know
/// theirs, so they take the `declared` one; all others but the input ignore it.
///
/// # Errors
/// Wrong arity, shapes that do not go together, parameters out of range.
pub fn output_shape(op: &Op, inputs: &[Shape], declared: Shape) -> Result<Shape, NodeError> {
    let operator = op.operator();
    let (arity, expected) = operator.arity();
    if !arity.contains(&inputs.len()) {
        return Err(NodeError::Arity { found: inputs.len(), expected });
    }
    bounded(operator.shape(inputs, declared)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_signs_can_be_told_what_they_leave_out() {
        let window = window::Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] };
        for mut op in [
            Op::Input,
            Op::Linear(Linear::same(4, 3, 8)),
            Op::Relu(Relu { ignored: 3 }),
            Op::Relu6(Relu6 { log2_six: 8, ignored: 3 }),
            Op::MaxPool(MaxPool { window: window.clone(), ignored: 3 }),
            Op::SumPool(SumPool { window, count_real_places: None }),
            Op::Add,
            Op::Product(Product { shift: 3, offsets: [0; 2] }),
            Op::Concat,
            Op::Rearrange(Rearrange::Reshape),
        ] {
            let says = op.ignored();
            assert_eq!(op.ignored_mut().map(|ignored| *ignored), says, "{}", op.name());
        }
    }
}
