//! What models are compiled from.

use std::path::PathBuf;

use jaguar::Cpu;
use jaguar::float::Graph;
use jaguar::import::{self, import_bytes, import_file};
use jaguar::reports::compiled::Found;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::input::Given;
use crate::kit::kit;

/// What a model was compiled from, and what that told: for reports, and to compare with.
pub struct Origin {
    /// The float network.
    pub graph: Graph,
    /// The calibration inputs.
    pub given: Vec<Given>,
    /// What compiling told.
    pub found: Found,
}

/// Where an ONNX network is.
#[derive(FromPyObject)]
pub enum Onnx {
    /// In memory.
    #[pyo3(transparent)]
    Bytes(Vec<u8>),
    /// In a file.
    #[pyo3(transparent)]
    File(PathBuf),
}

impl Onnx {
    /// The float network.
    ///
    /// # Errors
    /// When it cannot be read, or holds what cannot be run privately.
    pub fn import(
        &self,
        input_shape: Option<Vec<usize>>,
        outputs: Vec<String>,
        constants: Vec<(String, Vec<f32>)>,
    ) -> Result<Graph, Failure> {
        let options = import::Options {
            operators: kit().operators().clone(),
            input_shape,
            outputs,
            constants,
            cpu: Cpu::detect(),
        };
        match self {
            Self::File(path) => import_file(path, &options).map_err(|e| Failure::from(e).of(path.display())),
            Self::Bytes(bytes) => Ok(import_bytes(bytes, "model", &options)?),
        }
    }
}
