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
//! *What falls to nothing* ([`Falling`]: e^(−t) of t that is nowhere below zero) has its pieces where t is, and is level outside ([`Level`]). A line is off by a part of the
//! value there, below it at its ends and above it in the middle, so a sum over many t is nearer by far. Steps r are another matter: they are as
//! large where values are small. So r is bounded by itself, and what one node is rounded by goes to the next: over several pieces nothing is lost.
//!
//! *Which.* Of 16 to 512 pieces, over all values or with straight ends, each with the largest r that keeps them near enough, those whose
//! protocol takes the fewest bytes, a correlation among them.

use std::sync::Arc;

use jaguar_mpc::semantics::{Beyond, Pieces};
use jaguar_mpc::{Cost, CurveParams, Elementwise, Nonlinear};

use super::fit::{At, End, NOT_MISSED, PLACES, TRIED, missed};
use super::{Curve, InPieces, Level, Lines, made_bits};
use crate::network::{self, DEFAULT_GUARD_BITS};
use crate::ops::operator::Numbered;

/// Bytes that making a correlation takes, about.
const CORRELATION: f64 = 0.11;

/// So many curves are counted together, as a large layer has: no plane of bits is filled up, and sums are in rings of their own.
const COUNTED: usize = 1 << 16;

/// What of the units that lines may be off by is for those that go on.
const BEYOND: f64 = 0.6;

/// r is at least 2^-`FINEST` units.
const FINEST: i32 = 4;

/// What is to be found.
pub(super) struct Sought<'a> {
    /// What is made of x, in units, and whether that was cut off.
    pub(super) at: At<'a>,
    /// Of x: n, or fewer.
    pub(super) bits: u32,
    /// n.
    pub(super) made: u32,
    /// Lines may be off by so many units.
    pub(super) most: f64,
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
            let samples = Samples::around_zero(self.at, self.bits - 1, log2);
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
        let (slope, most, beyond) = (self.slope?, f64::from(self.bits - 2).exp2(), BEYOND * self.most);
        (log2 + 1..=self.bits - 2).find_map(|domain| {
            let inner = f64::from(domain - 1).exp2() - f64::from(domain - log2 + 1).exp2();
            let ends = [
                End::within(self.at, 0.0, -inner, -most, beyond)?,
                End::within(self.at, slope, inner, most, beyond)?,
            ];
            let samples = Samples::around_zero(self.at, domain, log2);
            let (nodes, error) = self.coarsest(&samples, Some(&ends))?;
            self.found::<true>(&nodes, error)
        })
    }

    /// With the largest r that keeps them near enough.
    fn coarsest(&self, samples: &Samples, ends: Option<&[End; 2]>) -> Option<(Nodes, f64)> {
        let largest = (samples.low as i32 - 1).min(self.most.log2() as i32 + 3);
        (-FINEST..=largest).rev().find_map(|log2| {
            let nodes = samples.nodes(log2, ends);
            // (Rounding the lines that go on costs half of r.)
            let on = ends.into_iter().flatten().map(|end| end.error + f64::from(log2 - 1).exp2());
            let error = on.fold(samples.off(&nodes, 0), f64::max);
            (error <= self.most).then_some((nodes, error))
        })
    }

    fn found<const ON: bool>(&self, nodes: &Nodes, error: f64) -> Option<Found>
    where
        Lines<ON>: Numbered,
    {
        Found::new(nodes.lines::<ON>(), error, [self.bits, self.made])
    }
}

impl Found {
    /// A value of n = `made` bits, made of one of `bits`; `None` if it cannot be.
    fn new(op: impl InPieces, error: f64, bits: [u32; 2]) -> Option<Self> {
        op.pieces().check().ok()?;
        let bytes = bytes(op.pieces(), bits.map(|bits| bits + DEFAULT_GUARD_BITS))?;
        Some(Self { op: network::Op::new(op), error, bytes })
    }
}

/// A function that falls to nothing, of values that are nowhere below `least`.
pub(super) struct Falling<'a> {
    /// What is made of x, in units, and whether that was cut off.
    pub(super) at: At<'a>,
    /// Of x: n, or fewer.
    pub(super) bits: u32,
    /// n.
    pub(super) made: u32,
    /// x is nowhere below.
    pub(super) least: f64,
    /// Lines may be off by so many units.
    pub(super) most: f64,
    /// r is so many units at most.
    pub(super) step: f64,
    /// Where all is level that may be off by so many units.
    pub(super) beyond: f64,
}

