//! Shares modulo 2^bits: how wide they may be, and their reduction.

use zeroize::Zeroizing;

/// The widest shares that the protocols take, in bits. Jaguar's layers need 12 to 32; the rest is for protocols that
/// keep products at full width, such as Cheetah: activations, guard bits and a layer's shift have 48 together at most.
pub const WIDEST: u32 = 48;

/// Shares with everything above their ring's `bits` (1..=64) removed.
pub(crate) fn ring_mask(x: &[u64], bits: u32) -> Zeroizing<Vec<u64>> {
    Zeroizing::new(x.iter().map(|x| x & (u64::MAX >> (64 - bits))).collect())
}
