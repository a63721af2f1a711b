//! The transform of one length modulo one prime.

use super::butterflies::Roots;
use super::vector;
use super::{Factor, Modulus};
use crate::kernel::Kernel;
use std::ops::RangeInclusive;

/// Shortest and longest transform.
pub const LENGTHS: RangeInclusive<usize> = 16..=65536;

/// The negacyclic transform: a polynomial modulo `X^n + 1` from its coefficients to its values at the odd powers of a
/// primitive 2n-th root of unity psi, and back.
///
/// Value k is that at `psi^(2 rev(k) + 1)`, rev being the reversal of `log2 n` bits ([`exponent`](Self::exponent)).
#[derive(Clone, Debug)]
pub struct Ntt {
    kernel: Kernel,
    modulus: Modulus,
    /// `psi^rev(i)`.
    forward: Roots,
    /// `psi^-rev(i)`.
    backward: Roots,
    /// 1/n.
    scale: Factor,
}

impl Ntt {
    /// Tables for length `n` modulo `prime`. `None` if n is no power of two in [`LENGTHS`], or `prime` no prime that is
    /// 1 modulo 2n. The root psi is the power of the least number that gives one: the same on every machine.
    pub fn new(n: usize, prime: u64) -> Option<Self> {
        let fits = n.is_power_of_two() && LENGTHS.contains(&n);
        if !fits || prime % (2 * n as u64) != 1 || !super::is_prime(prime) {
            return None;
        }
        let modulus = Modulus::new(prime);
        // Half of all residues are no squares, and the power of one of those has the full order.
        let psi = (2..)
            .map(|base| modulus.power_vt(base, (prime - 1) / (2 * n as u64)))
            .find(|&root| modulus.power_vt(root, n as u64) == prime - 1)?;
        let roots = |psi: u64| -> Roots {
            let mut powers = vec![1; n];
            for i in 1..n {
                powers[i] = modulus.mul(powers[i - 1], psi);
            }
            let factors = (0..n).map(|i| modulus.factor(powers[reversed(i, n)]));
            let (values, quotients) = factors.map(|factor| (factor.value, factor.quotient)).unzip();
            Roots { values, quotients }
        };
        Some(Self {
            kernel: Kernel::SCALAR,
            modulus,
            forward: roots(psi),
            backward: roots(modulus.inverse(psi)?),
            scale: modulus.factor(modulus.inverse(n as u64)?),
        })
    }

    /// The same, computed on `kernel`.
    #[must_use]
    pub fn on(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }

    /// n: how many residues are transformed together.
    pub fn len(&self) -> usize {
        self.forward.values.len()
    }

    /// Never: transforms have lengths from [`LENGTHS`].
    pub fn is_empty(&self) -> bool {
        self.forward.values.is_empty()
    }

    /// p, as a modulus to calculate with.
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// Which power of psi value `k` of a transform belongs to: odd, below 2n.
    pub fn exponent(&self, k: usize) -> usize {
        2 * reversed(k, self.len()) + 1
    }

    /// The value of a transform that belongs to the power `exponent` of psi: the inverse of [`exponent`](Self::exponent).
    ///
    /// # Panics
    /// If `exponent` is even.
    pub fn index(&self, exponent: usize) -> usize {
        assert!(exponent % 2 == 1, "an odd exponent, not {exponent}");
        reversed((exponent % (2 * self.len())) / 2, self.len())
    }

    /// Coefficients to values, in place. Residues below p in and out.
    ///
    /// # Panics
    /// If `data` is not n long.
    pub fn forward(&self, data: &mut [u64]) {
        assert_eq!(data.len(), self.len(), "coefficients of a polynomial");
        vector::forward(self.kernel, &self.modulus, &self.forward, data);
    }

    /// Coefficients to values, of a polynomial that has coefficients before a power of two of them alone: `short`. The first
    /// stages add nothing there and are left out. Residues below p in and out.
    ///
    /// # Panics
    /// If `out` is not n long, or `short` no power of two from 16 to n.
    pub fn forward_short(&self, short: &[u64], out: &mut [u64]) {
        assert_eq!(out.len(), self.len(), "values of a polynomial");
        let fits = short.len().is_power_of_two() && (*LENGTHS.start()..=out.len()).contains(&short.len());
        assert!(fits, "a power of two from 16 to {}, not {} coefficients", out.len(), short.len());
        vector::forward_short(self.kernel, &self.modulus, &self.forward, short, out);
    }

    /// Values to coefficients, in place. Residues below p in and out.
    ///
    /// # Panics
    /// If `data` is not n long.
    pub fn backward(&self, data: &mut [u64]) {
        assert_eq!(data.len(), self.len(), "values of a polynomial");
        vector::backward(self.kernel, &self.modulus, &self.backward, self.scale, data);
    }

    /// Coefficients to values of many polynomials modulo `X^d + 1` side by side, in place: `data` has d rows of `width` words,
    /// row i the coefficients of X^i. Value k is that at the power `exponent` says for length d of `psi^(n/d)`, the root of that
    /// length. Residues below p in and out.
    ///
    /// # Panics
    /// If d is no power of two of up to n, or `width` no multiple of [`BLOCK`](super::slices::BLOCK).
    pub fn forward_rows(&self, data: &mut [u64], width: usize) {
        self.check_rows(data.len(), width);
        vector::forward_rows(self.kernel, &self.modulus, &self.forward, width, data);
    }

    /// Values to coefficients: the inverse of [`forward_rows`](Self::forward_rows).
    ///
    /// # Panics
    /// As `forward_rows`.
    pub fn backward_rows(&self, data: &mut [u64], width: usize) {
        let count = self.check_rows(data.len(), width);
        let scale = self.modulus.inverse(count as u64).expect("a power of two below p");
        let scale = self.modulus.factor(scale);
        vector::backward_rows(self.kernel, &self.modulus, &self.backward, scale, width, data);
    }

    fn check_rows(&self, len: usize, width: usize) -> usize {
        assert!(width > 0 && width.is_multiple_of(super::slices::BLOCK), "whole vectors, not {width} words");
        let count = len / width;
        let fits = count.is_power_of_two() && count <= self.len() && count * width == len;
        assert!(fits, "{len} words in rows of {width}, for tables of length {}", self.len());
        count
    }
}

/// The reversal of the `log2 n` bits of i.
fn reversed(i: usize, n: usize) -> usize {
    i.reverse_bits() >> (usize::BITS - n.trailing_zeros())
}
