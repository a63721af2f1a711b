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

mod device;
mod gpu;
mod processor;

use std::sync::Arc;

use jaguar_cpu::Cpu;
pub use jaguar_gpu::GpuError;
use jaguar_graph::network::{Linear, Shape};
use jaguar_ring::gemm::{TILE, Term};

pub(crate) use device::channels_together;
pub use device::{Device, Product, ProductShape, Running};
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

/// Bytes of a layer's weights as the kernels of [`jaguar_ring::gemm`] take them: pairs of numbers in tiles of outputs, and
/// where each term is read.
pub(crate) fn numbers_bytes(spec: &Linear, in_shape: Shape) -> u64 {
    let outs = (spec.out_channels / spec.groups).next_multiple_of(TILE);
    let terms = in_shape[0] / spec.groups * spec.kernel[0] * spec.kernel[1];
    let each = outs * terms.next_multiple_of(2) * size_of::<i16>() + terms * size_of::<Term>();
    (spec.groups * each) as u64
}
