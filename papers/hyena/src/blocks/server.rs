//! Steps 4 and 5 of a layer of blocks, at the server.

use jaguar_ring::he::rns::{Ciphertext, Poly, Ring, Values};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::packing::{BlockPacking, Term};
use crate::server::{Keys, ServerLayer, factor, sum};

impl ServerLayer {
    /// The plaintext of a term.
    fn block_plaintext(
        &self,
        ring: &Ring,
        packing: &BlockPacking,
        block: usize,
        giant: usize,
        term: Term,
    ) -> Poly<Values> {
        let tools = &self.fixed.tools;
        let weight = |out: usize, channel: usize, tap: usize| self.weight(out, channel, tap);
        let places = packing.weights(tools.plain.modulus(), block, giant, term, weight);
        factor(ring, tools, Zeroizing::new(places))
    }

    /// The plaintexts of an output block, by giant step, then term.
    pub(crate) fn blocks_encoded(
        &self,
        ring: &Ring,
        packing: &BlockPacking,
        block: usize,
    ) -> Vec<Poly<Values>> {
        let terms = packing.terms(block).into_iter();
        let terms = terms.flat_map(|(giant, terms)| terms.into_iter().map(move |term| (giant, term)));
        terms.map(|(giant, term)| self.block_plaintext(ring, packing, block, giant, term)).collect()
    }

    /// Step 5 for one output block: `inputs` are by input block, then baby step.
    pub(crate) fn blocks_evaluated(
        &self,
        ring: &Ring,
        keys: &Keys,
        packing: &BlockPacking,
        inputs: &[Vec<Ciphertext<Values>>],
        block: usize,
    ) -> Ciphertext<Values> {
        let steps: Vec<Vec<usize>> =
            (0..packing.in_blocks()).map(|input| packing.baby_steps(input)).collect();
        let turned = |(input, baby): Term| {
            let at = steps[input].binary_search(&baby).expect("every baby step of a term is taken");
            &inputs[input][at]
        };
        let kept = self.plaintexts.get(block);
        // With where each giant step's plaintexts begin.
        let mut first = 0;
        let giants: Vec<(usize, Vec<Term>, usize)> = (packing.terms(block).into_iter())
            .map(|(giant, terms)| {
                first += terms.len();
                (giant, terms.clone(), first - terms.len())
            })
            .collect();
        let giant = |(giant, terms, first): &(usize, Vec<Term>, usize)| {
            let mut total = Ciphertext { a: ring.zero(), b: ring.zero() };
            for (i, &term) in terms.iter().enumerate() {
                match kept {
                    Some(kept) => total.multiply_add(ring, turned(term), &kept[first + i]),
                    None => {
                        let plaintext = self.block_plaintext(ring, packing, block, *giant, term);
                        total.multiply_add(ring, turned(term), &plaintext);
                    }
                }
            }
            match *giant {
                0 => total,
                giant => total.apply(ring, keys.of(packing.element(giant))),
            }
        };
        sum(ring, giants.par_iter().map(giant))
    }
}
