//! Where a layer's values sit, in any of the forms.

use jaguar_graph::network::{Linear, Shape};

use super::blocks::BlockPacking;
use super::interleaved::Interleaved;
use super::packing::Packing;

/// Where channels sit in slots.
#[derive(Clone, Debug, PartialEq)]
pub enum Places {
    /// A channel in each part, as it is.
    Channels(Packing),
    /// Channel after channel at each place.
    Interleaved(Interleaved),
    /// A block of channels in each part, transformed.
    Blocks(BlockPacking),
}

/// What both have.
macro_rules! either {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self $(, $arg: $type)*) -> $out {
                match self {
                    Self::Channels(packing) => packing.$name($($arg),*),
                    Self::Interleaved(packing) => packing.$name($($arg),*),
                    Self::Blocks(packing) => packing.$name($($arg),*),
                }
            }
        )*
    };
}

impl Places {
    either! {
        /// The convolution: its geometry and its shift.
        spec() -> &Linear;
        /// `[C_in, H, W]` of the layer's input.
        in_shape() -> Shape;
        /// `[C_out, H, W]` of the layer's output.
        out_shape() -> Shape;
        /// N: how many slots a ciphertext has.
        slots() -> usize;
        /// Channels in a ciphertext.
        channels() -> usize;
        /// Into how many windows the map is cut.
        tile_count() -> usize;
        /// Groups of windows that share ciphertexts.
        groups() -> usize;
        /// Ciphertexts of a group, from the client.
        in_blocks() -> usize;
        /// Ciphertexts of a group, of the answer.
        out_blocks() -> usize;
        /// Ciphertexts from the client: by group, then block.
        ciphertexts() -> usize;
        /// Ciphertexts of the answer: by group, then block.
        responses() -> usize;
        /// Every figure that both parties must have alike.
        figures() -> Vec<u64>;
        /// The automorphisms that a layer takes.
        elements() -> Vec<usize>;
        /// Writes a group's block of an input `[C, H, W]` to its places, which are zero.
        write_inputs(group: usize, block: usize, x: &[u64], places: &mut [u64]) -> ();
        /// The outputs of a response: place there, and in `[C, H, W]`.
        outputs_of(group: usize, block: usize) -> Vec<(usize, usize)>;
    }

    /// Groups of so many responses that share an a half: of one group of windows, one after the other.
    pub fn joints(&self, count: usize) -> usize {
        self.groups() * self.out_blocks().div_ceil(count)
    }

    /// Of an output block's products, the share whose inputs are rotated.
    pub(crate) fn turned_share(&self) -> f64 {
        match self {
            Self::Channels(packing) => 1.0 - 1.0 / packing.taps().len() as f64,
            Self::Interleaved(packing) => packing.work().turned as f64 / packing.work().most[1] as f64,
            Self::Blocks(packing) => f64::from(u8::from(packing.work().turned > 0)),
        }
    }

    /// Ciphertexts that the server has at once, of one group: inputs, as they are and turned.
    pub(crate) fn turned(&self) -> usize {
        match self {
            Self::Channels(packing) => packing.in_blocks().saturating_mul(packing.taps().len()),
            Self::Interleaved(packing) => packing.in_blocks().saturating_mul(packing.turns().len()),
            Self::Blocks(packing) => packing.in_blocks().saturating_mul(packing.babies()),
        }
    }
}
