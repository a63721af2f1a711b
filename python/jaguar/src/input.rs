//! Inputs as Python gives them: a file, or what one holds; the pixels of a picture; a tensor, or several in one array.

use std::path::PathBuf;
use std::sync::Arc;

use jaguar::compile::samples::{Axes, FitError, Source, folder, npy, open};
use jaguar::network::Shape;
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
    /// What such a file holds, decoded when it is needed, and how Python calls it.
    Encoded(Arc<[u8]>, Option<String>),
    /// What is there.
    There(Source),
    /// A tensor that may be several in a dimension more: of how many dimensions one is, the network says ([`each`]).
    Several(Source),
}

impl Given {
    /// The input itself, the one of number `index`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn source(&self, index: usize) -> Result<Source, Failure> {
        match self {
            Self::File(path) => Ok(open(path)?),
            Self::Encoded(bytes, _) => {
                Source::encoded(bytes).map_err(|e| Failure::input(e.to_string()).of(self.name(index)))
            }
            Self::There(source) | Self::Several(source) => Ok(source.clone()),
        }
    }

    /// Why the input of number `index` is none of the network's.
    pub fn unfit(&self, error: FitError, index: usize) -> Failure {
        let array = matches!(self, Self::There(_) | Self::Several(_));
        let hint = match &error {
            FitError::Shape { .. } if array => {
                " (an array of floats is a tensor that is preprocessed already; pixels are an array of uint8)"
            }
            _ => "",
        };
        let failure = Failure::from(error);
        failure.followed_by(hint).of(self.name(index))
    }

    /// How to call it in a message, where it has a name.
    pub fn name(&self, index: usize) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Encoded(_, Some(name)) => name.clone(),
            Self::Encoded(_, None) | Self::There(_) | Self::Several(_) => format!("input {index}"),
        }
    }

    /// Whether it is a picture.
    pub fn is_picture(&self) -> bool {
        match self {
            Self::File(path) => !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")),
            Self::Encoded(bytes, _) => !npy::recognises(bytes),
            Self::There(source) | Self::Several(source) => matches!(source, Source::Pixels { .. }),
        }
    }
}

/// All of them.
pub fn given(inputs: &[Bound<'_, Input>]) -> Vec<Given> {
    inputs.iter().map(|input| input.get().0.clone()).collect()
}

/// The same, each one input of a network that takes this shape.
pub fn each(given: Vec<Given>, shape: Shape, axes: Axes<'_>) -> Vec<Given> {
    let parts = |one| match one {
        Given::Several(source) => source.parts(shape, axes).into_iter().map(Given::There).collect(),
        one @ (Given::File(_) | Given::Encoded(..) | Given::There(_)) => vec![one],
    };
    given.into_iter().flat_map(parts).collect()
}

#[pymethods]
impl Input {
    /// A picture or a `.npy` tensor in a file.
    #[staticmethod]
    fn file(path: PathBuf) -> Self {
        Self(Given::File(path))
    }

    /// What such a file holds. `name`: how to call it in a message.
    #[staticmethod]
    fn encoded(file: &[u8], name: Option<String>) -> Self {
        Self(Given::Encoded(file.into(), name))
    }

    /// Red, green and blue of each pixel, row by row.
    #[staticmethod]
    fn pixels(rgb: &[u8], height: usize, width: usize) -> PyResult<Self> {
        if height == 0
            || width == 0
            || height.checked_mul(width).and_then(|n| n.checked_mul(3)) != Some(rgb.len())
        {
            let text = format!(
                "a picture of {height} rows and {width} columns, in {} bytes: neither may be 0, and a pixel has three",
                rgb.len()
            );
            return Err(Failure::input(text).into());
        }
        Ok(Self(Given::There(Source::Pixels { rgb: rgb.to_vec(), width, height })))
    }

    /// A tensor of 32-bit floats in the machine's byte order, preprocessed already; or, with `several`, perhaps several of them, in a
    /// dimension more in front.
    #[staticmethod]
    fn tensor(values: &[u8], shape: Vec<u64>, several: bool) -> PyResult<Self> {
        let count = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n));
        let (chunks, rest) = values.as_chunks::<4>();
        if !rest.is_empty() || count != Some(chunks.len() as u64) {
            let text = format!("{} bytes are no tensor of shape {shape:?}", values.len());
            return Err(Failure::input(text).into());
        }
        let values: Vec<f32> = chunks.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
        npy::check_finite(&shape, &values).map_err(|e| Failure::input(e.to_string()))?;
        let source = Source::Tensor { shape, values };
        Ok(Self(if several { Given::Several(source) } else { Given::There(source) }))
    }
}

/// The inputs among paths, and in folders among them: files as they are, folders by their content, in the order of their names; and
/// in words what was skipped.
#[pyfunction]
pub fn collect(paths: Vec<PathBuf>) -> PyResult<(Vec<PathBuf>, Vec<String>)> {
    let found = folder::collect(&paths).map_err(Failure::from)?;
    Ok((found.files, found.skipped.iter().map(ToString::to_string).collect()))
}
