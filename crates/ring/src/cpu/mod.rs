//! What the processor can do, and what it must not see. This crate is the only one that asks it; all others get the answer as a
//! value. What it must not see are secrets in branches and addresses: [`secret`].
//!
//! A program makes one [`Cpu`], usually by [`Cpu::detect`], and hands it down: to the engine, which hands it to the
//! linear backends, and so on. A crate with kernels has a type of its own for them, chosen from a [`Cpu`]
//! (`crate::Kernel::of`). So nothing is global, and two sessions of one process may compute with different
//! instructions.
//!
//! # Where another device enters
//!
//! A [`Cpu`] says *with which instructions* something is computed, not *where*. The plain integer product of a linear
//! layer (masked words times the server's weights) may also run on a GPU: `jaguar_linear::product::Hardware` has a
//! device for that beside the [`Cpu`], and is handed down along the same path, from the engine's options to the
//! server's side of linear layers.

pub mod secret;

/// Where the project is built and tested: Linux on x86-64; on 64-bit Arm, under emulation (`make test-arm`); WebAssembly in browsers. On
/// anything else a build ends here, with these words, rather than somewhere in a dependency, or in a program whose answers nobody has
/// looked at.
const _: () = {
    let linux = cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")));
    let tested = linux || cfg!(target_arch = "wasm32");
    let asked_for = option_env!("JAGUAR_UNTESTED_PLATFORM").is_some();
    assert!(
        tested || asked_for,
        "Jaguar is made for Linux on x86-64 and 64-bit Arm (on Windows: in WSL 2). Nothing is tested on this platform: neither \
         that answers are right nor that times hide secrets. To try all the same, set JAGUAR_UNTESTED_PLATFORM=1 and build again."
    );
};

/// A set of instructions that a kernel may need, of x86-64 but for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Feature {
    /// 128-bit vectors, up to SSE4.1: what AES-NI is used with.
    Sse41,
    /// 256-bit vectors of integers.
    Avx2,
    /// Multiplication and addition of floating-point numbers with one rounding.
    Fma,
    /// 512-bit vectors: the foundation.
    Avx512F,
    /// 512-bit vectors of bytes and 16-bit words.
    Avx512Bw,
    /// 512-bit vectors of 32-bit and 64-bit words: more operations.
    Avx512Dq,
    /// The operations of AVX-512 on shorter vectors.
    Avx512Vl,
    /// Sums of 16-bit products, in 512-bit vectors.
    Avx512Vnni,
    /// Sums of 52-bit products, in 512-bit vectors.
    Avx512Ifma,
    /// AES, one block an instruction.
    Aes,
    /// AES, a vector of blocks an instruction.
    Vaes,
    /// 128-bit vectors of 64-bit Arm.
    Neon,
    /// AES of 64-bit Arm, one block in two instructions a round.
    ArmAes,
}

impl Feature {
    const ALL: [Self; 13] = [
        Self::Sse41,
        Self::Avx2,
        Self::Fma,
        Self::Avx512F,
        Self::Avx512Bw,
        Self::Avx512Dq,
        Self::Avx512Vl,
        Self::Avx512Vnni,
        Self::Avx512Ifma,
        Self::Aes,
        Self::Vaes,
        Self::Neon,
        Self::ArmAes,
    ];

    const fn bit(self) -> u16 {
        1 << self as u8
    }

    /// Whether this processor, and its operating system, have it. (To check before `unsafe` code; what may be *used* a
    /// [`Cpu`] says.)
    #[cfg(target_arch = "x86_64")]
    pub fn is_there(self) -> bool {
        match self {
            Self::Sse41 => is_x86_feature_detected!("sse4.1"),
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            Self::Fma => is_x86_feature_detected!("fma"),
            Self::Avx512F => is_x86_feature_detected!("avx512f"),
            Self::Avx512Bw => is_x86_feature_detected!("avx512bw"),
            Self::Avx512Dq => is_x86_feature_detected!("avx512dq"),
            Self::Avx512Vl => is_x86_feature_detected!("avx512vl"),
            Self::Avx512Vnni => is_x86_feature_detected!("avx512vnni"),
            Self::Avx512Ifma => is_x86_feature_detected!("avx512ifma"),
            Self::Aes => is_x86_feature_detected!("aes"),
            Self::Vaes => is_x86_feature_detected!("vaes"),
            Self::Neon | Self::ArmAes => false,
        }
    }

