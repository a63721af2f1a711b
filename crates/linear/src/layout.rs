//! Where every input value sits in the input ciphertexts, and every output in the responses.
//!
//! A strided convolution is split into its *components* first: map `(c, p)` holds the input channel c at every s-th row
//! and column, so that what remains is a sum of stride-1 convolutions of *maps* and nothing is computed to be
//! thrown away. With the padding written out as zeros, output `(oh, ow)` of a map is
//! `Σ w·map[oh + dy][ow + dx]` over the *taps* `(dy, dx)`, all non-negative.
//!
//! Each map lies row by row in a ring element, with a distance of `row_stride` between rows:
//!
//! - *packed*: several maps share a ciphertext, one every `map_distance` coefficients;
//! - *split*: a map larger than the ring is cut into *tiles* of output rows and columns, each with the rows and columns
//!   around it that its kernel reaches.
//!
//! A tap of map m of a ciphertext is the shift by `m·map_distance + dy·row_stride + dx`: it brings what the output at
//! coefficient j needs to coefficient j. So output `(oh, ow)` of a tile is coefficient `oh·row_stride + ow` of the response, for
//! every output channel one response.
//!
//! # Blocks
//!
//! Where the weights are skew-circulant in blocks of b channels, the ring is cut into b *parts* of N/b coefficients, and
//! all of the above holds for a part in place of the ring: part p of a ciphertext holds channel p of a block (and of as
//! many blocks as fit). With `Y = X^(N/b)`, `Y^b = -1`, a product with Y takes channel p to p + 1, with a sign where it wraps
//! around: so `Σ w_k Y^k` is the block's matrix. Part p of a response is output channel p of a block, for every block of output
//! channels one response, and what the terms of its part 0 are all parts' terms are.
//!
//! Blocks of b may run as blocks of any divisor b' of it: with m = b/b', the channels r, r + m, r + 2m, ... of a block of b are
//! channels 0, 1, 2, ... of block r of m, and those are skew-circulant again. A map that is too large for N/b coefficients
//! is cut into tiles as everywhere, or the parts are fewer ([`Layout::blocked`]).
//!
//! # Several images
//!
//! A layout may be of several images at once, under the same weights. Then g of them, a power of two, are *interleaved*: with
//! `Z = X^g`, `Z^(N/g) = -1`, each image is laid out in powers of Z as in a ring of dimension N/g, and image i of the g is multiplied by
//! `X^i`. A tap is a product with a power of Z, and leaves the g images apart. So coefficient `g·c + i` of a ciphertext or a response
//! is coefficient c of image i, and one response holds an output channel of g images. The other images follow in groups of g, each with
//! tiles of its own. Values stand in the order `[C, image, H, W]`. How many are interleaved is chosen by estimate
//! ([`Layout::of_images`]).
//!
//! Zero columns are shared between neighbouring rows (the right padding of a row is the left one of the next), and the zero
//! rows below a map are those above the next map.

mod speed;

use std::ops::Range;

use jaguar_graph::network::{BlockKind, Blocks, Linear, Shape, block_size};
use serde::{Deserialize, Serialize};

/// Why a layer cannot be laid out.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// A single output needs more coefficients than the ring has.
    #[error("a kernel that reaches over {reach} coefficients does not fit a ring of dimension {ring_dim}")]
    KernelTooLarge {
        /// Coefficients of the smallest tile.
        reach: usize,
        /// N: how many coefficients a polynomial has.
        ring_dim: usize,
    },
    /// Too many pieces: a plan lists each of them.
    #[error("{found} {what} in one layer; at most {most} are taken")]
    Pieces {
        /// Taps, tiles, ciphertexts, kinds of them, or bytes of what is listed of them.
        what: &'static str,
        /// How many the layer would have, at least.
        found: usize,
        /// How many are allowed.
        most: usize,
    },
}

/// Taps of a kernel. (Kernels of real networks have up to hundreds.)
const MAX_TAPS: usize = 1 << 18;

/// Tiles of a layer, and ciphertexts that differ in more than their channels. (A picture of 4096 x 4096 is ten thousand.)
const MAX_TILES: usize = 1 << 16;

/// Input ciphertexts of a layer. (The layers of a network with 2^28 values have 2^18 of N = 2048 altogether.)
const MAX_CIPHERTEXTS: usize = 1 << 20;

