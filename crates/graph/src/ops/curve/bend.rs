//! Powers x^e of what is not negative, as the inverse root by which a norm scales: in bands of x that overlap nowhere.
//!
//! Near zero such a curve bends more than pieces of one width can follow, wherever x is used over a wide range. So x is cut at
//! H_0 > H_1 > H_2, sixteen times apart, and band k is a curve of min(x, H_k) alone, in pieces sixteen times finer than those of the band
//! before:
//!
//! ```text
//! x^e = b_0(x) + b_1(min(x, H_1)) + b_2(min(x, H_2)),   b_k(t) = max(t, H_(k+1))^e − H_k^e
//! ```
//!
//! (The first has nothing taken away, the last goes on to zero.) Above H_(k+1) a piece is at most a sixteenth of x, and its line within
//! 0.05·e·(e − 1)/16² of the curve, relative to it: 2^-12.4 for the inverse root. All bands are computed beside each other.
//!
//! A negative power of zero is what the last band begins with, in floating point: what it scales is zero too, as a vector without a length,
//! and calibration sees no value that takes all bits from others.
//!
//! H_0 is a power of two, two to four times the largest x that calibration saw; beyond it x counts as H_0. Whoever has the network
//! learns it, as of any curve's scale: an order of magnitude.

use super::fit::Fit;
use crate::float::{Add, Demand, FloatOperands, FloatOperator, Op};
use crate::network::{self, Curve, NodeId, Relu6, Shape};
use crate::ops::operator::Known;

/// log2 of how far bands are apart.
const APART: u32 = 4;

/// At least so many bits are left below a band's bound.
const LEAST: u32 = 3;

/// Bits by which lines are finer than other curves': they are few values, and stand for all that they scale.
const MORE: u32 = 2;

/// What is no larger counts as that: no value of a network that was trained is.
const SMALLEST: f64 = 1e-12;

/// `x^exponent` of what is not negative; only while a graph is being imported.
#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    /// Public.
    pub exponent: f64,
    /// How many bands there are.
    pub bands: u32,
}

/// `min(max(x, 0), H_k)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cap {
    /// k.
    pub band: u32,
    /// log2 of H_k, where calibration knows it; else nothing is cut off above.
    pub log2: Option<i32>,
}

/// Band k of a power. Before calibration each band makes an equal part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// The power.
    pub of: Power,
    /// k.
    pub band: u32,
    /// log2 of H_k and of H_(k+1), where calibration knows them; the last band has no second.
    pub log2: Option<(i32, Option<i32>)>,
}

/// log2 of H_`band` for values up to `largest`, in a network of n = `bits` bits: fewer where too little of n would be left.
fn bound(largest: f64, band: u32, bits: u32) -> i32 {
    let first = if largest > 0.0 { largest.log2().floor() as i32 + 2 } else { 0 };
    first - (band * APART).min(bits.saturating_sub(3 + LEAST)) as i32
}

fn exp2(log2: i32) -> f64 {
    f64::from(log2).exp2()
}

impl Power {
    /// `x^exponent`.
    pub fn of(exponent: f64, bands: u32) -> Self {
        Self { exponent, bands }
    }

    /// Whether there is no value at x.
    fn is_nowhere(&self, x: f32) -> bool {
        self.exponent < 0.0 && f64::from(x) <= SMALLEST
    }

    /// The value at x; what is smaller than any that occurs is as that.
    fn at(&self, x: f64) -> f64 {
        x.max(SMALLEST).powf(self.exponent)
    }
}

impl FloatOperator for Power {
    fn integer(&self, _: &Known<'_>) -> Option<network::Op> {
        None
    }

    fn demands(&self) -> Demand {
        Demand::Nothing
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.each(|x| if self.is_nowhere(x) { 0.0 } else { self.at(x.into()) as f32 })
    }

    fn is_non_negative(&self, _: &[NodeId], _: &dyn Fn(NodeId) -> bool) -> bool {
        true
    }

    fn expanded(
        &self,
        source: NodeId,
        shape: Shape,
        add: &mut dyn FnMut(Op, Vec<NodeId>, Shape) -> NodeId,
    ) -> Option<(Op, Vec<NodeId>)> {
        let mut band = |band: u32| {
            let capped = add(Cap { band, log2: None }.into(), vec![source], shape);
            (Op::new(Band { of: self.clone(), band, log2: None }), vec![capped])
        };
        let mut made: Vec<_> = (0..self.bands).map(&mut band).collect();
        let (mut op, mut inputs) = made.remove(0);
        for (next, capped) in made {
            let sum = add(op, inputs, shape);
            let own = add(next, capped, shape);
            (op, inputs) = (Add.into(), vec![sum, own]);
        }
        Some((op, inputs))
    }
}

