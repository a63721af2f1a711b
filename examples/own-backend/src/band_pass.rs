//! An operator of one's own: x where 0 <= x < bound, and 0 elsewhere. All of it is here: what it means as integers, its protocol, what
//! it is in floating point. A program knows it by one line, [`Kit::with_operators`](jaguar::plan::Kit::with_operators).

use std::sync::Arc;

use jaguar::float::{self, Demand, FloatOperator};
use jaguar::network::{self, NodeError, Shape};
use jaguar::nonlinear::{Elementwise, Formula, Modulus, MpcError, Nonlinear, NonlinearKind, Selection};
use jaguar::ops::operator::{
    Effort, Excess, Interactive, Joined, Known, Makes, Numbered, Operands, Operator, Part, Place, Scale,
    Shares, Sign, Signs, Source, Takes, Value, Work,
};
use serde::{Deserialize, Serialize};

/// x where `0 <= x < 2^log2_bound`, and 0 elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandPass {
    /// The bound is 2 to this, in units of the values' scale.
    pub log2_bound: u32,
}

impl BandPass {
    fn of(&self, x: i64) -> i64 {
        if (0..1 << self.log2_bound).contains(&x) { x } else { 0 }
    }
}

impl Numbered for BandPass {
    const NUMBER: u32 = 1000;
}

impl Operator for BandPass {
    fn name(&self) -> &'static str {
        "BandPass"
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    /// The network may come from a peer: no bound is taken on trust.
    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        if (1..40).contains(&self.log2_bound) { Ok(inputs[0]) } else { Err(NodeError::Range("log2_bound")) }
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        if self.log2_bound <= activation_bits - 2 { Ok(()) } else { Err(NodeError::Range("log2_bound")) }
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Inherited, sign: Sign::NonNegative, source: Source::SamePlace }
    }

    fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        self.log2_bound = self.log2_bound.checked_add_signed(by).ok_or("log2_bound")?;
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        Some(of.first().1.iter().map(|&x| self.of(x)).collect())
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let inside = 0..1 << self.log2_bound;
        Some(of.pull_back_each(by, |x| if inside.contains(&x) { 1.0 } else { 0.0 }))
    }
}

impl Interactive for BandPass {
    fn part(&self) -> Part {
        Part::Activation
    }

    fn shares(&self) -> Shares {
        Shares {
            excess: Excess::Refuses,
            takes: Takes::Compared,
            makes: Makes::AnyRing,
            joined: Joined::Pairs,
        }
    }

    fn signs(&self) -> Option<&dyn Signs> {
        None
    }

    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        let params =
            InBand { bits: at.bits, output: at.output, digit: at.digit, log2_bound: self.log2_bound };
        Arc::new(Elementwise { count: at.count(), params })
    }
}

/// The protocol: the comparison of a clip, of whose two results it asks for the first.
#[derive(Clone, Copy, Debug)]
struct InBand {
    bits: u32,
    output: Modulus,
    digit: u32,
    log2_bound: u32,
}

impl Selection for InBand {
    const KIND: NonlinearKind = NonlinearKind::Relu6;

    fn check(&self) -> Result<(), MpcError> {
        jaguar::nonlinear::Relu6Params {
            bits: self.bits,
            output: self.output,
            digit: self.digit,
            log2_six: self.log2_bound,
            ignored: 0,
        }
        .check()
    }

    fn bits(&self) -> u32 {
        self.bits
    }

    fn digit(&self) -> u32 {
        self.digit
    }

    /// It is exact, whatever is asked for.
    fn ignoring(self, _: u32) -> Self {
        self
    }

    fn formula(&self) -> Formula {
        Formula::clip(self.bits, self.log2_bound, self.digit, 0)
    }

    fn output(&self) -> Modulus {
        self.output
    }

    fn second(&self) -> Option<Modulus> {
        None
    }

    fn join(&self, selected: Vec<u64>, _: Option<Vec<u64>>) -> Vec<u64> {
        selected
    }
}

/// The same in floating point.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatBandPass {
    /// The bound, positive and finite.
    pub bound: f32,
}

impl FloatOperator for FloatBandPass {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let log2_bound =
            known.scales.map_or(1, |(_, own)| (f64::from(self.bound) * own).log2().round() as u32);
        Some(network::Op::new(BandPass { log2_bound }))
    }

    /// The bound must be a power of two of the scale.
    fn demands(&self) -> Demand {
        Demand::Power(self.bound)
    }

    fn apply(&self, of: &float::FloatOperands<'_>) -> Vec<f32> {
        of.first().1.iter().map(|&x| if (0.0..self.bound).contains(&x) { x } else { 0.0 }).collect()
    }
}
