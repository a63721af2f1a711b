//! Functions of one real number: what a curve is before it is cut into pieces.

use std::f64::consts::PI;

/// A function of x by parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Function {
    /// x itself.
    Value,
    /// A curve of a function of x.
    Of(Primitive, Box<Function>),
    /// `mul·f(x) + add`.
    Line {
        /// The factor.
        mul: f32,
        /// What is added.
        add: f32,
        /// f.
        of: Box<Function>,
    },
    /// `gain·(f(x) + o_f)·(g(x) + o_g)`.
    Product {
        /// The factor of both.
        gain: f32,
        /// What is added to each first.
        offsets: [f32; 2],
        /// f and g.
        of: Box<[Function; 2]>,
    },
    /// f(x) + g(x).
    Sum(Box<[Function; 2]>),
}

/// A curve that ONNX has a name for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Primitive {
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `2/√π` times the integral of `e^-t²` from 0 to x.
    Erf,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `x / (1 + |x|)`.
    Softsign,
    /// `gamma·x` where x is positive, else `gamma·alpha·(e^(x/beta) - 1)`: Elu, Selu and Celu.
    Exponential {
        /// How far it falls.
        alpha: f32,
        /// How slowly.
        beta: f32,
        /// Times both.
        gamma: f32,
    },
    /// `x³`.
    Cube,
    /// `min(max(x, 0), ceiling)`. By itself a clip is exact and costs less than a curve; a value times a clip of it, as HardSwish, is one.
    Clip {
        /// Positive.
        ceiling: f32,
    },
}

/// The error function, to some 14 digits: its series near zero, and the continued fraction of 1 - erf beyond.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size > 6.0 {
        return x.signum();
    }
    if size < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= -x * x / f64::from(n);
            let next = sum + term / f64::from(2 * n + 1);
            // (Terms fall from the sixth on at the latest, and change signs: what follows is less than the last one.)
            if next == sum {
                break;
            }
            sum = next;
        }
        return 2.0 / PI.sqrt() * sum;
    }
    let fraction = (1..=60).rev().fold(0.0, |below, n| f64::from(n) / 2.0 / (size + below));
    x.signum() * (1.0 - (-x * x).exp() / PI.sqrt() / (size + fraction))
}

impl Primitive {
    /// The value at x.
    pub fn at(self, x: f64) -> f64 {
        match self {
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
            Self::Erf => erf(x),
            Self::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Self::Softsign => x / (1.0 + x.abs()),
            Self::Exponential { gamma, .. } if x > 0.0 => f64::from(gamma) * x,
            Self::Exponential { alpha, beta, gamma } => {
                f64::from(gamma) * f64::from(alpha) * (x / f64::from(beta)).exp_m1()
            }
            Self::Cube => x * x * x,
            Self::Clip { ceiling } => x.max(0.0).min(ceiling.into()),
        }
    }
}

impl Primitive {
    /// What it is nowhere below; `None` if it goes on without an end.
    fn least(self) -> Option<f32> {
        match self {
            Self::Sigmoid | Self::Softplus | Self::Clip { .. } => Some(0.0),
            Self::Tanh | Self::Erf | Self::Softsign => Some(-1.0),
            Self::Exponential { alpha, beta, gamma } => {
                (alpha >= 0.0 && beta > 0.0 && gamma >= 0.0).then_some(-alpha * gamma)
            }
            Self::Cube => None,
        }
    }
}

impl Function {
    /// The value at x.
    pub fn at(&self, x: f64) -> f64 {
        match self {
            Self::Value => x,
            Self::Of(primitive, of) => primitive.at(of.at(x)),
            Self::Line { mul, add, of } => f64::from(*mul) * of.at(x) + f64::from(*add),
            Self::Product { gain, offsets, of } => {
                let [f, g] = [0, 1].map(|i| of[i].at(x) + f64::from(offsets[i]));
                f64::from(*gain) * f * g
            }
            Self::Sum(of) => of[0].at(x) + of[1].at(x),
        }
    }

    /// How many parts it has.
    pub fn size(&self) -> usize {
        match self {
            Self::Value => 1,
            Self::Of(_, of) | Self::Line { of, .. } => 1 + of.size(),
            Self::Product { of, .. } | Self::Sum(of) => 1 + of[0].size() + of[1].size(),
        }
    }

