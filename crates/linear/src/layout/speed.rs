//! How long a query of a layer takes in one layout or another, about: what [`Layout::blocked`] chooses by.

use super::{Layout, MAX_SECRETS};

/// Lanes of a vector of limbs, and of one of residues.
const LIMB_LANES: usize = 16;
const RESIDUE_LANES: usize = 32;
/// Outputs whose weights are transformed together.
const BLOCK: usize = 16;
/// Limbs and primes that words of 38 bits or so take.
const LIMBS: f64 = 3.0;
const PRIMES: f64 = 5.0;
/// Nanoseconds of a product of a limb and a weight.
const LIMB_PRODUCT: f64 = 0.0038;

impl Layout {
    /// Under how many secrets the layer's tiles are, where they share hints; tile t under number `t mod secrets`.
    pub(crate) fn secrets(&self) -> usize {
        let shares = self.parts > 1 || self.images.count > 1;
        if shares { self.tiles.len().min(MAX_SECRETS) } else { 1 }
    }

    /// Microseconds of both parties for a query of a layer, on one core of one machine (Zen 5). Both parties choose by it,
    /// so it follows from shapes alone; other machines have other constants, and then a choice may cost some time and no more.
    pub(super) fn query_microseconds(&self) -> f64 {
        let tiles = self.tiles.len();
        let secrets = self.secrets();
        let drawn = (tiles.div_ceil(secrets) * self.responses_per_tile()) as f64;
        let [ciphertexts, responses, outputs] =
            [self.ciphertexts(), self.responses(), self.outputs()].map(|count| count as f64);
        // The server draws and transforms u once for all tiles of a hint; the rest is one product of either party.
        let offline = 24.0 * ciphertexts + 2.7 * drawn + 4.8 * responses + 0.004 * outputs;
        let online: f64 = self.tiles.iter().map(|tile| self.product(self.export_len(tile))).sum();
        offline + 12.0 * ciphertexts + online + 0.003 * outputs
    }

    /// What the online product of a tile with so many wanted coefficients a part takes, of the time of its multiply-adds by limbs.
    pub(crate) fn online_share(&self, len: usize) -> f64 {
        let positions = (self.parts * len.next_multiple_of(LIMB_LANES)) as f64;
        let products = positions * (self.terms_per_output() * self.responses_per_tile()) as f64;
        1e3 * self.product(len) / (LIMBS * LIMB_PRODUCT * products)
    }

    /// Microseconds of the online product of a tile with so many wanted coefficients a part: from limbs or, in parts, by frequencies, whatever
    /// is faster. The terms are those of the cost rule of [`jaguar_ring::spectral`], with P = N/b.
    fn product(&self, len: usize) -> f64 {
        let (outs, terms, n) =
            (self.responses_per_tile(), self.terms_per_output() as f64, self.ring_dim as f64);
        let rows = self.ciphertexts_per_tile() as f64;
        let parts = self.parts as f64;
        let positions = parts * len.next_multiple_of(LIMB_LANES) as f64;
        // Every group packs its own inputs.
        let packing = self.spec.groups as f64 * 0.036;
        let limbs = LIMBS * (positions * terms * (outs as f64 * LIMB_PRODUCT + packing) + rows * n * 0.06);
        if self.parts == 1 {
            return limbs / 1e3;
        }
        let stages = parts.log2() + 2.0;
        let lanes = parts * len.next_multiple_of(RESIDUE_LANES) as f64;
        let products = outs.next_multiple_of(8) as f64 * lanes * terms / parts * 0.0042;
        let weights = outs.next_multiple_of(BLOCK) as f64 * terms * stages * 0.0207;
        let back = outs as f64 * lanes * (stages * 0.0195 + 0.05);
        let prepared = rows * n * ((stages + 1.0) * 0.0224 + 0.5);
        limbs.min(PRIMES * (products + weights + back + prepared)) / 1e3
    }
}
