//! Blocks of weights: squares of b × b channels that are circulant, so that each has b values instead of b².
//!
//! (PrivCirNet, NeurIPS 2024, section 3; the skew kind is what a rotation of channels in `Z[X]/(X^N + 1)` computes.)

use std::fmt;

use serde::{Deserialize, Serialize};

/// Block sizes that a layer may have, 1 (dense) not counted.
pub const BLOCK_SIZES: [usize; 4] = [2, 4, 8, 16];

/// In which way a block repeats its b values `w`, its first column: what its entry (i, j) is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockKind {
    /// `w[(i - j) mod b]`, negative where i < j.
    Skew,
    /// `w[(i - j) mod b]`.
    Circulant,
}

/// The blocks of a linear layer: public, as its geometry is.
///
/// The layer has one group. Block (R, C) of a tap has the entries `weights[R·b + i][C·b + j]`, i and j below b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blocks {
    /// b: one of [`BLOCK_SIZES`]; it divides the channels before and behind the layer.
    pub size: usize,
    /// How a block repeats.
    pub kind: BlockKind,
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BlockKind::Skew => "skew",
            BlockKind::Circulant => "circulant",
        };
        write!(f, "{kind} blocks of {}", self.size)
    }
}

/// An entry of a weight tensor that is not what its block's first column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// The output channel that the weight is of.
    pub out: usize,
    /// The input channel that the weight is of.
    pub input: usize,
    /// Its row and column in the kernel.
    pub tap: [usize; 2],
    /// The weight's index in the layer's list.
    pub at: usize,
    /// The index of the entry in the first column that it repeats.
    pub from: usize,
    /// Whether it should be that entry's negative.
    pub negative: bool,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { out, input, tap: [u, v], .. } = self;
        write!(f, "the weight of output channel {out}, input channel {input}, tap ({u}, {v})")
    }
}

impl Blocks {
    /// Skew blocks of `size`.
    pub fn skew(size: usize) -> Self {
        Self { size, kind: BlockKind::Skew }
    }

    /// Which entry of a block's first column entry (i, j) repeats, and whether with a minus sign.
    pub fn repeats(&self, i: usize, j: usize) -> (usize, bool) {
        ((i + self.size - j) % self.size, self.kind == BlockKind::Skew && i < j)
    }

    /// Every entry of weights `[out_channels, in_channels, k_h, k_w]` that repeats another one.
    fn entries(
        &self,
        in_channels: usize,
        kernel: [usize; 2],
        count: usize,
    ) -> impl Iterator<Item = Misplaced> {
        let this = *self;
        let area = kernel[0] * kernel[1];
        (0..count).filter_map(move |at| {
            let (out, input, tap) = (at / area / in_channels, at / area % in_channels, at % area);
            let (i, j) = (out % this.size, input % this.size);
            let (row, negative) = this.repeats(i, j);
            let from = ((out - i + row) * in_channels + input - j) * area + tap;
            let tap = [tap / kernel[1], tap % kernel[1]];
            (j > 0).then_some(Misplaced { out, input, tap, at, from, negative })
        })
    }

    /// The first of `weights` (`[C_out, C_in, k_h, k_w]`) that is not what its block says.
    ///
    /// Where all are, the time depends on the shape alone.
    pub fn misplaced(&self, weights: &[i16], in_channels: usize, kernel: [usize; 2]) -> Option<Misplaced> {
        self.entries(in_channels, kernel, weights.len()).find(|entry| {
            let expected = i32::from(weights[entry.from]);
            i32::from(weights[entry.at]) != if entry.negative { -expected } else { expected }
        })
    }

    /// Gives `weights` (`[C_out, C_in, k_h, k_w]`) these blocks: every entry becomes what its block's first column says.
    pub fn repeat(&self, weights: &mut [i16], in_channels: usize, kernel: [usize; 2]) {
        for entry in self.entries(in_channels, kernel, weights.len()) {
            let expected = weights[entry.from];
            weights[entry.at] = if entry.negative { -expected } else { expected };
        }
    }

