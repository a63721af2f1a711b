//! SPA-Conv with the export that Jaguar's paper describes: **it reveals the server's weights to the client**. It
//! exists to reproduce and measure the paper; no session can select it.
//!
//! `[⌊(Σ w·x + bias) / 2^f⌋] mod 2^(ℓ-f)  <-  Linear([x] mod 2^ℓ)`, exact (no rounding error). Jaguar, section 3.1 (algorithms 1
//! and 2, theorem 1), 3.3, figure 4 and appendix J.2; q = 2^54, both halves at query time.
//!
//! 1. The client encrypts its share: `(a, b)` with `b + a·s = Δ·m + e`, Δ = 2^(54-ℓ), and sends both halves.
//! 2. The server adds its share and the bias, and evaluates SPA-Conv on both halves.
//! 3. It shifts both down by f, masks b with Δ·r at the target precision, and sends a whole and b at the outputs.
//! 4. The client decodes in two steps: divide by Δ/2^f and round, then shift down by f.
//!
//! Exact if `‖e‖∞ + 2^f·(1 + ‖s‖₁) < Δ/2` (theorem 1), where e is the noise after the convolution.
//!
//! # What it leaks
//!
//! The client sees, in clear: the low f bits of every product m, since the mask covers only what is above them; a = Σ w·X^shift·a_c
//! with every a_c known to it; and the noise Σ w·e_c with every e_c known to it. The first alone gives the weights of a layer whose
//! input it knows (the first) by elimination modulo 2^f: see this module's tests. The parameters fall short of 128 bits too.

use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::gemm::{PackedWeights, Rows, Term, spa_gemm, spa_words};
use jaguar_ring::he::power_of_two::{Parameters, QuerySecret, Ring};
use jaguar_ring::planes::LimbPlanes;
use jaguar_ring::prg::Prg;
use jaguar_ring::spectral::{Spectral, SpectralProduct, SpectralWeights, Wanted};
use rayon::prelude::*;

use crate::inputs::Inputs;
use crate::jaguar::gemm_terms;
use crate::layout::{Layout, LayoutError};

/// The published parameters: 126 bits by today's estimates.
pub fn insecure_published_parameters() -> Parameters {
    Parameters::insecure(2048, 54)
}

/// A layer in the published form.
#[derive(Clone)]
pub struct InsecurePublishedLayer {
    params: Parameters,
    layout: Layout,
    inputs: Inputs,
    /// ℓ: bits of the plaintext modulus.
    plaintext_bits: u32,
}

/// The same with the server's weights, in the order in which its products read them.
pub struct InsecurePublishedServer {
    kernel: Kernel,
    layer: InsecurePublishedLayer,
    /// By output channel; empty: all zero.
    exponents: Vec<u8>,
    bias: Bias,
    /// The largest shift of a term.
    reach: usize,
    groups: Vec<Group>,
    /// How a and b are computed.
    ways: [Way; 2],
}

/// The outputs that read the same rows.
struct Group {
    /// Numbers of the rows that it reads, ascending.
    rows: Vec<usize>,
    /// Rows are numbered as in the tile.
    terms: Vec<Term>,
    /// Rows are numbered as in `rows`.
    own_terms: Vec<Term>,
    weights: PackedWeights,
}

impl Group {
    fn new(terms: Vec<Term>, weights: PackedWeights) -> Self {
        let mut rows: Vec<usize> = terms.iter().map(|term| term.row as usize).collect();
        rows.sort_unstable();
        rows.dedup();
        let own = |term: &Term| rows.partition_point(|&row| row < term.row as usize) as u32;
        let own_terms = terms.iter().map(|term| Term { row: own(term), offset: term.offset }).collect();
        Self { rows, terms, own_terms, weights }
    }
}

/// How a half is computed; all give the same bits.
enum Way {
    /// Word by word: where so few outputs share a row that nothing pays which is done to it first.
    Words,
    /// By a transform over the maps of a row, or over its rows.
    Frequencies(Box<Spectral>, SpectralWeights),
    /// By the limb planes' matrix product.
    Limbs,
}

/// The halves of a ciphertext, as indices.
const A: usize = 0;
const B: usize = 1;

/// Outputs of a group up to which words are multiplied as they are.
const FEW_OUTS: usize = 2;

