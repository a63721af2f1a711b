//! The inner loops of the product with the LPN matrix: sums of blocks, or of lines of four, at random, public places, one in
//! each of ten segments of the table. (Ten segments are up to twice as fast as ten places anywhere, once the table is larger
//! than the L2 cache.)

use crate::Block;
use crate::aes::Kernel;
use crate::block::{LANES, Line};

/// Ones in each row of the matrix (d).
pub(crate) const WEIGHT: usize = 10;
/// Segments that [`lines`] takes at a time: few enough for them to stay in the L2 cache while many rows read them, and
/// enough for rows not to be loaded and stored too often.
pub(crate) const PAIR: usize = 2;
/// How many times [`lines`] is called for a row.
pub(crate) const PAIRS: usize = WEIGHT / PAIR;

/// `out[i]` ^= the sum of `table` at the places of row i: `places[s][i][w]` is counted from the start of segment
/// 2·s + w. A row is one of `N`.
///
/// # Panics
/// When a place lies outside the table.
pub(crate) fn gather<const N: usize>(
    places: &[[[u32; PAIR]; N]; PAIRS],
    table: &[Block],
    out: &mut [Block; N],
) {
    let segment = table.len() / WEIGHT;
    for (i, out) in out.iter_mut().enumerate() {
        let rows = places.iter().map(|pair| pair[i]);
        let whole = rows.flatten().enumerate().map(|(w, place)| table[w * segment + place as usize]);
        *out = sum(*out, whole);
    }
}

/// The XOR of blocks, in a register of 128 bits: on two halves of 64, as the compiler would, it takes twice the loads.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn sum(first: Block, blocks: impl Iterator<Item = Block>) -> Block {
    use std::arch::x86_64::{__m128i, _mm_xor_si128};
    let first: __m128i = bytemuck::must_cast(first);
    // SAFETY: every x86-64 CPU has SSE2.
    let xor = |sum, block| unsafe { _mm_xor_si128(sum, bytemuck::must_cast(block)) };
    bytemuck::must_cast(blocks.fold(first, xor))
}

/// The XOR of blocks.
#[cfg(not(target_arch = "x86_64"))]
fn sum(first: Block, blocks: impl Iterator<Item = Block>) -> Block {
    blocks.fold(first, |sum, block| sum ^ block)
}

/// The places of a batch of rows in two segments, in blocks.
#[repr(C, align(16))]
pub(crate) struct Places<const N: usize>([[u32; PAIR]; N]);

impl<const N: usize> Places<N> {
    /// Blocks of four places each.
    pub(crate) fn blocks(&mut self) -> &mut [Block] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// `rows[i]` ^= the sum of `segments[w]` at the places of row i: entry `[i mod N][w]` of what `places` writes for batch i / N. Where there
/// is `out`, the sums go there instead, line by line, and zeros stay behind in `rows`. Rows come in batches of `N`.
///
/// # Panics
/// When a place lies outside its segment, `out` is too short, or this CPU cannot run `kernel`.
pub(crate) fn lines<const N: usize>(
    kernel: Kernel,
    places: impl Fn(usize, &mut Places<N>),
    segments: [&[Line]; PAIR],
    rows: &mut [Line],
    out: Option<&mut [Block]>,
) {
    match kernel {
        Kernel::Portable => portable(places, segments, rows, out),
        #[cfg(any(target_arch = "wasm32", test))]
        Kernel::Sliced => portable(places, segments, rows, out),
        #[cfg(target_arch = "aarch64")]
        Kernel::Arm => portable(places, segments, rows, out),
        #[cfg(target_arch = "x86_64")]
        other => x86::lines(other, places, segments, rows, out),
    }
}

/// Goes over batches of rows; `fetch` tells the processor that a line will be read.
#[inline(always)]
fn each_row<const N: usize>(
    places: impl Fn(usize, &mut Places<N>),
    [a, b]: [&[Line]; PAIR],
    rows: &mut [Line],
    mut out: Option<&mut [Block]>,
    fetch: impl Fn(*const Line),
) {
    // (Two rooms by turns: neither is cleared or copied.)
    let mut rooms = [Places([[0; PAIR]; N]), Places([[0; PAIR]; N])];
    let [now, next] = &mut rooms;
    let (mut now, mut next) = (now, next);
    let mut batches = rows.as_chunks_mut::<N>().0.iter_mut().enumerate().peekable();
    if batches.peek().is_some() {
        places(0, next);
    }
    while let Some((batch, rows)) = batches.next() {
        std::mem::swap(&mut now, &mut next);
        if batches.peek().is_some() {
            places(batch + 1, next);
        }
        let each = rows.iter_mut().zip(now.0.iter().zip(&next.0));
        let sum = |row: Line, [i, j]: [u32; PAIR], [next_i, next_j]: [u32; PAIR]| {
            fetch(a.as_ptr().wrapping_add(next_i as usize));
            fetch(b.as_ptr().wrapping_add(next_j as usize));
            row.sum(a[i as usize], b[j as usize])
        };
        match out.as_deref_mut() {
            None => each.for_each(|(row, (now, next))| *row = sum(*row, *now, *next)),
            Some(out) => {
                let out = out[batch * N * LANES..][..N * LANES].as_chunks_mut::<LANES>().0;
                for ((row, (now, next)), out) in each.zip(out) {
                    *out = sum(std::mem::replace(row, Line::ZERO), *now, *next).0;
                }
            }
        }
    }
}

/// The scalar twin.
fn portable<const N: usize>(
    places: impl Fn(usize, &mut Places<N>),
    segments: [&[Line]; PAIR],
    rows: &mut [Line],
    out: Option<&mut [Block]>,
) {
    each_row(places, segments, rows, out, |_| ());
}

/// The same loop, compiled for registers of which one, two or four make a line.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    use jaguar_ring::cpu::Feature;

