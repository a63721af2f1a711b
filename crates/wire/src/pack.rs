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
    let mut out = Vec::with_capacity(packed_len(values.len(), bits) + 16);
    let (mut acc, mut have) = (0u128, 0u32);
    for &v in values {
        acc |= u128::from(v & mask) << have;
        have += bits;
        while have >= 32 {
            out.extend_from_slice(&(acc as u32).to_le_bytes());
            acc >>= 32;
            have -= 32;
        }
    }
    out.extend_from_slice(&(acc as u32).to_le_bytes());
    out.truncate(packed_len(values.len(), bits));
    out
}

/// The inverse of [`pack`].
///
/// # Panics
/// When `bytes` has not exactly the length that `count` values take, or `bits` is out of range.
pub fn unpack(bytes: &[u8], count: usize, bits: u32) -> Vec<u64> {
    assert!((1..=64).contains(&bits), "{bits} bits");
    assert_eq!(bytes.len(), packed_len(count, bits));
    let mask = u64::MAX >> (64 - bits);
    let mut words = bytes.chunks(4).map(|c| {
        let mut w = [0; 4];
        w[..c.len()].copy_from_slice(c);
        u128::from(u32::from_le_bytes(w))
    });
    let (mut acc, mut have) = (0u128, 0u32);
    (0..count)
        .map(|_| {
            while have < bits {
                acc |= words.next().unwrap_or(0) << have;
                have += 32;
            }
            let v = acc as u64 & mask;
            acc >>= bits;
            have -= bits;
            v
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back() {
        for bits in 1..=64 {
            for count in [0usize, 1, 2, 3, 7, 8, 31, 100] {
                let mask = u64::MAX >> (64 - bits);
                let values: Vec<u64> =
                    (0..count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 60)).collect();
                let bytes = pack(&values, bits);
                assert_eq!(bytes.len(), packed_len(count, bits));
                let want: Vec<u64> = values.iter().map(|v| v & mask).collect();
                assert_eq!(unpack(&bytes, count, bits), want, "{bits} bits, {count} values");
            }
        }
    }
}
