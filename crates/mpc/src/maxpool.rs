//! \[max over each window\] mod 2^n <- MaxPool(\[x\] mod 2^n), x of shape `[C, H, W]`, |x| < 2^(n−2).
//!
//! max(a, b) = b + ReLU(a − b), where the ReLU may ignore the lowest bit. Rows first, then columns: the
//! largest of k_w neighbours in each row that is needed, then of k_h such results (six comparisons instead of
//! eight for a 3 × 3 window with stride 2). Within a window a tournament of ⌈log2 k⌉ levels, all windows of a
//! level in one batch; comparisons that two windows have in common are made once. Padding never wins: a
//! window at the border takes the largest of its real places.
//!
//! Exact in the stated range, which makes a − b fit. Neither party learns a thing. Cost: a ReLU from and to n
//! bits for each comparison, and its flights for each level; the client's last message of a level travels
//! with its first of the next. See [`crate::cost::maxpool`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use jaguar_ot::CotSource;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::block::{self, BLOCK_ELEMENTS, Block, Flights};
use crate::party::Party;
use crate::relu::{Relu, ReluParams};
use crate::select::Layer;
use crate::{MpcError, ring_mask};

/// A max-pool's geometry. Everything is in places of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// C.
    pub channels: usize,
    /// H, W.
    pub size: [usize; 2],
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Steps between windows, down and right.
    pub stride: [usize; 2],
    /// Padding at the top, left, bottom and right.
    pub pads: [usize; 4],
}

impl PoolShape {
    /// Height and width of the output, rounded down as is usual.
    ///
    /// # Errors
    /// When a dimension, window or step is zero or above 2^16, a padding is as large as the window, or no window
    /// fits.
    pub fn output(&self) -> Result<[usize; 2], MpcError> {
        Ok([self.output_along(0)?, self.output_along(1)?])
    }

    fn output_along(&self, axis: usize) -> Result<usize, MpcError> {
        let (size, kernel, stride) = (self.size[axis], self.kernel[axis], self.stride[axis]);
        let (before, after) = (self.pads[axis], self.pads[axis + 2]);
        let limit = 1..=1 << 16;
        if let Some(bad) = [self.channels, size, kernel, stride].iter().find(|n| !limit.contains(*n)) {
            return Err(MpcError::misuse("pooling shape", bad, "1 to 65536"));
        }
        if before >= kernel || after >= kernel {
            return Err(MpcError::misuse("padding", before.max(after), format!("less than {kernel}")));
        }
        let Some(slack) = (size + before + after).checked_sub(kernel) else {
            return Err(MpcError::misuse("window", kernel, format!("at most {size} and the padding")));
        };
        Ok(slack / stride + 1)
    }

    /// The real places of window `at` along an axis.
    pub(crate) fn window(&self, axis: usize, at: usize) -> std::ops::Range<usize> {
        let start = (at * self.stride[axis]) as isize - self.pads[axis] as isize;
        let end = start + self.kernel[axis] as isize;
        start.max(0) as usize..(end as usize).min(self.size[axis])
    }
}

/// The ReLU of a difference. It is at least −2^(n−1) + 2, so ignoring one bit is exact; see `relu.rs`.
pub(crate) const fn relu_params(bits: u32) -> ReluParams {
    ReluParams { ignored: 1, ..ReluParams::new(bits) }
}