/// What the client sends.
pub struct Upload {
    /// Both halves of every input ciphertext, tile by tile.
    ciphertexts: Vec<[Vec<u64>; 2]>,
}

/// What the server sends back.
#[derive(Default)]
pub struct Export {
    /// a shifted down by f, `[response][N]` words modulo 2^(54-f).
    a: Vec<u64>,
    /// b shifted down by f and masked, at the outputs `[C, H, W]`.
    b: Vec<u64>,
    memory: Memory,
}

/// What the server works on, used again by the next query.
#[derive(Default)]
struct Memory {
    planes: Option<LimbPlanes>,
    words: Vec<u64>,
}

impl InsecurePublishedLayer {
    /// A layer whose products are taken modulo 2^`plaintext_bits`.
    ///
    /// # Errors
    /// When the kernel does not fit the ring.
    pub fn new(
        params: Parameters,
        spec: &Linear,
        in_shape: Shape,
        plaintext_bits: u32,
    ) -> Result<Self, LayoutError> {
        let layout = Layout::aligned(params.ring_dim(), spec, in_shape)?;
        Ok(Self { inputs: Inputs::new(&layout)?, layout, params, plaintext_bits })
    }

    fn shift(&self) -> u32 {
        self.layout.spec().shift
    }

    fn delta_bits(&self) -> u32 {
        self.params.modulus_bits() - self.plaintext_bits
    }

    /// Modulus of the exported words.
    fn exported_mask(&self) -> u64 {
        self.params.mask() >> self.shift()
    }

    /// Whether theorem 1 covers noise of at most `noise` after the convolution, under a secret of this 1-norm.
    pub fn is_exact(&self, noise: u64, secret_norm: u64) -> bool {
        noise + ((1 + secret_norm) << self.shift()) < 1 << (self.delta_bits() - 1)
    }

    /// Step 1, client.
    pub fn encrypt(&self, ring: &Ring, secret: &QuerySecret, x: &[u64], prg: &mut Prg) -> Upload {
        let mut ciphertexts = Vec::new();
        for i in 0..self.layout.ciphertexts() {
            let mut a = vec![0; self.params.ring_dim()];
            prg.fill_words(&mut a, self.params.modulus_bits());
            let mut b = secret.encrypt_zero(ring, &a, prg);
            self.add_inputs(i, x, &mut b);
            ciphertexts.push([a, b]);
        }
        Upload { ciphertexts }
    }

    /// Adds Δ·x to the b half of ciphertext `index`; words are modulo 2^64 afterwards.
    fn add_inputs(&self, index: usize, x: &[u64], b: &mut [u64]) {
        let input = self.inputs.ciphertext(index);
        for run in &input.pattern.data {
            let words = &mut b[run.at as usize..][..run.len as usize];
            let x = &x[input.first_value + run.from as usize..];
            let add = |(word, &x): (&mut u64, &u64)| *word = word.wrapping_add(x << self.delta_bits());
            match self.inputs.step() {
                // Apart, since it becomes a loop over vectors.
                1 => words.iter_mut().zip(x).for_each(add),
                step => words.iter_mut().zip(x.iter().step_by(step)).for_each(add),
            }
        }
    }

    /// Step 4, client, up to the rounding: the masked products modulo 2^ℓ, `[C, H, W]`. Their low f bits are not masked.
    fn masked_products(&self, ring: &Ring, secret: &QuerySecret, export: &Export) -> Vec<u64> {
        let [channels, h, w] = self.layout.out_shape();
        let bits = self.params.modulus_bits() - self.shift();
        let step = self.delta_bits() - self.shift();
        let mut out = export.b.clone();
        let mut product = vec![0; self.params.ring_dim()];
        for (r, a) in export.a.chunks_exact(self.params.ring_dim()).enumerate() {
            secret.times(ring, a, bits, &mut product);
            let (t, d) = (r / channels, r % channels);
            for (from, to, len) in self.layout.exports(&self.layout.tiles()[t]) {
                for j in 0..len {
                    let m = &mut out[d * h * w + to + j];
                    *m = (m.wrapping_add(product[from + j]).wrapping_add(1 << (step - 1))
                        & self.exported_mask())
                        >> step;
                }
            }
        }
        out
    }

