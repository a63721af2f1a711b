//! AVX2 and AVX-512 behind the traits of vectors. Only the modules `v256` and `v512` name intrinsics: there, what both widths have
//! goes by one name, so that the implementations below stand once.

use super::{Dot, Fused, Lanes16, Line, Simd, Wide, inlined};
use crate::cpu::{Cpu, Feature};
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

/// The same proof. For residues of which only twice one fits the words that IFMA multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Avx512Tight(PhantomData<()>);

impl Avx512Ifma {
    /// For residues of one bit more.
    pub(crate) fn tight(self) -> Avx512Tight {
        Avx512Tight(PhantomData)
    }
}

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

/// Functions on vectors that need `$features`.
macro_rules! with_features {
    ($features:literal: $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty { $($body:tt)* })*) => {
        $(
            $(#[$doc])*
            #[inline]
            #[target_feature(enable = $features)]
            pub(super) fn $name($($arg: $ty),*) -> $ret {
                $($body)*
            }
        )*
    };
}

/// 256 bits.
mod v256 {
    use std::arch::x86_64::*;
    pub(super) use std::arch::x86_64::{
        __m256i as V, _mm256_add_epi16 as add16, _mm256_add_epi32 as add32, _mm256_add_epi64 as add64,
        _mm256_and_si256 as and, _mm256_castsi256_si128 as low_half, _mm256_cvtepi32_epi64 as widen_signed,
        _mm256_cvtepu32_epi64 as widen, _mm256_extracti128_si256 as half, _mm256_loadu_si256 as load,
        _mm256_min_epu16 as min16, _mm256_min_epu32 as min32, _mm256_mul_epi32 as mul_signed,
        _mm256_mul_epu32 as mul, _mm256_mulhi_epu16 as mul_hi16, _mm256_mullo_epi16 as mul_lo16,
        _mm256_mullo_epi32 as mul_lo32, _mm256_set1_epi32 as splat32, _mm256_set1_epi64x as splat64,
        _mm256_sll_epi64 as shl64, _mm256_slli_epi32 as shl32_by, _mm256_srai_epi32 as shr32_signed_by,
        _mm256_srl_epi64 as shr64, _mm256_srli_epi64 as shr64_by, _mm256_storeu_si256 as store,
        _mm256_sub_epi16 as sub16, _mm256_sub_epi32 as sub32, _mm256_sub_epi64 as sub64,
        _mm256_xor_si256 as xor,
    };

    with_features! { "avx2":
        fn count(count: u32) -> __m128i { _mm_cvtsi32_si128(count as i32) }
        /// Even lanes of 32 bits of one vector, odd lanes of the other.
        fn by_turns(even: V, odd: V) -> V { _mm256_blend_epi32::<0xAA>(even, odd) }
        fn zip32(a: V, b: V) -> (V, V) { quarters(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)) }
        fn zip16(a: V, b: V) -> (V, V) { quarters(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)) }
        /// The first halves of two vectors, then the second halves.
        fn quarters(a: V, b: V) -> (V, V) {
            (_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
        }
        fn unzip32(a: V, b: V) -> (V, V) {
            let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            let even = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
            let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xDD>(a, b));
            (_mm256_permute4x64_epi64::<0xD8>(even), _mm256_permute4x64_epi64::<0xD8>(odd))
        }
        fn high_halves(a: V, b: V) -> V {
            // Within halves of vectors first; their quarters are then 0, 2, 1, 3.
            let packed = _mm256_packus_epi32(_mm256_srli_epi32::<16>(a), _mm256_srli_epi32::<16>(b));
            _mm256_permute4x64_epi64::<0xD8>(packed)
        }
        fn dot(acc: V, a: V, b: V) -> V { _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)) }
        fn mul_lo64(a: V, b: V) -> V {
            let first = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), b);
            let second = _mm256_mul_epu32(a, _mm256_srli_epi64::<32>(b));
            let upper = _mm256_slli_epi64::<32>(_mm256_add_epi64(first, second));
            _mm256_add_epi64(_mm256_mul_epu32(a, b), upper)
        }
        fn wrap(a: V, modulus: V) -> V {
            // Blends by the sign bit.
            let (plain, sum) = (_mm256_castsi256_pd(a), _mm256_castsi256_pd(_mm256_add_epi64(a, modulus)));
            _mm256_castpd_si256(_mm256_blendv_pd(plain, sum, plain))
        }
        fn regroup(half: usize, x: V, y: V) -> (V, V) {
            match half {
                1 => (_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y)),
                _ => quarters(x, y),
            }
        }
        fn zip64(x: V, y: V) -> (V, V) { quarters(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y)) }
        fn unzip64(x: V, y: V) -> (V, V) {
            let (x, y) = quarters(x, y);
            (_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y))
        }
        fn permute(from: &[u64], sources: &[u32]) -> V {
            let sources: &[u32; 4] = sources.first_chunk().expect("places of a vector");
            of_words(&sources.map(|source| from[source as usize]))
        }
        fn repeat(words: &[u64], times: usize) -> V {
            match times {
                1 => of_words(words.first_chunk().expect("a vector of words")),
                _ => of_words(&[words[0], words[0], words[1], words[1]]),
            }
        }
        fn of_words(words: &[u64; 4]) -> V {
            // SAFETY: 32 bytes are readable; the load needs no alignment.
            unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
        }
    }
}