/// Secrets of a query at most, where tiles of a layer in parts or of several images share a hint, each under a secret of its own. Each takes a p0, 12 KiB a
/// query.
pub(crate) const MAX_SECRETS: usize = 16;

pub(crate) fn few(what: &'static str, found: usize, most: usize) -> Result<(), LayoutError> {
    if found <= most { Ok(()) } else { Err(LayoutError::Pieces { what, found, most }) }
}

/// How far apart the maps of a ciphertext stand, where at least [`POWER_FROM`] fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Packing {
    /// A power of two, so that a transform can run over the maps when the a half is made.
    #[default]
    PowerOfTwo,
    /// As close as they fit: fewer input ciphertexts.
    Tight,
}

/// From so many maps in a ciphertext on a transform over them can pay, and so a power of two as their distance.
pub const POWER_FROM: usize = 4;

/// What a kernel reads along one axis. Tap u is `u·dilation` rows down the padded channel: row `u·dilation / stride` of
/// component `u·dilation mod stride`. Components are numbered as the taps meet them, so tap u reads component `u mod period`.
/// Nothing is listed: a kernel may have 2^18 taps, and a network thousands of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    kernel: usize,
    stride: usize,
    dilation: usize,
    /// Taps from one to the next of the same component: `stride / gcd(stride, dilation)`.
    period: usize,
}

impl Axis {
    fn new(kernel: usize, stride: usize, dilation: usize) -> Self {
        let (mut gcd, mut rest) = (stride, dilation);
        while rest > 0 {
            (gcd, rest) = (rest, gcd % rest);
        }
        Self { kernel, stride, dilation, period: stride / gcd }
    }

    /// How many components are read.
    fn components(&self) -> usize {
        self.period.min(self.kernel)
    }

    /// Which component tap `u` reads.
    fn component(&self, u: usize) -> usize {
        u % self.period
    }

    /// How many rows down its component tap `u` reads.
    fn down(&self, u: usize) -> usize {
        u * self.dilation / self.stride
    }

    /// The first row of a component in the padded channel.
    fn offset(&self, component: usize) -> usize {
        component * self.dilation % self.stride
    }

    /// How many rows down the last tap reads.
    fn reach(&self) -> usize {
        self.down(self.kernel - 1)
    }

    /// The rows of a component that `outputs` outputs in a row read: ascending, with gaps between neighbouring runs.
    fn seen(&self, component: usize, outputs: usize) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let first = self.down(component);
        let step = self.dilation * self.period / self.stride;
        let taps = (self.kernel - component).div_ceil(self.period);
        // Taps no further apart than the outputs are many leave no gap.
        let (runs, len) = if outputs < step { (taps, outputs) } else { (1, (taps - 1) * step + outputs) };
        (0..runs).map(move |run| first + run * step..first + run * step + len)
    }
}

/// A rectangle of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The first image that it is of; as many follow as are interleaved.
    pub image: usize,
    /// The output row that it begins with.
    pub row: usize,
    /// The output column that it begins with.
    pub column: usize,
    /// How many rows of outputs it has.
    pub height: usize,
    /// How many columns of outputs it has.
    pub width: usize,
}

/// How many images a layout is of, and how they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Images {
    /// How many images a query has.
    count: usize,
    /// g: how many images share a ciphertext.
    interleaved: usize,
}

impl Images {
    const ONE: Self = Self { count: 1, interleaved: 1 };
}

/// The layout of one linear layer in a ring of dimension N.
///
/// Lengths and places that it keeps are of one image, in the ring of dimension N/g; what it tells is of the ring of dimension N,
/// where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// N: how many coefficients a polynomial has.
    ring_dim: usize,
    images: Images,
    spec: Linear,
    in_shape: Shape,
    out_shape: Shape,
    /// How rows are cut, and how columns.
    axes: [Axis; 2],
    /// The output plane as it is cut into tiles: `[1, H·W]` where no tap reaches sideways.
    plane: [usize; 2],
    reach: [usize; 2],
    /// Of all groups of images, one group's after the other's.
    tiles: Vec<Tile>,
    row_stride: usize,
    map_distance: usize,
    maps_per_ciphertext: usize,
    /// Into how many parts the ring is cut; 1 for a layer that runs as a dense one.
    parts: usize,
    /// Channels of a block of the network's that these parts belong to; 1 for a layer that runs as a dense one.
    block: usize,
}

