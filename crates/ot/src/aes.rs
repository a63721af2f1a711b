//! AES-128 under public keys, batched: the loops in which this crate spends its time.
//!
//! | function | computes | used by |
//! |---|---|---|
//! | [`pads`], [`tables`] | π(σ(x)) ⊕ σ(x) under keys that change after a few inputs | [`crate::hash`] |
//! | [`Key::expand`] | one level of a correlated GGM tree | [`crate::ggm`] |
//! | [`Key::leaves`] | hashes of the last level's nodes, one or four of each | [`crate::ggm`] |
//! | [`Key::finish`], [`Key::correct`] | the corrections on the leaves | [`crate::ggm`] |
//! | [`Key::draw`] | numbers below a bound from π(c), π(c + 1), … | [`crate::lpn`] |
//!
//! Every kernel runs in time independent of the data. [`portable`] is the scalar twin that the SIMD kernels of
//! `x86`, `arm` and `sliced` are tested against; the choice is made once per process by what the CPU has. Keys are public here:
//! they are fixed, or follow from a public seed.

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(any(target_arch = "wasm32", target_arch = "aarch64", test))]
mod eight;
mod portable;
#[cfg(any(target_arch = "wasm32", test))]
mod sliced;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use jaguar_ring::cpu::Cpu;
#[cfg(target_arch = "aarch64")]
use jaguar_ring::cpu::Feature;

use crate::Block;
use crate::block::LANES;

/// The instructions that a key's functions use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// The `aes` crate.
    Portable,
    /// Eight blocks bit by bit, in 128-bit registers without AES.
    #[cfg(any(target_arch = "wasm32", test))]
    Sliced,
    /// Arm's.
    #[cfg(target_arch = "aarch64")]
    Arm,
    /// One block per instruction.
    #[cfg(target_arch = "x86_64")]
    AesNi,
    /// Two blocks per instruction.
    #[cfg(target_arch = "x86_64")]
    Vaes256,
    /// Four blocks per instruction.
    #[cfg(target_arch = "x86_64")]
    Vaes512,
}

impl Kernel {
    /// All kernels that this CPU can run, the fastest last.
    pub(crate) fn available() -> Vec<Self> {
        #[cfg_attr(
            not(any(target_arch = "x86_64", target_arch = "aarch64")),
            allow(unused_mut, reason = "nothing to ask the processor")
        )]
        let mut kernels = vec![
            Self::Portable,
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced,
        ];
        #[cfg(target_arch = "aarch64")]
        if Cpu::detect().has(Feature::ArmAes) {
            kernels.push(Self::Arm);
        }
        #[cfg(target_arch = "x86_64")]
        {
            let [aes, vaes, vaes512] = x86::there(Cpu::detect());
            for (there, kernel) in [(aes, Self::AesNi), (vaes, Self::Vaes256), (vaes512, Self::Vaes512)] {
                if there {
                    kernels.push(kernel);
                }
            }
        }
        kernels
    }

    /// The fastest kernel that this CPU can run.
    pub(crate) fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| *Self::available().last().expect("the portable kernel is always there"))
    }

    /// Whether it is made of a processor's AES instructions.
    pub(crate) fn is_hardware(self) -> bool {
        match self {
            Self::Portable => false,
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced => false,
            #[cfg(target_arch = "aarch64")]
            Self::Arm => true,
            #[cfg(target_arch = "x86_64")]
            Self::AesNi | Self::Vaes256 | Self::Vaes512 => true,
        }
    }

    /// A name for reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced => "sliced",
            #[cfg(target_arch = "aarch64")]
            Self::Arm => "armv8-aes",
            #[cfg(target_arch = "x86_64")]
            Self::AesNi => "aes-ni",
            #[cfg(target_arch = "x86_64")]
            Self::Vaes256 => "vaes-256",
            #[cfg(target_arch = "x86_64")]
            Self::Vaes512 => "vaes-512",
        }
    }
}

/// The one place of a tree level that differs from what its owner computed alone: every node whose index is
/// `place` modulo the power of two `period` is XORed with `value` before use. A zero value changes nothing.
#[derive(Clone, Copy)]
pub(crate) struct Patch {
    /// XORed into the nodes.
    pub value: Block,
    /// Secret; reaches only comparisons whose results are masks.
    pub place: u64,
    /// Public, a power of two.
    pub period: u64,
}

