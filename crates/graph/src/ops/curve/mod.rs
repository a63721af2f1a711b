//! A curve y = f(x) of each value by itself, in pieces with integer coefficients: SiLU, GELU, sigmoid, tanh and the like.

pub(crate) mod bend;
pub(crate) mod coarse;
pub(crate) mod decay;
pub(crate) mod fit;
pub(crate) mod float;
pub(crate) mod function;
pub(crate) mod onnx;

use std::sync::Arc;

use jaguar_mpc::semantics::{Beyond, Pieces};
use jaguar_mpc::{CurveParams, Elementwise, Nonlinear};
use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{ACTIVATION_BITS, MAX_GUARD_BITS, check};
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Chance, Effort, Excess, Interactive, Joined, Makes, Numbered, Operands, Operator, Part, Place, Scale,
    Shares, Sign, Signs, Source, Takes, Value, Work,
};

/// Lines over pieces, which hold for all values of as many bits as the pieces' domain has.
pub type Curve = Lines<false>;

/// Lines over pieces of a smaller domain, the first and last of which go on to all values ([`Beyond::Straight`]): of a curve that bends in
/// a small part of its range only.
pub type Straight = Lines<true>;

/// The lines of [`Pieces`], which say what is computed; whether the first and the last go `ON`. Public, and made of f and the two scales
/// alone (`fit.rs`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lines<const ON: bool> {
    /// Each piece has 2^`low` integers.
    pub low: u32,
    /// Offsets count in units of 2^`offset_shift`.
    pub offset_shift: u32,
    /// The lines are 2^`shift` times too large.
    pub shift: u32,
    /// Each piece's value at its lower end, from the lowest piece up: as many as a power of two, 4 to 512.
    pub offsets: Vec<i64>,
    /// By how much each piece's line grows from an integer to the next.
    pub slopes: Vec<i64>,
}

/// Bits of the widest activations, guard bits included.
const WIDEST: u32 = *ACTIVATION_BITS.end() + MAX_GUARD_BITS;

/// Bits of a protocol's words, one left for the sum of two.
const WORD: u32 = 63;

impl<const ON: bool> Lines<ON> {
    fn pieces(&self) -> Pieces {
        let Self { low, offset_shift, shift, offsets, slopes } = self.clone();
        let beyond = if ON { Beyond::Straight } else { Beyond::Repeated };
        Pieces { low, offset_shift, shift, offsets, slopes, beyond }
    }

    /// Of one integer, to the nearest.
    #[cfg(test)]
    fn nearest_of(&self, x: i64) -> i64 {
        self.pieces().nearest(x)
    }
}

impl Numbered for Curve {
    const NUMBER: u32 = 10;
}

impl Numbered for Straight {
    const NUMBER: u32 = 11;
}

impl<const ON: bool> Operator for Lines<ON>
where
    Self: Numbered,
{
    fn name(&self) -> &'static str {
        "Curve"
    }

    fn describe(&self) -> String {
        let on = if ON { " and straight lines" } else { "" };
        format!("curve in {} pieces{on}", self.offsets.len())
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        let pieces = self.pieces();
        pieces.check().map_err(NodeError::Range)?;
        check((3..=WIDEST).contains(&pieces.domain_bits()), "width of a piece")?;
        check(self.offset_shift < WORD, "shift of offsets")?;
        Ok(inputs[0])
    }

    /// The domain is no wider than the values, and narrower where lines go on; and there is room for the lines.
    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        let domain = self.pieces().domain_bits();
        let widest = if ON { activation_bits - 2 } else { activation_bits };
        check(domain <= widest && (!ON || domain + 64 >= 2 * activation_bits), "width of a piece")?;
        check(self.shift + activation_bits <= WORD, "shift")?;
        check(self.offset_shift < self.shift + activation_bits, "shift of offsets")
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Own, sign: Sign::Any, source: Source::SamePlace }
    }

    /// Pieces grow with the values, and so do offsets. Slopes are of a value by a value.
    fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        self.low = self.low.checked_add_signed(by).filter(|low| *low > 0).ok_or("width of a piece")?;
        self.offset_shift = self.offset_shift.checked_add_signed(by).ok_or("shift of offsets")?;
        Ok(())
    }

    fn effort(&self, _: &[Shape], _: Shape) -> Effort {
        Effort::default()
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let pieces = self.pieces();
        Some(of.first().1.iter().map(|&x| pieces.nearest(x)).collect())
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        if !chance.draws.rounding {
            return self.apply(of);
        }
        let pieces = self.pieces();
        Some(chance.each(of.first().1, |x, share| pieces.by_share(x, share)))
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let pieces = self.pieces();
        Some(of.pull_back_each(by, |x| pieces.slope(x) as f32))
    }
}

impl<const ON: bool> Interactive for Lines<ON>
where
    Self: Numbered,
{
    fn part(&self) -> Part {
        Part::Activation
    }

    fn shares(&self) -> Shares {
        let takes = Takes::Activations { more: 0 };
        Shares { excess: Excess::Refuses, takes, makes: Makes::Activations, joined: Joined::Pairs }
    }

    fn signs(&self) -> Option<&dyn Signs> {
        None
    }

    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        let params = CurveParams {
            bits: at.bits,
            out_bits: at.bits,
            digit: at.digit,
            pieces: Arc::new(self.pieces()),
        };
        Arc::new(Elementwise { count: at.count(), params })
    }
}
