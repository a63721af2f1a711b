//! Vectors of 64-bit words, for residues of primes of up to 60 bits.

/// Operations on a vector `W` of `LANES` unsigned words of 64 bits. All wrap.
///
/// The scalar twins of kernels over it are the functions of one residue of [`modular`](crate::modular).
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) trait Wide: Copy {
    /// `LANES` words.
    type W: Copy;
    const LANES: usize;

    /// Reads the first `LANES` words; panics if there are fewer.
    fn load(self, words: &[u64]) -> Self::W;
    /// Writes the first `LANES` words; panics if there are fewer.
    fn store(self, words: &mut [u64], value: Self::W);
    fn splat(self, word: u64) -> Self::W;
    fn add(self, a: Self::W, b: Self::W) -> Self::W;
    fn sub(self, a: Self::W, b: Self::W) -> Self::W;
    fn and(self, a: Self::W, b: Self::W) -> Self::W;
    /// Shifts right by `count` bits, below 64.
    fn shr(self, a: Self::W, count: u32) -> Self::W;
    /// Shifts left by `count` bits, below 64.
    fn shl(self, a: Self::W, count: u32) -> Self::W;
    /// `a + modulus` where a, as a signed number, is negative; a elsewhere. For `-modulus <= a < 2^63` and a modulus of
    /// up to `2^63`.
    fn wrap(self, a: Self::W, modulus: Self::W) -> Self::W;
    /// Products of the low halves, unsigned.
    fn mul_halves(self, a: Self::W, b: Self::W) -> Self::W;
    /// Products of the low halves, signed.
    fn mul_signed_halves(self, a: Self::W, b: Self::W) -> Self::W;
    /// The low 64 bits of each product.
    fn mul_lo(self, a: Self::W, b: Self::W) -> Self::W;

    /// The words of `from` at the first `LANES` places of `sources`, which all lie in one block of `LANES` words that begins at a
    /// multiple of `LANES`. Panics if `sources` is shorter or the block is not there.
    fn permute(self, from: &[u64], sources: &[u32]) -> Self::W;
    /// The first `LANES / times` words, each so many times. `times` is a power of two below `LANES`.
    fn repeat(self, words: &[u64], times: usize) -> Self::W;
    /// Exchanges the bit of value `half` of a lane's number with the bit that says which of the two vectors. Its own
    /// inverse. `half` is a power of two below `LANES`.
    fn regroup(self, half: usize, x: Self::W, y: Self::W) -> (Self::W, Self::W);

    /// The words of even places and those of odd ones, of two vectors one after the other.
    fn unzip_words(self, x: Self::W, y: Self::W) -> (Self::W, Self::W);
    /// The inverse of [`unzip_words`](Self::unzip_words).
    fn zip_words(self, x: Self::W, y: Self::W) -> (Self::W, Self::W);

    /// The high 64 bits of each product.
    #[inline(always)]
    fn mul_hi(self, a: Self::W, b: Self::W) -> Self::W {
        let (a1, b1) = (self.shr(a, 32), self.shr(b, 32));
        let low = self.shr(self.mul_halves(a, b), 32);
        // Sums of a product of halves and of numbers below 2^32: no carry is lost.
        let first = self.add(self.mul_halves(a1, b), low);
        let second = self.add(self.mul_halves(a, b1), self.and(first, self.splat(u32::MAX.into())));
        let high = self.add(self.mul_halves(a1, b1), self.shr(first, 32));
        self.add(high, self.shr(second, 32))
    }
}

/// Sums of products of 52 bits.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) trait Fused: Wide {
    /// `sum` + the low 52 bits of the product of the low 52 bits of a and b.
    fn add_mul_lo(self, sum: Self::W, a: Self::W, b: Self::W) -> Self::W;
    /// `sum` + the upper 52 bits of that product.
    fn add_mul_hi(self, sum: Self::W, a: Self::W, b: Self::W) -> Self::W;
}

/// Defines `fn name(kernel: Kernel, narrow: bool, args...)` which runs `generic(token, args...)`, compiled for that instruction
/// set, or `scalar(args...)`. With IFMA, where there is that, if `narrow`.
macro_rules! multiversion_wide {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $generic:ident, scalar $scalar:expr) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(kernel: $crate::kernel::Kernel, narrow: bool, $($arg: $ty),*) {
            $crate::simd::multiversion!(@ avx2, $crate::simd::Avx2, "avx2", $generic($($arg: $ty),*));
            $crate::simd::multiversion!(
                @ avx512, $crate::simd::Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", $generic($($arg: $ty),*)
            );
            $crate::simd::multiversion!(
                @ ifma, $crate::simd::Avx512Ifma, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma", $generic($($arg: $ty),*)
            );
            let _ = narrow;
            match kernel.0 {
                $crate::kernel::Set::Scalar => ($scalar)($($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::kernel::Set::Avx2(simd) => {
                    // SAFETY: the token proves that the processor has the features that the function enables.
                    unsafe { avx2(simd, $($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::kernel::Set::Avx512(simd) => match simd.ifma() {
                    // SAFETY: as above.
                    Some(simd) if narrow => unsafe { ifma(simd, $($arg),*) },
                    // SAFETY: as above.
                    _ => unsafe { avx512(simd, $($arg),*) },
                },
                // Neon has no products of 64 bits.
                #[cfg(target_arch = "aarch64")]
                $crate::kernel::Set::Neon(_) => ($scalar)($($arg),*),
            }
        }
    };
}
pub(crate) use multiversion_wide;

/// How many bits residues leave free in the 52 that IFMA multiplies.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    /// Four times one fits.
    Narrow,
    /// Two times one fits.
    Tight,
    /// Too few.
    Wide,
}

/// As [`multiversion_wide`], for `fn name(kernel: Kernel, fit: Fit, args...)`: with IFMA, where there is that, as the residues fit.
macro_rules! multiversion_fit {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $generic:ident, scalar $scalar:expr) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(kernel: $crate::kernel::Kernel, fit: $crate::simd::Fit, $($arg: $ty),*) {
            $crate::simd::multiversion!(
                @ tight, $crate::simd::Avx512Tight, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma", $generic($($arg: $ty),*)
            );
            $crate::simd::multiversion_wide!(fn others($($arg: $ty),*) = $generic, scalar $scalar);
            match kernel.0 {
                #[cfg(target_arch = "x86_64")]
                $crate::kernel::Set::Avx512(simd) if fit == $crate::simd::Fit::Tight => match simd.ifma() {
                    // SAFETY: the token proves that the processor has the features that the function enables.
                    Some(simd) => unsafe { tight(simd.tight(), $($arg),*) },
                    None => others(kernel, false, $($arg),*),
                },
                _ => others(kernel, fit == $crate::simd::Fit::Narrow, $($arg),*),
            }
        }
    };
}
pub(crate) use multiversion_fit;