impl Patch {
    /// Changes nothing.
    pub(crate) const NONE: Self = Self { value: Block::ZERO, place: 0, period: 1 };
}

/// Which bit of the leaves tells one of them from all others.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    /// Zero or one bit; public.
    pub bit: u128,
    /// The marked leaf; secret. No leaf has the index `u64::MAX`.
    pub place: u64,
}

impl Mark {
    /// Leaves all bits as they are.
    pub(crate) const NONE: Self = Self { bit: 0, place: u64::MAX };
    /// Clears bit 0 everywhere.
    pub(crate) const NOWHERE: Self = Self { bit: 1, place: u64::MAX };
}

/// How many keys are in use side by side: input j is hashed under the key of place j mod 4.
const QUAD: usize = 4;

/// The keys of a run of hashes. Inputs come in blocks of 4·`per_key`; input j of block b is hashed under the AES key
/// `base` ⊕ (4·(`number` + b) + j mod 4), the sum taken mod 2^64.
#[derive(Clone, Copy)]
pub(crate) struct PadKeys {
    /// Public, of this session and of one purpose in it; differs from other purposes in the high 64 bits.
    pub base: Block,
    /// The first block's number.
    pub number: u64,
    /// How many inputs a key hashes.
    pub per_key: usize,
}

/// Inputs under the same keys: `rows` registers, the first at input `from`, the others a [`QUAD`] behind each other.
#[derive(Clone, Copy)]
struct Part {
    block: u64,
    lane: usize,
    /// Whether the registers are as wide as was asked for, or of one block.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "registers are of one block there"))]
    whole: bool,
    from: usize,
    rows: usize,
}

impl PadKeys {
    /// What `n` inputs consist of, in registers of `width` blocks.
    fn parts(self, n: usize, width: usize) -> impl Iterator<Item = Part> {
        let size = QUAD * self.per_key;
        (0..n.div_ceil(size)).flat_map(move |block| {
            let (start, len) = (block * size, size.min(n - block * size));
            let rows = len / QUAD;
            let part = move |lane, whole, from, rows| Part { block: block as u64, lane, whole, from, rows };
            let whole = (0..QUAD).step_by(width).map(move |lane| part(lane, true, start + lane, rows));
            let rest = (0..len % QUAD).map(move |lane| part(lane, false, start + rows * QUAD + lane, 1));
            whole.chain(rest)
        })
    }

    /// The keys of the part's place and of those behind it.
    fn lanes(self, part: Part) -> [Block; QUAD] {
        self.keys_from(part.block, part.lane)
    }

    /// The keys of a block from a place on.
    fn keys_from(self, block: u64, lane: usize) -> [Block; QUAD] {
        let first = self.number.wrapping_add(block).wrapping_mul(QUAD as u64);
        std::array::from_fn(|i| self.base ^ Block(first.wrapping_add((lane + i) as u64).into()))
    }
}

/// Fills `out` with π(σ(x ⊕ s)) ⊕ σ(x ⊕ s) for every shift s and, within it, every x, in order; σ maps the 64-bit
/// halves (high, low) to (high ⊕ low, high).
pub(crate) fn pads(kernel: Kernel, keys: PadKeys, shifts: &[Block], x: &[Block], out: &mut [Block]) {
    assert!(out.len() == shifts.len() * x.len(), "a pad for every input and shift");
    match kernel {
        Kernel::Portable => portable::pads(keys, shifts, x, out),
        #[cfg(any(target_arch = "wasm32", test))]
        Kernel::Sliced => eight::pads::<sliced::Register>(keys, shifts, x, out),
        #[cfg(target_arch = "aarch64")]
        Kernel::Arm => eight::pads::<arm::Register>(keys, shifts, x, out),
        #[cfg(target_arch = "x86_64")]
        other => x86::pads(other, keys, shifts, x, out),
    }
}

/// Of the same hashes, the low `bits` bits (1..=4) for all 16 shifts in a word for every x: bits v·`bits` and up belong
/// to shift v.
pub(crate) fn tables(
    kernel: Kernel,
    keys: PadKeys,
    shifts: &[Block; 16],
    bits: u32,
    x: &[Block],
    words: &mut [u64],
) {
    assert!(words.len() == x.len() && (1..=4).contains(&bits), "a word of 16 entries for every input");
    match kernel {
        Kernel::Portable => portable::tables(keys, shifts, bits, x, words),
        #[cfg(any(target_arch = "wasm32", test))]
        Kernel::Sliced => eight::tables::<sliced::Register>(keys, shifts, bits, x, words),
        #[cfg(target_arch = "aarch64")]
        Kernel::Arm => eight::tables::<arm::Register>(keys, shifts, bits, x, words),
        #[cfg(target_arch = "x86_64")]
        other => x86::tables(other, keys, shifts, bits, x, words),
    }
}

