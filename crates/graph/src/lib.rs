//! Networks: ONNX import, quantisation, and the plaintext references.
pub mod network;
