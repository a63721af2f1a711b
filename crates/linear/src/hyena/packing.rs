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

use std::ops::Range;

use jaguar_graph::network::{Linear, Shape};
use jaguar_he::rns::{rotation, row_swap};

/// How many output channels a ciphertext holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// One.
    One,
    /// As many as there are parts.
    All,
}

/// Most tiles of a map: each costs a ciphertext.
const MAX_TILES: usize = 1 << 12;

/// A layer's places in slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    spec: Linear,
    in_shape: Shape,
    out_shape: Shape,
    /// N.
    n: usize,
    /// c_n: channels in a ciphertext, a power of two.
    channels: usize,
    /// Tiles that share a ciphertext: two where c_n is 1, one elsewhere.
    together: usize,
    /// From one place of a window to the next, in the input: down, right.
    step: [usize; 2],
    /// Outputs of a tile, down and right.
    tile: [usize; 2],
    /// How many tiles there are, down and right.
    tiles: [usize; 2],
    /// Places of a window, down and right.
    window: [usize; 2],
    outputs: Outputs,
}

/// Places that `outputs` outputs in a row read, one after the other.
fn window_of(spec: &Linear, step: [usize; 2], axis: usize, outputs: usize) -> Option<usize> {
    let reach = spec.kernel[axis].checked_sub(1)?.checked_mul(spec.dilation[axis])?;
    (outputs.checked_sub(1)?).checked_mul(spec.stride[axis] / step[axis])?.checked_add(reach)?.checked_add(1)
}

impl Packing {
    /// All ways to pack a layer into `n` slots, by number of channels in a ciphertext, ascending: more than one way
    /// only if a whole map fits a row. Empty if the places that a single output reads do not fit one, or the spec
    /// does not fit its input.
    pub fn all(n: usize, spec: &Linear, in_shape: Shape, outputs: Outputs) -> Vec<Self> {
        let Some([h, w]) = spec.output_hw(in_shape) else { return Vec::new() };
        let step = [0, 1].map(|axis| if spec.kernel[axis] == 1 { spec.stride[axis] } else { 1 });
        let row = n / 2;
        let area = |tile: [usize; 2]| -> Option<usize> {
            let [a, b] = [0, 1].map(|axis| window_of(spec, step, axis, tile[axis]));
            a?.checked_mul(b?)
        };
        let fits = |tile: [usize; 2]| area(tile).is_some_and(|area| area <= row);
        let of = |tile: [usize; 2], channels: usize| {
            let window = [0, 1].map(|axis| window_of(spec, step, axis, tile[axis]).expect("it fits"));
            Self {
                spec: spec.clone(),
                in_shape,
                out_shape: [spec.out_channels, h, w],
                n,
                channels,
                together: if channels == 1 { 2 } else { 1 },
                step,
                tile,
                tiles: [h.div_ceil(tile[0]), w.div_ceil(tile[1])],
                window,
                outputs,
            }
        };
        if let Some(area) = area([h, w]).filter(|&area| area <= row) {
            let most = n / area.next_power_of_two();
            let most = most.min(in_shape[0].max(spec.out_channels).next_power_of_two()).max(2);
            return (0..=most.ilog2()).map(|log| of([h, w], 1 << log)).collect();
        }
        // The widest tile of each height; the fewest tiles of all.
        let widest =
            |height: usize| (1..=w).rev().find(|&width| fits([height, width])).map(|width| [height, width]);
        let count = |tile: &[usize; 2]| h.div_ceil(tile[0]) * w.div_ceil(tile[1]);
        let best = (1..=h.min(row)).map_while(widest).min_by_key(count);
        best.filter(|tile| count(tile) <= MAX_TILES).map(|tile| of(tile, 1)).into_iter().collect()
    }

    /// The operation.
    pub fn spec(&self) -> &Linear {
        &self.spec
    }

    /// `[C_in, H, W]`.
    pub fn in_shape(&self) -> Shape {
        self.in_shape
    }

    /// `[C_out, H, W]`.
    pub fn out_shape(&self) -> Shape {
        self.out_shape
    }

    /// N.
    pub fn slots(&self) -> usize {
        self.n
    }

