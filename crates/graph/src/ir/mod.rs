//! The integer network: its description, its checks. Its operators are in [`crate::ops`].
//!
//! | file | holds |
//! |---|---|
//! | `shape.rs`, `limits.rs`, `error.rs` | shapes, what is allowed at most, what can be wrong |
//! | `blocks.rs` | weights in circulant blocks |
//! | `convolution.rs` | a linear layer's geometry and weights |
//! | `kernel.rs` | convolution in plaintext, for the reference and the float interpreter |
//! | `draws.rs` | the chance of a private run, imitated |
//! | `seen.rs` | the range of values that calibration saw |
//! | `specs.rs` | what the client does with an image and with the output |
//! | [`network`] | the network and the model, and all of the above under one public name |
//! | `reading.rs` | networks and models from files and messages |
//! | `guard.rs` | the same model with guard bits |
//! | `validate.rs` | the checks that a network passes before it is used |
//!
//! Each file uses those above it only.

pub(crate) mod blocks;
pub(crate) mod convolution;
pub(crate) mod draws;
pub(crate) mod error;
mod guard;
pub(crate) mod kernel;
pub(crate) mod limits;
pub mod network;
pub(crate) mod reading;
pub(crate) mod seen;
pub(crate) mod shape;
mod specs;
pub(crate) mod validate;
