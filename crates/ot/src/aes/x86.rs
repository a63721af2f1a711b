//! AES-NI and VAES: the same loops over one, two or four blocks per register.
//!
//! [`Lane`] is the register; each loop is written once over it and instantiated under the CPU features that
//! the register needs. Eight registers are kept in flight, which hides the latency of the AES unit (four
//! cycles at two per cycle on Zen 5). What is left over at the end runs one register, then one block at a time.

use std::arch::x86_64::*;

use jaguar_ring::cpu::{Cpu, Feature};

use super::{Kernel, Mark, PadKeys, Part, Patch, QUAD};
use crate::Block;
use crate::block::LANES;

/// The round keys, and the widest register to use them with.
#[derive(Clone)]
pub(crate) struct Key {
    rounds: [Block; 11],
    width: Width,
}

/// What the CPU was found to have. Values exist only where it was.
#[derive(Clone, Copy)]
enum Width {
    One,
    Two,
    Four,
}

/// Whether `cpu` has what registers of one, two and four blocks need.
pub(super) fn there(cpu: Cpu) -> [bool; 3] {
    use Feature::{Aes, Avx2, Avx512F, Sse41, Vaes};
    [&[Aes, Sse41][..], &[Aes, Sse41, Vaes, Avx2], &[Aes, Sse41, Vaes, Avx2, Avx512F]]
        .map(|features| cpu.has_all(features))
}

impl Key {
    /// Expands `key`.
    ///
    /// # Panics
    /// When this CPU cannot run `kernel`.
    pub(super) fn new(kernel: Kernel, key: Block) -> Self {
        let width = Width::of(kernel);
        // SAFETY: AES-NI and SSE4.1 are there.
        Self { rounds: unsafe { expand_key(key) }, width }
    }

    pub(super) fn expand(&self, nodes: &mut [Block], patch: Patch) -> Block {
        // SAFETY: `width` is only ever set to what the CPU has (`new`).
        unsafe {
            match self.width {
                Width::One => expand_1(&self.rounds, nodes, patch),
                Width::Two => expand_2(&self.rounds, nodes, patch),
                Width::Four => expand_4(&self.rounds, nodes, patch),
            }
        }
    }

    pub(super) fn leaves(&self, blocks: &mut [Block], lanes: usize, clear: u128) -> [Block; LANES] {
        // SAFETY: as in `expand`.
        unsafe {
            match self.width {
                Width::One => leaves_1(&self.rounds, blocks, lanes, clear),
                Width::Two => leaves_2(&self.rounds, blocks, lanes, clear),
                Width::Four => leaves_4(&self.rounds, blocks, lanes, clear),
            }
        }
    }

    pub(super) fn correct(&self, leaves: &mut [Block], values: &[Block; LANES], place: u64) {
        // SAFETY: as in `expand`.
        unsafe {
            match self.width {
                Width::One => correct_1(leaves, values, place),
                Width::Two => correct_2(leaves, values, place),
                Width::Four => correct_4(leaves, values, place),
            }
        }
    }

    pub(super) fn kernel(&self) -> Kernel {
        match self.width {
            Width::One => Kernel::AesNi,
            Width::Two => Kernel::Vaes256,
            Width::Four => Kernel::Vaes512,
        }
    }

    pub(super) fn finish(&self, leaves: &mut [Block], patch: Patch, mark: Mark) {
        // SAFETY: as in `expand`.
        unsafe {
            match self.width {
                Width::One => finish_1(leaves, patch, mark),
                Width::Two => finish_2(leaves, patch, mark),
                Width::Four => finish_4(leaves, patch, mark),
            }
        }
    }

    pub(super) fn draw(&self, first: u128, bound: u32, out: &mut [Block]) {
        // SAFETY: as in `expand`.
        unsafe {
            match self.width {
                Width::One => draw_1(&self.rounds, first, bound, out),
                Width::Two => draw_2(&self.rounds, first, bound, out),
                Width::Four => draw_4(&self.rounds, first, bound, out),
            }
        }
    }
}

impl Width {
    /// The register of `kernel`.
    ///
    /// # Panics
    /// When this CPU cannot run it.
    fn of(kernel: Kernel) -> Self {
        use Feature::{Aes, Avx2, Avx512F, Sse41, Vaes};
        let (needs, width): (&[Feature], Self) = match kernel {
            Kernel::Portable => unreachable!("portable code has no registers of ours"),
            #[cfg(test)]
            Kernel::Sliced => unreachable!("it has others"),
            Kernel::AesNi => (&[Aes, Sse41], Self::One),
            Kernel::Vaes256 => (&[Aes, Sse41, Vaes, Avx2], Self::Two),
            Kernel::Vaes512 => (&[Aes, Sse41, Vaes, Avx2, Avx512F], Self::Four),
        };
        assert!(needs.iter().all(|feature| feature.is_there()), "this CPU has no {}", kernel.name());
        width
    }
}

