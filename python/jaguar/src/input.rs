//! Inputs as Python gives them: a file, the pixels of a picture, a tensor.

use std::path::PathBuf;

use jaguar_samples::{Source, folder, open};
use pyo3::prelude::*;

use crate::failure::Failure;

/// One input.
#[pyclass(frozen, module = "jaguar._native")]
pub struct Input(pub Given);

/// What an input is.
#[derive(Clone)]
pub enum Given {
    /// A picture or a tensor in a file, read when it is needed.
    File(PathBuf),
    /// What is there.
    There(Source),
}

impl Given {
    /// The input itself.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn source(&self) -> Result<Source, Failure> {
        match self {
            Self::File(path) => Ok(open(path)?),
            Self::There(source) => Ok(source.clone()),
        }
    }

    /// How to call it in a message, where it has a name.
    pub fn name(&self, index: usize) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::There(_) => format!("input {index}"),
        }
    }

    /// Whether it is a picture.
    pub fn is_picture(&self) -> bool {
        match self {
            Self::File(path) => !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")),
            Self::There(source) => matches!(source, Source::Pixels { .. }),
        }
    }
}

/// All of them.
pub fn given(inputs: &[Bound<'_, Input>]) -> Vec<Given> {
    inputs.iter().map(|input| input.get().0.clone()).collect()
}

#[pymethods]
impl Input {
    /// A picture or a `.npy` tensor in a file.
    #[staticmethod]
    fn file(path: PathBuf) -> Self {
        Self(Given::File(path))
    }

    /// Red, green and blue of each pixel, row by row.
    #[staticmethod]
    fn pixels(rgb: &[u8], height: usize, width: usize) -> PyResult<Self> {
        if height == 0
            || width == 0
            || height.checked_mul(width).and_then(|n| n.checked_mul(3)) != Some(rgb.len())
        {
            let text = format!("{} bytes are no picture of {height} x {width} pixels", rgb.len());
            return Err(Failure::input(text).into());
        }
        Ok(Self(Given::There(Source::Pixels { rgb: rgb.to_vec(), width, height })))
    }

    /// A tensor of 32-bit floats in the machine's byte order, preprocessed already.
    #[staticmethod]
    fn tensor(values: &[u8], shape: Vec<u64>) -> PyResult<Self> {
        let count = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n));
        let (chunks, rest) = values.as_chunks::<4>();
        if !rest.is_empty() || count != Some(chunks.len() as u64) {
            let text = format!("{} bytes are no tensor of shape {shape:?}", values.len());
            return Err(Failure::input(text).into());
        }
        let values: Vec<f32> = chunks.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
        if let Some(v) = values.iter().find(|v| !v.is_finite()) {
            return Err(
                Failure::input(format!("the tensor has a value {v}: finite numbers are needed")).into()
            );
        }
        Ok(Self(Given::There(Source::Tensor { shape, values })))
    }
}

/// The inputs among paths, and in folders among them: files as they are, folders by their content, in the order of their names; and
/// in words what was skipped.
#[pyfunction]
pub fn collect(paths: Vec<PathBuf>) -> PyResult<(Vec<PathBuf>, Vec<String>)> {
    let found = folder::collect(&paths).map_err(Failure::from)?;
    Ok((found.files, found.skipped.iter().map(ToString::to_string).collect()))
}
