//! Single layers whose steps can be timed one by one, for whoever measures a machine.

use jaguar_cpu::Cpu;
use jaguar_graph::network::Shape;

/// The layer to time: a convolution of stride 1 with "same" padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnsProbeSpec {
    /// The instructions to compute with.
    pub cpu: Cpu,
    /// Primes of the ring.
    pub limbs: usize,
    /// `[C, H, W]`.
    pub in_shape: Shape,
    /// Output channels.
    pub outs: usize,
    /// Sides of the kernel.
    pub kernel: usize,
    /// Bits of its weights, which are any.
    pub weight_bits: u32,
}

/// Seconds of the steps of one run of a layer in an RNS ring, both roles.
#[derive(Clone, Copy, Debug)]
pub struct RnsSeconds {
    /// The client's ciphertexts, before the input.
    pub client_prepare: f64,
    /// The server's encryptions of zero, before the input.
    pub server_prepare: f64,
    /// The client's ciphertexts, with the input.
    pub encrypt: f64,
    /// The server's responses.
    pub evaluate: f64,
    /// The client's share of them.
    pub decrypt: f64,
}

/// One layer in an RNS ring, with secrets and weights of no importance.
pub trait RnsProbe {
    /// N.
    fn ring_dim(&self) -> usize;

    /// Ciphertexts, polynomials of weights that they are multiplied with, and responses.
    fn counts(&self) -> [usize; 3];

    /// Transforms the weights, and says how many seconds that took for each polynomial.
    fn transform_weights(&self) -> f64;

    /// Runs every step once, on the current thread.
    fn run(&mut self) -> RnsSeconds;
}
