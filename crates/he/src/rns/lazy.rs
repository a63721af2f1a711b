//! Sums of ciphertexts times small numbers, in 128 bits and reduced once (Hyena, section 3.2.2).

use jaguar_ring::modular::slices;

use super::{Ciphertext, Poly, Ring, Values};

impl Ring {
    /// For every row of `weights`, `Σ weights[row][i]·terms[i]`. Products are added in 128 bits and reduced once,
    /// behind the last one. Time and memory access depend on the shape alone.
    ///
    /// # Panics
    /// If a row has not a weight for each term, a term is one of another ring, or a sum may not fit 128 bits: 60
    /// bits of a residue, those of `weight_bits` and those of the number of terms. Every weight must be below
    /// `2^weight_bits` in absolute value.
    pub fn weighted_sums(
        &self,
        terms: &[&Ciphertext<Values>],
        weights: &[Vec<i64>],
        weight_bits: u32,
    ) -> Vec<Ciphertext<Values>> {
        let half = |of: fn(&Ciphertext<Values>) -> &Poly<Values>| {
            let polys: Vec<&Poly<Values>> = terms.iter().map(|term| of(term)).collect();
            self.weighted_sums_of(&polys, weights, weight_bits)
        };
        let (a, b) = (half(|term| &term.a), half(|term| &term.b));
        a.into_iter().zip(b).map(|(a, b)| Ciphertext { a, b }).collect()
    }

    /// [`weighted_sums`](Self::weighted_sums) of polynomials.
    fn weighted_sums_of(
        &self,
        terms: &[&Poly<Values>],
        weights: &[Vec<i64>],
        weight_bits: u32,
    ) -> Vec<Poly<Values>> {
        assert!(weights.iter().all(|row| row.len() == terms.len()), "a weight for each term");
        assert!(terms.iter().all(|term| term.residues().len() == self.words()), "terms of this ring");
        let by_term: Vec<i64> = (0..terms.len()).flat_map(|i| weights.iter().map(move |row| row[i])).collect();
        let mut sums: Vec<Poly<Values>> = weights.iter().map(|_| self.zero()).collect();
        let mut limbs: Vec<_> = sums.iter_mut().map(|sum| self.limbs_mut(sum)).collect();
        for limb in 0..self.limbs() {
            let terms: Vec<&[u64]> = terms.iter().map(|term| self.limb_of(term, limb)).collect();
            let mut sums: Vec<&mut [u64]> = limbs.iter_mut().filter_map(|limbs| Some(limbs.next()?.1)).collect();
            let modulus = self.moduli().nth(limb).expect("a limb of this ring");
            slices::weighted_sums(self.kernel(), modulus, &terms, &by_term, weight_bits, &mut sums);
        }
        drop(limbs);
        sums
    }
}
