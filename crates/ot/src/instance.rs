//! The LPN instances that may be chosen: all have 128 bits in every line of `params/lpn.py`.
//!
//! An instance makes its own next secret; the first one comes from a smaller instance, and so on down to a few correlations
//! that are made without LPN. A larger bin sends less (16 bytes for each of the log2 levels of its tree) and needs a longer
//! secret, which is read at ten random places an output: the choice is one between the link and the cache.

use serde::{Deserialize, Serialize};

use crate::Width;

/// An LPN instance with regular noise: n = `bins`·2^`log_bin` samples with one error in each bin (at most one in each bin
/// and bit, for vectors), a secret of k = `secret` bits or vectors, rows of weight [`crate::gather::WEIGHT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lpn {
    pub width: Width,
    /// k, the length of the secret; a multiple of [`crate::gather::WEIGHT`].
    pub secret: usize,
    /// t, the number of bins and of errors.
    pub bins: usize,
    /// h: a bin has 2^h samples.
    pub log_bin: usize,
}

impl Lpn {
    const fn bits(secret: usize, bins: usize, log_bin: usize) -> Self {
        Self { width: Width::Bit, secret, bins, log_bin }
    }

    const fn vectors(secret: usize, bins: usize, log_bin: usize) -> Self {
        Self { width: Width::Vector, secret, bins, log_bin }
    }

    /// Samples in a bin.
    pub(crate) const fn bin(self) -> usize {
        1 << self.log_bin
    }

    /// Correlations of its own width that one iteration uses up: the secret, and what every tree takes. A tree of bits
    /// takes h, one a level; a tree of vectors one for its error (its h levels take bits).
    pub(crate) const fn cost(self) -> usize {
        self.secret + self.bins * self.spent()
    }

    /// Correlations of its own width that a tree uses up.
    pub(crate) const fn spent(self) -> usize {
        match self.width {
            Width::Bit => self.log_bin,
            Width::Vector => 1,
        }
    }

    /// Blocks that a tree sends.
    pub(crate) const fn message(self) -> usize {
        match self.width {
            Width::Bit => self.log_bin,
            Width::Vector => self.log_bin + 1,
        }
    }

    /// Correlations that one iteration makes, those for the next one included.
    pub(crate) const fn samples(self) -> usize {
        self.bins << self.log_bin
    }

    /// Bins that hold what the next iteration, or an instance that costs as much, uses up.
    pub(crate) const fn bins_for(self, cost: usize) -> usize {
        cost.div_ceil(self.bin())
    }
}

/// How many samples a bin of the instances in use has. The same for both parties, so a part of what they agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Bin {
    /// 512.
    B512,
    /// 1024.
    B1024,
    /// 2048.
    B2048,
    /// 4096.
    B4096,
}

impl Bin {
    /// All of them, the smallest first.
    pub const ALL: [Self; 4] = [Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// How many samples.
    pub const fn samples(self) -> usize {
        512 << self as usize
    }
}

/// Which LPN instances a session uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instances {
    /// For correlations of one bit.
    pub bits: Bin,
    /// For vector correlations.
    pub vectors: Bin,
}

impl Instances {
    /// Every choice there is, the smallest bins first.
    pub fn all() -> impl Iterator<Item = Self> {
        Bin::ALL.into_iter().flat_map(|bits| Bin::ALL.into_iter().map(move |vectors| Self { bits, vectors }))
    }

    /// The bins of this width.
    pub const fn bin(self, width: Width) -> Bin {
        match width {
            Width::Bit => self.bits,
            Width::Vector => self.vectors,
        }
    }
}

impl Default for Instances {
    fn default() -> Self {
        Self { bits: Bin::B1024, vectors: Bin::B512 }
    }
}

/// What an LPN instance is, for reports: `secret` bits or vectors are hidden, with one error in each of `bins` bins of 2^`log_bin`
/// samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LpnSize {
    /// Bits, or vectors of four.
    pub width: Width,
    /// k.
    pub secret: usize,
    /// t.
    pub bins: usize,
    /// log2 of a bin's samples.
    pub log_bin: usize,
}

/// The instances of bits by bins, and below the first of them the one that makes its first secret. In brackets bits of
/// security: the lowest line of `params/lpn.py`, whatever the size of the rows' segments.
const BITS: [Lpn; 5] = [
    Lpn::bits(15_110, 576, 7),    // 129.9
    Lpn::bits(64_520, 1023, 9),   // 128.6
    Lpn::bits(126_980, 1024, 10), // 128.3
    Lpn::bits(250_880, 1024, 11), // 128.6
    Lpn::bits(491_520, 1024, 12), // 128.1
];

/// The same for vectors; each of the four bits sees about half of the errors.
const VECTORS: [Lpn; 6] = [
    Lpn::vectors(14_340, 648, 6),      // 129.4
    Lpn::vectors(31_910, 1196, 7),     // 130.7
    Lpn::vectors(132_610, 2048, 9),    // 128.2
    Lpn::vectors(261_120, 2048, 10),   // 128.0
    Lpn::vectors(514_050, 2048, 11),   // 128.0
    Lpn::vectors(1_009_670, 2048, 12), // 128.4
];

impl Instances {
    /// Every instance that a session with these rests on, those that make first secrets among them.
    pub fn sizes(self) -> Vec<LpnSize> {
        let size = |Lpn { width, secret, bins, log_bin }| LpnSize { width, secret, bins, log_bin };
        Width::ALL.into_iter().flat_map(|width| self.chain(width)).map(size).collect()
    }

    /// The chain of instances of a width, the one in use last: each but the last makes the first secret of the next, in one
    /// iteration.
    pub(crate) fn chain(self, width: Width) -> Vec<Lpn> {
        // From bins of 1024 on, the first secret comes from bins of 512.
        let (all, first) = match width {
            Width::Bit => (&BITS[..], 1),
            Width::Vector => (&VECTORS[..], 2),
        };
        let bin = self.bin(width);
        let mut chain = all[..=first].to_vec();
        if bin != Bin::B512 {
            chain.push(all[first + bin as usize]);
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::WEIGHT;

    #[test]
    fn every_instance_makes_the_next_and_itself() {
        for bin in Bin::ALL {
            for width in [Width::Bit, Width::Vector] {
                let chain = Instances { bits: bin, vectors: bin }.chain(width);
                for (i, lpn) in chain.iter().enumerate() {
                    assert!(lpn.secret.is_multiple_of(WEIGHT) && lpn.width == width);
                    assert!(lpn.bin().is_multiple_of(crate::lpn::BATCH));
                    let next = chain.get(i + 1).unwrap_or(lpn);
                    assert!(lpn.bins_for(next.cost()) <= lpn.bins);
                }
                let last = chain.last().expect("not empty");
                assert_eq!(last.bin(), bin.samples());
                assert!(last.bins_for(last.cost()) < last.bins / 4, "most of an iteration is for use");
            }
        }
    }
}
