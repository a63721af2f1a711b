//! CtoS and StoC: the special Fourier transform as a product of sparse matrices.
//!
//! A polynomial of 2n values a_0 … a_{2n-1} (in X^(N/2n)) has n slots z_j, its values at ζ^(5^j), where ζ =
//! exp(2πi/4n). With w_k = a_k + i·a_{k+n} it is z = U·w, U_jk = ζ^(5^j·k) (Cheon, Kim, Kim, Song, ASIACRYPT 2017), and
//! U·U* = n. Cooley and Tukey's recursion over even and odd k gives
//!
//! ```text
//! U = L_n · … · L_4 · L_2 · R,
//! L_m: in each block of m,   out[j]       = in[j] + ω_j·in[j + m/2]
//!                            out[j + m/2] = in[j] - ω_j·in[j + m/2],   ω_j = exp(2πi·5^j/4m),  0 ≤ j < m/2
//! ```
//!
//! with R the bit reversal. Ciphertexts hold R·w between CtoS and StoC, so R is never multiplied. Each L has three
//! diagonals; some of them in a row are multiplied into one [`Matrix`] (Chen, Chillotti, Song, EUROCRYPT 2019; Han,
//! Hhan, Cheon, IEEE Access 2019), which costs one level and 2^(r+1) - 1 diagonals for r of them.
//!
//! *Packing.* CtoS ends with real and imaginary parts of R·w apart, since ReLU works on real numbers. With n < N/2 slots both
//! fit into one ciphertext of 2n slots: real parts in the first half, imaginary ones in the second. The last matrix of CtoS
//! then clears the second half, at no cost in levels.

use std::collections::BTreeMap;

use super::matrix::{Diagonals, Matrix};
use crate::Complex;

/// A Fourier transform's matrices, in the order in which they are multiplied.
#[derive(Clone, Debug)]
pub struct Fourier {
    /// The matrices.
    pub matrices: Vec<Matrix>,
}

/// Which values a ciphertext carries, and how the transform is cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// N/2.
    pub slots: usize,
    /// 2n: how many values, a power of two, from 4 to N.
    pub values: usize,
    /// How many of the log2(n) layers each matrix has, in the order in which they are multiplied.
    pub layers: Vec<usize>,
    /// How many hoisted rotations a key switch costs: it decides between baby and giant steps.
    pub giant_cost: f64,
    /// How many hoisted rotations one key less is worth.
    pub key_cost: f64,
}

/// Why a transform is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The number of values is no power of two, or out of bounds.
    #[error("{values} values for {slots} slots: not a power of two from 4 to twice the slots")]
    Values {
        /// How many values.
        values: usize,
        /// How many slots.
        slots: usize,
    },
    /// Layers do not add up.
    #[error("{layers:?} layers: each matrix takes at least one, and all of them together {needed}")]
    Layers {
        /// Those of each matrix.
        layers: Vec<usize>,
        /// How many there are.
        needed: usize,
    },
}

/// Cuts layers into so many matrices, the larger ones first. That is cheapest for CtoS: in its first matrix rotations
/// by n/2 and -n/2 are the same, so that r layers have 2^r diagonals there. In StoC that is the last one: turn the list
/// around.
pub fn even_layers(values: usize, matrices: usize) -> Vec<usize> {
    let all = (values / 2).max(1).ilog2() as usize;
    (0..matrices).map(|i| (all + matrices - 1 - i) / matrices).collect()
}

/// `R`: the order of values in slots between CtoS and StoC. Each half of 2n values is bit-reversed on its own: value k
/// of a half is in slot `order(k)` of that half. It is its own inverse. `half`
/// is a power of two, and divides the number of values.
pub fn slot_order<T: Copy>(values: &[T], half: usize) -> Vec<T> {
    let shift = usize::BITS - half.ilog2();
    let turned = |k: usize| if half == 1 { 0 } else { k.reverse_bits() >> shift };
    values.chunks(half).flat_map(|part| (0..part.len()).map(move |k| part[turned(k)])).collect()
}

impl Layout {
    /// n.
    fn half(&self) -> usize {
        self.values / 2
    }

    /// Whether a value is in every coefficient: CtoS then gives two ciphertexts.
    pub fn dense(&self) -> bool {
        self.values == 2 * self.slots
    }

