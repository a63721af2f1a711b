//! The scalar twin: what the kernels compute, on any CPU, by the `aes` crate.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use super::Patch;
use crate::Block;

/// A key of the `aes` crate (constant time on every CPU).
#[derive(Clone)]
pub(crate) struct Key(Aes128);

/// Blocks that are handed to the `aes` crate together: it works on several at once, with instructions or bit-sliced.
const BATCH: usize = 16;

impl Key {
    pub(super) fn new(key: Block) -> Self {
        Self(Aes128::new(&key.to_bytes().into()))
    }

    fn permute(&self, x: &mut [Block]) {
        let (blocks, _) = aes::Block::slice_as_chunks_mut(bytemuck::must_cast_slice_mut(x));
        self.0.encrypt_blocks(blocks);
    }

    pub(super) fn tccr(&self, first: u128, log_group: u32, x: &mut [Block]) {
        for (c, x) in x.chunks_mut(BATCH).enumerate() {
            let px = &mut [Block::ZERO; BATCH][..x.len()];
            self.permute(x);
            px.copy_from_slice(x);
            for (i, x) in x.iter_mut().enumerate() {
                *x ^= add_low(first, (c * BATCH + i) as u64 >> log_group);
            }
            self.permute(x);
            for (x, px) in x.iter_mut().zip(px) {
                *x ^= *px;
            }
        }
    }

    pub(super) fn expand(&self, nodes: &mut [Block], patch: Patch) -> Block {
        let (front, back) = nodes.split_at_mut(nodes.len() / 2);
        let mut sum = Block::ZERO;
        for (c, (lefts, rights)) in front.chunks_mut(BATCH).zip(back.chunks_mut(BATCH)).enumerate() {
            for (i, (left, right)) in lefts.iter_mut().zip(rights.iter_mut()).enumerate() {
                *right = patched(*left, (c * BATCH + i) as u64, patch);
                let (high, low) = ((right.0 >> 64) as u64, right.0 as u64);
                *left = Block(u128::from(high ^ low) << 64 | u128::from(high));
            }
            let s = &mut [Block::ZERO; BATCH][..lefts.len()];
            s.copy_from_slice(lefts);
            self.permute(lefts);
            for ((left, right), s) in lefts.iter_mut().zip(rights).zip(s) {
                *left ^= *s;
                *right ^= *left;
                sum ^= *left;
            }
        }
        sum
    }

    pub(super) fn draw(&self, first: u128, bound: u32, out: &mut [Block]) {
        for (j, out) in out.iter_mut().enumerate() {
            *out = add_low(first, j as u64);
        }
        self.permute(out);
        for word in bytemuck::must_cast_slice_mut::<_, u32>(out) {
            *word = ((u64::from(*word) * u64::from(bound)) >> 32) as u32;
        }
    }
}

pub(super) fn finish(leaves: &mut [Block], patch: Patch, marked: u64) {
    for (j, leaf) in leaves.iter_mut().enumerate() {
        *leaf = patched(*leaf, j as u64, patch).with_lsb(j as u64 == marked);
    }
}

/// The node at index `j`, corrected. The comparison becomes a mask: there is no branch on the secret place.
fn patched(x: Block, j: u64, patch: Patch) -> Block {
    x ^ patch.value.masked(j & (patch.period - 1) == patch.place)
}

/// `first` with `j` added to its low 64 bits.
fn add_low(first: u128, j: u64) -> Block {
    Block(first >> 64 << 64 | u128::from((first as u64).wrapping_add(j)))
}
