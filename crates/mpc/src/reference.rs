//! What the protocols compute, on plain integers: of values as `semantics` defines it, and of two shares.

use crate::semantics::shift_by_share;
pub use crate::semantics::{argmax, relu, relu6};

use crate::protocols::max_pool::PoolShape;

/// The representative of `x` mod 2^`bits` in \[−2^(bits−1), 2^(bits−1)).
pub const fn signed(x: u64, bits: u32) -> i64 {
    (x << (64 - bits)) as i64 >> (64 - bits)
}

/// The share-like form of a value: `x` mod 2^`bits`, 0 ≤ result < 2^`bits`, for `bits` of 1 to 64.
pub const fn residue(x: i64, bits: u32) -> u64 {
    x as u64 & (u64::MAX >> (64 - bits))
}

/// The value that two shares mod 2^`bits` add up to, signed.
pub const fn open(client: u64, server: u64, bits: u32) -> i64 {
    signed(client.wrapping_add(server), bits)
}

/// The sign of the value of two shares mod 2^`bits` as a comparison sees it that ignores the lowest `ignored` bits:
/// whether that of ⌊x / 2^`ignored`⌋, less one where the lowest bits of the shares carry, is not negative.
pub(crate) const fn non_negative_ignoring(client: u64, server: u64, bits: u32, ignored: u32) -> bool {
    let (c, s) = (residue(client as i64, bits), residue(server as i64, bits));
    signed((c >> ignored) + (s >> ignored), bits - ignored) >= 0
}

/// What [`crate::Relu`] makes of two shares mod 2^`bits` when the sign ignores the lowest `ignored` bits: 0 or x
/// where 0 ≤ x < 2^`ignored` − 1, max(x, 0) elsewhere, for x ≥ −2^(bits−1) + 2^`ignored`.
pub const fn relu_ignoring(client: u64, server: u64, bits: u32, ignored: u32) -> i64 {
    if non_negative_ignoring(client, server, bits, ignored) { open(client, server, bits) } else { 0 }
}

/// What [`crate::Truncate`] makes of two shares mod 2^`bits` of a value in its range: x / 2^`shift`, rounded up
/// where the server's share, mod 2^`shift`, is neither zero nor more than x mod 2^`shift`, and down elsewhere.
/// Over random shares that is up with probability (x mod 2^`shift`) / 2^`shift`.
pub fn truncate(client: u64, server: u64, bits: u32, shift: u32) -> i64 {
    shift_by_share(open(client, server, bits), shift, server.wrapping_neg())
}

/// The largest real value in each window; `x` is `[C, H, W]`, the result `[C, H', W']`.
///
/// # Panics
/// When the shape is not one that [`crate::MaxPool`] takes, or `x` has another size.
pub fn maxpool(x: &[i64], shape: &PoolShape) -> Vec<i64> {
    let [out_h, out_w] = shape.output().unwrap_or_else(|e| panic!("{e}"));
    let [height, width] = shape.size;
    assert_eq!(x.len(), shape.channels * height * width, "one value a place");
    let mut out = Vec::with_capacity(shape.channels * out_h * out_w);
    for channel in x.chunks(height * width) {
        for i in 0..out_h {
            for j in 0..out_w {
                let mut largest = i64::MIN;
                for u in 0..shape.kernel[0] {
                    for v in 0..shape.kernel[1] {
                        let row = (i * shape.stride[0] + u).checked_sub(shape.pads[0]);
                        let col = (j * shape.stride[1] + v).checked_sub(shape.pads[1]);
                        if let (Some(row), Some(col)) = (row, col)
                            && row < height
                            && col < width
                        {
                            largest = largest.max(channel[row * width + col]);
                        }
                    }
                }
                out.push(largest);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residues_are_centred() {
        assert_eq!(signed(0xffff, 16), -1);
        assert_eq!(signed(0x7fff, 16), 32767);
        assert_eq!(signed(0x8000, 16), -32768);
        assert_eq!(signed(0x1_0005, 16), 5);
    }
}