impl FloatOperator for Cap {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let unknown = Relu6 { log2_six: 1, ignored: 0 };
        Some(network::Op::new(self.log2.map_or(unknown, |log2| Relu6::clipping(exp2(log2) as f32, known))))
    }

    fn demands(&self) -> Demand {
        self.log2.map_or(Demand::Nothing, |log2| Demand::Power(exp2(log2) as f32))
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let most = self.log2.map_or(f32::INFINITY, |log2| exp2(log2) as f32);
        of.first().1.iter().map(|v| v.max(0.0).min(most)).collect()
    }

    fn seen(&mut self, largest: f64, bits: u32) -> bool {
        let log2 = Some(bound(largest, self.band, bits));
        std::mem::replace(&mut self.log2, log2) != log2
    }
}

impl Band {
    /// Of x, in units of the scale `own` where values are cut off at `most`: what is made of it, and the power itself.
    fn at(&self, x: f64, own: f64, most: f64) -> (f64, f64) {
        let power = |x: f64| self.of.at(x) * own;
        let Some((own, next)) = self.log2 else {
            let whole = power(x);
            return (whole / f64::from(self.of.bands), whole);
        };
        let whole = power(next.map_or(x, |next| x.max(exp2(next))));
        let above = if self.band > 0 { power(exp2(own)) } else { 0.0 };
        (whole.min(most) - above.min(most), whole)
    }

    /// The integer curve and how far it is from this one over the values that calibration saw.
    fn fitted(&self, known: &Known<'_>) -> Option<(Curve, f64)> {
        let ((&[input], own), (bound, _)) = (known.scales?, self.log2?) else { return None };
        Some(self.lines([input, own], (exp2(bound) * input).log2().round() as u32, known.bits))
    }

    /// Lines over integers from 0 to 2^`log2`, between two scales. Half as much on either side is as at the ends.
    fn lines(&self, scales: [f64; 2], log2: u32, bits: u32) -> (Curve, f64) {
        let domain = (log2 + 1).max(3);
        let end = f64::from(domain - 1).exp2();
        // (A little below the end of the range: the inverse of nothing is there, and is no value that is too large.)
        let (most, seen) = (f64::from(bits - 2).exp2() * (1.0 - 1.0 / 64.0), f64::from(bits - 4).exp2());
        let at = |x: f64, piece: f64| {
            // (What is far below is what is above: bits beyond the domain are left out.)
            let x = if piece < -end / 2.0 { x + 2.0 * end } else { x };
            let (y, whole) = self.at(x.clamp(0.0, end) / scales[0], scales[1], most);
            (y, whole > seen)
        };
        Fit { at: &at, domain, more: MORE }.lines((domain - 1).min(9))
    }
}

