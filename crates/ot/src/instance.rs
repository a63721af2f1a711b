//! The LPN instances that may be chosen: all have 128 bits in every line of `params/lpn.py`, over all iterations of a session.
//!
//! An instance makes its own next secret; the first one comes from a smaller instance, and so on down to a few correlations
//! that are made without LPN. A larger bin sends less (16 bytes for each of the log2 levels of its tree, and for each error) and
//! needs a longer secret, which is read at ten random places a row: the choice is one between the link and the cache. The
//! smallest bins, of 512, are for sessions that draw little: they take the least to set up. From 1024 on a row gives four
//! outputs, of four secrets side by side.

use serde::{Deserialize, Serialize};

use crate::Width;
use crate::block::LANES;

/// An LPN instance with regular noise: n = `bins`·2^`log_bin` rows, at most one of each bin with an error, a secret of
/// k = `secret` entries, rows of weight [`crate::gather::WEIGHT`]. An entry has `lanes` bits or vectors, and so has a row's
/// output: m columns that share the matrix and the places of the errors, m = `lanes` times the bits of the width. A bin's error
/// is a random vector of m bits; where m = 1 it is 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lpn {
    pub width: Width,
    /// Outputs of a row: one, or [`LANES`].
    pub lanes: usize,
    /// Iterations that have their errors in the same rows, with values, secrets and matrices of their own: 1, or [`LIFE`].
    pub life: u64,
    /// k, the length of the secret; a multiple of [`crate::gather::WEIGHT`].
    pub secret: usize,
    /// t, the number of bins.
    pub bins: usize,
    /// h: a bin has 2^h rows.
    pub log_bin: usize,
}

impl Lpn {
    const fn bits(secret: usize, bins: usize, log_bin: usize) -> Self {
        Self { width: Width::Bit, lanes: 1, life: 1, secret, bins, log_bin }
    }

    const fn vectors(secret: usize, bins: usize, log_bin: usize) -> Self {
        Self { width: Width::Vector, lanes: 1, life: 1, secret, bins, log_bin }
    }

    const fn bit_lines(secret: usize, bins: usize, log_bin: usize) -> Self {
        Self { width: Width::Bit, lanes: LANES, life: 1, secret, bins, log_bin }
    }

    const fn vector_lines(secret: usize, bins: usize, log_bin: usize) -> Self {
        Self { width: Width::Vector, lanes: LANES, life: 1, secret, bins, log_bin }
    }

    /// Rows of a bin.
    pub(crate) const fn rows(self) -> usize {
        1 << self.log_bin
    }

    /// Correlations of a bin.
    pub(crate) const fn bin(self) -> usize {
        self.lanes << self.log_bin
    }

    /// Whether an iteration draws the rows of its errors anew, by trees of its own.
    pub(crate) const fn has_trees(self, iteration: u64) -> bool {
        iteration.is_multiple_of(self.life)
    }

    /// The iteration whose trees this one has.
    pub(crate) const fn trees_of(self, iteration: u64) -> u64 {
        iteration - iteration % self.life
    }

    /// Correlations of its own width that this iteration uses up: the secret, and what every bin takes.
    pub(crate) const fn cost(self, iteration: u64) -> usize {
        self.lanes * self.secret + self.bins * self.spent(iteration)
    }

    /// Correlations of its own width that a bin takes for its error, one a lane. A single bit's error is 1 and takes none.
    pub(crate) const fn errors(self) -> usize {
        match (self.width, self.lanes) {
            (Width::Bit, 1) => 0,
            (Width::Bit | Width::Vector, lanes) => lanes,
        }
    }

    /// Levels of the tree that is sent for a bin of this iteration.
    pub(crate) const fn levels(self, iteration: u64) -> usize {
        if self.has_trees(iteration) { self.log_bin } else { 0 }
    }