    /// Whether this processor, and its operating system, have it.
    #[cfg(target_arch = "aarch64")]
    pub fn is_there(self) -> bool {
        match self {
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            Self::ArmAes => std::arch::is_aarch64_feature_detected!("aes"),
            Self::Sse41 | Self::Avx2 | Self::Fma | Self::Aes | Self::Vaes => false,
            Self::Avx512F | Self::Avx512Bw | Self::Avx512Dq => false,
            Self::Avx512Vl | Self::Avx512Vnni | Self::Avx512Ifma => false,
        }
    }

    /// Whether this processor has it: no.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn is_there(self) -> bool {
        false
    }

    /// The lowest level that has it.
    const fn level(self) -> Level {
        match self {
            Self::Sse41 | Self::Avx2 | Self::Fma | Self::Aes | Self::Vaes | Self::Neon | Self::ArmAes => {
                Level::Avx2
            }
            Self::Avx512F
            | Self::Avx512Bw
            | Self::Avx512Dq
            | Self::Avx512Vl
            | Self::Avx512Vnni
            | Self::Avx512Ifma => Level::Avx512,
        }
    }
}

/// How wide vectors may be, for programs that compare instruction sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No feature at all: plain Rust.
    Scalar,
    /// Vectors of at most 256 bits, and all that 64-bit Arm has.
    Avx2,
    /// Vectors of at most 512 bits.
    Avx512,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];
}

/// Which [`Feature`]s may be used.
///
/// A value never has a feature that this processor lacks: it is made by asking it, and can only lose features. So
/// kernels may rest the soundness of their `unsafe` code on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cpu {
    features: u16,
}

impl Cpu {
    /// Everything that this processor has. The standard library asks it once per process; the call is cheap.
    pub fn detect() -> Self {
        let there = Feature::ALL.into_iter().filter(|feature| feature.is_there());
        Self { features: there.fold(0, |features, feature| features | feature.bit()) }
    }

    /// No feature: plain Rust, on any processor.
    pub const fn scalar() -> Self {
        Self { features: 0 }
    }

    /// Without the features that take wider vectors than `level` allows.
    #[must_use]
    pub fn limited_to(self, level: Level) -> Self {
        let left = Feature::ALL.into_iter().filter(|feature| self.has(*feature) && feature.level() <= level);
        Self { features: left.fold(0, |features, feature| features | feature.bit()) }
    }

    /// Whether `feature` may be used.
    pub const fn has(self, feature: Feature) -> bool {
        self.features & feature.bit() != 0
    }

    /// Whether all of `features` may be used.
    pub fn has_all(self, features: &[Feature]) -> bool {
        features.iter().all(|&feature| self.has(feature))
    }
}

/// Everything that this processor has: what options hold unless somebody says otherwise.
impl Default for Cpu {
    fn default() -> Self {
        Self::detect()
    }
}

/// Lists the features.
impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(Feature::ALL.into_iter().filter(|&feature| self.has(feature))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_its_own_bit() {
        let all = Feature::ALL.into_iter().fold(0, |all, feature| {
            assert_eq!(all & feature.bit(), 0, "{feature:?}");
            all | feature.bit()
        });
        assert_eq!(all.count_ones() as usize, Feature::ALL.len());
    }

    #[test]
    fn a_value_has_what_the_processor_has() {
        let cpu = Cpu::detect();
        for feature in Feature::ALL {
            assert_eq!(cpu.has(feature), feature.is_there(), "{feature:?}");
            assert!(!Cpu::scalar().has(feature));
        }
        assert_eq!(format!("{:?}", Cpu::scalar()), "{}");
    }

    /// On made-up processors too, so that it is tested wherever it runs.
    #[test]
    fn a_limit_takes_away_what_is_wider() {
        for features in 0..1 << Feature::ALL.len() {
            let cpu = Cpu { features };
            assert_eq!(cpu.limited_to(Level::Avx512), cpu);
            assert_eq!(cpu.limited_to(Level::Scalar), Cpu::scalar());
            for feature in Feature::ALL {
                let narrow = !format!("{feature:?}").starts_with("Avx512");
                assert_eq!(cpu.limited_to(Level::Avx2).has(feature), cpu.has(feature) && narrow);
            }
        }
    }

    #[test]
    fn all_features_are_asked_for() {
        let cpu = Cpu { features: Feature::Avx2.bit() | Feature::Fma.bit() };
        assert!(cpu.has_all(&[]) && cpu.has_all(&[Feature::Avx2, Feature::Fma]));
        assert!(!cpu.has_all(&[Feature::Avx2, Feature::Vaes]));
    }
}
