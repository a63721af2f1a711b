//! AES-128 under public keys, batched: the loops in which this crate spends its time.
//!
//! | function | computes | used by |
//! |---|---|---|
//! | [`Key::tccr`] | π(π(x) ⊕ i) ⊕ π(x) | [`crate::hash`] |
//! | [`Key::expand`] | one level of a correlated GGM tree | [`crate::ggm`] |
//! | [`Key::finish`] | the corrections on the leaves | [`crate::ggm`] |
//! | [`Key::draw`] | numbers below a bound from π(c), π(c + 1), … | [`crate::lpn`] |
//!
//! Every kernel runs in time independent of the data. [`portable`] is the scalar twin that the SIMD kernels of
//! [`x86`] are tested against; the choice is made once per process by what the CPU has. Keys are public here:
//! they are fixed, or follow from a public seed.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use jaguar_cpu::Cpu;

use crate::Block;

/// The instructions that a key's functions use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// The `aes` crate.
    Portable,
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
        let mut kernels = vec![Self::Portable];
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

    /// A name for reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
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

/// An expanded public key, bound to a kernel.
#[derive(Clone)]
pub(crate) enum Key {
    Portable(Box<portable::Key>),
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
            #[cfg(target_arch = "x86_64")]
            other => Self::X86(x86::Key::new(other, key)),
        }
    }

    /// Replaces every `x[j]` by π(π(`x[j]`) ⊕ i) ⊕ π(`x[j]`), where i is `first` with ⌊j / 2^`log_group`⌋ added to
    /// its low 64 bits (wrapping). `log_group` is below 64.
    pub(crate) fn tccr(&self, first: u128, log_group: u32, x: &mut [Block]) {
        assert!(log_group < 64, "groups of 2^{log_group} inputs");
        match self {
            Self::Portable(key) => key.tccr(first, log_group, x),
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.tccr(first, log_group, x),
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
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.expand(nodes, patch),
        }
    }

    /// Patches every leaf, and sets its bit 0 to whether its index is `marked` (which is secret).
    pub(crate) fn finish(&self, leaves: &mut [Block], patch: Patch, marked: Option<u64>) {
        assert!(patch.period.is_power_of_two());
        // No index reaches this value.
        let marked = marked.unwrap_or(u64::MAX);
        match self {
            Self::Portable(_) => portable::finish(leaves, patch, marked),
            #[cfg(target_arch = "x86_64")]
            Self::X86(key) => key.finish(leaves, patch, marked),
        }
    }

    /// Fills `out`, seen as 32-bit words in the order of memory, with numbers below `bound`: word i of block j
    /// is ⌊w·`bound` / 2^32⌋, w being little-endian word i of π(`first` + j), the sum taken in the low 64 bits
    /// (wrapping). A number's probability is off by a factor of at most 1 ± `bound`/2^32.
    pub(crate) fn draw(&self, first: u128, bound: u32, out: &mut [Block]) {
        match self {
            Self::Portable(key) => key.draw(first, bound, out),
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
            n in 0usize..200, seed: u64, key: u128, high: u64, low in prop_oneof![any::<u64>(), Just(u64::MAX - 3)],
            log_group in prop_oneof![0u32..8, Just(63)],
        ) {
            let first = u128::from(high) << 64 | u128::from(low);
            let mut x = blocks(n, seed);
            if n > 3 {
                (x[0], x[1], x[n - 1]) = (Block::ZERO, Block(u128::MAX), Block(u128::MAX));
            }
            let mut want = x.clone();
            Key::for_kernel(Kernel::Portable, Block(key)).tccr(first, log_group, &mut want);
            for kernel in Kernel::available() {
                let mut got = x.clone();
                Key::for_kernel(kernel, Block(key)).tccr(first, log_group, &mut got);
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
        ) {
            let period = 1 << log_period;
            let patch = Patch { value: blocks(1, !seed)[0], place: place % period, period };
            let leaves = blocks(n, seed);
            let mut want = leaves.clone();
            Key::for_kernel(Kernel::Portable, Block::ZERO).finish(&mut want, patch, marked);
            for (j, leaf) in want.iter().enumerate() {
                prop_assert_eq!(leaf.lsb(), Some(j as u64) == marked);
            }
            for kernel in Kernel::available() {
                let mut got = leaves.clone();
                Key::for_kernel(kernel, Block::ZERO).finish(&mut got, patch, marked);
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