    /// Step 4, client: its share modulo 2^(ℓ-f).
    pub fn decode(&self, ring: &Ring, secret: &QuerySecret, export: &Export) -> Vec<u64> {
        self.masked_products(ring, secret, export).iter().map(|m| m >> self.shift()).collect()
    }
}

impl InsecurePublishedServer {
    /// Orders the weights for the fastest kernel that `cpu` allows.
    ///
    /// # Panics
    /// When the weights are not the layer's (`Model::validate` excludes it).
    pub fn new(cpu: Cpu, layer: InsecurePublishedLayer, weights: &Weights, weight_bits: u32) -> Self {
        let layout = &layer.layout;
        let kernel = Kernel::of(cpu);
        let (n, k, groups) = (layout.ring_dim(), layer.params.modulus_bits(), layout.spec().groups);
        let (outs, count) = (layout.out_shape()[0] / groups, layout.terms_per_output());
        assert_eq!(weights.weights.len(), groups * outs * count, "weights of another layer");
        let groups: Vec<_> = weights
            .weights
            .chunks_exact(outs * count)
            .enumerate()
            .map(|(g, w)| Group::new(gemm_terms(layout, g), PackedWeights::new(outs, count, weight_bits, w)))
            .collect();
        let shifts = groups.iter().flat_map(|group| group.terms.iter().map(|term| term.offset));
        let reach = shifts.max().unwrap_or(0) as usize;
        // All of a, but only as much of b as is exported.
        let lengths = [n, layout.tiles().iter().map(|tile| layout.export_len(tile)).max().unwrap_or(n)];
        let per_tile = layout.ciphertexts_per_tile();
        let ways = lengths.map(|len| match &groups[..] {
            _ if outs <= FEW_OUTS => Way::Words,
            [Group { terms, weights, .. }] => {
                let wanted = Wanted::first(len);
                let product = SpectralProduct { n, bits: k, rows: per_tile, terms, weight_bits, wanted };
                match Spectral::best(kernel, product, outs) {
                    Some(plan) => {
                        let weights = plan.weights(weights);
                        Way::Frequencies(Box::new(plan), weights)
                    }
                    None => Way::Limbs,
                }
            }
            _ => Way::Limbs,
        });
        let exponents = weights.exponents.clone();
        Self { kernel, exponents, bias: weights.bias.clone(), reach, groups, ways, layer }
    }

    fn exponent(&self, channel: usize) -> u32 {
        self.exponents.get(channel).map_or(0, |&e| u32::from(e))
    }

    /// For every output channel d of a tile, of this half, the first `len` words of Σ w·X^shift·row: `finish(d, words, out)`, with its part of
    /// `out`. `fill(i, words)` writes row i, whose bits above q mean nothing.
    fn convolve(
        &self,
        half: usize,
        len: usize,
        fill: impl Fn(usize, &mut [u64]) + Sync,
        memory: &mut Memory,
        out: &mut [u64],
        finish: impl Fn(usize, &[u64], &mut [u64]) + Sync,
    ) {
        let layout = &self.layer.layout;
        let (n, k) = (layout.ring_dim(), self.layer.params.modulus_bits());
        let channels = layout.out_shape()[0];
        let (outs, each) = (channels / self.groups.len(), out.len() / channels);
        match &self.ways[half] {
            Way::Words => {
                let row_len = n + self.reach;
                out.par_chunks_mut(outs * each).zip(&self.groups).enumerate().for_each_init(
                    || (&[][..], Vec::new(), vec![0; outs * len]),
                    |(present, rows, words), (g, (out, group))| {
                        // Groups that share a ciphertext follow each other.
                        if *present != &group.rows[..] {
                            rows.resize(group.rows.len() * row_len, 0);
                            for (&i, row) in group.rows.iter().zip(rows.chunks_exact_mut(row_len)) {
                                let (row, extension) = row.split_at_mut(n);
                                fill(i, row);
                                for (to, word) in extension.iter_mut().zip(row) {
                                    *to = word.wrapping_neg();
                                }
                            }
                            *present = &group.rows;
                        }
                        let rows = Rows { words: rows, row_len, bits: k };
                        spa_words(self.kernel, rows, &group.own_terms, &group.weights, len, words);
                        for (d, words) in words.chunks_exact(len).enumerate() {
                            finish(g * outs + d, words, &mut out[d * each..][..each]);
                        }
                    },
                );
            }
            Way::Frequencies(plan, weights) => {
                plan.multiply(&plan.rows(fill), weights, out, |d, words, out| finish(d, &words[..len], out));
            }
            Way::Limbs => {
                let Memory { planes, words } = memory;
                let planes =
                    limb_planes(planes, self.kernel, k, layout.ciphertexts_per_tile(), self.reach + n);
                planes.fill_negacyclic(n, fill);
                let product = |group: &Group, out: &mut [u64]| {
                    spa_gemm(planes, &group.terms, &group.weights, len, out, len);
                };
                if half == A {
                    // All words are kept, so that `out` has room for them.
                    out.par_chunks_mut(outs * len).zip(&self.groups).for_each(|(out, g)| product(g, out));
                    out.par_chunks_mut(len).enumerate().for_each_init(
                        || vec![0; len],
                        |words, (d, out)| {
                            words.copy_from_slice(out);
                            finish(d, words, out);
                        },
                    );
                } else {
                    words.resize(channels * len, 0);
                    words.par_chunks_mut(outs * len).zip(&self.groups).for_each(|(w, g)| product(g, w));
                    let results = words.par_chunks(len).zip(out.par_chunks_mut(each));
                    results.enumerate().for_each(|(d, (words, out))| finish(d, words, out));
                }
            }
        }
    }

