//! The operators of this folder as a value.

use crate::ops::curve::{Level, Straight};
use crate::ops::linear::choice;
use crate::ops::list::{OperatorKind, Operators};
use crate::ops::matrix_product::{attention, einsum};
use crate::ops::narrowed;
use crate::ops::product::{norms, softmax};

impl Operators {
    /// The operators of this project.
    pub fn standard() -> Self {
        Self::default()
            .with(super::kinds())
            .with([OperatorKind::of::<Straight>(), OperatorKind::of::<Level>()])
            .with(narrowed::kinds())
            .from_onnx(attention::ONNX)
            .from_onnx(choice::ONNX)
            .from_onnx(einsum::ONNX)
            .from_onnx(norms::ONNX)
            .from_onnx(softmax::ONNX)
    }
}

#[cfg(test)]
mod tests {
    use crate::network::{
        Add, Concat, Curve, Difference, Input, Level, Linear, MatrixProduct, MaxPool, Op, Product, Rearrange,
        Relu, Relu6, Straight, SumPool, Window,
    };

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
            Op::new(Difference),
            Op::new(Product { shift: 3, offsets: [0; 2] }),
            Op::new(MatrixProduct { shift: 3, transposed: [false; 2] }),
            Op::new(Curve { low: 8, offset_shift: 1, shift: 1, offsets: vec![0; 4], slopes: vec![0; 4] }),
            Op::new(Straight { low: 8, offset_shift: 1, shift: 1, offsets: vec![0; 4], slopes: vec![0; 4] }),
            Op::new(Level {
                begin: -5,
                lines: Curve { low: 8, offset_shift: 1, shift: 1, offsets: vec![0; 4], slopes: vec![0; 4] },
            }),
            Op::new(Concat),
            Op::new(Rearrange::Reshape),
        ] {
            let says = op.ignored();
            assert_eq!(op.ignored_mut().map(|ignored| *ignored), says, "{}", op.name());
        }
    }
}