impl Layout {
    /// Lays out `spec` over an input of `in_shape`, with the default packing.
    ///
    /// # Errors
    /// When the kernel reaches further than the ring, or the layer falls into too many pieces.
    ///
    /// # Panics
    /// When the layer does not fit its input, which `Network::validate` excludes.
    pub fn new(ring_dim: usize, spec: &Linear, in_shape: Shape) -> Result<Self, LayoutError> {
        Self::with_packing(ring_dim, spec, in_shape, Packing::default())
    }

    /// As [`new`](Self::new), with a given packing.
    ///
    /// # Errors
    /// When the kernel reaches further than the ring, or the layer falls into too many pieces.
    ///
    /// # Panics
    /// When the layer does not fit its input, which `Network::validate` excludes.
    pub fn with_packing(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        packing: Packing,
    ) -> Result<Self, LayoutError> {
        Self::arrange(ring_dim, spec, in_shape, packing, false, 1, Images::ONE)
    }

    /// As [`with_packing`](Self::with_packing), but with a layer's skew-circulant blocks used: in as many parts as the largest
    /// divisor of the block size with which a query takes, by estimate, at most a tenth longer than with the fastest one; 1 is the dense
    /// layer. So the hint is small, and nothing is slow for it. Other layers run as dense ones.
    ///
    /// # Errors
    /// As `with_packing`.
    ///
    /// # Panics
    /// As `with_packing`.
    pub fn blocked(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        packing: Packing,
    ) -> Result<Self, LayoutError> {
        Self::blocked_images(ring_dim, spec, in_shape, packing, Images::ONE)
    }

    /// As [`blocked`](Self::blocked), of `images` images at once, a power of two: as many of them interleaved as a query takes the least
    /// time with, by estimate. A single image has the layout of `blocked`.
    ///
    /// # Errors
    /// As `with_packing`.
    ///
    /// # Panics
    /// As `with_packing`, and where `images` is not a power of two.
    pub fn of_images(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        packing: Packing,
        images: usize,
    ) -> Result<Self, LayoutError> {
        assert!(images.is_power_of_two(), "{images} images");
        let of = |interleaved| {
            Self::blocked_images(ring_dim, spec, in_shape, packing, Images { count: images, interleaved })
        };
        let mut best = of(1)?;
        let mut interleaved = 2;
        // (Where a kernel does not fit a ring, it does not fit a smaller one.)
        while interleaved <= images.min(ring_dim)
            && let Ok(other) = of(interleaved)
        {
            if other.query_microseconds() < best.query_microseconds() {
                best = other;
            }
            interleaved *= 2;
        }
        Ok(best)
    }

    /// As [`of_images`](Self::of_images), in exactly so many parts with exactly so many images interleaved.
    ///
    /// # Errors
    /// As `with_packing`.
    ///
    /// # Panics
    /// As [`in_parts`](Self::in_parts), and where `interleaved` is not a power of two that divides `images`.
    pub fn with_images(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        packing: Packing,
        (parts, images, interleaved): (usize, usize, usize),
    ) -> Result<Self, LayoutError> {
        assert!(
            interleaved.is_power_of_two() && images.is_multiple_of(interleaved),
            "{interleaved} of {images}"
        );
        let skew = spec.blocks.filter(|blocks| blocks.kind == BlockKind::Skew);
        assert!(parts == 1 || skew.is_some_and(|blocks| blocks.size.is_multiple_of(parts)), "{parts} parts");
        Self::arrange(ring_dim, spec, in_shape, packing, false, parts, Images { count: images, interleaved })
    }

    fn blocked_images(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        packing: Packing,
        images: Images,
    ) -> Result<Self, LayoutError> {
        let in_parts = |parts| Self::arrange(ring_dim, spec, in_shape, packing, false, parts, images);
        let dense = in_parts(1)?;
        let Some(Blocks { size, kind: BlockKind::Skew }) = spec.blocks else { return Ok(dense) };
        let mut layouts = vec![dense];
        let divisors = (1..=size.trailing_zeros()).map(|log| 1 << log);
        layouts.extend(divisors.filter_map(|parts| in_parts(parts).ok()));
        let estimates: Vec<f64> = layouts.iter().map(Self::query_microseconds).collect();
        let least = estimates.iter().copied().fold(f64::INFINITY, f64::min);
        let fast = layouts.into_iter().zip(estimates).rev().find(|(_, estimate)| *estimate <= 1.1 * least);
        Ok(fast.expect("the fastest one at least").0)
    }