/// [`super::pads`] by `kernel`.
pub(super) fn pads(kernel: Kernel, keys: PadKeys, shifts: &[Block], x: &[Block], out: &mut [Block]) {
    // SAFETY: `Width::of` asks the CPU.
    unsafe {
        match Width::of(kernel) {
            Width::One => pads_1(keys, shifts, x, out),
            Width::Two => pads_2(keys, shifts, x, out),
            Width::Four => pads_4(keys, shifts, x, out),
        }
    }
}

/// [`super::tables`] by `kernel`.
pub(super) fn tables(
    kernel: Kernel,
    keys: PadKeys,
    shifts: &[Block; 16],
    bits: u32,
    x: &[Block],
    words: &mut [u64],
) {
    // SAFETY: `Width::of` asks the CPU.
    unsafe {
        match Width::of(kernel) {
            Width::One => tables_1(keys, shifts, bits, x, words),
            Width::Two => tables_2(keys, shifts, bits, x, words),
            Width::Four => tables_4(keys, shifts, bits, x, words),
        }
    }
}

/// The AES-128 key schedule.
#[target_feature(enable = "aes,sse4.1")]
fn expand_key(key: Block) -> [Block; 11] {
    /// The next round key, by the round's constant.
    #[target_feature(enable = "aes,sse4.1")]
    fn next<const RCON: i32>(k: __m128i) -> __m128i {
        let word = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<RCON>(k));
        // Word i of the new key is word i of the assist plus the XOR of the old words 0..=i.
        let k = _mm_xor_si128(k, _mm_slli_si128::<4>(k));
        let k = _mm_xor_si128(k, _mm_slli_si128::<8>(k));
        _mm_xor_si128(k, word)
    }
    let k0: __m128i = bytemuck::must_cast(key);
    let k1 = next::<0x01>(k0);
    let k2 = next::<0x02>(k1);
    let k3 = next::<0x04>(k2);
    let k4 = next::<0x08>(k3);
    let k5 = next::<0x10>(k4);
    let k6 = next::<0x20>(k5);
    let k7 = next::<0x40>(k6);
    let k8 = next::<0x80>(k7);
    let k9 = next::<0x1b>(k8);
    let k10 = next::<0x36>(k9);
    [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10].map(bytemuck::must_cast)
}

/// A register of [`BLOCKS`](Self::BLOCKS) blocks.
///
/// Every method is unsafe for one reason: the CPU must have the features that the implementor names. They
/// are inlined into functions that enable those features.
trait Lane: Copy {
    const BLOCKS: usize;
    /// Reads `BLOCKS` blocks, which must be readable at `from`.
    unsafe fn load(from: *const Block) -> Self;
    /// Writes `BLOCKS` blocks, which must be writable at `to`.
    unsafe fn store(self, to: *mut Block);
    /// The same block in all places.
    unsafe fn splat(x: Block) -> Self;
    /// The place's index in both 64-bit halves of each block.
    unsafe fn places() -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    /// Sums of 64-bit halves.
    unsafe fn add64(self, other: Self) -> Self;
    /// 64-bit halves shifted left by the low 64 bits of `count`.
    unsafe fn shift64(self, count: __m128i) -> Self;
    /// The top 32-bit word of each block in all four places, rotated right by eight bits.
    unsafe fn top_word(self) -> Self;
    /// In every 32-bit word of a block the XOR of it and of those below.
    unsafe fn sum_words(self) -> Self;
    /// `self ⊕ value` in those 64-bit halves where `a = b`, `self` elsewhere.
    unsafe fn xor_where_equal(self, value: Self, a: Self, b: Self) -> Self;
    /// ⌊w·b / 2^32⌋ for every 32-bit word w, where b is the low word of the same 64-bit half of `bound`.
    unsafe fn scale32(self, bound: Self) -> Self;
    /// The 64-bit halves of each block exchanged.
    unsafe fn swap(self) -> Self;
    unsafe fn round(self, key: Self) -> Self;
    unsafe fn last_round(self, key: Self) -> Self;
    /// The XOR of all blocks.
    unsafe fn sum(self) -> Block;
}

/// SSE4.1 and AES-NI.
#[derive(Clone, Copy)]
struct One(__m128i);

/// AVX2 and VAES.
#[derive(Clone, Copy)]
struct Two(__m256i);

/// AVX-512F and VAES.
#[derive(Clone, Copy)]
struct Four(__m512i);

// SAFETY (of every block in the three implementations): each calls one or a few intrinsics whose features the
// callers promise to be there; `load` and `store` are unaligned accesses to memory that callers promise.
macro_rules! call {
    ($($body:tt)*) => {{
        // SAFETY: see above the macro.
        unsafe { $($body)* }
    }};
}