/// An expanded public key, bound to a kernel.
#[derive(Clone)]
pub(crate) enum Key {
    Portable(Box<portable::Key>),
    #[cfg(any(target_arch = "wasm32", test))]
    Sliced(Box<eight::Key<sliced::Register>>),
    #[cfg(target_arch = "aarch64")]
    Arm(Box<eight::Key<arm::Register>>),
    #[cfg(target_arch = "x86_64")]
    X86(x86::Key),
}

impl Key {
    /// The key `key` for the fastest kernel.
    pub(crate) fn new(key: Block) -> Self {
        Self::for_kernel(Kernel::best(), key)
    }

    /// The key `key` for `kernel`, which must be one of [`Kernel::available`].
    pub(crate) fn for_kernel(kernel: Kernel, key: Block) -> Self {
        match kernel {
            Kernel::Portable => Self::Portable(Box::new(portable::Key::new(key))),
            #[cfg(any(target_arch = "wasm32", test))]
            Kernel::Sliced => Self::Sliced(Box::new(eight::Key::new(key))),
            #[cfg(target_arch = "aarch64")]
            Kernel::Arm => Self::Arm(Box::new(eight::Key::new(key))),
            #[cfg(target_arch = "x86_64")]
            other => Self::X86(x86::Key::new(other, key)),
        }
    }

    /// One level of a tree: with n the half of `nodes`, every x = `nodes[j]`, j < n, once patched, turns into its
    /// children `nodes[j]` = H(x) and `nodes[j + n]` = x ⊕ H(x), where H(x) = π(σ(x)) ⊕ σ(x) and σ maps the
    /// 64-bit halves (high, low) to (high ⊕ low, high). Returns the XOR of all left children.
    pub(crate) fn expand(&self, nodes: &mut [Block], patch: Patch) -> Block {
        assert!(nodes.len().is_power_of_two() && nodes.len() > 1, "{} nodes", nodes.len());
        assert!(patch.period.is_power_of_two());
        match self {
            Self::Portable(key) => key.expand(nodes, patch),
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced(key) => key.expand(nodes, patch),
            #[cfg(target_arch = "aarch64")]
            Self::Arm(key) => key.expand(nodes, patch),
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.expand(nodes, patch),
        }
    }

    /// Makes `lanes` (one or [`LANES`]) leaves of each node. The nodes are the last part of `blocks`, one for each
    /// `lanes` of them: x_j turns into H(x_j ⊕ (l, l)), l < `lanes`, at `lanes`·j + l, (l, l) being l in both 64-bit
    /// halves, with zeros at the bits of `clear`. Returns the XOR of all leaves, lane by lane.
    pub(crate) fn leaves(&self, blocks: &mut [Block], lanes: usize, clear: u128) -> [Block; LANES] {
        assert!((lanes == 1 || lanes == LANES) && blocks.len().is_multiple_of(lanes), "whole rows");
        match self {
            Self::Portable(key) => key.leaves(blocks, lanes, clear),
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced(key) => key.leaves(blocks, lanes, clear),
            #[cfg(target_arch = "aarch64")]
            Self::Arm(key) => key.leaves(blocks, lanes, clear),
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.leaves(blocks, lanes, clear),
        }
    }

    /// Patches every leaf (or node), then sets the bit of `mark` in the marked one and clears it in all others.
    pub(crate) fn finish(&self, leaves: &mut [Block], patch: Patch, mark: Mark) {
        assert!(patch.period.is_power_of_two());
        match self {
            Self::Portable(_) => portable::finish(leaves, patch, mark),
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced(_) => portable::finish(leaves, patch, mark),
            #[cfg(target_arch = "aarch64")]
            Self::Arm(_) => portable::finish(leaves, patch, mark),
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.finish(leaves, patch, mark),
        }
    }

