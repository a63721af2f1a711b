//! The scalar twin: what the kernels compute, on any CPU, by the `aes` crate.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use super::{Mark, PadKeys, Patch, QUAD};
use crate::Block;
use crate::block::LANES;

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

    pub(super) fn expand(&self, nodes: &mut [Block], patch: Patch) -> Block {
        let (front, back) = nodes.split_at_mut(nodes.len() / 2);
        let mut sum = Block::ZERO;
        for (c, (lefts, rights)) in front.chunks_mut(BATCH).zip(back.chunks_mut(BATCH)).enumerate() {
            for (i, (left, right)) in lefts.iter_mut().zip(rights.iter_mut()).enumerate() {
                *right = patched(*left, (c * BATCH + i) as u64, patch);
                *left = sigma(*right);
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

    pub(super) fn leaves(&self, blocks: &mut [Block], lanes: usize, clear: u128) -> [Block; LANES] {
        let n = blocks.len() / lanes;
        let mut sums = [Block::ZERO; LANES];
        // Nodes are read before leaves are written where they lie: leaf `lanes`·j + l is never behind node j.
        for j in 0..n {
            let node = blocks[(lanes - 1) * n + j];
            for (lane, sum) in sums[..lanes].iter_mut().enumerate() {
                let leaf = Block(hash(self, node ^ tweak(lane)).0 & !clear);
                blocks[lanes * j + lane] = leaf;
                *sum ^= leaf;
            }
        }
        sums
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

pub(super) fn finish(leaves: &mut [Block], patch: Patch, mark: Mark) {
    for (j, leaf) in leaves.iter_mut().enumerate() {
        let kept = Block(patched(*leaf, j as u64, patch).0 & !mark.bit);
        *leaf = kept ^ Block(mark.bit).masked(j as u64 == mark.place);
    }
}

pub(super) fn correct(leaves: &mut [Block], values: &[Block; LANES], place: u64) {
    for (j, row) in leaves.chunks_exact_mut(LANES).enumerate() {
        for (leaf, value) in row.iter_mut().zip(values) {
            *leaf ^= value.masked(j as u64 == place);
        }
    }
}

pub(super) fn pads(keys: PadKeys, shifts: &[Block], x: &[Block], out: &mut [Block]) {
    assert!(out.len() == shifts.len() * x.len(), "a pad for every input and shift");
    for part in keys.parts(x.len(), 1) {
        let key = Key::new(keys.lanes(part)[0]);
        for (s, shift) in shifts.iter().enumerate() {
            for at in (part.from..).step_by(QUAD).take(part.rows) {
                out[s * x.len() + at] = hash(&key, x[at] ^ *shift);
            }
        }
    }
}

pub(super) fn tables(keys: PadKeys, shifts: &[Block; 16], bits: u32, x: &[Block], words: &mut [u64]) {
    assert!(words.len() == x.len(), "a word for every input");
    for part in keys.parts(x.len(), 1) {
        let key = Key::new(keys.lanes(part)[0]);
        for at in (part.from..).step_by(QUAD).take(part.rows) {
            let entry = |v: usize| {
                (hash(&key, x[at] ^ shifts[v]).0 as u64 & ((1 << bits) - 1)) << (v * bits as usize)
            };
            words[at] = (0..16).fold(0, |word, v| word | entry(v));
        }
    }
}

/// What tells the leaves of a node apart: the lane in both halves.
pub(super) fn tweak(lane: usize) -> Block {
    Block((lane as u128) << 64 | lane as u128)
}

/// π(σ(x)) ⊕ σ(x).
fn hash(key: &Key, x: Block) -> Block {
    let mut y = [sigma(x)];
    key.permute(&mut y);
    y[0] ^ sigma(x)
}

/// The 64-bit halves (high, low) become (high ⊕ low, high).
fn sigma(x: Block) -> Block {
    let (high, low) = ((x.0 >> 64) as u64, x.0 as u64);
    Block(u128::from(high ^ low) << 64 | u128::from(high))
}

/// The node at index `j`, corrected. The comparison becomes a mask: there is no branch on the secret place.
pub(super) fn patched(x: Block, j: u64, patch: Patch) -> Block {
    x ^ patch.value.masked(j & (patch.period - 1) == patch.place)
}

/// `first` with `j` added to its low 64 bits.
pub(super) fn add_low(first: u128, j: u64) -> Block {
    Block(first >> 64 << 64 | u128::from((first as u64).wrapping_add(j)))
}
