//! HME: a matrix product as a product of polynomials (Fregata, section IV-A and appendix).
//!
//! For W of m × n and M of n × k with m·n·k <= N:
//!
//! ```text
//! Ŵ[i·n·k + j] = W[i,j]      M̂[n·k − j·n − i − 1] = M[i,j]      (Ŵ·M̂)[i·n·k − j·n + k·n − 1] = (W·M)[i,j]
//! ```
//!
//! all other coefficients of Ŵ and M̂ being zero. (The text's indices in EncMat and DecMat are garbled; the appendix's
//! are these.) Larger products fall into tiles of m' × n' × k': ciphertexts hold n' × k' of M, responses m' × k' of
//! the product, and the server adds up over n.
//!
//! **Convolutions** are matrix products of the kernels, m = C_out and n = C_in·h·w of the kernel, with *patches*:
//! column j of M is what output j reads, zeros where it reads beyond the border. So strides, dilations and pads cost
//! nothing but the values that they read. The columns of a tile are its outputs from the last to the first: then
//! outputs ascend with their coefficients.
//!
//! **Groups** have a product each. Where several fit a ring, they share one: the matrix W of a *bundle* of b groups is
//! block diagonal, of b·m × b·n. So b groups take b² the room of one, and save ciphertexts where a product fills less
//! than 1/b² of N.

use std::ops::Range;

use jaguar_graph::network::{Linear, Shape, Weights};

use jaguar_cheetah::{Encoding, LayerError, MAX_WINDOWS, Sizes, parts, standard_ring};

/// How one product falls into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// b: how many groups share a ciphertext. Where it is more than one, `rows` and `terms` are whole bundles.
    pub groups: usize,
    /// m': rows of W.
    pub rows: usize,
    /// n': columns of W, rows of M.
    pub terms: usize,
    /// k': columns of M.
    pub columns: usize,
}

/// How tilings are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tilings {
    /// The least time of both parties and of the link together (`Prices`).
    Cheapest,
    /// As the paper counts ciphertexts (Table IV): all of W in a polynomial and as many columns of M as fit; where W
    /// is too large, one column, and as many rows as fit.
    Paper,
}

/// What a tiling is judged by, in microseconds. Both parties must choose alike, so these are constants: what `jaguar
/// calibrate` measures in a ring of two primes on a core of Zen 4, in round figures, and a link of 1 Gbit/s each way.
struct Prices;

impl Prices {
    /// Both parties' work for a ciphertext: encryption, and both halves transformed.
    const CIPHERTEXT: f64 = 80.0;
    /// Both parties' work for a response: an encryption of zero, back from the transform, rounding, decryption.
    const RESPONSE: f64 = 80.0;
    /// A product of a ciphertext with a polynomial of weights.
    const PRODUCT: f64 = 4.0;
    /// A polynomial of weights transformed, which a server without memory for all does in every query.
    const WEIGHTS: f64 = 15.0;
    /// A byte on the link.
    const BYTE: f64 = 0.008;
}

/// Where a linear layer's inputs, weights and outputs sit, as a matrix product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    ring_dim: usize,
    spec: Linear,
    in_shape: Shape,
    out_shape: Shape,
    tiling: Tiling,
}

