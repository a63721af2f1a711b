//! The operators of this folder. Nothing else knows them all.

use crate::import::finish;
use crate::network::{Curve, Linear, MaxPool, Product, Rearrange, Relu, Relu6, SumPool};
use crate::ops::add::Add;
use crate::ops::concat::Concat;
use crate::ops::input::Input;
use crate::ops::list::{OperatorKind, Operators};
use crate::ops::{add, concat, curve, linear, max_pool, product, rearrange, relu, relu6, sum_pool};

impl Operators {
    /// The operators of this project.
    pub fn standard() -> Self {
        let kinds = [
            OperatorKind::of::<Input>(),
            OperatorKind::of::<Linear>().from_onnx(linear::onnx::ONNX),
            OperatorKind::of::<Relu>().from_onnx(relu::onnx::ONNX),
            OperatorKind::of::<Relu6>().from_onnx(relu6::onnx::ONNX),
            OperatorKind::of::<MaxPool>().from_onnx(max_pool::onnx::ONNX),
            OperatorKind::of::<SumPool>().from_onnx(sum_pool::onnx::ONNX),
            OperatorKind::of::<Add>().from_onnx(add::onnx::ONNX),
            OperatorKind::of::<Product>().from_onnx(product::onnx::ONNX),
            OperatorKind::of::<Curve>().from_onnx(curve::onnx::ONNX),
            OperatorKind::of::<Concat>().from_onnx(concat::onnx::ONNX),
            OperatorKind::of::<Rearrange>().from_onnx(rearrange::onnx::ONNX),
        ];
        Self::default().with(kinds).from_onnx(finish::ONNX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Op, Window};

    #[test]
    fn who_takes_signs_can_be_told_what_they_leave_out() {
        let window = Window { kernel: [2, 2], stride: [2, 2], pads: [0; 4] };
        for mut op in [
            Op::new(Input),
            Op::new(Linear::same(4, 3, 8)),
            Op::new(Relu { ignored: 3 }),
            Op::new(Relu6 { log2_six: 8, ignored: 3 }),
            Op::new(MaxPool { window: window.clone(), ignored: 3 }),
            Op::new(SumPool { window, count_real_places: None }),
            Op::new(Add),
            Op::new(Product { shift: 3, offsets: [0; 2] }),
            Op::new(Curve { low: 8, offset_shift: 1, shift: 1, offsets: vec![0; 4], slopes: vec![0; 4] }),
            Op::new(Concat),
            Op::new(Rearrange::Reshape),
        ] {
            let says = op.ignored();
            assert_eq!(op.ignored_mut().map(|ignored| *ignored), says, "{}", op.name());
        }
    }
}
