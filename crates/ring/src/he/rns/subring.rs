//! Plaintexts of the subring Z\[X^(N/D)\], and sums of ciphertexts times them.
//!
//! Such a plaintext has D coefficients. Its slots repeat: in a row, slot i holds what slot i + D/2 holds. In values it is constant on
//! each of D stretches of N/D words, for X^(N/D) has D values, and [`Ntt`](crate::modular::Ntt) has equal ones side by side. So a
//! product with it is a product with one residue on each stretch, and what is stored of it are D residues for each prime.

use crate::modular::{LENGTHS, Ntt, slices};
use zeroize::Zeroizing;

use super::{Ciphertext, PlainModulus, Poly, Ring, Values};
use crate::he::params::ParameterError;

/// How plaintexts of one subring are made, and where their slots are.
pub struct Subring {
    /// Modulo t, of length D or the shortest that there is: its first D roots are those of length D.
    plain: Ntt,
    /// By slot of the subring, row by row: which value it is.
    places: Vec<u32>,
}

/// Known polynomials of a subring, many side by side, that ciphertexts are multiplied by.
pub struct SubringFactors {
    /// By prime, then stretch, then polynomial.
    residues: Zeroizing<Vec<u64>>,
    /// D.
    dimension: usize,
    /// Residues of a prime's stretch: of the polynomials, and unused ones.
    width: usize,
}

impl Subring {
    /// That of `dimension` D, of plaintexts modulo the prime `t` in rings of N.
    ///
    /// # Errors
    /// If t is no prime of up to 60 bits that is 1 modulo 2D and 32.
    ///
    /// # Panics
    /// If D is neither 1 nor a power of two from 4 to N/8.
    pub fn new(ring: &Ring, t: u64, dimension: usize) -> Result<Self, ParameterError> {
        let (n, d) = (ring.n(), dimension);
        let fits = d == 1 || (d.is_power_of_two() && d >= 4 && d * slices::BLOCK <= n);
        assert!(fits, "a subring of dimension 1, or 4 to N/8, not {d}");
        let len = d.max(*LENGTHS.start());
        let plain = Ntt::new(len, t).ok_or(ParameterError::Batch { t, ring_dim: n })?.on(ring.kernel());
        // X^(N/D) has the same value at all powers of zeta that are alike modulo 2D.
        let powers = || std::iter::successors(Some(1), move |e| Some(3 * e % (2 * d))).take(d / 2);
        let exponents = powers().chain(powers().map(|e| 2 * d - e));
        let places = exponents.map(|e| (plain.index(e) / (len / d)) as u32).collect();
        Ok(Self { plain, places: if d == 1 { vec![0] } else { places } })
    }

    /// D.
    pub fn dimension(&self) -> usize {
        self.places.len()
    }

    /// By slot, row by row, D/2 in each (one in all, if D is 1): in which row of what [`encode`](Self::encode) takes it is.
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// Polynomials from their slots modulo t: D rows of `width` words each, a column for each polynomial. Their coefficients are
    /// the numbers of least absolute value.
    ///
    /// # Panics
    /// If there are not D rows, or `width` is no multiple of 8.
    pub fn encode(
        &self,
        ring: &Ring,
        plain: &PlainModulus,
        slots: &mut [u64],
        width: usize,
    ) -> SubringFactors {
        assert_eq!(slots.len(), self.dimension() * width, "a row for each slot");
        self.plain.backward_rows(slots, width);
        let centred = slices::Digits::new(plain.modulus(), plain.modulus().bits());
        let mut residues = Zeroizing::new(vec![0; ring.limbs() * slots.len()]);
        for (limb, residues) in residues.chunks_exact_mut(slots.len()).enumerate() {
            centred.take(ring.kernel(), ring.ntt(limb).modulus(), slots, 0, residues);
            ring.ntt(limb).forward_rows(residues, width);
        }
        SubringFactors { residues, dimension: self.dimension(), width }
    }
}

impl Ring {
    /// `sums[row] += Σ factors[i·rows + row]·terms[i]`, rows being the number of sums; further factors are not used. Time and memory
    /// access depend on the shape alone.
    ///
    /// # Panics
    /// If there is not a factor for each row and term, or any of them is of another ring.
    pub fn add_subring_products(
        &self,
        terms: &[&Ciphertext<Values>],
        factors: &SubringFactors,
        sums: &mut [Ciphertext<Values>],
    ) {
        let each = factors.dimension * factors.width;
        assert_eq!(factors.residues.len(), self.limbs() * each, "factors of this ring");
        let (mut a, mut b): (Vec<_>, Vec<_>) =
            sums.iter_mut().map(|sum| (self.limbs_mut(&mut sum.a), self.limbs_mut(&mut sum.b))).unzip();
        type Half = fn(&Ciphertext<Values>) -> &Poly<Values>;
        for (limb, residues) in factors.residues.chunks_exact(each).enumerate() {
            for (sums, half) in [(&mut a, (|term| &term.a) as Half), (&mut b, |term| &term.b)] {
                let terms: Vec<&[u64]> = terms.iter().map(|term| self.limb_of(half(term), limb)).collect();
                let mut sums: Vec<&mut [u64]> =
                    sums.iter_mut().filter_map(|limbs| Some(limbs.next()?.1)).collect();
                let modulus = self.ntt(limb).modulus();
                slices::weighted_parts(self.kernel(), modulus, &terms, residues, factors.width, &mut sums);
            }
        }
    }
}