    /// c_n: channels in a ciphertext.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Into how many windows the map is cut.
    pub fn tile_count(&self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// Groups of tiles that share ciphertexts.
    pub fn groups(&self) -> usize {
        self.tile_count().div_ceil(self.together)
    }

    /// Ciphertexts of a group, from the client.
    pub fn in_blocks(&self) -> usize {
        self.in_shape[0].div_ceil(self.channels)
    }

    /// Ciphertexts of a group, of the answer.
    pub fn out_blocks(&self) -> usize {
        match self.outputs {
            Outputs::One => self.spec.out_channels,
            Outputs::All => self.spec.out_channels.div_ceil(self.channels),
        }
    }

    /// Ciphertexts from the client: by group, then block.
    pub fn ciphertexts(&self) -> usize {
        self.groups() * self.in_blocks()
    }

    /// Ciphertexts of the answer: by group, then block.
    pub fn responses(&self) -> usize {
        self.groups() * self.out_blocks()
    }

    /// P: slots of a part.
    fn part(&self) -> usize {
        self.n / (self.channels * self.together)
    }

    /// Every figure that both parties must have alike.
    pub fn figures(&self) -> Vec<u64> {
        let figures = [self.n, self.channels, self.tile[0], self.tile[1], self.window[0], self.window[1]];
        figures.into_iter().map(|v| v as u64).collect()
    }

    /// By how much each tap rotates, `[k_h][k_w]`.
    pub fn taps(&self) -> Vec<usize> {
        let [height, width] = self.spec.kernel;
        let [down, right] = self.spec.dilation;
        let rows = (0..height).map(|ky| ky * down * self.window[1]);
        rows.flat_map(|row| (0..width).map(move |kx| row + kx * right)).collect()
    }

    // ---- Channels and parts ----

    /// The part that `d` leads to from part `q`: it is added row by row.
    pub fn moved(&self, q: usize, d: usize) -> usize {
        let row = (self.channels / 2).max(1);
        ((q / row) ^ (d / row)) * row + (q % row + d % row) % row
    }

    /// The output channel in part `q` of block `block`, if there is one.
    pub fn out_channel(&self, block: usize, q: usize) -> Option<usize> {
        match self.outputs {
            Outputs::One => (q == self.target(block)).then_some(block),
            Outputs::All => {
                Some(block * self.channels + q).filter(|&channel| channel < self.spec.out_channels)
            }
        }
    }

    /// The part in which a ciphertext with one output channel has it: that of the first input channel that it
    /// reads, so that a depthwise layer moves nothing.
    pub fn target(&self, channel: usize) -> usize {
        self.reads(channel).start % self.channels
    }

    /// The input channel in part `q` of block `block`, if there is one.
    fn in_channel(&self, block: usize, q: usize) -> Option<usize> {
        Some(block * self.channels + q).filter(|&channel| channel < self.in_shape[0])
    }

    /// The input channels that output channel `channel` reads.
    fn reads(&self, channel: usize) -> Range<usize> {
        let each = self.in_shape[0] / self.spec.groups;
        let group = channel / (self.spec.out_channels / self.spec.groups);
        group * each..(group + 1) * each
    }

    /// The pair of output and input channel that meet in part `s` of input block `input` when it is to move by `d`
    /// into output block `output`; `None` if there is none, or the one does not read the other.
    pub fn pair(&self, output: usize, input: usize, d: usize, s: usize) -> Option<(usize, usize)> {
        // s = moved(q, d), as q = moved(s, -d).
        let row = (self.channels / 2).max(1);
        let q = self.moved(s, d / row * row + (row - d % row) % row);
        let (out, channel) = (self.out_channel(output, q)?, self.in_channel(input, s)?);
        self.reads(out).contains(&channel).then_some((out, channel))
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
            self.reads(out)
                .map(move |channel| (self.between(q, channel % self.channels), channel / self.channels))
        })
    }

    /// The diagonals by which output block `output` reads anything, ascending, and of each the input blocks.
    pub fn diagonals(&self, output: usize) -> Vec<(usize, Vec<usize>)> {
        let mut read = vec![vec![false; self.in_blocks()]; self.channels];
        self.read_by(output).for_each(|(d, input)| read[d][input] = true);
        let blocks = |read: Vec<bool>| -> Vec<usize> {
            read.into_iter().enumerate().filter_map(|(input, read)| read.then_some(input)).collect()
        };
        let all = read.into_iter().map(blocks).enumerate();
        all.filter(|(_, inputs)| !inputs.is_empty()).collect()
    }

    /// How many pairs of a diagonal and an input block output block `output` reads.
    pub fn terms(&self, output: usize) -> usize {
        if self.spec.groups > 1 || self.outputs == Outputs::One {
            return self.diagonals(output).iter().map(|(_, inputs)| inputs.len()).sum();
        }
        // Of a full input block every part is read, by all diagonals.
        let (full, rest) = (self.in_shape[0] / self.channels, self.in_shape[0] % self.channels);
        let mut read = vec![false; self.channels];
        for q in (0..self.channels).filter(|&q| self.out_channel(output, q).is_some()) {
            (0..rest).for_each(|s| read[self.between(q, s)] = true);
        }
        full * self.channels + read.into_iter().filter(|&read| read).count()
    }

    /// The diagonals by which any output block reads anything, ascending.
    pub fn all_diagonals(&self) -> Vec<usize> {
        // Without groups the first block has as many channels as any other.
        let blocks = if self.spec.groups == 1 { 1 } else { self.out_blocks() };
        let mut read = vec![false; self.channels];
        let mut missing = self.channels;
        'all: for block in 0..blocks {
            for (q, out) in (0..self.channels).filter_map(|q| Some((q, self.out_channel(block, q)?))) {
                // Channels follow each other, so parts repeat.
                for channel in self.reads(out).take(self.channels) {
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
    pub fn elements(&self) -> Vec<usize> {
        let taps = self.taps().into_iter().filter(|&tap| tap != 0).map(|tap| self.tap_element(tap));
        let diagonals = self.all_diagonals().into_iter().filter(|&d| d != 0);
        taps.chain(diagonals.map(|d| self.diagonal_element(d))).collect()
    }

    /// The automorphism that rotates by a tap.
    pub fn tap_element(&self, tap: usize) -> usize {
        rotation(self.n, tap as i64)
    }

    /// The automorphism that moves what is in part `moved(q, d)` into part q, for all q.
    pub fn diagonal_element(&self, d: usize) -> usize {
        let row = (self.channels / 2).max(1);
        let turn = rotation(self.n, ((d % row) * self.part()) as i64);
        if d / row == 0 { turn } else { turn * row_swap(self.n) % (2 * self.n) }
    }

    // ---- Values and slots ----

    /// The tile in row `i` of group `group` (where a ciphertext holds two), or the only one; by its first output.
    fn tile_at(&self, group: usize, i: usize) -> Option<[usize; 2]> {
        let number = group * self.together + i;
        let at = [number / self.tiles[1] * self.tile[0], number % self.tiles[1] * self.tile[1]];
        (number < self.tile_count()).then_some(at)
    }

    /// Writes a group's block of an input `[C, H, W]` into its slots, which are zero.
    pub fn write_inputs(&self, group: usize, block: usize, x: &[u64], slots: &mut [u64]) {
        let [_, h, w] = self.in_shape;
        let [top, left, ..] = self.spec.pads;
        for (s, part) in slots.chunks_exact_mut(self.part()).enumerate() {
            let (tile, q) = (s / self.channels, s % self.channels);
            let (Some([y0, x0]), Some(channel)) = (self.tile_at(group, tile), self.in_channel(block, q))
            else {
                continue;
            };
            let map = &x[channel * h * w..(channel + 1) * h * w];
            for (i, row) in part.chunks_mut(self.window[1]).take(self.window[0]).enumerate() {
                let y = (y0 * self.spec.stride[0] + i * self.step[0]).wrapping_sub(top);
                let Some(line) = map.chunks_exact(w).nth(y) else { continue };
                for (j, slot) in row.iter_mut().enumerate() {
                    let x = (x0 * self.spec.stride[1] + j * self.step[1]).wrapping_sub(left);
                    *slot = line.get(x).copied().unwrap_or(0);
                }
            }
        }
    }

    /// The outputs of a response: slot, and place in `[C, H, W]`.
    pub fn outputs_of(&self, group: usize, block: usize) -> Vec<(usize, usize)> {
        let [_, h, w] = self.out_shape;
        let apart = [0, 1].map(|axis| self.spec.stride[axis] / self.step[axis]);
        let mut places = Vec::new();
        for s in 0..self.channels * self.together {
            let (tile, q) = (s / self.channels, s % self.channels);
            let (Some([y0, x0]), Some(channel)) = (self.tile_at(group, tile), self.out_channel(block, q))
            else {
                continue;
            };
            for y in 0..self.tile[0].min(h - y0) {
                let slot = s * self.part() + y * apart[0] * self.window[1];
                let place = (channel * h + y0 + y) * w + x0;
                places.extend((0..self.tile[1].min(w - x0)).map(|x| (slot + x * apart[1], place + x)));
            }
        }
        places
    }

    /// The slots of a vector that is `of(s)` on all of part s, over channels: the same for both tiles of a
    /// ciphertext.
    pub fn on_parts(&self, of: impl Fn(usize) -> u64) -> Vec<u64> {
        (0..self.n).map(|slot| of(slot / self.part() % self.channels)).collect()
    }
}