/// What the widths do alike, each by its own intrinsics.
macro_rules! alike {
    (
        $loadu:ident, $storeu:ident, $xor:ident, $and:ident, $or:ident, $add:ident, $sll:ident, $srli:ident, $mul:ident,
        $shuffle:ident, $encrypt:ident, $encrypt_last:ident
    ) => {
        #[inline(always)]
        unsafe fn load(from: *const Block) -> Self {
            call!(Self($loadu(from.cast())))
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut Block) {
            call!($storeu(to.cast(), self.0))
        }
        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            call!(Self($xor(self.0, other.0)))
        }
        #[inline(always)]
        unsafe fn and(self, other: Self) -> Self {
            call!(Self($and(self.0, other.0)))
        }
        #[inline(always)]
        unsafe fn add64(self, other: Self) -> Self {
            call!(Self($add(self.0, other.0)))
        }
        #[inline(always)]
        unsafe fn shift64(self, count: __m128i) -> Self {
            call!(Self($sll(self.0, count)))
        }
        #[inline(always)]
        unsafe fn scale32(self, bound: Self) -> Self {
            call! {
                let odd = $mul($srli::<32>(self.0), bound.0);
                let even = $srli::<32>($mul(self.0, bound.0));
                let high = Self::splat(Block(u128::MAX / u128::from(u64::MAX) * 0xffff_ffff_0000_0000));
                Self($or(even, $and(odd, high.0)))
            }
        }
        #[inline(always)]
        unsafe fn swap(self) -> Self {
            call!(Self($shuffle::<0x4e>(self.0)))
        }
        #[inline(always)]
        unsafe fn round(self, key: Self) -> Self {
            call!(Self($encrypt(self.0, key.0)))
        }
        #[inline(always)]
        unsafe fn last_round(self, key: Self) -> Self {
            call!(Self($encrypt_last(self.0, key.0)))
        }
    };
}

impl Lane for One {
    const BLOCKS: usize = 1;
    alike! {
        _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128, _mm_and_si128, _mm_or_si128,
        _mm_add_epi64, _mm_sll_epi64, _mm_srli_epi64, _mm_mul_epu32, _mm_shuffle_epi32,
        _mm_aesenc_si128, _mm_aesenclast_si128
    }
    #[inline(always)]
    unsafe fn splat(x: Block) -> Self {
        Self(bytemuck::must_cast(x))
    }
    #[inline(always)]
    unsafe fn places() -> Self {
        call!(Self(_mm_setzero_si128()))
    }
    #[inline(always)]
    unsafe fn top_word(self) -> Self {
        call! {
            let word = _mm_shuffle_epi32::<0xff>(self.0);
            Self(_mm_or_si128(_mm_srli_epi32::<8>(word), _mm_slli_epi32::<24>(word)))
        }
    }
    #[inline(always)]
    unsafe fn sum_words(self) -> Self {
        call! {
            let one = self.xor(Self(_mm_slli_si128::<4>(self.0)));
            one.xor(Self(_mm_slli_si128::<8>(one.0)))
        }
    }
    #[inline(always)]
    unsafe fn xor_where_equal(self, value: Self, a: Self, b: Self) -> Self {
        call!(self.xor(value.and(Self(_mm_cmpeq_epi64(a.0, b.0)))))
    }
    #[inline(always)]
    unsafe fn sum(self) -> Block {
        bytemuck::must_cast(self.0)
    }
}

impl Lane for Two {
    const BLOCKS: usize = 2;
    alike! {
        _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256, _mm256_and_si256, _mm256_or_si256,
        _mm256_add_epi64, _mm256_sll_epi64, _mm256_srli_epi64, _mm256_mul_epu32, _mm256_shuffle_epi32,
        _mm256_aesenc_epi128, _mm256_aesenclast_epi128
    }
    #[inline(always)]
    unsafe fn splat(x: Block) -> Self {
        call!(Self(_mm256_broadcastsi128_si256(bytemuck::must_cast(x))))
    }
    #[inline(always)]
    unsafe fn places() -> Self {
        call!(Self(_mm256_setr_epi64x(0, 0, 1, 1)))
    }
    #[inline(always)]
    unsafe fn top_word(self) -> Self {
        call! {
            let word = _mm256_shuffle_epi32::<0xff>(self.0);
            Self(_mm256_or_si256(_mm256_srli_epi32::<8>(word), _mm256_slli_epi32::<24>(word)))
        }
    }
    #[inline(always)]
    unsafe fn sum_words(self) -> Self {
        call! {
            let one = self.xor(Self(_mm256_slli_si256::<4>(self.0)));
            one.xor(Self(_mm256_slli_si256::<8>(one.0)))
        }
    }
    #[inline(always)]
    unsafe fn xor_where_equal(self, value: Self, a: Self, b: Self) -> Self {
        call!(self.xor(value.and(Self(_mm256_cmpeq_epi64(a.0, b.0)))))
    }
    #[inline(always)]
    unsafe fn sum(self) -> Block {
        let mut blocks = [Block::ZERO; 2];
        call!(self.store(blocks.as_mut_ptr()));
        blocks[0] ^ blocks[1]
    }
}

