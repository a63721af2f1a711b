//! Plain integer products of linear layers, for backends whose online part is one: a convolution of words modulo
//! 2^bits, which the server has in the clear, with its small weights.
//!
//! [`Device`] is the interface behind which they are computed: the weights go there once per model, an input per query,
//! and outputs come back channel by channel. Every device gives the same words, bit for bit.
//!
//! | device | what it is |
//! |---|---|
//! | [`Processor`] | the processor, with the instructions of a `Cpu` |
//! | [`OnGpu`] | an NVIDIA card ([`jaguar_gpu`]); the processor steps in where it fails |
//!
//! A server has one [`Hardware`], which is handed down to its backends.

mod gpu;
mod processor;

use std::ops::Range;
use std::sync::Arc;

use jaguar_cpu::Cpu;
pub use jaguar_gpu::GpuError;
use jaguar_graph::network::{Linear, Shape, Weights};
use jaguar_ring::gemm::{TILE, Term};

pub use gpu::OnGpu;
pub use processor::Processor;
pub(crate) use processor::product_len;

/// What a server's linear layers are computed with.
#[derive(Clone)]
pub struct Hardware {
    /// The instructions of all that the processor does.
    pub cpu: Cpu,
    /// Where online products are computed.
    pub device: Arc<dyn Device>,
}

impl From<Cpu> for Hardware {
    /// Everything on the processor.
    fn from(cpu: Cpu) -> Self {
        Self { cpu, device: Arc::new(Processor(cpu)) }
    }
}

/// Which device a person asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Choice {
    /// The first NVIDIA card, where this program supports them and one is there; else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The first NVIDIA card, or none at all.
    Gpu,
}

impl Hardware {
    /// The device that is asked for; `tell` hears when a card fails later on.
    ///
    /// # Errors
    /// When a card is asked for and there is none.
    pub fn open(
        choice: Choice,
        cpu: Cpu,
        tell: impl Fn(&GpuError) + Send + Sync + 'static,
    ) -> Result<Self, GpuError> {
        match choice {
            Choice::Cpu => Ok(cpu.into()),
            Choice::Gpu => Ok(Self { cpu, device: Arc::new(OnGpu::open(cpu, tell)?) }),
            Choice::Auto => Ok(match OnGpu::open(cpu, tell) {
                Ok(gpu) => Self { cpu, device: Arc::new(gpu) },
                Err(_) => cpu.into(),
            }),
        }
    }
}

/// Where online products are computed.
pub trait Device: Send + Sync {
    /// In a few words, which one.
    fn describe(&self) -> String;

    /// Takes the weights of one layer over an input of `in_shape`: they stay there. Words are modulo `2^bits`, weights
    /// below `2^(weight_bits − 1)` in absolute value before their exponents.
    fn load(&self, shape: ProductShape<'_>, weights: &Weights) -> Arc<dyn Product>;
}

/// What a product is of.
#[derive(Clone, Copy, Debug)]
pub struct ProductShape<'a> {
    /// The layer.
    pub spec: &'a Linear,
    /// `[C_in, H, W]`.
    pub in_shape: Shape,
    /// Words are modulo 2 to this.
    pub bits: u32,
    /// Of a weight, the exponent not counted.
    pub weight_bits: u32,
}

/// One layer's weights, where its products are computed.
pub trait Product: Send + Sync {
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

/// Bytes of a layer's weights as the kernels of [`jaguar_ring::gemm`] take them: pairs of numbers in tiles of outputs, and
/// where each term is read.
pub(crate) fn numbers_bytes(spec: &Linear, in_shape: Shape) -> u64 {
    let outs = (spec.out_channels / spec.groups).next_multiple_of(TILE);
    let terms = in_shape[0] / spec.groups * spec.kernel[0] * spec.kernel[1];
    let each = outs * terms.next_multiple_of(2) * size_of::<i16>() + terms * size_of::<Term>();
    (spec.groups * each) as u64
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
