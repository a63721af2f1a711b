//! Where channels sit in SIMD slots, and which rotations bring them together.
//!
//! N slots are cut into *parts* of P = 2^i slots, so many as there are channels in a ciphertext, c_n. Part s begins
//! at slot s·P; the first half of the parts fills row 0 and the other half row 1. A part holds one *window*: the
//! places that a tile of outputs reads, zeros of the padding included, row by row, `window width` apart. The output
//! at (y, x) of the tile is summed up at place (y·stride, x·stride), and tap (ky, kx) reads `ky·dilation` rows
//! below and `kx·dilation` places to the right of it: always in the same window. So a sum over taps is a sum of
//! rotations by numbers that are not negative, and nothing is masked. (Of a kernel of one place that strides over
//! the input, only the places that it reads are packed.)
//!
//! A map whose window does not fit a row is cut into tiles, two of which share a ciphertext: row 0 and row 1 are
//! the same channel.

use jaguar_graph::network::{Linear, Shape};
use jaguar_ring::he::rns::{rotation, row_swap};

use super::windows::{Windows, in_windows};

/// How many output channels a ciphertext holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// One.
    One,
    /// As many as there are parts.
    All,
}

/// A layer's places in slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    windows: Windows,
    /// N: how many slots a ciphertext has.
    n: usize,
    /// c_n: channels in a ciphertext, a power of two.
    channels: usize,
    /// Tiles that share a ciphertext: two where c_n is 1, one elsewhere.
    together: usize,
    outputs: Outputs,
}

impl Packing {
    /// All ways to pack a layer into `n` slots, by number of channels in a ciphertext, ascending: more than one way
    /// only if a whole map fits a row. Empty if the places that a single output reads do not fit one, or the spec
    /// does not fit its input.
    pub(crate) fn all(n: usize, spec: &Linear, in_shape: Shape, outputs: Outputs) -> Vec<Self> {
        let Some(windows) = Windows::new(spec, in_shape, n / 2) else { return Vec::new() };
        let most = if windows.count() == 1 {
            let most = n / windows.area().next_power_of_two();
            most.min(in_shape[0].max(spec.out_channels).next_power_of_two()).max(2)
        } else {
            1
        };
        let of = |channels: usize| {
            let (windows, together) = (windows.clone(), if channels == 1 { 2 } else { 1 });
            Self { windows, n, channels, together, outputs }
        };
        (0..=most.ilog2()).map(|log| of(1 << log)).collect()
    }

    in_windows!();

    /// c_n: channels in a ciphertext.
    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    /// Ciphertexts of a group, from the client.
    pub(crate) fn in_blocks(&self) -> usize {
        self.in_shape()[0].div_ceil(self.channels)
    }

    /// Ciphertexts of a group, of the answer.
    pub(crate) fn out_blocks(&self) -> usize {
        match self.outputs {
            Outputs::One => self.spec().out_channels,
            Outputs::All => self.spec().out_channels.div_ceil(self.channels),
        }
    }

    /// P: slots of a part.
    fn part(&self) -> usize {
        self.n / (self.channels * self.together)
    }

    /// Every figure that both parties must have alike.
    pub(crate) fn figures(&self) -> Vec<u64> {
        let own = [self.n, self.channels];
        own.into_iter().chain(self.windows.figures()).map(|v| v as u64).collect()
    }

    /// By how much each tap rotates, `[k_h][k_w]`.
    pub(crate) fn taps(&self) -> Vec<usize> {
        self.windows.taps()
    }

    // ---- Channels and parts ----

    /// The part that `d` leads to from part `q`: it is added row by row.
    pub(crate) fn moved(&self, q: usize, d: usize) -> usize {
        let row = (self.channels / 2).max(1);
        ((q / row) ^ (d / row)) * row + (q % row + d % row) % row
    }

    /// The output channel in part `q` of block `block`, if there is one.
    pub(crate) fn out_channel(&self, block: usize, q: usize) -> Option<usize> {
        match self.outputs {
            Outputs::One => (q == self.target(block)).then_some(block),
            Outputs::All => {
                Some(block * self.channels + q).filter(|&channel| channel < self.spec().out_channels)
            }
        }
    }

    /// The part in which a ciphertext with one output channel has it: that of the first input channel that it
    /// reads, so that a depthwise layer moves nothing.
    pub fn target(&self, channel: usize) -> usize {
        self.windows.reads(channel).start % self.channels
    }

    /// The input channel in part `q` of block `block`, if there is one.
    fn in_channel(&self, block: usize, q: usize) -> Option<usize> {
        Some(block * self.channels + q).filter(|&channel| channel < self.in_shape()[0])
    }

    /// The pair of output and input channel that meet in part `s` of input block `input` when it is to move by `d`
    /// into output block `output`; `None` if there is none, or the one does not read the other.
    pub(crate) fn pair(&self, output: usize, input: usize, d: usize, s: usize) -> Option<(usize, usize)> {
        // s = moved(q, d), as q = moved(s, -d).
        let row = (self.channels / 2).max(1);
        let q = self.moved(s, d / row * row + (row - d % row) % row);
        let (out, channel) = (self.out_channel(output, q)?, self.in_channel(input, s)?);
        self.windows.reads(out).contains(&channel).then_some((out, channel))
    }

