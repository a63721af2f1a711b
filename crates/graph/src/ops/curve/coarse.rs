//! Lines no nearer to a function than is asked for: of all that are near enough, those that take the fewest bytes.
//!
//! A curve's value may need fewer bits than others have: `fit.rs` keeps lines within [`MOST`](super::fit::MOST) units of the
//! values' last place, and here they are within 2^c times as much, c = [`Known::coarse`]. So there are fewer pieces, and slopes and offsets
//! of fewer bits. x keeps all its bits, and so does the value: what a protocol rounds stays as small as it is
//! (`docs/attacks.md`, *Rounding coins*).
//!
//! *Lines that meet.* Where steps are as coarse as that, a value at the border of two pieces must not jump by one. So the line of a piece goes
//! from the value at one end to that at the other, and both are whole numbers of r = 2^(low − shift) units:
//!
//! ```text
//! offset_j = Y_j in units of 2^low,   slope_j = Y_(j+1) − Y_j,   y = (2^low·Y_j + slope_j·u) / 2^shift
//! ```
//!
//! Y_j is f at that place, less a sixteenth of its second difference, rounded: then as much of the line is above f as below it.
//!
//! *Which.* Of 16 to 512 pieces, over all values or with straight ends, each with the largest r that keeps them near enough, those whose
//! protocol takes the fewest bytes, a correlation among them.

use std::sync::Arc;

use jaguar_mpc::semantics::Pieces;
use jaguar_mpc::{Cost, CurveParams, Elementwise, Nonlinear};

use super::Lines;
use super::fit::{At, End, NOT_MISSED, PLACES, TRIED, missed};
use crate::network::{self, DEFAULT_GUARD_BITS};
use crate::ops::operator::Numbered;

/// Bytes that making a correlation takes, about.
const CORRELATION: f64 = 0.11;

/// So many curves are counted together: no plane of bits is filled up.
const COUNTED: usize = 512;

/// What of the units that lines may be off by is for those that go on.
const BEYOND: f64 = 0.6;

/// r is at least 2^-`FINEST` units.
const FINEST: i32 = 4;

/// What is to be found.
pub(super) struct Sought<'a> {
    /// What is made of x, in units, and whether that was cut off.
    pub(super) at: At<'a>,
    /// n.
    pub(super) bits: u32,
    /// Lines may be off by so many units.
    pub(super) most: f64,
    /// So many are for those that go on; `None` if that is as much as others leave.
    pub(super) beyond: Option<f64>,
    /// x is nowhere below.
    pub(super) least: f64,
    /// The slope beyond the pieces, where that is a whole number.
    pub(super) slope: Option<f64>,
}

/// Lines, how far they are from the function, and what they take.
struct Found {
    op: network::Op,
    error: f64,
    bytes: f64,
}

impl Sought<'_> {
    /// The cheapest lines that are near enough, and how far they are from the function; `None` if none are.
    pub(super) fn cheapest(&self) -> Option<(network::Op, f64)> {
        let straight = TRIED.filter_map(|log2| self.straight(log2));
        let whole = TRIED.take_while(|log2| log2 + 2 <= self.bits).filter_map(|log2| {
            let samples = Samples::new(self, self.bits - 1, log2);
            let (nodes, error) = self.coarsest(&samples, None)?;
            let missed = missed(&nodes.lines(), self.at, f64::from(self.bits - 2).exp2());
            let error = if missed > error + NOT_MISSED { missed } else { error };
            (error <= self.most).then(|| self.found::<false>(&nodes, error)).flatten()
        });
        // (More pieces than twice as many as do cost more.)
        let found = straight.take(2).chain(whole.take(2)).min_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
        Some((found.op, found.error))
    }

    /// In 2^`log2` pieces, over the smallest domain outside of which straight lines do.
    fn straight(&self, log2: u32) -> Option<Found> {
        let (slope, most) = (self.slope?, f64::from(self.bits - 2).exp2());
        let beyond = self.beyond.unwrap_or(BEYOND * self.most);
        (log2 + 1..=self.bits - 2).find_map(|domain| {
            let inner = f64::from(domain - 1).exp2() - f64::from(domain - log2 + 1).exp2();
            let ends = [
                End::within(self.at, 0.0, -inner, -most, beyond)?,
                End::within(self.at, slope, inner, most, beyond)?,
            ];
            let samples = Samples::new(self, domain, log2);
            let (nodes, error) = self.coarsest(&samples, Some(&ends))?;
            self.found::<true>(&nodes, error)
        })
    }

    /// With the largest r that keeps them near enough.
    fn coarsest(&self, samples: &Samples, ends: Option<&[End; 2]>) -> Option<(Nodes, f64)> {
        let largest = (samples.low as i32 - 1).min(self.most.log2() as i32 + 3);
        (-FINEST..=largest).rev().find_map(|log2| {
            let nodes = samples.nodes(log2, ends);
            let error = samples.off(&nodes, ends);
            (error <= self.most).then_some((nodes, error))
        })
    }

    fn found<const ON: bool>(&self, nodes: &Nodes, error: f64) -> Option<Found>
    where
        Lines<ON>: Numbered,
    {
        let lines: Lines<ON> = nodes.lines();
        let pieces = lines.pieces();
        pieces.check().ok()?;
        let bytes = bytes(pieces, self.bits + DEFAULT_GUARD_BITS)?;
        Some(Found { op: network::Op::new(lines), error, bytes })
    }
}