/// Who meets whom, in one channel: values are numbered, the input's `H·W` first, and each level appends the
/// larger of every pair.
struct Schedule {
    levels: Vec<Vec<(usize, usize)>>,
    /// The numbers of the output's values.
    outputs: Vec<usize>,
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

fn schedule(shape: &PoolShape, [out_h, out_w]: [usize; 2]) -> Schedule {
    let [height, width] = shape.size;
    let mut levels = Vec::new();
    let mut next = height * width;
    // Rows that no window needs (stride beyond the window) are left out.
    let mut needed = vec![false; height];
    (0..out_h).flat_map(|i| shape.window(0, i)).for_each(|row| needed[row] = true);
    let mut windows = Vec::new();
    let mut row_at = vec![0; height];
    for row in (0..height).filter(|&row| needed[row]) {
        row_at[row] = windows.len();
        windows.extend((0..out_w).map(|j| shape.window(1, j).map(|col| row * width + col).collect()));
    }
    let rows = play(&mut levels, &mut next, windows);
    let windows = (0..out_h)
        .flat_map(|i| (0..out_w).map(move |j| (i, j)))
        .map(|(i, j)| shape.window(0, i).map(|row| rows[row_at[row] + j]).collect())
        .collect();
    let outputs = play(&mut levels, &mut next, windows);
    Schedule { levels, outputs }
}

/// Comparisons of every level, block by block of channels.
pub(crate) fn level_counts(shape: &PoolShape) -> Vec<Vec<usize>> {
    let Ok(output) = shape.output() else { return Vec::new() };
    let schedule = schedule(shape, output);
    schedule
        .blocks(shape.channels)
        .map(|channels| schedule.levels.iter().map(|level| level.len() * channels.len()).collect())
        .collect()
}

impl Schedule {
    /// Channels by block: as many as keep the biggest level within a block's elements, at least one.
    fn blocks(&self, channels: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let most = self.levels.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let each = (BLOCK_ELEMENTS / most).max(1);
        (0..channels).step_by(each).map(move |at| at..channels.min(at + each))
    }
}

/// A prepared max-pool, for one run.
pub struct MaxPool {
    blocks: Vec<Block>,
}

impl MaxPool {
    /// Prepares one max-pool on values mod 2^`bits` (3 to [`crate::WIDEST`]) in digits of `digit` bits (1..=4).
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource>(
        party: &mut Party<S>,
        chan: &mut Channel,
        shape: PoolShape,
        bits: u32,
        digit: u32,
    ) -> Result<Self, MpcError> {
        let params = ReluParams { digit, ..relu_params(bits) };
        params.check()?;
        let [height, width] = shape.output()?;
        let schedule = Arc::new(schedule(&shape, [height, width]));
        let (places, made) = (shape.size[0] * shape.size[1], height * width);
        let blocks = schedule
            .blocks(shape.channels)
            .map(|channels| {
                let levels = schedule
                    .levels
                    .iter()
                    .map(|level| Relu::block(party, chan, level.len() * channels.len(), params))
                    .collect::<Result<_, MpcError>>()?;
                let schedule = Arc::clone(&schedule);
                let inputs = channels.start * places..channels.end * places;
                let outputs = channels.start * made..channels.end * made;
                let values = Vec::new();
                Ok(Block::new(inputs, outputs, Tournament { places, bits, schedule, levels, values }))
            })
            .collect::<Result<_, MpcError>>()?;
        Ok(Self { blocks })
    }

    /// Its blocks, for who runs them step by step.
    pub fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// This party's shares of the output, `[C, H', W']` mod 2^bits; `x` are its shares of `[C, H, W]`. The
    /// client's last message may still be in the channel's buffer.
    ///
    /// # Errors
    /// When the count differs from the shape's, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, x)
    }
}

/// A few channels of a max-pool: a level's last step is the next one's first.
struct Tournament {
    /// H·W.
    places: usize,
    bits: u32,
    schedule: Arc<Schedule>,
    levels: Vec<Layer>,
    /// By channel: what is known so far, in the schedule's numbers.
    values: Vec<Zeroizing<Vec<u64>>>,
}

impl Tournament {
    /// a − b of a level's pairs, channel by channel.
    fn differences(&self, level: usize) -> Zeroizing<Vec<u64>> {
        let pairs = &self.schedule.levels[level];
        let of =
            |v: &Zeroizing<Vec<u64>>| pairs.iter().map(|&(a, b)| v[a].wrapping_sub(v[b])).collect::<Vec<_>>();
        Zeroizing::new(self.values.iter().flat_map(of).collect())
    }

    /// Appends the larger of every pair of a level.
    fn advance(&mut self, level: usize) {
        let pairs = &self.schedule.levels[level];
        let larger = Zeroizing::new(self.levels[level].finish());
        for (v, larger) in self.values.iter_mut().zip(larger.chunks(pairs.len().max(1))) {
            let new: Vec<u64> = pairs.iter().zip(larger).map(|(&(_, b), r)| v[b].wrapping_add(*r)).collect();
            v.extend(ring_mask(&new, self.bits).iter());
        }
    }

    fn take(&mut self, x: &[u64]) {
        self.values = x.chunks(self.places).map(|x| ring_mask(x, self.bits)).collect();
    }
}

impl Flights for Tournament {
    fn steps(&self) -> usize {
        self.levels.iter().map(|level| level.steps() - 1).sum::<usize>() + 1
    }

    /// That of the first level.
    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        if self.levels.is_empty() {
            return Ok(());
        }
        let differences = x.map(|x| {
            self.take(x);
            self.differences(0)
        });
        self.levels[0].correct(chan, differences.as_ref().map(|d| &d[..]))
    }

    fn start(&mut self, x: &[u64]) {
        self.take(x);
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        // All levels take as many steps.
        let each = self.levels.first().map_or(1, |level| level.steps() - 1);
        let level = step / each;
        if step.is_multiple_of(each) {
            if let Some(before) = level.checked_sub(1) {
                self.levels[before].step(chan, each)?;
                self.advance(before);
            }
            if level < self.levels.len() {
                let differences = self.differences(level);
                self.levels[level].start(&differences);
            }
        }
        match self.levels.get_mut(level) {
            Some(level) => level.step(chan, step % each),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Vec<u64> {
        self.values.iter().flat_map(|v| self.schedule.outputs.iter().map(|&o| v[o])).collect()
    }
}
