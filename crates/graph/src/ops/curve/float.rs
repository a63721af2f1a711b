//! A curve in floating point.

pub use super::bend::{Band, Cap, Power};
use super::coarse::Sought;
pub use super::decay::Decay;
use super::fit::{MANY, MOST, between};
pub use super::function::{Function, Primitive};
use crate::float::{Demand, FloatOperands, FloatOperator, Op};
use crate::network::{self, NodeId};
use crate::ops::operator::Known;

/// A function of each value by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Which.
    pub function: Function,
}

impl Curve {
    /// The integer curve and how far it is from this one, where calibration knows the scales. Many pieces give way to fewer with lines that
    /// go on.
    fn fitted(&self, known: &Known<'_>) -> Option<(network::Op, f64)> {
        let (&[input], own) = known.scales? else { return None };
        let (scales, bits) = ([input, own], [known.bits, known.taken()]);
        if known.coarse > 0 {
            let most = MOST * f64::from(known.coarse).exp2();
            let at = |x: f64| between(&self.function, scales, known.bits, x);
            let slope = super::Straight::slope_above(&self.function, scales, known.taken());
            let sought = Sought { at: &at, bits: known.taken(), made: known.bits, most, slope };
            if let Some(found) = sought.cheapest() {
                return Some(found);
            }
        }
        let (curve, error) = super::Curve::of_narrow(&self.function, scales, bits);
        let many = curve.offsets.len() >= MANY || error > MOST;
        let straight = many.then(|| super::Straight::of_narrow(&self.function, scales, bits)).flatten();
        Some(match straight {
            Some((straight, on))
                if on < error && error > MOST || on <= MOST && straight.offsets.len() < MANY =>
            {
                (network::Op::new(straight), on)
            }
            _ => (network::Op::new(curve), error),
        })
    }
}

impl From<Function> for Op {
    /// The function of each value.
    fn from(function: Function) -> Self {
        Curve { function }.into()
    }
}

impl FloatOperator for Curve {
    fn integer(&self, known: &Known<'_>) -> Option<network::Op> {
        let nothing = || {
            let (offsets, slopes) = (vec![0; 4], vec![0; 4]);
            (network::Op::new(super::Curve { low: 1, offset_shift: 0, shift: 1, offsets, slopes }), 0.0)
        };
        let (curve, _) = if known.scales.is_some() { self.fitted(known)? } else { nothing() };
        Some(curve)
    }

    /// Of lines as near as they were asked to be, no more than is usual.
    fn coarseness(&self, known: &Known<'_>) -> f64 {
        let asked = MOST * f64::from(known.coarse).exp2();
        self.fitted(known).map_or(0.0, |(_, error)| if error <= asked { error.min(MOST) } else { error })
    }

    fn heeds_coarse(&self) -> bool {
        true
    }

    fn demands(&self) -> Demand {
        Demand::Told
    }

    fn apply(&self, of: &FloatOperands<'_>) -> Vec<f32> {
        of.each(|x| self.function.at(x.into()) as f32)
    }

    fn is_non_negative(&self, _: &[NodeId], _: &dyn Fn(NodeId) -> bool) -> bool {
        self.function.is_non_negative()
    }

    fn function(&self, of: &[&Function]) -> Option<Function> {
        let &[inner] = of else { return None };
        Some(self.function.after(inner))
    }
}