impl Lane for Four {
    const BLOCKS: usize = 4;
    alike! {
        _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512, _mm512_and_si512, _mm512_or_si512,
        _mm512_add_epi64, _mm512_sll_epi64, _mm512_srli_epi64, _mm512_mul_epu32, _mm512_shuffle_epi32,
        _mm512_aesenc_epi128, _mm512_aesenclast_epi128
    }
    #[inline(always)]
    unsafe fn splat(x: Block) -> Self {
        call!(Self(_mm512_broadcast_i32x4(bytemuck::must_cast(x))))
    }
    #[inline(always)]
    unsafe fn places() -> Self {
        call!(Self(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3)))
    }
    #[inline(always)]
    unsafe fn top_word(self) -> Self {
        call! {
            Self(_mm512_ror_epi32::<8>(_mm512_shuffle_epi32::<0xff>(self.0)))
        }
    }
    #[inline(always)]
    unsafe fn sum_words(self) -> Self {
        call! {
            let one = self.xor(Self(_mm512_maskz_shuffle_epi32::<0x90>(0xeeee, self.0)));
            one.xor(Self(_mm512_maskz_shuffle_epi32::<0x40>(0xcccc, one.0)))
        }
    }
    #[inline(always)]
    unsafe fn xor_where_equal(self, value: Self, a: Self, b: Self) -> Self {
        call!(Self(_mm512_mask_xor_epi64(self.0, _mm512_cmpeq_epi64_mask(a.0, b.0), self.0, value.0)))
    }
    #[inline(always)]
    unsafe fn sum(self) -> Block {
        let mut blocks = [Block::ZERO; 4];
        call!(self.store(blocks.as_mut_ptr()));
        blocks[0] ^ blocks[1] ^ blocks[2] ^ blocks[3]
    }
}

/// How many registers are in flight in the main part of each loop.
const FLIGHT: usize = 8;

/// π of `U` registers at once.
///
/// # Safety
/// The CPU has `L`'s features.
#[inline(always)]
unsafe fn permute<L: Lane, const U: usize>(keys: &[L; 11], mut x: [L; U]) -> [L; U] {
    // SAFETY: the caller promises the features.
    unsafe {
        for x in &mut x {
            *x = x.xor(keys[0]);
        }
        for key in &keys[1..10] {
            for x in &mut x {
                *x = x.round(*key);
            }
        }
        for x in &mut x {
            *x = x.last_round(keys[10]);
        }
    }
    x
}

/// # Safety
/// The CPU has `L`'s features.
#[inline(always)]
unsafe fn splat_keys<L: Lane>(rounds: &[Block; 11]) -> [L; 11] {
    // SAFETY: the caller promises the features.
    unsafe {
        let mut keys = [L::splat(Block::ZERO); 11];
        for (key, round) in keys.iter_mut().zip(rounds) {
            *key = L::splat(*round);
        }
        keys
    }
}

/// `x` in both 64-bit halves of each block.
///
/// # Safety
/// The CPU has `L`'s features.
#[inline(always)]
unsafe fn twice<L: Lane>(x: u64) -> L {
    // SAFETY: the caller promises the features.
    unsafe { L::splat(Block(u128::from(x) << 64 | u128::from(x))) }
}

/// `U` registers from the memory at `from`.
///
/// # Safety
/// The CPU has `L`'s features; U·BLOCKS blocks are readable at `from`.
#[inline(always)]
unsafe fn load<L: Lane, const U: usize>(from: *const Block) -> [L; U] {
    // SAFETY: the caller promises features and memory.
    unsafe {
        let mut x = [L::splat(Block::ZERO); U];
        for (u, x) in x.iter_mut().enumerate() {
            *x = L::load(from.add(u * L::BLOCKS));
        }
        x
    }
}

/// Registers that hold the 64-bit index j + u·BLOCKS + place in both halves of each block.
///
/// # Safety
/// The CPU has `L`'s features.
#[inline(always)]
unsafe fn indices<L: Lane, const U: usize>(j: usize) -> [L; U] {
    // SAFETY: the caller promises the features.
    unsafe {
        let mut indices = [L::places(); U];
        for (u, index) in indices.iter_mut().enumerate() {
            *index = index.add64(twice((j + u * L::BLOCKS) as u64));
        }
        indices
    }
}