    /// Steps 2 and 3, server: writes the export, whose memory is used again, and returns the server's share modulo
    /// 2^(ℓ-f). `x` is the server's share of the input.
    pub fn evaluate(&self, upload: &Upload, x: &[u64], prg: &mut Prg, export: &mut Export) -> Vec<u64> {
        let layer = &self.layer;
        let layout = &layer.layout;
        let [channels, h, w] = layout.out_shape();
        let (n, shift, delta) = (layout.ring_dim(), layer.shift(), layer.delta_bits());
        let per_tile = layout.ciphertexts_per_tile();
        let mut share = vec![0; layout.outputs()];
        prg.fill_words(&mut share, layer.plaintext_bits - shift);
        let Export { a, b, memory } = export;
        a.resize(layout.responses() * n, 0);
        b.resize(layout.outputs(), 0);
        for (t, (tile, a)) in layout.tiles().iter().zip(a.chunks_exact_mut(channels * n)).enumerate() {
            let ciphertexts = &upload.ciphertexts[t * per_tile..][..per_tile];
            self.convolve(
                A,
                n,
                |i, words| words.copy_from_slice(&ciphertexts[i][0]),
                memory,
                a,
                |d, words, out| {
                    let exponent = self.exponent(d);
                    out.iter_mut()
                        .zip(words)
                        .for_each(|(out, &w)| *out = (w << exponent & layer.params.mask()) >> shift);
                },
            );
            self.convolve(
                B,
                layout.export_len(tile),
                |i, words| {
                    words.copy_from_slice(&ciphertexts[i][1]);
                    layer.add_inputs(t * per_tile + i, x, words);
                },
                memory,
                b,
                |d, words, plane| {
                    let share = &share[d * h * w..][..h * w];
                    let exponent = self.exponent(d);
                    let masked = |phase: u64, bias: i64, share: u64| {
                        let phase =
                            (phase << exponent).wrapping_add((bias as u64) << delta) & layer.params.mask();
                        (phase >> shift).wrapping_sub(share << delta) & layer.exported_mask()
                    };
                    for (from, to, len) in layout.exports(tile) {
                        let sources = words[from..from + len].iter().zip(&share[to..]);
                        let outputs = plane[to..to + len].iter_mut().zip(sources);
                        match &self.bias {
                            Bias::PerChannel(bias) => {
                                outputs.for_each(|(out, (&w, &share))| *out = masked(w, bias[d], share));
                            }
                            Bias::PerElement(bias) => {
                                let bias = &bias[d * h * w + to..];
                                outputs.zip(bias).for_each(|((out, (&w, &share)), &bias)| {
                                    *out = masked(w, bias, share);
                                });
                            }
                        }
                    }
                },
            );
        }
        share
    }
}

/// Planes of this shape, those that are there if they have it.
fn limb_planes(
    planes: &mut Option<LimbPlanes>,
    kernel: Kernel,
    bits: u32,
    rows: usize,
    row_len: usize,
) -> &mut LimbPlanes {
    let shape = (kernel, bits, rows, row_len);
    planes.take_if(|planes| (planes.kernel(), planes.bits(), planes.rows(), planes.row_len()) != shape);
    planes.get_or_insert_with(|| LimbPlanes::new(kernel, bits, rows, row_len))
}

