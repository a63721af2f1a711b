//! What an operator is: all that the integer network, its plan and its private runs ask of one.
//!
//! What has no default must be said, so that nothing is forgotten: the compiler asks for it.

use std::any::Any;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

use jaguar_mpc::Nonlinear;
use jaguar_mpc::share::Modulus;
use jaguar_ring::cpu::Cpu;
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ir::convolution::{Linear, Weights};
use crate::ir::draws::Draws;
use crate::ir::error::NodeError;
use crate::ir::shape::{NodeId, Shape};

/// Where the scale of an operator's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// It has one of its own, which calibration chooses.
    Own,
    /// It is the inputs', which all have the same.
    Inherited,
    /// It is the input's times this.
    Gained(u64),
}

/// In which row of reports an operation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The client gives it: nothing is computed.
    Input,
    /// A linear backend does, with the server's weights.
    Linear,
    /// A protocol of both parties of each value by itself: ReLU, clips.
    Activation,
    /// A protocol of both parties that compares the values of a window.
    MaxPool,
    /// A protocol of both parties that multiplies two values.
    Product,
    /// Each party by itself.
    Local,
}

/// Who computes an operation in a private run, and what each way has to say of itself.
pub enum Work<'a> {
    /// The client gives it: nothing is computed.
    Input,
    /// A linear backend does, with the server's weights.
    Linear(&'a Linear),
    /// Each party by itself, on its shares: for what is linear over the integers, and for nothing else.
    Local(Local),
    /// A protocol of both parties.
    Interactive(&'a dyn Interactive),
}

/// What an operation does with products that nothing truncated: values at 2^f times the network's scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// It takes them as they are, and its value can be truncated where that is needed.
    Truncates,
    /// Its value has its input's scale.
    Passes,
    /// The same of several inputs, whose shares must live in one ring.
    PassesTogether,
    /// It takes values at the network's scale only, and makes such.
    Refuses,
}

/// How an operation is done on shares that each party does by itself.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// What it does with products that nothing truncated.
    pub excess: Excess,
    /// Whether its value may take more bits than its inputs: these then come in the ring that the value needs.
    pub widens: bool,
    /// Whether it adds its inputs up, place by place: then a part of the sum follows from the same part of each input.
    pub adds: bool,
}

/// How shares come into a protocol and go out.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// What it does with products that nothing truncated.
    pub excess: Excess,
    /// In how many bits it takes its inputs.
    pub takes: Takes,
    /// In which ring it makes its value.
    pub makes: Makes,
    /// How two inputs come.
    pub joined: Joined,
}

/// How a protocol takes two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// As pairs, value by value, of which the second has as many as the first or one for each channel; what is
    /// multiplied by itself comes once. For one input this says nothing.
    Pairs,
    /// All of the first, then all of the second, also where they are one value, unless that is taken once
    /// ([`Interactive::takes_once`]).
    OneBehindTheOther,
}

/// In how many bits a protocol takes the shares of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// In those of the plan's base ring, or in as few as its inputs' values need; of products that nothing truncated, in what these need.
    Compared,
    /// In the n bits of an activation, and so many more.
    Activations {
        /// Bits beyond the n of an activation.
        more: u32,
    },
    /// In as many as its inputs' values need, n at most.
    Needed {
        /// And no fewer than these.
        least: u32,
        /// And no more than so many fewer than n.
        fewer: u32,
    },
}

/// In which ring a protocol makes the shares of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    /// In any that is asked for, odd moduli included.
    AnyRing,
    /// In the one that it takes its inputs in.
    TakenRing,
    /// In that of the activations, modulo 2^n.
    Activations,
}

/// An operation that the two parties compute by a protocol. The plan gives the protocol the shares of the only input, or of two
/// inputs as [`Joined`] says.
pub trait Interactive {
    /// In which row of reports it counts.
    fn part(&self) -> Part;

    /// How shares come in and go out.
    fn shares(&self) -> Shares;

    /// Whether its protocol takes one value once, not joined with itself, where both of two inputs of these shapes are that value.
    fn takes_once(&self, _: &[Shape]) -> bool {
        self.shares().joined == Joined::Pairs
    }

    /// What it says of signs that leave out low bits; `None` where it takes no signs.
    fn signs(&self) -> Option<&dyn Signs>;

    /// The protocol, with the public parameters that it needs in this place.
    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear>;
}