impl Matrix {
    /// The layer's product with the best tiling.
    ///
    /// # Errors
    /// When it takes too many ciphertexts.
    ///
    /// # Panics
    /// When the layer does not fit its input, which `Network::validate` excludes.
    pub(super) fn new(
        ring_dim: usize,
        spec: &Linear,
        in_shape: Shape,
        sizes: Sizes,
        tilings: Tilings,
    ) -> Result<Self, LayerError> {
        let [oh, ow] = spec.output_hw(in_shape).expect("a layer that fits its input");
        let out_shape = [spec.out_channels, oh, ow];
        let with = |tiling| Self { ring_dim, spec: spec.clone(), in_shape, out_shape, tiling };
        let ([rows, terms, columns], groups) = (with(Tiling::ONE).dimensions(), spec.groups);
        let best = match tilings {
            Tilings::Paper => with(Tiling::of_paper(ring_dim, [rows.min(sizes.max_outs), terms, columns])),
            Tilings::Cheapest => {
                // Only what fits: hostile networks have layers with thousands of parts either way.
                let most_rows = sizes.max_outs.min(ring_dim);
                let terms_in_parts: Vec<usize> = parts(terms).filter(|&terms| terms <= ring_dim).collect();
                let one_group = parts(rows).filter(|&rows| rows <= most_rows).flat_map(|rows| {
                    let first = terms_in_parts.partition_point(|&terms| terms > ring_dim / rows);
                    let fitting = terms_in_parts[first..].iter();
                    fitting.map(move |&terms| Tiling { groups: 1, rows, terms, columns: 0 })
                });
                let bundles = parts(groups).filter(|&b| b > 1).map(|b| Tiling {
                    groups: b,
                    rows: b.saturating_mul(rows),
                    terms: b.saturating_mul(terms),
                    columns: 0,
                });
                let bundles = bundles.filter(|tiling| tiling.rows <= sizes.max_outs);
                let mut best: Option<(f64, Self)> = None;
                for tiling in one_group.chain(bundles) {
                    let area = tiling.rows.saturating_mul(tiling.terms);
                    if area > ring_dim {
                        continue;
                    }
                    // The columns in equal parts.
                    let columns = columns.div_ceil(columns.div_ceil(ring_dim / area));
                    let matrix = with(Tiling { columns, ..tiling });
                    let cost = matrix.cost(sizes);
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        best = Some((cost, matrix));
                    }
                }
                best.ok_or(LayerError::KernelTooLarge { ring_dim })?.1
            }
        };
        // (Each count by itself is far below 2^64: a network's layers have at most 2^26 values.)
        let pieces = best.ciphertexts().max(best.responses()).max(best.products_per_tile());
        if pieces > MAX_WINDOWS {
            return Err(LayerError::Windows { windows: pieces });
        }
        Ok(best)
    }

    /// The tiling.
    pub fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// `[m, n, k]` of one group.
    pub fn dimensions(&self) -> [usize; 3] {
        let [channels, h, w] = self.out_shape;
        [channels / self.spec.groups, self.terms(), h * w]
    }

    /// Microseconds.
    fn cost(&self, sizes: Sizes) -> f64 {
        let up = Prices::CIPHERTEXT + sizes.up as f64 * Prices::BYTE;
        let down = Prices::RESPONSE + sizes.down as f64 * Prices::BYTE;
        self.ciphertexts() as f64 * up
            + self.responses() as f64 * down
            + self.products() as f64 * Prices::PRODUCT
            + self.products_per_tile() as f64 * Prices::WEIGHTS
    }

    /// Blocks of rows and of terms that a bundle of groups has.
    fn blocks_of_bundle(&self) -> (usize, usize) {
        let (Tiling { groups, rows, terms, .. }, [m, n, _]) = (self.tiling, self.dimensions());
        ((groups * m).div_ceil(rows), (groups * n).div_ceil(terms))
    }

    fn bundles(&self) -> usize {
        self.spec.groups.div_ceil(self.tiling.groups)
    }

    /// The rows of W in block `block`: of each that there is, its place in the block, and its output channel.
    fn rows_of(&self, block: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (Tiling { groups, rows, .. }, [m, ..]) = (self.tiling, self.dimensions());
        let blocks = self.blocks_of_bundle().0;
        let (bundle, first) = (block / blocks, block % blocks * rows);
        let channels = self.out_shape[0];
        let channel = move |row: usize| bundle * groups * m + first + row;
        (0..rows.min(groups * m - first))
            .map(move |row| (row, channel(row)))
            .take_while(move |row| row.1 < channels)
    }

    /// The rows of M in block `block`: of each that there is, its place in the block, its group, and which of the
    /// group's terms it is.
    fn terms_of(&self, block: usize) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (Tiling { groups, terms, .. }, [_, n, _]) = (self.tiling, self.dimensions());
        let blocks = self.blocks_of_bundle().1;
        let (bundle, first) = (block / blocks, block % blocks * terms);
        let all = self.spec.groups;
        (0..terms.min(groups * n - first))
            .map(move |i| (i, bundle * groups + (first + i) / n, (first + i) % n))
            .take_while(move |term| term.1 < all)
    }

    /// The columns of a tile.
    fn columns_of(&self, tile: usize) -> Range<usize> {
        let first = tile * self.tiling.columns;
        first..(first + self.tiling.columns).min(self.dimensions()[2])
    }
}

impl Tiling {
    /// One value at a time.
    const ONE: Self = Self { groups: 1, rows: 1, terms: 1, columns: 1 };

    /// As the paper counts.
    fn of_paper(ring_dim: usize, [m, n, k]: [usize; 3]) -> Self {
        let terms = n.min(ring_dim);
        let rows = m.min(ring_dim / terms);
        Self { groups: 1, rows, terms, columns: k.min(ring_dim / (rows * terms)) }
    }
}

