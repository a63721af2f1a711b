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
//!
//! *Where a curve bends in a small part of its range*, as a SiLU of values up to 200 does, 512 pieces are too wide there, or more than are
//! needed. Then its pieces cover that part only, and beyond them their first and last lines go on ([`Straight`]): level below, and above
//! with a whole slope, of which zero is one. The first two pieces have the one line and the last two the other, for the protocol's sake. The
//! part is the smallest power of two outside of which these lines are within [`MOST_BEYOND`] units of the curve.

use super::function::Function;
use super::{Curve, InPieces, Straight};

/// How far lines may be from the function, in units of the value's last place, where more pieces would help. A rounding of the
/// value, of less than one guard bit, comes on top.
pub(crate) const MOST: f64 = 1.25;

/// How far lines that go on may be from the function, beyond the pieces and in two at each end: the rest is for what is in between.
pub(super) const MOST_BEYOND: f64 = 0.75;

/// The steepest slope of lines that go on.
const MOST_SLOPE: f64 = 256.0;

/// What lines may be off by between the places that are looked at, in units.
pub(super) const NOT_MISSED: f64 = 0.25;

/// From so many pieces on lines that go on are tried: the place of 512 takes more bytes than they do.
pub(super) const MANY: usize = 512;

/// The numbers of pieces that are tried, as powers of two.
pub(super) const TRIED: std::ops::RangeInclusive<u32> = 4..=9;

/// How many places of a piece are looked at.
pub(super) const PLACES: i64 = 32;

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
        let grid = Grid::new(self.domain, log2, self.more);
        let (offsets, slopes, worst) = self.pieces(-(1 << (log2 - 1))..1 << (log2 - 1), &grid);
        let Grid { low, shift, offset_shift } = grid;
        (Curve { low, offset_shift, shift, offsets, slopes }, worst)
    }

    /// The lines of some pieces, and how far they are from the function.
    fn pieces(&self, pieces: std::ops::Range<i64>, grid: &Grid) -> (Vec<i64>, Vec<i64>, f64) {
        let Grid { low, shift, offset_shift } = *grid;
        let (unit, step, width) = (f64::from(shift).exp2(), f64::from(offset_shift).exp2(), 1i64 << low);
        let (mut offsets, mut slopes) = (Vec::new(), Vec::new());
        let mut worst = 0f64;
        for piece in pieces {
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
        (offsets, slopes, worst)
    }
}

/// In which units lines are.
struct Grid {
    low: u32,
    shift: u32,
    offset_shift: u32,
}

impl Grid {
    /// Of 2^`log2` pieces of `domain` bits.
    fn new(domain: u32, log2: u32, more: u32) -> Self {
        let low = domain - log2;
        let shift = low + 1 + more;
        Self { low, shift, offset_shift: shift.saturating_sub(FINER + more) }
    }
}

/// What a function makes of x between two scales, in units of n = `bits` bits, and whether that was cut off.
pub(super) fn between(function: &Function, scales: [f64; 2], bits: u32, x: f64) -> (f64, bool) {
    let most = f64::from(bits - 2).exp2();
    let y = function.at(x / scales[0]) * scales[1];
    // (Where no number comes of it, it is zero.)
    if y.is_nan() { (0.0, true) } else { (y.clamp(-most, most), y.abs() > most) }
}

impl Curve {
    /// `function` of values of n = `bits` bits (at least 8) at the scale `scales[0]`, made at `scales[1]`; and how far its lines are
    /// from it, in units of the value.
    pub fn fitted(function: &Function, scales: [f64; 2], bits: u32) -> (Curve, f64) {
        Self::of_narrow(function, scales, [bits; 2])
    }

    /// The same of values that have fewer bits, the second number.
    pub(super) fn of_narrow(function: &Function, scales: [f64; 2], [made, bits]: [u32; 2]) -> (Curve, f64) {
        let at = |x: f64, _: f64| between(function, scales, made, x);
        let fit = Fit { at: &at, domain: bits - 1, more: 0 };
        let tried = TRIED.take_while(|log2| log2 + 2 <= bits).map(|log2| {
            let (curve, error) = fit.lines(log2);
            let missed = missed(&curve, &|x| at(x, 0.0), f64::from(bits - 2).exp2());
            (curve, if missed > error + NOT_MISSED { missed } else { error })
        });
        best(tried).expect("at least one number of pieces is tried")
    }
}

/// Places that are looked at for each doubling of x.
const EACH: u32 = 64;

/// How far lines are from a function over all up to `most` on both sides, looked at more closely the nearer to zero: in few pieces of a
/// wide range all that bends may be between two of a piece's places. In units.
pub(super) fn missed(curve: &Curve, at: At<'_>, most: f64) -> f64 {
    let (pieces, unit) = (curve.pieces(), f64::from(curve.shift).exp2());
    let sizes = (0..=most.log2() as u32 * EACH)
        .map(|i| (f64::from(i) / f64::from(EACH)).exp2().round().min(most - 1.0));
    let off = |x: f64| {
        let (y, cut) = at(x);
        if cut { 0.0 } else { (pieces.line(x as i64) as f64 / unit - y).abs() }
    };
    sizes.map(|x| off(x).max(off(-x))).fold(0.0, f64::max)
}

