//! The inner loop of the product with the LPN matrix: sums of blocks at random, public places, one in each of ten
//! segments of the table. (Ten segments are up to twice as fast as ten places anywhere, once the table is larger than the
//! L2 cache.)

use crate::Block;

/// Ones in each row of the matrix (d).
pub(crate) const WEIGHT: usize = 10;

/// `out[i]` ^= the sum of `table` at the places `rows[i]`, the w-th of them counted from the start of segment w.
///
/// # Panics
/// When a place lies outside the table.
#[cfg(target_arch = "x86_64")]
pub(crate) fn gather(rows: &[[u32; WEIGHT]], table: &[Block], out: &mut [Block]) {
    use std::arch::x86_64::{__m128i, _mm_xor_si128};
    let segment = table.len() / WEIGHT;
    for (out, row) in out.iter_mut().zip(rows) {
        // In a register of 128 bits: on two halves of 64, as the compiler would, it takes twice the loads.
        let mut sum: __m128i = bytemuck::must_cast(*out);
        for (w, &place) in row.iter().enumerate() {
            // SAFETY: every x86-64 CPU has SSE2.
            sum = unsafe { _mm_xor_si128(sum, bytemuck::must_cast(table[w * segment + place as usize])) };
        }
        *out = bytemuck::must_cast(sum);
    }
}

/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn gather(rows: &[[u32; WEIGHT]], table: &[Block], out: &mut [Block]) {
    scalar(rows, table, out);
}

/// The scalar twin.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn scalar(rows: &[[u32; WEIGHT]], table: &[Block], out: &mut [Block]) {
    for (out, row) in out.iter_mut().zip(rows) {
        for (w, &place) in row.iter().enumerate() {
            *out ^= table[w * (table.len() / WEIGHT) + place as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_like_the_scalar_twin(
            table in prop::collection::vec(any::<[u128; WEIGHT]>(), 1..50),
            rows in prop::collection::vec(any::<[u32; WEIGHT]>(), 0..40),
        ) {
            let rows: Vec<_> = rows.into_iter().map(|row| row.map(|p| p % table.len() as u32)).collect();
            let table: Vec<Block> = table.into_iter().flatten().map(Block).collect();
            let mut want: Vec<Block> = (0..rows.len() as u128).map(|i| Block(!i)).collect();
            let mut got = want.clone();
            scalar(&rows, &table, &mut want);
            gather(&rows, &table, &mut got);
            prop_assert!(got == want);
        }
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_place_outside_is_caught() {
        gather(&[[1; WEIGHT]], &[Block::ZERO; WEIGHT], &mut [Block::ZERO]);
    }
}