    /// By which diagonal part s is moved into part q.
    fn between(&self, q: usize, s: usize) -> usize {
        let row = (self.channels / 2).max(1);
        ((q / row) ^ (s / row)) * row + (s % row + row - q % row) % row
    }

    /// Of every part of output block `output`, the diagonals and input blocks that it reads by.
    fn read_by(&self, output: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let parts = (0..self.channels).filter_map(move |q| Some((q, self.out_channel(output, q)?)));
        parts.flat_map(move |(q, out)| {
            self.windows
                .reads(out)
                .map(move |channel| (self.between(q, channel % self.channels), channel / self.channels))
        })
    }

    /// The diagonals by which output block `output` reads anything, ascending, and of each the input blocks.
    pub(crate) fn diagonals(&self, output: usize) -> Vec<(usize, Vec<usize>)> {
        let mut read = vec![vec![false; self.in_blocks()]; self.channels];
        self.read_by(output).for_each(|(d, input)| read[d][input] = true);
        let blocks = |read: Vec<bool>| -> Vec<usize> {
            read.into_iter().enumerate().filter_map(|(input, read)| read.then_some(input)).collect()
        };
        let all = read.into_iter().map(blocks).enumerate();
        all.filter(|(_, inputs)| !inputs.is_empty()).collect()
    }

    /// How many pairs of a diagonal and an input block output block `output` reads.
    pub(crate) fn terms(&self, output: usize) -> usize {
        if self.spec().groups > 1 || self.outputs == Outputs::One {
            return self.diagonals(output).iter().map(|(_, inputs)| inputs.len()).sum();
        }
        // Of a full input block every part is read, by all diagonals.
        let (full, rest) = (self.in_shape()[0] / self.channels, self.in_shape()[0] % self.channels);
        let mut read = vec![false; self.channels];
        for q in (0..self.channels).filter(|&q| self.out_channel(output, q).is_some()) {
            (0..rest).for_each(|s| read[self.between(q, s)] = true);
        }
        full * self.channels + read.into_iter().filter(|&read| read).count()
    }

    /// The diagonals by which any output block reads anything, ascending.
    pub(crate) fn all_diagonals(&self) -> Vec<usize> {
        // Without groups the first block has as many channels as any other.
        let blocks = if self.spec().groups == 1 { 1 } else { self.out_blocks() };
        let mut read = vec![false; self.channels];
        let mut missing = self.channels;
        'all: for block in 0..blocks {
            for (q, out) in (0..self.channels).filter_map(|q| Some((q, self.out_channel(block, q)?))) {
                // Channels follow each other, so parts repeat.
                for channel in self.windows.reads(out).take(self.channels) {
                    let d = self.between(q, channel % self.channels);
                    missing -= usize::from(!std::mem::replace(&mut read[d], true));
                }
                if missing == 0 {
                    break 'all;
                }
            }
        }
        (0..self.channels).filter(|&d| read[d]).collect()
    }

    /// The automorphisms that a layer takes.
    pub(crate) fn elements(&self) -> Vec<usize> {
        let taps = self.taps().into_iter().filter(|&tap| tap != 0).map(|tap| self.tap_element(tap));
        let diagonals = self.all_diagonals().into_iter().filter(|&d| d != 0);
        taps.chain(diagonals.map(|d| self.diagonal_element(d))).collect()
    }

    /// The automorphism that rotates by a tap.
    pub(crate) fn tap_element(&self, tap: usize) -> usize {
        rotation(self.n, tap as i64)
    }

    /// The automorphism that moves what is in part `moved(q, d)` into part q, for all q.
    pub(crate) fn diagonal_element(&self, d: usize) -> usize {
        let row = (self.channels / 2).max(1);
        let turn = rotation(self.n, ((d % row) * self.part()) as i64);
        if d / row == 0 { turn } else { turn * row_swap(self.n) % (2 * self.n) }
    }

    // ---- Values and slots ----

    /// The window in row `i` of group `group` (where a ciphertext holds two), or the only one.
    fn window_at(&self, group: usize, i: usize) -> Option<usize> {
        Some(group * self.together + i).filter(|&number| number < self.tile_count())
    }

    /// Writes a group's block of an input `[C, H, W]` into its slots, which are zero.
    pub(crate) fn write_inputs(&self, group: usize, block: usize, x: &[u64], slots: &mut [u64]) {
        for (s, part) in slots.chunks_exact_mut(self.part()).enumerate() {
            let window = self.window_at(group, s / self.channels);
            if let (Some(window), Some(channel)) = (window, self.in_channel(block, s % self.channels)) {
                self.windows.write(window, channel, x, part);
            }
        }
    }

    /// The outputs of a response: slot, and place in `[C, H, W]`.
    pub(crate) fn outputs_of(&self, group: usize, block: usize) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for s in 0..self.channels * self.together {
            let window = self.window_at(group, s / self.channels);
            if let (Some(window), Some(channel)) = (window, self.out_channel(block, s % self.channels)) {
                let outputs = self.windows.outputs(window, channel);
                places.extend(outputs.map(|(place, at)| (s * self.part() + place, at)));
            }
        }
        places
    }

    /// The slots of a vector that is `of(s)` on all of part s, over channels: the same for both tiles of a
    /// ciphertext.
    pub(crate) fn on_parts(&self, of: impl Fn(usize) -> u64) -> Vec<u64> {
        (0..self.n).map(|slot| of(slot / self.part() % self.channels)).collect()
    }
}
