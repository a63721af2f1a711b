//! e^(−t) of what is not negative, as a softmax has it: one curve of x = t − 7.25, whose first and last lines go on,
//! level.
//!
//! From t = 15 on it is less than 2^-21, which is level enough. Below zero, where no t is, it goes on for a quarter, so
//! that it bends nowhere near the largest values, t = 0. Moved by 7.25 all that is between −7.5 and 8, with the two
//! equal pieces at either end; so most pieces are of use, if the scale is such that 8 is a power of two, and half of
//! them if not. Of 512 each is h = 1/32 to 1/16 wide, and its line within h²/16 = 2^-14 to 2^-12 of e^(−t), **relative
//! to it**: above it where a piece begins and below it in the middle, so that a sum over many t is nearer still. A
//! softmax divides by such a sum.

use super::coarse::Sought;
use super::fit::{MOST, MOST_BEYOND, between};
use super::function::{Function, Primitive};
use super::{Curve, Straight};
use crate::float::{Demand, FloatOperands, FloatOperator};
use crate::network::{self, NodeId};
use crate::ops::operator::Known;

/// Lines that are so near, of which e^0 is one, are near enough for weights that a softmax makes, whatever the values'
/// last place is.
const NEAR: f64 = 1.0 / 4096.0;

/// Where lines may be coarse, they may be by so many bits coarser than other curves' are: a softmax divides by the sum of all, and of many
/// weights most of what they are off by adds up to nothing.
const MORE: u32 = 2;

/// But no farther than this, of which e^0 is one: small values are many.
const LEAST_NEAR: f64 = 1.0 / 800.0;

/// So far it goes on below zero.
const BELOW: f32 = 0.25;

/// `e^(−t)` of `t = max(x + 7.25, −1/4)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay;

impl Decay {
    /// By how much t is moved.
    pub(crate) const MOVED: f32 = 7.25;

    /// The same as a function: `e^(1/4)·(1 + (e^−y − 1))` of y = t + 1/4. (From 64 on it stays what it is there.)
    fn function() -> Function {
        let line = |mul: f32, add: f32, of: Function| Function::Line { mul, add, of: Box::new(of) };
        let clip = Primitive::Clip { ceiling: 64.0 };
        let y = Function::Of(clip, Box::new(line(1.0, Self::MOVED + BELOW, Function::Value)));
        let less_one = Primitive::Exponential { alpha: 1.0, beta: 1.0, gamma: 1.0 };
        let largest = BELOW.exp();
        line(largest, largest, Function::Of(less_one, Box::new(line(-1.0, 0.0, y))))
    }

    /// By how many units coarse lines may be off, of which e^0 is `one`.
    fn asked(known: &Known<'_>, one: f64) -> f64 {
        (MOST * f64::from(known.coarse + MORE).exp2()).min(one * LEAST_NEAR)
    }

    /// The integer curve and how far it is from this one, in units of the value.
    fn fitted(known: &Known<'_>) -> Option<(network::Op, f64)> {
        let (&[input], own) = known.scales? else { return None };
        let (function, scales) = (Self::function(), [input, own]);
        let least = -f64::from(Self::MOVED);
        if known.coarse > 0 {
            let most = Self::asked(known, own);
            let at = |x: f64| between(&function, scales, known.bits, x);
            let (beyond, least) = (Some(MOST_BEYOND), least * input);
            let sought = Sought { at: &at, bits: known.bits, most, beyond, least, slope: Some(0.0) };
            if let Some(found) = sought.cheapest() {
                return Some(found);
            }
        }
        Some(match Straight::above(least, &function, scales, known.bits) {
            Some((straight, error)) => (network::Op::new(straight), error),
            None => {
                let (curve, error) = Curve::fitted(&function, scales, known.bits);
                (network::Op::new(curve), error)
            }
        })
    }
}

