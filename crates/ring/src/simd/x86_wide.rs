//! AVX2, AVX-512 and AVX-512 with IFMA behind [`Wide`] and [`Fused`].

use super::x86::intrinsics;
use super::{Avx2, Avx512, Avx512Ifma, Fused, Wide};
use std::arch::x86_64::*;

impl Wide for Avx2 {
    type W = __m256i;
    const LANES: usize = 4;

    #[inline(always)]
    fn load(self, words: &[u64]) -> __m256i {
        let words: &[u64; 4] = words.first_chunk().expect("a vector of words");
        // SAFETY: 32 bytes are readable; the load needs no alignment; `self` proves AVX2.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store(self, words: &mut [u64], value: __m256i) {
        let words: &mut [u64; 4] = words.first_chunk_mut().expect("a vector of words");
        // SAFETY: 32 bytes are writable; the store needs no alignment; `self` proves AVX2.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), value) }
    }

    intrinsics! {
        fn splat(word: u64) -> __m256i { _mm256_set1_epi64x(word as i64) }
        fn add(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi64(a, b) }
        fn sub(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi64(a, b) }
        fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        fn shr(a: __m256i, count: u32) -> __m256i { _mm256_srl_epi64(a, _mm_cvtsi32_si128(count as i32)) }
        fn shl(a: __m256i, count: u32) -> __m256i { _mm256_sll_epi64(a, _mm_cvtsi32_si128(count as i32)) }
        fn wrap(a: __m256i, modulus: __m256i) -> __m256i {{
            // Blends by the sign bit.
            let (plain, sum) = (_mm256_castsi256_pd(a), _mm256_castsi256_pd(_mm256_add_epi64(a, modulus)));
            _mm256_castpd_si256(_mm256_blendv_pd(plain, sum, plain))
        }}
        fn mul_halves(a: __m256i, b: __m256i) -> __m256i { _mm256_mul_epu32(a, b) }
        fn mul_signed_halves(a: __m256i, b: __m256i) -> __m256i { _mm256_mul_epi32(a, b) }
        fn mul_lo(a: __m256i, b: __m256i) -> __m256i {{
            let first = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), b);
            let second = _mm256_mul_epu32(a, _mm256_srli_epi64::<32>(b));
            let upper = _mm256_slli_epi64::<32>(_mm256_add_epi64(first, second));
            _mm256_add_epi64(_mm256_mul_epu32(a, b), upper)
        }}
        fn regroup(half: usize, x: __m256i, y: __m256i) -> (__m256i, __m256i) {
            match half {
                1 => (_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y)),
                _ => (_mm256_permute2x128_si256::<0x20>(x, y), _mm256_permute2x128_si256::<0x31>(x, y)),
            }
        }
    }

    #[inline(always)]
    fn permute(self, from: &[u64], sources: &[u32]) -> __m256i {
        let sources: &[u32; 4] = sources.first_chunk().expect("places of a vector");
        self.load(&sources.map(|source| from[source as usize]))
    }
    #[inline(always)]
    fn repeat(self, words: &[u64], times: usize) -> __m256i {
        match times {
            1 => self.load(words),
            _ => self.load(&[words[0], words[0], words[1], words[1]]),
        }
    }
}

/// `(0, 8, 1, 9, ...)` and the second half of it: the words of two vectors by turns.
const ZIP: [[u64; 8]; 2] = [[0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]];
/// The words of even and of odd places.
const UNZIP: [[u64; 8]; 2] = [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]];
/// Pairs of words.
const PAIRS: [[u64; 8]; 2] = [[0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]];
const TWICE: [u64; 8] = [0, 0, 1, 1, 2, 2, 3, 3];
const FOUR_TIMES: [u64; 8] = [0, 0, 0, 0, 1, 1, 1, 1];

impl Wide for Avx512 {
    type W = __m512i;
    const LANES: usize = 8;

    #[inline(always)]
    fn load(self, words: &[u64]) -> __m512i {
        let words: &[u64; 8] = words.first_chunk().expect("a vector of words");
        // SAFETY: 64 bytes are readable; the load needs no alignment; `self` proves AVX-512F.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store(self, words: &mut [u64], value: __m512i) {
        let words: &mut [u64; 8] = words.first_chunk_mut().expect("a vector of words");
        // SAFETY: 64 bytes are writable; the store needs no alignment; `self` proves AVX-512F.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), value) }
    }