/// 512 bits.
mod v512 {
    use std::arch::x86_64::*;
    pub(super) use std::arch::x86_64::{
        __m512i as V, _mm512_add_epi16 as add16, _mm512_add_epi32 as add32, _mm512_add_epi64 as add64,
        _mm512_and_si512 as and, _mm512_castsi512_si256 as low_half, _mm512_cvtepi32_epi64 as widen_signed,
        _mm512_cvtepu32_epi64 as widen, _mm512_dpwssd_epi32 as dot, _mm512_extracti64x4_epi64 as half,
        _mm512_loadu_si512 as load, _mm512_min_epu16 as min16, _mm512_min_epu32 as min32,
        _mm512_mul_epi32 as mul_signed, _mm512_mul_epu32 as mul, _mm512_mulhi_epu16 as mul_hi16,
        _mm512_mullo_epi16 as mul_lo16, _mm512_mullo_epi32 as mul_lo32, _mm512_mullo_epi64 as mul_lo64,
        _mm512_set1_epi32 as splat32, _mm512_set1_epi64 as splat64, _mm512_sll_epi64 as shl64,
        _mm512_slli_epi32 as shl32_by, _mm512_srai_epi32 as shr32_signed_by, _mm512_srl_epi64 as shr64,
        _mm512_srli_epi64 as shr64_by, _mm512_storeu_si512 as store, _mm512_sub_epi16 as sub16,
        _mm512_sub_epi32 as sub32, _mm512_sub_epi64 as sub64, _mm512_xor_si512 as xor,
    };

    /// Places in two vectors of 32 lanes of 16 bits, one behind the other: those of even lanes grow from `start[0]` on by `step`, those of
    /// odd lanes from `start[1]`.
    const fn of_16(start: [u16; 2], step: u16) -> V {
        let mut places = [0; 32];
        let mut i = 0;
        while i < 32 {
            places[i] = start[i % 2] + step * (i as u16 / 2);
            i += 1;
        }
        // SAFETY: an array of the size of a vector, and every bit pattern is one.
        unsafe { std::mem::transmute(places) }
    }

    /// The same in vectors of 16 lanes of 32 bits.
    const fn of_32(start: [u32; 2], step: u32) -> V {
        let mut places = [0; 16];
        let mut i = 0;
        while i < 16 {
            places[i] = start[i % 2] + step * (i as u32 / 2);
            i += 1;
        }
        // SAFETY: as in `of_16`.
        unsafe { std::mem::transmute(places) }
    }

