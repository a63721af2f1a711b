//! How a map is cut into windows that fit a given number of places.
//!
//! A *window* holds what a tile of outputs reads, zeros of the padding included, row by row. The output at (y, x) of the
//! tile is summed up at place (y·stride, x·stride) of its window; tap (ky, kx) reads `ky·dilation` rows below and
//! `kx·dilation` places to the right of it. (Of a kernel of one place that strides over the input, only the places that
//! it reads are in the window.)

use std::ops::Range;

use jaguar_graph::network::{Linear, Shape};

/// What packings of `n` slots have alike whose `windows` share ciphertexts, so many `together`.
macro_rules! in_windows {
    () => {
        /// The convolution: its geometry and its shift.
        pub(crate) fn spec(&self) -> &Linear {
            self.windows.spec()
        }

        /// `[C_in, H, W]` of the layer's input.
        pub(crate) fn in_shape(&self) -> Shape {
            self.windows.in_shape()
        }

        /// `[C_out, H, W]` of the layer's output.
        pub(crate) fn out_shape(&self) -> Shape {
            self.windows.out_shape()
        }

        /// N: how many slots a ciphertext has.
        pub(crate) fn slots(&self) -> usize {
            self.n
        }

        /// Into how many windows the map is cut.
        pub(crate) fn tile_count(&self) -> usize {
            self.windows.count()
        }

        /// Groups of windows that share ciphertexts.
        pub(crate) fn groups(&self) -> usize {
            self.tile_count().div_ceil(self.together)
        }

        /// Ciphertexts from the client: by group, then block.
        pub fn ciphertexts(&self) -> usize {
            self.groups() * self.in_blocks()
        }

        /// Ciphertexts of the answer: by group, then block.
        pub fn responses(&self) -> usize {
            self.groups() * self.out_blocks()
        }
    };
}
pub(crate) use in_windows;

/// Most tiles of a map: each costs a ciphertext.
const MAX_TILES: usize = 1 << 12;

/// The windows of one layer: all of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    spec: Linear,
    in_shape: Shape,
    out_shape: Shape,
    /// From one place of a window to the next, in the input: down, right.
    step: [usize; 2],
    /// Outputs of a tile, down and right.
    tile: [usize; 2],
    /// How many tiles there are, down and right.
    tiles: [usize; 2],
    /// Places of a window, down and right.
    places: [usize; 2],
}

/// Places that `outputs` outputs in a row read, one after the other.
fn extent(spec: &Linear, step: [usize; 2], axis: usize, outputs: usize) -> Option<usize> {
    let reach = spec.kernel[axis].checked_sub(1)?.checked_mul(spec.dilation[axis])?;
    (outputs.checked_sub(1)?).checked_mul(spec.stride[axis] / step[axis])?.checked_add(reach)?.checked_add(1)
}

impl Windows {
    /// The fewest windows of at most `most` places; `None` if the places that a single output reads are more, or the
    /// spec does not fit its input.
    pub(crate) fn new(spec: &Linear, in_shape: Shape, most: usize) -> Option<Self> {
        let [h, w] = spec.output_hw(in_shape)?;
        let step = [0, 1].map(|axis| if spec.kernel[axis] == 1 { spec.stride[axis] } else { 1 });
        let area = |tile: [usize; 2]| -> Option<usize> {
            let [a, b] = [0, 1].map(|axis| extent(spec, step, axis, tile[axis]));
            a?.checked_mul(b?)
        };
        let fits = |tile: [usize; 2]| area(tile).is_some_and(|area| area <= most);
        // The widest tile of each height; the fewest tiles of all.
        let widest =
            |height: usize| (1..=w).rev().find(|&width| fits([height, width])).map(|width| [height, width]);
        let count = |tile: &[usize; 2]| h.div_ceil(tile[0]) * w.div_ceil(tile[1]);
        let tile = if fits([h, w]) { [h, w] } else { (1..=h).map_while(widest).min_by_key(count)? };
        if count(&tile) > MAX_TILES {
            return None;
        }
        let places = [0, 1].map(|axis| extent(spec, step, axis, tile[axis]).expect("it fits"));
        let tiles = [h.div_ceil(tile[0]), w.div_ceil(tile[1])];
        let out_shape = [spec.out_channels, h, w];
        Some(Self { spec: spec.clone(), in_shape, out_shape, step, tile, tiles, places })
    }

    /// The convolution: its geometry and its shift.
    pub(crate) fn spec(&self) -> &Linear {
        &self.spec
    }

    /// `[C_in, H, W]` of the layer's input.
    pub(crate) fn in_shape(&self) -> Shape {
        self.in_shape
    }

    /// `[C_out, H, W]` of the layer's output.
    pub(crate) fn out_shape(&self) -> Shape {
        self.out_shape
    }

    /// How many windows the map is cut into.
    pub(crate) fn count(&self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// The input channels that output channel `channel` reads.
    pub(crate) fn reads(&self, channel: usize) -> Range<usize> {
        let each = self.in_shape[0] / self.spec.groups;
        let group = channel / (self.spec.out_channels / self.spec.groups);
        group * each..(group + 1) * each
    }

    /// Places of a window.
    pub fn area(&self) -> usize {
        self.places[0] * self.places[1]
    }

    /// Every figure that both parties must have alike.
    pub(crate) fn figures(&self) -> [usize; 4] {
        [self.tile[0], self.tile[1], self.places[0], self.places[1]]
    }

    /// How far each tap reads behind an output's place, `[k_h][k_w]`.
    pub(crate) fn taps(&self) -> Vec<usize> {
        let [height, width] = self.spec.kernel;
        let [down, right] = self.spec.dilation;
        let rows = (0..height).map(|ky| ky * down * self.places[1]);
        rows.flat_map(|row| (0..width).map(move |kx| row + kx * right)).collect()
    }

    /// The first output of window `number`.
    fn first(&self, number: usize) -> [usize; 2] {
        [number / self.tiles[1] * self.tile[0], number % self.tiles[1] * self.tile[1]]
    }

    /// Writes window `number` of a channel of an input `[C, H, W]` to the first places of `out`, which are zero.
    pub(crate) fn write(&self, number: usize, channel: usize, x: &[u64], out: &mut [u64]) {
        let [_, h, w] = self.in_shape;
        let [top, left, ..] = self.spec.pads;
        let [y0, x0] = self.first(number);
        let map = &x[channel * h * w..(channel + 1) * h * w];
        for (i, row) in out.chunks_mut(self.places[1]).take(self.places[0]).enumerate() {
            let y = (y0 * self.spec.stride[0] + i * self.step[0]).wrapping_sub(top);
            let Some(line) = map.chunks_exact(w).nth(y) else { continue };
            for (j, value) in row.iter_mut().enumerate() {
                let x = (x0 * self.spec.stride[1] + j * self.step[1]).wrapping_sub(left);
                *value = line.get(x).copied().unwrap_or(0);
            }
        }
    }

    /// The outputs of window `number` of a channel: place in the window, and in `[C, H, W]`.
    pub(crate) fn outputs(
        &self,
        number: usize,
        channel: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        let [_, h, w] = self.out_shape;
        let [down, right] = [0, 1].map(|axis| self.spec.stride[axis] / self.step[axis]);
        let [y0, x0] = self.first(number);
        let [height, width] = [self.tile[0].min(h - y0), self.tile[1].min(w - x0)];
        let row = self.places[1];
        (0..height).flat_map(move |y| {
            let place = (channel * h + y0 + y) * w + x0;
            (0..width).map(move |x| (y * down * row + x * right, place + x))
        })
    }
}
