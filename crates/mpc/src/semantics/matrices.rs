//! Products of two matrices, several side by side.

use jaguar_ot::threads;

/// The sizes of `batch` products of a matrix of n × k by one of k × m. Values stand matrix after matrix, each row by
/// row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matrices {
    /// How many products there are, each of matrices of its own.
    pub batch: usize,
    /// n: rows of the first factor and of the product.
    pub rows: usize,
    /// k: columns of the first factor, rows of the second one.
    pub inner: usize,
    /// m: columns of the second factor and of the product.
    pub columns: usize,
    /// Whether the first factor stands as k × n, the second as m × k.
    pub transposed: [bool; 2],
}

impl Matrices {
    /// How many values both factors and the product have, of all of the batch. `None` where a number overflows.
    pub fn counts(&self) -> Option<[usize; 3]> {
        let &Self { batch, rows, inner, columns, .. } = self;
        let count = |height: usize, width: usize| batch.checked_mul(height)?.checked_mul(width);
        Some([count(rows, inner)?, count(inner, columns)?, count(rows, columns)?])
    }

    /// How many products of two values all of it takes, `u64::MAX` where these are too many to count.
    pub fn products(&self) -> u64 {
        let sizes = [self.batch, self.rows, self.inner, self.columns];
        sizes.iter().fold(1, |all: u64, &size| all.saturating_mul(size as u64))
    }

    /// Values of a factor as its matrices stand where they are not transposed.
    pub fn upright<T: Copy>(&self, factor: usize, values: &[T]) -> Vec<T> {
        let [height, width] = [[self.rows, self.inner], [self.inner, self.columns]][factor];
        if !self.transposed[factor] || height * width == 0 {
            return values.to_vec();
        }
        // (Filled in place: a vector that grows would leave copies of its values behind.)
        let mut upright = values.to_vec();
        for (to, of) in upright.chunks_exact_mut(height * width).zip(values.chunks_exact(height * width)) {
            for (row, to) in to.chunks_exact_mut(width).enumerate() {
                to.iter_mut().enumerate().for_each(|(column, to)| *to = of[column * height + row]);
            }
        }
        upright
    }

    /// The products, exact: `[batch, n, m]` of factors whose values have at most 40 bits. `None` where the factors have
    /// other lengths.
    pub fn exact(&self, a: &[i64], b: &[i64]) -> Option<Vec<i128>> {
        let [first, second, made] = self.counts()?;
        if [a.len(), b.len()] != [first, second] {
            return None;
        }
        let &Self { rows, inner, columns, .. } = self;
        if made == 0 || inner == 0 {
            return Some(vec![0; made]);
        }
        let (a, b) = (self.upright(0, a), self.upright(1, b));
        let largest = |x: &[i64]| x.iter().map(|v| u128::from(v.unsigned_abs())).max().unwrap_or(0);
        // (A sum that fits into 63 bits takes half the time.)
        let most = largest(&a).checked_mul(largest(&b)).and_then(|most| most.checked_mul(inner as u128));
        let narrow = most.is_some_and(|most| most < 1 << 63);
        let row = |(index, out): (usize, &mut [i128])| {
            let left = &a[index * inner..][..inner];
            let right = &b[index / rows * inner * columns..][..inner * columns];
            if narrow {
                let mut sums = vec![0i64; columns];
                for (&x, right) in left.iter().zip(right.chunks_exact(columns)) {
                    sums.iter_mut().zip(right).for_each(|(sum, &y)| *sum += x * y);
                }
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum.into());
                return;
            }
            for (&x, right) in left.iter().zip(right.chunks_exact(columns)) {
                out.iter_mut().zip(right).for_each(|(out, &y)| *out += i128::from(x) * i128::from(y));
            }
        };
        let mut products = vec![0i128; made];
        threads::each(products.chunks_mut(columns).enumerate().collect(), row);
        Some(products)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the definition, index by index, with narrow values and with wide ones.
        #[test]
        fn products_are_sums_of_products(
            sizes in prop::array::uniform4(1usize..5), transposed in any::<[bool; 2]>(), seed in any::<u64>(), wide in any::<bool>(),
        ) {
            let [batch, rows, inner, columns] = sizes;
            let of = Matrices { batch, rows, inner, columns, transposed };
            let [first, second, made] = of.counts().unwrap();
            prop_assert_eq!(of.products(), (batch * rows * inner * columns) as u64);
            let draw = |i: usize| {
                let bits = (i as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (bits as i64) >> if wide { 24 } else { 54 }
            };
            let a: Vec<i64> = (0..first).map(draw).collect();
            let b: Vec<i64> = (0..second).map(|i| draw(i + first)).collect();
            let at = |of: &[i64], factor: usize, h: usize, row: usize, column: usize, own: usize| {
                let [down, right] = [[rows, inner], [inner, columns]][factor];
                let place = if transposed[factor] { column * down + row } else { row * right + column };
                i128::from(of[h * own + place])
            };
            let found = of.exact(&a, &b).unwrap();
            prop_assert_eq!(found.len(), made);
            for (index, found) in found.into_iter().enumerate() {
                let (h, row, column) = (index / (rows * columns), index / columns % rows, index % columns);
                let terms = (0..inner).map(|j| {
                    at(&a, 0, h, row, j, rows * inner) * at(&b, 1, h, j, column, inner * columns)
                });
                prop_assert_eq!(found, terms.sum::<i128>());
            }
            prop_assert_eq!(of.exact(&a[1..], &b), None);
        }
    }

    #[test]
    fn no_number_overflows() {
        let huge = Matrices { batch: 2, rows: usize::MAX, inner: 3, columns: 1, transposed: [false; 2] };
        assert_eq!((huge.counts(), huge.products()), (None, u64::MAX));
        let most = [i64::from(i32::MIN) << 8; 3];
        let one = Matrices { batch: 1, rows: 1, inner: 3, columns: 1, transposed: [true; 2] };
        assert_eq!(one.exact(&most, &most), Some(vec![3 << 78]));
    }
}