    /// Makes `weights` (`[C_out, C_in, k_h, k_w]`) what their blocks' first columns say, where no more than rounding is
    /// in the way: up to `tolerance`.
    ///
    /// # Errors
    /// The first one that is further off. The weights are then as they were up to there.
    pub(crate) fn settle(
        &self,
        weights: &mut [f32],
        in_channels: usize,
        kernel: [usize; 2],
        tolerance: f32,
    ) -> Result<(), Misplaced> {
        for entry in self.entries(in_channels, kernel, weights.len()) {
            let expected = if entry.negative { -weights[entry.from] } else { weights[entry.from] };
            // Not `>`, which lets a NaN through.
            let near = (weights[entry.at] - expected).abs() <= tolerance;
            if !near {
                return Err(entry);
            }
            weights[entry.at] = expected;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two by two blocks of three taps, written out from their first columns.
    fn written_out(blocks: Blocks, columns: impl Fn(usize, usize, usize, usize) -> i16) -> Vec<i16> {
        let b = blocks.size;
        let mut weights = vec![0; 4 * b * b * 3];
        for (at, weight) in weights.iter_mut().enumerate() {
            let (out, input, tap) = (at / 3 / (2 * b), at / 3 % (2 * b), at % 3);
            let (i, j) = (out % b, input % b);
            let w = columns(out / b, input / b, tap, if i >= j { i - j } else { i + b - j });
            *weight = if i < j && blocks.kind == BlockKind::Skew { -w } else { w };
        }
        weights
    }

    fn columns(r: usize, c: usize, tap: usize, k: usize) -> i16 {
        ((((r * 5 + c) * 7 + tap) * 31 + k * 11) % 61) as i16 - 30
    }

    #[test]
    fn a_block_of_four_is_as_the_page_shows_it() {
        let shown = |kind, i, j| Blocks { size: 4, kind }.repeats(i, j);
        assert_eq!(shown(BlockKind::Skew, 0, 1), (3, true));
        assert_eq!(shown(BlockKind::Skew, 1, 3), (2, true));
        assert_eq!(shown(BlockKind::Skew, 3, 1), (2, false));
        assert_eq!(shown(BlockKind::Circulant, 0, 1), (3, false));
    }

    #[test]
    fn every_misplaced_entry_is_found() {
        for kind in [BlockKind::Skew, BlockKind::Circulant] {
            for size in BLOCK_SIZES {
                let blocks = Blocks { size, kind };
                let weights = written_out(blocks, columns);
                assert_eq!(blocks.misplaced(&weights, 2 * size, [1, 3]), None, "{blocks}");
                let mut repeated = weights.clone();
                repeated
                    .iter_mut()
                    .enumerate()
                    .filter(|(at, _)| at / 3 % size > 0)
                    .for_each(|(_, w)| *w = 99);
                blocks.repeat(&mut repeated, 2 * size, [1, 3]);
                assert!(repeated == weights, "{blocks}");
                for at in (0..weights.len()).step_by(7) {
                    let mut wrong = weights.clone();
                    wrong[at] += 1;
                    let found = blocks.misplaced(&wrong, 2 * size, [1, 3]).expect("one is wrong");
                    assert!(found.at == at || found.from == at, "{blocks}: {found:?} for {at}");
                    assert_eq!(found.at, (found.out * 2 * size + found.input) * 3 + found.tap[1]);
                }
            }
        }
        // The two kinds are not the same.
        let skew = written_out(Blocks::skew(4), columns);
        assert!(Blocks { size: 4, kind: BlockKind::Circulant }.misplaced(&skew, 8, [1, 3]).is_some());
    }

    #[test]
    fn rounding_is_settled_and_more_is_not() {
        let blocks = Blocks::skew(4);
        let exact: Vec<f32> = written_out(blocks, columns).iter().map(|&w| f32::from(w)).collect();
        let mut near: Vec<f32> =
            exact.iter().enumerate().map(|(i, w)| w * (1.0 + (i % 5) as f32 * 1e-7)).collect();
        blocks.settle(&mut near, 8, [1, 3], 1e-4).unwrap();
        let doubled: Vec<i16> = near.iter().map(|w| (w * 500.0).round() as i16).collect();
        assert_eq!(blocks.misplaced(&doubled, 8, [1, 3]), None);
        let mut far = exact.clone();
        far[100] += 0.5;
        let entry = blocks.settle(&mut far, 8, [1, 3], 1e-4).unwrap_err();
        assert!(entry.at == 100 || entry.from == 100);
        let mut lost = exact;
        lost[100] = f32::NAN;
        assert!(blocks.settle(&mut lost, 8, [1, 3], 1e-4).is_err());
    }
}
