//! From slots to coefficients and back: the canonical embedding (Cheon, Kim, Kim, Song, ASIACRYPT 2017, section 3.2).
//!
//! A real polynomial m of degree below 2n in Y = X^(N/2n) has the n slots `z_j = m(ζ^(5^j))`, ζ = exp(2πi/4n). As
//! ζ^(n·5^j) = i,
//!
//! ```text
//! z_j = Σ_{k<n} c_k·ζ^(k·5^j),   c_k = m_k + i·m_(k+n)
//! ```
//!
//! The exponents 5^j are all 1 + 4t modulo 4n. So slot j is value t of the Fourier transform of `c_k·ζ^k`: transforms
//! of n complex numbers and a permutation. In double precision, errors are about 2^-50 of the largest slot.

use crate::Complex;

/// Tables for up to 2^15 slots.
pub(crate) struct Encoder {
    /// `exp(2πi·k/4n)` for the largest n.
    roots: Vec<Complex>,
}

impl Encoder {
    /// For up to `most` slots, a power of two.
    pub(crate) fn new(most: usize) -> Self {
        Self { roots: (0..4 * most).map(|k| Complex::root(k, 4 * most)).collect() }
    }

    /// `exp(2πi·k/of)`, `of` being a power of two of up to 4 times the most slots.
    fn root(&self, k: usize, of: usize) -> Complex {
        self.roots[(k & (of - 1)) * (self.roots.len() / of)]
    }

    /// 2n coefficients of n slots.
    pub(crate) fn coefficients(&self, slots: &[Complex]) -> Vec<f64> {
        let n = slots.len();
        let mut values = vec![Complex::ZERO; n];
        for (place, &slot) in places(n).zip(slots) {
            values[place] = slot;
        }
        self.transform(&mut values, true);
        let scale = 1.0 / n as f64;
        let mut coefficients = vec![0.0; 2 * n];
        for (k, &value) in values.iter().enumerate() {
            let c = (value * self.root(k, 4 * n).conjugate()).scaled(scale);
            (coefficients[k], coefficients[k + n]) = (c.re, c.im);
        }
        coefficients
    }

    /// n slots of 2n coefficients.
    pub(crate) fn slots(&self, coefficients: &[f64]) -> Vec<Complex> {
        let n = coefficients.len() / 2;
        let twisted = |k: usize| Complex::new(coefficients[k], coefficients[k + n]) * self.root(k, 4 * n);
        let mut values: Vec<Complex> = (0..n).map(twisted).collect();
        self.transform(&mut values, false);
        places(n).map(|place| values[place]).collect()
    }

    /// `x_t = Σ_k x_k·exp(±2πi·k·t/n)`, minus if `back`, in place.
    fn transform(&self, x: &mut [Complex], back: bool) {
        let n = x.len();
        for i in 0..n {
            let j = if n > 1 { i.reverse_bits() >> (usize::BITS - n.trailing_zeros()) } else { 0 };
            if i < j {
                x.swap(i, j);
            }
        }
        let mut half = 1;
        while half < n {
            let stride = self.roots.len() / (2 * half);
            for block in x.chunks_exact_mut(2 * half) {
                let (left, right) = block.split_at_mut(half);
                for (k, (a, b)) in left.iter_mut().zip(right).enumerate() {
                    let root = self.roots[k * stride];
                    let product = *b * if back { root.conjugate() } else { root };
                    (*a, *b) = (*a + product, *a - product);
                }
            }
            half *= 2;
        }
    }
}

/// By slot j of n: the t with 5^j = 1 + 4t modulo 4n.
fn places(n: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), move |power| Some(power * 5 % (4 * n))).map(|power| power / 4).take(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots are values of the polynomial at the powers of ζ that the definition says.
    #[test]
    fn slots_are_values() {
        let encoder = Encoder::new(64);
        for n in [1, 2, 8, 64] {
            let coefficients: Vec<f64> = (0..2 * n).map(|k| ((k * k + 3) % 17) as f64 - 8.0).collect();
            let slots = encoder.slots(&coefficients);
            let mut power = 1;
            for slot in &slots {
                let terms =
                    coefficients.iter().enumerate().map(|(k, &c)| Complex::root(k * power, 4 * n).scaled(c));
                assert!((*slot - terms.sum()).abs() < 1e-10, "{n} slots");
                power = power * 5 % (4 * n);
            }
            let back = encoder.coefficients(&slots);
            assert!(back.iter().zip(&coefficients).all(|(a, b)| (a - b).abs() < 1e-12), "{n} slots");
        }
    }

    #[test]
    fn precision_is_that_of_the_documentation() {
        let encoder = Encoder::new(1 << 15);
        let slots: Vec<Complex> = (0..1 << 15).map(|j| Complex::root(j * j % 9973, 9973)).collect();
        let back = encoder.slots(&encoder.coefficients(&slots));
        let worst = back.iter().zip(&slots).map(|(&a, &b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 2f64.powi(-48), "2^{}", worst.log2());
    }
}
