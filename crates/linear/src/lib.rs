//! Homomorphic linear layers, both roles, one folder per backend.
//!
//! | module | what |
//! |---|---|
//! | [`backend`] | what a backend is: the traits that plans and sessions know |
//! | [`constants`] | what a backend needs to know of a machine, and how that is measured |
//! | [`timing`] | how probes are timed |
//! | [`layout`] | where inputs and outputs sit in ring elements |
//! | [`inputs`] | the same of the inputs, in runs, for a layer to keep |
//! | [`jaguar`] | the main path: parted halves, phase sharing |
//! | [`plaintext_insecure`] | no encryption: for tests, and an example of a backend's folder |
//! | [`published_insecure`] | the export as Jaguar's paper has it; leaks the weights, for reproduction only |
pub mod backend;
#[cfg(test)]
mod components;
pub mod constants;
pub mod inputs;
pub mod jaguar;
#[cfg(any(test, feature = "testing"))]
pub mod known_coins;
pub mod layout;
#[cfg(test)]
mod own_images;
pub mod plaintext_insecure;
pub mod product;
pub mod published_insecure;
pub mod timing;

/// Cuts `values` into pieces of the given lengths.
pub fn cut<T>(mut values: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    lengths
        .map(|length| {
            let (first, rest) = std::mem::take(&mut values).split_at_mut(length);
            values = rest;
            first
        })
        .collect()
}
