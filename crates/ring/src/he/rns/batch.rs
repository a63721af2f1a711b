//! SIMD slots: N numbers modulo a prime t that is 1 modulo 2N, as the values of one polynomial (Smart and Vercauteren,
//! Designs, Codes and Cryptography 71, 2014).

use crate::Kernel;
use crate::modular::Ntt;

use crate::he::params::ParameterError;

/// Encodes and decodes slots. They are two *rows* of N/2:
///
/// ```text
/// row 0, slot i   the value at zeta^(3^i)         zeta a primitive 2N-th root of unity modulo t
/// row 1, slot i   the value at zeta^(-3^i)
/// ```
///
/// Sums and products of polynomials are sums and products slot by slot. The automorphism of
/// [`rotation(n, r)`](rotation) moves what is in slot i + r of a row into slot i, in both rows and around their ends; that
/// of [`row_swap(n)`](row_swap) exchanges the rows.
#[derive(Clone, Debug)]
pub struct Batch {
    ntt: Ntt,
    /// By slot, row by row: which value it is.
    places: Vec<u32>,
}

impl Batch {
    /// Slots of polynomials of N coefficients modulo `t`.
    ///
    /// # Errors
    /// If t is no prime of up to 60 bits that is 1 modulo 2N.
    pub fn new(n: usize, t: u64) -> Result<Self, ParameterError> {
        let ntt = Ntt::new(n, t).ok_or(ParameterError::Batch { t, ring_dim: n })?;
        let powers = || std::iter::successors(Some(1), move |e| Some(3 * e % (2 * n))).take(n / 2);
        let exponents = powers().chain(powers().map(|e| 2 * n - e));
        let places = exponents.map(|e| ntt.index(e) as u32).collect();
        Ok(Self { ntt, places })
    }

    /// The same, computed on `kernel`.
    #[must_use]
    pub fn on(self, kernel: Kernel) -> Self {
        Self { ntt: self.ntt.on(kernel), ..self }
    }

    /// N, the number of slots.
    pub fn slots(&self) -> usize {
        self.places.len()
    }

    /// The polynomial modulo t whose slots are `values`, row by row. Fewer than N values leave zeros in the others.
    ///
    /// # Panics
    /// If there are more.
    pub fn encode(&self, values: &[u64]) -> Vec<u64> {
        assert!(values.len() <= self.slots(), "{} values in {} slots", values.len(), self.slots());
        let mut poly = vec![0; self.slots()];
        for (&value, &place) in values.iter().zip(&self.places) {
            poly[place as usize] = self.ntt.modulus().reduce(value);
        }
        self.ntt.backward(&mut poly);
        poly
    }

    /// The slots of a polynomial modulo t, row by row.
    ///
    /// # Panics
    /// If it has not N coefficients.
    pub fn decode(&self, poly: &[u64]) -> Vec<u64> {
        let mut values: Vec<u64> = poly.iter().map(|&c| self.ntt.modulus().reduce(c)).collect();
        self.ntt.forward(&mut values);
        self.places.iter().map(|&place| values[place as usize]).collect()
    }
}

/// The automorphism that rotates both rows of N/2 slots to the left by `steps`, to the right if they are negative.
///
/// # Panics
/// If N is no power of two of at least 4.
pub fn rotation(n: usize, steps: i64) -> usize {
    assert!(n.is_power_of_two() && n >= 4, "N is a power of two of at least 4, not {n}");
    let (mut steps, mut power, mut element) = (steps.rem_euclid(n as i64 / 2), 3, 1);
    while steps > 0 {
        if steps % 2 == 1 {
            element = element * power % (2 * n);
        }
        power = power * power % (2 * n);
        steps /= 2;
    }
    element
}

/// The automorphism that exchanges the two rows.
pub fn row_swap(n: usize) -> usize {
    2 * n - 1
}
