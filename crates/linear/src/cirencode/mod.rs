//! CirEncode (PrivCirNet, NeurIPS 2024): block-circulant layers in SIMD slots.

mod packing;
#[cfg(test)]
mod tests;
mod windows;

pub use packing::{Counts, Packing, Parts, Term};
pub use windows::Windows;