    with_features! { "avx512f,avx512bw,avx512dq,avx512vl":
        fn count(count: u32) -> __m128i { _mm_cvtsi32_si128(count as i32) }
        /// Even lanes of 32 bits of one vector, odd lanes of the other.
        fn by_turns(even: V, odd: V) -> V { _mm512_mask_blend_epi32(0xAAAA, even, odd) }
        fn zip32(a: V, b: V) -> (V, V) { two_of_32(a, b, const { [of_32([0, 16], 1), of_32([8, 24], 1)] }) }
        fn unzip32(a: V, b: V) -> (V, V) { two_of_32(a, b, const { [of_32([0, 2], 4), of_32([1, 3], 4)] }) }
        fn two_of_32(a: V, b: V, places: [V; 2]) -> (V, V) {
            (_mm512_permutex2var_epi32(a, places[0], b), _mm512_permutex2var_epi32(a, places[1], b))
        }
        fn zip16(a: V, b: V) -> (V, V) {
            let places = const { [of_16([0, 32], 1), of_16([16, 48], 1)] };
            (_mm512_permutex2var_epi16(a, places[0], b), _mm512_permutex2var_epi16(a, places[1], b))
        }
        fn high_halves(a: V, b: V) -> V { _mm512_permutex2var_epi16(a, const { of_16([1, 3], 4) }, b) }
        fn wrap(a: V, modulus: V) -> V {
            // A negative number is a large one, and its sum with the modulus a small one.
            _mm512_min_epu64(a, _mm512_add_epi64(a, modulus))
        }
        fn two_of(x: V, y: V, places: [[u64; 8]; 2]) -> (V, V) {
            let [first, second] = [of_words(&places[0]), of_words(&places[1])];
            (_mm512_permutex2var_epi64(x, first, y), _mm512_permutex2var_epi64(x, second, y))
        }
        fn regroup(half: usize, x: V, y: V) -> (V, V) {
            match half {
                1 => (_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y)),
                2 => two_of(x, y, [[0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]]),
                _ => (_mm512_shuffle_i64x2::<0x44>(x, y), _mm512_shuffle_i64x2::<0xEE>(x, y)),
            }
        }
        fn zip64(x: V, y: V) -> (V, V) {
            two_of(x, y, [[0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]])
        }
        fn unzip64(x: V, y: V) -> (V, V) {
            two_of(x, y, [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]])
        }
        fn permute(from: &[u64], sources: &[u32]) -> V {
            let sources: &[u32; 8] = sources.first_chunk().expect("places of a vector");
            let block = of_words(from[sources[0] as usize / 8 * 8..].first_chunk().expect("a block of words"));
            // SAFETY: 32 bytes are readable; the load needs no alignment.
            let places = unsafe { _mm256_loadu_si256(sources.as_ptr().cast()) };
            // The lowest three bits of a place.
            _mm512_permutexvar_epi64(_mm512_cvtepu32_epi64(places), block)
        }
        fn repeat(words: &[u64], times: usize) -> V {
            match times {
                1 => of_words(words.first_chunk().expect("a vector of words")),
                2 => {
                    let words: &[u64; 4] = words.first_chunk().expect("half a vector of words");
                    // SAFETY: 32 bytes are readable; the load needs no alignment.
                    let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
                    _mm512_permutexvar_epi64(of_words(&[0, 0, 1, 1, 2, 2, 3, 3]), _mm512_castsi256_si512(words))
                }
                _ => {
                    let words: &[u64; 2] = words.first_chunk().expect("a quarter of a vector of words");
                    // SAFETY: 16 bytes are readable; the load needs no alignment.
                    let words = unsafe { _mm_loadu_si128(words.as_ptr().cast()) };
                    _mm512_permutexvar_epi64(of_words(&[0, 0, 0, 0, 1, 1, 1, 1]), _mm512_castsi128_si512(words))
                }
            }
        }
        fn of_words(words: &[u64; 8]) -> V {
            // SAFETY: 64 bytes are readable; the load needs no alignment.
            unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
        }
    }
}

/// [`Wide`] for `$token`, with the functions of `$m`: vectors of `$lanes` words.
macro_rules! wide {
    ($token:ident, $m:ident, $lanes:literal) => {
        impl Wide for $token {
            type W = $m::V;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn store(self, words: &mut [u64], value: $m::V) {
                let words: &mut [u64; $lanes] = words.first_chunk_mut().expect("a vector of words");
                // SAFETY: a vector's bytes are writable; the store needs no alignment; `self` proves the features of `$m`.
                unsafe { $m::store(words.as_mut_ptr().cast(), value) }
            }

            inlined! { intrinsics:
                fn load(self, words: &[u64]) -> $m::V { $m::of_words(words.first_chunk().expect("a vector of words")) }
                fn splat(self, word: u64) -> $m::V { $m::splat64(word as i64) }
                fn add(self, a: $m::V, b: $m::V) -> $m::V { $m::add64(a, b) }
                fn sub(self, a: $m::V, b: $m::V) -> $m::V { $m::sub64(a, b) }
                fn and(self, a: $m::V, b: $m::V) -> $m::V { $m::and(a, b) }
                fn shr(self, a: $m::V, count: u32) -> $m::V { $m::shr64(a, $m::count(count)) }
                fn shl(self, a: $m::V, count: u32) -> $m::V { $m::shl64(a, $m::count(count)) }
                fn wrap(self, a: $m::V, modulus: $m::V) -> $m::V { $m::wrap(a, modulus) }
                fn mul_halves(self, a: $m::V, b: $m::V) -> $m::V { $m::mul(a, b) }
                fn mul_signed_halves(self, a: $m::V, b: $m::V) -> $m::V { $m::mul_signed(a, b) }
                fn mul_lo(self, a: $m::V, b: $m::V) -> $m::V { $m::mul_lo64(a, b) }
                fn permute(self, from: &[u64], sources: &[u32]) -> $m::V { $m::permute(from, sources) }
                fn repeat(self, words: &[u64], times: usize) -> $m::V { $m::repeat(words, times) }
                fn regroup(self, half: usize, x: $m::V, y: $m::V) -> ($m::V, $m::V) { $m::regroup(half, x, y) }
                fn unzip_words(self, x: $m::V, y: $m::V) -> ($m::V, $m::V) { $m::unzip64(x, y) }
                fn zip_words(self, x: $m::V, y: $m::V) -> ($m::V, $m::V) { $m::zip64(x, y) }
            }
        }
    };
}
wide!(Avx2, v256, 4);
wide!(Avx512, v512, 8);
wide!(Avx512Ifma, v512, 8);
wide!(Avx512Tight, v512, 8);