    fn check(&self) -> Result<(), LayoutError> {
        let (slots, values) = (self.slots, self.values);
        if !values.is_power_of_two() || !slots.is_power_of_two() || values < 4 || values > 2 * slots {
            return Err(LayoutError::Values { values, slots });
        }
        let needed = self.half().ilog2() as usize;
        if self.layers.contains(&0) || self.layers.iter().sum::<usize>() != needed {
            return Err(LayoutError::Layers { layers: self.layers.clone(), needed });
        }
        Ok(())
    }

    /// CtoS: from z to `factor`·R·w/2, in n slots if dense, or else in the first half of 2n. (The half makes the real
    /// part of v + conjugate(v).) The factor is positive, and spread evenly over the matrices.
    pub fn to_slots(&self, factor: f64) -> Result<Fourier, LayoutError> {
        self.check()?;
        let n = self.half();
        let each = (factor / 2.0).powf(1.0 / self.layers.len() as f64);
        let mut block = n;
        let mut matrices = Vec::new();
        for &count in &self.layers {
            let mut product = Diagonals::one(n);
            for _ in 0..count {
                product = inverse_layer(n, block).times(&product);
                block /= 2;
            }
            matrices.push(product.scaled(each));
        }
        if let (false, Some(last)) = (self.dense(), matrices.last_mut()) {
            *last = Diagonals {
                slots: 2 * n,
                by_rotation: std::mem::take(&mut last.by_rotation)
                    .into_iter()
                    .map(|(rotation, mut diagonal)| {
                        diagonal.resize(2 * n, Complex::ZERO);
                        // What is rotated repeats with period n: so to the right remains to the right.
                        (if rotation > n / 2 { rotation + n } else { rotation }, diagonal)
                    })
                    .collect(),
            };
        }
        Ok(self.split(matrices))
    }

    /// StoC: from R·w to `factor`·z in n slots. The factor is positive.
    pub fn to_coefficients(&self, factor: f64) -> Result<Fourier, LayoutError> {
        self.check()?;
        let n = self.half();
        let each = factor.powf(1.0 / self.layers.len() as f64);
        let mut block = 2;
        let mut matrices = Vec::new();
        for &count in &self.layers {
            let mut product = Diagonals::one(n);
            for _ in 0..count {
                product = layer(n, block).times(&product);
                block *= 2;
            }
            matrices.push(product.scaled(each));
        }
        Ok(self.split(matrices))
    }

    fn split(&self, matrices: Vec<Diagonals>) -> Fourier {
        Fourier { matrices: matrices.iter().map(|m| m.split(self.giant_cost, self.key_cost)).collect() }
    }
}

/// ω_j for a block of m.
fn twiddles(m: usize) -> Vec<Complex> {
    let mut power = 1;
    (0..m / 2)
        .map(|_| {
            let root = Complex::root(power, 4 * m);
            power = power * 5 % (4 * m);
            root
        })
        .collect()
}

/// L_m on n slots.
fn layer(n: usize, m: usize) -> Diagonals {
    let twiddles = twiddles(m);
    butterflies(n, m, |j| [Complex::ONE, twiddles[j], Complex::ONE, -twiddles[j]])
}

/// L_m^-1 on n slots.
fn inverse_layer(n: usize, m: usize) -> Diagonals {
    let half = Complex::new(0.5, 0.0);
    let twiddles: Vec<_> = twiddles(m).into_iter().map(|t| t.conjugate().scaled(0.5)).collect();
    butterflies(n, m, |j| [half, half, twiddles[j], -twiddles[j]])
}

/// [a, b, c, d] for j: out[j] = a·in[j] + b·in[j + m/2], out[j + m/2] = c·in[j] + d·in[j + m/2].
fn butterflies(n: usize, m: usize, entries: impl Fn(usize) -> [Complex; 4]) -> Diagonals {
    let mut made = Diagonals { slots: n, by_rotation: BTreeMap::new() };
    let half = m / 2;
    for (begin, j) in (0..n).step_by(m).flat_map(|begin| (0..half).map(move |j| (begin, j))) {
        let [a, b, c, d] = entries(j);
        let (upper, lower) = (begin + j, begin + j + half);
        made.add(upper, upper, a);
        made.add(upper, lower, b);
        made.add(lower, upper, c);
        made.add(lower, lower, d);
    }
    made
}