/// The first that is within [`MOST`] units, or else the nearest: more pieces that do not help are not worth their bytes.
fn best<T>(tried: impl Iterator<Item = (T, f64)>) -> Option<(T, f64)> {
    let mut best: Option<(T, f64)> = None;
    for (lines, error) in tried {
        if best.as_ref().is_none_or(|(_, least)| error < *least) {
            best = Some((lines, error));
        }
        if error <= MOST {
            break;
        }
    }
    best
}

/// What is made of x in units of the value, and whether that was cut off.
pub(super) type At<'a> = &'a dyn Fn(f64) -> (f64, bool);

/// A line that goes on: y = slope·x + offset, and how far it is from the function, in units.
pub(super) struct End {
    pub(super) slope: f64,
    pub(super) offset: f64,
    pub(super) error: f64,
}

impl End {
    /// With this slope, over what is between `from` and `to` (on one side of zero); none if it is farther than `beyond` units from the
    /// function, or if all of that is cut off.
    pub(super) fn within(at: At<'_>, slope: f64, from: f64, to: f64, beyond: f64) -> Option<Self> {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        let doublings = (to / from).log2();
        for i in 0..=(doublings * f64::from(EACH)).ceil() as u32 {
            let x = from * (f64::from(i) / f64::from(EACH)).exp2().min(to / from);
            let (y, cut) = at(x.round());
            if !cut {
                (least, most) = (least.min(y - slope * x.round()), most.max(y - slope * x.round()));
            }
        }
        let (offset, error) = ((least + most) / 2.0, (most - least) / 2.0);
        // (Less than none, of nothing.)
        (0.0..=beyond).contains(&error).then_some(Self { slope, offset, error })
    }
}

impl Straight {
    /// As [`Curve::fitted`], in as few pieces as keep the lines within [`MOST`] units, or else in those that are nearest; `None` if the
    /// function is straight nowhere.
    pub fn fitted(function: &Function, scales: [f64; 2], bits: u32) -> Option<(Straight, f64)> {
        Self::of_narrow(function, scales, [bits; 2])
    }

    /// The same of values that have fewer bits, the second number.
    pub(super) fn of_narrow(
        function: &Function,
        scales: [f64; 2],
        [made, bits]: [u32; 2],
    ) -> Option<(Straight, f64)> {
        let at = |x: f64| between(function, scales, made, x);
        let slope = Self::slope_above(function, scales, bits)?;
        best(TRIED.filter_map(|log2| Self::in_pieces([&at; 2], slope, log2, bits)))
    }

    /// The whole slope of a line that goes on above; `None` if there is none.
    pub(super) fn slope_above(function: &Function, scales: [f64; 2], bits: u32) -> Option<f64> {
        let most = f64::from(bits - 2).exp2();
        // It is that far out.
        let [near, far] = [0.125, 0.25].map(|part| function.at(most * part / scales[0]) * scales[1]);
        let slope = ((far - near) / (most * 0.125)).round();
        (slope.abs() <= MOST_SLOPE).then_some(slope)
    }

    /// As [`Straight::of_narrow`] for values above `least` alone of a function that is level beyond its pieces.
    pub(super) fn above(
        least: f64,
        function: &Function,
        scales: [f64; 2],
        [made, bits]: [u32; 2],
    ) -> Option<(Straight, f64)> {
        let at = |x: f64| between(function, scales, made, x);
        let inside = |x: f64| (at(x).0, x < least * scales[0]);
        let most = f64::from(bits - 2).exp2();
        best(TRIED.filter_map(|log2| {
            let (straight, _) = Self::in_pieces([&at, &inside], 0.0, log2, bits)?;
            let pieces = straight.pieces();
            let unit = f64::from(pieces.shift).exp2();
            let off = |x: f64| (pieces.line(x as i64) as f64 / unit - at(x).0).abs();
            // All places of pieces, and those beyond, each a 64th farther.
            let end = f64::from(pieces.domain_bits() - 1).exp2();
            let step = (end / f64::from(1 << (log2 - 1)) / PLACES as f64).max(1.0);
            let first = (least * scales[0] / step).ceil();
            let inner = (0..).map(|i| (first + f64::from(i)) * step).take_while(|x| *x < end);
            let beyond = (0..).map(|i| end * (f64::from(i) / f64::from(EACH)).exp2());
            let places = inner.chain(beyond.take_while(|x| *x < most));
            Some((straight, places.map(|x| off(x.floor())).fold(0.0, f64::max)))
        }))
    }

