//! The native part of the Python package `jaguar`: thin, and without opinions. What users see is in `python/jaguar`.

mod answer;
mod choice;
mod client;
mod compile;
mod failure;
mod input;
mod kit;
mod model;
mod origin;
mod server;
mod task;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::answer::Answer;
    #[pymodule_export]
    use super::client::{Client, check_batch};
    #[pymodule_export]
    use super::compile::compile_onnx;
    #[pymodule_export]
    use super::input::{Input, collect};
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::server::{Server, may_be_a_name};

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        pyo3::types::PyModuleMethods::add(module, "__version__", env!("CARGO_PKG_VERSION"))
    }
}