    /// As [`with_packing`](Self::with_packing), in exactly so many parts.
    ///
    /// # Errors
    /// As `with_packing`.
    ///
    /// # Panics
    /// As `with_packing`, and where `parts` divides no skew-circulant block size of the layer.
    pub fn in_parts(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        packing: Packing,
        parts: usize,
    ) -> Result<Self, LayoutError> {
        Self::with_images(ring_dim, spec, in_shape, packing, (parts, 1, 1))
    }

    /// As [`new`](Self::new), but with rows a power of two apart where that takes no more ciphertexts: the rows of a kernel
    /// then fall together in [`jaguar_ring::spectral`]. More coefficients are read, since rows share fewer zeros.
    ///
    /// # Errors
    /// As `new`.
    ///
    /// # Panics
    /// As `new`.
    pub fn aligned(ring_dim: usize, spec: &Linear, in_shape: Shape) -> Result<Self, LayoutError> {
        let packing = Packing::default();
        let tight = Self::arrange(ring_dim, spec, in_shape, packing, false, 1, Images::ONE)?;
        match Self::arrange(ring_dim, spec, in_shape, packing, true, 1, Images::ONE) {
            Ok(aligned)
                if tight.reach[0] > 0
                    && aligned.tiles.len() <= tight.tiles.len()
                    && aligned.maps_per_ciphertext >= tight.maps_per_ciphertext =>
            {
                Ok(aligned)
            }
            _ => Ok(tight),
        }
    }

    fn arrange(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        packing: Packing,
        aligned: bool,
        parts: usize,
        images: Images,
    ) -> Result<Self, LayoutError> {
        let own_dim = ring_dim / images.interleaved;
        let [_, h, w] = in_shape;
        let [top, left, bottom, right] = spec.pads;
        few("taps", spec.kernel[0].saturating_mul(spec.kernel[1]), MAX_TAPS)?;
        let out = |axis: usize, size: usize, pads: usize| {
            (size + pads - spec.dilation[axis] * (spec.kernel[axis] - 1) - 1) / spec.stride[axis] + 1
        };
        let (oh, ow) = (out(0, h, top + bottom), out(1, w, left + right));
        let axes = [0, 1].map(|i| Axis::new(spec.kernel[i], spec.stride[i], spec.dilation[i]));
        let reach = axes.map(|axis| axis.reach());
        let plane = if reach == [0, 0] { [1, oh * ow] } else { [oh, ow] };

        let dense = spec.stride == [1, 1] && reach != [0, 0];
        // Columns of zeros that a row may share with the next, rows that a map may share with the next.
        let shared_columns = if dense { left.min(right) } else { 0 };
        let shared_rows = (dense && bottom <= top).then_some(top + h);

        let (tiles, row_stride, need) =
            tile(own_dim / parts, plane, reach, shared_columns, shared_rows, aligned)?;
        let groups = images.count / images.interleaved;
        few("tiles", tiles.len().saturating_mul(groups), MAX_TILES)?;
        let first_images = (0..groups).map(|group| group * images.interleaved);
        let tiles =
            first_images.flat_map(|image| tiles.iter().map(move |&tile| Tile { image, ..tile })).collect();
        // A shift of more than a part would wrap around twice, with another part's sign. A kernel may reach far past a small map.
        let furthest = reach[0] * row_stride + reach[1];
        let room = own_dim / parts;
        let fit = room / need;
        let map_distance = match packing {
            Packing::PowerOfTwo if fit >= POWER_FROM => need.next_power_of_two(),
            _ => room / fit,
        };
        let this = Self {
            ring_dim,
            images,
            spec: spec.clone(),
            in_shape,
            out_shape: [spec.out_channels, oh, ow],
            axes,
            plane,
            reach,
            tiles,
            row_stride,
            map_distance,
            maps_per_ciphertext: (room / map_distance).min((room - furthest) / map_distance + 1),
            parts,
            block: if parts == 1 { 1 } else { block_size(spec) },
        };
        few("ciphertexts", this.tiles.len().saturating_mul(this.ciphertexts_per_tile()), MAX_CIPHERTEXTS)?;
        let kinds = this.tiles.len() * this.components().min(this.ciphertexts_per_tile());
        few("kinds of ciphertexts", kinds, MAX_TILES)?;
        Ok(this)
    }

