//! Integers of a few bits, packed without gaps, little-endian.

/// How many bytes `count` values of `bits` bits take.
pub fn packed_len(count: usize, bits: u32) -> usize {
    (count * bits as usize).div_ceil(8)
}

/// Packs the low `bits` bits (1..=64) of every value.
///
/// # Panics
/// When `bits` is out of range.
pub fn pack(values: &[u64], bits: u32) -> Vec<u8> {
    assert!((1..=64).contains(&bits), "{bits} bits");
    let mask = u64::MAX >> (64 - bits);
    let mut out = Vec::with_capacity(packed_len(values.len(), bits) + 8);
    let (mut word, mut have) = (0u64, 0u32);
    for &v in values {
        let v = v & mask;
        word |= v << have;
        have += bits;
        if have >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            have -= 64;
            // What did not fit; in two steps, since it may be nothing of 64 bits.
            word = (v >> 1) >> (bits - have - 1);
        }
    }
    out.extend_from_slice(&word.to_le_bytes());
    out.truncate(packed_len(values.len(), bits));
    out
}

/// The inverse of [`pack`].
///
/// # Panics
/// When `bytes` has not exactly the length that `count` values take, or `bits` is out of range.
pub fn unpack(bytes: &[u8], count: usize, bits: u32) -> Vec<u64> {
    let mut out = vec![0; count];
    unpack_each(bytes, bits, &mut out, |value| value);
    out
}

/// [`unpack`] of values of at most 32 bits into `out`.
///
/// # Panics
/// When `bytes` has not exactly the length that `out` takes, or `bits` is not in `1..=32`.
pub fn unpack_u32_into(bytes: &[u8], bits: u32, out: &mut [u32]) {
    assert!(bits <= 32, "{bits} bits");
    unpack_each(bytes, bits, out, |value| value as u32);
}

/// Writes each value, as `convert` has it.
#[inline(always)]
fn unpack_each<T>(bytes: &[u8], bits: u32, out: &mut [T], convert: impl Fn(u64) -> T) {
    assert!((1..=64).contains(&bits), "{bits} bits");
    assert_eq!(bytes.len(), packed_len(out.len(), bits));
    let mask = u64::MAX >> (64 - bits);
    // Eight values are `bits` whole bytes. A value that begins within a byte ends within eight if it has up to 57
    // bits; wherever more bytes are needed or the input ends before, take them one by one.
    let whole = if bits <= 57 { bytes.len().saturating_sub(8) / bits as usize } else { 0 };
    let (fast, slow) = out.split_at_mut((8 * whole).min(out.len()));
    let places: [(usize, u32); 8] = std::array::from_fn(|v| (v * bits as usize / 8, v as u32 * bits % 8));
    for (out, bytes) in fast.chunks_exact_mut(8).zip(bytes.windows(bits as usize + 8).step_by(bits as usize))
    {
        for (out, (byte, shift)) in out.iter_mut().zip(places) {
            let word = bytes[byte..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            *out = convert((word >> shift) & mask);
        }
    }
    let first = fast.len();
    for (i, out) in slow.iter_mut().enumerate() {
        let bit = (first + i) * bits as usize;
        let mut word = [0; 16];
        let here = &bytes[bit / 8..bytes.len().min(bit / 8 + 9)];
        word[..here.len()].copy_from_slice(here);
        *out = convert((u128::from_le_bytes(word) >> (bit % 8)) as u64 & mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back() {
        for bits in 1..=64 {
            for count in [0usize, 1, 2, 3, 7, 8, 9, 16, 31, 100] {
                let mask = u64::MAX >> (64 - bits);
                let values: Vec<u64> =
                    (0..count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 60)).collect();
                let bytes = pack(&values, bits);
                assert_eq!(bytes.len(), packed_len(count, bits));
                let want: Vec<u64> = values.iter().map(|v| v & mask).collect();
                assert_eq!(unpack(&bytes, count, bits), want, "{bits} bits, {count} values");
                // Bit by bit, little-endian.
                let bit = |i: usize| u64::from(bytes[i / 8] >> (i % 8) & 1);
                let width = bits as usize;
                let by_bits = (0..count).map(|v| (0..width).map(|i| bit(v * width + i) << i).sum::<u64>());
                assert!(by_bits.eq(want.iter().copied()), "{bits} bits, {count} values");
                if bits <= 32 {
                    let mut narrow = vec![0; count];
                    unpack_u32_into(&bytes, bits, &mut narrow);
                    assert!(narrow.into_iter().map(u64::from).eq(want), "{bits} bits, {count} values");
                }
            }
        }
    }
}