/// What a value takes, of `bits` bits.
fn bytes(pieces: Pieces, bits: u32) -> Option<f64> {
    let by = DEFAULT_GUARD_BITS;
    let pieces = Pieces { low: pieces.low + by, offset_shift: pieces.offset_shift + by, ..pieces };
    let params = CurveParams { bits, out_bits: bits, digit: 4, pieces: Arc::new(pieces) };
    params.check().ok()?;
    Some(weighed(&Elementwise { count: COUNTED, params }.cost()) / COUNTED as f64)
}

/// The bytes that a protocol takes, with those of its correlations.
pub(crate) fn weighed(cost: &Cost) -> f64 {
    let sent = cost.up + cost.down + cost.prepare_up + cost.prepare_down;
    let correlations = cost.vectors_from_server + cost.bits_from_server + cost.bits_from_client;
    sent as f64 + CORRELATION * correlations as f64
}

/// A function at the places of pieces that are looked at.
struct Samples {
    low: u32,
    /// From the lowest piece's lower end to the highest one's upper, [`PLACES`] for each piece.
    at: Vec<(f64, bool)>,
    /// The first that counts.
    first: usize,
}

/// Values between pieces, in whole numbers of r.
struct Nodes {
    low: u32,
    /// log2(r).
    log2: i32,
    /// One more than there are pieces.
    values: Vec<i64>,
}

impl Samples {
    fn new(of: &Sought<'_>, domain: u32, log2: u32) -> Self {
        let low = domain - log2;
        let (begin, step) = (-f64::from(domain - 1).exp2(), f64::from(low).exp2() / PLACES as f64);
        let places = PLACES as usize;
        let place = |i: usize| begin + step * i as f64;
        let at = (0..=places << log2).map(|i| (of.at)(place(i))).collect();
        let first = ((of.least - begin) / step).ceil().max(0.0) as usize;
        Self { low, at, first }
    }

    fn nodes(&self, log2: i32, ends: Option<&[End; 2]>) -> Nodes {
        let (r, places) = (f64::from(log2).exp2(), PLACES as usize);
        let count = self.at.len() / places;
        let at = |i: usize| self.at[i * places].0;
        let value = |i: usize| {
            let bend = if i == 0 || i == count { 0.0 } else { at(i - 1) - 2.0 * at(i) + at(i + 1) };
            ((at(i) - bend / 16.0) / r).round() as i64
        };
        let mut values: Vec<i64> = (0..=count).map(value).collect();
        if let Some([below, above]) = ends {
            let width = f64::from(self.low).exp2();
            values[..3].fill((below.offset / r).round() as i64);
            let rise = (above.slope * width / r).round() as i64;
            let last = (above.offset + above.slope * width * (count as f64 / 2.0 - 2.0)) / r;
            (0..3).for_each(|i| values[count - 2 + i] = last.round() as i64 + i as i64 * rise);
        }
        Nodes { low: self.low, log2, values }
    }

    /// By how much lines are off, in units.
    fn off(&self, nodes: &Nodes, ends: Option<&[End; 2]>) -> f64 {
        let (r, places) = (f64::from(nodes.log2).exp2(), PLACES as usize);
        let mut worst = 0f64;
        for (piece, pair) in nodes.values.windows(2).enumerate() {
            let own = &self.at[piece * places..=(piece + 1) * places];
            // (In the piece where a function is cut off no line is near.)
            if own.iter().any(|(_, cut)| *cut) {
                continue;
            }
            let [from, to] = [pair[0] as f64 * r, pair[1] as f64 * r];
            for (i, (y, _)) in own.iter().enumerate().skip(self.first.saturating_sub(piece * places)) {
                let line = from + (to - from) * i as f64 / places as f64;
                worst = worst.max((line - y).abs());
            }
        }
        // (Rounding the lines that go on costs half of r.)
        let on = ends.iter().flat_map(|ends| ends.iter()).map(|end| end.error + r / 2.0);
        on.fold(worst, f64::max)
    }
}