    /// N: how many coefficients a polynomial has.
    pub fn ring_dim(&self) -> usize {
        self.ring_dim
    }

    /// How many images it is of.
    pub(crate) fn images(&self) -> usize {
        self.images.count
    }

    /// g: how many images are interleaved.
    pub fn interleaved(&self) -> usize {
        self.images.interleaved
    }

    /// The convolution: its geometry and its shift.
    pub(crate) fn spec(&self) -> &Linear {
        &self.spec
    }

    /// `[C_in, H, W]` of an image.
    pub(crate) fn in_shape(&self) -> Shape {
        self.in_shape
    }

    /// `[C_out, H, W]` of an image.
    pub(crate) fn out_shape(&self) -> Shape {
        self.out_shape
    }

    /// The tiles that maps are cut into: a single one for each group of images if a map fits.
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// How many maps of an image share a ciphertext.
    pub fn maps_per_ciphertext(&self) -> usize {
        self.maps_per_ciphertext * self.parts
    }

    /// Into how many parts the ring is cut: how many channels a response holds.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// How many coefficients a part of a ciphertext has.
    pub fn part_len(&self) -> usize {
        self.ring_dim / self.parts
    }

    /// Channels of a block: output channels that are made together, from each multiple of it on. (1 where the layer runs as a
    /// dense one.)
    pub(crate) fn block(&self) -> usize {
        self.block
    }

    /// Which channel lies in part `part` where the ciphertexts or responses have number `row`.
    pub(crate) fn channel(&self, row: usize, part: usize) -> usize {
        let apart = self.block / self.parts;
        row / apart * self.block + row % apart + part * apart
    }

    /// Of a channel: the number of its row of parts, and its part.
    fn place(&self, channel: usize) -> (usize, usize) {
        let apart = self.block / self.parts;
        let within = channel % self.block;
        (channel / self.block * apart + within % apart, within / apart)
    }

    /// Coefficients from one row to the next.
    pub(crate) fn row_stride(&self) -> usize {
        self.row_stride * self.images.interleaved
    }

    /// Coefficients from one map to the next.
    pub(crate) fn map_distance(&self) -> usize {
        self.map_distance * self.images.interleaved
    }

    /// Whether an a half may be computed by way of a transform over the maps of a ciphertext, as far as the shape goes: they stand a
    /// power of two apart, as parts do, and there are enough of them. (With groups no two terms fall together.)
    pub fn transforms(&self) -> bool {
        let maps = self.maps_per_ciphertext >= POWER_FROM && self.map_distance.is_power_of_two();
        self.spec.groups == 1 && (self.parts >= POWER_FROM || maps)
    }

    /// Components of a channel; number `row's · columns' components + column's`.
    fn components(&self) -> usize {
        self.axes[0].components() * self.axes[1].components()
    }

    fn maps(&self) -> usize {
        (self.in_shape[0] / self.parts).saturating_mul(self.components())
    }

    /// What ciphertext `index` of any tile begins with, a channel and a component of it, how many maps each part of it holds, and where
    /// in its block that channel stands: two that differ in the channel alone hold the same at the same distances from it.
    pub(crate) fn maps_of(&self, index: usize) -> (usize, usize, usize, usize) {
        let first = index * self.maps_per_ciphertext;
        let row = first / self.components();
        (
            self.channel(row, 0),
            first % self.components(),
            self.maps_per_ciphertext.min(self.maps() - first),
            row % (self.block / self.parts),
        )
    }

    /// Input ciphertexts of one tile.
    pub(crate) fn ciphertexts_per_tile(&self) -> usize {
        self.maps().div_ceil(self.maps_per_ciphertext)
    }

    /// Input ciphertexts of the layer; number `tile · ciphertexts_per_tile + i`.
    pub fn ciphertexts(&self) -> usize {
        self.tiles.len() * self.ciphertexts_per_tile()
    }

    /// Responses of one tile: one for every output channel, or for as many as there are parts ([`channel`](Self::channel)).
    pub(crate) fn responses_per_tile(&self) -> usize {
        self.out_shape[0] / self.parts
    }

    /// Responses of the layer; number `tile · responses_per_tile + row`.
    pub fn responses(&self) -> usize {
        self.tiles.len() * self.responses_per_tile()
    }

    /// Values of the input, of all images.
    pub fn inputs(&self) -> usize {
        self.images.count * self.in_shape.iter().product::<usize>()
    }

