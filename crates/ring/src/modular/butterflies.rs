//! The transform of one length modulo one prime, butterfly by butterfly: what the kernels in vectors are the same as.

use super::{Factor, Modulus, reduce_once};

/// [`Factor`]s, the values apart from the quotients.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    pub(super) values: Vec<u64>,
    pub(super) quotients: Vec<u64>,
}

impl Roots {
    pub(super) fn of(&self, i: usize) -> Factor {
        Factor { value: self.values[i], quotient: self.quotients[i] }
    }
}

/// [`Ntt::forward_rows`](super::Ntt::forward_rows), butterfly by butterfly; rows of one word are one transform.
pub(super) fn forward(m: &Modulus, roots: &Roots, width: usize, data: &mut [u64]) {
    stages_from(m, roots, 1, width, data);
}

/// [`Ntt::forward_short`](super::Ntt::forward_short), butterfly by butterfly.
pub(super) fn forward_short(m: &Modulus, roots: &Roots, short: &[u64], out: &mut [u64]) {
    out.chunks_exact_mut(short.len()).for_each(|block| block.copy_from_slice(short));
    stages_from(m, roots, out.len() / short.len(), 1, out);
}

/// The stages from that on which has so many blocks, and the reduction.
fn stages_from(m: &Modulus, roots: &Roots, mut blocks: usize, width: usize, data: &mut [u64]) {
    let (p, p2) = (m.value, 2 * m.value);
    let mut half = data.len() / blocks / 2;
    while half >= width {
        for (i, block) in data.chunks_exact_mut(2 * half).enumerate() {
            let root = roots.of(blocks + i);
            let (left, right) = block.split_at_mut(half);
            for (x, y) in left.iter_mut().zip(right) {
                // Below 4p throughout.
                let (a, b) = (reduce_once(*x, p2), m.mul_factor_lazy(*y, root));
                (*x, *y) = (a + b, a + p2 - b);
            }
        }
        blocks *= 2;
        half /= 2;
    }
    data.iter_mut().for_each(|x| *x = reduce_once(reduce_once(*x, p2), p));
}

/// [`Ntt::backward_rows`](super::Ntt::backward_rows), butterfly by butterfly.
pub(super) fn backward(m: &Modulus, roots: &Roots, scale: Factor, width: usize, data: &mut [u64]) {
    let p2 = 2 * m.value;
    let (mut half, mut blocks) = (width, data.len() / width / 2);
    while blocks >= 1 {
        for (i, block) in data.chunks_exact_mut(2 * half).enumerate() {
            let root = roots.of(blocks + i);
            let (left, right) = block.split_at_mut(half);
            for (x, y) in left.iter_mut().zip(right) {
                // Below 2p throughout.
                let (a, b) = (*x, *y);
                (*x, *y) = (reduce_once(a + b, p2), m.mul_factor_lazy(a + p2 - b, root));
            }
        }
        blocks /= 2;
        half *= 2;
    }
    data.iter_mut().for_each(|x| *x = m.mul_factor(*x, scale));
}
