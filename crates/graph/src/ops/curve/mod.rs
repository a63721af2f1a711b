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

/// Lines over 2^d integers from `begin` on, and level for all others ([`Beyond::Level`]): of a function that matters on one side of a place only,
/// as e^(−t) does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The lowest piece's lower end.
    pub begin: i64,
    /// The pieces from there up.
    pub lines: Curve,
}

/// Bits of the widest activations, guard bits included.
const WIDEST: u32 = *ACTIVATION_BITS.end() + MAX_GUARD_BITS;

/// Bits of a protocol's words, one left for the sum of two.
const WORD: u32 = 63;

#[cfg(test)]
impl<const ON: bool> Lines<ON>
where
    Self: Numbered,
{
    /// Of one integer, to the nearest.
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

impl Numbered for Level {
    const NUMBER: u32 = 13;
}

/// An operator that is [`Pieces`] and nothing else.
trait InPieces: Numbered {
    /// What it has beside its pieces, in words.
    const BESIDE: &'static str;

    fn pieces(&self) -> Pieces;

    /// Lets pieces grow with the values, and offsets too. Slopes are of a value by a value.
    fn grow(&mut self, by: i32) -> Result<(), &'static str>;
}

impl<const ON: bool> InPieces for Lines<ON>
where
    Self: Numbered,
{
    const BESIDE: &'static str = if ON { " and straight lines" } else { "" };

    fn pieces(&self) -> Pieces {
        let Self { low, offset_shift, shift, offsets, slopes } = self.clone();
        let beyond = if ON { Beyond::Straight } else { Beyond::Repeated };
        Pieces { low, offset_shift, shift, offsets, slopes, beyond }
    }

    fn grow(&mut self, by: i32) -> Result<(), &'static str> {
        self.low = self.low.checked_add_signed(by).filter(|low| *low > 0).ok_or("width of a piece")?;
        self.offset_shift = self.offset_shift.checked_add_signed(by).ok_or("shift of offsets")?;
        Ok(())
    }
}

impl InPieces for Level {
    const BESIDE: &'static str = ", level outside";

    fn pieces(&self) -> Pieces {
        Pieces { beyond: Beyond::Level { begin: self.begin }, ..self.lines.pieces() }
    }

    fn grow(&mut self, by: i32) -> Result<(), &'static str> {
        self.lines.grow(by)?;
        let factor = 1i64.checked_shl(by.unsigned_abs()).filter(|factor| *factor > 0);
        let grown = match (factor, by < 0) {
            (Some(factor), false) => self.begin.checked_mul(factor),
            (Some(factor), true) if self.begin % factor == 0 => Some(self.begin / factor),
            _ => None,
        };
        self.begin = grown.ok_or("begin of the pieces")?;
        Ok(())
    }
}

impl<T: InPieces> Operator for T {
    fn name(&self) -> &'static str {
        "Curve"
    }

    fn describe(&self) -> String {
        format!("curve in {} pieces{}", self.pieces().offsets.len(), T::BESIDE)
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        let pieces = self.pieces();
        pieces.check().map_err(NodeError::Range)?;
        check((3..=WIDEST).contains(&pieces.domain_bits()), "width of a piece")?;
        check(pieces.offset_shift < WORD, "shift of offsets")?;
        Ok(inputs[0])
    }

    /// The domain is no wider than the values, and narrower where lines go on; and there is room for the lines.
    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        let pieces = self.pieces();
        let domain = pieces.domain_bits();
        let beyond = pieces.beyond != Beyond::Repeated;
        let widest = if beyond { activation_bits - 2 } else { activation_bits };
        check(domain <= widest && (!beyond || domain + 64 >= 2 * activation_bits), "width of a piece")?;
        if let Beyond::Level { begin } = pieces.beyond {
            let most = 1i64 << (activation_bits - 2);
            check((-most..most).contains(&begin), "begin of the pieces")?;
        }
        check(pieces.shift + activation_bits <= WORD, "shift")?;
        check(pieces.offset_shift < pieces.shift + activation_bits, "shift of offsets")
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Own, sign: Sign::Any, source: Source::SamePlace }
    }

    fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        self.grow(by)
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

impl<T: InPieces> Interactive for T {
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