/// One step of [`super::Key::expand`] at `nodes[j..]` of a level of `n` nodes; returns the children's left sum.
///
/// # Safety
/// The CPU has `L`'s features; `nodes[..2n]` is readable and writable, j + U·BLOCKS is at most n.
#[inline(always)]
unsafe fn expand_step<L: Lane, const U: usize>(
    keys: &[L; 11],
    nodes: *mut Block,
    n: usize,
    j: usize,
    patch: Patch,
) -> L {
    // SAFETY: the caller promises features and memory.
    unsafe {
        let (value, place, mask) =
            (L::splat(patch.value), twice::<L>(patch.place), twice::<L>(patch.period - 1));
        let high = L::splat(Block(u128::from(u64::MAX) << 64));
        let index = indices::<L, U>(j);
        let mut x = load::<L, U>(nodes.add(j));
        let mut s = x;
        for u in 0..U {
            x[u] = x[u].xor_where_equal(value, index[u].and(mask), place);
            s[u] = x[u].swap().xor(x[u].and(high));
        }
        let p = permute(keys, s);
        let mut sum = L::splat(Block::ZERO);
        for u in 0..U {
            let left = p[u].xor(s[u]);
            left.store(nodes.add(j + u * L::BLOCKS));
            x[u].xor(left).store(nodes.add(j + n + u * L::BLOCKS));
            sum = sum.xor(left);
        }
        sum
    }
}

/// One step of [`super::Key::leaves`]: U·BLOCKS leaves from leaf `at` on, with `N` lanes, of `n` nodes. `sums` has the XOR of
/// leaves by lane, as many lanes in a register as it has blocks.
///
/// # Safety
/// The CPU has `L`'s features; `blocks[..N·n]` is readable and writable, `at` + U·BLOCKS at most N·n. Where N is
/// [`LANES`], `at` and U·BLOCKS are multiples of it.
#[inline(always)]
unsafe fn leaves_step<L: Lane, const U: usize, const N: usize>(
    keys: &[L; 11],
    blocks: *mut Block,
    n: usize,
    at: usize,
    clear: u128,
    sums: &mut [L; LANES],
) {
    // SAFETY: the caller promises features and memory. All nodes of the step are read before its leaves are written, and
    // those of later steps lie behind these: node j is block (N − 1)·n + j, and N·(j + 1) ≤ (N − 1)·n + j + 1 for j < n.
    unsafe {
        let clear = L::splat(Block(!clear));
        let nodes = blocks.add((N - 1) * n);
        let mut s = [clear; U];
        for (u, s) in s.iter_mut().enumerate() {
            let leaf = at + u * L::BLOCKS;
            *s = sigma(match N {
                1 => L::load(nodes.add(leaf)),
                _ => L::splat(*nodes.add(leaf / N)).xor(indices::<L, 1>(leaf % N)[0]),
            });
        }
        let p = permute(keys, s);
        for u in 0..U {
            let leaf = p[u].xor(s[u]).and(clear);
            leaf.store(blocks.add(at + u * L::BLOCKS));
            let sum = &mut sums[u % (LANES / L::BLOCKS)];
            *sum = sum.xor(leaf);
        }
    }
}

/// The sums of lanes that [`leaves_step`] gathered.
///
/// # Safety
/// The CPU has `L`'s features.
#[inline(always)]
unsafe fn lane_sums<L: Lane, const N: usize>(sums: [L; LANES]) -> [Block; LANES] {
    let mut lanes = [Block::ZERO; LANES];
    // SAFETY: the caller promises the features; registers of BLOCKS blocks fill the four lanes.
    unsafe {
        for (u, sum) in sums[..LANES / L::BLOCKS].iter().enumerate() {
            sum.store(lanes.as_mut_ptr().add(u * L::BLOCKS));
        }
    }
    match N {
        1 => [
            lanes.into_iter().fold(Block::ZERO, |sum, lane| sum ^ lane),
            Block::ZERO,
            Block::ZERO,
            Block::ZERO,
        ],
        _ => lanes,
    }
}

