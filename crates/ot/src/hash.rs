//! The hash that makes pads of correlated OTs.
//!
//! H(i, x) = π(π(x) ⊕ i) ⊕ π(x), with π = AES-128 under a fixed public key: "TMMO" of Guo, Katz, Wang and
//! Yu, *Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers*, S&P 2020 (ePrint
//! 2019/074, Section 7.4): tweakable circular correlation robust when π is modelled as a random permutation.
//! So H(i, q ⊕ v·Δ), for a secret Δ and public v ≠ 0, looks random to who knows q and i, provided no pair of
//! tweak and input is used for two purposes: **the caller never repeats a tweak under the same Δ**, except for
//! the inputs of one tweak group, which must differ from each other by distinct multiples of Δ.
//!
//! The hash without the tweak is not enough: equal inputs would give equal pads.

use crate::Block;
use crate::aes::{Kernel, Key};

/// The fixed key of π: the first 128 bits of the fractional part of π, so that nobody chose it.
const PI_KEY: [u8; 16] = 0x243f_6a88_85a3_08d3_1319_8a2e_0370_7344_u128.to_be_bytes();

/// The tweakable circular correlation robust hash, ready to use. Cheap to make, cheaper to share.
#[derive(Clone)]
pub struct Tccr {
    key: Key,
}

impl Default for Tccr {
    fn default() -> Self {
        Self::new()
    }
}

impl Tccr {
    /// The hash under the fixed public key.
    pub fn new() -> Self {
        Self { key: Key::new(Block::from_bytes(PI_KEY)) }
    }

    /// Replaces every `x[j]` by H(`first` + ⌊j / 2^`log_group`⌋, `x[j]`): the tweak counts up once per group
    /// of 2^`log_group` inputs (0 for one tweak each). The sum is taken in the low 64 bits of the tweak, the
    /// high 64 bits are the caller's domain.
    pub fn hash(&self, first: u128, log_group: u32, x: &mut [Block]) {
        self.key.tccr(first, log_group, x);
    }

    /// The instructions in use, for reports.
    pub fn kernel(&self) -> &'static str {
        Kernel::best().name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tweak_counts_by_groups() {
        let hash = Tccr::new();
        let x: Vec<Block> = (0..24u128).map(|i| Block(i * 0x1234_5678_9abc_def0_1111)).collect();
        let first = 9u128 << 64 | u128::from(u64::MAX - 1);
        let mut all = x.clone();
        hash.hash(first, 2, &mut all);
        for j in 0..24 {
            let low = (u64::MAX - 1).wrapping_add(j as u64 / 4);
            let mut one = [x[j]];
            hash.hash(9 << 64 | u128::from(low), 0, &mut one);
            assert!(all[j] == one[0]);
        }
    }

    #[test]
    fn equal_inputs_give_different_pads() {
        let mut x = [Block(5); 8];
        Tccr::new().hash(0, 0, &mut x);
        for i in 0..8 {
            assert!(x[..i].iter().all(|y| *y != x[i]));
        }
    }
}
