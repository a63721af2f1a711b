//! AVX2 and AVX-512 behind [`Simd`], [`Dot`] and [`Lanes16`]: the only place that names an intrinsic.

use super::{Dot, Lanes16, Line, Simd};
use crate::cpu::{Cpu, Feature};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Proof that the processor has AVX2.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Avx2(PhantomData<()>);

/// Proof that the processor has AVX-512 F, BW, DQ, VL and VNNI, and AVX2.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Avx512 {
    ifma: Option<Avx512Ifma>,
}

/// Proof that the processor has AVX-512 IFMA too.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Avx512Ifma(PhantomData<()>);

impl Avx2 {
    pub(crate) fn of(cpu: Cpu) -> Option<Avx2> {
        cpu.has(Feature::Avx2).then_some(Avx2(PhantomData))
    }
}

impl Avx512 {
    pub(crate) fn of(cpu: Cpu) -> Option<Avx512> {
        use Feature::{Avx2, Avx512Bw, Avx512Dq, Avx512F, Avx512Ifma as Ifma, Avx512Vl, Avx512Vnni};
        let all = cpu.has_all(&[Avx2, Avx512F, Avx512Bw, Avx512Dq, Avx512Vl, Avx512Vnni]);
        all.then(|| Avx512 { ifma: cpu.has(Ifma).then_some(Avx512Ifma(PhantomData)) })
    }

    /// With IFMA, where the processor has it.
    pub(crate) fn ifma(self) -> Option<Avx512Ifma> {
        self.ifma
    }

    /// As if the processor had no IFMA.
    #[cfg(test)]
    pub(crate) fn without_ifma(self) -> Self {
        Self { ifma: None }
    }

    /// Processors with AVX-512 have AVX2 too.
    pub(crate) fn narrow(self) -> Avx2 {
        Avx2(PhantomData)
    }
}

impl Avx512Ifma {
    /// Without it.
    pub(crate) fn base(self) -> Avx512 {
        Avx512 { ifma: Some(self) }
    }
}

/// Methods whose bodies are intrinsics on values only: no memory is touched.
macro_rules! intrinsics {
    ($(fn $name:ident $([const $n:ident: $nty:ty])? ($($arg:ident: $ty:ty),*) -> $ret:ty { $body:expr })*) => {
        $(
            #[inline(always)]
            fn $name $(<const $n: $nty>)? (self, $($arg: $ty),*) -> $ret {
                // SAFETY: `self` exists only on a processor that has the features of these intrinsics.
                unsafe { $body }
            }
        )*
    };
}
pub(super) use intrinsics;

/// Lane numbers for a permutation, as a constant vector.
const fn lanes16(start: [u32; 2], step: u32) -> [u32; 16] {
    let mut index = [0; 16];
    let mut i = 0;
    while i < 16 {
        index[i] = start[i % 2] + step * (i as u32 / 2);
        i += 1;
    }
    index
}

/// `(i, 16 + i)` for `i` in 0..8, and for 8..16.
const ZIP_LOW: [u32; 16] = lanes16([0, 16], 1);
const ZIP_HIGH: [u32; 16] = lanes16([8, 24], 1);
/// Even and odd lanes of two vectors.
const EVEN: [u32; 16] = lanes16([0, 2], 4);
const ODD: [u32; 16] = lanes16([1, 3], 4);

/// The upper halves of the 32-bit lanes of two vectors.
const HIGH_HALVES: [u16; 32] = {
    let mut index = [0; 32];
    let mut i = 0;
    while i < 32 {
        index[i] = 2 * i as u16 + 1;
        i += 1;
    }
    index
};

const fn lanes32(start: u16) -> [u16; 32] {
    let mut index = [0; 32];
    let mut i = 0;
    while i < 32 {
        index[i] = start + (i as u16 / 2) + 32 * (i as u16 % 2);
        i += 1;
    }
    index
}

