//! The order of a max-pool's comparisons: which values meet, level by level.
//!
//! Where comparisons leave out low bits, the result depends on who meets whom and not only on the values: the
//! protocol and the plaintext reference that imitates it must keep the same order.
//!
//! Rows first, then columns: the largest of a window's neighbours in each row that any window needs, then of those
//! results (six comparisons instead of eight for a 3 x 3 window with stride 2). Within a window neighbours meet in
//! pairs, the winners again, ⌈log2 k⌉ levels for k values; the last of an odd number meets nobody. Comparisons that
//! two windows have in common are made once.

use std::collections::BTreeMap;
use std::ops::Range;

/// Who meets whom in one channel.
///
/// Values are numbered: the channel's `H·W` places first, row by row, then the winners of every level, pair by pair.
///
/// ```
/// // One window of 1 x 3 places: the third meets the winner of the first two.
/// let bracket = jaguar_mpc::semantics::Bracket::new([1, 3], &[0..1], &[0..3]);
/// assert_eq!(bracket.levels(), [vec![(0, 1)], vec![(3, 2)]]);
/// assert_eq!(bracket.outputs(), [4]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bracket {
    places: usize,
    levels: Vec<Vec<(usize, usize)>>,
    outputs: Vec<usize>,
}

impl Bracket {
    /// For windows on a channel of `size` (H, W): window (i, j) covers rows `rows[i]` and columns `columns[j]`.
    ///
    /// # Panics
    /// When a window is empty or reaches over the border.
    pub fn new(size: [usize; 2], rows: &[Range<usize>], columns: &[Range<usize>]) -> Self {
        let [height, width] = size;
        for (spans, size) in [(rows, height), (columns, width)] {
            let inside = |span: &Range<usize>| span.start < span.end && span.end <= size;
            assert!(spans.iter().all(inside), "every window has places, all of them inside");
        }
        let mut levels = Vec::new();
        let mut next = height * width;
        // Rows that no window needs (stride beyond the window) are left out.
        let mut needed = vec![false; height];
        rows.iter().cloned().flatten().for_each(|row| needed[row] = true);
        let mut windows = Vec::new();
        let mut row_at = vec![0; height];
        for row in (0..height).filter(|&row| needed[row]) {
            row_at[row] = windows.len();
            windows.extend(columns.iter().map(|span| span.clone().map(|col| row * width + col).collect()));
        }
        let winners = play(&mut levels, &mut next, windows);
        let windows = rows
            .iter()
            .flat_map(|span| (0..columns.len()).map(move |j| (span, j)))
            .map(|(span, j)| span.clone().map(|row| winners[row_at[row] + j]).collect())
            .collect();
        let outputs = play(&mut levels, &mut next, windows);
        Self { places: height * width, levels, outputs }
    }

    /// `H·W`: how many values there are before the first level.
    pub fn places(&self) -> usize {
        self.places
    }

    /// How many values there are after the last level.
    pub fn values(&self) -> usize {
        self.places + self.levels.iter().map(Vec::len).sum::<usize>()
    }

    /// By level, the pairs that meet, by their numbers. The winner of a level's first pair has the next free number,
    /// and so on.
    pub fn levels(&self) -> &[Vec<(usize, usize)>] {
        &self.levels
    }

    /// By output, row by row, its value's number.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }
}

/// Plays all windows at once. Returns the winners' numbers.
fn play(levels: &mut Vec<Vec<(usize, usize)>>, next: &mut usize, mut windows: Vec<Vec<usize>>) -> Vec<usize> {
    while windows.iter().any(|w| w.len() > 1) {
        let mut met = BTreeMap::new();
        let mut level = Vec::new();
        for window in &mut windows {
            *window = window
                .chunks(2)
                .map(|pair| match *pair {
                    [a, b] => *met.entry((a, b)).or_insert_with(|| {
                        level.push((a, b));
                        *next += 1;
                        *next - 1
                    }),
                    _ => pair[0],
                })
                .collect();
        }
        levels.push(level);
    }
    windows.into_iter().map(|w| w[0]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn spans(size: usize, kernel: usize, stride: usize, pad: usize) -> Vec<Range<usize>> {
        (0..size)
            .map(|at| (at * stride).saturating_sub(pad)..(at * stride + kernel).saturating_sub(pad).min(size))
            .filter(|span| span.start < span.end)
            .collect()
    }

    #[test]
    fn a_three_by_three_window_takes_six_comparisons() {
        let spans = spans(101, 3, 2, 0);
        assert_eq!(spans.len(), 51);
        let bracket = Bracket::new([101, 101], &spans[..50], &spans[..50]);
        let comparisons: usize = bracket.levels().iter().map(Vec::len).sum();
        // 101 rows of 50 windows and 50 · 50 windows of three results.
        assert_eq!(comparisons, 2 * 101 * 50 + 2 * 50 * 50);
        assert_eq!((bracket.levels().len(), bracket.values()), (4, 101 * 101 + comparisons));
    }

    #[test]
    #[should_panic = "every window has places"]
    fn a_window_behind_the_border_is_refused() {
        let _ = Bracket::new([4, 4], &[0..2, 3..5], &[0..2, 2..4]);
    }

    proptest! {
        /// Every output has just the places of its window behind it, each in one way; nobody meets the unknown or the
        /// same twice.
        #[test]
        fn every_place_of_a_window_plays_for_it(
            size in [1usize..9, 1usize..9], kernel in [1usize..6, 1usize..6], stride in [1usize..4, 1usize..4], pad in 0usize..4,
        ) {
            let [rows, columns] = [0, 1].map(|i| spans(size[i], kernel[i], stride[i], pad));
            let bracket = Bracket::new(size, &rows, &columns);
            let mut behind: Vec<Vec<usize>> = (0..bracket.places()).map(|i| vec![i]).collect();
            let mut met = BTreeSet::new();
            for level in bracket.levels() {
                let known = behind.len();
                prop_assert!(!level.is_empty());
                for &(a, b) in level {
                    prop_assert!(a < known && b < known && met.insert((a, b)));
                    behind.push([behind[a].as_slice(), behind[b].as_slice()].concat());
                }
            }
            prop_assert_eq!(behind.len(), bracket.values());
            let deepest = |spans: &[Range<usize>]| spans.iter().map(|s| s.len().next_power_of_two().ilog2()).max();
            let depth = deepest(&rows).unwrap_or(0) + deepest(&columns).unwrap_or(0);
            prop_assert!(bracket.outputs().is_empty() || bracket.levels().len() == depth as usize);
            let windows = rows.iter().flat_map(|r| columns.iter().map(move |c| (r.clone(), c.clone())));
            let mut outputs = bracket.outputs().iter();
            for (rows, columns) in windows {
                let want: Vec<usize> = rows.flat_map(|r| columns.clone().map(move |c| r * size[1] + c)).collect();
                let mut got = behind[*outputs.next().expect("one a window")].clone();
                got.sort_unstable();
                prop_assert_eq!(got, want);
            }
            prop_assert!(outputs.next().is_none());
        }
    }
}