/// [`super::Key::leaves`] with `N` lanes.
///
/// # Safety
/// The CPU has `L`'s features; `blocks.len()` is a multiple of N, which is 1 or [`LANES`].
#[inline(always)]
unsafe fn leaves<L: Lane, const N: usize>(
    rounds: &[Block; 11],
    blocks: &mut [Block],
    clear: u128,
) -> [Block; LANES] {
    let (total, n, blocks) = (blocks.len(), blocks.len() / N, blocks.as_mut_ptr());
    // SAFETY: the caller promises the features, of which One's are a part; every step stays within blocks[..total]. With
    // four lanes, total and all steps are multiples of four.
    unsafe {
        let keys = splat_keys::<L>(rounds);
        let mut sums = [L::splat(Block::ZERO); LANES];
        let mut at = 0;
        while at + FLIGHT * L::BLOCKS <= total {
            leaves_step::<L, FLIGHT, N>(&keys, blocks, n, at, clear, &mut sums);
            at += FLIGHT * L::BLOCKS;
        }
        let mut sums = lane_sums::<L, N>(sums);
        if at < total {
            let keys = splat_keys::<One>(rounds);
            let mut rest = [One::splat(Block::ZERO); LANES];
            while at < total {
                if N == 1 {
                    leaves_step::<One, 1, N>(&keys, blocks, n, at, clear, &mut rest);
                } else {
                    leaves_step::<One, LANES, N>(&keys, blocks, n, at, clear, &mut rest);
                }
                at += N;
            }
            for (sum, rest) in sums.iter_mut().zip(lane_sums::<One, N>(rest)) {
                *sum ^= rest;
            }
        }
        sums
    }
}

/// [`super::Key::correct`].
///
/// # Safety
/// The CPU has `L`'s features; the number of leaves is a multiple of [`LANES`].
#[inline(always)]
unsafe fn correct<L: Lane>(leaves: &mut [Block], values: &[Block; LANES], place: u64) {
    // SAFETY: the caller promises the features; BLOCKS divides LANES, and each row has as many leaves.
    unsafe {
        let (place, one) = (twice::<L>(place), twice::<L>(1));
        let mut index = twice::<L>(0);
        for row in leaves.as_chunks_mut::<LANES>().0 {
            for from in (0..LANES).step_by(L::BLOCKS) {
                let (value, to) = (L::load(values.as_ptr().add(from)), row.as_mut_ptr().add(from));
                L::load(to).xor_where_equal(value, index, place).store(to);
            }
            index = index.add64(one);
        }
    }
}

/// One register of [`super::Key::finish`] at `leaves[j..]`.
///
/// # Safety
/// The CPU has `L`'s features; `leaves[j..j + BLOCKS]` is readable and writable.
#[inline(always)]
unsafe fn finish_step<L: Lane>(leaves: *mut Block, j: usize, patch: Patch, mark: Mark) {
    // SAFETY: the caller promises features and memory.
    unsafe {
        let (value, place, mask) =
            (L::splat(patch.value), twice::<L>(patch.place), twice::<L>(patch.period - 1));
        let index = indices::<L, 1>(j)[0];
        let x = L::load(leaves.add(j)).xor_where_equal(value, index.and(mask), place);
        let x = x.and(L::splat(Block(!mark.bit)));
        let x = x.xor_where_equal(L::splat(Block(mark.bit)), index, twice::<L>(mark.place));
        x.store(leaves.add(j));
    }
}

/// One step of [`super::Key::draw`] at `out[j..]`.
///
/// # Safety
/// The CPU has `L`'s features; `out[j..j + U·BLOCKS]` is writable.
#[inline(always)]
unsafe fn draw_step<L: Lane, const U: usize>(
    keys: &[L; 11],
    first: u128,
    bound: u32,
    out: *mut Block,
    j: usize,
) {
    // SAFETY: the caller promises features and memory.
    unsafe {
        let (first, low) = (L::splat(Block(first)), L::splat(Block(u128::from(u64::MAX))));
        let mut y = indices::<L, U>(j);
        for y in &mut y {
            *y = first.add64(y.and(low));
        }
        let y = permute(keys, y);
        let bound = twice::<L>(bound.into());
        for (u, y) in y.into_iter().enumerate() {
            y.scale32(bound).store(out.add(j + u * L::BLOCKS));
        }
    }
}

/// Round keys of the AES-128 keys in the blocks of `keys`, each for its own place.
///
/// # Safety
/// The CPU has `L`'s features; BLOCKS blocks are readable at `keys`.
#[inline(always)]
unsafe fn key_schedule<L: Lane>(keys: *const Block) -> [L; 11] {
    // SAFETY: the caller promises features and memory.
    unsafe {
        let mut rounds = [L::load(keys); 11];
        for (i, rcon) in
            [0x01u128, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36].into_iter().enumerate()
        {
            // All four columns are equal, so that shifting rows changes nothing: the last round is SubWord.
            let rcon = L::splat(Block(rcon | rcon << 32 | rcon << 64 | rcon << 96));
            rounds[i + 1] = rounds[i].sum_words().xor(rounds[i].top_word().last_round(rcon));
        }
        rounds
    }
}

/// σ of the hash: the 64-bit halves (high, low) become (high ⊕ low, high).
///
/// # Safety
/// The CPU has `L`'s features.
#[inline(always)]
unsafe fn sigma<L: Lane>(x: L) -> L {
    // SAFETY: the caller promises the features.
    unsafe { x.swap().xor(x.and(L::splat(Block(u128::from(u64::MAX) << 64)))) }
}

