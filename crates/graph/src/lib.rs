//! Networks: ONNX import, quantisation, and the plaintext references.
//!
//! | module | what it holds |
//! |---|---|
//! | [`bundle`] | the compiled model in a file, its public name; files that are whole or not there |
//! | [`network`] | the integer network that the two parties evaluate together, and its checks |
//! | [`onnx`] | the ONNX file format: reading it under limits |
//! | [`import`] | ONNX to a [`float::Graph`]: translation, shape inference, folding, fusion |
//! | [`float`] | the float graph and its interpreter: the accuracy baseline |
//! | [`quantise`] | calibration: a float graph and sample inputs become an integer [`network::Model`] |
//! | [`mod@reference`] | the integer network in plaintext, exactly: what a private run is compared with |
//! | [`agreement`] | integer against float, over images |
//! | [`outputs`] | which parts of the output are judged by themselves |
//! | [`mod@leverage`] | how much a single hidden value weighs in what is opened |
//! | [`signs`] | how many low bits each layer's sign may leave out, by calibration |
//! | [`image_input`] | pixels to the network's input |
//!
//! Nothing here knows of two parties, except that a [`network::Network`] may come from one:
//! [`network::Network::validate`] is what makes it safe to use.

pub mod agreement;
pub mod bundle;
pub mod float;
pub mod image_input;
pub mod import;
mod ir;
pub mod leverage;
pub mod onnx;
pub mod ops;
pub mod outputs;
pub mod quantise;
pub mod reference;
pub mod resample;
pub mod seen;
pub mod signs;

use ir::limits;
pub use ir::network;