    /// Values of the output, of all images.
    pub fn outputs(&self) -> usize {
        self.images.count * self.out_shape.iter().product::<usize>()
    }

    /// Values of an output channel, of all images.
    pub(crate) fn plane_len(&self) -> usize {
        let [_, h, w] = self.out_shape;
        self.images.count * h * w
    }

    /// How many terms a single output adds up.
    pub fn terms_per_output(&self) -> usize {
        self.in_shape[0] / self.spec.groups * self.spec.kernel[0] * self.spec.kernel[1]
    }

    /// Coefficients from the first to the last exported one of a tile, both included; in each part.
    pub fn export_len(&self, tile: &Tile) -> usize {
        ((tile.height - 1) * self.row_stride + tile.width) * self.images.interleaved
    }

    /// For the outputs of one channel of one image in a tile, row by row: first coefficient in the response's part in the ring of
    /// dimension N/g, first index in the image's `[H, W]` plane, and how many follow.
    pub(crate) fn exports<'a>(&'a self, tile: &'a Tile) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
        (0..tile.height)
            .map(move |r| (r * self.row_stride, (tile.row + r) * self.plane[1] + tile.column, tile.width))
    }

    /// For the outputs of one channel in a tile, `f` is called with the index in its image's `[H, W]` plane, the value in `plane`
    /// (`[image, H, W]`, all images), and the coefficient of the response's part, of which `coefficients` has the first
    /// [`export_len`](Self::export_len).
    #[inline]
    pub(crate) fn each_export(
        &self,
        tile: &Tile,
        coefficients: &[u64],
        plane: &mut [u64],
        mut f: impl FnMut(usize, &mut u64, u64),
    ) {
        let (interleaved, len) = (self.images.interleaved, plane.len() / self.images.count);
        let plane = &mut plane[tile.image * len..];
        for (from, to, width) in self.exports(tile) {
            if interleaved == 1 {
                let values = plane[to..to + width].iter_mut().zip(&coefficients[from..from + width]);
                values.enumerate().for_each(|(i, (y, &c))| f(to + i, y, c));
                continue;
            }
            for (image, plane) in plane.chunks_mut(len).take(interleaved).enumerate() {
                let own = coefficients[from * interleaved + image..].iter().step_by(interleaved);
                let values = plane[to..to + width].iter_mut().zip(own);
                values.enumerate().for_each(|(i, (y, &c))| f(to + i, y, c));
            }
        }
    }

    /// The terms of an output channel of `group` (in part 0, if there are several), in the order of its weights
    /// `[C_in/groups, k_h, k_w]`: which ciphertext of the tile, and shifted down by how much.
    pub(crate) fn terms(&self, group: usize) -> Vec<(usize, usize)> {
        let channels = self.in_shape[0] / self.spec.groups;
        let [rows, columns] = self.axes;
        let mut terms = Vec::with_capacity(self.terms_per_output());
        for c in group * channels..(group + 1) * channels {
            for u in 0..rows.kernel {
                for v in 0..columns.kernel {
                    let component = rows.component(u) * columns.components() + columns.component(v);
                    let (row, part) = self.place(c);
                    let map = row * self.components() + component;
                    let shift = rows.down(u) * self.row_stride + columns.down(v);
                    terms.push((
                        map / self.maps_per_ciphertext,
                        part * self.part_len()
                            + (map % self.maps_per_ciphertext * self.map_distance + shift)
                                * self.images.interleaved,
                    ));
                }
            }
        }
        terms
    }

    /// Which coefficients of ciphertext `index` of `tile` any output reads (only these are sent), and which of
    /// them hold which input value: `(coefficient, index into [C, image, H, W])`. The others that are read encrypt zero. Of image 0 alone,
    /// in the ring of dimension N/g: image i of the tile has its values i·H·W further, the tile's first image counted.
    pub fn contents(&self, tile: &Tile, index: usize) -> Contents {
        let own_dim = self.ring_dim / self.images.interleaved;
        let mut read = vec![false; own_dim];
        let mut data = Vec::new();
        let [_, h, w] = self.in_shape;
        let first = index * self.maps_per_ciphertext;
        let maps = first..self.maps().min(first + self.maps_per_ciphertext);
        for (part, map) in (0..self.parts).flat_map(|part| maps.clone().map(move |map| (part, map))) {
            let (channel, component) = (self.channel(map / self.components(), part), map % self.components());
            let base = part * (own_dim / self.parts) + (map - first) * self.map_distance;
            let [rows, columns] = self.axes;
            let of = [component / columns.components(), component % columns.components()];
            let offset = [rows.offset(of[0]), columns.offset(of[1])];
            let across = columns.seen(of[1], tile.width);
            let places = rows.seen(of[0], tile.height).flatten();
            for (r, x) in places.flat_map(|r| across.clone().flatten().map(move |x| (r, x))) {
                let at = (base + r * self.row_stride + x) % own_dim;
                read[at] = true;
                // The place in the output plane that a 1x1 kernel would compute from here.
                let (py, px) = if self.plane[0] == self.out_shape[1] {
                    (tile.row + r, tile.column + x)
                } else {
                    ((tile.column + x) / self.out_shape[2], (tile.column + x) % self.out_shape[2])
                };
                let y = (py * self.spec.stride[0] + offset[0]).checked_sub(self.spec.pads[0]);
                let z = (px * self.spec.stride[1] + offset[1]).checked_sub(self.spec.pads[1]);
                if let (Some(y), Some(z)) = (y, z)
                    && y < h
                    && z < w
                {
                    data.push((at as u32, ((channel * self.images.count * h + y) * w + z) as u32));
                }
            }
        }
        let read = read.iter().enumerate().filter(|(_, r)| **r).map(|(i, _)| i as u32).collect();
        Contents { read, data }
    }
}

