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

/// The least and the largest value that there can be, rounded either way; `None` where a line goes on for ever, or has no sound number.
fn bounds(pieces: &Pieces) -> Option<[i128; 2]> {
    pieces.check().ok()?;
    if pieces.beyond == Beyond::Straight && pieces.tail() != 0 {
        return None;
    }
    // (Both ends of each line: in between there is nothing beyond them.)
    let lines = pieces.offsets.iter().zip(&pieces.slopes).flat_map(|(&offset, &slope)| {
        let first = i128::from(offset) << pieces.offset_shift;
        [first, first + i128::from(slope) * ((1 << pieces.low) - 1)]
    });
    let unit = 1i128 << pieces.shift;
    Some([lines.clone().min()?.div_euclid(unit), -(-lines.max()?).div_euclid(unit)])
}

/// Of n = `activation_bits`, how many a ring must have for shares of these values, as extensions take them: what is never negative stays below
/// its half, anything else within a quarter. And the protocol's own ring is wider than the pieces' domain.
fn made_bits(pieces: &Pieces, activation_bits: u32) -> u32 {
    let Some([least, most]) = bounds(pieces) else { return activation_bits };
    let largest = most.max(-least).unsigned_abs();
    let bits = u128::BITS - largest.leading_zeros() + if least < 0 { 2 } else { 1 };
    let ring = pieces.domain_bits().max(pieces.offset_shift) + 1;
    bits.max(ring.saturating_sub(pieces.shift)).clamp(*ACTIVATION_BITS.start(), activation_bits)
}

/// In which rings these take values: the pieces are there, and, where lines go on, room for what is beyond and for where they begin. What a line with a
/// slope makes beyond is known modulo 2^j times what x is, 2^j being what divides the slope: so x has j bits fewer than n at most.
fn taken(pieces: &Pieces) -> Takes {
    let domain = pieces.domain_bits();
    let (least, fewer) = match pieces.beyond {
        Beyond::Repeated => (domain, u32::MAX),
        Beyond::Straight if pieces.tail() == 0 => (domain + 2, u32::MAX),
        Beyond::Straight => (domain + 2, pieces.tail().trailing_zeros()),
        Beyond::Level { begin } => {
            let ends = if begin < 0 { !begin } else { begin };
            ((domain + 2).max(u64::BITS - ends.leading_zeros() + 2), u32::MAX)
        }
    };
    Takes::Needed { least, fewer }
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
        made_bits(&self.pieces(), activation_bits)
    }

    fn value(&self) -> Value {
        // (Lines of nothing are made where scales are not known yet: they say nothing of values.)
        let never_negative = bounds(&self.pieces()).is_some_and(|[least, most]| least >= 0 && most > 0);
        let sign = if never_negative { Sign::NonNegative } else { Sign::Any };
        Value { scale: Scale::Own, sign, source: Source::SamePlace }
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
        let takes = taken(&self.pieces());
        Shares { excess: Excess::Refuses, takes, makes: Makes::Activations, joined: Joined::Pairs }
    }

    fn signs(&self) -> Option<&dyn Signs> {
        None
    }

    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        let params = CurveParams {
            bits: at.bits,
            out_bits: at.output.bits(),
            digit: at.digit,
            pieces: Arc::new(self.pieces()),
        };
        Arc::new(Elementwise { count: at.count(), params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::{Decay, FloatOperator, Function, Known, Primitive};
    use crate::network::Op;

    /// All values of 14 bits, and rounded either way: they fit into the ring that their lines ask for, as an extension takes it, and one of a bit less is
    /// too narrow for some. What is never negative says so.
    #[test]
    fn lines_tell_how_wide_their_values_are() {
        const BITS: u32 = 14;
        let one = 512.0;
        let known = Known { bits: BITS, scales: Some((&[one], one)), ..Known::default() };
        let of = |function: Function| crate::float::Op::from(function).integer(&known).unwrap();
        let cases: [(&str, Op, Sign, bool); 4] = [
            ("decay", Decay.integer(&known).unwrap(), Sign::NonNegative, true),
            (
                "sigmoid",
                of(Function::Of(Primitive::Sigmoid, Box::new(Function::Value))),
                Sign::NonNegative,
                true,
            ),
            ("tanh", of(Function::Of(Primitive::Tanh, Box::new(Function::Value))), Sign::Any, true),
            ("swish", of(Function::swish(1.0)), Sign::Any, false),
        ];
        for (name, op, sign, narrow) in cases {
            fn of<T: InPieces>(op: &Op) -> Option<(Pieces, Value)> {
                op.downcast_ref::<T>().map(|lines| (lines.pieces(), lines.value()))
            }
            let found = of::<Curve>(&op).or_else(|| of::<Straight>(&op)).or_else(|| of::<Level>(&op));
            let (pieces, value) = found.unwrap_or_else(|| panic!("{name} is no curve"));
            let bits = op.value_bits(BITS, BITS);
            assert_eq!((value.sign, bits < BITS), (sign, narrow), "{name}: {bits} bits");
            let fits = |y: i64, bits: u32| match sign {
                Sign::NonNegative => (0..1 << (bits - 1)).contains(&y),
                Sign::Any | Sign::Inherited => (-(1 << (bits - 2))..1 << (bits - 2)).contains(&y),
            };
            let half = 1i64 << (BITS - 1);
            let values = (-half..half).flat_map(|x| [0, u64::MAX].map(|share| pieces.by_share(x, share)));
            let values: Vec<i64> = values.collect();
            if narrow {
                assert!(values.iter().all(|&y| fits(y, bits)), "{name}: {bits} bits");
                assert!(values.iter().any(|&y| !fits(y, bits - 1)), "{name}: {bits} bits");
            }
        }
    }

    /// Lines of which nothing is known yet say nothing, and those that are not sound neither.
    #[test]
    fn lines_of_nothing_are_as_wide_as_any() {
        let nothing = Curve { low: 1, offset_shift: 0, shift: 1, offsets: vec![0; 4], slopes: vec![0; 4] };
        assert_eq!(nothing.value().sign, Sign::Any);
        let unsound = Curve { shift: 0, ..nothing };
        assert_eq!((unsound.value().sign, unsound.value_bits(16, 16)), (Sign::Any, 16));
    }
}
