//! Without the feature `cuda`.

use std::convert::Infallible;
use std::sync::Arc;

use crate::{GpuError, Shape};

/// A card. There is none in this build.
pub struct Gpu(Infallible);

/// A layer's weights on a card.
pub struct Loaded(Infallible);

impl Gpu {
    /// Opens the card of this number, 0 being the first.
    ///
    /// # Errors
    /// Always: this build has no support for GPUs.
    pub fn open(_: usize) -> Result<Arc<Self>, GpuError> {
        Err(GpuError::NotBuilt)
    }

    /// What the driver calls the card.
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// Loads a layer's weights, `[C_out, C_in/groups, k_h, k_w]`.
    ///
    /// # Errors
    /// When the card fails or its memory is full.
    pub fn load(self: &Arc<Self>, _: Shape, _: &[i32]) -> Result<Loaded, GpuError> {
        match self.0 {}
    }
}

impl Loaded {
    /// The products `[C_out, H_out, W_out]` of `x`, `[C_in, H, W]`, modulo 2^64.
    ///
    /// # Errors
    /// When the card fails or its memory is full.
    pub fn run(&self, _: &[u64]) -> Result<Vec<u64>, GpuError> {
        match self.0 {}
    }
}
