//! Sums of ciphertexts times small numbers, in 128 bits and reduced once (Hyena, section 3.2.2).

use crate::modular::slices;
use zeroize::Zeroizing;

use super::{Ciphertext, Poly, Ring, Values};

/// Words of a sum that are made at once before patterns meet them: those of some tens of rows stay in the second cache.
const PIECE: usize = 1024;

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

    /// As [`weighted_sums`](Self::weighted_sums), with `patterns.len() + 1` rows for each result: `scale` times the first of
    /// their sums, plus each further one times its pattern, a known polynomial.
    ///
    /// # Panics
    /// As `weighted_sums`, and if there are rows left over or a pattern is one of another ring.
    pub fn weighted_sums_by_patterns(
        &self,
        terms: &[&Ciphertext<Values>],
        weights: &[Vec<i64>],
        weight_bits: u32,
        scale: i64,
        patterns: &[Poly<Values>],
    ) -> Vec<Ciphertext<Values>> {
        let half = |of: fn(&Ciphertext<Values>) -> &Poly<Values>| {
            let polys: Vec<&Poly<Values>> = terms.iter().map(|term| of(term)).collect();
            self.by_patterns_of(&polys, weights, weight_bits, scale, patterns)
        };
        let (a, b) = (half(|term| &term.a), half(|term| &term.b));
        a.into_iter().zip(b).map(|(a, b)| Ciphertext { a, b }).collect()
    }

    /// [`weighted_sums_by_patterns`](Self::weighted_sums_by_patterns) of polynomials. Sums are made piece by piece and never
    /// written down as a whole.
    fn by_patterns_of(
        &self,
        terms: &[&Poly<Values>],
        weights: &[Vec<i64>],
        weight_bits: u32,
        scale: i64,
        patterns: &[Poly<Values>],
    ) -> Vec<Poly<Values>> {
        let rows = patterns.len() + 1;
        assert!(weights.len().is_multiple_of(rows), "a row for each pattern and one more");
        patterns.iter().for_each(|pattern| self.check(pattern));
        let weights_by_term = self.by_term(terms, weights);
        let mut out: Vec<Poly<Values>> = (0..weights.len() / rows).map(|_| self.zero()).collect();
        let mut limbs: Vec<_> = out.iter_mut().map(|poly| self.limbs_mut(poly)).collect();
        let (kernel, piece) = (self.kernel(), PIECE.min(self.n()));
        let mut pieces = Zeroizing::new(vec![0; weights.len() * piece]);
        for limb in 0..self.limbs() {
            let modulus = self.ntt(limb).modulus();
            let factor = modulus.factor(modulus.reduce_signed(scale));
            let mut out: Vec<&mut [u64]> =
                limbs.iter_mut().filter_map(|limbs| Some(limbs.next()?.1)).collect();
            for range in (0..self.n()).step_by(piece).map(|start| start..start + piece) {
                let terms: Vec<&[u64]> =
                    terms.iter().map(|term| &self.limb_of(term, limb)[range.clone()]).collect();
                let mut sums: Vec<&mut [u64]> = pieces.chunks_exact_mut(piece).collect();
                slices::weighted_sums(kernel, modulus, &terms, &weights_by_term, weight_bits, &mut sums);
                for (out, sums) in out.iter_mut().zip(sums.chunks_exact_mut(rows)) {
                    let out = &mut out[range.clone()];
                    out.copy_from_slice(sums[0]);
                    slices::multiply_factor(kernel, modulus, out, factor);
                    for (sum, pattern) in sums[1..].iter().zip(patterns) {
                        let pattern = &self.limb_of(pattern, limb)[range.clone()];
                        slices::multiply_add(kernel, modulus, out, sum, pattern);
                    }
                }
            }
        }
        drop(limbs);
        out
    }

    /// Weights by term, then row.
    fn by_term(&self, terms: &[&Poly<Values>], weights: &[Vec<i64>]) -> Vec<i64> {
        assert!(weights.iter().all(|row| row.len() == terms.len()), "a weight for each term");
        assert!(terms.iter().all(|term| term.residues().len() == self.words()), "terms of this ring");
        (0..terms.len()).flat_map(|i| weights.iter().map(move |row| row[i])).collect()
    }

    /// [`weighted_sums`](Self::weighted_sums) of polynomials.
    fn weighted_sums_of(
        &self,
        terms: &[&Poly<Values>],
        weights: &[Vec<i64>],
        weight_bits: u32,
    ) -> Vec<Poly<Values>> {
        let by_term = self.by_term(terms, weights);
        let mut sums: Vec<Poly<Values>> = weights.iter().map(|_| self.zero()).collect();
        let mut limbs: Vec<_> = sums.iter_mut().map(|sum| self.limbs_mut(sum)).collect();
        for limb in 0..self.limbs() {
            let terms: Vec<&[u64]> = terms.iter().map(|term| self.limb_of(term, limb)).collect();
            let mut sums: Vec<&mut [u64]> =
                limbs.iter_mut().filter_map(|limbs| Some(limbs.next()?.1)).collect();
            let modulus = self.ntt(limb).modulus();
            slices::weighted_sums(self.kernel(), modulus, &terms, &by_term, weight_bits, &mut sums);
        }
        drop(limbs);
        sums
    }
}