/// Where in a plan a protocol stands.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The inputs' shares are mod 2^`bits`.
    pub bits: u32,
    /// They are of the network's values times 2^`excess`.
    pub excess: u32,
    /// Modulo what the value's shares are wanted, of a protocol that makes them in any ring.
    pub output: Modulus,
    /// Bits per digit of its comparisons.
    pub digit: u32,
    /// How many images a query has.
    pub images: usize,
    /// The inputs' shapes, of one image.
    pub inputs: &'a [Shape],
    /// Of two inputs, whether they are one value that the protocol takes once ([`Interactive::takes_once`]). Otherwise it takes both, as
    /// [`Joined`] says.
    pub same: bool,
    /// The value's shape, of one image.
    pub shape: Shape,
}

impl Place<'_> {
    /// How many values are made, of all images.
    pub fn count(&self) -> usize {
        self.images * self.shape.iter().product::<usize>()
    }

    /// How many low bits signs leave out of values with this excess where the network leaves out `ignored`, in its own units.
    /// Leaving out one is exact but for the two lowest values of the ring, which no value and no difference in range is.
    pub fn left_out(&self, ignored: u32) -> u32 {
        if ignored > 1 { ignored + self.excess } else { 1 }
    }
}

/// Of an operation that takes signs: what it means that they leave out low bits.
pub trait Signs {
    /// How many they leave out. None and one are exact.
    fn ignored(&self) -> u32;

    /// How many they may leave out at most, in a network with n = `activation_bits`.
    fn most_ignored(&self, activation_bits: u32) -> u32;

    /// What a person should know of it.
    fn caveat(&self) -> &'static str;

    /// What comes of it in `run` where `ignored` bits are left out: exactly, or, where that depends on what is not known, what
    /// was made if it may come out, and the exact value if not.
    fn reduced(&self, ignored: u32, run: &Ran<'_>) -> Vec<i64>;
}

/// What is known of one operation in a private run when both parties are looked at.
pub struct Ran<'a> {
    /// `[C, H, W]` of its first input.
    pub shape: Shape,
    /// Its first input's values, as integers of the network.
    pub input: &'a [i64],
    /// The client's shares of them.
    pub client: &'a [u64],
    /// The values that the private run made.
    pub made: &'a [i64],
    /// The values that exact signs make of the same input.
    pub exact: &'a [i64],
}

impl Ran<'_> {
    /// What `of` makes of each value and the client's share of it.
    pub fn each(&self, of: impl Fn(i64, u64) -> i64) -> Vec<i64> {
        self.input.iter().zip(self.client).map(|(&x, &share)| of(x, share)).collect()
    }
}

/// Whether an operation's values can be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// They cannot, whatever the inputs are.
    NonNegative,
    /// They can if an input's can.
    Inherited,
    /// They can, whatever the inputs are.
    Any,
}

/// Of which values of its inputs an operation makes each of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Of several values of its inputs.
    Several,
    /// Of the first input's at the same place.
    SamePlace,
    /// The same, by a factor and an offset, if there are as many as the input has: a layer of its own, unless several layers'
    /// values are joined in the input.
    Scaled,
    /// Of one that it moves, unchanged.
    Moved,
}

/// What calibration knows when it makes an integer operator of a float one: nothing, to begin with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// n, the bits of an activation, guard bits not among them; 0 where nothing is known.
    pub bits: u32,
    /// c: lines of a curve may be off by 2^c times as many units as is usual.
    pub coarse: u32,
    /// How many bits fewer than others the first input's values have ([`crate::network::Narrow`]).
    pub fewer: u32,
    /// The first input's shape.
    pub input: Option<Shape>,
    /// The inputs' scales and the value's own.
    pub scales: Option<(&'a [f64], f64)>,
}

impl Known<'_> {
    /// The bits of the first input's values.
    pub(crate) fn taken(&self) -> u32 {
        self.bits - self.fewer
    }
}

/// What follows of a value from those that it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where its scale comes from.
    pub scale: Scale,
    /// Whether it can be negative.
    pub sign: Sign,
    /// Of which values of the inputs each is made.
    pub source: Source,
}

/// What it takes to plan an operation and to compute it in plaintext: a network may come from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Multiplications and additions in plaintext.
    pub operations: u64,
    /// Places of a tournament that are looked at one by one.
    pub places: u64,
}

/// Under which number an operator stands in files and messages, with its parameters behind it. A type that implements this and
/// [`Operator`] can be in a network; [`Operators::with`](crate::ops::Operators::with) tells readers of it.
pub trait Numbered: Operator + Clone + PartialEq + Serialize + DeserializeOwned {
    /// The number. Those below 1,000 are the project's own. Two operators of one kit have different ones.
    const NUMBER: u32;
}

/// What a network does with any operator's parameters. Every [`Numbered`] operator has it.
pub trait Parameters {
    /// The same operator again.
    fn cloned(&self) -> Box<dyn Operator>;