/// 16-bit lanes `(i, 32 + i)` for `i` in 0..16, and for 16..32.
const PAIR_LOW: [u16; 32] = lanes32(0);
const PAIR_HIGH: [u16; 32] = lanes32(16);

impl Simd for Avx2 {
    type V = __m256i;
    type W = [__m256i; 2];
    const LANES: usize = 8;

    #[inline(always)]
    fn view(self, lines: &[Line]) -> &[__m256i] {
        // SAFETY: a line is two vectors, aligned to 64 bytes, and every bit pattern is a vector.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), 2 * lines.len()) }
    }
    #[inline(always)]
    fn view_mut(self, lines: &mut [Line]) -> &mut [__m256i] {
        // SAFETY: as in `view`; the borrow of `lines` is exclusive and lasts as long as the result.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), 2 * lines.len()) }
    }
    #[inline(always)]
    fn load_words(self, words: &[u64]) -> [__m256i; 2] {
        let words: &[u64; 8] = words.first_chunk().expect("a vector of words");
        // SAFETY: 64 bytes are readable; the loads need no alignment; `self` proves AVX2.
        unsafe {
            [_mm256_loadu_si256(words.as_ptr().cast()), _mm256_loadu_si256(words.as_ptr().add(4).cast())]
        }
    }
    #[inline(always)]
    fn store_words(self, words: &mut [u64], value: [__m256i; 2]) {
        let words: &mut [u64; 8] = words.first_chunk_mut().expect("a vector of words");
        // SAFETY: 64 bytes are writable; the stores need no alignment; `self` proves AVX2.
        unsafe {
            _mm256_storeu_si256(words.as_mut_ptr().cast(), value[0]);
            _mm256_storeu_si256(words.as_mut_ptr().add(4).cast(), value[1]);
        }
    }

    intrinsics! {
        fn splat(value: u32) -> __m256i { _mm256_set1_epi32(value as i32) }
        fn add(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        fn sub(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi32(a, b) }
        fn min(a: __m256i, b: __m256i) -> __m256i { _mm256_min_epu32(a, b) }
        fn mul_lo(a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi32(a, b) }
        fn mul_hi(a: __m256i, b: __m256i) -> __m256i {{
            let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(a, b));
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            _mm256_blend_epi32::<0xAA>(even, odd)
        }}
        fn zip(a: __m256i, b: __m256i) -> (__m256i, __m256i) {{
            let (low, high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            (_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high))
        }}
        fn unzip(a: __m256i, b: __m256i) -> (__m256i, __m256i) {{
            let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            let even = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
            let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xDD>(a, b));
            (_mm256_permute4x64_epi64::<0xD8>(even), _mm256_permute4x64_epi64::<0xD8>(odd))
        }}
        fn splat_word(value: u64) -> [__m256i; 2] { [_mm256_set1_epi64x(value as i64); 2] }
        fn add_words(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_add_epi64(a[0], b[0]), _mm256_add_epi64(a[1], b[1])]
        }
        fn and_words(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])]
        }
        fn shl_words[const BITS: u32](a: [__m256i; 2]) -> [__m256i; 2] {{
            let count = _mm_cvtsi32_si128(BITS as i32);
            [_mm256_sll_epi64(a[0], count), _mm256_sll_epi64(a[1], count)]
        }}
        fn shr_words(a: [__m256i; 2], count: u32) -> [__m256i; 2] {{
            let count = _mm_cvtsi32_si128(count as i32);
            [_mm256_srl_epi64(a[0], count), _mm256_srl_epi64(a[1], count)]
        }}
        fn widen(a: __m256i) -> [__m256i; 2] {
            [
                _mm256_cvtepu32_epi64(_mm256_castsi256_si128(a)),
                _mm256_cvtepu32_epi64(_mm256_extracti128_si256::<1>(a)),
            ]
        }
        fn mul_words(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_mul_epu32(a[0], b[0]), _mm256_mul_epu32(a[1], b[1])]
        }
        fn mul_low_words(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [0, 1].map(|i| {
                let first = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a[i]), b[i]);
                let second = _mm256_mul_epu32(a[i], _mm256_srli_epi64::<32>(b[i]));
                let upper = _mm256_slli_epi64::<32>(_mm256_add_epi64(first, second));
                _mm256_add_epi64(_mm256_mul_epu32(a[i], b[i]), upper)
            })
        }
        fn spread(a: __m256i) -> [__m256i; 2] { [a, _mm256_srli_epi64::<32>(a)] }
        fn join_high(a: [__m256i; 2]) -> __m256i { _mm256_blend_epi32::<0xAA>(_mm256_srli_epi64::<32>(a[0]), a[1]) }
        fn sub_words(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            [_mm256_sub_epi64(a[0], b[0]), _mm256_sub_epi64(a[1], b[1])]
        }
        fn reduce_high(a: [__m256i; 2], modulus: [__m256i; 2]) -> [__m256i; 2] {
            // Low halves: the minimum of a number and itself.
            [
                _mm256_min_epu32(a[0], _mm256_sub_epi32(a[0], modulus[0])),
                _mm256_min_epu32(a[1], _mm256_sub_epi32(a[1], modulus[1])),
            ]
        }
    }

    #[inline(always)]
    fn split_words(self, a: [__m256i; 2]) -> (__m256i, __m256i) {
        self.unzip(a[0], a[1])
    }
}