impl Nodes {
    fn lines<const ON: bool>(&self) -> Lines<ON> {
        let pieces = self.values.len() - 1;
        Lines {
            low: self.low,
            offset_shift: self.low,
            shift: (self.low as i32 - self.log2) as u32,
            offsets: self.values[..pieces].to_vec(),
            slopes: self.values.windows(2).map(|pair| pair[1] - pair[0]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::between;
    use super::super::function::{Function, Primitive};
    use super::*;
    use crate::ops::curve::{Curve, Straight};

    /// Whether the lines of pieces meet, those that go on among them.
    fn meet(pieces: &Pieces) -> bool {
        let begin = -(1i64 << (pieces.domain_bits() - 1));
        (1..pieces.offsets.len()).all(|piece| {
            let border = begin + ((piece as i64) << pieces.low);
            let before = pieces.line(border - 1) + i128::from(pieces.slopes[piece - 1]);
            pieces.line(border) == before
        })
    }

    fn pieces_of(op: &network::Op) -> Pieces {
        match op.downcast_ref::<Curve>() {
            Some(curve) => curve.pieces(),
            None => op.downcast_ref::<Straight>().expect("a curve").pieces(),
        }
    }

    /// Every value of 16 bits, and many of 20, of curves that go on and of one that does not, at scales of values up to 4 and 50: lines are
    /// within the units that were asked for, meet each other, have the same values with guard bits, and take fewer bytes the farther off they may be.
    #[test]
    fn lines_are_as_near_as_is_asked_for() {
        let of = |primitive| Function::Of(primitive, Box::new(Function::Value));
        let (mut ends, mut without) = (0, 0);
        for (name, function, grows) in [
            ("GELU", Function::gelu(false), true),
            ("SiLU", Function::swish(1.0), true),
            ("HardSwish", Function::hard_swish(), true),
            ("sigmoid", of(Primitive::Sigmoid), false),
            ("tanh", of(Primitive::Tanh), false),
            ("softsign", of(Primitive::Softsign), false),
        ] {
            for (seen, bits) in [(4.0, 16u32), (4.0, 20), (50.0, 16), (50.0, 20)] {
                let top = f64::from(1 << (bits - 4));
                let input = (top / seen).log2().floor().exp2();
                let scales = [input, if grows { input } else { top }];
                let at = |x: f64| between(&function, scales, bits, x);
                let slope = Straight::slope_above(&function, scales, bits);
                let mut last = f64::INFINITY;
                for coarse in [1, 3, 5] {
                    let most = 1.25 * f64::from(1 << coarse);
                    let sought =
                        Sought { at: &at, bits, most, beyond: None, least: f64::NEG_INFINITY, slope };
                    let Some((op, error)) = sought.cheapest() else { continue };
                    let pieces = pieces_of(&op);
                    op.check(bits).unwrap();
                    pieces.check().unwrap();
                    assert!(error <= most && meet(&pieces), "{name} up to {seen}, {bits} bits, {coarse}");
                    let unit = f64::from(pieces.shift).exp2();
                    let off = |x: i64| {
                        let (y, cut) = at(x as f64);
                        if cut { 0.0 } else { (pieces.line(x) as f64 / unit - y).abs() }
                    };
                    let end = 1i64 << (bits - 2);
                    let step = if bits == 16 { 1 } else { 17 };
                    // (Where a function is cut off, and in the piece where that begins, no line is near it.)
                    let width = 1i64 << pieces.low;
                    let whole = |x: i64| !at((x - width) as f64).1 && !at((x + width) as f64).1;
                    let worst = (-end..end).step_by(step).filter(|&x| whole(x)).map(off).fold(0.0, f64::max);
                    assert!(
                        worst <= error * 1.02 + 0.05,
                        "{name} up to {seen}, {bits} bits: {worst}, {error}"
                    );
                    let mut guarded = op.clone();
                    guarded.rescale(8).unwrap();
                    guarded.check(bits + 8).unwrap();
                    for x in (-end..end).step_by(97) {
                        assert_eq!(pieces_of(&guarded).line(x << 8), pieces.line(x) << 8);
                    }
                    let (on, takes) = (op.is::<Straight>(), bytes(pieces, bits + 8).unwrap());
                    println!(
                        "{name} up to {seen}, {bits} bits, 2^{coarse}: {}, {worst:.1}, {takes:.0} bytes",
                        op.describe()
                    );
                    assert!(takes <= last, "{name} up to {seen}, {bits} bits: {takes} bytes, and {last}");
                    last = takes;
                    ends += usize::from(on);
                    without += usize::from(!on);
                }
            }
        }
        assert!(ends > 20 && without > 3, "{ends}, {without}");
    }

    /// A GELU of 20 bits as near as one of 16 takes less than two thirds of the bytes of the one that is as near as its values can tell.
    #[test]
    fn coarse_lines_take_fewer_bytes() {
        let (bits, one) = (20, f64::from(1 << 14));
        let function = Function::gelu(false);
        let (fine, _) = Straight::fitted(&function, [one, one], bits).unwrap();
        let at = |x: f64| between(&function, [one, one], bits, x);
        let (most, slope) = (1.25 * 16.0, Some(1.0));
        let sought = Sought { at: &at, bits, most, beyond: None, least: f64::NEG_INFINITY, slope };
        let (coarse, _) = sought.cheapest().unwrap();
        let [fine, coarse] = [fine.pieces(), pieces_of(&coarse)].map(|p| bytes(p, bits + 8).unwrap());
        assert!(coarse < 0.66 * fine, "{coarse} of {fine}");
    }
}
