//! Inputs of networks from files: pictures and `.npy` tensors, single ones and those in folders.
//!
//! A client needs this and so does whoever compiles a network; neither needs the other. Whatever a file holds, reading
//! it ends in a [`Source`] or in an error, and takes memory as the file has bytes, not as it claims.
//!
//! ```no_run
//! # fn query(network: &jaguar_graph::network::Network) -> Result<(), Box<dyn std::error::Error>> {
//! let input = jaguar_compile::samples::open("cat.jpg".as_ref())?.input(network)?;
//! # Ok(()) }
//! ```

pub mod folder;
pub mod labelled;
pub mod npy;
mod source;

pub use source::{Axes, FitError, Input, OpenError, Source, SourceError, open};

/// What is read, for messages.
pub(crate) const KNOWN: &str = "JPEG, PNG, WebP, BMP, GIF, PNM or .npy";
