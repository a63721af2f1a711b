//! What calibration finds.

/// By node and channel, the largest absolute value.
pub type ChannelRanges = Vec<Vec<f64>>;
