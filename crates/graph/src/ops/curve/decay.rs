//! e^(−t) of what is not negative, as a softmax has it: one curve of x = t − 7.25, of which all pieces but three are where t is from zero on.
//!
//! *How far.* From some t on it is level: where e^(−t) is at most a twelfth of what lines may be off by, or three quarters of a unit. So fine lines end at t = 7.6 to 16, and coarse ones
//! from 6.9 on. What is left out of a sum of k weights is then less than k·e^(−6.9) of the largest: a fifth of it for 197 weights if all others were just beyond,
//! and next to nothing where t is spread as it is in networks. Below zero no t is; there it stays 1 for a piece, in case that a maximum was
//! off by some units.
//!
//! *How near.* Lines over pieces of the width h are within h²/16 of e^(−t), **relative to it**: below it where a piece begins and above it in the middle, so that a
//! sum over many t is nearer still, and that is what a softmax divides by. So h may be large. Steps r of what is looked up are as large for small e^(−t), which are
//! many: they are bounded by themselves, to a third of what lines may be off by (`coarse.rs`).

use super::coarse::Falling;
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

/// But no farther than this, of which e^0 is one; so far where calibration found that answers bear it.
const LEAST_NEAR: f64 = 1.0 / 80.0;

/// Which part of that steps are at most, and which what is level.
const PARTS: [f64; 2] = [1.0 / 3.0, 1.0 / 12.0];

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

    /// By how many units lines may be off, of which e^0 is `one`.
    fn asked(known: &Known<'_>, one: f64) -> f64 {
        let fine = MOST.max(NEAR * one);
        match known.coarse {
            0 => fine,
            coarse => (MOST * f64::from(coarse + MORE).exp2()).min(one * LEAST_NEAR).max(fine),
        }
    }

    /// The integer curve and how far it is from this one, in units of the value.
    fn fitted(known: &Known<'_>) -> Option<(network::Op, f64)> {
        let (&[input], own) = known.scales? else { return None };
        let (function, scales) = (Self::function(), [input, own]);
        let least = -f64::from(Self::MOVED);
        let at = |x: f64| between(&function, scales, known.bits, x);
        let most = Self::asked(known, own);
        let [step, beyond] = PARTS.map(|part| most * part);
        let (least_x, beyond) = (least * input, beyond.max(MOST_BEYOND));
        let (bits, made) = (known.taken(), known.bits);
        let falling = Falling { at: &at, bits, made, least: least_x, most, step, beyond };
        // (Of values with few bits a piece may be of two integers. Then lines that need not meet are nearer.)
        Some(match falling.cheapest() {
            Some(found) => found,
            None => match Straight::above(least, &function, scales, [made, bits]) {
                Some((straight, error)) => (network::Op::new(straight), error),
                None => {
                    let (curve, error) = Curve::of_narrow(&function, scales, [made, bits]);
                    (network::Op::new(curve), error)
                }
            },
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
        let near = Self::asked(known, known.scales.map_or(0.0, |(_, own)| own));
        Self::fitted(known).map_or(0.0, |(_, error)| if error <= near { error.min(MOST) } else { error })
    }

    fn heeds_coarse(&self) -> bool {
        true
    }

    fn is_weight(&self) -> bool {
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
    use jaguar_mpc::semantics::Pieces;

    use super::super::{InPieces, Level};
    use super::*;

    fn pieces_of(op: &network::Op, bits: u32) -> Pieces {
        op.check(bits).unwrap();
        let pieces = match (op.downcast_ref::<Level>(), op.downcast_ref::<Straight>()) {
            (Some(level), _) => level.pieces(),
            (None, Some(straight)) => straight.pieces(),
            (None, None) => panic!("{}", op.describe()),
        };
        pieces.check().unwrap();
        pieces
    }

    fn value(pieces: &Pieces, x: i64) -> f64 {
        pieces.line(x) as f64 / f64::from(pieces.shift).exp2()
    }

    /// e^(−t) of many values, t = 0 among them, for t up to 2, 8, 60 and 500 and networks of 12 to 24 bits, at scales
    /// of which 8 is a power of two or not: within a unit and a half, or 2^-12.
    #[test]
    fn a_decay_is_that_of_every_value() {
        let mut all_level = 0;
        for largest in [2.0f64, 8.0, 60.0, 500.0] {
            for bits in [12u32, 16, 20, 24] {
                for part in [1.0, 0.9, 0.751, 0.7, 0.52] {
                    let seen = largest.max(7.25);
                    // (With headroom, as calibration chooses them.)
                    let input = part * (f64::from(1 << (bits - 4)) / seen).log2().floor().exp2();
                    let scales = [input, f64::from(1 << (bits - 4))];
                    let known = Known { bits, scales: Some((&scales[..1], scales[1])), ..Known::default() };
                    let (op, bound) = Decay::fitted(&known).unwrap();
                    let pieces = pieces_of(&op, bits);
                    let (first, last) = ((-7.25 * input).ceil() as i64, ((largest - 7.25) * input) as i64);
                    let step = if bits <= 16 { 1 } else { 37 };
                    let off =
                        |x: i64| (value(&pieces, x) - (-(x as f64 / input + 7.25)).exp() * scales[1]).abs();
                    let worst = (first..=last).step_by(step).map(off).fold(0.0, f64::max);
                    println!(
                        "up to {largest}, {bits} bits, {part}: {} of {} bits, {worst:.2} units, 2^{:.1}",
                        op.describe(),
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
                    if op.is::<Level>() {
                        all_level += 1;
                        level_outside(&pieces, (-7.25 * input).floor() as i64, 2.0 * most);
                    }
                }
            }
        }
        assert!(all_level > 60, "{all_level}");
    }

    /// For a piece below the first it stays what it is there; beyond all pieces it is nothing but what lines are off by, on either side.
    fn level_outside(pieces: &Pieces, first: i64, near: f64) {
        let width = 1i64 << pieces.low;
        let [below, top] = [width - 1, 0].map(|below| value(pieces, first - below));
        assert!((below - top).abs() <= near, "{below}, {top}");
        let end = pieces.begin() + (1 << pieces.domain_bits());
        let outside = value(pieces, end);
        assert!(outside.abs() <= near, "{outside}");
        for x in [end + 1, end + width, 8 * end.abs(), pieces.begin() - 1, pieces.begin() + width] {
            assert_eq!(value(pieces, x), outside, "{x}");
        }
        // Lines meet: nowhere do they jump by more than the steepest falls.
        let steepest = pieces.slopes.iter().map(|s| s.abs()).max().unwrap() as f64;
        let steepest = steepest / f64::from(pieces.shift).exp2();
        for border in (3..=pieces.offsets.len() as i64).map(|piece| pieces.begin() + piece * width) {
            let jump = (value(pieces, border) - value(pieces, border - 1)).abs();
            assert!(jump <= steepest, "{border}: {jump}, {steepest}");
        }
    }

    /// Coarse lines of 20 bits: as near as is asked for, but never farther than an 80th, where t is; and no more pieces, 64 at most from six bits on.
    #[test]
    fn a_coarse_decay_is_near_enough() {
        let (bits, one) = (20, f64::from(1 << 16));
        for (largest, part) in [(8.0f64, 1.0), (60.0, 1.0), (60.0, 0.9), (60.0, 0.7), (60.0, 0.51)] {
            let input = part * (one / largest).log2().floor().exp2();
            let scales = [input, one];
            let known = Known { bits, scales: Some((&scales[..1], one)), ..Known::default() };
            let fine = pieces_of(&Decay::fitted(&known).unwrap().0, bits).offsets.len();
            for coarse in 1..=8 {
                let (op, error) = Decay::fitted(&Known { coarse, ..known }).unwrap();
                let pieces = pieces_of(&op, bits);
                let most = (5.0 * f64::from(1 << coarse)).min(one / 80.0).max(one / 4096.0);
                let count = pieces.offsets.len();
                let few = if coarse < 6 { fine } else { 64 };
                assert!(error <= most && count <= few, "{coarse}: {count} of {fine}");
                let (first, last) = ((-7.25 * input).ceil() as i64, ((largest - 7.25) * input) as i64);
                let off = |x: i64| (value(&pieces, x) - (-(x as f64 / input + 7.25)).exp() * one).abs();
                let worst = (first..=last).step_by(7).map(off).fold(0.0, f64::max);
                println!("up to {largest}, {part}, 2^{coarse}: {}, {worst:.1} of {most:.1}", op.describe());
                assert!(worst <= error * 1.02 + 0.05, "up to {largest}, {coarse}: {worst}, {error}");
                level_outside(&pieces, (-7.25 * input).floor() as i64, 2.0 * most);
            }
        }
    }

    /// Weights that a softmax makes of the coarsest lines, of 197 values: how much of all weight is at a wrong place. Where all values are alike
    /// next to nothing is; where one is far above all others, whose weights are then a few steps each, some.
    #[test]
    fn a_softmax_of_coarse_lines_is_near() {
        let (bits, one) = (18, f64::from(1 << 13));
        for input in [512.0, 670.0, 850.0, 1000.0] {
            let scales = [input, one];
            let known = Known { bits, scales: Some((&scales[..1], one)), coarse: 8, ..Known::default() };
            let pieces = pieces_of(&Decay::fitted(&known).unwrap().0, bits);
            let moved = |ts: &[f64]| {
                let weights = |of: &dyn Fn(f64) -> f64| {
                    let all: Vec<f64> = ts.iter().map(|&t| of(t)).collect();
                    let sum: f64 = all.iter().sum();
                    all.into_iter().map(move |e| e / sum).collect::<Vec<_>>()
                };
                let exact = weights(&|t| (-t).exp());
                let lines = weights(&|t| value(&pieces, ((t - 7.25) * input).round() as i64));
                exact.iter().zip(&lines).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
            };
            // The largest, and 196 spread evenly.
            let spread = |from: f64, to: f64| -> Vec<f64> {
                let rest = (0..196).map(|i| from + (to - from) * f64::from(i) / 195.0);
                std::iter::once(0.0).chain(rest).collect()
            };
            let far: Vec<f64> =
                (2..14).map(|i| f64::from(i) / 2.0).map(|t| moved(&spread(t, t + 2.0))).collect();
            let worst = far.iter().copied().fold(0.0, f64::max);
            let [flat, wide, masked] =
                [(0.0, 0.5), (0.0, 6.0), (50.0, 60.0)].map(|(a, b)| moved(&spread(a, b)));
            println!("{input}: flat {flat:.5}, wide {wide:.5}, far {far:.4?}, beyond all pieces {masked:.5}");
            assert!(flat < 0.004 && wide < 0.01 && worst < 0.12 && masked < 1e-3, "{input}");
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
