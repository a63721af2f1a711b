//! Shared bits: what comparisons give, and what multiplications and conversions take.

use zeroize::Zeroizing;

use crate::kernels::lanes::{GROUP, Lanes, groups};

/// Shares of bits, one an element: the bit is the exclusive or of both parties' shares. Secret, hence no
/// `Debug`.
#[derive(Clone)]
pub struct Bits {
    count: usize,
    pub(crate) lanes: Zeroizing<Vec<Lanes>>,
}

impl Bits {
    /// This party's shares of so many bits, element by element.
    pub fn new(bits: &[bool]) -> Self {
        let lanes = bits.chunks(GROUP).map(Lanes::from_bools).collect();
        Self { count: bits.len(), lanes: Zeroizing::new(lanes) }
    }

    pub(crate) fn from_lanes(count: usize, lanes: Vec<Lanes>) -> Self {
        assert_eq!(lanes.len(), groups(count), "one plane a group");
        Self { count, lanes: Zeroizing::new(lanes) }
    }

    /// How many bits are shared.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no bit is shared.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The shares, in order, each 0 or 1.
    pub fn to_vec(&self) -> Vec<u64> {
        (0..self.count).map(|e| self.lanes[e / GROUP].bit(e % GROUP)).collect()
    }

    /// This party's share of the opposite bits, if exactly one party calls it.
    #[must_use]
    pub fn flipped(mut self) -> Self {
        self.lanes.iter_mut().for_each(|lanes| *lanes = !*lanes);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_keep_their_order(bits in prop::collection::vec(any::<bool>(), 0..2 * GROUP)) {
            let want: Vec<u64> = bits.iter().map(|&b| u64::from(b)).collect();
            prop_assert_eq!(Bits::new(&bits).to_vec(), want);
        }
    }
}
