//! The plain integer product of a linear layer, modulo 2^64, on an NVIDIA GPU.
//!
//! `out <- Product(x, W)`: a convolution (a fully connected layer is one too) of public or masked words with weights, both of which the
//! server has in the clear. Backends whose online part is such a product hand it to a device: the processor, or a
//! [`Gpu`].
//!
//! | part | what it is |
//! |---|---|
//! | [`Shape`] | the convolution, and where each of its terms lies in memory |
//! | `product.cu`, `product.ptx` | the kernels; the second is made of the first by `tools/gpu_kernel.py` |
//! | [`Gpu`] | a card with the kernels (feature `cuda`; without it, opening one says so) |
//! | [`Loaded`] | one layer's weights on the card, for any number of products |
//!
//! Only NVIDIA's driver is needed, and it is looked for when a [`Gpu`] is opened; building needs nothing of NVIDIA's.
//! Every result is that of integers modulo 2^64, so it is the processor's bit for bit; smaller powers of two are a
//! matter of masking.
//!
//! **State.** The kernels' compiled form was run by an interpreter of PTX (`tests/ptx.rs`), which compares every word with plain
//! integers. On an NVIDIA H200 a network gave the same class, and took the same time as without the card (`docs/gpu.md`).

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod none;
mod shape;

#[cfg(feature = "cuda")]
pub use cuda::{Gpu, Loaded};
#[cfg(not(feature = "cuda"))]
pub use none::{Gpu, Loaded};
pub use shape::{Places, Shape, ShapeError};

/// The kernels, as the driver takes them.
pub const PTX: &str = include_str!("product.ptx");

/// Outputs and places that a block of `product_tiled` makes.
pub const TILE: u32 = 64;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Groups with fewer outputs than this run in `product_narrow`.
pub const FEW_OUTPUTS: u32 = 8;

/// Why there is no product.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// This program was built without the feature `cuda`.
    #[error("this program was built without support for GPUs (cargo feature `cuda`)")]
    NotBuilt,
    /// The machine has no driver of such a card.
    #[error("NVIDIA's driver (libcuda) is not installed")]
    NoDriver,
    /// The driver says no.
    #[error("GPU: {what}: {why}")]
    Driver {
        /// The call of the driver that failed.
        what: &'static str,
        /// What the driver says of it.
        why: String,
    },
}
