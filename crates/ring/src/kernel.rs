//! Which instruction set a kernel runs on.
//!
//! Every kernel of this crate exists three times: in plain Rust (the *scalar twin*, for other processors, for
//! WebAssembly and as the reference that the others are tested against), for AVX2, and for AVX-512 with VNNI.
//! All three give the same bits. The choice is made once per process from what the processor reports.

use std::sync::OnceLock;

/// An instruction set. All variants exist on all targets; [`is_available`](Self::is_available) says which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Plain Rust, one word at a time.
    Scalar,
    /// 256-bit vectors; 16-bit products by `vpmaddwd`.
    Avx2,
    /// 512-bit vectors (AVX-512 F, BW, DQ, VL); 16-bit products by VNNI's `vpdpwssd`.
    Avx512,
}

/// What [`Kernel::best`] found, or [`Kernel::limit`] set.
static BEST: OnceLock<Kernel> = OnceLock::new();

impl Kernel {
    /// All kernels, slowest first.
    pub const ALL: [Kernel; 3] = [Kernel::Scalar, Kernel::Avx2, Kernel::Avx512];

    /// The fastest kernel of this processor, unless the process was limited to another.
    pub fn best() -> Kernel {
        *BEST.get_or_init(|| {
            Kernel::ALL.into_iter().rev().find(|kernel| kernel.is_available()).unwrap_or(Kernel::Scalar)
        })
    }

    /// Makes this the kernel that the whole process uses, for measurements that compare instruction sets. Says whether it could:
    /// not if the processor cannot run it, nor after something was computed.
    #[must_use]
    pub fn limit(self) -> bool {
        self.is_available() && BEST.set(self).is_ok()
    }

    /// Whether this processor can run the kernel.
    pub fn is_available(self) -> bool {
        match self {
            Kernel::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => crate::simd::Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => crate::simd::Avx512::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Avx2 | Kernel::Avx512 => false,
        }
    }

    /// The kernels that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = Kernel> {
        Kernel::ALL.into_iter().filter(|kernel| kernel.is_available())
    }

    /// A short name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Scalar => "scalar",
            Kernel::Avx2 => "avx2",
            Kernel::Avx512 => "avx512-vnni",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_is_the_last_available() {
        assert_eq!(Kernel::available().last(), Some(Kernel::best()));
        assert_eq!(Kernel::available().next(), Some(Kernel::Scalar));
    }

    #[test]
    fn a_choice_that_was_made_stays() {
        let best = Kernel::best();
        assert!(!Kernel::Scalar.limit());
        assert_eq!(Kernel::best(), best);
    }
}
