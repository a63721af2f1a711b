//! Where inputs, weights and outputs sit in Cheetah's polynomials.
//!
//! The input is cut into *windows* of `H_w × W_w` map values (Cheetah, section 3.1.2 and appendix D.2),
//! neighbours overlapping by what the kernel reaches, and the channels into blocks of `C_w`; a block of a
//! window is one polynomial, and so is a block of `M_w` output channels. With `S = C_w·H_w·W_w` and `M_w·S <=
//! N`:
//!
//! ```text
//! input   π^i: channel c, value (i, j)            at  X^(c·H_w·W_w + i·W_w + j)
//! weights π^w: output m, channel c, tap (u, v)    at  X^(m·S − c·H_w·W_w − u·W_w − v)
//! output       channel m, value (y, x)            at  X^(m·S + (s·y)·W_w + s·x)
//! ```
//!
//! The paper shifts the weights up so that no exponent is negative, and the outputs with them; here a
//! negative exponent is what it is in the ring, `X^-k = −X^(N−k)`. No other product meets an output's
//! coefficient: for the same m the place of an input value is unique below S, and for another m it would have
//! to lie S or more away.
//!
//! A stride s is met as in the paper: the product is that of stride 1, and every s-th coefficient is taken.
//! Where the kernel is one wide, only the rows or columns that are read are put in at all. Padding is written
//! out as zeros. Groups (depthwise layers) have zeros where an output does not see a channel, and products
//! that are zero altogether are left out.

use std::ops::Range;

use jaguar_graph::network::{Linear, Shape, Weights};

use super::encoding::terms;
use super::{Encoding, LayerError, MAX_WINDOWS};
use jaguar_linear::layout::Tile;

/// How windows and blocks are chosen under `M_w·C_w·H_w·W_w <= N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// The fewest bytes. Several output channels share a response where that saves more than it costs in
    /// uploads.
    FewestBytes,
    /// As OpenCheetah's convolutions: the fewest windows, then the most channels a ciphertext, one output
    /// channel a response.
    OneOutput,
}

/// Bytes that a choice of windows is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of an input ciphertext on its way.
    pub up: usize,
    /// Of a response, without its b.
    pub down: usize,
    /// Output channels that noise lets into one response.
    pub max_outs: usize,
}

/// The layout of one linear layer in a ring of dimension N.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    ring_dim: usize,
    spec: Linear,
    in_shape: Shape,
    out_shape: Shape,
    /// By axis: how many rows of the input one row of the map steps over, and how many of the map one output
    /// does.
    subsample: [usize; 2],
    stride: [usize; 2],
    /// `[H_w, W_w]`: rows and columns of a window of the map.
    window: [usize; 2],
    tiles: Vec<Tile>,
    channels: usize,
    outs: usize,
}

/// What is compared between two choices: bytes or windows; then products.
type Cost = (usize, usize);

