//! An operation of a network: any operator, with its public parameters.

use std::any::Any;

use serde::ser::SerializeTuple;
use serde::{Serialize, Serializer};

use crate::ir::convolution::{Linear, Weights};
use crate::ir::draws::Draws;
use crate::ir::error::NodeError;
use crate::ir::limits::bounded;
use crate::ir::shape::{NodeId, Shape};
use crate::ops::narrow::Narrow;
use crate::ops::operator::{
    Chance, Effort, Numbered, Operands, Operator, Part, Scale, Sign, Signs, Value, Work,
};

/// What a node computes: an operator with its public parameters.
#[derive(Debug)]
pub struct Op(Box<dyn Operator>);

impl Clone for Op {
    fn clone(&self) -> Self {
        Self(self.0.cloned())
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(other.operator())
    }
}

/// Written as its operator's number and the parameters, as an enum's variant is.
/// [`Operators`](crate::ops::Operators) reads it.
impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(2)?;
        tuple.serialize_element(&self.0.number())?;
        tuple.serialize_element(self.0.written())?;
        tuple.end()
    }
}

impl<T: Numbered> From<T> for Op {
    fn from(operator: T) -> Self {
        Self::new(operator)
    }
}

impl Op {
    /// The operation of an operator with these parameters.
    pub fn new(operator: impl Numbered) -> Self {
        Self(Box::new(operator))
    }

    fn operator(&self) -> &dyn Operator {
        &*self.0
    }

    /// The operator's parameters, if it is this one.
    pub fn downcast_ref<T: Operator>(&self) -> Option<&T> {
        (self.operator() as &dyn Any).downcast_ref()
    }

    /// [`downcast_ref`](Self::downcast_ref), to be changed.
    pub fn downcast_mut<T: Operator>(&mut self) -> Option<&mut T> {
        (&mut *self.0 as &mut dyn Any).downcast_mut()
    }

    /// Whether it is this operator.
    pub fn is<T: Operator>(&self) -> bool {
        self.downcast_ref::<T>().is_some()
    }

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
        match self.work() {
            Work::Linear(linear) => Some(linear),
            Work::Input | Work::Local(_) | Work::Interactive(_) => None,
        }
    }

    /// [`Op::linear`], to be changed.
    pub fn linear_mut(&mut self) -> Option<&mut Linear> {
        match self.is::<Linear>() {
            true => self.downcast_mut(),
            false => self.downcast_mut::<Narrow<Linear>>().map(|narrow| &mut narrow.of),
        }
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
        self.0.ignored_mut()
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
    pub fn scale(&self) -> Scale {
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
        self.0.rescale(by)
    }

    /// Whether channel c of the operation's value is made of channel c of its only input, and grows with it.
    pub(crate) fn keeps_channels(&self, input: Shape, output: Shape) -> bool {
        self.operator().keeps_channels(input, output)
    }

    /// What it takes to plan the operation and to compute it in plaintext, for inputs and a value of these shapes.
    pub fn effort(&self, inputs: &[Shape], output: Shape) -> Effort {
        self.operator().effort(inputs, output)
    }

    /// The factor between the sum that a [`SumPool`](crate::network::SumPool) gives and the average: its scale grows by as much. One
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

    /// [`Operator::pull_back`].
    pub(crate) fn pull_back(&self, operands: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        self.operator().pull_back(operands, by)
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

/// The shape that `op` makes of inputs of these shapes. [`Reshape`](crate::network::Rearrange::Reshape) and [`Slice`](crate::network::Rearrange::Slice) cannot know
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
