//! Lines for a function: the integers of a curve.
//!
//! Values x of n bits with the scale S stand for x / S. Everything that may come is below 2^(n-2) (`quantise`), so the pieces are of n - 1
//! bits: what is beyond is out of range for other operators, too. There are as few pieces as keep the lines within [`MOST`] units
//! of the function, but at most 2^9 and at least 2^4.
//!
//! *A line.* Its slope is that from one end of the piece to the other, rounded to 2^-(low+1): over the half of a piece that is an
//! eighth of a unit. Its offset puts as much of the function above it as below, rounded to a quarter: an eighth again.
//!
//! *What is too large for an activation* is cut off at ±2^(n-2), so that a curve that grows fast (a cube) saturates where values are
//! beyond all that may come. In the piece where that begins a line is no better than it can be.

use super::Curve;
use super::function::Function;

/// How far lines may be from the function, in units of the value's last place, where more pieces would help. A rounding of the
/// value, of less than one guard bit, comes on top.
pub(crate) const MOST: f64 = 1.25;

/// The numbers of pieces that are tried, as powers of two.
const TRIED: std::ops::RangeInclusive<u32> = 4..=9;

/// How many places of a piece are looked at.
const PLACES: i64 = 32;

/// Units in which offsets are rounded: 2^-2 of the last place.
const FINER: u32 = 2;

/// Lines for a function of integers.
pub(super) struct Fit<'a> {
    /// What is made of x in a piece that begins there, in units of the value, and whether lines need not be near it.
    pub(super) at: &'a dyn Fn(f64, f64) -> (f64, bool),
    /// d: the pieces are of integers of so many bits.
    pub(super) domain: u32,
    /// Lines are so many bits finer than is usual. Where it is any, they are near the function between integers too, where values with
    /// guard bits are.
    pub(super) more: u32,
}

impl Fit<'_> {
    /// 2^`log2` lines, and how far they are from the function.
    pub(super) fn lines(&self, log2: u32) -> (Curve, f64) {
        let low = self.domain - log2;
        let (shift, width) = (low + 1 + self.more, 1i64 << low);
        let unit = f64::from(shift).exp2();
        let offset_shift = shift.saturating_sub(FINER + self.more);
        let step = f64::from(offset_shift).exp2();
        let (mut offsets, mut slopes) = (Vec::with_capacity(1 << log2), Vec::with_capacity(1 << log2));
        let mut worst = 0f64;
        for piece in -(1i64 << (log2 - 1))..1 << (log2 - 1) {
            let begin = (piece << low) as f64;
            let mut cut = false;
            let place = |i: i64| match self.more {
                0 => ((width - 1) * i / PLACES) as f64,
                _ => (width * i) as f64 / PLACES as f64,
            };
            let values: Vec<(f64, f64)> = (0..=PLACES)
                .map(place)
                .map(|u| {
                    let (y, beyond) = (self.at)(begin + u, begin);
                    cut |= beyond;
                    (u, y * unit)
                })
                .collect();
            let rise = values[values.len() - 1].1 - values[0].1;
            let slope = (rise / place(PLACES).max(1.0)).round();
            let rest = || values.iter().map(|(u, y)| y - slope * u);
            let (least, most) =
                (rest().fold(f64::INFINITY, f64::min), rest().fold(f64::NEG_INFINITY, f64::max));
            let offset = ((least + most) / 2.0 / step).round();
            if !cut {
                worst = worst.max((most - offset * step).max(offset * step - least) / unit);
            }
            offsets.push(offset as i64);
            slopes.push(slope as i64);
        }
        (Curve { low, offset_shift, shift, offsets, slopes }, worst)
    }
}

/// What a function makes of x between two scales, in units of n = `bits` bits, and whether that was cut off.
fn between(function: &Function, scales: [f64; 2], bits: u32, x: f64) -> (f64, bool) {
    let most = f64::from(bits - 2).exp2();
    let y = function.at(x / scales[0]) * scales[1];
    // (Where no number comes of it, it is zero.)
    if y.is_nan() { (0.0, true) } else { (y.clamp(-most, most), y.abs() > most) }
}

impl Curve {
    /// `function` of values of n = `bits` bits (at least 8) at the scale `scales[0]`, made at `scales[1]`; and how far its lines are
    /// from it, in units of the value.
    pub fn fitted(function: &Function, scales: [f64; 2], bits: u32) -> (Curve, f64) {
        let at = |x: f64, _: f64| between(function, scales, bits, x);
        let fit = Fit { at: &at, domain: bits - 1, more: 0 };
        let mut best: Option<(Curve, f64)> = None;
        for log2 in TRIED.take_while(|log2| log2 + 2 <= bits) {
            let (curve, error) = fit.lines(log2);
            // (More pieces that do not help are not worth their bytes.)
            if best.as_ref().is_none_or(|(_, least)| error < *least) {
                best = Some((curve, error));
            }
            if best.as_ref().is_some_and(|(_, error)| *error <= MOST) {
                break;
            }
        }
        best.expect("at least one number of pieces is tried")
    }
}

#[cfg(test)]
mod tests {
    use super::super::function::Primitive;
    use super::*;
    use crate::ops::operator::Operator;

