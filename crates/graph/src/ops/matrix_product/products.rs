//! Products of matrices of floats.

use jaguar_mpc::semantics::Matrices;
use rayon::prelude::*;

/// `A·B`, as [`Matrices::exact`] has it of integers.
pub(super) fn products(sizes: &Matrices, a: &[f32], b: &[f32]) -> Vec<f32> {
    let &Matrices { batch, rows, inner, columns, .. } = sizes;
    let (a, b) = (sizes.upright(0, a), sizes.upright(1, b));
    let mut out = vec![0.0; batch * rows * columns];
    out.par_chunks_mut(columns).enumerate().for_each(|(row, out)| {
        let right = &b[row / rows * inner * columns..][..inner * columns];
        for (x, right) in a[row * inner..][..inner].iter().zip(right.chunks(columns)) {
            out.iter_mut().zip(right).for_each(|(out, y)| *out += x * y);
        }
    });
    out
}