/// `U` rows of [`super::pads`] under keys that differ by place.
///
/// # Safety
/// The CPU has `L`'s features; at every multiple of QUAD below U·QUAD, BLOCKS blocks are readable at `x` and writable
/// at `out`.
#[inline(always)]
unsafe fn pads_step<L: Lane, const U: usize>(keys: &[L; 11], shift: Block, x: *const Block, out: *mut Block) {
    // SAFETY: the caller promises features and memory.
    unsafe {
        let shift = L::splat(shift);
        let mut s = [shift; U];
        for (u, s) in s.iter_mut().enumerate() {
            *s = sigma(L::load(x.add(u * QUAD)).xor(shift));
        }
        let p = permute(keys, s);
        for u in 0..U {
            p[u].xor(s[u]).store(out.add(u * QUAD));
        }
    }
}

/// A row of [`super::tables`], each word in the low half of a block.
///
/// # Safety
/// The CPU has `L`'s features; BLOCKS blocks are readable at `x` and writable at `out`.
#[inline(always)]
unsafe fn tables_step<L: Lane>(
    keys: &[L; 11],
    shifts: &[Block; 16],
    bits: u32,
    x: *const Block,
    out: *mut Block,
) {
    // SAFETY: the caller promises features and memory.
    unsafe {
        let x = L::load(x);
        let mask = L::splat(Block((1 << bits) - 1));
        let mut words = L::splat(Block::ZERO);
        for (half, shifts) in shifts.chunks_exact(FLIGHT).enumerate() {
            let mut s = [x; FLIGHT];
            for (s, &shift) in s.iter_mut().zip(shifts) {
                *s = sigma(x.xor(L::splat(shift)));
            }
            let p = permute(keys, s);
            for u in 0..FLIGHT {
                let place = (half * FLIGHT + u) as u128 * u128::from(bits);
                let entry = p[u].xor(s[u]).and(mask);
                words = words.xor(entry.shift64(bytemuck::must_cast(Block(place))));
            }
        }
        words.store(out);
    }
}

/// [`super::pads`] for one part.
///
/// # Safety
/// The CPU has `L`'s features, and the part is one of `x.len()` inputs in registers of BLOCKS blocks (or of one).
#[inline(always)]
unsafe fn pads_part<L: Lane>(keys: &PadKeys, part: Part, shifts: &[Block], x: &[Block], out: &mut [Block]) {
    // SAFETY: the caller promises the features; `parts` counts rows that lie inside x, and `out` has a row of
    // as many blocks for each shift.
    unsafe {
        let round_keys = key_schedule::<L>(keys.lanes(part).as_ptr());
        for (s, &shift) in shifts.iter().enumerate() {
            let (from, to) = (x.as_ptr().add(part.from), out.as_mut_ptr().add(s * x.len() + part.from));
            let mut r = 0;
            while r + FLIGHT <= part.rows {
                pads_step::<L, FLIGHT>(&round_keys, shift, from.add(r * QUAD), to.add(r * QUAD));
                r += FLIGHT;
            }
            while r < part.rows {
                pads_step::<L, 1>(&round_keys, shift, from.add(r * QUAD), to.add(r * QUAD));
                r += 1;
            }
        }
    }
}

/// [`super::tables`] for one part.
///
/// # Safety
/// As for [`pads_part`].
#[inline(always)]
unsafe fn tables_part<L: Lane>(
    keys: &PadKeys,
    part: Part,
    shifts: &[Block; 16],
    bits: u32,
    x: &[Block],
    words: &mut [u64],
) {
    // SAFETY: as in `pads_part`.
    unsafe {
        let round_keys = key_schedule::<L>(keys.lanes(part).as_ptr());
        for r in 0..part.rows {
            let at = part.from + r * QUAD;
            let mut row = [Block::ZERO; QUAD];
            tables_step::<L>(&round_keys, shifts, bits, x.as_ptr().add(at), row.as_mut_ptr());
            for (word, block) in words[at..][..L::BLOCKS].iter_mut().zip(row) {
                *word = block.0 as u64;
            }
        }
    }
}