impl Layout {
    /// The best choice.
    ///
    /// # Errors
    /// When a single output needs more coefficients than the ring has, or there are too many windows.
    ///
    /// # Panics
    /// When the layer does not fit its input, which `Network::validate` excludes.
    pub(super) fn new(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        sizes: Sizes,
        windows: Windows,
    ) -> Result<Self, LayerError> {
        let [oh, ow] = spec.output_hw(in_shape).expect("a layer that fits its input");
        let thin = spec.kernel.map(|k| k == 1);
        let pick = |i: usize, yes: usize, no: usize| if thin[i] { yes } else { no };
        let subsample = [0, 1].map(|i| pick(i, spec.stride[i], 1));
        let stride = [0, 1].map(|i| pick(i, 1, spec.stride[i]));
        // With the outputs of a tile, and without the tiles: there may be many.
        let mut best: Option<(Cost, Self, [usize; 2])> = None;
        for height in parts(oh) {
            for width in parts(ow) {
                let window = [height, width];
                let window =
                    [0, 1].map(|i| (window[i] - 1) * stride[i] + spec.dilation[i] * (spec.kernel[i] - 1) + 1);
                let area = window[0] * window[1];
                let count = oh.div_ceil(height) * ow.div_ceil(width);
                for channels in parts(in_shape[0]).filter(|c| c * area <= ring_dim) {
                    let room = (ring_dim / (channels * area)).min(sizes.max_outs).min(spec.out_channels);
                    let outs = if windows == Windows::OneOutput { 1 } else { room };
                    let size = match windows {
                        Windows::FewestBytes => {
                            let up = in_shape[0].div_ceil(channels) * sizes.up;
                            count * (up + spec.out_channels.div_ceil(outs) * sizes.down)
                        }
                        Windows::OneOutput => count,
                    };
                    if best.as_ref().is_some_and(|(least, ..)| size > least.0) {
                        continue;
                    }
                    let layout = Self {
                        ring_dim,
                        spec: spec.clone(),
                        in_shape,
                        out_shape: [spec.out_channels, oh, ow],
                        subsample,
                        stride,
                        window,
                        tiles: Vec::new(),
                        channels,
                        outs,
                    };
                    let cost = (size, count * layout.products_per_tile());
                    if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                        best = Some((cost, layout, [height, width]));
                    }
                }
            }
        }
        let (_, layout, [height, width]) = best.ok_or(LayerError::KernelTooLarge { ring_dim })?;
        let count = oh.div_ceil(height) * ow.div_ceil(width);
        if count > MAX_WINDOWS {
            return Err(LayerError::Windows { windows: count });
        }
        Ok(Self { tiles: tiles([oh, ow], [height, width]), ..layout })
    }

    /// The outputs that each window serves; a single one if the map fits.
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// `[H_w, W_w]`: rows and columns of a window of the map.
    pub fn window(&self) -> [usize; 2] {
        self.window
    }

    /// `(C_w, M_w)`.
    pub fn blocks(&self) -> (usize, usize) {
        (self.channels, self.outs)
    }

    fn outs_of(&self, block: usize) -> Range<usize> {
        block * self.outs..((block + 1) * self.outs).min(self.out_shape[0])
    }

    /// Input channels of an output channel's group.
    fn seen_by(&self, out: usize) -> Range<usize> {
        let per_group = self.in_shape[0] / self.spec.groups;
        let group = out / (self.out_shape[0] / self.spec.groups);
        group * per_group..(group + 1) * per_group
    }
}

impl Encoding for Layout {
    fn ring_dim(&self) -> usize {
        self.ring_dim
    }

    fn spec(&self) -> &Linear {
        &self.spec
    }

    fn in_shape(&self) -> Shape {
        self.in_shape
    }

    fn out_shape(&self) -> Shape {
        self.out_shape
    }

    /// How many windows the map is cut into.
    fn tile_count(&self) -> usize {
        self.tiles.len()
    }

    /// How many ciphertexts hold the input channels of a window.
    fn in_blocks(&self) -> usize {
        self.in_shape[0].div_ceil(self.channels)
    }

    /// How many responses hold the output channels of a window.
    fn out_blocks(&self) -> usize {
        self.out_shape[0].div_ceil(self.outs)
    }

    fn products_per_tile(&self) -> usize {
        if self.spec.groups == 1 {
            return self.out_blocks() * self.in_blocks();
        }
        (0..self.out_blocks()).map(|block| self.inputs_of(block).len()).sum()
    }

    fn terms_per_response(&self) -> usize {
        self.outs * terms(&self.spec, self.in_shape)
    }

    fn maps_per_ciphertext(&self) -> usize {
        self.channels
    }

    fn figures(&self) -> Vec<u64> {
        let ((channels, outs), [height, width]) = (self.blocks(), self.window());
        [channels, outs, height, width, self.tiles.len()].map(|v| v as u64).to_vec()
    }

    fn inputs_of(&self, block: usize) -> Range<usize> {
        let outs = self.outs_of(block);
        let (first, last) = (self.seen_by(outs.start).start, self.seen_by(outs.end - 1).end);
        first / self.channels..last.div_ceil(self.channels)
    }