    fn of(primitive: Primitive) -> Function {
        Function::Of(primitive, Box::new(Function::Value))
    }

    /// Every value of 16 bits against the function itself, at scales of values up to 4, 8 and 16 with headroom: inside n - 1
    /// bits the bound that `fitted` gives holds, and it is within two units. Tails included. Where a curve bends in a small part
    /// of its inputs only, 512 pieces are not enough: a tanh of values up to 8 is off by three
    /// units, of which 4,096 are one.
    #[test]
    fn every_value_of_16_bits_is_within_two_units() {
        const BITS: u32 = 16;
        let exponential = |alpha, beta, gamma| of(Primitive::Exponential { alpha, beta, gamma });
        // (name, function, largest input seen, largest value seen)
        for (name, function, bounds) in [
            ("SiLU", Function::swish(1.0), vec![(4.0, 4.0), (8.0, 8.0), (16.0, 16.0)]),
            ("GELU", Function::gelu(false), vec![(3.0, 3.0), (6.0, 6.0), (12.0, 12.0)]),
            ("GELU by tanh", Function::gelu(true), vec![(3.0, 3.0), (6.0, 6.0), (12.0, 12.0)]),
            ("Mish", Function::mish(), vec![(4.0, 4.0), (8.0, 8.0)]),
            ("sigmoid", of(Primitive::Sigmoid), vec![(4.0, 1.0), (8.0, 1.0), (16.0, 1.0)]),
            ("tanh", of(Primitive::Tanh), vec![(2.0, 1.0), (4.0, 1.0), (8.0, 1.0)]),
            ("erf", of(Primitive::Erf), vec![(2.0, 1.0), (4.0, 1.0)]),
            ("softplus", of(Primitive::Softplus), vec![(8.0, 8.0), (16.0, 16.0)]),
            ("softsign", of(Primitive::Softsign), vec![(2.0, 0.67), (4.0, 0.8)]),
            ("ELU", exponential(1.0, 1.0, 1.0), vec![(4.0, 4.0), (8.0, 8.0)]),
            ("SELU", exponential(1.673_263_2, 1.0, 1.050_701), vec![(4.0, 4.2), (8.0, 8.4)]),
            ("CELU", exponential(0.5, 0.5, 1.0), vec![(4.0, 4.0), (8.0, 8.0)]),
        ] {
            for (x, y) in bounds {
                let scales = [x, y].map(|seen| f64::from(1 << (BITS - 4)) / seen);
                let (curve, bound) = Curve::fitted(&function, scales, BITS);
                curve.shape(&[[1, 1, 1]], [1, 1, 1]).unwrap();
                curve.check(BITS).unwrap();
                let pieces = curve.pieces();
                assert_eq!(pieces.domain_bits(), BITS - 1);
                let most = f64::from(1 << (BITS - 2));
                let worst = (-(1i64 << (BITS - 2))..1 << (BITS - 2))
                    .map(|x| (x, function.at(x as f64 / scales[0]) * scales[1]))
                    .filter(|(_, want)| want.abs() < most * 0.99)
                    .map(|(x, want)| (pieces.line(x) as f64 / f64::from(pieces.shift).exp2() - want).abs())
                    .fold(0.0, f64::max);
                println!("{name} up to {x}: {} pieces, {worst:.2} units ({bound:.2})", curve.offsets.len());
                let most = match (name, x as u32) {
                    ("tanh", 8) => 3.1,
                    ("softsign", 4) => 2.4,
                    (_, _) => 2.0,
                };
                assert!(worst <= bound + 0.02 && worst <= most, "{name} up to {x}: {worst}, {bound}");
            }
        }
    }

    /// The same lines with guard bits: the same real numbers.
    #[test]
    fn guard_bits_change_no_line() {
        let (curve, _) = Curve::fitted(&Function::swish(1.0), [400.0, 500.0], 12);
        for by in [2, 8, 12] {
            let mut guarded = curve.clone();
            guarded.rescale(by).unwrap();
            guarded.check(12 + by as u32).unwrap();
            for x in -1024i64..1024 {
                assert_eq!(guarded.pieces().line(x << by), curve.pieces().line(x) << by);
            }
            guarded.rescale(-by).unwrap();
            assert_eq!(guarded, curve);
        }
        assert!(curve.clone().rescale(-12).is_err());
    }

    /// As few pieces as do, and whatever the scales, coefficients that are in range.
    #[test]
    fn coefficients_are_in_range_at_any_scale() {
        for bits in 8..=24 {
            for (input, own) in [(1e-3, 1e3), (1e6, 1e-3), (0.1, 0.1), (4096.0, 4096.0), (1e-9, 1e9)] {
                for function in [Function::swish(1.0), of(Primitive::Cube), of(Primitive::Sigmoid)] {
                    let (curve, error) = Curve::fitted(&function, [input, own], bits);
                    assert!(error.is_finite());
                    curve.shape(&[[1, 1, 1]], [1, 1, 1]).unwrap();
                    curve.check(bits).unwrap();
                    let mut guarded = curve.clone();
                    guarded.rescale(12).unwrap();
                    guarded.shape(&[[1, 1, 1]], [1, 1, 1]).unwrap();
                    guarded.check(bits + 12).unwrap();
                }
            }
        }
    }
}