    /// Whether a [`Primitive`] is part of it, of clips one that is multiplied: others are no curves.
    pub fn is_curved(&self) -> bool {
        match self {
            Self::Value => false,
            Self::Of(Primitive::Clip { .. }, of) | Self::Line { of, .. } => of.is_curved(),
            Self::Of(..) => true,
            Self::Product { of, .. } => of.iter().any(Self::bends),
            Self::Sum(of) => of.iter().any(Self::is_curved),
        }
    }

    /// Whether any [`Primitive`] is part of it.
    fn bends(&self) -> bool {
        match self {
            Self::Value => false,
            Self::Of(..) => true,
            Self::Line { of, .. } => of.bends(),
            Self::Product { of, .. } | Self::Sum(of) => of.iter().any(Self::bends),
        }
    }

    /// The function of this one's value.
    #[must_use]
    pub fn after(&self, inner: &Function) -> Function {
        match self {
            Self::Value => inner.clone(),
            Self::Of(primitive, of) => Self::Of(*primitive, Box::new(of.after(inner))),
            Self::Line { mul, add, of } => Self::Line { mul: *mul, add: *add, of: Box::new(of.after(inner)) },
            Self::Product { gain, offsets, of } => {
                let of = Box::new([of[0].after(inner), of[1].after(inner)]);
                Self::Product { gain: *gain, offsets: *offsets, of }
            }
            Self::Sum(of) => Self::Sum(Box::new([of[0].after(inner), of[1].after(inner)])),
        }
    }

    /// `mul·f + add`, if both are numbers that everybody knows. A number that was learned must not come into a curve, which is
    /// public.
    pub fn mapped(&self, mul: f32, add: f32) -> Option<Function> {
        let known = well_known(mul) && well_known(add);
        known.then(|| Self::Line { mul, add, of: Box::new(self.clone()) })
    }

    /// `x·sigmoid(alpha·x)`, with 1 for SiLU.
    pub fn swish(alpha: f32) -> Function {
        let inner = Self::Line { mul: alpha, add: 0.0, of: Box::new(Self::Value) };
        Self::Value.times(Self::Of(Primitive::Sigmoid, Box::new(inner)), 1.0, [0.0; 2])
    }

    /// Whether it is nowhere below zero, whatever it is of.
    pub fn is_non_negative(&self) -> bool {
        match self {
            Self::Value | Self::Product { .. } => false,
            Self::Of(primitive, _) => primitive.least().is_some_and(|least| least >= 0.0),
            Self::Line { mul, add, of } => match &**of {
                Self::Of(primitive, _) => {
                    *mul >= 0.0 && primitive.least().is_some_and(|least| mul * least + add >= 0.0)
                }
                of => *mul >= 0.0 && *add >= 0.0 && of.is_non_negative(),
            },
            Self::Sum(of) => of.iter().all(Self::is_non_negative),
        }
    }

    /// `x·(1 + erf(x/√2))/2`, or the same with `tanh(√(2/π)·(x + 0.044715·x³))` for the error function.
    pub fn gelu(by_tanh: bool) -> Function {
        let line = |mul: f64, of: Self| Self::Line { mul: mul as f32, add: 0.0, of: Box::new(of) };
        let inner = if by_tanh {
            let cube = Self::Of(Primitive::Cube, Box::new(Self::Value));
            let sum = Self::Sum(Box::new([Self::Value, line(0.044_715, cube)]));
            Self::Of(Primitive::Tanh, Box::new(line((2.0 / PI).sqrt(), sum)))
        } else {
            Self::Of(Primitive::Erf, Box::new(line(0.5f64.sqrt(), Self::Value)))
        };
        Self::Value.times(inner, 0.5, [0.0, 1.0])
    }

    /// `x·clip(x + 3, 0, 6)/6`.
    pub fn hard_swish() -> Function {
        let moved = Self::Line { mul: 1.0, add: 3.0, of: Box::new(Self::Value) };
        let clip = Self::Of(Primitive::Clip { ceiling: 6.0 }, Box::new(moved));
        Self::Value.times(clip, 1.0 / 6.0, [0.0; 2])
    }