#[cfg(test)]
mod tests {
    use jaguar_graph::reference::linear_exact;

    use super::*;
    use crate::jaguar;

    const ELL: u32 = 29;
    const F: u32 = 12;

    fn pointwise(out_channels: usize) -> Linear {
        Linear::same(out_channels, 1, F)
    }

    fn random(prg: &mut Prg, count: usize, bits: u32) -> Vec<i64> {
        (0..count).map(|_| (prg.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1))).collect()
    }

    fn weights(prg: &mut Prg, count: usize, outs: usize) -> Weights {
        Weights {
            weights: random(prg, count, 12).iter().map(|&w| w.max(-2047) as i16).collect(),
            exponents: (0..outs).map(|d| (d % 3) as u8).collect(),
            bias: Bias::PerChannel(vec![0; outs]),
        }
    }

    /// Theorem 1: the sum of the shares is the exact floor, for every kind of layer.
    #[test]
    fn the_published_truncation_is_exact() {
        let params = insecure_published_parameters();
        let ring = Ring::new(Cpu::detect(), params);
        let mut prg = Prg::new([3; 32]);
        let mut seen = [false; 3];
        for (spec, shape) in [
            (pointwise(8), [64, 28, 28]),
            (Linear { kernel: [3, 3], pads: [1; 4], ..pointwise(4) }, [3, 56, 56]),
            (Linear { kernel: [3, 3], pads: [1; 4], stride: [2, 2], groups: 6, ..pointwise(6) }, [6, 20, 20]),
            (Linear { kernel: [3, 3], pads: [1; 4], groups: 5, ..pointwise(10) }, [5, 56, 56]),
            (Linear { kernel: [3, 3], pads: [1; 4], groups: 3, ..pointwise(12) }, [6, 9, 9]),
            (Linear { kernel: [3, 3], pads: [1; 4], ..pointwise(20) }, [64, 7, 7]),
            (Linear { kernel: [3, 3], pads: [1; 4], stride: [2, 2], ..pointwise(40) }, [40, 14, 14]),
        ] {
            let layer = InsecurePublishedLayer::new(params, &spec, shape, ELL).unwrap();
            let count = spec.out_channels * layer.layout.terms_per_output();
            let weights = weights(&mut prg, count, spec.out_channels);
            let x = random(&mut prg, shape.iter().product(), 11);
            let mut server_x = vec![0; x.len()];
            prg.fill_words(&mut server_x, ELL);
            let client_x: Vec<u64> = x
                .iter()
                .zip(&server_x)
                .map(|(&x, &s)| (x as u64).wrapping_sub(s) & ((1 << ELL) - 1))
                .collect();
            let secret = QuerySecret::from_prg(&ring, &mut prg);
            let upload = layer.encrypt(&ring, &secret, &client_x, &mut prg);
            let mut export = Export::default();
            let at_server = InsecurePublishedServer::new(Cpu::detect(), layer.clone(), &weights, 12);
            for way in &at_server.ways {
                seen[match way {
                    Way::Words => 0,
                    Way::Frequencies(..) => 1,
                    Way::Limbs => 2,
                }] = true;
            }
            // The second time into the memory of the first.
            at_server.evaluate(&upload, &vec![0; server_x.len()], &mut prg, &mut export);
            let server = at_server.evaluate(&upload, &server_x, &mut prg, &mut export);
            let client = layer.decode(&ring, &secret, &export);
            let mask = (1u64 << (ELL - F)) - 1;
            for (i, m) in linear_exact(Cpu::detect(), &spec, shape, &weights, &x).into_iter().enumerate() {
                assert_eq!(
                    client[i].wrapping_add(server[i]) & mask,
                    (m >> F) as u64 & mask,
                    "output {i} of {spec:?}"
                );
            }
            // 9 noise terms of 960 channels at most: the bound of the paper's largest layer leaves room.
            assert!(layer.is_exact(1 << 22, 1500));
            assert!(!layer.is_exact(1 << 24, 1500));
        }
        assert_eq!(seen, [true; 3], "words, frequencies and limbs");
    }

    /// Solves `rows · w = values (mod 2^f)` by elimination; `None` if no pivot is odd.
    fn solve(mut rows: Vec<Vec<u64>>, mut values: Vec<u64>, f: u32) -> Option<Vec<u64>> {
        let mask = (1u64 << f) - 1;
        let unknowns = rows[0].len();
        for c in 0..unknowns {
            let pivot = (c..rows.len()).find(|&r| rows[r][c] & 1 == 1)?;
            rows.swap(c, pivot);
            values.swap(c, pivot);
            // The inverse of an odd number modulo 2^f, by Newton's iteration.
            let p = rows[c][c];
            let inverse = (0..6).fold(1u64, |i, _| i.wrapping_mul(2u64.wrapping_sub(p.wrapping_mul(i))));
            rows[c].iter_mut().for_each(|v| *v = v.wrapping_mul(inverse) & mask);
            values[c] = values[c].wrapping_mul(inverse) & mask;
            let (row, value) = (rows[c].clone(), values[c]);
            for r in (0..rows.len()).filter(|&r| r != c) {
                let factor = rows[r][c];
                if factor != 0 {
                    rows[r]
                        .iter_mut()
                        .zip(&row)
                        .for_each(|(v, p)| *v = v.wrapping_sub(factor.wrapping_mul(*p)) & mask);
                    values[r] = values[r].wrapping_sub(factor.wrapping_mul(value)) & mask;
                }
            }
        }
        Some(values[..unknowns].to_vec())
    }

    /// A client that only looks, at the first layer: its own input and the low f bits of what it decodes.
    fn attack(x: &[i64], shape: Shape, low_bits: &[u64], f: u32) -> Vec<i64> {
        let plane = shape[1] * shape[2];
        let rows =
            (0..4 * shape[0]).map(|j| (0..shape[0]).map(|c| x[c * plane + j] as u64).collect()).collect();
        let values = low_bits[..4 * shape[0]].to_vec();
        let half = 1i64 << (f - 1);
        solve(rows, values, f)
            .map(|w| {
                w.iter().map(|&w| if w as i64 >= half { w as i64 - 2 * half } else { w as i64 }).collect()
            })
            .unwrap_or_else(|| vec![i64::MAX; shape[0]])
    }

    /// The attack recovers every weight from the published export, and nothing from what our client sees.
    #[test]
    fn weights_leak_from_the_published_export_and_not_from_ours() {
        let shape = [64, 28, 28];
        let spec = pointwise(1);
        let mut prg = Prg::new([4; 32]);
        let weights = weights(&mut prg, 64, 1);
        let x = random(&mut prg, shape.iter().product(), 11);
        let truth: Vec<i64> = weights.weights.iter().map(|&w| i64::from(w)).collect();
        let hits = |got: &[i64]| got.iter().zip(&truth).filter(|(a, b)| a == b).count();

        let params = insecure_published_parameters();
        let ring = Ring::new(Cpu::detect(), params);
        let layer = InsecurePublishedLayer::new(params, &spec, shape, ELL).unwrap();
        let secret = QuerySecret::from_prg(&ring, &mut prg);
        let shares: Vec<u64> = x.iter().map(|&v| v as u64 & ((1 << ELL) - 1)).collect();
        let upload = layer.encrypt(&ring, &secret, &shares, &mut prg);
        let mut export = Export::default();
        let at_server = InsecurePublishedServer::new(Cpu::detect(), layer.clone(), &weights, 12);
        at_server.evaluate(&upload, &vec![0; x.len()], &mut prg, &mut export);
        let seen = layer.masked_products(&ring, &secret, &export);
        let low: Vec<u64> = seen.iter().map(|m| m & ((1 << F) - 1)).collect();
        assert_eq!(hits(&attack(&x, shape, &low, F)), 64, "the published export gives every weight");

        // Ours: the client's whole phase, and in it the bits where the published form shows the product's low ones.
        let phases = jaguar::tests::client_phases(&spec, shape, &weights, &x);
        let (k, n) = (48, 16);
        let low: Vec<u64> = phases.iter().map(|p| (p >> (k - n - F)) & ((1 << F) - 1)).collect();
        let found = hits(&attack(&x, shape, &low, F));
        assert!(found <= 3, "{found} of 64 weights recovered from re-randomised, fully masked phases");
    }
}