    use super::{PAIR, Places, each_row};
    use crate::Block;
    use crate::aes::Kernel;
    use crate::block::Line;

    /// [`super::lines`] by `kernel`.
    pub(super) fn lines<const N: usize>(
        kernel: Kernel,
        places: impl Fn(usize, &mut Places<N>),
        segments: [&[Line]; PAIR],
        rows: &mut [Line],
        out: Option<&mut [Block]>,
    ) {
        let needs: &[Feature] = match kernel {
            Kernel::Portable | Kernel::AesNi => &[],
            #[cfg(test)]
            Kernel::Sliced => &[],
            Kernel::Vaes256 => &[Feature::Avx2],
            Kernel::Vaes512 => &[Feature::Avx512F],
        };
        assert!(needs.iter().all(|feature| feature.is_there()), "this CPU has no {}", kernel.name());
        // SAFETY: the CPU has what they need; SSE2 every x86-64 CPU has.
        unsafe {
            match kernel {
                Kernel::Portable | Kernel::AesNi => lines_4(places, segments, rows, out),
                #[cfg(test)]
                Kernel::Sliced => lines_4(places, segments, rows, out),
                Kernel::Vaes256 => lines_2(places, segments, rows, out),
                Kernel::Vaes512 => lines_1(places, segments, rows, out),
            }
        }
    }

    macro_rules! loops {
        ($name:ident, $features:literal) => {
            #[target_feature(enable = $features)]
            fn $name<const N: usize>(
                places: impl Fn(usize, &mut Places<N>),
                segments: [&[Line]; PAIR],
                rows: &mut [Line],
                out: Option<&mut [Block]>,
            ) {
                let fetch = |line: *const Line| _mm_prefetch::<_MM_HINT_T0>(line.cast());
                each_row(places, segments, rows, out, fetch);
            }
        };
    }

    loops!(lines_4, "sse2");
    loops!(lines_2, "avx2");
    loops!(lines_1, "avx512f");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_are_those_of_the_definition(
            table in prop::collection::vec(any::<[u128; WEIGHT]>(), 1..50),
            places: [[[u32; PAIR]; 8]; PAIRS],
        ) {
            let places = places.map(|pair| pair.map(|row| row.map(|p| p % table.len() as u32)));
            let segment = table.len();
            let table: Vec<Block> = table.into_iter().flatten().map(Block).collect();
            let mut got: [Block; 8] = std::array::from_fn(|i| Block(!(i as u128)));
            gather(&places, &table, &mut got);
            for (i, got) in got.iter().enumerate() {
                let want = (0..WEIGHT).fold(!(i as u128), |sum, w| {
                    sum ^ table[w * segment + places[w / PAIR][i][w % PAIR] as usize].0
                });
                prop_assert_eq!(got.0, want);
            }
        }

        #[test]
        fn every_kernel_sums_lines_like_the_portable_one(
            tables in prop::collection::vec(any::<[[u128; 4]; PAIR]>(), 1..50),
            places in prop::collection::vec(any::<[[u32; PAIR]; 8]>(), 0..6),
        ) {
            let places_of = |batch: usize| places[batch].map(|row| row.map(|p| p % tables.len() as u32));
            let place = |batch: usize, to: &mut Places<8>| to.0 = places_of(batch);
            let line = |blocks: [u128; 4]| Line(blocks.map(Block));
            let [a, b] = [0, 1].map(|w| tables.iter().map(|t| line(t[w])).collect::<Vec<_>>());
            let rows: Vec<Line> = (0..8 * places.len() as u128).map(|i| line([i, !i, 0, u128::MAX])).collect();
            let mut want = rows.clone();
            portable(place, [&a, &b], &mut want, None);
            for (i, want) in want.iter().enumerate() {
                let [j, k] = places_of(i / 8)[i % 8];
                for lane in 0..LANES {
                    let sum = rows[i].0[lane] ^ a[j as usize].0[lane] ^ b[k as usize].0[lane];
                    prop_assert!(want.0[lane] == sum);
                }
            }
            for kernel in Kernel::available() {
                let mut got = rows.clone();
                lines(kernel, place, [&a, &b], &mut got, None);
                prop_assert!(got == want, "{}", kernel.name());
                // Not aligned as lines are.
                let (mut got, mut out) = (rows.clone(), vec![Block::ZERO; 1 + LANES * rows.len()]);
                lines(kernel, place, [&a, &b], &mut got, Some(&mut out[1..]));
                prop_assert!(out[1..] == *bytemuck::must_cast_slice(&want), "{}", kernel.name());
                prop_assert!(got.iter().all(|row| *row == Line::ZERO));
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_place_outside_is_caught() {
        gather(&[[[1; PAIR]; 1]; PAIRS], &[Block::ZERO; WEIGHT], &mut [Block::ZERO]);
    }

    #[test]
    fn a_place_outside_a_segment_is_caught() {
        for kernel in Kernel::available() {
            let caught = std::panic::catch_unwind(|| {
                let segments: [&[Line]; PAIR] = [&[Line::ZERO; 4], &[Line::ZERO; 3]];
                let place = |_, to: &mut Places<1>| to.0 = [[0, 3]];
                lines(kernel, place, segments, &mut [Line::ZERO], None);
            });
            assert!(caught.is_err(), "{}", kernel.name());
        }
    }
}
