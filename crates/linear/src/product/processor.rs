//! The processor's product, on the kernels of [`jaguar_ring::gemm`].
//!
//! A strided convolution is a sum of stride-1 convolutions of *components*: every s-th row and column of a padded
//! channel, from each row and column below s on that a tap reads. With row (channel, component) of `H'·W'` words, H'
//! and W' being what the outputs and the reach of the taps need, tap (u, v) brings word `(u·d/s)·W' + v·d/s + j` to
//! position j, and output (y, x) is position `y·W' + x`.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::{Linear, Shape, Weights};
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::gemm::{PackedWeights, TILE, Term, spa_gemm, spa_gemm_part};
use jaguar_ring::planes::LimbPlanes;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{Device, DeviceProduct, ProductShape, Running, channels_together};

/// The processor, with the instructions of a `Cpu` and the threads of the current rayon pool.
pub struct Processor(pub Cpu);

impl Device for Processor {
    fn describe(&self) -> String {
        "processor".into()
    }

    fn load(&self, shape: ProductShape<'_>, weights: &Weights) -> Arc<dyn DeviceProduct> {
        Arc::new(OnProcessor::new(Kernel::of(self.0), shape, weights))
    }
}

/// One axis of a convolution, cut into components.
#[derive(Clone, Debug)]
struct Axis {
    stride: usize,
    pad: usize,
    size: usize,
    /// Which row of the padded map each component begins with.
    components: Vec<usize>,
    /// By tap: its component, and how many rows down.
    taps: Vec<(usize, usize)>,
    /// Rows of a component.
    rows: usize,
}

impl Axis {
    fn new(spec: &Linear, axis: usize, size: usize, outputs: usize) -> Self {
        let (stride, pad) = (spec.stride[axis], spec.pads[axis]);
        let mut components = Vec::new();
        let mut taps = Vec::new();
        for tap in 0..spec.kernel[axis] {
            let at = tap * spec.dilation[axis];
            let component = components.iter().position(|&c| c == at % stride).unwrap_or_else(|| {
                components.push(at % stride);
                components.len() - 1
            });
            taps.push((component, at / stride));
        }
        let reach = taps.iter().map(|&(_, down)| down).max().unwrap_or(0);
        Self { stride, pad, size, components, taps, rows: outputs + reach }
    }

    /// Which row of the map row `at` of a component is, if it is in the map.
    fn from(&self, component: usize, at: usize) -> Option<usize> {
        let padded = at * self.stride + self.components[component];
        padded.checked_sub(self.pad).filter(|&from| from < self.size)
    }
}

/// How many words of an output channel are computed, positions between rows included.
pub fn product_len(spec: &Linear, [_, oh, ow]: Shape) -> usize {
    let reach = (spec.kernel[1] - 1) * spec.dilation[1] / spec.stride[1];
    (oh - 1) * (ow + reach) + ow
}

/// A layer's weights, packed for the kernels.
struct OnProcessor {
    kernel: Kernel,
    bits: u32,
    in_shape: Shape,
    out_shape: Shape,
    axes: [Axis; 2],
    /// One for each group of channels.
    weights: Vec<PackedWeights>,
    /// One for each group of channels.
    terms: Vec<Vec<Term>>,
    /// By output channel; empty: none.
    exponents: Vec<u8>,
}

impl OnProcessor {
    fn new(kernel: Kernel, shape: ProductShape<'_>, weights: &Weights) -> Self {
        let ProductShape { spec, in_shape, bits, weight_bits } = shape;
        let [oh, ow] = spec.output_hw(in_shape).expect("a layer that fits its input");
        let axes = [Axis::new(spec, 0, in_shape[1], oh), Axis::new(spec, 1, in_shape[2], ow)];
        let (per_group, outs) = (in_shape[0] / spec.groups, spec.out_channels / spec.groups);
        let each = per_group * spec.kernel[0] * spec.kernel[1];
        let of_group = |w: &[i16]| PackedWeights::new(outs, each, weight_bits, w);
        let packed = weights.weights.chunks(outs * each).map(of_group).collect();
        let [rows, columns] = &axes;
        let per_channel = rows.components.len() * columns.components.len();
        let terms_of = |group: usize| -> Vec<Term> {
            let channels = group * per_group..(group + 1) * per_group;
            let taps = rows.taps.iter().flat_map(|&u| columns.taps.iter().map(move |&v| (u, v)));
            let term = |channel: usize, ((py, dy), (px, dx)): ((usize, usize), (usize, usize))| Term {
                row: (channel * per_channel + py * columns.components.len() + px) as u32,
                offset: (dy * columns.rows + dx) as u32,
            };
            channels.flat_map(|c| taps.clone().map(move |tap| term(c, tap))).collect()
        };
        let terms = (0..spec.groups).map(terms_of).collect();
        Self {
            kernel,
            bits,
            in_shape,
            out_shape: [spec.out_channels, oh, ow],
            weights: packed,
            terms,
            exponents: weights.exponents.clone(),
            axes,
        }
    }

