//! Vectors of 32-bit lanes: one trait, an implementation for each instruction set, and the macro that compiles a generic kernel for each. In
//! `wide.rs`, the same for words of 64 bits.
//!
//! A value of a type that implements [`Simd`] is a token: it exists only where the processor was found to have the
//! features, so the trait's methods are safe. Kernels are written once, generically, in safe Rust with
//! `#[inline(always)]`, and become machine code inside the functions that [`multiversion`] makes, which carry the
//! matching `#[target_feature]`. Memory is handed over as [`Line`]s, which are aligned for all vectors, and viewed as
//! slices of vectors; so bounds are checked by the usual slice operations.

#[cfg(target_arch = "aarch64")]
mod arm;
mod portable;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
pub(crate) use arm::Neon;
pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use wide::Fused;
pub(crate) use wide::{Fit, Wide, multiversion_fit, multiversion_wide};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Avx512Ifma, Avx512Tight};

/// Methods that are always inlined: kernels get their instructions from who calls them. With `intrinsics:`, bodies are of
/// those, on values only: no memory is touched.
macro_rules! inlined {
    (intrinsics: $(
        fn $name:ident $([const $n:ident: $nty:ty])? ($self:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)? $body:block
    )*) => {
        $(
            #[inline(always)]
            fn $name $(<const $n: $nty>)? ($self $(, $arg: $ty)*) $(-> $ret)? {
                // SAFETY: `self` exists only on a processor that has the features of these intrinsics.
                unsafe { $body }
            }
        )*
    };
    ($(fn $name:ident $([const $n:ident: $nty:ty])? ($self:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)? $body:block)*) => {
        $(
            #[inline(always)]
            fn $name $(<const $n: $nty>)? ($self $(, $arg: $ty)*) $(-> $ret)? $body
        )*
    };
}
use inlined;

/// One cache line of 32-bit words, the unit in which kernels allocate.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line(pub [u32; 16]);

impl Line {
    pub(crate) const ZERO: Line = Line([0; 16]);
    /// 32-bit words in a line.
    pub(crate) const WORDS: usize = 16;
}

/// The 32-bit words of `lines`.
pub(crate) fn words(lines: &[Line]) -> &[u32] {
    bytemuck::cast_slice(lines)
}

/// The 32-bit words of `lines`.
pub(crate) fn words_mut(lines: &mut [Line]) -> &mut [u32] {
    bytemuck::cast_slice_mut(lines)
}

/// Overwrites memory that held a secret with zeros, in a way that the compiler may not leave out. (For WebAssembly `zeroize` has
/// no such barrier in assembly, only `black_box`, which is best effort.)
///
/// `zeroize` clears word by word with volatile writes; one fill and one barrier are several times faster, which
/// matters where it happens once per ring product.
pub(crate) fn wipe<T: bytemuck::Zeroable + Copy>(values: &mut [T]) {
    values.fill(T::zeroed());
    zeroize::optimization_barrier(values);
}

/// Types that [`wipe`] a field when they are dropped.
macro_rules! wipe_on_drop {
    ($($name:ident.$field:tt),*) => {
        $(impl Drop for $name {
            fn drop(&mut self) {
                $crate::simd::wipe(&mut self.$field);
            }
        })*
    };
}
pub(crate) use wipe_on_drop;

/// Operations on a vector `V` of `LANES` unsigned 32-bit lanes and on `W`, as many 64-bit lanes. All wrap.
pub(crate) trait Simd: Copy {
    /// `LANES` 32-bit lanes.
    type V: Copy;
    /// `LANES` 64-bit lanes, in the same order.
    type W: Copy;
    const LANES: usize;

    /// `lines` as vectors: `16 * lines.len() / LANES` of them.
    fn view(self, lines: &[Line]) -> &[Self::V];
    fn view_mut(self, lines: &mut [Line]) -> &mut [Self::V];

    fn splat(self, value: u32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of two unsigned lanes.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The low 32 bits of each product.
    fn mul_lo(self, a: Self::V, b: Self::V) -> Self::V;
    /// The high 32 bits of each product.
    fn mul_hi(self, a: Self::V, b: Self::V) -> Self::V;
    /// `(a_0, b_0, a_1, b_1, ...)`, first and second half.
    fn zip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);
    /// The inverse of [`zip`](Self::zip).
    fn unzip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);

    /// Reads the first `LANES` words; panics if there are fewer.
    fn load_words(self, words: &[u64]) -> Self::W;
    /// Writes the first `LANES` words; panics if there are fewer.
    fn store_words(self, words: &mut [u64], value: Self::W);
    fn splat_word(self, value: u64) -> Self::W;
    fn add_words(self, a: Self::W, b: Self::W) -> Self::W;
    fn and_words(self, a: Self::W, b: Self::W) -> Self::W;
    fn shl_words<const BITS: u32>(self, a: Self::W) -> Self::W;
    /// Shifts lanes right by `count` bits, below 64.
    fn shr_words(self, a: Self::W, count: u32) -> Self::W;
    /// Low and high halves of each 64-bit lane.
    fn split_words(self, a: Self::W) -> (Self::V, Self::V);
    /// Zero-extends each lane.
    fn widen(self, a: Self::V) -> Self::W;
    /// The low 32 bits of each lane of `a` times those of `b`, to 64 bits.
    fn mul_words(self, a: Self::W, b: Self::W) -> Self::W;
    /// The low 64 bits of each product of whole lanes.
    fn mul_low_words(self, a: Self::W, b: Self::W) -> Self::W;

    /// Lanes for [`mul_words`](Self::mul_words), cheaper than [`widen`](Self::widen): the low half of each is a lane
    /// of `a`, in an order that only [`join_high`](Self::join_high) undoes; the high half is anything.
    fn spread(self, a: Self::V) -> Self::W;
    /// The high halves, in the order that [`spread`](Self::spread) took apart.
    fn join_high(self, a: Self::W) -> Self::V;
    fn sub_words(self, a: Self::W, b: Self::W) -> Self::W;
    /// Subtracts `modulus`, a word whose low half is zero, where the high half of a lane is at least that of the modulus.
    fn reduce_high(self, a: Self::W, modulus: Self::W) -> Self::W;
}

