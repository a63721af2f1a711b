//! The rows that were measured, one a run.

use serde::Serialize;

/// A polynomial for ReLU.
#[derive(Clone, Debug, Serialize)]
pub struct Polynomial {
    pub name: String,
    pub levels: u32,
    pub error: f64,
    /// Place and largest error up to the next one.
    pub curve: Vec<[f64; 2]>,
}

/// One convolution, in coefficients and in slots.
#[derive(Clone, Debug, Serialize)]
pub struct Convolution {
    pub batch: usize,
    pub side: usize,
    pub kernel: usize,
    pub weights_seconds: f64,
    pub products_seconds: f64,
    pub packing_seconds: f64,
    /// Processor time of the three.
    pub busy_seconds: f64,
    /// Products and packing, where weights are encrypted.
    pub encrypted_seconds: f64,
    pub encrypted_busy_seconds: f64,
    /// Rotations (automorphisms of packing), products with weights, and keys.
    pub counts: [usize; 3],
    /// 0 if it was not timed.
    pub vector_seconds: f64,
    pub vector_busy_seconds: f64,
    /// The same in slots.
    pub vector_counts: [usize; 3],
}

impl Convolution {
    /// With the weights already encoded.
    pub fn seconds(&self) -> f64 {
        self.products_seconds + self.packing_seconds
    }
}

/// One layer by phase.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    pub network: String,
    /// From 1; the last makes the logits.
    pub index: usize,
    pub layers: usize,
    /// Bootstrapped.
    pub ciphertexts: usize,
    pub convolution_seconds: f64,
    pub packing_seconds: f64,
    pub ctos_seconds: f64,
    pub sine_seconds: f64,
    pub relu_seconds: f64,
    pub stoc_seconds: f64,
    /// Processor time of all of it.
    pub busy_seconds: f64,
}

impl Layer {
    pub fn phases(&self) -> [f64; 6] {
        [
            self.convolution_seconds,
            self.packing_seconds,
            self.ctos_seconds,
            self.sine_seconds,
            self.relu_seconds,
            self.stoc_seconds,
        ]
    }

    pub fn seconds(&self) -> f64 {
        self.phases().iter().sum()
    }
}

/// What a network takes by its plan; nothing is evaluated.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    pub network: String,
    pub kernel: usize,
    pub depth: usize,
    pub width: usize,
    pub bootstraps: usize,
    pub pieces: usize,
    pub products: usize,
    /// Of all three, in products.
    pub cost: usize,
}

/// What keys took and take.
#[derive(Clone, Debug, Serialize)]
pub struct Keys {
    pub key_seconds: f64,
    pub matrix_seconds: f64,
    pub wire_bytes: f64,
    pub memory_bytes: f64,
}
