//! CirEncode (PrivCirNet, NeurIPS 2024): blocks of weights by one product with a plaintext.
//!
//! | file | what is in it |
//! |---|---|
//! | `packing` | where blocks sit in slots, which products and rotations a layer takes; the transform of a part |
//! | `server` | steps 4 and 5 of a layer |

mod packing;
mod server;
#[cfg(test)]
mod tests;

pub use packing::{BlockPacking, Counts, GroupWork, Parts};