    /// Words of an output channel: see [`product_len`].
    fn len(&self) -> usize {
        let [_, oh, ow] = self.out_shape;
        (oh - 1) * self.axes[1].rows + ow
    }

    /// What a part must be a multiple of: whole groups, or whole tiles of the product.
    fn indivisible(&self) -> usize {
        if self.weights.len() == 1 { TILE } else { self.out_shape[0] / self.weights.len() }
    }
}

impl DeviceProduct for OnProcessor {
    fn begin(self: Arc<Self>, x: &[u64]) -> Box<dyn Running> {
        let ([channels, h, w], [rows, columns]) = (self.in_shape, &self.axes);
        assert_eq!(x.len(), channels * h * w, "input of another shape");
        let per_channel = rows.components.len() * columns.components.len();
        let size = rows.rows * columns.rows;
        let mut planes = LimbPlanes::new(self.kernel, self.bits, channels * per_channel, size);
        let each: Vec<_> = planes.rows_mut().enumerate().collect();
        each.into_par_iter().for_each_init(
            || Zeroizing::new(vec![0u64; size]),
            |words, (i, mut row)| {
                let channel = &x[i / per_channel * h * w..][..h * w];
                let (py, px) = (i % per_channel / columns.components.len(), i % columns.components.len());
                words.fill(0);
                for (y, to) in words.chunks_mut(columns.rows).enumerate() {
                    let Some(from) = rows.from(py, y) else { continue };
                    let line = &channel[from * w..][..w];
                    for (at, word) in to.iter_mut().enumerate() {
                        if let Some(from) = columns.from(px, at) {
                            *word = line[from];
                        }
                    }
                }
                row.set(words);
            },
        );
        Box::new(Computing { product: self, planes })
    }
}

struct Computing {
    product: Arc<OnProcessor>,
    planes: LimbPlanes,
}

impl Running for Computing {
    fn together(&self) -> usize {
        let product = &self.product;
        let work = product.len().saturating_mul(product.terms[0].len());
        channels_together(product.out_shape[0], work, product.indivisible())
    }

    fn channels(&mut self, channels: Range<usize>, out: &mut [u64]) {
        let Self { product, planes } = self;
        let ([_, oh, ow], len, stride) = (product.out_shape, product.len(), product.axes[1].rows);
        assert_eq!(out.len(), channels.len() * oh * ow, "room for these channels");
        let mut sums = vec![0; channels.len() * len];
        if let [weights] = &product.weights[..] {
            spa_gemm_part(
                planes.kernel(),
                planes,
                &product.terms[0],
                weights,
                channels.clone(),
                len,
                &mut sums,
                len,
            );
        } else {
            let outs = product.out_shape[0] / product.weights.len();
            assert!(channels.start.is_multiple_of(outs), "whole groups");
            let first = channels.start / outs;
            sums.par_chunks_mut(outs * len).enumerate().for_each(|(g, sums)| {
                spa_gemm(planes, &product.terms[first + g], &product.weights[first + g], len, sums, len);
            });
        }
        let low = u64::MAX >> (64 - product.bits);
        let each = out.par_chunks_mut(oh * ow).zip(sums.par_chunks(len)).zip(channels);
        each.for_each(|((out, sums), channel)| {
            let exponent = product.exponents.get(channel).copied().unwrap_or(0);
            for (y, out) in out.chunks_mut(ow).enumerate() {
                out.iter_mut().zip(&sums[y * stride..]).for_each(|(out, &sum)| *out = sum << exponent & low);
            }
        });
    }
}