    /// `x·tanh(softplus(x))`.
    pub fn mish() -> Function {
        let softplus = Self::Of(Primitive::Softplus, Box::new(Self::Value));
        Self::Value.times(Self::Of(Primitive::Tanh, Box::new(softplus)), 1.0, [0.0; 2])
    }

    fn times(self, other: Self, gain: f32, offsets: [f32; 2]) -> Self {
        Self::Product { gain, offsets, of: Box::new([self, other]) }
    }
}

/// Whether a number is one that people write: a multiple of 1/24, or a constant of a curve that has a name.
pub(crate) fn well_known(c: f32) -> bool {
    const NAMED: [f64; 5] =
        [std::f64::consts::SQRT_2, std::f64::consts::FRAC_1_SQRT_2, 0.797_884_560_8, 0.044_715, 1.702];
    let c = f64::from(c.abs());
    let close = |a: f64| (c - a).abs() <= 1e-6 * a;
    c <= 64.0 && (c * 24.0 - (c * 24.0).round()).abs() <= 1e-5 * c || NAMED.into_iter().any(close)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_that_of_tables() {
        for (x, want) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.499_999_9, 0.999_593_046_8),
            (2.500_000_1, 0.999_593_049_2),
            (3.0, 0.999_977_909_503_001_4),
            (5.0, 0.999_999_999_998_462_5),
            (9.0, 1.0),
        ] {
            let bound = if f64::trunc(x * 2.0) == x * 2.0 { 1e-14 } else { 1e-8 };
            assert!((erf(x) - want).abs() < bound && (erf(-x) + want).abs() < bound, "{x}: {}", erf(x));
        }
    }

    #[test]
    fn curves_with_names_are_those_of_their_definitions() {
        for i in -80..=80 {
            let x = f64::from(i) / 8.0;
            let sigmoid = 1.0 / (1.0 + (-x).exp());
            let close = |f: Function, want: f64| {
                assert!((f.at(x) - want).abs() < 1e-7 * (1.0 + x.abs()), "{f:?} {x}")
            };
            close(Function::swish(1.0), x * sigmoid);
            close(Function::gelu(false), 0.5 * x * (1.0 + erf(x / 2f64.sqrt())));
            let inner = (2.0 / PI).sqrt() * (x + 0.044_715 * x.powi(3));
            close(Function::gelu(true), 0.5 * x * (1.0 + inner.tanh()));
            close(Function::mish(), x * (1.0 + x.exp()).ln().tanh());
            close(Function::hard_swish(), x * (x + 3.0).clamp(0.0, 6.0) / 6.0);
            let twice = Function::swish(2.0).after(&Function::Line {
                mul: 2.0,
                add: 1.0,
                of: Box::new(Function::Value),
            });
            let y = 2.0 * x + 1.0;
            close(twice, y / (1.0 + (-2.0 * y).exp()));
        }
        assert!(Function::mish().is_curved() && !Function::Value.is_curved());
        // A clip by itself is none, nor is one that is moved; one that is multiplied is.
        let clip = Function::Of(Primitive::Clip { ceiling: 6.0 }, Box::new(Function::Value));
        assert!(!clip.is_curved() && !clip.mapped(0.5, 1.0).unwrap().is_curved());
        assert!(Function::hard_swish().is_curved());
        assert_eq!(Function::mish().size(), 5);
    }

    /// A learned factor stays a layer's.
    #[test]
    fn only_numbers_that_everybody_knows_are_part_of_a_curve() {
        let known =
            [0.5, 1.0, -1.0, 1.0 / 6.0, 3.0, 0.25, 2f32.sqrt(), 0.5f32.sqrt(), 0.797_884_6, 0.044_715, 1.702];
        assert!(known.iter().all(|&c| Function::Value.mapped(c, 0.0).is_some()));
        for learned in [0.891_356, 1.23, -0.017, 3.001, 1e9, f32::NAN, f32::INFINITY] {
            assert_eq!(Function::Value.mapped(learned, 0.0), None, "{learned}");
            assert_eq!(Function::Value.mapped(1.0, learned), None, "{learned}");
        }
    }
}