/// The loops under one register width and its features.
macro_rules! loops {
    (
        $lane:ident, $features:literal,
        $expand:ident, $leaves:ident, $finish:ident, $correct:ident, $draw:ident, $pads:ident, $tables:ident
    ) => {
        #[target_feature(enable = $features)]
        fn $expand(rounds: &[Block; 11], nodes: &mut [Block], patch: Patch) -> Block {
            const B: usize = $lane::BLOCKS;
            let (n, nodes) = (nodes.len() / 2, nodes.as_mut_ptr());
            // SAFETY: this function has the features; every step stays within the first n of 2n nodes.
            unsafe {
                if n < B {
                    let keys = splat_keys::<One>(rounds);
                    let mut sum = Block::ZERO;
                    for j in 0..n {
                        sum ^= expand_step::<One, 1>(&keys, nodes, n, j, patch).sum();
                    }
                    return sum;
                }
                // n is a power of two, hence a multiple of B.
                let keys = splat_keys::<$lane>(rounds);
                let mut sum = $lane::splat(Block::ZERO);
                let mut j = 0;
                while j + FLIGHT * B <= n {
                    sum = sum.xor(expand_step::<$lane, FLIGHT>(&keys, nodes, n, j, patch));
                    j += FLIGHT * B;
                }
                while j + B <= n {
                    sum = sum.xor(expand_step::<$lane, 1>(&keys, nodes, n, j, patch));
                    j += B;
                }
                sum.sum()
            }
        }

        #[target_feature(enable = $features)]
        fn $leaves(rounds: &[Block; 11], blocks: &mut [Block], lanes: usize, clear: u128) -> [Block; LANES] {
            assert!((lanes == 1 || lanes == LANES) && blocks.len().is_multiple_of(lanes), "whole rows");
            // SAFETY: this function has the features.
            unsafe {
                match lanes {
                    1 => leaves::<$lane, 1>(rounds, blocks, clear),
                    _ => leaves::<$lane, LANES>(rounds, blocks, clear),
                }
            }
        }

        #[target_feature(enable = $features)]
        fn $correct(leaves: &mut [Block], values: &[Block; LANES], place: u64) {
            assert!(leaves.len().is_multiple_of(LANES), "whole rows");
            // SAFETY: this function has the features.
            unsafe { correct::<$lane>(leaves, values, place) }
        }

        #[target_feature(enable = $features)]
        fn $finish(leaves: &mut [Block], patch: Patch, marked: Mark) {
            const B: usize = $lane::BLOCKS;
            let (n, leaves) = (leaves.len(), leaves.as_mut_ptr());
            // SAFETY: this function has the features; every step stays within leaves[..n].
            unsafe {
                let mut j = 0;
                while j + B <= n {
                    finish_step::<$lane>(leaves, j, patch, marked);
                    j += B;
                }
                while j < n {
                    finish_step::<One>(leaves, j, patch, marked);
                    j += 1;
                }
            }
        }

        #[target_feature(enable = $features)]
        fn $draw(rounds: &[Block; 11], first: u128, bound: u32, out: &mut [Block]) {
            const B: usize = $lane::BLOCKS;
            let (n, out) = (out.len(), out.as_mut_ptr());
            // SAFETY: this function has the features; every step stays within out[..n].
            unsafe {
                let keys = splat_keys::<$lane>(rounds);
                let mut j = 0;
                while j + FLIGHT * B <= n {
                    draw_step::<$lane, FLIGHT>(&keys, first, bound, out, j);
                    j += FLIGHT * B;
                }
                while j + B <= n {
                    draw_step::<$lane, 1>(&keys, first, bound, out, j);
                    j += B;
                }
                if j < n {
                    let keys = splat_keys::<One>(rounds);
                    while j < n {
                        draw_step::<One, 1>(&keys, first, bound, out, j);
                        j += 1;
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        fn $pads(keys: PadKeys, shifts: &[Block], x: &[Block], out: &mut [Block]) {
            assert!(out.len() == shifts.len() * x.len(), "a pad for every input and shift");
            // SAFETY: this function has the features, and One's are among them.
            unsafe {
                for part in keys.parts(x.len(), $lane::BLOCKS) {
                    if part.whole {
                        pads_part::<$lane>(&keys, part, shifts, x, out);
                    } else {
                        pads_part::<One>(&keys, part, shifts, x, out);
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        fn $tables(keys: PadKeys, shifts: &[Block; 16], bits: u32, x: &[Block], words: &mut [u64]) {
            assert!(words.len() == x.len(), "a word for every input");
            // SAFETY: this function has the features, and One's are among them.
            unsafe {
                for part in keys.parts(x.len(), $lane::BLOCKS) {
                    if part.whole {
                        tables_part::<$lane>(&keys, part, shifts, bits, x, words);
                    } else {
                        tables_part::<One>(&keys, part, shifts, bits, x, words);
                    }
                }
            }
        }
    };
}

loops!(One, "sse4.1,aes", expand_1, leaves_1, finish_1, correct_1, draw_1, pads_1, tables_1);
loops!(Two, "sse4.1,aes,avx2,vaes", expand_2, leaves_2, finish_2, correct_2, draw_2, pads_2, tables_2);
loops!(
    Four,
    "sse4.1,aes,avx2,avx512f,vaes",
    expand_4,
    leaves_4,
    finish_4,
    correct_4,
    draw_4,
    pads_4,
    tables_4
);