macro_rules! fused {
    ($($token:ident),*) => {
        $(impl Fused for $token {
            inlined! { intrinsics:
                fn add_mul_lo(self, sum: v512::V, a: v512::V, b: v512::V) -> v512::V { std::arch::x86_64::_mm512_madd52lo_epu64(sum, a, b) }
                fn add_mul_hi(self, sum: v512::V, a: v512::V, b: v512::V) -> v512::V { std::arch::x86_64::_mm512_madd52hi_epu64(sum, a, b) }
            }
        })*
    };
}
fused!(Avx512Ifma, Avx512Tight);

/// The other traits for `$token`: vectors of `$lanes` lanes of 32 bits, and pairs of vectors of words, whose operations are those of
/// [`Wide`] on each.
macro_rules! vectors {
    ($token:ident, $m:ident, $lanes:literal) => {
        impl Simd for $token {
            type V = $m::V;
            type W = [$m::V; 2];
            const LANES: usize = $lanes;

            #[inline(always)]
            fn view(self, lines: &[Line]) -> &[$m::V] {
                let count = Line::WORDS / $lanes * lines.len();
                // SAFETY: a line is so many whole vectors, aligned to 64 bytes, and every bit pattern is a vector.
                unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), count) }
            }
            #[inline(always)]
            fn view_mut(self, lines: &mut [Line]) -> &mut [$m::V] {
                let count = Line::WORDS / $lanes * lines.len();
                // SAFETY: as in `view`; the borrow of `lines` is exclusive and lasts as long as the result.
                unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), count) }
            }

            inlined! {
                fn load_words(self, words: &[u64]) -> [$m::V; 2] {
                    let words: &[u64; $lanes] = words.first_chunk().expect("a vector of words");
                    [Wide::load(self, &words[..$lanes / 2]), Wide::load(self, &words[$lanes / 2..])]
                }
                fn store_words(self, words: &mut [u64], value: [$m::V; 2]) {
                    let words: &mut [u64; $lanes] = words.first_chunk_mut().expect("a vector of words");
                    Wide::store(self, &mut words[..$lanes / 2], value[0]);
                    Wide::store(self, &mut words[$lanes / 2..], value[1]);
                }
                fn splat_word(self, value: u64) -> [$m::V; 2] { [Wide::splat(self, value); 2] }
                fn add_words(self, a: [$m::V; 2], b: [$m::V; 2]) -> [$m::V; 2] {
                    [Wide::add(self, a[0], b[0]), Wide::add(self, a[1], b[1])]
                }
                fn sub_words(self, a: [$m::V; 2], b: [$m::V; 2]) -> [$m::V; 2] {
                    [Wide::sub(self, a[0], b[0]), Wide::sub(self, a[1], b[1])]
                }
                fn and_words(self, a: [$m::V; 2], b: [$m::V; 2]) -> [$m::V; 2] {
                    [Wide::and(self, a[0], b[0]), Wide::and(self, a[1], b[1])]
                }
                fn mul_words(self, a: [$m::V; 2], b: [$m::V; 2]) -> [$m::V; 2] {
                    [self.mul_halves(a[0], b[0]), self.mul_halves(a[1], b[1])]
                }
                fn mul_low_words(self, a: [$m::V; 2], b: [$m::V; 2]) -> [$m::V; 2] {
                    [Wide::mul_lo(self, a[0], b[0]), Wide::mul_lo(self, a[1], b[1])]
                }
                fn shl_words[const BITS: u32](self, a: [$m::V; 2]) -> [$m::V; 2] { [self.shl(a[0], BITS), self.shl(a[1], BITS)] }
                fn shr_words(self, a: [$m::V; 2], count: u32) -> [$m::V; 2] { [self.shr(a[0], count), self.shr(a[1], count)] }
                fn split_words(self, a: [$m::V; 2]) -> ($m::V, $m::V) { self.unzip(a[0], a[1]) }
            }

            inlined! { intrinsics:
                fn splat(self, value: u32) -> $m::V { $m::splat32(value as i32) }
                fn add(self, a: $m::V, b: $m::V) -> $m::V { $m::add32(a, b) }
                fn sub(self, a: $m::V, b: $m::V) -> $m::V { $m::sub32(a, b) }
                fn min(self, a: $m::V, b: $m::V) -> $m::V { $m::min32(a, b) }
                fn mul_lo(self, a: $m::V, b: $m::V) -> $m::V { $m::mul_lo32(a, b) }
                fn mul_hi(self, a: $m::V, b: $m::V) -> $m::V {
                    let odd = $m::mul($m::shr64_by::<32>(a), $m::shr64_by::<32>(b));
                    $m::by_turns($m::shr64_by::<32>($m::mul(a, b)), odd)
                }
                fn zip(self, a: $m::V, b: $m::V) -> ($m::V, $m::V) { $m::zip32(a, b) }
                fn unzip(self, a: $m::V, b: $m::V) -> ($m::V, $m::V) { $m::unzip32(a, b) }
                fn widen(self, a: $m::V) -> [$m::V; 2] { [$m::widen($m::low_half(a)), $m::widen($m::half::<1>(a))] }
                fn spread(self, a: $m::V) -> [$m::V; 2] { [a, $m::shr64_by::<32>(a)] }
                fn join_high(self, a: [$m::V; 2]) -> $m::V { $m::by_turns($m::shr64_by::<32>(a[0]), a[1]) }
                fn reduce_high(self, a: [$m::V; 2], modulus: [$m::V; 2]) -> [$m::V; 2] {
                    // Low halves: the minimum of a number and itself.
                    [$m::min32(a[0], $m::sub32(a[0], modulus[0])), $m::min32(a[1], $m::sub32(a[1], modulus[1]))]
                }
            }
        }

        impl Dot for $token {
            inlined! { intrinsics:
                fn dot(self, acc: $m::V, a: $m::V, b: $m::V) -> $m::V { $m::dot(acc, a, b) }
                fn shr16_signed(self, a: $m::V) -> $m::V { $m::shr32_signed_by::<16>(a) }
                fn and(self, a: $m::V, b: $m::V) -> $m::V { $m::and(a, b) }
                fn widen_signed(self, a: $m::V) -> [$m::V; 2] {
                    [$m::widen_signed($m::low_half(a)), $m::widen_signed($m::half::<1>(a))]
                }
            }

            #[inline(always)]
            fn load(self, words: &[u32]) -> $m::V {
                let words: &[u32; $lanes] = words.first_chunk().expect("a vector of words");
                // SAFETY: a vector's bytes are readable; the load needs no alignment; `self` proves the features of `$m`.
                unsafe { $m::load(words.as_ptr().cast()) }
            }
            #[inline(always)]
            fn pair_up(self, a: &[i16], b: &[i16]) -> ($m::V, $m::V) {
                let a: &[i16; 2 * $lanes] = a.first_chunk().expect("two vectors of limbs");
                let b: &[i16; 2 * $lanes] = b.first_chunk().expect("two vectors of limbs");
                // SAFETY: as in `load`, of each.
                unsafe { $m::zip16($m::load(a.as_ptr().cast()), $m::load(b.as_ptr().cast())) }
            }
        }

        impl Lanes16 for $token {
            inlined! { intrinsics:
                fn add16(self, a: $m::V, b: $m::V) -> $m::V { $m::add16(a, b) }
                fn sub16(self, a: $m::V, b: $m::V) -> $m::V { $m::sub16(a, b) }
                fn min16(self, a: $m::V, b: $m::V) -> $m::V { $m::min16(a, b) }
                fn mul_lo16(self, a: $m::V, b: $m::V) -> $m::V { $m::mul_lo16(a, b) }
                fn mul_hi16(self, a: $m::V, b: $m::V) -> $m::V { $m::mul_hi16(a, b) }
                fn xor(self, a: $m::V, b: $m::V) -> $m::V { $m::xor(a, b) }
                fn shr28_signed(self, a: $m::V) -> $m::V { $m::shr32_signed_by::<28>(a) }
                fn shl16(self, a: $m::V) -> $m::V { $m::shl32_by::<16>(a) }
                fn pack_high(self, a: $m::V, b: $m::V) -> $m::V { $m::high_halves(a, b) }
                fn join_words(self, low: $m::V, high: $m::V) -> [$m::V; 2] { $m::zip32(low, high).into() }
            }
        }
    };
}
vectors!(Avx2, v256, 8);
vectors!(Avx512, v512, 16);
