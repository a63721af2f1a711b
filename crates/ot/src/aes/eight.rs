//! The batched functions over registers of 128 bits, of which eight are worked on at once: WebAssembly's ([`super::sliced`]) and Arm's
//! ([`super::arm`]).
//!
//! There are no branches and no addresses that depend on data. Keys are public, and are expanded by a table.

use super::{PadKeys, Patch, QUAD};
use crate::Block;
use crate::aes::portable;
use crate::block::LANES;

/// Blocks that are worked on at once.
pub(super) const EIGHT: usize = 8;
/// Rounds of AES-128.
pub(super) const ROUNDS: usize = 10;

/// A register of 128 bits, eight of which hold eight blocks.
pub(crate) trait Eight: Copy {
    /// The round keys of eight blocks.
    type Schedule: Clone;

    /// Takes the round keys, those of all blocks for each round.
    fn schedule(keys: [[Block; EIGHT]; ROUNDS + 1]) -> Self::Schedule;
    /// π of eight blocks.
    fn permute(keys: &Self::Schedule, q: [Self; EIGHT]) -> [Self; EIGHT];
    /// Holds the block.
    fn of(block: Block) -> Self;
    /// The block that it holds.
    fn block(self) -> Block;
    /// The XOR of both.
    fn xor(self, other: Self) -> Self;
    /// The halves (high, low) become (high ⊕ low, high).
    fn sigma(self) -> Self;
    /// Each 32-bit word w becomes ⌊w·`bound` / 2^32⌋.
    fn below(self, bound: u32) -> Self;
}

/// A key, the same for all blocks.
#[derive(Clone)]
pub(crate) struct Key<R: Eight>(R::Schedule);

#[inline(always)]
pub(super) fn add<R: Eight>(q: [R; EIGHT], key: &[R; EIGHT]) -> [R; EIGHT] {
    std::array::from_fn(|i| q[i].xor(key[i]))
}

/// π(σ(x)) ⊕ σ(x) of eight blocks.
#[inline(always)]
fn hash<R: Eight>(keys: &R::Schedule, x: [R; EIGHT]) -> [R; EIGHT] {
    let s = x.map(R::sigma);
    add(R::permute(keys, s), &s)
}

/// The first of up to eight blocks, zeros behind them.
#[inline(always)]
fn load<R: Eight>(blocks: &[Block]) -> [R; EIGHT] {
    match blocks.first_chunk::<EIGHT>() {
        Some(eight) => eight.map(R::of),
        None => std::array::from_fn(|i| R::of(blocks.get(i).copied().unwrap_or(Block::ZERO))),
    }
}

/// As many of eight blocks as there is room for.
#[inline(always)]
fn store<R: Eight>(blocks: &mut [Block], q: [R; EIGHT]) {
    match blocks.first_chunk_mut::<EIGHT>() {
        Some(eight) => *eight = q.map(R::block),
        None => blocks.iter_mut().zip(q).for_each(|(block, q)| *block = q.block()),
    }
}

/// The S-box, for keys.
const S_BOX: [u8; 256] = s_box();

const fn s_box() -> [u8; 256] {
    let mut table = [0; 256];
    // 3 generates the field's units: p runs over its powers, q over those of its inverse.
    let (mut p, mut q) = (1u8, 1u8);
    loop {
        p ^= p << 1 ^ if p & 0x80 == 0 { 0 } else { 0x1b };
        q ^= q << 1;
        q ^= q << 2;
        q ^= q << 4;
        q ^= if q & 0x80 == 0 { 0 } else { 0x09 };
        table[p as usize] =
            q ^ q.rotate_left(1) ^ q.rotate_left(2) ^ q.rotate_left(3) ^ q.rotate_left(4) ^ 0x63;
        if p == 1 {
            break;
        }
    }
    table[0] = 0x63;
    table
}

/// The round keys of a key (FIPS 197, Section 5.2).
fn round_keys(key: Block) -> [Block; ROUNDS + 1] {
    let mut words: [u32; 4] = bytemuck::must_cast(key.0);
    let mut constant = 1u8;
    let mut keys = [key; ROUNDS + 1];
    for out in &mut keys[1..] {
        let last = words[3].rotate_right(8).to_le_bytes().map(|byte| S_BOX[usize::from(byte)]);
        words[0] ^= u32::from_le_bytes(last) ^ u32::from(constant);
        for i in 1..4 {
            words[i] ^= words[i - 1];
        }
        constant = constant << 1 ^ if constant & 0x80 == 0 { 0 } else { 0x1b };
        *out = Block(bytemuck::must_cast(words));
    }
    keys
}