impl Dot for Avx2 {
    intrinsics! {
        fn dot(acc: __m256i, a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)) }
        fn shr16_signed(a: __m256i) -> __m256i { _mm256_srai_epi32::<16>(a) }
        fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        fn widen_signed(a: __m256i) -> [__m256i; 2] {
            [
                _mm256_cvtepi32_epi64(_mm256_castsi256_si128(a)),
                _mm256_cvtepi32_epi64(_mm256_extracti128_si256::<1>(a)),
            ]
        }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m256i {
        let words: &[u32; 8] = words.first_chunk().expect("a vector of words");
        // SAFETY: 32 bytes are readable; the load needs no alignment; `self` proves AVX2.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }
    #[inline(always)]
    fn pair_up(self, a: &[i16], b: &[i16]) -> (__m256i, __m256i) {
        let a: &[i16; 16] = a.first_chunk().expect("two vectors of limbs");
        let b: &[i16; 16] = b.first_chunk().expect("two vectors of limbs");
        // SAFETY: 32 bytes of each are readable; the loads need no alignment; `self` proves AVX2.
        unsafe {
            let (a, b) = (_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(b.as_ptr().cast()));
            let (low, high) = (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
            (_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high))
        }
    }
}

impl Lanes16 for Avx2 {
    intrinsics! {
        fn add16(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi16(a, b) }
        fn sub16(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi16(a, b) }
        fn min16(a: __m256i, b: __m256i) -> __m256i { _mm256_min_epu16(a, b) }
        fn mul_lo16(a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi16(a, b) }
        fn mul_hi16(a: __m256i, b: __m256i) -> __m256i { _mm256_mulhi_epu16(a, b) }
        fn xor(a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
        fn shr28_signed(a: __m256i) -> __m256i { _mm256_srai_epi32::<28>(a) }
        fn shl16(a: __m256i) -> __m256i { _mm256_slli_epi32::<16>(a) }
        fn pack_high(a: __m256i, b: __m256i) -> __m256i {{
            // Within halves of vectors first; their quarters are then 0, 2, 1, 3.
            let packed = _mm256_packus_epi32(_mm256_srli_epi32::<16>(a), _mm256_srli_epi32::<16>(b));
            _mm256_permute4x64_epi64::<0xD8>(packed)
        }}
    }

    #[inline(always)]
    fn join_words(self, low: __m256i, high: __m256i) -> [__m256i; 2] {
        self.zip(low, high).into()
    }
}

impl Simd for Avx512 {
    type V = __m512i;
    type W = [__m512i; 2];
    const LANES: usize = 16;