impl FloatOperator for Decay {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let nothing = || {
            let (offsets, slopes) = (vec![0; 4], vec![0; 4]);
            network::Op::new(Curve { low: 1, offset_shift: 0, shift: 1, offsets, slopes })
        };
        Some(Self::fitted(known).map_or_else(nothing, |(op, _)| op))
    }

    /// Of lines that are near enough, no more than is usual.
    fn coarseness(&self, known: &Known<'_>) -> f64 {
        let one = known.scales.map_or(0.0, |(_, own)| own);
        let near = if known.coarse > 0 { Self::asked(known, one) } else { NEAR * one };
        Self::fitted(known).map_or(0.0, |(_, error)| if error <= near { error.min(MOST) } else { error })
    }

    fn heeds_coarse(&self) -> bool {
        true
    }

    fn demands(&self) -> Demand {
        Demand::Told
    }

    fn is_non_negative(&self, _: &[NodeId], _: &dyn Fn(NodeId) -> bool) -> bool {
        true
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.each(|x| (-(x + Self::MOVED).max(-BELOW)).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::operator::Operator;

    /// e^(−t) of many values, t = 0 among them, for t up to 2, 8, 60 and 500 and networks of 12 to 24 bits, at scales
    /// of which 8 is a power of two or not: within a unit and a half, or 2^-12.
    #[test]
    fn a_decay_is_that_of_every_value() {
        for largest in [2.0f64, 8.0, 60.0, 500.0] {
            for bits in [12u32, 16, 20, 24] {
                for part in [1.0, 0.9, 0.751, 0.7, 0.52] {
                    let seen = largest.max(7.25);
                    // (With headroom, as calibration chooses them.)
                    let input = part * (f64::from(1 << (bits - 4)) / seen).log2().floor().exp2();
                    let scales = [input, f64::from(1 << (bits - 4))];
                    let known = Known { bits, scales: Some((&scales[..1], scales[1])), ..Known::default() };
                    let (op, bound) = Decay::fitted(&known).unwrap();
                    let lines: &Straight = op.downcast_ref().expect("lines that go on");
                    lines.shape(&[[1, 1, 1]], [1, 1, 1]).unwrap();
                    lines.check(bits).unwrap();
                    let pieces = lines.pieces();
                    let at = |x: i64| pieces.line(x) as f64 / f64::from(pieces.shift).exp2();
                    let (first, last) = ((-7.25 * input).ceil() as i64, ((largest - 7.25) * input) as i64);
                    let step = if bits <= 16 { 1 } else { 37 };
                    let off = |x: i64| (at(x) - (-(x as f64 / input + 7.25)).exp() * scales[1]).abs();
                    let worst = (first..=last).step_by(step).map(off).fold(0.0, f64::max);
                    println!(
                        "up to {largest}, {bits} bits, {part}: {} pieces of {} bits, {worst:.2} units, 2^{:.1}",
                        lines.offsets.len(),
                        pieces.domain_bits(),
                        (worst / scales[1]).log2(),
                    );
                    assert!(
                        worst <= bound * 1.05 + 0.05,
                        "up to {largest}, {bits} bits, {part}: {worst}, {bound}"
                    );
                    let most = f64::max(1.5, NEAR * scales[1]);
                    assert!(worst <= most, "up to {largest}, {bits} bits, {part}: {worst}");
                    assert!(Decay.coarseness(&known) <= 1.5);
                    // Level on either side.
                    let end = ((8.5 * input) as i64).max(1 << (pieces.domain_bits() - 1));
                    assert_eq!([at(-2 * end), at(2 * end)], [at(-end), at(end)]);
                }
            }
        }
    }

    /// Coarse lines of 20 bits: as near as is asked for, but never farther than 2^-9.6, where t is; and fewer pieces.
    #[test]
    fn a_coarse_decay_is_near_enough() {
        let (bits, one) = (20, f64::from(1 << 16));
        for largest in [8.0f64, 60.0] {
            let input = (one / largest).log2().floor().exp2();
            let scales = [input, one];
            let known = Known { bits, scales: Some((&scales[..1], one)), ..Known::default() };
            let fine: Straight = Decay::fitted(&known).unwrap().0.downcast_ref().cloned().unwrap();
            for coarse in 1..=8 {
                let (op, error) = Decay::fitted(&Known { coarse, ..known }).unwrap();
                let lines: &Straight = op.downcast_ref().unwrap();
                let most = (5.0 * f64::from(1 << coarse)).min(one / 800.0);
                let [pieces, all] = [lines, &fine].map(|lines| lines.offsets.len());
                assert!(
                    error <= most && pieces <= if coarse < 3 { all } else { all / 2 },
                    "{coarse}: {pieces}"
                );
                lines.check(bits).unwrap();
                let pieces = lines.pieces();
                let at = |x: i64| pieces.line(x) as f64 / f64::from(pieces.shift).exp2();
                let (first, last) = ((-7.25 * input) as i64, ((largest - 7.25) * input) as i64);
                let off = |x: i64| (at(x) - (-(x as f64 / input + 7.25)).exp() * one).abs();
                let worst = (first..=last).step_by(7).map(off).fold(0.0, f64::max);
                assert!(worst <= error * 1.02 + 0.05, "up to {largest}, {coarse}: {worst}, {error}");
            }
        }
    }

    #[test]
    fn the_function_is_what_is_applied() {
        let function = Decay::function();
        for i in -200..=200 {
            let x = f64::from(i) / 8.0;
            assert!((function.at(x) - (-(x + 7.25).max(-0.25)).exp()).abs() < 1e-6, "{x}");
        }
        assert!(function.is_non_negative());
    }
}