impl Falling<'_> {
    /// Pieces below `least`: two that are level, as all that is outside, and one that is level at the value there.
    const BELOW: usize = 3;

    /// The cheapest lines that are near enough, and how far they are from the function; `None` if none are.
    pub(super) fn cheapest(&self) -> Option<(network::Op, f64)> {
        // (More pieces than twice as many as do cost more.)
        let found = TRIED.filter_map(|log2| self.in_pieces(log2)).take(2);
        let found = found.min_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
        Some((found.op, found.error))
    }

    /// In 2^`log2` pieces of the smallest width with which they reach as far as the function is more than nothing.
    fn in_pieces(&self, log2: u32) -> Option<Found> {
        let (farthest, least) = (f64::from(self.bits - 2).exp2(), self.least.floor());
        (1..(self.bits - 1).saturating_sub(log2)).find_map(|low| {
            let width = f64::from(low).exp2();
            let begin = least - width * Self::BELOW as f64;
            let end = begin + f64::from(low + log2).exp2();
            let last = [end, farthest].map(|x| (self.at)(x).0);
            let level = (last[0] + last[1]) / 2.0;
            (last[0] - last[1] <= self.beyond && begin >= -farthest).then(|| {
                let samples = Samples::new(self.at, begin, low, log2);
                let largest = (low as i32 - 1).min(self.step.log2().floor() as i32);
                (-FINEST..=largest).rev().find_map(|log2| {
                    let nodes = self.nodes(&samples, log2, level);
                    let level = nodes.values[0] as f64 * f64::from(log2).exp2();
                    let outside = last.map(|y| (y - level).abs()).into_iter().fold(0.0, f64::max);
                    let error = samples.off(&nodes, Self::BELOW).max(outside);
                    if error > self.most {
                        return None;
                    }
                    let mut lines: Curve = nodes.lines();
                    // (All that is outside is where the second piece is: it does not meet the third.)
                    lines.slopes[1] = 0;
                    Found::new(Level { begin: begin as i64, lines }, error, [self.bits, self.made])
                })
            })
        })?
    }

    fn nodes(&self, samples: &Samples, log2: i32, level: f64) -> Nodes {
        let (r, count) = (f64::from(log2).exp2(), samples.count());
        let level = (level / r).round() as i64;
        let mut values = vec![level; count + 1];
        let mut carry = 0.0;
        for (i, value) in values.iter_mut().enumerate().take(count).skip(Self::BELOW) {
            // (Below the first the function is another.)
            let exact = (samples.node(i) - samples.bend(i.max(Self::BELOW + 1)) / 16.0) / r + carry;
            *value = exact.round() as i64;
            carry = exact - exact.round();
        }
        values[Self::BELOW - 1] = values[Self::BELOW];
        Nodes { low: samples.low, log2, values }
    }
}

/// What a value of n = `made` bits takes that is made of one of `bits`.
fn bytes(pieces: Pieces, [bits, made]: [u32; 2]) -> Option<f64> {
    let by = DEFAULT_GUARD_BITS;
    let beyond = match pieces.beyond {
        Beyond::Level { begin } => Beyond::Level { begin: begin << by },
        same @ (Beyond::Repeated | Beyond::Straight) => same,
    };
    let pieces = Pieces { low: pieces.low + by, offset_shift: pieces.offset_shift + by, beyond, ..pieces };
    let out_bits = made_bits(&pieces, made);
    let params = CurveParams { bits, out_bits, digit: 4, pieces: Arc::new(pieces) };
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
    /// Of 2^`log2` pieces of 2^`low` integers, from `begin` on.
    fn new(at: At<'_>, begin: f64, low: u32, log2: u32) -> Self {
        let (step, places) = (f64::from(low).exp2() / PLACES as f64, PLACES as usize);
        let at = (0..=places << log2).map(|i| at(begin + step * i as f64)).collect();
        Self { low, at }
    }

    /// Of 2^`log2` pieces of `domain` bits.
    fn around_zero(at: At<'_>, domain: u32, log2: u32) -> Self {
        Self::new(at, -f64::from(domain - 1).exp2(), domain - log2, log2)
    }

    /// How many pieces there are.
    fn count(&self) -> usize {
        self.at.len() / PLACES as usize
    }

    /// The function where piece `i` begins.
    fn node(&self, i: usize) -> f64 {
        self.at[i * PLACES as usize].0
    }

    /// Its second difference there.
    fn bend(&self, i: usize) -> f64 {
        self.node(i - 1) - 2.0 * self.node(i) + self.node(i + 1)
    }

    fn nodes(&self, log2: i32, ends: Option<&[End; 2]>) -> Nodes {
        let (r, count) = (f64::from(log2).exp2(), self.count());
        let value = |i: usize| {
            let bend = if i == 0 || i == count { 0.0 } else { self.bend(i) };
            ((self.node(i) - bend / 16.0) / r).round() as i64
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

    /// By how much lines are off from piece `first` on, in units.
    fn off(&self, nodes: &Nodes, first: usize) -> f64 {
        let (r, places) = (f64::from(nodes.log2).exp2(), PLACES as usize);
        let mut worst = 0f64;
        for (piece, pair) in nodes.values.windows(2).enumerate().skip(first) {
            let own = &self.at[piece * places..=(piece + 1) * places];
            // (In the piece where a function is cut off no line is near.)
            if own.iter().any(|(_, cut)| *cut) {
                continue;
            }
            let [from, to] = [pair[0] as f64 * r, pair[1] as f64 * r];
            for (i, (y, _)) in own.iter().enumerate() {
                let line = from + (to - from) * i as f64 / places as f64;
                worst = worst.max((line - y).abs());
            }
        }
        worst
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
                    let sought = Sought { at: &at, bits, made: bits, most, slope };
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
                    let (on, takes) = (op.is::<Straight>(), bytes(pieces, [bits + 8; 2]).unwrap());
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
        let sought = Sought { at: &at, bits, made: bits, most, slope };
        let (coarse, _) = sought.cheapest().unwrap();
        let [fine, coarse] = [fine.pieces(), pieces_of(&coarse)].map(|p| bytes(p, [bits + 8; 2]).unwrap());
        assert!(coarse < 0.66 * fine, "{coarse} of {fine}");
    }
}
