//! Which operations may be [`Narrow`], and that they become so.

use crate::ir::convolution::Linear;
use crate::ops::integer::{Add, Concat, Difference, MatrixProduct};
use crate::ops::list::OperatorKind;
use crate::ops::narrow::Narrow;
use crate::ops::op::Op;
use crate::ops::operator::Numbered;

/// The operators themselves, for readers.
pub(crate) fn kinds() -> [OperatorKind; 5] {
    [
        OperatorKind::of::<Narrow<Linear>>(),
        OperatorKind::of::<Narrow<MatrixProduct>>(),
        OperatorKind::of::<Narrow<Add>>(),
        OperatorKind::of::<Narrow<Concat>>(),
        OperatorKind::of::<Narrow<Difference>>(),
    ]
}

/// Whether it makes values that may be so, of whatever it takes.
pub(crate) fn makes_narrow(op: &Op) -> bool {
    op.is::<Linear>() || op.is::<MatrixProduct>()
}

/// Whether it makes such of such.
pub(crate) fn of_narrow(op: &Op) -> bool {
    op.is::<Add>() || op.is::<Concat>() || op.is::<Difference>()
}

/// The operation with values of so many bits fewer, if it makes such; `None` if there are none fewer.
pub(crate) fn narrowed(op: &Op, fewer: u32) -> Option<Op> {
    fn of<T: Numbered>(op: &Op, fewer: u32) -> Option<Op>
    where
        Narrow<T>: Numbered,
    {
        op.downcast_ref::<T>().cloned().map(|of| Op::new(Narrow { of, fewer }))
    }
    if fewer == 0 {
        return None;
    }
    let layer = || of::<Linear>(op, fewer).or_else(|| of::<MatrixProduct>(op, fewer));
    let joined = || of::<Add>(op, fewer).or_else(|| of::<Concat>(op, fewer));
    layer().or_else(joined).or_else(|| of::<Difference>(op, fewer))
}