    fn write_inputs(&self, tile: usize, block: usize, x: &[u64], to: &mut [u64]) {
        let tile = &self.tiles[tile];
        let [all, h, w] = self.in_shape;
        let [wh, ww] = self.window;
        // The rows of the window that lie in the input, and the first of those in the input.
        let inside = |axis: usize, first: usize, outputs: usize, size: usize| -> (Range<usize>, usize) {
            let (step, pad) = (self.subsample[axis], self.spec.pads[axis]);
            let reach = self.spec.dilation[axis] * (self.spec.kernel[axis] - 1) + 1;
            let start = first * self.stride[axis];
            // Row i is the input's (start + i)·step − pad.
            let last = (outputs - 1) * self.stride[axis] + reach;
            // (A window may lie before the input, or behind it, in padding alone.)
            let low = pad.div_ceil(step).saturating_sub(start).min(last);
            let high = (size + pad).div_ceil(step).saturating_sub(start).min(last);
            (low..high.max(low), ((start + low) * step).saturating_sub(pad))
        };
        let (rows, top) = inside(0, tile.row, tile.height, h);
        let (columns, left) = inside(1, tile.column, tile.width, w);
        let channels = block * self.channels..((block + 1) * self.channels).min(all);
        for (channel_at, c) in channels.enumerate() {
            for i in rows.clone() {
                let at = (channel_at * wh + i) * ww;
                let row = (c * h + top + (i - rows.start) * self.subsample[0]) * w;
                let values = x[row..row + w].iter().skip(left).step_by(self.subsample[1]);
                to[at + columns.start..at + columns.end].iter_mut().zip(values).for_each(|(to, &x)| *to = x);
            }
        }
    }

    fn write_weights(&self, out_block: usize, in_block: usize, weights: &Weights, to: &mut [i32]) {
        let [kh, kw] = self.spec.kernel;
        let [wh, ww] = self.window;
        let per_group = self.in_shape[0] / self.spec.groups;
        let first = in_block * self.channels;
        for (m, out) in self.outs_of(out_block).enumerate() {
            let seen = self.seen_by(out);
            let exponent = weights.exponent(out);
            for c in first.max(seen.start)..(first + self.channels).min(seen.end) {
                let kernel = &weights.weights[(out * per_group + c - seen.start) * kh * kw..][..kh * kw];
                for (tap, &weight) in kernel.iter().enumerate() {
                    let (u, v) = (tap / kw * self.spec.dilation[0], tap % kw * self.spec.dilation[1]);
                    let up = m * self.channels * wh * ww;
                    let down = ((c - first) * wh + u) * ww + v;
                    let weight = i32::from(weight) << exponent;
                    match up.checked_sub(down) {
                        Some(at) => to[at] = weight,
                        None => to[self.ring_dim + up - down] = -weight,
                    }
                }
            }
        }
    }

    fn exported(&self, tile: usize, block: usize) -> usize {
        let tile = &self.tiles[tile];
        self.outs_of(block).len() * tile.height * tile.width
    }

    /// Row by row.
    fn exports(&self, tile: usize, block: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let ([_, oh, ow], [wh, ww]) = (self.out_shape, self.window);
        let (down, channel_at) = (self.stride[0], self.channels * wh * ww);
        let tile = self.tiles[tile];
        self.outs_of(block).enumerate().flat_map(move |(m, out)| {
            (0..tile.height).map(move |y| {
                (m * channel_at + y * down * ww, (out * oh + tile.row + y) * ow + tile.column, tile.width)
            })
        })
    }

    fn column_stride(&self) -> usize {
        self.stride[1]
    }
}

/// The sizes of the largest part when `size` is cut into 1, 2, ... parts, each size once, descending.
pub fn parts(size: usize) -> impl Iterator<Item = usize> {
    // The next smaller one comes with the fewest parts that are smaller than this one.
    let smaller = move |&part: &usize| (part > 1).then(|| size.div_ceil(size.div_ceil(part - 1)));
    std::iter::successors(Some(size), smaller)
}

fn tiles([oh, ow]: [usize; 2], [height, width]: [usize; 2]) -> Vec<Tile> {
    let rows = (0..oh).step_by(height);
    rows.flat_map(|row| {
        (0..ow).step_by(width).map(move |column| Tile {
            image: 0,
            row,
            column,
            height: height.min(oh - row),
            width: width.min(ow - column),
        })
    })
    .collect()
}