impl Encoding for Matrix {
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

    /// Blocks of columns.
    fn tile_count(&self) -> usize {
        self.dimensions()[2].div_ceil(self.tiling.columns)
    }

    fn in_blocks(&self) -> usize {
        self.bundles() * self.blocks_of_bundle().1
    }

    fn out_blocks(&self) -> usize {
        self.bundles() * self.blocks_of_bundle().0
    }

    fn inputs_of(&self, out_block: usize) -> Range<usize> {
        let (rows, terms) = self.blocks_of_bundle();
        let bundle = out_block / rows;
        bundle * terms..(bundle + 1) * terms
    }

    fn products_per_tile(&self) -> usize {
        self.out_blocks() * self.blocks_of_bundle().1
    }

    /// (In a bundle, a row has its own group's terms only.)
    fn terms_per_response(&self) -> usize {
        self.tiling.rows * self.terms()
    }

    fn write_inputs(&self, tile: usize, block: usize, x: &[u64], to: &mut [u64]) {
        let ([_, h, w], [_, _, out_w], spec) = (self.in_shape, self.out_shape, &self.spec);
        let (n, taps) = (self.tiling.terms, spec.kernel[0] * spec.kernel[1]);
        let per_group = self.in_shape[0] / spec.groups;
        let columns = self.columns_of(tile);
        for (i, group, term) in self.terms_of(block) {
            let channel = &x[(group * per_group + term / taps) * h * w..][..h * w];
            let tap = [term % taps / spec.kernel[1], term % spec.kernel[1]];
            // What output `at` reads along an axis, if that is in the map.
            let read = |axis: usize, at: usize, size: usize| {
                let padded = at * spec.stride[axis] + tap[axis] * spec.dilation[axis];
                padded.checked_sub(spec.pads[axis]).filter(|&from| from < size)
            };
            // Row by row of the output.
            let mut at = columns.start;
            while at < columns.end {
                let (y, end) = (at / out_w, (at / out_w + 1) * out_w);
                let end = end.min(columns.end);
                if let Some(row) = read(0, y, h) {
                    for column in at..end {
                        if let Some(from) = read(1, column - y * out_w, w) {
                            to[(column - columns.start) * n + n - 1 - i] = channel[row * w + from];
                        }
                    }
                }
                at = end;
            }
        }
    }

    fn write_weights(&self, out_block: usize, in_block: usize, weights: &Weights, to: &mut [i32]) {
        let (Tiling { terms, columns, .. }, [m, n, _]) = (self.tiling, self.dimensions());
        for (row, channel) in self.rows_of(out_block) {
            let exponent = weights.exponent(channel);
            for (i, group, term) in self.terms_of(in_block) {
                if group == channel / m {
                    let weight = i32::from(weights.weights[channel * n + term]);
                    to[row * terms * columns + i] = weight << exponent;
                }
            }
        }
    }

    fn exports(&self, tile: usize, block: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let (Tiling { terms, columns, .. }, [_, _, k]) = (self.tiling, self.dimensions());
        let own = self.columns_of(tile);
        self.rows_of(block).map(move |(row, channel)| {
            (row * terms * columns + terms - 1, channel * k + own.start, own.len())
        })
    }

    fn column_stride(&self) -> usize {
        self.tiling.terms
    }

    fn maps_per_ciphertext(&self) -> usize {
        self.tiling.terms.div_ceil(self.spec.kernel[0] * self.spec.kernel[1])
    }

    fn figures(&self) -> Vec<u64> {
        let Tiling { groups, rows, terms, columns } = self.tiling;
        [groups, rows, terms, columns].map(|v| v as u64).to_vec()
    }
}

/// A layer over RNS rings whose products are matrix products: shares are modulo `2^share_bits`, `weight_bits` bounds
/// the weights, and the noise may have a standard deviation of `most` units of the products' last place.
///
/// # Errors
/// When it does not fit the ring, takes too many ciphertexts, or its noise would show.
///
/// # Panics
/// When the layer does not fit its input, which `Network::validate` excludes.
pub fn layer(
    spec: &Linear,
    in_shape: Shape,
    (share_bits, weight_bits): (u32, u32),
    most: f64,
    tilings: Tilings,
) -> Result<jaguar_cheetah::Layer<Matrix>, LayerError> {
    let encode = |ring_dim, sizes| Matrix::new(ring_dim, spec, in_shape, sizes, tilings);
    jaguar_cheetah::Layer::encoded(standard_ring, spec, in_shape, (share_bits, weight_bits), most, encode)
}
