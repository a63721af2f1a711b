//! Products of matrices of words.

use jaguar_ot::threads;

use crate::semantics::Matrices;

/// Rows of the product that a thread takes at once.
const ROWS: usize = 16;
/// Rows of the second factor that pass over a row of the product at once.
const AT_ONCE: usize = 4;

/// Adds the products, `[batch, n, m]` modulo 2^64, of factors that are not transposed, to `sums`: on all threads of the
/// session.
pub(super) fn add_products(of: &Matrices, a: &[u64], b: &[u64], sums: &mut [u64]) {
    let &Matrices { rows, inner, columns, .. } = of;
    if columns == 0 || inner == 0 || rows == 0 {
        return;
    }
    let products = sums.chunks_mut(rows * columns).zip(a.chunks(rows * inner)).zip(b.chunks(inner * columns));
    let pieces: Vec<_> = products
        .flat_map(|((sums, a), b)| {
            let pieces = sums.chunks_mut(ROWS * columns).zip(a.chunks(ROWS * inner));
            pieces.map(move |(sums, a)| (sums, a, b))
        })
        .collect();
    threads::each(pieces, |(sums, a, b)| {
        for (sums, a) in sums.chunks_exact_mut(columns).zip(a.chunks_exact(inner)) {
            let whole = b.chunks_exact(AT_ONCE * columns);
            let rest = whole.remainder();
            for (x, b) in a.chunks_exact(AT_ONCE).zip(whole) {
                let [first, second, third, fourth] = std::array::from_fn(|i| &b[i * columns..][..columns]);
                let rows = first.iter().zip(second).zip(third.iter().zip(fourth));
                for (sum, ((p, q), (r, s))) in sums.iter_mut().zip(rows) {
                    let [p, q, r, s] =
                        [(p, x[0]), (q, x[1]), (r, x[2]), (s, x[3])].map(|(y, x)| y.wrapping_mul(x));
                    *sum = sum.wrapping_add(p.wrapping_add(q)).wrapping_add(r.wrapping_add(s));
                }
            }
            let x = a.chunks_exact(AT_ONCE).remainder();
            for (x, row) in x.iter().zip(rest.chunks_exact(columns)) {
                sums.iter_mut().zip(row).for_each(|(sum, y)| *sum = sum.wrapping_add(x.wrapping_mul(*y)));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against sums of products index by index, for sizes around those of the blocks.
    #[test]
    fn words_wrap_around_as_sums_of_products_do() {
        let mut state = 1u64;
        let mut draw = |n: usize| -> Vec<u64> {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state ^ state >> 29
            };
            (0..n).map(|_| next()).collect()
        };
        for [batch, rows, inner, columns] in [
            [1, 1, 1, 1],
            [2, 17, 5, 3],
            [3, 16, 8, 1],
            [1, 33, 3, 7],
            [2, 2, 4, 9],
            [1, 0, 3, 2],
            [1, 2, 0, 3],
        ] {
            let of = Matrices { batch, rows, inner, columns, transposed: [false; 2] };
            let [first, second, made] = of.counts().unwrap();
            let (a, b, before) = (draw(first), draw(second), draw(made));
            let mut sums = before.clone();
            add_products(&of, &a, &b, &mut sums);
            for (at, (sum, before)) in sums.into_iter().zip(before).enumerate() {
                let (h, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
                let term = |j: usize| {
                    a[(h * rows + row) * inner + j].wrapping_mul(b[(h * inner + j) * columns + column])
                };
                assert_eq!(sum, (0..inner).fold(before, |sum, j| sum.wrapping_add(term(j))));
            }
        }
    }
}
