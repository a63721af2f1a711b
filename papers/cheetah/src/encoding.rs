//! Where inputs, weights and outputs sit in polynomials, as ring, keys, noise and export see it.
//!
//! A layer is a number of *tiles*; each has blocks of inputs, a polynomial each, and blocks of outputs, a response
//! each. Weights are the same for all tiles. An output block is the sum over the input blocks that it sees of products
//! of two polynomials.

use std::fmt::Debug;
use std::ops::Range;

use jaguar_graph::network::{Linear, Shape, Weights};

/// A layout of one linear layer in a ring of dimension N.
pub trait Encoding: Clone + Debug + Send + Sync {
    /// N: how many coefficients a polynomial has.
    fn ring_dim(&self) -> usize;

    /// The convolution: its geometry and its shift.
    fn spec(&self) -> &Linear;

    /// `[C_in, H, W]` of the layer's input.
    fn in_shape(&self) -> Shape;

    /// `[C_out, H, W]` of the layer's output.
    fn out_shape(&self) -> Shape;

    /// How many tiles there are.
    fn tile_count(&self) -> usize;

    /// Blocks of inputs of a tile.
    fn in_blocks(&self) -> usize;

    /// Blocks of outputs of a tile.
    fn out_blocks(&self) -> usize;

    /// The input blocks that any output of a block sees.
    fn inputs_of(&self, out_block: usize) -> Range<usize>;

    /// How many weights an output polynomial adds up at most, over all of its input blocks.
    fn terms_per_response(&self) -> usize;

    /// Writes the values of an input block of a tile into zeros; `x` is the whole input, `[C, H, W]`.
    fn write_inputs(&self, tile: usize, block: usize, x: &[u64], to: &mut [u64]);

    /// Writes the weights that lead from an input block to an output block into zeros, times two to their exponents.
    fn write_weights(&self, out_block: usize, in_block: usize, weights: &Weights, to: &mut [i32]);

    /// The outputs of a block in a tile's response, in runs: first coefficient (the others follow at distances of
    /// [`column_stride`](Self::column_stride)), first index into `[C, H, W]` (the others are next to it), and how many.
    fn exports(&self, tile: usize, block: usize) -> impl Iterator<Item = (usize, usize, usize)>;

    /// Coefficients from one output of a run to the next.
    fn column_stride(&self) -> usize;

    /// Input channels (or parts of them) that a ciphertext holds.
    fn maps_per_ciphertext(&self) -> usize;

    /// What two parties must have alike, besides the ring and the layer.
    fn figures(&self) -> Vec<u64>;

    /// How many values the input has.
    fn inputs(&self) -> usize {
        self.in_shape().iter().product()
    }

    /// How many values the output has.
    fn outputs(&self) -> usize {
        self.out_shape().iter().product()
    }

    /// Input ciphertexts; number `tile · in_blocks + block`.
    fn ciphertexts(&self) -> usize {
        self.tile_count() * self.in_blocks()
    }

    /// Responses; number `tile · out_blocks + block`.
    fn responses(&self) -> usize {
        self.tile_count() * self.out_blocks()
    }

    /// Products of a ciphertext of one tile with a polynomial of weights: as many polynomials of weights there are.
    fn products_per_tile(&self) -> usize {
        (0..self.out_blocks()).map(|block| self.inputs_of(block).len()).sum()
    }

    /// Products of a ciphertext with a polynomial of weights.
    fn products(&self) -> usize {
        self.tile_count() * self.products_per_tile()
    }

    /// How many outputs a block has in a tile's response.
    fn exported(&self, tile: usize, block: usize) -> usize {
        self.exports(tile, block).map(|(.., len)| len).sum()
    }

    /// Terms that a single output adds up.
    fn terms(&self) -> usize {
        terms(self.spec(), self.in_shape())
    }
}

/// Terms that a single output adds up.
pub(super) fn terms(spec: &Linear, in_shape: Shape) -> usize {
    in_shape[0] / spec.groups * spec.kernel[0] * spec.kernel[1]
}