impl FloatOperator for Band {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let nothing = || {
            let (offsets, slopes) = (vec![0; 4], vec![0; 4]);
            Curve { low: 1, offset_shift: 0, shift: 1, offsets, slopes }
        };
        Some(network::Op::new(self.fitted(known).map_or_else(nothing, |(curve, _)| curve)))
    }

    fn coarseness(&self, known: &Known<'_>) -> f64 {
        self.fitted(known).map_or(0.0, |(_, error)| error)
    }

    fn demands(&self) -> Demand {
        Demand::Told
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        let last = self.band + 1 == self.of.bands || self.log2.is_none();
        let nothing = |x: f32| last && self.of.is_nowhere(x);
        of.each(|x| if nothing(x) { 0.0 } else { self.at(x.into(), 1.0, f64::INFINITY).0 as f32 })
    }

    fn seen(&mut self, largest: f64, bits: u32) -> bool {
        let next = (self.band + 1 < self.of.bands).then(|| bound(largest, self.band + 1, bits));
        let log2 = Some((bound(largest, self.band, bits), next));
        std::mem::replace(&mut self.log2, log2) != log2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::operator::Operator;

    /// The bands of a power in units, over values that calibration saw up to `largest`, at two scales; with `guard` bits more.
    struct Bands {
        parts: Vec<(i64, Curve)>,
        scales: [f64; 2],
        guard: u32,
    }

    impl Bands {
        fn new(of: &Power, largest: f64, scales: [f64; 2], bits: u32, guard: u32) -> Self {
            let part = |band: u32| {
                let (mut cap, mut curve) =
                    (Cap { band, log2: None }, Band { of: of.clone(), band, log2: None });
                assert!(cap.seen(largest, bits) && curve.seen(largest, bits));
                assert!(!cap.seen(largest, bits) && !curve.seen(largest, bits));
                let known = Known { bits, scales: Some((&scales[..1], scales[1])), ..Known::default() };
                let (mut lines, _) = curve.fitted(&known).unwrap();
                lines.rescale(guard as i32).unwrap();
                lines.shape(&[[1, 1, 1]], [1, 1, 1]).unwrap();
                lines.check(bits + guard).unwrap();
                let bound = (exp2(cap.log2.unwrap()) * scales[0]).round() as i64;
                (bound << guard, lines)
            };
            Self { parts: (0..of.bands).map(part).collect(), scales, guard }
        }

        /// Of x, in units with their guard bits: what the bands make of it together, in units of the value without.
        fn at(&self, x: i64) -> f64 {
            let made = |(bound, curve): &(i64, Curve)| curve.nearest_of(x.clamp(0, *bound));
            self.parts.iter().map(made).sum::<i64>() as f64 / exp2(self.guard as i32)
        }

        /// The power itself, in the same units.
        fn want(&self, of: &Power, x: i64) -> f64 {
            of.at(x as f64 / exp2(self.guard as i32) / self.scales[0]) * self.scales[1]
        }
    }

    /// The inverse root of every value of 16 bits: within a last place wherever values are at least a 64th of the largest that
    /// calibration saw, and up to the bound, from where on it is that of the bound. Alone, one curve is off by dozens.
    #[test]
    fn the_inverse_root_of_every_value_is_within_a_unit() {
        const BITS: u32 = 16;
        let of = Power::of(-0.5, 3);
        for largest in [1.0, 1.3, 1.99, 37.0, 0.003] {
            for guard in [0, 8] {
                let first = exp2(bound(largest, 0, BITS));
                let inverse = of.at(largest / 64.0);
                // (As calibration chooses them: powers of two, with headroom.)
                let scales = [exp2(13) / first, exp2((exp2(12) / inverse).log2().floor() as i32)];
                let bands = Bands::new(&of, largest, scales, BITS, guard);
                let [least, end] =
                    [largest / 64.0, first].map(|x| (x * scales[0]) as i64 + 1).map(|x| x << guard);
                let step = if guard == 0 { 1 } else { 7 };
                let worst = (least..end).step_by(step).map(|x| (bands.at(x) - bands.want(&of, x)).abs());
                let worst = worst.fold(0.0, f64::max);
                println!("up to {largest}, {guard} guard bits: {worst:.2} units");
                assert!(worst <= 1.0, "up to {largest}, {guard} guard bits: {worst}");
                // Beyond the bound, and below zero, it stays what it is there.
                for far in [2, 3, 8, 100] {
                    assert_eq!(bands.at(end * far), bands.at(end));
                }
                assert!(bands.at(-1) >= bands.at(least) && bands.at(-1) == bands.at(0));
            }
        }
        let alone = Power { bands: 1, ..of };
        let bands = Bands::new(&alone, 1.0, [exp2(11), exp2(9)], BITS, 0);
        let worst = (33..=2048).map(|x| (bands.at(x) - bands.want(&alone, x)).abs()).fold(0.0, f64::max);
        assert!(worst > 30.0, "{worst}");
    }

    /// Other powers, and networks of few and of many bits: all within a part of the value where it is not the smallest.
    #[test]
    fn other_powers_follow_theirs() {
        for bits in 8..=24 {
            for (exponent, bands) in [(-1.0, 3), (-0.75, 2), (0.5, 3), (1.0 / 3.0, 3), (-2.0, 3)] {
                let of = Power::of(exponent, bands);
                let (first, top) = (exp2(bound(1.0, 0, bits)), of.at(1.0));
                let scales = [exp2(bits as i32 - 3) / first, exp2(bits as i32 - 6) / top];
                for guard in [0, 12] {
                    let bands = Bands::new(&of, 1.0, scales, bits, guard);
                    let end = 1i64 << (bits - 3 + guard);
                    // From an eighth of the largest on.
                    let places = (0..=1000).map(|i| end / 8 + i * (end - end / 8) / 1000);
                    let off = |x: i64| (bands.at(x) - bands.want(&of, x)).abs();
                    let worst = places.map(|x| off(x) / bands.want(&of, x).max(1.0)).fold(0.0, f64::max);
                    let least = 1.5 / of.at(4.0).min(of.at(0.125)) / scales[1];
                    let most = least.max(2e-3).max(exponent.abs() * 16.0 / f64::from(bits).exp2());
                    assert!(worst <= most, "{bits} bits, x^{exponent}: {worst} of {most}");
                }
            }
        }
    }
}
