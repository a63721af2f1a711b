//! Sums of ciphertexts times small numbers, in 128 bits and reduced once (Hyena, section 3.2.2).

use zeroize::Zeroizing;

use super::{Ciphertext, Poly, Ring, Values};

/// Residues that are summed up side by side: their sums stay in the first cache.
const CHUNK: usize = 256;

/// Bits of a sum, its sign aside.
const SUM_BITS: u32 = 127;

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
        let bits = self.moduli().map(|m| m.bits()).max().unwrap_or(0);
        let count_bits = usize::BITS - terms.len().leading_zeros();
        assert!(bits + weight_bits + count_bits <= SUM_BITS, "sums that do not fit 128 bits");
        assert!(weights.iter().all(|row| row.len() == terms.len()), "a weight for each term");
        assert!(terms.iter().all(|term| term.residues().len() == self.words()), "terms of this ring");
        let mut sums: Vec<Zeroizing<Vec<u64>>> =
            weights.iter().map(|_| Zeroizing::new(vec![0; self.words()])).collect();
        let mut wide = Zeroizing::new([0i128; CHUNK]);
        for (limb, modulus) in self.moduli().enumerate() {
            let carried = modulus.factor(((1u128 << 64) % u128::from(modulus.value())) as u64);
            let range = limb * self.n()..(limb + 1) * self.n();
            for start in range.clone().step_by(CHUNK) {
                let chunk = start..(start + CHUNK).min(range.end);
                let wide = &mut wide[..chunk.len()];
                for (sum, row) in sums.iter_mut().zip(weights) {
                    wide.fill(0);
                    for (term, &weight) in terms.iter().zip(row) {
                        for (wide, &x) in wide.iter_mut().zip(&term.residues()[chunk.clone()]) {
                            // A residue has at most 60 bits.
                            *wide += i128::from(x as i64) * i128::from(weight);
                        }
                    }
                    for (sum, &wide) in sum[chunk.clone()].iter_mut().zip(&*wide) {
                        let (high, low) = ((wide >> 64) as i64, wide as u64);
                        let high = modulus.mul_factor(modulus.reduce_signed(high), carried);
                        *sum = modulus.add(high, modulus.reduce(low));
                    }
                }
            }
        }
        sums.into_iter().map(Poly::new).collect()
    }
}
