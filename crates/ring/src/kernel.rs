//! Which instruction set a kernel runs on.
//!
//! Every kernel of this crate exists in plain Rust (the *scalar twin*, for other processors, for WebAssembly and as
//! the reference that the others are tested against), for AVX2, and for AVX-512 with VNNI; those that gain by it, for
//! Neon. All give the same bits. The choice follows from a [`Cpu`], and is handed to whatever computes.

use crate::cpu::{Cpu, Level};

#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};

/// An instruction set that this processor has: it is chosen from what a [`Cpu`] says, and there is no other way to one
/// but [`SCALAR`](Self::SCALAR), which all have.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel(pub(crate) Set);

/// The instruction sets, each with the proof that it is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Set {
    /// Plain Rust, one word at a time.
    Scalar,
    /// 256-bit vectors; 16-bit products by `vpmaddwd`.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 512-bit vectors (AVX-512 F, BW, DQ, VL); 16-bit products by VNNI's `vpdpwssd`; where the processor has IFMA too,
    /// products of residues of up to 50 bits by that.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// 128-bit vectors of Arm, two at a time.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Kernel {
    /// Plain Rust, on any processor.
    pub const SCALAR: Kernel = Kernel(Set::Scalar);

    /// How many kernels there are, on any processor.
    pub(crate) const COUNT: usize = 4;

    /// The fastest kernel that needs no other features than `cpu` has.
    pub fn of(cpu: Cpu) -> Kernel {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(simd) = Avx512::of(cpu) {
                return Kernel(Set::Avx512(simd));
            }
            if let Some(simd) = Avx2::of(cpu) {
                return Kernel(Set::Avx2(simd));
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(simd) = Neon::of(cpu) {
            return Kernel(Set::Neon(simd));
        }
        let _ = cpu;
        Kernel::SCALAR
    }

    /// All kernels that need no other features than `cpu` has, slowest first.
    pub fn all(cpu: Cpu) -> impl Iterator<Item = Kernel> {
        let mut kernels: Vec<Kernel> = Level::ALL.map(|level| Kernel::of(cpu.limited_to(level))).into();
        kernels.dedup();
        kernels.into_iter()
    }

    /// Its place among all kernels, slowest first: for tables that are kept by kernel.
    pub(crate) fn index(self) -> usize {
        match self.0 {
            Set::Scalar => 0,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => 1,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => 2,
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => 3,
        }
    }

    /// The kernel for what takes more instructions with Neon than in plain Rust, of which the compiler makes the best on Arm.
    pub(crate) fn unless_neon(self) -> Kernel {
        match self.0 {
            Set::Scalar => self,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) | Set::Avx512(_) => self,
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => Kernel::SCALAR,
        }
    }

    /// A short name for tables.
    pub fn name(self) -> &'static str {
        ["scalar", "avx2", "avx512-vnni", "neon"][self.index()]
    }
}

/// Its name.
impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_the_last() {
        let cpu = Cpu::detect();
        assert_eq!(Kernel::all(cpu).last(), Some(Kernel::of(cpu)));
        assert_eq!(Kernel::all(cpu).next(), Some(Kernel::SCALAR));
        let places: Vec<usize> = Kernel::all(cpu).map(Kernel::index).collect();
        assert!(places.is_sorted_by(|a, b| a < b) && places.iter().all(|&place| place < Kernel::COUNT));
    }

    #[test]
    fn a_limit_is_kept_to() {
        let cpu = Cpu::detect();
        assert_eq!(Kernel::of(Cpu::scalar()), Kernel::SCALAR);
        assert_eq!(Kernel::of(cpu.limited_to(Level::Scalar)), Kernel::SCALAR);
        assert_ne!(Kernel::of(cpu.limited_to(Level::Avx2)).name(), "avx512-vnni");
        assert_eq!(Kernel::of(cpu.limited_to(Level::Avx512)), Kernel::of(cpu));
    }
}