#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
/// What the matrix products need besides: pairs of signed 16-bit numbers in a 32-bit lane.
pub(crate) trait Dot: Simd {
    /// `acc + low(a)*low(b) + high(a)*high(b)` per lane, modulo `2^32`. Exact unless all four halves are `-2^15`.
    fn dot(self, acc: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts signed lanes right by 16.
    fn shr16_signed(self, a: Self::V) -> Self::V;
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    /// Sign-extends each lane.
    fn widen_signed(self, a: Self::V) -> Self::W;
    /// Reads the first `LANES` words, which need no alignment; panics if there are fewer.
    fn load(self, words: &[u32]) -> Self::V;
    /// Lanes `(a_i, b_i)` for `i` in `0..LANES` and in `LANES..2*LANES`; panics if `a` or `b` is shorter.
    fn pair_up(self, a: &[i16], b: &[i16]) -> (Self::V, Self::V);

    /// Pairs in an order that only [`dot_terms`](Self::dot_terms) knows.
    #[inline(always)]
    fn terms_of(self, pairs: Self::V) -> Self::V {
        pairs
    }
    /// What [`pair_up`](Self::pair_up) gives, in the order of [`terms_of`](Self::terms_of).
    #[inline(always)]
    fn two_terms(self, a: &[i16], b: &[i16]) -> (Self::V, Self::V) {
        self.pair_up(a, b)
    }
    /// [`dot`](Self::dot) of a vector in that order with one whose lanes are all the same.
    #[inline(always)]
    fn dot_terms(self, acc: Self::V, terms: Self::V, weights: Self::V) -> Self::V {
        self.dot(acc, terms, weights)
    }
}

/// The same vectors as `2 * LANES` lanes of 16 bits, each 32-bit lane being two of them, the lower one first (so that memory
/// holds them in order on the little-endian processors that all targets of this crate are). All wrap.
pub(crate) trait Lanes16: Dot {
    fn add16(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub16(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of two unsigned lanes.
    fn min16(self, a: Self::V, b: Self::V) -> Self::V;
    /// The low 16 bits of each product.
    fn mul_lo16(self, a: Self::V, b: Self::V) -> Self::V;
    /// The high 16 bits of each unsigned product.
    fn mul_hi16(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts signed 32-bit lanes right by 28.
    fn shr28_signed(self, a: Self::V) -> Self::V;
    /// Shifts 32-bit lanes left by 16.
    fn shl16(self, a: Self::V) -> Self::V;
    /// The high halves of the 32-bit lanes of `a`, then those of `b`.
    fn pack_high(self, a: Self::V, b: Self::V) -> Self::V;
    /// 64-bit lanes with these halves: the inverse of [`split_words`](Simd::split_words).
    fn join_words(self, low: Self::V, high: Self::V) -> Self::W;
}

/// For each `fn name(args...) = generic;`, defines `fn name(kernel: Kernel, args...)` which runs `generic(token, args...)`, compiled for
/// that instruction set; without one, `generic` on single lanes, or what stands behind `scalar`.
macro_rules! multiversion {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $generic:ident $(, scalar $scalar:expr)?;)*) => {
        $(
            $(#[$meta])*
            #[allow(clippy::too_many_arguments)]
            $vis fn $name(kernel: $crate::kernel::Kernel, $($arg: $ty),*) {
                $crate::simd::multiversion!(@ avx2, $crate::simd::Avx2, "avx2", $generic($($arg: $ty),*));
                $crate::simd::multiversion!(
                    @ avx512, $crate::simd::Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", $generic($($arg: $ty),*)
                );
                match kernel.0 {
                    $crate::kernel::Set::Scalar => $crate::simd::multiversion!(@ scalar $generic($($arg),*) $($scalar)?),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernel::Set::Avx2(simd) => {
                        // SAFETY: the token proves that the processor has the features that the function enables.
                        unsafe { avx2(simd, $($arg),*) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernel::Set::Avx512(simd) => {
                        // SAFETY: the token proves that the processor has the features that the function enables.
                        unsafe { avx512(simd, $($arg),*) }
                    }
                    // Every 64-bit Arm target of Rust's compiles everything for Neon.
                    #[cfg(target_arch = "aarch64")]
                    $crate::kernel::Set::Neon(simd) => $generic(simd, $($arg),*),
                }
            }
        )*
    };
    (@ scalar $generic:ident($($arg:ident),*)) => { $generic($crate::simd::Portable, $($arg),*) };
    (@ scalar $generic:ident($($arg:ident),*) $scalar:expr) => { ($scalar)($($arg),*) };
    (@ $set:ident, $token:ty, $features:literal, $generic:ident($($arg:ident: $ty:ty),*)) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        #[allow(clippy::too_many_arguments)]
        fn $set(simd: $token, $($arg: $ty),*) {
            $generic(simd, $($arg),*)
        }
    };
}
pub(crate) use multiversion;

#[cfg(test)]
mod tests;
