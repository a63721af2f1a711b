//! The scalar twin: what the kernels compute, in the plainest form.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use super::Patch;
use crate::Block;

/// A key of the `aes` crate (constant time on every CPU).
#[derive(Clone)]
pub(crate) struct Key(Aes128);

impl Key {
    pub(super) fn new(key: Block) -> Self {
        Self(Aes128::new(&key.to_bytes().into()))
    }

    fn permute(&self, x: Block) -> Block {
        let mut bytes = x.to_bytes().into();
        self.0.encrypt_block(&mut bytes);
        Block::from_bytes(bytes.into())
    }

    pub(super) fn tccr(&self, first: u128, log_group: u32, x: &mut [Block]) {
        for (j, x) in x.iter_mut().enumerate() {
            let px = self.permute(*x);
            *x = self.permute(px ^ add_low(first, j as u64 >> log_group)) ^ px;
        }
    }

    pub(super) fn expand(&self, nodes: &mut [Block], patch: Patch) -> Block {
        let n = nodes.len() / 2;
        let mut sum = Block::ZERO;
        for j in 0..n {
            // The comparison becomes a mask: no branch on the secret place.
            let hit = j as u64 & (patch.period - 1) == patch.place;
            let x = nodes[j] ^ patch.value.masked(hit);
            let (high, low) = ((x.0 >> 64) as u64, x.0 as u64);
            let s = Block(u128::from(high ^ low) << 64 | u128::from(high));
            let left = self.permute(s) ^ s;
            nodes[j] = left;
            nodes[j + n] = x ^ left;
            sum ^= left;
        }
        sum
    }

    pub(super) fn draw(&self, first: u128, bound: u32, out: &mut [Block]) {
        for (j, out) in out.iter_mut().enumerate() {
            let words: [u32; 4] = bytemuck::must_cast(self.permute(add_low(first, j as u64)));
            let scaled = words.map(|w| ((u64::from(u32::from_le(w)) * u64::from(bound)) >> 32) as u32);
            *out = bytemuck::must_cast(scaled);
        }
    }
}

pub(super) fn finish(leaves: &mut [Block], patch: Patch, marked: u64) {
    for (j, leaf) in leaves.iter_mut().enumerate() {
        let hit = j as u64 & (patch.period - 1) == patch.place;
        *leaf = (*leaf ^ patch.value.masked(hit)).with_lsb(j as u64 == marked);
    }
}

/// `first` with `j` added to its low 64 bits.
fn add_low(first: u128, j: u64) -> Block {
    Block(first >> 64 << 64 | u128::from((first as u64).wrapping_add(j)))
}
