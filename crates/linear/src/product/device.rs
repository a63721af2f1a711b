//! What computes products, and what it is asked for.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::{Linear, Shape, Weights};

/// Where online products are computed.
pub trait Device: Send + Sync {
    /// In a few words, which one.
    fn describe(&self) -> String;

    /// Takes the weights of one layer over an input of `in_shape`: they stay there. Words are modulo `2^bits`, weights
    /// below `2^(weight_bits − 1)` in absolute value before their exponents.
    fn load(&self, shape: ProductShape<'_>, weights: &Weights) -> Arc<dyn DeviceProduct>;
}

/// What a product is of.
#[derive(Clone, Copy, Debug)]
pub struct ProductShape<'a> {
    /// The convolution: its geometry and its shift.
    pub spec: &'a Linear,
    /// `[C_in, H, W]` of the layer's input.
    pub in_shape: Shape,
    /// Words are modulo 2 to this.
    pub bits: u32,
    /// Of a weight, the exponent not counted.
    pub weight_bits: u32,
}

/// One layer's weights, where its products are computed.
pub trait DeviceProduct: Send + Sync {
    /// Takes one query's input, `[C, H, W]`, whose bits above [`ProductShape::bits`] are ignored. May begin to compute.
    fn begin(self: Arc<Self>, x: &[u64]) -> Box<dyn Running>;
}

/// One query's product. Channels can be had in any order, and more than once.
pub trait Running: Send {
    /// How many channels are best had together: ranges should begin at its multiples.
    fn together(&self) -> usize;

    /// `Σ w·x` times two to the weights' exponents, modulo 2^bits, of output channels `channels`: `[channels, H, W]` into `out`.
    ///
    /// # Panics
    /// When `channels` does not begin at a multiple of [`together`](Self::together), or `out` is of another length.
    fn channels(&mut self, channels: Range<usize>, out: &mut [u64]);
}

/// Channels that are made together, at least, in a layer of twice as many or more: each part packs the inputs anew,
/// which takes as long as about two outputs. Measured on ResNet-50's layers on one thread, parts of 8 channels take 20
/// per cent more time than the whole, 16 take 14, 32 take 7, 64 take 4 (and with [`TOGETHER_WORK`] 3).
const TOGETHER_CHANNELS: usize = 64;

/// Multiply-adds of such a part, at least: some 0.4 ms on one thread, so that handing it to several costs little.
const TOGETHER_WORK: usize = 1 << 24;

/// How many of a layer's channels are made together, at least, in multiples of what is `indivisible`: each takes `work`
/// multiply-adds.
pub(crate) fn channels_together(channels: usize, work: usize, indivisible: usize) -> usize {
    let worthwhile = TOGETHER_WORK.div_ceil(work.max(1)).max(TOGETHER_CHANNELS.min(channels.div_ceil(2)));
    worthwhile.next_multiple_of(indivisible)
}