    /// In 2^`log2` pieces, over the smallest domain outside of which straight lines do: near one function beyond, and near another inside.
    fn in_pieces([at, inside]: [At<'_>; 2], slope: f64, log2: u32, bits: u32) -> Option<(Straight, f64)> {
        let most = f64::from(bits - 2).exp2();
        (log2 + 1..=bits - 2).find_map(|domain| {
            // Where the first two pieces end, and the last two begin.
            let inner = f64::from(domain - 1).exp2() - f64::from(domain - log2 + 1).exp2();
            let below = End::within(at, 0.0, -inner, -most, MOST_BEYOND)?;
            let above = End::within(at, slope, inner, most, MOST_BEYOND)?;
            Some(Self::between([below, above], inside, domain, log2))
        })
    }

    fn between(ends: [End; 2], at: At<'_>, domain: u32, log2: u32) -> (Straight, f64) {
        let grid = Grid::new(domain, log2, 0);
        let half = 1i64 << (log2 - 1);
        let fit = Fit { at: &|x, _| at(x), domain, more: 0 };
        let (mut offsets, mut slopes, inner) = fit.pieces(2 - half..half - 2, &grid);
        let Grid { low, shift, offset_shift } = grid;
        let step = f64::from(shift - offset_shift).exp2();
        let [below, above] = ends.map(|End { slope, offset, error }| {
            let offset =
                move |piece: i64| ((offset * step).round() + slope * step * (piece << low) as f64) as i64;
            // (Rounding it costs as much.)
            ((slope as i64) << shift, offset, error + 0.5 / step)
        });
        slopes.splice(0..0, [below.0; 2]);
        slopes.extend([above.0; 2]);
        offsets.splice(0..0, [-half, 1 - half].map(&below.1));
        offsets.extend([half - 2, half - 1].map(&above.1));
        let error = inner.max(below.2).max(above.2);
        (Straight { low, offset_shift, shift, offsets, slopes }, error)
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

    /// Values that go far beyond where a curve bends, every one of 16 bits, with headroom and outside of all that may come, and many of 20 and
    /// of 24: lines that go on are within two units with few pieces, where pieces over all values are off by up to hundreds.
    #[test]
    fn curves_of_wide_ranges_are_within_two_units() {
        // (function, its value for large inputs, largest inputs seen)
        let curves = [
            ("SiLU", Function::swish(1.0), true),
            ("GELU", Function::gelu(false), true),
            ("Mish", Function::mish(), true),
            ("softplus", of(Primitive::Softplus), true),
            ("HardSwish", Function::hard_swish(), true),
            ("ELU", of(Primitive::Exponential { alpha: 1.0, beta: 1.0, gamma: 1.0 }), true),
            ("sigmoid", of(Primitive::Sigmoid), false),
            ("tanh", of(Primitive::Tanh), false),
        ];
        for (name, function, grows) in curves {
            for seen in [20.0, 50.0, 200.0, 1000.0] {
                for bits in [16u32, 20, 24] {
                    let top = f64::from(1 << (bits - 4));
                    // Powers of two, as calibration takes them; what grows may go half as far as x.
                    let input = (top / seen).log2().floor().exp2();
                    let scales = [input, if grows { 2.0 * input } else { top }];
                    let (curve, without) = Curve::fitted(&function, scales, bits);
                    let (straight, bound) = Straight::fitted(&function, scales, bits).unwrap();
                    straight.shape(&[[1, 1, 1]], [1, 1, 1]).unwrap();
                    straight.check(bits).unwrap();
                    let pieces = straight.pieces();
                    let most = 1i64 << (bits - 2);
                    let off = |x: i64| {
                        let want = function.at(x as f64 / scales[0]) * scales[1];
                        let far = want.abs() > most as f64 * 0.99;
                        let got = pieces.line(x) as f64 / f64::from(pieces.shift).exp2();
                        if far { 0.0 } else { (got - want).abs() }
                    };
                    let step = if bits == 16 { 1 } else { 17 };
                    let worst = (-most..most).step_by(step).map(off).fold(0.0, f64::max);
                    println!(
                        "{name} up to {seen}, {bits} bits: {} pieces over {} bits, {worst:.2} units ({bound:.2}); else {} pieces, {without:.1}",
                        straight.offsets.len(),
                        pieces.domain_bits(),
                        curve.offsets.len(),
                    );
                    assert!(worst <= bound + 0.02, "{name} up to {seen}, {bits} bits: {worst}, {bound}");
                    // (Of 24 bits, a million units are what was seen.)
                    let most = [2.0, 4.0, 60.0][(bits as usize - 16) / 4];
                    assert!(worst <= most, "{name} up to {seen}, {bits} bits: {worst}");
                }
            }
        }
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
            ("HardSwish", Function::hard_swish(), vec![(4.0, 4.0), (8.0, 8.0), (16.0, 16.0)]),
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
            for (input, own) in [
                (1e-3, 1e3),
                (1e6, 1e-3),
                (0.1, 0.1),
                (4096.0, 4096.0),
                (1e-9, 1e9),
                (64.0, 16384.0),
                (16.0, 1024.0),
            ] {
                for function in [Function::swish(1.0), of(Primitive::Cube), of(Primitive::Sigmoid)] {
                    if let Some((straight, error)) = Straight::fitted(&function, [input, own], bits) {
                        assert!(error.is_finite());
                        straight.shape(&[[1, 1, 1]], [1, 1, 1]).unwrap();
                        straight.check(bits).unwrap();
                    }
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
