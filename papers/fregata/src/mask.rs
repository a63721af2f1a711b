//! M: what hides the client's share of one layer's input in one query.

use jaguar_ring::prg::Prg;
use zeroize::{Zeroize, Zeroizing};

/// Uniform values modulo 2^bits, each of which hides one value, once.
///
/// A mask can be neither copied nor printed, and what it hid cannot be hidden by it again:
///
/// ```compile_fail
/// fn reuse(mask: jaguar_fregata::Mask, x: &[u64], y: &[u64]) {
///     let copy = mask.clone();
///     mask.hide(x);
///     copy.hide(y);
/// }
/// ```
///
/// ```compile_fail
/// fn reuse(mask: jaguar_fregata::Mask, x: &[u64], y: &[u64]) {
///     mask.hide(x);
///     mask.hide(y);
/// }
/// ```
pub struct Mask {
    values: Zeroizing<Vec<u64>>,
    /// Those before are used up, and wiped.
    used: usize,
    bits: u32,
}

impl Mask {
    /// `count` fresh values out of `prg`.
    pub(crate) fn fresh(prg: &mut Prg, count: usize, bits: u32) -> Self {
        let mut values = Zeroizing::new(vec![0; count]);
        prg.fill_words(&mut values, bits);
        Self { values, used: 0, bits }
    }

    /// What the engine multiplies: the values, as long as none was used.
    ///
    /// # Panics
    /// When one was.
    pub(super) fn values(&self) -> &[u64] {
        assert_eq!(self.used, 0, "a mask that hides something already");
        &self.values
    }

    /// How many values it has hidden.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// `x − M` modulo 2^bits for the next values `x`, whose masks it wipes.
    ///
    /// # Panics
    /// When there are not so many left.
    pub(super) fn hide_next(&mut self, x: &[u64]) -> Vec<u64> {
        let masks = &mut self.values[self.used..self.used + x.len()];
        let low = u64::MAX >> (64 - self.bits);
        let hidden = x.iter().zip(&*masks).map(|(&x, &m)| x.wrapping_sub(m) & low).collect();
        masks.zeroize();
        self.used += x.len();
        hidden
    }

    /// `x − M` modulo 2^bits. The mask is gone then.
    ///
    /// # Panics
    /// When it has not as many values as `x`, all of them unused.
    pub fn hide(mut self, x: &[u64]) -> Vec<u64> {
        assert_eq!((self.used, self.values.len()), (0, x.len()), "a mask for another input");
        self.hide_next(x)
    }
}
