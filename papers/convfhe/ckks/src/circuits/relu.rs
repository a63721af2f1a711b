//! ReLU by a composite polynomial (Appendix B of the paper; such polynomials are those of Lee, Lee, No and Kim,
//! "Minimax approximation of sign function by composite polynomial for homomorphic comparison", IEEE TDSC 2022).
//!
//! ```text
//! ReLU(x) ≈ x·(1/2 + f_n(… f_2(f_1(x)))/2),   |x| ≤ 1
//! ```
//!
//! Each f is odd. A mask of zeros and ones (the paper's Ext) is multiplied to the x that waits for the sign, so it
//! takes no level. Where a value leaves in several pieces, each has a mask, and a product with the same sign. Outside
//! of [-1, 1] the polynomials grow without bound: whoever scales the input answers for it.

use super::chebyshev::Chebyshev;
use super::error::{Error, In};
use super::evaluator::Evaluator;
use crate::Complex;

const CIRCUIT: &str = "ReLU";

/// One composition of polynomials: more levels, less error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Composite {
    /// Its degrees, the first polynomial's first.
    pub name: &'static str,
    /// The largest |value(x) - ReLU(x)| for |x| ≤ 1.
    pub error: f64,
    /// The coefficients of x, x³, x⁵, … of each polynomial.
    rows: &'static [&'static [f64]],
}

/// All of them, from the fewest levels to the most. `papers/convfhe/params/relu.py` computes the first two; the last is
/// the paper's (Appendix B) and the default.
pub const COMPOSITES: [Composite; 3] = [
    Composite {
        name: "7-15",
        error: 0.00378,
        rows: &[
            &[8.87668607363408, -46.8101262015427, 83.7245880028455, -45.3879269608607],
            &[
                3.97215104644551,
                -13.0888933004502,
                28.5754224761184,
                -36.2331270263167,
                26.9461514978694,
                -11.568533900262,
                2.64938856225492,
                -0.25024290389757,
            ],
        ],
    },
    Composite {
        name: "7-7-7",
        error: 0.00160661,
        rows: &[
            &[10.2622658318943, -57.6349100723934, 105.148014328695, -57.5573974843814],
            &[3.54987709926292, -4.82168911066968, 2.52841901550894, -0.416213851039078],
            &[2.28431277109369, -2.38975199036881, 1.42354685692318, -0.32114690660727],
        ],
    },
    Composite {
        name: "7-7-13",
        error: 0.000903118,
        rows: &[
            &[10.8541842577442, -62.2833925211098, 114.369227820443, -62.8023496973074],
            &[4.13976170985111, -5.84997640211679, 2.9437625565928, -0.454530437460152],
            &[
                3.29956739043733,
                -7.84227260291355,
                12.8907764115564,
                -12.4917112584486,
                6.94167991428074,
                -2.04298067399942,
                0.246407138926031,
            ],
        ],
    },
];

impl Composite {
    /// The composition of these degrees.
    pub fn by_name(name: &str) -> Option<Self> {
        COMPOSITES.into_iter().find(|composite| composite.name == name)
    }

    /// The polynomials, for evaluation. The last one is halved. Each value between them is divided by a bound of it:
    /// T_k is at most 1 on [-1, 1] only, and grows as fast as a power of 2·|x| beyond, with all rounding. (7-15 has
    /// values up to 1.9 there.)
    fn polynomials(self) -> Vec<Chebyshev> {
        let last = self.rows.len() - 1;
        let mut bound = 1.0;
        let mut polynomials = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            let next = if i == last { 2.0 } else { self.bound_behind(i) };
            let monomials =
                row.iter().zip(0..).flat_map(|(c, k)| [0.0, c * f64::powi(bound, 2 * k + 1) / next]);
            polynomials.push(Chebyshev::from_monomials(&monomials.collect::<Vec<_>>()));
            bound = next;
        }
        polynomials
    }

    /// What a polynomial's values are at most, one in a hundred more than on a grid.
    fn bound_behind(self, i: usize) -> f64 {
        let grid = (0..=4096).map(|x| f64::from(x) / 4096.0);
        let value = |x| self.rows[..=i].iter().fold(x, |x, row| odd(row, x)).abs();
        1.01 * grid.map(value).fold(0.0, f64::max)
    }

    /// The levels of the polynomials and of the last product.
    pub fn levels(self) -> usize {
        1 + self.polynomials().iter().map(Chebyshev::depth).sum::<usize>()
    }

    /// How many products of two ciphertexts it takes.
    pub fn products(self) -> usize {
        1 + self.polynomials().iter().map(Chebyshev::products).sum::<usize>()
    }

    /// What is computed for x, without noise.
    pub fn value(self, x: f64) -> f64 {
        x * (1.0 + self.rows.iter().fold(x, |sign, row| odd(row, sign))) / 2.0
    }

    /// mask·ReLU(x), slot by slot, with exactly x's scale, [`levels`](Self::levels) below: a [`step`](Self::step),
    /// and what it leaves of x ([`keep`](Self::keep)).
    pub fn evaluate<E: Evaluator>(
        self,
        evaluator: &E,
        x: &E::Ciphertext,
        mask: &E::Plaintext,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        let step = self.step(evaluator, x)?;
        self.keep(evaluator, (x, &step), mask)
    }

    /// (1 + f(x))/2, near 1 where x is positive and near 0 where it is negative, a level above what
    /// [`keep`](Self::keep) gives. It serves any number of masks.
    pub fn step<E: Evaluator>(
        self,
        evaluator: &E,
        x: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        let (top, scale) = (evaluator.level(x), evaluator.scale(x));
        if top < self.levels() {
            return Err(Error::Level { circuit: CIRCUIT, needed: self.levels(), found: top });
        }
        // The last product divides by this level's modulus.
        let last = evaluator.modulus(top + 1 - self.levels());
        let polynomials = self.polynomials();
        let mut sign = x.clone();
        for (i, f) in polynomials.iter().enumerate() {
            sign = f.evaluate(evaluator, &sign, if i + 1 == polynomials.len() { last } else { scale })?;
        }
        evaluator.add_constant(&sign, Complex::from(0.5)).within(CIRCUIT)
    }

    /// x·mask·step, with exactly x's scale, a level below the step. The mask is encoded a level above the step, with
    /// the modulus of that level as its scale: so the product with it loses no precision.
    pub fn keep<E: Evaluator>(
        self,
        evaluator: &E,
        (x, step): (&E::Ciphertext, &E::Ciphertext),
        mask: &E::Plaintext,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        let scale = evaluator.scale(x);
        let low = evaluator.drop_to(x, evaluator.level(step) + 1).within(CIRCUIT)?;
        let masked = evaluator.multiply_plain(&low, mask).within(CIRCUIT)?;
        let masked = evaluator.rescale(&masked).within(CIRCUIT)?;
        let product = evaluator.multiply(&masked, step).within(CIRCUIT)?;
        Ok(evaluator.with_scale(evaluator.rescale(&product).within(CIRCUIT)?, scale))
    }
}

/// The polynomial of odd powers with these coefficients.
fn odd(row: &[f64], x: f64) -> f64 {
    row.iter().rev().fold(0.0, |sum, c| sum * x * x + c) * x
}