/// What one input ciphertext holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The coefficients that some output reads, ascending.
    pub read: Vec<u32>,
    /// Input values: `(coefficient, index into the input tensor)`.
    pub data: Vec<(u32, u32)>,
}

/// Cuts `plane` into as few tiles as the ring allows; where a map is one tile, maps may share zero rows down to `shared_rows` rows
/// a map. Returns them with the row stride (a power of two if `aligned`) and the coefficients that a map needs.
fn tile(
    ring_dim: usize,
    plane: [usize; 2],
    reach: [usize; 2],
    shared_columns: usize,
    shared_rows: Option<usize>,
    aligned: bool,
) -> Result<(Vec<Tile>, usize, usize), LayoutError> {
    let [oh, ow] = plane;
    let footprint = |th: usize, tw: usize| {
        let stride = tw + reach[1] - if tw == ow { shared_columns } else { 0 };
        let stride = if aligned { stride.next_power_of_two() } else { stride };
        let full = (th + reach[0] - 1) * stride + tw + reach[1];
        let need = match shared_rows {
            // Where the padding is deeper than the kernel reaches, there are outputs beyond the shared rows.
            Some(rows) if th == oh && tw == ow => (rows * stride).min(full).max((th - 1) * stride + tw),
            _ => full,
        };
        (stride, need.max(reach[0] * stride + reach[1]))
    };
    let mut best: Option<(usize, usize, usize)> = None; // (tiles, th, tw)
    for parts in 1..=ow {
        let tw = ow.div_ceil(parts);
        if tw * (parts - 1) >= ow {
            continue; // the same width as with fewer parts
        }
        // The largest height that fits, by bisection: the footprint grows with it.
        let (mut low, mut high) = (0, oh);
        while low < high {
            let th = (low + high).div_ceil(2);
            if footprint(th, tw).1 <= ring_dim { low = th } else { high = th - 1 }
        }
        if low > 0 {
            let rows = oh.div_ceil(low);
            let count = rows * ow.div_ceil(tw);
            if best.is_none_or(|(c, ..)| count < c) {
                best = Some((count, oh.div_ceil(rows), tw));
            }
        }
        if best.is_some_and(|(c, ..)| parts >= c) {
            break; // more columns of tiles than the best has tiles
        }
    }
    let too_large = LayoutError::KernelTooLarge { reach: reach[0] * (1 + reach[1]) + reach[1] + 1, ring_dim };
    let (count, th, tw) = best.ok_or(too_large)?;
    few("tiles", count, MAX_TILES)?;
    let (row_stride, need) = footprint(th, tw);
    let mut tiles = Vec::new();
    for row in (0..oh).step_by(th) {
        for column in (0..ow).step_by(tw) {
            tiles.push(Tile { image: 0, row, column, height: th.min(oh - row), width: tw.min(ow - column) });
        }
    }
    Ok((tiles, row_stride, need))
}

#[cfg(test)]
mod tests;
