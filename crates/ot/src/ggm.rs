//! Single-point correlated OT: a whole bin of COTs of which exactly one has choice bit 1, by a GGM tree.
//!
//! `v ; (w, α) <- SinglePoint(Δ ; )` with w_j = v_j ⊕ (j = α)·Δ for all j < 2^h; bit 0 of v_j zero, bit 0 of w_j set
//! at j = α only. α is random: it follows from the choice bits of the h COTs that are used up.
//!
//! The *correlated GGM tree* of Guo, Yang, Wang, Zhang, Xie, Liu and Zhao, *Half-Tree: Halving the Cost of Tree
//! Expansion in COT and DPF*, EUROCRYPT 2023 (ePrint 2022/1431, Sections 4 and 5). The sender's root is Δ, with a
//! random left child; every further node x has the children H(x) and x ⊕ H(x), so each level sums to Δ and one
//! hash makes two nodes. With K_i the sum of the left nodes of level i (hence K_i ⊕ Δ that of the right ones), the
//! sender sends c_i = q_i ⊕ K_i, and a receiver with (t_i, r_i) learns K_i ⊕ r_i·Δ = c_i ⊕ t_i: the sum of one side,
//! which gives it the sibling of its path. It ends with every leaf but the one at α, where it holds v_α ⊕ Δ, the
//! sum of all others.
//!
//! **The receiver never looks its path up.** It keeps, at the place of the path's node x on every level, x ⊕ Δ, which
//! makes its level sum to zero. Expanding that wrong node like the others keeps the sum zero, so its left and right
//! nodes have the same sum S, and both children of the wrong node are wrong by the same e = c_i ⊕ t_i ⊕ S: the
//! sibling becomes right, and the path's child becomes again what makes the sum zero. So every level
//! is corrected by XORing e at two places 2^i apart, under a comparison mask, and both sides do the same work.
//!
//! H(x) = π(σ(x)) ⊕ σ(x), circular correlation robust for a random permutation π (ePrint 2019/074, Section 7.3). π is
//! AES under a public key that changes with every tree, so that what a peer gains by comparing its guesses of Δ with
//! many trees at once is limited to the h nodes of one tree (the multi-instance argument of Guo, Katz, Wang,
//! Weng and Yu, CRYPTO 2020, ePrint 2019/1168; ideal cipher model).
//!
//! Leaves lie in the order of the bits of their path, the root's choice being the lowest bit of the index.
//!
//! Bytes: 16·h a bin, from sender to receiver. Rounds: none of its own, the sender may run ahead.

use crate::Block;
use crate::aes::{Key, Patch};

/// The sender's part. `q`: the h COT halves; `seed`: fresh randomness; fills the 2^h `leaves` and the h `message`s.
pub(crate) fn send(
    key: &Key,
    delta: Block,
    seed: Block,
    q: &[Block],
    leaves: &mut [Block],
    message: &mut [Block],
) {
    assert!(leaves.len() == 1 << q.len() && message.len() == q.len());
    // 1. Level 1: the children of the root.
    (leaves[0], leaves[1]) = (seed, seed ^ delta);
    message[0] = q[0] ^ seed;
    // 2. Every further level, and the message that lets the receiver follow.
    for i in 1..q.len() {
        let left = key.expand(&mut leaves[..2 << i], Patch::NONE);
        message[i] = q[i] ^ left;
    }
    // 3. Bit 0 of every half is zero by convention.
    key.finish(leaves, Patch::NONE, None);
}

/// The receiver's part. `t`: the h COT halves, with the choice bits in bit 0; fills the 2^h `leaves`, bit 0
/// of which is the choice bit.
pub(crate) fn receive(key: &Key, t: &[Block], message: &[Block], leaves: &mut [Block]) {
    assert!(leaves.len() == 1 << t.len() && message.len() == t.len());
    // 1. Level 1: the children of the root. The path goes where the choice bit does not.
    let first = message[0] ^ t[0];
    (leaves[0], leaves[1]) = (first, first);
    let mut path = u64::from(!t[0].lsb());
    // 2. Every further level, each corrected while the next one is made.
    let mut patch = Patch::NONE;
    for i in 1..t.len() {
        let left = key.expand(&mut leaves[..2 << i], patch);
        patch = Patch { value: message[i] ^ t[i] ^ left, place: path, period: 1 << i };
        path |= u64::from(!t[i].lsb()) << i;
    }
    // 3. The last correction; bit 0 of every half is zero but at α.
    key.finish(leaves, patch, Some(path));
}

#[cfg(test)]
mod tests {
    use aes::Aes128;
    use aes::cipher::{BlockCipherEncrypt, KeyInit};
    use proptest::prelude::*;

    use super::*;

    /// H of the header, by the `aes` crate.
    fn hash(key: u128, x: u128) -> u128 {
        let (high, low) = (x >> 64, x & u128::from(u64::MAX));
        let s = (high ^ low) << 64 | high;
        let mut block = s.to_le_bytes().into();
        Aes128::new(&key.to_le_bytes().into()).encrypt_block(&mut block);
        u128::from_le_bytes(block.into()) ^ s
    }

    /// The leaf at `index` by walking down from the root.
    fn leaf(key: u128, delta: u128, seed: u128, levels: usize, index: usize) -> u128 {
        let mut x = if index & 1 == 0 { seed } else { seed ^ delta };
        for level in 1..levels {
            let left = hash(key, x);
            x = if index >> level & 1 == 0 { left } else { x ^ left };
        }
        x & !1
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn all_leaves_agree_but_one_that_differs_by_delta(
            key: u128, delta: u128, seed: u128, halves in prop::collection::vec(any::<(u128, bool)>(), 1..=12),
        ) {
            let (h, delta) = (halves.len(), Block(delta).with_lsb(true));
            let q: Vec<Block> = halves.iter().map(|(q, _)| Block(*q).with_lsb(false)).collect();
            let t: Vec<Block> = q.iter().zip(&halves).map(|(q, (_, r))| *q ^ delta.masked(*r)).collect();
            let (mut v, mut w) = (vec![Block::ZERO; 1 << h], vec![Block::ZERO; 1 << h]);
            let mut message = vec![Block::ZERO; h];
            let tree_key = Key::new(Block(key));
            send(&tree_key, delta, Block(seed), &q, &mut v, &mut message);
            receive(&tree_key, &t, &message, &mut w);
            // The choice bits, inverted, spell the path.
            let path = halves.iter().enumerate().map(|(i, (_, r))| usize::from(!r) << i).sum::<usize>();
            for j in 0..1 << h {
                prop_assert_eq!(v[j].0, leaf(key, delta.0, seed, h, j));
                prop_assert!(w[j] == v[j] ^ delta.masked(j == path));
                prop_assert_eq!(w[j].lsb(), j == path);
            }
        }
    }
}