/// Round keys where block i has key i mod 4.
fn quad<R: Eight>(keys: [Block; QUAD]) -> R::Schedule {
    let keys = keys.map(round_keys);
    R::schedule(std::array::from_fn(|round| std::array::from_fn(|i| keys[i % QUAD][round])))
}

impl<R: Eight> Key<R> {
    pub(super) fn new(key: Block) -> Self {
        Self(quad::<R>([key; QUAD]))
    }

    pub(super) fn expand(&self, nodes: &mut [Block], patch: Patch) -> Block {
        let (front, back) = nodes.split_at_mut(nodes.len() / 2);
        let mut sum = Block::ZERO;
        for (c, (lefts, rights)) in front.chunks_mut(EIGHT).zip(back.chunks_mut(EIGHT)).enumerate() {
            for (i, left) in lefts.iter_mut().enumerate() {
                *left = portable::patched(*left, (c * EIGHT + i) as u64, patch);
            }
            let children = hash::<R>(&self.0, load(lefts));
            for ((left, right), child) in lefts.iter_mut().zip(rights).zip(children) {
                let child = child.block();
                *right = *left ^ child;
                *left = child;
                sum ^= child;
            }
        }
        sum
    }

    pub(super) fn leaves(&self, blocks: &mut [Block], lanes: usize, clear: u128) -> [Block; LANES] {
        let n = blocks.len() / lanes;
        let mut sums = [Block::ZERO; LANES];
        // Nodes are read before leaves are written where they lie: those of eight leaves are behind what was written.
        for at in (0..blocks.len()).step_by(EIGHT) {
            let count = EIGHT.min(blocks.len() - at);
            let input = |i: usize| {
                let leaf = at + i.min(count - 1);
                blocks[(lanes - 1) * n + leaf / lanes] ^ portable::tweak(leaf % lanes)
            };
            let hashed = hash::<R>(&self.0, std::array::from_fn(|i| R::of(input(i))));
            for (i, hashed) in hashed.into_iter().enumerate().take(count) {
                let leaf = Block(hashed.block().0 & !clear);
                blocks[at + i] = leaf;
                sums[(at + i) % lanes] ^= leaf;
            }
        }
        sums
    }

    pub(super) fn draw(&self, first: u128, bound: u32, out: &mut [Block]) {
        for (c, out) in out.chunks_mut(EIGHT).enumerate() {
            let counter = |i: usize| R::of(portable::add_low(first, (c * EIGHT + i) as u64));
            let drawn = R::permute(&self.0, std::array::from_fn(counter));
            store(out, drawn.map(|drawn| drawn.below(bound)));
        }
    }
}

/// Calls `f` with the round keys for each run of inputs under the same keys, and where that run begins and ends.
fn each_run<R: Eight>(keys: PadKeys, n: usize, mut f: impl FnMut(&R::Schedule, std::ops::Range<usize>)) {
    let size = QUAD * keys.per_key;
    for (block, start) in (0..n).step_by(size).enumerate() {
        f(&quad::<R>(keys.keys_from(block as u64, 0)), start..n.min(start + size));
    }
}

pub(super) fn pads<R: Eight>(keys: PadKeys, shifts: &[Block], x: &[Block], out: &mut [Block]) {
    each_run::<R>(keys, x.len(), |keys, run| {
        for (s, shift) in shifts.iter().enumerate() {
            let shift = R::of(*shift);
            let out = &mut out[s * x.len()..][run.clone()];
            for (out, x) in out.chunks_mut(EIGHT).zip(x[run.clone()].chunks(EIGHT)) {
                store(out, hash::<R>(keys, load(x).map(|x: R| x.xor(shift))));
            }
        }
    });
}

pub(super) fn tables<R: Eight>(
    keys: PadKeys,
    shifts: &[Block; 16],
    bits: u32,
    x: &[Block],
    words: &mut [u64],
) {
    each_run::<R>(keys, x.len(), |keys, run| {
        for (words, x) in words[run.clone()].chunks_mut(EIGHT).zip(x[run].chunks(EIGHT)) {
            words.fill(0);
            let x: [R; EIGHT] = load(x);
            for (v, shift) in shifts.iter().enumerate() {
                let shift = R::of(*shift);
                for (word, hashed) in words.iter_mut().zip(hash::<R>(keys, x.map(|x| x.xor(shift)))) {
                    *word |= (hashed.block().0 as u64 & ((1 << bits) - 1)) << (v * bits as usize);
                }
            }
        }
    });
}