    /// Correlations of its own width that a bin uses up: those of its error, and where they are bits, one for each level of its
    /// tree. (The levels of vectors' trees take bits too.)
    pub(crate) const fn spent(self, iteration: u64) -> usize {
        match self.width {
            Width::Bit => self.levels(iteration) + self.errors(),
            Width::Vector => self.errors(),
        }
    }

    /// Blocks that are sent for a bin.
    pub(crate) const fn message(self, iteration: u64) -> usize {
        self.levels(iteration) + self.errors()
    }

    /// Bins that this iteration makes for the next one.
    pub(crate) const fn aside(self, iteration: u64) -> usize {
        self.bins_for(self.cost(iteration + 1))
    }

    /// Bins that hold what the next iteration, or an instance that costs as much, uses up.
    pub(crate) const fn bins_for(self, cost: usize) -> usize {
        cost.div_ceil(self.bin())
    }
}

/// How many correlations a bin of the instances in use has. The same for both parties, so a part of what they agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Bin {
    /// 512 correlations in a bin.
    B512,
    /// 1,024 correlations in a bin.
    B1024,
    /// 2,048 correlations in a bin.
    B2048,
    /// 4,096 correlations in a bin.
    B4096,
}

impl Bin {
    /// All of them, the smallest first.
    pub const ALL: [Self; 4] = [Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// How many correlations a bin has.
    pub const fn samples(self) -> usize {
        512 << self as usize
    }
}

/// Whether iterations share the rows of their errors. The same for both parties.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Noise {
    /// Each iteration has errors in rows of its own.
    #[default]
    Fresh,
    /// 16 iterations of lines have their errors in the same rows, with fresh values: *stationary syndrome decoding*
    /// (Kolesnikov, Peceny, Raghuraman, Rindal, ePrint 2025/295). It sends less, by an assumption that is younger.
    Stationary,
}

/// Iterations that have their errors in the same rows, where noise is stationary: few enough that all columns together, 16 times
/// 4 or 16, stay far below the 2,048 bins and more, whose errors as many columns would show, were their matrices the same; and
/// that the values of errors, which iterations make for each other, are fewer than the secret's entries (`params/lpn.py`). More
/// gain little: trees are less than a seventh of what 16 iterations send.
pub(crate) const LIFE: u64 = 16;

/// Which LPN instances a session uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instances {
    /// For correlations of one bit.
    pub bits: Bin,
    /// For correlations of four bits.
    pub vectors: Bin,
    /// Of the last instances, where these have lines. (Bins of 512 are no lines: the error of a single bit has one value.)
    pub noise: Noise,
}

impl Instances {
    /// Every choice of bins there is with this noise, the smallest first.
    pub fn all(noise: Noise) -> impl Iterator<Item = Self> {
        let all = move |bits| Bin::ALL.into_iter().map(move |vectors| Self { bits, vectors, noise });
        Bin::ALL.into_iter().flat_map(all)
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
        Self { bits: Bin::B2048, vectors: Bin::B2048, noise: Noise::Fresh }
    }
}

/// What an LPN instance is, for reports: `lanes` times `secret` bits or vectors are hidden, with one row of errors in each of
/// `bins` bins of 2^`log_bin` rows, the same rows in `life` iterations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LpnSize {
    /// Bits, or vectors of four.
    pub width: Width,
    /// How many of them a row of the matrix gives, from as many secrets.
    pub lanes: usize,
    /// k: how many secrets each lane has.
    pub secret: usize,
    /// t: how many bins there are, each with one error.
    pub bins: usize,
    /// log2 of a bin's rows.
    pub log_bin: usize,
    /// How many iterations have their errors in the same rows.
    pub life: u64,
}

impl LpnSize {
    /// m, how many secrets of bits share the matrix and the places of the errors.
    pub const fn columns(self) -> u32 {
        self.lanes as u32 * self.width.choice_mask().count_ones()
    }
}