    intrinsics! {
        fn splat(word: u64) -> __m512i { _mm512_set1_epi64(word as i64) }
        fn add(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi64(a, b) }
        fn sub(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi64(a, b) }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn shr(a: __m512i, count: u32) -> __m512i { _mm512_srl_epi64(a, _mm_cvtsi32_si128(count as i32)) }
        fn shl(a: __m512i, count: u32) -> __m512i { _mm512_sll_epi64(a, _mm_cvtsi32_si128(count as i32)) }
        fn wrap(a: __m512i, modulus: __m512i) -> __m512i {
            // A negative number is a large one, and its sum with the modulus a small one.
            _mm512_min_epu64(a, _mm512_add_epi64(a, modulus))
        }
        fn mul_halves(a: __m512i, b: __m512i) -> __m512i { _mm512_mul_epu32(a, b) }
        fn mul_signed_halves(a: __m512i, b: __m512i) -> __m512i { _mm512_mul_epi32(a, b) }
        fn mul_lo(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi64(a, b) }
        fn regroup(half: usize, x: __m512i, y: __m512i) -> (__m512i, __m512i) {
            match half {
                1 => (_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y)),
                2 => two_of(x, y, PAIRS),
                _ => (_mm512_shuffle_i64x2::<0x44>(x, y), _mm512_shuffle_i64x2::<0xEE>(x, y)),
            }
        }
        fn unzip_words(x: __m512i, y: __m512i) -> (__m512i, __m512i) { two_of(x, y, UNZIP) }
        fn zip_words(x: __m512i, y: __m512i) -> (__m512i, __m512i) { two_of(x, y, ZIP) }
    }

    #[inline(always)]
    fn permute(self, from: &[u64], sources: &[u32]) -> __m512i {
        let sources: &[u32; 8] = sources.first_chunk().expect("places of a vector");
        let block = self.load(&from[sources[0] as usize / 8 * 8..]);
        // SAFETY: 32 bytes are readable; the load needs no alignment; `self` proves AVX-512F and AVX2.
        unsafe {
            let places = _mm512_cvtepu32_epi64(_mm256_loadu_si256(sources.as_ptr().cast()));
            // The lowest three bits of a place.
            _mm512_permutexvar_epi64(places, block)
        }
    }
    #[inline(always)]
    fn repeat(self, words: &[u64], times: usize) -> __m512i {
        // SAFETY: 32 or 16 bytes are readable; the loads need no alignment; arrays have the size of a vector; `self` proves
        // AVX-512F and AVX2.
        unsafe {
            match times {
                1 => self.load(words),
                2 => {
                    let words: &[u64; 4] = words.first_chunk().expect("half a vector of words");
                    let words = _mm512_castsi256_si512(_mm256_loadu_si256(words.as_ptr().cast()));
                    _mm512_permutexvar_epi64(std::mem::transmute::<[u64; 8], __m512i>(TWICE), words)
                }
                _ => {
                    let words: &[u64; 2] = words.first_chunk().expect("a quarter of a vector of words");
                    let words = _mm512_castsi128_si512(_mm_loadu_si128(words.as_ptr().cast()));
                    _mm512_permutexvar_epi64(std::mem::transmute::<[u64; 8], __m512i>(FOUR_TIMES), words)
                }
            }
        }
    }
}

/// Two choices of eight words each, of the sixteen of two vectors.
///
/// # Safety
/// The processor must have AVX-512F.
#[inline(always)]
unsafe fn two_of(x: __m512i, y: __m512i, places: [[u64; 8]; 2]) -> (__m512i, __m512i) {
    // SAFETY: arrays have the size of a vector; the caller vouches for AVX-512F.
    unsafe {
        let [first, second] = places.map(|places| std::mem::transmute::<[u64; 8], __m512i>(places));
        (_mm512_permutex2var_epi64(x, first, y), _mm512_permutex2var_epi64(x, second, y))
    }
}

impl Fused for Avx512Ifma {
    intrinsics! {
        fn add_mul_lo(sum: __m512i, a: __m512i, b: __m512i) -> __m512i { _mm512_madd52lo_epu64(sum, a, b) }
        fn add_mul_hi(sum: __m512i, a: __m512i, b: __m512i) -> __m512i { _mm512_madd52hi_epu64(sum, a, b) }
    }
}

/// Methods that are those of AVX-512.
macro_rules! as_avx512 {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $ty),*) -> $ret {
                self.base().$name($($arg),*)
            }
        )*
    };
}

impl Wide for Avx512Ifma {
    type W = __m512i;
    const LANES: usize = 8;

    #[inline(always)]
    fn store(self, words: &mut [u64], value: __m512i) {
        Wide::store(self.base(), words, value);
    }

    as_avx512! {
        fn load(words: &[u64]) -> __m512i;
        fn permute(from: &[u64], sources: &[u32]) -> __m512i;
        fn repeat(words: &[u64], times: usize) -> __m512i;
        fn regroup(half: usize, x: __m512i, y: __m512i) -> (__m512i, __m512i);
        fn unzip_words(x: __m512i, y: __m512i) -> (__m512i, __m512i);
        fn zip_words(x: __m512i, y: __m512i) -> (__m512i, __m512i);
        fn splat(word: u64) -> __m512i;
        fn add(a: __m512i, b: __m512i) -> __m512i;
        fn sub(a: __m512i, b: __m512i) -> __m512i;
        fn and(a: __m512i, b: __m512i) -> __m512i;
        fn shr(a: __m512i, count: u32) -> __m512i;
        fn shl(a: __m512i, count: u32) -> __m512i;
        fn wrap(a: __m512i, modulus: __m512i) -> __m512i;
        fn mul_halves(a: __m512i, b: __m512i) -> __m512i;
        fn mul_signed_halves(a: __m512i, b: __m512i) -> __m512i;
        fn mul_lo(a: __m512i, b: __m512i) -> __m512i;
    }
}