    /// Whether `other` is the same operator with the same parameters.
    fn equals(&self, other: &dyn Operator) -> bool;

    /// [`Numbered::NUMBER`].
    fn number(&self) -> u32;

    /// The parameters, to be written.
    fn written(&self) -> &dyn erased_serde::Serialize;
}

impl<T: Numbered> Parameters for T {
    fn cloned(&self) -> Box<dyn Operator> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Operator) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn number(&self) -> u32 {
        T::NUMBER
    }

    fn written(&self) -> &dyn erased_serde::Serialize {
        self
    }
}

/// An operator with its public parameters: its rules and its meaning. All shapes are `[C, H, W]`.
pub trait Operator: Parameters + Any + Debug + Send + Sync {
    /// What it is called in reports.
    fn name(&self) -> &'static str;

    /// Who computes it, and how.
    fn work(&self) -> Work<'_>;

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
    fn check(&self, activation_bits: u32) -> Result<(), NodeError>;

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
    fn value_bits(&self, widest: u32, activation_bits: u32) -> u32;

    /// What follows of its value from its inputs'.
    fn value(&self) -> Value;

    /// Changes the parameters that are measured in its inputs' scale, as that grows to 2^`by` times as much.
    ///
    /// # Errors
    /// The parameter that cannot be so.
    fn rescale(&mut self, by: i32) -> Result<(), &'static str>;

    /// What it takes for inputs and a value of these shapes. No sum or product may overflow.
    fn effort(&self, inputs: &[Shape], output: Shape) -> Effort;

    /// Whether channel c of its value is made of channel c of its only input, and grows with it by any positive factor: then
    /// calibration may rescale channels through it.
    fn keeps_channels(&self, _input: Shape, _output: Shape) -> bool {
        false
    }

    /// How many low bits its signs leave out, to be changed; `None` where it takes none ([`Interactive::signs`]).
    fn ignored_mut(&mut self) -> Option<&mut u32> {
        None
    }

    /// The plaintext reference: its value from its inputs' values, exact, a linear layer's rounded to nearest. `None`
    /// if the weights are not its own.
    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>>;

    /// The same as it may turn out in a private run, by `chance`.
    fn apply_drawn(&self, of: &Operands<'_>, _chance: &Chance) -> Option<Vec<i64>> {
        self.apply(of)
    }

    /// Its transposed Jacobian times `by`: for each input, and each of its elements, by how much a function grows with it that grows
    /// by `by` with each element of the value. The value is taken without its rounding; at a corner either slope will do. `None`
    /// if the weights are not its own.
    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>>;
}

/// At least so many values go to one thread.
pub(crate) const EACH: usize = 1 << 12;

/// What an operator is applied to: at least one input, each with as many values as its shape says.
pub struct Operands<'a> {
    shapes: Vec<Shape>,
    values: &'a [&'a [i64]],
    /// The shape of what it makes.
    pub output: Shape,
    /// The weights, if it is a linear layer.
    pub weights: Option<&'a Weights>,
    /// What it may be computed with.
    pub cpu: Cpu,
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
    pub fn first(&self) -> (Shape, &'a [i64]) {
        (self.shapes[0], self.values[0])
    }

    /// The shapes of two inputs, if there are two.
    pub fn two(&self) -> Option<[Shape; 2]> {
        self.shapes[..].try_into().ok()
    }

    /// All inputs' values.
    pub fn values(&self) -> &'a [&'a [i64]] {
        self.values
    }

    /// [`Operator::pull_back`] of what works element by element on one input, `slope` being its derivative.
    pub fn pull_back_each(&self, by: &[f32], slope: impl Fn(i64) -> f32 + Sync) -> Vec<Vec<f32>> {
        let values = self.first().1.par_iter().zip(by).with_min_len(EACH);
        vec![values.map(|(&x, by)| slope(x) * by).collect()]
    }
}

/// The chance of one node in one imitated run.
pub struct Chance {
    /// The chance of one private run, imitated.
    pub(crate) draws: Draws,
    /// The node's number in the network.
    pub(crate) node: NodeId,
}

impl Chance {
    /// The client's share of one element: 64 uniform bits.
    pub fn share(&self, element: usize) -> u64 {
        self.draws.bits(self.node, element)
    }

    /// What `of` makes of each value and the client's share of it.
    pub fn each(&self, x: &[i64], of: impl Fn(i64, u64) -> i64 + Sync) -> Vec<i64> {
        x.par_iter().enumerate().with_min_len(EACH).map(|(i, &v)| of(v, self.share(i))).collect()
    }
}
