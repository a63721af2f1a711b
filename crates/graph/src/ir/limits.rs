//! What a network may have at most, and the checks by which operators keep to it.

use crate::ir::error::NodeError;
use crate::ir::shape::{Shape, elements};

/// The most nodes a network may have.
pub const MAX_NODES: usize = 4096;
/// The most values a tensor may have.
pub const MAX_ELEMENTS: usize = 1 << 26;
/// The most values that all nodes together may have: bounds what a whole run allocates.
pub const MAX_TOTAL_ELEMENTS: usize = 1 << 28;
/// The largest width or height of an image, before and after resizing.
pub const MAX_SIDE: usize = 1 << 15;
/// The largest kernel, stride, dilation or pad.
pub const MAX_EXTENT: usize = 1 << 12;
/// The most weights a linear layer may have.
pub const MAX_WEIGHTS: usize = 1 << 29;
/// The most multiply-adds a linear layer may take in plaintext.
pub const MAX_MULTIPLY_ADDS: u64 = 1 << 38;
/// The most labels, and the longest name or label in bytes.
pub const MAX_LABELS: usize = 1 << 17;
/// The longest name or label in bytes.
pub const MAX_NAME: usize = 4096;
/// The most outputs that a network's output consists of.
pub const MAX_OUTPUTS: usize = 64;
/// The most dimensions that such an output has in its ONNX model.
pub const MAX_RANK: usize = 16;
/// The largest multiplier that makes up for padding in a [`SumPool`](crate::network::SumPool).
pub const MAX_POOL_GAIN: u64 = 1 << 16;
/// The largest bias, in absolute value: leaves room to add any sum of products.
pub const MAX_BIAS: i64 = 1 << 60;
/// What [`Network::activation_bits`](crate::network::Network::activation_bits) may be, guard bits not counted.
pub const ACTIVATION_BITS: std::ops::RangeInclusive<u32> = 8..=24;
/// The most that [`Network::guard_bits`](crate::network::Network::guard_bits) may be.
pub const MAX_GUARD_BITS: u32 = 12;
/// The most that [`Network::noise_bits`](crate::network::Network::noise_bits) may be.
pub const MAX_NOISE_BITS: u32 = 20;
/// By how many bits, at least, an activation must be wider than the noise: its sum is four times as wide, and a quarter of the range.
pub const NOISE_MARGIN: u32 = 4;
/// What [`Network::weight_bits`](crate::network::Network::weight_bits) may be.
pub const WEIGHT_BITS: std::ops::RangeInclusive<u32> = 2..=16;
/// The largest [`Linear::max_exponent`](crate::network::Linear::max_exponent).
pub const MAX_EXPONENT: u32 = 12;
/// What [`Linear::shift`](crate::network::Linear::shift) may be.
pub const SHIFTS: std::ops::RangeInclusive<u32> = 1..=40;

/// Whether a network may have so many guard bits: none, or at least two.
pub const fn may_guard(guard_bits: u32) -> bool {
    guard_bits == 0 || guard_bits >= 2 && guard_bits <= MAX_GUARD_BITS
}

/// [`NodeError::Range`] of `what` unless it is `ok`.
pub(crate) fn check(ok: bool, what: &'static str) -> Result<(), NodeError> {
    if ok { Ok(()) } else { Err(NodeError::Range(what)) }
}

/// All `values` lie in `low ..= MAX_EXTENT`.
pub(crate) fn extents(what: &'static str, low: usize, values: &[usize]) -> Result<(), NodeError> {
    check(values.iter().all(|&v| (low..=MAX_EXTENT).contains(&v)), what)
}

/// The shape, if a tensor may be so large.
pub(crate) fn bounded(shape: Shape) -> Result<Shape, NodeError> {
    let count = elements(shape).ok_or(NodeError::Range("tensor size"))?;
    check((1..=MAX_ELEMENTS).contains(&count), "tensor size")?;
    Ok(shape)
}

/// A sign may leave out all but four bits of an n-bit value: one of two bits would be a coin.
pub(crate) const fn most_ignored(activation_bits: u32) -> u32 {
    activation_bits.saturating_sub(4)
}

/// Whether a sign may leave out so many bits of an n-bit value.
pub(crate) fn check_ignored(ignored: u32, activation_bits: u32) -> Result<(), NodeError> {
    check(ignored <= most_ignored(activation_bits), "number of ignored bits")
}
