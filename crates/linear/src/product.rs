//! Plain integer products of linear layers, for backends whose online part is one: a convolution of words modulo
//! 2^bits, which the server has in the clear, with its small weights.
//!
//! [`Device`] is the interface behind which they are computed: the weights go there once per model, an input per query,
//! and outputs come back channel by channel. Every device gives the same words, bit for bit.
//!
//! | device | what it is |
//! |---|---|
//! | [`Processor`] | the processor, with the instructions of a `Cpu` |
//! | an NVIDIA card | Fregata's, in `papers/fregata` |
//!
//! A server has one [`Hardware`], which is handed down to its backends.

mod device;
mod processor;

use std::sync::Arc;

use jaguar_graph::network::{Linear, Shape};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::gemm::{TILE, Term};

pub(crate) use device::channels_together;
pub use device::{Device, DeviceProduct, ProductShape, Running};
pub use processor::Processor;
pub use processor::product_len;

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

/// Bytes of a layer's weights as the kernels of [`jaguar_ring::gemm`] take them: pairs of numbers in tiles of outputs, and
/// where each term is read.
pub fn numbers_bytes(spec: &Linear, in_shape: Shape) -> u64 {
    let outs = (spec.out_channels / spec.groups).next_multiple_of(TILE);
    let terms = in_shape[0] / spec.groups * spec.kernel[0] * spec.kernel[1];
    let each = outs * terms.next_multiple_of(2) * size_of::<i16>() + terms * size_of::<Term>();
    (spec.groups * each) as u64
}