    #[inline(always)]
    fn view(self, lines: &[Line]) -> &[__m512i] {
        // SAFETY: a line is one vector, aligned to 64 bytes, and every bit pattern is a vector.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len()) }
    }
    #[inline(always)]
    fn view_mut(self, lines: &mut [Line]) -> &mut [__m512i] {
        // SAFETY: as in `view`; the borrow of `lines` is exclusive and lasts as long as the result.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len()) }
    }
    #[inline(always)]
    fn load_words(self, words: &[u64]) -> [__m512i; 2] {
        let words: &[u64; 16] = words.first_chunk().expect("a vector of words");
        // SAFETY: 128 bytes are readable; the loads need no alignment; `self` proves AVX-512F.
        unsafe {
            [_mm512_loadu_si512(words.as_ptr().cast()), _mm512_loadu_si512(words.as_ptr().add(8).cast())]
        }
    }
    #[inline(always)]
    fn store_words(self, words: &mut [u64], value: [__m512i; 2]) {
        let words: &mut [u64; 16] = words.first_chunk_mut().expect("a vector of words");
        // SAFETY: 128 bytes are writable; the stores need no alignment; `self` proves AVX-512F.
        unsafe {
            _mm512_storeu_si512(words.as_mut_ptr().cast(), value[0]);
            _mm512_storeu_si512(words.as_mut_ptr().add(8).cast(), value[1]);
        }
    }

    intrinsics! {
        fn splat(value: u32) -> __m512i { _mm512_set1_epi32(value as i32) }
        fn add(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn sub(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
        fn min(a: __m512i, b: __m512i) -> __m512i { _mm512_min_epu32(a, b) }
        fn mul_lo(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi32(a, b) }
        fn mul_hi(a: __m512i, b: __m512i) -> __m512i {{
            let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, b));
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            _mm512_mask_blend_epi32(0xAAAA, even, odd)
        }}
        fn zip(a: __m512i, b: __m512i) -> (__m512i, __m512i) {(
            _mm512_permutex2var_epi32(a, std::mem::transmute::<[u32; 16], __m512i>(ZIP_LOW), b),
            _mm512_permutex2var_epi32(a, std::mem::transmute::<[u32; 16], __m512i>(ZIP_HIGH), b),
        )}
        fn unzip(a: __m512i, b: __m512i) -> (__m512i, __m512i) {(
            _mm512_permutex2var_epi32(a, std::mem::transmute::<[u32; 16], __m512i>(EVEN), b),
            _mm512_permutex2var_epi32(a, std::mem::transmute::<[u32; 16], __m512i>(ODD), b),
        )}
        fn splat_word(value: u64) -> [__m512i; 2] { [_mm512_set1_epi64(value as i64); 2] }
        fn add_words(a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_add_epi64(a[0], b[0]), _mm512_add_epi64(a[1], b[1])]
        }
        fn and_words(a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_and_si512(a[0], b[0]), _mm512_and_si512(a[1], b[1])]
        }
        fn shl_words[const BITS: u32](a: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_slli_epi64::<BITS>(a[0]), _mm512_slli_epi64::<BITS>(a[1])]
        }
        fn shr_words(a: [__m512i; 2], count: u32) -> [__m512i; 2] {{
            let count = _mm_cvtsi32_si128(count as i32);
            [_mm512_srl_epi64(a[0], count), _mm512_srl_epi64(a[1], count)]
        }}
        fn widen(a: __m512i) -> [__m512i; 2] {
            [
                _mm512_cvtepu32_epi64(_mm512_castsi512_si256(a)),
                _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(a)),
            ]
        }
        fn mul_words(a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_mul_epu32(a[0], b[0]), _mm512_mul_epu32(a[1], b[1])]
        }
        fn mul_low_words(a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_mullo_epi64(a[0], b[0]), _mm512_mullo_epi64(a[1], b[1])]
        }
        fn spread(a: __m512i) -> [__m512i; 2] { [a, _mm512_srli_epi64::<32>(a)] }
        fn join_high(a: [__m512i; 2]) -> __m512i {
            _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64::<32>(a[0]), a[1])
        }
        fn sub_words(a: [__m512i; 2], b: [__m512i; 2]) -> [__m512i; 2] {
            [_mm512_sub_epi64(a[0], b[0]), _mm512_sub_epi64(a[1], b[1])]
        }
        fn reduce_high(a: [__m512i; 2], modulus: [__m512i; 2]) -> [__m512i; 2] {
            // Low halves: the minimum of a number and itself.
            [
                _mm512_min_epu32(a[0], _mm512_sub_epi32(a[0], modulus[0])),
                _mm512_min_epu32(a[1], _mm512_sub_epi32(a[1], modulus[1])),
            ]
        }
    }

    #[inline(always)]
    fn split_words(self, a: [__m512i; 2]) -> (__m512i, __m512i) {
        self.unzip(a[0], a[1])
    }
}