/// The instances of bits by bins, and below the first of them the one that makes its first secret. Behind them the lowest line of
/// `params/lpn.py` in bits, whatever the size of the rows' segments. Those that make first secrets run once in either direction
/// and have one bit more than 128, the others are iterated and have ten: 2^10 iterations of a session together may lose them.
const BITS: [Lpn; 5] = [
    Lpn::bits(15_340, 624, 7),         // 129.9
    Lpn::bits(68_900, 1023, 9),        // 138.4
    Lpn::bit_lines(71_900, 2048, 8),   // 138.2
    Lpn::bit_lines(156_300, 4096, 9),  // 138.2
    Lpn::bit_lines(308_400, 4096, 10), // 138.1
];

/// The same for vectors; each of the four bits sees about half of the errors.
const VECTORS: [Lpn; 6] = [
    Lpn::vectors(14_340, 648, 6),         // 129.4
    Lpn::vectors(31_910, 1196, 7),        // 130.7
    Lpn::vectors(141_900, 2048, 9),       // 138.2
    Lpn::vector_lines(77_400, 2048, 8),   // 138.2
    Lpn::vector_lines(168_600, 4096, 9),  // 138.1
    Lpn::vector_lines(333_400, 4096, 10), // 138.2
];

impl Instances {
    /// Every instance that a session with these rests on, those that make first secrets among them.
    pub fn sizes(self) -> Vec<LpnSize> {
        let size = |Lpn { width, lanes, life, secret, bins, log_bin }| LpnSize {
            width,
            lanes,
            secret,
            bins,
            log_bin,
            life,
        };
        Width::ALL.into_iter().flat_map(|width| self.chain(width)).map(size).collect()
    }

    /// The chain of instances of a width, the one in use last: each but the last makes the first secret of the next, in one
    /// iteration.
    pub(crate) fn chain(self, width: Width) -> Vec<Lpn> {
        let (all, first) = match width {
            Width::Bit => (&BITS[..], 1),
            Width::Vector => (&VECTORS[..], 2),
        };
        // The first secret of bins of 1024 comes from those of 512, and that of larger ones from these.
        let bin = self.bin(width) as usize;
        let mut chain = all[..=first + bin.min(1)].to_vec();
        if bin > 1 {
            chain.push(all[first + bin]);
        }
        let last = chain.last_mut().expect("not empty");
        last.life = match (self.noise, last.lanes) {
            (Noise::Stationary, LANES) => LIFE,
            (Noise::Stationary | Noise::Fresh, _) => 1,
        };
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::WEIGHT;

    #[test]
    fn every_instance_makes_the_next_and_itself() {
        for instances in [Noise::Fresh, Noise::Stationary].into_iter().flat_map(Instances::all) {
            for width in Width::ALL {
                let chain = instances.chain(width);
                for (i, lpn) in chain.iter().enumerate() {
                    assert!(lpn.secret.is_multiple_of(WEIGHT) && lpn.width == width);
                    assert!(lpn.rows().is_multiple_of(crate::lpn::BATCH));
                    let next = chain.get(i + 1).unwrap_or(lpn);
                    assert!(lpn.bins_for(next.cost(0)) <= lpn.bins);
                    // An error that has one value only must not stay where it is.
                    assert!(lpn.life == 1 || lpn.errors() > 0);
                    assert!(lpn.life as usize * lpn.lanes * width.choices() <= lpn.bins / 8);
                    // Values that a life's iterations make for each other are fewer than the columns by far.
                    assert!(2 * (lpn.life as usize - 1) * lpn.bins < lpn.secret);
                }
                let last = chain.last().expect("not empty");
                assert_eq!(last.bin(), instances.bin(width).samples());
                assert!(last.bins_for(last.cost(0)) < last.bins / 4, "most of an iteration is for use");
                let lines = last.lanes == LANES && instances.noise == Noise::Stationary;
                assert_eq!(last.life, if lines { LIFE } else { 1 });
                assert!(chain[..chain.len() - 1].iter().all(|lpn| lpn.life == 1));
            }
        }
    }
}