    /// XORs `values` to the leaves of the row `place`, which is secret; a row has [`LANES`] leaves.
    pub(crate) fn correct(&self, leaves: &mut [Block], values: &[Block; LANES], place: u64) {
        assert!(leaves.len().is_multiple_of(LANES), "whole rows");
        match self {
            Self::Portable(_) => portable::correct(leaves, values, place),
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced(_) => portable::correct(leaves, values, place),
            #[cfg(target_arch = "aarch64")]
            Self::Arm(_) => portable::correct(leaves, values, place),
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.correct(leaves, values, place),
        }
    }

    /// The kernel that this key is bound to.
    pub(crate) fn kernel(&self) -> Kernel {
        match self {
            Self::Portable(_) => Kernel::Portable,
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced(_) => Kernel::Sliced,
            #[cfg(target_arch = "aarch64")]
            Self::Arm(_) => Kernel::Arm,
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.kernel(),
        }
    }

    /// Fills `out`, seen as 32-bit words in the order of memory, with numbers below `bound`: word i of block j
    /// is ⌊w·`bound` / 2^32⌋, w being little-endian word i of π(`first` + j), the sum taken in the low 64 bits
    /// (wrapping). A number's probability is off by a factor of at most 1 ± `bound`/2^32.
    pub(crate) fn draw(&self, first: u128, bound: u32, out: &mut [Block]) {
        match self {
            Self::Portable(key) => key.draw(first, bound, out),
            #[cfg(any(target_arch = "wasm32", test))]
            Self::Sliced(key) => key.draw(first, bound, out),
            #[cfg(target_arch = "aarch64")]
            Self::Arm(key) => key.draw(first, bound, out),
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.draw(first, bound, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_standard_test_vector() {
        // FIPS 197, appendix C.1.
        let bytes = |x: u128| Block::from_bytes(x.to_be_bytes());
        let key = bytes(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
        let plain = bytes(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        for kernel in Kernel::available() {
            // σ⁻¹(plain), so that the left child is AES(plain) ⊕ plain.
            let (high, low) = ((plain.0 >> 64) as u64, plain.0 as u64);
            let x = Block(u128::from(low) << 64 | u128::from(high ^ low));
            let mut nodes = [x, Block::ZERO];
            let sum = Key::for_kernel(kernel, key).expand(&mut nodes, Patch::NONE);
            let cipher = bytes(0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a);
            assert!(nodes == [cipher ^ plain, x ^ cipher ^ plain] && sum == nodes[0], "{}", kernel.name());
        }
    }

    fn blocks(n: usize, seed: u64) -> Vec<Block> {
        let mut reader =
            blake3::Hasher::new_derive_key("kernel tests").update(&seed.to_le_bytes()).finalize_xof();
        let mut out = vec![Block::ZERO; n];
        reader.fill(bytemuck::cast_slice_mut(&mut out));
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_kernel_hashes_like_the_portable_one(
            n in 0usize..300, seed: u64, base: u128, number in prop_oneof![any::<u64>(), Just(u64::MAX)],
            shifts in 0usize..4, log_per_key in 0u32..6, bits in 1u32..=4,
        ) {
            let keys = PadKeys { base: Block(base), number, per_key: 1 << log_per_key };
            let mut x = blocks(n, seed);
            if n > 3 {
                (x[0], x[1], x[n - 1]) = (Block::ZERO, Block(u128::MAX), Block(u128::MAX));
            }
            let combinations: [Block; 16] = blocks(16, !seed).try_into().ok().unwrap();
            let mut want = (vec![Block::ZERO; shifts * n], vec![0; n]);
            pads(Kernel::Portable, keys, &combinations[..shifts], &x, &mut want.0);
            tables(Kernel::Portable, keys, &combinations, bits, &x, &mut want.1);
            for kernel in Kernel::available() {
                let mut got = (vec![Block::ZERO; shifts * n], vec![0; n]);
                pads(kernel, keys, &combinations[..shifts], &x, &mut got.0);
                tables(kernel, keys, &combinations, bits, &x, &mut got.1);
                prop_assert!(got.0 == want.0, "{} of {n}", kernel.name());
                prop_assert_eq!(got.1, want.1.clone());
            }
        }

        #[test]
        fn every_kernel_hashes_leaves_like_the_portable_one(
            n in 0usize..200, seed: u64, key: u128, lanes in prop_oneof![Just(1), Just(LANES)],
            clear in prop_oneof![Just(0u128), Just(1), Just(15)],
        ) {
            let nodes = blocks(lanes * n, seed);
            let mut want = nodes.clone();
            let sums = Key::for_kernel(Kernel::Portable, Block(key)).leaves(&mut want, lanes, clear);
            for (lane, sum) in sums.into_iter().enumerate() {
                let leaves = want.iter().skip(lane).step_by(lanes).take(if lane < lanes { n } else { 0 });
                prop_assert!(leaves.fold(Block::ZERO, |sum, &leaf| sum ^ leaf) == sum && sum.0 & clear == 0);
            }
            for kernel in Kernel::available() {
                let mut got = nodes.clone();
                prop_assert!(Key::for_kernel(kernel, Block(key)).leaves(&mut got, lanes, clear) == sums);
                prop_assert!(got == want, "{} of {lanes} times {n}", kernel.name());
            }
        }

        #[test]
        fn every_kernel_corrects_like_the_portable_one(n in 0usize..200, seed: u64, place in 0u64..210) {
            let leaves = blocks(LANES * n, seed);
            let values: [Block; LANES] = blocks(LANES, !seed).try_into().ok().unwrap();
            let mut want = leaves.clone();
            Key::for_kernel(Kernel::Portable, Block::ZERO).correct(&mut want, &values, place);
            for (i, (want, leaf)) in want.iter().zip(&leaves).enumerate() {
                prop_assert!(*want == *leaf ^ values[i % LANES].masked((i / LANES) as u64 == place));
            }
            for kernel in Kernel::available() {
                let mut got = leaves.clone();
                Key::for_kernel(kernel, Block::ZERO).correct(&mut got, &values, place);
                prop_assert!(got == want, "{} of {n}", kernel.name());
            }
        }

        #[test]
        fn every_kernel_expands_like_the_portable_one(
            log_n in 1u32..=10, seed: u64, key: u128, place: u64, log_period in 0u32..=10,
        ) {
            let period = 1 << log_period.min(log_n - 1);
            let patch = Patch { value: blocks(1, !seed)[0], place: place % period, period };
            let nodes = blocks(1 << log_n, seed);
            let mut want = nodes.clone();
            let sum = Key::for_kernel(Kernel::Portable, Block(key)).expand(&mut want, patch);
            for kernel in Kernel::available() {
                let mut got = nodes.clone();
                prop_assert!(Key::for_kernel(kernel, Block(key)).expand(&mut got, patch) == sum);
                prop_assert!(got == want, "{} of 2^{log_n}", kernel.name());
            }
        }

        #[test]
        fn every_kernel_finishes_like_the_portable_one(
            n in 0usize..200, seed: u64, place: u64, log_period in 0u32..=10, marked in prop::option::of(0u64..200),
            bit in prop_oneof![Just(0u128), Just(1)],
        ) {
            let mark = Mark { bit, place: marked.unwrap_or(u64::MAX) };
            let period = 1 << log_period;
            let patch = Patch { value: blocks(1, !seed)[0], place: place % period, period };
            let leaves = blocks(n, seed);
            let mut want = leaves.clone();
            Key::for_kernel(Kernel::Portable, Block::ZERO).finish(&mut want, patch, mark);
            for (j, leaf) in want.iter().enumerate() {
                prop_assert!(bit == 0 || leaf.lsb() == (Some(j as u64) == marked));
            }
            for kernel in Kernel::available() {
                let mut got = leaves.clone();
                Key::for_kernel(kernel, Block::ZERO).finish(&mut got, patch, mark);
                prop_assert!(got == want, "{} of {n}", kernel.name());
            }
        }

        #[test]
        fn every_kernel_draws_like_the_portable_one(
            n in 0usize..200, key: u128, first in prop_oneof![any::<u128>(), Just(u128::from(u64::MAX - 50))],
            bound in prop_oneof![1u32.., Just(1), Just(u32::MAX)],
        ) {
            let mut want = vec![Block::ZERO; n];
            Key::for_kernel(Kernel::Portable, Block(key)).draw(first, bound, &mut want);
            prop_assert!(bytemuck::cast_slice::<_, u32>(&want).iter().all(|&w| w < bound));
            for kernel in Kernel::available() {
                let mut got = vec![Block::ZERO; n];
                Key::for_kernel(kernel, Block(key)).draw(first, bound, &mut got);
                prop_assert!(got == want, "{} of {n}", kernel.name());
            }
        }
    }
}
