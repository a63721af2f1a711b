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
//! *Rows.* `v ; (w, α, e) <- SinglePoint(Δ, D ; )` with w_jl = v_jl ⊕ (j = α)·e_l, one or four lanes l, for one correlation a
//! lane more, (K_l; M_l = K_l ⊕ e_l): of a bit, e_l is 0 or Δ; of a vector, a random sum of the Δ_i. The leaves are hashed once
//! more for each lane, v_jl = H(x_j ⊕ (l, l)), the lane's number being added to both halves, and the bits where choices lie set
//! to zero: so all v_αl look random to who has x_α ⊕ Δ only (H is asked at points x_α ⊕ Δ ⊕ Δ ⊕ (l, l), which differ). The
//! sender sends c_l = Σ_j v_jl ⊕ K_l, and c_l ⊕ M_l ⊕ Σ_{j≠α} v_jl = v_αl ⊕ e_l. (Without the hash, Σ_j x_j = Δ would be known
//! to all but for e, and two trees would tell a Δ_i.) All lanes have their error in the same row: for LPN that is one instance
//! with vectors for errors (`instance`).
//!
//! *Rows again.* The nodes x_j may be hashed again under another key: v'_jl, and errors e'_l at the same α, for one correlation and
//! one message a lane, and no levels. That is for stationary noise (`instance`): α stays, everything else is new. The tree is
//! made again, under its own key, of what was kept: the seed at the sender, α and the sums K_i ⊕ r_i·Δ at the receiver.
//!
//! Bytes: 16·h a bin, and 16 for each lane of rows, from sender to receiver. Rounds: none of its own, the sender may run ahead.

use crate::Block;
use crate::aes::{Key, Mark, Patch};

/// The sender's part. `q`: the h COT halves; `seed`: fresh randomness; fills the 2^h `leaves` and the h `message`s.
pub(crate) fn send(
    key: &Key,
    delta: Block,
    seed: Block,
    q: &[Block],
    leaves: &mut [Block],
    message: &mut [Block],
) {
    send_nodes(key, delta, seed, q, leaves, message);
    // Bit 0 of every half is zero by convention.
    key.finish(leaves, Patch::NONE, Mark::NOWHERE);
}

/// The sender's part of a tree whose last level is to be rows: fills the 2^h `nodes`, and the first h blocks of `message`. Where it
/// is made again, `q` and `message` are empty: nothing is sent.
pub(crate) fn send_nodes(
    key: &Key,
    delta: Block,
    seed: Block,
    q: &[Block],
    nodes: &mut [Block],
    message: &mut [Block],
) {
    assert!(q.is_empty() || nodes.len() == 1 << q.len());
    assert_eq!(q.len(), message.len(), "a message for each half");
    let mut say = |level: usize, left: Block| {
        if let (Some(message), Some(q)) = (message.get_mut(level), q.get(level)) {
            *message = *q ^ left;
        }
    };
    // 1. Level 1: the children of the root.
    (nodes[0], nodes[1]) = (seed, seed ^ delta);
    say(0, seed);
    // 2. Every further level, and the message that lets the receiver follow.
    for level in 1..nodes.len().ilog2() as usize {
        say(level, key.expand(&mut nodes[..2 << level], Patch::NONE));
    }
}

/// The sender's part for rows of one or four outputs a node, each with an error of its own: `halves` has those that are spent
/// for them, and `message` as many blocks. Turns the nodes in `leaves` into leaves, row by row, with zeros at the bits of `clear`.
pub(crate) fn send_rows(
    key: &Key,
    clear: u128,
    halves: &[Block],
    leaves: &mut [Block],
    message: &mut [Block],
) {
    let sums = key.leaves(leaves, halves.len(), clear);
    for ((message, half), sum) in message.iter_mut().zip(halves).zip(sums) {
        *message = *half ^ sum;
    }
}

/// Where the nodes of the last level lie that become rows of so many leaves.
pub(crate) fn nodes(leaves: &mut [Block], lanes: usize) -> &mut [Block] {
    let before = leaves.len() / lanes * (lanes - 1);
    &mut leaves[before..]
}

/// The receiver's part. `t`: the h COT halves, with the choice bits in bit 0; fills the 2^h `leaves`, bit 0
/// of which is the choice bit. Sums of nodes are left in `message`.
pub(crate) fn receive(key: &Key, t: &[Block], message: &mut [Block], leaves: &mut [Block]) {
    let path = learn(t, message);
    let patch = receive_levels(key, message, path, leaves);
    // The last correction; bit 0 of every half is zero but at α.
    key.finish(leaves, patch, Mark { bit: 1, place: path });
}

/// What the receiver learns of a tree by its h COT halves: turns the `message`s into the sums of one side of each level, and
/// returns α.
pub(crate) fn learn(t: &[Block], message: &mut [Block]) -> u64 {
    assert_eq!(t.len(), message.len(), "a message for each half");
    let mut path = 0;
    for (level, (message, t)) in message.iter_mut().zip(t).enumerate() {
        *message ^= *t;
        // The path goes where the choice bit does not.
        path |= u64::from(!t.lsb()) << level;
    }
    path
}

