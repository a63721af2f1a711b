//! What comes out of a network, as Python takes it.

use jaguar::answer::class_name;
use jaguar::client::Prediction;
use jaguar::network::{Finish, Network, softmax};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// One answer. The lists are bytes in the machine's order: 64-bit floats (logits, probabilities) and 64-bit integers.
#[pyclass(frozen, get_all, module = "jaguar._native")]
pub struct Answer {
    /// The most likely class.
    pub label: usize,
    /// Its name.
    pub name: String,
    /// The model's logits; none where only the label was revealed.
    pub logits: Option<Py<PyBytes>>,
    /// What the model ends in makes of them; a softmax where it ends in nothing.
    pub probabilities: Option<Py<PyBytes>>,
    /// The integer logits.
    pub integers: Option<Py<PyBytes>>,
}

impl Answer {
    /// Of what a query gave.
    pub fn new(py: Python<'_>, network: &Network, prediction: &Prediction) -> Self {
        let label = prediction.label(network);
        let name = class_name(network, label);
        let Prediction::Logits(integers) = prediction else {
            return Self { label, name, logits: None, probabilities: None, integers: None };
        };
        let logits = network.output.logits(integers);
        let finished = network.output.parts.iter().any(|p| p.finish != Finish::None);
        let probabilities = if finished { network.output.finish(integers) } else { softmax(&logits) };
        let floats = |values: &[f64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_ne_bytes()).collect() };
        let bytes = |bytes: Vec<u8>| Some(PyBytes::new(py, &bytes).unbind());
        Self {
            label,
            name,
            logits: bytes(floats(&logits)),
            probabilities: bytes(floats(&probabilities)),
            integers: bytes(integers.iter().flat_map(|v| v.to_ne_bytes()).collect()),
        }
    }
}
