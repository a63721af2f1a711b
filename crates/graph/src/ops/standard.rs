//! **The list of operators** that Jaguar has.

use crate::import::finish;
use crate::ops::list::{Kind, Operators};
use crate::ops::{add, concat, linear, max_pool, product, rearrange, relu, relu6, sum_pool};

impl Operators {
    /// Jaguar's own.
    pub fn standard() -> Self {
        Self::default()
            .with(Kind { name: "Input", onnx: &[] })
            .with(Kind { name: "Linear", onnx: linear::onnx::ONNX })
            .with(Kind { name: "Relu", onnx: relu::onnx::ONNX })
            .with(Kind { name: "Relu6", onnx: relu6::onnx::ONNX })
            .with(Kind { name: "MaxPool", onnx: max_pool::onnx::ONNX })
            .with(Kind { name: "SumPool", onnx: sum_pool::onnx::ONNX })
            .with(Kind { name: "Add", onnx: add::onnx::ONNX })
            .with(Kind { name: "Product", onnx: product::onnx::ONNX })
            .with(Kind { name: "Concat", onnx: concat::onnx::ONNX })
            .with(Kind { name: "Rearrange", onnx: rearrange::onnx::ONNX })
            .reading(finish::ONNX)
    }
}