impl Dot for Avx512 {
    intrinsics! {
        fn dot(acc: __m512i, a: __m512i, b: __m512i) -> __m512i { _mm512_dpwssd_epi32(acc, a, b) }
        fn shr16_signed(a: __m512i) -> __m512i { _mm512_srai_epi32::<16>(a) }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn widen_signed(a: __m512i) -> [__m512i; 2] {
            [
                _mm512_cvtepi32_epi64(_mm512_castsi512_si256(a)),
                _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64::<1>(a)),
            ]
        }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m512i {
        let words: &[u32; 16] = words.first_chunk().expect("a vector of words");
        // SAFETY: 64 bytes are readable; the load needs no alignment; `self` proves AVX-512F.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }
    #[inline(always)]
    fn pair_up(self, a: &[i16], b: &[i16]) -> (__m512i, __m512i) {
        let a: &[i16; 32] = a.first_chunk().expect("two vectors of limbs");
        let b: &[i16; 32] = b.first_chunk().expect("two vectors of limbs");
        // SAFETY: 64 bytes of each are readable; the loads need no alignment; the transmuted constants have the
        // size of a vector; `self` proves AVX-512 F and BW.
        unsafe {
            let (a, b) = (_mm512_loadu_si512(a.as_ptr().cast()), _mm512_loadu_si512(b.as_ptr().cast()));
            (
                _mm512_permutex2var_epi16(a, std::mem::transmute::<[u16; 32], __m512i>(PAIR_LOW), b),
                _mm512_permutex2var_epi16(a, std::mem::transmute::<[u16; 32], __m512i>(PAIR_HIGH), b),
            )
        }
    }
}

impl Lanes16 for Avx512 {
    intrinsics! {
        fn add16(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi16(a, b) }
        fn sub16(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi16(a, b) }
        fn min16(a: __m512i, b: __m512i) -> __m512i { _mm512_min_epu16(a, b) }
        fn mul_lo16(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi16(a, b) }
        fn mul_hi16(a: __m512i, b: __m512i) -> __m512i { _mm512_mulhi_epu16(a, b) }
        fn xor(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        fn shr28_signed(a: __m512i) -> __m512i { _mm512_srai_epi32::<28>(a) }
        fn shl16(a: __m512i) -> __m512i { _mm512_slli_epi32::<16>(a) }
        fn pack_high(a: __m512i, b: __m512i) -> __m512i {
            _mm512_permutex2var_epi16(a, std::mem::transmute::<[u16; 32], __m512i>(HIGH_HALVES), b)
        }
    }

    #[inline(always)]
    fn join_words(self, low: __m512i, high: __m512i) -> [__m512i; 2] {
        self.zip(low, high).into()
    }
}
