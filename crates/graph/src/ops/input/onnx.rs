//! None of ONNX's operators is the input: each input of a graph that no initializer gives is one.

use crate::import::Build;

pub(crate) const ONNX: &[(&str, Build)] = &[];
