//! `A·B / 2^shift`, rounded to nearest: the product of two matrices that the network computes, several side by side.

pub(crate) mod attention;
pub(crate) mod einsum;
pub(crate) mod float;
pub(crate) mod onnx;
mod products;
pub(crate) mod rows;

use std::ops::RangeInclusive;
use std::sync::Arc;

use jaguar_mpc::semantics::Matrices;
use jaguar_mpc::{MatrixProductParams, Nonlinear, SquaredRowsParams};
use serde::{Deserialize, Serialize};

use products::products;

use crate::ir::error::NodeError;
use crate::ir::limits::{SHIFTS, bounded, check};
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Chance, Effort, Excess, Interactive, Joined, Makes, Numbered, Operands, Operator, Part, Place, Scale,
    Shares, Sign, Signs, Source, Takes, Value, Work,
};
use crate::ops::product::{most_product_shift, shifted};

/// `A·B / 2^shift`, each sum of products rounded to a neighbour: of `[batch, n, k]` and `[batch, k, m]`, each of a
/// scale of its own, `[batch, n, m]`. The sizes are the inputs' own. Attention has a batch of as many as there are
/// heads. A vector by itself, n = m = 1, is the sum of its values' squares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixProduct {
    /// Whether the first factor comes as `[batch, k, n]`, and the second as `[batch, m, k]`.
    pub transposed: [bool; 2],
    /// How many bits of a sum of products are cut off.
    pub shift: u32,
}

/// The sizes of a product of factors of these shapes. `None` where they do not fit each other.
pub(crate) fn matrices([a, b]: [Shape; 2], transposed: [bool; 2]) -> Option<Matrices> {
    let turned = |[batch, height, width]: Shape, turn: bool| {
        if turn { [batch, width, height] } else { [batch, height, width] }
    };
    let [batch, rows, inner] = turned(a, transposed[0]);
    let [other, same, columns] = turned(b, transposed[1]);
    (batch == other && inner == same).then_some(Matrices { batch, rows, inner, columns, transposed })
}

impl MatrixProduct {
    /// The sums before the shift.
    fn exact(&self, of: &Operands<'_>) -> Option<Vec<i128>> {
        let &[a, b] = of.values() else { return None };
        matrices(of.two()?, self.transposed)?.exact(a, b)
    }
}

impl Numbered for MatrixProduct {
    const NUMBER: u32 = 12;
}

impl Operator for MatrixProduct {
    fn name(&self) -> &'static str {
        "MatrixProduct"
    }

    fn work(&self) -> Work<'_> {
        Work::Interactive(self)
    }

    fn describe(&self) -> String {
        "matrix product".into()
    }

    fn arity(&self) -> (RangeInclusive<usize>, &'static str) {
        (2..=2, "two")
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        check(SHIFTS.contains(&self.shift), "shift")?;
        let &[a, b] = inputs else { return Err(NodeError::Range("number of factors")) };
        let of = matrices([a, b], self.transposed).ok_or(NodeError::Mismatch(a, b))?;
        bounded([of.batch, of.rows, of.columns])
    }

    fn check(&self, activation_bits: u32) -> Result<(), NodeError> {
        check(self.shift <= most_product_shift(MatrixProductParams::WIDEST, activation_bits), "shift")
    }

    fn value_bits(&self, _: u32, activation_bits: u32) -> u32 {
        activation_bits
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Own, sign: Sign::Any, source: Source::Several }
    }

    /// A product has both factors' scales, and its value one.
    fn rescale(&mut self, by: i32) -> Result<(), &'static str> {
        self.shift = self.shift.checked_add_signed(by).filter(|&shift| shift > 0).ok_or("shift")?;
        Ok(())
    }

    fn effort(&self, inputs: &[Shape], _: Shape) -> Effort {
        let of = <[Shape; 2]>::try_from(inputs).ok().and_then(|two| matrices(two, self.transposed));
        Effort { operations: of.map_or(0, |of| of.products()), places: 0 }
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let half = 1 << (self.shift - 1);
        Some(self.exact(of)?.into_iter().map(|m| shifted(m, half, self.shift)).collect())
    }

    fn apply_drawn(&self, of: &Operands<'_>, chance: &Chance) -> Option<Vec<i64>> {
        if !chance.draws.rounding {
            return self.apply(of);
        }
        let low = (1u64 << self.shift) - 1;
        let one = |(i, m): (usize, i128)| shifted(m, i128::from(chance.share(i) & low), self.shift);
        Some(self.exact(of)?.into_iter().enumerate().map(one).collect())
    }

    /// The slopes of A are S·Bᵀ, those of B are Aᵀ·S, for slopes S of the product; those of a factor that comes transposed are too.
    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let sizes = matrices(of.two()?, self.transposed)?;
        let Matrices { rows, inner, columns, .. } = sizes;
        let &[a, b] = of.values() else { return None };
        if by.len() != sizes.counts()?[2] {
            return None;
        }
        let unit = 2f32.powi(-(self.shift as i32));
        let [a, b]: [Vec<f32>; 2] = [a, b].map(|x| x.iter().map(|&v| unit * v as f32).collect());
        let of = |[rows, inner, columns]: [usize; 3], transposed| Matrices {
            rows,
            inner,
            columns,
            transposed,
            ..sizes
        };
        let [first, second] = self.transposed;
        let slopes_of_a = match first {
            false => products(&of([rows, columns, inner], [false, !second]), by, &b),
            true => products(&of([inner, columns, rows], [second, true]), &b, by),
        };
        let slopes_of_b = match second {
            false => products(&of([inner, rows, columns], [!first, false]), &a, by),
            true => products(&of([columns, rows, inner], [true, first]), by, &a),
        };
        Some(vec![slopes_of_a, slopes_of_b])
    }
}

impl Interactive for MatrixProduct {
    fn part(&self) -> Part {
        Part::Product
    }

    fn shares(&self) -> Shares {
        Shares {
            excess: Excess::Refuses,
            takes: Takes::Activations { more: self.shift },
            makes: Makes::Activations,
            joined: Joined::OneBehindTheOther,
        }
    }

    fn signs(&self) -> Option<&dyn Signs> {
        None
    }

    /// Rows by themselves are sums of squares.
    fn takes_once(&self, inputs: &[Shape]) -> bool {
        let of = <[Shape; 2]>::try_from(inputs).ok().and_then(|two| matrices(two, self.transposed));
        of.is_some_and(|of| [of.rows, of.columns] == [1, 1])
    }

    /// Each image's matrices are matrices of their own.
    fn protocol(&self, at: &Place<'_>) -> Arc<dyn Nonlinear> {
        let of = <[Shape; 2]>::try_from(at.inputs).ok().and_then(|two| matrices(two, self.transposed));
        let of = of.expect("a valid network's factors fit each other");
        let matrices = Matrices { batch: of.batch * at.images, ..of };
        let (out_bits, shift) = (at.bits - self.shift, self.shift);
        if at.same {
            let (rows, columns) = (matrices.batch, matrices.inner);
            return Arc::new(SquaredRowsParams { out_bits, shift, rows, columns });
        }
        Arc::new(MatrixProductParams { out_bits, shift, matrices })
    }
}
