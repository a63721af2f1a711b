//! The scalar twin: 64-bit words, one multiply-add each, as SPA-Conv is published. It shares nothing with the vector
//! kernels but the packed operands, and is what they are tested against.

use super::{Product, Task, Window};

/// Positions computed at once: the words of all terms for them should stay in the cache.
const SPAN: usize = 256;

pub(super) fn run(product: &Product, task: Task, mut out: Window) {
    let Product { src, terms, weights } = *product;
    let mask = crate::mask(src.bits());
    let mut words = vec![0; terms.len() * SPAN.min(out.len)];
    for from in (0..out.len).step_by(SPAN) {
        let len = SPAN.min(out.len - from);
        for (term, words) in terms.iter().zip(words.chunks_exact_mut(len)) {
            src.words(term.row as usize, term.offset as usize + task.from + from, words);
        }
        for d in 0..out.rows {
            let sums = out.words(d, from, len);
            sums.fill(0);
            for (t, words) in words.chunks_exact(len).take(terms.len()).enumerate() {
                let weight = i64::from(weights.weight(task.first_out + d, t)) as u64;
                for (sum, &word) in sums.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(weight.wrapping_mul(word));
                }
            }
            sums.iter_mut().for_each(|sum| *sum &= mask);
        }
    }
}