/// The receiver's part of a tree whose last level is to be rows: fills the `nodes`, by what it has learned.
pub(crate) fn receive_nodes(key: &Key, sums: &[Block], path: u64, nodes: &mut [Block]) {
    let patch = receive_levels(key, sums, path, nodes);
    key.finish(nodes, patch, Mark::NONE);
}

/// The receiver's part for rows of `nodes` in `leaves`, of which that at `path` is wrong, with its `halves` of those that are
/// spent.
pub(crate) fn receive_rows(
    key: &Key,
    clear: u128,
    halves: &[Block],
    message: &[Block],
    path: u64,
    leaves: &mut [Block],
) {
    let lanes = halves.len();
    // At α there are the hashes of a wrong node, which fall out of the sums.
    let mut values = key.leaves(leaves, lanes, clear);
    for ((value, half), message) in values.iter_mut().zip(halves).zip(message) {
        *value ^= *half ^ *message;
    }
    match lanes {
        1 => {
            let patch = Patch { value: values[0], place: path, period: leaves.len() as u64 };
            key.finish(leaves, patch, Mark::NONE);
        }
        _ => key.correct(leaves, &values, path),
    }
}

/// All levels; what corrects the last one is still to be done.
fn receive_levels(key: &Key, sums: &[Block], path: u64, leaves: &mut [Block]) -> Patch {
    assert!(leaves.len() == 1 << sums.len());
    // 1. Level 1: the children of the root.
    (leaves[0], leaves[1]) = (sums[0], sums[0]);
    // 2. Every further level, each corrected while the next one is made.
    let mut patch = Patch::NONE;
    for i in 1..sums.len() {
        let left = key.expand(&mut leaves[..2 << i], patch);
        // The place is that of the path's node so far: its first i bits.
        patch = Patch { value: sums[i] ^ left, place: path & ((1 << i) - 1), period: 1 << i };
    }
    patch
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
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn rows_differ_at_one_place(
            key: u128, delta: u128, seed: u128, halves in prop::collection::vec(any::<(u128, bool)>(), 1..=10),
            spent: [u128; 4], e: [usize; 4], lanes in prop_oneof![Just(1), Just(4)], vectors: bool, deltas: [u128; 4],
        ) {
            let (h, delta) = (halves.len(), Block(delta).with_lsb(true));
            let q: Vec<Block> = halves.iter().map(|(q, _)| Block(*q).with_lsb(false)).collect();
            let t: Vec<Block> = q.iter().zip(&halves).map(|(q, (_, r))| *q ^ delta.masked(*r)).collect();
            let clear = if vectors { 15 } else { 1 };
            let errors = match vectors {
                true => {
                    let deltas = std::array::from_fn(|j| Block(deltas[j] & !15 | 1 << j));
                    e.map(|e| crate::hash::combinations(&deltas)[e % 16])
                }
                false => e.map(|e| delta.masked(e & 1 == 1)),
            };
            let spent = spent.map(|half| Block(half & !clear));
            let (mut v, mut w) = (vec![Block::ZERO; lanes << h], vec![Block::ZERO; lanes << h]);
            let mut message = vec![Block::ZERO; h + lanes];
            let tree_key = Key::new(Block(key));
            let theirs: [Block; 4] = std::array::from_fn(|l| spent[l] ^ errors[l]);
            let (levels, last) = message.split_at_mut(h);
            send_nodes(&tree_key, delta, Block(seed), &q, nodes(&mut v, lanes), levels);
            send_rows(&tree_key, clear, &spent[..lanes], &mut v, last);
            let alpha = learn(&t, levels);
            receive_nodes(&tree_key, levels, alpha, nodes(&mut w, lanes));
            // Made again, without a message.
            let (mut again, mut theirs_again) = (vec![Block::ZERO; 1 << h], vec![Block::ZERO; 1 << h]);
            send_nodes(&tree_key, delta, Block(seed), &[], &mut again, &mut []);
            receive_nodes(&tree_key, levels, alpha, &mut theirs_again);
            prop_assert!(*nodes(&mut w, lanes) == theirs_again);
            for (j, (x, theirs)) in again.iter().zip(&theirs_again).enumerate() {
                prop_assert!(*theirs == *x ^ delta.masked(j as u64 == alpha));
            }
            receive_rows(&tree_key, clear, &theirs[..lanes], last, alpha, &mut w);
            let path = halves.iter().enumerate().map(|(i, (_, r))| usize::from(!r) << i).sum::<usize>();
            prop_assert_eq!(alpha, path as u64);
            for j in 0..1 << h {
                let mut x = if j & 1 == 0 { seed } else { seed ^ delta.0 };
                for level in 1..h {
                    let left = hash(key, x);
                    x = if j >> level & 1 == 0 { left } else { x ^ left };
                }
                // One hash more a lane, told apart by its number in both halves.
                for lane in 0..lanes {
                    let tweak = (lane as u128) << 64 | lane as u128;
                    prop_assert_eq!(v[lanes * j + lane].0, hash(key, x ^ tweak) & !clear);
                    prop_assert!(w[lanes * j + lane] == v[lanes * j + lane] ^ errors[lane].masked(j == path));
                }
            }
        }
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
            receive(&tree_key, &t, &mut message, &mut w);
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
